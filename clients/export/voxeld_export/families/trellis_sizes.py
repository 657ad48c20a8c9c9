"""What the checkpoints of TRELLIS say of their options, and how large its sets may become.

SPDX-License-Identifier: Apache-2.0
"""

# Of the finest set.  By the plan's count of tensors and maps in FP16, the default of --device-bytes
# holds no more: of a decoder, and of two on one geometry.
ROWS_MAX = 2097152
BOTH_ROWS_MAX = 1572864
_LATENTS_MAX = 49152  # voxels of TRELLIS.2's latents: its pipeline samples no more
_CHILDREN = 4  # of a voxel on a surface
_SLACK = 1.5  # for surfaces with holes, edges and thin walls

# --- limits of network.json ---


def decoder_limits(prefix):
    """A function that limits the predicted sets of a decoder.

    Without limits each level counts as 8 times the one before, which no surface has, and
    4 levels leave room for small requests only.
    """

    def top(*, num_blocks, rows_max, **_options):
        last = len(num_blocks) - 1
        return _limits(
            {f"{prefix}blocks.{i}.{num_blocks[i]}.updown": last - 1 - i for i in range(last)},
            rows_max,
        )

    return top


def encoder_limits(*, num_blocks, rows_max, **_options):
    """Limits of an encoder's sets: without them each counts with the voxels of a request."""
    return _limits(
        {f"blocks.{i}.{num_blocks[i]}.updown": i + 1 for i in range(len(num_blocks) - 1)}, rows_max
    )


def _limits(layers, rows_max):
    """limits of {a layer on a set: how many levels that is above the finest one}."""
    if not layers:
        return {}
    return {"limits": {"sets": {name: _rows(level, rows_max) for name, level in layers.items()}}}


def _rows(level, rows_max):
    surface = int(rows_max * (_SLACK if level else 1) / _CHILDREN**level)
    return max(surface, min(rows_max, _LATENTS_MAX))


# --- options of checkpoints ---


def decoder(prefix, latents=1):
    """Options of a decoder's checkpoint; the network's input has `latents` latents of a voxel."""
    return {
        "channels_in": lambda checkpoint: _times(
            latents, checkpoint.size(f"{prefix}from_latent.weight", 1)
        ),
        "model_channels": lambda checkpoint: _levels(
            checkpoint, prefix, checkpoint.size(f"{prefix}output_layer.weight", 1)
        )[0],
        "num_blocks": lambda checkpoint: _levels(checkpoint, prefix, None)[1],
        "out_channels": (f"{prefix}output_layer.weight", 0),
    }


def encoder():
    """Options of an encoder's checkpoint."""
    return {
        "channels_in": ("input_layer.weight", 1),
        "model_channels": lambda checkpoint: _levels(
            checkpoint, "", checkpoint.size("to_latent.weight", 1)
        )[0],
        "num_blocks": lambda checkpoint: _levels(checkpoint, "", None)[1],
        "out_channels": lambda checkpoint: _times(0.5, checkpoint.size("to_latent.weight", 0)),
    }


def upblocks():
    """Options of the up-blocks in a checkpoint of TRELLIS v1's mesh decoder."""
    return {
        "channels_in": ("upsample.0.act_layers.0.weight", 0),
        "model_channels": _upblocks,
        "out_channels": ("out_layer.weight", 0),
    }


# --- their parts ---


def _levels(checkpoint, prefix, last):
    """(model_channels, num_blocks) as lists of numbers; None where a tensor is missing.

    Every level but the last one ends with a block that changes the resolution, and has norm1.
    last  channels of the last level
    """
    channels, blocks = [], []
    while True:
        level = f"{prefix}blocks.{len(blocks)}"
        blocks.append(0)
        while checkpoint.size(f"{level}.{blocks[-1]}.mlp.0.weight", 0) is not None:
            blocks[-1] += 1
        size = checkpoint.size(f"{level}.{blocks[-1]}.norm1.weight", 0)
        if size is None:
            return (*channels, last) if last else None, tuple(blocks)
        channels.append(size)


def _upblocks(checkpoint):
    """Channels behind each up-block."""
    channels = []
    while size := checkpoint.size(f"upsample.{len(channels)}.out_layers.1.weight", 0):
        channels.append(size)
    return tuple(channels) or None


def _times(factor, size):
    return None if size is None else int(factor * size)
