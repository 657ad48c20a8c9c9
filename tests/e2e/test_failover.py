# SPDX-License-Identifier: Apache-2.0
"""Workers that hang, cannot start, or run out of memory: no request is lost, the other workers
never pause, and pages and metrics are right the whole time."""
import contextlib
import datetime
import os
import re
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import voxeld
from conftest import ROOT, SANITIZED
from load import Load
from model_files import ConvModel, random_grid
from voxeld import Client
from voxeld_process import PATIENCE, Daemon

sys.path.append(str(ROOT / "tests" / "bench"))
import failover  # noqa: E402

# The watchdog treats a worker that is silent for this long as hung.  On a busy machine that can be
# a healthy worker, so these tests count the hangs that they cause and accept others.
WATCHDOG_MS = 6000 if SANITIZED else 1500
# For a test in which no worker may be treated as hung: the test sleeps twice as long.
FRONT_WATCHDOG_MS = 10000 if SANITIZED else 3000
NO_DRIVER = "libcuda-of-nobody.so"


def total(daemon, name):
    """The sum over workers of the metrics whose name begins with `name`."""
    return sum(v for k, v in daemon.metrics().items() if k.startswith(f"voxeld_{name}"))


def up(daemon, worker):
    return next(v for k, v in daemon.metrics().items()
                if k.startswith(f'voxeld_worker_up{{worker="{worker}"'))


def wait_up(daemon, workers):
    daemon.wait_for(f"{workers} workers", lambda: total(daemon, "worker_up") == workers)


def hangs(daemon):
    """The `owes` field of every hang in the log: what the watchdog waited for."""
    return re.findall(r"\bWORKER_HANG\b.* owes=(\w+)", daemon.log())


def gpu(work):
    return ("--device-bytes", "256M", "--kernel-cache", str(work / "kernels"))


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """With a warm-up small enough for plain C."""
    path = tmp_path_factory.mktemp("repository")
    small = ConvModel()
    small.network["warmup"] = [10]
    small.write(path)
    return path


@pytest.mark.races
def test_ten_kills_and_bad_requests_all_the_time(tmp_path):
    """A short run of tests/bench/failover.py, which describes what it checks."""
    model = failover.write_model(tmp_path / "repository", 5000)
    options = {"model": failover.MODEL, "channels": model.ci, "voxels": 2000, "giant": 5001,
               "load": 0.5, "seconds": 10, "every": 2 if SANITIZED else 1}
    with Daemon(tmp_path / "repository", tmp_path, "--device", "cpu,cpu", "--threads", "1",
                "--restart-ms-max", "500") as daemon:
        wait_up(daemon, 2)
        numbers = failover.run(daemon.grpc, daemon.workers, options)
        assert failover.passed(numbers), numbers
        assert "BATCH_POISON" not in daemon.log()
        kinds = {k.split()[0] for k in numbers["bad"]}
        assert kinds == {"expired", "late", "cancelled", "vanished", "giant", "empty", "duplicate"}
        daemon.wait_for("empty arena",
                        lambda: daemon.metrics()["voxeld_arena_used_bytes"] == 0)
        daemon.wait_for("restarts",
                        lambda: total(daemon, "worker_restarts_total") == numbers["kills"])
        wait_up(daemon, 2)


@pytest.mark.parametrize("devices, voxels", [
    pytest.param("cpu", 3000, marks=pytest.mark.release),
    pytest.param("cpu,cpu", 3000, marks=pytest.mark.races), ("fake:0", 60)])
def test_a_worker_that_hangs_under_load_loses_no_request(repository, tmp_path, devices, voxels):
    with Daemon(repository, tmp_path, "--device", devices, "--threads", "1", "--watchdog-ms",
                str(WATCHDOG_MS), *gpu(tmp_path)) as daemon:
        wait_up(daemon, len(devices.split(",")))
        with Load(daemon, voxels=voxels) as load:
            for hang in range(2):
                target = load.done + 20
                daemon.wait_for("progress", lambda: load.done >= target or load.errors)
                pid = daemon.wait_for("a worker", daemon.workers)[-1]
                os.kill(pid, signal.SIGSTOP)
                daemon.wait_for("its end", lambda: not os.path.exists(f"/proc/{pid}"))
                daemon.wait_for("its hang in the log", lambda: len(hangs(daemon)) > hang)
                wait_up(daemon, len(devices.split(",")))
            target = load.done + 20
            daemon.wait_for("progress", lambda: load.done >= target or load.errors)
        assert not load.errors, load.errors
        daemon.wait_for("each hang's restart, and its line", lambda: (
            total(daemon, "worker_restarts_total") == total(daemon, "worker_hangs_total")
            == len(hangs(daemon))))
        assert set(hangs(daemon)) <= {"batch", "answer", "start"}
        daemon.wait_said("how=signal signal=9 why=\"a message was due", 2)


