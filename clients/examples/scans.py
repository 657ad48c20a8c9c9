"""Streets that a scanner drives through: points, and what each of them is.

    street = Street(np.random.default_rng(7))
    points, labels = scan(street, rays=40000, rng=rng)

A street is made of the things of deploy/demo/scene.py, at random places: houses on both sides,
parked cars, trees, hedges, lamps, people.  As every thing is a function of its own, the thing
whose surface a ray meets is known, and that is the truth which the stories compare with.
Metres; x runs along the street, z up; the scanner drives along y = 0, 1.7 m above the road, and
turns three times.

SPDX-License-Identifier: Apache-2.0
"""

import argparse
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "deploy" / "demo"))

import scene
import shapes

CLASSES = ("ground", "building", "car", "vegetation", "street furniture")
GROUND, BUILDING, CAR, VEGETATION, FURNITURE = range(len(CLASSES))

REACH = 24.0  # metres: what is farther away is not seen
HALF = 19.2  # points within +-HALF along x and y are kept
LOW, HIGH = -0.6, 6.0  # and of these heights over the road
SCANNERS = np.array([[-8.0, 0.0, 1.7], [0.0, 0.0, 1.7], [8.0, 0.0, 1.7]])
NOISE = 0.01  # metres, along the ray
CAR_SIZE = (3.95, 1.7)  # of scene.car(), along its own x and y
_HIGHEST = 0.3  # the ground over the road, at most
_NEAR, _FAR = 5.6, -10.5  # the kerbs: y of the garden's side, y of the other side


def arguments(about):
    """The options of a story about streets; `about` begins with its title."""
    parser = argparse.ArgumentParser(description=about.split("\n")[0])
    parser.add_argument("-o", "--output", default="pictures", metavar="FOLDER", help="(pictures)")
    parser.add_argument("--scans", type=int, default=6, help="streets to fit the head on (6)")
    parser.add_argument("--rays", type=int, default=24000, help="rays of a scan (24000)")
    parser.add_argument("--seed", type=int, default=1, help="of the streets and the weights (1)")
    return parser.parse_args()


class Street:
    """One random street.

    things  [(class, function of points)]
    cars    [(x, y, degrees)]: where the cars stand
    """

    def __init__(self, rng):
        self.things = [(GROUND, shapes.move(scene.ground(), 0, _NEAR - scene.KERB, -scene.ROAD))]
        self.cars = []
        self._houses(rng)
        self._cars(rng)
        self._green(rng)
        self._furniture(rng)

    def _add(self, what, f, x, y, degrees=0.0, up=0.16):
        if degrees:
            f = shapes.turn(f, shapes.about_z(degrees))
        self.things.append((what, shapes.move(f, x, y, up)))

    def _houses(self, rng):
        for side, degrees in ((1, 0), (-1, 180)):
            x = -HALF + rng.uniform(0, 4)
            while x < HALF:
                wide, deep = rng.uniform(4.2, 5.4), rng.uniform(3.2, 4.0)
                y = (_NEAR + rng.uniform(5.5, 7.5)) if side > 0 else (_FAR - rng.uniform(3.5, 6))
                house = _house(wide, deep, rng.uniform(2.4, 3.4), rng.uniform(0.5, 0.9))
                self._add(BUILDING, house, x + wide / 2, y, degrees, up=0)
                x += wide + rng.uniform(2.0, 5.0)

    def _cars(self, rng):
        for y, degrees in ((_NEAR - 1.3, 0), (_FAR + 1.3, 180), (-5.2, 0)):
            x = -HALF + rng.uniform(0, 8)
            while x < HALF:
                turned = degrees + rng.uniform(-4, 4)
                self.cars.append((x, y, turned))
                self._add(CAR, scene.car(), x, y, turned, up=0)
                x += rng.uniform(5.2, 12.0)

    def _green(self, rng):
        for x in np.arange(-HALF, HALF, 9.0):
            self._add(VEGETATION, scene.tree(), x + rng.uniform(0, 5), _NEAR + rng.uniform(2.2, 3))
            y = _FAR - rng.uniform(0.6, 1.2)
            if rng.random() < 0.6:
                self._add(VEGETATION, scene.hedge(rng.uniform(3, 5)), x + 3, y, 90, up=0.5)

    def _furniture(self, rng):
        for x in np.arange(-HALF, HALF, 11.0):
            self._add(FURNITURE, scene.lamp(), x + rng.uniform(0, 8), _NEAR + 0.5)
            at = x + rng.uniform(0, 8)
            self._add(FURNITURE, scene.person(), at, _NEAR + rng.uniform(0.7, 1.3))
            self._add(FURNITURE, scene.fence(12), x + rng.uniform(0, 4), _NEAR + 1.5)


