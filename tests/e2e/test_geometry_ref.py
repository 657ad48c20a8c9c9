# SPDX-License-Identifier: Apache-2.0
"""coords_ref: a geometry is named once and reused until it is discarded; then an error says so."""
import concurrent.futures
import contextlib
import itertools
import os
import re
import signal
import threading

import numpy as np
import pytest

import voxeld
from model_files import ConvModel, random_grid
from voxeld import Client
from voxeld_process import PATIENCE, Daemon

UNKNOWN = "0123456789abcdef0123456789abcdef"


def refs(daemon, result):
    return daemon.metrics()[f'voxeld_geometry_refs_total{{result="{result}"}}']


@pytest.mark.parametrize("columns", [3, 4])
def test_a_named_geometry_is_used_without_its_coords(daemon, client, model, columns):
    coords, feats = random_grid(1, 700)
    coords = coords[:, 4 - columns:]
    first = client.infer("conv", coords, feats, coords_ref="")
    assert re.fullmatch("[0-9a-f]{32}", first.coords_ref)
    hits = refs(daemon, "hit")
    again = client.infer("conv", None, feats, coords_ref=first.coords_ref, timing=True)
    assert np.array_equal(again["out"], first["out"])
    assert again.coords_ref == first.coords_ref
    assert again.parameters["geometry_hit"] is True
    assert again.parameters["batch_size"] == 1 and again.parameters["batch_voxels"] == 700
    # The purpose is to send other features for the same voxels.
    other = np.random.default_rng(2).normal(size=feats.shape).astype(np.float32)
    by_name = client.infer("conv", None, other, coords_ref=first.coords_ref)["out"]
    np.testing.assert_array_equal(by_name, client.infer("conv", coords, other)["out"])
    np.testing.assert_allclose(by_name, model.answer(coords, other), rtol=2e-4, atol=2e-4)
    assert refs(daemon, "hit") == hits + 2


def test_a_name_is_said_only_when_asked_for_and_stands_for_the_content(client):
    coords, feats = random_grid(3, 300)
    assert client.infer("conv", coords, feats).parameters == {}
    name = client.infer("conv", coords, feats, coords_ref="").coords_ref
    assert client.infer("conv", coords.copy(), feats, coords_ref="").coords_ref == name
    order = np.random.default_rng(4).permutation(len(coords))
    assert client.infer("conv", coords[order], feats, coords_ref="").coords_ref != name
    moved = coords + np.array([0, 0, 0, 1], np.int32)
    assert client.infer("conv", moved, feats, coords_ref="").coords_ref != name


def test_nothing_has_no_name(client, model):
    empty = np.zeros((0, 4), np.int32), np.zeros((0, model.ci), np.float32)
    answer = client.infer("conv", *empty, coords_ref="")
    assert answer["out"].shape == (0, model.co) and answer.coords_ref == ""


def test_an_unknown_name_says_what_to_do(daemon, client):
    unknown = refs(daemon, "unknown")
    _, feats = random_grid(5, 100)
    with pytest.raises(voxeld.FailedPrecondition) as caught:
        client.infer("conv", None, feats, coords_ref=UNKNOWN)
    assert caught.value.message.startswith(f"coords_ref '{UNKNOWN[:4]}...' is not known here")
    assert "send coords again" in caught.value.message
    assert refs(daemon, "unknown") == unknown + 1


def test_what_is_wrong_with_a_reference_is_said(client):
    coords, feats = random_grid(6, 200)
    name = client.infer("conv", coords, feats, coords_ref="").coords_ref
    cases = [
        (dict(coords=coords, feats=feats, parameters={"coords_ref": name}), "are both present"),
        (dict(coords=coords, feats=feats, parameters={"coords_ref": UNKNOWN}), "are both present"),
        (dict(coords=None, feats=feats[:-1], coords_ref=name), "expected 200, got 199"),
        (dict(coords=None, feats=feats[:0], coords_ref=name), "expected 200, got 0"),
        (dict(coords=None, feats=feats[:, :3], coords_ref=name), "expected shape [N,4]"),
        (dict(coords=None, feats=feats, coords_ref=name.upper()), "lower-case"),
        (dict(coords=None, feats=feats, coords_ref=name[:-1]), "32 digits"),
        (dict(coords=None, feats=feats, coords_ref="0" * 32), "coords_ref"),
        (dict(coords=coords, feats=feats, parameters={"coords_ref": 7}), "string_param"),
    ]
    for arguments, sentence in cases:
        with pytest.raises(voxeld.InvalidArgument) as caught:
            client.infer("conv", **arguments)
        assert sentence in caught.value.message, caught.value.message
    assert len(client.infer("conv", None, feats, coords_ref=name)["out"]) == 200


def test_bad_coords_get_no_name(client):
    coords, feats = random_grid(7, 50)
    coords[3] = coords[4]
    with pytest.raises(voxeld.InvalidArgument):
        client.infer("conv", coords, feats, coords_ref="")


