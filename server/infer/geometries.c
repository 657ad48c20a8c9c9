/* SPDX-License-Identifier: Apache-2.0 */
#include "server/infer/geometries.h"

#include "engine/base/memory/shares.h"
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"

/* As many chains as entries, so that a chain has one entry on average.  A coords_ref is a
 * hash with a secret key, so no client can make long chains. */
#define CHAINS VX_GEOMETRIES_MAX
#define NONE   (-1)

struct row {
    struct vx_coords_ref coords_ref;
    struct vx_geometry_fact fact;
    i32 chain_next; /* in its chain; of a free entry: the next free one */
};

struct vx_geometries {
    i32 count, free; /* entries in use; first free entry */
    struct vx_shares *shares;
    i32 chains[CHAINS];
    struct row rows[VX_GEOMETRIES_MAX];
};

_Static_assert((CHAINS & (CHAINS - 1)) == 0, "a chain is picked by a mask");
_Static_assert(VX_WORKERS_MAX <= 32, "a fact has a bit for each worker");

vx_status vx_geometries_open(struct vx_geometries **geometries)
{
    struct vx_geometries *g = vx_alloc_zero(sizeof *g);
    VX_ENSURE(g, RESOURCE_EXHAUSTED, "no memory for the table of geometries");
    for (i32 c = 0; c < CHAINS; c++) g->chains[c] = NONE;
    for (i32 r = 0; r < VX_GEOMETRIES_MAX; r++)
        g->rows[r].chain_next = r + 1 < VX_GEOMETRIES_MAX ? r + 1 : NONE;
    vx_status status =
        vx_shares_open(VX_GEOMETRIES_MAX, VX_SHARE_ENTRIES + 1, &g->shares);
    *geometries = g;
    if (status.fault) vx_geometries_close(geometries);
    return status;
}

void vx_geometries_close(struct vx_geometries **geometries)
{
    struct vx_geometries *g = *geometries;
    *geometries = NULL;
    if (!g) return;
    vx_shares_close(&g->shares);
    vx_free(g);
}

static i32 *chain_of(struct vx_geometries *g, struct vx_coords_ref coords_ref)
{
    return &g->chains[coords_ref.low & (CHAINS - 1)];
}

/* The link that has the entry's index, or the end of its chain. */
static i32 *row_link(struct vx_geometries *g, struct vx_coords_ref coords_ref)
{
    i32 *link = chain_of(g, coords_ref);
    while (*link != NONE && !vx_coords_ref_equal(g->rows[*link].coords_ref, coords_ref))
        link = &g->rows[*link].chain_next;
    return link;
}

/* A request of `origin` uses the row: it is the last that was used. */
static void row_use(struct vx_geometries *g, i32 r, u64 origin)
{
    vx_shares_ask(g->shares, origin, vx_clock_ns());
    vx_shares_use(g->shares, r, origin);
    vx_shares_rest(g->shares, r);
}

static void row_drop(struct vx_geometries *g, i32 *link)
{
    i32 r = *link;
    *link = g->rows[r].chain_next;
    vx_shares_remove(g->shares, r);
    g->rows[r] = (struct row){.chain_next = g->free};
    g->free = r;
    g->count--;
}

static i32 row_add(struct vx_geometries *g, struct vx_coords_ref coords_ref, u64 origin)
{
    vx_shares_ask(g->shares, origin, vx_clock_ns());
    if (g->free == NONE) {
        i32 victim = vx_shares_victim(g->shares, VX_SHARE_ENTRIES, origin, 1);
        row_drop(g, row_link(g, g->rows[victim].coords_ref));
    }
    i32 r = g->free, *chain = chain_of(g, coords_ref);
    g->free = g->rows[r].chain_next;
    g->rows[r] = (struct row){.coords_ref = coords_ref, .chain_next = *chain};
    *chain = r;
    vx_shares_add(g->shares, r, origin);
    vx_shares_rest(g->shares, r);
    g->count++;
    return r;
}

void vx_geometries_kept(struct vx_geometries *geometries,
                        const struct vx_geometry_report *report)
{
    const struct vx_coords_ref coords_ref = report->coords_ref;
    VX_ASSERT(report->worker >= 0 && report->worker < VX_WORKERS_MAX);
    if (!vx_coords_ref_there(coords_ref)) return; /* a worker may report anything */
    struct vx_geometries *g = geometries;
    i32 r = *row_link(g, coords_ref);
    if (r == NONE)
        r = row_add(g, coords_ref, report->origin);
    else
        row_use(g, r, report->origin);
    struct vx_geometry_fact *fact = &g->rows[r].fact;
    fact->workers |= 1u << report->worker;
    fact->voxels = report->voxels;
    /* A model without a neighbour map reports 0 and does not replace what another one
     * costs. */
    if (report->cost.pairs > 0) fact->cost = report->cost;
}

bool vx_geometries_find(struct vx_geometries *geometries, struct vx_coords_ref coords_ref,
                        u64 origin, struct vx_geometry_fact *fact)
{
    i32 r = *row_link(geometries, coords_ref);
    if (r == NONE) return false;
    row_use(geometries, r, origin);
    *fact = geometries->rows[r].fact;
    return true;
}

void vx_geometries_gone(struct vx_geometries *geometries, struct vx_coords_ref coords_ref,
                        i32 worker)
{
    VX_ASSERT(worker >= 0 && worker < VX_WORKERS_MAX);
    i32 *link = row_link(geometries, coords_ref);
    if (*link == NONE) return;
    struct vx_geometry_fact *fact = &geometries->rows[*link].fact;
    fact->workers &= ~(1u << worker);
    if (!fact->workers) row_drop(geometries, link);
}

void vx_geometries_worker_down(struct vx_geometries *geometries, i32 worker)
{
    struct vx_geometries *g = geometries;
    for (i32 r = 0; r < VX_GEOMETRIES_MAX && g->count; r++)
        if (g->rows[r].fact.workers) vx_geometries_gone(g, g->rows[r].coords_ref, worker);
}

i32 vx_geometries_count(const struct vx_geometries *geometries)
{
    return geometries->count;
}
