# SPDX-License-Identifier: Apache-2.0
"""Networks in the form of TRELLIS.2's sparse_unet_vae.py and fdg_vae.py, by its stand-in."""

import json
import sys

import torch
from conftest import ROOT, cloud
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(ROOT / "tests" / "export" / "standins"))
import flex_gemm.ops.spconv as fg  # noqa: E402, F401  tests import it from here, with its path
import trellis.modules.sparse as sp1  # noqa: E402, F401
import trellis2.modules.sparse as sp  # noqa: E402
from trellis2.modules.norm import GroupNorm32, LayerNorm32  # noqa: E402, F401

KINDS = ["scatter", "sheet", "blob"]


def by_sample(kind, shape, samples=2):
    """A cloud whose samples lie one behind the other, as both TRELLIS want them."""
    coords = cloud(kind, shape, samples)
    return coords[coords[:, 0].sort(stable=True)[1]]


def tensor(kind, channels, shape=(9, 8, 10), samples=2, package=sp):
    coords = by_sample(kind, shape, samples)
    torch.manual_seed(3)
    return package.SparseTensor(torch.randn(len(coords), channels), coords)


def layers(folder):
    return {
        layer["name"]: layer
        for layer in json.loads((folder / "network.json").read_text())["layers"]
    }


class ConvNeXt(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = LayerNorm32(channels, elementwise_affine=True, eps=1e-6)
        self.conv = sp.SparseConv3d(channels, channels, 3)
        self.mlp = nn.Sequential(
            nn.Linear(channels, 4 * channels), nn.SiLU(), nn.Linear(4 * channels, channels)
        )

    def forward(self, x):
        h = self.conv(x)
        h = h.replace(self.norm(h.feats))
        h = h.replace(self.mlp(h.feats))
        return h + x


class S2C(nn.Module):
    def __init__(self, channels, out_channels):
        super().__init__()
        self.norm1 = LayerNorm32(channels, elementwise_affine=True, eps=1e-6)
        self.norm2 = LayerNorm32(out_channels, elementwise_affine=False, eps=1e-6)
        self.conv1 = sp.SparseConv3d(channels, out_channels // 8, 3)
        self.conv2 = sp.SparseConv3d(out_channels, out_channels, 3)
        group = channels * 8 // out_channels
        self.skip_connection = lambda x: x.replace(
            x.feats.reshape(x.feats.shape[0], out_channels, group).mean(dim=-1)
        )
        self.updown = sp.SparseSpatial2Channel(2)

    def forward(self, x):
        h = x.replace(self.norm1(x.feats))
        h = h.replace(F.silu(h.feats))
        h, x = self.updown(self.conv1(h)), self.updown(x)
        h = h.replace(self.norm2(h.feats))
        h = h.replace(F.silu(h.feats))
        return self.conv2(h) + self.skip_connection(x)


class C2S(nn.Module):
    def __init__(self, channels, out_channels, pred_subdiv=True):
        super().__init__()
        self.pred_subdiv = pred_subdiv
        self.norm1 = LayerNorm32(channels, elementwise_affine=True, eps=1e-6)
        self.norm2 = LayerNorm32(out_channels, elementwise_affine=False, eps=1e-6)
        self.conv1 = sp.SparseConv3d(channels, out_channels * 8, 3)
        self.conv2 = sp.SparseConv3d(out_channels, out_channels, 3)
        self.skip_connection = lambda x: x.replace(
            x.feats.repeat_interleave(out_channels // (channels // 8), dim=1)
        )
        if pred_subdiv:
            self.to_subdiv = sp.SparseLinear(channels, 8)
        self.updown = sp.SparseChannel2Spatial(2)

    def forward(self, x, subdiv=None):
        if self.pred_subdiv:
            subdiv = self.to_subdiv(x)
        h = x.replace(self.norm1(x.feats))
        h = h.replace(F.silu(h.feats))
        h = self.conv1(h)
        live = subdiv.replace(subdiv.feats > 0) if subdiv is not None else None
        h, x = self.updown(h, live), self.updown(x, live)
        h = h.replace(self.norm2(h.feats))
        h = h.replace(F.silu(h.feats))
        h = self.conv2(h) + self.skip_connection(x)
        return (h, subdiv) if self.pred_subdiv else h


class Decoder(nn.Module):
    def __init__(self, out_channels, pred_subdiv=True, latent=4, widths=(32, 16, 16)):
        super().__init__()
        self.dtype = torch.float32
        self.pred_subdiv = pred_subdiv
        self.from_latent = sp.SparseLinear(latent, widths[0])
        self.output_layer = sp.SparseLinear(widths[-1], out_channels)
        self.blocks = nn.ModuleList(
            nn.ModuleList([ConvNeXt(a), C2S(a, b, pred_subdiv)]) for a, b in zip(widths, widths[1:])
        )

    def forward(self, x, guide_subs=None):
        h, subs = self.from_latent(x).type(self.dtype), []
        for i, (block, up) in enumerate(self.blocks):
            h = block(h)
            if self.pred_subdiv:
                h, sub = up(h)
                subs.append(sub)
            else:
                h = up(h, subdiv=guide_subs[i] if guide_subs else None)
        h = h.type(x.dtype)
        h = h.replace(F.layer_norm(h.feats, h.feats.shape[-1:]))
        h = self.output_layer(h)
        return (h, subs) if self.pred_subdiv else h


class Shape(nn.Module):
    """As fdg_vae.py: vertices, logits, softplus."""

    def __init__(self):
        super().__init__()
        self.net = Decoder(7)

    def forward(self, x):
        h, subs = self.net(x)
        return {
            "vertices": h.replace(2 * torch.sigmoid(h.feats[..., 0:3]) - 0.5),
            "intersected": h.replace(h.feats[..., 3:6]),
            "quad_lerp": h.replace(F.softplus(h.feats[..., 6:7])),
            "subs": subs,
        }


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layer = sp.SparseLinear(6, 16)
        self.blocks = nn.ModuleList([S2C(16, 32), ConvNeXt(32), S2C(32, 64)])
        self.to_latent = sp.SparseLinear(64, 8)

    def forward(self, x):
        h = self.input_layer(x)
        for block in self.blocks:
            h = block(h)
        h = h.replace(F.layer_norm(h.feats, h.feats.shape[-1:]))
        h = self.to_latent(h)
        mean, logvar = h.feats.chunk(2, dim=-1)
        return {"z": h.replace(mean), "logvar": logvar}


class Function(nn.Module):
    """What a forward pass does with tensors, with two parameters."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.conv = sp.SparseConv3d(8, 8, 3)
        self.scale = nn.Parameter(torch.randn(8))
        self.table = nn.Parameter(torch.randn(1, 16))

    def forward(self, x):
        return self.function(self, self.conv(x))
