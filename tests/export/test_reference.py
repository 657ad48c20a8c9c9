# SPDX-License-Identifier: Apache-2.0
"""The parts of the references: against spconv's modules, a stand-in of MinkowskiEngine, torch's
dense convolution, and TorchSparse's offsets counted out."""

import sys

import numpy as np
import pytest
import spconv.pytorch as sp
import torch
from conftest import ROOT, cloud
from reference import sparse
from reference.sparse import Inverse, Sites, Sparse, Strided, Subm, randomise
from torch import nn

sys.path.insert(0, str(ROOT / "tests" / "export" / "standins"))
import MinkowskiEngine as ME

SHAPE = (9, 8, 10)
KINDS = ["scatter", "sheet", "blob"]


def request(kind, channels=4):
    coords = cloud(kind, SHAPE)
    torch.manual_seed(3)
    return coords, torch.randn(len(coords), channels)


def same(ours, feats, coords):
    """Equal rows, in whatever order the library has them."""
    rows = ours.sites.find(coords)
    assert (rows >= 0).all() and len(rows) == len(ours.sites)
    difference = (ours.feats[torch.from_numpy(rows)] - feats).abs().max()
    assert difference <= 1e-6 * feats.abs().max()


SPCONV = {
    "subm 3": (lambda: Subm("spconv", 4, 6, bias=True), lambda: sp.SubMConv3d(4, 6, 3)),
    "subm 5": (lambda: Subm("spconv", 4, 6, 5, bias=True), lambda: sp.SubMConv3d(4, 6, 5)),
    "subm 1": (lambda: Subm("spconv", 4, 6, 1, bias=True), lambda: sp.SubMConv3d(4, 6, 1)),
    "subm 3x1x5": (
        lambda: Subm("spconv", 4, 6, (3, 1, 5), bias=True),
        lambda: sp.SubMConv3d(4, 6, (3, 1, 5)),
    ),
    "subm dilated": (
        lambda: Subm("spconv", 4, 6, bias=True, dilation=2),
        lambda: sp.SubMConv3d(4, 6, 3, dilation=2),
    ),
    "2/2": (lambda: Strided("spconv", 4, 6, 2, 2, bias=True), lambda: sp.SparseConv3d(4, 6, 2, 2)),
    "3/2": (
        lambda: Strided("spconv", 4, 6, 3, 2, padding=(0, 1, 1), bias=True),
        lambda: sp.SparseConv3d(4, 6, 3, 2, padding=(0, 1, 1)),
    ),
    "3x1x1/2x1x1": (
        lambda: Strided("spconv", 4, 6, (3, 1, 1), (2, 1, 1), bias=True),
        lambda: sp.SparseConv3d(4, 6, (3, 1, 1), (2, 1, 1)),
    ),
    "1/2": (lambda: Strided("spconv", 4, 6, 1, 2, bias=True), lambda: sp.SparseConv3d(4, 6, 1, 2)),
    "inverse": (
        lambda: nn.Sequential(
            Strided("spconv", 4, 6, 3, 2, padding=1), Inverse("spconv", 6, 5, 3, bias=True)
        ),
        lambda: sp.SparseSequential(
            sp.SparseConv3d(4, 6, 3, 2, padding=1, bias=False, indice_key="a"),
            sp.SparseInverseConv3d(6, 5, 3, indice_key="a"),
        ),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SPCONV)
def test_spconv(kind, name):
    ours, theirs = (make() for make in SPCONV[name])
    theirs.load_state_dict(randomise(ours).state_dict())
    coords, feats = request(kind)
    # On a CPU spconv adds a bias in training mode only.
    answer = theirs.train()(sp.SparseConvTensor(feats, coords, list(SHAPE), 2))
    found = ours(Sparse(Sites(coords.numpy(), shape=SHAPE), feats))
    same(found, answer.features, answer.indices.numpy())
    assert found.sites.shape.tolist() == list(answer.spatial_shape)


def me(ci, co, kernel, stride=1, up=False):
    kind = ME.MinkowskiConvolutionTranspose if up else ME.MinkowskiConvolution
    return kind(ci, co, kernel, stride=stride, dimension=3)


MINKOWSKI = {
    "3": (lambda: Subm("minkowski", 4, 6), lambda: me(4, 6, 3)),
    "5": (lambda: Subm("minkowski", 4, 6, 5), lambda: me(4, 6, 5)),
    "1": (lambda: Subm("minkowski", 4, 6, 1), lambda: me(4, 6, 1)),
    "2/2": (lambda: Strided("minkowski", 4, 6, 2, 2), lambda: me(4, 6, 2, 2)),
    "3/2": (lambda: Strided("minkowski", 4, 6, 3, 2), lambda: me(4, 6, 3, 2)),
    "up": (
        lambda: nn.Sequential(Strided("minkowski", 4, 6, 2, 2), Inverse("minkowski", 6, 5, 2)),
        lambda: nn.Sequential(me(4, 6, 2, 2), me(6, 5, 2, 2, up=True)),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MINKOWSKI)
def test_minkowski(kind, name):
    ours, theirs = (make() for make in MINKOWSKI[name])
    theirs.load_state_dict(randomise(ours).state_dict())
    coords, feats = request(kind)
    coords[:, 1:] -= 3
    answer = theirs(ME.SparseTensor(feats, coordinates=coords))
    at = answer.C.numpy().copy()
    at[:, 1:] //= answer.tensor_stride
    same(ours(Sparse(Sites(coords.numpy()), feats)), answer.F, at)


def counted(size, odd):
    """TorchSparse's offsets by its own rule: x fastest if there is an odd number of them."""
    steps = range(-size // 2 + 1, size // 2 + 1)
    for a in steps:
        for b in steps:
            for c in steps:
                yield (c, b, a) if odd else (a, b, c)


@pytest.mark.parametrize("size", [3, 5, 2])
def test_torchsparse(size):
    coords, feats = request("sheet", 3)
    x = Sparse(Sites(coords.numpy()), feats.double())
    down = size == 2
    net = Strided("torchsparse", 3, 4, 2, 2) if down else Subm("torchsparse", 3, 4, size)
    answer = randomise(net).double()(x)
    rows = {tuple(voxel): row for row, voxel in enumerate(coords.tolist())}
    for row, (sample, *voxel) in enumerate(answer.sites.coords.tolist()):
        total = torch.zeros(4, dtype=torch.float64)
        for matrix, offset in zip(net.kernel, counted(size, not down)):
            away = [a * (2 if down else 1) + b for a, b in zip(voxel, offset)]
            if (sample, *away) in rows:
                total += x.feats[rows[(sample, *away)]] @ matrix
        assert torch.allclose(total, answer.feats[row], rtol=0, atol=1e-12)


def test_dense():
    """A submanifold convolution is torch's dense one, where there are voxels."""
    coords, feats = request("scatter")
    x = Sparse(Sites(coords.numpy(), shape=SHAPE), feats.double())
    net = randomise(Subm("flexgemm", 4, 6, bias=True)).double()
    weight = net.weight.permute(0, 4, 1, 2, 3)
    dense = nn.functional.conv3d(sparse.to_dense(x), weight, net.bias, padding=1)
    at = coords.long()
    found = dense[at[:, 0], :, at[:, 1], at[:, 2], at[:, 3]]
    assert torch.allclose(found, net(x).feats, rtol=0, atol=1e-12)


def test_points():
    """Means by hand; on a corner the trilinear weights read that voxel alone."""
    coords, feats = request("blob")
    points = Sparse(Sites(coords.numpy()), feats.double())
    sites, _ = sparse.strided(points.sites, 2, 2)
    voxels = sparse.voxelize(points, sites)
    inside = (coords.numpy() // [1, 2, 2, 2] == sites.coords[5]).all(1)
    assert torch.allclose(voxels.feats[5], points.feats[torch.from_numpy(inside)].mean(0))
    back = sparse.devoxelize(voxels, points.sites)
    corner = np.flatnonzero((coords[:, 1:] % 2 == 0).all(1))[0]
    own = sites.find(coords.numpy() // [1, 2, 2, 2])
    assert torch.allclose(back.feats[corner], voxels.feats[own[corner]])
    odd = np.flatnonzero((coords[:, 1:] % 2 == 1).all(1))[0]
    corners = coords.numpy()[odd] // [1, 2, 2, 2] + np.insert(sparse.offsets((2, 2, 2)), 0, 0, 1)
    there = sites.find(corners)
    wanted = voxels.feats[torch.from_numpy(there[there >= 0])].mean(0)
    assert torch.allclose(back.feats[odd], wanted, rtol=1e-7)
