# SPDX-License-Identifier: Apache-2.0
"""Numbers and paths that follow from the example's voxels, which would be constants."""

import json

import numpy as np
import pytest
import spconv.pytorch as sp
import torch
from conftest import cloud, trained
from torch import nn
from voxeld_export import ExportError, from_module
from voxeld_export.other_voxels import choices, few

SHAPE = [12, 10, 14]


def example(samples=2, count=None):
    coords = cloud("scatter", SHAPE, samples)[:count]
    torch.manual_seed(3)
    return sp.SparseConvTensor(torch.randn(len(coords), 4), coords, SHAPE, samples)


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.conv = sp.SubMConv3d(4, 8, 3, bias=False)
        self.down = sp.SparseConv3d(8, 8, 3, 2, padding=1, bias=False, indice_key="down")
        self.up = sp.SparseInverseConv3d(8, 8, 3, indice_key="down", bias=False)
        self.register_buffer("scale", torch.ones(8))
        self.function = function

    def forward(self, x):
        y = self.conv(x)
        return y.replace_feature(self.function(self, y))


def filled(net, y):
    """Neither a function nor a version of torch's tells of this."""
    net.scale.data.fill_(float(len(y.indices)))
    return y.features * net.scale


def failing(_net, y):
    if len(y.features) not in (len(example(1).indices), len(example(2).indices)):
        raise ValueError("not the example's rows")
    return y.features


def looped(_net, y):
    total = y.features
    for index in range(y.batch_size):
        total = total + y.features * (index + 2)
    return total


NUMBER = "Python computes it of the example's voxels"
PATH = "a branch or a loop of Python follows from the example's voxels"
REFUSED = {
    "rows": (lambda n, y: y.features / y.features.shape[0], "the layer div has scale", NUMBER),
    "len()": (lambda n, y: y.features * (len(y.features) / 1000), "mul has scale", NUMBER),
    "samples": (lambda n, y: y.features / y.batch_size, "div has scale 0.5, and 0.333", NUMBER),
    "a logarithm": (
        lambda n, y: torch.softmax(y.features / np.log(len(y.features)), 1),
        "div has scale",
        NUMBER,
    ),
    "a mean": (
        lambda n, y: y.features + y.indices[:, 1:].float().mean().item(),
        "the layer add has shift",
        NUMBER,
    ),
    "the largest": (
        lambda n, y: y.features * (1 / float(y.indices[:, 1].max())),
        "mul has scale",
        NUMBER,
    ),
    "the lowest": (
        lambda n, y: y.features + float(y.indices[:, 3].min()),
        "only another one has the layer add",
        PATH,
    ),
    "a branch": (
        lambda n, y: torch.relu(y.features) if len(y.features) > 150 else y.features,
        "only the example has the layer relu",
        PATH,
    ),
    "a loop": (looped, "only another one has the layer mul_3", PATH),
    "at most": (lambda n, y: y.features / min(len(y.features), 30), "div has scale 0.0333", NUMBER),
    "a branch of few": (
        lambda n, y: torch.relu(y.features) if len(y.features) > 10 else y.features,
        "only the example has the layer relu",
        PATH,
    ),
    "a buffer": (filled, "the tensor scale has other numbers", NUMBER),
    "what fails": (
        failing,
        "the forward pass fails on other voxels",
        "as it would for other requests: ValueError: not the example's rows",
    ),
}


@pytest.mark.parametrize("samples", [1, 2])
@pytest.mark.parametrize("name", REFUSED)
def test_refused(folder, name, samples):
    function, what, why = REFUSED[name]
    if samples == 1 and name in ("samples", "a loop"):
        what = {"samples": "only another one has the layer div", "a loop": "layer mul_2"}[name]
        why = PATH
    with pytest.raises(ExportError) as error:
        from_module(trained(Net(function)), example(samples), folder)
    assert what in str(error.value) and why in str(error.value)
    assert not folder.exists()


class Counted(nn.Module):
    """It keeps what it has seen last, which no request may see."""

    def __init__(self):
        super().__init__()
        self.conv = sp.SubMConv3d(4, 8, 3, bias=False)
        self.calls, self.table, self.last = 0, None, None

    def forward(self, x):
        self.calls += 1
        if self.table is None or len(self.table) != len(x.indices):
            self.table = x.indices.float() * 2  # by the number of rows, as caches are
        self.last = self.conv(x)
        return self.last


@pytest.mark.parametrize("count", [2, 3, 5, None])
@pytest.mark.parametrize("samples", [1, 3])
def test_a_module_with_a_state(folder, samples, count):
    from_module(trained(Counted()), example(samples, count), folder)


def strided(net, y):
    return net.up(net.down(y)).features + y.features


def test_sets_and_the_example(folder):
    x = example()
    feats, indices = x.features.clone(), x.indices.clone()
    from_module(trained(Net(strided)), x, folder)
    assert torch.equal(x.features, feats) and torch.equal(x.indices, indices)
    assert x.batch_size == 2


class Batch(nn.Module):
    """OpenPCDet's: it gets no sparse tensor but makes it."""

    def __init__(self, function):
        super().__init__()
        self.net = Net(lambda n, y: y.features)
        self.function = function

    def forward(self, batch):
        x = sp.SparseConvTensor(batch["feats"], batch["coords"], SHAPE, batch["batch_size"])
        return {"out": self.function(self.net(x).features, batch)}


def batched():
    x = example()
    return {
        "feats": x.features,
        "coords": x.indices,
        "batch_size": 2,
        "points": x.indices[:, 1:].numpy(),
    }


