# SPDX-License-Identifier: Apache-2.0
"""With a checkpoint of each library the daemon answers as that library does.

For each library a small function here writes the weight as the library does and computes the
convolution as the library's source does: which number multiplies which neighbour.  The
daemon gets the same tensor, the layout's name, and the same coordinates, unchanged."""
import itertools
import json
import os
import subprocess

import numpy as np
import pytest

from model_files import random_grid, write_safetensors
from voxeld import Client
from voxeld_process import Daemon

VOXELD = os.environ["VOXELD"]
CI = 3
KERNELS = [(3, 3, 3), (5, 1, 3), (1, 1, 1), (1, 3, 1)]
CHANNELS = [5, CI]  # with ci == co a transposed weight has the right shape
DILATION = (1, 2, 3)


def centred(k):
    return [range(-(size // 2), size // 2 + 1) for size in k]


def spconv(weight, k):
    """[Co, K0, K1, K2, Ci] over columns 1 to 3; 1^3 is a product with view(Ci, Co)."""
    co, ci = weight.shape[0], weight.shape[-1]
    if k == (1, 1, 1):
        return {(0, 0, 0): weight.reshape(-1).reshape(ci, co)}
    return {at: weight[(slice(None), *(a + s // 2 for a, s in zip(at, k)))].T
            for at in itertools.product(*centred(k))}


def torchsparse(weight, k):
    """[V, Ci, Co]; in V z varies slowest and x fastest; a matrix for V = 1."""
    x, y, z = centred(k)
    offsets = [(i, j, m) for m in z for j in y for i in x]
    return dict(zip(offsets, weight.reshape(len(offsets), *weight.shape[-2:])))


def minkowski(weight, k):
    """[V, Ci, Co]: the offset's number modulo the first axis, then the quotient, and so on."""
    matrices = {}
    for number, matrix in enumerate(weight.reshape(np.prod(k), *weight.shape[-2:])):
        at = []
        for size in k:
            at.append(number % size - size // 2)
            number //= size
        matrices[tuple(at)] = matrix
    return matrices


def warpconvnet(weight, k):
    """[V, Ci, Co], V in the order of numpy's meshgrid with indexing="ij"."""
    grids = np.meshgrid(*(np.arange(size) - size // 2 for size in k), indexing="ij")
    return {tuple(int(g) for g in at): weight[v]
            for v, at in enumerate(zip(*(grid.ravel() for grid in grids)))}


def flexgemm(weight, k):
    """[Co, Kw, Kh, Kd, Ci] as [Co, V, Ci], also for V = 1."""
    flat = weight.reshape(weight.shape[0], -1, weight.shape[-1])
    matrices = {}
    for v in range(flat.shape[1]):
        at = v // (k[1] * k[2]), v // k[2] % k[1], v % k[2]
        matrices[tuple(a - s // 2 for a, s in zip(at, k))] = flat[:, v].T
    return matrices


def spconv1(weight, k):
    """[K0, K1, K2, Ci, Co]."""
    return {at: weight[tuple(a + s // 2 for a, s in zip(at, k))]
            for at in itertools.product(*centred(k))}


def offsets_outside(k, co):
    return (int(np.prod(k)), CI, co)


def matrix_or_offsets_outside(k, co):
    return (CI, co) if k == (1, 1, 1) else offsets_outside(k, co)


# name: (shape of a weight, its matrices by offset, shape of a bias, name of the tensors)
LIBRARIES = {
    "spconv": (lambda k, co: (co, *k, CI), spconv, lambda co: (co,), "weight"),
    "torchsparse": (matrix_or_offsets_outside, torchsparse, lambda co: (co,), "kernel"),
    "minkowski": (matrix_or_offsets_outside, minkowski, lambda co: (1, co), "kernel"),
    "warpconvnet": (offsets_outside, warpconvnet, lambda co: (co,), "weight"),
    "flexgemm": (lambda k, co: (co, *k, CI), flexgemm, lambda co: (co,), "weight"),
    "oxyzi": (lambda k, co: (co, *k, CI), flexgemm, lambda co: (co,), "weight"),
    "vio": (offsets_outside, warpconvnet, lambda co: (co,), "weight"),
    "xyzio": (lambda k, co: (*k, CI, co), spconv1, lambda co: (co,), "weight"),
}


def convolve(coords, feats, matrices, dilation, bias):
    rows = {tuple(c): i for i, c in enumerate(coords.tolist())}
    out = np.tile(bias.astype(np.float64).reshape(1, -1), (len(coords), 1))
    for i, (sample, *at) in enumerate(coords.tolist()):
        for offset, matrix in matrices.items():
            j = rows.get((sample, *(a + o * d for a, o, d in zip(at, offset, dilation))))
            if j is not None:
                out[i] += feats[j].astype(np.float64) @ matrix.astype(np.float64)
    return out


def dilation_of(library):
    return (1, 1, 1) if library == "torchsparse" else DILATION  # TorchSparse 2 has none


class Checkpoint:
    """One network of a library: a convolution for every kernel and number of channels."""

    def __init__(self, library):
        shape, self.matrices, bias_shape, word = LIBRARIES[library]
        rng = np.random.default_rng(len(library))
        self.library, self.tensors, self.outputs, layers = library, {}, {}, []
        for k, co in itertools.product(KERNELS, CHANNELS):
            name = f"conv{k[0]}{k[1]}{k[2]}_{co}"
            weight = rng.normal(size=shape(k, co)).astype(np.float32)
            bias = rng.normal(size=bias_shape(co)).astype(np.float32)
            self.tensors[f"{name}.{word}"], self.tensors[f"{name}.bias"] = weight, bias
            self.outputs[name] = k, weight, bias
            layers.append({"name": name, "op": "subm_conv", "input": "feats", "channels": co,
                           "kernel": list(k), "dilation": list(dilation_of(library)),
                           "layout": library, "tensors": {"weight": f"{name}.{word}"}})
        self.network = {"format": 1, "inputs": {"feats": {"channels": CI}}, "layers": layers,
                        "outputs": [{"layer": layer["name"]} for layer in layers],
                        "warmup": []}

    def write(self, repository):
        folder = repository / self.library / "1"
        folder.mkdir(parents=True)
        (repository / self.library / "network.json").write_text(json.dumps(self.network))
        write_safetensors(folder / "weights.safetensors", self.tensors)

    def answer(self, name, coords, feats):
        k, weight, bias = self.outputs[name]
        return convolve(coords, feats, self.matrices(weight, k), dilation_of(self.library), bias)


@pytest.fixture(scope="module")
def checkpoints():
    return {library: Checkpoint(library) for library in LIBRARIES}


@pytest.fixture(scope="module")
def folder(checkpoints, tmp_path_factory):
    path = tmp_path_factory.mktemp("libraries")
    for checkpoint in checkpoints.values():
        checkpoint.write(path)
    return path


@pytest.fixture(scope="module")
def libraries(folder, tmp_path_factory):
    with Daemon(folder, tmp_path_factory.mktemp("daemon")) as one, Client(one.grpc) as client:
        yield client


# At most 27 * 3 products of order 1 in fp32, summed in any order: 81 * 2^-24 * 81 < 4e-4; a wrong
# order is wrong by 1.
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_checkpoint_is_answered_as_its_library_does(libraries, checkpoints, library):
    coords, feats = random_grid(3, 150, ci=CI, samples=2)
    got = libraries.infer(library, coords, feats)
    for name in checkpoints[library].outputs:
        np.testing.assert_allclose(got[name], checkpoints[library].answer(name, coords, feats),
                                   rtol=4e-4, atol=4e-4, err_msg=f"{library} {name}")


# The same numbers read in the layout of each other library: the answers under a wrong name.
@pytest.mark.parametrize("ours, other", [("torchsparse", warpconvnet), ("minkowski", warpconvnet),
                                         ("warpconvnet", minkowski)])
def test_the_orders_differ(libraries, checkpoints, ours, other):
    coords, feats = random_grid(3, 150, ci=CI, samples=2)
    got = libraries.infer(ours, coords, feats)["conv333_3"]
    k, weight, bias = checkpoints[ours].outputs["conv333_3"]
    wrong = convolve(coords, feats, other(weight, k), dilation_of(ours), bias)
    assert np.mean(np.abs(got - wrong) > 0.1) > 0.3


def test_a_kernel_of_one_offset_of_spconv_is_not_what_its_shape_says(libraries, checkpoints):
    coords, feats = random_grid(3, 150, ci=CI, samples=2)
    k, weight, bias = checkpoints["spconv"].outputs["conv111_3"]
    got = libraries.infer("spconv", coords, feats)["conv111_3"]
    wrong = convolve(coords, feats, flexgemm(weight, k), DILATION, bias)
    assert np.mean(np.abs(got - wrong) > 0.1) > 0.3


def test_any_order_of_axes_serves_if_training_had_the_same(libraries, checkpoints):
    """spconv's [b, z, y, x] unchanged: a kernel's axes are the columns, whatever their names."""
    coords, feats = random_grid(5, 150, ci=CI, samples=2)
    bzyx = np.ascontiguousarray(coords[:, [0, 3, 2, 1]])
    got = libraries.infer("spconv", bzyx, feats)
    for name in checkpoints["spconv"].outputs:
        np.testing.assert_allclose(got[name], checkpoints["spconv"].answer(name, bzyx, feats),
                                   rtol=4e-4, atol=4e-4)


@pytest.mark.parametrize("library", LIBRARIES)
def test_check_prints_the_layout(folder, library):
    said = subprocess.run([VOXELD, "check", folder / library], capture_output=True, text=True,
                          check=True).stdout
    lines = [line.split() for line in said.splitlines() if line.startswith("  conv")]
    layers = [line for line in lines if "subm_conv" in line]
    assert len(layers) == len(KERNELS) * len(CHANNELS)
    assert all(library in line for line in layers), said


def test_a_layout_that_is_not_said_is_refused_where_it_matters(checkpoints, tmp_path):
    """A checkpoint without a layout name is refused, not answered wrong."""
    for library in ("torchsparse", "minkowski", "warpconvnet"):
        checkpoint = Checkpoint(library)
        for layer in checkpoint.network["layers"]:
            del layer["layout"]
        checkpoint.write(tmp_path)
        said = subprocess.run([VOXELD, "check", tmp_path / library], capture_output=True,
                              text=True)
        # TorchSparse cannot have written a dilated one.
        words = '"minkowski", "warpconvnet"'
        if dilation_of(library) == (1, 1, 1):
            words = f'"torchsparse", {words}'
        assert said.returncode == 1
        assert f'set "layout" to the one that wrote it: {words}' in said.stderr


def test_what_no_library_writes_says_the_letters(tmp_path):
    """A sentence that ends with "expected shape" and nothing helps nobody."""
    network = {"format": 1, "inputs": {"coords": {"name": "coords", "spatial_shape": [9, 9, 9]},
                                       "feats": {"channels": 3}},
               "layers": [{"name": "c", "op": "sparse_conv", "input": "feats", "kernel": 3,
                           "stride": 2, "rule": "spconv", "padding": 0, "groups": 3,
                           "channels": 3, "bias": False}],
               "outputs": [{"layer": "c"}]}
    (tmp_path / "1").mkdir()
    (tmp_path / "network.json").write_text(json.dumps(network))
    write_safetensors(tmp_path / "1" / "weights.safetensors",
                      {"c.weight": np.ones((27, 3), np.float32)})
    said = subprocess.run([VOXELD, "check", tmp_path], capture_output=True, text=True)
    assert said.returncode == 1 and (
        'no library writes a weight for such a layer: expected shape [3, 3, 3, 3, 1], and '
        '"layout": "oxyzi", got [27, 3]') in said.stderr, said
