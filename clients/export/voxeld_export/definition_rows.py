"""Features on a set of voxels, and the arithmetic of rows, in float64.

SPDX-License-Identifier: Apache-2.0
"""

import math

import numpy as np


class Rows:
    """Features on a set of voxels: float64 [rows, C]."""

    def __init__(self, on, values):
        self.on = on
        self.values = values

    def channels(self):
        return self.values.shape[1]


def product(rows, weight):
    """rows [n, Ci] times a weight [groups, Ci / groups, Co / groups]."""
    groups, ci, co = weight.shape
    if groups == 1:
        return rows @ weight[0]
    if ci == co == 1:
        return rows * weight[:, 0, 0]
    parts = rows.reshape(len(rows), groups, ci).transpose(1, 0, 2)
    return (parts @ weight).transpose(1, 0, 2).reshape(len(rows), groups * co)


def taken(values, rows, *parts):
    """values[rows], or values[rows, parts]; 0 where a row is -1."""
    if not len(values):
        return np.zeros((len(rows), *values.shape[1 + len(parts) :]))
    found = values[(np.maximum(rows, 0), *parts)]
    found[rows < 0] = 0
    return found


def largest(on, logits, top):
    """Which voxels of each sample have the `top` largest logits; of equal ones the first."""
    stays = np.zeros(len(on), bool)
    for _sample, rows in on.samples():
        order = np.argsort(-logits[rows], kind="stable")  # rows ascend
        stays[rows.start + order[:top]] = True
    return stays


def normalised(values, axes, eps):
    centred = values - values.mean(axis=axes, keepdims=True)
    return centred / np.sqrt(np.square(centred).mean(axis=axes, keepdims=True) + eps)


def _sigmoid(v):
    return np.exp(-np.logaddexp(0, -v))


def _softmax(v):
    power = np.exp(v - v.max(axis=1, keepdims=True))
    return power / power.sum(axis=1, keepdims=True)


def _gelu(v):
    erf = np.frompyfunc(math.erf, 1, 1)(v / math.sqrt(2)).astype(np.float64)
    return v * 0.5 * (1 + erf)


CURVES = {
    "relu": lambda v: np.maximum(v, 0),
    "silu": lambda v: v * _sigmoid(v),
    "gelu": _gelu,
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "softplus": lambda v: np.logaddexp(0, v),
    "softmax": _softmax,
}
