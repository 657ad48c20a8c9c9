# SPDX-License-Identifier: Apache-2.0
"""Requests of the Open Inference Protocol from Python values; answers.py reads the answers."""
import difflib
import numbers
import operator
import re
import struct
from collections.abc import Mapping

import numpy as np

from . import wire
from .answers import (  # noqa: F401: one name for both directions
    Answer, ModelInfo, Tensor, Wanted, read_bool, read_infer, read_model, read_server,
    read_statistics,
)

SERVICE = "/inference.GRPCInferenceService/"

# The keyword arguments of Client.infer beside timeout and metadata, its own.
OPTIONS = ("bf16", "coords_ref", "id", "input_names", "outputs", "outputs_in", "parameters",
           "priority", "queue_timeout_us", "resend", "spatial_shape", "timing", "version")

RAW = 7   # the field raw_input_contents

TIMEOUT_MAX = 1e8  # of seconds: gRPC ends a call with a larger one at once

# A name, an IPv4 address, or an IPv6 address in brackets.
_HOST = re.compile(r"\[[^\]]+\]|[^\[:/][^:/]*")
_PORT = re.compile(r"[0-9]{1,5}")


def check_address(address):
    """Raises ValueError here for an impossible address, which else would fail at the first call."""
    if not isinstance(address, str):
        raise TypeError(f"address: expected a str, got {type(address).__name__}")
    form = "expected host:port (the port being that of gRPC), [v6]:port or unix:path"
    if address.startswith(("unix:", "unix-abstract:")) and address != "unix:":
        return
    host, colon, port = address.rpartition(":")
    # One of gRPC's resolvers reads the part before the port.
    named = address.startswith(("dns:", "ipv4:", "ipv6:"))
    if not colon or not (named or _HOST.fullmatch(host)):
        raise ValueError(f"address: {form}, got '{address}'")
    # gRPC takes the port modulo 65536, so that another server might answer.
    if not _PORT.fullmatch(port) or not 1 <= int(port) <= 65535:
        raise ValueError(f"address: {form}, with a port from 1 to 65535, got '{address}'")


def array(what, value):
    """np.asarray, but refuses masked values and None, which np.asarray would take for values."""
    if value is None:
        raise ValueError(f"{what}: expected an array, got None")
    if np.ma.is_masked(value):
        raise ValueError(f"{what}: expected an array without masked values")
    if str(getattr(value, "dtype", "")) == "torch.bfloat16":   # numpy has no such type
        wanted = "tensor.float() with bf16=True" if what == "feats" else "integers"
        raise ValueError(f"{what}: expected {wanted}, got torch.bfloat16")
    return np.asarray(value)


def _coords_array(coords):
    coords = array("coords", coords)
    if coords.ndim != 2 or coords.shape[1] not in (3, 4):
        raise ValueError(f"coords: expected shape [N, 4] (the sample, then three axes as the "
                         f"network was trained with them) or [N, 3] (three axes), got "
                         f"{list(coords.shape)}")
    if not np.issubdtype(coords.dtype, np.integer):
        raise ValueError(f"coords: expected integers, got {coords.dtype}; "
                         f"divide points by the voxel size and floor them first")
    with np.errstate(over="ignore"):
        out = np.ascontiguousarray(coords, dtype="<i4")
    if not np.can_cast(coords.dtype, np.int32) and not np.array_equal(out, coords):
        raise ValueError("coords: expected values that fit 32 bits, got larger ones")
    return out


def feats_array(feats, bf16):
    feats = array("feats", feats)
    if feats.ndim != 2:
        raise ValueError(f"feats: expected shape [N, C], got {list(feats.shape)}")
    native = feats.dtype.newbyteorder("=")
    if native not in (np.float16, np.float32):
        raise ValueError(f"feats: expected float32 or float16 (or float32 with bf16=True), "
                         f"got {feats.dtype}")
    if bf16:
        # Round to nearest even in the bits: numpy has no bfloat16.
        bits = np.ascontiguousarray(feats, dtype="<f4").view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        nan = np.isnan(feats)
        lost = np.argwhere(((rounded & 0x7FFF) == 0x7F80) & np.isfinite(feats))
        if len(lost):
            row, channel = lost[0]
            raise ValueError(f"feats: expected numbers that fit bfloat16, at most 3.38953e+38, got "
                             f"{feats[row, channel]} in row {row}, channel {channel}")
        return np.where(nan, (bits >> 16) | 0x40, rounded).astype("<u2"), "BF16"
    if native == np.float16:
        return np.ascontiguousarray(feats, dtype="<f2"), "FP16"
    return np.ascontiguousarray(feats, dtype="<f4"), "FP32"


