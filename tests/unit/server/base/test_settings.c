/* tracing and the settings that clients change: which requests are traced, what TraceSetting and
 * LogSettings accept, and that a refusal changes nothing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/process/log.h"
#include "proto/control.h"
#include "server/control/control.h"
#include "server/metrics/tracing.h"
#include "server/rpc/rpc.h"

#include "open_inference.pb-c.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARENA_BYTES (4 << 20)
#define PARENT      "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"

static struct vx_tracing *tracing;
static struct vx_registry *registry;
static struct vx_front_view view;
static struct vx_arena scratch;
static void *scratch_block;
static struct vx_why why;
static struct vx_config config;
static struct vx_peer peer;

static void setup(void)
{
    ck_assert(!vx_registry_open(&registry).fault);
    ck_assert(!vx_tracing_open(registry, &tracing).fault);
    i32 instance = vx_registry_add(registry, "conv", 1, 1);
    vx_registry_row(registry, instance)->state = VX_INSTANCE_READY;
    scratch_block = malloc(ARENA_BYTES);
    vx_arena_init(&scratch, scratch_block, ARENA_BYTES);
    vx_config_defaults(&config);
    peer = (struct vx_peer){.connection = 1, .kind = VX_PEER_LOCAL};
    view = (struct vx_front_view){
        .config = &config, .registry = registry, .tracing = tracing};
    vx_log_init(&(struct vx_log_options){.level = VX_LOG_INFO, .fd = 2}, "test");
}

static void teardown(void)
{
    vx_registry_close(&registry);
    vx_tracing_close(&tracing);
    free(scratch_block);
}

/* ------- traceparent ------- */

START_TEST(a_sampled_parent_is_always_traced)
{
    struct vx_trace first = vx_tracing_begin(tracing, "conv", PARENT "01");
    struct vx_trace second = vx_tracing_begin(tracing, "conv", PARENT "01");
    ck_assert(first.wanted && second.wanted);
    ck_assert_uint_eq(strlen(first.span_id), 16);
    ck_assert_str_ne(first.span_id, second.span_id);
    ck_assert_str_ne(first.span_id, "0000000000000000");
    struct vx_trace trace = vx_tracing_begin(tracing, "conv", PARENT "00");
    ck_assert(!trace.wanted); /* its ids are only for the access log */
    ck_assert_uint_eq(strlen(trace.span_id), 16);
    trace = vx_tracing_begin(tracing, "conv", "nonsense");
    ck_assert(!trace.wanted && !trace.trace_id[0] && !trace.span_id[0]);
}
END_TEST

/* ------- TraceSetting ------- */

/* "key=value" or "key" for no value; up to four. */
struct pairs {
    const char *of[4];
};

static vx_status answer_of(i32 method, const ProtobufCMessage *request,
                           const ProtobufCMessageDescriptor *descriptor, void *answer)
{
    static u8 bytes[4096], answer_bytes[VX_ANSWER_BYTES_MAX];
    struct vx_span span = {bytes, protobuf_c_message_pack(request, bytes)};
    struct vx_control_answer out = {.scratch = &scratch,
                                    .bytes = answer_bytes,
                                    .capacity = sizeof answer_bytes,
                                    .peer = peer.connection ? &peer : NULL};
    why.text[0] = 0;
    vx_arena_reset(&scratch);
    vx_status status = vx_control_answer(&view, method, span, &out, &why);
    if (status.fault) return status;
    ProtobufCMessage *message = NULL;
    status = vx_control_unpack(descriptor, (struct vx_span){answer_bytes, out.length},
                               &scratch, &why, &message);
    ck_assert(!status.fault);
    memcpy(answer, &message, sizeof message);
    return VX_OK;
}

static vx_status trace_set(const char *model, struct pairs pairs,
                           Inference__TraceSettingResponse **answer)
{
    Inference__TraceSettingRequest request = INFERENCE__TRACE_SETTING_REQUEST__INIT;
    Inference__TraceSettingRequest__SettingsEntry entries[4], *list[4];
    Inference__TraceSettingRequest__SettingValue values[4];
    char keys[4][64], *texts[4];
    request.model_name = (char *)(uintptr_t)model;
    for (; request.n_settings < 4 && pairs.of[request.n_settings]; request.n_settings++) {
        size_t i = request.n_settings;
        snprintf(keys[i], sizeof keys[i], "%s", pairs.of[i]);
        texts[i] = strchr(keys[i], '=');
        inference__trace_setting_request__settings_entry__init(&entries[i]);
        inference__trace_setting_request__setting_value__init(&values[i]);
        values[i].n_value = texts[i] ? 1 : 0;
        if (texts[i]) *texts[i]++ = '\0';
        values[i].value = &texts[i];
        entries[i].key = keys[i];
        entries[i].value = &values[i];
        list[i] = &entries[i];
    }
    request.settings = list;
    return answer_of(VX_METHOD_ID_TRACE_SETTING, &request.base,
                     &inference__trace_setting_response__descriptor, answer);
}

