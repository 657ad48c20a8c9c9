# SPDX-License-Identifier: Apache-2.0
"""Hostile clients: false sizes of regions, floods of registrations, changed settings."""
import base64
import contextlib
import os
import signal
import subprocess

import grpc
import pytest

from test_shared_memory import connected, memory, refused, register
from voxeld_process import PATIENCE, Daemon, workers_of


@contextlib.contextmanager
def serving(repository, work, *flags):
    socket = f"unix:{work}/voxeld.sock"
    with Daemon(repository, work, "--device", "fake:0", "--client-shm", "local",
                "--grpc", f"127.0.0.1:0,{socket}", "--restart-ms-max", "100",
                "--device-bytes", "256M", "--cache-bytes", "64M", *flags) as one:
        one.socket = socket
        yield one


def register_device(client, size, device=0, name="d"):
    handle = base64.b64encode(bytes(64)).decode()
    return client.call("CudaSharedMemoryRegister", name=name, device_id=device,
                       byte_size=size, raw_handle=handle)


def test_no_size_of_a_region_ends_a_worker(repository, tmp_path):
    with serving(repository, tmp_path) as daemon, connected(daemon.socket) as client:
        before = workers_of(daemon.process.pid)
        for size in (0, 1 << 63, (1 << 63) + 4096, (1 << 64) - 1):
            with refused("INVALID_ARGUMENT", "byte_size"):
                register_device(client, size)
        for device in (-1, 1, 2**31, 2**63 - 1, -2**63):
            with refused("INVALID_ARGUMENT", "device_id"):
                register_device(client, 4096, device)
        with pytest.raises(grpc.RpcError):
            register_device(client, (1 << 63) - 1)  # the worker refuses it: no such memory
        with memory(4096) as file:
            for size, offset in ((1 << 63, 0), ((1 << 64) - 1, 1), (1, 1 << 63)):
                with refused("INVALID_ARGUMENT"):
                    register(client, file, size, offset=offset)
            register(client, file, 4096)
        assert client.call("ServerReady")["ready"]
        assert workers_of(daemon.process.pid) == before
        assert "WORKER_EXIT" not in daemon.log()


def flood(client, file):
    for count in range(300):
        try:
            register(client, file, 4096)
        except grpc.RpcError as error:
            assert error.code().name == "RESOURCE_EXHAUSTED", error.details()
            return count
        client.call("SystemSharedMemoryUnregister", name="r")
    return 300


def test_a_worker_that_is_stopped_locks_nobody_out(repository, tmp_path):
    with serving(repository, tmp_path) as daemon, memory(8192) as file, \
            contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connected(daemon.grpc)) for _ in range(4)]
        worker, = workers_of(daemon.process.pid)
        with daemon.frozen(worker):
            counts = [flood(one, file) for one in clients[:3]]
            assert counts[0] < 100 and min(counts) > 4, counts
            register(clients[3], file, 4096)
        daemon.wait_for("what it owed", lambda: not flood_is_refused(clients[0], file))
        assert workers_of(daemon.process.pid) == [worker]


def flood_is_refused(client, file):
    try:
        register(client, file, 4096, name="again")
    except grpc.RpcError:
        return True
    return False


@pytest.mark.parametrize("setting, may", [("off", False), ("local", True), ("any", True)])
def test_the_setting_says_who_may_change_the_log(repository, tmp_path, setting, may):
    with serving(repository, tmp_path, "--client-settings", setting) as daemon, \
            connected(daemon.grpc) as client:
        silent = {"log_error": {"bool_param": False}}
        assert client.call("LogSettings")["settings"]["log_error"]["bool_param"]
        if may:
            client.call("LogSettings", settings=silent)
            daemon.wait_said("peer=local")
            daemon.wait_said("connection=")
            return
        with refused("PERMISSION_DENIED", "the setting client_settings is off"):
            client.call("LogSettings", settings=silent)
        with refused("PERMISSION_DENIED", "the setting client_settings is off"):
            client.call("TraceSetting", settings={"trace_rate": {"value": ["1"]}})
        worker, = workers_of(daemon.process.pid)
        os.kill(worker, signal.SIGKILL)
        daemon.wait_for("its end", lambda: "WORKER_EXIT" in daemon.log())


def test_a_start_that_fails_says_so_at_every_level(repository, tmp_path):
    ended = subprocess.run(
        [os.environ["VOXELD"], "serve", "--repository", repository, "--grpc", "unix:/nope/x",
         "--http", "127.0.0.1:0", "--log-level", "error"],
        capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 1
    assert "error START_FAILED" in ended.stderr, ended.stderr
