# SPDX-License-Identifier: Apache-2.0
"""torch's functions on features, each against torch itself."""

import json
import os
import subprocess

import pytest
import spconv.pytorch as sp
import torch
from conftest import cloud, trained
from torch import nn
from torch.nn import functional as F
from voxeld_export import CheckFailed, ExportError, from_module
from voxeld_export.functions import FUNCTIONS, READ_ONLY


class Net(nn.Module):
    """A convolution, then functions of its features, each an output."""

    def __init__(self, functions):
        super().__init__()
        self.functions = functions
        self.conv = sp.SubMConv3d(4, 8, 3)
        self.other = sp.SubMConv3d(4, 8, 1, bias=False)
        self.scale = nn.Parameter(torch.randn(8))
        self.matrix = nn.Parameter(torch.randn(8, 6))
        self.register_buffer("shift", torch.randn(1, 8))
        self.register_buffer("whole", torch.tensor([2, 3, 4, 5, 6, 7, 8, 9]))
        self.norm = nn.LayerNorm(8)
        self.plain = nn.LayerNorm(8, elementwise_affine=False)
        self.one = nn.GroupNorm(1, 8)
        self.batch = nn.BatchNorm1d(8)
        self.free = nn.BatchNorm1d(8, affine=False)
        self.untracked = nn.BatchNorm1d(8, track_running_stats=False)
        self.linear = nn.Linear(8, 3)
        self.one_channel = nn.Linear(8, 1)
        self.act = nn.ModuleList(
            [
                nn.ReLU(inplace=True),
                nn.SiLU(),
                nn.GELU(),
                nn.Sigmoid(),
                nn.Tanh(),
                nn.LeakyReLU(0.1),
                nn.Softplus(),
                nn.Softmax(dim=1),
            ]
        )

    def forward(self, x):
        features, other = self.conv(x).features, self.other(x).features
        return {
            str(i): function(self, features, other) for i, function in enumerate(self.functions)
        }


def changed_in_place(net, x, y):
    """A view sees what is done to what it is a view of."""
    whole = torch.tanh(x)
    view = whole.view(-1, 8)
    whole.mul_(0.5)
    whole += y
    return view.relu()


def changed_beside_another(n, x, y):
    """Of two chunks one is changed, and the other is not; of what they are chunks nobody reads."""
    one, other = (x + y).chunk(2, 1)
    return torch.cat([one.relu_(), other], 1)


def example():
    coords = cloud("scatter", (12, 10, 14))
    return sp.SparseConvTensor(torch.randn(len(coords), 4), coords, [12, 10, 14], 2)


