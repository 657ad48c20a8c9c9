# SPDX-License-Identifier: Apache-2.0
"""What `voxel` must not accept silently: each of these once gave a wrong answer with code 0."""
import asyncio
import json
import os
import subprocess
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from model_files import ConvModel, random_grid
from voxeld import AsyncClient, Client, Unavailable
from voxeld_process import PATIENCE, Daemon

NAMES = ("p", "q", "r_", "s")


@pytest.fixture(scope="module")
def grid():
    """Two samples that have no voxel in common, so as one sample they would be accepted too."""
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


@pytest.mark.parametrize("name", ["batch", "batch_idx", "b", "sample_id", "Sample", "frame",
                                  "scan_id"])
def test_samples_under_another_name_are_refused(daemon, grid, tmp_path, name):
    coords, feats = grid
    write_ply(tmp_path / "a.ply", columns_of(grid, f"float {name}"))
    np.savez(tmp_path / "a.npz", coords=coords[:, 1:], feats=feats, **{name: coords[:, 0]})
    for file, what, words in (("a.ply", "property", ("--feats", ",".join(NAMES))),
                              ("a.npz", "array", ())):
        done = voxel(daemon, tmp_path, file, *words, "-o", "out.npz")
        assert done.returncode == 2 and f"the {what} '{name}' would be ignored" in done.stderr
        assert not (tmp_path / "out.npz").exists()
        done = voxel(daemon, tmp_path, file, *words, "--one-sample")
        assert done.returncode == 0 and f"{file}: not used: {name}\n" in done.stderr


@pytest.mark.parametrize("arrays", [
    {"anything": 0}, {"labels": 0, "weight": 1}, {"offset": 2}, {"batch_offsets": 2}])
def test_an_array_that_may_be_samples_is_refused(daemon, client, grid, tmp_path, arrays):
    """Whatever its name: read as one sample, rows of different samples would be neighbours."""
    coords, feats = grid
    values = (coords[:, 0], feats[:, 0], np.array([50, 120]))
    np.savez(tmp_path / "a.npz", coords=coords[:, 1:], feats=feats,
             **{name: values[which] for name, which in arrays.items()})
    for words, command in ((("-o", "out.npz"), "infer"), (("--requests", "1"), "bench")):
        done = voxel(daemon, tmp_path, "a.npz", *words, command=command)
        assert done.returncode == 2 and f"the array '{next(iter(arrays))}' would" in done.stderr
        assert command == "bench" or not (tmp_path / "out.npz").exists()
        done = voxel(daemon, tmp_path, "a.npz", *words, "--one-sample", command=command)
        assert done.returncode == 0 and f"not used: {', '.join(arrays)}\n" in done.stderr
    alone = np.c_[np.zeros(len(coords), int), coords[:, 1:]]
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["out"],
                                  client.infer("conv", alone, feats)["out"])
    np.savez(tmp_path / "a.npz", coords=coords, feats=feats)
    done = voxel(daemon, tmp_path, "a.npz", "--one-sample")
    assert done.returncode == 2 and "--one-sample: expected coords [N,3], got [N,4]" in done.stderr


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, bool])
def test_unsigned_feats_are_of_no_known_scale(daemon, client, grid, tmp_path, dtype):
    coords, feats = grid[0], (np.abs(grid[1]) * 90).astype(dtype)
    np.savez(tmp_path / "a.npz", coords=coords, feats=feats)
    done = voxel(daemon, tmp_path, "a.npz", "-o", "out.npz")
    assert done.returncode == 2 and "--raw-feats" in done.stderr and "as float" in done.stderr
    assert not (tmp_path / "out.npz").exists()
    done = voxel(daemon, tmp_path, "a.npz", "--raw-feats", "-o", "out.npz")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "out.npz")["out"],
                                  client.infer("conv", coords, feats.astype("<f4"))["out"])
    assert voxel(daemon, tmp_path, "a.npz", "--requests", "1", command="bench").returncode == 0


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_array_that_is_there_twice_is_refused(daemon, grid, tmp_path):
    np.savez(tmp_path / "a.npz", coords=grid[0], feats=grid[1])
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as file:
        file.writestr("feats.npy", file.read("feats.npy"))
    done = voxel(daemon, tmp_path, "a.npz")
    assert done.returncode == 2 and "has the array feats twice: expected it once" in done.stderr


