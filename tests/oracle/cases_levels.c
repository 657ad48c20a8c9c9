/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/22_level_map.h"
#include "tests/oracle/brick_sets.h"
#include "tests/oracle/cases.h"
#include "tests/oracle/clouds.h"

#include <string.h>

/* The blocks of a launch: fewer than the bricks of the larger clouds need. */
#define BLOCKS 3
/* The most sets, or chains, of one launch. */
#define MANY_MAX  9
#define CHAIN_MAX 2

static i32 bits_of(u64 mask)
{
    return __builtin_popcountll(mask);
}

/* Bases divide 0 .. rows into as many ranges as there are bricks. */
static bool check_bases(struct vx_rig *rig, const struct vx_trial *trial,
                        const struct vx_brick_set *back)
{
    i64 rows = 0;
    for (u32 b = 0; b < back->counts->bricks; b++)
        rows += bits_of(back->slots[back->list[b]].mask);
    if (rows != back->counts->rows)
        return vx_oracle_wrong(rig, trial, "another number of rows", back->counts->rows);
    u8 *begins = vx_rig_take(rig, (size_t)rows);
    for (u32 b = 0; b < back->counts->bricks; b++) {
        i64 base = back->base[back->list[b]];
        i32 count = bits_of(back->slots[back->list[b]].mask);
        if (base < 0 || base + count > rows)
            return vx_oracle_wrong(rig, trial, "rows out of range", b);
        for (i32 r = 0; r < count; r++)
            if (begins[base + r]++)
                return vx_oracle_wrong(rig, trial, "a row of two bricks", b);
    }
    return true;
}

/* --- rules --- */

static const struct vx_set_derive_args rules[] = {
    {.rule = VX_DERIVE_FLOOR, .stride = {2, 2, 2}},
    {.rule = VX_DERIVE_SPCONV,
     .kernel = {3, 3, 3},
     .dilation = {1, 1, 1},
     .stride = {2, 2, 2},
     .padding = {1, 1, 1},
     .shape = {3, 1 << 20, 6}},
    {.rule = VX_DERIVE_EXPAND,
     .kernel = {2, 2, 2},
     .dilation = {1, 1, 1},
     .stride = {2, 2, 2}},
    {.rule = VX_DERIVE_FLOOR, .stride = {1, 4, 2}},
    {.rule = VX_DERIVE_FLOOR, .stride = {3, 5, 1}},
    {.rule = VX_DERIVE_FLOOR, .stride = {8, 64, 16}},
    {.rule = VX_DERIVE_SPCONV,
     .kernel = {3, 1, 1},
     .dilation = {1, 1, 1},
     .stride = {2, 1, 1},
     .shape = {1 << 17, 1 << 17, 5}},
    {.rule = VX_DERIVE_SPCONV,
     .kernel = {5, 3, 2},
     .dilation = {1, 7, 40},
     .stride = {1, 3, 2},
     .padding = {2, 7, 11},
     .shape = {3, 90, 1 << 20}},
    {.rule = VX_DERIVE_EXPAND,
     .kernel = {3, 1, 2},
     .dilation = {1, 1, 600},
     .stride = {1, 3, 2},
     .padding = {1, 0, 0}},
    /* Each axis apart in another way: voxels, none, both. */
    {.rule = VX_DERIVE_EXPAND,
     .kernel = {1, 2, 2},
     .dilation = {1, 1, 600},
     .stride = {64, 7, 64},
     .padding = {0, 3, 5}},
    {.rule = VX_DERIVE_SPCONV,
     .kernel = {3, 3, 3},
     .dilation = {1, 1, 1},
     .stride = {2, 2, 2},
     .padding = {1, 0, 1},
     .shape = {1 << 20, 19, 1 << 20}},
    {.rule = VX_DERIVE_SAMPLES, .stride = {1, 1, 1}},
};

static struct vx_set_derive_args derive_make(size_t rule, const struct vx_brick_set *from,
                                             u64 seed)
{
    struct vx_set_derive_args args = rules[rule];
    args.from = *from;
    args.seed = seed;
    args.blocks = BLOCKS;
    bool each = args.rule == VX_DERIVE_FLOOR || args.rule == VX_DERIVE_SAMPLES;
    for (int axis = 0; axis < 3 && each; axis++)
        args.kernel[axis] = args.dilation[axis] = 1;
    vx_set_derive_plan(&args);
    return args;
}

/* The set with room for all, by the references. */
static struct vx_brick_set full_make(struct vx_rig *rig,
                                     const struct vx_set_derive_args *args)
{
    const i32 *k = args->kernel;
    struct vx_set_derive_args all = *args;
    all.to =
        vx_oracle_set_make(rig, args->from.counts->rows * (i64)(k[0] * k[1] * k[2]) + 1);
    vx_set_derive_many_ref(&(struct vx_set_derive_many_args){1, 1, &all});
    return all.to;
}

