/* How the launches of a batch's geometry are divided among its pieces.  The fake device runs a
 * reference that ignores the division into blocks, so a mistake here would otherwise show on a GPU
 * only.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/gpu/fake/fake.h"
#include "engine/gpu/geometry/pieces.h"
#include "kernels/03_brick_map.h"
#include "kernels/15_geometry_join.h"
#include "tests/support/device_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define KERNELS_MAX 64
/* Blocks per processor of a device for a launch of joins, or of maps of many sets. */
#define JOIN_EACH 16
#define MANY_EACH 4

/* The arguments of the last launch. */
static struct {
    i32 launches;
    i64 count;
    u32 blocks;
    struct vx_join_share shares[VX_BATCH_ITEMS_MAX];
    u32 own[VX_BATCH_ITEMS_MAX]; /* blocks of each set, in maps of many */
} seen;

static void see(i64 count, u32 blocks, const struct vx_join_share *shares)
{
    seen.launches++;
    seen.count = count;
    seen.blocks = blocks;
    memcpy(seen.shares, shares, (size_t)count * sizeof *shares);
}

static void see_rows(const void *given, enum vx_number type)
{
    const struct vx_join_rows_args *args = given;
    (void)type;
    see(args->count, args->blocks, args->shares);
}

static void see_map(const void *given, enum vx_number type)
{
    const struct vx_join_map_args *args = given;
    (void)type;
    see(args->count, args->blocks, args->shares);
}

static void see_words(const void *given, enum vx_number type)
{
    const struct vx_words_differ_args *args = given;
    (void)type;
    see(args->count, args->blocks, args->shares);
}

static void see_many(const void *given, enum vx_number type)
{
    const struct vx_brick_map_many_args *args = given;
    (void)type;
    seen.launches++;
    seen.count = args->count;
    seen.blocks = args->blocks;
    for (i64 i = 0; i < args->count; i++) seen.own[i] = args->sets[i].blocks;
}

static const struct vx_kernel_spec *find(const char *name)
{
    static const struct {
        const char *name;
        void (*ref)(const void *args, enum vx_number type);
    } watched[] = {{"join_rows", see_rows},
                   {"join_map", see_map},
                   {"words_differ", see_words},
                   {"brick_map_many", see_many}};
    static struct vx_kernel_spec specs[VX_COUNT(watched)];
    for (size_t i = 0; i < VX_COUNT(watched); i++) {
        if (strcmp(name, watched[i].name) != 0) continue;
        specs[i] = *vx_kernel_find(name);
        specs[i].ref = watched[i].ref;
        return &specs[i];
    }
    return vx_kernel_find(name);
}

static struct vx_gpu_upload upload;
static i64 processors;

static void setup(void)
{
    struct vx_jit_wanted wanted[KERNELS_MAX];
    i32 count = vx_gpu_pieces_kernels(wanted, KERNELS_MAX);
    device_rig_open();
    vx_fake_set(&(struct vx_fake_settings){.find = find});
    device_rig_check(
        vx_kernel_set_ready(device_rig.bench.set, wanted, count, NULL, &device_rig.why));
    upload = (struct vx_gpu_upload){.host = device_rig_take(VX_GPU_UPLOAD_BYTES),
                                    .device = device_rig_give(VX_GPU_UPLOAD_BYTES),
                                    .bytes = VX_GPU_UPLOAD_BYTES};
    memset(&seen, 0, sizeof seen);
    processors = vx_gpu_caps(device_rig.bench.gpu)->processors;
}

/* The shares begin at block 0, follow each other and cover the whole launch.  No share is empty
 * or has more blocks than chunks.  A launch that fits is not divided; a launch that does not
 * fills the device, with at most one block of each piece beyond that. */
