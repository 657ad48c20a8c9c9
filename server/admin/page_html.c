/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/admin/page_html.h"

#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"

#include <stdio.h>
#include <string.h>

#define SHORT_BYTES 40 /* a number with its unit */

/* ------- numbers for people ------- */

static const char *number_short(u64 number, char out[SHORT_BYTES])
{
    if (number < 100000)
        snprintf(out, SHORT_BYTES, "%llu", (unsigned long long)number);
    else if (number < 10000000)
        snprintf(out, SHORT_BYTES, "%.0f k", (f64)number / 1e3);
    else if (number < 1000000000)
        snprintf(out, SHORT_BYTES, "%.1f M", (f64)number / 1e6);
    else
        snprintf(out, SHORT_BYTES, "%.1f G", (f64)number / 1e9);
    return out;
}

static const char *bytes_short(u64 bytes, char out[SHORT_BYTES])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    f64 left = (f64)bytes;
    while (left >= 1024 && unit + 1 < VX_COUNT(units)) {
        left /= 1024;
        unit++;
    }
    bool whole = unit == 0 || left == (f64)(u64)left;
    snprintf(out, SHORT_BYTES, whole ? "%.0f %s" : "%.1f %s", left, units[unit]);
    return out;
}

static const char *time_short(u64 ns, char out[SHORT_BYTES])
{
    if (ns < 1000000)
        snprintf(out, SHORT_BYTES, "%.0f \xc2\xb5s", (f64)ns / 1e3);
    else if (ns < 100000000)
        snprintf(out, SHORT_BYTES, "%.1f ms", (f64)ns / 1e6);
    else if (ns < 1000000000)
        snprintf(out, SHORT_BYTES, "%.0f ms", (f64)ns / 1e6);
    else
        snprintf(out, SHORT_BYTES, "%.1f s", (f64)ns / 1e9);
    return out;
}

static const char *share_short(u64 part, u64 rest, char out[SHORT_BYTES])
{
    if (part + rest == 0)
        snprintf(out, SHORT_BYTES, "\xe2\x80\x93");
    else
        snprintf(out, SHORT_BYTES, "%.0f %%", 100.0 * (f64)part / (f64)(part + rest));
    return out;
}

static u64 positive(i64 number)
{
    return number > 0 ? (u64)number : 0;
}

/* ------- pieces ------- */

static void cell(struct vx_text *text, const char *content)
{
    vx_text_print(text, "<td class=\"n\">%s</td>", content);
}

/* A bar with one or two parts of a whole. */
static void bar(struct vx_text *text, u64 first, u64 second, u64 whole)
{
    f64 scale = whole ? 100.0 / (f64)whole : 0;
    f64 a = (f64)first * scale, b = (f64)second * scale;
    if (a > 100) a = 100;
    if (a + b > 100) b = 100 - a;
    vx_text_print(
        text,
        "<svg class=\"bar\" aria-hidden=\"true\">"
        "<rect width=\"%.1f%%\" height=\"6\"></rect>"
        "<rect class=\"more\" x=\"%.1f%%\" width=\"%.1f%%\" height=\"6\"></rect>"
        "</svg>",
        a, a, b);
}

static void bytes_of(struct vx_text *text, u64 used, u64 whole)
{
    char a[SHORT_BYTES], b[SHORT_BYTES];
    if (!whole) { /* the worker has not reported it yet */
        cell(text, "\xe2\x80\x93");
        return;
    }
    vx_text_print(text, "<td class=\"n\">%s of %s", bytes_short(used, a),
                  bytes_short(whole, b));
    bar(text, used, 0, whole);
    vx_text_add(text, "</td>");
}

static void pill(struct vx_text *text, const char *kind, const char *word)
{
    vx_text_print(text, "<span class=\"pill %s\">", kind);
    vx_text_html(text, word);
    vx_text_add(text, "</span>");
}

static void tile(struct vx_text *text, const char *number, const char *words)
{
    vx_text_print(text,
                  "<div class=\"tile\"><b>%s</b><span class=\"soft\">%s</span></div>\n",
                  number, words);
}

/* ------- sections ------- */

static void page_header(const struct vx_metrics_sources *s, const char *why,
                        struct vx_text *text)
{
    char up[SHORT_BYTES];
    u64 up_s = positive(vx_clock_wall_ms() - s->metrics->started_ms) / 1000;
    if (up_s < 120)
        snprintf(up, sizeof up, "%llu s", (unsigned long long)up_s);
    else if (up_s < 7200)
        snprintf(up, sizeof up, "%llu min", (unsigned long long)(up_s / 60));
    else if (up_s < 172800)
        snprintf(up, sizeof up, "%.1f h", (f64)up_s / 3600);
    else
        snprintf(up, sizeof up, "%.0f days", (f64)up_s / 86400);
    vx_text_add(text, "<header><h1>voxeld</h1>");
    pill(text, s->ready ? "good" : "wait", s->ready ? "ready" : "not ready");
    vx_text_add(text, "<span>");
    vx_text_html(text, why);
    vx_text_print(text, "</span><span class=\"soft\">version %s, up %s</span></header>\n",
                  VX_VERSION, up);
}

