# SPDX-License-Identifier: Apache-2.0
"""Stands in for WarpConvNet: TRELLIS.2's modules between children and parents, on Voxels."""

import torch
from torch import nn
from warpconvnet.geometry.types.voxels import from_feats_coords


def _blocks(x, factor):
    at = x.coords.long()
    up = torch.cat([at[:, :1], at[:, 1:] // factor], 1)
    voxels, rows = up.unique(dim=0, return_inverse=True)
    child = sum(at[:, 1 + axis] % factor * factor**axis for axis in range(3))
    return voxels.int(), rows, child


def _children(x, mask, factor):
    rows, child = mask.nonzero().unbind(1)
    voxels = x.coords[rows].clone()
    voxels[:, 1:] *= factor
    for axis in range(3):
        voxels[:, 1 + axis] += (child // factor**axis % factor).int()
    return voxels, rows, child


class _Factor(nn.Module):
    def __init__(self, factor=2):
        super().__init__()
        self.factor = factor


class SparseDownsample(_Factor):
    def __init__(self, factor, mode="mean"):
        super().__init__(factor)
        self.mode = mode

    def forward(self, x):
        voxels, rows, _ = _blocks(x, self.factor)
        total = torch.zeros(len(voxels), x.feats.shape[1]).index_add(0, rows, x.feats)
        out = from_feats_coords(total / torch.bincount(rows)[:, None], voxels)
        out._extra_attributes["_spatial_cache"] = x.spatial_cache
        x.spatial_cache[f"upsample_{self.factor}"] = (x.coords, rows)
        return out


class SparseUpsample(_Factor):
    def forward(self, x, subdivision=None):
        cache = x.spatial_cache.get(f"upsample_{self.factor}")
        voxels, rows, *_ = cache or _children(x, subdivision.feats, self.factor)
        return from_feats_coords(x.feats[rows], voxels)


class SparseSpatial2Channel(_Factor):
    def forward(self, x):
        key = f"spatial2channel_{self.factor}"
        cache = x.spatial_cache.setdefault(key, _blocks(x, self.factor))
        voxels, rows, child = cache
        wide = torch.zeros(len(voxels), self.factor**3, x.feats.shape[1])
        wide[rows, child] = x.feats
        out = from_feats_coords(wide.reshape(len(voxels), -1), voxels)
        out.spatial_cache[f"channel2spatial_{self.factor}"] = (x.coords, rows, child)
        return out


class SparseChannel2Spatial(_Factor):
    def forward(self, x, subdivision=None):
        cache = x.spatial_cache.get(f"channel2spatial_{self.factor}")
        voxels, rows, child = cache or _children(x, subdivision.feats, self.factor)
        wide = x.feats.reshape(len(x.feats), self.factor**3, -1)
        return from_feats_coords(wide[rows, child], voxels)


class SparseSubdivide(_Factor):
    def forward(self, x):
        mask = torch.ones(len(x.feats), self.factor**3, dtype=torch.bool)
        voxels, rows, _ = _children(x, mask, self.factor)
        return from_feats_coords(x.feats[rows], voxels)
