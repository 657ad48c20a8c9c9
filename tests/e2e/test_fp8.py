# SPDX-License-Identifier: Apache-2.0
"""A model with a layer in FP8: what it answers, and what `voxeld check` says of it."""
import os
import subprocess

import numpy as np
import pytest

from model_files import ConvModel, random_grid
from voxeld import Client
from voxeld_process import Daemon

VOXELD = os.environ["VOXELD"]

SCALE = 2.0 ** -6


def numbers():
    """Every number of e4m3 that is not negative, ascending: the place of one is its byte."""
    small = [fraction / 8 * 2.0 ** -6 for fraction in range(8)]
    large = [(1 + fraction / 8) * 2.0 ** (exponent - 7)
             for exponent in range(1, 16) for fraction in range(8)]
    return np.array(small + large[:-1])  # the last byte is NaN


def e4m3(values):
    """The nearest number, with an even byte between two."""
    table = numbers()
    size = np.minimum(np.abs(values), table[-1])
    above = np.searchsorted(table, size).clip(1)
    low, high = table[above - 1], table[above]
    up = (size - low > high - size) | ((size - low == high - size) & (above % 2 == 0))
    return np.copysign(np.where(up, high, low), values)


class Fp8Model(ConvModel):
    def __init__(self, nmse_max=0.02, **more):
        super().__init__(**more)
        self.network["layers"][0]["fp8_scale"] = SCALE
        self.network["precision"] = "fp16"
        self.network["fp8"] = {"data": "fp8.npz", "nmse_max": nmse_max}

    def write(self, repository, *where, data=True):
        super().write(repository, *where)
        coords, feats = random_grid(5, 300)
        if data:
            np.savez(repository / "conv" / "fp8.npz", coords=coords, feats=feats)
        return self

    def answer(self, coords, feats):
        weight = self.tensors["conv.weight"].astype(np.float64)
        most = np.abs(weight).reshape(len(weight), -1).max(1)
        scale = 2.0 ** np.ceil(np.log2(most / 448)).reshape(-1, 1, 1, 1, 1)
        rounded = ConvModel(ci=self.ci, hidden=self.hidden, co=self.co)
        rounded.tensors = {**self.tensors, "conv.weight": e4m3(weight / scale) * scale}
        return rounded.answer(coords, e4m3(feats.astype(np.float64) / SCALE) * SCALE)


def check(folder):
    return subprocess.run([VOXELD, "check", folder], capture_output=True, text=True, check=False)


def test_the_definition_can_fail():
    assert len(numbers()) == 127 and numbers()[-1] == 448
    assert e4m3(np.array([1.0625, 1.1875, -500.0, 2.0 ** -10])).tolist() == [1.0, 1.25, -448.0, 0.0]
    model = Fp8Model()
    coords, feats = random_grid(7, 200)
    plain = ConvModel.answer(model, coords, feats)
    off = np.square(model.answer(coords, feats) - plain).sum() / np.square(plain).sum()
    assert 1e-4 < off < 1e-2


def test_what_is_answered(tmp_path):
    model = Fp8Model().write(tmp_path)
    coords, feats = random_grid(7, 400)
    with Daemon(tmp_path, tmp_path, "--device", "cpu") as daemon, Client(daemon.grpc) as client:
        answer = client.infer("conv", coords, feats)["out"]
    wanted = model.answer(coords, feats)
    assert np.abs(answer - wanted).max() < 1e-5 * np.abs(wanted).max()


def test_check_within_the_bound(tmp_path):
    Fp8Model().write(tmp_path)
    said = check(tmp_path / "conv")
    assert (said.returncode, said.stderr) == (0, "")
    assert " 3x3x3 fp8 2^-6 " in said.stdout
    assert ("FP8: 1 of 3 layers multiply e4m3; outputs on fp8.npz (300 voxels), in f32 with and "
            "without\n") in said.stdout
    last = said.stdout.splitlines()[-1].split()
    assert last[0] == "out" and 1e-4 < float(last[1]) < 1e-2 and last[2] == "0.02"


def test_check_beyond_the_bound(tmp_path):
    """The table is printed, and the daemon's reason; without its data it is refused, too."""
    Fp8Model(nmse_max=1e-5).write(tmp_path)
    said = check(tmp_path / "conv")
    assert said.returncode == 1 and "\n  out  " in said.stdout
    assert "INVALID_ARGUMENT: conv/network.json: output \"out\" in FP8: expected an NMSE of at " \
           "most 1e-05 (\"fp8\": \"nmse_max\") on fp8.npz, got 0.0" in said.stderr
    (tmp_path / "conv" / "fp8.npz").unlink()
    said = check(tmp_path / "conv")
    assert said.returncode == 1
    assert 'NOT_FOUND: "fp8": "data": conv/fp8.npz: cannot be opened' in said.stderr


@pytest.mark.parametrize("change, says", [
    ({"precision": "tf32"}, '"precision": expected "fp16" or "bf16" with layers that have'),
    ({"precision": "auto"}, 'got "auto", which is tf32 for these weights'),
    ({"fp8": {"data": "../a.npz", "nmse_max": 0.1}}, "expected the name of a file beside"),
])
def test_check_refuses(tmp_path, change, says):
    model = Fp8Model()
    model.network.update(change)
    model.write(tmp_path)
    said = check(tmp_path / "conv")
    assert said.returncode == 1 and says in said.stderr
