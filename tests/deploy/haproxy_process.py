# SPDX-License-Identifier: Apache-2.0
"""An HAProxy under test, with deploy/haproxy."""

import os
import pathlib
import shutil
import socket
import subprocess
import time

import pytest

from deployed import DEPLOY, tool
from replica_process import address
from voxeld_process import PATIENCE

CONFIG = DEPLOY / "haproxy" / "haproxy.cfg"


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


class HAProxy:
    """`with HAProxy(program, folder, VOXELD_A=...) as proxy:`, ready when it sees the replicas."""

    def __init__(self, program, folder, config=CONFIG, **environment):
        self.grpc, self.tls = address(21801), None
        self.admin = pathlib.Path(folder) / "admin.sock"
        self.log_path = pathlib.Path(folder) / "haproxy.log"
        given = {"VOXELD_LISTEN": self.grpc, "HAPROXY_ADMIN": str(self.admin), **environment}
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [program, "-db", "-f", str(config)],
                env={**os.environ, **given},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def __enter__(self):
        try:
            self.wait_for("the admin socket", self._answers)
            self.wait_state("UP", "voxeld/a", "voxeld/b", "voxeld_any/a", "voxeld_any/b")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

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
