# SPDX-License-Identifier: Apache-2.0
"""MinkUNet, SparseResUNet, SpUNet, SPVCNN: served, and compared with references in torch."""

import pytest
import torch
from conftest import cloud
from reference import segmentation as published
from reference.sparse import Sites, Sparse, randomise, rounded
from voxeld_export import ExportError
from voxeld_export.check import check_folder
from voxeld_export.example import Example
from voxeld_export.families import Checkpoint, Random, family

KINDS = ["scatter", "sheet", "blob"]
FULL = (32, 64, 128, 256, 256, 128, 96, 96)
LAYERS_18, LAYERS_34 = (2,) * 8, (2, 3, 4, 6, 2, 2, 2, 2)

# Narrow, of unequal widths: no two sizes can be confused.  Some blocks change no channels.
PLANES, LAYERS = (8, 12, 16, 16, 20, 12, 10, 8), (1, 2, 1, 2, 2, 1, 1, 2)
SMALL = {"channels_in": 3, "classes": 5, "planes": PLANES, "layers": LAYERS, "stem": 8}
ARGUMENTS = (3, 5, PLANES, LAYERS, 8)

# (family, naming): (reference, what a checkpoint says of itself, what the user must say)
CASES = {
    ("minkunet18", "minkowski"): (lambda: published.MinkUNet(*ARGUMENTS), SMALL, {}),
    ("minkunet18", "spvnas"): (lambda: published.SpvnasUNet(*ARGUMENTS), SMALL, {}),
    ("minkunet34", "mmdet3d"): (lambda: published.Mmdet(*ARGUMENTS), SMALL, {}),
    ("minkunet34", "mmdet3d-minkowski"): (
        lambda: published.Mmdet(*ARGUMENTS, minkowski=True),
        SMALL,
        {},
    ),
    ("minkunet42", "torchsparse"): (
        lambda: published.SparseResUNet(3, PLANES, 8),
        {"channels_in": 3, "planes": PLANES, "layers": LAYERS_18, "stem": 8},
        {},
    ),
    ("spunet", "pointcept"): (lambda: published.SpUNet(*ARGUMENTS), SMALL, {}),
    ("spvcnn", "spvnas"): (lambda: published.SPVCNN(*ARGUMENTS, step=3), SMALL, {"step": 3}),
    ("spvcnn", "mmdet3d"): (lambda: published.Mmdet(*ARGUMENTS, points=True), SMALL, {}),
}
NAMES = [" ".join(case) for case in CASES]
SETTINGS = dict(zip(NAMES, CASES.values()))


def request(name, kind, channels=3, samples=3, shape=(22, 19, 25)):
    """A Sparse in float64; negative coordinates, but for spconv, which has none."""
    coords = cloud(kind, shape, samples).numpy()
    if not name.startswith("spunet"):
        coords[:, 1:] -= (7, 2, 5)
    torch.manual_seed(3)
    # Pointcept's shape: 96 voxels behind the last one of the batch.
    sites = Sites(coords, shape=coords[:, 1:].max(0) + 96)
    return Sparse(sites, torch.randn(len(coords), channels, dtype=torch.float64))


def answer(net, x):
    with torch.no_grad():
        return net.double()(x).numpy()


def compare(folder, network, net, x, datatype=None):
    """Serves the network and compares it with the reference, whose weights are the same."""
    network.write(str(folder), datatype)
    source = answer(rounded(net, datatype or "FP32"), x)
    (output,) = network.outputs
    feats = x.feats.float().numpy()
    example = Example(x.sites.coords, feats, {output["name"]: (source.astype("f4"), None)})
    return check_folder(str(folder), example)


def saved(net, path, prefix="", nested=None):
    """As training saves it."""
    tensors = {prefix + name: tensor for name, tensor in net.state_dict().items()}
    torch.save({nested: tensors, "epoch": 3} if nested else tensors, path)
    return str(path)


def loaded(name, path, **given):
    """(network, unused) of a checkpoint, with the options that it says itself."""
    chosen, naming = family(name.split()[0]), name.split()[1]
    checkpoint = Checkpoint.open(path)
    return chosen.network(checkpoint, **{**chosen.read(checkpoint, naming), **given})


