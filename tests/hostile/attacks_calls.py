# SPDX-License-Identifier: Apache-2.0
"""Attacks with calls: begun and reset, begun and left, sent a byte at a time, not read."""
import itertools

import h2
from roster import attack
from swarm import CLOSE

MB = 1 << 20
STREAM_LAST = 2**31 - 1


def begun(path, pieces, settings=None, block=6 * 1000):
    """A script of one call after another without end: `pieces(headers)` are one call's frames."""
    def script(_peer):
        full, again = h2.kept_block(path)
        yield h2.opening(**settings or {}) + h2.flow(pieces(h2.headers(0, full)), 1, 1)
        count = max(1, block // 6)
        for first in range(3, STREAM_LAST - 2 * count, 2 * count):
            yield h2.flow(pieces(h2.headers(0, again)), first, count)
        yield CLOSE
    return script


@attack("HEADERS and RST_STREAM as fast as possible, 4 connections", over=True, seconds=4)
def rapid_reset(swarm, target):
    swarm.add(4, target.grpc, begun(h2.INFER, lambda head: [head, h2.reset(0)]))


@attack("the same, and nothing that the server says is read", over=True, seconds=4)
def rapid_reset_deaf(swarm, target):
    swarm.add(4, target.grpc, begun(h2.INFER, lambda head: [head, h2.reset(0)]), reads=False)


@attack("200 connections with 10 resets a second each, which is no more than a hasty client does",
        seconds=4)
def resets_spread(swarm, target):
    def script(_peer):
        full, again = h2.kept_block(h2.INFER)
        yield h2.opening() + h2.headers(1, full) + h2.reset(1)
        for first in itertools.count(3, 4):
            yield h2.flow([h2.headers(0, again), h2.reset(0)], first, 2)
            yield 0.2
    swarm.add(200, target.grpc, script)


@attack("connections that reset 200 calls, leave and come again, 8 at once", over=False)
def resets_moving(swarm, target):
    full, again = h2.kept_block(h2.INFER)
    begin = h2.opening() + h2.headers(1, full) + h2.reset(1) \
        + h2.flow([h2.headers(0, again), h2.reset(0)], 3, 200)

    def script(_peer):
        yield begin
        yield None
        yield 0.01
        yield CLOSE
    swarm.add(8, target.grpc, script)


@attack("streams opened and reset as fast as possible, 4 connections", over=True)
def rapid_reset_streams(swarm, target):
    swarm.add(4, target.grpc, begun(h2.STREAM, lambda head: [head, h2.reset(0)]))


@attack("calls reset within their message, 4 connections", over=True)
def reset_within(swarm, target):
    part = h2.frame(h2.DATA, 0, 0, h2.message(b"x" * 20, 4000))
    swarm.add(4, target.grpc, begun(h2.INFER, lambda head: [head, part, h2.reset(0)], block=600))


@attack("calls that go wrong by themselves (DATA after the end), 4 connections")
def reset_made(swarm, target):
    end = h2.frame(h2.DATA, h2.END_STREAM, 0, b"")
    more = h2.frame(h2.DATA, 0, 0, b"x")
    swarm.add(4, target.grpc, begun(h2.INFER, lambda head: [head, end, more], block=600))


def held_calls(path, count, more=50):
    """So many calls that send only headers, and more later, since the server may refuse some."""
    def script(_peer):
        full, again = h2.kept_block(path)
        yield h2.opening() + h2.headers(1, full) \
            + h2.flow([h2.headers(0, again)], 3, count - 1)
        for first in itertools.count(2 * count + 1, 2 * more or 2):
            if not more:
                return
            yield 0.05
            yield h2.flow([h2.headers(0, again)], first, more)
    return script


@attack("1,100 calls of one connection that send headers only, and go on", seconds=4)
def headers_only(swarm, target):
    swarm.add(1, target.grpc, held_calls(h2.INFER, 1100))


@attack("the same without going on: 1,100 calls, and silence", seconds=4)
def headers_only_still(swarm, target):
    swarm.add(1, target.grpc, held_calls(h2.INFER, 1100, 0))


@attack("1,100 calls each of 8 connections that send headers only, and go on")
def headers_only_many(swarm, target):
    swarm.add(8, target.grpc, held_calls(h2.INFER, 1100))


@attack("300 clients with one call each that sends headers only", seconds=4)
def headers_only_300(swarm, target):
    swarm.add(300, target.grpc, held_calls(h2.INFER, 1, 0))


@attack("1,100 calls of a method that has no turns to wait for, headers only")
def headers_only_small(swarm, target):
    swarm.add(1, target.grpc, held_calls(h2.SERVICE + "ServerLive", 1100))


@attack("300 clients whose message comes byte by byte", seconds=4)
def trickle_300(swarm, target):
    def script(_peer):
        yield h2.opening() + h2.headers(1, h2.call_block(h2.INFER)) \
            + h2.data(1, h2.message(b"", 100_000))
        while True:
            yield 0.1
            yield h2.data(1, b"x")
    swarm.add(300, target.grpc, script)


@attack("one client with 1,000 calls whose messages come byte by byte", seconds=4)
def trickle_1000(swarm, target):
    def script(_peer):
        full, again = h2.kept_block(h2.INFER)
        begin = [h2.headers(0, again), h2.data(0, h2.message(b"", 100_000))]
        yield h2.opening() + h2.headers(1, full) + h2.flow(begin, 3, 1000)
        while True:
            yield 0.2
            yield h2.flow([h2.data(0, b"x")], 3, 1000)
    swarm.add(1, target.grpc, script)


def half_messages(path, streams, declared, sent):
    """Messages of `declared` bytes; only `sent` bytes are sent, within the server's windows."""
    body = memoryview(h2.message(bytes(sent), declared))

    def script(peer):
        windows = h2.Windows()
        peer.hear = windows.feed
        full, again = h2.kept_block(path)
        yield h2.opening() + h2.headers(1, full) + (
            h2.flow([h2.headers(0, again)], 3, streams - 1) if streams > 1 else b"")
        unsent = {1 + 2 * i: body for i in range(streams)}
        while True:
            yield windows.take(unsent) or None
    return script


@attack("32 ModelStreamInfer streams of one connection with half of a message of 40 MB", seconds=4)
def stream_halves(swarm, target):
    swarm.add(1, target.grpc, half_messages(h2.STREAM, 32, 40 * MB, 20 * MB))


@attack("32 connections with one such stream each", seconds=4)
def stream_halves_32(swarm, target):
    swarm.add(32, target.grpc, half_messages(h2.STREAM, 1, 40 * MB, 20 * MB))


@attack("32 connections with half of a request of 40 MB each", seconds=4)
def infer_halves(swarm, target):
    swarm.add(32, target.grpc, half_messages(h2.INFER, 1, 40 * MB, 20 * MB))


@attack("4 connections with 200 calls of small methods whose messages are half there")
def small_halves(swarm, target):
    swarm.add(4, target.grpc, half_messages(h2.SERVICE + "ServerLive", 200, 4 * MB, 2 * MB))


@attack("40 requests with answers of 8 MB that nobody reads, one every 40 ms", arena=True,
        receive_bytes=4096, seconds=4)
def slow_readers(swarm, target):
    request = h2.message(h2.infer_request(target.wide, 1024))

    def script(peer):
        yield 0.04 * (peer.number % 40)  # the attack is not on the device
        yield h2.opening(INITIAL_WINDOW_SIZE=2**31 - 1) + h2.window(0, 2**31 - 1 - 65535) \
            + h2.headers(1, h2.call_block(h2.INFER)) + h2.data(1, request, h2.END_STREAM)
    swarm.add(40, target.grpc, script, reads=False)


@attack("40 requests with answers of 8 MB that are read by 1 KB at a time", arena=True, seconds=4)
def slow_windows(swarm, target):
    request = h2.message(h2.infer_request(target.wide, 1024))

    def script(peer):
        yield 0.04 * (peer.number % 40)
        yield h2.opening(INITIAL_WINDOW_SIZE=1) + h2.headers(1, h2.call_block(h2.INFER)) \
            + h2.data(1, request, h2.END_STREAM)
        while True:
            yield 0.1
            yield h2.window(1, 1024) + h2.window(0, 1024)
    swarm.add(40, target.grpc, script)


@attack("8 connections with 200 small requests each whose windows are 0", arena=True, seconds=4)
def zero_window(swarm, target):
    request = h2.message(h2.infer_request(target.model, 4))

    def script(_peer):
        full, again = h2.kept_block(h2.INFER)
        body = h2.data(0, request, h2.END_STREAM)
        yield h2.opening(INITIAL_WINDOW_SIZE=0) + h2.flow([h2.headers(0, full), body], 1, 1)
        for first in range(3, 400, 40):
            yield h2.flow([h2.headers(0, again), body], first, 20)
            yield 0.2
    swarm.add(8, target.grpc, script)


@attack("66 connections with 16 questions each whose windows are 0, and 90 with one", seconds=4)
def zero_window_crowd(swarm, target):
    asked = h2.data(0, h2.message(b""), h2.END_STREAM)

    def script(peer):
        full, again = h2.kept_block(h2.SERVICE + "ServerMetadata")
        yield 0.01 * (peer.number % 156)
        yield h2.opening(INITIAL_WINDOW_SIZE=0) + h2.flow([h2.headers(0, full), asked], 1, 1) \
            + (h2.flow([h2.headers(0, again), asked], 3, 15) if peer.number % 156 < 66 else b"")
    swarm.add(156, target.grpc, script)


@attack("16 connections which ask for answers of all sizes until none fits, and read none",
        arena=True, seconds=4)
def arena_full(swarm, target):
    sizes = itertools.cycle((1024, 256, 64, 16, 4, 1))
    requests = {size: h2.message(h2.infer_request(target.wide, size)) for size in (
        1024, 256, 64, 16, 4, 1)}

    def script(peer):
        windows = h2.Windows()
        peer.hear = windows.feed
        full, again = h2.kept_block(h2.INFER)
        yield h2.opening(INITIAL_WINDOW_SIZE=0) + h2.headers(1, full)
        unsent = {1: requests[1024]}
        for stream in itertools.count(3, 2):
            while unsent:
                yield windows.take(unsent, h2.END_STREAM) or None
            yield 0.02
            yield h2.headers(stream, again)
            unsent[stream] = requests[next(sizes)]
    swarm.add(16, target.grpc, script)


@attack("small questions as fast as possible whose answers nobody reads, 4 connections",
        receive_bytes=4096, seconds=3)
def answers_unread(swarm, target):
    end = h2.data(0, h2.message(b""), h2.END_STREAM)
    calls = begun(h2.SERVICE + "ServerMetadata", lambda head: [head, end], block=600)
    swarm.add(4, target.grpc, calls, reads=False)


@attack("small questions as fast as possible, 4 connections")
def questions(swarm, target):
    end = h2.data(0, h2.message(b""), h2.END_STREAM)
    swarm.add(4, target.grpc, begun(h2.SERVICE + "ServerLive", lambda head: [head, end], block=600))


@attack("inferences of nonsense as fast as possible, 4 connections")
def bad_requests(swarm, target):
    end = h2.data(0, h2.message(b"nonsense"), h2.END_STREAM)
    swarm.add(4, target.grpc, begun(h2.INFER, lambda head: [head, end], block=600))


@attack("calls of a method that is not there as fast as possible, 4 connections")
def unknown_methods(swarm, target):
    swarm.add(4, target.grpc, begun("/no.Such/Method", lambda head: [head], block=600))


@attack("400 unknown calls each of 4 connections that read nothing, then headers of inferences",
        arena=True, receive_bytes=4096, seconds=6)
def refusals_unread(swarm, target):
    request = h2.message(h2.infer_request(target.wide, 1024))

    def script(_peer):
        full, again = h2.kept_block("/no.Such/Method")
        yield h2.opening(INITIAL_WINDOW_SIZE=2**31 - 1) + h2.window(0, 2**31 - 1 - 65535) \
            + h2.headers(1, h2.call_block(h2.INFER)) + h2.data(1, request, h2.END_STREAM)
        yield 1.0  # its answer fills the socket
        yield h2.headers(3, full)
        for first in range(5, 805, 160):
            yield h2.flow([h2.headers(0, again)], first, 80)
            yield 0.3
        yield h2.flow([h2.headers(0, h2.call_block(h2.INFER))], 805, 16)
    swarm.add(4, target.grpc, script, reads=False)


@attack("calls without any of the headers that a call has, 4 connections")
def bare_calls(swarm, target):
    def script(_peer):
        yield h2.opening()
        for first in range(1, STREAM_LAST - 400, 400):
            yield h2.flow([h2.headers(0, h2.field("a", "b"), h2.END_HEADERS | h2.END_STREAM)],
                          first, 200)
    swarm.add(4, target.grpc, script)


def lasting(path, last):
    """1,000 calls that last as long as their client wants."""
    def script(_peer):
        full, again = h2.kept_block(path)
        asked = h2.data(0, h2.message(b""), last)
        yield h2.opening() + h2.flow([h2.headers(0, full), asked], 1, 1) \
            + h2.flow([h2.headers(0, again), asked], 3, 999)
    return script


@attack("1,000 health watches each of 4 connections")
def watches(swarm, target):
    swarm.add(4, target.grpc, lasting(h2.WATCH, h2.END_STREAM))


@attack("1,000 reflection streams each of 4 connections")
def reflections(swarm, target):
    path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    swarm.add(4, target.grpc, lasting(path, 0))
