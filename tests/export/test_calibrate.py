# SPDX-License-Identifier: Apache-2.0
"""voxeld-export calibrate: scales from data, voxeld's verdict, and what FP8 computes, in numpy."""

import itertools
import json
import os
import subprocess

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from voxeld_export import fp8
from voxeld_export.cli import main
from voxeld_export.definition import evaluate
from voxeld_export.example import Example
from voxeld_export.network import Network

PLANES = "planes=8,128,128,8,8,8,8,8"
# Of 128 channels in and out.
WIDE = ["block2.0.conv2", "block2.1.conv1", "block2.1.conv2", "conv3p4s2"]
WIDE += ["block3.0.conv1", "block3.0.conv2", "block3.1.conv1", "block3.1.conv2", "conv4p8s2"]


def run(capsys, *words):
    """(exit code, stdout, stderr)."""
    code = main([str(word) for word in words])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.fixture
def model(capsys, folder):
    words = ["--set", PLANES, "--set", "stem=8", "--datatype", "FP16", "--no-check"]
    code, _, err = run(capsys, "family", "minkunet18", "-o", folder, *words)
    assert code == 0, err
    return folder


def document_of(folder):
    return json.loads((folder / "network.json").read_text())


def in_fp8(folder):
    layers = document_of(folder)["layers"]
    return {layer["name"]: layer["fp8_scale"] for layer in layers if "fp8_scale" in layer}


def test_calibrate(capsys, model):
    before = document_of(model)
    code, out, err = run(capsys, "calibrate", model, "--data", model / "example.npz")
    assert code == 0, err
    scales, made = in_fp8(model), document_of(model)
    assert list(scales) == WIDE
    assert list(made) == [*before, "fp8"] and fp8.plain(made) == before
    assert made["fp8"] == {"data": "fp8.npz", "nmse_max": 0.02}
    # The data, and nothing else of the example.
    with np.load(model / "fp8.npz") as data, np.load(model / "example.npz") as example:
        assert sorted(data) == ["coords", "feats"]
        assert all(np.array_equal(data[name], example[name]) for name in data)
    # The smallest scales with which half of e4m3 is enough, from the definition's layers.
    example = Example.open(model / "example.npz")
    reads = {layer["name"]: layer.get("input") for layer in before["layers"]}
    _, kept = evaluate(model, example.coords, example.feats, layers="all")
    for name in scales:
        most = float(np.abs(kept[reads[name]][0]).max())
        assert 100 < most / scales[name] < 230, name  # kept is FP8's own, and differs a little
    # The table and voxeld's verdict.
    lines = out.splitlines()
    assert lines[0].split() == ["layer", "largest", "input", "scale", "NMSE", "of", "weights"]
    assert [line.split()[0] for line in lines[1 : 1 + len(scales)]] == list(scales)
    assert all(0.0003 < float(line.split()[-1]) < 0.0015 for line in lines[1 : 1 + len(scales)])
    assert lines[1 + len(scales)].startswith(f"FP8: {len(scales)} of ")
    assert lines[-1].split()[0] == "logits"


def test_the_proof_of_a_calibrated_model(capsys, model):
    """It is about the network: FP8's error has a bound of its own."""
    code, _, err = run(capsys, "calibrate", model, "--data", model / "example.npz")
    assert code == 0, err
    assert run(capsys, "check", model)[0] == 0


def test_again_is_the_same(capsys, model):
    """A model in FP8 is calibrated without it."""
    words = ["calibrate", model, "--data", model / "example.npz"]
    assert run(capsys, *words)[0] == 0
    first = (model / "network.json").read_bytes()
    assert run(capsys, *words)[0] == 0
    assert (model / "network.json").read_bytes() == first


def test_a_copy(capsys, model, tmp_path):
    before, copy = (model / "network.json").read_bytes(), tmp_path / "copies" / "mine"
    words = ["--data", model / "example.npz", "-o", copy, "--nmse-max", "0.5"]
    code, _, err = run(capsys, "calibrate", model, *words, "--layers", "conv0p1s1,block2.0.conv1")
    assert code == 0, err
    assert (model / "network.json").read_bytes() == before
    assert not (model / "fp8.npz").exists()
    assert list(in_fp8(copy)) == ["conv0p1s1", "block2.0.conv1"]  # as they are named
    assert document_of(copy)["fp8"]["nmse_max"] == 0.5
    assert sorted(path.name for path in copy.iterdir()) == [
        "1",
        "example.npz",
        "fp8.npz",
        "network.json",
    ]
    assert not (copy / "1").is_symlink()
    assert [path.name for path in copy.parent.iterdir()] == ["mine"]  # nothing is left


