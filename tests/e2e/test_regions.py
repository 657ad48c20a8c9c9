# SPDX-License-Identifier: Apache-2.0
"""Requests with tensors in shared memory, in every mix of places, on the CPU and on the fake GPU:
the answers are those of the same request over the wire, bit for bit."""
import contextlib
import itertools
import os
import threading
import uuid

import numpy as np
import pytest

import voxeld
from model_files import ConvModel, random_grid
from test_bad_input import INT, TEXT, in_region, parameter, request as wire_request
from voxeld import Client, FailedPrecondition, Internal, InvalidArgument, messages, wire
from voxeld_process import PATIENCE, Daemon


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """With a warm-up small enough for plain C on the fake GPU."""
    path = tmp_path_factory.mktemp("repository")
    small = ConvModel()
    small.network["warmup"] = [10]
    small.write(path)
    return path


@pytest.fixture(scope="module", params=["cpu", "fake:0", "cpu,cpu"])
def daemon(repository, tmp_path_factory, request):
    work = tmp_path_factory.mktemp("daemon")
    with Daemon(repository, work, "--device", request.param, "--device-bytes", "256M",
                "--kernel-cache", str(work / "kernels"), "--client-shm", "local") as one:
        yield one


@pytest.fixture
def region(client):
    with client.region(1 << 20) as one:
        yield one


@pytest.fixture(autouse=True)
def nothing_is_left(daemon):
    yield
    daemon.wait_for("the calls' end", lambda: daemon.metrics()["voxeld_calls_in_flight"] == 0)
    daemon.wait_for("empty arena", lambda: daemon.metrics()["voxeld_arena_used_bytes"] == 0)


def wired(client, coords, feats):
    return client.infer("conv", coords, feats, timeout=PATIENCE)["out"]


@pytest.mark.parametrize("where", list(itertools.product([False, True], repeat=3)))
def test_every_mix_of_places(client, region, where):
    """coords, feats, out: each in the region or the message, whose raw entries leave no gap."""
    coords, feats = random_grid(21, 200)
    expected = wired(client, coords, feats)
    c = region.put(coords) if where[0] else coords
    f = region.put(feats) if where[1] else feats
    options = {}
    if where[2]:
        options["outputs_in"] = {"out": region.array(expected.shape, np.float32)}
        options["outputs_in"]["out"][...] = np.nan
    for _ in range(2):  # the second request finds the geometry, if it has a name
        out = client.infer("conv", c, f, timeout=PATIENCE, **options)["out"]
        assert out.tobytes() == expected.tobytes()
    if where[2]:
        assert options["outputs_in"]["out"].tobytes() == expected.tobytes()


def test_what_changes_between_requests_is_seen(client, region):
    """The same place with new contents: the server does not reuse what was there before."""
    coords, feats = region.array((150, 4), np.int32), region.array((150, 4), np.float32)
    out = region.array((150, 3), np.float32)
    for seed in range(4):
        coords[...], feats[...] = random_grid(100 + seed, 150)
        expected = wired(client, coords.copy(), feats.copy())
        answer = client.infer("conv", coords, feats, outputs_in={"out": out}, timeout=PATIENCE)
        assert answer["out"].tobytes() == expected.tobytes()


def test_bad_coordinates_in_a_region(daemon, client, region):
    """A GPU checks its own copy and reads no row twice, so its error names no rows."""
    coords, feats = random_grid(22, 100)
    coords[70] = coords[3]
    in_place = 'device="fake' in daemon.get("/metrics")[1]
    said = "a voxel appears twice" if in_place else "rows 3 and 70"
    with pytest.raises(InvalidArgument, match=said):
        client.infer("conv", region.put(coords), region.put(feats), timeout=PATIENCE)


