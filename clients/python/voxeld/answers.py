# SPDX-License-Identifier: Apache-2.0
"""Answers of the Open Inference Protocol as Python values.

An answer that cannot be read, or that contradicts its request, raises Internal and is never
returned.
"""
import functools
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import grpc
import numpy as np

from . import wire
from .errors import Internal

_NUMPY_OF = {
    "BOOL": np.bool_, "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64,
    "FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BF16": np.uint16,
}

_DIGITS = re.compile("[0-9]+")
_RANK_MAX, _OUTPUTS_MAX = 8, 64  # of an answer, as the C client has them
_SIZE_MAX = (1 << 31) - 1        # of a dimension


@dataclass(frozen=True)
class Tensor:
    """Name, datatype and shape of a model's input or output; -1 is any number of voxels."""
    name: str
    datatype: str
    shape: tuple


@dataclass(frozen=True)
class ModelInfo:
    """A model's name, versions, platform, inputs and outputs (tuples of Tensor)."""
    name: str
    versions: tuple
    platform: str
    inputs: tuple
    outputs: tuple


class Sparse(NamedTuple):
    """An output on a set of voxels of its own: rows and where they are.

    coords    int32 [M, 4]: sample, x, y, z in voxels of the set; ascending, each once
    features  [M, C]
    stride    how many voxels of the request one step along x, y, z is: ints, or Fractions; 0 of
              voxels that stand for a whole sample
    """
    coords: np.ndarray
    features: np.ndarray
    stride: tuple


@dataclass
class Answer(Mapping):
    """A mapping from the name of an output to its array [N, C] (dense: [B, C, X, Y, Z], or
    [B, C * X, Y, Z]), with these attributes:

    model_name, model_version   the version that answered
    id                          the request's id
    parameters                  dict: stage times with timing=True, coords_ref
    outputs                     the mapping as a dict
    output_parameters           {name of an output: dict}, of those that have any
    """
    model_name: str = ""
    model_version: str = ""
    id: str = ""
    parameters: dict = field(default_factory=dict)
    outputs: dict = field(default_factory=dict)
    output_parameters: dict = field(default_factory=dict)

    def sparse(self, name):
        """The output as Sparse, if it lies on a set of voxels of its own.

        KeyError if the answer lacks it or its coordinates; ValueError if its rows are those of the
        request, or if it is dense."""
        features, said = self[name], self.output_parameters.get(name, {})
        if "coords" not in said and features.ndim > 2:
            raise ValueError(f"output '{name}' is a dense tensor {list(features.shape)}, whose "
                             f"elements are no voxels: answer['{name}'] is the array")
        if "coords" not in said:
            raise ValueError(f"output '{name}' has no coordinates of its own: its rows are those "
                             f"of the request's coords")
        if said["coords"] not in self.outputs:
            raise KeyError(f"the answer lacks '{said['coords']}', the coordinates of output "
                           f"'{name}': name both in outputs")
        return Sparse(self.outputs[said["coords"]], features, _stride(said["stride"]))

    @property
    def coords_ref(self):
        """The server's name for the coords; "" if the answer has none."""
        return self.parameters.get("coords_ref", "")

    def __getitem__(self, name):
        if name not in self.outputs:
            has = ", ".join(f"'{one}'" for one in self.outputs) or "none"
            raise KeyError(f"the answer lacks '{name}'; its outputs are: {has}")
        return self.outputs[name]

    def __iter__(self):
        return iter(self.outputs)

    def __len__(self):
        return len(self.outputs)


@dataclass(frozen=True)
class Wanted:
    """What a request requires of its answer.

    model, version, id   of the request; "" = any
    outputs              names that the answer must have
    rows                 of every output on the request's voxels; None = any number
    places               {name of an output: array in a region that it goes to}
    """
    model: str = ""
    version: str = ""
    id: str = ""
    outputs: tuple = ()
    rows: int = None
    places: dict = field(default_factory=dict)


def _wrong(sentence):
    return Internal(grpc.StatusCode.INTERNAL, sentence)


