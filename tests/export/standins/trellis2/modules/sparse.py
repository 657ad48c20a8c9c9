# SPDX-License-Identifier: Apache-2.0
"""Stands in for TRELLIS.2's sparse package: its classes and attributes, computed on the CPU.

Written from what its sources do, with their names.  `config.CONV` is the backend: flex_gemm and
torchsparse (their stand-ins), spconv (the real one).  A sparse tensor keeps what it learns of its
voxels in a cache by scale, which tensors on other voxels may share.
"""

import itertools
from fractions import Fraction

import flex_gemm.ops.spconv
import spconv.pytorch as spconv
import torch
import torchsparse
import torchsparse.nn
from torch import nn


class config:
    CONV = "flex_gemm"


class SparseTensor:
    def __init__(self, feats=None, coords=None, shape=None, data=None, **more):
        self.data = data
        if data is None and config.CONV == "spconv":
            sizes = list(coords.max(0)[0] + 1)
            flat = feats.reshape(feats.shape[0], -1)
            self.data = spconv.SparseConvTensor(flat, coords.int(), sizes[1:], int(sizes[0]))
            self.data._features = feats
        elif data is None and config.CONV == "torchsparse":
            self.data = torchsparse.SparseTensor(feats, coords)
        elif data is None:
            self.data = {"feats": feats, "coords": coords}
        self._shape = shape
        self._scale = more.get("scale", (Fraction(1),) * 3)
        self._spatial_cache = more.get("spatial_cache", {})

    @property
    def feats(self):
        if config.CONV == "torchsparse":
            return self.data.F
        return self.data.features if config.CONV == "spconv" else self.data["feats"]

    @property
    def coords(self):
        if config.CONV == "torchsparse":
            return self.data.C
        return self.data.indices if config.CONV == "spconv" else self.data["coords"]

    @property
    def shape(self):
        if self._shape is None:
            samples = int(self.coords[:, 0].max()) + 1
            self._shape = torch.Size([samples, *self.feats.shape[1:]])
        return self._shape

    @property
    def layout(self):
        found = self.get_spatial_cache("layout")
        if found is None:
            ends = torch.bincount(self.coords[:, 0].long(), minlength=self.shape[0]).cumsum(0)
            ends = [0, *ends.tolist()]
            found = [slice(a, b) for a, b in itertools.pairwise(ends)]
            self.register_spatial_cache("layout", found)
        return found

    @property
    def spatial_shape(self):
        found = self.get_spatial_cache("shape")
        if found is None:
            found = torch.Size((self.coords[:, 1:].max(0)[0] + 1).tolist())
            self.register_spatial_cache("shape", found)
        return found

    dtype = property(lambda self: self.feats.dtype)
    device = property(lambda self: self.feats.device)

    def register_spatial_cache(self, key, value):
        self._spatial_cache.setdefault(str(self._scale), {})[key] = value

    def get_spatial_cache(self, key):
        return self._spatial_cache.get(str(self._scale), {}).get(key)

    def replace(self, feats):
        if config.CONV == "torchsparse":
            data = torchsparse.SparseTensor(feats, self.data.coords, self.data.stride)
            data._caches = self.data._caches
        elif config.CONV == "flex_gemm":
            data = {"feats": feats, "coords": self.data["coords"]}
        else:
            flat = self.data.features.reshape(self.data.features.shape[0], -1)
            data = spconv.SparseConvTensor(
                flat,
                self.data.indices,
                self.data.spatial_shape,
                self.data.batch_size,
                indice_dict=self.data.indice_dict,
            )
            data._features = feats
        shape = torch.Size([self.shape[0], *feats.shape[1:]])
        return SparseTensor(
            data=data, shape=shape, scale=self._scale, spatial_cache=self._spatial_cache
        )

    def type(self, dtype):
        return self.replace(self.feats.type(dtype))

    def float(self):
        return self.replace(self.feats.float())

    def _elemwise(self, other, op):
        if isinstance(other, torch.Tensor):
            rows = [torch.full((s.stop - s.start,), i) for i, s in enumerate(self.layout)]
            other = torch.broadcast_to(other, self.shape)[torch.cat(rows)]
        return self.replace(op(self.feats, getattr(other, "feats", other)))

    def __neg__(self):
        return self.replace(-self.feats)

    def __add__(self, other):
        return self._elemwise(other, torch.add)

    def __sub__(self, other):
        return self._elemwise(other, torch.sub)

    def __rsub__(self, other):
        return self._elemwise(other, lambda x, y: y - x)

    def __mul__(self, other):
        return self._elemwise(other, torch.mul)

    def __truediv__(self, other):
        return self._elemwise(other, torch.div)

    __radd__, __rmul__ = __add__, __mul__


def sparse_cat(inputs, dim=0):
    assert dim != 0
    return inputs[0].replace(torch.cat([one.feats for one in inputs], dim=dim))


# --- convolutions ---


