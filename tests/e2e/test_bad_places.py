# SPDX-License-Identifier: Apache-2.0
"""What a machine does wrong: taken ports, wrong files, full and read-only disks, clocks that jump.
Each is a clear error with the right exit code, or costs nothing; nothing is half written."""
import contextlib
import os
import pathlib
import re
import socket
import struct
import subprocess
import time

import numpy as np
import pytest

from load import Load
from model_files import random_grid
from voxeld import Client
from voxeld_process import PATIENCE, Daemon

VOXELD, VOXEL = os.environ["VOXELD"], os.environ["VOXEL"]
PORTS = ("--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", "--arena-bytes", "64M")
CLOCK_JUMP = os.environ.get("VX_CLOCK_JUMP")
DECADE = 3650 * 86400
FAKE = ("--device", "fake:0", "--device-bytes", "64M", "--cache-bytes", "32M")


def run(*words, **options):
    return subprocess.run([str(word) for word in words], text=True, timeout=PATIENCE,
                          stdin=subprocess.DEVNULL, capture_output=True, **options)


@contextlib.contextmanager
def small_disk(folder, options):
    """A file system of its own in that folder.  Mounting needs root."""
    folder.mkdir(exist_ok=True)
    done = run("mount", "-t", "tmpfs", "-o", options, "tmpfs", folder)
    if done.returncode:
        pytest.skip(f"this user may not mount: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        run("umount", "--lazy", folder)


def fill(folder):
    """Leaves no byte free; returns the file that has them."""
    hog = folder / "hog"
    with contextlib.suppress(OSError), open(hog, "wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return hog


# ------- what is named at the start -------


@pytest.mark.parametrize("flag", ["--grpc", "--http"])
def test_a_port_is_taken(repository, tmp_path, flag):
    ready = tmp_path / "ready"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run(VOXELD, "serve", "--repository", repository, *PORTS, flag, f"127.0.0.1:{port}",
                   "--ready-file", ready)
    assert done.returncode == 1, done
    line = next(at for at in done.stderr.splitlines() if "START_FAILED" in at)
    assert f"127.0.0.1:{port}" in line and "address already in use" in line.lower(), line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text,said", [
    ('{\n  "grace_ms": "5s",\n  "queue_max": "many"\n}\n',
     "line 3, column 16: queue_max: expected a whole number of requests from 1 to 65536, "
     "got 'many'"),
    ('{\n  "grace_ms": "5s"\n  "queue_max": 3\n}\n',
     "line 3, column 3: expected ',' or '}', got '\"'"),
    ('{\n  // a comment\n  "quue_max": 3\n}\n',
     "line 3, column 15: expected the name of a setting, got 'quue_max'; "
     "the nearest is 'queue_max'"),
    ('{"worker_seccomp": "maybe"}',
     "line 1, column 20: worker_seccomp: expected auto|on|off, got 'maybe'"),
    # What the text alone says is found where it is used, and named with its place, too.
    ('{\n  "device": "cpx"\n}', "line 2, column 13: device: expected cpu, cuda:N, cuda, hip:N"),
    ('{"core_dumps": 3}', 'line 1, column 16: "core_dumps": expected true or false, got 3'),
])
def test_a_configuration_is_wrong(repository, tmp_path, text, said):
    file = tmp_path / "voxeld.json"
    file.write_text(text)
    for words in (("serve", "--repository", repository, *PORTS), ("config", "--check")):
        done = run(VOXELD, *words, "--config", file)
        assert done.returncode == 2, done
        assert f"{file}: {said}" in done.stderr, done.stderr


def test_a_flag_in_place_of_the_files_value(tmp_path):
    file = tmp_path / "voxeld.json"
    file.write_text('{"device": "cpx"}')
    done = run(VOXELD, "config", "--check", "--config", file, "--device", "cpy")
    assert done.returncode == 2 and done.stderr.startswith("voxeld: device: expected"), done


def test_a_configuration_is_missing(tmp_path):
    done = run(VOXELD, "serve", "--config", tmp_path / "none.json")
    assert done.returncode == 2 and "none.json': No such file or directory" in done.stderr, done


