"""The errors of an export.

SPDX-License-Identifier: Apache-2.0
"""

_NAMES_MAX = 8  # that an error lists


class ExportError(Exception):
    """A part of the network cannot be exported; the text names the module and what it does."""


class OtherCoords(ExportError):
    """A tensor has other coordinates than the voxels on which its features lie."""


class CheckFailed(ExportError):
    """The exported network answers other numbers than its source; `report` has them.

    other  they are answers to other features than the example's, which itself was right
    """

    def __init__(self, text, report, other=False):
        super().__init__(text)
        self.report = report
        self.other = other


def some(names):
    """Names for an error, not all of very many."""
    names = list(names)
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return ", ".join(names[:_NAMES_MAX]) + more if names else "none"
