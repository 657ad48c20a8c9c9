"""Writing weights.safetensors, rounded if that is wanted.

SPDX-License-Identifier: Apache-2.0
"""

import json
import os
import warnings

import ml_dtypes
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from .errors import ExportError, some
from .example import not_finite

_TYPES = {"FP32": np.float32, "FP16": np.float16, "BF16": ml_dtypes.bfloat16}
DATATYPES = tuple(_TYPES)
_WIDER = {"FP16": "BF16 or FP32", "BF16": "FP32"}

# In the file's metadata: the file is an export's, which another export may replace.
_WRITER = {"written_by": "voxeld-export"}

# Of the rounding of one tensor.  Where a type has all its bits it is at most 8e-8 in FP16, and
# 1.3e-6 in BF16.  FP16 has fewer below 6e-5, and none below 6e-8.
NMSE_MAX = 1e-4


def round_weights(name, array, datatype):
    """An array in a datatype ("FP32", "FP16", "BF16"), rounded to nearest even.

    Warns of a tensor of which much is lost because it is too small for the type; ExportError where
    it is too large, or all of it becomes 0.
    """
    array = np.asarray(array)
    with np.errstate(over="ignore", under="ignore"):
        result = array.astype(_TYPES[datatype])
    wider = f"export as {_WIDER[datatype]}" if datatype in _WIDER else "scale the weights"
    kept = result.astype(np.float64)
    lost = ~np.isfinite(kept) & np.isfinite(array)
    if lost.any():
        most = array[lost].flat[0]
        raise ExportError(f"{name} has {most:g}, which is beyond {datatype}: {wider}")
    gone = (kept == 0) & (array != 0)
    if gone.any() and not kept.any():
        raise ExportError(
            f"{name} becomes 0 in all its {gone.size} elements in {datatype}, its largest is "
            f"{np.abs(array).max():g}: {wider}"
        )
    nmse = _nmse(array, kept)
    if nmse > NMSE_MAX:
        warnings.warn(
            f"{name} in {datatype}: {gone.mean():.0%} of its {gone.size} elements become 0, and "
            f"the NMSE of the rounding is {nmse:.2g}, expected at most {NMSE_MAX:g}: {wider} "
            "(recorded answers show what it costs; another source has the rounded weights, too)",
            stacklevel=2,
        )
    return result


def _nmse(array, rounded):
    """Sum of squared differences over the sum of squares; squares of small numbers are not 0."""
    array = array.astype(np.float64)
    most = np.abs(array).max(initial=0.0)
    if not 0 < most < np.inf:
        return 0.0
    array, rounded = array / most, rounded / most
    return float(np.square(array - rounded).sum() / np.square(array).sum())


def expect_finite(tensors, path=None):
    """ExportError that names the tensors of {name: array} which have NaN or infinities."""
    wrong = {name: not_finite(np.asarray(array)) for name, array in tensors.items()}
    wrong = [f"{name} has {said}" for name, said in wrong.items() if said]
    if wrong:
        raise ExportError(f"{f'{path}: ' if path else ''}{some(wrong)}; expected finite numbers")


def write_weights(path, tensors, datatypes):
    """Writes {name: array} to a file that takes the place of an older one at once.

    datatypes  {name: datatype}: what a tensor is rounded to; else it is written as it is, float64
               as float32.
    """
    expect_finite({name: a for name, a in tensors.items() if a.dtype.kind not in "iub"})
    parts = {}
    for name, array in tensors.items():
        datatype = datatypes.get(name, "FP32" if array.dtype == np.float64 else None)
        if not datatype and array.dtype not in _TYPES.values():
            raise ExportError(f"{name} is {array.dtype}; expected floating-point numbers")
        parts[name] = round_weights(name, array, datatype) if datatype else array
    try:
        save_file(parts, path + ".new", metadata=_WRITER)
    except (OSError, SafetensorError) as error:
        raise ExportError(f"{path} cannot be written: {error}") from error
    # Readable by the user that the server runs as, whatever the umask of training is.
    os.chmod(path + ".new", 0o644)
    os.replace(path + ".new", path)


def wrote(path):
    """Whether an export wrote this file."""
    try:
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            said = json.loads(file.read(size)).get("__metadata__", {})
    except (OSError, ValueError, AttributeError, OverflowError, MemoryError):
        return False
    return isinstance(said, dict) and said.items() >= _WRITER.items()