class SparseConv3d(nn.Module):
    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        dilation=1,
        padding=None,
        bias=True,
        indice_key=None,
    ):
        super().__init__()
        if config.CONV == "torchsparse":
            self.conv = torchsparse.nn.Conv3d(
                in_channels, out_channels, kernel_size, stride, 0, dilation, bias
            )
            return
        if config.CONV == "spconv":
            self.stride, self.padding = (stride,) * 3, padding
            if stride == 1 and padding is None:
                self.conv = spconv.SubMConv3d(
                    in_channels,
                    out_channels,
                    kernel_size,
                    dilation=dilation,
                    bias=bias,
                    indice_key=indice_key,
                )
            else:
                self.conv = spconv.SparseConv3d(
                    in_channels,
                    out_channels,
                    kernel_size,
                    stride=stride,
                    padding=padding,
                    bias=bias,
                    indice_key=indice_key,
                )
            return
        assert stride == 1 and padding is None
        self.kernel_size, self.dilation = (kernel_size,) * 3, (dilation,) * 3
        self.in_channels, self.out_channels = in_channels, out_channels
        scale = (in_channels * kernel_size**3) ** -0.5
        self.weight = nn.Parameter(
            torch.randn(out_channels, *self.kernel_size, in_channels) * scale
        )
        self.bias = nn.Parameter(torch.randn(out_channels) * 0.3) if bias else None

    def forward(self, x):
        if config.CONV == "torchsparse":
            return _by_torchsparse(self, x, lambda a, b: a * b)
        if config.CONV == "spconv":
            return _by_spconv(self, x)
        key = f"SubMConv3d_neighbor_cache_{self.kernel_size}_dilation{self.dilation}"
        out, cache = flex_gemm.ops.spconv.sparse_submanifold_conv3d(
            x.feats,
            x.coords,
            torch.Size([*x.shape, *x.spatial_shape]),
            self.weight,
            self.bias,
            x.get_spatial_cache(key),
            self.dilation,
        )
        x.register_spatial_cache(key, cache)
        return x.replace(out)


def _by_spconv(module, x):
    """Its strided convolutions mix the samples, so the rows are sorted, and sorted back later."""
    made, changed = module.conv(x.data), module.padding is not None or module.stride[0] != 1
    scale = tuple(a * b for a, b in zip(x._scale, module.stride))
    shape = torch.Size([x.shape[0], module.conv.out_channels])
    if not changed:
        return SparseTensor(data=made, shape=shape, scale=scale, spatial_cache=x._spatial_cache)
    order = made.indices[:, 0].argsort()
    back = torch.zeros_like(order).scatter_(0, order, torch.arange(len(order)))
    ordered = spconv.SparseConvTensor(
        made.features[order], made.indices[order], made.spatial_shape, made.batch_size
    )
    out = SparseTensor(data=ordered, shape=shape, scale=scale, spatial_cache=x._spatial_cache)
    out.register_spatial_cache(f"conv_{module.stride}_unsorted_data", made)
    out.register_spatial_cache(f"conv_{module.stride}_sort_bwd", back)
    return out


def _by_torchsparse(module, x, step):
    scale = tuple(step(a, b) for a, b in zip(x._scale, module.conv.stride))
    shape = torch.Size([x.shape[0], module.conv.out_channels])
    out = SparseTensor(data=module.conv(x.data), shape=shape)
    out._spatial_cache, out._scale = x._spatial_cache, scale
    return out


