"""voxeld_export: networks of PyTorch's sparse libraries as models for voxeld.

    from voxeld_export import from_module
    print(from_module(net.eval(), example, "repository/minkunet"))

SPDX-License-Identifier: Apache-2.0
"""

from .errors import CheckFailed, ExportError

__all__ = ["CheckFailed", "ExportError", "from_module", "from_onnx"]


def __getattr__(name):
    # torch is needed only where a live module is given.
    if name == "from_module":
        from .module import from_module

        return from_module
    if name == "from_onnx":
        from .onnx import from_onnx

        return from_onnx
    raise AttributeError(name)
