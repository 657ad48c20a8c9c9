# SPDX-License-Identifier: Apache-2.0
"""What of TorchSparse cannot be exported is named, with the module's path."""

import pytest
import torch
from conftest import trained
from torch import nn
from torchsparse_nets import (
    SPVCNN,
    Of,
    spf,
    spnn,
    tensor,
    torchsparse,
    version_fixture,  # noqa: F401
)
from voxeld_export import ExportError, from_module

REFUSED = {
    "a border": (
        "2.1.0",
        lambda: spnn.Conv3d(4, 6, 2, stride=2),
        {"ranged": False},
        "leaves out some at the border of the example, whose tensor has no spatial_range here",
    ),
    "an odd kernel without a range": (
        "2.1.0",
        lambda: spnn.Conv3d(4, 6, 3, stride=2, padding=1),
        {"ranged": False, "shape": (9, 8, 10)},
        "expected SparseTensor(..., spatial_range=(samples, X, Y, Z))",
    ),
    "an even kernel at the border": (
        "2.1.0",
        lambda: spnn.Conv3d(4, 6, (2, 1, 2)),
        {},
        "TorchSparse 2.1 looks for voxels within [8, 8, 10], and the example has some up to [8, 7",
    ),
    "a start above 0": (
        "1.4.0",
        lambda: spnn.Conv3d(4, 6, 3, stride=2),
        {"low": 1},
        "it leaves out those below the smallest voxel of the example; expected voxels that begin",
    ),
    "below 0": (
        "1.4.0",
        lambda: spnn.Conv3d(4, 6, 3, stride=2),
        {"low": -4},
        "Conv3d in module 0 reads voxels below 0; expected voxels from 0 on",
    ),
    "an even kernel between": (
        "1.4.0",
        lambda: spnn.Conv3d(4, 6, 4, stride=2),
        {},
        "Conv3d in module 0 has kernel [4, 4, 4] and stride [2, 2, 2], of which TorchSparse before",
    ),
    "an even kernel above 2": (
        "2.1.0",
        lambda: spnn.Conv3d(4, 6, 4),
        {},
        "Conv3d in module 0 has kernel [4, 4, 4]; expected odd sizes, or 1 and 2",
    ),
    "odd axes of an even kernel": (
        "2.1.0",
        lambda: spnn.Conv3d(4, 6, (3, 2, 2)),
        {},
        "whose odd axes TorchSparse 2.1 does not centre",
    ),
    "generative": (
        "2.1.0",
        lambda: spnn.Conv3d(4, 6, 2, stride=2, transposed=True, generative=True),
        {},
        "Conv3d in module 0 is generative, which no layer does",
    ),
    "another padding": (
        "2.1.0",
        lambda: Of(
            lambda a, b, x: torchsparse.cat([a(x), b(x)]),
            spnn.Conv3d(4, 6, 3, stride=2, padding=1),
            spnn.Conv3d(4, 6, 3, stride=2),
        ),
        {},
        "Conv3d in module 0.parts.1 has padding 0, but TorchSparse gives it the map of 0.parts.0",
    ),
    "nearest": (
        "2.1.0",
        lambda: SPVCNN(nearest=True),
        {"shape": (8, 8, 8), "ranged": False},
        "voxel_to_point in module 0 has nearest=True",
    ),
    "half a step": (
        "2.1.0",
        lambda: SPVCNN(step=2.5),
        {"shape": (8, 8, 8), "ranged": False},
        "initial_voxelize in module 0 makes voxels of 2.5 steps of its points; expected a whole",
    ),
    "a crop": (
        "2.1.0",
        lambda: spnn.SparseCrop((0, 0, 0), (1, 4, 4)),
        {},
        "TorchSparse's SparseCrop in module 0, which no layer does",
    ),
    "a crop by function": (
        "2.1.0",
        lambda: Of(lambda conv, x: spf.spcrop(conv(x), (0, 0, 0)), spnn.Conv3d(4, 6, 3)),
        {},
        "TorchSparse's spcrop() in module 0, which no layer does",
    ),
    "dense": (
        "2.1.0",
        lambda: Of(lambda conv, x: conv(x).dense(), spnn.Conv3d(4, 6, 3)),
        {},
        "TorchSparse's dense() as [sample, x, y, z, channel] in module 0, which no",
    ),
    "a bird's-eye view": (
        "1.4.0",
        spnn.ToBEVHeightCompression,
        {},
        "TorchSparse's ToBEVHeightCompression in module 0, which no layer does",
    ),
    "a union": (
        "2.1.0",
        lambda: Of(
            lambda conv, x: torchsparse.generative_add(conv(x), conv(x)), spnn.Conv3d(4, 6, 3)
        ),
        {},
        "TorchSparse's generative_add() in module 0, which no layer does",
    ),
    "voxelize by function": (
        "1.4.0",
        lambda: Of(
            lambda conv, x: spf.spvoxelize(
                conv(x).F, torch.zeros(len(x.F), dtype=torch.int32), torch.tensor([len(x.F)])
            ),
            spnn.Conv3d(4, 6, 3),
        ),
        {},
        "TorchSparse's spvoxelize() in module 0, which no layer does",
    ),
    "an instance norm": (
        "2.1.0",
        lambda: nn.Sequential(spnn.Conv3d(4, 6, 3), spnn.InstanceNorm(6)),
        {},
        "TorchSparse's InstanceNorm in module 0.1, which no layer does",
    ),
    "a convolution by function": (
        "2.1.0",
        lambda: Of(
            lambda conv, x: spf.conv3d(x, conv.kernel, (2, 2, 2), stride=(2, 2, 2), bias=conv.bias),
            spnn.Conv3d(4, 6, 2, stride=2),
        ),
        {},
        "TorchSparse's conv3d() in module 0, which no layer does",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(folder, version, name, monkeypatch):
    number, make, how, said = REFUSED[name]
    version(number)
    if name == "generative":
        monkeypatch.setattr(spnn.Conv3d, "forward", lambda self, x: spf.relu(x, inplace=False))
    with pytest.raises(ExportError) as error:
        from_module(trained(nn.Sequential(make())), tensor("sheet", 4, **how), folder)
    assert said in str(error.value)
    assert not folder.exists()


def test_what_is_not_found_is_said(folder, version):
    """A map that no strided layer has made; the stand-in finds one of a tensor outside."""
    version("2.1.0")
    x = tensor("sheet", 4)
    down = spnn.Conv3d(4, 4, 2, stride=2)
    coarse = down(spnn.Conv3d(4, 4, 3)(x))
    net = nn.Sequential(spnn.Conv3d(4, 4, 3), spnn.Conv3d(4, 4, 2, stride=2, transposed=True))
    with pytest.raises(ExportError, match="in module 1 undoes a convolution of kernel .2, 2, 2."):
        from_module(trained(net), coarse, folder)
