"""Functions of torch and the layers that they are.

A function gets the Trace and torch's arguments, adds its layer and returns its Value.  It is found
by torch's name of it, which is the same for the function, the method and the operator.  What a
layer does is in engine/README.md; ExportError says what of the function no layer does.

SPDX-License-Identifier: Apache-2.0
"""

import numpy as np
import torch

from .errors import ExportError
from .network import Value

FUNCTIONS = {}

# They say something of a tensor, or give it to somebody, and make no features.
READ_ONLY = frozenset(
    "__get__ dim size numel is_contiguous data_ptr element_size stride is_floating_point "
    "__len__ __repr__ __format__ tolist item equal allclose is_same_size record_stream get_device "
    "untyped_storage storage __hash__ isnan isinf isfinite any all zeros_like ones_like empty_like "
    "new_zeros new_ones new_empty new_tensor has_names is_complex".split()
)


# What no layer does, and the nearest that one does, to train the network with.  The names
# are torch's functions', which its modules call: hardtanh is nn.ReLU6's.
NEAREST = {
    "relu6": "relu",
    "hardtanh": "relu (of nn.ReLU6) or tanh",
    "clamp": "relu",
    "clamp_min": "relu",
    "clip": "relu",
    "threshold": "relu",
    "elu": "leaky_relu",
    "celu": "leaky_relu",
    "selu": "leaky_relu",
    "prelu": "leaky_relu of one fixed slope",
    "rrelu": "leaky_relu",
    "hardswish": "silu",
    "mish": "silu",
    "hardsigmoid": "sigmoid",
    "softsign": "tanh",
    "logsigmoid": "softplus, as -softplus(-x) is the same",
    "log_softmax": "softmax",
    "glu": "chunk, sigmoid and mul, which are the same",
}


def no_layer(name):
    """Why a function of torch is refused."""
    near = NEAREST.get(name.rstrip("_"))
    return f"which no layer does{f'; the nearest that is served is {near}' if near else ''}"


def function(*names):
    """Says which functions of torch a Python function below is."""

    def add(make):
        FUNCTIONS.update(dict.fromkeys(names, make))
        return make

    return add


def _is_scalar(thing):
    return isinstance(thing, (int, float)) or (isinstance(thing, torch.Tensor) and thing.dim() == 0)


def _rows(trace, tensor):
    """The Value of a tensor of features, which is a matrix of rows."""
    value = trace.value(tensor, "it")
    if value.kind == "rows" and tensor.dim() != 2:
        raise ExportError(f"its tensor has shape {tuple(tensor.shape)}, expected [rows, channels]")
    return value


def _channels(trace, tensor, count, key):
    """A constant with a number for each channel."""
    if not trace.is_constant(tensor) or tensor.numel() != count:
        raise ExportError(
            f"{key} is a tensor of shape {tuple(tensor.shape)}, which is not a parameter or "
            f"buffer with {count} numbers, one for each channel"
        )
    name, array = trace.constant(tensor)
    return name, array.reshape(count)


# --- the same features ---


@function(
    "contiguous",
    "clone",
    "detach",
    "float",
    "half",
    "bfloat16",
    "double",
    "to",
    "requires_grad_",
    "alias",
    "cuda",
    "cpu",
    "type",
    "type_as",
    "dropout",
    "dropout_",
    "alpha_dropout",
    "feature_dropout",
    "dropout1d",
)
def _same(trace, x, *_args, training=False, **_kwargs):
    if training:
        raise ExportError(
            "dropout is on: call eval() on the network, and give a dropout that its forward calls "
            "as a function training=self.training"
        )
    return trace.value(x, "it")


def _view(name):
    """A tensor seen with another shape: the same rows, or each row as [a, b]."""

    def make(trace, x, *args, **kwargs):
        value, rows = trace.value(x, "it"), x.shape[0]
        if any(isinstance(thing, torch.dtype) for thing in (*args, *kwargs.values())):
            raise ExportError("it reads the bytes of its numbers as another type")
        # What the arguments mean is torch's to say: dims by name, from the end, sizes of -1.
        seen = tuple(getattr(torch.empty(x.shape, device="meta"), name)(*args, **kwargs).shape)
        if value.kind == "dense":
            return value if seen == x.shape else trace.library.dense_view(trace, value, x, seen)
        if seen == (rows, value.channels) or (value.channels == 1 and seen == (rows,)):
            made = Value(value.layer, value.channels, value.on)
            return made if value.kind == "blocks" else value
        if value.kind == "rows" and len(seen) == 3 and seen[0] == rows and name != "unsqueeze":
            return Value(value.layer, value.channels, value.on, "blocks", parts=seen[1:])
        raise ExportError(f"it makes shape {seen} of {tuple(x.shape)}")

    return make


_VIEWS = "view reshape flatten unflatten squeeze unsqueeze view_as reshape_as"
for _name in _VIEWS.split():
    function(_name)(_view(_name))


# --- one tensor ---


