# SPDX-License-Identifier: Apache-2.0
"""Stands in for WarpConvNet: modules on Voxels and on features, one behind the other."""

from torch import nn
from warpconvnet.geometry.types.voxels import Voxels
from warpconvnet.nn.modules.base_module import BaseSpatialModule


class Sequential(nn.Sequential, BaseSpatialModule):
    def forward(self, x):
        voxels = x
        for module in self:
            spatial = isinstance(module, BaseSpatialModule)
            if isinstance(x, Voxels):
                voxels = x
                x = module(x if spatial else x.feature_tensor)
            else:
                x = module(voxels.replace(batched_features=x) if spatial else x)
        return x if isinstance(x, Voxels) else voxels.replace(batched_features=x)
