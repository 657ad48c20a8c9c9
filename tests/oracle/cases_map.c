/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/geometry/order.h"
#include "kernels/02_neighbor_map_device.h"
#include "kernels/05_mask_order.h"
#include "tests/oracle/cases.h"
#include "tests/oracle/clouds.h"

#include <string.h>

void vx_order_small_ref(const void *args, enum vx_number type);
void vx_order_blocks_ref(const void *args, enum vx_number type);

/* What the device built, on the host. */
struct built {
    struct vx_gpu_map map; /* pointers into host memory */
    i32 *rows;
    u32 fault[2];
};

static void *copy_out(struct vx_rig *rig, const void *device, size_t bytes)
{
    struct vx_why why = {""};
    void *host = vx_rig_take(rig, bytes);
    vx_rig_need(rig,
                vx_gpu_copy_out(rig->bench.gpu, rig->bench.stream,
                                &(struct vx_gpu_copy){host, device, bytes}, &why),
                &why);
    return host;
}

/* A map and the order of its rows; n and v of the order are set for each cloud. */
struct want {
    struct vx_map_key key;
    i32 groups;
    bool sorted, gray;
    i32 run; /* of the signature that rows are sorted by, 0 = by the masks */
};

/* Index and map in the rig's device memory, poisoned before, as the engine builds them. */
static struct built build(struct vx_rig *rig, const struct vx_cloud *cloud,
                          const struct want *want)
{
    const i64 n = cloud->n;
    const i32 *kernel = want->key.kernel;
    const size_t coords = vx_round_up((size_t)(n * cloud->columns) * 4, 256);
    const size_t index_bytes = vx_round_up(vx_gpu_index_bytes(n), 256);
    const size_t rows_bytes = vx_round_up((size_t)n * 4, 256);
    const size_t map_bytes = vx_round_up(vx_gpu_map_bytes(n, &want->key), 256);
    const struct vx_gpu_order_want order = {.n = n,
                                            .v = vx_map_offsets(&want->key),
                                            .groups = want->groups,
                                            .kernel = {kernel[0], kernel[1], kernel[2]},
                                            .sorted = want->sorted,
                                            .gray = want->gray};
    const size_t order_bytes = vx_round_up(vx_gpu_order_bytes(&order), 256);
    const size_t bytes = coords + index_bytes + rows_bytes + map_bytes + order_bytes +
                         vx_round_up(vx_gpu_order_scratch_bytes(&order), 256);
    struct vx_gpu_stream *stream = rig->bench.stream;
    const struct vx_gpu_queue queue = {.set = rig->bench.set, .stream = stream};
    struct vx_why why = {""};
    struct vx_gpu_index index;
    struct built built;
    u8 *device = vx_rig_device(rig, bytes);
    u8 *device_rows = device + coords + index_bytes, *stays = device_rows + rows_bytes;
    vx_rig_need(rig,
                vx_gpu_fill(rig->bench.gpu, stream,
                            &(struct vx_gpu_words){device, 0x7fff7fff, bytes}, &why),
                &why);
    vx_rig_need(rig,
                vx_gpu_copy_in(rig->bench.gpu, stream,
                               &(struct vx_gpu_copy){device, cloud->coords,
                                                     (size_t)(n * cloud->columns) * 4},
                               &why),
                &why);
    vx_rig_need(
        rig,
        vx_gpu_index_build(&queue,
                           &(struct vx_gpu_coords){(const i32 *)(const void *)device,
                                                   cloud->columns,
                                                   n,
                                                   device + coords,
                                                   (i32 *)(void *)device_rows,
                                                   {0}},
                           &why, &index),
        &why);
    struct vx_gpu_map *map = &built.map;
    vx_gpu_map_place(n, &want->key, stays, map);
    vx_gpu_order_place(&order, stays + map_bytes, map);
    vx_rig_need(rig, vx_gpu_map_build(&queue, &index, &want->key, map, &why), &why);
    vx_rig_need(
        rig,
        vx_gpu_order_build(&queue, &order, map, stays + map_bytes + order_bytes, &why),
        &why);
    const size_t rows = (size_t)n, groups = (size_t)want->groups;
    built.rows = copy_out(rig, index.rows, rows * 4);
    const void *fault = copy_out(rig, index.fault, 8);
    map->nbr = copy_out(rig, map->nbr, rows * (size_t)map->nbr_stride * 4);
    map->masks = copy_out(rig, map->masks, rows * (size_t)map->words * 4);
    if (map->order) map->order = copy_out(rig, map->order, groups * rows * 4);
    map->block_masks =
        copy_out(rig, map->block_masks,
                 groups * (size_t)vx_mask_blocks(n) * (size_t)map->words * 4);
    map->pairs = copy_out(rig, map->pairs, 8);
    vx_rig_need(rig, vx_gpu_stream_wait(rig->bench.gpu, stream, &why), &why);
    memcpy(built.fault, fault, 8);
    return built;
}

