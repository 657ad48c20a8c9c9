# SPDX-License-Identifier: Apache-2.0
"""heldout - shapes that the network never learned from, to measure its accuracy.

    for case in heldout.cases():
        case.family, case.name, case.coords, case.truth

Six families, none of which families.py can make: superquadrics, gyroid patches, chains of
capsules, torus knots, hills (sums of Gaussians) and helicoids.  Each is turned at random
and made in three sizes, twice: `dense` (9 points on a voxel's area, no noise) and
`rough` (3 points, noise of 0.3 voxels, 15 % of the voxels dropped).  The unit is the
voxel; the seeds are fixed, so the numbers are the same on every machine.
"""

import collections

import numpy as np

import shapes as s

Case = collections.namedtuple("Case", "family name coords truth")

SIZES = (14.0, 20.0, 28.0)  # in voxels: about half the width of the window


def level_set(value, spread):
    """The surface value(p) = 0 as a shape: value divided by its own slope, which near the
    surface is the distance.  Far away it is clipped to +-spread."""

    def field(p):
        v, g = s.gradient(value, p)
        return np.clip(v / np.maximum(s.length(g), 1e-6), -spread, spread)

    return field


def superquadric(rng, size):
    axes = size * rng.uniform(0.5, 0.85, 3)
    e1, e2 = rng.uniform(0.35, 1.6, 2)

    def value(p):
        x, y, z = np.maximum(np.abs(p / axes), 1e-9).T
        ring = (x ** (2 / e2) + y ** (2 / e2)) ** (e2 / e1)
        return (ring + z ** (2 / e1)) ** (e1 / 2) - 1

    return level_set(value, size)


def gyroid(rng, size):
    k = 2 * np.pi / (size * rng.uniform(0.9, 1.4))

    def value(p):
        a, b = np.sin(k * p), np.cos(k * p)
        wave = a[:, 0] * b[:, 1] + a[:, 1] * b[:, 2] + a[:, 2] * b[:, 0]
        return (wave + 0.3) / k

    return level_set(value, size)


def chain(rng, size):
    knots = rng.uniform(-0.75, 0.75, (6, 3)) * size
    radii = size * rng.uniform(0.1, 0.22, 6)
    return s.union(
        *[
            s.capsule(a, b, ra, rb)
            for a, b, ra, rb in zip(knots[:-1], knots[1:], radii[:-1], radii[1:])
        ]
    )


def knot(rng, size):
    t = np.linspace(0, 2 * np.pi, 180, endpoint=False)
    ring = 2 + np.cos(3 * t)
    line = np.stack([ring * np.cos(2 * t), ring * np.sin(2 * t), 1.2 * np.sin(3 * t)], 1)
    line *= size * 0.26
    radius = size * rng.uniform(0.09, 0.14)

    def field(p):
        square = (p * p).sum(1)[:, None] + (line * line).sum(1) - 2 * p @ line.T
        i = square.argmin(1)
        far = np.full(len(p), np.inf)
        for step in (-1, 0):  # the two segments that meet at the nearest corner
            a, b = line[(i + step) % 180], line[(i + step + 1) % 180]
            edge = b - a
            u = np.clip(((p - a) * edge).sum(1) / (edge * edge).sum(1), 0, 1)
            far = np.minimum(far, s.length(p - a - u[:, None] * edge))
        return far - radius

    return field


def hills(rng, size):
    tops = rng.uniform(-1, 1, (7, 2)) * size
    width = size * rng.uniform(0.2, 0.45, 7)
    height = width * rng.uniform(-1.2, 1.6, 7)

    def value(p):
        square = ((p[:, None, :2] - tops) ** 2).sum(2)
        return p[:, 2] - (height * np.exp(-square / (2 * width**2))).sum(1)

    return level_set(value, size)


def helicoid(rng, size):
    """A winding ramp, one to two voxels thick."""
    pitch = size * rng.uniform(0.12, 0.2)
    thick = rng.uniform(0.3, 0.8)

    def value(p):
        phase = p[:, 2] / pitch - np.arctan2(p[:, 1], p[:, 0])
        return np.abs(np.sin(phase / 2)) * 2

    slope = lambda p: np.sqrt(1 / pitch**2 + 1 / np.maximum((p[:, :2] ** 2).sum(1), 4))
    winding = lambda p: value(p) / slope(p) - thick
    return s.intersection(winding, s.cylinder(size * 0.8, size * 0.8))


FAMILIES = (superquadric, gyroid, chain, knot, hills, helicoid)


def cloud(family, size, rough, seed):
    rng = np.random.default_rng(seed)
    turned = s.turn(family(rng, size), s.random_rotation(rng))
    f = s.move(turned, *rng.uniform(0, 1, 3))
    half = 4 * np.ceil(size / 4)
    points, normals = s.surface_points(f, half, 3 if rough else 9, rng)
    if rough:
        points = points + rng.normal(size=points.shape) * 0.3
    coords, truth = s.voxelise(points, normals)
    if rough:
        keep = rng.random(len(coords)) > 0.15
        coords, truth = coords[keep], truth[keep]
    return coords, truth


def cases():
    """Thirty-six cases: coords [M,3] int32, truth [M,3] float32 unit normals."""
    for index, family in enumerate(FAMILIES):
        for rough in (False, True):
            for step, size in enumerate(SIZES):
                name = f"{'rough' if rough else 'dense'} {size:.0f}"
                made = cloud(family, size, rough, seed=90_000 + 100 * index + step)
                yield Case(family.__name__, name, *made)
