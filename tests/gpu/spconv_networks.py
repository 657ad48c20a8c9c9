# SPDX-License-Identifier: Apache-2.0
"""Networks and clouds for spconv_witness.py, as files that voxeld serves.  Needs numpy alone.

A network is a chain of steps, each of them an output, so that every layer is compared by itself.
Numbers are such that FP16 holds them: both sides then begin with the same ones."""
import json
import math
import struct

import numpy as np

CHANNELS = 4
PRECISIONS = ("fp32", "fp16")
OUTPUTS_MAX = 8   # of one network
WEIGHTED = ("subm", "conv", "inverse", "transposed")
WHOLE = ("gmax", "gavg", "dense")   # of a sample: no chain goes on behind them


class Step:
    """kind   subm, conv, inverse, transposed, max, avg; last of a network also gmax, gavg (of all
           voxels of a sample) and dense
    co     channels; those of the input for a pool
    k, s, p, d   kernel, stride, padding and dilation along the axes of the coordinates
    of     the step that an inverse undoes
    relu   whether one follows, which voxeld then fuses"""

    def __init__(self, name, kind, co=None, k=3, s=1, p=0, of=None, relu=True, d=1):
        self.name, self.kind, self.co, self.of = name, kind, co, of
        self.k, self.s, self.p, self.d = (tuple(v) if isinstance(v, (list, tuple)) else (v,) * 3
                                          for v in (k, s, p, d))
        self.relu = relu and kind in WEIGHTED
        self.ci = None   # network() sets it


def network(*steps):
    ci, by_name = CHANNELS, {}
    assert len(steps) <= OUTPUTS_MAX
    for step in steps:
        step.ci, step.co = ci, step.co or ci
        by_name[step.name], ci = step, step.co
        if step.kind == "inverse":
            step.k = by_name[step.of].k
        assert step.kind not in WHOLE or step is steps[-1]
    return list(steps)


def networks():
    """{name: steps}"""
    def pairs(name, co):
        return Step(f"{name}a", "subm", co), Step(f"{name}b", "subm", co, relu=False)

    def pool(name, k=2, p=0):
        return Step(name, "max", k=k, s=2, p=p)
    return {
        "subm": network(Step("k3", "subm", 16), Step("plain", "subm", 32, relu=False),
                        Step("k311", "subm", 16, (3, 1, 1)), Step("k5", "subm", 16, 5)),
        "k3s2": network(Step("down", "conv", 16, 3, 2, 1), Step("again", "conv", 24, 3, 2, 1)),
        "k3s1": network(Step("grow", "conv", 16, 3, 1, 1, relu=False),
                        Step("grow2", "conv", 16, (1, 3, 3), 1, (0, 1, 1))),
        "k2s2": network(Step("down", "conv", 16, 2, 2), Step("again", "conv", 32, 2, 2),
                        Step("deep", "conv", 32, 2, 2, relu=False)),
        "k311": network(Step("down", "conv", 16, (3, 1, 1), (2, 1, 1)),
                        Step("odd", "conv", 16, (3, 4, 2), (2, 3, 1), (0, 1, 1))),
        "inverse": network(Step("k3", "conv", 16, 3, 2, 1), Step("k2", "conv", 24, 2, 2),
                           Step("mid", "subm", 24), Step("up_k2", "inverse", 16, of="k2"),
                           Step("at", "subm", 16),
                           Step("up_k3", "inverse", 8, of="k3", relu=False)),
        "pools": network(Step("stem", "subm", 16, relu=False), pool("k2"), pool("k3", 3, 1),
                         Step("mid", "subm", 16), Step("up", "inverse", 8, of="k3")),
        "mean": network(Step("stem", "subm", 8, relu=False), Step("k2", "avg", k=2, s=2),
                        Step("k3", "avg", k=3, s=2, p=1)),
        "dilated": network(Step("k3", "subm", 16, d=2),
                           Step("odd", "subm", 16, (3, 1, 3), d=(1, 1, 3)),
                           Step("down", "conv", 16, 3, 2, 2, d=2),
                           Step("even", "conv", 24, (2, 3, 2), 2, (0, 1, 1), d=(3, 1, 2)),
                           Step("up", "inverse", 8, of="even", relu=False)),
        "dilated_pools": network(Step("stem", "subm", 8, relu=False),
                                 Step("most", "max", k=3, s=2, p=2, d=2),
                                 Step("mean", "avg", k=(3, 2, 2), s=(1, 2, 2), p=1, d=(1, 2, 1))),
        # Even kernels alone: of others spconv drops what lies outside of its shape.
        "transposed": network(Step("down", "conv", 16, 2, 2), Step("up", "transposed", 16, 2, 2),
                              Step("flat", "transposed", 8, (1, 2, 4), (1, 2, 4), relu=False)),
        "largest": network(Step("stem", "subm", 16, relu=False), Step("down", "conv", 24, 3, 2, 1),
                           Step("all", "gmax")),
        "average": network(Step("stem", "subm", 16, relu=False), Step("all", "gavg")),
        "dense": network(Step("down", "conv", 16, 3, 2, 1), Step("all", "dense")),
        # SECOND's and CenterPoint's backbone, a convolution less at each level.
        "second": network(Step("stem", "subm", 16), Step("down1", "conv", 32, 3, 2, 1),
                          Step("mid1", "subm", 32), Step("down2", "conv", 64, 3, 2, 1),
                          Step("mid2", "subm", 64), Step("down3", "conv", 64, 3, 2, (0, 1, 1)),
                          Step("mid3", "subm", 64), Step("out", "conv", 128, (3, 1, 1), (2, 1, 1))),
        # The first levels of spconv's own benchmark; bench() has all of it.
        "benchmark": network(*pairs("c0", 64), pool("p0"), *pairs("c1", 96), pool("p1"),
                             *pairs("c2", 128)),
    }


