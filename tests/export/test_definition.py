# SPDX-License-Identifier: Apache-2.0
"""The definition in numpy: worked by hand, and against what voxeld answers."""

import json
import re

import numpy as np
import pytest
from conftest import ROOT, cloud
from definition_networks import NETWORKS, SHAPE, Net
from voxeld_export import ExportError
from voxeld_export.check import check_folder
from voxeld_export.definition import evaluate


def request(channels, shape=None):
    """(coords, feats) of three clouds, each a sample; without a spatial shape also below 0."""
    rng = np.random.default_rng(7)
    coords = []
    for sample, kind in ((0, "scatter"), (1, "sheet"), (5, "blob")):
        coords.append(np.array(cloud(kind, shape or SHAPE, 1)))
        coords[-1][:, 0] = sample
    coords = rng.permutation(np.concatenate(coords))
    if shape is None:
        coords[:, 1:] -= [5, 3, 400]
    return coords, rng.normal(size=(len(coords), channels)).astype(np.float32)


@pytest.mark.parametrize("name", NETWORKS)
def test_voxeld_answers_the_same(tmp_path, name):
    net = NETWORKS[name]()
    folder = net.write(tmp_path / "net")
    example = evaluate(folder, *request(net.channels, net.shape))
    assert set(example.outputs) == {x.get("name", x["layer"]) for x in net.outputs}
    check_folder(folder, example)


@pytest.mark.parametrize("name", ["strided", "predicted", "norms", "points"])
def test_one_voxel_far_away(tmp_path, name):
    net = NETWORKS[name]()
    folder = net.write(tmp_path / "net")
    at = [0, 0, 0] if net.shape else [-131072, 131071, 77]
    feats = np.ones((1, net.channels), np.float32)
    check_folder(folder, evaluate(folder, np.array([[511, *at]], np.int32), feats))


def test_every_op_and_layout_is_there():
    layers = [layer for make in NETWORKS.values() for layer in make().layers]
    table = (ROOT / "engine/network/ops.def").read_text()
    assert {x["op"] for x in layers} == set(
        re.findall(r'^VX_ROW\(\w+, "(\w+)"', table, re.MULTILINE)
    )
    table = (ROOT / "engine/network/layouts.def").read_text()
    assert {x["layout"] for x in layers if "layout" in x} == set(
        re.findall(r'^VX_ROW\(\w+, "(\w+)"', table, re.MULTILINE)
    )


def answer(tmp_path, net, coords, feats, **how):
    return evaluate(net.write(tmp_path / "net"), np.array(coords), np.array(feats), **how)


# Two voxels side by side along column 1, in a sample of their own two along column 3.  The number n
# of the weight is n, so that the answers say which numbers were read.
@pytest.mark.parametrize(
    "layout, shape, x, z",
    [
        ("spconv", (1, 3, 3, 3, 1), 22, 14),
        ("warpconvnet", (27, 1, 1), 22, 14),
        ("xyzio", (3, 3, 3, 1, 1), 22, 14),
        ("minkowski", (27, 1, 1), 14, 22),
        ("torchsparse", (27, 1, 1), 14, 22),
    ],
)
def test_which_number_is_read(tmp_path, layout, shape, x, z):
    net = Net(1).out("conv")
    net.add("conv", "subm_conv", "feats", 1, shape, kernel=3, bias=False, layout=layout)
    net.put("conv.weight", np.arange(27).reshape(shape))
    coords = [[0, 5, 5, 5], [0, 6, 5, 5], [1, 5, 5, 5], [1, 5, 5, 6]]
    out = answer(tmp_path, net, coords, [[1.0], [100.0], [1.0], [100.0]]).outputs["conv"][0]
    assert out[:, 0].tolist() == [
        13 + 100 * x,
        100 * 13 + (26 - x),  # the opposite offset
        13 + 100 * z,
        100 * 13 + (26 - z),
    ]


