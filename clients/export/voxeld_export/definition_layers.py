"""What each op of network.json computes, as engine/README.md defines it ("Layers").

A function gets the evaluation, the layer as it stands in network.json, and its inputs as Rows.

SPDX-License-Identifier: Apache-2.0
"""

import itertools
import math

import numpy as np

from . import definition_sets as sets
from . import fp8
from .axes import three
from .definition_rows import Rows, largest, normalised, product, taken
from .definition_weights import Convolution, weight_of
from .errors import ExportError

_NEAR = 1e-8  # devoxelize, trilinear: TorchSparse's guard against a division by 0


def inputs_of(layer):
    return layer["inputs"] if "inputs" in layer else [layer["input"]]


# --- convolutions and linear layers ---


def subm_conv(net, layer, x):
    return _convolve(net, layer, x, x.on, net.window(layer), False)


def sparse_conv(net, layer, x):
    window = net.window(layer)
    return _convolve(net, layer, x, net.coarse(x.on, window), window, False)


def inverse_conv(net, layer, x):
    of = net.layers[layer["of"]]
    on = net.done[inputs_of(of)[0]].on
    return _convolve(net, layer, x, on, net.window(of), True)


def transposed_conv(net, layer, x):
    window = net.window(layer)
    if "onto" in layer:
        on = net.find(layer["onto"], layer).on
    else:
        on = net.set_by(sets.expanded_set, x.on, window)
    return _convolve(net, layer, x, on, window, True)


def _convolve(net, layer, x, on, window, upward):
    values, weight = x.values, _weight(net, layer, window, x.channels())
    if "fp8_scale" in layer:
        values = fp8.rounded(values.astype(np.float32), layer["fp8_scale"])
        folded = folded_weight(net, layer, window, x.channels())
        # What the norm behind it multiplies with is part of the numbers that are rounded.
        weight = _divided(fp8.rounded_columns(folded), _norm_scale(net, layer))
    total = np.zeros((len(on), layer["channels"]))
    for offset, (out, read) in enumerate(net.pairs(window, upward, x.on, on)):
        if len(out):
            total[out] += product(values[read], weight[offset])
    if layer.get("bias", True):
        total += _vector(net, layer, "bias", layer["channels"])
    return Rows(on, total)


def _weight(net, layer, window, channels):
    """[V, groups, Ci / groups, Co / groups]."""
    conv = Convolution(layer, window, channels, "onto" in layer)
    return weight_of(conv, _tensor(net, layer, "weight"))


def folded_weight(net, layer, window, channels):
    """The weight of a layer of one group, times what the norm behind it multiplies with, in f32."""
    folded = _weight(net, layer, window, channels) * _norm_scale(net, layer)
    return folded.astype(np.float32).astype(np.float64)


def _norm_scale(net, layer):
    """What the batch norm that alone reads a convolution multiplies each channel with."""
    reads = [
        other
        for other in net.document["layers"]
        for name in (*inputs_of(other), other.get("occupancy"), other.get("keep"))
        if name == layer["name"]
    ]
    is_output = any(output["layer"] == layer["name"] for output in net.document["outputs"])
    ones = np.ones(layer["channels"])
    if is_output or len(reads) != 1 or reads[0]["op"] != "batch_norm":
        return ones
    norm = reads[0]
    variance = _vector(net, norm, "running_var", layer["channels"])
    scale = ones / np.sqrt(variance + norm.get("eps", 1e-5))
    affine = norm.get("affine", True)
    return scale * _vector(net, norm, "weight", layer["channels"]) if affine else scale


def _divided(weight, scale):
    return np.divide(weight, scale, out=np.zeros_like(weight), where=scale != 0)


def linear(net, layer, x):
    weight = _tensor(net, layer, "weight")
    if weight.shape != (layer["channels"], x.channels()):
        raise ExportError(
            f"layer {layer['name']}: a weight of shape {list(weight.shape)}; expected "
            f"[{layer['channels']}, {x.channels()}]"
        )
    values = x.values @ weight.T
    if layer.get("bias", True):
        values += _vector(net, layer, "bias", layer["channels"])
    return Rows(x.on, values)


def _tensor(net, layer, key):
    name = layer.get("tensors", {}).get(key, f"{layer['name']}.{key}")
    return net.tensors.take(name, layer["name"])


def _vector(net, layer, key, channels):
    array = _tensor(net, layer, key)
    if array.shape not in ((channels,), (1, channels)):
        raise ExportError(
            f"layer {layer['name']}: a {key} of shape {list(array.shape)}; "
            f"expected [{channels}]"
        )
    return array.reshape(-1)


# --- norms ---


def batch_norm(net, layer, x):
    mean, variance = (
        _vector(net, layer, f"running_{one}", x.channels()) for one in ("mean", "var")
    )
    scale = 1 / np.sqrt(variance + layer.get("eps", 1e-5))
    return _affine_of(net, layer, Rows(x.on, (x.values - mean) * scale))


