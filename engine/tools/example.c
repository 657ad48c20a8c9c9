/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tools/example.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "kernels/13_elementwise.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* --- the file --- */

/* Of numpy's kinds: "float" before "32". */
static const char *kind_name(char kind)
{
    return kind == 'f' ? "float" : kind == 'i' ? "int" : kind == 'u' ? "uint" : "type ";
}

static vx_status check_coords(const struct vx_example_file *file,
                              struct vx_npz_array *array, struct vx_why *why)
{
    VX_ENSURE_WHY(array->rank == 2, why, INVALID_ARGUMENT,
                  "coords of an example have another shape",
                  "%s: expected coords int32 [N, 4], got %s%d of %d dimensions",
                  file->label, kind_name(array->kind), 8 * array->size, array->rank);
    VX_ENSURE_WHY(array->shape[1] == 4 && array->kind == 'i' && array->size >= 4, why,
                  INVALID_ARGUMENT, "coords of an example have another shape",
                  "%s: expected coords int32 [N, 4], got %s%d [%lld, %lld]", file->label,
                  kind_name(array->kind), 8 * array->size, (long long)array->shape[0],
                  (long long)array->shape[1]);
    if (array->size == 4) return VX_OK;
    const i64 *wide = array->data;
    i32 *narrow = array->data;
    for (i64 i = 0; i < 4 * array->shape[0]; i++) {
        i64 value = wide[i];
        VX_ENSURE_WHY(value >= INT32_MIN && value <= INT32_MAX, why, INVALID_ARGUMENT,
                      "a coordinate is too large", "%s: row %lld of coords has %lld",
                      file->label, (long long)(i / 4), (long long)value);
        memcpy(&narrow[i], &(i32){(i32)value}, sizeof *narrow);
    }
    array->size = 4;
    return VX_OK;
}

/* float64 becomes float32, as in `voxel infer`: NumPy makes it where nobody says a type. */
static vx_status narrow_feats(const struct vx_example_file *file,
                              struct vx_npz_array *array, struct vx_why *why)
{
    if (array->rank != 2 || array->kind != 'f' || array->size != 8) return VX_OK;
    const f64 *wide = array->data;
    f32 *narrow = array->data;
    for (i64 i = 0; i < array->shape[0] * array->shape[1]; i++) {
        f64 value = wide[i];
        VX_ENSURE_WHY(!(fabs(value) > (f64)FLT_MAX) || isinf(value), why,
                      INVALID_ARGUMENT, "a feature is too large",
                      "%s: row %lld of feats has %g; expected a float32", file->label,
                      (long long)(i / array->shape[1]), value);
        memcpy(&narrow[i], &(f32){(f32)value}, sizeof *narrow);
    }
    array->size = 4;
    return VX_OK;
}

static vx_status check_feats(const struct vx_example_file *file,
                             struct vx_example *example, struct vx_why *why)
{
    struct vx_npz_array *array = &example->feats;
    const i64 rows = example->coords.shape[0];
    VX_TRY(narrow_feats(file, array, why));
    VX_ENSURE_WHY(array->rank == 2 && array->shape[0] == rows &&
                      array->shape[1] == file->channels && array->kind == 'f' &&
                      array->size == 4,
                  why, INVALID_ARGUMENT, "feats of an example have another shape",
                  "%s: expected feats float32 [%lld, %d], got %s%d [%lld, %lld]%s",
                  file->label, (long long)rows, file->channels, kind_name(array->kind),
                  8 * array->size, (long long)array->shape[0], (long long)array->shape[1],
                  array->rank == 2 ? "" : ", with other dimensions");
    return VX_OK;
}

vx_status vx_example_read(const struct vx_example_file *file, struct vx_why *why,
                          struct vx_example *example)
{
    VX_TRY(vx_npz_read(file->path, "coords", why, &example->coords));
    VX_TRY(check_coords(file, &example->coords, why));
    VX_TRY(vx_npz_read(file->path, "feats", why, &example->feats));
    return check_feats(file, example, why);
}

void vx_example_close(struct vx_example *example)
{
    vx_free(example->coords.data);
    vx_free(example->feats.data);
    example->coords.data = example->feats.data = NULL;
}

/* --- the request --- */

static size_t output_bytes(const struct vx_output *output, i64 rows)
{
    return (size_t)rows * (size_t)output->channels * vx_dtype_bytes(output->dtype);
}

static vx_status output_make(const struct vx_output *output, i64 rows, i32 o,
                             struct vx_answer *answer)
{
    answer->rows[o] = rows;
    answer->outputs[o] = vx_alloc_aligned(output_bytes(output, rows) + 1);
    VX_ENSURE(answer->outputs[o], RESOURCE_EXHAUSTED, "no memory for an output");
    answer->item.outputs[o] = answer->outputs[o];
    return VX_OK;
}

static vx_status answer_make(const struct vx_example *example,
                             const struct vx_signature *signature,
                             struct vx_answer *answer)
{
    const i64 voxels = example->coords.shape[0];
    answer->item = (struct vx_item){.coords = example->coords.data,
                                    .coords_columns = 4,
                                    .voxels = voxels,
                                    .feats = example->feats.data,
                                    .feats_dtype = VX_DTYPE_F32};
    for (i32 o = 0; o < signature->outputs_count; o++)
        if (signature->outputs[o].set)
            answer->item.asks |= 1u << o;
        else
            VX_TRY(output_make(&signature->outputs[o], voxels, o, answer));
    return VX_OK;
}

/* Gives the outputs on other sets their memory when the engine says how large they are. */
vx_status vx_example_run(struct vx_engine *engine, struct vx_model *model,
                         const struct vx_example *example, struct vx_answer *answer)
{
    struct vx_item *item = &answer->item;
    struct vx_batch batch = {.items = item, .items_count = 1};
    const struct vx_signature *signature = vx_model_signature(model);
    struct vx_asked asked;
    VX_TRY(answer_make(example, signature, answer));
    vx_engine_submit(engine, model, &batch);
    while (!vx_engine_collect(engine, true)) {
        if (!vx_engine_asked(engine, &asked)) continue;
        for (i32 o = 0; o < signature->outputs_count && !item->status.fault; o++)
            if (item->asks >> o & 1)
                item->status =
                    output_make(&signature->outputs[o], item->rows[o], o, answer);
        vx_engine_place(engine, &batch, 0);
    }
    return item->status;
}

vx_status vx_answer_widen(const struct vx_output *output, i32 o, struct vx_answer *answer)
{
    const i64 count = answer->rows[o] * output->channels;
    if (output->dtype != VX_DTYPE_F16 && output->dtype != VX_DTYPE_BF16) return VX_OK;
    f32 *wide = vx_alloc_aligned((size_t)count * sizeof *wide + 1);
    VX_ENSURE(wide, RESOURCE_EXHAUSTED, "no memory for an output");
    if (count)
        vx_convert_ref(&(struct vx_convert_args){
            .count = count,
            .from_type = output->dtype == VX_DTYPE_F16 ? VX_NUMBER_F16 : VX_NUMBER_BF16,
            .from = answer->outputs[o],
            .to_type = VX_NUMBER_F32,
            .to = wide});
    vx_free(answer->outputs[o]);
    answer->outputs[o] = wide;
    return VX_OK;
}

void vx_answer_close(struct vx_answer *answer)
{
    for (i32 o = 0; o < VX_OUTPUTS_MAX; o++) {
        vx_free(answer->outputs[o]);
        answer->outputs[o] = NULL;
    }
}
