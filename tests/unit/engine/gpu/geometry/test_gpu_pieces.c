/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/fake/fake.h"
#include "engine/gpu/geometry/pieces.h"
#include "engine/tune/data.h"
#include "tests/support/device_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define KERNELS_MAX 64
#define KEYS_MAX    4
#define SAMPLES     4

static struct vx_gpu_upload upload;
static u64 state;

static i64 below(i64 end)
{
    return (i64)(vx_data_next(&state) % (u64)end);
}

static void setup(void)
{
    struct vx_jit_wanted wanted[KERNELS_MAX];
    i32 count = vx_gpu_pieces_kernels(wanted, KERNELS_MAX);
    device_rig_open();
    device_rig_check(
        vx_kernel_set_ready(device_rig.bench.set, wanted, count, NULL, &device_rig.why));
    count = vx_gpu_map_kernels(wanted, KERNELS_MAX); /* for the expected values */
    device_rig_check(
        vx_kernel_set_ready(device_rig.bench.set, wanted, count, NULL, &device_rig.why));
    upload = (struct vx_gpu_upload){.host = device_rig_take(VX_GPU_UPLOAD_BYTES),
                                    .device = device_rig_give(VX_GPU_UPLOAD_BYTES),
                                    .bytes = VX_GPU_UPLOAD_BYTES};
}

/* --- random pieces --- */

enum bad { GOOD, OUT_OF_RANGE, TWICE, BOTH };

struct set {
    i64 n;
    i32 columns;
    i32 *coords;
    enum bad bad;
};

/* n of the voxels of a box around the origin, in any order; a box of several samples lies
 * in each of them. */
static void set_make(i64 n, i32 columns, struct set *set)
{
    const i32 samples = columns == 4 ? SAMPLES : 1;
    i64 side = 1, kept = 0, left;
    while (side * side * side * samples < 2 * n) side++;
    left = side * side * side * samples;
    *set = (struct set){n, columns, device_rig_take((size_t)(n * columns) * 4), GOOD};
    for (i64 cell = 0; kept < n; cell++, left--) {
        if (below(left) >= n - kept) continue;
        i64 at = kept ? below(kept + 1) : 0; /* its new place; the row there moves last */
        i32 *to = set->coords + at * columns, *last = set->coords + kept++ * columns;
        memmove(last, to, (size_t)columns * 4);
        i64 rest = cell / samples;
        if (columns == 4) *to++ = (i32)(cell % samples);
        to[0] = (i32)(rest / side / side - side / 2);
        to[1] = (i32)(rest / side % side - side / 2);
        to[2] = (i32)(rest % side - side / 2);
    }
}

/* Puts a row in the middle out of range, or makes it a copy of another. */
static void set_spoil(struct set *set, enum bad bad)
{
    const size_t row = (size_t)set->columns * 4;
    if (set->n < 3) return;
    set->bad = bad;
    if (bad & TWICE) memcpy(set->coords + set->n / 2 * set->columns, set->coords, row);
    if (bad & OUT_OF_RANGE)
        set->coords[(set->n - 1) * set->columns] =
            set->columns == 4 ? VX_SAMPLE_MAX + 1 : VX_AXIS_MIN - 1;
}

static const struct vx_map_key all_keys[] = {
    {.kernel = {3, 3, 3}, .dilation = {1, 1, 1}},
    {.kernel = {5, 5, 5}, .dilation = {1, 1, 1}},
    {.kernel = {3, 3, 3}, .dilation = {2, 2, 2}},
    {.kernel = {343, 1, 1}, .dilation = {1, 1, 1}},
    {.kernel = {1, 1, 1}, .dilation = {1, 1, 1}},
    {.kernel = {3, 1, 3}, .dilation = {7, 1, 2}},
    {.kernel = {7, 7, 7}, .dilation = {1, 1, 1}},
};

/* A batch in host memory, and its pieces on the device. */
struct batch {
    struct set sets[VX_BATCH_ITEMS_MAX];
    struct vx_gpu_piece pieces[VX_BATCH_ITEMS_MAX];
    struct vx_map_key keys[KEYS_MAX];
    i32 count, keys_count;
    i64 n;
};

