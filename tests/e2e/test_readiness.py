# SPDX-License-Identifier: Apache-2.0
"""A server that serves stays ready while models that are new to it load, are copied or fail, and
tells of them; at its start it waits for all that it is to serve."""
import asyncio
import concurrent.futures
import json
import os
import shutil
import signal
import subprocess

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
import pytest

import voxeld
from model_files import ConvModel, random_grid
from test_model_life import serving
from voxeld_process import PATIENCE, Daemon

POLL = ("--model-control", "poll", "--repository-poll-ms", "1s")
# No worker is taken for hung while a test stops it.
PATIENT = ("--watchdog-ms", "3600s", "--start-ms-max", "3600s")


def missed_by(daemon):
    """{name: why} of what does not serve."""
    body = json.loads(daemon.get("/v2/health/ready")[1])
    return {one["name"]: one["why"] for one in body.get("not_ready", [])}


def ready(daemon):
    """(ready, what does not serve, the note), when nothing changes: all ways to ask agree."""
    code, text = daemon.get("/v2/health/ready")
    body = json.loads(text)
    assert body["ready"] == (code == 200) == (daemon.metrics()["voxeld_ready"] == 1)
    with grpc.insecure_channel(daemon.grpc) as channel:
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(),
                                                           timeout=PATIENCE)
    serving_now = health.status == health_pb2.HealthCheckResponse.SERVING
    assert serving_now == body["ready"]
    return body["ready"], missed_by(daemon), body.get("note", "")


def told(daemon):
    """What the two commands say; both find the server ready."""
    said = []
    for words in ((os.environ["VOXELD"], "health", "--http", daemon.http),
                  (os.environ["VOXEL"], "status", "--server", daemon.grpc)):
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done
        said.append(done.stdout)
    return said


def test_a_model_that_is_copied_into_a_server_that_serves(tmp_path):
    repository = tmp_path / "repository"
    ConvModel().write(repository)
    ConvModel(1).write(tmp_path, "new")
    with serving(repository, tmp_path, *POLL) as (daemon, client, control):
        (repository / "new").mkdir()
        shutil.copy(tmp_path / "new" / "network.json", repository / "new")
        daemon.wait_for("the folder", lambda: missed_by(daemon))
        assert ready(daemon)[0] and daemon.metrics()["voxeld_models_missed"] == 1
        assert json.loads(daemon.get("/status.json")[1])["missing"][0]["name"] == "new"
        weights = repository / "new" / "1" / "weights.safetensors"
        weights.parent.mkdir()
        weights.write_bytes((tmp_path / "new" / "1" / weights.name).read_bytes()[:-100])
        daemon.wait_said("MODEL_FAILED")
        state = 'voxeld_model_ready{model="new",version="1"}'
        daemon.wait_for("the row", lambda: daemon.metrics().get(state) == 0)
        is_ready, missed, note = ready(daemon)
        assert is_ready and missed == {"new": note}
        assert note.startswith("model 'new' version 1 cannot be served: ")
        assert daemon.metrics()["voxeld_models_missed"] == 0
        health, status = told(daemon)
        assert f"ready: {note}" in health and "new version 1 is not ready: UNAVAILABLE" in status
        client.infer("conv", *random_grid(1, 10))
        shutil.copy(tmp_path / "new" / "1" / weights.name, weights)
        daemon.wait_for("the model", lambda: control.index()["new", "1"][0] == "READY")
        assert ready(daemon) == (True, {}, "")
        # From now on the server is not ready without it.
        (tmp_path / "half").write_bytes(b"half")
        (tmp_path / "half").rename(weights)
        os.kill(daemon.workers()[0], signal.SIGKILL)
        daemon.wait_for("the reason",
                        lambda: "cannot be served" in missed_by(daemon).get("new", ""))
        daemon.wait_for("conv", lambda: control.index()["conv", "1"] == ("READY", ""))
        client.infer("conv", *random_grid(1, 10))
        assert not ready(daemon)[0]


def test_a_server_that_starts_with_it_is_not_ready(tmp_path):
    repository = tmp_path / "repository"
    for name in ("conv", "new"):
        ConvModel().write(repository, name)
    (repository / "new" / "1" / "weights.safetensors").write_bytes(b"half")
    with serving(repository, tmp_path, *POLL, wait_ready=False) as (daemon, client, _):
        daemon.wait_said("MODEL_READY")
        daemon.wait_said("MODEL_FAILED")
        client.infer("conv", *random_grid(1, 10))
        is_ready, missed, note = ready(daemon)
        assert not is_ready and missed.keys() == {"new"} and not note
        ConvModel().write(repository, "new")
        daemon.wait_ready()


