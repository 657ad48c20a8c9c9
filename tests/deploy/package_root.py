# SPDX-License-Identifier: Apache-2.0
"""A small Debian with systemd, for tests of the package: made once, unpacked for each run."""

import hashlib
import os
import pathlib
import re
import shutil

import pytest
from deployed import ROOT, run

VERSION = re.search(
    r"^project\(voxeld VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE
)[1]
WORK = ROOT / "build" / "package"
RELEASE = "bookworm"
SECONDS = 900  # for a boot that takes twenty on two quiet cores


def succeed(*command, **options):
    done = run(*command, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def need(*tools):
    """Skips a test, with what to do, where a tool is missing."""
    missing = [one for one in tools if not shutil.which(one)]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed (deploy/install-deps --package)")


def need_root():
    if os.geteuid() != 0:
        pytest.skip("a Debian to install the package in: needs root")


def base():
    """The archive of a Debian with systemd and the packages that install-deps names for voxeld:
    the package's own dependencies must be among them, or dpkg refuses it."""
    need_root()
    need("mmdebstrap", "systemd-nspawn")
    named = run(ROOT / "deploy" / "install-deps", "--runtime", "--list")
    assert named.returncode == 0, named.stderr
    packages = [
        "systemd",
        "systemd-sysv",
        "dbus",
        "init-system-helpers",
        "procps",
        *named.stdout.split(),
    ]
    digest = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:12]
    archive = WORK / f"debian-{RELEASE}-{digest}.tar"
    if archive.exists():
        return archive
    WORK.mkdir(parents=True, exist_ok=True)
    part = archive.with_suffix(".part")
    made = run(
        "mmdebstrap",
        "--quiet",
        "--variant=minbase",
        f"--include={','.join(packages)}",
        "--dpkgopt=path-exclude=/usr/share/locale/*",
        "--format=tar",
        RELEASE,
        part,
        timeout=SECONDS,
    )
    if made.returncode != 0:
        pytest.skip(f"no Debian can be made here: {made.stderr.strip()[-400:]}")
    part.rename(archive)
    return archive


class Root:
    """The unpacked system, in a folder of its own."""

    def __init__(self, folder):
        self.path = pathlib.Path(folder)
        self.path.mkdir()
        unpacked = run("tar", "-C", self.path, "-xf", base())
        assert unpacked.returncode == 0, unpacked.stderr
        (self.path / "etc" / "machine-id").write_text("")

    def run(self, *command):
        """Without systemd, as an installer of images does it."""
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}
        done = run("chroot", self.path, *command, env=environment, timeout=SECONDS)
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def write(self, name, text):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def nspawn(self, *words):
        return run(
            "systemd-nspawn",
            "--quiet",
            "--register=no",
            "--keep-unit",
            "--private-network",
            "--console=pipe",
            *words[:1],
            "-D",
            self.path,
            *words[1:],
            timeout=SECONDS,
        )

    def boot(self, script):
        """Boots, runs the script as the last unit, and returns the lines of /result.  The script
        stops the system."""
        probe = self.nspawn("--pipe", "/bin/true")
        if probe.returncode != 0:
            pytest.skip(f"systemd-nspawn cannot run here: {probe.stderr.strip()[-400:]}")
        shutil.copy(script, self.path / "test.sh")
        self.write(
            "etc/systemd/system/package-test.service",
            "[Unit]\nAfter=multi-user.target\n[Service]\nType=oneshot\n"
            "ExecStart=/bin/bash /test.sh\nExecStopPost=/bin/systemctl poweroff --no-block\n",
        )
        wants = self.path / "etc/systemd/system/graphical.target.wants"
        wants.mkdir(parents=True, exist_ok=True)
        (wants / "package-test.service").symlink_to("../package-test.service")
        booted = self.nspawn("--boot")
        log = self.path / "result.log"
        result = self.path / "result"
        assert (
            result.exists()
        ), f"nothing was tested: {booted.stdout[-3000:]}{booted.stderr[-3000:]}"
        print(log.read_text()[-8000:])
        return result.read_text().splitlines()
