# SPDX-License-Identifier: Apache-2.0
"""scene - a street corner to scan: a house, its garden, a car, a tree, a person with a dog.

    f = scene.street()            # one shape of shapes.py, in metres, z up
    scene.SENSORS                 # where the scanner stood, [K,4]
    scene.LOW, scene.HIGH         # the box of the scan that is kept

x runs along the street, y from the road into the garden; the garden's lawn is z = 0.
A function makes each thing, at an origin of its own, and wraps it in `bounded`, so that a
ray computes distances only to things that it passes.
"""

import numpy as np

import shapes as s

LOW, HIGH = np.array([-5.3, -4.9, -0.5]), np.array([5.0, 5.3, 7.0])
ROAD, KERB = -0.16, -2.35  # the road's height z; the pavement's edge y

# Rotations that turn a thing's z axis to x, or to y.
ALONG_X, ALONG_Y = np.eye(3)[[2, 0, 1]], np.eye(3)[[0, 2, 1]]

# Where the scanner stood (x, y, z in metres) and the degrees between its rays: on tripods
# in the street and in the garden, and looking down from windows and roofs around.
SENSORS = np.array(
    [
        [-6.2, -5.6, 1.7, 0.3],
        [-1.9, -6.4, 1.8, 0.3],
        [3.2, -5.0, 1.7, 0.3],
        [-2.6, -1.9, 1.7, 0.4],
        [2.0, 0.6, 1.7, 0.5],
        [1.6, 5.1, 1.8, 0.4],
        [-5.2, -0.2, 1.7, 0.4],
        [6.4, 0.8, 1.7, 0.3],
        [-3.5, -9.0, 6.5, 0.12],
        [6.5, -6.0, 6.5, 0.12],
        [6.0, 7.0, 7.5, 0.12],
        [-7.5, 3.0, 7.5, 0.12],
    ]
)


def ground():
    """Road, kerb, pavement, lawn: the lawn a little uneven."""
    rng = np.random.default_rng(5)
    lawn = s.displace(
        s.halfspace([0, 0, 1], 0),
        rng.normal(size=(5, 3)) * [1.6, 1.6, 0],
        rng.uniform(0, 6, 5),
        0.05,
    )
    paved = s.move(s.box(40, 0.62, 0.5, 0.02), 0, KERB + 0.62, -0.46)
    path = s.move(s.box(0.5, 1.4, 0.5, 0.02), -1.0, 0.0, -0.46)
    road = s.halfspace([0, 0, 1], ROAD)
    garden = s.intersection(lawn, s.halfspace([0, -1, 0], -KERB))
    return s.union(road, garden, paved, path)


def house(x=4.7, y=3.6, wall=2.7, ridge=1.75):
    """A house of x by y metres, with walls of 2.7 m, a roof along x, and its front towards -y."""
    hx, hy = x / 2, y / 2
    outline = [[-hy, -0.3], [hy, -0.3], [hy, wall], [0, wall + ridge], [-hy, wall]]
    slope, over = ridge / hy, 0.42
    eave, low = hy + over, wall - slope * over
    top = [
        [-eave, low],
        [0, wall + ridge],
        [eave, low],
        [eave, low + 0.2],
        [0, wall + ridge + 0.22],
        [-eave, low + 0.2],
    ]
    body = s.prism(outline, hx, axis=0)
    cuts, bars = [], []
    for cx in (-1.45, 1.45):  # two windows of the front: recessed, with a cross of bars
        cuts.append(s.move(s.box(0.55, 0.16, 0.58), cx, -hy, 1.5))
        bars += [
            s.move(s.box(0.035, 0.05, 0.58), cx, -hy + 0.1, 1.5),
            s.move(s.box(0.55, 0.05, 0.035), cx, -hy + 0.1, 1.55),
            s.move(s.box(0.68, 0.12, 0.05), cx, -hy - 0.03, 0.88),
        ]
    for cy in (-0.75, 0.75):  # two windows of the side; a round one in the gable follows
        cuts.append(s.move(s.box(0.16, 0.42, 0.55), hx, cy, 1.5))
        bars += [
            s.move(s.box(0.05, 0.035, 0.55), hx - 0.1, cy, 1.5),
            s.move(s.box(0.12, 0.54, 0.05), hx + 0.03, cy, 0.91),
        ]
    cuts.append(s.move(s.turn(s.cylinder(0.36, 0.16), ALONG_X), hx, 0, 3.35))
    door = s.move(s.box(0.48, 0.2, 1.05), 0, -hy, 1.05)
    canopy = s.move(
        s.prism([[-0.45, 0], [0.1, 0.28], [0.1, 0.36], [-0.45, 0.09]], 0.8, axis=0),
        0,
        -hy - 0.1,
        2.25,
    )
    knob = s.move(s.sphere(0.06), 0.33, -hy + 0.16, 1.0)
    steps = s.union(
        s.move(s.box(0.75, 0.45, 0.09), 0, -hy - 0.4, 0.05),
        s.move(s.box(0.6, 0.3, 0.16), 0, -hy - 0.2, 0.1),
    )
    chimney = s.union(
        s.move(s.box(0.26, 0.26, 0.8), -1.25, 0.55, wall + 1.5),
        s.move(s.box(0.33, 0.33, 0.07), -1.25, 0.55, wall + 2.28),
    )
    whole = s.union(
        s.subtract(body, door, *cuts),
        *bars,
        canopy,
        knob,
        steps,
        chimney,
        s.prism(top, hx + 0.35, axis=0)
    )
    return s.bounded(whole, [0, 0, 2.0], 4.6)


