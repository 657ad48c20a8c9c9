# SPDX-License-Identifier: Apache-2.0
"""Modules of WarpConvNet, by a stand-in that has its names and computes pair by pair."""

import json
import sys

import pytest
import torch
from conftest import ROOT, cloud, trained
from torch import nn
from voxeld_export import ExportError, from_module

sys.path.insert(0, str(ROOT / "tests" / "export" / "standins"))
from warpconvnet.geometry.types.voxels import Voxels, from_feats_coords  # noqa: E402
from warpconvnet.nn.functional.sparse_conv import STRIDED_CONV_MODE  # noqa: E402
from warpconvnet.nn.functional.transforms import cat  # noqa: E402
from warpconvnet.nn.modules import activations as act  # noqa: E402
from warpconvnet.nn.modules import normalizations as norm  # noqa: E402
from warpconvnet.nn.modules import sparse_pool as pool  # noqa: E402
from warpconvnet.nn.modules import sparse_resample as resample  # noqa: E402
from warpconvnet.nn.modules.attention import PatchAttention  # noqa: E402
from warpconvnet.nn.modules.mlp import Linear  # noqa: E402
from warpconvnet.nn.modules.prune import SparsePrune  # noqa: E402
from warpconvnet.nn.modules.sequential import Sequential  # noqa: E402
from warpconvnet.nn.modules.sparse_conv import (  # noqa: E402
    SparseConv2d,
    SparseConv3d,
    SparseDepthwiseConv3d,
)

KINDS = ["scatter", "sheet", "blob"]
REDUCE = STRIDED_CONV_MODE.REDUCE_AND_STRIDE


def tensor(kind, channels, shape=(9, 8, 10), samples=2, first=-3):
    coords = cloud(kind, shape, samples)
    coords = coords[coords[:, 0].sort(stable=True)[1]]
    coords[:, 1:] += first  # some are negative: floor is not truncation
    torch.manual_seed(3)
    return from_feats_coords(torch.randn(len(coords), channels), coords)


def layers(folder):
    return {
        layer["name"]: layer
        for layer in json.loads((folder / "network.json").read_text())["layers"]
    }


def block(ci, co, kernel, stride=1, **more):
    conv = SparseConv3d(ci, co, kernel, stride, bias=False, **more)
    return Sequential(conv, nn.BatchNorm1d(co), nn.ReLU(inplace=True))


class Residual(nn.Module):
    def __init__(self, ci, co):
        super().__init__()
        self.conv1 = block(ci, co, 3)
        self.conv2 = Sequential(SparseConv3d(co, co, 3, bias=False), norm.BatchNorm(co))
        self.downsample = Sequential(SparseConv3d(ci, co, 1, bias=False), nn.BatchNorm1d(co))
        self.relu = act.ReLU(inplace=True)

    def forward(self, x):
        out = self.conv2(self.conv1(x))
        out += self.downsample(x)
        return self.relu(out)


class MinkUNet(nn.Module):
    """As mink_unet.py: transposed onto the voxels of the skip."""

    def __init__(self):
        super().__init__()
        self.conv0 = block(3, 16, 5)
        self.conv1, self.block1 = block(16, 16, 2, 2), Residual(16, 32)
        self.conv2, self.block2 = block(32, 32, 2, 2), Residual(32, 32)
        self.up2 = SparseConv3d(32, 32, 2, 2, transposed=True, bias=False)
        self.block3 = Residual(64, 32)
        self.up1 = SparseConv3d(32, 16, 2, 2, transposed=True)
        self.final = SparseConv3d(32, 5, 1)

    def forward(self, x):
        p1 = self.conv0(x)
        p2 = self.block1(self.conv1(p1))
        y = self.up2(self.block2(self.conv2(p2)), p2)
        y = self.block3(cat(y, p2))
        return self.final(cat(self.up1(y, p1), p1))


@pytest.mark.parametrize("kind", KINDS)
def test_unet(folder, kind):
    report = from_module(trained(MinkUNet()), tensor(kind, 3), folder)
    assert [d.name for d in report.differences] == ["out"]
    made = layers(folder)
    assert (made["conv1.0"]["rule"], made["up1"]["onto"]) == ("floor", "feats")
    assert made["up2"]["onto"] == "conv1.0" and made["conv0.0"]["layout"] == "warpconvnet"


class With(nn.Module):
    """A function of modules."""

    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, x):
        return self.function(self, x)


def pruned(net, x):
    keep = net.prune(net.conv(x), net.logit(x.feats).squeeze(1) > 0.1)
    return net.conv(keep)


