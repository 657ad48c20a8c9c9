# SPDX-License-Identifier: Apache-2.0
"""Crowds: requests run together; each answer is the same as for the request alone."""
import asyncio
import signal
import threading
import time

import grpc
import numpy as np
import pytest

import voxeld
from conftest import SANITIZED
from model_files import ConvModel, random_grid
from voxeld import AsyncClient, Client, messages, wire
from voxeld_process import PATIENCE, Daemon

SIZES = (1, 2, 63, 64, 65, 200, 848, 1500, 3000)
ROUNDS = 4 if SANITIZED else 12
CI = 16


def crowd_model(**batching):
    model = ConvModel(ci=CI, hidden=16 if SANITIZED else 64)
    model.network["limits"]["voxels_max"] = 20000
    if batching:
        model.network["batching"] = batching
    return model


@pytest.fixture(scope="module")
def crowd(tmp_path_factory):
    """A daemon with one slow worker, so that requests gather behind each other."""
    repository = tmp_path_factory.mktemp("crowd")
    crowd_model().write(repository, "conv")
    with Daemon(repository, tmp_path_factory.mktemp("daemon"), "--threads", "1") as daemon:
        yield daemon


class Good:
    """Grids with the answers that they get when sent alone."""

    def __init__(self, daemon, seed):
        with Client(daemon.grpc) as client:
            self.grids = [random_grid(seed + i, n, ci=CI) for i, n in enumerate(SIZES)]
            self.alone, self.names = [], []
            for coords, feats in self.grids:
                answer = client.infer("conv", coords, feats, coords_ref="", timing=True)
                assert answer.parameters["batch_size"] == 1
                self.alone.append(answer["out"])
                self.names.append(answer.coords_ref)
        self.batch_sizes = []

    async def run(self, client, at):
        """One request of the crowd: every third by coords_ref, all compared bit for bit."""
        at, by_name = at % len(SIZES), at % 3 == 0
        coords, feats = self.grids[at]
        answer = await client.infer("conv", None if by_name else coords, feats, timing=True,
                                    coords_ref=self.names[at] if by_name else None,
                                    timeout=PATIENCE,
                                    priority=at % 3)
        assert np.array_equal(answer["out"], self.alone[at]), f"{SIZES[at]} voxels"
        size, voxels = answer.parameters["batch_size"], answer.parameters["batch_voxels"]
        assert voxels >= SIZES[at] and (size > 1 or voxels == SIZES[at])
        self.batch_sizes.append(size)


def batch_rows(daemon):
    """{batch size: (executions, ns in layers)} of ModelStatistics."""
    with grpc.insecure_channel(daemon.grpc) as channel:
        call = channel.unary_unary(messages.SERVICE + "ModelStatistics")
        data = call(messages.pack_name("conv"), timeout=PATIENCE)
    rows = {}
    for _, model in wire.fields(data):
        for at, value in wire.fields(model):
            if at != 7:
                continue
            row = dict(wire.fields(value))
            assert set(row) == {1, 2, 3, 4}
            infer = dict(wire.fields(row[3]))
            rows[row[1]] = infer[1], infer.get(2, 0)
    return rows


@pytest.mark.release
def test_every_answer_of_a_crowd_is_the_one_it_gets_alone(crowd):
    good = Good(crowd, 100)

    async def run():
        """Repeats until some ran together: a busy machine may send more slowly than it serves."""
        rounds = 0
        async with AsyncClient(crowd.grpc) as client:
            while rounds < ROUNDS or max(good.batch_sizes) == 1:
                await asyncio.gather(*(good.run(client, at) for at in range(48)))
                rounds += 1
        return rounds
    before = batch_rows(crowd)
    with Client(crowd.grpc) as client:
        counts = {r["name"]: r for r in client.statistics()}["conv"]
    rounds = asyncio.run(run())
    assert len(good.batch_sizes) == rounds * 48
    rows = batch_rows(crowd)
    assert set(good.batch_sizes) <= set(rows)
    for size in rows:
        runs = rows[size][0] - before.get(size, (0, 0))[0]
        assert runs * size == good.batch_sizes.count(size)
    with Client(crowd.grpc) as client:
        now = {r["name"]: r for r in client.statistics()}["conv"]
    assert now["inference_count"] - counts["inference_count"] == rounds * 48
    assert now["execution_count"] == sum(runs for runs, _ in rows.values())
    metrics = crowd.metrics()
    assert metrics["voxeld_batch_requests_count"] == now["execution_count"]
    assert metrics["voxeld_border_seconds_count"] == now["execution_count"]
    assert metrics["voxeld_batch_fill_ratio_count"] == now["execution_count"]
    assert metrics["voxeld_batch_prediction_error_seconds_count"] > 0


