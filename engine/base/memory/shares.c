/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/memory/shares.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"

#include <string.h>

#define SHARES_MAGIC 0x76785348u /* "vxSH" */

#define NONE VX_SHARES_NONE

struct entry {
    i32 origin;       /* its row; NONE: absent */
    i32 older, newer; /* resting entries of the origin, by last use */
    bool rests;
    u64 rested; /* when, by `rests` of the shares */
};

struct origin {
    u64 id;
    i32 chain; /* next with the same hash, or next free */
    i32 entries;
    i32 oldest, newest; /* of its resting entries */
    i32 calmer, busier; /* all origins, by last use */
    i64 used_ns;
    i64 has[VX_SHARE_KINDS];
    i32 at[VX_SHARE_KINDS]; /* in each heap; it is in all of them while an entry rests */
};

/* Of each kind a heap of the origins that can give, the one with the most on top. */
struct vx_shares {
    u32 magic;
    i32 entries_max, kinds;
    i64 now_ns;
    u64 rests; /* counts them: the clock of `rested` */
    i32 origins_count, origins_free;
    i32 calmest, busiest; /* ends of the list of origins */
    i32 heap_count;
    i32 *heaps[VX_SHARE_KINDS];
    i64 *has[VX_SHARE_KINDS]; /* of each entry; entries themselves are one each */
    i32 *chains;              /* as many as entries */
    struct entry *entries;
    struct origin *origins;
};

/* ------- a heap for each kind ------- */

/* Of those with as much, who has left an entry alone for longest. */
static bool gives_before(const struct vx_shares *s, i32 kind, i32 a, i32 b)
{
    const struct origin *one = &s->origins[a], *other = &s->origins[b];
    if (one->has[kind] != other->has[kind]) return one->has[kind] > other->has[kind];
    return s->entries[one->oldest].rested < s->entries[other->oldest].rested;
}

static void heap_put(struct vx_shares *s, i32 kind, i32 at, i32 origin)
{
    s->heaps[kind][at] = origin;
    s->origins[origin].at[kind] = at;
}

