#!/usr/bin/env python3
"""Writes tests/golden/every_op: a small network with every op, and what PyTorch says it answers.

    python3 tests/golden/make.py          (needs torch and numpy; only to change the golden files)

A submanifold convolution is a dense convolution looked at only where there are voxels, so the
truth here is torch.nn.functional.conv3d in float64 over a dense grid: no code of ours takes part.

golden.bin, little-endian: "vxGO", u32 version 1, i64 N, i32 columns, i32 channels of feats, coords
i32 (N, columns), feats f32 (N, channels), i32 outputs; per output i32 channels, f64 (N, channels).

SPDX-License-Identifier: Apache-2.0
"""
import json
import pathlib
import struct

import numpy as np
import torch
import torch.nn.functional as F

ROOT = pathlib.Path(__file__).resolve().parent / "every_op"
SEED = 20240607
VOXELS, CHANNELS, SIDE, SAMPLES = 150, 3, 9, 2
LOW = -4  # coordinates run from here, so that negative ones are there

rng = np.random.default_rng(SEED)
tensors = {}


def tensor(name, shape, dtype="F32", low=-1.0, high=1.0):
    """A random tensor as the file will hold it; returns its exact values in float64."""
    values = torch.tensor(rng.uniform(low, high, shape), dtype=torch.float32)
    kind = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}[dtype]
    stored = values.to(kind)
    tensors[name] = (dtype, list(shape), stored)
    return stored.to(torch.float64)


def norm_tensors(name, channels):
    return (
        tensor(name + ".weight", (channels,), low=0.5, high=1.5),
        tensor(name + ".bias", (channels,)),
        tensor(name + ".running_mean", (channels,)),
        tensor(name + ".running_var", (channels,), low=0.2, high=2.0),
    )


