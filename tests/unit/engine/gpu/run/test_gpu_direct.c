/* Small requests are read and written where they lie: a step less on the stream for each tensor, and
 * the same bits.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/gpu/driver/driver.h"
#include "engine/gpu/driver/gpu_parts.h"
#include "engine/gpu/model/model_launch.h"
#include "tests/support/gpu_rig.h"

#include <check.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX (VX_GPU_DIRECT_NARROW + 1) /* of 12 bytes there, and 20 back */
#define CHANNELS 5

/* What a client sends and gets, in the memory that the engine page-locks or in another. */
static struct memory {
    i32 coords[ROWS_MAX * 4];
    f32 feats[ROWS_MAX * VX_RIG_CHANNELS];
    f32 out[ROWS_MAX * CHANNELS];
    u8 guard[64];
} memory;

static const char *const network = VX_RIG_HEAD VX_RIG_CONV(
    "y", "feats", "5",
    ",\"kernel\":3,\"layout\":\"spconv\"") "{\"name\":\"z\",\"op\":\"relu\",\"input\":"
                                           "\"y\"}],"
                                           "\"outputs\":[{\"layer\":\"z\"}]}";

static void memory_fill(void)
{
    memset(&memory, 0xe7, sizeof memory);
    for (i32 i = 0; i < ROWS_MAX; i++) {
        memcpy(&memory.coords[4 * i], (const i32[4]){0, 7 * i % ROWS_MAX, 0, 0},
               4 * sizeof(i32));
        for (i32 c = 0; c < VX_RIG_CHANNELS; c++)
            memory.feats[i * VX_RIG_CHANNELS + c] = (f32)((i + 5 * c) % 17 - 8);
    }
}

static void guard_check(i64 n)
{
    const u8 *at = (const u8 *)&memory.out[n * CHANNELS];
    for (; at < memory.guard + sizeof memory.guard; at++) ck_assert_int_eq(*at, 0xe7);
}

static void run(struct vx_model *model, i64 n)
{
    struct vx_item item = {.coords = memory.coords,
                           .coords_columns = 4,
                           .voxels = n,
                           .feats = memory.feats,
                           .feats_dtype = VX_DTYPE_F32,
                           .outputs = {memory.out}};
    vx_rig_name(&item);
    vx_gpu_rig_run(model, &item);
    ck_assert_msg(!item.status.fault, "%s", item.why.text);
}

/* The driver calls of a request of n voxels whose geometry is kept, where the engine page-locks
 * `bytes` from `host` on; NULL: nothing. */
static i64 calls_of(i64 n, void *host, size_t bytes)
{
    const struct vx_gpu_settings settings = {.host = host, .host_bytes = bytes};
    vx_gpu_rig_reopen(VX_RIG_DEVICE_BYTES, &settings);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    memory_fill();
    run(model, n);
    const i64 before = vx_fake_calls();
    run(model, n);
    const i64 calls = vx_fake_calls() - before;
    guard_check(n);
    vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_gpu_rig_reopen(VX_RIG_DEVICE_BYTES, NULL);
    return calls;
}

static const struct {
    i64 n, saved;
    size_t from, bytes; /* of `memory`, that is page-locked */
} rows[] = {
    {1, 3, 0, sizeof memory},
    {900, 3, 0, sizeof memory},
    {VX_GPU_DIRECT_NARROW, 3, 0, sizeof memory},
    /* More rows are copied; coordinates are read in their order. */
    {VX_GPU_DIRECT_NARROW + 1, 1, 0, sizeof memory},
    /* One tensor alone, to its last byte, and without it. */
    {900, 1, offsetof(struct memory, feats), 900 * VX_RIG_CHANNELS * sizeof(f32)},
    {900, 0, offsetof(struct memory, feats), 900 * VX_RIG_CHANNELS * sizeof(f32) - 1},
    {900, 0, offsetof(struct memory, out) + 1, 900 * CHANNELS * sizeof(f32)},
    {900, 1, offsetof(struct memory, out), 900 * CHANNELS * sizeof(f32)},
    {900, 1, 0, 900 * 4 * sizeof(i32)},
};

START_TEST(small_tensors_are_not_copied)
{
    static f32 expected[ROWS_MAX * CHANNELS];
    const i64 n = rows[_i].n;
    const size_t bytes = (size_t)n * CHANNELS * sizeof(f32);
    vx_gpu_rig_write("fp16", network, 3);
    const i64 copied = calls_of(n, NULL, 0);
    memcpy(expected, memory.out, bytes);
    const i64 direct = calls_of(n, (u8 *)&memory + rows[_i].from, rows[_i].bytes);
    ck_assert_int_eq(copied - direct, rows[_i].saved);
    ck_assert_mem_eq(expected, memory.out, bytes);
}
END_TEST

/* A tensor of many bytes is copied, however few rows it has. */
START_TEST(large_ones_are)
{
    const struct vx_gpu_reach reach = {memory.guard, VX_GPU_DIRECT_BYTES + 2};
    ck_assert(vx_gpu_direct(&reach, false, memory.guard + 1, VX_GPU_DIRECT_BYTES));
    ck_assert(!vx_gpu_direct(&reach, false, memory.guard + 1, VX_GPU_DIRECT_BYTES + 1));
    ck_assert(!vx_gpu_direct(&reach, true, memory.guard + 1, VX_GPU_DIRECT_BYTES));
    ck_assert(!vx_gpu_direct(&reach, false, memory.guard + 3, VX_GPU_DIRECT_BYTES));
    ck_assert(!vx_gpu_direct(&reach, false, memory.guard - 1, 1));
    ck_assert(!vx_gpu_direct(&(struct vx_gpu_reach){NULL, 0}, false, memory.guard, 1));
    ck_assert_int_eq(vx_gpu_direct_rows(VX_GPU_DIRECT_WIDE - 1), VX_GPU_DIRECT_NARROW);
    ck_assert_int_eq(vx_gpu_direct_rows(VX_GPU_DIRECT_WIDE), VX_GPU_DIRECT_ROWS);
}
END_TEST

static int elsewhere(u64 *at, void *host, unsigned flags)
{
    *at = (u64)(uintptr_t)host + 4096;
    return flags ? VX_DRIVER_INVALID_VALUE : 0;
}

/* Kernels are given addresses of the host only where those are theirs, too. */
START_TEST(what_a_driver_maps_elsewhere_is_copied)
{
    struct vx_why why = {{0}};
    struct vx_gpu *gpu;
    ck_assert(
        !vx_gpu_open(&(struct vx_gpu_options){.vendor = VX_GPU_FAKE}, &why, &gpu).fault);
    ck_assert_uint_eq(vx_gpu_host_reach(gpu, &memory, sizeof memory).bytes,
                      sizeof memory);
    gpu->driver.host_at = elsewhere;
    ck_assert_uint_eq(vx_gpu_host_reach(gpu, &memory, sizeof memory).bytes, 0);
    gpu->driver.host_at = NULL; /* AMD's */
    ck_assert_uint_eq(vx_gpu_host_reach(gpu, &memory, sizeof memory).bytes, 0);
    ck_assert(!vx_gpu_lost(gpu, NULL));
    vx_gpu_close(&gpu);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_direct");
    TCase *tcase = tcase_create("direct");
    tcase_add_checked_fixture(tcase, vx_gpu_rig_set_up, vx_gpu_rig_tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, small_tensors_are_not_copied, 0, VX_COUNT(rows));
    tcase_add_test(tcase, large_ones_are);
    tcase_add_test(tcase, what_a_driver_maps_elsewhere_is_copied);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
