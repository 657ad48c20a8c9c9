# SPDX-License-Identifier: Apache-2.0
"""Two voxelds that start at one unix path at the same moment: exactly one of them serves there."""
import os
import socket
import struct
import subprocess
import time

from conftest import SANITIZED

ROUNDS = 10 if SANITIZED else 50
SECONDS = 300  # for two that hang


def server_of(path):
    """Id of the process that listens there."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return struct.unpack("3i", credentials)[0]


def start(repository, path, log):
    with open(log, "wb") as out:
        return subprocess.Popen(
            [os.environ["VOXELD"], "serve", "--repository", str(repository), "--device", "cpu",
             "--grpc", f"unix:{path}", "--http", "127.0.0.1:0", "--grace-ms", "0",
             "--arena-bytes", "16M", "--device-bytes", "16M", "--cache-bytes", "1M"],
            stdin=subprocess.DEVNULL, stdout=out, stderr=out)


def listens(log):
    return any("LISTEN" in line and "what=grpc" in line for line in log.read_text().splitlines())


def race(repository, path, logs):
    both = [start(repository, path, log) for log in logs]
    try:
        end = time.monotonic() + SECONDS
        while not (any(map(listens, logs)) and any(p.poll() is not None for p in both)):
            assert time.monotonic() < end, [log.read_text() for log in logs]
            time.sleep(0.005)  # sleep: between two checks
        lost = [p.poll() is not None for p in both]
        assert sum(lost) == 1, [log.read_text() for log in logs]
        loser, winner = lost.index(True), lost.index(False)
        assert both[loser].returncode != 0
        assert "another server listens there" in logs[loser].read_text()
        assert not listens(logs[loser])
        assert server_of(path) == both[winner].pid
        both[winner].kill()  # its file stays, and the next two daemons find it
        both[winner].wait()
    finally:
        for process in both:
            if process.poll() is None:
                process.kill()
                process.wait()


def test_one_of_two_that_start_together_serves(tmp_path):
    repository = tmp_path / "repository"
    repository.mkdir()
    path = tmp_path / "s"
    for i in range(ROUNDS):
        race(repository, path, [tmp_path / f"{i}-{k}.log" for k in "ab"])
        assert path.is_socket()
