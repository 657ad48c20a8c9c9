# SPDX-License-Identifier: Apache-2.0
"""An HAProxy under test, with deploy/haproxy."""

import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

import pytest

from deployed import DEPLOY, tool
from replica_process import address
from voxeld_process import PATIENCE

CONFIG = DEPLOY / "haproxy" / "haproxy.cfg"
CONFIG_TLS = DEPLOY / "haproxy" / "haproxy-tls.cfg"
FILES = "/etc/haproxy/tls"
ADMIN = "/run/haproxy/admin.sock"


def need():
    """The program.  Debian has it where only root looks."""
    found = tool("haproxy") or shutil.which("haproxy", path="/usr/sbin")
    if not found:
        pytest.skip("SKIPPED deploy_haproxy: no haproxy (deploy/install-deps gets it)")
    return found


def ask(path, command):
    """What HAProxy answers on its admin socket."""
    with socket.socket(socket.AF_UNIX) as one:
        one.settimeout(PATIENCE)
        one.connect(str(path))
        one.sendall(command.encode() + b"\n")
        answer = b""
        while part := one.recv(65536):
            answer += part
    return answer.decode()


def states(path):
    """{"backend/server": "UP", "DOWN", "DRAIN", ...}."""
    rows = [line.split(",") for line in ask(path, "show stat").strip().splitlines()]
    names = [name.strip("# ") for name in rows[0]]
    found = [dict(zip(names, row)) for row in rows[1:]]
    return {
        f"{one['pxname']}/{one['svname']}": one["status"].split()[0]
        for one in found
        if one["svname"] not in ("FRONTEND", "BACKEND")
    }


def drain(proxy, replica, _busy):
    """As deploy/haproxy/README.md says; the replica that ends has no call any more."""
    for name in ("voxeld", "voxeld_any"):
        assert f"{name}/{replica.name}" in states(proxy.admin)
    proxy.ask(f"set server voxeld/{replica.name} state drain")
    proxy.wait_state("DRAIN", f"voxeld/{replica.name}", f"voxeld_any/{replica.name}")
    yield
    replica.terminate()
    replica.signal(signal.SIGTERM)
    assert replica.end() == 0
    yield
    proxy.ask(f"set server voxeld/{replica.name} state ready")


class HAProxy:
    """`with HAProxy(program, folder, VOXELD_A=...) as proxy:`, ready when it sees the replicas.

    tls     a client's Tls, if it is for TLS
    up      names of the replicas to wait for
    master  whether it can reload: a process that starts another at SIGUSR2
    """

    def __init__(
        self, program, folder, config=CONFIG, *, tls=None, up="ab", master=False, **environment
    ):
        self.tls, self.up, self.master = tls, up, master
        self.grpc = environment.get("VOXELD_LISTEN", address(21801))
        self.admin = pathlib.Path(folder) / "admin.sock"
        self.log_path = pathlib.Path(folder) / "haproxy.log"
        given = {"VOXELD_LISTEN": self.grpc, "HAPROXY_ADMIN": str(self.admin), **environment}
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [program, "-W" if master else "-db", "-f", str(config)],
                env={**os.environ, **given},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def __enter__(self):
        try:
            self.wait_for("the admin socket", self._answers)
            for name in self.up:
                self.wait_up(name)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self.master and self.process.poll() is None:
            self.process.terminate()  # it ends its workers, of which SIGKILL would tell it nothing
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                pass
        self.process.kill()
        self.process.wait()

    def worker(self):
        """The process that answers on the admin socket."""
        return int(re.search(r"^Pid: (\d+)$", self.ask("show info"), re.MULTILINE)[1])

    def reload(self):
        """As `systemctl reload haproxy`; returns when the new process has the admin socket."""
        before = self.worker()
        self.process.send_signal(signal.SIGUSR2)

        def replaced():
            try:
                return self.worker() != before
            except (OSError, TypeError):  # between two processes
                return False

        self.wait_for("the new process", replaced)

    def _answers(self):
        try:
            return self.ask("show info")
        except OSError:
            return None

    def ask(self, command):
        return ask(self.admin, command)

    def wait_for(self, what, condition):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            assert self.process.poll() is None, self.log_path.read_text()[-4000:]
            result = condition()
            if result:
                return result
            time.sleep(0.02)  # sleep: between two questions
        raise AssertionError(f"waited {PATIENCE} s for {what}: {self.log_path.read_text()[-4000:]}")

    def wait_state(self, state, *servers):
        self.wait_for(
            f"{state} of {servers}",
            lambda: all(states(self.admin)[server] == state for server in servers),
        )

    def wait_up(self, name):
        self.wait_state("UP", f"voxeld/{name}", f"voxeld_any/{name}")

    def wait_down(self, name):
        self.wait_state("DOWN", f"voxeld/{name}", f"voxeld_any/{name}")