def _reader(function):
    """Decorates a reader: damaged bytes of an answer become Internal."""
    @functools.wraps(function)
    def read(data, *rest, **more):
        try:
            return function(data, *rest, **more)
        except (wire.Damaged, UnicodeDecodeError) as error:
            raise _wrong(f"the server's answer is damaged: {error}") from None
    return read


_CHOICES = {1: lambda v: bool(wire.as_number(v)), 2: lambda v: wire.signed(wire.as_number(v)),
            3: wire.as_text, 4: lambda v: struct.unpack("<d", wire.as_fixed(v, 8))[0],
            5: wire.as_number}


def _read_parameter(data):
    name, value = "", None
    for number, inner in wire.fields(data):
        if number == 1:
            name = wire.as_text(inner)
        elif number == 2:
            for choice, one in wire.fields(wire.as_message(inner)):
                if choice in _CHOICES:
                    value = _CHOICES[choice](one)
    return name, value


def _stride(text):
    """(2, 2, 2) of "2x2x2"; 1/2 is a Fraction."""
    return tuple(int(f) if f.denominator == 1 else f for f in map(Fraction, text.split("x")))


_STRIDE = re.compile("0x0x0|[1-9][0-9]*(/[1-9][0-9]*)?(x[1-9][0-9]*(/[1-9][0-9]*)?){2}")


def _read_tensor(data):
    """(Tensor, True if it has typed contents, which this client does not read, parameters)."""
    name, datatype, shape, typed, parameters = "", "", [], False, {}
    for number, value in wire.fields(data):
        if number == 1:
            name = wire.as_text(value)
        elif number == 2:
            datatype = wire.as_text(value)
        elif number == 3:
            shape += wire.packed(value)
        elif number == 4:
            key, parameter = _read_parameter(wire.as_message(value))
            parameters[key] = parameter
        elif number == 5:
            typed = True
    return Tensor(name, datatype, tuple(shape)), typed, parameters


def _array(tensor, raw):
    array = np.frombuffer(raw, dtype=np.dtype(_NUMPY_OF[tensor.datatype]).newbyteorder("<"))
    if tensor.datatype == "BF16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.reshape(tensor.shape)


def _cells(tensor, typed):
    """How many numbers the tensor has.  Internal for one that this client cannot read."""
    if typed:
        raise _wrong(f"the server sent output '{tensor.name}' as typed contents; this client reads "
                     f"only raw_output_contents")
    if tensor.datatype not in _NUMPY_OF:
        raise _wrong(f"output '{tensor.name}' has the datatype '{tensor.datatype}'; expected one "
                     f"of {', '.join(_NUMPY_OF)}")
    if len(tensor.shape) > _RANK_MAX or max(tensor.shape, default=0) > _SIZE_MAX:
        raise _wrong(f"output '{tensor.name}' has {len(tensor.shape)} dimensions, the largest "
                     f"{max(tensor.shape)}; expected at most {_RANK_MAX}, each below 2^31")
    if any(n < 0 for n in tensor.shape):
        raise _wrong(f"output '{tensor.name}' has the shape {list(tensor.shape)}; expected "
                     f"dimensions of 0 or more")
    return math.prod(tensor.shape)


def misplaced(tensor, place, rows=None):
    """Why an output cannot go to the array `place`; "" if it can.

    A first dimension of -1 is `rows`, but not of a dense tensor; any other -1 is any size.  The
    array may have more rows than the output."""
    dtype = np.dtype(_NUMPY_OF.get(tensor.datatype, np.void))
    narrow = tensor.datatype == "BF16" and place.dtype.itemsize == dtype.itemsize
    if place.dtype != dtype and not narrow:
        return (f"output '{tensor.name}' is {tensor.datatype}, its array in outputs_in is "
                f"{place.dtype}")
    shape = list(tensor.shape)
    if rows is not None and shape[:1] == [-1] and len(shape) <= 2:
        shape[0] = rows
    if len(shape) != place.ndim or (shape and shape[0] > place.shape[0]) or any(
            n not in (-1, here) for n, here in zip(shape[1:], place.shape[1:])):
        return (f"output '{tensor.name}' has the shape {shape}, its array in outputs_in has "
                f"{list(place.shape)}")
    return ""


