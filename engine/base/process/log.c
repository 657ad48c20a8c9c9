/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/base/process/log.h"

#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/log_ring.h"
#include "engine/base/utf8.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Most bytes of one value, so that it does not push the others out of the line. */
#define VALUE_BYTES_MAX 640
/* Kept free for the last fields, suppressed, dropped and cut, and the end of the line. */
#define TAIL_BYTES 128
/* How long an exiting process waits until the last lines are written. */
#define EXIT_NS (3 * VX_NS_PER_S)
/* The most bytes that one input byte can become: \u0000. */
#define ESCAPE_BYTES_MAX 6

static const struct {
    const char *name;
    enum vx_log_level level;
} events[VX_EVENTS_COUNT] = {
#define VX_ROW(name_, level_, meaning_) {#name_, VX_LOG_##level_},
#include "engine/base/process/log_events.def"
#undef VX_ROW
};

static const char *const level_names[] = {"debug", "info", "warn", "error"};

/* Written once by vx_log_init, before other threads start. */
static struct vx_log_options options = {.level = VX_LOG_INFO, .fd = STDERR_FILENO};
static const char *process_name = "voxeld";
/* Bits: one for each level that is written, then `iso`, then the number `verbose`. */
#define CHOICE_ISO_SHIFT     8
#define CHOICE_VERBOSE_SHIFT 32
static _Atomic u64 choice_word =
    1u << VX_LOG_INFO | 1u << VX_LOG_WARN | 1u << VX_LOG_ERROR;

/* Per event, so that a flood of one event suppresses no other.  `window` holds the
 * current second (high half) and the lines written in it (low half), in one word so that
 * no lock is needed. */
static struct {
    _Atomic u64 count, suppressed, window;
} tallies[VX_EVENTS_COUNT];
/* Without a ring: lines that could not be written since the last written line, and since
 * the start. */
static _Atomic u64 dropped, dropped_ever;

struct line {
    char bytes[VX_LOG_LINE_BYTES];
    size_t length;
};

static void log_on_exit(void);

void vx_log_init(const struct vx_log_options *wanted, const char *process)
{
    options = *wanted;
    process_name = process;
    vx_log_choice_set(&(struct vx_log_choice){.verbose = wanted->level <= VX_LOG_DEBUG,
                                              .info = wanted->level <= VX_LOG_INFO,
                                              .warn = wanted->level <= VX_LOG_WARN,
                                              .error = true});
    /* When the reader has closed its pipe, or the file has reached its size limit, a line
     * is dropped; the process does not end. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    static bool is_registered; /* tests call this more than once */
    if (!is_registered) VX_ASSERT(!atexit(log_on_exit));
    is_registered = true;
}

void vx_log_choice_set(const struct vx_log_choice *choice)
{
    u64 word = (u64)(choice->verbose > 0) << VX_LOG_DEBUG |
               (u64)choice->info << VX_LOG_INFO | (u64)choice->warn << VX_LOG_WARN |
               (u64)choice->error << VX_LOG_ERROR | (u64)choice->iso << CHOICE_ISO_SHIFT |
               (u64)choice->verbose << CHOICE_VERBOSE_SHIFT;
    atomic_store_explicit(&choice_word, word, memory_order_relaxed);
}

void vx_log_choice_get(struct vx_log_choice *choice)
{
    u64 word = atomic_load_explicit(&choice_word, memory_order_relaxed);
    *choice = (struct vx_log_choice){.info = word >> VX_LOG_INFO & 1,
                                     .warn = word >> VX_LOG_WARN & 1,
                                     .error = word >> VX_LOG_ERROR & 1,
                                     .iso = word >> CHOICE_ISO_SHIFT & 1,
                                     .verbose = (u32)(word >> CHOICE_VERBOSE_SHIFT)};
}

static bool log_shows(enum vx_log_level level)
{
    return atomic_load_explicit(&choice_word, memory_order_relaxed) >> level & 1;
}

u64 vx_log_count(enum vx_log_event event)
{
    return atomic_load_explicit(&tallies[event].count, memory_order_relaxed);
}

/* True for events that are written however many there are. */
static bool log_is_whole(enum vx_log_event event)
{
    switch (event) {
    case VX_EVENT_ACCESS: /* an access log with gaps is useless */
    case VX_EVENT_LOG_SUPPRESSED:
    /* Of a repository with 512 versions each says something else.  More of them come only as
     * fast as models load. */
    case VX_EVENT_MODEL_FAILED:
    case VX_EVENT_MODEL_LOADING:
    case VX_EVENT_MODEL_NETWORK:
    case VX_EVENT_MODEL_NOTE:
    case VX_EVENT_MODEL_READY:
    case VX_EVENT_MODEL_RETRY:
    case VX_EVENT_MODEL_UNLOADED:
    case VX_EVENT_REPOSITORY: return true;
    default: return false;
    }
}

