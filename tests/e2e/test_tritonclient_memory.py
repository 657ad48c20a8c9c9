# SPDX-License-Identifier: Apache-2.0
"""Shared memory as the stock client does it: system regions end to end, CUDA's without a GPU."""
import base64
import contextlib
import os
import queue
import uuid

import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.utils.shared_memory as shm
from model_files import ConvModel, random_grid
from triton_rig import feats_in, inputs_of, refused, same
from voxeld_process import PATIENCE, Daemon


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    repository = tmp_path_factory.mktemp("repository")
    ConvModel().write(repository)
    with Daemon(repository, tmp_path_factory.mktemp("daemon"), "--client-shm", "local") as one:
        yield one


@pytest.fixture(scope="module")
def off(repository, tmp_path_factory):
    with Daemon(repository, tmp_path_factory.mktemp("off")) as one:
        yield one


@pytest.fixture
def stock(daemon):
    with triton.InferenceServerClient(daemon.grpc) as one:
        yield one
        # gRPC gives the next client of this process the same connection, and so its regions.
        one.unregister_system_shared_memory()


@contextlib.contextmanager
def memory(size, slash=False):
    """A region of this process: (handle, key).  The key has no slash unless asked for."""
    key = f"{'/' if slash else ''}voxeld-test-{uuid.uuid4().hex}"
    handle = shm.create_shared_memory_region(key, key, size, create_only=True)
    try:
        yield handle, key
    finally:
        shm.destroy_shared_memory_region(handle)


class Grid:
    """One grid in one region, where its answer goes too: coords, feats, out."""

    def __init__(self, stack, stock, seed, voxels, datatype="FP32", name="all", slash=False):
        self.coords, feats = random_grid(seed, voxels)
        self.feats, self.options, self.ours = feats_in(datatype, feats)
        self.name, self.stock, self.voxels = name, stock, voxels
        self.at = {"coords": 0, "feats": self.coords.nbytes + 64 - self.coords.nbytes % 64}
        self.at["out"] = self.at["feats"] + self.feats.nbytes + 64 - self.feats.nbytes % 64
        self.size = self.at["out"] + 12 * voxels
        self.handle, self.key = stack.enter_context(memory(self.size, slash))
        shm.set_shared_memory_region(self.handle, [self.coords], self.at["coords"])
        shm.set_shared_memory_region(self.handle, [self.feats], self.at["feats"])
        stock.register_system_shared_memory(name, self.key, self.size)

    def inputs(self):
        out = inputs_of(self.coords, self.feats)
        out[0].set_shared_memory(self.name, self.coords.nbytes, self.at["coords"])
        out[1].set_shared_memory(self.name, self.feats.nbytes, self.at["feats"])
        return out

    def output(self, size=None):
        one = triton.InferRequestedOutput("out")
        one.set_shared_memory(self.name, 12 * self.voxels if size is None else size,
                              self.at["out"])
        return one

    def expected(self, client):
        return client.infer("conv", self.coords, self.ours, **self.options)

    def check(self, result, expected):
        """The answer lies in the region, and the message has an empty entry in its place."""
        reply = result.get_response()
        assert list(reply.raw_output_contents) == [b""]
        assert list(reply.outputs[0].shape) == [self.voxels, 3]
        out = shm.get_contents_as_numpy(self.handle, np.float32, [self.voxels, 3], self.at["out"])
        assert out.tobytes() == expected["out"].tobytes()
        del out  # a view keeps the region from closing


@pytest.fixture
def stack():
    with contextlib.ExitStack() as one:
        yield one