class Trouble:
    """Requests that fail, each in its own way, and the status of each."""

    def __init__(self):
        self.ends = {}

    def was_late(self):
        """Whether a request exceeded its queue time; on a machine that is fast now, none does."""
        return "Unavailable" in self.ends.get("expired", ())

    async def run(self, client, at):
        kinds = (self.duplicate, self.outside, self.channels, self.giant, self.expired,
                 self.cancelled, self.vanished, self.unknown, self.empty)
        kind = kinds[at % len(kinds)]
        try:
            end = await kind(client, at)
        except voxeld.VoxeldError as error:
            end = type(error).__name__
        self.ends.setdefault(kind.__name__, set()).add(end)

    async def duplicate(self, client, at):
        coords, feats = random_grid(at, 500, ci=CI)
        coords[17] = coords[400]
        await client.infer("conv", coords, feats, timeout=PATIENCE)

    async def outside(self, client, at):
        coords, feats = random_grid(at, 500, ci=CI)
        coords[499, 2] = 1 << 20
        await client.infer("conv", coords, feats, timeout=PATIENCE)

    async def channels(self, client, at):
        coords, feats = random_grid(at, 500, ci=CI - 1)
        await client.infer("conv", coords, feats, timeout=PATIENCE)

    async def giant(self, client, at):
        coords, feats = random_grid(at, 20001, ci=CI)
        await client.infer("conv", coords, feats, timeout=PATIENCE)

    async def expired(self, client, at):
        await client.infer("conv", *random_grid(at, 3000, ci=CI), queue_timeout_us=1,
                           timeout=PATIENCE)
        return "OK"

    async def cancelled(self, client, at):
        await client.infer("conv", *random_grid(at, 3000, ci=CI), timeout=0.002 * (at % 7 + 1))
        return "OK"

    async def vanished(self, client, at):
        """The whole connection closes while the server has the request."""
        async with AsyncClient(client.address) as other:
            call = asyncio.ensure_future(
                other.infer("conv", *random_grid(at, 3000, ci=CI), timeout=PATIENCE))
            await asyncio.sleep(0.001 * (at % 11))  # sleep: at random
            call.cancel()
            try:
                await call
            except asyncio.CancelledError:
                return "gone"
        return "OK"

    async def unknown(self, client, at):
        _, feats = random_grid(at, 500, ci=CI)
        await client.infer("conv", None, feats, coords_ref=f"{at + 1:032x}", timeout=PATIENCE)

    async def empty(self, client, at):
        empty = np.zeros((0, 4), np.int32), np.zeros((0, CI), np.float32)
        return (await client.infer("conv", *empty, timeout=PATIENCE))["out"].shape


@pytest.mark.races
def test_nothing_that_runs_beside_it_changes_an_answer(crowd):
    good, trouble = Good(crowd, 200), Trouble()

    async def run():
        async with AsyncClient(crowd.grpc) as client:
            client.address = crowd.grpc
            turn = 0
            while turn < ROUNDS or max(good.batch_sizes) == 1 or not trouble.was_late():
                await asyncio.gather(
                    *(good.run(client, at) for at in range(36)),
                    *(trouble.run(client, 36 * turn + at) for at in range(36)))
                turn += 1
        return turn
    rounds = asyncio.run(run())
    assert len(good.batch_sizes) == rounds * 36
    ends = trouble.ends
    for kind in ("duplicate", "outside", "channels"):
        assert ends[kind] == {"InvalidArgument"}, ends
    assert ends["giant"] == {"ResourceExhausted"}
    assert ends["expired"] <= {"Unavailable", "OK"}
    assert ends["cancelled"] <= {"DeadlineExceeded", "OK"}
    assert ends["vanished"] <= {"gone", "OK"}
    assert ends["unknown"] == {"FailedPrecondition"}
    assert ends["empty"] == {(0, 3)}
    crowd.wait_for("empty arena", lambda: crowd.metrics()["voxeld_arena_used_bytes"] == 0)
    metrics = crowd.metrics()
    assert metrics["voxeld_queued_requests"] == 0 and metrics["voxeld_running_requests"] == 0
    assert sum(v for k, v in metrics.items() if "worker_restarts_total" in k) == 0


