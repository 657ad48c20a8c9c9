"""The nodes of NVIDIA libspconv's ONNX as layers.

What its exporters write: SparseConvolution, with batch norm folded in and an activation inside,
Add or QuantAdd, Relu, ScatterDense, Transpose, Reshape.  A node is read strictly, because the proof
of a file without recorded answers compares with what was written here: an attribute that is not
known, a shape that does not follow, are errors and never a guess.

Source of the names: Lidar_AI_Solution, libraries/3DSparseConvolution (exporters and parser).

SPDX-License-Identifier: Apache-2.0
"""

import numpy as np

from .axes import unless
from .errors import ExportError

_INT8 = {"precision", "output_precision", "input_dynamic_range", "weight_dynamic_ranges"}
_INT8 |= {"input0_dynamic_range", "input1_dynamic_range"}
_SIZES = {"output_bound", "fixed_launch_points", "input_shape"}  # of memory, and of the example

_CONVOLUTION = {"ndim", "input_spatial_shape", "output_spatial_shape", "in_channels"}
_CONVOLUTION |= {"out_channels", "kernel_size", "stride", "dilation", "padding", "transposed"}
_CONVOLUTION |= {"inverse", "output_padding", "groups", "subm", "rulebook", "activation"}
_CONVOLUTION |= {"output_shape"}

# op: (what it is here, its attributes)
_OPS = {
    "SparseConvolution": ("convolution", _CONVOLUTION),
    "Add": ("add", set()),
    "QuantAdd": ("add", set()),
    "Relu": ("relu", set()),
    "ScatterDense": (
        "scatter",
        {"input_spatial_shape", "format", "output_shape", "output_layout"},
    ),
    "Transpose": ("transpose", {"dims"}),
    "Reshape": ("reshape", {"dims"}),
}
_ACTIVATIONS = {"None": None, "": None, "ReLU": "relu", "Sigmoid": "sigmoid"}

ONES = ("spconv", "oxyzi")  # how a weight of one offset may lie


class Dense:
    """A dense tensor [N, C, ...] in the making; it becomes a layer where it is an output.

    rows    the Value that is scattered
    order   which column of coords (0 to 2) each of its three axes is
    sizes   of these axes
    folded  whether channels and the first axis are one dimension
    """

    def __init__(self, rows, order, sizes, folded=False):
        self.rows, self.order, self.sizes, self.folded = rows, order, sizes, folded

    def shape(self):
        """Its dimensions behind the first."""
        if self.folded:
            return [self.rows.channels * self.sizes[0], *self.sizes[1:]]
        return [self.rows.channels, *self.sizes]