def layer_norm(net, layer, x):
    values = normalised(x.values, 1, layer.get("eps", 1e-5))
    return _affine_of(net, layer, Rows(x.on, values))


def instance_norm(net, layer, x):
    return _sample_norm(net, layer, x, x.channels())


def group_norm(net, layer, x):
    return _sample_norm(net, layer, x, layer["groups"])


def _sample_norm(net, layer, x, groups):
    values = np.zeros_like(x.values)
    for _sample, rows in x.on.samples():
        parts = x.values[rows].reshape(rows.stop - rows.start, groups, -1)
        parts = normalised(parts, (0, 2), layer.get("eps", 1e-5))
        values[rows] = parts.reshape(-1, x.channels())
    return _affine_of(net, layer, Rows(x.on, values))


def _affine_of(net, layer, x):
    if layer.get("affine", True):
        x.values = x.values * _vector(net, layer, "weight", x.channels())
        x.values = x.values + _vector(net, layer, "bias", x.channels())
    return x


# --- pools, blocks, points ---


def max_pool(net, layer, x):
    window = net.window(layer)
    on = net.coarse(x.on, window)
    start = 0.0 if window.rule == "spconv" else -np.inf  # spconv's starts at 0
    best, count = np.full((len(on), x.channels()), start), np.zeros(len(on))
    for out, read in net.pairs(window, False, x.on, on):
        best[out] = np.maximum(best[out], x.values[read])
        count[out] += 1
    return Rows(on, np.where(count[:, None] > 0, best, 0.0))


def sum_pool(net, layer, x):
    return _summed(net, layer, x)[0]


def avg_pool(net, layer, x):
    result, count = _summed(net, layer, x)
    return Rows(result.on, result.values / np.maximum(count, 1)[:, None])


def downsample(net, layer, x):
    return avg_pool(net, layer, x)


def _summed(net, layer, x):
    window = net.window(layer)
    on = net.coarse(x.on, window)
    total, count = np.zeros((len(on), x.channels())), np.zeros(len(on))
    for out, read in net.pairs(window, False, x.on, on):
        total[out] += x.values[read]
        count[out] += 1
    return Rows(on, total), count


def global_pool(net, layer, x):
    on = net.set_by(sets.sample_set, x.on)
    reduce = {"max": np.max, "avg": np.mean, "sum": np.sum}[layer["mode"]]
    rows = [reduce(x.values[rows], axis=0) for _sample, rows in x.on.samples()]
    return Rows(on, np.array(rows).reshape(len(on), x.channels()))


def unpool(net, layer, x):
    of = net.layers[layer["of"]]
    on = net.done[inputs_of(of)[0]].on
    if of["op"] == "global_pool":
        at = on.coords.copy()
        at[:, 1:] = 0
        return Rows(on, taken(x.values, x.on.find(at)))
    parents = net.parents(on, x.on, net.window(of).stride)
    return Rows(on, taken(x.values, parents))


def _children(net, layer, x):
    """(set, stride) of a layer between a voxel and its children."""
    stride = tuple(three(layer["stride"], 1))
    if "onto" in layer:
        return net.find(layer["onto"], layer).on, stride
    on = net.set_by(sets.expanded_set, x.on, sets.Window(stride, stride))
    if "occupancy" not in layer:
        return on, stride
    key = ("occupied", x.on, layer["occupancy"], stride)
    if key not in net.shared:
        logits = _logits(net, layer, "occupancy", x.on, math.prod(stride))
        children = _of_parents(net, logits, on, stride, 1)[:, 0]
        net.shared[key] = sets.subset(on, children > 0)
    return net.shared[key], stride


