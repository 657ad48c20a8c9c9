/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/tools/bench.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/print.h"
#include "engine/engine.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES  256
#define TEXT_BYTES  (256 << 10) /* network.json or a header of 256 layers */
#define LAYERS_MOST 256
#define DEMO        "deploy/demo/repository/normals"
#define CACHE_BYTES ((size_t)1 << 30)
/* Clocks rise under load (engine/tune/harness.h), so a real device gets more warm-ups. */
#define WARMUPS      3
#define WARMUPS_REAL 30
#define NEIGHBOURS   13.0f /* of a voxel of a shell, itself included (shapes.h) */

/* The parts of a request's time; DEVICE is their sum, WALL is on the caller's clock. */
enum { CONVERT, GEOMETRY, COMPUTE, OUTPUT, DEVICE, WALL, PARTS };
static const char *const part_names[PARTS] = {"convert", "geometry", "layers",
                                              "output",  "device",   "wall"};
static const char *const part_names_kept[PARTS] = {
    [DEVICE] = "device kept", [WALL] = "wall kept"};

struct network {
    struct vx_bench *bench;
    const struct vx_bench_network *wanted;
    char directory[PATH_BYTES]; /* made by us, or "" */
    i32 channels, layers;       /* of a generated network; else 0 */
    struct vx_engine *engine;
    struct vx_model *model;
    u64 names; /* of geometries, so far */
    struct vx_bench_draw draw;
    f64 ns[PARTS][VX_HARNESS_RUNS_MAX];
};

/* --- a generated network of equal convolutions --- */

static bool network_file(const struct network *network, const char *name, char *text,
                         size_t bytes)
{
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", network->directory, name);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0) return false;
    bool good = true;
    for (size_t at = 0; good && at < bytes;) {
        ssize_t put = write(file, text + at, bytes - at);
        good = put > 0;
        at += good ? (size_t)put : 0;
    }
    return !close(file) && good;
}

static bool network_description(const struct network *network, char *text)
{
    size_t used = (size_t)snprintf(
        text, TEXT_BYTES,
        "{\"format\":1,\"inputs\":{\"coords\":\"coords\",\"feats\":{\"name\":\"feats\","
        "\"channels\":%d}},\"layers\":[",
        network->channels);
    for (i32 i = 0; i < network->layers && used < TEXT_BYTES; i++) {
        char input[16] = "feats";
        if (i) snprintf(input, sizeof input, "l%d", i - 1);
        used += (size_t)snprintf(text + used, TEXT_BYTES - used,
                                 "%s{\"name\":\"l%d\",\"op\":\"subm_conv\",\"input\":"
                                 "\"%s\",\"channels\":%d,\"kernel\":3,\"bias\":false,"
                                 "\"layout\":\"oxyzi\"}",
                                 i ? "," : "", i, input, network->channels);
    }
    if (used < TEXT_BYTES)
        used +=
            (size_t)snprintf(text + used, TEXT_BYTES - used,
                             "],\"outputs\":[{\"name\":\"out\",\"layer\":\"l%d\"}],"
                             "\"warmup\":[%lld]}",
                             network->layers - 1, (long long)network->wanted->sizes[0]);
    return used < TEXT_BYTES && network_file(network, "network.json", text, used);
}

static bool network_header(const struct network *network, i64 elements, char *text)
{
    size_t used = 8; /* the header's length comes first */
    const i32 channels = network->channels;
    i64 begin = 0;
    for (i32 i = 0; i < network->layers && used < TEXT_BYTES; i++) {
        i64 end = begin + 2 * elements;
        used += (size_t)snprintf(
            text + used, TEXT_BYTES - used,
            "%s\"l%d.weight\":{\"dtype\":\"F16\",\"shape\":[%d,3,3,3,%d],"
            "\"data_offsets\":[%lld,%lld]}",
            i ? "," : "{", i, channels, channels, (long long)begin, (long long)end);
        begin = end;
    }
    if (used + 16 >= TEXT_BYTES) return false;
    text[used++] = '}';
    while (used % 8) text[used++] = ' ';
    u64 length = used - 8;
    memcpy(text, &length, sizeof length);
    return network_file(network, "1/weights.safetensors", text, used);
}

/* The weights keep the variance of the features the same in all layers.  A sum has 13 * C
 * products, because 13 of 27 neighbours exist; weights uniform in [-scale, scale) have
 * the variance scale^2 / 3. */
