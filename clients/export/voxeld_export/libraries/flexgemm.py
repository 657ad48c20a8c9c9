"""FlexGEMM: functions on features and coordinates, in networks that have no module of a library.

Source: JeffreyXiang/FlexGEMM, flex_gemm/ops/spconv/.  Users import its functions by name, so what
is watched is what they call: SubMConv3dFunction.apply and SparseConv3dFunction.apply.

SPDX-License-Identifier: Apache-2.0
"""

import sys

from ..axes import three, unless
from ..errors import ExportError
from .base import Library, four_columns


class FlexGemm(Library):
    """A trace of calls of FlexGEMM.  It has no sparse tensor: feats= and coords= say both."""

    name = "FlexGEMM"
    packages = ("flex_gemm",)
    functional = True

    def __init__(self):
        super().__init__()
        self._shapes = {}  # of each set, along three axes

    def methods(self, trace):
        ops = sys.modules["flex_gemm.ops.spconv"]
        return [
            (ops.SubMConv3dFunction, "apply", self._subm),
            (ops.SparseConv3dFunction, "apply", self._strided),
        ]

    def _subm(self, trace, feats, args, kwargs, result):
        coords, shape, _, weight, *more = _named(args, kwargs)
        bias, dilation = (*more, *(None, 1)[len(more) :])
        try:
            source = self._source(trace, feats, coords, shape)
            kernel, keys = _weights(trace, weight, bias)
            if any(size % 2 == 0 for size in kernel):
                raise ExportError(f"it has kernel {kernel}; expected odd sizes")
            keys["dilation"] = unless(1, three(dilation, 1))
            value = trace.network.add("subm_conv", [source], trace.place("subm_conv"), **keys)
            trace.bind(result[0], value)
        except ExportError as error:
            trace.refuse(result[0], f"FlexGEMM's submanifold convolution {trace.said()}: {error}")

    def _strided(self, trace, feats, args, kwargs, result):
        coords, shape, _, weight, *more = _named(args, kwargs)
        bias, given, stride, padding, dilation = (*more, *(None, None, 1, 0, 1)[len(more) :])
        try:
            source = self._source(trace, feats, coords, shape)
            kernel, keys = _weights(trace, weight, bias)
            if given is not None:
                raise ExportError("it is given out_coords, which no layer is")
            if source.on == 0:
                trace.network.spatial_shape = list(self._shapes[0])
            rule = [three(stride, 1), three(padding, 0), three(dilation, 1)]
            on = ("flexgemm", source.on, str(kernel), *map(str, rule))
            value = trace.network.add(
                "sparse_conv",
                [source],
                trace.place("sparse_conv"),
                on=on,
                rule="spconv",
                stride=rule[0],
                padding=unless(0, rule[1]),
                dilation=unless(1, rule[2]),
                **keys,
            )
            self._shapes[on] = tuple(
                (size + 2 * p - d * (k - 1) - 1) // s + 1
                for size, k, s, p, d in zip(self._shapes[source.on], kernel, *rule)
            )
            self.remember(on, four_columns(result[1].cpu().numpy()))
            trace.bind(result[0], value)
        except ExportError as error:
            trace.refuse(result[0], f"FlexGEMM's sparse convolution {trace.said()}: {error}")

    def _source(self, trace, feats, coords, shape):
        """Outside of its shape FlexGEMM looks for no neighbour, so shapes have to agree."""
        source = trace.value(feats, "it")
        shape = tuple(int(size) for size in tuple(shape)[2:])
        made = self._shapes.setdefault(source.on, shape)
        if source.on != 0 and made != shape:
            raise ExportError(f"its input has shape {shape}; expected {made}, what its layer makes")
        self.reads(source, four_columns(coords.cpu().numpy()), "it")
        return source


def _named(args, kwargs):
    if kwargs:
        raise ExportError("apply() of an autograd function has no named arguments")
    return args


def _weights(trace, weight, bias):
    """(kernel, keys) of [Co, K, K, K, Ci] and [Co]."""
    for tensor in (weight, bias):
        if tensor is not None and not trace.is_constant(tensor):
            raise ExportError("its weight or bias is not a parameter of the network")
    tensors = {"weight": trace.constant(weight)}
    if bias is not None:
        tensors["bias"] = trace.constant(bias)
    kernel = [int(size) for size in weight.shape[1:4]]
    return kernel, {
        "channels": int(weight.shape[0]),
        "kernel": kernel,
        "bias": None if bias is not None else False,
        "layout": "flexgemm",
        "tensors": tensors,
    }
