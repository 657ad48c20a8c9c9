"""Functions of torch that move, choose and average channels: linear layers that the exporter makes.

Their weights are 0, 1 and powers of two, which every datatype holds, so that nothing is rounded.
What averages by another number ends with an affine layer.

SPDX-License-Identifier: Apache-2.0
"""

import numpy as np
import torch

from .errors import ExportError
from .functions import _is_scalar, _rows, function
from .network import Value


def made_linear(trace, source, matrix, op, bias=None):
    """A linear layer with a matrix [Co, Ci] of the exporter's."""
    matrix = np.asarray(matrix, np.float32)
    tensors = {"weight": (None, matrix)}
    if bias is not None:
        tensors["bias"] = (None, np.asarray(bias, np.float32))
    return trace.network.add(
        "linear",
        [source],
        trace.place(op),
        channels=len(matrix),
        tensors=tensors,
        bias=None if bias is not None else False,
    )


def _chosen(trace, x, indices, op):
    """Some channels of x, in the order of their indices."""
    source, indices = _rows(trace, x), [int(i) for i in indices]
    if indices == list(range(source.channels)):
        return source
    if not indices:
        raise ExportError("it chooses no channel")
    return made_linear(trace, source, np.eye(source.channels)[indices], op)


def _over_channels(x, dim):
    if dim not in (1, -1) or x.dim() != 2:
        raise ExportError(f"dim {dim} of {tuple(x.shape)}; expected 1 of a matrix, over channels")


# --- choosing ---


@function("__getitem__")
def _getitem(trace, x, index):
    """x[:, 2:5], x[..., 0], x[:, [1, 3]]: all rows, some channels."""
    index = index if isinstance(index, tuple) else (index,)
    if index and index[0] is Ellipsis:
        index = (slice(None),) * (x.dim() - len(index) + 1) + index[1:]
    trace.value(x, "it")
    if None in [one for one in index if not isinstance(one, (torch.Tensor, np.ndarray))]:
        raise ExportError("it adds an axis; expected [rows, channels]")
    if x.dim() != 2 or len(index) > 2 or not index or index[0] != slice(None):
        raise ExportError("it chooses rows, not channels of all rows")
    channels = np.arange(x.shape[1])
    if len(index) == 2 and not isinstance(index[1], (slice, int, list, np.ndarray)):
        raise ExportError(f"it chooses channels by a {type(index[1]).__name__}")
    chosen = channels[index[1]] if len(index) == 2 else channels
    return _chosen(trace, x, np.atleast_1d(chosen), "channels")


@function("chunk")
def _chunk(trace, x, chunks, dim=0):
    _over_channels(x, dim)
    return [_chosen(trace, x, part, "chunk") for part in torch.arange(x.shape[1]).chunk(chunks)]


@function("split", "split_with_sizes")
def _split(trace, x, sizes, dim=0):
    _over_channels(x, dim)
    return [_chosen(trace, x, part, "split") for part in torch.arange(x.shape[1]).split(sizes)]


@function("narrow")
def _narrow(trace, x, dim, start, length):
    _over_channels(x, dim)
    return _chosen(trace, x, torch.arange(x.shape[1]).narrow(0, start, length), "narrow")


# --- repeating and averaging ---


@function("repeat_interleave")
def _repeat_interleave(trace, x, repeats, dim=None, *, output_size=None):
    del output_size
    _over_channels(x, dim)
    if not isinstance(repeats, int):
        raise ExportError(f"it repeats by a {type(repeats).__name__}; expected one number")
    return _chosen(trace, x, np.arange(x.shape[1]).repeat(repeats), "repeat")


@function("repeat", "tile")
def _repeat(trace, x, *repeats):
    repeats = tuple(repeats[0]) if len(repeats) == 1 and not _is_scalar(repeats[0]) else repeats
    if x.dim() != 2 or len(repeats) != 2 or repeats[0] != 1:
        raise ExportError(f"it repeats {repeats} times; expected (1, times), over channels")
    return _chosen(trace, x, np.tile(np.arange(x.shape[1]), repeats[1]), "repeat")


@function("mean")
def _mean(trace, x, dim=None, keepdim=False, **_kwargs):
    return _reduced(trace, x, dim, keepdim, "mean")


@function("sum")
def _sum(trace, x, dim=None, keepdim=False, **_kwargs):
    return _reduced(trace, x, dim, keepdim, "sum")


def _reduced(trace, x, dim, keepdim, op):
    """Over one axis of a row's blocks [a, b], or over all channels with keepdim."""
    value = trace.value(x, "it")
    dim = tuple(dim)[0] if isinstance(dim, (tuple, list)) and len(dim) == 1 else dim
    dim = dim + x.dim() if isinstance(dim, int) and dim < 0 else dim
    if value.kind == "blocks" and dim in (1, 2) and not keepdim:
        blocks = value.parts
    elif value.kind == "rows" and x.dim() == 2 and dim == 1 and keepdim:
        blocks, dim = (1, value.channels), 2
    else:
        raise ExportError(f"it reduces dim {dim} of {tuple(x.shape)}; expected one of channels")
    number = np.arange(value.channels).reshape(blocks)
    members = number if dim == 2 else number.T  # [out, summands]
    matrix = np.zeros((len(members), value.channels), np.float32)
    np.put_along_axis(matrix, members, 1, 1)
    count = members.shape[1] if op == "mean" else 1
    exact = count & (count - 1) == 0 and count <= 1 << 14  # down to where FP16 ends
    source = Value(value.layer, value.channels, value.on)
    made = made_linear(trace, source, matrix / count if exact else matrix, op)
    if exact:
        return made
    return trace.network.add("affine", [made], trace.place("mean"), scale=1 / count)


# --- masks ---


@function("gt", "__gt__", "greater")
def _gt(trace, x, other):
    """Which logits are above a number; a number but 0 is subtracted first."""
    if not isinstance(x, torch.Tensor) or not _is_scalar(other):
        raise ExportError("it does not compare features with a number")
    value = trace.value(x, "it")
    if float(other) != 0:
        value = trace.network.add("affine", [value], trace.place("above"), shift=-float(other))
    if value.kind != "rows":
        raise ExportError(f"it compares the {value.kind} of {value.layer}")
    return Value(value.layer, value.channels, value.on, "mask")
