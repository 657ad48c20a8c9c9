# SPDX-License-Identifier: Apache-2.0
"""SECOND's, CenterPoint's and Part-A2's backbones, as published, with the names of their tensors.

The structure is written once, over `Layers`: our own from the definition, or spconv's modules.
Sources: OpenPCDet, mmdetection3d, Det3D; voxeld_export/families/detection.py has the files' names.
"""

from collections import OrderedDict

import torch
from torch import nn

from .sparse import Inverse, Seq, Strided, Subm, cat, to_dense


class Layers:
    """The layers of a backbone from the definition; spconv_layers.py has the same of spconv."""

    Sequential = Seq

    def subm(self, ci, co, kernel=3, key=None, bias=False, axes=3):
        del key
        return self._flat(Subm("spconv", ci, co, self._wide(kernel, axes), bias), axes)

    def strided(self, ci, co, kernel, stride, padding, key=None, axes=3):
        del key
        if axes == 2:
            stride, padding = (1, stride, stride), (0, padding, padding)
        conv = Strided("spconv", ci, co, self._wide(kernel, axes), stride, padding)
        return self._flat(conv, axes)

    def inverse(self, ci, co, kernel, key):
        del key
        return Inverse("spconv", ci, co, kernel)

    def features(self, x):
        return x.feats

    def replace(self, x, feats):
        return x.like(feats)

    def join(self, x, y):
        return cat(x, y)

    def dense(self, x, samples):
        return to_dense(x, samples=samples)

    @staticmethod
    def _wide(kernel, axes):
        return (1, kernel, kernel) if axes == 2 else kernel

    @staticmethod
    def _flat(conv, axes):
        """A module of two axes: its weight does not have the first of three."""
        if axes == 2:
            conv.weight = nn.Parameter(conv.weight.data.squeeze(1))
        return conv


def norm(channels):
    return nn.BatchNorm1d(channels, eps=1e-3)


class Part(nn.Module):
    """A module that computes with Layers."""

    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def three(self, conv, channels):
        """Convolution, norm, ReLU."""
        return self.layers.Sequential(conv, norm(channels), nn.ReLU())


class BasicBlock(Part):
    """conv1, bn1, ReLU, conv2, bn2, sum, ReLU."""

    def __init__(self, layers, channels, key, bias):
        super().__init__(layers)
        self.conv1 = layers.subm(channels, channels, 3, key, bias)
        self.bn1 = norm(channels)
        self.conv2 = layers.subm(channels, channels, 3, key, bias)
        self.bn2 = norm(channels)

    def forward(self, x):
        layers = self.layers
        y = self.conv1(x)
        y = layers.replace(y, torch.relu(self.bn1(layers.features(y))))
        y = self.conv2(y)
        return layers.replace(y, torch.relu(self.bn2(layers.features(y)) + layers.features(x)))


class Backbone(Part):
    """From voxels to a bird's-eye view; `forward` returns {name: tensor or dense array}."""

    stages = ()

    def bev(self, out, samples):
        dense = self.layers.dense(out, samples)
        b, c, d, h, w = dense.shape
        return dense.reshape(b, c * d, h, w)

    def forward(self, x, samples):
        scales = self.encode(x)
        outputs = {"spatial_features": self.bev(self.last(scales[-1]), samples)}
        outputs.update({f"x_conv{i + 1}": scale for i, scale in enumerate(scales)})
        return outputs


class VoxelBackBone8x(Backbone):
    """OpenPCDet's, plain or residual (VoxelResBackBone8x)."""

    def __init__(self, layers, channels_in, channels, residual=False, bias=True):
        super().__init__(layers)
        self.conv_input = self.three(layers.subm(channels_in, channels[0], 3, "subm1"), channels[0])
        before = channels[0]
        for stage in range(1, 5):
            size, key = channels[stage - 1], f"subm{stage}"
            parts = []
            if stage > 1:
                padding = (0, 1, 1) if stage == 4 else 1
                parts.append(
                    self.three(layers.strided(before, size, 3, 2, padding, f"spconv{stage}"), size)
                )
            count = 2 if residual or stage > 1 else 1
            for _ in range(count):
                parts.append(
                    BasicBlock(layers, size, f"res{stage}", bias)
                    if residual
                    else self.three(layers.subm(size, size, 3, key), size)
                )
            self.add_module(f"conv{stage}", layers.Sequential(*parts))
            before = size
        self.conv_out = self.three(
            layers.strided(before, channels[4], (3, 1, 1), (2, 1, 1), 0, "spconv_down2"),
            channels[4],
        )

    def encode(self, x):
        scales = [self.conv1(self.conv_input(x))]
        for conv in (self.conv2, self.conv3, self.conv4):
            scales.append(conv(scales[-1]))
        return scales

    def last(self, x):
        return self.conv_out(x)


