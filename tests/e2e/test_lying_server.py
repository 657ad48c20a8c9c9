# SPDX-License-Identifier: Apache-2.0
"""A server that answers wrong in every way: no client gives an answer or file, only an error.

Each wrong answer goes to the Python clients, blocking and asyncio, and to the command line, which
uses the C library; all three must refuse it.
"""
import asyncio
import concurrent.futures
import os
import struct
import subprocess

import grpc
import numpy as np
import pytest

from voxeld import AsyncClient, Client, VoxeldError, messages, wire
from voxeld.client import CHANNEL_OPTIONS
from voxeld_process import PATIENCE

ROWS = 3
COORDS = np.array([[0, 1, 2, 3], [0, 1, 2, 4], [0, 5, 5, 5]], np.int32)
FEATS = np.ones((ROWS, 1), np.float32)
OUT = np.arange(ROWS * 2, dtype="<f4").reshape(ROWS, 2)


def tensor(name="out", datatype="FP32", shape=(ROWS, 2), more=b""):
    dims = b"".join(wire.varint(n) for n in shape)
    return wire.message(5, wire.text(1, name) + wire.text(2, datatype) + wire.text(3, dims) + more)


def raw(data=OUT.tobytes()):
    return wire.message(6, data)


def head(model="sums", version="1", name="7"):
    return wire.text(1, model) + wire.text(2, version) + wire.text(3, name)


def said(**parameters):
    """Parameters of an output tensor."""
    return b"".join(wire.message(4, wire.text(1, name) + wire.message(2, wire.text(3, text)))
                    for name, text in parameters.items())


GOOD = head() + tensor() + raw()
OWN = said(coords="at", stride="2x2x2")   # of an output on voxels of its own

# The answer, and the text that the errors of Python and of the command line must contain.
LIES = {
    "fewer rows": (head() + tensor(shape=(2, 2)) + raw(OUT[:2].tobytes()), "2 rows; expected 3"),
    "more rows": (head() + tensor(shape=(4, 2)) + raw(bytes(32)), "4 rows; expected 3"),
    "no rows": (head() + tensor(shape=(0, 2)) + raw(b""), "0 rows; expected 3"),
    "no shape": (head() + tensor(shape=()) + raw(bytes(4)), "no rows; expected 3"),
    "a stride of two axes": (head() + tensor(more=said(stride="2x2")) + raw(),
                             "has the stride '2x2'"),
    "a stride of nothing": (head() + tensor(more=said(stride="2x0x2")) + raw(),
                            "has the stride '2x0x2'"),
    "too few coordinates": (head() + tensor(more=OWN)
                            + tensor("at", "INT32", (2, 4), said(stride="2x2x2")) + raw()
                            + raw(bytes(32)), "coordinates"),
    "coordinates of three columns": (head() + tensor(more=OWN) + tensor("at", "INT32", (ROWS, 3))
                                     + raw() + raw(bytes(36)), "coordinates"),
    "coordinates that are floats": (head() + tensor(more=OWN) + tensor("at", "FP32", (ROWS, 4))
                                    + raw() + raw(bytes(48)), "coordinates"),
    "one row long": (head() + tensor(shape=(6,)) + raw(), "6 rows; expected 3"),
    "bytes short": (head() + tensor() + raw(OUT.tobytes()[:-1]), "has 23 bytes"),
    "bytes long": (head() + tensor() + raw(OUT.tobytes() + b"\0"), "has 25 bytes"),
    "no bytes": (head() + tensor() + raw(b""), "has 0 bytes"),
    "type narrower": (head() + tensor(datatype="FP16") + raw(), "has 24 bytes"),
    "type unknown": (head() + tensor(datatype="FP8") + raw(), "datatype"),
    "no type": (head() + tensor(datatype="") + raw(), "datatype"),
    "typed contents": (head() + tensor(more=wire.message(5, b"")), "typed contents"),
    **{f"shape {shape[:3]} of {len(shape)}": (
        head() + tensor(shape=shape) + raw(OUT.tobytes() if shape[0] else b""), "") for shape in (
            (ROWS, (1 << 64) - 2), (ROWS, 1 << 62), (ROWS, 1 << 32, 1 << 32), (0, 1 << 62, 1 << 62),
            (0, (1 << 63) - 1), (ROWS, 2, *[1] * 7), (ROWS, 2, *[1] * 98))},
    "65 outputs": (head() + b"".join(tensor(f"o{i}") for i in range(65)) + raw() * 65, "64"),
    "missing output": (head(), "no output"),
    "another output": (head() + tensor(name="other") + raw(), "other"),
    "no output name": (head() + tensor(name="") + raw(), "output without a name"),
    "output twice": (head() + tensor() + tensor() + raw() + raw(), "'out' twice"),
    "more outputs than bytes": (head() + tensor() + tensor(name="b") + raw(), "2 outputs"),
    "bytes of no output": (head() + raw(), "output"),
    "another model": (head(model="normals") + tensor() + raw(),
                      "the request is for model 'sums', the answer is from 'normals'"),
    "another version": (head(version="2") + tensor() + raw(), "the request is for version 1,"),
    "another id": (head(name="8") + tensor() + raw(), "id was '7', the answer's is '8'"),
    "no id": (head(name="") + tensor() + raw(), "id was '7', the answer's is ''"),
    "cut in a field": (GOOD[:-3], "damaged"),
    "cut in a length": (head() + b"\x2a\xff", "damaged"),
    "length beyond 64 bits": (head() + b"\x2a" + b"\xff" * 9 + b"\x7f", "damaged"),
    "number beyond 64 bits": (b"\x08" + b"\xff" * 9 + b"\x7f" + GOOD, ""),
    "field 0": (b"\0\0" + GOOD, "damaged"), "a group": (b"\x0b" + GOOD, "damaged"),
    "noise": (bytes(range(1, 255)), "damaged"), "no message at all": (b"", ""),
}
# Strings that are not UTF-8: protobuf-c does not check; Python must report an error.
ODD = {
    "name no UTF-8": head() + tensor(name=b"\xff\xfe") + raw(),
    "model no UTF-8": wire.text(1, b"\xff") + GOOD,
    "model a number": wire.number(1, 1 << 40) + GOOD,
    "output a number": GOOD + wire.number(5, 3),
    "raw a number": head() + tensor() + wire.number(6, 24),
    "shape a double": head() + wire.message(5, wire.text(1, "out") + wire.text(2, "FP32")
                                            + b"\x19" + bytes(8)) + raw(),
    "parameter a double of 4 bytes": GOOD + wire.message(
        4, wire.text(1, "a") + wire.message(2, b"\x25" + bytes(4))),
    "coords_ref a number": GOOD + wire.message(
        4, wire.text(1, "coords_ref") + wire.message(2, wire.number(2, 5))),
}


