# SPDX-License-Identifier: Apache-2.0
"""Attacks of crowds: each connection is modest, thousands of them are not."""
import itertools
import time

import h2
from roster import attack
from swarm import CLOSE

CROWD = 6000  # more than connections_max
MB = 1 << 20
PIECE = 8000  # of a message, in one frame
LIVE = h2.SERVICE + "ServerLive"
NEWCOMERS = 24
FAR = 1e9  # seconds: never


@attack("6,000 connections that ask one small question each, and stay", seconds=4)
def crowd_idle(swarm, target):
    def script(_peer):
        yield h2.opening() + h2.headers(1, h2.call_block(h2.SERVICE + "ServerLive")) \
            + h2.data(1, h2.message(b""), h2.END_STREAM)
    swarm.add(CROWD, target.grpc, script)


def asks(path, seconds):
    """A question now and then, on a connection that stays."""
    full, again = h2.kept_block(path)

    def script(peer):
        yield h2.opening() + h2.headers(1, full) + h2.data(1, h2.message(b""), h2.END_STREAM)
        yield (peer.number % 100) / 100 * seconds
        for stream in range(3, 10_000, 2):
            yield h2.headers(stream, again) + h2.data(stream, h2.message(b""), h2.END_STREAM)
            yield seconds
    return script


@attack("1,100 connections from 4 addresses that ask one small question every 2 s", seconds=6)
def crowd_asks(swarm, target):
    swarm.add(1100, target.grpc, asks(h2.SERVICE + "ServerLive", 2), sources=4)


@attack("the same from 400 addresses", seconds=6)
def crowd_asks_apart(swarm, target):
    swarm.add(1100, target.grpc, asks(h2.SERVICE + "ServerLive", 2), sources=400)


@attack("1,024 connections of one address that ask every 0.8 s, and 300 more attempts a second",
        seconds=8)
def crowd_comes(swarm, target):
    def come(_peer):
        yield h2.opening()
        yield 0.3
        yield CLOSE
    swarm.add(1024, target.grpc, asks(h2.SERVICE + "ServerLive", 0.8), sources=1)
    swarm.add(100, target.grpc, come, sources=1)


def newcomer(peer):
    """An honest client with a small question every 0.5 s: it wants one answer, and stays."""
    windows = h2.Windows()
    peer.hear = windows.feed
    full, again = h2.kept_block(LIVE)
    yield h2.opening()
    for stream in itertools.count(1, 2):
        yield h2.headers(stream, full if stream == 1 else again) \
            + h2.data(stream, h2.message(b""), h2.END_STREAM)
        while stream not in windows.ended:
            yield None
        peer.served = peer.served or stream in windows.answered
        yield 0.5


@attack("1,024 connections from 16 addresses that ask one small question every 0.8 s; 24 honest "
        "clients come", seconds=6)
def crowd_shares(swarm, target):
    swarm.add(1024, target.grpc, asks(LIVE, 0.8), sources=16)
    swarm.add_honest(NEWCOMERS, target.grpc, newcomer)


def calls_of(full, again, message, flags=0, opening=None):
    """One call after the other, each with this much of a message; the next when it has ended."""
    def script(peer):
        windows = h2.Windows()
        peer.hear = windows.feed
        yield opening or h2.opening()
        for stream in itertools.count(1, 2):
            yield h2.headers(stream, full if stream == 1 else again) \
                + h2.data(stream, message, flags)
            while stream not in windows.ended:
                yield None
    return script


@attack("600 connections of 16 addresses that ask for the health with 8,000 unknown fields each",
        seconds=4)
def health_padded(swarm, target):
    swarm.add(600, target.grpc, calls_of(
        *h2.kept_block("/grpc.health.v1.Health/Check"), h2.message(b"\x10\0" * 8000),
        h2.END_STREAM), sources=16)


@attack("900 connections of 16 addresses with inferences of 8,000 empty inputs each", seconds=4)
def parts_crowd(swarm, target):
    body = h2.field_of(1, target.model.encode()) + b"\x2a\0" * 8000
    swarm.add(900, target.grpc, calls_of(*h2.kept_block(h2.INFER), h2.message(body),
                                         h2.END_STREAM), sources=16)


@attack("900 connections of 16 addresses with inferences of an input with 4,000 empty parameters",
        seconds=4)
