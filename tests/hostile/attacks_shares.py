# SPDX-License-Identifier: Apache-2.0
"""Attacks with what is allowed: more than a fair share of the queue, of room and of places."""
import itertools

import h2
from attacks_crowds import some_at_once
from roster import attack
from swarm import CLOSE

PIECES = 187  # MB of an arena of 256: below three quarters of it, as are four calls each of 1,024
REFUSED = 20  # as many in a row: no more room


def in_flight(body, count):
    """So many requests at once, each begun again when it is answered."""
    def script(peer):
        windows, begun, unsent = h2.Windows(), 0, {}
        peer.hear = windows.feed
        yield h2.opening_wide()
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


def megabytes(model, stands, count=4):
    """An honest client: requests of 1 MB one after the other once the attack stands, of which it
    wants so many to be answered."""
    body = h2.message(h2.infer_request(model, 4000, 64))

    def script(peer):
        windows, answered = h2.Windows(), 0
        peer.hear = windows.feed
        yield h2.opening_wide()
        while not stands():
            yield 0.05
        for stream in itertools.count(1, 2):
            yield h2.headers(stream, h2.call_block(h2.INFER))
            unsent = {stream: body}
            while stream not in windows.ended:
                yield windows.take(unsent, h2.END_STREAM) or None
            answered += stream in windows.answered
            peer.served = peer.served or answered >= count
            yield 0.25
    return script


@attack("600 connections of one address with two answers each that are not read, beside a gateway "
        "with 16 requests at once", seconds=5)
def answers_two(swarm, target):
    request = h2.message(h2.infer_request(target.model, 1))

    def script(peer):
        windows, ids, begun = h2.Windows(), itertools.count(1, 2), []
        peer.hear = windows.feed
        yield h2.opening(INITIAL_WINDOW_SIZE=0)
        while True:
            begun = [one for one in begun if one not in windows.ended]
            news = [next(ids) for _ in range(2 - len(begun))]
            begun += news
            calls = b"".join(h2.headers(one, h2.call_block(h2.INFER))
                             + h2.data(one, request, h2.END_STREAM) for one in news)
            yield calls or None
    swarm.add(600, target.grpc, script, sources=1)
    swarm.add_honest(1, target.grpc, some_at_once(target.model, 16, 60))


def ask_unread(windows, stream, request):
    """A call on a connection whose windows are 0: until its answer, or its refusal, has begun."""
    unsent = {stream: request}
    yield h2.headers(stream, h2.call_block(h2.INFER)) + windows.take(unsent, h2.END_STREAM)
    while stream not in windows.begun and stream not in windows.ended:
        yield windows.take(unsent, h2.END_STREAM) or None


@attack("400 connections of one address with an answer of 512 KB each, which nobody reads, beside "
        "a client of 1 MB", arena=True, seconds=4)
def arena_one_address(swarm, target):
    request, heard = h2.message(h2.infer_request(target.wide, 63)), set()

    def script(peer):
        windows = h2.Windows()
        peer.hear = windows.feed
        yield 0.003 * (peer.number % 400)
        yield h2.opening(INITIAL_WINDOW_SIZE=0)
        yield from ask_unread(windows, 1, request)
        heard.add(peer.number)
    swarm.add(400, target.grpc, script, sources=1)
    swarm.add_honest(1, target.grpc, megabytes(target.broad, lambda: len(heard) == 400))


@attack("an unread answer of 256 KB in each MB of the arena, then as many of 1 MB as it takes, "
        "beside a client of 1 MB", arena=True, seconds=6)
def arena_pieces(swarm, target):
    quarter = h2.message(h2.infer_request(target.wide, 31))
    whole = h2.message(h2.infer_request(target.wide, 127))
    turns, stands = [0], []

    def piece(at):
        """One of four which ask in turn, so that each has a quarter of each MB; three leave."""
        def script(peer):
            windows, streams = h2.Windows(), itertools.count(1, 2)
            peer.hear = windows.feed
            yield h2.opening(INITIAL_WINDOW_SIZE=0)
            has = 0
            while turns[0] < 4 * PIECES:
                if turns[0] % 4 == at:
                    yield from ask_unread(windows, next(streams), quarter)
                    turns[0], has = turns[0] + 1, has + 1
                else:
                    yield 0.001
            if at and has:
                yield CLOSE
        return script

    def top(peer):
        """It fills what is free beside them once the three have left."""
        windows, refused = h2.Windows(), 0
        peer.hear = windows.feed
        yield h2.opening(INITIAL_WINDOW_SIZE=0)
        while turns[0] < 4 * PIECES:
            yield 0.05
        for stream in itertools.count(1, 2):
            yield from ask_unread(windows, stream, whole)
            refused = refused + 1 if stream in windows.ended else 0
            if refused == REFUSED:
                break
            yield 0.03 * bool(refused)
        stands.append(True)
    for at in range(4):
        swarm.add(1, target.grpc, piece(at), sources=1)
    swarm.add(1, target.grpc, top, sources=1)
    swarm.add_honest(1, target.grpc, megabytes(target.broad, lambda: stands))