/* Moves the origin at that place to where it belongs. */
static void heap_sift(struct vx_shares *s, i32 kind, i32 at)
{
    i32 *heap = s->heaps[kind];
    const i32 origin = heap[at];
    for (; at && gives_before(s, kind, origin, heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap_put(s, kind, at, heap[(at - 1) / 2]);
    for (i32 child; (child = 2 * at + 1) < s->heap_count; at = child) {
        if (child + 1 < s->heap_count &&
            gives_before(s, kind, heap[child + 1], heap[child]))
            child++;
        if (!gives_before(s, kind, heap[child], origin)) break;
        heap_put(s, kind, at, heap[child]);
    }
    heap_put(s, kind, at, origin);
}

/* After its first entry has come to rest, or before its last one does not any more. */
static void heaps_add(struct vx_shares *s, i32 origin)
{
    const i32 last = s->heap_count++;
    for (i32 kind = 0; kind < s->kinds; kind++) {
        heap_put(s, kind, last, origin);
        heap_sift(s, kind, last);
    }
}

static void heaps_remove(struct vx_shares *s, i32 origin)
{
    const i32 last = --s->heap_count;
    for (i32 kind = 0; kind < s->kinds; kind++) {
        const i32 at = s->origins[origin].at[kind];
        if (at == last) continue;
        heap_put(s, kind, at, s->heaps[kind][last]);
        heap_sift(s, kind, at);
    }
}

/* ------- origins, by last use ------- */

static i32 *busier_link(struct vx_shares *s, i32 origin)
{
    return origin == NONE ? &s->calmest : &s->origins[origin].busier;
}

static i32 *calmer_link(struct vx_shares *s, i32 origin)
{
    return origin == NONE ? &s->busiest : &s->origins[origin].calmer;
}

static void uses_unlink(struct vx_shares *s, i32 origin)
{
    const struct origin *it = &s->origins[origin];
    *busier_link(s, it->calmer) = it->busier;
    *calmer_link(s, it->busier) = it->calmer;
}

static void uses_link(struct vx_shares *s, i32 origin)
{
    struct origin *it = &s->origins[origin];
    it->used_ns = s->now_ns;
    it->calmer = s->busiest;
    it->busier = NONE;
    *busier_link(s, s->busiest) = origin;
    s->busiest = origin;
}

static bool is_idle(const struct vx_shares *s, i32 origin)
{
    return s->now_ns - s->origins[origin].used_ns > VX_SHARES_IDLE_NS;
}

/* ------- origins, by name ------- */

/* The link that has the origin, or the end of its chain. */
static i32 *origin_link(const struct vx_shares *s, u64 id)
{
    i32 *link = &s->chains[id % (u64)s->entries_max];
    while (*link != NONE && s->origins[*link].id != id) link = &s->origins[*link].chain;
    return link;
}

static i32 origin_take(struct vx_shares *s, u64 id)
{
    i32 *link = origin_link(s, id);
    if (*link == NONE) {
        /* Each of the others has an entry, and this one is about to have one. */
        VX_ASSERT(s->origins_free != NONE);
        const i32 made = s->origins_free;
        s->origins_free = s->origins[made].chain;
        s->origins[made] =
            (struct origin){.id = id, .chain = NONE, .oldest = NONE, .newest = NONE};
        *link = made;
        uses_link(s, made);
        s->origins_count++;
    }
    return *link;
}

/* Forgets an origin that has nothing. */
static void origin_give(struct vx_shares *s, i32 origin)
{
    struct origin *it = &s->origins[origin];
    VX_ASSERT(!it->entries);
    VX_ASSERT(it->oldest == NONE);
    for (i32 kind = 0; kind < s->kinds; kind++) VX_ASSERT(!it->has[kind]);
    *origin_link(s, it->id) = it->chain;
    uses_unlink(s, origin);
    it->chain = s->origins_free;
    s->origins_free = origin;
    s->origins_count--;
}

/* ------- open and close ------- */

static void *table_open(i32 count, size_t bytes, bool *failed)
{
    void *table = vx_alloc_zero((size_t)count * bytes);
    *failed = *failed || !table;
    return table;
}

vx_status vx_shares_open(i32 entries_max, i32 kinds, struct vx_shares **shares)
{
    VX_ASSERT(entries_max > 0);
    VX_ASSERT(kinds > 0);
    VX_ASSERT(kinds <= VX_SHARE_KINDS);
    bool failed = false;
    *shares = NULL;
    struct vx_shares *s = vx_alloc_zero(sizeof *s);
    VX_ENSURE(s, RESOURCE_EXHAUSTED, "no memory for the shares of a cache");
    *s = (struct vx_shares){.magic = SHARES_MAGIC,
                            .entries_max = entries_max,
                            .kinds = kinds,
                            .calmest = NONE,
                            .busiest = NONE};
    s->chains = table_open(entries_max, sizeof *s->chains, &failed);
    s->entries = table_open(entries_max, sizeof *s->entries, &failed);
    s->origins = table_open(entries_max, sizeof *s->origins, &failed);
    for (i32 kind = 0; kind < kinds; kind++) {
        s->heaps[kind] = table_open(entries_max, sizeof *s->heaps[kind], &failed);
        s->has[kind] = table_open(entries_max, sizeof *s->has[kind], &failed);
    }
    *shares = s;
    if (failed) vx_shares_close(shares);
    VX_ENSURE(!failed, RESOURCE_EXHAUSTED, "no memory for the shares of a cache");
    for (i32 i = 0; i < entries_max; i++) {
        s->chains[i] = s->entries[i].origin = NONE;
        s->origins[i].chain = i + 1 < entries_max ? i + 1 : NONE;
    }
    return VX_OK;
}

void vx_shares_close(struct vx_shares **shares)
{
    struct vx_shares *s = *shares;
    *shares = NULL;
    if (!s) return;
    VX_ASSERT(s->magic == SHARES_MAGIC);
    s->magic = 0;
    for (i32 kind = 0; kind < s->kinds; kind++) {
        vx_free(s->heaps[kind]);
        vx_free(s->has[kind]);
    }
    vx_free(s->origins);
    vx_free(s->entries);
    vx_free(s->chains);
    vx_free(s);
}

void vx_shares_ask(struct vx_shares *shares, u64 origin, i64 now_ns)
{
    VX_ASSERT(shares->magic == SHARES_MAGIC);
    shares->now_ns = now_ns;
    const i32 there = *origin_link(shares, origin);
    if (there == NONE) return;
    uses_unlink(shares, there);
    uses_link(shares, there);
}

/* ------- entries ------- */

static struct entry *entry_of(const struct vx_shares *s, i32 entry)
{
    VX_ASSERT(s->magic == SHARES_MAGIC);
    VX_ASSERT(entry >= 0);
    VX_ASSERT(entry < s->entries_max);
    return &s->entries[entry];
}

static void entry_attach(struct vx_shares *s, i32 entry, u64 id)
{
    const i32 origin = origin_take(s, id);
    struct origin *it = &s->origins[origin];
    s->entries[entry].origin = origin;
    it->entries++;
    for (i32 kind = 0; kind < s->kinds; kind++) {
        it->has[kind] += s->has[kind][entry];
        if (it->oldest != NONE) heap_sift(s, kind, it->at[kind]);
    }
}

static void entry_detach(struct vx_shares *s, i32 entry)
{
    const i32 origin = s->entries[entry].origin;
    struct origin *it = &s->origins[origin];
    s->entries[entry].origin = NONE;
    it->entries--;
    for (i32 kind = 0; kind < s->kinds; kind++) {
        it->has[kind] -= s->has[kind][entry];
        if (it->oldest != NONE) heap_sift(s, kind, it->at[kind]);
    }
    if (!it->entries) origin_give(s, origin);
}

void vx_shares_add(struct vx_shares *shares, i32 entry, u64 origin)
{
    struct entry *it = entry_of(shares, entry);
    VX_ASSERT(it->origin == NONE);
    *it = (struct entry){.origin = NONE, .older = NONE, .newer = NONE};
    for (i32 kind = 0; kind < shares->kinds; kind++) shares->has[kind][entry] = 0;
    shares->has[VX_SHARE_ENTRIES][entry] = 1;
    entry_attach(shares, entry, origin);
}

void vx_shares_charge(struct vx_shares *shares, i32 entry, enum vx_share kind, i64 more)
{
    const struct entry *it = entry_of(shares, entry);
    VX_ASSERT(it->origin != NONE);
    VX_ASSERT(kind != VX_SHARE_ENTRIES);
    VX_ASSERT((i32)kind < shares->kinds);
    struct origin *origin = &shares->origins[it->origin];
    shares->has[kind][entry] += more;
    origin->has[kind] += more;
    VX_ASSERT(shares->has[kind][entry] >= 0);
    if (origin->oldest != NONE) heap_sift(shares, (i32)kind, origin->at[kind]);
}

void vx_shares_move(struct vx_shares *shares, i32 entry, u64 origin)
{
    const struct entry *it = entry_of(shares, entry);
    VX_ASSERT(it->origin != NONE);
    VX_ASSERT(!it->rests);
    if (shares->origins[it->origin].id == origin) return;
    entry_detach(shares, entry);
    entry_attach(shares, entry, origin);
}

static i32 *newer_link(struct vx_shares *s, struct origin *origin, i32 entry)
{
    return entry == NONE ? &origin->oldest : &s->entries[entry].newer;
}

static i32 *older_link(struct vx_shares *s, struct origin *origin, i32 entry)
{
    return entry == NONE ? &origin->newest : &s->entries[entry].older;
}

void vx_shares_rest(struct vx_shares *shares, i32 entry)
{
    struct entry *it = entry_of(shares, entry);
    VX_ASSERT(it->origin != NONE);
    VX_ASSERT(!it->rests);
    struct origin *origin = &shares->origins[it->origin];
    const bool first = origin->oldest == NONE;
    it->rests = true;
    it->rested = ++shares->rests;
    it->older = origin->newest;
    it->newer = NONE;
    *newer_link(shares, origin, origin->newest) = entry;
    origin->newest = entry;
    if (first) heaps_add(shares, it->origin);
}

/* No longer resting: the origin leaves the heaps, or what is its oldest may be another. */
static void entry_wake(struct vx_shares *s, i32 entry)
{
    struct entry *it = &s->entries[entry];
    struct origin *origin = &s->origins[it->origin];
    const bool oldest = origin->oldest == entry;
    const bool last = oldest && origin->newest == entry;
    if (last) heaps_remove(s, it->origin);
    it->rests = false;
    *newer_link(s, origin, it->older) = it->newer;
    *older_link(s, origin, it->newer) = it->older;
    for (i32 kind = 0; kind < s->kinds && oldest && !last; kind++)
        heap_sift(s, kind, origin->at[kind]);
}

void vx_shares_use(struct vx_shares *shares, i32 entry, u64 origin)
{
    const struct entry *it = entry_of(shares, entry);
    VX_ASSERT(it->rests);
    entry_wake(shares, entry);
    if (is_idle(shares, it->origin)) vx_shares_move(shares, entry, origin);
}

void vx_shares_remove(struct vx_shares *shares, i32 entry)
{
    const struct entry *it = entry_of(shares, entry);
    VX_ASSERT(it->origin != NONE);
    if (it->rests) entry_wake(shares, entry);
    entry_detach(shares, entry);
}

/* ------- who gives ------- */

i32 vx_shares_victim(const struct vx_shares *shares, enum vx_share kind, u64 origin,
                     i64 want)
{
    VX_ASSERT(shares->magic == SHARES_MAGIC);
    VX_ASSERT((i32)kind < shares->kinds);
    if (!shares->heap_count) return NONE;
    const struct origin *calmest = &shares->origins[shares->calmest];
    if (calmest->oldest != NONE && is_idle(shares, shares->calmest))
        return calmest->oldest;
    const struct origin *most = &shares->origins[shares->heaps[kind][0]];
    const i32 asks = *origin_link(shares, origin);
    if (asks == NONE) return most->oldest;
    const struct origin *own = &shares->origins[asks];
    const bool gives = own->oldest != NONE && own->has[kind] + want > most->has[kind];
    return gives ? own->oldest : most->oldest;
}

i32 vx_shares_origins(const struct vx_shares *shares)
{
    VX_ASSERT(shares->magic == SHARES_MAGIC);
    return shares->origins_count;
}

i64 vx_shares_has(const struct vx_shares *shares, u64 origin, enum vx_share kind)
{
    VX_ASSERT(shares->magic == SHARES_MAGIC);
    VX_ASSERT((i32)kind < shares->kinds);
    const i32 there = *origin_link(shares, origin);
    return there == NONE ? 0 : shares->origins[there].has[kind];
}
