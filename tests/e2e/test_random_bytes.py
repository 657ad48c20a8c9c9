# SPDX-License-Identifier: Apache-2.0
"""Random bytes and damaged messages to every method: each gets a status, and nothing is left
afterwards: no call, no tensor's memory, no descriptor."""
import grpc
import numpy as np
import pytest

import voxeld
from conftest import SANITIZED
from model_files import random_grid
from test_bad_input import (
    BYTES, C, CB, COORDS, F, FB, FEATS, REGION, in_region, output, parameter, raw, request)
from test_protocol import METHODS
from voxeld import messages, wire
from voxeld_process import PATIENCE, Daemon

MESSAGES = 60 if SANITIZED else 150  # to each method; fuzz_codec sends millions to the codec
INFER = request(C, F, raw(CB), raw(FB), output(), parameter(4, "timing", 1, 1))
PLACED = request(in_region("coords", "INT32", (3, 4), REGION, BYTES), F, raw(FB),
                 output(REGION, ("shared_memory_byte_size", 2, 36)))
NAMED = wire.text(1, "conv") + wire.text(2, "1")
ENTRY = wire.message(2, wire.text(1, "trace_rate") + wire.message(2, wire.text(1, "5")))
SHARED = wire.text(1, "r") + wire.text(2, "/voxeld-none") + wire.number(3, 64) + wire.number(4, 96)
HANDLE = wire.text(1, "r") + wire.message(2, bytes(64)) + wire.number(4, 96)

# A good or nearly good message for each unary method.
UNARY = {
    "ServerLive": b"", "ServerReady": b"", "ServerMetadata": b"", "ModelReady": NAMED,
    "ModelMetadata": NAMED, "ModelConfig": NAMED, "ModelStatistics": NAMED,
    "ModelInfer": INFER, "RepositoryIndex": wire.number(2, 1),
    "RepositoryModelLoad": wire.text(2, "conv"), "RepositoryModelUnload": wire.text(2, "conv"),
    "SystemSharedMemoryStatus": wire.text(1, "r"), "SystemSharedMemoryRegister": SHARED,
    "SystemSharedMemoryUnregister": wire.text(1, "r"), "CudaSharedMemoryStatus": wire.text(1, "r"),
    "CudaSharedMemoryRegister": HANDLE, "CudaSharedMemoryUnregister": wire.text(1, "r"),
    "TraceSetting": wire.text(2, "conv") + ENTRY, "LogSettings": b"",
}
OTHERS = {"/grpc.health.v1.Health/Check": wire.text(1, "conv")}
STREAMS = {
    messages.SERVICE + "ModelStreamInfer": INFER,
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": wire.text(4, "inference.X"),
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": wire.text(7, ""),
}
WATCH = "/grpc.health.v1.Health/Watch"
CALLS = {**{messages.SERVICE + name: good for name, good in UNARY.items()}, **OTHERS}
# Never UNKNOWN, which gRPC reports for unexpected errors, and never a lost connection.
CODES = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "UNAVAILABLE",
         "UNIMPLEMENTED", "FAILED_PRECONDITION", "ALREADY_EXISTS", "PERMISSION_DENIED"}


@pytest.fixture(scope="module", params=["off", "local"])
def daemon(repository, tmp_path_factory, request):
    """With shared memory, and without."""
    with Daemon(repository, tmp_path_factory.mktemp("daemon"), "--message-bytes-max", "8M",
                "--client-shm", request.param) as one:
        yield one


@pytest.fixture(autouse=True)
def nothing_is_left(daemon, client, model):
    client.infer("conv", COORDS, FEATS)  # the client's connection exists from here on
    before = daemon.descriptors()
    yield
    answer = client.infer("conv", COORDS, FEATS, timeout=PATIENCE)["out"]
    np.testing.assert_allclose(answer, model.answer(COORDS, FEATS), rtol=2e-4, atol=2e-4)
    daemon.wait_for("the calls' end", lambda: daemon.metrics()["voxeld_calls_in_flight"] == 0)
    daemon.wait_for("empty arena", lambda: daemon.metrics()["voxeld_arena_used_bytes"] == 0)
    daemon.wait_for("the descriptors", lambda: daemon.descriptors() <= before)


