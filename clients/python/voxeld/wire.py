# SPDX-License-Identifier: Apache-2.0
"""The protobuf wire format, as far as the messages of this client need it.

It is written by hand for two reasons: generated stubs of the package `inference` clash with
tritonclient's in one process, and a tensor is copied into a request only once.
"""


def varint(value):
    """The bytes of a varint; a negative number as its 64-bit two's complement."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field, value):
    """A varint field."""
    return varint(field << 3) + varint(value)


def text(field, value):
    """A length-delimited field; a str becomes UTF-8.  An empty value gives b"", as in proto3."""
    data = value.encode() if isinstance(value, str) else value
    return varint(field << 3 | 2) + varint(len(data)) + data if data else b""


def message(field, data):
    """A sub-message field, which is written also if it is empty."""
    return varint(field << 3 | 2) + varint(len(data)) + data


class Damaged(Exception):
    """The bytes are no protobuf message, or not the expected one."""


def read_varint(data, at):
    """(value, position behind it)."""
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise Damaged("a varint is incomplete or too long")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                raise Damaged("a varint has more than 64 bits")
            return value, at
        shift += 7


def signed(value):
    """The int64 that a varint's 64 bits mean."""
    return value - (1 << 64) if value >> 63 else value


def fields(data):
    """Yields (field number, value) of a message.

    The value is an int for a varint, a memoryview for a field with a length, and bytes for a field
    of fixed width."""
    view = memoryview(data)
    at = 0
    while at < len(view):
        tag, at = read_varint(view, at)
        kind = tag & 7
        if not tag >> 3:
            raise Damaged("a field has the number 0")
        if kind == 0:
            value, at = read_varint(view, at)
            yield tag >> 3, value
            continue
        if kind == 2:
            length, at = read_varint(view, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise Damaged(f"a field has the wire type {kind}")
        if at + length > len(view):
            raise Damaged(f"a field needs {length} bytes, but {len(view) - at} are left")
        value, at = view[at:at + length], at + length
        yield tag >> 3, value if kind == 2 else bytes(value)


def as_number(value):
    """A varint field's value."""
    if not isinstance(value, int):
        raise Damaged("a field has bytes; expected a number")
    return value


def as_message(value):
    """The bytes of a field that has a length: a message, or a raw tensor."""
    if not isinstance(value, memoryview):
        raise Damaged("a field has a number; expected bytes")
    return value


def as_text(value):
    """A text field's value."""
    return bytes(as_message(value)).decode()


def as_fixed(value, nbytes):
    """The bytes of a field of fixed width."""
    if not isinstance(value, bytes) or len(value) != nbytes:
        raise Damaged(f"a field is not {nbytes} bytes wide")
    return value


def packed(value):
    """The int64 values of a repeated field: packed (memoryview), or a single one (int)."""
    if isinstance(value, int):
        return [signed(value)]
    out, at = [], 0
    while at < len(as_message(value)):
        one, at = read_varint(value, at)
        out.append(signed(one))
    return out
