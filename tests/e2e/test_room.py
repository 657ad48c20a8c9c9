# SPDX-License-Identifier: Apache-2.0
"""System limits: under each the daemon serves, or prints an error and ends at once."""
import os
import resource
import subprocess

import numpy as np
import pytest

from conftest import SANITIZED
from voxeld import Client
from voxeld_process import PATIENCE, Daemon

MIB = 1 << 20
# With Daemon's settings and these the arena has 256 MB.
SMALL = ("--device-bytes", "64M", "--cache-bytes", "16M", "--threads", "1")


@pytest.fixture(scope="module")
def repository(small_repository):
    return small_repository


needs_little_address_space = pytest.mark.skipif(
    SANITIZED, reason="a sanitizer reserves terabytes of addresses")


def limited(which, value):
    """A Daemon whose processes have that limit and cannot raise it."""
    class Limited(Daemon):
        def popen(self, arguments, **options):
            return subprocess.Popen(
                arguments, preexec_fn=lambda: resource.setrlimit(which, (value, value)), **options)
    return Limited


def outcome(repository, work, which, value, *flags):
    """("ready", its log) or ("refused", its log)."""
    try:
        with limited(which, value)(repository, work, *SMALL, *flags) as daemon:
            with Client(daemon.grpc) as client:
                out = client.infer("conv", np.array([[0, 1, 2, 3]], np.int32),
                                   np.ones((1, 4), np.float32), timeout=PATIENCE)["out"]
            assert out.shape == (1, 3)
            assert daemon.get("/v2/health/ready")[0] == 200
            daemon.wait_said("LISTEN", 2)
            return "ready", daemon.log()
    except AssertionError as error:
        assert str(error).startswith("voxeld ended early"), error
        return "refused", str(error)


@pytest.mark.parametrize("files", [16, 24, 32, 48, 64, 96, 128, 192, 256, 287, 288, 320, 512, 1024])
def test_open_files(repository, tmp_path, files):
    what, log = outcome(repository, tmp_path, resource.RLIMIT_NOFILE, files)
    assert what == ("ready" if files >= 288 else "refused"), log
    if what == "refused":
        assert "START_FAILED" in log and "RLIMIT_NOFILE" in log and f" {files}:" in log
        assert "at least 288" in log
    elif files < 1024:
        assert "connections_max" in log and "limit of open files" in log


def test_a_soft_limit_is_raised(repository, tmp_path):
    class Soft(Daemon):
        def popen(self, arguments, **options):
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            return subprocess.Popen(arguments, preexec_fn=lambda: resource.setrlimit(
                resource.RLIMIT_NOFILE, (24, hard)), **options)
    with Soft(repository, tmp_path, *SMALL) as daemon:
        assert daemon.get("/v2/health/ready")[0] == 200


@pytest.mark.parametrize("size", [
    pytest.param(0, marks=pytest.mark.skipif(
        os.environ["VX_BUILD_KIND"] == "tsan", reason="TSan's own start writes a file")),
    1 * MIB, 255 * MIB])
def test_file_size(repository, tmp_path, size):
    """The limit also stops a log in a file, so the log goes through a pipe."""
    flags = ["serve", "--repository", str(repository), "--grpc", "127.0.0.1:0", "--http",
             "127.0.0.1:0", "--arena-bytes", "256M", *SMALL]
    ended = subprocess.run(
        [os.environ["VOXELD"], *flags], timeout=PATIENCE, capture_output=True, text=True,
        check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))
    assert ended.returncode == 1, ended
    assert "RLIMIT_FSIZE" in ended.stderr and "--arena-bytes" in ended.stderr
    assert str(256 * MIB) in ended.stderr


def test_file_size_that_is_enough(repository, tmp_path):
    what, log = outcome(repository, tmp_path, resource.RLIMIT_FSIZE, 256 * MIB)
    assert what == "ready", log


@needs_little_address_space
@pytest.mark.parametrize("which", [resource.RLIMIT_AS, resource.RLIMIT_DATA])
@pytest.mark.parametrize("size", [128 * MIB, 512 * MIB])
def test_memory_that_is_too_little(repository, tmp_path, which, size):
    what, log = outcome(repository, tmp_path, which, size)
    assert what == "refused", log
    assert "START_FAILED" in log and "cache_bytes" in log and f"{size} bytes" in log


@needs_little_address_space
def test_settings_that_no_worker_could_map(repository, tmp_path):
    what, log = outcome(repository, tmp_path, resource.RLIMIT_AS, 8192 * MIB,
                        "--device-bytes", "8G")
    assert what == "refused" and "RLIMIT_AS" in log, log


@needs_little_address_space
def test_address_space_that_is_enough(repository, tmp_path):
    processors = len(os.sched_getaffinity(0))
    enough = (256 + 256 + 80 * (13 + processors + 3 * 2)) * MIB
    what, log = outcome(repository, tmp_path, resource.RLIMIT_AS, enough, "--rpc-threads", "2")
    assert what == "ready", log