def damaged(rng, good, i):
    """Every third: any bytes; the others: the message with some bytes changed, cut or doubled."""
    if i % 3 == 0 or not good:
        return bytes(rng.integers(0, 256, rng.integers(0, 400), dtype=np.uint8))
    data = bytearray(good)
    for at in rng.integers(0, len(data), 1 + i % 5):
        data[at] = rng.integers(0, 256)
    if i % 7 == 1:
        del data[int(rng.integers(0, len(data))):]
    if i % 7 == 2:
        data += data[int(rng.integers(0, len(data))):]
    return bytes(data)


def code_of(call):
    try:
        call()
        return "OK"
    except grpc.RpcError as error:
        return error.code().name


@pytest.mark.parametrize("method", CALLS)
def test_unary_methods(daemon, method):
    rng = np.random.default_rng(len(method))
    goods = [CALLS[method]] + ([PLACED] if method.endswith("/ModelInfer") else [])
    codes = set()
    with grpc.insecure_channel(daemon.grpc, voxeld.client.CHANNEL_OPTIONS) as channel:
        call = channel.unary_unary(method)
        for i in range(MESSAGES):
            data = damaged(rng, goods[i % len(goods)], i)
            codes.add(code_of(lambda: call(data, timeout=PATIENCE)))
    assert codes <= CODES, codes
    assert codes & {"INVALID_ARGUMENT", "UNIMPLEMENTED"}, codes  # some messages were refused


@pytest.mark.parametrize("method", STREAMS)
def test_streams(daemon, method):
    """A stream may answer each message or end with a status; it never hangs."""
    rng = np.random.default_rng(len(method))
    codes = set()
    with grpc.insecure_channel(daemon.grpc, voxeld.client.CHANNEL_OPTIONS) as channel:
        stream = channel.stream_stream(method)
        for i in range(MESSAGES // 3):
            data = [damaged(rng, STREAMS[method], 3 * i + k) for k in range(3)]
            codes.add(code_of(lambda: list(stream(iter(data), timeout=PATIENCE))))
    assert codes <= CODES, codes


def test_watch(daemon):
    """An accepted request is answered, and the stream goes on until the client leaves."""
    rng = np.random.default_rng(5)
    codes = set()
    with grpc.insecure_channel(daemon.grpc, voxeld.client.CHANNEL_OPTIONS) as channel:
        for i in range(MESSAGES // 3):
            stream = channel.unary_stream(WATCH)(damaged(rng, wire.text(1, "conv"), i),
                                                 timeout=PATIENCE)
            codes.add(code_of(lambda: next(stream)))
            stream.cancel()
    assert codes <= CODES, codes


def test_every_method_is_here():
    names = {path.rsplit("/", 1)[1] for path in (*CALLS, *STREAMS)}
    assert len(METHODS) == 20 and set(METHODS) <= names


def test_a_flood_of_bad_requests_beside_good_ones(daemon, client, model):
    coords, feats = random_grid(11, 500)
    expected = model.answer(coords, feats)
    rng = np.random.default_rng(17)
    with grpc.insecure_channel(daemon.grpc, voxeld.client.CHANNEL_OPTIONS) as channel:
        infer = channel.unary_unary(messages.SERVICE + "ModelInfer")
        for i in range(20):
            bad = [infer.future(damaged(rng, INFER, 20 * i + k),
                                timeout=PATIENCE) for k in range(20)]
            np.testing.assert_allclose(client.infer("conv", coords, feats, timeout=PATIENCE)["out"],
                                       expected, rtol=2e-4, atol=2e-4)
            assert {code_of(call.result) for call in bad} <= CODES
