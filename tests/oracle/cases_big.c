/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/print.h"
#include "engine/tune/oracle.h"
#include "tests/oracle/cases.h"

#include <math.h>
#include <string.h>

/* A flat sheet: voxel i of the request is (i / LINES, i % LINES, 0), a little below and
 * above zero.  27 offsets of each, stored as 28, and 64 channels: N*V, N*S and N*C are all
 * beyond 2^31, and so are their bytes beyond 2^32. */
#define COLUMNS   20000
#define LINES     4000
#define CHANNELS  64
#define OFFSETS   27
#define VOXELS    ((i64)COLUMNS * LINES)
#define SAMPLES   300
#define CHUNK     (INT64_C(1) << 20) /* voxels that the host generates at a time */
#define SEED_DATA UINT64_C(4242)
/* Memory that is not counted: the driver's own, and the kernels. */
#define SPARE ((size_t)1 << 30)
_Static_assert(VOXELS *OFFSETS > INT32_MAX, "N*V is beyond 32 bits");
_Static_assert(VOXELS *CHANNELS > INT32_MAX, "N*C is beyond 32 bits");

enum piece { COORDS, INDEX, ROWS, MAP, ORDER, SCRATCH, IN, WEIGHT, OUT, PIECES };

struct big {
    struct vx_rig *rig;
    struct vx_gpu *gpu;
    struct vx_gpu_stream *stream;
    struct vx_data *features, *weights;
    struct vx_gpu_index index;
    struct vx_gpu_map map;
    size_t bytes[PIECES];
    void *memory[PIECES];
};

static const struct vx_conv_problem problem = {.n = VOXELS,
                                               .kernel = {3, 3, 3},
                                               .v = OFFSETS,
                                               .ci = CHANNELS,
                                               .co = CHANNELS,
                                               .type = VX_NUMBER_F16};
static const struct vx_map_key key = {.kernel = {3, 3, 3}, .dilation = {1, 1, 1}};
static const struct vx_gpu_order_want order = {.n = VOXELS,
                                               .v = OFFSETS,
                                               .groups = 1,
                                               .kernel = {3, 3, 3},
                                               .sorted = true,
                                               .gray = true};

static void need(struct big *big, vx_status status, const struct vx_why *why)
{
    vx_rig_need(big->rig, status, why);
}

static bool take(struct big *big)
{
    const size_t rows = (size_t)VOXELS * CHANNELS * 2;
    size_t all = SPARE, free_bytes, total;
    struct vx_why why = {""};
    big->bytes[COORDS] = (size_t)VOXELS * 4 * sizeof(i32);
    big->bytes[INDEX] = vx_gpu_index_bytes(VOXELS);
    big->bytes[ROWS] = (size_t)VOXELS * sizeof(i32);
    big->bytes[MAP] = vx_gpu_map_bytes(VOXELS, &key);
    big->bytes[ORDER] = vx_gpu_order_bytes(&order);
    big->bytes[SCRATCH] = vx_gpu_order_scratch_bytes(&order);
    big->bytes[IN] = big->bytes[OUT] = rows;
    big->bytes[WEIGHT] = (size_t)OFFSETS * CHANNELS * CHANNELS * 2;
    for (i32 i = 0; i < PIECES; i++) all += big->bytes[i];
    need(big, vx_gpu_memory_info(big->gpu, &why, &free_bytes, &total), &why);
    if (free_bytes < all) {
        vx_print("SKIPPED big: %zu MB of device memory are free, %zu MB are needed\n",
                 free_bytes >> 20, all >> 20);
        return false;
    }
    for (i32 i = 0; i < PIECES; i++)
        need(big, vx_gpu_alloc(big->gpu, big->bytes[i], &why, &big->memory[i]), &why);
    return true;
}

