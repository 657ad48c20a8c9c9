"""The tensors of a model directory, and the order in which libraries write a convolution's weight.

engine/README.md, "Layouts" and "weights.safetensors", has the definitions.

SPDX-License-Identifier: Apache-2.0
"""

import json

import ml_dtypes
import numpy as np

from .definition_sets import centre
from .errors import ExportError

_TYPES = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}

LAYOUTS = ("spconv", "torchsparse", "minkowski", "warpconvnet", "flexgemm")
LAYOUTS += ("oxyzi", "vio", "xyzio", "xyzoi")
_OFFSETS_INSIDE = ("spconv", "flexgemm", "oxyzi")  # [Co, Kx, Ky, Kz, Ci]
_OFFSETS_FIRST = ("torchsparse", "minkowski", "warpconvnet", "vio")  # [V, Ci, Co]

_DENSE = "; of PyTorch's Conv3d, permute it to [Co, K, K, K, Ci] and set oxyzi"


class Tensors:
    """The tensors of weights.safetensors, read when they are asked for, as float64."""

    def __init__(self, path):
        self.path = path
        try:
            with open(path, "rb") as file:
                data = file.read()
            size = int.from_bytes(data[:8], "little")
            self._header = json.loads(data[8 : 8 + size].decode())
            self._data = memoryview(data)[8 + size :]
        except (OSError, ValueError) as error:
            raise ExportError(f"{path} is not a file of safetensors: {error}") from error

    def take(self, name, layer):
        """The tensor of a layer."""
        about = self._header.get(name)
        if not isinstance(about, dict) or "data_offsets" not in about:
            raise ExportError(f"{self.path} has no tensor {name}, which layer {layer} needs")
        kind = _TYPES.get(about["dtype"])
        if kind is None:
            raise ExportError(f"{self.path}: {name} is {about['dtype']}; expected F32, F16, BF16")
        begin, end = about["data_offsets"]
        try:
            array = np.frombuffer(self._data[begin:end], kind).reshape(about["shape"])
        except ValueError as error:
            raise ExportError(f"{self.path}: {name} is damaged: {error}") from error
        return array.astype(np.float64)


class Convolution:
    """What decides how a weight is read.

    window  a Window, of an inverse convolution the one that it undoes
    onto    of a transposed one: whether its set is named
    """

    def __init__(self, layer, window, channels_in, onto=False):
        self.name, self.op = layer["name"], layer["op"]
        self.window, self.onto = window, onto
        self.groups, self.ci, self.co = layer.get("groups", 1), channels_in, layer["channels"]
        self.layout = layer.get("layout")

    def volume(self):
        """The offsets of the kernel."""
        return int(np.prod(self.window.kernel))

    def one(self):
        """Whether the kernel has one offset, and a stride of 1."""
        return self.volume() == 1 and int(np.prod(self.window.stride)) == 1


def weight_of(conv, array):
    """A weight [V, groups, Ci / groups, Co / groups], the last axis of the offsets fastest."""
    if conv.layout is not None:
        if conv.layout not in LAYOUTS:
            raise ExportError(f'layer {conv.name}: layout "{conv.layout}" is unknown')
        shapes = _shapes(conv, conv.layout)
        if array.shape not in shapes:
            raise ExportError(
                f"layer {conv.name}: a weight of shape {list(array.shape)}; layout "
                f'"{conv.layout}" has {" or ".join(str(list(shape)) for shape in shapes) or "none"}'
            )
        return _read(conv, conv.layout, array)
    fitting = [
        layout
        for layout in LAYOUTS
        if array.shape in _shapes(conv, layout) and not _cannot(conv, layout)
    ]
    if not fitting:
        raise ExportError(f"layer {conv.name}: no layout has a weight of shape {list(array.shape)}")
    read = [_read(conv, layout, array) for layout in fitting]
    dense = _is_dense(conv, array.shape)
    if dense or not all(np.array_equal(read[0], other, equal_nan=True) for other in read[1:]):
        raise ExportError(
            f"layer {conv.name}: the shape {list(array.shape)} allows several layouts; "
            f"set one of {', '.join(fitting)}{_DENSE if dense else ''}"
        )
    return read[0]


