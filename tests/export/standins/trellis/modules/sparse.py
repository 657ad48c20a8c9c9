# SPDX-License-Identifier: Apache-2.0
"""Stands in for the first TRELLIS's sparse package with its backend spconv, which is the real one.

Written from what its sources do, with their names.
"""

import itertools

import spconv.pytorch as spconv
import torch
from torch import nn


class SparseTensor:
    def __init__(self, feats=None, coords=None, shape=None, layout=None, data=None, **more):
        self.data = data
        if data is None:
            sizes = list(coords.max(0)[0] + 1)
            flat = feats.reshape(feats.shape[0], -1)
            self.data = spconv.SparseConvTensor(flat, coords.int(), sizes[1:], int(sizes[0]))
            self.data._features = feats
        samples = int(self.coords[:, 0].max()) + 1
        self._shape = shape or torch.Size([samples, *self.feats.shape[1:]])
        ends = torch.bincount(self.coords[:, 0].long(), minlength=samples).cumsum(0)
        ends = [0, *ends.tolist()]
        self._layout = layout or [slice(a, b) for a, b in itertools.pairwise(ends)]
        self._scale = more.get("scale", (1, 1, 1))
        self._spatial_cache = more.get("spatial_cache", {})

    feats = property(lambda self: self.data.features)
    coords = property(lambda self: self.data.indices)
    shape = property(lambda self: self._shape)
    layout = property(lambda self: self._layout)
    dtype = property(lambda self: self.feats.dtype)

    def register_spatial_cache(self, key, value):
        self._spatial_cache.setdefault(str(self._scale), {})[key] = value

    def get_spatial_cache(self, key):
        return self._spatial_cache.get(str(self._scale), {}).get(key)

    def replace(self, feats):
        flat = self.data.features.reshape(self.data.features.shape[0], -1)
        data = spconv.SparseConvTensor(
            flat,
            self.data.indices,
            self.data.spatial_shape,
            self.data.batch_size,
            indice_dict=self.data.indice_dict,
        )
        data._features = feats
        return SparseTensor(
            data=data,
            shape=torch.Size([self.shape[0], *feats.shape[1:]]),
            layout=self.layout,
            scale=self._scale,
            spatial_cache=self._spatial_cache,
        )

    def type(self, dtype):
        return self.replace(self.feats.type(dtype))

    def float(self):
        return self.replace(self.feats.float())

    def __add__(self, other):
        return self.replace(torch.add(self.feats, getattr(other, "feats", other)))

    def __mul__(self, other):
        return self.replace(torch.mul(self.feats, getattr(other, "feats", other)))


class SparseConv3d(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size, bias=True, indice_key=None):
        super().__init__()
        self.conv = spconv.SubMConv3d(
            in_channels, out_channels, kernel_size, bias=bias, indice_key=indice_key
        )
        self.stride, self.padding = (1, 1, 1), None

    def forward(self, x):
        return SparseTensor(
            data=self.conv(x.data),
            shape=torch.Size([x.shape[0], self.conv.out_channels]),
            layout=x.layout,
            scale=x._scale,
            spatial_cache=x._spatial_cache,
        )


class SparseLinear(nn.Linear):
    def forward(self, input):
        return input.replace(super().forward(input.feats))


class SparseSiLU(nn.SiLU):
    def forward(self, input):
        return input.replace(super().forward(input.feats))


class SparseGroupNorm(nn.GroupNorm):
    def forward(self, input):
        made = torch.zeros_like(input.feats)
        for rows in input.layout:
            made[rows] = super().forward(input.feats[rows].t().unsqueeze(0))[0].t()
        return input.replace(made)


class SparseGroupNorm32(SparseGroupNorm):
    def forward(self, x):
        return super().forward(x.float()).type(x.dtype)


class SparseMultiHeadAttention(nn.Module):
    """Not one: an answer of the right shape is enough to be refused."""

    def __init__(self, channels, attn_mode="windowed", window_size=8):
        super().__init__()
        self.attn_mode, self.window_size = attn_mode, window_size
        self.to_out = nn.Linear(channels, channels)

    def forward(self, x):
        return x.replace(self.to_out(x.feats))


class SparseDownsample(nn.Module):
    """A mean that begins with a zero: the sum of n voxels over n + 1."""

    def __init__(self, factor):
        super().__init__()
        self.factor = tuple(factor) if isinstance(factor, (list, tuple)) else factor

    def forward(self, input):
        factor = self.factor if isinstance(self.factor, tuple) else (self.factor,) * 3
        at = input.coords.long()
        up = torch.cat([at[:, :1], at[:, 1:] // torch.tensor(factor)], 1)
        voxels, rows = up.unique(dim=0, return_inverse=True)
        mean = torch.scatter_reduce(
            torch.zeros(len(voxels), input.feats.shape[1]),
            0,
            rows[:, None].expand(-1, input.feats.shape[1]),
            input.feats,
            "mean",
        )
        out = SparseTensor(mean, voxels.int(), input.shape)
        out._scale = tuple(s // f for s, f in zip(input._scale, factor))
        out._spatial_cache = input._spatial_cache
        out.register_spatial_cache(f"upsample_{factor}_coords", input.coords)
        out.register_spatial_cache(f"upsample_{factor}_layout", input.layout)
        out.register_spatial_cache(f"upsample_{factor}_idx", rows)
        return out


class SparseUpsample(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = tuple(factor) if isinstance(factor, (list, tuple)) else factor

    def forward(self, input):
        factor = self.factor if isinstance(self.factor, tuple) else (self.factor,) * 3
        voxels, layout, rows = (
            input.get_spatial_cache(f"upsample_{factor}_{part}")
            for part in ("coords", "layout", "idx")
        )
        out = SparseTensor(input.feats[rows], voxels, input.shape, layout)
        out._scale = tuple(s * f for s, f in zip(input._scale, factor))
        out._spatial_cache = input._spatial_cache
        return out


class SparseSubdivide(nn.Module):
    def forward(self, input):
        corner = torch.nonzero(torch.ones(2, 2, 2))
        corner = torch.cat([torch.zeros_like(corner[:, :1]), corner], 1).int()
        coords = input.coords.clone()
        coords[:, 1:] *= 2
        coords = (coords[:, None] + corner).flatten(0, 1)
        feats = input.feats[:, None].expand(-1, 8, -1).flatten(0, 1)
        out = SparseTensor(feats, coords, input.shape)
        out._scale = input._scale * 2
        out._spatial_cache = input._spatial_cache
        return out
