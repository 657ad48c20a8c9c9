"""VoxelNeXt: a detector without a dense tensor, from voxels to the heads' numbers on the ground.

    conv4 -----------------------> sum over z -----------------.
    conv4 -> conv5 --------------> sum over z, at 2 * (y, x) ---+-> sum -> conv_out -> heads
    conv5 -> conv6 --------------> sum over z, at 4 * (y, x) --'

The sum lies on the union of three sets of places, which no op makes by itself (`_Ground`).  All
that follows has two axes: kernels are flat along z.  Each head's branches are one output, head0,
head1, ...: its channels are those of `branches`, in their order, then one for each class, "hm".
A request may send a spatial_shape of its own, but none that is higher than the network's.

Sources: OpenPCDet, pcdet/models/backbones_3d/spconv_backbone_voxelnext.py and
pcdet/models/dense_heads/voxelnext_head.py.

SPDX-License-Identifier: Apache-2.0
"""

from functools import partial

import numpy as np

from ..errors import ExportError
from .detection import SPATIAL_SHAPE, example, stage_limits, told_channels_in
from .encoder import STAGES, Encoder, Names
from .family import Family

_BRANCHES = {"center": 2, "center_z": 1, "dim": 3, "rot": 2, "vel": 2, "iou": 1}  # as configured
_FLAT = (1, 3, 3)
_HEAD_EPS = 1e-5  # torch's own; the backbone has another
_BLOCKS = (2, 2, 2, 2)
_STEPS = (1, 2, 4)  # places of conv4 for one of conv4, conv5, conv6
_OUTPUTS_MAX = 8  # of a network.json
_HEIGHT_MAX = 64  # of conv4's set: the largest stride of a layer
_NEAR = ("bev.near_y", "bev.near")
# Places of a request: those of the whole ground of two samples, which more samples of scanned
# streets share.  The default geometry cache of the CPU has room for them.
_SAMPLES = 2
_PLACES_LEAST = 4096
_PREFIX = {"openpcdet": "backbone_3d.", "backbone": ""}


def _voxelnext(net, *, naming, spatial_shape, channels, out_channels, kernels, multi_scale, **head):
    if len(channels) != 5 or len(kernels) != 4:
        raise ExportError(
            f"channels are {','.join(map(str, channels))} and kernels "
            f"{','.join(map(str, kernels))}; expected five channels (the last are those of two "
            "stages) and four kernels of strided convolutions"
        )
    if multi_scale and len(head["heads"]) + len(STAGES) > _OUTPUTS_MAX:
        raise ExportError(
            f"multi_scale=true adds {len(STAGES)} outputs to those of {len(head['heads'])} heads; "
            f"a network has at most {_OUTPUTS_MAX}"
        )
    encoder = Encoder(net, spatial_shape, bias=True, prefix=_PREFIX[naming])
    names = Names("openpcdet", True, _BLOCKS)
    x = encoder.conv(net.feats, names.stem(), channels[0])
    stages = []
    for stage in (*STAGES, 5, 6):
        wide = kernels[min(max(stage - 2, 0), 3)]
        x = _stage(encoder, names, x, stage, channels[min(stage, 5) - 1], wide)
        stages.append(x)
    x = _Ground(encoder, stages[3:], kernels[3]).features()
    _, x = encoder.down(x, names.out(), out_channels, _FLAT, 1, (0, 1, 1), axes=2)
    shared = ("shared_conv.0", "shared_conv.1")
    x = encoder.conv(x, shared, out_channels, _FLAT, bias=True, eps=_HEAD_EPS, axes=2)
    if any(head["heads"]):
        _heads(encoder, naming, x, **head)
    else:
        net.network.output(x, "features")
    for stage in STAGES if multi_scale else ():
        net.network.output(stages[stage - 1], f"x_conv{stage}")


