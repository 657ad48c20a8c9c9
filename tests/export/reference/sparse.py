# SPDX-License-Identifier: Apache-2.0
"""Sparse tensors of torch from the definition: sets of voxels, maps, gathered convolutions.

What the references of the families are made of.  Nothing here comes from network.json, from voxeld
or from the exporter, so that an error of theirs cannot be here as well.  All of it computes in the
type of the features: a reference in float64 has no error of its own.

    x = Sparse(Sites(coords, shape=(41, 64, 64)), feats)
    y = Seq(Strided("spconv", 4, 8, 3, 2, padding=1), nn.BatchNorm1d(8), nn.ReLU())(x)
"""

import itertools

import numpy as np
import torch
from torch import nn

HALF = 1 << 15  # coordinates lie in -HALF .. HALF - 1


def three(numbers, fill=1):
    """A number or a list of up to three as an array of three."""
    if isinstance(numbers, (int, np.integer)):
        return np.array([numbers] * 3)
    return np.array([*numbers, *[fill] * (3 - len(numbers))])


class Sites:
    """A list of voxels, each once: what features lie on.

    coords  int32 [N, 4]: the sample, then a voxel of this list's own grid
    stride  how many voxels of the request one step is, along each axis
    shape   voxels along the axes; spconv's rule needs it
    of      of a set that a strided layer made: (the Sites that it reads, its pairs)
    made    what was derived from this set, by its rule: equal rules share sets and maps
    """

    def __init__(self, coords, stride=1, shape=None, of=None):
        self.coords = np.ascontiguousarray(coords, np.int32).reshape(-1, 4)
        self.stride = tuple(three(stride).tolist())
        self.shape = None if shape is None else three(shape)
        self.of = of
        self.made = {}
        keys = _keys(self.coords)
        self._order = np.argsort(keys)
        self._sorted = keys[self._order]
        assert (np.diff(self._sorted) > 0).all(), "a voxel is there twice"

    def __len__(self):
        return len(self.coords)

    def find(self, coords):
        """The row of each voxel of [M, 4]; -1 where there is none."""
        if not len(self):
            return np.full(len(coords), -1)
        keys = _keys(coords)
        at = np.searchsorted(self._sorted, keys).clip(max=len(self) - 1)
        return np.where(self._sorted[at] == keys, self._order[at], -1)

    def samples(self):
        """The sample of each row, int64 [N]."""
        return torch.from_numpy(self.coords[:, 0].astype(np.int64))


class Sparse:
    """Features [N, C] on Sites."""

    def __init__(self, sites, feats):
        assert len(sites) == len(feats)
        self.sites, self.feats = sites, feats

    def like(self, feats):
        """Other features on the same voxels."""
        return Sparse(self.sites, feats)

    def __add__(self, other):
        assert self.sites is other.sites
        return self.like(self.feats + other.feats)


def cat(*tensors):
    """Channels side by side."""
    assert all(tensor.sites is tensors[0].sites for tensor in tensors)
    return tensors[0].like(torch.cat([tensor.feats for tensor in tensors], 1))


def _keys(coords):
    """One int64 for each voxel, which ascend by (sample, x, y, z)."""
    wide = np.asarray(coords, np.int64)
    assert (np.abs(wide[:, 1:] + 0.5) < HALF).all()
    return ((wide[:, 0] * 2 * HALF + wide[:, 1] + HALF) * 2 * HALF + wide[:, 2] + HALF) * (
        2 * HALF
    ) + (wide[:, 3] + HALF)


# --- which row reads which: pairs are a list, by offset, of (rows of the finer set, of the coarser)


def offsets(kernel):
    """int [V, 3]: 0 .. kernel - 1 along each axis, the last one fastest."""
    return np.array(list(itertools.product(*(range(size) for size in kernel))))


def submanifold(sites, kernel, dilation=1):
    """Pairs (row read, row written) of a convolution that keeps its set."""
    kernel, dilation = three(kernel), three(dilation)
    rule = ("submanifold", *kernel, *dilation)
    if rule not in sites.made:
        assert (kernel % 2 == 1).all()
        first = -(kernel - 1) // 2 * dilation
        sites.made[rule] = between(sites, sites, kernel, 1, first, dilation)
    return sites.made[rule]