/* The expected map: neighbours found in a table of voxels, rows as in the request. */
static struct vx_hash_map_args truth_of(struct vx_rig *rig, const struct vx_cloud *cloud,
                                        const struct vx_gpu_map *map,
                                        const struct vx_map_key *key)
{
    const size_t n = (size_t)cloud->n;
    u64 slots = 16;
    while (slots < 2 * (u64)n) slots *= 2;
    struct vx_hash_insert_args insert = {
        .n = cloud->n,
        .columns = cloud->columns,
        .coords = cloud->coords,
        .table = {.key_bits = 64,
                  .slots_count = slots,
                  .slots_key = vx_rig_take(rig, slots * 8),
                  .slots_row = vx_rig_take(rig, slots * 4)},
        .fault = vx_rig_take(rig, 8)};
    memset(insert.table.slots_key, 0xff, slots * 8);
    vx_hash_insert_ref(&insert);
    struct vx_hash_map_args args = {.n = cloud->n,
                                    .columns = cloud->columns,
                                    .coords = cloud->coords,
                                    .table = insert.table,
                                    .v = map->v,
                                    .words = map->words,
                                    .nbr_stride = map->nbr_stride,
                                    .nbr =
                                        vx_rig_take(rig, n * (size_t)map->nbr_stride * 4),
                                    .masks = vx_rig_take(rig, n * (size_t)map->words * 4),
                                    .pairs = vx_rig_take(rig, 8)};
    memcpy(args.kernel, key->kernel, sizeof args.kernel);
    memcpy(args.dilation, key->dilation, sizeof args.dilation);
    memset(args.nbr, 0xff, n * (size_t)map->nbr_stride * 4);
    vx_hash_map_ref(&args);
    return args;
}

static bool check_rows(struct vx_rig *rig, const char *label, const struct built *built,
                       i64 n)
{
    u8 *seen = vx_rig_take(rig, (size_t)n);
    for (i64 r = 0; r < n; r++) {
        i64 i = built->rows[r];
        if (i >= 0 && i < n && !seen[i]++) continue;
        vx_rig_fail(rig, "map, %s: rows is no permutation at %lld", label, (long long)r);
        return false;
    }
    return true;
}

static bool check_nbr(struct vx_rig *rig, const char *label, const struct built *built,
                      const struct vx_hash_map_args *truth)
{
    const struct vx_gpu_map *map = &built->map;
    for (i64 r = 0; r < truth->n; r++)
        for (i32 v = 0; v < map->nbr_stride; v++) {
            i64 got = map->nbr[r * map->nbr_stride + v];
            i64 expected = truth->nbr[(i64)built->rows[r] * truth->nbr_stride + v];
            bool inside = got >= -1 && got < truth->n;
            if (inside && (got < 0 ? -1 : built->rows[got]) == expected) continue;
            vx_rig_fail(
                rig, "map, %s: expected voxel %lld at row %lld offset %d, got row %lld",
                label, (long long)expected, (long long)r, v, (long long)got);
            return false;
        }
    for (i64 r = 0; r < truth->n; r++)
        if (memcmp(map->masks + r * map->words,
                   truth->masks + (i64)built->rows[r] * map->words,
                   (size_t)map->words * 4) != 0) {
            vx_rig_fail(rig, "map, %s: wrong mask at row %lld", label, (long long)r);
            return false;
        }
    if (*map->pairs != *truth->pairs)
        vx_rig_fail(rig, "map, %s: expected %llu pairs, got %llu", label,
                    (unsigned long long)*truth->pairs, (unsigned long long)*map->pairs);
    return true;
}

/* The only stable order of the device's own masks, and the unions of every 32. */
static void check_order(struct vx_rig *rig, const char *label, const struct built *built,
                        const struct want *want, i64 n)
{
    const struct vx_gpu_map *map = &built->map;
    const size_t order = (size_t)want->groups * (size_t)n * 4;
    const size_t blocks =
        (size_t)want->groups * (size_t)vx_mask_blocks(n) * (size_t)map->words * 4;
    struct vx_mask_order_args args = {.n = n,
                                      .words = map->words,
                                      .bits = map->v / want->groups,
                                      .run = want->run,
                                      .groups = want->groups,
                                      .gray = want->gray,
                                      .masks = map->masks,
                                      .rows_out = vx_rig_take(rig, order),
                                      .block_masks = vx_rig_take(rig, blocks)};
    if (want->sorted) vx_order_small_ref(&args, 0);
    if (!want->sorted) vx_order_blocks_ref(&args, 0);
    if (want->sorted && memcmp(args.rows_out, map->order, order) != 0)
        vx_rig_fail(rig, "map, %s: another order than the stable one", label);
    if (memcmp(args.block_masks, map->block_masks, blocks) != 0)
        vx_rig_fail(rig, "map, %s: other block masks", label);
}

