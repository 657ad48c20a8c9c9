# SPDX-License-Identifier: Apache-2.0
"""torchsparse/nn/functional."""

import torch
from torch.nn import functional as F

from torchsparse import version
from torchsparse.tensor import SparseTensor

from ..utils import fapply
from . import conv_config  # noqa: F401
from .conv import conv3d  # noqa: F401
from .points import calc_ti_weights, spdevoxelize, spvoxelize  # noqa: F401


def _samples(tensor):
    return tensor.coords[:, -1 if version.before_21() else 0]


def global_avg_pool(inputs):
    count = int(_samples(inputs).max()) + 1
    return torch.stack([inputs.feats[_samples(inputs) == b].mean(0) for b in range(count)])


def global_max_pool(inputs):
    count = int(_samples(inputs).max()) + 1
    return torch.stack([inputs.feats[_samples(inputs) == b].max(0)[0] for b in range(count)])


def relu(input, inplace=True):
    return fapply(input, F.relu, inplace=inplace)


def leaky_relu(input, negative_slope=0.1, inplace=True):
    return fapply(input, F.leaky_relu, negative_slope=negative_slope, inplace=inplace)


def spcrop(input, coords_min=None, coords_max=None):
    kept = torch.ones(len(input.coords), dtype=torch.bool)
    if coords_min is not None:
        kept &= (input.coords[:, :3] >= torch.tensor(coords_min)).all(1)
    if coords_max is not None:
        kept &= (input.coords[:, :3] < torch.tensor(coords_max)).all(1)
    return SparseTensor(coords=input.coords[kept], feats=input.feats[kept], stride=input.stride)
