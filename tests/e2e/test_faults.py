# SPDX-License-Identifier: Apache-2.0
"""Workers die, models come and go, signals arrive: no request is lost, health is right."""
import json
import os
import pathlib
import shutil
import signal
import threading

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import voxeld
from conftest import SANITIZED
from load import Load
from model_files import ConvModel, random_grid
from voxeld import Client
from voxeld_process import PATIENCE, Daemon


def restarts(daemon):
    return sum(v for k, v in daemon.metrics().items()
               if k.startswith("voxeld_worker_restarts_total"))


@pytest.mark.races
@pytest.mark.parametrize("devices", [pytest.param("cpu", marks=pytest.mark.release), "cpu,cpu"])
def test_killing_a_worker_under_load_loses_no_request(repository, tmp_path, devices):
    kills = 3 if SANITIZED else 6
    with Daemon(repository, tmp_path, "--device", devices, "--threads", "1") as daemon:
        daemon.wait_for("workers", lambda: len(daemon.workers()) == len(devices.split(",")))
        with Load(daemon) as load:
            for kill in range(kills):
                target = load.done + 20
                daemon.wait_for("progress", lambda: load.done >= target or load.errors)
                assert not load.errors, load.errors
                running = daemon.wait_for("a worker", daemon.workers)
                os.kill(running[kill % len(running)], signal.SIGKILL)
                # Else it might be killed twice, and counted once.
                daemon.wait_for("its end", lambda: restarts(daemon) == kill + 1)
            target = load.done + 20
            daemon.wait_for("progress", lambda: load.done >= target or load.errors)
        assert not load.errors, load.errors
        assert restarts(daemon) == kills
        daemon.wait_for("readiness", lambda: daemon.get("/v2/health/ready")[0] == 200)


def waiting_or_running(daemon):
    numbers = daemon.metrics()
    return numbers["voxeld_running_requests"] + numbers["voxeld_queued_requests"]


def processor_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_request_that_dies_with_its_worker_twice_is_answered_and_not_tried_again(tmp_path):
    repository = tmp_path / "repository"
    hidden = 128 if SANITIZED else 1024
    ConvModel(ci=64, hidden=hidden).write(repository, "slow")  # many seconds for 200,000 voxels
    ConvModel().write(repository)
    with Daemon(repository, tmp_path, "--threads", "1") as daemon, \
            Client(daemon.grpc) as client:
        coords, _ = random_grid(1, 200000)
        feats = np.ones((len(coords), 64), np.float16)
        poison, bystanders = [], []

        def run_poison():
            try:
                client.infer("slow", coords, feats, timeout=PATIENCE, id="the poison")
            except voxeld.VoxeldError as error:
                poison.append(error)

        def run_bystander():
            bystanders.append(client.infer("conv", *random_grid(2, 100), timeout=PATIENCE))
        first = threading.Thread(target=run_poison)
        second = threading.Thread(target=run_bystander)
        daemon.freeze(daemon.workers()[0])  # so that it dies with the request
        first.start()
        daemon.wait_for("the poison",
                        lambda: daemon.metrics()["voxeld_running_requests"] == 1)
        second.start()
        daemon.wait_for("both on the worker, or behind one another",
                        lambda: waiting_or_running(daemon) == 2)
        os.kill(daemon.workers()[0], signal.SIGKILL)
        daemon.wait_said("WORKER_READY", 2)
        worker, = daemon.workers()
        daemon.wait_for("its models", lambda: client.model_ready("slow")
                        and client.model_ready("conv"))
        began = processor_seconds(worker)
        # The bystander may run first; it takes less than a second of processor time.
        daemon.wait_for("the poison on a worker",
                        lambda: processor_seconds(worker) > began + 1)
        os.kill(worker, signal.SIGKILL)
        first.join()
        second.join()
        assert len(poison) == 1 and isinstance(poison[0], voxeld.Internal), poison
        assert "2 worker processes died" in poison[0].message
        daemon.wait_said("BATCH_POISON")
        daemon.wait_said("the poison", 2)
        line, = [line for line in daemon.log().splitlines() if " REQUEST_FAILED " in line]
        assert "code=INTERNAL" in line and "2 worker processes died" in line
        assert "model=slow" in line and "the poison" in line
        faults = 'nv_inference_request_failure{model="slow",version="1",reason="BACKEND"}'
        assert daemon.metrics()[faults] == 1
        assert len(bystanders) == 1


@pytest.mark.races
def test_health_is_truthful_while_the_only_worker_is_down(repository, tmp_path):
    with Daemon(repository, tmp_path, "--restart-ms-max", "2000") as daemon, \
            grpc.insecure_channel(daemon.grpc) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(
            health_pb2.HealthCheckRequest(service=""), timeout=PATIENCE)
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        os.kill(daemon.workers()[0], signal.SIGKILL)
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()


