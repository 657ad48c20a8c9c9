/* SPDX-License-Identifier: Apache-2.0 */
#include "server/models/models_private.h"

#include "engine/base/memory/access.h"
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"

#include <stdio.h>
#include <string.h>

vx_status vx_models_open(const struct vx_models_options *options,
                         struct vx_models **models)
{
    *models = vx_alloc_zero(sizeof **models);
    VX_ENSURE(*models, RESOURCE_EXHAUSTED, "no memory for the table of models");
    (*models)->options = *options;
    for (i32 w = 0; w < VX_WORKERS_MAX; w++) (*models)->reading[w] = -1;
    vx_registry_explain(options->registry, &(*models)->listing);
    return VX_OK;
}

void vx_models_close(struct vx_models **models)
{
    if (*models) vx_registry_explain((*models)->options.registry, NULL);
    vx_free(*models);
    *models = NULL;
}

const struct vx_repository_listing *vx_models_listing(const struct vx_models *models)
{
    return &models->listing;
}

const char *vx_models_problem(const struct vx_models *models)
{
    const char *problem = vx_repository_problem(&models->listing);
    bool note = models->listing.odds_count && models->listing.odds[0].note;
    if (problem[0] && !note) return problem;
    if (models->mode == VX_MODELS_EXPLICIT && !models->wishes_count)
        return "no model is loaded: with model_control explicit, load_model and "
               "RepositoryModelLoad choose the models";
    return problem;
}

static void models_log(enum vx_log_event event, const struct vx_instance *row)
{
    const struct vx_log_field fields[] = {
        VX_LOG_TEXT("model", row->name),
        VX_LOG_I64("version", row->version),
        VX_LOG_TEXT("why", row->reason),
    };
    vx_log_write(event, fields, row->reason[0] ? 3 : 2);
}

/* ------- instances and their states ------- */

/* Whether the server is not ready until a new load of the model serves: at its start, when
 * the model has served, and while nothing else serves.  A model that is new to a server
 * that serves takes nothing from anybody, and need not even be good: who may add one, or
 * load it, must not take all replicas from their balancer. */
static bool models_awaits(const struct vx_models *models, const char *name)
{
    bool serves = false;
    for (i32 i = 0; i < vx_models_end(models); i++) {
        const struct vx_instance *row = vx_models_row(models, i);
        if (row->state == VX_INSTANCE_FREE || row->state == VX_INSTANCE_UNLOADING)
            continue;
        if (row->awaited && !strcmp(row->name, name)) return true;
        serves |= row->state == VX_INSTANCE_READY;
    }
    if (vx_models_is_by_client(models, name)) return false;
    return !serves || !vx_registry_was_ready(models->options.registry);
}

/* False when no instance is free: the version waits for one. */
static bool models_load(struct vx_models *models, const struct vx_repository_entry *entry,
                        bool awaited)
{
    /* Before the new instance is added: it goes where the version that it replaces is. */
    u32 placed = vx_models_place(models, entry->name);
    i32 instance = vx_registry_add(models->options.registry, entry->name, entry->version,
                                   entry->fingerprint);
    if (instance < 0) return false;
    struct vx_instance *row = vx_models_row(models, instance);
    row->awaited = awaited;
    row->load_started_ns = vx_clock_ns();
    models->loads[instance] = (struct vx_model_load){
        .id = ++models->load_id,
        .placed = placed,
        .network = entry->network,
        .weights = entry->weights,
        .weights_bytes = entry->weights_bytes,
        .listed = true,
    };
    vx_models_say_waiting(models, instance);
    VX_LOG(MODEL_LOADING, VX_LOG_TEXT("model", row->name),
           VX_LOG_I64("version", row->version));
    vx_models_ask_workers(models, instance);
    return true;
}

void vx_models_retire(struct vx_models *models, i32 instance)
{
    struct vx_instance *row = vx_models_row(models, instance);
    row->state = VX_INSTANCE_UNLOADING;
    row->reason[0] = '\0';
}

