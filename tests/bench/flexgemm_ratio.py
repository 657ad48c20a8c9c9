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

    FLEXGEMM=DIR flexgemm_ratio.py --tools voxeld-tools --clouds clouds,scan.npy:0.1
                                   [--channels 32,64,128] [--spconv 64] [--layers 8]

The same on clouds, beside FlexGEMM and, for the channels of --spconv, spconv
(`cloud_peers.py` times both); infer is the map and then L convolutions.
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


def our_clouds(arguments, folder):
    """{(cloud, channels): {n, map, conv, infer}}; the clouds are saved in the folder."""
    with tempfile.NamedTemporaryFile(suffix=".json") as rows:
        command = [arguments.tools, "bench", "--list", "clouds", "--cloud", arguments.clouds,
                   "--channels", arguments.channels, "--layers", arguments.layers,
                   "--levels", arguments.levels, "--rows", arguments.rows,
                   "--runs", "20", "--save", folder, "--json", rows.name]
        for flag in ("cache", "table"):
            if getattr(arguments, flag):
                command += [f"--{flag}", getattr(arguments, flag)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found, maps = {}, {}
        for row in map(json.loads, open(rows.name, encoding="utf-8")):
            words = row["shape"].replace("/", "-").split(":")
            if row["state"] != "graph warm" or row["what"] not in ("map", "conv", "infer"):
                continue
            if row["what"] == "map":
                maps[words[0]] = row["median_ns"] / 1e3
                continue
            known = {"n": row["n"], "pairs": row["pairs"]}
            cell = found.setdefault((words[0], int(words[1])), known)
            cell[row["what"]] = row["median_ns"] / 1e3
            cell["ceiling"] = row["executed_tflops"] / row["ceiling_tflops"]
    for (cloud, _), cell in found.items():
        cell["map"] = maps[cloud]
    return found


def peer_clouds(peer, folder, channels, layers, only=()):
    """The same of a peer.  spconv gets a process for each cloud and number of channels."""
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cloud_peers.py")
    command = [sys.executable, script, peer, folder, "--layers", layers, "--channels"]
    runs = [[*command, channels]]
    if peer == "spconv":
        runs = [[*command, c, "--only", name] for c in channels.split(",") for name in only]
    text = "".join(subprocess.run(run, check=True, capture_output=True, text=True).stdout
                   for run in runs)
    rows = (json.loads(line) for line in text.splitlines() if line.startswith("{"))
    return {(row["cloud"], row["channels"]): row for row in rows}


def compare_clouds(arguments):
    with tempfile.TemporaryDirectory() as folder:
        ours_of = our_clouds(arguments, folder)
        flex = peer_clouds("flexgemm", folder, arguments.channels, arguments.layers)
        names = sorted({cloud for cloud, _ in ours_of})
        spconv = peer_clouds("spconv", folder, arguments.spconv, arguments.layers,
                             names) if arguments.spconv else {}
    print("cloud:channels         N  pairs  map us  flexgemm  spconv   conv us  flexgemm  spconv"
          "   infer us  flexgemm  spconv  %vendor")
    ratios = {"map": [], "conv": [], "infer": []}
    for key, cell in sorted(ours_of.items()):
        peers = [flex.get(key), spconv.get(key)]
        line = f"{key[0]:>14}:{key[1]:<4} {cell['n']:8} {cell['pairs'] / cell['n']:6.2f}"
        for part in ("map", "conv", "infer"):
            line += f" {cell[part]:9.1f}" + "".join(
                f"  x{peer[part] / cell[part]:5.2f}" if peer else "       -" for peer in peers)
            if peers[0]:
                ratios[part].append(peers[0][part] / cell[part])
        print(f"{line} {100 * cell['ceiling']:8.1f}")
    for part, found in ratios.items():
        if found:
            geomean = math.exp(sum(map(math.log, found)) / len(found))
            print(f"{part}: {len(found)} cells: FlexGEMM / ours geomean {geomean:.3f}, "
                  f"least {min(found):.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", required=True)
    parser.add_argument("--peer")
    parser.add_argument("--peer-log")
    parser.add_argument("--cache")
    parser.add_argument("--table")
    parser.add_argument("--clouds", help="as bench --cloud takes them")
    parser.add_argument("--channels", default="32,64,128")
    parser.add_argument("--levels", default="1")
    parser.add_argument("--layers", default="8")
    parser.add_argument("--rows", default="given")
    parser.add_argument("--spconv", help="channels for which spconv is timed as well")
    arguments = parser.parse_args()
    if arguments.clouds:
        compare_clouds(arguments)
        return
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
