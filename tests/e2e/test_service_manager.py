# SPDX-License-Identifier: Apache-2.0
"""voxeld under a service manager, as systemd is one: notifications, the watchdog, and sockets that
the manager opens and keeps open from one process to the next.

The manager here is this test; a booted systemd is in tests/deploy.
"""
import fcntl
import os
import select
import signal
import socket
import subprocess
import threading

import numpy as np
import pytest
from model_files import ConvModel
from voxeld import Client
from voxeld_process import PATIENCE, Daemon

COORDS = np.array([[0, 1, 2, 3], [0, 1, 2, 4], [0, 5, 5, 5]], np.int32)
FEATS = np.ones((3, ConvModel().ci), np.float32)


class Manager:
    """The socket that a manager's services write to."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path.replace("@", "\0") if path[0] == "@" else path)
        self.environment = {"NOTIFY_SOCKET": path}
        self.heard = []

    def hear(self, wanted):
        """Reads until a datagram has the line; returns the datagrams so far."""
        while not any(wanted in said.splitlines() for said in self.heard):
            assert select.select([self.socket], [], [], PATIENCE)[0], (wanted, self.heard)
            self.heard.append(self.socket.recv(4096).decode())
        return self.heard


class Managed(Daemon):
    """A daemon with a manager's environment and descriptors from 3 on.

    sockets  [(name, socket)]
    """

    def __init__(self, repository, work, *flags, environment=None, sockets=(), **options):
        self.environment, self.sockets = environment or {}, sockets
        super().__init__(repository, work, *flags, **options)

    def popen(self, arguments, **options):
        moves = "".join(f"exec {3 + i}<&{one.fileno()}\n"
                        for i, (_, one) in enumerate(self.sockets))
        environment = {**os.environ, **self.environment}
        if self.sockets:
            environment["LISTEN_FDS"] = str(len(self.sockets))
            environment["LISTEN_FDNAMES"] = ":".join(name for name, _ in self.sockets)
        # exec keeps the process id, so the shell can name it.
        script = f'{moves}export LISTEN_PID="${{LISTEN_PID:-$$}}" WATCHDOG_PID=$$\nexec "$@"'
        return subprocess.Popen(["/bin/bash", "-c", script, "bash", *arguments], env=environment,
                                pass_fds=[one.fileno() for _, one in self.sockets], **options)


def listening(family=socket.AF_INET, kind=socket.SOCK_STREAM, at=("127.0.0.1", 0)):
    one = socket.socket(family, kind)
    one.bind(at)
    if kind == socket.SOCK_STREAM:
        one.listen(4096)
    # Above what the daemon's shell moves to.
    high = socket.socket(fileno=fcntl.fcntl(one.fileno(), fcntl.F_DUPFD_CLOEXEC, 100))
    one.close()
    return high


def address(one):
    return "%s:%d" % one.getsockname()


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_what_the_manager_hears(repository, tmp_path, kind):
    manager = Manager(str(tmp_path / "notify") if kind == "path" else f"@voxeld-{os.getpid()}")
    with Managed(repository, tmp_path, environment=manager.environment) as daemon:
        said = manager.hear("READY=1")
        assert said == ["READY=1\nSTATUS=serves 1 of 1 versions of models"]
        daemon.get("/v2/health/ready")
    assert manager.hear("STOPPING=1")[1:] == ["STOPPING=1\nSTATUS=ends the requests in flight"]


def test_the_watchdog_comes_from_a_loop_that_runs(repository, tmp_path):
    manager = Manager(str(tmp_path / "notify"))
    environment = {**manager.environment, "WATCHDOG_USEC": "200000"}
    with Managed(repository, tmp_path, environment=environment):
        for _ in range(5):
            manager.heard.clear()
            manager.hear("WATCHDOG=1")


def test_another_process_watchdog_is_not_ours(repository, tmp_path):
    manager = Manager(str(tmp_path / "notify"))
    environment = {**manager.environment, "WATCHDOG_USEC": "1000", "LISTEN_PID": "1"}
    with Managed(repository, tmp_path, environment=environment) as daemon:
        manager.hear("READY=1")
        daemon.get("/metrics")
    assert len([said for said in manager.hear("STOPPING=1") if "WATCHDOG" not in said]) == 2


def test_a_model_that_fails_does_not_keep_the_others_from_being_ready(tmp_path):
    repository = tmp_path / "repository"
    ConvModel().write(repository)
    (repository / "broken" / "1").mkdir(parents=True)
    (repository / "broken" / "network.json").write_text("{")
    manager = Manager(str(tmp_path / "notify"))
    with Managed(repository, tmp_path, environment=manager.environment, wait_ready=False):
        said = manager.hear("READY=1")
        assert "STATUS=serves 1 of 2 versions of models" in said[-1]


def test_a_manager_that_has_gone_or_does_not_read_changes_nothing(repository, tmp_path):
    manager = Manager(str(tmp_path / "notify"))
    environment = {**manager.environment, "WATCHDOG_USEC": "2000"}
    with Managed(repository, tmp_path, environment=environment) as daemon:
        for _ in range(200):  # the socket's queue is full long before
            assert daemon.get("/v2/health/live")[0] == 200
        manager.socket.close()
        with Client(daemon.grpc) as client:
            client.infer("conv", COORDS, FEATS)


def test_sockets_of_the_manager(repository, tmp_path):
    grpc, more, http = listening(), listening(), listening()
    unix = listening(socket.AF_UNIX, at=str(tmp_path / "grpc.sock"))
    sockets = [("http", http), ("grpc", grpc), ("grpc", more), ("local", unix)]
    with Managed(repository, tmp_path, "--grpc", "systemd:grpc,systemd:local", "--http",
                 "systemd:http", sockets=sockets) as daemon:
        assert (daemon.grpc, daemon.http) == (address(grpc), address(http))
        answers = []
        for where in (address(grpc), address(more), f"unix:{tmp_path}/grpc.sock"):
            with Client(where) as client:
                answers.append(client.infer("conv", COORDS, FEATS))
        assert all(answer["out"].tobytes() == answers[0]["out"].tobytes() for answer in answers)
        assert daemon.get("/v2/health/ready")[0] == 200
    assert (tmp_path / "grpc.sock").exists()  # it is the manager's, not ours to remove


def test_no_request_fails_across_a_restart(repository, tmp_path):
    """One process ends and the next begins on the same sockets, while clients ask all the time."""
    grpc, http = listening(), listening()
    sockets = [("grpc", grpc), ("http", http)]
    flags = ("--grpc", "systemd:grpc", "--http", "systemd:http", "--grace-ms", "600s")
    stop, failures, answered = threading.Event(), [], []

    def ask():
        while not stop.is_set():
            try:
                # A new connection each time: it waits in the socket while no process accepts.
                with Client(address(grpc)) as client:
                    client.infer("conv", COORDS, FEATS, timeout=PATIENCE)
                answered.append(1)
            except Exception as error:  # whatever it is, the test shows it
                failures.append(repr(error))

    clients = [threading.Thread(target=ask) for _ in range(3)]
    try:
        for life in range(4):
            manager = Manager(str(tmp_path / f"notify{life}"))
            with Managed(repository, tmp_path, *flags, sockets=sockets,
                         environment=manager.environment) as one:
                if not life:
                    for client in clients:
                        client.start()
                before = len(answered)
                one.wait_for("requests of this life", lambda: len(answered) >= before + 10)
                if life == 3:
                    stop.set()
                    for client in clients:
                        client.join(PATIENCE)
                one.signal(signal.SIGTERM)  # from now on nobody is accepted
                manager.hear("STOPPING=1")
                for _ in range(2):
                    one.wait_for("those who were accepted",
                                 lambda: not one.metrics()["voxeld_connections"])
                # A second signal, at the end of the block, skips the rest of the grace time.
    finally:
        stop.set()
    assert failures == [] and len(answered) >= 40


@pytest.mark.parametrize("sockets, environment, said", [
    ([], {}, "expected a socket of that name from systemd"),
    ([("web", listening())], {}, "got web"),
    ([("grpc", listening())], {"LISTEN_PID": "1"}, "got none"),
    ([("grpc", listening(kind=socket.SOCK_DGRAM))], {}, "to be a listening stream socket"),
])
def test_a_socket_that_is_not_there_is_an_error(repository, tmp_path, sockets, environment, said):
    with pytest.raises(AssertionError) as error:
        with Managed(repository, tmp_path, "--grpc", "systemd:grpc", sockets=sockets,
                     environment=environment):
            pass
    assert said in str(error.value) and "exit code 1" in str(error.value)
