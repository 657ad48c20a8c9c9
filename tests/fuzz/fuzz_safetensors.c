/* Any bytes as a safetensors file: no crash, and what is accepted lies inside the bytes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/weights/safetensors.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t bytes);

static void check_file(const struct vx_safetensors *file, size_t bytes)
{
    size_t covered = 0;
    for (i32 i = 0; i < vx_safetensors_count(file); i++) {
        const struct vx_tensor *tensor = vx_safetensors_get(file, i);
        VX_ASSERT(vx_safetensors_find(file, tensor->name) == tensor);
        VX_ASSERT(tensor->bytes <= bytes);
        VX_ASSERT(tensor->offset <= bytes - tensor->bytes);
        covered += tensor->bytes;
        if (!vx_tensor_is_readable(tensor)) continue;
        f32 *values = vx_alloc((size_t)tensor->count * sizeof *values);
        if (!values) continue;
        vx_status status = vx_safetensors_read_f32(file, tensor, NULL, values);
        VX_ASSERT(!status.fault);
        bool finite;
        status = vx_safetensors_is_finite(file, tensor, NULL, &finite);
        VX_ASSERT(!status.fault);
        vx_free(values);
    }
    VX_ASSERT(covered <= bytes);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t bytes)
{
    struct vx_safetensors *file;
    struct vx_why why = {{0}};
    vx_status status =
        vx_safetensors_parse(data, bytes, "m/1/weights.safetensors", &why, &file);
    if (status.fault) VX_ASSERT(why.text[0]);
    if (!status.fault) check_file(file, bytes);
    vx_safetensors_close(&file);
    return 0;
}
