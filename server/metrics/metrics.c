/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/metrics/metrics.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "engine/base/process/thread.h"
#include "server/base/text.h"
#include "server/metrics/metrics_tokens.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define METRICS_MAGIC 0x76784d65u /* "vxMe" */

/* ns.  A small request over loopback takes 0.2 ms; a client waits at most 30 s. */
static const u64 bounds_time[] = {
    100000,     200000,     500000,     1000000,     2000000,    5000000,
    10000000,   20000000,   50000000,   100000000,   200000000,  500000000,
    1000000000, 2000000000, 5000000000, 10000000000, 30000000000};
/* ns.  Waking a process twice takes about 10 us; a predicted batch time is good enough
 * when its error is less than a client would notice. */
static const u64 bounds_short[] = {
    2000,    5000,    10000,   20000,    50000,    100000,   200000,    500000,
    1000000, 2000000, 5000000, 10000000, 20000000, 50000000, 100000000, 1000000000};
/* Billionths of the budget. */
static const u64 bounds_share[] = {10000000,  20000000,  50000000,  100000000, 200000000,
                                   300000000, 400000000, 500000000, 600000000, 700000000,
                                   800000000, 900000000, 1000000000};
/* From a cloud of one object to the largest request, in steps of 4. */
static const u64 bounds_voxels[] = {64,     256,     1024,    4096,     16384,   65536,
                                    262144, 1048576, 4194304, 16777216, 67108864};
/* A voxel is 16 bytes of coords and about as many of feats. */
static const u64 bounds_bytes[] = {1024,     4096,      16384,     65536,
                                   262144,   1048576,   4194304,   16777216,
                                   67108864, 268435456, 1073741824};
/* A voxel of a surface has about 9 of 27 neighbours. */
static const u64 bounds_pairs[] = {256,      1024,     4096,      16384,
                                   65536,    262144,   1048576,   4194304,
                                   16777216, 67108864, 268435456, 1073741824};
static const u64 bounds_requests[] = {1, 2, 4, 8, 16, 32, 64};
_Static_assert(VX_BATCH_ITEMS_MAX <= 64, "bounds_requests ends at the largest batch");

