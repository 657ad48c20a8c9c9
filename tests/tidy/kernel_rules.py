# SPDX-License-Identifier: Apache-2.0
"""Rules about kernels/: what differs between vendors' GPUs is in one place."""

from rules import Rule, code_only, find_all

MAY_ASK_COMPILER = ("kernels/device.h", "kernels/both.h", "kernels/matrix.cuh")


def check_vendor_macros(_path, text):
    yield from find_all(
        r"\b(__(?:CUDACC|CUDA_ARCH|HIP|AMDGCN|GFX|gfx)\w*)",
        code_only(text),
        "{0} is asked here: expected only in " + ", ".join(MAY_ASK_COMPILER)
        + "; ask device.h's VX_CUDA and VX_WAVE",
    )


RULES = [
    Rule(
        "vendor-macros",
        "what differs between vendors is in one place",
        lambda p: p.startswith("kernels/") and p not in MAY_ASK_COMPILER
        and not p.endswith(".md"),
        check_vendor_macros,
        bad=[("kernels/a.cu", "#ifdef __HIP__\n"), ("kernels/a.cuh", "#if __gfx942__\n")],
        good=[("kernels/a.cu", "#if VX_CUDA /* not __HIP__ */\n")],
    ),
]
