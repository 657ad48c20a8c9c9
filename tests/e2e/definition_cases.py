# SPDX-License-Identifier: Apache-2.0
"""Networks of every operation, and clouds of voxels, for test_ops_definition.py."""
import os
import pathlib

import numpy as np

from definition import AXIS_MAX, AXIS_MIN
from definition_network import Network

ROOT = pathlib.Path(os.environ.get("VX_SOURCE", pathlib.Path(__file__).resolve().parents[2]))
OPS = (ROOT / "engine/network/ops.def").read_text()

CHANNELS = 4
SHAPE = (11, 9, 12)   # odd and even: windows of spconv lose a voxel at some upper ends


def submanifold():
    n = Network(CHANNELS)
    n.add("k1", "subm_conv", "feats", channels=5, kernel=1)
    n.add("k3", "subm_conv", "feats", channels=6, kernel=3)
    n.add("k5", "subm_conv", "feats", channels=3, kernel=5, bias=False)
    n.add("k315", "subm_conv", "feats", channels=6, kernel=[3, 1, 5])
    n.add("dilated", "subm_conv", "feats", channels=6, kernel=3, dilation=[1, 2, 3])
    n.add("groups", "subm_conv", "feats", channels=6, kernel=3, groups=2)
    n.add("depthwise", "subm_conv", "feats", channels=4, kernel=[3, 5, 3], groups=4)
    n.add("points", "subm_conv", "feats", channels=4, kernel=1, groups=4)
    return n


def strided_floor():
    n = Network(CHANNELS)
    floor = {"channels": 5, "rule": "floor"}
    n.add("k2s2", "sparse_conv", "feats", kernel=2, stride=2, **floor)
    n.add("k3s2", "sparse_conv", "feats", kernel=3, stride=2, **floor)
    n.add("k1s2", "sparse_conv", "feats", kernel=1, stride=2, **floor)   # some rows read nothing
    n.add("k4s2", "sparse_conv", "feats", kernel=4, stride=2, **floor)
    n.add("k2s3", "sparse_conv", "feats", kernel=2, stride=3, bias=False, **floor)
    n.add("k325", "sparse_conv", "feats", kernel=[3, 2, 5], stride=[1, 2, 3], **floor)
    n.add("dilated", "sparse_conv", "feats", kernel=3, stride=[2, 2, 1], dilation=[2, 1, 3],
          **floor)
    n.add("same", "sparse_conv", "feats", kernel=[3, 2, 1], stride=1, **floor)
    return n


def strided_spconv():
    n = Network(CHANNELS, SHAPE)
    rule = {"channels": 5, "rule": "spconv"}
    n.add("k3s2", "sparse_conv", "feats", kernel=3, stride=2, padding=1, **rule)
    n.add("k2s2", "sparse_conv", "feats", kernel=2, stride=2, **rule)
    n.add("k311", "sparse_conv", "feats", kernel=[3, 1, 1], stride=[2, 1, 1], **rule)
    n.add("k3s1", "sparse_conv", "feats", kernel=3, stride=1, padding=1, bias=False, **rule)
    n.add("k543", "sparse_conv", "feats", kernel=[5, 4, 3], stride=[3, 2, 1], padding=[2, 0, 1],
          **rule)
    n.add("k4s2", "sparse_conv", "feats", kernel=4, stride=2, padding=1, **rule)
    n.add("dilated", "sparse_conv", "feats", kernel=3, stride=2, padding=[2, 0, 4],
          dilation=[2, 1, 3], **rule)
    n.add("same", "sparse_conv", "feats", kernel=1, stride=1, **rule)
    return n


