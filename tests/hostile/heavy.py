#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""heavy - good clients with a heavy load, as processes: the server may cut none of them.

    heavy.py NAME --server HOST:PORT|unix:PATH

Ends with exit code 0 and a line that says what it did; or with 1 and what went wrong.  A lost
connection is a failure, also when gRPC would have opened another.
"""
import argparse
import socket
import sys
import threading
import time

import grpc

import h2

SECONDS = 600  # only a hang takes longer
WORK = {}


def work(function):
    WORK[function.__name__] = function
    return function


class Client:
    """One connection, watched."""

    def __init__(self, server, *options):
        self.states, self.ready = [], threading.Event()
        self.channel = grpc.insecure_channel(server, options=[
            ("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1),
            ("grpc.enable_retries", 0), *options])
        self.channel.subscribe(self.on_state, try_to_connect=True)
        if not self.ready.wait(SECONDS):
            raise AssertionError(f"expected a connection, got {self.states}")

    def on_state(self, state):
        self.states.append(state)
        if state == grpc.ChannelConnectivity.READY:
            self.ready.set()

    def unary(self, path=h2.INFER):
        return self.channel.unary_unary(path)

    def close(self):
        """Checks that the first connection is still the one in use."""
        ready = grpc.ChannelConnectivity.READY
        after = self.states[self.states.index(ready):]
        self.channel.close()
        if any(state != ready for state in after):
            raise AssertionError(f"expected one connection from begin to end, got {after}")


class Window:
    """At most so many calls at once; counts how they ended."""

    def __init__(self, most):
        self.free, self.lock, self.ended = threading.Semaphore(most), threading.Lock(), {}
        self.most = most

    def add(self, call):
        call.add_done_callback(self.on_done)

    def on_done(self, call):
        with self.lock:
            word = call.code().name
            self.ended[word] = self.ended.get(word, 0) + 1
        self.free.release()

    def finish(self):
        for _ in range(self.most):
            self.free.acquire()
        return self.ended


def paced(count, rate):
    """0, 1, ... at that rate at most."""
    begin = time.monotonic()
    for i in range(count):
        time.sleep(max(0, begin + i / rate - time.monotonic()))  # sleep: the rate it asks at
        yield i


@work
def many(client):
    """10,000 small calls, at most 1,000 a second and 50 at once."""
    call, window = client.unary(), Window(50)
    request = h2.infer_request("conv", 16)
    for _ in paced(10_000, 1000):
        window.free.acquire()
        window.add(call.future(request, timeout=SECONDS))
    return window.finish() == {"OK": 10_000}, window.ended


@work
def cancels(client):
    """Cancels each request that it starts, 200 a second."""
    call, window = client.unary(), Window(1000)
    request = h2.infer_request("conv", 16)
    for _ in paced(2400, 200):
        window.free.acquire()
        future = call.future(request, timeout=SECONDS)
        window.add(future)
        future.cancel()
    ended = window.finish()
    return set(ended) <= {"CANCELLED", "OK"} and sum(ended.values()) == 2400, ended


@work
def cancels_late(client):
    """The same 2 ms later, when the request is at the server."""
    call, window = client.unary(), Window(1000)
    request, last = h2.infer_request("conv", 2000), []
    for _ in paced(2400, 200):
        window.free.acquire()
        for future in last:
            future.cancel()
        last = [call.future(request, timeout=SECONDS)]
        window.add(last[0])
    ended = window.finish()
    return set(ended) <= {"CANCELLED", "OK"} and sum(ended.values()) == 2400, ended


@work
def hasty(client):
    """Deadlines of 1 ms, 200 a second: the client drops calls all the time."""
    call, window = client.unary(), Window(1000)
    request = h2.infer_request("conv", 16)
    for _ in paced(2400, 200):
        window.free.acquire()
        window.add(call.future(request, timeout=0.001))
    ended = window.finish()
    return set(ended) <= {"DEADLINE_EXCEEDED", "OK"} and sum(ended.values()) == 2400, ended


def in_turn(client, voxels, least, count):
    """`count` requests of so many voxels and at least so many bytes, one after the other."""
    call, request = client.unary(), h2.infer_request("broad", voxels, 64)
    for _ in range(count):
        call(request, timeout=SECONDS)
    return len(request) > least, {"OK": count}


@work
def large(client):
    """Requests of 8 MB, one after the other."""
    return in_turn(client, 30_000, 8_000_000, 20)


@work
def large_few(client):
    """The same, four of them."""
    return in_turn(client, 30_000, 8_000_000, 4)


@work
def middling(client):
    """Requests of 1 MB, one after the other."""
    return in_turn(client, 3_600, 900_000, 100)


@work
def large_answers(client):
    """Answers of 8 MB, four at once."""
    call, window = client.unary(), Window(4)
    request = h2.infer_request("wide", 1024)
    for _ in range(40):
        window.free.acquire()
        window.add(call.future(request, timeout=SECONDS))
    return window.finish() == {"OK": 40}, window.ended


@work
def wide(client):
    """200 calls at once on one connection, 4,000 in all."""
    call, window = client.unary(), Window(200)
    request = h2.infer_request("conv", 16)
    for _ in range(4000):
        window.free.acquire()
        window.add(call.future(request, timeout=SECONDS))
    return window.finish() == {"OK": 4000}, window.ended


@work
def long_headers(client):
    """16 calls at once, 1,000 in all, every twentieth with 15 KB of metadata."""
    call, window = client.unary(), Window(16)
    request = h2.infer_request("conv", 16)
    for i in range(1000):
        window.free.acquire()
        metadata = [("baggage", "~" * 15000)] if i % 20 == 0 else None
        window.add(call.future(request, timeout=SECONDS, metadata=metadata))
    return window.finish() == {"OK": 1000}, window.ended


@work
def questions(client):
    """Asks for metadata 5,000 times; each call waits for the answer before."""
    call = client.unary(h2.SERVICE + "ServerMetadata")
    for _ in range(5000):
        call(b"", timeout=SECONDS)
    return True, {"OK": 5000}


@work
def streams(client):
    """400 streams of ten requests each, one after the other; every fourth is dropped open."""
    call = client.channel.stream_stream(h2.STREAM)
    request, answers = h2.infer_request("conv", 16), 0
    for i in range(400):
        ended = threading.Event()

        def requests(ended=ended):
            for _ in range(10):
                yield request
            ended.wait(SECONDS)
        stream = call(requests(), timeout=SECONDS)
        answers += sum(1 for _ in zip(range(10), stream))
        if i % 4 == 0:
            stream.cancel()
        ended.set()
        list(stream) if i % 4 else None
    return answers == 4000, {"answers": answers}


@work
def streamer(client):
    """One stream, a request every 50 ms and an answer to each, for five seconds."""
    call = client.channel.stream_stream(h2.STREAM)
    request = h2.infer_request("conv", 16)
    stream = call((request for _ in paced(100, 20)), timeout=SECONDS)
    answers = 0
    for answers, _ in enumerate(stream, 1):
        if answers == 1:
            print("begun", flush=True)
    return answers == 100, {"answers": answers}


@work
def pauser(client):
    """Four streams with a request every 7 s, four of each, and an answer to each."""
    call = client.channel.stream_stream(h2.STREAM)
    request = h2.infer_request("conv", 16)
    streams = [call((request for _ in paced(4, 1 / 7)), timeout=SECONDS) for _ in range(4)]
    first = [next(stream) for stream in streams]
    print("begun", flush=True)
    answers = len(first) + sum(1 for stream in streams for _ in stream)
    return answers == 16, {"answers": answers}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("name", choices=[*WORK, "idle", "headers_first"])
    parser.add_argument("--server", required=True)
    args = parser.parse_args()
    if args.name == "idle":
        return idle(args.server)
    if args.name == "headers_first":
        return headers_first(args.server)
    client = Client(args.server)
    good, ended = WORK[args.name](client)
    print(args.name, ended, flush=True)
    client.close()
    return 0 if good else 1


def headers_first(server):
    """1,000 small calls on a connection, of which all headers come before the first message, three
    times: each is answered."""
    count, full = 1000, h2.call_block(h2.SERVICE + "ServerLive")
    for _ in range(3):
        windows = h2.Windows()
        with connect(server) as one:
            one.sendall(h2.opening() + h2.flow([h2.headers(0, full)], 1, count))
            one.sendall(h2.flow([h2.data(0, h2.message(b""), h2.END_STREAM)], 1, count))
            while len(windows.ended) < count:
                heard = one.recv(65536)
                if not heard:
                    print("headers_first: closed after", len(windows.ended), "answers")
                    return 1
                windows.feed(heard)
                one.sendall(windows.replies)
                windows.replies = b""
    return 0


def connect(server):
    one = socket.socket(socket.AF_UNIX if server.startswith("unix:") else socket.AF_INET)
    one.settimeout(20)
    host, _, port = server.rpartition(":")
    one.connect(port if host == "unix" else (host, int(port)))
    return one


def idle(server):
    """Only gRPC's pings every 10 s, until its input ends; then its connection still works."""
    client = Client(server, ("grpc.keepalive_time_ms", 10_000),
                    ("grpc.keepalive_permit_without_calls", 1),
                    ("grpc.http2.max_pings_without_data", 0))
    client.unary()(h2.infer_request("conv", 16), timeout=SECONDS)
    sys.stdin.read()
    client.unary()(h2.infer_request("conv", 16), timeout=SECONDS)
    client.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
