/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/limits.h"
#include "engine/gpu/geometry/levels.h"
#include "tests/oracle/cases.h"
#include "tests/oracle/clouds.h"
#include "tests/support/level_truth.h"

#include <string.h>

/* Device memory of a round; each is poisoned only as far as it is used. */
#define DEVICE_BYTES ((size_t)256 << 20)
#define SETS_MAX     6
#define REQUESTS_MAX 8

/* The sets and maps of a network, on one round of requests. */
struct network {
    const char *name;
    i32 sets_count;
    struct vx_set_key sets[SETS_MAX];
    i32 maps_count;
    struct vx_map_key maps[12];
};

struct request {
    struct vx_cloud cloud;
    struct level_set truth[SETS_MAX];
    u64 *keys[SETS_MAX];   /* host: the voxel of each row */
    i32 *row_at[SETS_MAX]; /* host */
    i64 rows[SETS_MAX];
};

struct round {
    struct vx_rig *rig;
    const struct network *network;
    char label[VX_TRIAL_LABEL];
    struct vx_gpu_queue queue;
    struct vx_gpu_upload upload;
    u8 *device;
    size_t used;
    struct request requests[REQUESTS_MAX];
    i32 count;
    struct vx_gpu_index indices[REQUESTS_MAX];
    i64 rows_max[REQUESTS_MAX * SETS_MAX];
    struct vx_brick_set sets[REQUESTS_MAX * SETS_MAX];
    struct vx_gpu_levels levels;
    struct vx_why why;
};

/* --- memory --- */

static void need(struct round *round, vx_status status)
{
    vx_rig_need(round->rig, status, &round->why);
}

/* Poisoned device memory. */
static void *give(struct round *round, size_t bytes)
{
    u8 *at = round->device + round->used;
    bytes = vx_round_up(bytes + VX_GPU_LINE_BYTES, VX_GPU_LINE_BYTES);
    round->used += bytes;
    if (round->used > DEVICE_BYTES) vx_rig_fail(round->rig, "a round is too large");
    const struct vx_gpu_words words = {at, 0x7fff7fff, bytes};
    need(round,
         vx_gpu_fill(round->rig->bench.gpu, round->queue.stream, &words, &round->why));
    return at;
}

static void *put(struct round *round, const void *host, size_t bytes)
{
    const struct vx_gpu_copy copy = {give(round, bytes), host, bytes};
    need(round,
         vx_gpu_copy_in(round->rig->bench.gpu, round->queue.stream, &copy, &round->why));
    return copy.to;
}

static void *get(struct round *round, const void *device, size_t bytes)
{
    const struct vx_gpu_copy copy = {vx_rig_take(round->rig, bytes), device, bytes};
    need(round,
         vx_gpu_copy_out(round->rig->bench.gpu, round->queue.stream, &copy, &round->why));
    need(round,
         vx_gpu_stream_wait(round->rig->bench.gpu, round->queue.stream, &round->why));
    return copy.to;
}

static void round_open(struct vx_rig *rig, const struct network *network,
                       struct round *round)
{
    *round = (struct round){.rig = rig, .network = network};
    round->queue =
        (struct vx_gpu_queue){.set = rig->bench.set, .stream = rig->bench.stream};
    round->device = vx_rig_device(rig, DEVICE_BYTES);
    round->upload = (struct vx_gpu_upload){.host = vx_rig_take(rig, VX_GPU_UPLOAD_BYTES),
                                           .device = give(round, VX_GPU_UPLOAD_BYTES),
                                           .bytes = VX_GPU_UPLOAD_BYTES};
}

/* --- sets --- */