class Liar:
    """Answers ModelInfer with `said`, ModelMetadata with `info` or `channels` and `out`."""

    def __init__(self):
        self.honest()
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        serve = grpc.unary_unary_rpc_method_handler
        others = ("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelStatistics",
                  "SystemSharedMemoryRegister", "SystemSharedMemoryUnregister")
        handlers = {"ModelInfer": serve(self.infer),
                    "ModelMetadata": serve(lambda request, context: self.metadata())}
        handlers |= {name: serve(lambda request, context: self.info or b"") for name in others}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
            "inference.GRPCInferenceService", handlers),))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def honest(self):
        self.said, self.info, self.channels, self.out = GOOD, None, 1, ("FP32", 2)
        self.inferences = 0

    def infer(self, _, context):
        self.inferences += 1
        if isinstance(self.said, tuple):
            context.abort(*self.said)
        return self.said

    def metadata(self):
        if self.info is not None:
            return self.info

        def info(field, name, datatype, columns):
            dims = wire.varint((1 << 64) - 1) + wire.varint(columns)
            return wire.message(field, wire.text(1, name) + wire.text(2, datatype)
                                + wire.text(3, dims))
        return (wire.text(1, "sums") + wire.text(2, "1") + info(4, "coords", "INT32", 4)
                + info(4, "feats", "FP32", self.channels) + info(5, "out", *self.out))

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *exc):
        self._server.stop(None).wait()


@pytest.fixture(scope="module")
def server():
    with Liar() as one:
        yield one


@pytest.fixture(autouse=True)
def honest(server):
    server.honest()


def ask(server, **options):
    with Client(server.address) as client:
        return client.infer("sums", COORDS, FEATS, version=1, id="7", timeout=PATIENCE, **options)


