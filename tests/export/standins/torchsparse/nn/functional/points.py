# SPDX-License-Identifier: Apache-2.0
"""torchsparse/nn/functional: voxelize.py, devoxelize.py."""

import torch


class _Voxelize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, feats, coords, counts):
        kept = coords >= 0
        out = torch.zeros(len(counts), feats.shape[1])
        out.index_add_(0, coords[kept].long(), feats[kept])
        return out / counts.clamp(min=1)[:, None]


class _Devoxelize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, feats, coords, weights):
        rows = feats[coords.clamp(min=0).long()] * (coords >= 0)[:, :, None]
        return (rows * weights[:, :, None]).sum(1)


def spvoxelize(feats, coords, counts):
    return _Voxelize.apply(feats, coords, counts)


def spdevoxelize(feats, coords, weights):
    return _Devoxelize.apply(feats, coords, weights)


def calc_ti_weights(coords, idx_query, scale=1):
    """[N, 8], z fastest: of the corners of the voxel in which a point lies."""
    with torch.no_grad():
        part = coords / scale
        upper = part - part.floor()
        sides = torch.stack([1 - upper, upper])  # [2, N, 3]
        found = [
            sides[a, :, 0] * sides[b, :, 1] * sides[c, :, 2]
            for a in (0, 1)
            for b in (0, 1)
            for c in (0, 1)
        ]
        weights = torch.stack(found, 1)
        weights[idx_query == -1] = 0
        return weights / (weights.sum(1, keepdim=True) + 1e-8)