def test_one_name_serves_every_model_of_the_worker(tmp_path):
    repository = tmp_path / "repository"
    ConvModel(seed=1).write(repository, "a")
    ConvModel(seed=2, hidden=16).write(repository, "b")
    coords, feats = random_grid(8, 500)
    with Daemon(repository, tmp_path) as daemon, Client(daemon.grpc) as client:
        name = client.infer("a", coords, feats, coords_ref="").coords_ref
        by_name = client.infer("b", None, feats, coords_ref=name)
        assert np.array_equal(by_name["out"], client.infer("b", coords, feats)["out"])
        assert by_name.coords_ref == name


def test_what_was_thrown_out_is_unknown_until_it_is_sent_again(small_repository, tmp_path):
    with Daemon(small_repository, tmp_path, "--cache-bytes", "8M") as daemon, \
            Client(daemon.grpc) as client:
        coords, feats = random_grid(9, 1000)
        first = client.infer("conv", coords, feats, coords_ref="")
        assert first.coords_ref
        for seed in range(70, 110):  # 40 times 4000 voxels with 27 neighbours of 4 bytes: 17 MB
            client.infer("conv", *random_grid(seed, 4000))
        unknown = refs(daemon, "unknown")
        with pytest.raises(voxeld.FailedPrecondition) as caught:
            client.infer("conv", None, feats, coords_ref=first.coords_ref)
        assert caught.value.message.startswith(f"coords_ref '{first.coords_ref[:4]}...' is not")
        assert refs(daemon, "unknown") == unknown + 1
        again = client.infer("conv", coords, feats, coords_ref="")
        assert again.coords_ref == first.coords_ref
        assert np.array_equal(again["out"], first["out"])
        by_name = client.infer("conv", None, feats, coords_ref=first.coords_ref)
        assert np.array_equal(by_name["out"], first["out"])


@pytest.mark.races
def test_a_new_worker_knows_nothing_and_learns_the_same_names(repository, tmp_path):
    coords, feats = random_grid(50, 800)
    with Daemon(repository, tmp_path, "--access-log") as daemon, \
            Client(daemon.grpc) as client:
        first = client.infer("conv", coords, feats, coords_ref="")
        worker, = daemon.workers()
        os.kill(worker, signal.SIGKILL)
        daemon.wait_for("the death", lambda: "WORKER_EXIT" in daemon.log())
        with pytest.raises(voxeld.FailedPrecondition) as caught:
            client.infer("conv", None, feats, coords_ref=first.coords_ref, timeout=PATIENCE)
        assert "is not known here" in caught.value.message
        again = client.infer("conv", coords, feats, coords_ref="", timeout=PATIENCE)
        assert again.coords_ref == first.coords_ref
        assert np.array_equal(again["out"], first["out"])
        by_name = client.infer("conv", None, feats, coords_ref=first.coords_ref)
        assert np.array_equal(by_name["out"], first["out"])
        daemon.wait_for("the access log",
                        lambda: f"coords_ref={first.coords_ref[:4]}..." in daemon.log())


@pytest.mark.races
def test_those_that_wait_for_a_worker_that_dies_are_answered(repository, tmp_path):
    """They carry no coordinates that another or a restarted worker could use."""
    coords, feats = random_grid(51, 400)
    with Daemon(repository, tmp_path) as daemon, Client(daemon.grpc) as client:
        first = client.infer("conv", coords, feats, coords_ref="")
        outcomes = []

        def run(by_name):
            try:
                ref = first.coords_ref if by_name else ""
                answer = client.infer("conv", None if by_name else coords, feats, coords_ref=ref,
                                      timeout=PATIENCE)
                assert np.array_equal(answer["out"], first["out"])
                outcomes.append((by_name, "OK"))
            except voxeld.VoxeldError as error:
                outcomes.append((by_name, type(error).__name__))
        calls = [threading.Thread(target=run, args=(i % 2 == 0,)) for i in range(12)]
        worker, = daemon.workers()
        # The worker is killed before frozen() can continue it.
        with contextlib.suppress(ProcessLookupError), daemon.frozen(worker):
            for call in calls:
                call.start()

            def there():
                now = daemon.metrics()
                return now["voxeld_running_requests"] + now["voxeld_queued_requests"] == 12
            daemon.wait_for("all of them", there)
            os.kill(worker, signal.SIGKILL)
        for call in calls:
            call.join()
        assert outcomes.count((True, "FailedPrecondition")) == 6, outcomes
        assert outcomes.count((False, "OK")) == 6, outcomes
        daemon.wait_for("empty arena",
                        lambda: daemon.metrics()["voxeld_arena_used_bytes"] == 0)