def ask_later(server, **options):
    async def main():
        async with AsyncClient(server.address) as client:
            return await client.infer("sums", COORDS, FEATS, version=1, id="7", timeout=PATIENCE,
                                      **options)
    return asyncio.run(main())


def voxel(server, folder, *words):
    np.save(folder / "grid.npy", COORDS)
    return subprocess.run(
        [os.environ["VOXEL"], "infer", "--server", server.address, "--model", "sums", "--version",
         "1", "--id", "7", "grid.npy", *words], cwd=folder, capture_output=True, text=True,
        timeout=PATIENCE)


def test_the_truth_is_taken(server, tmp_path):
    np.testing.assert_array_equal(ask(server)["out"], OUT)
    np.testing.assert_array_equal(ask_later(server)["out"], OUT)
    done = voxel(server, tmp_path, "-o", "out.npy")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), OUT)
    np.testing.assert_array_equal(np.load(tmp_path / "out.coords.npy"), COORDS)


@pytest.mark.parametrize("lie", LIES)
def test_python_refuses(server, lie):
    server.said, sentence = LIES[lie]
    for one in (ask, ask_later):
        with pytest.raises(VoxeldError) as caught:
            one(server, outputs=["out"])
        assert caught.value.code == grpc.StatusCode.INTERNAL
        if lie not in ("missing output", "another output", "no output name"):
            assert sentence in caught.value.message, caught.value.message
        else:
            assert caught.value.message == "the answer lacks output 'out'"
    if lie != "another output":   # a request that names no output accepts any
        with pytest.raises(VoxeldError) as caught:
            ask(server)
        assert sentence in caught.value.message, caught.value.message


@pytest.mark.parametrize("odd", ODD)
def test_python_refuses_what_is_no_message_of_the_protocol(server, odd):
    server.said = ODD[odd]
    with pytest.raises(VoxeldError):
        ask(server)


@pytest.mark.parametrize("lie", LIES)
def test_the_command_line_refuses_and_writes_nothing(server, lie, tmp_path):
    server.said, sentence = LIES[lie]
    for out in ("out.npy", "out.npz", "out.ply"):
        done = voxel(server, tmp_path, "-o", out, "--render", "out.png")
        assert done.returncode == 1, (out, done.stdout, done.stderr)
        assert sentence in done.stderr and "INTERNAL" in done.stderr or lie == "typed contents"
        assert [path.name for path in tmp_path.iterdir()] == ["grid.npy"]


@pytest.mark.parametrize("sentence,code,expected", [
    ("CANCELLED", "UNAVAILABLE", "the server ended the call without an answer"),
    ("Received RST_STREAM with error code 8", "UNAVAILABLE", "the server ended the call"),
    ("the region was taken back", "CANCELLED", "the region was taken back")])
def test_a_server_that_stops_has_taken_no_call_back(server, sentence, code, expected, tmp_path):
    """CANCELLED with gRPC's own text comes from a server that stops, not from this client."""
    server.said = grpc.StatusCode.CANCELLED, sentence
    for one in (ask, ask_later):
        with pytest.raises(VoxeldError) as caught:
            one(server)
        assert caught.value.code.name == code and expected in caught.value.message
    done = voxel(server, tmp_path)
    assert done.returncode == 1 and f"{code}: {expected}" in done.stderr, done.stderr


def test_the_command_line_sends_as_many_channels_as_a_network_may_have(server):
    def bench():
        return subprocess.run([os.environ["VOXEL"], "bench", "--server", server.address, "--model",
                               "sums", "-n", "20"], capture_output=True, text=True,
                              timeout=PATIENCE)
    for server.channels in (5000, 16384):
        done = bench()   # it was sent; only the number of rows is wrong
        assert "INTERNAL: output 'out' has 3 rows" in done.stderr, done.stderr
    server.channels = 16385
    done = bench()
    assert done.returncode == 2
    assert "takes feats of 16385 channels; at most 16384 are sent" in done.stderr, done.stderr


def test_python_looks_for_a_server_that_is_away_as_often_as_c():
    """By default gRPC's pauses between attempts grow to two minutes."""
    options = dict(CHANNEL_OPTIONS)
    assert options["grpc.initial_reconnect_backoff_ms"] == 100
    assert options["grpc.max_reconnect_backoff_ms"] == 1000