def test_version_0_is_not_the_highest(daemon, client, grid, tmp_path):
    np.savez(tmp_path / "a.npz", coords=grid[0], feats=grid[1])
    for command in ("infer", "bench"):
        done = voxel(daemon, tmp_path, "a.npz", "--version", "0", command=command)
        assert done.returncode == 2 and "a whole number from 1 to" in done.stderr
    # The server decides which version 01 is: 1.
    assert client.infer("conv", *grid, version="01").model_version == "1"
    assert client.infer("conv", *grid, version=1).model_version == "1"


def test_a_port_is_not_taken_modulo_65536(daemon, grid, tmp_path):
    np.savez(tmp_path / "a.npz", coords=grid[0], feats=grid[1])
    host, port = daemon.grpc.rsplit(":", 1)
    done = voxel(daemon, tmp_path, "a.npz", "--server", f"{host}:{int(port) + 65536}")
    assert done.returncode == 2 and "with a port from 1 to 65535" in done.stderr, done


def test_what_only_looks_like_samples_is_left_alone(daemon, grid, tmp_path):
    """A scan's name, a number of scans, samples that column 0 has already, and blue: only noted."""
    coords, feats = grid
    blue = feats[:, 0]
    np.savez(tmp_path / "a.npz", coords=coords[:, 1:], feats=feats, sample="scan 7", batch=4)
    np.savez(tmp_path / "b.npz", coords=coords, feats=feats, batch=coords[:, 0])
    np.savez(tmp_path / "c.npz", coords=coords[:, 1:], feats=feats, r=blue, g=blue, b=blue)
    np.savez(tmp_path / "d.npz", coords=coords[:, 1:], batch=feats)
    for words, unused in ((("a.npz",), "sample, batch"), (("b.npz",), "batch"),
                          (("c.npz",), "r, g, b"), (("d.npz", "--feats", "batch"), "")):
        done = voxel(daemon, tmp_path, *words)
        said = f"voxel infer: {words[0]}: not used: {unused}\n" if unused else ""
        assert done.returncode == 0 and done.stderr == said, done.stderr
        assert voxel(daemon, tmp_path, *words, "-q").stderr == ""


BIG = "row 1, channel 2 of feats: expected a number that fits "


@pytest.mark.parametrize("value,dtype,words,said", [
    (65520, "<f4", ("--dtype", "fp16"), "FP16, at most 65504, got 65520; use --dtype fp32"),
    (-9e4, "<f8", ("--dtype", "fp16"), "FP16, at most 65504, got -90000; use --dtype"),
    (3.4e38, "<f4", ("--dtype", "bf16"), "BF16, at most 3.38953"),
    (1e300, "<f8", (), "FP32, at most 3.40282"),
])
def test_a_number_that_would_become_infinite_is_refused(daemon, grid, tmp_path, value, dtype, words,
                                                        said):
    coords, feats = grid
    feats = feats.astype(dtype)
    feats[1, 2] = value
    np.savez(tmp_path / "a.npz", coords=coords, feats=feats)
    done = voxel(daemon, tmp_path, "a.npz", *words, "-q", "-o", "out.npz")
    assert done.returncode == 2 and BIG + said in done.stderr, done.stderr
    write_ply(tmp_path / "a.ply", {
        kind.replace("float", "double"): values for kind, values in columns_of(grid).items()
    } | {"double r_": feats[:, 2]})
    done = voxel(daemon, tmp_path, "a.ply", "--feats", ",".join(NAMES), *words, "-o", "out.npz")
    assert done.returncode == 2 and BIG + said in done.stderr, done.stderr
    done = voxel(daemon, tmp_path, "a.npz", *words, command="bench")
    assert done.returncode == 2 and BIG + said in done.stderr, done.stderr


@pytest.mark.parametrize("value,words", [
    (65519.9, ("--dtype", "fp16")), (np.inf, ("--dtype", "fp16")), (np.nan, ("--dtype", "bf16")),
    (-np.inf, ()), (3.4e38, ()), (3.39e38, ("--dtype", "bf16"))])
def test_what_fits_or_was_infinite_before_is_sent(daemon, grid, tmp_path, value, words):
    coords, feats = grid
    feats = feats.copy()
    feats[1, 2] = value
    np.savez(tmp_path / "a.npz", coords=coords, feats=feats)
    assert voxel(daemon, tmp_path, "a.npz", *words).returncode == 0


def test_a_mean_of_numbers_does_not_become_infinite(daemon, tmp_path):
    feats = np.full((2, 4), 3e38, np.float32)
    np.savez(tmp_path / "a.npz", coords=np.zeros((2, 3), np.float32), feats=feats)
    done = voxel(daemon, tmp_path, "a.npz", "--voxel", "1")
    assert done.returncode == 2, done.stdout
    assert "row 1, channel 0 of feats: with the other points of its voxel" in done.stderr


