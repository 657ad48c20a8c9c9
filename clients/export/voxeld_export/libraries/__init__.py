"""Sparse libraries whose modules can be exported.

SPDX-License-Identifier: Apache-2.0
"""

from ..errors import ExportError
from .spconv import Spconv

LIBRARIES = (Spconv,)


def library_of(net):
    """The library of the modules of `net`."""
    packages = {
        c.__module__.split(".")[0] for module in net.modules() for c in type(module).__mro__
    }
    found = [library for library in LIBRARIES if packages.intersection(library.packages)]
    if len(found) != 1:
        names = ", ".join(library.name for library in found) or "none"
        raise ExportError(
            f"the network has modules of {names}; expected those of one of "
            f"{', '.join(library.name for library in LIBRARIES)}"
        )
    return found[0]()