@pytest.mark.parametrize("said,sentence", [
    (head() + tensor(datatype="INT32") + raw(),
     "output 'out' is INT32 [3, 2], but model 'sums' declares FP32 [-1, 2]"),
    (head() + tensor(datatype="BYTES") + raw(), "output 'out' is BYTES"),
    (head() + tensor(shape=(ROWS, 1)) + raw(OUT[:, 0].tobytes()),
     "[3, 1], but model 'sums' declares"),
    (head() + tensor(shape=(ROWS, 2, 1)) + raw(), "[3, 2, 1], but model 'sums' declares"),
    (head() + tensor() + tensor(name="b") + raw() + raw(),
     "'b', which model 'sums' does not have"),
])
def test_the_command_line_knows_the_model(server, said, sentence, tmp_path):
    server.said = said
    done = voxel(server, tmp_path, "-o", "out.npy")
    assert done.returncode == 1 and sentence in done.stderr, done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["grid.npy"]


def test_python_knows_the_arrays_that_answers_go_to(server):
    """A server that has the region and claims to have written an output that does not fit."""
    with Client(server.address) as client, client.region(4096) as region:
        def infer(dtype=np.float32, shape=(ROWS, 2)):
            out = region.array(shape, dtype)
            answer = client.infer("sums", COORDS, FEATS, outputs_in={"out": out}, timeout=PATIENCE)
            assert np.shares_memory(answer["out"], out)
            return out
        # The output arrives in the message although an array is given: the client copies it there.
        np.testing.assert_array_equal(infer(), OUT)
        server.out = "INT32", 2
        for said, sentence in (
                (GOOD, "out' is FP32, its array in outputs_in is int32"),
                (head() + tensor(datatype="INT32") + raw(b""), None),
                (head() + tensor(datatype="FP64") + raw(bytes(48)), "is FP64, its array"),
                (head() + tensor(name="b") + raw(), "lacks output 'out'")):
            server.said = said
            if sentence is None:
                infer(np.int32)
                continue
            with pytest.raises(VoxeldError, match=sentence):
                infer(np.int32)
        server.honest()
        server.said = head() + tensor(shape=(ROWS, 3)) + raw(b"")
        with pytest.raises(VoxeldError, match="has 0 bytes"):
            infer()
        server.said = head() + tensor(shape=(ROWS, 3)) + raw(bytes(36))
        with pytest.raises(VoxeldError,
                           match=r"the shape \[3, 3\], its array in outputs_in has \[3, 2\]"):
            infer()


@pytest.mark.parametrize("dtype,shape,sentence", [
    (np.int32, (ROWS, 2), "output 'out' is FP32, its array in outputs_in is int32"),
    (">f4", (ROWS, 2), "output 'out' is FP32, its array in outputs_in is >f4"),
    (np.float32, (ROWS - 1, 2), r"has the shape \[3, 2\], its array in outputs_in has \[2, 2\]"),
    (np.float32, (ROWS - 1, 3), r"has the shape \[3, 2\], its array in outputs_in has \[2, 3\]"),
    (np.float32, (ROWS * 2, 1), r"outputs_in has \[6, 1\]"),
    (np.float32, (ROWS * 2,), r"outputs_in has \[6\]"), (np.float32, (1, 1, 6), "has the shape")])
def test_an_array_that_an_output_cannot_go_to_is_a_value_error(server, dtype, shape, sentence):
    """Before the model runs; otherwise an output of another type that fits would go there."""
    async def later():
        async with AsyncClient(server.address) as client, client.region(4096) as region:
            await client.infer("sums", COORDS, FEATS,
                               outputs_in={"out": region.array(shape, dtype)})
    with Client(server.address) as client, client.region(4096) as region:
        with pytest.raises(ValueError, match=sentence):
            client.infer("sums", COORDS, FEATS, outputs_in={"out": region.array(shape, dtype)})
        with pytest.raises(ValueError, match=sentence):
            asyncio.run(later())
        assert server.inferences == 0
        # An array with more rows has room for a larger grid.
        out = region.array((ROWS + 5, 2), np.float32)
        answer = client.infer("sums", COORDS, FEATS, outputs_in={"out": out})
        np.testing.assert_array_equal(answer["out"], OUT)
        np.testing.assert_array_equal(out[:ROWS], OUT)


