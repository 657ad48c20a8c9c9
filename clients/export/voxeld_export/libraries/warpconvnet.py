"""WarpConvNet: Voxels, its convolutions, pools, pruning and resampling.

Source: NVlabs/WarpConvNet, warpconvnet/nn/{modules,functional}/, geometry/types/voxels.py.  A set's
coordinates count its own voxels.  Kernels are centred along odd axes and start at 0 along even
ones, pools too.  Networks made of its modules (models/) are followed.

SPDX-License-Identifier: Apache-2.0
"""

import numpy as np
import torch

from ..axes import three, unless
from ..errors import ExportError
from .base import Sparse, four_columns
from .resample import Resample, parents

_POOLS = {"max": "max_pool", "mean": "avg_pool", "sum": "sum_pool"}
_GLOBAL = {"max": "max", "mean": "avg", "sum": "sum"}


class WarpConvNet(Resample):
    """A trace of modules of WarpConvNet."""

    name = "WarpConvNet"
    through = frozenset(
        "Sequential TupleSequential GeometryWrapper Linear LinearNormActivation MLPBlock "
        "FeatureMLPBlock BatchNorm LayerNorm LayerNorm32 GroupNorm GroupNorm32 ReLU GELU SiLU Tanh "
        "Sigmoid LeakyReLU Softmax ELU LogSoftmax RMSNorm DropPath Cat Sum SparseConvNeXtBlock3d "
        "SparseChannelToSpatialResBlock3d SparseSpatialToChannelResBlock3d "
        "SparseUNetDecoderStages SparseUNetEncoderStages FeedForward TransformerBlock "
        "SparseFeedForwardNet ModulatedSparseTransformerBlock "
        "ModulatedSparseTransformerCrossBlock".split()
    )
    makers = {
        **Resample.resamplers,
        "SpatiallySparseConv": "_conv",
        "SpatiallySparseDepthwiseConv": "_conv",
        "SparsePool": "_pool",
        "SparseUnpool": "_unpool",
        "GlobalPool": "_global_pool",
        "SparsePrune": "_prune",
        "SparseSubdivide": "_subdivide",
        "InstanceNorm": "_instance_norm",
    }

    @classmethod
    def owns(cls, kind):
        return kind.__module__.split(".")[:2] == ["warpconvnet", "nn"]

    def sparse(self, thing):
        kind = type(thing)
        if kind.__name__ != "Voxels" or kind.__module__.split(".")[0] != "warpconvnet":
            return None
        coords = thing.batch_indexed_coordinates.detach().cpu().numpy()
        return Sparse(thing.feature_tensor, four_columns(coords), axes=coords.shape[1] - 1)

    def rebuilt(self, thing, feats, coords, samples):
        ends = torch.bincount(coords[:, 0].long().cpu(), minlength=samples).cumsum(0)
        at = coords[:, 1 : 1 + thing.coordinate_tensor.shape[1]].contiguous()
        stride = {} if thing.tensor_stride is None else {"tensor_stride": thing.tensor_stride}
        offsets = torch.cat([ends.new_zeros(1), ends])
        return type(thing)(at, feats, offsets=offsets, **stride)

    def cache(self, tensor, kind, factor):
        return tensor.spatial_cache.get(f"{kind}_{factor}")

    # --- modules ---

    def _conv(self, trace, module, args, kwargs, result):
        source = self._read(trace, args[0], module)
        onto = args[1] if len(args) > 1 else kwargs.get("output_spatially_sparse_tensor")
        kernel, stride = three(module.kernel_size, 1), three(module.stride, 1)
        keys = self._keys(trace, module, kernel)
        where = f"{type(module).__name__} {trace.said()}"
        alone = np.prod(kernel) == 1 and np.prod(stride) == 1
        if not alone and (module.transposed or module.generative):
            value = self._onto(trace, module, source, onto, keys, where)
        elif not alone and onto is not None:
            raise ExportError(
                f"{where} is given the voxels of its output; expected that in a transposed "
                "convolution only"
            )
        elif any(step != 1 for step in stride):
            value = self._strided(trace, module, source, stride, keys, where)
        else:
            _odd(kernel, where)
            value = trace.network.add("subm_conv", [source], trace.path, **keys)
        self._write(trace, value, result)

    def _pool(self, trace, module, args, kwargs, result):
        del kwargs
        where = f"{type(module).__name__} {trace.said()}"
        if module.reduce not in _POOLS:
            raise ExportError(f'{where} has reduce "{module.reduce}"; expected {_one_of(_POOLS)}')
        source = self._read(trace, args[0], module)
        kernel = three(module.kernel_size, 1)
        stride = three(module.stride if module.stride is not None else module.kernel_size, 1)
        _block(kernel, stride, where)
        on, _ = parents(source.on, stride)
        value = trace.network.add(
            _POOLS[module.reduce],
            [source],
            trace.path,
            on=on,
            kernel=kernel,
            stride=stride,
            rule="floor",
        )
        self._write(trace, value, result)

    def _unpool(self, trace, module, args, kwargs, result):
        given, finer = (*args, kwargs.get("unpooled_st"))[:2]
        where = f"{type(module).__name__} {trace.said()}"
        source, skip = self._read(trace, given, module), self._read(trace, finer, module)
        kernel, stride = three(module.kernel_size, 1), three(module.stride, 1)
        if kernel != stride:
            raise ExportError(f"{where} has kernel {kernel}, stride {stride}; expected equal ones")
        _block(kernel, stride, where)
        value = trace.network.add(
            "upsample", [source], trace.path, on=skip.on, stride=stride, onto=self._first[skip.on]
        )
        if module.concat_unpooled_st:
            value = trace.network.concat([skip, value], trace.path)
        self._write(trace, value, result)

    def _global_pool(self, trace, module, args, kwargs, result):
        del kwargs
        if module.reduce not in _GLOBAL:
            raise ExportError(
                f'{type(module).__name__} {trace.said()} has reduce "{module.reduce}"; '
                f"expected {_one_of(_GLOBAL)}"
            )
        source = self._read(trace, args[0], module)
        on, mode = ("global", source.on), _GLOBAL[module.reduce]
        self._write(
            trace, trace.network.add("global_pool", [source], trace.path, on=on, mode=mode), result
        )

    def _prune(self, trace, module, args, kwargs, result):
        source = self._read(trace, args[0], module)
        mask = args[1] if len(args) > 1 else kwargs["mask"]
        where = f"{type(module).__name__} {trace.said()}"
        keep = trace.value(mask, where)
        if keep.kind != "mask" or keep.channels != 1 or keep.on != source.on:
            raise ExportError(
                f"{where} gets {keep.layer} as mask; expected one logit > 0 for each voxel"
            )
        on = ("kept", source.on, keep.layer)
        self._write(
            trace, trace.network.add("prune", [source], trace.path, on=on, keep=keep.layer), result
        )

    def _subdivide(self, trace, module, args, kwargs, result):
        del kwargs
        source = self._read(trace, args[0], module)
        stride = int(module.factor)
        on = ("all children", source.on, stride)
        self._write(
            trace, trace.network.add("upsample", [source], trace.path, on=on, stride=stride), result
        )

    def _instance_norm(self, trace, module, args, kwargs, result):
        """Of a matrix without samples torch's norm is one of each row, over its channels."""
        del kwargs
        source = self._read(trace, args[0], module)
        if module.norm.affine or module.norm.track_running_stats:
            raise ExportError(
                f"{type(module).__name__} {trace.said()} is affine or has running statistics; "
                "expected neither, as the library makes it"
            )
        value = trace.network.add(
            "layer_norm", [source], trace.path, eps=float(module.norm.eps), affine=False
        )
        self._write(trace, value, result)

    # --- kinds of convolutions ---

    def _keys(self, trace, module, kernel):
        tensors = {"weight": trace.constant(module.weight)}
        if module.bias is not None:
            tensors["bias"] = trace.constant(module.bias)
        depthwise = module.weight.dim() == 2
        groups = int(module.in_channels if depthwise else getattr(module, "groups", 1))
        return {
            "channels": int(module.out_channels),
            "kernel": kernel,
            "dilation": unless(1, three(module.dilation, 1)),
            "groups": groups if groups != 1 else None,
            "bias": None if module.bias is not None else False,
            "layout": "warpconvnet",
            "tensors": tensors,
        }

    def _strided(self, trace, module, source, stride, keys, where):
        """The voxels of floor(p / stride), read by the kernel, or pooled and then read by it."""
        on, _ = parents(source.on, stride)
        mode = str(getattr(module.stride_mode, "value", module.stride_mode))
        if mode == "stride_only":
            return trace.network.add(
                "sparse_conv", [source], trace.path, on=on, stride=stride, rule="floor", **keys
            )
        if mode != "reduce_and_stride" or module.weight.dim() == 2:
            raise ExportError(f"{where} has stride_mode {mode}; expected stride_only")
        _odd(keys["kernel"], where)
        _block(stride, stride, where)
        pooled = trace.network.add(
            "max_pool",
            [source],
            f"{trace.path}.reduce",
            on=on,
            kernel=stride,
            stride=stride,
            rule="floor",
        )
        return trace.network.add("subm_conv", [pooled], trace.path, **keys)

    def _onto(self, trace, module, source, onto, keys, where):
        """Transposed: onto voxels that are there, or onto all that the kernel reaches."""
        stride = three(module.stride, 1)
        if module.generative:
            if onto is not None:
                raise ExportError(f"{where} is generative and given the voxels of its output")
            if not module.transposed:
                keys = _mirrored(keys, stride, where)
            on = ("reached", source.on, str(keys["kernel"]), str(keys["dilation"]), str(stride))
            return trace.network.add(
                "transposed_conv", [source], trace.path, on=on, stride=stride, **keys
            )
        finer = self._read(trace, onto, module)
        return trace.network.add(
            "transposed_conv",
            [source],
            trace.path,
            on=finer.on,
            stride=stride,
            onto=self._first[finer.on],
            **keys,
        )


def _mirrored(keys, stride, where):
    """A convolution onto all voxels that see one: transposed, with its offsets in reverse."""
    if any(step != 1 for step in stride):
        raise ExportError(
            f"{where} is generative with stride {stride}, but not transposed; expected stride 1"
        )
    _odd(keys["kernel"], where)
    weight = np.ascontiguousarray(keys["tensors"]["weight"][1][::-1])
    return {**keys, "tensors": {**keys["tensors"], "weight": (None, weight)}}


def _odd(kernel, where):
    if any(size % 2 == 0 for size in kernel):
        raise ExportError(f"{where} has kernel {kernel} on its input's voxels; expected odd sizes")


def _block(kernel, stride, where):
    """A pool whose kernel is its stride: here odd ones are centred, a block's voxels are not."""
    if kernel == stride and any(size % 2 and size > 1 for size in kernel):
        raise ExportError(
            f"{where} pools {kernel} voxels around every {stride}, centred; expected even sizes"
        )


def _one_of(names):
    return " or ".join(f'"{name}"' for name in names)