static bool network_weights(const struct network *network, char *text)
{
    const i64 elements = (i64)27 * network->channels * network->channels;
    const f32 scale = sqrtf(3.0f / (NEIGHBOURS * (f32)network->channels));
    struct vx_data *data;
    if (!network_header(network, elements, text)) return false;
    vx_status status = vx_data_open(VX_NUMBER_F16, 1, scale, &data);
    if (status.fault) return false;
    bool good = true;
    for (i64 at = 0; good && at < elements * network->layers; at += VX_DATA_BLOCK) {
        i64 left = elements * network->layers - at;
        good = network_file(network, "1/weights.safetensors", data->typed,
                            2 * (size_t)(left < VX_DATA_BLOCK ? left : VX_DATA_BLOCK));
    }
    vx_data_close(&data);
    return good;
}

/* Parses "c64x16". */
static bool network_parse(const char *name, i32 *channels, i32 *layers)
{
    char tail;
    if (sscanf(name, "c%dx%d%c", channels, layers, &tail) != 2) return false;
    return *channels >= 1 && *channels <= VX_CHANNELS_MAX && *layers >= 1 &&
           *layers <= LAYERS_MOST;
}

static vx_status network_make(struct network *network, struct vx_why *why)
{
    static char text[TEXT_BYTES];
    char version[PATH_BYTES + 8];
    VX_ENSURE_WHY(
        network_parse(network->wanted->name, &network->channels, &network->layers), why,
        INVALID_ARGUMENT, "no such network",
        "--network: expected demo, or channels and layers such as c64x16, got \"%s\"",
        network->wanted->name);
    snprintf(network->directory, sizeof network->directory, "/tmp/voxeld-bench-XXXXXX");
    if (!mkdtemp(network->directory)) network->directory[0] = 0;
    snprintf(version, sizeof version, "%s/1", network->directory);
    bool good = network->directory[0] && !mkdir(version, 0700) &&
                network_description(network, text) && network_weights(network, text);
    VX_ENSURE(good, UNAVAILABLE, "a network to measure cannot be written to /tmp");
    return VX_OK;
}

static void network_remove(const struct network *network)
{
    static const char *const files[] = {"network.json", "1/weights.safetensors"};
    char path[PATH_BYTES + 64];
    if (!network->directory[0]) return;
    for (size_t i = 0; i < VX_COUNT(files); i++) {
        snprintf(path, sizeof path, "%s/%s", network->directory, files[i]);
        (void)unlink(path);
    }
    snprintf(path, sizeof path, "%s/1", network->directory);
    (void)rmdir(path);
    (void)rmdir(network->directory);
}

/* --- requests --- */

/* Host memory of one request, page-locked for a GPU, as a daemon's arena is. */
struct host {
    void *memory;
    bool pinned;
};
struct request {
    struct host coords, feats, outputs[VX_OUTPUTS_MAX];
    struct vx_data *data;
};

/* A driver that refuses to lock it only makes copies slower. */
static vx_status host_make(const struct network *network, size_t bytes, struct host *host)
{
    struct vx_why unused;
    host->memory = vx_alloc(bytes + 1);
    VX_ENSURE(host->memory, RESOURCE_EXHAUSTED, "no memory for a request to measure");
    host->pinned =
        network->wanted->kind != VX_DEVICE_FAKE &&
        !vx_engine_pin(network->engine, host->memory, bytes + 1, &unused).fault;
    return VX_OK;
}

static void host_free(const struct network *network, struct host *host)
{
    if (host->pinned) vx_engine_unpin(network->engine, host->memory);
    vx_free(host->memory);
}

static void request_free(const struct network *network, struct request *request)
{
    host_free(network, &request->coords);
    host_free(network, &request->feats);
    for (i32 i = 0; i < VX_OUTPUTS_MAX; i++) host_free(network, &request->outputs[i]);
    vx_data_close(&request->data);
}

static vx_status output_make(const struct network *network, i32 o, i64 rows,
                             struct request *request, struct vx_item *item)
{
    const struct vx_output *output = &vx_model_signature(network->model)->outputs[o];
    size_t row = (size_t)output->channels * vx_dtype_bytes(output->dtype);
    if (!request->outputs[o].memory)
        VX_TRY(host_make(network, (size_t)rows * row, &request->outputs[o]));
    item->outputs[o] = request->outputs[o].memory;
    return VX_OK;
}

