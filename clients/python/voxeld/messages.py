# SPDX-License-Identifier: Apache-2.0
"""Requests and answers of the Open Inference Protocol as Python values."""
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from . import wire

SERVICE = "/inference.GRPCInferenceService/"

_NUMPY_OF = {
    "BOOL": np.bool_, "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
    "FP16": np.float16, "FP32": np.float32, "FP64": np.float64,
}


@dataclass(frozen=True)
class Tensor:
    """Name, datatype and shape of a model's input or output; -1 is any number of voxels."""
    name: str
    datatype: str
    shape: tuple


@dataclass(frozen=True)
class ModelInfo:
    """What a model takes and gives."""
    name: str
    versions: tuple
    platform: str
    inputs: tuple
    outputs: tuple


@dataclass
class Answer(Mapping):
    """The outputs of one inference by name, as arrays [N, C]; and what came with them.

    model_name, model_version   which version answered
    id                          the request's id
    parameters                  timing and the like, when asked for
    """
    model_name: str = ""
    model_version: str = ""
    id: str = ""
    parameters: dict = field(default_factory=dict)
    outputs: dict = field(default_factory=dict)

    @property
    def coords_ref(self):
        """The server's name for the coords, or "" when it did not say one."""
        return self.parameters.get("coords_ref", "")

    def __getitem__(self, name):
        return self.outputs[name]

    def __iter__(self):
        return iter(self.outputs)

    def __len__(self):
        return len(self.outputs)


def _coords_array(coords):
    coords = np.asarray(coords)
    if coords.ndim != 2 or coords.shape[1] not in (3, 4):
        raise ValueError(f"coords: expected shape [N, 4] (sample, x, y, z) or [N, 3], "
                         f"got {list(coords.shape)}")
    if not np.issubdtype(coords.dtype, np.integer):
        raise ValueError(f"coords: expected integers, got {coords.dtype}; "
                         f"divide points by the voxel size and floor them first")
    out = np.ascontiguousarray(coords, dtype="<i4")
    if coords.dtype.itemsize > 4 and not np.array_equal(out, coords):
        raise ValueError("coords: expected values that fit 32 bits, got larger ones")
    return out


def _feats_array(feats, bf16):
    feats = np.asarray(feats)
    if feats.ndim != 2:
        raise ValueError(f"feats: expected shape [N, C], got {list(feats.shape)}")
    if bf16:
        # Round to nearest even in the bits: numpy has no bfloat16.
        bits = np.ascontiguousarray(feats, dtype="<f4").view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        nan = np.isnan(feats)
        return np.where(nan, (bits >> 16) | 0x40, rounded).astype("<u2"), "BF16"
    if feats.dtype == np.float16:
        return np.ascontiguousarray(feats, dtype="<f2"), "FP16"
    if feats.dtype == np.float32:
        return np.ascontiguousarray(feats, dtype="<f4"), "FP32"
    raise ValueError(f"feats: expected float32 or float16 (or float32 with bf16=True), "
                     f"got {feats.dtype}")


def _find(array, regions):
    """(region, offset) of an array in one of the regions; None = it must be sent."""
    for region in regions if array.nbytes else ():
        offset = region.find(array)
        if offset is not None:
            return region, offset
    return None


def _place(field, array, found):
    """The parameters that say where a tensor lies."""
    if found is None:
        return b""
    region, offset = found
    out = [wire.message(field, _parameter("shared_memory_region", region.name)),
           wire.message(field, _parameter("shared_memory_byte_size", array.nbytes))]
    if offset:
        out.append(wire.message(field, _parameter("shared_memory_offset", offset)))
    return b"".join(out)


def _input(name, datatype, array, found):
    dims = b"".join(wire.varint(d) for d in array.shape)
    return (wire.text(1, name) + wire.text(2, datatype) + wire.text(3, dims)
            + _place(4, array, found))