static const char *trace_value(const Inference__TraceSettingResponse *answer,
                               const char *key)
{
    for (size_t i = 0; i < answer->n_settings; i++)
        if (!strcmp(answer->settings[i]->key, key)) {
            ck_assert_uint_eq(answer->settings[i]->value->n_value, 1);
            return answer->settings[i]->value->value[0];
        }
    ck_abort_msg("no %s in the answer", key);
}

static void trace_is(const char *model, const char *level, const char *rate,
                     const char *count)
{
    Inference__TraceSettingResponse *answer;
    ck_assert(!trace_set(model, (struct pairs){0}, &answer).fault);
    ck_assert_uint_eq(answer->n_settings, 6);
    ck_assert_str_eq(trace_value(answer, "trace_level"), level);
    ck_assert_str_eq(trace_value(answer, "trace_rate"), rate);
    ck_assert_str_eq(trace_value(answer, "trace_count"), count);
    ck_assert_str_eq(trace_value(answer, "log_frequency"), "0");
    ck_assert_str_eq(trace_value(answer, "trace_file"), "");
    ck_assert_str_eq(trace_value(answer, "trace_mode"), "triton");
}

static void trace_change(const char *model, struct pairs pairs)
{
    Inference__TraceSettingResponse *answer;
    vx_status status = trace_set(model, pairs, &answer);
    ck_assert_msg(!status.fault, "%s", vx_status_text(status, &why));
}

static int traced_of(const char *model, int requests)
{
    int traced = 0;
    for (int i = 0; i < requests; i++)
        traced += vx_tracing_begin(tracing, model, "").wanted;
    return traced;
}

START_TEST(trace_settings_are_triton_s)
{
    trace_is("", "OFF", "1000", "-1");
    ck_assert_int_eq(traced_of("conv", 5000), 0);
    trace_change("", (struct pairs){{"trace_level=TIMESTAMPS", "trace_rate=10"}});
    trace_is("", "TIMESTAMPS", "10", "-1");
    trace_is("conv", "TIMESTAMPS", "10", "-1"); /* it has no count of its own */
    ck_assert_int_eq(traced_of("conv", 1000), 100);
    /* A model's own settings, beside the server's. */
    trace_change("conv", (struct pairs){{"trace_rate=1", "trace_count=7"}});
    trace_is("conv", "TIMESTAMPS", "1", "7");
    trace_is("", "TIMESTAMPS", "10", "-1");
    ck_assert_int_eq(traced_of("conv", 5), 5);
    trace_is("conv", "TIMESTAMPS", "1", "2");
    ck_assert_int_eq(traced_of("conv", 100), 2);
    trace_is("conv", "TIMESTAMPS", "1", "0");
    ck_assert_int_eq(traced_of("other", 100), 10);
    trace_change("conv", (struct pairs){{"trace_level=OFF", "trace_count"}});
    trace_is("conv", "OFF", "1", "-1");
    ck_assert_int_eq(traced_of("conv", 100), 0);
    /* Settings removed: the server's count applies, then the defaults. */
    trace_change("conv", (struct pairs){{"trace_level", "trace_rate"}});
    trace_is("conv", "TIMESTAMPS", "10", "-1");
    trace_change("", (struct pairs){{"trace_level", "trace_rate"}});
    trace_is("", "OFF", "1000", "-1");
    ck_assert_int_eq(traced_of("conv", 5000), 0);
    /* A setting may be changed to the value that was just returned. */
    trace_change("", (struct pairs){{"trace_file=", "trace_mode=triton", "trace_file"}});
}
END_TEST

START_TEST(models_share_the_servers_count)
{
    trace_change(
        "", (struct pairs){{"trace_level=TIMESTAMPS", "trace_rate=1", "trace_count=3"}});
    trace_change("conv", (struct pairs){{"trace_rate=2"}});
    ck_assert_int_eq(traced_of("conv", 3), 2);
    ck_assert_int_eq(traced_of("other", 3), 1);
    ck_assert_int_eq(traced_of("conv", 3), 0);
    struct vx_trace trace = vx_tracing_begin(tracing, "conv", PARENT "01");
    ck_assert(trace.wanted);
}
END_TEST

