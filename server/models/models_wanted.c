/* SPDX-License-Identifier: Apache-2.0 */
#include "server/models/models_private.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"

#include <string.h>

/* ------- wishes: the models that are wanted with model_control explicit ------- */

static i32 wish_find(const struct vx_models *models, const char *name)
{
    for (i32 i = 0; i < models->wishes_count; i++)
        if (!strcmp(models->wishes[i], name)) return i;
    return -1;
}

/* False when as many models are wanted as can be loaded. */
static bool wish_add(struct vx_models *models, const char *name)
{
    const i32 known = wish_find(models, name);
    if (known < 0 && models->wishes_count == VX_INSTANCES_MAX) return false;
    const i32 at = known < 0 ? models->wishes_count : known;
    models->wish_new[at] = true;
    models->wish_ns[at] = vx_clock_ns();
    if (known >= 0) return true;
    models->wish_named[at] = models->wish_start[at] = false;
    char *wish = models->wishes[models->wishes_count++];
    size_t length = strlen(name);
    VX_ASSERT(length < VX_NAME_BYTES);
    memcpy(wish, name, length + 1);
    return true;
}

static void wish_remove(struct vx_models *models, const char *name)
{
    i32 at = wish_find(models, name);
    if (at < 0) return;
    i32 last = --models->wishes_count;
    if (at != last) memcpy(models->wishes[at], models->wishes[last], VX_NAME_BYTES);
    models->wish_named[at] = models->wish_named[last];
    models->wish_start[at] = models->wish_start[last];
    models->wish_new[at] = models->wish_new[last];
    models->wish_ns[at] = models->wish_ns[last];
}

static bool listing_has(const struct vx_models *models, const char *name)
{
    return vx_repository_find(&models->listing, name, 0) != NULL;
}

bool vx_models_is_by_client(const struct vx_models *models, const char *name)
{
    const i32 at = models->mode == VX_MODELS_EXPLICIT ? wish_find(models, name) : -1;
    return at >= 0 && !models->wish_start[at];
}

bool vx_models_wants(const struct vx_models *models, const char *name)
{
    return models->mode != VX_MODELS_EXPLICIT || wish_find(models, name) >= 0;
}

/* ------- settings ------- */

/* The next name of a list like "a, b"; "" at its end, and where it has none. */
static vx_status name_take(const char **list, char name[VX_NAME_BYTES],
                           struct vx_why *why)
{
    *list += strspn(*list, " ,");
    size_t length = strcspn(*list, ","), shown = length;
    while (shown && (*list)[shown - 1] == ' ') shown--;
    VX_ENSURE_WHY(shown < VX_NAME_BYTES, why, INVALID_ARGUMENT,
                  "load_model has a name that is too long",
                  "load_model: expected names of at most %d bytes, got '%.60s...'",
                  VX_NAME_BYTES - 1, *list);
    memcpy(name, *list, shown);
    name[shown] = '\0';
    *list += length;
    return VX_OK;
}

/* `list` is "a, b" or "*". */
static vx_status start_wishes(struct vx_models *models, const char *list,
                              struct vx_why *why)
{
    while (*list) {
        char name[VX_NAME_BYTES];
        VX_TRY(name_take(&list, name, why));
        if (!strcmp(name, "*")) models->wish_all = true;
        if (!name[0] || !strcmp(name, "*")) continue;
        VX_ENSURE_WHY(wish_add(models, name), why, INVALID_ARGUMENT,
                      "load_model has too many names",
                      "load_model: expected at most %d models", VX_INSTANCES_MAX);
        const i32 at = wish_find(models, name);
        models->wish_named[at] = models->wish_start[at] = true;
    }
    return VX_OK;
}

static vx_status expect_explicit(const struct vx_config *config, struct vx_why *why)
{
    VX_ENSURE_WHY(!strcmp(config->model_control, "explicit") || !config->load_model[0],
                  why, INVALID_ARGUMENT, "load_model needs model_control explicit",
                  "--load-model needs --model-control explicit, got %s",
                  config->model_control);
    return VX_OK;
}

