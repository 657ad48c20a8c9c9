/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/engine_rig.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/thread.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct vx_engine *vx_rig_engine;
char vx_rig_root[VX_TEST_PATH_BYTES];

void vx_rig_set_up(void)
{
    const struct vx_engine_options options = {.kind = VX_DEVICE_CPU,
                                              .threads = 2,
                                              .device_bytes = VX_RIG_DEVICE_BYTES,
                                              .cache_bytes = 32 << 20};
    struct vx_why why = {{0}};
    vx_thread_enter(VX_ROLE_DEVICE);
    vx_status status = vx_engine_open(&options, &why, &vx_rig_engine);
    ck_assert_msg(!status.fault, "%s", why.text);
    vx_test_directory(vx_rig_root);
}

void vx_rig_tear_down(void)
{
    vx_engine_close(&vx_rig_engine);
    ck_assert_ptr_null(vx_rig_engine);
    vx_test_remove(vx_rig_root);
}

static void load_progress(void *context, i64 done, i64 total)
{
    struct vx_rig_load *load = context;
    ck_assert_int_eq(done, ++load->progress_calls);
    load->progress_total = total;
}

void vx_rig_load_run(void *context)
{
    struct vx_rig_load *load = context;
    const struct vx_progress progress = {load_progress, load};
    load->status =
        vx_engine_load(vx_rig_engine, &load->source, &progress, &load->why, &load->model);
}

struct vx_rig_load vx_rig_load_any(const char *directory, i32 version)
{
    struct vx_rig_load load = {.source = {.directory = directory, .version = version}};
    pthread_t thread;
    ck_assert(!vx_thread_open(&thread, VX_ROLE_MAIN, vx_rig_load_run, &load).fault);
    ck_assert(!pthread_join(thread, NULL));
    return load;
}

struct vx_model *vx_rig_load(const char *directory)
{
    struct vx_rig_load load = vx_rig_load_any(directory, 1);
    ck_assert_msg(!load.status.fault, "%s", load.why.text);
    return load.model;
}

void vx_rig_run(struct vx_model *model, struct vx_item *item)
{
    item->status = VX_OK;
    struct vx_batch batch = {.items = item, .items_count = 1};
    vx_engine_run(vx_rig_engine, model, &batch);
}

struct vx_rig_files vx_rig_files_open(const char *directory)
{
    struct vx_rig_files files;
    char path[VX_TEST_PATH_BYTES + 64];
    struct vx_arena arena;
    files.block = vx_alloc(VX_NETWORK_ARENA_BYTES);
    vx_arena_init(&arena, files.block, VX_NETWORK_ARENA_BYTES);
    snprintf(path, sizeof path, "%s/network.json", directory);
    ck_assert(!vx_network_read(path, "n", &arena, NULL, &files.network).fault);
    snprintf(path, sizeof path, "%s/1/weights.safetensors", directory);
    ck_assert(!vx_safetensors_open(path, "w", NULL, &files.weights).fault);
    return files;
}

void vx_rig_files_close(struct vx_rig_files *files)
{
    vx_safetensors_close(&files->weights);
    vx_free(files->block);
}

