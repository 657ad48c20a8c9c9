# SPDX-License-Identifier: Apache-2.0
"""VoxelNeXt by name, to its heads: against its definition, and against spconv's modules."""

import numpy as np
import pytest
import torch
from detectors import (
    SHAPE,
    FlatLayers,
    SpconvLayers,
    VoxelNeXt,
    answers,
    open_checkpoint,
    proved,
    randomise,
    request,
    rounded,
    save,
    spconv_answers,
)
from voxeld_export.errors import ExportError
from voxeld_export.families import Checkpoint, Random, family

SMALL = {
    "channels_in": 4,
    "channels": (8, 12, 16, 20, 20),
    "out": 24,
    "kernels": (3, 3, 3, 3),
    "heads": (1, 2),
    "branches": {"center": 2, "center_z": 1, "dim": 3, "rot": 2, "vel": 2},
    "kernel": 1,
}
# As configured for nuScenes; for Waymo, large; and other numbers.
SIZES = {
    "nuscenes": {},
    "waymo": {
        "kernels": (5, 5, 3, 3),
        "heads": (3,),
        "branches": {"center": 2, "center_z": 1, "dim": 3, "rot": 2, "iou": 1},
        "kernel": 3,
    },
    "wide": {"kernels": (3, 5, 3, 5), "heads": (4,), "convs": 3, "bias": False, "kernel": 3},
}


CLOUDS = {"street": 1200, "scatter": 30, "sheet": 300, "blob": 30}  # kinds, and voxels of them


def built(size, layers=None):
    return randomise(VoxelNeXt(layers or FlatLayers(), **{**SMALL, **SIZES[size]}))


