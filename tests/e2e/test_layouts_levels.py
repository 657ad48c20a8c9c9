# SPDX-License-Identifier: Apache-2.0
"""Checkpoints with strided, inverse, transposed and grouped convolutions: as each library answers.

A small class for each library has its coordinates (with or without tensor strides), its pairs of
rows for each number of the weight, and the shapes of its weights, written from the library's
source.  The daemon gets the same tensors and coordinates.  Each network goes down once, has a
submanifold convolution there, and comes back to the request's voxels."""
import itertools
import json
import os
import subprocess

import numpy as np
import pytest

from model_files import write_safetensors
from voxeld import Client
from voxeld_process import Daemon

VOXELD = os.environ["VOXELD"]
SHAPE = (9, 8, 11)  # odd ones lose a voxel in some layers of spconv
SAMPLES = 2


class Voxels:
    """Rows by (sample, x, y, z); `stride` and `shape` as the library keeps them beside."""

    def __init__(self, rows, stride=(1, 1, 1), shape=SHAPE):
        self.rows, self.stride, self.shape = rows, stride, shape


def product(values):
    return int(np.prod(values))


def moved(at, offset, factor=(1, 1, 1)):
    return (at[0], *(a + o * f for a, o, f in zip(at[1:], offset, factor)))


def apply(x, out, pairs, matrices, bias):
    """out: the voxels of the result; pairs: (number of the weight, row read, row written)."""
    rows = {q: bias.reshape(-1).astype(np.float64).copy() for q in out}
    for n, p, q in pairs:
        rows[q] += x.rows[p] @ matrices[n]
    return rows


def block_diagonal(weight):
    """[V, groups, Ci / groups, Co / groups] as [V, Ci, Co]."""
    v, groups, ci, co = weight.shape
    whole = np.zeros((v, groups * ci, groups * co))
    for g in range(groups):
        whole[:, g * ci:(g + 1) * ci, g * co:(g + 1) * co] = weight[:, g]
    return whole


def offsets_outside(weight):
    """[V, Ci, Co], a matrix for V = 1, [V, C] for channels alone, or with groups."""
    if weight.ndim == 4:
        return block_diagonal(weight)
    if weight.ndim == 2 and weight.shape[0] != weight.shape[1]:
        return block_diagonal(weight[:, :, None, None])
    return weight.reshape(-1, *weight.shape[-2:]).astype(np.float64)


