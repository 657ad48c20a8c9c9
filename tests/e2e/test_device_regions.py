# SPDX-License-Identifier: Apache-2.0
"""Device regions through the daemon, on the fake GPU.  Answers are bit for bit those over the wire;
the device that owns the memory computes them; workers and clients may die meanwhile."""
import base64
import contextlib
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import urllib.request

import grpc
import pytest

from test_observability import lines
from test_shared_memory import Grid, connected, memory, refused, region, register
from voxeld_process import PATIENCE, Daemon

PAGE = 4096


def device_handle(fd, size, pid=None):
    """The format that engine/gpu/fake/fake.h defines."""
    text = b"voxeld-fake-ipc\0" + struct.pack("<QQQ", pid or os.getpid(), fd, size)
    return base64.b64encode(text.ljust(64, b"\0")).decode()


def start(repository, work, devices, *more):
    return Daemon(repository, work, "--client-shm", "local", "--device", devices, "--grpc",
                  f"127.0.0.1:0,unix:{work}/voxeld.sock", "--device-bytes", "256M",
                  "--cache-bytes", "64M", "--restart-ms-max", "200", "--access-log",
                  "--log-format", "json", *more)


@pytest.fixture(scope="module")
def daemon(repository, tmp_path_factory):
    with start(repository, tmp_path_factory.mktemp("daemon"), "fake:0,fake:0") as one:
        yield one


def metric(daemon, name):
    with urllib.request.urlopen(f"http://{daemon.http}/metrics") as page:
        text = page.read().decode()
    return {line.split()[0]: float(line.split()[1]) for line in text.splitlines()
            if line.startswith(name)}


def pid_of(daemon, worker):
    """The first process of that worker."""
    return next(r["pid"] for r in lines(daemon, "WORKER_START") if r["worker"] == worker)


