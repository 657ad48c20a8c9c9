"""What a sparse library's part of the exporter has to say.

SPDX-License-Identifier: Apache-2.0
"""

import sys

import numpy as np

from ..errors import ExportError, OtherCoords
from ..example import whole


class Sparse:
    """A sparse tensor of any library.

    features  a torch.Tensor [N, C]
    coords    int32 [N, 4]: sample, then three axes, as the server wants them
    shape     voxels along the three axes, or None
    axes      that the library's tensor has: with fewer than three the last ones of coords are 0
    """

    def __init__(self, features, coords, shape=None, axes=3):
        self.features = features
        self.coords = coords
        self.shape = shape
        self.axes = axes


class Library:
    """One library during one trace: it remembers the sets of voxels that its modules made.

    packages  names of its Python packages; classes of others are not looked at
    through   its modules that only call others, or functions of torch
    bases     classes whose children all do only that
    makers    {class name: method that adds its layer}
    backends  libraries that its modules call: a network may have modules of those, too
    functional  whether it has functions instead of modules
    """

    name = "none"
    packages = ()
    through = frozenset()
    bases = frozenset()
    makers = {}
    backends = ()
    functional = False

    def __init__(self):
        self.coords = {}  # of each set: int32 [rows, 4]
        self.sent = "the example's"  # whose coords a request sends

    def sparse(self, thing):
        """A Sparse if `thing` is a sparse tensor of this library, else None."""
        del thing

    def rebuilt(self, thing, feats, coords, samples):
        """A sparse tensor like `thing` with other rows.

        coords  a torch.Tensor, int32 [N, 4], in voxels of its set; a sample's rows lie together
        """
        del feats, coords, samples
        raise ExportError(f"no other {type(thing).__name__} can be made")

    def methods(self, trace):
        """[(class, name, added)]: methods of sparse tensors that do what layers do."""
        del trace
        return []

    def wrapped(self, trace):
        """[(class, name, wrap)]: during the trace wrap(method) runs in place of a class's method.

        For what the library's own code needs to run where the export runs.
        """
        del trace
        return []

    def module(self, module):
        """The function that adds the layer of a module, or None: its forward pass is followed."""
        names = [c.__name__ for c in type(module).__mro__ if self.owns(c)]
        for name in names:
            if name in self.makers:
                # A class of the user's may add to what the library's forward pass does.
                own = next(c for c in type(module).__mro__ if "forward" in vars(c))
                return getattr(self, self.makers[name]) if self.owns(own) else self._overridden
        if (
            not self.owns(type(module))
            or names[0] in self.through
            or self.bases.intersection(names)
        ):
            return None
        return self._refused

    def dense_view(self, trace, value, x, shape):
        """`x`, the dense tensor that `value` is, seen with another shape, a tuple of sizes."""
        del trace, value
        raise ExportError(f"it makes shape {shape} of {tuple(x.shape)}")

    def remember(self, on, coords):
        """Keeps the coordinates of a set, in the order of the library's rows."""
        self.coords.setdefault(on, coords)

    def reads(self, source, coords, who, note=""):
        """OtherCoords unless the Value `source` has the coordinates of its set, row by row.

        who   reads it: the error begins with that; note: ends what the error says of requests
        """
        self.remember(source.on, coords)
        said = differing(coords, self.coords[source.on])
        if not said:
            return
        whose = f"those of {source.layer}, whose features it gets"
        if source.layer == "feats":
            whose = f"{self.sent}, which requests send{note and ': ' + note}"
        raise OtherCoords(
            f"{who} gets other coordinates than {whose}: {said}; no layer changes coordinates: let "
            "the client do it, before or behind the network"
        )

    @classmethod
    def owns(cls, kind):
        """Whether a class is the library's own."""
        return kind.__module__.split(".")[0] in cls.packages

    @classmethod
    def imported(cls):
        """Whether this process uses the library."""
        return any(package in sys.modules for package in cls.packages)

    def _overridden(self, trace, module, args, kwargs, result):
        del args, kwargs
        trace.refuse(
            result,
            f"{type(module).__name__} {trace.said()}, whose forward is not {self.name}'s: "
            "call a module of the library from a module instead of deriving from it",
        )

    def _refused(self, trace, module, args, kwargs, result):
        del args, kwargs
        trace.refuse(
            result, f"{self.name}'s {type(module).__name__} {trace.said()}, which no layer does"
        )


def differing(coords, expected):
    """Says how the rows of coords differ from those expected, int32 [N, 4]; "" if they do not."""
    if len(coords) != len(expected):
        return f"{len(coords)} rows came, {len(expected)} were expected"
    rows = np.flatnonzero((coords != expected).any(1))
    if not len(rows):
        return ""
    first = rows[0]
    moved = all(np.array_equal(*map(np.sort, axes)) for axes in zip(coords.T, expected.T))
    order = moved and np.array_equal(np.unique(coords, axis=0), np.unique(expected, axis=0))
    return (
        f"row {first} came as {coords[first].tolist()}, expected {expected[first].tolist()}"
        f"{' (the same voxels in another order)' if order else ''}"
    )


def four_columns(coords):
    """int32 [N, 4] of an array with a sample and one to three axes; missing axes are 0."""
    coords = np.asarray(coords)
    if coords.ndim != 2 or not 2 <= coords.shape[1] <= 4:
        raise ExportError(
            f"coords have shape {coords.shape}; expected [N, 4]: the sample, then three axes"
        )
    full = np.zeros((len(coords), 4), np.int32)
    full[:, : coords.shape[1]] = whole(coords)
    return full
