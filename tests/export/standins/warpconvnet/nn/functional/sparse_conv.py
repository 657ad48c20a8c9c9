# SPDX-License-Identifier: Apache-2.0
"""Stands in for WarpConvNet: which voxels a convolution makes, and which it reads, pair by pair.

Written from the definition in its sources.  An offset counts from the middle along an odd axis,
from 0 along an even one; the last axis is the fastest.
"""

import enum
import itertools

import torch
from warpconvnet.geometry.types.voxels import IntCoords


class STRIDED_CONV_MODE(enum.Enum):
    REDUCE_AND_STRIDE = "reduce_and_stride"
    STRIDE_ONLY = "stride_only"


def kernel_offsets_from_size(kernel_size, kernel_dilation):
    middle = [(size - 1) // 2 if size % 2 else 0 for size in kernel_size]
    for k in itertools.product(*(range(size) for size in kernel_size)):
        yield [(a - b) * d for a, b, d in zip(k, middle, kernel_dilation)]


def kernel_map(read, out, stride, kernel_size, dilation):
    """[(rows of read, rows of out)] of each offset: the voxel out * stride + offset is in read."""
    rows = {tuple(c): row for row, c in enumerate(read.tolist())}
    middle = out.numpy() * [1, *stride]
    for offset in kernel_offsets_from_size(kernel_size, dilation):
        found = enumerate(map(tuple, (middle + [0, *offset]).tolist()))
        pairs = [(rows[p], row) for row, p in found if p in rows]
        yield torch.tensor(pairs).reshape(-1, 2).long().unbind(1)


def coordinates(rows):
    """IntCoords of voxels in no order, and the same with their samples."""
    rows = torch.unique(torch.tensor(rows, dtype=torch.int32), dim=0)
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(7))]
    rows = rows[rows[:, 0].sort(stable=True)[1]]
    ends = torch.bincount(rows[:, 0].long()).cumsum(0)
    offsets = torch.cat([torch.zeros(1, dtype=ends.dtype), ends])
    return IntCoords(rows[:, 1:].contiguous(), offsets), rows


def stride_coords(rows, stride):
    return coordinates([[b, *(a // s for a, s in zip(at, stride))] for b, *at in rows.tolist()])


def expand_coords(rows, kernel_size, dilation):
    offsets = [[0] * len(kernel_size), *kernel_offsets_from_size(kernel_size, dilation)]
    return coordinates(
        [[b, *(a + o for a, o in zip(at, off))] for b, *at in rows.tolist() for off in offsets]
    )


def spatially_sparse_conv(module, x, onto):
    """A convolution by its module's attributes: convolve(weight, rows) multiplies."""
    kernel, stride, dilation = module.kernel_size, module.stride, module.dilation
    # What kernel_map asks of it in the library, whose maps know no dilation.
    assert all(d == 1 for d in dilation)
    ones, read = (1,) * len(kernel), x.batch_indexed_coordinates
    made, swapped, step = (x.batched_coordinates, read), False, stride
    fraction = [1] * len(kernel)
    if module.transposed and not module.generative:
        made, swapped = (onto.batched_coordinates, onto.batch_indexed_coordinates), True
    elif module.generative:
        if any(s != 1 for s in stride):
            assert module.transposed
            fraction = stride
            read = torch.cat([read[:, :1], read[:, 1:] * torch.tensor(stride)], 1).int()
        made, swapped, step = expand_coords(read, kernel, dilation), module.transposed, ones
    elif any(s != 1 for s in stride):
        made = stride_coords(read, stride)
        if module.stride_mode == STRIDED_CONV_MODE.REDUCE_AND_STRIDE:
            x = sparse_reduce(x, stride, stride, "max", made)
            read, step = made[1], ones
    features, out = x.feature_tensor, torch.zeros(len(made[1]), module.out_channels)
    if swapped:
        maps = [(q, p) for p, q in kernel_map(made[1], read, step, kernel, dilation)]
    else:
        maps = kernel_map(read, made[1], step, kernel, dilation)
    for weight, (p, q) in zip(module.weight, maps):
        if len(p):
            out.index_add_(0, q, module.multiply(features[p], weight))
    if module.bias is not None:
        out = out + module.bias
    tensor_stride = x.tensor_stride or ones
    if module.transposed and not module.generative:
        tensor_stride = onto.tensor_stride or ones
    elif module.transposed:
        tensor_stride = tuple(a // b for a, b in zip(tensor_stride, fraction))
    else:
        tensor_stride = tuple(a * b for a, b in zip(tensor_stride, stride))
    return x.replace(
        batched_coordinates=IntCoords(made[0].batched_tensor, made[0].offsets),
        batched_features=out,
        tensor_stride=tensor_stride,
    )


def sparse_reduce(x, kernel_size, stride, reduction, made=None):
    ndim = x.num_spatial_dims
    kernel_size, stride = (
        (size,) * ndim if isinstance(size, int) else size for size in (kernel_size, stride)
    )
    read = x.batch_indexed_coordinates
    at, rows = made or stride_coords(read, stride)
    members = [[] for _ in rows]
    for p, q in kernel_map(read, rows, stride, kernel_size, (1,) * ndim):
        for a, b in zip(p.tolist(), q.tolist()):
            members[b].append(a)
    reduce = {
        "max": lambda r: r.max(0)[0],
        "min": lambda r: r.min(0)[0],
        "mean": lambda r: r.mean(0),
        "sum": lambda r: r.sum(0),
    }[reduction]
    nothing = torch.zeros(x.feature_tensor.shape[1])
    out = torch.stack([reduce(x.feature_tensor[m]) if m else nothing for m in members])
    tensor_stride = tuple(a * b for a, b in zip(x.tensor_stride or (1,) * ndim, stride))
    return x.replace(
        batched_coordinates=IntCoords(at.batched_tensor, at.offsets),
        batched_features=out,
        stride=tensor_stride,
    )
