# SPDX-License-Identifier: Apache-2.0
"""Networks of every op and every layout, as model directories, for test_definition.py."""

import json

import numpy as np
from safetensors.numpy import save_file

SHAPE = (11, 9, 12)  # odd and even: spconv's windows lose a voxel at some upper ends
CONVOLUTIONS = ("subm_conv", "sparse_conv", "inverse_conv", "transposed_conv")
NORMS = ("batch_norm", "layer_norm", "group_norm", "instance_norm")


class Net:
    """`n.add("a", "subm_conv", "feats", 4, (27, 4, 4), kernel=3)` adds a layer.

    The fourth argument is the channels of a convolution or linear layer, the fifth the shape of
    its weight in the file.
    """

    def __init__(self, channels=4, shape=None, seed=1):
        self.rng = np.random.default_rng(seed)
        self.channels, self.shape = channels, shape
        self.layers, self.tensors, self.outputs = [], {}, []

    def add(self, name, op, source, channels=None, weight=None, **keys):
        layer = {"name": name, "op": op}
        layer["inputs" if isinstance(source, list) else "input"] = source
        if channels:
            layer["channels"] = channels
            size = np.prod(weight) / channels
            self.put(f"{name}.weight", self.rng.normal(0, (2 / size) ** 0.5, weight))
            if keys.get("bias", True):
                one = (1, channels) if keys.get("layout") == "minkowski" else (channels,)
                self.put(f"{name}.bias", self.rng.normal(0, 0.5, one))
        self.layers.append({**layer, **keys})
        return name

    def norm(self, name, op, source, channels, **keys):
        if keys.get("affine", True):
            self.put(f"{name}.weight", self.rng.uniform(0.5, 1.5, channels))
            self.put(f"{name}.bias", self.rng.normal(0, 0.3, channels))
        if op == "batch_norm":
            self.put(f"{name}.running_mean", self.rng.normal(0, 0.3, channels))
            self.put(f"{name}.running_var", self.rng.uniform(0.5, 2, channels))
        return self.add(name, op, source, eps=0.01, **keys)

    def put(self, name, array):
        self.tensors[name] = np.asarray(array, np.float32)

    def out(self, *names):
        self.outputs += [{"layer": name} for name in names]
        return self

    def all_out(self):
        """Every layer that no other reads is an output."""
        read = {one for x in self.layers for one in x.get("inputs", [x.get("input")])}
        return self.out(*(x["name"] for x in self.layers if x["name"] not in read))

    def write(self, folder):
        coords = {"name": "coords", "spatial_shape": list(self.shape)} if self.shape else "coords"
        (folder / "1").mkdir(parents=True)
        (folder / "network.json").write_text(
            json.dumps(
                {
                    "format": 1,
                    "inputs": {"coords": coords, "feats": {"channels": self.channels}},
                    "layers": self.layers,
                    "outputs": self.outputs,
                }
            )
        )
        save_file(self.tensors, folder / "1" / "weights.safetensors")
        return folder


def submanifold():
    n = Net()
    n.add("k3", "subm_conv", "feats", 6, (6, 3, 3, 3, 4), kernel=3, layout="oxyzi")
    n.add("k5", "subm_conv", "feats", 3, (3, 5, 1, 3, 4), kernel=[5, 1, 3], bias=False)
    n.add("dilated", "subm_conv", "k3", 6, (27, 6, 6), kernel=3, dilation=[1, 2, 3], layout="vio")
    n.add("groups", "subm_conv", "k3", 4, (4, 3, 3, 3, 3), kernel=3, groups=2, layout="oxyzi")
    n.add("depthwise", "subm_conv", "feats", 4, (27, 4), kernel=3, groups=4, layout="minkowski")
    n.add("one", "subm_conv", "k3", 5, (5, 1, 1, 1, 6), kernel=1, layout="spconv")
    return n.out("k5", "dilated", "groups", "depthwise", "one")


def strided():
    n, w = Net(shape=SHAPE), (5, 3, 3, 3, 4)
    n.add("k3s2", "sparse_conv", "feats", 5, w, kernel=3, stride=2, padding=1, rule="spconv")
    n.add("valid", "sparse_conv", "feats", 5, w, kernel=3, stride=[2, 3, 1], rule="spconv")
    keys = {"padding": [2, 0, 4], "dilation": [2, 1, 3], "rule": "spconv"}
    n.add("dilated", "sparse_conv", "feats", 5, w, kernel=3, stride=2, **keys)
    n.add("k2", "sparse_conv", "feats", 5, (5, 2, 2, 2, 4), kernel=2, stride=2, rule="floor")
    n.layers[-1]["layout"] = "oxyzi"  # spconv makes no voxel of a block that the shape cuts
    n.add("k3", "sparse_conv", "feats", 5, w, kernel=3, stride=2, rule="floor", layout="oxyzi")
    w = (5, 4, 1, 2, 4)
    n.add("k4", "sparse_conv", "feats", 5, w, kernel=[4, 1, 2], stride=2, rule="floor", bias=False)
    n.layers[-1]["layout"] = "oxyzi"
    n.add("same", "sparse_conv", "feats", 5, (5, 1, 1, 1, 4), kernel=1, stride=1, rule="spconv")
    n.layers[-1]["layout"] = "flexgemm"
    n.add("up", "inverse_conv", "k3s2", 4, (4, 3, 3, 3, 5), of="k3s2")
    return n.out("up", "valid", "dilated", "k2", "k3", "k4", "same")