def strided_groups():
    n = Network(CHANNELS, SHAPE)
    n.add("groups", "sparse_conv", "feats", channels=6, kernel=3, stride=2, padding=1,
          rule="spconv", groups=2)
    n.add("depthwise", "sparse_conv", "feats", channels=4, kernel=2, stride=2, rule="floor",
          groups=4)
    n.add("back", "inverse_conv", "groups", channels=4, of="groups", groups=2)
    n.add("onto", "transposed_conv", "depthwise", channels=4, kernel=2, stride=2, onto="feats",
          groups=4)
    n.add("far", "sparse_conv", "feats", channels=4, kernel=1, stride=4, rule="spconv")
    n.outputs = ["groups", "depthwise", "back", "onto", "far"]
    return n


def inverse():
    n = Network(CHANNELS, SHAPE)
    for name, keys in (
            ("k2", {"kernel": 2, "stride": 2, "rule": "floor"}),
            ("k3", {"kernel": 3, "stride": 2, "padding": 1, "rule": "spconv"}),
            ("centred", {"kernel": 3, "stride": 2, "rule": "floor"}),
            ("wide", {"kernel": [3, 4, 2], "stride": [2, 3, 1], "padding": [0, 1, 1],
                      "dilation": [2, 1, 1], "rule": "spconv"})):
        n.add(f"down_{name}", "sparse_conv", "feats", channels=6, **keys)
        n.add(f"up_{name}", "inverse_conv", f"down_{name}", channels=5, of=f"down_{name}")
    n.add("pool", "max_pool", "feats", kernel=3, stride=2, padding=1, rule="spconv")
    n.add("mid", "subm_conv", "pool", channels=6, kernel=3)
    n.add("up_pool", "inverse_conv", "mid", channels=5, of="pool", bias=False)
    return n


def transposed():
    n = Network(CHANNELS)
    n.add("down", "sparse_conv", "feats", channels=6, kernel=2, stride=2, rule="floor")
    n.add("mid", "subm_conv", "down", channels=6, kernel=3)
    n.add("k2", "transposed_conv", "mid", channels=5, kernel=2, stride=2, onto="feats")
    n.add("k3", "transposed_conv", "mid", channels=5, kernel=3, stride=2, onto="feats")
    n.add("k4", "transposed_conv", "mid", channels=5, kernel=[4, 3, 2], stride=2, onto="feats",
          bias=False)
    n.add("k1", "transposed_conv", "mid", channels=5, kernel=1, stride=2, onto="feats")
    n.add("dilated", "transposed_conv", "mid", channels=5, kernel=3, stride=2, dilation=2,
          onto="feats")
    n.add("deeper", "sparse_conv", "mid", channels=8, kernel=2, stride=2, rule="floor")
    n.add("jump", "transposed_conv", "deeper", channels=5, kernel=4, stride=4, onto="feats")
    return n


def generative():
    n = Network(CHANNELS)
    n.add("k2", "transposed_conv", "feats", channels=3, kernel=2, stride=2)
    n.add("k3", "transposed_conv", "feats", channels=3, kernel=3, stride=2)
    n.add("flat", "transposed_conv", "feats", channels=3, kernel=[1, 2, 3], stride=[1, 2, 3],
          bias=False)
    n.add("grown", "transposed_conv", "feats", channels=3, kernel=[3, 3, 1], stride=1)
    n.add("holes", "transposed_conv", "feats", channels=3, kernel=2, stride=3, dilation=[1, 2, 1])
    n.add("down", "sparse_conv", "feats", channels=6, kernel=3, stride=2, rule="floor")
    n.chain("down", ("up", "transposed_conv", {"channels": 4, "kernel": 3, "stride": 2}),
            ("again", "sparse_conv", {"channels": 4, "kernel": 2, "stride": 2, "rule": "floor"}))
    return n


def pools_floor():
    n = Network(CHANNELS)
    for name, op, kernel, stride in (
            ("max2", "max_pool", 2, 2), ("avg2", "avg_pool", 2, 2), ("sum2", "sum_pool", 2, 2),
            ("max3", "max_pool", 3, 2), ("avg3", "avg_pool", 3, 2),
            ("block", "avg_pool", 3, 3), ("flat", "max_pool", [3, 1, 2], [3, 1, 2]),
            ("rare", "max_pool", 1, 2)):
        n.add(name, op, "feats", kernel=kernel, stride=stride, rule="floor")
    return n