def test_beyond_the_bound_nothing_changes(capsys, model, tmp_path):
    before = (model / "network.json").read_bytes()
    words = ["calibrate", model, "--data", model / "example.npz", "--nmse-max", "1e-6"]
    for more in ([], ["-o", tmp_path / "copy"]):
        code, out, err = run(capsys, *words, *more)
        assert (code, out) == (1, "")
        assert "voxeld check refuses the result, and nothing is changed" in err
        assert "block2.0.conv2 " in err and "\n  logits " in err
        assert "INVALID_ARGUMENT: " in err and "expected an NMSE of at most 1e-06" in err
    assert (model / "network.json").read_bytes() == before
    assert not (model / "fp8.npz").exists() and not (tmp_path / "copy").exists()


@pytest.mark.parametrize(
    "words, says",
    [
        (["--layers", "nothing"], "there is no layer nothing; expected convolutions"),
        (["--layers", "bn0"], "layer bn0 is a batch_norm; expected a convolution of 1 group"),
        (["--nmse-max", "0"], "an NMSE of 0.0 is no bound"),
        (["--data", "nowhere.npz"], "nowhere.npz does not exist: expected an .npz"),
    ],
)
def test_refusals(capsys, model, words, says):
    data = [] if "--data" in words else ["--data", model / "example.npz"]
    code, _, err = run(capsys, "calibrate", model, *data, *words)
    assert code == 1 and says in err, err
    assert in_fp8(model) == {}


def chain(folder, widths):
    """A model of convolutions c1, c2, ... of widths[0] to widths[1] channels, to widths[2], ..."""
    rng = np.random.default_rng(4)
    coords = np.unique(rng.integers(0, 6, (60, 3)), axis=0)
    coords = np.insert(coords, 0, 0, axis=1).astype(np.int32)
    feats = rng.standard_normal((len(coords), widths[0])).astype(np.float32)
    network = Network(widths[0])
    x = network.feats
    for number, (before, after) in enumerate(itertools.pairwise(widths), 1):
        name = f"c{number}"
        weight = rng.standard_normal((after, 1, 1, 1, before)) / np.sqrt(before)
        tensors = {"weight": (f"{name}.weight", weight.astype(np.float16))}
        keys = {"channels": after, "kernel": 1, "layout": "oxyzi", "bias": False}
        x = network.add("subm_conv", [x], name, tensors=tensors, **keys)
    network.output(x, "y")
    network.write(folder)
    np.savez(folder / "data.npz", coords=coords, feats=feats)
    return ["calibrate", folder, "--data", folder / "data.npz"]


def test_which_layers(capsys, folder):
    """All have multiples of 16; c1 and c8 are the first and the last."""
    words = chain(folder, [128, 128, 128, 112, 112, 128, 144, 128, 128])
    code, _, err = run(capsys, *words)
    assert code == 0, err
    assert list(in_fp8(folder)) == ["c2", "c6", "c7"]


@pytest.mark.parametrize("widths", [[112] * 5, [128, 128, 112, 128, 128], [136] * 5])
def test_narrow_layers_are_left(capsys, folder, widths):
    """112 and 128 do for voxeld, so that only the limit refuses them; 136 is no multiple of 16."""
    words = chain(folder, widths)
    code, _, err = run(capsys, *words)
    assert code == 1 and "has 128 channels or more in and out, multiples of 16" in err
    assert in_fp8(folder) == {}
    assert run(capsys, *words, "--layers", "c2,c3")[0] == 0
    assert list(in_fp8(folder)) == ["c2", "c3"]


def test_weights_of_32_bits_need_a_precision(capsys, folder):
    words = ["--set", PLANES, "--set", "stem=8", "--no-check"]
    assert run(capsys, "family", "minkunet18", "-o", folder, *words)[0] == 0
    words = ["calibrate", folder, "--data", folder / "example.npz"]
    code, _, err = run(capsys, *words)
    assert code == 1 and 'expected "fp16" or "bf16" with layers that have "fp8_scale"' in err
    assert err.endswith("\n--precision fp16 or bf16 sets it\n")
    assert run(capsys, *words, "--precision", "bf16")[0] == 0
    assert document_of(folder)["precision"] == "bf16"