def _placed(tensor, raw, place, cells):
    """An output's array: a view of `place` if it goes there, else of the answer's bytes."""
    dtype = np.dtype(_NUMPY_OF[tensor.datatype])
    nbytes = cells * dtype.itemsize
    there = place is not None and not len(raw) and nbytes <= place.nbytes
    if len(raw) != nbytes and not there:
        raise _wrong(f"output '{tensor.name}' has {len(raw)} bytes; its shape "
                     f"{list(tensor.shape)} of {tensor.datatype} needs {nbytes}")
    if place is None:
        return _array(tensor, raw)
    problem = misplaced(tensor, place)
    if problem:
        raise _wrong(problem)
    here = place.reshape(-1).view(np.uint8)[:nbytes]
    if len(raw):   # the server did not write there itself
        here[:] = np.frombuffer(raw, np.uint8)
    return _array(tensor, here) if tensor.datatype == "BF16" else (
        here.view(dtype).reshape(tensor.shape))


def _same_version(asked, came):
    """True for equal versions: a server accepts 01 for 1, and answers 1."""
    digits = _DIGITS.fullmatch(asked) and _DIGITS.fullmatch(came)
    return came in ("", asked) or bool(digits) and asked.lstrip("0") == came.lstrip("0")


def _check_sparse(answer, tensors):
    """An output on a set of its own says which output has its coordinates, and its stride."""
    shapes = {tensor.name: tensor for tensor in tensors}
    for name, said in answer.output_parameters.items():
        if "stride" not in said:
            continue
        stride, coords = said["stride"], said.get("coords")
        if not isinstance(stride, str) or not _STRIDE.fullmatch(stride):
            raise _wrong(f"output '{name}' has the stride {stride!r}; expected a text as 2x2x2")
        at = shapes.get(coords)
        rows = shapes[name].shape[:1]
        if at is not None and (at.datatype != "INT32" or at.shape != (*rows, 4)):
            raise _wrong(f"output '{name}' has the shape {list(shapes[name].shape)} and its "
                         f"coordinates '{coords}' are {at.datatype} {list(at.shape)}")


def _check_names(answer, tensors, wanted):
    """Compares names and rows with the request.  A server may leave out the model and version."""
    if wanted.model and answer.model_name not in ("", wanted.model):
        raise _wrong(f"the request is for model '{wanted.model}', the answer is from "
                     f"'{answer.model_name}'")
    if wanted.version and not _same_version(wanted.version, answer.model_version):
        raise _wrong(f"the request is for version {wanted.version}, the answer is from "
                     f"'{answer.model_version}'")
    if wanted.id and answer.id != wanted.id:
        raise _wrong(f"the request's id was '{wanted.id}', the answer's is '{answer.id}'")
    names = [tensor.name for tensor in tensors]
    if len(names) > _OUTPUTS_MAX:
        raise _wrong(f"the answer has {len(names)} outputs; expected at most {_OUTPUTS_MAX}")
    for name in wanted.outputs:
        if name not in names:
            raise _wrong(f"the answer lacks output '{name}'")
    if "" in names:
        raise _wrong("the answer has an output without a name")
    for name in names:
        if names.count(name) > 1:
            raise _wrong(f"the answer has output '{name}' twice")
    if wanted.rows is None:
        return
    if not tensors:
        raise _wrong("the answer has no output")
    for tensor in tensors:
        if "stride" in answer.output_parameters.get(tensor.name, {}) or len(tensor.shape) > 2:
            continue   # rows of another set, or of a dense tensor
        if tensor.shape[:1] != (wanted.rows,):
            rows = f"{tensor.shape[0]} rows" if tensor.shape else "no rows"
            raise _wrong(f"output '{tensor.name}' has {rows}; expected {wanted.rows}, one for each "
                         f"voxel")


