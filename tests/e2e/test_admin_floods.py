# SPDX-License-Identifier: Apache-2.0
"""The admin port under clients that try to keep others out; other clients do not notice them."""
import contextlib
import socket
import struct
import threading
import time

import numpy as np
import pytest

from voxeld import Client
from voxeld_process import Daemon

# An answer that has to wait until a crowd's connections time out takes 10 s or more.
PATIENCE_SECONDS = 8
GET = b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n"
SAYS = {
    "nothing": b"",
    "half a head": b"GET /v2/health/ready HTTP/1.1\r\nHost: localhost",
    "a head and a dripping body":
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\nx",
    "requests whose answers it does not read": GET % b"/metrics" * 40,
}


def connect(daemon, says=b""):
    host, port = daemon.http.rsplit(":", 1)
    client = socket.socket()
    # Closing frees the port at once (no TIME_WAIT); a small receive buffer holds few answers.
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(30)
    client.connect((host, int(port)))
    with contextlib.suppress(ConnectionError):
        client.sendall(says)
    return client


def probe(daemon):
    """Seconds until /v2/health/ready was answered.  While hundreds connect, the daemon may close a
    connection before its request arrives; the probe then tries again, as every prober does."""
    began = time.monotonic()
    while time.monotonic() - began < 2 * PATIENCE_SECONDS:
        with connect(daemon, GET % b"/v2/health/ready") as client, \
                contextlib.suppress(ConnectionError):
            answer = client.recv(64)
            if answer:
                assert answer.startswith(b"HTTP/1.1 200 ")
                break
    return time.monotonic() - began


class Good:
    """`with Good(daemon):` sends an inference every 50 ms in the background; none may fail."""

    def __init__(self, daemon):
        self.daemon, self.ends, self.failed, self.done = daemon, threading.Event(), None, 0
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        coords = np.array([[0, 1, 2, 3]], dtype=np.int32)
        feats = np.ones((1, 4), dtype=np.float32)
        try:
            with Client(self.daemon.grpc) as client:
                while not self.ends.wait(0.05):
                    client.infer("conv", coords, feats)
                    self.done += 1
        except Exception as error:  # pylint: disable=broad-except
            self.failed = error

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join()
        assert self.failed is None, self.failed


def test_bare_connects_do_not_stop_the_loop(repository, tmp_path):
    with Daemon(repository, tmp_path) as daemon, Good(daemon) as good:
        for count in (33, 40, 48, 64, 600):
            crowd = [connect(daemon) for _ in range(count)]
            assert probe(daemon) < PATIENCE_SECONDS
            for client in crowd:
                client.close()
            assert probe(daemon) < PATIENCE_SECONDS
        before = good.done
        daemon.wait_for("an inference after the crowds", lambda: good.done > before)


@pytest.mark.parametrize("says", list(SAYS))
def test_a_crowd_does_not_keep_probes_out(repository, tmp_path, says):
    with Daemon(repository, tmp_path) as daemon, Good(daemon):
        crowd = []
        for index in range(600):
            crowd.append(connect(daemon, SAYS[says]))
            if index % 50 == 0:
                assert probe(daemon) < PATIENCE_SECONDS
        slowest = max(probe(daemon) for _ in range(100))
        print(f"600 clients that say {says}: the slowest of 100 probes took {slowest:.3f} s")
        assert slowest < PATIENCE_SECONDS
        for client in crowd:
            client.close()


def test_a_flood_of_connections_lets_probes_through(repository, tmp_path):
    ends, opened = threading.Event(), []

    def flood(daemon):
        crowd, count = [], 0
        while not ends.is_set():
            crowd.append(connect(daemon, SAYS["half a head"]))
            if len(crowd) > 300:
                crowd.pop(0).close()
            count += 1
        for client in crowd:
            client.close()
        opened.append(count)

    with Daemon(repository, tmp_path) as daemon, Good(daemon):
        threads = [threading.Thread(target=flood, args=(daemon,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            times = sorted(probe(daemon) for _ in range(300))
        finally:
            ends.set()
            for thread in threads:
                thread.join()
        print(f"{sum(opened)} connections meanwhile; probes: median {times[150]:.3f} s, "
              f"slowest {times[-1]:.3f} s")
        assert times[-1] < PATIENCE_SECONDS
