# SPDX-License-Identifier: Apache-2.0
"""Attacks with whole messages, which limits on incomplete calls miss: pipelined, large, unread."""
import h2
from roster import attack

STREAMS = 250  # just below streams_max


def pipelined(path, messages, reads):
    """One stream after another, on which these messages come again and again."""
    def script(peer):
        windows = h2.Windows()
        peer.hear = windows.feed
        yield h2.opening_wide() if reads else h2.opening(INITIAL_WINDOW_SIZE=0)
        for stream in range(1, h2.LARGEST, 2):
            yield h2.headers(stream, h2.call_block(path))
            while stream not in windows.ended:
                unsent = {stream: messages}
                while unsent and stream not in windows.ended:
                    yield windows.take(unsent) or None
    return script


def requests(model):
    """Good, of no model and damaged, empty, cut short."""
    good = h2.infer_request(model, 16)
    wrong = h2.infer_request("nosuch", 3) + b"\xff\xff"
    return b"".join(h2.message(body) for body in (good, wrong, b"", good[:50])) * 40


@attack("250 connections with a stream each, which pipelines whole requests, most of them wrong",
        arena=True, seconds=4)
def stream_pipelined(swarm, target):
    swarm.add(STREAMS, target.grpc, pipelined(h2.STREAM, requests(target.model), True))


@attack("the same, and no answer is read", arena=True, seconds=4)
def stream_unread(swarm, target):
    swarm.add(STREAMS, target.grpc, pipelined(h2.STREAM, requests(target.model), False))


REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"


@attack("60 connections with a stream each, which pipelines small questions of reflection",
        seconds=4)
def reflection_pipelined(swarm, target):
    one = h2.message(h2.field_of(4, b"inference.GRPCInferenceService"))
    swarm.add(60, target.grpc, pipelined(REFLECTION, one * 400, True))


@attack("100 connections that ask reflection for names of 900 KB", seconds=4)
def reflection_large(swarm, target):
    small = h2.message(h2.field_of(4, b"inference.GRPCInferenceService"))
    asked = small * 50 + h2.message(h2.field_of(4, b"x" * 900000))
    swarm.add(100, target.grpc, pipelined(REFLECTION, asked, True))


def unread(size):
    """30 questions on a connection, and no answer is read."""
    asked = h2.message(h2.field_of(4, b"x" * size))

    def script(peer):
        windows = h2.Windows()
        peer.hear = windows.feed
        yield h2.opening(INITIAL_WINDOW_SIZE=0)
        for stream in range(1, 61, 2):
            yield h2.headers(stream, h2.call_block(h2.SERVICE + "ServerLive"))
            unsent = {stream: asked}
            while unsent and stream not in windows.ended:
                yield windows.take(unsent, h2.END_STREAM) or None
    return script


@attack("40 connections with 30 questions of 16 KB each, whose answers nobody reads", seconds=4)
def questions_unread(swarm, target):
    swarm.add(40, target.grpc, unread(16000))


def large(path, length, part):
    """A message of which only a part is sent; then another one is begun beside it."""
    def script(peer):
        windows = h2.Windows()
        peer.hear = windows.feed
        block = h2.call_block(path)
        yield h2.opening() + h2.headers(1, block) + h2.headers(3, block)
        for begun in range(part >> 20):
            unsent = {1: bytes(1 << 20) if begun else h2.message(bytes(1 << 20), length)}
            while unsent:
                yield windows.take(unsent) or None
        for turn in range(200):
            yield h2.data(3, h2.message(b"y", 1 << 20)) if not turn else h2.data(3, b"y" * 300)
            yield 0.1
    return script


def reset_behind(body):
    """A whole message on one stream after the other, and a reset behind each."""
    whole = h2.message(body)

    def script(peer):
        windows = h2.Windows()
        peer.hear = windows.feed
        yield h2.opening()
        for stream in range(1, h2.LARGEST, 2):
            yield h2.headers(stream, h2.call_block(h2.INFER))
            unsent = {stream: whole}
            while unsent:
                yield windows.take(unsent) or None
            yield h2.reset(stream)
    return script


@attack("200 connections with 2 MB of numbers, one by one, and a reset behind each", arena=True,
        seconds=5)
def messages_reset(swarm, target):
    swarm.add(200, target.grpc, reset_behind(h2.infer_numbers(target.model, 2 << 20)))


@attack("4 small calls with messages of 500 MB", over=True, seconds=7)
def questions_endless(swarm, target):
    swarm.add(4, target.grpc, large(h2.SERVICE + "ServerLive", 500 << 20, 200 << 20))


@attack("16 connections that bring 18 MB of a message of 60, and begin another one", seconds=6)
def messages_begun(swarm, target):
    swarm.add(16, target.grpc, large(h2.INFER, 60 << 20, 18 << 20))


def parked(model, body):
    """15 streams with 8 small requests each, whose answers nobody reads, and then this one."""
    def script(peer):
        windows = h2.Windows()
        peer.hear = windows.feed
        streams = range(1, 30, 2)
        yield h2.opening(INITIAL_WINDOW_SIZE=0)
        yield b"".join(h2.headers(one, h2.call_block(h2.STREAM)) for one in streams)
        unsent = dict.fromkeys(streams, h2.message(h2.infer_request(model, 16)) * 8)
        while unsent:
            yield windows.take(unsent) or None
        yield 1
        for one in streams:
            unsent = {one: body}
            while unsent:
                yield windows.take(unsent) or None
    return script


@attack("240 streams with unread answers, and then messages of 4 MB", arena=True, seconds=6)
def messages_parked(swarm, target):
    body = h2.message(h2.field_of(99, bytes(4 << 20)))
    swarm.add(STREAMS // 15, target.grpc, parked(target.model, body))


@attack("the same questions of 900 KB", seconds=4)
def questions_large(swarm, target):
    swarm.add(40, target.grpc, unread(900000))
