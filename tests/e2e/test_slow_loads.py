# SPDX-License-Identifier: Apache-2.0
"""Models that load slowly, and workers that are killed meanwhile: serving comes first.

The tests check the order of events: so many good answers before the slow model is ready.
"""
import os
import re
import signal

import numpy as np
import pytest

from model_files import ConvModel, random_grid
from test_model_life import serving
from voxeld import VoxeldError
from voxeld_process import PATIENCE

# On any machine a step of a warm-up is shorter than these, and a whole warm-up far longer.
LIMITS = ("--watchdog-ms", "5000", "--start-ms-max", "15000", "--device-bytes", "1G",
          "--cache-bytes", "256M")


def limits(device):
    """And a GPU measures every tile, which takes longest."""
    tunes = () if device == "cpu" else ("--tune", "all", "--tune-table", "")
    return ("--device", device, *LIMITS, *tunes)


# Each answer may wait for one step; the slow model has far more steps than that.
ANSWERS = 10


class SlowModel:
    """A chain of convolutions with many large warm-ups: minutes, in thousands of steps.  On the
    CPU a step is a layer, on a GPU a candidate of tuning, which equal layers share."""

    def __init__(self, widths, voxels):
        rng = np.random.default_rng(1)
        names = [f"c{i}" for i in range(len(widths))]
        inputs = [widths[0], *widths]
        self.tensors = {
            f"{name}.weight": rng.normal(size=(co, 3, 3, 3, ci)).astype(np.float32) * 0.01
            for name, ci, co in zip(names, inputs, widths)}
        self.network = {
            "format": 1,
            "inputs": {"feats": {"channels": widths[0]}},
            "layers": [{"name": name, "op": "subm_conv", "channels": co, "kernel": 3,
                        "bias": False, "input": names[i - 1] if i else "feats"}
                       for i, (name, co) in enumerate(zip(names, widths))],
            "outputs": [{"name": "out", "layer": names[-1]}],
            "limits": {"voxels_max": voxels},
            "warmup": [voxels - i for i in range(16)],
        }

    write = ConvModel.write


def good_model():
    model = ConvModel()
    model.network["warmup"] = [10]
    return model


def slow_model(device):
    return SlowModel([8] * 900, 60000) if device == "cpu" else SlowModel(range(16, 112, 8), 250)


def steps(control, name="a_slow"):
    """Warm-up steps that the model has done; it must not be ready."""
    state, reason = control.index()[(name, "1")]
    assert state == "LOADING", (state, reason)
    found = re.match(r"(?:warming up: )?(\d+) of \d+ (?:steps|convolutions tuned)", reason)
    return int(found[1]) if found else 0


def total(daemon, what):
    return sum(v for k, v in daemon.metrics().items() if k.startswith(f"voxeld_worker_{what}"))


def good_answers(client, count):
    model = ConvModel()
    for i in range(count):
        coords, feats = random_grid(i, 20 + i)
        out = client.infer("conv", coords, feats, timeout=PATIENCE)["out"]
        assert np.allclose(out, model.answer(coords, feats), atol=1e-2)


def served(client):
    try:
        good_answers(client, 1)
    except VoxeldError:
        return False
    return True


@pytest.mark.parametrize("device", ["cpu", "fake:0"])
def test_a_good_model_listed_behind_a_slow_one_is_served_first(tmp_path, device):
    repository = tmp_path / "repository"
    slow_model(device).write(repository, "a_slow")
    good_model().write(repository)
    with serving(repository, tmp_path, *limits(device),
                 wait_ready=False) as (daemon, client, control):
        daemon.wait_for("the good model", lambda: served(client))
        before = daemon.wait_for("the slow one", lambda: steps(control))
        good_answers(client, ANSWERS)
        assert steps(control) >= before
        daemon.wait_for("the slow one to go on", lambda: steps(control) > before)
        good_answers(client, ANSWERS)
        steps(control)  # still not ready
        assert total(daemon, "restarts_total") == 0 == total(daemon, "hangs_total")


@pytest.mark.release
@pytest.mark.parametrize("device", ["cpu", "fake:0"])
def test_models_serve_on_while_a_slow_one_is_added(tmp_path, device):
    repository = tmp_path / "repository"
    good_model().write(repository)
    with serving(repository, tmp_path, *limits(device)) as (daemon, client, control):
        slow_model(device).write(repository, "a_slow")
        daemon.signal(signal.SIGHUP)
        daemon.wait_for("the slow one to begin",
                        lambda: ("a_slow", "1") in control.index() and steps(control))
        for _ in range(3):
            before = steps(control)
            good_answers(client, ANSWERS)
            daemon.wait_for("the slow one to go on", lambda: steps(control) > before)
        assert total(daemon, "restarts_total") == 0 == total(daemon, "hangs_total")


def test_a_load_whose_worker_is_killed_from_outside_is_never_given_up(tmp_path):
    repository = tmp_path / "repository"
    model = slow_model("cpu")
    good_model().write(repository)
    with serving(repository, tmp_path, *limits("cpu")) as (daemon, client, control):
        model.write(repository, "a_slow")
        daemon.signal(signal.SIGHUP)
        for kill in range(5):
            daemon.wait_for("the slow one to be loaded", lambda: (
                ("a_slow", "1") in control.index() and steps(control)))
            os.kill(daemon.workers()[0], signal.SIGKILL)
            daemon.wait_for("its end to be told",
                            lambda: daemon.log().count("MODEL_RETRY") == kill + 1)
            assert control.index()[("a_slow", "1")][0] == "LOADING"
            good_answers(client, 3)  # the slow model does not delay it
        assert "MODEL_FAILED" not in daemon.log()
        model.network["warmup"] = [10]
        model.write(repository, "a_slow")
        daemon.signal(signal.SIGHUP)
        daemon.wait_for("it to be ready",
                        lambda: control.index()[("a_slow", "1")][0] == "READY")