vx_status vx_models_expect(const struct vx_config *config,
                           const struct vx_placement_devices *devices, struct vx_why *why)
{
    char name[VX_NAME_BYTES];
    struct vx_placement *placement = vx_alloc(sizeof *placement);
    VX_ENSURE(placement, RESOURCE_EXHAUSTED, "no memory for the rules of placement");
    vx_status status = vx_placement_parse(config->placement, devices, why, placement);
    if (!status.fault) status = vx_placement_check(placement, devices, why);
    vx_free(placement);
    VX_TRY(status);
    VX_TRY(expect_explicit(config, why));
    for (const char *list = config->load_model; *list;)
        VX_TRY(name_take(&list, name, why));
    return VX_OK;
}

vx_status vx_models_start(struct vx_models *models, struct vx_why *why)
{
    const struct vx_config *config = models->options.config;
    struct vx_placement_devices devices = {
        .count = vx_workers_count(*models->options.workers)};
    for (i32 w = 0; w < devices.count; w++)
        devices.names[w] = vx_workers_info(*models->options.workers, w)->device;
    VX_TRY(vx_placement_parse(config->placement, &devices, why, &models->placement));
    models->batching_off = !strcmp(config->batching, "off");
    models->polled_ns = vx_clock_ns();
    if (!strcmp(config->model_control, "poll")) models->mode = VX_MODELS_POLL;
    if (!strcmp(config->model_control, "explicit")) models->mode = VX_MODELS_EXPLICIT;
    VX_TRY(expect_explicit(config, why));
    return start_wishes(models, config->load_model, why);
}

/* ------- waiters ------- */

static void waiter_end(struct vx_models *models, struct vx_models_waiter *waiter,
                       vx_status status, const struct vx_why *why)
{
    void *who = waiter->waiter;
    *waiter = (struct vx_models_waiter){0};
    models->options.on_ended(models->options.context, who, status, why);
}

static vx_status waiter_add(struct vx_models *models, const char *name, void *who,
                            struct vx_why *why, struct vx_models_waiter **added)
{
    for (i32 i = 0; i < VX_MODELS_WAITERS_MAX; i++) {
        struct vx_models_waiter *waiter = &models->waiters[i];
        if (waiter->waiter) continue;
        *waiter = (struct vx_models_waiter){
            .waiter = who, .asked_ns = vx_clock_ns(), .load_id = models->load_id};
        memcpy(waiter->name, name, strlen(name) + 1);
        *added = waiter;
        return VX_OK;
    }
    VX_FAIL_WHY(why, RESOURCE_EXHAUSTED, "too many loads at once",
                "expected at most %d loads and unloads at once", VX_MODELS_WAITERS_MAX);
}

static vx_status ask_check(const struct vx_models *models, const char *name,
                           struct vx_why *why)
{
    VX_ENSURE(!models->stopped, UNAVAILABLE,
              "GRPC server is shutting down and has stopped accepting new requests");
    VX_ENSURE(models->mode != VX_MODELS_POLL, UNAVAILABLE,
              "explicit model load / unload is not allowed if polling is enabled");
    VX_ENSURE(models->mode == VX_MODELS_EXPLICIT && models->options.look &&
                  models->options.on_ended,
              UNAVAILABLE,
              "explicit model load / unload is not allowed: the server was started "
              "without --model-control explicit; change the repository and send SIGHUP");
    VX_ENSURE_WHY(name[0] && strlen(name) < VX_NAME_BYTES, why, INVALID_ARGUMENT,
                  "a model's name is empty or too long",
                  "expected a model's name of 1 to %d bytes, got '%.60s'",
                  VX_NAME_BYTES - 1, name);
    return VX_OK;
}

vx_status vx_models_ask_load(struct vx_models *models, const char *name, void *waiter,
                             struct vx_why *why)
{
    VX_TRY(ask_check(models, name, why));
    struct vx_models_waiter *added;
    VX_TRY(waiter_add(models, name, waiter, why, &added));
    if (!wish_add(models, name)) {
        *added = (struct vx_models_waiter){0};
        VX_FAIL_WHY(why, RESOURCE_EXHAUSTED, "as many models as can be loaded",
                    "failed to load '%s', %d models are wanted already: unload one", name,
                    VX_INSTANCES_MAX);
    }
    added->load = true;
    models->options.look(models->options.context);
    return VX_OK;
}

