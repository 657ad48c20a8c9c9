# SPDX-License-Identifier: Apache-2.0
"""Stands in for WarpConvNet: what its modules on Voxels are."""

from torch import nn


class BaseSpatialModule(nn.Module):
    pass