START_TEST(trace_settings_that_are_refused_change_nothing)
{
    static const struct {
        const char *setting, *text;
    } cases[] = {
        {"trace_level=TENSORS", "TENSORS is not supported"},
        {"trace_level=on", "expected OFF or TIMESTAMPS, got 'on'"},
        {"trace_rate=0", "expected a number from 1 to 4294967295, got '0'"},
        {"trace_rate=ten", "got 'ten'"},
        {"trace_rate= 5", "got ' 5'"},
        {"trace_rate=", "got ''"},
        {"trace_rate=99999999999999999999", "trace_rate: expected"},
        {"trace_count=-2", "expected a number from -1 to 2147483647"},
        {"log_frequency=-1", "log_frequency: expected"},
        {"trace_file=/etc/passwd", "can not be updated through network protocol"},
        {"trace_mode=opentelemetry", "can not be updated"},
        {"speed=fast", "unknown trace setting 'speed'"},
    };
    Inference__TraceSettingResponse *answer;
    for (size_t i = 0; i < VX_COUNT(cases); i++) {
        vx_status status = trace_set(
            "", (struct pairs){{"trace_level=TIMESTAMPS", cases[i].setting}}, &answer);
        ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
        const char *text = vx_status_text(status, &why);
        ck_assert_msg(strstr(text, cases[i].text), "%s", text);
        trace_is("", "OFF", "1000", "-1");
    }
    vx_status status = trace_set("absent", (struct pairs){{"trace_rate=1"}}, &answer);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(why.text, "Request for unknown model: 'absent'"));
}
END_TEST