static void request_add(struct round *round, enum vx_cloud_kind kind, i64 n)
{
    const struct network *network = round->network;
    struct request *it = &round->requests[round->count];
    vx_cloud_make(round->rig, kind, n, &it->cloud);
    for (i32 s = 0; s < network->sets_count; s++) {
        const struct vx_set_key *key = &network->sets[s];
        i64 room = s ? it->truth[key->from].n * level_truth_each(key) : n;
        it->truth[s].keys = vx_rig_take(round->rig, (size_t)room * sizeof(u64));
        if (s)
            level_truth_derive(&it->truth[key->from], key, &it->truth[s]);
        else
            level_truth_set(it->cloud.coords, it->cloud.columns, n, &it->truth[s]);
        /* Exactly what it needs, or more. */
        i64 spare = vx_rig_below(round->rig, 2) ? vx_rig_below(round->rig, n) : 0;
        round->rows_max[round->count * network->sets_count + s] =
            it->truth[s].n + (s ? spare : 0);
        if (it->truth[s].n + spare < 1)
            round->rows_max[round->count * network->sets_count + s] = 1;
    }
    round->count++;
}

/* The index of the request's voxels, then all other sets; nothing is waited for. */
static void sets_build(struct round *round)
{
    const struct network *network = round->network;
    for (i32 r = 0; r < round->count; r++) {
        const struct vx_cloud *cloud = &round->requests[r].cloud;
        const struct vx_gpu_coords coords = {
            put(round, cloud->coords, (size_t)(cloud->n * cloud->columns) * 4),
            cloud->columns,
            cloud->n,
            give(round, vx_gpu_index_bytes(cloud->n)),
            give(round, (size_t)cloud->n * 4),
            {0}};
        need(round,
             vx_gpu_index_build(&round->queue, &coords, &round->why, &round->indices[r]));
    }
    struct vx_gpu_levels *levels = &round->levels;
    *levels = (struct vx_gpu_levels){.keys = network->sets,
                                     .sets_count = network->sets_count,
                                     .requests_count = round->count,
                                     .rows_max = round->rows_max,
                                     .sets = round->sets};
    vx_gpu_levels_place(round->queue.set, levels, round->indices,
                        give(round, vx_gpu_levels_bytes(levels)));
    need(round, vx_gpu_levels_build(&round->queue, &round->upload, levels, &round->why));
}

/* Reads how many rows there are, and the voxel of each. */
static void sets_check(struct round *round)
{
    const i32 sets = round->network->sets_count;
    const void *counts =
        get(round, round->levels.counts, vx_gpu_levels_counts_bytes(&round->levels));
    for (i32 r = 0; r < round->count; r++)
        need(round, vx_gpu_levels_rows(&round->levels, r, counts, &round->why,
                                       round->requests[r].rows));
    for (i32 s = 0; s < sets; s++) {
        struct vx_gpu_level_keys keys[REQUESTS_MAX];
        for (i32 r = 0; r < round->count; r++) {
            i64 rows = round->requests[r].rows[s];
            keys[r] = (struct vx_gpu_level_keys){&round->sets[r * sets + s], rows,
                                                 give(round, (size_t)rows * 8)};
        }
        need(round, vx_gpu_level_keys_build(&round->queue, &round->upload, keys,
                                            round->count, &round->why));
        for (i32 r = 0; r < round->count; r++) {
            struct request *it = &round->requests[r];
            const char *wrong = "another number of rows";
            it->keys[s] = get(round, keys[r].keys, (size_t)it->rows[s] * 8);
            it->row_at[s] = vx_rig_take(round->rig, (size_t)it->truth[s].n * 4);
            if (it->rows[s] == it->truth[s].n)
                wrong = level_truth_rows(&it->truth[s], it->keys[s], it->row_at[s]);
            if (wrong)
                vx_rig_fail(round->rig, "levels, %s: request %d set %d: %s", round->label,
                            r, s, wrong);
        }
    }
}

/* --- maps --- */

