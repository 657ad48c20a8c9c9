# SPDX-License-Identifier: Apache-2.0
"""The command voxeld-export: what it makes, what it prints, what it returns."""

import json
import os
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import ROOT, cloud
from safetensors.numpy import load_file, save_file
from voxeld_export.cli import _parser, main
from voxeld_export.families import FAMILIES, Random, family

SMALL = ["--set", "planes=8,8,8,8,8,8,8,8", "--set", "stem=8"]
SMALL_OPTIONS = {"planes": (8,) * 8, "stem": 8}


def run(capsys, *words):
    """(exit code, stdout, stderr)."""
    code = main([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_list(capsys):
    code, out, _ = run(capsys, "family", "--list")
    assert code == 0
    listed = [line.split()[0] for line in out.splitlines() if not line.startswith(" ")]
    assert listed == sorted(FAMILIES)
    assert "namings: minkowski" in out and "channels_in=4" in out
    assert out.count("a checkpoint needs --set: spatial_shape\n") == 4


@pytest.mark.parametrize("datatype", ["FP32", "FP16", "BF16"])
def test_family(capsys, folder, datatype):
    code, out, err = run(
        capsys, "family", "minkunet18", "-o", folder, "--datatype", datatype, *SMALL
    )
    assert (code, out.split()[0]) == (0, "output")
    assert err == "the proof's source is the network's definition in numpy\n"  # nothing is trained
    assert sorted(path.name for path in folder.iterdir()) == ["1", "example.npz", "network.json"]
    weights = load_file(folder / "1" / "weights.safetensors") if datatype != "BF16" else {}
    wanted = np.float16 if datatype == "FP16" else np.float32
    assert all(a.dtype == wanted for name, a in weights.items() if name.endswith("kernel"))
    # The proof again, and with a weight that is another.
    code, again, _ = run(capsys, "check", folder)
    assert (code, again) == (0, out)


def test_check_notices_another_weight(capsys, folder):
    run(capsys, "family", "minkunet18", "-o", folder, *SMALL)
    path = folder / "1" / "weights.safetensors"
    weights = load_file(path)
    weights["final.bias"] = weights["final.bias"] + np.float32(0.01)
    save_file(weights, path)
    code, _, err = run(capsys, "check", folder)
    assert code == 1 and "answers other numbers than its source in logits" in err


def checkpoint_of(path, prefix, wrapped):
    """A checkpoint of a small MinkUNet18 with other tensors around it."""
    network, _ = family("minkunet18").network(
        Random(7), naming="minkowski", channels_in=6, classes=5, **SMALL_OPTIONS
    )
    tensors = {prefix + name: array for name, array in network.tensors.items()}
    tensors["criterion.weight"] = np.ones(5, np.float32)
    if path.suffix == ".safetensors":
        save_file({name: np.ascontiguousarray(a) for name, a in tensors.items()}, path)
    else:
        state = {name: torch.from_numpy(array.copy()) for name, array in tensors.items()}
        torch.save({"epoch": 3, "model_state": state} if wrapped else state, path)
    return network.tensors


@pytest.mark.parametrize(
    "name, prefix, wrapped",
    [("a.safetensors", "", False), ("b.pth", "module.", True), ("c.pt", "net.backbone.", False)],
)
def test_checkpoint(capsys, tmp_path, folder, name, prefix, wrapped):
    tensors = checkpoint_of(tmp_path / name, prefix, wrapped)
    words = ["--set", "planes=8,8,8,8,8,8,8,8"]
    code, out, err = run(
        capsys, "checkpoint", tmp_path / name, "--family", "minkunet18", "-o", folder, *words
    )
    assert code == 0, err
    assert out.splitlines()[1].split()[1].endswith("x5")  # classes follow from the head
    if not prefix:
        assert "not part of the family: criterion (1 tensors)" in err
    document = json.loads((folder / "network.json").read_text())
    assert document["inputs"]["feats"]["channels"] == 6
    written = load_file(folder / "1" / "weights.safetensors")
    assert set(written) == set(tensors)
    assert all(np.array_equal(written[name], tensors[name]) for name in tensors)


def test_options_that_no_tensor_tells(capsys, tmp_path, folder):
    """spatial_shape is asked for, recorded answers or not; what is assumed is said and written."""
    small = {"channels": (8,) * 5, "spatial_shape": (41, 64, 64)}
    network, _ = family("second").network(Random(3), **small)
    save_file(network.tensors, tmp_path / "a.safetensors")
    words = ["checkpoint", tmp_path / "a.safetensors", "--family", "second", "-o", folder]
    for more in ([], ["--no-check"], ["--set", "last_pad=1"]):
        code, out, err = run(capsys, *words, *more)
        assert (code, out) == (1, "") and "no tensor tells spatial_shape: voxels along" in err
        assert "for example --set spatial_shape=41,1600,1408" in err and not folder.exists()
    code, _, err = run(capsys, *words, "--set", "spatial_shape=41,64,64")
    assert code == 0, err
    assert "voxeld-export: assumed, as no tensor tells: last_pad=0 (--set gives others)\n" in err
    assert "in numpy, made of the same options: it cannot see a wrong one; the outputs of" in err
    document = json.loads((folder / "network.json").read_text())
    assert document["description"].endswith("; assumed, as no tensor tells: last_pad=0")
    assert document["inputs"]["coords"]["axes"] == "zyx"  # as spatial_shape is asked for
    more = ["--set", "spatial_shape=41,64,64", "--set", "last_pad=1,0,0", "--replace", "--no-check"]
    code, _, err = run(capsys, *words, *more)
    assert code == 0 and "assumed" not in err
    written = (folder / "network.json").read_text()
    assert "assumed" not in written and '"padding": [1, 0, 0]' in written


def test_recorded_outputs(capsys, tmp_path, folder):
    """What the trained network answered is the source; other numbers fail, layer by layer."""
    checkpoint_of(tmp_path / "a.safetensors", "", False)
    words = ["checkpoint", tmp_path / "a.safetensors", "--family", "minkunet18", *SMALL]
    assert run(capsys, *words, "-o", folder)[0] == 0
    recorded = dict(np.load(folder / "example.npz"))
    np.savez(tmp_path / "good.npz", **recorded)
    recorded["out.logits"] = recorded["out.logits"] * 1.001
    np.savez(tmp_path / "other.npz", **recorded)
    code, _, err = run(capsys, *words, "-o", folder, "--recorded", tmp_path / "good.npz")
    assert (code, "definition in numpy" in err) == (0, False)
    code, _, err = run(capsys, *words, "-o", folder, "--recorded", tmp_path / "other.npz")
    assert code == 1 and "answers other numbers than its source in logits" in err
    assert "$ voxel diff" in err


def test_module(capsys, tmp_path, folder):
    (tmp_path / "net.py").write_text("""
import spconv.pytorch as sp
import torch

def both():
    torch.manual_seed(1)
    net = sp.SparseSequential(sp.SubMConv3d(2, 4, 3, bias=False), torch.nn.ReLU())
    at = torch.tensor([[0, 1, 2, 3], [0, 1, 2, 4], [0, 5, 5, 5]], dtype=torch.int32)
    return net.eval(), sp.SparseConvTensor(torch.randn(3, 2), at, [8, 8, 8], 1)

def named():
    net, example = both()
    return {"net": net, "example": example, "outputs": {"": "feature"}}

def wrong():
    return both()[0]

def sized(size):
    return both()

live = both()[0]
""")
    assert run(capsys, "module", f"{tmp_path}/net.py:both", "-o", folder)[0] == 0
    code, out, _ = run(capsys, "module", f"{tmp_path}/net.py:named", "-o", folder)
    assert code == 0 and out.splitlines()[1].startswith("feature ")
    code, _, err = run(capsys, "module", f"{tmp_path}/net.py:wrong", "-o", folder)
    assert code == 1 and "wrong returns a SparseSequential; expected (net, example)" in err
    code, _, err = run(capsys, "module", f"{tmp_path}/net.py:live", "-o", folder)
    assert code == 1 and "net.py:live is a SparseSequential, no function; expected FILE.py:" in err
    code, _, err = run(capsys, "module", f"{tmp_path}/net.py:sized", "-o", folder)
    said = "missing a required argument: 'size'; expected FILE.py:FUNCTION, a function without"
    assert code == 1 and said in err


def test_onnx(capsys, tmp_path, folder):
    from libspconv_file import File, subm
    from spconv.pytorch import SparseConvTensor

    at = cloud("sheet", (9, 12, 10))
    x = SparseConvTensor(torch.randn(len(at), 4).half().float(), at, [9, 12, 10], 2)
    file = File(x)
    path = file.save(tmp_path / "scn.onnx", file.conv(subm(4, 8, "a"), x, "ReLU"))
    code, out, err = run(capsys, "onnx", path, "-o", folder, "--spatial-shape", "9,12,10")
    assert code == 0, err
    assert out.splitlines()[1].startswith("out ")
    code, _, err = run(capsys, "onnx", path, "-o", folder, "--spatial-shape", "9,twelve,10")
    assert code == 1 and "expected something like" in err


MISTAKES = {
    "no such family": (["family", "minkunet"], 1, "no family minkunet; there is centerpoint"),
    "no name": (["family"], 2, "expected a name"),
    "no output": (["family", "minkunet18"], 1, "voxeld-export: where to? -o REPOSITORY/NAME is"),
    "an option that is not there": (
        ["family", "minkunet18", "-o", "x", "--set", "width=3"],
        1,
        "--set width=3: expected KEY=VALUE with a key of channels_in",
    ),
    "a value of another kind": (
        ["family", "minkunet18", "-o", "x", "--set", "planes=wide"],
        1,
        "--set planes=wide: expected something like 32,64,128",
    ),
    "no such naming": (
        ["family", "minkunet18", "-o", "x", "--naming", "keras"],
        1,
        'has no naming "keras"; it has minkowski',
    ),
    "no such file": (
        ["checkpoint", "/nowhere/a.pth", "--family", "second", "-o", "x"],
        1,
        "no file /nowhere/a.pth",
    ),
    "not FILE:FUNCTION": (["module", "net.py", "-o", "x"], 1, "net.py: expected FILE.py:FUNCTION"),
    "no module": (["module", "/nowhere.py:net", "-o", "x"], 1, "no file /nowhere.py"),
    "nothing to check": (["check", "/nowhere"], 1, "/nowhere does not exist; expected REPOSITORY/"),
    "a file to check": (["check", "/dev/null"], 1, "/dev/null is no folder; expected REPOSITORY/"),
    "a model by hand": (["check", "/dev"], 1, "/dev has no example.npz, a request and its source"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(capsys, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    words, code, said = MISTAKES[name]
    got, _, err = run(capsys, *words)
    assert got == code and said in err and len(err.splitlines()) == 1  # its mistake and no more
    assert list(tmp_path.iterdir()) == []  # nothing half-written


@pytest.mark.parametrize("ending", ["npz", "safetensors", "pth"])
@pytest.mark.parametrize("content", ["text", "nothing", "half a zip", "one array"])
def test_a_file_that_is_no_checkpoint(capsys, tmp_path, ending, content):
    path = tmp_path / f"a.{ending}"
    np.savez(tmp_path / "whole.npz", weight=np.zeros((20, 20)))
    np.save(tmp_path / "one.npy", np.zeros(3))
    contents = {
        "text": b"hello\n",
        "nothing": b"",
        "half a zip": (tmp_path / "whole.npz").read_bytes()[:900],
        "one array": (tmp_path / "one.npy").read_bytes(),
    }
    path.write_bytes(contents[content])
    code, _, err = run(capsys, "checkpoint", path, "--family", "second", "-o", tmp_path / "made")
    kinds = {"npz": "an .npz of arrays", "safetensors": "a .safetensors", "pth": "a checkpoint of "}
    assert code == 1 and f"a.{ending} is not {kinds[ending]}" in err
    assert ending != "pth" or "Error: " in err  # a KeyError's text is the key alone: "101"
    assert not (tmp_path / "made").exists()


def test_another_checkpoint(capsys, tmp_path, folder):
    checkpoint_of(tmp_path / "a.safetensors", "", False)
    code, _, err = run(
        capsys, "checkpoint", tmp_path / "a.safetensors", "--family", "second", "-o", folder
    )
    assert code == 1 and "a.safetensors is no second: it has none of" in err
    tensors = load_file(tmp_path / "a.safetensors")
    del tensors["block3.1.norm2.bn.weight"], tensors["criterion.weight"]
    save_file(tensors, tmp_path / "b.safetensors")
    code, _, err = run(
        capsys, "checkpoint", tmp_path / "b.safetensors", "--family", "minkunet18", "-o", folder
    )
    assert code == 1 and "lacks 1 tensor of the family: block3.1.norm2.bn.weight; left" in err
    assert err.endswith("left over: none\n")
    tensors["bn0.bn.num_batches_tracked"] = np.int64([3])
    save_file(tensors, tmp_path / "b.safetensors")
    words = ("checkpoint", tmp_path / "b.safetensors", "--family", "minkunet18", "-o", folder)
    assert run(capsys, *words)[2].endswith("left over: none\n")
    torch.save(torch.nn.Linear(3, 3), tmp_path / "module.pth")
    words = ("checkpoint", tmp_path / "module.pth", "--family", "minkunet18", "-o", folder)
    said = "perhaps a whole module, and reading those would run code of the file; expected a state_"
    assert said in run(capsys, *words)[2]
    assert not folder.exists()


@pytest.mark.parametrize("ending", ["safetensors", "pth"])
def test_two_networks_in_a_file(capsys, tmp_path, folder, ending):
    """An average of the weights beside them, under a shorter name: which one is meant is asked."""
    torch = pytest.importorskip("torch")
    checkpoint_of(tmp_path / "a.safetensors", "", False)
    tensors = load_file(tmp_path / "a.safetensors")
    average = {name: array * 1.5 for name, array in tensors.items()}
    path = tmp_path / f"both.{ending}"
    if ending == "pth":
        nets = {"model": tensors, "ema": average}
        named = {
            net: {name: torch.nn.Parameter(torch.tensor(array), array.dtype.kind == "f")
                  for name, array in one.items()}
            for net, one in nets.items()
        }
        torch.save({"epoch": 3, "state_dict": named}, path)
        first = "state_dict."
    else:
        both = {f"model.{name}": array for name, array in tensors.items()}
        save_file({**both, **{f"ema.{name}": array for name, array in average.items()}}, path)
        first = ""
    args = ("checkpoint", path, "--family", "minkunet18")
    code, _, err = run(capsys, *args, "-o", folder)
    assert code == 1 and "has 2 networks of this family, with the prefixes " in err
    assert f"'{first}ema.' (" in err and f"'{first}model.' (" in err and "--prefix" in err
    code, _, err = run(capsys, *args, "--prefix", "teacher.", "-o", folder)
    assert code == 1 and "has no tensor teacher." in err
    assert not folder.exists()
    kernels = []
    for net in ("model", "ema"):
        code, _, err = run(capsys, *args, "--prefix", f"{first}{net}.", "-o", folder, "--replace")
        assert code == 0, err
        made = load_file(next(folder.rglob("*.safetensors")))
        kernels.append(next(made[name] for name in sorted(made) if made[name].ndim == 3))
    assert np.allclose(kernels[1], 1.5 * kernels[0], rtol=1e-3)


def test_commands_of_the_readme():
    """Each is understood; the other tests run what they do."""
    text = (ROOT / "clients" / "export" / "README.md").read_text()
    lines = re.search(r"<!-- commands -->\n```sh\n(.*?)```", text, re.DOTALL)[1].splitlines()
    assert len(lines) == 8
    for line in lines:
        words = shlex.split(line, comments=True)
        assert words[0] == "voxeld-export"
        options = _parser().parse_args(words[1:])
        assert callable(options.run)
        if getattr(options, "family", None) or getattr(options, "name", None):
            family(getattr(options, "family", None) or options.name)


def test_wrong_usage():
    recorded = ["family", "second", "-o", "x", "--recorded", "a.npz"]  # of random weights
    for words in ([], ["export"], ["family", "second", "--datatype", "INT8"], recorded):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code == 2


def test_without_torch(folder):
    """Families and checkpoints of safetensors need no torch."""
    script = (
        "import sys; sys.modules['torch'] = None; from voxeld_export.cli import main; "
        "sys.exit(main(sys.argv[1:]))"
    )

    def without(*words):
        return subprocess.run(
            [sys.executable, "-c", script, *words],
            env={**os.environ, "PYTHONPATH": f"{ROOT}/clients/export:{ROOT}/clients/python"},
            capture_output=True,
            text=True,
            check=False,
        )

    done = without("family", "minkunet18", "-o", str(folder), *SMALL)
    assert done.returncode == 0, done.stderr
    done = without("module", "net.py:made", "-o", str(folder))
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert "torch is not installed here: run this in the environment" in done.stderr
