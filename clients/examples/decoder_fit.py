"""Fits layers of a TRELLIS.2 decoder to random shapes, level by level, by ridge regression.

    tensors = fit_decoder(folder, lessons, options, seed=1)

What is fitted is what writes the stream of features from one level to the next:

    blocks.i.0.mlp.2 (8 of its rows)   writes what can be predicted of the level's voxels
    blocks.i.1.to_subdiv               which of the 8 children there are
    blocks.i.1.conv1, .conv2           write the children's own 27 distances
    output_layer (3 of its 7 rows)     where in its voxel the surface is

All else is random: the latents' layer, the blocks' convolutions, the first layer of each MLP, the
norms.  Only the convolutions' weights of neighbours are made small: a sum of 27 random features
says little of the voxel in its middle.  A level is fitted on the voxels that the levels before it
predict, right or wrong.

SPDX-License-Identifier: Apache-2.0
"""

from functools import partial

import numpy as np
import solids
from ridge import Ridge
from serving import random_tensors, record

FAMILY = "trellis2_decoder"
MARGIN = 0.5  # the family's voxel_margin: vertices lie between -0.5 and 1.5 of their voxel
POINTS = 27
WRITTEN = 8  # channels at the end of a stream that blocks.i.0 writes
_STEADY = (6.0, -6.0, 6.0, -6.0)  # beside distances, whose size layer norm would take else
_AROUND = 0.03  # what random weights of neighbours are multiplied with
_ROWS = 8000  # that a convolution is fitted on
_RECORDED = 60000  # voxels of a level that are recorded, about: of the first samples
_NEIGHBOURS = np.stack(np.meshgrid(*[np.arange(-1, 2)] * 3, indexing="ij"), -1).reshape(-1, 3)


class Lessons:
    """Shapes to fit on, each a sample of one request.

    shapes   distance functions
    latents  voxels along an axis of the coarsest level
    """

    def __init__(self, shapes, latents, doublings):
        self.shapes, self.latents, self.doublings = shapes, latents, doublings
        self.levels = [[] for _ in range(doublings + 1)]
        for sample, f in enumerate(shapes):
            for level, voxels in enumerate(solids.occupied(f, latents, doublings)):
                self.levels[level].append(np.insert(voxels, 0, sample, axis=1))
        self.levels = [np.concatenate(parts).astype(np.int32) for parts in self.levels]
        self.coords = self.levels[0]
        self.feats = self.distances(0, self.coords)

    def distances(self, level, coords):
        """[N, 27] of voxels of a level, whether the surface is there or not."""
        return self._each(solids.distances, level, coords)

    def first(self, level):
        """(coords, feats) of as many samples as give about _RECORDED voxels of a level."""
        counts = np.cumsum(np.bincount(self.levels[level][:, 0]))
        rows = self.coords[:, 0] <= max(0, np.searchsorted(counts, _RECORDED) - 1)
        return self.coords[rows], self.feats[rows]

    def has_children(self, level, coords):
        """[N, 8]: 1 or -1, whether each child is one of the next level's voxels."""
        children = solids.children_of(coords[:, 1:])
        children = np.insert(children, 0, np.repeat(coords[:, 0], 8), axis=1)
        found = solids.rows_of(self.levels[level + 1], children) >= 0
        return np.where(found, 1.0, -1.0).reshape(-1, 8)

    def surface(self, coords):
        """[N, 8]: logits of each voxel's vertex, the nearest point of the surface; zeros."""
        at = self._each(solids.nearest, self.doublings, coords)
        at = np.clip((at + MARGIN) / (1 + 2 * MARGIN), 0.05, 0.95)
        return np.concatenate([np.log(at / (1 - at)), np.zeros((len(at), WRITTEN - 3))], axis=1)

    def _each(self, what, level, coords):
        size, parts = solids.voxel_size(self.latents << level), []
        rows = [np.flatnonzero(coords[:, 0] == sample) for sample in range(len(self.shapes))]
        for f, own in zip(self.shapes, rows, strict=True):
            parts.append(what(f, coords[own, 1:], size))
        result = np.concatenate(parts)
        back = np.empty_like(result)
        back[np.concatenate(rows)] = result
        return back


def fit_decoder(folder, lessons, options, seed):
    """{name: array}: random tensors, of which the named ones are fitted."""
    tensors = random_tensors(FAMILY, options, seed)
    for level in range(lessons.doublings + 1):
        weight = tensors[f"blocks.{level}.0.conv.weight"]
        weight *= np.where(np.arange(27) == 13, 1, _AROUND).reshape(1, 3, 3, 3, 1)
    fit = _Fit(folder, lessons, options, tensors)
    for level in range(lessons.doublings):
        fit.stream(level, partial(lessons.has_children, level))
        fit.children(level)
        fit.first_conv(level)
        fit.second_conv(level)
    fit.stream(lessons.doublings, lessons.surface)
    fit.output()
    return fit.tensors


