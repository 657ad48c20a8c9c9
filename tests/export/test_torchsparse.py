# SPDX-License-Identifier: Apache-2.0
"""Modules of TorchSparse 1.4, 2.0 and 2.1, by a stand-in that computes pair by pair."""

import json

import pytest
import torch
from conftest import trained
from torch import nn
from torchsparse_nets import SPVCNN, Of, UNet, spf, spnn, tensor, version_fixture  # noqa: F401
from voxeld_export import CheckFailed, ExportError, from_module
from voxeld_export.network import Network

KINDS = ["scatter", "sheet", "blob"]
OLD = ["1.4.0", "2.0.0b"]


def document(folder):
    return json.loads((folder / "network.json").read_text())


def layers(folder):
    return {layer["name"]: layer for layer in document(folder)["layers"]}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", ["2.1.0", "1.4.0"])
def test_unet(folder, version, kind, number):
    version(number)
    datatype = {"scatter": "FP32", "sheet": "FP16", "blob": "BF16"}[kind]
    report = from_module(trained(UNet()), tensor(kind, 4), folder, datatype=datatype)
    assert [d.name for d in report.differences] == ["logits", "middle"]
    made = layers(folder)
    rule = "spconv" if number == "2.1.0" else "floor"
    assert made["down1.0.0"]["rule"] == made["down2.0.0"]["rule"] == rule
    assert (made["up1.0"]["op"], made["up1.0"]["of"]) == ("inverse_conv", "down1.0.0")


@pytest.mark.parametrize("number", ["2.1.0", *OLD])
def test_unet_of_odd_kernels(folder, version, number):
    """k3 s2 behind k2 s2: floor, then spconv's rule with a shape that no voxel leaves."""
    version(number)
    x = tensor("blob", 4, shape=(12, 8, 10))
    from_module(trained(UNet(odd=True)), x, folder)
    shape = document(folder)["inputs"]["coords"]["spatial_shape"]
    assert shape == ([12, 8, 10] if number == "2.1.0" else [131072] * 3)


def test_unet_without_a_range(folder, version):
    """2.1 leaves out what lies at an even border; without such voxels it is floor."""
    version("2.1.0")
    from_module(trained(UNet()), tensor("blob", 4, shape=(8, 12, 16), ranged=False), folder)
    made = layers(folder)
    assert made["down2.0.0"]["rule"] == "floor" and document(folder)["inputs"]["coords"] == "coords"