def find(array, regions):
    """(region, offset) of an array in one of the regions; None if it is in none."""
    for region in regions if array.nbytes else ():
        offset = region.find(array)
        if offset is not None:
            return region, offset
    return None


def _unplaced(array):
    """What an array is for which find finds no place."""
    if not array.nbytes:
        return f"an empty one, {list(array.shape)}"
    if not array.flags.c_contiguous:
        return "one that is not C-contiguous"
    return "one that lies in none, as a copy or a result of numpy does"


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
    """Yields the outputs of the request: the named ones, and those with an array in outputs_in."""
    places = options.get("outputs_in") or {}
    if not isinstance(places, Mapping):
        raise TypeError(f"outputs_in: expected a dict, got {type(places).__name__}")
    names = _names("outputs", options.get("outputs") or ())
    for name in names + [name for name in places if name not in names]:
        if name not in places:
            yield wire.text(1, name)
            continue
        array = places[name]
        if not isinstance(array, np.ndarray):
            raise TypeError(f"outputs_in: expected an array for '{name}', got "
                            f"{type(array).__name__}")
        found = find(array, regions)
        if found is None:
            raise ValueError(f"outputs_in: expected for '{name}' a non-empty C-contiguous array in "
                             f"a region of this client, got {_unplaced(array)}")
        yield wire.text(1, name) + _place(2, array, found)


def _parameter(name, value):
    if not isinstance(name, str):
        raise TypeError(f"parameters: expected a str as name, got {name!r}")
    if isinstance(value, (bool, np.bool_)):
        choice = wire.number(1, int(value))
    elif isinstance(value, numbers.Integral):
        value = int(value)
        if not -(1 << 63) <= value < 1 << 64:
            raise ValueError(f"parameter '{name}': expected 64 bits, got {value}")
        choice = wire.number(2 if value < 1 << 63 else 5, value)
    elif isinstance(value, numbers.Real):
        choice = wire.varint(4 << 3 | 1) + struct.pack("<d", value)
    elif isinstance(value, str):
        choice = wire.message(3, value.encode())
    else:
        raise TypeError(f"parameter '{name}': expected a bool, int, float or str, got "
                        f"{type(value).__name__}")
    return wire.text(1, name) + wire.message(2, choice)


def _names(what, value):
    """A list of names.  Refuses a str, which would be a list of letters."""
    if isinstance(value, str) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"{what}: expected a list of str, got {value!r}")
    return list(value)


def _text(what, value):
    if not isinstance(value, str):
        raise TypeError(f"{what}: expected a str, got {type(value).__name__}")
    return value


def _count(what, value):
    """A whole number of 0 or more; None is 0."""
    try:
        value = operator.index(0 if value is None else value)
    except TypeError:
        raise TypeError(f"{what}: expected an integer, got {value!r}") from None
    if not 0 <= value < 1 << 63:
        raise ValueError(f"{what}: expected 0 to 2^63-1, got {value}")
    return value


def seconds(value):
    """A timeout for gRPC, which takes no infinity: None = no limit."""
    if value is None:
        return None
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise TypeError(f"timeout: expected seconds as a number, or None, got {value!r}")
    if value != value:
        raise ValueError("timeout: expected seconds as a number, or None, got nan")
    if value <= 0:
        raise ValueError(f"timeout: expected more than 0 seconds, or None for no limit, got "
                         f"{value}; 0 leaves no time for an answer")
    return None if value > TIMEOUT_MAX else float(value)


def _shape(value):
    """Three sizes as the text "1440x1440x40"; a text is sent as it is."""
    if isinstance(value, str):
        return value
    try:
        sizes = [operator.index(size) for size in value]
    except TypeError:
        sizes = []
    if len(sizes) != 3:
        raise TypeError(f"spatial_shape: expected three integers, got {value!r}")
    return "x".join(map(str, sizes))


