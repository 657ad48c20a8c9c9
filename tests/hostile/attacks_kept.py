# SPDX-License-Identifier: Apache-2.0
"""Attacks that cost little on the wire and that gRPC keeps much of: fields of one byte, also behind
what hides them from a count, calls that it does not report, small pieces of messages, each of which
keeps a whole read buffer."""
import itertools

import h2
from roster import attack

MB = 1 << 20
LIVE = h2.SERVICE + "ServerLive"
ACCEPT_CHARSET = h2.indexed(15)  # a field of HTTP/2's own table, in one byte


def block_frames(stream, block, size, flags=h2.END_HEADERS):
    """A header block in frames of so many bytes; without `flags` its rest is to come."""
    parts = [block[i:i + size] for i in range(0, len(block), size)]
    kinds = [h2.HEADERS] + [h2.CONTINUATION] * (len(parts) - 1)
    last = [0] * (len(parts) - 1) + [flags]
    return b"".join(h2.frame(*one[:2], stream, one[2]) for one in zip(kinds, last, parts))


def many_fields(size, acknowledges):
    def script(peer):
        windows = h2.Windows()
        peer.hear = windows.feed
        block = h2.call_block(h2.INFER) + ACCEPT_CHARSET * 16000
        yield h2.opening()
        while acknowledges and not windows.replies:
            yield None
        yield windows.replies
        for stream in range(1, 1 << 20, 2):
            yield block_frames(stream, block, size)
            yield 0.02
    return script


@attack("header blocks of 16,000 fields of one byte, 4 connections", over=True, seconds=3)
def fields(swarm, target):
    swarm.add(4, target.grpc, many_fields(h2.FRAME_BYTES, False))


@attack("the same in frames of 150 bytes, each below gRPC's limit, which the client confirmed",
        over=True, seconds=3)
def fields_in_parts(swarm, target):
    swarm.add(4, target.grpc, many_fields(150, True))


LONG_NAME = h2.field("n" * 4000, "", kept=True)
NAMES = h2.indexed(62)  # 4,000 bytes of the connection's table, in one byte


def names(block, before=b""):
    """50 calls a second with the block, behind other frames; the first one brings the name."""
    def script(_peer):
        yield h2.opening() + h2.headers(1, h2.call_block(h2.INFER) + LONG_NAME)
        for stream in range(3, 1 << 20, 2):
            yield before + h2.headers(stream, block)
            yield 0.02
    return script


@attack("calls of 300 bytes with a name of 4,000 bytes 240 times, 16 connections", over=True,
        seconds=3)
def names_repeated(swarm, target):
    block = h2.call_block(h2.INFER) + NAMES * 240
    swarm.add(16, target.grpc, names(block))


@attack("600 connections with the same in a header block that does not end", over=True, seconds=3)
def names_unfinished(swarm, target):
    block = h2.call_block(h2.INFER) + LONG_NAME + NAMES * 240

    def script(_peer):
        yield h2.opening() + h2.headers(1, block, 0)
    swarm.add(600, target.grpc, script)


@attack("the same, 3,900 times behind a length with zeros at its end, 2 connections", over=True,
        seconds=3)
def names_padded(swarm, target):
    zeros = h2.field("x", "")[:-1] + b"\x7f\x83\x80\x80\x80\0" + b"v" * 130
    block = h2.call_block(h2.INFER) + zeros + NAMES * 3900
    swarm.add(2, target.grpc, names(block))


@attack("the same behind the half of a field that ends a block of an unknown stream", over=True,
        seconds=3)
def names_halved(swarm, target):
    # gRPC puts the half, a name of two bytes, in front of the next block, whose beginning is a
    # text of 500 KB to one who does not.
    half = h2.headers(2, b"\0\x02")
    block = b"\0\x7f\x82\xf8\x1f" + h2.call_block(h2.INFER) + NAMES * 3900
    swarm.add(2, target.grpc, names(block, half))


@attack("the same behind a Huffman text which gRPC drops, and with it what changes the table",
        over=True, seconds=3)
def names_dropped(swarm, target):
    dropped = b"\0" + h2.text("x") + b"\x81\x1e" + h2.field("y", "", kept=True) * 100
    block = h2.call_block(h2.INFER) + NAMES * 240
    swarm.add(16, target.grpc, names(block, h2.headers(2, dropped)))


@attack("calls with the largest header blocks that are allowed, 16 connections", seconds=3)
def names_allowed(swarm, target):
    block = h2.call_block(h2.INFER) + NAMES * 7

    def script(_peer):
        yield h2.opening() + h2.headers(1, h2.call_block(h2.INFER) + LONG_NAME) \
            + h2.flow([h2.headers(0, block)], 3, 59)
    swarm.add(16, target.grpc, script)


@attack("600 connections with 16 KB of a header block that does not end", seconds=3)
def block_unfinished(swarm, target):
    def script(_peer):
        block = h2.call_block(h2.INFER) + h2.field("x-long", "v" * 15800)
        yield h2.opening() + block_frames(1, block, h2.FRAME_BYTES, 0)
    swarm.add(600, target.grpc, script)


