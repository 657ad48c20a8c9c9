"""spconv 2: SparseConvTensor, its convolutions and pools.

Source: spconv 2.3.8, spconv/pytorch/{core,conv,pool,modules,tables}.py.

SPDX-License-Identifier: Apache-2.0
"""

from math import gcd

import numpy as np

from ..axes import columns_note, three, unless
from ..errors import ExportError
from .base import Library, Sparse, four_columns

_ACTIVATIONS = {
    "ReLU": ("relu", False),
    "Sigmoid": ("sigmoid", False),
    "LeakyReLU": ("leaky_relu", True),
}


class Spconv(Library):
    """A trace of modules of spconv."""

    name = "spconv"
    packages = ("spconv",)
    through = frozenset(
        "SparseSequential SparseModule SparseBatchNorm SparseSyncBatchNorm SparseReLU "
        "SparseIdentity Identity AddTable JoinTable ConcatTable ToDense RemoveGrid "
        "PrintTensorMeta PrintCurrentTime".split()
    )
    makers = {
        "SparseConvolution": "_conv",
        "SparseMaxPool": "_pool",
        "SparseAvgPool": "_pool",
        "SparseGlobalMaxOrAvgPool": "_global_pool",
    }

    def __init__(self):
        super().__init__()
        self._strided = {}  # indice_key: (layer, the set it reads)
        self._shapes = {}  # of each set: spatial_shape
        self._finer = {}  # of each set behind a transposed convolution: what divides its shape

    def sparse(self, thing):
        if type(thing).__name__ != "SparseConvTensor" or not self.owns(type(thing)):
            return None
        return Sparse(
            thing.features,
            four_columns(thing.indices.cpu().numpy()),
            three(thing.spatial_shape, 1),
            len(thing.spatial_shape),
        )

    def rebuilt(self, thing, feats, coords, samples):
        indices = coords[:, : thing.indices.shape[1]].contiguous()
        more = samples - int(thing.indices[:, 0].max()) - 1  # than there are of which it has voxels
        return type(thing)(feats, indices, thing.spatial_shape, thing.batch_size + more)

    def wrapped(self, trace):
        from spconv.pytorch.conv import SparseConvolution

        return [(SparseConvolution, "forward", _on_a_cpu(trace))]

    def methods(self, trace):
        import spconv.pytorch  # it is there, or there would be no module of it

        return [(spconv.pytorch.SparseConvTensor, "dense", self._dense)]

    def dense_view(self, trace, value, x, shape):
        """[B, C, D, H, W] as [B, C * D, H, W]: bird's-eye view."""
        made = trace.network.layer(value.layer)
        if x.dim() == 5 and shape == (x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:]):
            source = trace.network.values[made["input"]]
            return trace.network.add(
                "to_dense",
                [source],
                trace.place("to_dense"),
                kind="dense",
                shape=made["shape"],
                fold=True,
            )
        return super().dense_view(trace, value, x, shape)

    # --- modules ---

    def _conv(self, trace, module, args, kwargs, result):
        del kwargs
        given = args[0]
        source = self._source(trace, given, module)
        keys = {
            "channels": int(module.out_channels),
            "bias": None if module.bias is not None else False,
            "layout": "spconv",
            "tensors": self._tensors(trace, module),
        }
        rule = {
            "kernel": three(module.kernel_size, 1),
            "dilation": unless(1, three(module.dilation, 1)),
        }
        if getattr(module, "inverse", False):
            value = self._inverse(trace, module, source, keys)
        elif getattr(module, "subm", False) or module.conv1x1:
            value = trace.network.add("subm_conv", [source], trace.path, **keys, **rule)
        elif getattr(module, "transposed", False):
            value = self._transposed(trace, module, source, {**keys, **rule})
        else:
            value = self._make_set(trace, "sparse_conv", module, given, {**keys, **rule})
        self._finish(trace, _activated(trace, module, value), result)

    def _pool(self, trace, module, args, kwargs, result):
        del kwargs
        if getattr(module, "subm", False):
            raise ExportError(
                f"{type(module).__name__} {trace.said()} is submanifold, which no layer does"
            )
        op = "avg_pool" if "Avg" in type(module).__name__ else "max_pool"
        rule = {
            "kernel": three(module.kernel_size, 1),
            "dilation": unless(1, three(module.dilation, 1)),
        }
        self._finish(trace, self._make_set(trace, op, module, args[0], rule), result)

    def _global_pool(self, trace, module, args, kwargs, result):
        del kwargs
        source = self._source(trace, args[0], module)
        on = ("global", source.on)
        self.remember(on, np.array([[b, 0, 0, 0] for b in range(args[0].batch_size)], np.int32))
        trace.bind(
            result,
            trace.network.add(
                "global_pool", [source], trace.path, on=on, mode="avg" if module.is_mean else "max"
            ),
        )

    def _dense(self, trace, tensor, args, kwargs, result):
        if not all(args) or not kwargs.get("channels_first", True):
            trace.refuse(result, f"dense(channels_first=False) {trace.said()}, which no layer does")
            return
        source = trace.value(tensor.features, f"dense() {trace.said()}")
        if source.on == 0:
            trace.network.takes(self.sparse(tensor))
        coords = four_columns(tensor.indices.cpu().numpy())
        self.reads(source, coords, f"dense() {trace.said()}, which")
        trace.bind(
            result,
            trace.network.add(
                "to_dense",
                [source],
                trace.place("to_dense"),
                kind="dense",
                shape=three(tensor.spatial_shape, 1),
            ),
        )

    # --- their parts ---

    def _source(self, trace, given, module):
        source = trace.value(given.features, f"{type(module).__name__} {trace.said()}")
        if source.on == 0:
            trace.network.takes(self.sparse(given))
        coords, axes = four_columns(given.indices.cpu().numpy()), given.indices.shape[1] - 1
        who = f"{type(module).__name__} {trace.said()}, which"
        self.reads(source, coords, who, columns_note(axes))
        return source

    def _finish(self, trace, value, result):
        self._shapes.setdefault(value.on, three(result.spatial_shape, 1))
        self.remember(value.on, four_columns(result.indices.cpu().numpy()))
        trace.bind(result.features, value)

    def _tensors(self, trace, module):
        name, weight = trace.constant(module.weight)
        kernel, co, ci = list(module.kernel_size), module.out_channels, module.in_channels
        if list(weight.shape) != [co, *kernel, ci]:
            raise ExportError(
                f"{name} has shape {list(weight.shape)}; expected {[co, *kernel, ci]}, "
                "as spconv 2.2 and newer store it"
            )
        tensors = {"weight": (name, weight.reshape(co, *three(kernel, 1), ci))}
        if module.bias is not None:
            tensors["bias"] = trace.constant(module.bias)
        return tensors

    def _make_set(self, trace, op, module, given, keys):
        """A layer whose voxels are those that any offset of its kernel meets."""
        source = self._source(trace, given, module)
        keys.update(stride=three(module.stride, 1), padding=unless(0, three(module.padding, 0)))
        shape = three(given.spatial_shape, 1)
        if shape != self._shapes.setdefault(source.on, shape):
            raise ExportError(
                f"{type(module).__name__} {trace.said()}, which gets spatial_shape {shape}; "
                f"expected {self._shapes[source.on]}, as before on these voxels"
            )
        if source.on == 0:
            trace.network.spatial_shape = shape
        if source.on in self._finer:
            return self._blocks(trace, op, module, source, keys)
        on = (
            "spconv",
            source.on,
            *(str(keys[key]) for key in ("kernel", "stride", "padding", "dilation")),
        )
        value = trace.network.add(op, [source], trace.path, on=on, rule="spconv", **keys)
        if module.indice_key is not None:
            self._strided[module.indice_key] = (value.layer, source.on)
        return value

    def _blocks(self, trace, op, module, source, keys):
        """A strided layer behind finer voxels, which have no spatial shape in voxeld.

        Of whole blocks spconv's rule keeps every voxel, as rule "floor" does, and needs no shape.
        """
        stride, divides = keys["stride"], self._finer[source.on]
        plain = keys["padding"] is None and keys["dilation"] is None
        even = not any(size % 2 for size in stride)
        whole = not any(of % size for of, size in zip(divides, stride))
        if keys["kernel"] != stride or not (plain and even and whole):
            raise ExportError(
                f"{type(module).__name__} {trace.said()} has kernel {keys['kernel']}, stride "
                f"{stride}, padding {three(module.padding, 0)} behind a transposed "
                "convolution: behind finer voxels there is no spatial shape, so that rule spconv "
                "cannot bound its voxels; expected a kernel that is the stride, even and divides "
                "that of the transposed convolution, without padding and dilation"
            )
        del keys["padding"], keys["dilation"]
        on = (source.on, "floor", *stride)
        value = trace.network.add(op, [source], trace.path, on=on, rule="floor", **keys)
        self._finer[on] = [of // size for of, size in zip(divides, stride)]
        if module.indice_key is not None:
            self._strided[module.indice_key] = (value.layer, source.on)
        if op == "max_pool":  # spconv's starts at 0, rule floor's does not
            value = trace.network.add("relu", [value], f"{trace.path}.relu")
        return value

    def _inverse(self, trace, module, source, keys):
        if module.indice_key not in self._strided:
            raise ExportError(
                f"{type(module).__name__} {trace.said()} undoes indice_key "
                f'"{module.indice_key}", which no strided layer before it has made'
            )
        layer, on = self._strided[module.indice_key]
        return trace.network.add("inverse_conv", [source], trace.path, on=on, of=layer, **keys)

    def _transposed(self, trace, module, source, keys):
        for key in ("padding", "output_padding"):
            if any(getattr(module, key, [0])):
                raise ExportError(
                    f"{type(module).__name__} {trace.said()} has {key} "
                    f"{getattr(module, key)}; expected 0 in a transposed convolution"
                )
        if any(size % 2 for size in module.kernel_size) or any(d != 1 for d in module.dilation):
            raise ExportError(
                f"{type(module).__name__} {trace.said()} has kernel {list(module.kernel_size)}, "
                f"dilation {list(module.dilation)}; expected an even kernel and dilation 1"
            )
        keys["stride"] = three(module.stride, 1)
        on = ("children", source.on, str(keys["kernel"]), str(keys["stride"]))
        # The shape is stride * the source's + kernel - stride.
        self._finer[on] = [gcd(*sizes) for sizes in zip(keys["stride"], keys["kernel"])]
        return trace.network.add("transposed_conv", [source], trace.path, on=on, **keys)


def _on_a_cpu(trace):
    """Convolutions with a bias run on a CPU in training mode: in eval() spconv asserts.

    The mode says there who adds the bias, the kernel or what is behind it, and nothing else: they
    have no statistics and no dropout.  What a class of the user's does around it keeps its mode.

    On one thread: with two, spconv 2.3.8 adds to the same rows from both at once, and what it
    answers differs from run to run (of 18,721 voxels 7 to 182 rows).
    """
    import torch

    def wrap(plain):
        def forward(module, *args, **kwargs):
            if module.weight.is_cuda:
                return plain(module, *args, **kwargs)
            if _activation(module) != "None_":
                raise ExportError(
                    f"{type(module).__name__} {trace.said()} has the activation "
                    f"{_activation(module)} fused into it, which spconv refuses on a CPU: export "
                    "on a GPU, or with act_type None_ and the activation as a module behind it"
                )
            mode, module.training = module.training, module.training or module.bias is not None
            threads = torch.get_num_threads()
            torch.set_num_threads(1)
            try:
                return plain(module, *args, **kwargs)
            finally:
                torch.set_num_threads(threads)
                module.training = mode

        return forward

    return wrap


def _activation(module):
    """The name of the activation that spconv fused into a convolution; "None_" if none is."""
    return getattr(getattr(module, "act_type", None), "name", "None_")


def _activated(trace, module, value):
    """The activation that spconv fused into a convolution."""
    kind = _activation(module)
    if kind == "None_":
        return value
    if kind not in _ACTIVATIONS:
        raise ExportError(
            f"{type(module).__name__} {trace.said()} has the activation {kind}; "
            f"expected one of {', '.join(_ACTIVATIONS)}"
        )
    op, sloped = _ACTIVATIONS[kind]
    return trace.network.add(
        op, [value], f"{trace.path}.act", slope=float(module.act_alpha) if sloped else None
    )
