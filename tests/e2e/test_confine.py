# SPDX-License-Identifier: Apache-2.0
"""What the processes do without: system calls of workers, privileges, core dumps."""
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess

import numpy as np
import pytest

from conftest import SANITIZED
from model_files import random_grid
from voxeld import Client
from voxeld_process import Daemon

FAKE = ("--device", "fake:0", "--device-bytes", "64M", "--cache-bytes", "32M")
DEVICES = [("--device", "cpu"), FAKE]
# What a client sent, and nobody else would: as features, row after row.
MARKER = b"a client's secret, 32 bytes long"


def status_of(pid, name):
    return re.search(rf"^{name}:\s*(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)[1]


def ask(daemon, model, seed=1):
    coords, feats = random_grid(seed, 200)
    with Client(daemon.grpc) as client:
        out = client.infer("conv", coords, feats)["out"]
    np.testing.assert_allclose(out, model.answer(coords, feats), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES, ids=["cpu", "fake"])
@pytest.mark.parametrize("flags,filters", [((), "2"), (("--worker-seccomp", "on"), "2"),
                                           (("--worker-seccomp", "off"), "0")])
def test_a_worker_serves_under_its_filter(repository, model, tmp_path, device, flags, filters):
    with Daemon(repository, tmp_path, *device, *flags) as daemon:
        assert status_of(daemon.workers()[0], "Seccomp") == filters
        for pid in daemon.process.pid, *daemon.workers():
            assert status_of(pid, "NoNewPrivs") == "1"
        ask(daemon, model)
        assert "WORKER_SECCOMP" not in daemon.log()


def call_in(pid, number):
    """Has a process make a system call, as an attacker in it would.  False: that is forbidden."""
    said = subprocess.run(
        ["gdb", "-nx", "-batch", "-p", str(pid), "-ex", "handle SIGSYS nostop noprint pass",
         "-ex", f"print (long)syscall({number}, 0, 0, 0)"],
        stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return "ptrace: Operation not permitted" not in said.stderr


@pytest.mark.skipif(SANITIZED, reason="sanitizers start programs and trace them")
@pytest.mark.skipif(not shutil.which("gdb"), reason="no gdb")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86_64")
@pytest.mark.parametrize("device", DEVICES, ids=["cpu", "fake"])
def test_a_worker_that_starts_a_program_ends(repository, model, tmp_path, device):
    with Daemon(repository, tmp_path, *device) as daemon:
        worker = daemon.workers()[0]
        if not call_in(worker, 59):
            pytest.skip("this user may not trace another process (ptrace_scope)")
        daemon.wait_said("system call 59 (execve), which a worker never makes")
        line = next(at for at in daemon.log().splitlines() if "WORKER_EXIT" in at)
        assert f"pid={worker} how=signal signal={signal.SIGSYS}" in line and "seccomp" in line, line
        daemon.wait_said("WORKER_READY", 2)
        ask(daemon, model)
        assert worker not in daemon.workers()


def test_a_worker_that_cannot_report_its_call(repository, model, tmp_path):
    """Its handler may be what was damaged; the front knows the signal."""
    with Daemon(repository, tmp_path) as daemon:
        os.kill(daemon.workers()[0], signal.SIGSYS)
        daemon.wait_said(f"signal={signal.SIGSYS} why=\"seccomp: SIGSYS")
        daemon.wait_said("WORKER_READY", 2)
        ask(daemon, model)


# ------- cores -------


class Dumps(Daemon):
    """May write cores of any size, into its own folder."""

    def popen(self, arguments, **options):
        def allow():
            hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
            resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
        self.folder = self.ready_file.parent
        return super().popen(arguments, cwd=self.folder, preexec_fn=allow, **options)

    def abort(self, pid):
        """Ends a process as a failed assert does; True if it left a core."""
        os.kill(pid, signal.SIGABRT)
        if pid == self.process.pid:
            self.process.wait()
        else:
            self.wait_said("WORKER_EXIT")
        return any(path.name.startswith("core") for path in self.folder.iterdir())


def send_marker(daemon):
    rows = 4096
    feats = np.frombuffer(MARKER * (rows // 2), np.float32).reshape(rows, 4)
    coords, _ = random_grid(3, rows)
    with Client(daemon.grpc) as client:
        client.infer("conv", coords, feats)


def has_marker(path):
    with open(path, "rb") as file:
        return MARKER in file.read()


def core_by_gdb(daemon, pid):
    out = daemon.folder / f"gcore.{pid}"
    subprocess.run(["gcore", "-o", str(daemon.folder / "gcore"), str(pid)],
                   stdin=subprocess.DEVNULL, capture_output=True)
    if not out.exists():
        pytest.skip("gcore cannot trace this process")
    return out


@pytest.mark.skipif(not resource.getrlimit(resource.RLIMIT_CORE)[1], reason="a limit forbids cores")
@pytest.mark.parametrize("which", ["front", "worker"])
def test_no_core_by_default(repository, tmp_path, which):
    daemon = Dumps(repository, tmp_path)
    try:
        send_marker(daemon)
        pid = daemon.process.pid if which == "front" else daemon.workers()[0]
        assert not daemon.abort(pid)
    finally:
        daemon.kill()


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's memory is terabytes, and not ours")
@pytest.mark.skipif(not shutil.which("gcore"), reason="no gdb")
def test_a_debuggers_core_has_nothing_of_a_request(repository, tmp_path):
    with Dumps(repository, tmp_path) as daemon:
        send_marker(daemon)
        for pid in daemon.process.pid, *daemon.workers():
            assert not has_marker(core_by_gdb(daemon, pid))


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's memory is terabytes, and not ours")
@pytest.mark.skipif(not shutil.which("gcore"), reason="no gdb")
def test_cores_that_are_wanted_have_no_memory_of_tensors(repository, tmp_path):
    """A worker's core shows where it was: it has the stacks.  The front's heap may have pieces."""
    with Dumps(repository, tmp_path, "--core-dumps") as daemon:
        send_marker(daemon)
        core = core_by_gdb(daemon, daemon.workers()[0])
        assert not has_marker(core)
        said = subprocess.run(
            ["gdb", "-nx", "-batch", "-ex", "thread apply all bt", os.environ["VOXELD"], str(core)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert "main_serve" in said.stdout and "vx_worker_serve" in said.stdout, said.stdout
