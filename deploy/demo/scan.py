# SPDX-License-Identifier: Apache-2.0
"""scan - a small terrestrial laser scanner: rays from tripods, points where they land.

    python3 scan.py                  writes scan.ply, the sample cloud of the demo
    python3 scan.py --truth t.npz    and the true normal of each of its voxels

A sensor turns like a real one: it sends rays on an even grid of azimuth and elevation and
follows each by sphere tracing to the first surface, with a normally distributed error
along the ray.  Points outside the scene's box are dropped.  Of the points in each cell of
VOXEL metres only the one nearest to its centre is kept, so that voxels of that size have
one point each.
"""

import argparse
import pathlib
import time

import numpy as np

import scene
import shapes

VOXEL = 0.07  # metres; the voxel size that the sample cloud is meant for
NOISE = 0.004  # metres, of the range
REACH = 25.0  # metres


def rays(step_degrees):
    """The unit directions [N,3] of one turn of the scanner, from -65 to +65 degrees elevation."""
    azimuth = np.radians(np.arange(0, 360, step_degrees))
    elevation = np.radians(np.arange(-65, 65, step_degrees))
    a, e = np.meshgrid(azimuth, elevation, indexing="ij")
    return np.stack(
        [np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)], -1
    ).reshape(-1, 3)


def meets_box(origin, direction, low, high):
    """Which rays pass through the box."""
    with np.errstate(divide="ignore"):
        a, b = (low - origin) / direction, (high - origin) / direction
    enter, leave = np.minimum(a, b).max(1), np.maximum(a, b).min(1)
    return leave > np.maximum(enter, 0)


def scan(f, sensor, step_degrees, rng):
    """The points [N,3] of f that a sensor [3] sees within the scene's box, and their true
    normals [N,3]."""
    direction = rays(step_degrees)
    direction = direction[meets_box(sensor, direction, scene.LOW, scene.HIGH)]
    origin = np.broadcast_to(sensor, direction.shape)
    distance = shapes.march(f, origin, direction, REACH, hit=1e-3)
    seen = np.isfinite(distance)
    exact = sensor + distance[seen, None] * direction[seen]
    normals = shapes.normals_at(f, exact)
    points = exact + direction[seen] * rng.normal(0, NOISE, (len(exact), 1))
    inside = ((points > scene.LOW) & (points < scene.HIGH)).all(1)
    return points[inside], normals[inside]


def thin(points, cell):
    """The index of one point per cell, the one nearest to its centre, in the cells' order."""
    cells = np.floor(points / cell).astype(np.int64)
    off_centre = shapes.length(points / cell - cells - 0.5)
    order = np.lexsort((off_centre, *cells.T))
    first = np.r_[True, (np.diff(cells[order], axis=0) != 0).any(1)]
    return order[first]


def scan_street():
    """The sample cloud's points [N,3] float32, one per voxel; and all points [M,3] before
    thinning, with their normals [M,3], of which `shapes.voxelise` makes the truth."""
    f, rng = scene.street(), np.random.default_rng(1)
    turns = [scan(f, row[:3], row[3], rng) for row in scene.SENSORS]
    points, normals = (np.concatenate(parts) for parts in zip(*turns))
    keep = thin(points, VOXEL)
    return points[keep].astype("<f4"), points, normals


def write_ply(path, points, comments=()):
    """Writes a binary little-endian PLY of float32 x y z."""
    head = [
        "ply",
        "format binary_little_endian 1.0",
        *(f"comment {c}" for c in comments),
        f"element vertex {len(points)}",
        "property float x",
        "property float y",
        "property float z",
        "end_header",
    ]
    body = np.ascontiguousarray(points, "<f4").tobytes()
    pathlib.Path(path).write_bytes("\n".join(head).encode() + b"\n" + body)


def read_ply(path):
    """The points [N,3] of a file that write_ply wrote."""
    head, body = pathlib.Path(path).read_bytes().split(b"end_header\n", 1)
    count = int(head.split(b"element vertex ")[1].split()[0])
    return np.frombuffer(body, "<f4", 3 * count).reshape(count, 3)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    here = pathlib.Path(__file__).parent
    parser.add_argument("--out", default=here / "scan.ply")
    parser.add_argument("--truth", help="an .npz for coords [M,3], normals [M,3]")
    args = parser.parse_args()
    began = time.time()
    points, every, normals = scan_street()
    write_ply(
        args.out,
        points,
        [
            "a street corner, scanned by deploy/demo/scan.py; metres, z up",
            f"voxel_size {VOXEL:g}",
        ],
    )
    coords, truth = shapes.voxelise(every, normals, VOXEL)
    if args.truth:
        np.savez(args.truth, coords=coords, normals=truth)
    print(
        f"{args.out}: {len(points)} points of {len(every)} measured, {len(coords)} "
        f"voxels of {VOXEL:g} m, {time.time() - began:.0f} s"
    )


if __name__ == "__main__":
    main()
