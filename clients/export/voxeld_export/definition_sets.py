"""Sets of voxels and the maps between them, as engine/README.md defines them ("Sets of voxels").

Rows of a set ascend by (sample, x, y, z), and a voxel is found by a binary search among keys of
one integer each.  Nothing here comes from voxeld: these are the definitions that it is held to.

SPDX-License-Identifier: Apache-2.0
"""

import itertools
from fractions import Fraction

import numpy as np

from .errors import ExportError

AXIS_MIN, AXIS_MAX = -131072, 131071
SAMPLE_MAX = 511
_AXIS_BITS = 18  # sample and three axes are 63 bits of a key


class Voxels:
    """A set of voxels.

    coords  int64 [n, 4], ascending, each once
    stride  how many voxels of the request one step is, three Fractions; 0 for whole samples
    shape   voxels along the three axes, or None
    """

    def __init__(self, keys, stride, shape):
        self.keys = keys
        self.coords = _coords_of(keys)
        self.stride = stride
        self.shape = shape

    def __len__(self):
        return len(self.keys)

    @classmethod
    def of(cls, coords, stride, shape):
        """The set of all given voxels, once each; what lies beyond the ends of an axis is not."""
        return cls(np.unique(_keys_of(coords[_within(coords)])), stride, shape)

    def find(self, coords):
        """The row of each voxel, -1 where there is none."""
        rows = np.full(len(coords), -1)
        there = _within(coords)
        keys = _keys_of(coords[there])
        if len(self.keys) and len(keys):
            at = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
            rows[there] = np.where(self.keys[at] == keys, at, -1)
        return rows

    def same(self, other):
        """Whether both have the same voxels."""
        return self is other or (
            self.stride == other.stride and np.array_equal(self.keys, other.keys)
        )

    def samples(self):
        """(sample, slice of its rows) of each sample that has voxels."""
        samples, first = np.unique(self.coords[:, 0], return_index=True)
        ends = [*first[1:], len(self)]
        return [(int(s), slice(a, b)) for s, a, b in zip(samples, first, ends)]


def _within(coords):
    return ((coords[:, 1:] >= AXIS_MIN) & (coords[:, 1:] <= AXIS_MAX)).all(axis=1)


def _keys_of(coords):
    keys = coords[:, 0].astype(np.int64)
    for axis in (1, 2, 3):
        keys = (keys << _AXIS_BITS) | (coords[:, axis] - AXIS_MIN)
    return keys


def _coords_of(keys):
    axes = [((keys >> (_AXIS_BITS * n)) & ((1 << _AXIS_BITS) - 1)) + AXIS_MIN for n in (2, 1, 0)]
    return np.stack([keys >> (3 * _AXIS_BITS), *axes], axis=1)


def requested(coords, shape):
    """(set 0, the request's row of each of its rows) of coords [n, 4]."""
    coords = coords.astype(np.int64)
    if len(coords) and not (_within(coords).all() and 0 <= coords[:, 0].min()):
        raise ExportError(f"coords: expected samples from 0 and axes of {AXIS_MIN} to {AXIS_MAX}")
    if len(coords) and coords[:, 0].max() > SAMPLE_MAX:
        raise ExportError(f"coords: sample {coords[:, 0].max()}; expected at most {SAMPLE_MAX}")
    if shape is not None:
        beyond = ((coords[:, 1:] < 0) | (coords[:, 1:] >= shape)).any(axis=1)
        if beyond.any():
            raise ExportError(
                f"coords: voxel {coords[beyond][0, 1:].tolist()} lies outside of the spatial "
                f"shape {list(shape)}"
            )
    keys = _keys_of(coords)
    order = np.argsort(keys, kind="stable")
    on = Voxels(keys[order], (Fraction(1),) * 3, shape)
    twice = np.flatnonzero(on.keys[1:] == on.keys[:-1])
    if len(twice):
        raise ExportError(f"coords: voxel {on.coords[twice[0]].tolist()} comes twice")
    return on, order


