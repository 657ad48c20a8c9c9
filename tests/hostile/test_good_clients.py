# SPDX-License-Identifier: Apache-2.0
"""Clients that ask much and mean well: each is served, beside attackers too, and none is cut."""
import subprocess
import sys

import pytest

from conftest import Rigs
from rig import HERE

HEAVY = HERE / "heavy.py"
SECONDS = 1200  # only a hang takes longer
TCP = ("headers_first", "many", "cancels", "cancels_late", "hasty", "large", "large_answers",
       "wide", "long_headers", "questions", "streams")
UNIX = ("cancels", "wide")
# They were there before the attackers; beside them they might be refused.
ESTABLISHED = ("streamer", "pauser")


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


@pytest.mark.parametrize("names, good", [
    (("crawling", "infer_halves"), "large_few"), (("stream_places",), "streamer"),
    (("stream_crowd",), "pauser"),
    (("calls_hidden",), "headers_first"), (("room_kept",), "large_few"),
    (("room_pieces",), "large_few"), (("resets_spread",), "wide"),
    (("headers_only_many",), "large_answers"), (("places_flooded",), "middling")],
    ids=lambda value: value if isinstance(value, str) else "+".join(value))
def test_is_served_beside(names, good, tmp_path_factory):
    rigs = Rigs(tmp_path_factory)
    rig, processes = rigs.get(), []
    try:
        if good in ESTABLISHED:
            processes = [start(good, rig.server)]
            assert processes[0].stdout.readline() == "begun\n"
        attackers = subprocess.Popen(
            [sys.executable, str(HERE / "attack.py"), *names, "--seconds", "900",
             "--server", rig.server, "--http", rig.daemon.http],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        processes.append(attackers)
        assert attackers.stderr.readline() == "begun\n"
        if good not in ESTABLISHED:
            processes.append(start(good, rig.server))
        wrong = outcome(good, next(one for one in processes if one is not attackers))
        assert attackers.poll() is None, "the attack was over before"
        assert not wrong, wrong
    finally:
        for process in processes:
            process.kill()
            process.wait()
            process.stderr and process.stderr.close()
        rig.kill()


def test_none_is_cut(tmp_path_factory):
    """There is room for all that they have under way together, so that none is refused."""
    rigs = Rigs(tmp_path_factory, "--queue-max", "4096", "--calls-max", "4096")
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
