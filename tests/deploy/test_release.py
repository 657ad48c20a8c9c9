# SPDX-License-Identifier: Apache-2.0
"""deploy/release makes everything that is published; a build of its own, so this takes minutes."""

import json
import os
import re

import pytest
from deployed import DEPLOY, ROOT, run
from package_root import VERSION, need, succeed


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    need("git", "cpack", "help2man", "lintian", "dpkg-shlibdeps")
    if not (ROOT / ".git").exists():
        pytest.skip("a release is of a commit: needs a git checkout")
    out = tmp_path_factory.mktemp("release")
    succeed(DEPLOY / "release", "--dirty", out)
    return out


@pytest.fixture(scope="module")
def source(release, tmp_path_factory):
    folder = tmp_path_factory.mktemp("source")
    succeed("tar", "-C", folder, "-xf", release / f"voxeld-{VERSION}.tar.gz")
    return folder / f"voxeld-{VERSION}"


def test_all_is_there_and_has_a_checksum(release):
    succeed("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=release)
    listed = {line.split()[1] for line in (release / "SHA256SUMS").read_text().splitlines()}
    assert listed == {path.name for path in release.iterdir()} - {"SHA256SUMS"}
    machine, debian = os.uname().machine, succeed("dpkg", "--print-architecture").strip()
    assert listed == {
        f"voxeld_{VERSION}-1_{debian}.deb",
        f"libvoxelclient-dev_{VERSION}-1_{debian}.deb",
        f"voxeld-{VERSION}-linux-{machine}.tar.gz",
        f"voxeld-{VERSION}.tar.gz",
        f"voxeld-{VERSION}.cdx.json",
        f"voxeld-{VERSION}-py3-none-any.whl",
        f"voxeld_export-{VERSION}-py3-none-any.whl",
    }


def test_the_archive_runs_where_it_is_unpacked(release, tmp_path):
    name = f"voxeld-{VERSION}-linux-{os.uname().machine}"
    succeed("tar", "-C", tmp_path, "-xf", release / f"{name}.tar.gz")
    for program in ("voxeld", "voxel"):
        said = succeed(tmp_path / name / "bin" / program, "--version")
        assert said.startswith(f"{program} {VERSION} (commit ")
    config = succeed(tmp_path / name / "bin" / "voxeld", "config")
    assert '"tune_table": "/usr/share/voxeld/tune"' in config
    assert (tmp_path / name / "share/man/man1/voxeld-serve.1.gz").exists()


def test_the_source_knows_its_commit(source, tmp_path):
    commit = succeed("git", "rev-parse", "--short=12", "HEAD", cwd=ROOT).strip()
    assert (source / "COMMIT").read_text() == commit
    succeed("cmake", "-S", source, "-B", tmp_path, "-G", "Ninja", "-DVX_TESTS=OFF")
    assert f'VX_COMMIT=\\"{commit}\\"' in (tmp_path / "build.ninja").read_text()


def test_the_parts_are_those_of_the_package(release):
    parts = json.loads((release / f"voxeld-{VERSION}.cdx.json").read_text())
    assert (parts["bomFormat"], parts["specVersion"], parts["version"]) == ("CycloneDX", "1.5", 1)
    refs = [one["bom-ref"] for one in parts["components"]]
    refs.append(parts["metadata"]["component"]["bom-ref"])
    assert len(set(refs)) == len(refs)
    for one in parts["dependencies"]:
        assert one["ref"] in refs and set(one["dependsOn"]) <= set(refs)
    names = {one["name"]: one for one in parts["components"]}
    assert all(one["purl"].startswith("pkg:deb/") for one in names.values() if "purl" in one)
    # What the .deb depends on is listed, and with the libraries behind them.
    (deb,) = release.glob("voxeld_*.deb")
    needs = re.findall(r"(lib[\w.-]+|zlib1g)(?: \(|,|$)", succeed("dpkg-deb", "-f", deb, "Depends"))
    assert len(needs) > 5
    assert {one for one in needs if one != "libopenblas0"} <= set(names)
    assert "libssl3" in names and "node-llhttp" in names


def test_two_builds_are_equal_byte_for_byte(release, tmp_path):
    """The other one is made of the commit alone, in another folder."""
    if succeed("git", "status", "--porcelain", cwd=ROOT):
        pytest.skip("the tree has changes that are not committed: its commit makes other programs")
    other = tmp_path / "a-longer-path" / "other"
    succeed("git", "clone", "--quiet", "--no-hardlinks", ROOT, other)
    (other / "build").mkdir()
    (other / "build" / "venv").symlink_to(ROOT / "build" / "venv")
    succeed(other / "deploy" / "release", tmp_path / "out")
    assert (tmp_path / "out" / "SHA256SUMS").read_text() == (release / "SHA256SUMS").read_text()


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--maintainer", "nobody", "x"], "--maintainer: expected 'NAME <ADDRESS>'"),
        ([], "expected the folder"),
        (["--dirt", "x"], "unknown argument '--dirt'"),
        (["x", "y"], "expected one folder"),
    ],
)
def test_wrong_arguments(arguments, said, tmp_path):
    done = run(DEPLOY / "release", *arguments, cwd=tmp_path)
    assert done.returncode == 1 and said in done.stderr


def test_a_folder_with_something_in_it_is_refused(tmp_path):
    (tmp_path / "mine").write_text("")
    done = run(DEPLOY / "release", "--dirty", tmp_path)
    assert done.returncode == 1 and "is not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
