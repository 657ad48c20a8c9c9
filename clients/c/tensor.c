/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/voxel.h"

#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [VOXEL_NONE] = {"NONE", 0},     [VOXEL_BOOL] = {"BOOL", 1},
    [VOXEL_UINT8] = {"UINT8", 1},   [VOXEL_UINT16] = {"UINT16", 2},
    [VOXEL_UINT32] = {"UINT32", 4}, [VOXEL_UINT64] = {"UINT64", 8},
    [VOXEL_INT8] = {"INT8", 1},     [VOXEL_INT16] = {"INT16", 2},
    [VOXEL_INT32] = {"INT32", 4},   [VOXEL_INT64] = {"INT64", 8},
    [VOXEL_FP16] = {"FP16", 2},     [VOXEL_FP32] = {"FP32", 4},
    [VOXEL_FP64] = {"FP64", 8},     [VOXEL_BF16] = {"BF16", 2},
    [VOXEL_BYTES] = {"BYTES", 0},
};

const char *voxel_type_name(enum voxel_type type)
{
    return (size_t)type <= VOXEL_BYTES ? types[type].name : "NONE";
}

enum voxel_type voxel_type_of(const char *name)
{
    for (int type = VOXEL_BOOL; type <= VOXEL_BYTES; type++)
        if (strcmp(types[type].name, name) == 0) return (enum voxel_type)type;
    return VOXEL_NONE;
}

size_t voxel_type_bytes(enum voxel_type type)
{
    return (size_t)type <= VOXEL_BYTES ? types[type].bytes : 0;
}

struct voxel_tensor voxel_tensor_make(const char *name, enum voxel_type type,
                                      int64_t rows, int64_t columns, const void *data)
{
    struct voxel_tensor tensor = {
        .name = name, .type = type, .rank = 2, .shape = {rows, columns}, .data = data};
    size_t cells;
    /* An impossible size leaves bytes at 0, which voxel_message_pack refuses. */
    if (rows < 0 || columns < 0) return tensor;
    if (__builtin_mul_overflow((size_t)rows, (size_t)columns, &cells)) return tensor;
    if (__builtin_mul_overflow(cells, voxel_type_bytes(type), &tensor.bytes))
        tensor.bytes = 0;
    return tensor;
}
