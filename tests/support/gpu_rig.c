/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/gpu_rig.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/thread.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct vx_engine *vx_gpu_rig_engine;
size_t vx_gpu_rig_cache_bytes = VX_GPU_RIG_CACHE_BYTES;

const char *const vx_gpu_rig_odd = VX_RIG_HEAD VX_RIG_CONV(
    "a", "feats", "7", ",\"kernel\":3,\"layout\":\"spconv\"") VX_RIG_OP("relu", "ar", "a")
    VX_RIG_LINEAR("b", "ar", "20") VX_RIG_OP("layer_norm", "bn", "b") VX_RIG_CONV(
        "c", "bn", "1",
        ",\"kernel\":[1,3,5]") "{\"name\":\"j\",\"op\":\"concat\",\"inputs\":[\"c\","
                               "\"ar\",\"feats\",\"ar\"]}," VX_RIG_OP("batch_norm", "jn",
                                                                      "j")
                                   VX_RIG_LINEAR(
                                       "d", "jn",
                                       "7") "{\"name\":\"s\",\"op\":\"add\",\"inputs\":["
                                            "\"d\","
                                            "\"a\"]}," VX_RIG_OP("silu", "t", "s")
                                                VX_RIG_CONV("y", "t", "3",
                                                            ",\"kernel\":5,\"dilation\":"
                                                            "2") "{\"name\":"
                                                                 "\"z\",\"op\":"
                                                                 "\"gelu\","
                                                                 "\"input\":"
                                                                 "\"y\"}],"
                                                                 "\"outputs\":[{"
                                                                 "\"layer\":"
                                                                 "\"z\"},{"
                                                                 "\"layer\":"
                                                                 "\"c\","
                                                                 "\"datatype\":"
                                                                 "\"FP16\"},{"
                                                                 "\"layer\":"
                                                                 "\"jn\"},{"
                                                                 "\"layer\":"
                                                                 "\"b\"}]}";

const char *const vx_gpu_rig_wide = VX_RIG_HEAD VX_RIG_LINEAR("a", "feats", "512")
    VX_RIG_CONV("b", "a", "5", ",\"kernel\":3") VX_RIG_LINEAR("c", "b", "1024")
        VX_RIG_CONV(
            "d", "c", "3",
            ",\"kernel\":[3,3,1]") "{\"name\":\"y\",\"op\":\"add\",\"inputs\":[\"d\","
                                   "\"feats\"]}],"
                                   "\"outputs\":[{\"layer\":\"y\"},{\"layer\":\"b\"}]}";

void vx_gpu_rig_reopen(size_t device_bytes, const struct vx_gpu_settings *settings)
{
    const struct vx_gpu_settings real = {.kernel_cache = getenv("VX_RIG_CUDA")};
    const bool cuda = real.kernel_cache && !settings;
    const struct vx_engine_options options = {.kind =
                                                  cuda ? VX_DEVICE_CUDA : VX_DEVICE_FAKE,
                                              .gpu = cuda ? &real : settings,
                                              .threads = 2,
                                              .device_bytes = device_bytes,
                                              .cache_bytes = vx_gpu_rig_cache_bytes};
    struct vx_why why = {{0}};
    vx_engine_close(&vx_gpu_rig_engine);
    vx_status status = vx_engine_open(&options, &why, &vx_gpu_rig_engine);
    ck_assert_msg(!status.fault, "%s", why.text);
}

void vx_gpu_rig_set_up(void)
{
    vx_rig_set_up();
    vx_fake_set(&(struct vx_fake_settings){0});
    vx_gpu_rig_cache_bytes = VX_GPU_RIG_CACHE_BYTES;
    vx_gpu_rig_reopen(VX_RIG_DEVICE_BYTES, NULL);
}

void vx_gpu_rig_tear_down(void)
{
    vx_engine_close(&vx_gpu_rig_engine);
    ck_assert_int_eq((i64)vx_fake_memory_used(), 0);
    vx_rig_tear_down();
}

