# SPDX-License-Identifier: Apache-2.0
"""SIGTERM amid an attack ends the daemon in time; a log that nobody reads stops nothing."""
import fcntl
import os
import signal
import socket
import stat
import subprocess
import sys
import time

import pytest

import h2
from rig import HERE, Rig

DRAIN_MS = 1000
REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
STILL_DRAIN_MS = 600_000
STILL_SECONDS = 200  # five without a byte, and a busy machine
END_SECONDS = 30  # a second for what is in flight, and a machine that is busy with the attackers
PIPE_BYTES = 4096
REQUESTS_LOGGED = 200  # more than the pipe holds: a line is over 100 bytes


@pytest.mark.parametrize("names", [
    ("admin_bare_48", "admin_pipelined"), ("headers_only", "trickle_300", "zero_window"),
    ("rapid_reset",), ("mix_frames",), ("half_open",), ("slow_readers", "stream_halves")],
    ids="+".join)
def test_sigterm_in_the_middle(names, tmp_path):
    rig = Rig(tmp_path, "--drain-ms", str(DRAIN_MS))
    attackers = None
    try:
        attackers = subprocess.Popen(
            [sys.executable, str(HERE / "attack.py"), *names, "--seconds", "120",
             "--server", rig.server, "--http", rig.daemon.http],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert attackers.stderr.readline() == "begun\n"
        time.sleep(1)  # sleep: into the middle of the attack
        rig.daemon.signal(signal.SIGTERM)
        assert rig.daemon.process.wait(END_SECONDS) == 0, rig.daemon.log()[-4000:]
    finally:
        if attackers:
            attackers.kill()
            attackers.wait()
            attackers.stderr.close()
        rig.kill()


def test_a_drain_waits_for_nobody_who_stands_still(tmp_path):
    """Half a request, and a stream of questions without one, do not last as long as it may."""
    rig = Rig(tmp_path, "--drain-ms", str(STILL_DRAIN_MS))
    host, port = rig.server.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port))) as one:
            one.sendall(h2.opening() + h2.headers(1, h2.call_block(h2.INFER))
                        + h2.data(1, h2.message(bytes(100), 100_000))
                        + h2.headers(3, h2.call_block(REFLECTION)))
            rig.wait("both", lambda: rig.daemon.metrics()["voxeld_calls_in_flight"] >= 2)
            rig.daemon.signal(signal.SIGTERM)
            assert rig.daemon.process.wait(STILL_SECONDS) == 0, rig.daemon.log()[-4000:]
    finally:
        rig.kill()


def test_an_end_waits_for_no_answer_that_is_not_read(tmp_path):
    """gRPC keeps a call until its answer is written: the connection is closed, not waited for."""
    rig = Rig(tmp_path, "--drain-ms", "100")
    host, port = rig.server.rsplit(":", 1)
    try:
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect((host, int(port)))
            one.sendall(h2.opening(INITIAL_WINDOW_SIZE=2**31 - 1) + h2.window(0, 2**31 - 1 - 65535)
                        + h2.headers(1, h2.call_block(h2.INFER))
                        + h2.data(1, h2.message(h2.infer_request("wide", 1024)), h2.END_STREAM))
            rig.wait("the answer", lambda: len(one.recv(4096, socket.MSG_PEEK)) > 1000)
            rig.daemon.signal(signal.SIGTERM)
            assert rig.daemon.process.wait(STILL_SECONDS) == 0, rig.daemon.log()[-4000:]
        assert "it did not read the answers" in rig.daemon.log()
    finally:
        rig.kill()


def log_into_a_pipe(tmp_path, monkeypatch):
    """voxeld's log goes into a pipe from now on; what reads from it."""
    fifo, wrapper = tmp_path / "fifo", tmp_path / "voxeld"
    os.mkfifo(fifo)
    wrapper.write_text(f'#!/bin/sh\nexec "{os.environ["VOXELD"]}" "$@" 2>"{fifo}"\n')
    wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("VOXELD", str(wrapper))
    pipe = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return pipe


def read_all(pipe):
    out = b""
    while True:
        try:
            out += os.read(pipe, 1 << 16)
        except BlockingIOError:
            return out


def test_an_access_log_that_nobody_reads_stops_nothing(tmp_path, monkeypatch):
    pipe = log_into_a_pipe(tmp_path, monkeypatch)
    rig = Rig(tmp_path, "--access-log")
    try:
        rig.warm_up()
        begin = time.monotonic()
        rig.wait("answers beyond what the pipe holds", lambda: len(
            rig.good.since(begin, what="infer")) >= REQUESTS_LOGGED)
        answers = rig.good.since(begin)
        assert not [a for a in answers if a.outcome != "ok"]
        assert {"infer", "newcomer", "admin"} <= {a.what for a in answers}
        assert len(read_all(pipe)) >= PIPE_BYTES / 2  # it was full
        seen = bytearray()

        def flows():
            seen.extend(read_all(pipe))
            return len(seen) > 4 * PIPE_BYTES
        rig.wait("the log to flow again", flows)
        rig.stop()  # exit code 0, with the pipe full again
    finally:
        rig.kill()
        os.close(pipe)
