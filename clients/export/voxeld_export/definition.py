"""Evaluates a model directory in numpy, from the definitions of engine/README.md.

    example = evaluate("repository/minkunet", coords, feats)
    example.outputs["logits"]

This is the source of an export's proof where no live network is at hand: a checkpoint by name, an
ONNX file.  It shares no code with voxeld, and computes in float64, so that its own error is far
below the proof's bound.  A model that voxeld refuses may pass here.

SPDX-License-Identifier: Apache-2.0
"""

import os

import ml_dtypes
import numpy as np

from . import definition_sets as sets
from . import fp8
from .axes import three
from .definition_layers import OPS, folded_weight, inputs_of
from .definition_rows import CURVES, Rows
from .definition_weights import Tensors
from .errors import ExportError
from .example import Example, four_of
from .folder import read_document

_DATATYPES = {
    "FP32": np.float32,
    "FP16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "INT32": np.int32,
}


def evaluate(folder, coords, feats, version=1, layers=None):
    """What the model directory answers: an Example whose arrays are float32.

    coords  [N, 4], or [N, 3] of sample 0
    feats   [N, C]
    layers  "all", or names: returns (Example, {layer: (array, coords or None)}) with the results
            of these layers as well

    An output of datatype FP16, BF16 or INT32 has that type.  Rows of sets other than 0 ascend.
    """
    path, document = os.path.join(folder, "network.json"), read_document(folder)
    tensors = Tensors(os.path.join(folder, str(version), "weights.safetensors"))
    coords = np.asarray(coords)
    if coords.ndim == 2 and coords.shape[1] == 3:
        coords = np.insert(coords, 0, 0, axis=1)
    coords, feats = four_of(coords), np.asarray(feats).astype(np.float32)
    channels = document["inputs"]["feats"]["channels"]
    if feats.shape != (len(coords), channels):
        raise ExportError(
            f"feats have shape {list(feats.shape)}; expected [{len(coords)}, {channels}]"
        )
    network = _Network(document, tensors)
    wanted = set(network.layers if layers == "all" else layers or ())
    if wanted - set(network.layers):
        raise ExportError(f"{path} has no layer {min(wanted - set(network.layers))}")
    kept = network.run(coords, feats, wanted)
    outputs = {}
    for output in document["outputs"]:
        array, at = kept[output["layer"]]
        with np.errstate(over="ignore"):
            array = array.astype(_DATATYPES[output.get("datatype", "FP32")])
        outputs[output.get("name", output["layer"])] = array, at
    example = Example(coords, feats, outputs)
    return (example, kept) if layers else example


def weights_in_fp8(folder, document, channels, version=1):
    """{layer: (its weight [V, Ci, Co] with the norm folded in, the same in e4m3)}.

    document  the directory's network.json, whose layers need not be in FP8
    channels  {layer: channels of its input}
    """
    tensors = Tensors(os.path.join(folder, str(version), "weights.safetensors"))
    network = _Network(document, tensors)
    found = {}
    for name, count in channels.items():
        layer = network.layers[name]
        window = network.window(network.layers[layer["of"]] if "of" in layer else layer)
        weight = folded_weight(network, layer, window, count)[:, 0]
        found[name] = weight, fp8.rounded_columns(weight)
    return found