class SparseEncoder(Backbone):
    """mmdetection3d's: `encoder_channels`, `encoder_paddings` as in its configurations."""

    def __init__(self, layers, channels_in, encoder_channels, encoder_paddings, output, block_type):
        super().__init__(layers)
        self.block_type = block_type
        base = encoder_channels[0][0]
        self.conv_input = self.three(layers.subm(channels_in, base, 3, "subm1"), base)
        encoder, before = OrderedDict(), base
        for i, (blocks, paddings) in enumerate(zip(encoder_channels, encoder_paddings)):
            parts = []
            for j, (size, padding) in enumerate(zip(blocks, paddings)):
                plain = block_type == "conv_module"
                strides = i > 0 and j == 0 if plain else j == 2
                if strides:
                    conv = layers.strided(before, size, 3, 2, padding, f"spconv{i + 1}")
                    parts.append(self.three(conv, size))
                elif plain:
                    parts.append(self.three(layers.subm(before, size, 3, f"subm{i + 1}"), size))
                else:
                    parts.append(BasicBlock(layers, size, f"block{i + 1}", False))
                before = size
            encoder[f"encoder_layer{i + 1}"] = layers.Sequential(*parts)
        self.encoder_layers = layers.Sequential(encoder)
        self.conv_out = self.three(
            layers.strided(before, output, (3, 1, 1), (2, 1, 1), 0, "spconv_down2"), output
        )

    def encode(self, x):
        x, scales = self.conv_input(x), []
        for layer in self.encoder_layers:
            parts = list(layer)
            # The last result of each resolution: a stage of basic blocks ends with a strided layer.
            if self.block_type == "basicblock" and len(parts) == 3:
                x = parts[1](parts[0](x))
                scales.append(x)
                x = parts[2](x)
            else:
                x = layer(x)
                scales.append(x)
        return scales

    def last(self, x):
        return self.conv_out(x)


class SpMiddleResNetFHD(Backbone):
    """Det3D's, as CenterPoint has it."""

    def __init__(self, layers, channels_in, channels):
        super().__init__(layers)
        self.conv_input = self.three(layers.subm(channels_in, channels[0], 3, "res0"), channels[0])
        before = channels[0]
        for stage in range(1, 5):
            size, parts = channels[stage - 1], []
            if stage > 1:
                padding = [0, 1, 1] if stage == 4 else 1
                conv = layers.strided(before, size, 3, 2, padding, f"down{stage}")
                parts += [conv, norm(size), nn.ReLU()]
            parts += [BasicBlock(layers, size, f"res{stage - 1}", True) for _ in range(2)]
            self.add_module(f"conv{stage}", layers.Sequential(*parts))
            before = size
        self.extra_conv = self.three(
            layers.strided(before, channels[4], (3, 1, 1), (2, 1, 1), 0, "out"), channels[4]
        )

    encode = VoxelBackBone8x.encode

    def last(self, x):
        return self.extra_conv(x)