def wait_out_a_deadline(daemon, infer, error):
    """The worker is stopped; calls infer(seconds) until a request reaches it in time."""
    seconds = 0.2
    while not daemon.metrics()["voxeld_running_requests"]:
        with pytest.raises(error):
            infer(seconds)
        seconds *= 2


@pytest.mark.races
def test_a_request_that_waits_out_its_deadline_while_no_worker_runs(repository, tmp_path):
    with Daemon(repository, tmp_path) as daemon, Client(daemon.grpc) as client:
        coords, feats = random_grid(1, 100)
        with daemon.frozen(daemon.workers()[0]):
            wait_out_a_deadline(daemon, lambda seconds: client.infer(
                "conv", coords, feats, timeout=seconds), voxeld.DeadlineExceeded)
            # The worker still has that one, and gets this one; the next waits in the queue, where
            # its queue timeout applies.
            call = threading.Thread(target=client.infer, args=("conv", coords, feats))
            call.start()
            daemon.wait_for("a full desk",
                            lambda: daemon.metrics()["voxeld_running_requests"] == 2)
            with pytest.raises(voxeld.Unavailable) as caught:
                client.infer("conv", coords, feats, queue_timeout_us=100_000, timeout=PATIENCE)
            assert "Request timeout expired" in caught.value.message
        call.join()
        daemon.wait_for("empty arena",
                        lambda: daemon.metrics()["voxeld_arena_used_bytes"] == 0)


@pytest.mark.races
def test_a_full_queue_refuses_with_tritons_words(repository, tmp_path):
    with Daemon(repository, tmp_path, "--queue-max", "4") as daemon, \
            Client(daemon.grpc) as client:
        coords, feats = random_grid(1, 100)
        outcomes = []

        def run():
            try:
                client.infer("conv", coords, feats, timeout=PATIENCE)
                outcomes.append("OK")
            except voxeld.Unavailable as error:
                outcomes.append(error.message)
        calls = [threading.Thread(target=run) for _ in range(20)]

        def settled():
            """The worker has two batches, the queue four requests, and the rest are refused."""
            numbers = daemon.metrics()
            running.append(numbers["voxeld_running_requests"])
            return (numbers["voxeld_queued_requests"] == 4
                    and len(outcomes) + running[-1] + 4 == len(calls))
        running = []
        with daemon.frozen(daemon.workers()[0]):
            for call in calls:
                call.start()
            daemon.wait_for("refusals", settled)
        for call in calls:
            call.join()
        assert 2 <= running[-1] <= 2 * 4  # a batch comes from the queue, which holds four
        assert outcomes.count("OK") == running[-1] + 4
        assert all("Exceeds maximum queue size" in o for o in outcomes if o != "OK")


@pytest.mark.races
def test_sigterm_serves_then_drains_and_exits_0(repository, tmp_path):
    """The grace time is longer than any test: a second signal ends it when the calls are there."""
    daemon = Daemon(repository, tmp_path, "--grace-ms", "600s", "--drain-ms", "600s")
    results = []

    def run(client, seed):
        results.append(client.infer("conv", *random_grid(seed, 3000),
                                    timeout=PATIENCE)["out"].shape)
    with Client(daemon.grpc) as client, grpc.insecure_channel(daemon.grpc) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        daemon.signal(signal.SIGTERM)
        daemon.wait_for("the grace time", lambda: "step=grace" in daemon.log())
        status = health.Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE).status
        assert status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert daemon.get("/v2/health/ready")[0] == 503
        assert daemon.get("/v2/health/live")[0] == 200
        run(client, 1)  # still served: a load balancer has not noticed yet
        threads = [threading.Thread(target=run, args=(client, s)) for s in range(2, 5)]
        with daemon.frozen(daemon.workers()[0]):
            for thread in threads:
                thread.start()
            daemon.wait_for("the requests", lambda: waiting_or_running(daemon) == len(threads))
            daemon.signal(signal.SIGTERM)
            daemon.wait_for("the drain", lambda: "step=draining" in daemon.log())
        for thread in threads:
            thread.join()
        assert len(results) == 1 + len(threads)
        assert daemon.process.wait(PATIENCE) == 0, daemon.log()
    assert "step=stopping" in daemon.log()


@pytest.mark.races
def test_signals_to_the_very_end_change_nothing(repository, tmp_path):
    """Somebody in a hurry sends one after the other; the last come when the loop has closed."""
    for number in (signal.SIGTERM, signal.SIGINT):
        daemon = Daemon(repository, tmp_path, "--grace-ms", "0")
        while daemon.process.poll() is None:
            daemon.signal(number)
        assert daemon.process.wait(PATIENCE) == 0, daemon.log()


