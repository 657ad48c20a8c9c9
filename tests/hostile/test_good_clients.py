# SPDX-License-Identifier: Apache-2.0
"""Clients that ask much and mean well, all at once: each is served, and none is cut."""
import pathlib
import subprocess
import sys

from conftest import Rigs

HEAVY = pathlib.Path(__file__).resolve().parent / "heavy.py"
SECONDS = 120
TCP = ("many", "cancels", "cancels_late", "hasty", "large", "large_answers", "wide", "questions",
       "streams")
UNIX = ("cancels", "wide")


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


def test_none_is_cut(tmp_path_factory):
    rigs = Rigs(tmp_path_factory)
    rig, running = rigs.get(), []
    try:
        running = [("idle", start("idle", rig.server))]  # last to end: it looks at its connection
        running = [(name, start(name, server)) for server, names in (
            (rig.server, TCP), (rig.socket, UNIX)) for name in names] + running
        wrong = [outcome(name, process) for name, process in running]
        wrong += [f"the good client: {a}" for a in rig.good.answers if a.outcome != "ok"]
        wrong.append(f"{rig.cuts():.0f} connections cut" if rig.cuts() else "")
        assert not any(wrong), "\n".join(filter(None, wrong))
    finally:
        for _, process in running:
            process.kill()
            process.wait()
        rigs.close()
