# SPDX-License-Identifier: Apache-2.0
"""voxeld record and voxel diff: models against themselves, against copies with one changed weight,
CPU against the fake GPU, networks of several sets and predicted voxels, labels and dense tensors,
damaged recordings, and a picture that is bright where the error is."""
import json
import os
import pathlib
import shutil
import subprocess
import time

import numpy as np
import pytest

from model_files import random_grid, write_safetensors
from test_dense_outputs import Ends
from test_levels import Encoder, MinkUNet, Model, cloud
from voxeld_process import PATIENCE

VOXELD, VOXEL = os.environ["VOXELD"], os.environ["VOXEL"]
DEMO = pathlib.Path(os.environ.get("VX_SOURCE", ".")) / "deploy/demo/repository/normals"


def run(*words, code=0, cwd=None):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          timeout=PATIENCE, cwd=cwd)
    assert done.returncode == code, done
    return done


def record(model, example, out, *more, code=0):
    return run(VOXELD, "record", model, "--example", example, "-o", out, *more, code=code)


def diff(*words, code=0):
    """What --json prints."""
    return json.loads(run(VOXEL, "diff", *words, "--json", code=code).stdout)


def save(path, coords, feats):
    np.savez(path, coords=coords, feats=feats)
    return path


class Predicted(Model):
    """Children by logits, a prune, and labels on what is left."""

    def __init__(self):
        super().__init__("predicted", 5)
        self.tensors["logits.weight"] = self.rng.normal(size=(8, 3)).astype(np.float32)
        self.tensors["logit.weight"] = self.rng.normal(size=(1, 3)).astype(np.float32)
        self.add("logits", "linear", "feats", channels=8, bias=False)
        self.add("fine", "upsample", "feats", stride=2, occupancy="logits")
        self.add("logit", "linear", "fine", channels=1, bias=False)
        self.add("kept", "prune", "fine", keep="logit")
        self.add("label", "argmax", "kept")
        self.add("act", "relu", "kept")

    OUTPUTS = [{"layer": "act"}, {"layer": "label"}]


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    return save(tmp_path_factory.mktemp("example") / "e.npz", *cloud(4, 900, 2))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("models")
    MinkUNet().write(path, "dec0_act")
    Encoder().write(path, "up1_act")
    Predicted().write(path, Predicted.OUTPUTS)
    Ends().write(path, Ends.OUTPUTS)
    for network in path.glob("*/network.json"):
        document = json.loads(network.read_text())
        document["limits"] = {"voxels_max": 2000}
        network.write_text(json.dumps(document))
    return path


def changed(folder, name, change, out):
    """A copy of a model whose tensors were changed: change(tensors by name) -> the same."""
    model = {"minkunet": MinkUNet, "predicted": Predicted}[name]()
    shutil.copytree(folder / name, out)
    change(model.tensors)
    write_safetensors(out / "1" / "weights.safetensors", model.tensors)
    return out


def test_the_demo_against_itself(tmp_path):
    example = save(tmp_path / "e.npz", *random_grid(1, 600, ci=1))
    found = diff(DEMO, DEMO, "--example", example)
    layers = json.loads((DEMO / "network.json").read_text())["layers"]
    assert [row["name"] for row in found["compared"]] == [*(x["name"] for x in layers), "normals"]
    assert found["within"] and found["first"] is None
    assert all(row["worst"] == 0 == row["nmse"] for row in found["compared"])
    said = run(VOXEL, "diff", DEMO, DEMO, "--example", example).stdout
    assert f"all {len(layers)} layers and 1 output are within 1e-05" in said


def test_an_example_of_64_bits(tmp_path):
    """What NumPy makes where nobody says a type; `voxel infer` takes it, too."""
    coords, feats = random_grid(1, 60, ci=1)
    wide = feats.astype(np.float64)
    for name, array in (("narrow", feats), ("wide", wide)):
        record(DEMO, save(tmp_path / f"{name}.npz", coords, array), tmp_path / f"{name}.r.npz")
    with np.load(tmp_path / "narrow.r.npz") as one, np.load(tmp_path / "wide.r.npz") as other:
        assert other["feats"].dtype == np.float32
        assert all(np.array_equal(one[key], other[key]) for key in one.files)
    wide[7] = 1e39
    done = record(DEMO, save(tmp_path / "large.npz", coords, wide), tmp_path / "r.npz", code=1)
    assert "row 7 of feats has 1e+39; expected a float32" in done.stderr