def pools_same():
    n = Network(CHANNELS, SHAPE)
    for op in ("max_pool", "avg_pool", "sum_pool"):
        n.add(op, op, "feats", kernel=3, stride=1, rule="floor")
        n.add(f"{op}_dilated", op, "feats", kernel=[3, 2, 1], dilation=[2, 3, 1], stride=1,
              rule="floor")
    return n


def pools_spconv():
    n = Network(CHANNELS, SHAPE)
    for name, op, keys in (
            ("max2", "max_pool", {"kernel": 2, "stride": 2}),
            ("max3", "max_pool", {"kernel": 3, "stride": 2, "padding": 1}),
            ("avg2", "avg_pool", {"kernel": 2, "stride": 2}),
            ("avg3", "avg_pool", {"kernel": 3, "stride": 2, "padding": 1}),
            ("sum3", "sum_pool", {"kernel": [3, 2, 1], "stride": [2, 1, 1], "padding": [0, 1, 0]}),
            ("dilated", "max_pool", {"kernel": 2, "stride": 2, "dilation": 3})):
        n.add(name, op, "feats", rule="spconv", **keys)
    return n


def blocks():
    n = Network(CHANNELS)
    n.add("mean", "downsample", "feats", stride=2)
    n.add("s2c", "space_to_channel", "feats", stride=[2, 3, 1])
    n.add("pool", "sum_pool", "feats", kernel=[2, 3, 1], stride=[2, 3, 1], rule="floor")
    n.add("unpool", "unpool", "pool", of="pool")
    n.add("nearest", "upsample", "mean", stride=2, onto="feats")
    n.add("all", "upsample", "feats", stride=[2, 1, 3])
    n.add("wide", "linear", "mean", channels=24)
    n.add("c2s", "channel_to_space", "wide", stride=2)
    n.add("c2s_onto", "channel_to_space", "wide", stride=2, onto="feats")
    n.add("back", "channel_to_space", "s2c", stride=[2, 3, 1], onto="feats")
    n.outputs = ["mean", "s2c", "unpool", "nearest", "all", "c2s", "c2s_onto", "back"]
    return n


def unpool_spconv():
    """A voxel beyond the last whole block of the shape has no parent."""
    n = Network(CHANNELS, SHAPE)
    n.add("pool", "avg_pool", "feats", kernel=2, stride=2, rule="spconv")
    n.add("unpool", "unpool", "pool", of="pool")
    n.add("nearest", "upsample", "pool", stride=2, onto="feats")
    n.add("coarser", "downsample", "pool", stride=[1, 2, 2])
    n.add("k3", "sparse_conv", "coarser", channels=4, kernel=3, stride=2, padding=1, rule="spconv")
    return n


def curves():
    n = Network(CHANNELS)
    for op in ("relu", "silu", "gelu", "sigmoid", "tanh", "softplus", "softmax", "leaky_relu"):
        n.add(op, op, "feats")
    return n


def pairs():
    n = Network(CHANNELS)
    n.add("slope", "leaky_relu", "feats", slope=-0.3)
    n.add("affine", "affine", "feats", scale=-1.5, shift=0.25)
    n.add("add", "add", ["slope", "affine"])
    n.add("mul", "mul", ["feats", "affine"])
    n.add("concat", "concat", ["feats", "mul", "affine", "feats", "slope", "add", "slope", "feats"])
    n.add("linear", "linear", "concat", channels=7)
    n.add("plain", "linear", "feats", channels=5, bias=False)
    n.outputs = ["slope", "affine", "add", "mul", "concat", "linear", "plain"]
    return n