def places(coords, shape=SHAPE, kernel=3):
    """Places of conv4, and of conv5 and conv6, of a cloud, by the rule of spconv."""
    from reference.sparse import Sites, strided

    sites = [Sites(coords, 1, shape)]
    for _ in range(5):
        sites.append(strided(sites[-1], kernel, 2, kernel // 2, rule="spconv")[0])
    scaled = []
    for step, found in zip((1, 2, 4), sites[3:]):
        at = found.coords[:, [0, 2, 3]] * [1, step, step]
        scaled.append({tuple(row) for row in at.tolist()})
    return scaled


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", CLOUDS)
def test_definition(folder, tmp_path, size, kind):
    """Each kind of cloud, each datatype: the heads, on the union of three stages' places."""
    datatype = ["FP32", "FP16", "BF16"][(len(size) + len(kind)) % 3]
    net = built(size)
    coords, feats = request(kind, samples=3, voxels=CLOUDS[kind])
    save(tmp_path / "detector.safetensors", net, "openpcdet", prefix="")
    report, unused = proved(
        folder,
        "voxelnext",
        open_checkpoint(tmp_path / "detector.safetensors"),
        answers(rounded(net, datatype), coords, feats, SHAPE, 3),
        coords,
        feats,
        datatype,
        spatial_shape=SHAPE,
        multi_scale=True,
    )
    heads = len({**SMALL, **SIZES[size]}["heads"])
    assert {d.name for d in report.differences} == {f"head{i}" for i in range(heads)} | {
        f"x_conv{i}" for i in (1, 2, 3, 4)
    }
    assert sorted(unused) == [
        "backbone_2d.blocks.0.1.weight",
        "dense_head.conv_cls.weight",
        "global_step",
    ]


def test_the_clouds_need_the_union():
    """There are places of each stage alone, or nothing would be tested."""
    for kind in ("scatter", "sheet", "blob"):
        one, two, four = places(request(kind, samples=3, voxels=CLOUDS[kind])[0])
        assert one - two - four and two - one - four
        assert four - one - two or kind == "sheet"


def test_a_lone_voxel(folder):
    """Place 3 of conv4 makes places 0 and 4 of conv6: as far apart as they can be."""
    coords = np.array([[0, 8, 24, 24]], np.int32)
    one, _, four = places(coords)
    assert one == {(0, 3, 3)} and (0, 0, 0) in four
    net = built("nuscenes")
    feats = np.ones((1, 4), np.float32)
    state = {key: tensor.numpy() for key, tensor in net.state_dict().items()}
    outputs = answers(net, coords, feats, SHAPE, 1)
    proved(folder, "voxelnext", Checkpoint(state), outputs, coords, feats, spatial_shape=SHAPE)


@pytest.mark.parametrize("shape", [(41, 43, 38), (40, 64, 24), (23, 9, 50)])
def test_shapes_of_no_even_size(folder, shape):
    """The ground is as large as conv4's set, whatever the stages behind it round up to."""
    net = built("nuscenes")
    coords, feats = request("scatter", shape, voxels=60)
    state = {key: tensor.numpy() for key, tensor in net.state_dict().items()}
    outputs = answers(net, coords, feats, shape, 2)
    proved(folder, "voxelnext", Checkpoint(state), outputs, coords, feats, spatial_shape=shape)


@pytest.mark.parametrize("size", SIZES)
def test_spconv(folder, size):
    net = built(size, SpconvLayers())
    assert set(net.state_dict()) == set(built(size).state_dict())
    coords, feats = request("street", voxels=1000)
    state = {key: tensor.numpy() for key, tensor in net.state_dict().items()}
    outputs = spconv_answers(net, coords, feats, SHAPE, 2)
    proved(
        folder,
        "voxelnext",
        Checkpoint(state),
        outputs,
        coords,
        feats,
        spatial_shape=SHAPE,
        multi_scale=True,
    )


def test_weights_of_spconv_1(folder):
    """[K, K, Ci, Co] of the layers of two axes, too."""
    net = built("waymo")
    state = {}
    for key, tensor in net.state_dict().items():
        if tensor.dim() > 2:
            co, *sizes, ci = tensor.shape
            # Of a kernel of one offset spconv 2 has the numbers of (Ci, Co), under another shape.
            one = all(size == 1 for size in sizes)
            moved = tensor.permute(*range(1, tensor.dim()), 0)
            tensor = tensor.reshape(*sizes, ci, co) if one else moved.contiguous()
        state[key] = tensor.numpy()
    coords, feats = request("street", voxels=1000)
    outputs = answers(net, coords, feats, SHAPE, 2)
    proved(folder, "voxelnext", Checkpoint(state), outputs, coords, feats, spatial_shape=SHAPE)


def test_the_backbone_alone(folder):
    """A state_dict of VoxelResBackBone8xVoxelNeXt: the output is what heads would read."""
    net = built("nuscenes")
    state = {key: tensor.numpy() for key, tensor in net.backbone_3d.state_dict().items()}
    coords, feats = request("street", voxels=1000)
    report, _ = proved(
        folder,
        "voxelnext",
        Checkpoint(state),
        answers(net, coords, feats, SHAPE, 2),
        coords,
        feats,
        spatial_shape=SHAPE,
    )
    assert [d.name for d in report.differences] == ["features"]


def test_a_checkpoint_tells_the_options():
    for size, changes in SIZES.items():
        state = {key: tensor.numpy() for key, tensor in built(size).state_dict().items()}
        told = family("voxelnext").read(Checkpoint(state))
        wanted = {**SMALL, "convs": 2, "bias": True, **changes}
        assert told == {
            "naming": "openpcdet",
            "channels_in": wanted["channels_in"],
            "channels": wanted["channels"],
            "out_channels": wanted["out"],
            "kernels": wanted["kernels"],
            "heads": wanted["heads"],
            "branches": ",".join(wanted["branches"]),
            "head_kernel": wanted["kernel"],
            "head_convs": wanted["convs"],
            "head_bias": wanted["bias"],
        }


def test_published_names():
    """By hand from the sources, of the sizes for nuScenes."""
    network, _ = family("voxelnext").network(Random())
    shapes = {key: array.shape for key, array in network.tensors.items() if ".made_" not in key}
    for name, shape in {
        "backbone_3d.conv_input.0.weight": (16, 3, 3, 3, 5),
        "backbone_3d.conv1.1.conv2.bias": (16,),
        "backbone_3d.conv4.0.0.weight": (128, 3, 3, 3, 64),
        "backbone_3d.conv5.0.1.running_mean": (128,),
        "backbone_3d.conv6.2.bn2.weight": (128,),
        "backbone_3d.shared_conv.0.bias": (128,),
        "dense_head.heads_list.5.hm.1.bias": (2,),
        "dense_head.heads_list.0.center_z.0.1.running_var": (128,),
    }.items():
        assert shapes[name] == shape, name
    # Weights of layers of two axes have the flat one beside the others in the weights file, and
    # are read from there, too.
    tensors = {key: a for key, a in network.tensors.items() if ".made_" not in key}
    again = family("voxelnext").read(Checkpoint(tensors))
    copy, _ = family("voxelnext").network(Checkpoint(tensors), **again, spatial_shape=SHAPE)
    assert all((copy.tensors[key] == array).all() for key, array in tensors.items())
    assert shapes["backbone_3d.conv_out.0.weight"] == (128, 1, 3, 3, 128)
    assert shapes["dense_head.heads_list.2.vel.1.weight"] == (2, 1, 1, 1, 128)
    full = {**SMALL, "channels_in": 5, "channels": (16, 32, 64, 128, 128), "out": 128}
    net = VoxelNeXt(FlatLayers(), **{**full, "heads": (1, 2, 2, 1, 2, 2)})
    state = {k: v for k, v in net.state_dict().items() if not k.endswith("num_batches_tracked")}
    assert set(state) == set(shapes)
    assert all(shapes[key] == tensor.shape for key, tensor in state.items() if tensor.dim() != 4)


def refused(word, **options):
    with pytest.raises(ExportError, match=word):
        family("voxelnext").network(Random(), **options)


def test_options_that_do_not_fit():
    refused("branch speed; expected some of center", branches="center,speed")
    refused("take the naming openpcdet, or heads=0", naming="backbone")
    refused("expected five channels .* and four kernels", kernels=(3, 3))
    refused("adds 4 outputs to those of 6 heads; a network has at most 8", multi_scale=True)
    refused("66 voxels are left along z at conv4; expected at most 64", spatial_shape=(527, 64, 64))


def test_a_tensor_of_a_head_is_missing():
    state = {key: tensor.numpy() for key, tensor in built("nuscenes").state_dict().items()}
    del state["dense_head.heads_list.1.rot.1.weight"]
    checkpoint = Checkpoint(state)
    with pytest.raises(ExportError, match="lacks 1 .* dense_head.heads_list.1.rot.1.weight"):
        chosen = family("voxelnext")
        chosen.network(checkpoint, **{**chosen.read(checkpoint), "spatial_shape": SHAPE})
    with pytest.raises(ExportError, match="no tensor tells spatial_shape: voxels along each axis"):
        chosen.network(checkpoint, **chosen.read(checkpoint))  # sparse outputs show nothing of it


def test_random_weights_keep_the_size():
    net = VoxelNeXt(FlatLayers(), **{**SMALL, "channels_in": 5})
    network, _ = family("voxelnext").network(
        Random(seed=3),
        channels=SMALL["channels"],
        out_channels=24,
        heads=SMALL["heads"],
        spatial_shape=SHAPE,
    )
    state = net.state_dict()
    for key, array in network.tensors.items():
        if key in state:
            state[key] = torch.from_numpy(array).reshape(state[key].shape)
    net.load_state_dict(state)
    coords, feats = request("street", channels=5)
    rows, _ = answers(net.eval(), coords, feats, SHAPE, 2)["features"]
    assert 0.1 < np.abs(rows).max() < 1000