def test_python_makes_no_infinity_either(client, grid):
    coords, feats = grid
    feats = feats.copy()
    feats[3, 1] = 3.4e38
    with pytest.raises(ValueError, match="fit bfloat16, at most 3.38953e.38, got 3.3999.* in "
                                         "row 3, channel 1"):
        client.infer("conv", coords, feats, bf16=True)
    for value in (np.inf, np.nan, 3.38953e38):
        feats[3, 1] = value
        client.infer("conv", coords, feats, bf16=True)
    with pytest.raises(ValueError, match="expected float32 or float16"):
        client.infer("conv", coords, feats.astype(np.float64))

    class Bfloat16:  # torch's dtype has this name, and numpy no such type
        dtype = "torch.bfloat16"
    with pytest.raises(ValueError, match=r"feats: expected tensor.float\(\) with bf16=True, got "):
        client.infer("conv", coords, Bfloat16())


def test_properties_that_nobody_uses_are_named(daemon, grid, tmp_path):
    columns = columns_of(grid) | {"float weight": grid[1][:, 0], "int label": grid[0][:, 1]}
    write_ply(tmp_path / "a.ply", columns)
    words = ("a.ply", "--feats", ",".join(NAMES))
    done = voxel(daemon, tmp_path, *words)
    assert done.returncode == 0 and "a.ply: not used: weight, label\n" in done.stderr
    assert voxel(daemon, tmp_path, *words, "-q").stderr == ""


@pytest.mark.parametrize("option,words", [
    ("view", ("--view", "10,20")), ("size", ("--size", "160x100")), ("up", ("--up", "y")),
    ("isometric", ("--isometric",)), ("sample", ("--sample", "0")),
    ("raw-feats", ("--raw-feats",)), ("one-sample", ("--one-sample",)),
    ("layers", ("--layers", "-q"))])
def test_infer_refuses_options_that_do_nothing(daemon, grid, tmp_path, option, words):
    np.savez(tmp_path / "a.npz", coords=grid[0], feats=grid[1])
    np.save(tmp_path / "a.npy", grid[0])
    write_ply(tmp_path / "a.ply", columns_of(grid))
    files = {"raw-feats": ("a.npy", "a.ply"), "one-sample": ("a.npy",)}
    why = "--quiet hides what it prints" if option == "layers" else "it applies only"
    for file in files.get(option, ("a.npz", "a.ply")):
        done = voxel(daemon, tmp_path, file, *words, "-o", "out.npz")
        assert done.returncode == 2 and f"--{option} has no effect: {why}" in done.stderr
        assert not (tmp_path / "out.npz").exists()


@pytest.mark.parametrize("option,words", [
    ("voxels", ("a.npz", "-n", "500")), ("concurrency", ("--rate", "50", "-c", "4")),
    ("concurrency", ("--rate", "50", "--concurrency=1")), ("voxel", ("--voxel", "0.1")),
    ("seed", ("--seed", "2"))])
def test_bench_refuses_options_that_do_nothing(daemon, grid, tmp_path, option, words):
    np.savez(tmp_path / "a.npz", coords=grid[0], feats=grid[1])
    done = voxel(daemon, tmp_path, *words, "--requests", "2", command="bench")
    assert done.returncode == 2 and f"--{option} has no effect: " in done.stderr, done.stderr


ODD = 'q"u\\o'


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """A model whose name JSON must escape, in two versions."""
    repository = tmp_path_factory.mktemp("odd")
    for version in (1, 2):
        made = ConvModel()
        made.write(repository, ODD, version)
    with Daemon(repository, tmp_path_factory.mktemp("daemon")) as one:
        yield one


def test_bench_writes_json_whatever_the_model_is_called(odd, tmp_path):
    done = voxel(odd, tmp_path, "--requests", 2, "--voxels", 20, "--json", command="bench",
                 model=ODD)
    assert done.returncode == 0 and json.loads(done.stdout)["model"] == ODD, done.stderr


