# SPDX-License-Identifier: Apache-2.0
"""libspconv's ONNX files, against spconv's own modules with the same weights."""

import json
import warnings

import numpy as np
import onnx
import pytest
import spconv.pytorch as sp
import torch
from conftest import cloud
from libspconv_file import File, down, subm
from onnx import TensorProto, helper
from voxeld_export import CheckFailed, ExportError, from_onnx
from voxeld_export.definition import evaluate
from voxeld_export.example import Example

SHAPE = (19, 24, 20)


def request(kind="sheet", shape=SHAPE, channels=5, samples=2):
    coords = cloud(kind, shape, samples)
    torch.manual_seed(3)
    feats = torch.randn(len(coords), channels).half().float()
    return sp.SparseConvTensor(feats, coords, list(shape), samples)


def recorded(x, **outputs):
    """An Example with what spconv's modules answer; rows with coordinates in another order."""
    found = {}
    for name, y in outputs.items():
        if not isinstance(y, sp.SparseConvTensor):
            found[name] = y.detach().numpy(), None
            continue
        order = np.random.default_rng(5).permutation(len(y.indices))
        found[name] = y.features.detach().numpy()[order], y.indices.numpy()[order]
    return Example(x.indices.numpy(), x.features.numpy(), found)


def document(folder):
    return json.loads((folder / "network.json").read_text())


def plain(file, x):
    """An encoder of SECOND's and CenterPoint's kind: three levels, and one along the height."""
    x = file.conv(subm(5, 8, "subm1"), x, "ReLU")
    x = file.conv(subm(8, 8, "subm1"), x, "ReLU")
    x = file.conv(down(8, 12, "spconv2"), x, "ReLU")
    x = file.conv(subm(12, 12, "subm2", bias=False), x, "ReLU")
    x = file.conv(down(12, 16, "spconv3", padding=(0, 1, 1)), x, "ReLU")
    x = file.conv(subm(16, 16, "subm3"), x, "Sigmoid")
    x = file.conv(down(16, 10, "down2", (3, 1, 1), (2, 1, 1), 0), x, "ReLU")
    return file.dense(x)


def residual(file, x):
    """CenterPoint's: blocks of two convolutions whose sum is activated."""
    x = file.conv(subm(5, 8, "res0"), x, "ReLU")
    for level, (ci, co) in enumerate(((8, 8), (8, 12), (12, 16))):
        if level:
            x = file.conv(down(ci, co), x, "ReLU")
        for _block in range(2):
            y = file.conv(subm(co, co, f"res{level}"), x, "ReLU")
            y = file.conv(subm(co, co, f"res{level}"), y)
            x = file.relu(file.add(y, x))
    return file.dense(file.conv(down(16, 10, None, (3, 1, 1), (2, 1, 1), 0), x, "ReLU"))


def folded(file, dense):
    n, c, d, h, w = dense.shape
    return file.view(dense, n, c * d, h, w)


@pytest.mark.parametrize("kind", ["scatter", "sheet", "blob"])
@pytest.mark.parametrize("encoder", [plain, residual])
def test_encoder(folder, tmp_path, encoder, kind):
    x = request(kind)
    file = File(x)
    bev = folded(file, encoder(file, x))
    path = file.save(tmp_path / "scn.onnx", bev)
    report = from_onnx(path, folder, example=recorded(x, out=bev))
    assert report.differences[0].shape == tuple(bev.shape)
    assert document(folder)["inputs"]["coords"]["spatial_shape"] == list(SHAPE)
    assert document(folder)["description"] == "from scn.onnx"


def test_nobody_gives_an_example(folder, tmp_path):
    """Then the proof's source is the definition, which spconv's modules agree with, too."""
    x = request()
    file = File(x)
    bev = folded(file, residual(file, x))
    path = file.save(tmp_path / "scn.onnx", bev)
    report = from_onnx(path, folder)
    ours = evaluate(folder, x.indices.numpy(), x.features.numpy()).outputs["out"][0]
    theirs = bev.detach().numpy()
    assert report.differences[0].shape[0] == 1
    assert np.abs(ours - theirs).max() <= 1e-5 * np.abs(theirs).max()
    # Weights are as the file has them, under its names.
    from safetensors.numpy import load_file

    weights = load_file(folder / "1" / "weights.safetensors")
    assert weights["spconv0.weight"].dtype == np.float16
    assert set(weights) == {one.name for one in file.tensors}
    # A request alone is an example, too.
    from_onnx(path, folder, example=recorded(x))
    assert len(Example.open(folder / "example.npz").coords) == len(x.indices)


def test_inverse_and_several_outputs(folder, tmp_path):
    x = request()
    file = File(x)
    fine = file.conv(subm(5, 8, "s"), x, "ReLU")
    coarse = file.conv(down(8, 12, "d"), fine, "ReLU")
    back = file.conv(sp.SparseInverseConv3d(12, 8, 3, indice_key="d"), coarse, "ReLU")
    joined = file.add(back, fine, op="QuantAdd")
    path = file.save(tmp_path / "unet.onnx", coarse, joined)
    names = [file.names[id(one)] for one in (coarse, joined)]
    example = recorded(x, **{names[0]: coarse, "out" + names[1]: joined})
    report = from_onnx(path, folder, example=example)
    assert [d.name for d in report.differences] == ["out" + name for name in names]
    # One output, named: what only the other needs is left out.
    outputs = {names[0]: "coarse"}
    from_onnx(path, folder, example=recorded(x, coarse=coarse), outputs=outputs)
    assert [layer["op"] for layer in document(folder)["layers"]] == [
        *("subm_conv", "relu", "sparse_conv", "relu")
    ]


