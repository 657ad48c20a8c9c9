# SPDX-License-Identifier: Apache-2.0
"""The commands of clients/examples/README.md, in sizes that take seconds."""

import json
import os
import re
import shlex
import subprocess
import sys
import zlib

import numpy as np
import pytest
from conftest import ROOT

FOLDER = ROOT / "clients" / "examples"
README = (FOLDER / "README.md").read_text()
STORIES = ("street", "bev", "surface")
SMALL = {
    "street": ["--scans", "2", "--rays", "7500"],
    "bev": ["--scans", "3", "--rays", "9000"],
    "surface": ["--latents", "12", "--doublings", "2", "--blobs", "8"],
}


def command(story):
    """The words of a story's block of the README."""
    found = re.findall(rf"^<!-- story: {story} -->\n```sh\n(.*?)\n```$", README, re.M | re.S)
    assert len(found) == 1
    return shlex.split(found[0])


def run(story, tmp_path, *more):
    """(numbers that the story wrote, what it printed, its picture): run from the tree's root."""
    words = command(story)
    assert words[:2] == ["python3", f"clients/examples/{story}.py"] and words[2] == "-o"
    words[0], words[3] = sys.executable, str(tmp_path)
    done = subprocess.run(
        [*words, *more], cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    numbers = json.loads((tmp_path / f"{story}.json").read_text())
    return numbers, done.stdout, pixels(tmp_path / f"{story}.png")


def pixels(path):
    """What each pixel's bytes are, [H, W, ...]: of the PNGs that the examples write, one chunk."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and data.endswith(b"IEND\xaeB`\x82")
    chunks, at = {}, 8
    while at < len(data):
        size, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + size]
        check = int.from_bytes(data[at + 8 + size : at + 12 + size], "big")
        assert check == zlib.crc32(kind + body)
        chunks[kind] = body
        at += 12 + size
    width, height = (int.from_bytes(chunks[b"IHDR"][i : i + 4], "big") for i in (0, 4))
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, -1)
    assert (rows[:, 0] == 0).all()
    return rows[:, 1:].reshape(height, width, -1)


def panels(picture, count):
    """The panels of a picture; none is empty, and no two are the same."""
    parts = np.array_split(picture, count, axis=1)
    for number, part in enumerate(parts):
        values, counts = np.unique(part.reshape(-1, part.shape[2]), axis=0, return_counts=True)
        assert len(values) > 2, f"panel {number} has {len(values)} colours"
        assert counts.max() < 0.999 * counts.sum(), f"panel {number} shows nothing"
    assert len({part.tobytes() for part in parts}) == count


def test_street(tmp_path):
    numbers, printed, picture = run("street", tmp_path, *SMALL["street"])
    # A head that knows nothing answers the largest class everywhere.
    assert numbers["accuracy"] > numbers["majority"] + 0.4 * (1 - numbers["majority"])
    assert numbers["miou"] > 3 * numbers["majority"] / 5
    assert "labels differ" in printed and "in all" in printed
    panels(picture, 2)


def test_bev(tmp_path):
    numbers, printed, picture = run("bev", tmp_path, *SMALL["bev"])
    # "A car, everywhere" is the best that a constant can answer.
    assert 0.02 < numbers["everywhere"] < 0.15
    assert numbers["iou"] > 4 * numbers["everywhere"]
    assert "spatial_features" in printed and "in all" in printed
    panels(picture, 3)


def test_surface(tmp_path):
    numbers, printed, picture = run("surface", tmp_path, *SMALL["surface"])
    # "All children" is the best that a constant can answer; the middle of a voxel has no vertex.
    assert numbers["iou"] > 2 * numbers["all_children"]
    assert numbers["vertices"] < 0.7 * numbers["middles"]
    assert "quad_lerp" in printed and "in all" in printed
    panels(picture, 4)


@pytest.mark.parametrize("story", STORIES)
def test_pictures_of_the_readme(story):
    """They are there, shown, and small; the text quotes what the command of the README prints."""
    path = FOLDER / f"{story}.png"
    assert f"]({story}.png)" in README
    assert 4000 < path.stat().st_size < 150_000
    picture = pixels(path)
    assert picture.shape[0] > 200 and picture.shape[1] > 700


def test_no_voxeld(tmp_path):
    """A story without a server says what is missing, before it computes."""
    done = subprocess.run(
        [sys.executable, str(FOLDER / "bev.py"), "-o", str(tmp_path)],
        env={**os.environ, "VOXELD": "/nowhere/voxeld"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "no voxeld" in done.stderr and "VOXELD" in done.stderr
    assert done.stdout == "" and list(tmp_path.iterdir()) == []
