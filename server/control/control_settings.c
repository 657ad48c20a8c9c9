/* SPDX-License-Identifier: Apache-2.0 */
#include "server/control/control_private.h"

#include "engine/base/process/log.h"
#include "server/metrics/tracing.h"

#include "open_inference.pb-c.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ------- who may change them ------- */

static const char *const peer_names[] = {
    [VX_PEER_REMOTE] = "remote", [VX_PEER_LOCAL] = "local", [VX_PEER_UNIX] = "unix"};

/* An unknown client counts as a remote one. */
static struct vx_peer asker(const struct vx_control_question *question)
{
    return question->peer ? *question->peer : (struct vx_peer){.kind = VX_PEER_REMOTE};
}

static vx_status check_changer(const struct vx_control_question *question,
                               const char *method)
{
    const char *who = question->view->config->client_settings;
    bool is_any = !strcmp(who, "any"), is_local = !strcmp(who, "local");
    bool is_here = asker(question).kind != VX_PEER_REMOTE;
    VX_ENSURE_WHY(is_any || (is_local && is_here), question->why, PERMISSION_DENIED,
                  "this client may not change settings",
                  "%s: %s may not change settings: the setting client_settings is %s",
                  method, is_local ? "a client of another host" : "clients", who);
    return VX_OK;
}

static const char *peer_name(const struct vx_peer *peer)
{
    return peer_names[peer->kind];
}

/* -1 = not known. */
static i64 peer_uid(const struct vx_peer *peer)
{
    return peer->kind == VX_PEER_UNIX ? (i64)peer->uid : -1;
}

/* ------- TraceSetting ------- */

typedef Inference__TraceSettingRequest__SettingsEntry TraceEntry;

/* The settings that can be set; the order of enum vx_trace_setting. */
static const struct {
    const char *name;
    i64 min, max; /* of a number; both 0: trace_level, whose values are words */
} trace_rows[VX_TRACE_SETTINGS_COUNT] = {
    [VX_TRACE_LEVEL] = {"trace_level", 0, 0},
    [VX_TRACE_RATE] = {"trace_rate", 1, UINT32_MAX},
    [VX_TRACE_COUNT] = {"trace_count", -1, INT32_MAX},
    [VX_TRACE_LOG_FREQUENCY] = {"log_frequency", 0, UINT32_MAX},
};
/* The settings that cannot be changed.  Setting one to the value it has is not refused,
 * since clients send back what they read. */
static const struct {
    const char *name, *value, *why;
} trace_fixed[] = {
    {"trace_file", "",
     "trace file location can not be updated through network protocol: traces are TRACE "
     "lines of the server's log"},
    {"trace_mode", "triton",
     "trace_mode can not be updated through network protocol: expected 'triton'; a "
     "traceparent with the sampled flag is honoured in every mode"},
};

static vx_status
trace_read_level(const Inference__TraceSettingRequest__SettingValue *from,
                 struct vx_why *why, i64 *level)
{
    *level = -1;
    for (size_t i = 0; i < from->n_value; i++) {
        const char *word = from->value[i];
        VX_ENSURE(strcmp(word, "TENSORS"), INVALID_ARGUMENT,
                  "trace_level TENSORS is not supported: the contents of tensors are "
                  "never logged; expected OFF or TIMESTAMPS");
        i64 said = !strcmp(word, "TIMESTAMPS");
        VX_ENSURE_WHY(said || !strcmp(word, "OFF"), why, INVALID_ARGUMENT,
                      "unknown trace_level",
                      "trace_level: expected OFF or TIMESTAMPS, got "
                      "'%.60s'",
                      word);
        VX_ENSURE(*level < 0 || *level == said, INVALID_ARGUMENT,
                  "trace_level: expected OFF alone, or TIMESTAMPS");
        *level = said;
    }
    return VX_OK;
}

static vx_status trace_read_number(const char *name, const char *text,
                                   const i64 bounds[2], struct vx_why *why, i64 *number)
{
    char *end;
    errno = 0;
    long long got = strtoll(text, &end, 10);
    bool digits =
        (*text == '-' || (*text >= '0' && *text <= '9')) && !*end && end != text;
    VX_ENSURE_WHY(digits && !errno && got >= bounds[0] && got <= bounds[1], why,
                  INVALID_ARGUMENT, "a trace setting is out of its range",
                  "%s: expected a number from %lld to %lld, got '%.60s'", name,
                  (long long)bounds[0], (long long)bounds[1], text);
    *number = got;
    return VX_OK;
}

