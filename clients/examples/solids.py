"""Shapes for the story of the surface: their voxels at every resolution, and what latents hold.

    f = blob(rng)                                # a random solid: the distance to its surface
    levels = occupied(f, latents=16, doublings=3)     # voxels of the surface, coarse to fine
    feats = distances(f, levels[0], size)        # [N, 27]

Shapes are the distance functions of deploy/demo/shapes.py, in the cube from -1 to 1.

SPDX-License-Identifier: Apache-2.0
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "deploy" / "demo"))

import scene
import shapes

CLIP = 2.0  # voxels: distances in latents end here, on both sides
_GRID = np.stack(np.meshgrid(*[np.arange(3)] * 3, indexing="ij"), -1).reshape(-1, 3) / 2
_CORNERS = np.stack(np.meshgrid(*[np.arange(2)] * 3, indexing="ij"), -1).reshape(-1, 3)
CHILDREN = _CORNERS[:, ::-1]  # child x + 2 * (y + 2 * z) of a voxel, as voxeld counts them
_MARGIN = 1.5  # some fields grow faster than a distance


def dog():
    """The dog of the demo's street, a little fatter, in the cube: no network is fitted on it."""
    f = scene.dog()
    return lambda p: (f(p / 1.5 + np.array([0.04, 0.0, 0.44])) - 0.02) * 1.5


def blob(rng):
    """A few solids at random, melted together."""
    parts = []
    for _ in range(4):
        a, b, c = rng.uniform(0.12, 0.45, 3)
        kinds = (
            shapes.ellipsoid(a, b, c),
            shapes.box(a, b, c, 0.1 * min(a, b, c)),
            shapes.torus(0.25 + 0.4 * a, 0.08 + 0.2 * b),
            shapes.capsule([0, 0, -c], [0, a, c], 0.08 + 0.2 * a, 0.08 + 0.2 * b),
        )
        part = shapes.turn(kinds[rng.integers(len(kinds))], shapes.random_rotation(rng))
        parts.append(shapes.move(part, *rng.uniform(-0.35, 0.35, 3)))
    return shapes.smooth_union(0.12, *parts)


def voxel_size(resolution):
    """Of a grid of `resolution` voxels along each axis of the cube."""
    return 2.0 / resolution


def points_in(voxels, places, size):
    """Points [N * P, 3] at places [P, 3] of voxels, 0 to 1 from corner to corner."""
    return ((voxels[:, None] + places[None]) * size - 1).reshape(-1, 3)


def occupied(f, latents, doublings):
    """The voxels [N, 3] of each level: of the finest those whose corners are not all on one side
    of the surface, of the others those that have such a voxel in them."""
    axis = np.arange(latents)
    voxels = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3)
    for level in range(doublings + 1):
        size = voxel_size(latents << level)
        middle = f(points_in(voxels, np.full((1, 3), 0.5), size))
        voxels = voxels[np.abs(middle) < _MARGIN * size * np.sqrt(3) / 2]
        if level < doublings:
            voxels = children_of(voxels)
    inside = f(points_in(voxels, _CORNERS, size)).reshape(-1, 8) < 0
    levels = [voxels[inside.any(1) & ~inside.all(1)]]
    for _ in range(doublings):
        levels.insert(0, np.unique(levels[0] // 2, axis=0))
    return levels


def children_of(voxels):
    """All children [8 * N, 3], those of a voxel together."""
    return (2 * voxels[:, None] + CHILDREN[None]).reshape(-1, 3)


def distances(f, voxels, size):
    """Distances to the surface at 27 points of each voxel, its corners among them: in voxels,
    negative inside, [N, 27]."""
    found = f(points_in(voxels, _GRID, size)).reshape(-1, len(_GRID)) / size
    return np.clip(found, -CLIP, CLIP).astype(np.float32)


def nearest(f, voxels, size):
    """The surface's point nearest to each voxel's middle: in voxels, from the voxel's corner."""
    middle = points_in(voxels, np.full((1, 3), 0.5), size)
    value, slope = shapes.gradient(f, middle)
    step = value[:, None] * slope / np.maximum((slope**2).sum(1, keepdims=True), 0.1)
    return 0.5 - step / size


def keys(coords):
    """A number for each [sample, x, y, z], for searches."""
    coords = np.asarray(coords, np.int64)
    return ((coords[:, 0] << 16 | coords[:, 1]) << 16 | coords[:, 2]) << 16 | coords[:, 3]


def rows_of(coords, wanted):
    """The row in coords [N, 4] of each voxel of wanted [M, 4], or -1."""
    order = np.argsort(keys(coords))
    table, asked = keys(coords)[order], keys(wanted)
    at = np.minimum(np.searchsorted(table, asked), len(table) - 1)
    return np.where(table[at] == asked, order[at], -1)
