/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/26_set_occupancy.h"
#include "kernels/27_top_rows.h"
#include "tests/oracle/brick_sets.h"
#include "tests/oracle/cases.h"

#include <math.h>
#include <string.h>

void vx_set_occupancy_ref(const void *args, enum vx_number type);

/* The most sets of one launch, and the sizes of those that they are made from. */
#define SETS_MAX 7
static const i64 sizes[] = {700, 1, 33, 2049, 150};

/* KEEP, the usual one, and others. */
static const i32 strides[][3] = {{2, 2, 2}, {1, 1, 1}, {2, 1, 2}, {3, 2, 1},
                                 {1, 5, 3}, {4, 4, 1}, {1, 1, 64}};

static i32 parts_of(const i32 stride[3])
{
    return stride[0] * stride[1] * stride[2];
}

/* Replaces about one number in 25 by one that has a bit pattern of its own: a NaN of
 * either sign, an infinity, a zero of either sign. */
static void mix(struct vx_rig *rig, void *numbers, enum vx_number type, i64 count,
                bool nans)
{
    const f64 odd[] = {nans ? (f64)NAN : 1,  INFINITY, -INFINITY, 0, -0.0,
                       nans ? -(f64)NAN : -1};
    for (i64 i = vx_rig_below(rig, 50); i < count; i += 1 + vx_rig_below(rig, 50))
        vx_number_ref_write(numbers, type, i, odd[vx_rig_below(rig, 6)]);
}

static void *logits_make(struct vx_rig *rig, enum vx_number type, i64 count, bool nans)
{
    const size_t bytes = (size_t)count * (size_t)vx_number_bytes(type);
    void *logits = vx_rig_take(rig, bytes + 16);
    memcpy(logits, vx_rig_reals(rig, type, count, 1), bytes);
    mix(rig, logits, type, count, nans);
    return logits;
}

/* --- 26 --- */

struct occupancy_case {
    struct vx_occupancy_set sets[SETS_MAX];
    struct vx_brick_set full[SETS_MAX]; /* with room for all */
    i32 to[SETS_MAX];
    i32 count, turn;
    u64 seed;
};

/* Room for what follows from the logits, or a little less, or hardly any. */
static i64 room_of(i64 bricks, i32 turn)
{
    const i64 rooms[] = {bricks + 9, bricks, bricks - 1, bricks / 9};
    return rooms[turn % 4] < 1 ? 1 : rooms[turn % 4];
}

static void set_make(struct vx_rig *rig, struct occupancy_case *it, i32 s,
                     enum vx_number type)
{
    struct vx_occupancy_set *set = &it->sets[s];
    const i32 turn = it->turn + s;
    const i32 *stride = strides[(turn * 3) % (i32)VX_COUNT(strides)];
    struct vx_cloud cloud;
    vx_cloud_make(rig, (enum vx_cloud_kind)(turn % VX_CLOUD_KINDS), sizes[turn % 5],
                  &cloud);
    *set = (struct vx_occupancy_set){
        .n = turn % 6 == 5 ? cloud.n / 2 : cloud.n,
        .from = vx_oracle_set_source(rig, &cloud, it->seed),
        .cp = vx_channels_padded(parts_of(stride) + (turn % 3 == 2 ? 16 : 0)),
        .blocks = 1 + (u32)vx_rig_below(rig, 3)};
    memcpy(set->stride, stride, sizeof set->stride);
    set->logits = logits_make(rig, type, cloud.n * set->cp, turn % 2);
    if (parts_of(stride) == 1 && turn % 4 > 1) {
        u32 *kept = vx_rig_take(rig, (size_t)cloud.n * sizeof *kept);
        for (i64 i = 0; i < cloud.n; i++) kept[i] = (u32)vx_rig_below(rig, 2);
        set->kept = kept;
    }
    it->full[s] = vx_oracle_set_make(rig, cloud.n * parts_of(stride));
    struct vx_occupancy_set all = *set;
    all.to = it->full[s];
    vx_set_occupancy_ref(
        &(struct vx_set_occupancy_args){.count = 1, .sets = &all, .seed = it->seed},
        type);
    set->to = vx_oracle_set_make(rig, room_of(it->full[s].counts->bricks, turn));
}

static void set_add(struct vx_trial *trial, struct occupancy_case *it, i32 s,
                    enum vx_number type)
{
    struct vx_occupancy_set *set = &it->sets[s];
    const i64 rows = set->from.counts->rows;
    vx_oracle_set_fields(trial, &set->from, false);
    it->to[s] = vx_oracle_set_fields(trial, &set->to, true);
    vx_trial_in(trial, &set->logits, set->logits,
                (size_t)(rows * set->cp) * (size_t)vx_number_bytes(type));
    if (set->kept)
        vx_trial_in(trial, &set->kept, set->kept, (size_t)rows * sizeof *set->kept);
}