static void send(struct big *big)
{
    struct vx_why why = {""};
    struct vx_data_target to = {big->gpu, big->stream, big->memory[IN]};
    i32 *coords = vx_rig_take(big->rig, (size_t)CHUNK * 4 * sizeof *coords);
    for (i64 first = 0; first < VOXELS; first += CHUNK) {
        i64 count = VOXELS - first < CHUNK ? VOXELS - first : CHUNK;
        for (i64 i = 0; i < count; i++) {
            coords[4 * i] = 0;
            coords[4 * i + 1] = (i32)((first + i) / LINES) - 5000;
            coords[4 * i + 2] = (i32)((first + i) % LINES) - 2001;
            coords[4 * i + 3] = -1;
        }
        need(big,
             vx_gpu_copy_in(big->gpu, big->stream,
                            &(struct vx_gpu_copy){(i32 *)big->memory[COORDS] + 4 * first,
                                                  coords,
                                                  (size_t)count * 4 * sizeof *coords},
                            &why),
             &why);
        need(big, vx_gpu_stream_wait(big->gpu, big->stream, &why), &why);
    }
    need(big, vx_data_send(big->features, &to, VOXELS * CHANNELS, &why), &why);
    to.memory = big->memory[WEIGHT];
    need(big, vx_data_send(big->weights, &to, OFFSETS * CHANNELS * CHANNELS, &why), &why);
    need(big, vx_gpu_stream_wait(big->gpu, big->stream, &why), &why);
}

static void get(struct big *big, void *host, const void *device, size_t bytes)
{
    struct vx_why why = {""};
    need(big,
         vx_gpu_copy_out(big->gpu, big->stream,
                         &(struct vx_gpu_copy){host, device, bytes}, &why),
         &why);
    need(big, vx_gpu_stream_wait(big->gpu, big->stream, &why), &why);
}

static i32 voxel_of(struct big *big, i64 row)
{
    i32 voxel;
    get(big, &voxel, big->index.rows + row, sizeof voxel);
    return voxel;
}

/* --- checks --- */

static void map_build(struct big *big)
{
    u32 fault[2];
    u64 pairs;
    const u64 expected = (u64)(3 * COLUMNS - 2) * (3 * LINES - 2);
    const struct vx_gpu_queue queue = {.set = big->rig->bench.set, .stream = big->stream};
    struct vx_why why = {""};
    i64 begin = vx_clock_ns();
    need(big,
         vx_gpu_index_build(&queue,
                            &(struct vx_gpu_coords){big->memory[COORDS],
                                                    4,
                                                    VOXELS,
                                                    big->memory[INDEX],
                                                    big->memory[ROWS],
                                                    {0}},
                            &why, &big->index),
         &why);
    vx_gpu_map_place(VOXELS, &key, big->memory[MAP], &big->map);
    vx_gpu_order_place(&order, big->memory[ORDER], &big->map);
    need(big, vx_gpu_map_build(&queue, &big->index, &key, &big->map, &why), &why);
    need(big, vx_gpu_order_build(&queue, &order, &big->map, big->memory[SCRATCH], &why),
         &why);
    get(big, fault, big->index.fault, sizeof fault);
    get(big, &pairs, big->map.pairs, sizeof pairs);
    vx_print("map: %.1f ms\n", (f64)(vx_clock_ns() - begin) / 1e6);
    big->rig->trials++;
    if (fault[0] || fault[1])
        vx_rig_fail(big->rig, "big: faults %u %u", fault[0], fault[1]);
    if (pairs != expected)
        vx_rig_fail(big->rig, "big: expected %llu pairs, got %llu",
                    (unsigned long long)expected, (unsigned long long)pairs);
}

/* Each entry of a row of the map is the neighbouring voxel's row; false = reported. */
static bool check_row(struct big *big, i64 row, i32 nbr[OFFSETS + 1])
{
    const i64 voxel = voxel_of(big, row), x = voxel / LINES, y = voxel % LINES;
    get(big, nbr, big->map.nbr + row * big->map.nbr_stride, (OFFSETS + 1) * sizeof *nbr);
    for (i32 v = 0; v < OFFSETS; v++) {
        i64 to_x = x + v / 9 - 1, to_y = y + v / 3 % 3 - 1;
        bool there =
            v % 3 == 1 && to_x >= 0 && to_x < COLUMNS && to_y >= 0 && to_y < LINES;
        i64 expected = there ? to_x * LINES + to_y : -1;
        bool inside = nbr[v] >= -1 && nbr[v] < VOXELS;
        i64 got = inside && nbr[v] >= 0 ? voxel_of(big, nbr[v]) : nbr[v];
        if (got == expected) continue;
        vx_rig_fail(big->rig, "big: expected voxel %lld at row %lld offset %d, got %lld",
                    (long long)expected, (long long)row, v, (long long)got);
        return false;
    }
    return true;
}

