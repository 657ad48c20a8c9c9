/* bench_transports - one request to a model and back, by every transport: TCP, Unix socket, system
 * shared memory, memory of the GPU, and in this process without a server.
 *
 *   bench_transports --repository DIR --device cuda:0 --tcp 127.0.0.1:8001
 *       --unix unix:/run/voxeld.sock --cases c64x4:16,c64x4:128,c32x2:512
 *
 * Prints a line of JSON for every number, then the table of clients/README.md.  Exit code 1 when
 * an answer was wrong or a request was refused.  tests/gpu/serve starts the daemon for it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/bench/transports.h"

#include "clients/cli/convert.h"
#include "clients/cli/options.h"
#include "engine/base/process/alloc.h"
#include "engine/base/process/clock.h"
#include "tests/support/voxels.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGN 4096
/* Overwrites the first byte of each page: a missing answer is detected, and the caches keep their
 * content. */
#define SPOIL_EACH 4096

static const char *const names[TRANSPORTS_COUNT] = {
    [TRANSPORT_TCP] = "tcp",
    [TRANSPORT_UNIX] = "unix",
    [TRANSPORT_SHM] = "system_shm",
    [TRANSPORT_DEVICE] = "device_shm",
    [TRANSPORT_UNNAMED] = "process_new",
    [TRANSPORT_PROCESS] = "process",
};
static const char *const titles[TRANSPORTS_COUNT] = {
    [TRANSPORT_TCP] = "TCP",
    [TRANSPORT_UNIX] = "Unix socket",
    [TRANSPORT_SHM] = "system shm",
    [TRANSPORT_DEVICE] = "device shm",
    [TRANSPORT_UNNAMED] = "in process, new geometry",
    [TRANSPORT_PROCESS] = "in process",
};

void transports_need(bool good, const char *what, const char *why)
{
    if (good) return;
    fprintf(stderr, "bench_transports: %s: %s\n", what, why);
    exit(1);
}

size_t transports_aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

int transports_device_index(const char *device)
{
    const char *colon = strchr(device, ':');
    return colon ? atoi(colon + 1) : 0;
}

void transports_spoil(u8 *memory, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += SPOIL_EACH) memory[at] ^= 0xa5;
}

bool transports_more(const struct transports_options *options, i64 done, i64 begin_ns)
{
    if (done >= options->warmup + options->requests) return false;
    bool late = (f64)(vx_clock_ns() - begin_ns) > options->seconds * 1e9;
    return !late || done <= options->warmup;
}

void transports_add(const struct transports_options *options, struct samples *samples,
                    i64 done, i64 ns)
{
    if (done >= options->warmup && samples->count < TRANSPORTS_SAMPLES_MAX)
        samples->ns[samples->count++] = ns;
}

static int by_value(const void *a, const void *b)
{
    i64 x = *(const i64 *)a;
    i64 y = *(const i64 *)b;
    return (x > y) - (x < y);
}

/* The percentile by nearest rank, of sorted times. */
static f64 percentile_ms(const struct samples *samples, i64 percent)
{
    i64 rank = (samples->count * percent + 99) / 100;
    return (f64)samples->ns[rank > 0 ? rank - 1 : 0] / 1e6;
}

