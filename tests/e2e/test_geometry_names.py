# SPDX-License-Identifier: Apache-2.0
"""coords_ref in every client, and the checks of the load generator, against a small server that
names coords, and that forgets names or answers wrong when told to."""
import asyncio
import concurrent.futures
import hashlib
import json
import os
import pathlib
import subprocess
import threading

import grpc
import numpy as np
import pytest

import voxeld
from voxeld import AsyncClient, Client, messages, wire
from voxeld.geometry import NAMES_MAX, Names
from voxeld_process import PATIENCE

COORDS = np.array([[0, 1, 2, 3], [0, 1, 2, 4], [0, 5, 5, 5]], np.int32)
FEATS = np.array([[1], [2], [3]], np.float32)
SUMS = np.array([[7], [9], [18]], np.float32)
BENCH_LOAD = pathlib.Path(os.environ.get("VX_BIN", "")) / "bench_load"


def entry(data):
    """Key and text of a parameter; the text is None when the value is not a string."""
    fields = dict(wire.fields(data))
    text = dict(wire.fields(fields[2])).get(3)
    return bytes(fields[1]).decode(), None if text is None else bytes(text).decode()


class NamingServer:
    """Answers out = sum of the row's coords + feats[:, 0], and names coords as voxeld does."""

    def __init__(self):
        self.known, self.seen = {}, []  # seen: (whether coords arrived, coords_ref) of each request
        self.lie_at, self.refuse_at = None, None
        self.lock = threading.Lock()
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        serve = grpc.unary_unary_rpc_method_handler
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
            "inference.GRPCInferenceService", {"ModelInfer": serve(self._infer),
                                               "ModelMetadata": serve(self._metadata)}),))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"

    def __enter__(self):
        self._server.start()
        return self

    def __exit__(self, *exc):
        self._server.stop(None).wait()

    def _metadata(self, request, context):
        def tensor(name, datatype, columns):
            dims = wire.varint((1 << 64) - 1) + wire.varint(columns)
            return wire.text(1, name) + wire.text(2, datatype) + wire.text(3, dims)
        return (wire.text(1, "sums") + wire.text(2, "1")
                + wire.message(4, tensor("coords", "INT32", 4))
                + wire.message(4, tensor("feats", "FP32", 1))
                + wire.message(5, tensor("out", "FP32", 1)))

    def _infer(self, request, context):
        ref, names, types, raws = None, [], [], []
        for number, value in wire.fields(request):
            if number == 4 and entry(value)[0] == "coords_ref":
                ref = entry(value)[1]
            elif number == 5:
                fields = dict(wire.fields(value))
                names.append(bytes(fields[1]).decode())
                types.append({"FP16": "<f2", "FP32": "<f4"}.get(bytes(fields[2]).decode()))
            elif number == 7:
                raws.append(bytes(value))
        with self.lock:
            self.seen.append(("coords" in names, ref))
            number = len(self.seen)
        if number == self.refuse_at:
            context.abort(grpc.StatusCode.INTERNAL, "told to")
        if ref:
            if ref not in self.known:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION,
                              f"coords_ref '{ref}' is not known here: send coords")
            coords = self.known[ref]
        else:
            coords = np.frombuffer(raws[names.index("coords")], "<i4").reshape(-1, 4)
        at = names.index("feats")
        feats = np.frombuffer(raws[at], types[at]).astype(np.float32)
        rows = len(coords)
        feats = feats.reshape(rows, -1)[:, :1] if rows else feats.reshape(0, 1)
        out = coords.sum(axis=1, keepdims=True).astype(np.float32) + feats
        if number == self.lie_at:
            out += 1
        name = hashlib.md5(coords.tobytes()).hexdigest()
        parameters = b""
        if ref is not None:
            self.known[name] = coords
            parameters = wire.message(4, wire.text(1, "coords_ref")
                                      + wire.message(2, wire.message(3, name.encode())))
        dims = wire.varint(rows) + wire.varint(1)
        return (wire.text(1, "sums") + wire.text(2, "1") + parameters
                + wire.message(5, wire.text(1, "out") + wire.text(2, "FP32") + wire.text(3, dims))
                + wire.message(6, out.astype("<f4").tobytes()))


@pytest.fixture
def server():
    with NamingServer() as one:
        yield one


