# SPDX-License-Identifier: Apache-2.0
"""What HAProxy costs, and TLS on both of its sides: `voxel bench` against one replica, directly and
through it, and through it with TLS to another, in turn.

    VOXELD=... VOXEL=... build/venv/bin/python tests/deploy/measure_haproxy.py

Prints a row of both tables in deploy/haproxy/README.md for each size.  Not a test.
"""

import contextlib
import json
import os
import pathlib
import statistics
import tempfile

from balancer_tls import Authorities, fill, replica as replica_tls
from deployed import run
from haproxy_process import CONFIG_TLS, HAProxy, need
from model_files import ConvModel
from replica_process import Replica, address

ROUNDS = 3
SECONDS = "2"
SIZES = ((100, 1), (848, 1), (848, 8), (30000, 2))


def bench(proxy, voxels, concurrency):
    """Of what has an address `grpc` and, for TLS, `tls`."""
    tls = getattr(proxy, "tls", None)
    answer = run(
        *(os.environ["VOXEL"], "bench", "--server", proxy.grpc, "--model", "conv", "--json"),
        *("--voxels", voxels, "--concurrency", concurrency, "--duration", SECONDS),
        *(("--tls-ca", tls.ca, "--tls-name", tls.name) if tls else ()),
    )
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def haproxy(folder, replica, port, *config, tls=None, **environment):
    folder.mkdir()
    where = {"VOXELD_LISTEN": address(port), "VOXELD_A": replica.grpc, "VOXELD_B": replica.grpc}
    return HAProxy(need(), folder, *config, tls=tls, **where, **environment)


def main():
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = pathlib.Path(name)
        model = ConvModel(ci=4)
        model.network["warmup"] = [10]
        model.write(folder / "repository")
        signed = Authorities(folder / "authorities")
        files = fill(folder / "tls", signed)
        start = stack.enter_context
        plain = start(Replica(folder / "repository", folder, "a", address(21802)))
        secure = replica_tls(folder / "repository", folder, "a", signed.voxeld, signed.inside.cert)
        start(secure)
        environment = {"VOXELD_TLS": str(files), "tls": signed.trusting()}
        ways = {
            "direct": plain,
            "haproxy": start(haproxy(folder / "plain", plain, 21801)),
            "tls": start(haproxy(folder / "secure", secure, 21804, CONFIG_TLS, **environment)),
        }
        for voxels, concurrency in SIZES:
            found = {way: [] for way in ways}
            for _ in range(ROUNDS):
                for way, proxy in ways.items():
                    found[way].append(bench(proxy, voxels, concurrency))
            show(voxels, concurrency, {way: found[way] for way in ("direct", "haproxy")})
            show(voxels, concurrency, {way: found[way] for way in ("haproxy", "tls")}, True)


def show(voxels, concurrency, found, ratio=False):
    """A row; with the quotient of the two rates, where it is asked for."""
    cells = [f"{voxels:,}", str(concurrency)]
    for key in ("requests_per_s", "p50_us", "p99_us"):
        numbers = [statistics.median(row[key] for row in rows) for rows in found.values()]
        cells += [f"{number:,.0f}" for number in numbers]
        if ratio and key == "requests_per_s":
            cells.append(f"{numbers[1] / numbers[0]:.2f}")
    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