def test_a_model_that_has_changed_is_asked_again(server):
    with Client(server.address) as client, client.region(4096) as region:
        client.infer("sums", COORDS, FEATS, outputs_in={"out": region.array((ROWS, 2), "f4")})
        server.out = "FP32", 1
        server.said = head() + tensor(shape=(ROWS, 1)) + raw(OUT[:, :1].tobytes())
        out = region.array((ROWS, 1), "f4")
        client.infer("sums", COORDS, FEATS, outputs_in={"out": out})
        np.testing.assert_array_equal(out, OUT[:, :1])


@pytest.mark.parametrize("info", [b"\xff", b"\x0a\xff", b"\x0a\x05ab", wire.text(1, b"\xff\xfe"),
                                  wire.message(4, b"\xff"), wire.message(1, b"\x32\x01\xff")])
def test_every_method_refuses_damage(server, info):
    server.info = info
    async def later(name, *words):
        async with AsyncClient(server.address) as client:
            return await getattr(client, name)(*words)
    broken = 0
    with Client(server.address) as client:
        for name, words in (("server_live", ()), ("server_ready", ()), ("model_ready", ("a",)),
                            ("server_metadata", ()), ("model_metadata", ("a",)),
                            ("statistics", ())):
            for one in (lambda: getattr(client, name)(*words),
                        lambda: asyncio.run(later(name, *words))):
                try:
                    one()
                except VoxeldError:
                    broken += 1
    assert broken >= 2


def test_random_damage_is_an_answer_or_an_error(server):
    """20,000 damaged answers: each gives the right rows or a VoxeldError, and nothing else."""
    random = np.random.default_rng(5)
    good = bytearray(GOOD + wire.message(4, wire.text(1, "a") + wire.message(
        2, b"\x21" + struct.pack("<d", 0.5))))
    wanted = messages.wanted("sums", FEATS, {"id": "7", "outputs": ["out"]})
    taken = 0
    for _ in range(20000):
        work = bytearray(good)
        for at in random.integers(0, len(good), 1 + random.integers(4)):
            work[at] = random.integers(256)
        try:
            answer = messages.read_infer(bytes(work[:random.integers(len(work) + 1)]
                                               if random.integers(2) else work), wanted)
        except VoxeldError:
            continue
        taken += 1
        assert answer["out"].shape[0] == ROWS and answer.id == "7"
    assert taken > 0


@pytest.mark.parametrize("option,sentence", [
    ({"prioritee": 1}, "did you mean priority"), ({"nonsense": 1}, "'; Expected one of bf16"),
    ({"timout": 5}, "did you mean timeout\\? Expected one of bf16, coords_ref, id,"),
    ({"outputs": "out"}, "outputs: expected a list of str"),
    ({"id": 7}, "id: expected a str"), ({"parameters": {"a": None}}, "'a': expected a bool"),
    ({"parameters": {1: 2}}, "expected a str as name"), ({"parameters": [1]}, "expected a dict"),
    ({"queue_timeout_us": 0.5}, "queue_timeout_us: expected an integer, got 0.5"),
    ({"priority": "high"}, "priority: expected an integer, got 'high'"),
    ({"version": 1.0}, "version: expected an int or a str, got 1.0"),
    ({"version": False}, "version: expected an int or a str, got False"),
    ({"coords_ref": 5}, "coords_ref: expected a str"),
    ({"timing": "layer"}, "timing: expected True, False or \"layers\", got 'layer'"),
    ({"outputs_in": ["out"]}, "outputs_in: expected a dict, got list"),
    ({"outputs_in": {"out": None}}, "expected an array for 'out', got NoneType"),
])
def test_an_option_that_is_not_known_is_a_type_error(server, option, sentence):
    options = {"id": "7", **option}
    with Client(server.address) as client, pytest.raises(TypeError, match=sentence):
        client.infer("sums", COORDS, FEATS, **options)

    async def later():
        async with AsyncClient(server.address) as client:
            await client.infer("sums", COORDS, FEATS, **options)
    with pytest.raises(TypeError, match=sentence):
        asyncio.run(later())


