# SPDX-License-Identifier: Apache-2.0
"""What the tests of detectors share: references, their answers, and the proof against them."""

import copy

import numpy as np
import safetensors.torch
import spconv.pytorch as sp
import torch
from conftest import cloud
from reference.detection import (
    Layers,
    SparseEncoder,
    SparseUNet,
    SpMiddleFHD,
    SpMiddleResNetFHD,
    UNetV2,
    VoxelBackBone8x,
    block_config,
    plain_config,
)
from reference.sparse import Sites, Sparse, randomise, rounded
from reference.spconv_layers import SpconvLayers, ready
from reference.voxelnext import FlatLayers, VoxelNeXt
from voxeld_export.definition import evaluate
from voxeld_export.example import Example
from voxeld_export.families import Checkpoint, family
from voxeld_export.families.clouds import street
from voxeld_export.publish import publish

SHAPE = (41, 48, 40)  # the height of the published ones
FULL = (16, 32, 64, 64, 128)
FULL_BLOCKS = (16, 32, 64, 128, 128)


def _encoder(layers, ci, channels, config, kind):
    return SparseEncoder(layers, ci, *config(channels), channels[4], kind)


# (family, naming, options that a checkpoint does not tell): the published module
NETWORKS = {
    "second openpcdet": ("second", lambda n, ci, c: VoxelBackBone8x(n, ci, c)),
    "second mmdet3d": ("second", lambda n, ci, c: _encoder(n, ci, c, plain_config, "conv_module")),
    "second det3d": ("second", SpMiddleFHD),
    "centerpoint openpcdet": ("centerpoint", lambda n, ci, c: VoxelBackBone8x(n, ci, c, True)),
    "centerpoint openpcdet, no bias": (
        "centerpoint",
        lambda n, ci, c: VoxelBackBone8x(n, ci, c, True, False),
    ),
    "centerpoint openpcdet, plain": ("centerpoint", lambda n, ci, c: VoxelBackBone8x(n, ci, c)),
    "centerpoint mmdet3d": (
        "centerpoint",
        lambda n, ci, c: _encoder(n, ci, c, block_config, "basicblock"),
    ),
    "centerpoint mmdet3d, plain": (
        "centerpoint",
        lambda n, ci, c: _encoder(n, ci, c, plain_config, "conv_module"),
    ),
    "centerpoint det3d": ("centerpoint", SpMiddleResNetFHD),
    "parta2 openpcdet": ("parta2", UNetV2),
    "parta2 mmdet3d": ("parta2", SparseUNet),
}
PREFIXES = {"openpcdet": "backbone_3d.", "mmdet3d": "pts_middle_encoder.", "det3d": "backbone."}
# Tensors of a whole detector that are not of its sparse part.
AROUND = {
    "openpcdet": ["backbone_2d.blocks.0.1.weight", "dense_head.conv_cls.weight", "global_step"],
    "mmdet3d": ["pts_backbone.blocks.0.0.weight", "pts_bbox_head.shared_conv.conv.weight"],
    "det3d": ["neck.blocks.0.1.weight", "bbox_head.shared_conv.0.weight"],
}


def naming_of(name):
    return name.split(" ")[1].rstrip(",")


def request(kind, shape=SHAPE, channels=4, samples=2, seed=1, voxels=1500):
    """(coords, feats) as a request has them."""
    if kind == "street":
        coords = street(np.random.default_rng(seed), shape, voxels // samples, samples)
    else:
        coords = cloud(kind, shape, samples, seed).numpy()
        coords = coords[np.random.default_rng(seed).permutation(len(coords))[:voxels]]
    feats = np.random.default_rng(seed + 1).normal(0, 1, (len(coords), channels))
    return coords, feats.astype(np.float32)


def answers(net, coords, feats, shape, samples):
    """{output: (array, coords of its rows)} of a reference, in float64."""
    x = Sparse(Sites(coords, 1, shape), torch.from_numpy(feats).double())
    with torch.no_grad():
        found = copy.deepcopy(net).double()(x, samples)
    found.pop("at", None)
    outputs = {}
    for name, value in found.items():
        if isinstance(value, Sparse):
            at = None if value.sites is x.sites else value.sites.coords
            outputs[name] = (value.feats.float().numpy(), at)
        else:
            outputs[name] = (value.float().numpy(), None)
    return outputs


def spconv_answers(net, coords, feats, shape, samples):
    """The same of spconv's modules, in float32."""
    indices = torch.from_numpy(coords)
    x = sp.SparseConvTensor(torch.from_numpy(feats), indices, list(shape), samples)
    with torch.no_grad():
        found = ready(net)(x, samples)
    found.pop("at", None)
    outputs = {}
    for name, value in found.items():
        if isinstance(value, sp.SparseConvTensor):
            at = value.indices.numpy()
            if at.shape[1] == 3:  # of two axes: the first of three is flat
                at = np.insert(at, 1, 0, 1)
            same = len(at) == len(coords) and (at == coords).all()
            outputs[name] = (value.features.numpy(), None if same else at)
        else:
            outputs[name] = (value.numpy(), None)
    return outputs


def save(path, net, naming, prefix=None):
    """A whole detector's checkpoint; returns the names around the sparse part."""
    prefix = PREFIXES[naming] if prefix is None else prefix
    tensors = {prefix + name: tensor.clone() for name, tensor in net.state_dict().items()}
    tensors.update({name: torch.zeros(3) for name in AROUND.get(naming, [])})
    safetensors.torch.save_file(tensors, str(path))
    return AROUND.get(naming, [])


def proved(folder, name, checkpoint, outputs, coords, feats, datatype="FP32", **options):
    """Writes the family's network with a checkpoint's weights; the report of its proof."""
    chosen = family(name)
    options = {**chosen.read(checkpoint), **options}
    network, unused = chosen.network(checkpoint, **options)
    wanted = {output["name"] for output in network.outputs}
    example = Example(coords, feats, {k: v for k, v in outputs.items() if k in wanted})
    assert set(example.outputs) == wanted
    report = publish(
        network,
        example,
        str(folder),
        datatype=datatype,
        layers=lambda written: evaluate(written, coords, feats, layers="all")[1],
        more=chosen.more(options),
    )
    return report, unused


def open_checkpoint(path):
    return Checkpoint.open(str(path))


__all__ = [
    "FULL",
    "FULL_BLOCKS",
    "NETWORKS",
    "SHAPE",
    "FlatLayers",
    "Layers",
    "SpconvLayers",
    "VoxelNeXt",
    "answers",
    "naming_of",
    "open_checkpoint",
    "proved",
    "randomise",
    "request",
    "rounded",
    "save",
    "spconv_answers",
]
