/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tune/pick.h"

#include "engine/base/process/check.h"

#include <stdio.h>
#include <string.h>

void vx_pick_init(struct vx_pick *pick, const struct vx_jit *jit,
                  const struct vx_caps *caps, const char *device)
{
    *pick = (struct vx_pick){.caps = caps, .algorithm = VX_CONV_AUTO};
    snprintf(pick->device, sizeof pick->device, "%s", device);
    for (int i = VX_CONV_AUTO + 1; i < VX_CONV_ALGORITHMS_COUNT; i++) {
        const struct vx_kernel_spec *spec = vx_conv_spec((enum vx_conv_algorithm)i);
        char hash[65];
        if (!spec) continue;
        vx_jit_source_hash(jit, spec, hash);
        snprintf(pick->hashes[i], sizeof pick->hashes[i], "%.12s", hash);
    }
}

bool vx_pick_cheapest(const struct vx_conv_problem *problem,
                      enum vx_conv_algorithm algorithm, const struct vx_caps *caps,
                      struct vx_conv_choice *choice)
{
    const struct vx_kernel_spec *spec = vx_conv_spec(algorithm);
    f64 least = 0;
    bool found = false;
    for (i32 tile = 0; spec && tile < spec->tiles_count; tile++) {
        struct vx_conv_choice candidate = {algorithm, tile};
        if (!vx_conv_fits(problem, &candidate, caps)) continue;
        f64 cost = vx_conv_cost(problem, &candidate, caps);
        if (found && cost >= least) continue;
        found = true;
        least = cost;
        *choice = candidate;
    }
    return found;
}

/* True when the pick may run the algorithm for this problem. */
static bool pick_may(const struct vx_conv_problem *problem,
                     enum vx_conv_algorithm algorithm, enum vx_conv_algorithm pinned)
{
    return pinned == VX_CONV_AUTO ? vx_conv_exact(problem, algorithm)
                                  : algorithm == pinned;
}

/* The tile of a spec with these values; -1 = it is no longer in the search space. */
static i32 pick_tile(const struct vx_kernel_spec *spec, const struct vx_tile *tile)
{
    size_t bytes = (size_t)spec->macros_count * sizeof tile->values[0];
    if (!spec->tiles) return 0;
    for (i32 i = 0; i < spec->tiles_count; i++)
        if (!memcmp(spec->tiles[i].values, tile->values, bytes)) return i;
    return -1;
}

/* The fastest row of one size among the algorithms that may run; 0 = no such row. */
static i64 pick_row(const struct vx_pick *pick, const struct vx_conv_problem *problem,
                    const struct vx_tune_row *key, enum vx_conv_algorithm pinned,
                    struct vx_conv_choice *choice)
{
    i64 least = 0;
    for (int i = VX_CONV_AUTO + 1; i < VX_CONV_ALGORITHMS_COUNT; i++) {
        enum vx_conv_algorithm algorithm = (enum vx_conv_algorithm)i;
        if (!pick->hashes[i][0] || !pick_may(problem, algorithm, pinned)) continue;
        struct vx_tune_row wanted = *key;
        memcpy(wanted.hash, pick->hashes[i], sizeof wanted.hash);
        wanted.algorithm = algorithm;
        const struct vx_tune_row *row = vx_tune_table_find(pick->table, &wanted);
        if (!row || (least && row->ns >= least)) continue;
        struct vx_conv_choice found = {algorithm,
                                       pick_tile(vx_conv_spec(algorithm), &row->tile)};
        if (found.tile < 0 || !vx_conv_fits(problem, &found, pick->caps)) continue;
        least = row->ns;
        *choice = found;
    }
    return least;
}

/* The row of the nearest size, of the density that `key` has. */
static bool pick_near(const struct vx_pick *pick, const struct vx_conv_problem *problem,
                      struct vx_tune_row key, enum vx_conv_algorithm pinned,
                      struct vx_conv_choice *choice)
{
    const i32 size = key.size;
    for (i32 away = 0; away <= VX_SIZES_AWAY; away++)
        for (i32 sign = 1; sign >= -1; sign -= 2) {
            key.size = size + sign * away;
            if (key.size < 1 || !vx_size_is_near(size, key.size)) continue;
            if (pick_row(pick, problem, &key, pinned, choice)) return true;
        }
    return false;
}