def strided(sites, kernel, stride, padding=0, dilation=1, rule="floor", block=False):
    """(Sites, pairs) of a layer that makes a set.

    rule   "floor": the voxels floor(p / stride), a kernel around q * stride where its size is odd,
           from there on where it is even (MinkowskiEngine, TorchSparse); "spconv": wherever an
           offset of the kernel meets a voxel, inside of the shape
    block  the kernel starts at q * stride, whatever its size (MinkowskiEngine's pools)
    """
    kernel, stride, dilation = three(kernel), three(stride), three(dilation)
    padding = three(padding, 0)
    name = (rule, *stride) if rule == "floor" else (rule, *kernel, *stride, *padding, *dilation)
    if rule == "floor":
        first = np.where((kernel % 2 == 0) | block, 0, -((kernel - 1) // 2) * dilation)
    else:
        first = -padding
    if name not in sites.made:
        sites.made[name] = _derive(sites, kernel, stride, first, dilation, rule)
    coarse = sites.made[name]
    pairs = ("pairs", *name, *kernel, *first, *dilation)
    if pairs not in sites.made:
        sites.made[pairs] = between(sites, coarse, kernel, stride, first, dilation)
    if coarse.of is None:
        coarse.of = (sites, sites.made[pairs])
    return coarse, sites.made[pairs]


def _derive(sites, kernel, stride, first, dilation, rule):
    scale = tuple((np.array(sites.stride) * stride).tolist())
    if rule == "floor":
        coords = np.insert(sites.coords[:, 1:] // stride, 0, sites.coords[:, 0], 1)
        return Sites(np.unique(coords, axis=0), scale)
    assert sites.shape is not None, "spconv's rule needs a shape"
    shape = (sites.shape - 2 * first - dilation * (kernel - 1) - 1) // stride + 1
    met = []
    for offset in offsets(kernel):
        away = sites.coords[:, 1:] - first - offset * dilation
        whole = (away % stride == 0).all(1) & (away >= 0).all(1) & (away < shape * stride).all(1)
        met.append(np.insert(away[whole] // stride, 0, sites.coords[whole, 0], 1))
    return Sites(np.unique(np.concatenate(met), axis=0), scale, shape)


def between(fine, coarse, kernel, stride, first, dilation=1):
    """Pairs (row of fine, row of coarse): p = q * stride + first + offset * dilation."""
    pairs = []
    for offset in offsets(kernel):
        wanted = coarse.coords.astype(np.int64)
        wanted[:, 1:] = wanted[:, 1:] * stride + first + offset * dilation
        found = fine.find(wanted)
        rows = np.flatnonzero(found >= 0)
        pairs.append((torch.from_numpy(found[rows]), torch.from_numpy(rows)))
    return pairs


def flipped(pairs):
    """Pairs of the way back: each offset keeps its weight."""
    return [(written, read) for read, written in pairs]


def children(sites, stride=2, occupancy=None):
    """(Sites, row of the parent, number of the child): a block of voxels for each one.

    occupancy  bool [N, children]: which there are; child x + stride_x * (y + stride_y * z)
    """
    stride = three(stride)
    inner = offsets(stride[::-1])[:, ::-1]  # x fastest
    there = np.ones((len(sites), len(inner)), bool) if occupancy is None else np.array(occupancy)
    parent, child = np.nonzero(there)
    coords = sites.coords[parent]
    coords[:, 1:] = coords[:, 1:] * stride + inner[child]
    scale = tuple((np.array(sites.stride) / stride).tolist())
    shape = None if sites.shape is None else sites.shape * stride
    return Sites(coords, scale, shape), torch.from_numpy(parent), torch.from_numpy(child)


# --- computing


def convolve(feats, pairs, weight, rows, bias=None):
    """[rows, Co]: each row written is the sum of rows read times the weight of their offset.

    weight  [V, Ci, Co], the last axis of the kernel fastest
    """
    out = feats.new_zeros(rows, weight.shape[2])
    for (read, written), matrix in zip(pairs, weight):
        out.index_add_(0, written, feats[read] @ matrix)
    return out if bias is None else out + bias.reshape(-1)


def ordered(library, weight, kernel, keeps=True):
    """A library's weight as [V, Ci, Co] with the last axis of the kernel fastest.

    keeps  the convolution keeps its set: then spconv multiplies by the numbers of a kernel of one
           offset as they lie, (Ci, Co), whatever its shape is
    """
    kernel = three(kernel)
    volume = int(np.prod(kernel))
    if library in ("spconv", "flexgemm"):
        co, ci = weight.shape[0], weight.shape[-1]
        if library == "spconv" and volume == 1 and keeps:
            return weight.reshape(1, ci, co)
        return weight.reshape(co, volume, ci).permute(1, 2, 0)
    ci, co = weight.shape[-2:]
    if library == "minkowski" or volume % 2:  # the first axis is the fastest
        weight = weight.reshape(*kernel[::-1].tolist(), ci, co).permute(2, 1, 0, 3, 4)
    return weight.reshape(volume, ci, co)


def pool(x, mode, kernel, stride, **rule):
    """What a kernel meets: "max", "sum", or "avg" of the rows that are there."""
    sites, pairs = strided(x.sites, kernel, stride, **rule)
    read = torch.cat([pair[0] for pair in pairs])
    written = torch.cat([pair[1] for pair in pairs])
    return Sparse(sites, reduce(x.feats[read], written, len(sites), mode))


def reduce(feats, group, groups, mode):
    """[groups, C]: "sum", "avg" or "max" of the rows of each group; 0 of no rows."""
    if mode == "max":
        out = feats.new_full((groups, feats.shape[1]), -torch.inf)
        out.scatter_reduce_(0, group[:, None].expand(feats.shape), feats, "amax")
        return torch.where(torch.isinf(out), torch.zeros_like(out), out)
    out = feats.new_zeros(groups, feats.shape[1]).index_add_(0, group, feats)
    if mode == "sum":
        return out
    count = torch.bincount(group, minlength=groups).clamp(min=1)
    return out / count[:, None].to(out.dtype)


def voxelize(points, onto):
    """The mean of the points in each voxel of the Sites `onto`; 0 where there is none."""
    step = np.array(onto.stride) // np.array(points.sites.stride)
    inside = points.sites.coords.copy()
    inside[:, 1:] //= step.astype(np.int32)
    row = onto.find(inside)
    there = torch.from_numpy(row >= 0)
    row = torch.from_numpy(row)[there]
    return Sparse(onto, reduce(points.feats[there], row, len(onto), "avg"))


def devoxelize(x, onto, mode="trilinear"):
    """Features for the points `onto`: of the 8 voxels around each, weighed; or of its own voxel."""
    step = np.array(x.sites.stride) / np.array(onto.stride)
    place = onto.coords[:, 1:] / step
    low = np.floor(place).astype(np.int64)
    out = x.feats.new_zeros(len(onto), x.feats.shape[1])
    total = x.feats.new_zeros(len(onto), 1)
    for corner in offsets((2, 2, 2)) if mode == "trilinear" else [np.zeros(3, int)]:
        row = x.sites.find(np.insert(low + corner, 0, onto.coords[:, 0], 1))
        near = 1 - np.abs(place - (low + corner)) if mode == "trilinear" else np.ones(place.shape)
        weight = torch.from_numpy(near.prod(1) * (row >= 0)).to(out.dtype)[:, None]
        out += weight * x.feats[torch.from_numpy(row.clip(min=0))] if len(x.sites) else 0
        total += weight
    return Sparse(onto, out / (total + 1e-8) if mode == "trilinear" else out)


def to_dense(x, shape=None, samples=None):
    """[B, C, X, Y, Z], 0 where there is no voxel."""
    shape = three(x.sites.shape if shape is None else shape).tolist()
    at = torch.from_numpy(x.sites.coords.astype(np.int64))
    samples = int(at[:, 0].max()) + 1 if samples is None else samples
    dense = x.feats.new_zeros(samples, *shape, x.feats.shape[1])
    dense[at[:, 0], at[:, 1], at[:, 2], at[:, 3]] = x.feats
    return dense.permute(0, 4, 1, 2, 3)


def group_norm(x, groups, eps, weight=None, bias=None):
    """Statistics over the rows of a sample and the channels of a group."""
    out = torch.empty_like(x.feats)
    for sample in x.sites.samples().unique():
        rows = x.sites.samples() == sample
        part = x.feats[rows].reshape(int(rows.sum()), groups, -1)
        mean = part.mean((0, 2), keepdim=True)
        variance = part.var((0, 2), keepdim=True, unbiased=False)
        out[rows] = ((part - mean) / torch.sqrt(variance + eps)).reshape(int(rows.sum()), -1)
    out = out if weight is None else out * weight.reshape(-1)
    return x.like(out if bias is None else out + bias.reshape(-1))


# --- modules with the names and shapes of tensors that a library's have


class Conv(nn.Module):
    """A library's convolution: "spconv", "flexgemm", "torchsparse" or "minkowski".

    kernel  one number, or one for each axis: spconv's layers of two axes have two
    """

    def __init__(self, library, ci, co, kernel=3, bias=False):
        super().__init__()
        self.library = library
        axes = [kernel] * 3 if isinstance(kernel, int) else list(kernel)
        self.size = three(axes)
        volume = int(np.prod(self.size))
        if library in ("spconv", "flexgemm"):
            self.weight = nn.Parameter(torch.zeros(co, *axes, ci))
        else:
            self.kernel = nn.Parameter(torch.zeros(*([volume] if volume > 1 else []), ci, co))
        shape = (1, co) if library == "minkowski" else (co,)
        self.bias = nn.Parameter(torch.zeros(shape)) if bias else None

    def compute(self, x, sites, pairs, keeps=False):
        """The result on `sites`, from (row read, row written)."""
        weight = self.weight if self.library in ("spconv", "flexgemm") else self.kernel
        weight = ordered(self.library, weight, self.size, keeps)
        return Sparse(sites, convolve(x.feats, pairs, weight, len(sites), self.bias))


class Subm(Conv):
    """Keeps the set."""

    def __init__(self, library, ci, co, kernel=3, bias=False, dilation=1):
        super().__init__(library, ci, co, kernel, bias)
        self.dilation = dilation

    def forward(self, x):
        pairs = submanifold(x.sites, self.size, self.dilation)
        return self.compute(x, x.sites, pairs, keeps=True)


class Strided(Conv):
    """Makes a set, by spconv's rule or by "floor"."""

    def __init__(self, library, ci, co, kernel, stride, padding=0, bias=False, rule=None):
        super().__init__(library, ci, co, kernel, bias)
        self.stride, self.padding = stride, padding
        self.rule = rule or ("spconv" if library == "spconv" else "floor")

    def forward(self, x):
        sites, pairs = strided(x.sites, self.size, self.stride, self.padding, rule=self.rule)
        return self.compute(x, sites, pairs)


class Inverse(Conv):
    """Undoes the strided layer that made the set of x, pair by pair: spconv's inverse
    convolution; TorchSparse's and MinkowskiEngine's transposed one of the same kernel."""

    def forward(self, x):
        sites, pairs = x.sites.of
        assert len(pairs) == int(np.prod(self.size))
        return self.compute(x, sites, flipped(pairs))


class Seq(nn.Sequential):
    """Modules in a row: those of torch get the features, the others the sparse tensor."""

    def forward(self, x):
        for module in self:
            x = through(module, x)
        return x


def through(module, x):
    """A module of torch on the features, any other on the sparse tensor."""
    if type(module).__module__.startswith("torch.nn") and not isinstance(module, nn.Identity):
        return x.like(module(x.feats))
    return module(x)


class MinkowskiBatchNorm(nn.Module):
    """Batch norm under MinkowskiEngine's name, bn."""

    def __init__(self, channels):
        super().__init__()
        self.bn = nn.BatchNorm1d(channels)

    def forward(self, x):
        return x.like(self.bn(x.feats))


class GroupNorm(nn.GroupNorm):
    """Group norm of a sparse tensor, sample by sample."""

    def forward(self, x):
        return group_norm(x, self.num_groups, self.eps, self.weight, self.bias)


# --- weights


def randomise(net, seed=1):
    """Weights and statistics as after training, which keep the size of features; eval mode."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in net.state_dict().items():
        if name.endswith(("running_var", "weight")) and tensor.dim() == 1:
            tensor.uniform_(0.6, 1.4, generator=generator)
        elif name.endswith(("running_mean", "bias")):
            tensor.normal_(0, 0.2, generator=generator)
        elif tensor.dim() > 1:
            co = tensor.shape[-1] if name.endswith("kernel") else tensor.shape[0]
            ci = tensor.shape[-2] if name.endswith("kernel") else tensor.shape[-1]
            volume = tensor.numel() / co / ci
            tensor.normal_(0, (2 / ci / volume ** (2 / 3)) ** 0.5, generator=generator)
    return net.eval()


def rounded(net, datatype):
    """What is multiplied with, rounded to "FP16" or "BF16" in place; "FP32" changes nothing."""
    kind = {"FP32": None, "FP16": torch.float16, "BF16": torch.bfloat16}[datatype]
    for name, tensor in net.state_dict().items():
        if kind and tensor.dim() > 1 and not name.endswith("bias"):
            tensor.copy_(tensor.to(kind))
    return net
