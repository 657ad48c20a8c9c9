# SPDX-License-Identifier: Apache-2.0
"""deploy/haproxy/one-host: two daemons on one host behind one address."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import time
import urllib.request

import pytest

from balancer_load import MODEL, Load, homes
from deployed import DEPLOY, run
from haproxy_process import need, states
from model_files import ConvModel, random_grid
from replica_process import address
from voxeld_process import NO_HANGS, PATIENCE

SCRIPT = DEPLOY / "haproxy" / "one-host"
HTTP = 21810


class Daemon:
    """One of the script's daemons, by its pages."""

    def __init__(self, number):
        self.name, self.http = str(number), address(HTTP + number)

    def metrics(self):
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=PATIENCE) as reply:
            lines = reply.read().decode().splitlines()
        pairs = [line.rsplit(" ", 1) for line in lines if line and line[0] != "#"]
        return {name: float(value) for name, value in pairs}


class OneHost:
    """`with OneHost(repository, folder) as host:` serves with two daemons until the block ends."""

    def __init__(self, repository, folder):
        self.grpc, self.tls, self.run = address(21820), None, folder / "run"
        self.said, self.log = folder / "said", folder / "log"
        command = [SCRIPT, "--listen", self.grpc, "--http", address(HTTP), "--run", self.run]
        command += ["--voxeld", os.environ["VOXELD"], "--haproxy", need()]
        command += ["--devices", "cpu", "--devices", "cpu", "--", "--repository", repository]
        command += ["--threads", "1", "--grace-ms", "600000", "--arena-bytes", "256M", *NO_HANGS]
        with self.said.open("wb") as out, self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=out, stderr=log
            )

    def wait_for(self, what, condition):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            assert self.process.poll() is None, self.log.read_text()[-4000:]
            result = condition()
            if result:
                return result
            time.sleep(0.02)  # sleep: between two looks
        raise AssertionError(f"waited {PATIENCE} s for {what}: {self.log.read_text()[-4000:]}")

    def states(self):
        with contextlib.suppress(OSError):
            return states(self.run / "admin.sock")
        return {}

    def wait_state(self, state, server):
        self.wait_for(f"{server} to be {state}", lambda: self.states().get(server) == state)

    def __enter__(self):
        try:
            line = re.compile(rf"listen={re.escape(self.grpc)} pids=(\d+) (\d+) haproxy=(\d+)\n")
            found = self.wait_for("its line", lambda: line.fullmatch(self.said.read_text()))
            self.pids = [int(pid) for pid in found.groups()]
            self.wait_state("UP", "voxeld/0")
            self.wait_state("UP", "voxeld/1")
        except BaseException:
            self.__exit__(True)
            raise
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
            pids = [int(pid) for pid in children.read_text().split()]
            for pid in [self.process.pid, *pids]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    path, model = tmp_path_factory.mktemp("repository"), ConvModel()
    model.network.update(limits={"voxels_max": 10000}, warmup=[10])
    model.write(path, MODEL)
    return path


def test_two_daemons_behind_one_address(repository, tmp_path):
    grids = [random_grid(seed, 20 + 7 * seed) for seed in range(40)]
    daemons = [Daemon(0), Daemon(1)]
    with OneHost(repository, tmp_path) as host:
        first = homes(host, daemons, grids)
        assert set(first) == {"0", "1"}
        with Load(host, grids) as load:
            load.wait_progress()
            os.kill(host.pids[1], signal.SIGSTOP)
            load.wait_stuck(host, grids[first.index("0")])
            os.kill(host.pids[1], signal.SIGKILL)
            host.wait_for("word of it", lambda: "daemon 1 (cpu) ended" in host.log.read_text())
            load.wait_progress()
            host.wait_for("a new daemon", lambda: (host.run / "1.ready").exists())
            host.wait_state("UP", "voxeld/1")
            load.wait_progress()
        assert not load.errors, load.errors
        assert homes(host, daemons, grids) == first
        host.process.send_signal(signal.SIGTERM)
        for _ in daemons:
            host.wait_for("the grace", lambda: host.log.read_text().count("step=grace") == 2)
        assert host.process.poll() is None
        host.process.send_signal(signal.SIGTERM)
        assert host.process.wait(PATIENCE) == 0
    for pid in host.pids:
        assert not os.path.exists(f"/proc/{pid}")


@pytest.mark.parametrize(
    "arguments, expected",
    [
        ((), "expected --devices LIST at least once"),
        (("--devices",), "--devices: expected a value"),
        (("--devices", "cpu"), "expected -- and voxeld's settings"),
        (("--device", "cpu"), "unknown argument '--device'"),
        (("--devices", "cuda:0,cuda:1", "--devices", "cuda:1", "--", "--x"), "cuda:1 twice"),
        (("--devices", "cpu", "--http", "a:b", "--", "--x"), "--http: expected HOST:PORT"),
        (("--devices", "cpu", "--voxeld", "/no/such", "--", "--x"), "/no/such: not found"),
    ],
)
def test_wrong_arguments(arguments, expected):
    programs = ("--voxeld", "true", "--haproxy", "true")
    answer = run(SCRIPT, *programs, *arguments, timeout=PATIENCE)
    assert answer.returncode == 2 and expected in answer.stderr, answer


def test_a_daemon_that_cannot_start_ends_it(tmp_path):
    answer = run(
        *(SCRIPT, "--voxeld", os.environ["VOXELD"], "--haproxy", "true", "--run", tmp_path),
        *("--http", address(HTTP + 5), "--devices", "cpu", "--", "--repository", "/no/such"),
        timeout=PATIENCE,
    )
    assert answer.returncode == 1 and "daemon 0 (cpu) ended before it served" in answer.stderr
