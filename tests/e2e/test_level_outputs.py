# SPDX-License-Identifier: Apache-2.0
"""Outputs on other sets than the request's, with their coordinates, through the daemon: against
dense numpy, over the wire, into shared memory, on streams, by the stock client; and what happens
when there is no room, and when a client or a worker goes away while a worker asks for places."""
import os
import random
import signal
import subprocess
import threading
import time

import dense_networks as dense
import numpy as np
import pytest
import tritonclient.grpc as triton

from test_levels import CI, SHAPE, Encoder, MinkUNet, Model, cloud
from triton_rig import inputs_of
from voxeld import Client, DeadlineExceeded, Internal, ResourceExhausted, VoxeldError
from voxeld_process import PATIENCE, Daemon

VOXELD, VOXEL = os.environ["VOXELD"], os.environ["VOXEL"]


class Ends(Model):
    """No weights: all children, blocks, and a window that keeps only what 4 divides."""

    def __init__(self):
        super().__init__("ends", 9)
        self.coords = {"name": "coords", "spatial_shape": list(SHAPE)}
        self.add("same", "relu", "feats")
        self.add("fine", "upsample", "feats", stride=2)
        self.add("coarse", "max_pool", "feats", kernel=2, stride=2, rule="floor")
        self.add("sparse", "sum_pool", "feats", kernel=1, stride=4, rule="spconv")
        self.last = "same"

    def grids(self, coords, feats):
        one = dense.grid_of(coords, feats, SHAPE)
        fine = [np.repeat(np.repeat(np.repeat(a, 2, 1), 2, 2), 2, 3)
                for a in (one.values, one.mask)]
        cut = (slice(None), *3 * [slice(None, None, 4)])
        return {"same": dense.relu(one), "fine": dense.Grid(*fine),
                "coarse": dense.max_pool(one, (2, 2, 2), (2, 2, 2), (0, 0, 0)),
                "sparse": dense.Grid(one.values[cut], one.mask[cut])}


# Per model: outputs as in network.json, and by name: the layer, its coordinates and its stride.
OUTPUTS = {
    "minkunet": ([{"name": "out", "layer": "dec0_act"}, {"layer": "enc1_act"},
                  {"name": "top", "layer": "enc2_act", "datatype": "FP16", "coords": "top_xyz"}],
                 {"enc1_act": ("enc1_act", "enc1_act_coords", (2, 2, 2)),
                  "top": ("enc2_act", "top_xyz", (4, 4, 4))}),
    "encoder": ([{"name": "last", "layer": "down2_act"}, {"layer": "pool"},
                 {"name": "mid", "layer": "mid1_act"}, {"name": "out", "layer": "up1_act"}],
                {"last": ("down2_act", "last_coords", (8, 4, 4)),
                 "pool": ("pool", "pool_coords", (4, 4, 4)),
                 "mid": ("mid1_act", "mid_coords", (2, 2, 2))}),
    "ends": ([{"layer": "same"}, {"layer": "fine"}, {"layer": "coarse"}, {"layer": "sparse"}],
             {"fine": ("fine", "fine_coords", (0.5, 0.5, 0.5)),
              "coarse": ("coarse", "coarse_coords", (2, 2, 2)),
              "sparse": ("sparse", "sparse_coords", (4, 4, 4))}),
}


@pytest.fixture(scope="module")
def models():
    return {kind.__name__.lower(): kind() for kind in (MinkUNet, Encoder, Ends)}


@pytest.fixture(scope="module")
def folder(models, tmp_path_factory):
    path = tmp_path_factory.mktemp("levels")
    for name, model in models.items():
        model.write(path, OUTPUTS[name][0])
    return path


@pytest.fixture(scope="module")
def daemon(folder, tmp_path_factory):
    with Daemon(folder, tmp_path_factory.mktemp("daemon"), "--device", "cpu", "--client-shm",
                "local") as one:
        yield one


@pytest.fixture(scope="module")
def client(daemon):
    with Client(daemon.grpc) as one:
        yield one


def used(daemon):
    return daemon.metrics()["voxeld_arena_used_bytes"]


def expect_nothing_taken(daemon):
    daemon.wait_for("every slot to come back", lambda: used(daemon) == 0)


