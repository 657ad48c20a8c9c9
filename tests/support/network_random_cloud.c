/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/network_random.h"

#include "engine/base/limits.h"
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"

#include <string.h>

#define SIDE_MAX   12
#define LINE_MAX   300
#define CELLS_MAX  (3 * SIDE_MAX * SIDE_MAX * SIDE_MAX)
#define SHAPE_NEAR 64 /* a spatial shape below this has clouds anywhere in it */

enum kind { BLOCK, POINTS, SHELL, CHECKERS, DIAGONAL, LINE, PLANE, PAIR, KINDS };

/* Cells of a box at `base`; PAIR: every second one in a box at `far`. */
struct cloud {
    struct vx_test_random random;
    const struct vx_random_network *network;
    enum kind kind;
    i32 side[3], base[3], far[3];
    i32 samples[3], samples_count;
    i32 (*cells)[4];
    i64 cells_count;
};

static i32 below(struct cloud *cloud, i32 count)
{
    return (i32)(vx_test_next(&cloud->random) % (u64)count);
}

static void pick_sides(struct cloud *cloud)
{
    const struct vx_random_network *network = cloud->network;
    i32 axis = below(cloud, 3), common = 1 + below(cloud, SIDE_MAX);
    for (int i = 0; i < 3; i++) {
        i32 side = cloud->kind == DIAGONAL ? common : 1 + below(cloud, SIDE_MAX);
        if (cloud->kind == BLOCK && side > 7) side -= 6;
        if (cloud->kind == LINE) side = i == axis ? 1 + below(cloud, LINE_MAX) : 1;
        if (cloud->kind == PLANE && i == axis) side = 1;
        if (network->flat[i]) side = 1;
        if (network->shape[i] && side > network->shape[i]) side = network->shape[i];
        cloud->side[i] = side;
    }
}

static void pick_place(struct cloud *cloud)
{
    const struct vx_random_network *network = cloud->network;
    for (int i = 0; i < 3; i++) {
        i32 room = network->shape[i] - cloud->side[i], last = 1 + VX_AXIS_MAX;
        i32 *base = &cloud->base[i], *far = &cloud->far[i];
        if (network->shape[i]) {
            const i32 places[] = {0, room, below(cloud, room + 1)};
            *base = places[below(cloud, room < SHAPE_NEAR ? 3 : 2)];
            *far = room - *base;
            continue;
        }
        const i32 places[] = {0, -cloud->side[i] / 2, below(cloud, 2000) - 1000,
                              VX_AXIS_MIN, last - cloud->side[i]};
        *base = places[below(cloud, 4) ? below(cloud, 3) : 3 + below(cloud, 2)];
        *far = -*base - cloud->side[i];
    }
}

/* Two boxes that overlap are one, so that no voxel comes twice. */
static void part(struct cloud *cloud)
{
    for (int i = 0; i < 3; i++) {
        i32 apart = cloud->far[i] - cloud->base[i];
        if (apart >= cloud->side[i] || -apart >= cloud->side[i]) return;
    }
    memcpy(cloud->far, cloud->base, sizeof cloud->far);
}

static bool is_in(struct cloud *cloud, const i32 at[3])
{
    i32 edges = 0;
    for (int i = 0; i < 3; i++) edges += at[i] == 0 || at[i] == cloud->side[i] - 1;
    switch (cloud->kind) {
    case POINTS: return below(cloud, 100) < 15;
    case SHELL: return edges > 0;
    case CHECKERS: return (at[0] + at[1] + at[2]) % 2 == 0;
    case DIAGONAL: return at[0] == at[1] || cloud->side[0] == 1 || cloud->side[1] == 1;
    default: return true;
    }
}

static void make_cells(struct cloud *cloud)
{
    i32 at[3];
    for (i32 s = 0; s < cloud->samples_count; s++)
        for (at[0] = 0; at[0] < cloud->side[0]; at[0]++)
            for (at[1] = 0; at[1] < cloud->side[1]; at[1]++)
                for (at[2] = 0; at[2] < cloud->side[2]; at[2]++) {
                    if (!is_in(cloud, at)) continue;
                    VX_ASSERT(cloud->cells_count < CELLS_MAX);
                    i32 *cell = cloud->cells[cloud->cells_count++];
                    bool far = cloud->kind == PAIR && (at[0] + at[1] + at[2]) % 2;
                    cell[0] = cloud->samples[s];
                    for (int i = 0; i < 3; i++)
                        cell[i + 1] = at[i] + (far ? cloud->far[i] : cloud->base[i]);
                }
    if (cloud->cells_count) return;
    cloud->cells[0][0] = cloud->samples[0];
    memcpy(cloud->cells[0] + 1, cloud->base, sizeof cloud->base);
    cloud->cells_count = 1;
}

static void shuffle(struct cloud *cloud)
{
    for (i64 i = cloud->cells_count - 1; i > 0; i--) {
        i64 j = below(cloud, (i32)i + 1);
        i32 cell[4];
        memcpy(cell, cloud->cells[i], sizeof cell);
        memcpy(cloud->cells[i], cloud->cells[j], sizeof cell);
        memcpy(cloud->cells[j], cell, sizeof cell);
    }
}

