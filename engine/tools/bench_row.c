/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/tools/bench.h"

#include "engine/base/process/check.h"
#include "engine/base/process/print.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define JSON_BYTES 2048

/* While networks are measured, the tool itself has no device open to ask. */
static const char *bench_device(const struct vx_bench *bench)
{
    return bench->bench.gpu ? vx_gpu_name(bench->bench.gpu) : bench->pick.device;
}

void vx_bench_title(const struct vx_bench *bench)
{
    vx_print("%s", bench_device(bench));
    if (bench->bench.gpu)
        vx_print(", %s, driver %d", vx_gpu_arch(bench->bench.gpu),
                 vx_gpu_driver_version(bench->bench.gpu));
    vx_print("\n%-11s %-14s %-11s %9s %-14s %4s %10s %10s %10s %7s %7s %7s %5s %5s %5s "
             "%6s  %s\n",
             "what", "shape", "state", "N", "algorithm", "tile", "median us", "p10",
             "p90", "useful", "exec", "GB/s", "%mma", "%mem", "MHz", "W", "density");
}

/* "128,64,32,3,2,2": the values of a tile; "" when there are none. */
static const char *row_tile(const struct vx_bench_row *row, char text[96])
{
    const struct vx_kernel_spec *spec = row->spec;
    int used = 0;
    text[0] = 0;
    if (!row->choice || !spec || !spec->tiles) return text;
    for (i32 i = 0; i < spec->macros_count; i++)
        used += snprintf(text + used, 96 - (size_t)used, "%s%d", i ? "," : "",
                         spec->tiles[row->choice->tile].values[i]);
    return text;
}

/* The class of the row's neighbourhoods (density.h); "-": it has none. */
static const char *row_density(const struct vx_bench_row *row)
{
    if (!row->pairs || row->v <= 1) return "-";
    return vx_density_name(vx_density_of((f64)row->pairs / ((f64)row->n * (f64)row->v)));
}

static f64 rate(f64 amount, f64 ns)
{
    return ns > 0 ? amount / ns : 0;
}

static f64 ceiling_of(const struct vx_bench *bench, const struct vx_bench_row *row)
{
    return row->ceiling > 0 ? row->ceiling : bench->dense_rate;
}

