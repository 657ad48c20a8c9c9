/* mlp_feed_sm90 - the warpgroup that feeds 33_mlp: one warp sends for weights, three normalise rows.
 *
 * Private to mlp_sm90.cuh.  The three warps have what layer norm wants of a row long before
 * the tile begins: its rows are measured while the tile before is multiplied.
 *
 * Measured (H200, 64,160 rows, 256 to 1024 to 256 channels, all of the kernel): rows
 * measured when their tile begins, by three warps, 305 us; ahead, each row by itself, 204
 * us; ahead, eight rows with one tree of sums, 162 us; without any norm 147 us.
 *
 * Owner    -
 * Thread   device code, the first four warps of the block.
 * Limits   as 33_mlp.h.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_MLP_FEED_SM90_CUH
#define VX_KERNELS_MLP_FEED_SM90_CUH

#include "kernels/mlp_parts_sm90.cuh"

/* --- the warp that sends for weights; one of its threads --- */

VX_DEVICE uint32_t send_begin(struct mlp *mlp, uint32_t bytes)
{
    struct mlp_ring *ring = &mlp->ring;
    vx_mbarrier_wait(ring->empty + 8 * ring->at, ring->parity);
    vx_mbarrier_expect(ring->full + 8 * ring->at, bytes);
    return ring->stages + ring->at * RING_BYTES;
}

VX_DEVICE void send_up(struct mlp *mlp, uint32_t chunk)
{
    const struct vx_conv_device_args *up = &mlp->args->up;
    const char *from = (const char *)up->tiled + (uint64_t)chunk * VX_MLP_HIDDEN * LINE;
    const uint32_t bytes = VX_MLP_HIDDEN * LINE;
    uint32_t to = send_begin(mlp, mlp->blocks * bytes);
    for (uint32_t b = 0; b < mlp->blocks;
         b++, to += bytes, from += (int64_t)up->co * LINE)
        vx_copy_bulk(to, from, bytes, mlp->ring.full + 8 * mlp->ring.at);
    mlp_ring_step(&mlp->ring);
}

VX_DEVICE void send_down(struct mlp *mlp, uint32_t chunk)
{
    const struct vx_conv_device_args *down = &mlp->args->down;
    const uint32_t bytes = (uint32_t)down->co * LINE;
    const uint32_t to = send_begin(mlp, bytes);
    vx_copy_bulk(to, (const char *)down->tiled + (uint64_t)chunk * bytes, bytes,
                 mlp->ring.full + 8 * mlp->ring.at);
    mlp_ring_step(&mlp->ring);
}

/* In the order in which they are used. */
VX_DEVICE void mlp_send(struct mlp *mlp)
{
    mlp->ring.parity = 1;
    for (uint32_t round = 0; mlp_tile(mlp, round) < mlp->tiles; round++) {
        send_up(mlp, 0);
        for (uint32_t chunk = 0; chunk < mlp->chunks; chunk++) {
            if (chunk + 1 < mlp->chunks) send_up(mlp, chunk + 1);
            send_down(mlp, chunk);
        }
    }
}

/* --- the warps that normalise rows --- */

VX_DEVICE void vx_store_shared4(uint32_t address, struct vx_words4 words)
{
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(address), "r"(words.x),
                 "r"(words.y), "r"(words.z), "r"(words.w)
                 : "memory");
}

/* A group of lanes has a row, a lane 8 channels of it, as in layer norm.  A warp takes
 * batches of rows, 8 for each group, the same of every tile: it waits for no other one. */
#define BATCH 8
static_assert(VX_MLP_ROWS % BATCH == 0 && BATCH == 8,
              "a batch begins at a multiple of 8");

struct feed {
    const struct vx_layer_norm_device_args *args;
    struct norm_row *norms; /* of the tile's rows */
    uint32_t lanes;         /* of a row: 16 or 32 */
    uint32_t vectors;       /* of a row */
    uint32_t vector;        /* this lane's */
    uint32_t first, step;   /* this lane's first row; from batch to batch */
};