def parts_within(swarm, target):
    inner = h2.field_of(1, b"coords") + b"\x22\0" * 4000
    body = h2.field_of(1, target.model.encode()) + h2.field_of(5, inner)
    swarm.add(900, target.grpc, calls_of(*h2.kept_block(h2.INFER), h2.message(body),
                                         h2.END_STREAM), sources=16)


@attack("1,023 connections of one address with a call each, of whose message a byte has come; 24 "
        "honest clients come", seconds=6)
def crowd_one_byte(swarm, target):
    swarm.add(1023, target.grpc, calls_of(*h2.kept_block(h2.INFER), b"\0"), sources=1)
    swarm.add_honest(NEWCOMERS, target.grpc, newcomer)


@attack("900 addresses with a connection and a call each, of whose message a byte has come",
        seconds=5)
def addresses_one_byte(swarm, target):
    swarm.add(900, target.grpc, calls_of(*h2.kept_block(h2.INFER), b"\0"), sources=900)
    swarm.add_honest(1, target.grpc, some_at_once(target.model, 4, 40))


def some_at_once(model, most=8, count=40):
    """An honest client that does not wait for its answers: it has up to `most` small requests in
    flight, and wants none of them to be refused."""
    body = h2.message(h2.infer_request(model, 16))

    def script(peer):
        windows, ids, begun, refused, answered = h2.Windows(), itertools.count(1, 2), [], False, 0
        peer.hear = windows.feed
        yield h2.opening_wide()
        while True:
            ended = [one for one in begun if one in windows.ended]
            begun = [one for one in begun if one not in windows.ended]
            answered += len(ended)
            refused = refused or any(one not in windows.answered for one in ended)
            peer.served = answered >= count and not refused
            for _ in range(most - len(begun)):
                begun.append(next(ids))
                yield h2.headers(begun[-1], h2.call_block(h2.INFER)) + windows.take(
                    {begun[-1]: body}, h2.END_STREAM)
            yield 0.03
    return script


def rounds_beside(crowd, body, most, times, after=2, count=16):
    """An honest gateway, which comes when the crowd has been there for a while: so many requests at
    once on one connection, and the next round when all are answered.  It wants no call refused, and
    `count` rounds beside the crowd in less than so many times what as many take afterwards, when
    the crowd is gone.  Both are of one machine and one minute, and the slowest rounds alone count:
    neither the machine's speed matters nor what else runs now and then."""
    def leave():
        for one in crowd:
            if one.socket:
                one.drop(FAR)
            else:
                one.pause(FAR)

    def is_there():
        return sum(one.socket is not None for one in crowd) > 0.9 * len(crowd)

    def script(peer):
        windows, ids = h2.Windows(), itertools.count(1, 2)
        peer.hear = windows.feed

        def rounds():
            """How long they took."""
            begin = time.monotonic()
            for _ in range(count):
                begun = [next(ids) for _ in range(most)]
                unsent = {one: body for one in begun}
                yield b"".join(h2.headers(one, h2.call_block(h2.INFER)) for one in begun)
                while not windows.ended.issuperset(begun):
                    yield windows.take(unsent, h2.END_STREAM) or None
                yield 0.02
            return time.monotonic() - begin

        yield h2.opening_wide()
        while not is_there():
            yield 0.02
        yield after  # what it has sent is read, and held
        beside = yield from rounds()
        leave()
        while not peer.served and windows.answered >= windows.ended:
            alone = yield from rounds()
            if windows.answered >= windows.ended:
                peer.tries.append((round(beside, 2), round(alone, 2)))
                peer.served = beside < times * alone
    return script


@attack("900 connections of one address with a call each, of whose message a byte has come, "
        "beside a gateway with 48 requests of 192 KB at once", seconds=5, more=40)
def room_one_byte(swarm, target):
    swarm.add(900, target.grpc, calls_of(*h2.kept_block(h2.INFER), b"\0"), sources=1)
    body = h2.message(h2.infer_request(target.model, 6000))
    swarm.add_honest(1, target.grpc, rounds_beside(swarm.peers[-900:], body, 48, times=5))