void vx_models_fail(struct vx_models *models, i32 instance, const char *text)
{
    struct vx_instance *row = vx_models_row(models, instance);
    /* Several workers may have been loading it: the first failure gives the reason. */
    if (!models->loads[instance].failed) {
        snprintf(row->reason, sizeof row->reason, "%s", text);
        models_log(VX_EVENT_MODEL_FAILED, row);
        vx_access_hide(row->reason); /* clients get it, too */
    }
    models->loads[instance].failed = true;
    models->loads[instance].follows = false;
    models->loads[instance].stale_ns = 0;
    vx_models_take_back(models, instance);
    vx_models_release(models, instance);
    /* An instance that is being unloaded stays UNLOADING. */
    if (row->state != VX_INSTANCE_UNLOADING) row->state = VX_INSTANCE_UNAVAILABLE;
    vx_sched_drop_instance(models->options.sched, instance, models->options.on_lost,
                           models->options.context);
}

/* Whether `other` is an earlier load of the same version. */
static bool models_is_earlier(const struct vx_models *models, i32 other, i32 instance)
{
    const struct vx_instance *row = vx_models_row(models, instance),
                             *before = vx_models_row(models, other);
    return before->state != VX_INSTANCE_FREE && before->version == row->version &&
           !strcmp(before->name, row->name) &&
           models->loads[other].id < models->loads[instance].id;
}

bool vx_models_replaces(const struct vx_models *models, i32 instance)
{
    for (i32 i = 0; i < vx_models_end(models); i++)
        if (vx_models_row(models, i)->state == VX_INSTANCE_READY &&
            models_is_earlier(models, i, instance))
            return true;
    return false;
}

/* Every worker that it is placed on and that is up has it, or refused it: it becomes
 * READY, and the instance that it replaces is unloaded. */
static void models_publish(struct vx_models *models, i32 instance)
{
    struct vx_instance *row = vx_models_row(models, instance);
    row->state = VX_INSTANCE_READY;
    row->reason[0] = '\0';
    models->loads[instance].served = row->awaited = true;
    row->load_ns = vx_clock_ns() - row->load_started_ns;
    VX_LOG(MODEL_READY, VX_LOG_TEXT("model", row->name),
           VX_LOG_I64("version", row->version),
           VX_LOG_F64("seconds", (f64)row->load_ns / 1e9),
           VX_LOG_I64("weights_bytes", row->signature.weights_bytes),
           VX_LOG_I64("voxels_max", row->signature.voxels_max),
           VX_LOG_TEXT("bounded_by", vx_bound_name(row->signature.voxels_bound)));
    for (i32 i = 0; i < vx_models_end(models); i++)
        if (models_is_earlier(models, i, instance)) {
            models->loads[i].replaced = true;
            vx_models_retire(models, i);
        }
}

/* The end of a load that served; of one that was replaced the version serves on. */
static void models_log_end(const struct vx_models *models, i32 instance)
{
    const struct vx_instance *row = vx_models_row(models, instance);
    if (!models->loads[instance].served) return;
    if (!models->loads[instance].replaced)
        models_log(VX_EVENT_MODEL_UNLOADED, row);
    else
        VX_LOG(MODEL_UNLOADED, VX_LOG_TEXT("model", row->name),
               VX_LOG_I64("version", row->version), VX_LOG_I64("replaced", 1));
}

static void models_free(struct vx_models *models, i32 instance)
{
    vx_models_release(models, instance);
    models_log_end(models, instance);
    vx_models_row(models, instance)->state = VX_INSTANCE_FREE;
    models->loads[instance] = (struct vx_model_load){0};
    models->row_freed = true;
    vx_models_tell_most(models);
}

/* ------- from listing to instances ------- */

/* The newest instance of a listed entry that is not being unloaded, or -1. */
static i32 models_match(struct vx_models *models, const struct vx_repository_entry *entry)
{
    i32 newest = -1;
    for (i32 i = 0; i < vx_models_end(models); i++) {
        const struct vx_instance *row = vx_models_row(models, i);
        if (row->state == VX_INSTANCE_FREE || row->state == VX_INSTANCE_UNLOADING)
            continue;
        if (row->version != entry->version || strcmp(row->name, entry->name)) continue;
        /* Both the instance that serves and the one that will replace it stay. */
        models->loads[i].listed = true;
        if (newest < 0 || models->loads[i].id > models->loads[newest].id) newest = i;
    }
    return newest;
}

