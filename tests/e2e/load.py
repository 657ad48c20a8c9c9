# SPDX-License-Identifier: Apache-2.0
"""Clients that infer in a closed loop and compare the answers."""
import threading
import time

import numpy as np

import voxeld
from model_files import random_grid
from voxeld import Client
from voxeld_process import PATIENCE


class Load:
    """Threads that infer until stopped; each answer is compared bit for bit with the first."""

    def __init__(self, daemon, threads=4, voxels=4000, model="conv"):
        self.daemon, self.model = daemon, model
        self.done, self.errors, self.stopped = 0, [], threading.Event()
        self.answered = []  # when each answer arrived
        self.threads = [threading.Thread(target=self._run, args=(i, voxels))
                        for i in range(threads)]

    def _run(self, seed, voxels):
        coords, feats = random_grid(seed, voxels)
        with Client(self.daemon.grpc) as client:
            expected = None
            while not self.stopped.is_set():
                try:
                    out = client.infer(self.model, coords, feats, timeout=PATIENCE)["out"]
                except voxeld.VoxeldError as error:
                    self.errors.append(error)
                    return
                if expected is None:
                    expected = out
                if not np.array_equal(out, expected):
                    self.errors.append(AssertionError("an answer changed"))
                    return
                self.answered.append(time.monotonic())
                self.done += 1

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *exc):
        self.stopped.set()
        for thread in self.threads:
            thread.join()

    def gap(self, begin, end):
        """The longest time without an answer between two moments."""
        moments = [begin, *sorted(t for t in self.answered if begin <= t <= end), end]
        return max(b - a for a, b in zip(moments, moments[1:]))
