/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/01_coord_hash.h"

static int in_range(int32_t value, int is_sample)
{
    if (is_sample) return value >= 0 && value < 1 << VX_KEY_SAMPLE_BITS;
    return value >= -VX_KEY_AXIS_BIAS && value < VX_KEY_AXIS_BIAS;
}

static int find_bad(struct vx_coord_hash_args *args)
{
    for (int64_t i = 0; i < args->n; i++) {
        for (int32_t c = 0; c < args->columns; c++) {
            int is_sample = args->columns == 4 && c == 0;
            if (in_range(args->coords[i * args->columns + c], is_sample)) continue;
            args->bad_row = i;
            args->bad_column = c;
            return 1;
        }
    }
    return 0;
}

static void insert(struct vx_coord_hash_args *args, int64_t row)
{
    uint64_t key = args->keys[row];
    uint64_t slot = vx_key_mix(key) & (args->slots_count - 1);
    while (args->slots_key[slot] != VX_KEY_EMPTY) {
        if (args->slots_key[slot] == key) {
            if (args->second >= 0) return; /* only the first pair is reported */
            args->first = args->slots_row[slot];
            args->second = row;
            return;
        }
        slot = (slot + 1) & (args->slots_count - 1);
    }
    args->slots_key[slot] = key;
    args->slots_row[slot] = (int32_t)row;
}

void vx_coord_hash_ref(struct vx_coord_hash_args *args)
{
    args->bad_row = args->first = args->second = -1;
    args->bad_column = -1;
    if (find_bad(args)) return;
    for (uint64_t s = 0; s < args->slots_count; s++) {
        args->slots_key[s] = VX_KEY_EMPTY;
        args->slots_row[s] = -1;
    }
    for (int64_t i = 0; i < args->n; i++) {
        const int32_t *row = args->coords + i * args->columns;
        int32_t sample = args->columns == 4 ? *row++ : 0;
        args->keys[i] = vx_key_pack(sample, row[0], row[1], row[2]);
        insert(args, i);
    }
}

int32_t vx_coord_hash_find(const uint64_t *slots_key, const int32_t *slots_row,
                           uint64_t slots_count, uint64_t key)
{
    uint64_t slot = vx_key_mix(key) & (slots_count - 1);
    while (slots_key[slot] != VX_KEY_EMPTY) {
        if (slots_key[slot] == key) return slots_row[slot];
        slot = (slot + 1) & (slots_count - 1);
    }
    return -1;
}