class _Network:
    """One evaluation: layer by layer, with the sets and maps that layers share."""

    def __init__(self, document, tensors):
        self.document = document
        self.tensors = tensors
        self.layers = {layer["name"]: layer for layer in document["layers"]}
        self.feats = _named(document["inputs"].get("feats", {}), "feats")
        self.done, self.windows, self.shared = {}, {}, {}
        self.samples = 0

    def run(self, coords, feats, wanted):
        """{layer: (array, coords or None)} of the wanted layers and of those that are outputs."""
        about = self.document["inputs"].get("coords", {})
        shape = about.get("spatial_shape") if isinstance(about, dict) else None
        first, order = sets.requested(coords, shape and tuple(three(shape, 1)))
        self.samples = int(coords[:, 0].max()) + 1 if len(coords) else 0
        self.done = {self.feats: Rows(first, feats[order].astype(np.float64))}
        wanted = wanted | {output["layer"] for output in self.document["outputs"]}
        last, kept = self._last_uses(), {}
        for number, layer in enumerate(self.document["layers"]):
            result = self._layer(layer)
            self.done[layer["name"]] = result
            if layer["name"] in wanted:
                kept[layer["name"]] = _answer(result, first, order)
            for name in [name for name, until in last.items() if until == number]:
                self.done[name].values = None  # its set stays: later layers may name it
        for name in wanted & {self.feats}:
            kept[name] = feats, None
        return kept

    def _last_uses(self):
        last = {}
        for number, layer in enumerate(self.document["layers"]):
            last[layer["name"]] = number
            for name in (*inputs_of(layer), layer.get("occupancy"), layer.get("keep")):
                if name is not None:
                    last[name] = number
        return last

    def _layer(self, layer):
        op = layer.get("op")
        inputs = [self.find(name, layer) for name in inputs_of(layer)]
        if op in CURVES:
            return Rows(inputs[0].on, CURVES[op](inputs[0].values))
        if op not in OPS:
            raise ExportError(f'layer {layer.get("name")}: op "{op}" is unknown')
        try:
            return OPS[op](self, layer, *inputs)
        except KeyError as error:
            raise ExportError(f"layer {layer['name']}: the key {error} is missing") from error

    def find(self, name, layer):
        if name not in self.done:
            raise ExportError(f"layer {layer.get('name')} uses {name}, which no layer above it is")
        return self.done[name]

    # --- sets and maps, once for each rule ---

    def set_by(self, rule, old, *rest):
        key = (rule, old, *(part.key() if hasattr(part, "key") else part for part in rest))
        if key not in self.shared:
            self.shared[key] = rule(old, *rest)
        return self.shared[key]

    def pairs(self, window, upward, source, result):
        key = (window.key(), upward, source, result)
        if key not in self.shared:
            self.shared[key] = sets.pairs_of(window, upward, source, result)
        return self.shared[key]

    def coarse(self, old, window):
        if window.rule == "floor":
            return self.set_by(sets.floor_set, old, window.stride)
        return self.set_by(sets.spconv_set, old, window)

    def parents(self, fine, coarse, stride):
        """The row of floor(p / stride) for each voxel p of a fine set, or -1."""
        key = ("parents", fine, coarse, tuple(stride))
        if key not in self.shared:
            axes = fine.coords[:, 1:] // np.array(stride)
            self.shared[key] = coarse.find(np.concatenate([fine.coords[:, :1], axes], axis=1))
        return self.shared[key]

    def window(self, layer):
        """The window of a layer that has one, or that undoes one."""
        if layer["name"] in self.windows:
            return self.windows[layer["name"]]
        stride = three(layer.get("stride", 1), 1)
        if layer["op"] in ("downsample", "space_to_channel"):
            window = sets.Window(stride, stride, rule="floor")
        else:
            kernel, rule = three(layer["kernel"], 1), layer.get("rule", "")
            dilation = three(layer.get("dilation", 1), 1)
            padding = sets.centre(kernel, dilation)
            if rule == "spconv":
                padding = three(layer.get("padding", 0), 0)
            elif layer["op"].endswith("_pool") and kernel == stride:
                padding = (0, 0, 0)  # a block, of odd size too
            window = sets.Window(kernel, stride, padding, dilation, rule)
        self.windows[layer["name"]] = window
        return window


def _named(about, otherwise):
    return about.get("name", otherwise) if isinstance(about, dict) else about


def _answer(result, first, order):
    """(array, coords or None) as an output has it: set 0 in the order of the request."""
    values = result.values
    if values.dtype == np.float64:
        values = values.astype(np.float32)
    if result.on is None:
        return values, None
    if result.on is not first:
        return values, result.on.coords.astype(np.int32)
    array = np.empty_like(values)
    array[order] = values
    return array, None