static void pick_samples(struct cloud *cloud, i32 columns)
{
    static const i32 some[] = {0, 0, 1, 2, 100, VX_SAMPLE_MAX - 1};
    cloud->samples_count = columns == 3 ? 1 : 1 + below(cloud, 3);
    cloud->samples[0] = columns == 3 ? 0 : some[below(cloud, 6)];
    cloud->samples[1] = cloud->samples[0] + 1;
    cloud->samples[2] = (cloud->samples[0] + 3) % (VX_SAMPLE_MAX + 1);
}

/* Sets coords and voxels of the item. */
static void make_coords(struct cloud *cloud, struct vx_random_request *request, i64 n_max)
{
    struct vx_item *item = &request->item;
    item->coords_columns = 3 + below(cloud, 2);
    cloud->kind = (enum kind)below(cloud, KINDS);
    cloud->cells = vx_alloc(CELLS_MAX * sizeof *cloud->cells);
    VX_ASSERT(cloud->cells);
    pick_samples(cloud, item->coords_columns);
    pick_sides(cloud);
    pick_place(cloud);
    part(cloud);
    make_cells(cloud);
    if (below(cloud, 4)) shuffle(cloud);
    i64 n = cloud->cells_count < n_max ? cloud->cells_count : n_max;
    if (n && !below(cloud, 3)) n = 1 + below(cloud, (i32)n);
    request->coords = vx_alloc_zero((size_t)n * sizeof(i32[4]) + 1);
    VX_ASSERT(request->coords);
    for (i64 i = 0; i < n; i++)
        memcpy(request->coords + i * item->coords_columns,
               cloud->cells[i] + 4 - item->coords_columns,
               (size_t)item->coords_columns * sizeof(i32));
    item->coords = request->coords;
    item->voxels = n;
    vx_free(cloud->cells);
}

/* Multiples of 1/64 below 2: exact in every type. */
static void make_feats(struct cloud *cloud, struct vx_random_request *request)
{
    static const enum vx_dtype dtypes[] = {VX_DTYPE_F32, VX_DTYPE_F16, VX_DTYPE_BF16};
    struct vx_item *item = &request->item;
    i64 count = item->voxels * cloud->network->feats_channels;
    request->feats = vx_alloc_zero((size_t)count * sizeof *request->feats + 1);
    request->halves = vx_alloc_zero((size_t)count * sizeof *request->halves + 1);
    VX_ASSERT(request->feats && request->halves);
    item->feats_dtype = dtypes[below(cloud, 3)];
    for (i64 i = 0; i < count; i++) {
        i32 number =
            cloud->network->positive ? 1 + below(cloud, 127) : below(cloud, 255) - 127;
        f32 value = (f32)number / 64;
        request->feats[i] = value;
        request->halves[i] =
            item->feats_dtype == VX_DTYPE_F16 ? vx_test_f16(value) : vx_test_bf16(value);
    }
    item->feats = item->feats_dtype == VX_DTYPE_F32 ? (const void *)request->feats
                                                    : (const void *)request->halves;
}

/* Memory for an output of so many rows, which `item` and the request point to. */
static void output_make(struct vx_random_request *request, i32 o, i64 rows,
                        struct vx_item *item)
{
    VX_ASSERT(!request->item.outputs[o]);
    request->bytes[o] = (size_t)(rows * request->network->channels[o]) * sizeof(f32);
    request->item.outputs[o] = vx_alloc_zero(request->bytes[o] + 1);
    VX_ASSERT(request->item.outputs[o]);
    item->outputs[o] = request->item.outputs[o];
}

struct vx_random_request *vx_random_request_open(const struct vx_random_network *network,
                                                 u64 seed, i64 n_max)
{
    struct vx_random_request *request = vx_alloc_zero(sizeof *request);
    struct cloud cloud = {.network = network};
    VX_ASSERT(request);
    cloud.random.state = seed * UINT64_C(0x2545f4914f6cdd1d) + 2;
    make_coords(&cloud, request,
                n_max < network->voxels_max ? n_max : network->voxels_max);
    make_feats(&cloud, request);
    request->network = network;
    for (i32 i = 0; i < network->outputs_count + network->coords_count; i++)
        if (!network->sets[i])
            output_make(request, i, request->item.voxels, &request->item);
        else if (below(&cloud, 100) < 85)
            request->item.asks |= 1u << i;
    return request;
}

void vx_random_request_place(struct vx_random_request *request, struct vx_item *item)
{
    for (i32 i = 0; i < VX_OUTPUTS_MAX; i++)
        if (item->asks >> i & 1) output_make(request, i, item->rows[i], item);
}

void vx_random_request_close(struct vx_random_request **request)
{
    for (i32 i = 0; i < VX_OUTPUTS_MAX; i++) vx_free((*request)->item.outputs[i]);
    vx_free((*request)->coords);
    vx_free((*request)->feats);
    vx_free((*request)->halves);
    vx_free(*request);
    *request = NULL;
}
