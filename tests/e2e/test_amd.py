# SPDX-License-Identifier: Apache-2.0
"""The daemon on AMD's path, without an AMD GPU: tests/amd has the library that runs launches on
the CPU, and the compiler that makes this machine's code of what AMD's compiler optimised.

The weights of the exact networks are -1, 0 or 1, one that is not 0 for each channel, so that every
sum is a small whole number, which fp16 holds: the answers must equal the CPU's in every bit."""
import base64
import contextlib
import json
import os
import pathlib
import shutil
import struct
import subprocess

import numpy as np
import pytest

from conftest import ROOT
from model_files import ConvModel, random_grid, write_safetensors
from test_device_regions import Placed, device_handle
from test_shared_memory import connected, refused
from voxeld import Client
from voxeld_process import PATIENCE, Daemon

STANDIN = pathlib.Path(os.environ["VX_BIN"]).parent / "tests" / "libhip_standin.so"
COMPILER = ROOT / "tests" / "amd" / "hip_clang"
NOBODY = ("--gpu-driver", "libcuda-of-nobody.so")
CHANNELS = 8


def compiler():
    """What tests/amd/hip_clang runs; None = this machine has no clang for AMD."""
    return os.environ.get("VX_HIP_CLANG") or shutil.which("clang-19")


pytestmark = pytest.mark.skipif(
    not compiler(), reason="no clang for AMD on this machine (clang-19, lld-19)")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """One for all tests, and shared with the oracle of `tests/run chips`: a kernel takes a second
    of a core to compile."""
    shared = os.environ.get("VX_KERNELS")
    return pathlib.Path(shared) if shared else tmp_path_factory.mktemp("kernels") / "cache"


class Amd(Daemon):
    """`settings` as tests/amd/standin.h has them."""

    def __init__(self, repository, work, cache, device, settings="", more=()):
        self.settings = settings
        super().__init__(repository, work, "--device", device, "--hip-library", str(STANDIN),
                         "--hip-compiler", str(COMPILER), "--kernel-cache", str(cache),
                         "--device-bytes", "256M", *NOBODY, *more)

    def popen(self, arguments, **options):
        environment = {**os.environ, "VX_HIP_CLANG": compiler(),
                       "VX_STANDIN_SETTINGS": self.settings}
        return super().popen(arguments, env=environment, **options)


class Exact:
    """Layers whose sums are small whole numbers; add() returns the layer's name."""

    def __init__(self, precision, seed):
        self.rng = np.random.default_rng(seed)
        self.tensors, self.layers = {}, []
        self.network = {
            "format": 1, "precision": precision, "warmup": [10],
            "inputs": {"coords": "coords", "feats": {"name": "feats", "channels": CHANNELS}},
            "layers": self.layers, "limits": {"voxels_max": 2000}}

    def add(self, name, op, source, **keys):
        key = "inputs" if isinstance(source, list) else "input"
        self.layers.append({"name": name, "op": op, key: source, **keys})
        return name

    def conv(self, name, op, source, edge=3, read=CHANNELS, **keys):
        weight = np.zeros((CHANNELS, edge, edge, edge, read), np.float32)
        for channel in range(CHANNELS):
            x, y, z = self.rng.integers(0, edge, 3)
            weight[channel, x, y, z, self.rng.integers(read)] = self.rng.choice([-1, 1])
        self.tensors[f"{name}.weight"] = weight
        self.tensors[f"{name}.bias"] = self.rng.integers(-1, 2, CHANNELS).astype(np.float32)
        if "of" not in keys:  # else the edge is that of the layer that `of` names
            keys["kernel"] = edge
        return self.add(name, op, source, channels=CHANNELS, layout="oxyzi", **keys)

    def write(self, repository, name, last):
        self.network["outputs"] = [{"name": "out", "layer": last}]
        folder = repository / name / "1"
        folder.mkdir(parents=True)
        (repository / name / "network.json").write_text(json.dumps(self.network))
        write_safetensors(folder / "weights.safetensors", self.tensors)


