# SPDX-License-Identifier: Apache-2.0
"""Columns of coords that seem to be x, y, z and the sample: TorchSparse before 2.1 has them so.

The server cannot refuse them: they are legal voxels, of many samples that are lines.
"""
import threading
import warnings

import numpy as np

ROWS = 1024  # that are looked at: of a million voxels too that takes microseconds

# As in clients/cli/samples.c, which has the same rule.
_SAMPLE_MAX = 511
_LAST_MAX = 32  # values of the last column, if it is the sample
_FIRST_MANY = 32  # values of column 0 that are more samples than requests have
_FIRST_SOME = 8  # enough where the last column lies in blocks, and column 0 does not


def sample_is_last(coords):
    """(values of column 0, values of column 3) if the columns of int [N, 4] seem so, else None.

    The last one takes few values from 0, and column 0 more than twice as many.  A batch of
    [b, x, y, z] is told by its samples lying together, or by there being few of them: also if it
    is flat.  Up to ROWS rows are looked at, in their order, and all of them if those seem so.
    """
    if coords.ndim != 2 or coords.shape[1] != 4 or not len(coords):
        return None
    step = -(-len(coords) // ROWS)
    found = _seem(coords[::step])
    return _seem(coords) if found and step > 1 else found


def _seem(coords):
    last = coords[:, 3]
    largest = last.max()
    if largest >= _LAST_MAX or last.min() < 0:
        return None
    first = coords[:, 0]
    if first.min() < 0 or first.max() > _SAMPLE_MAX:
        return None
    firsts = np.count_nonzero(np.bincount(first.astype(np.int16)))
    lasts = np.count_nonzero(np.bincount(last.astype(np.int16)))
    if lasts != largest + 1 or firsts <= 2 * lasts:
        return None
    blocks = np.count_nonzero(first[1:] != first[:-1]) == firsts - 1
    ascends = bool((last[1:] >= last[:-1]).all())
    if blocks and not ascends:
        return None  # samples first, each with its own heights
    strong = ascends and not blocks and lasts > 1
    return (firsts, lasts) if firsts > (_FIRST_SOME if strong else _FIRST_MANY) else None


class Check:
    """Warns once of a client's requests.  Threads may share it."""

    def __init__(self):
        self._told = False
        self._lock = threading.Lock()

    def see(self, coords, stacklevel):
        """Looks at the coords of a request; None, or what is no int array [N, 4], passes."""
        if self._told or not isinstance(coords, np.ndarray) or coords.dtype.kind not in "iu":
            return
        found = sample_is_last(coords)
        if found is None:
            return
        with self._lock:
            told, self._told = self._told, True
        if not told:
            most = f" to {found[1] - 1}" if found[1] > 1 else ""
            warnings.warn(
                f"coords: column 0, the sample, takes {found[0]} values, and the last column only "
                f"0{most}: if the columns are x, y, z and the sample, put the sample first",
                stacklevel=stacklevel + 1)