def upward():
    n = Net()
    n.add("down", "sparse_conv", "feats", 6, (8, 4, 6), kernel=2, stride=2, rule="floor")
    n.layers[-1]["layout"] = "minkowski"
    n.add("k2", "transposed_conv", "down", 5, (8, 6, 5), kernel=2, stride=2, onto="feats")
    n.layers[-1]["layout"] = "minkowski"
    n.add("k3", "transposed_conv", "down", 5, (27, 6, 5), kernel=3, stride=2, onto="feats")
    n.layers[-1]["layout"] = "minkowski"
    n.add("grown", "transposed_conv", "down", 3, (3, 2, 2, 2, 6), kernel=2, stride=2, bias=False)
    n.add("holes", "transposed_conv", "feats", 3, (27, 4, 3), kernel=3, stride=2, layout="vio")
    n.add("pool", "max_pool", "feats", kernel=3, stride=2, rule="floor")
    n.add("up_pool", "inverse_conv", "pool", 3, (27, 4, 3), of="pool", layout="minkowski")
    return n.out("k2", "k3", "grown", "holes", "up_pool")


def pools(rule):
    n = Net(shape=SHAPE)
    for op in ("max_pool", "avg_pool", "sum_pool"):
        n.add(f"{op}2", op, "feats", kernel=2, stride=2, rule=rule)
        keys = {"padding": 1} if rule == "spconv" else {}
        n.add(f"{op}3", op, "feats", kernel=[3, 2, 3], stride=[2, 2, 3], rule=rule, **keys)
    n.add("unpool", "unpool", "avg_pool2", of="avg_pool2")
    n.add("wide", "max_pool", "feats", kernel=2, stride=1, dilation=[3, 2, 1], rule=rule)
    n.add("block", "avg_pool", "feats", kernel=3, stride=3, rule=rule)
    return n.out(*[x["name"] for x in n.layers if x["name"] != "avg_pool2"])


def blocks():
    n = Net()
    n.add("mean", "downsample", "feats", stride=2)
    n.add("s2c", "space_to_channel", "feats", stride=[2, 3, 1])
    n.add("nearest", "upsample", "mean", stride=2, onto="feats")
    n.add("all", "upsample", "feats", stride=[2, 1, 3])
    n.add("wide", "linear", "mean", 24, (24, 4))
    n.add("c2s", "channel_to_space", "wide", stride=2)
    n.add("back", "channel_to_space", "s2c", stride=[2, 3, 1], onto="feats")
    return n.out("nearest", "s2c", "all", "c2s", "back")


def predicted():
    n = Net()
    n.add("mean", "downsample", "feats", stride=2)
    n.add("logits", "linear", "mean", 8, (8, 4))
    n.add("live", "upsample", "mean", stride=2, occupancy="logits")
    n.add("wide", "linear", "mean", 16, (16, 4))
    n.add("c2s", "channel_to_space", "wide", stride=2, occupancy="logits")
    n.add("join", "concat", ["live", "c2s"])
    n.add("mid", "subm_conv", "join", 5, (5, 3, 3, 3, 6), kernel=3)
    n.add("keep", "linear", "mid", 1, (1, 5))
    n.add("kept", "prune", "mid", keep="keep")
    n.add("top", "prune", "mid", keep="keep", top=7)
    n.add("coarse", "max_pool", "kept", kernel=2, stride=2, rule="floor")
    return n.out("mid", "kept", "top", "coarse")


def rows():
    n = Net()
    for op in ("relu", "silu", "gelu", "sigmoid", "tanh", "softplus", "softmax"):
        n.add(op, op, "feats")
    n.add("leaky", "leaky_relu", "silu", slope=-0.3)
    n.add("affine", "affine", "leaky", scale=-1.5, shift=0.25)
    n.add("add", "add", ["relu", "affine"])
    n.add("mul", "mul", ["gelu", "tanh"])
    n.add("concat", "concat", ["add", "mul", "softplus", "softmax", "sigmoid", "feats"])
    n.add("linear", "linear", "concat", 7, (7, 24))
    n.add("plain", "linear", "concat", 6, (6, 24), bias=False)
    n.add("labels", "argmax", "plain")
    n.out("linear", "plain")
    n.outputs.append({"name": "classes", "layer": "labels", "datatype": "INT32"})
    return n


