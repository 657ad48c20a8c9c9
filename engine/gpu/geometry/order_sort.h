/* order_sort - the large sort of one order: its memory, and the arguments of pass after pass.
 *
 *   vx_gpu_order_sort_begin(&sort, &layout, scratch, &args);
 *   while (vx_gpu_order_sort_next(&sort)) {
 *       if (sort.pass.makes_key) launch order_clear and order_digits of sort.digits;
 *       launch order_sweep of sort.args;
 *   }
 *   launch order_blocks of sort.args;
 *
 * Private to order.c.
 *
 * Owner    the caller owns the scratch memory.
 * Thread   any; launches nothing.
 * Limits   as order.h.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_ORDER_SORT_H
#define VX_ENGINE_GPU_ORDER_SORT_H

#include "engine/gpu/geometry/order.h"
#include "kernels/37_order_sweep.h"

/* One pass of the radix sort.  A row's rank is sorted in parts that fit a key of 32 bits,
 * a part in digits of about equal size, from the lowest up. */
struct vx_gpu_order_pass {
    i32 key_low, key_bits;
    i32 shift, digit_bits;
    bool makes_key; /* the first pass of a key: order_digits has made it from the masks */
    bool last_of_key;
};

/* The sizes of the large sort, and its offsets in scratch memory. */
struct vx_gpu_order_layout {
    i64 tiles;
    i32 bits;
    i32 passes, keys_made;
    bool keys_last; /* the last pass keeps its keys: block masks are made from them */
    size_t state, totals, keys[2], rows, bytes;
};

/* A large sort between two of its passes. */
struct vx_gpu_order_sort {
    struct vx_gpu_order_layout layout;
    struct vx_gpu_order_pass pass;
    i32 done; /* passes */
    u32 *state, *totals;
    u32 *keys[2];
    i32 *rows[2];
    struct vx_mask_order_args args;
    /* Of the key whose digits are sorted by: their totals are counted before its first pass. */
    struct vx_order_digits_args digits;
};

/* The run of the signature that rows are sorted by; 0 = by their masks: rows of a group of
 * offsets, offsets that do not lie as a kernel's, and masks that fit in a key whole.  A run
 * is a line of the kernel where that makes enough runs, but not too many for a key. */
i32 vx_gpu_order_run(const struct vx_gpu_order_want *want);
struct vx_gpu_order_layout vx_gpu_order_layout_make(const struct vx_gpu_order_want *want);
/* args: those of order_blocks. */
void vx_gpu_order_sort_begin(struct vx_gpu_order_sort *sort,
                             const struct vx_gpu_order_layout *layout, void *scratch,
                             const struct vx_mask_order_args *args);
/* Sets the arguments of the next pass, and with the first one of a key those of its digits;
 * false: there is none, and they are those of order_blocks.  Rows alternate between scratch memory
 * and the output, so that the last pass writes the output; keys alternate between two buffers in
 * scratch memory. */
bool vx_gpu_order_sort_next(struct vx_gpu_order_sort *sort);

#endif
