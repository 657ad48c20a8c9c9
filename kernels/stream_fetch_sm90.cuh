/* stream_fetch_sm90 - the warps that fill the ring of a stream of tiles.
 *
 * Private to tile_stream_sm90.cuh.  Four warps are a team, and each fetches a quarter of a tile's
 * rows; of a tile of 64 rows each warp is a team and fetches all of them.  Eight lanes
 * copy the 128 bytes of a row; a lane holds the numbers of a few rows, and the lanes hand
 * them round by shuffles.
 *
 * A warp carries out some 170 instructions for an offset of 64 channels, most of which wait for
 * the one before: 780 cycles for one warpgroup, in which a processor could have loaded and
 * multiplied more than twice as much.  So two warpgroups take the offsets in turn, where
 * registers are left for a second one.  Microseconds, H200, chains of layers recorded in a
 * graph, shells of 54,464 and of 219,992 voxels, each tile before and after: 64 channels
 * (256x64) 35.2, 29.1 and 93, 76.5; 96 channels 54.5, 47.5 and 145, 135; 128 channels (128x128)
 * 72, 63.3; 160 channels 105, 95, both of 54,464.  A third one gains
 * nothing.  With more than LINES lines of channels an offset costs little beside its lines, and
 * one warpgroup fetches.  Dropped: neighbours loaded two to four offsets ahead by one warpgroup
 * (5 % slower: it does not wait for them); units of LINES lines in turn, for any number of
 * channels (8 %, at 96 channels 20 % slower than whole offsets).
 *
 * With neighbours in the order of the rows 256:64 takes 109 us on an H200 instead of 128, and
 * 1024:64 1640 instead of 2000: the first-level cache has no room for the lines of 256 rows
 * of nbr, so that each entry costs a sector.  Dropped: those lines in shared memory, sent for
 * while the offsets before are fetched (136 and 1930 us: a tile waits for them).
 *
 * Where a layer has few tiles nothing hides how long the way to one stage is.  So a tile of 64
 * rows has 8 to 16 teams, which take a line of an offset in turn, whatever the number of channels,
 * and send for weights, which no launch writes, before the launch in front has ended.
 *
 * Owner    -
 * Thread   device code, the first warps of the block, four for each of FETCHERS.
 * Limits   as tile_stream_sm90.cuh.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_STREAM_FETCH_SM90_CUH
#define VX_KERNELS_STREAM_FETCH_SM90_CUH

#include "kernels/stream_sm90.cuh"

#define WARP_ROWS (VX_TILE_N / TEAM) /* rows that a warp fetches */
#define COPY_ROWS (32 / ROW_CHUNKS)  /* of one instruction: ROW_CHUNKS lanes copy a row */
#define COPIES    (WARP_ROWS / COPY_ROWS)
#define HELD      (WARP_ROWS / 32) /* row numbers that a lane holds */
/* Lines of channels that one set of addresses serves. */
#define LINES (GROUPS == 1 || ROW < LINE ? 1 : 4)

/* Between two of its stages a team passes those of the others.  If that took it once around the
 * ring, a stage could be a whole phase behind, and be taken for empty. */
static_assert((TEAMS - 1) * LINES < VX_STAGES, "see above");

/* Where neighbours lie: that of a row, or of a place in the order of the rows, at an offset is
 * list[row * row_stride + offset * offset_stride].  NULL: a row has one neighbour, itself. */
struct fetch_map {
    const int32_t *list;
    uint32_t row_stride, offset_stride;
    uint32_t weights_stride; /* bytes of the weights of an offset */
};

/* A warp's place on the walk: the offsets of this word that are left, and its rows; and
 * the same of the next tile, which is loaded long before it is needed. */
struct fetch {
    struct fetch_map map;
    uint32_t index; /* of the next tile */
    /* Parts from the first of the lowest offset that is left to the next of this team. */
    uint32_t others;
    uint32_t entry; /* of the tile in the list */
    int32_t first_column;
    int32_t word;
    uint32_t all, own;  /* of the tile; of the 64 rows that this warp fetches for */
    int32_t rows[HELD]; /* with neighbours their places in the order; -1 none */
    const int32_t *lists[HELD]; /* their neighbours at the first offset */
    uint32_t next_entry,
        later_entry; /* of the list: of the next tile, the one behind it */
    uint32_t next_words;
    int32_t next_rows[HELD];
};

VX_DEVICE uint32_t lines_of(const struct vx_conv_device_args *args)
{
    return (uint32_t)(args->ci + LINE_CHANNELS - 1) / LINE_CHANNELS;
}

