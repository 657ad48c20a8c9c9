"""Ridge regression in closed form: the one way in which these stories fit weights.

    fit = Ridge(96, 5)
    fit.add(features, targets, weights)         # as often as there is data
    matrix, bias = fit.solve(1e-3)              # targets ~ features @ matrix + bias

No gradient, no epoch: sums of products are collected, and one linear system is solved.

SPDX-License-Identifier: Apache-2.0
"""

import numpy as np

_ROWS = 16384  # of a product at a time


class Ridge:
    """Sums of x^T x and x^T y, of features with a constant beside them."""

    def __init__(self, features, targets):
        self.xx = np.zeros((features + 1, features + 1))
        self.xy = np.zeros((features + 1, targets))
        self.weight = 0.0

    def add(self, features, targets, weights=None):
        """Rows of features [N, F] and targets [N, T]; weights [N] say how much a row counts."""
        for first in range(0, len(features), _ROWS):
            part = slice(first, first + _ROWS)
            x = np.insert(features[part], features.shape[1], 1, axis=1)
            w = np.ones(len(x), x.dtype) if weights is None else weights[part].astype(x.dtype)
            self.xx += (x * w[:, None]).T @ x
            self.xy += (x * w[:, None]).T @ targets[part].astype(x.dtype)
            self.weight += w.sum()

    def solve(self, strength=1e-4):
        """(matrix [F, T], bias [T]), float32; the penalty is `strength` times the mean square of
        the features, and does not count for the bias."""
        penalty = np.full(len(self.xx), strength * np.trace(self.xx[:-1, :-1]) / (len(self.xx) - 1))
        penalty[-1] = 1e-9 * self.weight
        found = np.linalg.solve(self.xx + np.diag(penalty), self.xy)
        return found[:-1].astype(np.float32), found[-1].astype(np.float32)


def balanced(labels, classes):
    """A weight for each row, with which every class counts the same."""
    counts = np.bincount(labels, minlength=classes)
    return (len(labels) / np.maximum(counts, 1) / classes)[labels]
