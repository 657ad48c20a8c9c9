"""Networks that give every voxel a class: MinkUNet, SparseResUNet42, SpUNet, SPVCNN.

Sources of the layers, their order and their names: MinkowskiEngine examples/minkunet.py and
modules/resnet_block.py; TorchSparse torchsparse/backbones/unet.py; spvnas core/models/utils.py and
core/models/semantic_kitti/; mmdetection3d models/backbones/minkunet_backbone.py and
spvcnn_backone.py; Pointcept models/sparse_unet/spconv_unet_v1m1_base.py.

SPDX-License-Identifier: Apache-2.0
"""

import itertools

import numpy as np

from ..errors import ExportError
from .clouds import shell, street
from .family import Family, Untold
from .unet import Naming, UNet

PLANES = (32, 64, 128, 256, 256, 128, 96, 96)
LAYERS_18 = (2, 2, 2, 2, 2, 2, 2, 2)
LAYERS_34 = (2, 3, 4, 6, 2, 2, 2, 2)

_STREET = (24, 128, 128)
_VOXELS = 4000  # of an example: a proof by definition takes seconds


def _pair(name):
    return f"{name}.0", f"{name}.1"


# The examples of MinkowskiEngine; Pointcept's MinkUNet has the same names.
_MINKOWSKI = Naming(
    "minkowski",
    stem=[("conv0p1s1", "bn0")],
    down=lambda step: (f"conv{step + 1}p{2**step}s2", f"bn{step + 1}"),
    up=lambda step: (f"convtr{step + 4}p{16 >> step}s2", f"bntr{step + 4}"),
    encoder=lambda step, number: f"block{step + 1}.{number}",
    decoder=lambda step, number: f"block{step + 5}.{number}",
    block=("conv1", "norm1", "conv2", "norm2"),
    shortcut=_pair("downsample"),
    head="final",
)

# spvnas' own MinkUNet and SPVCNN; Pointcept's SPVCNN has the same names.
_SPVNAS = Naming(
    "torchsparse",
    stem=[("stem.0", "stem.1"), ("stem.3", "stem.4")],
    down=lambda step: _pair(f"stage{step + 1}.0.net"),
    up=lambda step: _pair(f"up{step + 1}.0.net"),
    encoder=lambda step, number: f"stage{step + 1}.{number + 1}",
    decoder=lambda step, number: f"up{step + 1}.1.{number}",
    block=("net.0", "net.1", "net.3", "net.4"),
    shortcut=_pair("downsample"),
    head="classifier.0",
    linear=True,
)

# A segmentor of mmdetection3d: its backbone and its head.
_MMDET3D = Naming(
    "torchsparse",
    stem=[_pair("backbone.conv_input.0.net"), _pair("backbone.conv_input.1.net")],
    down=lambda step: _pair(f"backbone.encoder.{step}.0.net"),
    up=lambda step: _pair(f"backbone.decoder.{step}.0.net"),
    encoder=lambda step, number: f"backbone.encoder.{step}.{number + 1}",
    decoder=lambda step, number: f"backbone.decoder.{step}.1.{number}",
    block=("net.0", "net.1", "net.3", "net.4"),
    shortcut=_pair("downsample"),
    head="decode_head.conv_seg",
    linear=True,
)

# The same with sparseconv_backend="minkowski".
_MMDET3D_MINKOWSKI = Naming(
    "minkowski",
    stem=_MMDET3D.stem,
    down=_MMDET3D.down,
    up=_MMDET3D.up,
    encoder=_MMDET3D.encoder,
    decoder=_MMDET3D.decoder,
    block=_MINKOWSKI.block,
    shortcut=_pair("downsample.net"),
    head="decode_head.conv_seg",
    linear=True,
)

_SPARSE_RES = Naming(
    "torchsparse",
    stem=_SPVNAS.stem,
    down=lambda step: _pair(f"encoders.{step}.0"),
    up=lambda step: _pair(f"decoders.{step}.upsample"),
    encoder=lambda step, number: f"encoders.{step}.{number + 1}",
    decoder=lambda step, number: f"decoders.{step}.fuse.{number}",
    block=("main.0", "main.1", "main.3", "main.4"),
    shortcut=_pair("shortcut"),
    head=None,
)


