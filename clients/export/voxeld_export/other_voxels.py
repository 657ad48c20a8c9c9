"""Other voxels than an example's, to find what a network takes from them.

Of the example's voxels only their features and neighbours may count.  What Python computes of
their number, of coordinates or of the number of samples would be a constant of every request, and
shows only where a forward pass gets others: here a part of the example, elsewhere, and one sample
more.

SPDX-License-Identifier: Apache-2.0
"""

import copy

import numpy as np
import torch

from .errors import ExportError

ROWS_MIN = 16  # of a sample, as long as it has them: layers that shrink sets need some
ROWS_FEW = 3  # at two ends of a sample: a number that min() bounds, and a branch, shows there
ANCHORS = 64  # rows that are tried as the middle of a few that lie together
ROWS_MAX = 4096  # of all samples: enough to follow Python, and quick beside the example's pass


class Voxels:
    """Some of an example's voxels, moved.

    rows     of the example, in the order of the new rows
    coords   int32 [rows, 4]
    samples  how many there are
    """

    def __init__(self, rows, coords, samples):
        self.rows, self.coords, self.samples = rows, coords, samples

    def said(self):
        return f"{len(self.rows)} in {_samples(self.samples)}"

    def of(self, array):
        """The rows of a tensor or an array that has one for each of the example's voxels."""
        if isinstance(array, torch.Tensor):
            return array.detach()[torch.from_numpy(self.rows).to(array.device)].clone()
        return array[self.rows].copy()


def said_of(coords):
    return f"{len(coords)} in {_samples(_count(coords))}"


