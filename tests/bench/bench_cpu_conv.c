/* bench_cpu_conv - one submanifold convolution, and its map, on the CPU device.
 *
 *   bench_cpu_conv [--res 64 | --coords FILE] [--channels 64] [--threads 0] [--runs 30]
 *                  [--shuffle] [--multiplier auto|loops|blas]
 *
 * FILE holds raw int32 rows (sample, x, y, z).  Prints one JSON line; every time is milliseconds of
 * a run with everything warm but the caches of the processor, which hold what fits.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "engine/base/process/thread.h"
#include "engine/cpu/device/cpu.h"
#include "engine/cpu/device/device.h"
#include "engine/cpu/geometry/geometry.h"
#include "tests/support/voxels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RUNS_MAX 1000

struct bench {
    i32 res, channels, threads, runs;
    const char *coords_file;
    bool shuffle;
    enum vx_multiplier multiplier;
    i64 n;
    i32 *coords;
    struct vx_cpu *cpu;
    struct vx_geometry_cache *cache;
    f64 ms[RUNS_MAX];
};

struct summary {
    f64 median, p10, p90;
};

static int by_value(const void *a, const void *b)
{
    f64 x = *(const f64 *)a;
    f64 y = *(const f64 *)b;
    return (x > y) - (x < y);
}

static struct summary summarize(struct bench *bench)
{
    qsort(bench->ms, (size_t)bench->runs, sizeof bench->ms[0], by_value);
    return (struct summary){bench->ms[bench->runs / 2], bench->ms[bench->runs / 10],
                            bench->ms[bench->runs * 9 / 10]};
}

static void need(vx_status status, const struct vx_why *why)
{
    if (!status.fault) return;
    (void)fprintf(stderr, "bench_cpu_conv: %s\n", vx_status_text(status, why));
    exit(1);
}

static void usage(const char *what)
{
    (void)fprintf(
        stderr,
        "bench_cpu_conv: %s\n"
        "usage: bench_cpu_conv [--res R | --coords FILE] [--channels C] [--threads T]\n"
        "                      [--runs R] [--shuffle] [--multiplier auto|loops|blas]\n",
        what);
    exit(2);
}

static void parse(struct bench *bench, int count, char **words)
{
    for (int i = 1; i < count; i++) {
        if (!strcmp(words[i], "--shuffle")) {
            bench->shuffle = true;
            continue;
        }
        if (i + 1 == count) usage("a flag has no value");
        const char *flag = words[i++];
        i32 number = (i32)strtol(words[i], NULL, 10);
        if (!strcmp(flag, "--res"))
            bench->res = number;
        else if (!strcmp(flag, "--channels"))
            bench->channels = number;
        else if (!strcmp(flag, "--threads"))
            bench->threads = number;
        else if (!strcmp(flag, "--runs"))
            bench->runs = number;
        else if (!strcmp(flag, "--coords"))
            bench->coords_file = words[i];
        else if (strcmp(flag, "--multiplier") != 0)
            usage("unknown flag");
        else if (!strcmp(words[i], "loops"))
            bench->multiplier = VX_MULTIPLIER_LOOPS;
        else if (!strcmp(words[i], "blas"))
            bench->multiplier = VX_MULTIPLIER_BLAS;
    }
    if (bench->runs < 1 || bench->runs > RUNS_MAX) usage("--runs: expected 1 to 1000");
    if (bench->channels < 1 || bench->channels > 2048)
        usage("--channels: expected 1 to 2048");
    if (bench->res < 1 || bench->res > 512) usage("--res: expected 1 to 512");
}

static void load(struct bench *bench)
{
    FILE *file = bench->coords_file ? fopen(bench->coords_file, "rb") : NULL;
    if (bench->coords_file && !file) usage("--coords: cannot open the file");
    if (file) {
        (void)fseek(file, 0, SEEK_END);
        bench->n = ftell(file) / 16;
        (void)fseek(file, 0, SEEK_SET);
    } else {
        bench->n = voxels_shell(bench->res, NULL);
    }
    bench->coords = vx_alloc((size_t)bench->n * 16);
    VX_ASSERT(bench->coords);
    if (!file)
        voxels_shell(bench->res, bench->coords);
    else if (fread(bench->coords, 16, (size_t)bench->n, file) != (size_t)bench->n)
        usage("--coords: the file is shorter than it was");
    if (file) (void)fclose(file);
    if (bench->shuffle)
        voxels_shuffle(&(struct voxels_random){1}, bench->coords, bench->n);
}

/* Each run uses a set that the cache does not have: keys, sort and map. */
static struct summary bench_map(struct bench *bench, const struct vx_map_key *key)
{
    struct vx_why why = {0};
    const struct vx_coords_view view = {bench->coords, bench->n, 4, {0, 0}, 0};
    i32 first = bench->coords[0];
    for (i32 r = -8; r < bench->runs; r++) {
        struct vx_geometry *geometry;
        const struct vx_map *map;
        for (i64 i = 0; i < bench->n; i++) bench->coords[i * 4] = (r + 8) % VX_SAMPLE_MAX;
        i64 begin = vx_clock_ns();
        need(vx_geometry_hold(bench->cache, bench->cpu, &view, &why, &geometry), &why);
        need(vx_geometry_map(geometry, bench->cpu, key, &why, &map), &why);
        if (r >= 0) bench->ms[r] = (f64)(vx_clock_ns() - begin) / 1e6;
        VX_ASSERT(!vx_geometry_was_hit(geometry));
        vx_geometry_drop(bench->cache, &geometry);
    }
    for (i64 i = 0; i < bench->n; i++) bench->coords[i * 4] = first;
    return summarize(bench);
}