# Each cloud with a family of voxels and one of points; the others have one of them each, in turn.
CLOUDS = [
    (name, kind)
    for number, name in enumerate(NAMES)
    for at, kind in enumerate(KINDS)
    if number % 3 == at or name in ("minkunet18 minkowski", "spvcnn spvnas")
]


@pytest.mark.parametrize("name, kind", CLOUDS)
def test_reference(tmp_path, folder, name, kind):
    make, said, given = SETTINGS[name]
    net = randomise(make())
    path = saved(net, tmp_path / "net.pth")
    chosen, naming = family(name.split()[0]), name.split()[1]
    assert chosen.read(Checkpoint.open(path)) == {**said, "naming": naming}
    network, unused = loaded(name, path, **given)
    assert unused == []
    compare(folder, network, net, request(name, kind))


@pytest.mark.parametrize(
    "name, datatype", [(name, ("FP16", "BF16")[at % 2]) for at, name in enumerate(NAMES)]
)
def test_datatypes(tmp_path, folder, name, datatype):
    make, _, given = SETTINGS[name]
    net = randomise(make(), seed=2)
    network, _ = loaded(name, saved(net, tmp_path / "net.pth"), **given)
    compare(folder, network, net, request(name, "sheet"), datatype)


def test_points_that_are_voxels(tmp_path, folder):
    """SPVCNN as it is published, a step of 1: layers that do nothing are left out."""
    net = randomise(published.SPVCNN(*ARGUMENTS))
    network, _ = loaded("spvcnn spvnas", saved(net, tmp_path / "net.pth"))
    assert network.description.endswith("; assumed, as no tensor tells: step=1")
    compare(folder, network, net, request("spvcnn", "blob"))
    ops = [layer["op"] for layer in network.layers]
    assert (ops.count("voxelize"), ops.count("devoxelize")) == (2, 2)


def test_other_depth(tmp_path, folder):
    """SpUNet's modules are counted from the finest resolution: with 2 steps they have others."""
    net = randomise(published.SpUNet(3, 0, (8, 12, 10, 6), (1, 2, 2, 1), 8))
    network, unused = loaded("spunet pointcept", saved(net, tmp_path / "net.pth"), classes=0)
    assert unused == [] and network.outputs[0]["name"] == "features"
    compare(folder, network, net, request("spunet", "scatter"))


def test_older_spconv(tmp_path, folder):
    """SpUNet as spconv 1 stored it: [Kx, Ky, Kz, Ci, Co]."""
    net = randomise(published.SpUNet(*ARGUMENTS))
    tensors = net.state_dict()
    for name, tensor in tensors.items():
        if tensor.dim() == 5:
            co, *kernel, ci = tensor.shape
            # The numbers of one offset lie as (Ci, Co) in spconv 2.
            one = kernel == [1, 1, 1]
            turned = tensor.reshape(1, 1, 1, ci, co) if one else tensor.permute(1, 2, 3, 4, 0)
            tensors[name] = turned.contiguous()
    torch.save(tensors, tmp_path / "net.pth")
    network, unused = loaded("spunet pointcept", str(tmp_path / "net.pth"))
    assert unused == []
    compare(folder, network, net, request("spunet", "sheet"))


# --- random weights of full size

WHOLE = {
    "minkunet18 minkowski": lambda: published.MinkUNet(4, 19, FULL, LAYERS_18),
    "minkunet18 spvnas": lambda: published.SpvnasUNet(4, 19, FULL, LAYERS_18),
    "minkunet18 mmdet3d": lambda: published.Mmdet(4, 19, FULL, LAYERS_18),
    "minkunet18 mmdet3d-minkowski": lambda: published.Mmdet(4, 19, FULL, LAYERS_18, minkowski=True),
    "minkunet34 minkowski": lambda: published.MinkUNet(4, 19, FULL, LAYERS_34),
    "minkunet34 mmdet3d": lambda: published.Mmdet(4, 19, FULL, LAYERS_34),
    "minkunet34 mmdet3d-minkowski": lambda: published.Mmdet(4, 19, FULL, LAYERS_34, minkowski=True),
    "minkunet42 torchsparse": lambda: published.SparseResUNet(4, FULL),
    "spunet pointcept": lambda: published.SpUNet(6, 20, FULL, LAYERS_34),
    "spvcnn spvnas": lambda: published.SPVCNN(4, 19, FULL, LAYERS_18),
    "spvcnn mmdet3d": lambda: published.Mmdet(4, 19, FULL, LAYERS_18, points=True),
}


