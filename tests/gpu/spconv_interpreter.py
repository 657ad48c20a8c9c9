# SPDX-License-Identifier: Apache-2.0
"""A network.json as modules of spconv: the second witness of whole families, and their peer.

    network = Interpreter(folder, torch.float16, "cuda:0", algo="MaskImplicitGemm")
    results = network.run(coords, feats, wanted=["head"])

Takes what MinkUNet and the detectors' backbones are made of: subm_conv, sparse_conv, inverse_conv,
transposed_conv onto the set that a strided layer read, batch_norm, relu, add, concat, linear,
to_dense; layouts `spconv` and `minkowski`.  Norms and activations are torch's, one kernel each, as
people run them.  Needs torch and spconv 2.3.8, on a CPU in float32 too: there a convolution adds
its bias only in training mode, so its modules are in it."""
import json
import math
import pathlib

import numpy as np
import torch
from safetensors.numpy import load_file
from spconv import pytorch as spconv

BLOCK = 64  # a set without a shape gets a multiple of it, so that no stride loses a voxel


def three(value, fill=1):
    return [value] * 3 if isinstance(value, int) else list(value or [fill] * 3)


def offsets_first(weight, layer, kernel):
    """[Co, Kx, Ky, Kz, Ci] of a weight as the layout has it."""
    if layer["layout"] == "spconv":
        if math.prod(kernel) == 1:  # spconv reads such numbers as (Ci, Co)
            co, ci = weight.shape[0], weight.shape[-1]
            weight = weight.reshape(ci, co).T.reshape(co, 1, 1, 1, ci)
        return weight
    assert layer["layout"] == "minkowski", layer
    ci, co = weight.shape[-2:]
    return weight.reshape(*kernel[::-1], ci, co).transpose(4, 2, 1, 0, 3)  # x is fastest