static bool parse(struct transports_options *o, int argc, char **argv, int *code)
{
    const struct option options[] = {
        {"repository", 0, "DIR", OPTION_TEXT, &o->repository, {0, 0}, "of the daemon"},
        {"device", 0, "NAME", OPTION_TEXT, &o->device, {0, 0}, "cpu, cuda:N or fake:N"},
        {"tcp", 0, "ADDRESS", OPTION_TEXT, &o->tcp, {0, 0}, "HOST:PORT of the daemon"},
        {"unix",
         0,
         "ADDRESS",
         OPTION_TEXT,
         &o->unix_socket,
         {0, 0},
         "unix:PATH of the daemon"},
        {"cases", 0, "LIST", OPTION_TEXT, &o->cases, {0, 0}, "MODEL:RESOLUTION,..."},
        {"kernel-cache",
         0,
         "DIR",
         OPTION_TEXT,
         &o->kernel_cache,
         {0, 0},
         "for the engine here"},
        {"requests",
         'n',
         "N",
         OPTION_INT,
         &o->requests,
         {1, TRANSPORTS_SAMPLES_MAX},
         "that count, each way"},
        {"warmup", 0, "N", OPTION_INT, &o->warmup, {0, 1e6}, "before them"},
        {"seconds", 0, "S", OPTION_REAL, &o->seconds, {0.01, 1e5}, "longest, each way"},
        {"device-bytes",
         0,
         "N",
         OPTION_INT,
         &o->device_bytes,
         {1 << 20, 1e13},
         "for the engine here"},
        {"cache-bytes",
         0,
         "N",
         OPTION_INT,
         &o->cache_bytes,
         {1 << 20, 1e13},
         "for the engine here"},
    };
    const struct command command = {.name = "transports",
                                    .synopsis = "[options]   (bench_transports)",
                                    .about = "Measures every way to send a grid.",
                                    .after = "",
                                    .options = options,
                                    .options_count = sizeof options / sizeof *options};
    return options_parse(&command, argc, argv, code);
}

/* "c64x4:128": the model, and the shell of the field's benchmark at that resolution. */
static void subject_open(struct floor *floor, const char *text, struct subject *subject)
{
    char model[TRANSPORTS_NAME_BYTES];
    int res;
    transports_need(sscanf(text, "%63[^:]:%d", model, &res) == 2 && res > 0 && res <= 512,
                    text, "expected MODEL:RESOLUTION, as c64x4:128");
    floor_load(floor, model, subject);
    subject->voxels = voxels_shell(res, NULL);
    size_t rows = (size_t)subject->voxels;
    size_t cells = rows * (size_t)subject->channels;
    subject->coords_bytes = rows * 16;
    subject->feats_bytes = cells * 2;
    subject->output_bytes *= rows;
    subject->coords = vx_alloc_aligned(transports_aligned(subject->coords_bytes));
    subject->feats = vx_alloc_aligned(transports_aligned(subject->feats_bytes));
    subject->expected = vx_alloc_aligned(transports_aligned(subject->output_bytes));
    transports_need(subject->coords && subject->feats && subject->expected, text,
                    "no memory");
    voxels_shell(res, subject->coords);
    struct voxels_random random = {7919};
    for (size_t i = 0; i < cells; i++)
        subject->feats[i] = convert_to_half(voxels_unit(&random));
}

static void subject_close(struct floor *floor, struct subject *subject)
{
    floor_unload(floor);
    vx_free(subject->coords);
    vx_free(subject->feats);
    vx_free(subject->expected);
}

static void print_json(const struct subject *subject, enum transport transport,
                       const struct samples *samples)
{
    printf("{\"row\":\"%s\",\"model\":\"%s\",\"voxels\":%lld,\"in_bytes\":%zu,"
           "\"out_bytes\":%zu,\"requests\":%lld,\"p50_ms\":%.4f,\"p95_ms\":%.4f,"
           "\"p99_ms\":%.4f,\"wrong\":%lld}\n",
           names[transport], subject->model, (long long)subject->voxels,
           subject->coords_bytes + subject->feats_bytes, subject->output_bytes,
           (long long)samples->count, percentile_ms(samples, 50),
           percentile_ms(samples, 95), percentile_ms(samples, 99),
           (long long)samples->wrong);
    (void)fflush(stdout);
}

/* A row of the table, written when its numbers are there and printed at the end. */
struct table {
    char text[16384];
    size_t used;
};

