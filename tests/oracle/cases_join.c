/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/06_conv_masked.h"
#include "kernels/15_geometry_join.h"
#include "tests/oracle/cases.h"

#include <string.h>

/* More pieces than two warps have threads. */
#define PIECES_MAX 70
/* Words behind those that are compared: as many as the kernel reads at a time. */
#define BEYOND 4

/* The pieces of one launch and how its blocks are divided among them; some pieces are
 * empty and have no block. */
struct launch {
    i32 count;
    u32 blocks;
    i64 all; /* sum of n */
    i64 n[PIECES_MAX];
    struct vx_join_share *shares;
};

static void launch_make(struct vx_rig *rig, i32 count, i32 turn, struct launch *launch)
{
    static const i64 sizes[] = {1, 100, 33, 848, 7, 2500, 255, 3, 1024, 1025};
    *launch = (struct launch){.count = count};
    launch->shares = vx_rig_take(rig, (size_t)count * sizeof *launch->shares);
    for (i32 p = 0; p < count; p++) {
        i64 n = sizes[(p * 3 + turn) % 10];
        if (p % 11 == 5) n = 0;
        if (count == 2 && rig->size == VX_RIG_FULL) n = 300000 + p;
        launch->n[p] = n;
        launch->all += n;
        /* Too few blocks, so that a block has several parts; enough; too many. */
        launch->shares[p].first = launch->blocks;
        launch->shares[p].blocks = n ? 1 + (u32)vx_rig_below(rig, 5) : 0;
        launch->blocks += launch->shares[p].blocks;
    }
}

static void trial_shares(struct vx_trial *trial, const void *pointer,
                         const struct launch *launch)
{
    vx_trial_in(trial, pointer, launch->shares,
                (size_t)launch->count * sizeof *launch->shares);
}

/* --- rows and maps --- */

static i32 *some_rows(struct vx_rig *rig, i64 count, i64 end, bool holes)
{
    i32 *rows = vx_rig_take(rig, (size_t)count * sizeof *rows);
    for (i64 i = 0; i < count; i++)
        rows[i] = holes && vx_rig_random(rig) & 1 ? -1 : (i32)vx_rig_below(rig, end);
    return rows;
}

static void rows_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel, i32 count,
                      i32 turn)
{
    struct launch launch;
    struct vx_trial trial;
    launch_make(rig, count, turn, &launch);
    struct vx_join_rows_args args = {.count = count, .blocks = launch.blocks};
    struct vx_join_rows_piece *pieces = vx_rig_take(rig, (size_t)count * sizeof *pieces);
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "%d pieces, turn %d", count, turn);
    trial_shares(&trial, &args.shares, &launch);
    const struct vx_field *has =
        vx_trial_in(&trial, &args.pieces, pieces, (size_t)count * sizeof *pieces);
    vx_trial_out(rig, &trial, &args.rows, (size_t)launch.all * sizeof(i32));
    vx_trial_inside(&trial, has);
    i64 base = 0;
    for (i32 p = 0; p < count; p++) {
        const i64 n = launch.n[p];
        pieces[p] = (struct vx_join_rows_piece){.n = n, .base = base};
        vx_trial_in(&trial, &pieces[p].rows, some_rows(rig, n, n, false),
                    (size_t)n * sizeof(i32));
        base += n;
    }
    vx_trial_run(rig, &trial);
}

