# SPDX-License-Identifier: Apache-2.0
"""The backends of TRELLIS.2's convolutions, the first TRELLIS, and FlexGEMM without either.

Of the backend spconv the convolutions are spconv's own.
"""

import pytest
import torch
from conftest import cloud, trained
from torch import nn
from torch.nn import functional as F
from trellis_nets import KINDS, Shape, fg, layers, sp, sp1, tensor
from voxeld_export import ExportError, from_module


@pytest.fixture
def backend():
    """Says whose convolutions TRELLIS.2 calls."""
    yield lambda name: setattr(sp.config, "CONV", name)
    sp.config.CONV = "flex_gemm"


class Strided(nn.Module):
    """Down and up by kernels, and a norm over each sample between them."""

    def __init__(self, kernel, padding, norm):
        super().__init__()
        self.conv = sp.SparseConv3d(6, 8, 3, indice_key="a")
        self.down = sp.SparseConv3d(8, 12, kernel, stride=2, padding=padding, indice_key="d")
        self.norm = norm
        self.up = sp.SparseInverseConv3d(12, 8, kernel, stride=2, indice_key="d")

    def forward(self, x):
        x = self.conv(x)
        y = self.norm(self.down(x))
        return {"coarse": y, "fine": self.up(y) + x}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["spconv", "torchsparse"])
def test_strided(folder, backend, kind, name):
    backend(name)
    how = (3, 1, sp.SparseGroupNorm32(3, 12)) if name == "spconv" else (2, None, sp.SparseSiLU())
    # TorchSparse drops what lies behind the last whole block of the example.
    example = tensor(kind, 6, (8, 8, 10), samples=3)
    report = from_module(trained(Strided(*how)), example, folder)
    assert [d.name for d in report.differences] == ["coarse", "fine"]
    made = layers(folder)
    assert (made["down"]["layout"], made["up"]["of"]) == (name, "down")
    assert made["up"]["op"] == "inverse_conv"


def test_samples_that_are_mixed(folder, backend):
    """TorchSparse's strided voxels have no order, and TRELLIS's norm takes its rows by number."""
    backend("torchsparse")
    net = trained(Strided(2, None, sp.SparseGroupNorm32(3, 12)))
    with pytest.raises(ExportError, match="SparseGroupNorm32 in module norm gets rows that are"):
        from_module(net, tensor("blob", 6, (8, 8, 10), samples=3), folder)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["spconv", "torchsparse"])
def test_decoder(folder, backend, kind, name):
    backend(name)
    from_module(trained(Shape()), tensor(kind, 4, (6, 5, 7)), folder)
    assert layers(folder)["net.blocks.0.0.conv"]["layout"] == name


# --- the first TRELLIS ---


class Subdivide(nn.Module):
    """SparseSubdivideBlock3d of the first TRELLIS's mesh decoder."""

    def __init__(self, channels, out_channels, key):
        super().__init__()
        self.act_layers = nn.Sequential(sp1.SparseGroupNorm32(4, channels), sp1.SparseSiLU())
        self.sub = sp1.SparseSubdivide()
        self.out_layers = nn.Sequential(
            sp1.SparseConv3d(channels, out_channels, 3, indice_key=key),
            sp1.SparseGroupNorm32(4, out_channels),
            sp1.SparseSiLU(),
            sp1.SparseConv3d(out_channels, out_channels, 3, indice_key=key),
        )
        self.skip_connection = sp1.SparseConv3d(channels, out_channels, 1, indice_key=key)

    def forward(self, x):
        h, x = self.sub(self.act_layers(x)), self.sub(x)
        return self.out_layers(h) + self.skip_connection(x)


@pytest.mark.parametrize("kind", KINDS)
def test_first_trellis_up(folder, kind):
    net = nn.Sequential(Subdivide(16, 12, "a"), Subdivide(12, 8, "b"), sp1.SparseLinear(8, 5))
    for module in net.modules():
        if isinstance(module, sp1.SparseGroupNorm):
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_()
    from_module(trained(net), tensor(kind, 16, (4, 5, 3), package=sp1), folder)


