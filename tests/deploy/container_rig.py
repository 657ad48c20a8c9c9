# SPDX-License-Identifier: Apache-2.0
"""What the container test stands on: its own storage, stand-ins for base images, commands with a
limit.

No registry is asked: debian:12-slim is stood in by a bootstrap of the same release, NVIDIA's image
by that plus the NVRTC of this machine (or an empty library), AMD's by that plus empty libraries,
and Prometheus' by that plus Debian's program.  Storage, networks and images are our own, under
build/container, and gone at the end; the bootstrapped base stays there for the next run.
"""

import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

TREE = pathlib.Path(os.environ.get("VX_TREE", pathlib.Path(__file__).resolve().parents[2]))
WORK = TREE / "build" / "container"
RELEASE = "bookworm"
BASE_TAR = WORK / "debian-12.tar"
BASE = "localhost/standin/debian:12-slim"
CUDA_BASE = "localhost/standin/cuda:runtime"
ROCM_BASE = "localhost/standin/rocm:dev"
ROCM_LIBRARIES = ("libamdhip64.so.6", "libhsa-runtime64.so.1", "libamd_comgr.so.3",
                  "libhiprtc.so.6", "libhiprtc-builtins.so.6", "librocprofiler-register.so.0")
TOOLS = ("buildah", "podman", "runc", "mmdebstrap")
# What tests/run has compiled, for a ccache in the build stage, which only reads it.
COMPILED = TREE / "build" / "ccache"
LAUNCHER = """#!/bin/sh
export CCACHE_DIR=/ccache/kept CCACHE_TEMPDIR=/tmp/ccache CCACHE_READONLY=1 CCACHE_NOSTATS=1
export CCACHE_BASEDIR=/src CCACHE_NOHASHDIR=1 CCACHE_DEPEND=1 CCACHE_COMPILERCHECK=content
export CCACHE_SLOPPINESS=locale  # messages in another language are not in an object
exec env LD_LIBRARY_PATH=/ccache /ccache/ccache "$@"
"""
# For everything, and more than thirty times what it takes on two quiet cores: CTest's limit
# (container.cmake) is later, and then nobody cleans up.
SECONDS = 3300
PORT_FIRST = 10000  # to publish; below are the ports of services that a machine may have
HEALTHY_SECONDS = 300  # of a start that takes a tenth of one
START = time.monotonic()

# The limits of a machine that may not raise its own; runc, because crun wants cgroups v2 alone.
CONTAINERS_CONF = """[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
runtime = "runc"
events_logger = "file"
# An image without a host is one of ours, for a client of podman's service too.
compat_api_enforce_docker_hub = false
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
# The programs that /bin/sh and its like are.  The image must work where they are not.
SHELLS = ("/usr/bin/dash", "/usr/bin/bash")
NO_SHELL = [f"--volume=/dev/null:{shell}:ro" for shell in SHELLS]


class Failed(Exception):
    """The container does not do what deploy/README.md says."""


def skip(why):
    print(f"SKIPPED: container test: {why}", flush=True)
    sys.exit(77)


def say(text):
    print(f"[{time.monotonic() - START:5.1f} s] {text}", flush=True)


def free_address():
    """A loopback address to publish, below the ports that the kernel gives to whoever asks for 0.

    While a container is up, and after one that nobody took down, the firewall sends what comes
    for its port into the container.  No other test may get such a port: its clients are refused.
    """
    first_given = int(
        pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0]
    )
    for port in random.sample(range(PORT_FIRST, first_given), 100):
        try:
            with socket.create_server(("127.0.0.1", port)):
                return f"127.0.0.1:{port}"
        except OSError:
            pass
    raise Failed(f"none of 100 ports from {PORT_FIRST} to {first_given - 1} is free")


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
        "--dpkgopt=force-unsafe-io",
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        "--dpkgopt=path-exclude=/usr/share/man/*",
        "--dpkgopt=path-exclude=/usr/share/locale/*",
        f"--customize-hook=upload {clean} /etc/apt/apt.conf.d/docker-clean",
        "--format=tar",
        RELEASE,
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
    # A run that is told to end takes its containers down too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("FAILED: ended by SIGTERM"))
    os.environ.update(
        CONTAINERS_CONF=str(WORK / "containers.conf"),
        CONTAINERS_STORAGE_CONF=str(WORK / "storage.conf"),
        BUILDAH_ISOLATION="chroot",
        LC_ALL="C.UTF-8",
    )
    remove_storage()
    for name in ("tmp", "networks", "run", "storage"):
        (WORK / name).mkdir(parents=True, exist_ok=True)
    (WORK / "containers.conf").write_text(CONTAINERS_CONF.format(work=WORK))
    (WORK / "storage.conf").write_text(STORAGE_CONF.format(work=WORK))
    try:
        make_base()
    except Failed as why:
        skip(f"no base image can be made here: {why}")
    # The probe has nothing of ours in it: when it fails, the machine cannot, and that is a skip.
    say("importing the base image")
    probe = run("podman", "import", BASE_TAR, BASE, check=False)
    if probe.returncode == 0:
        probe = run(
            "podman", "run", "--rm", *HARDENED, "-p", f"{free_address()}:9", BASE, "true",
            check=False
        )
    if probe.returncode != 0:
        skip(f"podman cannot run a container here: {probe.stderr.strip()[-400:]}")


def remove_storage():
    """Ends what runs, of a run before too, and deletes everything but the base."""
    if (WORK / "containers.conf").exists():
        subprocess.run(
            ["podman", "rm", "--all", "--force", "--time", "2"],
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=200,
        )
    for mount in sorted(mounts_below(WORK), reverse=True):
        subprocess.run(["umount", "--lazy", mount], check=False)
    for name in ("storage", "run", "tmp", "networks", "cuda", "rocm", "prometheus", "private",
                 "ccache"):
        shutil.rmtree(WORK / name, ignore_errors=True)


def mounts_below(folder):
    lines = pathlib.Path("/proc/self/mounts").read_text().splitlines()
    return [line.split()[1] for line in lines if line.split()[1].startswith(f"{folder}/")]


def compiled_before():
    """Words for buildah with which the build compiles nothing twice; none without ccache."""
    program = shutil.which("ccache")
    # The base's release, so that this machine's program runs there.
    same = f"VERSION_CODENAME={RELEASE}\n" in pathlib.Path("/etc/os-release").read_text()
    if not program or not same or not COMPILED.exists():
        return []
    folder = WORK / "ccache"
    if not folder.exists():
        folder.mkdir()
        shutil.copy2(program, folder / "ccache")
        for line in run("ldd", program).stdout.splitlines():
            if "libhiredis" in line:  # what else it loads is where a compiler is
                shutil.copy2(line.split()[2], folder)
        (folder / "launch").write_text(LAUNCHER)
        (folder / "launch").chmod(0o755)
        (folder / "kept").mkdir()
    return [
        f"--volume={folder}:/ccache:ro",
        f"--volume={COMPILED}:/ccache/kept:ro",
        "--build-arg=CMAKE_C_COMPILER_LAUNCHER=/ccache/launch",
    ]


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
        *compiled_before(),
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
