# SPDX-License-Identifier: Apache-2.0
"""Stands in for TRELLIS.2: norms that compute in float32."""

import torch
from torch import nn


class LayerNorm32(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.type(torch.float32)).type(x.dtype)


class GroupNorm32(nn.GroupNorm):
    def forward(self, x):
        return super().forward(x.type(torch.float32)).type(x.dtype)