BATCH = {
    "rows": lambda y, b: y / len(y),
    "samples": lambda y, b: y * (b["batch_size"] + 1),
    "beside": lambda y, b: y + float(b["points"].mean()),
}


@pytest.mark.parametrize("name", BATCH)
def test_a_batch(folder, name):
    batch = batched()
    how = {"feats": batch["feats"], "coords": batch["coords"]}
    with pytest.raises(ExportError, match=NUMBER):
        from_module(trained(Batch(BATCH[name])), batch, folder, **how)
    from_module(trained(Batch(lambda y, b: y)), batch, folder, **how)
    assert batch["batch_size"] == 2 and len(json.loads((folder / "network.json").read_text()))


def test_one_tensor_twice(folder):
    batch = batched()
    batch["points"] = batch["feats"]
    how = {"feats": batch["feats"], "coords": batch["coords"]}
    from_module(trained(Batch(lambda y, b: y)), {"rgb": batch["feats"], **batch}, folder, **how)


def test_a_part_that_is_too_small(folder):
    """A module that keeps nothing of a part, as pruning may: all voxels but one do."""
    x = example()
    count = len(x.indices)

    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = sp.SubMConv3d(4, 8, 3, bias=False)

        def forward(self, x):
            if len(x.indices) < count - 1:
                raise ValueError("no voxels are left")
            return self.conv(x)

    with pytest.warns(UserWarning, match="fails on a part of the example.*no voxels are left"):
        from_module(trained(Keeps()), x, folder)


class Wide(nn.Module):
    """What it returns of so few voxels that its strided layer keeps one of them at most."""

    def __init__(self, of_none):
        super().__init__()
        self.conv = sp.SubMConv3d(4, 8, 3, bias=False)
        self.wide = sp.SparseConv3d(8, 8, 2, 4, bias=False)
        self.of_none = of_none

    def forward(self, x):
        y = self.conv(x)
        if len(self.wide(y).indices) < 2:
            return self.of_none(y)
        return y


def failing_on_few(y):
    raise ValueError(f"{len(y.indices)} are too few")


@pytest.mark.parametrize("of_none", [lambda y: y.features.relu(), failing_on_few])
def test_too_few_show_nothing(folder, of_none):
    """They fail, or leave a layer one voxel, and what a network does of those is its own."""
    from_module(trained(Wide(of_none)), example(1), folder)


def test_an_example_that_cannot_be_made_again(folder):
    """A module that has its coordinates from elsewhere: the export says what was not tested."""
    x = example()

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = sp.SubMConv3d(4, 8, 3, bias=False)

        def forward(self, make):
            return self.conv(make()).features

    with pytest.warns(UserWarning, match="follows from the example's voxels was not tested"):
        from_module(trained(Own()), lambda: x, folder, feats=x.features, coords=x.indices)


@pytest.mark.parametrize("kind", ["scatter", "sheet", "blob"])
@pytest.mark.parametrize("samples", [1, 2, 3])
def test_choices(kind, samples):
    """Legal voxels wherever the example's are: each once, within them, in another number."""
    coords = cloud(kind, SHAPE, samples).numpy()
    low, high = coords[:, 1:].min(0), coords[:, 1:].max(0)
    made = choices(coords)
    assert [one.samples for one in made] == [samples + 1, samples, samples, samples]
    assert len(made[3].rows) == len(coords) - 1
    for one in made:
        assert len(np.unique(one.coords, axis=0)) == len(one.rows) == len(one.coords)
        assert len(one.rows) != len(coords) and (np.diff(one.coords[:, 0]) >= 0).all()
        assert (one.coords[:, 1:] >= low).all() and (one.coords[:, 1:] <= high).all()
        assert one.coords[:, 0].max() == one.samples - 1
    for one in made[:2]:  # a number of any axis differs
        assert len(one.rows) < len(coords) / 2
        assert (one.coords[:, 1:].max(0) < high).any() and (one.coords[:, 1:].min(0) > low).any()
    assert (made[2].coords[:, 1:].min(0) == low).all()
    assert (made[2].coords[:, 1:].max(0) == high).all()


@pytest.mark.parametrize("kind", ["scatter", "sheet", "blob"])
@pytest.mark.parametrize("samples", [1, 3])
def test_few(kind, samples):
    coords = cloud(kind, SHAPE, samples).numpy()
    made = few(coords)
    assert made.samples == samples and 4 <= len(made.rows) <= 5 + samples
    assert (coords[made.rows] == made.coords).all() and len(set(made.rows)) == len(made.rows)
    own = made.coords[made.coords[:, 0] == 0, 1:]
    near = np.abs(own[:, None] - own[None]).max(2) + 99 * np.eye(len(own), dtype=int)
    assert np.sum(near.min(1) == 1) >= 3  # some are neighbours
    assert few(coords[:1]) is None


def test_choices_of_few_or_many():
    for rows in ([[0, 1, 1, 1], [0, 2, 2, 2]], [[0, 1, 1, 1], [0, 1, 1, 2], [0, 9, 9, 9]]):
        for one in choices(np.array(rows, np.int32)):
            assert len(one.rows) != len(rows)
        assert choices(np.array(rows, np.int32))[0].samples == 2
    grid = np.stack(np.meshgrid(*[np.arange(40)] * 3, indexing="ij"), -1).reshape(-1, 3)
    assert len(choices(np.insert(grid, 0, 0, 1).astype(np.int32))[0].rows) <= 4096
