"""Sparse libraries whose modules can be exported.

SPDX-License-Identifier: Apache-2.0
"""

from ..errors import ExportError
from .flexgemm import FlexGemm
from .minkowski import Minkowski
from .spconv import Spconv
from .torchsparse import TorchSparse
from .trellis import Trellis
from .warpconvnet import WarpConvNet

LIBRARIES = (Spconv, TorchSparse, Minkowski, Trellis, WarpConvNet, FlexGemm)


def library_of(net):
    """The library of the modules of `net`."""
    kinds = {kind for module in net.modules() for kind in type(module).__mro__}
    found = [library for library in LIBRARIES if any(map(library.owns, kinds))]
    called = {inner for library in found for inner in library.backends}
    found = [library for library in found if library not in called]
    if not found:
        found = [library for library in LIBRARIES if library.functional and library.imported()]
    if len(found) != 1:
        names = ", ".join(library.name for library in found) or "none"
        raise ExportError(
            f"the network has modules of {names}; expected those of one of "
            f"{', '.join(library.name for library in LIBRARIES)}"
        )
    return found[0]()
