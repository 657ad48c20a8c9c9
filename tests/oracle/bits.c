/* SPDX-License-Identifier: Apache-2.0 */
/* The promise of the engine, as a property: a voxel's answer has the same bits alone and
 * among others, with every tile, with every algorithm of its order of sums, however the
 * rows were sorted, and again.  Only the order of sums may change them, and that it does
 * is what shows that this test can fail. */
#include "engine/base/process/print.h"
#include "engine/gpu/jit/hiprtc.h"
#include "engine/tune/oracle.h"
#include "tests/oracle/clouds.h"

#include <string.h>

#define SEED_DATA UINT64_C(77)

/* EXPLICIT need not have the bits of another algorithm (conv.h); with our own kernel for
 * the product it has its own bits again. */
enum order { CHAIN, SPLIT, PAIRS, DENSE, ORDERS };

/* A set of voxels; some of its voxels are common to all sets. */
struct set {
    i64 n;
    i32 *coords; /* (n, 4) */
    i64 *ids;    /* (n) a number for each voxel; its features follow from it */
};

struct bits {
    struct vx_rig *rig;
    struct vx_harness *stand;
    struct vx_data *features;
    struct vx_conv_problem problem;
    i64 common;           /* ids below are in every set */
    void *answer[ORDERS]; /* (common, co), the first that came */
    i32 *rows;            /* of the set that is loaded */
    const struct set *set;
};

static const char usage[] = "bits [--device cuda:0|hip:0|fake] [--seed N] [--cache DIR]\n"
                            "     [--driver LIB] [--compiler FILE] [--texts DIR]\n";

static size_t row_bytes(const struct bits *bits, i32 channels)
{
    return (size_t)channels * (size_t)vx_number_bytes(bits->problem.type);
}

static enum order order_of(enum vx_conv_algorithm algorithm)
{
    if (algorithm == VX_CONV_PAIRS_LIST) return PAIRS;
    if (algorithm == VX_CONV_EXPLICIT) return DENSE;
    bool split = algorithm == VX_CONV_IMPLICIT_SPLIT || algorithm == VX_CONV_MASKED_SPLIT;
    return split ? SPLIT : CHAIN;
}

/* --- sets --- */

/* The common voxels alone, in sample 0. */
static struct set set_alone(struct vx_rig *rig, const struct vx_cloud *cloud)
{
    struct set set = {.n = cloud->n,
                      .coords = vx_rig_take(rig, (size_t)cloud->n * 16),
                      .ids = vx_rig_take(rig, (size_t)cloud->n * 8)};
    for (i64 i = 0; i < cloud->n; i++) set.ids[i] = i;
    memcpy(set.coords, cloud->coords, (size_t)cloud->n * 16);
    for (i64 i = 0; i < cloud->n; i++) set.coords[4 * i] = 0;
    return set;
}

/* The common voxels in another sample, moved by whole steps, between voxels of other
 * samples that come before and behind it, all of it shuffled. */
static struct set set_among(struct vx_rig *rig, const struct vx_cloud *cloud,
                            const struct vx_cloud *others)
{
    const i64 n = cloud->n + 2 * others->n;
    struct set set = {.n = n,
                      .coords = vx_rig_take(rig, (size_t)n * 16),
                      .ids = vx_rig_take(rig, (size_t)n * 8)};
    i64 *places = vx_rig_take(rig, (size_t)n * 8);
    for (i64 i = 0; i < n; i++) {
        i64 other = vx_rig_below(rig, i + 1);
        places[i] = places[other];
        places[other] = i;
    }
    for (i64 i = 0; i < n; i++) {
        bool mine = i < cloud->n;
        i64 from = mine ? i : (i - cloud->n) % others->n;
        i32 *to = set.coords + 4 * places[i];
        memcpy(to, (mine ? cloud : others)->coords + 4 * from, 16);
        to[0] = mine ? 200 : i - cloud->n < others->n ? 3 : 511;
        for (int axis = 1; mine && axis < 4; axis++) to[axis] += 37 * axis;
        set.ids[places[i]] = i;
    }
    return set;
}

/* --- one set --- */