def _of_parents(net, x, on, stride, channels):
    """The channels of each voxel of `on` among those of its parent, 0 without one."""
    within = on.coords[:, 1:] % np.array(stride)
    child = within[:, 0] + stride[0] * (within[:, 1] + stride[1] * within[:, 2])
    parts = x.values.reshape(len(x.on), x.channels() // channels, channels)
    parents = net.parents(on, x.on, stride)
    return taken(parts, parents, child)


def upsample(net, layer, x):
    on, stride = _children(net, layer, x)
    return Rows(on, taken(x.values, net.parents(on, x.on, stride)))


def channel_to_space(net, layer, x):
    on, stride = _children(net, layer, x)
    return Rows(on, _of_parents(net, x, on, stride, x.channels() // math.prod(stride)))


def space_to_channel(net, layer, x):
    window, c = net.window(layer), x.channels()
    on = net.coarse(x.on, window)
    values = np.zeros((len(on), c * math.prod(window.stride)))
    for k, (out, read) in zip(window.offsets(), net.pairs(window, False, x.on, on)):
        child = k[0] + window.stride[0] * (k[1] + window.stride[1] * k[2])
        values[out, child * c : (child + 1) * c] = x.values[read]
    return Rows(on, values)


def voxelize(net, layer, x):
    if "onto" in layer:
        on = net.find(layer["onto"], layer).on
    else:
        on = net.set_by(sets.floor_set, x.on, tuple(three(layer["stride"], 1)))
    rows = net.parents(x.on, on, sets.steps(x.on, on))
    there = rows >= 0
    total, count = np.zeros((len(on), x.channels())), np.zeros(len(on))
    np.add.at(total, rows[there], x.values[there])
    np.add.at(count, rows[there], 1)
    return Rows(on, total / np.maximum(count, 1)[:, None])


def devoxelize(net, layer, x):
    on = net.find(layer.get("onto", net.feats), layer).on
    stride = np.array(sets.steps(on, x.on))
    if layer["mode"] == "nearest":
        return Rows(on, taken(x.values, net.parents(on, x.on, tuple(stride))))
    at = on.coords[:, 1:] / stride
    total, weights = np.zeros((len(on), x.channels())), np.zeros(len(on))
    for corner in itertools.product((0, 1), repeat=3):
        cell = on.coords[:, 1:] // stride + corner
        rows = x.on.find(np.concatenate([on.coords[:, :1], cell], axis=1))
        weight = np.where(rows >= 0, np.prod(1 - np.abs(at - cell), axis=1), 0.0)
        total += weight[:, None] * taken(x.values, rows)
        weights += weight
    return Rows(on, total / (weights + _NEAR)[:, None])


def prune(net, layer, x):
    key = ("pruned", x.on, layer["keep"], layer.get("top"))
    if key not in net.shared:
        logits = _logits(net, layer, "keep", x.on, 1).values[:, 0]
        stays = largest(x.on, logits, layer["top"]) if "top" in layer else logits > 0
        net.shared[key] = stays, sets.subset(x.on, stays)
    stays, on = net.shared[key]
    return Rows(on, x.values[stays])


def _logits(net, layer, key, on, channels):
    logits = net.find(layer[key], layer)
    if not logits.on.same(on) or logits.channels() != channels:
        raise ExportError(
            f"layer {layer['name']}: {key} {layer[key]} has {logits.channels()} channels; "
            f"expected {channels}, on the set of the input"
        )
    if np.isnan(logits.values).any():
        raise ExportError(f"layer {layer['name']}: a logit of {layer[key]} is not a number")
    return logits


# --- of a row, and of several tensors ---


def leaky_relu(net, layer, x):
    slope = layer.get("slope", 0.01)
    return Rows(x.on, np.where(x.values < 0, x.values * slope, x.values))


def affine(net, layer, x):
    return Rows(x.on, x.values * layer.get("scale", 1) + layer.get("shift", 0))


def add(net, layer, x, y):
    return Rows(x.on, x.values + _on_one(layer, x, y).values)


def mul(net, layer, x, y):
    return Rows(x.on, x.values * _on_one(layer, x, y).values)


def concat(net, layer, x, *more):
    parts = [x.values, *(_on_one(layer, x, y).values for y in more)]
    return Rows(x.on, np.concatenate(parts, axis=1))


# --- what only outputs read ---


def argmax(net, _layer, x):
    return Rows(x.on, np.argmax(x.values, axis=1).astype(np.int32)[:, None])


def to_dense(net, layer, x):
    shape = three(layer["shape"], 1) if "shape" in layer else x.on.shape
    if shape is None:
        raise ExportError(f"layer {layer['name']}: no shape, and its voxels have none")
    at = x.on.coords
    beyond = ((at[:, 1:] < 0) | (at[:, 1:] >= shape)).any(axis=1)
    if beyond.any():
        raise ExportError(
            f"layer {layer['name']}: voxel {at[beyond][0, 1:].tolist()} lies outside of the "
            f"shape {list(shape)}"
        )
    dense = np.zeros((net.samples, x.channels(), *shape))
    dense[at[:, 0], :, at[:, 1], at[:, 2], at[:, 3]] = x.values
    if layer.get("fold", False):
        dense = dense.reshape(net.samples, x.channels() * shape[0], *shape[1:])
    return Rows(None, dense)


def _on_one(layer, x, y):
    if not x.on.same(y.on):
        raise ExportError(f"layer {layer['name']}: its inputs lie on two sets of voxels")
    return y


OPS = {
    op.__name__: op
    for op in (
        add,
        affine,
        argmax,
        avg_pool,
        batch_norm,
        channel_to_space,
        concat,
        devoxelize,
        downsample,
        global_pool,
        group_norm,
        instance_norm,
        inverse_conv,
        layer_norm,
        leaky_relu,
        linear,
        max_pool,
        mul,
        prune,
        space_to_channel,
        sparse_conv,
        subm_conv,
        sum_pool,
        to_dense,
        transposed_conv,
        unpool,
        upsample,
        voxelize,
    )
}