/* The instance of this model and version that serves, the newest or one that it replaces; or -1. */
static i32 models_serving(const struct vx_models *models,
                          const struct vx_repository_entry *entry)
{
    for (i32 i = 0; i < vx_models_end(models); i++) {
        const struct vx_instance *row = vx_models_row(models, i);
        if (row->state == VX_INSTANCE_READY && row->version == entry->version &&
            !strcmp(row->name, entry->name))
            return i;
    }
    return -1;
}

/* Whether the listed files may be loaded in place of those that serve.  A poll may come while they
 * are written, so two in a row must have seen the same ones; a person who asks says that they are
 * whole. */
static bool models_settled(const struct vx_models *models, i32 instance,
                           const struct vx_repository_entry *entry)
{
    bool polled = models->listing.quiet && models->mode == VX_MODELS_POLL;
    return !polled || models_serving(models, entry) < 0 ||
           models->loads[instance].changed == entry->fingerprint;
}

/* False when it needs an instance and none is free. */
static bool models_compare(struct vx_models *models,
                           const struct vx_repository_entry *entry)
{
    i32 instance = models_match(models, entry);
    const struct vx_instance *row = instance < 0 ? NULL : vx_models_row(models, instance);
    /* A failed load is tried again only when a person asks: its cause may be gone
     * although no file changed.  If each poll did so, a bad model would kill workers
     * again and again. */
    bool retry = !models->listing.quiet || vx_models_is_fresh_wish(models, entry->name);
    if (row && row->fingerprint == entry->fingerprint &&
        (row->state != VX_INSTANCE_UNAVAILABLE || !retry)) {
        if (retry) vx_models_retry_now(models, instance);
        models->loads[instance].changed = 0;
        return true;
    }
    if (row && !models_settled(models, instance, entry)) {
        models->loads[instance].changed = entry->fingerprint;
        return true;
    }
    bool awaited = models_awaits(models, entry->name);
    if (row && row->state != VX_INSTANCE_READY) vx_models_retire(models, instance);
    return models_load(models, entry, awaited);
}

bool vx_models_have(const struct vx_models *models, const char *name)
{
    for (i32 i = 0; i < vx_models_end(models); i++) {
        const struct vx_instance *row = vx_models_row(models, i);
        if (row->state != VX_INSTANCE_FREE && row->state != VX_INSTANCE_UNLOADING &&
            !strcmp(row->name, name))
            return true;
    }
    return false;
}

/* Whether this version serves and its network.json changed, but not its weights.  The newest
 * instance may be one that failed: the next network is still another than the one that serves. */
static bool models_network_changed(struct vx_models *models,
                                   const struct vx_repository_entry *entry)
{
    i32 newest = models_match(models, entry), serving = models_serving(models, entry);
    return serving >= 0 && models->loads[serving].network != entry->network &&
           models->loads[serving].weights == entry->weights &&
           models->loads[newest].network != entry->network && /* said already */
           models_settled(models, newest, entry);
}

/* Logs which versions change with a new network.json, for the model whose entries begin
 * at `from`; returns where the next model's begin.  A person who edits network.json for a
 * new version may not know that it changes the answers of all other versions. */
static i32 models_say_network(struct vx_models *models, i32 from)
{
    const struct vx_repository_listing *listing = &models->listing;
    const char *name = listing->entries[from].name;
    char versions[VX_WHY_BYTES] = "";
    size_t used = 0;
    i32 e = from;
    for (; e < listing->count && !strcmp(listing->entries[e].name, name); e++)
        if (used < sizeof versions &&
            models_network_changed(models, &listing->entries[e]))
            used += (size_t)snprintf(versions + used, sizeof versions - used, "%s%lld",
                                     used ? ", " : "",
                                     (long long)listing->entries[e].version);
    if (used)
        VX_LOG(MODEL_NETWORK, VX_LOG_TEXT("model", name),
               VX_LOG_TEXT("versions", versions),
               VX_LOG_TEXT("why",
                           "network.json changed, and all versions share it: these "
                           "versions are loaded again and may give different answers"));
    return e;
}