static void check_shares(const i64 *units, i32 count)
{
    const i64 most = processors * JOIN_EACH;
    i64 all = 0;
    u32 next = 0;
    ck_assert_int_eq(seen.count, count);
    for (i32 i = 0; i < count; i++) all += (units[i] + VX_JOIN_CHUNK - 1) / VX_JOIN_CHUNK;
    for (i32 i = 0; i < count; i++) {
        const i64 chunks = (units[i] + VX_JOIN_CHUNK - 1) / VX_JOIN_CHUNK;
        ck_assert_uint_eq(seen.shares[i].first, next);
        ck_assert_int_ge(seen.shares[i].blocks, 1);
        ck_assert_int_le(seen.shares[i].blocks, chunks);
        if (all <= most) ck_assert_int_eq(seen.shares[i].blocks, chunks);
        next += seen.shares[i].blocks;
    }
    ck_assert_uint_eq(seen.blocks, next);
    ck_assert_int_le(next, most + count);
    if (all > most) ck_assert_int_ge(next, most / 2);
}

static const i64 sizes[][6] = {
    {1},
    {1023, 1, 1024, 1025, 5000, 4096},
    {100000, 1, 1, 1, 1, 1},
    {3, 2000000, 7, 1500000, 1025, 1},
    {6000000, 6000000, 1, 1024, 6000000, 2049},
};

static i32 sizes_count(const i64 *row)
{
    i32 count = 0;
    while (count < 6 && row[count]) count++;
    return count;
}

/* Nothing is read: one line of memory serves as every tensor, whatever the sizes. */
START_TEST(test_join)
{
    const struct vx_map_key key = {.kernel = {3, 3, 3}, .dilation = {1, 1, 1}};
    const i32 count = sizes_count(sizes[_i]);
    void *memory = device_rig_give(4096);
    struct vx_gpu_piece pieces[6];
    struct vx_gpu_map maps[6], whole;
    i64 units[6], n = 0;
    for (i32 i = 0; i < count; i++) {
        vx_gpu_map_place(sizes[_i][i], &key, memory, &maps[i]);
        pieces[i] = (struct vx_gpu_piece){.n = sizes[_i][i],
                                          .columns = 4,
                                          .coords = memory,
                                          .rows = memory,
                                          .fault = memory,
                                          .maps = &maps[i]};
        n += sizes[_i][i];
    }
    vx_gpu_map_place(n, &key, memory, &whole);
    struct vx_gpu_join join = {.pieces = pieces,
                               .pieces_count = count,
                               .keys = &key,
                               .rows = memory,
                               .maps = &whole};
    device_rig_check(
        vx_gpu_pieces_join(&device_rig.queue, &upload, &join, &device_rig.why));
    ck_assert_int_eq(seen.launches, 1);
    check_shares(sizes[_i], count);
    /* In a map a unit is 16 bytes: 28 neighbours a row. */
    join.keys_count = 1;
    device_rig_check(
        vx_gpu_pieces_join(&device_rig.queue, &upload, &join, &device_rig.why));
    ck_assert_int_eq(seen.launches, 3);
    for (i32 i = 0; i < count; i++) units[i] = 7 * sizes[_i][i];
    check_shares(units, count);
}
END_TEST

START_TEST(test_compare)
{
    const i32 count = sizes_count(sizes[_i]);
    void *memory = device_rig_give(4096);
    struct vx_gpu_compared compared[6];
    i64 units[6];
    for (i32 i = 0; i < count; i++) {
        compared[i] =
            (struct vx_gpu_compared){memory, memory, 4 * sizes[_i][i] - 1, memory};
        units[i] = sizes[_i][i]; /* 16 bytes each, the last not whole */
    }
    device_rig_check(vx_gpu_pieces_compare(&device_rig.queue, &upload, compared, count,
                                           &device_rig.why));
    ck_assert_int_eq(seen.launches, 1);
    check_shares(units, count);
}
END_TEST

/* Small sets get blocks by their number of voxels, none more than it can use, and the launch
 * has as many as the set with the most. */
