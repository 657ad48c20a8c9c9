# SPDX-License-Identifier: Apache-2.0
"""What the rig itself says, without a daemon: memory that goes back late is no memory left."""
import types

import pytest

import conftest
import rig
from rig import Memory, Rig

MB = 1 << 20
FIRST = Memory(0, 40 * MB, 8 * MB)


class Readings:
    """The front's memory, one reading after the other; the last again and again."""

    def __init__(self, *readings):
        self.readings = list(readings)

    def read(self):
        reading = self.readings.pop(0) if self.readings[1:] else self.readings[0]
        if isinstance(reading, Exception):
            raise reading
        return reading


@pytest.fixture
def rig_of(monkeypatch):
    def make(*readings, code=None, seconds=rig.GIVEN_BACK_SECONDS):
        monkeypatch.setattr(rig, "GIVEN_BACK_SECONDS", seconds)
        one = object.__new__(Rig)
        one.first, one.memory = FIRST, Readings(*readings)
        one.daemon = types.SimpleNamespace(process=types.SimpleNamespace(poll=lambda: code))
        one.good = types.SimpleNamespace(answers=[])
        return one
    return make


def above(megabytes, arena=0):
    """A reading that is so much above the first, and so much of the arena beside it."""
    return Memory(0, FIRST.rss + (megabytes + arena) * MB, FIRST.shared + arena * MB)


def test_memory_that_comes_down_is_not_left_over(rig_of):
    one = rig_of(above(200), above(100), above(65), above(64))
    assert one.left_over() == []
    assert len(one.memory.readings) == 1  # all were read, and none after the one that is within


def test_the_arena_is_not_left_over(rig_of):
    assert rig_of(above(64, arena=500), seconds=0).left_over() == []


def test_memory_that_stays_is_left_over(rig_of):
    sentence, = rig_of(above(65), seconds=0).left_over()
    assert sentence == "expected the front within 64 MB of 40 MB 0 s after all attacks, got 105 MB"


def test_a_front_that_has_ended_is_said(rig_of):
    assert rig_of(above(1), code=-9).left_over() == [
        "expected a daemon that lives, got exit code -9"]
    assert rig_of(above(65), OSError(), seconds=600).given_back(lambda m: m.rss, 0) == 105 * MB


@pytest.mark.parametrize("tries, attacks", [([""], 1), (["late", "", ""], 3)])
def test_an_attack_is_made_again_for_late_answers_alone(monkeypatch, tries, attacks):
    assert attacks_made(monkeypatch, tries) == attacks


@pytest.mark.parametrize("tries, attacks", [
    (["wrong", ""], 1), (["late wrong", ""], 1), (["late", "wrong", ""], 2),
    (["late", "late", ""], 2), (["late", "", "late"], 3)])
def test_what_is_wrong_or_late_twice_fails(monkeypatch, tries, attacks):
    left = list(tries)
    with pytest.raises(AssertionError):
        attacks_made(monkeypatch, left)
    assert len(tries) - len(left) == attacks


def attacks_made(monkeypatch, tries):
    """Takes what each attack finds from tries, in words; how many were made."""
    monkeypatch.setenv("VOXELD", "voxeld")
    before = len(tries)

    def attack(*names, seconds):
        words = tries.pop(0).split()
        return rig.Finding(list(names), words, [word for word in words if word == "late"])
    conftest.attacked(types.SimpleNamespace(get=lambda: types.SimpleNamespace(attack=attack)),
                      ("ping",), 1)
    return before - len(tries)


@pytest.mark.parametrize("tries, others, wrong, late", [
    ([], 0.0, 1, 0), ([], 1.3, 1, 0), ([[8.5, 0.7]], 0.0, 0, 1), ([[8.5, 0.7]], 1.3, 0, 0)])
def test_rounds_that_take_long_are_judged_by_time(tries, others, wrong, late):
    """And unanswered ones, which leave no tries, whatever else runs."""
    finding = rig.Finding(["room_unread"], [], others=others,
                          attacker={"honest": 1, "unserved": 1, "tries": tries})
    Rig.judge_honest(finding)
    assert (len(finding.wrong), len(finding.late)) == (wrong, late)