@pytest.mark.release
def test_a_long_request_is_no_hang(tmp_path):
    """The worker reports each layer.  On a busy machine one layer may take longer than the limit;
    then the test tries again with a longer limit and a longer request."""
    deep = ConvModel(hidden=8)
    layers = deep.network["layers"]
    for i in range(40):
        name, before = f"conv{i}", layers[-2]["name"]
        layers[-1:-1] = [{"name": name, "op": "subm_conv", "input": before, "channels": 8,
                          "kernel": 3, "layout": "oxyzi"}]
        deep.tensors[f"{name}.weight"] = deep.tensors["conv.weight"][..., :1].repeat(8, 4) / 8
        deep.tensors[f"{name}.bias"] = deep.tensors["conv.bias"]
    layers[-1]["input"] = layers[-2]["name"]
    deep.network["warmup"] = [10]
    deep.write(tmp_path / "repository")
    watchdog_ms = WATCHDOG_MS
    for _ in range(4):
        with Daemon(tmp_path / "repository", tmp_path, "--threads", "1", "--watchdog-ms",
                    str(watchdog_ms)) as daemon, Client(daemon.grpc) as client:
            voxels, took_ms = 10000, 0
            while took_ms < 2 * watchdog_ms and not hangs(daemon) and voxels < 200000:
                coords, feats = random_grid(4, voxels)
                answer = client.infer("conv", coords, feats, timing=True, timeout=PATIENCE)
                took_ms = answer.parameters["compute_ns"] / 1e6
                voxels = min(2 * voxels, 200000)
            if took_ms >= 2 * watchdog_ms and not hangs(daemon):
                return
        watchdog_ms = 2 * watchdog_ms if took_ms >= 2 * watchdog_ms else watchdog_ms // 2
    raise AssertionError(f"a request of {took_ms} ms under a watchdog of {watchdog_ms} ms")


@pytest.mark.races
def test_a_worker_that_hangs_with_nothing_to_do_is_found_by_a_question(repository, tmp_path):
    with Daemon(repository, tmp_path, "--watchdog-ms", str(WATCHDOG_MS)) as daemon, \
            Client(daemon.grpc) as client:
        pid = daemon.workers()[0]
        assert client.server_ready() and client.model_ready("conv") and up(daemon, 0) == 1
        os.kill(pid, signal.SIGSTOP)
        daemon.wait_for("the end", lambda: not os.path.exists(f"/proc/{pid}"))
        daemon.wait_for("its hang in the log", lambda: set(hangs(daemon)) == {"answer"})
        assert daemon.wait_for("the new worker", daemon.workers)[0] != pid
        daemon.wait_for("readiness", lambda: daemon.get("/v2/health/ready")[0] == 200)
        assert client.server_ready() and client.model_ready("conv") and up(daemon, 0) == 1


@pytest.mark.races
def test_readiness_while_the_only_worker_cannot_come_back(repository, tmp_path):
    """Killed as often as it starts, and at last held before it is up."""
    with Daemon(repository, tmp_path, "--restart-ms-max", "400") as daemon, \
            Client(daemon.grpc) as client:
        def held():
            """A worker that is stopped before it is up; one that was faster is killed."""
            for pid in daemon.workers():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    daemon.freeze(pid)
                    daemon.get("/v2/health/ready")  # the front hears what it had sent by then
                    if daemon.log().count("WORKER_EXIT") >= 4 and up(daemon, 0) == 0:
                        return pid
                    os.kill(pid, signal.SIGKILL)
            return None
        starting = daemon.wait_for("a worker that starts for the fifth time", held)
        for _ in range(20):
            assert daemon.get("/v2/health/ready")[0] == 503
            assert not client.server_ready() and not client.model_ready("conv")
            assert up(daemon, 0) == 0 and daemon.metrics()["voxeld_ready"] == 0
            assert client.server_live() and daemon.get("/v2/health/live")[0] == 200
        os.kill(starting, signal.SIGCONT)
        daemon.wait_for("readiness", lambda: daemon.get("/v2/health/ready")[0] == 200)
        assert client.server_ready() and client.model_ready("conv") and up(daemon, 0) == 1
        assert "out" in client.infer("conv", *random_grid(1, 100), timeout=PATIENCE)