@pytest.mark.races
def test_a_holder_that_has_it_no_more_passes_it_on(small_repository, tmp_path):
    """Two workers have it; one discards it and is asked first; the other one answers."""
    coords, feats = random_grid(120, 1000)
    with contextlib.ExitStack() as open_now:
        daemon = open_now.enter_context(Daemon(
            small_repository, tmp_path, "--device", "cpu,cpu", "--threads", "1", "--batching",
            "off", "--cache-bytes", "8M", "--watchdog-ms", "0"))
        client = open_now.enter_context(Client(daemon.grpc))
        pool = open_now.enter_context(concurrent.futures.ThreadPoolExecutor(8))
        daemon.wait_for("both workers", lambda: sum(
            v for k, v in daemon.metrics().items() if k.startswith("voxeld_worker_up")) == 2)

        def running(count):
            return lambda: daemon.metrics()["voxeld_running_requests"] == count

        def batches():
            return daemon.metrics()["voxeld_batch_requests_count"]

        def ask(*args, **kwargs):
            return pool.submit(client.infer, "conv", *args, timing=True, timeout=PATIENCE, **kwargs)
        def each(*args, **kwargs):
            """Sends two requests while both workers are frozen, so each with the model gets one."""
            with contextlib.ExitStack() as still:
                for worker in daemon.workers():
                    still.enter_context(daemon.frozen(worker))
                both = []
                for count in (1, 2):
                    both.append(ask(*args, **kwargs))
                    daemon.wait_for(f"{count} running", running(count))
            return [call.result() for call in both]

        # A worker that is up may still be loading the model.
        seeds = itertools.count(1000)
        daemon.wait_for("the model on both workers", lambda: {
            answer.parameters["device"]
            for answer in each(*random_grid(next(seeds), 10))} == {"cpu:0", "cpu:1"})
        first, second = each(coords, feats, coords_ref="")
        assert {first.parameters["device"], second.parameters["device"]} == {"cpu:0", "cpu:1"}
        assert first.coords_ref == second.coords_ref
        with daemon.frozen(daemon.workers()[1]):
            # Two of them stay with the frozen worker; the others fill the cache of worker 0.
            fillers = []
            with daemon.frozen(daemon.workers()[0]):
                for seed in range(130, 134):
                    fillers.append(ask(*random_grid(seed, 4000)))
                    daemon.wait_for("it to be with a worker", running(len(fillers)))
            fillers += [ask(*random_grid(seed, 4000)) for seed in range(134, 170)]
            daemon.wait_for("all but two", lambda: sum(f.done() for f in fillers) == 38)
            done, unknown, hit = batches(), refs(daemon, "unknown"), refs(daemon, "hit")
            by_name = ask(None, feats, coords_ref=first.coords_ref)
            daemon.wait_for("worker 0 to say that it is gone",
                            lambda: batches() == done + 1)
            assert daemon.metrics()["voxeld_queued_requests"] == 1
            assert not by_name.done()
        answer = by_name.result()
        assert answer.parameters["device"] == "cpu:1"
        assert answer.parameters["geometry_hit"] is True
        assert np.array_equal(answer["out"], first["out"])
        assert {f.result().parameters["device"] for f in fillers} == {"cpu:0", "cpu:1"}
        assert refs(daemon, "unknown") == unknown and refs(daemon, "hit") == hit + 1


@pytest.mark.races
def test_requests_by_name_go_to_the_worker_that_holds_it(repository, tmp_path):
    with Daemon(repository, tmp_path, "--device", "cpu,cpu", "--threads", "1") as daemon, \
            Client(daemon.grpc) as client:
        daemon.wait_for("both workers", lambda: sum(
            v for k, v in daemon.metrics().items() if k.startswith("voxeld_worker_up")) == 2)
        holders = {}
        for seed in range(60, 66):
            coords, feats = random_grid(seed, 300)
            first = client.infer("conv", coords, feats, coords_ref="", timing=True)
            holders[seed] = first.parameters["device"]
            for _ in range(5):
                by_name = client.infer("conv", None, feats, coords_ref=first.coords_ref,
                                       timing=True)
                assert by_name.parameters["device"] == holders[seed]
                assert np.array_equal(by_name["out"], first["out"])
        assert refs(daemon, "hit") == 30 and refs(daemon, "unknown") == 0
        # kill -9 of one worker: the geometry that the other holds is still known.
        victim = int(holders[60].split(":")[1])
        info = {k: v for k, v in daemon.metrics().items() if "worker_restarts_total" in k}
        assert len(info) == 2
        before = daemon.log().count("WORKER_EXIT")
        os.kill(daemon.workers()[victim], signal.SIGKILL)
        daemon.wait_for("the death", lambda: daemon.log().count("WORKER_EXIT") > before)
        for seed, holder in holders.items():
            coords, feats = random_grid(seed, 300)
            answer = client.infer("conv", coords, feats, coords_ref="", timeout=PATIENCE)
            assert answer.coords_ref
            by_name = client.infer("conv", None, feats, coords_ref=answer.coords_ref,
                                   timeout=PATIENCE)
            assert np.array_equal(by_name["out"], answer["out"])
