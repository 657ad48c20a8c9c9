/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/03_brick_map.h"
#include "tests/oracle/cases.h"
#include "tests/oracle/clouds.h"

#include <string.h>

/* The blocks of a launch over bricks: fewer than the bricks of the larger clouds. */
#define BLOCKS 7
/* The most sets of one launch. */
#define MANY_MAX 19

/* An index in host memory, as it is before the first kernel. */
static struct vx_brick_index_args index_make(struct vx_rig *rig,
                                             const struct vx_cloud *cloud)
{
    const size_t n = (size_t)cloud->n;
    u64 slots = VX_BRICK_GROUP;
    while (slots < 2 * (u64)n) slots *= 2;
    return (struct vx_brick_index_args){
        .n = cloud->n,
        .columns = cloud->columns,
        .blocks = BLOCKS,
        .slots_count = slots,
        .coords = cloud->coords,
        .slots = vx_rig_take(rig, slots * sizeof(struct vx_brick_slot)),
        .counts = vx_rig_take(rig, sizeof(struct vx_brick_counts)),
        .base = vx_rig_take(rig, slots * sizeof(i32)),
        .list = vx_rig_take(rig, n * sizeof(u32)),
        .places = vx_rig_take(rig, n * sizeof(u64)),
        .rows = vx_rig_take(rig, n * sizeof(i32)),
        .fault = vx_rig_take(rig, 2 * sizeof(u32)),
    };
}

/* Every pointer of the arguments, whether the kernel uses it or not: all may be written,
 * and the checks below read them. */
static void index_fields(struct vx_trial *trial, struct vx_brick_index_args *args,
                         const struct vx_cloud *cloud)
{
    const size_t n = (size_t)args->n, slots = args->slots_count;
    const i32 first = trial->count + 1;
    vx_trial_in(trial, &args->coords, cloud->coords,
                n * (size_t)cloud->columns * sizeof(i32));
    vx_trial_both(trial, &args->slots, args->slots, slots * sizeof *args->slots);
    vx_trial_both(trial, &args->counts, args->counts, sizeof *args->counts);
    vx_trial_both(trial, &args->base, args->base, slots * sizeof *args->base);
    vx_trial_both(trial, &args->list, args->list, n * sizeof *args->list);
    vx_trial_both(trial, &args->places, args->places, n * sizeof *args->places);
    vx_trial_both(trial, &args->rows, args->rows, n * sizeof *args->rows);
    vx_trial_both(trial, &args->fault, args->fault, 2 * sizeof *args->fault);
    for (i32 i = first; i < trial->count; i++) trial->fields[i].kind = VX_FIELD_MINE;
}

/* The arguments with the device's outputs in place of the inputs; the fields begin with
 * `field`. */
static struct vx_brick_index_args index_back(const struct vx_field *field,
                                             const struct vx_brick_index_args *args)
{
    struct vx_brick_index_args back = *args;
    back.slots = field[1].back;
    back.counts = field[2].back;
    back.base = field[3].back;
    back.list = field[4].back;
    back.places = field[5].back;
    back.rows = field[6].back;
    back.fault = field[7].back;
    return back;
}

static void wrong(struct vx_rig *rig, const struct vx_trial *trial, const char *what,
                  i64 at)
{
    vx_rig_fail(rig, "%s, %s: %s at %lld", trial->kernel.spec->name, trial->label, what,
                (long long)at);
}

static i32 bits_of(u64 mask)
{
    return __builtin_popcountll(mask);
}

/* Listed slots are distinct and have a brick; masks have as many bits as the reference's;
 * every voxel's place is its brick and bit. */