def _stage(encoder, names, x, stage, channels, wide):
    if stage > 1:
        _, x = encoder.down(x, names.down(stage), channels, wide, 2, wide // 2)
    for index in range(_BLOCKS[0]):
        x = encoder.block(x, names.inner(stage, index))
    return x


class _Ground:
    """The places (y, x) of three stages, and what is summed there.

    A voxel of conv5 stands at twice its place, one of conv6 at four times; there need be no voxel
    of conv4.  Every such place is near one of conv4, because a strided convolution makes voxels
    only where its kernel meets some: at most kernel // 2 away.  So a pool that makes all places
    within 3 * (kernel // 2) has them all, and those at which no stage counts a voxel are pruned.

    stages  results of conv4, conv5, conv6
    kernel  of the strided convolutions to conv5 and conv6
    """

    def __init__(self, encoder, stages, kernel):
        self.encoder, self.network = encoder, encoder.net.network
        depth = encoder.shape(stages[0])[0]
        self.height = -(-depth // 4) * 4  # that of conv6 is a quarter
        if self.height > _HEIGHT_MAX:
            raise ExportError(
                f"spatial_shape: {depth} voxels are left along z at conv4; expected at most "
                f"{_HEIGHT_MAX}"
            )
        self.sums = {step: self._summed(x, step) for step, x in zip(_STEPS, stages)}
        self.places = self._union(3 * (kernel // 2))

    def features(self):
        """The sums of the three stages at each place."""
        parts = [
            self._at_places(x, step, self.places, f"bev.{step}x") for step, x in self.sums.items()
        ]
        return self._added(parts, "bev")

    def _summed(self, x, step):
        """Voxels one above the other become one: the sum of their rows."""
        kernel = [self.height // step, 1, 1]
        value = self.network.add(
            "sum_pool",
            [x],
            f"bev.sum{step}x",
            on=(x.on, "floor", *kernel),
            kernel=kernel,
            stride=kernel,
            rule="floor",
        )
        self.encoder.shapes[value.on] = (1, *self.encoder.shape(x)[1:])
        return value

    def _ones(self, x, step):
        """1 at each place of a stage."""
        tensors = {
            "weight": (None, np.zeros((1, x.channels), np.float32)),
            "bias": (None, np.ones(1, np.float32)),
        }
        return self.network.add("linear", [x], f"bev.one{step}x", channels=1, tensors=tensors)

    def _union(self, reach):
        ones = [self._ones(x, step) for step, x in self.sums.items()]
        near = ones[0]
        for axis in (1, 2):  # one after the other: a kernel of both has many more offsets
            kernel, padding = [1, 1, 1], [0, 0, 0]
            kernel[axis], padding[axis] = 2 * reach + 1, reach
            near = self.network.add(
                "max_pool",
                [near],
                _NEAR[axis - 1],
                on=(near.on, "near", axis, reach),
                kernel=kernel,
                stride=1,
                padding=padding,
                rule="spconv",
            )
        counts = [
            self._at_places(one, step, near, f"bev.count{step}x") for one, step in zip(ones, _STEPS)
        ]
        count = self._added(counts, "bev.count")
        places = self.network.add(
            "prune", [count], "bev.places", on=("places", near.on), keep=count.layer
        )
        self.encoder.shapes[places.on] = self.encoder.shapes[ones[0].on]
        return places

    def _at_places(self, x, step, onto, name):
        """Rows at `step` times their place, of the set of `onto`; 0 elsewhere."""
        one = np.ones((x.channels, 1, 1, 1, 1), np.float32)
        return self.network.add(
            "transposed_conv",
            [x],
            name,
            channels=x.channels,
            kernel=1,
            stride=[1, step, step],
            groups=x.channels,
            bias=False,
            layout="oxyzi",
            onto=onto.layer,
            on=onto.on,
            tensors={"weight": (None, one)},
        )

    def _added(self, parts, name):
        x = self.encoder.net.add(parts[0], parts[1], f"{name}.two")
        return self.encoder.net.add(x, parts[2], f"{name}.three")


def _heads(encoder, naming, x, *, heads, branches, head_kernel, head_convs, head_bias, **_):
    """An output for each head: its branches and its classes, side by side."""
    if naming != "openpcdet":
        raise ExportError(
            "heads have names in whole detectors only: take the naming openpcdet, or heads=0"
        )
    wanted = [name for name in branches.split(",") if name]
    unknown = sorted(set(wanted) - set(_BRANCHES))
    if unknown:
        raise ExportError(f"branch {unknown[0]}; expected some of {', '.join(_BRANCHES)}")
    encoder.prefix = "dense_head."
    kernel = (1, head_kernel, head_kernel)
    for number, classes in enumerate(heads):
        sizes = {name: _BRANCHES[name] for name in wanted} | {"hm": classes}
        parts = []
        for branch, size in sizes.items():
            y, name = x, f"heads_list.{number}.{branch}"
            for index in range(head_convs - 1):
                names = (f"{name}.{index}.0", f"{name}.{index}.1")
                y = encoder.conv(
                    y, names, x.channels, kernel, bias=head_bias, eps=_HEAD_EPS, axes=2
                )
            last = f"{encoder.prefix}{name}.{head_convs - 1}"
            parts.append(encoder.net.subm_conv(y, last, size, 1, bias=True, axes=2))
        head = encoder.net.concat(parts, f"head{number}")
        encoder.net.network.output(head, f"head{number}")


def _limits(*, naming, spatial_shape, kernels, voxels_max, **_):
    """Sets on the ground have no more rows than it has places; the rules allow many times that."""
    places = 1
    for size in tuple(spatial_shape)[1:]:
        for wide in kernels[:3]:
            size = (size + 2 * (wide // 2) - wide) // 2 + 1
        places *= size
    layers = (*_NEAR, "bev.places", f"{_PREFIX[naming]}conv_out.0")
    ground = dict.fromkeys(layers, max(_PLACES_LEAST, _SAMPLES * places))
    limits = stage_limits(voxels_max, Names("openpcdet", True, _BLOCKS), _PREFIX[naming], (5, 6))
    return {"limits": {**limits, "sets": {**limits.get("sets", {}), **ground}}}


# --- what a checkpoint tells ---


def _told(option, prefix, checkpoint):
    """An option of the backbone."""
    names = Names("openpcdet", True, _BLOCKS)
    norms = [names.stem()[1], *(names.down(stage)[1] for stage in (2, 3, 4, 5)), names.out()[1]]
    sizes = [checkpoint.shape(f"{prefix}{norm}.weight") for norm in norms]
    if not all(sizes):
        return None
    *channels, out_channels = (size[0] for size in sizes)
    values = {"channels": tuple(channels), "out_channels": out_channels}
    if option == "channels_in":
        return told_channels_in(checkpoint, *(prefix + name for name in names.stem()))
    if option == "kernels":
        weights = [f"{prefix}{names.down(stage)[0]}.weight" for stage in (2, 3, 4, 5)]
        pairs = zip(weights, channels, channels[1:])
        return tuple(_wide(checkpoint.shape(name), ci * co, 3) for name, ci, co in pairs)
    return values[option]


def _told_head(option, checkpoint):
    """An option of the heads."""
    list_ = "dense_head.heads_list"
    convs = _count(lambda index: checkpoint.shape(f"{list_}.0.hm.{index}.0.weight")) + 1
    heads = _count(lambda number: checkpoint.shape(f"{list_}.{number}.hm.{convs - 1}.bias"))
    if option == "heads":
        biases = [checkpoint.shape(f"{list_}.{i}.hm.{convs - 1}.bias") for i in range(heads)]
        return tuple(bias[0] for bias in biases) or None
    if option == "branches":
        found = [b for b in _BRANCHES if checkpoint.shape(f"{list_}.0.{b}.{convs - 1}.bias")]
        return ",".join(found)
    if option == "head_convs":
        return convs if heads else None
    first, norm = f"{list_}.0.hm.0.0", checkpoint.shape(f"{list_}.0.hm.0.1.weight")
    if option == "head_bias":
        return checkpoint.shape(f"{first}.bias") is not None
    return _wide(checkpoint.shape(f"{first}.weight"), norm[0] ** 2, 2) if norm else None


def _wide(shape, channels, axes):
    """The size of a kernel of so many equal axes."""
    return round((int(np.prod(shape or (0,))) // channels) ** (1 / axes))


def _count(there):
    count = 0
    while there(count):
        count += 1
    return count


def _sizes(naming):
    options = ("channels_in", "channels", "out_channels", "kernels")
    sizes = {option: partial(_told, option, _PREFIX[naming]) for option in options}
    if naming == "backbone":
        return {**sizes, "heads": lambda checkpoint: (0,)}
    options = ("heads", "branches", "head_kernel", "head_convs", "head_bias")
    return {**sizes, **{option: partial(_told_head, option) for option in options}}


Family(
    "voxelnext",
    "VoxelNeXt: VoxelResBackBone8xVoxelNeXt and VoxelNeXtHead, sparse to the last layer",
    _voxelnext,
    {
        "channels_in": 5,
        "spatial_shape": (41, 1440, 1440),
        "channels": (16, 32, 64, 128, 128),  # Waymo, large: 32,64,128,256,256
        "out_channels": 128,  # 256
        "kernels": (3, 3, 3, 3),  # 5,5,3,3
        "heads": (1, 2, 2, 1, 2, 2),  # classes of each; 0: none, the output is `features`
        "branches": "center,center_z,dim,rot,vel",
        "head_kernel": 1,  # 3
        "head_convs": 2,
        "head_bias": True,
        "multi_scale": False,
        "voxels_max": 0,
    },
    {"openpcdet": "spconv", "backbone": "spconv"},
    {naming: f"{prefix}conv6.0.0.weight" for naming, prefix in _PREFIX.items()},
    example,
    sizes={naming: _sizes(naming) for naming in _PREFIX},
    top=_limits,
    untold={"spatial_shape": SPATIAL_SHAPE},
)
