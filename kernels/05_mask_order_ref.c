/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/05_mask_order.h"

#include <stdbool.h>

#include "kernels/kernel.h"

void vx_order_small_ref(const void *args, enum vx_number type);
void vx_count_scan_ref(const void *args, enum vx_number type);
void vx_order_blocks_ref(const void *args, enum vx_number type);
void vx_order_small_many_ref(const void *args, enum vx_number type);
void vx_order_blocks_many_ref(const void *args, enum vx_number type);
void vx_order_tiles_ref(const void *args, enum vx_number type);

static uint32_t mask_bit(const uint32_t *mask, int32_t bit)
{
    return mask[bit / 32] >> bit % 32 & 1u;
}

/* What a row is ranked by: bits begin .. begin + vx_order_rank_bits of `words`. */
struct ranked {
    const uint32_t *words;
    uint32_t signature;
    int32_t begin;
};

static void ranked_of(const struct vx_mask_order_args *args, int32_t group, int64_t row,
                      struct ranked *ranked)
{
    ranked->words = args->masks + row * args->words;
    ranked->begin = group * args->bits;
    if (!args->run) return;
    ranked->signature = vx_order_signature(ranked->words, args->bits, args->run, args->n);
    ranked->words = &ranked->signature;
}

/* True when row `a` comes before row `b`.  The highest bit in which two masks differ is
 * also the highest in which their ranks differ. */
static bool row_is_before(const struct vx_mask_order_args *args, int32_t group, int64_t a,
                          int64_t b)
{
    struct ranked of_a, of_b;
    uint32_t odd = 0; /* parity of the bits above, which are equal in both */
    ranked_of(args, group, a, &of_a);
    ranked_of(args, group, b, &of_b);
    int32_t begin = of_a.begin;
    for (int32_t bit = begin + vx_order_rank_bits(args->bits, args->run, args->n) - 1;
         bit >= begin; bit--) {
        uint32_t bit_a = mask_bit(of_a.words, bit);
        if (bit_a != mask_bit(of_b.words, bit)) return (bit_a ^ odd) == 0;
        odd ^= args->gray ? bit_a : 0;
    }
    return a < b;
}

/* Moves the row at `top` down to its place in the heap, whose root is the last row. */
static void heap_sink(const struct vx_mask_order_args *args, int32_t group, int64_t top,
                      int64_t count)
{
    int32_t *rows = args->rows_out + group * args->n;
    int32_t sinking = rows[top];
    for (int64_t child = 2 * top + 1; child < count; child = 2 * top + 1) {
        if (child + 1 < count && row_is_before(args, group, rows[child], rows[child + 1]))
            child++;
        if (!row_is_before(args, group, sinking, rows[child])) break;
        rows[top] = rows[child];
        top = child;
    }
    rows[top] = sinking;
}

/* Word `word` of the mask that has all bits of one group and no others. */
static uint32_t group_word(const struct vx_mask_order_args *args, int32_t group,
                           int32_t word)
{
    uint32_t bits = 0;
    for (int32_t bit = 0; bit < 32; bit++)
        if ((word * 32 + bit) / args->bits == group) bits |= UINT32_C(1) << bit;
    return bits;
}

/* One word of the mask, within its group, that a key of the last pass was made from. */
static uint32_t key_word(const struct vx_mask_order_args *args, int32_t group,
                         uint32_t key, int32_t word)
{
    uint32_t bits = args->gray ? key ^ key >> 1 : key;
    uint32_t found = 0;
    for (int32_t bit = 0; bit < args->bits; bit++) {
        int32_t at = group * args->bits + bit;
        if (at / 32 == word) found |= (bits >> bit & 1u) << at % 32;
    }
    return found;
}

/* The row that a pass before this one left at a place.  The oracle breaks those passes to see
 * whether anybody notices, and then a row may be anything: row 0 keeps us in memory. */
static int64_t row_in(const int32_t *rows, const struct vx_mask_order_args *args,
                      int32_t group, int64_t place)
{
    const int64_t row = rows ? rows[group * args->n + place] : place;
    return row >= 0 && row < args->n ? row : 0;
}