static bool check_bricks(struct vx_rig *rig, const struct vx_trial *trial,
                         const struct vx_brick_index_args *back,
                         const struct vx_brick_index_args *ref)
{
    u8 *seen = vx_rig_take(rig, back->slots_count);
    i64 bits = 0, bits_ref = 0;
    if (back->counts->bricks != ref->counts->bricks) {
        wrong(rig, trial, "another number of bricks", back->counts->bricks);
        return false;
    }
    for (u32 b = 0; b < back->counts->bricks; b++) {
        u32 slot = back->list[b];
        if (slot >= back->slots_count || seen[slot] || !back->slots[slot].key) {
            wrong(rig, trial, "a listed slot without a brick of its own", b);
            return false;
        }
        seen[slot] = 1;
        bits += bits_of(back->slots[slot].mask);
        bits_ref += bits_of(ref->slots[ref->list[b]].mask);
    }
    for (u64 slot = 0; slot < back->slots_count; slot++)
        if (!seen[slot] && (back->slots[slot].key || back->slots[slot].mask))
            wrong(rig, trial, "a brick that is not listed", (i64)slot);
    if (bits != bits_ref) wrong(rig, trial, "another number of voxels", bits);
    for (i64 i = 0; i < back->n; i++) {
        const i32 *at = back->coords + i * back->columns + back->columns - 3;
        u64 key = vx_brick_key(back->columns == 4 ? at[-1] : 0, at[0], at[1], at[2]);
        u64 place = back->places[i];
        u32 bit = vx_brick_bit(at[0], at[1], at[2]);
        bool right = key ? place >> 6 < back->slots_count && (place & 63u) == bit &&
                               back->slots[place >> 6].key == key &&
                               back->slots[place >> 6].mask >> bit & 1u
                         : place == VX_BRICK_NONE;
        if (right) continue;
        wrong(rig, trial, "a voxel that is not in its brick", i);
        return false;
    }
    return true;
}

/* Bases divide 0 .. rows into as many ranges as there are bricks, each as long as its
 * mask has bits. */
static bool check_bases(struct vx_rig *rig, const struct vx_trial *trial,
                        const struct vx_brick_index_args *back)
{
    u8 *begins = vx_rig_take(rig, (size_t)back->n + 1);
    i64 rows = 0;
    for (u32 b = 0; b < back->counts->bricks; b++) {
        u32 slot = back->list[b];
        i32 base = back->base[slot], count = bits_of(back->slots[slot].mask);
        bool inside = base >= 0 && base + (i64)count <= back->n;
        for (i32 r = 0; inside && r < count; r++) {
            if (begins[base + r]++) inside = false;
            rows++;
        }
        if (inside) continue;
        wrong(rig, trial, "rows that overlap or are out of range", b);
        return false;
    }
    if (rows != back->counts->rows) wrong(rig, trial, "another number of rows", rows);
    return rows == back->counts->rows;
}

/* rows[] is the inverse: the place of the voxel rows[r] gives row r.  With a fault, only
 * the range of the numbers is guaranteed. */
static void check_rows(struct vx_rig *rig, const struct vx_trial *trial,
                       const struct vx_brick_index_args *back, u32 faults)
{
    for (i64 r = 0; r < back->n; r++) {
        i64 i = back->rows[r];
        if (i < 0 || i >= back->n) {
            wrong(rig, trial, "a row of no voxel", r);
            return;
        }
        if (faults) continue;
        u64 place = back->places[i], mask = back->slots[place >> 6].mask;
        i64 row = back->base[place >> 6] + bits_of(mask & (((u64)1 << (place & 63)) - 1));
        if (row == r) continue;
        wrong(rig, trial, "rows[] that does not lead back", r);
        return;
    }
}

static void check_faults(struct vx_rig *rig, const struct vx_trial *trial,
                         const struct vx_brick_index_args *back, u32 faults)
{
    u32 got = (back->counts->fault[0] ? 1u : 0u) | (back->counts->fault[1] ? 2u : 0u);
    if (got != faults) wrong(rig, trial, "expected other faults than", got);
}

/* Every output of small. */
static void check_all(struct vx_rig *rig, const struct vx_trial *trial,
                      const struct vx_brick_index_args *back,
                      const struct vx_brick_index_args *ref, u32 faults)
{
    check_faults(rig, trial, back, faults);
    if (memcmp(back->fault, back->counts->fault, sizeof back->counts->fault) != 0)
        wrong(rig, trial, "faults that are not those counted", back->fault[0]);
    if (!check_bricks(rig, trial, back, ref)) return;
    if (check_bases(rig, trial, back)) check_rows(rig, trial, back, faults);
}

