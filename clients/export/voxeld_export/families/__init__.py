"""Published networks by name: their layers, and the names of their tensors in checkpoints.

    from voxeld_export.families import family
    network, unused = family("minkunet34").network(Random(seed=1), channels_in=4)

SPDX-License-Identifier: Apache-2.0
"""

from . import detection, segmentation, trellis, voxelnext
from .family import FAMILIES, Family, Untold, family
from .tensors import Checkpoint, Random

__all__ = [
    "FAMILIES",
    "Checkpoint",
    "Family",
    "Random",
    "Untold",
    "detection",
    "family",
    "segmentation",
    "trellis",
    "voxelnext",
]
