# SPDX-License-Identifier: Apache-2.0
"""Attacks over TCP, one after another: the good client does not notice, the front does not grow."""
import pytest

from conftest import attacked
from groups import TCP, chosen


@pytest.mark.parametrize("group", chosen(TCP))
def test_over_tcp(group, rigs):
    attacked(rigs, *TCP[group])


def test_nothing_is_left_of_what_came_over_tcp(rigs):
    assert not rigs.get().left_over()
