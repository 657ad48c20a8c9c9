# SPDX-License-Identifier: Apache-2.0
"""cpu_conv - the CPU device's convolution against gather, multiply, scatter in numpy.

    python tests/bench/cpu_conv.py BENCH_CPU_CONV [--res 64] [--channels 64] [--rounds 7]
                                   [--least 3]

The same shell, the same channels, the same cores.  Ours and the peer alternate, so that other
load on the machine affects both.  Prints one line of JSON; `ratio` is the peer's median time
over ours.  PyTorch is a second peer where it is installed.
"""

import argparse
import json
import os
import statistics
import subprocess
import time

import numpy as np


def shell(res):
    """Voxels of a res^3 grid at most res/2 and at least res/2 - 1.25 from its centre."""
    grid = np.arange(res) - res / 2 + 0.5
    squares = grid**2
    distance = np.sqrt(squares[:, None, None] + squares[None, :, None] + squares[None, None, :])
    return np.argwhere((distance <= res / 2) & (distance >= res / 2 - 1.25))


def pairs_of(coords):
    """For each of the 27 offsets: rows of the inputs and rows of the outputs."""
    size = int(coords.max()) + 3
    keys = ((coords[:, 0] + 1) * size + coords[:, 1] + 1) * size + coords[:, 2] + 1
    order = np.argsort(keys)
    found = []
    for offset in np.ndindex(3, 3, 3):
        wanted = keys + ((offset[0] - 1) * size + offset[1] - 1) * size + offset[2] - 1
        place = np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)
        hit = keys[order[place]] == wanted
        found.append((order[place[hit]], np.flatnonzero(hit)))
    return found


def convolve_numpy(features, weight, pairs):
    out = np.zeros((len(features), weight.shape[2]), np.float32)
    for offset, (source, target) in enumerate(pairs):
        out[target] += features[source] @ weight[offset]  # no target twice in one offset
    return np.maximum(out, 0, out=out)


def torch_peer(features, weight, pairs, threads):
    try:
        import torch  # pylint: disable=import-outside-toplevel
    except ImportError:
        return None
    torch.set_num_threads(threads)
    x, w = torch.from_numpy(features), torch.from_numpy(weight)
    rows = [(torch.from_numpy(source), torch.from_numpy(target)) for source, target in pairs]

    def convolve():
        with torch.inference_mode():
            out = torch.zeros(len(x), w.shape[2])
            for offset, (source, target) in enumerate(rows):
                out.index_add_(0, target, x[source] @ w[offset])
            return out.relu_()

    return convolve


def milliseconds(function, times):
    taken = []
    for _ in range(times):
        begin = time.perf_counter()
        function()
        taken.append((time.perf_counter() - begin) * 1e3)
    return taken


def ours(options, threads):
    words = [options.program, "--res", options.res, "--channels", options.channels]
    words += ["--threads", threads, "--runs", 15]
    done = subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("program", help="bench_cpu_conv of a release build")
    parser.add_argument("--res", type=int, default=64)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--least", type=float, default=0, help="fail below this ratio")
    options = parser.parse_args()

    threads = len(os.sched_getaffinity(0))
    random = np.random.default_rng(1)
    coords = shell(options.res)
    pairs = pairs_of(coords)
    neighbors = sum(len(source) for source, _ in pairs) / len(coords)
    features = random.uniform(-1, 1, (len(coords), options.channels)).astype(np.float32)
    weight = random.uniform(-1, 1, (27, options.channels, options.channels)).astype(np.float32)
    peers = {"numpy": lambda: convolve_numpy(features, weight, pairs)}
    torch = torch_peer(features, weight, pairs, threads)
    if torch:
        assert np.allclose(torch().numpy(), peers["numpy"](), atol=1e-3)
        peers["torch"] = torch

    times = {name: [] for name in ("ours", *peers)}
    reports = []
    for _ in range(options.rounds):
        reports.append(ours(options, threads))
        times["ours"].append(reports[-1]["conv_ms"])
        for name, peer in peers.items():
            peer()
            times[name] += milliseconds(peer, 5)
    assert reports[0]["n"] == len(coords)
    assert abs(reports[0]["neighbors"] - neighbors) < 0.01
    result = {"n": len(coords), "neighbors": round(neighbors, 2), "channels": options.channels}
    result["device"] = reports[0]["device"]
    result["map_ms"] = statistics.median(report["map_ms"] for report in reports)
    flops = 2 * neighbors * len(coords) * options.channels**2
    for name, taken in times.items():
        taken.sort()
        median = statistics.median(taken)
        result[f"{name}_ms"] = round(median, 3)
        result[f"{name}_ms_p10"] = round(taken[len(taken) // 10], 3)
        result[f"{name}_ms_p90"] = round(taken[len(taken) * 9 // 10], 3)
        result[f"{name}_gflops"] = round(flops / median / 1e6, 1)
    for name in peers:
        result[f"ratio_{name}"] = round(result[f"{name}_ms"] / result["ours_ms"], 2)
    result["ratio"] = min(result[f"ratio_{name}"] for name in peers)
    print(json.dumps(result))
    if result["ratio"] < options.least:
        raise SystemExit(f"cpu_conv: expected a ratio of at least {options.least}")


if __name__ == "__main__":
    main()