class SpConv:
    """spconv 2.3: ConvOutLocIter in indices.py, SparseConvolution in conv.py."""

    word, rule = "weight", "spconv"

    def shape(self, k, stride, ci, co, groups):
        return (co, *k, ci)

    def bias(self, co):
        return (co,)

    def matrices(self, weight, stride):
        co, ci = weight.shape[0], weight.shape[-1]
        if product(weight.shape[1:-1]) == product(stride) == 1:  # conv1x1
            return weight.reshape(1, ci, co).astype(np.float64)
        return weight.reshape(co, -1, ci).transpose(1, 2, 0).astype(np.float64)

    def pairs(self, x, k, stride, padding):
        shape = tuple((size + 2 * p - (w - 1) - 1) // s + 1
                      for size, p, w, s in zip(x.shape, padding, k, stride))
        found = []
        for n, offset in enumerate(itertools.product(*map(range, k))):
            for p in x.rows:  # query_npq
                whole = [a + pad - o for a, pad, o in zip(p[1:], padding, offset)]
                q = (p[0], *(w // s for w, s in zip(whole, stride)))
                if all(w % s == 0 for w, s in zip(whole, stride)) and \
                        all(0 <= a < size for a, size in zip(q[1:], shape)):
                    found.append((n, p, q))
        return found, shape

    def down(self, x, weight, bias, k, stride, padding):
        self.kept, shape = self.pairs(x, k, stride, padding)
        self.fine = x
        rows = apply(x, {q for _, _, q in self.kept}, self.kept,
                     self.matrices(weight, stride), bias)
        return Voxels(rows, shape=shape)

    def mid(self, x, weight, bias):
        pairs = [(n, moved(q, offset), q)
                 for n, offset in enumerate(itertools.product(range(-1, 2), repeat=3))
                 for q in x.rows if moved(q, offset) in x.rows]
        rows = apply(x, x.rows, pairs, self.matrices(weight, (1, 1, 1)), bias)
        return Voxels(rows, shape=x.shape)

    def inverse(self, x, weight, bias, k, stride):
        turned = [(n, q, p) for n, p, q in self.kept]
        return apply(x, self.fine.rows, turned, self.matrices(weight, stride), bias)

    def generative(self, x, weight, bias, k, stride):
        pairs = []  # SparseConvTranspose3d without padding: query_nhw_out
        shape = [(size - 1) * s + w for size, s, w in zip(x.shape, stride, k)]
        for n, offset in enumerate(itertools.product(*map(range, k))):
            for q in x.rows:
                p = (q[0], *(a * s + o for a, s, o in zip(q[1:], stride, offset)))
                if all(a < size for a, size in zip(p[1:], shape)):
                    pairs.append((n, q, p))
        return apply(x, {p for _, _, p in pairs}, pairs, self.matrices(weight, stride), bias)


class FlexGemm(SpConv):
    """sparse_conv3d.py: the same coordinates; the neighbour v of a row, z fastest; no 1^3 apart."""

    def matrices(self, weight, stride):
        return weight.reshape(weight.shape[0], -1, weight.shape[-1]).transpose(1, 2, 0) \
            .astype(np.float64)

    def pairs(self, x, k, stride, padding):
        coords, shape = super().pairs(x, k, stride, padding)
        volume, found = product(k), []
        for q in {q for _, _, q in coords}:
            for v in range(volume):
                offset = v // (k[1] * k[2]), v // k[2] % k[1], v % k[2]
                p = (q[0], *(a * s - pad + o
                             for a, s, pad, o in zip(q[1:], stride, padding, offset)))
                if p in x.rows:
                    found.append((v, p, q))
        return found, shape


class OffsetsOutside:
    """Weights [V, Ci, Co] and a map of rows that is kept to be turned round."""

    word, rule = "kernel", "floor"

    def bias(self, co):
        return (co,)

    def matrices(self, weight):
        return offsets_outside(weight)

    def down(self, x, weight, bias, k, stride, padding):
        self.fine, out = x, self.coords(x, k, stride, padding)
        self.kept = self.pairs(x, out, k, stride, padding)
        rows = apply(x, out.rows, self.kept, self.matrices(weight), bias)
        return Voxels(rows, out.stride, out.shape)

    def mid(self, x, weight, bias):
        k, one = (3, 3, 3), (1, 1, 1)
        pairs = self.pairs(x, x, k, one, one)
        return Voxels(apply(x, x.rows, pairs, self.matrices(weight), bias), x.stride, x.shape)

    def inverse(self, x, weight, bias, k, stride):
        turned = [(n, q, p) for n, p, q in self.kept]
        return apply(x, self.fine.rows, turned, self.matrices(weight), bias)


class TorchSparse14(OffsetsOutside):
    """TorchSparse 1.4 where the kernel is the stride: downsample.py, kernel.py, conv.py."""

    def shape(self, k, stride, ci, co, groups):
        return (product(k), ci, co) if product(k) > 1 else (ci, co)

    def coords(self, x, k, stride, padding):
        assert all(s in (1, w) for s, w in zip(stride, k))
        sample = tuple(s * t for s, t in zip(stride, x.stride))
        return Voxels({(c[0], *(a // s * s for a, s in zip(c[1:], sample))): None
                       for c in x.rows}, sample)

    def pairs(self, x, out, k, stride, padding):
        x0, y0, z0 = (np.arange(-size // 2 + 1, size // 2 + 1) * step
                      for size, step in zip(k, x.stride))
        if product(k) % 2 == 1:
            offsets = [(a, b, c) for c in z0 for b in y0 for a in x0]
        else:
            offsets = [(a, b, c) for a in x0 for b in y0 for c in z0]
        return [(n, moved(q, offset), q) for n, offset in enumerate(offsets) for q in out.rows
                if moved(q, offset) in x.rows]


class TorchSparse21(OffsetsOutside):
    """TorchSparse 2.1 by default, with a spatial_range: sparsemapping_cuda.cu."""

    rule = "spconv"

    def shape(self, k, stride, ci, co, groups):
        one = product(k) == product(stride) == 1
        return (ci, co) if one else (product(k), ci, co)

    def digits(self, n, k):
        digits = [0, 0, 0]
        for axis in (0, 1, 2) if product(k) % 2 else (2, 1, 0):
            n, digits[axis] = divmod(n, k[axis])
        return digits

    def coords(self, x, k, stride, padding):
        shape = tuple((size + 2 * p - (w - 1) - 1) // s + 1
                      for size, p, w, s in zip(x.shape, padding, k, stride))
        self.reached = []
        for p, n in itertools.product(x.rows, range(product(k))):
            at = [a + pad + d - (w - 1)
                  for a, pad, d, w in zip(p[1:], padding, self.digits(n, k), k)]
            q = (p[0], *(a // s for a, s in zip(at, stride)))
            if all(a % s == 0 for a, s in zip(at, stride)) and \
                    all(0 <= a < size for a, size in zip(q[1:], shape)):
                self.reached.append((product(k) - 1 - n, p, q))
        return Voxels({q: None for _, _, q in self.reached}, shape=shape)

    def pairs(self, x, out, k, stride, padding):
        if x is not out:
            return self.reached
        offsets = [[d - (w - 1) // 2 for d, w in zip(self.digits(n, k), k)]
                   for n in range(product(k))]
        return [(n, moved(q, offset), q) for n, offset in enumerate(offsets) for q in out.rows
                if moved(q, offset) in x.rows]


class Minkowski(OffsetsOutside):
    """MinkowskiEngine 0.5: coordinate_at in kernel_region.hpp, coordinate_map_cpu.hpp."""

    def shape(self, k, stride, ci, co, groups):
        if groups > 1:
            return (product(k), ci)
        return (ci, co) if product(k) == product(stride) == 1 else (product(k), ci, co)

    def bias(self, co):
        return (1, co)

    def coordinate_at(self, n, at, k, stride):
        to = [at[0]]
        for axis, size in enumerate(k):
            index = n % size
            shift = index if size % 2 == 0 else index - size // 2
            to.append(at[axis + 1] + shift * stride[axis])
            n //= size
        return tuple(to)

    def coords(self, x, k, stride, padding):
        step = tuple(s * t for s, t in zip(stride, x.stride))
        return Voxels({(c[0], *(int(np.floor(a / s)) * s for a, s in zip(c[1:], step))): None
                       for c in x.rows}, step)

    def pairs(self, x, out, k, stride, padding):
        found = [(n, self.coordinate_at(n, q, k, x.stride), q)
                 for q in out.rows for n in range(product(k))]
        return [pair for pair in found if pair[1] in x.rows]

    def onto(self, x, weight, bias, k, stride):
        pairs = [(n, q, p) for n, p, q in self.pairs(self.fine, x, k, stride, None)]
        return apply(x, self.fine.rows, pairs, self.matrices(weight), bias)

    def generative(self, x, weight, bias, k, stride):
        step = tuple(t // s for t, s in zip(x.stride, stride))
        out = Voxels({self.coordinate_at(n, q, k, step): None
                      for q in x.rows for n in range(product(k))}, step)
        pairs = [(n, q, p) for n, p, q in self.pairs(out, x, k, stride, None)]
        return apply(x, out.rows, pairs, self.matrices(weight), bias)


class WarpConvNet(OffsetsOutside):
    """WarpConvNet: kernel_map.cuh, ops/stride.py, helper.py."""

    word = "weight"

    def __init__(self, depthwise=False):
        self.depthwise = depthwise

    def shape(self, k, stride, ci, co, groups):
        if self.depthwise:
            return (product(k), ci)
        if groups > 1:
            return (product(k), groups, ci // groups, co // groups)
        return (product(k), ci, co)

    def coords(self, x, k, stride, padding):
        return Voxels({(c[0], *(int(np.floor(a / s)) for a, s in zip(c[1:], stride))): None
                       for c in x.rows})

    def offsets(self, k):
        return [tuple(index - (size // 2 if size % 2 else 0)
                      for index, size in zip((n // (k[2] * k[1]), n // k[2] % k[1], n % k[2]), k))
                for n in range(product(k))]

    def pairs(self, x, out, k, stride, padding):
        found = [(n, (q[0], *(a * s + o for a, s, o in zip(q[1:], stride, offset))), q)
                 for n, offset in enumerate(self.offsets(k)) for q in out.rows]
        return [pair for pair in found if pair[1] in x.rows]

    def onto(self, x, weight, bias, k, stride):
        pairs = [(n, q, p) for n, p, q in self.pairs(self.fine, x, k, stride, None)]
        return apply(x, self.fine.rows, pairs, self.matrices(weight), bias)

    def generative(self, x, weight, bias, k, stride):
        pairs = [(n, q, (q[0], *(a * s + o for a, s, o in zip(q[1:], stride, offset))))
                 for n, offset in enumerate(self.offsets(k)) for q in x.rows]
        return apply(x, {p for _, _, p in pairs}, pairs, self.matrices(weight), bias)


class Case:
    """feats -> down -> mid -> up.  `up`: the kind of layer that leads back; the nearest row if
    the library has none."""

    def __init__(self, name, library, layout, k, stride, padding=(0, 0, 0), up="nearest",
                 up_kernel=None, groups=1, channels=(4, 8, 8, 4)):
        self.name, self.library, self.layout = name, library, layout
        self.k, self.stride, self.padding, self.up = k, stride, padding, up
        self.up_kernel, self.channels = up_kernel or k, channels
        rng = np.random.default_rng(len(name))
        self.tensors, self.layers = {}, []
        for at, kernel, step in (("down", k, stride), ("mid", (3, 3, 3), (1, 1, 1)),
                                 ("up", self.up_kernel, stride)):
            if at == "up" and up == "nearest":
                continue
            ci, co = channels[len(self.layers)], channels[len(self.layers) + 1]
            shape = library.shape(kernel, step, ci, co, groups)
            self.tensors[f"{at}.{library.word}"] = \
                rng.normal(size=shape, scale=0.3).astype(np.float32)
            self.tensors[f"{at}.bias"] = rng.normal(size=library.bias(co)).astype(np.float32)
            self.layers.append({"name": at, "channels": co, "groups": groups, "layout": layout,
                                "tensors": {"weight": f"{at}.{library.word}"}})
        self.network = {"format": 1, "warmup": [],
                        "inputs": {"coords": {"name": "coords", "spatial_shape": list(SHAPE)},
                                   "feats": {"channels": channels[0]}},
                        "layers": self.all_layers(),
                        "outputs": [{"name": "out", "layer": self.last}]}
        if library.rule == "floor":
            self.network["inputs"]["coords"] = "coords"

    def all_layers(self):
        down, mid, *up = self.layers
        down |= {"op": "sparse_conv", "input": "feats", "kernel": list(self.k),
                 "stride": list(self.stride), "rule": self.library.rule}
        if self.library.rule == "spconv":
            down["padding"] = list(self.padding)
        mid |= {"op": "subm_conv", "input": "down", "kernel": 3}
        stem = {"name": "stem", "op": "relu", "input": "feats"}
        window = {"kernel": list(self.up_kernel), "stride": list(self.stride)}
        self.last = "up"
        if self.up == "inverse":
            return [down, mid, up[0] | {"op": "inverse_conv", "input": "mid", "of": "down"}]
        if self.up == "nearest":
            return [stem, down, mid, {"name": "up", "op": "upsample", "input": "mid",
                                      "stride": list(self.stride), "onto": "stem"}]
        up[0] |= {"op": "transposed_conv", "input": "mid"} | window
        if self.up == "onto":
            return [stem, down, mid, up[0] | {"onto": "stem"}]
        self.last = "back"  # of all voxels that it makes, those of the request
        return [stem, down, mid, up[0], {"name": "back", "op": "upsample", "input": "up",
                                         "stride": 1, "onto": "stem"}]

    def write(self, repository):
        folder = repository / self.name / "1"
        folder.mkdir(parents=True)
        (repository / self.name / "network.json").write_text(json.dumps(self.network))
        write_safetensors(folder / "weights.safetensors", self.tensors)

    def tensors_of(self, layer):
        return self.tensors[f"{layer}.{self.library.word}"], self.tensors[f"{layer}.bias"]

    def answer(self, coords, feats, library=None):
        library = library or self.library
        at = [tuple(c) for c in coords.tolist()]
        x = Voxels(dict(zip(at, feats.astype(np.float64))))
        x = library.down(x, *self.tensors_of("down"), self.k, self.stride, self.padding)
        x = library.mid(x, *self.tensors_of("mid"))
        if self.up == "nearest":
            # coarse coordinates are multiples of the tensor stride, or count coarse voxels
            rows = {p: x.rows.get((p[0], *(a // s * t for a, s, t in
                                           zip(p[1:], self.stride, x.stride)))) for p in at}
        else:
            rows = getattr(library, self.up)(x, *self.tensors_of("up"), self.up_kernel,
                                             self.stride)
        none = np.zeros(self.channels[len(self.layers)])
        return np.stack([none if rows.get(p) is None else rows[p] for p in at])


TWO, THREE, FOUR, ONE = (2, 2, 2), (3, 3, 3), (4, 4, 4), (1, 1, 1)
FLAT = (3, 1, 1), (2, 1, 1)
MIXED = (3, 2, 2), TWO  # an even number of offsets with an odd axis
DEEP = {"groups": 4, "channels": (4, 4, 4, 4)}
CASES = [
    Case("spconv_k3", SpConv(), "spconv", THREE, TWO, ONE, "inverse"),
    Case("spconv_k2", SpConv(), "spconv", TWO, TWO, up="inverse"),
    Case("spconv_flat", SpConv(), "spconv", *FLAT, up="inverse"),
    Case("spconv_mixed", SpConv(), "spconv", *MIXED, (1, 0, 1), "inverse"),
    Case("spconv_k4", SpConv(), "spconv", FOUR, TWO, ONE, "inverse"),
    Case("spconv_k1_strided", SpConv(), "spconv", ONE, TWO),
    Case("spconv_k1", SpConv(), "spconv", ONE, ONE, up="generative", up_kernel=TWO),
    Case("spconv_transposed", SpConv(), "spconv", THREE, TWO, ONE, "generative", TWO),
    Case("spconv_transposed4", SpConv(), "spconv", THREE, TWO, ONE, "generative", (4, 2, 4)),
    Case("flexgemm_k3", FlexGemm(), "flexgemm", THREE, TWO, ONE),
    Case("flexgemm_mixed", FlexGemm(), "flexgemm", *MIXED, (0, 1, 0)),
    Case("flexgemm_k1", FlexGemm(), "flexgemm", ONE, TWO),
    Case("torchsparse_k2", TorchSparse14(), "torchsparse", TWO, TWO, up="inverse"),
    Case("torchsparse_k3_s3", TorchSparse14(), "torchsparse", THREE, THREE, up="inverse"),
    Case("torchsparse_two_axes", TorchSparse14(), "torchsparse", (2, 2, 1), (2, 2, 1),
         up="inverse"),
    Case("torchsparse21_k2", TorchSparse21(), "torchsparse", TWO, TWO, up="inverse"),
    Case("torchsparse21_k3", TorchSparse21(), "torchsparse", THREE, TWO, ONE, "inverse"),
    Case("torchsparse21_k3_p0", TorchSparse21(), "torchsparse", THREE, TWO, up="inverse"),
    Case("torchsparse21_mixed", TorchSparse21(), "torchsparse", *MIXED, (1, 1, 0), "inverse"),
    Case("torchsparse21_k1", TorchSparse21(), "torchsparse", ONE, TWO, up="inverse"),
    Case("minkowski_k2", Minkowski(), "minkowski", TWO, TWO, up="onto"),
    Case("minkowski_k3", Minkowski(), "minkowski", THREE, TWO, up="onto"),
    Case("minkowski_k4", Minkowski(), "minkowski", FOUR, TWO, up="onto", up_kernel=TWO),
    Case("minkowski_mixed", Minkowski(), "minkowski", *MIXED, up="onto"),
    Case("minkowski_k1", Minkowski(), "minkowski", ONE, TWO, up="onto", up_kernel=THREE),
    Case("minkowski_inverse", Minkowski(), "minkowski", THREE, TWO, up="inverse"),
    Case("minkowski_generative", Minkowski(), "minkowski", TWO, TWO, up="generative"),
    Case("minkowski_generative3", Minkowski(), "minkowski", *MIXED, up="generative"),
    Case("minkowski_channelwise", Minkowski(), "minkowski", (2, 3, 2), TWO, **DEEP),
    Case("warpconvnet_k2", WarpConvNet(), "warpconvnet", TWO, TWO, up="onto"),
    Case("warpconvnet_mixed", WarpConvNet(), "warpconvnet", *MIXED, up="generative"),
    Case("warpconvnet_groups", WarpConvNet(), "warpconvnet", THREE, TWO, up="onto", groups=2),
    Case("warpconvnet_depthwise", WarpConvNet(True), "warpconvnet", TWO, TWO, up="onto", **DEEP),
]
BY_NAME = {case.name: case for case in CASES}


def voxels(seed, ci, low):
    """About half of a grid, in any order; with `low` some coordinates are negative."""
    rng = np.random.default_rng(seed)
    coords = np.stack(np.meshgrid(range(SAMPLES), *map(range, SHAPE), indexing="ij"), -1)
    coords = rng.permutation(coords.reshape(-1, 4))[:SAMPLES * product(SHAPE) // 2]
    coords[:, 1:] -= low
    return coords.astype(np.int32), rng.normal(size=(len(coords), ci)).astype(np.float32)


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("levels")
    for case in CASES:
        case.write(folder)
    with Daemon(folder, tmp_path_factory.mktemp("daemon")) as one, Client(one.grpc) as connected:
        yield connected


# At most 64 * 8 products in fp32 in each of three layers, which sum to at most 102: if all errors
# add up, 3 * 512 * 2^-24 * 102 < 1e-2.  A wrong order is wrong by 1.
@pytest.mark.parametrize("name", BY_NAME)
def test_a_checkpoint_is_answered_as_its_library_does(client, name):
    case = BY_NAME[name]
    coords, feats = voxels(3, case.channels[0], 5 if case.library.rule == "floor" else 0)
    np.testing.assert_allclose(client.infer(name, coords, feats)["out"],
                               case.answer(coords, feats), rtol=0, atol=1e-2)


# The same numbers as another library would read them: the answers under a wrong name.
@pytest.mark.parametrize("name, other", [("torchsparse_k2", Minkowski()),
                                         ("warpconvnet_k2", Minkowski()),
                                         ("minkowski_inverse", WarpConvNet())])
def test_the_orders_differ(client, name, other):
    case = BY_NAME[name]
    coords, feats = voxels(3, case.channels[0], 5)
    got = client.infer(name, coords, feats)["out"]
    assert np.mean(np.abs(got - case.answer(coords, feats, other)) > 0.1) > 0.3


@pytest.mark.parametrize("name, layout, said", [
    ("minkowski_k3", "torchsparse", 'set "rule": "spconv" and "padding"'),
    ("spconv_k3", "minkowski", 'set "rule": "floor"'),
    ("flexgemm_k3", "spconv", None)])
def test_a_name_that_cannot_be_right_is_refused(tmp_path, name, layout, said):
    case = BY_NAME[name]
    network = json.loads(json.dumps(case.network))
    for layer in network["layers"]:
        if "layout" in layer:
            layer["layout"] = layout
    case.write(tmp_path)
    (tmp_path / name / "network.json").write_text(json.dumps(network))
    ran = subprocess.run([VOXELD, "check", tmp_path / name], capture_output=True, text=True)
    assert ran.returncode == (1 if said else 0)
    assert (said or "") in ran.stderr