class Placed:
    """A grid with each tensor in a device region of its own.  Regions are whole pages, so mappings
    in a worker may be adjacent."""

    def __init__(self, stack, client, seed, device=0, voxels=1024, handle=device_handle):
        self.grid, self.client, self.files = Grid(seed, voxels), client, []
        self.tag = f"d{device}s{seed}"
        contents = (self.grid.coords.tobytes(), self.grid.feats.tobytes(), b"")
        for part, data, size in zip("cfo", contents, self.grid.sizes):
            size = -(-size // PAGE) * PAGE
            fd = os.memfd_create(part)
            stack.callback(os.close, fd)
            os.ftruncate(fd, size)
            os.pwrite(fd, data, 0)
            self.files.append(fd)
            client.call("CudaSharedMemoryRegister", name=self.tag + part, device_id=device,
                        byte_size=size, raw_handle=handle(fd, size))

    def fields(self):
        fields = self.grid.request()
        for tensor, part, size in zip(fields["inputs"] + fields["outputs"], "cfo",
                                      self.grid.sizes):
            tensor["parameters"] = region(self.tag + part, size)
        return fields

    def ask(self, **more):
        """The bytes of the answer."""
        os.pwrite(self.files[2], bytes(self.grid.sizes[2]), 0)
        reply = self.client.call("ModelInfer", **self.fields(), **more)
        assert not any(reply.get("raw_output_contents", []))
        return os.pread(self.files[2], self.grid.sizes[2], 0)


@pytest.fixture()
def stack():
    with contextlib.ExitStack() as one:
        yield one


def access(daemon, request_id, event="ACCESS"):
    """The access log line of one request."""
    def mine():
        return [r for r in lines(daemon, event) if r["id"] == request_id]
    daemon.wait_for("its line", mine)
    row, = mine()
    return row


def test_answers_are_those_of_the_wire(daemon, stack):
    with connected(daemon.grpc) as client:
        for seed in range(6):
            placed = Placed(stack, client, seed, device=seed % 2)
            assert placed.ask() == placed.grid.plain(client)


def test_requests_go_to_the_device_of_their_region(daemon, stack):
    with connected(daemon.grpc) as client:
        for device in (0, 1):
            placed = Placed(stack, client, 20, device)
            expected = placed.grid.plain(client)
            for i in range(8):
                assert placed.ask(id=f"to{device}-{i}") == expected
        mixed = placed.fields()
        mixed["inputs"][0]["parameters"] = region("d0s20c", placed.grid.sizes[0])
        with refused("INVALID_ARGUMENT", "on one device"):
            client.call("ModelInfer", **mixed)
    for device in (0, 1):
        for i in range(8):
            row = access(daemon, f"to{device}-{i}")
            assert (row["worker"], row["inputs"], row["outputs"]) == (device, "device", "device")


def test_devices_have_one_number(daemon, stack):
    with connected(daemon.grpc) as client:
        groups = client.call("ModelConfig", name="conv")["config"]["instance_group"]
        assert [(g["kind"], g["count"], g["gpus"]) for g in groups] == [("KIND_GPU", 1, [0, 1])]
        usage = client.call("ModelStatistics", name="conv")["model_stats"][0]["memory_usage"]
        assert [(u["type"], int(u.get("id", 0))) for u in usage] == [("GPU", 0), ("GPU", 1)]
        assert usage[0]["byte_size"] == usage[1]["byte_size"]


def test_coordinates_of_a_device_get_no_name(daemon, stack):
    with connected(daemon.grpc) as client:
        placed = Placed(stack, client, 30)
        named = {"parameters": {"coords_ref": {"string_param": ""}}}
        with refused("INVALID_ARGUMENT", "coords in device memory get no coords_ref"):
            placed.ask(**named)
        assert placed.ask() == placed.grid.plain(client)


def test_a_worker_that_restarts_has_its_regions_again(repository, tmp_path, stack):
    with start(repository, tmp_path, "fake:0,fake:0") as daemon, \
            connected(daemon.grpc) as client:
        placed = [Placed(stack, client, 40 + device, device) for device in (0, 1)]
        expected = [one.grid.plain(client) for one in placed]
        for _ in range(3):
            for worker in daemon.workers():
                os.kill(worker, signal.SIGKILL)
                answers = {}

                def ask(device):
                    answers[device] = placed[device].ask()
                threads = [threading.Thread(target=ask, args=(d,)) for d in (0, 1)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join(PATIENCE)
                assert [answers.get(d) for d in (0, 1)] == expected
                daemon.wait_for("both workers", lambda: len(daemon.workers()) == 2)


def test_a_device_that_never_opens_again_is_not_waited_for(repository, tmp_path, stack):
    """The second worker's processes are killed before they are up, three times in a row."""
    with start(repository, tmp_path, "fake:0,fake:0", "--restart-ms-max", "60000") as daemon, \
            connected(daemon.grpc) as client:
        placed = Placed(stack, client, 50, device=1)
        expected = placed.grid.plain(client)
        assert placed.ask(id="sole") == expected
        assert access(daemon, "sole")["worker"] == 1
        second = pid_of(daemon, 1)
        first = (set(daemon.workers()) - {second}).pop()
        ended = []

        def ask():
            with contextlib.suppress(grpc.RpcError):
                placed.client.call("ModelInfer", **placed.fields())
                return
            ended.append(True)

        os.kill(second, signal.SIGKILL)
        thread = None
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            others = [w for w in daemon.workers() if w not in (first, second)]
            for worker in others:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)
            if thread is None:
                thread = threading.Thread(target=ask)
                thread.start()
            thread.join(0.01)
            if ended:
                break
            if not thread.is_alive():
                thread = None  # answered by a worker that was up before it was killed
        assert ended
        with refused("FAILED_PRECONDITION", "not loaded on the device"):
            placed.ask()


def test_regions_go_with_their_client(repository, tmp_path):
    """A client is killed: the server releases its memory and serves others."""
    with start(repository, tmp_path, "fake:0") as daemon:
        code = ("import sys; sys.path[:0] = sys.argv[3:]\n"
                "import contextlib\n"
                "from test_device_regions import Placed, connected\n"
                "with contextlib.ExitStack() as stack, connected(sys.argv[1]) as client:\n"
                "    placed = Placed(stack, client, 60)\n"
                "    print(placed.ask() == placed.grid.plain(client), flush=True)\n"
                "    while True: placed.ask()\n")
        child = subprocess.Popen([sys.executable, "-c", code, daemon.grpc, "-", *sys.path],
                                 stdout=subprocess.PIPE, text=True)
        try:
            assert child.stdout.readline() == "True\n"
            assert metric(daemon, "voxeld_regions{")['voxeld_regions{kind="device"}'] == 3
        finally:
            child.kill()
            child.wait()
            child.stdout.close()
        daemon.wait_for("no regions", lambda: metric(daemon, "voxeld_regions{")[
            'voxeld_regions{kind="device"}'] == 0)
        worker, = daemon.workers()
        daemon.wait_for("nothing imported", lambda: "memfd:" not in "".join(
            x for x in open(f"/proc/{worker}/maps") if "memfd:c " in x or "memfd:f " in x))
        with contextlib.ExitStack() as stack, connected(daemon.grpc) as client:
            placed = Placed(stack, client, 61)
            assert placed.ask() == placed.grid.plain(client)


@pytest.mark.parametrize("device", ["cpu", "fake:0"])
def test_a_region_that_was_cut_is_counted_once_and_no_execution(repository, tmp_path, device):
    with start(repository, tmp_path, device) as daemon, connected(daemon.grpc) as client:
        grid = Grid(70, 3000)
        with memory(grid.size) as file:
            grid.write(file)
            register(client, file, grid.size)
            client.call("ModelInfer", **grid.request())
            fields = grid.request()
            del fields["inputs"][0]["parameters"]  # the front accesses no region
            fields["raw_input_contents"] = [base64.b64encode(grid.coords.tobytes()).decode()]
            os.truncate(file, PAGE)
            for text in ("lost its memory", "is gone", "is gone"):
                with refused("FAILED_PRECONDITION", text):
                    client.call("ModelInfer", **fields)
        stats = client.call("ModelStatistics", name="conv")["model_stats"][0]
        assert (stats["inference_count"], stats["execution_count"]) == ("1", "1")
        assert [b["compute_infer"]["count"] for b in stats["batch_stats"]] == ["1"]
        said = metric(daemon, "voxeld_")
        assert said["voxeld_regions_broken_total"] == 1
        assert said["voxeld_compute_seconds_count"] == said["voxeld_batch_requests_count"] == 1
        assert said['voxeld_geometry_refs_total{result="unknown"}'] == 0


@pytest.mark.parametrize("device", ["cpu", "fake:0"])
def test_what_overlaps_does_not_depend_on_the_device(repository, tmp_path, device):
    with start(repository, tmp_path, device) as daemon, connected(daemon.grpc) as client:
        grid = Grid(71, 1000)
        with memory(grid.size) as file:
            grid.write(file)
            register(client, file, grid.size)
            fields = grid.request()
            fields["outputs"][0]["parameters"] = region("r", grid.sizes[2])
            with refused("INVALID_ARGUMENT", "'coords' and output 'out' overlap"):
                client.call("ModelInfer", **fields)
            fields["outputs"][0]["parameters"] = region("nope", grid.sizes[2])
            with refused("NOT_FOUND", "Unable to find shared memory region: 'nope'"):
                client.call("ModelInfer", **fields, id="nowhere")
            row = access(daemon, "nowhere")
            assert (row["code"], row["queue_us"], row["worker"]) == ("NOT_FOUND", 0, -1)
            said = metric(daemon, "voxeld_")
            assert said['voxeld_requests_total{code="NOT_FOUND"}'] == 1
            assert said['voxeld_rpc_refused_total{reason="bad"}'] == 0
            only_coords = grid.request(output=False)
            del only_coords["inputs"][1]["parameters"]
            only_coords["raw_input_contents"] = [
                base64.b64encode(grid.feats.tobytes()).decode()]
            client.call("ModelInfer", **only_coords, id="copied")
            assert access(daemon, "copied")["inputs"] == "region"


def test_a_wait_in_vain_is_queue_time(repository, tmp_path):
    with start(repository, tmp_path, "cpu") as daemon, connected(daemon.grpc) as client:
        grid, (worker,) = Grid(72, 1000), daemon.workers()
        client.call("TraceSetting", settings={"trace_level": {"value": ["TIMESTAMPS"]},
                                              "trace_rate": {"value": ["1"]}})
        with daemon.frozen(worker):
            # A worker has two batches at most; the third request waits.
            threads = [threading.Thread(target=grid.plain, args=(client,)) for _ in range(2)]
            for i, thread in enumerate(threads):
                thread.start()
                daemon.wait_for("it runs", lambda n=i: metric(
                    daemon, "voxeld_running_requests")["voxeld_running_requests"] > n)
            fields = grid.request(output=False)
            for tensor in fields["inputs"]:
                del tensor["parameters"]
            fields["raw_input_contents"] = [base64.b64encode(a.tobytes()).decode()
                                            for a in (grid.coords, grid.feats)]
            fields["parameters"] = {"timeout": {"int64_param": 300000}}
            with refused("UNAVAILABLE", "timeout"):
                client.call("ModelInfer", **fields, id="late")
        for thread in threads:
            thread.join(PATIENCE)
        assert access(daemon, "late")["queue_us"] > 0
        trace = access(daemon, "late", "TRACE")
        assert trace["QUEUE_START"] > 0 == trace["COMPUTE_START"]