def check(model, name, answer, coords, feats):
    """Every output against the dense arrays: rows of the request, or ascending voxels of a set."""
    grids = model.grids(coords, feats)
    for output, (layer, at, stride) in OUTPUTS[name][1].items():
        got, grid = answer.sparse(output), grids[layer]
        expected = np.argwhere(grid.mask)
        np.testing.assert_array_equal(got.coords, expected)
        assert got.coords.dtype == np.int32 and got.coords is answer[at]
        assert got.stride == stride and got.features is answer[output]
        half = got.features.dtype == np.float16
        np.testing.assert_allclose(got.features, grid.values[grid.mask],
                                   rtol=2e-3 if half else 1e-4, atol=2e-3 if half else 1e-4)
    same = "same" if name == "ends" else "out"
    np.testing.assert_allclose(answer[same], dense.rows_of(grids[model.last], coords), rtol=1e-4,
                               atol=1e-4)


@pytest.mark.parametrize("name", OUTPUTS)
@pytest.mark.parametrize("n, samples", [
    (1, 1), (40, 1), pytest.param(3000, 1, marks=pytest.mark.release), (6000, 3)])
def test_outputs_are_those_of_dense_arrays(client, models, name, n, samples):
    coords, feats = cloud(n, n, samples)
    check(models[name], name, client.infer(name, coords, feats), coords, feats)


def test_a_set_may_be_empty(client, models):
    coords, feats = np.array([[0, 1, 2, 3], [3, 5, 5, 5]], np.int32), np.ones((2, CI), np.float32)
    answer = client.infer("ends", coords, feats)
    check(models["ends"], "ends", answer, coords, feats)
    assert answer["sparse"].shape == (0, CI) and answer["sparse_coords"].shape == (0, 4)
    answer = client.infer("ends", coords[:0], feats[:0])
    for name in ("same", "fine", "coarse", "sparse"):
        assert answer[name].shape == (0, CI)
    assert answer.sparse("fine").coords.shape == (0, 4)


@pytest.mark.parametrize("name", OUTPUTS)
def test_the_same_bits_from_the_cache_and_in_any_order(client, name):
    coords, feats = cloud(11, 2500, 2)
    first = client.infer(name, coords, feats, coords_ref="")
    again = client.infer(name, None, feats, coords_ref=first.coords_ref)
    order = np.random.default_rng(1).permutation(len(coords))
    mixed = client.infer(name, np.ascontiguousarray(coords[order]), feats[order])
    for output, array in first.items():
        np.testing.assert_array_equal(array, again[output])
        own = "stride" in first.output_parameters.get(output, {})
        np.testing.assert_array_equal(array if own else array[order], mixed[output])