static void batch_place(struct batch *batch)
{
    batch->n = 0;
    for (i32 p = 0; p < batch->count; p++) {
        const struct set *set = &batch->sets[p];
        struct vx_gpu_piece *piece = &batch->pieces[p];
        struct vx_gpu_map *maps = device_rig_take(KEYS_MAX * sizeof *maps);
        *piece = (struct vx_gpu_piece){
            .n = set->n,
            .columns = set->columns,
            .coords = device_rig_put(set->coords, (size_t)(set->n * set->columns) * 4),
            .rows = device_rig_give((size_t)set->n * 4),
            .fault = device_rig_give(8),
            .maps = batch->keys_count ? maps : NULL};
        for (i32 k = 0; k < batch->keys_count; k++) {
            void *memory = device_rig_give(vx_gpu_map_bytes(set->n, &batch->keys[k]));
            vx_gpu_map_place(set->n, &batch->keys[k], memory, &maps[k]);
        }
        batch->n += set->n;
    }
}

static void batch_make(struct batch *batch, i32 count, i64 most)
{
    memset(batch, 0, sizeof *batch);
    batch->count = count;
    for (i32 p = 0; p < count; p++) {
        static const i64 edges[] = {1, 2, 32, 33, 512, 848, 2048, 2049, 5000};
        i64 n = below(3) ? 1 + below(most) : edges[below(9)];
        set_make(n < most ? n : most, below(2) ? 3 : 4, &batch->sets[p]);
        if (!below(7)) set_spoil(&batch->sets[p], (enum bad)(1 + below(3)));
    }
}

static void batch_build(struct batch *batch)
{
    const struct vx_gpu_build build = {.pieces = batch->pieces,
                                       .pieces_count = batch->count,
                                       .keys = batch->keys,
                                       .keys_count = batch->keys_count,
                                       .scratch = device_rig_give(vx_gpu_build_bytes(
                                           batch->pieces, batch->count, false))};
    device_rig_check(
        vx_gpu_pieces_build(&device_rig.queue, &upload, &build, &device_rig.why));
}

/* --- what is right --- */

/* A map in rows of the request, so that it does not depend on an order of bricks. */
struct plain {
    i32 *nbr;
    u32 *masks;
    u64 pairs;
};

static struct plain plain_of(const i32 *rows_at, const struct vx_gpu_map *map, i64 n)
{
    const i32 stride = map->nbr_stride, words = map->words;
    const i32 *rows = device_rig_get(rows_at, (size_t)n * 4);
    const i32 *nbr = device_rig_get(map->nbr, (size_t)(n * stride) * 4);
    const u32 *masks = device_rig_get(map->masks, (size_t)(n * words) * 4);
    struct plain plain = {device_rig_take((size_t)(n * stride) * 4),
                          device_rig_take((size_t)(n * words) * 4), 0};
    u8 *seen = device_rig_take((size_t)n);
    memset(seen, 0, (size_t)n);
    for (i64 r = 0; r < n; r++) {
        if (rows[r] < 0 || rows[r] >= n || seen[rows[r]]++)
            ck_abort_msg("row %d is none, or there twice", rows[r]);
        for (i32 v = 0; v < stride; v++) {
            i32 there = nbr[r * stride + v];
            if (there < -1 || there >= n) ck_abort_msg("neighbour %d", there);
            plain.nbr[rows[r] * stride + v] = there < 0 ? -1 : rows[there];
            plain.pairs += there >= 0;
        }
        memcpy(plain.masks + rows[r] * words, masks + r * words, (size_t)words * 4);
    }
    return plain;
}

static void plain_same(const struct plain *a, const struct plain *b,
                       const struct vx_gpu_map *map, i64 n)
{
    ck_assert_uint_eq(a->pairs, b->pairs);
    ck_assert(!memcmp(a->nbr, b->nbr, (size_t)(n * map->nbr_stride) * 4));
    ck_assert(!memcmp(a->masks, b->masks, (size_t)(n * map->words) * 4));
}

/* One set, built with map.h alone. */
static struct plain single(const struct set *set, const struct vx_map_key *key,
                           u64 *pairs)
{
    const struct vx_gpu_coords coords = {
        device_rig_put(set->coords, (size_t)(set->n * set->columns) * 4),
        set->columns,
        set->n,
        device_rig_give(vx_gpu_index_bytes(set->n)),
        device_rig_give((size_t)set->n * 4),
        {0}};
    struct vx_gpu_index index;
    struct vx_gpu_map map;
    device_rig_check(
        vx_gpu_index_build(&device_rig.queue, &coords, &device_rig.why, &index));
    vx_gpu_map_place(set->n, key, device_rig_give(vx_gpu_map_bytes(set->n, key)), &map);
    device_rig_check(
        vx_gpu_map_build(&device_rig.queue, &index, key, &map, &device_rig.why));
    *pairs = *(u64 *)device_rig_get(map.pairs, 8);
    return plain_of(index.rows, &map, set->n);
}