def norms():
    n = Network(8)
    n.add("batch", "batch_norm", "feats", eps=0.01)
    n.add("layer", "layer_norm", "feats", eps=0.01)
    n.add("group", "group_norm", "feats", groups=2, eps=0.01)
    n.add("instance", "instance_norm", "feats", eps=0.01)
    n.add("plain", "batch_norm", "feats", affine=False)
    n.add("plain_layer", "layer_norm", "feats", affine=False, eps=0.01)
    n.add("plain_group", "group_norm", "feats", groups=4, affine=False, eps=0.01)
    n.add("plain_instance", "instance_norm", "feats", affine=False, eps=0.01)
    return n


def norms_coarse():
    """Statistics of a coarse set are over its own voxels."""
    n = Network(CHANNELS)
    n.add("down", "sparse_conv", "feats", channels=8, kernel=2, stride=2, rule="floor")
    n.chain("down", ("group", "group_norm", {"groups": 2, "eps": 0.01}), ("act", "silu", {}))
    n.chain("down", ("instance", "instance_norm", {"eps": 0.01}), ("mid", "subm_conv", {
        "channels": 8, "kernel": 3}), ("layer", "layer_norm", {"eps": 0.01}))
    return n


def flat():
    """2-D networks: kernels, strides and shapes of 1 along the last axis."""
    n = Network(CHANNELS, (SHAPE[0], SHAPE[1], 1))
    n.add("subm", "subm_conv", "feats", channels=6, kernel=[3, 3, 1])
    n.add("down", "sparse_conv", "subm", channels=6, kernel=[3, 3, 1], stride=[2, 2, 1],
          padding=[1, 1, 0], rule="spconv")
    n.add("pool", "max_pool", "down", kernel=[2, 2, 1], stride=[2, 2, 1], rule="spconv")
    n.add("up", "inverse_conv", "down", channels=4, of="down")
    n.add("floor", "sparse_conv", "subm", channels=5, kernel=[2, 2, 1], stride=[2, 2, 1],
          rule="floor")
    n.add("onto", "transposed_conv", "floor", channels=4, kernel=[2, 2, 1], stride=[2, 2, 1],
          onto="subm")
    n.add("sum", "add", ["up", "onto"])
    n.outputs = ["down", "pool", "floor", "sum"]
    return n


def one_set_by_two_ways():
    """Two steps of floor are one of their product; children of parents are not the voxels."""
    n = Network(CHANNELS)
    n.chain("feats", ("half", "max_pool", {"kernel": 2, "stride": 2, "rule": "floor"}),
            ("quarter", "avg_pool", {"kernel": 2, "stride": 2, "rule": "floor"}))
    n.add("at_once", "downsample", "feats", stride=4)
    n.add("sum", "add", ["quarter", "at_once"])
    n.add("both", "concat", ["at_once", "sum", "quarter"])
    n.add("children", "upsample", "half", stride=2)
    n.add("halves", "downsample", "children", stride=2)
    n.add("product", "mul", ["sum", "quarter"])
    return n


def residual(n, at, name, channels):
    end = n.chain(at, (f"{name}_a", "subm_conv", {"channels": channels, "kernel": 3}),
                  (f"{name}_an", "batch_norm", {"eps": 0.01}), (f"{name}_r", "relu", {}),
                  (f"{name}_b", "subm_conv", {"channels": channels, "kernel": 3, "bias": False}),
                  (f"{name}_bn", "batch_norm", {}))
    n.add(f"{name}_sum", "add", [end, at])
    return n.add(name, "relu", f"{name}_sum")


