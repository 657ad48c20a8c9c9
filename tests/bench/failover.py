#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a random worker again and again under load: no request may fail, no answer change.

    export VOXELD=build/release/bin/voxeld
    build/venv/bin/python tests/bench/failover.py                         two CPU workers, 2 minutes
    build/venv/bin/python tests/bench/failover.py --device cuda:0,cuda:1
    build/venv/bin/python tests/bench/failover.py --address HOST:PORT --pid N --model NAME

Good requests of many sizes come at half of the rate that was measured before the first kill, at
random moments whether or not earlier ones are answered; each answer's hash must be the one that
the same request had alone.  Bad ones (expired, cancelled, vanished, giant, empty, duplicate
coordinates) come all the time; each must end as such a request ends.

Prints one line of JSON; exit code 1 when a request failed, an answer changed, a bad request ended
in another way, or a kill did not happen.
"""
import argparse
import collections
import hashlib
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time

import grpc
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "clients" / "python")]

from model_files import ConvModel, random_grid  # noqa: E402
from voxeld import Client, messages  # noqa: E402
from voxeld.client import CHANNEL_OPTIONS  # noqa: E402
from voxeld_process import PATIENCE, Daemon, workers_of  # noqa: E402

INFER = messages.SERVICE + "ModelInfer"
MODEL = "conv"
WAIT_SECONDS = PATIENCE   # for one answer: restarts and a busy machine included
OUTSTANDING_MAX = 64      # good requests at once; the bad ones fit beside them in any queue
BAD_EVERY_SECONDS = 0.05
CALIBRATE_SECONDS = 2


def digest(data):
    """Hash of every output's bytes, by name."""
    answer = messages.read_infer(data)
    sha = hashlib.sha256()
    for name in sorted(answer):
        sha.update(name.encode() + str(answer[name].shape).encode())
        sha.update(np.ascontiguousarray(answer[name]).tobytes())
    return sha.hexdigest()


def channel_to(address):
    """A connection of its own, not shared with others to the same server."""
    return grpc.insecure_channel(address, (*CHANNEL_OPTIONS,
                                           ("grpc.use_local_subchannel_pool", 1)))


class Case:
    """A request, and the hash of the answer that it has alone."""

    def __init__(self, call, model, coords, feats):
        self.request = messages.pack_infer(model, coords, feats, {})
        self.expected = digest(call(self.request, timeout=WAIT_SECONDS))


class Tally:
    """The results of requests; any thread may add."""

    def __init__(self):
        self.lock = threading.Lock()
        self.latencies, self.ended = [], []  # seconds; moments of good answers
        self.failed, self.wrong = [], []
        self.bad, self.bad_failed = collections.Counter(), []

    def good(self, began, code, details, got, expected):
        now = time.monotonic()
        with self.lock:
            self.ended.append(now)
            self.latencies.append(now - began)
            if code != "OK":
                self.failed.append(f"{code}: {details}")
            elif got != expected:
                self.wrong.append(f"expected {expected}, got {got}")

    def odd(self, kind, code, details, allowed):
        with self.lock:
            self.bad[f"{kind} {code}"] += 1
            if code not in allowed:
                self.bad_failed.append(f"{kind}: expected {sorted(allowed)}, got {code}: {details}")

    def gap(self, begin, end):
        """The longest time without a good answer between two moments."""
        moments = sorted(t for t in self.ended if begin <= t <= end)
        moments = [begin, *moments, end]
        return max(b - a for a, b in zip(moments, moments[1:]))


def ended(call):
    """(code, details) of a future that is done; a cancelled one says so by an exception."""
    try:
        return call.code().name, call.details() or ""
    except (grpc.FutureCancelledError, AttributeError):
        return "CANCELLED", ""


