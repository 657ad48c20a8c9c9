/* SPDX-License-Identifier: Apache-2.0 */
#include "server/control/control_private.h"

#include "server/models/models.h"

#include "open_inference.pb-c.h"

#include <stdio.h>
#include <string.h>

/* Every version in the listing, every model in it without a version, every model that
 * load_model names and the repository does not have, and every row of a version that is no
 * longer in it. */
#define INDEX_MAX (VX_LISTING_MAX + 2 * VX_REPOSITORY_ODDS_MAX + VX_INSTANCES_MAX)

struct index_entry {
    Inference__RepositoryIndexResponse__ModelIndex index;
    char version[VX_CONTROL_NUMBER_BYTES];
    char reason[VX_WHY_BYTES + 32];
};
/* Entries are taken from the arena one by one: INDEX_MAX of them are a megabyte, which
 * would have to be cleared. */
struct index_answer {
    Inference__RepositoryIndexResponse response;
    Inference__RepositoryIndexResponse__ModelIndex *list[INDEX_MAX];
};

/* What the index is made from. */
struct index_asked {
    struct vx_control_question *question;
    struct vx_registry *registry;
    const struct vx_repository_listing *listing; /* NULL: not known */
    struct vx_arena *scratch;
};

static const char *state_name(enum vx_instance_state state)
{
    static const char *const names[] = {
        [VX_INSTANCE_FREE] = "UNAVAILABLE",
        [VX_INSTANCE_LOADING] = "LOADING",
        [VX_INSTANCE_READY] = "READY",
        [VX_INSTANCE_UNLOADING] = "UNLOADING",
        [VX_INSTANCE_UNAVAILABLE] = "UNAVAILABLE",
    };
    return names[state];
}

/* Of several rows of one version, the one with the highest rank decides its state. */
static int state_rank(enum vx_instance_state state)
{
    static const int ranks[] = {
        [VX_INSTANCE_READY] = 4,       [VX_INSTANCE_LOADING] = 3,
        [VX_INSTANCE_UNAVAILABLE] = 2, [VX_INSTANCE_UNLOADING] = 1,
        [VX_INSTANCE_FREE] = 0,
    };
    return ranks[state];
}

static bool row_is(const struct vx_instance *row, const char *name, i64 version)
{
    return row->version == version && !strcmp(row->name, name);
}

/* The rows of one version: `best` tells its state, `beside` the state of a load of its
 * changed files. */
struct index_rows {
    const struct vx_instance *best, *beside;
};

static struct index_rows index_rows_of(struct vx_registry *registry, const char *name,
                                       i64 version)
{
    struct index_rows rows = {NULL, NULL};
    const struct vx_instance *row;
    i32 cursor = vx_registry_seek(registry, name, version);
    while ((row = vx_registry_next(registry, &cursor)) && row_is(row, name, version)) {
        if (!rows.best || state_rank(row->state) > state_rank(rows.best->state)) {
            rows.beside = rows.best;
            rows.best = row;
        } else if (!rows.beside ||
                   state_rank(row->state) > state_rank(rows.beside->state)) {
            rows.beside = row;
        }
    }
    return rows;
}

/* Whether it is a model without a version that nobody wants. */
static bool index_is_unwanted(const struct index_asked *asked, const char *name)
{
    i32 cursor = 0;
    for (const struct vx_repository_odd *odd;
         (odd = vx_repository_next_odd_model(asked->listing, &cursor));)
        if (!strcmp(odd->name, name)) return !odd->missed;
    return false;
}

static void index_reason(const struct index_asked *asked, const struct index_rows *rows,
                         const char *name, i64 version, struct index_entry *entry)
{
    const struct vx_instance *best = rows->best, *beside = rows->beside;
    struct vx_why absent = {""};
    bool is_absent = asked->listing &&
                     vx_repository_why_absent(asked->listing, name, version, &absent);
    entry->reason[0] = '\0';
    if (!best)
        snprintf(entry->reason, sizeof entry->reason, "%s%s",
                 !is_absent                       ? "unloaded"
                 : index_is_unwanted(asked, name) ? "unloaded: "
                                                  : "",
                 absent.text);
    else if (best->reason[0])
        snprintf(entry->reason, sizeof entry->reason, "%s", best->reason);
    else if (beside && beside->reason[0])
        snprintf(entry->reason, sizeof entry->reason, "changed files are %s: %s",
                 state_name(beside->state), beside->reason);
    else if (is_absent)
        snprintf(entry->reason, sizeof entry->reason, "changed files are %s",
                 absent.text);
    else if (asked->listing && best->state == VX_INSTANCE_READY)
        snprintf(entry->reason, sizeof entry->reason, "%s",
                 vx_repository_note(asked->listing, name));
}

/* Adds one version; 0 = a model without a version. */
static vx_status index_add(struct index_answer *answer, const struct index_asked *asked,
                           const char *name, i64 version)
{
    if (!vx_control_sees(asked->question, name)) return VX_OK;
    struct index_entry *entry = vx_arena_take(asked->scratch, sizeof *entry);
    VX_ENSURE(entry, RESOURCE_EXHAUSTED, "no room for the answer");
    struct index_rows rows = index_rows_of(asked->registry, name, version);
    index_reason(asked, &rows, name, version, entry);
    entry->version[0] = '\0';
    if (version)
        snprintf(entry->version, sizeof entry->version, "%lld", (long long)version);
    inference__repository_index_response__model_index__init(&entry->index);
    entry->index.name = (char *)(uintptr_t)name;
    entry->index.version = entry->version;
    entry->index.state =
        (char *)(uintptr_t)state_name(rows.best ? rows.best->state : VX_INSTANCE_FREE);
    entry->index.reason = entry->reason;
    answer->list[answer->response.n_models++] = &entry->index;
    return VX_OK;
}

