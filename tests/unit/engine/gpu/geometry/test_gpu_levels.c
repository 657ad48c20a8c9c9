/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/limits.h"
#include "engine/gpu/fake/fake.h"
#include "engine/gpu/geometry/levels.h"
#include "tests/support/device_rig.h"
#include "tests/support/level_truth.h"
#include "tests/support/voxels.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sets and maps of random networks, for rounds of random requests, against their
 * definitions (level_truth). */

#define KERNELS_MAX 64
#define SETS        6
#define ROWS_MOST   20000

static struct vx_gpu_upload upload;
static struct voxels_random dice;

static void setup(void)
{
    struct vx_jit_wanted wanted[KERNELS_MAX];
    i32 count = vx_gpu_levels_kernels(wanted, KERNELS_MAX);
    device_rig_open();
    device_rig_check(
        vx_kernel_set_ready(device_rig.bench.set, wanted, count, NULL, &device_rig.why));
    count = vx_gpu_pieces_kernels(wanted, KERNELS_MAX);
    device_rig_check(
        vx_kernel_set_ready(device_rig.bench.set, wanted, count, NULL, &device_rig.why));
    upload = (struct vx_gpu_upload){.host = device_rig_take(VX_GPU_UPLOAD_BYTES),
                                    .device = device_rig_give(VX_GPU_UPLOAD_BYTES),
                                    .bytes = VX_GPU_UPLOAD_BYTES};
}

/* --- a round --- */

struct request {
    i64 n;
    i32 *coords; /* (n, 4) */
    struct level_set truth[SETS];
    i64 rows[SETS];
    u64 *keys[SETS];
    i32 *row_at[SETS];
};

static struct {
    struct vx_set_key keys[SETS];
    i32 sets_count, count;
    struct request requests[VX_BATCH_ITEMS_MAX];
    struct vx_gpu_index indices[VX_BATCH_ITEMS_MAX];
    i64 rows_max[VX_BATCH_ITEMS_MAX * SETS];
    struct vx_brick_set sets[VX_BATCH_ITEMS_MAX * SETS];
    struct vx_gpu_levels levels;
} batch;

static void request_add(i64 n)
{
    struct request *it = &batch.requests[batch.count++];
    const i32 side = 3 + (i32)(n / 40);
    memset(it, 0, sizeof *it);
    it->coords = device_rig_take((size_t)n * 16);
    it->truth[0].keys = device_rig_take((size_t)n * 8);
    for (i64 i = 0; i < n; i++) {
        it->coords[4 * i] = voxels_between(&dice, 0, 2) * 255;
        for (int axis = 1; axis < 4; axis++)
            it->coords[4 * i + axis] = voxels_between(&dice, -side / 2, side / 2);
    }
    level_truth_set(it->coords, 4, n, &it->truth[0]);
    /* Each voxel once. */
    it->n = it->truth[0].n;
    for (i64 i = 0; i < it->n; i++) {
        const u64 key = it->truth[0].keys[it->n - 1 - i];
        it->coords[4 * i] = (i32)(key >> 54);
        for (int axis = 0; axis < 3; axis++)
            it->coords[4 * i + axis + 1] =
                (i32)(key >> (36 - 18 * axis) & 0x3ffff) - (1 << 17);
    }
}

/* What the sets are, and room for exactly that, or for more. */
static void truth_make(void)
{
    for (i32 r = 0; r < batch.count; r++)
        for (i32 s = 0; s < batch.sets_count; s++) {
            struct request *it = &batch.requests[r];
            const struct vx_set_key *key = &batch.keys[s];
            i64 *most = &batch.rows_max[r * batch.sets_count + s];
            if (s) {
                i64 room = it->truth[key->from].n * level_truth_each(key);
                it->truth[s].keys = device_rig_take((size_t)room * 8);
                level_truth_derive(&it->truth[key->from], key, &it->truth[s]);
            }
            *most = it->truth[s].n;
            if (s && voxels_between(&dice, 0, 1)) *most += voxels_between(&dice, 0, 900);
            if (*most < 1) *most = 1;
        }
}