static void map_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel, i32 count,
                     i32 turn)
{
    static const i32 offsets[] = {27, 1, 9, 125, 343, 32, 33};
    struct launch launch;
    struct vx_trial trial;
    launch_make(rig, count, turn, &launch);
    const i32 v = launch.all > 100000 ? 27 : offsets[turn % 7];
    struct vx_join_map_args args = {.count = count,
                                    .blocks = launch.blocks,
                                    .nbr_stride = vx_nbr_stride(v),
                                    .words = vx_mask_words(v)};
    const size_t row = (size_t)args.nbr_stride * sizeof(i32);
    const size_t mask = (size_t)args.words * sizeof(u32);
    struct vx_join_map_piece *pieces = vx_rig_take(rig, (size_t)count * sizeof *pieces);
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "%d pieces V=%d, turn %d", count, v, turn);
    trial_shares(&trial, &args.shares, &launch);
    const struct vx_field *has =
        vx_trial_in(&trial, &args.pieces, pieces, (size_t)count * sizeof *pieces);
    vx_trial_out(rig, &trial, &args.nbr, (size_t)launch.all * row);
    vx_trial_out(rig, &trial, &args.masks, (size_t)launch.all * mask);
    vx_trial_inside(&trial, has);
    i64 base = 0;
    for (i32 p = 0; p < count; p++) {
        const i64 n = launch.n[p];
        pieces[p] =
            (struct vx_join_map_piece){.n = n, .base = base, .raise = base * (1 + p % 3)};
        vx_trial_in(&trial, &pieces[p].nbr, some_rows(rig, n * args.nbr_stride, n, true),
                    (size_t)n * row);
        vx_trial_in(&trial, &pieces[p].masks,
                    some_rows(rig, n * args.words, INT32_MAX, true), (size_t)n * mask);
        base += n;
    }
    vx_trial_run(rig, &trial);
}

/* --- compared --- */

/* Every third pair is the same; the others differ in one bit of one word. */
static void differ_fields(struct vx_rig *rig, struct vx_trial *trial,
                          struct vx_words_pair *pair, i32 turn)
{
    const size_t bytes = (size_t)(pair->n + BEYOND) * sizeof(u32);
    u32 *a = vx_rig_take(rig, bytes), *b = vx_rig_take(rig, bytes);
    for (i64 i = 0; i < pair->n; i++) a[i] = b[i] = (u32)vx_rig_random(rig);
    for (i64 i = 0; i < BEYOND; i++) b[pair->n + i] = 1; /* not to be compared */
    i64 at = turn % 4 == 1   ? 0
             : turn % 4 == 2 ? pair->n - 1
                             : pair->n / 2 + vx_rig_below(rig, (pair->n + 1) / 2);
    if (turn % 3) b[at] ^= 1u << vx_rig_below(rig, 32);
    /* Both aligned to a line, or one of them a few bytes beyond. */
    vx_trial_in(trial, &pair->a, a, bytes)->shift = turn % 5 == 1 ? 4 : 0;
    vx_trial_in(trial, &pair->b, b, bytes)->shift = turn % 5 == 2 ? 8 : 0;
}

static void differ_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel, i32 count,
                        i32 turn)
{
    struct launch launch;
    struct vx_trial trial;
    /* A pair adds three fields. */
    if (count > VX_TRIAL_FIELDS_MAX / 4) count = VX_TRIAL_FIELDS_MAX / 4;
    launch_make(rig, count, turn, &launch);
    for (i32 p = 0; p < count; p++) /* there are no empty pairs */
        if (!launch.n[p]) launch.n[p] = 17;
    launch.blocks = 0;
    for (i32 p = 0; p < count; p++) {
        launch.shares[p].first = launch.blocks;
        if (!launch.shares[p].blocks) launch.shares[p].blocks = 2;
        launch.blocks += launch.shares[p].blocks;
    }
    struct vx_words_differ_args args = {.count = count, .blocks = launch.blocks};
    struct vx_words_pair *pairs = vx_rig_take(rig, (size_t)count * sizeof *pairs);
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "%d pairs, turn %d", count, turn);
    trial_shares(&trial, &args.shares, &launch);
    /* After a read, the tally is zero again. */
    vx_trial_inside(
        &trial, vx_trial_in(&trial, &args.pairs, pairs, (size_t)count * sizeof *pairs));
    for (i32 p = 0; p < count; p++) {
        pairs[p] = (struct vx_words_pair){.n = launch.n[p]};
        differ_fields(rig, &trial, &pairs[p], turn + p);
        vx_trial_out(rig, &trial, &pairs[p].differs, sizeof(u32));
    }
    vx_trial_run(rig, &trial);
}

