/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/render/render_parts.h"

#include "clients/c/memory.h"

static uint64_t brick_key(int32_t x, int32_t y, int32_t z)
{
    /* One brick of margin below zero, for the neighbours of the lowest voxels. */
    uint64_t bx = (uint64_t)(x + 8) >> 3;
    uint64_t by = (uint64_t)(y + 8) >> 3;
    uint64_t bz = (uint64_t)(z + 8) >> 3;
    return (bx | by << 21 | bz << 42) + 1;
}

static uint64_t brick_hash(uint64_t key)
{
    key *= 0x9e3779b97f4a7c15u;
    return key ^ key >> 29;
}

static int64_t brick_find(const struct grid *grid, uint64_t key)
{
    for (uint64_t at = brick_hash(key);; at++) {
        uint64_t slot = at & grid->mask;
        if (grid->keys[slot] == key || grid->keys[slot] == 0) return (int64_t)slot;
    }
}

bool grid_init(struct grid *grid, const int32_t *voxels, int64_t count)
{
    /* A first pass counts the bricks, so that a dense cloud gets a small table.  It needs
     * slots for the worst case, a brick for each voxel; a table is at most half full. */
    uint64_t slots = 64;
    while (slots < 2 * (uint64_t)count) slots *= 2;
    grid->mask = slots - 1;
    grid->keys = voxel_memory_take(slots, sizeof *grid->keys);
    if (!grid->keys) return false;
    uint64_t bricks = 0;
    for (int64_t i = 0; i < count; i++) {
        const int32_t *at = &voxels[3 * i];
        uint64_t key = brick_key(at[0], at[1], at[2]);
        int64_t slot = brick_find(grid, key);
        if (grid->keys[slot] == 0) bricks++;
        grid->keys[slot] = key;
    }
    voxel_memory_give(grid->keys);
    for (slots = 64; slots < 2 * bricks;) slots *= 2;
    grid->mask = slots - 1;
    grid->keys = voxel_memory_take(slots, sizeof *grid->keys);
    grid->bits = voxel_memory_take(slots, sizeof *grid->bits);
    if (!grid->keys || !grid->bits) return false;
    for (int64_t i = 0; i < count; i++) {
        const int32_t *at = &voxels[3 * i];
        uint64_t key = brick_key(at[0], at[1], at[2]);
        int64_t slot = brick_find(grid, key);
        grid->keys[slot] = key;
        grid->bits[slot][at[2] & 7] |= 1ull << ((at[1] & 7) * 8 + (at[0] & 7));
    }
    return true;
}

void grid_fini(struct grid *grid)
{
    voxel_memory_give(grid->keys);
    voxel_memory_give(grid->bits);
    *grid = (struct grid){0};
}

bool grid_has(const struct grid *grid, int32_t x, int32_t y, int32_t z)
{
    if (x < -8 || y < -8 || z < -8) return false;
    uint64_t key = brick_key(x, y, z);
    int64_t slot = brick_find(grid, key);
    if (grid->keys[slot] != key) return false;
    return grid->bits[slot][z & 7] >> ((y & 7) * 8 + (x & 7)) & 1;
}