class SpMiddleFHD(Backbone):
    """Det3D's SECOND: one list of layers."""

    def __init__(self, layers, channels_in, channels):
        super().__init__(layers)
        parts = []

        def add(conv, size):
            parts.extend([conv, norm(size), nn.ReLU()])

        c1, c2, c3, c4, out = channels
        add(layers.subm(channels_in, c1, 3, "subm0"), c1)
        add(layers.subm(c1, c1, 3, "subm0"), c1)
        self.ends = [len(parts)]
        for before, size, count, padding in (
            (c1, c2, 2, 1),
            (c2, c3, 3, 1),
            (c3, c4, 3, [0, 1, 1]),
        ):
            key = f"{len(parts)}"
            add(layers.strided(before, size, 3, 2, padding, f"down{key}"), size)
            for _ in range(count):
                add(layers.subm(size, size, 3, f"subm{key}"), size)
            self.ends.append(len(parts))
        add(layers.strided(c4, out, (3, 1, 1), (2, 1, 1), 0, "out"), out)
        self.middle_conv = layers.Sequential(*parts)

    def encode(self, x):
        scales, first = [], 0
        for end in self.ends:
            x = self.layers.Sequential(*list(self.middle_conv)[first:end])(x)
            scales.append(x)
            first = end
        return scales

    def last(self, x):
        return self.layers.Sequential(*list(self.middle_conv)[self.ends[-1] :])(x)


class Decoder:
    """What Part-A2 adds: back to the request's voxels, with the features of the stages."""

    def decode(self, scales):
        x = scales[-1]
        for stage in (4, 3, 2, 1):
            side, merge, up = self.steps(stage)
            x = self.layers.join(x, side(scales[stage - 1]))
            merged = self.layers.features(merge(x))
            rows = self.layers.features(x)
            rows = rows.reshape(len(rows), merged.shape[1], -1).sum(2)
            x = up(self.layers.replace(x, merged + rows))
        return self.layers.features(x)

    def forward(self, x, samples):
        scales = self.encode(x)
        return {
            "point_features": self.decode(scales),
            "spatial_features": self.bev(self.last(scales[-1]), samples),
        }

    def add_decoder(self, layers, channels, names):
        for stage in (4, 3, 2, 1):
            size = channels[stage - 1]
            above = channels[stage - 2] if stage > 1 else size
            side, merge, up = names(stage)
            self.add_module(side, BasicBlock(layers, size, f"subm{stage}", False))
            merged = layers.subm(2 * size, size, 3, f"subm{stage}")
            self.add_module(merge, self.three(merged, size))
            if stage > 1:
                conv = layers.inverse(size, above, 3, f"spconv{stage}")
                self.add_module(up, self.three(conv, above))
            else:
                self.add_module(up, self.three(layers.subm(size, size, 3, "subm1"), size))


class UNetV2(Decoder, VoxelBackBone8x):
    """OpenPCDet's."""

    def __init__(self, layers, channels_in, channels):
        super().__init__(layers, channels_in, channels)
        self.add_decoder(layers, channels, self._names)
        # Its last one lies in a list, as the convolutions of the stages do.
        self.conv5 = layers.Sequential(self._modules.pop("conv5"))

    @staticmethod
    def _names(stage):
        up = f"inv_conv{stage}" if stage > 1 else "conv5"
        return f"conv_up_t{stage}", f"conv_up_m{stage}", up

    def steps(self, stage):
        return [getattr(self, name) for name in self._names(stage)]


class SparseUNet(Decoder, SparseEncoder):
    """mmdetection3d's."""

    def __init__(self, layers, channels_in, channels):
        super().__init__(layers, channels_in, *plain_config(channels), channels[4], "conv_module")
        self.add_decoder(layers, channels, self._names)

    @staticmethod
    def _names(stage):
        return f"lateral_layer{stage}", f"merge_layer{stage}", f"upsample_layer{stage}"

    def steps(self, stage):
        return [getattr(self, name) for name in self._names(stage)]


def plain_config(channels):
    """encoder_channels, encoder_paddings of SECOND."""
    c1, c2, c3, c4, _ = channels
    return ((c1,), (c2,) * 3, (c3,) * 3, (c4,) * 3), ((1,), (1,) * 3, (1,) * 3, ((0, 1, 1), 1, 1))


def block_config(channels):
    """encoder_channels, encoder_paddings of CenterPoint."""
    c1, c2, c3, c4, _ = channels
    return (
        ((c1, c1, c2), (c2, c2, c3), (c3, c3, c4), (c4, c4)),
        ((0, 0, 1), (0, 0, 1), (0, 0, (0, 1, 1)), (0, 0)),
    )
