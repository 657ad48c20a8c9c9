# SPDX-License-Identifier: Apache-2.0
"""torchsparse/tensor.py."""

from . import version

__all__ = ["PointTensor", "SparseTensor"]


class TensorCache:
    """torchsparse/utils/tensor_cache.py, of 2.1."""

    def __init__(self):
        self.cmaps, self.kmaps, self.hashmaps = {}, {}, {}


class SparseTensor:
    def __init__(self, feats, coords, stride=1, spatial_range=None):
        self.feats, self.coords = feats, coords
        self.stride = (stride,) * 3 if isinstance(stride, int) else tuple(stride)
        if version.before_21():
            self.cmaps, self.kmaps = {}, {}
        else:
            self.spatial_range = spatial_range
            self._caches = TensorCache()

    @property
    def F(self):
        return self.feats

    @F.setter
    def F(self, feats):
        self.feats = feats

    @property
    def C(self):
        return self.coords

    @C.setter
    def C(self, coords):
        self.coords = coords

    s = property(lambda self: self.stride)

    def dense(self):
        out = self.feats.new_zeros(*self.spatial_range, self.feats.shape[1])
        out[tuple(self.coords.t().long())] = self.feats
        return out

    def __add__(self, other):
        return like(self, self.feats + other.feats)


class PointTensor:
    """That of 1.4 and 2.0."""

    def __init__(self, feats, coords, idx_query=None, weights=None):
        self.F, self.C = feats, coords
        self.idx_query, self.weights = idx_query or {}, weights or {}
        self.additional_features = {"idx_query": {}, "counts": {}}


def share(made, tensor):
    """The maps of one tensor for another."""
    if version.before_21():
        made.cmaps, made.kmaps = tensor.cmaps, tensor.kmaps
    else:
        made._caches = tensor._caches
    return made


def like(tensor, feats):
    made = SparseTensor(feats, tensor.coords, tensor.stride)
    if not version.before_21():
        made.spatial_range = tensor.spatial_range
    return share(made, tensor)
