# SPDX-License-Identifier: Apache-2.0
"""The commands of README.md after its quickstart, unchanged: install, serve, infer, Python.

The test replaces only ports, by free ones, and lets pip use the packages of the tests' own venv.
"""
import json
import os
import pathlib
import re
import shutil
import signal
import site
import subprocess
import time

import numpy as np

from conftest import ROOT
from model_files import write_safetensors
from voxeld_process import PATIENCE

BUILD = pathlib.Path(os.environ["VX_BIN"]).parent
STEPS = dict(re.findall(r"^<!-- step: (\S+) -->\n```\w+\n(.*?)^```$",
                        (ROOT / "README.md").read_text(), re.M | re.S))

MODELS = {name: json.loads(text) for path in ("README.md", "engine/README.md") for name, text in
          re.findall(r"^<!-- model: (\S+) -->\n```json\n(.*?)^```$",
                     (ROOT / path).read_text(), re.M | re.S)}


def run(text, folder, environment):
    done = subprocess.run(["bash", "-euc", text], cwd=folder, env=environment, text=True,
                          capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def tree(folder):
    """The clone as a reader has it, with a folder here for what is written."""
    (folder / "build").mkdir()
    (folder / "build" / "release").symlink_to(BUILD)
    (folder / "deploy").symlink_to(ROOT / "deploy")
    shutil.copytree(ROOT / "clients" / "python", folder / "clients" / "python")


def serve(folder, environment):
    """The daemon of the step, and where it listens once it is ready."""
    ready = folder / "ready"
    text = STEPS["serve"].replace("voxeld serve", "exec voxeld serve --grpc 127.0.0.1:0 --http "
                                  f"127.0.0.1:0 --grace-ms 0 --ready-file {ready}")
    with open(folder / "log", "wb") as log:
        daemon = subprocess.Popen(["bash", "-euc", text], cwd=folder, env=environment, stdout=log,
                                  stderr=log)
    end = time.monotonic() + PATIENCE
    while not ready.exists() and daemon.poll() is None and time.monotonic() < end:
        time.sleep(0.02)  # sleep: between two checks
    if not ready.exists():
        daemon.kill()
        raise AssertionError((folder / "log").read_text())
    return daemon, re.search(r"grpc=(\S+)", ready.read_text())[1]


def test_a_newcomer_reaches_the_end(tmp_path):
    assert list(STEPS) == ["install", "serve", "ask", "pip", "python"]
    tree(tmp_path)
    home = dict(os.environ, HOME=str(tmp_path / "home"))
    run(STEPS["install"], tmp_path, home)
    # The second line of the step is for this shell; here it is for those that follow.
    assert "export PATH=~/.local/bin:$PATH\n" in STEPS["install"]
    home["PATH"] = f"{tmp_path}/home/.local/bin:{os.environ['PATH']}"
    daemon, address = serve(tmp_path, home)
    try:
        asked = re.sub(r"\bvoxel (\w+)", rf"voxel \1 --server {address}", STEPS["ask"])
        said = run(asked, tmp_path, home)
        assert ", ready\n" in said and "wrote normals.png" in said
        normals = np.load(tmp_path / "normals.npz")
        assert normals["coords"].shape == (len(normals["normals"]), 4)
        offline = STEPS["pip"].replace("pip install", "pip install --no-deps --no-index "
                                       "--no-build-isolation")
        home["PYTHONPATH"] = os.pathsep.join(site.getsitepackages())
        run(offline, tmp_path, home)
        text = STEPS["python"]
        assert "127.0.0.1:8001" in text
        (tmp_path / "ask.py").write_text(text.replace("127.0.0.1:8001", address))
        numbers = re.findall(r"-?\d+\.\d*(?:e-?\d+)?",
                             run("~/voxeld-venv/bin/python ask.py", tmp_path, home))
        np.testing.assert_allclose(np.float32(numbers).reshape(3, 3), normals["normals"][:3],
                                   atol=1e-6)
    finally:
        daemon.send_signal(signal.SIGINT)
        assert daemon.wait(60) == 0


def check(folder, network, tensors):
    """What `voxeld check` says of a model with these shapes."""
    (folder / "1").mkdir(parents=True)
    (folder / "network.json").write_text(json.dumps(network))
    write_safetensors(folder / "1" / "weights.safetensors",
                      {name: np.ones(shape, np.float32) for name, shape in tensors.items()})
    done = subprocess.run([os.environ["VOXELD"], "check", folder], capture_output=True, text=True,
                          timeout=PATIENCE)
    assert done.returncode == 0 and "\nnotes\n" not in done.stdout, done.stdout + done.stderr


def test_the_networks_of_the_readme_are_read(tmp_path):
    """Against state_dict() of such modules, without a note: the names are PyTorch's, not ours."""
    def norm(name):
        return {f"{name}.{part}": (32,) for part in ("weight", "bias", "running_mean",
                                                     "running_var")}
    check(tmp_path / "normals", MODELS["normals"], norm("stem_bn") | {
        "stem.kernel": (27, 1, 32), "block.conv.kernel": (27, 32, 32), "block.conv.bias": (32,),
        "head.weight": (3, 32), "head.bias": (3,)})
    network = MODELS["network.json"]
    head = {"head.weight": (20, 32), "head.bias": (20,)}
    check(tmp_path / "spconv", network,
          norm("bn") | norm("block.bn1") | head | {"stem.weight": (32, 3, 3, 3, 4),
                                                   "block.conv1.weight": (32, 3, 3, 3, 32)})
    head = {f"head.linear.{part}": shape for part, shape in (("weight", (20, 32)), ("bias", (20,)))}
    network = dict(network, layers=MODELS["minkowski"])
    check(tmp_path / "minkowski", network, norm("bn.bn") | head | {"stem.kernel": (27, 4, 32)})
    levels = {"enc": (16, 4), "down": (32, 16), "mid": (32, 32), "up": (16, 32)}
    check(tmp_path / "unet", MODELS["unet"], {"head.weight": (20, 32), "head.bias": (20,)} | {
        f"{name}.weight": (co, 3, 3, 3, ci) for name, (co, ci) in levels.items()})