/* The table, if it is of this device. */
static const struct vx_tune_table *table_of(const struct vx_pick *pick)
{
    if (!pick->table) return NULL;
    return strcmp(vx_tune_table_device(pick->table), pick->device) ? NULL : pick->table;
}

static bool pick_measured(const struct vx_pick *pick,
                          const struct vx_conv_problem *problem,
                          enum vx_conv_algorithm pinned, struct vx_conv_choice *choice)
{
    struct vx_tune_row key;
    if (!table_of(pick)) return false;
    vx_tune_row_make(problem, &key);
    if (pick_near(pick, problem, key, pinned, choice)) return true;
    if (key.density == VX_DENSITY_SURFACE) return false;
    key.density = VX_DENSITY_SURFACE;
    return pick_near(pick, problem, key, pinned, choice);
}

/* The row, on a surface, of the layer with as many channels in as this one has out: which tile is the
 * fastest depends on the channels out, the rows and the offsets, and little on the channels in. */
#define LIKE_TIMES 4 /* more or fewer channels in */
static bool pick_like(const struct vx_pick *pick, const struct vx_conv_problem *problem,
                      enum vx_conv_algorithm pinned, struct vx_conv_choice *choice)
{
    struct vx_tune_row key;
    const i32 ci = problem->ci, co = problem->co;
    if (!table_of(pick) || ci == co) return false;
    if (ci > LIKE_TIMES * co || co > LIKE_TIMES * ci) return false;
    vx_tune_row_make(problem, &key);
    key.ci = co;
    key.density = VX_DENSITY_SURFACE;
    return pick_near(pick, problem, key, pinned, choice);
}

static bool pick_modelled(const struct vx_pick *pick,
                          const struct vx_conv_problem *problem,
                          enum vx_conv_algorithm pinned, struct vx_conv_choice *choice)
{
    f64 least = 0;
    bool found = false;
    for (int i = VX_CONV_AUTO + 1; i < VX_CONV_ALGORITHMS_COUNT; i++) {
        struct vx_conv_choice candidate;
        enum vx_conv_algorithm algorithm = (enum vx_conv_algorithm)i;
        if (!pick_may(problem, algorithm, pinned)) continue;
        if (!vx_pick_cheapest(problem, algorithm, pick->caps, &candidate)) continue;
        f64 cost = vx_conv_cost(problem, &candidate, pick->caps);
        if (found && cost >= least) continue;
        found = true;
        least = cost;
        *choice = candidate;
    }
    return found;
}

/* True when a choice was made; *measured: it came from a row of the table. */
static bool pick_try(const struct vx_pick *pick, const struct vx_conv_problem *problem,
                     struct vx_conv_choice *choice, bool *measured)
{
    const enum vx_conv_algorithm wanted[] = {pick->algorithm, VX_CONV_AUTO};
    struct vx_conv_problem surface = *problem;
    surface.fill = 0;
    for (size_t i = 0; i < VX_COUNT(wanted); i++) {
        *measured = pick_measured(pick, problem, wanted[i], choice);
        if (*measured || pick_like(pick, problem, wanted[i], choice)) return true;
        if (pick_modelled(pick, &surface, wanted[i], choice)) return true;
    }
    return false;
}

bool vx_pick_conv(const struct vx_pick *pick, const struct vx_conv_problem *problem,
                  struct vx_conv_choice *choice)
{
    struct vx_conv_problem smaller = *problem;
    bool measured;
    VX_ASSERT(problem->n >= 1);
    while (!pick_try(pick, &smaller, choice, &measured)) {
        /* A problem of one row fits every device. */
        VX_ASSERT(smaller.n > 1);
        smaller.n /= 2;
    }
    return measured;
}
