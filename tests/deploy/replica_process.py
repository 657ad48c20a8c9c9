# SPDX-License-Identifier: Apache-2.0
"""Replicas under test, which come back at their address."""

import os
import signal

import deployed  # its path has voxeld_process; pylint: disable=unused-import
from voxeld_process import PATIENCE, Daemon


def address(port):
    """An address on the loopback that belongs to this process, so that no other test takes it."""
    pid = os.getpid()
    return f"127.{64 + (pid >> 16 & 63)}.{pid >> 8 & 255}.{pid & 255}:{port}"


class Replica:
    """A daemon that can be started again at its address."""

    def __init__(self, repository, folder, name, grpc, *flags):
        self.name, self.grpc = name, grpc
        self.arguments = (repository, folder, "--grpc", grpc, "--threads", "1", *flags)
        self.daemon = None

    def start(self):
        self.daemon = Daemon(*self.arguments)
        return self

    def end(self):
        """Its exit code, when it has ended by itself or by a signal."""
        return self.daemon.process.wait(PATIENCE)

    def signal(self, number):
        self.daemon.signal(number)

    def terminate(self):
        """SIGTERM, and waits for the daemon's grace: a second signal before it would be lost."""
        self.signal(signal.SIGTERM)
        self.daemon.wait_said("step=grace")

    def metrics(self):
        return self.daemon.metrics()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        if self.daemon.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.end()