def scan(street, rays, rng):
    """What a rotating scanner sees on its way: points [N, 3] and their classes [N]."""
    turns = [_turn(street, rays // len(SCANNERS), rng, scanner) for scanner in SCANNERS]
    return tuple(np.concatenate(parts) for parts in zip(*turns, strict=True))


def _turn(street, rays, rng, scanner):
    direction = _directions(rays)
    distance, label = np.full(len(direction), REACH), np.full(len(direction), -1)
    for what, f in sorted(street.things, key=lambda thing: _away(thing[1], scanner)):
        if what == GROUND:
            enter, leave = _below(_HIGHEST, scanner, direction)
        else:
            enter, leave = _in_ball(_ball(f), scanner, direction)
        leave = np.minimum(leave, distance)
        rows = np.flatnonzero(enter < leave)
        begin = scanner + enter[rows, None] * direction[rows]
        reach = leave[rows] - enter[rows]
        found = enter[rows] + shapes.march(f, begin, direction[rows], reach, hit=4e-3, steps=60)
        nearer = found < distance[rows]
        distance[rows[nearer]], label[rows[nearer]] = found[nearer], what
    seen = label >= 0
    distance = distance[seen] + rng.normal(0, NOISE, seen.sum())
    points = scanner + distance[:, None] * direction[seen]
    inside = (np.abs(points[:, :2]) < HALF).all(1) & (points[:, 2] > LOW) & (points[:, 2] < HIGH)
    return points[inside], label[seen][inside]


def _house(wide, deep, wall, slope):
    """Walls, a roof along x, windows and a door towards -y: like scene.house(), but of planes,
    which rays reach in a tenth of the time."""
    hx, hy = wide / 2, deep / 2
    body = shapes.box(hx, hy, wall / 2 + 0.2)
    cuts = [shapes.move(shapes.box(0.5, 0.15, 0.55), x, -hy, 0) for x in (-hx / 2, hx / 2)]
    cuts.append(shapes.move(shapes.box(0.45, 0.15, 1.1), 0, -hy, 1.05 - wall / 2))
    roof = shapes.intersection(
        shapes.halfspace([0, slope, 1], wall / 2 + slope * hy),
        shapes.halfspace([0, -slope, 1], wall / 2 + slope * hy),
        shapes.move(shapes.box(hx + 0.3, hy + 0.4, 2), 0, 0, wall / 2 + 1.8),
    )
    chimney = shapes.move(shapes.box(0.25, 0.25, 0.8), hx / 2, 0.4, wall / 2 + slope * hy)
    whole = shapes.union(shapes.subtract(body, *cuts), roof, chimney)
    radius = np.hypot(np.hypot(hx + 0.4, hy + 0.5), wall / 2 + slope * hy + 0.8)
    return shapes.bounded(shapes.move(whole, 0, 0, wall / 2), [0, 0, wall / 2], radius)


def _ball(f):
    """(centre, radius) of a ball that holds a thing: seen from far away, things of scene.py are
    the balls that they are bounded by."""
    far = np.eye(3) * 1e6
    ahead, behind = f(far), f(-far)
    return (behind - ahead) / 2, float(1e6 - ((ahead + behind) / 2).min())


def _away(f, scanner):
    """How far a thing is from the scanner; what hides others comes first."""
    return float(f(scanner[None])[0])


def _in_ball(ball, origin, direction):
    """Where rays enter and leave a ball; enter > leave where they miss it."""
    centre, radius = ball
    along = direction @ (centre - origin)
    half = radius**2 - ((centre - origin) ** 2).sum() + along**2
    half = np.where(half > 0, np.sqrt(np.abs(half)), -1.0)
    return np.maximum(along - half, 0), np.where(half > 0, along + half, -1)


def _below(height, origin, direction):
    """Where rays are below a height, and how far they reach at most."""
    down = np.minimum(direction[:, 2], -1e-9)
    return (height - origin[2]) / down, np.full(len(direction), REACH)


def voxelise(points, size, low):
    """Occupied voxels: (voxels int32 [M, 3] ascending, for each point its voxel's row).

    size, low  of a voxel and of the grid's corner, along x, y, z
    """
    cells = np.floor((points - np.asarray(low)) / np.asarray(size)).astype(np.int32)
    voxels, row = np.unique(cells, axis=0, return_inverse=True)
    return voxels, row.reshape(-1)


def majority(labels, row, count):
    """The class that most points of each voxel have."""
    votes = np.zeros((count, len(CLASSES)), np.int64)
    np.add.at(votes, (row, labels), 1)
    return votes.argmax(1)


def mean_of(values, row, count):
    """The mean of the points' values in each voxel."""
    sums = np.zeros((count, values.shape[1]))
    np.add.at(sums, row, values)
    return sums / np.bincount(row, minlength=count)[:, None]


def height_features(height):
    """What networks are told of a voxel [N, 8]: 1, the height of its points, and waves of it."""
    waves = [wave(height * k) for k in (1.0, 2.0, 4.0) for wave in (np.sin, np.cos)]
    return np.stack([np.ones(len(height)), height / 2, *waves], 1).astype(np.float32)


def _directions(rays):
    """Unit vectors on a grid of azimuth and elevation, -38 to +28 degrees: dense near the
    horizon, where things are far away."""
    across = int(np.sqrt(rays * 5.5))
    down = max(1, rays // across)
    azimuth = np.arange(across) * (2 * np.pi / across)
    spread = np.linspace(-1, 1, down)
    elevation = np.radians(-5 + 33 * np.sign(spread) * np.abs(spread) ** 1.3)
    a, e = np.meshgrid(azimuth, elevation, indexing="ij")
    return np.stack([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)], -1).reshape(-1, 3)