VX_DEVICE struct feed feed_of(const struct mlp *mlp, uint32_t warp, char *shared)
{
    struct feed feed;
    feed.args = &mlp->args->norm;
    feed.norms = (struct norm_row *)(shared + NORMS_AT);
    feed.lanes = feed.args->cp <= 128 ? 16 : 32;
    feed.vectors = (uint32_t)feed.args->cp / VX_LANES;
    feed.vector = vx_lane() % feed.lanes;
    feed.step = NORM_WARPS * BATCH * (32 / feed.lanes);
    feed.first = warp * BATCH * (32 / feed.lanes) + vx_lane() / feed.lanes * BATCH;
    return feed;
}

/* Where this lane's vector of row i of a batch lies.  A batch begins at a multiple of 8. */
VX_DEVICE uint32_t feed_place(const struct mlp *mlp, const struct feed *feed,
                              uint32_t first, uint32_t i)
{
    return mlp->rows + feed->vector / 8 * PANEL_BYTES + (first + i) * LINE +
           (((feed->vector ^ i) & 7u) << 4);
}

/* Vectors from a row to the next. */
VX_DEVICE int64_t feed_stride(const struct feed *feed)
{
    return vx_row_vectors(feed->args->in_stride, feed->args->cp);
}

/* This lane's vectors of a batch of rows.  Every address exists: where a row or a vector does
 * not, another one's is read, so that no load waits for a branch.  A row behind the last one
 * is not used; channels from C on count as 0. */
VX_DEVICE void batch_load(const struct feed *feed, int64_t row,
                          struct vx_words4 words[BATCH])
{
    const int64_t left = feed->args->n - row, stride = feed_stride(feed);
    const uint32_t vector = feed->vector < feed->vectors ? feed->vector : 0;
    const struct vx_words4 *first = (const struct vx_words4 *)feed->args->in + vector;
    if (left > 0) first += row * stride;
#pragma unroll
    for (int i = 0; i < BATCH; i++) words[i] = first[i < left ? i * stride : 0];
}

/* Two lanes divide their rows and add what they have of them. */
VX_DEVICE void batch_halve(float *sums, const int rows, const uint32_t mask)
{
    const int odd = (vx_lane() & mask) != 0;
#pragma unroll
    for (int i = 0; i < rows; i++) {
        const float give = odd ? sums[2 * i] : sums[2 * i + 1];
        const float keep = odd ? sums[2 * i + 1] : sums[2 * i];
        sums[i] = keep + vx_shuffle_xor_float(give, mask);
    }
}

/* Adds the lanes' numbers of 8 rows: lane l gets the sum of row l % 8, for little more
 * than a shuffle a row.  The numbers are added in the same tree as by norm_group_sum. */
VX_DEVICE float batch_sum(float *sums, uint32_t lanes)
{
    batch_halve(sums, 4, 1);
    batch_halve(sums, 2, 2);
    batch_halve(sums, 1, 4);
    sums[0] += vx_shuffle_xor_float(sums[0], 8);
    if (lanes == 32) sums[0] += vx_shuffle_xor_float(sums[0], 16);
    return sums[0];
}

/* The compiler keeps the words, not the twice as many numbers that it made of them. */
VX_DEVICE void words_keep(struct vx_words4 *words)
{
    asm volatile("" : "+r"(words->x), "+r"(words->y), "+r"(words->z), "+r"(words->w));
}

/* Mean and scale of the rows of a batch; lane l has those of row l % 8 of its group. */
VX_DEVICE struct norm_row batch_measure(const struct feed *feed, int64_t row)
{
    const int32_t channel = (int32_t)feed->vector * VX_LANES, c = feed->args->c;
    struct vx_words4 words[BATCH];
    struct norm_row norm;
    float sums[BATCH];
    batch_load(feed, row, words);
#pragma unroll
    for (int i = 0; i < BATCH; i++) sums[i] = norm_sum(words[i], channel, c);
    norm.mean = batch_sum(sums, feed->lanes) / (float)c;
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
        const uint32_t lane = (vx_lane() & 16u) + (uint32_t)i;
        words_keep(&words[i]);
        const float mean =
            vx_float_of_bits(vx_shuffle(vx_bits_of_float(norm.mean), lane));
        sums[i] = norm_squares(words[i], channel, c, mean);
    }
    const float squares = batch_sum(sums, feed->lanes) / (float)c;
    norm.scale = 1.0f / vx_sqrt(squares + feed->args->eps);
    return norm;
}

