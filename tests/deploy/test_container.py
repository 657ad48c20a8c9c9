#!/usr/bin/env python3
"""test_container - builds deploy/Dockerfile for real and serves a request from the image.

container_rig.py has what it stands on.  Stand-ins take the place of other people's images, so the
Dockerfile is proved, not those.  Exit code 77 is a skip: no root, no tools, or no containers here.

    python3 tests/deploy/test_container.py          (VOXEL=build/release/bin/voxel for the request)

SPDX-License-Identifier: Apache-2.0
"""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request

import container_compose
from container_rig import (
    BASE,
    HARDENED,
    HEALTHY_SECONDS,
    NO_SHELL,
    TREE,
    WORK,
    Failed,
    build,
    expect,
    free_address,
    make_cuda_base,
    make_rocm_base,
    prepare,
    remove_storage,
    run,
    say,
)

# What the CPU image may add to its base.
ADDED_MB_MAX = 60
# Of it, what Debian's own slim image lacks and our stand-in has: OpenSSL's libraries, for apt.
OPENSSL = ("libssl.so.3", "libcrypto.so.3")


def check_image(tag):
    """What an operator reads before running it."""
    image = json.loads(run("podman", "image", "inspect", tag).stdout)[0]
    config = image["Config"]
    expect(config.get("User") not in (None, "", "0", "root"), f"{tag} runs as root")
    expect(config.get("StopSignal") in ("SIGTERM", "15"), f"{tag} has no STOPSIGNAL SIGTERM")
    expect(
        {"8001/tcp", "8002/tcp"} <= set(config.get("ExposedPorts", {})), f"{tag} lacks its ports"
    )
    expect(image.get("Healthcheck"), f"{tag} has no health check")
    tools = run(
        "podman",
        "run",
        "--rm",
        "--entrypoint",
        "sh",
        tag,
        "-c",
        "ls /usr/bin/gcc /usr/bin/cc /usr/bin/cmake /src 2>/dev/null",
        check=False,
    ).stdout
    expect(not tools.strip(), f"{tag} has build tools in it: {tools.split()}")
    say(f"{tag}: {image['Size'] / 1e6:.0f} MB, user {config['User']}")


def check_size(tag):
    """Layer by layer, as deploy/README.md has it."""
    layers = json.loads(run("podman", "history", "--format", "json", tag).stdout)
    image, base = (
        json.loads(run("podman", "image", "inspect", one).stdout)[0]["Size"] for one in (tag, BASE)
    )
    for layer in layers:
        if layer["size"]:
            say(f"layer of {layer['size'] / 1e6:6.1f} MB: {layer['CreatedBy'][:60]}")
    folder = "/usr/lib/*-linux-gnu/"
    listed = run(
        "podman", "run", "--rm", "--entrypoint", "sh", BASE, "-c",
        f"stat -L -c %s {' '.join(folder + name for name in OPENSSL)} 2>/dev/null", check=False,
    ).stdout.split()
    added = (image - base + sum(map(int, listed))) / 1e6
    say(f"{tag} adds {added:.1f} MB to Debian's slim image")
    expect(added <= ADDED_MB_MAX, f"{tag} adds {added:.0f} MB, expected {ADDED_MB_MAX} at most")


def check_licences(tag):
    """Each library is of a package whose licence and entry for scanners are there."""
    listed = run(
        "podman", "run", "--rm", "--entrypoint", "sh", tag, "-c",
        "cd /var/lib/dpkg/status.d && for one in *; do test -s /usr/share/doc/$one/copyright &&"
        ' grep -qx "Package: $one" $one && echo $one; done;'
        " test -s /usr/share/doc/voxeld/LICENSE && echo voxeld; ls",
    ).stdout.split()
    named = {one for one in listed if listed.count(one) == 2}
    expect({"libgrpc29", "libuv1"} <= named, f"{tag} has licences of {sorted(named)}")
    expect(named | {"voxeld"} == set(listed), f"{tag} lacks licences: {sorted(listed)}")


def start(tag, *options, name=None, healthy=True):
    """Starts the image as a careful operator would and waits until it says healthy."""
    name = name or "voxeld-" + tag.rsplit(":", maxsplit=1)[-1]
    grpc, http = free_address(), free_address()
    run(
        "podman",
        "run",
        "-d",
        "--name",
        name,
        *HARDENED,
        *NO_SHELL,
        *options,
        "-p",
        f"{grpc}:8001",
        "-p",
        f"{http}:8002",
        tag,
    )
    if not healthy:
        return name
    end = time.monotonic() + HEALTHY_SECONDS
    while run("podman", "healthcheck", "run", name, check=False).returncode != 0:
        if time.monotonic() > end:
            print(run("podman", "logs", name, check=False).stderr[-3000:])
            raise Failed(f"{name} is not healthy after {HEALTHY_SECONDS} s")
        time.sleep(0.2)  # sleep: between two looks
    say(f"{name}: healthy")
    return name, grpc, http