# --- the data ---


def with_data(words, change):
    """The words with other data: a function changes its arrays."""
    path = words[3]
    with np.load(path) as file:
        arrays = change(dict(file))
    np.savez(path, **arrays)
    return words


def test_data_that_reaches_no_layer(capsys, folder):
    """A scale of zeros would be 2^0, whatever the layer reads later."""
    words = chain(folder, [128, 128, 128, 128])
    code, out, err = run(capsys, *with_data(words, lambda a: {**a, "feats": a["feats"] * 0}))
    assert (code, out) == (1, "")
    assert "the data has nothing but zeros for c2, so that no scale is measured; expected" in err
    code, _, err = run(capsys, *words, "--layers", "c1,c2,c3")
    assert code == 1 and "nothing but zeros for c1, c2, c3, so" in err
    assert in_fp8(folder) == {}


@pytest.mark.parametrize("kind", ["Fortran", "float64", "int64", "other bytes"])
def test_data_of_any_order(capsys, folder, kind):
    words = chain(folder, [128, 128, 128, 128])
    with np.load(words[3]) as file:
        plain = dict(file)
    change = {
        "Fortran": np.asfortranarray,
        "float64": lambda a: a.astype(np.float64),
        "int64": lambda a: a.astype(np.int64) if a.dtype == np.int32 else a,
        "other bytes": lambda a: a.astype(a.dtype.newbyteorder(">")),
    }[kind]
    code, _, err = run(
        capsys, *with_data(words, lambda arrays: {k: change(a) for k, a in arrays.items()})
    )
    assert code == 0, err
    with np.load(folder / "fp8.npz") as saved:
        for name, array in plain.items():
            assert saved[name].flags.c_contiguous and saved[name].dtype == array.dtype
            assert np.array_equal(saved[name], array)


@pytest.mark.parametrize(
    "change, says",
    [
        (lambda a: {k: v[:0] for k, v in a.items()}, "data.npz has 0 voxels; expected some"),
        (lambda a: {**a, "feats": a["feats"] + np.inf}, "numbers that are NaN or infinite"),
        (lambda a: {**a, "coords": a["coords"] + 0.5}, "coords have 0.5 at [0, 0]; expected whole"),
        (lambda a: {"coords": a["coords"]}, "data.npz has no array feats; expected coords, feats"),
        (
            lambda a: {f"block{i}.weight": a["feats"] for i in range(242)},
            "no array coords; expected coords, feats and out.NAME, got block0.weight, "
            "block1.weight, block2.weight, block3.weight, block4.weight, block5.weight, "
            "block6.weight, block7.weight and 234 more\n",
        ),
    ],
)
def test_data_that_is_no_request(capsys, folder, change, says):
    words = chain(folder, [128, 128, 128, 128])
    code, _, err = run(capsys, *with_data(words, change))
    assert code == 1 and says in err and "/tmp/voxeld-calibrate" not in err, err
    assert in_fp8(folder) == {}


def test_what_data_has_of_outputs_is_left_out(capsys, folder):
    words = chain(folder, [128, 128, 128, 128])
    code, _, err = run(capsys, *with_data(words, lambda a: {**a, "out.y": np.array(["text"])}))
    assert code == 0, err


def test_what_a_precision_loses(capsys, folder):
    """Weights of 32 bits that FP16 does not hold."""
    words = chain(folder, [128, 128, 128, 128])
    path = folder / "1" / "weights.safetensors"
    weights = {name: array.astype(np.float32) for name, array in load_file(path).items()}
    weights["c3.weight"] *= 1e-6
    save_file(weights, path)
    code, _, err = run(capsys, *words, "--precision", "fp16")
    assert code == 0 and err.count("warning: ") == 1, err
    assert "warning: c3.weight in FP16: " in err and "the NMSE of the rounding is 0." in err
    code, _, err = run(capsys, *words, "--precision", "bf16")
    assert (code, err) == (0, "")
    weights["c1.weight"] *= 1e-9
    save_file(weights, path)
    code, _, err = run(capsys, *words, "--precision", "fp16")
    assert code == 1 and "c1.weight becomes 0 in all its 16384 elements in FP16" in err


