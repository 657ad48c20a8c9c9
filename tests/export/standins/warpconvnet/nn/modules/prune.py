# SPDX-License-Identifier: Apache-2.0
"""Stands in for WarpConvNet: the voxels that a mask keeps."""

from warpconvnet.geometry.types.voxels import from_feats_coords
from warpconvnet.nn.modules.base_module import BaseSpatialModule


class SparsePrune(BaseSpatialModule):
    def forward(self, spatial_tensor, mask):
        assert mask.shape == (len(spatial_tensor.coords),)
        return from_feats_coords(spatial_tensor.feats[mask], spatial_tensor.coords[mask])
