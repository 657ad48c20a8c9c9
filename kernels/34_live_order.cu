/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/34_live_order.h"
#include "kernels/turn.cuh"
#include "kernels/vector.cuh"
#include "kernels/waves.cuh"

#define WAVES (VX_LIVE_THREADS / VX_WAVE)
/* Places of one thread. */
#define ITEMS (VX_LIVE_TILE / VX_LIVE_THREADS)

#if VX_LIVE_PANELS % VX_LANES != 0
#error "the logits of a row are read in whole vectors"
#endif

VX_DEVICE int64_t row_at(const struct vx_live_order_args *args, int64_t place)
{
    return args->order ? args->order[(int64_t)vx_block_y() * args->n + place] : place;
}

/* The children of a row that are live, a bit each. */
VX_DEVICE uint32_t live_of(const struct vx_live_order_args *args, int64_t row)
{
    uint32_t live = 0;
    VX_UNROLL
    for (int32_t k = 0; k < VX_LIVE_PANELS / VX_LANES; k++) {
        float x[VX_LANES];
        vx_vector_unpack(vx_vector_load(args->logits, row * (args->cp / VX_LANES) + k),
                         x);
        VX_UNROLL
        for (int32_t e = 0; e < VX_LANES; e++)
            live |= (uint32_t)(x[e] > 0.0f) << (k * VX_LANES + e);
    }
    return live & ~0u >> (32 - args->panels);
}

/* Where the list of a child and the block's group begins, counted in lists. */
VX_DEVICE int64_t list_of(const struct vx_live_order_args *args, int32_t panel)
{
    return (int64_t)panel * args->groups + vx_block_y();
}

VX_KERNEL(VX_LIVE_THREADS, 4) live_count(struct vx_live_order_args args)
{
    vx_turn();
    VX_SHARED uint32_t counts[VX_LIVE_PANELS];
    int64_t first = (int64_t)vx_block_x() * VX_LIVE_TILE + vx_thread();
    if (vx_thread() < VX_LIVE_PANELS) counts[vx_thread()] = 0;
    vx_barrier();
    for (int32_t k = 0; k < ITEMS; k++) {
        int64_t place = first + k * VX_LIVE_THREADS;
        uint32_t live = place < args.n ? live_of(&args, row_at(&args, place)) : 0;
        VX_UNROLL
        for (int32_t c = 0; c < VX_LIVE_PANELS; c++) {
            vx_lanes said = vx_lanes_said((int)(live >> c & 1u));
            if (vx_lane() == 0 && said) vx_atomic_add(&counts[c], vx_lanes_count(said));
        }
    }
    vx_barrier();
    if (vx_thread() < (uint32_t)args.panels)
        args.counts[list_of(&args, (int32_t)vx_thread()) * args.tiles + vx_block_x()] =
            counts[vx_thread()];
}

/* The places of a thread: those of a wave lie together. */
struct live_items {
    int32_t rows[ITEMS];
    uint32_t live[ITEMS];
};

VX_DEVICE void items_load(const struct vx_live_order_args *args, struct live_items *items)
{
    int64_t first =
        (int64_t)vx_block_x() * VX_LIVE_TILE + vx_wave() * (ITEMS * VX_WAVE) + vx_lane();
    VX_UNROLL
    for (int32_t k = 0; k < ITEMS; k++) {
        int64_t place = first + k * VX_WAVE;
        items->rows[k] = place < args->n ? (int32_t)row_at(args, place) : -1;
    }
    VX_UNROLL
    for (int32_t k = 0; k < ITEMS; k++)
        items->live[k] = items->rows[k] < 0 ? 0 : live_of(args, items->rows[k]);
}

/* Turns each wave's counts into the places of its first rows. */
VX_DEVICE void waves_place(const struct vx_live_order_args *args, uint32_t *counts)
{
    int32_t panel = (int32_t)vx_thread();
    if (panel >= args->panels) return;
    uint32_t at = args->counts[list_of(args, panel) * args->tiles + vx_block_x()];
    for (uint32_t wave = 0; wave < WAVES; wave++) {
        uint32_t count = counts[wave * VX_LIVE_PANELS + (uint32_t)panel];
        counts[wave * VX_LIVE_PANELS + (uint32_t)panel] = at;
        at += count;
    }
}