class Window:
    """A kernel that moves over voxels: kernel, stride, padding and dilation along three axes.

    rule  "spconv", "floor", or "" where no set follows from it
    """

    def __init__(self, kernel, stride=(1, 1, 1), padding=(0, 0, 0), dilation=(1, 1, 1), rule=""):
        self.kernel, self.stride, self.rule = tuple(kernel), tuple(stride), rule
        self.padding, self.dilation = tuple(padding), tuple(dilation)

    def key(self):
        """Equal for windows that read the same."""
        return self.kernel, self.stride, self.padding, self.dilation

    def offsets(self):
        """The offsets k, the last axis fastest."""
        return [np.array(k) for k in itertools.product(*map(range, self.kernel))]

    def down(self, coords, k):
        """Which voxel those of a coarse set read at offset k."""
        return _moved(coords, coords[:, 1:] * self.stride - self.padding + k * self.dilation)

    def up(self, coords, k):
        """(voxels, whether they are whole): which coarse voxel those of a fine set read."""
        whole = coords[:, 1:] + self.padding - k * self.dilation
        return (
            _moved(coords, whole // self.stride),
            (whole % np.array(self.stride) == 0).all(axis=1),
        )


def _moved(coords, axes):
    return np.concatenate([coords[:, :1], axes], axis=1)


def centre(kernel, dilation):
    """The padding of the rule "floor": an odd kernel has its middle on the voxel."""
    return tuple((k - 1) // 2 * d if k % 2 else 0 for k, d in zip(kernel, dilation))


def pairs_of(window, upward, source, result):
    """For each offset of the window (rows of the result, rows of the source that they read)."""
    found = []
    for k in window.offsets():
        if upward:
            voxels, whole = window.up(result.coords, k)
            rows = np.where(whole, source.find(voxels), -1)
        else:
            rows = source.find(window.down(result.coords, k))
        out = np.flatnonzero(rows >= 0)
        found.append((out, rows[out]))
    return found


def _ones(*parts):
    return all(number == 1 for part in parts for number in part)


def floor_set(old, stride):
    """The voxels floor(p / stride)."""
    if _ones(stride):
        return old
    shape = old.shape and tuple(-(-n // s) for n, s in zip(old.shape, stride))
    coords = _moved(old.coords, old.coords[:, 1:] // np.array(stride))
    return Voxels.of(coords, _times(old.stride, stride), shape)


def spconv_set(old, window):
    """The voxels at which some offset of the window meets one, inside the new spatial shape."""
    if _ones(window.kernel, window.stride) and not any(window.padding):
        return old
    if old.shape is None:
        raise ExportError('the rule "spconv" needs inputs.coords.spatial_shape')
    shape = spconv_shape(old.shape, window)
    found = []
    for k in window.offsets():
        voxels, whole = window.up(old.coords, k)
        inside = ((voxels[:, 1:] >= 0) & (voxels[:, 1:] < shape)).all(axis=1)
        found.append(voxels[whole & inside])
    return Voxels.of(np.concatenate(found), _times(old.stride, window.stride), shape)


def spconv_shape(shape, window):
    """spconv's shape of what a window makes."""
    return tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(shape, *window.key()[:3], window.dilation)
    )


def expanded_set(old, window):
    """All voxels that the window reaches on its way up."""
    if _ones(window.kernel, window.stride):
        return old
    found = [window.down(old.coords, k) for k in window.offsets()]
    stride = tuple(a / s for a, s in zip(old.stride, window.stride))
    return Voxels.of(np.concatenate(found), stride, None)


def _times(stride, by):
    return tuple(a * s for a, s in zip(stride, by))


def sample_set(old):
    """A voxel (sample, 0, 0, 0) of each sample that has any."""
    coords = np.zeros((len(old.samples()), 4), np.int64)
    coords[:, 0] = [sample for sample, _rows in old.samples()]
    return Voxels.of(coords, (Fraction(0),) * 3, (1, 1, 1))


def subset(old, rows):
    """Some rows of a set."""
    return Voxels(old.keys[rows], old.stride, old.shape)


def steps(fine, coarse):
    """How many voxels of one set one step of the other is, along three axes."""
    found = [b / a if a else Fraction(1, 2) for a, b in zip(fine.stride, coarse.stride)]
    if any(step.denominator != 1 or step < 1 for step in found):
        raise ExportError(
            f"voxels of stride {'x'.join(map(str, coarse.stride))} are not made of those of "
            f"stride {'x'.join(map(str, fine.stride))}"
        )
    return tuple(int(step) for step in found)
