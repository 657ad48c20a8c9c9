# SPDX-License-Identifier: Apache-2.0
"""Stands in for the first TRELLIS: norms that compute in float32."""

from torch import nn


class LayerNorm32(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.float()).type(x.dtype)


class GroupNorm32(nn.GroupNorm):
    def forward(self, x):
        return super().forward(x.float()).type(x.dtype)
