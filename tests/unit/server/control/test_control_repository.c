/* The repository methods: what the index lists, and loads and unloads that are answered
 * later.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "proto/control.h"
#include "server/control/control.h"
#include "server/models/models.h"
#include "server/rpc/rpc.h"
#include "tests/support/arena_unpack.h"

#include "open_inference.pb-c.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES VX_CONTROL_SCRATCH_BYTES

static struct vx_registry *registry;
static struct vx_front_view view;
static struct vx_arena scratch;
static void *scratch_block;
static u8 answer_bytes[VX_ANSWER_BYTES_MAX];
static struct vx_why why;

/* Records what the models are asked for, in place of the real ones, which need
 * workers. */
static char asked[VX_NAME_BYTES + 8];
static vx_status asked_status;
static struct vx_repository_listing listing;

vx_status vx_models_ask_load(struct vx_models *models, const char *name, void *waiter,
                             struct vx_why *reason)
{
    (void)models;
    (void)reason;
    ck_assert_ptr_eq(waiter, &asked);
    snprintf(asked, sizeof asked, "load %.120s", name);
    return asked_status;
}

vx_status vx_models_ask_unload(struct vx_models *models, const char *name, void *waiter,
                               struct vx_why *reason)
{
    (void)models;
    (void)reason;
    ck_assert_ptr_eq(waiter, &asked);
    snprintf(asked, sizeof asked, "unload %.120s", name);
    return asked_status;
}

const struct vx_repository_listing *vx_models_listing(const struct vx_models *models)
{
    (void)models;
    return &listing;
}

static struct vx_instance *add_row(const char *name, i64 version,
                                   enum vx_instance_state state)
{
    struct vx_instance *row =
        vx_registry_row(registry, vx_registry_add(registry, name, version, 1));
    row->state = state;
    return row;
}

static struct vx_models *const some_models = (struct vx_models *)(void *)&listing;

static void setup(void)
{
    ck_assert_ptr_null(vx_registry_open(&registry).fault);
    scratch_block = malloc(ARENA_BYTES);
    vx_arena_init(&scratch, scratch_block, ARENA_BYTES);
    view = (struct vx_front_view){
        .registry = registry, .models = some_models, .ready = true};
    add_row("normals", 1, VX_INSTANCE_READY);
    add_row("normals", 2, VX_INSTANCE_READY);
    add_row("busy", 1, VX_INSTANCE_READY);
    add_row("loading", 3, VX_INSTANCE_LOADING);
    strcpy(add_row("broken", 1, VX_INSTANCE_UNAVAILABLE)->reason, "layer 3: no weights");
}

static void teardown(void)
{
    vx_arena_reset(&scratch);
    free(scratch_block);
    vx_registry_close(&registry);
}

static bool waits = true, later; /* the call can wait; its answer comes later */

/* Asks; `descriptor` is of the answer that comes at once. */
static enum vx_code ask(i32 method, const ProtobufCMessage *request,
                        const ProtobufCMessageDescriptor *descriptor, void *answer)
{
    u8 bytes[1024];
    ck_assert_uint_le(protobuf_c_message_get_packed_size(request), sizeof bytes);
    struct vx_span span = {bytes, protobuf_c_message_pack(request, bytes)};
    struct vx_control_answer out = {.scratch = &scratch,
                                    .bytes = answer_bytes,
                                    .capacity = sizeof answer_bytes,
                                    .waiter = waits ? &asked : NULL};
    why.text[0] = asked[0] = 0;
    vx_arena_reset(&scratch);
    vx_status status = vx_control_answer(&view, method, span, &out, &why);
    if (status.fault) return vx_status_code(status);
    later = out.later;
    if (later) return VX_CODE_OK;
    ProtobufCMessage *message =
        arena_unpack(descriptor, answer_bytes, out.length, &scratch);
    ck_assert_ptr_nonnull(message);
    memcpy(answer, &message, sizeof message);
    return VX_CODE_OK;
}

static Inference__RepositoryIndexResponse *index_of(bool ready)
{
    Inference__RepositoryIndexRequest request = INFERENCE__REPOSITORY_INDEX_REQUEST__INIT;
    Inference__RepositoryIndexResponse *response;
    request.ready = ready;
    ck_assert_int_eq(ask(VX_METHOD_ID_REPOSITORY_INDEX, &request.base,
                         &inference__repository_index_response__descriptor, &response),
                     VX_CODE_OK);
    return response;
}