static void sets_build(void)
{
    for (i32 r = 0; r < batch.count; r++) {
        const struct request *it = &batch.requests[r];
        const struct vx_gpu_coords coords = {
            device_rig_put(it->coords, (size_t)it->n * 16),
            4,
            it->n,
            device_rig_give(vx_gpu_index_bytes(it->n)),
            device_rig_give((size_t)it->n * 4),
            {0}};
        device_rig_check(vx_gpu_index_build(&device_rig.queue, &coords, &device_rig.why,
                                            &batch.indices[r]));
    }
    batch.levels = (struct vx_gpu_levels){.keys = batch.keys,
                                          .sets_count = batch.sets_count,
                                          .requests_count = batch.count,
                                          .rows_max = batch.rows_max,
                                          .sets = batch.sets};
    vx_gpu_levels_place(device_rig.bench.set, &batch.levels, batch.indices,
                        device_rig_give(vx_gpu_levels_bytes(&batch.levels)));
    device_rig_check(
        vx_gpu_levels_build(&device_rig.queue, &upload, &batch.levels, &device_rig.why));
}

static const void *counts_get(void)
{
    return device_rig_get(batch.levels.counts, vx_gpu_levels_counts_bytes(&batch.levels));
}

static void sets_check(void)
{
    const void *counts = counts_get();
    for (i32 r = 0; r < batch.count; r++)
        device_rig_check(vx_gpu_levels_rows(&batch.levels, r, counts, &device_rig.why,
                                            batch.requests[r].rows));
    for (i32 s = 0; s < batch.sets_count; s++) {
        struct vx_gpu_level_keys keys[VX_BATCH_ITEMS_MAX];
        for (i32 r = 0; r < batch.count; r++) {
            i64 rows = batch.requests[r].rows[s];
            ck_assert_int_eq(rows, batch.requests[r].truth[s].n);
            keys[r] = (struct vx_gpu_level_keys){&batch.sets[r * batch.sets_count + s],
                                                 rows, device_rig_give((size_t)rows * 8)};
        }
        device_rig_check(vx_gpu_level_keys_build(&device_rig.queue, &upload, keys,
                                                 batch.count, &device_rig.why));
        for (i32 r = 0; r < batch.count; r++) {
            struct request *it = &batch.requests[r];
            it->keys[s] = device_rig_get(keys[r].keys, (size_t)it->rows[s] * 8);
            it->row_at[s] = device_rig_take((size_t)it->rows[s] * 4);
            const char *wrong =
                level_truth_rows(&it->truth[s], it->keys[s], it->row_at[s]);
            if (wrong) ck_abort_msg("request %d set %d: %s", r, s, wrong);
        }
    }
}

/* --- maps --- */

static void map_check(const struct vx_map_key *key, i32 request,
                      const struct vx_gpu_map *map)
{
    const struct request *it = &batch.requests[request];
    const size_t rows = (size_t)it->rows[key->to];
    const size_t stride = (size_t)map->nbr_stride, words = (size_t)map->words;
    char text[LEVEL_TRUTH_TEXT];
    ck_assert_int_eq(map->words > 0, map->masks != NULL);
    const struct level_truth_map truth = {
        .key = key,
        .from = &it->truth[key->from],
        .from_row_at = it->row_at[key->from],
        .rows = (i64)rows,
        .keys = it->keys[key->to],
        .nbr_stride = map->nbr_stride,
        .words = map->words,
        .nbr = device_rig_get(map->nbr, rows * stride * 4),
        .masks = words ? device_rig_get(map->masks, rows * words * 4) : NULL,
        .pairs = words ? device_rig_get(map->pairs, 8) : NULL};
    const char *wrong = level_truth_map(&truth, text);
    if (wrong) ck_abort_msg("request %d kind %d: %s", request, (int)key->kind, wrong);
}

static void maps_check(const struct vx_map_key *key)
{
    const struct device_rig_mark marked = device_rig_mark();
    struct vx_gpu_level_map maps[VX_BATCH_ITEMS_MAX];
    struct vx_gpu_map placed[VX_BATCH_ITEMS_MAX];
    upload.used = 0; /* all was waited for */
    for (i32 r = 0; r < batch.count; r++) {
        const struct request *it = &batch.requests[r];
        const struct vx_brick_set *sets = batch.sets + r * batch.sets_count;
        i64 rows = it->rows[key->to];
        vx_gpu_level_map_place(
            rows, key, device_rig_give(vx_gpu_level_map_bytes(rows, key)), &placed[r]);
        maps[r] = (struct vx_gpu_level_map){&sets[key->from], &sets[key->to],
                                            it->rows[key->from], rows, &placed[r]};
    }
    const struct vx_gpu_level_maps all = {key, maps, batch.count};
    device_rig_check(
        vx_gpu_level_maps_build(&device_rig.queue, &upload, &all, &device_rig.why));
    for (i32 r = 0; r < batch.count; r++) map_check(key, r, &placed[r]);
    device_rig_rewind(marked);
}

