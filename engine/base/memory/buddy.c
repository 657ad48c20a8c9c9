/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/memory/buddy.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"

#include <string.h>

/* A complete binary tree over the units, in one array: node 1 is the whole range, the
 * halves of node i are 2i and 2i + 1, the leaves are the units.  A node's value is the
 * order of the largest free block below it, plus one; 0 = nothing is free.  A block of
 * order k has 2^k units. */
struct vx_buddy {
    u32 magic;
    u64 unit;
    u64 units; /* in the range; the tree may have more leaves */
    u64 used;
    int levels; /* order of the root */
    u8 *nodes;
};

#define BUDDY_MAGIC 0x76784244u /* "vxBD" */

#define UNITS_BITS_MAX 40 /* a petabyte in pages of 4 KiB is 2^38 units */

static u8 larger(u8 a, u8 b)
{
    return a > b ? a : b;
}

/* A node's value, from its halves: the node is wholly free when both halves are. */
static u8 node_join(const struct vx_buddy *buddy, u64 node, int order)
{
    u8 left = buddy->nodes[2 * node], right = buddy->nodes[2 * node + 1];
    return left == order && right == order ? (u8)(order + 1) : larger(left, right);
}

/* Changes the value of a node, and of those above it. */
static void node_set(struct vx_buddy *buddy, u64 node, int order, u8 value)
{
    buddy->nodes[node] = value;
    for (node /= 2, order++; node; node /= 2, order++)
        buddy->nodes[node] = node_join(buddy, node, order);
}

vx_status vx_buddy_open(u64 bytes, u64 unit, struct vx_buddy **buddy)
{
    *buddy = NULL;
    VX_ENSURE(unit && !(unit & (unit - 1)), INVALID_ARGUMENT,
              "the unit of a range must be a power of two");
    u64 units = bytes / unit;
    VX_ENSURE(units > 0, INVALID_ARGUMENT, "a range must hold at least one unit");
    int levels = vx_bit_length(units - 1);
    VX_ENSURE(levels <= UNITS_BITS_MAX, INVALID_ARGUMENT, "a range has too many units");
    u64 leaves = UINT64_C(1) << levels;
    struct vx_buddy *b = vx_alloc_zero(sizeof *b);
    u8 *nodes = vx_alloc_zero(2 * leaves);
    if (!b || !nodes) {
        vx_free(b);
        vx_free(nodes);
        VX_FAIL(RESOURCE_EXHAUSTED, "no memory for the table of a range");
    }
    *b = (struct vx_buddy){BUDDY_MAGIC, unit, units, 0, levels, nodes};
    memset(nodes + leaves, 1, units); /* leaves beyond the range are never free */
    for (int order = 1; order <= levels; order++) {
        u64 first = UINT64_C(1) << (levels - order);
        for (u64 node = first; node < 2 * first; node++)
            nodes[node] = node_join(b, node, order);
    }
    *buddy = b;
    return VX_OK;
}

void vx_buddy_close(struct vx_buddy **buddy)
{
    struct vx_buddy *it = *buddy;
    *buddy = NULL;
    if (!it) return;
    VX_ASSERT(it->magic == BUDDY_MAGIC);
    it->magic = 0;
    vx_free(it->nodes);
    vx_free(it);
}

/* The order of the smallest block that holds `bytes`. */
static int order_of(u64 unit, u64 bytes)
{
    u64 units = bytes / unit + (bytes % unit != 0);
    return units ? vx_bit_length(units - 1) : 0;
}

u64 vx_buddy_piece(u64 unit, u64 bytes)
{
    return unit << order_of(unit, bytes);
}

bool vx_buddy_could(const struct vx_buddy *buddy, u64 bytes)
{
    VX_ASSERT(buddy->magic == BUDDY_MAGIC);
    /* The largest block of a free range begins at offset 0. */
    return order_of(buddy->unit, bytes) < vx_bit_length(buddy->units);
}

bool vx_buddy_take(struct vx_buddy *buddy, u64 bytes, u64 *offset)
{
    VX_ASSERT(buddy->magic == BUDDY_MAGIC);
    int want = order_of(buddy->unit, bytes);
    if (want > buddy->levels || buddy->nodes[1] <= want) return false;
    u64 node = 1;
    int order = buddy->levels;
    for (; order > want; order--) node = 2 * node + (buddy->nodes[2 * node] <= want);
    *offset = (node - (UINT64_C(1) << (buddy->levels - order))) * buddy->unit << order;
    buddy->used += buddy->unit << order;
    node_set(buddy, node, order, 0);
    return true;
}

void vx_buddy_give(struct vx_buddy *buddy, u64 offset)
{
    u64 leaves = UINT64_C(1) << buddy->levels, unit = offset / buddy->unit;
    VX_ASSERT(buddy->magic == BUDDY_MAGIC);
    VX_ASSERT(offset % buddy->unit == 0);
    VX_ASSERT(unit < buddy->units);
    /* Goes up from the leaf to the node that was taken, which is the first with value 0:
     * the nodes below a taken node keep their values. */
    u64 node = leaves + unit;
    int order = 0;
    for (; buddy->nodes[node]; node /= 2, order++) {
        VX_ASSERT(node > 1);    /* else no block in use begins here */
        VX_ASSERT(!(node & 1)); /* a block begins at its leftmost unit */
    }
    buddy->used -= buddy->unit << order;
    node_set(buddy, node, order, (u8)(order + 1));
}

/* The order of the largest block that begins at a unit and has no more than `units`. */
static int order_at(const struct vx_buddy *buddy, u64 unit, u64 units)
{
    int order = vx_bit_length(units) - 1;
    if (order > buddy->levels) order = buddy->levels;
    while (unit & ((UINT64_C(1) << order) - 1)) order--;
    return order;
}

void vx_buddy_take_at(struct vx_buddy *buddy, u64 offset, u64 bytes)
{
    u64 unit = offset / buddy->unit, end = unit + (bytes + buddy->unit - 1) / buddy->unit;
    VX_ASSERT(buddy->magic == BUDDY_MAGIC);
    VX_ASSERT(offset % buddy->unit == 0);
    VX_ASSERT(end <= buddy->units);
    while (unit < end) {
        int order = order_at(buddy, unit, end - unit);
        u64 node = (UINT64_C(1) << (buddy->levels - order)) + (unit >> order);
        VX_ASSERT(buddy->nodes[node] == order + 1); /* all of it is free */
        for (u64 above = node / 2; above; above /= 2) VX_ASSERT(buddy->nodes[above]);
        buddy->used += buddy->unit << order;
        node_set(buddy, node, order, 0);
        unit += UINT64_C(1) << order;
    }
}

void vx_buddy_give_at(struct vx_buddy *buddy, u64 offset, u64 bytes)
{
    u64 unit = offset / buddy->unit, end = unit + (bytes + buddy->unit - 1) / buddy->unit;
    VX_ASSERT(end <= buddy->units);
    while (unit < end) {
        int order = order_at(buddy, unit, end - unit);
        vx_buddy_give(buddy, unit * buddy->unit);
        unit += UINT64_C(1) << order;
    }
}

u64 vx_buddy_used(const struct vx_buddy *buddy)
{
    VX_ASSERT(buddy->magic == BUDDY_MAGIC);
    return buddy->used;
}

u64 vx_buddy_largest(const struct vx_buddy *buddy)
{
    VX_ASSERT(buddy->magic == BUDDY_MAGIC);
    return buddy->nodes[1] ? buddy->unit << (buddy->nodes[1] - 1) : 0;
}
