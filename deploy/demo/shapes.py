# SPDX-License-Identifier: Apache-2.0
"""shapes - solids as signed distance functions, and the voxels of their surfaces.

A shape is a function of points, `f(p [N,3] float64) -> [N] float64`: the distance to its
surface, negative inside.  A constructor returns such a function; combinators take and
return them, so that a scene is one expression:

    house = union(box(4, 3, 2), move(cone(1, 0, 2), 0, 0, 3))
    points, normals = surface_points(house, half=8, per_voxel=6, rng=rng)
    coords, truth = voxelise(points, normals)

The caller chooses the unit: metres in scene.py, voxels in families.py.  Some fields are not
true distances (an ellipsoid, an implicit function); they have the right sign and zero set,
and grow faster than a distance by a small factor at most.

Normals are gradients of the field, by differences in float64 with step 1e-4: exact to about
1e-6 degrees, except at edges.  They point outwards.
"""

import numpy as np

STEP = 1e-4  # of the differences: far above float64's rounding, far below any detail
TETRAHEDRON = np.array([[1, -1, -1], [-1, -1, 1], [-1, 1, -1], [1, 1, 1]], float)


def length(p):
    """Euclidean length along the last axis."""
    return np.sqrt(np.einsum("...i,...i->...", p, p))


# Solids, centred on the origin.


def sphere(r):
    return lambda p: length(p) - r


def ellipsoid(a, b, c):
    """Half axes a, b, c.  The field is a first-order estimate of the distance."""
    axes = np.array([a, b, c], float)

    def field(p):
        k0, k1 = length(p / axes), length(p / axes**2)
        return k0 * (k0 - 1) / np.maximum(k1, 1e-9)

    return field


def box(x, y, z, r=0.0):
    """Half sizes x, y, z, including the radius r of the rounded edges."""
    half = np.array([x, y, z], float) - r

    def field(p):
        q = np.abs(p) - half
        return length(np.maximum(q, 0)) + np.minimum(q.max(1), 0) - r

    return field


def cylinder(r, h):
    """Radius r, half height h, along z."""

    def field(p):
        q = np.stack([np.hypot(p[:, 0], p[:, 1]) - r, np.abs(p[:, 2]) - h], 1)
        return length(np.maximum(q, 0)) + np.minimum(q.max(1), 0)

    return field


def cone(r1, r2, h):
    """Radius r1 at z = -h and r2 at z = h, capped."""
    side, k1 = np.array([r2 - r1, 2 * h], float), np.array([r2, h], float)

    def field(p):
        q = np.stack([np.hypot(p[:, 0], p[:, 1]), p[:, 2]], 1)
        cap = q[:, 0] - np.minimum(q[:, 0], np.where(q[:, 1] < 0, r1, r2))
        ca = np.stack([cap, np.abs(q[:, 1]) - h], 1)
        t = np.clip((k1 - q) @ side / (side @ side), 0, 1)
        cb = q - k1 + side * t[:, None]
        inside = (cb[:, 0] < 0) & (ca[:, 1] < 0)
        far = np.sqrt(np.minimum((ca**2).sum(1), (cb**2).sum(1)))
        return np.where(inside, -far, far)

    return field


def torus(big, small):
    """A ring of radius `big` in the plane z = 0, with a tube of radius `small`."""
    return lambda p: np.hypot(np.hypot(p[:, 0], p[:, 1]) - big, p[:, 2]) - small


def halfspace(normal, offset=0.0):
    """The points below the plane normal . p = offset, where `normal` is scaled to length 1."""
    unit = np.asarray(normal, float) / np.linalg.norm(normal)
    return lambda p: p @ unit - offset


def capsule(a, b, ra, rb=None):
    """The points near the line from a to b: within ra at a, rb at b, and linear in between."""
    a, b, rb = np.asarray(a, float), np.asarray(b, float), ra if rb is None else rb
    along = b - a

    def field(p):
        t = np.clip((p - a) @ along / (along @ along), 0, 1)
        return length(p - a - t[:, None] * along) - (ra + (rb - ra) * t)

    return field


def prism(outline, h, axis=2):
    """A polygon [[u, v], ...] extruded by the half height h along `axis`; u and v are the other
    two axes."""
    corners = np.asarray(outline, float)
    plane = [i for i in range(3) if i != axis]

    def field(p):
        q = p[:, plane]
        far, sign = np.full(len(q), np.inf), np.ones(len(q))
        for one, two in zip(corners, np.roll(corners, 1, axis=0)):
            edge, w = two - one, q - one
            t = np.clip(w @ edge / (edge @ edge), 0, 1)
            far = np.minimum(far, ((w - t[:, None] * edge) ** 2).sum(1))
            above, below = q[:, 1] >= one[1], q[:, 1] < two[1]
            left = edge[0] * w[:, 1] > edge[1] * w[:, 0]
            sign[(above & below & left) | ~(above | below | left)] *= -1
        d = np.stack([sign * np.sqrt(far), np.abs(p[:, axis]) - h], 1)
        return length(np.maximum(d, 0)) + np.minimum(d.max(1), 0)

    return field


# Combinators.


def union(*shapes):
    return lambda p: np.minimum.reduce([f(p) for f in shapes])


def intersection(*shapes):
    return lambda p: np.maximum.reduce([f(p) for f in shapes])


def subtract(f, *cuts):
    return lambda p: np.maximum.reduce([f(p)] + [-g(p) for g in cuts])