static u64 log_second(void)
{
    return (u64)(vx_clock_ns() / VX_NS_PER_S) & UINT32_MAX;
}

/* True when the event has a line left in this second. */
static bool log_admit(enum vx_log_event event)
{
    if (log_is_whole(event)) return true;
    u64 second = log_second();
    u64 old = atomic_load_explicit(&tallies[event].window, memory_order_relaxed);
    u64 new;
    do {
        new = old >> 32 == second ? old + 1 : (second << 32 | 1);
        if ((u32) new > VX_LOG_BURST) return false;
    } while (!atomic_compare_exchange_weak_explicit(
        &tallies[event].window, &old, new, memory_order_relaxed, memory_order_relaxed));
    return true;
}

/* ------- composing a line; callers make sure that it fits ------- */

static void line_put(struct line *line, const char *text)
{
    size_t length = strlen(text);
    if (length > sizeof line->bytes - line->length) return;
    memcpy(line->bytes + line->length, text, length);
    line->length += length;
}

static void line_number(struct line *line, i64 number)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)number);
    line_put(line, text);
}

/* A character that is not seen where it stands: it ends a line for many programs (U+2028, U+2029),
 * turns the order of what follows, or has no width. */
static bool is_unseen(u32 c)
{
    return c == 0x61c || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2060 && c <= 0x206f) || c == 0xfeff;
}

