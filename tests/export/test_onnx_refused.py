# SPDX-License-Identifier: Apache-2.0
"""What an ONNX file cannot be served for is named, with the node; damaged files are errors."""

import numpy as np
import onnx
import pytest
import spconv.pytorch as sp
from conftest import cloud
from libspconv_file import File, down, subm
from onnx import TensorProto, helper
from test_onnx import SHAPE, folded, recorded, request
from voxeld_export import CheckFailed, ExportError, from_onnx
from voxeld_export.example import Example
from voxeld_export.onnx_file import read_graph


@pytest.fixture(name="path")
def _path(tmp_path):
    """A file of every kind of node: 0 subm, 1 down, 2 inverse, 3 add, 4 relu, 5 to 7 dense."""
    x = request()
    file = File(x)
    y = file.conv(subm(5, 8, "s"), x, "ReLU")
    z = file.conv(down(8, 12, "d"), y, "ReLU")
    z = file.conv(sp.SparseInverseConv3d(12, 8, 3, indice_key="d"), z)
    z = file.relu(file.add(z, y))
    dense = file.permute(file.dense(z), 0, 1, 2, 4, 3)
    return file.save(tmp_path / "scn.onnx", folded(file, dense))


def changed(path, change):
    model = onnx.load(path)
    change(model.graph)
    path.write_bytes(model.SerializeToString())  # whatever the package thinks of it
    return path


def attribute(number, **values):
    """Sets attributes of a node; None removes one."""

    def change(graph):
        node = graph.node[number]
        for name, value in values.items():
            kept = [one for one in node.attribute if one.name != name]
            del node.attribute[:]
            node.attribute.extend(kept)
            if value is not None:
                node.attribute.append(helper.make_attribute(name, value))

    return change


def inputs(number, *names):
    def change(graph):
        del graph.node[number].input[:]
        graph.node[number].input.extend(names)

    return change


def op(number, name):
    return lambda graph: setattr(graph.node[number], "op_type", name)


def tensor(number, **values):
    def change(graph):
        one = graph.initializer[number]
        for name, value in values.items():
            one.ClearField(name)
            if isinstance(value, list):
                getattr(one, name).extend(value)
            else:
                setattr(one, name, value)

    return change


def both(*changes):
    return lambda graph: [change(graph) for change in changes]