@pytest.mark.parametrize("words", [("-c", 2), ("--rate", 200)])
def test_bench_does_not_count_the_warm_up_nor_other_versions(odd, tmp_path, words):
    with Client(odd.grpc) as other, ThreadPoolExecutor(1) as pool:
        coords, feats = random_grid(3, 20)
        ended = threading.Event()

        def ask_version_2():
            while not ended.is_set():
                other.infer(ODD, coords, feats, version=2)

        asking = pool.submit(ask_version_2)
        try:
            done = voxel(odd, tmp_path, "--version", 1, "--requests", 10, "--warmup", 50, "--json",
                         "--voxels", 20, *words, command="bench", model=ODD)
        finally:
            ended.set()
        asking.result(PATIENCE)
    said = json.loads(done.stdout)
    assert said["answered"] == 10 and said["server_count"] == 10, done.stdout


def test_the_warm_up_ends_after_a_second(tmp_path):
    """20 requests of a slow model took a minute, in silence; now no further one after a second."""
    model = ConvModel()
    model.network["batching"] = {"delay_us": 600000}
    model.write(tmp_path / "repository")
    with Daemon(tmp_path / "repository", tmp_path) as slow, Client(slow.grpc) as client:
        done = voxel(slow, tmp_path, "--requests", 1, "-n", 50, "--json", command="bench")
        assert done.returncode == 0 and json.loads(done.stdout)["p50_us"] > 5e5, done.stdout
        counted = client.statistics("conv")[0]["inference_count"]
        assert counted <= 4, counted  # the first, two that warm up, and the one that is measured
        done = voxel(slow, tmp_path, "--requests", 1, "-n", 50, "--warmup", 3, command="bench")
        assert done.returncode == 0, done.stderr
        assert client.statistics("conv")[0]["inference_count"] == counted + 5


def test_a_request_far_above_the_limit_is_not_taken_for_tls(repository, tmp_path):
    side = 131  # 32 bytes for each voxel: 72 MB
    coords = np.indices((side, side, side), np.int32).reshape(3, -1).T
    np.savez(tmp_path / "large.npz", coords=coords, feats=np.zeros((len(coords), 4), np.float32))
    with Daemon(repository, tmp_path, "--message-bytes-max", "64K") as small:
        done = voxel(small, tmp_path, "large.npz")
        assert done.returncode == 1 and "UNAVAILABLE" in done.stderr, done.stderr
        assert ("closed the connection before it answered: perhaps the request (71.9 MB) exceeds "
                "its message_bytes_max by more than 64 MiB; its log has the reason.\n"
                in done.stderr), done.stderr
        small.wait_said("exceeds message_bytes_max by more than 64 MiB")
        np.savez(tmp_path / "above.npz", coords=coords[:5000], feats=np.ones((5000, 4), "f4"))
        done = voxel(small, tmp_path, "above.npz")
        assert done.returncode == 1 and "RESOURCE_EXHAUSTED" in done.stderr, done.stderr


def test_a_voxel_without_a_size_has_none(daemon, grid, tmp_path):
    np.savez(tmp_path / "bare.npz", coords=grid[0], feats=grid[1])
    np.savez(tmp_path / "sized.npz", coords=grid[0], feats=grid[1], voxel_size=1.0)
    for name, said in (("bare", "120 voxels of 2 samples\n"),
                       ("sized", "120 voxels of 1, of 2 samples\n")):
        done = voxel(daemon, tmp_path, f"{name}.npz")
        said = f"{name}.npz: {said}"
        assert done.returncode == 0 and said in done.stdout, done.stdout + done.stderr


def test_it_is_said_which_of_two_outputs_were_written(grid, tmp_path):
    """A .npz gets both, a picture and the other files the first; or the one that is named."""
    model = ConvModel()
    model.network["outputs"].append({"name": "hidden", "layer": "act"})
    model.write(tmp_path / "repository")
    np.savez(tmp_path / "a.npz", coords=grid[0], feats=grid[1])
    words = ("a.npz", "-o", "out.npz", "--render", "out.png", "--size", "100x80", "--sample", "0")
    with Daemon(tmp_path / "repository", tmp_path) as two:
        done = voxel(two, tmp_path, *words)
        assert "wrote out.npz: all 2 outputs (--output NAME takes one)\n" in done.stdout
        assert "wrote out.png: output out (--output NAME takes another)\n" in done.stdout
        with np.load(tmp_path / "out.npz") as saved:
            assert saved.files == ["coords", "out", "hidden"]
            both = {name: saved[name] for name in saved.files}
        for name in ("out", "hidden"):
            said = voxel(two, tmp_path, *words, "--output", name).stdout
            assert "wrote out.npz\n" in said
            with np.load(tmp_path / "out.npz") as saved:
                assert saved.files == ["coords", name]
                np.testing.assert_array_equal(saved[name], both[name])
        done = voxel(two, tmp_path, "a.npz", "-o", "out.npy")
        assert "wrote out.npy: output out (--output NAME takes another)\n" in done.stdout
        done = voxel(two, tmp_path, *words, "--output", "depth")
        assert done.returncode == 1 and "it has 'out', 'hidden'" in done.stderr


