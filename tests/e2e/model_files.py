# SPDX-License-Identifier: Apache-2.0
"""Writes small models, and computes their expected answers in float64 numpy."""
import json
import struct

import numpy as np

_TYPES = {"float32": "F32", "float16": "F16", "int64": "I64"}


def write_safetensors(path, tensors):
    """tensors: {name: array}."""
    header, blobs, at = {}, [], 0
    for name, array in tensors.items():
        data = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": _TYPES[str(array.dtype)], "shape": list(array.shape),
                        "data_offsets": [at, at + len(data)]}
        blobs.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


class ConvModel:
    """feats [N, ci] -> subm_conv 3^3 (bias) -> relu -> linear -> `out` [N, co]."""

    def __init__(self, seed=1, ci=4, hidden=8, co=3, warmup=None):
        rng = np.random.default_rng(seed)
        self.ci, self.hidden, self.co = ci, hidden, co
        self.tensors = {
            "conv.weight": rng.normal(size=(hidden, 3, 3, 3, ci)).astype(np.float32) * 0.2,
            "conv.bias": rng.normal(size=hidden).astype(np.float32),
            "head.weight": rng.normal(size=(co, hidden)).astype(np.float32),
            "head.bias": rng.normal(size=co).astype(np.float32),
        }
        self.network = {
            "format": 1,
            "description": "a test's model",
            "inputs": {"coords": "coords", "feats": {"name": "feats", "channels": ci}},
            "layers": [
                {"name": "conv", "op": "subm_conv", "input": "feats", "channels": hidden,
                 "kernel": 3, "layout": "oxyzi"},
                {"name": "act", "op": "relu", "input": "conv"},
                {"name": "head", "op": "linear", "input": "act", "channels": co},
            ],
            "outputs": [{"name": "out", "layer": "head"}],
            "limits": {"voxels_max": 200000},
        }
        if warmup:  # without it, 30,000 voxels: seconds under a sanitizer for many models
            self.network["warmup"] = warmup

    def write(self, repository, name="conv", version=1):
        folder = repository / name / str(version)
        folder.mkdir(parents=True, exist_ok=True)
        (repository / name / "network.json").write_text(json.dumps(self.network))
        write_safetensors(folder / "weights.safetensors", self.tensors)
        return self

    def answer(self, coords, feats):
        """float64 [N, co]."""
        coords = np.asarray(coords)
        if coords.shape[1] == 3:
            coords = np.concatenate([np.zeros((len(coords), 1), int), coords], axis=1)
        rows = {tuple(c): i for i, c in enumerate(coords.tolist())}
        w = self.tensors["conv.weight"].astype(np.float64)
        x = np.asarray(feats, dtype=np.float64)
        out = np.tile(self.tensors["conv.bias"].astype(np.float64), (len(coords), 1))
        for i, (s, cx, cy, cz) in enumerate(coords.tolist()):
            for kx in range(3):
                for ky in range(3):
                    for kz in range(3):
                        j = rows.get((s, cx + kx - 1, cy + ky - 1, cz + kz - 1))
                        if j is not None:
                            out[i] += w[:, kx, ky, kz, :] @ x[j]
        out = np.maximum(out, 0)
        return (out @ self.tensors["head.weight"].astype(np.float64).T
                + self.tensors["head.bias"].astype(np.float64))


def random_grid(seed, n, ci=4, extent=None, samples=1):
    """n different voxels [n, 4] int32 in a cube with about half of it full, and feats [n, ci]."""
    rng = np.random.default_rng(seed)
    extent = extent or max(2, int(np.ceil((2 * n) ** (1 / 3))))
    cells = rng.permutation(samples * extent ** 3)[:n]
    assert len(cells) == n
    sample, rest = np.divmod(cells, extent ** 3)
    x, rest = np.divmod(rest, extent ** 2)
    y, z = np.divmod(rest, extent)
    coords = np.stack([sample, x - extent // 2, y, z], axis=1).astype(np.int32)
    return coords, rng.normal(size=(n, ci)).astype(np.float32)
