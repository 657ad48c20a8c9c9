# SPDX-License-Identifier: Apache-2.0
"""What tests of the stock client share: its tensors, its errors, which test has which method."""
import contextlib
import inspect
import re

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from voxeld_process import PATIENCE

SECONDS = PATIENCE


def inputs_of(coords, feats):
    """The two tensors as InferInput."""
    out = []
    for name, array in (("coords", coords), ("feats", feats)):
        tensor = triton.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
        out.append(tensor.set_data_from_numpy(array))
    return out


@contextlib.contextmanager
def refused(code, text=""):
    """The block raises the client's own exception with this status and `text` in it."""
    with pytest.raises(InferenceServerException) as caught:
        yield caught
    assert caught.value.status() == f"StatusCode.{code}", caught.value
    assert text in caught.value.message() and len(caught.value.message()) > 10, caught.value


def same(result, expected):
    """Bit for bit what our own client was answered."""
    array = result.as_numpy("out")
    assert array.dtype == expected["out"].dtype and array.shape == expected["out"].shape
    assert array.tobytes() == expected["out"].tobytes()


# Feats of one grid in every type the service takes, and how our own client is asked for the same.
def feats_in(datatype, feats):
    if datatype == "BF16":
        return feats.astype(ml_dtypes.bfloat16), {"bf16": True}, feats
    cast = feats.astype({"FP16": np.float16, "FP32": np.float32}[datatype])
    return cast, {}, cast


def public_methods(kind):
    """Names of what a user may call on an instance."""
    return {name for name in dir(kind)
            if not name.startswith("_") and callable(getattr(kind, name))}


def check_coverage(kind, table, module):
    """Every public method has a test in the table, and that test does call it.

    A new method of a newer client fails here until a test covers it."""
    assert set(table) == public_methods(kind)
    for method, test in table.items():
        source = inspect.getsource(getattr(module, test))
        assert re.search(rf"\.{method}\(", source), f"{test} does not call {method}()"