class Interpreter:
    """One network; it keeps nothing between runs but its modules.

    algo  of spconv's convolutions: Native, MaskImplicitGemm, MaskSplitImplicitGemm; kernels of more
          than 32 offsets are Native's (2.3.8's masked ones answer zeros there)
    """

    def __init__(self, folder, dtype, device, algo="Native"):
        folder = pathlib.Path(folder)
        self.document = json.loads((folder / "network.json").read_text())
        self.weights = load_file(folder / "1" / "weights.safetensors")
        self.dtype, self.device, self.algo = dtype, device, spconv.ConvAlgo[algo]
        self.layers = {layer["name"]: layer for layer in self.document["layers"]}
        self.sets = {"feats": "request"}     # layer: the set that its result lies on
        self.reads = {}                      # strided layer: the set that it reads
        self.modules = {name: self._module(layer) for name, layer in self.layers.items()}

    # --- modules

    def _tensor(self, layer, key):
        name = layer.get("tensors", {}).get(key, f"{layer['name']}.{key}")
        return self.weights[name].astype(np.float32) if name in self.weights else None

    def _on_device(self, array):
        return torch.from_numpy(np.ascontiguousarray(array)).to(self.device, self.dtype)

    def _module(self, layer):
        inputs = layer.get("inputs", [layer.get("input")])
        self.sets[layer["name"]] = self.sets[inputs[0]]
        return getattr(self, "_make_" + layer["op"])(layer, inputs[0])

    def _make_subm_conv(self, layer, source):
        kernel, dilation = three(layer["kernel"]), three(layer.get("dilation", 1))
        key = f"subm {self.sets[source]} {kernel} {dilation}"
        return self._conv(layer, spconv.SubMConv3d, source, kernel, dilation=dilation, key=key)

    def _make_sparse_conv(self, layer, source):
        kernel, stride = three(layer["kernel"]), three(layer["stride"])
        padding = three(layer.get("padding", 0))
        assert layer["rule"] == "spconv" or kernel == stride, layer
        made = f"{self.sets[source]} {kernel} {stride} {padding}"
        self.sets[layer["name"]], self.reads[layer["name"]] = made, self.sets[source]
        return self._conv(layer, spconv.SparseConv3d, source, kernel, stride=stride,
                          padding=padding, key=f"down {made}")

    def _make_inverse_conv(self, layer, source, of=None):
        of = of or layer["of"]
        self.sets[layer["name"]] = self.reads[of]
        kernel, key = three(self.layers[of]["kernel"]), f"down {self.sets[of]}"
        return self._conv(layer, spconv.SparseInverseConv3d, source, kernel, key=key)

    def _make_transposed_conv(self, layer, source):
        """The inverse of the strided layer from the set of `onto` to the one it lies on."""
        of = [name for name, read in self.reads.items()
              if read == self.sets[layer["onto"]] and self.sets[name] == self.sets[source]
              and three(self.layers[name]["kernel"]) == three(layer["kernel"])]
        return self._make_inverse_conv(layer, source, of[0])

    def _conv(self, layer, kind, source, kernel, key, **how):
        weight = offsets_first(self._tensor(layer, "weight"), layer, kernel)
        bias = self._tensor(layer, "bias")
        co, ci = weight.shape[0], weight.shape[-1]
        algo = self.algo if math.prod(kernel) <= 32 else spconv.ConvAlgo.Native
        module = kind(ci, co, kernel, bias=bias is not None, indice_key=key, algo=algo, **how)
        if math.prod(kernel) == 1 and kind is spconv.SubMConv3d:
            weight = weight.reshape(co, ci).T.reshape(co, 1, 1, 1, ci)
        with torch.no_grad():
            module.weight.copy_(torch.from_numpy(np.ascontiguousarray(weight)))
            if bias is not None:
                module.bias.copy_(torch.from_numpy(bias.reshape(co)))
        module = module.to(self.device, self.dtype)
        return module.train() if self.device == "cpu" else module.eval()

    def _make_batch_norm(self, layer, _source):
        mean, var, weight, bias = (
            self._on_device(self._tensor(layer, key))
            for key in ("running_mean", "running_var", "weight", "bias"))
        eps = layer.get("eps", 1e-5)
        return lambda x: torch.nn.functional.batch_norm(x, mean, var, weight, bias, False, 0, eps)

    def _make_linear(self, layer, _source):
        weight, bias = self._on_device(self._tensor(layer, "weight")), self._tensor(layer, "bias")
        bias = None if bias is None else self._on_device(bias)
        return lambda x: torch.nn.functional.linear(x, weight, bias)

    def _make_relu(self, _layer, _source):
        return torch.relu

    def _make_add(self, _layer, _source):
        return torch.add

    def _make_concat(self, _layer, _source):
        return lambda *parts: torch.cat(parts, 1)

    def _make_to_dense(self, layer, _source):
        def dense(x):
            made = x.dense()
            return made.flatten(1, 2) if layer.get("fold") else made
        return dense

    # --- a run

    def example(self, coords, feats):
        """The request as spconv has it; coords int32 [N, 4] from 0 on."""
        shape = self.document["inputs"]["coords"]
        if isinstance(shape, dict):
            shape = shape["spatial_shape"]
        else:
            shape = [-(-int(size + 1) // BLOCK) * BLOCK for size in coords[:, 1:].max(0)]
        at = torch.from_numpy(np.ascontiguousarray(coords, np.int32)).to(self.device)
        return spconv.SparseConvTensor(self._on_device(feats), at, shape,
                                       int(coords[:, 0].max()) + 1)

    @torch.no_grad()
    def run(self, x, wanted):
        """{layer: SparseConvTensor, or a dense tensor} of a request from example()."""
        there = {"feats": x}
        for name, layer in self.layers.items():
            inputs = [there[one] for one in layer.get("inputs", [layer.get("input")])]
            module = self.modules[name]
            if isinstance(module, torch.nn.Module) or layer["op"] == "to_dense":
                there[name] = module(inputs[0])
            else:
                there[name] = inputs[0].replace_feature(module(*(one.features for one in inputs)))
        return {name: there[name] for name in wanted}
