/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/admin/page.h"

#include "engine/base/process/thread.h"
#include "server/admin/page_html.h"
#include "server/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for a name, a reason and the text around them. */
#define WHY_BYTES (VX_NAME_BYTES + VX_WHY_BYTES + 128)

/* ------- why not ready ------- */

/* Why this version does not serve; "" when it does. */
static void model_why(const struct vx_instance *model, char why[WHY_BYTES])
{
    const char *dash = model->reason[0] ? ": " : "";
    why[0] = '\0';
    switch (model->state) {
    case VX_INSTANCE_READY:
        if (!model->workers_loaded)
            snprintf(why, WHY_BYTES, "model '%s' version %lld %s%s", model->name,
                     (long long)model->version,
                     model->reason[0] ? "is " : "waits until a worker is up",
                     model->reason);
        break;
    case VX_INSTANCE_LOADING:
        snprintf(why, WHY_BYTES, "model '%s' version %lld is loading%s%s", model->name,
                 (long long)model->version, dash, model->reason);
        break;
    case VX_INSTANCE_UNAVAILABLE:
        snprintf(why, WHY_BYTES, "model '%s' version %lld cannot be served%s%s",
                 model->name, (long long)model->version, dash, model->reason);
        break;
    case VX_INSTANCE_UNLOADING:
        snprintf(why, WHY_BYTES, "model '%s' version %lld is being unloaded", model->name,
                 (long long)model->version);
        break;
    case VX_INSTANCE_FREE: break;
    }
}

/* True if this version is READY but on no worker, or if it is loading or unavailable and
 * no other version of its name serves. */
static bool model_is_missed(const struct vx_metrics_sources *s,
                            const struct vx_instance *model)
{
    if (model->state == VX_INSTANCE_UNLOADING || vx_instance_serves(model)) return false;
    i32 other = -1;
    return model->state == VX_INSTANCE_READY ||
           vx_registry_pick(s->registry, model->name, 0, NULL, &other).fault;
}

/* The next model in the repository without any row in the registry; NULL at the end. */
static const struct vx_repository_entry *
missed_next(const struct vx_metrics_sources *s, const struct vx_repository_entry *last)
{
    const struct vx_repository_listing *listing = vx_registry_listing(s->registry);
    if (!listing || !listing->missed) return NULL;
    const struct vx_repository_entry *end = listing->entries + listing->count;
    for (const struct vx_repository_entry *e = last ? last + 1 : listing->entries;
         e < end; e++) {
        i32 other = -1;
        if (!e->no_row || (last && !strcmp(e->name, last->name))) continue;
        if (vx_registry_find(s->registry, e->name, 0, NULL, &other).fault) return e;
    }
    return NULL;
}

/* The next model without a version that should serve; NULL at the end. */
static const struct vx_repository_odd *odd_next(const struct vx_metrics_sources *s,
                                                i32 *cursor)
{
    const struct vx_repository_listing *listing = vx_registry_listing(s->registry);
    const struct vx_repository_odd *odd = NULL;
    while (listing && (odd = vx_repository_next_odd_model(listing, cursor)))
        if (odd->missed) return odd;
    return NULL;
}

static void odd_why(const struct vx_repository_odd *odd, char why[WHY_BYTES])
{
    snprintf(why, WHY_BYTES, "model '%s' cannot be served: %s", odd->name, odd->why.text);
}

static void entry_why(const struct vx_repository_entry *entry, char why[WHY_BYTES])
{
    snprintf(why, WHY_BYTES, "model '%s' version %lld is %s", entry->name,
             (long long)entry->version, VX_REPOSITORY_NO_ROW);
}