def test_a_geometry_from_a_region_gets_a_name(client, region):
    coords, feats = random_grid(23, 180)
    expected = wired(client, coords, feats)
    here, f = region.put(coords), region.put(feats)
    out = region.array(expected.shape, np.float32)
    first = client.infer("conv", here, f, coords_ref="", timeout=PATIENCE)
    name = first.parameters["coords_ref"]
    here[...] = 0  # the name stands for a copy
    again = client.infer("conv", None, f, coords_ref=name, outputs_in={"out": out},
                         timeout=PATIENCE)
    assert first["out"].tobytes() == again["out"].tobytes() == expected.tobytes()
    with pytest.raises(FailedPrecondition, match="is not known here"):
        client.infer("conv", None, f, coords_ref="1" * 32, timeout=PATIENCE)


def test_no_voxels_in_a_region(client, region):
    """Zero rows have no bytes; any offset in the region is valid, its end too."""
    def ask(offset):
        place = (("shared_memory_region", TEXT, region.name), ("shared_memory_byte_size", INT, 0),
                 ("shared_memory_offset", INT, offset))
        data = wire_request(in_region("coords", "INT32", (0, 4), *place),
                            in_region("feats", "FP32", (0, 4), *place))
        return messages.read_infer(client._call("ModelInfer", data, PATIENCE), None)["out"]
    for offset in (0, region.nbytes):
        assert ask(offset).shape == (0, 3)
    with pytest.raises(InvalidArgument):
        ask(region.nbytes + 1)


def test_outputs_that_overlap_or_do_not_fit(client, region, monkeypatch):
    coords, feats = random_grid(24, 50)
    c, f = region.put(coords), region.put(feats)
    inside = f.reshape(-1)[:150].reshape(50, 3)
    with pytest.raises(InvalidArgument, match="input 'feats' and output 'out' overlap"):
        client.infer("conv", c, f, outputs_in={"out": inside}, timeout=PATIENCE)
    small = region.array((49, 3), np.float32)
    with pytest.raises(ValueError, match=r"the shape \[50, 3\]"):
        client.infer("conv", c, f, outputs_in={"out": small}, timeout=PATIENCE)
    monkeypatch.setattr(client._places, "doubtful", lambda *_: False)   # what the server says
    with pytest.raises(Internal, match=r"for output 'out' \(588 bytes\) should be at least 600 "
                                       "bytes to hold the results"):
        client.infer("conv", c, f, outputs_in={"out": small}, timeout=PATIENCE)


def test_a_region_too_small_is_no_fault_of_voxeld(daemon, client, region, monkeypatch):
    """INTERNAL is Triton's status for it; who is called at night for INTERNAL is not called."""
    failed = 'nv_inference_request_failure{model="conv",version="1",reason="%s"}'
    before = daemon.metrics()
    coords, feats = random_grid(24, 50)
    small = region.array((49, 3), np.float32)
    monkeypatch.setattr(client._places, "doubtful", lambda *_: False)
    with pytest.raises(Internal):
        client.infer("conv", coords, feats, outputs_in={"out": small}, timeout=PATIENCE)
    after = daemon.metrics()
    assert after[failed % "BACKEND"] == before[failed % "BACKEND"]
    assert after[failed % "OTHER"] == before[failed % "OTHER"] + 1
    assert "REQUEST_FAILED" not in daemon.log()


def test_timing_and_regions(client, region):
    coords, feats = random_grid(25, 120)
    answer = client.infer("conv", region.put(coords), region.put(feats), timing=True,
                          timeout=PATIENCE)
    assert answer.parameters["pairs"] >= 120 and answer.parameters["batch_voxels"] >= 120


