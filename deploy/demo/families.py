# SPDX-License-Identifier: Apache-2.0
"""families - the random shapes that the network learns from: voxels with their true normals.

    coords, truth = training_cloud(seed)       # the same seed gives the same cloud

The unit is the voxel.  A cloud is a window of 32 to 80 voxels a side on a shape of one of
six kinds (KINDS), turned at random and seen as by a scanner: sparse or dense points, noise
that thickens the surface, and in a third of the clouds only what one or two sensors can
see.  It uses neither the held-out families of heldout.py nor the scene of scene.py.
"""

import numpy as np

import shapes as s


def solid(rng, size):
    """One random solid of about the given size; one in nine is thin."""
    u = lambda low=0.35, high=1.0: size * rng.uniform(low, high)
    thin = rng.uniform(0.4, 2.5)
    kind = rng.integers(9)
    if kind == 0:
        return s.sphere(u())
    if kind == 1:
        return s.ellipsoid(u(), u(), u())
    if kind == 2:
        return s.box(u(), u(), u())
    if kind == 3:
        x, y, z = u(), u(), u()
        return s.box(x, y, z, min(x, y, z) * rng.uniform(0.2, 0.8))
    if kind == 4:
        return s.cylinder(u(), u())
    if kind == 5:
        return s.cone(u(0.5), u() if rng.random() < 0.5 else 0.0, u())
    if kind == 6:
        return s.torus(u(0.5), max(1.0, u(0.1, 0.4)))
    if kind == 7:
        return s.prism(polygon(rng, size), u(0.3))
    return s.cylinder(thin, u(0.6)) if rng.random() < 0.5 else s.box(u(), u(), thin)


def polygon(rng, size):
    """A star-shaped outline of 3 to 6 corners."""
    n = rng.integers(3, 7)
    angle = (np.arange(n) + rng.uniform(-0.3, 0.3, n)) * 2 * np.pi / n
    radius = size * rng.uniform(0.4, 1.0, n)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)


def posed(rng, f, half, spread):
    """The shape, turned at random (a third of them only about z, by right angles) and moved by
    at most spread * half."""
    if rng.random() < 0.33:
        turned = s.turn(f, np.round(s.about_z(90 * rng.integers(4))))
    else:
        turned = s.turn(f, s.random_rotation(rng))
    return s.move(turned, *rng.uniform(-spread, spread, 3) * half)


def bumpy(rng, f, wavelength):
    """The shape with waves on its surface, a few voxels high."""
    count = rng.integers(3, 9)
    direction = rng.normal(size=(count, 3))
    direction /= s.length(direction)[:, None]
    waves = direction * 2 * np.pi / (wavelength * rng.uniform(0.6, 2.0, (count, 1)))
    height = wavelength * rng.uniform(0.1, 0.45)
    return s.displace(f, waves, rng.uniform(0, 6.3, count), height)


def detailed(rng, f, half):
    """The shape with one to eight small boxes and balls added to its surface or cut from it:
    sills, bars, steps, gaps."""
    at = rng.uniform(-0.8, 0.8, (rng.integers(1, 9), 3)) * half
    for _ in range(4):
        value, g = s.gradient(f, at)
        at = at - (value / np.maximum((g * g).sum(1), 1e-3))[:, None] * g
    added, cut = [], []
    for place in at:
        size = rng.uniform(0.6, 5, 3)
        bit = s.box(*size) if rng.random() < 0.8 else s.sphere(size[0])
        (added if rng.random() < 0.6 else cut).append(s.move(bit, *place))
    return s.union(s.subtract(f, *cut), *added)


def kind_single(rng, half):
    return posed(rng, solid(rng, half), half, 0.3)


