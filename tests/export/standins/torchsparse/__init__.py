# SPDX-License-Identifier: Apache-2.0
"""Stands in for TorchSparse 1.4, 2.0 and 2.1, which compute on CUDA alone: their modules, classes
and attributes, computed pair by pair on the CPU.

Written from reading their sources: sparsemapping_cuda.cu and hashmap_cuda.cuh of 2.1,
nn/utils/kernel.py and nn/functional/downsample.py of 1.4 and 2.0.  Of 2.1 a coordinate counts
voxels of its own set and the sample is column 0; before, coordinates are multiples of the tensor
stride and the sample is the last column.
"""

from .operators import *  # noqa: F403
from .tensor import *  # noqa: F403
from .version import __version__  # noqa: F401
