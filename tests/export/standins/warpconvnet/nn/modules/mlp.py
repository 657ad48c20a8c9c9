# SPDX-License-Identifier: Apache-2.0
"""Stands in for WarpConvNet: torch's linear layers on features."""

from torch import nn
from warpconvnet.nn.modules.base_module import BaseSpatialModule


class Linear(BaseSpatialModule):
    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.block = nn.Linear(in_features, out_features, bias=bias)

    def forward(self, x):
        return x.replace(batched_features=self.block(x.feature_tensor))