def unet():
    """Five levels of MinkowskiEngine's kind: stem k5, residual blocks, concat with the skips."""
    n = Network(CHANNELS)
    widths, skips = (8, 8, 12, 16, 16), []
    at = n.chain("feats", ("stem", "subm_conv", {"channels": 8, "kernel": 5}),
                 ("stem_n", "batch_norm", {}), ("stem_r", "leaky_relu", {"slope": 0.1}))
    for level, width in enumerate(widths[1:], 1):
        skips.append(at)
        at = n.chain(at, (f"down{level}", "sparse_conv",
                          {"channels": width, "kernel": 2, "stride": 2, "rule": "floor"}),
                     (f"down{level}_n", "batch_norm", {}), (f"down{level}_r", "relu", {}))
        at = residual(n, at, f"enc{level}", width)
    for level in range(len(skips) - 1, -1, -1):
        at = n.chain(at, (f"up{level}", "transposed_conv",
                          {"channels": widths[level], "kernel": 2, "stride": 2,
                           "onto": skips[level]}), (f"up{level}_n", "batch_norm", {}))
        n.add(f"cat{level}", "concat", [at, skips[level]])
        at = n.chain(f"cat{level}", (f"mix{level}", "subm_conv",
                                     {"channels": widths[level], "kernel": 1}))
        at = residual(n, at, f"dec{level}", widths[level])
    n.add("head", "linear", at, channels=5)
    n.outputs = ["enc4", "dec3", "dec2", "dec1", "head"]
    return n


def encoder():
    """spconv's kind: strided with padding, a pool, (3, 1, 1), and inverse convolutions back."""
    n = Network(CHANNELS, SHAPE)
    rule = {"rule": "spconv"}
    at = n.chain("feats", ("stem", "subm_conv", {"channels": 8, "kernel": 3}), ("act", "gelu", {}))
    at = n.add("down1", "sparse_conv", at, channels=12, kernel=3, stride=2, padding=1, **rule)
    skip = at = residual(n, at, "mid1", 12)
    at = n.add("pool", "max_pool", at, kernel=2, stride=2, **rule)
    at = residual(n, at, "mid2", 12)
    at = n.add("down2", "sparse_conv", at, channels=16, kernel=[3, 1, 1], stride=[2, 1, 1],
               padding=[1, 0, 0], **rule)
    at = n.add("up2", "inverse_conv", at, channels=12, of="down2")
    at = n.add("up_pool", "inverse_conv", at, channels=12, of="pool")
    at = n.add("sum", "add", [at, skip])
    at = n.add("up1", "inverse_conv", at, channels=8, of="down1")
    n.add("out", "concat", [at, "act"])
    n.outputs = ["mid1", "down2", "sum", "out"]
    return n


def autoencoder():
    """TRELLIS.2's kind: ConvNeXt blocks, space to channel and back, on known children."""
    n = Network(CHANNELS)

    def convnext(at, name, c):
        end = n.chain(at, (f"{name}_c", "subm_conv", {"channels": c, "kernel": 3}),
                      (f"{name}_n", "layer_norm", {"eps": 1e-6}),
                      (f"{name}_w", "linear", {"channels": 4 * c}), (f"{name}_s", "silu", {}),
                      (f"{name}_p", "linear", {"channels": c}))
        return n.add(name, "add", [end, at])
    skip = at = convnext(n.add("in", "linear", "feats", channels=8), "fine", 8)
    at = n.chain(at, ("pre", "subm_conv", {"channels": 2, "kernel": 3}),
                 ("s2c", "space_to_channel", {"stride": 2}), ("s2c_n", "layer_norm", {}))
    at = convnext(at, "coarse", 16)
    at = n.chain(at, ("post", "subm_conv", {"channels": 64, "kernel": 3}))
    at = n.add("c2s", "channel_to_space", at, stride=2, onto=skip)
    n.add("sum", "add", [at, skip])
    n.add("all", "channel_to_space", "post", stride=2)
    n.chain("all", ("up_n", "group_norm", {"groups": 4}), ("up_c", "subm_conv", {
        "channels": 3, "kernel": 3}))
    n.outputs = ["coarse", "sum", "up_c"]
    return n