/* A setting without a value is removed: then the server's applies, or the default. */
static vx_status trace_read(const TraceEntry *entry, struct vx_why *why,
                            struct vx_trace_settings *settings)
{
    const Inference__TraceSettingRequest__SettingValue *value = entry->value;
    bool none = !value || !value->n_value;
    for (size_t i = 0; i < VX_COUNT(trace_fixed); i++) {
        if (strcmp(entry->key, trace_fixed[i].name)) continue;
        if (none ||
            (value->n_value == 1 && !strcmp(value->value[0], trace_fixed[i].value)))
            return VX_OK;
        VX_FAIL_WHY(why, INVALID_ARGUMENT, "a trace setting cannot be changed", "%s",
                    trace_fixed[i].why);
    }
    i32 row = 0;
    while (row < VX_TRACE_SETTINGS_COUNT && strcmp(entry->key, trace_rows[row].name))
        row++;
    VX_ENSURE_WHY(row < VX_TRACE_SETTINGS_COUNT, why, INVALID_ARGUMENT,
                  "unknown trace setting",
                  "unknown trace setting '%.60s': expected trace_level, trace_rate, "
                  "trace_count, log_frequency, trace_file or trace_mode",
                  entry->key);
    settings->said[row] = !none;
    settings->values[row] = 0;
    if (none) return VX_OK;
    if (row == VX_TRACE_LEVEL)
        return trace_read_level(value, why, &settings->values[row]);
    VX_ENSURE_WHY(value->n_value == 1, why, INVALID_ARGUMENT, "expected one value",
                  "%s: expected one value, got %zu", trace_rows[row].name,
                  value->n_value);
    const i64 bounds[2] = {trace_rows[row].min, trace_rows[row].max};
    return trace_read_number(trace_rows[row].name, value->value[0], bounds, why,
                             &settings->values[row]);
}

#define TRACE_ANSWERS (VX_TRACE_SETTINGS_COUNT + VX_COUNT(trace_fixed))

/* A TraceSettingResponse and everything it points to, taken from the arena at once. */
struct trace_answer {
    Inference__TraceSettingResponse response;
    Inference__TraceSettingResponse__SettingsEntry entries[TRACE_ANSWERS];
    Inference__TraceSettingResponse__SettingsEntry *list[TRACE_ANSWERS];
    Inference__TraceSettingResponse__SettingValue values[TRACE_ANSWERS];
    char *texts[TRACE_ANSWERS];
    char numbers[VX_TRACE_SETTINGS_COUNT][VX_CONTROL_NUMBER_BYTES];
};

static void trace_say(struct trace_answer *answer, const char *name, const char *value)
{
    size_t at = answer->response.n_settings++;
    inference__trace_setting_response__settings_entry__init(&answer->entries[at]);
    inference__trace_setting_response__setting_value__init(&answer->values[at]);
    answer->texts[at] = (char *)(uintptr_t)value;
    answer->values[at].n_value = 1;
    answer->values[at].value = &answer->texts[at];
    answer->entries[at].key = (char *)(uintptr_t)name;
    answer->entries[at].value = &answer->values[at];
    answer->list[at] = &answer->entries[at];
}

static void trace_say_all(struct trace_answer *answer,
                          const struct vx_trace_settings *settings)
{
    for (i32 row = 0; row < VX_TRACE_SETTINGS_COUNT; row++) {
        const char *text = answer->numbers[row];
        snprintf(answer->numbers[row], VX_CONTROL_NUMBER_BYTES, "%lld",
                 (long long)settings->values[row]);
        if (row == VX_TRACE_LEVEL) text = settings->values[row] ? "TIMESTAMPS" : "OFF";
        trace_say(answer, trace_rows[row].name, text);
    }
    for (size_t i = 0; i < VX_COUNT(trace_fixed); i++)
        trace_say(answer, trace_fixed[i].name, trace_fixed[i].value);
    answer->response.settings = answer->list;
}

/* Changes the settings that the request has, all or none, and answers with those that
 * apply afterwards. */
