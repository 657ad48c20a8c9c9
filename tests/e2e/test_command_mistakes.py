# SPDX-License-Identifier: Apache-2.0
"""What `voxel` must not take without a word: each of these was a wrong answer with exit code 0."""
import os
import subprocess

import numpy as np
import pytest

from model_files import random_grid
from voxeld_process import PATIENCE

NAMES = ("p", "q", "r_", "s")


@pytest.fixture(scope="module")
def grid():
    """Two samples whose voxels are no one's twice, so that as one sample they would pass too."""
    coords, feats = random_grid(11, 120)
    coords[:, 0] = np.arange(len(coords)) % 2
    return coords, feats


def voxel(daemon, folder, *words, command="infer", model="conv"):
    return subprocess.run([os.environ["VOXEL"], command, "--server", daemon.grpc, "--model", model,
                           *map(str, words)], cwd=folder, capture_output=True, text=True,
                          timeout=PATIENCE)


def write_ply(path, columns, header=""):
    """columns: {"TYPE NAME": values}."""
    rows = zip(*columns.values())
    count = len(next(iter(columns.values())))
    path.write_text(f"ply\nformat ascii 1.0\n{header}element vertex {count}\n"
                    + "".join(f"property {name}\n" for name in columns) + "end_header\n"
                    + "".join(" ".join(map(str, row)) + "\n" for row in rows))


def columns_of(grid, sample="int sample"):
    coords, feats = grid
    columns = {f"int {axis}": coords[:, k + 1] for k, axis in enumerate("xyz")}
    columns |= {f"float {name}": feats[:, k] for k, name in enumerate(NAMES)}
    return columns | ({sample: coords[:, 0]} if sample else {})


@pytest.mark.parametrize("sample", ["int sample", "float sample", "double sample"])
def test_samples_of_a_ply_are_of_any_type(daemon, client, grid, tmp_path, sample):
    write_ply(tmp_path / "a.ply", columns_of(grid, sample))
    done = voxel(daemon, tmp_path, "a.ply", "--feats", ",".join(NAMES), "-o", "a.npz")
    assert done.returncode == 0, done.stderr
    out = np.load(tmp_path / "a.npz")
    np.testing.assert_array_equal(out["coords"], grid[0])
    np.testing.assert_array_equal(out["out"], client.infer("conv", *grid)["out"])
    assert "not used" not in done.stderr


@pytest.mark.parametrize("name", ["batch", "batch_idx", "b", "sample_id", "Sample"])
def test_samples_under_another_name_are_refused(daemon, grid, tmp_path, name):
    coords, feats = grid
    write_ply(tmp_path / "a.ply", columns_of(grid, f"float {name}"))
    np.savez(tmp_path / "a.npz", coords=coords[:, 1:], feats=feats, **{name: coords[:, 0]})
    for file, what, words in (("a.ply", "property", ("--feats", ",".join(NAMES))),
                              ("a.npz", "array", ())):
        done = voxel(daemon, tmp_path, file, *words, "-o", "out.npz")
        assert done.returncode == 2 and f"the {what} '{name}' would not be used" in done.stderr
        assert not (tmp_path / "out.npz").exists()


def test_what_only_looks_like_samples_is_left_alone(daemon, grid, tmp_path):
    """A scan's name, a number of scans, samples that column 0 has already, and blue."""
    coords, feats = grid
    blue = feats[:, 0]
    np.savez(tmp_path / "a.npz", coords=coords[:, 1:], feats=feats, sample="scan 7", batch=4)
    np.savez(tmp_path / "b.npz", coords=coords, feats=feats, batch=coords[:, 0])
    np.savez(tmp_path / "c.npz", coords=coords[:, 1:], feats=feats, r=blue, g=blue, b=blue)
    np.savez(tmp_path / "d.npz", coords=coords[:, 1:], batch=feats)
    for words in (("a.npz",), ("b.npz",), ("c.npz",), ("d.npz", "--feats", "batch")):
        done = voxel(daemon, tmp_path, *words)
        assert done.returncode == 0 and done.stderr == "", done.stderr


def test_properties_that_nobody_uses_are_named(daemon, grid, tmp_path):
    columns = columns_of(grid) | {"float weight": grid[1][:, 0], "int label": grid[0][:, 1]}
    write_ply(tmp_path / "a.ply", columns)
    words = ("a.ply", "--feats", ",".join(NAMES))
    done = voxel(daemon, tmp_path, *words)
    assert done.returncode == 0 and "a.ply: not used: weight, label\n" in done.stderr
    assert voxel(daemon, tmp_path, *words, "-q").stderr == ""