def bench_steps():
    """spconv's benchmark: pairs of submanifold convolutions, six max pools, no biases."""
    widths, steps = (64, 96, 128, 160, 192, 224, 256), []
    for level, co in enumerate(widths):
        steps += [Step(f"c{level}{half}", "subm", co, relu=False) for half in "ab"]
        steps += [Step(f"p{level}", "max", k=2, s=2)] if level < len(widths) - 1 else []
    ci = 3
    for step in steps:
        step.ci, step.co = ci, step.co or ci
        ci = step.co
    return steps


# --- Weights and network.json.

def halves(values):
    return values.astype(np.float16).astype(np.float32)


def make_weights(steps, seed, bias=True):
    """{"name.weight": [Co, K, K, K, Ci], "name.bias"}: values keep their size on sparse voxels."""
    rng, out = np.random.default_rng(seed), {}
    for step in steps:
        if step.kind not in WEIGHTED:
            continue
        spread = math.sqrt(2 / (0.3 * math.prod(step.k) * step.ci))
        out[f"{step.name}.weight"] = halves(
            rng.normal(size=(step.co, *step.k, step.ci)) * spread)
        if bias:
            out[f"{step.name}.bias"] = halves(rng.normal(size=step.co) * 0.3)
    return out


def layers_of(steps, bias=True):
    """Layers of network.json, and the layer that is the output of each step."""
    layers, at, last = [], "feats", {}
    for step in steps:
        window = {"kernel": step.k, "stride": step.s, "padding": step.p, "dilation": step.d,
                  "rule": "spconv"}
        conv = {"channels": step.co, "layout": "spconv", "bias": bias}
        op, keys = {
            "subm": ("subm_conv", conv | {"kernel": step.k, "dilation": step.d}),
            "transposed": ("transposed_conv", conv | {"kernel": step.k, "stride": step.s}),
            "gmax": ("global_pool", {"mode": "max"}), "gavg": ("global_pool", {"mode": "avg"}),
            "dense": ("to_dense", {}),
            "conv": ("sparse_conv", conv | window),
            "inverse": ("inverse_conv", conv | {"of": step.of}),
            "max": ("max_pool", window), "avg": ("avg_pool", window)}[step.kind]
        layers.append({"name": step.name, "op": op, "input": at, **keys})
        at = step.name
        if step.relu:
            layers.append({"name": f"{at}_relu", "op": "relu", "input": at})
            at = f"{at}_relu"
        last[step.name] = at
    return layers, last


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": {"float32": "F32", "float16": "F16"}[str(array.dtype)],
                        "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())