vx_status vx_control_trace_setting(struct vx_control_question *question)
{
    const Inference__TraceSettingRequest *request = (const void *)question->request;
    struct vx_tracing *tracing = question->view->tracing;
    struct vx_trace_settings own, all;
    i32 ignored;
    VX_ENSURE_WHY(tracing, question->why, UNIMPLEMENTED, "not served",
                  "TraceSetting is not available: %s", "tracing is off in this server");
    if (request->n_settings) VX_TRY(check_changer(question, "TraceSetting"));
    if (*request->model_name) VX_TRY(vx_control_may(question, request->model_name));
    if (*request->model_name)
        VX_TRY(vx_registry_find(question->view->registry, request->model_name, 0,
                                question->why, &ignored));
    vx_tracing_get(tracing, request->model_name, &own, &all);
    for (size_t i = 0; i < request->n_settings; i++)
        VX_TRY(trace_read(request->settings[i], question->why, &own));
    if (request->n_settings) {
        struct vx_peer peer = asker(question);
        VX_TRY(vx_tracing_set(tracing, request->model_name, &own));
        vx_tracing_get(tracing, request->model_name, &own, &all);
        VX_LOG(
            SETTINGS, VX_LOG_TEXT("what", "trace"),
            VX_LOG_TEXT("trace_level", all.values[VX_TRACE_LEVEL] ? "TIMESTAMPS" : "OFF"),
            VX_LOG_I64("trace_rate", all.values[VX_TRACE_RATE]),
            VX_LOG_I64("trace_count", all.values[VX_TRACE_COUNT]),
            VX_LOG_TEXT("model", request->model_name),
            VX_LOG_TEXT("peer", peer_name(&peer)),
            VX_LOG_I64("connection", (i64)peer.connection),
            VX_LOG_I64("uid", peer_uid(&peer)),
            VX_LOG_TEXT("token", vx_control_token(question)));
    }
    struct trace_answer *answer = vx_arena_take(question->scratch, sizeof *answer);
    VX_ENSURE(answer, RESOURCE_EXHAUSTED, "no room for the answer");
    inference__trace_setting_response__init(&answer->response);
    trace_say_all(answer, &all);
    question->answer = &answer->response.base;
    return VX_OK;
}

/* ------- LogSettings ------- */