@pytest.mark.parametrize("what", ["nothing", "a file"])
def test_a_repository_is_missing(tmp_path, what):
    place = tmp_path / "models"
    if what == "a file":
        place.write_text("")
    done = run(VOXELD, "serve", "--repository", place, *PORTS, "--ready-file", tmp_path / "ready")
    assert done.returncode == 1 and "START_FAILED" in done.stderr, done
    reason = "Not a directory" if what == "a file" else "No such file or directory"
    assert f"'{place}' cannot be read: {reason}; expected a directory" in done.stderr, done.stderr
    assert not (tmp_path / "ready").exists()


# ------- disks -------


@pytest.mark.parametrize("how", ["read-only", "full"])
def test_a_kernel_cache_that_takes_nothing(repository, model, tmp_path, how):
    """Costs the time of compiling at each start, and leaves no part of an entry."""
    with small_disk(tmp_path / "kernels", "size=32k,mode=0700") as disk:
        if how == "full":
            fill(disk)
        else:
            assert not run("mount", "-o", "remount,ro", disk).returncode
        before = sorted(path.name for path in disk.iterdir())
        with Daemon(repository, tmp_path, *FAKE, "--kernel-cache", str(disk)) as daemon:
            reason = "No space left on device" if how == "full" else "Read-only file system"
            daemon.wait_said(f'error="{reason}"')
            assert daemon.log().count("KERNEL_CACHE") == 1  # not for each kernel
            coords, feats = random_grid(1, 200)
            with Client(daemon.grpc) as client:
                out = client.infer("conv", coords, feats)["out"]
            np.testing.assert_allclose(out, model.answer(coords, feats), rtol=1e-4, atol=1e-4)
        assert sorted(path.name for path in disk.iterdir()) == before


def test_a_ready_file_on_a_full_disk(repository, tmp_path):
    """A waiting program must not find half of it: the log has the reason, the server serves."""
    with small_disk(tmp_path / "run", "size=8k") as disk:
        fill(disk)
        with Daemon(repository, tmp_path, "--ready-file", str(disk / "ready"),
                    wait_ready=False) as daemon:
            daemon.wait_said("the file could not be written")
            assert 'why="No space left on device"' in daemon.log()
            assert [path.name for path in disk.iterdir()] == ["hog"]
            daemon.wait_for("readiness", lambda: daemon.get("/v2/health/ready")[0] == 200)


def test_a_ready_file_of_an_earlier_run_is_not_taken_for_this_one(repository, tmp_path):
    ready, broken = tmp_path / "old", tmp_path / "broken"
    ready.write_text("grpc=127.0.0.1:5 http=127.0.0.1:6 pid=1\n")
    (broken / "conv" / "1").mkdir(parents=True)
    with Daemon(broken, tmp_path, "--ready-file", str(ready), wait_ready=False) as daemon:
        daemon.wait_said("MODEL_FAILED")
        assert not ready.exists()
    with Daemon(repository, tmp_path, "--ready-file", str(ready), wait_ready=False) as daemon:
        daemon.wait_for("the file", ready.exists)
    assert not ready.exists()


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    coords, feats = random_grid(5, 3000)
    path = tmp_path_factory.mktemp("example") / "e.npz"
    np.savez(path, coords=coords, feats=feats.astype(np.float32))
    return path


def test_a_recording_on_a_full_disk(repository, example, tmp_path):
    with small_disk(tmp_path / "out", "size=64k") as disk:
        done = run(VOXELD, "record", repository / "conv", "--example", example,
                   "-o", disk / "r.npz")
        assert done.returncode == 1 and "No space left on device" in done.stderr, done
        assert list(disk.iterdir()) == []


