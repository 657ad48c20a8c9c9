"""Kernels, strides and shapes of one to three axes as network.json has them: always three.

SPDX-License-Identifier: Apache-2.0
"""

import numpy as np

from .errors import ExportError


def three(numbers, fill):
    """A number or a list of one to three as a list of three; axes that are missing are flat."""
    if isinstance(numbers, (int, np.integer)):
        return [int(numbers)] * 3
    numbers = [int(number) for number in numbers]
    if len(numbers) > 3:
        raise ExportError(f"it has {len(numbers)} axes; expected one to three")
    return numbers + [fill] * (3 - len(numbers))


def columns_note(axes):
    """What requests of a network of one or two axes send, as a sentence; "" for three."""
    if axes == 3:
        return ""
    sent = ["b", *"yx"[2 - axes :], *["0"] * (3 - axes)]
    return (
        f"its voxels have {axes} {'axis' if axes == 1 else 'axes'}: requests send the four columns "
        f"[{', '.join(sent)}], the missing {'axes' if axes == 1 else 'axis'} last"
    )


def unless(default, numbers):
    """None if all numbers are the default, which network.json then leaves out."""
    return None if all(number == default for number in numbers) else numbers
