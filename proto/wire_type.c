/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/request.h"

#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [VX_WIRE_NONE] = {"unknown", 0},  [VX_WIRE_BOOL] = {"BOOL", 1},
    [VX_WIRE_UINT8] = {"UINT8", 1},   [VX_WIRE_UINT16] = {"UINT16", 2},
    [VX_WIRE_UINT32] = {"UINT32", 4}, [VX_WIRE_UINT64] = {"UINT64", 8},
    [VX_WIRE_INT8] = {"INT8", 1},     [VX_WIRE_INT16] = {"INT16", 2},
    [VX_WIRE_INT32] = {"INT32", 4},   [VX_WIRE_INT64] = {"INT64", 8},
    [VX_WIRE_FP16] = {"FP16", 2},     [VX_WIRE_FP32] = {"FP32", 4},
    [VX_WIRE_FP64] = {"FP64", 8},     [VX_WIRE_BF16] = {"BF16", 2},
    [VX_WIRE_BYTES] = {"BYTES", 0},
};

size_t vx_wire_type_bytes(enum vx_wire_type type)
{
    return types[type].bytes;
}

const char *vx_wire_type_name(enum vx_wire_type type)
{
    return types[type].name;
}

enum vx_wire_type vx_wire_type_of(const char *name)
{
    for (size_t i = VX_WIRE_BOOL; i < VX_COUNT(types); i++)
        if (!strcmp(types[i].name, name)) return (enum vx_wire_type)i;
    return VX_WIRE_NONE;
}