def test_a_recording_into_what_is_no_file(repository, example, tmp_path):
    """A rename would put a file in the place of the link, or of the device."""
    words = [VOXELD, "record", repository / "conv", "--example", example, "-o"]
    (tmp_path / "link.npz").symlink_to("kept.npz")
    (tmp_path / "full.npz").symlink_to("/dev/full")
    assert run(*words, tmp_path / "link.npz").returncode == 0
    assert (tmp_path / "link.npz").is_symlink() and np.load(tmp_path / "kept.npz")["out.out"].any()
    done = run(*words, tmp_path / "full.npz")
    assert done.returncode == 1 and "No space left on device" in done.stderr, done
    assert (tmp_path / "full.npz").is_symlink() and pathlib.Path("/dev/full").is_char_device()
    other = repository / "conv" / "network.json"
    for path in ["/dev/full", other]:
        done = run(*words, path)
        assert done.returncode == 2 and f'ends in .npz, got "{path}"' in done.stderr, done
    assert other.read_text().startswith("{")


def test_a_tuning_table_on_a_full_disk(tmp_path):
    """The old table stays, whole."""
    with small_disk(tmp_path / "out", "size=64k") as disk:
        def tune(shape):
            return run(VOXELD, "tune", "--device", "fake", "--shapes", shape, "--table",
                       disk / "fake.tune")
        assert tune("4:16").returncode == 0
        table = disk / "fake.tune"
        before, hog = table.read_text(), fill(disk)
        done = tune("4:32")
        assert done.returncode == 1 and "No space left on device" in done.stderr, done
        assert table.read_text() == before and set(disk.iterdir()) == {table, hog}


@pytest.mark.parametrize("words", [("config",), ("--version",), ("--help",), ("serve", "--help"),
                                   ("record", "--help")])
def test_standard_output_is_full(words):
    """`voxeld config > FILE` must not leave half a file and say that all is well."""
    for program in (VOXELD, VOXEL):
        if program == VOXEL and words[0][0] != "-":
            continue
        with open("/dev/full", "w") as full:
            done = subprocess.run([program, *words], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode in (1, 2), (program, words, done)
        assert "standard output could not be written: No space left on device" in done.stderr, done


# ------- clocks -------


class Jumping(Daemon):
    """Its wall clock can be set; the monotonic one goes on, as the kernel's does."""

    def popen(self, arguments, **options):
        self.offset = self.ready_file.parent / "offset"
        self.offset.write_bytes(bytes(8))
        return super().popen(arguments, **options, env={
            **os.environ, "LD_PRELOAD": CLOCK_JUMP, "CLOCK_JUMP": str(self.offset)})

    def set_clock(self, seconds):
        with open(self.offset, "r+b") as file:
            file.write(struct.pack("q", seconds))

    def years(self):
        return {int(year) for year in re.findall(r"^(\d{4})-\d\d-\d\dT", self.log(), re.M)}


@pytest.mark.skipif(not CLOCK_JUMP, reason="a sanitizer must be the first library")
def test_a_clock_that_jumps(repository, model, tmp_path):
    """Ten years on and back, under load with deadlines: no request fails, no worker is taken for
    hung, and the metrics' times do not go backwards.  The years in the log prove the jumps."""
    year = time.gmtime().tm_year
    expected = {year - 10, year, year + 10}
    with Jumping(repository, tmp_path, "--access-log", "--watchdog-ms", str(PATIENCE * 1000),
                 "--receive-ms-max", str(PATIENCE * 1000)) as daemon:
        with Load(daemon) as load:
            for seconds in (0, DECADE, -DECADE, 0):
                daemon.set_clock(seconds)
                target = load.done + 30
                daemon.wait_for("progress", lambda: load.done >= target or load.errors)
                assert not load.errors, load.errors
                coords, feats = random_grid(2, 100)
                with Client(daemon.grpc) as client:
                    out = client.infer("conv", coords, feats, timeout=PATIENCE)["out"]
                np.testing.assert_allclose(out, model.answer(coords, feats), rtol=1e-4, atol=1e-4)
                assert daemon.get("/v2/health/ready")[0] == 200
        assert not load.errors, load.errors
        daemon.wait_for("lines of three decades", lambda: expected <= daemon.years())
        log = daemon.log()
        assert "WORKER_EXIT" not in log and "WORKER_HANG" not in log
        numbers = daemon.metrics()
        spent = {k: v for k, v in numbers.items() if re.search(r"_seconds_sum($|{)", k)}
        assert spent and all(0 <= v < 10 * PATIENCE for v in spent.values()), spent
        daemon.set_clock(DECADE)  # its end does not wait for ten years either
