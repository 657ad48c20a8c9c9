"""Voxels such as the families are run on, for examples that are small.

Each returns int32 [N, 4] (sample, then three axes) in no order.  Source: our own shapes.

SPDX-License-Identifier: Apache-2.0
"""

import numpy as np


def street(rng, shape, count, samples=1):
    """What a rotating scanner sees of a street: rings on the ground, walls, boxes.

    shape  voxels along the axes z, y, x
    count  of voxels of a sample, about
    """
    rows = []
    for sample in range(samples):
        middle = np.array(shape[1:]) / 2
        reach = min(shape[1:]) * 0.48
        far = reach * rng.random(count * 3) ** 1.5
        angle = rng.random(len(far)) * 2 * np.pi
        y, x = middle[0] + far * np.sin(angle), middle[1] + far * np.cos(angle)
        ground = shape[0] * (0.25 + 0.03 * np.sin(x / 40) + 0.02 * np.cos(y / 30))
        wall = np.abs(np.sin(x / 23) * np.sin(y / 31)) > 0.93
        z = np.where(wall, ground + rng.random(len(far)) * shape[0] * 0.6, ground)
        voxels = np.stack([z, y, x], 1).astype(np.int32)
        inside = ((voxels >= 0) & (voxels < np.array(shape))).all(1)
        voxels = np.unique(voxels[inside], axis=0)
        voxels = rng.permutation(voxels)[:count]
        rows.append(np.insert(voxels, 0, sample, 1))
    return np.concatenate(rows).astype(np.int32)


def shell(rng, resolution, samples=1):
    """The surface of a bumpy ball in a cube of `resolution` voxels."""
    axes = np.stack(np.meshgrid(*[np.arange(resolution)] * 3, indexing="ij"), -1).reshape(-1, 3)
    rows = []
    for sample in range(samples):
        away = axes - (resolution - 1) / 2
        bump = 1 + 0.15 * np.sin(away[:, 0] * 5 / resolution + sample) * np.cos(
            away[:, 1] * 7 / resolution
        )
        on = np.abs(np.linalg.norm(away, axis=1) * bump - resolution * 0.38) < 0.8
        rows.append(np.insert(rng.permutation(axes[on]), 0, sample, 1))
    return np.concatenate(rows).astype(np.int32)