EVERY = {
    "conv 3": lambda: spnn.Conv3d(4, 6, 3, bias=True),
    "conv 1": lambda: spnn.Conv3d(4, 4, 1, bias=True),
    "conv 3x5x1": lambda: spnn.Conv3d(4, 6, (3, 5, 1)),
    "even 2": lambda: spnn.Conv3d(4, 6, 2, bias=True),
    "even 2x1x2, added": lambda: Of(
        lambda even, one, x: even(x) + one(x), spnn.Conv3d(4, 6, (2, 1, 2)), spnn.Conv3d(4, 6, 1)
    ),
    "conv 3, dilation": lambda: spnn.Conv3d(4, 6, 3, dilation=2),  # the library computes with 1
    "conv 2/2": lambda: spnn.Conv3d(4, 6, 2, stride=2, bias=True),
    "conv 2x2x1/2x2x1": lambda: spnn.Conv3d(4, 6, (2, 2, 1), stride=(2, 2, 1)),
    "there and back 2x1x2": lambda: nn.Sequential(
        spnn.Conv3d(4, 4, 1),
        spnn.Conv3d(4, 6, (2, 1, 2), stride=(2, 1, 2)),
        spnn.Conv3d(6, 4, (2, 1, 2), stride=(2, 1, 2), transposed=True, bias=True),
    ),
    "batch norm, leaky relu": lambda: nn.Sequential(spnn.BatchNorm(4), spnn.LeakyReLU(0.2)),
    "silu": lambda: nn.Sequential(spnn.Conv3d(4, 6, 3), spnn.SiLU(True)),
    "group norm": lambda: spnn.GroupNorm(2, 4, eps=1e-4),
    "group norm, plain": lambda: spnn.GroupNorm(4, 4, affine=False),
    "global average": spnn.GlobalAvgPool,
    "global max": spnn.GlobalMaxPool,
    "functions": lambda: Of(
        lambda conv, linear, x: linear(
            spf.global_max_pool(spf.leaky_relu(conv(x))) + spf.global_avg_pool(x)
        ),
        spnn.Conv3d(4, 4, 3),
        nn.Linear(4, 3),
    ),
}
OF_21 = {
    "conv 3/2": lambda: spnn.Conv3d(4, 6, 3, stride=2, padding=1, bias=True),
    "conv 3/2, no padding": lambda: spnn.Conv3d(4, 6, 3, stride=2),
    "conv 3x1x1/2x1x1": lambda: spnn.Conv3d(4, 6, (3, 1, 1), stride=(2, 1, 1)),
    "conv 4x3x2/2": lambda: spnn.Conv3d(4, 6, (4, 3, 2), stride=2, padding=(1, 1, 0)),
    "conv 1/2": lambda: spnn.Conv3d(4, 6, 1, stride=2),
    "conv 3/3": lambda: spnn.Conv3d(4, 6, 3, stride=3),
    "there and back 3x2x2": lambda: nn.Sequential(
        spnn.Conv3d(4, 4, 3),
        spnn.Conv3d(4, 6, (3, 2, 2), stride=2, padding=(1, 1, 0)),
        spnn.Conv3d(6, 4, (3, 2, 2), stride=2, padding=(1, 1, 0), transposed=True),
    ),
}
BEFORE_21 = {
    "conv 3/2": lambda: spnn.Conv3d(4, 6, 3, stride=2, bias=True),
    "conv 3x1x5/2x1x2": lambda: spnn.Conv3d(4, 6, (3, 1, 5), stride=(2, 1, 2)),
    "conv 3/3": lambda: spnn.Conv3d(4, 6, 3, stride=3),
    "conv 2x3x2": lambda: spnn.Conv3d(4, 6, (2, 3, 2)),
    "conv 3x2x1/1x2x1": lambda: spnn.Conv3d(4, 6, (3, 2, 1), stride=(1, 2, 1)),
    "pools of two sets": lambda: Of(
        lambda down, x: spf.global_avg_pool(down(x)) + spf.global_max_pool(x),
        spnn.Conv3d(4, 4, 2, stride=2),
    ),
    "there and back 3": lambda: nn.Sequential(
        spnn.Conv3d(4, 4, 3),
        spnn.Conv3d(4, 6, 3, stride=2),
        spnn.Conv3d(6, 8, 3),
        spnn.Conv3d(8, 4, 3, stride=2, transposed=True),
    ),
}
MODULES = [
    *(("2.1.0", name) for name in [*EVERY, *OF_21]),
    *((OLD[i % 2], name) for i, name in enumerate([*EVERY, *BEFORE_21])),
]


@pytest.mark.parametrize("number, name", MODULES)
def test_module(folder, version, number, name):
    version(number)
    make = {**EVERY, **(OF_21 if number == "2.1.0" else BEFORE_21)}[name]
    kind = KINDS[sum(name.encode()) % 3]
    x = tensor(kind, 4, ranged=not name.startswith("even"))
    from_module(trained(nn.Sequential(make())), x, folder)


@pytest.mark.parametrize("size, padding", [((3, 3, 3), 1), ((2, 2, 2), 0), ((3, 1, 1), (1, 0, 0))])
def test_mode_hashmap(folder, version, size, padding):
    """A config of the process: floor where the kernel is the stride, offsets around the middle."""
    version("2.1.0")
    spf.conv_config.set_global_conv_config({"kmap_mode": "hashmap", "downsample_mode": "spconv"})
    try:
        net = nn.Sequential(
            spnn.Conv3d(4, 6, 3), spnn.Conv3d(6, 4, size, stride=2, padding=padding)
        )
        from_module(trained(net), tensor("scatter", 4), folder)
    finally:
        spf.conv_config.clear_global_conv_config()
    assert layers(folder)["1"]["rule"] == ("floor" if size == (2, 2, 2) else "spconv")


def test_floor_below_zero(folder, version):
    """1.4 rounds down, 2.0 towards 0: of one the rule is floor, the other is refused."""
    net = nn.Sequential(spnn.Conv3d(4, 6, 3), spnn.Conv3d(6, 4, 2, stride=2))
    version("1.4.0")
    from_module(trained(net), tensor("blob", 4, low=-3), folder)
    version("2.0.0b")
    with pytest.raises(ExportError, match="it rounds towards 0 below 0; expected voxels from 0"):
        from_module(trained(net), tensor("blob", 4, low=-3), folder)


