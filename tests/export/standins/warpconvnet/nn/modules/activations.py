# SPDX-License-Identifier: Apache-2.0
"""Stands in for WarpConvNet: torch's activations on features."""

from torch import nn
from torch.nn import functional as F
from warpconvnet.nn.functional.transforms import apply_feature_transform
from warpconvnet.nn.modules.base_module import BaseSpatialModule


class ReLU(BaseSpatialModule):
    def __init__(self, inplace=False):
        super().__init__()
        self.relu = nn.ReLU(inplace=inplace)

    def forward(self, input):
        return apply_feature_transform(input, self.relu)


class SiLU(BaseSpatialModule):
    def forward(self, input):
        return apply_feature_transform(input, F.silu)


class GELU(BaseSpatialModule):
    def forward(self, input):
        return apply_feature_transform(input, F.gelu)


class LeakyReLU(nn.Module):
    def forward(self, input):
        return apply_feature_transform(input, F.leaky_relu)


class Softmax(BaseSpatialModule):
    def forward(self, input):
        return apply_feature_transform(input, F.softmax)


class ELU(BaseSpatialModule):
    def forward(self, input):
        return apply_feature_transform(input, F.elu)


class DropPath(BaseSpatialModule):
    def forward(self, x):
        return x.replace(batched_features=x.feature_tensor)
