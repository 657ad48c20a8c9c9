# SPDX-License-Identifier: Apache-2.0
"""What a network.json means, in float64 on dense boxes: the definition that answers are held to.

Written from the tables of engine/README.md, and from nothing else of the tree.  A set of voxels is,
for each sample, a dense box of booleans; a tensor is the same box with channels.  A kernel offset
moves an index into a box, so there are no keys, hash tables, maps or rows here; an output's rows
are read off its box at the very end.  A box begins anywhere, also at the ends of an axis."""
import itertools
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

AXIS_MIN, AXIS_MAX = -131072, 131071
NOWHERE = 1 << 40   # a position outside of every box


@dataclass(eq=False)
class Set:
    """boxes   {sample: (first voxel, booleans [X, Y, Z])}
    shape   spconv's, or None
    stride  how many voxels of the request one step is"""
    boxes: dict
    shape: tuple
    stride: tuple

    def positions(self, sample):
        """The coordinates along each axis of the sample's box."""
        first, mask = self.boxes[sample]
        return [np.arange(a, a + n) for a, n in zip(first, mask.shape)]

    def rows(self):
        """Voxels [rows, 4], ascending by (sample, x, y, z)."""
        found = [np.insert(np.argwhere(mask) + first, 0, sample, axis=1)
                 for sample, (first, mask) in sorted(self.boxes.items())]
        return np.concatenate(found) if found else np.zeros((0, 4), int)


@dataclass(eq=False)
class Tensor:
    """values {sample: [X, Y, Z, C]} on a set, 0 where it has no voxel."""
    on: Set
    values: dict

    def channels(self):
        return next(iter(self.values.values())).shape[-1]

    def at(self, coords):
        """Rows [n, C] of voxels [n, 4]."""
        return np.array([self.values[s][tuple(np.subtract(p, self.on.boxes[s][0]))]
                         for s, *p in coords]).reshape(len(coords), self.channels())


def tensor_on(where, values):
    """A tensor of the set with values {sample: box}, made 0 where there is no voxel."""
    return Tensor(where, {s: np.where(where.boxes[s][1][..., None], v, 0.0)
                          for s, v in values.items()})


def each(x, function):
    return tensor_on(x.on, {s: function(v) for s, v in x.values.items()})


def request(coords, feats, shape):
    boxes, values = {}, {}
    for sample in np.unique(coords[:, 0]).tolist():
        mine = coords[:, 0] == sample
        at = coords[mine, 1:].astype(int)
        first = at.min(axis=0)
        index = tuple((at - first).T)
        mask = np.zeros(at.max(axis=0) - first + 1, bool)
        mask[index] = True
        box = np.zeros((*mask.shape, feats.shape[1]))
        box[index] = feats[mine]
        boxes[sample], values[sample] = (first, mask), box
    return Tensor(Set(boxes, shape and tuple(shape), (Fraction(1),) * 3), values)


def look(box, first, where):
    """box at positions where[0] x where[1] x where[2]; 0 or False outside of it."""
    index = [np.asarray(p) - a for p, a in zip(where, first)]
    there = [(i >= 0) & (i < n) for i, n in zip(index, box.shape)]
    out = np.zeros((*map(len, where), *box.shape[3:]), box.dtype)
    out[np.ix_(*there)] = box[np.ix_(*(i[t] for i, t in zip(index, there)))]
    return out


# --- Where a voxel of the result reads, along one axis, at offset k of the kernel.

def floor_of(p, stride):
    return p // stride


def downward(q, k, w, axis):
    return q * w.stride[axis] - w.padding[axis] + k * w.dilation[axis]


