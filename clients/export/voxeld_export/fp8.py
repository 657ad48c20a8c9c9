"""e4m3 numbers, and the layers of a network.json that multiply them (engine/README.md, "FP8").

SPDX-License-Identifier: Apache-2.0
"""

import math

import ml_dtypes
import numpy as np

MOST = 448.0  # the largest number of e4m3
EXPONENT_MAX = 60  # of a scale
CONVOLUTIONS = ("subm_conv", "sparse_conv", "inverse_conv", "transposed_conv")


def rounded(values, scale):
    """scale times the nearest numbers of e4m3 of values / scale; scale broadcasts."""
    cut = np.clip(np.asarray(values, np.float64) / scale, -MOST, MOST).astype(np.float32)
    return cut.astype(ml_dtypes.float8_e4m3fn).astype(np.float64) * scale


def scale_for(most, bound=MOST):
    """The smallest power of two with most / scale <= bound, of those that a scale may be."""
    if most == 0:
        return 1.0
    exponent = math.ceil(math.log2(most / bound))
    while most / 2.0**exponent > bound:  # the logarithm is rounded
        exponent += 1
    while most / 2.0 ** (exponent - 1) <= bound:
        exponent -= 1
    return 2.0 ** min(max(exponent, -EXPONENT_MAX), EXPONENT_MAX)


def rounded_columns(weight):
    """A weight [..., Co] in e4m3: each column has the smallest scale that cuts nothing off."""
    columns = np.abs(weight).reshape(-1, weight.shape[-1]).max(axis=0)
    return rounded(weight, np.array([scale_for(most) for most in columns]))


def plain(document):
    """A network.json without FP8, as another dict."""
    document = {key: value for key, value in document.items() if key != "fp8"}
    document["layers"] = [
        {key: value for key, value in layer.items() if key != "fp8_scale"}
        for layer in document["layers"]
    ]
    return document
