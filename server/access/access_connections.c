/* SPDX-License-Identifier: Apache-2.0 */
#include "server/access/access_connections.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"

vx_status vx_access_connections_open(struct vx_access_connections *all,
                                     i32 connections_max)
{
    u32 heads = 1;
    while (heads < (u32)connections_max) heads *= 2;
    *all = (struct vx_access_connections){.mask = heads - 1, .free = -1};
    all->rows = vx_alloc_zero((size_t)connections_max * sizeof *all->rows);
    all->heads = vx_alloc((size_t)heads * sizeof *all->heads);
    VX_ENSURE(all->rows && all->heads, RESOURCE_EXHAUSTED,
              "no memory for the limits of connections");
    for (u32 h = 0; h < heads; h++) all->heads[h] = -1;
    for (i32 r = connections_max - 1; r >= 0; r--) {
        all->rows[r].next = all->free;
        all->free = r;
    }
    return VX_OK;
}

void vx_access_connections_close(struct vx_access_connections *all)
{
    vx_free(all->rows);
    vx_free(all->heads);
    *all = (struct vx_access_connections){.free = -1};
}

/* Numbers are given in order, so their low bits spread them. */
static i32 *head_of(struct vx_access_connections *all, u64 number)
{
    return &all->heads[number & all->mask];
}

struct vx_access_connection *vx_access_connections_find(struct vx_access_connections *all,
                                                        u64 number)
{
    for (i32 r = *head_of(all, number); r >= 0; r = all->rows[r].next)
        if (all->rows[r].number == number) return &all->rows[r];
    return NULL;
}

struct vx_access_connection *
vx_access_connections_add(struct vx_access_connections *all, u64 number,
                          const struct vx_access_limit limits[VX_ACCESS_UNITS],
                          i64 now_ns)
{
    i32 r = all->free;
    VX_ASSERT(number);
    if (r < 0) return NULL;
    struct vx_access_connection *row = &all->rows[r];
    all->free = row->next;
    all->count++;
    row->number = number;
    row->next = *head_of(all, number);
    *head_of(all, number) = r;
    for (i32 u = 0; u < VX_ACCESS_UNITS; u++)
        vx_access_bucket_fill(&limits[u], &row->buckets[u], now_ns);
    return row;
}

void vx_access_connections_remove(struct vx_access_connections *all, u64 number)
{
    i32 *at = head_of(all, number);
    while (*at >= 0 && all->rows[*at].number != number) at = &all->rows[*at].next;
    i32 r = *at;
    if (r < 0) return;
    *at = all->rows[r].next;
    all->rows[r].number = 0;
    all->rows[r].next = all->free;
    all->free = r;
    all->count--;
}