def whole(name):
    """(network, reference) with the family's own options and random weights."""
    network, _ = family(name.split()[0]).network(Random(1), naming=name.split()[1])
    net = WHOLE[name]().eval()
    tensors = {key: torch.from_numpy(array) for key, array in network.tensors.items()}
    keys = net.load_state_dict(tensors, strict=False)
    assert not keys.unexpected_keys
    assert all(key.endswith("num_batches_tracked") for key in keys.missing_keys)
    return network, net


def sizes(net, x):
    """Root mean square and largest of every result on voxels, by module."""
    found = {}

    def look(name):
        def hook(module, given, result):
            if isinstance(result, Sparse):
                mean = float(result.feats.square().mean().sqrt())
                found[name] = (mean, float(result.feats.abs().max()))

        return hook

    handles = [module.register_forward_hook(look(name)) for name, module in net.named_modules()]
    with torch.no_grad():
        out = net(x)
    for handle in handles:
        handle.remove()
    found["out"] = (float(out.square().mean().sqrt()), float(out.abs().max()))
    return found


@pytest.mark.parametrize("name", WHOLE)
def test_scale(name):
    """Random weights keep features between 0.01 and 100 at all levels, in float16's range."""
    _, net = whole(name)
    coords, feats = family(name.split()[0]).request()
    sites = Sites(coords, shape=coords[:, 1:].max(0) + 96)
    found = sizes(net, Sparse(sites, torch.from_numpy(feats)))
    assert len(found) > 80
    for module, (mean, largest) in found.items():
        assert 1e-2 <= mean and largest <= 1e2, (module, mean, largest)


@pytest.mark.parametrize("name", ["minkunet34 minkowski", "spunet pointcept"])
def test_whole(folder, name):
    """The published widths and depths, served."""
    network, net = whole(name)
    x = request(name, "sheet", 6 if name.startswith("spunet") else 4, samples=2, shape=(20, 16, 18))
    compare(folder, network, net, x, "FP16")


# --- checkpoints


@pytest.mark.parametrize(
    "name, prefix, nested",
    [
        ("minkunet18 minkowski", "module.", "state_dict"),
        ("minkunet18 spvnas", "", "model"),
        ("minkunet34 mmdet3d", "module.", None),
        ("minkunet42 torchsparse", "backbone.", "model_state"),
        ("spunet pointcept", "module.backbone.", "state_dict"),
        ("spvcnn spvnas", "model_state.", None),
        ("spvcnn mmdet3d", "", "state_dict"),
    ],
)
def test_prefix(tmp_path, name, prefix, nested):
    """What training puts around the names, and other tensors beside: the same network."""
    make, _, given = SETTINGS[name]
    net = randomise(make())
    plain, _ = loaded(name, saved(net, tmp_path / "plain.pth"), **given)
    network, unused = loaded(name, saved(net, tmp_path / "net.pth", prefix, nested), **given)
    assert unused == []
    assert network.document()["layers"] == plain.document()["layers"]
    for key, array in plain.tensors.items():
        assert (network.tensors[key] == array).all()


MIDDLE = {
    "minkunet18 minkowski": "block6.0.norm1.bn.running_mean",
    "minkunet18 spvnas": "up2.1.0.net.3.kernel",
    "minkunet34 mmdet3d": "backbone.decoder.3.1.1.net.4.weight",
    "minkunet34 mmdet3d-minkowski": "backbone.encoder.2.0.net.1.bn.bias",
    "minkunet42 torchsparse": "decoders.3.upsample.0.kernel",
    "spunet pointcept": "dec.2.block0.proj.0.weight",
    "spvcnn spvnas": "point_transforms.1.0.weight",
    "spvcnn mmdet3d": "decode_head.conv_seg.bias",
}


