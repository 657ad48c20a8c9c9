# SPDX-License-Identifier: Apache-2.0
"""Stands in for FlexGEMM, which needs a GPU: its two convolutions, pair by pair.

Written from the definition in its sources, with their names.  A weight is [Co, Kw, Kh, Kd, Ci], its
offsets run with the last axis fastest; no neighbour is looked for outside of the shape.
"""

import itertools

import torch
from torch.autograd import Function


def _convolved(feats, coords, out_coords, shape, weight, bias, stride, padding, dilation):
    """Row q of the output reads q * stride - padding + k * dilation."""
    rows = {tuple(c): row for row, c in enumerate(coords.tolist())}
    out = torch.zeros(len(out_coords), weight.shape[0])
    first = out_coords.numpy() * [1, *stride] - [0, *padding]
    for k in itertools.product(*(range(size) for size in weight.shape[1:4])):
        at = first + [0, *(i * d for i, d in zip(k, dilation))]
        inside = ((at[:, 1:] >= 0) & (at[:, 1:] < list(shape[2:]))).all(1).nonzero()[0]
        found = zip(map(tuple, at[inside].tolist()), inside.tolist())
        pairs = [(rows[p], q) for p, q in found if p in rows]
        if pairs:
            p, q = torch.tensor(pairs).unbind(1)
            out.index_add_(0, q, feats[p] @ weight[:, k[0], k[1], k[2]].t())
    return out if bias is None else out + bias


class SubMConv3dFunction(Function):
    @staticmethod
    def forward(ctx, feats, coords, shape, neighbor_cache, weight, bias=None, dilation=(1, 1, 1)):
        padding = [size // 2 * d for size, d in zip(weight.shape[1:4], dilation)]
        out = _convolved(feats, coords, coords, shape, weight, bias, (1, 1, 1), padding, dilation)
        return out, neighbor_cache or "the neighbours"


class SparseConv3dFunction(Function):
    @staticmethod
    def forward(
        ctx,
        feats,
        coords,
        shape,
        neighbor_cache,
        weight,
        bias=None,
        out_coords=None,
        stride=(1, 1, 1),
        padding=(0, 0, 0),
        dilation=(1, 1, 1),
    ):
        kernel = weight.shape[1:4]
        if out_coords is None:
            made = set()
            for sample, *p in coords.tolist():
                for k in itertools.product(*(range(size) for size in kernel)):
                    q = [a + pad - i * d for a, pad, i, d in zip(p, padding, k, dilation)]
                    sizes = [
                        (size + 2 * pad - d * (i - 1) - 1) // s + 1
                        for size, pad, d, i, s in zip(shape[2:], padding, dilation, kernel, stride)
                    ]
                    whole = all(a % s == 0 for a, s in zip(q, stride))
                    q = [a // s for a, s in zip(q, stride)]
                    if whole and all(0 <= a < size for a, size in zip(q, sizes)):
                        made.add((sample, *q))
            out_coords = torch.tensor(sorted(made), dtype=torch.int32)
        out = _convolved(feats, coords, out_coords, shape, weight, bias, stride, padding, dilation)
        return out, out_coords, neighbor_cache or "the neighbours"


def set_algorithm(algorithm):
    """All algorithms have one definition."""


def set_hashmap_ratio(ratio):
    """Nothing is hashed here."""


def sparse_submanifold_conv3d(
    feats, coords, shape, weight, bias=None, neighbor_cache=None, dilation=(1, 1, 1)
):
    return SubMConv3dFunction.apply(feats, coords, shape, neighbor_cache, weight, bias, dilation)


def sparse_conv3d(
    feats,
    coords,
    shape,
    weight,
    bias=None,
    neighbor_cache=None,
    out_coords=None,
    stride=(1, 1, 1),
    padding=(0, 0, 0),
    dilation=(1, 1, 1),
):
    return SparseConv3dFunction.apply(
        feats, coords, shape, neighbor_cache, weight, bias, out_coords, stride, padding, dilation
    )
