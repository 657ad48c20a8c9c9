# SPDX-License-Identifier: Apache-2.0
"""A network as a test writes it: its files, and its answer by definition.py."""
import json

import definition as d
import numpy as np

from model_files import write_safetensors

CONVOLUTIONS = ("subm_conv", "sparse_conv", "inverse_conv", "transposed_conv")
NORMS = ("batch_norm", "layer_norm", "group_norm", "instance_norm")
POOLS = ("max_pool", "avg_pool", "sum_pool")


def axes(value):
    return tuple(value) if isinstance(value, (list, tuple)) else (value,) * 3


class Network:
    """`n.add("down", "sparse_conv", "feats", channels=8, kernel=2, stride=2, rule="floor")` is a
    layer with random tensors; answer() has every layer's Tensor by name."""

    def __init__(self, channels=4, shape=None, seed=1):
        self.rng = np.random.default_rng(seed)
        self.shape, self.layers, self.tensors = shape, [], {}
        self.channels, self.kernels = {"feats": channels}, {}
        self.outputs = None

    def add(self, name, op, source, **keys):
        many = isinstance(source, list)
        self.layers.append({"name": name, "op": op, "inputs" if many else "input": source, **keys})
        if op in CONVOLUTIONS:
            self.layers[-1]["layout"] = "oxyzi"
        ci = [self.channels[one] for one in (source if many else [source])]
        self.channels[name] = self.tensors_of(self.layers[-1], sum(ci) if op == "concat" else ci[0])
        return name

    def chain(self, at, *steps):
        """Steps (name, op, {keys}), each on the one before."""
        for name, op, keys in steps:
            at = self.add(name, op, at, **keys)
        return at

    def tensors_of(self, layer, ci):
        """Makes the layer's tensors and returns its channels."""
        op, name = layer["op"], layer["name"]
        co = layer.get("channels", ci)
        kernel = layer.get("kernel", self.kernels.get(layer.get("of")))
        if kernel:
            self.kernels[name] = kernel
        if op in CONVOLUTIONS or op == "linear":
            size = (*axes(kernel), ci // layer.get("groups", 1)) if op != "linear" else (ci,)
            self.random(f"{name}.weight", (co, *size), 0, np.sqrt(2 / np.prod(size)))
            if layer.get("bias", True):
                self.random(f"{name}.bias", co, 0, 0.5)
        elif op in NORMS:
            if layer.get("affine", True):
                self.random(f"{name}.weight", ci, 1, 0.3)
                self.random(f"{name}.bias", ci, 0, 0.3)
            if op == "batch_norm":
                self.random(f"{name}.running_mean", ci, 0, 0.5)
                self.tensors[f"{name}.running_var"] = \
                    self.rng.uniform(0.5, 2, ci).astype(np.float32)
        block = int(np.prod(axes(layer.get("stride", 1))))
        return {"space_to_channel": co * block, "channel_to_space": co // block,
                "argmax": 1}.get(op, co)

    def random(self, name, shape, middle, spread):
        self.tensors[name] = (middle + spread * self.rng.normal(size=shape)).astype(np.float32)

    def wanted(self):
        """Layers that are outputs: those named, or all that no layer reads."""
        if self.outputs:
            return self.outputs
        read = {one for x in self.layers for one in x.get("inputs", [x.get("input")])}
        return [x["name"] for x in self.layers if x["name"] not in read]

    def write(self, folder):
        coords = {"name": "coords", "spatial_shape": list(self.shape)} if self.shape else "coords"
        network = {"format": 1, "warmup": [],
                   "inputs": {"coords": coords, "feats": {"channels": self.channels["feats"]}},
                   "layers": self.layers, "outputs": [{"layer": name} for name in self.wanted()],
                   "limits": {"voxels_max": 2500}}
        (folder / "1").mkdir(parents=True)
        (folder / "network.json").write_text(json.dumps(network, indent=1))
        write_safetensors(folder / "1" / "weights.safetensors", self.tensors)

    # --- The answer.

    def answer(self, coords, feats):
        done = {"feats": d.request(coords, feats.astype(np.float64), self.shape)}
        windows = {}
        for layer in self.layers:
            inputs = [done[one] for one in layer.get("inputs", [layer.get("input")])]
            done[layer["name"]] = self.layer(layer, inputs, done, windows)
        return done

    def layer(self, layer, inputs, done, windows):
        op, x = layer["op"], inputs[0]
        if op in CONVOLUTIONS:
            return self.convolution(layer, x, done, windows)
        if op in POOLS:
            return self.pool(layer, x, windows)
        if op in NORMS or op == "linear":
            return self.pointwise(layer, x)
        if op in d.CURVES:
            return d.each(x, d.CURVES[op])
        if op in ("add", "mul"):
            other, function = d.onto_set(inputs[1], x.on), {"add": np.add, "mul": np.multiply}[op]
            return d.tensor_on(x.on, {s: function(v, other.values[s]) for s, v in x.values.items()})
        if op == "concat":
            others = [d.onto_set(one, x.on) for one in inputs]
            return d.tensor_on(x.on, {s: np.concatenate([o.values[s] for o in others], axis=-1)
                                      for s in x.values})
        if op == "leaky_relu":
            return d.each(x, lambda v: np.where(v < 0, v * layer.get("slope", 0.01), v))
        if op == "affine":
            return d.each(x, lambda v: v * layer.get("scale", 1) + layer.get("shift", 0))
        if op in ("global_pool", "to_dense", "prune", "voxelize", "devoxelize"):
            return getattr(self, op)(layer, x, done)
        return self.block(layer, x, done)

    def global_pool(self, layer, x, done):
        return d.sample_pool(x, d.sample_set(x.on), layer["mode"])

    def to_dense(self, layer, x, done):
        shape = axes(layer["shape"]) if "shape" in layer else x.on.shape
        return d.dense(x, shape, 1 + max(done["feats"].on.boxes), layer.get("fold", False))

    def voxelize(self, layer, x, done):
        on = done[layer["onto"]].on if "onto" in layer else \
            d.floor_set(x.on, axes(layer["stride"]))
        return d.voxel_means(x, on, d.steps(x.on, on))

    def devoxelize(self, layer, x, done):
        on = done[layer.get("onto", "feats")].on
        way = d.trilinear if layer["mode"] == "trilinear" else d.parents
        return way(x, on, d.steps(on, x.on))

    def prune(self, layer, x, done):
        logits = done[layer["keep"]]
        stays = d.largest_logits(logits, layer["top"]) if "top" in layer else d.positive(logits)
        return d.moved_onto(x, d.subset(x.on, stays))

    def window(self, layer):
        """The window of a layer that has a kernel."""
        kernel, dilation = axes(layer["kernel"]), axes(layer.get("dilation", 1))
        stride, rule = axes(layer.get("stride", 1)), layer.get("rule", "")
        block = layer["op"] in POOLS and rule == "floor" and kernel == stride
        padding = axes(layer.get("padding", 0)) if rule == "spconv" else \
            (0, 0, 0) if block else d.centre(kernel, dilation)
        return d.Window(kernel, stride, padding, dilation, rule)

    def convolution(self, layer, x, done, windows):
        name, op = layer["name"], layer["op"]
        if op == "inverse_conv":
            window, on = windows[layer["of"]][0], windows[layer["of"]][1]
        else:
            window = self.window(layer)
            on = x.on
        if op == "sparse_conv":
            on = d.coarse_set(x.on, window)
        elif op == "transposed_conv":
            on = done[layer["onto"]].on if "onto" in layer else d.expanded_set(x.on, window)
        windows[name] = window, x.on
        up = op in ("inverse_conv", "transposed_conv")
        weights = (self.real(f"{name}.weight"), self.real(f"{name}.bias", 0.0),
                   layer.get("groups", 1))
        return d.conv(x, on, window, "upward" if up else "downward", weights)

    def pool(self, layer, x, windows):
        window = self.window(layer)
        windows[layer["name"]] = window, x.on
        return d.pool(x, d.coarse_set(x.on, window), window, layer["op"])

    def block(self, layer, x, done):
        """Ops between the voxels of a block and their parent."""
        op = layer["op"]
        if op == "unpool":
            of = next(one for one in self.layers if one["name"] == layer["of"])
            if of["op"] == "global_pool":
                return d.from_samples(x, done[of["input"]].on)
            return d.parents(x, done[of["input"]].on, axes(of["stride"]))
        stride = axes(layer["stride"])
        window = d.Window(stride, stride, rule="floor")
        if op in ("downsample", "space_to_channel"):
            on = d.coarse_set(x.on, window)
            return d.pool(x, on, window, "avg_pool") if op == "downsample" else \
                d.to_channels(x, on, stride)
        if "occupancy" in layer:
            on = d.occupied_set(done[layer["occupancy"]], window)
        else:
            on = done[layer["onto"]].on if "onto" in layer else d.expanded_set(x.on, window)
        return {"upsample": d.parents, "channel_to_space": d.from_channels}[op](x, on, stride)

    def pointwise(self, layer, x):
        op, name, eps = layer["op"], layer["name"], layer.get("eps", 1e-5)
        weight, bias = self.real(f"{name}.weight", 1.0), self.real(f"{name}.bias", 0.0)
        if op == "linear":
            return d.each(x, lambda v: v @ weight.T + bias)
        if op == "batch_norm":
            mean, var = (self.real(f"{name}.running_{one}") for one in ("mean", "var"))
            return d.each(x, lambda v: (v - mean) / np.sqrt(var + eps) * weight + bias)
        if op == "layer_norm":
            return d.each(x, lambda v: d.normalised(v, (-1,), eps) * weight + bias)
        groups = layer.get("groups", x.channels())
        return d.each(d.sample_norm(x, groups, eps), lambda v: v * weight + bias)

    def real(self, name, otherwise=None):
        return self.tensors[name].astype(np.float64) if name in self.tensors else otherwise
