# SPDX-License-Identifier: Apache-2.0
"""What HAProxy costs: `voxel bench` against one replica, directly and through it, in turn.

    VOXELD=... VOXEL=... build/venv/bin/python tests/deploy/measure_haproxy.py

Prints a row of the table in deploy/haproxy/README.md for each size.  Not a test.
"""

import json
import os
import pathlib
import statistics
import tempfile

from deployed import run
from haproxy_process import HAProxy, need
from model_files import ConvModel
from replica_process import Replica, address

ROUNDS = 3
SECONDS = "2"
SIZES = ((100, 1), (848, 1), (848, 8), (30000, 2))


def bench(where, voxels, concurrency):
    answer = run(
        *(os.environ["VOXEL"], "bench", "--server", where, "--model", "conv", "--json"),
        *("--voxels", voxels, "--concurrency", concurrency, "--duration", SECONDS),
    )
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = ConvModel(ci=4)
        model.network["warmup"] = [10]
        model.write(folder / "repository")
        replica = Replica(folder / "repository", folder, "a", address(21802))
        with replica, HAProxy(
            need(), folder, VOXELD_A=replica.grpc, VOXELD_B=replica.grpc
        ) as proxy:
            for voxels, concurrency in SIZES:
                found = {"direct": [], "haproxy": []}
                for _ in range(ROUNDS):
                    found["direct"].append(bench(replica.grpc, voxels, concurrency))
                    found["haproxy"].append(bench(proxy.grpc, voxels, concurrency))
                show(voxels, concurrency, found)


def show(voxels, concurrency, found):
    cells = [f"{voxels:,}", str(concurrency)]
    for key in ("requests_per_s", "p50_us", "p99_us"):
        for rows in found.values():
            cells.append(f"{statistics.median(row[key] for row in rows):,.0f}")
    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