def smooth_union(k, *shapes):
    """A union whose seams are rounded with about radius k."""

    def field(p):
        d = shapes[0](p)
        for f in shapes[1:]:
            e = f(p)
            h = np.maximum(k - np.abs(d - e), 0) / k
            d = np.minimum(d, e) - h * h * k / 4
        return d

    return field


def move(f, x, y, z):
    offset = np.array([x, y, z], float)
    return lambda p: f(p - offset)


def turn(f, rotation):
    """The shape, turned by rotation [3,3]."""
    return lambda p: f(p @ rotation)


def displace(f, waves, phases, height):
    """Adds height * mean of sin(p . wave + phase), with waves [K,3] in radians per unit, and
    divides the field by the largest slope that this can give it."""
    steep = 1 + height * np.linalg.norm(waves, axis=1).mean()
    return lambda p: (f(p) + height * np.sin(p @ waves.T + phases).mean(1)) / steep


def bounded(f, centre, radius):
    """The same shape, but f is computed only near the ball that contains it: a far point gets
    its distance to the ball, which is less than the true one."""
    centre, margin = np.asarray(centre, float), 0.2 * radius

    def field(p):
        d = length(p - centre) - radius
        near = d < margin
        if near.any():
            d[near] = f(p[near])
        return d

    return field


def about_z(degrees):
    c, s = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])


def random_rotation(rng):
    """A rotation [3,3], uniform over all rotations."""
    q, r = np.linalg.qr(rng.normal(size=(3, 3)))
    q *= np.sign(np.diag(r))
    return q * np.linalg.det(q)


# Surfaces.


def gradient(f, p):
    """The field's mean [N] over four points around each p, and its gradient [N,3] there."""
    values = np.stack([f(p + STEP * corner) for corner in TETRAHEDRON], 1)
    return values.mean(1), values @ TETRAHEDRON / (4 * STEP)


def normals_at(f, p):
    """Outward unit normals, [N,3]."""
    g = gradient(f, p)[1]
    return g / np.maximum(length(g), 1e-12)[:, None]


def surface_points(f, half, per_voxel, rng):
    """Points [N,3] spread evenly over f's surface within |x|, |y|, |z| < half, about
    per_voxel on each unit square, and their normals [N,3].

    They are drawn evenly in the layer |f| < 2, then moved along the gradient to the surface.
    """
    cell, layer = 4.0, 2.0
    axis = np.arange(-half + cell / 2, half, cell)
    centres = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3)
    reach = layer + cell * 0.87 * 1.5
    centres = centres[np.abs(f(centres)) < reach]
    if not len(centres):
        return np.zeros((0, 3)), np.zeros((0, 3))
    count = rng.poisson(per_voxel * cell**3 / (2 * layer), len(centres))
    p = np.repeat(centres, count, axis=0)
    p = p + rng.uniform(-cell / 2, cell / 2, p.shape)
    value, g = gradient(f, p)
    steep = np.maximum(length(g), 1e-6)
    keep = np.abs(value) / steep < layer
    p, value, g, steep = p[keep], value[keep], g[keep], steep[keep]
    for _ in range(3):
        p = p - (value / steep**2)[:, None] * g
        value, g = gradient(f, p)
        steep = np.maximum(length(g), 1e-6)
    keep = (np.abs(value) / steep < 0.02) & (np.abs(p).max(1) < half)
    return p[keep], g[keep] / steep[keep, None]


def march(f, origin, direction, reach, hit=1e-2, steps=160):
    """The distance [N] along each ray (origin [N,3], unit direction [N,3]) to the first surface
    of f; inf if there is none within `reach` (a number or [N])."""
    reach = np.broadcast_to(reach, len(origin))
    t, landed = np.zeros(len(origin)), np.full(len(origin), np.inf)
    live = np.arange(len(origin))
    for _ in range(steps):
        if not len(live):
            break
        d = f(origin[live] + t[live, None] * direction[live])
        done = d < hit
        landed[live[done]] = t[live[done]] + d[done]
        t[live] += np.maximum(d, hit)
        live = live[~done & (t[live] < reach[live])]
    return landed


def voxelise(points, normals, size=1.0):
    """The occupied voxels of points [N,3]: coords [M,3] int32 = floor(p / size), sorted, and
    their true normals [M,3] float32.

    A voxel's true normal is the mean of its points' normals.  If a thin sheet has both its sides
    in one voxel, they would cancel; so a normal that opposes (cos < -0.5) the normal nearest to
    the voxel's centre is reversed first.
    """
    cells = np.floor(points / size)
    off_centre = length(points / size - cells - 0.5)
    low = cells.min(0)
    span = (cells.max(0) - low + 1).astype(np.int64)
    index = (cells - low).astype(np.int64)
    key = (index[:, 0] * span[1] + index[:, 1]) * span[2] + index[:, 2]
    order = np.lexsort((off_centre, key))
    first = np.flatnonzero(np.r_[True, np.diff(key[order]) != 0])
    n = normals[order]
    nearest = np.repeat(n[first], np.diff(np.r_[first, len(n)]), axis=0)
    n = np.where((n * nearest).sum(1, keepdims=True) < -0.5, -n, n)
    mean = np.add.reduceat(n, first)
    mean /= np.maximum(length(mean), 1e-12)[:, None]
    return cells[order][first].astype(np.int32), mean.astype(np.float32)