def _pointcept(steps):
    """SpUNet counts the steps up from the finest resolution, of which there are `steps`."""
    return Naming(
        "spconv",
        stem=[_pair("conv_input")],
        down=lambda step: _pair(f"down.{step}"),
        up=lambda step: _pair(f"up.{steps - 1 - step}"),
        encoder=lambda step, number: f"enc.{step}.block{number}",
        decoder=lambda step, number: f"dec.{steps - 1 - step}.block{number}",
        block=("conv1", "bn1", "conv2", "bn2"),
        shortcut=_pair("proj"),
        head="final",
        eps=1e-3,
        narrow=False,
    )


_NAMINGS = {
    "minkowski": _MINKOWSKI,
    "torchsparse": _SPARSE_RES,
    "spvnas": _SPVNAS,
    "mmdet3d": _MMDET3D,
    "mmdet3d-minkowski": _MMDET3D_MINKOWSKI,
    "pointcept": _pointcept(4),
}


# --- builders ---


def _unet(net, *, naming, channels_in, planes, layers, stem, classes=0, cr=1.0):
    """Stem, down, up, head."""
    del channels_in  # the features have them
    how = _pointcept(len(planes) // 2) if naming == "pointcept" else _NAMINGS[naming]
    unet = UNet(net, how, planes=planes, layers=layers, stem=stem, cr=cr)
    if naming != "pointcept" and unet.steps != 4:
        raise ExportError(f"{len(planes)} planes; the naming {naming} has names for 8")
    x = unet.stem(net.feats)
    skips = []
    for step in range(unet.steps):
        skips.append(x)
        x = unet.down(step, x)
    for step in range(unet.steps):
        x = unet.up(step, x, skips.pop())
    unet.head(x, classes)


def _spvcnn(net, *, naming, channels_in, classes, planes, layers, stem, cr, step):
    """A U-net of voxels, and points that pass it by: joined after the stem, at the bottom, half
    way up, and at the end.

    With a step of 1 every point is a voxel of its own, and what leads between the two at the finest
    resolution is the identity: those layers are left out.
    """
    del channels_in
    if naming == "mmdet3d" and int(step) != 1:
        raise ExportError(f"step {step}: mmdetection3d's SPVCNN has voxels as points; expected 1")
    unet = UNet(net, _NAMINGS[naming], planes=planes, layers=layers, stem=stem, cr=cr)
    if unet.steps != 4:
        raise ExportError(f"{len(planes)} planes; the naming {naming} has names for 8")
    points = _Points(net, "backbone." * (naming == "mmdet3d") + "point_transforms")
    apart = int(step) != 1
    x = net.voxelize(net.feats, "initial_voxelize", stride=int(step)) if apart else net.feats
    first = unet.stem(x)
    points.feats = points.of(first, "z0") if apart else first
    x = points.onto(first, "x0") if apart else first
    skips = [first]
    for number in range(4):
        x = unet.down(number, x)
        skips.append(x)
    points.join(0, skips.pop(), "z1")
    x = points.onto(x, "y1")
    x = unet.up(0, x, skips.pop())
    x = unet.up(1, x, skips.pop())
    points.join(1, x, "z2")
    x = points.onto(x, "y3")
    x = unet.up(2, x, skips.pop())
    x = unet.up(3, x, skips.pop())
    points.join(2, x, "z3", apart)
    unet.head(points.feats, classes)


class _Points:
    """The branch of the points: features on the request's rows."""

    def __init__(self, net, transforms):
        self.net, self.transforms, self.feats = net, transforms, None

    def of(self, x, name):
        """Features of voxels for the points."""
        return self.net.devoxelize(x, name, self.net.feats)

    def onto(self, x, name):
        """The points' features for the voxels of x."""
        return self.net.voxelize(self.feats, name, onto=x)

    def join(self, number, x, name, apart=True):
        """Adds those of voxels to a transform of the points' own."""
        net = self.net
        linear, norm = _pair(f"{self.transforms}.{number}")
        own = net.relu(net.batch_norm(net.linear(self.feats, linear, x.channels), norm))
        self.feats = net.add(self.of(x, name) if apart else x, own, f"{name}.add")


# --- examples ---


def _on_a_street(rng, *, channels_in, **options):
    """Where a scanner stands, two samples; features are random."""
    del options
    coords = street(rng, _STREET, _VOXELS // 2, samples=2)
    return coords, rng.normal(0, 1, (len(coords), int(channels_in))).astype(np.float32)


def _on_a_surface(rng, *, channels_in, **options):
    """As of a room's surfaces."""
    del options
    coords = shell(rng, 24, samples=2)
    return coords, rng.normal(0, 1, (len(coords), int(channels_in))).astype(np.float32)


# --- families ---


def _by_depth(option):
    """SpUNet's names follow from the number of its steps, which a checkpoint says first."""

    def found(checkpoint):
        names = (f"down.{step}.0.weight" for step in itertools.count())
        steps = next(step for step, name in enumerate(names) if not checkpoint.shape(name))
        how = _pointcept(steps).sizes(steps)[option]
        return how(checkpoint) if steps else None

    return found


_SIZES = {naming: how.sizes(4) for naming, how in _NAMINGS.items()}
_SIZES["pointcept"].update({option: _by_depth(option) for option in ("planes", "layers")})


def _family(
    name, about, namings, landmarks, options, *, build=_unet, example=_on_a_street, untold=None
):
    return Family(
        name,
        about,
        build,
        options,
        {naming: _NAMINGS[naming].library for naming in namings},
        landmarks,
        example,
        sizes={naming: _SIZES[naming] for naming in namings},
        untold=untold,
    )


_OPTIONS = {"channels_in": 4, "classes": 19, "planes": PLANES, "stem": 32, "cr": 1.0}
_LANDMARKS = {
    "minkowski": "conv0p1s1.kernel",
    "spvnas": "stage1.0.net.0.kernel",
    "mmdet3d": "backbone.encoder.0.1.net.0.kernel",
    "mmdet3d-minkowski": "backbone.encoder.0.1.conv1.kernel",
}


def _landmarks(*namings):
    return {naming: _LANDMARKS[naming] for naming in namings}


MINKUNET18 = _family(
    "minkunet18",
    "MinkUNet18: 2 blocks a level; MinkowskiEngine's, spvnas' MinkUNet, mmdetection3d's",
    ["minkowski", "spvnas", "mmdet3d", "mmdet3d-minkowski"],
    _landmarks("minkowski", "spvnas", "mmdet3d", "mmdet3d-minkowski"),
    {**_OPTIONS, "layers": LAYERS_18},
)

MINKUNET34 = _family(
    "minkunet34",
    "MinkUNet34: 2, 3, 4, 6 blocks a level on the way down; MinkowskiEngine's, mmdetection3d's",
    ["minkowski", "mmdet3d", "mmdet3d-minkowski"],
    _landmarks("minkowski", "mmdet3d", "mmdet3d-minkowski"),
    {**_OPTIONS, "layers": LAYERS_34},
)

MINKUNET42 = _family(
    "minkunet42",
    "SparseResUNet42 of torchsparse.backbones: features of the request's voxels, no head",
    ["torchsparse"],
    {"torchsparse": "encoders.0.1.main.0.kernel"},
    {"channels_in": 4, "planes": PLANES, "stem": 32, "cr": 1.0, "layers": LAYERS_18},
)

SPUNET = _family(
    "spunet",
    "SpUNet-v1m1 of Pointcept; classes=0: its features",
    ["pointcept"],
    {"pointcept": "conv_input.0.weight"},
    {"channels_in": 6, "classes": 20, "planes": PLANES, "stem": 32, "layers": LAYERS_34},
    example=_on_a_surface,
)

SPVCNN = _family(
    "spvcnn",
    "SPVCNN: a MinkUNet and a branch of points; step: how many of the points' steps a voxel is",
    ["spvnas", "mmdet3d"],
    _landmarks("spvnas", "mmdet3d"),
    {**_OPTIONS, "layers": LAYERS_18, "step": 1},
    build=_spvcnn,
    untold={
        "step": Untold(
            "how many of the points' steps a voxel is (spvnas: vres over pres)",
            value=lambda naming, step, **_: step if naming == "spvnas" else None,
        )
    },
)