def test_many_clients_with_regions_of_their_own(daemon, client):
    """Batches of requests from several regions and from the wire: each has its own answer."""
    wrong = []

    def run(seed):
        try:
            rng = np.random.default_rng(seed)
            with Client(daemon.grpc) as mine, mine.region(1 << 18) as memory:
                for i in range(12):
                    coords, feats = random_grid(1000 * seed + i, int(rng.integers(1, 120)))
                    expected = wired(mine, coords, feats)
                    memory.reset()
                    c = memory.put(coords) if i % 3 else coords
                    out = memory.array(expected.shape, np.float32)
                    got = mine.infer("conv", c, memory.put(feats), outputs_in={"out": out},
                                     timeout=PATIENCE)["out"]
                    if got.tobytes() != expected.tobytes():
                        wrong.append((seed, i))
        except Exception as error:  # noqa: BLE001 - reported below, from the test's own thread
            wrong.append(error)
    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]


def test_a_region_that_was_taken_back(client):
    coords, feats = random_grid(26, 60)
    region = client.region(1 << 16)
    c, f = region.put(coords), region.put(feats)
    client.infer("conv", c, f, timeout=PATIENCE)
    client._call("SystemSharedMemoryUnregister", region.pack_unregister(), PATIENCE)
    with pytest.raises(voxeld.NotFound, match="Unable to find shared memory region"):
        client.infer("conv", c, f, timeout=PATIENCE)
    region.close()


def test_a_region_is_taken_back_while_a_request_has_it(daemon, client):
    """Frozen workers make sure of it.  The request is answered; the name is gone at once."""
    coords, feats = random_grid(28, 300)
    expected = wired(client, coords, feats)
    region = client.region(1 << 16)
    c, f, out = region.put(coords), region.put(feats), region.array(expected.shape, np.float32)
    replies = []
    thread = threading.Thread(target=lambda: replies.append(
        client.infer("conv", c, f, outputs_in={"out": out}, timeout=PATIENCE)))
    with contextlib.ExitStack() as still:
        for worker in daemon.workers():
            still.enter_context(daemon.frozen(worker))
        thread.start()
        daemon.wait_for("the request to have its region", lambda: any(
            value > 0 for name, value in daemon.metrics().items()
            if name.startswith("voxeld_regions_in_use")))
        client._call("SystemSharedMemoryUnregister", region.pack_unregister(), PATIENCE)
        with pytest.raises(voxeld.NotFound):
            client.infer("conv", coords, f, timeout=PATIENCE)
        assert thread.is_alive()
    thread.join()
    assert len(replies) == 1 and out.tobytes() == expected.tobytes()
    region.close()


def test_a_region_that_is_cut_is_no_unknown_geometry(client):
    """The request has a coords_ref and loses its feats: the error says so; the name stays known."""
    coords, feats = random_grid(27, 300)
    name = client.infer("conv", coords, feats, coords_ref="",
                        timeout=PATIENCE).parameters["coords_ref"]
    key = f"voxeld-test-{uuid.uuid4().hex}"
    fd = os.open(f"/dev/shm/{key}", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.ftruncate(fd, 1 << 16)
        os.pwrite(fd, feats.tobytes(), 8192)
        client._call("SystemSharedMemoryRegister",
                     wire.text(1, "cut") + wire.text(2, key) + wire.number(4, 1 << 16), PATIENCE)
        data = wire_request(
            parameter(4, "coords_ref", TEXT, name),
            in_region("feats", "FP32", feats.shape, ("shared_memory_region", TEXT, "cut"),
                      ("shared_memory_byte_size", INT, feats.nbytes),
                      ("shared_memory_offset", INT, 8192)))
        assert client._call("ModelInfer", data, PATIENCE)
        os.ftruncate(fd, 4096)
        for _ in range(2):
            with pytest.raises(FailedPrecondition) as caught:
                client._call("ModelInfer", data, PATIENCE)
            assert "memory" in caught.value.message and "coords_ref" not in caught.value.message
        client._call("SystemSharedMemoryUnregister", wire.text(1, "cut"), PATIENCE)
    finally:
        os.close(fd)
        os.unlink(f"/dev/shm/{key}")
    again = client.infer("conv", None, feats, coords_ref=name, timeout=PATIENCE)
    assert again["out"].tobytes() == wired(client, coords, feats).tobytes()
