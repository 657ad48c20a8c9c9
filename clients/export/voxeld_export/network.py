"""A network in the making: layers, their tensors, and the model directory they are written to.

Formats: engine/README.md, "A model directory" and "network.json".

SPDX-License-Identifier: Apache-2.0
"""

import hashlib
import json
import os

import numpy as np

from .errors import ExportError
from .weights import write_weights

LAYERS_MAX = 1024
NAME_BYTES_MAX = 127
CONCAT_MAX = 8
_TENSORS = ("weight", "bias", "running_mean", "running_var")

_WHO = {
    "labels": "which only an output can have",
    "dense": "which only an output can have",
    "mask": "which only subdivisions and pruning read",
    "blocks": "expected [rows, channels]",
}


class Value:
    """The result of a layer, or the network's input.

    layer     its name in network.json
    channels  of a row
    on        the set of voxels that its rows lie on: any object, equal for equal sets
    kind      "rows"; "labels" (an argmax), "dense" (a to_dense): only outputs read these;
              "mask" (where rows are above 0), "blocks" (rows seen as [N, a, b]): no tensor that
              is served, only what some layers are made of
    parts     of "blocks": (a, b)
    """

    def __init__(self, layer, channels, on, kind="rows", parts=None):
        self.layer = layer
        self.channels = channels
        self.on = on
        self.kind = kind
        self.parts = parts