def write_deep(repository, precision):
    """16 layers."""
    model, at = Exact(precision, 1), "feats"
    for i in range(16):
        at = model.conv(f"conv{i}", "subm_conv", at)
        if i % 3 == 1:
            at = model.add(f"act{i}", "relu", at)
    model.write(repository, f"deep_{precision}", at)


def write_unet(repository):
    """Two levels: down, up onto the skip, concat."""
    model = Exact("fp16", 2)
    skip = model.conv("stem", "subm_conv", "feats")
    at = model.conv("down", "sparse_conv", skip, 2, stride=2, rule="floor")
    at = model.conv("middle", "subm_conv", at)
    at = model.conv("up", "inverse_conv", at, 2, of="down")
    at = model.add("cat", "concat", [at, skip])
    model.write(repository, "unet", model.conv("head", "subm_conv", at, read=2 * CHANNELS))


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    path = tmp_path_factory.mktemp("exact")
    for precision in ("fp16", "fp32"):
        write_deep(path, precision)
    write_unet(path)
    return path


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path, model = tmp_path_factory.mktemp("small"), ConvModel()
    model.network["warmup"] = [10]
    model.write(path)
    return path


def cloud(voxels=200):
    coords, _ = random_grid(7, voxels)
    feats = np.random.default_rng(3).integers(-2, 3, (len(coords), CHANNELS))
    return coords, feats.astype(np.float32)


def total(daemon, name):
    return sum(v for k, v in daemon.metrics().items() if k.startswith(f"voxeld_{name}"))


@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
def test_a_network_of_16_layers_and_a_unet_answer_with_the_cpus_bytes(exact, tmp_path, cache, arch):
    coords, feats = cloud()
    names = ("deep_fp16", "deep_fp32", "unet")
    with Daemon(exact, tmp_path, "--device", "cpu") as daemon, Client(daemon.grpc) as client:
        right = {name: client.infer(name, coords, feats)["out"] for name in names}
    with Amd(exact, tmp_path, cache, "hip:0", f"arch={arch}") as daemon, \
            Client(daemon.grpc) as client:
        assert 'device="hip:0"' in daemon.get("/metrics")[1]
        for name in names:
            out = client.infer(name, coords, feats, timeout=PATIENCE)["out"]
            assert out.tobytes() == right[name].tobytes(), name
            assert len(np.unique(out)) > 3, name  # not all zeros


def test_the_demo_network_answers_as_on_the_cpu(tmp_path, cache):
    repository = tmp_path / "demo"
    shutil.copytree(ROOT / "deploy" / "demo" / "repository", repository)
    path = repository / "normals" / "network.json"
    network = json.loads(path.read_text())
    path.write_text(json.dumps({**network, "warmup": [20], "limits": {"voxels_max": 2000}}))
    coords, _ = random_grid(5, 300)
    feats = np.ones((len(coords), 1), np.float32)
    with Daemon(repository, tmp_path, "--device", "cpu") as daemon, Client(daemon.grpc) as client:
        right = client.infer("normals", coords, feats)["normals"]
    with Amd(repository, tmp_path, cache, "hip:0") as daemon, Client(daemon.grpc) as client:
        out = client.infer("normals", coords, feats, timeout=PATIENCE)["normals"]
    assert np.abs(out - right).max() < 0.01  # as in test_gpu.py
    assert np.abs(right).max() > 0.5


def ask_until(daemon, client, condition):
    """Right answers all the time until condition()."""
    coords, feats = random_grid(9, 60)
    right = ConvModel().answer(coords, feats)

    def asked():
        out = client.infer("conv", coords, feats, timeout=PATIENCE)["out"]
        assert np.abs(out - right).max() < 0.02
        return condition()
    daemon.wait_for("what is asked for", asked)


