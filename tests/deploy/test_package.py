# SPDX-License-Identifier: Apache-2.0
"""The Debian packages: what is in them, man pages, completion, the unit as systemd reads it; then
installed into a small Debian that is booted, and used there as an operator does.

They are packed from the programs of this build; deploy/release builds its own (test_release.py).
"""

import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
from deployed import DEPLOY, ROOT, milliseconds_of, run
from package_root import VERSION, Root, need, need_root, succeed

BIN = pathlib.Path(os.environ.get("VX_BIN", ROOT / "build" / "release" / "bin"))
BUILD = BIN.parent
UNITS = ("voxeld.service", "voxeld.socket", "voxeld-http.socket")
EXPOSURE = 2.0
BOOT = ROOT / "tests" / "deploy" / "package_boot.sh"


def help_of(program, *command):
    return succeed(BIN / program, *command, "--help")


def commands_of(program):
    found = re.findall(
        r"^  (?:voxeld )?([a-z][a-z-]*)(?: .*?)?  +\S", help_of(program), re.MULTILINE
    )
    assert len(found) > 4, found
    return found


PAGES = [(program, command) for program in ("voxeld", "voxel") for command in commands_of(program)]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """What the programs say of themselves, as the build target package_files makes it."""
    need("help2man")
    out = tmp_path_factory.mktemp("files") / "package_files"
    succeed(DEPLOY / "package" / "make-files", BIN, out, VERSION)
    return out


def content_of(folder):
    return {
        path.relative_to(folder): path.read_bytes()
        for path in folder.rglob("*.*")
        if path.is_file()
    }


def put_files(files):
    """Where CPack takes them.  Tests of `cmake --install` beside this one take them, too, so they
    find all of them or none."""
    place = BUILD / "package_files"
    if place.exists() and content_of(place) == content_of(files):
        return
    new = BUILD / "package_files.test"
    shutil.rmtree(new, ignore_errors=True)
    shutil.copytree(files, new)
    shutil.rmtree(place, ignore_errors=True)
    new.rename(place)


@pytest.fixture(scope="module")
def packages(files, tmp_path_factory):
    """{name: path} of the .deb."""
    need("cpack", "dpkg-deb", "dpkg-shlibdeps")
    put_files(files)
    out = tmp_path_factory.mktemp("packages")
    succeed("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", out, "-G", "DEB", cwd=BUILD)
    found = {path.name.split("_")[0]: path for path in out.glob("*.deb")}
    assert set(found) == {"voxeld", "libvoxelclient-dev"}
    return found


@pytest.fixture(scope="module")
def root(packages, tmp_path_factory):
    """A Debian with the package in it, not booted."""
    need_root()
    made = Root(tmp_path_factory.mktemp("root") / "debian")
    shutil.copy(packages["voxeld"], made.path / "voxeld.deb")
    made.run("dpkg", "-i", "/voxeld.deb")
    yield made
    shutil.rmtree(made.path, ignore_errors=True)


# What the programs say of themselves.


@pytest.mark.parametrize("program", ["voxeld", "voxel"])
def test_the_version_names_the_commit(program):
    said = succeed(BIN / program, "--version")
    assert re.fullmatch(
        rf"{program} {re.escape(VERSION)} \(commit ([0-9a-f]{{12}}(-dirty)?|unknown)\)\n", said
    )


def commit_of(folder, *options):
    """What commit.cmake finds in a tree."""
    (folder / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.25)\nproject(one NONE)\n"
        f'include({DEPLOY}/package/commit.cmake)\nmessage("it is [${{vx_commit}}]")\n'
    )
    # A tree inside a checkout is not its: git must not look above.
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    done = run("cmake", "-S", folder, "-B", folder / "build", *options, env=environment)
    assert done.returncode == 0, done.stderr
    return re.search(r"it is \[(.*)\]", done.stdout + done.stderr)[1]