def test_batching_can_be_turned_off(tmp_path):
    repository = tmp_path / "repository"
    crowd_model(requests_max=1).write(repository, "conv")
    with Daemon(repository, tmp_path, "--threads", "1") as daemon:
        good = Good(daemon, 300)

        async def run():
            async with AsyncClient(daemon.grpc) as client:
                await asyncio.gather(*(good.run(client, at) for at in range(48)))
        asyncio.run(run())
        assert set(good.batch_sizes) == {1} and set(batch_rows(daemon)) == {1}


@pytest.mark.races
def test_an_idle_worker_waits_for_company_as_long_as_the_model_says(tmp_path):
    repository = tmp_path / "repository"
    crowd_model(requests_max=2, delay_us=10_000_000).write(repository, "conv")
    with Daemon(repository, tmp_path) as daemon, Client(daemon.grpc) as client:
        def is_served_with_its_company():
            """A full batch does not wait, so the second of two is served when it arrives."""
            answers = []

            def run(seed):
                answers.append(client.infer("conv", *random_grid(seed, 100, ci=CI), timing=True,
                                            timeout=PATIENCE).parameters)
            calls = [threading.Thread(target=run, args=(seed,)) for seed in (1, 2)]
            for call in calls:
                call.start()
            for call in calls:
                call.join()
            together = [a["batch_size"] for a in answers] == [2, 2]
            return together and min(a["queue_ns"] for a in answers) < 2e9
        daemon.wait_for("two that run together at once", is_served_with_its_company)


def test_nobody_waits_longer_for_company_than_the_model_says(tmp_path):
    """To a fraction of a millisecond: a request that stays alone runs when its 2.5 ms are over.  On
    a busy machine most run later; one that is on time shows that our code causes no delay."""
    repository = tmp_path / "repository"
    crowd_model(delay_us=2500).write(repository, "conv")
    with Daemon(repository, tmp_path) as daemon, Client(daemon.grpc) as client:
        coords, feats = random_grid(1, 20, ci=CI)
        waits = []

        def on_time():
            answer = client.infer("conv", coords, feats, timing=True)
            waits.append(answer.parameters["queue_ns"])
            assert waits[-1] >= 2_500_000
            return waits[-1] < 2_900_000
        daemon.wait_for("a request that waits for no more than 2.9 ms", on_time)


# About 0.1 s on one thread, longer than any message takes; half a second under ThreadSanitizer.
SLOW_VOXELS = 1500 if SANITIZED else 20000


def slow_model(repository):
    model = ConvModel(ci=64, hidden=256)
    model.network["batching"] = {"requests_max": 2}
    model.write(repository, "slow")


def test_what_cannot_be_in_time_is_refused_at_once_with_the_expected_wait(tmp_path):
    repository = tmp_path / "repository"
    slow_model(repository)
    coords, _ = random_grid(1, SLOW_VOXELS)
    feats = np.ones((len(coords), 64), np.float16)
    with Daemon(repository, tmp_path, "--threads", "1") as daemon, Client(daemon.grpc) as client:
        alone = PATIENCE
        for _ in range(6):  # the scheduler learns what such a request takes
            begin = time.monotonic()
            client.infer("slow", coords, feats)
            alone = min(alone, time.monotonic() - begin)

        # All from one client, whose requests are served in order.
        # The deadline is far away: each takes half a minute on a busy machine under a sanitizer.
        crowd = [threading.Thread(target=client.infer, args=("slow", coords, feats),
                                  kwargs={"timeout": 100 * PATIENCE}) for _ in range(12)]
        # Frozen, because on a busy machine the crowd may arrive more slowly than it is served.
        with daemon.frozen(daemon.workers()[0]):
            for call in crowd:
                call.start()
            daemon.wait_for("a queue", lambda: daemon.metrics()["voxeld_queued_requests"] >= 8)

            def refused():
                """Whether the server refused it, and not the client's own timer."""
                with pytest.raises(voxeld.DeadlineExceeded) as caught:
                    client.infer("slow", coords, feats, timeout=3 * alone)
                return "cannot be met: the expected wait is" in caught.value.message
            daemon.wait_for("the server's words", refused)
            with pytest.raises(voxeld.Unavailable) as caught:
                client.infer("slow", coords, feats, queue_timeout_us=int(2e6 * alone),
                             timeout=100 * PATIENCE)
            assert "Request timeout expired: the expected wait is" in caught.value.message
            assert daemon.metrics()["voxeld_deadline_refusals_total"] >= 2
        for call in crowd:
            call.join()
        # With no request ahead, both are served.
        client.infer("slow", coords, feats, timeout=PATIENCE, queue_timeout_us=PATIENCE * 500_000)