@pytest.mark.parametrize("order, dims", [("xyz", (0, 1, 4, 2, 3)), ("zyx", (0, 1, 2, 4, 3))])
def test_turned_axes(folder, tmp_path, order, dims):
    """BEVFusion's exporter turns the dense tensor; here requests send turned coordinates."""
    x = request("scatter", (14, 22, 11))
    file = File(x)
    y = file.conv(subm(5, 8, "s", (3, 1, 5)), x, "ReLU")
    y = file.conv(down(8, 12, "d", (3, 2, 1), (2, 1, 3), (1, 0, 0)), y, "ReLU")
    turned = file.permute(file.dense(y, order), *dims)
    path = file.save(tmp_path / "scn.onnx", folded(file, turned), y)
    bev, sparse = (file.names[id(one)] for one in (file.kept[-1], y))
    example = recorded(x, **{bev: file.kept[-1], sparse: y})
    with pytest.warns(UserWarning, match="columns of coords: sample, z, x, y, where the file has"):
        from_onnx(path, folder, example=example)
    columns = [dim - 2 for dim in dims[2:]]
    shape = [(14, 22, 11)[column] for column in columns]
    assert document(folder)["inputs"]["coords"]["spatial_shape"] == shape
    assert "columns of coords: sample, z, x, y" in document(folder)["description"]
    sent = Example.open(folder / "example.npz").coords
    assert np.array_equal(sent[:, 1:], x.indices.numpy()[:, 1:][:, columns])


def test_one_offset(folder, tmp_path):
    """spconv 2 uses such a weight as (Ci, Co); mmdetection3d's exporter writes what it says."""
    x = request()
    file = File(x)
    module = subm(5, 8, None, 1)
    path = file.save(tmp_path / "scn.onnx", file.conv(module, x))
    with pytest.raises(ExportError, match=r'kernel of one offset.*ones="spconv" if spconv 2'):
        from_onnx(path, folder)
    y = file.kept[-1]
    from_onnx(path, folder, example=recorded(x, out=y), ones="spconv")
    with pytest.raises(CheckFailed):
        from_onnx(path, folder, example=recorded(x, out=y), ones="oxyzi")
    said = File(x)
    weight = module.weight.data.reshape(5, 8).T.reshape(8, 1, 1, 1, 5)
    path = said.save(tmp_path / "other.onnx", said.conv(module, x, weight=weight))
    from_onnx(path, folder, example=recorded(x, out=said.kept[-1]), ones="oxyzi")


def test_int8_ranges_are_said(folder, tmp_path):
    """A file of quantisation-aware training: its 16-bit weights count."""
    x = request()
    file = File(x)
    int8 = {"precision": "int8", "output_precision": "fp16", "input_dynamic_range": 3.5}
    y = file.conv(subm(5, 5), x, weight_dynamic_ranges=[0.5] * 5, **int8)
    y = file.add(y, x, input0_dynamic_range=1.5, input1_dynamic_range=1.5, precision="fp16")
    bev = file.dense(y, input_dynamic_range=0.0, output_layout="NCHW")
    bev = file.view(bev, 2, -1, *SHAPE[1:])
    path = file.save(tmp_path / "qat.onnx", bev)
    with pytest.warns(UserWarning, match="INT8 ranges of 2 nodes are not used"):
        from_onnx(path, folder, example=recorded(x, out=bev))
    assert "INT8 ranges of 2 nodes are not used" in document(folder)["description"]


def test_what_the_parser_does_not_need(folder, tmp_path):
    """Attributes of newer and older exporters; weights as integers; no shape of the input."""
    x = request()
    file = File(x)
    file.raw = False
    absent = dict.fromkeys(
        ("ndim", "in_channels", "out_channels", "transposed", "inverse", "groups", "rulebook"),
    )
    absent.update(output_bound=None, output_padding=None, output_spatial_shape=None)
    y = file.conv(subm(5, 8), x, "ReLU", fixed_launch_points=10000, **absent)
    y = file.conv(down(8, 8), y, "ReLU", **absent)
    path = file.save(tmp_path / "scn.onnx", y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_onnx(path, folder, example=recorded(x, out=y))
    model = onnx.load(path)
    del model.graph.input[:]
    model.graph.input.append(helper.make_tensor_value_info("0", TensorProto.FLOAT16, None))
    for node in model.graph.node:
        node.name = ""
        kept = [one for one in node.attribute if one.name != "input_spatial_shape"]
        del node.attribute[:]
        node.attribute.extend(kept)
    onnx.save_model(model, path)
    with pytest.raises(
        ExportError, match=r"has no input_spatial_shape: give it \(spatial_shape=\)"
    ):
        from_onnx(path, folder)
    from_onnx(path, folder, example=recorded(x, out=y), spatial_shape=SHAPE)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.BFLOAT16])
@pytest.mark.parametrize("raw", [True, False])
def test_types_of_weights(folder, tmp_path, kind, raw):
    x = request()
    file = File(x)
    module = subm(5, 8)
    module.weight.data = module.weight.data.bfloat16().float()
    y = file.conv(module, x)
    file.tensors[0] = tensor = helper.make_tensor(
        "spconv0.weight", kind, [8, 3, 3, 3, 5], module.weight.data.reshape(-1).tolist()
    )
    if raw:
        file.tensors[0] = onnx.numpy_helper.from_array(
            onnx.numpy_helper.to_array(tensor), "spconv0.weight"
        )
        assert file.tensors[0].data_type == kind and file.tensors[0].raw_data
    path = file.save(tmp_path / "scn.onnx", y)
    for datatype in (None, "FP32", "BF16"):
        from_onnx(path, folder, example=recorded(x, out=y), datatype=datatype)
    with pytest.raises(ExportError, match='datatype "INT8"; expected one of FP32'):
        from_onnx(path, folder, datatype="INT8")