/* --- reported --- */

/* The pairs of a piece's maps: some count none, and a sum may pass 2^32. */
static void pairs_fields(struct vx_rig *rig, struct vx_trial *trial, i64 maps,
                         const u64 **pairs)
{
    for (i64 m = 0; m < maps; m++) {
        u64 *one = vx_rig_take(rig, sizeof *one);
        *one = vx_rig_random(rig) >> 8;
        if (vx_rig_below(rig, 4)) vx_trial_in(trial, &pairs[m], one, sizeof *one);
    }
}

static void results_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                         i32 count, i32 turn)
{
    /* One map, none, few, and more than threads add up; with many for a few pieces. */
    static const i64 maps_of[] = {1, 0, 2, 33, 3, 32, 70};
    const i64 maps = maps_of[turn % 7];
    const i32 most = (VX_TRIAL_FIELDS_MAX - 4) / (i32)(2 + maps);
    struct vx_trial trial;
    if (count > most) count = most;
    struct vx_piece_results_args args = {.count = count, .maps = maps};
    struct vx_piece_places *places = vx_rig_take(rig, (size_t)count * sizeof *places);
    const size_t pairs_bytes = (size_t)(count * maps) * sizeof(u64 *);
    const u64 **pairs = vx_rig_take(rig, pairs_bytes);
    memset(pairs, 0, pairs_bytes);
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "%d pieces of %lld maps, turn %d", count, (long long)maps,
                   turn);
    const struct vx_field *has =
        vx_trial_in(&trial, &args.places, places, (size_t)count * sizeof *places);
    const struct vx_field *lists = vx_trial_in(&trial, &args.pairs, pairs, pairs_bytes);
    vx_trial_out(rig, &trial, &args.results,
                 (size_t)count * sizeof(struct vx_piece_result));
    if (maps && turn % 3) /* also one by one */
        vx_trial_out(rig, &trial, &args.each, (size_t)(count * maps) * sizeof(u64));
    for (i32 p = 0; p < count; p++) {
        vx_trial_inside(&trial, lists);
        pairs_fields(rig, &trial, maps, pairs + p * maps);
        vx_trial_inside(&trial, has);
        if ((p + turn) % 4 != 1)
            vx_trial_in(&trial, &places[p].fault, some_rows(rig, 2, INT32_MAX, false), 8);
        if ((p + turn) % 4 != 2)
            vx_trial_in(&trial, &places[p].differs, some_rows(rig, 1, INT32_MAX, false),
                        4);
    }
    vx_trial_run(rig, &trial);
}

void vx_cases_join(struct vx_rig *rig)
{
    static const struct {
        const char *name;
        void (*run)(struct vx_rig *rig, const struct vx_jit_wanted *kernel, i32 count,
                    i32 turn);
    } kernels[] = {
        {"join_rows", rows_case},
        {"join_map", map_case},
        {"words_differ", differ_case},
        {"piece_results", results_case},
    };
    static const i32 counts[] = {1, 5, 0, 2, 33, 64, 31, 32, 65, PIECES_MAX};
    const size_t sizes = rig->size == VX_RIG_SMALL ? 3 : VX_COUNT(counts);
    const struct vx_jit_wanted *kernel = NULL;
    for (size_t k = 0; k < VX_COUNT(kernels); k++)
        while ((kernel = vx_rig_next(rig, kernels[k].name, kernel)))
            for (size_t c = 0; c < sizes; c++)
                for (i32 turn = 0; turn < 7; turn++) {
                    kernels[k].run(rig, kernel, counts[c], turn);
                    vx_rig_reset(rig);
                }
}