static f64 percent(f64 part, f64 whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

/* Copies a name of the driver, without characters that JSON would have to escape. */
static void json_text(const char *from, char *to, size_t bytes)
{
    size_t used = 0;
    for (; *from && used + 1 < bytes; from++)
        if ((u8)*from >= 0x20 && *from != '"' && *from != '\\' && (u8)*from < 0x7f)
            to[used++] = *from;
    to[used] = 0;
}

/* The text of a number, or the one for unknown. */
static const char *number_text(bool known, f64 number, i32 digits, const char *unknown,
                               char text[24])
{
    snprintf(text, 24, "%.*f", digits, number);
    return known ? text : unknown;
}

static void row_json(const struct vx_bench *bench, const struct vx_bench_row *row)
{
    char line[JSON_BYTES], tile[96], hash[65] = "", device[VX_NAME_BYTES];
    char clock[24], watts[24];
    const struct vx_bench_draw *draw = &row->draw;
    const struct vx_gpu *gpu = bench->bench.gpu;
    if (row->spec && bench->bench.jit)
        vx_jit_source_hash(bench->bench.jit, row->spec, hash);
    json_text(bench_device(bench), device, sizeof device);
    int used = snprintf(
        line, sizeof line,
        "{\"what\":\"%s\",\"shape\":\"%s\",\"state\":\"%s\",\"device\":\"%s\","
        "\"arch\":\"%s\",\"driver\":%d,\"kernel\":\"%s\",\"source\":\"%s\","
        "\"algorithm\":\"%s\",\"tile\":\"%s\",\"type\":\"%s\",\"n\":%lld,\"pairs\":%lld,"
        "\"density\":\"%s\",\"ci\":%d,\"co\":%d,\"v\":%d,\"runs\":%d,\"median_ns\":%.0f,"
        "\"p10_ns\":%.0f,"
        "\"p90_ns\":%.0f,\"useful_tflops\":%.3f,\"executed_tflops\":%.3f,"
        "\"gigabytes_s\":%.2f,\"ceiling_tflops\":%.2f,\"ceiling_gigabytes_s\":%.1f,"
        "\"clock_mhz\":%s,\"watts\":%s}\n",
        row->what, row->shape, row->state, device, gpu ? vx_gpu_arch(gpu) : "",
        gpu ? vx_gpu_driver_version(gpu) : 0, row->spec ? row->spec->name : "", hash,
        row->choice ? vx_conv_name(row->choice->algorithm) : "", row_tile(row, tile),
        row->type ? vx_tune_type_name(row->type) : "", (long long)row->n,
        (long long)row->pairs, row_density(row), row->ci, row->co, row->v, row->runs,
        row->median, row->p10, row->p90, rate(row->flops_useful, row->median) / 1e3,
        rate(row->flops_executed, row->median) / 1e3, rate(row->bytes, row->median),
        ceiling_of(bench, row) / 1e3, bench->copy_rate,
        number_text(draw->clock_known, draw->clock_mhz, 0, "null", clock),
        number_text(draw->watts_known, draw->watts, 1, "null", watts));
    VX_ASSERT(used < JSON_BYTES);
    for (int at = 0; at < used;) {
        ssize_t put = write(bench->json, line + at, (size_t)(used - at));
        if (put <= 0) break; /* a full disk loses the row; it is on the terminal too */
        at += (int)put;
    }
}

void vx_bench_print(const struct vx_bench *bench, const struct vx_bench_row *row)
{
    const f64 useful = rate(row->flops_useful, row->median);
    const f64 executed = rate(row->flops_executed, row->median);
    const f64 bytes = rate(row->bytes, row->median);
    const struct vx_bench_draw *draw = &row->draw;
    char clock[24], watts[24];
    vx_print("%-11s %-14s %-11s %9lld %-14s %4d %10.1f %10.1f %10.1f %7.1f %7.1f %7.0f "
             "%5.1f %5.1f %5s %6s  %s\n",
             row->what, row->shape, row->state, (long long)row->n,
             row->choice ? vx_conv_name(row->choice->algorithm) : "-",
             row->choice ? row->choice->tile : 0, row->median / 1e3, row->p10 / 1e3,
             row->p90 / 1e3, useful / 1e3, executed / 1e3, bytes,
             percent(executed, ceiling_of(bench, row)), percent(bytes, bench->copy_rate),
             number_text(draw->clock_known, draw->clock_mhz, 0, "-", clock),
             number_text(draw->watts_known, draw->watts, 1, "-", watts),
             row_density(row));
    if (bench->json >= 0) row_json(bench, row);
}

vx_status vx_bench_time(struct vx_bench *bench, struct vx_harness_timing *timing,
                        struct vx_bench_row *row, struct vx_why *why)
{
    timing->runs = bench->runs;
    timing->warmups = 3; /* for caches and lazy loading; later runs are all alike */
    timing->warm_ns = bench->warm_ns;
    VX_TRY(vx_bench_power_begin(bench->power, why));
    const vx_status status = vx_harness_time(bench->harness, timing, why, bench->ns);
    row->draw = vx_bench_power_end(bench->power);
    VX_TRY(status);
    row->runs = timing->runs;
    row->median = vx_harness_quantile(bench->ns, timing->runs, 0.5);
    row->p10 = vx_harness_quantile(bench->ns, timing->runs, 0.1);
    row->p90 = vx_harness_quantile(bench->ns, timing->runs, 0.9);
    row->state = timing->graph  ? timing->cold ? "graph cold" : "graph warm"
                 : timing->cold ? "eager cold"
                                : "eager warm";
    vx_bench_print(bench, row);
    return VX_OK;
}
