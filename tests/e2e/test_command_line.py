# SPDX-License-Identifier: Apache-2.0
"""`voxel infer` with common files: a right answer, or a sentence that says what to do."""
import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
import warnings

import numpy as np
import pytest

from certificates import Authority
from model_files import ConvModel, random_grid
from voxeld import Client
from voxeld_process import PATIENCE, Daemon

HEADER = ("ply\nformat ascii 1.0\nelement vertex 4\nproperty float x\nproperty float y\n"
          "property float z\nproperty uchar red\nproperty uchar green\nproperty uchar blue\n"
          "property float intensity\nend_header\n")
# The last two points are in one voxel of size 0.5.
POINTS = ((0.1, 0.1, 0.1, 255, 0, 51, 0.5), (0.1, 0.1, 0.6, 0, 255, 0, -1),
          (5.1, 5.1, 5.1, 0, 0, 255, 2), (5.2, 5.2, 5.2, 51, 0, 51, 4))
COORDS = np.array([[0, 0, 0, 0], [0, 0, 0, 1], [0, 10, 10, 10]], np.int32)
FEATS = np.array([[1, 0, 0.2, 0.5], [0, 1, 0, -1], [0.1, 0, 0.6, 3]], np.float32)


@pytest.fixture
def folder(tmp_path):
    coords, feats = random_grid(3, 50, samples=2)
    np.savez(tmp_path / "grid.npz", coords=coords, feats=feats, colour=2 * feats)
    np.savez_compressed(tmp_path / "wide.npz", coords=coords, flat=feats[:, 0],
                        feats=np.zeros((len(coords), 16385), np.float32))
    np.save(tmp_path / "grid.npy", coords)
    np.savez(tmp_path / "nowhere.npz", coords=np.full((9, 3), np.nan), feats=feats[:9])
    np.save(tmp_path / "twice.npy", coords[[0, 1, 0]])
    (tmp_path / "rgb.ply").write_text(HEADER + "".join(
        " ".join(map(str, row)) + "\n" for row in POINTS))
    return tmp_path


def voxel(daemon, folder, *words):
    return subprocess.run([os.environ["VOXEL"], "infer", "--server", daemon.grpc, "--model", "conv",
                           *words], cwd=folder, capture_output=True, text=True, timeout=PATIENCE)


def refused(daemon, folder, sentence, *words):
    """Exit code 2 and that sentence, before anything is sent or written."""
    before = sorted(folder.iterdir())
    done = voxel(daemon, folder, *words)
    assert done.returncode == 2 and sentence in done.stderr, (done.returncode, done.stderr)
    assert done.stdout == "" and sorted(folder.iterdir()) == before


def test_features_that_nobody_named_are_told(tmp_path, folder):
    """A model of one channel gets feats of 1: right only when the file has no features."""
    ConvModel(ci=1).write(tmp_path / "repository")
    np.savez(folder / "named.npz", coords=COORDS, features=FEATS[:, :1])
    np.savez(folder / "bare.npz", coords=COORDS)
    with Daemon(tmp_path / "repository", tmp_path) as daemon:
        for words, has in ((("rgb.ply", "--voxel", "0.5"), "red, green, blue, intensity"),
                           (("named.npz",), "features")):
            done = voxel(daemon, folder, *words)
            assert done.returncode == 0, done.stderr
            assert ("no feats were named, so all are sent as 1; the file has: "
                    f"{has} (use --feats NAME)") in done.stderr
            quiet = voxel(daemon, folder, *words, "-q")  # -q hides progress, not the warning
            assert quiet.stdout == "" and "no feats were named" in quiet.stderr
        assert "no feats" not in voxel(daemon, folder, "bare.npz").stderr


def test_the_exact_floor_of_a_training(daemon, tmp_path):
    """As clients/README.md has it: else a point just below a corner lies in the next voxel."""
    points = np.array([[4, 4, 16.9999], [4, 4, 17], [4, 4, 17.9]]) * 0.5
    for name, coords, size, expected, merged in (
            ("near", points, "0.5", [17], 2),
            ("exact", np.floor(points / 0.5).astype(np.int32), "1", [16, 17], 1)):
        np.savez(tmp_path / f"{name}.npz", coords=coords, feats=np.ones((3, 4), np.float32))
        done = voxel(daemon, tmp_path, f"{name}.npz", "--voxel", size, "-o", "out.npz")
        assert done.returncode == 0 and f"{merged} " in done.stderr, done.stderr
        assert np.load(tmp_path / "out.npz")["coords"][:, 3].tolist() == expected
    told = subprocess.run([os.environ["VOXEL"], "infer", "--help"], capture_output=True, text=True,
                          timeout=PATIENCE).stdout
    assert "floor(p / SIZE + 1/1024)" in told and "use --voxel 1" in told


