# SPDX-License-Identifier: Apache-2.0
"""Attacks with frames: the good client does not notice, and the front does not grow."""
import pytest

from conftest import attacked
from groups import FRAMES


@pytest.mark.parametrize("group", FRAMES)
def test_good_client_is_served_beside(group, rigs):
    attacked(rigs, *FRAMES[group])


def test_nothing_is_left_of_all_of_them(rigs):
    assert not rigs.get().left_over()