def samples():
    """All voxels of a sample as one, and back: a gate of squeeze and excitation."""
    n = Network(CHANNELS)
    n.add("down", "sparse_conv", "feats", channels=6, kernel=2, stride=2, rule="floor")
    for mode in ("max", "avg", "sum"):
        n.add(mode, "global_pool", "feats", mode=mode)
    n.chain("avg", ("squeeze", "linear", {"channels": 2}), ("r", "relu", {}),
            ("excite", "linear", {"channels": 4}), ("gate", "sigmoid", {}))
    n.add("everywhere", "unpool", "gate", of="avg")
    n.add("gated", "mul", ["feats", "everywhere"])
    n.add("coarse", "global_pool", "down", mode="max")
    n.add("back", "unpool", "coarse", of="coarse")
    n.add("both", "concat", ["coarse", "sum"])
    n.outputs = ["max", "gated", "back", "both", "avg"]
    return n


def labels():
    n = Network(CHANNELS)
    n.add("label", "argmax", "feats")
    n.chain("feats", ("down", "sparse_conv", {"channels": 7, "kernel": 3, "stride": 2,
                                              "rule": "floor"}), ("coarse", "argmax", {}))
    return n


def dense_outputs():
    n = Network(CHANNELS, SHAPE)
    n.add("whole", "to_dense", "feats")
    n.add("folded", "to_dense", "feats", fold=True)
    n.add("wide", "to_dense", "feats", shape=[12, 9, 20])
    n.add("down", "sparse_conv", "feats", channels=6, kernel=3, stride=2, padding=1, rule="spconv")
    n.add("coarse", "to_dense", "down")
    n.add("view", "to_dense", "down", fold=True, shape=[6, 6, 7])
    n.outputs = ["whole", "folded", "wide", "coarse", "view"]
    return n


def points():
    """SPVCNN's kind: the means of points in cells, and back."""
    n = Network(CHANNELS)
    n.add("cells", "voxelize", "feats", stride=[3, 1, 4])
    n.chain("cells", ("conv", "subm_conv", {"channels": 5, "kernel": 3}), ("down", "sparse_conv", {
        "channels": 6, "kernel": 2, "stride": 2, "rule": "floor"}))
    n.add("again", "voxelize", "feats", onto="down")
    n.add("both", "concat", ["down", "again"])
    n.add("same", "voxelize", "feats", stride=1)
    n.add("wide", "voxelize", "same", stride=4096)
    n.add("between", "devoxelize", "both", mode="trilinear")
    n.add("near", "devoxelize", "both", mode="nearest")
    n.add("middle", "devoxelize", "both", mode="trilinear", onto="conv")
    n.add("far", "devoxelize", "wide", mode="trilinear")
    n.add("children", "upsample", "feats", stride=2)
    n.add("parents", "voxelize", "children", onto="feats")
    n.outputs = ["cells", "both", "wide", "between", "near", "middle", "far", "parents"]
    return n


def points_spconv():
    """Voxels without points, and points without a voxel."""
    n = Network(CHANNELS, SHAPE)
    n.add("down", "sparse_conv", "feats", channels=6, kernel=3, stride=2, padding=1, rule="spconv")
    n.add("odd", "sparse_conv", "feats", channels=6, kernel=1, stride=[2, 1, 2], rule="spconv")
    n.add("mean", "voxelize", "feats", onto="down")
    n.add("some", "voxelize", "feats", onto="odd")
    n.chain("mean", ("shifted", "affine", {"shift": 0.5}), ("back", "devoxelize", {
        "mode": "trilinear"}))
    n.add("holes", "devoxelize", "some", mode="trilinear")
    n.chain("some", ("near", "devoxelize", {"mode": "nearest"}), ("act", "sigmoid", {}))
    n.outputs = ["mean", "some", "back", "holes", "act", "down"]
    return n