START_TEST(repository_index_says_each_version_once_and_why)
{
    /* Changed files beside the versions that serve. */
    strcpy(add_row("normals", 2, VX_INSTANCE_LOADING)->reason, "3 of 12 layers");
    listing = (struct vx_repository_listing){
        .entries = {{.name = "busy", .version = 1, .no_row = true},
                    {.name = "normals", .version = 1},
                    {.name = "x", .version = 7},
                    {.name = "x", .version = 8, .no_row = true}}};
    static const struct {
        const char *name, *version, *state, *reason;
    } expected[] = {
        {"broken", "1", "UNAVAILABLE", "layer 3: no weights"},
        {"busy", "1", "READY", "changed files are " VX_REPOSITORY_NO_ROW},
        {"loading", "3", "LOADING", ""},
        {"normals", "1", "READY", ""},
        {"normals", "2", "READY", "changed files are LOADING: 3 of 12 layers"},
        {"x", "7", "UNAVAILABLE", "unloaded"},
        {"x", "8", "UNAVAILABLE", VX_REPOSITORY_NO_ROW},
        {"flat", "", "UNAVAILABLE", "no version"},
        {"idle", "", "UNAVAILABLE", "unloaded: no version"},
        {"hlf", "", "UNAVAILABLE", "not there"},
    };
    listing.count = 4;
    listing.odds[0] = (struct vx_repository_odd){.name = "docs", .why = {"no model"}};
    listing.odds[1] = (struct vx_repository_odd){
        .name = "flat", .model = true, .missed = true, .why = {"no version"}};
    listing.odds[2] =
        (struct vx_repository_odd){.name = "idle", .model = true, .why = {"no version"}};
    listing.odds_count = 3;
    listing.absent[0] = (struct vx_repository_odd){
        .name = "hlf", .model = true, .missed = true, .why = {"not there"}};
    listing.absent_count = 1;
    const Inference__RepositoryIndexResponse *response = index_of(false);
    ck_assert_uint_eq(response->n_models, VX_COUNT(expected));
    for (size_t i = 0; i < VX_COUNT(expected); i++) {
        ck_assert_str_eq(response->models[i]->name, expected[i].name);
        ck_assert_str_eq(response->models[i]->version, expected[i].version);
        ck_assert_str_eq(response->models[i]->state, expected[i].state);
        ck_assert_str_eq(response->models[i]->reason, expected[i].reason);
    }
    response = index_of(true);
    ck_assert_uint_eq(response->n_models, 3);
    ck_assert_str_eq(response->models[0]->name, "busy");
}
END_TEST

/* Load and unload: what the models are asked for, or the refusal. */
static const struct {
    bool unload;
    const char *repository, *model, *parameter;
    enum vx_code code;
    const char *text; /* what models was asked, or part of the sentence */
} loads[] = {
    {false, "", "m", NULL, VX_CODE_OK, "load m"},
    {false, "m", "", NULL, VX_CODE_OK, "load m"}, /* KServe's SDK */
    {false, "r", "m", NULL, VX_CODE_UNIMPLEMENTED, "'repository_name' specification"},
    {false, "", "m", "config", VX_CODE_UNIMPLEMENTED, "'config' is not supported"},
    {false, "", "m", "file:1/weights.safetensors", VX_CODE_UNIMPLEMENTED, "file:1/"},
    {false, "", "m", "x", VX_CODE_INVALID_ARGUMENT, "without parameters, got 'x'"},
    {true, "", "m", NULL, VX_CODE_OK, "unload m"},
    {true, "m", "", "unload_dependents", VX_CODE_OK, "unload m"},
    {true, "r", "m", NULL, VX_CODE_UNIMPLEMENTED, "'repository_name' specification"},
    {true, "", "m", "x", VX_CODE_INVALID_ARGUMENT, "no parameter but unload_dependents"},
};

