"""A request and a network's answers to it, in a file: what the proof of an export compares with.

SPDX-License-Identifier: Apache-2.0
"""

import zipfile
import zlib

import numpy as np

from .errors import ExportError


def arrays_of(path):
    """The arrays of an .npz.  Nothing of it is unpickled, as that can run code."""
    try:
        file = np.load(path)
        if not isinstance(file, np.lib.npyio.NpzFile):
            raise ValueError("it is a single array")
        with file:
            return dict(file)
    except FileNotFoundError as error:
        raise ExportError(f"{path} does not exist: expected an .npz of arrays") from error
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise ExportError(f"{path} is not an .npz of arrays: {error}") from error


class Example:
    """A request and the answers of the source to it.

    coords   int32 [N, 4]
    feats    float32 [N, C]
    outputs  {name: (array, coords of its rows or None)}: None = the request's rows, or no voxels
    """

    def __init__(self, coords, feats, outputs=None):
        self.coords = coords
        self.feats = feats
        self.outputs = outputs or {}

    def save(self, path):
        """As .npz: coords, feats, and for each output out.NAME and at.NAME."""
        arrays = {"coords": self.coords, "feats": self.feats}
        for name, (array, coords) in self.outputs.items():
            arrays["out." + name] = array
            if coords is not None:
                arrays["at." + name] = coords
        np.savez(path, **arrays)

    @classmethod
    def open(cls, path):
        """Reads what `save` wrote, or a request alone: then there are no outputs."""
        arrays = arrays_of(path)
        for name in ("coords", "feats"):
            if name not in arrays:
                raise ExportError(
                    f"{path} has no array {name}; expected coords, feats and out.NAME, "
                    f"found {', '.join(arrays) or 'none'}"
                )
        outputs = {
            name[4:]: (array, arrays.get("at." + name[4:]))
            for name, array in arrays.items()
            if name.startswith("out.")
        }
        return cls(four_of(arrays["coords"]), np.asarray(arrays["feats"], np.float32), outputs)


def four_of(coords):
    """Coordinates as int32 [N, 4]."""
    array = np.asarray(coords)
    if array.ndim != 2 or array.shape[1] != 4:
        raise ExportError(
            f"coords have shape {array.shape}; expected [N, 4]: the sample, then three axes"
        )
    return array.astype(np.int32)
