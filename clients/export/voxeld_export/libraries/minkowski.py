"""MinkowskiEngine 0.5: SparseTensor, its convolutions, pools, broadcasts and norms.

Source: MinkowskiEngine 0.5.4, MinkowskiEngine/Minkowski{SparseTensor,Convolution,Channelwise-
Convolution,Pooling,Broadcast,Normalization,Ops,KernelGenerator}.py, src/coordinate_map_manager.cpp
and kernel_region.hpp.  Its files are modules of their own, so a class says it is of
MinkowskiConvolution, not of MinkowskiEngine.

SPDX-License-Identifier: Apache-2.0
"""

import numpy as np

from ..axes import three, unless
from ..errors import ExportError
from ..functions import FUNCTIONS
from .base import Library, Sparse, four_columns

_INSTANCE_EPS = 1e-8  # a number in MinkowskiInstanceNormFunction
_POOLS = {"AVG": "avg_pool", "SUM": "sum_pool", "MAX": "max_pool"}
_OPERATORS = ("add", "sub", "mul", "truediv")
_REFUSED = "slice cat_slice interpolate features_at_coordinates sparse splat".split()


class Minkowski(Library):
    """A trace of modules of MinkowskiEngine.

    A set of voxels is a coordinate map, which the library names by a key: by its stride, and by a
    word if there is another map of that stride.  So two ways to a stride lead to one map there.
    Where they are two sets in network.json, rows are brought to the first one (_finish).
    """

    name = "MinkowskiEngine"
    through = frozenset(
        "MinkowskiNetwork MinkowskiBatchNorm MinkowskiSyncBatchNorm MinkowskiLinear "
        "MinkowskiToFeature MinkowskiToDenseTensor MinkowskiStackCat MinkowskiStackSum "
        "MinkowskiStackMean MinkowskiStackVar BasicBlock Bottleneck SELayer SEBasicBlock "
        "SEBottleneck".split()
    )
    bases = frozenset(["MinkowskiNonlinearityBase"])
    makers = {
        "MinkowskiChannelwiseConvolution": "_channelwise",
        "MinkowskiConvolutionBase": "_conv",
        "MinkowskiPoolingTranspose": "_pool_back",
        "MinkowskiPoolingBase": "_pool",
        "MinkowskiGlobalPooling": "_global_pool",
        "MinkowskiBroadcastAddition": "_broadcast",
        "MinkowskiBroadcastMultiplication": "_broadcast",
        "MinkowskiBroadcastConcatenation": "_broadcast",
        "MinkowskiBroadcast": "_broadcast",
        "MinkowskiInstanceNorm": "_instance_norm",
        "MinkowskiPruning": "_prune",
    }

    def __init__(self):
        super().__init__()
        self._sets = {}  # key of a coordinate map: (set, a layer on it)
        self._pooled = {}  # set: a global pool of it

    @classmethod
    def owns(cls, kind):
        return kind.__module__.split(".")[0].startswith("Minkowski")

    def sparse(self, thing):
        if type(thing).__name__ != "SparseTensor" or not self.owns(type(thing)):
            return None
        if not self._sets:
            self._sets[_key(thing)] = (0, "feats")
        return Sparse(thing.F, _coords(thing), axes=thing.C.shape[1] - 1)

    def rebuilt(self, thing, feats, coords, samples):
        del samples
        at = coords[:, : thing.C.shape[1]] * coords.new_tensor([1, *thing.tensor_stride])
        return type(thing)(feats, coordinates=at, tensor_stride=thing.tensor_stride)

    def methods(self, trace):
        import MinkowskiEngine  # it is there, or there would be no module of it

        owners = [MinkowskiEngine.SparseTensor, MinkowskiEngine.TensorField]
        found = [
            (owner, name, _refusal(owner, name))
            for owner in owners
            for name in _REFUSED
            if hasattr(owner, name)
        ]
        tensor = MinkowskiEngine.SparseTensor
        found += [(tensor, f"__{name}__", _operator(name)) for name in _OPERATORS]
        return [*found, (tensor, "dense", self._dense)]

    # --- modules ---

    def _conv(self, trace, module, args, kwargs, result):
        self._convolve(trace, module, args, kwargs, result, int(module.out_channels), None)

    def _channelwise(self, trace, module, args, kwargs, result):
        channels = int(module.in_channels)
        self._convolve(trace, module, args, kwargs, result, channels, channels)

    def _convolve(self, trace, module, args, kwargs, result, channels, groups):
        how = module.kernel_generator
        keys = {
            **_kernel(trace, module, args, kwargs),
            "channels": channels,
            "groups": groups,
            "bias": None if module.bias is not None else False,
            "layout": "minkowski",
            "tensors": _tensors(trace, module),
        }
        source = self._source(trace, args[0], module)
        if getattr(module, "is_transpose", False) and not getattr(module, "use_mm", False):
            self._upwards(trace, "transposed_conv", module, source, keys, result)
        elif getattr(how, "expand_coordinates", False) and not getattr(module, "use_mm", False):
            raise ExportError(
                f"{_said(trace, module)} has expand_coordinates, which no layer does in a "
                "convolution that is not transposed"
            )
        elif all(step == 1 for step in how.kernel_stride) and all(k % 2 for k in how.kernel_size):
            self._finish(
                trace, trace.network.add("subm_conv", [source], trace.path, **keys), result
            )
        else:
            self._strided(trace, "sparse_conv", how, source, keys, result)

    def _pool(self, trace, module, args, kwargs, result):
        keys = _kernel(trace, module, args, kwargs)
        source = self._source(trace, args[0], module)
        op = _POOLS[module.pooling_mode.name.split("_")[1]]
        self._strided(trace, op, module.kernel_generator, source, keys, result)

    def _pool_back(self, trace, module, args, kwargs, result):
        """Where a kernel is as large as its stride, a voxel gets the row of its block."""
        how = module.kernel_generator
        _kernel(trace, module, args, kwargs)
        if list(how.kernel_size) != list(how.kernel_stride):
            raise ExportError(
                f"{_said(trace, module)} has kernel {list(how.kernel_size)}, stride "
                f"{list(how.kernel_stride)}; expected equal ones"
            )
        self._upwards(trace, "upsample", module, self._source(trace, args[0], module), {}, result)

    def _global_pool(self, trace, module, args, kwargs, result):
        if len(args) > 1 or kwargs.get("coordinates") is not None:
            raise ExportError(f"{_said(trace, module)} is given coordinates, which no layer is")
        source = self._source(trace, args[0], module)
        mode = module.pooling_mode.name.split("_")[1].lower()
        self._finish(trace, self._pool_whole(trace, source, mode), result)

    def _broadcast(self, trace, module, args, kwargs, result):
        """Each voxel gets the row of its sample, which is added, multiplied or put beside."""
        given = [*args, *kwargs.values()]
        source, whole = (self._source(trace, tensor, module) for tensor in given[:2])
        if whole.on != "global":
            raise ExportError(f"{_said(trace, module)} gets rows that are not of a global pool")
        if source.on not in self._pooled:
            self._pool_whole(trace, source, "max")
        back = trace.network.add(
            "unpool",
            [whole],
            f"{trace.path}.rows",
            on=source.on,
            of=self._pooled[source.on],
        )
        kind = type(module).__name__[len("MinkowskiBroadcast") :]
        if kind == "Concatenation":
            back = trace.network.concat([source, back], trace.path)
        elif kind:
            op = {"Addition": "add", "Multiplication": "mul"}[kind]
            back = trace.network.add(op, [source, back], trace.path)
        self._finish(trace, back, result)

    def _instance_norm(self, trace, module, args, kwargs, result):
        del kwargs
        source = self._source(trace, args[0], module)
        tensors = {}
        for key in ("weight", "bias"):
            name, array = trace.constant(getattr(module, key))
            tensors[key] = (name, array.reshape(source.channels))
        value = trace.network.add(
            "instance_norm", [source], trace.path, eps=_INSTANCE_EPS, tensors=tensors
        )
        self._finish(trace, value, result)

    def _prune(self, trace, module, args, kwargs, result):
        given, mask = [*args, *kwargs.values()][:2]
        source, keep = self._source(trace, given, module), trace.known(mask)
        if getattr(keep, "kind", None) != "mask" or keep.channels != 1 or keep.on != source.on:
            why = getattr(keep, "why", "a mask that is not of the features")
            raise ExportError(
                f"{_said(trace, module)} gets {why}; expected one logit > 0 of each of its voxels"
            )
        on = ("kept", source.on, keep.layer)
        self._finish(
            trace, trace.network.add("prune", [source], trace.path, on=on, keep=keep.layer), result
        )

    def _dense(self, trace, tensor, args, kwargs, result):
        given = dict(zip(("shape", "min_coordinate", "contract_stride"), args)) | kwargs
        said = f"dense() {trace.said()}"
        if given.get("shape") is None:
            raise ExportError(f"{said} has the size of its voxels; expected dense(shape)")
        if given.get("min_coordinate") is not None or not given.get("contract_stride", True):
            raise ExportError(f"{said} has min_coordinate or contract_stride=False")
        source = trace.value(tensor.F, said)
        self.reads(source, _coords(tensor), f"{said}, which")
        value = trace.network.add(
            "to_dense",
            [source],
            trace.place("to_dense"),
            kind="dense",
            shape=three(list(given["shape"])[2:], 1),
        )
        trace.bind(result[0], value)

    # --- their parts ---

    def _strided(self, trace, op, how, source, keys, result):
        stride = three(how.kernel_stride, 1)
        # An even kernel of stride 1 keeps its voxels, but is no subm_conv: its set is another one.
        on = ("floor", source.on, tuple(stride))
        value = trace.network.add(
            op, [source], trace.path, on=on, rule="floor", stride=stride, **keys
        )
        self._finish(trace, value, result)

    def _upwards(self, trace, op, module, source, keys, result):
        """Onto a coordinate map that is there, or onto all voxels that the kernel reaches."""
        how = module.kernel_generator
        keys["stride"] = three(how.kernel_stride, 1)
        known = self._sets.get(_key(result))
        if known is not None:
            on, keys["onto"] = known
        else:
            on = ("reached", source.on, _key(result))
            _expect_reached(trace, module, self.coords[source.on], result)
        self._finish(trace, trace.network.add(op, [source], trace.path, on=on, **keys), result)

    def _pool_whole(self, trace, source, mode):
        value = trace.network.add("global_pool", [source], trace.path, on="global", mode=mode)
        self._pooled.setdefault(source.on, value.layer)
        return value

    def _source(self, trace, given, module):
        source = trace.value(given.F, _said(trace, module))
        self.reads(source, _coords(given), f"{_said(trace, module)}, which")
        return source

    def _finish(self, trace, value, result):
        """Binds a result; its voxels are those of the map that the library put it on."""
        on, layer = self._sets.setdefault(_key(result), (value.on, value.layer))
        if value.on != on:
            value = trace.network.add(
                "upsample", [value], f"{trace.path}.same", on=on, stride=1, onto=layer
            )
        self.remember(value.on, _coords(result))
        trace.bind(result.F, value)


