# SPDX-License-Identifier: Apache-2.0
"""Stands in for core/models/utils.py of spvnas, of TorchSparse 1.4 and 2.1, without hash tables."""

import torch
import torchsparse
import torchsparse.nn.functional as F
from torchsparse import SparseTensor, version
from torchsparse.tensor import share

__all__ = ["PointTensor", "initial_voxelize", "point_to_voxel", "voxel_to_point"]


class PointTensor(SparseTensor):
    """That of 2.1; before, it is the library's."""


def _make_points(feats, coords):
    kind = torchsparse.PointTensor if version.before_21() else PointTensor
    return kind(feats, coords)


def _axes():
    """The columns of the axes, and that of the sample."""
    return (slice(0, 3), 3) if version.before_21() else (slice(1, 4), 0)


def _rows_of(wanted, there):
    """Of each voxel its row in another list, or -1."""
    rows = {tuple(c): row for row, c in enumerate(there.tolist())}
    return torch.tensor([rows.get(tuple(c), -1) for c in wanted.int().tolist()], dtype=torch.int32)


def _mean(feats, rows, count):
    counts = torch.bincount(rows[rows >= 0].long(), minlength=count)
    return F.spvoxelize(feats, rows, counts)


def initial_voxelize(z, init_res, after_res):
    axes, _ = _axes()
    coords = z.C.clone()
    coords[:, axes] = coords[:, axes] * init_res / after_res
    voxels, rows = torch.unique(coords.floor().int(), dim=0, return_inverse=True)
    z.C = coords
    made = SparseTensor(_mean(z.F, rows.int(), len(voxels)), voxels, 1)
    if version.before_21():
        made.cmaps.setdefault(made.stride, made.coords)
    return made


def _corner(z, x):
    """The voxels of x in which points lie, as x has them."""
    axes, _ = _axes()
    coords = z.C.clone()
    coords[:, axes] = (coords[:, axes] / x.s[0]).floor()
    if version.before_21():
        coords[:, axes] *= x.s[0]
    return coords


def point_to_voxel(x, z):
    rows = _rows_of(_corner(z, x), x.C)
    if not version.before_21():
        rows = rows.clamp(min=0)  # 2.1: what has no voxel counts in the first row
    return share(SparseTensor(_mean(z.F, rows, len(x.C)), x.C, x.s), x)


def voxel_to_point(x, z, nearest=False):
    axes, _ = _axes()
    step = x.s[0] if version.before_21() else 1
    corner, rows = _corner(z, x), []
    for number in range(8):
        at = corner.clone()
        at[:, axes] += torch.tensor([number >> 2, number >> 1 & 1, number & 1]) * step
        rows.append(_rows_of(at, x.C))
    rows = torch.stack(rows, 1)
    weights = F.calc_ti_weights(z.C[:, axes], rows, scale=x.s[0])
    if nearest:
        weights[:, 1:] = 0
        rows[:, 1:] = -1
    return _make_points(F.spdevoxelize(x.F, rows, weights), z.C)