static void server_why(const struct vx_metrics_sources *s, char why[WHY_BYTES])
{
    why[0] = '\0';
    if (s->ready) return;
    bool any_up = false;
    for (i32 w = 0; w < s->workers_count; w++) any_up |= s->workers[w].up;
    if (!any_up && s->workers_count > 0) {
        const struct vx_worker_view *first = &s->workers[0];
        bool said = first->problem && first->problem[0];
        snprintf(
            why, WHY_BYTES, "no worker has its device open: worker 0 (%.64s) is %s%s%s",
            first->device, first->state, said ? ": " : "", said ? first->problem : "");
        return;
    }
    i32 cursor = 0, rows = 0;
    for (const struct vx_instance *model;
         (model = vx_registry_next(s->registry, &cursor)); rows++) {
        if (!model_is_missed(s, model)) continue;
        model_why(model, why);
        if (why[0]) return;
    }
    const struct vx_repository_entry *entry = missed_next(s, NULL);
    if (entry) {
        entry_why(entry, why);
        return;
    }
    cursor = 0;
    const struct vx_repository_odd *odd = odd_next(s, &cursor);
    if (odd) {
        odd_why(odd, why);
        return;
    }
    bool said = !rows && s->problem && s->problem[0];
    snprintf(why, WHY_BYTES, "%s",
             said ? s->problem : "the server is starting or stopping");
}

/* ------- JSON answers ------- */

static void reply_json(struct vx_http_reply *reply, i32 status)
{
    reply->status = status;
    reply->content_type = "application/json";
}

static void answer_live(struct vx_http_reply *reply)
{
    reply_json(reply, 200);
    reply->length = (size_t)snprintf(reply->body, reply->capacity, "{\"live\":true}\n");
}

/* `version` 0 = the model has none. */
static void answer_not_ready(struct vx_text *text, const char *name, i64 version,
                             const char *why)
{
    vx_text_add(text, "{\"name\":\"");
    vx_text_json(text, name);
    vx_text_add(text, "\",\"version\":\"");
    if (version) vx_text_print(text, "%lld", (long long)version);
    vx_text_add(text, "\",\"why\":\"");
    vx_text_json(text, why);
    vx_text_add(text, "\"}");
}

/* Every model that should serve and does not, with its reason. */
static void answer_models(const struct vx_metrics_sources *s, struct vx_text *text)
{
    static const char first[] = ",\"not_ready\":[";
    char why[WHY_BYTES];
    i32 cursor = 0, count = 0;
    for (const struct vx_instance *model;
         (model = vx_registry_next(s->registry, &cursor));) {
        if (!model_is_missed(s, model)) continue;
        model_why(model, why);
        vx_text_add(text, count++ ? "," : first);
        answer_not_ready(text, model->name, model->version, why);
    }
    const struct vx_repository_entry *entry = NULL;
    while ((entry = missed_next(s, entry))) {
        entry_why(entry, why);
        vx_text_add(text, count++ ? "," : first);
        answer_not_ready(text, entry->name, entry->version, why);
    }
    cursor = 0;
    for (const struct vx_repository_odd *odd; (odd = odd_next(s, &cursor));) {
        odd_why(odd, why);
        vx_text_add(text, count++ ? "," : first);
        answer_not_ready(text, odd->name, 0, why);
    }
    if (count) vx_text_add(text, "]");
}

static void answer_ready(const struct vx_metrics_sources *s, struct vx_http_reply *reply)
{
    char why[WHY_BYTES];
    server_why(s, why);
    struct vx_text text;
    vx_text_init(&text, reply->body, reply->capacity);
    vx_text_print(&text, "{\"ready\":%s", s->ready ? "true" : "false");
    if (why[0]) {
        vx_text_add(&text, ",\"why\":\"");
        vx_text_json(&text, why);
        vx_text_add(&text, "\"");
    }
    answer_models(s, &text);
    if (s->ready && s->problem && s->problem[0]) { /* ready, but not with everything */
        vx_text_add(&text, ",\"note\":\"");
        vx_text_json(&text, s->problem);
        vx_text_add(&text, "\"");
    }
    vx_text_add(&text, "}\n");
    reply_json(reply, s->ready ? 200 : 503);
    reply->length = text.length;
}

/* The model that a path names. */
struct model_path {
    char name[VX_NAME_BYTES];
    i64 version; /* 0 when the path has none */
};

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Decodes %XX in one path segment.  False if the result cannot be a name. */
static bool name_decode(const char *segment, size_t length, char name[VX_NAME_BYTES])
{
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        char c = segment[i];
        if (c == '%') {
            int high = i + 2 < length ? hex_digit(segment[i + 1]) : -1;
            int low = high >= 0 ? hex_digit(segment[i + 2]) : -1;
            if (low < 0) return false;
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (c == '\0' || n == VX_NAME_BYTES - 1) return false;
        name[n++] = c;
    }
    name[n] = '\0';
    return n > 0;
}