def test_signals_that_mean_nothing_end_nothing(repository, tmp_path):
    with Daemon(repository, tmp_path) as daemon, Client(daemon.grpc) as client:
        pids = [daemon.process.pid, *daemon.workers()]
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            for pid in pids:
                os.kill(pid, number)
        client.infer("conv", *random_grid(1, 100), timeout=PATIENCE)
        assert [daemon.process.pid, *daemon.workers()] == pids
        assert restarts(daemon) == 0


@pytest.mark.races
def test_sighup_loads_new_swaps_changed_and_unloads_gone_models(tmp_path):
    repository = tmp_path / "repository"
    old, new = ConvModel(seed=1), ConvModel(seed=2)
    old.write(repository, "a")
    old.write(repository, "gone")
    coords, feats = random_grid(1, 500)
    with Daemon(repository, tmp_path) as daemon, Client(daemon.grpc) as client:
        def answer(name, **more):
            return client.infer(name, coords, feats, timeout=PATIENCE, **more)
        assert np.allclose(answer("a")["out"], old.answer(coords, feats), atol=1e-3)
        new.write(repository, "a", version=2)
        new.write(repository, "b")
        shutil.rmtree(repository / "gone")
        with Load(daemon, threads=2, model="gone") as load:
            daemon.wait_for("load", lambda: load.done > 3)
            daemon.signal(signal.SIGHUP)
            daemon.wait_for("b", lambda: "b" in [r["name"] for r in client.statistics()]
                            and daemon.get("/v2/health/ready")[0] == 200)
            daemon.wait_for("the end of gone", lambda: load.errors)
        assert all(e.code.name in ("UNAVAILABLE", "NOT_FOUND") for e in load.errors), load.errors
        daemon.wait_for("version 2", lambda: answer("a").model_version == "2")
        assert np.allclose(answer("a")["out"], new.answer(coords, feats), atol=1e-3)
        assert np.allclose(answer("a", version=1)["out"], old.answer(coords, feats), atol=1e-3)
        assert np.allclose(answer("b")["out"], new.answer(coords, feats), atol=1e-3)
        assert client.model_metadata("a").versions == ("1", "2")
        daemon.wait_for("gone", lambda: "gone" not in [r["name"] for r in client.statistics()])


def test_a_broken_new_version_leaves_the_old_one_serving(tmp_path):
    repository = tmp_path / "repository"
    good = ConvModel().write(repository)
    coords, feats = random_grid(1, 300)
    with Daemon(repository, tmp_path) as daemon, Client(daemon.grpc) as client:
        (repository / "conv" / "2").mkdir()
        (repository / "conv" / "2" / "weights.safetensors").write_bytes(b"\xff" * 100)
        daemon.signal(signal.SIGHUP)
        daemon.wait_for("the failure", lambda: "MODEL_FAILED" in daemon.log())
        answer = client.infer("conv", coords, feats)
        assert answer.model_version == "1"
        assert np.allclose(answer["out"], good.answer(coords, feats), atol=1e-3)
        assert daemon.get("/v2/health/ready")[0] == 200
        with pytest.raises(voxeld.Unavailable) as caught:
            client.infer("conv", coords, feats, version=2)
        assert "safetensors" in caught.value.message
        # The same version, repaired, is loaded at the next SIGHUP.
        ConvModel(seed=3).write(repository, version=2)
        daemon.signal(signal.SIGHUP)
        daemon.wait_for("version 2",
                        lambda: client.infer("conv", coords, feats).model_version == "2")


def broken(change):
    """A model directory with one thing wrong."""
    def write(repository):
        model = ConvModel()
        change(model)
        model.write(repository)
    return write


def corrupt_header(repository):
    ConvModel().write(repository)
    path = repository / "conv" / "1" / "weights.safetensors"
    data = bytearray(path.read_bytes())
    data[8:20] = b"\x00" * 12
    path.write_bytes(data)


def huge_header(repository):
    ConvModel().write(repository)
    path = repository / "conv" / "1" / "weights.safetensors"
    path.write_bytes(b"\xff" * 7 + b"\x7f" + path.read_bytes()[8:])


def cut_file(repository):
    ConvModel().write(repository)
    path = repository / "conv" / "1" / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-10])


def no_weights(repository):
    ConvModel().write(repository)
    (repository / "conv" / "1" / "weights.safetensors").unlink()


def wrong_shape(model):
    model.tensors["head.weight"] = model.tensors["head.weight"][:, :-1].copy()


