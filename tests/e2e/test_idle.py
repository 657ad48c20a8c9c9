# SPDX-License-Identifier: Apache-2.0
"""A client whose idle connection makes way for others while its next request is on the way."""
import concurrent.futures
import contextlib
import pathlib
import socket
import sys
import threading

import numpy as np

from model_files import random_grid
from voxeld import Client
from voxeld_process import PATIENCE, Daemon

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / "hostile")]

import h2  # noqa: E402

PLACES = 4


class Link:
    """A network between one client and the daemon.  Unless `goes` is set, what the client sends
    stays on the way, and `held` says that there is some; `closed`: the daemon has ended a
    connection."""

    def __init__(self, server):
        host, port = server.rsplit(":", 1)
        self.server = host, int(port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.goes, self.held, self.closed = threading.Event(), threading.Event(), threading.Event()
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
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if not self.goes.is_set():
                    self.held.set()
                self.goes.wait()
                server.sendall(data)
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
        daemon.wait_for("the request to be on the way", link.held.is_set)

        def newcomer_has_its_place():
            open_watch(daemon.grpc).close()
            return link.closed.is_set()
        try:
            daemon.wait_for("the idle connection to make way", newcomer_has_its_place)
            daemon.wait_for("a place", lambda: daemon.metrics()["voxeld_connections"] < PLACES)
        finally:
            link.goes.set()
        assert np.array_equal(second.result(PATIENCE)["out"], first)