static void occupancy_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                           i32 count, i32 turn)
{
    struct occupancy_case it = {.count = count, .turn = turn, .seed = vx_rig_random(rig)};
    struct vx_set_occupancy_args args = {
        .count = count, .sets = it.sets, .seed = it.seed, .blocks = 3};
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "%d sets from %d", count, turn);
    vx_trial_inside(&trial, vx_trial_in(&trial, &args.sets, it.sets,
                                        (size_t)count * sizeof *it.sets));
    for (i32 s = 0; s < count; s++) {
        set_make(rig, &it, s, kernel->type);
        set_add(&trial, &it, s, kernel->type);
    }
    if (!vx_trial_run(rig, &trial)) return;
    for (i32 s = 0; s < count; s++) {
        const struct vx_brick_set *to = &it.sets[s].to;
        const struct vx_brick_set back = vx_oracle_set_back(&trial, it.to[s], to);
        const struct vx_oracle_expected expected = {to, &it.full[s], it.seed};
        if (!vx_oracle_set_check(rig, &trial, &back, &expected)) continue;
        if (back.counts->live != it.full[s].counts->live)
            vx_oracle_wrong(rig, &trial, "another number of voxels", back.counts->live);
        if (back.counts->bad != it.full[s].counts->bad)
            vx_oracle_wrong(rig, &trial, "another voxel whose logit is no number", s);
    }
}

/* The sets as set_occupancy leaves them. */
static void fault_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel, i32 count,
                       i32 turn)
{
    struct occupancy_case it = {.count = count, .turn = turn, .seed = vx_rig_random(rig)};
    struct vx_set_occupancy_args args = {
        .count = count, .sets = it.sets, .seed = it.seed, .blocks = 3};
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "%d sets from %d", count, turn);
    vx_trial_inside(&trial, vx_trial_in(&trial, &args.sets, it.sets,
                                        (size_t)count * sizeof *it.sets));
    for (i32 s = 0; s < count; s++) {
        set_make(rig, &it, s, kernel->type);
        *it.sets[s].to.counts = *it.full[s].counts;
        it.sets[s].to.counts->bad_child = 0x5555;
        set_add(&trial, &it, s, kernel->type);
    }
    if (!vx_trial_run(rig, &trial)) return;
    for (i32 s = 0; s < count; s++) {
        const struct vx_brick_set *to = &it.sets[s].to;
        const struct vx_brick_set back = vx_oracle_set_back(&trial, it.to[s], to);
        if (memcmp(back.counts, to->counts, sizeof *back.counts))
            vx_oracle_wrong(rig, &trial, "another child", back.counts->bad_child);
    }
}

/* --- 27 --- */

static void top_keys_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel, i64 n)
{
    const i32 cp = n % 2 ? 16 : 32;
    struct vx_top_args args = {.n = n, .cp = cp, .top = 3};
    struct vx_trial trial;
    u64 *keys = vx_rig_take(rig, (size_t)n * sizeof *keys + 8);
    for (i64 i = 0; i < n; i++) keys[i] = vx_rig_random(rig) >> 1;
    void *logits = logits_make(rig, kernel->type, n * cp, false);
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "N=%lld", (long long)n);
    vx_trial_in(&trial, &args.logits, logits,
                (size_t)(n * cp) * (size_t)vx_number_bytes(kernel->type));
    vx_trial_in(&trial, &args.keys, keys, (size_t)n * sizeof *keys);
    vx_trial_out(rig, &trial, &args.words, (size_t)n * sizeof(u64));
    vx_trial_run(rig, &trial);
}

static void top_mark_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel, i64 n)
{
    struct vx_top_args args = {.n = n, .top = 1 + (i32)vx_rig_below(rig, 40)};
    i32 *rows = vx_rig_take(rig, (size_t)n * sizeof *rows + 4);
    i32 *starts = vx_rig_take(rig, (size_t)(n + 1) * sizeof *starts);
    i32 count = 0;
    struct vx_trial trial;
    for (i64 i = 0; i < n; i++) {
        const i64 with = vx_rig_below(rig, i + 1);
        rows[i] = rows[with];
        rows[with] = (i32)i;
        if (!i || !vx_rig_below(rig, n > 500 ? 50 : 3)) starts[count++] = (i32)i;
    }
    starts[count] = (i32)n;
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "N=%lld, %d samples, top %d", (long long)n, count, args.top);
    vx_trial_in(&trial, &args.rows, rows, (size_t)n * sizeof *rows);
    vx_trial_in(&trial, &args.starts, starts, (size_t)(count + 1) * sizeof *starts);
    vx_trial_in(&trial, &args.count, &count, sizeof count);
    vx_trial_out(rig, &trial, &args.kept, (size_t)n * sizeof(u32));
    vx_trial_run(rig, &trial);
}

static void top_cases(struct vx_rig *rig)
{
    static const i64 rows[] = {1, 255, 257, 1000, 20000};
    const size_t count = rig->size == VX_RIG_SMALL ? 3 : VX_COUNT(rows);
    const struct vx_jit_wanted *kernel = NULL;
    for (size_t r = 0; r < count; r++) {
        while ((kernel = vx_rig_next(rig, "top_keys", kernel)))
            top_keys_case(rig, kernel, rows[r]);
        while ((kernel = vx_rig_next(rig, "top_mark", kernel)))
            top_mark_case(rig, kernel, rows[r]);
        vx_rig_reset(rig);
    }
}

void vx_cases_occupancy(struct vx_rig *rig)
{
    const i32 turns = rig->size == VX_RIG_SMALL ? 4 : rig->size == VX_RIG_FAKE ? 12 : 60;
    const struct vx_jit_wanted *kernel = NULL;
    for (i32 turn = 0; turn < turns; turn++) {
        while ((kernel = vx_rig_next(rig, "set_occupancy", kernel)))
            occupancy_case(rig, kernel, 1 + turn * 5 % SETS_MAX, turn);
        while ((kernel = vx_rig_next(rig, "occupancy_fault", kernel)))
            fault_case(rig, kernel, 1 + turn * 5 % SETS_MAX, turn);
        vx_rig_reset(rig);
    }
    top_cases(rig);
}
