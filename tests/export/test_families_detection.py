# SPDX-License-Identifier: Apache-2.0
"""SECOND, CenterPoint, Part-A2 by name: against their definition, and against spconv's modules."""

import copy
import json
import warnings

import numpy as np
import pytest
import torch
from detectors import (
    FULL,
    FULL_BLOCKS,
    NETWORKS,
    SHAPE,
    Layers,
    SpconvLayers,
    answers,
    naming_of,
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

CHANNELS = (8, 12, 16, 20, 24)


def built(name, layers=None, channels_in=4, channels=CHANNELS, seed=1):
    """A reference with weights as after training."""
    chosen, make = NETWORKS[name]
    return chosen, randomise(make(layers or Layers(), channels_in, channels), seed)


def scales(chosen):
    return {} if chosen == "parta2" else {"multi_scale": True}


CASES = [(name, "FP32") for name in NETWORKS] + [
    (name, ("FP16", "BF16")[number % 2]) for number, name in enumerate(NETWORKS)
]


@pytest.mark.parametrize("name, datatype", CASES)
def test_definition(folder, tmp_path, name, datatype):
    """A whole detector's checkpoint: the sparse part is served, and the rest is named."""
    chosen, net = built(name)
    kind = ["street", "scatter", "sheet", "blob"][(sum(name.encode()) + len(datatype)) % 4]
    coords, feats = request(kind, samples=3)
    around = save(tmp_path / "detector.safetensors", net, naming_of(name))
    report, unused = proved(
        folder,
        chosen,
        open_checkpoint(tmp_path / "detector.safetensors"),
        answers(rounded(net, datatype), coords, feats, SHAPE, 3),
        coords,
        feats,
        datatype,
        spatial_shape=SHAPE,
        **scales(chosen),
    )
    assert all(difference.relative() <= 1e-5 for difference in report.differences)
    assert sorted(unused) == sorted(around)


@pytest.mark.parametrize("name", NETWORKS)
def test_spconv(folder, tmp_path, name):
    """The same structure in spconv's modules, whose state_dict it is."""
    chosen, net = built(name, SpconvLayers())
    assert set(net.state_dict()) == set(built(name)[1].state_dict())
    coords, feats = request("street")
    save(tmp_path / "detector.safetensors", net, naming_of(name))
    proved(
        folder,
        chosen,
        open_checkpoint(tmp_path / "detector.safetensors"),
        spconv_answers(net, coords, feats, SHAPE, 2),
        coords,
        feats,
        spatial_shape=SHAPE,
        **scales(chosen),
    )


@pytest.mark.parametrize(
    "kind, fold", [("street", False), ("scatter", True), ("sheet", True), ("blob", False)]
)
def test_clouds(folder, tmp_path, kind, fold):
    chosen, net = built("second openpcdet", channels_in=5)
    coords, feats = request(kind, channels=5, samples=4, seed=7)
    save(tmp_path / "second.safetensors", net, "openpcdet", prefix="")
    outputs = answers(net, coords, feats, SHAPE, 4)
    if not fold:
        flat, _ = outputs["spatial_features"]
        outputs["spatial_features"] = flat.reshape(4, CHANNELS[4], 2, *flat.shape[2:]), None
    report, _ = proved(
        folder,
        chosen,
        open_checkpoint(tmp_path / "second.safetensors"),
        outputs,
        coords,
        feats,
        spatial_shape=SHAPE,
        fold=fold,
    )
    assert [d.name for d in report.differences] == ["spatial_features"]
    assert report.differences[0].shape == ((4, 48, 6, 5) if fold else (4, 24, 2, 6, 5))


def test_full_size(folder, tmp_path):
    """SECOND as KITTI's: half a street in 41 x 1600 x 1408 voxels, weights of FP16."""
    chosen, net = built("second openpcdet", channels=FULL)
    shape = (41, 1600, 1408)
    coords, feats = request("street", shape, samples=1)
    save(tmp_path / "second.safetensors", net, "openpcdet")
    report, _ = proved(
        folder,
        chosen,
        open_checkpoint(tmp_path / "second.safetensors"),
        answers(rounded(net, "FP16"), coords, feats, shape, 1),
        coords,
        feats,
        "FP16",
        spatial_shape=shape,
    )
    assert report.differences[0].shape == (1, 256, 200, 176)


# Names of convolutions and norms as the libraries write them, for the published sizes.
PUBLISHED = {
    "second openpcdet": "conv_input.0:16,3,3,3,4 conv_input.1:16 conv1.0.0:16,3,3,3,16 "
    "conv1.0.1:16 conv2.0.0:32,3,3,3,16 conv2.0.1:32 "
    "conv2.1.0:32,3,3,3,32 conv2.1.1:32 conv2.2.0:32,3,3,3,32 "
    "conv2.2.1:32 conv3.0.0:64,3,3,3,32 conv3.0.1:64 conv3.1.0:64,3,3,3,64 conv3.1.1:64 "
    "conv3.2.0:64,3,3,3,64 conv3.2.1:64 conv4.0.0:64,3,3,3,64 conv4.0.1:64 conv4.1.0:64,3,3,3,64 "
    "conv4.1.1:64 conv4.2.0:64,3,3,3,64 conv4.2.1:64 conv_out.0:128,3,1,1,64 conv_out.1:128",
    "second mmdet3d": "conv_input.0:16,3,3,3,4 conv_input.1:16 E1.0.0:16,3,3,3,16 E1.0.1:16 "
    "E2.0.0:32,3,3,3,16 E2.0.1:32 E2.1.0:32,3,3,3,32 E2.1.1:32 E2.2.0:32,3,3,3,32 E2.2.1:32 "
    "E3.0.0:64,3,3,3,32 E3.0.1:64 E3.1.0:64,3,3,3,64 E3.1.1:64 E3.2.0:64,3,3,3,64 E3.2.1:64 "
    "E4.0.0:64,3,3,3,64 E4.0.1:64 E4.1.0:64,3,3,3,64 E4.1.1:64 E4.2.0:64,3,3,3,64 E4.2.1:64 "
    "conv_out.0:128,3,1,1,64 conv_out.1:128",
    "second det3d": "M0:16,3,3,3,4 M1:16 M3:16,3,3,3,16 M4:16 M6:32,3,3,3,16 M7:32 M9:32,3,3,3,32 "
    "M10:32 M12:32,3,3,3,32 M13:32 M15:64,3,3,3,32 M16:64 M18:64,3,3,3,64 M19:64 M21:64,3,3,3,64 "
    "M22:64 M24:64,3,3,3,64 M25:64 M27:64,3,3,3,64 M28:64 M30:64,3,3,3,64 M31:64 M33:64,3,3,3,64 "
    "M34:64 M36:64,3,3,3,64 M37:64 M39:128,3,1,1,64 M40:128",
    "centerpoint openpcdet": "conv_input.0:16,3,3,3,4 conv_input.1:16 B:conv1.0:16 B:conv1.1:16 "
    "conv2.0.0:32,3,3,3,16 conv2.0.1:32 B:conv2.1:32 B:conv2.2:32 conv3.0.0:64,3,3,3,32 "
    "conv3.0.1:64 B:conv3.1:64 B:conv3.2:64 conv4.0.0:128,3,3,3,64 conv4.0.1:128 B:conv4.1:128 "
    "B:conv4.2:128 conv_out.0:128,3,1,1,128 conv_out.1:128",
    "centerpoint mmdet3d": "conv_input.0:16,3,3,3,4 conv_input.1:16 N:E1.0:16 N:E1.1:16 "
    "E1.2.0:32,3,3,3,16 E1.2.1:32 N:E2.0:32 N:E2.1:32 E2.2.0:64,3,3,3,32 E2.2.1:64 N:E3.0:64 "
    "N:E3.1:64 E3.2.0:128,3,3,3,64 E3.2.1:128 N:E4.0:128 N:E4.1:128 conv_out.0:128,3,1,1,128 "
    "conv_out.1:128",
    "centerpoint det3d": "conv_input.0:16,3,3,3,4 conv_input.1:16 B:conv1.0:16 B:conv1.1:16 "
    "conv2.0:32,3,3,3,16 conv2.1:32 B:conv2.3:32 B:conv2.4:32 conv3.0:64,3,3,3,32 conv3.1:64 "
    "B:conv3.3:64 B:conv3.4:64 conv4.0:128,3,3,3,64 conv4.1:128 B:conv4.3:128 B:conv4.4:128 "
    "extra_conv.0:128,3,1,1,128 extra_conv.1:128",
}
DECODERS = {
    "parta2 openpcdet": "N:conv_up_t4:64 conv_up_m4.0:64,3,3,3,128 conv_up_m4.1:64 "
    "inv_conv4.0:64,3,3,3,64 inv_conv4.1:64 N:conv_up_t3:64 conv_up_m3.0:64,3,3,3,128 "
    "conv_up_m3.1:64 inv_conv3.0:32,3,3,3,64 inv_conv3.1:32 N:conv_up_t2:32 "
    "conv_up_m2.0:32,3,3,3,64 conv_up_m2.1:32 inv_conv2.0:16,3,3,3,32 inv_conv2.1:16 "
    "N:conv_up_t1:16 conv_up_m1.0:16,3,3,3,32 conv_up_m1.1:16 conv5.0.0:16,3,3,3,16 conv5.0.1:16",
    "parta2 mmdet3d": "N:lateral_layer4:64 merge_layer4.0:64,3,3,3,128 merge_layer4.1:64 "
    "upsample_layer4.0:64,3,3,3,64 upsample_layer4.1:64 N:lateral_layer3:64 "
    "merge_layer3.0:64,3,3,3,128 merge_layer3.1:64 upsample_layer3.0:32,3,3,3,64 "
    "upsample_layer3.1:32 N:lateral_layer2:32 merge_layer2.0:32,3,3,3,64 merge_layer2.1:32 "
    "upsample_layer2.0:16,3,3,3,32 upsample_layer2.1:16 N:lateral_layer1:16 "
    "merge_layer1.0:16,3,3,3,32 merge_layer1.1:16 upsample_layer1.0:16,3,3,3,16 "
    "upsample_layer1.1:16",
}
for _name, _naming in (("parta2 openpcdet", "openpcdet"), ("parta2 mmdet3d", "mmdet3d")):
    PUBLISHED[_name] = f"{PUBLISHED[f'second {_naming}']} {DECODERS[_name]}"


def published(text):
    """{tensor: shape} of a line of PUBLISHED."""
    shapes = {}

    def add(name, sizes):
        shapes[f"{name}.weight"] = sizes
        if len(sizes) == 1:
            for key in ("bias", "running_mean", "running_var"):
                shapes[f"{name}.{key}"] = sizes

    text = text.replace("E", "encoder_layers.encoder_layer").replace("M", "middle_conv.")
    for part in text.split():
        kind, _, block = part.partition(":") if part[:2] in ("B:", "N:") else ("", "", part)
        name, _, sizes = block.rpartition(":")
        sizes = tuple(int(size) for size in sizes.split(","))
        if not kind:
            add(name, sizes)
            continue
        for index in (1, 2):  # a residual block; N: without bias
            shapes[f"{name}.conv{index}.weight"] = (*sizes, 3, 3, 3, *sizes)
            if kind == "B":
                shapes[f"{name}.conv{index}.bias"] = sizes
            add(f"{name}.bn{index}", sizes)
    return shapes


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_names(name):
    """By hand from the sources: the references have these tensors, and so has the family."""
    channels = FULL_BLOCKS if name.startswith("centerpoint") else FULL
    chosen, net = built(name, channels=channels)
    state = {
        key: tuple(tensor.shape)
        for key, tensor in net.state_dict().items()
        if not key.endswith("num_batches_tracked")
    }
    assert state == published(PUBLISHED[name])
    network, _ = family(chosen).network(Random(), naming=naming_of(name), channels_in=4)
    named = {k: v.shape for k, v in network.tensors.items() if ".made_" not in k}
    assert named == state


def old(array, order):
    """A weight [Co, K, K, K, Ci] as older versions of spconv stored it."""
    return np.ascontiguousarray(np.transpose(array, order))


@pytest.mark.parametrize("name", ["second mmdet3d", "centerpoint det3d", "parta2 openpcdet"])
def test_weights_of_spconv_1(folder, name):
    """[K, K, K, Ci, Co], as mmcv's spconv and old checkpoints have it."""
    chosen, net = built(name)
    state = {key: tensor.numpy() for key, tensor in net.state_dict().items()}
    old_state = {k: old(v, (1, 2, 3, 4, 0)) if v.ndim == 5 else v for k, v in state.items()}
    coords, feats = request("street")
    proved(
        folder,
        chosen,
        Checkpoint(old_state),
        answers(net, coords, feats, SHAPE, 2),
        coords,
        feats,
        spatial_shape=SHAPE,
    )
    layers = json.loads((folder / "network.json").read_text())["layers"]
    assert {layer["layout"] for layer in layers if "layout" in layer} == {"xyzio"}


def checkpoint_of(name, change=None, **about):
    state = {key: tensor.numpy() for key, tensor in built(name, **about)[1].state_dict().items()}
    state = copy.deepcopy(state)
    if change:
        change(state)
    return Checkpoint(state, "model.pth")


def refused(name, checkpoint, *words, **options):
    chosen = family(name.split(" ")[0])
    with pytest.raises(ExportError) as error:
        chosen.network(checkpoint, **{**chosen.read(checkpoint), "spatial_shape": SHAPE, **options})
    for word in words:
        assert word in str(error.value), error.value


def test_a_tensor_is_missing():
    def change(state):
        del state["conv3.1.1.running_var"]

    refused(
        "second", checkpoint_of("second openpcdet", change), "lacks 1 ", "conv3.1.1.running_var"
    )


def test_a_weight_has_another_shape():
    def change(state):
        state["conv2.1.0.weight"] = state["conv2.1.0.weight"][..., :5]

    refused(
        "second",
        checkpoint_of("second openpcdet", change),
        "conv2.1.0.weight has shape [12, 3, 3, 3, 5]",
        "[12, 3, 3, 3, 12] (spconv)",
        "[3, 3, 3, 12, 12] (xyzio)",
    )


def test_a_weight_of_two_layouts():
    """Three channels in and out and a kernel of three: the shape tells nothing."""
    name = "second openpcdet"
    checkpoint = checkpoint_of(name, channels_in=3, channels=(3, 12, 16, 20, 24))
    refused(name, checkpoint, "conv_input.0.weight has shape [3, 3, 3, 3, 3]", "spconv and xyzio")


@pytest.mark.parametrize("name", ["second det3d", "centerpoint openpcdet", "parta2 mmdet3d"])
def test_a_shape_that_no_tensor_tells(name):
    """A default would be right for one data set and one size of voxels: the error says where."""
    chosen, checkpoint = family(name.split(" ")[0]), checkpoint_of(name)
    with pytest.raises(ExportError) as error:
        chosen.network(checkpoint, **chosen.read(checkpoint))
    for word in (
        "model.pth: no tensor tells spatial_shape: voxels along each axis, z first",
        "OpenPCDet: grid_size reversed, and one more along z; mmdetection3d: sparse_shape",
        "for example --set spatial_shape=41,1600,1408",
    ):
        assert word in str(error.value), error.value


@pytest.mark.parametrize(
    "name, options, said",
    [
        ("second openpcdet", {}, "last_pad=0"),
        ("parta2 openpcdet", {}, "last_pad=0"),
        ("second openpcdet", {"last_pad": 1}, None),
        ("second mmdet3d", {}, None),  # has no such option
        ("second det3d", {}, "depths=1,2,3,3"),  # one list of layers
        ("centerpoint det3d", {}, None),
    ],
)
def test_what_is_assumed(name, options, said):
    """The description says what neither a tensor nor the user told."""
    chosen, checkpoint = family(name.split(" ")[0]), checkpoint_of(name)
    given = {**chosen.read(checkpoint), "spatial_shape": SHAPE, **options}
    about = chosen.network(checkpoint, **given)[0].description
    assert about.partition("; assumed, as no tensor tells: ")[2] == (said or "")


@pytest.mark.parametrize(
    "shape, swapped", [((1440, 1440, 41), True), ((1408, 1600, 41), True), ((48, 48, 48), False)]
)
def test_axes_that_are_swapped(shape, swapped):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        family("second").network(Random(), channels=CHANNELS, spatial_shape=shape)
    said = [str(one.message) for one in found if "are the axes swapped?" in str(one.message)]
    assert len(said) == swapped
    assert not swapped or f"spatial_shape is {','.join(map(str, shape))}" in said[0]


@pytest.mark.parametrize(
    "last_pad, padding", [((0,), None), (1, 1), ((1,), 1), ((1, 0, 0), [1, 0, 0])]
)
def test_the_last_padding(last_pad, padding):
    """One number pads all axes, as in spconv."""
    given = {"channels": CHANNELS, "spatial_shape": SHAPE, "last_pad": last_pad}
    network, _ = family("second").network(Random(), **given)
    assert network.layer("conv_out.0").get("padding") == padding


def test_another_network():
    refused("second", checkpoint_of("centerpoint openpcdet"), "lacks", "conv2.1.0.weight")
    chosen = family("parta2")
    with pytest.raises(ExportError, match="model.pth is no parta2: it has none of conv_up_t4"):
        chosen.read(checkpoint_of("second openpcdet"))


@pytest.mark.parametrize(
    "shape, words",
    [
        ((5, 48, 40), ("conv4.0.0: ", "along axis z", "larger spatial_shape than 5,48,40")),
        ((17, 48, 40), ("conv_out.0: 2 voxels are left along axis z", "reaches over 3")),
        ((41, 48), ("spatial_shape is 41,48; expected z,y,x",)),
        ((41, 0, 40), ("spatial_shape is 41,0,40",)),
    ],
)
def test_a_shape_that_does_not_fit(shape, words):
    refused("second", checkpoint_of("second openpcdet"), *words, spatial_shape=shape)


def test_options_that_do_not_fit():
    for options, word in (
        ({"channels": (16, 32)}, "channels are 16,32; expected 5 above 0"),
        ({"depths": (1, 2)}, "depths are 1,2; expected 4 above 0"),
        ({"last_pad": (1, 0)}, "last_pad is 1,0; expected one number for all axes, or three"),
    ):
        with pytest.raises(ExportError, match=word):
            family("second").network(Random(), **options)
    with pytest.raises(ExportError, match="take the family second"):
        family("centerpoint").network(Random(), naming="det3d", residual=False)


@pytest.mark.parametrize("name", ["second", "centerpoint", "parta2"])
def test_random_weights_keep_the_size(name):
    """Features of the last stage are neither lost nor beyond FP16."""
    chosen = family(name)
    small = {"channels": CHANNELS, "spatial_shape": SHAPE}
    network, unused = chosen.network(Random(seed=3), **small)
    state = {k: torch.from_numpy(v) for k, v in network.tensors.items() if ".made_" not in k}
    coords, feats = request("street", channels=chosen.options["channels_in"])
    _, net = built(f"{name} openpcdet", channels_in=feats.shape[1])
    net.load_state_dict(state, strict=False)
    largest = np.abs(answers(net, coords, feats, SHAPE, 2)["spatial_features"][0]).max()
    assert unused == [] and 0.1 < largest < 100