@pytest.mark.parametrize("slash", [False, True])
def test_system_memory(stock, client, stack, slash):
    assert {"system_shared_memory"} <= set(stock.get_server_metadata().extensions)
    grid = Grid(stack, stock, 40, 3000, slash=slash)
    status = stock.get_system_shared_memory_status().regions
    assert list(status) == ["all"]
    assert (status["all"].name, status["all"].offset, status["all"].byte_size) == (
        "all", 0, grid.size)
    assert status["all"].key.lstrip("/") == grid.key.lstrip("/")
    assert set(stock.get_system_shared_memory_status("all", as_json=True)["regions"]) == {"all"}
    expected = grid.expected(client)
    grid.check(stock.infer("conv", grid.inputs(), outputs=[grid.output()]), expected)
    same(stock.infer("conv", grid.inputs()), expected)                  # out in the message
    result = stock.infer("conv", inputs_of(grid.coords, grid.feats), outputs=[grid.output()])
    grid.check(result, expected)                                        # only out in the region
    mixed = [grid.inputs()[0], inputs_of(grid.coords, grid.feats)[1]]
    same(stock.infer("conv", mixed), expected)
    mixed = [inputs_of(grid.coords, grid.feats)[0], grid.inputs()[1]]
    same(stock.infer("conv", mixed), expected)
    stock.unregister_system_shared_memory("all")
    assert not stock.get_system_shared_memory_status().regions
    with refused("NOT_FOUND", "Unable to find shared memory region: 'all'"):
        stock.infer("conv", grid.inputs())
    stock.unregister_system_shared_memory("all")                        # absent: OK as in Triton
    stock.unregister_system_shared_memory()


@pytest.mark.parametrize("datatype", ["FP32", "FP16", "BF16"])
def test_types_in_regions(stock, client, stack, datatype):
    grid = Grid(stack, stock, 41, 1500, datatype)
    expected = grid.expected(client)
    grid.check(stock.infer("conv", grid.inputs(), outputs=[grid.output()]), expected)


def test_another_answer_in_the_same_region(stock, client, stack):
    """A region is read each time: what its owner writes between two requests counts."""
    grid = Grid(stack, stock, 42, 2000)
    for round_ in range(3):
        grid.feats = grid.ours = (grid.feats * np.float32(0.5) + np.float32(round_)).astype("f4")
        shm.set_shared_memory_region(grid.handle, [grid.feats], grid.at["feats"])
        if round_ == 2:
            grid.coords = grid.coords + np.int32([0, 5, -7, 1])
            shm.set_shared_memory_region(grid.handle, [grid.coords], grid.at["coords"])
        result = stock.infer("conv", grid.inputs(), outputs=[grid.output()])
        grid.check(result, grid.expected(client))


def test_streams_and_callbacks_use_regions(stock, client, stack):
    grid = Grid(stack, stock, 43, 800)
    expected, answers = grid.expected(client), queue.Queue()

    def on_answer(result, error):
        answers.put((result, error))
    stock.async_infer("conv", grid.inputs(), on_answer, outputs=[grid.output()])
    result, error = answers.get(timeout=PATIENCE)
    assert error is None, error
    grid.check(result, expected)
    stock.start_stream(on_answer)
    for _ in range(5):
        stock.async_stream_infer("conv", grid.inputs(), outputs=[grid.output()])
        result, error = answers.get(timeout=PATIENCE)
        assert error is None, error
        grid.check(result, expected)
    stock.stop_stream()


def test_misuse_of_system_memory(stock, client, stack):
    grid = Grid(stack, stock, 44, 500)
    expected = grid.expected(client)
    with refused("ALREADY_EXISTS", "shared memory region 'all' already in manager"):
        stock.register_system_shared_memory("all", grid.key, grid.size)
    with refused("NOT_FOUND", "Unable to find system shared memory region: 'none'"):
        stock.get_system_shared_memory_status("none")
    for key, code in ((f"voxeld-no-{uuid.uuid4().hex}", "NOT_FOUND"), ("", "INVALID_ARGUMENT"),
                      ("a/b", "INVALID_ARGUMENT"), ("..", "INVALID_ARGUMENT")):
        with refused(code) as caught:
            stock.register_system_shared_memory("bad", key, 64)
        assert not key or len(key) < 4 or key not in caught.value.message()
    with refused("INVALID_ARGUMENT") as caught:  # larger than the object
        stock.register_system_shared_memory("bad", grid.key, 1 << 30)
    assert grid.key not in caught.value.message()
    with refused("INVALID_ARGUMENT"):
        stock.register_system_shared_memory("bad", grid.key, 0)
    with refused("INVALID_ARGUMENT"):
        stock.register_system_shared_memory("", grid.key, 64)
    inputs = grid.inputs()
    inputs[1].set_shared_memory("all", grid.feats.nbytes, grid.size)  # not all inside
    with refused("INVALID_ARGUMENT"):
        stock.infer("conv", inputs)
    inputs[1].set_shared_memory("all", grid.feats.nbytes - 4, grid.at["feats"])
    with refused("INVALID_ARGUMENT"):
        stock.infer("conv", inputs)
    with refused("INTERNAL", "shared memory size specified with the request for output 'out'"):
        stock.infer("conv", grid.inputs(), outputs=[grid.output(12 * 500 - 1)])
    grid.check(stock.infer("conv", grid.inputs(), outputs=[grid.output()]), expected)