/* Teams that take the parts of offsets in turn.  A part is one line where a tile is small, else all
 * lines of an offset. */
VX_DEVICE uint32_t teams_of(const struct vx_conv_device_args *args)
{
    return GROUPS == 1 || args->ci <= LINES * LINE_CHANNELS ? TEAMS : 1;
}
VX_DEVICE uint32_t parts_of(const struct vx_conv_device_args *args) /* of an offset */
{
    return GROUPS == 1 ? lines_of(args) : 1;
}
VX_DEVICE uint32_t stages_of(const struct vx_conv_device_args *args) /* of a part */
{
    return GROUPS == 1 ? 1 : lines_of(args);
}

VX_DEVICE uint32_t warp_of_team(void)
{
    return vx_shuffle(vx_thread() / 32 % TEAM, 0);
}

VX_DEVICE void fetch_masks(uint32_t words, struct fetch *fetch)
{
    fetch->all = 0;
#pragma unroll
    for (uint32_t g = 0; g < GROUPS; g++) fetch->all |= words_join(words, g);
    fetch->own = words_join(words, warp_of_team() * WARP_ROWS / 64);
}

/* Loads what the next tile begins with.  What was loaded before is moved by shuffles: instead of a
 * plain copy the compiler gives the new value another register, and copies that, which waits for
 * the load. */
VX_DEVICE void fetch_ahead(const struct stream *stream, struct fetch *fetch)
{
    const struct vx_conv_device_args *args = stream->args;
    fetch->next_entry = entry_at(stream, fetch->index, fetch->later_entry);
    if (!tiles_left(stream, fetch->next_entry)) return;
    entry_load(stream, fetch->index + (uint32_t)args->blocks, &fetch->later_entry);
    struct stream_tile tile = tile_at(stream, fetch->index, fetch->next_entry);
    fetch->next_words = words_load(stream, &tile, word_first(stream, &tile));
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        int64_t place = tile.first_row + warp_of_team() * WARP_ROWS + 32 * i + vx_lane();
        if (fetch->map.row_stride == 1) /* neighbours lie in the order of the rows */
            fetch->next_rows[i] =
                (uint64_t)place < (uint64_t)args->n ? (int32_t)place : -1;
        else
            fetch->next_rows[i] = row_at(args, &tile, place);
    }
}

/* Begins the tile that was loaded ahead.  False: there is none. */
VX_DEVICE int fetch_enter(const struct stream *stream, struct fetch *fetch)
{
    if (!tiles_left(stream, fetch->next_entry)) return 0;
    const struct stream_tile tile = tile_at(stream, fetch->index, fetch->next_entry);
    fetch->entry = fetch->next_entry;
    fetch->first_column = tile.first_column;
    fetch->word = word_first(stream, &tile);
    fetch_masks(fetch->next_words, fetch);
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        const uint32_t row = (uint32_t)fetch->next_rows[i];
        fetch->rows[i] = (int32_t)vx_shuffle((uint32_t)fetch->next_rows[i], vx_lane());
        fetch->lists[i] = fetch->map.list + (uint64_t)row * fetch->map.row_stride;
    }
    fetch->index += (uint32_t)stream->args->blocks;
    fetch_ahead(stream, fetch);
    return 1;
}

/* Goes on to the next word of the masks, in this tile or in the next one.  False: there is none. */
VX_DEVICE int fetch_go_on(const struct stream *stream, struct fetch *fetch)
{
    const struct stream_tile tile = tile_at(stream, 0, fetch->entry); /* of any column */
    if (fetch->word == word_last(stream, &tile)) return fetch_enter(stream, fetch);
    fetch->word++;
    fetch_masks(words_load(stream, &tile, fetch->word), fetch);
    return 1;
}

/* Takes the next part of this team: an offset, and which of its parts.  False: there is none. */
VX_DEVICE int fetch_seek(const struct stream *stream, struct fetch *fetch,
                         uint32_t *offset, uint32_t *part)
{
    const uint32_t parts = parts_of(stream->args);
    for (;;) {
        for (; fetch->all && fetch->others >= parts; fetch->others -= parts)
            fetch->all &= fetch->all - 1;
        if (!VX_RARELY(!fetch->all)) break;
        if (!fetch_go_on(stream, fetch)) return 0;
    }
    *offset = (uint32_t)fetch->word * 32 + (uint32_t)vx_lowest_bit(fetch->all);
    *part = fetch->others;
    fetch->others += teams_of(stream->args);
    return 1;
}