def car():
    """A small saloon, 3.9 metres along x, its nose at -x; its wheels stand on z = 0."""
    side = [
        [-1.95, 0.30],
        [1.93, 0.30],
        [1.97, 0.72],
        [1.85, 0.92],
        [1.2, 0.97],
        [-0.75, 0.95],
        [-1.75, 0.80],
        [-1.96, 0.62],
    ]
    glass = [[1.52, 0.9], [0.95, 1.42], [-0.25, 1.44], [-1.0, 0.9]]
    body = round_off(s.prism(side, 0.76, axis=1), 0.08)
    cabin = round_off(s.prism(glass, 0.60, axis=1), 0.09)
    whole = s.smooth_union(0.08, body, cabin)
    panes = [[1.18, 1.0], [0.82, 1.36], [0.30, 1.37], [0.30, 1.0]], [
        [0.18, 1.0],
        [0.18, 1.37],
        [-0.22, 1.37],
        [-0.70, 1.0],
    ]
    cuts = [
        s.move(s.prism(pane, 0.07, axis=1), 0, y, 0)
        for pane in panes
        for y in (-0.70, 0.70)
    ]
    wheels = []
    for x in (-1.22, 1.22):
        cuts.append(s.move(s.turn(s.cylinder(0.46, 1.0), ALONG_Y), x, 0, 0.33))
        for y in (-0.76, 0.76):
            tyre = s.subtract(
                round_off(s.cylinder(0.29, 0.06), 0.04),
                s.move(s.cylinder(0.19, 0.07), 0, 0, 0.11),
                s.move(s.cylinder(0.19, 0.07), 0, 0, -0.11),
            )
            wheels.append(s.move(s.turn(tyre, ALONG_Y), x, y, 0.33))
    core = s.move(s.box(1.7, 0.56, 0.22), 0, 0, 0.55)  # visible behind the wheels
    parts = [s.move(s.ellipsoid(0.07, 0.17, 0.11), -1.93, y, 0.68) for y in (-0.6, 0.6)]
    parts += [s.move(s.box(0.05, 0.11, 0.07, 0.03), -0.72, y, 1.0) for y in (-0.92, 0.92)]
    parts += [s.move(s.box(0.08, 0.8, 0.08, 0.04), x, 0, 0.4) for x in (-1.98, 1.98)]
    return s.bounded(
        s.union(s.subtract(whole, *cuts), core, *wheels, *parts), [0, 0, 0.7], 2.3
    )


def round_off(f, r):
    """The shape, grown by r, with round edges."""
    return lambda p: f(p) - r


def tree():
    """A broad tree, 5 metres high."""
    rng = np.random.default_rng(11)
    wood = [
        s.capsule([0, 0, -0.3], [0.05, 0.02, 1.9], 0.25, 0.16),
        s.capsule([0, 0, 1.4], [0.75, 0.2, 2.9], 0.12, 0.06),
        s.capsule([0, 0, 1.6], [-0.65, -0.3, 2.9], 0.11, 0.06),
        s.capsule([0, 0, 1.8], [0.1, 0.5, 3.3], 0.11, 0.06),
    ]
    roots = [
        s.capsule([0, 0, 0.3], [0.5 * np.cos(a), 0.5 * np.sin(a), -0.05], 0.14, 0.06)
        for a in (0.3, 1.9, 3.4, 5.0)
    ]
    tufts = []
    for i in range(11):
        angle, out = i * 2.4, 0.35 + 0.65 * (i % 3) / 2
        centre = [
            1.05 * out * np.cos(angle),
            1.05 * out * np.sin(angle),
            2.75 + 0.165 * i - 0.3 * out,
        ]
        tufts.append(s.move(s.sphere(rng.uniform(0.62, 0.85)), *centre))
    crown = s.displace(
        s.smooth_union(0.3, *tufts),
        rng.normal(size=(7, 3)) * 5,
        rng.uniform(0, 6, 7),
        0.35,
    )
    return s.bounded(
        s.union(s.smooth_union(0.12, *wood, *roots), crown), [0, 0, 2.5], 3.0
    )