@attack("200 connections with 80 small calls a second each whose messages never come", seconds=6)
def calls_unreported(swarm, target):
    def script(_peer):
        full, again = h2.kept_block(LIVE)
        yield h2.opening() + h2.headers(1, full)
        for first in range(3, 1 << 20, 80):
            yield h2.flow([h2.headers(0, again)], first, 40)
            yield 0.5
    swarm.add(200, target.grpc, script)


@attack("100 connections with ten small calls each 20 ms, which read no answer", seconds=4)
def calls_waiting(swarm, target):
    def script(_peer):
        yield h2.opening(INITIAL_WINDOW_SIZE=0)
        call = h2.headers(0, h2.call_block(LIVE)), h2.data(0, h2.message(b""), h2.END_STREAM)
        for first in range(1, 1 << 20, 20):
            yield h2.flow(call, first, 10)
            yield 0.02
    swarm.add(100, target.grpc, script)


@attack("1,000 connections with one small call each whose message never comes", seconds=4)
def calls_hidden(swarm, target):
    def script(_peer):
        yield h2.opening() + h2.headers(1, h2.call_block(LIVE))
    swarm.add(1000, target.grpc, script)


@attack("80 connections that send the headers of small calls as fast as they are read", seconds=5)
def calls_hidden_fast(swarm, target):
    def script(_peer):
        full, again = h2.kept_block(LIVE)
        yield h2.opening() + h2.headers(1, full)
        for first in range(3, 1 << 20, 400):
            yield h2.flow([h2.headers(0, again)], first, 200)
    swarm.add(80, target.grpc, script)


@attack("500 connections with two small calls each, of 28 KB of headers and no message", seconds=5)
def headers_kept(swarm, target):
    block = h2.call_block(LIVE) + b"".join(h2.field("y", b"v" * 60) for _ in range(150))

    def script(_peer):
        yield h2.opening() + h2.headers(1, block) + h2.headers(3, block)
    swarm.add(500, target.grpc, script)


@attack("900 connections with a full table, a call of 200 fields, a piece of its message, and half "
        "a block of as many", seconds=5)
def headers_stacked(swarm, target):
    table = b"".join(h2.field(f"x{i}", b"vv", kept=True) for i in range(105))
    large = h2.call_block(h2.INFER) + h2.indexed(15) * 200
    whole = h2.opening() + h2.headers(1, h2.call_block(LIVE) + table) \
        + h2.data(1, h2.message(b""), h2.END_STREAM) + h2.headers(3, large) \
        + h2.data(3, h2.message(bytes(2500), 100_000)) + h2.frame(h2.HEADERS, 0, 5, large)

    def script(_peer):
        yield whole
    swarm.add(900, target.grpc, script)


@attack("8 connections with 12 MB of a message, and then a byte of the next", seconds=5)
def beyond_twice(swarm, target):
    def script(peer):
        windows = h2.Windows()
        peer.hear = windows.feed
        yield h2.opening() + h2.headers(1, h2.call_block(LIVE))
        unsent = {1: h2.message(bytes(12 * MB), 13 * MB)}
        while unsent:
            yield windows.take(unsent) or None
        yield h2.headers(3, h2.call_block(LIVE)) + h2.data(3, b"\0")
    swarm.add(8, target.grpc, script)


def between(pieces, **settings):
    """Small calls of 15 KB, which are answered at once, and a piece behind each: `pieces(windows,
    ids)` gives their bytes, and takes the ids of its streams from `ids`."""
    filler = h2.message(h2.field_of(99, bytes(15000)))

    def script(peer):
        windows, ids = h2.Windows(), itertools.count(1, 2)
        peer.hear = windows.feed
        small = pieces(windows, ids)
        yield h2.opening(**settings)
        while True:
            stream = next(ids)
            yield h2.headers(stream, h2.call_block(LIVE)) + h2.window(stream, 1 << 20)
            unsent = {stream: filler}
            while unsent:
                yield windows.take(unsent, h2.END_STREAM) or None
            yield next(small)
    return script


def halves(windows, ids):
    """40 bytes at a time of messages of 60 KB, none of which becomes whole."""
    while True:
        stream, body = next(ids), b"q" * 40
        yield h2.headers(stream, h2.call_block(h2.INFER)) + h2.data(stream, h2.message(b"", 60000))
        for _ in range(1450):
            windows.connection -= len(body)
            yield h2.data(stream, body)


def unanswered(windows, ids, path=h2.STREAM, first=b""):
    """Whole messages of 41 bytes on 14 streams, which wait behind answers that nobody reads."""
    streams = [next(ids) for _ in range(14)]
    yield b"".join(h2.headers(one, h2.call_block(path)) for one in streams)
    for stream in streams * bool(first):
        windows.streams[stream] = windows.left(stream) - len(first)
        windows.connection -= len(first)
        yield h2.data(stream, first)
    body = h2.message(h2.field_of(1, b"n" * 30))
    for stream in itertools.cycle(streams):
        if windows.left(stream) >= len(body):
            windows.streams[stream] -= len(body)
            windows.connection -= len(body)
            yield h2.data(stream, body)
        else:
            yield b""


