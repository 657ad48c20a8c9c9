# SPDX-License-Identifier: Apache-2.0
"""One rig for many attacks, and a new one after each that did harm, so failures do not spread."""
import os
import pathlib
import sys

import pytest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent)]

from rig import Rig  # noqa: E402

SANITIZED = os.environ.get("VX_BUILD_KIND", "release") != "release"

TRIES = 3  # of an attack whose good clients were late: two of them decide


class Rigs:
    """get() returns the current rig."""

    def __init__(self, factory, *flags, **options):
        self.factory, self.flags, self.options, self.rig = factory, flags, options, None

    def get(self):
        if self.rig and self.rig.hurt:
            self.rig.kill()
            self.rig = None
        if not self.rig:
            self.rig = Rig(self.factory.mktemp("rig"), *self.flags, **self.options)
            self.rig.__enter__()
        return self.rig

    def close(self):
        if self.rig and self.rig.hurt:
            self.rig.kill()
        elif self.rig:
            self.rig.stop()


def attacked(rigs, names, seconds):
    """Runs the attacks; a failure has their names and what was wrong.

    Late answers alone are tried again, since a busy machine is late now and then.  One that is late
    in two of three fails."""
    late = 0
    for _ in range(TRIES):
        finding = rigs.get().attack(*names, seconds=seconds)
        print(finding)
        late += bool(finding.late)
        if finding.wrong != finding.late or late != 1:
            break
    assert not finding.wrong, "\n".join([
        "", *finding.wrong, f"attackers: {finding.attacker}",
        f"alone: tests/hostile/judge.py --voxeld {os.environ['VOXELD']} {','.join(names)}"])


@pytest.fixture(scope="module")
def rigs(tmp_path_factory):
    one = Rigs(tmp_path_factory)
    yield one
    one.close()


@pytest.fixture(scope="module")
def crowd_rigs(tmp_path_factory):
    """How many connections may be open is a setting; this is its default."""
    one = Rigs(tmp_path_factory, "--connections-max", "1024")
    yield one
    one.close()


@pytest.fixture(scope="module")
def unix_rigs(tmp_path_factory):
    one = Rigs(tmp_path_factory, unix=True)
    yield one
    one.close()


@pytest.fixture(scope="module")
def tls_rigs(tmp_path_factory):
    one = Rigs(tmp_path_factory, tls=True)
    yield one
    one.close()
