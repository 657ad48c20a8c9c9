# SPDX-License-Identifier: Apache-2.0
"""Good requests: every way to send a grid gets the same right answer."""
import asyncio
import json
import subprocess
import os

import grpc
import numpy as np
import pytest

from model_files import random_grid
from voxeld import AsyncClient, Client, messages
from voxeld_process import PATIENCE

# fp32 sums of at most 27 * 8 + 9 terms, each product of order 1: 225 terms * 2^-24 * |terms| ~ 2e-5
# relative to outputs of order 1 to 10; OpenBLAS may sum in any order.
TOLERANCE = 2e-4


def close(got, expected, tolerance=TOLERANCE):
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("n", [1, 2, 63, 257, 1500])
def test_answers_are_right(client, model, n):
    coords, feats = random_grid(n, n, samples=1 + n % 3)
    answer = client.infer("conv", coords, feats, id=f"request-{n}")
    assert answer["out"].shape == (n, model.co) and answer["out"].dtype == np.float32
    assert (answer.model_name, answer.model_version, answer.id) == ("conv", "1", f"request-{n}")
    close(answer["out"], model.answer(coords, feats))


def test_no_voxels_is_an_answer_with_no_rows(client, model):
    empty = np.zeros((0, 4), np.int32), np.zeros((0, model.ci), np.float32)
    assert client.infer("conv", *empty)["out"].shape == (0, model.co)


def test_three_columns_mean_sample_zero(client, model):
    coords, feats = random_grid(5, 100)
    four = client.infer("conv", coords, feats)["out"]
    three = client.infer("conv", coords[:, 1:], feats)["out"]
    assert np.array_equal(four, three)
    close(three, model.answer(coords, feats))


def test_rows_come_back_in_the_order_they_were_sent(client):
    coords, feats = random_grid(6, 300)
    order = np.random.default_rng(7).permutation(len(coords))
    straight = client.infer("conv", coords, feats)["out"]
    shuffled = client.infer("conv", coords[order], feats[order])["out"]
    assert np.array_equal(straight[order], shuffled)


def test_half_precision_inputs(client, model):
    coords, feats = random_grid(8, 200)
    half = feats.astype(np.float16)
    close(client.infer("conv", coords, half)["out"],
          model.answer(coords, half.astype(np.float64)))
    brain = client.infer("conv", coords, feats, bf16=True)["out"]
    # bfloat16 keeps 8 bits: 2^-9 relative per input, 108 products of it in a sum.
    close(brain, model.answer(coords, feats), tolerance=0.1)


def test_nan_passes_through_to_its_neighbours_only(client, model):
    coords = np.array([[0, 0, 0, 0], [0, 0, 0, 1], [0, 50, 50, 50]], np.int32)
    feats = np.ones((3, model.ci), np.float32)
    feats[0, 0] = np.nan
    out = client.infer("conv", coords, feats)["out"]
    far = model.answer(coords[2:], feats[2:])
    # relu of NaN is NaN, as in PyTorch: a client sees the NaN that it sent.
    assert np.isnan(out[0]).all() and np.isnan(out[1]).all()
    close(out[2:], far)


def test_timing_is_said_when_asked(client):
    coords, feats = random_grid(9, 500)
    assert client.infer("conv", coords, feats).parameters == {}
    first = client.infer("conv", coords, feats, timing=True).parameters
    assert first["device"] == "cpu:0" and first["batch_size"] == 1
    assert first["batch_voxels"] == 500
    assert first["total_ns"] >= first["compute_ns"] + first["queue_ns"] > 0
    assert first["geometry_hit"] is True  # an earlier request had the same coordinates


def test_named_outputs_and_version(client):
    coords, feats = random_grid(10, 20)
    answer = client.infer("conv", coords, feats, outputs=["out"], version=1)
    assert list(answer) == ["out"]


def test_custom_parameters_and_priority_are_taken(client):
    coords, feats = random_grid(11, 20)
    client.infer("conv", coords, feats, priority=1, queue_timeout_us=30_000_000,
                 parameters={"scene": "street", "frame": 7,
                             "triton_enable_empty_final_response": False})


def test_asyncio_client(daemon, model):
    async def run():
        async with AsyncClient(daemon.grpc) as client:
            assert await client.server_ready() and await client.model_ready("conv")
            grids = [random_grid(20 + i, 50 + 10 * i) for i in range(8)]
            answers = await asyncio.gather(*(client.infer("conv", c, f) for c, f in grids))
            for (coords, feats), answer in zip(grids, answers):
                close(answer["out"], model.answer(coords, feats))
    asyncio.run(run())