def test_where_the_commit_comes_from(tmp_path):
    assert commit_of(tmp_path) == "unknown"
    (tmp_path / "COMMIT").write_text("0123456789ab\n")
    assert commit_of(tmp_path) == "0123456789ab"
    git = ["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@example.org"]
    succeed(*git, "init", "--quiet")
    (tmp_path / ".gitignore").write_text("build\n")
    succeed(*git, "add", ".")
    succeed(*git, "commit", "--quiet", "-m", "one")
    head = succeed(*git, "rev-parse", "--short=12", "HEAD").strip()
    assert commit_of(tmp_path) == head
    (tmp_path / "COMMIT").write_text("other\n")
    assert commit_of(tmp_path) == f"{head}-dirty"
    assert commit_of(tmp_path, "-DVX_COMMIT=mine") == "mine"


def page_text(files, name, section=1):
    """A page as man shows it; what groff has to say against it is a failure."""
    need("man")
    path = files / "man" / f"man{section}" / f"{name}.{section}.gz"
    done = run(
        "man", "--warnings", "-l", path, env={**os.environ, "MANWIDTH": "200", "LC_ALL": "C.UTF-8"}
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


def options_of(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", text))


@pytest.mark.parametrize("program, command", PAGES)
def test_each_command_has_a_page_with_all_options(files, program, command):
    text = page_text(files, f"{program}-{command}")
    # A word may be divided at the end of a line.
    text = re.sub(r"([-‐])\n\s+", r"\1", text).replace("‐", "-").replace("−", "-")
    missing = options_of(help_of(program, command)) - options_of(text)
    assert not missing
    assert f"{program}-{command}(1)" in re.sub(r"-\n\s*", "-", page_text(files, program))


def test_the_page_of_the_settings_has_every_one(files):
    text = page_text(files, "voxeld.json", 5)
    names = re.findall(r'^ +//"(\w+)": ', succeed(BIN / "voxeld", "config"), re.MULTILINE)
    assert len(names) > 40
    assert [name for name in names if f'//"{name}": ' not in text] == []


def test_the_package_s_settings_are_those_of_voxeld_with_its_own_paths(files):
    changed = succeed(BIN / "voxeld", "config", "--check", "--config", files / "voxeld.json")
    assert dict(line.split(" ", 1) for line in changed.splitlines()) == {
        "repository": "/var/lib/voxeld/models",
        "grpc": "systemd:grpc",
        "http": "systemd:http",
        "kernel_cache": "/var/cache/voxeld/kernels",
        "tune_table": "/usr/share/voxeld/tune",
    }


# Completion.


def completions(*words):
    """What bash offers for the last of the words."""
    script = (
        'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))\n'
        '_voxel "$1" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"\n'
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    file = DEPLOY / "completion" / "voxel.bash"
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
    return succeed("bash", "-c", script, "bash", file, *words, env=environment).split()


@pytest.mark.parametrize("program", ["voxeld", "voxel"])
def test_commands_complete(program):
    assert set(completions(program, "")) == {*commands_of(program), "--help", "--version"}
    assert completions(program, "hea" if program == "voxeld" else "inf") in (["health"], ["infer"])


@pytest.mark.parametrize("program, command", PAGES)
def test_every_option_of_the_help_completes(program, command):
    text = help_of(program, command)
    options = options_of(text)
    assert options <= set(completions(program, command, "--"))
    for option in options:
        assert option in completions(program, command, option[:-1])
    # Short ones stand before the long ones, or alone.
    short = set(re.findall(r"^ +(-[a-z])[, ]", text, re.MULTILINE))
    assert short <= set(completions(program, command, "-"))


def test_words_that_an_option_takes_complete():
    assert completions("voxeld", "serve", "--model-control", "") == ["none", "poll", "explicit"]
    assert completions("voxeld", "serve", "--log-level", "w") == ["warn"]
    assert completions("voxeld", "serve", "--config", "") == []  # bash offers files


# The packages.


def test_lintian_has_nothing_to_say(packages):
    need("lintian")
    # This build may be for another prefix than /usr, where the folder of pkg-config is another.
    done = run(
        "lintian",
        "--allow-root",
        "--suppress-tags=pkg-config-unavailable-for-cross-compilation",
        "--fail-on=error,warning",
        *packages.values(),
    )
    assert done.returncode == 0 and not done.stdout.strip(), done.stdout + done.stderr


def test_what_is_in_the_package(packages):
    listed = succeed("dpkg-deb", "-c", packages["voxeld"])
    paths = {line.split(" ./")[-1].rstrip("/") for line in listed.splitlines()}
    for path in (
        "usr/bin/voxeld",
        "usr/bin/voxel",
        "etc/voxeld/voxeld.json",
        "usr/lib/sysusers.d/voxeld.conf",
        "usr/share/voxeld/voxeld.service.d/gpu.conf",
        "usr/share/voxeld/demo/normals/1/weights.safetensors",
        "usr/share/voxeld/tune/nvidia-h200.tune",
        "usr/share/bash-completion/completions/voxel",
        "usr/share/doc/voxeld/changelog.gz",
        *(f"lib/systemd/system/{unit}" for unit in UNITS),
    ):
        assert path in paths, path
    assert all(line.split()[1] == "root/root" for line in listed.splitlines())
    needs = succeed("dpkg-deb", "-f", packages["voxeld"], "Depends")
    for library in (
        "libgrpc29",
        "libuv1",
        "libprotobuf-c1",
        "libseccomp2",
        "libpng16-16",
        "libopenblas0",
        "procps",
    ):
        assert library in needs, needs


@pytest.mark.parametrize("program", ["voxeld", "voxel"])
def test_the_programs_are_hardened(packages, program, tmp_path):
    """Control flow is not asked for: Debian 12's own start code has no marks, so no program has."""
    need("hardening-check")
    succeed("dpkg-deb", "-x", packages["voxeld"], tmp_path)
    done = run("hardening-check", "--nocfprotection", tmp_path / "usr" / "bin" / program)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_changelog_is_debian_s(files):
    text = gzip.decompress((files / "changelog.Debian.gz").read_bytes()).decode()
    done = subprocess.run(
        ["dpkg-parsechangelog", "-l", "-"], input=text, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert f"Version: {VERSION}-1\n" in done.stdout
    assert max(map(len, text.splitlines())) <= 80


# The unit.


def test_the_unit_stops_later_than_voxeld():
    """TimeoutStopSec is more than grace_ms and drain_ms, TimeoutStartSec than a step of a start."""
    unit = dict(
        re.findall(
            r"^(Timeout\w+)=(\d+)", (DEPLOY / "systemd/voxeld.service").read_text(), re.MULTILINE
        )
    )
    config = succeed(BIN / "voxeld", "config")
    default = {
        name: milliseconds_of(value)
        for name, value in re.findall(r'//"(\w+_ms\w*)": "(\w+)"', config)
    }
    assert int(unit["TimeoutStopSec"]) * 1000 >= default["grace_ms"] + default["drain_ms"] + 10000
    assert int(unit["TimeoutStartSec"]) * 60000 > 5 * default["start_ms_max"]


def exposure(root):
    done = succeed(
        "systemd-analyze",
        "security",
        "--offline=true",
        "--json=short",
        f"--root={root.path}",
        "voxeld.service",
    )
    assert json.loads(done)
    done = run(
        "systemd-analyze", "security", "--offline=true", f"--root={root.path}", "voxeld.service"
    )
    return float(re.search(r"exposure level for voxeld.service: ([0-9.]+)", done.stdout)[1])


@pytest.fixture(params=["cpu", "gpu"])
def unit(request, root):
    """The unit as it is installed, and with the drop-in for GPUs."""
    folder = root.path / "etc/systemd/system/voxeld.service.d"
    if request.param == "gpu":
        folder.mkdir(parents=True)
        (folder / "gpu.conf").symlink_to("/usr/share/voxeld/voxeld.service.d/gpu.conf")
        shutil.copy(DEPLOY / "systemd/voxeld.service.d/gpu.conf", folder / "copy.conf")
    yield root
    shutil.rmtree(folder, ignore_errors=True)


def test_systemd_has_nothing_against_the_unit(unit):
    done = run("systemd-analyze", "verify", "--man=no", f"--root={unit.path}", *UNITS)
    # An unknown key is only a line on stderr.
    assert done.returncode == 0 and not done.stderr.strip(), done.stderr


def test_what_the_unit_exposes(unit):
    assert exposure(unit) <= EXPOSURE


# Installed, booted, used.


def test_what_is_installed(root):
    passwd = (root.path / "etc/passwd").read_text()
    assert re.search(r"^voxeld:.*:/usr/sbin/nologin$", passwd, re.MULTILINE)
    assert root.run("voxeld", "--version").startswith(f"voxeld {VERSION} ")
    wants = root.path / "etc/systemd/system"
    assert (wants / "multi-user.target.wants/voxeld.service").is_symlink()
    assert (wants / "sockets.target.wants/voxeld.socket").is_symlink()


def test_booted(root):
    """Everything that tests/deploy/package_boot.sh looks at; each line of it is one that holds."""
    shutil.copytree(
        root.path / "usr/share/voxeld/demo/normals", root.path / "var/lib/voxeld/models/normals"
    )
    # So that the test need not wait for half a minute.
    root.write("etc/systemd/system/voxeld.service.d/test.conf", "[Service]\nWatchdogSec=4\n")
    lines = root.boot(BOOT)
    assert [line for line in lines if line.startswith("failed")] == []
    expected = re.findall(r'^ *(?:expect|eventually) "([^"$]+)"', BOOT.read_text(), re.MULTILINE)
    assert len(expected) > 20 and set(expected) <= set(lines) and lines[-1] == "end", lines


def test_purged(root):
    """After the test above, whose models stay."""
    (root.path / "var/cache/voxeld").mkdir(exist_ok=True)
    root.run("dpkg", "--purge", "voxeld")
    left = [
        path
        for path in (
            "etc/voxeld",
            "var/cache/voxeld",
            "lib/systemd/system/voxeld.service",
            "etc/systemd/system/multi-user.target.wants/voxeld.service",
        )
        if (root.path / path).exists() or (root.path / path).is_symlink()
    ]
    assert left == []


# The Python packages.


@pytest.mark.parametrize(
    "package, module, name",
    [
        ("python", "voxeld", "AsyncClient"),
        ("export", "voxeld_export", "ExportError"),
    ],
)
def test_the_wheel_in_a_clean_environment(package, module, name, tmp_path):
    """Built and installed offline: dependencies are those of the tests' own environment."""
    shutil.copytree(
        ROOT / "clients" / package,
        tmp_path / "source",
        ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"),
    )
    offline = ["--quiet", "--disable-pip-version-check", "--no-deps", "--no-index"]
    succeed(
        sys.executable,
        "-m",
        "pip",
        "wheel",
        *offline,
        "--no-build-isolation",
        "--wheel-dir",
        tmp_path,
        tmp_path / "source",
    )
    (wheel,) = tmp_path.glob(f"{module}-{VERSION}-py3-none-any.whl")
    succeed(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    succeed(python, "-m", "pip", "install", *offline, wheel)
    site = succeed(sys.executable, "-c", "import site; print(site.getsitepackages()[0])").strip()
    done = succeed(
        python,
        "-c",
        f"import {module}; print({module}.__file__, {module}.{name})",
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": site},
    )
    assert done.startswith(str(tmp_path / "venv"))
    have = {
        path.relative_to(pathlib.Path(done.split()[0]).parent)
        for path in pathlib.Path(done.split()[0]).parent.rglob("*.py")
    }
    source = ROOT / "clients" / package / module
    assert have == {path.relative_to(source) for path in source.rglob("*.py")}
