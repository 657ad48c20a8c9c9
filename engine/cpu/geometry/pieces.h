/* pieces - cuts the voxels of a set into chunks, each of which writes to a place of its own.
 *
 * A first pass counts what each chunk writes, so that all know their places in the second.
 *
 *   struct vx_pieces pieces = vx_pieces_cut(cpu, n);
 *   ...each chunk writes its count to starts[piece]...
 *   i64 count = vx_pieces_sum(&pieces);              (starts[piece]: where it writes)
 *
 * Owner    a value.
 * Thread   any; the chunks of one cut may run on different threads.
 * Limits   VX_KEYS_PIECES_MAX chunks.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GEOMETRY_PIECES_H
#define VX_ENGINE_GEOMETRY_PIECES_H

#include "engine/cpu/device/cpu.h"
#include "engine/cpu/geometry/keys.h"

/* Fewest voxels of a chunk, and most while there are fewer than VX_KEYS_PIECES_MAX chunks: with each
 * the device's thread says that it goes on (cpu.h), and of one voxel 343 others may follow. */
#define VX_PIECES_ROWS_MIN 4096
#define VX_PIECES_ROWS_MAX 16384

struct vx_pieces {
    i64 rows; /* of one chunk */
    i64 count;
    i64 n;
    i64 starts[VX_KEYS_PIECES_MAX + 1];
};

static inline struct vx_pieces vx_pieces_cut(const struct vx_cpu *cpu, i64 n)
{
    struct vx_pieces pieces = {
        .rows = n,
        .n = n,
        .count = vx_keys_pieces(cpu, n, VX_PIECES_ROWS_MIN, VX_PIECES_ROWS_MAX)};
    if (!n) return pieces;
    pieces.rows = (n - 1) / pieces.count + 1;
    pieces.count = (n - 1) / pieces.rows + 1;
    return pieces;
}

/* The voxels of a chunk are begin to end - 1. */
static inline i64 vx_pieces_begin(const struct vx_pieces *pieces, i64 piece)
{
    return piece * pieces->rows;
}
static inline i64 vx_pieces_end(const struct vx_pieces *pieces, i64 piece)
{
    i64 end = (piece + 1) * pieces->rows;
    return end < pieces->n ? end : pieces->n;
}

/* Counts become places. */
static inline i64 vx_pieces_sum(struct vx_pieces *pieces)
{
    i64 sum = 0;
    for (i64 piece = 0; piece <= pieces->count; piece++) {
        i64 count = piece < pieces->count ? pieces->starts[piece] : 0;
        pieces->starts[piece] = sum;
        sum += count;
    }
    return sum;
}

/* The least and the greatest value of each field of keys. */
struct vx_pieces_bounds {
    i32 least[4], most[4];
};

static inline void vx_pieces_bounds_clear(struct vx_pieces_bounds *bounds)
{
    for (int field = 0; field < 4; field++)
        bounds->least[field] = INT32_MAX, bounds->most[field] = INT32_MIN;
}

static inline void vx_pieces_bounds_add(struct vx_pieces_bounds *bounds, int field,
                                        i32 value)
{
    if (value < bounds->least[field]) bounds->least[field] = value;
    if (value > bounds->most[field]) bounds->most[field] = value;
}

/* The scan of `count` keys, whose bounds the chunks have. */
static inline struct vx_keys_scan vx_pieces_scan(const struct vx_pieces *pieces,
                                                 const struct vx_pieces_bounds *bounds,
                                                 i64 count)
{
    struct vx_keys_scan scan = {.n = count};
    if (!count) return scan;
    for (int field = 0; field < 4; field++) {
        scan.least[field] = INT32_MAX;
        scan.most[field] = INT32_MIN;
        for (i64 piece = 0; piece < pieces->count; piece++) {
            const struct vx_pieces_bounds *it = &bounds[piece];
            if (it->least[field] < scan.least[field])
                scan.least[field] = it->least[field];
            if (it->most[field] > scan.most[field]) scan.most[field] = it->most[field];
        }
    }
    return scan;
}

#endif
