"""Reads the few fields of an ONNX file that a network of convolutions needs.

An ONNX file is one protobuf message: fields of a number, a wire type and a value, nested.  Reading
them takes fewer lines than describing how to install a package that does, works beside any version
of protobuf, and a damaged file is named as one.

Fields: onnx.proto of ONNX (field numbers never change).

SPDX-License-Identifier: Apache-2.0
"""

import os
import struct

import ml_dtypes
import numpy as np

from .errors import ExportError

# TensorProto.DataType: name, and numpy's type for those that weights have.
TYPES = {
    1: ("FLOAT", np.float32),
    2: ("UINT8", None),
    3: ("INT8", None),
    5: ("INT16", None),
    6: ("INT32", None),
    7: ("INT64", None),
    9: ("BOOL", None),
    10: ("FLOAT16", np.float16),
    11: ("DOUBLE", np.float64),
    16: ("BFLOAT16", ml_dtypes.bfloat16),
}

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_VARINT_BYTES_MAX = 10
_ELSEWHERE = 1  # TensorProto.DataLocation


class Graph:
    """What a file has.

    nodes    Nodes in the order of the file
    tensors  {name: Tensor}: its initializers
    inputs   [(name, shape)] of what is no initializer; a size is None where the file names none
    outputs  [(name, shape)]
    """

    def __init__(self, nodes, tensors, inputs, outputs):
        self.nodes, self.tensors = nodes, tensors
        self.inputs, self.outputs = inputs, outputs


class Node:
    """An operation: attributes are int, float, str, bytes, or lists of int, float or str."""

    def __init__(self, fields):
        self.op, self.name = _text(fields, 4), _text(fields, 3)
        self.inputs = [_decoded(value) for value in fields.get(1, [])]
        self.outputs = [_decoded(value) for value in fields.get(2, [])]
        self.attributes = dict(map(_attribute, fields.get(5, [])))

    def said(self):
        """For errors."""
        return f'node "{self.name or (self.outputs or [""])[0]}" ({self.op})'


class Tensor:
    """An initializer; array() is its numbers, as the file has them."""

    def __init__(self, fields):
        self.name = _text(fields, 8)
        self.shape = _integers(fields, 1)
        self.type = _last(_integers(fields, 2), 0)
        self._fields = fields

    def array(self):
        """The numbers; only of floating-point types."""
        name, kind = TYPES.get(self.type, (f"type {self.type}", None))
        if kind is None:
            raise ExportError(
                f"the tensor {self.name} is {name}; expected FLOAT, FLOAT16, BFLOAT16 or DOUBLE"
            )
        if _last(_integers(self._fields, 14), 0) == _ELSEWHERE:
            raise ExportError(
                f"the tensor {self.name} lies in another file; save the model with its tensors"
            )
        try:
            data = self._numbers(np.dtype(kind))
        except _Damaged as error:
            raise ExportError(f"the tensor {self.name} is damaged: {error}") from error
        count = int(np.prod(self.shape, dtype=np.float64))
        if len(data) != count or min(self.shape, default=0) < 0:
            raise ExportError(
                f"the tensor {self.name} has {len(data)} numbers; expected {count}, "
                f"of shape {self.shape}"
            )
        return data.reshape(self.shape)

    def _numbers(self, kind):
        if 9 in self._fields:
            raw = self._fields[9][-1]
            if isinstance(raw, int):
                raise ExportError(
                    f"the tensor {self.name} has a number where its bytes are expected"
                )
            if len(raw) % kind.itemsize:
                raise ExportError(f"the tensor {self.name} ends within a number")
            return np.frombuffer(raw, kind)
        if self.type == 1:
            return np.array(_floats(self._fields, 4), np.float32)
        if self.type == 11:
            return np.array(_floats(self._fields, 10, "<d"), np.float64)
        # The bits of 16-bit numbers, each as an integer.
        bits = np.array(_integers(self._fields, 5), np.int64)
        if len(bits) and not (0 <= bits.min() and bits.max() < 1 << 16):
            raise ExportError(f"the tensor {self.name} has numbers of more than 16 bits")
        return bits.astype(np.uint16).view(kind)