static void map_check(struct round *round, i32 index, i32 request,
                      const struct vx_gpu_map *map)
{
    const struct vx_map_key *key = &round->network->maps[index];
    const struct request *it = &round->requests[request];
    const size_t rows = (size_t)it->rows[key->to];
    char text[LEVEL_TRUTH_TEXT];
    const struct level_truth_map truth = {
        .key = key,
        .from = &it->truth[key->from],
        .from_row_at = it->row_at[key->from],
        .rows = it->rows[key->to],
        .keys = it->keys[key->to],
        .nbr_stride = map->nbr_stride,
        .words = map->words,
        .nbr = get(round, map->nbr, rows * (size_t)map->nbr_stride * 4),
        .masks =
            map->masks ? get(round, map->masks, rows * (size_t)map->words * 4) : NULL,
        .pairs = map->pairs ? get(round, map->pairs, 8) : NULL};
    const char *wrong = level_truth_map(&truth, text);
    if (wrong)
        vx_rig_fail(round->rig, "levels, %s: request %d map %d: %s", round->label,
                    request, index, wrong);
}

static void maps_check(struct round *round, i32 index)
{
    const struct vx_map_key *key = &round->network->maps[index];
    const i32 sets = round->network->sets_count;
    struct vx_gpu_level_map maps[REQUESTS_MAX];
    struct vx_gpu_map placed[REQUESTS_MAX];
    const size_t used = round->used;
    for (i32 r = 0; r < round->count; r++) {
        const struct request *it = &round->requests[r];
        const i64 rows = it->rows[key->to];
        vx_gpu_level_map_place(rows, key, give(round, vx_gpu_level_map_bytes(rows, key)),
                               &placed[r]);
        maps[r] = (struct vx_gpu_level_map){&round->sets[r * sets + key->from],
                                            &round->sets[r * sets + key->to],
                                            it->rows[key->from], rows, &placed[r]};
    }
    const struct vx_gpu_level_maps all = {key, maps, round->count};
    need(round,
         vx_gpu_level_maps_build(&round->queue, &round->upload, &all, &round->why));
    for (i32 r = 0; r < round->count; r++) map_check(round, index, r, &placed[r]);
    round->used = used;
    round->upload.used = 0;
}

/* --- networks --- */

#define FLOOR_SET(from_)                                                                 \
    {                                                                                    \
        {1, 1, 1}, {1, 1, 1}, {2, 2, 2}, {0, 0, 0}, {0, 0, 0}, VX_SET_FLOOR, from_, 0, 0 \
    }
#define K2(kind_, from_, to_)                                                            \
    {                                                                                    \
        {2, 2, 2}, {1, 1, 1}, {2, 2, 2}, {0, 0, 0}, kind_, from_, to_                    \
    }
#define K3(kind_, from_, to_)                                                            \
    {                                                                                    \
        {3, 3, 3}, {1, 1, 1}, {2, 2, 2}, {1, 1, 1}, kind_, from_, to_                    \
    }
#define SUBM(set_)                                                                       \
    {                                                                                    \
        {3, 3, 3}, {1, 1, 1}, {0, 0, 0}, {0, 0, 0}, VX_MAP_SUBM, set_, set_              \
    }
#define BLOCK(kind_, from_, to_)                                                         \
    {                                                                                    \
        {1, 1, 1}, {1, 1, 1}, {2, 2, 2}, {0, 0, 0}, kind_, from_, to_                    \
    }