static vx_status request_make(const struct network *network,
                              const struct vx_bench_set *set, struct request *request,
                              struct vx_item *item)
{
    const i64 n = set->n;
    const struct vx_signature *signature = vx_model_signature(network->model);
    const i64 feats = n * signature->feats_channels;
    VX_TRY(vx_data_open(VX_NUMBER_F16, 2, 1.0f, &request->data));
    VX_TRY(host_make(network, (size_t)n * 4 * sizeof(i32), &request->coords));
    VX_TRY(host_make(network, (size_t)feats * 2, &request->feats));
    if (set->coords)
        memcpy(request->coords.memory, set->coords, (size_t)n * 4 * sizeof(i32));
    else
        vx_shape_shell(vx_shape_res_of(n), n, request->coords.memory);
    for (i64 at = 0; at < feats; at += VX_DATA_BLOCK) {
        i64 left = feats - at < VX_DATA_BLOCK ? feats - at : VX_DATA_BLOCK;
        memcpy((u8 *)request->feats.memory + 2 * at, request->data->typed,
               2 * (size_t)left);
    }
    *item = (struct vx_item){.coords = request->coords.memory,
                             .coords_columns = 4,
                             .voxels = n,
                             .feats = request->feats.memory,
                             .feats_dtype = VX_DTYPE_F16};
    for (i32 i = 0; i < signature->outputs_count; i++)
        if (signature->outputs[i].set)
            item->asks |= 1u << i;
        else
            VX_TRY(output_make(network, i, n, request, item));
    return VX_OK;
}

/* Runs the batch, which has one item.  The outputs for which it asks get their memory in
 * the first run, and the same again in later ones. */
static vx_status request_run(const struct network *network, struct vx_batch *batch,
                             struct request *request)
{
    struct vx_item *item = batch->items;
    struct vx_asked asked;
    for (i32 o = 0; o < VX_OUTPUTS_MAX; o++)
        if (item->asks >> o & 1) item->outputs[o] = NULL;
    vx_engine_submit(network->engine, network->model, batch);
    while (!vx_engine_collect(network->engine, true)) {
        if (!vx_engine_asked(network->engine, &asked)) continue;
        for (i32 o = 0; o < VX_OUTPUTS_MAX && !item->status.fault; o++)
            if (item->asks >> o & 1)
                item->status = output_make(network, o, item->rows[o], request, item);
        vx_engine_place(network->engine, batch, 0);
    }
    return item->status;
}

static int compare_f64(const void *a, const void *b)
{
    f64 left = *(const f64 *)a, right = *(const f64 *)b;
    return (left > right) - (left < right);
}

/* Rows of the parts from `first` on. */
static void network_print(struct network *network, const struct vx_bench_set *set,
                          const struct vx_item *item, i32 first)
{
    struct vx_bench *bench = network->bench;
    struct vx_bench_row row = {
        .what = "network", .n = set->n, .runs = bench->runs, .draw = network->draw};
    const f64 layer = 2.0 * network->channels * network->channels * (f64)item->pairs;
    const bool kept = item->geometry_hit;
    snprintf(row.shape, sizeof row.shape, "%s",
             set->name[0]            ? set->name
             : network->wanted->name ? network->wanted->name
                                     : "model");
    row.pairs = item->pairs;
    for (i32 part = first; part < PARTS; part++) {
        f64 *ns = network->ns[part];
        qsort(ns, (size_t)bench->runs, sizeof *ns, compare_f64);
        row.state = kept ? part_names_kept[part] : part_names[part];
        row.median = vx_harness_quantile(ns, bench->runs, 0.5);
        row.p10 = vx_harness_quantile(ns, bench->runs, 0.1);
        row.p90 = vx_harness_quantile(ns, bench->runs, 0.9);
        row.flops_useful = part == COMPUTE ? layer * network->layers : 0;
        vx_bench_print(bench, &row);
    }
}