/* The kernels in their order, each on the outputs of the references before it. */
static void index_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                       const struct vx_cloud *cloud, u32 faults)
{
    struct vx_brick_index_args args = index_make(rig, cloud);
    const char *name = kernel->spec->name;
    const bool small = !strcmp(name, "brick_small");
    const bool number = !strcmp(name, "brick_number"), rank = !strcmp(name, "brick_rank");
    struct vx_trial trial;
    if (small) { /* clears its own memory */
        vx_rig_poison(args.slots, args.slots_count * sizeof *args.slots);
        vx_rig_poison(args.counts, sizeof *args.counts);
    }
    if (number || rank) vx_brick_insert_ref(&args);
    if (rank) vx_brick_number_ref(&args);
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "%s N=%lld", cloud->name, (long long)cloud->n);
    index_fields(&trial, &args, cloud);
    if (!vx_trial_run(rig, &trial) || !cloud->n) return;
    struct vx_brick_index_args back = index_back(trial.fields, &args);
    if (small) {
        check_all(rig, &trial, &back, &args, faults);
        return;
    }
    check_faults(rig, &trial, &back, faults);
    if (!check_bricks(rig, &trial, &back, &args)) return;
    if (number && !check_bases(rig, &trial, &back)) return;
    if (number && memcmp(back.fault, args.fault, 2 * sizeof *args.fault) != 0)
        wrong(rig, &trial, "faults that are not those counted", back.fault[0]);
    if (rank) check_rows(rig, &trial, &back, faults);
    if (rank && !faults && memcmp(back.rows, args.rows, (size_t)args.n * sizeof(i32)))
        wrong(rig, &trial, "other rows than the reference", 0);
}

static void fault_cloud(struct vx_rig *rig, u32 faults, struct vx_cloud *cloud)
{
    vx_cloud_make(rig, VX_CLOUD_RANDOM, 600, cloud);
    cloud->name = faults == 1 ? "out of range" : faults == 2 ? "twice" : "both faults";
    for (i64 i = 0; faults & 2u && i < 40; i++)
        memcpy(cloud->coords + 4 * i, cloud->coords + 4 * (599 - i / 2), 4 * sizeof(i32));
    if (!(faults & 1u)) return;
    cloud->coords[4 * 300 + faults % 3] = faults % 3 ? 1 << 17 : 512;
    cloud->coords[4 * 301] = -1;
    cloud->coords[4 * 302 + 2] = -(1 << 17) - 1;
    cloud->coords[4 * 303 + 3] = INT32_MAX;
    cloud->coords[4 * 304 + 3] = INT32_MIN;
}

static void index_faults(struct vx_rig *rig, const struct vx_jit_wanted *kernel)
{
    struct vx_cloud cloud;
    for (u32 faults = 1; faults < 4; faults++) {
        fault_cloud(rig, faults, &cloud);
        index_case(rig, kernel, &cloud, faults);
        vx_rig_reset(rig);
    }
}

/* --- many sets in one launch: kinds and sizes mixed, some with faults --- */

static u32 many_cloud(struct vx_rig *rig, i32 turn, struct vx_cloud *cloud)
{
    static const i64 sizes[] = {1, 848, 33, 2048, 100, 511, 513, 7};
    const i32 kind = turn % VX_CLOUD_KINDS;
    const u32 faults = turn % 5 == 3 ? 1u + (u32)(turn / 5 % 3) : 0;
    if (faults) {
        fault_cloud(rig, faults, cloud);
        return faults;
    }
    vx_cloud_make(rig, (enum vx_cloud_kind)kind, sizes[(turn * 3 + turn / 8) % 8], cloud);
    if (kind == VX_CLOUD_BLOCK) vx_cloud_narrow(rig, cloud);
    return 0;
}

static void index_many_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                            i32 count, i32 turn)
{
    struct vx_brick_index_args *sets = vx_rig_take(rig, (size_t)count * sizeof *sets);
    struct vx_brick_small_many_args args = {.count = count};
    struct vx_cloud clouds[MANY_MAX];
    u32 faults[MANY_MAX];
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "%d sets from %d", count, turn);
    vx_trial_inside(&trial,
                    vx_trial_in(&trial, &args.sets, sets, (size_t)count * sizeof *sets));
    for (i32 s = 0; s < count; s++) {
        faults[s] = many_cloud(rig, turn + s, &clouds[s]);
        sets[s] = index_make(rig, &clouds[s]);
        vx_rig_poison(sets[s].slots, sets[s].slots_count * sizeof *sets[s].slots);
        vx_rig_poison(sets[s].counts, sizeof *sets[s].counts);
        index_fields(&trial, &sets[s], &clouds[s]);
    }
    const i32 fields = (trial.count - 1) / (count ? count : 1);
    if (!vx_trial_run(rig, &trial)) return;
    for (i32 s = 0; s < count; s++) {
        struct vx_brick_index_args back =
            index_back(&trial.fields[1 + s * fields], &sets[s]);
        check_all(rig, &trial, &back, &sets[s], faults[s]);
    }
}