# Where voxel q of the result reads for number v of the kernel, by hand: an odd volume runs x
# fastest, an even one z fastest.
ORDERS = {
    "3x3x1, as it stands": (
        "2.1.0",
        {"kernel_size": (3, 3, 1)},
        [(-1, -1, 0), (0, -1, 0), (1, -1, 0), (-1, 0, 0), (0, 0, 0)]
        + [(1, 0, 0), (-1, 1, 0), (0, 1, 0), (1, 1, 0)],
    ),
    "3x1x3/2": (
        "2.1.0",
        {"kernel_size": (3, 1, 3), "stride": (2, 1, 2), "padding": (1, 0, 1)},
        [(-1, 0, -1), (0, 0, -1), (1, 0, -1), (-1, 0, 0), (0, 0, 0)]
        + [(1, 0, 0), (-1, 0, 1), (0, 0, 1), (1, 0, 1)],
    ),
    "2x1x2/2": (
        "2.1.0",
        {"kernel_size": (2, 1, 2), "stride": (2, 1, 2)},
        [(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1)],
    ),
    "2x1x2/2 of 1.4": (
        "1.4.0",
        {"kernel_size": (2, 1, 2), "stride": (2, 1, 2)},
        [(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1)],
    ),
}


@pytest.mark.parametrize("name", ORDERS)
def test_order_of_offsets(folder, version, name):
    """Of a kernel with another number at each offset, a sum is known whoever counts them."""
    number, how, offsets = ORDERS[name]
    version(number)
    net = trained(nn.Sequential(spnn.Conv3d(1, 1, **how)))
    weights = 0.5 + torch.arange(len(offsets)) / 7
    net[0].kernel.data[:] = weights[:, None, None]
    x = tensor("blob", 1)
    from_module(net, x, folder)
    order = [3, 0, 1, 2] if number == "1.4.0" else [0, 1, 2, 3]
    rows = {tuple(c): float(f) for c, f in zip(x.C[:, order].tolist(), x.F[:, 0])}
    out = net(x)
    factor = [1, 1, 1] if number == "1.4.0" else how.get("stride", [1, 1, 1])
    for c, got in zip(out.C[:, order].tolist(), out.F[:, 0].tolist()):
        found = [
            (w, rows.get((c[0], *(a * s + o for a, s, o in zip(c[1:], factor, offset)))))
            for w, offset in zip(weights.tolist(), offsets)
        ]
        assert abs(got - sum(w * f for w, f in found if f is not None)) < 1e-5


@pytest.mark.parametrize(
    "number, kind, step",
    [("2.1.0", "blob", 1), ("2.1.0", "scatter", 2), ("1.4.0", "sheet", 1), ("1.4.0", "blob", 3)],
)
def test_points(folder, version, number, kind, step):
    version(number)
    # Voxels 2 q + 1 are there along each axis, or 2.1 would leave out the last ones.
    x = tensor(kind, 4, shape=(8 * step, 8 * step, 12 * step), ranged=False)
    from_module(trained(SPVCNN(step)), x, folder)
    ops = [layer["op"] for layer in layers(folder).values()]
    assert ops.count("voxelize") == 3 and ops.count("devoxelize") == 3


@pytest.mark.parametrize("number", ["2.1.0", "1.4.0"])
def test_the_proof_notices_another_order(folder, version, monkeypatch, number):
    """Even kernels of TorchSparse and MinkowskiEngine have the same shape and another order."""
    version(number)
    net = trained(nn.Sequential(spnn.Conv3d(4, 6, 2, stride=2)))
    plain = Network.add

    def renamed(self, *args, layout=None, rule=None, padding=None, **keys):
        del layout, rule, padding
        return plain(self, *args, layout="minkowski", rule="floor", **keys)

    monkeypatch.setattr(Network, "add", renamed)
    x = tensor("blob", 4, shape=(8, 8, 8), ranged=False)
    with pytest.raises(CheckFailed) as error:
        from_module(net, x, folder)
    assert error.value.report.differences[0].relative() > 0.1


class Averaged(nn.Module):
    """Of a tensor over the number of its voxels."""

    def __init__(self):
        super().__init__()
        self.conv = spnn.Conv3d(4, 6, 3)

    def forward(self, x):
        return self.conv(x).F / len(x.F)


@pytest.mark.parametrize("number", ["2.1.0", *OLD])
def test_a_number_of_voxels(folder, version, number):
    version(number)
    with pytest.raises(ExportError, match="the layer div has scale .*for other voxels"):
        from_module(trained(Averaged()), tensor("scatter", 4), folder)
