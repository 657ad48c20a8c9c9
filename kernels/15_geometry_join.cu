/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/turn.cuh"
#include "kernels/waves.cuh"

#include "kernels/15_geometry_join.h"

/* The way of one thread over the units of its block's piece. */
struct walk {
    int64_t piece;
    int64_t unit, step;
};

/* The piece is the last whose share begins at or before this block; an empty share begins
 * where the next one does.  Every lane of a wave must call it. */
VX_DEVICE struct walk walk_begin(const struct vx_join_share *shares, int64_t count)
{
    struct walk walk = {-1, 0, 0};
    for (int64_t first = 0; first < count; first += VX_WAVE) {
        int64_t at = first + vx_lane();
        int begun = at < count && shares[at].first <= vx_block_x();
        walk.piece += vx_count_bits64(vx_ballot(begun));
    }
    struct vx_join_share share = shares[walk.piece];
    walk.unit = (int64_t)(vx_block_x() - share.first) * VX_JOIN_CHUNK + vx_thread();
    walk.step = (int64_t)share.blocks * VX_JOIN_CHUNK;
    return walk;
}

/* --- joined --- */

VX_KERNEL(VX_JOIN_THREADS, 4) join_rows(const struct vx_join_rows_args args)
{
    vx_turn();
    struct walk walk = walk_begin(args.shares, args.count);
    struct vx_join_rows_piece piece = args.pieces[walk.piece];
    int32_t *to = args.rows + piece.base;
    for (; walk.unit < piece.n; walk.unit += walk.step) {
        int32_t rows[VX_JOIN_ROUNDS];
        VX_UNROLL
        for (int32_t k = 0; k < VX_JOIN_ROUNDS; k++) {
            int64_t at = walk.unit + k * VX_JOIN_THREADS;
            rows[k] = at < piece.n ? piece.rows[at] : 0;
        }
        VX_UNROLL
        for (int32_t k = 0; k < VX_JOIN_ROUNDS; k++) {
            int64_t at = walk.unit + k * VX_JOIN_THREADS;
            if (at < piece.n) to[at] = rows[k] + (int32_t)piece.base;
        }
    }
}

VX_DEVICE uint32_t raised(uint32_t row, uint32_t by)
{
    return (int32_t)row < 0 ? ~0u : row + by;
}

/* Copies the masks.  On either side they may begin at any word, and they are a 28th of
 * the map's bytes with 3^3, so they are copied word by word. */
VX_DEVICE void join_masks(const struct vx_join_map_args *args,
                          const struct vx_join_map_piece *piece, struct walk walk)
{
    int64_t words = piece->n * args->words;
    uint32_t *to = args->masks + piece->base * args->words;
    for (; walk.unit < words; walk.unit += walk.step) {
        uint32_t masks[VX_JOIN_ROUNDS];
        VX_UNROLL
        for (int32_t k = 0; k < VX_JOIN_ROUNDS; k++) {
            int64_t at = walk.unit + k * VX_JOIN_THREADS;
            masks[k] = at < words ? piece->masks[at] : 0;
        }
        VX_UNROLL
        for (int32_t k = 0; k < VX_JOIN_ROUNDS; k++) {
            int64_t at = walk.unit + k * VX_JOIN_THREADS;
            if (at < words) to[at] = masks[k];
        }
    }
}

VX_KERNEL(VX_JOIN_THREADS, 4) join_map(const struct vx_join_map_args args)
{
    vx_turn();
    struct walk walk = walk_begin(args.shares, args.count);
    struct vx_join_map_piece piece = args.pieces[walk.piece];
    uint32_t by = (uint32_t)piece.raise;
    int64_t quads = vx_join_quads(piece.n, args.nbr_stride);
    const struct vx_words4 *from = (const struct vx_words4 *)piece.nbr;
    struct vx_words4 *to = (struct vx_words4 *)(args.nbr + piece.base * args.nbr_stride);
    join_masks(&args, &piece, walk);
    for (; walk.unit < quads; walk.unit += walk.step) {
        struct vx_words4 rows[VX_JOIN_ROUNDS];
        VX_UNROLL
        for (int32_t k = 0; k < VX_JOIN_ROUNDS; k++) {
            int64_t at = walk.unit + k * VX_JOIN_THREADS;
            struct vx_words4 none = {0, 0, 0, 0};
            rows[k] = at < quads ? from[at] : none;
        }
        VX_UNROLL
        for (int32_t k = 0; k < VX_JOIN_ROUNDS; k++) {
            int64_t at = walk.unit + k * VX_JOIN_THREADS;
            struct vx_words4 whole = {raised(rows[k].x, by), raised(rows[k].y, by),
                                      raised(rows[k].z, by), raised(rows[k].w, by)};
            if (at < quads) to[at] = whole;
        }
    }
}

