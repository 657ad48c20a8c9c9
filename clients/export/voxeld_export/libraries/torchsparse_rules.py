"""Which voxels a convolution of TorchSparse makes, and which offsets its kernel has.

  2.1             spconv's rule with the module's padding, inside the tensor's spatial_range.
                  Without one its shape is that of the batch's largest voxel, so that voxels at
                  the border come and go with the batch.  Even kernels of stride 1 begin at the
                  voxel.  In the mode "hashmap" all offsets are around the middle.
  1.4 and 2.0     floor where each stride is 1 or the kernel; else spconv's rule with padding
                  (kernel - 1) / 2, above the smallest voxel of the batch.

What follows from the batch cannot be written down: voxels are held against the rule's, and a
network whose example loses some is refused.

SPDX-License-Identifier: Apache-2.0
"""

import itertools
import sys

import numpy as np

from ..axes import unless
from ..errors import ExportError

UNBOUNDED = [131072] * 3  # the largest spatial_shape there is: no voxel leaves it


class Rule:
    """op, keys  of the layer; keys have no rule if it is a subm_conv

    remedy    what to do about an example whose voxels are not the rule's
    """

    def __init__(self, op, size, stride, remedy="", rule=None, padding=None):
        self.op, self._size, self._stride, self._remedy = op, size, stride, remedy
        self._padding = padding or [0, 0, 0]
        self.keys = {"kernel": size}
        if rule:
            self.keys.update(stride=stride, rule=rule)
        if rule == "spconv":
            self.keys["padding"] = unless(0, self._padding)

    def shape(self, shape):
        """That of the result's set, of its input's."""
        if self.keys["rule"] == "floor":
            return [(d - 1) // s + 1 for d, s in zip(shape, self._stride)]
        each = zip(shape, self._padding, self._size, self._stride)
        return [(d + 2 * p - k) // s + 1 for d, p, k, s in each]

    def expect(self, trace, module, coords, shape, result):
        """ExportError if the rule makes other voxels than the library did."""
        said = f"{type(module).__name__} {trace.said()}"
        if self.keys["rule"] == "spconv" and len(coords) and coords[:, 1:].min() < 0:
            raise ExportError(f"{said} reads voxels below 0; expected voxels from 0 on")
        made = np.unique(self._voxels(coords, shape), axis=0)
        there = np.unique(result, axis=0)
        if made.shape != there.shape or (made != there).any():
            raise ExportError(
                f"{said} makes {len(there)} voxels in TorchSparse, and its rule {len(made)}"
                f"{self._remedy}"
            )

    def _voxels(self, coords, shape):
        coords, stride = coords.astype(np.int64), np.array(self._stride)
        if self.keys["rule"] == "floor":
            return np.concatenate([coords[:, :1], coords[:, 1:] // stride], 1)
        found, inside = [], np.array(self.shape(shape))
        for offset in itertools.product(*map(range, self._size)):
            at = coords[:, 1:] + np.array(self._padding) - np.array(offset)
            q = at // stride
            kept = ((at % stride == 0) & (q >= 0) & (q < inside)).all(1)
            found.append(np.concatenate([coords[kept, :1], q[kept]], 1))
        return np.concatenate(found)


def rule_of(trace, module, given, ranged):
    """The Rule of a convolution that is not transposed, of a sparse tensor.

    ranged  whether the network's input has a spatial_range, from which all shapes follow
    """
    size = [int(k) for k in module.kernel_size]
    stride = [int(s) for s in module.stride]
    said = f"{type(module).__name__} {trace.said()}"
    if hasattr(given, "_caches"):
        config = _config(module)
        centred = config.get("kmap_mode") == "hashmap"
        floor = centred and (
            config.get("downsample_mode") == "minkowski" or _is_block(size, stride)
        )
        if all(step == 1 for step in stride):
            rule = _same(said, size, centred)
            if not centred:
                _expect_room(said, size, given)
            return rule
        has = "has no spatial_range"
        if given.spatial_range is not None:
            has = f"has the spatial_range {tuple(given.spatial_range)}"
        remedy = (
            f": it leaves out some at the border of the example, whose tensor {has} here; "
            "expected SparseTensor(..., spatial_range=(samples, X, Y, Z))"
        )
        return _made_21(said, module, size, stride, ranged, centred, floor, remedy)
    if all(step == 1 for step in stride):
        return _same(said, size, True)
    return _made_before(said, size, stride)


def _is_block(size, stride):
    return all(s in (1, k) for s, k in zip(stride, size))


def _same(said, size, centred):
    if all(k % 2 for k in size):
        return Rule("subm_conv", size, [1, 1, 1])
    _no_larger_even(said, size)
    if not centred and any(k % 2 and k > 1 for k in size):
        raise ExportError(
            f"{said} has kernel {size} and no stride, whose odd axes TorchSparse 2.1 does not "
            "centre; expected odd sizes, or 1 and 2"
        )
    return Rule("sparse_conv", size, [1, 1, 1], rule="floor")


def _expect_room(said, size, given):
    """2.1 makes the range smaller by an even kernel, and finds no voxel beyond it."""
    if given.spatial_range is None or all(k % 2 for k in size):
        return
    shape = [int(d) - (k - 1) * (k % 2 == 0) for d, k in zip(given.spatial_range[1:4], size)]
    largest = given.C[:, 1:4].max(0)[0].tolist()
    if any(a >= d for a, d in zip(largest, shape)):
        raise ExportError(
            f"{said} has kernel {size}, for which TorchSparse 2.1 looks for voxels within {shape}, "
            f"and the example has some up to {largest}; expected a larger spatial_range"
        )


def _no_larger_even(said, size):
    if any(k % 2 == 0 and k > 2 for k in size):
        raise ExportError(f"{said} has kernel {size}; expected odd sizes, or 1 and 2")


def _made_21(said, module, size, stride, ranged, centred, floor, remedy):
    padding = [int(p) for p in module.padding]
    if floor:
        _no_larger_even(said, size)
        if not _is_block(size, stride):
            raise ExportError(
                f'{said} has kernel {size} and stride {stride} in downsample_mode "minkowski"; '
                "expected a stride that is 1 or the kernel"
            )
        return Rule("sparse_conv", size, stride, rule="floor")
    if centred and padding != [(k - 1) // 2 for k in size]:
        raise ExportError(
            f'{said} has padding {padding} in kmap_mode "hashmap", which centres its offsets; '
            f"expected {[(k - 1) // 2 for k in size]}"
        )
    if not ranged and size == stride and max(size) <= 2 and not any(padding):
        return Rule("sparse_conv", size, stride, remedy, rule="floor")
    return Rule("sparse_conv", size, stride, remedy, rule="spconv", padding=padding)


def _made_before(said, size, stride):
    if _is_block(size, stride):
        _no_larger_even(said, size)
        if max(size) == 1:
            raise ExportError(f"{said} has kernel 1 and stride {stride}")
        remedy = ": it rounds towards 0 below 0; expected voxels from 0 on"
        return Rule("sparse_conv", size, stride, remedy, rule="floor")
    if max(size) == 1 or any(k % 2 == 0 for k in size):
        raise ExportError(
            f"{said} has kernel {size} and stride {stride}, of which TorchSparse before 2.1 "
            "makes voxels by other offsets than it reads; expected odd sizes above 1"
        )
    remedy = (
        ": it leaves out those below the smallest voxel of the example; expected voxels that "
        "begin at 0 along each axis"
    )
    middle = [(k - 1) // 2 for k in size]
    return Rule("sparse_conv", size, stride, remedy, rule="spconv", padding=middle)


def _config(module):
    """That of the module, of the process, or the default: as conv3d asks for it."""
    functions = getattr(sys.modules.get("torchsparse.nn.functional"), "conv_config", None)
    found = getattr(module, "_config", None)
    if found is None and functions is not None:
        found = functions.get_global_conv_config() or functions.get_default_conv_config()
    return found or {}
