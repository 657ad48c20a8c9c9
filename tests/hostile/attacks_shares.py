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