CONV0 = r'node "sparseconvolution0" \(SparseConvolution\)'
REFUSED = {
    "an op": (op(4, "Sigmoid"), r'node "relu4" \(Sigmoid\) is no layer of voxeld\'s; expected one'),
    "no op": (op(4, ""), r'node "relu4" \(\) is no layer'),
    "an attribute": (attribute(0, alpha=0.5), CONV0 + " has the attribute alpha, whose meaning"),
    "of another op": (attribute(3, stride=[1, 1, 1]), "add3.* has the attribute stride"),
    "a slope": (
        attribute(0, activation="LeakyReLU"),
        CONV0 + ' has the activation "LeakyReLU"; expected .* as no file says its slope',
    ),
    "an activation": (attribute(0, activation="Mish"), CONV0 + ' has the activation "Mish"'),
    "groups": (attribute(0, groups=2), CONV0 + " has groups 2; expected 1"),
    "two axes": (attribute(0, ndim=2), CONV0 + " has ndim 2; expected 3"),
    "transposed": (attribute(1, transposed=1), "has transposed 1; expected 0"),
    "output padding": (attribute(1, output_padding=[1, 0, 0]), "has output_padding; expected none"),
    "no kernel": (attribute(0, kernel_size=None), CONV0 + " has no attribute kernel_size"),
    "a short kernel": (
        attribute(0, kernel_size=[3, 3]),
        CONV0 + r" has kernel_size \[3, 3\]; expected three integers of 1 to 343",
    ),
    "stride 0": (attribute(1, stride=[0, 1, 1]), r"stride \[0, 1, 1\]; expected .* 1 to 64"),
    "a text": (attribute(0, groups="one"), CONV0 + " has groups 'one'; expected an integer"),
    "a kernel": (
        attribute(0, kernel_size=[3, 3, 1]),
        r"spconv0.weight has shape \[8, 3, 3, 3, 5\]; expected \[Co, 3, 3, 1, 5\]",
    ),
    "an even kernel": (attribute(1, subm=1, kernel_size=[3, 3, 3], stride=[1, 2, 1]), "a stride"),
    "channels": (
        attribute(1, out_channels=13),
        "has out_channels 13; its weight has 12",
    ),
    "a shape": (
        attribute(1, output_spatial_shape=[9, 12, 10]),
        r"output_spatial_shape \[9, 12, 10\]; expected \[10, 12, 10\], which follows",
    ),
    "a padding": (
        attribute(1, padding=[0, 1, 1]),
        r"output_spatial_shape \[10, 12, 10\]; expected \[9, 12, 10\]",
    ),
    "a large kernel": (
        attribute(1, dilation=[30, 1, 1]),
        r"has a kernel larger than its voxels \[19, 24, 20\]",
    ),
    "a rulebook": (
        attribute(2, rulebook="e"),
        'is inverse with rulebook "e", which no strided SparseConvolution above it has',
    ),
    "no rulebook": (attribute(2, rulebook=None), 'is inverse with rulebook "None"'),
    "other voxels": (
        both(
            inputs(2, "1", "spconv1.weight"),
            attribute(2, input_spatial_shape=None, output_spatial_shape=None),
            attribute(2, in_channels=None, out_channels=None),
        ),
        "undoes sparseconvolution1 of kernel .* expected that kernel, and an input on the voxels",
    ),
    "two sets": (inputs(3, "2", "1"), "add3: add joins .* which lie on different sets"),
    "channels that differ": (inputs(3, "3", "0"), "of 8 channels and feats of 5; expected equal"),
    "one input": (inputs(3, "1"), r'node "add3" \(Add\) has 1 inputs; expected 2 to 2'),
    "a cycle": (inputs(0, "4", "spconv0.weight"), 'reads "4", which no node above it makes'),
    "no weight": (inputs(0, "0", "w"), CONV0 + ": the file has no tensor w"),
    "a dense tensor": (inputs(4, "6"), 'reads "6", which no node above'),
    "format": (attribute(5, format="yxz"), 'scatterdense5.* has format "yxz"; expected one of'),
    "layout": (attribute(5, output_layout="NHWzC"), 'has output_layout "NHWzC"; expected one of'),
    "dense shape": (
        attribute(5, output_shape=[2, 8, 19, 24, 21]),
        r"has output_shape \[2, 8, 19, 24, 21\]; expected \[N, 8, 19, 24, 20\]",
    ),
    "channels last": (
        attribute(6, dims=[0, 2, 3, 4, 1]),
        r"transpose6.* has dims \[0, 2, 3, 4, 1\]; expected an order of the three axes",
    ),
    "a view": (
        attribute(7, dims=[2, 8, 19, 480]),
        r"reshape7.* has dims \[2, 8, 19, 480\]; expected \[N, 8, 19, 20, 24\], or \[N, 152,",
    ),
    "no dims": (attribute(7, dims=None), "has dims None; expected"),
    "rows as dense": (inputs(7, "5"), 'reads "5"; expected what a ScatterDense makes'),
    "behind dense": (inputs(6, "8"), 'reads "8", which no node above'),
    "INT8 weights": (
        tensor(0, data_type=TensorProto.INT8),
        "the tensor spconv0.weight is INT8; expected FLOAT, FLOAT16, BFLOAT16 or DOUBLE",
    ),
    "a weight's rank": (tensor(0, dims=[8, 135]), r"spconv0.weight has shape \[8, 135\]"),
    "a weight's size": (
        tensor(0, dims=[8, 3, 3, 3, 6]),
        r"the tensor spconv0.weight has 1080 numbers; expected 1296",
    ),
    "a bias": (tensor(1, dims=[2, 4]), r"spconv0.bias has shape \[2, 4\]; expected \[8\]"),
    "elsewhere": (
        tensor(0, data_location=TensorProto.EXTERNAL),
        "the tensor spconv0.weight lies in another file",
    ),
    "half a number": (tensor(0, raw_data=b"abc"), "spconv0.weight ends within a number"),
    "no output": (lambda graph: graph.ClearField("output"), "the file has no output"),
    "an output": (
        lambda graph: setattr(graph.output[0], "name", "out"),
        "no node of the file makes the output out",
    ),
    "two inputs": (
        lambda graph: graph.input.append(graph.output[0]),
        "the file has 2 inputs; expected one",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(path, folder, name):
    change, said = REFUSED[name]
    with pytest.raises(ExportError, match=said):
        from_onnx(changed(path, change), folder, check=False)
    assert not folder.exists()


def test_a_relu_of_the_dense_tensor(tmp_path, folder):
    x = request()
    file = File(x)
    dense = file.dense(file.conv(subm(5, 8), x))
    late = file.node("Relu", [dense], dense.relu())
    path = file.save(tmp_path / "scn.onnx", late)
    with pytest.raises(ExportError, match=r'node "relu2" \(Relu\) reads the dense tensor "2"'):
        from_onnx(path, folder, check=False)


def test_dense_outputs_in_two_orders(tmp_path, folder):
    x = request()
    file = File(x)
    dense = file.dense(file.conv(subm(5, 8), x))
    one, other = file.permute(dense, 0, 1, 4, 2, 3), file.permute(dense, 0, 1, 3, 4, 2)
    path = file.save(tmp_path / "scn.onnx", dense, one)
    with pytest.raises(ExportError, match=r"output 2 has the columns of coords in the order"):
        from_onnx(path, folder, check=False)
    path = file.save(tmp_path / "scn.onnx", other, one)
    with pytest.raises(ExportError, match="expected one order of axes in a network"):
        from_onnx(path, folder, check=False)
    with pytest.warns(UserWarning, match="columns of coords"):
        from_onnx(path, folder, check=False, outputs={file.names[id(one)]: "bev"})


def test_one_rulebook_for_two_sets(tmp_path, folder):
    """As mmdetection3d's networks have it: libspconv would use the pairs of the first."""
    x = request()
    file = File(x)
    y = file.conv(down(5, 8), file.conv(subm(5, 5, "s"), x))
    path = file.save(tmp_path / "scn.onnx", file.conv(subm(8, 8, "t"), y, rulebook="s"))
    with pytest.raises(ExportError, match='sparseconvolution2.* have one rulebook "s", but other'):
        from_onnx(path, folder, check=False)


def test_only_what_an_output_needs_is_read(path, folder):
    """A head behind the chosen output may be anything."""
    changed(path, op(7, "Mystery"))
    from_onnx(path, folder, check=False, outputs={"1": "stem"})
    with pytest.raises(ExportError, match="no node of the file makes the output 99"):
        from_onnx(path, folder, check=False, outputs={"99": "stem"})


def test_recorded_answers_decide(tmp_path, folder):
    """The file is read as it is; answers of other weights fail the proof."""
    x = request()
    file = File(x)
    y = file.conv(subm(5, 8), x)
    path = file.save(tmp_path / "scn.onnx", y)
    other = recorded(x, out=y.replace_feature(y.features + 1))
    with pytest.raises(CheckFailed, match="answers other numbers than its source in out"):
        from_onnx(path, folder, example=other)
    with pytest.raises(ExportError, match="has an output bev; the network has out"):
        from_onnx(path, folder, example=recorded(x, bev=y))
    moved = recorded(x, out=y)
    moved.outputs["out"][1][0, 1] += 1
    with pytest.raises(ExportError, match="output out has other voxels than its request"):
        from_onnx(path, folder, example=moved)
    with pytest.raises(ExportError, match='ones "flexgemm"; expected one of spconv, oxyzi'):
        from_onnx(path, folder, ones="flexgemm")
    assert not folder.exists()


def test_no_file(tmp_path, folder):
    with pytest.raises(ExportError, match="cannot be read: No such file"):
        from_onnx(tmp_path / "none.onnx", folder)
    for data, said in (
        (b"", "is not an ONNX file: it has no graph"),
        (b"version https://git-lfs", "is a pointer of Git LFS"),
        (b"\x08\x07", "it has no graph"),
        (b"PK\x03\x04 a zip file", "is not an ONNX file"),
        (b"\x3a\xff\xff\xff\xff\x0f", "a field of 4294967295 bytes where 0 are left"),
        (b"\x38\x01", "a number stands where a message is expected"),
        (b"\x3a" + b"\xff" * 11, "a number of more than 10 bytes"),
        (b"\x3a\x02\x0b\x0c", "a field of wire type 3"),
    ):
        (tmp_path / "bad.onnx").write_bytes(data)
        with pytest.raises(ExportError, match=said):
            from_onnx(tmp_path / "bad.onnx", folder)


def test_every_cut_is_an_error(path, tmp_path):
    data = path.read_bytes()
    cut = tmp_path / "cut.onnx"
    end = len(data) - len(onnx.load(path).opset_import[0].SerializeToString()) - 2
    for size in [*range(300), *range(300, end, 97), end - 1]:
        cut.write_bytes(data[:size])
        with pytest.raises(ExportError):
            read_graph(cut)


@pytest.mark.filterwarnings("ignore:.*columns of coords")
def test_flipped_bytes_are_errors_or_numbers(path, tmp_path, folder):
    """A byte that is wrong makes another file or an error of ours, never another exception."""
    rng = np.random.default_rng(1)
    data = bytearray(path.read_bytes())
    flipped, refused = tmp_path / "flipped.onnx", 0
    graph = read_graph(path)
    weights = {at for one in graph.tensors.values() for at in _places(data, one)}
    others = sorted(set(range(len(data))) - weights)
    coords = np.array(cloud("scatter", SHAPE, 1))[:5]
    example = Example(coords, np.ones((len(coords), 5), np.float32))
    for at in rng.choice(others, 250):
        spoilt = data.copy()
        spoilt[at] ^= 1 << int(rng.integers(8))
        flipped.write_bytes(spoilt)
        try:
            from_onnx(flipped, folder, example=example, check=False)
        except ExportError:
            refused += 1
    assert refused > 100


def _places(data, tensor):
    """Where a tensor's numbers lie in the file."""
    raw = tensor.array().tobytes()
    first = data.find(raw)
    return range(first, first + len(raw))