class Network:
    """Collects layers in the order of their use.

    A layer's tensors go into the weights file under their names in the state_dict, so that
    weights trained later can take their place.
    """

    def __init__(self, channels, description=None):
        self.description = description
        self.feats = Value("feats", channels, 0)
        self.spatial_shape = None
        self.column_axes = None  # "zyx": what columns 1 to 3 of coords are, where that is known
        self.axes = 3  # that the source's voxels have
        self.layers = []
        self.values = {"feats": self.feats}
        self.tensors = {}
        self.outputs = []
        self._names = {"feats", "coords"}
        self._same = {}  # what a layer computes of what: its Value

    def name(self, wanted):
        """`wanted`, or with a number behind it if there is such a layer."""
        wanted = wanted.encode()[: NAME_BYTES_MAX - 5].decode(errors="ignore") or "layer"
        name, count = wanted, 1
        while name in self._names:
            count += 1
            name = f"{wanted}_{count}"
        self._names.add(name)
        return name

    def add(self, op, inputs, wanted, *, channels=None, on=None, kind="rows", tensors=None, **keys):
        """Adds a layer and returns its Value; a layer that is there already is not computed again.

        inputs   Values
        tensors  {"weight": (name in the state_dict, array)}; name None: the exporter made it
        keys     of network.json, as they are; None = the default
        """
        for value in inputs:
            if value.kind != "rows":
                raise ExportError(
                    f"{wanted}: {op} reads the {value.kind} of {value.layer}, {_WHO[value.kind]}"
                )
        if op in ("add", "mul", "concat"):
            self._one_set(op, wanted, inputs)
        layer = {"op": op}
        if len(inputs) == 1:
            layer["input"] = inputs[0].layer
        else:
            layer["inputs"] = [value.layer for value in inputs]
        if channels is not None and (op == "linear" or op.endswith("_conv")):
            layer["channels"] = channels
        layer.update({key: _short(value) for key, value in keys.items() if value is not None})
        same = repr((wanted, layer, channels, on, kind, self._tensors(tensors or {})))
        if same in self._same:
            return self._same[same]
        layer = {"name": self.name(wanted), **layer}
        renamed = {}
        for key, (name, array) in (tensors or {}).items():
            if not name:
                name = f"{layer['name']}.made_{key}"
                self._keep(name, array)
            if name != f"{layer['name']}.{key}":
                renamed[key] = name
        if renamed:
            layer["tensors"] = renamed
        self.layers.append(layer)
        if len(self.layers) > LAYERS_MAX:
            raise ExportError(
                f"{wanted} is layer {len(self.layers)}; " f"a network has at most {LAYERS_MAX}"
            )
        value = Value(
            layer["name"],
            inputs[0].channels if channels is None else channels,
            inputs[0].on if on is None else on,
            kind,
        )
        self.values[layer["name"]] = self._same[same] = value
        return value

    def takes(self, request):
        """Says what sparse tensor of the source a request stands for.

        Of fewer than three axes its shape is written: columns in another order are legal voxels of
        three axes, and would be answered with other numbers.  With the shape they are refused.
        """
        self.axes = request.axes
        if request.axes < 3 and request.shape is not None:
            self.spatial_shape = list(request.shape)

    def layer(self, name):
        """A layer as it stands in network.json."""
        return next(layer for layer in self.layers if layer["name"] == name)

    def concat(self, inputs, wanted):
        """One layer of up to 8 inputs, more of them for more."""
        while len(inputs) > 1:
            head, rest = inputs[:CONCAT_MAX], inputs[CONCAT_MAX:]
            joined = self.add("concat", head, wanted, channels=sum(v.channels for v in head))
            inputs = [joined] + rest
        return inputs[0]

    def output(self, value, wanted):
        """Makes a value an output; returns its name on the wire."""
        if value.kind in ("mask", "blocks"):
            raise ExportError(
                f"the output {wanted} is the {value.kind} of {value.layer}, which no layer makes; "
                "return its rows"
            )
        if value is self.feats:
            raise ExportError(
                f"the output {wanted} is the request's features as they came; expected the result "
                "of a layer, which an output is (outputs= leaves others out)"
            )
        name, count = wanted, 1
        while any(name == output["name"] for output in self.outputs) or name in ("feats", "coords"):
            count += 1
            name = f"{wanted}_{count}"
        output = {"name": name, "layer": value.layer}
        if value.kind == "labels":
            output["datatype"] = "INT32"
        self.outputs.append(output)
        return name

    def document(self, **more):
        """network.json as a dict; `more` are keys of its top level, limits for example."""
        coords = {"name": "coords"}
        if self.spatial_shape is not None:
            coords["spatial_shape"] = list(self.spatial_shape)
        if self.column_axes is not None:
            coords["axes"] = self.column_axes
        if len(coords) == 1:
            coords = coords["name"]
        document = {"format": 1}
        if self.description:
            document["description"] = self.description
        document["inputs"] = {
            "coords": coords,
            "feats": {"name": "feats", "channels": self.feats.channels},
        }
        document["layers"] = self.needed()
        document["outputs"] = self.outputs
        document.update(more)
        return document

    def made_weights(self):
        """[(name of a layer, array)] of weights that are multiplied and are no parameter's."""
        for layer in self.needed():
            name = f"{layer['name']}.made_weight"
            if layer.get("tensors", {}).get("weight") == name and _multiplies(layer):
                yield layer["name"], self.tensors[name]

    def constants(self):
        """What requests share: (layers, {name of a tensor that they read: a hash of it})."""
        layers = self.needed()
        used = {
            layer.get("tensors", {}).get(key, f"{layer['name']}.{key}")
            for layer in layers
            for key in _TENSORS
        }
        return layers, {
            name: hashlib.sha256(array.tobytes()).hexdigest()
            for name, array in self.tensors.items()
            if name in used
        }

    def write(self, folder, datatype=None, version=1, **more):
        """Writes FOLDER/network.json and FOLDER/VERSION/weights.safetensors; returns the document.

        datatype  "FP16" or "BF16": what the weights of convolutions and linear layers are rounded
                  to; None: they stay as they are.
        """
        document = self.document(**more)
        multiplied, kept = set(), {}
        for layer in document["layers"]:
            for key in _TENSORS:
                name = layer.get("tensors", {}).get(key, f"{layer['name']}.{key}")
                if name in self.tensors:
                    kept[name] = self.tensors[name]
                    if key == "weight" and _multiplies(layer):
                        multiplied.add(name)
        path = os.path.join(folder, str(version))
        os.makedirs(path, exist_ok=True)
        write_weights(
            os.path.join(path, "weights.safetensors"),
            kept,
            {name: datatype for name in multiplied} if datatype else {},
        )
        replace_file(os.path.join(folder, "network.json"), text_of(document))
        return document

    def _one_set(self, op, wanted, inputs):
        first = inputs[0]
        for other in inputs[1:]:
            if other.on != first.on:
                raise ExportError(
                    f"{wanted}: {op} joins {first.layer} and {other.layer}, "
                    "which lie on different sets of voxels"
                )
            if op != "concat" and other.channels != first.channels:
                raise ExportError(
                    f"{wanted}: {op} joins {first.layer} of {first.channels} channels "
                    f"and {other.layer} of {other.channels}; expected equal ones"
                )

    def _tensors(self, tensors):
        """What they are: their names, and of those that the exporter made their contents."""
        found = []
        for key, (name, array) in tensors.items():
            if name:
                self._keep(name, array)
                found.append((key, name))
            else:
                digest = hashlib.sha256(array.tobytes()).hexdigest()
                found.append((key, digest, array.shape, str(array.dtype)))
        return found

    def _keep(self, name, array):
        array = np.ascontiguousarray(array)
        known = self.tensors.setdefault(name, array)
        if known is not array and (
            known.shape != array.shape or known.tobytes() != array.tobytes()
        ):
            raise ExportError(f"the tensor {name} has two values: it was changed between two uses")

    def needed(self):
        """The layers that an output needs: one that none needs is an error in network.json."""
        needed = {output["layer"] for output in self.outputs}
        kept = []
        for layer in reversed(self.layers):
            if layer["name"] not in needed:
                continue
            kept.append(layer)
            needed.update(layer.get("inputs", [layer.get("input")]))
            needed.update(layer[key] for key in ("of", "onto", "occupancy", "keep") if key in layer)
        return kept[::-1]


def _multiplies(layer):
    """Whether its weight is multiplied, and so rounded to the export's datatype."""
    return layer["op"] == "linear" or layer["op"].endswith("_conv")


def _short(value):
    """Three equal numbers as one."""
    return (
        value[0] if isinstance(value, list) and len(value) == 3 and len(set(value)) == 1 else value
    )


def text_of(document):
    """JSON with a layer on a line, which people can read."""
    lines = []
    for key, value in document.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            inner = ",\n    ".join(json.dumps(item) for item in value)
            lines.append(f"  {json.dumps(key)}: [\n    {inner}\n  ]")
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def replace_file(path, text):
    """A server that reads the repository sees the old file or the new one, never half of it."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)