const char *const vx_rig_networks[VX_RIG_NETWORKS] = {
    /* one convolution */
    VX_RIG_HEAD "{\"name\":\"y\",\"op\":\"subm_conv\",\"input\":\"feats\",\"channels\":5,"
                "\"kernel\":3,\"layout\":\"spconv\"}],"
                "\"outputs\":[{\"layer\":\"y\"}]}",
    /* a residual block, its skip an output in half precision, its sum an output twice */
    VX_RIG_HEAD VX_RIG_CONV("a", "feats", "10",
                            ",\"kernel\":3,\"layout\":\"spconv\",\"bias\":false")
        VX_RIG_OP("batch_norm", "an", "a") VX_RIG_OP("relu", "ar", "an")
            VX_RIG_CONV("b", "ar", "10", ",\"kernel\":[3,1,5],\"dilation\":2") VX_RIG_OP(
                "batch_norm", "bn",
                "b") "{\"name\":\"s\",\"op\":\"add\",\"inputs\":[\"bn\",\"ar\"]}"
                     "," VX_RIG_OP(
                         "silu", "y",
                         "s") "{\"name\":\"h\",\"op\":\"subm_conv\",\"input\":"
                              "\"y\",\"channels\":2,\"kernel\":1,"
                              "\"layout\":\"oxyzi\"}],"
                              "\"outputs\":[{\"layer\":\"h\"},{\"layer\":\"ar\","
                              "\"datatype\":\"FP16\"},{\"layer\":\"y\"},"
                              "{\"name\":\"y16\",\"layer\":\"y\",\"datatype\":"
                              "\"BF16\"}]}",
    /* ConvNeXt as in TRELLIS.2, and a concat of all that is alive */
    VX_RIG_HEAD VX_RIG_LINEAR("in", "feats", "6") VX_RIG_CONV(
        "c", "in", "6", ",\"kernel\":3,\"layout\":\"vio\"") VX_RIG_OP("layer_norm", "n",
                                                                      "c")
        VX_RIG_LINEAR("up", "n", "24") VX_RIG_OP("gelu", "g", "up") VX_RIG_LINEAR(
            "down", "g",
            "6") "{\"name\":\"s\",\"op\":\"add\",\"inputs\":[\"down\",\"in\"]},"
                 "{\"name\":\"j\",\"op\":\"concat\",\"inputs\":[\"s\",\"feats\",\"n\"]}"
                 "," VX_RIG_OP("batch_norm", "jn", "j") VX_RIG_OP("sigmoid", "p", "jn")
                     VX_RIG_CONV(
                         "y", "p", "1",
                         ",\"kernel\":5") "{\"name\":\"z\",\"op\":\"relu\",\"input\":"
                                          "\"feats\"}],"
                                          "\"outputs\":[{\"layer\":\"y\"},{\"layer\":"
                                          "\"z\"},{"
                                          "\"layer\":\"jn\",\"datatype\":\"BF16\"}]}",
};

void vx_rig_write_model(const char *directory, const char *json, u64 seed)
{
    static struct vx_test_tensor tensors[128];
    static const char *const dtypes[] = {"F32", "F16", "BF16"};
    struct vx_test_random random = {seed};
    const struct vx_network *network;
    struct vx_arena arena;
    size_t count = 0;
    u8 *block = vx_alloc(VX_NETWORK_ARENA_BYTES);
    struct vx_network_text source = {.text = json, .bytes = strlen(json), .label = "n"};
    struct vx_why why = {{0}};
    vx_arena_init(&arena, block, VX_NETWORK_ARENA_BYTES);
    vx_status status = vx_network_parse(&source, &arena, &why, &network);
    ck_assert_msg(!status.fault, "%s", why.text);
    for (i32 i = 0; i < network->layers_count; i++) {
        const struct vx_layer *l = &network->layers[i];
        for (int role = 0; role < VX_TENSORS_PER_LAYER; role++) {
            if (!l->tensors[role]) continue;
            struct vx_test_tensor *t = &tensors[count++];
            bool conv = vx_op_is_conv(l->op), weight = role == VX_TENSOR_WEIGHT;
            *t = (struct vx_test_tensor){l->tensors[role],
                                         dtypes[vx_test_next(&random) % 3],
                                         {l->channels},
                                         1,
                                         NULL};
            if (weight && l->op == VX_OP_LINEAR)
                t->rank = 2, t->shape[1] = l->channels_in;
            if (weight && conv && l->layout == VX_LAYOUT_VIO)
                *t = (struct vx_test_tensor){
                    t->name, t->dtype, {l->v, l->channels_in, l->channels}, 3, NULL};
            else if (weight && conv)
                *t = (struct vx_test_tensor){t->name,
                                             t->dtype,
                                             {l->channels, l->kernel[0], l->kernel[1],
                                              l->kernel[2], l->channels_in},
                                             5,
                                             NULL};
            size_t elements = 1;
            for (i32 j = 0; j < t->rank; j++) elements *= (size_t)t->shape[j];
            f32 *values = vx_alloc(elements * sizeof *values);
            vx_test_fill(&random, values, elements,
                         role == VX_TENSOR_RUNNING_VAR ? 0.25f : -1, 1);
            t->values = values;
        }
    }
    vx_test_write_model(directory, 1, json, tensors, count);
    for (size_t i = 0; i < count; i++) vx_free((void *)(uintptr_t)tensors[i].values);
    vx_free(block);
}