/* Every kind of map between a set and the one that it is made from. */
static void maps_check_all(i32 made)
{
    const struct vx_set_key *rule = &batch.keys[made];
    const bool expands = rule->rule == VX_SET_EXPAND;
    for (i32 kind = VX_MAP_SUBM; kind <= VX_MAP_CORNER; kind++) {
        i32 coarse = expands ? rule->from : made, fine = expands ? made : rule->from;
        bool down = kind == VX_MAP_DOWN;
        struct vx_map_key key = {.kernel = {1, 1, 1},
                                 .dilation = {1, 1, 1},
                                 .kind = (enum vx_map_kind)kind,
                                 .from = down ? fine : coarse,
                                 .to = down ? coarse : fine};
        memcpy(key.stride, rule->stride, sizeof key.stride);
        for (int axis = 0; axis < 3 && kind == VX_MAP_SAMPLE; axis++)
            key.stride[axis] = 1;
        if (kind == VX_MAP_DOWN || kind == VX_MAP_UP) {
            memcpy(key.kernel, rule->kernel, sizeof key.kernel);
            memcpy(key.dilation, rule->dilation, sizeof key.dilation);
            memcpy(key.padding, rule->padding, sizeof key.padding);
            if (rule->rule == VX_SET_FLOOR)
                memcpy(key.kernel, rule->stride, sizeof key.kernel);
            if (vx_map_offsets(&key) > VX_KERNEL_OFFSETS_MAX) continue;
        }
        if (kind == VX_MAP_CORNER)
            memcpy(key.kernel, (i32[]){2, 2, 2}, sizeof key.kernel);
        if (kind == VX_MAP_SUBM) {
            key.from = key.to = made;
            memset(key.stride, 0, sizeof key.stride);
            for (int axis = 0; axis < 3; axis++)
                key.kernel[axis] = 1 + 2 * voxels_between(&dice, 0, 1);
            key.dilation[0] = voxels_between(&dice, 1, 6);
        }
        maps_check(&key);
    }
}

/* --- networks --- */

static void rule_random(i32 index, struct vx_set_key *key)
{
    memset(key, 0, sizeof *key);
    static const enum vx_set_rule rules[] = {VX_SET_FLOOR, VX_SET_SPCONV, VX_SET_EXPAND,
                                             VX_SET_SAMPLES};
    key->rule = rules[voxels_between(&dice, 0, (i32)VX_COUNT(rules) - 1)];
    key->from = voxels_between(&dice, 0, index - 1);
    for (int axis = 0; axis < 3; axis++) {
        key->kernel[axis] = key->dilation[axis] = key->stride[axis] = 1;
        if (key->rule == VX_SET_SAMPLES) continue;
        key->stride[axis] = voxels_between(&dice, 1, 3);
        if (key->rule == VX_SET_FLOOR && !voxels_between(&dice, 0, 5))
            key->stride[axis] = 1 << voxels_between(&dice, 0, 6);
        if (key->rule == VX_SET_FLOOR) continue;
        key->kernel[axis] = voxels_between(&dice, 1, 2 + !axis);
        key->dilation[axis] = voxels_between(&dice, 0, 4) ? 1 : 17;
        key->padding[axis] = voxels_between(&dice, 0, 2);
        if (key->rule == VX_SET_SPCONV)
            key->shape[axis] = voxels_between(&dice, 0, 3) ? 1 << 17 : 2;
    }
}

/* Sets are added as long as they do not become too large. */
static void network_random(void)
{
    batch.sets_count = 1;
    memset(&batch.keys[0], 0, sizeof batch.keys[0]);
    const i32 sets = voxels_between(&dice, 2, SETS);
    while (batch.sets_count < sets) {
        struct vx_set_key *key = &batch.keys[batch.sets_count];
        rule_random(batch.sets_count, key);
        i64 most = 0;
        for (i32 s = batch.sets_count, times = 1; s; s = batch.keys[s].from) {
            times *= (i32)level_truth_each(&batch.keys[s]);
            most = times * (i64)700;
        }
        if (most <= ROWS_MOST) batch.sets_count++;
    }
}

START_TEST(test_random)
{
    dice.state = (u64)_i * 977 + 3;
    network_random();
    batch.count = 0;
    const i32 count = _i % 3 ? voxels_between(&dice, 1, 5) : 20;
    for (i32 r = 0; r < count; r++) {
        static const i64 sizes[] = {1, 5, 60, 400, 700};
        request_add(sizes[voxels_between(&dice, 0, count > 5 ? 2 : 4)]);
    }
    truth_make();
    if (_i % 7 == 5) upload.bytes = 300; /* all is built one by one */
    sets_build();
    sets_check();
    for (i32 s = 1; s < batch.sets_count; s++) maps_check_all(s);
}
END_TEST

