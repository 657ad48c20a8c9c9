# SPDX-License-Identifier: Apache-2.0
"""A slow or absent log reader: the daemon does not wait for it, and it reports dropped lines."""
import os
import re
import signal
import subprocess
import threading

import numpy as np
import pytest

from conftest import SANITIZED
from voxeld import Client
from voxeld_process import PATIENCE, Daemon

COORDS = np.array([[0, 1, 2, 3]], dtype=np.int32)
FEATS = np.ones((1, 4), dtype=np.float32)
# A line of the access log is over 500 bytes with this id, the log keeps 1 MB, a pipe 64 KB.
ID = "i" * 200
REQUESTS = 2500
# For other signals a sanitizer has its own handlers.
CRASHES = [signal.SIGABRT] if SANITIZED else [signal.SIGABRT, signal.SIGSEGV]
LINE = re.compile(r"20\S+Z (debug|info|warn|error) [A-Z_]+ process=(front|worker)"
                  r"( \S+=(\"[^\"]*\"|\S+))*")


class Piped(Daemon):
    """A daemon whose log is a pipe; nobody reads it until read() or close()."""

    def __init__(self, repository, work, *flags, blocking=True):
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.writing, blocking)
        self.text, self.reader = b"", None
        super().__init__(repository, work, *flags)

    def open_log(self):
        return os.fdopen(self.writing, "wb")

    def _read(self):
        while piece := os.read(self.reading, 65536):
            self.text += piece

    def read(self):
        """Starts to read, until the last process that can write has ended."""
        self.reader = threading.Thread(target=self._read)
        self.reader.start()

    def log(self):
        return self.text.decode()

    def end(self, number=signal.SIGTERM, code=0):
        """Ends the daemon; if a reader runs, it has read every line when this returns."""
        self.signal(number)
        assert self.process.wait(PATIENCE) == code
        if self.reader:
            self.reader.join(PATIENCE)

    def __exit__(self, kind, *rest):
        self.kill()
        if self.reader:
            self.reader.join(PATIENCE)
        os.close(self.reading)


def infer(daemon, count):
    with Client(daemon.grpc) as client:
        for _ in range(count):
            client.infer("conv", COORDS, FEATS, timeout=PATIENCE, id=ID)


def total(daemon, metric):
    return sum(value for name, value in daemon.metrics().items() if name.split("{")[0] == metric)


def dropped(daemon):
    return total(daemon, "voxeld_log_lines_dropped_total")


def lines_of(text):
    lines = text.split("\n")
    assert lines.pop() == ""  # every line is complete
    for line in lines:
        assert LINE.fullmatch(line), line
    return lines


@pytest.mark.release
def test_a_log_that_nobody_reads_keeps_nobody(repository, tmp_path):
    with Piped(repository, tmp_path, "--access-log") as daemon:
        infer(daemon, REQUESTS)
        lost = dropped(daemon)
        assert lost > 0
        assert daemon.get("/v2/health/ready")[0] == 200
        # Workers that start use the same pipe.
        os.kill(daemon.workers()[0], signal.SIGKILL)
        daemon.wait_for("a new worker", lambda: total(daemon, "voxeld_worker_restarts_total") == 1
                        and total(daemon, "voxeld_ready") == 1)
        infer(daemon, 10)
        daemon.end()


def test_where_lines_are_missing_it_says_how_many(repository, tmp_path):
    with Piped(repository, tmp_path, "--access-log") as daemon:
        infer(daemon, REQUESTS)
        lost = dropped(daemon)
        assert lost > 0
        daemon.read()
        daemon.wait_for("the line that tells of them", lambda: "LOG_DROPPED" in daemon.log())
        infer(daemon, 10)
        assert dropped(daemon) == lost
        daemon.end()
        lines = lines_of(daemon.log())
        told = sum(int(n) for n in re.findall(r"LOG_DROPPED process=front lines=(\d+)\n",
                                              daemon.log()))
        assert told == lost
        accesses = [line for line in lines if " ACCESS " in line]
        assert all(len(line) > 500 and ID in line for line in accesses)
        assert len(accesses) + told == REQUESTS + 10
        assert " STOP " in lines[-1]  # reported where lines are missing, not at the end
        # Each thread's lines are in order; another thread's timestamp may be slightly older.
        assert [line[:24] for line in accesses] == sorted(line[:24] for line in accesses)


def test_a_reader_that_leaves_costs_nothing(repository, tmp_path):
    with Piped(repository, tmp_path, "--access-log") as daemon:
        os.dup2(os.open(os.devnull, os.O_RDONLY), daemon.reading)  # each write now fails with EPIPE
        infer(daemon, 100)
        daemon.wait_for("lines that are lost", lambda: dropped(daemon) >= 100)
        daemon.end()


def test_a_pipe_that_does_not_block_loses_no_line(repository, tmp_path):
    with Piped(repository, tmp_path, "--access-log", blocking=False) as daemon:
        infer(daemon, 600)  # more than the pipe holds
        daemon.read()
        daemon.end()
        assert sum(" ACCESS " in line for line in lines_of(daemon.log())) == 600


def test_a_log_that_may_not_grow_ends_nothing(repository, tmp_path):
    """A full disk, and a file size limit, whose signal SIGXFSZ would end the process."""
    with open("/dev/full", "wb") as full:
        class Full(Daemon):
            def open_log(self):
                return os.fdopen(os.dup(full.fileno()), "wb")
        with Full(repository, tmp_path, "--access-log") as daemon:
            infer(daemon, 20)
            daemon.wait_for("lines that are lost", lambda: dropped(daemon) >= 20)


@pytest.mark.release
@pytest.mark.parametrize("number", CRASHES)
def test_a_crash_does_not_wait_for_a_reader(repository, tmp_path, number):
    with Piped(repository, tmp_path, "--access-log") as daemon:
        infer(daemon, REQUESTS)
        daemon.end(number, -number)


@pytest.mark.parametrize("number", CRASHES)
def test_a_crash_loses_no_line(repository, tmp_path, number):
    with Piped(repository, tmp_path, "--access-log") as daemon:
        daemon.read()
        infer(daemon, 50)
        daemon.end(number, -number)
        assert sum(" ACCESS " in line for line in lines_of(daemon.log())) == 50


def test_a_ready_file_that_nobody_reads_keeps_nobody(repository, tmp_path):
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    with Daemon(repository, tmp_path, "--ready-file", str(ready), wait_ready=False) as daemon:
        daemon.wait_for("readiness", lambda: daemon.get("/v2/health/ready")[0] == 200)
        infer(daemon, 10)
        daemon.wait_said("the file could not be written")
