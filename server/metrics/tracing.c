/* SPDX-License-Identifier: Apache-2.0 */
#include "server/metrics/tracing.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "server/models/registry.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define TRACING_MAGIC 0x76785452u /* "vxTR" */

/* Where the parts of a traceparent begin: 00-<32 hex>-<16 hex>-<2 hex>. */
#define PARENT_TRACE_AT 3
#define PARENT_SPAN_AT  36
#define PARENT_FLAGS_AT 53
#define PARENT_BYTES    55
#define FLAG_SAMPLED    1
/* OpenTelemetry samples by the last 56 bits of the trace id, which are random: all
 * services decide the same for one id and ratio. */
#define RATIO_BITS 56

/* Triton's defaults. */
static const i64 defaults[VX_TRACE_SETTINGS_COUNT] = {
    [VX_TRACE_RATE] = 1000, [VX_TRACE_COUNT] = -1};

struct tracing_row {
    char model[VX_NAME_BYTES]; /* "" = free; the server's own is not in the table */
    struct vx_trace_settings settings;
    u64 seen; /* requests while tracing is on */
};

struct vx_tracing {
    u32 magic;
    bool any;       /* some row traces */
    bool exports;   /* there is a collector; without both a request checks only these */
    u64 reject_end; /* ids whose last RATIO_BITS are below this are not exported */
    u64 random;
    struct vx_registry *registry;
    struct tracing_row server;
    struct tracing_row models[VX_INSTANCES_MAX];
};

vx_status vx_tracing_open(struct vx_registry *registry, struct vx_tracing **tracing)
{
    *tracing = vx_alloc_zero(sizeof **tracing);
    VX_ENSURE(*tracing, RESOURCE_EXHAUSTED, "no memory for tracing");
    (*tracing)->magic = TRACING_MAGIC;
    (*tracing)->registry = registry;
    /* Ids must differ between processes; they need not be hard to guess. */
    if (getrandom(&(*tracing)->random, sizeof(*tracing)->random, GRND_NONBLOCK) < 0)
        (*tracing)->random = (u64)vx_clock_ns();
    return VX_OK;
}

void vx_tracing_close(struct vx_tracing **tracing)
{
    if (*tracing) (*tracing)->magic = 0;
    vx_free(*tracing);
    *tracing = NULL;
}

void vx_tracing_export(struct vx_tracing *tracing, f64 ratio)
{
    tracing->exports = true;
    tracing->reject_end = (u64)((1 - ratio) * (f64)(UINT64_C(1) << RATIO_BITS));
}

/* ------- settings ------- */

/* NULL when the model has no settings of its own. */
static struct tracing_row *tracing_find(struct vx_tracing *tracing, const char *model)
{
    if (!*model) return &tracing->server;
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++)
        if (!strcmp(tracing->models[i].model, model)) return &tracing->models[i];
    return NULL;
}

/* A free row, or one of a model that is gone; NULL when there is neither. */
static struct tracing_row *tracing_find_free(struct vx_tracing *tracing)
{
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++)
        if (!tracing->models[i].model[0]) return &tracing->models[i];
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++) {
        struct vx_why why;
        i32 ignored;
        if (vx_registry_find(tracing->registry, tracing->models[i].model, 0, &why,
                             &ignored)
                .fault)
            return &tracing->models[i];
    }
    return NULL;
}

/* The row whose value of this setting applies to `row`; NULL = the default applies. */
static struct tracing_row *tracing_source(struct vx_tracing *tracing,
                                          struct tracing_row *row,
                                          enum vx_trace_setting setting)
{
    if (row && row->settings.said[setting]) return row;
    return tracing->server.settings.said[setting] ? &tracing->server : NULL;
}

static i64 tracing_value(struct vx_tracing *tracing, struct tracing_row *row,
                         enum vx_trace_setting setting)
{
    const struct tracing_row *source = tracing_source(tracing, row, setting);
    return source ? source->settings.values[setting] : defaults[setting];
}

void vx_tracing_get(struct vx_tracing *tracing, const char *model,
                    struct vx_trace_settings *own, struct vx_trace_settings *all)
{
    VX_ASSERT(tracing->magic == TRACING_MAGIC);
    struct tracing_row *row = tracing_find(tracing, model);
    *own = row ? row->settings : (struct vx_trace_settings){0};
    for (i32 i = 0; i < VX_TRACE_SETTINGS_COUNT; i++) {
        all->said[i] = true;
        all->values[i] = tracing_value(tracing, row, (enum vx_trace_setting)i);
    }
}

static bool settings_say_anything(const struct vx_trace_settings *settings)
{
    for (i32 i = 0; i < VX_TRACE_SETTINGS_COUNT; i++)
        if (settings->said[i]) return true;
    return false;
}

