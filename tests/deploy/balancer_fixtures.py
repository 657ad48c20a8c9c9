# SPDX-License-Identifier: Apache-2.0
"""What stands behind a load balancer in its test: pytest_plugins = ["balancer_fixtures"]."""

import contextlib
import pathlib
import shutil

import pytest

from balancer_load import MODEL
from balancer_tls import Authorities, fill
from deployed import tool
from model_files import ConvModel, random_grid
from replica_process import Replica, address

GEOMETRIES = 40


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """One channel out: an answer of 9,000 rows, 36 kB, fits HTTP/2's first window of 64 kB, so that
    it is sent at once.  A balancer cannot send a call again whose answer has begun to arrive: with
    three channels a kill fell into an answer in one run of seven."""
    path, model = tmp_path_factory.mktemp("repository"), ConvModel(co=1)
    model.network.update(limits={"voxels_max": 10000}, warmup=[10])
    model.write(path, MODEL)
    return path


@pytest.fixture(scope="module")
def grids():
    """Sizes on both sides of the 64 rows that make a header."""
    return [random_grid(seed, 20 + 7 * seed) for seed in range(GEOMETRIES)]


@pytest.fixture(scope="module")
def large_grids():
    """Requests of 290 kB: more than a connection takes at once, less than a balancer keeps.  So
    many that each replica has some."""
    return [random_grid(seed, 9000) for seed in range(20)]


@pytest.fixture
def replicas(repository, tmp_path):
    """Two, one over TCP and one over a Unix socket.  Their grace is over at the second SIGTERM."""
    flags = ("--grace-ms", "600000", "--drain-ms", "600000")
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(Replica(repository, tmp_path, name, where, *flags))
            for name, where in (
                ("a", address(21802)),
                ("b", f"{address(21803)},unix:{tmp_path}/b.sock"),
            )
        ]


@pytest.fixture(scope="module")
def signed(tmp_path_factory):
    if not tool("openssl"):
        pytest.skip("SKIPPED deploy: no openssl, which makes the certificates of a balancer")
    return Authorities(tmp_path_factory.mktemp("authorities"))


@pytest.fixture
def tls(signed):
    return signed.trusting()


@pytest.fixture
def trusted(signed, tmp_path):
    """The authorities whose certificates replicas admit."""
    return pathlib.Path(shutil.copy(signed.inside.cert, tmp_path / "proxy-ca.pem"))


@pytest.fixture
def files(signed, tmp_path):
    """What deploy/haproxy/README.md says is in the balancer's folder."""
    return fill(tmp_path / "tls", signed)