def test_a_folder_with_a_dot_is_copied_into_unseen(tmp_path):
    """As deploy/operations.md advises."""
    repository = tmp_path / "repository"
    ConvModel().write(repository)
    with serving(repository, tmp_path, *POLL) as (daemon, client, control):
        ConvModel(1).write(repository, ".new")
        (repository / ".new" / "1" / "weights.safetensors").write_bytes(b"half")
        ConvModel(2).write(repository, ".other")
        (repository / ".other").rename(repository / "other")
        daemon.wait_said("MODEL_READY", 2)  # of the other: the repository was read
        assert ready(daemon) == (True, {}, "")
        ConvModel(1).write(repository, ".new")
        (repository / ".new").rename(repository / "new")
        daemon.wait_said("MODEL_READY", 3)
        client.infer("new", *random_grid(1, 10))
        assert ("new", "1") in control.index() and "MODEL_FAILED" not in daemon.log()
        assert ".new" not in daemon.log()


def test_a_load_of_a_client_does_not_end_readiness(tmp_path):
    repository = tmp_path / "repository"
    for name in ("conv", "new", "bad"):
        ConvModel().write(repository, name)
    (repository / "bad" / "1" / "weights.safetensors").write_bytes(b"half")
    with serving(repository, tmp_path, "--model-control", "explicit", "--load-model", "conv",
                 *PATIENT) as (daemon, client, control):
        assert "load failed for model 'bad'" in control.refused("RepositoryModelLoad",
                                                                model_name="bad")[1]
        is_ready, missed, _ = ready(daemon)
        assert is_ready and missed.keys() == {"bad"}
        call = control.channel.unary_unary("/inference.GRPCInferenceService/RepositoryModelLoad")
        with daemon.frozen(daemon.workers()[0]):
            load = call.future(b"\x12\x03new", timeout=PATIENCE)
            daemon.wait_for("the load", lambda: control.index()["new", "1"][0] == "LOADING")
            is_ready, missed, _ = ready(daemon)
            assert is_ready and missed["new"].startswith("model 'new' version 1 is loading")
        load.result()
        client.infer("new", *random_grid(1, 10))
        control.unload("bad")
        assert ready(daemon) == (True, {}, "")


def test_a_model_whose_worker_is_gone_is_not_ready(tmp_path):
    """The next worker is stopped before it has the model, of which the server keeps READY."""
    repository = tmp_path / "repository"
    ConvModel().write(repository)
    with serving(repository, tmp_path, *PATIENT) as (daemon, _, control):
        reason = ""
        while not reason.startswith("waiting for a worker"):
            daemon.wait_for("conv", lambda: control.index()["conv", "1"] == ("READY", ""))
            before = daemon.workers()
            os.kill(before[0], signal.SIGKILL)
            daemon.wait_for("a worker", lambda: set(daemon.workers()) - set(before))
            with daemon.frozen((set(daemon.workers()) - set(before)).pop()):
                state, reason = control.index()["conv", "1"]
                said = subprocess.run([os.environ["VOXEL"], "status", "--server", daemon.grpc],
                                      capture_output=True, text=True, timeout=PATIENCE)
        assert state == "READY" and said.returncode == 1
        assert f"conv version 1 is not ready: {reason}\n" in said.stdout, said.stdout


def test_the_python_client_loads_and_unloads(tmp_path):
    """As README.md writes it."""
    repository = tmp_path / "repository"
    for name in ("conv", "new"):
        ConvModel().write(repository, name)
    with serving(repository, tmp_path, "--model-control", "explicit", "--load-model", "conv",
                 *PATIENT) as (daemon, client, control):
        client.load("new")
        client.infer("new", *random_grid(1, 10))
        client.unload("new")
        assert not client.model_ready("new") and client.model_ready("conv")
        with pytest.raises(voxeld.NotFound, match="failed to load 'nowhere'"):
            client.load("nowhere")
        with pytest.raises(TypeError, match="model: expected a str"):
            client.load(7)

        async def later():
            async with voxeld.AsyncClient(daemon.grpc) as other:
                await other.load("new")
                assert await other.model_ready("new")
                await other.unload("new")
                assert not await other.model_ready("new")
        asyncio.run(later())


