/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/device.h"
#include "kernels/turn.cuh"

#include "kernels/02_neighbor_map_device.h"

#ifndef VX_KEY_BITS
#define VX_KEY_BITS 64
#endif

VX_DEVICE void write(const struct vx_hash_map_args *args, int64_t row, int32_t v,
                     int32_t found)
{
    args->nbr[row * args->nbr_stride + v] = found;
    (void)vx_atomic_or(&args->masks[row * args->words + v / 32], 1u << v % 32);
}

/* Looks up one offset of the first half for one row and writes the entry and its mirror;
 * offset 0 also writes the middle entry.  Returns the pairs written. */
VX_DEVICE uint32_t look(const struct vx_hash_map_args *args,
                        const struct vx_hash_table *table, int64_t row, int32_t v)
{
    uint32_t pairs = 0;
    if (v == 0) {
        write(args, row, args->v / 2, (int32_t)row);
        pairs = 1;
    }
    if (v == args->v / 2) return pairs;
    int32_t found = vx_hash_beside(args, table, row, v);
    if (found < 0) return pairs;
    write(args, row, v, found);
    write(args, found, args->v - 1 - v, (int32_t)row);
    return pairs + 2;
}

VX_KERNEL(VX_HASH_MAP_THREADS, 4) hash_map(const struct vx_hash_map_args args)
{
    vx_turn();
    VX_SHARED uint64_t sum;
    struct vx_hash_table table = args.table;
    table.key_bits = VX_KEY_BITS; /* a constant: the compiler drops the other case */
    /* A thread for each row and offset of the first half: so many rows at a time. */
    uint32_t half = args.v > 1 ? (uint32_t)args.v / 2 : 1;
    uint32_t rows = VX_HASH_MAP_THREADS / half, mine = vx_thread() / half;
    int32_t v = (int32_t)(vx_thread() % half);
    int64_t step = (int64_t)args.blocks * rows;
    uint64_t pairs = 0;
    if (vx_thread() == 0) sum = 0;
    vx_barrier();
    for (int64_t row = (int64_t)vx_block_x() * rows + mine; mine < rows && row < args.n;
         row += step)
        pairs += look(&args, &table, row, v);
    if (pairs) (void)vx_atomic_add64(&sum, pairs);
    vx_barrier();
    if (vx_thread() == 0) (void)vx_atomic_add64(args.pairs, sum);
}
