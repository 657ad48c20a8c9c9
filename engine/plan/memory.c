/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/plan/memory.h"

#include "engine/base/process/check.h"

/* Placing order, widest first: placed late, a wide tensor would find only narrow gaps. */
static bool memory_wider(const struct vx_memory_tensor *a,
                         const struct vx_memory_tensor *b)
{
    return a->channels > b->channels;
}

/* Placing order, by lifetime. */
static bool memory_earlier(const struct vx_memory_tensor *a,
                           const struct vx_memory_tensor *b)
{
    return a->first != b->first ? a->first < b->first : memory_wider(a, b);
}

typedef bool (*memory_before)(const struct vx_memory_tensor *a,
                              const struct vx_memory_tensor *b);

/* Insertion sort is fast enough: about a thousand tensors at most, once per model. */
static void memory_order(const struct vx_memory_tensor *tensors, i32 count,
                         memory_before before, i32 *order)
{
    for (i32 i = 0; i < count; i++) {
        i32 at = i;
        while (at > 0 && before(&tensors[i], &tensors[order[at - 1]])) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
}

/* Whether both are alive at the same time. */
static bool memory_meet(const struct vx_memory_tensor *a,
                        const struct vx_memory_tensor *b)
{
    return a->first <= b->last && b->first <= a->last;
}

/* The offset for a tensor: the narrowest gap that holds it between placed tensors that
 * are alive at the same time, else behind them.  `placed` is sorted by offset. */
static i64 memory_find(const struct vx_memory_tensor *tensors, const i32 *placed,
                       i32 placed_count, const struct vx_memory_tensor *tensor)
{
    i64 end = 0, best = -1, best_gap = INT64_MAX;
    for (i32 i = 0; i < placed_count; i++) {
        const struct vx_memory_tensor *other = &tensors[placed[i]];
        if (!memory_meet(tensor, other)) continue;
        i64 gap = other->offset - end;
        if (gap >= tensor->channels && gap < best_gap) {
            best = end;
            best_gap = gap;
        }
        if (other->offset + other->channels > end) end = other->offset + other->channels;
    }
    return best >= 0 ? best : end;
}

static i64 memory_place(struct vx_memory_tensor *tensors, i32 count, memory_before before)
{
    i32 order[VX_MEMORY_TENSORS_MAX], placed[VX_MEMORY_TENSORS_MAX];
    i64 total = 0;
    VX_ASSERT(count >= 0);
    VX_ASSERT(count <= VX_MEMORY_TENSORS_MAX);
    memory_order(tensors, count, before, order);
    for (i32 i = 0; i < count; i++) {
        struct vx_memory_tensor *tensor = &tensors[order[i]];
        VX_ASSERT(tensor->channels > 0);
        VX_ASSERT(tensor->first <= tensor->last);
        tensor->offset = memory_find(tensors, placed, i, tensor);
        i32 at = i;
        for (; at > 0 && tensors[placed[at - 1]].offset > tensor->offset; at--)
            placed[at] = placed[at - 1];
        placed[at] = order[i];
        if (tensor->offset + tensor->channels > total)
            total = tensor->offset + tensor->channels;
    }
    return total;
}

i64 vx_memory_plan(struct vx_memory_tensor *tensors, i32 count)
{
    return memory_place(tensors, count, memory_wider);
}

i64 vx_memory_plan_staged(struct vx_memory_tensor *tensors, i32 count)
{
    i64 wide = memory_place(tensors, count, memory_wider);
    i64 early = memory_place(tensors, count, memory_earlier);
    return early < wide ? early : memory_place(tensors, count, memory_wider);
}
