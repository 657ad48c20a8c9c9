"""SECOND, CenterPoint, Part-A2: detectors' backbones from voxels to a bird's-eye view.

Requests send [sample, z, y, x], as these libraries' voxels are.  The result `spatial_features` is
[B, C * D, H, W], which a 2-D network reads; the features of the stages are outputs as well if
multi_scale=true: x_conv1 to x_conv4, each the last result of its resolution.

Sources: OpenPCDet, pcdet/models/backbones_3d/{spconv_backbone,spconv_unet}.py; mmdetection3d,
mmdet3d/models/middle_encoders/{sparse_encoder,sparse_unet}.py and layers/sparse_block.py;
CenterPoint and Det3D, det3d/models/backbones/scn.py.

SPDX-License-Identifier: Apache-2.0
"""

from functools import partial

import numpy as np

from ..errors import ExportError
from .clouds import street
from .encoder import STAGES, Encoder, Names
from .family import Family, Untold

NAMINGS = {"openpcdet": "spconv", "mmdet3d": "spconv", "det3d": "spconv"}

_PLAIN = (16, 32, 64, 64, 128)
_RESIDUAL = (16, 32, 64, 128, 128)
_EXAMPLE_VOXELS = 3000
_STAGE_ROWS = 2  # voxels of a stage for one of the request, if voxels_max is set


def _second(net, *, naming, spatial_shape, channels, depths, fold, last_pad, multi_scale, **_):
    names = Names(naming, False, depths or _depths(naming, False))
    _encode(
        Encoder(net, spatial_shape),
        names,
        channels or _PLAIN,
        fold=fold,
        last_pad=last_pad,
        multi_scale=multi_scale,
    )


def _centerpoint(net, *, naming, residual, bias, spatial_shape, channels, depths, **options):
    if naming == "det3d" and not residual:
        raise ExportError(
            "CenterPoint's Det3D has residual blocks: leave residual=true, or take the family "
            "second, whose naming det3d is SpMiddleFHD"
        )
    names = Names(naming, residual, depths or _depths(naming, residual))
    _encode(
        Encoder(net, spatial_shape, bias=bias and naming != "mmdet3d"),
        names,
        channels or (_RESIDUAL if residual else _PLAIN),
        **{key: options[key] for key in ("fold", "last_pad", "multi_scale")},
    )


def _parta2(net, *, naming, spatial_shape, channels, fold, last_pad, **_):
    names = Names(naming, False, _depths(naming, False))
    encoder = Encoder(net, spatial_shape)
    made, stages = _encode(encoder, names, channels or _PLAIN, fold=fold, last_pad=last_pad)
    x = stages[3]
    for stage in reversed(STAGES):
        x = _up(encoder, naming, stage, x, made[stage - 1], stages)
    net.network.output(x, "point_features")


def _encode(encoder, names, channels, *, fold, last_pad, multi_scale=False):
    """(strided convolutions, results) of the four stages; adds the outputs."""
    net = encoder.net
    _check_lists(names, channels)
    x = encoder.conv(net.feats, names.stem(), channels[0])
    made, stages = [], []
    for stage in STAGES:
        padding = (0, 1, 1) if stage == 4 else 1
        strided, x = encoder.stage(x, names, stage, channels[stage - 1], padding)
        made.append(strided)
        stages.append(x)
    _, x = encoder.down(x, names.out(), channels[4], (3, 1, 1), (2, 1, 1), _pads(last_pad))
    dense = net.network.add(
        "to_dense", [x], "spatial_features", kind="dense", fold=True if fold else None
    )
    net.network.output(dense, "spatial_features")
    for stage in STAGES if multi_scale else ():
        net.network.output(stages[stage - 1], f"x_conv{stage}")
    return made, stages


def _up(encoder, naming, stage, x, made, stages):
    """A step of Part-A2's decoder: features from below beside those of the stage, merged."""
    net, lateral, above = encoder.net, stages[stage - 1], stages[stage - 2]
    if naming == "mmdet3d":
        side, merge, up = f"lateral_layer{stage}", f"merge_layer{stage}", f"upsample_layer{stage}"
    else:
        side, merge = f"conv_up_t{stage}", f"conv_up_m{stage}"
        up = f"inv_conv{stage}" if stage > 1 else "conv5.0"
    channels = lateral.channels
    both = net.concat([x, encoder.block(lateral, side)], f"{merge}.concat")
    merged = encoder.conv(both, (f"{merge}.0", f"{merge}.1"), channels)
    # Channels of a number are summed: neighbours, not halves.
    each = both.channels // channels
    reduced = net.fixed_linear(
        both, f"{merge}.reduced", np.repeat(np.eye(channels, dtype=np.float32), each, 1)
    )
    x = net.add(merged, reduced, f"{merge}.add")
    names = (f"{up}.0", f"{up}.1")
    if stage == 1:
        return encoder.conv(x, names, channels)
    return encoder.inverse(x, names, above.channels, made)