vx_status vx_models_ask_unload(struct vx_models *models, const char *name, void *waiter,
                               struct vx_why *why)
{
    VX_TRY(ask_check(models, name, why));
    struct vx_models_waiter *added;
    i32 instance;
    /* A known model that is not loaded counts as unloaded; an unknown one is an error. */
    if (wish_find(models, name) < 0 && !listing_has(models, name))
        VX_TRY(vx_registry_find(models->options.registry, name, 0, why, &instance));
    VX_TRY(waiter_add(models, name, waiter, why, &added));
    wish_remove(models, name);
    for (i32 i = 0; i < vx_models_end(models); i++) {
        const struct vx_instance *row = vx_models_row(models, i);
        bool there =
            row->state != VX_INSTANCE_FREE && row->state != VX_INSTANCE_UNLOADING;
        if (there && !strcmp(row->name, name)) vx_models_retire(models, i);
    }
    vx_models_wanted_mark(models); /* the model is not missed any more */
    return VX_OK;
}

bool vx_models_forget(struct vx_models *models, const void *waiter)
{
    for (i32 i = 0; i < VX_MODELS_WAITERS_MAX; i++) {
        if (models->waiters[i].waiter != waiter) continue;
        models->waiters[i] = (struct vx_models_waiter){0};
        return true;
    }
    return false;
}

static vx_status waiter_stopped(void)
{
    VX_FAIL(UNAVAILABLE, "GRPC server is shutting down and has stopped accepting new "
                         "requests");
}

void vx_models_stop(struct vx_models *models)
{
    models->stopped = true;
    for (i32 i = 0; i < VX_MODELS_WAITERS_MAX; i++)
        if (models->waiters[i].waiter)
            waiter_end(models, &models->waiters[i], waiter_stopped(), NULL);
}

bool vx_models_is_fresh_wish(const struct vx_models *models, const char *name)
{
    for (i32 i = 0; i < VX_MODELS_WAITERS_MAX; i++) {
        const struct vx_models_waiter *waiter = &models->waiters[i];
        if (waiter->waiter && waiter->load && !waiter->listed &&
            waiter->asked_ns <= models->listing.begun_ns && !strcmp(waiter->name, name))
            return true;
    }
    return false;
}

/* ------- around a listing ------- */

#define WHY_NOT_THERE " and is not in the repository"

/* Logs the models that should be loaded, or are placed, and that the repository does not
 * have; a placed one is also noted, since its rule may be misspelt. */
static void wanted_say_missing(struct vx_models *models)
{
    const bool logs = !models->listing.quiet;
    for (i32 i = 0; i < models->wishes_count; i++)
        if (logs && !listing_has(models, models->wishes[i]))
            VX_LOG(REPOSITORY, VX_LOG_TEXT("model", models->wishes[i]),
                   VX_LOG_TEXT("why", models->wish_named[i]
                                          ? "it is named by load_model" WHY_NOT_THERE
                                          : "a client loaded it" WHY_NOT_THERE));
    for (i32 i = 0; i < models->placement.rules_count; i++) {
        const char *name = models->placement.rules[i].model;
        if (!strcmp(name, "*") || listing_has(models, name)) continue;
        if (logs)
            VX_LOG(REPOSITORY, VX_LOG_TEXT("model", name),
                   VX_LOG_TEXT("why", "it is named by placement" WHY_NOT_THERE));
        if (models->listing.odds_count >= VX_REPOSITORY_ODDS_MAX) continue;
        struct vx_repository_odd *odd = vx_repository_add_odd(&models->listing, name);
        odd->note = true;
        vx_why_set(&odd->why, "'%.60s' is named by placement" WHY_NOT_THERE, name);
    }
}

/* ------- what the server is not ready for ------- */

/* A directory without a version is missed when its model is wanted.  When the model
 * serves nevertheless, or will, the directory is only noted. */
static void mark_odds(struct vx_models *models)
{
    struct vx_repository_listing *listing = &models->listing;
    listing->odds_missed = 0;
    for (i32 i = 0; i < vx_repository_odds(listing); i++) {
        struct vx_repository_odd *odd = &listing->odds[i];
        if (odd->model && vx_models_have(models, odd->name)) {
            odd->note = true;
            odd->model = false;
        }
        odd->missed = odd->model && vx_models_wants(models, odd->name);
        listing->odds_missed += odd->missed;
    }
    vx_repository_sort_odds(listing);
}

