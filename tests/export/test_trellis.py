# SPDX-License-Identifier: Apache-2.0
"""Modules of TRELLIS.2, by a stand-in that has its names."""

import pytest
import torch
from conftest import trained
from torch import nn
from trellis_nets import (
    C2S,
    KINDS,
    S2C,
    Decoder,
    Encoder,
    Function,
    GroupNorm32,
    Shape,
    layers,
    sp,
    tensor,
)
from voxeld_export import ExportError, from_module


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("datatype", ["FP32", "FP16"])
def test_decoder(folder, kind, datatype):
    report = from_module(trained(Shape()), tensor(kind, 4, (6, 5, 7)), folder, datatype=datatype)
    names = ["vertices", "intersected", "quad_lerp", "subs_0", "subs_1"]
    assert [d.name for d in report.differences] == names
    made = layers(folder)
    assert made["net.blocks.0.1.updown"]["occupancy"] == "net.blocks.0.1.to_subdiv"
    assert made["net.blocks.0.0.conv"]["layout"] == "flexgemm"


@pytest.mark.parametrize("kind", KINDS)
def test_encoder(folder, kind):
    report = from_module(trained(Encoder()), tensor(kind, 6, samples=3), folder)
    assert [d.name for d in report.differences] == ["z", "logvar"]


class Both(nn.Module):
    """The texture's decoder on the shape's voxels, from one latent of both."""

    def __init__(self):
        super().__init__()
        self.shape, self.texture = Decoder(7), Decoder(6, pred_subdiv=False)

    def forward(self, x):
        first, second = x.feats.chunk(2, dim=1)
        shape, subs = self.shape(x.replace(first))
        return {"shape": shape, "texture": self.texture(x.replace(second), guide_subs=subs)}


def test_guided_by_another_decoder(folder):
    from_module(trained(Both()), tensor("sheet", 8, (6, 5, 7)), folder)
    made = layers(folder)
    assert (
        made["texture.blocks.1.1.updown"]["occupancy"] == "shape.blocks.1.1.to_subdiv"
        and "texture.blocks.1.1.to_subdiv" not in made
    )


class There(nn.Module):
    """Down and back to the voxels that were there."""

    def __init__(self):
        super().__init__()
        self.down, self.up = S2C(16, 32), C2S(32, 16, pred_subdiv=False)
        self.mean, self.back = sp.SparseDownsample(2), sp.SparseUpsample(2)
        self.mix = sp.SparseConv3d(16, 16, 3)

    def forward(self, x):
        y = self.up(self.down(x)) + x
        return self.back(self.mix(self.mean(y))) + y


@pytest.mark.parametrize("kind", KINDS)
def test_down_and_back(folder, kind):
    from_module(trained(There()), tensor(kind, 16), folder)
    assert {made.get("onto") for made in layers(folder).values()} == {None, "feats"}


def modulated(net, x):
    scale, shift = net.table.chunk(2, dim=1)
    return x * (1 + scale) + shift


MODULES = {
    "conv 3": lambda: sp.SparseConv3d(8, 6, 3),
    "conv 1": lambda: sp.SparseConv3d(8, 8, 1),
    "conv dilated": lambda: sp.SparseConv3d(8, 6, 3, dilation=2, bias=False),
    "linear": lambda: sp.SparseLinear(8, 5, bias=False),
    "group norm": lambda: sp.SparseGroupNorm(4, 8, eps=1e-4),
    "group norm 32": lambda: sp.SparseGroupNorm32(2, 8, affine=False),
    "group norm of rows": lambda: Function(lambda n, x: x.replace(n.rows(x.feats))),
    "relu": sp.SparseReLU,
    "silu, gelu": lambda: nn.Sequential(sp.SparseSiLU(), sp.SparseGELU()),
    "activation": lambda: sp.SparseActivation(nn.Tanh()),
    "downsample": lambda: sp.SparseDownsample(2),
    "downsample 4": lambda: sp.SparseDownsample(4),
    "space to channel 2, 2": lambda: nn.Sequential(
        sp.SparseSpatial2Channel(2), sp.SparseLinear(64, 8), sp.SparseSpatial2Channel(2)
    ),
    "down, up": lambda: nn.Sequential(
        sp.SparseDownsample(2), sp.SparseDownsample(2), sp.SparseUpsample(2), sp.SparseUpsample(2)
    ),
    "arithmetic": lambda: Function(lambda n, x: (1 - x * 2 + x / 4) * x - 0.5),
    "parameters": lambda: Function(lambda n, x: x * n.scale + n.scale),
    "modulated": lambda: Function(modulated),
    "side by side": lambda: Function(lambda n, x: sp.sparse_cat([x, -x], dim=1)),
}


@pytest.mark.parametrize("name", MODULES)
def test_module(folder, name):
    net = trained(nn.Sequential(MODULES[name]()))
    if name == "group norm of rows":
        net[0].rows = GroupNorm32(1, 8)
    if "norm" in name and getattr(net[0], "weight", None) is not None:
        net[0].weight.data.uniform_(0.5, 1.5)
        net[0].bias.data.normal_()
    kind = KINDS[sum(name.encode()) % 3]
    from_module(net, tensor(kind, 8, samples=3), folder)