@pytest.mark.parametrize("arguments,sentence", [
    ((COORDS.astype(np.uint32) + (1 << 31), FEATS), "fit 32 bits"),
    ((COORDS.astype(np.int64) << 32, FEATS), "fit 32 bits"),
    ((COORDS.astype(np.float64), FEATS), "expected integers, got float64"),
    ((COORDS[:, :2], FEATS), "the sample, then three axes"),
    ((COORDS, FEATS.astype(np.float64)), "got float64"),
    ((np.ma.array(COORDS, mask=COORDS == 5), FEATS), "coords: expected an array without masked"),
    ((COORDS, np.ma.array(FEATS, mask=FEATS == 1)), "feats: expected an array without masked"),
    ((COORDS, None), "feats: expected an array, got None"),
    ((COORDS, [[1.0]] * 3), "got float64"), ((COORDS, FEATS[:, 0]), r"\[N, C\], got \[3\]"),
])
def test_arrays_that_cannot_be_sent_are_value_errors(server, arguments, sentence):
    with Client(server.address) as client, pytest.raises(ValueError, match=sentence):
        client.infer("sums", *arguments)
    with Client(server.address) as client, pytest.raises(ValueError, match="float32 with bf16"):
        client.infer("sums", COORDS, FEATS.astype(np.int64), bf16=True)
    with Client(server.address) as client:
        for option in ("priority", "queue_timeout_us"):
            for value in (-1, 10 ** 30):
                with pytest.raises(ValueError, match=f"{option}: expected 0 to"):
                    client.infer("sums", COORDS, FEATS, **{option: value})
        for version in (0, -1, np.int64(0)):
            with pytest.raises(ValueError, match="version: expected 1 or more, or None for the"):
                client.infer("sums", COORDS, FEATS, version=version)
            with pytest.raises(ValueError, match="version: expected 1 or more"):
                client.model_ready("sums", version)
        with pytest.raises(TypeError, match="region: expected a whole number of bytes, got 10.5"):
            client.region(10.5)
        for size in (1 << 60, 1 << 70):
            with pytest.raises(OSError, match=f"region: expected {size} bytes .* /dev/shm has"):
                client.region(size)


def test_arrays_are_sent_as_they_are_meant(server):
    """For any memory layout and either byte order the same bytes are sent."""
    good = messages.pack_infer("sums", COORDS, FEATS * np.float32(0.1), {})
    feats = FEATS * np.float32(0.1)
    for coords in (COORDS.tolist(), np.asfortranarray(COORDS), COORDS.astype(">i8"),
                   np.repeat(COORDS, 2, 0)[::2], COORDS.astype(np.uint8)):
        for other in (feats.astype(">f4"), np.repeat(feats, 2, 1)[:, ::2]):
            assert messages.pack_infer("sums", coords, other, {}) == good


@pytest.mark.parametrize("address", [
    "localhost", "", "http://127.0.0.1:8001", "https://a:1", "grpc://x:1", ":8001", "[]:8001",
    "::1:8001", "a:0", "a:65536", "a:73537", "a:-1", "a:", "a:8001/", "dns:///a:73537", "unix:"])
def test_an_address_that_no_server_has_is_a_value_error(address):
    for kind in (Client, AsyncClient):
        with pytest.raises(ValueError, match="address: expected host:port"):
            kind(address)


@pytest.mark.parametrize("address", [
    "localhost:1", "127.0.0.1:65535", "[::1]:8001", "unix:/a/b:c", "dns:///a:1",
    "ipv4:127.0.0.1:1"])
def test_an_address_is_taken(address):
    Client(address).close()


def test_a_version_is_the_same_however_many_zeros_it_has(server):
    with Client(server.address) as client:
        assert client.infer("sums", COORDS, FEATS, version="01", id="7")["out"].shape == OUT.shape
        for other in ("10", "01x", "2"):
            with pytest.raises(VoxeldError, match=f"the request is for version {other},"):
                client.infer("sums", COORDS, FEATS, version=other, id="7")


def test_parameters_of_numpy_are_what_they_are():
    """A NumPy number is a number, not its text."""
    def value(one):
        data = messages.pack_infer("m", COORDS, FEATS, {"parameters": {"a": one}})
        entry = dict(wire.fields(dict(wire.fields(data))[4]))
        return dict(wire.fields(entry[2]))
    assert value(np.int64(-3)) == {2: (1 << 64) - 3} and value(np.bool_(True)) == {1: 1}
    assert value(np.float32(0.5)) == {4: struct.pack("<d", 0.5)}
    assert value(1 << 63) == {5: 1 << 63} and bytes(value("x")[3]) == b"x"
    with pytest.raises(ValueError, match="64 bits"):
        value(1 << 64)