def check_confined(name):
    status = run("podman", "exec", name, "cat", "/proc/1/status").stdout
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    expect(int(fields["Uid"].split()[0]) != 0, "the daemon runs as root")
    expect(int(fields["CapBnd"], 16) == 0, f"capabilities are left: {fields['CapBnd']}")
    expect(fields["NoNewPrivs"].strip() == "1", "new privileges are possible")
    shell = run("podman", "exec", name, "sh", "-c", "true", check=False)
    expect(shell.returncode != 0, "there is a shell after all")
    touched = run("podman", "exec", name, "touch", "/usr/x", check=False)
    expect(touched.returncode != 0, "the root file system is writable")


def voxel_program():
    return os.environ.get("VOXEL", TREE / "build" / "release" / "bin" / "voxel")


def check_serves(name, grpc, http):
    with urllib.request.urlopen(f"http://{http}/v2/health/ready", timeout=60) as answer:
        expect(answer.status == 200, f"/v2/health/ready says {answer.status}")
    say(
        run(
            "podman", "exec", name, "voxel", "models", "--server", "127.0.0.1:8001"
        ).stdout.strip()
    )
    scan = TREE / "deploy" / "demo" / "scan.ply"
    out = WORK / "answer.npy"
    out.unlink(missing_ok=True)
    answer = run(voxel_program(), "infer", "--server", grpc, "--model", "normals", scan, "-o", out)
    expect(out.exists() and out.stat().st_size > 100000, f"the answer is small: {answer.stdout}")
    say(f"demo scan served: {out.stat().st_size} bytes of answer")
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=60) as page:
        text = page.read().decode()
    rows = [row for row in text.splitlines() if row.startswith("nv_inference_request_success")]
    expect(any(float(row.rsplit(" ", 1)[1]) >= 1 for row in rows), f"no success counted: {rows}")


def check_stops(name):
    begin = time.monotonic()
    run("podman", "stop", "--time", "40", name)
    state = json.loads(run("podman", "inspect", name).stdout)[0]["State"]
    expect(state["ExitCode"] == 0, f"{name} ended with {state['ExitCode']} after SIGTERM")
    say(f"{name}: SIGTERM to exit 0 in {time.monotonic() - begin:.1f} s")
    run("podman", "rm", name)


def check_private_models(tag):
    """Weights of mode 0600: refused with a reason, and served to the user who owns them."""
    folder = WORK / "private"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(TREE / "deploy" / "demo" / "repository", folder)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
        os.chown(path, 4321, 4321)
    mount = f"--volume={folder}:/models:ro"
    name, _, _ = start(tag, mount, "--user=4321:4321", name="owner")
    check_stops(name)
    name = start(tag, mount, name="stranger", healthy=False)
    code = int(run("podman", "wait", name).stdout)
    said = run("podman", "logs", name)
    expect(code == 1, f"a repository that cannot be read ends voxeld with {code}")
    expect("ermission denied" in said.stdout + said.stderr, "the log does not say why")
    run("podman", "rm", name)
    say("weights of mode 0600 are served to their owner, and refused with a reason")


def check_answers(grpc):
    """Three requests to the demo model."""
    scan, voxel = TREE / "deploy" / "demo" / "scan.ply", voxel_program()
    for _ in range(3):
        run(voxel, "infer", "--server", grpc, "--model", "normals", scan, "-o", WORK / "answer.npy")
    return 3


def check_rocm():
    """The image of AMD's libraries, with kernels that were compiled without a GPU."""
    make_rocm_base()
    rocm = build("rocm", "--build-arg", "ARCHS=gfx942")
    check_image(rocm)
    listed = run("podman", "run", "--rm", "--entrypoint", "sh", rocm, "-c",
                 "/sbin/ldconfig -p; ls /var/cache/voxeld/kernels").stdout
    expect("libamdhip64.so" in listed, "the rocm image has no HIP in the loader's cache")
    kernels = [line for line in listed.splitlines() if line.endswith(".kernel")]
    expect(len(kernels) > 5, f"expected the demo's kernels in the rocm image, got {len(kernels)}")
    say(f"the rocm image has {len(kernels)} kernels for gfx942")
    name, _, _ = start(rocm)
    said = run("podman", "logs", name)
    expect("the HIP driver has no function hipInit" in said.stdout + said.stderr,
           "the daemon does not say why it found no AMD GPU")
    check_stops(name)


def main():
    prepare()
    try:
        cpu = build("cpu")
        check_image(cpu)
        check_size(cpu)
        check_licences(cpu)
        name, grpc, http = start(cpu)
        check_confined(name)
        check_serves(name, grpc, http)
        check_stops(name)
        check_private_models(cpu)
        container_compose.check(check_answers)
        say(f"stand-in for the CUDA image: {make_cuda_base()}")
        cuda = build("cuda")
        check_image(cuda)
        listed = run(
            "podman", "run", "--rm", "--entrypoint", "sh", cuda, "-c", "/sbin/ldconfig -p"
        )
        expect(
            "libnvrtc.so" in listed.stdout, "the cuda image has no NVRTC in the loader's cache"
        )
        name, grpc, http = start(cuda)
        check_stops(name)
        check_rocm()
    except (Failed, subprocess.TimeoutExpired) as why:
        print(f"FAILED: {why}")
        return 1
    finally:
        remove_storage()
    say("all good")
    return 0


if __name__ == "__main__":
    sys.exit(main())
