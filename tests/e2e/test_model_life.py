# SPDX-License-Identifier: Apache-2.0
"""Models are loaded, replaced, placed and unloaded while other models serve requests."""
import contextlib
import os
import shutil
import signal
import subprocess
import threading

import grpc
import numpy as np
import pytest

import voxeld
from conftest import SANITIZED
from model_files import ConvModel, random_grid, write_safetensors
from test_protocol import Reflected
from voxeld import Client
from voxeld_process import PATIENCE, Daemon


class Control:
    """The repository's RPCs of one daemon."""

    def __init__(self, daemon):
        self.channel = grpc.insecure_channel(daemon.grpc)
        self.reflected = Reflected(self.channel)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.channel.close()

    def load(self, name, **fields):
        self.reflected.call("RepositoryModelLoad", model_name=name, **fields)

    def unload(self, name):
        self.reflected.call("RepositoryModelUnload", model_name=name,
                            parameters={"unload_dependents": {"bool_param": False}})

    def index(self, **fields):
        """{(name, version): (state, reason)}"""
        reply = self.reflected.call("RepositoryIndex", **fields)
        return {(m["name"], m.get("version", "")): (m["state"], m.get("reason", ""))
                for m in reply.get("models", [])}

    def refused(self, method, **fields):
        """(status code, sentence) of a call that must fail."""
        with pytest.raises(grpc.RpcError) as caught:
            self.reflected.call(method, **fields)
        return caught.value.code(), caught.value.details()


@contextlib.contextmanager
def serving(repository, tmp_path, *flags, wait_ready=True):
    with Daemon(repository, tmp_path, *flags, wait_ready=wait_ready) as daemon, \
            Client(daemon.grpc) as client, Control(daemon) as control:
        yield daemon, client, control


class Hammer:
    """Clients that send requests without pause; each answer must be that of a known model.

    `models` has the float64 answers and is set before the start.  The first answer of each model
    must be close to one of them; later answers of that model must equal the first bit for bit.
    """

    def __init__(self, daemon, models, threads=8):
        self.daemon, self.models = daemon, models
        self.seen, self.errors, self.done, self.counts = [], [], 0, [0] * threads
        self.stopped, self.lock = threading.Event(), threading.Lock()
        self.threads = [threading.Thread(target=self._run, args=(i,)) for i in range(threads)]

    def _run(self, seed):
        coords, feats = random_grid(seed, 200 + 10 * seed)
        expected = [m.answer(coords, feats) for m in self.models]
        bits = [None] * len(expected)
        with Client(self.daemon.grpc) as client:
            while not self.stopped.is_set():
                try:
                    out = client.infer("conv", coords, feats, timeout=PATIENCE)["out"]
                except voxeld.VoxeldError as error:
                    self.errors.append(error)
                    return
                near = [i for i, e in enumerate(expected) if np.allclose(out, e, atol=1e-3)]
                if len(near) != 1:
                    self.errors.append(AssertionError(f"an answer of no one model: {near}"))
                    return
                bits[near[0]] = out if bits[near[0]] is None else bits[near[0]]
                if not np.array_equal(out, bits[near[0]]):
                    self.errors.append(AssertionError("an answer changed"))
                    return
                with self.lock:
                    self.done += 1
                    self.counts[seed] += 1
                    self.seen.append(near[0])

    def more(self, count):
        target = self.done + count
        self.daemon.wait_for("answers", lambda: self.done >= target or self.errors)
        assert not self.errors, self.errors

    def all_anew(self):
        """Waits until every client has an answer to a request that it sent after this call."""
        before = list(self.counts)
        self.daemon.wait_for("answers", lambda: self.errors or all(
            now > then + 1 for now, then in zip(self.counts, before)))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *exc):
        self.stopped.set()
        for thread in self.threads:
            thread.join()


def put_weights(repository, model, version=1):
    """Replaces the file in one step, as deployment tools do: no reader sees half a file."""
    folder = repository / "conv" / str(version)
    folder.mkdir(exist_ok=True)
    write_safetensors(folder / "new", model.tensors)
    os.rename(folder / "new", folder / "weights.safetensors")


