# SPDX-License-Identifier: Apache-2.0
"""Stands in for MinkowskiEngine 0.5.4, which runs on no Python of today: its classes, attributes
and rules, computed pair by pair.

Written from reading its sources.  A coordinate map is named by its stride, and by a random word
where that name is taken; coordinates stay those of the request, multiples of the stride.  Number
v of a kernel is split axis by axis, the first axis by the first remainder (kernel_region.hpp);
offsets lie around the middle where a size is odd, and start at 0 where it is even.
"""

import enum
import itertools

import numpy as np
import torch


class RegionType(enum.Enum):
    HYPER_CUBE = 0
    HYPER_CROSS = 1


class PoolingMode(enum.Enum):
    LOCAL_SUM_POOLING = 0
    LOCAL_AVG_POOLING = 1
    LOCAL_MAX_POOLING = 2
    GLOBAL_SUM_POOLING_PYTORCH_INDEX = 3
    GLOBAL_AVG_POOLING_PYTORCH_INDEX = 4
    GLOBAL_MAX_POOLING_PYTORCH_INDEX = 5


POOL = {
    "SUM": lambda rows: rows.sum(0),
    "AVG": lambda rows: rows.mean(0),
    "MAX": lambda rows: rows.max(0)[0],
}


def _each(numbers, dimension):
    return [numbers] * dimension if isinstance(numbers, int) else list(numbers)


class CoordinateMapKey:
    def __init__(self, stride, name=""):
        self._key = (tuple(stride), name)

    def get_key(self):
        return list(self._key[0]), self._key[1]

    def get_tensor_stride(self):
        return list(self._key[0])

    def __eq__(self, other):
        return self._key == other._key

    def __hash__(self):
        return hash(self._key)


class CoordinateManager:
    def __init__(self):
        self.maps = {}

    def place(self, key, coords):
        """Keeps coordinates under a key; one that is known stays as it is."""
        return self.maps.setdefault(key, coords)

    def get(self, key):
        return self.maps.get(key)

    def another(self, stride):
        """A key for a map whose stride is the name of another."""
        return CoordinateMapKey(stride, f"random{len(self.maps)}")


class Tensor:
    coordinate_manager = property(lambda self: self._manager)
    tensor_stride = property(lambda self: self.coordinate_map_key.get_tensor_stride())
    F = property(lambda self: self._F)
    features = F
    C = property(lambda self: self._manager.get(self.coordinate_map_key))
    coordinates = C

    def __iadd__(self, other):
        assert self.coordinate_map_key == other.coordinate_map_key
        self._F += other.F
        return self

    def _binary_functor(self, other, function):
        if not isinstance(other, SparseTensor):
            return like(self, function(self._F, other))
        if self.coordinate_map_key == other.coordinate_map_key:
            return like(self, function(self._F, other.F))
        key, rows = union(self, other)
        out = torch.zeros(len(self._manager.get(key)), self._F.size(1))
        out[rows[0]] = self._F
        out[rows[1]] = function(out[rows[1]], other.F)
        return SparseTensor(out, coordinate_map_key=key, coordinate_manager=self._manager)

    def __add__(self, other):
        return self._binary_functor(other, lambda x, y: x + y)

    def __sub__(self, other):
        return self._binary_functor(other, lambda x, y: x - y)

    def __mul__(self, other):
        return self._binary_functor(other, lambda x, y: x * y)

    def __truediv__(self, other):
        return self._binary_functor(other, lambda x, y: x / y)


class SparseTensor(Tensor):
    def __init__(
        self,
        features,
        coordinates=None,
        tensor_stride=1,
        coordinate_map_key=None,
        coordinate_manager=None,
    ):
        if coordinate_map_key is None:
            stride = _each(tensor_stride, coordinates.shape[1] - 1)
            coordinate_map_key = CoordinateMapKey(stride)
            coordinate_manager = coordinate_manager or CoordinateManager()
            coordinate_manager.place(coordinate_map_key, coordinates)
        self._F = features
        self._manager = coordinate_manager
        self.coordinate_map_key = coordinate_map_key

    def dense(self, shape=None, min_coordinate=None, contract_stride=True):
        assert min_coordinate is None
        coords = self.C[:, 1:].long()
        least = coords.min(0, keepdim=True)[0]
        if contract_stride:
            coords = coords // torch.tensor(self.tensor_stride)
        if shape is None:
            shape = [int(self.C[:, 0].max()) + 1, 0, *(coords.max(0)[0] + 1).tolist()]
        out = torch.zeros(shape[0], self._F.shape[1], *shape[2:])
        out[(self.C[:, 0].long(), slice(None), *coords.t())] = self._F
        return out, least, torch.tensor(self.tensor_stride)

    def slice(self, X):
        return TensorField(self._F[X.inverse_mapping(self.coordinate_map_key)], X.C)

    def features_at_coordinates(self, query_coordinates):
        rows = [int((self.C - at).abs().sum(1).argmin()) for at in query_coordinates]
        return self._F[rows]