/* --- the map, from an index that the references built --- */

struct extent {
    i32 kernel[3], dilation[3];
    bool far;
};

static struct vx_brick_map_args map_make(const struct extent *extent, i64 n, u64 slots)
{
    const i32 *size = extent->kernel;
    struct vx_brick_map_args args = {
        .n = n, .slots_count = slots, .v = size[0] * size[1] * size[2], .blocks = BLOCKS};
    memcpy(args.kernel, size, sizeof args.kernel);
    memcpy(args.dilation, extent->dilation, sizeof args.dilation);
    args.words = (args.v + 31) / 32;
    args.nbr_stride = (args.v + 3) / 4 * 4;
    return args;
}

static void map_fields(struct vx_rig *rig, struct vx_trial *trial,
                       struct vx_brick_map_args *args, struct vx_brick_index_args *index)
{
    const size_t n = (size_t)args->n, slots = args->slots_count;
    vx_brick_small_ref(index);
    vx_trial_in(trial, &args->slots, index->slots, slots * sizeof *index->slots);
    vx_trial_in(trial, &args->base, index->base, slots * sizeof *index->base);
    vx_trial_in(trial, &args->list, index->list, n * sizeof *index->list);
    vx_trial_both(trial, &args->counts, index->counts, sizeof *index->counts);
    vx_trial_out(rig, trial, &args->nbr, n * (size_t)args->nbr_stride * sizeof(i32));
    vx_trial_out(rig, trial, &args->masks, n * (size_t)args->words * sizeof(u32));
    vx_trial_out(rig, trial, &args->pairs, sizeof(u64));
}

static void map_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                     const struct vx_cloud *cloud, const struct extent *extent)
{
    struct vx_brick_index_args index = index_make(rig, cloud);
    struct vx_brick_map_args args = map_make(extent, cloud->n, index.slots_count);
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "%s N=%lld V=%d dilation %d", cloud->name, (long long)args.n,
                   args.v, extent->dilation[0]);
    map_fields(rig, &trial, &args, &index);
    /* Without rows nothing is launched, and the number of pairs is not written. */
    if (!args.n) trial.fields[trial.count - 1].kind = VX_FIELD_MINE;
    vx_trial_run(rig, &trial);
}

/* Fewer blocks than the launch has for one set, more for another. */
static void map_many_case(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                          const struct extent *extent, i32 count, i32 turn)
{
    struct vx_brick_map_args *sets = vx_rig_take(rig, (size_t)count * sizeof *sets);
    struct vx_brick_map_many_args args = {.count = count, .blocks = 1};
    struct vx_trial trial;
    vx_trial_init(&trial, kernel, &args);
    vx_trial_label(&trial, "%d sets from %d, %dx%dx%d", count, turn, extent->kernel[0],
                   extent->kernel[1], extent->kernel[2]);
    vx_trial_inside(&trial,
                    vx_trial_in(&trial, &args.sets, sets, (size_t)count * sizeof *sets));
    for (i32 s = 0; s < count; s++) {
        struct vx_cloud cloud;
        (void)many_cloud(rig, turn + s, &cloud);
        struct vx_brick_index_args index = index_make(rig, &cloud);
        sets[s] = map_make(extent, cloud.n, index.slots_count);
        sets[s].blocks = 1 + (u32)vx_rig_below(rig, 2 * BLOCKS);
        if (sets[s].blocks > args.blocks) args.blocks = sets[s].blocks;
        map_fields(rig, &trial, &sets[s], &index);
    }
    vx_trial_run(rig, &trial);
}

static const struct extent extents[] = {
    {{3, 3, 3}, {1, 1, 1}, false},  {{1, 1, 1}, {1, 1, 1}, false},
    {{5, 5, 5}, {1, 1, 1}, false},  {{7, 7, 7}, {1, 1, 1}, false},
    {{3, 3, 3}, {4, 2, 3}, false},  {{9, 1, 3}, {1, 1, 1}, false},
    {{5, 3, 1}, {2, 4, 1}, false},  {{3, 3, 3}, {5, 1, 1}, true},
    {{7, 7, 7}, {2, 2, 2}, true},   {{343, 1, 1}, {1, 1, 1}, true},
    {{1, 3, 3}, {1, 64, 64}, true},
};