def _simple(op):
    def make(trace, x, *_args, **_kwargs):
        return trace.network.add(op, [_rows(trace, x)], trace.place(op))

    return make


for _op in ("relu", "silu", "sigmoid", "tanh"):
    function(_op, _op + "_")(_simple(_op))


@function("gelu")
def _gelu(trace, x, approximate="none"):
    if approximate != "none":
        raise ExportError(f'approximate="{approximate}"; the nearest that is served is "none"')
    return trace.network.add("gelu", [_rows(trace, x)], trace.place("gelu"))


@function("leaky_relu", "leaky_relu_")
def _leaky_relu(trace, x, negative_slope=0.01, inplace=False):
    del inplace
    return trace.network.add(
        "leaky_relu", [_rows(trace, x)], trace.place("leaky_relu"), slope=float(negative_slope)
    )


@function("softplus")
def _softplus(trace, x, beta=1, threshold=20):
    if beta != 1 or threshold != 20:
        raise ExportError(f"beta {beta}, threshold {threshold}; expected 1 and 20")
    return trace.network.add("softplus", [_rows(trace, x)], trace.place("softplus"))


@function("softmax")
def _softmax(trace, x, dim=None, *_args, **_kwargs):
    if dim is None and x.dim() == 2:
        dim = 1  # as torch does
    if dim not in (1, -1):
        raise ExportError(f"dim {dim}; expected 1, over channels")
    return trace.network.add("softmax", [_rows(trace, x)], trace.place("softmax"))


@function("argmax")
def _argmax(trace, x, dim=None, keepdim=False):
    del keepdim
    if dim not in (1, -1):
        raise ExportError(f"dim {dim}; expected 1, over channels")
    return trace.network.add(
        "argmax", [_rows(trace, x)], trace.place("argmax"), channels=1, kind="labels"
    )


# --- with weights ---


@function("linear")
def _linear(trace, x, weight, bias=None):
    return linear(trace, x, weight, bias)


@function("matmul", "mm", "__matmul__")
def _matmul(trace, x, other):
    if not trace.is_constant(other):
        raise ExportError("it multiplies by a tensor that is not a parameter")
    return linear(trace, x, other, None, transposed=True)


@function("addmm")
def _addmm(trace, bias, x, weight, beta=1, alpha=1):
    if beta != 1 or alpha != 1 or not trace.is_constant(weight):
        raise ExportError("it is not the product with a parameter plus a bias")
    return linear(trace, x, weight, bias, transposed=True)


def linear(trace, x, weight, bias, transposed=False):
    """A linear layer; `transposed`: weight is [Ci, Co]."""
    source, wanted = _rows(trace, x), trace.place("linear")
    for tensor in (weight, bias):
        if tensor is not None and not trace.is_constant(tensor):
            raise ExportError("its weight or bias is not a parameter of the network")
    name, array = trace.constant(weight)
    if transposed:
        name, array = None, np.ascontiguousarray(array.T)
    tensors = {"weight": (name, array)}
    if bias is not None:
        tensors["bias"] = _channels(trace, bias, array.shape[0], "bias")
    return trace.network.add(
        "linear",
        [source],
        wanted,
        channels=int(array.shape[0]),
        tensors=tensors,
        bias=None if bias is not None else False,
    )


def _norm(trace, op, x, tensors, eps, **keys):
    source = _rows(trace, x)
    given = {
        key: _channels(trace, tensor, source.channels, key)
        for key, tensor in tensors.items()
        if tensor is not None
    }
    if "weight" in given and "bias" not in given:
        given["bias"] = (None, np.zeros(source.channels, np.float32))
    return trace.network.add(
        op,
        [source],
        trace.place(op),
        tensors=given,
        eps=float(eps),
        affine=None if "weight" in given else False,
        **keys,
    )


@function("batch_norm")
def _batch_norm(
    trace,
    x,
    running_mean,
    running_var,
    weight=None,
    bias=None,
    training=False,
    momentum=0.1,
    eps=1e-5,
):
    del momentum
    if running_mean is None or running_var is None:
        raise ExportError(
            "it has no running statistics (track_running_stats=False), and uses those of the batch "
            "in eval() mode, too, which no layer does: train with running statistics"
        )
    if training:
        raise ExportError(
            "it uses the statistics of the batch: call eval() on the network, and give a "
            "batch_norm that its forward calls as a function training=self.training"
        )
    return _norm(
        trace,
        "batch_norm",
        x,
        {"weight": weight, "bias": bias, "running_mean": running_mean, "running_var": running_var},
        eps,
    )


@function("layer_norm")
def _layer_norm(trace, x, normalized_shape, weight=None, bias=None, eps=1e-5):
    channels = _rows(trace, x).channels
    if tuple(normalized_shape) != (channels,):
        raise ExportError(f"normalized_shape {tuple(normalized_shape)}; expected ({channels},)")
    return _norm(trace, "layer_norm", x, {"weight": weight, "bias": bias}, eps)


