# SPDX-License-Identifier: Apache-2.0
"""Stands in for WarpConvNet: no attention, but an answer of the right shape to be refused."""

from warpconvnet.nn.modules.base_module import BaseSpatialModule


class PatchAttention(BaseSpatialModule):
    def __init__(self, dim, patch_size, num_heads=8):
        super().__init__()
        self.dim, self.patch_size, self.num_heads = dim, patch_size, num_heads

    def forward(self, x):
        return x.replace(batched_features=x.feature_tensor.clone())
