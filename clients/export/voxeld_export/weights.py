"""Writing weights.safetensors, rounded if that is wanted.

SPDX-License-Identifier: Apache-2.0
"""

import os

import ml_dtypes
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from .errors import ExportError

_TYPES = {"FP32": np.float32, "FP16": np.float16, "BF16": ml_dtypes.bfloat16}
DATATYPES = tuple(_TYPES)


def round_weights(name, array, datatype):
    """An array in a datatype ("FP32", "FP16", "BF16"), rounded to nearest even."""
    array = np.asarray(array)
    with np.errstate(over="ignore"):
        result = array.astype(_TYPES[datatype])
    lost = ~np.isfinite(result.astype(np.float32)) & np.isfinite(array)
    if lost.any():
        raise ExportError(
            f"{name} has {array[lost].flat[0]:g}, which is beyond {datatype}: "
            "export as BF16 or FP32"
        )
    return result


def write_weights(path, tensors, datatypes):
    """Writes {name: array} to a file that takes the place of an older one at once.

    datatypes  {name: datatype}: what a tensor is rounded to; else it is written as it is, float64
               as float32.
    """
    parts = {}
    for name, array in tensors.items():
        datatype = datatypes.get(name, "FP32" if array.dtype == np.float64 else None)
        if not datatype and array.dtype not in _TYPES.values():
            raise ExportError(f"{name} is {array.dtype}; expected floating-point numbers")
        parts[name] = round_weights(name, array, datatype) if datatype else array
    try:
        save_file(parts, path + ".new")
    except (OSError, SafetensorError) as error:
        raise ExportError(f"{path} cannot be written: {error}") from error
    # Readable by the user that the server runs as, whatever the umask of training is.
    os.chmod(path + ".new", 0o644)
    os.replace(path + ".new", path)
