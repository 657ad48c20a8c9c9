/* Kernels of ours, as the compiler for AMD optimised them, give what their references give: the
 * hash table and the map over it, and the sort of masks. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/02_neighbor_map_device.h"
#include "kernels/37_order_sweep.h"
#include "kernels/number.h"
#include "tests/amd/rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS 4

void vx_order_clear_ref(const void *args, enum vx_number type);
void vx_order_digits_ref(const void *args, enum vx_number type);
void vx_order_sweep_ref(const void *args, enum vx_number type);
void vx_order_blocks_ref(const void *args, enum vx_number type);

enum { HASH, MAP, ORDER, SWEEP, TEXTS };
static const char *const archs[] = {"gfx942", "gfx1100"};
static struct amd_image images[2][TEXTS];

static struct amd_rig rig;
static i32 arch_now;

static void device_open(i32 loop)
{
    char settings[64];
    arch_now = loop / SEEDS;
    (void)snprintf(settings, sizeof settings, "arch=%s seed=%d", archs[arch_now],
                   loop % SEEDS);
    amd_rig_open(&rig, settings);
}

static void device_run(i32 text, const char *kernel, void *args, struct vx_grid grid,
                       u32 threads)
{
    int code = amd_rig_run(&rig, &(struct amd_run){.image = &images[arch_now][text],
                                                   .kernel = kernel,
                                                   .args = args,
                                                   .grid = grid,
                                                   .threads = threads});
    ck_assert_msg(code == 0, "%s: %d: %s", kernel, code, rig.why());
}

static void *to_device(const void *from, size_t bytes)
{
    return amd_rig_copy(&rig, from, bytes);
}

/* --- the hash table, and the map --- */

#define ROWS  1331 /* a cube, without every seventh */
#define SLOTS 4096

static i32 coords[ROWS][4];
static i64 voxels_make(void)
{
    i64 n = 0;
    for (i32 i = 0; i < ROWS; i++)
        if (i % 7) {
            const i32 at[4] = {0, i / 121 - 5, i / 11 % 11 - 5, i % 11 - 5};
            memcpy(coords[n++], at, sizeof at);
        }
    return n;
}

static struct vx_hash_table table_make(u64 *keys, i32 *rows)
{
    memset(keys, 0xff, SLOTS * sizeof *keys);
    return (struct vx_hash_table){
        .key_bits = 64, .slots_count = SLOTS, .slots_key = keys, .slots_row = rows};
}

START_TEST(test_hash_and_map)
{
    static u64 keys[SLOTS];
    static i32 rows[SLOTS], nbr[ROWS][28];
    u32 masks[ROWS] = {0}, fault[2] = {0, 0};
    u64 pairs = 0;
    i64 n = voxels_make();
    device_open(_i);
    memset(nbr, 0xff, sizeof nbr);
    struct vx_hash_insert_args insert = {
        .n = n, .columns = 4, .coords = &coords[0][0], .fault = fault};
    insert.table = table_make(keys, rows);
    struct vx_hash_map_args map = {.n = n, .columns = 4, .coords = &coords[0][0]};
    map.v = 27;
    map.words = 1;
    map.nbr_stride = 28;
    map.blocks = 5;
    map.nbr = &nbr[0][0];
    map.masks = masks;
    map.pairs = &pairs;
    for (i32 axis = 0; axis < 3; axis++) {
        map.kernel[axis] = 3;
        map.dilation[axis] = 1;
    }
    struct vx_hash_insert_args there = insert;
    there.coords = to_device(coords, sizeof coords);
    there.fault = to_device(fault, sizeof fault);
    there.table = table_make(to_device(keys, sizeof keys), to_device(rows, sizeof rows));
    struct vx_hash_map_args map_there = map;
    map_there.coords = there.coords;
    map_there.table = there.table;
    map_there.nbr = to_device(nbr, sizeof nbr);
    map_there.masks = to_device(masks, sizeof masks);
    map_there.pairs = to_device(&pairs, sizeof pairs);
    vx_hash_insert_ref(&insert);
    map.table = insert.table;
    vx_hash_map_ref(&map);
    u32 blocks = (u32)((n + VX_HASH_THREADS - 1) / VX_HASH_THREADS);
    device_run(HASH, "hash_insert", &there, (struct vx_grid){blocks, 1, 1},
               VX_HASH_THREADS);
    ck_assert_uint_eq(there.fault[0] | there.fault[1], 0);
    device_run(MAP, "hash_map", &map_there, (struct vx_grid){map.blocks, 1, 1},
               VX_HASH_MAP_THREADS);
    ck_assert_uint_gt(pairs, (u64)n);
    ck_assert_uint_eq(*map_there.pairs, pairs);
    ck_assert_int_eq(memcmp(map_there.nbr, nbr, sizeof nbr), 0);
    ck_assert_int_eq(memcmp(map_there.masks, masks, sizeof masks), 0);
    amd_rig_close(&rig);
}
END_TEST

/* --- one pass of the sort --- */

