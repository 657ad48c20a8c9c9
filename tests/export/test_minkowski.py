# SPDX-License-Identifier: Apache-2.0
"""Modules of MinkowskiEngine, by a stand-in that has its names and computes pair by pair."""

import json
import sys

import pytest
import torch
from conftest import ROOT, cloud, trained
from torch import nn
from voxeld_export import CheckFailed, ExportError, from_module
from voxeld_export.network import Network

sys.path.insert(0, str(ROOT / "tests" / "export" / "standins"))
import MinkowskiEngine as ME  # noqa: E402

KINDS = ["scatter", "sheet", "blob"]


def tensor(kind, channels, shape=(9, 8, 10), stride=1):
    coords = cloud(kind, shape)
    coords[:, 1:] -= 3  # some are negative: floor is not truncation
    coords[:, 1:] *= stride
    torch.manual_seed(3)
    return ME.SparseTensor(
        torch.randn(len(coords), channels), coordinates=coords, tensor_stride=stride
    )


def layers(folder):
    document = json.loads((folder / "network.json").read_text())
    return {layer["name"]: layer for layer in document["layers"]}


def conv(*args, **kwargs):
    return ME.MinkowskiConvolution(*args, dimension=kwargs.pop("dimension", 3), **kwargs)


def up(*args, **kwargs):
    return ME.MinkowskiConvolutionTranspose(*args, dimension=3, **kwargs)


class Block(nn.Module):
    """As in MinkUNet: BasicBlock of modules/resnet_block.py."""

    def __init__(self, ci, co):
        super().__init__()
        self.conv1 = conv(ci, co, kernel_size=3)
        self.norm1 = ME.MinkowskiBatchNorm(co)
        self.conv2 = conv(co, co, kernel_size=3, dilation=1, bias=True)
        self.norm2 = ME.MinkowskiBatchNorm(co)
        self.relu = ME.MinkowskiReLU(inplace=True)
        self.downsample = (
            nn.Sequential(conv(ci, co, kernel_size=1), ME.MinkowskiBatchNorm(co))
            if ci != co
            else None
        )

    def forward(self, x):
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        out += self.downsample(x) if self.downsample else x
        return self.relu(out)


class MinkUNet(ME.MinkowskiNetwork):
    """Two levels down and up, transposed onto the sets that are there."""

    def __init__(self):
        super().__init__(3)
        self.conv0 = conv(3, 16, kernel_size=5)
        self.bn0 = ME.MinkowskiBatchNorm(16)
        self.conv1 = conv(16, 16, kernel_size=2, stride=2)
        self.block1 = Block(16, 32)
        self.conv2 = conv(32, 32, kernel_size=2, stride=2)
        self.block2 = Block(32, 32)
        self.up2 = up(32, 32, kernel_size=2, stride=2)
        self.block3 = Block(64, 32)
        self.up1 = up(32, 16, kernel_size=2, stride=2, bias=True)
        self.final = conv(32, 5, kernel_size=1, bias=True)
        self.relu = ME.MinkowskiReLU()

    def forward(self, x):
        p1 = self.relu(self.bn0(self.conv0(x)))
        p2 = self.block1(self.conv1(p1))
        y = self.up2(self.block2(self.conv2(p2)))
        y = self.block3(ME.cat(y, p2))
        return self.final(ME.cat(self.up1(y), p1))


@pytest.mark.parametrize("kind, datatype", list(zip(KINDS, ["FP32", "FP16", "BF16"])))
def test_unet(folder, kind, datatype):
    report = from_module(trained(MinkUNet()), tensor(kind, 3), folder, datatype=datatype)
    assert [d.name for d in report.differences] == ["out"]
    made = layers(folder)
    assert (made["conv1"]["rule"], made["up1"]["onto"]) == ("floor", "feats")
    assert made["up2"]["onto"] == "conv1"
    assert not any(name.endswith(".same") for name in made)


class Squeeze(nn.Module):
    """As SELayer of modules/senet_block.py."""

    def __init__(self, channels):
        super().__init__()
        self.fc = nn.Sequential(
            ME.MinkowskiLinear(channels, 2),
            ME.MinkowskiReLU(inplace=True),
            ME.MinkowskiLinear(2, channels),
            ME.MinkowskiSigmoid(),
        )
        self.pooling = ME.MinkowskiGlobalPooling()
        self.broadcast_mul = ME.MinkowskiBroadcastMultiplication()

    def forward(self, x):
        return self.broadcast_mul(x, self.fc(self.pooling(x)))


class Of(nn.Module):
    """A function of modules that a test is about."""

    def __init__(self, function, *parts):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, x):
        return self.function(*self.parts, x)


