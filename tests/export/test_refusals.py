# SPDX-License-Identifier: Apache-2.0
"""What cannot be exported is named; only a proven network takes the place of a folder."""

import os
import sys

import numpy as np
import pytest
import spconv.pytorch as sp
import torch
from conftest import cloud, trained
from torch import nn
from voxeld_export import CheckFailed, ExportError, from_module
from voxeld_export.libraries import spconv as library


def example(channels=4, count=None):
    coords = cloud("scatter", (12, 10, 14))[:count]
    return sp.SparseConvTensor(torch.randn(len(coords), channels), coords, [12, 10, 14], 2)


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.conv = sp.SubMConv3d(4, 8, 3)
        self.down = sp.SparseConv3d(4, 8, 2, 2)
        self.part = nn.Module()
        self.part.forward = lambda x: function(self, x)

    def forward(self, x):
        return self.part(x)


class Grouped(sp.SparseModule):
    """A user's own norm in spconv's clothes; its forward is followed."""

    def forward(self, x):
        return x.replace_feature(nn.functional.group_norm(x.features, 2))


REFUSED = {
    "a function": (
        lambda n, x: n.conv(x).features.cumsum(0),
        "torch's cumsum in module part, which no layer does",
    ),
    "behind a function": (
        lambda n, x: torch.exp(n.conv(x).features) + 1,
        "torch's exp in module part",
    ),
    "an argument": (
        lambda n, x: nn.functional.gelu(n.conv(x).features, approximate="tanh"),
        'torch\'s gelu in module part: approximate="tanh"; the nearest',
    ),
    "groups of a row": (
        lambda n, x: Grouped()(n.conv(x)),
        "it has 2 groups of channels of each single row",
    ),
    "two sets": (
        lambda n, x: n.conv(x).features[:2] + n.down(x).features[:2],
        "does not come from the features",
    ),
    "sets of equal size": (
        lambda n, x: n.conv(x).features + n.down(x).features,
        "add joins conv and down, which lie on different sets of voxels",
    ),
    "a constant": (
        lambda n, x: n.conv(x).features * torch.rand(8),
        "which is not a parameter or buffer with 8",
    ),
    "the input": (lambda n, x: x, "the output out is the request's features as they came; exp"),
    "rows in another order": (
        lambda n, x: n.conv(x).features[torch.arange(len(x.features) - 1, -1, -1)],
        "(torch 1.13 tells nobody of x[rows]; no layer chooses or sorts rows)"
        if torch.__version__.startswith("1.")
        else "torch's __getitem__ in module part: it chooses rows",
    ),
    "a tensor of the input": (lambda n, x: torch.ones(5, 8), "does not come from the features"),
    "rows": (lambda n, x: n.conv(x).features.view(-1, 4), ", 4) of ("),
    "dense, then": (lambda n, x: n.conv(x).dense() * 2, "reads the dense of"),
    "nothing": (lambda n, x: None, "the network returns no tensor that comes from the features"),
    "too many": (
        lambda n, x: [n.conv(x).features + i for i in range(9)],
        "the network returns 9 tensors",
    ),
    "odd transposed": (
        lambda n, x: sp.SparseConvTranspose3d(4, 8, 3, 2)(x),
        "does not come from the features",
    ),
    "union": (
        lambda n, x: sp.functional.sparse_add(n.conv(x), n.conv(x)),
        "in module part, which no layer does",
    ),
}


def _in_place(change):
    """What is read of features a part of which was changed."""

    def function(net, x):
        feats = net.conv(x).features
        change(feats)
        return feats

    return function


