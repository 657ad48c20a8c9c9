# SPDX-License-Identifier: Apache-2.0
"""`voxel perf-data`: the grids it writes for perf_analyzer are valid, and a server accepts each."""
import base64
import json
import os
import re
import subprocess

import ml_dtypes
import numpy as np
import pytest
from model_files import ConvModel, random_grid
from voxeld import Client
from voxeld_process import PATIENCE, Daemon

TYPES = {"fp32": np.dtype(np.float32), "fp16": np.dtype(np.float16),
         "bf16": np.dtype(ml_dtypes.bfloat16)}


def perf_data(*words, code=0):
    """The command; returns what it printed."""
    done = subprocess.run([os.environ["VOXEL"], "perf-data", *map(str, words)],
                          capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def read_tensor(tensor, dtype):
    if "b64" in tensor:
        flat = np.frombuffer(base64.b64decode(tensor["b64"], validate=True), dtype)
    else:
        flat = np.array(tensor["content"], dtype)
    assert set(tensor) in ({"b64", "shape"}, {"content", "shape"})
    return flat.reshape(tensor["shape"])


def read(path, dtype="fp32", names=("coords", "feats")):
    """[(coords, feats)] of a file, each grid checked."""
    grids = []
    for step in json.loads(path.read_text())["data"]:
        assert list(step) == list(names)
        coords, feats = read_tensor(step[names[0]], "<i4"), read_tensor(step[names[1]],
                                                                        TYPES[dtype])
        assert coords.shape[1] == 4 and len(coords) == len(feats)
        assert len(np.unique(coords, axis=0)) == len(coords) and np.abs(coords).max() < 1 << 15
        assert not coords[:, 0].any() and np.isfinite(feats.astype(np.float32)).all()
        grids.append((coords, feats))
    return grids


def test_grids_of_a_model(daemon, client, tmp_path):
    out = tmp_path / "mixed.json"
    said = perf_data("--server", daemon.grpc, "--model", "conv", "--voxels", "1,100,2500",
                     "--count", 7, "-o", out)
    assert "7 grids of 1 to 2500 voxels" in said
    grids = read(out)
    assert [len(coords) for coords, _ in grids] == [1, 100, 2500, 1, 100, 2500, 1]
    for coords, feats in grids:
        assert feats.shape[1] == 4
        assert client.infer("conv", coords, feats)["out"].shape == (len(coords), 3)
    shapes = {(c - c.min(axis=0)).tobytes() for c, _ in (grids[1], grids[4])}
    assert len(shapes) == 1 and not np.array_equal(grids[1][0], grids[4][0])  # the same, moved
    assert np.unique(grids[2][1]).size > 100 and not np.array_equal(grids[2][1], grids[5][1])
    # A surface: a voxel in its middle has neighbours, and far fewer than the 26 of a solid.
    surface = grids[2][0]
    rows = set(map(tuple, surface[:, 1:].tolist()))
    steps = [(x, y, z) for x in (-1, 0, 1) for y in (-1, 0, 1) for z in (-1, 0, 1)]
    near = [sum((x + i, y + j, z + k) in rows for i, j, k in steps) - 1 for x, y, z in rows]
    assert 4 < np.mean(near) < 16


def test_a_seed_says_it_all(tmp_path):
    words = ("--channels", 3, "--voxels", "50,60", "--count", 5)
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        perf_data(*words, "--seed", seed, "-o", tmp_path / f"{name}.json")
    a, b, c = ((tmp_path / f"{name}.json").read_bytes() for name in "abc")
    assert a == b and a != c
    assert len(read(tmp_path / "c.json")) == 5


@pytest.mark.parametrize("dtype", sorted(TYPES))
def test_forms_and_types_say_the_same(tmp_path, dtype):
    words = ("--channels", 2, "--voxels", 333, "--coords-name", "where", "--feats-name", "what")
    perf_data(*words, "--dtype", dtype, "-o", tmp_path / "b64.json")
    [(coords, feats)] = read(tmp_path / "b64.json", dtype, ("where", "what"))
    perf_data(*words, "--as", "numbers", "-o", tmp_path / "numbers.json")
    [(same, numbers)] = read(tmp_path / "numbers.json", names=("where", "what"))
    assert np.array_equal(coords, same) and np.array_equal(feats.astype(np.float32), numbers)
    (tmp_path / "raw").mkdir()
    said = perf_data(*words, "--dtype", dtype, "--as", "files", "-o", tmp_path / "raw")
    assert said == "--shape where:333,4 --shape what:333,2\n"
    assert (tmp_path / "raw" / "where").read_bytes() == coords.tobytes()
    assert (tmp_path / "raw" / "what").read_bytes() == feats.tobytes()


def test_scans_of_files(daemon, client, tmp_path):
    coords, feats = random_grid(3, 200)
    np.savez(tmp_path / "whole.npz", coords=coords, feats=feats)
    np.save(tmp_path / "points.npy", np.random.default_rng(1).uniform(0, 9, (500, 3)))
    out = tmp_path / "scans.json"
    perf_data("--server", daemon.grpc, "-m", "conv", "--voxel", 0.5, "--count", 3, "-o", out,
              "--from", tmp_path / "points.npy")
    cells = {len(c) for c, _ in read(out)}
    assert len(cells) == 1 and 300 < cells.pop() <= 500
    perf_data("--server", daemon.grpc, "-m", "conv", "--count", 2, "-o", out,
              "--from", tmp_path / "whole.npz")
    (first, second) = read(out)
    assert np.array_equal(first[0], coords) and np.array_equal(first[1], feats)  # its own feats
    assert np.array_equal(second[1], feats) and not np.array_equal(second[0], coords)
    assert np.array_equal(client.infer("conv", *first)["out"],
                          client.infer("conv", *second)["out"])  # moved, and otherwise equal


@pytest.mark.parametrize("words, says", [
    (["--channels", 4], "expected --voxels"),
    (["--channels", 4, "--voxels", 5, "--from", "a.npy"],
     "expected one of --voxels N,N,... and --from FILE,..., got both"),
    (["--voxels", 5], "expected --model NAME, or --channels"),
    (["--channels", 4, "--voxels", "5,,6"], "--voxels: expected numbers"),
    (["--channels", 4, "--voxels", "5,x"], "--voxels: expected numbers"),
    (["--channels", 4, "--voxels", "0"], "--voxels: expected numbers"),
    (["--channels", 4, "--voxels", ",".join("1" * 65)], "at most 64"),
    (["--channels", 4, "--voxels", 5, "--as", "xml"], "--as: expected"),
    (["--channels", 4, "--voxels", 5, "--as", "numbers", "--dtype", "fp16"], "--as: expected b64"),
    (["--channels", 4, "--voxels", "5,6", "--as", "files"], "one grid"),
    (["--channels", 4, "--voxels", 5, "--dtype", "int8"], "--dtype: expected"),
    (["--channels", 4, "--from", "no.npy"], "no.npy"),
    (["--channels", 4, "--voxels", 5, "--count", 0], "--count: expected"),
    (["--channels", 4, "--voxels", 5, "--coords-name", "x", "--feats-name", "x"],
     "--feats-name: expected another name"),
])
def test_what_cannot_be_is_said(tmp_path, words, says):
    out = tmp_path / "out.json"
    assert says in perf_data(*words, "-o", out, code=2)
    assert not out.exists()


LIMITED = {"low": ([41, 100, 88], 20000), "flat": ([30, 40, 1], 1000), "free": (None, 300)}


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    """Models of detectors and of two axes, whose grids have a shape."""
    repository = tmp_path_factory.mktemp("limited")
    for name, (shape, most) in LIMITED.items():
        made = ConvModel()
        if shape:
            made.network["inputs"]["coords"] = {"name": "coords", "spatial_shape": shape}
        made.network["limits"]["voxels_max"] = most
        made.write(repository, name)
    with Daemon(repository, tmp_path_factory.mktemp("daemon")) as one:
        yield one


@pytest.mark.parametrize("name, voxels", [("low", "848,10000,20000"), ("flat", "100,500"),
                                          ("free", "300")])
def test_grids_that_the_model_takes(limited, tmp_path, name, voxels):
    out = tmp_path / "out.json"
    server = ("--server", limited.grpc, "-m", name)
    perf_data(*server, "--voxels", voxels, "--count", 7, "-o", out)
    grids = read(out)
    with Client(limited.grpc) as client:
        for coords, feats in grids:
            assert client.infer(name, coords, feats)["out"].shape == (len(coords), 3)
    assert len({coords.tobytes() for coords, _ in grids}) > len(grids) // 2  # "flat" has few places
    words = ("bench", *server, "--requests", "3", "--warmup", "0")
    done = subprocess.run([os.environ["VOXEL"], *words], capture_output=True, text=True,
                          timeout=PATIENCE)
    most = {"low": "10000 voxels", "flat": "1000 voxels", "free": "300 voxels"}[name]
    assert done.returncode == 0 and f"{name}: {most}" in done.stdout, done


@pytest.mark.parametrize("name, voxels, says", [
    ("low", 20001, "20001 voxels are more than the model's voxels_max, 20000"),
    ("free", 301, "301 voxels are more than the model's voxels_max, 300"),
    ("flat", 1201, "1201 voxels do not fit into the model's spatial_shape 30x40x1"),
])
def test_grids_that_no_request_may_have(limited, tmp_path, name, voxels, says):
    server = ("--server", limited.grpc, "-m", name)
    assert says in perf_data(*server, "--voxels", voxels, "-o", tmp_path / "o.json", code=2)


@pytest.mark.parametrize("far, says", [
    ((7, 99, 0), "f.npz: voxel (7, 99, 0) lies outside of the model's spatial_shape 30x40x1"),
    ((29, 39, 0), "f.npz fills the model's spatial_shape 30x40x1, where it cannot be moved"),
])
def test_a_file_that_has_no_room(limited, tmp_path, far, says):
    np.savez(tmp_path / "f.npz", coords=np.array([[0, 0, 0, 0], [0, *far]], np.int32))
    assert says in perf_data("--server", limited.grpc, "-m", "flat", "--from", tmp_path / "f.npz",
                             "--count", 2, "-o", tmp_path / "o.json", code=2)
    assert not (tmp_path / "o.json").exists()


def test_options_that_do_nothing_are_refused(daemon, tmp_path):
    model = ("--server", daemon.grpc, "-m", "conv", "--voxels", 5, "-o", tmp_path / "out.json")
    for option, words in (("voxel", (*model, "--voxel", 1)),
                          ("feats-name", (*model, "--feats-name", "a")),
                          ("coords-name", (*model, "--coords-name", "a")),
                          ("version", ("--channels", 4, "--voxels", 5, "--version", 1,
                                       *model[-2:]))):
        assert f"--{option} has no effect: " in perf_data(*words, code=2)


def test_what_the_model_does_not_take(daemon, tmp_path):
    server = ("--server", daemon.grpc, "--voxels", 5, "-o", tmp_path / "out.json")
    assert "takes FP32" in perf_data(*server, "-m", "conv", "--dtype", "fp16", code=2)
    assert "4 channels" in perf_data(*server, "-m", "conv", "--channels", 3, code=2)
    assert "NOT_FOUND" in perf_data(*server, "-m", "nope", code=1)
    np.savez(tmp_path / "two.npz", coords=np.zeros((1, 4), np.int32), feats=np.ones((1, 2), "f4"))
    said = perf_data("--server", daemon.grpc, "-m", "conv", "--from", tmp_path / "two.npz", "-o",
                     tmp_path / "out.json", code=2)
    assert re.search(r"feats of 2 channels; the input takes 4", said)
    np.savez(tmp_path / "nan.npz", coords=np.zeros((1, 4), np.int32),
             feats=np.full((1, 4), np.nan, "f4"))
    assert "NaN" in perf_data(*server[:2], "-m", "conv", "--from", tmp_path / "nan.npz", "--as",
                              "numbers", "-o", tmp_path / "out.json", code=2)
    assert not (tmp_path / "out.json").exists()
    full = tmp_path / "full.json"
    full.symlink_to("/dev/full")
    assert "cannot be written" in perf_data("--channels", 4, "--voxels", 9000, "-o", full, code=2)
    assert os.path.exists("/dev/full")  # an incomplete file is removed, a device is not


def test_no_scan_is_overwritten(tmp_path):
    """By whatever path: each of --from, a link, and a raw file that has an input's name."""
    scans = [tmp_path / f"{name}.npy" for name in "ab"]
    for scan in scans:
        np.save(scan, np.zeros((1, 3), np.int32))
    before = scans[0].read_bytes()
    (tmp_path / "link.json").symlink_to(scans[1])
    words = ("--channels", 4, "--from", ",".join(map(str, scans)))
    raw = ("--channels", 4, "--from", scans[1], "--as", "files", "--coords-name", "b.npy")
    for which, out, says in (
            (words, scans[0], "a.npy: expected an output that ends in .json"),
            (words, tmp_path / "scan", "scan: expected an output that ends in .json"),
            (words, tmp_path / "link.json", "link.json is the input and would be overwritten"),
            (raw, tmp_path, "b.npy is the input and would be overwritten")):
        assert says in perf_data(*which, "-o", out, code=2)
        assert [scan.read_bytes() for scan in scans] == [before, before]
    assert sorted(os.listdir(tmp_path)) == ["a.npy", "b.npy", "link.json"]


def test_what_fails_leaves_what_was_there(tmp_path):
    """The first grid is written when the second cannot be read."""
    np.save(tmp_path / "one.npy", np.zeros((1, 3), np.float32))
    out = tmp_path / "out.json"
    out.write_text("old")
    words = ("--channels", 4, "--voxel", 1, "--from", f"{tmp_path}/one.npy,{tmp_path}/no.npy")
    assert "no.npy" in perf_data(*words, "-o", out, code=2)
    assert out.read_text() == "old"
    assert "no.npy" in perf_data(*words, "-o", tmp_path / "new.json", code=2)
    assert sorted(os.listdir(tmp_path)) == ["one.npy", "out.json"]
    perf_data(*words[:-1], tmp_path / "one.npy", "-o", out)
    assert len(read(out)) == 1
    assert sorted(os.listdir(tmp_path)) == ["one.npy", "out.json"]