static int64_t row_at(const struct vx_mask_order_args *args, int32_t group, int64_t place)
{
    return row_in(args->rows_in, args, group, place);
}

static void block_masks_of(const struct vx_mask_order_args *args, const int32_t *order)
{
    int64_t blocks = vx_mask_blocks(args->n);
    for (int64_t e = 0; e < args->groups * blocks * args->words; e++)
        args->block_masks[e] = 0;
    for (int32_t group = 0; group < args->groups; group++)
        for (int32_t word = 0; word < args->words; word++) {
            uint32_t kept = group_word(args, group, word);
            for (int64_t i = 0; i < args->n; i++) {
                int64_t at = group * args->n + i;
                int64_t row = row_in(order, args, group, i);
                uint32_t found = args->masks[row * args->words + word] & kept;
                if (args->keys_in) found = key_word(args, group, args->keys_in[at], word);
                args->block_masks[(group * blocks + i / VX_MASK_BLOCK) * args->words +
                                  word] |= found;
            }
        }
}

void vx_order_small_ref(const void *args_given, enum vx_number type)
{
    const struct vx_mask_order_args *args = args_given;
    (void)type;
    for (int32_t group = 0; group < args->groups; group++) {
        int32_t *rows = args->rows_out + group * args->n;
        for (int64_t i = 0; i < args->n; i++) rows[i] = (int32_t)i;
        for (int64_t top = args->n / 2 - 1; top >= 0; top--)
            heap_sink(args, group, top, args->n);
        for (int64_t count = args->n - 1; count > 0; count--) {
            int32_t last = rows[0];
            rows[0] = rows[count];
            rows[count] = last;
            heap_sink(args, group, 0, count);
        }
    }
    block_masks_of(args, args->rows_out);
}

void vx_count_scan_ref(const void *args_given, enum vx_number type)
{
    const struct vx_count_scan_args *args = args_given;
    (void)type;
    for (int64_t row = 0; row < args->rows; row++) {
        uint32_t sum = 0;
        for (int64_t tile = 0; tile < args->tiles; tile++) {
            uint32_t count = args->counts[row * args->tiles + tile];
            args->counts[row * args->tiles + tile] = sum;
            sum += count;
        }
        args->totals[row] = sum;
    }
}

void vx_order_blocks_ref(const void *args_given, enum vx_number type)
{
    const struct vx_mask_order_args *args = args_given;
    (void)type;
    block_masks_of(args, args->rows_in);
    if (!args->neighbours) return;
    for (int32_t v = 0; v < args->bits; v++)
        for (int64_t place = 0; place < args->n; place++)
            args->neighbours[v * args->n + place] =
                args->nbr[row_at(args, 0, place) * args->nbr_stride + v];
}

/* --- many sorts --- */

static void each(const void *args_given, void (*ref)(const void *, enum vx_number),
                 enum vx_number type)
{
    const struct vx_mask_order_many_args *args = args_given;
    for (int64_t sort = 0; sort < args->count; sort++) ref(&args->sorts[sort], type);
}

void vx_order_small_many_ref(const void *args, enum vx_number type)
{
    each(args, vx_order_small_ref, type);
}

void vx_order_blocks_many_ref(const void *args, enum vx_number type)
{
    each(args, vx_order_blocks_ref, type);
}

/* --- tiles by work --- */

/* Offsets that some row of the tile has. */
static int32_t tile_offsets(const struct vx_order_tiles_sort *sort, int64_t rows,
                            int64_t index)
{
    const int64_t blocks = vx_mask_blocks(sort->n), tiles = (sort->n + rows - 1) / rows;
    const int64_t first = index % tiles * (rows / VX_MASK_BLOCK);
    int32_t count = 0;
    for (int32_t bit = 0; bit < 32 * sort->words; bit++) {
        uint32_t there = 0;
        for (int64_t b = first; b < first + rows / VX_MASK_BLOCK && b < blocks; b++)
            there |= mask_bit(
                sort->block_masks + (index / tiles * blocks + b) * sort->words, bit);
        count += (int32_t)there;
    }
    return count;
}

