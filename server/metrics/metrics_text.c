/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/metrics/metrics_private.h"

#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "server/base/text.h"
#include "server/metrics/metrics_tokens.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static u64 not_negative(i64 value)
{
    return value > 0 ? (u64)value : 0;
}

/* ------- values ------- */

#define ABSENT      ((struct vx_metric_value){.absent = true})
#define COUNT(n_)   ((struct vx_metric_value){.whole = not_negative((i64)(n_))})
#define SECONDS(n_) value_of_ns(not_negative((i64)(n_)))
#define MILLI(n_)   value_of_ns(not_negative((i64)(n_)) * 1000000)
#define MICROS(n_)  ((struct vx_metric_value){.whole = not_negative((i64)(n_)) / 1000})

static struct vx_metric_value value_of_ns(u64 ns)
{
    return (struct vx_metric_value){.whole = ns / 1000000000,
                                    .billionths = (u32)(ns % 1000000000)};
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

void vx_metrics_family(struct vx_metric_family *family, const char *name,
                       const char *type, const char *help)
{
    if (family->name && !strcmp(family->name, name)) return;
    family->name = name;
    vx_text_add(family->text, "# HELP ");
    vx_text_add(family->text, name);
    vx_text_add(family->text, " ");
    vx_text_add(family->text, help);
    vx_text_add(family->text, "\n# TYPE ");
    vx_text_add(family->text, name);
    vx_text_add(family->text, " ");
    vx_text_add(family->text, type);
    vx_text_add(family->text, "\n");
}

void vx_metrics_series(struct vx_text *text, const char *name, const char *labels,
                       const char *more, struct vx_metric_value value)
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

static i64 models_missed(const struct vx_metrics_sources *s)
{
    const struct vx_repository_listing *listing = vx_registry_listing(s->registry);
    if (!listing) return 0;
    return listing->missed + listing->odds_missed + listing->absent_count;
}

static void render_server(const struct vx_metrics_sources *s, struct vx_text *text)
{
    struct vx_metric_family family = {.text = text};
    char label[LABELS_BYTES];
    const struct vx_regions_counts regions = regions_of(s); /* once: it takes a lock */
    const enum vx_access_file_state token_file =
        s->access ? vx_access_file_state(s->access) : VX_ACCESS_FILE_NONE;
#define VX_METRIC_SERVER(name_, type_, labels_, value_, help_)                           \
    vx_metrics_family(&family, #name_, #type_, help_);                                   \
    vx_metrics_series(text, #name_, "", labels_, value_);
#define VX_METRIC_METHOD(name_, type_, labels_, value_, help_)                           \
    vx_metrics_family(&family, #name_, #type_, help_);                                   \
    for (i32 method = 0; method < VX_METHODS_COUNT; method++)                            \
        vx_metrics_series(text, #name_,                                                  \
                          label_make(label, "method", method_names[method] + 1),         \
                          labels_, value_);
#define VX_METRIC_CODE(name_, type_, labels_, value_, help_)                             \
    vx_metrics_family(&family, #name_, #type_, help_);                                   \
    for (i32 code = 0; code < VX_METRICS_CODES; code++)                                  \
        if (code_is_ours(code))                                                          \
            vx_metrics_series(                                                           \
                text, #name_,                                                            \
                label_make(label, "code", vx_code_name((enum vx_code)code)), labels_,    \
                value_);
#include "server/metrics/metrics_forms.h"
}

/* The rows that are written, by name and version.  Of several with the same (one loads
 * while the other unloads) only one is, the one that serves: Prometheus refuses a scrape
 * that has the same series twice. */
struct models_list {
    i32 count;
    const struct vx_instance *models[VX_INSTANCES_MAX];
    /* A version has a row that loads or failed: beside one that serves, newer files. */
    bool behind[VX_INSTANCES_MAX];
};

static void models_list(struct vx_registry *registry, struct models_list *list)
{
    const struct vx_instance **models = list->models;
    i32 count = 0, cursor = 0;
    const struct vx_instance *model;
    while ((model = vx_registry_next(registry, &cursor))) {
        const struct vx_instance *last = count ? models[count - 1] : NULL;
        bool same =
            last && last->version == model->version && !strcmp(last->name, model->name);
        bool behind = model->state == VX_INSTANCE_LOADING ||
                      model->state == VX_INSTANCE_UNAVAILABLE;
        if (!same) {
            list->behind[count] = false;
            models[count++] = model;
        } else if (last->state != VX_INSTANCE_READY &&
                   model->state == VX_INSTANCE_READY) {
            models[count - 1] = model;
        }
        list->behind[count - 1] |= behind;
    }
    list->count = count;
}

static void render_models(const struct vx_metrics_sources *s, struct vx_text *text)
{
    char labels[VX_INSTANCES_MAX][LABELS_BYTES];
    struct models_list list;
    const struct vx_instance *first = vx_registry_row(s->registry, 0);
    models_list(s->registry, &list);
    for (i32 k = 0; k < list.count; k++) {
        const struct vx_instance *model = list.models[k];
        char version[24];
        snprintf(version, sizeof version, "%lld", (long long)model->version);
        struct vx_text label;
        vx_text_init(&label, labels[k], LABELS_BYTES);
        label_add(&label, "model", model->name);
        label_add(&label, "version", version);
    }
    struct vx_metric_family family = {.text = text};
#define VX_METRIC_MODEL(name_, type_, labels_, value_, help_)                            \
    vx_metrics_family(&family, #name_, #type_, help_);                                   \
    for (i32 k = 0; k < list.count; k++) {                                               \
        const struct vx_instance *model = list.models[k];                                \
        const i32 instance = (i32)(model - first);                                       \
        const bool files_good = model->state == VX_INSTANCE_READY && !list.behind[k];    \
        (void)instance, (void)files_good;                                                \
        vx_metrics_series(text, #name_, labels[k], labels_, value_);                     \
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
    struct vx_metric_family family = {.text = text};
#define VX_METRIC_WORKER(name_, type_, labels_, value_, help_)                           \
    vx_metrics_family(&family, #name_, #type_, help_);                                   \
    for (i32 w = 0; w < s->workers_count; w++) {                                         \
        const struct vx_worker_view *worker = &s->workers[w];                            \
        vx_metrics_series(text, #name_, labels[w], labels_, value_);                     \
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
    struct vx_metric_family family = {.text = text};
#define VX_METRIC_GPU(name_, type_, labels_, value_, help_)                              \
    for (i32 g = 0; g < count; g++) {                                                    \
        const struct vx_gpu_stats *gpu = gpus[g];                                        \
        struct vx_metric_value value = value_;                                           \
        if (value.absent) continue;                                                      \
        vx_metrics_family(&family, #name_, #type_, help_);                               \
        vx_metrics_series(text, #name_, labels[g], labels_, value);                      \
    }
#include "server/metrics/metrics_forms.h"
}

/* Shares are observed in billionths, as times are in nanoseconds. */
enum unit { UNIT_COUNT, UNIT_SECONDS, UNIT_SHARE };

static struct vx_metric_value value_in(enum unit unit, u64 number)
{
    return unit == UNIT_COUNT ? (struct vx_metric_value){.whole = number}
                              : value_of_ns(number);
}

static void render_histogram(const struct vx_metrics *metrics, enum vx_histogram_id id,
                             const char *name, enum unit unit, struct vx_text *text)
{
    const struct vx_histogram *histogram = &metrics->histograms[id];
    char suffixed[VX_NAME_BYTES];
    snprintf(suffixed, sizeof suffixed, "%s_bucket", name);
    u64 below = 0;
    for (size_t i = 0; i <= vx_metrics_scales[id].count; i++) {
        char label[LABELS_BYTES], bound[48] = "+Inf";
        struct vx_text made;
        if (i < vx_metrics_scales[id].count) {
            struct vx_metric_value value =
                value_in(unit, vx_metrics_scales[id].bounds[i]);
            vx_text_init(&made, bound, sizeof bound);
            vx_text_decimal(&made, value.whole, value.billionths);
        }
        below += histogram->counts[i];
        vx_metrics_series(text, suffixed, label_make(label, "le", bound), "",
                          COUNT(below));
    }
    snprintf(suffixed, sizeof suffixed, "%s_sum", name);
    vx_metrics_series(text, suffixed, "", "", value_in(unit, histogram->sum));
    snprintf(suffixed, sizeof suffixed, "%s_count", name);
    vx_metrics_series(text, suffixed, "", "", COUNT(below));
}

static void render_histograms(const struct vx_metrics_sources *s, struct vx_text *text)
{
    struct vx_metric_family family = {.text = text};
#define VX_HISTOGRAM(id_, name_, unit_, bounds_, help_)                                  \
    vx_metrics_family(&family, #name_, "histogram", help_);                              \
    render_histogram(s->metrics, VX_HISTOGRAM_##id_, #name_, UNIT_##unit_, text);
#include "server/metrics/metrics_forms.h"
}

vx_status vx_metrics_render(const struct vx_metrics_sources *sources, char *out,
                            size_t capacity, size_t *length)
{
    VX_ASSERT(sources->metrics->magic == VX_METRICS_MAGIC);
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