def predicted():
    """Sets that follow from logits."""
    n = Network(CHANNELS)
    n.add("logit", "linear", "feats", channels=1)
    n.add("kept", "prune", "feats", keep="logit")
    n.chain("kept", ("conv", "subm_conv", {"channels": 5, "kernel": 3}), ("coarse", "sparse_conv", {
        "channels": 5, "kernel": 2, "stride": 2, "rule": "floor"}))
    n.add("best", "prune", "feats", keep="logit", top=7)
    n.add("children", "linear", "feats", channels=8)
    n.add("wide", "linear", "feats", channels=24)
    n.add("split", "channel_to_space", "wide", stride=2, occupancy="children")
    n.add("skip", "upsample", "feats", stride=2, occupancy="children")
    n.add("narrow", "linear", "skip", channels=3)
    n.add("sum", "add", ["split", "narrow"])
    n.add("next", "subm_conv", "sum", channels=6, kernel=3)
    n.add("flat", "linear", "feats", channels=3)
    n.add("slabs", "upsample", "feats", stride=[1, 3, 1], occupancy="flat")
    n.outputs = ["conv", "coarse", "best", "sum", "next", "slabs"]
    return n


NETWORKS = {f.__name__: f for f in (
    submanifold, strided_floor, strided_spconv, strided_groups, inverse, transposed, generative,
    pools_floor, pools_same, pools_spconv, blocks, unpool_spconv, curves, pairs, norms,
    norms_coarse, flat, one_set_by_two_ways, unet, encoder, autoencoder,
    samples, labels, dense_outputs, points, points_spconv, predicted)}


# --- Clouds: voxels inside of `shape` where a network has one.

def box_cells(rng, shape, share):
    """Some cells of a box, in any order."""
    cells = np.argwhere(rng.random(shape) < share)
    return rng.permutation(cells)


def scattered(rng, shape):
    """Three samples, unlike in number; the request's rows are mixed."""
    parts = [np.insert(box_cells(rng, shape, share), 0, sample, axis=1)
             for sample, share in ((0, 0.3), (3, 0.05), (511, 0.9))]
    return rng.permutation(np.concatenate(parts))


def ends(rng, shape):
    """All corners of the box and cells of its faces."""
    last = np.array(shape) - 1
    cells = np.indices(shape).reshape(3, -1).T
    edge = ((cells == 0) | (cells == last)).sum(axis=1)
    keep = (edge == 3) | ((edge > 0) & (rng.random(len(cells)) < 0.3))
    return np.insert(rng.permutation(cells[keep]), 0, 1, axis=1)


def single(rng, shape):
    return np.array([[7, *(np.array(shape) // 2)]])


def far(rng, shape):
    """Clusters at both ends of the range of coordinates, and where children of a half or a third
    leave it; each in a sample of its own."""
    size = np.array((6, 5, 7))
    high = AXIS_MAX - size + 1
    firsts = [(AXIS_MIN,) * 3, high, (AXIS_MIN, -3, high[2])]
    firsts += [(AXIS_MAX // n - 2, -4, AXIS_MIN // n - 3) for n in (2, 3)]
    return np.concatenate([np.insert(box_cells(rng, size, 0.4) + first, 0, sample, axis=1)
                           for sample, first in enumerate(firsts)])


def clouds(network, seed=1):
    """{name: (coords, feats)} for a network: voxels of its shape, or around 0 and at the ends."""
    rng = np.random.default_rng(seed)
    shape = network.shape or SHAPE
    kinds = [scattered, ends, single] + ([] if network.shape else [far])
    out = {}
    for kind in kinds:
        coords = kind(rng, shape).astype(np.int32)
        if not network.shape and kind is not far:
            coords[:, 1:] -= np.array(shape, np.int32) // 2   # negative ones
        feats = rng.normal(size=(len(coords), network.channels["feats"])).astype(np.float32)
        out[kind.__name__] = coords, feats
    return out
