"""Builds a family's network, with the names and shapes of tensors that a library's modules have.

    net = Builder(Network(4), Random(), "spconv")
    x = net.relu(net.batch_norm(net.subm_conv(net.feats, "conv1.0", 16), "conv1.1", eps=1e-3))

Methods take Values and the module's name in the state_dict, and return Values (network.py).

SPDX-License-Identifier: Apache-2.0
"""

import numpy as np

from ..axes import three, unless
from ..errors import ExportError

LIBRARIES = ("spconv", "torchsparse", "minkowski", "flexgemm")

# Of the offsets of a kernel of V, so many have a neighbour on a surface: about V^(2/3).
_SURFACE = 2 / 3

# spconv 2.0 and 2.1 stored kernels of more offsets in another order (engine/README.md, "Layouts").
_SPCONV_OFFSETS = 32

_BATCH_NORM = {
    "weight": "scale",
    "bias": "shift",
    "running_mean": "mean",
    "running_var": "variance",
}


class Builder:
    """One network in the making.

    network  a Network
    tensors  Random or Checkpoint
    library  of LIBRARIES: whose modules the names and the shapes of weights are of
    """

    def __init__(self, network, tensors, library):
        if library not in LIBRARIES:
            raise ExportError(f'library "{library}"; expected one of {", ".join(LIBRARIES)}')
        self.network = network
        self.tensors = tensors
        self.library = library
        self.feats = network.feats
        self._read = {}  # a strided layer's name: the Value that it reads

    # --- convolutions ---

    def subm_conv(self, x, name, channels, kernel=3, *, bias=False, dilation=1, gain=1.0, axes=3):
        """A submanifold convolution: its result lies on the input's set.

        axes  2: the module has two axes, and its kernel is flat along the first of three
        """
        keys = {"kernel": three(kernel, 1), "dilation": unless(1, three(dilation, 1))}
        return self._conv("subm_conv", x, name, channels, keys, bias=bias, gain=gain, axes=axes)

    def sparse_conv(
        self, x, name, channels, kernel, stride, *, padding=0, rule="spconv", bias=False, axes=3
    ):
        """A strided convolution; `rule` says which voxels it makes (engine/README.md)."""
        keys = {"kernel": three(kernel, 1), **self._strided(x, kernel, stride, padding, rule)}
        value = self._conv("sparse_conv", x, name, channels, keys, bias=bias, axes=axes)
        self._read[value.layer] = x
        return value

    def inverse_conv(self, x, name, channels, of, *, bias=False):
        """Undoes the strided layer whose result is `of`, back to the set which that one reads."""
        kernel = self.network.layer(of.layer)["kernel"]
        keys = {"kernel": three(kernel, 1), "of": of.layer, "on": self._read[of.layer].on}
        return self._conv("inverse_conv", x, name, channels, keys, bias=bias)

    def transposed_conv(self, x, name, channels, kernel, stride, onto, *, bias=False):
        """A transposed convolution onto the set of the Value `onto`."""
        keys = {
            "kernel": three(kernel, 1),
            "stride": three(stride, 1),
            "onto": onto.layer,
            "on": onto.on,
        }
        return self._conv("transposed_conv", x, name, channels, keys, bias=bias)

    def max_pool(self, x, name, kernel, stride, *, padding=0, rule="spconv"):
        """The largest of the voxels that a kernel meets."""
        keys = {"kernel": three(kernel, 1), **self._strided(x, kernel, stride, padding, rule)}
        value = self.network.add("max_pool", [x], name, **keys)
        self._read[value.layer] = x
        return value

    # --- children ---

    def space_to_channel(self, x, name):
        """The 8 children of each parent as channels; a child that is not there is zeros."""
        on = (x.on, "floor", 2, 2, 2)
        return self.network.add(
            "space_to_channel", [x], name, channels=8 * x.channels, on=on, stride=2
        )

    def channel_to_space(self, x, name, occupancy=None):
        """The channels as 8 children of each voxel; there are those with logits above 0, or all."""
        if x.channels % 8:
            raise ExportError(
                f"{name}: {x.channels} channels are no 8 children; expected a multiple of 8"
            )
        return self._children("channel_to_space", x, name, x.channels // 8, occupancy)

    def upsample(self, x, name, occupancy=None):
        """Each voxel's channels for its 8 children: those with logits above 0, or all."""
        return self._children("upsample", x, name, x.channels, occupancy)

    # --- points ---

    def voxelize(self, x, name, *, stride=None, onto=None):
        """The mean of the points in each voxel: of a stride, or of the set of the Value `onto`."""
        if onto is not None:
            return self.network.add("voxelize", [x], name, onto=onto.layer, on=onto.on)
        stride = three(stride, 1)
        return self.network.add("voxelize", [x], name, stride=stride, on=(x.on, "floor", *stride))

    def devoxelize(self, x, name, onto, *, mode="trilinear"):
        """Back to the points, the set of the Value `onto`, from the voxels around each."""
        return self.network.add("devoxelize", [x], name, mode=mode, onto=onto.layer, on=onto.on)

    # --- of a row ---

    def fixed_linear(self, x, name, matrix):
        """A linear layer that is not trained: rows of x times a matrix [Co, Ci] of ours."""
        matrix = np.asarray(matrix, np.float32)
        return self.network.add(
            "linear",
            [x],
            name,
            channels=len(matrix),
            bias=False,
            tensors={"weight": (None, matrix)},
        )

    def linear(self, x, name, channels, *, bias=True, gain=1.0, own=True, kind="bias"):
        """A linear layer: the library's own, where it has one, or torch's nn.Linear.

        kind  of the bias, where it is random
        """
        inner = f"{name}.linear" if own and self.library == "minkowski" else name
        weight = self._take(f"{inner}.weight", (channels, x.channels), fan_in=x.channels, gain=gain)
        tensors = {"weight": weight}
        if bias:
            tensors["bias"] = self._take(f"{inner}.bias", (channels,), kind=kind)
        return self.network.add(
            "linear", [x], name, channels=channels, tensors=tensors, bias=None if bias else False
        )

    def batch_norm(self, x, name, *, eps=1e-5, gain=1.0):
        """Batch norm with the statistics of training."""
        inner = f"{name}.bn" if self.library == "minkowski" else name
        tensors = {
            key: self._take(f"{inner}.{key}", (x.channels,), kind=kind, gain=gain)
            for key, kind in _BATCH_NORM.items()
        }
        return self.network.add("batch_norm", [x], name, eps=float(eps), tensors=tensors)

    def norm(self, op, x, name, *, eps=1e-5, affine=True, gain=1.0, **keys):
        """layer_norm, group_norm (groups=) or instance_norm."""
        tensors = {}
        if affine:
            for key, kind in (("weight", "scale"), ("bias", "shift")):
                tensors[key] = self._take(f"{name}.{key}", (x.channels,), kind=kind, gain=gain)
        return self.network.add(
            op, [x], name, eps=float(eps), affine=None if affine else False, tensors=tensors, **keys
        )

    def activation(self, op, x, name=None, **keys):
        """relu, silu, gelu, sigmoid, tanh, softplus, leaky_relu (slope=), softmax, affine."""
        return self.network.add(op, [x], name or f"{x.layer}.{op}", **keys)

    def relu(self, x, name=None):
        """max(x, 0)."""
        return self.activation("relu", x, name)

    def add(self, x, y, name=None):
        """The sum of two results on one set."""
        return self.network.add("add", [x, y], name or f"{x.layer}.add")

    def concat(self, values, name):
        """Channels side by side."""
        return self.network.concat(list(values), name)

    # --- their parts ---

    def _strided(self, x, kernel, stride, padding, rule):
        """Keys of a layer that makes a set, and the set, equal for equal rules."""
        keys = {"stride": three(stride, 1), "rule": rule}
        if rule == "floor":
            return {**keys, "on": (x.on, rule, *keys["stride"])}
        if self.network.spatial_shape is None:
            raise ExportError('the rule "spconv" needs spatial_shape: voxels along the three axes')
        padding = three(padding, 0)
        on = (x.on, rule, *three(kernel, 1), *keys["stride"], *padding)
        return {**keys, "padding": unless(0, padding), "on": on}

    def _children(self, op, x, name, channels, occupancy):
        logits = occupancy.layer if occupancy else None
        keys = {"channels": channels, "on": (x.on, "children", 2, logits), "stride": 2}
        return self.network.add(op, [x], name, occupancy=logits, **keys)

    def _conv(self, op, x, name, channels, keys, *, bias, gain=1.0, axes=3):
        kernel = keys["kernel"]
        fan_in = x.channels * self._met(op, keys) ** _SURFACE
        if op == "inverse_conv":
            del keys["kernel"]  # layer `of` has it
        about = {"fan_in": fan_in, "gain": gain}
        if self.library == "spconv":
            weight, layout = self._spconv_weight(name, kernel, axes, x.channels, channels, about)
        else:
            weight = self._weight(name, kernel, x.channels, channels, fan_in, gain)
            layout = self.library
        tensors = {"weight": weight}
        if bias:
            shape = (1, channels) if self.library == "minkowski" else (channels,)
            tensors["bias"] = self._take(f"{name}.bias", shape, kind="bias")
        return self.network.add(
            op,
            [x],
            name,
            channels=channels,
            tensors=tensors,
            bias=None if bias else False,
            layout=layout,
            **keys,
        )

    def _met(self, op, keys):
        """Offsets of a kernel that can meet a voxel: on the way up one in a block of the stride."""
        volume = float(np.prod(keys["kernel"]))
        if op not in ("inverse_conv", "transposed_conv"):
            return volume
        stride = (self.network.layer(keys["of"]) if op == "inverse_conv" else keys)["stride"]
        return max(1.0, volume / float(np.prod(three(stride, 1))))

    def _weight(self, name, kernel, ci, co, fan_in, gain):
        """(name, array) in the shape that the library's modules have it in."""
        if self.library == "flexgemm":
            name, shape = f"{name}.weight", (co, *kernel, ci)
        else:
            volume = int(np.prod(kernel))
            name, shape = f"{name}.kernel", (volume, ci, co) if volume > 1 else (ci, co)
        return self._take(name, shape, fan_in=fan_in, gain=gain)

    def _spconv_weight(self, name, kernel, axes, ci, co, about):
        """(name, array), layout: spconv 2's, or that of spconv 1 and 2.0 in older checkpoints."""
        sizes, flat = kernel[3 - axes :], [1] * (3 - axes)
        shapes = {"spconv": (co, *sizes, ci), "xyzio": (*sizes, ci, co)}
        if np.prod(kernel) > _SPCONV_OFFSETS:
            shapes["xyzoi"] = (*sizes, co, ci)
        if flat:  # as the exporter writes it
            shapes["spconv of three axes"] = (co, *flat, *sizes, ci)
        layout = self.tensors.layout(f"{name}.weight", shapes)
        shape = shapes[layout]
        name, array = self._take(f"{name}.weight", shape, **about)
        layout = layout.partition(" ")[0]
        shape = (co, *flat, *sizes, ci) if layout == "spconv" else (*flat, *shape)
        return (name, array.reshape(shape)), layout

    def _take(self, name, shape, **about):
        return name, self.tensors.take(name, shape, **about)
