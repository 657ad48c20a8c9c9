# SPDX-License-Identifier: Apache-2.0
"""spconv's own modules, exported and compared with what they compute on the CPU."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import spconv.pytorch as sp
import torch
from conftest import ROOT, cloud, trained
from cumm import tensorview as tv
from spconv.pytorch.conv import SparseConvolution
from torch import nn
from voxeld_export import ExportError, from_module
from voxeld_export.check import check_folder
from voxeld_export.example import Example

KINDS = ["scatter", "sheet", "blob"]


def tensor(kind, shape, channels, samples=2):
    coords = cloud(kind, shape, samples)
    torch.manual_seed(3)
    return sp.SparseConvTensor(torch.randn(len(coords), channels), coords, list(shape), samples)


def layers(folder):
    return json.loads((folder / "network.json").read_text())["layers"]


class Residual(sp.SparseModule):
    """As in the U-nets of the field: the features are replaced, step by step."""

    def __init__(self, ci, co, key):
        super().__init__()
        self.short = (
            sp.SparseSequential(sp.SubMConv3d(ci, co, 1, bias=False), nn.BatchNorm1d(co))
            if ci != co
            else sp.Identity()
        )
        self.conv1 = sp.SubMConv3d(ci, co, 3, padding=1, bias=False, indice_key=key)
        self.bn1 = nn.BatchNorm1d(co, eps=1e-3)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = sp.SubMConv3d(co, co, 3, padding=1, bias=True, indice_key=key)
        self.bn2 = nn.BatchNorm1d(co, eps=1e-3)

    def forward(self, x):
        out = self.conv1(x)
        out = out.replace_feature(self.relu(self.bn1(out.features)))
        out = self.conv2(out)
        out = out.replace_feature(self.bn2(out.features))
        out = out.replace_feature(out.features + self.short(x).features)
        return out.replace_feature(self.relu(out.features))


class UNet(nn.Module):
    """Three levels, skips, a head on the request's voxels."""

    def __init__(self):
        super().__init__()
        self.stem = sp.SparseSequential(
            sp.SubMConv3d(4, 16, 5, padding=2, bias=False, indice_key="stem"),
            nn.BatchNorm1d(16),
            nn.ReLU(inplace=True),
        )
        self.enc0 = Residual(16, 16, "l0")
        self.down1 = sp.SparseSequential(
            sp.SparseConv3d(16, 32, 2, 2, bias=False, indice_key="d1"),
            nn.BatchNorm1d(32),
            nn.ReLU(),
        )
        self.enc1 = Residual(32, 32, "l1")
        self.down2 = sp.SparseSequential(
            sp.SparseConv3d(32, 48, 3, 2, padding=1, bias=False, indice_key="d2"),
            nn.BatchNorm1d(48),
            nn.ReLU(),
        )
        self.enc2 = Residual(48, 48, "l2")
        self.up2 = sp.SparseInverseConv3d(48, 32, 3, indice_key="d2", bias=False)
        self.dec1 = Residual(64, 32, "l1")
        self.up1 = sp.SparseInverseConv3d(32, 16, 2, indice_key="d1")
        self.dec0 = Residual(32, 16, "l0")
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        skip0 = self.enc0(self.stem(x))
        skip1 = self.enc1(self.down1(skip0))
        y = self.up2(self.enc2(self.down2(skip1)))
        y = self.dec1(y.replace_feature(torch.cat([y.features, skip1.features], dim=1)))
        y = self.up1(y)
        y = self.dec0(y.replace_feature(torch.cat([skip0.features, y.features], dim=1)))
        logits = self.head(y.features)
        return {"logits": logits, "labels": logits.argmax(1)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("datatype", ["FP32", "FP16", "BF16"])
def test_unet(folder, kind, datatype):
    report = from_module(trained(UNet()), tensor(kind, (18, 20, 16), 4), folder, datatype=datatype)
    assert [d.name for d in report.differences] == ["logits", "labels"]
    assert "logits" in str(report)
    # The weights keep their names, so that weights trained later can take their place.
    net = UNet()
    from safetensors import safe_open

    with safe_open(folder / "1" / "weights.safetensors", "pt") as file:
        names = set(file.keys())
        assert (
            str(file.get_tensor("enc0.conv1.weight").dtype)
            == {"FP32": "torch.float32", "FP16": "torch.float16", "BF16": "torch.bfloat16"}[
                datatype
            ]
        )
    assert names == {name for name in net.state_dict() if "num_batches" not in name}


def test_torch_has_two_threads(folder):
    """With them spconv itself answers differently from run to run, where there are many voxels."""
    places = np.random.default_rng(5).permutation(48**3)[:20000]
    coords = np.stack([0 * places, *np.unravel_index(places, (48, 48, 48))], 1).astype(np.int32)
    x = sp.SparseConvTensor(
        torch.randn(len(coords), 4), torch.from_numpy(coords), [48, 48, 48], 1
    )
    net = sp.SparseSequential(
        sp.SubMConv3d(4, 16, 3, padding=1, bias=False), sp.SubMConv3d(16, 16, 3, padding=1)
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        from_module(trained(net), x, folder)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


class Backbone(nn.Module):
    """A detector's: from a dict of points to a bird's-eye view, as in OpenPCDet."""

    def __init__(self):
        super().__init__()

        def block(kind, ci, co, kernel, key, **more):
            return sp.SparseSequential(
                kind(ci, co, kernel, bias=False, indice_key=key, **more),
                nn.BatchNorm1d(co, eps=1e-3, momentum=0.01),
                nn.ReLU(),
            )

        self.sparse_shape = [21, 32, 24]
        self.conv_input = block(sp.SubMConv3d, 4, 16, 3, "subm1", padding=1)
        self.conv1 = sp.SparseSequential(block(sp.SubMConv3d, 16, 16, 3, "subm1", padding=1))
        self.conv2 = sp.SparseSequential(
            block(sp.SparseConv3d, 16, 32, 3, "spconv2", stride=2, padding=1),
            block(sp.SubMConv3d, 32, 32, 3, "subm2", padding=1),
        )
        self.conv3 = sp.SparseSequential(
            block(sp.SparseConv3d, 32, 48, 3, "spconv3", stride=2, padding=(0, 1, 1)),
            block(sp.SubMConv3d, 48, 48, 3, "subm3", padding=1),
        )
        self.conv_out = block(sp.SparseConv3d, 48, 64, (3, 1, 1), "spconv_down2", stride=(2, 1, 1))

    def forward(self, batch):
        x = sp.SparseConvTensor(
            batch["voxel_features"],
            batch["voxel_coords"].int(),
            self.sparse_shape,
            batch["batch_size"],
        )
        x2 = self.conv2(self.conv1(self.conv_input(x)))
        x3 = self.conv3(x2)
        out = self.conv_out(x3).dense()
        n, c, d, h, w = out.shape
        batch.update(spatial_features=out.view(n, c * d, h, w), multi_scale={"x2": x2, "x3": x3})
        return batch


@pytest.mark.parametrize("kind", KINDS)
def test_backbone_to_bev(folder, kind):
    coords = cloud(kind, (21, 32, 24))
    batch = {"voxel_features": torch.randn(len(coords), 4), "voxel_coords": coords, "batch_size": 2}
    report = from_module(
        trained(Backbone()), batch, folder, feats=batch["voxel_features"], coords=coords
    )
    assert [d.name for d in report.differences] == [
        "spatial_features",
        "multi_scale_x2",
        "multi_scale_x3",
    ]
    assert report.differences[0].shape == (2, 128, 8, 6)
    assert layers(folder)[-1]["fold"] is True
    report = from_module(
        trained(Backbone()),
        dict(batch),
        folder,
        feats=batch["voxel_features"],
        coords=coords,
        outputs={"spatial_features": "bev"},
    )
    assert [d.name for d in report.differences] == ["bev"]
    assert [layer["op"] for layer in layers(folder)].count("to_dense") == 1


class Fused(sp.SubMConv3d):
    """What spconv's GPU kernels do with act_type, which its CPU refuses."""

    __module__ = "spconv.pytorch.conv"  # it stands in for spconv's own forward

    def __init__(self, kind, alpha=0.0):
        super().__init__(6, 8, 3)
        self.act_type, self.act_alpha = kind, alpha

    def forward(self, x):
        kind, self.act_type = self.act_type, tv.gemm.Activation.None_
        out = super().forward(x)
        self.act_type = kind
        act = {
            "ReLU": torch.relu,
            "Sigmoid": torch.sigmoid,
            "LeakyReLU": lambda y: nn.functional.leaky_relu(y, self.act_alpha),
        }[kind.name]
        return out.replace_feature(act(out.features))


class Global(sp.SparseGlobalMaxPool):
    """What spconv computes on a GPU; its CPU does not."""

    __module__ = "spconv.pytorch.pool"

    def forward(self, x):
        rows = [x.features[x.indices[:, 0] == b] for b in range(x.batch_size)]
        return torch.stack([r.mean(0) if self.is_mean else r.max(0)[0] for r in rows])


class GlobalMean(Global):
    def __init__(self):
        super().__init__()
        self.is_mean = True


MODULES = {
    "subm 3": lambda: sp.SubMConv3d(6, 8, 3, bias=True),
    "subm 1": lambda: sp.SubMConv3d(6, 8, 1, bias=True),
    "subm 1, square": lambda: sp.SubMConv3d(6, 6, 1, bias=True),
    "subm 5x3x1": lambda: sp.SubMConv3d(6, 8, (5, 3, 1), bias=True),
    "subm dilated": lambda: sp.SubMConv3d(6, 8, 3, dilation=2, bias=False),
    "conv 1": lambda: sp.SparseConv3d(6, 8, 1, bias=True),
    "conv 3/2": lambda: sp.SparseConv3d(6, 8, 3, 2, padding=1, bias=True),
    "conv 2/2": lambda: sp.SparseConv3d(6, 8, 2, 2),
    "conv 3/1": lambda: sp.SparseConv3d(6, 8, 3, padding=1),
    "conv 3x1x1/2x1x1": lambda: sp.SparseConv3d(6, 8, (3, 1, 1), (2, 1, 1)),
    "conv 3/2 dilated": lambda: sp.SparseConv3d(6, 8, 3, 2, padding=2, dilation=2),
    "transposed 2/2": lambda: sp.SparseConvTranspose3d(6, 8, 2, 2, bias=True),
    "transposed 4/2": lambda: sp.SparseConvTranspose3d(6, 8, 4, 2),
    "transposed 2/2, conv 2/2": lambda: sp.SparseSequential(
        sp.SparseConvTranspose3d(6, 8, 2, 2),
        sp.SubMConv3d(8, 8, 3),
        sp.SparseConv3d(8, 6, 2, 2, indice_key="d"),
        sp.SubMConv3d(6, 6, 3),
        sp.SparseInverseConv3d(6, 8, 2, indice_key="d"),
    ),
    "transposed 4/2, max pool 2/2": lambda: sp.SparseSequential(
        sp.SparseConvTranspose3d(6, 8, 4, 2), sp.SparseMaxPool3d(2, 2)
    ),
    "max pool 2/2": lambda: sp.SparseMaxPool3d(2, 2),
    "max pool 3/2": lambda: sp.SparseMaxPool3d(3, 2, padding=1),
    "global max": Global,
    "global mean": GlobalMean,
    "fused relu": lambda: Fused(tv.gemm.Activation.ReLU),
    "fused leaky relu": lambda: Fused(tv.gemm.Activation.LeakyReLU, 0.2),
    "fused sigmoid": lambda: Fused(tv.gemm.Activation.Sigmoid),
    "batch norm": lambda: sp.SparseBatchNorm(6),
    "relu": sp.SparseReLU,
    "pool, inverse": lambda: sp.SparseSequential(
        sp.SparseMaxPool3d(2, 2, indice_key="p"), sp.SparseInverseConv3d(6, 8, 2, indice_key="p")
    ),
    "tables": lambda: sp.SparseSequential(
        sp.ConcatTable().add(sp.SubMConv3d(6, 8, 3)).add(sp.SubMConv3d(6, 8, 1)), sp.AddTable()
    ),
    "joined": lambda: sp.SparseSequential(
        sp.ConcatTable().add(sp.SubMConv3d(6, 6, 3)).add(sp.Identity()), sp.JoinTable()
    ),
    "to dense": lambda: sp.SparseSequential(sp.SubMConv3d(6, 8, 3), sp.ToDense()),
}


@pytest.mark.parametrize("name", MODULES)
def test_module(folder, name):
    kind = KINDS[sum(name.encode()) % 3]
    from_module(
        trained(nn.Sequential(MODULES[name]())), tensor(kind, (12, 10, 14), 6, samples=3), folder
    )


@pytest.mark.parametrize("kind", KINDS)
def test_two_axes(folder, kind):
    """A request has three axes; the third one is flat."""
    net = sp.SparseSequential(
        sp.SubMConv2d(3, 8, 3, indice_key="a"),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        sp.SparseConv2d(8, 16, 3, 2, padding=1, indice_key="b"),
        sp.SubMConv2d(16, 16, 1),
        sp.SparseInverseConv2d(16, 8, 3, indice_key="b"),
        sp.ToDense(),
    )
    with pytest.warns(UserWarning, match=r"four columns \[b, y, x, 0\], the missing axis last"):
        from_module(trained(net), tensor(kind, (20, 24), 3), folder)
    assert layers(folder)[0]["kernel"] == [3, 3, 1]


def test_axes_are_what_the_user_says(folder):
    """The module does not tell which column is which."""
    net = trained(sp.SparseSequential(sp.SubMConv3d(3, 8, 3)))
    example = tensor("blob", (20, 24, 22), 3)
    from_module(net, example, folder, axes="zyx", check=False)
    coords = json.loads((folder / "network.json").read_text())["inputs"]["coords"]
    assert coords == {"name": "coords", "axes": "zyx"}
    for wrong in ("zzx", "xy", "bzyx"):
        with pytest.raises(ExportError, match=f'axes "{wrong}"; expected an order of x, y and z'):
            from_module(net, example, folder, axes=wrong)


FLAT = {
    "submanifold": (
        lambda: sp.SparseSequential(
            sp.SubMConv2d(4, 8, 3), nn.BatchNorm1d(8), nn.ReLU(), sp.SubMConv2d(8, 8, 3)
        ),
        (21, 18),
        "b, y, x, 0",
    ),
    "transposed": (lambda: sp.SparseConvTranspose2d(4, 8, 2, 2), (21, 18), "b, y, x, 0"),
    "one axis": (lambda: sp.SubMConv1d(4, 8, 5), (300,), "b, x, 0, 0"),
    "rows alone": (lambda: nn.Sequential(sp.SparseBatchNorm(4)), (21, 18), "b, y, x, 0"),
    "dense alone": (sp.ToDense, (21, 18), "b, y, x, 0"),
}


@pytest.mark.parametrize("name", FLAT)
@pytest.mark.parametrize("made_inside", [False, True])
def test_columns_of_fewer_axes(folder, name, made_inside):
    """Columns in another order are legal voxels of three axes; the shape refuses them."""
    make, shape, columns = FLAT[name]
    x = tensor("scatter", shape, 4, samples=3)
    net, given, more = nn.Sequential(make()), x, {}
    if made_inside:
        coords = torch.zeros(len(x.indices), 4, dtype=torch.int32)
        coords[:, : x.indices.shape[1]] = x.indices
        net = Inside(net, shape)
        given, more = (x.features, coords), {"feats": x.features, "coords": coords}
        if name == "rows alone":
            return  # no module of the library sees the tensor
    with pytest.warns(UserWarning, match=re.escape(f"[{columns}]")):
        from_module(trained(net), given, folder, description="mine", **more)
    document = json.loads((folder / "network.json").read_text())
    assert document["inputs"]["coords"]["spatial_shape"] == [*shape, *[1] * (3 - len(shape))]
    assert document["description"].startswith("mine; ") and columns in document["description"]
    right = Example.open(folder / "example.npz")
    assert not right.coords[:, 1 + len(shape) :].any()
    wrong = [right.coords[:, [0, 3, 1, 2]]]  # the flat axis first
    if len(shape) == 2:
        wrong.append(right.coords[:, :3])  # what the module itself gets
    for coords in wrong:
        asked = Example(np.ascontiguousarray(coords), right.feats, right.outputs)
        with pytest.raises(ExportError, match="lies outside of the network's spatial_shape"):
            check_folder(folder, asked)


def test_pillars_with_a_column_in_the_middle(folder):
    """OpenPCDet's pillars are [b, 0, y, x], of which the module takes three columns."""
    x = tensor("scatter", (21, 18), 4, samples=3)
    coords = torch.zeros(len(x.indices), 4, dtype=torch.int32)
    coords[:, [0, 2, 3]] = x.indices

    class Pillars(Inside):
        def forward(self, feats, coords):
            return super().forward(feats, coords[:, [0, 2, 3]])

    net = trained(Pillars(sp.SubMConv2d(4, 8, 3), (21, 18)))
    said = r"other coordinates than coords=, which requests send: its voxels .*\[b, y, x, 0\]"
    with pytest.raises(ExportError, match=said):
        from_module(net, (x.features, coords), folder, feats=x.features, coords=coords)


class Inside(nn.Module):
    """A network that makes its sparse tensor of the columns that it needs."""

    def __init__(self, net, shape):
        super().__init__()
        self.net, self.shape = net, shape

    def forward(self, feats, coords):
        indices = coords[:, : 1 + len(self.shape)].contiguous()
        return self.net(sp.SparseConvTensor(feats, indices, list(self.shape), 3))


def test_story_of_the_readme(tmp_path):
    """clients/export/README.md, word for word."""
    text = (ROOT / "clients" / "export" / "README.md").read_text()
    story = re.search(r"<!-- story: first -->\n```python\n(.*?)```", text, re.DOTALL)[1]
    path = os.pathsep.join(str(ROOT / "clients" / name) for name in ("python", "export"))
    done = subprocess.run(
        [sys.executable, "-c", story],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^out +12x32 ", done.stdout, re.MULTILINE), done.stdout
    assert (tmp_path / "repository" / "backbone" / "network.json").exists()


def test_every_class_is_known():
    """A class of spconv that is not listed is refused, not looked through."""
    from voxeld_export.libraries.spconv import Spconv

    library, looked_through = Spconv(), set()
    for name in dir(sp):
        kind = getattr(sp, name)
        if (
            isinstance(kind, type)
            and issubclass(kind, nn.Module)
            and kind.__module__.startswith("spconv")
        ):
            made = library.module(kind.__new__(kind))
            if made is None:
                looked_through.add(name)
            elif issubclass(kind, SparseConvolution):
                assert made == library._conv
    assert looked_through <= library.through