def write_safetensors(path):
    header, data = {"__metadata__": {"made by": "tests/golden/make.py"}}, b""
    for name, (dtype, shape, stored) in tensors.items():
        bits = stored.contiguous().view(torch.int16 if dtype != "F32" else torch.int32)
        raw = bits.numpy().tobytes()
        offsets = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    coords, feats = make_input()
    index = torch.tensor(coords, dtype=torch.int64)
    index[:, 1:] -= LOW

    def conv(x, weight, bias, dilation):
        """weight (Co, Ci, Kx, Ky, Kz)"""
        dense = torch.zeros(SAMPLES, SIDE, SIDE, SIDE, x.shape[1], dtype=torch.float64)
        dense[index[:, 0], index[:, 1], index[:, 2], index[:, 3]] = x
        padding = [k // 2 * d for k, d in zip(weight.shape[2:], dilation)]
        dense = dense.permute(0, 4, 1, 2, 3)
        out = F.conv3d(dense, weight, bias, padding=padding, dilation=dilation)
        return out[index[:, 0], :, index[:, 1], index[:, 2], index[:, 3]]

    layers = []

    def layer(name, op, inputs, **keys):
        one = {"input": inputs} if isinstance(inputs, str) else {"inputs": inputs}
        layers.append({"name": name, "op": op, **one, **keys})

    x = torch.tensor(feats, dtype=torch.float64)
    v = {"feats": x}

    # A stem as spconv writes it, with its norm and activation.
    w, b = tensor("stem.weight", (8, 3, 3, 3, 3)), tensor("stem.bias", (8,))
    v["stem"] = conv(x, w.permute(0, 4, 1, 2, 3), b, (1, 1, 1))
    layer("stem", "subm_conv", "feats", channels=8, kernel=3, layout="spconv")
    n = norm_tensors("stem_bn", 8)
    v["stem_bn"] = F.batch_norm(v["stem"], n[2], n[3], n[0], n[1], eps=1e-3)
    layer("stem_bn", "batch_norm", "stem", eps=1e-3)
    v["stem_act"] = F.relu(v["stem_bn"])
    layer("stem_act", "relu", "stem_bn")

    # A flat, dilated kernel with its offsets first, under a name of its own; half precision.
    w = tensor("odd.kernel", (15, 8, 6), "F16")
    v["odd"] = conv(v["stem_act"], w.reshape(5, 1, 3, 8, 6).permute(4, 3, 0, 1, 2), None, (1, 2, 2))
    layer("odd", "subm_conv", "stem_act", channels=6, kernel=[5, 1, 3], dilation=[1, 2, 2],
          layout="vio", bias=False, tensors={"weight": "odd.kernel"})
    w, b = tensor("odd_ln.weight", (6,), "BF16"), tensor("odd_ln.bias", (6,), "BF16")
    v["odd_ln"] = F.layer_norm(v["odd"], (6,), w, b, eps=1e-6)
    layer("odd_ln", "layer_norm", "odd", eps=1e-6)
    v["odd_act"] = F.gelu(v["odd_ln"])
    layer("odd_act", "gelu", "odd_ln")

    # Two readers of one value; a norm that nothing can be folded into.
    w, b = tensor("up.weight", (8, 6), "BF16"), tensor("up.bias", (8,), "F16")
    v["up"] = F.linear(v["odd_act"], w, b)
    layer("up", "linear", "odd_act", channels=8)
    v["sum"] = v["up"] + v["stem_act"]
    layer("sum", "add", ["up", "stem_act"])
    v["sum_act"] = F.silu(v["sum"])
    layer("sum_act", "silu", "sum")
    v["join"] = torch.cat([v["sum_act"], x, v["odd_act"]], dim=1)
    layer("join", "concat", ["sum_act", "feats", "odd_act"])
    n = norm_tensors("join_bn", 17)
    v["join_bn"] = F.batch_norm(v["join"], n[2], n[3], n[0], n[1], eps=1e-5)
    layer("join_bn", "batch_norm", "join")
    w = tensor("point.weight", (5, 1, 1, 1, 17))
    v["point"] = conv(v["join_bn"], w.permute(0, 4, 1, 2, 3), None, (1, 1, 1))
    layer("point", "subm_conv", "join_bn", channels=5, kernel=1, layout="flexgemm", bias=False)
    v["plain_ln"] = F.layer_norm(v["point"], (5,), eps=1e-5)
    layer("plain_ln", "layer_norm", "point", affine=False)
    w, b = tensor("head.weight", (4, 5, 5, 5, 5)), tensor("head.bias", (4,))
    v["head"] = conv(v["plain_ln"], w.permute(0, 4, 1, 2, 3), b, (1, 1, 1))
    layer("head", "subm_conv", "plain_ln", channels=4, kernel=5, layout="oxyzi")
    v["mask"] = torch.sigmoid(v["head"])
    layer("mask", "sigmoid", "head")

    outputs = ["mask", "head", "join", "sum"]
    network = {"format": 1, "description": "every op once; tests/golden/make.py",
               "inputs": {"coords": "coords", "feats": {"name": "feats", "channels": CHANNELS}},
               "layers": layers,
               "outputs": [{"name": name, "layer": name} for name in outputs],
               "limits": {"voxels_max": 10000}, "warmup": [100, 1000]}
    (ROOT / "1").mkdir(parents=True, exist_ok=True)
    (ROOT / "network.json").write_text(json.dumps(network, indent=1) + "\n")
    write_safetensors(ROOT / "1" / "weights.safetensors")
    out = b"vxGO" + struct.pack("<Iqii", 1, VOXELS, 4, CHANNELS)
    out += coords.astype("<i4").tobytes() + feats.astype("<f4").tobytes()
    out += struct.pack("<i", len(outputs))
    for name in outputs:
        out += struct.pack("<i", v[name].shape[1])
        out += v[name].contiguous().numpy().astype("<f8").tobytes()
    (ROOT / "golden.bin").write_bytes(out)
    print(f"{VOXELS} voxels, {len(layers)} layers, {len(tensors)} tensors, {len(out)} bytes")


def make_input():
    cells = rng.permutation(SAMPLES * SIDE ** 3)[:VOXELS]
    sample, rest = np.divmod(cells, SIDE ** 3)
    cube = [rest // SIDE ** 2, rest // SIDE % SIDE, rest % SIDE]
    coords = np.stack([sample] + [axis + LOW for axis in cube], axis=1)
    return coords, rng.uniform(-2, 2, (VOXELS, CHANNELS)).astype(np.float32)


main()
