# SPDX-License-Identifier: Apache-2.0
"""MinkowskiConvolution.py and MinkowskiChannelwiseConvolution.py."""

import torch
from torch import nn

from .tensors import (
    KernelGenerator,
    SparseTensor,
    given,
    maps,
    region,
    strided,
)


class MinkowskiModuleBase(nn.Module):
    pass


class MinkowskiNetwork(nn.Module):
    def __init__(self, D):
        super().__init__()
        self.D = D


class MinkowskiConvolutionBase(MinkowskiModuleBase):
    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size=-1,
        stride=1,
        dilation=1,
        bias=False,
        kernel_generator=None,
        is_transpose=False,
        expand_coordinates=False,
        dimension=-1,
    ):
        super().__init__()
        assert dimension > 0
        self.in_channels, self.out_channels = in_channels, out_channels
        self.dimension, self.is_transpose = dimension, is_transpose
        self.kernel_generator = kernel_generator or KernelGenerator(
            kernel_size, stride, dilation, dimension=dimension
        )
        self.kernel_generator.expand_coordinates = expand_coordinates
        volume = self.kernel_generator.kernel_volume
        self.use_mm = volume == 1 and self.kernel_generator.requires_strided_coordinates
        shape = (in_channels, out_channels) if self.use_mm else (volume, in_channels, out_channels)
        self.kernel = nn.Parameter(torch.randn(*shape) / (volume * in_channels) ** 0.5)
        self.bias = nn.Parameter(torch.randn(1, out_channels)) if bias else None

    def forward(self, input, coordinates=None):
        assert isinstance(input, SparseTensor)
        how, manager = self.kernel_generator, input.coordinate_manager
        if self.use_mm:
            return self._finish(input, input.coordinate_map_key, input.F.mm(self.kernel))
        if coordinates is not None and not how.expand_coordinates:
            key = given(input, coordinates, how.kernel_stride)
        elif self.is_transpose:
            finer = [a // b for a, b in zip(input.tensor_stride, how.kernel_stride)]
            key = region(input, how, finer, how.expand_coordinates)
        elif how.expand_coordinates:
            key = region(input, how, input.tensor_stride, True)
        else:
            key = strided(input, how.kernel_stride)
        there = manager.get(key)
        out = torch.zeros(len(there), self.out_channels)
        if self.is_transpose:
            for v, p, q in maps(how, there, key.get_tensor_stride(), input.C):
                out.index_add_(0, p, input.F[q] @ self.kernel[v])
        else:
            for v, p, q in maps(how, input.C, input.tensor_stride, there):
                out.index_add_(0, q, input.F[p] @ self.kernel[v])
        return self._finish(input, key, out)

    def _finish(self, input, key, out):
        if self.bias is not None:
            out += self.bias
        return SparseTensor(
            out, coordinate_map_key=key, coordinate_manager=input.coordinate_manager
        )


class MinkowskiConvolution(MinkowskiConvolutionBase):
    pass


class MinkowskiConvolutionTranspose(MinkowskiConvolutionBase):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, is_transpose=True, **kwargs)


class MinkowskiGenerativeConvolutionTranspose(MinkowskiConvolutionBase):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, is_transpose=True, expand_coordinates=True, **kwargs)


class MinkowskiChannelwiseConvolution(MinkowskiModuleBase):
    def __init__(
        self,
        in_channels,
        kernel_size=-1,
        stride=1,
        dilation=1,
        bias=False,
        kernel_generator=None,
        dimension=-1,
    ):
        super().__init__()
        assert dimension > 0
        self.in_channels, self.dimension = in_channels, dimension
        self.kernel_generator = kernel_generator or KernelGenerator(
            kernel_size, stride, dilation, dimension=dimension
        )
        self.kernel = nn.Parameter(torch.randn(self.kernel_generator.kernel_volume, in_channels))
        self.bias = nn.Parameter(torch.randn(1, in_channels)) if bias else None

    def forward(self, input, coords=None):
        how = self.kernel_generator
        key = strided(input, how.kernel_stride)
        there = input.coordinate_manager.get(key)
        out = torch.zeros(len(there), self.in_channels)
        for v, p, q in maps(how, input.C, input.tensor_stride, there):
            out.index_add_(0, q, input.F[p] * self.kernel[v])
        if self.bias is not None:
            out += self.bias
        return SparseTensor(
            out, coordinate_map_key=key, coordinate_manager=input.coordinate_manager
        )