def test_a_region_is_its_connections(daemon, stock, client, stack):
    grid = Grid(stack, stock, 45, 300)
    options = [("grpc.use_local_subchannel_pool", 1)]
    with triton.InferenceServerClient(daemon.grpc, channel_args=options) as other:
        assert not other.get_system_shared_memory_status().regions
        with refused("NOT_FOUND", "Unable to find shared memory region: 'all'"):
            other.infer("conv", grid.inputs())
        other.unregister_system_shared_memory()
        mine = Grid(stack, other, 46, 300)  # the same name, another region
        mine.check(other.infer("conv", mine.inputs(), outputs=[mine.output()]),
                   mine.expected(client))
    grid.check(stock.infer("conv", grid.inputs(), outputs=[grid.output()]), grid.expected(client))


def test_what_clients_leave_is_given_up(daemon, client, stack):
    before = daemon.descriptors()
    for _ in range(3):
        with triton.InferenceServerClient(daemon.grpc, channel_args=[
                ("grpc.use_local_subchannel_pool", 1)]) as one:
            for i in range(4):
                Grid(stack, one, 50 + i, 100, name=f"r{i}")
            assert len(one.get_system_shared_memory_status().regions) == 4
    daemon.wait_for("the descriptors", lambda: daemon.descriptors() <= before)

    def mapped():
        with open(f"/proc/{daemon.process.pid}/maps") as maps:
            return "voxeld-test-" in maps.read()
    daemon.wait_for("the mappings", lambda: not mapped())


def test_a_truncated_region_harms_its_owner_alone(daemon, stock, client, stack):
    grid = Grid(stack, stock, 47, 60000)
    expected = grid.expected(client)
    with open(f"/dev/shm/{grid.key}", "r+b") as file:
        os.ftruncate(file.fileno(), 4096)
    for outputs in (None, [grid.output()]):
        with refused("FAILED_PRECONDITION"):
            stock.infer("conv", grid.inputs(), outputs=outputs)
    same(stock.infer("conv", inputs_of(grid.coords, grid.feats)), expected)
    assert daemon.workers() and "PANIC" not in daemon.log()
    with open(f"/dev/shm/{grid.key}", "r+b") as file:
        os.ftruncate(file.fileno(), grid.size)  # so that this process can close its own mapping


def test_cuda_memory(stock, off):
    """No GPU here: nothing can be registered, and no handle, right or wrong, harms the daemon."""
    handle = base64.b64encode(bytes(range(64)))
    for call in (lambda: stock.register_cuda_shared_memory("gpu", handle, 0, 4096),
                 lambda: stock.register_cuda_shared_memory("gpu", base64.b64encode(b"x"), 0, 4096),
                 lambda: stock.register_cuda_shared_memory("gpu", handle, -1, 4096)):
        with refused("UNIMPLEMENTED"):
            call()
    with refused("UNIMPLEMENTED"):
        stock.get_cuda_shared_memory_status()
    with refused("UNIMPLEMENTED"):
        stock.unregister_cuda_shared_memory()
    assert "cuda_shared_memory" not in stock.get_server_metadata().extensions


def test_memory_that_is_off(off, stack):
    with triton.InferenceServerClient(off.grpc) as one:
        assert not [e for e in one.get_server_metadata().extensions if "shared_memory" in e]
        with memory(4096) as (_, key):
            for call in (lambda: one.register_system_shared_memory("r", key, 4096),
                         one.get_system_shared_memory_status, one.unregister_system_shared_memory,
                         one.get_cuda_shared_memory_status, one.unregister_cuda_shared_memory,
                         lambda: one.register_cuda_shared_memory(
                             "r", base64.b64encode(bytes(64)), 0, 4096)):
                with refused("UNIMPLEMENTED") as caught:
                    call()
                assert key not in caught.value.message()
        inputs = inputs_of(*random_grid(1, 10))
        inputs[0].set_shared_memory("r", 160)
        with refused("UNIMPLEMENTED"):
            one.infer("conv", inputs)