MODULES = {
    "conv 3": lambda: SparseConv3d(4, 6, 3),
    "conv 1": lambda: SparseConv3d(4, 4, 1),
    "conv 3x5x1": lambda: SparseConv3d(4, 6, (3, 5, 1), bias=False),
    "conv of groups": lambda: SparseConv3d(4, 6, 3, groups=2),
    "depthwise": lambda: SparseDepthwiseConv3d(4, 3),
    "depthwise 2/2": lambda: SparseDepthwiseConv3d(4, 2, 2, bias=False),
    "conv 3/2": lambda: SparseConv3d(4, 6, 3, 2),
    "conv 2/2": lambda: SparseConv3d(4, 6, 2, 2),
    "conv 1/2": lambda: SparseConv3d(4, 6, 1, 2),
    "conv 4/2": lambda: SparseConv3d(4, 6, 4, 2),
    "conv 3x2x1/3x2x1": lambda: SparseConv3d(4, 6, (3, 2, 1), (3, 2, 1)),
    "reduce, conv 3/2": lambda: SparseConv3d(4, 6, 3, 2, stride_mode=REDUCE),
    "transposed 3/2": lambda: With(
        lambda n, x: n.up(n.down(x), x),
        down=SparseConv3d(4, 6, 3, 2),
        up=SparseConv3d(6, 4, 3, 2, transposed=True),
    ),
    "generative 3": lambda: SparseConv3d(4, 6, 3, generative=True),
    "generative 3, transposed": lambda: SparseConv3d(4, 6, 3, generative=True, transposed=True),
    "generative 2/2": lambda: nn.Sequential(
        SparseConv3d(4, 6, 4, 4), SparseConv3d(6, 4, 2, 2, generative=True, transposed=True)
    ),
    "generative 3/2": lambda: nn.Sequential(
        SparseConv3d(4, 6, 2, 2), SparseConv3d(6, 4, 3, 2, generative=True, transposed=True)
    ),
    "max pool": lambda: pool.SparseMaxPool(2, 2),
    "max pool 3/2": lambda: pool.SparseMaxPool(3, 2),
    "mean pool": lambda: pool.SparsePool(2, 2, "mean"),
    "sum pool 3/2": lambda: pool.SparsePool(3, 2, "sum"),
    "pool and back": lambda: With(
        lambda n, x: n.up(n.down(x), x), down=pool.SparseMaxPool(2, 2), up=pool.SparseUnpool(2, 2)
    ),
    "pool and back alone": lambda: With(
        lambda n, x: n.up(n.down(x), x),
        down=pool.SparseMaxPool(2, 2),
        up=pool.SparseUnpool(2, 2, concat_unpooled_st=False),
    ),
    "global max": lambda: pool.GlobalPool("max"),
    "global mean": lambda: pool.GlobalPool("mean"),
    "global sum": lambda: pool.GlobalPool("sum"),
    "prune": lambda: With(
        pruned, prune=SparsePrune(), conv=SparseConv3d(4, 4, 3), logit=nn.Linear(4, 1)
    ),
    "norms": lambda: nn.Sequential(
        norm.LayerNorm(4), norm.BatchNorm(4), norm.GroupNorm(1, 4), norm.InstanceNorm(4)
    ),
    "norm of features": lambda: Sequential(norm.LayerNorm32(4), Linear(4, 6)),
    "activations": lambda: nn.Sequential(
        act.SiLU(), act.GELU(), act.LeakyReLU(), act.ReLU(), act.DropPath(), act.Softmax()
    ),
    "linear": lambda: Linear(4, 7, bias=False),
    "arithmetic": lambda: With(lambda n, x: (x * 2 + n.linear(x)) / 3 - x * x, linear=Linear(4, 4)),
}


@pytest.mark.parametrize("name", MODULES)
def test_module(folder, name):
    kind = KINDS[sum(name.encode()) % 3]
    from_module(trained(nn.Sequential(MODULES[name]())), tensor(kind, 4, samples=3), folder)


@pytest.mark.parametrize("kind", KINDS)
def test_two_axes(folder, kind):
    net = nn.Sequential(SparseConv2d(4, 8, 3), SparseConv2d(8, 6, 2, 2), act.ReLU())
    with pytest.warns(UserWarning, match=r"requests send the four columns \[b, y, x, 0\]"):
        from_module(trained(net), tensor(kind, 4, (20, 24)), folder)
    assert layers(folder)["0"]["kernel"] == [3, 3, 1]


