# SPDX-License-Identifier: Apache-2.0
"""inputs.coords.axes: a .ply's x, y and z reach a network in the order of its training."""
import base64
import json
import os
import re
import subprocess

import numpy as np
import pytest

from model_files import ConvModel, random_grid
from voxeld import Client
from voxeld_process import PATIENCE, Daemon

ORDERS = {"none": "xyz", "zyx": "zyx", "yzx": "yzx"}  # model: what its columns are


@pytest.fixture(scope="module", name="daemon")
def fixture_daemon(tmp_path_factory):
    """The same network three times, of which one does not say its axes."""
    folder = tmp_path_factory.mktemp("axes")
    for name in ORDERS:
        model = ConvModel(warmup=[100])
        if name != "none":
            model.network["inputs"]["coords"] = {"axes": name}
        model.write(folder / "repository", name)
    with Daemon(folder / "repository", folder) as started:
        yield started


def voxel(daemon, folder, *words, command="infer"):
    return subprocess.run([os.environ["VOXEL"], command, "--server", daemon.grpc, *map(str, words)],
                          cwd=folder, capture_output=True, text=True, timeout=PATIENCE)


def columns(places, order):
    """[b, x, y, z] with the axes in that order."""
    return places[:, [0, *(1 + "xyz".index(axis) for axis in order)]]


def write_ply(path, places, feats, size=None):
    kind = "int" if size is None else "float"
    lines = ["ply", "format ascii 1.0", f"element vertex {len(places)}",
             *(f"property {kind} {axis}" for axis in "xyz"), "property int sample",
             *(f"property float f{c}" for c in range(feats.shape[1])), "end_header"]
    at = places[:, 1:] if size is None else (places[:, 1:] + 0.5) * size
    lines += [" ".join(map(str, [*p, s, *f]))
              for p, s, f in zip(at.tolist(), places[:, 0].tolist(), feats.tolist())]
    path.write_text("\n".join(lines) + "\n")


def read_ply(path):
    """[N, 3] of a binary .ply whose vertices have x, y, z, sample and floats."""
    head, body = path.read_bytes().split(b"end_header\n", 1)
    lines = head.decode().splitlines()
    types = [(line.split()[2], {"int": "<i4", "float": "<f4"}[line.split()[1]])
             for line in lines if line.startswith("property")]
    rows = np.frombuffer(body, np.dtype(types))
    return np.stack([rows[axis] for axis in "xyz"], 1)


def sides(count):
    """Voxels of two samples, no two axes alike, and their feats."""
    coords, feats = random_grid(7, count, samples=2)
    return coords * np.int32([1, 1, 1, 1]) + np.int32([0, 0, 100, -50]), feats


@pytest.mark.parametrize("size", [None, 0.25])
def test_a_ply_is_answered_as_the_network_was_trained(daemon, tmp_path, size):
    places, feats = sides(120)
    write_ply(tmp_path / "a.ply", places, feats, size)
    client = Client(daemon.grpc)
    words = ["--feats", "f0,f1,f2,f3", *(["--voxel", size] if size else [])]
    answers = {}
    for name, order in ORDERS.items():
        expected = client.infer(name, columns(places, order), feats)["out"]
        done = voxel(daemon, tmp_path, "--model", name, "a.ply", *words, "-o", f"{name}.npz")
        assert done.returncode == 0, done.stderr
        out = np.load(tmp_path / f"{name}.npz")
        np.testing.assert_array_equal(out["coords"], columns(places, order))  # as they were sent
        np.testing.assert_array_equal(out["out"], expected)
        said = f"columns 1 to 3 of coords are {', '.join(order[:2])} and {order[2]}, as the model"
        assert (said in done.stderr) == (name != "none"), done.stderr
        quiet = voxel(daemon, tmp_path, "--model", name, "a.ply", *words, "-q", "-o", "out.ply")
        assert (quiet.returncode, quiet.stderr) == (0, "")
        at = places[:, 1:] if size is None else (places[:, 1:] + 0.5) * size
        np.testing.assert_array_equal(read_ply(tmp_path / "out.ply"), at)  # where the file has them
        answers[name] = expected
    assert np.abs(answers["zyx"] - answers["none"]).max() > 0.1  # the order is no detail
    turned = voxel(daemon, tmp_path, "--model", "none", "a.ply", *words, "--axes", "zyx", "-o",
                   "turned.npy")
    assert turned.returncode == 0 and "as --axes says" in turned.stderr, turned.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "turned.npy"), answers["zyx"])


def test_columns_of_numpy_are_sent_as_they_are(daemon, tmp_path):
    """They have no names.  A .ply of their answer has x, y and z by the model's order."""
    places, feats = sides(60)
    coords = columns(places, "zyx")
    np.savez(tmp_path / "a.npz", coords=coords, feats=feats)
    done = voxel(daemon, tmp_path, "--model", "zyx", "a.npz", "-o", "out.npz")
    assert done.returncode == 0 and "columns" not in done.stderr, done.stderr
    out = np.load(tmp_path / "out.npz")
    np.testing.assert_array_equal(out["coords"], coords)
    expected = Client(daemon.grpc).infer("zyx", coords, feats)["out"]
    np.testing.assert_array_equal(out["out"], expected)
    done = voxel(daemon, tmp_path, "--model", "zyx", "a.npz", "-o", "out.ply", "--render", "a.png")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(read_ply(tmp_path / "out.ply"), places[:, 1:])
    # The picture is that of the file in which x, y and z have names.
    write_ply(tmp_path / "a.ply", places, feats)
    done = voxel(daemon, tmp_path, "--model", "zyx", "a.ply", "--feats", "f0,f1,f2,f3", "--render",
                 "b.png")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_the_order_is_told(daemon, tmp_path):
    told = re.findall("^  axes +(.*)$", voxel(daemon, tmp_path, command="models").stdout, re.M)
    said = "columns 1 to 3 of the coordinates"
    assert [re.split("  +", one) for one in told] == [["yzx", said], ["zyx", said]]  # by name
    places, feats = sides(60)
    write_ply(tmp_path / "a.ply", places, feats)
    sent = voxel(daemon, tmp_path, "--model", "zyx", "--from", "a.ply", "-o", "a.json",
                 command="perf-data")
    assert sent.returncode == 0, sent.stderr
    first = json.loads((tmp_path / "a.json").read_text())["data"][0]["coords"]["b64"]
    first = np.frombuffer(base64.b64decode(first), "<i4").reshape(-1, 4)
    placed = columns(places, "zyx")
    np.testing.assert_array_equal(first - first[0], placed - placed[0])  # it may be moved
    assert voxel(daemon, tmp_path, "--model", "zyx", "a.ply", "--requests", 2, "--warmup", 0,
                 command="bench").returncode == 0


@pytest.mark.parametrize("words, sentence", [
    (("a.ply", "--axes", "zyy"), "--axes: expected the axes of columns 1 to 3, such as xyz or zyx"),
    (("a.npz", "--axes", "zyx"), "it applies only to a .ply or a picture")])
def test_an_order_that_is_none_is_refused(daemon, tmp_path, words, sentence):
    places, feats = sides(20)
    write_ply(tmp_path / "a.ply", places, feats)
    np.savez(tmp_path / "a.npz", coords=places, feats=feats)
    done = voxel(daemon, tmp_path, "--model", "zyx", *words)
    assert done.returncode == 2 and sentence in done.stderr, done.stderr
