"""Residual U-nets of sparse convolutions: what MinkUNet, SparseResUNet, SpUNet and SPVCNN share.

Down by kernels of 2 with stride 2, blocks of two convolutions around a shortcut, up by the weights'
own 8 offsets to the voxels that were there, and a concatenation with what was there: [up, skip].
The sources differ in the names of tensors, in the stem, and in where channels change.

SPDX-License-Identifier: Apache-2.0
"""

import itertools

import numpy as np

from ..errors import ExportError


class Naming:
    """How a source calls the modules of its U-net, and what else is its own.

    library    whose convolutions they are
    stem       [(convolution, norm)]: one of kernel 5, or two of kernel 3
    down, up   function of the step (0 = the first that runs): (convolution, norm)
    encoder, decoder  function of the step and the block's number: the block
    block      (convolution, norm, convolution, norm) in a block
    shortcut   (convolution of kernel 1, norm) in a block that changes channels
    head       the last layer; None: the source has none
    linear     the head is torch's linear layer, not a convolution of kernel 1
    eps        of all norms
    narrow     the convolution down keeps the channels, and the first block changes them
    """

    def __init__(
        self,
        library,
        *,
        stem,
        down,
        up,
        encoder,
        decoder,
        block,
        shortcut,
        head,
        linear=False,
        eps=1e-5,
        narrow=True,
    ):
        self.library, self.stem, self.down, self.up = library, stem, down, up
        self.encoder, self.decoder, self.block, self.shortcut = encoder, decoder, block, shortcut
        self.head, self.linear, self.eps, self.narrow = head, linear, eps, narrow

    def kernel(self):
        """Of the stem."""
        return 5 if len(self.stem) == 1 else 3

    def width(self, norm):
        """(tensor, axis) that has a norm's channels, in every version of a library alike."""
        return f"{norm}.bn.weight" if self.library == "minkowski" else f"{norm}.weight", 0

    def sizes(self, steps):
        """How a checkpoint says the options of a U-net (Family.sizes)."""
        stem, norm = self.stem[0]
        weight = f"{stem}.weight" if self.library == "spconv" else f"{stem}.kernel"
        names = [self.encoder] * steps + [self.decoder] * steps

        def channels(checkpoint, at, number):
            """Of a block, by one of its norms; None: there is no such block."""
            block = names[at](at % steps, number)
            norms = (self.width(f"{block}.{part}") for part in (self.block[1], self.block[3]))
            found = [checkpoint.size(*norm) for norm in norms]
            return found[0] or found[1]

        def channels_in(checkpoint):
            shape, width = checkpoint.shape(weight), checkpoint.size(*self.width(norm))
            offsets = self.kernel() ** 3
            if shape and self.library != "spconv" and len(shape) == 3 and shape[0] != offsets:
                raise ExportError(
                    f"{checkpoint.path}: {weight} has shape {list(shape)}, a kernel of {shape[0]} "
                    f"offsets; the family's stem has {self.kernel()}^3 = {offsets}"
                )
            return int(np.prod(shape)) // (self.kernel() ** 3 * width) if shape and width else None

        def planes(checkpoint):
            found = tuple(channels(checkpoint, at, 0) for at in range(2 * steps))
            return None if None in found else found

        def layers(checkpoint):
            found = tuple(
                next(number for number in itertools.count() if not channels(checkpoint, at, number))
                for at in range(2 * steps)
            )
            return None if 0 in found else found

        sizes = {"stem": self.width(norm), "planes": planes, "layers": layers}
        sizes["channels_in"] = channels_in
        if self.head:
            sizes["classes"] = (f"{self.head}.bias", -1)
        return sizes


class UNet:
    """The layers of one U-net, part by part.

    planes  channels of the steps down, then up; layers: blocks of each
    stem    channels of the stem
    cr      all channels are multiplied by it and rounded down, but those of the head
    """

    # Random weights only: what a block adds to its input, so that sums of many stay small.
    _ADDED, _SHORT = 0.2, 0.7

    def __init__(self, net, naming, *, planes, layers, stem, cr=1.0):
        if len(planes) != len(layers) or len(planes) % 2 or not planes:
            raise ExportError(
                f"{len(planes)} planes and {len(layers)} layers; expected two of each for every "
                "step: on the way down, then up"
            )
        self.net, self.naming, self.layers = net, naming, [int(count) for count in layers]
        self.planes = [int(cr * channels) for channels in planes]
        self.channels = int(cr * stem)
        if min(self.layers) < 1 or min([self.channels, *self.planes]) < 1:
            raise ExportError(
                f"channels {[self.channels, *self.planes]}, layers {self.layers}; "
                "expected at least 1 of each"
            )
        self.steps = len(planes) // 2
        self._strided = []  # results of the convolutions down, for the way up

    def stem(self, x):
        """On the voxels of x."""
        for conv, norm in self.naming.stem:
            x = self.net.subm_conv(x, conv, self.channels, self.naming.kernel())
            x = self._norm_relu(x, norm)
        return x

    def down(self, step, x):
        """To half the resolution, and the blocks there."""
        conv, norm = self.naming.down(step)
        channels = x.channels if self.naming.narrow else self.planes[step]
        x = self.net.sparse_conv(x, conv, channels, 2, 2, rule="floor")
        self._strided.append(x)
        x = self._norm_relu(x, norm)
        return self._blocks(x, self.naming.encoder, step, step)

    def up(self, step, x, skip):
        """To twice the resolution, joined with `skip`, and the blocks there."""
        conv, norm = self.naming.up(step)
        at = self.steps + step
        of = self._strided[self.steps - 1 - step]
        if self.naming.library == "minkowski":
            x = self.net.transposed_conv(x, conv, self.planes[at], 2, 2, skip)
        else:
            x = self.net.inverse_conv(x, conv, self.planes[at], of)
        x = self.net.concat([self._norm_relu(x, norm), skip], f"{conv}.cat")
        return self._blocks(x, self.naming.decoder, step, at)

    def head(self, x, classes):
        """The classes' logits of each row, as an output; without classes the features are one."""
        classes = int(classes)
        if classes == 0 or self.naming.head is None:
            return self.net.network.output(x, "features")
        if self.naming.linear:
            x = self.net.linear(x, self.naming.head, classes, own=False)
        else:
            x = self.net.subm_conv(x, self.naming.head, classes, 1, bias=True)
        return self.net.network.output(x, "logits")

    # --- their parts ---

    def _norm_relu(self, x, norm):
        return self.net.relu(self.net.batch_norm(x, norm, eps=self.naming.eps))

    def _blocks(self, x, name, step, at):
        for number in range(self.layers[at]):
            x = self._block(x, name(step, number), self.planes[at])
        return x

    def _block(self, x, name, channels):
        net, eps = self.net, self.naming.eps
        conv1, norm1, conv2, norm2 = (f"{name}.{part}" for part in self.naming.block)
        short = x
        if x.channels != channels:
            conv, norm = (f"{name}.{part}" for part in self.naming.shortcut)
            short = net.subm_conv(x, conv, channels, 1, gain=self._SHORT)
            short = net.batch_norm(short, norm, eps=eps)
        y = self._norm_relu(net.subm_conv(x, conv1, channels), norm1)
        y = net.batch_norm(net.subm_conv(y, conv2, channels), norm2, eps=eps, gain=self._ADDED)
        return net.relu(net.add(y, short, f"{name}.add"), f"{name}.relu")