def test_python_names_uses_and_resends(server):
    with Client(server.address) as client:
        first = client.infer("sums", COORDS, FEATS, coords_ref="", timeout=PATIENCE)
        name = first.coords_ref
        assert name in server.known
        again = client.infer("sums", None, FEATS + 1, coords_ref=name, timeout=PATIENCE)
        np.testing.assert_array_equal(again["out"], SUMS + 1)
        assert server.seen == [(True, ""), (False, name)]
        server.known.clear()
        with pytest.raises(voxeld.FailedPrecondition):
            client.infer("sums", None, FEATS, coords_ref=name, timeout=PATIENCE)
        answer = client.infer("sums", COORDS, FEATS, coords_ref=name, resend=True, timeout=PATIENCE)
        np.testing.assert_array_equal(answer["out"], SUMS)
        assert answer.coords_ref == name and server.seen[-2:] == [(False, name), (True, "")]
        assert client.infer("sums", COORDS, FEATS, timeout=PATIENCE).coords_ref == ""


def test_python_async_resends(server):
    async def run():
        async with AsyncClient(server.address) as client:
            answer = await client.infer("sums", COORDS, FEATS, coords_ref="", resend=True)
            server.known.clear()
            return await client.infer("sums", COORDS, FEATS, coords_ref=answer.coords_ref,
                                      resend=True)
    np.testing.assert_array_equal(asyncio.run(run())["out"], SUMS)
    assert [came for came, _ in server.seen] == [True, False, True]


@pytest.mark.parametrize("coords, options", [
    (None, {}), (None, {"coords_ref": ""}), (COORDS, {"coords_ref": "0" * 32}),
    (COORDS, {"resend": True}), (None, {"coords_ref": "0" * 32, "resend": True})])
def test_python_refuses_what_cannot_be_meant(server, coords, options):
    with Client(server.address) as client, pytest.raises(ValueError):
        client.infer("sums", coords, FEATS, **options)
    assert server.seen == []


# Other coordinates with as many rows; a client that trusts the name would not notice.
OTHERS = {"another order": COORDS[::-1], "other axes": COORDS[:, [0, 3, 2, 1]],
          "one voxel": COORDS + (np.arange(12) == 11).reshape(3, 4)}


@pytest.mark.parametrize("other", OTHERS)
def test_python_answers_of_the_coords_whatever_the_name(server, other):
    coords = OTHERS[other].astype(np.int32)
    sums = coords.sum(axis=1, keepdims=True) + FEATS

    async def later(name):
        async with AsyncClient(server.address) as client:
            await client.infer("sums", COORDS, FEATS, coords_ref="")
            return await client.infer("sums", coords, FEATS, coords_ref=name, resend=True)
    with Client(server.address) as client:
        name = client.infer("sums", COORDS, FEATS, coords_ref="", timeout=PATIENCE).coords_ref
        answer = client.infer("sums", coords, FEATS, coords_ref=name, resend=True,
                              timeout=PATIENCE)
        np.testing.assert_array_equal(answer["out"], sums)
        # Each has its own name now and need not be sent again; the dtype here does not matter.
        for grid, ref in ((COORDS, name), (coords.astype(np.int64), answer.coords_ref)):
            client.infer("sums", grid, FEATS, coords_ref=ref, resend=True, timeout=PATIENCE)
            assert server.seen[-1] == (False, ref)
    np.testing.assert_array_equal(asyncio.run(later(name))["out"], sums)
    # A new client does not know that the name belongs to these coords.
    with Client(server.address) as client:
        answer = client.infer("sums", coords, FEATS, coords_ref=name, resend=True,
                              timeout=PATIENCE)
        np.testing.assert_array_equal(answer["out"], sums)
        assert server.seen[-1] == (True, "")


def test_python_keeps_so_many_names():
    names = Names()
    for i in range(NAMES_MAX + 1):
        names.learn(str(i), COORDS)
    assert not names.stands_for("0", COORDS) and names.stands_for(str(NAMES_MAX), COORDS)
    assert not names.stands_for("1", COORDS[:, 1:]) and not names.stands_for("", COORDS)


def test_packing_leaves_options_alone():
    options = {"coords_ref": "", "resend": True}
    messages.split_geometry(COORDS, options, Names())
    assert options == {"coords_ref": "", "resend": True}


def voxel(server, tmp_path, *words):
    path = tmp_path / "grid.npz"
    np.savez(path, coords=COORDS, feats=FEATS)
    return subprocess.run([os.environ["VOXEL"], "infer", "--server", server.address, "--model",
                           "sums", str(path), *words], capture_output=True, text=True,
                           timeout=PATIENCE)


