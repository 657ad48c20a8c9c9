# SPDX-License-Identifier: Apache-2.0
"""torchsparse/nn/functional/conv.py of 1.4 and 2.0, and conv/conv.py of 2.1."""

import numpy as np
import torch

from torchsparse import version
from torchsparse.tensor import SparseTensor, share

from . import conv_config, maps

FIRST, LAST = [0, 1, 2, 3], [3, 0, 1, 2]


def sample_first(coords):
    return coords.numpy()[:, LAST if version.before_21() else FIRST]


def conv3d(
    input,
    weight,
    kernel_size,
    bias=None,
    stride=(1, 1, 1),
    padding=(0, 0, 0),
    dilation=1,
    config=None,
    transposed=False,
    generative=False,
    training=False,
):
    """A dilation is part of the map's name and of nothing else."""
    assert not generative
    dilation = (dilation,) * 3 if isinstance(dilation, int) else tuple(dilation)
    if kernel_size == stride == dilation == (1, 1, 1):
        feats = input.feats.matmul(weight)
        made = SparseTensor(feats if bias is None else feats + bias, input.coords, input.stride)
        if not version.before_21():
            made.spatial_range = input.spatial_range
    else:
        made = _mapped(input, weight, kernel_size, stride, padding, dilation, config, transposed)
        if bias is not None:
            made.feats += bias
    share(made, input)
    kept = made.coords if version.before_21() else (made.coords, made.spatial_range)
    _caches(made)[0].setdefault(made.stride, kept)
    return made


def _caches(tensor):
    old = version.before_21()
    return (tensor.cmaps, tensor.kmaps) if old else (tensor._caches.cmaps, tensor._caches.kmaps)


def _mapped(input, weight, size, stride, padding, dilation, config, transposed):
    cmaps, kmaps = _caches(input)
    if transposed:
        finer = tuple(a // b for a, b in zip(input.stride, stride))
        triples, _, _ = kmaps[(finer, size, stride, dilation)]
        coords = cmaps[finer] if version.before_21() else cmaps[finer][0]
        out = torch.zeros(len(coords), weight.shape[2])
        for v, p, q in _by_offset(triples):
            out.index_add_(0, p, input.feats[q] @ weight[v])
        made = SparseTensor(out, coords, finer)
        if not version.before_21():
            made.spatial_range = cmaps[finer][1]
        return made
    key = (input.stride, size, stride, dilation)
    if key not in kmaps:  # 2.1 asks neither for padding nor for config
        kmaps[key] = _map(input, size, stride, padding, config)
    triples, coords, shape = kmaps[key]
    out = torch.zeros(len(coords), weight.shape[2])
    for v, p, q in _by_offset(triples):
        out.index_add_(0, q, input.feats[p] @ weight[v])
    made = SparseTensor(out, coords, tuple(a * b for a, b in zip(input.stride, stride)))
    if not version.before_21():
        made.spatial_range = shape
    return made


def _by_offset(triples):
    """(v, rows read, rows written)."""
    rows = {}
    for v, p, q in triples:
        rows.setdefault(v, []).append((p, q))
    for v, some in rows.items():
        yield v, *torch.from_numpy(np.array(some)).unbind(1)


def _map(input, size, stride, padding, config):
    """[(v, row read, row written)], coordinates, spatial_range of the result."""
    coords, moved = sample_first(input.coords), any(s > 1 for s in stride)
    if version.before_21():
        trunc = version.__version__ != "1.4.0"
        found, out = maps.before_21(coords, size, stride, input.stride, trunc)
        return _rows(input, found, out if moved else None, None)
    config = config or conv_config.get_global_conv_config() or conv_config.get_default_conv_config()
    shape = input.spatial_range
    if shape is not None:
        each = zip(shape[1:], padding, size, stride)
        shape = (shape[0], *((d + 2 * p - (k - 1) - 1) // s + 1 for d, p, k, s in each))
    inside = shape and shape[1:]
    mode = config["kmap_mode"]
    if not moved:
        found = maps.subm(coords, size, mode, inside)
    elif mode == "hashmap":
        minkowski = config["downsample_mode"] == "minkowski"
        found = maps.hashmap(coords, size, stride, padding, inside, minkowski)
    else:
        found = maps.on_the_fly(coords, size, stride, padding, inside)
    return _rows(input, found, sorted({q for _, _, q in found}) if moved else None, shape)


def _rows(input, found, out, shape):
    if out is None:
        coords = input.coords
        out = [tuple(int(a) for a in c) for c in sample_first(coords)]
    else:
        # In no order: the library's follows from its hash table.
        out = [out[i] for i in np.random.default_rng(7).permutation(len(out))]
        array = np.array(out, np.int32)[:, [1, 2, 3, 0] if version.before_21() else FIRST]
        coords = torch.from_numpy(array)
    row = {q: i for i, q in enumerate(out)}
    return [(v, p, row[q]) for v, p, q in found], coords, shape
