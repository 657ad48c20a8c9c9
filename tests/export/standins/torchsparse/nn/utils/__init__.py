# SPDX-License-Identifier: Apache-2.0
"""torchsparse/nn/utils: apply.py and kernel.py."""

import numpy as np

from torchsparse.tensor import like


def fapply(tensor, function, *args, **kwargs):
    return like(tensor, function(tensor.feats, *args, **kwargs))


def get_kernel_offsets(size, stride=(1, 1, 1)):
    """[V, 3]: of an odd volume z is the outer loop and x the inner one; else the other way."""
    ranges = [np.arange(-k // 2 + 1, k // 2 + 1) * s for k, s in zip(size, stride)]
    odd = np.prod(size) % 2
    grid = np.meshgrid(*(ranges[::-1] if odd else ranges), indexing="ij")
    found = np.stack([axis.reshape(-1) for axis in grid], 1)
    return found[:, ::-1] if odd else found
