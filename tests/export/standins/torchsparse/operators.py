# SPDX-License-Identifier: Apache-2.0
"""torchsparse/operators.py."""

import torch

from .tensor import SparseTensor, share

__all__ = ["cat", "generative_add"]


def cat(inputs):
    feats = torch.cat([tensor.feats for tensor in inputs], dim=1)
    made = SparseTensor(coords=inputs[0].coords, feats=feats, stride=inputs[0].stride)
    return share(made, inputs[0])  # 2.1 loses spatial_range here


def generative_add(a, b):
    coords, rows = torch.unique(torch.cat([a.C, b.C]), dim=0, return_inverse=True)
    feats = torch.cat([a.F, b.F])
    return SparseTensor(torch.zeros(len(coords), feats.shape[1]).index_add(0, rows, feats), coords)