static void load(struct bits *bits, const struct set *set)
{
    struct vx_rig *rig = bits->rig;
    struct vx_harness *stand = bits->stand;
    struct vx_why why = {""};
    const struct vx_harness_geometry geometry = {set->coords, {1, 1, 1}};
    const size_t row = row_bytes(bits, bits->problem.ci);
    const size_t element = row / (size_t)bits->problem.ci;
    bits->problem.n = set->n;
    bits->set = set;
    vx_rig_need(rig, vx_harness_load(stand, &bits->problem, &geometry, &why), &why);
    bits->rows = vx_rig_take(rig, (size_t)set->n * 4);
    vx_rig_need(rig,
                vx_gpu_copy_out(stand->gpu, stand->queue.stream,
                                &(struct vx_gpu_copy){bits->rows, stand->index.rows,
                                                      (size_t)set->n * 4},
                                &why),
                &why);
    vx_rig_need(rig, vx_gpu_stream_wait(stand->gpu, stand->queue.stream, &why), &why);
    u8 *in = vx_rig_take(rig, (size_t)set->n * row);
    for (i64 r = 0; r < set->n; r++)
        for (i64 c = 0; c < bits->problem.ci; c++) {
            i64 at = set->ids[bits->rows[r]] * bits->problem.ci + c;
            memcpy(in + (size_t)r * row + (size_t)c * element,
                   (const u8 *)bits->features->typed +
                       (size_t)(at % VX_DATA_BLOCK) * element,
                   element);
        }
    vx_rig_need(rig,
                vx_gpu_copy_in(stand->gpu, stand->queue.stream,
                               &(struct vx_gpu_copy){stand->in, in, (size_t)set->n * row},
                               &why),
                &why);
    vx_rig_need(rig, vx_gpu_stream_wait(stand->gpu, stand->queue.stream, &why), &why);
}

/* The answers of the common voxels, by their ids. */
static void ask(struct bits *bits, const struct vx_conv_choice *choice, u8 *out,
                u8 *common)
{
    struct vx_rig *rig = bits->rig;
    struct vx_harness *stand = bits->stand;
    const size_t row = row_bytes(bits, bits->problem.co);
    struct vx_why why = {""};
    rig->trials++;
    vx_rig_need(rig, vx_harness_use(stand, choice, &why), &why);
    vx_rig_need(rig, vx_oracle_poison(stand, &why), &why);
    vx_rig_need(rig, vx_harness_run(stand, stand->out, &why), &why);
    vx_rig_need(rig,
                vx_gpu_copy_out(
                    stand->gpu, stand->queue.stream,
                    &(struct vx_gpu_copy){out, stand->out, (size_t)bits->set->n * row},
                    &why),
                &why);
    vx_rig_need(rig, vx_gpu_stream_wait(stand->gpu, stand->queue.stream, &why), &why);
    for (i64 r = 0; r < bits->set->n; r++) {
        i64 id = bits->set->ids[bits->rows[r]];
        if (id < bits->common)
            memcpy(common + (size_t)id * row, out + (size_t)r * row, row);
    }
}

static void compare(struct bits *bits, const struct vx_conv_choice *choice,
                    const u8 *common, const char *how)
{
    const enum order order = order_of(choice->algorithm);
    const size_t row = row_bytes(bits, bits->problem.co);
    const size_t bytes = (size_t)bits->common * row;
    const struct vx_tile *tile = &vx_conv_spec(choice->algorithm)->tiles[choice->tile];
    if (!bits->answer[order]) {
        bits->answer[order] = vx_rig_take(bits->rig, bytes);
        memcpy(bits->answer[order], common, bytes);
        return;
    }
    if (!memcmp(bits->answer[order], common, bytes)) return;
    size_t at = 0;
    while (((const u8 *)bits->answer[order])[at] == common[at]) at++;
    vx_rig_fail(bits->rig,
                "%s [%d,%d,%d,%d] type %d V=%d %dx%d, %s%s: other bits at "
                "voxel %lld",
                vx_conv_name(choice->algorithm), tile->values[0], tile->values[1],
                tile->values[2], tile->values[3], (int)bits->problem.type,
                bits->problem.v, bits->problem.ci, bits->problem.co, how,
                bits->stand->plain ? ", plain order" : "", (long long)(at / row));
}

/* Every algorithm and tile on the set that is loaded. */
static void ask_all(struct bits *bits, const char *how)
{
    u8 *out = vx_rig_take(bits->rig, vx_harness_out_bytes(bits->stand));
    u8 *common =
        vx_rig_take(bits->rig, (size_t)bits->common * row_bytes(bits, bits->problem.co));
    i32 turn = 0;
    for (i32 a = VX_CONV_AUTO + 1; a < VX_CONV_ALGORITHMS_COUNT; a++)
        for (i32 tile = 0; tile < vx_conv_spec((enum vx_conv_algorithm)a)->tiles_count;
             tile++) {
            const struct vx_conv_choice choice = {(enum vx_conv_algorithm)a, tile};
            if (!vx_conv_fits(&bits->problem, &choice, bits->rig->caps)) continue;
            bool sorted = vx_conv_sorted(choice.algorithm);
            bits->stand->plain = turn % 2;
            ask(bits, &choice, out, common);
            compare(bits, &choice, common, how);
            /* Again, and once with the other sort. */
            if (sorted) bits->stand->plain = !bits->stand->plain;
            if (turn++ % 3 == 0) {
                ask(bits, &choice, out, common);
                compare(bits, &choice, common, sorted ? "sorted otherwise" : "again");
            }
        }
}

/* --- the table --- */