@pytest.mark.parametrize("control", ["none", "explicit"])
@pytest.mark.parametrize("anew", [False, True])  # cp -p; rm, then cp -p
def test_weights_with_the_old_size_and_times_are_new(tmp_path, control, anew):
    repository = tmp_path / "repository"
    ConvModel(seed=1).write(repository)
    weights = repository / "conv" / "1" / "weights.safetensors"
    before = weights.stat()
    flags = ("--model-control", control) + (("--load-model", "conv") if control != "none" else ())
    coords, feats = random_grid(3, 100)
    with serving(repository, tmp_path, *flags) as (daemon, client, asked):
        if anew:
            weights.unlink()
        write_safetensors(weights, ConvModel(seed=2).tensors)
        os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
        now = weights.stat()
        assert (now.st_size, now.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
        if control == "explicit":
            asked.load("conv")
        else:
            daemon.process.send_signal(signal.SIGHUP)
            daemon.wait_said("MODEL_READY", 2)
        np.testing.assert_allclose(client.infer("conv", coords, feats)["out"],
                                   ConvModel(seed=2).answer(coords, feats), atol=1e-3)


def test_the_counts_of_a_version_outlast_a_reload(tmp_path):
    """chmod changes no byte, and loads the version again: its series goes on, as Triton's does."""
    ConvModel().write(tmp_path / "repository")

    def counted():
        (said,) = control.reflected.call("ModelStatistics")["model_stats"]
        name = 'nv_inference_request_success{model="conv",version="1"}'
        return int(said["inference_count"]), daemon.metrics()[name]
    with serving(tmp_path / "repository", tmp_path) as (daemon, client, control):
        for loads in (1, 2, 3):
            client.infer("conv", *random_grid(3, 100))
            assert counted() == (loads, loads)
            (tmp_path / "repository" / "conv" / "network.json").chmod(0o600 + loads)
            daemon.signal(signal.SIGHUP)
            daemon.wait_said("MODEL_UNLOADED", loads)


@pytest.mark.parametrize("version", [1, 2])  # changed files, a new version
@pytest.mark.parametrize("devices", [pytest.param("cpu", marks=pytest.mark.release),
                                     pytest.param("cpu,cpu", marks=pytest.mark.races)])
def test_a_swap_under_load_fails_no_request(tmp_path, version, devices):
    repository = tmp_path / "repository"
    old, new = ConvModel(seed=1).write(repository), ConvModel(seed=2)
    with serving(repository, tmp_path, "--device", devices, "--threads", "1") as (daemon, _, _c):
        with Hammer(daemon, [old, new]) as hammer:
            hammer.more(50)
            put_weights(repository, new, version)
            daemon.signal(signal.SIGHUP)
            daemon.wait_for("the new one", lambda: daemon.log().count("MODEL_READY") == 2)
            hammer.all_anew()  # requests that were admitted before have ended
            begin = hammer.done
            hammer.more(50)
        assert not hammer.errors, hammer.errors
        assert set(hammer.seen[:40]) == {0} and set(hammer.seen[begin:]) == {1}
        if version == 1:
            daemon.wait_for("the old one's end", lambda: "MODEL_UNLOADED" in daemon.log())


def test_changed_files_that_are_broken_change_nothing_and_the_index_says_why(tmp_path):
    repository = tmp_path / "repository"
    old = ConvModel().write(repository)
    with serving(repository, tmp_path, "--threads", "1") as (daemon, _, control):
        with Hammer(daemon, [old], threads=4) as hammer:
            hammer.more(20)
            (repository / "conv" / "1" / "weights.safetensors").write_bytes(b"\xff" * 100)
            daemon.signal(signal.SIGHUP)
            daemon.wait_for("the failure", lambda: "MODEL_FAILED" in daemon.log())
            hammer.more(20)
        assert not hammer.errors, hammer.errors
        state, reason = control.index()["conv", "1"]
        assert state == "READY"
        assert "changed files are UNAVAILABLE" in reason and "safetensors" in reason
        assert daemon.get("/v2/health/ready")[0] == 200
        said = subprocess.run([os.environ["VOXEL"], "status", "--server", daemon.grpc],
                              capture_output=True, text=True, timeout=PATIENCE)
        assert said.returncode == 0 and f"conv version 1 is ready: {reason}\n" in said.stdout


def test_explicit_control(tmp_path):
    repository = tmp_path / "repository"
    models = {name: ConvModel(seed=i).write(repository, name)
              for i, name in enumerate(["a", "b", "c"])}
    coords, feats = random_grid(1, 100)
    with serving(repository, tmp_path, "--model-control", "explicit", "--load-model", "a, b",
                 "--threads", "1") as (daemon, client, control):
        def is_right(name):
            return np.allclose(client.infer(name, coords, feats)["out"],
                               models[name].answer(coords, feats), atol=1e-3)
        assert control.index() == {("a", "1"): ("READY", ""), ("b", "1"): ("READY", ""),
                                   ("c", "1"): ("UNAVAILABLE", "unloaded")}
        with pytest.raises(voxeld.NotFound):
            client.infer("c", coords, feats)
        control.load("c")                       # returns when the model serves
        assert is_right("c")
        control.reflected.call("RepositoryModelLoad", repository_name="c")  # KServe's SDK
        control.unload("a")                     # returns when the model is unloaded
        with pytest.raises(voxeld.NotFound):
            client.infer("a", coords, feats)
        assert control.index()["a", "1"] == ("UNAVAILABLE", "unloaded")
        assert set(control.index(ready=True)) == {("b", "1"), ("c", "1")}
        daemon.signal(signal.SIGHUP)            # does not load what was unloaded
        models["b"] = ConvModel(seed=9).write(repository, "b", version=2)
        control.load("b")
        assert is_right("b") and client.infer("b", coords, feats).model_version == "2"
        assert ("a", "1") not in control.index(ready=True)
        control.load("a")
        assert is_right("a")
        assert control.refused("RepositoryModelLoad", model_name="nowhere") == (
            grpc.StatusCode.NOT_FOUND,
            "failed to load 'nowhere', failed to poll from model repository: "
            "it has no model of that name with a version")
        assert control.refused("RepositoryModelUnload", model_name="nowhere") == (
            grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'nowhere' is not found: "
            "this server has 'a', 'b', 'c'")
        code, text = control.refused(
            "RepositoryModelLoad", model_name="a", parameters={"config": {"string_param": "{}"}})
        assert code is grpc.StatusCode.UNIMPLEMENTED and "'config'" in text
        shutil.copytree(repository / "a", repository / "broken")
        (repository / "broken" / "1" / "weights.safetensors").write_bytes(b"\xff" * 100)
        code, text = control.refused("RepositoryModelLoad", model_name="broken")
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert text.startswith("load failed for model 'broken': version 1 is at UNAVAILABLE "
                               "state: ") and "safetensors" in text
        ConvModel().write(repository, "broken")
        control.load("broken")                  # tried again when it is asked for again
        assert control.index()["broken", "1"] == ("READY", "")


def test_no_client_is_told_where_the_repository_is(tmp_path):
    """A link to a file that is not there names it, and the log has all of its path."""
    repository, blobs = tmp_path / "repository", "/nowhere/voxeld/blobs"
    ConvModel().write(repository, "linked")
    (repository / "linked" / "1" / "weights.safetensors").unlink()
    (repository / "linked" / "1" / "weights.safetensors").symlink_to(blobs + "/5e7a")
    (repository / "gone").symlink_to(blobs + "/gone-1")
    with serving(repository, tmp_path, "--model-control", "explicit",
                 "--threads", "1") as (daemon, client, control):
        said = [control.refused("RepositoryModelLoad", model_name=name)
                for name in ("linked", "gone", "nowhere")]
        missing = "No such file or directory: it is a link to '{}', which is not there"
        failed = "linked/1/weights.safetensors: cannot be opened: " + missing
        assert said[0] == (grpc.StatusCode.INVALID_ARGUMENT,
                           "load failed for model 'linked': version 1 is at UNAVAILABLE state: "
                           + failed.format("5e7a"))
        assert said[1][0] is said[2][0] is grpc.StatusCode.NOT_FOUND
        index = control.index()
        assert index["linked", "1"] == ("UNAVAILABLE", failed.format("5e7a"))
        gone = "model directory 'gone' cannot be read: " + missing
        assert index["gone", ""] == ("UNAVAILABLE", "unloaded: " + gone.format("gone-1"))
        with pytest.raises(voxeld.NotFound) as caught:
            client.infer("gone", *random_grid(1, 10))
        assert caught.value.message.endswith("is not found: " + gone.format("gone-1"))
        for _, sentence in [*said, *index.values()]:
            assert blobs not in sentence and str(repository) not in sentence, sentence
        daemon.wait_said("MODEL_FAILED")
        for name in ("5e7a", "gone-1"):
            assert f"{blobs}/{name}', which is not there" in daemon.log(), daemon.log()
        assert f"repository={repository} " in daemon.log()


def test_explicit_loads_all_that_are_there_at_start(tmp_path):
    repository = tmp_path / "repository"
    for name in ("a", "b"):
        ConvModel().write(repository, name)
    with serving(repository, tmp_path, "--model-control", "explicit", "--load-model", "*",
                 "--threads", "1") as (daemon, _, control):
        assert set(control.index(ready=True)) == {("a", "1"), ("b", "1")}
        ConvModel().write(repository, "late")
        daemon.signal(signal.SIGHUP)
        daemon.wait_for("the listing", lambda: ("late", "1") in control.index())
        assert control.index()["late", "1"] == ("UNAVAILABLE", "unloaded")


@pytest.mark.races
def test_an_unload_under_load_drains_and_a_load_brings_it_back(tmp_path):
    repository = tmp_path / "repository"
    ConvModel(ci=16, hidden=64).write(repository)
    coords, _ = random_grid(1, 5000 if SANITIZED else 20000)
    feats = np.ones((len(coords), 16), np.float32)
    with serving(repository, tmp_path, "--model-control", "explicit", "--load-model", "conv",
                 "--threads", "1") as (daemon, client, control):
        expected = client.infer("conv", coords, feats)["out"]
        for _ in range(2 if SANITIZED else 4):
            ends = []

            def ask():
                with Client(daemon.grpc) as one:
                    try:
                        ends.append(one.infer("conv", coords, feats, timeout=PATIENCE)["out"])
                    except voxeld.VoxeldError as error:
                        ends.append(error)
            threads = [threading.Thread(target=ask) for _ in range(6)]
            for thread in threads:
                thread.start()
            # Answers are counted first, so one that arrives meanwhile is in neither count.
            daemon.wait_for("all of them inside", lambda: len(ends) + sum(
                daemon.metrics()[f"voxeld_{k}_requests"] for k in ("running", "queued")) == 6)
            control.unload("conv")
            for thread in threads:
                thread.join()
            wrong = [e for e in ends if not np.array_equal(e, expected)]
            assert len(ends) == 6 and not wrong, wrong
            with pytest.raises(voxeld.NotFound):
                client.infer("conv", coords, feats)
            control.load("conv")
            assert np.array_equal(client.infer("conv", coords, feats)["out"], expected)


@pytest.mark.races
def test_poll_finds_what_changed_and_does_not_try_again_what_did_not(tmp_path):
    repository = tmp_path / "repository"
    ConvModel(seed=1).write(repository)
    coords, feats = random_grid(1, 100)
    with serving(repository, tmp_path, "--model-control", "poll", "--repository-poll-ms", "1000",
                 "--threads", "1") as (daemon, client, control):
        assert control.refused("RepositoryModelLoad", model_name="conv") == (
            grpc.StatusCode.UNAVAILABLE,
            "explicit model load / unload is not allowed if polling is enabled")
        shutil.copytree(repository / "conv" / "1", tmp_path / "made" / "broken" / "1")
        (tmp_path / "made" / "broken").rename(repository / "broken")  # whole when it is seen
        new = ConvModel(seed=2)
        put_weights(repository, new)
        daemon.wait_for("the new files", lambda: np.allclose(
            client.infer("conv", coords, feats)["out"], new.answer(coords, feats), atol=1e-3))
        daemon.wait_for("the failure", lambda: control.index().get(
            ("broken", "1"), ("",))[0] == "UNAVAILABLE")  # it has no network.json
        daemon.wait_said("MODEL_FAILED")
        failures = daemon.log().count("MODEL_FAILED")
        ConvModel(seed=3).write(tmp_path / "made", "marker")
        (tmp_path / "made" / "marker").rename(repository / "marker")  # two polls later
        daemon.wait_for("a look", lambda: ("marker", "1") in control.index(ready=True))
        (repository / "marker").rename(tmp_path / "gone")
        daemon.wait_for("a look", lambda: ("marker", "1") not in control.index())
        assert daemon.log().count("MODEL_FAILED") == failures
        ConvModel().write(repository, "broken")
        daemon.wait_for("the mended one", lambda: ("broken", "1") in control.index(ready=True))


def test_without_control_the_rpcs_say_what_to_do(repository, tmp_path):
    with serving(repository, tmp_path) as (_, _c, control):
        for method in ("RepositoryModelLoad", "RepositoryModelUnload"):
            code, text = control.refused(method, model_name="conv")
            assert code is grpc.StatusCode.UNAVAILABLE
            assert text.startswith("explicit model load / unload is not allowed")
            assert "--model-control explicit" in text


@pytest.mark.races
def test_a_load_that_its_client_does_not_wait_for(tmp_path):
    repository = tmp_path / "repository"
    ConvModel().write(repository)
    flags = ("--model-control", "explicit", "--threads", "1")
    with serving(repository, tmp_path, *flags) as (daemon, _, control):
        worker, = daemon.workers()
        with daemon.frozen(worker):
            load = "/inference.GRPCInferenceService/RepositoryModelLoad"
            call = control.channel.unary_unary(load)
            seconds = 5  # grows until a load arrives in time
            while control.index()["conv", "1"][0] != "LOADING":
                with pytest.raises(grpc.RpcError) as caught:
                    call(b"\x12\x04conv", timeout=seconds)
                assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
                seconds *= 2
        daemon.wait_for("the load", lambda: control.index()["conv", "1"][0] == "READY")
        control.unload("conv")
        with daemon.frozen(worker):  # the server also ends without waiting for a load
            waiting = call.future(b"\x12\x04conv", timeout=PATIENCE)
            daemon.wait_for("the load", lambda: control.index()["conv", "1"][0] == "LOADING")
            daemon.signal(signal.SIGTERM)
            assert waiting.exception(PATIENCE).code() is grpc.StatusCode.UNAVAILABLE
        assert daemon.process.wait(PATIENCE) == 0
        daemon.stop = lambda: None


def test_models_are_where_placement_says(tmp_path):
    repository = tmp_path / "repository"
    for name in ("one", "other", "all"):
        ConvModel().write(repository, name)
    coords, feats = random_grid(1, 100)
    with serving(repository, tmp_path, "--device", "cpu,cpu", "--threads", "1", "--placement",
                 "one=1; other=1; *=all; unknown=1") as (daemon, client, control):
        daemon.wait_for("workers", lambda: len(daemon.workers()) == 2)

        def replicas(name):
            config = control.reflected.call("ModelConfig", name=name)["config"]
            return config["instance_group"][0]["count"]
        assert daemon.wait_for("both", lambda: replicas("all") == 2)
        assert (replicas("one"), replicas("other")) == (1, 1)
        daemon.wait_said("named by placement")
        daemon.wait_said("unknown")
        # They are apart: one worker's death takes one of them for a moment, not both.
        for worker in daemon.workers():
            os.kill(worker, signal.SIGKILL)
            for name in ("one", "other", "all"):
                client.infer(name, coords, feats, timeout=PATIENCE)
            daemon.wait_for("readiness", lambda: daemon.get("/v2/health/ready")[0] == 200)
        assert (replicas("one"), replicas("other")) == (1, 1)


@pytest.mark.parametrize("flags, sentence", [
    (["--placement", "m=cuda:7"], "placement: expected devices from --device"),
    (["--load-model", "m"], "--load-model needs --model-control explicit"),
])
def test_settings_that_cannot_be(repository, tmp_path, flags, sentence):
    ended = subprocess.run([os.environ["VOXELD"], "serve", "--repository", str(repository),
                            "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", *flags],
                           capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 2 and sentence in ended.stderr


def test_a_model_behind_the_listing(tmp_path):
    """The repository has it, but a listing ends: the sentence must not deny it."""
    repository = tmp_path / "repository"
    ConvModel().write(repository, "a")
    for i in range(2049):
        (repository / f"m{i:04}" / "1").mkdir(parents=True)
    with serving(repository, tmp_path, "--model-control", "explicit") as (_, _, control):
        control.load("a")
        assert control.refused("RepositoryModelLoad", model_name="m2048") == (
            grpc.StatusCode.NOT_FOUND,
            "failed to load 'm2048', failed to poll from model repository: it is not among the "
            "first 2048 model versions by name, and no more are read")


@pytest.mark.races
def test_many_models_do_not_flood_a_busy_worker(tmp_path):
    repository = tmp_path / "repository"
    count = 24 if SANITIZED else 60
    for i in range(count):
        ConvModel(seed=i, warmup=[10]).write(repository, f"m{i}")
    coords, feats = random_grid(1, 50)
    with serving(repository, tmp_path, "--threads", "1") as (daemon, client, control):
        assert len(control.index(ready=True)) == count
        with daemon.frozen(daemon.workers()[0]):
            for i in range(count):
                ConvModel(seed=count + i, warmup=[10]).write(repository, f"m{i}")
            daemon.signal(signal.SIGHUP)
            daemon.wait_for("the loads", lambda: sum(
                "changed files are LOADING" in reason for _, reason in control.index().values())
                == count)
        for i in range(count):
            expected = ConvModel(seed=count + i).answer(coords, feats)
            daemon.wait_for(f"the new m{i}", lambda: np.allclose(
                client.infer(f"m{i}", coords, feats)["out"], expected, atol=1e-3))
        assert sum(v for k, v in daemon.metrics().items()
                   if k.startswith("voxeld_worker_restarts_total")) == 0
        os.kill(daemon.workers()[0], signal.SIGKILL)
        for i in range(count):
            client.infer(f"m{i}", coords, feats, timeout=PATIENCE)