@pytest.mark.races
def test_many_at_once_have_the_bits_that_they_have_alone(daemon, client):
    requests = [(name, *cloud(100 + i, 50 + 400 * (i % 5), 1 + i % 3))
                for i, name in enumerate(list(OUTPUTS) * 8)]
    alone = [client.infer(*request) for request in requests]
    together = [None] * len(requests)

    def send(i):
        with Client(daemon.grpc) as one:
            together[i] = one.infer(*requests[i])

    threads = [threading.Thread(target=send, args=(i,)) for i in range(len(requests))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for mine, other in zip(alone, together):
        assert list(mine) == list(other)
        for output in mine:
            np.testing.assert_array_equal(mine[output], other[output])
    expect_nothing_taken(daemon)


def test_only_wanted_outputs_come(client):
    coords, feats = cloud(5, 500)
    everything = client.infer("ends", coords, feats)
    for outputs in (["coarse"], ["coarse_coords"], ["fine_coords", "same"],
                    ["sparse_coords", "sparse"]):
        answer = client.infer("ends", coords, feats, outputs=outputs)
        assert list(answer) == outputs
        for name in outputs:
            np.testing.assert_array_equal(answer[name], everything[name])
    only = client.infer("ends", coords, feats, outputs=["coarse"])
    with pytest.raises(KeyError, match="the answer lacks 'coarse_coords'"):
        only.sparse("coarse")
    with pytest.raises(KeyError, match="the answer lacks 'same'; its outputs are: 'coarse'"):
        only["same"]
    assert "same" not in only and only.get("same") is None
    with pytest.raises(ValueError, match="rows are those of the request's coords"):
        everything.sparse("same")


def test_a_region_just_large_enough_and_one_byte_too_small(daemon, client):
    coords, feats = cloud(6, 800)
    expected = client.infer("ends", coords, feats).sparse("coarse")
    rows = len(expected.features)
    with client.region(1 << 20) as region:
        places = {"coarse": region.array((rows, CI), np.float32),
                  "coarse_coords": region.array((rows, 4), np.int32)}
        got = client.infer("ends", coords, feats, outputs_in=places)
        assert np.shares_memory(got["coarse"], places["coarse"])
        np.testing.assert_array_equal(places["coarse"], expected.features)
        np.testing.assert_array_equal(got.sparse("coarse").coords, expected.coords)
        small = {"coarse": region.array((rows - 1, CI), np.float32)}
        with pytest.raises(Internal, match=rf"'coarse' \({(rows - 1) * CI * 4} bytes\) should be "
                                           rf"at least {rows * CI * 4} bytes"):
            client.infer("ends", coords, feats, outputs_in=small)
        large = {"coarse": region.array((rows + 50, CI), np.float32)}
        got = client.infer("ends", coords, feats, outputs_in=large)
        np.testing.assert_array_equal(got["coarse"], expected.features)
    expect_nothing_taken(daemon)


@pytest.mark.races
def test_an_arena_that_is_full_fails_one_request(folder, models, tmp_path):
    coords, feats = cloud(7, 16000)   # 128,000 children: 1.5 MB and 2 MB
    with Daemon(folder, tmp_path, "--device", "cpu", "--arena-bytes", "16M") as one, \
            Client(one.grpc) as client:
        held = [client.infer("ends", coords, feats, outputs=["fine", "fine_coords"])
                for _ in range(3)]
        assert all(len(a["fine"]) == 128000 for a in held)
        big = cloud(7, 16384, 8)
        refused = []

        def send():
            with Client(one.grpc) as mine:
                try:
                    mine.infer("ends", *big)
                except ResourceExhausted as error:
                    refused.append(str(error))

        threads = [threading.Thread(target=send) for _ in range(24)]
        with one.frozen(one.workers()[0]):  # none leaves before the last has come
            for thread in threads:
                thread.start()
            one.wait_for("all of them", lambda: len(refused) + sum(one.metrics()[
                f"voxeld_{where}_requests"] for where in ("running", "queued")) == len(threads))
        for thread in threads:
            thread.join()
        assert refused and any("no room for" in text for text in refused), refused
        check(models["ends"], "ends", client.infer("ends", coords[:50], feats[:50]), coords[:50],
              feats[:50])
        expect_nothing_taken(one)


def test_the_stock_client_reads_them(daemon, client):
    coords, feats = cloud(8, 700)
    expected = client.infer("ends", coords, feats)
    with triton.InferenceServerClient(daemon.grpc) as stock:
        result = stock.infer("ends", inputs_of(coords, feats))
        for name, array in expected.items():
            np.testing.assert_array_equal(result.as_numpy(name), array)
        said = result.get_output("fine").parameters
        assert said["coords"].string_param == "fine_coords"
        assert said["stride"].string_param == "1/2x1/2x1/2"
        assert result.get_output("fine_coords").parameters["stride"].string_param == "1/2x1/2x1/2"
        assert not result.get_output("same").parameters
        metadata = stock.get_model_metadata("ends")
        assert [(o.name, o.datatype, list(o.shape)) for o in metadata.outputs] == [
            ("same", "FP32", [-1, CI]), ("fine", "FP32", [-1, CI]), ("coarse", "FP32", [-1, CI]),
            ("sparse", "FP32", [-1, CI]), ("fine_coords", "INT32", [-1, 4]),
            ("coarse_coords", "INT32", [-1, 4]), ("sparse_coords", "INT32", [-1, 4])]
        config = stock.get_model_config("ends").config.parameters
        assert config["coords.coarse"].string_value == "coarse_coords"
        assert config["stride.coarse"].string_value == "2x2x2"
        assert "coords.same" not in config and "coords.coarse_coords" not in config
        assert config["spatial_shape"].string_value == "x".join(map(str, SHAPE))


def test_streams(daemon, client):
    requests = [cloud(200 + i, 30 + 300 * (i % 4), 1 + i % 2) for i in range(12)]
    expected = [client.infer("minkunet", *request) for request in requests]
    answers = {}
    done = threading.Event()

    def on_answer(result, error):
        assert error is None, error
        answers[result.get_response().id] = result
        if len(answers) == len(requests):
            done.set()

    with triton.InferenceServerClient(daemon.grpc) as stock:
        stock.start_stream(on_answer)
        for i, request in enumerate(requests):
            stock.async_stream_infer("minkunet", inputs_of(*request), request_id=f"r{i}")
        assert done.wait(PATIENCE)
        stock.stop_stream()
    for i, one in enumerate(expected):
        for name, array in one.items():
            np.testing.assert_array_equal(answers[f"r{i}"].as_numpy(name), array)


@pytest.mark.races
def test_clients_that_leave_at_any_moment(daemon, client, models):
    rng, requests = random.Random(3), [cloud(300 + i, 4000, 2) for i in range(4)]
    begin = time.monotonic()
    client.infer("encoder", *requests[0])
    whole = time.monotonic() - begin
    for i in range(60):
        with Client(daemon.grpc) as one:
            try:
                one.infer("encoder", *requests[i % 4], timeout=rng.uniform(0.001, 2 * whole))
            except VoxeldError:
                pass
    coords, feats = requests[0]
    check(models["encoder"], "encoder", client.infer("encoder", coords, feats), coords, feats)
    expect_nothing_taken(daemon)


@pytest.mark.races
def test_workers_that_die_at_any_moment(folder, models, tmp_path):
    """Each request is on one dying worker at most, so each is answered, by the next worker."""
    rng, requests = random.Random(4), [cloud(400 + i, 4000, 2) for i in range(4)]
    with Daemon(folder, tmp_path, "--device", "cpu") as one, Client(one.grpc) as client:
        expected = [client.infer("encoder", *request) for request in requests]
        begin = time.monotonic()
        client.infer("encoder", *requests[0])
        whole = time.monotonic() - begin
        for turn in range(12):
            answers = [None] * len(requests)

            def send(i):
                with Client(one.grpc) as mine:
                    answers[i] = mine.infer("encoder", *requests[i])

            threads = [threading.Thread(target=send, args=(i,)) for i in range(len(requests))]
            for thread in threads:
                thread.start()
            time.sleep(rng.uniform(0, 3 * whole))  # sleep: to any moment of the requests
            killed = one.workers()
            for pid in killed:
                os.kill(pid, signal.SIGKILL)
            for thread in threads:
                thread.join()
            for mine, other in zip(expected, answers):
                assert other is not None
                for name in mine:
                    np.testing.assert_array_equal(mine[name], other[name])
            one.wait_for("the worker to be back", lambda gone=killed: client.server_ready()
                         and not any(os.path.exists(f"/proc/{pid}") for pid in gone))
        expect_nothing_taken(one)


def test_a_client_leaves_before_the_worker_asks(daemon, client, models):
    """The worker is frozen with the request: it asks when the client is gone for sure."""
    coords, feats = cloud(13, 3000)
    with daemon.frozen(daemon.workers()[0]):
        seconds = 0.5  # grows until a request reaches the worker in time
        while not daemon.metrics()["voxeld_running_requests"]:
            with Client(daemon.grpc) as one, pytest.raises(DeadlineExceeded):
                one.infer("encoder", coords, feats, timeout=seconds)
            seconds *= 2
        assert used(daemon) > 0
    expect_nothing_taken(daemon)
    check(models["encoder"], "encoder", client.infer("encoder", coords, feats), coords, feats)


@pytest.mark.races
def test_a_server_that_stops_answers_what_asks(folder, models, tmp_path):
    """The worker is frozen with the requests, and asks when the server drains."""
    coords, feats = cloud(12, 3000, 3)
    answers = []

    def send(address):
        with Client(address) as mine:
            answers.append(mine.infer("encoder", coords, feats))

    with Daemon(folder, tmp_path, "--device", "cpu") as one:
        with one.frozen(one.workers()[0]):
            threads = [threading.Thread(target=send, args=(one.grpc,)) for _ in range(3)]
            for thread in threads:
                thread.start()
            one.wait_for("all to arrive", lambda: sum(one.metrics()[
                f"voxeld_{where}_requests"] for where in ("running", "queued")) == len(threads))
            one.signal(signal.SIGTERM)
            one.wait_said("DRAIN")
        for thread in threads:
            thread.join()
    assert len(answers) == len(threads)
    for answer in answers:
        check(models["encoder"], "encoder", answer, coords, feats)


def run_cli(daemon, *arguments):
    return subprocess.run([VOXEL, "infer", "--server", daemon.grpc, *arguments],
                          capture_output=True, text=True, check=True, timeout=PATIENCE).stdout


@pytest.mark.release
def test_the_command_line_writes_three_sizes_of_voxels_that_are_no_cubes(daemon, client, tmp_path):
    coords, feats = cloud(9, 300)
    np.savez(tmp_path / "in.npz", coords=coords, feats=feats, voxel_size=0.5)
    expected = client.infer("encoder", coords, feats).sparse("last")
    for ending in ("npz", "ply"):
        run_cli(daemon, "--model", "encoder", str(tmp_path / "in.npz"), "--output", "last", "-o",
                str(tmp_path / f"out.{ending}"))
    with np.load(tmp_path / "out.npz") as got:
        assert tuple(got["stride"]) == expected.stride == (8, 4, 4)
        np.testing.assert_array_equal(got["voxel_size"], [4, 2, 2])
    head = (tmp_path / "out.ply").read_bytes().split(b"element")[0]
    assert head.endswith(b"comment voxel_size 4 2 2\ncomment stride 8x4x4\n")


@pytest.mark.release
@pytest.mark.parametrize("output", ["coarse", "fine"])
def test_the_command_line_writes_and_draws_them(daemon, client, output, tmp_path):
    coords, feats = cloud(9, 300)
    np.savez(tmp_path / "in.npz", coords=coords, feats=feats)
    expected = client.infer("ends", coords, feats).sparse(output)
    for ending in ("npz", "npy", "ply"):
        run_cli(daemon, "--model", "ends", str(tmp_path / "in.npz"), "--output", output, "-o",
                str(tmp_path / f"out.{ending}"))
    run_cli(daemon, "--model", "ends", str(tmp_path / "in.npz"), "--output", output, "--render",
            str(tmp_path / "out.png"), "--size", "120x90")
    with np.load(tmp_path / "out.npz") as got:
        np.testing.assert_array_equal(got["coords"], expected.coords)
        np.testing.assert_array_equal(got[output], expected.features)
        assert tuple(got["stride"]) == expected.stride and got["voxel_size"] == expected.stride[0]
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected.features)
    np.testing.assert_array_equal(np.load(tmp_path / "out.coords.npy"), expected.coords)
    text = (tmp_path / "out.ply").read_bytes().split(b"end_header")[0].decode()
    stride = "2x2x2" if output == "coarse" else "1/2x1/2x1/2"
    assert f"comment stride {stride}\n" in text
    assert f"element vertex {len(expected.coords)}\n" in text
    assert (tmp_path / "out.png").stat().st_size > 1000


