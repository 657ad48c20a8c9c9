# SPDX-License-Identifier: Apache-2.0
"""Writes ONNX files as libspconv's exporters do, while spconv's own modules compute.

The package onnx writes the files, so that voxeld_export's reader meets a writer that is not ours.
"""

import numpy as np
import onnx
import spconv.pytorch as sp
import torch
from onnx import TensorProto, helper

ACTIVATIONS = {"None": lambda x: x, "ReLU": torch.relu, "Sigmoid": torch.sigmoid}


class File:
    """`y = file.conv(module, x, "ReLU")` computes, and adds the node that an exporter writes."""

    def __init__(self, x):
        self.names, self.kept = {}, []
        self.nodes, self.tensors = [], []
        self.input = self.made(x)
        self.channels = x.features.shape[1]
        self.raw = True  # 16-bit weights as bytes; else one integer each

    def made(self, value):
        self.kept.append(value)  # an id is of a living object
        self.names[id(value)] = str(len(self.names))
        return self.names[id(value)]

    def node(self, op, inputs, result, **attributes):
        names = [one if isinstance(one, str) else self.names[id(one)] for one in inputs]
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, names, [self.made(result)], name, **attributes))
        return result

    def tensor(self, name, value):
        array = value.detach().numpy().astype(np.float16)
        kind, dims = TensorProto.FLOAT16, list(array.shape)
        if self.raw:
            made = helper.make_tensor(name, kind, dims, array.tobytes(), raw=True)
        else:
            made = helper.make_tensor(name, kind, dims, array.reshape(-1).tolist())
        self.tensors.append(made)
        return name

    def conv(self, module, x, activation="None", weight=None, **more):
        """more: further attributes, or None to leave one out."""
        module.train()  # on a CPU spconv adds a bias in that mode only
        for parameter in module.parameters():
            parameter.data = parameter.data.half().float()
        y = module(x)
        y = y.replace_feature(ACTIVATIONS[activation](y.features))
        number = len(self.nodes)
        inputs = [
            x,
            self.tensor(f"spconv{number}.weight", module.weight if weight is None else weight),
        ]
        if module.bias is not None:
            inputs.append(self.tensor(f"spconv{number}.bias", module.bias))
        attributes = {
            "ndim": module.ndim,
            "input_spatial_shape": x.spatial_shape,
            "output_spatial_shape": y.spatial_shape,
            "in_channels": module.in_channels,
            "out_channels": module.out_channels,
            "kernel_size": module.kernel_size,
            "output_bound": 200000,
            "stride": module.stride,
            "dilation": module.dilation,
            "padding": module.padding,
            "transposed": module.transposed,
            "inverse": module.inverse,
            "output_padding": module.output_padding,
            "groups": module.groups,
            "subm": module.subm,
            "rulebook": module.indice_key or "",
            "activation": activation,
            "input_shape": x.features.shape,
            "output_shape": y.features.shape,
            **more,
        }
        attributes = {key: value for key, value in attributes.items() if value is not None}
        return self.node("SparseConvolution", inputs, y, **attributes)

    def add(self, x, y, op="Add", **more):
        result = x.replace_feature(x.features + y.features)
        return self.node(op, [x, y], result, **more)

    def relu(self, x):
        return self.node("Relu", [x], x.replace_feature(torch.relu(x.features)))

    def dense(self, x, order="zyx", **more):
        result = x.dense()
        attributes = {"input_spatial_shape": x.spatial_shape, "format": order}
        attributes["output_shape"] = list(result.shape)
        return self.node("ScatterDense", [x], result, **{**attributes, **more})

    def permute(self, x, *dims):
        return self.node("Transpose", [x], x.permute(*dims), dims=dims)

    def view(self, x, *dims):
        return self.node("Reshape", [x], x.reshape(*dims), dims=dims)

    def save(self, path, *outputs, shape=(1,)):
        graph = helper.make_graph(
            self.nodes,
            "scn",
            [
                helper.make_tensor_value_info(
                    self.input, TensorProto.FLOAT16, [*shape, self.channels]
                )
            ],
            [
                helper.make_tensor_value_info(self.names[id(one)], TensorProto.FLOAT16, None)
                for one in outputs
            ],
            self.tensors,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_operatorsetid("ai.onnx", 11)])
        onnx.save_model(model, path)
        return path


def subm(ci, co, key=None, kernel=3, **how):
    return sp.SubMConv3d(ci, co, kernel, padding=1, indice_key=key, **how)


def down(ci, co, key=None, kernel=3, stride=2, padding=1):
    return sp.SparseConv3d(ci, co, kernel, stride, padding, indice_key=key)