class Translation:
    """Adds the nodes of a Graph to a Network.

    columns  the order of the columns of coords that requests send, of the file's: [0, 1, 2]
    shape    voxels along the file's columns; None = what the nodes say
    ones     "spconv" or "oxyzi": how weights of one offset lie; None = not known
    """

    def __init__(self, graph, network, *, columns, shape=None, ones=None):
        self.graph, self.network = graph, network
        self.columns, self.ones = columns, ones
        self.given = shape is not None
        self.shapes = {0: list(shape)} if self.given else {}
        self.values = {graph.inputs[0][0]: network.feats}
        self._strided, self._submanifold = {}, {}
        self.int8 = 0

    def add(self, node):
        """Adds a node."""
        if node.op not in _OPS:
            raise ExportError(
                f"{node.said()} is no layer of voxeld's; expected one of {', '.join(_OPS)}"
            )
        method, known = _OPS[node.op]
        unknown = sorted(set(node.attributes) - known - _INT8 - _SIZES)
        if unknown:
            raise ExportError(
                f"{node.said()} has the attribute {unknown[0]}, whose meaning is not known here; "
                f"known are {', '.join(sorted(known | _INT8 | _SIZES))}"
            )
        self.int8 += bool(_ranges(node))
        if not node.outputs:
            raise ExportError(f"{node.said()} has no output")
        self.values[node.outputs[0]] = getattr(self, "_" + method)(node)

    def output(self, tensor, wanted):
        """Makes a tensor of the file an output; returns its name on the wire."""
        value = self.values[tensor]
        if isinstance(value, Dense):
            if list(value.order) != self.columns:
                raise ExportError(
                    f"the output {tensor} has the columns of coords in the order "
                    f"{list(value.order)}, another one in {self.columns}; choose one of them: "
                    'outputs={"' + tensor + '": "' + wanted + '"}'
                )
            value = self.network.add(
                "to_dense",
                [value.rows],
                f"{wanted}.dense",
                kind="dense",
                shape=list(value.sizes),
                fold=True if value.folded else None,
            )
        return self.network.output(value, wanted)

    # --- ops ---

    def _convolution(self, node):
        x, weight, *bias = _inputs(node, 2, 3)
        source = self._rows(node, x)
        kernel = _three(node, "kernel_size")
        keys = {
            "kernel": self._turned(kernel),
            "dilation": unless(1, self._turned(_three(node, "dilation", 1))),
        }
        for name, expected in (("ndim", 3), ("groups", 1), ("transposed", 0)):
            found = _integer(node, name, expected)
            if found != expected:
                raise ExportError(f"{node.said()} has {name} {found}; expected {expected}")
        if any(_three(node, "output_padding", 0)):
            raise ExportError(f"{node.said()} has output_padding; expected none")
        shape = self._shape_of(node, source.on)
        keys.update(self._tensors(node, source, kernel, weight, *bias))
        if _integer(node, "inverse", 0):
            value = self._inverse(node, source, kernel, keys)
        elif _integer(node, "subm", 0) or self._is_one(node):
            value = self._submanifold_of(node, source, keys)
        else:
            value = self._strided_of(node, source, shape, keys)
        self._compare(node, "output_spatial_shape", self.shapes[value.on])
        return self._activated(node, value)

    def _add(self, node):
        return self.network.add(
            "add", [self._rows(node, one) for one in _inputs(node, 2, 2)], _name(node)
        )

    def _relu(self, node):
        return self.network.add("relu", [self._rows(node, *_inputs(node, 1, 1))], _name(node))

    def _scatter(self, node):
        source = self._rows(node, *_inputs(node, 1, 1))
        shape = self._shape_of(node, source.on)
        for name, known in (("format", ("", "zyx", "xyz")), ("output_layout", ("", "NCHW"))):
            found = node.attributes.get(name, "")
            if found not in known:
                raise ExportError(
                    f'{node.said()} has {name} "{found}"; expected one of '
                    f"{', '.join(one for one in known if one)}"
                )
        dense = Dense(source, (0, 1, 2), shape)
        made = node.attributes.get("output_shape")
        if made and not self.given and list(made[1:]) != dense.shape():
            raise ExportError(
                f"{node.said()} has output_shape {list(made)}; expected [N, "
                f"{', '.join(map(str, dense.shape()))}]"
            )
        return dense

    def _transpose(self, node):
        dense = self._dense(node, *_inputs(node, 1, 1))
        dims = _permutation(node)
        if dense.folded or dims is None:
            raise ExportError(
                f"{node.said()} has dims {node.attributes.get('dims')}; expected an order of the "
                "three axes of voxels alone: [0, 1, ...], before a Reshape"
            )
        return Dense(
            dense.rows,
            tuple(dense.order[one] for one in dims),
            [dense.sizes[one] for one in dims],
        )

    def _reshape(self, node):
        dense = self._dense(node, *_inputs(node, 1, 1))
        dims = node.attributes.get("dims")
        folded = Dense(dense.rows, dense.order, dense.sizes, True)
        for made in (dense, folded):
            if isinstance(dims, list) and _fits(dims, made.shape()):
                return made
        raise ExportError(
            f"{node.said()} has dims {dims}; expected [N, {', '.join(map(str, dense.shape()))}], "
            f"or [N, {', '.join(map(str, folded.shape()))}]"
        )

    # --- kinds of convolutions ---

    def _submanifold_of(self, node, source, keys):
        if any(size % 2 == 0 for size in keys["kernel"]):
            raise ExportError(
                f"{node.said()} is submanifold with kernel {keys['kernel']}; expected odd sizes"
            )
        if any(step != 1 for step in _three(node, "stride", 1)):
            raise ExportError(f"{node.said()} is submanifold with a stride; expected 1")
        book = node.attributes.get("rulebook")
        if book:
            mine = source.on, keys["kernel"], keys["dilation"]
            first, theirs = self._submanifold.setdefault(book, (node, mine))
            if theirs != mine:
                raise ExportError(
                    f'{node.said()} and {first.said()} have one rulebook "{book}", but other '
                    "voxels or kernels: libspconv would use the pairs of the first for both"
                )
        return self.network.add("subm_conv", [source], _name(node), **keys)

    def _strided_of(self, node, source, shape, keys):
        stride, padding = _three(node, "stride", 1), _three(node, "padding", 0)
        kernel, dilation = _three(node, "kernel_size"), _three(node, "dilation", 1)
        on = ("spconv", source.on, *map(tuple, (kernel, stride, padding, dilation)))
        self.shapes[on] = [
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, s, p, d in zip(shape, kernel, stride, padding, dilation)
        ]
        if min(self.shapes[on]) < 1:
            raise ExportError(f"{node.said()} has a kernel larger than its voxels {shape}")
        value = self.network.add(
            "sparse_conv",
            [source],
            _name(node),
            on=on,
            rule="spconv",
            stride=self._turned(stride),
            padding=unless(0, self._turned(padding)),
            **keys,
        )
        if node.attributes.get("rulebook"):
            self._strided[node.attributes["rulebook"]] = (value, source, kernel)
        return value

    def _inverse(self, node, source, kernel, keys):
        book = node.attributes.get("rulebook")
        if book not in self._strided:
            raise ExportError(
                f'{node.said()} is inverse with rulebook "{book}", which no strided '
                "SparseConvolution above it has"
            )
        made, read, theirs = self._strided[book]
        if made.on != source.on or theirs != kernel:
            raise ExportError(
                f"{node.said()} undoes {made.layer} of kernel {theirs}; expected that kernel, and "
                "an input on the voxels which that one makes"
            )
        for name in ("kernel", "dilation"):
            keys.pop(name)
        return self.network.add(
            "inverse_conv", [source], _name(node), on=read.on, of=made.layer, **keys
        )

    def _is_one(self, node):
        return (_three(node, "kernel_size") == _three(node, "stride", 1) == [1, 1, 1]) and not any(
            _three(node, "padding", 0)
        )

    def _tensors(self, node, source, kernel, weight, bias=""):
        """Keys of a layer for its weight and bias."""
        array = self._initializer(node, weight)
        channels = int(array.shape[0]) if array.ndim == 5 else 0
        expected = [channels, *kernel, source.channels]
        if list(array.shape) != expected:
            raise ExportError(
                f"{node.said()}: {weight} has shape {list(array.shape)}; expected [Co, "
                f"{', '.join(map(str, expected[1:]))}]"
            )
        for name, found in (("in_channels", source.channels), ("out_channels", channels)):
            if _integer(node, name, found) != found:
                raise ExportError(
                    f"{node.said()} has {name} {node.attributes[name]}; its weight has {found}"
                )
        array = array.transpose(0, *(1 + column for column in self.columns), 4)
        tensors = {"weight": (weight, array)}
        if bias:
            tensors["bias"] = (bias, self._initializer(node, bias))
            if tensors["bias"][1].shape != (channels,):
                raise ExportError(
                    f"{node.said()}: {bias} has shape {list(tensors['bias'][1].shape)}; "
                    f"expected [{channels}]"
                )
        return {
            "channels": channels,
            "bias": None if bias else False,
            "layout": self._layout(node, array.shape),
            "tensors": tensors,
        }

    def _layout(self, node, shape):
        """A weight of one offset has the same shape in two orders: spconv 2 keeps (Ci, Co)."""
        same = int(np.prod(shape[1:4])) > 1 or 1 in (shape[0], shape[4])
        if same or max(_three(node, "stride", 1)) > 1:
            return "spconv"
        if self.ones is None:
            raise ExportError(
                f"{node.said()} has a kernel of one offset, whose weight {list(shape)} does not "
                'say in which order its numbers are: ones="spconv" if spconv 2 wrote the file '
                "(CenterPoint's exporter), ones=\"oxyzi\" if mmdetection3d did (BEVFusion's)"
            )
        return self.ones

    def _activated(self, node, value):
        kind = node.attributes.get("activation", "")
        if kind not in _ACTIVATIONS:
            raise ExportError(
                f'{node.said()} has the activation "{kind}"; expected one of '
                f"{', '.join(one for one in _ACTIVATIONS if one)}"
                + (", as no file says its slope" if kind == "LeakyReLU" else "")
            )
        if _ACTIVATIONS[kind] is None:
            return value
        return self.network.add(_ACTIVATIONS[kind], [value], f"{_name(node)}.act")

    # --- their inputs ---

    def _value(self, node, name):
        if name not in self.values:
            raise ExportError(
                f'{node.said()} reads "{name}", which no node above it makes, nor the input '
                f"{self.graph.inputs[0][0]}"
            )
        return self.values[name]

    def _rows(self, node, name):
        value = self._value(node, name)
        if isinstance(value, Dense):
            raise ExportError(f'{node.said()} reads the dense tensor "{name}", which no layer does')
        return value

    def _dense(self, node, name):
        value = self._value(node, name)
        if not isinstance(value, Dense):
            raise ExportError(f'{node.said()} reads "{name}"; expected what a ScatterDense makes')
        return value

    def _initializer(self, node, name):
        if name not in self.graph.tensors:
            raise ExportError(f"{node.said()}: the file has no tensor {name}")
        return self.graph.tensors[name].array()

    def _turned(self, numbers):
        return [numbers[column] for column in self.columns]

    def _shape_of(self, node, on):
        """The voxels along the columns of a set; the first node on the request's says it."""
        if on not in self.shapes:
            if "input_spatial_shape" not in node.attributes:
                raise ExportError(
                    f"{node.said()} has no input_spatial_shape: give it (spatial_shape=), voxels "
                    "along columns 1 to 3 of coords"
                )
            self.shapes[on] = _three(node, "input_spatial_shape")
        self._compare(node, "input_spatial_shape", self.shapes[on])
        if self.network.spatial_shape is None:
            self.network.spatial_shape = self._turned(self.shapes[0])
        return self.shapes[on]

    def _compare(self, node, name, shape):
        if name in node.attributes and not self.given and _three(node, name) != shape:
            raise ExportError(
                f"{node.said()} has {name} {_three(node, name)}; expected {shape}, which follows "
                "from the nodes above it"
            )