static void table_begin(struct table *table)
{
    table->used = (size_t)snprintf(table->text, sizeof table->text,
                                   "| voxels, model | MB in / out |");
    for (int t = 0; t < TRANSPORTS_COUNT; t++)
        table->used +=
            (size_t)snprintf(table->text + table->used, sizeof table->text - table->used,
                             " %s |", titles[t]);
    table->used +=
        (size_t)snprintf(table->text + table->used, sizeof table->text - table->used,
                         "\n|---|---|---|---|---|---|---|---|\n");
}

static void table_cell(struct table *table, const struct samples *samples)
{
    char cell[64] = "-";
    if (samples->count)
        snprintf(cell, sizeof cell, "%.2f / %.2f / %.2f", percentile_ms(samples, 50),
                 percentile_ms(samples, 95), percentile_ms(samples, 99));
    table->used += (size_t)snprintf(table->text + table->used,
                                    sizeof table->text - table->used, " %s |", cell);
}

/* False when an answer was wrong or a request refused. */
static bool run_case(const struct transports_options *options, struct floor *floor,
                     const char *text, struct table *table)
{
    static struct samples samples[TRANSPORTS_COUNT];
    struct subject subject = {.known = false};
    bool good = true;
    subject_open(floor, text, &subject);
    memset(samples, 0, sizeof samples);
    floor_measure(floor, &subject, false, &samples[TRANSPORT_UNNAMED]);
    floor_measure(floor, &subject, true, &samples[TRANSPORT_PROCESS]);
    for (int t = 0; t < TRANSPORT_UNNAMED; t++)
        client_measure(options, &subject, (enum transport)t, &samples[t]);
    table->used += (size_t)snprintf(
        table->text + table->used, sizeof table->text - table->used,
        "| %lld, %s | %.1f / %.1f |", (long long)subject.voxels, subject.model,
        (f64)(subject.coords_bytes + subject.feats_bytes) / 1e6,
        (f64)subject.output_bytes / 1e6);
    for (int t = 0; t < TRANSPORTS_COUNT; t++) {
        struct samples *one = &samples[t];
        if (one->skipped[0])
            printf("%s %s, %s: %s\n", one->failed ? "FAILED" : "SKIPPED", names[t], text,
                   one->skipped);
        if (one->wrong)
            printf("FAILED %s, %s: %lld answers are wrong\n", names[t], text,
                   (long long)one->wrong);
        good = good && !one->failed && !one->wrong;
        qsort(one->ns, (size_t)one->count, sizeof *one->ns, by_value);
        if (one->count) print_json(&subject, (enum transport)t, one);
        table_cell(table, one);
    }
    table->used += (size_t)snprintf(table->text + table->used,
                                    sizeof table->text - table->used, "\n");
    subject_close(floor, &subject);
    return good;
}

int main(int argc, char **argv)
{
    struct transports_options o = {.device = "cpu",
                                   .cases = "c64x4:16,c64x4:128,c32x2:512",
                                   .requests = 1000,
                                   .warmup = 20,
                                   .seconds = 10,
                                   .device_bytes = (i64)4 << 30,
                                   .cache_bytes = (i64)1 << 30};
    static struct table table;
    char cases[512];
    int code;
    if (!parse(&o, argc, argv, &code)) return code;
    transports_need(o.repository != NULL, "--repository", "it is needed");
    transports_need(strlen(o.cases) < sizeof cases, "--cases", "the list is too long");
    /* Answers are megabytes: without this glibc returns their pages to the kernel each time. */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    struct floor *floor = floor_open(&o);
    bool good = true;
    table_begin(&table);
    snprintf(cases, sizeof cases, "%s", o.cases);
    char *rest = cases;
    for (char *one; (one = strsep(&rest, ",")) && table.used < sizeof table.text / 2;)
        good = run_case(&o, floor, one, &table) && good;
    floor_close(floor);
    printf("\nMilliseconds, p50 / p95 / p99, one request at a time, on %s:\n\n%s",
           o.device, table.text);
    return good ? CLI_DONE : CLI_REFUSED;
}