static void page_tiles(const struct vx_metrics_sources *s, struct vx_text *text)
{
    char number[SHORT_BYTES], other[SHORT_BYTES], words[2 * SHORT_BYTES + 32];
    struct vx_recent recent = vx_metrics_recent(s->metrics, VX_HISTOGRAM_REQUEST);
    vx_text_add(text, "<div class=\"tiles\">\n");
    snprintf(words, sizeof words, "waiting, %s voxels",
             number_short(positive(s->queued_voxels), other));
    tile(text, number_short(positive(s->queued), number), words);
    tile(text, number_short(positive(s->running), number), "running on a device");
    snprintf(words, sizeof words, "answered in the last minute");
    tile(text, number_short(recent.count, number), words);
    tile(text, recent.count ? time_short(recent.p50, number) : "\xe2\x80\x93",
         "median latency");
    snprintf(words, sizeof words, "of %s for tensors in flight",
             bytes_short(s->arena_bytes, other));
    tile(text, bytes_short(s->arena_bytes_used, number), words);
    vx_text_add(text, "</div>\n");
}

static void page_latency_row(const struct vx_metrics_sources *s, enum vx_histogram_id id,
                             const char *words, u64 longest, struct vx_text *text)
{
    char number[SHORT_BYTES];
    struct vx_recent recent = vx_metrics_recent(s->metrics, id);
    const char *none = "\xe2\x80\x93";
    vx_text_print(text, "<tr><td>%s</td>", words);
    cell(text, number_short(recent.count, number));
    cell(text, recent.count ? time_short(recent.p50, number) : none);
    cell(text, recent.count ? time_short(recent.p90, number) : none);
    cell(text, recent.count ? time_short(recent.p99, number) : none);
    vx_text_add(text, "<td class=\"wide\">");
    bar(text, recent.p50, recent.p99 - recent.p50, longest);
    vx_text_add(text, "</td></tr>\n");
}

static void page_latencies(const struct vx_metrics_sources *s, struct vx_text *text)
{
    u64 longest = vx_metrics_recent(s->metrics, VX_HISTOGRAM_REQUEST).p99;
    vx_text_add(
        text,
        "<h2>The last minute</h2><div class=\"card\"><table "
        "class=\"mid\"><tr><th>Time</th>"
        "<th class=\"n\">Requests</th><th class=\"n\">p50</th><th class=\"n\">p90</th>"
        "<th class=\"n\">p99</th><th>p50 and p99</th></tr>\n");
    page_latency_row(s, VX_HISTOGRAM_REQUEST, "arrival to answer", longest, text);
    page_latency_row(s, VX_HISTOGRAM_QUEUE, "in the queue", longest, text);
    page_latency_row(s, VX_HISTOGRAM_GEOMETRY, "geometry", longest, text);
    page_latency_row(s, VX_HISTOGRAM_COMPUTE, "layers", longest, text);
    vx_text_add(text, "</table></div>\n");
}

static void page_model_state(const struct vx_instance *model, struct vx_text *text)
{
    static const struct {
        const char *kind, *word;
    } states[] = {
        [VX_INSTANCE_LOADING] = {"wait", "loading"},
        [VX_INSTANCE_READY] = {"good", "ready"},
        [VX_INSTANCE_UNLOADING] = {"wait", "unloading"},
        [VX_INSTANCE_UNAVAILABLE] = {"bad", "unavailable"},
    };
    vx_text_add(text, "<td>");
    pill(text, states[model->state].kind, states[model->state].word);
    if (model->reason[0] && model->state != VX_INSTANCE_READY) {
        vx_text_add(text, "<div class=\"why\">");
        vx_text_html(text, model->reason);
        vx_text_add(text, "</div>");
    }
    vx_text_add(text, "</td>");
}

static void page_model_row(const struct vx_instance *model, struct vx_text *text)
{
    char number[SHORT_BYTES];
    const struct vx_instance_stats *stats = model->stats;
    vx_text_add(text, "<tr><td>");
    vx_text_html(text, model->name);
    vx_text_print(text, " <span class=\"soft\">%lld</span>", (long long)model->version);
    if (model->signature.outputs_count > 0) {
        vx_text_print(text, "<div class=\"why\">%d channel%s in; out: ",
                      model->signature.feats_channels,
                      model->signature.feats_channels == 1 ? "" : "s");
        for (i32 i = 0; i < model->signature.outputs_count; i++) {
            vx_text_add(text, i ? ", " : "");
            vx_text_html(text, model->signature.outputs[i].name);
            vx_text_print(text, " %d", model->signature.outputs[i].channels);
        }
        vx_text_add(text, "</div>");
    }
    vx_text_add(text, "</td>");
    page_model_state(model, text);
    cell(text, number_short(stats->success.count, number));
    cell(text, number_short(stats->fail.count, number));
    cell(text, number_short(stats->execution_count, number));
    cell(text, number_short(stats->voxels, number));
    cell(text, stats->success.count
                   ? time_short(stats->success.ns / stats->success.count, number)
                   : "\xe2\x80\x93");
    cell(text,
         share_short(stats->geometry_hit.count, stats->geometry_miss.count, number));
    cell(text,
         model->load_ns > 0 ? time_short((u64)model->load_ns, number) : "\xe2\x80\x93");
    vx_text_add(text, "</tr>\n");
}