@attack("40-byte pieces of messages between whole calls, 3 connections", seconds=4)
def pieces_pinned(swarm, target):
    swarm.add(3, target.grpc, between(halves))


@attack("whole messages of 41 bytes behind unread answers, between whole calls, 4 connections",
        seconds=5)
def messages_pinned(swarm, target):
    swarm.add(4, target.grpc, between(unanswered, INITIAL_WINDOW_SIZE=0))


@attack("the same behind whole requests of unary calls", seconds=6)
def messages_second(swarm, target):
    first = h2.message(h2.infer_request(target.model, 16))

    def pieces(windows, ids):
        return unanswered(windows, ids, h2.INFER, first)
    swarm.add(4, target.grpc, between(pieces, INITIAL_WINDOW_SIZE=0))


@attack("700 connections with two requests of 1 MB each, of which 15 KB have come", seconds=5)
def places_halved(swarm, target):
    part = h2.message(b"z" * 15000, MB)

    def script(_peer):
        block = h2.call_block(h2.INFER)
        yield h2.opening() + h2.headers(1, block) + h2.headers(3, block) \
            + h2.data(1, part) + h2.data(3, part)
        for _ in range(11):
            yield 0.1
            yield h2.data(1, b"z" * 4000) + h2.data(3, b"z" * 4000)
    swarm.add(700, target.grpc, script)


@attack("1,050 halves of requests that trickle, and 8 connections with empty ones all the time")
def places_flooded(swarm, target):
    half, block = h2.message(b"z" * 600, 20000), h2.call_block(h2.INFER)
    first, again = h2.kept_block(h2.INFER)

    def trickle(_peer):
        streams = range(1, 30, 2)
        yield h2.opening() + b"".join(
            h2.headers(one, block) + h2.data(one, half) for one in streams)
        while True:
            yield 0.3
            yield b"".join(h2.data(one, b"z" * 40) for one in streams)

    def flood(_peer):
        empty = h2.data(1, h2.message(b""), h2.END_STREAM)
        yield h2.opening() + h2.headers(1, first) + empty
        for stream in range(3, 1 << 30, 100):
            yield h2.flow([h2.headers(0, again), empty], stream, 50)
    swarm.add(70, target.grpc, trickle)
    swarm.add(8, target.grpc, flood)


@attack("12 refused requests of 4 MB with a million unknown fields each", seconds=4)
def fields_unknown(swarm, target):
    body = h2.field_of(1, target.model.encode()) + h2.field_of(
        5, h2.field_of(1, b"coords") + b"\xf8\x06\0" * 1_390_000)

    def script(peer):
        windows = h2.Windows()
        peer.hear = windows.feed
        yield h2.opening() + h2.headers(1, h2.call_block(h2.INFER))
        unsent = {1: h2.message(body)}
        while True:
            yield windows.take(unsent, h2.END_STREAM) or None
    swarm.add(12, target.grpc, script)


def large_and_idle(model, size, count):
    """A few requests of so many bytes, one after the other; then the connection stays."""
    body = memoryview(h2.message(h2.infer_request(model, size // 272, 64)))

    def script(peer):
        windows = h2.Windows()
        peer.hear = windows.feed
        yield peer.number * 0.004
        yield h2.opening()
        for stream in range(1, 2 * count, 2):
            yield h2.headers(stream, h2.call_block(h2.INFER))
            unsent = {stream: body}
            while stream not in windows.ended:
                yield (unsent and windows.take(unsent, h2.END_STREAM)) or None
    return script


@attack("1,000 connections of 64 addresses with two requests of 1 MB each, which stay", seconds=8,
        arena=True)
def buffers_kept(swarm, target):
    swarm.add(1000, target.grpc, large_and_idle(target.broad, MB, 2), sources=64)


def heavy_questions(peer):
    """15 small calls with 28 KB of headers and 16 KB of message each; no answer may be sent."""
    windows = h2.Windows()
    peer.hear = windows.feed
    block = h2.call_block(LIVE) + h2.field("y", b"v" * 60, kept=True) + h2.indexed(62) * 149
    yield h2.opening(INITIAL_WINDOW_SIZE=0)
    for stream in range(1, 31, 2):
        yield h2.headers(stream, block)
        unsent = {stream: h2.message(h2.field_of(99, bytes(16300)))}
        while unsent:
            yield windows.take(unsent, h2.END_STREAM) or None


@attack("70 connections of 64 addresses with 15 small calls of 28 KB of headers and 16 KB of "
        "message each, which read no answer", seconds=4)
def answers_heavy(swarm, target):
    swarm.add(70, target.grpc, heavy_questions, sources=64)
