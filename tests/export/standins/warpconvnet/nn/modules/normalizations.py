# SPDX-License-Identifier: Apache-2.0
"""Stands in for WarpConvNet: torch's norms on features."""

from torch import nn
from warpconvnet.nn.functional.transforms import apply_feature_transform
from warpconvnet.nn.modules.base_module import BaseSpatialModule


class NormalizationBase(BaseSpatialModule):
    def __init__(self, norm):
        super().__init__()
        self.norm = norm

    def forward(self, input):
        return apply_feature_transform(input, self.norm)


class BatchNorm(NormalizationBase):
    def __init__(self, num_features, eps=1e-5):
        super().__init__(nn.BatchNorm1d(num_features, eps=eps))


class LayerNorm(NormalizationBase):
    def __init__(self, normalized_shape, eps=1e-5):
        super().__init__(nn.LayerNorm(normalized_shape, eps=eps))


class InstanceNorm(NormalizationBase):
    def __init__(self, num_features, eps=1e-5):
        super().__init__(nn.InstanceNorm1d(num_features, eps=eps))


class GroupNorm(NormalizationBase):
    def __init__(self, num_groups, num_channels, eps=1e-5):
        super().__init__(nn.GroupNorm(num_groups, num_channels, eps=eps))


class LayerNorm32(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.float()).to(x.dtype)
