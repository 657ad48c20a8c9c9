# SPDX-License-Identifier: Apache-2.0
"""A proof proves what it says: recordings that are none, and a model of several versions."""

import os
import shutil
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from voxeld_export import CheckFailed, ExportError
from voxeld_export.check import check_folder
from voxeld_export.cli import main
from voxeld_export.example import Example, four_of, whole
from voxeld_export.libraries.base import four_columns
from voxeld_export.recording import save_recording

SMALL = ["--set", "planes=8,8,8,8,8,8,8,8", "--set", "stem=8"]


def run(capsys, *words):
    """(exit code, stdout, stderr)."""
    code = main([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model's folder; who changes it takes a copy."""
    folder = tmp_path_factory.mktemp("made") / "net"
    assert main(["family", "minkunet18", *SMALL, "-o", str(folder)]) == 0
    return folder


@pytest.fixture
def arrays(made):
    with np.load(made / "example.npz") as file:
        return dict(file)


def trained(folder, family="minkunet18", *settings):
    """The words of a command that exports a folder's weights as a checkpoint."""
    return ["checkpoint", folder / "1" / "weights.safetensors", "--family", family, *settings]


def without(*names):
    return lambda arrays: [arrays.pop(name) for name in names]


def changed(name, change):
    return lambda arrays: arrays.update({name: change(arrays[name])})


def none_of(arrays):
    for name in arrays:
        arrays[name] = arrays[name][:0]


def renamed(arrays):
    arrays["out.logit"] = arrays.pop("out.logits")


def more(arrays):
    arrays["out.features"] = arrays["out.logits"]


def last_wrong(value):
    def change(array):
        array = array.astype(np.result_type(array, value))
        array[5, 2] = value
        return array

    return change


REFUSED = {
    "no output": (
        without("out.logits"),
        "lacks out.logits, of which nothing would be proven; expected out.logits, got none",
    ),
    "no voxels": (none_of, "rec.npz has 0 voxels, which proves nothing; expected 1 or more"),
    "another name": (
        renamed,
        "rec.npz has out.logit, and the network no output logit (the nearest is logits); "
        "expected out.logits",
    ),
    "one output more": (more, "has out.features, and the network no output features"),
    "no whole numbers": (
        changed("coords", lambda a: a + 0.4),
        "rec.npz: coords have 0.4 at [0, 0]; expected whole numbers of int32",
    ),
    "beyond int32": (
        changed("coords", last_wrong(np.int64(2**32 + 7))),
        "rec.npz: coords have 4294967303 at [5, 2]; expected whole numbers of int32",
    ),
    "a NaN": (changed("coords", last_wrong(np.float32("nan"))), "coords have nan at [5, 2]"),
    "complex coordinates": (changed("coords", lambda a: a * 1j), "coords are complex128"),
    "complex features": (changed("feats", lambda a: a * 1j), "feats are complex64; expected num"),
    "a feature beyond float32": (
        changed("feats", last_wrong(np.float64(1e39))),
        "feats have 1e+39 at [5, 2]; expected numbers of float32",
    ),
    "features that are NaN": (
        changed("feats", last_wrong(np.float32("nan"))),
        "numbers that are NaN or infinite, the first nan at [5, 2]; expected finite numbers",
    ),
    "rows without a voxel": (changed("feats", lambda a: a[:-1]), "as coords have"),
    "an output of text": (
        changed("out.logits", lambda a: a.astype("U9")),
        "out.logits is <U9; expected numbers",
    ),
    "an infinite output": (
        changed("out.logits", last_wrong(np.float32("inf"))),
        "the source's output logits has 1 of ",
    ),
    "rows without a coordinate": (
        lambda arrays: arrays.update({"at.logits": arrays["coords"][:-1]}),
        "rows, those of at.logits",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_no_recording(capsys, tmp_path, folder, made, arrays, name):
    change, said = REFUSED[name]
    change(arrays)
    np.savez(tmp_path / "rec.npz", **arrays)
    words = [*trained(made), "-o", folder, "--recorded", tmp_path / "rec.npz"]
    code, out, err = run(capsys, *words)
    assert (code, out) == (1, "") and said in err, err
    assert "--recorded FILE" not in err and "is 0 in all" not in err
    assert not folder.exists()


def test_a_recording_of_some_outputs(capsys, tmp_path, folder):
    """Four outputs of five are not proven by a recording of one."""
    options = ["--set", "multi_scale=true", "--set", "spatial_shape=41,64,64"]
    assert run(capsys, "family", "second", *options, "--no-check", "-o", folder)[0] == 0
    with np.load(folder / "example.npz") as file:
        arrays = {name: file[name] for name in ("coords", "feats", "out.spatial_features")}
    np.savez(tmp_path / "rec.npz", **arrays)
    words = trained(folder, "second", *options)
    words += ["-o", tmp_path / "other", "--recorded", tmp_path / "rec.npz"]
    for more_words in ([], ["--no-check"]):
        code, _, err = run(capsys, *words, *more_words)
        assert code == 1 and "lacks out.x_conv1, out.x_conv2, out.x_conv3, out.x_conv4, of" in err
        assert "got out.spatial_features\n" in err



ACCEPTED = {
    "int64": lambda a: a.astype(np.int64),
    "uint16": lambda a: a.astype(np.uint16),
    "whole floats": lambda a: a.astype(np.float64),
    "other bytes": lambda a: a.astype(">i4"),
    "Fortran": np.asfortranarray,
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_whole_numbers_of_any_type(capsys, tmp_path, folder, made, arrays, name):
    """And what is saved is row-major, as `voxel diff` wants it."""
    arrays["coords"] = ACCEPTED[name](arrays["coords"])
    if name in ("Fortran", "other bytes"):
        for key in ("feats", "out.logits"):
            arrays[key] = np.asfortranarray(arrays[key]).astype(">f4" if "bytes" in name else "<f4")
    np.savez(tmp_path / "rec.npz", **arrays)
    words = [*trained(made), "-o", folder, "--recorded", tmp_path / "rec.npz"]
    code, _, err = run(capsys, *words)
    assert (code, err) == (0, "")
    with np.load(folder / "example.npz") as saved:
        for key in saved:
            assert saved[key].flags.c_contiguous and saved[key].dtype.isnative
            assert np.array_equal(saved[key], arrays[key])
    words = [os.environ["VOXEL"], "diff", folder / "example.npz", folder]
    done = subprocess.run(
        [*words, "--voxeld", os.environ["VOXELD"]], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_recordings_are_row_major(tmp_path):
    """The one that is saved of a failed proof, too."""
    coords = np.asfortranarray(np.arange(12, dtype=np.int32).reshape(3, 4))
    feats = np.asfortranarray(np.ones((3, 2), np.float32))
    example = Example(coords, feats, {"y": (feats, coords)})
    save_recording(tmp_path / "layers.npz", example, {"a": (feats, None), "b": (feats, coords)})
    example.save(tmp_path / "example.npz")
    for name in ("layers.npz", "example.npz"):
        with np.load(tmp_path / name) as saved:
            assert len(saved) > 3
            assert all(saved[key].flags.c_contiguous for key in saved), name


def test_whole():
    good = np.array([-(2**31), 2**31 - 1, 0])
    assert whole(good).tolist() == good.tolist() and whole(good).dtype == np.int32
    for bad in (2**31, -(2**31) - 1, 0.5, float("inf"), 2**32):
        for make in (four_of, four_columns):
            with pytest.raises(ExportError, match=r"at \[1, 3\]; expected whole numbers of int32"):
                make(np.array([[0, 1, 2, 3], [0, 1, 2, bad]]))


def test_an_output_without_rows(made, arrays):
    """Nothing of it is compared."""
    outputs = {"logits": (arrays["out.logits"][:0], arrays["coords"][:0])}
    example = Example(arrays["coords"], arrays["feats"], outputs)
    with pytest.raises(ExportError, match="the output logits has other voxels than its source"):
        check_folder(made, example)


def test_rows_in_another_order(capsys, tmp_path, folder, made, arrays):
    """at.NAME says which row is which, on the request's voxels, too."""
    order = np.random.default_rng(1).permutation(len(arrays["coords"]))
    arrays["out.logits"] = arrays["out.logits"][order]
    words = [*trained(made), "-o", folder, "--recorded", tmp_path / "rec.npz"]
    np.savez(tmp_path / "rec.npz", **arrays)
    code, _, err = run(capsys, *words)
    assert code == 1 and "answers other numbers than its source in logits" in err
    arrays["at.logits"] = arrays["coords"][order]
    np.savez(tmp_path / "rec.npz", **arrays)
    assert run(capsys, *words)[0] == 0
    assert run(capsys, "check", folder)[0] == 0
    arrays["at.logits"] = arrays["at.logits"] + 1
    np.savez(tmp_path / "rec.npz", **arrays)
    code, _, err = run(capsys, *words)
    assert code == 1 and "the output logits has other voxels than its source: " in err


def test_rows_of_voxels_of_their_own(capsys, tmp_path, folder):
    """Without their coordinates nobody knows which row is which."""
    words = ["family", "voxelnext", "--set", "spatial_shape=41,64,64", "--no-check", "-o", folder]
    assert run(capsys, *words)[0] == 0
    with np.load(folder / "example.npz") as file:
        arrays = dict(file)
    name = next(name for name in arrays if name.startswith("at."))
    del arrays[name]
    np.savez(folder / "example.npz", **arrays)
    code, _, err = run(capsys, "check", folder)
    assert code == 1 and f"voxels of its own; expected {name}, the source's coordinates" in err, err


def test_a_request_alone(capsys, tmp_path, folder, made, arrays):
    """--example: it is no recording, and what it has of outputs is left out."""
    arrays["out.logits"] = arrays["out.logits"] * 2
    np.savez(tmp_path / "rec.npz", **arrays)
    words = ["family", "minkunet18", *SMALL, "-o", folder, "--example", tmp_path / "rec.npz"]
    code, _, err = run(capsys, *words)
    assert code == 0 and "the network's definition in numpy" in err
    with np.load(folder / "example.npz") as saved:
        assert np.array_equal(saved["coords"], arrays["coords"])
        assert not np.array_equal(saved["out.logits"], arrays["out.logits"])
    with pytest.raises(SystemExit):
        main([*map(str, trained(made)), "-o", "x", "--example", "a.npz", "--recorded", "b.npz"])


@pytest.mark.parametrize("name", ["another name", "no output", "no voxels"])
def test_check_of_an_example_that_proves_nothing(capsys, made, tmp_path, arrays, name):
    shutil.copytree(made, tmp_path / "net")
    change, said = REFUSED[name]
    change(arrays)
    np.savez(tmp_path / "net" / "example.npz", **arrays)
    code, out, err = run(capsys, "check", tmp_path / "net")
    assert (code, out) == (1, "") and said.replace("rec.npz", "example.npz") in err, err


def test_check_of_several_versions(capsys, made, tmp_path):
    """The proof is of what clients get: the highest version."""
    folder = tmp_path / "net"
    shutil.copytree(made, folder)
    _, once, _ = run(capsys, "check", folder)
    assert "version" not in once
    for version in ("10", "9"):
        shutil.copytree(folder / "1", folder / version)
    (folder / "11").write_text("a file is no version, as the server has it")
    code, out, _ = run(capsys, "check", folder)
    said = "proven: version 10, which requests get that name no version; not proven (--version N): "
    assert (code, out) == (0, f"{once}{said}1, 9\n")
    path = folder / "10" / "weights.safetensors"
    weights = load_file(path)
    weights["final.bias"] = weights["final.bias"] + np.float32(0.01)
    save_file(weights, path)
    code, out, err = run(capsys, "check", folder)
    assert (code, out) == (1, "") and "version 10 of the exported network answers other" in err
    code, out, _ = run(capsys, "check", folder, "--version", "9")
    assert (code, out) == (0, f"{once}proven: version 9; not proven (--version N): 1, 10\n")
    code, _, err = run(capsys, "check", folder, "--version", "3")
    assert code == 1 and "has no version 3; expected one of 1, 9, 10" in err
    with pytest.raises(CheckFailed):
        check_folder(folder, Example.open(folder / "example.npz"))


def test_onnx(capsys, tmp_path, folder):
    """A recording without outputs is none, though an example may have none."""
    import torch
    from conftest import cloud
    from libspconv_file import File, subm
    from spconv.pytorch import SparseConvTensor

    at = cloud("sheet", (9, 12, 10))
    x = SparseConvTensor(torch.randn(len(at), 4).half().float(), at, [9, 12, 10], 2)
    file = File(x)
    path = file.save(tmp_path / "scn.onnx", file.conv(subm(4, 8, "a"), x, "ReLU"))
    words = ["onnx", path, "-o", folder, "--spatial-shape", "9,12,10", "--recorded"]
    np.savez(tmp_path / "rec.npz", coords=at.numpy(), feats=x.features.numpy())
    code, _, err = run(capsys, *words, tmp_path / "rec.npz")
    assert code == 1 and "rec.npz lacks out.out, of which nothing would be proven" in err
    assert not folder.exists()
