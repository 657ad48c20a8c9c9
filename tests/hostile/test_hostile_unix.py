# SPDX-License-Identifier: Apache-2.0
"""The main attacks over the Unix socket: the good client does not notice."""
import pytest

from conftest import attacked
from groups import UNIX


@pytest.mark.parametrize("group", UNIX)
def test_good_client_is_served_beside(group, unix_rigs):
    attacked(unix_rigs, *UNIX[group])


def test_nothing_is_left_of_all_of_them(unix_rigs):
    assert not unix_rigs.get().left_over()