def _is_dense(conv, shape):
    """Whether PyTorch's Conv3d or Conv2d may have written the weight: [Co, Ci, K, K, K]."""
    k, channels = tuple(conv.window.kernel), (conv.co, conv.ci // conv.groups)
    dense = shape == (*channels, *k) or (k[2] == 1 and shape == (*channels, *k[:2]))
    return conv.volume() > 1 and dense


def _shapes(conv, layout):
    """The shapes that a layout has for a layer."""
    k, v, g, co = conv.window.kernel, conv.volume(), conv.groups, conv.co
    ci = conv.ci // g
    if layout not in _OFFSETS_FIRST:
        # Libraries of two axes write no third one.
        kernels = [k, k[:2]] if k[2] == 1 else [k]
        if layout in _OFFSETS_INSIDE:
            return [(co, *axes, ci) for axes in kernels]
        return [(*axes, ci, co) if layout == "xyzio" else (*axes, co, ci) for axes in kernels]
    if g > 1 and layout in ("minkowski", "warpconvnet"):
        depthwise = [(v, co)] if g == conv.ci == co else []
        return depthwise + ([(v, g, ci, co // g)] if layout == "warpconvnet" else [])
    matrix = [(ci, co)] if v == 1 and layout != "warpconvnet" else []
    return [(v, ci, co), *matrix]


def _read(conv, layout, array):
    """The weight as [V, groups, Ci / groups, Co / groups]."""
    k, v, g = conv.window.kernel, conv.volume(), conv.groups
    ci, co = conv.ci // g, conv.co // g
    if layout == "spconv" and conv.one():
        return array.reshape(1, 1, ci, co)  # a (Ci, Co) matrix, whatever its shape says
    if layout in _OFFSETS_INSIDE:
        return array.reshape(g, co, v, ci).transpose(2, 0, 3, 1)
    if layout == "xyzoi":
        return array.reshape(v, g, co, ci).transpose(0, 1, 3, 2)
    if g > 1 and layout in ("minkowski", "warpconvnet"):
        array = array.reshape(v, g, ci, co)
    else:
        array = array.reshape(v, ci, g, co).transpose(0, 2, 1, 3)
    if layout == "minkowski" or (layout == "torchsparse" and v % 2):
        # The first axis of the kernel is the fastest in the file.
        array = array.reshape(k[2], k[1], k[0], g, ci, co).transpose(2, 1, 0, 3, 4, 5)
    return array.reshape(v, g, ci, co)


def _cannot(conv, layout):
    """Whether a library cannot have written the layer's weight; letters can be anything."""
    window, strided = conv.window, conv.op == "sparse_conv"
    axes = list(zip(window.kernel, window.stride, window.dilation))
    dilated = any(k > 1 and d > 1 for k, _s, d in axes)
    floor = strided and window.rule == "floor"
    if conv.groups > 1 and layout in ("spconv", "torchsparse", "flexgemm"):
        return True
    if layout in ("minkowski", "warpconvnet"):
        centred = window.padding == centre(window.kernel, window.dilation)
        return (strided and window.rule == "spconv") or (conv.op == "inverse_conv" and not centred)
    if layout in ("spconv", "flexgemm"):
        block = all(k == s and (k == 1 or k % 2 == 0) for k, s, _d in axes) and not dilated
        back = conv.op in ("inverse_conv", "transposed_conv")
        if back and (layout == "flexgemm" or (conv.op == "inverse_conv" and conv.volume() == 1)):
            return True
        odd = any(k > 1 and k % 2 for k, _s, _d in axes)
        return (floor and not block) or (conv.op == "transposed_conv" and (odd or dilated))
    if layout == "torchsparse":
        up = conv.op == "transposed_conv" and (not conv.onto or any(k > 2 for k, _s, _d in axes))
        other = floor and any((s > 1 and s != k) or (k > 2 and k % 2 == 0) for k, s, _d in axes)
        return dilated or up or other
    return False