BROKEN = {
    "a corrupt safetensors header": (corrupt_header, "weights.safetensors"),
    "a header longer than the file": (huge_header, "weights.safetensors"),
    "a file cut short": (cut_file, "weights.safetensors"),
    "no weights file": (no_weights, "weights.safetensors"),
    # head.bias is as near by spelling, but another layer's.
    "a missing tensor": (broken(lambda m: m.tensors.pop("conv.bias")),
                         'false if the layer has none; known: conv.weight'),
    "a tensor of the wrong shape": (broken(wrong_shape), "head"),
    "a tensor of the wrong type": (broken(lambda m: m.tensors.update(
        {"conv.bias": np.zeros(8, np.int64)})), "conv.bias"),
    "an unknown op": (broken(lambda m: m.network["layers"][1].update(op="reluu")), "reluu"),
    "an unknown key": (broken(lambda m: m.network["layers"][0].update(kernal=3)), "kernal"),
    "an unknown top-level key": (broken(lambda m: m.network.update(layer=[])), "layer"),
    "an input that is no layer": (broken(lambda m: m.network["layers"][2].update(input="x")), "x"),
    "a list as input": (broken(lambda m: m.network["layers"][2].update(input=["act"])),
                        'expected "input" to be one name, got a list: that is "inputs"'),
    "an even kernel": (broken(lambda m: m.network["layers"][0].update(kernel=2)), "kernel"),
    "a format from the future": (broken(lambda m: m.network.update(format=99)), "99"),
}


# What a network.json may have wrong, test_network and fuzz_network have under the sanitizers.
WEIGHTS = list(BROKEN)[:7]


@pytest.mark.parametrize("name", WEIGHTS + [
    pytest.param(name, marks=pytest.mark.release) for name in BROKEN if name not in WEIGHTS])
def test_a_broken_model_is_named_and_the_others_serve(tmp_path, name):
    write, word = BROKEN[name]
    repository = tmp_path / "repository"
    write(repository)
    ConvModel(seed=5).write(repository, "fine")
    with Daemon(repository, tmp_path, wait_ready=False) as daemon, Client(daemon.grpc) as client:
        daemon.wait_for("the refusal", lambda: "MODEL_FAILED" in daemon.log())
        with pytest.raises(voxeld.Unavailable) as caught:
            client.infer("conv", *random_grid(1, 10), timeout=PATIENCE)
        assert word in caught.value.message, caught.value.message
        daemon.wait_for("the other model", lambda: client.model_ready("fine"))
        assert client.infer("fine", *random_grid(1, 10)).model_name == "fine"
        assert not client.server_ready() and daemon.get("/v2/health/ready")[0] == 503


def test_settings_that_cannot_be(repository, tmp_path):
    import subprocess
    daemon = os.environ["VOXELD"]
    for flags, words in ((["--queue-max", "0"], "queue"), (["--no-such-flag"], "no-such-flag"),
                         (["--device", "abacus"], "abacus"), (["--grpc", "nonsense"], "nonsense"),
                         ([], "repository")):
        base = [daemon, "serve"] + (["--repository", str(repository)] if flags else [])
        done = subprocess.run(base + ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"] + flags,
                              capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode != 0, flags
        assert words in done.stderr, (flags, done.stderr)


def test_a_taken_port_is_said(repository, tmp_path):
    import subprocess
    with Daemon(repository, tmp_path) as first:
        done = subprocess.run([os.environ["VOXELD"], "serve", "--repository", str(repository),
                               "--grpc", first.grpc, "--http", "127.0.0.1:0"],
                              capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode != 0 and first.grpc.split(":")[1] in done.stderr, done.stderr


def test_check_command(tmp_path):
    import subprocess
    ConvModel().write(tmp_path, "fine")
    corrupt = tmp_path / "bad"
    ConvModel().write(corrupt)
    (corrupt / "conv" / "network.json").write_text("{")
    done = subprocess.run([os.environ["VOXELD"], "check", str(tmp_path / "fine")],
                          capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 and "subm_conv" in done.stdout, done.stdout + done.stderr
    done = subprocess.run([os.environ["VOXELD"], "check", str(corrupt / "conv")],
                          capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1 and "network.json" in done.stderr, done.stderr


@pytest.mark.release
def test_nothing_leaks_over_many_requests(repository, tmp_path):
    """Descriptors, slots and calls; a bench of its own measures memory with more requests."""
    with Daemon(repository, tmp_path) as daemon:
        def some(count):
            with Load(daemon, threads=3, voxels=200) as load:
                daemon.wait_for(f"{count} answers", lambda: load.done >= count or load.errors)
            assert not load.errors, load.errors
        some(100)
        before = daemon.descriptors()
        some(300)
        daemon.wait_for("closed connections", lambda: daemon.descriptors() <= before)
        for name in ("voxeld_arena_used_bytes", "voxeld_calls_in_flight"):
            daemon.wait_for(f"{name} 0", lambda n=name: daemon.metrics()[n] == 0)