def test_the_size_of_a_voxel_goes_on(daemon, tmp_path):
    """points -> npz -> npz -> ply -> npz: a voxel's position is decided once."""
    coords, feats = random_grid(12, 60)
    np.savez(tmp_path / "points.npz", coords=coords[:, 1:] * 0.25, feats=feats)
    named = "out_0,out_1,out_2,out_0"
    for source, target, words in (("points.npz", "a.npz", ("--voxel", "0.25")),
                                  ("a.npz", "b.npz", ()), ("b.npz", "c.ply", ()),
                                  ("c.ply", "d.npz", ("--feats", named))):
        if source in ("a.npz", "b.npz"):
            with np.load(tmp_path / source) as file:
                arrays = dict(file, feats=feats)
            np.savez(tmp_path / source, **arrays)
        done = voxel(daemon, tmp_path, source, *words, "-o", target)
        assert done.returncode == 0 and "voxels of 0.25\n" in done.stdout, done.stderr
    assert b"comment voxel_size 0.25\n" in (tmp_path / "c.ply").read_bytes()
    last = np.load(tmp_path / "d.npz")
    assert last["voxel_size"] == 0.25
    np.testing.assert_array_equal(last["coords"], coords)


def test_a_size_that_is_none_says_nothing(daemon, grid, tmp_path):
    coords, feats = grid
    other = "text or an array of another shape"
    for size, came in ((np.full(2, 0.1), other), (np.array([0.1, 0, 0.1]), "0.1 0 0.1"),
                       (np.float64(-1), "-1"), (np.float64(1e-320), "9.99989e-321"),
                       ("5 cm", other), (np.float64(1), None)):  # what voxels without a size have
        np.savez(tmp_path / "a.npz", coords=coords, feats=feats, voxel_size=size)
        done = voxel(daemon, tmp_path, "a.npz", "-o", "out.npz")
        assert done.returncode == 0
        said = ("voxel infer: a.npz: its voxel_size is not used: expected a number above 0, or "
                f"three, got {came}\n") if came else ""
        assert done.stderr == said, done.stderr
        assert sorted(np.load(tmp_path / "out.npz")) == ["coords", "out"]
    # With float positions it would decide the voxel of each point, and they may be voxels already.
    np.savez(tmp_path / "a.npz", coords=coords * 1.0, feats=feats, voxel_size=0.5)
    done = voxel(daemon, tmp_path, "a.npz")
    assert done.returncode == 2
    assert ("the positions are floats: set the size of a voxel in their unit with --voxel SIZE (1 "
            "if they are voxels already); the voxel_size of a .npz is not used to place points"
            ) in done.stderr, done.stderr


def test_a_size_of_three_numbers_is_that_of_each_axis(daemon, grid, tmp_path):
    coords, feats = grid
    sizes = np.array([0.2, 0.1, 0.4])
    np.savez(tmp_path / "a.npz", coords=coords, feats=feats, voxel_size=sizes)
    done = voxel(daemon, tmp_path, "a.npz", "-o", "b.npz")
    assert done.returncode == 0 and "voxels of 0.2 0.1 0.4, of 2 samples\n" in done.stdout, \
        done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "b.npz")["voxel_size"], sizes)
    # As files had it before: one number, of other voxels than those of the stride.
    np.savez(tmp_path / "a.npz", coords=coords, feats=feats, voxel_size=0.1,
             stride=np.array([2.0, 1, 4]))
    done = voxel(daemon, tmp_path, "a.npz", "-o", "b.npz")
    assert done.returncode == 2
    assert "voxels of the stride 2 1 4 are no cubes, and voxel_size is one number" in done.stderr


def test_python_knows_the_port_of_the_status_page(daemon):
    hint = "speaks HTTP/1, as voxeld's status page does. gRPC has another port: by default 8001"
    with Client(daemon.http) as client, pytest.raises(Unavailable, match=hint):
        client.model_metadata("conv")

    async def ask():
        async with AsyncClient(daemon.http) as client:
            await client.model_metadata("conv")
    with pytest.raises(Unavailable, match=hint):
        asyncio.run(ask())