def test_command_line_names_uses_and_resends(server, tmp_path):
    named = voxel(server, tmp_path, "--quiet", "--name-geometry")
    assert named.returncode == 0, named.stderr
    line = named.stdout.strip()
    name, digest = line.split(":")
    assert name in server.known and len(digest) == 32
    out = tmp_path / "out.npy"
    used = voxel(server, tmp_path, "--coords-ref", name, "-o", str(out))
    assert used.returncode == 0 and f"coords_ref {name}" in used.stdout, used.stdout + used.stderr
    np.testing.assert_array_equal(np.load(out).reshape(-1, 1), SUMS)
    assert server.seen == [(True, ""), (False, name)]
    server.known.clear()
    refused = voxel(server, tmp_path, "--coords-ref", line)
    assert refused.returncode == 1 and "FAILED_PRECONDITION: coords_ref" in refused.stderr
    resent = voxel(server, tmp_path, "--coords-ref", line, "--resend")
    assert resent.returncode == 0, resent.stderr
    assert server.seen[-2:] == [(False, name), (True, "")]
    # The line also works as a --coords-ref argument.
    loud = voxel(server, tmp_path, "--name-geometry", "--coords-ref", line)
    assert f"for --coords-ref: {line}\n" in loud.stdout, loud.stdout + loud.stderr


@pytest.mark.parametrize("other", OTHERS)
def test_command_line_compares_the_coords(server, tmp_path, other):
    line = voxel(server, tmp_path, "--quiet", "--name-geometry").stdout.strip()
    name = line.split(":")[0]
    np.savez(tmp_path / "other.npz", coords=OTHERS[other].astype(np.int32), feats=FEATS)
    out = str(tmp_path / "out.npy")

    def infer(*words):
        return subprocess.run([os.environ["VOXEL"], "infer", "--server", server.address, "--model",
                               "sums", str(tmp_path / "other.npz"), "-o", out, *words],
                              capture_output=True, text=True, timeout=PATIENCE)
    refused = infer("--coords-ref", line)
    assert refused.returncode == 2 and not os.path.exists(out), refused.stdout
    assert "other coords, or the same in another order" in refused.stderr and line in refused.stderr
    assert server.seen == [(True, "")]
    for ref in (line, name):   # the client does not know which coords a bare name stands for
        resent = infer("--coords-ref", ref, "--resend")
        assert resent.returncode == 0, resent.stderr
        np.testing.assert_array_equal(np.load(out).reshape(-1, 1),
                                      OTHERS[other].sum(axis=1, keepdims=True) + FEATS)
        assert server.seen[-1] == (True, "")
    for quiet in ((), ("--quiet",)):
        unseen = infer("--coords-ref", name, *quiet)
        assert unseen.returncode == 0 and "warning: --coords-ref: the name has no" in unseen.stderr
        assert server.seen[-1] == (False, name)
    assert infer("--coords-ref", name, "--name-geometry", "--quiet").stdout.strip() == name


@pytest.mark.parametrize("words", [("--resend",), ("--coords-ref", ""), ("--coords-ref", ":1"),
                                   ("--coords-ref", "a" * 64), ("--coords-ref", "a:1"),
                                   ("--coords-ref", "a:" + "G" * 32),
                                   ("--coords-ref", "a:" + "0" * 33)])
def test_command_line_says_what_it_expected(server, tmp_path, words):
    done = voxel(server, tmp_path, *words)
    assert done.returncode == 2 and "coords-ref" in done.stderr and server.seen == []


def load(server, *words):
    done = subprocess.run([BENCH_LOAD, "--server", server.address, "--model", "sums", "--mix",
                           "shell:50", "--channels-in", "1", "--dtype", "fp32", "--geometries", "3",
                           "--clients", "4", "--warmup", "0", "--json", *words],
                          capture_output=True, text=True, timeout=PATIENCE)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return done.returncode, json.loads(lines[0]) if lines else None, done.stdout + done.stderr


def test_load_counts_good_answers(server):
    code, said, text = load(server, "--requests", "200", "--feats", "2")
    assert code == 0, text
    assert said["statuses"] == {"OK": 200} and said["answered"] == 200
    # Each of the 6 distinct requests was first sent alone.
    assert len(server.seen) == 206
    assert 0 < said["p50_ms"] <= said["p90_ms"] <= said["p99_ms"] <= said["max_ms"]


