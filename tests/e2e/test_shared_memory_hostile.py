# SPDX-License-Identifier: Apache-2.0
"""Hostile clients: false sizes of regions, floods of registrations, changed settings, memory that
changes while a worker reads it."""
import base64
import concurrent.futures
import contextlib
import json
import os
import signal
import subprocess
import threading

import grpc
import numpy as np
import pytest

from model_files import ConvModel, random_grid, write_safetensors
from test_shared_memory import connected, memory, refused, register
from voxeld import Client
from voxeld_process import PATIENCE, Daemon, workers_of


@contextlib.contextmanager
def serving(repository, work, *flags, device="fake:0"):
    socket = f"unix:{work}/voxeld.sock"
    with Daemon(repository, work, "--device", device, "--client-shm", "local",
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


# How a set follows from logits, which are the features.
PREDICTED = {
    "keep": (1, {"op": "prune", "keep": "logit"}),
    "top": (1, {"op": "prune", "keep": "logit", "top": 1000}),
    "occupancy": (8, {"op": "upsample", "stride": 2, "occupancy": "logit"}),
}
ROWS = 20000
ROUNDS = 12


@pytest.fixture(scope="module")
def predicted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("predicted")
    ConvModel().write(folder)
    for name, (channels, layer) in PREDICTED.items():
        network = {"format": 1,
                   "inputs": {"coords": "coords", "feats": {"name": "feats", "channels": 1}},
                   "layers": [{"name": "logit", "op": "linear", "input": "feats",
                               "channels": channels, "bias": False},
                              {"name": "f", "op": "relu", "input": "feats"},
                              {"name": "made", "input": "f", **layer}],
                   "outputs": [{"name": "logits", "layer": "logit"},
                               {"name": "out", "layer": "made"}],
                   "limits": {"voxels_max": ROWS}, "warmup": [10]}
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "network.json").write_text(json.dumps(network))
        write_safetensors(folder / name / "1" / "weights.safetensors",
                          {"logit.weight": np.ones((channels, 1), np.float32)})
    return folder


def told(answer):
    return answer["out"].tobytes(), answer["out_coords"].tobytes()


@contextlib.contextmanager
def flipping(array):
    """Writes numbers above 0, below 0 and none into memory that a worker also has."""
    over = threading.Event()

    def flip():
        while not over.is_set():
            for value in (1, -1, np.nan, 2, -1):
                array[:] = value
    thread = threading.Thread(target=flip)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("device", ["cpu", "fake:0"])
@pytest.mark.parametrize("name", PREDICTED)
def test_logits_that_a_client_changes_decide_nothing(predicted, tmp_path, name, device):
    """The client's own answer is right, and so is everybody's."""
    with serving(predicted, tmp_path, device=device) as daemon, Client(daemon.socket) as client, \
            Client(daemon.grpc) as other:
        workers = workers_of(daemon.process.pid)
        rows = ROWS if device == "cpu" else ROWS // 20
        coords, feats = random_grid(3, rows, 1)
        expected = told(client.infer(name, coords, feats, timeout=PATIENCE))
        mine = random_grid(4, 500)
        good = other.infer("conv", *mine, timeout=PATIENCE)["out"].tobytes()
        with client.region(rows * 32 + 64) as region:
            array = region.array((rows, PREDICTED[name][0]), np.float32)
            with flipping(array.reshape(-1)):
                for _ in range(ROUNDS):
                    answer = client.infer(name, coords, feats, outputs_in={"logits": array},
                                          outputs=["logits", "out", "out_coords"], timeout=PATIENCE)
                    assert told(answer) == expected
                    assert other.infer("conv", *mine, timeout=PATIENCE)["out"].tobytes() == good
        assert workers_of(daemon.process.pid) == workers
        assert "WORKER_EXIT" not in daemon.log()


def test_two_requests_that_name_one_place(predicted, tmp_path):
    """Without malice: their logits are garbage, and nothing that follows from them."""
    with serving(predicted, tmp_path, device="cpu,cpu") as daemon, Client(daemon.socket) as client:
        workers = workers_of(daemon.process.pid)
        coords, feats = random_grid(3, ROWS, 1)
        sent = [feats, -feats]
        expected = [told(client.infer("occupancy", coords, one, timeout=PATIENCE))
                    for one in sent]
        with client.region(ROWS * 32 + 64) as region, \
                concurrent.futures.ThreadPoolExecutor(4) as pool:
            array = region.array((ROWS, 8), np.float32)
            def ask(i):
                return told(client.infer("occupancy", coords, sent[i % 2],
                                         outputs_in={"logits": array},
                                         outputs=["logits", "out", "out_coords"],
                                         timeout=PATIENCE))
            for i, answer in enumerate(pool.map(ask, range(4 * ROUNDS))):
                assert answer == expected[i % 2]
        assert workers_of(daemon.process.pid) == workers
        assert "WORKER_EXIT" not in daemon.log()
