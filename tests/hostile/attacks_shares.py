# SPDX-License-Identifier: Apache-2.0
"""Attacks with what is allowed: more than a fair share of the queue, of room and of places."""
import h2
from roster import attack

WINDOW_MAX = 2**31 - 1


def in_flight(body, count):
    """So many requests at once, each begun again when it is answered."""
    def script(peer):
        windows, begun, unsent = h2.Windows(), 0, {}
        peer.hear = windows.feed
        yield h2.opening(INITIAL_WINDOW_SIZE=WINDOW_MAX) + h2.window(0, WINDOW_MAX - 65535)
        while True:
            out = b""
            while begun - len(windows.ended) < count and len(unsent) < 8:
                stream = 2 * begun + 1
                begun += 1
                out += h2.headers(stream, h2.call_block(h2.INFER))
                unsent[stream] = h2.message(body)
            out += windows.take(unsent, h2.END_STREAM)
            yield out or None
    return script


@attack("one connection with 300 requests of 3,000 voxels in flight", arena=True, seconds=4)
def queue_filled(swarm, target):
    swarm.add(1, target.grpc, in_flight(h2.infer_request(target.model, 3000), 300))


@attack("40 connections with 2 requests of 60,000 voxels each in flight", arena=True, seconds=4)
def queue_large(swarm, target):
    swarm.add(40, target.grpc, in_flight(h2.infer_request(target.model, 60000), 2))


def almost(length, left):
    """All of a message but its end, and then one more byte from time to time."""
    def script(peer):
        del peer
        yield h2.opening() + h2.headers(1, h2.call_block(h2.INFER))
        body = h2.message(bytes(length))
        yield h2.data(1, body[:-left])
        for _ in range(left - 1):
            yield 0.5
            yield h2.data(1, b"x")
    return script


@attack("400 connections that hold all of a message of 60 KB but 300 bytes, and trickle", seconds=4)
def almost_whole(swarm, target):
    swarm.add(400, target.grpc, almost(60000, 300))


def standing(body, length):
    """So much of a message, and then 200 bytes of it now and then."""
    def script(peer):
        windows = h2.Windows()
        peer.hear = windows.feed
        yield h2.opening() + h2.headers(1, h2.call_block(h2.INFER))
        unsent = {1: h2.message(bytes(body), length)}
        while True:
            yield windows.take(unsent) or None
            if not unsent:
                yield 0.1
                unsent = {1: bytes(200)}
    return script


@attack("100 connections that stand still within a message of 64 MB, and come back", seconds=4)
def room_kept(swarm, target):
    swarm.add(100, target.grpc, standing(300 << 10, 64 << 20))


@attack("60 connections with 10 halves of requests each, which creep, and 4 with small ones",
        seconds=4)
def room_pieces(swarm, target):
    block = h2.call_block(h2.INFER)

    def halves(_peer):
        ids = range(1, 21, 2)
        yield h2.opening() + b"".join(
            h2.headers(one, block) + h2.data(one, h2.message(bytes(600), 20000)) for one in ids)
        while True:
            yield 0.3
            yield b"".join(h2.data(one, bytes(40)) for one in ids)

    def small(peer):
        windows = h2.Windows()
        peer.hear = windows.feed
        full, again = h2.kept_block(h2.INFER)
        end = h2.data(0, h2.message(b""), h2.END_STREAM)
        yield h2.opening() + h2.headers(1, full) + h2.data(1, h2.message(b""), h2.END_STREAM)
        for first in range(3, 1 << 24, 100):
            yield h2.flow([h2.headers(0, again), end], first, 50)
    swarm.add(60, target.grpc, halves)
    swarm.add(4, target.grpc, small)


def ended_calls(count):
    """Calls that the server has ended at once; the client never ends its half."""
    def script(peer):
        windows = h2.Windows()
        peer.hear = windows.feed
        yield h2.opening()
        for stream in range(1, 2 * count, 2):
            yield h2.headers(stream, h2.call_block("/no.Such/Method"))
        while True:
            yield windows.replies or None
            windows.replies = b""
    return script


@attack("3 connections with 3,900 calls each that are answered and not ended", seconds=4)
def calls_ended(swarm, target):
    swarm.add(3, target.grpc, ended_calls(3900))
