/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/gpu_mix.h"

#include "engine/base/process/alloc.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

/* The byte that fills outputs before a run, and the memory behind them. */
#define UNTOUCHED   0xe7
#define GUARD_BYTES 64

static const i64 sizes[] = {0, 1, 30, 900, 3000};
static const enum vx_dtype dtypes[] = {VX_DTYPE_F32, VX_DTYPE_F16, VX_DTYPE_BF16};

void vx_gpu_mix_write(const char *precision)
{
    const char *network = vx_rig_networks[1];
    char json[8192];
    snprintf(json, sizeof json, "%.*s,\"limits\":{\"voxels_max\":%d}}",
             (int)strlen(network) - 1, network, VX_GPU_MIX_VOXELS_MAX);
    vx_gpu_rig_write(precision, json, 5);
}

/* N different cells of a box that they fill to a third. */
static void make_coords(struct vx_test_random *random, i64 n, i32 columns, i32 *coords)
{
    i64 side = 2;
    while (side * side * side < 3 * n) side++;
    bool *there = vx_alloc_zero((size_t)(side * side * side));
    for (i64 i = 0; i < n; i++) {
        i64 cell;
        do {
            cell = (i64)(vx_test_next(random) % (u64)(side * side * side));
        } while (there[cell]);
        there[cell] = true;
        i32 *row = coords + i * columns;
        if (columns == 4) *row++ = 3;
        row[0] = (i32)(cell / (side * side) - side / 2);
        row[1] = (i32)(cell / side % side);
        row[2] = (i32)(cell % side);
    }
    vx_free(there);
}

static void make_feats(struct vx_test_random *random, i64 n, enum vx_dtype dtype,
                       void *feats)
{
    for (i64 i = 0; i < n * VX_RIG_CHANNELS; i++) {
        f32 value = vx_test_uniform(random, -2, 2);
        if (dtype == VX_DTYPE_F32)
            ((f32 *)feats)[i] = value;
        else
            ((u16 *)feats)[i] =
                dtype == VX_DTYPE_F16 ? vx_test_f16(value) : vx_test_bf16(value);
    }
}

static void make_request(struct vx_test_random *random, i32 index, i64 n,
                         struct vx_gpu_mix_request *request)
{
    i32 columns = index % 2 ? 3 : 4;
    enum vx_dtype dtype = dtypes[index % 3];
    request->coords = vx_alloc_zero((size_t)n * 16 + 16);
    request->feats = vx_alloc_zero((size_t)n * VX_RIG_CHANNELS * sizeof(f32) + 16);
    make_coords(random, n, columns, request->coords);
    make_feats(random, n, dtype, request->feats);
    request->item = (struct vx_item){.coords = request->coords,
                                     .coords_columns = columns,
                                     .voxels = n,
                                     .feats = request->feats,
                                     .feats_dtype = dtype,
                                     .coords_ref = {1000 + (u64)index, 7}};
}

void vx_gpu_mix_open(u64 seed, struct vx_gpu_mix *mix)
{
    struct vx_test_random random = {seed};
    struct vx_gpu_mix_request *requests = mix->requests;
    memset(mix, 0, sizeof *mix);
    for (i32 i = 0; i < VX_GPU_MIX_GOOD; i++)
        make_request(&random, i, sizes[i % (i32)VX_COUNT(sizes)], &requests[i]);
    /* The same parity as number 4, and so the same number of columns. */
    make_request(&random, VX_GPU_MIX_TWIN, sizes[4], &requests[VX_GPU_MIX_TWIN]);
    make_request(&random, VX_GPU_MIX_SHORT, 31, &requests[VX_GPU_MIX_SHORT]);
    requests[VX_GPU_MIX_TWIN].item.coords_ref = requests[4].item.coords_ref;
    requests[VX_GPU_MIX_SHORT].item.coords_ref = requests[4].item.coords_ref;
    make_request(&random, VX_GPU_MIX_DUPLICATE, 900, &requests[VX_GPU_MIX_DUPLICATE]);
    make_request(&random, VX_GPU_MIX_RANGE, 30, &requests[VX_GPU_MIX_RANGE]);
    make_request(&random, VX_GPU_MIX_LARGE, VX_GPU_MIX_VOXELS_MAX + 1,
                 &requests[VX_GPU_MIX_LARGE]);
    i32 columns = requests[VX_GPU_MIX_DUPLICATE].item.coords_columns;
    i32 *rows = requests[VX_GPU_MIX_DUPLICATE].coords;
    memcpy(rows + 450 * columns, rows + 20 * columns, (size_t)columns * sizeof *rows);
    requests[VX_GPU_MIX_RANGE].coords[14] = VX_AXIS_MAX + 1;
}

static void sent_close(struct vx_gpu_mix_sent *sent)
{
    for (i32 i = 0; i < sent->batch.items_count; i++)
        for (i32 j = 0; j < VX_OUTPUTS_MAX; j++) vx_free(sent->items[i].outputs[j]);
    vx_free(sent);
}