def test_one_offset_of_spconv_is_a_matrix(tmp_path):
    net = Net(2).out("conv", "shape")
    for name, layout in (("conv", "spconv"), ("shape", "flexgemm")):
        keys = {"kernel": 1, "bias": False, "layout": layout}
        net.add(name, "subm_conv", "feats", 3, (3, 1, 1, 1, 2), **keys)
        net.put(f"{name}.weight", np.arange(6).reshape(3, 1, 1, 1, 2))
    outputs = answer(tmp_path, net, [[0, 1, 1, 1]], [[1.0, 10.0]]).outputs
    assert outputs["conv"][0].tolist() == [[30, 41, 52]]
    assert outputs["shape"][0].tolist() == [[10, 32, 54]]


def test_sets_by_hand(tmp_path):
    """Along one axis of 6 voxels: 1, 2 and 5, by each rule, and back."""
    net = Net(1, (6, 1, 1))
    keys = {"kernel": [3, 1, 1], "stride": [2, 1, 1]}
    weight = {"channels": 1, "weight": (1, 3, 1, 1, 1), "bias": False, "layout": "oxyzi"}
    net.add("spconv", "sparse_conv", "feats", rule="spconv", **keys, **weight)
    net.add("padded", "sparse_conv", "feats", rule="spconv", padding=[1, 0, 0], **keys, **weight)
    net.add("floor", "sparse_conv", "feats", rule="floor", **keys, **weight)
    net.add("up", "inverse_conv", "padded", of="padded", **weight)
    net.add("max", "max_pool", "feats", rule="spconv", **keys)
    net.add("children", "transposed_conv", "floor", **keys, **weight)
    for name in ("spconv", "padded", "floor", "up", "children"):
        net.put(f"{name}.weight", np.array([1, 10, 100]).reshape(1, 3, 1, 1, 1))
    net.out("spconv", "padded", "floor", "up", "max", "children")
    coords = [[0, 5, 0, 0], [0, 1, 0, 0], [0, 2, 0, 0]]  # in no order
    outputs = answer(tmp_path, net, coords, [[-5.0], [1.0], [2.0]]).outputs
    rows = {
        name: (array[:, 0].tolist(), at if at is None else at[:, 1].tolist())
        for name, (array, at) in outputs.items()
    }
    # spconv: q reads 2q + k, in a shape of 2: voxel 5 is beyond it.
    assert rows["spconv"] == ([10 * 1 + 100 * 2, 1 * 2], [0, 1])
    # With padding q reads 2q - 1 + k, in a shape of 3.
    assert rows["padded"] == ([100 * 1, 1 * 1 + 10 * 2, 100 * -5], [0, 1, 2])
    assert rows["floor"] == rows["padded"]
    # p reads (p + 1 - k) / 2 where that is whole: 5 reads 2 at k = 2, and 3, which is not there.
    assert rows["up"] == ([100 * -500, 100 * 100 + 1 * 21, 10 * 21], None)
    assert rows["max"] == ([2, 2], [0, 1])
    # Each of 0, 1, 2 makes the voxels 2q - 1 + k.
    at = [-1, 0, 1, 2, 3, 4, 5]
    assert rows["children"] == ([100, 1000, 10021, 210, 2100 - 500, -5000, -50000], at)


def test_pools_of_what_is_below_zero(tmp_path):
    net = Net(1, (4, 4, 4))
    for rule in ("floor", "spconv"):
        net.add(f"max_{rule}", "max_pool", "feats", kernel=2, stride=2, rule=rule)
        net.add(f"avg_{rule}", "avg_pool", "feats", kernel=2, stride=2, rule=rule)
    net.all_out()
    outputs = answer(tmp_path, net, [[0, 0, 0, 0], [0, 1, 1, 1]], [[-3.0], [-1.0]]).outputs
    values = {name: float(array[0, 0]) for name, (array, _at) in outputs.items()}
    assert values == {"max_floor": -1, "max_spconv": 0, "avg_floor": -2, "avg_spconv": -2}