static void minkunet(i32 requests, i64 n)
{
    batch.sets_count = 5;
    batch.count = 0;
    for (i32 s = 0; s < 5; s++)
        batch.keys[s] = (struct vx_set_key){.kernel = {1, 1, 1},
                                            .dilation = {1, 1, 1},
                                            .stride = {2, 2, 2},
                                            .rule = VX_SET_FLOOR,
                                            .from = s - 1};
    for (i32 r = 0; r < requests; r++) request_add(n);
    truth_make();
}

/* Four sets: a launch each and one for their numbers; one launch for all of 64 small
 * requests; one for each map of all of them. */
START_TEST(test_launches)
{
    struct vx_map_key key = {{2, 2, 2},   {1, 1, 1}, {2, 2, 2}, {0, 0, 0},
                             VX_MAP_DOWN, 0,         1};
    const bool large = _i == 0;
    dice.state = 5;
    minkunet(large ? 1 : 64, large ? 4000 : 300);
    const i64 index_launches = large ? 3 : 64;
    i64 before = vx_fake_launches();
    sets_build();
    ck_assert_int_eq(vx_fake_launches() - before, index_launches + (large ? 5 : 1));
    before = vx_fake_launches();
    sets_check();
    ck_assert_int_eq(vx_fake_launches() - before, 5);
    for (i32 kind = VX_MAP_DOWN; kind <= VX_MAP_UP; kind++) {
        key.kind = (enum vx_map_kind)kind;
        key.from = kind == VX_MAP_UP;
        key.to = !key.from;
        before = vx_fake_launches();
        maps_check(&key);
        ck_assert_int_eq(vx_fake_launches() - before, 1);
    }
}
END_TEST

/* The second of three requests has more rows in set 2 than it may: it fails alone, with a
 * sentence; the others are right. */
START_TEST(test_bound)
{
    i64 rows[SETS];
    dice.state = (u64)_i + 9;
    minkunet(3, _i ? 500 : 3000);
    const i64 most = batch.requests[1].truth[2].n - 1;
    batch.rows_max[5 + 2] = most;
    sets_build();
    const void *counts = counts_get();
    for (i32 r = 0; r < 3; r += 2) {
        device_rig_check(
            vx_gpu_levels_rows(&batch.levels, r, counts, &device_rig.why, rows));
        for (i32 s = 0; s < 5; s++)
            ck_assert_int_eq(rows[s], batch.requests[r].truth[s].n);
    }
    vx_status status =
        vx_gpu_levels_rows(&batch.levels, 1, counts, &device_rig.why, rows);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
    char expected[128];
    snprintf(expected, sizeof expected,
             "expected at most %lld voxels in set 2, got at least %lld", (long long)most,
             (long long)most + 1);
    ck_assert_str_eq(device_rig.why.text, expected);
    /* Bricks that found no room: their rows are not counted. */
    struct vx_brick_counts lacks[3 * 4];
    memcpy(lacks, counts, sizeof lacks);
    lacks[4 + 1].rows = (u32)most;
    status = vx_gpu_levels_rows(&batch.levels, 1, lacks, &device_rig.why, rows);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(device_rig.why.text, expected);
}
END_TEST

/* A shape in which nothing lies: sets of no rows, and maps of and to them. */
START_TEST(test_nothing)
{
    dice.state = 4;
    minkunet(_i ? 3 : 1, _i ? 60 : 3000);
    batch.sets_count = 3;
    batch.keys[1].rule = VX_SET_SPCONV;
    for (int axis = 0; axis < 3; axis++) {
        batch.keys[1].shape[axis] = 1;
        batch.keys[1].padding[axis] = 100000;
    }
    truth_make();
    sets_build();
    sets_check();
    ck_assert_int_eq(batch.requests[0].rows[1] + batch.requests[0].rows[2], 0);
    for (i32 s = 1; s < 3; s++) maps_check_all(s);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_levels");
    TCase *tests = tcase_create("gpu_levels");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, device_rig_close);
    tcase_add_loop_test(tests, test_random, 0, 24);
    tcase_add_loop_test(tests, test_launches, 0, 2);
    tcase_add_loop_test(tests, test_bound, 0, 2);
    tcase_add_loop_test(tests, test_nothing, 0, 2);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