def version_text(value):
    """The version as text for the wire; "" for None and "", which mean the highest."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise TypeError(f"version: expected an int or a str, got {value!r}")
    if value < 1:
        raise ValueError(f"version: expected 1 or more, or None for the highest, got {value}")
    return str(int(value))


def _head(model, options):
    """Fields 1 to 4: names and parameters."""
    parts = [wire.text(1, _text("model", model)),
             wire.text(2, version_text(options.get("version"))),
             wire.text(3, _text("id", options.get("id") or ""))]
    given = options.get("parameters") or {}
    if not isinstance(given, Mapping):
        raise TypeError(f"parameters: expected a dict, got {type(given).__name__}")
    parameters = dict(given)
    timing = options.get("timing")
    if isinstance(timing, str) and timing != "layers":
        raise TypeError(f'timing: expected True, False or "layers", got {timing!r}')
    if timing:
        parameters["timing"] = "layers" if timing == "layers" else True
    timeout = _count("queue_timeout_us", options.get("queue_timeout_us"))
    if timeout:
        parameters["timeout"] = timeout
    if options.get("spatial_shape") is not None:
        parameters["spatial_shape"] = _shape(options["spatial_shape"])
    if options.get("coords_ref") is not None:
        parameters["coords_ref"] = options["coords_ref"]
    parts += [wire.message(4, _parameter(*item)) for item in parameters.items()]
    priority = _count("priority", options.get("priority"))
    if priority:
        entry = wire.text(1, "priority") + wire.message(2, wire.number(5, priority))
        parts.append(wire.message(4, entry))
    return parts


def pack_infer(model, coords, feats, options, regions=()):
    """The bytes of a ModelInferRequest.  options: the keyword arguments of Client.infer."""
    coords = None if coords is None else _coords_array(coords)
    feats = feats_array(feats, options.get("bf16", False))
    return pack_arrays(model, (coords, feats), options, regions)


def pack_arrays(model, inputs, options, regions):
    """The same of coords or None, and (feats, their datatype), as they go over the wire."""
    coords, (feats, datatype) = inputs
    if coords is None and not options.get("coords_ref"):
        raise ValueError("coords: expected an array, got None; only coords_ref can replace it")
    parts = _head(model, options)
    names = _names("input_names", options.get("input_names") or ("coords", "feats"))
    if len(names) != 2:
        raise ValueError(f"input_names: expected two names, of coords and of feats, got {names}")
    inputs = [(names[0], "INT32", coords), (names[1], datatype, feats)]
    sent = []
    for name, kind, one in inputs[coords is None:]:
        found = find(one, regions)
        parts.append(wire.message(5, _input(name, kind, one, found)))
        if found is None:
            sent.append(one)
    parts += [wire.message(6, output) for output in _outputs(options, regions)]
    for one in sent:
        parts.append(wire.varint(RAW << 3 | 2) + wire.varint(one.nbytes))
        parts.append(one.reshape(-1).view(np.uint8).data if one.size else b"")
    return b"".join(parts)


def raw_inputs(request):
    """The tensors in the bytes of a ModelInferRequest, in their order; nothing is copied."""
    return [value for field, value in wire.fields(request) if field == RAW]


def view(raw, like):
    """An array on the bytes of a tensor, with the dtype and the shape of `like`."""
    return np.ndarray(like.shape, like.dtype, raw)


def wanted(model, feats, options):
    """The Wanted of a request with these arguments."""
    places = dict(options.get("outputs_in") or {})
    return Wanted(model, version_text(options.get("version")), options.get("id") or "",
                  tuple(options.get("outputs") or ()) + tuple(places), len(feats), places)


def _check_options(options):
    for name in options:
        if name not in OPTIONS:
            every = sorted((*OPTIONS, "metadata", "timeout"))
            near = difflib.get_close_matches(name, every, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise TypeError(f"infer() got an unexpected keyword argument '{name}'; {hint}"
                            f"Expected one of {', '.join(every)}")


def _held(value):
    """A dict or list that the caller may change while the call runs, as it is now."""
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, list) else value


def split_geometry(coords, options, names):
    """How to send a grid: (coords to send or None, options, coords to send again or None).

    With resend=True, coords are first left out if `names` knows that coords_ref stands for them,
    and sent again if the server has forgotten them.  With any other name they are sent at once, to
    get a name."""
    _check_options(options)
    options = {name: _held(value) for name, value in options.items()}
    if options.get("coords_ref") is not None:
        _text("coords_ref", options["coords_ref"])
    options["outputs"] = _names("outputs", options.get("outputs") or ())
    resend = options.pop("resend", False)
    known = bool(options.get("coords_ref"))
    if resend and (coords is None or options.get("coords_ref") is None):
        raise ValueError("resend: expected coords and coords_ref (\"\" the first time)")
    if known and coords is not None and not resend:
        raise ValueError("coords: expected None together with coords_ref, unless resend=True")
    if coords is not None:
        coords = _coords_array(coords)
    if not known or not resend:
        return coords, options, None
    if names.stands_for(options["coords_ref"], coords):
        return None, options, coords
    options["coords_ref"] = ""
    return coords, options, None


def pack_name(name, version=""):
    """A request of ModelReady, ModelMetadata or ModelStatistics: name 1, version 2."""
    return wire.text(1, name) + wire.text(2, version_text(version))


def pack_repository(model):
    """A request of RepositoryModelLoad or RepositoryModelUnload: model_name 2."""
    return wire.text(2, _text("model", model))