REFUSED.update(
    {
        f"in place: {name}": (_in_place(change), f", 8), which torch's {by} in module")
        for name, change, by in (
            ("a view", lambda x: x[:, 2:5].mul_(3), "mul_"),
            ("blocks", lambda x: x.view(-1, 2, 4)[:, 0].zero_(), "zero_"),
            (".data", lambda x: x.data.mul_(2), "mul_"),
            ("a chunk", lambda x: x.chunk(2, 1)[1].relu_(), "relu_"),
            ("a function's", lambda x: nn.functional.relu(x[:, :4], inplace=True), "relu"),
        )
    }
)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(folder, name):
    function, said = REFUSED[name]
    count = 2 if name == "sets of equal size" else None  # each in a block of its own
    with pytest.raises(ExportError) as error:
        from_module(trained(Net(function)), example(count=count), folder)
    assert said in str(error.value)
    assert not folder.exists() and not list(folder.parent.glob(".export-*"))


class Transposed(nn.Module):
    def __init__(self, **how):
        super().__init__()
        self.up = sp.SparseConvTranspose3d(4, 8, **how)

    def forward(self, x):
        return self.up(x)


@pytest.mark.parametrize(
    "how, said",
    [
        (
            {"kernel_size": 3, "stride": 2},
            "in module up has kernel [3, 3, 3], dilation [1, 1, 1]; expected an even",
        ),
        ({"kernel_size": 2, "stride": 2, "padding": 1}, "has padding [1, 1, 1]; expected 0"),
    ],
)
def test_transposed(folder, how, said):
    with pytest.raises(ExportError, match="transposed|even") as error:
        from_module(trained(Transposed(**how)), example(), folder)
    assert said in str(error.value)


@pytest.mark.parametrize(
    "down",
    [
        lambda: sp.SparseConv3d(8, 6, 3, 2, padding=1),
        lambda: sp.SparseConv3d(8, 6, 4, 4),  # the shape may end within a block
        lambda: sp.SparseMaxPool3d(3, 2),
    ],
)
def test_finer_voxels_have_no_shape(folder, down):
    """Said before anything is written, with the module; see test_spconv for what is served."""
    net = sp.SparseSequential(sp.SparseConvTranspose3d(4, 8, 2, 2), down())
    with pytest.raises(ExportError, match="behind finer voxels there is no spatial shape") as error:
        from_module(trained(net), example(), folder)
    assert "3d in module 1 has kernel " in str(error.value)
    assert "expected a kernel that is the stride, even" in str(error.value)
    assert not folder.parent.exists()


def test_what_no_output_needs_may_be_anything(folder):
    """A head that is not served: its output is not chosen."""
    net = Net(lambda n, x: {"good": n.conv(x), "bad": n.conv(x).features.cumsum(0)})
    from_module(trained(net), example(), folder, outputs={"good": "features"})
    with pytest.raises(ExportError, match="the output bad needs torch's cumsum"):
        from_module(trained(net), example(), folder)
    with pytest.raises(ExportError, match="has no \"other\"; it has 'good', 'bad'"):
        from_module(trained(net), example(), folder, outputs={"other": "features"})


def test_arguments(folder, monkeypatch):
    monkeypatch.delitem(sys.modules, "flex_gemm", raising=False)  # it has functions, no modules
    net = trained(Net(lambda n, x: n.conv(x)))
    with pytest.raises(ExportError, match='datatype "FP8"; expected one of FP32, FP16, BF16'):
        from_module(net, example(), folder, datatype="FP8")
    with pytest.raises(ExportError, match="example is a dict, expected a sparse tensor of spconv"):
        from_module(net, {}, folder)
    with pytest.raises(
        ExportError, match="the network has modules of none; expected those of one of spconv"
    ):
        from_module(nn.Linear(4, 8), torch.ones(2, 4), folder)
    with pytest.raises(
        ExportError, match="coords have shape .*; expected .N, 4.: the sample, then three axes"
    ):
        (
            from_module(net, example(), folder, feats=None, coords=None)
            if False
            else from_module(
                net, {"x": 1}, folder, feats=torch.ones(3, 4), coords=np.zeros((3, 3), np.int32)
            )
        )
    norm = trained(sp.SparseSequential(sp.SubMConv3d(4, 8, 3), nn.BatchNorm1d(8)))
    norm[1].train()
    with pytest.raises(
        ExportError, match="in training mode, where answers follow the batch: 1; call eval"
    ):
        from_module(norm, example(), folder)
    with pytest.raises(ExportError, match="no program /nowhere/voxeld, which the proof runs"):
        from_module(net, example(), folder, voxeld="/nowhere/voxeld")
    net.conv.weight.data[0] = 1e5
    with pytest.raises(
        ExportError, match="has 100000, which is beyond FP16: export as BF16 or FP32"
    ):
        from_module(net, example(), folder, datatype="FP16")
    from_module(net, example(), folder, datatype="BF16", bound=1e-4)