/* The code point of a character of that many bytes. */
static u32 code_point(const unsigned char *c, size_t length)
{
    static const u8 first[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    u32 code = c[0] & first[length];
    for (size_t i = 1; i < length; i++) code = code << 6 | (c[i] & 0x3f);
    return code;
}

/* Appends one character of `text`, escaped if needed; returns the input bytes used.
 * Control characters, C1 included, never reach a terminal.  Bytes that are not UTF-8
 * appear as \xNN in text lines and become U+FFFD in JSON, which cannot express them. */
static size_t line_escape(struct line *line, const char *text)
{
    const unsigned char *c = (const unsigned char *)text;
    size_t length = vx_utf8_length(c, strnlen(text, VX_UTF8_BYTES_MAX));
    const u32 code = code_point(c, length);
    char out[ESCAPE_BYTES_MAX + 1] = "";
    if (length == 0)
        snprintf(out, sizeof out, options.json ? "\\ufffd" : "\\x%02x", c[0]);
    else if (c[0] == '"' || c[0] == '\\')
        snprintf(out, sizeof out, "\\%c", c[0]);
    else if (c[0] == '\n')
        snprintf(out, sizeof out, "\\n");
    else if (c[0] == '\r')
        snprintf(out, sizeof out, "\\r");
    else if (c[0] == '\t')
        snprintf(out, sizeof out, "\\t");
    else if (code < 0x20 || (code >= 0x7f && code < 0xa0) || is_unseen(code))
        snprintf(out, sizeof out, "\\u%04x", code);
    else
        memcpy(out, text, length);
    line_put(line, out);
    return length ? length : 1;
}

static bool text_is_bare(const char *text)
{
    if (!*text) return false;
    for (; *text; text++)
        if (*text <= ' ' || *text > '~' || strchr("\"=\\", *text)) return false;
    return true;
}

static void line_text(struct line *line, const char *text)
{
    bool bare = !options.json && text_is_bare(text);
    size_t end = line->length + VALUE_BYTES_MAX;
    if (end > sizeof line->bytes - TAIL_BYTES) end = sizeof line->bytes - TAIL_BYTES;
    if (!bare) line_put(line, "\"");
    while (*text && line->length + ESCAPE_BYTES_MAX <= end)
        text += line_escape(line, text);
    if (*text) line_put(line, "...");
    if (!bare) line_put(line, "\"");
}

static void line_real(struct line *line, f64 real)
{
    char text[32];
    snprintf(text, sizeof text, "%.9g", real);
    line_put(line, options.json && !isfinite(real) ? "null" : text);
}

static void line_key(struct line *line, const char *key)
{
    line_put(line, options.json ? ",\"" : " ");
    line_put(line, key);
    line_put(line, options.json ? "\":" : "=");
}

static void line_begin(struct line *line, enum vx_log_event event)
{
    i64 ms = vx_clock_wall_ms();
    time_t seconds = (time_t)(ms / 1000);
    struct tm utc;
    gmtime_r(&seconds, &utc);
    char stamp[40], head[160];
    size_t length = strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(stamp + length, sizeof stamp - length, ".%03dZ", (int)(ms % 1000));
    snprintf(head, sizeof head,
             options.json
                 ? "{\"ts\":\"%s\",\"level\":\"%s\",\"event\":\"%s\",\"process\":\"%s\""
                 : "%s %s %s process=%s",
             stamp, level_names[events[event].level], events[event].name, process_name);
    line_put(line, head);
}

/* False when there is no room for the key and a short value. */
static bool line_field(struct line *line, const struct vx_log_field *field)
{
    size_t least = strlen(field->key) + 48; /* quotes, a number or a text's beginning */
    if (line->length + least > sizeof line->bytes - TAIL_BYTES) return false;
    line_key(line, field->key);
    switch (field->kind) {
    case VX_LOG_FIELD_I64: line_number(line, field->number); break;
    case VX_LOG_FIELD_F64: line_real(line, field->real); break;
    case VX_LOG_FIELD_TEXT: line_text(line, field->text ? field->text : ""); break;
    }
    return true;
}

static void line_say_if(struct line *line, const char *key, u64 number)
{
    if (!number) return;
    line_key(line, key);
    line_number(line, (i64)number);
}

static void line_end(struct line *line)
{
    line_put(line, options.json ? "}\n" : "\n");
}

static bool line_write(const struct line *line)
{
    ssize_t written;
    do written = write(options.fd, line->bytes, line->length);
    while (written < 0 && errno == EINTR);
    return written == (ssize_t)line->length;
}

/* Adds the counts of lines that were not shown and hands the line on; false when it could
 * not be written or queued. */
static bool line_give(struct line *line, u64 silent)
{
    line_say_if(line, "suppressed", silent);
    if (vx_log_ring_is_open()) {
        line_end(line);
        return vx_log_ring_give(line->bytes, line->length);
    }
    u64 lost = atomic_exchange(&dropped, 0);
    line_say_if(line, "dropped", lost);
    line_end(line);
    if (line_write(line)) return true;
    atomic_fetch_add(&dropped, lost + 1);
    atomic_fetch_add(&dropped_ever, 1);
    return false;
}

void vx_log_write(enum vx_log_event event, const struct vx_log_field *fields,
                  int fields_count)
{
    /* Also counted when the level is not written: tests ask whether a path was taken. */
    atomic_fetch_add_explicit(&tallies[event].count, 1, memory_order_relaxed);
    /* The setting access_log alone decides about ACCESS, not the levels, which clients
     * may change. */
    if (event != VX_EVENT_ACCESS && !log_shows(events[event].level)) return;
    if (!log_admit(event)) {
        atomic_fetch_add_explicit(&tallies[event].suppressed, 1, memory_order_relaxed);
        return;
    }
    struct line line;
    line.length = 0;
    line_begin(&line, event);
    int shown = 0;
    while (shown < fields_count && line_field(&line, &fields[shown])) shown++;
    line_say_if(&line, "cut", (u64)(fields_count - shown));
    u64 silent = atomic_exchange(&tallies[event].suppressed, 0);
    /* This line did not get out: the next one reports the count. */
    if (!line_give(&line, silent)) atomic_fetch_add(&tallies[event].suppressed, silent);
}

/* Says the counts that no next line of the event has said: of seconds that are over, and
 * at the end of this one, too. */
static void log_say_suppressed(bool at_end)
{
    if (!log_shows(VX_LOG_WARN)) return;
    u64 second = log_second();
    for (int event = 0; event < VX_EVENTS_COUNT; event++) {
        u64 window = atomic_load_explicit(&tallies[event].window, memory_order_relaxed);
        if (!at_end && window >> 32 == second) continue;
        u64 lines = atomic_exchange(&tallies[event].suppressed, 0);
        if (lines)
            VX_LOG(LOG_SUPPRESSED, VX_LOG_TEXT("of", events[event].name),
                   VX_LOG_I64("lines", (i64)lines));
    }
}

/* ------- the writer thread ------- */

static size_t log_say_lost(u64 lines, char *text, size_t capacity)
{
    struct line line;
    line.length = 0;
    atomic_fetch_add_explicit(&tallies[VX_EVENT_LOG_DROPPED].count, 1,
                              memory_order_relaxed);
    line_begin(&line, VX_EVENT_LOG_DROPPED);
    line_say_if(&line, "lines", lines);
    line_end(&line);
    VX_ASSERT(line.length <= capacity);
    memcpy(text, line.bytes, line.length);
    return line.length;
}

static void log_each_second(void)
{
    log_say_suppressed(false);
}

static void log_on_exit(void)
{
    log_say_suppressed(true);
    (void)vx_log_flush(EXIT_NS);
}

vx_status vx_log_open(void)
{
    return vx_log_ring_open(options.fd, log_say_lost, log_each_second);
}

bool vx_log_flush(i64 limit_ns)
{
    return vx_log_ring_flush(limit_ns);
}

u64 vx_log_dropped(void)
{
    return vx_log_ring_lost() + atomic_load_explicit(&dropped_ever, memory_order_relaxed);
}
