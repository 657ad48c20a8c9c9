#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes models for benches into a repository: stacks of 3^3 convolutions, or one linear layer.

    tests/bench/bench_model.py REPOSITORY c64x8 c64x4 c32x2 c64x0
    tests/bench/bench_model.py REPOSITORY c64x8 --name alone --batching '{"requests_max": 1}'

cCxL is L submanifold convolutions of C channels with ReLU behind each, feats FP16 in and out;
L = 0 is one linear layer: almost no work, to measure the cost of everything else.  Weights are
random with a fixed seed, scaled so that values neither vanish nor grow.  Needs python3 alone.
"""
import argparse
import array
import json
import math
import pathlib
import random
import re
import struct

NOISE = 1 << 14  # random halves that are repeated: a million draws are slow in plain Python


def halves(rng, count, scale):
    """`count` random numbers of FP16 as bytes."""
    few = struct.pack(f"<{NOISE}e", *(rng.gauss(0, scale) for _ in range(NOISE)))
    whole = array.array("H", few)
    out = array.array("H")
    while len(out) < count:
        at = rng.randrange(NOISE)
        out.extend(whole[at:] + whole[:at])
    return out[:count].tobytes()


def write_safetensors(path, tensors):
    """tensors: {name: (shape, bytes)}, all FP16."""
    header, at = {}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, data in tensors.values():
            file.write(data)


def network(channels, layers):
    rows, last = [], "feats"
    for i in range(layers):
        rows.append({"name": f"conv{i}", "op": "subm_conv", "input": last, "channels": channels,
                     "kernel": 3, "layout": "oxyzi", "bias": False})
        rows.append({"name": f"act{i}", "op": "relu", "input": f"conv{i}"})
        last = f"act{i}"
    if not layers:
        rows, last = [{"name": "mix", "op": "linear", "input": "feats", "channels": channels,
                       "bias": False}], "mix"
    return {"format": 1, "description": "a bench's model",
            "inputs": {"coords": "coords", "feats": {"name": "feats", "channels": channels}},
            "layers": rows, "outputs": [{"name": "out", "layer": last, "datatype": "FP16"}]}


def weights(channels, layers):
    rng = random.Random(1)
    if not layers:
        return {"mix.weight": ([channels, channels],
                               halves(rng, channels * channels, 1 / math.sqrt(channels)))}
    # A voxel of a shell has some 9 neighbours of 27; ReLU halves what is left.
    scale = math.sqrt(2 / (9 * channels))
    return {f"conv{i}.weight": ([channels, 3, 3, 3, channels],
                                halves(rng, 27 * channels * channels, scale))
            for i in range(layers)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("repository", type=pathlib.Path)
    parser.add_argument("models", nargs="+", metavar="cCxL")
    parser.add_argument("--name", help="of the model, in place of cCxL (one model)")
    parser.add_argument("--batching", type=json.loads, help="object, as network.json has it")
    parser.add_argument("--limits", type=json.loads, help="likewise")
    parser.add_argument("--warmup", type=int, nargs="*", help="voxels of warm-up requests")
    args = parser.parse_args()
    if args.name and len(args.models) > 1:
        parser.error("--name is for one model")
    for model in args.models:
        found = re.fullmatch(r"c(\d+)x(\d+)", model)
        if not found:
            parser.error(f"expected a model as c64x8, not '{model}'")
        channels, layers = map(int, found.groups())
        rows = network(channels, layers)
        for key in ("batching", "limits", "warmup"):
            if getattr(args, key) is not None:
                rows[key] = getattr(args, key)
        folder = args.repository / (args.name or model)
        (folder / "1").mkdir(parents=True, exist_ok=True)
        (folder / "network.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
        write_safetensors(folder / "1" / "weights.safetensors", weights(channels, layers))


if __name__ == "__main__":
    main()