class TensorField:
    def __init__(self, features, coordinates):
        self._F, self._C = features, coordinates

    F = property(lambda self: self._F)
    C = property(lambda self: self._C)

    def sparse(self):
        coords, rows = torch.unique(self._C.floor().int(), dim=0, return_inverse=True)
        self._inverse_mapping = rows
        out = torch.zeros(len(coords), self._F.shape[1]).index_add(0, rows, self._F)
        return SparseTensor(out / torch.bincount(rows)[:, None], coords)

    def inverse_mapping(self, key):
        return self._inverse_mapping


def cat(*tensors):
    tensors = tensors[0] if len(tensors) == 1 else tensors
    assert all(tensor.coordinate_map_key == tensors[0].coordinate_map_key for tensor in tensors)
    return like(tensors[0], torch.cat([tensor.F for tensor in tensors], dim=-1))


def sum(*tensors):
    tensors = tensors[0] if len(tensors) == 1 else tensors
    whole = tensors[0].F + tensors[1].F
    for tensor in tensors[2:]:
        whole += tensor.F
    return like(tensors[0], whole)


def like(tensor, features):
    return SparseTensor(
        features,
        coordinate_map_key=tensor.coordinate_map_key,
        coordinate_manager=tensor.coordinate_manager,
    )


def union(*tensors):
    """The key of a new map of all voxels, and the rows there of each tensor."""
    manager = tensors[0].coordinate_manager
    coords, rows = torch.unique(torch.cat([t.C for t in tensors]), dim=0, return_inverse=True)
    key = manager.another(tensors[0].tensor_stride)
    manager.place(key, coords)
    return key, rows.split([len(t.C) for t in tensors])


class KernelGenerator:
    def __init__(
        self,
        kernel_size=-1,
        stride=1,
        dilation=1,
        is_transpose=False,
        region_type=RegionType.HYPER_CUBE,
        region_offsets=None,
        expand_coordinates=False,
        axis_types=None,
        dimension=-1,
    ):
        assert dimension > 0
        self.kernel_size, self.kernel_stride = (
            _each(kernel_size, dimension),
            _each(stride, dimension),
        )
        self.kernel_dilation, self.region_type = _each(dilation, dimension), region_type
        self.kernel_volume = int(np.prod(self.kernel_size))
        self.requires_strided_coordinates = all(s == 1 for s in self.kernel_stride)
        self.expand_coordinates = expand_coordinates
        self.dimension = dimension

    def offset(self, v):
        """coordinate_at of kernel_region.hpp, from 0, in voxels of the finer map."""
        at = []
        for size, dilation in zip(self.kernel_size, self.kernel_dilation):
            index = v % size
            at.append((index if size % 2 == 0 else index - size // 2) * dilation)
            v //= size
        return at

    def offsets(self, stride):
        return np.array([self.offset(v) for v in range(self.kernel_volume)]) * stride


def pairs(generator, fine, stride, coarse):
    """(v, row of fine, row of coarse): the voxel of coarse plus offset v is the one of fine."""
    rows = {tuple(c): row for row, c in enumerate(fine.tolist())}
    for v, offset in enumerate(generator.offsets(stride)):
        for row, c in enumerate((coarse.numpy() + [0, *offset]).tolist()):
            found = rows.get(tuple(c))
            if found is not None:
                yield v, found, row


def maps(*what):
    """What pairs() says: (v, rows of fine, rows of coarse)."""
    for v, same in itertools.groupby(pairs(*what), key=lambda one: one[0]):
        yield v, *torch.from_numpy(np.array(list(same))[:, 1:]).unbind(1)


def strided(tensor, step):
    """The key of the coordinate map with `step` times the stride, which is made if need be."""
    if all(s == 1 for s in step):
        return tensor.coordinate_map_key
    stride = [a * b for a, b in zip(tensor.tensor_stride, step)]
    coords = tensor.C.numpy().copy()
    coords[:, 1:] = coords[:, 1:] // stride * stride
    # In no order: the library's follows from its hash table.
    coords = np.random.default_rng(5).permutation(np.unique(coords, axis=0))
    key = CoordinateMapKey(stride)
    tensor.coordinate_manager.place(key, torch.from_numpy(coords))
    return key


def region(tensor, how, stride, expand):
    """The key of the finer map of `stride`; of all voxels that the kernel reaches if there is
    none, or if `expand` says so (stride_region in coordinate_map_manager.cpp)."""
    manager, key = tensor.coordinate_manager, CoordinateMapKey(stride)
    if manager.get(key) is not None:
        if not expand:
            return key
        key = manager.another(stride)
    made = tensor.C.numpy()[:, None].repeat(how.kernel_volume, 1)
    made[:, :, 1:] += how.offsets(stride).astype(made.dtype)
    manager.place(key, torch.from_numpy(np.unique(made.reshape(-1, made.shape[2]), axis=0)))
    return key


def given(tensor, coordinates, stride):
    """_get_coordinate_map_key of coordinates that a caller gives."""
    if isinstance(coordinates, SparseTensor):
        return coordinates.coordinate_map_key
    if isinstance(coordinates, CoordinateMapKey):
        return coordinates
    key = tensor.coordinate_manager.another(stride)
    tensor.coordinate_manager.place(key, coordinates)
    return key
