"""TorchSparse 1.4, 2.0 and 2.1: SparseTensor, its convolutions, norms and pools.

Source: TorchSparse 2.1.0, torchsparse/nn/functional/conv/{conv.py,conv_config.py,kmap/*},
torchsparse/backend/{others/sparsemapping_cuda.cu,hashmap/hashmap_cuda.cuh}; 1.4.0 and 2.0.0,
torchsparse/nn/functional/{conv,downsample}.py, torchsparse/nn/utils/kernel.py.

Which voxels a strided convolution makes is in torchsparse_rules.py; what spvnas does with points
is in torchsparse_points.py.

SPDX-License-Identifier: Apache-2.0
"""

import sys

import numpy as np
import torch

from ..errors import ExportError
from .base import Library, Sparse, four_columns
from .torchsparse_points import points_of
from .torchsparse_rules import UNBOUNDED, rule_of

_REFUSED = ("conv3d", "spcrop", "spvoxelize", "spdevoxelize")
_FUNCTIONAL = "torchsparse.nn.functional"


class TorchSparse(Library):
    """A trace of modules of TorchSparse.

    Tensors that come from each other share caches, and a transposed convolution finds there the
    map that it turns round: by the finer tensor stride, the kernel, the stride and the dilation.
    """

    name = "TorchSparse"
    packages = ("torchsparse",)
    through = frozenset(
        "BatchNorm ReLU LeakyReLU SiLU GlobalAvgPool GlobalMaxPool SparseConvBlock "
        "SparseConvTransposeBlock SparseResBlock SparseResNet SparseResNet21D SparseResUNet "
        "SparseResUNet42".split()
    )
    makers = {"Conv3d": "_conv", "GroupNorm": "_group_norm"}

    def __init__(self):
        super().__init__()
        self.shapes = {}  # of each set: voxels along three axes
        self._ranged = False  # whether they follow from a spatial_range of the input's tensor
        self._losing = set()  # sets that may have no voxel of a sample
        self._caches = {}  # id: caches, so that they stay alive
        self._maps = {}  # (id of caches, tensor stride, kernel, stride, dilation): a _Map

    def sparse(self, thing):
        names = {c.__name__ for c in type(thing).__mro__ if self.owns(c)}
        if not names & {"SparseTensor", "PointTensor"}:
            return None
        return Sparse(thing.F, coords_of(thing), _range(thing))

    def rebuilt(self, thing, feats, coords, samples):
        stride = getattr(thing, "stride", 1)
        if is_21(thing) or thing.C.shape[1] != 4:
            at = coords[:, : thing.C.shape[1]]
        else:
            steps = coords.new_tensor(getattr(thing, "stride", (1, 1, 1)))
            at = torch.cat([coords[:, 1:] * steps, coords[:, :1]], 1)
        at = at.to(thing.C.dtype).contiguous()
        if not any(c.__name__ == "SparseTensor" for c in type(thing).__mro__):
            return type(thing)(feats, at)
        if getattr(thing, "spatial_range", None) is None:
            return type(thing)(feats, at, stride)
        return type(thing)(feats, at, stride, (samples, *thing.spatial_range[1:]))

    def methods(self, trace):
        functional = sys.modules[_FUNCTIONAL]  # it is there, or there would be no module of it
        found = [(functional, name, _refusal(name)) for name in _REFUSED]
        found += [
            (sys.modules[name], "generative_add", _refusal("generative_add"))
            for name in ("torchsparse", "torchsparse.operators")
        ]
        found += [(functional, f"global_{mode}_pool", self._pool(mode)) for mode in ("avg", "max")]
        tensor = sys.modules["torchsparse"].SparseTensor
        found.append((tensor, "dense", _refusal("dense", " as [sample, x, y, z, channel]")))
        return [
            one
            for one in [*found, *points_of(self, trace)]
            if hasattr(one[0], one[1])  # what a version lacks
        ]

    # --- modules ---

    def _conv(self, trace, module, args, kwargs, result):
        given = args[0] if args else kwargs["input"]
        source = self.source(trace, given, module)
        keys = {
            "channels": int(module.out_channels),
            "bias": None if module.bias is not None else False,
            "layout": "torchsparse",
            "tensors": {"weight": trace.constant(module.kernel)},
        }
        if module.bias is not None:
            keys["tensors"]["bias"] = trace.constant(module.bias)
        size, stride = list(module.kernel_size), list(module.stride)
        if size == stride == [1, 1, 1]:  # the library multiplies, whatever else the module says
            value = trace.network.add("subm_conv", [source], trace.path, kernel=1, **keys)
        elif getattr(module, "generative", False):
            raise ExportError(f"{said(trace, module)} is generative, which no layer does")
        elif module.transposed:
            value = self._transposed(trace, module, source, keys, result)
        else:
            value = self._forth(trace, module, given, source, keys, result)
        self.finish(trace, value, result)

    def _group_norm(self, trace, module, args, kwargs, result):
        """Over all rows of a sample, in groups of channels."""
        given = args[0] if args else kwargs["input"]
        tensors = {}
        if module.affine:
            tensors = {key: trace.constant(getattr(module, key)) for key in ("weight", "bias")}
        value = trace.network.add(
            "group_norm",
            [self.source(trace, given, module)],
            trace.path,
            groups=int(module.num_groups),
            eps=float(module.eps),
            affine=None if module.affine else False,
            tensors=tensors,
        )
        self.finish(trace, value, result)

    def _pool(self, mode):
        def added(trace, tensor, args, kwargs, result):
            del args, kwargs
            source = trace.value(tensor.F, f"global_{mode}_pool {trace.said()}")
            # Pools of sets that have all samples share their voxels.
            on = ("global", source.on if source.on in self._losing else None)
            self.remember(on, np.array([[b, 0, 0, 0] for b in range(len(result))], np.int32))
            value = trace.network.add(
                "global_pool", [source], trace.place("global_pool"), on=on, mode=mode
            )
            trace.bind(result, value)

        return added

    # --- their parts ---

    def _forth(self, trace, module, given, source, keys, result):
        """A layer on the same voxels, or on those that its stride makes."""
        rule = rule_of(trace, module, given, self._ranged)
        keys.update(rule.keys)
        key = self._map_key(given, tuple(given.stride), module)
        known, padding = self._maps.get(key), rule.keys.get("padding")
        if known is not None and known.padding != padding:  # it is not part of the key
            raise ExportError(
                f"{said(trace, module)} has padding {padding or 0}, but TorchSparse gives it the "
                f"map of {known.layer}, with padding {known.padding or 0}"
            )
        if rule.op == "subm_conv":
            value = trace.network.add(rule.op, [source], trace.path, **keys)
        elif all(step == 1 for step in module.stride):
            # An even kernel keeps its voxels, but is no subm_conv: its set is another one.
            made = trace.network.add(rule.op, [source], trace.path, on=("same", source.on), **keys)
            value = trace.network.add(
                "upsample", [made], f"{trace.path}.same", on=source.on, stride=1, onto=source.layer
            )
        else:
            value = self._make_set(trace, module, source, rule, keys, result)
        self._maps.setdefault(key, _Map(value.layer, source.on, padding))
        return value

    def _make_set(self, trace, module, source, rule, keys, result):
        shape = self.shapes.setdefault(source.on, UNBOUNDED)
        rule.expect(trace, module, self.coords[source.on], shape, coords_of(result))
        if rule.keys["rule"] == "spconv" and trace.network.spatial_shape is None:
            trace.network.spatial_shape = list(self.shapes.setdefault(0, UNBOUNDED))
        on = ("made", source.on, *(str(keys.get(key)) for key in rule.keys))
        self.shapes.setdefault(on, rule.shape(shape))
        if rule.keys["rule"] == "spconv" or source.on in self._losing:
            self._losing.add(on)
        return trace.network.add(rule.op, [source], trace.path, on=on, **keys)

    def _transposed(self, trace, module, source, keys, result):
        known = self._maps.get(self._map_key(result, tuple(result.stride), module))
        if known is None:
            raise ExportError(
                f"{said(trace, module)} undoes a convolution of kernel "
                f"{list(module.kernel_size)} and stride {list(module.stride)} to tensor stride "
                f"{list(result.stride)}, which no layer before it is"
            )
        if all(step == 1 for step in module.stride):
            raise ExportError(f"{said(trace, module)} is transposed without a stride")
        return trace.network.add(
            "inverse_conv", [source], trace.path, on=known.on, of=known.layer, **keys
        )

    def _map_key(self, tensor, stride, module):
        caches = tensor._caches if is_21(tensor) else tensor.kmaps
        self._caches[id(caches)] = caches
        return (
            id(caches),
            stride,
            tuple(module.kernel_size),
            tuple(module.stride),
            str(module.dilation),
        )

    def source(self, trace, given, module):
        """The Value of a sparse tensor that a module reads."""
        source = trace.value(given.F, said(trace, module))
        if source.on == 0 and 0 not in self.shapes and _range(given) is not None:
            self.shapes[0], self._ranged = _range(given), True
        self.reads(source, coords_of(given), f"{said(trace, module)}, which")
        return source

    def finish(self, trace, value, result):
        """Says what layer a sparse tensor is the result of."""
        self.remember(value.on, coords_of(result))
        trace.bind(result.F, value)


class _Map:
    """layer  that has the map; on: the set it reads; padding: None where it follows."""

    def __init__(self, layer, on, padding):
        self.layer, self.on, self.padding = layer, on, padding


def said(trace, module):
    return f"{type(module).__name__} {trace.said()}"


def is_21(tensor):
    """Whether a tensor is of TorchSparse 2.1, which counts voxels of each set."""
    return hasattr(tensor, "_caches")


def coords_of(tensor):
    """int32 [N, 4], the sample first, in voxels of the tensor's own set."""
    array = tensor.C.detach().cpu().numpy()
    if is_21(tensor) or array.shape[1] != 4:
        return four_columns(array)
    coords = four_columns(array[:, [3, 0, 1, 2]])
    coords[:, 1:] //= np.array(getattr(tensor, "stride", (1, 1, 1)), np.int32)
    return coords


def _range(tensor):
    shape = getattr(tensor, "spatial_range", None)
    return None if shape is None else [int(size) for size in shape[1:4]]


def _refusal(name, how=""):
    def added(trace, this, args, kwargs, result):
        del this, args, kwargs
        trace.refuse(result, f"TorchSparse's {name}(){how} {trace.said()}, which no layer does")

    return added
