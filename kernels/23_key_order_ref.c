/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/23_key_order.h"

#include "kernels/05_mask_order.h"
#include "kernels/kernel.h"

void vx_key_small_ref(const void *pointer, enum vx_number type);
void vx_key_members_ref(const void *pointer, enum vx_number type);
void vx_key_starts_ref(const void *pointer, enum vx_number type);

/* Moves the row at `top` down to its place in the heap, whose root has the largest key. */
static void heap_sink(const struct vx_key_order_args *args, int32_t *rows, int64_t top,
                      int64_t count)
{
    int32_t sinking = rows[top];
    for (int64_t child = 2 * top + 1; child < count; child = 2 * top + 1) {
        if (child + 1 < count && args->keys[rows[child]] < args->keys[rows[child + 1]])
            child++;
        if (args->keys[sinking] >= args->keys[rows[child]]) break;
        rows[top] = rows[child];
        top = child;
    }
    rows[top] = sinking;
}

void vx_key_small_ref(const void *pointer, enum vx_number type)
{
    const struct vx_key_order_args *args = pointer;
    (void)type;
    for (int32_t m = 0; m < args->members; m++) {
        int32_t first = vx_key_edge(args, m);
        int64_t n = vx_key_edge(args, m + 1) - first;
        int32_t *rows = args->rows_out + first;
        if (n > VX_ORDER_SMALL_ROWS) continue;
        for (int32_t i = 0; i < n; i++) rows[i] = first + i;
        for (int64_t top = n / 2 - 1; top >= 0; top--) heap_sink(args, rows, top, n);
        for (int64_t count = n - 1; count > 0; count--) {
            int32_t last = rows[0];
            rows[0] = rows[count];
            rows[count] = last;
            heap_sink(args, rows, 0, count);
        }
    }
}

static int32_t member_of(const struct vx_key_order_args *args, int32_t row)
{
    int32_t member = 0;
    while (member + 1 < args->members && args->edges[member + 1] <= row) member++;
    return member;
}

void vx_key_members_ref(const void *pointer, enum vx_number type)
{
    const struct vx_key_order_args *args = pointer;
    (void)type;
    for (int64_t p = 0; p < args->n; p++)
        args->numbers[p] = (uint32_t)member_of(args, args->rows[p]);
}

void vx_key_starts_ref(const void *pointer, enum vx_number type)
{
    const struct vx_key_order_args *args = pointer;
    int32_t count = 0, member = -1, sample = -1;
    (void)type;
    for (int32_t p = 0; p < args->n; p++) {
        int32_t now = vx_key_sample(args->keys[args->rows ? args->rows[p] : p]);
        int32_t own = member_of(args, p);
        if (own != member || now != sample) args->starts[count++] = p;
        member = own;
        sample = now;
    }
    args->starts[count] = (int32_t)args->n;
    *args->count = count;
}