void vx_gpu_mix_close(struct vx_gpu_mix *mix)
{
    for (struct vx_gpu_mix_sent *it = mix->broken, *next; it; it = next) {
        next = it->next;
        sent_close(it);
    }
    for (i32 i = 0; i < VX_GPU_MIX_COUNT; i++) {
        struct vx_gpu_mix_request *request = &mix->requests[i];
        vx_free(request->coords);
        vx_free(request->feats);
        for (i32 j = 0; j < VX_OUTPUTS_MAX; j++) vx_free(request->outputs[j]);
    }
    memset(mix, 0, sizeof *mix);
}

static size_t output_bytes(const struct vx_gpu_mix *mix, i32 output, i64 n)
{
    const struct vx_output *it = &mix->signature->outputs[output];
    return (size_t)n * (size_t)it->channels * vx_dtype_bytes(it->dtype);
}

static void *output_open(const struct vx_gpu_mix *mix, i32 output, i64 n)
{
    size_t bytes = output_bytes(mix, output, n) + GUARD_BYTES;
    void *made = vx_alloc(bytes);
    memset(made, UNTOUCHED, bytes);
    return made;
}

void vx_gpu_mix_expect(struct vx_gpu_mix *mix, struct vx_model *model, u32 which)
{
    mix->signature = vx_model_signature(model);
    for (i32 i = 0; i < VX_GPU_MIX_COUNT; i++) {
        struct vx_gpu_mix_request *request = &mix->requests[i];
        if (!(which >> i & 1)) continue;
        request->expected = true;
        request->alone = request->item;
        request->alone.coords_ref = (struct vx_coords_ref){0};
        for (i32 j = 0; j < mix->signature->outputs_count; j++)
            request->alone.outputs[j] = request->outputs[j] =
                output_open(mix, j, request->item.voxels);
        vx_gpu_rig_run(model, &request->alone);
        ck_assert_msg(!request->alone.status.fault == (i <= VX_GPU_MIX_SHORT), "%d: %s",
                      i, request->alone.why.text);
    }
}

struct vx_gpu_mix_sent *vx_gpu_mix_send(const struct vx_gpu_mix *mix,
                                        const struct vx_gpu_mix_pick *picks, i32 count)
{
    struct vx_gpu_mix_sent *sent = vx_alloc_zero(sizeof *sent);
    memcpy(sent->picks, picks, (size_t)count * sizeof *picks);
    sent->batch = (struct vx_batch){.items = sent->items, .items_count = count};
    for (i32 i = 0; i < count; i++) {
        struct vx_item *item = &sent->items[i];
        *item = mix->requests[picks[i].request].item;
        if (picks[i].nameless) item->coords_ref = (struct vx_coords_ref){0};
        if (picks[i].reference) item->coords = NULL;
        for (i32 j = 0; j < mix->signature->outputs_count; j++)
            if (!(picks[i].unwanted >> j & 1))
                item->outputs[j] = output_open(mix, j, item->voxels);
    }
    return sent;
}

/* For a reference, whether the device had the geometry, and which one, is not checked here. */
static bool reference_refused(const struct vx_item *item)
{
    enum vx_code code = vx_status_code(item->status);
    return code == VX_CODE_FAILED_PRECONDITION || code == VX_CODE_INVALID_ARGUMENT;
}

static bool item_check(const struct vx_gpu_mix *mix, const struct vx_gpu_mix_sent *sent,
                       i32 index, bool broken)
{
    const struct vx_item *item = &sent->items[index];
    const struct vx_gpu_mix_pick *pick = &sent->picks[index];
    const struct vx_gpu_mix_request *request = &mix->requests[pick->request];
    const struct vx_item *alone = &request->alone;
    enum vx_code code = vx_status_code(item->status),
                 want = vx_status_code(alone->status);
    ck_assert_msg(request->expected, "request %d was not run alone", pick->request);
    if (broken && (code == VX_CODE_UNAVAILABLE || code == VX_CODE_RESOURCE_EXHAUSTED) &&
        code != want) {
        ck_assert_int_gt((int)strlen(item->why.text), 0);
        return false;
    }
    if (pick->reference && reference_refused(item)) return false;
    ck_assert_msg(code == want, "request %d: %s", pick->request, item->why.text);
    ck_assert_str_eq(item->why.text, alone->why.text);
    ck_assert(!pick->nameless || !item->geometry_kept);
    if (item->status.fault) return true;
    ck_assert_int_eq(item->pairs, alone->pairs);
    for (i32 j = 0; j < mix->signature->outputs_count; j++) {
        if (!item->outputs[j]) continue;
        size_t bytes = output_bytes(mix, j, item->voxels) + GUARD_BYTES;
        ck_assert_msg(!memcmp(item->outputs[j], request->outputs[j], bytes),
                      "request %d, item %d of %d, output %d", pick->request, index,
                      sent->batch.items_count, j);
    }
    return true;
}

i32 vx_gpu_mix_check(struct vx_gpu_mix *mix, struct vx_gpu_mix_sent **sent, bool broken)
{
    struct vx_gpu_mix_sent *it = *sent;
    i32 answered = 0;
    *sent = NULL;
    for (i32 i = 0; i < it->batch.items_count; i++)
        answered += item_check(mix, it, i, broken);
    if (broken && answered < it->batch.items_count) {
        it->next = mix->broken;
        mix->broken = it;
    } else {
        sent_close(it);
    }
    return answered;
}