static void check_results(const struct batch *batch, u32 *const *differs,
                          const u32 *expected)
{
    struct vx_gpu_piece_result *at = device_rig_give((size_t)batch->count * sizeof *at);
    const size_t maps = (size_t)batch->count * (size_t)batch->keys_count;
    const struct vx_gpu_results results = {.pieces = batch->pieces,
                                           .pieces_count = batch->count,
                                           .maps_count = batch->keys_count,
                                           .differs = differs,
                                           .results = at,
                                           .each = device_rig_give(maps * sizeof(u64))};
    device_rig_check(
        vx_gpu_pieces_results(&device_rig.queue, &upload, &results, &device_rig.why));
    const struct vx_gpu_piece_result *got =
        device_rig_get(at, (size_t)batch->count * sizeof *got);
    for (i32 p = 0; p < batch->count; p++) {
        u64 pairs = 0;
        for (i32 k = 0; k < batch->keys_count; k++) {
            const u64 mine = *(u64 *)device_rig_get(batch->pieces[p].maps[k].pairs, 8);
            const u64 *each = results.each + (i64)p * batch->keys_count + k;
            ck_assert_uint_eq(*(u64 *)device_rig_get(each, 8), mine);
            pairs += mine;
        }
        ck_assert_int_eq(got[p].fault[0] != 0, (batch->sets[p].bad & OUT_OF_RANGE) != 0);
        ck_assert_int_eq(got[p].fault[1] != 0, (batch->sets[p].bad & TWICE) != 0);
        ck_assert_uint_eq(got[p].differs, expected ? expected[p] : 0);
        ck_assert_uint_eq(got[p].unused, 0);
        ck_assert_uint_eq(got[p].pairs, pairs);
    }
}

static void check_pieces(const struct batch *batch)
{
    for (i32 p = 0; p < batch->count; p++) {
        const struct set *set = &batch->sets[p];
        const struct vx_gpu_piece *piece = &batch->pieces[p];
        for (i32 k = 0; k < batch->keys_count && !set->bad; k++) {
            const struct device_rig_mark marked = device_rig_mark();
            u64 pairs;
            struct plain truth = single(set, &batch->keys[k], &pairs);
            struct plain plain = plain_of(piece->rows, &piece->maps[k], set->n);
            plain_same(&plain, &truth, &piece->maps[k], set->n);
            ck_assert_uint_eq(*(u64 *)device_rig_get(piece->maps[k].pairs, 8), pairs);
            ck_assert_uint_eq(pairs, plain.pairs);
            device_rig_rewind(marked);
        }
    }
}

/* --- joined --- */

/* All sets as one, told apart by samples of their own. */
static void whole_make(const struct batch *batch, struct set *whole)
{
    i32 *to = device_rig_take((size_t)batch->n * 16);
    *whole = (struct set){batch->n, 4, to, GOOD};
    for (i32 p = 0; p < batch->count; p++) {
        const struct set *set = &batch->sets[p];
        if (set->bad) whole->bad = set->bad;
        for (i64 i = 0; i < set->n; i++, to += 4) {
            const i32 *from = set->coords + i * set->columns;
            to[0] = p * SAMPLES + (set->columns == 4 ? *from++ : 0);
            memcpy(to + 1, from, 12);
        }
    }
}

