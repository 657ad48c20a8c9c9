"""TRELLIS and TRELLIS.2: SparseTensor, the convolutions of every backend, resampling, norms.

Sources: microsoft/TRELLIS, trellis/modules/{norm,sparse/}; microsoft/TRELLIS.2, trellis2/modules/
{norm,sparse/}.  Networks made of them (models/) are followed, wherever their files lie.

SPDX-License-Identifier: Apache-2.0
"""

import sys

import numpy as np

from ..axes import unless
from ..errors import ExportError
from ..functions import FUNCTIONS
from ..functions_channels import made_linear
from .base import Sparse, four_columns
from .flexgemm import FlexGemm
from .resample import Resample, parents
from .spconv import Spconv
from .torchsparse import TorchSparse

_PACKAGES = ("trellis", "trellis2")
_SPARSE = ".modules.sparse"
_ABSENT = 100.0  # exp(-100) is 0 beside 1
_OPERATORS = "__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__".split()


class Trellis(Resample):
    """A trace of modules of either TRELLIS.

    A SparseConv3d calls another library unless its backend is flex_gemm: then a trace of that
    library, which knows the same sets, adds the layer.
    """

    name = "TRELLIS"
    through = frozenset(
        "LayerNorm32 GroupNorm32 SparseLinear SparseReLU SparseSiLU SparseGELU SparseActivation "
        "SparseFeedForwardNet SparseTransformerBlock SparseTransformerCrossBlock "
        "ModulatedSparseTransformerBlock ModulatedSparseTransformerCrossBlock".split()
    )
    backends = (Spconv, TorchSparse)
    makers = {
        **Resample.resamplers,
        "SparseConv3d": "_conv",
        "SparseInverseConv3d": "_conv",
        "SparseSubdivide": "_subdivide",
        "SparseGroupNorm": "_group_norm",
        "SparseLayerNorm": "_layer_norm",
    }

    def __init__(self):
        super().__init__()
        self._inner = [kind() for kind in self.backends]
        self._functions = FlexGemm()
        for library in [*self._inner, self._functions]:
            library.coords = self.coords

    @classmethod
    def owns(cls, kind):
        """Also of copies of the repository within another package, as plug-ins have them."""
        parts = kind.__module__.split(".")
        return any(
            part in _PACKAGES and parts[i + 1 : i + 2] == ["modules"]
            for i, part in enumerate(parts)
        )

    def sparse(self, thing):
        if type(thing).__name__ != "SparseTensor" or not self.owns(type(thing)):
            return None
        coords = thing.coords.detach().cpu().numpy()
        return Sparse(thing.feats, four_columns(coords), axes=coords.shape[1] - 1)

    def rebuilt(self, thing, feats, coords, samples):
        del samples
        at = coords[:, : thing.coords.shape[1]].to(thing.coords.dtype).contiguous()
        return type(thing)(feats=feats, coords=at)

    def methods(self, trace):
        """A tensor beside a sparse tensor: TRELLIS repeats it for each voxel of a sample."""
        kinds = {
            kind
            for module in trace.net.modules()
            for kind in [_tensor_class(type(module))]
            if kind is not None
        }
        added = [
            (kind, name, _operator(name))
            for kind in kinds
            for name in _OPERATORS
            if hasattr(kind, name)
        ]
        for library in [*self._inner, self._functions]:
            added += library.methods(trace) if library.imported() else []
        return added

    def wrapped(self, trace):
        there = [library for library in self._inner if library.imported()]
        return [one for library in there for one in library.wrapped(trace)]

    def cache(self, tensor, kind, factor):
        found = tensor.get_spatial_cache(f"{kind}_{factor}")
        if found is None:  # the first TRELLIS has a factor for each axis
            each = factor if isinstance(factor, tuple) else (factor,) * 3
            found = tensor.get_spatial_cache(f"{kind}_{each}_idx")
        return found

    # --- modules ---

    def _conv(self, trace, module, args, kwargs, result):
        inner = getattr(module, "conv", None)
        if inner is None and getattr(module, "weight", None) is not None:
            self._flex_gemm(trace, module, args, result)
            return
        for library in self._inner:
            make = library.module(inner) if inner is not None else None
            if library.owns(type(inner)) and make is not None:
                self._read(trace, args[0], module)
                make(trace, inner, (args[0].data,), kwargs, result.data)
                value = trace.value(result.feats)
                self._first.setdefault(value.on, value.layer)
                return
        backend = "none" if inner is None else type(inner).__module__.split(".")[0]
        raise ExportError(
            f"{type(module).__name__} {trace.said()} has the backend {backend}; expected one of "
            f"flex_gemm, {', '.join(library.name for library in self._inner)}"
        )

    def _flex_gemm(self, trace, module, args, result):
        source = self._read(trace, args[0], module)
        name, weight = trace.constant(module.weight)
        if weight.ndim != 5:
            raise ExportError(f"{name} has shape {list(weight.shape)}; expected [Co, K, K, K, Ci]")
        tensors = {"weight": (name, weight)}
        if module.bias is not None:
            tensors["bias"] = trace.constant(module.bias)
        value = trace.network.add(
            "subm_conv",
            [source],
            trace.path,
            channels=int(weight.shape[0]),
            kernel=list(weight.shape[1:4]),
            dilation=unless(1, list(module.dilation)),
            bias=None if module.bias is not None else False,
            layout="flexgemm",
            tensors=tensors,
        )
        self._write(trace, value, result)

    def _downsample(self, trace, module, args, kwargs, result):
        """TRELLIS.2's mean is one.  The first TRELLIS divides the sum of n voxels by n + 1."""
        if hasattr(module, "mode"):
            super()._downsample(trace, module, args, kwargs, result)
            return
        source = self._read(trace, args[0], module)
        on, stride = parents(source.on, module.factor)
        children = on[2][0] * on[2][1] * on[2][2]
        summed = trace.network.add(
            "sum_pool",
            [source],
            f"{trace.path}.sum",
            on=on,
            kernel=stride,
            stride=stride,
            rule="floor",
        )
        share = self._one_of_n_plus_one(trace, source, on, stride, children)
        value = trace.network.add("mul", [summed, share], trace.path)
        self._write(trace, value, result)

    def _one_of_n_plus_one(self, trace, source, on, stride, children):
        """1 / (n + 1) in every channel: what a softmax of n + 1 equal logits gives each of them.

        Every child has a logit, -100 where there is no voxel, and one more is always there.
        """
        ones = made_linear(trace, source, [[0] * source.channels], "ones", bias=[1])
        there = trace.network.add(
            "space_to_channel",
            [ones],
            f"{trace.path}.children",
            channels=children,
            on=on,
            stride=stride,
        )
        logits = [
            [_ABSENT if row == child else 0 for child in range(children)]
            for row in range(children + 1)
        ]
        bias = [-_ABSENT] * children + [0]
        equal = made_linear(trace, there, logits, "logits", bias=bias)
        shares = trace.network.add("softmax", [equal], f"{trace.path}.shares")
        last = [[0] * children + [1]] * source.channels
        return made_linear(trace, shares, last, "share")

    def _subdivide(self, trace, module, args, kwargs, result):
        del kwargs
        source = self._read(trace, args[0], module)
        on = ("all children", source.on, 2)
        self._write(
            trace, trace.network.add("upsample", [source], trace.path, on=on, stride=2), result
        )

    def _group_norm(self, trace, module, args, kwargs, result):
        del kwargs
        source = self._read(trace, args[0], module)
        if (np.diff(self.sparse(args[0]).coords[:, 0]) < 0).any():
            raise ExportError(
                f"{type(module).__name__} {trace.said()} gets rows that are not sorted by sample, "
                "so that it mixes samples; expected those of each sample together"
            )
        tensors = {
            key: trace.constant(tensor)
            for key, tensor in (("weight", module.weight), ("bias", module.bias))
            if tensor is not None
        }
        value = trace.network.add(
            "group_norm",
            [source],
            trace.path,
            groups=int(module.num_groups),
            eps=float(module.eps),
            affine=None if tensors else False,
            tensors=tensors,
        )
        self._write(trace, value, result)

    def _layer_norm(self, trace, module, args, kwargs, result):
        del args, kwargs, result
        raise ExportError(
            f"{type(module).__name__} {trace.said()} takes its statistics over the voxels of a "
            "sample, whose number it fixes; expected LayerNorm32 on the features"
        )


def _tensor_class(kind):
    """The SparseTensor beside a class of modules, if that is TRELLIS's."""
    for base in kind.__mro__:
        if Trellis.owns(base) and _SPARSE in base.__module__:
            package = base.__module__[: base.__module__.index(_SPARSE) + len(_SPARSE)]
            return getattr(sys.modules.get(package), "SparseTensor", None)
    return None


def _operator(name):
    def added(trace, this, args, kwargs, result):
        del kwargs
        other = getattr(args[0], "feats", args[0])
        try:
            trace.bind(result.feats, FUNCTIONS[name](trace, this.feats, other))
        except ExportError as error:
            trace.refuse(result, f"{name} of a sparse tensor {trace.said()}: {error}")

    return added
