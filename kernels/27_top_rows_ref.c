/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/27_top_rows.h"
#include "kernels/number.h"

#include <string.h>

void vx_top_keys_ref(const void *pointer, enum vx_number type);
void vx_top_mark_ref(const void *pointer, enum vx_number type);

void vx_top_keys_ref(const void *pointer, enum vx_number type)
{
    const struct vx_top_args *args = pointer;
    for (int64_t row = 0; row < args->n; row++) {
        const float logit = (float)vx_number_ref_read(args->logits, type, row * args->cp);
        uint32_t bits;
        memcpy(&bits, &logit, sizeof bits);
        args->words[row] = (uint64_t)(uint32_t)vx_key_sample(args->keys[row]) << 32 |
                           vx_top_falling(bits);
    }
}

void vx_top_mark_ref(const void *pointer, enum vx_number type)
{
    const struct vx_top_args *args = pointer;
    int32_t sample = 0;
    (void)type;
    for (int64_t p = 0; p < args->n; p++) {
        if (sample + 1 < *args->count && args->starts[sample + 1] == p) sample++;
        args->kept[args->rows[p]] = p - args->starts[sample] < args->top;
    }
}