class _Fit:
    def __init__(self, folder, lessons, options, tensors):
        self.folder, self.lessons, self.options = folder, lessons, options
        self.tensors = tensors
        self.rng = np.random.default_rng(1)

    def record(self, level, *layers):
        """Results of layers of a level, with the tensors as they are now, and their voxels."""
        request = self.lessons.first(level)
        return record(FAMILY, self.options, self.tensors, self.folder, request, layers)

    def stream(self, level, wanted):
        """The last channels behind a block: what is wanted, of the hidden layer of its MLP."""
        block = f"blocks.{level}.0"
        before = f"blocks.{level - 1}.1" if level else "from_latent"
        (hidden, stream), at = self.record(level, f"{block}.mlp.1", before)
        fit = Ridge(hidden.shape[1], WRITTEN)
        fit.add(hidden, wanted(at) - stream[:, -WRITTEN:])
        self._linear(f"{block}.mlp.2", slice(-WRITTEN, None), *fit.solve(1e-4))

    def children(self, level):
        (stream,), at = self.record(level, f"blocks.{level}.0")
        fit = Ridge(stream.shape[1], 8)
        fit.add(stream, self.lessons.has_children(level, at))
        self._linear(f"blocks.{level}.1.to_subdiv", slice(0, 8), *fit.solve(1e-5))

    def first_conv(self, level):
        """Writes the 27 distances of each child, what its skip connection has, and constants."""
        name = f"blocks.{level}.1"
        (found, stream), at = self.record(level, f"{name}.norm1.silu", f"blocks.{level}.0")
        rows = self._some(len(at))
        children = solids.children_of(at[rows, 1:])
        children = np.insert(children, 0, np.repeat(at[rows, 0], 8), axis=1)
        skip = stream[rows].reshape(len(children), -1)  # a child's own channels of its parent
        known = np.concatenate([self.lessons.distances(level + 1, children), skip], axis=1)
        both = np.concatenate([known, -known], axis=1)[:, : self._channels(level + 1) - 4]
        wanted = np.concatenate([both, np.tile(_STEADY, (len(both), 1))], axis=1)
        self._conv(f"{name}.conv1", found, at, rows, wanted.reshape(len(rows), -1))

    def second_conv(self, level):
        """Writes the 27 distances into the stream, in place of what the skip connection adds."""
        name = f"blocks.{level}.1"
        (found, skip), at = self.record(
            level + 1, f"{name}.norm2.silu", f"{name}.skip_connection"
        )
        rows = self._some(len(at))
        wanted = np.zeros((len(rows), self._channels(level + 1)))
        wanted[:, :POINTS] = self.lessons.distances(level + 1, at[rows])
        self._conv(f"{name}.conv2", found, at, rows, wanted - skip[rows])

    def output(self):
        (found,), at = self.record(self.lessons.doublings, "output_layer.norm")
        fit = Ridge(found.shape[1], 3)
        fit.add(found, self.lessons.surface(at)[:, :3])
        self._linear("output_layer", slice(0, 3), *fit.solve(1e-5))

    # --- their parts ---

    def _channels(self, level):
        return self.options["model_channels"][level]

    def _some(self, count):
        return np.sort(self.rng.permutation(count)[:_ROWS])

    def _linear(self, name, rows, matrix, bias):
        self.tensors[f"{name}.weight"][rows] = matrix.T
        self.tensors[f"{name}.bias"][rows] = bias

    def _conv(self, name, found, at, rows, wanted):
        """A convolution whose row sees the features of its 27 neighbours, zeros where none is."""
        fit = Ridge(27 * found.shape[1], wanted.shape[1])
        padded = np.concatenate([found, np.zeros((1, found.shape[1]), found.dtype)])
        for first in range(0, len(rows), 2000):
            part = rows[first : first + 2000]
            near = at[part, None] + np.insert(_NEIGHBOURS, 0, 0, axis=1)[None]
            seen = padded[solids.rows_of(at, near.reshape(-1, 4))]
            fit.add(seen.reshape(len(part), -1), wanted[first : first + 2000])
        matrix, bias = fit.solve(3e-3)
        weight = matrix.T.reshape(-1, 3, 3, 3, found.shape[1])
        self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"] = weight, bias
