"""What TRELLIS.2 and WarpConvNet have in common: modules that go from voxels to children and back.

Sources: trellis2/modules/sparse/spatial/, warpconvnet/nn/modules/sparse_resample.py.

SPDX-License-Identifier: Apache-2.0
"""

import numpy as np

from ..errors import ExportError
from .base import Library


class Resample(Library):
    """A trace whose sets of voxels follow from factors and occupancy.

    resamplers  {class name: method}, for a library's `makers`
    """

    resamplers = {
        "SparseDownsample": "_downsample",
        "SparseUpsample": "_upsample",
        "SparseSpatial2Channel": "_space_to_channel",
        "SparseChannel2Spatial": "_channel_to_space",
    }

    def __init__(self):
        super().__init__()
        self._first = {0: "feats"}  # a layer on each set

    def cache(self, tensor, kind, factor):
        """What the library kept beside a tensor of how to go up by a factor, or None."""
        raise NotImplementedError

    # --- modules ---

    def _downsample(self, trace, module, args, kwargs, result):
        del kwargs
        self._mean_mode(trace, module)
        source = self._read(trace, args[0], module)
        on, stride = parents(source.on, module.factor)
        self._write(
            trace,
            trace.network.add("downsample", [source], trace.path, on=on, stride=stride),
            result,
        )

    def _space_to_channel(self, trace, module, args, kwargs, result):
        del kwargs
        source = self._read(trace, args[0], module)
        on, stride = parents(source.on, module.factor)
        value = trace.network.add(
            "space_to_channel",
            [source],
            trace.path,
            channels=source.channels * stride**3,
            on=on,
            stride=stride,
        )
        self._write(trace, value, result)

    def _upsample(self, trace, module, args, kwargs, result):
        self._expand(trace, "upsample", module, args, kwargs, result)

    def _channel_to_space(self, trace, module, args, kwargs, result):
        self._expand(trace, "channel_to_space", module, args, kwargs, result)

    # --- their parts ---

    def _expand(self, trace, op, module, args, kwargs, result):
        """Onto the voxels that a downsampling came from, or those that logits say."""
        source = self._read(trace, args[0], module)
        factor = module.factor
        kind = "channel2spatial" if op == "channel_to_space" else "upsample"
        if self.cache(args[0], kind, factor) is not None:
            on, keys = self._known_set(trace, module, source, result)
        else:
            given = args[1] if len(args) > 1 else kwargs.get("subdivision")
            on, keys = self._occupied(trace, module, source, given, factor)
        channels = source.channels // (factor**3 if op == "channel_to_space" else 1)
        value = trace.network.add(
            op, [source], trace.path, channels=channels, on=on, stride=parents(0, factor)[1], **keys
        )
        self._write(trace, value, result)

    def _known_set(self, trace, module, source, result):
        """The set of the result's voxels, which is there: (set, keys)."""
        coords = self.sparse(result).coords
        tried = [source.on[1]] if isinstance(source.on, tuple) else []
        for on in [*tried, *self.coords]:
            there = self.coords.get(on)
            if on in self._first and there is not None and np.array_equal(there, coords):
                return on, {"onto": self._first[on]}
        raise ExportError(
            f"{type(module).__name__} {trace.said()} makes {len(coords)} voxels that no layer "
            "before it has"
        )

    def _occupied(self, trace, module, source, given, factor):
        """Children where logits are above 0: (set, keys)."""
        where = f"{type(module).__name__} {trace.said()}"
        logits = self.sparse(given).features
        if trace.known(logits) is None:
            raise ExportError(
                f"{where} gets a subdivision that does not come from the features: export it "
                "together with the network that predicts it, as one module"
            )
        mask = trace.value(logits, where)
        if mask.kind != "mask":
            raise ExportError(
                f"{where} gets {mask.layer} as subdivision; expected {mask.layer} > 0"
            )
        if mask.on != source.on or mask.channels != factor**3:
            raise ExportError(
                f"{where} gets {mask.layer} with {mask.channels} logits as subdivision; expected "
                f"{factor**3} for each voxel of its input"
            )
        return ("children", source.on, factor, mask.layer), {"occupancy": mask.layer}

    def _mean_mode(self, trace, module):
        if getattr(module, "mode", "mean") != "mean":
            raise ExportError(
                f"{type(module).__name__} {trace.said()} has mode {module.mode}; expected mean"
            )

    def _read(self, trace, given, module):
        """The Value of a sparse tensor that a module gets."""
        sparse = self.sparse(given)
        if sparse is None:
            raise ExportError(
                f"{type(module).__name__} {trace.said()} gets a {type(given).__name__}; expected "
                f"a sparse tensor of {self.name}"
            )
        source = trace.value(sparse.features, f"{type(module).__name__} {trace.said()}")
        self.reads(source, sparse.coords, f"{type(module).__name__} {trace.said()}, which")
        return source

    def _write(self, trace, value, result):
        """Says what a sparse tensor is the result of."""
        sparse = self.sparse(result)
        self._first.setdefault(value.on, value.layer)
        self.remember(value.on, sparse.coords)
        trace.bind(sparse.features, value)


def parents(on, factor):
    """The set of floor(p / factor), and the factor as the key `stride`."""
    stride = [int(step) for step in factor] if isinstance(factor, (list, tuple)) else int(factor)
    steps = [stride] * 3 if isinstance(stride, int) else stride
    return ("floor", on, tuple(steps)), stride
