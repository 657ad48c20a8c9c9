/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tune/clouds.h"

#include "engine/base/limits.h"
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/tune/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM_FIRST   ((i64)1 << 16)
#define SHUFFLE_SEED 7

i32 vx_clouds_count(void)
{
    return vx_cloud_makers_count;
}

const char *vx_cloud_name(i32 which)
{
    VX_ASSERT(which >= 0);
    VX_ASSERT(which < vx_cloud_makers_count);
    return vx_cloud_makers[which].name;
}

void vx_cloud_add(struct vx_cloud_rows *to, i32 x, i32 y, i32 z)
{
    if (to->n == to->room) {
        i64 room = to->room ? 2 * to->room : ROOM_FIRST;
        i32 *rows = vx_alloc((size_t)room * 4 * sizeof *rows);
        to->lost |= !rows;
        if (!rows) return;
        if (to->n) memcpy(rows, to->rows, (size_t)to->n * 4 * sizeof *rows);
        vx_free(to->rows);
        to->rows = rows;
        to->room = room;
    }
    i32 *row = to->rows + 4 * to->n++;
    row[0] = 0, row[1] = x, row[2] = y, row[3] = z;
}

void vx_cloud_free(struct vx_cloud *cloud)
{
    vx_free(cloud->coords);
    *cloud = (struct vx_cloud){.coords = NULL};
}

/* --- rows in order --- */

/* A row as one number: sample, x, y, z from the highest bit down; and where it stands. */
struct sortable {
    u64 key;
    i64 at;
};

static u64 axis_bits(i32 value)
{
    return (u64)(value + (1 << (VX_AXIS_BITS - 1))) & (((u64)1 << VX_AXIS_BITS) - 1);
}

static u64 key_of(const i32 *row)
{
    u64 key = (u64)row[0];
    for (int axis = 1; axis < 4; axis++) key = key << VX_AXIS_BITS | axis_bits(row[axis]);
    return key;
}

static int compare(const void *a, const void *b)
{
    const struct sortable *left = a, *right = b;
    if (left->key != right->key) return left->key < right->key ? -1 : 1;
    return (left->at > right->at) - (left->at < right->at);
}

/* Row numbers by key, equal keys in their order; NULL: no memory. */
static struct sortable *sorted(const i32 *rows, i64 n)
{
    struct sortable *list = vx_alloc((size_t)n * sizeof *list + 1);
    for (i64 i = 0; list && i < n; i++)
        list[i] = (struct sortable){key_of(rows + 4 * i), i};
    if (list) qsort(list, (size_t)n, sizeof *list, compare);
    return list;
}

vx_status vx_cloud_of_rows(const char *name, const i32 *rows, i64 n,
                           struct vx_cloud *cloud)
{
    *cloud = (struct vx_cloud){.n = 0};
    snprintf(cloud->name, sizeof cloud->name, "%s", name);
    struct sortable *list = sorted(rows, n);
    bool *first = vx_alloc_zero((size_t)n + 1);
    cloud->coords = vx_alloc((size_t)n * 4 * sizeof *rows + 1);
    bool good = list && first && cloud->coords;
    for (i64 i = 0; good && i < n; i++)
        first[list[i].at] = !i || list[i].key != list[i - 1].key;
    for (i64 i = 0; good && i < n; i++)
        if (first[i])
            memcpy(cloud->coords + 4 * cloud->n++, rows + 4 * i, 4 * sizeof *rows);
    vx_free(list);
    vx_free(first);
    if (!good) vx_cloud_free(cloud);
    VX_ENSURE(good, RESOURCE_EXHAUSTED, "no memory for a cloud to measure on");
    return VX_OK;
}

vx_status vx_cloud_made(i32 which, struct vx_cloud *cloud)
{
    struct vx_cloud_rows rows = {.n = 0};
    *cloud = (struct vx_cloud){.n = 0};
    const char *name = vx_cloud_name(which);
    vx_cloud_makers[which].make(&rows);
    vx_status status = VX_OK;
    if (!rows.lost) status = vx_cloud_of_rows(name, rows.rows, rows.n, cloud);
    vx_free(rows.rows);
    VX_ENSURE(!rows.lost, RESOURCE_EXHAUSTED, "no memory for a cloud to measure on");
    return status;
}

/* "room" is of level 1, "room/4" of level 4. */
static void level_name(const char *fine, char name[VX_CLOUD_NAME_BYTES])
{
    const char *slash = strrchr(fine, '/');
    int length = slash ? (int)(slash - fine) : (int)strlen(fine);
    long level = slash ? strtol(slash + 1, NULL, 10) : 1;
    snprintf(name, VX_CLOUD_NAME_BYTES, "%.*s/%ld", length > 16 ? 16 : length, fine,
             2 * level);
}

vx_status vx_cloud_level(const struct vx_cloud *fine, struct vx_cloud *coarse)
{
    char name[VX_CLOUD_NAME_BYTES];
    i32 *rows = vx_alloc((size_t)fine->n * 4 * sizeof *rows + 1);
    *coarse = (struct vx_cloud){.n = 0};
    VX_ENSURE(rows, RESOURCE_EXHAUSTED, "no memory for a cloud to measure on");
    for (i64 i = 0; i < 4 * fine->n; i++)
        rows[i] = i % 4 ? fine->coords[i] >> 1 : fine->coords[i]; /* floor of a half */
    level_name(fine->name, name);
    vx_status status = vx_cloud_of_rows(name, rows, fine->n, coarse);
    vx_free(rows);
    return status;
}

static void swap_rows(i32 *a, i32 *b)
{
    i32 kept[4];
    memcpy(kept, a, sizeof kept);
    memmove(a, b, sizeof kept);
    memcpy(b, kept, sizeof kept);
}

vx_status vx_cloud_arrange(struct vx_cloud *cloud, enum vx_cloud_order order)
{
    u64 state = SHUFFLE_SEED;
    if (order == VX_CLOUD_SHUFFLED)
        for (i64 i = cloud->n - 1; i > 0; i--)
            swap_rows(cloud->coords + 4 * i,
                      cloud->coords + 4 * (i64)(vx_data_next(&state) % (u64)(i + 1)));
    if (order != VX_CLOUD_SORTED) return VX_OK;
    struct sortable *list = sorted(cloud->coords, cloud->n);
    i32 *rows = vx_alloc((size_t)cloud->n * 4 * sizeof *rows + 1);
    for (i64 i = 0; list && rows && i < cloud->n; i++)
        memcpy(rows + 4 * i, cloud->coords + 4 * list[i].at, 4 * sizeof *rows);
    bool good = list && rows;
    vx_free(list);
    vx_free(good ? cloud->coords : rows);
    if (good) cloud->coords = rows;
    VX_ENSURE(good, RESOURCE_EXHAUSTED, "no memory to sort a cloud");
    return VX_OK;
}
