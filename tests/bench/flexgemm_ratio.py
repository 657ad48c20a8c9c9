#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""flexgemm_ratio - our convolutions and maps beside FlexGEMM's, in one run on one GPU.

    FLEXGEMM=DIR flexgemm_ratio.py --tools voxeld-tools --peer flexgemm_conv.py
                                   [--cache DIR] [--table FILE] [--peer-log FILE]

FLEXGEMM is a working installation of it (its extension built, its H100 tile list in force);
`flexgemm_conv.py` prints one line per shape: RES C N neighbours map conv conv-in-a-graph.
Ours are the medians of `voxeld-tools bench`, in a graph, cache as the run before left it.
A ratio above 1 means that ours is faster.  Maps: from coordinates to all that the
convolution reads, sorted orders included.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

SHELLS = ["8:1024", "16:1024", "32:1024", "64:1024", "128:512", "256:256", "512:128", "1024:64"]
MORE = ["256:64", "512:32", "128:128"]


def ours(arguments, what):
    with tempfile.NamedTemporaryFile(suffix=".json") as rows:
        command = [arguments.tools, "bench", "--list", what, "--runs", "20"]
        command += ["--shape", ",".join(SHELLS + MORE), "--json", rows.name]
        for flag in ("cache", "table"):
            if getattr(arguments, flag):
                command += [f"--{flag}", getattr(arguments, flag)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found = [json.loads(line) for line in open(rows.name, encoding="utf-8")]
    return {row["shape"]: row for row in found if row["state"] == "graph warm" and row["shape"]}


def theirs(arguments):
    if arguments.peer_log:
        text = open(arguments.peer_log, encoding="utf-8").read()
    else:
        command = [sys.executable, arguments.peer, *SHELLS, *MORE]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) > 6 and words[0].isdigit():
            found[f"{words[0]}:{words[1]}"] = (float(words[4]), float(words[6]))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", required=True)
    parser.add_argument("--peer")
    parser.add_argument("--peer-log")
    parser.add_argument("--cache")
    parser.add_argument("--table")
    arguments = parser.parse_args()
    if not arguments.peer_log and (not arguments.peer or not os.environ.get("FLEXGEMM")):
        parser.error("expected --peer and FLEXGEMM, or --peer-log of a run on this machine")
    peer = theirs(arguments)
    convolutions, maps = ours(arguments, "shells"), ours(arguments, "map")
    print("shape        N  map us  theirs ratio   conv us   theirs ratio  tile")
    ratios = []
    for shape in SHELLS + MORE:
        if shape not in peer:
            continue
        map_us, conv_us = (peer[shape][0] * 1e3, peer[shape][1] * 1e3)
        ours_map, ours_conv = maps[shape]["median_ns"] / 1e3, convolutions[shape]["median_ns"] / 1e3
        ratio = conv_us / ours_conv
        if shape in SHELLS:
            ratios.append(ratio)
        print(
            f"{shape:8} {maps[shape]['n']:8} {ours_map:7.1f} {map_us:7.1f} "
            f"{map_us / ours_map:5.2f} {ours_conv:9.1f} {conv_us:8.1f} {ratio:5.2f}  "
            f"{convolutions[shape]['algorithm']} {convolutions[shape]['tile']}"
        )
    geomean = math.exp(sum(math.log(ratio) for ratio in ratios) / len(ratios))
    print(f"{len(ratios)} shells: geomean {geomean:.3f}, least {min(ratios):.3f}")


if __name__ == "__main__":
    main()