@_reader
def read_infer(data, wanted=None):
    """The Answer in a ModelInferResponse; Internal if it is not as `wanted` requires.

    Its arrays are read-only views of the answer's bytes or, for outputs_in, views of those
    arrays."""
    wanted = wanted or Wanted()
    answer, tensors, raws = Answer(), [], []
    for number, value in wire.fields(data):
        if number == 1:
            answer.model_name = wire.as_text(value)
        elif number == 2:
            answer.model_version = wire.as_text(value)
        elif number == 3:
            answer.id = wire.as_text(value)
        elif number == 4:
            name, parameter = _read_parameter(wire.as_message(value))
            answer.parameters[name] = parameter
        elif number == 5:
            tensors.append(_read_tensor(wire.as_message(value)))
        elif number == 6:
            raws.append(wire.as_message(value))
    cells = [_cells(tensor, typed) for tensor, typed, _ in tensors]
    answer.output_parameters = {tensor.name: said for tensor, _, said in tensors if said}
    tensors = [tensor for tensor, _, _ in tensors]
    if len(tensors) != len(raws):
        raise _wrong(f"the answer has {len(tensors)} outputs but {len(raws)} raw tensors")
    _check_names(answer, tensors, wanted)
    _check_sparse(answer, tensors)
    if not isinstance(answer.coords_ref, str):
        raise _wrong(f"coords_ref: expected a string, the answer has {answer.coords_ref!r}")
    answer.outputs = {t.name: _placed(t, raw, wanted.places.get(t.name), n)
                      for t, raw, n in zip(tensors, raws, cells)}
    return answer


@_reader
def read_bool(data):
    """The bool of ServerLive, ServerReady and ModelReady; False if it is absent."""
    value = False
    for number, one in wire.fields(data):
        if number == 1:
            value = bool(wire.as_number(one))
    return value


@_reader
def read_server(data):
    """A ServerMetadataResponse as {"name", "version", "extensions"}."""
    out = {"name": "", "version": "", "extensions": []}
    for number, value in wire.fields(data):
        if number == 3:
            out["extensions"].append(wire.as_text(value))
        elif number in (1, 2):
            out["name" if number == 1 else "version"] = wire.as_text(value)
    return out


@_reader
def read_model(data):
    """A ModelMetadataResponse as ModelInfo."""
    name = platform = ""
    versions, inputs, outputs = [], [], []
    for number, value in wire.fields(data):
        if number == 1:
            name = wire.as_text(value)
        elif number == 2:
            versions.append(wire.as_text(value))
        elif number == 3:
            platform = wire.as_text(value)
        elif number in (4, 5):
            (inputs if number == 4 else outputs).append(_read_tensor(wire.as_message(value))[0])
    return ModelInfo(name, tuple(versions), platform, tuple(inputs), tuple(outputs))


_STATISTICS = {1: "success", 2: "fail", 3: "queue", 4: "compute_input", 5: "compute_infer",
               6: "compute_output", 7: "cache_hit", 8: "cache_miss"}


@_reader
def read_statistics(data):
    """A list with one dict per model version: counts, and (count, ns) per stage."""
    out = []
    for number, model in wire.fields(data):
        if number != 1:
            continue
        row = {"name": "", "version": "", "inference_count": 0, "execution_count": 0,
               "last_inference": 0}
        for at, value in wire.fields(wire.as_message(model)):
            if at in (1, 2):
                row["name" if at == 1 else "version"] = wire.as_text(value)
            elif at in (3, 4, 5):
                row[("last_inference", "inference_count", "execution_count")[at - 3]] = (
                    wire.as_number(value))
            elif at == 6:
                for stage, duration in wire.fields(wire.as_message(value)):
                    pair = dict(wire.fields(wire.as_message(duration)))
                    if stage in _STATISTICS:
                        row[_STATISTICS[stage]] = tuple(wire.as_number(pair.get(i, 0))
                                                        for i in (1, 2))
        out.append(row)
    return out
