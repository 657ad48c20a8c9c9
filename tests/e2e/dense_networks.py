# SPDX-License-Identifier: Apache-2.0
"""What networks of several levels answer, by dense arrays in float64 numpy: a second definition.

A tensor is a dense array [samples, X, Y, Z, C] with a mask of its active voxels, so that a
neighbour is a slice of an array and never a search.  Nothing here knows rows, keys or maps."""
import numpy as np


class Grid:
    """values [B, X, Y, Z, C], 0 where the mask [B, X, Y, Z] is False."""

    def __init__(self, values, mask):
        self.mask = mask
        self.values = np.where(mask[..., None], values, 0.0)

    def map(self, function):
        return Grid(function(self.values), self.mask)


def grid_of(coords, feats, shape):
    samples = int(coords[:, 0].max()) + 1
    values = np.zeros((samples, *shape, feats.shape[1]))
    mask = np.zeros((samples, *shape), bool)
    values[tuple(coords.T)] = feats
    mask[tuple(coords.T)] = True
    return Grid(values, mask)


def rows_of(grid, coords):
    return grid.values[tuple(coords.T)]


def _window(array, at, stride, counts, padding):
    """array[q * stride - padding + at] for q in 0 .. counts - 1, zeros outside."""
    far = 2 + max(padding) + max(at) + max(c * s for c, s in zip(counts, stride))
    padded = np.pad(array, [(0, 0)] + [(p, far) for p in padding]
                    + [(0, 0)] * (array.ndim - 4))
    cut = tuple(slice(a, a + c * s, s) for a, c, s in zip(at, counts, stride))
    return padded[(slice(None), *cut)]


def _offsets(kernel):
    return np.ndindex(*kernel)


def conv(grid, weight, bias, stride=(1, 1, 1), padding=(0, 0, 0), out_mask=None, counts=None):
    """weight [Kx, Ky, Kz, Ci, Co].  out_mask None: every voxel that any offset meets."""
    kernel = weight.shape[:3]
    counts = counts or out_mask.shape[1:]
    total, met = 0.0, False
    for at in _offsets(kernel):
        total = total + _window(grid.values, at, stride, counts, padding) @ weight[at]
        met = met | _window(grid.mask, at, stride, counts, padding)
    return Grid(total + bias, met if out_mask is None else out_mask)


def subm(grid, weight, bias):
    padding = tuple(k // 2 for k in weight.shape[:3])
    return conv(grid, weight, bias, padding=padding, out_mask=grid.mask)


def spconv_shape(shape, kernel, stride, padding):
    return tuple((d + 2 * p - k) // s + 1 for d, k, s, p in zip(shape, kernel, stride, padding))


def spconv(grid, weight, bias, stride, padding):
    counts = spconv_shape(grid.mask.shape[1:], weight.shape[:3], stride, padding)
    return conv(grid, weight, bias, stride, padding, counts=counts)


def blocks_mask(mask, stride):
    """floor(p / stride) of every voxel; the shape must be whole blocks."""
    b, *shape = mask.shape
    cut = mask.reshape(b, *(n for d, s in zip(shape, stride) for n in (d // s, s)))
    return cut.any(axis=(2, 4, 6))


def down(grid, weight, bias, stride):
    """MinkowskiEngine's kernel = stride: the voxels of a block."""
    return conv(grid, weight, bias, stride, out_mask=blocks_mask(grid.mask, stride))


def up(grid, weight, bias, stride, padding, onto):
    """The transpose: each coarse voxel adds to the fine ones that its window meets."""
    shape = onto.shape[1:]
    far = [p + k + s * c for p, k, s, c in zip(padding, weight.shape, stride,
                                               grid.mask.shape[1:])]
    total = np.zeros((onto.shape[0], *(d + f for d, f in zip(shape, far)), weight.shape[4]))
    for at in _offsets(weight.shape[:3]):
        cut = tuple(slice(a, a + s * c, s) for a, s, c in zip(at, stride, grid.mask.shape[1:]))
        total[(slice(None), *cut)] += grid.values @ weight[at]
    cut = tuple(slice(p, p + d) for p, d in zip(padding, shape))
    return Grid(total[(slice(None), *cut)] + bias, onto)


def max_pool(grid, kernel, stride, padding):
    counts = spconv_shape(grid.mask.shape[1:], kernel, stride, padding)
    best, met = -np.inf, False
    lowest = np.where(grid.mask[..., None], grid.values, -np.inf)
    for at in _offsets(kernel):
        there = _window(grid.mask, at, stride, counts, padding)
        value = _window(lowest, at, stride, counts, padding)
        best = np.maximum(best, np.where(there[..., None], value, -np.inf))
        met = met | there
    return Grid(np.where(met[..., None], best, 0.0), met)


def concat(*grids):
    return Grid(np.concatenate([g.values for g in grids], axis=-1), grids[0].mask)


def batch_norm(grid, tensors, name, eps):
    scale = tensors[f"{name}.weight"] / np.sqrt(tensors[f"{name}.running_var"] + eps)
    shift = tensors[f"{name}.bias"] - tensors[f"{name}.running_mean"] * scale
    return grid.map(lambda v: v * scale + shift)


def relu(grid):
    return grid.map(lambda v: np.maximum(v, 0.0))