@pytest.mark.parametrize("name", ["minkunet", "encoder", "predicted", "ends"])
def test_a_recording_has_what_a_daemon_answers(folder, name, example, tmp_path, daemon_of):
    """Outputs are those that are served; a layer that is an output is the same numbers."""
    record(folder / name, example, tmp_path / "r.npz")
    document = json.loads((folder / name / "network.json").read_text())
    with np.load(tmp_path / "r.npz") as found, np.load(example) as request:
        names = [key[6:] for key in found.files if key.startswith("layer.")]
        assert names == [layer["name"] for layer in document["layers"]]
        answer = daemon_of(folder).infer(name, request["coords"], request["feats"])
        for output in document["outputs"]:
            served = answer[output.get("name", output["layer"])]
            mine = found["out." + output.get("name", output["layer"])]
            np.testing.assert_array_equal(mine, served.astype(mine.dtype))
            layer = found["layer." + output["layer"]].astype(np.float64)
            half = served.dtype == np.float16
            assert np.abs(layer - served).max(initial=0) <= (2e-3 if half else 1e-6) * max(
                1, np.abs(layer).max(initial=0))
        for key in found.files:
            if key.startswith("at."):
                at = found[key]
                np.testing.assert_array_equal(at, at[np.lexsort(at.T[::-1])])
                assert len(at) == len(found.get("layer." + key[3:], at))


@pytest.fixture(scope="module")
def daemon_of(tmp_path_factory):
    from voxeld import Client
    from voxeld_process import Daemon
    open_ones = {}

    def one(folder):
        if folder not in open_ones:
            daemon = Daemon(folder, tmp_path_factory.mktemp("daemon"), "--device", "cpu")
            open_ones[folder] = daemon, Client(daemon.grpc)
        return open_ones[folder][1]

    yield one
    for daemon, client in open_ones.values():
        client.close()
        daemon.stop()


@pytest.mark.parametrize("layer, tensor", [("stem", "stem.kernel"), ("enc1_bn", "enc1_bn.bias"),
                                           ("dec0", "dec0.kernel")])
def test_one_changed_weight_is_found(folder, example, tmp_path, layer, tensor):
    def change(tensors):
        tensors[tensor].flat[3] += 0.25

    other = changed(folder, "minkunet", change, tmp_path / "other")
    found = diff(folder / "minkunet", other, "--example", example, code=1)
    assert found["first"] == layer and not found["within"]
    before = [row for row in found["compared"] if row["name"] != layer]
    before = before[:[row["name"] for row in found["compared"]].index(layer)]
    assert all(row["worst"] == 0 for row in before)
    said = run(VOXEL, "diff", folder / "minkunet", other, "--example", example, code=1).stdout
    assert f"the first over the bound of 1e-05 is layer {layer}: " in said
    assert f"layer {layer}: " in said and "output out: " in said  # their histograms
    run(VOXEL, "diff", folder / "minkunet", other, "--example", example, "--bound", "100")


@pytest.mark.parametrize("name", ["minkunet", "encoder", "ends"])
def test_the_fake_gpu_in_two_precisions(folder, name, example):
    model = folder / name
    found = diff(f"{model}@cpu", f"{model}@fake,fp32", "--example", example)
    assert found["within"], found["first"]
    half = diff(f"{model}@fake,fp32", f"{model}@fake,fp16", "--example", example, code=1)
    rounded = [row for row in half["compared"] if row["relative"] > 1e-5]
    assert rounded and all(row["relative"] < 2e-2 for row in rounded), rounded


def test_fp16_weights_against_fp32(folder, example, tmp_path):
    def change(tensors):
        for name, array in tensors.items():
            if name.endswith("kernel"):
                tensors[name] = array.astype(np.float16)

    other = changed(folder, "minkunet", change, tmp_path / "half")
    found = diff(folder / "minkunet", other, "--example", example, code=1)
    assert found["first"] == "stem"
    assert all(row["relative"] < 2e-2 for row in found["compared"])
    diff(folder / "minkunet", other, "--example", example, "--bound", "2e-2")