/* N different cells of a small box, in any order. */
static void make_coords(struct vx_test_random *random, i32 *coords, i64 n, i32 columns)
{
    enum { SIDE = 8, SAMPLES = 4, CELLS = SAMPLES * SIDE * SIDE * SIDE };
    static i32 cells[CELLS];
    i32 samples = columns == 4 ? SAMPLES : 1, all = samples * SIDE * SIDE * SIDE;
    ck_assert_int_le(n, all);
    for (i32 i = 0; i < all; i++) cells[i] = i;
    for (i64 i = 0; i < n; i++) {
        i64 j = i + (i64)(vx_test_next(random) % (u64)(all - i));
        i32 cell = cells[j], *row = coords + i * columns;
        cells[j] = cells[i];
        if (columns == 4) *row++ = cell / (SIDE * SIDE * SIDE);
        row[0] = cell / (SIDE * SIDE) % SIDE - SIDE / 2;
        row[1] = cell / SIDE % SIDE - SIDE / 2;
        row[2] = cell % SIDE - SIDE / 2;
    }
}

void vx_rig_name(struct vx_item *item)
{
    static const struct vx_coords_ref_key key = {{1, 22, 333, 4444}};
    item->coords_ref =
        vx_coords_ref_of(&key, item->coords, item->coords_columns, item->voxels);
}

struct vx_rig_request *vx_rig_request(u64 seed, i64 n, i32 columns, enum vx_dtype dtype)
{
    struct vx_rig_request *request = vx_alloc_zero(sizeof *request);
    struct vx_test_random random = {seed};
    ck_assert_int_le(n, VX_RIG_N_MAX);
    make_coords(&random, request->coords, n, columns);
    for (i64 i = 0; i < n * VX_RIG_CHANNELS; i++) {
        f32 value =
            (f32)(i32)(vx_test_next(&random) % 255 - 127) / 64; /* exact in all types */
        request->feats[i] = value;
        request->feats_16[i] =
            dtype == VX_DTYPE_F16 ? vx_test_f16(value) : vx_test_bf16(value);
    }
    request->item = (struct vx_item){.coords = request->coords,
                                     .coords_columns = columns,
                                     .voxels = n,
                                     .feats_dtype = dtype};
    request->item.feats = dtype == VX_DTYPE_F32 ? (const void *)request->feats
                                                : (const void *)request->feats_16;
    for (i32 i = 0; i < VX_OUTPUTS_MAX; i++)
        request->item.outputs[i] = request->outputs[i];
    vx_rig_name(&request->item);
    return request;
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
    ck_assert_int_lt(exponent, 31);
    f64 size = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return halves[index] >> 15 ? -size : size;
}

void vx_rig_compare(const struct vx_rig_request *request,
                    const struct vx_rig_files *files)
{
    const struct vx_item *item = &request->item;
    const struct vx_network_oracle_input input = {files->network, files->weights,
                                                  item->coords,   item->coords_columns,
                                                  item->voxels,   request->feats};
    struct vx_network_oracle oracle;
    vx_network_oracle_open(&input, &oracle);
    for (i32 i = 0; i < files->network->outputs_count; i++) {
        const struct vx_network_output *output = &files->network->outputs[i];
        i32 c = vx_network_channels(files->network, output->layer);
        for (i64 j = 0; j < item->voxels * c; j++) {
            f64 truth = oracle.values[output->layer][j];
            f64 bound = vx_network_oracle_output_bound(output->dtype, truth,
                                                       oracle.bounds[output->layer][j]);
            f64 off = fabs(output_get(request, i, output->dtype, j) - truth);
            ck_assert_msg(off <= bound, "%s[%d] of N=%d: off by %g, bound %g",
                          output->name, (int)j, (int)item->voxels, off, bound);
        }
    }
    vx_network_oracle_close(&oracle);
}
