/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/08_pair_list.h"

#include "kernels/kernel.h"

void vx_pairs_count_ref(const void *args, enum vx_number type);
void vx_pairs_write_ref(const void *args, enum vx_number type);

void vx_pairs_count_ref(const void *args_given, enum vx_number type)
{
    const struct vx_pair_list_args *args = args_given;
    (void)type;
    for (int64_t e = 0; e < args->v * args->tiles; e++) args->counts[e] = 0;
    for (int64_t i = 0; i < args->n; i++)
        for (int32_t v = 0; v < args->v; v++)
            if (args->nbr[i * args->nbr_stride + v] >= 0)
                args->counts[v * args->tiles + i / VX_PAIRS_TILE]++;
}

void vx_pairs_write_ref(const void *args_given, enum vx_number type)
{
    const struct vx_pair_list_args *args = args_given;
    int32_t start = 0;
    (void)type;
    for (int32_t v = 0; v < args->nbr_stride; v++) {
        int32_t next = start;
        for (int64_t i = 0; i < args->n; i++) {
            int64_t at = i * args->nbr_stride + v;
            args->places[at] = -1;
            if (v >= args->v) continue;
            if (i % VX_PAIRS_TILE == 0) {
                uint32_t before = args->counts[v * args->tiles + i / VX_PAIRS_TILE];
                next = start + (int32_t)before;
            }
            if (args->nbr[at] < 0) continue;
            args->in_rows[next] = args->nbr[at];
            args->places[at] = next++;
        }
        if (v >= args->v) continue;
        args->starts[v] = start;
        start += (int32_t)args->totals[v];
    }
    args->starts[args->v] = start;
}