static vx_status network_runs(struct network *network, struct request *request,
                              struct vx_item *item, struct vx_why *why)
{
    struct vx_batch batch = {.items = item, .items_count = 1};
    vx_status status = VX_OK;
    i32 warmups = network->wanted->kind == VX_DEVICE_FAKE ? WARMUPS : WARMUPS_REAL;
    for (i32 run = -warmups; run < network->bench->runs && !status.fault; run++) {
        i64 begin = vx_clock_ns();
        status = request_run(network, &batch, request);
        i64 wall = vx_clock_ns() - begin;
        if (status.fault) *why = item->why;
        if (run < 0) continue;
        network->ns[CONVERT][run] = (f64)item->convert_ns;
        network->ns[GEOMETRY][run] = (f64)item->geometry_ns;
        network->ns[COMPUTE][run] = (f64)item->compute_ns;
        network->ns[OUTPUT][run] = (f64)item->output_ns;
        network->ns[DEVICE][run] = (f64)(item->convert_ns + item->geometry_ns +
                                         item->compute_ns + item->output_ns);
        network->ns[WALL][run] = (f64)wall;
    }
    return status;
}

/* All parts have the clock and the power of the whole: the device is in each of them for
 * less than the time between two readings. */
static vx_status network_times(struct network *network, struct request *request,
                               struct vx_item *item, struct vx_why *why)
{
    struct vx_bench_power *power = network->bench->power;
    VX_TRY(vx_bench_power_begin(power, why));
    vx_status status = network_runs(network, request, item, why);
    network->draw = vx_bench_power_end(power);
    return status;
}

/* First each request as new coordinates, then all by one name, so that the geometry is
 * kept.  If it does not fit in the cache, there are no rows of the second kind. */
static vx_status network_requests(struct network *network, const struct vx_bench_set *set,
                                  struct vx_why *why)
{
    struct request request = {.data = NULL};
    struct vx_item item;
    vx_status status = request_make(network, set, &request, &item);
    if (!status.fault) status = network_times(network, &request, &item, why);
    if (!status.fault) network_print(network, set, &item, 0);
    item.coords_ref.low = ++network->names;
    if (!status.fault) status = network_times(network, &request, &item, why);
    if (!status.fault && item.geometry_hit) network_print(network, set, &item, DEVICE);
    request_free(network, &request);
    return status;
}

static vx_status network_all(struct network *network, struct vx_why *why)
{
    const struct vx_bench_network *wanted = network->wanted;
    const struct vx_bench_clouds *clouds = wanted->clouds;
    for (i32 i = 0; i < clouds->count; i++) {
        struct vx_bench_set set = {.n = clouds->list[i].n,
                                   .coords = clouds->list[i].coords};
        memcpy(set.name, clouds->list[i].name, sizeof set.name);
        VX_TRY(network_requests(network, &set, why));
    }
    for (i32 i = 0; !clouds->count && i < wanted->sizes_count; i++)
        VX_TRY(network_requests(network, &(struct vx_bench_set){.n = wanted->sizes[i]},
                                why));
    return VX_OK;
}

static vx_status network_run(struct network *network, struct vx_why *why)
{
    const struct vx_bench_network *wanted = network->wanted;
    struct vx_model_source source = {.directory = wanted->model,
                                     .version = wanted->version};
    struct vx_engine_options options = {.kind = wanted->kind,
                                        .gpu = &wanted->gpu,
                                        .device_bytes = wanted->device_bytes,
                                        .cache_bytes = CACHE_BYTES};
    if (!source.directory && !strcmp(wanted->name, "demo")) source.directory = DEMO;
    if (!source.directory) {
        VX_TRY(network_make(network, why));
        source.directory = network->directory;
        source.version = 1;
    }
    VX_TRY(vx_engine_open(&options, why, &network->engine));
    VX_TRY(vx_engine_load(network->engine, &source, NULL, why, &network->model));
    VX_TRY(vx_engine_warm(network->engine, network->model, why));
    return network_all(network, why);
}

vx_status vx_bench_network(struct vx_bench *bench, const struct vx_bench_network *wanted,
                           struct vx_why *why)
{
    struct network *network = vx_alloc_zero(sizeof *network);
    VX_ENSURE(network, RESOURCE_EXHAUSTED, "no memory to measure a network");
    VX_ASSERT(wanted->sizes_count > 0);
    network->bench = bench;
    network->wanted = wanted;
    vx_status status = network_run(network, why);
    if (network->model) vx_engine_unload(network->engine, &network->model);
    vx_engine_close(&network->engine);
    network_remove(network);
    vx_free(network);
    return status;
}
