/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/geometry/levels.h"
#include "engine/gpu/model/model_choice.h"
#include "engine/gpu/model/sizes.h"

static size_t ordered_take(size_t *bytes, void *memory, i64 rows, size_t each, void **to)
{
    if (memory) *to = (u8 *)memory + *bytes;
    *bytes = vx_add_line(*bytes, (size_t)rows * each);
    return *bytes;
}

size_t vx_gpu_ordered_place(const struct vx_plan_ordered *ordered, i64 rows, bool piece,
                            void *memory, struct vx_gpu_ordered *to)
{
    size_t bytes = 0;
    void *parts[5] = {NULL};
    if (ordered->output) ordered_take(&bytes, memory, rows, sizeof(i32), &parts[0]);
    if (ordered->output && piece)
        ordered_take(&bytes, memory, rows, 4 * sizeof(i32), &parts[1]);
    if (ordered->samples) {
        ordered_take(&bytes, memory, rows, sizeof(i32), &parts[2]);
        ordered_take(&bytes, memory, rows, sizeof(u64), &parts[3]);
    }
    if (ordered->dense) ordered_take(&bytes, memory, rows, sizeof(u64), &parts[4]);
    if (to)
        *to = (struct vx_gpu_ordered){parts[0], parts[1], parts[2], parts[3], parts[4]};
    return bytes;
}

size_t vx_gpu_piece_maps_bytes(const struct vx_plan *plan, const i64 *set_rows)
{
    size_t bytes = 0;
    for (i32 i = 0; i < plan->maps_count; i++) {
        const struct vx_map_key *key = &plan->maps[i];
        bytes = vx_add_line(bytes, vx_gpu_level_map_bytes(set_rows[key->to], key));
    }
    for (i32 o = 0; o < plan->ordered_count; o++)
        bytes = vx_add_bytes(bytes, vx_gpu_ordered_place(&plan->ordered[o],
                                                         set_rows[plan->ordered[o].set],
                                                         true, NULL, NULL));
    return bytes;
}

size_t vx_gpu_piece_bytes(const struct vx_plan *plan, i64 n)
{
    size_t bytes = vx_add_line(0, (size_t)n * sizeof(i32));
    if (plan->levels) return bytes;
    return vx_add_bytes(bytes, vx_gpu_piece_maps_bytes(plan, &n));
}

void vx_gpu_piece_maps_place(const struct vx_plan *plan, void *memory,
                             struct vx_gpu_piece *piece)
{
    u8 *at = memory;
    for (i32 i = 0; i < plan->maps_count; i++) {
        const struct vx_map_key *key = &plan->maps[i];
        const i64 rows = piece->set_rows ? piece->set_rows[key->to] : piece->n;
        const i64 laid = piece->laid_rows ? piece->laid_rows[key->to] : rows;
        vx_gpu_level_map_place(rows, key, at, &piece->maps[i]);
        if (!rows) piece->maps[i].pairs = NULL; /* nobody writes them */
        at += vx_round_up(vx_gpu_level_map_bytes(laid, key), VX_GPU_LINE_BYTES);
    }
    for (i32 o = 0; o < plan->ordered_count; o++) {
        const i64 *laid = piece->laid_rows ? piece->laid_rows : piece->set_rows;
        at += vx_gpu_ordered_place(&plan->ordered[o], laid[plan->ordered[o].set], true,
                                   at, &piece->ordered[o]);
    }
}

void vx_gpu_piece_place(const struct vx_plan *plan, void *memory,
                        struct vx_gpu_piece *piece)
{
    const size_t rows = vx_round_up((size_t)piece->n * sizeof(i32), VX_GPU_LINE_BYTES);
    piece->rows = memory;
    if (!plan->levels) vx_gpu_piece_maps_place(plan, (u8 *)memory + rows, piece);
}
