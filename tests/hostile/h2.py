# SPDX-License-Identifier: Apache-2.0
"""HTTP/2 and gRPC by hand, as bytes: what a client may say, and what none should.

Nothing here checks anything: a frame may have any type, length, stream and payload.  Header blocks
are literals without Huffman; `flow` repeats frames over many streams at the speed of slices.
"""
import array
import struct
import sys

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, \
    CONTINUATION = range(10)
END_STREAM = ACK = 1
END_HEADERS, PADDED, WITH_PRIORITY = 4, 8, 32
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, \
    MAX_HEADER_LIST_SIZE = range(1, 7)
LARGEST = 2**31 - 1  # of windows, and of the numbers of streams
FRAME_BYTES = 16384  # a peer's limit unless its SETTINGS change it
SERVICE = "/inference.GRPCInferenceService/"
WATCH = "/grpc.health.v1.Health/Watch"
INFER, STREAM = SERVICE + "ModelInfer", SERVICE + "ModelStreamInfer"


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, stream) + payload


def settings(**pairs):
    """settings(INITIAL_WINDOW_SIZE=0): names as above."""
    return frame(SETTINGS, payload=b"".join(
        struct.pack(">HI", globals()[name], value) for name, value in pairs.items()))


def opening(**pairs):
    return PREFACE + settings(**pairs)


def opening_wide():
    """An opening whose windows no answer fills."""
    return opening(INITIAL_WINDOW_SIZE=LARGEST) + window(0, LARGEST - 65535)


def window(stream, more):
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", more))


def reset(stream, code=8):
    return frame(RST_STREAM, 0, stream, struct.pack(">I", code))


def ping(text=b"hostile!"):
    return frame(PING, 0, 0, text)


def goaway(last=0, code=0, text=b""):
    return frame(GOAWAY, 0, 0, struct.pack(">II", last, code) + text)


# ------- HPACK -------

def integer(value, bits, first=0):
    """A number behind a prefix of so many bits."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([first | value])
    out, value = [first | most], value - most
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def text(value):
    value = value if isinstance(value, bytes) else value.encode()
    return integer(len(value), 7) + value


def field(name, value, kept=False):
    """A header; `kept` puts it into the dynamic table: number 62 until the next one comes."""
    return (b"\x40" if kept else b"\x00") + text(name) + text(value)


def indexed(index):
    return integer(index, 7, 0x80)


def call_block(path, *more, kept=False):
    """The headers of a gRPC call."""
    pairs = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "hostile"),
             ("te", "trailers"), ("content-type", "application/grpc"), *more]
    return b"".join(field(name, value, kept) for name, value in pairs)


def kept_block(path):
    """(block that fills the table, block of six bytes that says the same again)"""
    return call_block(path, kept=True), b"".join(indexed(67 - i) for i in range(6))


def headers(stream, block, flags=END_HEADERS):
    return frame(HEADERS, flags, stream, block)


# ------- many streams at once -------

def flow(pieces, first, count):
    """The frames `pieces` for each of the streams first, first + 2, ...: one bytes object."""
    one = b"".join(pieces)
    out = bytearray(one * count)
    ids = array.array("I", range(first, first + 2 * count, 2))
    if sys.byteorder == "little":
        ids.byteswap()
    ids, at = ids.tobytes(), 0
    for piece in pieces:
        for byte in range(4):
            out[at + 5 + byte::len(one)] = ids[byte::4]
        at += len(piece)
    return bytes(out)


# ------- messages -------

def message(body, length=None):
    """A gRPC message; `length` is what its head says when that is not the truth."""
    return struct.pack(">BI", 0, len(body) if length is None else length) + body


def data(stream, body, flags=0):
    """DATA frames of the largest legal size."""
    parts = [body[i:i + FRAME_BYTES] for i in range(0, len(body), FRAME_BYTES)] or [b""]
    return b"".join(frame(DATA, flags if part is parts[-1] else 0, stream, part)
                    for part in parts)


def _varint(value):
    out = []
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def field_of(number, body):
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def infer_request(model, voxels, channels=4):
    """A ModelInferRequest of a row of voxels, features of ones."""
    coords = b"".join(struct.pack("<4i", 0, i % 4096, i // 4096, 0) for i in range(voxels))
    feats = struct.pack("<f", 1.0) * (voxels * channels)
    out = field_of(1, model.encode())
    for name, kind, width in (("coords", "INT32", 4), ("feats", "FP32", channels)):
        out += field_of(5, field_of(1, name.encode()) + field_of(2, kind.encode())
                      + field_of(3, _varint(voxels) + _varint(width)))
    return out + field_of(7, coords) + field_of(7, feats)


def infer_numbers(model, size):
    """One of about so many bytes: its coordinates are numbers of a byte each, and wrong."""
    tensor = field_of(1, b"coords") + field_of(2, b"INT64") \
        + field_of(3, _varint(size // 4) + _varint(4)) + field_of(5, field_of(3, b"\1" * size))
    return field_of(1, model.encode()) + field_of(5, tensor)


# ------- what a server says -------

class Windows:
    """What one connection may send, by the server's own words; answers its pings and settings."""

    def __init__(self):
        self.heard, self.first, self.connection, self.streams = b"", 65535, 65535, {}
        self.replies, self.ended = b"", set()
        self.begun, self.answered = set(), set()  # streams with headers, with bytes of an answer

    def feed(self, heard):
        self.heard += heard
        while len(self.heard) >= 9:
            head, flags, stream = struct.unpack(">IBI", self.heard[:9])
            length, kind = head >> 8, head & 255
            if len(self.heard) < 9 + length:
                return
            self.on_frame(kind, flags, stream, self.heard[9:9 + length])
            self.heard = self.heard[9 + length:]

    def on_frame(self, kind, flags, stream, payload):
        if kind == WINDOW_UPDATE:
            more, = struct.unpack(">I", payload)
            if stream:
                self.streams[stream] = self.left(stream) + more
            else:
                self.connection += more
        elif kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                key, value = struct.unpack(">HI", payload[at:at + 6])
                if key == INITIAL_WINDOW_SIZE:
                    for one in self.streams:
                        self.streams[one] += value - self.first
                    self.first = value
            self.replies += frame(SETTINGS, ACK)
        elif kind == PING and not flags & ACK:
            self.replies += frame(PING, ACK, 0, payload)
        elif kind in (RST_STREAM, DATA, HEADERS):
            if kind == HEADERS:
                self.begun.add(stream)
            elif kind == DATA and payload:
                self.answered.add(stream)
            if kind == RST_STREAM or flags & END_STREAM:
                self.ended.add(stream)

    def left(self, stream):
        return self.streams.setdefault(stream, self.first)

    def take(self, unsent, last=0):
        """Frames of unsent {stream: bytes} as far as the windows go, which it takes from there.

        last: flags of the last frame of each.
        """
        out, self.replies = [self.replies], b""
        for stream in [one for one in unsent if one in self.ended]:
            del unsent[stream]
        for stream, body in list(unsent.items()):
            count = min(len(body), self.left(stream), self.connection, 4 * FRAME_BYTES)
            if count > 0:
                out.append(data(stream, bytes(body[:count]), last * (count == len(body))))
                self.streams[stream] -= count
                self.connection -= count
                unsent[stream] = body[count:]
        for stream in [one for one, body in unsent.items() if not body]:
            del unsent[stream]
        return b"".join(out)