def test_the_version_that_is_measured(capsys, folder):
    """The one that clients get, and the table says so."""
    words = chain(folder, [128, 128, 128, 128])
    _, once, _ = run(capsys, *words)
    assert "measured" not in once
    weights = load_file(folder / "1" / "weights.safetensors")
    (folder / "10").mkdir()
    weights["c1.weight"] = weights["c1.weight"] * np.float16(4)
    save_file(weights, folder / "10" / "weights.safetensors")
    code, out, err = run(capsys, *words)
    assert code == 0, err
    assert "\nmeasured: version 10 of 1, 10, which share the scales\n" in out
    most = [float(text.splitlines()[1].split()[1]) for text in (once, out)]
    assert most[1] == pytest.approx(4 * most[0], rel=1e-3)


# --- what FP8 computes ---


def test_every_number_of_e4m3():
    """The nearest of 253 numbers, the one with an even last bit between two, 448 beyond."""
    numbers = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    finite = np.sort(numbers[np.isfinite(numbers)])
    assert finite[-1] == fp8.MOST and len(np.unique(finite)) == 253
    positive = finite[finite > 0]
    assert np.array_equal(fp8.rounded(finite * 4, 4.0), finite * 4)
    middles = (positive[1:] + positive[:-1]) / 2
    assert np.array_equal(fp8.rounded(middles * 1.0001, 1.0), positive[1:])
    assert np.array_equal(fp8.rounded(middles * 0.9999, 1.0), positive[:-1])
    even = fp8.rounded(middles, 1.0).astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    assert not (even & 1).any()
    assert fp8.rounded([1e30, -1e30, 460], 1.0).tolist() == [448, -448, 448]


def test_the_smallest_scale():
    for most, scale in ((448, 1), (448.1, 2), (224, 0.5), (1, 2**-8), (0, 1), (1e30, 2**60)):
        assert fp8.scale_for(most) == scale
    assert fp8.scale_for(224, 224) == 1 and fp8.scale_for(225, 224) == 2


@pytest.mark.parametrize("norm", [False, True])
def test_voxeld_computes_the_definition(tmp_path, norm):
    """One convolution, whose input both have in float32: no number is rounded differently."""
    rng = np.random.default_rng(3)
    coords = np.unique(rng.integers(0, 8, (300, 3)), axis=0)
    coords = np.insert(coords, 0, 0, axis=1).astype(np.int32)
    feats = rng.standard_normal((len(coords), 16)).astype(np.float32)
    network = Network(16)
    weight = rng.standard_normal((24, 3, 3, 3, 16)).astype(np.float16)
    x = network.add(
        "subm_conv",
        [network.feats],
        "c",
        channels=24,
        kernel=3,
        layout="oxyzi",
        tensors={
            "weight": ("c.weight", weight),
            "bias": ("c.bias", rng.standard_normal(24).astype(np.float32)),
        },
    )
    if norm:
        arrays = {
            "weight": rng.uniform(-2, 2, 24),
            "bias": rng.standard_normal(24),
            "running_mean": rng.standard_normal(24),
            "running_var": rng.uniform(0.5, 2, 24),
        }
        tensors = {key: (f"n.{key}", a.astype(np.float32)) for key, a in arrays.items()}
        x = network.add("batch_norm", [x], "n", tensors=tensors)
    network.output(x, "y")
    network.layers[0]["fp8_scale"] = 2**-6
    more = {"precision": "fp16", "fp8": {"data": "fp8.npz", "nmse_max": 1}}
    network.write(tmp_path, **more)
    np.savez(tmp_path / "fp8.npz", coords=coords, feats=feats)
    words = ["--example", tmp_path / "fp8.npz", "-o", tmp_path / "out.npz", "--outputs-only"]
    subprocess.run([os.environ["VOXELD"], "record", tmp_path, *words], check=True)
    wanted = evaluate(tmp_path, coords, feats).outputs["y"][0]
    got = np.load(tmp_path / "out.npz")["out.y"]
    assert np.abs(got - wanted).max() < 1e-5 * np.abs(wanted).max()
    document = fp8.plain(document_of(tmp_path))
    (tmp_path / "network.json").write_text(json.dumps(document))
    plain = evaluate(tmp_path, coords, feats).outputs["y"][0]
    nmse = np.square(wanted - plain).sum() / np.square(plain).sum()
    assert 0.0005 < nmse < 0.005
