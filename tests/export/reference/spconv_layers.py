# SPDX-License-Identifier: Apache-2.0
"""spconv's own modules as the layers of the references: the second witness.

On a CPU spconv adds a convolution's bias in training mode only: `ready` puts convolutions there.
"""

import spconv.pytorch as sp
import torch
from spconv.pytorch.conv import SparseConvolution
from torch import nn


class Sequential(sp.SparseSequential):
    """Beside spconv's modules: blocks, which get the sparse tensor without being SparseModules."""

    def forward(self, x):
        for module in self._modules.values():
            plain = type(module).__module__.startswith("torch.nn")
            x = x.replace_feature(module(x.features)) if plain else module(x)
        return x


class SpconvLayers:
    """Layers of spconv 2."""

    Sequential = Sequential

    def subm(self, ci, co, kernel=3, key=None, bias=False, axes=3):
        kind = sp.SubMConv2d if axes == 2 else sp.SubMConv3d
        return kind(ci, co, kernel, padding=kernel // 2, bias=bias, indice_key=key)

    def strided(self, ci, co, kernel, stride, padding, key=None, axes=3):
        kind = sp.SparseConv2d if axes == 2 else sp.SparseConv3d
        return kind(ci, co, kernel, stride, padding=padding, bias=False, indice_key=key)

    def inverse(self, ci, co, kernel, key):
        return sp.SparseInverseConv3d(ci, co, kernel, indice_key=key, bias=False)

    def features(self, x):
        return x.features

    def replace(self, x, feats):
        return x.replace_feature(feats)

    def join(self, x, y):
        return y.replace_feature(torch.cat([x.features, y.features], 1))

    def dense(self, x, samples):
        assert samples == x.batch_size
        return x.dense()

    def ground(self, stages):
        """Coordinates are scaled, rows joined, and those of equal places summed."""
        at = []
        for step, x in zip((1, 2, 4), stages):
            indices = x.indices.clone()
            indices[:, 1:] *= step
            at.append(indices[:, [0, 2, 3]])
        places, where = torch.unique(torch.cat(at), dim=0, return_inverse=True)
        feats = torch.cat([x.features for x in stages])
        out = feats.new_zeros(len(places), feats.shape[1]).index_add_(0, where, feats)
        first = stages[0]
        return sp.SparseConvTensor(out, places, first.spatial_shape[1:], first.batch_size)


def ready(net):
    """As trained and for inference, on a CPU."""
    net.eval()
    for module in net.modules():
        if isinstance(module, SparseConvolution):
            module.train()
    assert not any(m.training for m in net.modules() if isinstance(m, nn.BatchNorm1d))
    return net
