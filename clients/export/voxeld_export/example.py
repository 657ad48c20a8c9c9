"""A request and a network's answers to it, in a file: what the proof of an export compares with.

SPDX-License-Identifier: Apache-2.0
"""

import difflib
import zipfile
import zlib

import numpy as np

from .errors import ExportError, some


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

    coords    int32 [N, 4]
    feats     float32 [N, C]
    outputs   {name: (array, coords of its rows or None)}: None = the request's rows, or no voxels
    path      of the file that it was read from, for errors
    recorded  whether the outputs must be there: a trained network's, which are the proof's source
    """

    def __init__(self, coords, feats, outputs=None, path=None, recorded=False):
        self.coords = coords
        self.feats = feats
        self.outputs = outputs or {}
        self.path = path
        self.recorded = recorded

    def save(self, path):
        """As .npz: coords, feats, and for each output out.NAME and at.NAME."""
        arrays = {"coords": self.coords, "feats": self.feats}
        for name, (array, coords) in self.outputs.items():
            arrays["out." + name] = array
            if coords is not None:
                arrays["at." + name] = coords
        save_arrays(path, arrays)

    @classmethod
    def open(cls, path, *, outputs=True, recorded=False):
        """Reads what `save` wrote, or a request alone: then there are no outputs.

        outputs  False: what the file has of them is left out
        """
        arrays = arrays_of(path)
        for name in ("coords", "feats"):
            if name not in arrays:
                raise ExportError(
                    f"{path} has no array {name}; expected coords, feats and out.NAME, "
                    f"got {some(arrays)}"
                )
        found = {}
        for key in arrays if outputs else ():
            if key.startswith("out."):
                found[key[4:]] = _output(path, key, arrays)
        coords = four_of(arrays["coords"], f"{path}: coords")
        feats = _feats(path, arrays["feats"], len(coords))
        return cls(coords, feats, found, path, recorded)

    def expect_outputs(self, names):
        """ExportError unless it has the network's outputs, all of them and no others."""
        where, wanted = self.path or "the example", ", ".join(f"out.{name}" for name in names)
        for name in self.outputs:
            if name not in names:
                near = difflib.get_close_matches(name, names, 1, 0)
                more = f" (the nearest is {near[0]})" if near else ""
                raise ExportError(
                    f"{where} has out.{name}, and the network no output {name}{more}; "
                    f"expected {wanted}"
                )
        missing = [f"out.{name}" for name in names if name not in self.outputs]
        if missing:
            raise ExportError(
                f"{where} lacks {', '.join(missing)}, of which nothing would be proven; expected "
                f"{wanted}, got {some(f'out.{name}' for name in self.outputs)}"
                f"{' (--example takes a request alone)' if not self.outputs else ''}"
            )

    def expect_numbers(self):
        """ExportError where it is no source of a proof: nothing to compare, or NaN."""
        where = self.path or "the example"
        if not len(self.coords):
            raise ExportError(f"{where} has 0 voxels, which proves nothing; expected 1 or more")
        arrays = {"feats have": self.feats}
        for name, (array, _) in self.outputs.items():
            arrays[f"the source's output {name} has"] = array
        for what, array in arrays.items():
            wrong = not_finite(array)
            if wrong:
                raise ExportError(f"{where}: {what} {wrong}; expected finite numbers")


def _output(path, key, arrays):
    """(array, coords or None) of an output in a file."""
    array, at = arrays[key], arrays.get("at." + key[4:])
    if array.dtype.kind not in "biuf":
        raise ExportError(f"{path}: {key} is {array.dtype}; expected numbers")
    if at is None:
        return array, None
    at = four_of(at, f"{path}: at.{key[4:]}")
    if array.ndim < 1 or len(array) != len(at):
        raise ExportError(
            f"{path}: {key} has shape {list(array.shape)}; expected {len(at)} rows, those of "
            f"at.{key[4:]}"
        )
    return array, at


def _feats(path, array, rows):
    """The features of a file as float32 [N, C]."""
    if array.dtype.kind not in "biuf":
        raise ExportError(f"{path}: feats are {array.dtype}; expected numbers")
    if array.ndim != 2 or len(array) != rows:
        raise ExportError(
            f"{path}: feats have shape {list(array.shape)}; expected [{rows}, C], as coords have "
            f"{rows} rows"
        )
    with np.errstate(over="ignore"):
        made = array.astype(np.float32)
    lost = np.isfinite(array) & ~np.isfinite(made)
    if lost.any():
        raise ExportError(
            f"{path}: feats have {array[lost][0]:g} {_place(lost)}; expected numbers of float32"
        )
    return made


def not_finite(array):
    """Says how many numbers are NaN or infinite, and the first; "" if none is."""
    wrong = ~np.isfinite(array)
    if not wrong.any():
        return ""
    return (
        f"{int(wrong.sum())} of {wrong.size} numbers that are NaN or infinite, the first "
        f"{float(array[wrong][0])} {_place(wrong)}"
    )


def _place(wrong):
    """The index of the first element that is wrong."""
    return f"at {np.argwhere(wrong)[0].tolist()}"


def save_arrays(path, arrays):
    """An .npz as voxeld and voxel read it: row-major, in this machine's order of bytes."""
    np.savez(
        path,
        **{
            name: np.ascontiguousarray(array, array.dtype.newbyteorder("="))
            for name, array in arrays.items()
        },
    )


def four_of(coords, name="coords"):
    """Coordinates as int32 [N, 4]; of whole numbers of any type."""
    array = np.asarray(coords)
    if array.ndim != 2 or array.shape[1] != 4:
        raise ExportError(
            f"{name} have shape {array.shape}; expected [N, 4]: the sample, then three axes"
        )
    return whole(array, name)


def whole(array, name="coords"):
    """Whole numbers as int32: nothing is cut off, and nothing wraps around."""
    if array.dtype.kind not in "iuf":
        raise ExportError(f"{name} are {array.dtype}; expected whole numbers")
    with np.errstate(invalid="ignore"):
        made = array.astype(np.int32)
    wrong = made != array
    if wrong.any():
        raise ExportError(
            f"{name} have {array[wrong][0]} {_place(wrong)}; expected whole numbers of int32"
        )
    return made