/* Room for a set whose rule names so many: enough in turn 0, then just enough, one too
 * little, and much too little. */
static i64 room_of(i64 count, i32 turn)
{
    i64 room = turn == 0   ? count + 7
               : turn == 1 ? count
               : turn == 2 ? count - 1
                           : count / 9;
    return room < 1 ? 1 : room;
}

static void derive_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                        const struct vx_cloud *cloud, size_t rule, i32 turn)
{
    const u64 seed = vx_rig_random(rig);
    struct vx_brick_set from = vx_oracle_set_source(rig, cloud, seed);
    struct vx_set_derive_args args = derive_make(rule, &from, seed);
    const struct vx_brick_set full = full_make(rig, &args);
    struct vx_trial trial;
    args.to = vx_oracle_set_make(rig, room_of(full.counts->bricks, turn));
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "%s N=%lld rule %zu room %lld", cloud->name,
                   (long long)cloud->n, rule, (long long)args.to.rows_max);
    vx_oracle_set_fields(&trial, &args.from, false);
    const i32 to = vx_oracle_set_fields(&trial, &args.to, true);
    if (!vx_trial_run(rig, &trial)) return;
    const struct vx_brick_set back = vx_oracle_set_back(&trial, to, &args.to);
    vx_oracle_set_check(rig, &trial, &back,
                        &(struct vx_oracle_expected){&args.to, &full, seed});
}

/* Chains of two sets, the second made from the first. */
static void derive_many_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                             i32 count, i32 turn)
{
    const u64 seed = vx_rig_random(rig);
    struct vx_set_derive_args sets[MANY_MAX * CHAIN_MAX];
    struct vx_set_derive_many_args args = {count, CHAIN_MAX, NULL};
    struct vx_brick_set full[MANY_MAX * CHAIN_MAX];
    i32 to[MANY_MAX * CHAIN_MAX];
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "%d chains from %d", count, turn);
    const i32 all = count * CHAIN_MAX;
    vx_trial_inside(&trial,
                    vx_trial_in(&trial, &args.args, sets, (size_t)all * sizeof *sets));
    for (i32 s = 0; s < all; s++) {
        struct vx_cloud cloud;
        struct vx_brick_set from;
        static const i64 sizes[] = {1, 700, 33, 150};
        const bool second = s % CHAIN_MAX;
        if (!second)
            vx_cloud_make(rig, (enum vx_cloud_kind)((turn + s) % VX_CLOUD_KINDS),
                          sizes[(turn + s / 2) % 4], &cloud);
        from = second ? full[s - 1] : vx_oracle_set_source(rig, &cloud, seed);
        sets[s] = derive_make((size_t)(turn + s * 3) % (second ? 2 : 8), &from, seed);
        full[s] = full_make(rig, &sets[s]);
        /* Only the last set of a chain may be too large: what is made from one that lacks
         * voxels is not known. */
        sets[s].to = vx_oracle_set_make(
            rig, room_of(full[s].counts->rows, second ? (turn + s) % 4 : 1));
        vx_rig_poison(sets[s].to.slots, sets[s].to.slots_count * sizeof *full->slots);
        vx_rig_poison(sets[s].to.counts, sizeof *full->counts);
        if (second) sets[s].from = sets[s - 1].to;
        if (!second) vx_oracle_set_fields(&trial, &sets[s].from, false);
        to[s] = vx_oracle_set_fields(&trial, &sets[s].to, true);
        if (!second) continue;
        vx_trial_same(&trial, &sets[s].from.slots, &trial.fields[to[s - 1]]);
        vx_trial_same(&trial, &sets[s].from.counts, &trial.fields[to[s - 1] + 1]);
        vx_trial_same(&trial, &sets[s].from.base, &trial.fields[to[s - 1] + 2]);
        vx_trial_same(&trial, &sets[s].from.list, &trial.fields[to[s - 1] + 3]);
    }
    if (!vx_trial_run(rig, &trial)) return;
    for (i32 s = 0; s < all; s++) {
        const struct vx_brick_set back = vx_oracle_set_back(&trial, to[s], &sets[s].to);
        if (vx_oracle_set_check(
                rig, &trial, &back,
                &(struct vx_oracle_expected){&sets[s].to, &full[s], seed}))
            check_bases(rig, &trial, &back);
    }
}

/* --- numbers and keys --- */

