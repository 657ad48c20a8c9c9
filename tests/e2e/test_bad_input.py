# SPDX-License-Identifier: Apache-2.0
"""Every bad request gets a status and a sentence that says what was expected and what arrived, and
the next good request works."""
import socket
import struct
import time

import grpc
import numpy as np
import pytest

import voxeld
from model_files import random_grid
from voxeld import messages, wire
from voxeld_process import PATIENCE

COORDS = np.array([[0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], np.int32)
FEATS = np.ones((3, 4), np.float32)


@pytest.fixture(autouse=True)
def next_good_request_works(client, model):
    yield
    answer = client.infer("conv", COORDS, FEATS, timeout=PATIENCE)["out"]
    np.testing.assert_allclose(answer, model.answer(COORDS, FEATS), rtol=2e-4, atol=2e-4)


def tensor(name, datatype, shape):
    dims = b"".join(wire.varint(d) for d in shape)
    return wire.message(5, wire.text(1, name) + wire.text(2, datatype) + wire.text(3, dims))


def raw(data):
    return wire.message(7, data)


def request(*parts, model="conv", version=""):
    return wire.text(1, model) + wire.text(2, version) + b"".join(parts)


def send(daemon, data, timeout=PATIENCE):
    with grpc.insecure_channel(daemon.grpc, voxeld.client.CHANNEL_OPTIONS) as channel:
        return channel.unary_unary(messages.SERVICE + "ModelInfer")(data, timeout=timeout)


def parameter(field, key, kind, value):
    """An entry of a parameter map; kind: the field number of the oneof member."""
    value = wire.text(kind, value) if isinstance(value, str) else wire.number(
        kind, value % (1 << 64))
    return wire.message(field, wire.text(1, key) + wire.message(2, value))


def in_region(name, datatype, shape, *parameters):
    """An input with parameters of shared memory."""
    body = wire.text(1, name) + wire.text(2, datatype) + wire.text(
        3, b"".join(wire.varint(d) for d in shape))
    return wire.message(5, body + b"".join(parameter(4, *p) for p in parameters))


def output(*parameters):
    return wire.message(6, wire.text(1, "out") + b"".join(parameter(2, *p) for p in parameters))


C, F = tensor("coords", "INT32", (3, 4)), tensor("feats", "FP32", (3, 4))
CB, FB = COORDS.tobytes(), FEATS.tobytes()
GOOD = C + F + raw(CB) + raw(FB)
INVALID = "INVALID_ARGUMENT"
BOOL, INT, TEXT, UINT = 1, 2, 3, 5  # oneof members of a parameter
REGION, BYTES = ("shared_memory_region", TEXT, "r"), ("shared_memory_byte_size", INT, 48)

CASES = {
    "unknown model": (request(C, F, raw(CB), raw(FB), model="nope"), "NOT_FOUND",
                      "Request for unknown model: 'nope' is not found"),
    "unknown version": (request(C, F, raw(CB), raw(FB), version="7"), "NOT_FOUND", "version 7"),
    "version that is no number": (request(C, F, raw(CB), raw(FB), version="latest"), INVALID,
                                  "failed to get model version from specified version string"),
    "no model name": (request(C, F, raw(CB), raw(FB), model=""), INVALID, "model_name"),
    "coords of the wrong type": (request(tensor("coords", "INT64", (3, 4)), F, raw(bytes(96)),
                                         raw(FB)), INVALID, "expected datatype INT32, got INT64"),
    "feats of the wrong type": (request(C, tensor("feats", "FP64", (3, 4)), raw(CB),
                                        raw(bytes(96))), INVALID,
                                "expected datatype FP32, FP16 or BF16, got FP64"),
    "a type nobody knows": (request(C, tensor("feats", "FP12", (3, 4)), raw(CB), raw(FB)), INVALID,
                            "FP12"),
    "coords of rank 1": (request(tensor("coords", "INT32", (12,)), F, raw(CB), raw(FB)), INVALID,
                         "expected shape [N,4]"),
    "coords with 5 columns": (request(tensor("coords", "INT32", (3, 5)), F, raw(bytes(60)),
                                      raw(FB)), INVALID, "got [3,5]"),
    "feats with 5 channels": (request(C, tensor("feats", "FP32", (3, 5)), raw(CB),
                                      raw(bytes(60))), INVALID, "expected shape [N,4], got [3,5]"),
    "too few bytes": (request(C, F, raw(CB), raw(FB[:-4])), INVALID, "expected 48, got 44"),
    "too many bytes": (request(C, F, raw(CB), raw(FB + b"abcd")), INVALID, "expected 48, got 52"),
    "a product that overflows": (request(tensor("coords", "INT32", (1 << 62, 4)), F, raw(CB),
                                         raw(FB)), INVALID, "coords"),
    "a negative dimension": (request(tensor("coords", "INT32", (-1, 4)), F, raw(CB), raw(FB)),
                             INVALID, "-1"),
    "N of coords and feats differ": (request(C, tensor("feats", "FP32", (2, 4)), raw(CB),
                                             raw(FB[:32])), INVALID, "got 3 and 2"),
    "a missing input": (request(C, raw(CB)), INVALID, "input 'feats' is missing"),
    "an unknown input": (request(C, F, tensor("extra", "FP32", (1,)), raw(CB), raw(FB),
                                 raw(b"abcd")), INVALID, "unexpected inference input 'extra'"),
    "the same input twice": (request(C, C, F, raw(CB), raw(CB), raw(FB)), INVALID, "coords"),
    "an unknown output": (request(C, F, wire.message(6, wire.text(1, "nope")), raw(CB), raw(FB)),
                          INVALID, "unexpected inference output 'nope'"),
    "a raw entry too few": (request(C, F, raw(CB)), INVALID, "raw_input_contents"),
    "a raw entry too many": (request(C, F, raw(CB), raw(FB), raw(FB)), INVALID,
                             "raw_input_contents"),
    "raw and typed mixed": (request(
        wire.message(5, wire.text(1, "coords") + wire.text(2, "INT32")
                     + wire.text(3, bytes([3, 4])) + wire.message(5, wire.text(2, bytes(12)))),
        F, raw(CB), raw(FB)), INVALID, "contents field must not be specified"),
    "shared memory, and it is off": (request(in_region("coords", "INT32", (3, 4), REGION, BYTES), F,
                                             raw(FB)), "UNIMPLEMENTED", "shared memory is not"),
    "an output in shared memory, and it is off": (
        request(GOOD, output(REGION, ("shared_memory_byte_size", INT, 36))), "UNIMPLEMENTED",
        "shared memory is not"),
    "a region without its bytes": (
        request(in_region("coords", "INT32", (3, 4), REGION), F, raw(FB)), INVALID,
        "'shared_memory_byte_size' must be specified along with 'shared_memory_region'"),
    "bytes without their region": (
        request(in_region("coords", "INT32", (3, 4), BYTES), F, raw(CB), raw(FB)), INVALID,
        "'shared_memory_byte_size' can not be specified without 'shared_memory_region'"),
    "a region of another size than its tensor": (
        request(in_region("coords", "INT32", (3, 4), REGION, ("shared_memory_byte_size", INT, 47)),
                F, raw(FB)), INVALID,
        "input byte size mismatch for input 'coords', expected 48, got 47"),
    "a negative offset": (
        request(in_region("coords", "INT32", (3, 4), REGION, BYTES,
                          ("shared_memory_offset", INT, -1)), F, raw(FB)), INVALID, "got -1"),
    "a region whose name is a number": (
        request(in_region("coords", "INT32", (3, 4), ("shared_memory_region", INT, 1), BYTES), F,
                raw(FB)), INVALID, "expected string_param, got int64_param"),
    "a raw entry for an input in a region": (
        request(in_region("coords", "INT32", (3, 4), REGION, BYTES), F, raw(CB), raw(FB)), INVALID,
        "expected 1 entries in raw_input_contents"),
    "classification": (request(GOOD, output(("classification", INT, 3))), INVALID,
                       "classification is not supported"),
    "classification into a region": (request(GOOD, output(("classification", INT, 3), REGION)),
                                     INVALID, "has both 'shared_memory_region' and"),
    "a priority that is a text": (request(parameter(4, "priority", TEXT, "1"), GOOD), INVALID,
                                  "expected int64_param or uint64_param, got string_param"),
    "a priority below 0": (request(parameter(4, "priority", INT, -1), GOOD), INVALID, "got -1"),
    "a timeout that is a bool": (request(parameter(4, "timeout", BOOL, 1), GOOD), INVALID,
                                 "got bool_param"),
    "a sequence_start that is a number": (request(parameter(4, "sequence_start", INT, 1), GOOD),
                                          INVALID, "expected bool_param, got int64_param"),
    "a key of one's own as uint64": (request(parameter(4, "mine", UINT, 1), GOOD), INVALID,
                                     "got uint64_param"),
    "timing that is a number": (request(parameter(4, "timing", INT, 1), GOOD), INVALID,
                                "expected bool_param"),
    "a reserved parameter": (request(
        wire.message(4, wire.text(1, "triton_magic") + wire.message(2, wire.number(1, 1))),
        C, F, raw(CB), raw(FB)), INVALID, "triton_magic"),
    "truncated protobuf": (request(C, F, raw(CB), raw(FB))[:-7], INVALID, ""),
    "an empty message": (b"", INVALID, ""),
}
VERSIONS = ["1.5", "v1", "-1", "0", " 1", "1 ", "+1", "0x1", "9223372036854775808",
            "99999999999999999999", "\u0661"]
CASES.update({f"version {v!r}": (request(GOOD, version=v), INVALID,
                                 f"failed to get model version from specified version string '{v}'")
              for v in VERSIONS})


@pytest.mark.parametrize("name", CASES)
def test_refused_with_a_sentence(daemon, name):
    data, code, sentence = CASES[name]
    with pytest.raises(grpc.RpcError) as caught:
        send(daemon, data)
    assert caught.value.code().name == code, caught.value.details()
    assert sentence in caught.value.details(), caught.value.details()
    assert len(caught.value.details()) > 10


@pytest.mark.parametrize("parameters", [
    [("priority", UINT, (1 << 64) - 1)], [("priority", UINT, 3)], [("priority", INT, 0)],
    [("timeout", INT, 1 << 40)], [("sequence_id", INT, 7), ("sequence_start", BOOL, 1)],
    [("sequence_id", TEXT, "a"), ("sequence_end", BOOL, 1)],
    [("triton_enable_empty_final_response", BOOL, 0)],
    [("mine", TEXT, "x"), ("other", INT, -1), ("third", BOOL, 1), ("headers", TEXT, "y")]])
def test_what_stock_clients_may_add_is_fine(daemon, parameters):
    """A stateless model accepts a correlation id and ignores it, as Triton does."""
    assert send(daemon, request(*(parameter(4, *p) for p in parameters), GOOD))


def refused(client, coords, feats, kind, *sentences):
    with pytest.raises(kind) as caught:
        client.infer("conv", coords, feats, timeout=PATIENCE)
    for sentence in sentences:
        assert sentence in caught.value.message, caught.value.message


def test_duplicate_coordinates_name_the_first_pair_of_rows(client):
    coords, feats = random_grid(1, 2000)
    coords[1500] = coords[3]
    coords[1700] = coords[2]
    refused(client, coords, feats, voxeld.InvalidArgument, "rows 3 and 1500")


def test_equal_coordinates_in_two_samples_are_two_voxels(client):
    coords = np.array([[0, 1, 2, 3], [1, 1, 2, 3]], np.int32)
    assert client.infer("conv", coords, FEATS[:2])["out"].shape == (2, 3)


@pytest.mark.parametrize("column, value", [(1, 1 << 17), (2, -(1 << 17) - 1), (3, 2**31 - 1),
                                           (0, -1), (0, 512)])
def test_coordinates_out_of_range_name_row_and_value(client, column, value):
    coords = COORDS.copy()
    coords[1, column] = value
    refused(client, coords, FEATS, voxeld.InvalidArgument, "row 1", str(value))


def test_coordinates_at_the_limits_are_fine(client, model):
    low, high = -(1 << 17), (1 << 17) - 1
    coords = np.array([[511, low, low, low], [0, high, high, high], [511, high, low, high]],
                      np.int32)
    out = client.infer("conv", coords, FEATS)["out"]
    np.testing.assert_allclose(out, model.answer(coords, FEATS), rtol=2e-4, atol=2e-4)


def test_more_voxels_than_the_model_serves(client):
    n = 200001
    coords = np.zeros((n, 4), np.int32)
    coords[:, 1] = np.arange(n) % 1000
    coords[:, 2] = np.arange(n) // 1000
    refused(client, coords, np.zeros((n, 4), np.float16), voxeld.ResourceExhausted, "200000",
            "200001")


def test_a_message_over_the_limit_is_refused_unread(client):
    feats = np.zeros((600000, 4), np.float32)
    refused(client, np.zeros((600000, 4), np.int32), feats, voxeld.ResourceExhausted, "8388608")


def h2_frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(
        ">I", stream) + payload


def h2_string(text):
    return bytes([len(text)]) + text


def h2_headers(*more):
    """ModelInfer's HEADERS, as literals without an index: :method POST, :scheme http, :path, ..."""
    headers = b"\x83\x86" + b"\x04" + h2_string(b"/inference.GRPCInferenceService/ModelInfer")
    for name, value in ((b":authority", b"test"), (b"content-type", b"application/grpc"),
                        (b"te", b"trailers"), *more):
        headers += b"\x00" + h2_string(name) + h2_string(value)
    return h2_frame(1, 4, 1, headers)


def h2_connect(daemon):
    host, port = daemon.grpc.rsplit(":", 1)
    peer = socket.create_connection((host, int(port)), timeout=PATIENCE)
    peer.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + h2_frame(4, 0, 0, b""))
    return peer