def capacity(address, cases, seconds=CALIBRATE_SECONDS, threads=6):
    """Answers per second of clients that send the next request when they have the answer."""
    stop, done = time.monotonic() + seconds, []

    def run(seed):
        dice = random.Random(seed)
        with channel_to(address) as channel:
            call = channel.unary_unary(INFER)
            while time.monotonic() < stop:
                call(dice.choice(cases).request, timeout=WAIT_SECONDS)
                done.append(1)
    clients = [threading.Thread(target=run, args=(i,)) for i in range(threads)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return len(done) / seconds


class Part(threading.Thread):
    """A thread that repeats step() until stop(); what it raises is raised by stop()."""

    def __init__(self):
        super().__init__()
        self.over, self.error = threading.Event(), None

    def run(self):
        try:
            while not self.over.is_set():
                self.step()
        except BaseException as error:  # noqa: B902 - handed to stop()
            self.error = error

    def stop(self):
        self.over.set()
        self.join()
        if self.error:
            raise self.error


class Good(Part):
    """Requests at random moments, `rate` a second on average, over four connections."""

    def __init__(self, address, cases, rate, tally):
        super().__init__()
        self.cases, self.rate, self.tally = cases, rate, tally
        self.dice = random.Random(1)
        self.channels = [channel_to(address) for _ in range(4)]
        self.calls = [c.unary_unary(INFER) for c in self.channels]
        self.room = threading.Semaphore(OUTSTANDING_MAX)
        self.next, self.sent, self.held_back = time.monotonic(), 0, 0

    def step(self):
        self.next += self.dice.expovariate(self.rate)
        time.sleep(max(0, self.next - time.monotonic()))  # sleep: until the next arrival
        if not self.room.acquire(blocking=False):
            self.held_back += 1
            self.room.acquire()
        case, began = self.dice.choice(self.cases), time.monotonic()
        future = self.calls[self.sent % len(self.calls)].future(case.request, timeout=WAIT_SECONDS)
        self.sent += 1
        future.add_done_callback(lambda call: self.on_done(call, case, began))

    def on_done(self, call, case, began):
        code, details = ended(call)
        got = digest(call.result()) if code == "OK" else None
        self.tally.good(began, code, details, got, case.expected)
        self.room.release()

    def stop(self):
        super().stop()
        for _ in range(OUTSTANDING_MAX):  # every answer is waited for
            self.room.acquire()
        for channel in self.channels:
            channel.close()


class Bad(Part):
    """One bad request after the other, of every kind in turn."""

    def __init__(self, address, model, channels, giant, tally):
        super().__init__()
        self.address, self.tally, self.dice, self.turn = address, tally, random.Random(2), 0
        self.channel = channel_to(address)
        self.call = self.channel.unary_unary(INFER)
        coords, _ = random_grid(7, 500)
        feats = np.ones((500, channels), np.float32)
        twice = coords.copy()
        twice[400] = twice[20]
        many, _ = random_grid(8, giant)

        def pack(c, f, **options):
            return messages.pack_infer(model, c, f, options)
        self.plain = pack(coords, feats)
        self.hurried = pack(coords, feats, queue_timeout_us=1)
        self.giant = pack(many, np.ones((giant, channels), np.float32))
        self.empty = pack(coords[:0], feats[:0])
        self.twice = pack(twice, feats)
        self.kinds = [self.expired, self.late, self.cancelled, self.vanished, self.too_large,
                      self.nothing, self.duplicate]

    def step(self):
        self.kinds[self.turn % len(self.kinds)]()
        self.turn += 1
        self.over.wait(BAD_EVERY_SECONDS)

    def ask(self, kind, request, allowed, timeout=WAIT_SECONDS, word=""):
        try:
            data = self.call(request, timeout=timeout)
            self.tally.odd(kind, "OK", "", allowed)
            return data
        except grpc.RpcError as error:
            said = word in error.details()
            self.tally.odd(kind, error.code().name if said else "WRONG_WORDS", error.details(),
                           allowed)
            return None

    def expired(self):
        self.ask("expired", self.plain, {"DEADLINE_EXCEEDED", "OK"},
                 timeout=self.dice.uniform(0.0002, 0.005))

    def late(self):
        self.ask("late", self.hurried, {"UNAVAILABLE", "DEADLINE_EXCEEDED", "OK"})

    def cancelled(self):
        future = self.call.future(self.plain, timeout=WAIT_SECONDS)
        time.sleep(self.dice.uniform(0, 0.005))  # sleep: at random
        future.cancel()
        self.tally.odd("cancelled", *ended(future), {"CANCELLED", "OK"})

    def vanished(self):
        """The connection closes while the request is being sent, waits or runs."""
        channel = channel_to(self.address)
        future = channel.unary_unary(INFER).future(self.plain, timeout=WAIT_SECONDS)
        time.sleep(self.dice.uniform(0, 0.02))  # sleep: at random
        channel.close()
        self.tally.odd("vanished", *ended(future), {"CANCELLED", "OK"})

    def too_large(self):
        self.ask("giant", self.giant, {"INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"})

    def nothing(self):
        data = self.ask("empty", self.empty, {"OK"})
        if data is not None and any(len(v) for v in messages.read_infer(data).values()):
            self.tally.odd("empty", "ROWS", "an answer with rows", {"OK"})

    def duplicate(self):
        self.ask("duplicate", self.twice, {"INVALID_ARGUMENT"}, word="the same voxel")

    def stop(self):
        super().stop()
        self.channel.close()


class Killer(Part):
    """kill -9 of a worker that runs, any of them, every so often; but not before the requests of
    the last kill have ended: on a slow machine both kills would count as their cause."""

    def __init__(self, workers, every, kills_max, good, bad):
        super().__init__()
        self.workers, self.every, self.kills_max = workers, every, kills_max
        self.good, self.bad, self.sent, self.turn = good, bad, 0, 0
        self.dice, self.kills, self.killed_at = random.Random(3), 0, []

    def has_settled(self):
        return len(self.good.tally.ended) >= self.sent and self.bad.turn >= self.turn + 2

    def step(self):
        self.over.wait(self.every)
        while not self.over.is_set() and not self.has_settled():
            self.over.wait(0.02)
        running = self.workers()
        if self.over.is_set() or not running or self.kills >= self.kills_max:
            return
        self.sent, self.turn = self.good.sent + 1, self.bad.turn
        try:
            os.kill(self.dice.choice(running), signal.SIGKILL)
        except ProcessLookupError:
            return
        self.killed_at.append(time.monotonic())
        self.kills += 1

    def has_more_to_do(self):
        return self.kills < self.kills_max and not any(
            part.error for part in (self, self.good, self.bad))


def make_cases(address, model, channels, voxels_max):
    """Sizes from a few voxels to `voxels_max`, two of each."""
    with channel_to(address) as channel:
        call = channel.unary_unary(INFER)
        cases = []
        for seed in range(16):
            voxels = max(1, voxels_max >> (seed // 2))
            coords, _ = random_grid(seed, voxels)
            feats = np.random.default_rng(seed).normal(size=(voxels, channels))
            cases.append(Case(call, model, coords, feats.astype(np.float32)))
        return cases


def run(address, workers, options):
    """The whole bench against a server that is up; a dict of numbers."""
    model, channels = options["model"], options["channels"]
    cases = make_cases(address, model, channels, options["voxels"])
    rate = capacity(address, cases) * options["load"]
    tally = Tally()
    good = Good(address, cases, rate, tally)
    bad = Bad(address, model, channels, options["giant"], tally)
    killer = Killer(workers, options["every"], int(options["seconds"] / options["every"]), good,
                    bad)
    began = time.monotonic()
    for part in (good, bad, killer):
        part.start()
    time.sleep(options["seconds"] + options["every"] / 2)  # sleep: the length of the bench
    while killer.has_more_to_do() or (bad.turn < 2 * len(bad.kinds) and not bad.error):
        time.sleep(0.05)  # sleep: a busy machine takes longer for as many answers
    for part in (killer, bad, good):
        part.stop()
    latencies = sorted(tally.latencies)

    def percentile(p):
        return round(latencies[min(len(latencies) - 1, int(p / 100 * len(latencies)))] * 1e3, 1)
    return {"seconds": round(time.monotonic() - began, 1), "rate": round(rate, 1),
            "load": options["load"], "sent": good.sent, "answered": len(latencies),
            "held_back": good.held_back, "failed": len(tally.failed), "wrong": len(tally.wrong),
            "kills": killer.kills, "kills_wanted": killer.kills_max,
            "p50_ms": percentile(50), "p99_ms": percentile(99), "max_ms": percentile(100),
            "longest_gap_ms": round(tally.gap(began, began + options["seconds"]) * 1e3, 1),
            "bad": dict(sorted(tally.bad.items())), "bad_failed": len(tally.bad_failed),
            "examples": (tally.failed + tally.wrong + tally.bad_failed)[:5]}


def passed(numbers):
    return (not numbers["failed"] and not numbers["wrong"] and not numbers["bad_failed"]
            and numbers["sent"] == numbers["answered"] > 0
            and numbers["kills"] == numbers["kills_wanted"] > 0)


def write_model(repository, voxels):
    """Enough work for the device, so that the clients' Python is not the bottleneck."""
    model = ConvModel(ci=16, hidden=64, co=8)
    model.network["limits"] = {"voxels_max": voxels}
    model.network["warmup"] = [min(voxels, 1000)]
    model.write(repository, MODEL)
    return model


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", help="a running voxeld; needs --pid of its front and --model")
    parser.add_argument("--pid", type=int)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--device", default="cpu,cpu")
    parser.add_argument("--threads", default="1", help="of each CPU worker")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--every", type=float, default=5, help="seconds between kills")
    parser.add_argument("--load", type=float, default=0.5, help="of what the server can do")
    parser.add_argument("--voxels", type=int, default=4000, help="of the largest good request")
    parser.add_argument("--giant", type=int, default=20001, help="voxels; more than the limit")
    given = parser.parse_args()
    if given.address and not given.pid:
        parser.error("--address needs --pid: whose workers are to be killed")
    return given


def main():
    given = arguments()
    options = vars(given)
    if given.address:
        with Client(given.address) as client:
            inputs = client.model_metadata(given.model).inputs
        options["channels"] = next(t.shape[-1] for t in inputs if t.datatype != "INT32")
        numbers = run(given.address, lambda: workers_of(given.pid), options)
    else:
        with tempfile.TemporaryDirectory() as folder:
            work = pathlib.Path(folder)
            options["channels"] = write_model(work / "repository", given.giant - 1).ci
            with Daemon(work / "repository", work, "--device", given.device, "--threads",
                        given.threads) as daemon:
                numbers = run(daemon.grpc, daemon.workers, options)
    print(json.dumps({"bench": "failover", "device": given.device, "passed": passed(numbers),
                      **numbers}), flush=True)
    sys.exit(0 if passed(numbers) else 1)


if __name__ == "__main__":
    main()
