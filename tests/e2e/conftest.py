# SPDX-License-Identifier: Apache-2.0
"""Fixtures for every end-to-end test: a daemon with one small model, and a client of it."""
import os
import pathlib
import sys

import pytest

TESTS = pathlib.Path(__file__).resolve().parent
ROOT = TESTS.parent.parent
sys.path[:0] = [str(TESTS), str(ROOT / "clients" / "python")]

from model_files import ConvModel  # noqa: E402
from voxeld import Client  # noqa: E402
from voxeld_process import Daemon  # noqa: E402

SANITIZED = os.environ.get("VX_BUILD_KIND", "release") != "release"


MARKS = ("races: under TSan, of its file only what has this mark runs",
         "release: not under a sanitizer, where other tests run the same code with other data")


def pytest_configure(config):
    for mark in MARKS:
        config.addinivalue_line("markers", mark)


def pytest_collection_modifyitems(config, items):
    """Leaves out what a sanitizer need not repeat (e2e.cmake)."""
    races = {item.path for item in items if item.get_closest_marker("races")}

    def repeated(item):
        if item.get_closest_marker("release"):
            return not SANITIZED
        return (os.environ.get("VX_BUILD_KIND") != "tsan" or item.path not in races
                or item.get_closest_marker("races") is not None)
    config.hook.pytest_deselected(items=[item for item in items if not repeated(item)])
    items[:] = [item for item in items if repeated(item)]


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    path = tmp_path_factory.mktemp("repository")
    ConvModel().write(path)
    return path


@pytest.fixture(scope="module")
def small_repository(tmp_path_factory):
    """Its model fits a geometry cache of 8 MB."""
    path, model = tmp_path_factory.mktemp("small"), ConvModel()
    model.network["limits"] = {"voxels_max": 10000}
    model.write(path)
    return path


@pytest.fixture(scope="module")
def daemon(repository, tmp_path_factory):
    with Daemon(repository, tmp_path_factory.mktemp("daemon"), "--message-bytes-max", "8M") as one:
        yield one


@pytest.fixture(scope="module")
def client(daemon):
    with Client(daemon.grpc) as one:
        yield one


@pytest.fixture(scope="session")
def model():
    return ConvModel()