/* Warm-ups are short unless a test sets them: references are slow. */
void vx_gpu_rig_write(const char *precision, const char *json, u64 seed)
{
    static char text[16384];
    snprintf(text, sizeof text, "%.*s,\"precision\":\"%s\"%s}", (int)strlen(json) - 1,
             json, precision, strstr(json, "\"warmup\"") ? "" : ",\"warmup\":[1,40]");
    vx_rig_write_model(vx_rig_root, text, seed);
}

/* engine_rig has one engine; for the duration of a call it is this one. */
struct vx_rig_load vx_gpu_rig_load_any(const char *directory)
{
    struct vx_engine *other = vx_rig_engine;
    vx_rig_engine = vx_gpu_rig_engine;
    struct vx_rig_load load = vx_rig_load_any(directory, 1);
    vx_rig_engine = other;
    return load;
}

struct vx_model *vx_gpu_rig_load(const char *directory)
{
    struct vx_rig_load load = vx_gpu_rig_load_any(directory);
    ck_assert_msg(!load.status.fault, "%s", load.why.text);
    ck_assert_int_eq(load.progress_calls, load.progress_total);
    return load.model;
}

void vx_gpu_rig_run(struct vx_model *model, struct vx_item *item)
{
    item->status = VX_OK;
    struct vx_batch batch = {.items = item, .items_count = 1};
    vx_engine_run(vx_gpu_rig_engine, model, &batch);
}

/* Half the step between two numbers that differ in the last place, around 1; products of
 * TF32 may use numbers that were truncated, not rounded. */
static f64 unit_of(enum vx_number type)
{
    switch (type) {
    case VX_NUMBER_F16: return 0x1p-11;
    case VX_NUMBER_BF16: return 0x1p-8;
    default: return 0x1p-10;
    }
}

static f64 output_get(const struct vx_rig_request *request, i32 output,
                      enum vx_dtype dtype, i64 index)
{
    const u16 *halves = (const u16 *)(const void *)request->outputs[output];
    if (dtype == VX_DTYPE_F32) return request->outputs[output][index];
    u32 bits = (u32)halves[index] << 16;
    f32 value;
    memcpy(&value, &bits, sizeof value);
    if (dtype == VX_DTYPE_BF16) return value;
    int exponent = halves[index] >> 10 & 31, fraction = halves[index] & 1023;
    f64 size = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return halves[index] >> 15 ? -size : size;
}

/* Each layer rounds its weights and its rows: errors of at most a unit each, of random
 * sign over the terms of a sum, so that they stay two units of the result whatever the
 * number of terms.  They are taken as if layers added; a factor of 4 is for norms over
 * channels with little spread, which magnify (as in test_engine.c). */
static f64 rms_bound(const struct vx_network *network, i32 output, enum vx_number type)
{
    f64 last = network->outputs[output].dtype == VX_DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
    return 4 * 2 * (network->outputs[output].layer + 1) * unit_of(type) + last;
}

void vx_gpu_rig_compare(const struct vx_rig_request *request,
                        const struct vx_rig_files *files, enum vx_number type)
{
    const struct vx_item *item = &request->item;
    const struct vx_network *network = files->network;
    const struct vx_network_oracle_input input = {network,      files->weights,
                                                  item->coords, item->coords_columns,
                                                  item->voxels, request->feats};
    struct vx_network_oracle oracle;
    if (type == VX_NUMBER_F32) {
        vx_rig_compare(request, files);
        return;
    }
    vx_network_oracle_open(&input, &oracle);
    for (i32 i = 0; i < network->outputs_count; i++) {
        const struct vx_network_output *output = &network->outputs[i];
        i32 c = vx_network_channels(network, output->layer);
        f64 off_squares = 0, squares = 0;
        for (i64 j = 0; j < item->voxels * c; j++) {
            f64 truth = oracle.values[output->layer][j];
            f64 off = output_get(request, i, output->dtype, j) - truth;
            ck_assert(isfinite(off));
            off_squares += off * off;
            squares += truth * truth;
        }
        f64 rms = sqrt(off_squares / squares), bound = rms_bound(network, i, type);
        ck_assert_msg(squares == 0 || rms <= bound, "%s, N=%d: rms %g, bound %g",
                      output->name, (int)item->voxels, rms, bound);
    }
    vx_network_oracle_close(&oracle);
}