def _depths(naming, residual):
    """Blocks of each stage, or convolutions beside the strided one, as published."""
    if residual:
        return (2, 2, 2, 2)
    return (1, 2, 3, 3) if naming == "det3d" else (1, 2, 2, 2)


def _check_lists(names, channels):
    for what, found, wanted in (("channels", channels, 5), ("depths", names.depths, 4)):
        if len(found) != wanted or min(found) < 1:
            raise ExportError(
                f"{what} are {','.join(map(str, found))}; expected {wanted} above 0: of the four "
                f"stages{', and of the last convolution' if wanted == 5 else ''}"
            )


def example(rng, *, spatial_shape, channels_in, **_):
    """Two samples of a street; small, whatever the shape is."""
    coords = street(rng, spatial_shape, _EXAMPLE_VOXELS, samples=2)
    return coords, rng.normal(0, 1, (len(coords), channels_in)).astype(np.float32)


def stage_limits(voxels_max, names, prefix="", more=()):
    """Limits of requests of up to voxels_max voxels, as scanners see streets; 0 = none.

    By its rule a strided stage may have eight times the voxels of the request, and room is kept
    for them.  Of a scanned street it has about as many: 1.1 times at stage 2, fewer behind it.
    """
    if not voxels_max:
        return {}
    layers = [f"{prefix}{names.down(stage)[0]}" for stage in (*STAGES[1:], *more)]
    return {"voxels_max": voxels_max, "sets": dict.fromkeys(layers, _STAGE_ROWS * voxels_max)}


def _limits(*, naming, voxels_max, residual=False, depths=(), **_):
    names = Names(naming, residual, depths or _depths(naming, residual))
    limits = stage_limits(voxels_max, names)
    if limits:
        limits["sets"][names.out()[0]] = _STAGE_ROWS * voxels_max
    return {"limits": limits} if limits else {}


def _pads(last_pad):
    """[z, y, x]; a single number pads all axes, as in spconv, whose argument it is."""
    pads = [last_pad] if isinstance(last_pad, int) else list(last_pad)
    if len(pads) not in (1, 3) or min(pads) < 0:
        raise ExportError(
            f"last_pad is {','.join(map(str, pads))}; expected one number for all axes, or three "
            "for z,y,x, such as 1,0,0"
        )
    return pads * 3 if len(pads) == 1 else pads


# --- what a checkpoint tells ---


def _told(option, naming, residual, checkpoint):
    """An option's value in a checkpoint; None = it does not tell.

    residual  None = as the checkpoint is
    """
    block = Names(naming, True, _depths(naming, True)).inner(1, 0)
    if residual is None:
        residual = checkpoint.shape(f"{block}.conv1.weight") is not None
    names = Names(naming, residual, _depths(naming, residual))
    names = Names(naming, residual, _counted(names, checkpoint))
    if option == "channels_in":
        return told_channels_in(checkpoint, *names.stem())
    if option == "channels":
        return _told_channels(names, checkpoint)
    values = {"residual": residual, "depths": _told_depths(names)}
    values["bias"] = checkpoint.shape(f"{block}.conv1.bias") is not None
    return values[option]


def told_channels_in(checkpoint, conv, norm):
    """Channels of the features: what a kernel 3 reads, whatever version of spconv stored it."""
    weight, channels = checkpoint.shape(f"{conv}.weight"), checkpoint.shape(f"{norm}.weight")
    return int(np.prod(weight)) // (27 * channels[0]) if weight and channels else None


def _told_channels(names, checkpoint):
    norms = [names.stem()[1], *(names.down(stage)[1] for stage in STAGES[1:]), names.out()[1]]
    sizes = [checkpoint.shape(f"{norm}.weight") for norm in norms]
    return tuple(size[0] for size in sizes) if all(sizes) else None


def _told_depths(names):
    """None where one list of layers does not say where its stages begin."""
    return None if names.naming == "det3d" and not names.residual else names.depths


