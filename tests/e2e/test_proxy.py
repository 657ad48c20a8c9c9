# SPDX-License-Identifier: Apache-2.0
"""Clients reach their own host without the proxy that http_proxy names."""
import os
import subprocess
import sys

from voxeld_process import PATIENCE

NOBODY = {"http_proxy": "http://127.0.0.1:9", "no_proxy": "", "no_grpc_proxy": ""}


def run(*words):
    return subprocess.run(list(map(str, words)), env={**os.environ, **NOBODY}, capture_output=True,
                          text=True, timeout=PATIENCE)


def test_the_command_line(daemon):
    done = run(os.environ["VOXEL"], "models", "--server", daemon.grpc)
    assert done.returncode == 0, done.stderr


def test_python(daemon):
    done = run(sys.executable, "-c", "import sys, voxeld\n"
               "print(voxeld.Client(sys.argv[1]).server_live())", daemon.grpc)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