@function("group_norm")
def _group_norm(trace, x, num_groups, weight=None, bias=None, eps=1e-5):
    if num_groups != 1:
        raise ExportError(
            f"it has {num_groups} groups of channels of each single row; expected 1, or a "
            "group norm of the sparse library, which is over all rows of a sample"
        )
    return _norm(trace, "layer_norm", x, {"weight": weight, "bias": bias}, eps)


# --- arithmetic ---


def _affine(trace, x, scale, shift, op):
    if scale == 1 and shift == 0:
        return _rows(trace, x)
    return trace.network.add(
        "affine",
        [_rows(trace, x)],
        trace.place(op),
        scale=None if scale == 1 else float(scale),
        shift=None if shift == 0 else float(shift),
    )


def _each(trace, tensor, count, key, change=None):
    """A number for each channel, or one for all; `change` makes others of them."""
    if trace.is_constant(tensor) and tensor.numel() == 1 != count:
        name, array = None, np.full(count, trace.constant(tensor)[1].reshape(()))
    else:
        name, array = _channels(trace, tensor, count, key)
    # Whole numbers have no reciprocals of their own type.
    return (None, change(array.astype(np.float32))) if change else (name, array)


def _per_channel(trace, x, scale, shift, op, change=None):
    """A factor or a summand for each channel: a batch_norm of mean 0 and variance 1.

    scale, shift  constants, or numbers; change: what is made of a constant's numbers
    """
    source = _rows(trace, x)
    count = source.channels
    fixed = {
        "running_mean": np.zeros(count, np.float32),
        "running_var": np.ones(count, np.float32),
        "weight": np.ones(count, np.float32),
        "bias": np.zeros(count, np.float32),
    }
    tensors = {key: (None, array) for key, array in fixed.items()}
    for key, given in (("weight", scale), ("bias", shift)):
        if _is_scalar(given):
            tensors[key] = None, np.full(count, float(given), np.float32)
        elif given is not None:
            tensors[key] = _each(trace, given, count, key, change)
    return trace.network.add("batch_norm", [source], trace.place(op), tensors=tensors, eps=0.0)


@function("add", "add_", "__radd__", "__add__", "__iadd__")
def _add(trace, x, other, alpha=1):
    if not isinstance(x, torch.Tensor) or trace.known(x) is None:
        x, other = other, x
    if _is_scalar(other):
        return _affine(trace, x, 1, float(other) * alpha, "add")
    if alpha != 1:
        raise ExportError(f"alpha {alpha}; expected 1")
    if trace.known(other) is None:
        return _per_channel(trace, x, None, other, "add")
    return trace.network.add("add", [_rows(trace, x), _rows(trace, other)], trace.place("add"))


@function("sub", "sub_", "__sub__", "__isub__")
def _sub(trace, x, other, alpha=1):
    if _is_scalar(other):
        return _affine(trace, x, 1, -float(other) * alpha, "sub")
    if alpha != 1:
        raise ExportError(f"alpha {alpha}; expected 1")
    if trace.known(x) is None:
        return _per_channel(trace, other, -1, x, "sub")
    if trace.known(other) is None:
        return _per_channel(trace, x, None, other, "sub", np.negative)
    minus = trace.network.add("affine", [_rows(trace, other)], trace.place("minus"), scale=-1.0)
    return trace.network.add("add", [_rows(trace, x), minus], trace.place("sub"))


@function("rsub", "__rsub__")
def _rsub(trace, x, other):
    if not _is_scalar(other):
        return _sub(trace, other, x)
    return _affine(trace, x, -1, float(other), "sub")


@function("neg", "neg_", "__neg__")
def _neg(trace, x):
    return _affine(trace, x, -1, 0, "neg")


@function("mul", "mul_", "multiply", "__mul__", "__rmul__", "__imul__")
def _mul(trace, x, other):
    if not isinstance(x, torch.Tensor) or trace.known(x) is None:
        x, other = other, x
    if _is_scalar(other):
        return _affine(trace, x, float(other), 0, "mul")
    if trace.known(other) is None:
        return _per_channel(trace, x, other, None, "mul")
    return trace.network.add("mul", [_rows(trace, x), _rows(trace, other)], trace.place("mul"))


@function("div", "div_", "true_divide", "__truediv__", "__itruediv__")
def _div(trace, x, other, rounding_mode=None):
    if rounding_mode:
        raise ExportError(f"rounding_mode {rounding_mode}; expected none")
    if _is_scalar(other):
        return _affine(trace, x, 1 / float(other), 0, "div")
    if trace.known(x) is None or trace.known(other) is not None:
        raise ExportError("it divides by features; expected a number, or a parameter or buffer")
    return _per_channel(trace, x, other, None, "div", np.reciprocal)


@function("cat", "concat", "concatenate")
def _cat(trace, tensors, dim=0):
    if dim not in (1, -1):
        raise ExportError(f"dim {dim}; expected 1, side by side")
    return trace.network.concat([_rows(trace, tensor) for tensor in tensors], trace.place("concat"))