def _said(trace, module):
    return f"{type(module).__name__} {trace.said()}"


def _refusal(owner, name):
    def added(trace, this, args, kwargs, result):
        del this, args, kwargs
        trace.refuse(result, f"{owner.__name__}.{name}() {trace.said()}, which no layer does")

    return added


def _operator(name):
    """An operator of two tensors, or of one and what torch takes beside its features."""

    def added(trace, this, args, kwargs, result):
        del kwargs
        other, said = args[0], f"__{name}__ {trace.said()}"
        if hasattr(other, "coordinate_map_key"):
            if _key(other) != _key(this):
                raise ExportError(
                    f"{said} joins tensors on two coordinate maps, which no layer does"
                )
            other = other.F
        try:
            trace.bind(result.F, FUNCTIONS[f"__{name}__"](trace, this.F, other))
        except ExportError as error:
            raise ExportError(f"{said}: {error}") from error

    return added


def _kernel(trace, module, args, kwargs):
    """Kernel and dilation; of a cube, onto voxels that follow from the stride."""
    how = module.kernel_generator
    if len(args) > 1 or any(kwargs.get(key) is not None for key in ("coordinates", "coords")):
        raise ExportError(
            f"{_said(trace, module)} is given the coordinates of its output, which no layer is"
        )
    kind = str(how.region_type).rsplit(".", maxsplit=1)[-1]
    if kind != "HYPER_CUBE":
        raise ExportError(
            f"{_said(trace, module)} has a kernel of region type {kind}; expected HYPER_CUBE"
        )
    return {
        "kernel": three(how.kernel_size, 1),
        "dilation": unless(1, three(how.kernel_dilation, 1)),
    }


