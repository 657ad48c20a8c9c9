# SPDX-License-Identifier: Apache-2.0
"""Shared memory at protocol level: who may use it, what is refused, what clients leave behind."""
import base64
import contextlib
import os
import pathlib
import signal
import threading
import uuid

import grpc
import numpy as np
import pytest

from conftest import SANITIZED
from model_files import ConvModel, random_grid
from test_protocol import Reflected
from voxeld_process import Daemon

SHM = pathlib.Path("/dev/shm")
MARK = "voxeld-e2e-"  # begins the names of the objects of these tests


@pytest.fixture(scope="module", params=["cpu", "fake:0"])
def daemon(request, repository, tmp_path_factory):
    work = tmp_path_factory.mktemp("daemon")
    socket = f"unix:{work}/voxeld.sock"
    with Daemon(repository, work, "--client-shm", "local", "--device", request.param,
                "--client-shm-bytes", "64M", "--grpc", f"127.0.0.1:0,{socket}",
                "--restart-ms-max", "100", "--device-bytes", "256M",
                "--cache-bytes", "64M") as one:
        one.socket, one.device = socket, request.param
        yield one


@contextlib.contextmanager
def connected(address):
    """A new connection: without this, channels of one process share one."""
    with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield Reflected(channel)


def ask_in_thread(client, fields):
    """Starts a call that is still running when its connection closes."""
    def ask():
        with contextlib.suppress(grpc.RpcError, ValueError):
            client.call("ModelInfer", **fields)
    thread = threading.Thread(target=ask)
    thread.start()
    return thread


# Each device with each transport; under a sanitizer the CPU with TCP, the fake GPU with Unix.
@pytest.fixture(params=["one"] if SANITIZED else ["tcp", "unix"])
def client(request, daemon):
    tcp = daemon.device == "cpu" if SANITIZED else request.param == "tcp"
    with connected(daemon.grpc if tcp else daemon.socket) as one:
        yield one


@contextlib.contextmanager
def memory(size):
    """The file of a shared memory object; its name is the object's key."""
    file = SHM / f"{MARK}{uuid.uuid4().hex}"
    with open(file, "wb") as made:
        made.truncate(size)
    file.chmod(0o600)
    try:
        yield file
    finally:
        file.unlink()


@contextlib.contextmanager
def refused(code, text=""):
    """The block fails with this status; its message has the text and none of our keys."""
    with pytest.raises(grpc.RpcError) as caught:
        yield
    assert caught.value.code().name == code, caught.value.details()
    details = caught.value.details()
    assert text in details and len(details) > 10 and MARK not in details


def register(client, file, size, name="r", offset=0, slash=False):
    return client.call("SystemSharedMemoryRegister", name=name, offset=offset, byte_size=size,
                       key=("/" if slash else "") + file.name)


def region(name, size, offset=0):
    out = {"shared_memory_region": {"string_param": name},
           "shared_memory_byte_size": {"int64_param": size}}
    if offset:
        out["shared_memory_offset"] = {"int64_param": offset}
    return out


