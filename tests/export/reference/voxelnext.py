# SPDX-License-Identifier: Apache-2.0
"""VoxelNeXt as published, with the names of its tensors.

Sources: voxeld_export/families/voxelnext.py has the files' names.
"""

import numpy as np
import torch
from torch import nn

from .detection import BasicBlock, Layers, Part
from .sparse import Sites, Sparse


class FlatLayers(Layers):
    """Beside the layers: the sum of three stages at their places on the ground."""

    def ground(self, stages):
        sites = stages[0].sites
        rows = []
        for step, x in zip((1, 2, 4), stages):
            at = x.sites.coords.copy()
            at[:, 1] = 0
            at[:, 2:] *= step
            rows.append(at)
        places, where = np.unique(np.concatenate(rows), axis=0, return_inverse=True)
        feats = torch.cat([x.feats for x in stages])
        out = feats.new_zeros(len(places), feats.shape[1])
        out.index_add_(0, torch.from_numpy(where.reshape(-1)), feats)
        shape = (1, *sites.shape[1:])
        return Sparse(Sites(places, (1, *sites.stride[1:]), shape), out)


class Backbone(Part):
    """VoxelResBackBone8xVoxelNeXt."""

    def __init__(self, layers, channels_in, channels, out, kernels):
        super().__init__(layers)
        self.conv_input = self.three(layers.subm(channels_in, channels[0], 3, "subm1"), channels[0])
        before = channels[0]
        for stage in range(1, 7):
            size, parts = channels[min(stage, 5) - 1], []
            if stage > 1:
                kernel = kernels[min(stage - 2, 3)]
                conv = layers.strided(before, size, kernel, 2, kernel // 2, f"spconv{stage}")
                parts.append(self.three(conv, size))
            parts += [BasicBlock(layers, size, f"res{stage}", True) for _ in range(2)]
            self.add_module(f"conv{stage}", layers.Sequential(*parts))
            before = size
        self.conv_out = self.three(layers.strided(channels[3], out, 3, 1, 1, "down", axes=2), out)
        self.shared_conv = layers.Sequential(
            layers.subm(out, out, 3, None, True, axes=2), nn.BatchNorm1d(out), nn.ReLU()
        )

    def forward(self, x):
        scales = [self.conv1(self.conv_input(x))]
        for stage in range(2, 7):
            scales.append(getattr(self, f"conv{stage}")(scales[-1]))
        return self.shared_conv(self.conv_out(self.layers.ground(scales[3:]))), scales[:4]


class SeparateHead(Part):
    """A list of convolutions for each branch."""

    def __init__(self, layers, channels, branches, kernel, convs, bias):
        super().__init__(layers)
        self.branches = branches
        for name, size in branches.items():
            parts = [
                layers.Sequential(
                    layers.subm(channels, channels, kernel, name, bias, axes=2),
                    nn.BatchNorm1d(channels),
                    nn.ReLU(),
                )
                for _ in range(convs - 1)
            ]
            parts.append(layers.subm(channels, size, 1, name + "out", True, axes=2))
            self.add_module(name, layers.Sequential(*parts))

    def forward(self, x):
        rows = [self.layers.features(getattr(self, name)(x)) for name in self.branches]
        return torch.cat(rows, 1)


class Head(nn.Module):
    """VoxelNeXtHead's sparse part."""

    def __init__(self, layers, channels, heads, branches, kernel, convs, bias):
        super().__init__()
        self.heads_list = nn.ModuleList(
            SeparateHead(layers, channels, {**branches, "hm": classes}, kernel, convs, bias)
            for classes in heads
        )


class VoxelNeXt(nn.Module):
    """The whole detector: backbone_3d, dense_head."""

    def __init__(
        self,
        layers,
        channels_in,
        channels,
        out,
        kernels,
        heads,
        branches,
        kernel,
        convs=2,
        bias=True,
    ):
        super().__init__()
        self.layers = layers
        self.backbone_3d = Backbone(layers, channels_in, channels, out, kernels)
        self.dense_head = Head(layers, out, heads, branches, kernel, convs, bias)

    def forward(self, x, samples):
        """{name: rows}, and under "at" the sparse tensor on which they lie."""
        del samples
        x, scales = self.backbone_3d(x)
        outputs = {"at": x, "features": x}
        outputs.update({f"x_conv{i + 1}": scale for i, scale in enumerate(scales)})
        for number, head in enumerate(self.dense_head.heads_list):
            outputs[f"head{number}"] = self.layers.replace(x, head(x))
        return outputs
