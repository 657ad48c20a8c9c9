#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The daemon's numbers and their lower bounds, each pair measured in one run on one machine.

    export VX_BIN=build/release/bin
    build/venv/bin/python tests/bench/server_numbers.py [tiny large start memory]

tiny    200 voxels, C 4, one layer, one client: p50 without the compute, and p99, against a bare
        gRPC C core echo of the same sizes.
large   16 MB request: the rate at which the front receives and copies, against the echo.
start   from exec to the ready file, demo model.
memory  resident memory of front and worker after 10,000 and 100,000 small requests.

Prints one line of JSON per number and a verdict against its target; exit code 1 when one is missed.
"""
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "clients" / "python")]

from model_files import ConvModel  # noqa: E402
from voxeld import Client  # noqa: E402
from voxeld_process import Daemon  # noqa: E402

BIN = pathlib.Path(os.environ["VX_BIN"])
os.environ.setdefault("VOXELD", str(BIN / "voxeld"))
REPEATS = 5  # runs in turn, daemon and echo; medians are compared
missed = []


def report(name, target, met, **numbers):
    print(json.dumps({"number": name, "target": target, "met": bool(met), **numbers}), flush=True)
    if not met:
        missed.append(name)


class OneLayer(ConvModel):
    """feats -> subm_conv 3^3 -> out."""

    def __init__(self, channels):
        super().__init__(ci=channels, hidden=channels, co=channels)
        self.network["layers"] = self.network["layers"][:1]
        self.network["outputs"] = [{"name": "out", "layer": "conv"}]
        del self.network["limits"]  # what fits the worker
        self.tensors = {k: v for k, v in self.tensors.items() if k.startswith("conv")}


class Echo:
    """The lower bound: a bare gRPC C core server that copies a body once and answers zero-copy."""

    def __enter__(self):
        self.process = subprocess.Popen([BIN / "bench_echo", "serve", "--port", "0"],
                                        stdout=subprocess.PIPE, text=True)
        self.port = re.search(r"\d+", self.process.stdout.readline())[0]
        return self

    def __exit__(self, *exc):
        self.process.terminate()
        self.process.wait(20)

    def load(self, bytes_in, bytes_out, requests):
        done = subprocess.run(
            [BIN / "bench_echo", "load", "--port", self.port, "--bytes-in", str(bytes_in),
             "--bytes-out", str(bytes_out), "--requests", str(requests), "--concurrency", "1",
             "--json"], capture_output=True, text=True, check=True)
        return json.loads(done.stdout.strip().splitlines()[-1])


def bench(daemon, model, voxels, channels, requests, concurrency=1):
    done = subprocess.run(
        [BIN / "voxel", "bench", "--server", daemon.grpc, "--model", model, "--voxels", str(voxels),
         "--channels", str(channels), "--requests", str(requests), "-c", str(concurrency),
         "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.strip().splitlines()[-1])


def stages(client, model):
    """Summed nanoseconds in the device's stages, and requests, so far."""
    row = {r["name"]: r for r in client.statistics()}[model]
    ns = sum(row[k][1] for k in ("compute_input", "compute_infer", "compute_output"))
    return ns, row["success"][0]


def tiny(work, repository):
    voxels, channels = 200, 4
    bytes_in, bytes_out = voxels * (16 + 4 * channels), voxels * 4 * channels
    ours, floor, p99, compute = [], [], [], []
    with Daemon(repository, work) as daemon, Client(daemon.grpc) as client, Echo() as echo:
        bench(daemon, "one4", voxels, channels, 500)
        echo.load(bytes_in, bytes_out, 500)
        for _ in range(REPEATS):
            before = stages(client, "one4")
            got = bench(daemon, "one4", voxels, channels, 4000)
            after = stages(client, "one4")
            compute.append((after[0] - before[0]) / (after[1] - before[1]) / 1e3)
            ours.append(got["p50_us"])
            p99.append(got["p99_us"])
            floor.append(echo.load(bytes_in, bytes_out, 4000)["p50_us"])
    p50, c, f, tail = map(statistics.median, (ours, compute, floor, p99))
    report("tiny p50 without compute / echo p50", "<= 3", (p50 - c) <= 3 * f,
           ratio=round((p50 - c) / f, 2), p50_us=p50, compute_us=round(c, 1), echo_p50_us=f)
    report("tiny p99 / p50", "<= 3", tail <= 3 * p50, ratio=round(tail / p50, 2), p99_us=tail,
           p50_us=p50)


def large(work, repository):
    """Receive-and-copy: from the headers to the tensors in their slots, from the access log."""
    voxels, channels = 200000, 16
    bytes_in = voxels * (16 + 4 * channels)
    ours, floor = [], []
    with Daemon(repository, work, "--access-log") as daemon, Echo() as echo:
        bench(daemon, "one16", voxels, channels, 3)
        echo.load(bytes_in, 16, 5)
        for _ in range(REPEATS):
            seen = len(daemon.log())
            bench(daemon, "one16", voxels, channels, 10)
            receive = [int(us) for us in re.findall(r"receive_us=(\d+)", daemon.log()[seen:])]
            receive = receive[-10:]  # after the bench program's own warm-up
            ours.append(bytes_in / statistics.median(receive) / 1e3)
            floor.append(bytes_in / echo.load(bytes_in, 16, 30)["p50_us"] / 1e3)
    rate, echo_rate = statistics.median(ours), statistics.median(floor)
    report("16 MB receive and copy / echo", ">= 0.8", rate >= 0.8 * echo_rate,
           ratio=round(rate / echo_rate, 2), gb_s=round(rate, 2), echo_gb_s=round(echo_rate, 2),
           bytes=bytes_in)


def start(work, repository):
    seconds = []
    for _ in range(REPEATS):
        with Daemon(ROOT / "deploy" / "demo" / "repository", work) as daemon:
            seconds.append(daemon.seconds_to_ready)
    median = statistics.median(seconds)
    report("start to ready, demo model", "<= 1 s", median <= 1, seconds=round(median, 3))


def memory(work, repository):
    with Daemon(repository, work) as daemon:
        pids = {"front": daemon.process.pid, "worker": daemon.workers()[0]}
        bench(daemon, "one4", 200, 4, 10000, 4)
        early = {name: daemon.rss_bytes(pid) for name, pid in pids.items()}
        bench(daemon, "one4", 200, 4, 90000, 4)
        late = {name: daemon.rss_bytes(pid) for name, pid in pids.items()}
    for name in pids:
        report(f"{name}'s RSS after 100,000 / after 10,000 requests", "<= 1.02",
               late[name] <= 1.02 * early[name], ratio=round(late[name] / early[name], 4),
               early_mb=round(early[name] / 1e6, 1), late_mb=round(late[name] / 1e6, 1))


PARTS = {"tiny": tiny, "large": large, "start": start, "memory": memory}


def main():
    wanted = sys.argv[1:] or list(PARTS)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        repository = work / "repository"
        OneLayer(4).write(repository, "one4")
        OneLayer(16).write(repository, "one16")
        for part in wanted:
            PARTS[part](work, repository)
    if missed:
        sys.exit(f"missed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
