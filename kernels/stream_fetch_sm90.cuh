/* stream_fetch_sm90 - the warpgroup that fills the ring of a stream of tiles.
 *
 * Private to tile_stream_sm90.cuh.  A warp fetches a quarter of a tile's rows.  Eight lanes
 * copy the 128 bytes of a row; a lane holds the numbers of a few rows, and the lanes hand
 * them round by shuffles.
 *
 * With neighbours in the order of the rows 256:64 takes 109 us on an H200 instead of 128, and
 * 1024:64 1640 instead of 2000: the first-level cache has no room for the lines of 256 rows
 * of nbr, so that each entry costs a sector.  Dropped: those lines in shared memory, sent for
 * while the offsets before are fetched (136 and 1930 us: a tile waits for them).
 *
 * Owner    -
 * Thread   device code, the first four warps of the block.
 * Limits   as tile_stream_sm90.cuh.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_STREAM_FETCH_SM90_CUH
#define VX_KERNELS_STREAM_FETCH_SM90_CUH

#include "kernels/stream_sm90.cuh"

#define WARP_ROWS (VX_TILE_N / 4)  /* rows that a warp fetches */
#define COPIES    (WARP_ROWS / 4)  /* instructions for them: 8 lanes copy a row */
#define HELD      (WARP_ROWS / 32) /* row numbers that a lane holds */

/* A warp's place on the walk: the offsets of this word that are left, and its rows; and
 * the same of the next tile, which is loaded long before it is needed. */
struct fetch {
    uint32_t round, index; /* of the next tile; of this one */
    struct stream_tile tile;
    int32_t word;
    uint32_t all, own;  /* of the tile; of the 64 rows that this warp fetches for */
    int32_t rows[HELD]; /* with neighbours their places in the order; -1 none */
    uint32_t next_entry,
        later_entry; /* of the list: of the next tile, the one behind it */
    uint32_t next_words;
    int32_t next_rows[HELD];
};

VX_DEVICE uint32_t warp_of_group(void)
{
    return vx_shuffle(vx_thread() / 32 % 4, 0);
}

VX_DEVICE void fetch_masks(uint32_t words, struct fetch *fetch)
{
    fetch->all = 0;
#pragma unroll
    for (uint32_t g = 0; g < GROUPS; g++) fetch->all |= words_join(words, g);
    fetch->own = words_join(words, warp_of_group() * WARP_ROWS / 64);
}

/* Loads what the next tile begins with. */
VX_DEVICE void fetch_ahead(const struct stream *stream, struct fetch *fetch)
{
    const struct vx_conv_device_args *args = stream->args;
    uint32_t index = index_at(args, fetch->round);
    fetch->next_entry = fetch->later_entry;
    fetch->later_entry = entry_at(stream, index_at(args, fetch->round + 1));
    if (index >= stream->count) return;
    struct stream_tile tile = tile_at(stream, index, fetch->next_entry);
    fetch->next_words = words_load(stream, &tile, word_first(stream, &tile));
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        int64_t place = tile.first_row + warp_of_group() * WARP_ROWS + 32 * i + vx_lane();
        if (args->neighbours)
            fetch->next_rows[i] = place < args->n ? (int32_t)place : -1;
        else
            fetch->next_rows[i] = row_at(args, &tile, place);
    }
}

/* Begins the tile that was loaded ahead. */
VX_DEVICE void fetch_enter(const struct stream *stream, struct fetch *fetch)
{
    const struct vx_conv_device_args *args = stream->args;
    fetch->index = index_at(args, fetch->round++);
    if (fetch->index >= stream->count) return;
    fetch->tile = tile_at(stream, fetch->index, fetch->next_entry);
    fetch->word = word_first(stream, &fetch->tile);
    fetch_masks(fetch->next_words, fetch);
#pragma unroll
    for (int i = 0; i < HELD; i++) fetch->rows[i] = fetch->next_rows[i];
    fetch_ahead(stream, fetch);
}

/* Goes on to a word with offsets, in this tile or a later one.  False: there is none. */
VX_DEVICE int fetch_seek(const struct stream *stream, struct fetch *fetch)
{
    while (!fetch->all) {
        if (fetch->word < word_last(stream, &fetch->tile)) {
            fetch->word++;
            fetch_masks(words_load(stream, &fetch->tile, fetch->word), fetch);
        } else {
            fetch_enter(stream, fetch);
            if (fetch->index >= stream->count) return 0;
        }
    }
    return 1;
}

/* The neighbours of this lane's rows at the next offset; -1 none. */
VX_DEVICE void fetch_neighbours(const struct vx_conv_device_args *args,
                                const struct fetch *fetch, int32_t neighbours[HELD])
{
    int32_t v = fetch->word * 32 + vx_lowest_bit(fetch->all);
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        int32_t row = fetch->rows[i];
        neighbours[i] = row;
        if (row >= 0 && args->neighbours)
            neighbours[i] = args->neighbours[v * args->n + row];
        else if (row >= 0 && args->nbr)
            neighbours[i] = args->nbr[(int64_t)row * args->nbr_stride + v];
    }
}

