# SPDX-License-Identifier: Apache-2.0
"""What `voxel` says of a file's data before it sends them: units, types, numbers that are none."""
import json
import os
import re
import signal
import socket
import subprocess
import time

import numpy as np
import pytest

from model_files import ConvModel
from voxeld import Client, InvalidArgument
from voxeld_process import PATIENCE, Daemon


def voxel(daemon, folder, *words, command="infer"):
    return subprocess.run([os.environ["VOXEL"], command, "--server", daemon.grpc, "--model", "conv",
                           *map(str, words)], cwd=folder, capture_output=True, text=True,
                          timeout=PATIENCE)


def wall(side=12):
    """A wall of voxels [N, 3], and feats of four channels."""
    coords = np.stack([*np.indices((side, side)).reshape(2, -1), np.zeros(side * side, int)], 1)
    return coords.astype(np.int32), np.ones((len(coords), 4), np.float32)


def test_voxels_are_not_divided_again(daemon, tmp_path):
    """Each would be alone, and the answer that of single voxels."""
    coords, feats = wall()
    np.savez(tmp_path / "a.npz", coords=coords, feats=feats, voxel_size=0.07)
    for command, words in (("infer", ("a.npz", "-o", "out.npz")), ("bench", ("a.npz",)),
                           ("perf-data", ("--from", "a.npz", "-o", "out.json"))):
        done = voxel(daemon, tmp_path, *words, "--voxel", 0.07, command=command)
        assert done.returncode == 2 and (
            "the positions are integers, so --voxel 0.07 would put neighbours 14.3 voxels apart: "
            "voxels need no --voxel") in done.stderr, done
    assert not list(tmp_path.glob("out*"))
    assert voxel(daemon, tmp_path, "a.npz", "--voxel", 2).returncode == 0


def test_voxels_that_are_all_alone_are_told(daemon, tmp_path):
    """A size in another unit than the positions'; a cloud may be so, and is answered."""
    coords, feats = wall()
    np.savez(tmp_path / "points.npz", coords=coords * 0.05, feats=feats)
    np.savez(tmp_path / "mm.npz", coords=coords * 50, feats=feats)
    alone = "warning: {}: hardly any of the 144 voxels has another beside it, so a network sees " \
        "each alone: "
    for file, size, asks in (("points.npz", ("--voxel", 0.002),
                              "is the size of a voxel, 0.002, in the unit of the positions?"),
                             ("mm.npz", (), "are the integers voxels? those in another unit need "
                              "--voxel SIZE")):
        for quiet in ((), ("-q",)):
            done = voxel(daemon, tmp_path, file, *size, *quiet)
            assert done.returncode == 0, done.stderr
            assert f"voxel infer: {alone.format(file)}{asks}\n" in done.stderr, done.stderr
    for file, size in (("points.npz", 0.05), ("mm.npz", 50)):
        assert voxel(daemon, tmp_path, file, "--voxel", size, "-q").stderr == ""


def test_no_picture_is_drawn_over_an_input(daemon, tmp_path):
    """Its name ends in .png, and it leads to the scan, or to a recording."""
    coords, feats = wall()
    np.savez(tmp_path / "a.npz", coords=coords, feats=feats)
    np.savez(tmp_path / "r.npz", coords=np.insert(coords, 0, 0, 1), feats=feats,
             **{"layer.x": feats})
    before = [(tmp_path / name).read_bytes() for name in ("a.npz", "r.npz")]
    for name in "ar":
        (tmp_path / f"{name}.png").symlink_to(f"{name}.npz")
    said = [voxel(daemon, tmp_path, "a.npz", "--render", "a.png")]
    for sides in (("a.npz", "r.npz"), ("r.npz", "a.npz")):
        said.append(subprocess.run([os.environ["VOXEL"], "diff", *sides, "--render", "r.png"],
                                   cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE))
    for done, name in zip(said, "arr"):
        assert done.returncode == 2, done.stdout
        assert f"{name}.png is the input and would be overwritten" in done.stderr, done.stderr
    assert before == [(tmp_path / name).read_bytes() for name in ("a.npz", "r.npz")]


def test_a_bench_sends_a_voxel_at_least(daemon, tmp_path):
    np.savez(tmp_path / "none.npz", coords=np.zeros((0, 3), np.int32))
    for words, says in ((("-n", 0), "--voxels: expected a whole number from 1 to"),
                        (("none.npz",), "none.npz: expected a voxel at least, got none")):
        done = voxel(daemon, tmp_path, *words, "--requests", 1, command="bench")
        assert done.returncode == 2 and says in done.stderr, done


@pytest.mark.parametrize("json_too", [False, True])
def test_a_bench_whose_server_ends_does_not_know_its_means(repository, tmp_path, json_too):
    """Nor asks it again and again as fast as it can: 181,148 requests failed in 2.5 s."""
    words = ("--duration", "600", "-c", "2", *(["--json"] if json_too else []))
    with Daemon(repository, tmp_path) as one:
        bench = subprocess.Popen([os.environ["VOXEL"], "bench", "--server", one.grpc, "--model",
                                  "conv", *words], text=True, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
        one.wait_for("requests after the warm-up", lambda: one.metrics().get(
            'voxeld_requests_total{code="OK"}', 0) > 50)
        begin = time.monotonic()
    host, port = one.grpc.rsplit(":", 1)
    with socket.create_server((host, int(port))) as nobody:  # says when bench misses its server
        nobody.settimeout(PATIENCE)
        nobody.accept()[0].close()
    time.sleep(1)  # sleep: in which no more requests may fail than pauses allow
    bench.send_signal(signal.SIGINT)
    out, err = bench.communicate(timeout=PATIENCE)
    paused = (time.monotonic() - begin) / 0.1
    assert bench.returncode == 1, (bench.returncode, err)
    if json_too:
        said = json.loads(out)
        failed = said["failed"]
        assert all(said["server_" + name] is None for name in ("count", "queue_us", "compute_us"))
    else:
        assert "measured by the server: not known, since it did not answer" in out, out
        failed = sum(map(int, re.findall(r"^failed .* (\d+)$", out, re.M)))
    # Two under way, a pause of 100 ms after each; and what a server that stops refuses.
    assert 0 < failed <= 2 * (paused + 2) + 10, (failed, paused)


def test_a_server_is_ready_without_a_model_that_came_later(tmp_path):
    """The first line and those below it agree."""
    for name in ("conv", "later"):
        ConvModel().write(tmp_path / "repository", name)
    with Daemon(tmp_path / "repository", tmp_path, "--model-control", "explicit", "--load-model",
                "conv") as one, Client(one.grpc) as client:
        def lines():
            done = subprocess.run([os.environ["VOXEL"], "status", "--server", one.grpc],
                                  capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 0, done.stderr
            return done.stdout.splitlines()
        assert lines()[0].endswith(", ready")
        (tmp_path / "repository" / "later" / "1" / "weights.safetensors").unlink()
        with pytest.raises(InvalidArgument):
            client.load("later")
        first, second, *_ = lines()
        assert first.endswith(", ready, but 1 of its models is not"), first
        assert second.startswith("later version 1 is not ready: UNAVAILABLE: "), second