/* The far kernel takes any offset, the near one only offsets that its table holds. */
static bool extent_fits(const struct vx_jit_wanted *kernel, const struct extent *extent,
                        bool far)
{
    const i32 *size = extent->kernel;
    i32 words = (size[0] * size[1] * size[2] + 31) / 32;
    return far || (!extent->far && words <= kernel->tile->values[0]);
}

static void map_many_cases(struct vx_rig *rig, const struct vx_jit_wanted *kernel,
                           bool far)
{
    static const i32 counts[] = {5, 1, 0, MANY_MAX};
    const size_t sizes = rig->size == VX_RIG_SMALL ? 3 : 4;
    i32 turn = 0;
    for (size_t e = 0; e < VX_COUNT(extents); e++)
        for (size_t c = 0; c < sizes; c++) {
            if (!extent_fits(kernel, &extents[e], far)) continue;
            map_many_case(rig, kernel, &extents[e], counts[c], turn++);
            vx_rig_reset(rig);
        }
}

static void map_cases(struct vx_rig *rig, const struct vx_jit_wanted *kernel, bool far)
{
    static const i64 sizes[] = {1, 0, 33, 1000, 31, 32, 63, 65, 2049, 10007};
    const size_t count = rig->size == VX_RIG_FULL ? 10 : rig->size == VX_RIG_FAKE ? 5 : 4;
    struct vx_cloud cloud;
    for (size_t e = 0; e < VX_COUNT(extents); e++) {
        if (!extent_fits(kernel, &extents[e], far)) continue;
        for (i32 kind = 0; kind < VX_CLOUD_KINDS; kind++)
            for (size_t s = 0; s < count; s++) {
                if (sizes[s] > 100 && e && (e + (size_t)kind) % 3) continue;
                vx_cloud_make(rig, (enum vx_cloud_kind)kind, sizes[s], &cloud);
                map_case(rig, kernel, &cloud, &extents[e]);
                vx_rig_reset(rig);
            }
    }
    /* With faults there are rows without a brick. */
    vx_cloud_make(rig, VX_CLOUD_RANDOM, 600, &cloud);
    memcpy(cloud.coords, cloud.coords + 4 * 599, 4 * sizeof(i32));
    cloud.coords[5] = 1 << 20;
    cloud.name = "faults";
    map_case(rig, kernel, &cloud, &extents[0]);
    vx_rig_reset(rig);
}

void vx_cases_brick(struct vx_rig *rig)
{
    static const char *const names[] = {"brick_insert", "brick_number", "brick_rank",
                                        "brick_small"};
    static const i64 sizes[] = {0, 1, 32, 1000, 31, 33, 511, 512, 513, 2048, 10007};
    const size_t count = rig->size == VX_RIG_FULL   ? 11
                         : rig->size == VX_RIG_FAKE ? 10
                                                    : 4;
    const struct vx_jit_wanted *kernel = NULL;
    struct vx_cloud cloud;
    for (size_t name = 0; name < VX_COUNT(names); name++)
        while ((kernel = vx_rig_next(rig, names[name], kernel))) {
            for (i32 kind = 0; kind < VX_CLOUD_KINDS; kind++)
                for (size_t s = 0; s < count; s++) {
                    if (name == 3 && sizes[s] > VX_BRICK_SMALL) continue;
                    vx_cloud_make(rig, (enum vx_cloud_kind)kind, sizes[s], &cloud);
                    if (kind == VX_CLOUD_BLOCK) vx_cloud_narrow(rig, &cloud);
                    index_case(rig, kernel, &cloud, 0);
                    vx_rig_reset(rig);
                }
            index_faults(rig, kernel);
        }
    while ((kernel = vx_rig_next(rig, "brick_small_many", kernel)))
        for (i32 turn = 0; turn < (rig->size == VX_RIG_SMALL ? 3 : 16); turn++) {
            index_many_case(rig, kernel, turn == 1 ? 0 : 1 + turn * 7 % MANY_MAX, turn);
            vx_rig_reset(rig);
        }
    while ((kernel = vx_rig_next(rig, "brick_map", kernel)))
        map_cases(rig, kernel, false);
    while ((kernel = vx_rig_next(rig, "brick_map_far", kernel)))
        map_cases(rig, kernel, true);
    while ((kernel = vx_rig_next(rig, "brick_map_many", kernel)))
        map_many_cases(rig, kernel, false);
    while ((kernel = vx_rig_next(rig, "brick_map_far_many", kernel)))
        map_many_cases(rig, kernel, true);
}