def begins_and_waits(bytes_more):
    """A call with a byte of its message, and a second later more of it, which lies in its socket
    while there is no room."""
    block = h2.call_block(h2.INFER)

    def script(peer):
        windows = h2.Windows()
        peer.hear = windows.feed
        yield h2.opening() + h2.headers(1, block) + h2.data(1, h2.message(b"\0", MB))
        yield 1
        for _ in range(bytes_more // PIECE):
            yield windows.take({}) + h2.data(1, bytes(PIECE))
            yield 0.05
        while 1 not in windows.ended:
            yield windows.take({}) or None
        yield CLOSE
    return script


@attack("900 connections of four addresses with a call each, of whose message 56 KB wait in its "
        "socket, beside a gateway with 48 requests of 96 KB at once", seconds=5, more=40)
def room_unread(swarm, target):
    swarm.add(900, target.grpc, begins_and_waits(7 * PIECE), sources=4)
    body = h2.message(h2.infer_request(target.model, 3000))
    swarm.add_honest(1, target.grpc,
                     rounds_beside(swarm.peers[-900:], body, 48, times=3, after=4, count=8))


def ends_late(length, seconds):
    """One message after the other, whose last byte comes so late; it is refused, and costs no
    worker anything."""
    full, again = h2.kept_block(h2.INFER)
    body = h2.message(b"\xff" * length)

    def script(peer):
        windows = h2.Windows()
        peer.hear = windows.feed
        yield h2.opening()
        for stream in itertools.count(1, 2):
            unsent = {stream: body[:-1]}
            yield h2.headers(stream, full if stream == 1 else again)
            while unsent:
                yield windows.take(unsent) or None
            yield seconds
            yield windows.take({stream: body[-1:]}, h2.END_STREAM) or None
            while stream not in windows.ended:
                yield windows.take({}) or None
    return script


@attack("400 connections of four addresses that each end a message of 100 KB after 0.9 s and begin "
        "anew, beside a gateway with 48 requests of 96 KB at once", seconds=5, more=40)
def room_ended(swarm, target):
    swarm.add(400, target.grpc, ends_late(100_000, 0.9), sources=4)
    body = h2.message(h2.infer_request(target.model, 3000))
    swarm.add_honest(1, target.grpc,
                     rounds_beside(swarm.peers[-400:], body, 48, times=6, after=2, count=8))


@attack("1,000 connections of one address with an inference of a voxel each, beside a client that "
        "does not wait for its answers", seconds=3, arena=True)
def queue_crowd(swarm, target):
    request = h2.message(h2.infer_request(target.model, 1))
    swarm.add(1000, target.grpc,
              calls_of(*h2.kept_block(h2.INFER), request, h2.END_STREAM), sources=1)
    swarm.add_honest(1, target.grpc, some_at_once(target.model))


def watches(count, stays=False, after=0):
    """So many Watches of the server's health, each begun again when it ends; an honest client wants
    none of its to end."""
    full, again = h2.kept_block(h2.WATCH)

    def script(peer):
        windows, ids, begun = h2.Windows(), itertools.count(1, 2), []
        peer.hear = windows.feed
        yield after
        yield h2.opening()
        while True:
            peer.served = stays and not windows.ended
            begun = [one for one in begun if one not in windows.ended]
            news = [next(ids) for _ in range(count - len(begun))]
            begun += news
            calls = b"".join(
                h2.headers(one, full if one == 1 else again)
                + h2.data(one, h2.message(b""), h2.END_STREAM) for one in news)
            if calls:
                yield calls
            yield 0.1
    return script


@attack("1,200 Watches of one address and 90 of another, which cost them nothing, beside clients "
        "with an inference or two Watches", seconds=5)
def watch_crowd(swarm, target):
    swarm.add(40, target.grpc, watches(30), sources=1)
    swarm.add(90, target.grpc, watches(1, after=1), sources=1)
    for peer in swarm.peers[-90:]:
        peer.source = "127.0.3.1"
    swarm.add_honest(6, target.grpc, some_at_once(target.model, 1, 8))
    swarm.add_honest(2, target.grpc, watches(2, stays=True))


@attack("200 connections that send 640 KB at once, whatever HTTP/2's windows allow", over=True,
        seconds=5, arena=True)
def past_windows(swarm, target):
    """A request that is read as fast as it comes breaks no window, for windows grow meanwhile: each
    connection takes its answer and sends the next until one of them does."""
    request = h2.message(h2.infer_request(target.model, 20_000))
    swarm.add(200, target.grpc,
              calls_of(*h2.kept_block(h2.INFER), request, h2.END_STREAM, h2.opening_wide()),
              sources=1)


@attack("6,000 connections with one call each that sends headers only", seconds=4)
def crowd_calls(swarm, target):
    def script(_peer):
        yield h2.opening() + h2.headers(1, h2.call_block(h2.INFER))
    swarm.add(CROWD, target.grpc, script)


@attack("3,000 connections with 150 calls each that send headers only, all at one moment",
        seconds=5)
def crowd_bursts(swarm, target):
    full, again = h2.kept_block(h2.INFER)
    burst = h2.headers(1, full) + h2.flow([h2.headers(0, again)], 3, 149)

    def script(_peer):
        yield h2.opening()
        yield 1.5
        yield burst
    swarm.add(3000, target.grpc, script)


@attack("3,000 connections with 60 KB of a message of 100 KB each", seconds=5)
def crowd_halves(swarm, target):
    begin = h2.opening() + h2.headers(1, h2.call_block(h2.INFER)) \
        + h2.data(1, h2.message(bytes(60_000), 100_000))

    def script(_peer):
        yield begin
    swarm.add(3000, target.grpc, script)


@attack("1,000 connections with 60 KB of a stream's message each", seconds=5)
def crowd_stream_halves(swarm, target):
    begin = h2.opening() + h2.headers(1, h2.call_block(h2.STREAM)) \
        + h2.data(1, h2.message(bytes(60_000), 100_000))

    def script(_peer):
        yield begin
    swarm.add(1000, target.grpc, script)


@attack("700 connections which want a stream each, and ask again when they are refused", seconds=4)
def stream_places(swarm, target):
    def script(_peer):
        yield h2.opening()
        for stream in itertools.count(1, 2):
            yield h2.headers(stream, h2.call_block(h2.STREAM))
            yield 0.1
    swarm.add(700, target.grpc, script)


@attack("300 connections of one address with a stream and a request each 3 s, which come again",
        seconds=6)
def stream_crowd(swarm, target):
    request = h2.message(h2.infer_request(target.model, 1))

    def script(peer):
        windows = h2.Windows()
        peer.hear = windows.feed
        yield h2.opening()
        for stream in itertools.count(1, 2):
            yield h2.headers(stream, h2.call_block(h2.STREAM))
            while stream not in windows.ended:
                yield h2.data(stream, request)
                for _ in range(12):
                    yield 0.25
                    if stream in windows.ended:
                        break
            yield 0.5
    swarm.add(300, target.grpc, script, sources=1)


def streams_renewed(model, seconds):
    """A stream whose answer the window keeps here, given up and begun again after so long."""
    request = h2.message(h2.infer_request(model, 1))

    def script(peer):
        windows = h2.Windows()
        peer.hear = windows.feed
        yield h2.opening(INITIAL_WINDOW_SIZE=0)
        for stream in itertools.count(1, 2):
            yield h2.headers(stream, h2.call_block(h2.STREAM)) + h2.data(stream, request)
            for _ in range(int(seconds / 0.1)):
                yield 0.1
                if stream in windows.ended:
                    break
            else:
                yield h2.reset(stream)
    return script


def streams_used(model, pause, count=3):
    """An honest client: a stream, the request after a pause, and so on; it wants each answered."""
    request = h2.message(h2.infer_request(model, 1))

    def script(peer):
        windows, answered, refused = h2.Windows(), 0, False
        peer.hear = windows.feed
        yield h2.opening()
        for stream in itertools.count(1, 2):
            yield h2.headers(stream, h2.call_block(h2.STREAM))
            if pause:
                yield pause
            yield h2.data(stream, request)
            while not windows.answered & {stream} and stream not in windows.ended:
                yield 0.02
            refused = refused or stream in windows.ended
            answered += 1
            peer.served = answered >= count and not refused
            yield h2.data(stream, b"", h2.END_STREAM)
            yield 0.2
    return script


@attack("300 connections of one address with a stream whose answer is not read, begun again every "
        "8 s, beside clients whose streams pause before they ask", seconds=5)
def streams_kept(swarm, target):
    swarm.add(300, target.grpc, streams_renewed(target.model, 8), sources=1)
    swarm.add_honest(4, target.grpc, streams_used(target.model, 0))
    swarm.add_honest(4, target.grpc, streams_used(target.model, 1.5))


@attack("40 connections with messages of 40 MB that come at 400 KB/s once it is tight", seconds=5)
def crawling(swarm, target):
    body = memoryview(h2.message(bytes(40 * MB)))

    def script(peer):
        windows = h2.Windows()
        peer.hear = windows.feed
        yield h2.opening() + h2.headers(1, h2.call_block(h2.INFER))
        unsent = {1: body}
        while unsent:
            said = windows.take(unsent)
            if said:
                yield said
            yield 0.15
        yield CLOSE
    swarm.add(40, target.grpc, script)