@pytest.mark.release
def test_a_front_that_was_stopped_blames_nobody(repository, tmp_path):
    with Daemon(repository, tmp_path, "--watchdog-ms", str(FRONT_WATCHDOG_MS)) as daemon:
        workers = daemon.workers()
        with Load(daemon) as load:
            for _ in range(2):
                target = load.done + 20
                daemon.wait_for("progress", lambda: load.done >= target or load.errors)
                os.kill(daemon.process.pid, signal.SIGSTOP)
                time.sleep(2 * FRONT_WATCHDOG_MS / 1000)  # sleep: longer than the limit
                os.kill(daemon.process.pid, signal.SIGCONT)
            target = load.done + 20
            daemon.wait_for("progress", lambda: load.done >= target or load.errors)
        assert not load.errors and not hangs(daemon) and daemon.workers() == workers


@pytest.mark.release
def test_no_watchdog_waits_for_ever(repository, tmp_path):
    with Daemon(repository, tmp_path, "--watchdog-ms", "0") as daemon:
        pid = daemon.workers()[0]
        with daemon.frozen(pid):
            time.sleep(2.5)  # sleep: one check a second, and none may end the worker
        assert daemon.workers() == [pid] and not hangs(daemon)


def test_a_driver_that_hangs_while_it_opens(repository, tmp_path):
    """dlopen of a FIFO blocks until a writer opens it, as a driver may block on its device."""
    driver = tmp_path / "libhangs.so"
    os.mkfifo(driver)
    with Daemon(repository, tmp_path, "--device", "cpu,cuda:0", "--gpu-driver", str(driver),
                "--start-ms-max", "500", *gpu(tmp_path)) as daemon, \
            Load(daemon, voxels=500) as load:
        daemon.wait_for("two hangs", lambda: len(hangs(daemon)) >= 2)
        assert set(hangs(daemon)) == {"start"}
        assert up(daemon, 0) == 1 and up(daemon, 1) == 0
        assert daemon.get("/v2/health/ready")[0] == 200
        daemon.wait_for("a request beside it", lambda: load.done or load.errors)
        assert not load.errors


@pytest.mark.release
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_the_other_worker_goes_on(repository, tmp_path, how, record_property):
    with Daemon(repository, tmp_path, "--device", "cpu,cpu", "--threads", "1", "--watchdog-ms",
                str(WATCHDOG_MS)) as daemon:
        wait_up(daemon, 2)
        with Load(daemon, threads=6, voxels=1000) as load:
            target = load.done + 50
            daemon.wait_for("progress", lambda: load.done >= target or load.errors)
            gone, begin = daemon.workers()[0], time.monotonic()
            target = load.done + 20
            os.kill(gone, how)
            # A new worker may be up before any answer was due.
            daemon.wait_for("the new worker, and answers", lambda: gone not in daemon.workers()
                            and total(daemon, "worker_up") == 2
                            and (load.done >= target or load.errors))
            end = time.monotonic()
        assert not load.errors, load.errors
        record_property("gap_ms", round(load.gap(begin, end) * 1e3))  # a number, not a limit
        assert sum(begin <= t <= end for t in load.answered) > 0


@pytest.mark.races
def test_a_device_that_is_lost_again_and_again_beside_one_that_is_not(repository, tmp_path):
    devices = "fake:0:lose=60,fake:0"
    with Daemon(repository, tmp_path, "--device", devices, *gpu(tmp_path)) as daemon:
        wait_up(daemon, 2)
        with Load(daemon, voxels=40) as load:
            daemon.wait_for("losses", lambda: load.errors
                            or total(daemon, "worker_device_lost_total") >= 3)
            assert up(daemon, 1) == 1 and daemon.get("/v2/health/ready")[0] == 200
        assert not load.errors, load.errors
        daemon.wait_said("GPU_LOST", 3)
        assert "BATCH_POISON" not in daemon.log()
        assert total(daemon, 'worker_restarts_total{worker="1"') == 0


def test_a_worker_that_ends_at_once_is_tried_less_and_less_often(repository, tmp_path):
    with Daemon(repository, tmp_path, "--device", "cpu,cuda:0", "--gpu-driver", NO_DRIVER,
                *gpu(tmp_path)) as daemon, Client(daemon.grpc) as client:
        daemon.wait_for("deaths", lambda: daemon.log().count("WORKER_EXIT") >= 5)
        # The log's own times: the first deaths may be older than this line of the test.
        deaths = [datetime.datetime.fromisoformat(line.split()[0].replace("Z", "+00:00"))
                  for line in daemon.log().splitlines() if "WORKER_EXIT" in line]
        assert (deaths[4] - deaths[0]).total_seconds() > 0.65  # pauses of 0, 100, 200, 400 ms
        assert up(daemon, 0) == 1 and up(daemon, 1) == 0
        # One of two workers is enough to serve, so the server is ready.
        assert daemon.get("/v2/health/ready")[0] == 200 and client.server_ready()
        assert NO_DRIVER in daemon.get("/")[1]
        assert "out" in client.infer("conv", *random_grid(1, 100), timeout=PATIENCE)


