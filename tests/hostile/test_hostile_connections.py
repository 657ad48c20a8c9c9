# SPDX-License-Identifier: Apache-2.0
"""Attacks with connections, and mixes of everything: the good client does not notice."""
import pytest

from conftest import attacked
from groups import CONNECTIONS


@pytest.mark.parametrize("group", CONNECTIONS)
def test_good_client_is_served_beside(group, rigs):
    attacked(rigs, *CONNECTIONS[group])


def test_nothing_is_left_of_all_of_them(rigs):
    assert not rigs.get().left_over()