VX_DEVICE struct fetch_map map_of(const struct vx_conv_device_args *args)
{
    struct fetch_map map = {args->nbr, (uint32_t)args->nbr_stride, 1, 0};
    if (args->neighbours) {
        map.list = args->neighbours;
        map.row_stride = 1;
        map.offset_stride = (uint32_t)args->n;
    }
    map.weights_stride = lines_of(args) * (uint32_t)args->co * LINE;
    return map;
}

/* The neighbours of this lane's rows at an offset; -1 none. */
VX_DEVICE void fetch_neighbours(const struct fetch *fetch, uint32_t offset,
                                int32_t neighbours[HELD])
{
    const uint64_t at = (uint64_t)offset * fetch->map.offset_stride;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        neighbours[i] = fetch->rows[i];
        if (fetch->rows[i] >= 0 && fetch->map.list) neighbours[i] = fetch->lists[i][at];
    }
}

/* One part of an offset of a tile as the fetching warps carry it out. */
struct fetch_step {
    int sender;          /* one of this warp sends for the weights */
    uint32_t to;         /* of a stage, where the lane's first copy lies */
    const char *weights; /* of the next line of channels; columns lie side by side */
    uint32_t weights_bytes;
    int mine;      /* the warp's rows have the offset */
    int32_t first; /* channel */
    /* Bit COPY_ROWS * i: the i-th of ROW_CHUNKS rows that this lane copies is missing. */
    uint32_t missing[HELD];
    uint32_t rows[COPIES]; /* where they begin, in 16 bytes */
};

/* step->first: set already. */
VX_DEVICE void step_make(const struct vx_conv_device_args *args,
                         const struct fetch *fetch, uint32_t offset,
                         const int32_t neighbours[HELD], struct fetch_step *step)
{
    int32_t from[HELD], columns = args->co - fetch->first_column;
    if (columns > VX_TILE_CO) columns = VX_TILE_CO;
    step->weights_bytes = (uint32_t)columns * LINE;
    step->weights = (const char *)args->tiled +
                    (uint64_t)offset * fetch->map.weights_stride +
                    (uint32_t)fetch->first_column * LINE;
    if (GROUPS == 1)
        step->weights +=
            (uint64_t)((uint32_t)step->first / LINE_CHANNELS) * (uint32_t)args->co * LINE;
    step->mine = (int)vx_shuffle(fetch->own >> offset % 32 & 1u, 0);
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        step->missing[i] = vx_ballot(neighbours[i] < 0) >> vx_lane() / ROW_CHUNKS;
        from[i] = neighbours[i] * (args->in_stride / CHUNK_CHANNELS);
    }
#pragma unroll
    for (int i = 0; i < COPIES; i++)
        step->rows[i] =
            vx_shuffle((uint32_t)from[i / ROW_CHUNKS],
                       ((uint32_t)i * COPY_ROWS + vx_lane() / ROW_CHUNKS) & 31u);
}

/* Sends for the weights of a line of channels of an offset; one warp. */
VX_DEVICE void weights_send(const struct fetch_step *step, const struct ring *ring)
{
    if (vx_lane()) return;
    vx_mbarrier_expect(ring->full, step->weights_bytes);
    vx_copy_bulk(ring->stage + A_BYTES, step->weights, step->weights_bytes, ring->full);
}

/* Copies 16 bytes of a row, or writes zeros if bit `bit` says that it is missing.  That is
 * tested here: a compiler that sees the test keeps its result for each copy, and then has no
 * registers left. */
VX_DEVICE void row_copy(uint32_t to, uint64_t from, uint32_t missing, uint32_t bit)
{
    asm volatile("{\n\t"
                 ".reg .pred missing;\n\t"
                 ".reg .b32 bit;\n\t"
                 "and.b32 bit, %2, %3;\n\t"
                 "setp.ne.u32 missing, bit, 0;\n\t"
                 "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, missing;\n\t"
                 "}" ::"r"(to),
                 "l"(from), "r"(missing), "r"(bit)
                 : "memory");
}