class Grid:
    """A grid, and the offsets of coords, feats and the answer in an object."""

    def __init__(self, seed, voxels):
        self.coords, self.feats = random_grid(seed, voxels)
        self.voxels, self.sizes = voxels, [self.coords.nbytes, self.feats.nbytes, 12 * voxels]
        self.at = [0, -(-self.sizes[0] // 64) * 64]
        self.at.append(-(-(self.at[1] + self.sizes[1]) // 64) * 64)
        self.size = self.at[2] + self.sizes[2]

    def write(self, file):
        with open(file, "r+b") as out:
            for at, array in zip(self.at, (self.coords, self.feats)):
                out.seek(at)
                out.write(array.tobytes())

    def request(self, name="r", size=None, offset=0, output=True):
        sizes = [size or s for s in self.sizes]
        places = [region(name, s, at + offset) for s, at in zip(sizes, self.at)]
        fields = {"model_name": "conv", "inputs": [
            {"name": "coords", "datatype": "INT32", "shape": list(self.coords.shape),
             "parameters": places[0]},
            {"name": "feats", "datatype": "FP32", "shape": list(self.feats.shape),
             "parameters": places[1]}]}
        if output:
            fields["outputs"] = [{"name": "out", "parameters": places[2]}]
        return fields

    def plain(self, client):
        """The same grid in a message: the bytes of its answer."""
        fields = self.request(output=False)
        for tensor in fields["inputs"]:
            del tensor["parameters"]
        fields["raw_input_contents"] = [base64.b64encode(a.tobytes()).decode()
                                        for a in (self.coords, self.feats)]
        reply = client.call("ModelInfer", **fields)
        return base64.b64decode(reply["raw_output_contents"][0])

    def answer(self, file):
        with open(file, "rb") as read:
            read.seek(self.at[2])
            return read.read(self.sizes[2])

    def clear(self, file):
        with open(file, "r+b") as out:
            out.seek(self.at[2])
            out.write(bytes(self.sizes[2]))


def mapped(pid):
    """How many mappings of our objects a process has."""
    return sum(MARK in line for line in open(f"/proc/{pid}/maps"))


def held(daemon):
    """Mappings in the front and the workers, descriptors of our objects in all of them."""
    maps = fds = 0
    for pid in [daemon.process.pid, *daemon.workers()]:
        maps += mapped(pid)
        for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                fds += MARK in os.readlink(fd)
    return maps, fds


def wait_empty(daemon):
    daemon.wait_for("no memory of clients' to be left", lambda: held(daemon) == (0, 0))


# ------- registration


def test_a_region_comes_is_listed_and_goes(daemon, client):
    with memory(10000) as file:
        for slash in (False, True):
            register(client, file, 5000, offset=100, slash=slash)
            key = ("/" if slash else "") + file.name
            expected = {"name": "r", "key": key, "offset": "100", "byte_size": "5000"}
            for name in ("", "r"):
                reply = client.call("SystemSharedMemoryStatus", name=name)
                assert reply == {"regions": {"r": expected}}
            with refused("ALREADY_EXISTS", "shared memory region 'r' already in manager"):
                register(client, file, 10)
            client.call("SystemSharedMemoryUnregister", name="nope")
            client.call("SystemSharedMemoryUnregister", name="" if slash else "r")
            assert client.call("SystemSharedMemoryStatus") == {}
            with refused("NOT_FOUND", "Unable to find system shared memory region: 'r'"):
                client.call("SystemSharedMemoryStatus", name="r")
    wait_empty(daemon)


def test_metadata_says_what_is_served(daemon, client):
    extensions = client.call("ServerMetadata")["extensions"]
    assert "system_shared_memory" in extensions
    assert ("cuda_shared_memory" in extensions) == daemon.device.startswith("fake")


@pytest.mark.parametrize("fields, code", [
    ({"name": ""}, "INVALID_ARGUMENT"),
    ({"name": "a\nb"}, "INVALID_ARGUMENT"),
    ({"name": "n" * 128}, "INVALID_ARGUMENT"),
    ({"byte_size": 0}, "INVALID_ARGUMENT"),
    ({"byte_size": 10001}, "INVALID_ARGUMENT"),
    ({"offset": 10000}, "INVALID_ARGUMENT"),
    ({"offset": 2 ** 64 - 1}, "INVALID_ARGUMENT"),
    ({"byte_size": 2 ** 64 - 1}, "INVALID_ARGUMENT"),
    ({"key": ""}, "INVALID_ARGUMENT"),
    ({"key": "/"}, "INVALID_ARGUMENT"),
    ({"key": ".."}, "INVALID_ARGUMENT"),
    ({"key": "../shm/x"}, "INVALID_ARGUMENT"),
    ({"key": "/dev/shm/x"}, "INVALID_ARGUMENT"),
    ({"key": "sem.x"}, "INVALID_ARGUMENT"),
    ({"key": MARK + "none"}, "NOT_FOUND"),
])
def test_what_cannot_be_registered(daemon, client, fields, code):
    with memory(10000) as file:
        good = {"name": "r", "key": file.name, "offset": 0, "byte_size": 10000}
        with refused(code):
            client.call("SystemSharedMemoryRegister", **{**good, **fields})
        client.call("SystemSharedMemoryRegister", **good)


def test_links_and_pipes_are_no_objects(daemon, client):
    with memory(100) as file:
        link, pipe = (SHM / f"{MARK}{uuid.uuid4().hex}" for _ in range(2))
        link.symlink_to(file)
        os.mkfifo(pipe, 0o600)
        try:
            for odd, code in ((link, "PERMISSION_DENIED"), (pipe, "INVALID_ARGUMENT")):
                with refused(code):
                    register(client, odd, 10)
        finally:
            link.unlink()
            pipe.unlink()


def test_limits_of_a_connection_and_of_bytes(daemon, client):
    with memory(65 << 20) as file:
        with refused("RESOURCE_EXHAUSTED", "client_shm_bytes"):
            register(client, file, 65 << 20)
        for i in range(64):
            register(client, file, 100, name=f"r{i}")
        with refused("RESOURCE_EXHAUSTED", "64"):
            register(client, file, 100)
        assert len(client.call("SystemSharedMemoryStatus")["regions"]) == 64
    client.call("SystemSharedMemoryUnregister")
    wait_empty(daemon)


def test_device_memory(daemon, client):
    def add(size=64, device=0):
        return client.call("CudaSharedMemoryRegister", name="d", device_id=device, byte_size=100,
                           raw_handle=base64.b64encode(bytes(size)).decode())
    if daemon.device == "cpu":
        for method in ("Status", "Register", "Unregister"):
            with refused("UNIMPLEMENTED", f"CudaSharedMemory{method} is not available"):
                client.call(f"CudaSharedMemory{method}")
        return
    for size in (0, 63, 65, 200):
        with refused("INVALID_ARGUMENT", "64"):
            add(size)
    for device in (-1, 1, 2 ** 63 - 1):
        with refused("INVALID_ARGUMENT", "device_id"):
            add(device=device)
    with refused("INVALID_ARGUMENT"):  # no such handle: the worker reports it
        add()
    with refused("NOT_FOUND", "Unable to find cuda shared memory region: 'd'"):
        client.call("CudaSharedMemoryStatus", name="d")
    assert client.call("CudaSharedMemoryStatus") == {}
    client.call("CudaSharedMemoryUnregister")


def test_who_may(repository, tmp_path):
    socket = f"unix:{tmp_path}/v.sock"
    flags = ["--grpc", f"127.0.0.1:0,{socket}", "--client-shm", "unix"]
    with Daemon(repository, tmp_path, *flags) as one, memory(100) as file:
        with connected(one.grpc) as stranger, refused("PERMISSION_DENIED", "client_shm"):
            register(stranger, file, 100)
        with connected(socket) as local:
            register(local, file, 100)


def test_off_is_the_default(repository, tmp_path):
    with Daemon(repository, tmp_path) as one, connected(one.grpc) as client:
        for kind in ("System", "Cuda"):
            for method in ("Status", "Register", "Unregister"):
                name = f"{kind}SharedMemory{method}"
                with refused("UNIMPLEMENTED", f"{name} is not available"):
                    client.call(name)
        grid = Grid(1, 10)
        with refused("UNIMPLEMENTED"):
            client.call("ModelInfer", **grid.request())
        assert len(grid.plain(client)) == 120


# ------- inference


def test_inference_through_a_region(daemon, client):
    grid = Grid(2, 3000)
    with memory(grid.size + 4096) as file:
        grid.write(file)
        register(client, file, grid.size)
        expected = grid.plain(client)
        for _ in range(3):
            grid.clear(file)
            reply = client.call("ModelInfer", **grid.request())
            assert reply["raw_output_contents"] == [""]
            assert reply["outputs"][0]["shape"] == ["3000", "3"]
            assert grid.answer(file) == expected
        reply = client.call("ModelInfer", **grid.request(output=False))
        assert base64.b64decode(reply["raw_output_contents"][0]) == expected
        out = np.frombuffer(expected, np.float32).reshape(-1, 3)
        right = ConvModel().answer(grid.coords, grid.feats)
        np.testing.assert_allclose(out, right, rtol=2e-4, atol=2e-4)
    client.call("SystemSharedMemoryUnregister")
    wait_empty(daemon)


def test_misuse_of_a_region(daemon, client):
    grid = Grid(3, 100)
    with memory(grid.size) as file:
        grid.write(file)
        register(client, file, grid.size)
        with refused("NOT_FOUND", "Unable to find shared memory region: 'none'"):
            client.call("ModelInfer", **grid.request("none"))
        with refused("INVALID_ARGUMENT"):
            client.call("ModelInfer", **grid.request(offset=grid.size))
        with refused("INVALID_ARGUMENT"):
            client.call("ModelInfer", **grid.request(offset=2 ** 62))
        short = grid.request()
        short["outputs"][0]["parameters"] = region("r", 100, grid.at[2])
        with refused("INTERNAL", "(100 bytes) should be at least 1200 bytes to hold"):
            client.call("ModelInfer", **short)
        with connected(daemon.socket) as other:  # another client's region is no region
            with refused("NOT_FOUND", "Unable to find shared memory region: 'r'"):
                other.call("ModelInfer", **grid.request())
        client.call("SystemSharedMemoryUnregister", name="r")
        with refused("NOT_FOUND"):
            client.call("ModelInfer", **grid.request())


def test_unregistered_in_flight(daemon, client):
    """A request before the unregistration is answered in full; a later one is NOT_FOUND."""
    grid = Grid(4, 3000)
    codes = []
    with memory(grid.size) as file:
        grid.write(file)
        expected = grid.plain(client)

        def ask():
            try:
                client.call("ModelInfer", **grid.request())
                codes.append("OK")
            except grpc.RpcError as error:
                codes.append(error.code().name)
        for _ in range(10):
            register(client, file, grid.size)
            grid.clear(file)
            threads = [threading.Thread(target=ask) for _ in range(4)]
            before = len(codes)
            for thread in threads:
                thread.start()
            client.call("SystemSharedMemoryUnregister")
            for thread in threads:
                thread.join()
            if "OK" in codes[before:]:
                assert grid.answer(file) == expected
        assert set(codes) <= {"OK", "NOT_FOUND"} and len(codes) == 40
    wait_empty(daemon)


def test_a_client_that_cuts_harms_itself_alone(daemon, client):
    """Whenever a client truncates its region, no process dies and other answers stay the same."""
    grid, workers = Grid(5, 3000), daemon.workers()
    codes = []
    with connected(daemon.grpc) as other:
        expected = grid.plain(other)
        for size in (0, grid.at[1] // 2, grid.at[1], grid.at[2], grid.size - 4096):
            with memory(grid.size) as file:
                grid.write(file)
                register(client, file, grid.size)
                client.call("ModelInfer", **grid.request())
                os.truncate(file, size)
                for _ in range(3):
                    try:
                        client.call("ModelInfer", **grid.request())
                        codes.append("OK")
                    except grpc.RpcError as error:
                        codes.append(error.code().name)
                assert grid.plain(other) == expected
                client.call("SystemSharedMemoryUnregister")
    assert set(codes) == {"FAILED_PRECONDITION"}, codes
    assert daemon.workers() == workers
    wait_empty(daemon)


def test_cutting_all_the_time(daemon, client):
    grid, workers = Grid(6, 2000), daemon.workers()
    stop = threading.Event()
    with memory(grid.size) as file:
        grid.write(file)

        def cut():
            while not stop.wait(0.002):
                os.truncate(file, 100)
                os.truncate(file, grid.size)
        thread = threading.Thread(target=cut)
        thread.start()
        codes = set()
        try:
            turns = 0
            while turns < 40 or not codes:  # until a cut hits a request in flight
                turns += 1
                for method in (lambda: register(client, file, grid.size),
                               lambda: client.call("ModelInfer", **grid.request()),
                               lambda: client.call("SystemSharedMemoryUnregister")):
                    try:
                        method()
                    except grpc.RpcError as error:
                        codes.add(error.code().name)
        finally:
            stop.set()
            thread.join()
        assert codes <= {"FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND"}, codes
    assert daemon.workers() == workers
    wait_empty(daemon)


# ------- ends


def test_regions_go_with_their_connection(daemon):
    wait_empty(daemon)
    fds = daemon.descriptors()
    with memory(10000) as file:
        for address in (daemon.grpc, daemon.socket):
            with connected(address) as client:
                for i in range(5):
                    register(client, file, 10000, name=f"r{i}")
                assert mapped(daemon.process.pid) == 5
            wait_empty(daemon)
    daemon.wait_for("descriptors", lambda: daemon.descriptors() <= fds)


def test_owner_gone_in_flight(daemon):
    grid = Grid(7, 3000)
    with memory(grid.size) as file:
        grid.write(file)
        for _ in range(10):
            with connected(daemon.socket) as client:
                register(client, file, grid.size)
                threads = [ask_in_thread(client, grid.request()) for _ in range(4)]
            for thread in threads:
                thread.join()
        wait_empty(daemon)
        with connected(daemon.grpc) as client:
            assert len(grid.plain(client)) == grid.sizes[2]


def test_a_restarted_worker_has_the_regions(daemon, client):
    grid = Grid(8, 1000)
    with memory(grid.size) as file:
        grid.write(file)
        register(client, file, grid.size)
        expected = grid.plain(client)
        for _ in range(3):
            worker, = daemon.workers()
            os.kill(worker, signal.SIGKILL)
            daemon.wait_for("the worker's end", lambda: daemon.workers() != [worker])
            grid.clear(file)
            client.call("ModelInfer", **grid.request())  # waits for the next worker
            assert grid.answer(file) == expected
    client.call("SystemSharedMemoryUnregister")
    wait_empty(daemon)


def register_in_the_end(daemon, client, file):
    """A registration is refused while the worker has a hundred left to map."""
    def registered():
        try:
            return register(client, file, 1 << 20) is not None
        except grpc.RpcError as error:
            assert error.code().name == "RESOURCE_EXHAUSTED", error
            assert "client_shm_bytes" not in error.details()  # released at once
            return False
    daemon.wait_for("a registration", registered)


def test_nothing_is_left_of_many(daemon):
    wait_empty(daemon)
    fds, rss = daemon.descriptors(), daemon.rss_bytes()
    connections, each = (10, 20) if SANITIZED else (50, 40)
    with memory(1 << 20) as file:
        for c in range(connections):
            with connected(daemon.socket if c % 2 else daemon.grpc) as client:
                for i in range(each):
                    register_in_the_end(daemon, client, file)
                    if i < each - 1:
                        client.call("SystemSharedMemoryUnregister", name="r")
    wait_empty(daemon)
    daemon.wait_for("descriptors", lambda: daemon.descriptors() <= fds)
    if not SANITIZED:
        assert daemon.rss_bytes() - rss < 16 << 20