static void number_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel, i32 count,
                        i32 turn)
{
    struct vx_set_number_args args = {.count = count, .blocks = BLOCKS};
    i32 fields[VX_SET_NUMBER_MAX];
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "%d sets from %d", count, turn);
    for (i32 s = 0; s < count; s++) {
        static const i64 sizes[] = {1, 1000, 33, 4000, 511};
        struct vx_cloud cloud;
        vx_cloud_make(rig, (enum vx_cloud_kind)((turn + s) % VX_CLOUD_KINDS),
                      sizes[(turn + s) % 5], &cloud);
        struct vx_brick_set set = vx_oracle_set_source(rig, &cloud, 0);
        /* Room for all rows, or not: never less than for the bricks. */
        if (s % 3 == 1 && set.counts->bricks < set.counts->rows)
            set.rows_max = set.counts->rows - 1;
        vx_rig_poison(set.base, set.slots_count * sizeof *set.base);
        set.counts->rows = 0;
        args.sets[s] = set;
        fields[s] = vx_oracle_set_fields(&trial, &args.sets[s], true);
    }
    if (!vx_trial_run(rig, &trial)) return;
    for (i32 s = 0; s < count; s++) {
        const struct vx_brick_set back =
            vx_oracle_set_back(&trial, fields[s], &args.sets[s]);
        if (vx_oracle_set_check(
                rig, &trial, &back,
                &(struct vx_oracle_expected){&args.sets[s], &args.sets[s], 0}))
            check_bases(rig, &trial, &back);
    }
}

/* Fewer rows of keys than the set has, as many, or more. */
static struct vx_set_coords_args coords_make(struct vx_rig *rig, i32 turn)
{
    static const i64 sizes[] = {1, 1000, 33, 32, 3000};
    struct vx_cloud cloud;
    vx_cloud_make(rig, (enum vx_cloud_kind)(turn % VX_CLOUD_KINDS), sizes[turn % 5],
                  &cloud);
    struct vx_set_coords_args args = {.n = cloud.n,
                                      .blocks = 1 + (u32)vx_rig_below(rig, BLOCKS),
                                      .set = vx_oracle_set_source(rig, &cloud, 0)};
    if (turn % 3 == 1) args.n += 700;
    if (turn % 3 == 2) args.n /= 2;
    return args;
}

static void coords_fields(struct vx_rig *rig, struct vx_trial *trial,
                          struct vx_set_coords_args *args)
{
    vx_oracle_set_fields(trial, &args->set, false);
    vx_trial_out(rig, trial, &args->keys, (size_t)args->n * sizeof(u64));
}

static void coords_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel, i32 turn)
{
    struct vx_set_coords_args args = coords_make(rig, turn);
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "turn %d, %lld rows", turn, (long long)args.n);
    coords_fields(rig, &trial, &args);
    vx_trial_run(rig, &trial);
}

static void coords_many_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                             i32 count, i32 turn)
{
    struct vx_set_coords_args sets[MANY_MAX];
    struct vx_set_coords_many_args args = {.count = count, .blocks = BLOCKS};
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "%d sets from %d", count, turn);
    vx_trial_inside(&trial,
                    vx_trial_in(&trial, &args.sets, sets, (size_t)count * sizeof *sets));
    for (i32 s = 0; s < count; s++) {
        sets[s] = coords_make(rig, turn + s);
        coords_fields(rig, &trial, &sets[s]);
    }
    vx_trial_run(rig, &trial);
}

/* --- all --- */

static void derive_cases(struct vx_rig *rig, const struct vx_jit_wanted *kernel)
{
    static const i64 sizes[] = {1, 33, 500, 2049, 10007};
    const size_t count = rig->size == VX_RIG_FULL ? 5 : rig->size == VX_RIG_FAKE ? 3 : 2;
    struct vx_cloud cloud;
    for (size_t rule = 0; rule < VX_COUNT(rules); rule++)
        for (i32 kind = 0; kind < VX_CLOUD_KINDS; kind++)
            for (size_t s = 0; s < count; s++)
                for (i32 turn = 0; turn < 4; turn++) {
                    if (s && (rule + (size_t)kind + s + (size_t)turn) % 3) continue;
                    vx_cloud_make(rig, (enum vx_cloud_kind)kind, sizes[s], &cloud);
                    derive_case(rig, kernel, &cloud, rule, turn);
                    vx_rig_reset(rig);
                }
}

void vx_cases_levels(struct vx_rig *rig)
{
    const i32 turns = rig->size == VX_RIG_SMALL ? 4 : 20;
    const struct vx_jit_wanted *kernel = NULL;
    while ((kernel = vx_rig_next(rig, "set_derive", kernel))) derive_cases(rig, kernel);
    for (i32 turn = 0; turn < turns; turn++) {
        const i32 count = turn == 1 ? 0 : 1 + turn * 5 % MANY_MAX;
        while ((kernel = vx_rig_next(rig, "set_derive_many", kernel)))
            derive_many_case(rig, kernel, count < 8 ? count : 7, turn);
        while ((kernel = vx_rig_next(rig, "set_number", kernel)))
            number_case(rig, kernel, turn == 3 ? VX_SET_NUMBER_MAX : count, turn);
        while ((kernel = vx_rig_next(rig, "set_coords", kernel)))
            coords_case(rig, kernel, turn);
        while ((kernel = vx_rig_next(rig, "set_coords_many", kernel)))
            coords_many_case(rig, kernel, count, turn);
        vx_rig_reset(rig);
    }
}