/* Mean and scale of all rows of a tile, long before the tile begins.  All lanes count
 * alike: they add together. */
VX_DEVICE void rows_measure(const struct feed *feed, int64_t tile_row)
{
    for (uint32_t first = feed->first; first < VX_MLP_ROWS; first += feed->step) {
        const struct norm_row norm = batch_measure(feed, tile_row + first);
        if (feed->vector < BATCH) feed->norms[first + feed->vector] = norm;
    }
    vx_wave_barrier();
}

/* Sends for the rows of a tile, with zeros behind their channels. */
VX_DEVICE void rows_send(const struct mlp *mlp, const struct feed *feed, int64_t tile_row)
{
    const int present = feed->vector < feed->vectors;
    const int64_t vector = present ? feed->vector : 0;
    const struct vx_words4 *in = (const struct vx_words4 *)feed->args->in + vector;
    if (feed->vector < 8 * mlp->blocks)
        for (uint32_t first = feed->first; first < VX_MLP_ROWS; first += feed->step)
#pragma unroll 4
            for (uint32_t i = 0; i < BATCH; i++) {
                const uint32_t row = first + i;
                const int64_t at = tile_row + row;
                const int64_t from = at < feed->args->n ? at * feed_stride(feed) : 0;
                vx_copy_async(feed_place(mlp, feed, first, i), in + from,
                              present && at < feed->args->n);
            }
    vx_copy_commit();
    vx_copy_wait(0);
}

/* Normalises what this lane has sent for. */
VX_DEVICE void rows_norm(const struct mlp *mlp, const struct feed *feed)
{
    const int32_t channel = (int32_t)feed->vector * VX_LANES;
    if (feed->vector >= feed->vectors) return;
    struct norm_affine affine = norm_affine_load(feed->args, channel);
    affine.activation = VX_ACTIVATION_NONE;
    for (uint32_t first = feed->first; first < VX_MLP_ROWS; first += feed->step)
#pragma unroll 4
        for (uint32_t i = 0; i < BATCH; i++) {
            const uint32_t place = feed_place(mlp, feed, first, i);
            vx_store_shared4(place, norm_apply(feed->args, vx_load_shared4(place),
                                               channel, feed->norms[first + i], &affine));
        }
}

/* Brings what the end of a tile adds into the second-level cache. */
VX_DEVICE void residual_fetch(const struct vx_conv_device_args *down, int64_t tile_row,
                              uint32_t warp)
{
    const uint32_t lines = ((uint32_t)down->co * 2 + LINE - 1) / LINE;
    if (!down->residual) return;
    for (uint32_t i = warp * 32 + vx_lane(); i < VX_MLP_ROWS * lines;
         i += NORM_WARPS * 32) {
        const int64_t row = tile_row + i / lines;
        const char *at = (const char *)down->residual + row * down->residual_stride * 2 +
                         i % lines * LINE;
        if (row < down->n) asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
    }
}

/* Sends for the hidden columns' biases; they are there with the first tile's rows. */
VX_DEVICE void biases_send(const struct mlp *mlp, uint32_t warp)
{
    const struct vx_conv_device_args *up = &mlp->args->up;
    if (!up->bias) return;
    for (int32_t i = (int32_t)(warp * 32 + vx_lane()) * 4; i < up->co;
         i += NORM_WARPS * 32 * 4)
        vx_copy_async(mlp->rows + BIASES_AT + (uint32_t)i * 4, up->bias + i, 1);
}

VX_DEVICE void mlp_feed(const struct mlp *mlp, uint32_t warp, char *shared)
{
    const struct feed feed = feed_of(mlp, warp, shared);
    biases_send(mlp, warp);
    for (uint32_t round = 0; mlp_tile(mlp, round) < mlp->tiles; round++) {
        const int64_t tile_row = (int64_t)mlp_tile(mlp, round) * VX_MLP_ROWS;
        if (feed.args->c) rows_measure(&feed, tile_row);
        vx_mbarrier_wait(mlp->rows_empty, (round & 1u) ^ 1u);
        rows_send(mlp, &feed, tile_row);
        if (feed.args->c) rows_norm(mlp, &feed);
        vx_fence_async();
        vx_mbarrier_arrive(mlp->rows_full);
        residual_fetch(&mlp->args->down, tile_row, warp);
    }
}

#endif
