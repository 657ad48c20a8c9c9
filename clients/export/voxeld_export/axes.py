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


def unless(default, numbers):
    """None if all numbers are the default, which network.json then leaves out."""
    return None if all(number == default for number in numbers) else numbers
