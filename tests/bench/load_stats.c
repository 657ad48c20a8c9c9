/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/load.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* Times below 128 ns have a bucket each; above, 128 for each power of two. */
#define LEAST_OCTAVE 7

int64_t load_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int64_t load_code_of(const char *name)
{
    for (int code = 0; code < LOAD_CODES; code++)
        if (strcmp(voxel_code_name((enum voxel_code)code), name) == 0) return code;
    return -1;
}

void load_stats_time(struct load_stats *stats, int64_t ns)
{
    if (ns < 0) ns = 0;
    if (ns > stats->longest_ns) stats->longest_ns = ns;
    size_t bucket = (size_t)ns;
    if (ns >= LOAD_BUCKETS_PER_OCTAVE) {
        int octave = 63 - __builtin_clzll((unsigned long long)ns);
        size_t part = (size_t)(ns >> (octave - LEAST_OCTAVE)) - LOAD_BUCKETS_PER_OCTAVE;
        bucket = (size_t)(octave - LEAST_OCTAVE + 1) * LOAD_BUCKETS_PER_OCTAVE + part;
    }
    if (bucket >= LOAD_BUCKETS) bucket = LOAD_BUCKETS - 1;
    stats->buckets[bucket]++;
}

/* The middle of a bucket. */
static double bucket_ns(size_t bucket)
{
    size_t octave = bucket / LOAD_BUCKETS_PER_OCTAVE;
    double part = (double)(bucket % LOAD_BUCKETS_PER_OCTAVE);
    if (octave == 0) return part;
    return ldexp(LOAD_BUCKETS_PER_OCTAVE + part + 0.5, (int)octave - 1);
}

static double percentile_ms(const struct load_stats *stats, double part)
{
    int64_t count = 0, seen = 0;
    for (size_t i = 0; i < LOAD_BUCKETS; i++) count += stats->buckets[i];
    int64_t rank = (int64_t)ceil(part * (double)count);
    for (size_t i = 0; i < LOAD_BUCKETS; i++) {
        seen += stats->buckets[i];
        if (seen >= rank && seen > 0) {
            double ns = bucket_ns(i);
            return (ns < (double)stats->longest_ns ? ns : (double)stats->longest_ns) /
                   1e6;
        }
    }
    return 0;
}

void load_stats_add(struct load_stats *sum, const struct load_stats *stats)
{
    for (size_t i = 0; i < LOAD_BUCKETS; i++) sum->buckets[i] += stats->buckets[i];
    for (size_t i = 0; i < LOAD_CODES; i++) sum->codes[i] += stats->codes[i];
    for (size_t b = 0; b < LOAD_BADS; b++)
        for (size_t i = 0; i < LOAD_CODES; i++) sum->bads[b][i] += stats->bads[b][i];
    if (stats->longest_ns > sum->longest_ns) sum->longest_ns = stats->longest_ns;
    if (stats->latest_send_ns > sum->latest_send_ns)
        sum->latest_send_ns = stats->latest_send_ns;
    if (stats->last_ns > sum->last_ns) sum->last_ns = stats->last_ns;
    sum->answered += stats->answered;
    sum->voxels += stats->voxels;
    sum->bytes_in += stats->bytes_in;
    sum->bytes_out += stats->bytes_out;
    sum->vanished += stats->vanished;
    sum->wrong += stats->wrong;
    sum->unexpected += stats->unexpected;
    sum->not_sent += stats->not_sent;
    sum->refs_used += stats->refs_used;
    sum->refs_resent += stats->refs_resent;
    sum->refs_none += stats->refs_none;
    if (!sum->first_failure[0])
        memcpy(sum->first_failure, stats->first_failure, sizeof sum->first_failure);
}

bool load_stats_good(const struct load_stats *stats)
{
    return stats->wrong == 0 && stats->unexpected == 0 && stats->codes[VOXEL_OK] > 0;
}

static void print_codes(const int64_t *codes)
{
    const char *comma = "";
    printf("{");
    for (int i = 0; i < LOAD_CODES; i++) {
        if (!codes[i]) continue;
        printf("%s\"%s\":%" PRId64, comma, voxel_code_name((enum voxel_code)i), codes[i]);
        comma = ",";
    }
    printf("}");
}

static void print_bads(const struct load_stats *stats)
{
    printf(",\"bad\":{\"vanished\":%" PRId64, stats->vanished);
    for (int bad = 0; bad < LOAD_BADS; bad++) {
        if (bad == BAD_VANISHED) continue;
        printf(",\"%s\":", load_bad_names[bad]);
        print_codes(stats->bads[bad]);
    }
    printf("}");
}

static double processor_seconds(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

static const double parts[] = {0.5, 0.9, 0.99, 0.999};
static const char *const part_names[] = {"p50", "p90", "p99", "p99_9"};

static void print_json(const struct load_stats *stats, const struct load_options *options,
                       double seconds)
{
    printf("{\"model\":\"%s\",\"mix\":\"%s\",\"clients\":%" PRId64
           ",\"rate\":%g,\"channels\":%" PRId64 ",\"threads\":%" PRId64
           ",\"seconds\":%.3f,\"answered\":%" PRId64 ",\"req_s\":%.1f,\"voxels_s\":%.0f",
           options->model, options->mix, options->rate > 0 ? 0 : options->clients,
           options->rate, options->channels, options->threads, seconds, stats->answered,
           (double)stats->answered / seconds, (double)stats->voxels / seconds);
    printf(",\"mb_s_in\":%.2f,\"mb_s_out\":%.2f", (double)stats->bytes_in / seconds / 1e6,
           (double)stats->bytes_out / seconds / 1e6);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        printf(",\"%s_ms\":%.4f", part_names[i], percentile_ms(stats, parts[i]));
    printf(",\"max_ms\":%.4f,\"statuses\":", (double)stats->longest_ns / 1e6);
    print_codes(stats->codes);
    printf(",\"wrong\":%" PRId64 ",\"unexpected\":%" PRId64 ",\"not_sent\":%" PRId64,
           stats->wrong, stats->unexpected, stats->not_sent);
    printf(",\"latest_send_ms\":%.3f", (double)stats->latest_send_ns / 1e6);
    if (options->refs)
        printf(",\"refs\":{\"used\":%" PRId64 ",\"resent\":%" PRId64
               ",\"with_coords\":%" PRId64 "}",
               stats->refs_used, stats->refs_resent, stats->refs_none);
    if (options->bad > 0) print_bads(stats);
    printf(",\"cpu_s\":%.2f,\"good\":%s}\n", processor_seconds(),
           load_stats_good(stats) ? "true" : "false");
}

void load_stats_print(const struct load_stats *stats, const struct load_options *options,
                      double seconds)
{
    printf(
        "%.0f req/s, %.3g voxels/s, %.1f MB/s in, %.1f MB/s out; ms: p50 %.3f, p90 %.3f, "
        "p99 %.3f, p99.9 %.3f, max %.3f; wrong %" PRId64 ", unexpected %" PRId64 "\n",
        (double)stats->answered / seconds, (double)stats->voxels / seconds,
        (double)stats->bytes_in / seconds / 1e6, (double)stats->bytes_out / seconds / 1e6,
        percentile_ms(stats, 0.5), percentile_ms(stats, 0.9), percentile_ms(stats, 0.99),
        percentile_ms(stats, 0.999), (double)stats->longest_ns / 1e6, stats->wrong,
        stats->unexpected);
    if (stats->first_failure[0]) printf("first failure: %s\n", stats->first_failure);
    if (options->json) print_json(stats, options, seconds);
}