def _outputs(options, regions):
    """The outputs asked for: those named, and those that have an array to lie in."""
    places = options.get("outputs_in") or {}
    names = list(options.get("outputs") or ())
    for name in names + [name for name in places if name not in names]:
        array = places.get(name)
        if array is None:
            yield wire.text(1, name)
            continue
        found = _find(array, regions)
        if found is None:
            raise ValueError(f"outputs_in: expected a C-contiguous array of a region of this "
                             f"client for '{name}', got one elsewhere, or an empty one")
        yield wire.text(1, name) + _place(2, array, found)


def _parameter(name, value):
    if isinstance(value, bool):
        choice = wire.number(1, int(value))
    elif isinstance(value, int):
        choice = wire.number(2, value)
    elif isinstance(value, float):
        choice = wire.varint(4 << 3 | 1) + struct.pack("<d", value)
    else:
        choice = wire.message(3, str(value).encode())
    return wire.text(1, name) + wire.message(2, choice)


def pack_infer(model, coords, feats, options, regions=()):
    """Bytes of a ModelInferRequest.  options: the keyword arguments of Client.infer."""
    if coords is None and not options.get("coords_ref"):
        raise ValueError("coords: expected an array, got None; only coords_ref can replace it")
    coords = None if coords is None else _coords_array(coords)
    feats, datatype = _feats_array(feats, options.get("bf16", False))
    parts = [wire.text(1, model), wire.text(2, str(options.get("version") or "")),
             wire.text(3, options.get("id") or "")]
    parameters = dict(options.get("parameters") or {})
    if options.get("timing"):
        parameters["timing"] = True
    if options.get("queue_timeout_us"):
        parameters["timeout"] = int(options["queue_timeout_us"])
    if options.get("coords_ref") is not None:
        parameters["coords_ref"] = str(options["coords_ref"])
    for name, value in parameters.items():
        parts.append(wire.message(4, _parameter(name, value)))
    if options.get("priority"):
        entry = wire.text(1, "priority") + wire.message(2, wire.number(5, options["priority"]))
        parts.append(wire.message(4, entry))
    names = options.get("input_names") or ("coords", "feats")
    inputs = [(names[0], "INT32", coords), (names[1], datatype, feats)]
    sent = []
    for name, kind, array in inputs[coords is None:]:
        found = _find(array, regions)
        parts.append(wire.message(5, _input(name, kind, array, found)))
        if found is None:
            sent.append(array)
    parts += [wire.message(6, output) for output in _outputs(options, regions)]
    for array in sent:
        parts.append(wire.varint(7 << 3 | 2) + wire.varint(array.nbytes))
        parts.append(array.reshape(-1).view(np.uint8).data if array.size else b"")
    return b"".join(parts)


def _read_parameter(data):
    name, value = "", None
    for number, inner in wire.fields(data):
        if number == 1:
            name = bytes(inner).decode()
        elif number == 2:
            for choice, one in wire.fields(inner):
                value = {1: lambda v: bool(v), 2: wire.signed, 3: lambda v: bytes(v).decode(),
                         4: lambda v: struct.unpack("<d", v)[0], 5: lambda v: v}[choice](one)
    return name, value


def _read_tensor(data):
    name, datatype, shape = "", "", []
    for number, value in wire.fields(data):
        if number == 1:
            name = bytes(value).decode()
        elif number == 2:
            datatype = bytes(value).decode()
        elif number == 3:
            shape += wire.packed(value)
    return Tensor(name, datatype, tuple(shape))


def _array(tensor, raw):
    if tensor.datatype == "BF16":
        bits = np.frombuffer(raw, dtype="<u2").astype(np.uint32) << 16
        return bits.view(np.float32).reshape(tensor.shape)
    return np.frombuffer(raw, dtype=_NUMPY_OF[tensor.datatype]).reshape(tensor.shape)


def _placed(tensor, raw, place):
    """An output: its array in a region, when it came there, else a view of the answer."""
    size = int(np.prod(tensor.shape, dtype=np.int64))
    if place is None or len(raw) or not size:
        return _array(tensor, raw)
    if tensor.datatype == "BF16":
        here = place.reshape(-1).view("<u2")[:size]
        return (here.astype(np.uint32) << 16).view(np.float32).reshape(tensor.shape)
    return place.reshape(-1).view(_NUMPY_OF[tensor.datatype])[:size].reshape(tensor.shape)


