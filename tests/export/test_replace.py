# SPDX-License-Identifier: Apache-2.0
"""What an export may replace: what an export wrote, and nothing else without --replace."""

import json
import os
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from voxeld_export import ExportError
from voxeld_export.cli import main
from voxeld_export.folder import highest_version, versions_of
from voxeld_export.network import Network

SMALL = ["--set", "planes=8,8,8,8,8,8,8,8", "--set", "stem=8"]
WORDS = ["family", "minkunet18", *SMALL, "--no-check", "-o"]


def run(capsys, *words):
    """(exit code, stderr)."""
    code = main([str(word) for word in words])
    return code, capsys.readouterr().err


def state_of(folder):
    """{path: bytes} of all files."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def model(capsys, folder):
    assert run(capsys, *WORDS, folder)[0] == 0
    return folder


def test_an_export_replaces_an_export(capsys, model):
    before = state_of(model)
    assert sorted(before) == ["1/weights.safetensors", "example.npz", "network.json"]
    assert run(capsys, *WORDS, model)[0] == 0
    assert state_of(model) == before
    # Another network, too; and what a stopped export or a person with mkdir left is nothing.
    (model / "2").mkdir()
    assert run(capsys, *WORDS, model, "--set", "classes=5")[0] == 0
    assert state_of(model)["network.json"] != before["network.json"]
    (model / "example.npz").unlink()
    assert run(capsys, *WORDS, model)[0] == 0
    assert state_of(model) == before


def versions(folder):
    for name in ("2", "10"):
        shutil.copytree(folder / "1", folder / name)


def edited(**keys):
    def edit(folder):
        document = json.loads((folder / "network.json").read_text())
        (folder / "network.json").write_text(json.dumps({**document, **keys}))

    return edit


def written(name):
    return lambda folder: (folder / name).write_text("precious")


def many(folder):
    for number in range(12):
        (folder / f"note{number:02}").write_text("precious")


def linked(folder):
    os.rename(folder / "1", folder.parent / ".weights")
    (folder / "1").symlink_to(folder.parent / ".weights")


def deep(folder):
    (folder / "docs" / "old").mkdir(parents=True)
    (folder / "docs" / "old" / "README").write_text("precious")


def by_hand(folder):
    path = folder / "1" / "weights.safetensors"
    save_file(load_file(path), path)


LOST = {
    "versions": (versions, "would lose versions 2, 10; expected a new folder, an empty one, or"),
    "a file": (written("README"), "would lose README; expected"),
    "a hidden file": (written(".git"), "would lose .git; expected"),
    "a file beside the weights": (written("1/notes"), "would lose 1/notes; expected"),
    "a folder": (deep, "would lose docs; expected"),
    "a link": (linked, "would lose version 1; expected"),
    "batching and limits": (
        edited(batching={"wait_us": 5}, limits={"voxels_max": 9}),
        "would lose batching, limits of network.json; expected",
    ),
    "many files": (
        many,
        "would lose note00, note01, note02, note03, note04, note05, note06, note07 and 4 more;",
    ),
    "weights made by hand": (
        by_hand,
        "would lose 1/weights.safetensors, which no export wrote; expected",
    ),
    "damaged weights": (
        written("1/weights.safetensors"),
        "would lose 1/weights.safetensors, which no export wrote; expected",
    ),
    "no JSON": (written("network.json"), "would lose network.json, which is not JSON; expected"),
}


@pytest.mark.parametrize("name", LOST)
def test_lost(capsys, model, name):
    change, said = LOST[name]
    change(model)
    before = state_of(model)
    code, err = run(capsys, *WORDS, model)
    assert code == 1 and said in err and "--replace (replace=True)" in err, err
    assert state_of(model) == before
    assert [path.name for path in model.parent.iterdir() if path.name != ".weights"] == ["net"]
    assert run(capsys, *WORDS, model, "--replace")[0] == 0
    assert sorted(state_of(model)) == ["1/weights.safetensors", "example.npz", "network.json"]


def test_keys_that_come_again(capsys, folder):
    """The limits that a family writes are no loss; other ones are."""
    words = ["family", "second", "--set", "spatial_shape=41,32,32", "--set", "voxels_max=5000"]
    words += ["--no-check", "-o", folder]
    assert run(capsys, *words)[0] == 0
    assert "limits" in json.loads((folder / "network.json").read_text())
    assert run(capsys, *words)[0] == 0
    edited(limits={"voxels_max": 9})(folder)
    code, err = run(capsys, *words)
    assert code == 1 and "would lose limits of network.json" in err


def test_a_version_that_comes_meanwhile(capsys, folder, monkeypatch):
    """An export can take hours; the last look is just before the folder is replaced."""
    assert run(capsys, *WORDS, folder)[0] == 0
    plain = Network.write

    def slow(self, made, *rest, **more):
        versions(folder)
        return plain(self, made, *rest, **more)

    monkeypatch.setattr(Network, "write", slow)
    code, err = run(capsys, *WORDS, folder)
    assert code == 1 and "would lose versions 2, 10" in err
    assert (folder / "2" / "weights.safetensors").exists()
    assert [path.name for path in folder.parent.iterdir()] == ["net"]


def test_a_module_and_an_onnx_file(tmp_path):
    """They take replace=True."""
    import spconv.pytorch as sp
    import torch
    from conftest import cloud, trained
    from libspconv_file import File, subm
    from voxeld_export import from_module, from_onnx

    at = cloud("sheet", (9, 12, 10))
    x = sp.SparseConvTensor(torch.randn(len(at), 4).half().float(), at, [9, 12, 10], 2)
    file = File(x)
    path = file.save(tmp_path / "scn.onnx", file.conv(subm(4, 8, "a"), x, "ReLU"))
    net = trained(sp.SparseSequential(sp.SubMConv3d(4, 8, 3, bias=False)))
    for name, export in (
        ("module", lambda folder, **how: from_module(net, x, folder, check=False, **how)),
        ("onnx", lambda folder, **how: from_onnx(path, folder, check=False, **how)),
    ):
        folder = tmp_path / name
        export(folder)
        export(folder)
        written("README")(folder)
        with pytest.raises(ExportError, match="would lose README"):
            export(folder)
        export(folder, replace=True)
        assert not (folder / "README").exists()


def test_versions_of(tmp_path):
    """As the server reads names."""
    for name in ("1", "02", "7", "v3", "0", "2147483647", "2147483648", "٣", "-1", "1.5", "12"):
        (tmp_path / name).mkdir()
    assert versions_of(tmp_path) == [1, 7, 12, 2147483647]
    assert highest_version(tmp_path) == 2147483647


# --- voxeld-export calibrate -o ---


def wide(folder, seed=4, channels=128):
    """A model whose second convolution is wide enough, and words that calibrate it."""
    rng = np.random.default_rng(seed)
    network, x = Network(channels), None
    for number in (1, 2, 3):
        weight = rng.standard_normal((channels, 1, 1, 1, channels)) / np.sqrt(channels)
        tensors = {"weight": (f"c{number}.weight", weight.astype(np.float16))}
        keys = {"channels": channels, "kernel": 1, "layout": "oxyzi", "bias": False}
        x = network.add("subm_conv", [x or network.feats], f"c{number}", tensors=tensors, **keys)
    network.output(x, "y")
    network.write(folder)
    coords = np.array([[0, 0, 0, row] for row in range(20)], np.int32)
    feats = rng.standard_normal((len(coords), channels)).astype(np.float32)
    data = folder.parent / f"{folder.name}.npz"
    np.savez(data, coords=coords, feats=feats)
    return ["calibrate", folder, "--data", data, "-o"]


def test_a_copy_replaces_an_earlier_copy(capsys, folder, tmp_path):
    words, copy = wide(folder), tmp_path / "copy"
    assert run(capsys, *words, copy, "--precision", "fp16")[0] == 0
    before = state_of(copy)
    assert run(capsys, *words, copy, "--precision", "fp16")[0] == 0
    assert state_of(copy) == before
    # Trained again, and calibrated with another bound.
    wide(folder, seed=5)
    assert run(capsys, *words, copy, "--nmse-max", "0.5")[0] == 0
    assert state_of(copy)["1/weights.safetensors"] != before["1/weights.safetensors"]


@pytest.mark.parametrize("name", ["versions", "a file", "batching and limits", "another network"])
def test_a_copy_replaces_nothing_else(capsys, folder, tmp_path, name):
    words, copy = wide(folder), tmp_path / "copy"
    if name == "another network":
        wide(copy, channels=144)
        said = "is another model than "
    else:
        assert run(capsys, *words, copy)[0] == 0
        change, said = LOST[name]
        change(copy)
        if name == "batching and limits":
            said = "its batching differ"
    before = state_of(copy)
    code, err = run(capsys, *words, copy)
    assert code == 1 and said in err and "--replace (replace=True)" in err, err
    assert state_of(copy) == before
    assert run(capsys, *words, copy, "--replace")[0] == 0
    assert sorted(state_of(copy)) == ["1/weights.safetensors", "fp8.npz", "network.json"]
    assert "fp8" in json.loads((copy / "network.json").read_text())


def test_a_copy_onto_itself(capsys, folder):
    """It is as without -o."""
    words = wide(folder)
    written("README")(folder)
    assert run(capsys, *words, folder)[0] == 0
    kept = ["1/weights.safetensors", "README", "fp8.npz", "network.json"]
    assert sorted(state_of(folder)) == kept
