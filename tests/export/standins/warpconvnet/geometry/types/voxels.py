# SPDX-License-Identifier: Apache-2.0
"""Stands in for WarpConvNet, which needs a GPU: Voxels, with the names of its sources.

Samples lie one behind the other and `offsets` say where each begins.  The coordinates of a strided
tensor count its own voxels.
"""

import torch


class IntCoords:
    def __init__(self, batched_tensor, offsets, tensor_stride=None):
        self.batched_tensor, self.offsets = batched_tensor, offsets
        self.tensor_stride = tensor_stride


class CatFeatures:
    def __init__(self, batched_tensor, offsets):
        assert len(batched_tensor) == offsets[-1]
        self.batched_tensor, self.offsets = batched_tensor, offsets


class Voxels:
    def __init__(self, batched_coordinates, batched_features, offsets=None, **kwargs):
        stride = kwargs.pop("tensor_stride", None) or kwargs.pop("stride", None)
        if isinstance(batched_coordinates, torch.Tensor):
            batched_coordinates = IntCoords(batched_coordinates, offsets)
        if stride is not None:
            batched_coordinates.tensor_stride = stride
        if isinstance(batched_features, torch.Tensor):
            batched_features = CatFeatures(batched_features, batched_coordinates.offsets)
        self.batched_coordinates, self.batched_features = batched_coordinates, batched_features
        self._extra_attributes = kwargs

    feature_tensor = property(lambda self: self.batched_features.batched_tensor)
    features = feats = feature_tensor
    coordinate_tensor = property(lambda self: self.batched_coordinates.batched_tensor)
    offsets = property(lambda self: self.batched_features.offsets)
    tensor_stride = property(lambda self: self.batched_coordinates.tensor_stride)
    batch_size = property(lambda self: len(self.offsets) - 1)
    num_spatial_dims = property(lambda self: self.coordinate_tensor.shape[1])

    @property
    def batch_indexed_coordinates(self):
        sample = torch.arange(self.batch_size).repeat_interleave(self.offsets.diff())
        return torch.cat([sample[:, None].int(), self.coordinate_tensor], 1)

    coords = batch_indexed_coordinates

    @property
    def spatial_cache(self):
        return self._extra_attributes.setdefault("_spatial_cache", {})

    def replace(self, batched_coordinates=None, batched_features=None, **kwargs):
        return Voxels(
            batched_coordinates or self.batched_coordinates,
            self.batched_features if batched_features is None else batched_features,
            **{**self._extra_attributes, **kwargs},
        )

    def replace_features(self, new_features):
        return self.replace(batched_features=new_features)

    def _binary(self, value, name):
        value = value.feature_tensor if isinstance(value, Voxels) else value
        return self.replace_features(getattr(self.feature_tensor, name)(value))

    def __add__(self, value):
        return self._binary(value, "__add__")

    def __sub__(self, value):
        return self._binary(value, "__sub__")

    def __mul__(self, value):
        return self._binary(value, "__mul__")

    def __truediv__(self, value):
        return self._binary(value, "__truediv__")

    __radd__, __rmul__ = __add__, __mul__


def from_feats_coords(feats, coords):
    """Of rows with the sample in column 0, ascending."""
    ends = torch.bincount(coords[:, 0].long()).cumsum(0)
    offsets = torch.cat([torch.zeros(1, dtype=ends.dtype), ends])
    return Voxels(coords[:, 1:].contiguous(), feats, offsets=offsets)