def columns_of(nodes):
    """The order of columns in which the dense outputs need the coordinates."""
    found, first = [0, 1, 2], None
    for node in nodes:
        if node.op != "Transpose":
            continue
        order = _permutation(node)
        if order is None:  # Translation refuses it
            continue
        if first is not None and order != found:
            raise ExportError(
                f"{node.said()} and {first.said()} have dims {node.attributes['dims']} and "
                f"{first.attributes['dims']}; expected one order of axes in a network"
            )
        found, first = order, node
    return found


def _permutation(node):
    """Which axis of voxels each one of a Transpose is; None if it moves other dimensions."""
    dims = node.attributes.get("dims")
    if isinstance(dims, list) and sorted(map(str, dims)) == list("01234") and dims[:2] == [0, 1]:
        return [one - 2 for one in dims[2:]]
    return None


def _fits(dims, shape):
    """Whether dims of a Reshape make [N, *shape]; the first is of the example's samples."""
    if len(dims) != len(shape) + 1 or dims.count(-1) > 1:
        return False
    return all(found in (-1, size) for found, size in zip(dims[1:], shape))


def _ranges(node):
    """Attributes of INT8 that say something."""
    return [
        name
        for name in _INT8 & set(node.attributes)
        if node.attributes[name] not in ("fp16", "", None, [], 0.0)
    ]


