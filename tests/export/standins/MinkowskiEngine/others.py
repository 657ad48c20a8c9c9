# SPDX-License-Identifier: Apache-2.0
"""Pools, broadcasts, norms and what calls torch."""

import torch
from torch import nn

from .convolutions import MinkowskiModuleBase
from .tensors import (
    POOL,
    CoordinateMapKey,
    KernelGenerator,
    PoolingMode,
    SparseTensor,
    given,
    like,
    pairs,
    region,
    strided,
    sum,
    union,
)


def _pool_of(mode):
    return POOL[mode.name.split("_")[1]]


class MinkowskiPoolingBase(MinkowskiModuleBase):
    MODE = PoolingMode.LOCAL_AVG_POOLING

    def __init__(
        self, kernel_size, stride=1, dilation=1, kernel_generator=None, dimension=-1, **more
    ):
        super().__init__()
        assert dimension > 0
        self.is_transpose, self.pooling_mode, self.dimension = False, self.MODE, dimension
        self.kernel_generator = kernel_generator or KernelGenerator(
            kernel_size, stride, dilation, dimension=dimension, **more
        )

    def forward(self, input, coordinates=None):
        key, read = self._read(input, coordinates)
        pool = _pool_of(self.pooling_mode)
        out = torch.stack([pool(input.F[rows]) for rows in read])
        return SparseTensor(
            out, coordinate_map_key=key, coordinate_manager=input.coordinate_manager
        )

    def _read(self, input, coordinates):
        """The key of the result, and of each of its rows the rows that it reads."""
        how = self.kernel_generator
        key = (
            strided(input, how.kernel_stride)
            if coordinates is None
            else given(input, coordinates, how.kernel_stride)
        )
        coarse = input.coordinate_manager.get(key)
        read = [[] for _ in coarse]
        if how.kernel_size == how.kernel_stride:  # the voxels of a block
            for p, q in enumerate(_parents(input.C, coarse, key.get_tensor_stride())):
                read[q].append(p)
        else:
            for _, p, q in pairs(how, input.C, input.tensor_stride, coarse):
                read[q].append(p)
        return key, read