def test_a_full_queue_says_when_to_try_again(tmp_path):
    repository = tmp_path / "repository"
    slow_model(repository)
    coords, _ = random_grid(1, SLOW_VOXELS)
    feats = np.ones((len(coords), 64), np.float16)
    with Daemon(repository, tmp_path, "--threads", "1", "--queue-max", "4") as daemon, \
            Client(daemon.grpc) as client:
        for _ in range(6):
            client.infer("slow", coords, feats)
        outcomes = []

        def run():
            try:
                client.infer("slow", coords, feats, timeout=PATIENCE)
                outcomes.append("OK")
            except voxeld.Unavailable as error:
                outcomes.append(error.message)
        calls = [threading.Thread(target=run) for _ in range(16)]
        with daemon.frozen(daemon.workers()[0]):
            for call in calls:
                call.start()
            # The worker has two batches of at most two; four requests wait.
            daemon.wait_for("refusals", lambda: len(outcomes) >= 8)
        for call in calls:
            call.join()
        refused = [o for o in outcomes if o != "OK"]
        assert refused
        for words in refused:
            assert words.startswith("Exceeds maximum queue size"), words
            assert "; try again in about " in words and words.endswith(" ms"), words
        assert daemon.metrics()["voxeld_deadline_refusals_total"] == 0


def test_voxels_in_flight_are_bounded(tmp_path):
    """Two fit, the third does not; one alone is served however large it is."""
    repository = tmp_path / "repository"
    crowd_model().write(repository, "conv")
    small, large = random_grid(1, 400, ci=CI), random_grid(2, 3000, ci=CI)
    with Daemon(repository, tmp_path, "--voxels-max", "1000") as daemon, \
            Client(daemon.grpc) as client:
        client.infer("conv", *large)
        outcomes = []

        def run():
            try:
                client.infer("conv", *small, timeout=PATIENCE)
                outcomes.append("OK")
            except voxeld.ResourceExhausted as error:
                outcomes.append(error.message)
        calls = [threading.Thread(target=run) for _ in range(6)]
        with daemon.frozen(daemon.workers()[0]):
            for call in calls:
                call.start()
            daemon.wait_for("refusals", lambda: len(outcomes) >= 4)
        for call in calls:
            call.join()
        assert outcomes.count("OK") == 2
        for words in outcomes:
            assert words == "OK" or "voxels_max of 1000" in words, words
        client.infer("conv", *large)


def ends_at_once(daemon, wait):
    """Whether the drain ends within 0.2 s of the answer to its last request."""
    coords, feats = random_grid(1, 500, ci=CI)
    with Client(daemon.grpc) as client:
        call = threading.Thread(target=client.infer, args=("conv", coords, feats))
        with daemon.frozen(*daemon.workers()):
            call.start()
            daemon.wait_for("the request",
                            lambda: daemon.metrics()["voxeld_running_requests"] == 1)
            daemon.signal(signal.SIGTERM)
            daemon.wait_for("the drain", lambda: "step=draining" in daemon.log())
            time.sleep(wait)  # sleep: anywhere in a second
        call.join()
        answered = time.monotonic()
        daemon.wait_for("its end", lambda: "step=stopping" in daemon.log())
        return time.monotonic() - answered < 0.2


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's end takes longer")
@pytest.mark.parametrize("wait", [0, 0.2, 0.4, 0.6])
def test_the_drain_ends_with_the_last_answer(tmp_path, wait):
    """The drain does not wait for the loop's next wakeup, which comes every second.  For each of
    four delays one of twenty drains ends at once, however busy the machine is."""
    crowd_model().write(tmp_path / "repository", "conv")
    for _ in range(20):
        daemon = Daemon(tmp_path / "repository", tmp_path)
        try:
            at_once = ends_at_once(daemon, wait)
            assert daemon.process.wait(PATIENCE) == 0
        finally:
            daemon.kill()
        if at_once:
            return
    raise AssertionError("none of twenty drains ended within 0.2 s of the last answer")
