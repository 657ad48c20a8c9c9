"""TRELLIS.2's SC-VAE (decoder, encoder) and the up-blocks of TRELLIS v1's mesh decoder.

Only the sparse convolutional networks: neither flows nor attention.  Coordinates are TRELLIS's
own, [sample, x, y, z]; latents are those that its decoders get, after `slat * std + mean`.

Sources: TRELLIS.2, trellis2/models/sc_vaes/sparse_unet_vae.py and fdg_vae.py, and
trellis2/modules/sparse/; TRELLIS, trellis/models/structured_latent_vae/decoder_mesh.py.

SPDX-License-Identifier: Apache-2.0
"""

import numpy as np

from ..errors import ExportError
from . import trellis_sizes
from .clouds import shell
from .family import Family, Untold

_EPS = 1e-6  # of LayerNorm32 in blocks; the last norm is F.layer_norm with torch's default
_LAST_EPS = 1e-5
_RESIDUAL = 0.3  # of random weights: sums of many blocks keep their size
_LOGITS = 0.04  # of random weights: the bias decides, because rounding must not
_SHAPE = 7  # channels of the shape decoder: a vertex, three edges, one weight


# --- TRELLIS.2: blocks ---


def _convnext(net, x, name):
    """SparseConvNeXtBlock3d: a convolution, and an MLP with a residual."""
    h = net.subm_conv(x, f"{name}.conv", x.channels, bias=True)
    h = net.norm("layer_norm", h, f"{name}.norm", eps=_EPS)
    h = net.linear(h, f"{name}.mlp.0", 4 * x.channels)
    h = net.activation("silu", h, f"{name}.mlp.1")
    h = net.linear(h, f"{name}.mlp.2", x.channels, gain=_RESIDUAL)
    return net.add(h, x, name)


def _norm_silu(net, x, name, affine):
    h = net.norm("layer_norm", x, name, eps=_EPS, affine=affine)
    return net.activation("silu", h, f"{name}.silu")