def lamp():
    """A street lamp, 4.4 metres high, its arm towards -y."""
    arm = [[0, 0, 4.0], [0, -0.12, 4.28], [0, -0.42, 4.42], [0, -0.95, 4.42]]
    head = s.move(s.ellipsoid(0.15, 0.42, 0.11), 0, -1.1, 4.40)
    bars = [s.capsule(a, b, 0.055) for a, b in zip(arm[:-1], arm[1:])]
    post = [
        s.capsule([0, 0, -0.2], [0, 0, 4.0], 0.085, 0.055),
        s.move(s.cone(0.19, 0.11, 0.3), 0, 0, 0.25),
    ]
    return s.bounded(s.union(*post, *bars, head), [0, -0.5, 2.2], 2.6)


def person():
    """A person of 1.78 metres, walking towards +x, with a leash in one hand."""
    limbs = [
        s.capsule([0.02, 0.10, 0.92], [0.24, 0.10, 0.50], 0.10, 0.07),
        s.capsule([0.24, 0.10, 0.50], [0.34, 0.10, 0.08], 0.07, 0.055),
        s.capsule([-0.02, -0.10, 0.92], [-0.10, -0.10, 0.50], 0.10, 0.07),
        s.capsule([-0.10, -0.10, 0.50], [-0.40, -0.10, 0.14], 0.07, 0.055),
        s.capsule([0.02, 0.24, 1.40], [-0.18, 0.30, 1.13], 0.065, 0.05),
        s.capsule([-0.18, 0.30, 1.13], [-0.06, 0.32, 0.90], 0.05, 0.045),
        s.capsule([0.02, -0.24, 1.40], [0.10, -0.29, 1.13], 0.065, 0.05),
        s.capsule([0.10, -0.29, 1.13], [0.36, -0.27, 1.06], 0.05, 0.045),
    ]
    feet = [
        s.capsule([0.33, 0.10, 0.05], [0.52, 0.11, 0.06], 0.06, 0.045),
        s.capsule([-0.42, -0.10, 0.13], [-0.30, -0.10, 0.02], 0.055, 0.045),
    ]
    trunk = s.smooth_union(
        0.12,
        s.move(s.ellipsoid(0.15, 0.20, 0.22), 0, 0, 1.0),
        s.move(s.ellipsoid(0.15, 0.24, 0.30), 0.02, 0, 1.28),
        s.capsule([0.03, 0, 1.48], [0.05, 0, 1.62], 0.065),
    )
    head = s.smooth_union(
        0.05,
        s.move(s.ellipsoid(0.115, 0.095, 0.135), 0.06, 0, 1.68),
        s.move(s.sphere(0.035), 0.18, 0, 1.66),
    )
    hat = s.union(
        s.move(s.cylinder(0.19, 0.02), 0.05, 0, 1.76),
        s.move(s.cylinder(0.11, 0.08), 0.05, 0, 1.84),
    )
    whole = s.union(s.smooth_union(0.06, trunk, *limbs, *feet), head, hat)
    return s.bounded(whole, [0, 0, 0.95], 1.1)


def dog():
    """A dog, half a metre high, facing +x."""
    legs = [
        s.capsule([x, y, 0.36], [x + dx, y, 0.04], 0.06, 0.04)
        for x, y, dx in (
            (0.24, 0.09, 0.12),
            (0.24, -0.09, -0.06),
            (-0.26, 0.09, -0.12),
            (-0.26, -0.09, 0.08),
        )
    ]
    parts = [
        s.capsule([-0.25, 0, 0.44], [0.24, 0, 0.46], 0.12, 0.14),
        s.capsule([0.28, 0, 0.52], [0.40, 0, 0.68], 0.09, 0.08),
        s.capsule([0.42, 0, 0.70], [0.60, 0, 0.66], 0.10, 0.05),
        s.capsule([-0.33, 0, 0.50], [-0.52, 0, 0.76], 0.05, 0.03),
    ]
    ears = [
        s.capsule([0.38, y, 0.76], [0.34, y * 1.4, 0.88], 0.045, 0.03)
        for y in (-0.07, 0.07)
    ]
    return s.bounded(s.smooth_union(0.06, *parts, *legs, *ears), [0, 0, 0.45], 0.7)


