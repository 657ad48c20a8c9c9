# SPDX-License-Identifier: Apache-2.0
"""Global pools, labels and dense tensors through the daemon, against numpy: over the wire, in
shared memory, by the stock client, by the command line, in batches, and outside of the shape; on
the CPU and on the fake GPU."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
import tritonclient.grpc as triton

from conftest import ROOT, SANITIZED
from definition_network import Network
from test_levels import CI, SHAPE, Model, cloud
from triton_rig import inputs_of
from voxeld import Client, Internal, InvalidArgument, ResourceExhausted, messages
from voxeld_process import PATIENCE, Daemon

sys.path.append(str(ROOT / "tests" / "hostile"))
import h2  # noqa: E402

VOXEL = os.environ["VOXEL"]
CLASSES = 5
BOX = (40, 32, 20)   # more than SHAPE along two axes


class Ends(Model):
    """A classification head, a squeeze-and-excite block, labels, and two dense views."""

    def __init__(self):
        super().__init__("ends", 3)
        self.head = self.rng.normal(size=(CLASSES, CI)).astype(np.float32)
        self.tensors["head.weight"] = self.head
        self.add("mean", "global_pool", "feats", mode="avg")
        self.add("most", "global_pool", "feats", mode="max")
        self.add("head", "linear", "mean", channels=CLASSES, bias=False)
        self.add("class", "argmax", "head")
        self.add("gate", "sigmoid", "most")
        self.add("spread", "unpool", "gate", of="mean")
        self.add("excited", "mul", ["feats", "spread"])
        self.add("label", "argmax", "excited")
        self.add("coarse", "downsample", "excited", stride=2)
        self.add("volume", "to_dense", "excited", shape=list(BOX))
        self.add("view", "to_dense", "coarse", shape=[n // 2 for n in SHAPE], fold=True)

    OUTPUTS = [{"layer": "head", "coords": "samples"}, {"layer": "class"}, {"layer": "label"},
               {"layer": "volume"}, {"layer": "view", "datatype": "FP16"}]

    def expected(self, coords, feats):
        samples = np.unique(coords[:, 0])
        mine = [feats[coords[:, 0] == s] for s in samples]
        head = np.stack([m.mean(0) for m in mine]) @ self.head.T
        gate = 1 / (1 + np.exp(-np.stack([m.max(0) for m in mine]).astype(np.float64)))
        excited = feats * gate[np.searchsorted(samples, coords[:, 0])]
        batch = coords[:, 0].max() + 1
        volume = np.zeros((batch, *BOX, CI))
        volume[tuple(coords.T)] = excited
        sums, counts = (np.zeros((batch, *(n // 2 for n in SHAPE), c)) for c in (CI, 1))
        at = (coords[:, 0], *(coords[:, 1:] // 2).T)
        np.add.at(sums, at, excited)
        np.add.at(counts, at, 1)
        view = (sums / np.maximum(counts, 1)).transpose(0, 4, 1, 2, 3)
        return {"head": head, "samples": np.stack([samples, *3 * [0 * samples]], 1),
                "class": head.argmax(1)[:, None], "label": excited.argmax(1)[:, None],
                "volume": volume.transpose(0, 4, 1, 2, 3),
                "view": view.reshape(batch, -1, *view.shape[3:])}


SHAPES = {"head": [-1, CLASSES], "class": [-1, 1], "label": [-1, 1], "volume": [-1, CI, *BOX],
          "view": [-1, CI * SHAPE[0] // 2, SHAPE[1] // 2, SHAPE[2] // 2], "samples": [-1, 4]}
TYPES = {"head": "FP32", "class": "INT32", "label": "INT32", "volume": "FP32", "view": "FP16",
         "samples": "INT32"}


@pytest.fixture(scope="module")
def model():
    return Ends()


@pytest.fixture(scope="module", params=["cpu", "fake:0"])
def daemon(request, model, tmp_path_factory):
    """Limits and a warm-up that are small enough for plain C on the fake GPU."""
    folder, work = tmp_path_factory.mktemp("ends"), tmp_path_factory.mktemp("daemon")
    model.write(folder, model.OUTPUTS)
    path = folder / "ends" / "network.json"
    small = {"precision": "fp32", "limits": {"voxels_max": 4000}, "warmup": [20]}
    path.write_text(json.dumps(json.loads(path.read_text()) | small))
    few = shutil.copytree(folder / "ends", folder / "few") / "network.json"
    small["limits"] = {"voxels_max": 4000, "samples": 3}
    few.write_text(json.dumps(json.loads(few.read_text()) | small))
    gpu = ["--device-bytes", "256M", "--kernel-cache", str(work / "kernels")]
    with Daemon(folder, work, "--device", request.param, "--client-shm", "local",
                "--arena-bytes", "256M", *(gpu if request.param != "cpu" else [])) as one:
        yield one


@pytest.fixture(scope="module")
def client(daemon):
    with Client(daemon.grpc) as one:
        yield one


def check(model, answer, coords, feats):
    for name, expected in model.expected(coords, feats).items():
        got = answer[name]
        assert got.shape == expected.shape, name
        if TYPES[name] == "INT32":
            assert got.dtype == np.int32
            np.testing.assert_array_equal(got, expected)
        else:
            tolerance = 1e-3 if name == "view" else 1e-5
            np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def test_metadata_and_config_say_the_dimensions(daemon):
    with triton.InferenceServerClient(daemon.grpc) as stock:
        said = stock.get_model_metadata("ends", as_json=True)
        config = stock.get_model_config("ends", as_json=True)["config"]
    outputs = {o["name"]: o for o in said["outputs"]}
    assert {n: [int(d) for d in o["shape"]] for n, o in outputs.items()} == SHAPES
    assert {n: o["datatype"] for n, o in outputs.items()} == TYPES
    assert {o["name"]: [int(d) for d in o["dims"]] for o in config["output"]} == SHAPES
    assert config["parameters"]["stride.head"]["string_value"] == "0x0x0"
    assert not {"stride.volume", "coords.volume", "stride.label"} & set(config["parameters"])
    assert config["parameters"]["samples_max"]["string_value"] == "512"


def test_more_samples_than_the_limit(daemon, client, model):
    """Of outputs that are not dense the numbers of samples are no size, and may be any."""
    coords, feats = cloud(5, 30)
    coords[3, 0] = 2
    check(model, client.infer("few", coords, feats), coords, feats)
    coords[3, 0] = 3
    with pytest.raises(ResourceExhausted, match="output 'volume': the largest sample is 3, which "
                                                "makes 4 samples; limits.samples allows 3"):
        client.infer("few", coords, feats)
    with pytest.raises(ResourceExhausted, match="output 'view': .*limits.samples allows 3"):
        client.infer("few", coords, feats, outputs=["view"])
    answer = client.infer("few", coords, feats, outputs=["head", "samples"])
    assert answer["samples"][:, 0].tolist() == [0, 3]
    with triton.InferenceServerClient(daemon.grpc) as stock:
        config = stock.get_model_config("few", as_json=True)["config"]
    assert config["parameters"]["samples_max"]["string_value"] == "3"


@pytest.mark.parametrize("n, samples", [(1, 1), (40, 1), (2000, 1), (3000, 4)])
def test_answers_are_those_of_numpy(client, model, n, samples):
    coords, feats = cloud(n, n, samples)
    answer = client.infer("ends", coords, feats)
    check(model, answer, coords, feats)
    head = answer.sparse("head")
    assert head.stride == (0, 0, 0) and head.coords is answer["samples"]
    with pytest.raises(ValueError, match=r"output 'volume' is a dense tensor \[\d+, .*no voxels"):
        answer.sparse("volume")


def test_samples_that_are_missing_are_zeros_in_a_dense_tensor(client, model):
    coords, feats = cloud(1, 100)
    coords[:50, 0] = 6
    answer = client.infer("ends", coords, feats)
    check(model, answer, coords, feats)
    assert len(answer["volume"]) == 7 and not answer["volume"][1:6].any()
    assert answer["samples"][:, 0].tolist() == [0, 6]
    columns = client.infer("ends", np.ascontiguousarray(coords[50:, 1:]), feats[50:])
    np.testing.assert_array_equal(columns["view"].shape, [1, *SHAPES["view"][1:]])


def test_an_empty_request(client):
    answer = client.infer("ends", np.zeros((0, 4), np.int32), np.zeros((0, CI), np.float32))
    for name, shape in SHAPES.items():
        assert answer[name].shape == (0, *shape[1:])


def test_a_voxel_outside_of_the_shape_is_named(client, model):
    coords, feats = cloud(2, 60)
    coords[17] = [0, 39, 31, 20]
    with pytest.raises(InvalidArgument, match=r"output 'volume': coords row 17 \(0, 39, 31, 20\) "
                       r"lies outside of the shape of to_dense: expected 0 to 39, 0 to 31 and 0 "
                       r"to 19 in the last three columns"):
        client.infer("ends", coords, feats, outputs=["volume"])
    with pytest.raises(InvalidArgument, match=r"output 'view': voxel \(0, 19, 15, 10\) of set 2 "
                                              r"lies outside"):
        client.infer("ends", coords, feats, outputs=["view"])
    assert client.infer("ends", coords, feats, outputs=["label"])["label"].shape == (60, 1)


def test_samples_whose_dense_rows_exceed_the_arena_are_named(client, model):
    """512 rows of 3 x 40 x 32 x 20 floats need a block of 256 MiB, of few voxels too."""
    coords, feats = cloud(3, 20)
    coords[7, 0] = 511
    with pytest.raises(ResourceExhausted, match=rf"arena_bytes is 268435456: send fewer samples, "
                       rf"numbered from 0: output 'volume' is \[512,{CI},40,32,20\] FP32, a row "
                       rf"for each sample"):
        client.infer("ends", coords, feats, outputs=["volume"])
    answer = client.infer("ends", coords, feats, outputs=["label"])
    assert answer["label"].shape == (20, 1)


def test_the_same_bits_in_any_order_and_among_others(daemon, client):
    requests = [cloud(20 + i, 30 + 100 * i, 1 + i % 3) for i in range(9)]
    alone = [client.infer("ends", *request) for request in requests]
    together = [None] * len(requests)

    def send(i):
        with Client(daemon.grpc) as one:
            together[i] = one.infer("ends", *requests[i])

    threads = [threading.Thread(target=send, args=(i,)) for i in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for (coords, feats), one, other in zip(requests, alone, together):
        order = np.random.default_rng(1).permutation(len(coords))
        mixed = client.infer("ends", np.ascontiguousarray(coords[order]), feats[order])
        for name in SHAPES:
            np.testing.assert_array_equal(one[name], other[name])
            rows = one[name][order] if name == "label" else one[name]
            np.testing.assert_array_equal(rows, mixed[name])


def test_shared_memory(daemon, client, model):
    coords, feats = cloud(6, 800, 2)
    expected = client.infer("ends", coords, feats)
    with client.region(1 << 22) as region:
        places = {name: region.array(expected[name].shape, expected[name].dtype)
                  for name in ("volume", "view", "label", "head")}
        got = client.infer("ends", region.put(coords), region.put(feats), outputs_in=places)
        for name, place in places.items():
            assert np.shares_memory(got[name], place)
            np.testing.assert_array_equal(place, expected[name])
        small = {"volume": region.array((1, CI, *BOX), np.float32)}
        with pytest.raises(Internal, match="'volume' .* should be at least"):
            client.infer("ends", coords, feats, outputs_in=small)
    daemon.wait_for("every slot to come back",
                    lambda: daemon.metrics()["voxeld_arena_used_bytes"] == 0)


def test_the_stock_client(daemon, client):
    coords, feats = cloud(8, 300, 2)
    expected = client.infer("ends", coords, feats)
    with triton.InferenceServerClient(daemon.grpc) as stock:
        got = stock.infer("ends", inputs_of(coords, feats))
    for name in SHAPES:
        np.testing.assert_array_equal(got.as_numpy(name), expected[name])


def test_the_command_line(daemon, client, tmp_path):
    coords, feats = cloud(9, 200, 2)
    expected = client.infer("ends", coords, feats)
    np.savez(tmp_path / "in.npz", coords=coords, feats=feats)

    def voxel(*arguments):
        return subprocess.run([VOXEL, "infer", "--server", daemon.grpc, "--model", "ends",
                               tmp_path / "in.npz", *arguments], capture_output=True, text=True)

    for extra in ([], ["--shm"]):
        done = voxel("--output", "volume", "-o", tmp_path / "out.npy", *extra)
        assert done.returncode == 0, done.stderr
        np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected["volume"])
    assert not (tmp_path / "out.coords.npy").exists()
    assert voxel("--output", "view", "-o", tmp_path / "out.npz").returncode == 0
    with np.load(tmp_path / "out.npz") as saved:
        assert saved.files == ["view"]
        np.testing.assert_array_equal(saved["view"], expected["view"])
    assert voxel("-o", tmp_path / "all.npz").returncode == 0
    with np.load(tmp_path / "all.npz") as saved:
        assert set(saved.files) == {"coords", "stride.head", "stride.class", *SHAPES}
        np.testing.assert_array_equal(saved["coords"], coords)
        for name in SHAPES:
            np.testing.assert_array_equal(saved[name], expected[name])
    assert voxel("--output", "head", "-o", tmp_path / "head.npz").returncode == 0
    with np.load(tmp_path / "head.npz") as saved:
        np.testing.assert_array_equal(saved["head"], expected["head"])
        np.testing.assert_array_equal(saved["coords"], expected["samples"])
        assert saved["stride"].tolist() == [0, 0, 0]
    for bad in (["-o", tmp_path / "out.ply"], ["--render", tmp_path / "out.png"]):
        done = voxel("--output", "volume", *bad)
        assert done.returncode == 2, done.stderr
        assert "output 'volume' is a dense tensor, which has no voxels" in done.stderr
        assert "--output NAME takes head, class, label\n" in done.stderr
        assert not done.stdout  # nothing was computed for it


def test_a_worker_that_dies_refuses_nobody_beside_an_unread_answer(tmp_path):
    """Of 64 MB one client has 16 that it does not read.  A request with 16 MB of outputs has taken
    them when its worker dies, and takes them again: they count for its connection once."""
    mb, samples, rng = 2**20, 8, np.random.default_rng(0)
    network, at = Network(channels=4, shape=(64, 64, 8)), "feats"
    # As much as takes longer than the kill; a sanitizer multiplies a hundred times as slowly.
    for i in range(1 if SANITIZED else 6):
        at = network.add(f"c{i}", "subm_conv", at, channels=16 if SANITIZED else 64, kernel=3)
    network.add("bev", "to_dense", network.add("o", "linear", at, channels=16))
    network.outputs = ["bev"]
    network.write(tmp_path / "repository" / "bev")
    path = tmp_path / "repository" / "bev" / "network.json"
    small = {"limits": {"voxels_max": 40000}, "warmup": [10]}
    path.write_text(json.dumps(json.loads(path.read_text()) | small))
    xyz = np.stack(np.unravel_index(rng.permutation(64 * 64 * 8)[:30000], (64, 64, 8)), 1)
    coords = np.concatenate([np.zeros((30000, 1)), xyz], 1).astype(np.int32)
    coords[0, 0] = samples - 1
    feats = rng.normal(size=(30000, 4)).astype(np.float32)
    one = messages.pack_infer("bev", coords[:1], feats[:1], {}, [])
    with Daemon(tmp_path / "repository", tmp_path, "--device", "cpu", "--arena-bytes", "64M",
                "--restart-ms-max", "100") as daemon, Client(daemon.grpc) as client, \
            socket.create_connection(daemon.grpc.rsplit(":", 1)) as unread:
        def used():
            return daemon.metrics()["voxeld_arena_used_bytes"]

        def places_taken():
            return used() >= 32 * mb or answers or errors

        def infer():
            try:
                answers.append(client.infer("bev", coords, feats, timeout=PATIENCE)["bev"])
            except ResourceExhausted as error:
                errors.append(error.message)
        unread.sendall(h2.opening(INITIAL_WINDOW_SIZE=0) + h2.headers(1, h2.call_block(h2.INFER))
                       + h2.data(1, h2.message(one), h2.END_STREAM))
        daemon.wait_for("the answer that is not read", lambda: used() >= 16 * mb)
        expected, killed = None, 0
        while killed < 2:  # the first may have been answered just before
            answers, errors = [], []
            thread = threading.Thread(target=infer)
            thread.start()
            daemon.wait_for("the places", places_taken)
            if not answers and expected is not None:
                killed += 1
                gone, = daemon.workers()
                os.kill(gone, signal.SIGKILL)
            thread.join()
            assert not errors, errors
            if expected is None:
                expected, = answers
            assert np.array_equal(*answers, expected)