def _down(net, x, name, channels):
    """SparseResBlockS2C3d: half the resolution, 8 children become channels."""
    h = _norm_silu(net, x, f"{name}.norm1", True)
    h = net.subm_conv(h, f"{name}.conv1", channels // 8, bias=True)
    h = net.space_to_channel(h, f"{name}.updown")
    h = _norm_silu(net, h, f"{name}.norm2", False)
    h = net.subm_conv(h, f"{name}.conv2", channels, bias=True)
    return net.add(h, _averaged(net, x, f"{name}.skip_connection", channels), name)


def _averaged(net, x, name, channels):
    """The skip of S2C: 8 * C channels in runs of equal length, each of which becomes its mean.

    A run never leaves its child, so the means are taken before children become channels: on
    finer voxels, but of an eighth of the channels on either side.  Both ways give the same sums.
    """
    run = 8 * x.channels // channels
    if channels % 8 or run * channels != 8 * x.channels or run & (run - 1):
        raise ExportError(
            f"{name}: 8 * {x.channels} channels become {channels}; expected a multiple of 8, and "
            "means of 1, 2, 4 or any power of two"
        )
    mean = np.repeat(np.eye(channels // 8), run, axis=1) / run
    return net.space_to_channel(net.fixed_linear(x, name, mean), f"{name}.updown")


def _up(net, x, name, channels, logits):
    """SparseResBlockC2S3d: twice the resolution; logits say which of the 8 children there are."""
    h = _norm_silu(net, x, f"{name}.norm1", True)
    h = net.subm_conv(h, f"{name}.conv1", 8 * channels, bias=True)
    h = net.channel_to_space(h, f"{name}.updown", logits)
    h = _norm_silu(net, h, f"{name}.norm2", False)
    h = net.subm_conv(h, f"{name}.conv2", channels, bias=True)
    return net.add(h, _repeated(net, x, f"{name}.skip_connection", channels, logits), name)


def _repeated(net, x, name, channels, logits):
    """The skip of C2S: a child's channels, each as often as it takes to have enough."""
    child = net.channel_to_space(x, f"{name}.updown", logits)
    times = channels // child.channels
    if times * child.channels != channels:
        raise ExportError(
            f"{name}: a child of {child.channels} channels becomes {channels}; "
            "expected a multiple"
        )
    return net.fixed_linear(child, name, np.repeat(np.eye(child.channels), times, axis=0))


# --- TRELLIS.2: networks ---


def _levels(model_channels, num_blocks):
    if len(model_channels) != len(num_blocks) or not num_blocks:
        raise ExportError(
            f"model_channels has {len(model_channels)} levels and num_blocks "
            f"{len(num_blocks)}; expected equally many"
        )
    return len(num_blocks)


def _decode(net, torsos, model_channels, num_blocks):
    """SparseUnetVaeDecoder up to its last norm: (prefix of the names, result) of each torso.

    torsos  {prefix: latents}: the first one's logits subdivide all of them, as `guide_subs` do
            for a decoder with pred_subdiv=False

    They advance level by level, and one ends before the next begins its last level: so few of
    their tensors are alive at once.
    """
    last, logits = _levels(model_channels, num_blocks) - 1, None
    h = {p: net.linear(x, f"{p}from_latent", model_channels[0]) for p, x in torsos.items()}
    for i, count in enumerate(num_blocks):
        for p in torsos:
            if i:
                name = f"{p}blocks.{i - 1}.{num_blocks[i - 1]}"
                h[p] = _up(net, h[p], name, model_channels[i], logits)
            for j in range(count):
                h[p] = _convnext(net, h[p], f"{p}blocks.{i}.{j}")
            if i == last:
                yield p, h[p]
        if i < last:
            first = next(iter(torsos))
            name = f"{first}blocks.{i}.{count}.to_subdiv"
            logits = net.linear(h[first], name, 8, gain=_LOGITS, kind="halves")


def _last(net, x, name, channels):
    h = net.norm("layer_norm", x, f"{name}.norm", eps=_LAST_EPS, affine=False)
    return net.linear(h, name, channels)


def _channels(net, x, name, first, end):
    """Channels first .. end - 1 of x.

    A linear layer of ones and zeros: so the trained tensors keep their names and shapes.
    """
    return net.fixed_linear(x, name, np.eye(x.channels)[first:end])


def _shape_outputs(net, h, margin):
    """What FlexiDualGridVaeDecoder makes of its 7 channels, but for the signs of the logits."""
    vertices = net.activation("sigmoid", _channels(net, h, "vertices.logits", 0, 3))
    vertices = net.activation(
        "affine", vertices, "vertices", scale=float(1 + 2 * margin), shift=float(-margin)
    )
    net.network.output(vertices, "vertices")
    net.network.output(_channels(net, h, "intersected", 3, 6), "intersected")
    weights = _channels(net, h, "quad_lerp.logits", 6, 7)
    net.network.output(net.activation("softplus", weights, "quad_lerp"), "quad_lerp")


def _build_decoder(net, *, model_channels, num_blocks, out_channels, voxel_margin, **_options):
    for _, h in _decode(net, {"": net.feats}, model_channels, num_blocks):
        h = _last(net, h, "output_layer", out_channels)
        if out_channels == _SHAPE:
            _shape_outputs(net, h, voxel_margin)
        else:
            net.network.output(h, "decoded")


def _build_both(net, *, model_channels, num_blocks, out_channels, voxel_margin, **_options):
    """A shape and a texture decoder on one geometry."""
    both = net.feats.channels
    if both % 2:
        raise ExportError(f"channels_in is {both}; expected the latents of shape and of texture")
    latents = {
        "shape.": _channels(net, net.feats, "shape.latent", 0, both // 2),
        "texture.": _channels(net, net.feats, "texture.latent", both // 2, both),
    }
    for prefix, h in _decode(net, latents, model_channels, num_blocks):
        if prefix == "shape.":
            _shape_outputs(net, _last(net, h, "shape.output_layer", _SHAPE), voxel_margin)
        else:
            h = _last(net, h, "texture.output_layer", out_channels)
            net.network.output(h, "texture")


def _build_encoder(net, *, model_channels, num_blocks, out_channels, texture, **_options):
    """SparseUnetVaeEncoder; for shapes the FlexiDualGridVaeEncoder, which subtracts 0.5."""
    levels, h = _levels(model_channels, num_blocks), net.feats
    if not texture:
        h = net.activation("affine", h, "centred", shift=-0.5)
    h = net.linear(h, "input_layer", model_channels[0])
    for i in range(levels):
        for j in range(num_blocks[i]):
            h = _convnext(net, h, f"blocks.{i}.{j}")
        if i < levels - 1:
            h = _down(net, h, f"blocks.{i}.{num_blocks[i]}", model_channels[i + 1])
    h = _last(net, h, "to_latent", 2 * out_channels)
    net.network.output(_channels(net, h, "mean", 0, out_channels), "mean")
    net.network.output(_channels(net, h, "logvar", out_channels, 2 * out_channels), "logvar")


# --- TRELLIS v1 ---


def _subdivide(net, x, name, channels, groups):
    """SparseSubdivideBlock3d: twice the resolution, all 8 children.

    Its skip is a 1^3 convolution of the children, which are all equal to their parent: so it
    runs on the parents.
    """
    h = _group_silu(net, x, f"{name}.act_layers", 0, groups)
    h = net.upsample(h, f"{name}.sub")
    h = net.subm_conv(h, f"{name}.out_layers.0.conv", channels, bias=True)
    h = _group_silu(net, h, f"{name}.out_layers", 1, groups)
    h = net.subm_conv(h, f"{name}.out_layers.3.conv", channels, bias=True)
    if channels != x.channels:
        x = net.subm_conv(x, f"{name}.skip_connection.conv", channels, 1, bias=True)
    return net.add(h, net.upsample(x, f"{name}.skip_connection.sub"), name)


def _group_silu(net, x, name, index, groups):
    h = net.norm("group_norm", x, f"{name}.{index}", groups=groups)
    return net.activation("silu", h, f"{name}.{index + 1}")


def _build_upblocks(net, *, model_channels, out_channels, groups, **_options):
    """The part of SLatMeshDecoder behind its transformer."""
    h = net.feats
    for i, channels in enumerate(model_channels):
        h = _subdivide(net, h, f"upsample.{i}", channels, groups)
    net.network.output(net.linear(h, "out_layer", out_channels), "cubes")


# --- examples ---


def _latents(rng, *, channels_in, **_options):
    """A bumpy ball of latents: so few that the proof's server has room for all their children."""
    coords = shell(rng, 4)
    return coords, rng.normal(0, 1, (len(coords), channels_in)).astype(np.float32)


def _surface(rng, *, channels_in, texture, **_options):
    """A bumpy ball at 32^3, its vertices and crossings, or colours between -1 and 1."""
    coords = shell(rng, 32)
    feats = rng.uniform(-1 if texture else 0, 1, (len(coords), channels_in))
    if not texture:
        feats[:, channels_in // 2 :] = feats[:, channels_in // 2 :] > 0.5
    return coords, feats.astype(np.float32)


_DECODER = {
    "channels_in": 32,
    "model_channels": (1024, 512, 256, 128, 64),
    "num_blocks": (4, 16, 8, 4, 0),
    "out_channels": _SHAPE,
    "voxel_margin": 0.5,
    "rows_max": trellis_sizes.ROWS_MAX,
}

_MARGIN = Untold(
    "how far vertices may leave their voxel (TRELLIS.2: voxel_margin of the decoder)",
    value=lambda out_channels, voxel_margin, **_: (
        voxel_margin if out_channels == _SHAPE else None
    ),
)

Family(
    "trellis2_decoder",
    "TRELLIS.2's shape decoder: vertices, logits of intersected, quad_lerp (microsoft/TRELLIS.2)",
    _build_decoder,
    _DECODER,
    {"trellis2": "flexgemm"},
    {"trellis2": "from_latent.weight"},
    _latents,
    sizes={"trellis2": trellis_sizes.decoder("")},
    top=trellis_sizes.decoder_limits(""),
    untold={"voxel_margin": _MARGIN},
)

Family(
    "trellis2_texture_decoder",
    "TRELLIS.2's shape and texture decoders on one geometry; latents of shape, then of texture "
    "(microsoft/TRELLIS.2)",
    _build_both,
    {
        **_DECODER,
        "channels_in": 64,
        "out_channels": 6,
        "rows_max": trellis_sizes.BOTH_ROWS_MAX,
    },
    {"trellis2": "flexgemm"},
    {"trellis2": "shape.from_latent.weight"},
    _latents,
    sizes={"trellis2": trellis_sizes.decoder("texture.", latents=2)},
    top=trellis_sizes.decoder_limits("shape."),
    untold={"voxel_margin": Untold(_MARGIN.what)},  # out_channels are the texture's
)

Family(
    "trellis2_encoder",
    "TRELLIS.2's encoder of shapes, or of textures with texture=true (microsoft/TRELLIS.2)",
    _build_encoder,
    {
        "channels_in": 6,
        "model_channels": (64, 128, 256, 512, 1024),
        "num_blocks": (0, 4, 8, 16, 4),
        "out_channels": 32,
        "texture": False,
        "rows_max": trellis_sizes.ROWS_MAX,
    },
    {"trellis2": "flexgemm"},
    {"trellis2": "input_layer.weight"},
    _surface,
    sizes={"trellis2": trellis_sizes.encoder()},
    top=trellis_sizes.encoder_limits,
    untold={
        "texture": Untold(
            "whether it encodes textures, whose tensors are like those of shapes, from which 0.5 "
            "is subtracted (TRELLIS.2: the model's \"name\" in its .json is "
            "FlexiDualGridVaeEncoder for shapes, SparseUnetVaeEncoder for textures)",
            asked=True,
            likely="false",
        )
    },
)

Family(
    "trellis1_mesh_upblocks",
    "the two up-blocks and the output layer of TRELLIS's mesh decoder (microsoft/TRELLIS)",
    _build_upblocks,
    {"channels_in": 768, "model_channels": (192, 96), "out_channels": 101, "groups": 32},
    {"spconv": "spconv", "torchsparse": "torchsparse"},
    {
        "spconv": "upsample.0.out_layers.0.conv.weight",
        "torchsparse": "upsample.0.out_layers.0.conv.kernel",
    },
    _latents,
    sizes={"spconv": trellis_sizes.upblocks(), "torchsparse": trellis_sizes.upblocks()},
    untold={"groups": Untold("of the group norms (TRELLIS: num_groups of SparseGroupNorm32)")},
)