@pytest.mark.parametrize("name", MIDDLE)
def test_wrong_checkpoint(tmp_path, name):
    make, said, given = SETTINGS[name]
    tensors = randomise(make()).state_dict()
    given = {**said, **given, "naming": name.split()[1]}
    chosen, lost = family(name.split()[0]), MIDDLE[name]
    path = str(tmp_path / "net.pth")

    def network(changed):
        torch.save(changed, path)
        return chosen.network(Checkpoint.open(path), **given)

    _, unused = network({**tensors, "aux.more.weight": torch.zeros(2)})
    assert unused == ["aux.more.weight"]
    with pytest.raises(ExportError) as error:
        network({key: tensor for key, tensor in tensors.items() if key != lost})
    assert f"{path} lacks 1 tensor of the family: {lost}" in str(error.value)
    wrong = torch.zeros(*tensors[lost].shape[:-1], 77)
    with pytest.raises(ExportError) as error:
        network({**tensors, lost: wrong})
    shapes = f"{list(wrong.shape)}; the family has {list(tensors[lost].shape)}"
    assert f"{path}: {lost} has shape {shapes}" in str(error.value)


def test_a_minkunet_of_another_kind(tmp_path):
    """The depths are those found, and the description says so; a stem of 3^3 is another network."""
    make, _, _ = SETTINGS["minkunet18 minkowski"]
    tensors = randomise(make()).state_dict()
    torch.save(tensors, tmp_path / "net.pth")
    chosen, checkpoint = family("minkunet34"), Checkpoint.open(str(tmp_path / "net.pth"))
    told = chosen.read(checkpoint)
    network, _ = chosen.network(checkpoint, **told)
    said = ",".join(map(str, told["layers"]))
    assert network.description.endswith(f"; with other blocks a level: {said}")
    tensors["conv0p1s1.kernel"] = tensors["conv0p1s1.kernel"][:27]
    torch.save(tensors, tmp_path / "net.pth")
    with pytest.raises(ExportError) as error:
        loaded("minkunet18 minkowski", str(tmp_path / "net.pth"))
    assert "a kernel of 27 offsets; the family's stem has 5^3 = 125" in str(error.value)


LOST = {
    "minkunet18 minkowski": ("bn0.bn.weight", "block2.1.norm1.bn.weight"),
    "minkunet18 spvnas": ("stem.1.weight", "up4.1.1.net.1.weight"),
    "minkunet34 mmdet3d": ("backbone.conv_input.0.net.1.weight", "decode_head.conv_seg.bias"),
    "spunet pointcept": ("conv_input.1.weight", "dec.0.block1.bn1.weight"),
}


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("name", LOST)
def test_lost(tmp_path, name, which):
    """A tensor that says an option is missing: the error names it, and no smaller network fits."""
    make, _, _ = SETTINGS[name]
    tensors, lost = randomise(make()).state_dict(), LOST[name][which]
    del tensors[lost]
    torch.save(tensors, tmp_path / "net.pth")
    with pytest.raises(ExportError) as error:
        loaded(name, str(tmp_path / "net.pth"), **{**SMALL, "naming": name.split()[1]})
    assert f"lacks 1 tensor of the family: {lost}" in str(error.value)
    with pytest.raises(ExportError):
        loaded(name, str(tmp_path / "net.pth"))


REFUSED = {
    "planes": ("minkunet18", {"planes": (8, 8, 8)}, "3 planes and 8 layers"),
    "depth": (
        "minkunet18",
        {"planes": (8, 8), "layers": (1, 1)},
        "2 planes; the naming minkowski has names for 8",
    ),
    "channels": ("minkunet34", {"cr": 0.01}, "channels [0, 0, 0, 1, 2, 2, 1, 0, 0]"),
    "points": ("spvcnn", {"naming": "mmdet3d", "step": 2}, "mmdetection3d's SPVCNN has voxels"),
    "depth of points": (
        "spvcnn",
        {"planes": (8, 8), "layers": (1, 1)},
        "2 planes; the naming spvnas has names for 8",
    ),
    "head": ("minkunet42", {"classes": 5}, "the family minkunet42 has no option classes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    chosen, given, text = REFUSED[name]
    with pytest.raises(ExportError) as error:
        family(chosen).network(Random(), **given)
    assert text in str(error.value)
