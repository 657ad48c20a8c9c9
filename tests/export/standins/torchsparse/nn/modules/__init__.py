# SPDX-License-Identifier: Apache-2.0
"""torchsparse/nn/modules."""

import numpy as np
import torch
from torch import nn

from torchsparse import version
from torchsparse.nn import functional as F
from torchsparse.tensor import like

from ..utils import fapply

__all__ = [
    "BatchNorm",
    "Conv3d",
    "GlobalAvgPool",
    "GlobalMaxPool",
    "GroupNorm",
    "InstanceNorm",
    "LeakyReLU",
    "ReLU",
    "SiLU",
    "SparseCrop",
    "ToBEVHeightCompression",
]


def _triple(numbers):
    return (numbers,) * 3 if isinstance(numbers, int) else tuple(numbers)


class Conv3d(nn.Module):
    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size=3,
        stride=1,
        padding=0,
        dilation=1,
        bias=False,
        transposed=False,
        generative=False,
        config=None,
    ):
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride = _triple(kernel_size), _triple(stride)
        self.dilation, self.transposed = dilation, transposed
        self.kernel_volume = int(np.prod(self.kernel_size))
        flat = self.kernel_volume == 1
        if not version.before_21():
            self.padding = tuple(
                (k - 1) // 2 if k % 2 and s == 1 else p
                for k, s, p in zip(self.kernel_size, self.stride, _triple(padding))
            )
            self.generative, self._config = generative, config
            flat = flat and self.stride == (1, 1, 1)
        shape = (in_channels, out_channels)
        shape = shape if flat else (self.kernel_volume, *shape)
        self.kernel = nn.Parameter(torch.randn(*shape) / (self.kernel_volume * in_channels) ** 0.5)
        self.bias = nn.Parameter(torch.randn(out_channels)) if bias else None

    def forward(self, input):
        more = {} if version.before_21() else {"padding": self.padding, "config": self._config}
        return F.conv3d(
            input,
            self.kernel,
            kernel_size=self.kernel_size,
            bias=self.bias,
            stride=self.stride,
            dilation=self.dilation,
            transposed=self.transposed,
            generative=getattr(self, "generative", False),
            **more,
        )


class BatchNorm(nn.BatchNorm1d):
    def forward(self, input):
        return fapply(input, super().forward)


class InstanceNorm(nn.InstanceNorm1d):
    def forward(self, input):
        return fapply(input, super().forward)


class GroupNorm(nn.GroupNorm):
    def forward(self, input):
        """Over all rows of a sample."""
        samples = input.coords[:, -1 if version.before_21() else 0]
        out = torch.zeros_like(input.feats)
        for b in range(int(samples.max()) + 1):
            rows = samples == b
            out[rows] = super().forward(input.feats[rows].t()[None])[0].t()
        return like(input, out)


class ReLU(nn.ReLU):
    def forward(self, input):
        return fapply(input, super().forward)


class LeakyReLU(nn.LeakyReLU):
    def forward(self, input):
        return fapply(input, super().forward)


class SiLU(nn.SiLU):
    def forward(self, input):
        return fapply(input, super().forward)


class GlobalAvgPool(nn.Module):
    def forward(self, input):
        return F.global_avg_pool(input)


class GlobalMaxPool(nn.Module):
    def forward(self, input):
        return F.global_max_pool(input)


class SparseCrop(nn.Module):
    def __init__(self, coords_min=None, coords_max=None):
        super().__init__()
        self.coords_min, self.coords_max = coords_min, coords_max

    def forward(self, input):
        return F.spcrop(input, self.coords_min, self.coords_max)


class ToBEVHeightCompression(nn.Module):
    """Stands for the modules of bev.py, none of which is served: only its name matters."""

    def forward(self, input):
        return input.feats.clone()