static void map_case(struct vx_rig *rig, const struct vx_cloud *cloud,
                     const struct want *want, u32 faults)
{
    char label[VX_TRIAL_LABEL];
    struct vx_trial words = {.count = 0};
    const i32 *size = want->key.kernel;
    vx_trial_label(&words, "%s N=%lld kernel %dx%dx%d dilation %d groups %d%s%s",
                   cloud->name, (long long)cloud->n, size[0], size[1], size[2],
                   want->key.dilation[0], want->groups, want->sorted ? " sorted" : "",
                   want->gray ? " gray" : "");
    memcpy(label, words.label, sizeof label);
    rig->trials++;
    struct built built = build(rig, cloud, want);
    u32 got = (built.fault[0] ? 1u : 0u) | (built.fault[1] ? 2u : 0u);
    if (got != faults)
        vx_rig_fail(rig, "map, %s: expected faults %u, got %u", label, faults, got);
    if (faults) return;
    if (!check_rows(rig, label, &built, cloud->n)) return;
    struct vx_hash_map_args truth = truth_of(rig, cloud, &built.map, &want->key);
    if (!check_nbr(rig, label, &built, &truth)) return;
    check_order(rig, label, &built, want, cloud->n);
}

static void map_faults(struct vx_rig *rig, i64 n)
{
    const struct want want = {.key = {.kernel = {3, 3, 3}, .dilation = {1, 1, 1}},
                              .groups = 1,
                              .sorted = true,
                              .gray = true};
    struct vx_cloud cloud;
    for (u32 faults = 1; faults < 4; faults++) {
        vx_cloud_make(rig, VX_CLOUD_RANDOM, n, &cloud);
        if (faults & 1u) cloud.coords[4 * (n / 2) + 1] = -(1 << 17) - 1;
        if (faults & 2u) memcpy(cloud.coords, cloud.coords + 4 * (n - 1), 16);
        map_case(rig, &cloud, &want, faults);
        vx_rig_reset(rig);
    }
}

void vx_cases_map(struct vx_rig *rig)
{
    static const struct want wants[] = {
        {{.kernel = {3, 3, 3}, .dilation = {1, 1, 1}}, 1, true, true, 3},
        {{.kernel = {3, 3, 3}, .dilation = {1, 1, 1}}, 1, true, false, 3},
        {{.kernel = {3, 3, 3}, .dilation = {1, 1, 1}}, 3, true, true, 0},
        {{.kernel = {3, 3, 3}, .dilation = {1, 1, 1}}, 9, true, true, 0},
        {{.kernel = {3, 3, 3}, .dilation = {2, 2, 2}}, 1, false, false, 0},
        {{.kernel = {5, 5, 5}, .dilation = {1, 1, 1}}, 5, true, true, 0},
        {{.kernel = {7, 7, 7}, .dilation = {1, 1, 1}}, 1, true, true, 13},
        {{.kernel = {5, 5, 5}, .dilation = {1, 1, 1}}, 1, true, false, 5},
        {{.kernel = {3, 3, 3}, .dilation = {9, 1, 5}}, 1, true, true, 3},
        {{.kernel = {1, 3, 5}, .dilation = {1, 1, 1}}, 1, true, true, 0},
        {{.kernel = {3, 1, 1}, .dilation = {1, 1, 1}}, 3, true, true, 0},
        {{.kernel = {3, 5, 7}, .dilation = {1, 1, 1}}, 1, true, true, 4},
    };
    static const i64 sizes[] = {1,  33,   2048,  1000,  2049,  31,
                                32, 4097, 10007, 16384, 16385, 70001};
    const size_t count = rig->size == VX_RIG_FULL ? 12 : rig->size == VX_RIG_FAKE ? 5 : 3;
    struct vx_cloud cloud;
    if (!vx_rig_wants(rig, "map")) return;
    for (size_t w = 0; w < VX_COUNT(wants); w++)
        for (i32 kind = 0; kind < VX_CLOUD_KINDS; kind++)
            for (size_t s = 0; s < count; s++) {
                i64 n = sizes[s];
                bool turn = (w + s + (size_t)kind) % 4 == 0 || !kind;
                if (n > 100 && !turn) continue;
                if (n > 100 && rig->size == VX_RIG_SMALL && w) continue;
                /* One voxel is the same in every cloud but for its place. */
                bool other = (size_t)kind != w % VX_CLOUD_KINDS;
                if (n == 1 && rig->size == VX_RIG_SMALL && other) continue;
                /* Of the small size the first map has every cloud, the others have two each. */
                bool second = (size_t)kind == (w + 3) % VX_CLOUD_KINDS;
                if (rig->size == VX_RIG_SMALL && w && other && !second) continue;
                if (n > 10000 && (w + (size_t)kind) % 3) continue;
                if (n > 32768 && w > 3) continue;
                if (n > 32768 && (kind == VX_CLOUD_ISOLATED || kind == VX_CLOUD_LINE))
                    continue;
                vx_cloud_make(rig, (enum vx_cloud_kind)kind, n, &cloud);
                if (kind == VX_CLOUD_BLOCK) vx_cloud_narrow(rig, &cloud);
                map_case(rig, &cloud, &wants[w], 0);
                vx_rig_reset(rig);
            }
    map_faults(rig, 700);
    if (rig->size != VX_RIG_SMALL) map_faults(rig, 5000);
}
