# SPDX-License-Identifier: Apache-2.0
"""Attacks one after another: the good client does not notice, and the front does not grow."""
import pytest

from conftest import attacked
from groups import CROWDS, TCP, UNIX

# Everything at once: each part keeps its bound, and their sum is 120 to 170 MB, not 64.
OPEN = pytest.mark.xfail(reason="mix_all: RSS grows by 120 to 170 MB, 64 asked", strict=False)


def groups(names):
    return [pytest.param(name, marks=OPEN if name == "mix_all" else ()) for name in names]


@pytest.mark.parametrize("group", groups(TCP))
def test_over_tcp(group, rigs):
    attacked(rigs, *TCP[group])


def test_nothing_is_left_of_what_came_over_tcp(rigs):
    assert not rigs.get().left_over()


@pytest.mark.parametrize("group", CROWDS)
def test_crowds(group, crowd_rigs):
    attacked(crowd_rigs, *CROWDS[group])


@pytest.mark.parametrize("group", groups(UNIX))
def test_over_unix(group, unix_rigs):
    attacked(unix_rigs, *UNIX[group])


def test_nothing_is_left_of_what_came_over_unix(unix_rigs):
    assert not unix_rigs.get().left_over()