vx_status vx_models_say_full(const struct vx_models *models, const char *name,
                             struct vx_why *why)
{
    const struct vx_instance *bad = NULL;
    i32 count = 0;
    for (i32 i = vx_models_end(models) - 1; i >= 0; i--) {
        const struct vx_instance *row = vx_models_row(models, i);
        if (row->state != VX_INSTANCE_UNAVAILABLE) continue;
        bad = row;
        count++;
    }
    if (!bad)
        VX_FAIL_WHY(why, RESOURCE_EXHAUSTED, "as many versions as can be loaded",
                    "failed to load '%s', %d model versions are loaded: unload one", name,
                    VX_INSTANCES_MAX);
    const bool hides = vx_registry_hides_names(models->options.registry);
    VX_FAIL_WHY(
        why, RESOURCE_EXHAUSTED, "as many versions as can be loaded",
        "failed to load '%.60s', there is room for %d model versions, and %d that "
        "cannot be loaded take some of it: unload them%s%.60s%s",
        name, VX_INSTANCES_MAX, count, hides ? "" : ", first model '",
        hides ? "" : bad->name, hides ? "" : "'");
}

/* Counts the versions that found no free instance, and with `say` logs them in one line,
 * since there may be hundreds. */
static void models_count_missed(struct vx_models *models, bool say)
{
    struct vx_repository_listing *listing = &models->listing;
    const struct vx_repository_entry *first = NULL;
    const char *last = "";
    i32 versions = 0;
    listing->missed = 0;
    for (i32 e = 0; e < listing->count; e++) {
        const struct vx_repository_entry *entry = &listing->entries[e];
        if (!entry->no_row) continue;
        versions++;
        if (!first) first = entry;
        if (strcmp(entry->name, last) && !vx_models_have(models, entry->name))
            listing->missed++;
        last = entry->name;
    }
    if (say && first)
        VX_LOG(REPOSITORY, VX_LOG_I64("versions", versions),
               VX_LOG_TEXT("first_model", first->name),
               VX_LOG_I64("first_version", first->version),
               VX_LOG_I64("versions_max", VX_INSTANCES_MAX),
               VX_LOG_TEXT("why", VX_REPOSITORY_NO_ROW));
}

/* Logs which versions stay although they are not listed; by itself only what is new. */
static void models_say_kept(struct vx_models *models, i32 count, const char *kept,
                            bool say)
{
    if (count && (say || strcmp(kept, models->kept)))
        VX_LOG(REPOSITORY, VX_LOG_I64("not_unloaded", count), VX_LOG_TEXT("first", kept),
               VX_LOG_TEXT("why",
                           "these versions stay as they are: they were not found, and "
                           "may be in the part of the repository that could not "
                           "be read, or that is beyond its limit"));
    snprintf(models->kept, sizeof models->kept, "%s", kept);
}

/* Unloads what is not listed, unless it may be in a part that was not read. */
static void models_retire_gone(struct vx_models *models, bool say)
{
    char kept[sizeof models->kept] = "";
    size_t used = 0;
    i32 count = 0;
    for (i32 i = 0; i < vx_models_end(models); i++) {
        const struct vx_instance *row = vx_models_row(models, i);
        if (row->state == VX_INSTANCE_FREE || row->state == VX_INSTANCE_UNLOADING ||
            models->loads[i].listed)
            continue;
        if (!vx_repository_may_have(&models->listing, row->name, row->version)) {
            vx_models_retire(models, i);
            continue;
        }
        if (count++ < 4)
            used +=
                (size_t)snprintf(kept + used, sizeof kept - used, "%s%.40s version %lld",
                                 used ? ", " : "", row->name, (long long)row->version);
    }
    models_say_kept(models, count, kept, say);
}