def test_wrong_numbers(folder, monkeypatch):
    """The proof notices a weight in another order, and what was there stays."""
    net = trained(Net(lambda n, x: n.conv(x)))
    from_module(net, example(), folder)
    before = sorted(os.listdir(folder)), (folder / "network.json").read_text()
    plain = library.Spconv._tensors

    def turned(self, trace, module):
        tensors = plain(self, trace, module)
        name, array = tensors["weight"]
        return {**tensors, "weight": (name, np.ascontiguousarray(array.transpose(0, 3, 2, 1, 4)))}

    monkeypatch.setattr(library.Spconv, "_tensors", turned)
    with pytest.raises(CheckFailed, match="answers other numbers than its source in out") as error:
        from_module(net, example(), folder)
    assert error.value.report.differences[0].relative() > 0.01
    assert (sorted(os.listdir(folder)), (folder / "network.json").read_text()) == before
    assert not list(folder.parent.glob(".export-*"))
    # What was made and what the source computed stay, and voxel diff names the layer.
    with np.load(folder.parent / ".net.failed" / "source.npz") as recorded:
        assert {"coords", "feats", "layer.conv", "out.out"} <= set(recorded)
    assert "is layer conv: " in str(error.value)


def test_the_first_layer_that_differs(folder, monkeypatch):
    """A layer in the middle, behind functions that work in place, and on another set."""
    net = Net(lambda n, x: n.down(x.replace_feature(torch.relu_(n.conv(x).features) * 2)))
    net.down = sp.SparseConv3d(8, 8, 2, 2)
    net = trained(net)
    plain = library.Spconv._make_set

    def padded(self, trace, op, module, given, keys):
        keys["tensors"]["bias"] = (None, np.full(module.out_channels, 0.5, np.float32))
        keys["bias"] = None
        return plain(self, trace, op, module, given, keys)

    monkeypatch.setattr(library.Spconv, "_make_set", padded)
    with pytest.raises(CheckFailed) as error:
        from_module(net, example(), folder)
    assert "is layer down: " in str(error.value)
    with np.load(folder.parent / ".net.failed" / "source.npz") as recorded:
        at = recorded["at.down"]
        assert (np.lexsort(at.T[::-1]) == np.arange(len(at))).all()
        assert recorded["layer.conv"].min() < 0  # before relu_ changed it
        assert recorded["layer.part"].min() == 0
        np.testing.assert_array_equal(recorded["layer.part_2"], recorded["layer.part"] * 2)


def test_module_is_as_before(folder):
    """Export leaves the module as it was: its weights, its forward pass, no hooks."""
    net, x = trained(Net(lambda n, x: n.conv(x))), example()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    net.conv.train()  # without an export spconv refuses a bias in eval() on a CPU
    answer = net(x).features
    own = {name: set(vars(module)) for name, module in net.named_modules()}
    from_module(net, x, folder, datatype="FP16")
    assert {name: set(vars(module)) for name, module in net.named_modules()} == own
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())
    assert torch.equal(net(x).features, answer)
    assert sp.SparseConvTensor.dense.__name__ == "dense"


def test_no_proof_wanted(folder):
    assert (
        from_module(
            trained(Net(lambda n, x: n.conv(x))),
            example(),
            folder,
            check=False,
            voxeld="/nowhere/voxeld",
        )
        is None
    )
    assert (folder / "1" / "weights.safetensors").stat().st_mode & 0o777 == 0o644
    assert os.stat(folder).st_mode & 0o777 == 0o755
