/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/voxels.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"

#include <math.h>
#include <string.h>

u64 voxels_next(struct voxels_random *random)
{
    u64 z = random->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

i32 voxels_between(struct voxels_random *random, i32 least, i32 most)
{
    u64 span = (u64)((i64)most - least) + 1;
    return (i32)((i64)(voxels_next(random) % span) + least);
}

f32 voxels_unit(struct voxels_random *random)
{
    return (f32)((f64)(voxels_next(random) >> 40) / 8388608.0 - 1.0);
}

void voxels_fill(struct voxels_random *random, f32 *values, i64 count)
{
    for (i64 e = 0; e < count; e++) values[e] = voxels_unit(random);
}

i64 voxels_shell(i32 res, i32 *coords)
{
    f64 most = res / 2.0;
    f64 least = most - 1.25;
    i64 n = 0;
    for (i32 x = 0; x < res; x++) {
        for (i32 y = 0; y < res; y++) {
            for (i32 z = 0; z < res; z++) {
                f64 dx = x - most + 0.5;
                f64 dy = y - most + 0.5;
                f64 dz = z - most + 0.5;
                f64 distance = sqrt(dx * dx + dy * dy + dz * dz);
                if (distance > most || distance < least) continue;
                if (coords)
                    memcpy(coords + n * 4, (i32[]){0, x, y, z}, 4 * sizeof *coords);
                n++;
            }
        }
    }
    return n;
}

static u64 voxel_number(const i32 *row)
{
    return (u64)(row[1] + 4096) << 40 | (u64)(row[2] + 4096) << 20 | (u64)(row[3] + 4096);
}

/* Adds a voxel's number to a hash table; false when it was there. */
static bool table_add(u64 *table, u64 slots, u64 number)
{
    u64 slot = number * UINT64_C(0x9e3779b97f4a7c15) >> 20 & (slots - 1);
    while (table[slot]) {
        if (table[slot] == number) return false;
        slot = (slot + 1) & (slots - 1);
    }
    table[slot] = number;
    return true;
}

void voxels_scan(struct voxels_random *random, i64 n, i32 *coords)
{
    u64 slots = UINT64_C(1) << (vx_bit_length((u64)n) + 1);
    u64 *table = vx_alloc_zero(slots * sizeof *table);
    VX_ASSERT(table);
    for (i64 row = 0; row < n;) {
        f64 angle =
            6.283185307 * (f64)(row % 2048) / 2048 + 1e-3 * (f64)voxels_unit(random);
        f64 range = 20.0 * exp(1.5 * (f64)voxels_unit(random));
        f64 wall = 200.0 / (fabs(cos(angle)) + fabs(sin(angle)));
        bool hits_wall = range > wall;
        if (hits_wall) range = wall;
        i32 at[4] = {0, (i32)lround(range * cos(angle)), (i32)lround(range * sin(angle)),
                     0};
        at[3] = hits_wall ? voxels_between(random, -15, 40)
                          : voxels_between(random, -16, -14);
        /* An eighth of the voxels is higher up, so that a full region does not stop the loop. */
        if (voxels_next(random) % 8 == 0) at[3] += voxels_between(random, 0, 400);
        if (!table_add(table, slots, voxel_number(at))) continue;
        memcpy(coords + row * 4, at, sizeof at);
        row++;
    }
    vx_free(table);
}

void voxels_shuffle(struct voxels_random *random, i32 *coords, i64 n)
{
    for (i64 i = n - 1; i > 0; i--) {
        i64 j = (i64)(voxels_next(random) % (u64)(i + 1));
        i32 row[4];
        memcpy(row, coords + i * 4, sizeof row);
        memcpy(coords + i * 4, coords + j * 4, sizeof row);
        memcpy(coords + j * 4, row, sizeof row);
    }
}