def test_predicted_voxels_that_differ_are_counted(folder, example, tmp_path):
    def change(tensors):
        tensors["logits.weight"][2] *= -1  # children number 2: those that were there are not

    other = changed(folder, "predicted", change, tmp_path / "other")
    record(folder / "predicted", example, tmp_path / "a.npz")
    record(other, example, tmp_path / "b.npz")
    with np.load(tmp_path / "a.npz") as a, np.load(tmp_path / "b.npz") as b:
        mine, his = ({tuple(row) for row in run["at.fine"]} for run in (a, b))
    found = diff(tmp_path / "a.npz", tmp_path / "b.npz", "--bound", "1e3", code=1)
    rows = {(row["kind"], row["name"]): row for row in found["compared"]}
    fine = rows["layer", "fine"]
    assert (fine["only_in_a"], fine["only_in_b"]) == (len(mine - his), len(his - mine))
    assert fine["only_in_a"] and fine["only_in_b"] and not fine["within"] and fine["worst"] == 0
    assert found["first"] == "fine" and "labels_wrong" in rows["output", "label"]
    said = run(VOXEL, "diff", tmp_path / "a.npz", tmp_path / "b.npz", "--bound", "1e3",
               code=1).stdout
    assert f"is layer fine: {len(mine - his)} of its voxels are only in A" in said


def test_a_set_may_be_empty(folder, tmp_path):
    coords, feats = cloud(4, 50)
    example = save(tmp_path / "e.npz", coords[:0], feats[:0])
    for name in ("minkunet", "encoder", "predicted"):
        record(folder / name, example, tmp_path / f"{name}.npz")
        done = run(VOXEL, "diff", folder / name, tmp_path / f"{name}.npz", code=2)
        assert "nothing to compare: all layers and outputs have 0 rows in both" in done.stderr


def test_an_output_that_one_run_lacks_is_over_the_bound(folder, example, tmp_path):
    """What is answered differs; a layer need not be recorded, and --layers leaves outputs out."""
    record(folder / "predicted", example, tmp_path / "all.npz")
    with np.load(tmp_path / "all.npz") as found:
        arrays = {name: found[name] for name in found.files}
    for lacks, code in (("out.label", 1), ("layer.logit", 0)):
        np.savez(tmp_path / "less.npz", **{n: a for n, a in arrays.items() if n != lacks})
        for sides, where in ((("all", "less"), "A"), (("less", "all"), "B")):
            sides = [tmp_path / f"{side}.npz" for side in sides]
            found = diff(*sides, code=code)
            name = lacks.partition(".")[2]
            assert found[f"only_in_{where.lower()}"] == [name]
            assert (found["within"], found["first"]) == ((False, name) if code else (True, None))
            said = run(VOXEL, "diff", *sides, code=code).stdout
            assert (f"the first over the bound of 1e-05 is output {name}: it is only in {where}\n"
                    in said) == bool(code)
            assert diff(*sides, "--layers", "fine")["within"]


def test_a_source_s_recording_against_the_model(folder, example, tmp_path):
    """As the exporter writes it: outputs alone, rows in an order of its own."""
    model = folder / "encoder"
    record(model, example, tmp_path / "r.npz")
    order = np.random.default_rng(1).permutation(900)
    with np.load(tmp_path / "r.npz") as found:
        arrays = {"coords": found["coords"][order], "feats": found["feats"][order],
                  "out.out": found["out.out"][order]}
    np.savez(tmp_path / "source.npz", **arrays)
    found = diff(tmp_path / "source.npz", model)  # its own request is the example
    assert [row["name"] for row in found["compared"]] == ["out"]
    assert found["only_in_b"] == []  # nothing else was recorded
    arrays["layer.pool"] = np.zeros((3, 2), np.float32)
    arrays["at.pool"] = np.zeros((3, 4), np.int32) + np.arange(3)[:, None].astype(np.int32)
    np.savez(tmp_path / "source.npz", **arrays)
    found = diff(tmp_path / "source.npz", model, code=1)
    assert found["first"] == "pool" and "stem" in found["only_in_b"]
    shutil.copytree(model, tmp_path / "with")
    shutil.copy(example, tmp_path / "with" / "example.npz")
    assert diff(tmp_path / "with", f"{tmp_path}/with/1@cpu")["within"]


def test_layers_may_be_chosen(folder, example):
    found = diff(folder / "minkunet", folder / "minkunet", "--example", example, "--layers",
                 "enc1,down2_bn")
    assert [row["name"] for row in found["compared"]] == ["enc1", "down2_bn"]
    done = run(VOXEL, "diff", folder / "minkunet", folder / "minkunet", "--example", example,
               "--layers", "enc9", code=2)
    assert 'expected the name of a layer, got "enc9"' in done.stderr