static vx_status index_add_listing(struct index_answer *answer,
                                   const struct index_asked *asked)
{
    for (i32 e = 0; e < asked->listing->count; e++) {
        const struct vx_repository_entry *entry = &asked->listing->entries[e];
        /* A version with a row has been added already. */
        if (!index_rows_of(asked->registry, entry->name, entry->version).best)
            VX_TRY(index_add(answer, asked, entry->name, entry->version));
    }
    i32 cursor = 0;
    for (const struct vx_repository_odd *odd;
         (odd = vx_repository_next_odd_model(asked->listing, &cursor));)
        VX_TRY(index_add(answer, asked, odd->name, 0));
    return VX_OK;
}

/* A repository's name without a model's name is taken as the model's: KServe's SDK has
 * the model's name in that field of the message. */
static vx_status check_repository(const char *repository, const char *model,
                                  struct vx_why *why)
{
    VX_ENSURE_WHY(!*repository || !*model, why, UNIMPLEMENTED,
                  "there is one repository and it has no name",
                  "'repository_name' specification is not supported: there is one "
                  "repository, got '%.60s'",
                  repository);
    return VX_OK;
}

vx_status vx_control_repository_index(struct vx_control_question *question)
{
    const Inference__RepositoryIndexRequest *request = (const void *)question->request;
    VX_TRY(check_repository(request->repository_name, "any", question->why));
    struct index_answer *answer = vx_arena_take(question->scratch, sizeof *answer);
    VX_ENSURE(answer, RESOURCE_EXHAUSTED, "no room for the answer");
    inference__repository_index_response__init(&answer->response);
    answer->response.models = answer->list;
    const struct vx_front_view *view = question->view;
    const struct index_asked asked = {
        question, view->registry, view->models ? vx_models_listing(view->models) : NULL,
        question->scratch};
    const struct vx_instance *row, *last = NULL;
    for (i32 cursor = 0; (row = vx_registry_next(asked.registry, &cursor));) {
        if (request->ready && row->state != VX_INSTANCE_READY) continue;
        /* The rows are sorted: a reload follows the row of the same version. */
        if (!last || last->version != row->version || strcmp(last->name, row->name))
            VX_TRY(index_add(answer, &asked, row->name, row->version));
        last = row;
    }
    if (asked.listing && !request->ready) VX_TRY(index_add_listing(answer, &asked));
    question->answer = &answer->response.base;
    return VX_OK;
}

/* A model's configuration is in its files, and these come only from the repository. */
static vx_status check_load_parameter(const char *key, struct vx_why *why)
{
    bool known = !strcmp(key, "config") || !strncmp(key, "file:", 5);
    VX_ENSURE_WHY(!known, why, UNIMPLEMENTED, "a load request cannot contain files",
                  "the load parameter '%.60s' is not supported: put the model's files "
                  "into the repository, then load it",
                  key);
    VX_FAIL_WHY(why, INVALID_ARGUMENT, "a load request has an unknown parameter",
                "expected a load request without parameters, got '%.60s'", key);
}

vx_status vx_control_repository_load(struct vx_control_question *question)
{
    const Inference__RepositoryModelLoadRequest *request =
        (const void *)question->request;
    VX_TRY(
        check_repository(request->repository_name, request->model_name, question->why));
    for (size_t i = 0; i < request->n_parameters; i++)
        VX_TRY(check_load_parameter(request->parameters[i]->key, question->why));
    const char *model =
        *request->model_name ? request->model_name : request->repository_name;
    VX_TRY(vx_control_may(question, model));
    VX_ENSURE(question->view->models && question->waiter, UNAVAILABLE,
              "models cannot be loaded now");
    question->later = true;
    return vx_models_ask_load(question->view->models, model, question->waiter,
                              question->why);
}

vx_status vx_control_repository_unload(struct vx_control_question *question)
{
    const Inference__RepositoryModelUnloadRequest *request =
        (const void *)question->request;
    VX_TRY(
        check_repository(request->repository_name, request->model_name, question->why));
    /* Stock clients always send it.  No model depends on another here. */
    for (size_t i = 0; i < request->n_parameters; i++)
        VX_ENSURE_WHY(!strcmp(request->parameters[i]->key, "unload_dependents"),
                      question->why, INVALID_ARGUMENT,
                      "an unload request has an unknown parameter",
                      "expected no parameter but unload_dependents in an unload request, "
                      "got '%.60s'",
                      request->parameters[i]->key);
    const char *model =
        *request->model_name ? request->model_name : request->repository_name;
    VX_TRY(vx_control_may(question, model));
    VX_ENSURE(question->view->models && question->waiter, UNAVAILABLE,
              "models cannot be unloaded now");
    question->later = true;
    return vx_models_ask_unload(question->view->models, model, question->waiter,
                                question->why);
}