/* The directory of that name in `odds`; NULL = there is none. */
static const struct vx_repository_odd *
odd_find(const struct vx_repository_listing *listing, const char *name)
{
    for (i32 i = 0; i < vx_repository_odds(listing); i++)
        if (!strcmp(listing->odds[i].name, name)) return &listing->odds[i];
    return NULL;
}

/* Adds a model that load_model names, unless the repository has it.  A placement rule is
 * no wish: it may be for a model that comes later, or has gone. */
static void mark_absent(struct vx_models *models, const char *name)
{
    struct vx_repository_listing *listing = &models->listing;
    const struct vx_repository_odd *odd = odd_find(listing, name);
    if (listing_has(models, name) || vx_models_have(models, name)) return;
    if (odd && odd->model) return; /* it counts already */
    for (i32 i = 0; i < listing->absent_count && i < VX_REPOSITORY_ODDS_MAX; i++)
        if (!strcmp(listing->absent[i].name, name)) return;
    if (listing->absent_count++ >= VX_REPOSITORY_ODDS_MAX) return;
    struct vx_repository_odd *absent = &listing->absent[listing->absent_count - 1];
    *absent = (struct vx_repository_odd){.model = true, .missed = true};
    memcpy(absent->name, name, strlen(name) + 1);
    if (odd)
        absent->why = odd->why; /* an empty directory */
    else if (listing->count == VX_LISTING_MAX)
        vx_why_set(&absent->why,
                   "it is named by load_model and is not among the first %d model "
                   "versions of the repository",
                   VX_LISTING_MAX);
    else
        vx_why_set(&absent->why, "it is named by load_model" WHY_NOT_THERE);
}

void vx_models_wanted_mark(struct vx_models *models)
{
    struct vx_repository_listing *listing = &models->listing;
    for (i32 e = 0; e < listing->count; e++)
        listing->entries[e].unwanted = !vx_models_wants(models, listing->entries[e].name);
    mark_odds(models);
    listing->absent_count = 0;
    if (!listing->readable) return; /* nothing was read so far */
    for (i32 i = 0; i < models->wishes_count; i++)
        if (models->wish_named[i]) mark_absent(models, models->wishes[i]);
}

void vx_models_wanted_before(struct vx_models *models)
{
    wanted_say_missing(models);
    if (!models->wish_all) return;
    for (i32 e = 0; e < models->listing.count; e++) {
        struct vx_repository_entry *entry = &models->listing.entries[e];
        if (wish_add(models, entry->name))
            models->wish_start[wish_find(models, entry->name)] = true;
        else
            entry->no_row = true; /* too many models are wanted */
    }
    for (i32 i = 0; i < vx_repository_odds(&models->listing); i++)
        if (models->listing.odds[i].model)
            (void)wish_add(models, models->listing.odds[i].name);
    models->wish_all = !vx_repository_is_whole(&models->listing);
}

void vx_models_wanted_no_row(struct vx_models *models, const char *name)
{
    for (i32 i = 0; i < VX_MODELS_WAITERS_MAX; i++)
        if (models->waiters[i].waiter && !strcmp(models->waiters[i].name, name))
            models->waiters[i].no_row = true;
}

/* As Triton says it, without the repository's path, which the log has. */
static vx_status waiter_not_there(const struct vx_repository_listing *listing,
                                  const char *name, bool readable, struct vx_why *why)
{
    if (readable && listing->cut)
        VX_FAIL_WHY(why, NOT_FOUND, "the repository has too many models",
                    "failed to load '%.60s', failed to poll from model repository: it is "
                    "not among the first %d model versions by name, and no more are read",
                    name, VX_LISTING_MAX);
    VX_FAIL_WHY(why, NOT_FOUND, "the repository has no such model",
                "failed to load '%.60s', failed to poll from model repository: %s", name,
                readable ? "it has no model of that name with a version"
                         : "it cannot be read");
}

/* Takes back what was asked for and is not there, also where who asked has left: 512 wishes of
 * calls that had been cancelled were all that there may be.  What load_model names stays, and a
 * model that has gone since it was asked for. */