/* --- compared --- */

VX_DEVICE uint32_t differ_each(const struct vx_words_pair *pair, int64_t first,
                               int64_t end)
{
    uint32_t found = 0;
    for (int64_t i = first; i < end; i++) found |= pair->a[i] ^ pair->b[i];
    return found;
}

/* The bits that differ in this thread's units of four words; the last may have fewer. */
VX_DEVICE uint32_t differ_found(const struct vx_words_pair *pair, struct walk walk)
{
    const struct vx_words4 *a = (const struct vx_words4 *)pair->a;
    const struct vx_words4 *b = (const struct vx_words4 *)pair->b;
    int32_t wide = (((uint64_t)a | (uint64_t)b) & 15u) == 0;
    int64_t whole = wide ? pair->n / 4 : 0, units = vx_join_quads(pair->n, 1);
    uint32_t found = 0;
    for (; walk.unit < units; walk.unit += walk.step) {
        VX_UNROLL
        for (int32_t k = 0; k < VX_JOIN_ROUNDS; k++) {
            int64_t at = walk.unit + k * VX_JOIN_THREADS;
            if (at < whole) {
                struct vx_words4 left = a[at], right = b[at];
                found |= left.x ^ right.x;
                found |= left.y ^ right.y;
                found |= left.z ^ right.z;
                found |= left.w ^ right.w;
            } else if (at < units) {
                int64_t end = at * 4 + 4;
                found |= differ_each(pair, at * 4, end < pair->n ? end : pair->n);
            }
        }
    }
    return found;
}

VX_KERNEL(VX_JOIN_THREADS, 4) words_differ(const struct vx_words_differ_args args)
{
    vx_turn();
    VX_SHARED uint32_t waves;
    struct walk walk = walk_begin(args.shares, args.count);
    struct vx_words_pair pair = args.pairs[walk.piece];
    if (vx_thread() == 0) waves = 0;
    vx_barrier();
    uint64_t said = vx_ballot(differ_found(&pair, walk) != 0);
    if (said && vx_lane() == 0) (void)vx_atomic_or(&waves, 1);
    vx_barrier();
    if (vx_thread() != 0) return;
    uint64_t mine = (uint64_t)waves << 32 | 1u;
    uint64_t all = vx_atomic_add64(&args.pairs[walk.piece].tally, mine) + mine;
    if ((uint32_t)all != args.shares[walk.piece].blocks) return;
    *pair.differs = all >> 32 ? 1 : 0;
    args.pairs[walk.piece].tally = 0;
}

/* --- reported --- */

/* The sum of a piece's pairs, for lane 0 of those that add them up; a single map is its
 * own. */
VX_DEVICE uint64_t pairs_sum(const struct vx_piece_results_args *args, int64_t piece,
                             uint32_t lane)
{
    const uint64_t *const *pairs = args->pairs + piece * args->maps;
    uint64_t sum = 0;
    for (int64_t m = lane; m < args->maps; m += VX_RESULT_LANES) {
        const uint64_t found = pairs[m] ? *pairs[m] : 0;
        sum += found;
        if (args->each) args->each[piece * args->maps + m] = found;
    }
    for (uint32_t step = 1; args->maps > 1 && step < VX_RESULT_LANES; step *= 2)
        sum += vx_shuffle_xor64(sum, step);
    return sum;
}

VX_KERNEL(VX_JOIN_THREADS, 1) piece_results(const struct vx_piece_results_args args)
{
    vx_turn();
    int64_t thread = (int64_t)vx_block_x() * VX_JOIN_THREADS + vx_thread();
    int64_t at = thread / VX_RESULT_LANES;
    uint32_t lane = (uint32_t)(thread % VX_RESULT_LANES);
    if (at >= args.count) return;
    struct vx_piece_result result = {{0, 0}, 0, 0, pairs_sum(&args, at, lane)};
    if (lane) return;
    struct vx_piece_places places = args.places[at];
    if (places.fault) {
        result.fault[0] = places.fault[0];
        result.fault[1] = places.fault[1];
    }
    if (places.differs) result.differs = *places.differs;
    args.results[at] = result;
}