def upward(p, k, w, axis):
    whole = p + w.padding[axis] - k * w.dilation[axis]
    return np.where(whole % w.stride[axis] == 0, whole // w.stride[axis], NOWHERE)


@dataclass
class Window:
    kernel: tuple
    stride: tuple = (1, 1, 1)
    padding: tuple = (0, 0, 0)
    dilation: tuple = (1, 1, 1)
    rule: str = ""

    def offsets(self):
        return itertools.product(*map(range, self.kernel))


def centre(kernel, dilation):
    """MinkowskiEngine's padding: an odd kernel has its middle on the voxel, an even one begins
    there."""
    return tuple((k - 1) // 2 * d if k % 2 else 0 for k, d in zip(kernel, dilation))


def reads(x, on, window, direction):
    """For each offset of the window, {sample: (there, values)}: what voxels of `on` read of x."""
    for offset in window.offsets():
        found = {}
        for s in on.boxes:
            first, mask = x.on.boxes[s]
            where = [direction(p, k, window, axis)
                     for axis, (p, k) in enumerate(zip(on.positions(s), offset))]
            found[s] = look(mask, first, where), look(x.values[s], first, where)
        yield offset, found


# --- Sets.

def make_set(old, stride, span, meets, shape):
    """span(first, last): the first and the last voxel that there may be along each axis;
    meets(positions, first, mask): which voxels there are."""
    boxes = {}
    for s, (first, mask) in old.boxes.items():
        low, high = span(np.array(first), np.array(first) + mask.shape - 1)
        low = np.maximum(low, AXIS_MIN)
        size = np.maximum(np.minimum(high, AXIS_MAX) - low + 1, 0)
        positions = [np.arange(a, a + n) for a, n in zip(low, size)]
        boxes[s] = low, meets(positions, first, mask)
    return Set(boxes, shape, stride)


def any_offset(window, direction):
    def meets(positions, first, mask):
        out = np.zeros([len(p) for p in positions], bool)
        for offset in window.offsets():
            out |= look(mask, first, [direction(p, k, window, axis) for axis, (p, k)
                                      in enumerate(zip(positions, offset))])
        return out
    return meets


def times(a, b):
    return tuple(x * y for x, y in zip(a, b))


def floor_set(old, stride):
    if all(s == 1 for s in stride):
        return old
    shape = old.shape and tuple(math.ceil(n / s) for n, s in zip(old.shape, stride))

    def span(first, last):
        return floor_of(first, np.array(stride)), floor_of(last, np.array(stride))

    def meets(positions, first, mask):
        out = np.zeros([len(p) for p in positions], bool)
        at = floor_of(np.argwhere(mask) + first, np.array(stride)) - [p[0] for p in positions]
        out[tuple(at.T)] = True
        return out
    return make_set(old, times(old.stride, stride), span, meets, shape)


def spconv_shape(shape, w):
    return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1
                 for n, k, s, p, d in zip(shape, w.kernel, w.stride, w.padding, w.dilation))


def spconv_set(old, w):
    if all(n == 1 for n in (*w.kernel, *w.stride)) and not any(w.padding):
        return old
    shape = spconv_shape(old.shape, w)
    stride, padding = np.array(w.stride), np.array(w.padding)
    reach = (np.array(w.kernel) - 1) * w.dilation

    def span(first, last):
        return (np.maximum((first + padding - reach) // stride, 0),
                np.minimum((last + padding) // stride, np.array(shape) - 1))
    return make_set(old, times(old.stride, w.stride), span, any_offset(w, downward), shape)


def expanded_set(old, w):
    """All voxels that the window reaches on the way up."""
    stride, padding = np.array(w.stride), np.array(w.padding)
    reach = (np.array(w.kernel) - 1) * w.dilation
    if all(n == 1 for n in (*w.kernel, *w.stride)):
        return old

    def span(first, last):
        return first * stride - padding, last * stride - padding + reach
    finer = tuple(a / s for a, s in zip(old.stride, w.stride))
    return make_set(old, finer, span, any_offset(w, upward), None)


def coarse_set(old, w):
    return floor_set(old, w.stride) if w.rule == "floor" else spconv_set(old, w)


def sample_set(old):
    """One voxel for each sample that has any."""
    one = np.zeros(3, int), np.ones((1, 1, 1), bool)
    return Set({s: one for s, (_, mask) in old.boxes.items() if mask.any()}, None,
               (Fraction(0),) * 3)


def subset(old, stays):
    """The voxels where stays {sample: booleans} is True."""
    return Set({s: (first, mask & stays[s]) for s, (first, mask) in old.boxes.items()}, old.shape,
               old.stride)


def positive(logits):
    return {s: value[..., 0] > 0 for s, value in logits.values.items()}


def largest_logits(logits, top):
    """The `top` voxels of each sample; of equal logits the first by (x, y, z)."""
    out = {}
    for s, value in logits.values.items():
        voxels = np.argwhere(logits.on.boxes[s][1])   # ascending
        order = np.argsort(-value[tuple(voxels.T)][:, 0], kind="stable")
        out[s] = np.zeros(value.shape[:-1], bool)
        out[s][tuple(voxels[order[:top]].T)] = True
    return out


def same_set(a, b):
    """Whether two sets have the same voxels; boxes may differ."""
    return a is b or (a.stride == b.stride and np.array_equal(a.rows(), b.rows()))


def onto_set(x, on):
    """x with the boxes of an equal set, so that values may be added."""
    if x.on is on:
        return x
    assert same_set(x.on, on)
    return tensor_on(on, {s: look(x.values[s], x.on.boxes[s][0], on.positions(s))
                          for s in on.boxes})


# --- Operations.

def weight_at(weight, offset):
    """[Ci / groups, Co] of a weight [Co, Kx, Ky, Kz, Ci / groups]."""
    return weight[(slice(None), *offset)].T


def grouped(rows, matrix, groups):
    """rows @ matrix, each group of channels apart: outputs of group g read inputs of group g."""
    ins = np.split(rows, groups, axis=-1)
    outs = np.split(matrix, groups, axis=-1)
    return np.concatenate([i @ o for i, o in zip(ins, outs)], axis=-1)


def conv(x, on, window, way, weights):
    """way: "upward" or "downward"; weights: (weight, bias, groups)."""
    direction = {"upward": upward, "downward": downward}[way]
    weight, bias, groups = weights
    total = {s: np.zeros((*mask.shape, len(weight))) for s, (_, mask) in on.boxes.items()}
    for offset, found in reads(x, on, window, direction):
        for s, (_, values) in found.items():
            total[s] += grouped(values, weight_at(weight, offset), groups)
    return tensor_on(on, {s: v + bias for s, v in total.items()})


def largest(parts, there, window):
    """Of the voxels that are there; spconv's starts at 0."""
    out = np.where(there, parts, -np.inf).max(axis=0)
    return np.maximum(out, 0.0) if window.rule == "spconv" else out


def mean(parts, there):
    return parts.sum(axis=0) / np.maximum(there.sum(axis=0), 1)


def pool(x, on, window, op):
    """A row that reads no voxel is 0."""
    parts = {s: ([], []) for s in on.boxes}
    for _, found in reads(x, on, window, downward):
        for s, (there, values) in found.items():
            parts[s][0].append(values)
            parts[s][1].append(there[..., None])
    out = {}
    for s, (values, there) in parts.items():
        values, there = np.array(values), np.array(there)
        value = {"max_pool": lambda: largest(values, there, window),
                 "avg_pool": lambda: mean(values, there), "sum_pool": lambda: values.sum(axis=0)}
        out[s] = np.where(there.any(axis=0), value[op](), 0.0)
    return tensor_on(on, out)


def parents(x, on, stride):
    """The row of floor(p / stride) for each voxel p of the set."""
    return tensor_on(on, {s: look(x.values[s], x.on.boxes[s][0],
                                  [floor_of(p, n) for p, n in zip(on.positions(s), stride)])
                          for s in on.boxes})


def steps(fine, coarse):
    """How many voxels of one set one step of the other is."""
    found = [b / a for a, b in zip(fine.stride, coarse.stride)]
    assert all(step.denominator == 1 for step in found)
    return [int(step) for step in found]


def voxel_means(points, on, stride):
    """The mean of the points p with floor(p / stride) in each voxel, 0 without any."""
    out = {}
    for s, (first, mask) in on.boxes.items():
        begin, there = points.on.boxes[s]
        at = np.argwhere(there)
        cells = floor_of(at + begin, np.array(stride)) - first
        inside = ((cells >= 0) & (cells < mask.shape)).all(axis=1)
        total, count = np.zeros((*mask.shape, points.channels())), np.zeros(mask.shape)
        np.add.at(total, tuple(cells[inside].T), points.values[s][tuple(at[inside].T)])
        np.add.at(count, tuple(cells[inside].T), 1)
        out[s] = point_mean(total, count[..., None])
    return tensor_on(on, out)


def point_mean(total, count):
    return total / np.maximum(count, 1)


def nearness(p, cell, n):
    return 1 - np.abs(p / n - cell)


def weighted_mean(total, weights):
    """TorchSparse's 1e-8: 0 where no corner has a voxel."""
    return total / (weights + 1e-8)


def trilinear(x, on, stride):
    """For each voxel p of the set, the 8 voxels around p / stride that there are."""
    out = {}
    for s in on.boxes:
        first, mask = x.on.boxes[s]
        total, weights = 0.0, 0.0
        for corner in itertools.product((0, 1), repeat=3):
            cells = [floor_of(p, n) + k for p, n, k in zip(on.positions(s), stride, corner)]
            near = [nearness(p, c, n) for p, c, n in zip(on.positions(s), cells, stride)]
            weight = np.einsum("x,y,z->xyz", *near) * look(mask, first, cells)
            total = total + weight[..., None] * look(x.values[s], first, cells)
            weights = weights + weight
        out[s] = weighted_mean(total, weights[..., None])
    return tensor_on(on, out)


def child_number(x, y, z, stride):
    return x + stride[0] * (y + stride[1] * z)


def to_channels(x, on, stride):
    """Child number n of a block has the channels [n * C, (n + 1) * C)."""
    c, window = x.channels(), Window(stride, stride)
    out = {s: np.zeros((*mask.shape, c * math.prod(stride))) for s, (_, mask) in on.boxes.items()}
    for offset, found in reads(x, on, window, downward):
        n = child_number(*offset, stride)
        for s, (_, values) in found.items():
            out[s][..., n * c:(n + 1) * c] = values
    return tensor_on(on, out)


def from_channels(x, on, stride):
    whole, c = parents(x, on, stride), x.channels() // math.prod(stride)
    out = {}
    for s, value in whole.values.items():
        x, y, z = np.meshgrid(*(p % n for p, n in zip(on.positions(s), stride)), indexing="ij")
        first = child_number(x, y, z, stride)[..., None] * c
        out[s] = np.take_along_axis(value, first + np.arange(c), axis=-1)
    return tensor_on(on, out)


def occupied_set(logits, window):
    """Children whose logit, a channel of their parent, is above 0."""
    children = expanded_set(logits.on, window)
    return subset(children, positive(from_channels(logits, children, window.stride)))


def moved_onto(x, on):
    """x on a subset of its voxels."""
    return tensor_on(on, x.values)


def sample_pool(x, on, mode):
    reduce = {"max": np.max, "avg": np.mean, "sum": np.sum}[mode]
    return Tensor(on, {s: reduce(x.values[s][x.on.boxes[s][1]], axis=0).reshape(1, 1, 1, -1)
                       for s in on.boxes})


def from_samples(x, on):
    """The row of its sample for each voxel."""
    return tensor_on(on, {s: np.broadcast_to(x.values[s], (*mask.shape, x.channels()))
                          for s, (_, mask) in on.boxes.items()})


def dense(x, shape, samples, fold):
    """[B, C, X, Y, Z], or with `fold` [B, C * X, Y, Z]."""
    out = np.zeros((samples, x.channels(), *shape))
    where = [np.arange(n) for n in shape]
    for s, (first, _) in x.on.boxes.items():
        out[s] = np.moveaxis(look(x.values[s], first, where), -1, 0)
    return out.reshape(samples, -1, *shape[1:]) if fold else out


def statistics(rows, axes):
    centred = rows - rows.mean(axis=axes, keepdims=True)
    return centred, (centred ** 2).mean(axis=axes, keepdims=True)


def normalised(rows, axes, eps):
    centred, variance = statistics(rows, axes)
    return centred / np.sqrt(variance + eps)


def sample_norm(x, groups, eps):
    """Over all voxels of a sample and the channels of a group."""
    out = {}
    for s, value in x.values.items():
        mask = x.on.boxes[s][1]
        rows = value[mask]
        out[s] = np.zeros_like(value)
        if len(rows):
            parts = rows.reshape(len(rows), groups, -1)
            out[s][mask] = normalised(parts, (0, 2), eps).reshape(rows.shape)
    return tensor_on(x.on, out)


def softmax(v):
    power = np.exp(v - v.max(axis=-1, keepdims=True))
    return power / power.sum(axis=-1, keepdims=True)


def sigmoid(v):
    return 1 / (1 + np.exp(-v))


def gelu(v):
    return v * 0.5 * (1 + np.vectorize(math.erf)(v / math.sqrt(2)))


CURVES = {
    "relu": lambda v: np.maximum(v, 0.0),
    "silu": lambda v: v * sigmoid(v),
    "gelu": lambda v: gelu(v),
    "sigmoid": lambda v: sigmoid(v),
    "tanh": np.tanh,
    "softplus": lambda v: np.log1p(np.exp(-np.abs(v))) + np.maximum(v, 0.0),
    "softmax": lambda v: softmax(v),
    "argmax": lambda v: np.argmax(v, axis=-1)[..., None].astype(float),
}