def test_children_by_hand(tmp_path):
    """Child x + 2 (y + 2 z) has the channel of its number, and is there if its logit says so."""
    net = Net(8)
    net.add("children", "channel_to_space", "feats", stride=2)
    net.add("live", "channel_to_space", "feats", stride=2, occupancy="feats")
    net.add("back", "space_to_channel", "children", stride=2)
    net.add("top", "prune", "live", keep="live", top=1)
    net.out("children", "live", "back", "top")
    feats = [[0.0, 1, 2, -3, 4, -5, 6, 7]]
    outputs = answer(tmp_path, net, [[3, 0, 0, -1]], feats).outputs
    array, at = outputs["children"]
    for (_sample, x, y, z), value in zip(at.tolist(), array[:, 0]):
        assert value == feats[0][x + 2 * (y + 2 * (z + 2))]
    assert outputs["live"][0][:, 0].tolist() == [4, 2, 6, 1, 7]  # by x, y, z
    assert outputs["live"][1].tolist()[0] == [3, 0, 0, -1]
    assert outputs["back"][0].tolist() == feats
    assert (outputs["top"][0].tolist(), outputs["top"][1].tolist()) == ([[7]], [[3, 1, 1, -1]])


def test_points_by_hand(tmp_path):
    net = Net(1)
    net.add("voxels", "voxelize", "feats", stride=4)
    net.add("points", "devoxelize", "voxels", mode="trilinear")
    net.add("near", "devoxelize", "voxels", mode="nearest")
    net.out("voxels", "points", "near")
    coords = [[0, 1, 0, 0], [0, 3, 0, 0], [0, 4, 0, 0]]
    outputs = answer(tmp_path, net, coords, [[2.0], [4.0], [8.0]]).outputs
    assert outputs["voxels"][0].tolist() == [[3], [8]]
    np.testing.assert_allclose(outputs["points"][0], [[4.25], [6.75], [8]], rtol=1e-7)
    assert outputs["near"][0].tolist() == [[3], [3], [8]]


def test_no_voxels(tmp_path):
    """A set that logits leave empty, and a request of none."""
    net = Net(1)
    net.add("none", "affine", "feats", scale=0, shift=-1)
    net.add("kept", "prune", "feats", keep="none")
    net.add("conv", "subm_conv", "kept", 2, (2, 3, 3, 3, 1), kernel=3)
    net.norm("norm", "group_norm", "conv", 2, groups=1)
    net.add("up", "upsample", "norm", stride=2)
    net.add("pool", "global_pool", "norm", mode="avg")
    net.add("labels", "argmax", "up")
    net.outputs = [{"layer": "pool"}, {"layer": "up"}, {"layer": "labels", "datatype": "INT32"}]
    folder = net.write(tmp_path / "net")
    coords, feats = request(1)
    for count in (len(coords), 0):
        example = evaluate(folder, coords[:count], feats[:count])
        assert [array.shape for array, _at in example.outputs.values()] == [(0, 2), (0, 2), (0, 1)]
        assert all(at.shape == (0, 4) for _array, at in example.outputs.values())
    with pytest.warns(UserWarning, match="the output pool has no rows, and nothing but that is"):
        check_folder(folder, evaluate(folder, coords, feats))


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_weights_and_outputs_of_16_bits(tmp_path, datatype):
    """Weights count as they are stored; an output is rounded once, at its end."""
    import ml_dtypes
    from safetensors.numpy import save_file

    kind = {"FP16": np.float16, "BF16": ml_dtypes.bfloat16}[datatype]
    net = Net(4).out("head")
    net.add("head", "subm_conv", "feats", 5, (27, 4, 5), kernel=3, layout="minkowski")
    folder = net.write(tmp_path / "net")
    rounded = {name: array.astype(kind) for name, array in net.tensors.items()}
    save_file(rounded, folder / "1" / "weights.safetensors")
    example = evaluate(folder, *request(4))
    check_folder(folder, example)
    document = json.loads((folder / "network.json").read_text())
    document["outputs"][0]["datatype"] = datatype
    (folder / "network.json").write_text(json.dumps(document))
    short = evaluate(folder, example.coords, example.feats).outputs["head"][0]
    assert short.dtype == kind and np.array_equal(short, example.outputs["head"][0].astype(kind))