def write_model(folder, document, tensors):
    (folder / "1").mkdir(parents=True)
    (folder / "network.json").write_text(json.dumps(document, indent=1))
    write_safetensors(folder / "1" / "weights.safetensors", tensors)


def document(steps, shape, rows, precision):
    layers, last = layers_of(steps)
    return {"format": 1, "precision": precision, "warmup": [],
            "inputs": {"coords": {"name": "coords", "spatial_shape": list(shape)},
                       "feats": {"channels": CHANNELS}},
            "layers": layers, "outputs": [{"name": step, "layer": layer}
                                          for step, layer in last.items()],
            "limits": {"voxels_max": rows}}


def bench_document(shape, rows):
    layers, last = layers_of(bench_steps(), bias=False)
    return {"format": 1, "precision": "fp16",
            "inputs": {"coords": {"name": "coords", "spatial_shape": list(shape)},
                       "feats": {"channels": 3}},
            "layers": layers, "outputs": [{"name": "out", "layer": list(last.values())[-1],
                                           "datatype": "FP16"}],
            "limits": {"voxels_max": 2 * rows}}


# --- Clouds: int32 [N, 4] in spconv's order of columns [b, z, y, x], and the shape [Z, Y, X].

def random_cloud():
    """Two samples of 8,000 and 3,000 voxels, dense enough that most have neighbours."""
    rng, shape = np.random.default_rng(1), (41, 42, 35)
    parts = [np.insert(np.stack(np.unravel_index(
        rng.choice(math.prod(shape), n, replace=False), shape), axis=1), 0, sample, axis=1)
        for sample, n in enumerate((8000, 3000))]
    return rng.permutation(np.concatenate(parts)).astype(np.int32), shape


def surface_cloud():
    """Two spheres, which touch the faces of the shape."""
    rng, side, parts = np.random.default_rng(2), 96, []
    for sample, radius in enumerate((47.5, 30.0)):
        at = np.indices((side,) * 3).reshape(3, -1).T
        shell = np.abs(np.linalg.norm(at - (side - 1) / 2, axis=1) - radius) < 0.6
        parts.append(np.insert(at[shell], 0, sample, axis=1))
    return rng.permutation(np.concatenate(parts)).astype(np.int32), (side,) * 3


def read_ply(path):
    """x, y, z of a binary little-endian .ply that has nothing but vertices before them."""
    types = {"float": "<f4", "float32": "<f4", "double": "<f8", "uchar": "u1", "uint8": "u1",
             "char": "i1", "short": "<i2", "ushort": "<u2", "int": "<i4", "int32": "<i4",
             "uint": "<u4"}
    data = path.read_bytes()
    head, body = data.split(b"end_header\n", 1)
    words = [line.split() for line in head.decode().splitlines()]
    assert ["format", "binary_little_endian", "1.0"] in words, f"{path}: not a binary .ply"
    count = next(int(w[2]) for w in words if w[:2] == ["element", "vertex"])
    row = np.dtype([(w[2], types[w[1]]) for w in words if w[:1] == ["property"] and len(w) == 3])
    rows = np.frombuffer(body, row, count)
    return np.stack([rows[axis] for axis in "zyx"], axis=1)


def frame_cloud(path, voxel):
    """A scan as the first sample, the same one turned about z as the second.  A .npy has columns
    z, y, x, whole numbers or points; a .ply has x, y and z."""
    at = read_ply(path) if path.suffix == ".ply" else np.load(path)[:, -3:]
    if not np.issubdtype(at.dtype, np.integer):
        at = np.floor(at / voxel)
    at = np.unique(at.astype(np.int64), axis=0)
    both = [at, at[:, [0, 2, 1]]]
    both = [one - one.min(axis=0) for one in both]
    shape = np.max([one.max(axis=0) for one in both], axis=0) + 1
    rows = np.concatenate([np.insert(one, 0, s, axis=1) for s, one in enumerate(both)])
    return np.random.default_rng(3).permutation(rows).astype(np.int32), tuple(map(int, shape))