def _parents(fine, coarse, stride):
    """Of each voxel of `fine` the row of the one of `coarse` in whose block it lies."""
    rows = {tuple(c): row for row, c in enumerate(coarse.tolist())}
    return [
        rows[(int(c[0]), *(int(a) for a in c[1:] // stride * stride))]
        for c in fine.numpy().astype(int)
    ]


class MinkowskiAvgPooling(MinkowskiPoolingBase):
    pass


class MinkowskiSumPooling(MinkowskiPoolingBase):
    MODE = PoolingMode.LOCAL_SUM_POOLING


class MinkowskiMaxPooling(MinkowskiPoolingBase):
    MODE = PoolingMode.LOCAL_MAX_POOLING


class MinkowskiPoolingTranspose(MinkowskiPoolingBase):
    """A mean of the coarse voxels whose kernel reaches the fine one."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.is_transpose = True

    def _read(self, input, coordinates):
        how = self.kernel_generator
        stride = [a // b for a, b in zip(input.tensor_stride, how.kernel_stride)]
        key = region(input, how, stride, how.expand_coordinates)
        fine = input.coordinate_manager.get(key)
        if how.kernel_size == how.kernel_stride:
            return key, [[q] for q in _parents(fine, input.C, input.tensor_stride)]
        read = [[] for _ in fine]
        for _, p, q in pairs(how, fine, stride, input.C):
            read[p].append(q)
        return key, read


class MinkowskiGlobalPooling(MinkowskiModuleBase):
    def __init__(self, mode=PoolingMode.GLOBAL_AVG_POOLING_PYTORCH_INDEX):
        super().__init__()
        self.pooling_mode = mode

    def forward(self, input, coordinates=None):
        samples = torch.unique(input.C[:, 0])
        pool = _pool_of(self.pooling_mode)
        out = torch.stack([pool(input.F[input.C[:, 0] == b]) for b in samples])
        key = CoordinateMapKey([0] * len(input.tensor_stride))
        at = torch.zeros(len(samples), input.C.shape[1], dtype=torch.int32)
        at[:, 0] = samples
        input.coordinate_manager.place(key, at)
        return SparseTensor(
            out, coordinate_map_key=key, coordinate_manager=input.coordinate_manager
        )


class MinkowskiGlobalAvgPooling(MinkowskiGlobalPooling):
    pass


class MinkowskiGlobalSumPooling(MinkowskiGlobalPooling):
    def __init__(self, mode=PoolingMode.GLOBAL_SUM_POOLING_PYTORCH_INDEX):
        super().__init__(mode)


class MinkowskiGlobalMaxPooling(MinkowskiGlobalPooling):
    def __init__(self, mode=PoolingMode.GLOBAL_MAX_POOLING_PYTORCH_INDEX):
        super().__init__(mode)


class MinkowskiBroadcastBase(MinkowskiModuleBase):
    def forward(self, input, input_glob):
        rows = {b: row for row, b in enumerate(input_glob.C[:, 0].tolist())}
        whole = input_glob.F[[rows[b] for b in input.C[:, 0].tolist()]]
        return like(input, self.joined(input.F, whole))


class MinkowskiBroadcastAddition(MinkowskiBroadcastBase):
    joined = staticmethod(lambda x, y: x + y)


class MinkowskiBroadcastMultiplication(MinkowskiBroadcastBase):
    joined = staticmethod(lambda x, y: x * y)


class MinkowskiBroadcast(MinkowskiBroadcastBase):
    joined = staticmethod(lambda x, y: y)


class MinkowskiBroadcastConcatenation(MinkowskiBroadcast):
    joined = staticmethod(lambda x, y: torch.cat([x, y], dim=1))


class MinkowskiPruning(MinkowskiModuleBase):
    def forward(self, input, mask):
        key = input.coordinate_manager.another(input.tensor_stride)
        input.coordinate_manager.place(key, input.C[mask])
        return SparseTensor(
            input.F[mask], coordinate_map_key=key, coordinate_manager=input.coordinate_manager
        )


class MinkowskiUnion(nn.Module):
    def forward(self, *inputs):
        key, rows = union(*inputs)
        out = torch.zeros(len(inputs[0].coordinate_manager.get(key)), inputs[0].F.shape[1])
        for tensor, at in zip(inputs, rows):
            out[at] += tensor.F
        return SparseTensor(
            out, coordinate_map_key=key, coordinate_manager=inputs[0].coordinate_manager
        )


class MinkowskiInterpolation(MinkowskiModuleBase):
    def forward(self, input, tfield):
        return input.features_at_coordinates(tfield)


class MinkowskiInstanceNorm(MinkowskiModuleBase):
    def __init__(self, num_features):
        super().__init__()
        self.num_features = num_features
        self.weight = nn.Parameter(torch.rand(1, num_features) + 0.5)
        self.bias = nn.Parameter(torch.randn(1, num_features))

    def forward(self, input):
        out = input.F.clone()
        for b in torch.unique(input.C[:, 0]):
            rows = input.C[:, 0] == b
            x = input.F[rows]
            out[rows] = (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-8).sqrt()
        return like(input, out * self.weight + self.bias)


class MinkowskiBatchNorm(nn.Module):
    def __init__(self, num_features, eps=1e-5, momentum=0.1):
        super().__init__()
        self.bn = nn.BatchNorm1d(num_features, eps=eps, momentum=momentum)

    def forward(self, input):
        return like(input, self.bn(input.F))


class MinkowskiLinear(nn.Module):
    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features, bias=bias)

    def forward(self, input):
        return like(input, self.linear(input.F))


class MinkowskiToFeature(MinkowskiModuleBase):
    def forward(self, x):
        return x.F


class MinkowskiToDenseTensor(MinkowskiModuleBase):
    def __init__(self, shape=None):
        super().__init__()
        self.shape = shape

    def forward(self, input):
        return input.dense(shape=self.shape)[0]


class MinkowskiStackSum(nn.Sequential):
    def forward(self, x):
        return sum([module(x) for module in self])


class MinkowskiNonlinearityBase(MinkowskiModuleBase):
    MODULE = None

    def __init__(self, *args, **kwargs):
        super().__init__()
        self.module = self.MODULE(*args, **kwargs)

    def forward(self, input):
        return like(input, self.module(input.F))


class MinkowskiReLU(MinkowskiNonlinearityBase):
    MODULE = nn.ReLU


class MinkowskiLeakyReLU(MinkowskiNonlinearityBase):
    MODULE = nn.LeakyReLU


class MinkowskiGELU(MinkowskiNonlinearityBase):
    MODULE = nn.GELU


class MinkowskiSigmoid(MinkowskiNonlinearityBase):
    MODULE = nn.Sigmoid


class MinkowskiELU(MinkowskiNonlinearityBase):
    MODULE = nn.ELU


class MinkowskiDropout(MinkowskiNonlinearityBase):
    MODULE = nn.Dropout