START_TEST(loads_and_unloads_are_handed_on_and_answered_later)
{
    Inference__RepositoryModelLoadRequest load =
        INFERENCE__REPOSITORY_MODEL_LOAD_REQUEST__INIT;
    Inference__RepositoryModelUnloadRequest unload =
        INFERENCE__REPOSITORY_MODEL_UNLOAD_REQUEST__INIT;
    Inference__ModelRepositoryParameter value =
        INFERENCE__MODEL_REPOSITORY_PARAMETER__INIT;
    value.parameter_choice_case =
        INFERENCE__MODEL_REPOSITORY_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
    Inference__RepositoryModelLoadRequest__ParametersEntry load_entry =
        INFERENCE__REPOSITORY_MODEL_LOAD_REQUEST__PARAMETERS_ENTRY__INIT;
    Inference__RepositoryModelUnloadRequest__ParametersEntry unload_entry =
        INFERENCE__REPOSITORY_MODEL_UNLOAD_REQUEST__PARAMETERS_ENTRY__INIT;
    Inference__RepositoryModelLoadRequest__ParametersEntry *load_list = &load_entry;
    Inference__RepositoryModelUnloadRequest__ParametersEntry *unload_list = &unload_entry;
    load_entry.value = unload_entry.value = &value;
    load.parameters = &load_list;
    unload.parameters = &unload_list;
    load.n_parameters = unload.n_parameters = loads[_i].parameter != NULL;
    if (loads[_i].parameter)
        load_entry.key = unload_entry.key = (char *)(uintptr_t)loads[_i].parameter;
    load.repository_name = unload.repository_name =
        (char *)(uintptr_t)loads[_i].repository;
    load.model_name = unload.model_name = (char *)(uintptr_t)loads[_i].model;
    i32 method = loads[_i].unload ? VX_METHOD_ID_REPOSITORY_MODEL_UNLOAD
                                  : VX_METHOD_ID_REPOSITORY_MODEL_LOAD;
    const ProtobufCMessage *request = loads[_i].unload ? &unload.base : &load.base;
    later = false;
    ck_assert_int_eq(ask(method, request, NULL, NULL), loads[_i].code);
    ck_assert_int_eq(later, loads[_i].code == VX_CODE_OK);
    ck_assert_ptr_nonnull(strstr(later ? asked : why.text, loads[_i].text));
    if (!later) return;
    ck_assert_str_eq(asked, loads[_i].text);
    /* A refusal by the models is the answer; so is UNAVAILABLE when no more calls can
     * wait. */
    asked_status = vx_status_of_code(VX_CODE_UNAVAILABLE);
    ck_assert_int_eq(ask(method, request, NULL, NULL), VX_CODE_UNAVAILABLE);
    asked_status = VX_OK;
    waits = false;
    ck_assert_int_eq(ask(method, request, NULL, NULL), VX_CODE_UNAVAILABLE);
    ck_assert_str_eq(asked, "");
}
END_TEST

START_TEST(as_many_versions_as_there_can_be)
{
    listing = (struct vx_repository_listing){.count = VX_LISTING_MAX};
    for (i32 e = 0; e < VX_LISTING_MAX; e++) {
        memset(listing.entries[e].name, 'x', VX_NAME_BYTES - 1);
        listing.entries[e].version = INT32_MAX - e;
    }
    for (i32 i = 0; i < VX_INSTANCES_MAX - 5; i++)
        memset(add_row("full", i + 1, VX_INSTANCE_UNAVAILABLE)->reason, 'r',
               VX_WHY_BYTES - 1);
    listing.odds_count = VX_REPOSITORY_ODDS_MAX;
    for (i32 i = 0; i < VX_REPOSITORY_ODDS_MAX; i++) {
        listing.odds[i].model = true;
        memset(listing.odds[i].name, 'y', VX_NAME_BYTES - 1);
        memset(listing.odds[i].why.text, 'r', VX_WHY_BYTES - 1);
    }
    ck_assert_uint_eq(index_of(false)->n_models,
                      VX_LISTING_MAX + VX_REPOSITORY_ODDS_MAX + VX_INSTANCES_MAX);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("control repository");
    TCase *tests = tcase_create("repository");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, repository_index_says_each_version_once_and_why);
    tcase_add_loop_test(tests, loads_and_unloads_are_handed_on_and_answered_later, 0,
                        (int)VX_COUNT(loads));
    tcase_add_test(tests, as_many_versions_as_there_can_be);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