START_TEST(models_with_settings_are_bounded)
{
    struct vx_trace_settings own = {.said = {[VX_TRACE_RATE] = true},
                                    .values = {[VX_TRACE_RATE] = 5}};
    char name[32];
    for (int i = 0; i < VX_INSTANCES_MAX; i++) {
        snprintf(name, sizeof name, "model%d", i);
        if (i) ck_assert_int_ge(vx_registry_add(registry, name, 1, 1), 0);
        if (!i) snprintf(name, sizeof name, "conv"); /* is there already */
        ck_assert(!vx_tracing_set(tracing, name, &own).fault);
    }
    ck_assert_int_eq(vx_status_code(vx_tracing_set(tracing, "more", &own)),
                     VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert(!vx_tracing_set(tracing, "model3", &(struct vx_trace_settings){0}).fault);
    ck_assert(!vx_tracing_set(tracing, "more", &own).fault);
}
END_TEST

/* Loading and unloading models of many names does not use up the entries. */
START_TEST(models_that_are_gone_leave_their_settings_to_others)
{
    struct vx_trace_settings own = {.said = {[VX_TRACE_RATE] = true},
                                    .values = {[VX_TRACE_RATE] = 5}},
                             had, all;
    char name[32];
    ck_assert(!vx_tracing_set(tracing, "conv", &own).fault);
    for (int i = 0; i < 3 * VX_INSTANCES_MAX; i++) {
        snprintf(name, sizeof name, "gone%d", i);
        ck_assert(!vx_tracing_set(tracing, name, &own).fault);
        vx_tracing_get(tracing, name, &had, &all);
        ck_assert_int_eq(all.values[VX_TRACE_RATE], 5);
    }
    vx_tracing_get(tracing, "conv", &had, &all);
    ck_assert(had.said[VX_TRACE_RATE]);
}
END_TEST

/* ------- LogSettings ------- */

typedef Inference__LogSettingsRequest__SettingValue LogValue;
#define SET(kind_, member_, value_)                                                       \
    ((LogValue){                                                                          \
        PROTOBUF_C_MESSAGE_INIT(                                                          \
            &inference__log_settings_request__setting_value__descriptor),                 \
        INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_##kind_##_PARAM, \
        {.member_ = (value_)}})
#define BOOL(value_)   SET(BOOL, bool_param, value_)
#define NUMBER(value_) SET(UINT32, uint32_param, value_)
#define TEXT(value_)   SET(STRING, string_param, (char *)(uintptr_t)(value_))

/* Two settings; `first` may be NULL. */
static vx_status log_set(const char *first, LogValue first_value, const char *second,
                         LogValue second_value, Inference__LogSettingsResponse **answer)
{
    Inference__LogSettingsRequest request = INFERENCE__LOG_SETTINGS_REQUEST__INIT;
    Inference__LogSettingsRequest__SettingsEntry entries[2], *list[2];
    const char *keys[2] = {first, second};
    LogValue *values[2] = {&first_value, &second_value};
    for (int i = 0; i < 2; i++) {
        if (!keys[i]) continue;
        inference__log_settings_request__settings_entry__init(&entries[i]);
        entries[i].key = (char *)(uintptr_t)keys[i];
        entries[i].value = values[i];
        list[request.n_settings++] = &entries[i];
    }
    request.settings = list;
    return answer_of(VX_METHOD_ID_LOG_SETTINGS, &request.base,
                     &inference__log_settings_response__descriptor, answer);
}

/* As one string: "log_error=1 log_file= ...", in the order of the answer. */
static const char *log_said(const Inference__LogSettingsResponse *answer)
{
    static char text[512];
    int at = 0;
    text[0] = 0;
    for (size_t i = 0; i < answer->n_settings; i++) {
        const Inference__LogSettingsResponse__SettingValue *value =
            answer->settings[i]->value;
        const char *key = answer->settings[i]->key;
        size_t room = sizeof text - (size_t)at;
        switch (value->parameter_choice_case) {
        case INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_BOOL_PARAM:
            at += snprintf(text + at, room, "%s=%d ", key, value->bool_param);
            break;
        case INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_UINT32_PARAM:
            at += snprintf(text + at, room, "%s=%u ", key, value->uint32_param);
            break;
        default: at += snprintf(text + at, room, "%s='%s' ", key, value->string_param);
        }
    }
    return text;
}

static void log_is(const char *expected)
{
    Inference__LogSettingsResponse *answer;
    ck_assert(!log_set(NULL, BOOL(0), NULL, BOOL(0), &answer).fault);
    ck_assert_str_eq(log_said(answer), expected);
}

START_TEST(log_settings_change_the_log)
{
    Inference__LogSettingsResponse *answer;
    struct vx_log_choice choice;
    log_is("log_file='' log_info=1 log_warning=1 log_error=1 log_verbose_level=0 "
           "log_format='default' ");
    ck_assert(
        !log_set("log_info", BOOL(0), "log_verbose_level", NUMBER(3), &answer).fault);
    ck_assert_str_eq(log_said(answer), "log_file='' log_info=0 log_warning=1 log_error=1 "
                                       "log_verbose_level=3 log_format='default' ");
    vx_log_choice_get(&choice);
    ck_assert(!choice.info && choice.warn && choice.error && choice.verbose == 3);
    ck_assert(
        !log_set("log_format", TEXT("ISO8601"), "log_file", TEXT(""), &answer).fault);
    ck_assert(!log_set("log_warning", BOOL(0), "log_error", BOOL(0), &answer).fault);
    log_is("log_file='' log_info=0 log_warning=0 log_error=0 log_verbose_level=3 "
           "log_format='ISO8601' ");
    ck_assert_uint_eq(vx_log_count(VX_EVENT_SETTINGS), 3);
}
END_TEST

static const struct {
    const char *setting;
    enum vx_peer_kind kind;
    u64 connection; /* 0: the client is unknown */
    bool may;
} changers[] = {
    {"off", VX_PEER_UNIX, 1, false},     {"off", VX_PEER_LOCAL, 1, false},
    {"local", VX_PEER_UNIX, 1, true},    {"local", VX_PEER_LOCAL, 1, true},
    {"local", VX_PEER_REMOTE, 1, false}, {"local", VX_PEER_LOCAL, 0, false},
    {"any", VX_PEER_REMOTE, 1, true},    {"any", VX_PEER_REMOTE, 0, true},
};

START_TEST(the_setting_says_who_may_change_them)
{
    Inference__LogSettingsResponse *log;
    Inference__TraceSettingResponse *trace;
    snprintf(config.client_settings, sizeof config.client_settings, "%s",
             changers[_i].setting);
    peer = (struct vx_peer){.connection = changers[_i].connection,
                            .kind = changers[_i].kind,
                            .uid = 7,
                            .gid = 8};
    enum vx_code expected = changers[_i].may ? VX_CODE_OK : VX_CODE_PERMISSION_DENIED;
    vx_status st = log_set("log_error", BOOL(0), NULL, BOOL(0), &log);
    ck_assert_int_eq(vx_status_code(st), expected);
    if (st.fault)
        ck_assert_ptr_nonnull(strstr(why.text, "the setting client_settings is "));
    st = trace_set("", (struct pairs){{"trace_level=TIMESTAMPS"}}, &trace);
    ck_assert_int_eq(vx_status_code(st), expected);
    if (st.fault)
        ck_assert_ptr_nonnull(strstr(why.text, "the setting client_settings is "));
    ck_assert_uint_eq(vx_log_count(VX_EVENT_SETTINGS), changers[_i].may ? 2 : 0);
    struct vx_log_choice choice;
    vx_log_choice_get(&choice);
    ck_assert(choice.error != changers[_i].may);
    trace_is("", changers[_i].may ? "TIMESTAMPS" : "OFF", "1000",
             "-1"); /* everyone may read */
    ck_assert(!log_set(NULL, BOOL(0), NULL, BOOL(0), &log).fault);
}
END_TEST

/* The log has a line that names the client, before logging is switched off. */
START_TEST(the_log_says_who_changed_them)
{
    Inference__LogSettingsResponse *answer;
    char text[4096];
    int ends[2];
    ck_assert(!pipe(ends));
    vx_log_init(&(struct vx_log_options){.level = VX_LOG_INFO, .fd = ends[1]}, "test");
    peer = (struct vx_peer){.connection = 77,
                            .kind = _i ? VX_PEER_UNIX : VX_PEER_LOCAL,
                            .uid = 1234,
                            .gid = 5};
    ck_assert(!log_set("log_warning", BOOL(0), NULL, BOOL(0), &answer).fault);
    VX_LOG(SETTINGS, VX_LOG_TEXT("what", "not shown"));
    VX_LOG(ACCESS, VX_LOG_TEXT("what", "shown"));
    ck_assert(!log_set("log_info", BOOL(0), "log_error", BOOL(0), &answer).fault);
    VX_LOG(ACCESS, VX_LOG_TEXT("what", "still_shown"));
    close(ends[1]);
    ssize_t got = read(ends[0], text, sizeof text - 1);
    ck_assert_int_gt(got, 0);
    text[got] = '\0';
    close(ends[0]);
    ck_assert_ptr_nonnull(strstr(text, _i ? "peer=unix connection=77 uid=1234"
                                          : "peer=local connection=77 uid=-1"));
    ck_assert_ptr_nonnull(strstr(text, "what=shown"));
    ck_assert_ptr_nonnull(strstr(text, "what=still_shown")); /* the operator's own line */
    ck_assert_ptr_null(strstr(text, "not shown"));
}
END_TEST

START_TEST(log_settings_that_are_refused_change_nothing)
{
    static const struct {
        const char *key;
        int kind; /* 0 bool, 1 number, 2 text */
        const char *text, *why;
    } cases[] = {
        {"log_file", 2, "/tmp/owned", "can not be updated through network protocol"},
        {"log_file", 0, "", "log_file: expected a string_param"},
        {"log_info", 2, "true", "log_info: expected a bool_param"},
        {"log_warning", 1, "", "log_warning: expected a bool_param"},
        {"log_error", 1, "", "log_error: expected a bool_param"},
        {"log_verbose_level", 0, "", "expected a uint32_param"},
        {"log_verbose_level", 2, "1", "expected a uint32_param"},
        {"log_format", 2, "json", "expected 'default' or 'ISO8601', got 'json'"},
        {"log_format", 1, "", "log_format: expected a string_param"},
        {"log_color", 0, "", "unknown log setting 'log_color'"},
        {"", 0, "", "unknown log setting ''"},
    };
    Inference__LogSettingsResponse *answer;
    for (size_t i = 0; i < VX_COUNT(cases); i++) {
        LogValue value = cases[i].kind == 0   ? BOOL(1)
                         : cases[i].kind == 1 ? NUMBER(1)
                                              : TEXT(cases[i].text);
        vx_status status = log_set("log_info", BOOL(0), cases[i].key, value, &answer);
        ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
        const char *text = vx_status_text(status, &why);
        ck_assert_msg(strstr(text, cases[i].why), "%s", text);
        log_is("log_file='' log_info=1 log_warning=1 log_error=1 log_verbose_level=0 "
               "log_format='default' ");
    }
    ck_assert_uint_eq(vx_log_count(VX_EVENT_SETTINGS), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("settings");
    TCase *tests = tcase_create("settings");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_sampled_parent_is_always_traced);
    tcase_add_test(tests, trace_settings_are_triton_s);
    tcase_add_test(tests, models_share_the_servers_count);
    tcase_add_test(tests, trace_settings_that_are_refused_change_nothing);
    tcase_add_test(tests, models_with_settings_are_bounded);
    tcase_add_test(tests, models_that_are_gone_leave_their_settings_to_others);
    tcase_add_test(tests, log_settings_change_the_log);
    tcase_add_loop_test(tests, the_setting_says_who_may_change_them, 0,
                        (int)VX_COUNT(changers));
    tcase_add_loop_test(tests, the_log_says_who_changed_them, 0, 2);
    tcase_add_test(tests, log_settings_that_are_refused_change_nothing);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