@pytest.mark.parametrize("device,losses", [("hip:0,hip:1", 2), ("hip:0,cpu", 1)])
def test_a_lost_device_costs_no_answer(small, tmp_path, cache, device, losses):
    """A launch of the first request takes hip:0 with it, again and again; beside the CPU, which
    is so much faster here, it gets no request after the first."""
    with Amd(small, tmp_path, cache, device, "devices=2 lose_launch=48 fault_device=0") as daemon, \
            Client(daemon.grpc) as client:
        ask_until(daemon, client, lambda: total(daemon, "worker_device_lost_total") >= losses)
        daemon.wait_said("GPU_LOST", losses)
        assert total(daemon, 'worker_restarts_total{worker="1"') == 0


def amd_handle(fd, size):
    """As struct standin_handle of tests/amd/standin.h."""
    text = b"voxeld-amd-ipc".ljust(16, b"\0") + struct.pack("<QQQ", os.getpid(), fd, size)
    return base64.b64encode(text.ljust(64, b"\0")).decode()


def test_device_regions_answer_as_the_wire(small, tmp_path, cache):
    """Memory of this process, which the daemon opens by its handle; a second time, with other
    contents; and handles that name nothing."""
    with Amd(small, tmp_path, cache, "hip:0", more=("--client-shm", "local")) as daemon, \
            connected(daemon.grpc) as client, contextlib.ExitStack() as stack:
        for seed in range(2):
            placed = Placed(stack, client, seed, voxels=64, handle=amd_handle)
            assert placed.ask() == placed.grid.plain(client)
        for handle in (amd_handle(9999, 4096), device_handle(placed.files[0], 4096)):
            with refused("INVALID_ARGUMENT", "names no memory of this device"):
                client.call("CudaSharedMemoryRegister", name="none", device_id=0, byte_size=4096,
                            raw_handle=handle)
        client.call("CudaSharedMemoryUnregister")
        assert client.call("CudaSharedMemoryStatus") == {}


def test_auto_takes_every_gpu(small, tmp_path, cache):
    with Amd(small, tmp_path, cache, "auto", "devices=2") as daemon, Client(daemon.grpc) as client:
        said = daemon.get("/metrics")[1]
        assert 'device="hip:0"' in said and 'device="hip:1"' in said and '"cpu"' not in said
        daemon.wait_said('why="no CUDA driver: libcuda-of-nobody.so')
        ask_until(daemon, client, lambda: True)


def test_devices_lists_both_vendors():
    done = subprocess.run(
        [os.environ["VOXELD"], "devices", *NOBODY, "--hip-library", str(STANDIN)],
        env={**os.environ, "VX_STANDIN_SETTINGS": "arch=gfx1100 devices=2"},
        capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done
    assert done.stdout.startswith("cuda   none: no CUDA driver: libcuda-of-nobody.so")
    assert "hip:0  " in done.stdout and "hip:1  " in done.stdout
    assert ", gfx1100, 4 processors" in done.stdout and "64 KiB shared" in done.stdout


@pytest.mark.parametrize("flags,settings,sentence", [
    (("--hip-library", "/nowhere/libamdhip64.so"), "",
     "no HIP driver: /nowhere/libamdhip64.so: cannot open shared object file"),
    ((), "devices=0", "/dev/kfd"),
    ((), "version=50100000", "HIP driver: expected at least version 5.2, got 5.1"),
    (("--hip-compiler", "/nowhere/clang", "--kernel-cache="), "",
     "expected clang 19 or newer or hipRTC; /nowhere/clang: No such file or directory"),
])
def test_what_is_missing_is_named_and_the_cpu_serves(small, tmp_path, flags, settings, sentence):
    with Amd(small, tmp_path, tmp_path / "kernels", "cpu,hip:0", settings, more=flags) as daemon, \
            Client(daemon.grpc) as client:
        daemon.wait_said(sentence)
        ask_until(daemon, client, lambda: True)