/* How the tiles of a list are dealt, one after the other, those with the most offsets first. */
struct deal {
    int64_t count, more[VX_ORDER_DEAL_OFFSETS]; /* tiles; those of c offsets or more */
    int32_t blocks;
    int32_t *list; /* struct vx_order_tiles_sort */
    int64_t next;  /* tile, in the order of their work */
    int32_t round; /* of it, from 0 on */
    int32_t at;    /* blocks that have had their turn in this round */
    int32_t level; /* the most work that a block which passed no round may have had */
    bool even,
        back; /* nobody passes any more; this round is from the last block to the first */
};

static int32_t work_of(const struct deal *deal, int64_t tile)
{
    int32_t work = VX_ORDER_TILE_END;
    for (int32_t c = 1; c < VX_ORDER_DEAL_OFFSETS; c++) work += deal->more[c] > tile;
    return work;
}

/* Whether a block passes this round: its first tile alone is more than the others have had. */
static bool passes(const struct deal *deal, int32_t block)
{
    if (deal->round == 0 || deal->even || block == deal->blocks - 1) return false;
    return work_of(deal, block) > deal->level &&
           deal->level + 1 - VX_ORDER_TILE_END < VX_ORDER_DEAL_OFFSETS;
}

static void round_begin(struct deal *deal)
{
    int32_t takers = 0;
    deal->round++;
    deal->at = 0;
    deal->level += work_of(deal, deal->next);
    for (int32_t b = 0; b < deal->blocks; b++) takers += !passes(deal, b);
    deal->even |= takers == deal->blocks;
    deal->back = deal->round % 2 || deal->next + takers >= deal->count;
}

static void deal_give(struct deal *deal, int32_t tile)
{
    int32_t block, turn = 0;
    do {
        if (deal->at == deal->blocks) round_begin(deal);
        block = deal->back ? deal->blocks - 1 - deal->at : deal->at;
        deal->at++;
    } while (passes(deal, block));
    while (deal->list[turn * deal->blocks + block] >= 0) turn++;
    deal->list[turn * deal->blocks + block] = tile;
    deal->next++;
}

static void tiles_deal(const struct vx_order_tiles_sort *sort, int32_t kind,
                       int32_t blocks)
{
    const int64_t rows = (int64_t)VX_ORDER_TILES_ROWS << kind;
    struct deal deal = {.count = vx_order_tiles_count(sort->n, sort->groups, kind),
                        .blocks = blocks,
                        .list = sort->tiles[kind]};
    for (int64_t i = vx_order_tiles_numbers(deal.count, blocks); i-- > 0;)
        deal.list[i] = VX_ORDER_TILES_NONE;
    for (int64_t at = 0; at < deal.count; at++)
        for (int32_t c = tile_offsets(sort, rows, at); c >= 0; c--)
            if (c < VX_ORDER_DEAL_OFFSETS) deal.more[c]++;
    deal.level = work_of(&deal, blocks - 1);
    for (int32_t wanted = VX_ORDER_TILES_BINS - 1; wanted >= 0; wanted--)
        for (int64_t at = 0; at < deal.count; at++)
            if (tile_offsets(sort, rows, at) == wanted) deal_give(&deal, (int32_t)at);
    for (int32_t b = 0; b < blocks; b++)
        deal.list[(deal.round + 1) * blocks + b] = VX_ORDER_TILES_END;
}

void vx_order_tiles_ref(const void *args_given, enum vx_number type)
{
    const struct vx_order_tiles_args *args = args_given;
    (void)type;
    for (int64_t s = 0; s < args->count; s++)
        for (int32_t kind = 0; kind < VX_ORDER_TILES_KINDS; kind++)
            tiles_deal(args->sorts ? &args->sorts[s] : &args->one, kind, args->blocks);
}