def test_typed_contents_as_grpcurl_sends_them(daemon, model):
    """int_contents and fp32_contents instead of raw bytes."""
    import struct
    from voxeld import wire
    coords, feats = random_grid(12, 9)

    def tensor(name, datatype, array, contents):
        dims = b"".join(wire.varint(d) for d in array.shape)
        return wire.message(5, wire.text(1, name) + wire.text(2, datatype) + wire.text(3, dims)
                            + wire.message(5, contents))
    ints = wire.text(2, b"".join(wire.varint(int(v)) for v in coords.reshape(-1)))
    floats = wire.text(6, struct.pack(f"<{feats.size}f", *feats.reshape(-1)))
    request = (wire.text(1, "conv") + tensor("coords", "INT32", coords, ints)
               + tensor("feats", "FP32", feats, floats))
    with grpc.insecure_channel(daemon.grpc) as channel:
        reply = channel.unary_unary(messages.SERVICE + "ModelInfer")(request, timeout=PATIENCE)
    close(messages.read_infer(reply)["out"], model.answer(coords, feats))


def test_the_command_line_gets_the_same_answer(daemon, client, tmp_path):
    coords, feats = random_grid(13, 400)
    np.savez(tmp_path / "grid.npz", coords=coords, feats=feats)
    np.savez_compressed(tmp_path / "packed.npz", coords=coords, feats=feats)
    expected = client.infer("conv", coords, feats)["out"]
    for name in ("grid", "packed"):
        out = tmp_path / f"{name}-out.npy"
        done = subprocess.run([os.environ["VOXEL"], "infer", "--server", daemon.grpc, "--model",
                               "conv", str(tmp_path / f"{name}.npz"), "-o", str(out)],
                              capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr
        assert np.array_equal(np.load(out), expected)


def test_command_line_models_and_status(daemon):
    for words in (["models"], ["status"]):
        done = subprocess.run([os.environ["VOXEL"], *words, "--server", daemon.grpc],
                              capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "conv" in done.stdout or words == ["status"]


def test_same_geometry_is_built_once(daemon, client):
    coords, feats = random_grid(14, 3000)
    before = daemon.metrics()
    for _ in range(5):
        client.infer("conv", coords, feats)
    after = daemon.metrics()

    def grew(what):
        key = f'voxeld_model_geometry_{what}_total{{model="conv",version="1"}}'
        return after[key] - before[key]
    assert grew("misses") == 1 and grew("hits") == 4


@pytest.mark.parametrize("given, kind, sentence", [
    ([("Traceparent", "x")], ValueError, "expected a key of a to z in lower case, .*Traceparent"),
    ([("", "x")], ValueError, "expected a key of a to z"),
    ([("a", "x\n")], ValueError, "expected printable ASCII for 'a'"),
    ([("a", b"\xff")], ValueError, "expected printable ASCII for 'a'"),
    ({"a": 1}, TypeError, "expected a str for 'a', got int"),
    ({"a-bin": "x"}, TypeError, "expected bytes for 'a-bin', got str"),
    (["ab"], TypeError, "expected a dict, or pairs of a key and its value, got 'ab'"),
    ([("a",)], TypeError, "expected a dict, or pairs"), ("ab", TypeError, "expected a dict"),
    ([(1, "a")], TypeError, "expected a dict, or pairs"), (5, TypeError, "expected a dict")])
def test_metadata_that_grpc_would_refuse(client, given, kind, sentence):
    """gRPC fails such a call by Internal, as if the server had failed, or by words of Python's."""
    with pytest.raises(kind, match=f"metadata: {sentence}"):
        client.infer("conv", *random_grid(1, 5), metadata=given)


@pytest.mark.parametrize("timeout", [-1, 0, 0.0])
def test_a_timeout_that_leaves_no_time_is_refused(client, timeout):
    with pytest.raises(ValueError, match=f"timeout: expected more than 0 seconds, or None for no "
                                         f"limit, got {timeout}; 0 leaves no time"):
        client.infer("conv", *random_grid(1, 5), timeout=timeout)


def test_a_client_that_is_closed_says_so(daemon):
    one = Client(daemon.grpc)
    assert one.server_live()
    one.close()
    with pytest.raises(ValueError, match="this client is closed"):
        one.server_live()

    async def later():
        async with AsyncClient(daemon.grpc) as other:
            assert await other.server_live()
        await other.server_live()
    with pytest.raises(ValueError, match="this client is closed"):
        asyncio.run(later())


@pytest.mark.parametrize("timeout", [None, 60, np.float32(60), 1e10, float("inf")])
def test_a_timeout_without_an_end_is_none(daemon, client, timeout):
    """gRPC would end a call with so large a number at once."""
    assert client.server_live(timeout=timeout)

    async def later():
        async with AsyncClient(daemon.grpc) as one:
            return await one.server_live(timeout=timeout)
    assert asyncio.run(later())


@pytest.mark.parametrize("timeout, kind, got", [("1", TypeError, "'1'"), (True, TypeError, "True"),
                                                (float("nan"), ValueError, "nan")])
def test_a_timeout_that_is_no_number_is_refused(daemon, client, timeout, kind, got):
    sentence = f"timeout: expected seconds as a number, or None, got {got}"
    with pytest.raises(kind, match=sentence):
        client.infer("conv", *random_grid(1, 5), timeout=timeout)

    async def later():
        async with AsyncClient(daemon.grpc) as one:
            await one.infer("conv", *random_grid(1, 5), timeout=timeout)
    with pytest.raises(kind, match=sentence):
        asyncio.run(later())
