#!/usr/bin/env python3
"""test_container - builds deploy/Dockerfile for real and serves a request from the image.

No registry is asked: debian:12-slim is stood in by a bootstrap of the same release, NVIDIA's image
by that plus the NVRTC of this machine (or an empty library), and AMD's by that plus empty
libraries.  So the Dockerfile is proved, not other people's base images.  Exit code 77
is a skip: no root, no tools, or no containers here.

    python3 tests/deploy/test_container.py          (VOXEL=build/release/bin/voxel for the request)

Storage, networks and images are our own, under build/container, and gone at the end; the
bootstrapped base stays there for the next run.

SPDX-License-Identifier: Apache-2.0
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import urllib.request

TREE = pathlib.Path(os.environ.get("VX_TREE", pathlib.Path(__file__).resolve().parents[2]))
WORK = TREE / "build" / "container"
BASE_TAR = WORK / "debian-12.tar"
BASE = "localhost/standin/debian:12-slim"
CUDA_BASE = "localhost/standin/cuda:runtime"
ROCM_BASE = "localhost/standin/rocm:dev"
ROCM_LIBRARIES = ("libamdhip64.so.6", "libhsa-runtime64.so.1", "libamd_comgr.so.3",
                  "libhiprtc.so.6", "libhiprtc-builtins.so.6", "librocprofiler-register.so.0")
TOOLS = ("buildah", "podman", "runc", "mmdebstrap")
# For everything, and twenty times what it takes on two quiet cores: CTest's limit
# (VX_HANG_SECONDS) is later, and then nobody cleans up.
SECONDS = 1500
HEALTHY_SECONDS = 300  # of a start that takes a tenth of one
START = time.monotonic()

# The limits of a machine that may not raise its own; runc, because crun wants cgroups v2 alone.
CONTAINERS_CONF = """[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "file"
tmp_dir = "{work}/tmp"
[network]
network_config_dir = "{work}/networks"
"""
STORAGE_CONF = """[storage]
driver = "overlay"
runroot = "{work}/run"
graphroot = "{work}/storage"
"""
HARDENED = [
    "--read-only",
    "--cap-drop",
    "ALL",
    "--security-opt",
    "no-new-privileges",
    "--memory",
    "1g",
    "--pids-limit",
    "256",
]


class Failed(Exception):
    """The container does not do what deploy/README.md says."""


def skip(why):
    print(f"SKIPPED: container test: {why}", flush=True)
    sys.exit(77)


def say(text):
    print(f"[{time.monotonic() - START:5.1f} s] {text}", flush=True)


def run(*command, check=True):
    """Runs a command within the time that is left; its output is shown when it fails."""
    left = SECONDS - (time.monotonic() - START)
    if left <= 0:
        raise Failed(
            f"the {SECONDS} s of this test are over before: {' '.join(map(str, command))}"
        )
    done = subprocess.run(
        [str(word) for word in command],
        cwd=TREE,
        text=True,
        timeout=left,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        check=False,
    )
    if check and done.returncode != 0:
        print(done.stdout[-6000:], done.stderr[-6000:])
        raise Failed(f"exit code {done.returncode} from: {' '.join(map(str, command))}")
    return done


def expect(truth, sentence):
    if not truth:
        raise Failed(sentence)


def make_base():
    """debian:12-slim as its makers do it: no manuals, no caches of apt."""
    if BASE_TAR.exists():
        return
    part = BASE_TAR.with_suffix(".part")
    clean = WORK / "docker-clean"
    clean.write_text(
        'APT::Keep-Downloaded-Packages "false";\n'
        'Dir::Cache::pkgcache "";\nDir::Cache::srcpkgcache "";\n'
    )
    run(
        "mmdebstrap",
        "--quiet",
        "--variant=minbase",
        "--include=ca-certificates",
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        "--dpkgopt=path-exclude=/usr/share/man/*",
        "--dpkgopt=path-exclude=/usr/share/locale/*",
        f"--customize-hook=upload {clean} /etc/apt/apt.conf.d/docker-clean",
        "--format=tar",
        "bookworm",
        part,
    )
    part.rename(BASE_TAR)


def make_cuda_base():
    """The base with the libraries that the cuda target takes from NVIDIA's image."""
    folder = WORK / "cuda" / "usr" / "local" / "cuda" / "lib64"
    shutil.rmtree(WORK / "cuda", ignore_errors=True)
    folder.mkdir(parents=True)
    real = sorted(pathlib.Path("/usr/local/cuda/lib64").glob("libnvrtc*.so*"))
    kind = "this machine's NVRTC" if real else "an empty libnvrtc"
    for library in real:
        shutil.copy2(library, folder / library.name, follow_symlinks=False)
    if not real:
        make_empty(folder, ("libnvrtc.so.13", "libnvrtc-builtins.so.13"))
    make_over_base(WORK / "cuda", "usr", CUDA_BASE)
    return kind


def make_rocm_base():
    """The base with the names of the libraries that the rocm target takes from AMD's image."""
    shutil.rmtree(WORK / "rocm", ignore_errors=True)
    folder = WORK / "rocm" / "opt" / "rocm" / "lib"
    folder.mkdir(parents=True)
    make_empty(folder, ROCM_LIBRARIES)
    make_over_base(WORK / "rocm", "opt", ROCM_BASE)


def make_empty(folder, names):
    """Libraries with a name and nothing in them."""
    for name in names:
        run("gcc", "-shared", f"-Wl,-soname,{name}", "-o", folder / name, "-x", "c", "/dev/null")


def make_over_base(work, folder, tag):
    recipe = work / "Dockerfile"
    recipe.write_text(f"FROM {BASE}\nCOPY {folder} /{folder}\n")
    run("buildah", "bud", "--pull-never", "-f", recipe, "-t", tag, work)


def prepare():
    if os.geteuid() != 0:
        skip("needs root")
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    if missing:
        skip(f"{', '.join(missing)} not installed (deploy/install-deps --container)")
    remove_storage()
    for name in ("tmp", "networks", "run", "storage"):
        (WORK / name).mkdir(parents=True, exist_ok=True)
    (WORK / "containers.conf").write_text(CONTAINERS_CONF.format(work=WORK))
    (WORK / "storage.conf").write_text(STORAGE_CONF.format(work=WORK))
    os.environ.update(
        CONTAINERS_CONF=str(WORK / "containers.conf"),
        CONTAINERS_STORAGE_CONF=str(WORK / "storage.conf"),
        BUILDAH_ISOLATION="chroot",
        LC_ALL="C.UTF-8",
    )
    try:
        make_base()
    except Failed as why:
        skip(f"no base image can be made here: {why}")
    # The probe has nothing of ours in it: when it fails, the machine cannot, and that is a skip.
    say("importing the base image")
    probe = run("podman", "import", BASE_TAR, BASE, check=False)
    if probe.returncode == 0:
        probe = run(
            "podman", "run", "--rm", *HARDENED, "-p", "127.0.0.1::9", BASE, "true", check=False
        )
    if probe.returncode != 0:
        skip(f"podman cannot run a container here: {probe.stderr.strip()[-400:]}")


def remove_storage():
    """Ends what runs and deletes everything but the base."""
    if (WORK / "containers.conf").exists() and "CONTAINERS_CONF" in os.environ:
        subprocess.run(
            ["podman", "rm", "--all", "--force", "--time", "2"],
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=200,
        )
    for mount in sorted(mounts_below(WORK), reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=False)
    for name in ("storage", "run", "tmp", "networks", "cuda", "rocm"):
        shutil.rmtree(WORK / name, ignore_errors=True)


def mounts_below(folder):
    lines = pathlib.Path("/proc/self/mounts").read_text().splitlines()
    return [line.split()[1] for line in lines if line.split()[1].startswith(f"{folder}/")]


def build(target, *arguments):
    say(f"building target {target}")
    tag = f"localhost/voxeld:{target}"
    run(
        "buildah",
        "bud",
        "--pull-never",
        "--network",
        "host",
        "--format",
        "docker",
        "--layers",
        "--build-arg",
        f"BASE={BASE}",
        "--build-arg",
        f"CUDA_BASE={CUDA_BASE}",
        "--build-arg",
        f"ROCM_BASE={ROCM_BASE}",
        *arguments,
        "--target",
        target,
        "-f",
        "deploy/Dockerfile",
        "-t",
        tag,
        ".",
    )
    return tag


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


def start(tag):
    """Starts the image as a careful operator would and waits until it says healthy."""
    name = "voxeld-" + tag.rsplit(":", maxsplit=1)[-1]
    run(
        "podman",
        "run",
        "-d",
        "--name",
        name,
        *HARDENED,
        "-p",
        "127.0.0.1::8001",
        "-p",
        "127.0.0.1::8002",
        tag,
    )
    end = time.monotonic() + HEALTHY_SECONDS
    while run("podman", "healthcheck", "run", name, check=False).returncode != 0:
        if time.monotonic() > end:
            print(run("podman", "logs", name, check=False).stderr[-3000:])
            raise Failed(f"{name} is not healthy after {HEALTHY_SECONDS} s")
        time.sleep(0.2)  # sleep: between two looks
    say(f"{name}: healthy")
    ports = [run("podman", "port", name, f"{port}/tcp").stdout.strip() for port in (8001, 8002)]
    return name, ports[0], ports[1]


def check_confined(name):
    status = run("podman", "exec", name, "cat", "/proc/1/status").stdout
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    expect(int(fields["Uid"].split()[0]) != 0, "the daemon runs as root")
    expect(int(fields["CapBnd"], 16) == 0, f"capabilities are left: {fields['CapBnd']}")
    expect(fields["NoNewPrivs"].strip() == "1", "new privileges are possible")
    touched = run("podman", "exec", name, "touch", "/usr/x", check=False)
    expect(touched.returncode != 0, "the root file system is writable")


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
    voxel = os.environ.get("VOXEL", TREE / "build" / "release" / "bin" / "voxel")
    answer = run(voxel, "infer", "--server", grpc, "--model", "normals", scan, "-o", out)
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


def check_compose():
    """The compose file as a compose tool reads it; docker-compose 1 lists profiles always."""
    tools = [
        tool
        for tool in (["docker-compose"], ["docker", "compose"])
        if shutil.which(tool[0]) and run(*tool, "version", check=False).returncode == 0
    ]
    if not tools:
        print("SKIPPED: compose.yaml not checked: no docker-compose and no docker compose here")
        return
    command = [*tools[0], "-f", "deploy/compose.yaml", "--profile", "cuda", "--profile", "rocm",
               "config"]
    run(*command)
    named = set(run(*command, "--services").stdout.split())
    expect(named == {"voxeld", "voxeld-cuda", "voxeld-rocm"}, f"compose names {sorted(named)}")
    say("compose.yaml is valid")


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
        check_compose()
        cpu = build("cpu")
        check_image(cpu)
        name, grpc, http = start(cpu)
        check_confined(name)
        check_serves(name, grpc, http)
        check_stops(name)
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