static const struct {
    const u64 *bounds;
    size_t count;
} scales[VX_HISTOGRAMS_COUNT] = {
#define VX_HISTOGRAM(id_, name_, unit_, bounds_, help_) {bounds_, VX_COUNT(bounds_)},
#include "server/metrics/metrics_forms.h"
};
#define VX_HISTOGRAM(id_, name_, unit_, bounds_, help_)                                  \
    _Static_assert(VX_COUNT(bounds_) <= VX_METRICS_BOUNDS_MAX, #name_);
#include "server/metrics/metrics_forms.h"

vx_status vx_metrics_open(struct vx_metrics **metrics)
{
    *metrics = vx_alloc_zero(sizeof **metrics);
    VX_ENSURE(*metrics, RESOURCE_EXHAUSTED, "no memory for metrics");
    (*metrics)->magic = METRICS_MAGIC;
    (*metrics)->started_ms = vx_clock_wall_ms();
    (*metrics)->slice = vx_clock_ns() / VX_METRICS_SLICE_NS;
    return VX_OK;
}

void vx_metrics_close(struct vx_metrics **metrics)
{
    if (*metrics) (*metrics)->magic = 0;
    vx_free(*metrics);
    *metrics = NULL;
}

/* ------- counting ------- */

void vx_metrics_turn(struct vx_metrics *metrics, i64 now_ns)
{
    VX_ASSERT(metrics->magic == METRICS_MAGIC);
    i64 slice = now_ns / VX_METRICS_SLICE_NS;
    if (slice <= metrics->slice) return;
    i64 passed = slice - metrics->slice;
    if (passed > VX_METRICS_SLICES) passed = VX_METRICS_SLICES;
    for (i64 k = slice - passed + 1; k <= slice; k++)
        memcpy(metrics->slices[k % VX_METRICS_SLICES], metrics->histograms,
               sizeof metrics->histograms);
    metrics->slice = slice;
}

static void observe(struct vx_metrics *metrics, enum vx_histogram_id id, u64 value)
{
    struct vx_histogram *histogram = &metrics->histograms[id];
    size_t bucket = 0;
    while (bucket < scales[id].count && value > scales[id].bounds[bucket]) bucket++;
    histogram->counts[bucket]++;
    histogram->sum += value;
}

static u64 not_negative(i64 value)
{
    return value > 0 ? (u64)value : 0;
}

void vx_metrics_observe_request(struct vx_metrics *metrics,
                                const struct vx_metrics_request *request)
{
    vx_metrics_turn(metrics, vx_clock_ns());
    VX_ASSERT((unsigned)request->code < VX_METRICS_CODES);
    metrics->codes[request->code]++;
    metrics->refused_late += request->refused_late;
    if (request->by_name) {
        metrics->refs_hit += request->code == VX_CODE_OK;
        metrics->refs_unknown += request->unknown_geometry;
    }
    if (request->ran) {
        observe(metrics, VX_HISTOGRAM_QUEUE, not_negative(request->queue_ns));
        observe(metrics, VX_HISTOGRAM_COMPUTE, not_negative(request->compute_ns));
        observe(metrics, VX_HISTOGRAM_GEOMETRY, not_negative(request->geometry_ns));
    }
    /* Refusals take microseconds; among latencies they would make an overloaded server
     * look fast. */
    if (request->code != VX_CODE_OK) return;
    observe(metrics, VX_HISTOGRAM_REQUEST, not_negative(request->total_ns));
    observe(metrics, VX_HISTOGRAM_REQUEST_VOXELS, not_negative(request->voxels));
    observe(metrics, VX_HISTOGRAM_REQUEST_BYTES, request->bytes_in);
    observe(metrics, VX_HISTOGRAM_ANSWER_BYTES, request->bytes_out);
    observe(metrics, VX_HISTOGRAM_REQUEST_PAIRS, not_negative(request->pairs));
}

void vx_metrics_observe_batch(struct vx_metrics *metrics,
                              const struct vx_metrics_batch *batch)
{
    vx_metrics_turn(metrics, vx_clock_ns());
    u64 set_voxels = not_negative(batch->set_voxels);
    observe(metrics, VX_HISTOGRAM_BATCH_REQUESTS, not_negative(batch->requests));
    observe(metrics, VX_HISTOGRAM_BATCH_VOXELS, not_negative(batch->voxels));
    observe(metrics, VX_HISTOGRAM_BORDER, not_negative(batch->border_ns));
    if (batch->voxels_max > 0)
        observe(metrics, VX_HISTOGRAM_BATCH_FILL,
                (u64)((f64)set_voxels / (f64)batch->voxels_max * 1e9));
    if (batch->predicted_ns > 0 && batch->device_ns > 0)
        observe(metrics, VX_HISTOGRAM_BATCH_PREDICTION,
                (u64)llabs(batch->device_ns - batch->predicted_ns));
}

/* ------- the last minute ------- */

/* The value that `permille` of the observations do not exceed, interpolated linearly
 * within its bucket. */
static u64 counts_percentile(enum vx_histogram_id id, const u64 *counts, u64 total,
                             u64 permille)
{
    u64 wanted = (total * permille + 999) / 1000, below = 0;
    for (size_t i = 0; i < scales[id].count; i++) {
        u64 low = i ? scales[id].bounds[i - 1] : 0;
        if (counts[i] && below + counts[i] >= wanted) {
            f64 part = (f64)(wanted - below) / (f64)counts[i];
            return low + (u64)(part * (f64)(scales[id].bounds[i] - low));
        }
        below += counts[i];
    }
    return scales[id].bounds[scales[id].count - 1];
}

struct vx_recent vx_metrics_recent(struct vx_metrics *metrics, enum vx_histogram_id id)
{
    vx_metrics_turn(metrics, vx_clock_ns());
    const struct vx_histogram *now = &metrics->histograms[id];
    const struct vx_histogram *then =
        &metrics->slices[(metrics->slice + 1) % VX_METRICS_SLICES][id];
    u64 counts[VX_METRICS_BOUNDS_MAX + 1], total = 0;
    for (size_t i = 0; i <= scales[id].count; i++) {
        counts[i] = now->counts[i] - then->counts[i];
        total += counts[i];
    }
    struct vx_recent recent = {.count = total};
    if (!total) return recent;
    recent.p50 = counts_percentile(id, counts, total, 500);
    recent.p90 = counts_percentile(id, counts, total, 900);
    recent.p99 = counts_percentile(id, counts, total, 990);
    return recent;
}

/* ------- values ------- */

/* whole + billionths / 10^9: never negative, never NaN or infinite. */
struct value {
    bool absent;
    u64 whole;
    u32 billionths;
};
#define ABSENT      ((struct value){.absent = true})
#define COUNT(n_)   ((struct value){.whole = not_negative((i64)(n_))})
#define SECONDS(n_) value_of_ns(not_negative((i64)(n_)))
#define MILLI(n_)   value_of_ns(not_negative((i64)(n_)) * 1000000)
#define MICROS(n_)  ((struct value){.whole = not_negative((i64)(n_)) / 1000})

static struct value value_of_ns(u64 ns)
{
    return (struct value){.whole = ns / 1000000000, .billionths = (u32)(ns % 1000000000)};
}

static i64 process_cpu_ns(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage)) return 0;
    i64 seconds = (i64)usage.ru_utime.tv_sec + usage.ru_stime.tv_sec;
    return seconds * VX_NS_PER_S +
           ((i64)usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * VX_NS_PER_US;
}