def read_graph(path):
    """The Graph of an ONNX file."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise ExportError(f"{path} cannot be read: {error.strerror}") from error
    if data.startswith(b"version https://git-lfs"):
        raise ExportError(f"{path} is a pointer of Git LFS, not the file: run git lfs pull")
    try:
        model = _fields(memoryview(data))
        if 7 not in model:
            raise _Damaged("it has no graph")
        return _graph(_fields(model[7][-1]))
    except (_Damaged, UnicodeDecodeError) as error:
        raise ExportError(f"{os.path.basename(path)} is not an ONNX file: {error}") from error


class _Damaged(Exception):
    pass


def _graph(fields):
    tensors = [Tensor(_fields(value)) for value in fields.get(5, [])]
    named = {tensor.name: tensor for tensor in tensors}
    inputs = [_value_info(_fields(value)) for value in fields.get(11, [])]
    return Graph(
        [Node(_fields(value)) for value in fields.get(1, [])],
        named,
        [(name, shape) for name, shape in inputs if name not in named],
        [_value_info(_fields(value)) for value in fields.get(12, [])],
    )


def _value_info(fields):
    """(name, shape) of an input or output; the shape is None where the file has none."""
    name, inner = _text(fields, 1), fields
    for number in (2, 1, 2):  # its type, which is that of a tensor, which has a shape
        if number not in inner:
            return name, None
        inner = _fields(inner[number][-1])
    return name, [_last(_integers(_fields(size), 1)) for size in inner.get(1, [])]


def _attribute(value):
    fields = _fields(value)
    name = _text(fields, 1)
    for number, read in (
        (2, lambda: _last(_floats(fields, 2))),
        (3, lambda: _last(_integers(fields, 3))),
        (4, lambda: _text(fields, 4)),
        (7, lambda: _floats(fields, 7)),
        (8, lambda: _integers(fields, 8)),
        (9, lambda: [_decoded(one) for one in fields[9]]),
    ):
        if number in fields:
            return name, read()
    # An empty list, or a kind that no node here has: a tensor, a graph.
    return name, [] if _last(_integers(fields, 20), 0) in (6, 7, 8) else None


# --- protobuf ---


def _fields(data):
    """{field number: [values]}: an int, or bytes of a nested message, a text, packed numbers."""
    if not isinstance(data, memoryview):
        raise _Damaged("a number stands where a message is expected")
    fields, at = {}, 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
        elif wire in (_EIGHT, _FOUR):
            value, at = _part(data, at, 8 if wire == _EIGHT else 4)
        elif wire == _BYTES:
            size, at = _varint(data, at)
            value, at = _part(data, at, size)
        else:
            raise _Damaged(f"a field of wire type {wire}")
        if number == 0:
            raise _Damaged("a field of number 0")
        fields.setdefault(number, []).append(value)
    return fields


def _part(data, at, size):
    if size > len(data) - at:
        raise _Damaged(f"a field of {size} bytes where {len(data) - at} are left")
    return data[at : at + size], at + size


def _varint(data, at):
    value = 0
    for shift in range(_VARINT_BYTES_MAX):
        if at >= len(data):
            raise _Damaged("it ends within a number")
        byte = data[at]
        value, at = value | (byte & 0x7F) << (7 * shift), at + 1
        if byte < 0x80:
            return value, at
    raise _Damaged("a number of more than 10 bytes")


def _signed(value):
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def _integers(fields, number):
    """A repeated integer, packed or not."""
    found = []
    for value in fields.get(number, []):
        if isinstance(value, int):
            found.append(_signed(value))
            continue
        at = 0
        while at < len(value):
            one, at = _varint(value, at)
            found.append(_signed(one))
    return found


def _floats(fields, number, kind="<f"):
    """A repeated number of 4 or 8 bytes, packed or not."""
    found, size = [], struct.calcsize(kind)
    for value in fields.get(number, []):
        if isinstance(value, int) or len(value) % size:
            raise _Damaged("a list of numbers ends within one")
        found += [one for (one,) in struct.iter_unpack(kind, value)]
    return found


def _last(found, otherwise=None):
    """The value that counts of a field that is not repeated: the last one."""
    return found[-1] if found else otherwise


def _decoded(value):
    if isinstance(value, int):
        raise _Damaged("a number stands where a text is expected")
    return bytes(value).decode()


def _text(fields, number):
    return _decoded(fields[number][-1]) if number in fields else ""