def test_the_command_line_writes_all_outputs_into_one_npz(daemon, client, tmp_path):
    """coords and voxel_size are the file's; what lies elsewhere has its coordinates, by name."""
    coords, feats = cloud(9, 300)
    np.savez(tmp_path / "in.npz", coords=coords, feats=feats, voxel_size=0.5)
    answer = client.infer("ends", coords, feats)
    said = run_cli(daemon, "--model", "ends", str(tmp_path / "in.npz"), "-o",
                   str(tmp_path / "out.npz"))
    assert f"out.npz: all {len(answer)} outputs (--output NAME takes one)\n" in said
    strides = OUTPUTS["ends"][1]
    with np.load(tmp_path / "out.npz") as got:
        assert set(got.files) == {"coords", "voxel_size", *answer,
                                  *(f"stride.{name}" for name in strides)}
        np.testing.assert_array_equal(got["coords"], coords)
        assert got["voxel_size"] == 0.5
        for name in answer:
            np.testing.assert_array_equal(got[name], answer[name])
        for name, (_, beside, stride) in strides.items():
            assert tuple(got[f"stride.{name}"]) == stride and len(got[name]) == len(got[beside])


def test_the_command_line_with_shared_memory(daemon, tmp_path):
    coords, feats = cloud(9, 300)
    np.savez(tmp_path / "in.npz", coords=coords, feats=feats)
    for flags in ([], ["--shm"]):
        run_cli(daemon, "--model", "ends", str(tmp_path / "in.npz"), *flags, "--output", "coarse",
                "-o", str(tmp_path / f"out{len(flags)}.npy"))
    assert (tmp_path / "out0.npy").read_bytes() == (tmp_path / "out1.npy").read_bytes()


def test_check_prints_them(folder):
    said = subprocess.run([VOXELD, "check", folder / "ends"], capture_output=True, text=True,
                          check=True).stdout
    assert "fine                     FP32 (rows of set 1, 3): stride 1/2x1/2x1/2, coordinates in " \
           "fine_coords" in said
    assert "coarse_coords            INT32 (rows of set 2, 4): sample x y z, ascending; stride " \
           "2x2x2" in said
