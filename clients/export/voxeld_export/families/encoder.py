"""The encoders of detectors: strided stages of submanifold convolutions or residual blocks.

Their libraries differ in names alone, which Names has:

    openpcdet  VoxelBackBone8x, VoxelResBackBone8x (pcdet/models/backbones_3d/spconv_backbone.py)
    mmdet3d    SparseEncoder of conv_module or basicblock (mmdet3d/models/middle_encoders)
    det3d      SpMiddleFHD, SpMiddleResNetFHD (det3d/models/backbones/scn.py)

SPDX-License-Identifier: Apache-2.0
"""

import warnings

from ..axes import three
from ..errors import ExportError

EPS = 1e-3  # of these libraries' batch norms
STAGES = (1, 2, 3, 4)
_SWAPPED = 4  # z has a fraction of the voxels of x and of y, and never so many times either


class Names:
    """Names of an encoder's modules in a state_dict.

    naming    "openpcdet", "mmdet3d", "det3d"
    residual  residual blocks, or convolutions alone
    depths    blocks of each stage, or convolutions beside the strided one
    """

    def __init__(self, naming, residual, depths):
        self.naming, self.residual, self.depths = naming, residual, tuple(depths)
        self._flat = naming == "det3d" and not residual  # one list: convolution, norm, ReLU, ...

    def stem(self):
        """(convolution, norm)"""
        return self._in_list(0) if self._flat else ("conv_input.0", "conv_input.1")

    def down(self, stage):
        """(convolution, norm) of the strided convolution that leads to a stage."""
        if self._flat:
            return self._in_list(self._first(stage))
        if self.naming == "det3d":
            return f"conv{stage}.0", f"conv{stage}.1"
        if self.naming == "openpcdet":
            return _pair(f"conv{stage}.0")
        if self.residual:  # it is the last part of the stage before
            return _pair(f"encoder_layers.encoder_layer{stage - 1}.{self.depths[stage - 2]}")
        return _pair(f"encoder_layers.encoder_layer{stage}.0")

    def inner(self, stage, index):
        """A block's name, or (convolution, norm)."""
        if self._flat:
            return self._in_list(self._first(stage) + index + (stage > 1))
        inside = "encoder_layers.encoder_layer" if self.naming == "mmdet3d" else "conv"
        before = 0 if stage == 1 or self.naming == "mmdet3d" and self.residual else 1
        if self.naming == "det3d":
            before *= 3  # convolution, norm and ReLU have no list of their own
        name = f"{inside}{stage}.{index + before}"
        return name if self.residual else _pair(name)

    def out(self):
        """(convolution, norm) of the convolution along the height."""
        if self._flat:
            return self._in_list(self._first(len(STAGES) + 1))
        name = "extra_conv" if self.naming == "det3d" else "conv_out"
        return f"{name}.0", f"{name}.1"

    def _first(self, stage):
        """Where a stage begins in a flat list: behind the stem, its strided convolution first."""
        return 1 + sum(self.depths[: stage - 1]) + max(0, stage - 2)

    def _in_list(self, place):
        return f"middle_conv.{3 * place}", f"middle_conv.{3 * place + 1}"


class Encoder:
    """Adds an encoder's layers to a Builder, and knows the shape of every set.

    net     a Builder
    shape   voxels along the axes z, y, x of the request
    bias    whether convolutions of residual blocks have a bias
    prefix  of all names
    """

    def __init__(self, net, shape, *, bias=False, prefix=""):
        shape = tuple(shape)
        if len(shape) != 3 or min(shape) < 1:
            raise ExportError(
                f"spatial_shape is {','.join(map(str, shape))}; expected z,y,x: voxels along each "
                "axis (OpenPCDet: the grid's size, backwards, and one more along z)"
            )
        if shape[0] > min(max(shape[1:]), _SWAPPED * min(shape[1:])):
            warnings.warn(
                f"spatial_shape is {','.join(map(str, shape))}, with many voxels along the first "
                "axis; expected z,y,x, and z has the fewest of a street: are the axes swapped?",
                stacklevel=2,
            )
        self.net, self.bias, self.prefix = net, bias, prefix
        self.shapes = {net.feats.on: shape}
        net.network.spatial_shape = shape
        net.network.column_axes = "zyx"

    def conv(self, x, names, channels, kernel=3, *, bias=False, eps=EPS, axes=3):
        """Submanifold convolution, norm, ReLU."""
        name, norm = self._named(names)
        x = self.net.subm_conv(x, name, channels, kernel, bias=bias, axes=axes)
        return self._norm(x, norm, eps)

    def down(self, x, names, channels, kernel=3, stride=2, padding=1, *, axes=3):
        """(strided convolution, what comes out): spconv's rule, norm, ReLU."""
        name, norm = self._named(names)
        shape = self._shape(name, x.on, kernel, stride, padding)
        made = self.net.sparse_conv(x, name, channels, kernel, stride, padding=padding, axes=axes)
        self.shapes[made.on] = shape
        return made, self._norm(made, norm, EPS)

    def inverse(self, x, names, channels, of):
        """Inverse convolution of the strided one `of`, norm, ReLU."""
        name, norm = self._named(names)
        return self._norm(self.net.inverse_conv(x, name, channels, of), norm, EPS)

    def block(self, x, name):
        """A residual block."""
        net, name = self.net, self.prefix + name
        y = net.subm_conv(x, f"{name}.conv1", x.channels, bias=self.bias)
        y = net.relu(net.batch_norm(y, f"{name}.bn1", eps=EPS))
        # Half as large: sums of many blocks would grow otherwise, with weights drawn at random.
        y = net.subm_conv(y, f"{name}.conv2", x.channels, bias=self.bias)
        y = net.batch_norm(y, f"{name}.bn2", eps=EPS, gain=0.5)
        return net.relu(net.add(y, x, f"{name}.add"), f"{name}.relu")

    def stage(self, x, names, stage, channels, padding=1, kernel=3):
        """(strided convolution or None, what comes out) of one of the four stages."""
        made = None
        if stage > 1:
            made, x = self.down(x, names.down(stage), channels, kernel, 2, padding)
        for index in range(names.depths[stage - 1]):
            name = names.inner(stage, index)
            x = self.block(x, name) if names.residual else self.conv(x, name, channels)
        return made, x

    def shape(self, value):
        """Voxels along the axes of the set that a Value lies on."""
        return self.shapes[value.on]

    def _named(self, names):
        return self.prefix + names[0], self.prefix + names[1]

    def _norm(self, x, name, eps):
        return self.net.relu(self.net.batch_norm(x, name, eps=eps))

    def _shape(self, name, on, kernel, stride, padding):
        """spconv's shape of the set that a strided convolution makes."""
        made = []
        for axis, size in enumerate(self.shapes[on]):
            wide, pad = three(kernel, 1)[axis], three(padding, 0)[axis]
            if size + 2 * pad < wide:
                raise ExportError(
                    f"{name}: {size} voxels are left along axis {'zyx'[axis]}, and {2 * pad} of "
                    f"padding, and its kernel reaches over {wide}; expected a larger spatial_shape "
                    f"than {','.join(map(str, self.shapes[self.net.feats.on]))}"
                )
            made.append((size + 2 * pad - wide) // three(stride, 1)[axis] + 1)
        return tuple(made)


def _pair(name):
    return f"{name}.0", f"{name}.1"
