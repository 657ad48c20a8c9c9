# SPDX-License-Identifier: Apache-2.0
"""A worker ends around the replacement of a version that serves: with SIGHUP, in each order, and
without."""

import json
import os
import signal

import numpy as np
import pytest

import voxeld
from model_files import ConvModel, random_grid
from test_model_life import Hammer, put_weights, serving
from voxeld_process import PATIENCE


def test_a_restarted_worker_serves_the_files_that_are_there(tmp_path):
    """Without SIGHUP: the old ones are gone, and a version that serves must not end with a worker,
    as long as what is there is loaded whole and takes the same requests."""
    repository = tmp_path / "repository"
    ConvModel(seed=1).write(repository)
    new, other = ConvModel(seed=2), ConvModel(seed=3, co=5)
    coords, feats = random_grid(1, 100)

    def replace_and_kill(model):
        put_weights(repository, model)  # the same shapes: nothing but the files' times differ
        os.kill(daemon.workers()[0], signal.SIGKILL)
    with serving(repository, tmp_path, "--threads", "1") as (daemon, client, control):
        replace_and_kill(new)
        daemon.wait_said("MODEL_FOLLOWS")
        assert np.allclose(client.infer("conv", coords, feats, timeout=PATIENCE)["out"],
                           new.answer(coords, feats), atol=1e-3)
        assert control.index()["conv", "1"] == ("READY", "")
        daemon.wait_for("a worker", daemon.workers)
        (repository / "conv" / "network.json").write_text(json.dumps(other.network))
        replace_and_kill(other)
        daemon.wait_for("the refusal", lambda: control.index()["conv", "1"][0] == "UNAVAILABLE")
        assert "changed on disk" in control.index()["conv", "1"][1]
        with pytest.raises(voxeld.Unavailable):
            client.infer("conv", coords, feats)
        daemon.signal(signal.SIGHUP)
        daemon.wait_for("the new files", lambda: control.index()["conv", "1"][0] == "READY")
        assert np.allclose(client.infer("conv", coords, feats)["out"],
                           other.answer(coords, feats), atol=1e-3)


@pytest.mark.parametrize("coords", [{"spatial_shape": [64, 64, 65]}, {"spatial_shape": 64,
                                                                      "axes": "zyx"}])
def test_requests_do_not_follow_to_other_coordinates(tmp_path, coords):
    """Who sent spatial_shape=64x64x64 was admitted as one who sent none, and must not get the
    answer of another; nor one of columns that mean others now."""
    repository = tmp_path / "repository"
    model = ConvModel(seed=1)
    model.network["inputs"]["coords"] = {"spatial_shape": [64, 64, 64]}
    model.write(repository)
    with serving(repository, tmp_path, "--threads", "1") as (daemon, client, control):
        model.network["inputs"]["coords"] = coords
        (repository / "conv" / "network.json").write_text(json.dumps(model.network))
        os.kill(daemon.workers()[0], signal.SIGKILL)
        daemon.wait_for("the refusal", lambda: control.index()["conv", "1"][0] == "UNAVAILABLE")
        assert "changed on disk" in control.index()["conv", "1"][1]
        with pytest.raises(voxeld.Unavailable):
            client.infer("conv", *random_grid(1, 100))


def test_a_worker_that_ends_during_a_replacement_fails_no_request(tmp_path):
    """In each order of the rename, SIGHUP, what follows of it, and the death."""
    repository = tmp_path / "repository"
    models = [ConvModel(seed=seed) for seed in range(6)]
    models[0].write(repository)

    def put():
        put_weights(repository, models[latest])

    def said(event):
        before = daemon.log().count(event)
        return lambda: daemon.wait_said(event, before + 1)

    with serving(repository, tmp_path, "--threads", "1", "--restart-ms-max", "500") as (
            daemon, _, control), Hammer(daemon, models) as hammer:
        def hup():
            daemon.signal(signal.SIGHUP)

        def kill():
            os.kill(daemon.workers()[0], signal.SIGKILL)

        def hup_and(event):
            wait = said(event)
            hup()
            wait()
        orders = ((kill, put, hup), (put, hup, kill),
                  (put, lambda: hup_and("MODEL_LOADING"), kill),
                  (put, lambda: hup_and("MODEL_READY"), kill), (put, kill))
        for latest, order in enumerate(orders, start=1):
            hammer.more(50)
            for step in order:
                step()
            daemon.wait_for("the new one", lambda: hammer.errors or hammer.seen[-1] == latest)
            hammer.all_anew()
            assert not hammer.errors, (latest, hammer.errors)
        assert control.index()["conv", "1"] == ("READY", "")