#define N     20000 /* several tiles, the last of which is not full, and two spans of them */
#define TILES ((N + VX_ORDER_TILE - 1) / VX_ORDER_TILE)
#define BINS  VX_ORDER_BINS
_Static_assert(TILES > VX_SWEEP_SPAN + 1, "tiles that ask a span and tiles of their own");
_Static_assert(N % VX_ORDER_TILE != 0, "of which the last is not full");

/* The words of a pass: its state, its totals, and the block masks. */
#define STATE_MAX                                                                        \
    (32 + TILES * BINS / 2 + 2 * BINS * ((TILES + VX_SWEEP_SPAN - 1) / VX_SWEEP_SPAN))
#define WORDS (STATE_MAX + BINS + (N + 31) / 32)

static struct vx_order_digits_args sort_of(const u32 *masks, u32 *keys, i32 *rows,
                                           u32 *words)
{
    ck_assert_int_eq(vx_sweep_layout_of(TILES).words, STATE_MAX);
    return (struct vx_order_digits_args){
        .sort = {.n = N,
                 .tiles = TILES,
                 .words = 1,
                 .bits = 27,
                 .groups = 1,
                 .gray = 1,
                 .key_bits = 27,
                 .digit_bits = VX_ORDER_DIGIT,
                 .masks = masks,
                 .keys_out = keys,
                 .rows_out = rows,
                 .counts = words,
                 .totals = words + STATE_MAX,
                 .block_masks = words + STATE_MAX + BINS},
        .digits = 1,
        .bits = {VX_ORDER_DIGIT}};
}

/* Of order_sweep: it reads the keys that order_digits has written, and writes behind them. */
static struct vx_mask_order_args sweep_of(const struct vx_order_digits_args *digits)
{
    struct vx_mask_order_args args = digits->sort;
    args.keys_in = args.keys_out;
    args.keys_out += N;
    return args;
}

START_TEST(test_order)
{
    static u32 masks[N], keys[2 * N], words[WORDS];
    static i32 rows[N];
    device_open(_i);
    for (u32 i = 0; i < N; i++) masks[i] = i * 2654435761u >> 5 & (i % 3 ? ~0u : 0x1ffu);
    const struct vx_order_digits_args here = sort_of(masks, keys, rows, words);
    struct vx_order_digits_args there =
        sort_of(to_device(masks, sizeof masks), amd_rig_memory(&rig, sizeof keys),
                amd_rig_memory(&rig, sizeof rows), amd_rig_memory(&rig, sizeof words));
    struct vx_mask_order_args sweep = sweep_of(&here), sweep_there = sweep_of(&there);
    vx_order_clear_ref(&here, VX_NUMBER_F32);
    vx_order_digits_ref(&here, VX_NUMBER_F32);
    vx_order_sweep_ref(&sweep, VX_NUMBER_F32);
    const struct vx_grid one = {1, 1, 1}, grid = {TILES, 1, 1};
    device_run(SWEEP, "order_clear", &there, one, VX_ORDER_THREADS);
    device_run(SWEEP, "order_digits", &there, grid, VX_ORDER_THREADS);
    device_run(SWEEP, "order_sweep", &sweep_there, grid, VX_ORDER_THREADS);
    ck_assert_int_ne(rows[1], 1);
    ck_assert_int_eq(memcmp(there.sort.rows_out, rows, sizeof rows), 0);
    ck_assert_int_eq(memcmp(there.sort.keys_out, keys, sizeof keys), 0);
    /* Then from the masks through the order. */
    sweep.keys_in = NULL;
    sweep.rows_in = sweep.rows_out;
    sweep_there.keys_in = NULL;
    sweep_there.rows_in = sweep_there.rows_out;
    vx_order_blocks_ref(&sweep, VX_NUMBER_F32);
    device_run(ORDER, "order_blocks", &sweep_there,
               (struct vx_grid){(N + VX_ORDER_THREADS - 1) / VX_ORDER_THREADS, 1, 1},
               VX_ORDER_THREADS);
    ck_assert_int_eq(memcmp(there.sort.counts, words, sizeof words), 0);
    amd_rig_close(&rig);
}
END_TEST

static void compile_all(void)
{
    static const char *const texts[TEXTS] = {
        [HASH] = "kernels/01_coord_hash.cu",
        [MAP] = "kernels/02_neighbor_map.cu",
        [ORDER] = "kernels/05_mask_order.cu",
        [SWEEP] = "kernels/37_order_sweep.cu",
    };
    for (i32 arch = 0; arch < 2; arch++)
        for (i32 text = 0; text < TEXTS; text++)
            images[arch][text] =
                amd_rig_compile(&(struct amd_text){texts[text], archs[arch], NULL});
}

int main(void)
{
    Suite *suite = suite_create("amd_kernels");
    TCase *tcase = tcase_create("kernels");
    tcase_set_timeout(tcase, 120);
    tcase_add_unchecked_fixture(tcase, compile_all, NULL);
    tcase_add_loop_test(tcase, test_hash_and_map, 0, 2 * SEEDS);
    tcase_add_loop_test(tcase, test_order, 0, 2 * SEEDS);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
