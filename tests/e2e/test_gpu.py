# SPDX-License-Identifier: Apache-2.0
"""The GPU's path through the daemon, on the fake GPU: it computes with the kernels' references, so
requests are small.  Also what the daemon reports when there is no driver."""
import json
import os
import re
import shutil
import subprocess
import threading

import numpy as np
import pytest

from conftest import ROOT
from model_files import ConvModel, random_grid
from voxeld import Client
from voxeld_process import PATIENCE, Daemon

NO_DRIVER = "no CUDA driver: libcuda-of-nobody.so: cannot open shared object file"
# A driver name that no machine has, so that the tests do the same on a machine with a GPU.
WIDE = 12  # channels in of a layer that algorithms are chosen for: with up to 8 it is narrow
WITHOUT = ("--gpu-driver", "libcuda-of-nobody.so")


def fake(work, *more):
    return ("--device-bytes", "256M", "--kernel-cache", str(work / "kernels"), *more)


def total(daemon, name):
    """The sum over workers of the metrics whose name begins with `name`."""
    return sum(v for k, v in daemon.metrics().items() if k.startswith(f"voxeld_{name}"))


def losses(daemon):
    return total(daemon, "worker_device_lost_total")


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """One layer, with a warm-up small enough for plain C."""
    path = tmp_path_factory.mktemp("repository")
    small = ConvModel()
    small.network["warmup"] = [10]
    small.write(path)
    return path


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The demo network with limits and a warm-up small enough for plain C."""
    repository = tmp_path_factory.mktemp("demo") / "repository"
    shutil.copytree(ROOT / "deploy" / "demo" / "repository", repository)
    path = repository / "normals" / "network.json"
    network = json.loads(path.read_text())
    network["warmup"] = [20]
    network["limits"] = {"voxels_max": 2000}
    path.write_text(json.dumps(network))
    return repository


def test_the_demo_network_answers_as_on_the_cpu(demo, tmp_path):
    coords, _ = random_grid(5, 300)
    feats = np.ones((len(coords), 1), np.float32)
    answers = {}
    for device in ("cpu", "fake:0"):
        with Daemon(demo, tmp_path, "--device", device, *fake(tmp_path)) as daemon, \
                Client(daemon.grpc) as client:
            answers[device] = client.infer("normals", coords, feats, timeout=PATIENCE)["normals"]
            assert f'device="{device}"' in daemon.get("/metrics")[1]
    assert answers["cpu"].dtype == answers["fake:0"].dtype
    # Unit vectors behind nine convolutions: each path rounds its own sums, to 11 bits between
    # layers where the network says half precision, and a layer passes an error on with a factor
    # of about 1: 9 x 2^-11 = 0.0044, twice that for two paths.
    assert np.abs(answers["cpu"] - answers["fake:0"]).max() < 0.01
    assert np.abs(answers["cpu"]).max() > 0.5


@pytest.mark.parametrize("voxels", [0, 1, 2, 17, 400])
def test_a_layer_is_right_for_small_and_empty_clouds(gpu_daemon, model, voxels):
    coords, feats = random_grid(voxels, voxels) if voxels else (
        np.zeros((0, 4), np.int32), np.zeros((0, 4), np.float32))
    with Client(gpu_daemon.grpc) as client:
        out = client.infer("conv", coords, feats, timeout=PATIENCE)["out"]
    assert out.shape == (voxels, model.co)
    if voxels:
        # 27 x 4 products and 8 sums in f32, of values around 1: a hundred roundings of 2^-24.
        assert np.abs(out - model.answer(coords, feats)).max() < 1e-4


@pytest.fixture(scope="module")
def gpu_daemon(repository, tmp_path_factory):
    work = tmp_path_factory.mktemp("gpu")
    with Daemon(repository, work, "--device", "fake:0", *fake(work)) as one:
        yield one


def test_timing_can_say_which_algorithm_and_tile_each_layer_took(gpu_daemon):
    coords, feats = random_grid(9, 300)
    with Client(gpu_daemon.grpc) as client:
        said = client.infer("conv", coords, feats, timing="layers", timeout=PATIENCE).parameters
        assert re.fullmatch(r"narrow: conv; implicit\[[\d,]+\]: head", said["layers"])
        assert said["device"].startswith("fake:0")


def test_bad_coordinates_are_refused_in_the_same_words(gpu_daemon):
    with Client(gpu_daemon.grpc) as client, pytest.raises(Exception) as caught:
        client.infer("conv", [[0, 1, 2, 3], [0, 1, 2, 3]], np.ones((2, 4), np.float32))
    assert ("rows 0 and 1 are the same voxel (sample 0, last three columns 1, 2, 3)"
            in str(caught.value))


def test_compiled_kernels_are_kept_across_starts(repository, tmp_path):
    for start in range(2):
        with Daemon(repository, tmp_path, "--device", "fake:0", *fake(tmp_path)) as daemon:
            daemon.wait_said("KERNEL_BUILD", 1 if start == 0 else 0)
            assert daemon.log().count("KERNEL_BUILD") == (1 if start == 0 else 0)
            counts = []

            def said():  # the front asks its workers once a second
                counts[:] = [sum(v for k, v in daemon.metrics().items()
                                 if k.startswith(f"voxeld_kernels_{what}_total"))
                             for what in ("compiled", "cached")]
                return any(counts)
            daemon.wait_for("the worker's numbers", said)
            assert (counts[0] > 0, counts[1] > 0) == (start == 0, start == 1), counts
    assert list((tmp_path / "kernels").glob("*.kernel"))


@pytest.mark.races
def test_a_load_says_how_far_it_is(tmp_path):
    model = ConvModel()
    model.network["warmup"] = [8000] * 16  # each a second or so of plain C
    model.write(tmp_path / "repository")
    with Daemon(tmp_path / "repository", tmp_path, "--device", "fake:0", *fake(tmp_path),
                wait_ready=False) as daemon:
        said = re.compile(r"warming up: \d+ of 16 steps")
        daemon.wait_for("the warm-up", lambda: said.search(daemon.get("/v2/health/ready")[1]))


@pytest.mark.release
@pytest.mark.parametrize("algorithm", ["explicit", "implicit", "masked", "implicit_split",
                                       "masked_split", "pairs_list"])
def test_every_algorithm_may_be_pinned(tmp_path, algorithm):
    model = ConvModel(ci=WIDE)
    model.network["warmup"], model.network["limits"] = [10], {"voxels_max": 1000}
    model.write(tmp_path / "repository")
    coords, feats = random_grid(4, 60, WIDE)
    with Daemon(tmp_path / "repository", tmp_path, "--device", "fake:0", "--algorithm", algorithm,
                *fake(tmp_path)) as daemon, Client(daemon.grpc) as client:
        out = client.infer("conv", coords, feats, timeout=PATIENCE)["out"]
    assert np.abs(out - model.answer(coords, feats)).max() < 1e-4


def test_what_is_measured_at_load_is_kept(tmp_path):
    model = ConvModel(ci=WIDE)
    model.network["warmup"] = [50]
    model.write(tmp_path / "repository")
    (tmp_path / "tune").mkdir()
    flags = ("--device", "fake:0", "--tune", "auto", "--tune-table", str(tmp_path / "tune"))
    table = tmp_path / "tune" / "fake-gpu.tune"
    written, measured = [], []
    for count in ("tune_candidates_total", "kernels_c"):  # for each start its own count
        with Daemon(tmp_path / "repository", tmp_path, *flags, *fake(tmp_path)) as daemon:
            assert "TUNE_FAILED" not in daemon.log()
            written.append((table.read_text(), table.stat().st_mtime_ns))
            # The front asks workers once a second, also in the middle of a load.
            daemon.wait_for("the worker's counts", lambda: total(daemon, count) > 0)
            measured.append(total(daemon, "tune_candidates_total"))
            assert total(daemon, "tune_rejected_total") == 0
    assert measured[0] > 1 and measured[1] == 0
    assert "fake GPU" in written[0][0] and len(written[0][0].splitlines()) > 1
    assert written[0] == written[1]  # the second start found the whole table


def test_a_kernel_cache_that_others_may_write_is_refused(repository, tmp_path):
    cache = tmp_path / "kernels"
    cache.mkdir()
    cache.chmod(0o777)
    with Daemon(repository, tmp_path, "--device", "fake:0", "--device-bytes", "256M",
                "--kernel-cache", str(cache), wait_ready=False) as daemon:
        said = "expected a directory that this user owns"
        daemon.wait_for("the sentence", lambda: said in daemon.get("/v2/health/ready")[1])


@pytest.mark.races
def test_a_lost_device_costs_no_request_and_is_told(repository, tmp_path):
    wanted = 3
    device = "fake:0:lose=60"  # a request has some dozen launches: lost every few requests
    with Daemon(repository, tmp_path, "--device", device, *fake(tmp_path)) as daemon:
        model = ConvModel()
        coords, feats = random_grid(9, 40)
        expected, wrong, stopped = model.answer(coords, feats), [], threading.Event()

        def run():
            with Client(daemon.grpc) as client:
                while not stopped.is_set():
                    out = client.infer("conv", coords, feats, timeout=PATIENCE)["out"]
                    if np.abs(out - expected).max() > 1e-4:
                        wrong.append(out)
        thread = threading.Thread(target=run)
        thread.start()
        try:
            daemon.wait_for("losses", lambda: losses(daemon) >= wanted)
        finally:
            stopped.set()
            thread.join()
        assert not wrong
        daemon.wait_said("GPU_LOST", wanted)
        daemon.wait_said("WORKER_EXIT", wanted)
        log = daemon.log()
        assert 'how=exit status=3 why="device lost: fake GPU: ' in log
        assert "REQUEST_FAILED" not in log and "BATCH_POISON" not in log
        restarts = sum(v for k, v in daemon.metrics().items()
                       if k.startswith("voxeld_worker_restarts_total"))
        assert restarts >= wanted


def test_a_load_that_loses_the_device_each_time_is_tried_on(repository, tmp_path):
    with Daemon(repository, tmp_path, "--device", "fake:0:lose=1", *fake(tmp_path),
                wait_ready=False) as daemon:
        # Between tries the worker has nothing to load, so it stays up; the page shows the reason.
        tried = re.compile(r"worker 0 died ([4-9]|\d\d) times in a row while it loaded this "
                           r"model: the next try is \d+ s after the last death")
        daemon.wait_for("the sentence", lambda: tried.search(daemon.get("/v2/health/ready")[1]))
        assert daemon.get("/v2/health/ready")[0] == 503
        seen = losses(daemon)
        assert seen >= 4
        daemon.wait_for("one more", lambda: losses(daemon) > seen)
        assert "MODEL_FAILED" not in daemon.log()


def test_without_a_driver_the_front_lives_and_says_why(repository, tmp_path):
    with Daemon(repository, tmp_path, "--device", "cuda:0", "--restart-ms-max", "50", *WITHOUT,
                *fake(tmp_path), wait_ready=False) as daemon:
        daemon.wait_for("restarts", lambda: daemon.log().count("WORKER_EXIT") >= 4)
        daemon.wait_for("the sentence", lambda: NO_DRIVER in daemon.get("/v2/health/ready")[1])
        status, text = daemon.get("/v2/health/ready")
        assert status == 503
        assert "worker 0 (cuda:0)" in text
        assert daemon.get("/v2/health/live")[0] == 200
        assert NO_DRIVER in daemon.get("/")[1]
        asked = subprocess.run([os.environ["VOXEL"], "status", "--server", daemon.grpc],
                               capture_output=True, text=True, timeout=PATIENCE)
        assert asked.returncode == 1
        assert ("conv version 1 is not ready: LOADING: waiting for a worker: the worker of "
                "cuda:0 ended: " + NO_DRIVER) in asked.stdout
        asked = subprocess.run([os.environ["VOXELD"], "health", "--http", daemon.http],
                               capture_output=True, text=True, timeout=PATIENCE)
        assert asked.returncode == 1 and NO_DRIVER in asked.stdout
        assert losses(daemon) == 0
        daemon.wait_said(f'how=exit status=1 why="{NO_DRIVER}')


def test_all_gpus_of_a_machine_without_a_driver_is_a_worker_that_waits_for_one(repository,
                                                                              tmp_path):
    with Daemon(repository, tmp_path, "--device", "cuda", *WITHOUT, *fake(tmp_path),
                wait_ready=False) as daemon:
        daemon.wait_for("the sentence", lambda: NO_DRIVER in daemon.get("/v2/health/ready")[1])
        assert 'device="cuda:0"' in daemon.get("/metrics")[1]


def test_auto_without_a_driver_serves_from_the_cpu(repository, tmp_path, model):
    with Daemon(repository, tmp_path, "--device", "auto", *WITHOUT) as daemon, \
            Client(daemon.grpc) as client:
        coords, feats = random_grid(2, 100)
        out = client.infer("conv", coords, feats)["out"]
        assert np.abs(out - model.answer(coords, feats)).max() < 1e-4
        daemon.wait_said(f'CONFIG process=front device=cpu why="{NO_DRIVER}')
        assert 'voxeld_worker_up{worker="0",device="cpu"} 1' in daemon.get("/metrics")[1]
        # The child process that asked the driver has ended and was waited for.
        assert len(daemon.workers()) == 1
        assert len(open(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children")
                   .read().split()) == 1


def test_the_front_loads_no_library_of_the_gpu(gpu_daemon):
    maps = open(f"/proc/{gpu_daemon.process.pid}/maps").read()
    assert "libcuda" not in maps and "libnvrtc" not in maps


def test_the_tools_are_subcommands(tmp_path, repository):
    def voxeld(*words):
        return subprocess.run([os.environ["VOXELD"], *words], capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
    help_text = voxeld("--help").stdout
    for tool in ("compile", "tune", "bench", "devices"):
        assert f"voxeld {tool}" in help_text
    devices = voxeld("devices")
    assert "cuda" in devices.stdout and "unknown" not in devices.stderr
    assert voxeld("compile").returncode == 2
    cache = tmp_path / "kernels"
    done = voxeld("compile", "--arch", "fake", "--model", str(repository / "conv"), "--cache",
                  str(cache))
    assert done.returncode == 0, done.stderr
    # It compiled all that a worker needs: nothing is left to build.
    with Daemon(repository, tmp_path, "--device", "fake:0", "--device-bytes", "256M",
                "--kernel-cache", str(cache)) as daemon:
        assert "KERNEL_BUILD" not in daemon.log()