class Resampled(nn.Module):
    """sparse_unet.py's blocks without their norms: packed, and unpacked by prediction."""

    def __init__(self):
        super().__init__()
        self.pack = resample.SparseSpatial2Channel(2)
        self.unpack = resample.SparseChannel2Spatial(2)
        self.conv, self.wide = SparseConv3d(4, 8, 3), SparseConv3d(8, 32, 3)
        self.to_subdiv = nn.Linear(8, 8)

    def forward(self, x):
        there = self.unpack(self.pack(x)) + x
        h = self.conv(there)
        sub = h.replace_features(self.to_subdiv(h.feats) > 0)
        fine = self.unpack(self.wide(h), sub)
        skip = self.unpack(h, sub)
        return fine + skip.replace_features(skip.feats.repeat_interleave(4, dim=1))


@pytest.mark.parametrize("kind", KINDS)
def test_resampled(folder, kind):
    from_module(trained(Resampled()), tensor(kind, 4, (6, 5, 7), first=0), folder)
    assert layers(folder)["unpack"]["onto"] == "feats"


RESAMPLED = {
    "downsample": lambda: resample.SparseDownsample(2),
    "down, up": lambda: nn.Sequential(resample.SparseDownsample(2), resample.SparseUpsample(2)),
    "subdivide": lambda: nn.Sequential(resample.SparseSubdivide(2), SparseConv3d(4, 4, 3)),
    "subdivide 3": lambda: resample.SparseSubdivide(3),
}


@pytest.mark.parametrize("name", RESAMPLED)
def test_resampling_module(folder, name):
    net = trained(nn.Sequential(RESAMPLED[name]()))
    from_module(net, tensor("sheet", 4, (6, 5, 7), first=0), folder)


REFUSED = {
    "attention": (
        lambda: PatchAttention(4, 64),
        "WarpConvNet's PatchAttention in module 0, which no layer does",
    ),
    "an even kernel": (
        lambda: SparseConv3d(4, 6, 2),
        "SparseConv3d in module 0 has kernel [2, 2, 2] on its input's voxels; expected odd",
    ),
    "a centred block": (
        lambda: pool.SparseMaxPool(3, 3),
        "SparseMaxPool in module 0 pools [3, 3, 3] voxels around every [3, 3, 3], centred",
    ),
    "a minimum": (
        lambda: pool.SparsePool(2, 2, "min"),
        'SparsePool in module 0 has reduce "min"; expected "max" or "mean" or "sum"',
    ),
    "an even generative": (
        lambda: SparseConv3d(4, 6, 2, generative=True),
        "SparseConv3d in module 0 has kernel [2, 2, 2] on its input's voxels; expected odd",
    ),
    "its output's voxels": (
        lambda: With(lambda n, x: n.conv(x, x), conv=SparseConv3d(4, 6, 3)),
        "SparseConv3d in module 0.conv is given the voxels of its output",
    ),
    "a function": (
        lambda: Sequential(act.ELU(), Linear(4, 4)),
        "torch's elu in module 0.0, which no layer does",
    ),
    "groups of a row": (
        lambda: norm.GroupNorm(2, 4),
        "torch's group_norm in module 0.norm: it has 2 groups of channels of each single row",
    ),
    "a mask of rows": (
        lambda: With(
            lambda n, x: n.prune(x, torch.arange(len(x.feats)) % 2 == 0), prune=SparsePrune()
        ),
        "SparsePrune in module 0.prune, which reads a tensor",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(folder, name):
    make, said = REFUSED[name]
    with pytest.raises(ExportError) as error:
        from_module(trained(nn.Sequential(make())), tensor("sheet", 4), folder)
    assert said in str(error.value)


def test_tensor_is_as_before(folder):
    """Voxels keep what they are: coordinates count the voxels of their own stride."""
    x = tensor("sheet", 4)
    y = SparseConv3d(4, 4, 2, 2)(x)
    assert isinstance(y, Voxels) and y.tensor_stride == (2, 2, 2)
    assert int(y.coords[:, 1:].max()) < int(x.coords[:, 1:].max())
    assert not folder.exists()


class Averaged(nn.Module):
    """Of a tensor over the number of its voxels."""

    def __init__(self):
        super().__init__()
        self.conv = SparseConv3d(4, 6, 3)

    def forward(self, x):
        return self.conv(x).feature_tensor / len(x.feature_tensor)


def test_a_number_of_voxels(folder):
    with pytest.raises(ExportError, match="the layer div has scale .*for other voxels"):
        from_module(trained(Averaged()), tensor("scatter", 4), folder)