class SparseInverseConv3d(nn.Module):
    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        dilation=1,
        bias=True,
        indice_key=None,
    ):
        super().__init__()
        if config.CONV == "flex_gemm":
            raise NotImplementedError("not with flex_gemm")
        if config.CONV == "torchsparse":
            self.conv = torchsparse.nn.Conv3d(
                in_channels,
                out_channels,
                kernel_size,
                stride,
                0,
                dilation,
                bias,
                transposed=True,
            )
            return
        self.stride = (stride,) * 3
        self.conv = spconv.SparseInverseConv3d(
            in_channels, out_channels, kernel_size, bias=bias, indice_key=indice_key
        )

    def forward(self, x):
        if config.CONV == "torchsparse":
            return _by_torchsparse(self, x, lambda a, b: a / b)
        data = x.get_spatial_cache(f"conv_{self.stride}_unsorted_data")
        back = x.get_spatial_cache(f"conv_{self.stride}_sort_bwd")
        made = self.conv(data.replace_feature(x.feats[back]))
        scale = tuple(a // b for a, b in zip(x._scale, self.stride))
        shape = torch.Size([x.shape[0], self.conv.out_channels])
        return SparseTensor(data=made, shape=shape, scale=scale, spatial_cache=x._spatial_cache)


# --- rows ---


class SparseLinear(nn.Linear):
    def forward(self, input):
        return input.replace(super().forward(input.feats))


class SparseReLU(nn.ReLU):
    def forward(self, input):
        return input.replace(super().forward(input.feats))


class SparseSiLU(nn.SiLU):
    def forward(self, input):
        return input.replace(super().forward(input.feats))


class SparseGELU(nn.GELU):
    def forward(self, input):
        return input.replace(super().forward(input.feats))


class SparseActivation(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.activation = activation

    def forward(self, input):
        return input.replace(self.activation(input.feats))


def _by_sample(norm, input):
    """A norm of torch over the rows of each sample as [1, C, rows]."""
    made = torch.zeros_like(input.feats)
    for rows in input.layout:
        made[rows] = norm(input.feats[rows].t().unsqueeze(0))[0].t()
    return input.replace(made)


class SparseGroupNorm(nn.GroupNorm):
    def forward(self, input):
        return _by_sample(super().forward, input)


class SparseGroupNorm32(SparseGroupNorm):
    def forward(self, input):
        return super().forward(input.float()).type(input.dtype)


class SparseLayerNorm(nn.LayerNorm):
    def forward(self, input):
        return _by_sample(super().forward, input)


class SparseMultiHeadAttention(nn.Module):
    """Not one: an answer of the right shape is enough to be refused."""

    def __init__(self, channels, num_heads=1, attn_mode="full", window_size=None):
        super().__init__()
        self.attn_mode, self.window_size = attn_mode, window_size
        self.to_qkv = nn.Linear(channels, channels * 3)
        self.to_out = nn.Linear(channels, channels)

    def forward(self, x):
        return x.replace(self.to_out(x.feats))


# --- other voxels ---


def _blocks(x, factor):
    """(voxels, row of each child's block, number of each child in it), by (sample, x, y, z)."""
    at = x.coords.long()
    up = torch.cat([at[:, :1], at[:, 1:] // factor], 1)
    voxels, rows = up.unique(dim=0, return_inverse=True)
    child = sum(at[:, 1 + axis] % factor * factor**axis for axis in range(3))
    return voxels.int(), rows, child


def _children(x, mask, factor):
    """(voxels, row of each one's parent, its number in the block)."""
    rows, child = mask.nonzero().unbind(1)
    voxels = x.coords[rows].clone()
    voxels[:, 1:] *= factor
    for axis in range(3):
        voxels[:, 1 + axis] += (child // factor**axis % factor).int()
    return voxels, rows, child


def _coarser(x, feats, voxels, factor):
    out = SparseTensor(feats, voxels)
    out._scale = tuple(step * factor for step in x._scale)
    out._spatial_cache = x._spatial_cache
    return out


def _finer(x, feats, voxels, factor, cached):
    out = SparseTensor(feats, voxels)
    out._scale = tuple(step / factor for step in x._scale)
    if cached:
        out._spatial_cache = x._spatial_cache
    return out


class SparseDownsample(nn.Module):
    def __init__(self, factor, mode="mean"):
        super().__init__()
        self.factor, self.mode = factor, mode

    def forward(self, x):
        cache = x.get_spatial_cache(f"downsample_{self.factor}")
        voxels, rows, _ = cache or _blocks(x, self.factor)
        total = torch.zeros(len(voxels), x.feats.shape[1]).index_add(0, rows, x.feats)
        mean = total / torch.bincount(rows)[:, None]
        out = _coarser(x, mean, voxels, self.factor)
        x.register_spatial_cache(f"downsample_{self.factor}", (voxels, rows, None))
        out.register_spatial_cache(f"upsample_{self.factor}", (x.coords, rows))
        return out


class SparseUpsample(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x, subdivision=None):
        cache = x.get_spatial_cache(f"upsample_{self.factor}")
        if cache is None and subdivision is None:
            raise ValueError("Cache not found")
        voxels, rows, *_ = cache or _children(x, subdivision.feats, self.factor)
        return _finer(x, x.feats[rows], voxels, self.factor, cache is not None)


class SparseSpatial2Channel(nn.Module):
    def __init__(self, factor=2):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        cache = x.get_spatial_cache(f"spatial2channel_{self.factor}")
        voxels, rows, child = cache or _blocks(x, self.factor)
        wide = torch.zeros(len(voxels), self.factor**3, x.feats.shape[1])
        wide[rows, child] = x.feats
        out = _coarser(x, wide.reshape(len(voxels), -1), voxels, self.factor)
        x.register_spatial_cache(f"spatial2channel_{self.factor}", (voxels, rows, child))
        out.register_spatial_cache(f"channel2spatial_{self.factor}", (x.coords, rows, child))
        return out


class SparseChannel2Spatial(nn.Module):
    def __init__(self, factor=2):
        super().__init__()
        self.factor = factor

    def forward(self, x, subdivision=None):
        cache = x.get_spatial_cache(f"channel2spatial_{self.factor}")
        if cache is None and subdivision is None:
            raise ValueError("Cache not found")
        voxels, rows, child = cache or _children(x, subdivision.feats, self.factor)
        wide = x.feats.reshape(len(x.feats), self.factor**3, -1)
        return _finer(x, wide[rows, child], voxels, self.factor, cache is not None)