def norms():
    n = Net(8)
    n.norm("batch", "batch_norm", "feats", 8)
    n.norm("layer", "layer_norm", "feats", 8)
    n.norm("group", "group_norm", "feats", 8, groups=2)
    n.norm("instance", "instance_norm", "feats", 8)
    n.norm("bare_layer", "layer_norm", "batch", 8, affine=False)
    n.norm("bare_batch", "batch_norm", "layer", 8, affine=False)
    n.add("down", "sparse_conv", "feats", 8, (8, 2, 2, 2, 8), kernel=2, stride=2, rule="floor")
    n.norm("coarse", "group_norm", "down", 8, groups=4, affine=False)
    return n.out("group", "instance", "bare_layer", "bare_batch", "coarse")


def samples():
    n = Net()
    for mode in ("max", "avg", "sum"):
        n.add(mode, "global_pool", "feats", mode=mode)
    n.add("gate", "linear", "avg", 4, (4, 4))
    n.add("back", "unpool", "gate", of="avg")
    n.add("gated", "mul", ["feats", "back"])
    return n.out("max", "sum", "gate", "gated")


def dense():
    n = Net(shape=SHAPE)
    n.add("down", "sparse_conv", "feats", 5, (5, 3, 3, 3, 4), kernel=3, stride=2, rule="spconv")
    n.add("grid", "to_dense", "down")
    n.add("bev", "to_dense", "down", fold=True)
    n.add("larger", "to_dense", "down", shape=[5, 20, 6])
    n.add("half", "downsample", "feats", stride=[1, 2, 2])
    n.add("halves", "to_dense", "half")
    return n.out("grid", "bev", "larger", "halves")


def points():
    n = Net()
    n.add("voxels", "voxelize", "feats", stride=3)
    n.add("mid", "subm_conv", "voxels", 5, (5, 3, 3, 3, 4), kernel=3)
    n.add("near", "devoxelize", "mid", mode="nearest")
    n.add("between", "devoxelize", "mid", mode="trilinear")
    n.add("coarse", "downsample", "mid", stride=2)
    n.add("onto", "voxelize", "between", onto="coarse")
    n.add("fine", "devoxelize", "coarse", mode="trilinear", onto="mid")
    return n.out("near", "between", "onto", "fine")


def libraries():
    """One checkpoint of each library's order, and of the letters."""
    n, ci, co = Net(3), 3, 5
    for layout, shape in {
        "spconv": lambda k: (co, *k, ci),
        "flexgemm": lambda k: (co, *k, ci),
        "torchsparse": lambda k: (np.prod(k), ci, co),
        "minkowski": lambda k: (np.prod(k), ci, co),
        "warpconvnet": lambda k: (np.prod(k), ci, co),
        "vio": lambda k: (np.prod(k), ci, co),
        "xyzio": lambda k: (*k, ci, co),
        "xyzoi": lambda k: (*k, co, ci),
    }.items():
        last = []
        for number, (op, k, keys) in enumerate(
            (
                ("subm_conv", (3, 1, 5), {}),
                ("subm_conv", (1, 1, 1), {}),
                ("sparse_conv", (2, 2, 2), {"stride": 2, "rule": "floor"}),
            )
        ):
            name, size = f"{layout}{number}", shape(k)
            if layout in ("torchsparse", "minkowski") and np.prod(k) == 1:
                size = size[1:]
            n.add(name, op, "feats", co, size, kernel=list(k), layout=layout, **keys)
            last.append(name)
        n.add(f"{layout}_back", "unpool", last.pop(), of=last[-1][:-1] + "2")
        n.add(layout, "concat", [*last, f"{layout}_back"])
    return n.out(
        "spconv", "flexgemm", "torchsparse", "minkowski", "warpconvnet", "xyzio", "xyzoi", "vio"
    )


def unsaid():
    """Layouts that follow from the weight's shape, or from what a library can have written."""
    n = Net(3, SHAPE)
    n.add("inside", "subm_conv", "feats", 5, (5, 3, 3, 5, 3), kernel=[3, 3, 5])
    n.add("one_axis", "subm_conv", "feats", 5, (3, 3, 5), kernel=[3, 1, 1])
    n.add("matrix", "subm_conv", "feats", 5, (3, 5), kernel=1)
    keys = {"kernel": 2, "stride": 2, "rule": "spconv"}
    n.add("by_rule", "sparse_conv", "feats", 5, (8, 3, 5), **keys)
    n.add("warp", "subm_conv", "one_axis", 10, (27, 5, 1, 2), kernel=3, groups=5)
    return n.out("inside", "matrix", "by_rule", "warp")


NETWORKS = {
    "submanifold": submanifold,
    "strided": strided,
    "upward": upward,
    "pools_floor": lambda: pools("floor"),
    "pools_spconv": lambda: pools("spconv"),
    "blocks": blocks,
    "predicted": predicted,
    "rows": rows,
    "norms": norms,
    "samples": samples,
    "dense": dense,
    "points": points,
    "libraries": libraries,
    "unsaid": unsaid,
}