def test_properties_of_a_ply_are_features(daemon, client, folder):
    done = voxel(daemon, folder, "rgb.ply", "--voxel", "0.5", "--feats", "red,green,blue,intensity",
                 "-o", "out.npz")
    assert done.returncode == 0, done.stderr
    assert ("merged 1 of 4 points into the voxel of an earlier point, feats averaged: 3 voxels"
            in done.stderr)
    assert "8-bit feats were divided by 255" in done.stderr
    out = np.load(folder / "out.npz")
    assert sorted(out) == ["coords", "out", "voxel_size"] and out["voxel_size"] == 0.5
    np.testing.assert_array_equal(out["coords"], COORDS)
    np.testing.assert_array_equal(out["out"], client.infer("conv", COORDS, FEATS)["out"])
    quiet = voxel(daemon, folder, "rgb.ply", "--voxel", "0.5", "--feats",
                  "red,green,blue,intensity", "-q", "-o", "quiet.npy")
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    np.testing.assert_array_equal(np.load(folder / "quiet.npy"), out["out"])
    np.testing.assert_array_equal(np.load(folder / "quiet.coords.npy"), COORDS)
    assert "no feats" not in done.stderr
    raw = voxel(daemon, folder, "rgb.ply", "--voxel", "0.5", "--feats", "red,green,blue,intensity",
                "--raw-feats", "-o", "raw.npy")
    assert raw.returncode == 0 and "divided" not in raw.stderr
    feats = FEATS * np.float32([255, 255, 255, 1])
    # The same means except for rounding in the last bit: 0.1 is not exactly 25.5 / 255.
    np.testing.assert_allclose(np.load(folder / "raw.npy"),
                               client.infer("conv", COORDS, feats)["out"], rtol=1e-4, atol=1e-2)


def order_of_columns():
    """{name: (coords, what is said of them)}: of [x, y, z, sample], which would be served, as
    samples of lines; and of others, which are flat or of many samples."""
    x, y = np.indices((40, 6), np.int32).reshape(2, -1)
    z = (x + y) % 9
    plane, two = np.stack([x, y, 0 * x], 1), np.arange(2).repeat(240)[:, None]
    body = np.stack([x, y, z], 1)
    said = "coords: column 0, the sample, takes 40 values, and the last column only 0"
    return {
        "last": (np.insert(body, 3, 0, 1), said + ": if"),
        "last of two": (np.c_[np.tile(body, (2, 1)), two], said + " to 1: if"),
        "mixed": (np.random.default_rng(1).permutation(np.c_[np.tile(body, (2, 1)), two]),
                  said + " to 1: if"),
        "first": (np.c_[two, np.tile(body, (2, 1))], None),
        "flat": (np.insert(plane, 0, 0, 1), None),
        "two flat": (np.c_[two, np.tile(plane, (2, 1))], None),
        "many": (np.c_[np.arange(100).repeat(240), np.tile(body % 3, (100, 1))][::9], None)}


def test_samples_are_counted_and_the_last_column_may_be_one(daemon, folder):
    """The command line and the Python client say the same, the latter once."""
    assert "grid.npz: 50 voxels of 2 samples\n" in voxel(daemon, folder, "grid.npz").stdout
    for name, (coords, said) in order_of_columns().items():
        coords = np.unique(coords, axis=0) if name == "many" else coords
        coords, feats = coords.astype(np.int32), np.ones((len(coords), 4), np.float32)
        np.savez(folder / "columns.npz", coords=coords, feats=feats, voxel_size=0.5)
        done = voxel(daemon, folder, "columns.npz")
        assert done.returncode == 0, done.stderr
        with Client(daemon.grpc) as client, warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            for _ in range(2):
                client.infer("conv", coords, feats)
        if not said:
            assert "put the sample first" not in done.stderr and not found, name
            continue
        one, = found
        assert said in str(one.message) and one.filename == __file__, name
        assert str(one.message).removeprefix("coords") in done.stderr, name
        assert "voxels of 0.5, of 40 samples\n" in done.stdout
        assert "put the sample first" in voxel(daemon, folder, "columns.npz", "-q").stderr


