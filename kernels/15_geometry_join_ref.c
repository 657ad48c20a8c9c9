/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/15_geometry_join.h"

void vx_join_rows_ref(const struct vx_join_rows_args *args)
{
    for (int64_t p = 0; p < args->count; p++) {
        const struct vx_join_rows_piece *piece = &args->pieces[p];
        for (int64_t r = 0; r < piece->n; r++)
            args->rows[piece->base + r] = (int32_t)(piece->base + piece->rows[r]);
    }
}

static void join_row(const struct vx_join_map_args *args,
                     const struct vx_join_map_piece *piece, int64_t r)
{
    const int32_t *from = piece->nbr + r * args->nbr_stride;
    int32_t *to = args->nbr + (piece->base + r) * args->nbr_stride;
    for (int32_t v = 0; v < args->nbr_stride; v++)
        to[v] = from[v] < 0 ? -1 : (int32_t)(from[v] + piece->raise);
    for (int32_t word = 0; word < args->words; word++)
        args->masks[(piece->base + r) * args->words + word] =
            piece->masks[r * args->words + word];
}

void vx_join_map_ref(const struct vx_join_map_args *args)
{
    for (int64_t p = 0; p < args->count; p++)
        for (int64_t r = 0; r < args->pieces[p].n; r++)
            join_row(args, &args->pieces[p], r);
}

void vx_words_differ_ref(const struct vx_words_differ_args *args)
{
    for (int64_t p = 0; p < args->count; p++) {
        struct vx_words_pair *pair = &args->pairs[p];
        *pair->differs = 0;
        for (int64_t i = 0; i < pair->n; i++)
            if (pair->a[i] != pair->b[i]) *pair->differs = 1;
    }
}

void vx_piece_results_ref(const struct vx_piece_results_args *args)
{
    for (int64_t p = 0; p < args->count; p++) {
        const struct vx_piece_places *at = &args->places[p];
        struct vx_piece_result result = {{0, 0}, 0, 0, 0};
        for (int i = 0; at->fault && i < 2; i++) result.fault[i] = at->fault[i];
        if (at->differs) result.differs = *at->differs;
        for (int64_t m = 0; m < args->maps; m++) {
            const uint64_t *pairs = args->pairs[p * args->maps + m];
            if (pairs) result.pairs += *pairs;
            if (args->each) args->each[p * args->maps + m] = pairs ? *pairs : 0;
        }
        args->results[p] = result;
    }
}