class Flow(nn.Module):
    """Down and up as around the first TRELLIS's flow: means of n + 1, then what was there."""

    def __init__(self, factor):
        super().__init__()
        self.conv = sp1.SparseConv3d(6, 8, 3)
        self.down, self.up = sp1.SparseDownsample(factor), sp1.SparseUpsample(factor)
        self.mix = sp1.SparseConv3d(8, 8, 3)

    def forward(self, x):
        x = self.conv(x)
        y = self.down(x)
        return {"coarse": y, "fine": self.up(self.mix(y)) + x}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("datatype", ["FP32", "FP16"])
def test_first_trellis_down_and_up(folder, kind, datatype):
    example = tensor(kind, 6, samples=3, package=sp1)
    report = from_module(trained(Flow(2)), example, folder, datatype=datatype)
    assert [d.name for d in report.differences] == ["coarse", "fine"]


def test_first_trellis_of_unequal_axes(folder):
    from_module(trained(Flow((1, 2, 3))), tensor("blob", 6, package=sp1), folder)


# --- FlexGEMM without TRELLIS ---


class Flex(nn.Module):
    """A user's own modules: FlexGEMM has functions only."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 3, 3, 3, 5) / 12)
        self.bias = nn.Parameter(torch.randn(8))
        self.down = nn.Parameter(torch.randn(6, 3, 2, 3, 8) / 12)
        self.shape = None

    def forward(self, feats, coords):
        shape = torch.Size([2, 5, 9, 8, 10])
        x, _ = fg.sparse_submanifold_conv3d(feats, coords, shape, self.weight, self.bias)
        x, _ = fg.sparse_submanifold_conv3d(
            F.silu(x),
            coords,
            shape,
            self.weight[..., :4].repeat(1, 1, 1, 1, 2),
            None,
            None,
            (2, 1, 1),
        )
        y, at, _ = fg.sparse_conv3d(
            x, coords, shape, self.down, None, stride=(2, 2, 1), padding=(1, 0, 1)
        )
        del at
        return {"fine": x, "coarse": F.relu(y)}


@pytest.mark.parametrize("kind", KINDS)
def test_flexgemm(folder, kind):
    coords = cloud(kind, (9, 8, 10))
    feats = torch.randn(len(coords), 5)
    report = from_module(trained(Flex()), (feats, coords), folder, feats=feats, coords=coords)
    assert [d.name for d in report.differences] == ["fine", "coarse"]
    assert fg.SubMConv3dFunction.apply.__self__ is fg.SubMConv3dFunction


REFUSED = {
    "out_coords": (
        lambda n, x, at: fg.sparse_conv3d(x, at, SHAPE, n.weight, None, None, at)[0],
        "FlexGEMM's sparse convolution in the network's own forward: it is given out_coords",
    ),
    "an even kernel": (
        lambda n, x, at: fg.sparse_submanifold_conv3d(x, at, SHAPE, n.weight[:, :2])[0],
        "submanifold convolution in the network's own forward: it has kernel [2, 3, 3]; expected",
    ),
    "a weight of its own": (
        lambda n, x, at: fg.sparse_submanifold_conv3d(x, at, SHAPE, torch.rand(5, 3, 3, 3, 5))[0],
        "its weight or bias is not a parameter of the network",
    ),
    "another shape": (
        lambda n, x, at: twice(n, x, at),
        "its input has shape (9, 9, 9); expected (4, 3, 4), what its layer makes",
    ),
}
SHAPE = torch.Size([2, 5, 9, 8, 10])


def twice(net, x, at):
    x, at, _ = fg.sparse_conv3d(x, at, SHAPE, net.weight, None, stride=(2, 2, 2))
    return fg.sparse_submanifold_conv3d(x, at, torch.Size([2, 5, 9, 9, 9]), net.weight)[0]


class Of(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.randn(5, 3, 3, 3, 5))

    def forward(self, feats, coords):
        return self.function(self, feats, coords)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(folder, name):
    function, said = REFUSED[name]
    coords = cloud("sheet", (9, 8, 10))
    feats = torch.randn(len(coords), 5)
    with pytest.raises(ExportError) as error:
        from_module(trained(Of(function)), (feats, coords), folder, feats=feats, coords=coords)
    assert said in str(error.value)
