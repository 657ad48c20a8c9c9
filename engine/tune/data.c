/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tune/data.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "kernels/13_elementwise.h"
#include "kernels/e4m3.h"

#include <string.h>

u64 vx_data_next(u64 *state)
{
    u64 value = *state += UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

/* Rounds to 10 bits of fraction, as TF32 has, so that tensor cores cut off only zeros. */
static f32 data_round_tf32(f32 value)
{
    u32 bits;
    memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0xfff + (bits >> 13 & 1)) & ~UINT32_C(0x1fff);
    memcpy(&value, &bits, sizeof bits);
    return value;
}

static void data_round(struct vx_data *data)
{
    struct vx_convert_args args = {.count = VX_DATA_BLOCK,
                                   .from_type = VX_NUMBER_F32,
                                   .from = data->values,
                                   .to_type = vx_number_stored(data->type),
                                   .to = data->typed};
    if (data->type == VX_NUMBER_TF32)
        for (i32 i = 0; i < VX_DATA_BLOCK; i++)
            data->values[i] = data_round_tf32(data->values[i]);
    for (i32 i = 0; data->e4m3_scale > 0 && i < VX_DATA_BLOCK; i++)
        data->values[i] =
            vx_e4m3_round(data->values[i] / data->e4m3_scale) * data->e4m3_scale;
    if (vx_number_bytes(data->type) == 4) {
        memcpy(data->typed, data->values, VX_DATA_BLOCK * sizeof *data->values);
        return;
    }
    vx_convert_ref(&args);
    args = (struct vx_convert_args){.count = VX_DATA_BLOCK,
                                    .from_type = vx_number_stored(data->type),
                                    .from = data->typed,
                                    .to_type = VX_NUMBER_F32,
                                    .to = data->values};
    vx_convert_ref(&args);
}

vx_status vx_data_open(enum vx_number type, u64 seed, f32 scale, struct vx_data **data)
{
    struct vx_data *made = vx_alloc_zero(sizeof *made);
    f32 *values = vx_alloc(VX_DATA_BLOCK * sizeof *values);
    void *typed = vx_alloc(VX_DATA_BLOCK * (size_t)vx_number_bytes(type));
    *data = NULL;
    if (!made || !values || !typed) {
        vx_free(made);
        vx_free(values);
        vx_free(typed);
        VX_FAIL(RESOURCE_EXHAUSTED, "no memory for data to measure with");
    }
    *made = (struct vx_data){
        .values = values, .typed = typed, .type = type, .bytes = vx_number_bytes(type)};
    if (type == VX_NUMBER_E4M3) made->e4m3_scale = vx_e4m3_scale(scale);
    for (i32 i = 0; i < VX_DATA_BLOCK; i++)
        values[i] = scale * ((f32)(vx_data_next(&seed) >> 40) * 0x1p-23f - 1.0f);
    data_round(made);
    *data = made;
    return VX_OK;
}

void vx_data_to_bytes(struct vx_data *data)
{
    u8 *bytes = data->typed;
    VX_ASSERT(data->e4m3_scale > 0);
    for (i32 i = 0; i < VX_DATA_BLOCK; i++)
        bytes[i] = vx_e4m3_of(data->values[i] / data->e4m3_scale);
    data->bytes = 1;
}

void vx_data_close(struct vx_data **data)
{
    if (!*data) return;
    vx_free((*data)->values);
    vx_free((*data)->typed);
    vx_free(*data);
    *data = NULL;
}

vx_status vx_data_send(const struct vx_data *data, const struct vx_data_target *target,
                       i64 count, struct vx_why *why)
{
    const size_t element = (size_t)data->bytes;
    VX_ASSERT(count >= 0);
    for (i64 at = 0; at < count; at += VX_DATA_BLOCK) {
        i64 left = count - at < VX_DATA_BLOCK ? count - at : VX_DATA_BLOCK;
        VX_TRY(vx_gpu_copy_in(
            target->gpu, target->stream,
            &(struct vx_gpu_copy){(u8 *)target->memory + (size_t)at * element,
                                  data->typed, (size_t)left * element},
            why));
    }
    return VX_OK;
}
