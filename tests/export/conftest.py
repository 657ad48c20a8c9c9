# SPDX-License-Identifier: Apache-2.0
"""What the tests of clients/export share: clouds of voxels, modules as after training."""

import pathlib
import sys

import numpy as np
import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [
    str(pathlib.Path(__file__).resolve().parent),
    str(ROOT / "clients" / "python"),
    str(ROOT / "clients" / "export"),
]


def cloud(kind, shape, samples=2, seed=1):
    """int32 [N, 1 + axes]: the sample, then a voxel of `shape`, each once, in no order.

    kind  "scatter": a tenth of all voxels; "sheet": a tilted plane, two voxels thick; "blob": a
          solid ball, and one voxel far away
    """
    rng = np.random.default_rng(seed)
    axes = np.stack(np.meshgrid(*(np.arange(size) for size in shape), indexing="ij"), -1).reshape(
        -1, len(shape)
    )
    rows = []
    for sample in range(samples):
        if kind == "scatter":
            kept = rng.random(len(axes)) < 0.1
        elif kind == "sheet":
            kept = np.abs(axes @ rng.uniform(0.3, 1, len(shape)) - sum(shape) / 3) < 1
        else:
            kept = ((axes - np.array(shape) / 3) ** 2).sum(1) < min(shape) ** 2 / 9
            kept[-1] = True
        rows.append(np.insert(axes[kept], 0, sample, 1))
    rows = np.concatenate(rows)
    return torch.from_numpy(rng.permutation(rows).astype(np.int32))


def trained(net, seed=1):
    """`net` with statistics and weights of training, in eval() mode."""
    torch.manual_seed(seed)
    net.eval()
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm1d) and module.track_running_stats:
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 1.5)
        if (
            isinstance(module, (torch.nn.BatchNorm1d, torch.nn.LayerNorm))
            and module.weight is not None
        ):
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_(0, 0.1)
        if any(kind.__module__ == "spconv.pytorch.conv" for kind in type(module).__mro__):
            if module.bias is not None:
                module.bias.data.normal_(0, 0.3)
    return net


@pytest.fixture
def folder(tmp_path):
    """Where a test exports to."""
    return tmp_path / "repository" / "net"
