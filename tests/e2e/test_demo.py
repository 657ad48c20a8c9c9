# SPDX-License-Identifier: Apache-2.0
"""The demo model through the real daemon: its error on unseen shapes, and the picture."""
import os
import pathlib
import struct
import subprocess
import sys

import numpy as np
import pytest

import voxeld
from conftest import ROOT, SANITIZED
from voxeld import Client
from voxeld_process import PATIENCE, Daemon

DEMO = ROOT / "deploy" / "demo"
DEGREES_MAX = 15.0


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with Daemon(DEMO / "repository", tmp_path_factory.mktemp("demo")) as one:
        yield one


def test_mean_angular_error_on_unseen_shapes(daemon, capsys):
    sys.path.insert(0, str(DEMO))
    import accuracy
    import heldout
    score = accuracy.Score()
    with Client(daemon.grpc) as client:
        for case in heldout.cases():
            coords = accuracy.with_sample(case.coords)
            feats = np.ones((len(coords), 1), np.float32)
            score.add(case, client.infer("normals", coords, feats, timeout=PATIENCE)["normals"])
    with capsys.disabled():
        print("\n" + score.table())
    assert len(score.angles) >= 4
    assert score.mean() < DEGREES_MAX


def test_what_it_takes_is_what_fits_the_cache(daemon):
    """512 MiB: two maps of 27 * 4 bytes a voxel, and 12 bytes a voxel of keys."""
    checked = subprocess.run([os.environ["VOXELD"], "check", str(DEMO / "repository" / "normals")],
                             capture_output=True, text=True, timeout=PATIENCE)
    said = ("at most 4194304 voxels in a request (fewer if --device-bytes or, on the CPU, "
            "--cache-bytes do not hold them; the log event MODEL_READY says how many)")
    assert said in checked.stdout
    coords = np.zeros((2354670, 4), np.int32)
    daemon.wait_said("voxels_max=2354669 bounded_by=cache_bytes")  # of the event MODEL_READY
    with Client(daemon.grpc) as client, pytest.raises(voxeld.ResourceExhausted) as caught:
        client.infer("normals", coords, np.ones((len(coords), 1), np.float32), timeout=PATIENCE)
    assert ("serves at most 2354669 voxels in one request, got 2354670; send fewer, or this needs "
            "a larger --cache-bytes of its server" in caught.value.message)


def test_the_picture(daemon, tmp_path):
    picture, cloud = tmp_path / "scan.png", tmp_path / "out.ply"
    done = subprocess.run([os.environ["VOXEL"], "infer", "--server", daemon.grpc, "--model",
                           "normals", str(DEMO / "scan.ply"), "--render", str(picture),
                           "-o", str(cloud)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    data = picture.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert width >= 800 and height >= 500 and len(data) > 100_000
    header = cloud.read_bytes()[:400].decode(errors="replace")
    assert "property float nx" in header