def read_infer(data, outputs_in=None):
    """Answer of a ModelInferResponse.  Arrays are read-only views of the answer's bytes, or, for
    outputs_in, views of the arrays there."""
    places = outputs_in or {}
    answer, tensors, raws = Answer(), [], []
    for number, value in wire.fields(data):
        if number == 1:
            answer.model_name = bytes(value).decode()
        elif number == 2:
            answer.model_version = bytes(value).decode()
        elif number == 3:
            answer.id = bytes(value).decode()
        elif number == 4:
            name, parameter = _read_parameter(value)
            answer.parameters[name] = parameter
        elif number == 5:
            tensors.append(_read_tensor(value))
        elif number == 6:
            raws.append(value)
    if len(tensors) != len(raws):
        raise ValueError(f"the answer names {len(tensors)} outputs and carries {len(raws)}")
    answer.outputs = {t.name: _placed(t, raw, places.get(t.name))
                      for t, raw in zip(tensors, raws)}
    return answer


def split_geometry(coords, options):
    """How to send a grid: (coords or None, options, coords to send again or None).

    With resend=True and a coords_ref the coords stay here until the server wants them."""
    options = dict(options)
    resend = options.pop("resend", False)
    known = bool(options.get("coords_ref"))
    if resend and (coords is None or options.get("coords_ref") is None):
        raise ValueError("resend: expected coords and coords_ref (\"\" the first time)")
    if known and coords is not None and not resend:
        raise ValueError("coords: expected None beside coords_ref, or resend=True")
    return (None, options, coords) if known and resend else (coords, options, None)


def pack_name(name, version=""):
    """ModelReady, ModelMetadata, ModelStatistics: name 1, version 2."""
    return wire.text(1, name) + wire.text(2, str(version or ""))


def read_bool(data):
    """ServerLive, ServerReady, ModelReady: one bool, absent means false."""
    return any(number == 1 and value for number, value in wire.fields(data))


def read_server(data):
    """ServerMetadata as {"name", "version", "extensions"}."""
    out = {"name": "", "version": "", "extensions": []}
    for number, value in wire.fields(data):
        if number == 3:
            out["extensions"].append(bytes(value).decode())
        else:
            out["name" if number == 1 else "version"] = bytes(value).decode()
    return out


def read_model(data):
    """ModelInfo of a ModelMetadataResponse."""
    name = platform = ""
    versions, inputs, outputs = [], [], []
    for number, value in wire.fields(data):
        if number == 1:
            name = bytes(value).decode()
        elif number == 2:
            versions.append(bytes(value).decode())
        elif number == 3:
            platform = bytes(value).decode()
        elif number in (4, 5):
            (inputs if number == 4 else outputs).append(_read_tensor(value))
    return ModelInfo(name, tuple(versions), platform, tuple(inputs), tuple(outputs))


_STATISTICS = {1: "success", 2: "fail", 3: "queue", 4: "compute_input", 5: "compute_infer",
               6: "compute_output", 7: "cache_hit", 8: "cache_miss"}


def read_statistics(data):
    """List of one dict per model version: counts, and (count, ns) per stage."""
    out = []
    for number, model in wire.fields(data):
        if number != 1:
            continue
        row = {"name": "", "version": "", "inference_count": 0, "execution_count": 0,
               "last_inference": 0}
        for at, value in wire.fields(model):
            if at in (1, 2):
                row["name" if at == 1 else "version"] = bytes(value).decode()
            elif at in (3, 4, 5):
                row[("last_inference", "inference_count", "execution_count")[at - 3]] = value
            elif at == 6:
                for stage, duration in wire.fields(value):
                    pair = dict(wire.fields(duration))
                    row[_STATISTICS[stage]] = (pair.get(1, 0), pair.get(2, 0))
        out.append(row)
    return out
