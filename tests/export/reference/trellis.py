# SPDX-License-Identifier: Apache-2.0
"""TRELLIS.2's SC-VAE and the up-blocks of TRELLIS v1's mesh decoder, with their published names.

Written down from the definitions in trellis2/models/sc_vaes/ and
trellis/models/structured_latent_vae/decoder_mesh.py: means and repetitions as they stand there, and
every convolution on the voxels where it stands there.
"""

import torch
from torch import nn

from .sparse import GroupNorm, Seq, Sparse, Subm, children, offsets, strided

# --- TRELLIS.2


def space_to_channel(x):
    """Channels of 8 children, child x + 2 * (y + 2 * z); zeros for those that are not there."""
    sites, pairs = strided(x.sites, 2, 2)
    out = x.feats.new_zeros(len(sites), 8, x.feats.shape[1])
    for (fine, coarse), (i, j, k) in zip(pairs, offsets((2, 2, 2))):
        out[coarse, i + 2 * (j + 2 * k)] = x.feats[fine]
    return Sparse(sites, out.flatten(1))


class ConvNeXt(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.conv = Subm("flexgemm", channels, channels, bias=True)
        self.mlp = nn.Sequential(
            nn.Linear(channels, 4 * channels), nn.SiLU(), nn.Linear(4 * channels, channels)
        )

    def forward(self, x):
        return x.like(self.mlp(self.norm(self.conv(x).feats))) + x


class _Resampled(nn.Module):
    """What S2C and C2S have in common."""

    def __init__(self, channels, conv1, out_channels):
        super().__init__()
        self.norm1 = nn.LayerNorm(channels, eps=1e-6)
        self.norm2 = nn.LayerNorm(out_channels, eps=1e-6, elementwise_affine=False)
        self.conv1 = Subm("flexgemm", channels, conv1, bias=True)
        self.conv2 = Subm("flexgemm", out_channels, out_channels, bias=True)

    def first(self, x):
        return self.conv1(x.like(nn.functional.silu(self.norm1(x.feats))))

    def second(self, h):
        return self.conv2(h.like(nn.functional.silu(self.norm2(h.feats))))


class S2C(_Resampled):
    def __init__(self, channels, out_channels):
        super().__init__(channels, out_channels // 8, out_channels)
        self.out_channels = out_channels

    def forward(self, x):
        h = self.second(space_to_channel(self.first(x)))
        skip = space_to_channel(x).feats
        return h.like(h.feats + skip.reshape(len(skip), self.out_channels, -1).mean(-1))


class C2S(_Resampled):
    def __init__(self, channels, out_channels, predicts=True):
        super().__init__(channels, 8 * out_channels, out_channels)
        self.repeats = out_channels // (channels // 8)
        if predicts:
            self.to_subdiv = nn.Linear(channels, 8)

    def forward(self, x, logits=None):
        """(result, logits)"""
        logits = self.to_subdiv(x.feats) if logits is None else logits
        sites, parent, child = children(x.sites, 2, (logits > 0).numpy())
        h, skip = (
            Sparse(sites, y.reshape(len(y), 8, y.shape[1] // 8)[parent, child])
            for y in (self.first(x).feats, x.feats)
        )
        h = self.second(h)
        return h.like(h.feats + skip.feats.repeat_interleave(self.repeats, 1)), logits

    def settle(self, x):
        """Biases for which about half of the children live, and no logit is near 0.

        For each child the middle of the widest gap between the middle half of its logits.
        """
        logits = self.to_subdiv(x.feats).sort(0).values
        middle = logits[len(logits) // 4 : len(logits) * 3 // 4 + 2]
        at = middle.diff(dim=0).argmax(0, keepdim=True)
        between = (middle.gather(0, at) + middle.gather(0, at + 1))[0] / 2
        self.to_subdiv.bias.copy_((self.to_subdiv.bias - between).float())


def _levels(channels, blocks, between):
    """blocks.I.J: ConvNeXt blocks, then what leads to the next level."""
    levels = nn.ModuleList()
    for i, count in enumerate(blocks):
        level = nn.ModuleList(ConvNeXt(channels[i]) for _ in range(count))
        if i < len(blocks) - 1:
            level.append(between(channels[i], channels[i + 1]))
        levels.append(level)
    return levels


def _last_norm(h):
    return nn.functional.layer_norm(h.feats, h.feats.shape[-1:])


class Encoder(nn.Module):
    """SparseUnetVaeEncoder: mean and logvar."""

    def __init__(self, channels_in, model_channels, num_blocks, latents):
        super().__init__()
        self.input_layer = nn.Linear(channels_in, model_channels[0])
        self.to_latent = nn.Linear(model_channels[-1], 2 * latents)
        self.blocks = _levels(model_channels, num_blocks, S2C)

    def forward(self, x):
        h = x.like(self.input_layer(x.feats))
        for level in self.blocks:
            for block in level:
                h = block(h)
        mean, logvar = self.to_latent(_last_norm(h)).chunk(2, -1)
        return h.like(mean), h.like(logvar)


class Decoder(nn.Module):
    """SparseUnetVaeDecoder: its result, the logits and the features of each level."""

    def __init__(self, latents, model_channels, num_blocks, channels_out, predicts=True):
        super().__init__()
        self.output_layer = nn.Linear(model_channels[-1], channels_out)
        self.from_latent = nn.Linear(latents, model_channels[0])
        self.blocks = _levels(model_channels, num_blocks, lambda ci, co: C2S(ci, co, predicts))

    def forward(self, x, guide=None, settle=False):
        h, logits, levels = x.like(self.from_latent(x.feats)), [], []
        for i, level in enumerate(self.blocks):
            for block in level:
                if isinstance(block, ConvNeXt):
                    h = block(h)
                    continue
                levels.append(h)
                if settle:
                    block.settle(h)
                h, found = block(h, guide[i] if guide else None)
                logits.append(found)
        return h.like(self.output_layer(_last_norm(h))), logits, [*levels, h]


def flexi_dual_grid(h, margin=0.5):
    """What FlexiDualGridVaeDecoder makes of 7 channels; the crossings as logits."""
    return {
        "vertices": (1 + 2 * margin) * torch.sigmoid(h[:, :3]) - margin,
        "intersected": h[:, 3:6],
        "quad_lerp": nn.functional.softplus(h[:, 6:7]),
    }


# --- TRELLIS v1


class _Conv(nn.Module):
    """sp.SparseConv3d: a library's convolution under the name conv."""

    def __init__(self, *args):
        super().__init__()
        self.conv = Subm(*args, bias=True)

    def forward(self, x):
        return self.conv(x)


class Subdivide(nn.Module):
    """SparseSubdivideBlock3d."""

    def __init__(self, library, channels, out_channels, groups):
        super().__init__()
        self.act_layers = Seq(GroupNorm(groups, channels), nn.SiLU())
        self.out_layers = Seq(
            _Conv(library, channels, out_channels),
            GroupNorm(groups, out_channels),
            nn.SiLU(),
            _Conv(library, out_channels, out_channels),
        )
        same = channels == out_channels
        self.skip_connection = nn.Identity() if same else _Conv(library, channels, out_channels, 1)

    def forward(self, x):
        h = self.act_layers(x)
        sites, parent, _ = children(x.sites)
        h, x = (Sparse(sites, y.feats[parent]) for y in (h, x))
        return self.out_layers(h) + self.skip_connection(x)


class UpBlocks(nn.Module):
    """SLatMeshDecoder behind its transformer."""

    def __init__(self, library, channels_in, model_channels, channels_out, groups):
        super().__init__()
        self.upsample = nn.ModuleList(
            Subdivide(library, ci, co, groups)
            for ci, co in zip((channels_in, *model_channels), model_channels)
        )
        self.out_layer = nn.Linear(model_channels[-1], channels_out)

    def forward(self, x):
        for block in self.upsample:
            x = block(x)
        return x.like(self.out_layer(x.feats))