def test_a_picture_is_bright_where_the_error_is(tmp_path):
    """A wall of voxels, of which one corner differs."""
    side = 12
    y, z = np.divmod(np.arange(side * side), side)
    coords = np.stack([0 * y, 0 * y, y, z], axis=1).astype(np.int32)
    one = np.ones((side * side, 2), np.float32)
    request = {"coords": coords, "feats": one}
    np.savez(tmp_path / "a.npz", **request, **{"layer.x": one})
    pictures = []
    for corner in ((y < 4) & (z < 4), (y >= 8) & (z >= 8)):
        np.savez(tmp_path / "b.npz", **request, **{"layer.x": one + 0.1 * corner[:, None]})
        run(VOXEL, "diff", tmp_path / "a.npz", tmp_path / "b.npz", "--render", tmp_path / "p.png",
            "--view", "0,0", "--isometric", "--size", "240x240", code=1)
        pictures.append(pixels(tmp_path / "p.png"))
    changed_pixels = np.argwhere(np.abs(pictures[0] - pictures[1]).max(axis=2) > 40)
    brighter = [picture.sum(axis=2) for picture in pictures]
    first = np.argwhere(brighter[0] > brighter[1] + 100)
    second = np.argwhere(brighter[1] > brighter[0] + 100)
    assert len(changed_pixels) > 500 and len(first) > 200 and len(second) > 200
    # y grows to the right and z upwards: the first corner is below and left of the second.
    assert first[:, 0].min() > second[:, 0].max() and first[:, 1].max() < second[:, 1].min()