static struct summary bench_conv(struct bench *bench, const struct vx_map *map)
{
    i64 c = bench->channels;
    struct voxels_random random = {2};
    f32 *in = vx_alloc_aligned((size_t)(bench->n * c) * sizeof *in);
    f32 *out = vx_alloc_aligned((size_t)(bench->n * c) * sizeof *out);
    f32 *weight = vx_alloc_aligned((size_t)(map->v * c * c) * sizeof *weight);
    VX_ASSERT(in);
    VX_ASSERT(out);
    VX_ASSERT(weight);
    voxels_fill(&random, in, bench->n * c);
    voxels_fill(&random, weight, map->v * c * c);
    const struct vx_conv_args args = {
        .n = bench->n,
        .v = map->v,
        .ci = (i32)c,
        .co = (i32)c,
        .nbr = map->nbr,
        .in = in,
        .weight = weight,
        .activation = VX_ACTIVATION_RELU,
        .out = out,
    };
    for (i32 r = -2; r < bench->runs; r++) {
        i64 begin = vx_clock_ns();
        vx_cpu_conv(bench->cpu, &args);
        if (r >= 0) bench->ms[r] = (f64)(vx_clock_ns() - begin) / 1e6;
    }
    vx_free(in);
    vx_free(out);
    vx_free(weight);
    return summarize(bench);
}

/* Room for about four sets and maps, so that the runs measured reuse memory as a server does. */
static size_t cache_bytes(i64 n)
{
    return (size_t)1 << (vx_bit_length((u64)n * 27 * sizeof(i32)) + 2);
}

int main(int count, char **words)
{
    static struct bench bench = {.res = 64, .channels = 64, .runs = 30};
    struct vx_why why = {0};
    vx_log_init(&(struct vx_log_options){VX_LOG_ERROR, false, 2}, "bench");
    vx_thread_enter(VX_ROLE_DEVICE);
    parse(&bench, count, words);
    load(&bench);
    const struct vx_cpu_choice choice = {bench.threads, NULL, bench.multiplier};
    need(vx_cpu_open_as(&choice, &why, &bench.cpu), &why);
    need(vx_geometry_open(cache_bytes(bench.n), &why, &bench.cache), &why);
    const struct vx_map_key key = {.kernel = {3, 3, 3}, .dilation = {1, 1, 1}};
    struct summary map_ms = bench_map(&bench, &key);
    const struct vx_coords_view view = {bench.coords, bench.n, 4, {0, 0}, 0};
    struct vx_geometry *geometry;
    const struct vx_map *map;
    need(vx_geometry_hold(bench.cache, bench.cpu, &view, &why, &geometry), &why);
    need(vx_geometry_map(geometry, bench.cpu, &key, &why, &map), &why);
    struct summary ms = bench_conv(&bench, map);
    f64 flops = 2.0 * (f64)map->pairs * bench.channels * bench.channels;
    (void)printf(
        "{\"device\":\"%s\",\"n\":%lld,\"neighbors\":%.2f,\"channels\":%d,"
        "\"conv_ms\":%.3f,\"conv_ms_p10\":%.3f,\"conv_ms_p90\":%.3f,\"gflops\":%.1f,"
        "\"map_ms\":%.3f,\"map_ms_p10\":%.3f,\"map_ms_p90\":%.3f,"
        "\"map_ns_per_voxel\":%.1f}\n",
        vx_cpu_name(bench.cpu), (long long)bench.n, (f64)map->pairs / (f64)bench.n,
        bench.channels, ms.median, ms.p10, ms.p90, flops / ms.median / 1e6, map_ms.median,
        map_ms.p10, map_ms.p90, map_ms.median * 1e6 / (f64)bench.n);
    vx_geometry_drop(bench.cache, &geometry);
    vx_geometry_close(&bench.cache);
    vx_cpu_close(&bench.cpu);
    vx_free(bench.coords);
    return 0;
}