CASES = {
    "activations": [lambda n, x, y, i=i: n.act[i](x.clone()) for i in range(8)],
    "activations as functions": [
        lambda n, x, y: F.relu(x),
        lambda n, x, y: x.clone().relu_(),
        lambda n, x, y: torch.sigmoid(x),
        lambda n, x, y: F.silu(x),
        lambda n, x, y: F.leaky_relu(x, 0.3),
        lambda n, x, y: x.tanh(),
        lambda n, x, y: x.softmax(-1),
        lambda n, x, y: F.softplus(x),
    ],
    "norms": [
        lambda n, x, y: n.norm(x),
        lambda n, x, y: n.plain(x),
        lambda n, x, y: n.one(x),
        lambda n, x, y: n.batch(x),
        lambda n, x, y: n.free(x),
        lambda n, x, y: F.layer_norm(x, (8,), n.scale, n.norm.bias),
        lambda n, x, y: F.layer_norm(x, (8,), n.scale),
    ],
    "weights": [
        lambda n, x, y: n.linear(x),
        lambda n, x, y: x @ n.matrix,
        lambda n, x, y: torch.mm(x, n.matrix),
        lambda n, x, y: (
            torch.addmm(n.linear.bias, x, n.linear.weight.t()) if False else x @ n.matrix
        ),
        lambda n, x, y: F.linear(x, n.linear.weight),
        lambda n, x, y: x * n.scale,
        lambda n, x, y: n.shift + x,
        lambda n, x, y: x * n.scale + n.shift,
    ],
    "numbers of a channel": [
        lambda n, x, y: x - n.shift,
        lambda n, x, y: n.shift - x,
        lambda n, x, y: torch.rsub(x, n.scale),
        lambda n, x, y: (x / n.scale) / n.whole,
        lambda n, x, y: (x - n.shift) / n.scale,
        lambda n, x, y: x.clone().sub_(n.shift).div_(n.scale),
        lambda n, x, y: (x + n.one_channel.bias) * n.one_channel.bias,
        lambda n, x, y: (n.one_channel.bias - x) / n.one_channel.bias,
    ],
    "arithmetic": [
        lambda n, x, y: x + y,
        lambda n, x, y: x - y,
        lambda n, x, y: x * y,
        lambda n, x, y: 1 - x,
        lambda n, x, y: x / 4,
        lambda n, x, y: -x,
        lambda n, x, y: 2 * x + 0.5,
        lambda n, x, y: torch.sub(x, 3),
    ],
    "in place": [
        changed_in_place,
        lambda n, x, y: x.clone().add_(y),
        lambda n, x, y: y.clone().mul_(x).sub_(1),
        lambda n, x, y: x.clone().div_(2).neg_(),
        changed_beside_another,
    ],
    "the same": [
        lambda n, x, y: x.detach().contiguous().float(),
        lambda n, x, y: F.dropout(x, 0.5, False),
        lambda n, x, y: x.reshape(x.shape[0], -1),
        lambda n, x, y: x.to(torch.float32).clone(),
    ],
    "the same rows": [
        lambda n, x, y: x.type(torch.float32),
        lambda n, x, y: torch.relu(n.one_channel(x).squeeze(1).unsqueeze(1)),
        lambda n, x, y: n.one_channel(x)[:, 0],
        lambda n, x, y: x.view(-1, 2, 4).reshape(len(x), -1) + y,
        lambda n, x, y: x.reshape(len(x), 4, 2).flatten(1) * 2,
        lambda n, x, y: x.view_as(y).neg(),
        lambda n, x, y: torch.flatten(x.unflatten(-1, (2, 4)), start_dim=-2, end_dim=-1) + y,
        lambda n, x, y: torch.reshape(torch.squeeze(n.one_channel(x), dim=-1), shape=(-1, 1)),
    ],
    "some channels": [
        lambda n, x, y: x[:, 2:5],
        lambda n, x, y: x[..., 1::3] + 1,
        lambda n, x, y: x[:, [4, 0, -1]],
        lambda n, x, y: x.chunk(3, dim=-1)[2],
        lambda n, x, y: torch.cat(x.chunk(2, 1)[::-1], 1),
        lambda n, x, y: torch.split(x, [1, 5, 2], dim=1)[1],
        lambda n, x, y: x.narrow(1, 3, 4),
        lambda n, x, y: torch.mul(*x.split(4, 1)),
    ],
    "repeated and averaged": [
        lambda n, x, y: x.repeat_interleave(3, dim=1),
        lambda n, x, y: torch.repeat_interleave(x, 2, -1),
        lambda n, x, y: x.repeat(1, 2),
        lambda n, x, y: x.reshape(x.shape[0], 4, 2).mean(dim=-1),
        lambda n, x, y: x.reshape(len(x), 4, 2).mean(1),
        lambda n, x, y: x.view(-1, 2, 4).sum(dim=2),
        lambda n, x, y: x[:, :6].reshape(len(x), 2, 3).mean(-1),
        lambda n, x, y: x.mean(1, keepdim=True),
    ],
    "by numpy's names": [
        lambda n, x, y: torch.sum(x, axis=-1, keepdims=True),
        lambda n, x, y: torch.cat([x, y], axis=1),
        lambda n, x, y: x.view(-1, 2, 4).mean(axis=1),
    ],
    "made of parameters": [
        lambda n, x, y: x * (1 + n.scale) + n.shift.squeeze(0),
        lambda n, x, y: x * n.shift[0] + n.shift[-1],
        lambda n, x, y: x @ n.matrix.clone().t().contiguous().t(),
        lambda n, x, y: F.linear(x, n.matrix[:, :3].t(), n.linear.bias * 2),
        lambda n, x, y: F.layer_norm(x, (8,), n.scale.abs(), n.shift.view(8)),
        lambda n, x, y: x * n.shift.exp() + torch.cat([n.shift[:, 4:], n.shift[:, :4]], 1),
    ],
    "side by side": [
        lambda n, x, y: torch.cat([x, y], 1),
        lambda n, x, y: torch.cat((y, x, y), dim=-1),
        lambda n, x, y: torch.cat([x] * 11, 1),
        lambda n, x, y: torch.cat([x, y], 1).argmax(1),
        lambda n, x, y: x.argmax(dim=1, keepdim=True),
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_function(folder, name):
    report = from_module(trained(Net(CASES[name])), example(), folder)
    assert len(report.differences) == len(CASES[name])


def test_a_factor_is_no_batch_norm_without_statistics(folder):
    """What the exporter writes itself must not look like a network that nobody trained."""
    from_module(trained(Net([lambda n, x, y: x * n.scale])), example(), folder)
    done = subprocess.run([os.environ["VOXELD"], "check", folder], capture_output=True, text=True)
    assert done.returncode == 0 and "batch_norm" in done.stdout, done
    assert "never gathered" not in done.stdout + done.stderr, done


def test_what_is_computed_twice_is_one_layer(folder):
    """By a module of the same features; what is done in place to one result is not the other's."""
    functions = [
        lambda n, x, y: n.linear(x),
        lambda n, x, y: n.linear(x).relu_(),
        lambda n, x, y: n.linear(x),
        lambda n, x, y: n.linear(y),
        lambda n, x, y: n.other(n.sparse).features,
        lambda n, x, y: n.scale * x + x * n.scale,
        lambda n, x, y: n.shift + x,
    ]
    net = trained(Net(functions))
    net.forward = lambda x: [setattr(net, "sparse", x), Net.forward(net, x)][1]
    from_module(net, example(), folder)
    document = json.loads((folder / "network.json").read_text())
    assert [(layer["name"], layer["op"]) for layer in document["layers"]] == [
        ("conv", "subm_conv"),
        ("other", "subm_conv"),
        ("linear", "linear"),
        ("relu", "relu"),
        ("linear_2", "linear"),
        ("mul", "batch_norm"),
        ("add", "add"),
        ("add_2", "batch_norm"),
    ]
    made = {output["name"]: output["layer"] for output in document["outputs"]}
    assert [made[name] for name in "01234"] == ["linear", "relu", "linear", "linear_2", "other"]


FOLDS = {
    "by dims": lambda d: d.flatten(1, 2),
    "as a function, by name": lambda d: torch.flatten(d, start_dim=1, end_dim=2),
    "from the end": lambda d: torch.flatten(input=d, start_dim=-4, end_dim=-3),
    "as a module": lambda d: nn.Flatten(1, 2)(d),
    "in two steps": lambda d: d.view(d.shape).view(2, -1, *d.shape[3:]),
    "by a shape's name": lambda d: torch.reshape(d, shape=(len(d), -1, *d.shape[3:])),
    "like another": lambda d: d.reshape_as(torch.empty(2, 48, 5, 7)),
}


def dense_of(fold, height):
    """A network of a dense output that `fold` sees with another shape, and its example."""
    net = Net([])
    net.conv = sp.SparseConv3d(4, 8, (2, 2, 2), (12 // height, 2, 2), bias=False)
    net.forward = lambda x: fold(net.conv(x).dense())
    return trained(net), example()


def last_layer(folder):
    return json.loads((folder / "network.json").read_text())["layers"][-1]


@pytest.mark.parametrize("name", FOLDS)
def test_a_birds_eye_view(folder, name):
    """However its fold is written; the way of most networks is flatten(1, 2)."""
    from_module(*dense_of(FOLDS[name], 6), folder)
    assert last_layer(folder)["fold"] is True


def test_a_birds_eye_view_of_one_slice(folder):
    """Without its only slice a dense tensor has the same shape as folded."""
    net, x = dense_of(lambda d: d.squeeze(2), 1)
    assert net(x).dim() == 4
    from_module(net, x, folder)
    assert last_layer(folder)["fold"] is True
    from_module(*dense_of(lambda d: d.squeeze(), 6), folder)  # it has no axis of 1 to leave out
    assert "fold" not in last_layer(folder)


OTHER_SHAPES = {
    "other axes": (lambda d: d.flatten(2, 3), "it makes shape (2, 8, 30, 7) of (2, 8, 6, 5, 7)"),
    "named axes": (
        lambda d: torch.flatten(d, start_dim=-2),
        "torch's flatten in the network's own forward: it makes shape (2, 8, 6, 35) of",
    ),
    "another axis": (lambda d: d.unsqueeze(-1), "makes shape (2, 8, 6, 5, 7, 1) of (2, 8, 6, 5"),
    "turned axes": (lambda d: d.permute(0, 2, 1, 3, 4).flatten(1, 2), "torch's permute in"),
    "other bits": (lambda d: d.view(torch.int32), "it reads the bytes of its numbers as another"),
}


@pytest.mark.parametrize("name", OTHER_SHAPES)
def test_another_shape_of_a_dense_output(folder, name):
    fold, said = OTHER_SHAPES[name]
    with pytest.raises(ExportError) as error:
        from_module(*dense_of(fold, 6), folder)
    assert said in str(error.value)


REFUSED = {
    "rows": (
        lambda n, x, y: x[0:2, :],
        "__getitem__ in the network's own forward: it chooses rows",
    ),
    "an axis": (
        lambda n, x, y: x[:, :, None],
        "__getitem__ in the network's own forward: it adds an axis",
    ),
    "random parameters": (
        lambda n, x, y: x * torch.rand_like(n.scale),
        "not a parameter or buffer",
    ),
    "an average of rows": (lambda n, x, y: x.mean(0, keepdim=True), "it reduces dim 0 of"),
    "a row as numbers": (
        lambda n, x, y: x.view(-1, 2, 4) * 2,
        "reads the blocks of conv, expected",
    ),
    "blocks": (lambda n, x, y: x.view(-1, 2, 4), "the output out is the blocks of conv, which no"),
    "a mask": (lambda n, x, y: x > 0, "the output out is the mask of conv, which no layer makes"),
    "of a mask": (lambda n, x, y: (x > 0.5) * x, "mul reads the mask of above, which only"),
    "two tensors": (lambda n, x, y: x > y, "gt in the network's own forward: it does not compare"),
    "repeats": (
        lambda n, x, y: x.repeat_interleave(torch.arange(8), dim=1),
        "it repeats by a Tensor; expected one number",
    ),
    "other bits": (
        lambda n, x, y: x.view(torch.int32),
        "view in the network's own forward: it reads the bytes of its numbers as another type",
    ),
    "an axis of one": (lambda n, x, y: torch.unsqueeze(x, dim=1), ", 1, 8) of ("),
    "a norm without statistics": (
        lambda n, x, y: n.untracked(x),
        "in module untracked: it has no running statistics (track_running_stats=False), and uses",
    ),
    "a norm in training": (
        lambda n, x, y: F.batch_norm(x, n.batch.running_mean, n.batch.running_var, training=True),
        "a batch_norm that its forward calls as a function training=self.training",
    ),
    "a dropout in training": (
        lambda n, x, y: F.dropout(x),
        "a dropout that its forward calls as a function training=self.training",
    ),
    "a written row": (lambda n, x, y: written(x), "__setitem__ in the network's own forward"),
}


NEAREST = {
    "relu6": (nn.ReLU6(), "hardtanh in module act, which no layer does; the nearest that is"),
    "a function": (F.relu6, "relu6 in the network's own forward, which no layer does; the nearest"),
    "in place": (lambda x: x.clamp_(min=0), "served is relu"),
    "elu": (nn.ELU(), "the nearest that is served is leaky_relu"),
    "prelu": (nn.PReLU(), "the nearest that is served is leaky_relu of one fixed slope"),
    "hardswish": (nn.Hardswish(), "torch's hardswish in module act, which no layer does; the near"),
    "mish": (nn.Mish(), "torch's mish in module act, which no layer does; the nearest that is"),
    "gelu": (nn.GELU(approximate="tanh"), 'approximate="tanh"; the nearest that is served is'),
    "no other": (torch.cos, "torch's cos in the network's own forward, which no layer does"),
}


@pytest.mark.parametrize("name", NEAREST)
def test_the_nearest_that_is_served(folder, name):
    act, said = NEAREST[name]
    net = Net([])
    net.act = act if isinstance(act, nn.Module) else None
    net.forward = lambda x: act(net.conv(x).features)
    with pytest.raises(ExportError) as error:
        from_module(trained(net), example(), folder)
    assert said in str(error.value)


def test_what_is_nearest_is_there():
    from voxeld_export.functions import NEAREST as nearest

    assert not set(nearest).intersection(FUNCTIONS)
    assert {near.split()[0].strip(",") for near in nearest.values()} <= set(FUNCTIONS)
    for name in nearest:
        assert hasattr(torch, name) or hasattr(F, name)


class Head(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear, self.function = nn.Linear(8, 8), function

    def forward(self, x):
        return self.function(self, x)


CASTS = {
    "half": (lambda m, x: x.half(), "half in module head, which casts features to float16: the"),
    "and back": (lambda m, x: m.linear(x.half().float()), "torch's half in module head, which"),
    "a type": (lambda m, x: x.type(torch.bfloat16) + 1, "type in module head, which casts fea"),
    "of blocks": (lambda m, x: x.view(-1, 2, 4).to(torch.float16).float().mean(1), "torch's to"),
    "whole numbers": (lambda m, x: x.to(torch.int32), "to in module head, which makes int32 of"),
}


@pytest.mark.parametrize("name", CASTS)
def test_a_cast(folder, name):
    """It is named, where only the proof failed; what no output needs may be cast."""
    function, said = CASTS[name]
    net = trained(Net([lambda n, x, y: n.head(x), lambda n, x, y: x.double()]))
    net.head = Head(function)
    with pytest.raises(ExportError) as error:
        from_module(net, example(), folder)
    assert said in str(error.value) and not isinstance(error.value, CheckFailed)
    from_module(net, example(), folder, outputs={"1": "features"})


def test_a_cast_whose_rounding_is_allowed(folder):
    net = trained(Net([lambda n, x, y: x.half().float() * 2]))
    report = from_module(net, example(), folder, bound=1e-3)
    assert 1e-5 < report.differences[0].relative() < 1e-3
    from_module(net, example(), folder, check=False)


def written(x):
    x[0] = 0
    return x


@pytest.mark.parametrize("name", REFUSED)
def test_refused(folder, name):
    function, said = REFUSED[name]
    net = Net([function])
    net.forward = lambda x: function(net, net.conv(x).features, net.other(x).features)
    with pytest.raises(ExportError) as error:
        from_module(trained(net), example(), folder)
    assert said in str(error.value)


def test_the_lists_are_apart():
    assert not READ_ONLY.intersection(FUNCTIONS)