static const struct network networks[] = {
    {"MinkUNet",
     5,
     {{.rule = VX_SET_REQUEST}, FLOOR_SET(0), FLOOR_SET(1), FLOOR_SET(2), FLOOR_SET(3)},
     12,
     {SUBM(0), SUBM(1), SUBM(4), K2(VX_MAP_DOWN, 0, 1), K2(VX_MAP_DOWN, 1, 2),
      K2(VX_MAP_DOWN, 3, 4), K2(VX_MAP_UP, 1, 0), K2(VX_MAP_UP, 4, 3),
      BLOCK(VX_MAP_PARENT, 1, 0), BLOCK(VX_MAP_CHILD, 2, 1), K3(VX_MAP_DOWN, 0, 1),
      K3(VX_MAP_UP, 1, 0)}},
    {"SECOND",
     4,
     {{.rule = VX_SET_REQUEST},
      {{3, 3, 3},
       {1, 1, 1},
       {2, 2, 2},
       {1, 1, 1},
       {400, 400, 21},
       VX_SET_SPCONV,
       0,
       0,
       0},
      {{3, 3, 3},
       {1, 1, 1},
       {2, 2, 2},
       {0, 1, 1},
       {200, 200, 11},
       VX_SET_SPCONV,
       1,
       0,
       0},
      {{3, 1, 1},
       {1, 1, 1},
       {2, 1, 1},
       {0, 0, 0},
       {99, 200, 11},
       VX_SET_SPCONV,
       2,
       0,
       0}},
     6,
     {K3(VX_MAP_DOWN, 0, 1),
      SUBM(1),
      {{3, 3, 3}, {1, 1, 1}, {2, 2, 2}, {0, 1, 1}, VX_MAP_DOWN, 1, 2},
      SUBM(2),
      {{3, 1, 1}, {1, 1, 1}, {2, 1, 1}, {0, 0, 0}, VX_MAP_DOWN, 2, 3},
      K3(VX_MAP_UP, 1, 0)}},
    {"generative",
     4,
     {{.rule = VX_SET_REQUEST},
      {{2, 2, 2}, {1, 1, 1}, {2, 2, 2}, {0, 0, 0}, {0, 0, 0}, VX_SET_EXPAND, 0, 0, 0},
      FLOOR_SET(0),
      {{3, 3, 1}, {1, 1, 1}, {2, 2, 1}, {1, 1, 0}, {0, 0, 0}, VX_SET_EXPAND, 2, 0, 0}},
     6,
     {K2(VX_MAP_UP, 0, 1),
      SUBM(1),
      BLOCK(VX_MAP_CHILD, 0, 1),
      K2(VX_MAP_DOWN, 0, 2),
      {{3, 3, 1}, {1, 1, 1}, {2, 2, 1}, {1, 1, 0}, VX_MAP_UP, 2, 3},
      SUBM(3)}},
};

static void round_case(struct vx_rig *rig, const struct network *network, i32 turn)
{
    static const i64 sizes[] = {848, 1, 33, 2048, 100, 12345, 7, 511};
    static const i32 counts[] = {1, 5, REQUESTS_MAX, 2};
    struct round *round = vx_rig_take(rig, sizeof *round);
    struct vx_trial words = {.count = 0};
    round_open(rig, network, round);
    vx_trial_label(&words, "%s turn %d", network->name, turn);
    memcpy(round->label, words.label, sizeof round->label);
    for (i32 i = 0; i < counts[turn % 4]; i++) {
        i64 n = sizes[(turn * 3 + i) % 8];
        if (rig->size != VX_RIG_FULL && n > 3000) n = 2500;
        request_add(round, (enum vx_cloud_kind)((turn + i) % VX_CLOUD_KINDS), n);
    }
    /* Without room for descriptions all is built one by one. */
    if (turn % 5 == 4) round->upload.bytes = 100;
    rig->trials++;
    const i64 failures = rig->failures;
    sets_build(round);
    sets_check(round);
    for (i32 m = 0; m < network->maps_count && rig->failures == failures; m++)
        maps_check(round, m);
}

void vx_cases_level_rounds(struct vx_rig *rig)
{
    const i32 turns = rig->size == VX_RIG_FULL ? 24 : rig->size == VX_RIG_FAKE ? 8 : 2;
    if (!vx_rig_wants(rig, "levels")) return;
    for (size_t n = 0; n < VX_COUNT(networks); n++)
        for (i32 turn = 0; turn < turns; turn++) {
            round_case(rig, &networks[n], turn);
            vx_rig_reset(rig);
        }
}