class UpBlock2(nn.Module):
    """SparseResBlockUpsample3d: nearest, onto predicted voxels."""

    def __init__(self):
        super().__init__()
        self.to_subdiv, self.updown = sp.SparseLinear(8, 8), sp.SparseUpsample(2)
        self.conv = sp.SparseConv3d(8, 4, 3)

    def forward(self, x):
        subdiv = self.to_subdiv(x)
        return self.conv(self.updown(x, subdiv.replace(subdiv.feats > 0.25)))


@pytest.mark.parametrize("kind", KINDS)
def test_upsample_to_predicted_voxels(folder, kind):
    from_module(trained(UpBlock2()), tensor(kind, 8, (6, 5, 7)), folder)


# --- what is refused ---


class Late(nn.Module):
    def __init__(self, block):
        super().__init__()
        self.head = nn.Sequential(sp.SparseConv3d(8, 8, 3), block)

    def forward(self, x):
        return self.head(x)


def unknown_backend():
    conv = sp.SparseConv3d(8, 8, 3)
    conv.conv, conv.weight = nn.Conv3d(8, 8, 3), None
    conv.forward = lambda x: x.replace(x.feats.clone())
    return conv


def no_backend():
    conv = sp.SparseConv3d(8, 8, 3)
    conv.weight = None
    conv.forward = lambda x: x.replace(x.feats.clone())
    return conv


REFUSED = {
    "attention": (
        lambda: sp.SparseMultiHeadAttention(8),
        "TRELLIS's SparseMultiHeadAttention in module head.1, which no layer does",
    ),
    "windowed attention": (
        lambda: sp.SparseMultiHeadAttention(8, attn_mode="windowed", window_size=8),
        "TRELLIS's SparseMultiHeadAttention in module head.1, which no layer does",
    ),
    "unknown backend": (
        unknown_backend,
        "SparseConv3d in module head.1 has the backend torch; expected one of flex_gemm, spconv",
    ),
    "no backend": (no_backend, "SparseConv3d in module head.1 has the backend none; expected"),
    "layer norm of voxels": (
        lambda: sp.SparseLayerNorm(1),
        "SparseLayerNorm in module head.1 takes its statistics over the voxels",
    ),
    "a mask": (
        lambda: Function(lambda n, x: x.replace(x.feats > 0)),
        "is the mask of head.1.conv, which no layer makes; return its rows",
    ),
    "a mask, then": (
        lambda: Function(lambda n, x: x.replace((x.feats > 0).float() * 2)),
        "affine reads the mask of head.1.conv, which only subdivisions and pruning read",
    ),
    "rows": (
        lambda: Function(lambda n, x: x.replace(x.feats[torch.arange(len(x.feats)), :])),
        "torch's __getitem__ in module head.1: it chooses rows, not channels of all rows",
    ),
    "written rows": (lambda: Function(overwritten), "torch's __setitem__ in module head.1"),
    "a factor a sample": (
        lambda: Function(lambda n, x: x * torch.rand(2, 8)),
        "__mul__ of a sparse tensor in module head.1: weight is a tensor of shape (2, 8)",
    ),
    "a foreign subdivision": (
        lambda: Function(foreign),
        "SparseChannel2Spatial in module head.1.up gets a subdivision that does not come from",
    ),
    "logits as a mask": (
        lambda: Function(lambda n, x: sp_up(n)(x, x)),
        "SparseUpsample in module head.1.up gets head.1.conv as subdivision; expected head.1.conv "
        "> 0",
    ),
}


def overwritten(net, x):
    del net
    feats = x.feats.clone()
    feats[0] = 1
    return x.replace(feats)


def foreign(net, x):
    return net.up(x, sp.SparseTensor(torch.rand(len(x.feats), 8) > 0.5, x.coords))


def sp_up(net):
    return net.up


@pytest.mark.parametrize("name", REFUSED)
def test_refused(folder, name, monkeypatch):
    make, said = REFUSED[name]
    net = Late(make())
    if name == "a foreign subdivision":
        net.head[1].up = sp.SparseChannel2Spatial(2)
    if name == "logits as a mask":
        net.head[1].up = sp.SparseUpsample(2)
        children = sp._children
        monkeypatch.setattr(sp, "_children", lambda x, mask, f: children(x, mask > 0, f))
    monkeypatch.setattr(sp.SparseLayerNorm, "forward", lambda self, x: x.replace(x.feats.clone()))
    with pytest.raises(ExportError) as error:
        from_module(trained(net), tensor("sheet", 8), folder)
    assert said in str(error.value)


class Averaged(nn.Module):
    """Of a tensor over the number of its voxels."""

    def __init__(self):
        super().__init__()
        self.conv = sp.SparseConv3d(4, 6, 3)

    def forward(self, x):
        return self.conv(x).feats / len(x.feats)


def test_a_number_of_voxels(folder):
    with pytest.raises(ExportError, match="the layer div has scale .*for other voxels"):
        from_module(trained(Averaged()), tensor("scatter", 4), folder)
