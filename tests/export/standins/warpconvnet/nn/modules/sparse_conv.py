# SPDX-License-Identifier: Apache-2.0
"""Stands in for WarpConvNet: its convolutions' attributes and weights."""

import math

import torch
from torch import nn
from warpconvnet.nn.functional.sparse_conv import STRIDED_CONV_MODE, spatially_sparse_conv
from warpconvnet.nn.modules.base_module import BaseSpatialModule


def ntuple(size, ndim):
    return (size,) * ndim if isinstance(size, int) else tuple(size)


class SpatiallySparseConv(BaseSpatialModule):
    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        dilation=1,
        bias=True,
        transposed=False,
        generative=False,
        groups=1,
        num_spatial_dims=3,
        stride_mode=STRIDED_CONV_MODE.STRIDE_ONLY,
    ):
        super().__init__()
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = ntuple(kernel_size, num_spatial_dims)
        self.stride = ntuple(stride, num_spatial_dims)
        self.dilation = ntuple(dilation, num_spatial_dims)
        self.transposed, self.generative, self.stride_mode = transposed, generative, stride_mode
        shape = (in_channels, out_channels)
        if groups > 1:
            shape = (groups, in_channels // groups, out_channels // groups)
        volume = math.prod(self.kernel_size)
        scale = (volume * in_channels / groups) ** -0.5
        self.weight = nn.Parameter(torch.randn(volume, *shape) * scale)
        self.bias = nn.Parameter(torch.randn(out_channels) * 0.3) if bias else None

    def multiply(self, rows, weight):
        if self.groups == 1:
            return rows @ weight
        parts = rows.reshape(len(rows), self.groups, -1)
        return torch.einsum("ngi,gio->ngo", parts, weight).reshape(len(rows), -1)

    def forward(self, input_sparse_tensor, output_spatially_sparse_tensor=None):
        if math.prod(self.kernel_size) == 1 and math.prod(self.stride) == 1:
            out = input_sparse_tensor.feature_tensor @ self.weight[0]
            if self.bias is not None:
                out += self.bias
            return input_sparse_tensor.replace(batched_features=out)
        return spatially_sparse_conv(self, input_sparse_tensor, output_spatially_sparse_tensor)


class SparseConv2d(SpatiallySparseConv):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, num_spatial_dims=2, **kwargs)


class SparseConv3d(SpatiallySparseConv):
    pass


class SpatiallySparseDepthwiseConv(BaseSpatialModule):
    def __init__(self, channels, kernel_size, stride=1, bias=True, num_spatial_dims=3):
        super().__init__()
        self.in_channels = self.out_channels = self.channels = channels
        self.kernel_size = ntuple(kernel_size, num_spatial_dims)
        self.stride = ntuple(stride, num_spatial_dims)
        self.dilation = (1,) * num_spatial_dims
        self.transposed = self.generative = False
        self.stride_mode = STRIDED_CONV_MODE.STRIDE_ONLY
        self.weight = nn.Parameter(torch.randn(math.prod(self.kernel_size), channels) / 3)
        self.bias = nn.Parameter(torch.randn(channels)) if bias else None

    def multiply(self, rows, weight):
        return rows * weight

    def forward(self, input_sparse_tensor, output_spatially_sparse_tensor=None):
        return spatially_sparse_conv(self, input_sparse_tensor, output_spatially_sparse_tensor)


class SparseDepthwiseConv3d(SpatiallySparseDepthwiseConv):
    pass