def test_a_deadline_already_past(daemon):
    """HTTP/2 by hand, since gRPC's own clients do not even send such a request."""
    with h2_connect(daemon) as peer:
        peer.sendall(h2_headers((b"grpc-timeout", b"1n")))
        seen = b""
        while b"grpc-status" not in seen:
            got = peer.recv(65536)
            assert got, f"the server hung up after {seen!r}"
            seen += got
    after = seen[seen.index(b"grpc-status") + len(b"grpc-status"):]
    assert after[:2] == b"\x014", seen  # DEADLINE_EXCEEDED


def test_a_client_that_vanishes_in_mid_message(daemon):
    """HTTP/2 by hand: announces 1 MB, sends a part of it, and disconnects."""
    for abrupt in (False, True):
        for _ in range(5):
            with h2_connect(daemon) as peer:
                peer.sendall(h2_headers())
                body = struct.pack(">BI", 0, 1 << 20) + request(C, F) + bytes(5000)
                peer.sendall(h2_frame(0, 0, 1, body))
                time.sleep(0.02)  # sleep: the part may have arrived by then, or not
                if abrupt:  # reset instead of an orderly end
                    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    daemon.wait_for("the calls' end", lambda: daemon.metrics()["voxeld_calls_in_flight"] == 0)
    assert daemon.metrics()["voxeld_arena_used_bytes"] == 0


def test_cancelled_requests_leave_nothing_behind(daemon):
    coords, feats = random_grid(4, 60000)
    data = messages.pack_infer("conv", coords, feats, {})
    with grpc.insecure_channel(daemon.grpc, voxeld.client.CHANNEL_OPTIONS) as channel:
        infer = channel.unary_unary(messages.SERVICE + "ModelInfer")
        calls = [infer.future(data, timeout=PATIENCE) for _ in range(12)]
        for i, call in enumerate(calls):
            time.sleep(0.003 * i)  # sleep: at random
            call.cancel()
    daemon.wait_for("the calls' end", lambda: daemon.metrics()["voxeld_calls_in_flight"] == 0)
    daemon.wait_for("empty arena", lambda: daemon.metrics()["voxeld_arena_used_bytes"] == 0)


def test_compressed_requests_are_refused(daemon):
    """gRPC decompresses a body before it checks the size: a small bomb would fill the memory."""
    data = messages.pack_infer("conv", COORDS, FEATS, {})
    with grpc.insecure_channel(daemon.grpc, compression=grpc.Compression.Gzip) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            channel.unary_unary(messages.SERVICE + "ModelInfer")(data, timeout=PATIENCE)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "gzip" in caught.value.details()
