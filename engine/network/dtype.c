/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/signature.h"

size_t vx_dtype_bytes(enum vx_dtype dtype)
{
    switch (dtype) {
    case VX_DTYPE_NONE: return 0;
    case VX_DTYPE_F32: return 4;
    case VX_DTYPE_F16: return 2;
    case VX_DTYPE_BF16: return 2;
    case VX_DTYPE_I32: return 4;
    }
    return 0;
}

const char *vx_dtype_name(enum vx_dtype dtype)
{
    switch (dtype) {
    case VX_DTYPE_NONE: return "none";
    case VX_DTYPE_F32: return "FP32";
    case VX_DTYPE_F16: return "FP16";
    case VX_DTYPE_BF16: return "BF16";
    case VX_DTYPE_I32: return "INT32";
    }
    return "none";
}