def _name(node):
    return node.name or f"{node.op}_{node.outputs[0]}"


def _inputs(node, least, most):
    names = list(node.inputs)
    while len(names) > least and not names[-1]:
        names.pop()
    if not least <= len(names) <= most:
        raise ExportError(f"{node.said()} has {len(names)} inputs; expected {least} to {most}")
    return names


# The least and the largest number along an axis, as network.json has them.
_LIMITS = {
    "kernel_size": (1, 343),
    "stride": (1, 64),
    "dilation": (1, 1024),
    "padding": (0, 351232),
    "output_padding": (0, 351232),
    "input_spatial_shape": (1, 1 << 17),
    "output_spatial_shape": (1, 1 << 17),
}


def _three(node, name, default=None):
    """An attribute of three axes."""
    found = node.attributes.get(name, default)
    if found is None:
        raise ExportError(f"{node.said()} has no attribute {name}")
    if isinstance(found, int):
        found = [found] * 3
    least, most = _LIMITS[name]
    if (
        not isinstance(found, list)
        or len(found) != 3
        or not all(isinstance(one, int) and least <= one <= most for one in found)
    ):
        raise ExportError(
            f"{node.said()} has {name} {found}; expected three integers of {least} to {most}"
        )
    return found


def _integer(node, name, default):
    found = node.attributes.get(name, default)
    if not isinstance(found, int):
        raise ExportError(f"{node.said()} has {name} {found!r}; expected an integer")
    return found
