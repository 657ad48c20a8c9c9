# SPDX-License-Identifier: Apache-2.0
"""tests/gpu/families.py as on a GPU, on the CPU: whole families beside spconv's own modules."""

import os
import pathlib
import subprocess
import sys

from conftest import ROOT

SCRIPT = ROOT / "tests" / "gpu" / "families.py"
BIN = pathlib.Path(os.environ["VOXELD"]).parent


def run(*words):
    done = subprocess.run(
        [sys.executable, SCRIPT, *map(str, words)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_all_of_it(tmp_path):
    code, said = run("make", tmp_path / "all")
    assert code == 0, said
    code, said = run("run", tmp_path / "all", "--bin", BIN, "--device", "cpu", "--moves", "8")
    assert code == 0, said
    assert said.count("together") == 3 and said.count("8 at once") == 3
    code, said = run("check", tmp_path / "all", "--device", "cpu")
    assert code == 0, said
    errors = {line.split(":")[0]: float(line.split("NMSE ")[1].split(",")[0])
              for line in said.splitlines()}
    # Both compute in float32 here, with the same weights.
    assert set(errors) == {"minkunet34", "second"} and max(errors.values()) < 1e-11
    # A weight that is another is noticed.
    weights = tmp_path / "all" / "repository" / "second" / "1" / "weights.safetensors"
    data = bytearray(weights.read_bytes())
    data[-4000:] = bytes(4000)
    weights.write_bytes(data)
    code, said = run("check", tmp_path / "all", "--device", "cpu")
    assert code == 1 and "second: (1, 256," in said and "WRONG" in said