def test_times_are_told_in_milliseconds(daemon, folder):
    line, = [line for line in voxel(daemon, folder, "grid.npz").stdout.splitlines()
             if line.startswith("server: ")]
    assert re.match(r"server: queue \d+\.\d{3} ms, convert \d+\.\d{3} ms, ", line), line
    assert "_ns" not in line and ", pairs " in line


def test_a_bench_that_is_interrupted_prints_what_it_measured(daemon):
    for loop in (["-c", "2"], ["--rate", "20"]):
        bench = subprocess.Popen([os.environ["VOXEL"], "bench", "--server", daemon.grpc, "--model",
                                  "conv", "--duration", "600", *loop], text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        answered = daemon.metrics()['voxeld_requests_total{code="OK"}']
        daemon.wait_for("requests after the warm-up", lambda: daemon.metrics()[
            'voxeld_requests_total{code="OK"}'] > answered + 30)
        bench.send_signal(signal.SIGINT)
        out, err = bench.communicate(timeout=PATIENCE)
        assert bench.returncode == 0, (bench.returncode, err)
        assert "interrupted after" in err and " requests/s" in out and " voxels/s" in out, out


def test_models_say_their_limits(daemon):
    done = subprocess.run([os.environ["VOXEL"], "models", "--server", daemon.grpc],
                          capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert re.search(r"  limit +voxels_max +200000, bounded by limits.voxels_max\n", done.stdout)
    assert daemon.metrics()['voxeld_model_voxels_max{model="conv",version="1"}'] == 200000


def test_layers_are_told_on_request(daemon, folder):
    lines = voxel(daemon, folder, "grid.npz", "--layers").stdout.splitlines()
    assert [line for line in lines if line.startswith("layers ")][0].endswith(": conv head")
    assert sum("conv head" in line for line in lines) == 1  # not among the other parameters
    assert "layers " not in voxel(daemon, folder, "grid.npz").stdout


def test_an_array_of_a_npz_by_name(daemon, client, folder):
    grid = np.load(folder / "grid.npz")
    for words, feats in (((), grid["feats"]), (("--feats", "colour"), grid["colour"])):
        done = voxel(daemon, folder, "grid.npz", *words, "-o", "out.npz")
        assert done.returncode == 0, done.stderr
        out = np.load(folder / "out.npz")
        np.testing.assert_array_equal(out["coords"], grid["coords"])
        np.testing.assert_array_equal(out["out"],
                                      client.infer("conv", grid["coords"], feats)["out"])


@pytest.mark.parametrize("sentence,words", [
    ("needs feats of 4 channels, but none were chosen from grid.npy", ("grid.npy",)),
    ("none of the 9 points has a position: all are", ("nowhere.npz", "--voxel", "1")),
    ("(the file has: red, green, blue, intensity)", ("rgb.ply", "--voxel", "0.5")),
    ("takes feats of 4 channels, but there are 1", ("rgb.ply", "--voxel", "1", "--feats", "red")),
    ("no numeric property 'alpha' of the vertex; besides x, y, z it has: red", (
        "rgb.ply", "--voxel", "1", "--feats", "red,alpha")),
    ("rows 0 and 2 are the same voxel", ("twice.npy",)),
    ("no array named rgb; besides coords it has: feats, colour", ("grid.npz", "--feats", "rgb")),
    ("C in 1..16384; it has rank 2: [50,16385]", ("wide.npz",)),
    ("C in 1..16384; it has rank 1", ("wide.npz", "--feats", "flat")),
    ("a .npy has only coordinates, no feats 'rgb'", ("grid.npy", "--feats", "rgb")),
    ("ends in .ply, .npy or .npz; of KITTI's .bin: p = np.fromfile(FILE, np.float32)", ("a.bin",)),
    ("ends in .ply, .npy or .npz; of a .pcd: p = np.asarray(open3d.io.read", ("a.pcd",)),
    ("expected a picture that ends in .png", ("grid.npz", "--render", "a.jpg")),
    ("ends in .ply, .npz or .npy", ("grid.npz", "-o", "a.txt")),
    ("grid.npz is the input", ("grid.npz", "-o", "grid.npz")),
    ("No such file or directory", ("grid.npz", "-o", "none/a.npz")),
    ("No such file or directory", ("grid.npz", "--render", "none/a.png")),
    ("Is a directory", ("grid.npz", "-o", "folder.npz")),
    ("has no voxel of sample 5", ("grid.npz", "--render", "a.png", "--sample", "5")),
    ("expected host:port without http", ("grid.npz", "--server", "http://127.0.0.1:1")),
])
def test_what_cannot_be_right_is_refused_first(daemon, folder, sentence, words):
    (folder / "folder.npz").mkdir()
    refused(daemon, folder, sentence, *words)


def test_samples_are_drawn_one_at_a_time(daemon, folder):
    coords, feats = (np.load(folder / "grid.npz")[name] for name in ("coords", "feats"))
    assert {0, 1} == set(coords[:, 0])
    size = ("--size", "160x100", "--view", "10,20")
    done = voxel(daemon, folder, "grid.npz", "--render", "first.png", *size)
    assert done.returncode == 0
    first = coords[0, 0]
    assert f"has several samples: sample {first} is drawn" in done.stderr
    for sample in (0, 1):
        words = ("--sample", str(sample), "--render", f"{sample}.png", *size)
        done = voxel(daemon, folder, "grid.npz", *words)
        assert done.returncode == 0 and "several samples" not in done.stderr
    pictures = [(folder / f"{name}.png").read_bytes() for name in ("first", "0", "1")]
    assert pictures[0] == pictures[1 + first] and pictures[1] != pictures[2]


def test_nan_is_said(daemon, folder):
    grid = np.load(folder / "grid.npz")
    feats = grid["feats"].copy()
    feats[:] = np.nan
    np.savez(folder / "nan.npz", coords=grid["coords"], feats=feats)
    done = voxel(daemon, folder, "nan.npz")
    assert done.returncode == 0
    assert done.stdout.count(f"NaN in {len(feats)} rows") == 3 and "inf" not in done.stdout
    feats[1:] = 0
    np.savez(folder / "nan.npz", coords=grid["coords"], feats=feats)
    quiet = voxel(daemon, folder, "nan.npz", "-q").stderr  # which does not hide a warning
    assert "nan.npz: feats are NaN or infinite in 1 of the 50 voxels, " in quiet, quiet


def test_the_port_of_the_status_page_is_known_as_such(daemon, folder):
    done = voxel(daemon, folder, "grid.npz", "--server", daemon.http)
    assert done.returncode == 1
    assert f"The server at {daemon.http} speaks HTTP/1" in done.stderr
    assert "No server answers" not in done.stderr


def test_the_command_line_says_what_a_handshake_lacks(repository, tmp_path):
    authority = Authority(tmp_path / "ca")
    pair, other, server = (authority.sign(name) for name in ("voxel", "another", "127.0.0.1"))
    trust, own = ("--tls-ca", authority.cert), ("--tls-cert", pair.cert, "--tls-key", pair.key)
    lacks = {(): "closed the connection: perhaps one of the two speaks TLS",
             ("--tls",): "answers, but its certificate is of no authority that is trusted here",
             trust: "perhaps it wants a certificate that its authority has signed (--tls-cert",
             (*trust, *own[:3], other.key): "which are perhaps no pair (--tls-cert, --tls-key)",
             (*trust, *own, "--tls-name", "nobody"): "answers, but its certificate has another"}
    with Daemon(repository, tmp_path, "--tls-cert", server.cert, "--tls-key", server.key,
                "--tls-client-ca", authority.cert) as secure:
        for flags, said in lacks.items():
            done = subprocess.run([os.environ["VOXEL"], "status", "--server", secure.grpc,
                                   *map(str, flags)], capture_output=True, text=True,
                                  timeout=PATIENCE)
            assert done.returncode == 1, (flags, done.stdout)
            first, second = done.stderr.splitlines()
            assert first.startswith("voxel status: UNAVAILABLE: "), done.stderr
            assert second.startswith(f"The server at {secure.grpc} ") and said in second


@pytest.fixture(scope="module")
def sockets(repository, tmp_path_factory):
    """A daemon on a Unix socket, in a folder that every user may enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        with Daemon(repository, tmp_path_factory.mktemp("sockets"), "--grpc",
                    f"127.0.0.1:0,unix:{folder}/grpc"):
            yield pathlib.Path(folder)


@pytest.mark.parametrize("words", [["models"], ["status"],
                                   ["perf-data", "--model", "conv", "--voxels", "50", "-o",
                                    "mixed.json"]])
def test_every_command_takes_a_unix_socket(sockets, tmp_path, words):
    program = os.environ["VOXEL"]
    done = subprocess.run([program, *words, "--server", f"unix:{sockets}/grpc"], cwd=tmp_path,
                          capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    said = subprocess.run([program, words[0], "--help"], capture_output=True, text=True).stdout
    assert "--server ADDRESS" in said and "HOST:PORT or unix:PATH" in " ".join(said.split()), said


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_a_socket_of_another_group_is_no_absent_server(sockets):
    program = sockets / "voxel"  # the other user may have no access to the build folder
    program.write_bytes(pathlib.Path(os.environ["VOXEL"]).read_bytes())
    program.chmod(0o755)

    def stranger(address):
        done = subprocess.run(["setpriv", "--reuid", "10001", "--clear-groups", "--regid", "10001",
                               str(program), "status", "--server", address],
                              capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 1 and "Permission denied" in done.stderr, done.stderr
        assert "No server answers" not in done.stderr
        return done.stderr

    for address in (f"unix:{sockets}/grpc", f"unix://{sockets}/grpc"):
        assert ("A socket is there, and this user may not connect to it: its group may (mode "
                "0660); see clients/README.md, On the same host.\n") in stranger(address)
    private = sockets / "private"
    private.mkdir(0o700)
    assert ("This user may not enter a folder above the socket; see clients/README.md"
            ) in stranger(f"unix:{private}/grpc")


def test_a_server_that_is_slow_to_greet_is_no_absent_one(daemon, folder):
    """A proxy delays the first bytes by half a second, as a busy or distant host does."""
    listener = socket.create_server(("127.0.0.1", 0))
    inside = socket.create_connection(daemon.grpc.split(":"))

    def carry(source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def serve():
        outside, _ = listener.accept()
        time.sleep(0.5)  # sleep: longer than the limit of a first attempt
        there = threading.Thread(target=carry, args=(outside, inside))
        there.start()
        carry(inside, outside)
        there.join()
        outside.close()
    proxy = threading.Thread(target=serve, daemon=True)
    proxy.start()
    done = voxel(daemon, folder, "grid.npz", "--server",
                 f"127.0.0.1:{listener.getsockname()[1]}")
    assert done.returncode == 0, done.stderr
    listener.close()
    proxy.join(60)
    inside.close()


def test_ctrl_c_leaves_no_half_file(daemon, folder):
    """Interrupted while it waits for a server that does not answer."""
    worker = daemon.workers()[0]
    with daemon.frozen(worker):
        one = subprocess.Popen([os.environ["VOXEL"], "infer", "--server", daemon.grpc, "--model",
                                "conv", "grid.npz", "-o", "out.npz"], cwd=folder,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        daemon.wait_for("the request",
                        lambda: daemon.metrics()["voxeld_calls_in_flight"] > 0)
        one.send_signal(signal.SIGINT)
        assert one.wait(60) == -signal.SIGINT
    assert not (folder / "out.npz").exists() and not list(folder.glob("*.part-*"))


def test_columns_are_characters(tmp_path):
    """A name beyond ASCII takes as many columns as it has letters, not bytes."""
    for name, layer in (("conv", "head"), ("bäume", "höhe€")):
        model = ConvModel()
        model.network["layers"][2]["name"] = model.network["outputs"][0]["layer"] = layer
        model.network["outputs"].append({"name": f"{layer}_2", "layer": layer})
        model.tensors |= {f"{layer}.{part}": model.tensors[f"head.{part}"]
                          for part in ("weight", "bias")}
        model.write(tmp_path / "repository", name)
    coords, feats = random_grid(3, 20)
    np.savez(tmp_path / "grid.npz", coords=coords, feats=feats)

    def lines(*words, program="VOXEL"):
        done = subprocess.run([os.environ[program], *words], cwd=tmp_path, capture_output=True,
                              text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()
    with Daemon(tmp_path / "repository", tmp_path) as daemon:
        rows = [line for line in lines("status", "--server", daemon.grpc)
                if line.startswith(("model ", "conv ", "bäume "))]
        assert [line[26:29] for line in rows] == ["on ", " 1 ", " 1 "], rows
        rows = [line for line in lines("models", "--server", daemon.grpc) if "put " in line]
        assert {line[26:].partition("[")[0] for line in rows} == {" INT32 ", " FP32 "}, rows
    rows = lines("diff", "repository/bäume", "repository/bäume", "--example", "grid.npz")
    assert len({line.index(" 20x") for line in rows if " 20x" in line}) == 1, rows
    rows = lines("check", "repository/bäume", program="VOXELD")
    at = rows.index("layers")
    assert {line[27:33] for line in rows[at + 2:at + 5]} == {"subm_c", "relu  ", "linear"}, rows
    assert {line[27:33] for line in rows[at + 6:at + 8]} == {"FP32 ("}, rows