def choices(coords):
    """Voxels to try, the most telling first; the others are for modules that cannot run on those.

    A part with a sample more; the same with the example's samples, whose number a module may have
    as its own; that with the example's outermost voxels, where a library's rule follows from them
    (TorchSparse without a spatial_range); and all but one, where a part keeps none (pruning).
    """
    samples = _count(coords)
    first = int(coords[:, 0].min())
    parts = {int(b): np.flatnonzero(coords[:, 0] == b) for b in np.unique(coords[:, 0])}
    most = max(ROWS_MIN, ROWS_MAX // (len(parts) + 1))
    whole, big = parts, max(parts, key=lambda b: len(parts[b]))
    less = np.delete(whole[big], len(whole[big]) // 2)
    parts = {b: _corner(coords, rows, most) for b, rows in parts.items()}
    moved = _room(coords, np.concatenate(list(parts.values()))) // 2
    kept = sum(map(len, parts.values()))
    half = max(1, len(parts[first]) // 2)
    copied = parts[first][: half + (kept + half == len(coords))]
    outer = np.unique([coords[:, 1:].argmin(0), coords[:, 1:].argmax(0)])
    wider = {b: np.union1d(rows, outer[coords[outer, 0] == b]) for b, rows in parts.items()}
    made = [
        _voxels(coords, {**parts, samples: copied}, moved, samples + 1),
        _voxels(coords, parts, moved, samples),
        _voxels(coords, wider, 0 * moved, samples),
        _voxels(coords, {**whole, big: less}, 0 * moved, samples),
    ]
    # As many rows as the example's would show nothing of their number.
    return [one for one in made if len(one.rows) != len(coords)]


def few(coords):
    """A few voxels of the first sample at both its ends, and one of each other sample; or None.

    Those of an end lie together, as far as the example's do, so that each layer finds some.
    """
    parts = [np.flatnonzero(coords[:, 0] == b) for b in np.unique(coords[:, 0])]
    rows = parts[0][_order(coords, parts[0])]
    ends = [_together(coords, rows[:ROWS_MAX]), _together(coords, rows[::-1][:ROWS_MAX])]
    kept = {int(coords[part[0], 0]): part[:1] for part in parts}
    kept[int(coords[rows[0], 0])] = np.unique(np.concatenate(ends))
    made = _voxels(coords, kept, 0, _count(coords))
    return made if len(made.rows) < len(coords) else None


def _together(coords, rows):
    """ROWS_FEW of the rows, as near to each other as any around the first ANCHORS."""
    at = coords[rows, 1:].astype(np.int64)
    count = min(ROWS_FEW, len(rows))
    far = np.abs(at[:ANCHORS, None] - at[None]).max(2)
    anchor = np.sort(far, 1)[:, :count].sum(1).argmin()
    return rows[np.argsort(far[anchor], kind="stable")[:count]]


def changed(example, library, feats, coords, voxels):
    """(example, feats) with other voxels in all that it has: sparse tensors, rows and samples.

    coords  int32 [N, 4], those of `feats`
    """
    return _Changed(library, feats, coords, voxels).of(example)


class _Changed:
    def __init__(self, library, feats, coords, voxels):
        self.library, self.coords, self.voxels = library, coords, voxels
        self.feats, self.made = feats, None
        self.others = {}  # {id: (a tensor, that in its place)}: an example may have it twice

    def of(self, example):
        other = self._of(example, None)
        return other, self.made

    def _once(self, thing, make):
        if id(thing) not in self.others:
            self.others[id(thing)] = thing, make(thing)
        return self.others[id(thing)][1]

    def _of(self, thing, key):
        sparse = self.library.sparse(thing)
        if sparse is not None:
            return self._once(thing, lambda one: self._sparse(one, sparse))
        if isinstance(thing, dict):
            other = copy.copy(thing)  # of the user's own kind
            other.update({name: self._of(one, name) for name, one in thing.items()})
            return other
        if type(thing) in (list, tuple):
            return type(thing)(self._of(one, None) for one in thing)
        if isinstance(thing, (torch.Tensor, np.ndarray)):
            return self._once(thing, self._array)
        if key == "batch_size" and thing == _count(self.coords):
            return self.voxels.samples
        return thing

    def _sparse(self, thing, sparse):
        if len(sparse.features) != len(self.coords):
            return thing
        other = self.library.rebuilt(
            thing,
            self.voxels.of(sparse.features),
            torch.from_numpy(self.voxels.coords).to(sparse.features.device),
            self.voxels.samples,
        )
        if self.made is None or sparse.features is self.feats:
            self.made = self.library.sparse(other).features
        return other

    def _array(self, array):
        if array.ndim < 1 or len(array) != len(self.coords):
            return array
        rows = self.voxels.of(array)
        if array is self.feats:
            self.made = rows
        elif _is(array, self.coords):
            rows[:] = _like(rows, self.voxels.coords)
        elif _is(array, self.coords[:, 1:]):
            rows[:] = _like(rows, self.voxels.coords[:, 1:])
        return rows


def _is(array, coords):
    there = array.detach().cpu().numpy() if isinstance(array, torch.Tensor) else array
    return np.array_equal(there, coords)


def _like(rows, coords):
    return torch.from_numpy(coords).to(rows) if isinstance(rows, torch.Tensor) else coords


def _corner(coords, rows, most):
    """A quarter of a sample's rows: those nearest to the lower corner of all, in their order.

    Neighbours stay together, so that layers find there what they find in the example.
    """
    count = min(len(rows), most, max(ROWS_MIN, len(rows) // 4))
    if count == len(rows):
        count -= count // 3  # a small example's part is a part, too
    return np.sort(rows[_order(coords, rows)[:count]])


def _order(coords, rows):
    """The order of rows by how far they are from the lower corner of all."""
    low = coords[:, 1:].min(0)
    extent = np.maximum(coords[:, 1:].max(0) - low, 1)
    return np.argsort(((coords[rows, 1:] - low) / extent).max(1), kind="stable")


def _room(coords, rows):
    """How far voxels can be moved up within the example's, which are legal wherever they come."""
    return coords[:, 1:].max(0) - coords[rows, 1:].max(0)


def _voxels(coords, parts, moved, samples):
    """Voxels of {sample: rows}, those of a sample together, as some libraries want them."""
    rows = np.concatenate(list(parts.values()))
    made = coords[rows].copy()
    made[:, 0] = np.repeat(list(parts), [len(part) for part in parts.values()])
    made[:, 1:] += np.asarray(moved, made.dtype)
    return Voxels(rows, made, samples)


def _count(coords):
    return int(coords[:, 0].max()) + 1


def _samples(count):
    return f"{count} sample{'s' if count != 1 else ''}"


_READS = ("input", "inputs", "of", "onto", "occupancy", "keep")
_NUMBER = (
    "Python computes it of the example's voxels (len(), shape, batch_size, indices), and it would "
    "be a constant of every request.  Expected a number of the module's own, or layers: a "
    "global_pool is a mean over the voxels of a sample"
)
_PATH = (
    "a branch or a loop of Python follows from the example's voxels (len(), shape, batch_size, "
    "indices), and every request would take it.  Expected the same layers whatever the voxels are"
)


def compare(constants, others, voxels, coords):
    """ExportError if the networks of two passes differ: both are Network.constants().

    voxels  the Voxels of the second pass; coords: those of the first
    """
    (ours, tensors), (theirs, other_tensors) = constants, others
    where = f"for other voxels ({voxels.said()}; the example has {said_of(coords)})"
    differs = _layers_differ(ours, theirs)
    if differs:
        what, why = differs
        raise ExportError(f"{what} {where}: {why}")
    for name, digest in tensors.items():
        if other_tensors.get(name) != digest:
            raise ExportError(f"the tensor {name} has other numbers {where}: {_NUMBER}")


def _layers_differ(ours, theirs):
    """(what differs, why), or None."""
    for layer, other in zip(ours, theirs):
        if (layer["name"], layer["op"]) != (other["name"], other["op"]):
            return f"the layer {_named(layer)} is {_named(other)}", _PATH
        for key in [*layer, *other]:
            if layer.get(key) != other.get(key):
                has = f"the layer {layer['name']} has {key} {layer.get(key, 'of its default')}"
                why = _PATH if key in _READS else _NUMBER
                return f"{has}, and {other.get(key, 'that of its default')}", why
    if len(ours) != len(theirs):
        longer = max(ours, theirs, key=len)[min(len(ours), len(theirs))]
        who = "the example" if len(ours) > len(theirs) else "another one"
        return f"only {who} has the layer {_named(longer)},", _PATH
    return None


def _named(layer):
    return f"{layer['name']} ({layer['op']})"
