# SPDX-License-Identifier: Apache-2.0
"""Stands in for WarpConvNet: pools, and the way back."""

import torch
from warpconvnet.geometry.types.voxels import IntCoords
from warpconvnet.nn.functional.sparse_conv import kernel_map, sparse_reduce
from warpconvnet.nn.modules.base_module import BaseSpatialModule


class SparsePool(BaseSpatialModule):
    def __init__(self, kernel_size, stride, reduce="max"):
        super().__init__()
        self.kernel_size, self.stride, self.reduce = kernel_size, stride, reduce

    def forward(self, st):
        return sparse_reduce(st, self.kernel_size, self.stride, self.reduce)


class SparseMaxPool(SparsePool):
    pass


class SparseUnpool(BaseSpatialModule):
    def __init__(self, kernel_size, stride, concat_unpooled_st=True):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, stride
        self.concat_unpooled_st = concat_unpooled_st

    def forward(self, st, unpooled_st):
        ndim = st.num_spatial_dims
        pairs = kernel_map(
            unpooled_st.batch_indexed_coordinates,
            st.batch_indexed_coordinates,
            (self.stride,) * ndim,
            (self.kernel_size,) * ndim,
            (1,) * ndim,
        )
        finer, coarser = (torch.cat(rows) for rows in zip(*pairs))
        features = st.feature_tensor[coarser[torch.argsort(finer)]]
        if self.concat_unpooled_st:
            features = torch.cat([unpooled_st.feature_tensor, features], dim=-1)
        return unpooled_st.replace(batched_features=features)


class GlobalPool(BaseSpatialModule):
    def __init__(self, reduce="max"):
        super().__init__()
        self.reduce = reduce

    def forward(self, x):
        reduce = {"max": lambda r: r.max(0)[0], "mean": lambda r: r.mean(0), "sum": torch.sum}
        parts = x.feature_tensor.split(x.offsets.diff().tolist())
        if self.reduce == "sum":
            rows = [part.sum(0) for part in parts]
        else:
            rows = [reduce[self.reduce](part) for part in parts]
        at = torch.zeros(x.batch_size, x.num_spatial_dims, dtype=torch.int32)
        coords = IntCoords(at, torch.arange(x.batch_size + 1))
        return x.replace(batched_coordinates=coords, batched_features=torch.stack(rows))
