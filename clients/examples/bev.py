#!/usr/bin/env python3
"""A bird's-eye view: where the cars of a street stand, seen from above.

SECOND's backbone with random weights turns a laser scan into the dense map that a detector's 2-D
head reads.  Ridge regression fits one 3x3 convolution of such a head on streets whose cars are
known; it is applied here, by the client.  voxeld serves the sparse part, and a street that the
head was not fitted on shows what the map holds.

    python3 clients/examples/bev.py -o pictures

SPDX-License-Identifier: Apache-2.0
"""

import json
import pathlib
import tempfile
import time

import numpy as np
import pictures
import scans
from ridge import Ridge
from serving import export, milliseconds, program, random_tensors, serve

FAMILY = "second"
VOXEL = (0.1, 0.1, 0.165)  # metres along x, y, z
CORNER = (-scans.HALF, -scans.HALF, scans.LOW)
CELLS = round(2 * scans.HALF / VOXEL[0])  # of the grid along x and y
STRIDE = 8  # voxels of a cell of the map
OPTIONS = {
    "channels_in": 8,
    "spatial_shape": (41, CELLS, CELLS),
    "channels": (16, 32, 64, 64, 128),
    "depths": (1, 1, 1, 1),
}
SEEN = 20  # points of a car that the truth counts
PIXELS = 8  # of a cell in the picture
PROOF_VOXELS = 2000


def main():
    options = scans.arguments(__doc__)
    program()
    print(__doc__.split("\n\n")[1], end="\n\n")
    began = time.time()
    print(f"scanning {options.scans} streets and one more", flush=True)
    *known, unseen = (scanned(options.seed + i, options.rays) for i in range(options.scans + 1))
    with tempfile.TemporaryDirectory(prefix="voxeld-bev-") as work:
        repository = pathlib.Path(work)
        tensors = random_tensors(FAMILY, OPTIONS, options.seed)
        coords, feats, truth, points = unseen
        print("exporting the network; its proof:", flush=True)
        some = np.argsort(np.abs(coords[:, 2:] - CELLS / 2).max(1))[:PROOF_VOXELS]
        proof = coords[some], feats[some]
        print(export(FAMILY, OPTIONS, tensors, repository / "bev", proof))
        with serve(repository) as client:
            maps = [client.infer("bev", *scan[:2])["spatial_features"][0] for scan in known]
            head = fit_head(maps, [scan[2] for scan in known])
            answer = client.infer("bev", coords, feats, timing=True)
            score = head.score(answer["spatial_features"][0])
    print(f"\n{len(coords)} voxels of the unseen street become a map of ", end="")
    print(f"{' x '.join(map(str, answer['spatial_features'].shape[1:]))}; {milliseconds(answer)}\n")
    report(score, truth, points, head.threshold, options)
    print(f"all of it took {time.time() - began:.0f} s")


def scanned(seed, rays):
    """(coords [sample, z, y, x], feats, the cells of cars, points) of one street."""
    rng = np.random.default_rng([seed, 17])
    street = scans.Street(rng)
    points, labels = scans.scan(street, rays, rng)
    voxels, row = scans.voxelise(points, VOXEL, CORNER)
    coords = np.insert(voxels[:, ::-1], 0, 0, axis=1).astype(np.int32)
    height = scans.mean_of(points, row, len(voxels))[:, 2]
    return coords, scans.height_features(height), car_cells(street, points, labels), points


def car_cells(street, points, labels):
    """Cells [Y, X] whose middle lies in the rectangle of a car that the scan has met."""
    size = CELLS // STRIDE
    middle = (np.arange(size) + 0.5) * STRIDE * VOXEL[0] - scans.HALF
    cells = np.stack(np.meshgrid(middle, middle), -1).reshape(-1, 2)
    found = np.zeros(len(cells), bool)
    for car in street.cars:
        if (in_car(points[:, :2], car, margin=0.1) & (labels == scans.CAR)).sum() >= SEEN:
            found |= in_car(cells, car)
    return found.reshape(size, size)


def in_car(points, car, margin=0.0):
    """Which points [N, 2] lie in the rectangle of a car (x, y, degrees)."""
    x, y, degrees = car
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    own = (points - (x, y)) @ np.array([[c, -s], [s, c]])
    return (np.abs(own) < np.array(scans.CAR_SIZE) / 2 + margin).all(1)


class Head:
    """A 3x3 convolution of one channel, and the score above which a cell counts as a car's."""

    def __init__(self, matrix, bias):
        self.matrix, self.bias, self.threshold = matrix, bias, 0.5

    def score(self, found):
        return (around(found) @ self.matrix + self.bias).reshape(found.shape[1:])


def around(found):
    """The channels of each cell and of its 8 neighbours: [Y * X, 9 * C]."""
    channels, height, width = found.shape
    padded = np.pad(found, ((0, 0), (1, 1), (1, 1)))
    parts = [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    return np.concatenate(parts).reshape(9 * channels, -1).T.astype(np.float64)


def fit_head(maps, truths):
    """Ridge regression to one where a car is, and zero; the threshold is the best on these."""
    fit = Ridge(9 * maps[0].shape[0], 1)
    for found, truth in zip(maps, truths, strict=True):
        fit.add(around(found), truth.reshape(-1, 1).astype(np.float64))
    head = Head(*fit.solve(1e-3))
    scores = np.stack([head.score(found) for found in maps])
    levels = np.linspace(0.1, 0.8, 29)
    head.threshold = max(levels, key=lambda level: iou(scores > level, np.stack(truths)))
    return head


def iou(ours, truth):
    return (ours & truth).sum() / max(1, (ours | truth).sum())


def report(score, truth, points, threshold, options):
    ours = score > threshold
    share = truth.mean()  # what the answer "a car, everywhere" has as its intersection over union
    print(f"{'cells of cars':<34}{truth.sum():>7} of {truth.size}")
    print(f"{'of them found':<34}{(ours & truth).sum() / truth.sum():>7.1%}")
    print(f"{'of those found right':<34}{(ours & truth).sum() / max(1, ours.sum()):>7.1%}")
    print(f"{'intersection over union':<34}{iou(ours, truth):>7.3f}")
    print(f"{'the same of a car everywhere':<34}{share:>7.3f}\n")
    folder = pathlib.Path(options.output)
    folder.mkdir(parents=True, exist_ok=True)
    edges = pictures.enlarge(truth, PIXELS)
    panels = [
        pictures.enlarge(from_above(points, len(edges) // 2), 2),
        pictures.outline(pictures.enlarge(pictures.heat(score, 0.0, 1.0), PIXELS), edges),
        pictures.outline(pictures.enlarge(pictures.heat(ours, 0, 2.0), PIXELS), edges),
    ]
    pictures.write_png(folder / "bev.png", pictures.beside([panel[::-1] for panel in panels]))
    numbers = {"iou": iou(ours, truth), "everywhere": share}
    (folder / "bev.json").write_text(json.dumps({k: float(v) for k, v in numbers.items()}))
    print(f"picture: {folder / 'bev.png'}: the scan from above, the score, what counts as a car")


def from_above(points, size):
    """The highest point of each of size * size places."""
    at = ((points[:, :2] + scans.HALF) / (2 * scans.HALF) * size).astype(int).clip(0, size - 1)
    highest = np.full((size, size), scans.LOW)
    np.maximum.at(highest, (at[:, 1], at[:, 0]), points[:, 2])
    grey = np.where(highest > scans.LOW, 175 - 25 * highest.clip(0, 5), 250)
    return np.repeat((grey // 8 * 8)[..., None], 3, axis=2).astype(np.uint8)


if __name__ == "__main__":
    main()