def down(kernel=2, stride=2):
    return conv(4, 6, kernel_size=kernel, stride=stride)


MODULES = {
    "conv 3": lambda: conv(4, 6, kernel_size=3, bias=True),
    "conv 1": lambda: conv(4, 4, kernel_size=1, bias=True),
    "conv 3x5x1": lambda: conv(4, 6, kernel_size=(3, 5, 1)),
    "conv dilated": lambda: conv(4, 6, kernel_size=3, dilation=(1, 2, 3)),
    "conv 2": lambda: conv(4, 6, kernel_size=2, bias=True),
    "conv 4x3x2 dilated": lambda: conv(4, 6, kernel_size=(4, 3, 2), dilation=2),
    "conv 3/2": lambda: conv(4, 6, kernel_size=3, stride=2, bias=True),
    "conv 2/2": lambda: down(),
    "conv 1/2": lambda: down(1),
    "conv 5x4x3/2x3x1": lambda: down((5, 4, 3), (2, 3, 1)),
    "conv 3x2x1/3x2x1": lambda: down((3, 2, 1), (3, 2, 1)),
    "channelwise": lambda: ME.MinkowskiChannelwiseConvolution(4, 3, bias=True, dimension=3),
    "channelwise 2x3x2/2": lambda: ME.MinkowskiChannelwiseConvolution(
        4, (2, 3, 2), stride=2, dimension=3
    ),
    "transposed 3/2": lambda: nn.Sequential(down(3), up(6, 4, kernel_size=3, stride=2)),
    "transposed 3/1": lambda: up(4, 6, kernel_size=3, stride=1),
    "transposed 1": lambda: up(4, 6, kernel_size=1, bias=True),
    "transposed, new": lambda: nn.Sequential(down(4, 4), up(6, 4, kernel_size=2, stride=2)),
    "generative 2/2": lambda: nn.Sequential(
        down(),
        ME.MinkowskiGenerativeConvolutionTranspose(
            6, 4, kernel_size=2, stride=2, bias=True, dimension=3
        ),
        conv(4, 4, kernel_size=3),
    ),
    "generative 3x2x1/2x2x1": lambda: nn.Sequential(
        down(2, 4),
        ME.MinkowskiGenerativeConvolutionTranspose(
            6, 4, kernel_size=(3, 2, 1), stride=(2, 2, 1), dimension=3
        ),
    ),
    "average pool": lambda: ME.MinkowskiAvgPooling(2, stride=2, dimension=3),
    "average pool 3/1": lambda: Of(
        lambda pool, x: x + pool(x), ME.MinkowskiAvgPooling(3, stride=1, dimension=3)
    ),
    "sum pool": lambda: ME.MinkowskiSumPooling(3, stride=2, dimension=3),
    "max pool": lambda: ME.MinkowskiMaxPooling(3, stride=3, dimension=3),
    "pool and back": lambda: nn.Sequential(
        ME.MinkowskiMaxPooling(2, stride=2, dimension=3),
        ME.MinkowskiPoolingTranspose(2, stride=2, dimension=3),
    ),
    "pool, new": lambda: nn.Sequential(
        down(4, 4), ME.MinkowskiPoolingTranspose(2, stride=2, dimension=3)
    ),
    "global average": ME.MinkowskiGlobalAvgPooling,
    "global sum": ME.MinkowskiGlobalSumPooling,
    "global max": ME.MinkowskiGlobalMaxPooling,
    "squeeze": lambda: Squeeze(4),
    "broadcast": lambda: Of(
        lambda pool, add, beside, plain, conv, x: plain(
            conv(x), pool(beside(add(x, pool(x)), pool(x)))
        ),
        ME.MinkowskiGlobalMaxPooling(),
        ME.MinkowskiBroadcastAddition(),
        ME.MinkowskiBroadcastConcatenation(),
        ME.MinkowskiBroadcast(),
        down(),
    ),
    "instance norm": lambda: ME.MinkowskiInstanceNorm(4),
    "linear": lambda: ME.MinkowskiLinear(4, 7),
    "dropout, gelu": lambda: nn.Sequential(ME.MinkowskiDropout(), ME.MinkowskiGELU()),
    "leaky relu": lambda: ME.MinkowskiLeakyReLU(0.3),
    "feature": lambda: nn.Sequential(ME.MinkowskiToFeature(), nn.Linear(4, 3)),
    "stack": lambda: ME.MinkowskiStackSum(
        conv(4, 6, kernel_size=3), conv(4, 6, kernel_size=1), ME.MinkowskiLinear(4, 6)
    ),
    "operators": lambda: Of(
        lambda a, b, x: (a(x) - b(x)) * a(x) / 2 + b(x),
        conv(4, 6, kernel_size=3),
        conv(4, 6, kernel_size=1),
    ),
    # Both ways to stride 4 lead to one map, and so they may be added.
    "two ways": lambda: Of(
        lambda half, quarter, other, x: half(quarter(x)) + other(x),
        conv(6, 6, kernel_size=3, stride=2),
        down(),
        down(4, 4),
    ),
    "pruned": lambda: Of(
        lambda head, prune, conv, x: conv(prune(x, (head(x).F > 0).squeeze())),
        conv(4, 1, kernel_size=3),
        ME.MinkowskiPruning(),
        conv(4, 5, kernel_size=3),
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_module(folder, name):
    kind = KINDS[sum(name.encode()) % 3]
    from_module(trained(nn.Sequential(MODULES[name]())), tensor(kind, 4), folder)


@pytest.mark.parametrize("kind", KINDS)
def test_stride_of_the_input(folder, kind):
    """Requests count voxels of the input's stride; the library's coordinates are multiples."""
    net = nn.Sequential(
        conv(4, 6, kernel_size=3),
        ME.MinkowskiGenerativeConvolutionTranspose(6, 4, kernel_size=2, stride=2, dimension=3),
        conv(4, 4, kernel_size=2, stride=4),
    )
    from_module(trained(net), tensor(kind, 4, stride=2), folder)


def test_two_axes(folder):
    coords = cloud("scatter", (20, 24))
    x = ME.SparseTensor(torch.randn(len(coords), 4), coordinates=coords)
    net = nn.Sequential(
        conv(4, 6, kernel_size=3, dimension=2),
        conv(6, 8, kernel_size=2, stride=2, dimension=2),
        ME.MinkowskiConvolutionTranspose(8, 4, kernel_size=2, stride=2, dimension=2),
        ME.MinkowskiToDenseTensor(torch.Size([2, 4, 20, 24])),
    )
    with pytest.warns(UserWarning, match=r"requests send the four columns \[b, y, x, 0\]"):
        report = from_module(trained(net), x, folder)
    assert report.differences[0].shape == (2, 4, 20, 24)
    document = json.loads((folder / "network.json").read_text())
    # Its tensors have no shape, and coordinates below 0 are legal: only the description tells.
    assert document["inputs"]["coords"] == "coords" and "[b, y, x, 0]" in document["description"]


def test_dense(folder):
    x = ME.SparseTensor(torch.randn(200, 4), coordinates=cloud("scatter", (10, 9, 12))[:200])
    report = from_module(
        trained(nn.Sequential(down(), ME.MinkowskiToDenseTensor(torch.Size([2, 6, 5, 6, 6])))),
        x,
        folder,
    )
    assert report.differences[0].shape == (2, 6, 5, 6, 6)


def offsets_by_the_source(kernel):
    """coordinate_at of kernel_region.hpp, once more and by hand, of a kernel 3 x 2 x 1."""
    assert kernel == (3, 2, 1)
    return [(-1, 0, 0), (0, 0, 0), (1, 0, 0), (-1, 1, 0), (0, 1, 0), (1, 1, 0)]


@pytest.mark.parametrize("v", range(6))
def test_order_of_offsets(folder, v):
    """Of a kernel with one offset, a voxel's answer is its neighbour's, whom the source names."""
    net = trained(nn.Sequential(conv(1, 1, kernel_size=(3, 2, 1), stride=(1, 2, 1))))
    net[0].kernel.data.zero_()
    net[0].kernel.data[v] = 1
    x = tensor("blob", 1)
    from_module(net, x, folder)
    rows = {tuple(c): float(f) for c, f in zip(x.C.tolist(), x.F[:, 0])}
    at = offsets_by_the_source((3, 2, 1))[v]
    out = net(x)
    wanted = [rows.get((c[0], *(a + b for a, b in zip(c[1:], at))), 0.0) for c in out.C.tolist()]
    assert any(wanted) and out.F[:, 0].tolist() == wanted


def test_the_proof_notices_another_order(folder, monkeypatch):
    """Even kernels of MinkowskiEngine and TorchSparse have the same shape and another order."""
    plain = Network.add

    def renamed(self, *args, layout=None, **keys):
        del layout
        return plain(self, *args, layout="torchsparse", **keys)

    monkeypatch.setattr(Network, "add", renamed)
    with pytest.raises(CheckFailed) as error:
        from_module(trained(nn.Sequential(down())), tensor("blob", 4), folder)
    assert error.value.report.differences[0].relative() > 0.1


def cross():
    return ME.KernelGenerator(3, region_type=ME.RegionType.HYPER_CROSS, dimension=3)


def sliced(part, x):
    field = ME.TensorField(x.F, x.C.float())
    field.sparse()
    return part(x).slice(field).F


REFUSED = {
    "a cross": (
        lambda: conv(4, 6, kernel_generator=cross()),
        "MinkowskiConvolution in module 0 has a kernel of region type HYPER_CROSS",
    ),
    "expanded": (
        lambda: conv(4, 6, kernel_size=3, expand_coordinates=True),
        "MinkowskiConvolution in module 0 has expand_coordinates",
    ),
    "onto coordinates": (
        lambda: Of(lambda half, conv, x: conv(half(x), x), down(), conv(6, 6, kernel_size=3)),
        "MinkowskiConvolution in module 0.parts.1 is given the coordinates of its output",
    ),
    "a pool onto coordinates": (
        lambda: Of(
            lambda pool, x: pool(x, x.C[::2]), ME.MinkowskiMaxPooling(3, stride=1, dimension=3)
        ),
        "MinkowskiMaxPooling in module 0.parts.0 is given the coordinates of its output",
    ),
    "an uneven pool back": (
        lambda: nn.Sequential(down(), ME.MinkowskiPoolingTranspose(3, stride=2, dimension=3)),
        "MinkowskiPoolingTranspose in module 0.1 has kernel [3, 3, 3], stride [2, 2, 2]; expected",
    ),
    "a union": (
        lambda: Of(lambda half, unite, x: unite(half(x), half(x)), down(), ME.MinkowskiUnion()),
        "MinkowskiEngine's MinkowskiUnion in module 0.parts.1, which no layer does",
    ),
    "a sum of two sets": (
        lambda: Of(lambda half, one, x: one(x) + half(x), down(), conv(4, 6, kernel_size=1)),
        "__add__ in module 0 joins tensors on two coordinate maps, which no layer does",
    ),
    "an interpolation": (
        lambda: Of(lambda part, x: part(x, x.C.float()), ME.MinkowskiInterpolation()),
        "MinkowskiEngine's MinkowskiInterpolation in module 0.parts.0, which no layer does",
    ),
    "features at coordinates": (
        lambda: Of(lambda part, x: part(x).features_at_coordinates(x.C.float()), down(3, 1)),
        "SparseTensor.features_at_coordinates() in module 0, which no layer does",
    ),
    "a field": (
        lambda: Of(lambda part, x: part(ME.TensorField(x.F, x.C.float()).sparse()), down()),
        "TensorField.sparse() in module 0, which no layer does",
    ),
    "a slice": (
        lambda: Of(sliced, down(3, 1)),
        "SparseTensor.slice() in module 0, which no layer does",
    ),
    "a quotient": (
        lambda: Of(lambda half, x: half(x) / half(x), down()),
        "__truediv__ in module 0: it divides by features; expected a number, or a parameter or "
        "buffer",
    ),
    "dense of any size": (
        lambda: Of(lambda part, x: part(x).dense()[0], down()),
        "dense() in module 0 has the size of its voxels; expected dense(shape)",
    ),
    "a mask of rows": (
        lambda: Of(
            lambda prune, x: prune(x, torch.arange(len(x.F)) % 2 == 0), ME.MinkowskiPruning()
        ),
        "MinkowskiPruning in module 0.parts.0 gets a mask that is not of the features",
    ),
    "an activation": (
        lambda: ME.MinkowskiELU(),
        "torch's elu in module 0.module, which no layer does",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(folder, name):
    make, said = REFUSED[name]
    with pytest.raises(ExportError) as error:
        from_module(trained(nn.Sequential(make())), tensor("sheet", 4), folder)
    assert said in str(error.value)
    assert not folder.exists()


def test_a_field_is_no_example(folder):
    x = tensor("sheet", 4)
    with pytest.raises(ExportError, match="example is a TensorField, expected a sparse tensor of"):
        from_module(nn.Sequential(down()), ME.TensorField(x.F, x.C), folder)


class Averaged(nn.Module):
    """Of a tensor over the number of its voxels."""

    def __init__(self):
        super().__init__()
        self.conv = conv(4, 6, kernel_size=3)

    def forward(self, x):
        return self.conv(x).F / len(x.F)


def test_a_number_of_voxels(folder):
    with pytest.raises(ExportError, match="the layer div has scale .*for other voxels"):
        from_module(trained(Averaged()), tensor("scatter", 4), folder)