def kind_clutter(rng, half):
    """Two to six solids: united, joined smoothly, or some cut from the others."""
    parts = [
        posed(rng, solid(rng, half * rng.uniform(0.3, 0.8)), half, 0.7)
        for _ in range(rng.integers(2, 7))
    ]
    mix = rng.random()
    if mix < 0.45:
        return s.union(*parts)
    if mix < 0.75:
        return s.smooth_union(rng.uniform(2, 10), *parts)
    return s.subtract(
        s.union(*parts[: len(parts) // 2 + 1]), *parts[len(parts) // 2 + 1 :]
    )


def kind_bumpy(rng, half):
    return bumpy(rng, posed(rng, solid(rng, half), half, 0.3), rng.uniform(8, 30))


def kind_terrain(rng, half):
    """A rough plane of any slope, sometimes with a solid in it."""
    ground = s.halfspace(rng.normal(size=3) if rng.random() < 0.6 else [0, 0, 1])
    ground = bumpy(rng, ground, rng.uniform(10, 50))
    return (
        ground
        if rng.random() < 0.5
        else s.union(ground, posed(rng, solid(rng, half * 0.6), half, 0.4))
    )


def kind_planes(rng, half):
    """Flat walls that meet at corners, seen from inside or from outside."""
    walls = [
        s.halfspace(rng.normal(size=3), rng.uniform(-0.5, 0.7) * half)
        for _ in range(rng.integers(1, 5))
    ]
    return (s.union if rng.random() < 0.5 else s.intersection)(*walls)


def kind_site(rng, half):
    """Things on a floor beside walls: boxes, poles, panels, roofs, round things."""
    floor = rng.uniform(-0.8, -0.2) * half
    parts = [s.halfspace([0, 0, 1], floor)]
    for _ in range(rng.integers(0, 3)):
        wall = s.box(half * 2, rng.uniform(0.6, 4), half * 2)
        parts.append(
            s.move(
                s.turn(wall, s.about_z(90 * rng.integers(2))),
                *rng.uniform(-0.9, 0.9, 3) * half
            )
        )
    for _ in range(rng.integers(2, 9)):
        size, pick = half * rng.uniform(0.15, 0.6), rng.integers(6)
        tall = size * rng.uniform(0.5, 1.5)
        thing = [
            lambda: s.box(size, size * rng.uniform(0.3, 1), tall),
            lambda: s.cylinder(rng.uniform(0.6, 4), tall * 1.5),
            lambda: s.box(size, rng.uniform(0.5, 1.5), tall),
            lambda: s.prism([[-size, 0], [size, 0], [0, tall]], size, axis=1),
            lambda: s.sphere(size),
            lambda: bumpy(rng, s.ellipsoid(size, size, tall), rng.uniform(6, 15)),
        ]
        x, y = rng.uniform(-0.9, 0.9, 2) * half
        lift = tall * rng.uniform(0.5, 1.2)
        parts.append(
            s.move(
                s.turn(thing[pick](), s.about_z(rng.uniform(0, 360))), x, y, floor + lift
            )
        )
    f = s.union(*parts)
    if rng.random() < 0.6:
        f = detailed(rng, f, half)
    turn = rng.random()
    return (
        f
        if turn < 0.4
        else (
            s.turn(f, s.about_z(rng.uniform(0, 360)))
            if turn < 0.7
            else s.turn(f, s.random_rotation(rng))
        )
    )


KINDS = (kind_single, kind_clutter, kind_bumpy, kind_terrain, kind_planes, kind_site)
SHARES = np.array([0.15, 0.22, 0.15, 0.1, 0.08, 0.3])


def seen_from(f, points, normals, sensors, half):
    """Which points a sensor of sensors [K,3] sees: they face it, with nothing in between."""
    seen = np.zeros(len(points), bool)
    for sensor in sensors:
        ray = sensor - points
        far = np.maximum(s.length(ray), 1e-6)
        ray /= far[:, None]
        facing = np.flatnonzero(((normals * ray).sum(1) > 0.05) & ~seen)
        start = points[facing] + normals[facing]
        distance = s.march(f, start, ray[facing], np.minimum(far[facing], 4 * half))
        seen[facing[~np.isfinite(distance)]] = True
    return seen


def training_cloud(seed):
    """coords [M,3] int16 around the origin and truth [M,3] float16; M is 300 to about 40,000."""
    rng = np.random.default_rng(seed)
    while True:
        half = float(rng.integers(4, 11)) * 4
        f = KINDS[rng.choice(len(KINDS), p=SHARES)](rng, half)
        f = s.move(f, *rng.uniform(0, 1, 3))  # a random offset to the grid
        per_voxel = np.exp(rng.uniform(np.log(1.2), np.log(9)))
        points, normals = s.surface_points(f, half, per_voxel, rng)
        if len(points) and rng.random() < 0.35:
            sensors = rng.normal(size=(rng.integers(1, 3), 3))
            sensors *= half * rng.uniform(0.5, 2.5) / s.length(sensors)[:, None]
            keep = seen_from(f, points, normals, sensors, half)
            points, normals = points[keep], normals[keep]
        if len(points) < 500:
            continue
        if rng.random() < 0.6:
            points = points + rng.normal(size=points.shape) * rng.uniform(0, 0.55)
        coords, truth = s.voxelise(points, normals)
        if len(coords) >= 300:
            return coords.astype(np.int16), truth.astype(np.float16)