/* The join holds what the pieces hold, good or bad, with row numbers raised. */
static void check_raised(const struct batch *batch, const i32 *rows,
                         const struct vx_gpu_map *map, i32 key)
{
    const size_t stride = (size_t)map->nbr_stride, words = (size_t)map->words;
    const i32 *nbr = device_rig_get(map->nbr, (size_t)batch->n * stride * 4);
    const u32 *masks = device_rig_get(map->masks, (size_t)batch->n * words * 4);
    i32 base = 0;
    for (i32 p = 0; p < batch->count; p++) {
        const size_t n = (size_t)batch->sets[p].n;
        const struct vx_gpu_map *own = &batch->pieces[p].maps[key];
        const i32 *own_rows = device_rig_get(batch->pieces[p].rows, n * 4);
        const i32 *own_nbr = device_rig_get(own->nbr, n * stride * 4);
        for (size_t r = 0; r < n; r++)
            if (rows[r] != base + own_rows[r]) ck_abort_msg("row %zu of piece %d", r, p);
        for (size_t e = 0; e < n * stride; e++)
            if (nbr[e] != (own_nbr[e] < 0 ? -1 : base + own_nbr[e]))
                ck_abort_msg("neighbour %zu of piece %d", e, p);
        ck_assert(
            !memcmp(masks, device_rig_get(own->masks, n * words * 4), n * words * 4));
        rows += n;
        nbr += n * stride;
        masks += n * words;
        base += (i32)n;
    }
}

static void check_join(const struct batch *batch)
{
    struct vx_gpu_map maps[KEYS_MAX];
    struct vx_gpu_join join = {.pieces = batch->pieces,
                               .pieces_count = batch->count,
                               .keys = batch->keys,
                               .keys_count = batch->keys_count,
                               .rows = device_rig_give((size_t)batch->n * 4),
                               .maps = maps};
    struct set whole;
    for (i32 k = 0; k < batch->keys_count; k++)
        vx_gpu_map_place(batch->n, &batch->keys[k],
                         device_rig_give(vx_gpu_map_bytes(batch->n, &batch->keys[k])),
                         &maps[k]);
    device_rig_check(
        vx_gpu_pieces_join(&device_rig.queue, &upload, &join, &device_rig.why));
    const i32 *rows = device_rig_get(join.rows, (size_t)batch->n * 4);
    whole_make(batch, &whole);
    for (i32 k = 0; k < batch->keys_count; k++) {
        const struct device_rig_mark marked = device_rig_mark();
        u64 pairs;
        check_raised(batch, rows, &maps[k], k);
        if (!whole.bad) {
            struct plain truth = single(&whole, &batch->keys[k], &pairs);
            struct plain plain = plain_of(join.rows, &maps[k], batch->n);
            plain_same(&plain, &truth, &maps[k], batch->n);
        }
        device_rig_rewind(marked);
    }
}

/* --- tests --- */

static void keys_pick(struct batch *batch, i32 count)
{
    batch->keys_count = count;
    for (i32 k = 0; k < count; k++)
        batch->keys[k] = all_keys[below((i64)VX_COUNT(all_keys))];
}

START_TEST(test_random)
{
    struct batch batch;
    state = (u64)_i * 977 + 5;
    /* Few of the sets are large, so that a test takes a second. */
    i32 count = 1 + (i32)below(_i % 3 ? 64 : 6);
    batch_make(&batch, count, count < 7 ? 5000 : 400);
    if (_i % 4 == 1)
        for (i32 p = 0; p < count; p++)
            if (batch.sets[p].bad) set_make(batch.sets[p].n, 4, &batch.sets[p]);
    keys_pick(&batch, (i32)below(KEYS_MAX));
    batch_place(&batch);
    batch_build(&batch);
    check_results(&batch, NULL, NULL);
    check_pieces(&batch);
    check_join(&batch);
}
END_TEST

/* Two launches build all of 64 small pieces, and the same two build one piece. */
START_TEST(test_launches)
{
    static const i32 counts[] = {64, 1, 2};
    struct batch batch;
    memset(&batch, 0, sizeof batch);
    batch.count = counts[_i];
    for (i32 p = 0; p < batch.count; p++) set_make(848, 4, &batch.sets[p]);
    batch.keys[0] = all_keys[0];
    batch.keys_count = 1;
    batch_place(&batch);
    i64 before = vx_fake_launches();
    batch_build(&batch);
    ck_assert_int_eq(vx_fake_launches() - before, 2);
    check_pieces(&batch);
    before = vx_fake_launches();
    check_join(&batch); /* rows, map; then the whole: more than small, sorted or not */
    ck_assert_int_ge(vx_fake_launches() - before, 4);
    check_results(&batch, NULL, NULL);
}
END_TEST