def test_load_finds_one_wrong_answer(server):
    server.lie_at = 150
    code, said, text = load(server, "--requests", "200")
    assert code == 1 and said["wrong"] == 1 and "another answer than alone" in text


def test_load_finds_one_wrong_status(server):
    server.refuse_at = 150
    code, said, text = load(server, "--requests", "200")
    assert code == 1 and said["unexpected"] == 1 and "told to" in text
    assert said["statuses"] == {"OK": 199, "INTERNAL": 1}


def test_load_may_allow_a_status(server):
    server.refuse_at = 150
    code, said, text = load(server, "--requests", "200", "--allow", "INTERNAL")
    assert code == 0 and said["statuses"] == {"OK": 199, "INTERNAL": 1}, text


def test_load_uses_names_and_counts_what_was_forgotten(server):
    code, said, text = load(server, "--requests", "100", "--refs")
    assert code == 0 and said["refs"] == {"used": 100, "resent": 0, "with_coords": 0}, text
    assert sum(came for came, _ in server.seen) == 4  # 3 geometries, 4 connections: one twice


def test_load_resends_what_was_forgotten(server):
    known = server.known

    class Forgetful(dict):
        def __contains__(self, name):
            return len(server.seen) % 10 and known.__contains__(name)

        __getitem__ = known.__getitem__
        __setitem__ = known.__setitem__
    server.known = Forgetful()
    code, said, text = load(server, "--requests", "100", "--refs", "--clients", "1")
    assert code == 0 and said["answered"] == 100 and said["refs"]["resent"] >= 9, text


def test_load_open_loop_keeps_its_rate(server):
    code, said, text = load(server, "--rate", "100", "--seconds", "2", "--channels", "2")
    assert code == 0 and said["wrong"] == 0, text
    # 200 arrivals of a Poisson stream: five standard deviations are 71.
    assert 129 <= said["answered"] + said["not_sent"] <= 271


@pytest.mark.parametrize("words", [("--mix", "cube:3"), ("--mix", "res:0"), ("--dtype", "int8"),
                                   ("--allow", "FINE"), ("--requests", "0")])
def test_load_says_what_it_expected(server, words):
    code, _, text = load(server, "--requests", "5", *words)
    assert code == 2 and ("expected" in text or "needed" in text), text
    assert server.seen == []


# Against voxeld itself.

def drive(daemon, *words):
    done = subprocess.run([BENCH_LOAD, "--server", daemon.grpc, "--model", "conv", "--channels-in",
                           "4", "--mix", "res:16:3,shell:300", "--clients", "8", "--warmup", "0",
                           "--json", *words], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_voxeld_stands_bad_requests_among_good_ones(daemon):
    said = drive(daemon, "--requests", "3000", "--bad", "0.5")
    bad = said["bad"]
    assert said["statuses"] == {"OK": said["answered"]} and said["answered"] > 1000
    assert bad["duplicate"].keys() == bad["range"].keys() == {"INVALID_ARGUMENT"}
    assert bad["empty"].keys() == {"OK"} and bad["vanished"] > 10
    # Clients that vanish in the middle of a message count as bad, as oversized requests do.
    refused = daemon.metrics()['voxeld_rpc_refused_total{reason="bad"}']
    assert refused > bad["giant"]["INVALID_ARGUMENT"]


def test_voxeld_knows_geometries_by_name(daemon):
    said = drive(daemon, "--requests", "1000", "--refs", "--feats", "2")
    assert said["refs"]["used"] + said["refs"]["with_coords"] == 1000
    assert said["refs"]["used"] > 900, said["refs"]


def test_voxeld_forgets_what_it_never_knew(client, model):
    with pytest.raises(voxeld.FailedPrecondition) as caught:
        client.infer("conv", None, np.ones((3, model.ci), np.float32), coords_ref="1" * 32)
    assert caught.value.message.startswith("coords_ref '1111...' is not known here")


def test_voxeld_gives_the_same_bytes_by_name(client, model):
    coords = np.array([[0, x, y, 0] for x in range(20) for y in range(20)], np.int32)
    feats = np.random.default_rng(1).normal(size=(400, model.ci)).astype(np.float32)
    first = client.infer("conv", coords, feats, coords_ref="")
    assert len(first.coords_ref) == 32 and int(first.coords_ref, 16) >= 0
    again = client.infer("conv", None, feats, coords_ref=first.coords_ref, timing=True)
    assert again["out"].tobytes() == first["out"].tobytes()
    assert again.parameters["geometry_hit"] and again.coords_ref == first.coords_ref