START_TEST(test_maps_of_many)
{
    static const i64 small[][5] = {{1, 2048, 33, 848, 64}, {1, 1, 1, 1, 1}};
    const struct vx_map_key key = {.kernel = {3, 3, 3}, .dilation = {1, 1, 1}};
    struct vx_gpu_piece pieces[5];
    struct vx_gpu_map maps[5];
    i64 blocks = 0;
    u32 most = 0;
    for (i32 i = 0; i < 5; i++) {
        const i64 rows = small[_i][i];
        i32 *coords = device_rig_take((size_t)rows * 16);
        for (i32 r = 0; r < rows; r++) memcpy(coords + 4 * r, (i32[]){0, r, 0, 0}, 16);
        vx_gpu_map_place(rows, &key, device_rig_give(vx_gpu_map_bytes(rows, &key)),
                         &maps[i]);
        pieces[i] =
            (struct vx_gpu_piece){.n = rows,
                                  .columns = 4,
                                  .coords = device_rig_put(coords, (size_t)rows * 16),
                                  .rows = device_rig_give((size_t)rows * 4),
                                  .fault = device_rig_give(8),
                                  .maps = &maps[i]};
    }
    const size_t bytes = vx_gpu_build_bytes(pieces, 5, false);
    u8 *scratch = device_rig_give(bytes), *behind = device_rig_give(4096);
    device_rig_check(vx_gpu_fill(device_rig.bench.gpu, device_rig.bench.stream,
                                 &(struct vx_gpu_words){behind, 0x7fff7fff, 4096},
                                 &device_rig.why));
    const struct vx_gpu_build build = {.pieces = pieces,
                                       .pieces_count = 5,
                                       .keys = &key,
                                       .keys_count = 1,
                                       .scratch = scratch};
    device_rig_check(
        vx_gpu_pieces_build(&device_rig.queue, &upload, &build, &device_rig.why));
    ck_assert_int_eq(seen.launches, 1);
    ck_assert_int_eq(seen.count, 5);
    for (i32 i = 0; i < 5; i++) {
        ck_assert_int_ge(seen.own[i], 1);
        ck_assert_int_le(seen.own[i], (small[_i][i] + 31) / 32);
        blocks += seen.own[i];
        if (seen.own[i] > most) most = seen.own[i];
    }
    ck_assert_uint_eq(seen.blocks, most);
    ck_assert_int_le(blocks, processors * MANY_EACH + 5);
    /* Five indices side by side need exactly the bytes that were requested: nothing behind them is
     * written. */
    const u32 *after = device_rig_get(behind, 4096);
    for (i32 w = 0; w < 1024; w++) ck_assert_uint_eq(after[w], 0x7fff7fff);
}
END_TEST

/* Descriptions may fill their room to the last byte, and not beyond; a refusal leaves the room
 * unchanged. */
START_TEST(test_room_to_the_last_byte)
{
    void *memory = device_rig_give(4096);
    const struct vx_gpu_compared compared = {memory, memory, 5, memory};
    device_rig_check(
        vx_gpu_pieces_compare(&device_rig.queue, &upload, &compared, 1, &device_rig.why));
    const size_t needed = upload.used;
    upload.used = 0;
    upload.bytes = needed;
    device_rig_check(
        vx_gpu_pieces_compare(&device_rig.queue, &upload, &compared, 1, &device_rig.why));
    ck_assert_uint_eq(upload.used, needed);
    upload.used = 0;
    upload.bytes = needed - 1;
    vx_status status =
        vx_gpu_pieces_compare(&device_rig.queue, &upload, &compared, 1, &device_rig.why);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(seen.launches, 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_shares");
    TCase *tests = tcase_create("gpu_shares");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, device_rig_close);
    tcase_add_loop_test(tests, test_join, 0, VX_COUNT(sizes));
    tcase_add_loop_test(tests, test_compare, 0, VX_COUNT(sizes));
    tcase_add_loop_test(tests, test_maps_of_many, 0, 2);
    tcase_add_test(tests, test_room_to_the_last_byte);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