/* No map at all: only the rows and the faults are computed. */
START_TEST(test_no_keys)
{
    struct batch batch;
    state = 31;
    batch_make(&batch, 9, 3000);
    set_make(700, 3, &batch.sets[4]);
    set_spoil(&batch.sets[4], BOTH);
    batch_place(&batch);
    batch_build(&batch);
    check_results(&batch, NULL, NULL);
    check_join(&batch);
}
END_TEST

/* The room for descriptions is too small for a launch of many: pieces are built one by
 * one, with the same maps; a join is refused with a sentence. */
START_TEST(test_little_room)
{
    struct batch batch;
    struct vx_gpu_map map;
    state = 77;
    batch_make(&batch, 30, 300);
    batch.keys[0] = all_keys[0];
    batch.keys_count = 1;
    batch_place(&batch);
    upload.bytes = 2000;
    i64 before = vx_fake_launches();
    batch_build(&batch);
    ck_assert_int_eq(vx_fake_launches() - before, 60);
    ck_assert_uint_eq(upload.used, 0);
    struct vx_gpu_join join = {.pieces = batch.pieces,
                               .pieces_count = batch.count,
                               .keys = all_keys,
                               .keys_count = 1,
                               .rows = device_rig_give((size_t)batch.n * 4),
                               .maps = &map};
    vx_gpu_map_place(batch.n, &all_keys[0],
                     device_rig_give(vx_gpu_map_bytes(batch.n, &all_keys[0])), &map);
    vx_status status =
        vx_gpu_pieces_join(&device_rig.queue, &upload, &join, &device_rig.why);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_ptr_nonnull(strstr(device_rig.why.text, "at most 2000 bytes"));
    upload.bytes = VX_GPU_UPLOAD_BYTES;
    upload.used = 0;
    check_pieces(&batch);
    check_join(&batch);
}
END_TEST

/* One int that differs, at every place in turn, alone or with others. */
START_TEST(test_compare)
{
    enum { PAIRS = 7 };
    static const i64 counts[PAIRS] = {1, 3, 4, 5, 30, 4099, 212};
    struct vx_gpu_compared compared[PAIRS];
    i32 *a[PAIRS];
    u32 *differs[PAIRS], expected[PAIRS];
    struct batch batch;
    memset(&batch, 0, sizeof batch);
    batch.count = PAIRS;
    for (i32 p = 0; p < PAIRS; p++) {
        a[p] = device_rig_take((size_t)counts[p] * 4);
        for (i64 i = 0; i < counts[p]; i++) a[p][i] = (i32)vx_data_next(&state);
        differs[p] = device_rig_give(4);
        compared[p] = (struct vx_gpu_compared){
            device_rig_put(a[p], (size_t)counts[p] * 4),
            device_rig_put(a[p], (size_t)counts[p] * 4), counts[p], differs[p]};
    }
    const struct device_rig_mark marked = device_rig_mark();
    for (i64 at = -1; at < counts[_i]; at++) {
        const i64 changed = at < 0 ? 0 : at;
        i32 value = a[_i][changed] ^ (i32)(at < 0 ? 0u : 1u << (at % 32));
        device_rig_check(vx_gpu_copy_in(
            device_rig.bench.gpu, device_rig.bench.stream,
            &(struct vx_gpu_copy){(i32 *)(uintptr_t)compared[_i].b + changed, &value, 4},
            &device_rig.why));
        if (at > 0)
            device_rig_check(vx_gpu_copy_in(
                device_rig.bench.gpu, device_rig.bench.stream,
                &(struct vx_gpu_copy){(i32 *)(uintptr_t)compared[_i].b + at - 1,
                                      a[_i] + at - 1, 4},
                &device_rig.why));
        upload.used = 0;
        device_rig_check(vx_gpu_pieces_compare(&device_rig.queue, &upload, compared,
                                               PAIRS, &device_rig.why));
        for (i32 p = 0; p < PAIRS; p++) expected[p] = p == _i && at >= 0;
        check_results(&batch, differs, expected);
        device_rig_rewind(marked);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_pieces");
    TCase *tests = tcase_create("gpu_pieces");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, device_rig_close);
    tcase_add_loop_test(tests, test_random, 0, 16);
    tcase_add_loop_test(tests, test_launches, 0, 3);
    tcase_add_test(tests, test_no_keys);
    tcase_add_test(tests, test_little_room);
    tcase_add_loop_test(tests, test_compare, 0, 7);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
