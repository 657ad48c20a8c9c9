# SPDX-License-Identifier: Apache-2.0
"""The installed files work at any prefix, under DESTDIR, and after they are moved.

Clients are built against the tree as `cmake --install` leaves it; no file in it is rewritten.
"""
import os
import pathlib
import shutil
import site
import subprocess
import sys

import pytest

from conftest import ROOT
from voxeld_process import PATIENCE

BUILD = pathlib.Path(os.environ["VX_BIN"]).parent
SANITIZER = {"asan": ["-fsanitize=address,undefined"], "tsan": ["-fsanitize=thread"]}.get(
    os.environ.get("VX_BUILD_KIND"), [])
# Uses enough of the library to need all of its dependencies.
PROGRAM = """#include <stdio.h>
#include <voxel.h>
int main(void)
{
    struct voxel_client *client;
    struct voxel_error error;
    if (voxel_client_open("127.0.0.1:1", NULL, &client, &error)) return 1;
    voxel_client_close(client);
    printf("%s", voxel_type_name(VOXEL_BF16));
    return 0;
}
"""


def run(command, folder, **more):
    done = subprocess.run([str(word) for word in command], cwd=folder, capture_output=True,
                          text=True, timeout=PATIENCE, env=dict(os.environ, **more))
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def install(*words, **more):
    run(["cmake", "--install", BUILD, *words], BUILD, **more)


def prefix_as_given(folder):
    install("--prefix", folder / "a prefix")
    return folder / "a prefix"


def prefix_relocated(folder):
    install("--prefix", folder / "first")
    (folder / "deep" / "er").mkdir(parents=True)
    return (folder / "first").rename(folder / "deep" / "er" / "second")


def prefix_staged(folder):
    """As a packager does it: the files are under DESTDIR, and nothing is at the prefix yet."""
    install("--prefix", "/opt/voxeld", DESTDIR=str(folder / "stage"))
    return folder / "stage" / "opt" / "voxeld"


@pytest.mark.parametrize("place", [prefix_as_given, prefix_relocated, prefix_staged])
def test_a_client_builds_against_what_is_installed(place, tmp_path):
    prefix = place(tmp_path)
    found = [path.parent for path in prefix.rglob("voxelclient.pc")]
    assert len(found) == 1
    flags = run(["pkg-config", "--cflags", "--libs", "voxelclient"], tmp_path,
                PKG_CONFIG_PATH=str(found[0]))
    (tmp_path / "one.c").write_text(PROGRAM)
    # pkg-config escapes blanks with backslashes, so a shell must split its output.
    run(["sh", "-ec", f"cc {' '.join(SANITIZER)} one.c -o one {flags}"], tmp_path)
    assert run(["./one"], tmp_path) == "BF16"
    assert str(ROOT) not in flags and "/usr/local" not in flags
    assert run([prefix / "bin" / "voxel", "--version"], tmp_path).startswith("voxel ")
    assert "serve" in run([prefix / "bin" / "voxeld", "--help"], tmp_path)


@pytest.mark.parametrize("place", [prefix_as_given, prefix_relocated])
def test_cmake_finds_what_is_installed(place, tmp_path):
    prefix = place(tmp_path)
    project = tmp_path / "project"
    project.mkdir()
    (project / "one.c").write_text(PROGRAM)
    (project / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.18)\nproject(one C)\n"
        "find_package(voxelclient 0.1 CONFIG REQUIRED)\nadd_executable(one one.c)\n"
        "target_link_libraries(one PRIVATE voxelclient::voxelclient)\n")
    run(["cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={prefix}",
         f"-DCMAKE_C_FLAGS={' '.join(SANITIZER)}"], project)
    run(["cmake", "--build", project / "build"], project)
    assert run([project / "build" / "one"], project) == "BF16"


def test_pip_installs_the_python_package(tmp_path):
    """Into a fresh venv, from a copy, because a build leaves files in the source.  Offline:
    setuptools, grpcio and numpy are those of the tests' own venv."""
    shutil.copytree(ROOT / "clients" / "python", tmp_path / "python")
    run([sys.executable, "-m", "venv", tmp_path / "venv"], tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    path = os.pathsep.join(site.getsitepackages())
    run([python, "-m", "pip", "install", "--no-deps", "--no-index", "--no-build-isolation",
         tmp_path / "python"], tmp_path, PYTHONPATH=path)
    said = run([python, "-c", "import voxeld; print(voxeld.__file__); print(voxeld.__all__)"],
               tmp_path, PYTHONPATH=path)
    where, names = said.splitlines()
    assert where.startswith(str(tmp_path / "venv")) and "'AsyncClient'" in names
    # Every module is there, not only those that the first import needs.
    there = {path.name for path in pathlib.Path(where).parent.glob("*.py")}
    assert there == {path.name for path in (ROOT / "clients/python/voxeld").glob("*.py")}