def test_layers_for_a_recording(tmp_path):
    net = NETWORKS["dense"]()
    folder = net.write(tmp_path / "net")
    coords, feats = request(4, SHAPE)
    example, layers = evaluate(folder, coords, feats, layers="all")
    assert set(layers) == {layer["name"] for layer in net.layers}
    assert layers["grid"][0] is not None and layers["grid"][1] is None
    assert np.array_equal(layers["bev"][0], example.outputs["bev"][0])
    # What a layer answers as an output is what the recording has of it.
    net.outputs = [{"layer": "down"}]
    net.layers = net.layers[:1]
    other = evaluate(net.write(tmp_path / "other"), coords, feats).outputs["down"]
    for ours, theirs in zip(layers["down"], other):
        assert np.array_equal(ours, theirs)
    one = evaluate(folder, coords, feats, layers=["half"])[1]
    assert set(one) == {"half", "grid", "bev", "larger", "halves"}
    with pytest.raises(ExportError, match="has no layer halve"):
        evaluate(folder, coords, feats, layers=["halve"])


def spoilt(change):
    """What `change` makes of a network of one convolution."""
    net = Net(4, (20, 20, 20)).out("conv")
    net.add("conv", "subm_conv", "feats", 5, (27, 4, 5), kernel=3, layout="minkowski")
    change(net)
    return net


@pytest.mark.parametrize(
    "change, said",
    [
        (lambda n: n.layers[0].update(op="conv"), 'layer conv: op "conv" is unknown'),
        (lambda n: n.layers[0].pop("kernel"), "layer conv: the key 'kernel' is missing"),
        (lambda n: n.layers[0].pop("layout"), "allows several layouts; set one of torchsparse"),
        (lambda n: n.layers[0].update(layout="caffe"), 'layout "caffe" is unknown'),
        (lambda n: n.layers[0].update(layout="spconv"), "shape .27, 4, 5.; layout .spconv. has"),
        (lambda n: n.layers[0].update(input="stem"), "uses stem, which no layer above it is"),
        (lambda n: n.tensors.pop("conv.bias"), "no tensor conv.bias, which layer conv needs"),
        (lambda n: n.put("conv.bias", np.ones(6)), r"a bias of shape \[6\]; expected \[5\]"),
        (lambda n: setattr(n, "shape", (3, 3, 3)), "lies outside of the spatial shape"),
        (lambda n: setattr(n, "channels", 3), r"feats have shape .*; expected \[\d+, 3\]"),
    ],
)
def test_refused(tmp_path, change, said):
    folder = spoilt(change).write(tmp_path / "net")
    with pytest.raises(ExportError, match=said):
        evaluate(folder, *request(4, SHAPE))


def test_the_shape_of_a_dense_convolution_is_ambiguous(tmp_path):
    """PyTorch's Conv3d keeps [Co, Ci, K, K, K], which is [Co, K, K, K, Ci] too where Ci is K."""
    net = Net(3).out("conv")
    net.add("conv", "subm_conv", "feats", 5, (5, 3, 3, 3, 3), kernel=3)
    said = r"\[5, 3, 3, 3, 3\] allows several layouts; set one of spconv, flexgemm, oxyzi.*Conv3d"
    with pytest.raises(ExportError, match=said):
        evaluate(net.write(tmp_path / "net"), *request(3, SHAPE))


def test_refused_requests(tmp_path):
    folder = spoilt(lambda n: setattr(n, "shape", None)).write(tmp_path / "net")
    feats = np.zeros((2, 4), np.float32)
    for coords, said in (
        ([[0, 1, 1, 1], [0, 1, 1, 1]], "comes twice"),
        ([[512, 1, 1, 1], [0, 1, 1, 1]], "sample 512; expected at most 511"),
        ([[0, 131072, 1, 1], [0, 1, 1, 1]], "axes of -131072 to 131071"),
    ):
        with pytest.raises(ExportError, match=said):
            evaluate(folder, coords, feats)
    with pytest.raises(ExportError, match="is not a network.json"):
        evaluate(tmp_path / "none", [[0, 1, 1, 1]], feats[:1])
    path = folder / "1" / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ExportError, match="conv.weight is damaged|conv.bias is damaged"):
        evaluate(folder, [[0, 1, 1, 1]], feats[:1])