def fence(count, gap=0.29):
    """count pickets along +x from the origin, one every gap metres, on two rails."""
    long = (count - 1) * gap
    picket = s.prism(
        [[-0.065, -0.2], [0.065, -0.2], [0.065, 0.82], [0, 0.95], [-0.065, 0.82]],
        0.035,
        axis=1,
    )

    def pickets(p):
        q = p.copy()
        q[:, 0] -= np.clip(np.round(q[:, 0] / gap), 0, count - 1) * gap
        return picket(q)

    rails = [
        s.move(s.box(long / 2 + 0.06, 0.03, 0.045), long / 2, 0.05, z)
        for z in (0.28, 0.65)
    ]
    posts = [
        s.move(s.box(0.08, 0.08, 0.55, 0.02), x, 0.02, 0.52)
        for x in (-gap * 0.7, long + gap * 0.7)
    ]
    return s.bounded(s.union(pickets, *rails, *posts), [long / 2, 0, 0.4], long / 2 + 0.8)


def bench():
    """A garden bench, 1.4 metres along x, its back towards +y."""
    slats = [s.move(s.box(0.7, 0.055, 0.025), 0, y, 0.45) for y in (-0.18, -0.04, 0.1)]
    back = [
        s.move(s.box(0.7, 0.025, 0.06), 0, 0.24 + z * 0.12, 0.45 + z) for z in (0.2, 0.38)
    ]
    sides = [
        s.move(
            s.union(
                s.box(0.04, 0.22, 0.03),
                s.move(s.box(0.04, 0.03, 0.25), 0, -0.19, -0.22),
                s.move(s.box(0.04, 0.03, 0.48), 0, 0.2, 0.02),
            ),
            x,
            0,
            0.42,
        )
        for x in (-0.55, 0.55)
    ]
    return s.bounded(s.union(*slats, *back, *sides), [0, 0, 0.5], 0.95)


def hydrant():
    parts = [
        s.move(s.cylinder(0.16, 0.05), 0, 0, 0.05),
        s.move(s.cylinder(0.11, 0.3), 0, 0, 0.3),
        s.move(s.sphere(0.13), 0, 0, 0.6),
        s.move(s.cylinder(0.04, 0.06), 0, 0, 0.76),
        s.move(s.turn(s.cylinder(0.06, 0.2), ALONG_Y), 0, 0, 0.45),
    ]
    return s.bounded(s.union(*parts), [0, 0, 0.4], 0.5)


def letterbox():
    parts = [
        s.move(s.box(0.045, 0.045, 0.6), 0, 0, 0.5),
        s.move(s.box(0.13, 0.22, 0.10), 0, 0, 1.12),
        s.move(s.turn(s.cylinder(0.13, 0.22), ALONG_Y), 0, 0, 1.22),
    ]
    return s.bounded(s.union(*parts), [0, 0, 0.7], 0.75)


def hedge(long):
    """A clipped hedge along y, with an uneven surface."""
    rng = np.random.default_rng(3)
    leaves = s.displace(
        s.box(0.3, long / 2, 0.62, 0.15),
        rng.normal(size=(6, 3)) * 5,
        rng.uniform(0, 6, 6),
        0.15,
    )
    return s.bounded(leaves, [0, 0, 0], long / 2 + 0.9)


def street():
    """The whole scene as one shape."""
    return s.union(
        ground(),
        s.move(house(), -1.95, 3.1, 0),
        s.move(s.turn(car(), s.about_z(-2)), -2.6, -3.75, ROAD),
        s.move(tree(), 3.1, 2.6, 0),
        s.move(lamp(), 4.1, -2.0, 0.04),
        s.move(person(), -0.6, -1.85, 0.04),
        s.move(dog(), 0.7, -1.85, 0.04),
        s.bounded(
            s.capsule([-0.23, -2.12, 1.10], [1.0, -1.85, 0.62], 0.018),
            [0.4, -2.0, 0.85],
            0.9,
        ),
        s.move(fence(12), -5.1, -0.95, 0),
        s.move(fence(16), -0.1, -0.95, 0),
        s.move(bench(), 2.2, 0.75, 0),
        s.move(hydrant(), 3.3, -1.6, 0.04),
        s.move(letterbox(), -1.9, -1.6, 0.04),
        s.move(hedge(5.0), 4.45, 2.2, 0.45),
    )