typedef Inference__LogSettingsRequest__SettingValue LogValue;
#define LOG_IS(value_, kind_)                                                            \
    ((value_)->parameter_choice_case ==                                                  \
     INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_##kind_##_PARAM)

static vx_status log_read_bool(const char *name, const LogValue *value,
                               struct vx_why *why, bool *out)
{
    VX_ENSURE_WHY(LOG_IS(value, BOOL), why, INVALID_ARGUMENT, "expected a bool",
                  "%s: expected a bool_param", name);
    *out = value->bool_param;
    return VX_OK;
}

static vx_status log_read_text(const char *name, const LogValue *value,
                               struct vx_why *why, const char **out)
{
    VX_ENSURE_WHY(LOG_IS(value, STRING), why, INVALID_ARGUMENT, "expected a text",
                  "%s: expected a string_param", name);
    *out = value->string_param;
    return VX_OK;
}

/* Time stamps are ISO 8601 under both names.  Whether lines are text or JSON cannot be
 * changed here: programs that read the log expect what the daemon was started with. */
static vx_status log_read_format(const LogValue *value, struct vx_why *why, bool *iso)
{
    const char *text;
    VX_TRY(log_read_text("log_format", value, why, &text));
    *iso = !strcmp(text, "ISO8601");
    VX_ENSURE_WHY(*iso || !strcmp(text, "default"), why, INVALID_ARGUMENT,
                  "unknown log_format",
                  "log_format: expected 'default' or 'ISO8601', got '%.60s'", text);
    return VX_OK;
}

static vx_status log_read(const Inference__LogSettingsRequest__SettingsEntry *entry,
                          struct vx_why *why, struct vx_log_choice *wanted)
{
    static const LogValue nothing = INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__INIT;
    const LogValue *value = entry->value ? entry->value : &nothing;
    const char *key = entry->key, *text;
    if (!strcmp(key, "log_info")) return log_read_bool(key, value, why, &wanted->info);
    if (!strcmp(key, "log_warning")) return log_read_bool(key, value, why, &wanted->warn);
    if (!strcmp(key, "log_error")) return log_read_bool(key, value, why, &wanted->error);
    if (!strcmp(key, "log_format")) return log_read_format(value, why, &wanted->iso);
    if (!strcmp(key, "log_verbose_level")) {
        VX_ENSURE(LOG_IS(value, UINT32), INVALID_ARGUMENT,
                  "log_verbose_level: expected a uint32_param");
        wanted->verbose = value->uint32_param;
        return VX_OK;
    }
    VX_ENSURE_WHY(
        !strcmp(key, "log_file"), why, INVALID_ARGUMENT, "unknown log setting",
        "unknown log setting '%.60s': expected log_file, log_info, log_warning, "
        "log_error, log_verbose_level or log_format",
        key);
    VX_TRY(log_read_text(key, value, why, &text));
    VX_ENSURE(!*text, INVALID_ARGUMENT,
              "log file location can not be updated through network protocol: the log "
              "goes to standard error, expected ''");
    return VX_OK;
}

#define LOG_ANSWERS 6

struct log_answer {
    Inference__LogSettingsResponse response;
    Inference__LogSettingsResponse__SettingsEntry entries[LOG_ANSWERS];
    Inference__LogSettingsResponse__SettingsEntry *list[LOG_ANSWERS];
    Inference__LogSettingsResponse__SettingValue values[LOG_ANSWERS];
};

static Inference__LogSettingsResponse__SettingValue *log_say(struct log_answer *answer,
                                                             const char *name)
{
    size_t at = answer->response.n_settings++;
    inference__log_settings_response__settings_entry__init(&answer->entries[at]);
    inference__log_settings_response__setting_value__init(&answer->values[at]);
    answer->entries[at].key = (char *)(uintptr_t)name;
    answer->entries[at].value = &answer->values[at];
    answer->list[at] = &answer->entries[at];
    return &answer->values[at];
}
#define LOG_SAY(answer_, name_, kind_, member_, value_)                                        \
    do {                                                                                       \
        Inference__LogSettingsResponse__SettingValue *said_ = log_say(answer_, name_);         \
        said_->parameter_choice_case =                                                         \
            INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_##kind_##_PARAM; \
        said_->member_ = (value_);                                                             \
    } while (0)

static void log_say_all(struct log_answer *answer, const struct vx_log_choice *now)
{
    static char to_stderr[] = "", iso[] = "ISO8601", plain[] = "default";
    inference__log_settings_response__init(&answer->response);
    LOG_SAY(answer, "log_file", STRING, string_param, to_stderr);
    LOG_SAY(answer, "log_info", BOOL, bool_param, now->info);
    LOG_SAY(answer, "log_warning", BOOL, bool_param, now->warn);
    LOG_SAY(answer, "log_error", BOOL, bool_param, now->error);
    LOG_SAY(answer, "log_verbose_level", UINT32, uint32_param, now->verbose);
    LOG_SAY(answer, "log_format", STRING, string_param, now->iso ? iso : plain);
    answer->response.settings = answer->list;
}

/* As vx_control_trace_setting.  Only the front's log changes: workers, which log little,
 * keep the level that the daemon was started with. */
vx_status vx_control_log_settings(struct vx_control_question *question)
{
    const Inference__LogSettingsRequest *request = (const void *)question->request;
    struct vx_log_choice wanted;
    if (request->n_settings) VX_TRY(check_changer(question, "LogSettings"));
    vx_log_choice_get(&wanted);
    for (size_t i = 0; i < request->n_settings; i++)
        VX_TRY(log_read(request->settings[i], question->why, &wanted));
    struct log_answer *answer = vx_arena_take(question->scratch, sizeof *answer);
    VX_ENSURE(answer, RESOURCE_EXHAUSTED, "no room for the answer");
    if (request->n_settings) {
        struct vx_peer peer = asker(question);
        /* Logged before the change: the client that silences the log is its last line. */
        VX_LOG(SETTINGS, VX_LOG_TEXT("what", "log"), VX_LOG_I64("log_info", wanted.info),
               VX_LOG_I64("log_warning", wanted.warn),
               VX_LOG_I64("log_error", wanted.error),
               VX_LOG_I64("log_verbose_level", wanted.verbose),
               VX_LOG_TEXT("peer", peer_name(&peer)),
               VX_LOG_I64("connection", (i64)peer.connection),
               VX_LOG_I64("uid", peer_uid(&peer)),
               VX_LOG_TEXT("token", vx_control_token(question)));
        vx_log_choice_set(&wanted);
    }
    log_say_all(answer, &wanted);
    question->answer = &answer->response.base;
    return VX_OK;
}