/* One line of channels; `channels` are left.  from: the lane's 16 bytes of each row. */
VX_DEVICE void line_fetch(const struct vx_conv_device_args *args, struct fetch_step *step,
                          const uint64_t from[COPIES], int32_t channels,
                          struct ring *ring)
{
    /* In 128 bytes eight rows are a pattern of chunks, two copies; else one copy has whole ones. */
    const uint32_t even = ring->stage + step->to, odd = ROW == LINE ? even ^ 64u : even;
    /* The last channels may be fewer: the chunks behind them are not read. */
    const int there = (int32_t)(vx_lane() % ROW_CHUNKS) * CHUNK_CHANNELS < channels;
    vx_mbarrier_wait(ring_empty(ring->full), ring->parity);
    if (step->sender) weights_send(step, ring);
    if (GROUPS == 1) vx_launch_before();
    step->weights += (uint32_t)args->co * LINE;
    if (step->mine) {
        uint32_t missing[HELD];
#pragma unroll
        for (int i = 0; i < HELD; i++) missing[i] = there ? step->missing[i] : ~0u;
#pragma unroll
        for (int i = 0; i < COPIES; i++)
            row_copy((i & 1 ? odd : even) + (uint32_t)i * COPY_ROWS * ROW, from[i],
                     missing[i / ROW_CHUNKS], 1u << i % ROW_CHUNKS * COPY_ROWS);
    }
    vx_mbarrier_arrive_copies(ring->full);
    ring_step(ring);
}

/* Addresses are worked out once for so many lines: what a line adds to them is part of the
 * instruction.  Where each line worked them out, a copy waited until the one before it had
 * read its own. */
VX_DEVICE void lines_fetch(const struct vx_conv_device_args *args,
                           struct fetch_step *step, int32_t first, struct ring *ring)
{
    const uint64_t in =
        (uint64_t)args->in + (uint32_t)first * FACTOR_BYTES + vx_lane() % ROW_CHUNKS * 16;
    uint64_t from[COPIES];
#pragma unroll
    for (int i = 0; i < COPIES; i++) from[i] = in + (uint64_t)step->rows[i] * 16;
#pragma unroll
    for (int line = 0; line < LINES; line++) {
        const int32_t channels = args->ci - first - line * LINE_CHANNELS;
        if (channels <= 0) return;
        line_fetch(args, step, from, channels, ring);
#pragma unroll
        for (int i = 0; i < COPIES; i++) from[i] += ROW;
    }
}

/* All lines of a part; those of the parts that other teams fetch next are passed. */
VX_DEVICE void step_fetch(const struct vx_conv_device_args *args, struct fetch_step *step,
                          struct ring *ring)
{
    int32_t first = step->first;
    do lines_fetch(args, step, first, ring);
    while ((first += LINES * LINE_CHANNELS) < args->ci && GROUPS > 1);
    if (TEAMS > 1) ring_pass(ring, (teams_of(args) - 1) * stages_of(args));
}

/* The walk's beginning: as if at the end of a tile of the first group. */
VX_DEVICE void fetch_begin(const struct stream *stream, struct fetch *fetch)
{
    const struct stream_tile none = {0};
    fetch->map = map_of(stream->args);
    fetch->index = vx_block_x();
    fetch->entry = 0;
    fetch->word = word_last(stream, &none);
    fetch->all = 0;
    fetch->others = TEAMS > 1 ? vx_shuffle(vx_thread() / 32 / TEAM, 0) : 0;
    fetch->later_entry = 0;
    entry_load(stream, fetch->index, &fetch->later_entry);
    fetch_ahead(stream, fetch);
}

/* The neighbours of an offset are loaded before the rows of the one before it are copied. */
VX_DEVICE void stream_fetch(const struct vx_conv_device_args *args, struct ring *ring)
{
    struct stream stream = stream_of(args);
    struct fetch fetch;
    struct fetch_step step;
    int32_t neighbours[HELD];
    uint32_t offset, part;
    const uint32_t row = warp_of_team() * WARP_ROWS + vx_lane() / ROW_CHUNKS;
    /* By shuffles, or the thread would be asked for its number at every stage. */
    step.sender = warp_of_team() == 0;
    step.to = vx_shuffle(row * ROW +
                             ((vx_lane() % ROW_CHUNKS ^ vx_lane() / 8 % ROW_CHUNKS) << 4),
                         vx_lane());
    ring->parity = 1;
    fetch_begin(&stream, &fetch);
    if (fetch.others >= teams_of(args)) return; /* nothing is left for this team */
    ring_pass(ring, fetch.others * stages_of(args));
#pragma unroll 1 /* or the walk would be compiled for each */
    for (int made = 0;; made = 1) {
        const int more = fetch_seek(&stream, &fetch, &offset, &part);
        if (more) fetch_neighbours(&fetch, offset, neighbours);
        if (made)
            step_fetch(args, &step, ring);
        else if (GROUPS > 1)
            vx_launch_before();
        if (!more) return;
        step.first = GROUPS == 1 ? (int32_t)part * LINE_CHANNELS : 0;
        step_make(args, &fetch, offset, neighbours, &step);
    }
}

#endif