/* Writes -1 to those of the tile's places that lie behind the last row of a list. */
VX_DEVICE void list_end(const struct vx_live_order_args *args, int32_t panel)
{
    int64_t total = args->totals[list_of(args, panel)];
    int64_t first = (int64_t)vx_block_x() * VX_LIVE_TILE + vx_thread();
    int32_t *list = args->lists + list_of(args, panel) * args->n;
    for (int32_t k = 0; k < ITEMS; k++) {
        int64_t place = first + k * VX_LIVE_THREADS;
        if (place >= total && place < args->n) list[place] = -1;
    }
}

VX_DEVICE void masks_write(const struct vx_live_order_args *args, int32_t row,
                           uint32_t live)
{
    if (row < 0) return;
    for (int32_t word = 0; word < args->words; word++) {
        uint32_t mask = args->masks[(int64_t)row * args->words + word];
        for (int32_t c = 0; c < args->panels; c++)
            args->live_masks[(c * args->n + row) * args->words + word] =
                live >> c & 1u ? mask : 0;
    }
}

VX_KERNEL(VX_LIVE_THREADS, 4) live_write(struct vx_live_order_args args)
{
    vx_turn();
    VX_SHARED uint32_t counts[WAVES * VX_LIVE_PANELS];
    uint32_t *own = counts + vx_wave() * VX_LIVE_PANELS;
    struct live_items items;
    items_load(&args, &items);
    VX_UNROLL
    for (int32_t c = 0; c < VX_LIVE_PANELS; c++) {
        uint32_t count = 0;
        VX_UNROLL
        for (int32_t k = 0; k < ITEMS; k++)
            count += vx_lanes_count(vx_lanes_said((int)(items.live[k] >> c & 1u)));
        if (vx_lane() == 0) own[c] = count;
    }
    vx_barrier();
    waves_place(&args, counts);
    vx_barrier();
    for (int32_t c = 0; c < args.panels; c++) {
        int32_t *list = args.lists + list_of(&args, c) * args.n;
        uint32_t at = own[c];
        VX_UNROLL
        for (int32_t k = 0; k < ITEMS; k++) {
            vx_lanes said = vx_lanes_said((int)(items.live[k] >> c & 1u));
            if (items.live[k] >> c & 1u)
                list[at + vx_lanes_count(said & vx_lanes_below())] = items.rows[k];
            at += vx_lanes_count(said);
        }
        list_end(&args, c);
    }
    if (!args.live_masks || vx_block_y()) return;
    VX_UNROLL
    for (int32_t k = 0; k < ITEMS; k++) masks_write(&args, items.rows[k], items.live[k]);
}

/* The lanes of 32 places write a block mask. */
VX_KERNEL(VX_LIVE_THREADS, 4) live_blocks(struct vx_live_order_args args)
{
    vx_turn();
    int64_t list = vx_block_y();
    int32_t group = (int32_t)(list % args.groups), row = -1;
    int64_t place = (int64_t)vx_block_x() * VX_LIVE_THREADS + vx_thread();
    if (place < args.n) row = args.lists[list * args.n + place];
    for (int32_t word = 0; word < args.words; word++) {
        uint32_t kept = vx_live_group_word(args.v, args.groups, group, word);
        uint32_t found = row < 0 ? 0 : kept;
        if (found && args.masks) found &= args.masks[(int64_t)row * args.words + word];
        for (uint32_t step = VX_MASK_BLOCK / 2; step > 0; step /= 2)
            found |= vx_shuffle_xor(found, step);
        int64_t block = list * vx_mask_blocks(args.n) + place / VX_MASK_BLOCK;
        if (place % VX_MASK_BLOCK == 0 && place < args.n)
            args.block_masks[block * args.words + word] = found;
    }
}
