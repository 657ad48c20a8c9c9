# SPDX-License-Identifier: Apache-2.0
"""A long request keeps the device, and brief ones are answered while it goes on."""
import threading

import numpy as np
import pytest

from conftest import SANITIZED
from model_files import ConvModel, random_grid
from voxeld import Client
from voxeld_process import PATIENCE, Daemon

# A long one takes a second or more, a brief one a millisecond.
LONG = 8000 if SANITIZED else 100000
WIDE, LAYERS = 64, 5


def long_model():
    """Four channels in and out, and layers of 64 between."""
    model = ConvModel(hidden=WIDE, co=4, warmup=[1])
    rng = np.random.default_rng(3)
    conv, act, head = model.network["layers"]
    chain, last = [conv, act], "act"
    for i in range(LAYERS):
        name = f"wide{i}"
        model.tensors[f"{name}.weight"] = rng.normal(size=(WIDE, 3, 3, 3, WIDE)).astype(
            np.float32) * 0.03
        chain.append({**conv, "name": name, "input": last, "channels": WIDE, "bias": False})
        last = name
    model.network["layers"] = [*chain, {**head, "input": last}]
    return model


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    repository = tmp_path_factory.mktemp("repository")
    ConvModel(warmup=[1]).write(repository, "small")
    long_model().write(repository, "large")
    for name in "abc":
        ConvModel(warmup=[1, 3000]).write(repository, name)
    with Daemon(repository, tmp_path_factory.mktemp("daemon"), "--threads", "2",
                "--model-control", "explicit", "--load-model", "small,large") as daemon:
        yield daemon


def flat(n):
    """A sheet in which nearly each voxel has nine neighbours."""
    at = np.arange(n, dtype=np.int32)
    return np.stack([0 * at, at // 400, at % 400, (at // 400 + at % 400) // 9], axis=1)


class Long(threading.Thread):
    """Long requests one after the other; each has the answer of the first."""

    def __init__(self, daemon, times):
        super().__init__()
        self.daemon, self.times, self.done, self.differ = daemon, times, 0, []

    def run(self):
        coords = flat(LONG)
        feats = np.linspace(-1, 1, LONG * 4, dtype=np.float32).reshape(LONG, 4)
        first = None
        with Client(self.daemon.grpc) as client:
            for _ in range(self.times):
                answer = client.infer("large", coords, feats, timeout=PATIENCE)["out"]
                self.done += 1
                first = answer if first is None else first
                if not np.array_equal(answer, first):
                    self.differ.append(self.done)


def answered(daemon):
    return daemon.metrics()['nv_inference_request_success{model="large",version="1"}']


def test_brief_requests_are_answered_while_a_long_one_goes_on(daemon):
    """While a worker has the long one and nothing else, a brief one is sent, with voxels or by
    their name, and its answer comes when that of the long one has not yet been counted.  By the
    order of arrival the long one ends first, always."""
    with Client(daemon.grpc) as client:
        grids = [random_grid(i, 20 + 30 * i) for i in range(6)]
        alone = [client.infer("small", *grid, coords_ref="") for grid in grids]
        for _ in range(8):
            client.infer("small", *grids[0])
        long = Long(daemon, 8)
        long.start()
        within = at = 0
        while long.is_alive():
            if daemon.metrics()["voxeld_running_requests"] != 1:
                continue
            before = answered(daemon)
            if daemon.metrics()["voxeld_running_requests"] != 1:
                continue
            at = (at + 1) % len(grids)
            by_name = at % 2 == 1
            answer = client.infer("small", None if by_name else grids[at][0], grids[at][1],
                                  coords_ref=alone[at].coords_ref if by_name else None,
                                  timeout=PATIENCE)
            assert np.array_equal(answer["out"], alone[at]["out"])
            within += answered(daemon) == before
        long.join()
        assert long.done == 8 and not long.differ
        assert within >= 4, f"{within} brief requests while a long one went on"


def test_loads_and_unloads_go_on_beside_traffic(daemon):
    """While a worker computes it hears of the next batches.  With clients that always wait it
    never has none: loads, warm-ups and unloads come between batches all the same."""
    coords = flat(1000 if SANITIZED else 4000)
    feats = np.ones((len(coords), 4), np.float32)
    stop = threading.Event()

    def send():
        with Client(daemon.grpc) as client:
            while not stop.is_set():
                client.infer("large", coords, feats, timeout=PATIENCE)

    busy = [threading.Thread(target=send) for _ in range(4)]
    for one in busy:
        one.start()
    with Client(daemon.grpc) as client:
        for name in "abc":
            client.load(name, timeout=PATIENCE)
            client.infer(name, *random_grid(3, 50), timeout=PATIENCE)
        client.unload("b", timeout=PATIENCE)
        client.load("b", timeout=PATIENCE)
        client.infer("b", *random_grid(3, 50), timeout=PATIENCE)
    stop.set()
    for one in busy:
        one.join()
