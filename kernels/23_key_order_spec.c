/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/23_key_order.h"

#include "kernels/05_mask_order.h"
#include "kernels/kernel.h"

extern const struct vx_kernel_spec vx_key_small_spec;
extern const struct vx_kernel_spec vx_key_members_spec;
extern const struct vx_kernel_spec vx_key_starts_spec;

void vx_key_small_ref(const void *pointer, enum vx_number type);
void vx_key_members_ref(const void *pointer, enum vx_number type);
void vx_key_starts_ref(const void *pointer, enum vx_number type);

int32_t vx_key_passes(uint64_t varying, struct vx_key_pass passes[VX_KEY_PASSES_MAX])
{
    int32_t count = 0, top = VX_KEY_BITS, low = 0;
    while (top > 0 && !(varying >> (top - 1) & 1)) top--;
    for (int32_t at = 0; at < top; at += VX_ORDER_DIGIT) {
        while (!(varying >> at & 1)) at++;
        int32_t bits = top - at < VX_ORDER_DIGIT ? top - at : VX_ORDER_DIGIT;
        struct vx_key_pass *pass = &passes[count];
        /* A key has 32 bits, from the lowest bit of its first digit on. */
        pass->fresh = count == 0 || at + bits - low > 32;
        if (pass->fresh) low = at;
        pass->key_low = low;
        pass->key_bits = top - low < 32 ? top - low : 32;
        pass->shift = at - low;
        pass->digit_bits = bits;
        count++;
    }
    return count;
}

static int32_t small_threads(const struct vx_tile *tile)
{
    (void)tile;
    return VX_ORDER_SMALL_THREADS;
}

/* As order_small: a word for each row, a counter of 16 bits for each wave and digit. */
static int32_t small_shared(const struct vx_tile *tile, enum vx_number type)
{
    (void)tile;
    (void)type;
    return VX_ORDER_SMALL_ROWS * 4 + VX_ORDER_SMALL_THREADS / 32 * VX_ORDER_BINS * 2;
}

/* What is static beside it: a begin for each digit, a sum for each wave. */
#define SMALL_SHARED_BESIDE (VX_ORDER_BINS * 4 + VX_ORDER_SMALL_THREADS / 32 * 4)

static bool small_fits(const struct vx_tile *tile, enum vx_number type,
                       const struct vx_caps *caps)
{
    return small_shared(tile, type) + SMALL_SHARED_BESIDE <= caps->shared_block;
}

static struct vx_grid small_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_key_order_args *args = pointer;
    (void)tile;
    return (struct vx_grid){args->n > 0 ? (uint32_t)args->members : 0, 1, 1};
}

static int32_t members_threads(const struct vx_tile *tile)
{
    (void)tile;
    return VX_KEY_THREADS;
}

static struct vx_grid members_grid(const struct vx_tile *tile, const void *pointer)
{
    const struct vx_key_order_args *args = pointer;
    (void)tile;
    return (struct vx_grid){(uint32_t)((args->n + VX_KEY_THREADS - 1) / VX_KEY_THREADS),
                            1, 1};
}

static int32_t starts_threads(const struct vx_tile *tile)
{
    (void)tile;
    return VX_KEY_STARTS_THREADS;
}

/* Without rows, too: there are 0 samples then. */
static struct vx_grid starts_grid(const struct vx_tile *tile, const void *pointer)
{
    (void)tile;
    (void)pointer;
    return (struct vx_grid){1, 1, 1};
}

const struct vx_kernel_spec vx_key_small_spec = {
    .name = "key_small",
    .source = "23_key_order.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_key_order_args),
    .threads = small_threads,
    .shared = small_shared,
    .fits = small_fits,
    .grid = small_grid,
    .ref = vx_key_small_ref,
};
const struct vx_kernel_spec vx_key_members_spec = {
    .name = "key_members",
    .source = "23_key_order.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_key_order_args),
    .threads = members_threads,
    .grid = members_grid,
    .ref = vx_key_members_ref,
};
const struct vx_kernel_spec vx_key_starts_spec = {
    .name = "key_starts",
    .source = "23_key_order.cu",
    .tiles_count = 1,
    .args_bytes = sizeof(struct vx_key_order_args),
    .threads = starts_threads,
    .grid = starts_grid,
    .ref = vx_key_starts_ref,
};