struct layer {
    i32 kernel[3], ci, co;
};

static void run(struct vx_rig *rig, struct vx_harness *stand, const struct layer *layer,
                enum vx_number type, i64 *differ)
{
    const bool full = rig->size == VX_RIG_FULL;
    struct bits bits = {
        .rig = rig,
        .stand = stand,
        .problem = {.kernel = {layer->kernel[0], layer->kernel[1], layer->kernel[2]},
                    .v = layer->kernel[0] * layer->kernel[1] * layer->kernel[2],
                    .ci = layer->ci,
                    .co = layer->co,
                    .type = type}};
    struct vx_cloud cloud, others;
    enum vx_cloud_kind kind =
        (i32)vx_rig_below(rig, 3) ? VX_CLOUD_RANDOM : VX_CLOUD_SURFACE;
    vx_cloud_make(rig, kind, (full ? 300 : 30) + vx_rig_below(rig, 90), &cloud);
    vx_cloud_make(rig, VX_CLOUD_RANDOM, (full ? 500 : 20) + vx_rig_below(rig, 90),
                  &others);
    bits.common = cloud.n;
    vx_status status = vx_data_open(type, SEED_DATA, 1.0f, &bits.features);
    vx_rig_need(rig, status, NULL);
    const struct set alone = set_alone(rig, &cloud);
    const struct set among = set_among(rig, &cloud, &others);
    load(&bits, &alone);
    ask_all(&bits, "alone");
    load(&bits, &among);
    ask_all(&bits, "among others");
    if (bits.answer[PAIRS])
        *differ += memcmp(bits.answer[CHAIN], bits.answer[PAIRS],
                          (size_t)bits.common * row_bytes(&bits, layer->co)) != 0;
    vx_data_close(&bits.features);
    vx_rig_reset(rig);
}

static void run_all(struct vx_rig *rig)
{
    static const struct layer layers[] = {
        {{3, 3, 3}, 16, 16},  {{3, 1, 1}, 64, 144},  {{3, 3, 3}, 64, 64},
        {{3, 3, 3}, 32, 48},  {{3, 3, 3}, 128, 272}, {{5, 5, 5}, 16, 16},
        {{3, 3, 3}, 512, 64}, {{3, 3, 3}, 1024, 32},
    };
    static const enum vx_number types[] = {VX_NUMBER_F16, VX_NUMBER_BF16, VX_NUMBER_TF32,
                                           VX_NUMBER_F32, VX_NUMBER_E4M3};
    const bool full = rig->size == VX_RIG_FULL;
    const size_t count = full ? VX_COUNT(layers) : 2;
    struct vx_harness *stand;
    struct vx_why why = {""};
    i64 differ = 0;
    vx_rig_need(rig, vx_harness_open(rig->bench.set, rig->bench.stream, &why, &stand),
                &why);
    stand->own = true; /* the vendor's order of sums is unknown, and may change with N */
    for (i32 round = 0; round < (full ? 2 : 1); round++)
        for (size_t at = 0; at < count; at++)
            for (size_t type = 0; type < VX_COUNT(types); type++)
                run(rig, stand, &layers[at], types[type], &differ);
    vx_harness_close(&stand);
    vx_print(
        "pairs_list and masked, whose orders differ, gave other bits in %lld cases\n",
        (long long)differ);
    if (!differ)
        vx_rig_fail(rig, "two orders of sums gave the same bits everywhere: this test "
                         "sees nothing");
}

int main(int argc, char **argv)
{
    struct vx_rig_wanted wanted = {.size = VX_RIG_FULL};
    const struct vx_flag flags[] = {
        {"--device", &wanted.device.device}, {"--cache", &wanted.device.cache},
        {"--driver", &wanted.device.driver}, {"--compiler", &wanted.device.compiler},
        {"--texts", &wanted.device.texts},   {"--seed", &wanted.seed},
    };
    struct vx_why why = {""};
    struct vx_rig *rig;
    if (vx_rig_is_compiler(argc, argv)) return vx_hiprtc_main(argc - 2, argv + 2);
    if (argc == 2 && !strcmp(argv[1], "--help")) {
        vx_print("%s", usage);
        return 2;
    }
    if (!vx_flags_parse(argc - 1, argv + 1, flags, VX_COUNT(flags))) return 2;
    vx_status status = vx_rig_open(&wanted, &why, &rig);
    if (status.fault) return vx_rig_absent("bits", &wanted, status, &why);
    vx_rig_need(rig, vx_rig_ready(rig, &why), &why);
    run_all(rig);
    i64 failures = rig->failures;
    vx_print("%s: %lld questions, %lld wrong, seed %llu\n", failures ? "FAIL" : "passed",
             (long long)rig->trials, (long long)failures, (unsigned long long)rig->seed);
    vx_rig_close(&rig);
    return failures ? 1 : 0;
}
