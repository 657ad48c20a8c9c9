# SPDX-License-Identifier: Apache-2.0
"""What a forward pass makes of coordinates: no layer changes them, so that clients have to."""

import re

import pytest
import spconv.pytorch as sp
import test_minkowski
import test_warpconvnet
import torch
import torchsparse_nets
import trellis_nets
from conftest import cloud, trained
from test_minkowski import ME
from torch import nn
from torchsparse_nets import torchsparse, version_fixture  # noqa: F401
from voxeld_export import ExportError, from_module

SHAPE = [20, 20, 20]
TIMES = torch.tensor([1, 2, 2, 2], dtype=torch.int32)


class After(nn.Module):
    """What `function` makes of a strided layer's tensor."""

    def __init__(self, down, function):
        super().__init__()
        self.down, self.function = down, function

    def forward(self, x):
        return self.function(self.down(x))


def spconv_tensor():
    coords = cloud("blob", SHAPE)
    torch.manual_seed(3)
    return sp.SparseConvTensor(torch.randn(len(coords), 4), coords, SHAPE, 2)


def spconv_down():
    return sp.SparseConv3d(4, 8, 3, 2, padding=1, bias=False)


def on(y, indices):
    return sp.SparseConvTensor(y.features, indices.contiguous(), y.spatial_shape, y.batch_size)


def in_place(y):
    y.indices[:, 1:] *= 2
    return y


def assigned(y):
    y.indices = y.indices * TIMES
    return y


def of_many(y):
    return on(y, y.indices * TIMES) if len(y.indices) > 400 else y


def of_few(y):
    return y if len(y.indices) > 400 else on(y, y.indices * TIMES)


OTHERS = "the output out has other coordinates than those of down, whose features it has: row "
SPCONV = {
    "turned": (lambda y: on(y, y.indices[:, [0, 3, 2, 1]]), OTHERS),
    "in place": (in_place, OTHERS),
    "assigned": (assigned, OTHERS),
    "a new tensor": (lambda y: on(y, y.indices * TIMES), OTHERS),
    "in a dict": (
        lambda y: {"a": y, "b": on(y, y.indices * TIMES)},
        "the output b has other coordinates than those of down",
    ),
    "rows in another order": (
        lambda y: on(y, y.indices.flip(0)),
        r"\(the same voxels in another order\)",
    ),
    "another sample": (
        lambda y: on(y, y.indices + torch.tensor([1, 0, 0, 0], dtype=torch.int32)),
        r"row 0 came as \[[12], .*, expected \[[01], ",
    ),
    "fewer rows": (
        lambda y: on(y, y.indices[:-1]),
        r": \d+ rows came, \d+ were expected; no layer changes coordinates.  Return the tensor",
    ),
    "where there are many": (of_many, OTHERS),
    "where there are few": (of_few, r"for other voxels \(\d+ in 3 samples; .*\) " + OTHERS),
    "dense": (
        lambda y: on(y, y.indices[:, [0, 2, 1, 3]]).dense(),
        r"dense\(\) in the network's own forward, which gets other coordinates than those of down",
    ),
}


@pytest.mark.parametrize("name", SPCONV)
def test_changed_behind_a_layer(folder, name):
    function, said = SPCONV[name]
    with pytest.raises(ExportError, match=said):
        from_module(trained(After(spconv_down(), function)), spconv_tensor(), folder)
    assert not folder.exists()


def test_the_same_in_another_tensor(folder):
    net = After(spconv_down(), lambda y: on(y, y.indices.clone()))
    from_module(trained(net), spconv_tensor(), folder)


class First(nn.Module):
    """A layer of what `function` makes of the example."""

    def __init__(self, function):
        super().__init__()
        self.conv, self.function = sp.SubMConv3d(4, 8, 3, bias=False), function

    def forward(self, x):
        return self.conv(self.function(x))


BEFORE = {
    "turned": lambda x: on(x, x.indices[:, [0, 3, 2, 1]]),
    "flipped": lambda x: on(x, (x.indices - 19 * (TIMES > 1).int()).abs()),
    "in place": in_place,
}