/* Makes the instances follow the last listing. */
static void models_follow_listing(struct vx_models *models, bool say)
{
    struct vx_repository_listing *listing = &models->listing;
    models->short_of_rows = models->row_freed = false;
    for (i32 i = 0; i < vx_models_end(models); i++) models->loads[i].listed = false;
    for (i32 e = 0; e < listing->count;)
        if (vx_models_wants(models, listing->entries[e].name))
            e = models_say_network(models, e);
        else
            e++;
    for (i32 e = 0; e < listing->count; e++) {
        struct vx_repository_entry *entry = &listing->entries[e];
        if (!vx_models_wants(models, entry->name)) continue;
        entry->no_row = !models_compare(models, entry);
        if (!entry->no_row) continue;
        models->short_of_rows = true;
        vx_models_wanted_no_row(models, entry->name);
    }
    models_count_missed(models, say);
    models_retire_gone(models, say);
}

static bool listing_has_odd(const struct vx_repository_listing *listing,
                            const struct vx_repository_odd *odd)
{
    for (i32 i = 0; i < vx_repository_odds(listing); i++)
        if (!strcmp(listing->odds[i].why.text, odd->why.text)) return true;
    return false;
}

/* A poll logs a problem once, not every time. */
static void models_log_odds(const struct vx_models *models,
                            const struct vx_repository_listing *listing)
{
    for (i32 i = 0; i < vx_repository_odds(listing); i++) {
        const struct vx_repository_odd *odd = &listing->odds[i];
        if (!listing->quiet || !listing_has_odd(&models->listing, odd))
            VX_LOG(REPOSITORY, VX_LOG_TEXT("why", odd->why.text));
    }
    i32 unsaid = listing->odds_count - vx_repository_odds(listing);
    if (unsaid && (!listing->quiet || models->listing.odds_count != listing->odds_count))
        VX_LOG(REPOSITORY, VX_LOG_I64("more", unsaid),
               VX_LOG_TEXT("why", "the repository has more problems than are logged"));
}

/* The repository cannot be read: says so beside what is known of its models. */
static void models_add_odds(struct vx_repository_listing *known,
                            const struct vx_repository_listing *listing)
{
    i32 count = 0;
    for (i32 i = 0; i < vx_repository_odds(known); i++)
        if (known->odds[i].model) known->odds[count++] = known->odds[i];
    known->odds_count = count;
    for (i32 i = 0; i < vx_repository_odds(listing); i++)
        *vx_repository_add_odd(known, "") = listing->odds[i];
    vx_repository_sort_odds(known);
}

void vx_models_on_listing(struct vx_models *models,
                          const struct vx_repository_listing *listing)
{
    models_log_odds(models, listing);
    /* If the repository cannot be read, no model is unloaded. */
    if (listing->readable) {
        models->listing = *listing;
        vx_models_follow_files(models, true);
        vx_models_wanted_before(models);
        models_follow_listing(models, !listing->quiet);
    } else {
        models->listing.begun_ns = listing->begun_ns;
        models_add_odds(&models->listing, listing);
        vx_models_follow_files(models, false);
    }
    vx_models_wanted_after(models, listing->readable);
    vx_models_wanted_mark(models);
}

void vx_models_step(struct vx_models *models)
{
    for (i32 i = 0; i < vx_models_end(models); i++) {
        const struct vx_instance *row = vx_models_row(models, i);
        if (row->state == VX_INSTANCE_FREE) continue;
        bool jobs = vx_sched_instance_jobs(models->options.sched, i) > 0;
        if (row->state == VX_INSTANCE_UNLOADING && !jobs) vx_models_take_back(models, i);
        if (models->loads[i].asked) continue; /* a worker's LOADED is still to come */
        /* Jobs that ran when the load failed; they were queued again as a worker died. */
        if (row->state == VX_INSTANCE_UNAVAILABLE && jobs)
            vx_sched_drop_instance(models->options.sched, i, models->options.on_lost,
                                   models->options.context);
        if (row->state == VX_INSTANCE_LOADING && row->workers_loaded)
            models_publish(models, i);
        if (row->state == VX_INSTANCE_UNLOADING && !jobs) models_free(models, i);
    }
    if (models->short_of_rows && models->row_freed) {
        models->listing.quiet = true; /* it was followed before */
        models_follow_listing(models, false);
        vx_models_wanted_mark(models);
    }
    vx_models_retry_step(models);
    vx_models_wanted_step(models);
}
