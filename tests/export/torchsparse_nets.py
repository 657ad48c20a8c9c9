# SPDX-License-Identifier: Apache-2.0
"""Clouds and networks of TorchSparse, by its stand-in."""

import sys

import pytest
import torch
from conftest import ROOT, cloud
from torch import nn

sys.path.insert(0, str(ROOT / "tests" / "export" / "standins"))
import spvnas_utils  # noqa: E402
import torchsparse  # noqa: E402
from spvnas_utils import initial_voxelize, point_to_voxel, voxel_to_point  # noqa: E402
from torchsparse import nn as spnn  # noqa: E402
from torchsparse.nn import functional as spf  # noqa: E402, F401

SHAPE = (9, 8, 11)  # odd ones lose a voxel where a spatial_range says so


@pytest.fixture(name="version")
def version_fixture(monkeypatch):
    """Sets the version whose rules the stand-in has."""

    def choose(number):
        monkeypatch.setattr(torchsparse.version, "__version__", number)

    return choose


def tensor(kind, channels, shape=SHAPE, ranged=True, low=0, samples=2):
    coords = cloud(kind, shape, samples)
    coords[:, 1:] += low
    torch.manual_seed(3)
    feats = torch.randn(len(coords), channels)
    if torchsparse.version.before_21():
        coords[:, 1:] -= coords[:, 1:].min(0)[0] if not low else 0
        return torchsparse.SparseTensor(feats, coords[:, [1, 2, 3, 0]])
    spatial_range = (samples, *shape) if ranged else None
    return torchsparse.SparseTensor(feats, coords, spatial_range=spatial_range)


def conv_block(ci, co, *args, **kwargs):
    return nn.Sequential(spnn.Conv3d(ci, co, *args, **kwargs), spnn.BatchNorm(co), spnn.ReLU(True))


class Residual(nn.Module):
    """As SparseResBlock of backbones/modules/blocks.py."""

    def __init__(self, ci, co):
        super().__init__()
        self.main = nn.Sequential(
            spnn.Conv3d(ci, co, 3),
            spnn.BatchNorm(co),
            spnn.ReLU(True),
            spnn.Conv3d(co, co, 3, bias=True),
            spnn.BatchNorm(co),
        )
        self.shortcut = (
            nn.Sequential(spnn.Conv3d(ci, co, 1), spnn.BatchNorm(co)) if ci != co else nn.Identity()
        )
        self.relu = spnn.ReLU(True)

    def forward(self, x):
        return self.relu(self.main(x) + self.shortcut(x))


class UNet(nn.Module):
    """As SparseResUNet: two levels down and up, and k3 s2 for one of them if that is asked."""

    def __init__(self, odd=False):
        super().__init__()
        padding = {} if torchsparse.version.before_21() else {"padding": 1}
        how = {"kernel_size": 3, "stride": 2, **padding} if odd else {"kernel_size": 2, "stride": 2}
        self.stem = conv_block(4, 16, 3)
        self.down1 = nn.Sequential(conv_block(16, 16, 2, stride=2), Residual(16, 32))
        self.down2 = nn.Sequential(conv_block(32, 32, **how), Residual(32, 48))
        self.up2 = conv_block(48, 32, **how, transposed=True)
        self.fuse2 = Residual(64, 32)
        self.up1 = conv_block(32, 16, 2, stride=2, transposed=True)
        self.fuse1 = Residual(32, 16)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        x0 = self.stem(x)
        x1 = self.down1(x0)
        x2 = self.down2(x1)
        y = self.fuse2(torchsparse.cat([self.up2(x2), x1]))
        y = self.fuse1(torchsparse.cat([self.up1(y), x0]))
        return {"logits": self.head(y.F), "middle": x1}


class Of(nn.Module):
    """A function of modules that a test is about."""

    def __init__(self, function, *parts):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, x):
        return self.function(*self.parts, x)


class SPVCNN(nn.Module):
    """As in spvnas: a branch of points beside a U-net of one level; `step`: points a voxel."""

    def __init__(self, step=1, nearest=False):
        super().__init__()
        self.step, self.nearest = step, nearest
        self.stem = conv_block(4, 16, 3)
        self.down = nn.Sequential(conv_block(16, 16, 2, stride=2), Residual(16, 32))
        self.up = conv_block(32, 16, 2, stride=2, transposed=True)
        self.fuse = Residual(32, 16)
        self.points = nn.ModuleList(
            nn.Sequential(nn.Linear(16, co), nn.BatchNorm1d(co), nn.ReLU(True)) for co in (32,)
        )
        self.back = nn.Linear(32, 16)
        self.classifier = nn.Sequential(nn.Linear(16, 5))
        self.dropout = nn.Dropout(0.3, True)

    def forward(self, x):
        z = spvnas_utils._make_points(x.F, x.C.float())
        x0 = self.stem(initial_voxelize(z, 0.05, 0.05 * self.step))
        z0 = voxel_to_point(x0, z, nearest=self.nearest)
        x1 = self.down(point_to_voxel(x0, z0))
        z1 = voxel_to_point(x1, z0)
        z1.F = z1.F + self.points[0](z0.F)
        y = point_to_voxel(x1, z1)
        y.F = self.dropout(y.F)
        y = self.fuse(torchsparse.cat([self.up(y), x0]))
        z2 = voxel_to_point(y, z1)
        z2.F = z2.F + self.back(z1.F)
        return self.classifier(z2.F)