def test_what_does_not_fit_fails_alone(tmp_path):
    """A neighbour map of 27 x 4 bytes a voxel, and 1 MB for maps; the model says no limit."""
    small, large = random_grid(1, 20), random_grid(2, 60000)
    model = ConvModel()
    model.network["warmup"] = [10]
    del model.network["limits"]
    model.write(tmp_path / "repository")
    with Daemon(tmp_path / "repository", tmp_path, "--cache-bytes", "1M") as daemon, \
            Client(daemon.grpc) as client:
        pids = daemon.workers()
        expected = client.infer("conv", *small, timeout=PATIENCE)["out"]
        with Load(daemon, threads=2, voxels=20) as load:
            for _ in range(3):
                with pytest.raises(voxeld.ResourceExhausted):
                    client.infer("conv", *large, timeout=PATIENCE)
        assert not load.errors, load.errors
        assert np.array_equal(client.infer("conv", *small, timeout=PATIENCE)["out"], expected)
        assert daemon.workers() == pids and total(daemon, "worker_restarts_total") == 0


def test_a_model_that_does_not_fit_a_gpu_costs_no_worker(tmp_path):
    """320 MB of activations, and 256 MB of device memory."""
    wide = ConvModel(ci=4, hidden=4096, co=3)
    wide.network["warmup"], wide.network["limits"] = [10], {"voxels_max": 20000}
    wide.write(tmp_path / "repository", "wide")
    narrow = ConvModel()
    narrow.network["warmup"] = [10]
    narrow.write(tmp_path / "repository")
    with Daemon(tmp_path / "repository", tmp_path, "--device", "fake:0", *gpu(tmp_path),
                wait_ready=False) as daemon, Client(daemon.grpc) as client:
        daemon.wait_for("the refusal", lambda: "MODEL_FAILED" in daemon.log())
        with pytest.raises(voxeld.Unavailable) as caught:
            client.infer("wide", *random_grid(1, 10), timeout=PATIENCE)
        assert "which need" in caught.value.message
        daemon.wait_for("both numbers in the log", lambda: re.search(
            r"which need \d+ bytes of device memory .* at most \d+ voxels fit", daemon.log()))
        daemon.wait_for("the other model", lambda: client.model_ready("conv"))
        assert "out" in client.infer("conv", *random_grid(1, 20), timeout=PATIENCE)
        assert total(daemon, "worker_restarts_total") == 0


# ------- the worker inside the front, for benches -------

@pytest.mark.races
def test_in_process_answers_as_a_process_does(repository, tmp_path):
    answers = {}
    for flags in ((), ("--in-process",)):
        with Daemon(repository, tmp_path, "--threads", "1", *flags) as daemon, \
                Client(daemon.grpc) as client:
            assert len(daemon.workers()) == (0 if flags else 1)
            answers[flags] = client.infer("conv", *random_grid(3, 2000), timeout=PATIENCE)["out"]
            with Load(daemon, threads=3) as load:
                daemon.wait_for("progress", lambda: load.done >= 30 or load.errors)
            assert not load.errors, load.errors
            assert up(daemon, 0) == 1
    assert np.array_equal(*answers.values())


def test_in_process_is_one_device_and_dies_with_it(repository, tmp_path):
    def serve(*flags):
        return subprocess.run(
            [os.environ["VOXELD"], "serve", "--repository", str(repository), "--in-process",
             "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", *flags],
            capture_output=True, text=True, timeout=PATIENCE, check=False)
    two = serve("--device", "cpu,cpu")
    assert two.returncode == 2 and "in_process: expected one device, got 2" in two.stderr
    none = serve("--device", "cuda:0", "--gpu-driver", NO_DRIVER)
    assert none.returncode == 1, none.stderr
    assert re.search(rf"WORKER_EXIT .*how=exit status=1 why=.*{NO_DRIVER}", none.stderr)
    help_text = subprocess.run([os.environ["VOXELD"], "serve", "--help"], capture_output=True,
                               text=True, timeout=PATIENCE, check=True).stdout
    assert "for benchmarks only" in help_text
