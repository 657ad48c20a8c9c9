# SPDX-License-Identifier: Apache-2.0
"""Clients that ask much and mean well, all at once: each is served, and none is cut."""
import pathlib
import subprocess
import sys

import pytest

from conftest import Rigs

HEAVY = pathlib.Path(__file__).resolve().parent / "heavy.py"
SECONDS = 120
NAMES = ("many", "cancels", "cancels_late", "hasty", "large", "large_answers", "wide", "questions",
         "streams")


def start(name, server):
    return subprocess.Popen([sys.executable, str(HEAVY), name, "--server", server],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def outcome(name, process):
    """What was wrong with it; empty when nothing was."""
    try:
        text, _ = process.communicate("", timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        text, _ = process.communicate()
        return f"{name}: expected an end within {SECONDS} s, got: {text}"
    return "" if process.returncode == 0 else f"{name}: {text}"


@pytest.mark.parametrize("unix", [False, True], ids=["tcp", "unix"])
def test_none_is_cut(unix, tmp_path_factory):
    rigs = Rigs(tmp_path_factory, unix=unix)
    rig = rigs.get()
    idle = start("idle", rig.server)
    try:
        processes = {name: start(name, rig.server) for name in NAMES}
        wrong = [outcome(name, process) for name, process in processes.items()]
        wrong.append(outcome("idle", idle))
        wrong += [f"the good client: {a}" for a in rig.good.answers if a.outcome != "ok"]
        wrong.append(f"{rig.cuts()} connections cut" if rig.cuts() else "")
        assert not any(wrong), "\n".join(filter(None, wrong))
    finally:
        for process in (idle, *processes.values()):
            process.kill()
            process.wait()
        rigs.close()