def pixels(path):
    """A picture's numbers [height, width, 3]: a PNG of 8 bits whose rows zlib holds."""
    import struct
    import zlib
    data, at, packed = path.read_bytes(), 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", body[:10])
            assert (depth, colour) == (8, 2)
        packed += body if kind == b"IDAT" else b""
        at += 12 + size
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + 3 * width)
    out = np.zeros((height, 3 * width), np.int64)
    for i, (kind, row) in enumerate(zip(rows[:, 0], rows[:, 1:].astype(np.int64))):
        up = out[i - 1] if i else np.zeros(3 * width, np.int64)
        for x in range(3 * width):
            left, corner = (out[i, x - 3], up[x - 3]) if x >= 3 else (0, 0)
            near = left + up[x] - corner
            paeth = min((left, up[x], corner), key=lambda v: abs(near - v))
            guess = (0, left, up[x], (left + up[x]) // 2, paeth)[kind]
            out[i, x] = (row[x] + guess) % 256
    return out.reshape(height, width, 3)


def test_a_dense_tensor_is_drawn_too(folder, example, tmp_path):
    for name in ("volume", "view", "label"):
        run(VOXEL, "diff", folder / "ends", folder / "ends", "--example", example, "--render",
            tmp_path / f"{name}.png", "--draw", name, "--size", "64x64", "-q")
        assert (tmp_path / f"{name}.png").read_bytes()[:4] == b"\x89PNG"


def test_what_cannot_be_compared_is_2(folder, example, tmp_path):
    good = tmp_path / "good.npz"
    record(folder / "minkunet", example, good)
    data = good.read_bytes()
    damaged = bytearray(data)
    damaged[len(data) // 2] ^= 1
    (tmp_path / "damaged.npz").write_bytes(damaged)
    (tmp_path / "cut.npz").write_bytes(data[:-100])
    (tmp_path / "text.npz").write_text("no zip")
    other = save(tmp_path / "e.npz", *cloud(5, 900, 2))
    record(folder / "minkunet", other, tmp_path / "other.npz", "--outputs-only")
    with np.load(good) as found:
        np.savez(tmp_path / "none.npz", coords=found["coords"], feats=found["feats"])
    for words, sentence in (
            ([good, tmp_path / "damaged.npz"], "is damaged: its checksum is wrong"),
            ([good, tmp_path / "cut.npz"], "this is not a .npz"),
            ([good, tmp_path / "text.npz"], "this is not a .npz"),
            ([good, tmp_path / "other.npz"], "are of other requests: "),
            ([good, tmp_path / "none.npz"], "there is nothing to compare"),
            ([good, "nowhere.npz"], "nowhere.npz: No such file or directory; expected a recording"),
            ([good, "nowhere@cpu"], "there is no model directory nowhere"),
            ([good], "expected two runs, A and B"),
            ([good, good, "third"], "unexpected argument 'third'"),
            ([good, good, "--bound", "x"], "--bound: expected a number"),
            ([good, good, "--draw", "x"], "--draw has no effect"),
            ([good, good, "--example", example], "--example has no effect: both are recordings"),
            ([good, good, "--layers", "stem,x"], "neither run has a layer 'x'"),
            ([good, good, "--render", "p.jpg"], "expected a picture that ends in .png"),
            ([folder / "ends", folder / "ends"], "expected --example FILE.npz"),
            ([good, f"{folder / 'minkunet'}@tpu"], "expected cpu, cuda:0, hip:0 or fake"),
            ([good, folder / "ends", "--voxeld", "/nowhere/voxeld"], "cannot be started: No such"),
            ([good, folder], "network.json: cannot be opened")):
        done = run(VOXEL, "diff", *words, code=2)
        assert sentence in done.stderr, (words, done.stderr)


def test_coords_of_another_shape_are_shown(folder, tmp_path):
    coords, feats = random_grid(1, 20)
    thin = save(tmp_path / "e.npz", coords[:, 1:], feats)
    said = record(folder / "ends", thin, tmp_path / "r.npz", code=1).stderr
    assert "expected coords int32 [N, 4], got int32 [20, 3]" in said, said


@pytest.mark.parametrize("flag", ["--device-bytes", "--cache-bytes"])
def test_an_example_that_does_not_fit_names_what_to_set(folder, tmp_path, flag):
    """Not limits.voxels_max in a folder of the program's own, neither of which the user wrote."""
    large = save(tmp_path / "e.npz", *cloud(4, 20000, 2))
    text = record(folder / "minkunet", large, tmp_path / "r.npz", flag, "1M", code=1).stderr
    assert "minkunet: the example has 20000 voxels, which need " in text, text
    assert f"; {flag} is 1048576: at most " in text and "_" not in text, text
    done = run(VOXEL, "diff", folder / "minkunet", folder / "minkunet", "--example", large,
               flag, "1M", code=2)
    assert f"; {flag} is 1048576: at most " in done.stderr, done.stderr


def test_labels_against_numbers_are_said_to_be(tmp_path):
    """The same shape, but int32 in one run and float32 in the other."""
    labels = np.arange(12, dtype=np.int32).reshape(4, 3)
    coords = np.c_[np.zeros(4, np.int32), labels]
    for name, layer in (("l.npz", labels), ("n.npz", labels.astype(np.float32))):
        np.savez(tmp_path / name, coords=coords, feats=np.ones((4, 1), np.float32),
                 **{"layer.x": layer})
    for files, words in ((("l.npz", "n.npz"), "A has labels, B numbers"),
                         (("n.npz", "l.npz"), "A has numbers, B labels")):
        done = run(VOXEL, "diff", *files, code=1, cwd=tmp_path)
        assert f"  4x3  {words}\n" in done.stdout and "B has 4x3" not in done.stdout
        assert done.stdout.endswith(f"the first over the bound of 1e-05 is layer x: {words}\n")
        found, = diff(*(tmp_path / file for file in files), code=1)["compared"]
        assert [found["labels"], found["labels_b"]] == [file == "l.npz" for file in files]
        assert found["relative"] is None and "labels_wrong" not in found


def test_nothing_is_left_behind(folder, example, tmp_path):
    """Neither by a run that ends well, nor by one that does not."""
    def there():
        return {path for kind in ("voxel-diff-*", "voxeld-record-*")
                for path in pathlib.Path("/tmp").glob(kind)}

    before = there()
    diff(folder / "minkunet", folder / "minkunet", "--example", example)
    run(VOXEL, "diff", folder / "minkunet", f"{folder / 'minkunet'}@tpu", "--example", example,
        code=2)
    record(folder / "minkunet", tmp_path / "nowhere.npz", tmp_path / "r.npz", code=1)
    record(folder / "minkunet", example, "/nowhere/r.npz", code=1)
    left = there() - before
    end = time.monotonic() + PATIENCE  # another test may run one of them just now
    while left & there() and time.monotonic() < end:
        time.sleep(0.05)  # sleep: between two looks
    assert not left & there()
