# SPDX-License-Identifier: Apache-2.0
"""The other attacks, beside those of test_floods.py: crowds, over a Unix socket, over TLS."""
import pytest

from conftest import attacked
from groups import CROWDS, TLS, UNIX, chosen


@pytest.mark.parametrize("group", chosen(CROWDS))
def test_crowds(group, crowd_rigs):
    attacked(crowd_rigs, *CROWDS[group])


@pytest.mark.parametrize("group", chosen(UNIX))
def test_over_unix(group, unix_rigs):
    attacked(unix_rigs, *UNIX[group])


def test_nothing_is_left_of_what_came_over_unix(unix_rigs):
    assert not unix_rigs.get().left_over()


@pytest.mark.parametrize("group", chosen(TLS))
def test_over_tls(group, tls_rigs):
    attacked(tls_rigs, *TLS[group])


def test_nothing_is_left_of_what_came_over_tls(tls_rigs):
    assert not tls_rigs.get().left_over()