/* "/v2/models/NAME/ready" or "/v2/models/NAME/versions/V/ready". */
static bool model_path_parse(const char *path, struct model_path *out)
{
    static const char prefix[] = "/v2/models/", versions[] = "/versions/";
    if (strncmp(path, prefix, sizeof prefix - 1)) return false;
    const char *name = path + sizeof prefix - 1;
    const char *rest = name + strcspn(name, "/");
    *out = (struct model_path){.version = 0};
    if (!name_decode(name, (size_t)(rest - name), out->name)) return false;
    if (!strncmp(rest, versions, sizeof versions - 1)) {
        const char *digits = rest + sizeof versions - 1;
        size_t count = strspn(digits, "0123456789");
        if (count == 0 || count > 18) return false;
        out->version = strtoll(digits, NULL, 10);
        if (!out->version) return false; /* versions begin at 1; 0 would mean any */
        rest = digits + count;
    }
    return !strcmp(rest, "/ready");
}

static void answer_model(const struct vx_metrics_sources *s,
                         const struct model_path *path, struct vx_http_reply *reply)
{
    struct vx_why sentence = {""};
    char why[WHY_BYTES] = "";
    i32 instance = -1;
    vx_status st =
        vx_registry_find(s->registry, path->name, path->version, &sentence, &instance);
    bool ready = false;
    if (st.fault) {
        snprintf(why, sizeof why, "%s", vx_status_text(st, &sentence));
    } else {
        const struct vx_instance *model = vx_registry_row(s->registry, instance);
        model_why(model, why);
        ready = model->state == VX_INSTANCE_READY && !why[0];
    }
    struct vx_text text;
    vx_text_init(&text, reply->body, reply->capacity);
    vx_text_add(&text, "{\"name\":\"");
    vx_text_json(&text, path->name);
    vx_text_print(&text, "\",\"ready\":%s", ready ? "true" : "false");
    if (why[0]) {
        vx_text_add(&text, ",\"why\":\"");
        vx_text_json(&text, why);
        vx_text_add(&text, "\"");
    }
    vx_text_add(&text, "}\n");
    reply_json(reply, ready ? 200 : st.fault ? 404 : 503);
    reply->length = text.length;
}

/* ------- text answers ------- */

static void answer_metrics(const struct vx_metrics_sources *s,
                           struct vx_http_reply *reply)
{
    vx_status st = vx_metrics_render(s, reply->body, reply->capacity, &reply->length);
    reply->content_type = "text/plain; version=0.0.4; charset=utf-8";
    if (!st.fault) return;
    reply->status = 500; /* truncated metrics would look as if values had dropped */
    reply->length =
        (size_t)snprintf(reply->body, reply->capacity, "%s\n", st.fault->text);
}

static void answer_html(const struct vx_metrics_sources *s, struct vx_http_reply *reply)
{
    char why[WHY_BYTES];
    server_why(s, why);
    struct vx_text text;
    vx_text_init(&text, reply->body, reply->capacity);
    vx_page_html(s, why, &text);
    reply->content_type = "text/html; charset=utf-8";
    reply->length = text.length;
    if (!text.full) return;
    reply->status = 500;
    reply->content_type = "text/plain; charset=utf-8";
    reply->length =
        (size_t)snprintf(reply->body, reply->capacity,
                         "the page does not fit into its buffer; see /metrics\n");
}

void vx_page_answer(const struct vx_metrics_sources *sources,
                    const struct vx_http_request *request, struct vx_http_reply *reply)
{
    VX_ON(LOOP);
    const char *path = request->path;
    struct model_path model;
    if (!strcmp(path, "/")) {
        answer_html(sources, reply);
    } else if (!strcmp(path, "/metrics")) {
        answer_metrics(sources, reply);
    } else if (!strcmp(path, "/v2/health/live")) {
        answer_live(reply);
    } else if (!strcmp(path, "/v2/health/ready")) {
        answer_ready(sources, reply);
    } else if (model_path_parse(path, &model)) {
        answer_model(sources, &model, reply);
    } else {
        reply->status = 404;
        reply->length = (size_t)snprintf(
            reply->body, reply->capacity,
            "expected one of /, /metrics, /v2/health/live, /v2/health/ready, "
            "/v2/models/NAME/ready, /v2/models/NAME/versions/V/ready\n");
    }
}
