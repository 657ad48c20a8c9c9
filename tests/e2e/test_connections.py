# SPDX-License-Identifier: Apache-2.0
"""Clients that use a connection as gRPC lets them: one that has been idle, one with many large
requests at once."""
import concurrent.futures
import contextlib
import pathlib
import socket
import sys
import threading

import grpc
import numpy as np

from model_files import random_grid
from voxeld import Client, messages
from voxeld_process import PATIENCE, Daemon

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / "hostile")]

import h2  # noqa: E402

PLACES, REQUESTS = 4, 60


class Link:
    """A network between one client and the daemon.  Unless `goes` is set, what the client sends
    stays on the way, in `held`; `closed`: the daemon has ended a connection."""

    def __init__(self, server):
        host, port = server.rsplit(":", 1)
        self.server = host, int(port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.goes, self.closed, self.held = threading.Event(), threading.Event(), b""
        self.goes.set()
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            self.goes.wait()
            server = socket.create_connection(self.server)
            for pump in (self._send, self._receive):
                self.threads.append(threading.Thread(target=pump, args=(client, server)))
                self.threads[-1].start()

    def _send(self, client, server):
        client.settimeout(0.01)
        kept = b""
        with contextlib.suppress(OSError):
            while True:
                with contextlib.suppress(TimeoutError):
                    if not (data := client.recv(1 << 16)):
                        break
                    self.held = kept = kept + data
                if self.goes.is_set():
                    server.sendall(kept)
                    self.held = kept = b""
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    def _receive(self, client, server):
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                client.sendall(data)
        self.closed.set()
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
        client.close()

    def close(self):
        self.goes.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        while self.threads:
            self.threads.pop().join()


def open_watch(server):
    """A connection whose one call lasts as long as it does."""
    host, port = server.rsplit(":", 1)
    peer = socket.create_connection((host, int(port)))
    peer.sendall(h2.opening() + h2.headers(1, h2.call_block(h2.WATCH))
                 + h2.data(1, h2.message(b""), h2.END_STREAM))
    return peer


def test_a_request_on_the_way_is_sent_again(repository, tmp_path):
    """All other places are taken by connections that have asked later than the client's, and still
    have a call."""
    coords, feats = random_grid(1, 100)
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(
            Daemon(repository, tmp_path, "--connections-max", str(PLACES)))
        link = stack.enter_context(contextlib.closing(Link(daemon.grpc)))
        client = stack.enter_context(Client(link.address))
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(1))
        first = client.infer("conv", coords, feats)["out"]
        for _ in range(PLACES - 1):
            stack.enter_context(open_watch(daemon.grpc))
        daemon.wait_for("the watches", lambda: daemon.metrics()["voxeld_connections"] == PLACES)
        link.goes.clear()
        second = pool.submit(client.infer, "conv", coords, feats)
        daemon.wait_for("the request to be on the way", lambda: link.held)

        def newcomer_has_its_place():
            open_watch(daemon.grpc).close()
            return link.closed.is_set()
        try:
            daemon.wait_for("the idle connection to make way", newcomer_has_its_place)
            daemon.wait_for("a place", lambda: daemon.metrics()["voxeld_connections"] < PLACES)
        finally:
            link.goes.set()
        assert np.array_equal(second.result(PATIENCE)["out"], first)


def calls_in(data):
    """How many calls begin in what a client sends, from a frame on."""
    calls, at = 0, 0
    while at + 9 <= len(data):
        calls += data[at + 3] == h2.HEADERS
        at += 9 + int.from_bytes(data[at:at + 3], "big")
    return calls


def test_many_large_requests_at_once_on_one_connection(repository, tmp_path):
    """All begin before the first one is whole, and together they are 15 times what messages may
    hold until then."""
    coords, feats = random_grid(2, 32000)
    request = messages.pack_infer("conv", coords, feats, {})
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(
            Daemon(repository, tmp_path, "--receive-bytes-max", "4M"))
        link = stack.enter_context(contextlib.closing(Link(daemon.grpc)))
        channel = stack.enter_context(grpc.insecure_channel(link.address))
        infer = channel.unary_unary(messages.SERVICE + "ModelInfer")
        first = infer(request, timeout=PATIENCE)
        link.goes.clear()
        calls = [infer.future(request, timeout=PATIENCE) for _ in range(REQUESTS)]
        try:
            daemon.wait_for("all requests to begin", lambda: calls_in(link.held) == REQUESTS)
        finally:
            link.goes.set()
        assert all(call.result() == first for call in calls)
        cut = {name: count for name, count in daemon.metrics().items()
               if name.startswith("voxeld_connections_cut_total") and count}
        assert not cut


def talk(peer, windows, unsent, stream):
    """Sends what the server lets until the call is over."""
    while stream not in windows.ended:
        peer.sendall(windows.take(unsent, h2.END_STREAM))
        heard = peer.recv(1 << 16)
        assert heard, "the server has ended the connection"
        windows.feed(heard)


def test_a_request_of_100_kilobytes_needs_one_round_trip(repository, tmp_path):
    """The first one waits for its window; the connection has a larger one from then on, so that
    the client of the second one sends all of it before it has heard anything."""
    request = h2.message(h2.infer_request("conv", 3000))
    assert 65535 < len(request) < 131072
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(Daemon(repository, tmp_path))
        host, port = daemon.grpc.rsplit(":", 1)
        peer = stack.enter_context(socket.create_connection((host, int(port)), PATIENCE))
        windows = h2.Windows()
        peer.sendall(h2.opening(INITIAL_WINDOW_SIZE=1 << 20) + h2.window(0, 1 << 20))  # answers
        for stream in 1, 3, 5:
            peer.sendall(h2.headers(stream, h2.call_block(h2.INFER)))
            unsent = {stream: request}
            while stream > 1 and unsent:
                before = len(unsent[stream])
                peer.sendall(windows.take(unsent, h2.END_STREAM))
                assert len(unsent.get(stream, b"")) < before, "the rest needs a round trip"
            talk(peer, windows, unsent, stream)
            assert stream in windows.answered
        cut = {name: count for name, count in daemon.metrics().items()
               if name.startswith("voxeld_connections_cut_total") and count}
        assert not cut
