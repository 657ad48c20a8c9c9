# SPDX-License-Identifier: Apache-2.0
"""Whose rules and attributes the stand-in has: tests set another version."""

__version__ = "2.1.0"


def before_21():
    return not __version__.startswith("2.1")
