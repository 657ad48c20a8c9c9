#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""good - the client that attacks must not disturb: it sends small requests all the time.

    good.py --server HOST:PORT|unix:PATH --http HOST:PORT
    good.py --server tls:HOST:PORT --ca FILE --http HOST:PORT

Until its standard input ends it sends on a fixed schedule, without waiting for earlier answers:

    infer     every 50 ms, on one connection that lives as long as this process
    newcomer  every 250 ms, each on a connection of its own; it retries until it is connected
    admin     every 100 ms, /v2/health/ready on a connection of its own
    echo      every 50 ms, a byte to a process that sends it back and does nothing else: what the
              machine itself takes at that moment

and prints a line when it asks (`asked`) and one for the answer: what, when it was due, how long it
took (from when it was due) and `ok` or what went wrong.  Times are CLOCK_MONOTONIC, one clock for
all processes of a machine.
"""
import argparse
import concurrent.futures
import http.client
import socket
import subprocess
import sys
import threading
import time

import grpc

import h2

ECHO = "import socket\ns = socket.socket(fileno=0)\nwhile s.send(s.recv(1) or exit()): pass"
SECONDS = 60  # of one request: only a hang exceeds it


class Good:
    def __init__(self, args):
        self.args, self.lock, self.expected = args, threading.Lock(), {}
        if args.ca:
            with open(args.ca, "rb") as file:
                self.credentials = grpc.ssl_channel_credentials(file.read())
        self.request = h2.infer_request(args.model, 16)
        self.pool = concurrent.futures.ThreadPoolExecutor(max_workers=128)
        self.channel = self.connect()
        self.call = self.method(self.channel)
        self.mirror, other = socket.socketpair()
        self.echoes = subprocess.Popen([sys.executable, "-c", ECHO], stdin=other)
        self.mirror_lock = threading.Lock()
        other.close()

    def connect(self):
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 200)]
        if not self.args.ca:
            return grpc.insecure_channel(self.args.server, options)
        return grpc.secure_channel(self.args.server.removeprefix("tls:"), self.credentials, options)

    def method(self, channel):
        return channel.unary_unary(h2.INFER, request_serializer=None, response_deserializer=None)

    def say(self, what, due, outcome):
        line = f"{what} {due:.6f} {time.monotonic() - due:.6f} {outcome}\n"
        with self.lock:
            sys.stdout.write(line)
            sys.stdout.flush()

    def judge(self, answer):
        """Compares with the first answer: the same request gets the same bytes."""
        return "ok" if self.expected.setdefault("infer", answer) == answer else "another answer"

    def infer(self, due):
        def done(call):
            try:
                self.say("infer", due, self.judge(call.result()))
            except grpc.RpcError as error:
                self.say("infer", due, f"{error.code().name} {error.details()}"[:200])
        self.call.future(self.request, timeout=SECONDS).add_done_callback(done)

    def newcomer(self, due):
        try:
            with self.connect() as channel:
                answer = self.method(channel)(self.request, timeout=SECONDS, wait_for_ready=True)
            self.say("newcomer", due, self.judge(answer))
        except grpc.RpcError as error:
            self.say("newcomer", due, f"{error.code().name} {error.details()}"[:200])

    def admin(self, due):
        try:
            connection = http.client.HTTPConnection(self.args.http, timeout=SECONDS)
            connection.request("GET", "/v2/health/ready")
            status = connection.getresponse().status
            connection.close()
            self.say("admin", due, "ok" if status == 200 else f"status {status}")
        except (OSError, http.client.HTTPException) as error:
            self.say("admin", due, repr(error)[:200])

    def echo(self, due):
        with self.mirror_lock:
            self.mirror.sendall(b"x")
            self.say("echo", due, "ok" if self.mirror.recv(1) == b"x" else "no echo")

    def run(self):
        ended = threading.Event()
        threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
        begin = time.monotonic()
        turns = {self.infer: 0.05, self.on_pool(self.newcomer): 0.25,
                 self.on_pool(self.admin): 0.1, self.on_pool(self.echo): 0.05}
        due = {act: begin for act in turns}
        while not ended.is_set():
            act = min(due, key=due.get)
            if ended.wait(max(0, due[act] - time.monotonic())):
                break
            self.say(act.__name__, due[act], "asked")
            act(due[act])
            due[act] += turns[act]
        self.pool.shutdown(wait=True, cancel_futures=True)
        self.channel.close()
        self.mirror.close()
        self.echoes.wait()

    def on_pool(self, act):
        def submit(due):
            self.pool.submit(act, due)
        submit.__name__ = act.__name__
        return submit


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--server", required=True)
    parser.add_argument("--http", required=True)
    parser.add_argument("--ca", help="of a server with tls:")
    parser.add_argument("--model", default="conv")
    Good(parser.parse_args()).run()


if __name__ == "__main__":
    main()