def _counted(names, checkpoint):
    """How many blocks or convolutions each stage has."""
    if names.naming == "det3d" and not names.residual:
        return names.depths  # one list of layers does not say where its stages begin
    depths = []
    for stage in STAGES:
        count = 0
        while checkpoint.shape(_first_weight(names.inner(stage, count))):
            count += 1
        depths.append(count)
    return tuple(depths) if all(depths) else names.depths  # else the error says what is missing


def _first_weight(name):
    return f"{name[0]}.weight" if isinstance(name, tuple) else f"{name}.conv1.weight"


SPATIAL_SHAPE = Untold(
    "voxels along each axis, z first (OpenPCDet: grid_size reversed, and one more along z; "
    "mmdetection3d: sparse_shape of the middle encoder; det3d: the grid reversed, and one more "
    "along z; grid_size is the point cloud's range over the voxel's size)",
    asked=True,
    likely="41,1600,1408",
)

# The default is the source's own, and mmdetection3d and det3d have no other.
_UNTOLD = {
    "spatial_shape": SPATIAL_SHAPE,
    "last_pad": Untold(
        "padding of the last convolution, one number for all axes or z,y,x (OpenPCDet: model_cfg "
        "'last_pad')",
        value=lambda naming, last_pad, **_: last_pad if naming == "openpcdet" else None,
    ),
}


def _flat_depths(naming, depths, residual=False, **_):
    """Those of det3d's one list of layers, which does not say where its stages begin."""
    flat = naming == "det3d" and not residual
    return (depths or _depths(naming, residual)) if flat else None


_DEPTHS = Untold("convolutions of each stage (det3d: the order of middle_conv)", value=_flat_depths)


def _sizes(namings, residual, *options):
    return {
        naming: {option: partial(_told, option, naming, residual) for option in options}
        for naming in namings
    }


Family(
    "second",
    "SECOND's backbone to a bird's-eye view: VoxelBackBone8x, SparseEncoder, SpMiddleFHD",
    _second,
    {
        "channels_in": 4,
        "spatial_shape": (41, 1600, 1408),
        "channels": (),  # () = as published: of the four stages and of the last convolution
        "depths": (),  # () = as published: convolutions of each stage beside the strided one
        "last_pad": (0,),  # of all axes, or one for each of z, y, x
        "fold": True,  # channels and height are one dimension
        "multi_scale": False,
        "voxels_max": 0,  # 0 = none; else room for stages as large as those of scanned streets
    },
    NAMINGS,
    {
        "openpcdet": "conv2.0.0.weight",
        "mmdet3d": "encoder_layers.encoder_layer2.2.0.weight",
        "det3d": "middle_conv.0.weight",
    },
    example,
    sizes=_sizes(NAMINGS, False, "channels_in", "channels", "depths"),
    top=_limits,
    untold={**_UNTOLD, "depths": _DEPTHS},
)

Family(
    "centerpoint",
    "CenterPoint's backbone to a bird's-eye view: VoxelResBackBone8x, SparseEncoder of basicblock, "
    "SpMiddleResNetFHD; residual=false is the plain one",
    _centerpoint,
    {
        "channels_in": 5,
        "spatial_shape": (41, 1440, 1440),
        "channels": (),
        "depths": (),
        "residual": True,
        "bias": True,  # of convolutions in residual blocks; mmdet3d has none
        "last_pad": (0,),  # of all axes, or one for each of z, y, x
        "fold": True,
        "multi_scale": False,
        "voxels_max": 0,
    },
    NAMINGS,
    {
        "openpcdet": "conv2.0.0.weight",
        "mmdet3d": "encoder_layers.encoder_layer2.2.0.weight",
        "det3d": "conv2.3.conv1.weight",
    },
    example,
    sizes=_sizes(NAMINGS, None, "channels_in", "channels", "depths", "residual", "bias"),
    top=_limits,
    untold=_UNTOLD,
)

Family(
    "parta2",
    "Part-A2's backbone to a bird's-eye view, and back to every voxel: UNetV2, SparseUNet",
    _parta2,
    {
        "channels_in": 4,
        "spatial_shape": (41, 1600, 1408),
        "channels": (),
        "last_pad": (0,),  # of all axes, or one for each of z, y, x
        "fold": True,
        "voxels_max": 0,
    },
    {naming: NAMINGS[naming] for naming in ("openpcdet", "mmdet3d")},
    {"openpcdet": "conv_up_t4.conv1.weight", "mmdet3d": "lateral_layer4.conv1.weight"},
    example,
    sizes=_sizes(("openpcdet", "mmdet3d"), False, "channels_in", "channels"),
    top=_limits,
    untold=_UNTOLD,
)