static void page_models(const struct vx_metrics_sources *s, struct vx_text *text)
{
    vx_text_add(text,
                "<h2>Models</h2><div class=\"card\"><table><tr><th>Model, version</th>"
                "<th>State</th><th class=\"n\">Answered</th><th class=\"n\">Failed</th>"
                "<th class=\"n\">Batches</th><th class=\"n\">Voxels</th><th "
                "class=\"n\">Mean time</th>"
                "<th class=\"n\">Geometry reused</th><th class=\"n\">Load</th></tr>\n");
    i32 cursor = 0;
    const struct vx_instance *model;
    while ((model = vx_registry_next(s->registry, &cursor))) page_model_row(model, text);
    if (!cursor)
        vx_text_add(text, "<tr><td colspan=\"9\" class=\"soft\">none</td></tr>\n");
    vx_text_add(text, "</table></div>\n");
}

static void page_worker_row(const struct vx_worker_view *worker, struct vx_text *text)
{
    char number[SHORT_BYTES];
    const struct vx_engine_stats *stats = &worker->stats;
    vx_text_print(text, "<tr><td>%d</td><td>", worker->index);
    vx_text_html(text, stats->device_name[0] ? stats->device_name : worker->device);
    vx_text_add(text, "</td><td>");
    pill(text, worker->up ? "good" : "wait", worker->state);
    if (worker->problem && worker->problem[0]) {
        vx_text_add(text, "<br><span class=\"soft\">");
        vx_text_html(text, worker->problem);
        vx_text_add(text, "</span>");
    }
    vx_text_add(text, "</td>");
    if (worker->pid) snprintf(number, sizeof number, "%d", worker->pid);
    cell(text, worker->pid ? number : "\xe2\x80\x93");
    cell(text, number_short(positive(worker->restarts), number));
    bytes_of(text, positive(stats->device_bytes_used_max), positive(stats->device_bytes));
    bytes_of(text, positive(stats->cache_bytes), positive(stats->cache_bytes_max));
    cell(text,
         share_short(positive(stats->cache_hits), positive(stats->cache_misses), number));
    vx_text_add(text, "</tr>\n");
}

static void page_workers(const struct vx_metrics_sources *s, struct vx_text *text)
{
    vx_text_add(
        text, "<h2>Devices</h2><div class=\"card\"><table><tr><th>#</th><th>Device</th>"
              "<th>State</th><th class=\"n\">Process</th><th class=\"n\">Restarts</th>"
              "<th class=\"n\">Activations, peak</th><th class=\"n\">Geometry cache</th>"
              "<th class=\"n\">Cache hits</th></tr>\n");
    for (i32 w = 0; w < s->workers_count; w++) page_worker_row(&s->workers[w], text);
    vx_text_add(text, "</table></div>\n");
}

static void page_failures(const struct vx_metrics_sources *s, struct vx_text *text)
{
    struct vx_failure rows[VX_FAILURES_MAX];
    i32 count = vx_failures_list(&s->metrics->failures, rows);
    char number[SHORT_BYTES];
    vx_text_add(text, "<h2>Refused and failed, the latest first</h2><div class=\"card\">"
                      "<table><tr><th>Code</th><th>Model</th><th>What the client was "
                      "told</th><th class=\"n\">Times</th></tr>\n");
    for (i32 i = 0; i < count; i++) {
        vx_text_add(text, "<tr><td>");
        pill(text, "bad", vx_code_name(rows[i].code));
        vx_text_add(text, "</td><td>");
        vx_text_html(text, rows[i].model);
        vx_text_add(text, "</td><td>");
        vx_text_html(text, rows[i].text);
        vx_text_add(text, "</td>");
        cell(text, number_short(rows[i].count, number));
        vx_text_add(text, "</tr>\n");
    }
    if (!count)
        vx_text_add(text, "<tr><td colspan=\"4\" class=\"soft\">none since the start"
                          "</td></tr>\n");
    vx_text_add(text, "</table></div>\n");
}

void vx_page_html(const struct vx_metrics_sources *sources, const char *why,
                  struct vx_text *text)
{
    vx_text_add(text, vx_page_head);
    vx_text_add(text, "<main id=\"page\">\n");
    page_header(sources, why, text);
    page_tiles(sources, text);
    page_latencies(sources, text);
    page_models(sources, text);
    page_workers(sources, text);
    page_failures(sources, text);
    vx_text_add(text, "<footer>Every 2 seconds anew. For machines: "
                      "<a href=\"/metrics\">/metrics</a>, "
                      "<a href=\"/status.json\">/status.json</a>, "
                      "<a href=\"/v2/health/ready\">/v2/health/ready</a></footer>\n"
                      "</main></body></html>\n");
}