/* The second number of /proc/self/statm counts pages.  0 where there is no /proc. */
static i64 process_resident_bytes(void)
{
    char text[128] = "";
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    const char *second = got > 0 ? strchr(text, ' ') : NULL;
    return second ? strtoll(second, NULL, 10) * sysconf(_SC_PAGESIZE) : 0;
}

static struct vx_regions_counts regions_of(const struct vx_metrics_sources *s)
{
    struct vx_regions_counts counts = {.uses = 0};
    if (s->regions) vx_regions_counts_get(s->regions, &counts);
    return counts;
}

static i64 failed_otherwise(const struct vx_instance_stats *stats)
{
    return (i64)(stats->fail.count - stats->rejected - stats->cancelled - stats->broken);
}

/* False for the gRPC codes that voxeld never returns. */
static bool code_is_ours(i32 code)
{
    return strcmp(vx_code_name((enum vx_code)code), "UNKNOWN") != 0;
}

/* "/inference.GRPCInferenceService/ModelInfer" of each row of service.def. */
static const char *const method_names[VX_METHODS_COUNT] = {
#define VX_METHOD(path_, identifier_, kind_) path_,
#include "proto/service.def"
#undef VX_METHOD
};

/* ------- Prometheus text ------- */

struct family {
    struct vx_text *text;
    const char *name; /* of the previous row: HELP and TYPE are written once per name */
};

static void family_begin(struct family *family, const char *name, const char *type,
                         const char *help)
{
    if (family->name && !strcmp(family->name, name)) return;
    family->name = name;
    vx_text_add(family->text, "# HELP ");
    vx_text_add(family->text, name);
    vx_text_add(family->text, " ");
    vx_text_add(family->text, help);
    vx_text_print(family->text, "\n# TYPE %s %s\n", name, type);
}

/* `labels` and `more` are complete, escaped key="value" pairs; either may be "". */
static void series(struct vx_text *text, const char *name, const char *labels,
                   const char *more, struct value value)
{
    if (value.absent) return;
    vx_text_add(text, name);
    if (*labels || *more) {
        vx_text_add(text, "{");
        vx_text_add(text, labels);
        if (*labels && *more) vx_text_add(text, ",");
        vx_text_add(text, more);
        vx_text_add(text, "}");
    }
    vx_text_add(text, " ");
    vx_text_decimal(text, value.whole, value.billionths);
    vx_text_add(text, "\n");
}

/* Escaping may double every character of a value; 64 is for the keys and a version. */
#define LABELS_BYTES (2 * VX_NAME_BYTES + 64)

/* key="value" with the value escaped. */
static void label_add(struct vx_text *text, const char *key, const char *value)
{
    if (text->length) vx_text_add(text, ",");
    vx_text_add(text, key);
    vx_text_add(text, "=\"");
    vx_text_label(text, value);
    vx_text_add(text, "\"");
    VX_ASSERT(!text->full);
}

static const char *label_make(char out[LABELS_BYTES], const char *key, const char *value)
{
    struct vx_text text;
    vx_text_init(&text, out, LABELS_BYTES);
    label_add(&text, key, value);
    return out;
}

