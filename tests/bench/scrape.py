#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a scrape costs the loop: /metrics and the page of a daemon with many models.

    export VOXELD=build/release/bin/voxeld
    build/venv/bin/python tests/bench/scrape.py                 100 models, one CPU worker
    build/venv/bin/python tests/bench/scrape.py --models 512 --rounds 1000

Prints for each path its bytes, the loop's CPU time for one answer (the kernel's account of the
front's main thread: other programs do not count), and the wall time at the client.  Exit code 1
when an answer is wrong: a model is missing in it, or a series of /metrics comes twice.
"""
import argparse
import http.client
import json
import os
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "e2e"), str(ROOT / "clients" / "python")]

from model_files import ConvModel  # noqa: E402
from voxeld_process import PATIENCE, Daemon  # noqa: E402

WARM = 20  # rounds that are not measured


def write_models(repository, count):
    model = ConvModel()
    model.network["limits"]["voxels_max"] = 100
    model.network["warmup"] = [10]
    names = [f"model-{i:03}" for i in range(count)]
    for name in names:
        model.write(repository, name)
    return names


def loop_ns(daemon):
    """CPU time of the front's main thread, which is the loop."""
    pid = daemon.process.pid
    return int(pathlib.Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0])


def named(path, text):
    """The models of an answer."""
    if path == "/status.json":
        return {one["name"] for one in json.loads(text)["models"]}
    if path == "/metrics":
        series = [line.rsplit(" ", 1)[0] for line in text.splitlines() if line[0] != "#"]
        assert len(series) == len(set(series)), "a series comes twice"
        return {one.split('"')[1] for one in series if one.startswith("voxeld_model_ready{")}
    return {one.split(" ")[0] for one in text.replace("<tr><td>", "\n").splitlines()
            if one.startswith("model-")}


def measure(daemon, path, rounds, names):
    client = http.client.HTTPConnection(daemon.http, timeout=PATIENCE)
    walls = []
    for i in range(WARM + rounds):
        if i == WARM:
            before = loop_ns(daemon)
        began = time.perf_counter()
        client.request("GET", path)
        reply = client.getresponse()
        text = reply.read()
        walls.append(time.perf_counter() - began)
    cpu = (loop_ns(daemon) - before) / rounds
    assert reply.status == 200 and named(path, text.decode()) == set(names), path
    walls = sorted(walls[WARM:])
    return {"path": path, "bytes": len(text), "loop_ms": round(cpu / 1e6, 3),
            "wall_ms_p50": round(walls[rounds // 2] * 1e3, 3),
            "wall_ms_p99": round(walls[min(rounds - 1, rounds * 99 // 100)] * 1e3, 3)}


def main():
    parser = argparse.ArgumentParser(description="What a scrape costs the loop.")
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=300)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        names = write_models(work / "models", asked.models)
        with Daemon(work / "models", work, "--threads", "1", "--device-bytes", "64M",
                    "--cache-bytes", "32M") as daemon:
            for path in ("/metrics", "/status.json", "/"):
                print(json.dumps({"models": asked.models, **measure(daemon, path, asked.rounds,
                                                                    names)}), flush=True)


if __name__ == "__main__":
    main()