def _tensors(trace, module):
    tensors = {"weight": trace.constant(module.kernel)}
    if module.bias is not None:
        tensors["bias"] = trace.constant(module.bias)
    return tensors


def _expect_reached(trace, module, coarse, result):
    """ExportError if the library's new map is not all that the kernel reaches."""
    how = module.kernel_generator
    made = coarse.astype(np.int64)
    for axis, (size, stride, dilation) in enumerate(
        zip(how.kernel_size, how.kernel_stride, how.kernel_dilation)
    ):
        steps = (np.arange(size) - (size // 2 if size % 2 else 0)) * dilation
        made = made[:, None].repeat(size, 1)
        made[:, :, 1 + axis] = made[:, :, 1 + axis] * stride + steps
        made = made.reshape(-1, 4)
    made, there = np.unique(made, axis=0), np.unique(_coords(result), axis=0)
    if made.shape != there.shape or (made != there).any():
        raise ExportError(
            f"{_said(trace, module)} makes {len(there)} voxels of stride "
            f"{list(result.tensor_stride)}; expected a set of a layer before it, or all "
            f"{len(made)} that its kernel reaches"
        )


def _key(tensor):
    return str(tensor.coordinate_map_key.get_key())


def _coords(tensor):
    """In voxels of the set: the library's are multiples of the stride."""
    coords = four_columns(tensor.C.cpu().numpy())
    for axis, step in enumerate(tensor.tensor_stride):
        if step:  # that of a global pool is 0
            coords[:, 1 + axis] //= step
    return coords