static void render_server(const struct vx_metrics_sources *s, struct vx_text *text)
{
    struct family family = {.text = text};
    char label[LABELS_BYTES];
    const struct vx_regions_counts regions = regions_of(s); /* once: it takes a lock */
    const enum vx_access_file_state token_file =
        s->access ? vx_access_file_state(s->access) : VX_ACCESS_FILE_NONE;
#define VX_METRIC_SERVER(name_, type_, labels_, value_, help_)                           \
    family_begin(&family, #name_, #type_, help_);                                        \
    series(text, #name_, "", labels_, value_);
#define VX_METRIC_METHOD(name_, type_, labels_, value_, help_)                           \
    family_begin(&family, #name_, #type_, help_);                                        \
    for (i32 method = 0; method < VX_METHODS_COUNT; method++)                            \
        series(text, #name_, label_make(label, "method", method_names[method] + 1),      \
               labels_, value_);
#define VX_METRIC_CODE(name_, type_, labels_, value_, help_)                             \
    family_begin(&family, #name_, #type_, help_);                                        \
    for (i32 code = 0; code < VX_METRICS_CODES; code++)                                  \
        if (code_is_ours(code))                                                          \
            series(text, #name_,                                                         \
                   label_make(label, "code", vx_code_name((enum vx_code)code)), labels_, \
                   value_);
#include "server/metrics/metrics_forms.h"
}

/* True if this row is written.  Of two rows with the same name and version (one loads
 * while the other unloads) only one is, the one that serves: Prometheus refuses a scrape
 * that has the same series twice. */
static bool model_is_said(struct vx_registry *registry, i32 instance)
{
    const struct vx_instance *model = vx_registry_row(registry, instance);
    if (model->state == VX_INSTANCE_FREE) return false;
    for (i32 i = 0; i < vx_registry_end(registry); i++) {
        const struct vx_instance *other = vx_registry_row(registry, i);
        bool same = i != instance && other->state != VX_INSTANCE_FREE &&
                    other->version == model->version && !strcmp(other->name, model->name);
        if (!same) continue;
        bool other_serves = other->state == VX_INSTANCE_READY;
        bool this_serves = model->state == VX_INSTANCE_READY;
        if (other_serves != this_serves ? other_serves : i < instance) return false;
    }
    return true;
}

static void render_models(const struct vx_metrics_sources *s, struct vx_text *text)
{
    char labels[VX_INSTANCES_MAX][LABELS_BYTES];
    i32 instances[VX_INSTANCES_MAX], count = 0;
    for (i32 i = 0; i < vx_registry_end(s->registry); i++) {
        if (!model_is_said(s->registry, i)) continue;
        const struct vx_instance *model = vx_registry_row(s->registry, i);
        char version[24];
        snprintf(version, sizeof version, "%lld", (long long)model->version);
        struct vx_text label;
        vx_text_init(&label, labels[count], LABELS_BYTES);
        label_add(&label, "model", model->name);
        label_add(&label, "version", version);
        instances[count++] = i;
    }
    struct family family = {.text = text};
#define VX_METRIC_MODEL(name_, type_, labels_, value_, help_)                            \
    family_begin(&family, #name_, #type_, help_);                                        \
    for (i32 k = 0; k < count; k++) {                                                    \
        i32 instance = instances[k];                                                     \
        const struct vx_instance *model = vx_registry_row(s->registry, instance);        \
        (void)model;                                                                     \
        series(text, #name_, labels[k], labels_, value_);                                \
    }
#include "server/metrics/metrics_forms.h"
}

static void render_workers(const struct vx_metrics_sources *s, struct vx_text *text)
{
    VX_ASSERT(s->workers_count <= VX_WORKERS_MAX);
    char labels[VX_WORKERS_MAX][LABELS_BYTES];
    for (i32 w = 0; w < s->workers_count; w++) {
        char index[16], device[VX_NAME_BYTES];
        snprintf(index, sizeof index, "%d", s->workers[w].index);
        snprintf(device, sizeof device, "%s", s->workers[w].device);
        struct vx_text label;
        vx_text_init(&label, labels[w], LABELS_BYTES);
        label_add(&label, "worker", index);
        label_add(&label, "device", device);
    }
    struct family family = {.text = text};
#define VX_METRIC_WORKER(name_, type_, labels_, value_, help_)                           \
    family_begin(&family, #name_, #type_, help_);                                        \
    for (i32 w = 0; w < s->workers_count; w++) {                                         \
        const struct vx_worker_view *worker = &s->workers[w];                            \
        series(text, #name_, labels[w], labels_, value_);                                \
    }
#include "server/metrics/metrics_forms.h"
}

/* True if this worker's GPU is written here.  Of several workers with one GPU only the
 * first writes it: Prometheus refuses a scrape that has the same series twice. */
static bool gpu_is_said(const struct vx_metrics_sources *s, i32 worker)
{
    const struct vx_gpu_stats *gpu = &s->workers[worker].stats.gpu;
    if (!s->workers[worker].up || !gpu->uuid[0]) return false;
    for (i32 w = 0; w < worker; w++)
        if (s->workers[w].up && !strcmp(s->workers[w].stats.gpu.uuid, gpu->uuid))
            return false;
    return true;
}

static void render_gpus(const struct vx_metrics_sources *s, struct vx_text *text)
{
    char labels[VX_WORKERS_MAX][LABELS_BYTES];
    const struct vx_gpu_stats *gpus[VX_WORKERS_MAX];
    i32 count = 0;
    for (i32 w = 0; w < s->workers_count; w++) {
        if (!gpu_is_said(s, w)) continue;
        gpus[count] = &s->workers[w].stats.gpu;
        label_make(labels[count], "gpu_uuid", gpus[count]->uuid);
        count++;
    }
    if (!count) return;
    struct family family = {.text = text};
#define VX_METRIC_GPU(name_, type_, labels_, value_, help_)                              \
    for (i32 g = 0; g < count; g++) {                                                    \
        const struct vx_gpu_stats *gpu = gpus[g];                                        \
        struct value value = value_;                                                     \
        if (value.absent) continue;                                                      \
        family_begin(&family, #name_, #type_, help_);                                    \
        series(text, #name_, labels[g], labels_, value);                                 \
    }
#include "server/metrics/metrics_forms.h"
}

/* Shares are observed in billionths, as times are in nanoseconds. */
enum unit { UNIT_COUNT, UNIT_SECONDS, UNIT_SHARE };

static struct value value_in(enum unit unit, u64 number)
{
    return unit == UNIT_COUNT ? (struct value){.whole = number} : value_of_ns(number);
}

static void render_histogram(const struct vx_metrics *metrics, enum vx_histogram_id id,
                             const char *name, enum unit unit, struct vx_text *text)
{
    const struct vx_histogram *histogram = &metrics->histograms[id];
    char suffixed[VX_NAME_BYTES];
    snprintf(suffixed, sizeof suffixed, "%s_bucket", name);
    u64 below = 0;
    for (size_t i = 0; i <= scales[id].count; i++) {
        char label[LABELS_BYTES], bound[48] = "+Inf";
        struct vx_text made;
        if (i < scales[id].count) {
            struct value value = value_in(unit, scales[id].bounds[i]);
            vx_text_init(&made, bound, sizeof bound);
            vx_text_decimal(&made, value.whole, value.billionths);
        }
        below += histogram->counts[i];
        series(text, suffixed, label_make(label, "le", bound), "", COUNT(below));
    }
    snprintf(suffixed, sizeof suffixed, "%s_sum", name);
    series(text, suffixed, "", "", value_in(unit, histogram->sum));
    snprintf(suffixed, sizeof suffixed, "%s_count", name);
    series(text, suffixed, "", "", COUNT(below));
}

static void render_histograms(const struct vx_metrics_sources *s, struct vx_text *text)
{
    struct family family = {.text = text};
#define VX_HISTOGRAM(id_, name_, unit_, bounds_, help_)                                  \
    family_begin(&family, #name_, "histogram", help_);                                   \
    render_histogram(s->metrics, VX_HISTOGRAM_##id_, #name_, UNIT_##unit_, text);
#include "server/metrics/metrics_forms.h"
}

vx_status vx_metrics_render(const struct vx_metrics_sources *sources, char *out,
                            size_t capacity, size_t *length)
{
    VX_ASSERT(sources->metrics->magic == METRICS_MAGIC);
    struct vx_text text;
    vx_text_init(&text, out, capacity);
    render_server(sources, &text);
    vx_metrics_render_tokens(sources->access, &text);
    render_models(sources, &text);
    render_workers(sources, &text);
    render_gpus(sources, &text);
    render_histograms(sources, &text);
    *length = text.length;
    VX_ENSURE(!text.full, RESOURCE_EXHAUSTED, "the metrics do not fit their buffer");
    return VX_OK;
}