static void check_sums(struct big *big, i64 row, const i32 nbr[OFFSETS], const char *name)
{
    const struct vx_oracle_bounds bounds =
        vx_oracle_bounds(problem.type, OFFSETS, CHANNELS);
    u16 out[CHANNELS];
    get(big, out, (u16 *)big->memory[OUT] + row * CHANNELS, sizeof out);
    for (i32 o = 0; o < CHANNELS; o++) {
        f64 sum = 0, got = vx_number_ref_read(out, problem.type, o);
        for (i32 v = 0; v < OFFSETS; v++)
            for (i32 c = 0; nbr[v] >= 0 && c < CHANNELS; c++)
                sum += (f64)vx_data_at(big->features, (i64)nbr[v] * CHANNELS + c) *
                       (f64)vx_data_at(big->weights, (v * CHANNELS + c) * CHANNELS + o);
        if (fabs(got - sum) <= bounds.round * fabs(sum) + bounds.sum) continue;
        vx_rig_fail(big->rig, "big, %s: expected %.9g at row %lld channel %d, got %.9g",
                    name, sum, (long long)row, o, got);
        return;
    }
}

static void check(struct big *big, const char *name)
{
    i32 nbr[OFFSETS + 1];
    for (i32 s = 0; s < SAMPLES; s++) {
        i64 row = vx_rig_below(big->rig, VOXELS);
        if (s < 40) row = s; /* the first tile, the last one, and around 2^31 elements */
        if (s < 30) row = VOXELS - 1 - s;
        if (s < 20) row = (INT64_C(1) << 31) / (CHANNELS >> (s % 2)) - 5 + s / 2;
        if (check_row(big, row, nbr)) check_sums(big, row, nbr, name);
    }
}

static void convolve(struct big *big, enum vx_conv_algorithm algorithm)
{
    struct vx_conv_choice choice = {.algorithm = algorithm};
    const struct vx_gpu_queue on = {.set = big->rig->bench.set, .stream = big->stream};
    const struct vx_conv_operands operands = {.map = &big->map,
                                              .in = big->memory[IN],
                                              .weight = big->memory[WEIGHT],
                                              .out = big->memory[OUT]};
    struct vx_why why = {""};
    while (!vx_conv_fits(&problem, &choice, big->rig->caps))
        VX_ASSERT(++choice.tile < vx_conv_spec(algorithm)->tiles_count);
    need(big,
         vx_gpu_fill(
             big->gpu, big->stream,
             &(struct vx_gpu_words){big->memory[OUT], 0x7fff7fff, big->bytes[OUT]}, &why),
         &why);
    need(big, vx_gpu_stream_wait(big->gpu, big->stream, &why), &why);
    i64 begin = vx_clock_ns();
    big->rig->trials++;
    need(big, vx_conv_launch(&on, &problem, &choice, &operands, &why), &why);
    need(big, vx_gpu_stream_wait(big->gpu, big->stream, &why), &why);
    vx_print("%s: %.1f ms\n", vx_conv_name(algorithm),
             (f64)(vx_clock_ns() - begin) / 1e6);
    check(big, vx_conv_name(algorithm));
}

bool vx_cases_big(struct vx_rig *rig)
{
    struct big big = {.rig = rig, .gpu = rig->bench.gpu, .stream = rig->bench.stream};
    if (rig->bench.fake) {
        vx_print("SKIPPED big: the fake has no memory for it\n");
        return false;
    }
    if (!take(&big)) return false;
    vx_rig_need(rig, vx_data_open(problem.type, SEED_DATA, 1.0f, &big.features), NULL);
    vx_rig_need(rig, vx_data_open(problem.type, SEED_DATA + 1, 0.07f, &big.weights),
                NULL);
    send(&big);
    map_build(&big);
    convolve(&big, VX_CONV_MASKED);
    convolve(&big, VX_CONV_IMPLICIT);
    for (i32 i = 0; i < PIECES; i++) vx_gpu_free(big.gpu, &big.memory[i]);
    vx_data_close(&big.features);
    vx_data_close(&big.weights);
    vx_rig_reset(rig);
    return true;
}