vx_status vx_tracing_set(struct vx_tracing *tracing, const char *model,
                         const struct vx_trace_settings *own)
{
    VX_ASSERT(tracing->magic == TRACING_MAGIC);
    struct tracing_row *row = tracing_find(tracing, model);
    bool keep = !*model || settings_say_anything(own);
    if (!row && !keep) return VX_OK;
    if (!row) row = tracing_find_free(tracing);
    VX_ENSURE(row, RESOURCE_EXHAUSTED,
              "too many models have trace settings of their own");
    *row = (struct tracing_row){.settings = *own};
    if (keep) (void)snprintf(row->model, sizeof row->model, "%s", model);
    tracing->any = tracing->server.settings.values[VX_TRACE_LEVEL] != 0;
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++)
        tracing->any |= tracing->models[i].settings.values[VX_TRACE_LEVEL] != 0;
    return VX_OK;
}

/* ------- one request ------- */

/* SplitMix64: any seed will do, and it never repeats within 2^64. */
static u64 tracing_random(struct vx_tracing *tracing)
{
    u64 z = tracing->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return z ? z : 1; /* an id of zeros is invalid */
}

/* True for the first request and then every rate-th, until the count is used up. */
static bool tracing_sample(struct vx_tracing *tracing, const char *model)
{
    struct tracing_row *row = tracing_find(tracing, model);
    if (!tracing_value(tracing, row, VX_TRACE_LEVEL)) return false;
    if (!row) row = &tracing->server;
    if (row->seen++ % (u64)tracing_value(tracing, row, VX_TRACE_RATE)) return false;
    struct tracing_row *counts = tracing_source(tracing, row, VX_TRACE_COUNT);
    if (!counts || counts->settings.values[VX_TRACE_COUNT] < 0) return true;
    if (!counts->settings.values[VX_TRACE_COUNT]) return false;
    counts->settings.values[VX_TRACE_COUNT]--;
    return true;
}

/* 16 digits and a NUL; snprintf would take longer than the rest of a trace together. */
static void hex_print(u64 number, char out[VX_SPAN_ID_BYTES])
{
    for (i32 i = 0; i < VX_SPAN_ID_BYTES - 1; i++)
        out[i] = "0123456789abcdef"[number >> (60 - 4 * i) & 15];
    out[VX_SPAN_ID_BYTES - 1] = '\0';
}

/* Of a request whose caller has no trace: makes an id, if the request gets one. */
static void tracing_begin_own(struct vx_tracing *tracing, struct vx_trace *trace)
{
    u64 high = tracing_random(tracing), low = tracing_random(tracing);
    bool chosen = (low & ((UINT64_C(1) << RATIO_BITS) - 1)) >= tracing->reject_end;
    trace->exported = tracing->exports && (chosen || trace->wanted);
    if (!trace->wanted && !trace->exported) return;
    hex_print(high, trace->trace_id);
    hex_print(low, trace->trace_id + VX_SPAN_ID_BYTES - 1);
}

struct vx_trace vx_tracing_begin(struct vx_tracing *tracing, const char *model,
                                 const char *traceparent)
{
    struct vx_trace trace = {0};
    VX_ASSERT(tracing->magic == TRACING_MAGIC);
    if (!tracing->any && !tracing->exports && !*traceparent) return trace;
    bool has_parent = vx_tracing_parse(traceparent, &trace);
    trace.exported = tracing->exports && trace.wanted; /* the caller's flag */
    if (tracing->any && tracing_sample(tracing, model)) trace.wanted = true;
    if (!has_parent) tracing_begin_own(tracing, &trace);
    if (trace.trace_id[0]) hex_print(tracing_random(tracing), trace.span_id);
    return trace;
}

/* ------- traceparent ------- */

/* -1 if c is not a hex digit; W3C allows lower case only. */
static int hex_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool hex_all(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (hex_value(text[i]) < 0) return false;
    return true;
}

/* Copies an id; false when it is invalid: not hex, or all zeros. */
static bool hex_take_id(const char *text, size_t length, char *out)
{
    memcpy(out, text, length);
    out[length] = '\0';
    return hex_all(text, length) && strspn(out, "0") < length;
}

bool vx_tracing_parse(const char *text, struct vx_trace *trace)
{
    struct vx_trace found = {0};
    size_t length = strlen(text);
    *trace = found;
    if (length < PARENT_BYTES) return false;
    bool dashes = text[PARENT_TRACE_AT - 1] == '-' && text[PARENT_SPAN_AT - 1] == '-' &&
                  text[PARENT_FLAGS_AT - 1] == '-';
    if (!dashes || !hex_all(text, 2) || !hex_all(text + PARENT_FLAGS_AT, 2)) return false;
    /* ff is never a version.  A version after 00 may have more fields after a dash. */
    if (!strncmp(text, "ff", 2)) return false;
    if (length > PARENT_BYTES && (!strncmp(text, "00", 2) || text[PARENT_BYTES] != '-'))
        return false;
    if (!hex_take_id(text + PARENT_TRACE_AT, VX_TRACE_ID_BYTES - 1, found.trace_id) ||
        !hex_take_id(text + PARENT_SPAN_AT, VX_SPAN_ID_BYTES - 1, found.parent_id))
        return false;
    found.wanted = hex_value(text[PARENT_FLAGS_AT + 1]) & FLAG_SAMPLED;
    *trace = found;
    return true;
}