@pytest.mark.parametrize("name", BEFORE)
def test_changed_before_the_first_layer(folder, name):
    said = "SubMConv3d in module conv, which gets other coordinates than the example's, which"
    with pytest.raises(ExportError, match=said + ".* no layer changes coordinates"):
        from_module(trained(First(BEFORE[name])), spconv_tensor(), folder)


def test_changed_on_the_requests_voxels(folder):
    net = After(sp.SubMConv3d(4, 8, 3, bias=False), lambda y: on(y, y.indices[:, [0, 3, 2, 1]]))
    with pytest.raises(ExportError, match="other coordinates than the request's, on whose voxels"):
        from_module(trained(net), spconv_tensor(), folder)


def minkowski():
    """Its coordinates are multiples of the stride."""
    again = lambda y: ME.SparseTensor(  # noqa: E731
        y.F, coordinates=y.C * TIMES, tensor_stride=y.tensor_stride
    )
    down = test_minkowski.conv(4, 6, kernel_size=2, stride=2)
    return down, test_minkowski.tensor("scatter", 4), again


def of_torchsparse():
    """Before 2.1 they are multiples of the stride, and the sample comes last."""
    times = TIMES.flip(0) if torchsparse.version.before_21() else TIMES
    again = lambda y: torchsparse.SparseTensor(y.F, y.C * times, y.stride)  # noqa: E731
    down = torchsparse_nets.spnn.Conv3d(4, 6, 2, stride=2)
    return down, torchsparse_nets.tensor("scatter", 4), again


def warpconvnet():
    again = lambda y: test_warpconvnet.Voxels(  # noqa: E731
        y.coordinate_tensor * 2, y.feature_tensor, offsets=y.offsets, tensor_stride=y.tensor_stride
    )
    down = test_warpconvnet.SparseConv3d(4, 6, 2, 2)
    return down, test_warpconvnet.tensor("scatter", 4), again


def trellis():
    again = lambda y: trellis_nets.sp.SparseTensor(y.feats, y.coords * TIMES)  # noqa: E731
    return trellis_nets.sp.SparseDownsample(2), trellis_nets.tensor("scatter", 4), again


LIBRARIES = {
    "MinkowskiEngine": (minkowski, None),
    "TorchSparse 1.4": (of_torchsparse, "1.4.0"),
    "TorchSparse 2.1": (of_torchsparse, "2.1.0"),
    "WarpConvNet": (warpconvnet, None),
    "TRELLIS.2": (trellis, None),
}


@pytest.fixture(params=LIBRARIES)
def library(request, version):
    """Its name, and what it is made of."""
    make, number = LIBRARIES[request.param]
    if number:
        version(number)
    return (request.param, *make())


def test_of_other_libraries(folder, library):
    _name, down, x, again = library
    # What a library keeps in its coordinates, a stride, is no change of them.
    from_module(trained(After(down, lambda y: y)), x, folder, check=False)
    with pytest.raises(ExportError, match=OTHERS + r"\d+ came as") as error:
        from_module(trained(After(down, again)), x, folder, check=False)
    came, expected = map(eval, re.findall(r"\[.*?\]", str(error.value)))
    assert came == [expected[0], *(2 * number for number in expected[1:])]


def test_between_layers_of_other_libraries(folder, library):
    name, down, x, again = library
    more = {
        "MinkowskiEngine": lambda: test_minkowski.conv(6, 6, kernel_size=3),
        "WarpConvNet": lambda: test_warpconvnet.SparseConv3d(6, 6, 3),
        "TRELLIS.2": lambda: trellis_nets.sp.SparseConv3d(4, 4, 3),
    }.get(name, lambda: torchsparse_nets.spnn.Conv3d(6, 6, 3))()
    net = nn.Sequential(After(down, again), more)
    with pytest.raises(ExportError, match="in module 1, which gets other coordinates than those"):
        from_module(trained(net), x, folder, check=False)