/* One offset of a tile as the fetching warps carry it out. */
struct fetch_step {
    const char *weights; /* of the first line of channels; columns lie side by side */
    uint32_t weights_bytes;
    int mine; /* the warp's rows have the offset */
    /* Where this lane's row begins, in 16 bytes; -1 = it is missing. */
    int32_t from[COPIES];
};

VX_DEVICE void step_make(const struct vx_conv_device_args *args,
                         const struct fetch *fetch, const int32_t neighbours[HELD],
                         struct fetch_step *step)
{
    int32_t bit = vx_lowest_bit(fetch->all), from[HELD];
    int32_t columns = args->co - fetch->tile.first_column;
    if (columns > VX_TILE_CO) columns = VX_TILE_CO;
    step->weights_bytes = (uint32_t)columns * LINE;
    step->weights = (const char *)args->tiled +
                    ((int64_t)(fetch->word * 32 + bit) *
                         ((args->ci + LINE_CHANNELS - 1) / LINE_CHANNELS) * args->co +
                     fetch->tile.first_column) *
                        LINE;
    step->mine = (int)(fetch->own >> bit & 1u);
#pragma unroll
    for (int i = 0; i < HELD; i++)
        from[i] =
            neighbours[i] < 0 ? -1 : neighbours[i] * (args->in_stride / CHUNK_CHANNELS);
#pragma unroll
    for (int i = 0; i < COPIES; i++)
        step->from[i] = (int32_t)vx_shuffle((uint32_t)from[i / 8],
                                            ((uint32_t)i * 4 + vx_lane() / 8) & 31u);
}

/* Sends for the weights of a line of channels of an offset; one thread. */
VX_DEVICE void weights_send(const struct fetch_step *step, const char *from,
                            const struct ring *ring)
{
    uint32_t full = ring->full + 8 * ring->at;
    vx_mbarrier_wait(ring->empty + 8 * ring->at, ring->parity);
    vx_mbarrier_expect(full, step->weights_bytes);
    vx_copy_bulk(ring->stages + ring->at * STAGE_BYTES + A_BYTES, from,
                 step->weights_bytes, full);
}

/* Copies 16 bytes of a row, or writes zeros if it is missing.  The sign is tested here: a
 * compiler that sees the test keeps its result for each copy, and then has no registers left
 * to work out the next address while a copy reads its own. */
VX_DEVICE void row_copy(uint32_t to, const char *in, int32_t from)
{
    asm volatile("{\n\t"
                 ".reg .pred missing;\n\t"
                 "setp.lt.s32 missing, %2, 0;\n\t"
                 "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, missing;\n\t"
                 "}" ::"r"(to),
                 "l"(in + (uint64_t)(uint32_t)from * 16), "r"(from)
                 : "memory");
}

/* sender: this thread sends for the weights. */
VX_DEVICE void step_run(const struct vx_conv_device_args *args, int sender,
                        const struct fetch_step *step, struct ring *ring)
{
    uint32_t row = warp_of_group() * WARP_ROWS + vx_lane() / 8, chunk = vx_lane() % 8;
    uint32_t even = ring->stages + row * LINE + ((chunk ^ (vx_lane() / 8)) << 4);
    uint32_t odd = ring->stages + row * LINE + ((chunk ^ (vx_lane() / 8) ^ 4u) << 4);
    const char *in = (const char *)args->in + chunk * 16, *weights = step->weights;
    for (int32_t channel = 0; channel < args->ci; channel += LINE_CHANNELS) {
        uint32_t stage = ring->at * STAGE_BYTES;
        if (sender) weights_send(step, weights, ring);
        vx_wave_barrier();
        vx_mbarrier_wait(ring->empty + 8 * ring->at, ring->parity);
        /* The last channels may be fewer: their chunks are not read. */
        if (step->mine && channel + (int32_t)chunk * CHUNK_CHANNELS < args->ci) {
#pragma unroll
            for (int i = 0; i < COPIES; i++)
                row_copy((i & 1 ? odd : even) + stage + (uint32_t)i * 4 * LINE, in,
                         step->from[i]);
        }
        vx_mbarrier_arrive_copies(ring->full + 8 * ring->at);
        in += LINE;
        weights += (uint32_t)args->co * LINE;
        ring_step(ring);
    }
}

/* The neighbours of an offset are loaded before the rows of the one before it are copied. */
VX_DEVICE void stream_fetch(const struct vx_conv_device_args *args, struct ring *ring)
{
    struct stream stream = stream_of(args);
    struct fetch fetch;
    struct fetch_step step;
    int32_t neighbours[HELD];
    /* By a shuffle, or the thread would be asked for its number at every stage. */
    const int sender = (int)vx_shuffle(vx_thread() == 0, vx_lane());
    ring->parity = 1;
    fetch.round = 0;
    fetch.later_entry = entry_at(&stream, index_at(args, 0));
    fetch_ahead(&stream, &fetch);
    fetch_enter(&stream, &fetch);
    if (fetch.index >= stream.count) return;
    int more = fetch_seek(&stream, &fetch);
    if (more) fetch_neighbours(args, &fetch, neighbours);
    while (more) {
        step_make(args, &fetch, neighbours, &step);
        fetch.all &= fetch.all - 1;
        more = fetch_seek(&stream, &fetch);
        if (more) fetch_neighbours(args, &fetch, neighbours);
        step_run(args, sender, &step, ring);
    }
}

#endif
