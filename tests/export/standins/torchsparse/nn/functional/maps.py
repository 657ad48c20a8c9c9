# SPDX-License-Identifier: Apache-2.0
"""Which rows a convolution writes and reads: [(v, row of the fine set, voxel of the coarse)].

coords are [N, 4], the sample first, for every version.
"""

import numpy as np

from ..utils import get_kernel_offsets


def _digits(n, size):
    """A number of a kernel, split by its sizes: x first if the volume is odd, else z."""
    found = [0, 0, 0]
    for axis in (0, 1, 2) if np.prod(size) % 2 else (2, 1, 0):
        n, found[axis] = divmod(n, size[axis])
    return found


def _there(coords):
    return {tuple(c): row for row, c in enumerate(coords.astype(int).tolist())}


def _looked_up(coords, out, offsets, step):
    """out * step + offset, where that is a voxel (lookup_coords)."""
    rows, whole = _there(coords), np.array(out) * [1, *step]
    for v, offset in enumerate(offsets):
        for p, q in zip((whole + [0, *offset]).tolist(), out):
            p = tuple(p)
            if p in rows:
                yield v, rows[p], q


def subm(coords, size, mode, shape):
    """Of 2.1: an even kernel begins at the voxel and looks within the result's range, except in
    the mode hashmap."""
    volume = int(np.prod(size))
    shift = [0 if volume % 2 == 0 and mode != "hashmap" else (k - 1) // 2 for k in size]
    offsets = [np.array(_digits(n, size)) - shift for n in range(volume)]
    found = list(_looked_up(coords, list(_there(coords)), offsets, (1, 1, 1)))
    if mode == "hashmap" or shape is None:
        return found
    return [one for one in found if (coords[one[1], 1:] < shape).all()]


def on_the_fly(coords, size, stride, padding, shape):
    """downsample_grid_kmap_stage1_specialized_fast and downsample_hashmap_kmap_stage3."""
    volume = int(np.prod(size))
    if shape is None:  # what the largest voxel of the batch allows
        shape = [
            (m + 2 * p - (k - 1)) // s + 1
            for m, p, k, s in zip(coords[:, 1:].max(0), padding, size, stride)
        ]
    found, numbers = [], [_digits(n, size) for n in range(volume)]
    for row, p in enumerate(coords.tolist()):
        for n, digits in enumerate(numbers):
            at = [a + b + d - (k - 1) for a, b, d, k in zip(p[1:], padding, digits, size)]
            q = [a // s for a, s in zip(at, stride)]
            if all(a % s == 0 for a, s in zip(at, stride)) and all(
                0 <= a < d for a, d in zip(q, shape)
            ):
                found.append((volume - 1 - n, row, (p[0], *q)))
    return found


def hashmap(coords, size, stride, padding, shape, minkowski):
    """spdownsample of 2.1, then lookup_coords, which knows no padding."""
    if minkowski or all(s in (1, k) for s, k in zip(stride, size)):
        out = {(int(c[0]), *(int(a) // s for a, s in zip(c[1:], stride))) for c in coords}
    else:
        out = {q for _, _, q in on_the_fly(coords, size, stride, padding, shape)}
    volume = int(np.prod(size))
    offsets = [np.array(_digits(n, size)) - [(k - 1) // 2 for k in size] for n in range(volume)]
    return sorted(_looked_up(coords, sorted(out), offsets, stride))


def before_21(coords, size, stride, tensor_stride, trunc):
    """spdownsample and get_kernel_offsets of 1.4 and 2.0; coordinates are multiples."""
    step = np.array(stride) * tensor_stride
    if all(s == 1 for s in stride):
        out = list(_there(coords))
    elif all(s in (1, k) for s, k in zip(stride, size)):
        part = coords[:, 1:] / step
        made = coords.copy()
        made[:, 1:] = (np.trunc(part) if trunc else np.floor(part)) * step
        out = sorted(_there(made))
    else:
        least = coords[:, 1:].min(0)
        made = coords[:, None].repeat(int(np.prod(size)), 1)
        made[:, :, 1:] += get_kernel_offsets(size, tensor_stride)
        made = made.reshape(-1, 4)
        kept = (made[:, 1:] % step == 0).all(1) & (made[:, 1:] >= least).all(1)
        out = sorted(_there(made[kept]))
    offsets = get_kernel_offsets(size, tensor_stride)
    return list(_looked_up(coords, out, offsets, (1, 1, 1))), out
