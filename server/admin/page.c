/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/admin/page.h"

#include "engine/base/process/thread.h"
#include "server/admin/missed.h"
#include "server/admin/page_html.h"
#include "server/admin/status_json.h"
#include "server/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* A list of all that `next` finds, with the reasons; nothing if that is nothing. */
static void answer_models(const struct vx_metrics_sources *s, const char *key,
                          bool (*next)(const struct vx_metrics_sources *,
                                       struct vx_missed *),
                          struct vx_text *text)
{
    struct vx_missed missed = {.kind = VX_MISSED_ROW};
    i32 count = 0;
    while (next(s, &missed)) {
        if (!count++)
            vx_text_print(text, ",\"%s\":[", key);
        else
            vx_text_add(text, ",");
        vx_text_add(text, "{\"name\":\"");
        vx_text_json(text, missed.name);
        vx_text_add(text, "\",\"version\":\"");
        if (missed.version) vx_text_print(text, "%lld", (long long)missed.version);
        vx_text_add(text, "\",\"why\":\"");
        vx_text_json(text, missed.why);
        vx_text_add(text, "\"}");
    }
    if (count) vx_text_add(text, "]");
}

static void answer_ready(const struct vx_metrics_sources *s, struct vx_http_reply *reply)
{
    char why[VX_MISSED_WHY_BYTES], note[VX_MISSED_WHY_BYTES];
    vx_missed_server(s, why);
    vx_missed_note(s, note);
    struct vx_text text;
    vx_text_init(&text, reply->body, reply->capacity);
    vx_text_print(&text, "{\"ready\":%s", s->ready ? "true" : "false");
    if (why[0]) {
        vx_text_add(&text, ",\"why\":\"");
        vx_text_json(&text, why);
        vx_text_add(&text, "\"");
    }
    answer_models(s, "not_ready", vx_missed_next, &text);
    answer_models(s, "not_updated", vx_missed_next_update, &text);
    if (note[0]) { /* ready, but not with everything */
        vx_text_add(&text, ",\"note\":\"");
        vx_text_json(&text, note);
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
    char why[VX_MISSED_WHY_BYTES] = "";
    i32 instance = -1;
    vx_status st =
        vx_registry_find(s->registry, path->name, path->version, &sentence, &instance);
    bool ready = false;
    if (st.fault) {
        snprintf(why, sizeof why, "%s", vx_status_text(st, &sentence));
    } else {
        const struct vx_instance *model = vx_registry_row(s->registry, instance);
        vx_missed_model(model, why);
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

static void answer_status(const struct vx_metrics_sources *s, struct vx_http_reply *reply)
{
    struct vx_text text;
    vx_text_init(&text, reply->body, reply->capacity);
    vx_status_json(s, &text);
    reply_json(reply, 200);
    reply->length = text.length;
    if (!text.full) return;
    reply->status = 500;
    reply->length =
        (size_t)snprintf(reply->body, reply->capacity,
                         "{\"error\":\"the status does not fit into its buffer\"}\n");
}

/* True if the path is a file of the page. */
static bool answer_file(const char *path, struct vx_http_reply *reply)
{
    const struct vx_page_file *file = vx_page_files;
    while (file->path && strcmp(file->path, path)) file++;
    if (!file->path) return false;
    VX_ASSERT(file->length <= reply->capacity);
    memcpy(reply->body, file->bytes, file->length);
    reply->length = file->length;
    reply->content_type = file->type;
    return true;
}

static void answer_html(const struct vx_metrics_sources *s, struct vx_http_reply *reply)
{
    char why[VX_MISSED_WHY_BYTES];
    vx_missed_server(s, why);
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
    } else if (answer_file(path, reply)) {
        return;
    } else if (!strcmp(path, "/status.json")) {
        answer_status(sources, reply);
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
        reply->length =
            (size_t)snprintf(reply->body, reply->capacity,
                             "expected one of /, /metrics, /status.json, "
                             "/v2/health/live, /v2/health/ready, "
                             "/v2/models/NAME/ready, /v2/models/NAME/versions/V/ready\n");
    }
}