static void wishes_review(struct vx_models *models)
{
    for (i32 i = models->wishes_count - 1; i >= 0; i--) {
        if (!models->wish_new[i] || models->wish_ns[i] > models->listing.begun_ns)
            continue;
        /* One that serves stays wanted while its folder cannot be read. */
        const bool there = listing_has(models, models->wishes[i]) ||
                           vx_models_have(models, models->wishes[i]);
        models->wish_new[i] = false;
        if (!there && !models->wish_named[i]) wish_remove(models, models->wishes[i]);
    }
}

void vx_models_wanted_after(struct vx_models *models, bool readable)
{
    for (i32 i = 0; i < VX_MODELS_WAITERS_MAX; i++) {
        struct vx_models_waiter *waiter = &models->waiters[i];
        if (!waiter->waiter || !waiter->load || waiter->listed) continue;
        if (waiter->asked_ns > models->listing.begun_ns) continue; /* wait for the next */
        waiter->listed = true;
        if (readable && listing_has(models, waiter->name)) continue;
        struct vx_why why = {""};
        vx_status status =
            waiter_not_there(&models->listing, waiter->name, readable, &why);
        waiter_end(models, waiter, status, &why);
    }
    if (readable) wishes_review(models);
}

/* ------- step ------- */

static vx_status load_ended(const struct vx_models *models,
                            const struct vx_models_waiter *waiter, struct vx_why *why,
                            bool *ended)
{
    bool serves = false;
    const struct vx_instance *failed = NULL, *dies = NULL;
    for (i32 i = 0; i < vx_models_end(models); i++) {
        const struct vx_instance *row = vx_models_row(models, i);
        if (row->state == VX_INSTANCE_FREE || strcmp(row->name, waiter->name)) continue;
        if (row->state == VX_INSTANCE_LOADING) {
            if (models->loads[i].failures < VX_LOAD_FAILURES_MAX) return VX_OK;
            dies = row;
            continue;
        }
        if (models->loads[i].stale_ns || models->loads[i].follows) return VX_OK;
        if (row->state == VX_INSTANCE_READY) serves = true;
        if (row->state == VX_INSTANCE_UNAVAILABLE) failed = row;
    }
    *ended = true;
    if (failed)
        VX_FAIL_WHY(
            why, INVALID_ARGUMENT, "a model could not be loaded",
            "load failed for model '%.60s': version %lld is at UNAVAILABLE state: "
            "%s",
            waiter->name, (long long)failed->version, failed->reason);
    if (dies)
        VX_FAIL_WHY(why, UNAVAILABLE, "workers die while they load a model",
                    "load failed for model '%.60s': version %lld is at LOADING state: %s",
                    waiter->name, (long long)dies->version, dies->reason);
    if (waiter->no_row && models->short_of_rows)
        return vx_models_say_full(models, waiter->name, why);
    VX_ENSURE_WHY(serves, why, UNAVAILABLE,
                  "the model was unloaded while it was being loaded",
                  "failed to load '%s', no version is available", waiter->name);
    return VX_OK;
}

static bool unload_ended(const struct vx_models *models,
                         const struct vx_models_waiter *waiter)
{
    for (i32 i = 0; i < vx_models_end(models); i++) {
        const struct vx_instance *row = vx_models_row(models, i);
        if (row->state != VX_INSTANCE_FREE && models->loads[i].id <= waiter->load_id &&
            !strcmp(row->name, waiter->name))
            return false;
    }
    return true;
}

void vx_models_wanted_step(struct vx_models *models)
{
    for (i32 i = 0; i < VX_MODELS_WAITERS_MAX; i++) {
        struct vx_models_waiter *waiter = &models->waiters[i];
        struct vx_why why = {""};
        bool ended = false;
        vx_status status = VX_OK;
        if (!waiter->waiter) continue;
        if (!waiter->load)
            ended = unload_ended(models, waiter);
        else if (waiter->listed)
            status = load_ended(models, waiter, &why, &ended);
        if (ended) waiter_end(models, waiter, status, &why);
    }
    if (models->mode != VX_MODELS_POLL || models->stopped || !models->options.look)
        return;
    i64 now = vx_clock_ns();
    if (now - models->polled_ns <
        models->options.config->repository_poll_ms * VX_NS_PER_MS)
        return;
    models->polled_ns = now;
    models->options.look(models->options.context);
}