def test_the_first_load_of_a_client(tmp_path):
    repository = tmp_path / "repository"
    ConvModel().write(repository)
    with serving(repository, tmp_path, "--model-control", "explicit",
                 *PATIENT) as (daemon, client, control):
        call = control.channel.unary_unary("/inference.GRPCInferenceService/RepositoryModelLoad")
        with daemon.frozen(daemon.workers()[0]):
            load = call.future(b"\x12\x04conv", timeout=PATIENCE)
            daemon.wait_for("the load", lambda: control.index()["conv", "1"][0] == "LOADING")
            assert ready(daemon)[0]
        load.result()
        client.infer("conv", *random_grid(1, 10))
        control.unload("conv")
        assert ready(daemon)[0]
        try:
            client.infer("conv", *random_grid(1, 10))
        except voxeld.NotFound as error:
            assert "load it with RepositoryModelLoad" in error.message
        else:
            raise AssertionError("it was unloaded")


def test_an_update_that_fails_is_told_by_a_server_that_serves(tmp_path):
    """In place or as a new version: the server is ready, and whoever watches it can see it."""
    repository = tmp_path / "repository"
    ConvModel().write(repository)
    weights = repository / "conv" / "1" / "weights.safetensors"
    good, new = weights.read_bytes(), repository / "conv" / "2" / weights.name

    def state(version):
        body, numbers = json.loads(daemon.get("/v2/health/ready")[1]), daemon.metrics()
        return (body["ready"], [one["version"] for one in body.get("not_updated", [])],
                *(numbers.get(f'voxeld_model_{name}{{model="conv",version="{version}"}}')
                  for name in ("ready", "files_good")))

    with serving(repository, tmp_path, *POLL) as (daemon, client, control):
        assert state(1) == (True, [], 1, 1)
        weights.write_bytes(good[:-100])
        daemon.wait_said("MODEL_FAILED")
        daemon.wait_for("the failure", lambda: state(1) == (True, ["1"], 1, 0))
        note = ready(daemon)[2]
        assert note.startswith("model 'conv' version 1 serves its earlier files: those that "
                               "changed cannot be loaded: "), note
        assert f"ready: {note}" in told(daemon)[0]
        client.infer("conv", *random_grid(1, 10))
        weights.write_bytes(good)
        daemon.wait_said("MODEL_UNLOADED process=front model=conv version=1 replaced=1\n")
        daemon.wait_for("the new files", lambda: state(1) == (True, [], 1, 1))
        new.parent.mkdir()
        new.write_bytes(good[:-100])
        # While it loads it is not updated, too, but without a note.
        failed = "model 'conv' version 2 cannot be served: "
        daemon.wait_for("version 2", lambda: ready(daemon)[2].startswith(failed))
        assert state(2) == (True, ["2"], 0, 0)
        assert ready(daemon)[1] == {} and state(1)[2:] == (1, 1)
        shutil.rmtree(new.parent)
        daemon.wait_for("the end of version 2", lambda: state(2) == (True, [], None, None))
        shutil.rmtree(weights.parent)
        daemon.wait_said("MODEL_UNLOADED process=front model=conv version=1\n")


def waiting_calls(address):
    """{kind of client: a function that makes one call of a client that waits}.  What waits is the
    connection: a model may still load when it is there."""
    def blocking():
        with voxeld.Client(address, wait_for_ready=True) as client:
            return client.server_live(timeout=PATIENCE)

    async def awaited():
        async with voxeld.AsyncClient(address, wait_for_ready=True) as client:
            return await client.server_live(timeout=PATIENCE)

    return {"Client": blocking, "AsyncClient": lambda: asyncio.run(awaited())}


@pytest.mark.release
def test_a_client_that_waits_for_the_server(tmp_path):
    """Without wait_for_ready an absent server is told at once, whatever the timeout is."""
    ConvModel().write(tmp_path / "repository")
    address = f"unix:{tmp_path}/socket"
    with voxeld.Client(address) as client:
        with pytest.raises(voxeld.Unavailable, match="failed to connect"):
            client.infer("conv", *random_grid(1, 20), timeout=PATIENCE)
    with voxeld.Client(address, wait_for_ready=True) as client:
        with pytest.raises(voxeld.DeadlineExceeded):
            client.server_live(timeout=0.05)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        calls = {kind: pool.submit(call) for kind, call in waiting_calls(address).items()}
        with Daemon(tmp_path / "repository", tmp_path, "--grpc", address):
            for kind, call in calls.items():
                assert call.result(PATIENCE) is True, kind
