# SPDX-License-Identifier: Apache-2.0
"""Stands in for MinkowskiEngine 0.5.4: see tensors.py."""

from . import convolutions, others, tensors
from .convolutions import *  # noqa: F403
from .others import *  # noqa: F403
from .tensors import *  # noqa: F403

__version__ = "0.5.4"

# The library's files are modules of their own: what a class says of itself.
_FILES = {
    "Convolution": "Convolution",
    "Channelwise": "ChannelwiseConvolution",
    "Pooling": "Pooling",
    "Broadcast": "Broadcast",
    "Norm": "Normalization",
    "Linear": "Ops",
    "To": "Ops",
    "Stack": "Ops",
    "TensorField": "TensorField",
    "SparseTensor": "SparseTensor",
}
_OURS = {module.__name__ for module in (tensors, convolutions, others)}
for _name, _kind in list(globals().items()):
    if isinstance(_kind, type) and _kind.__module__ in _OURS:
        _found = [file for word, file in _FILES.items() if word in _name]
        _kind.__module__ = "Minkowski" + (_found[-1] if _found else "Nonlinearity")
