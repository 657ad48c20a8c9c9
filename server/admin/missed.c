/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/admin/missed.h"

#include "engine/base/utf8.h"

#include <stdio.h>
#include <string.h>

void vx_missed_model(const struct vx_instance *model, char why[VX_MISSED_WHY_BYTES])
{
    const char *dash = model->reason[0] ? ": " : "";
    why[0] = '\0';
    switch (model->state) {
    case VX_INSTANCE_READY:
        if (!model->workers_loaded)
            snprintf(why, VX_MISSED_WHY_BYTES, "model '%s' version %lld %s%s",
                     model->name, (long long)model->version,
                     model->reason[0] ? "is " : "waits until a worker is up",
                     model->reason);
        break;
    case VX_INSTANCE_LOADING:
        snprintf(why, VX_MISSED_WHY_BYTES, "model '%s' version %lld is loading%s%s",
                 model->name, (long long)model->version, dash, model->reason);
        break;
    case VX_INSTANCE_UNAVAILABLE:
        snprintf(why, VX_MISSED_WHY_BYTES, "model '%s' version %lld cannot be served%s%s",
                 model->name, (long long)model->version, dash, model->reason);
        break;
    case VX_INSTANCE_UNLOADING:
        snprintf(why, VX_MISSED_WHY_BYTES, "model '%s' version %lld is being unloaded",
                 model->name, (long long)model->version);
        break;
    case VX_INSTANCE_FREE: break;
    }
}

/* ------- the three kinds ------- */

/* True if this version is READY but on no worker, or if it is loading or unavailable and
 * no other version of its name serves. */
static bool row_is_missed(const struct vx_metrics_sources *s,
                          const struct vx_instance *model)
{
    if (model->state == VX_INSTANCE_UNLOADING || vx_instance_serves(model)) return false;
    i32 other = -1;
    return model->state == VX_INSTANCE_READY ||
           vx_registry_pick(s->registry, model->name, 0, NULL, &other).fault;
}

static void row_say(const struct vx_instance *model, struct vx_missed *missed)
{
    missed->name = model->name;
    missed->version = model->version;
    missed->awaited = model->awaited;
    missed->failed = model->state == VX_INSTANCE_UNAVAILABLE;
    vx_missed_model(model, missed->why);
}

static bool row_next(const struct vx_metrics_sources *s, struct vx_missed *missed)
{
    const struct vx_instance *model;
    while ((model = vx_registry_next(s->registry, &missed->cursor))) {
        if (!row_is_missed(s, model)) continue;
        row_say(model, missed);
        return true;
    }
    return false;
}

bool vx_missed_next_update(const struct vx_metrics_sources *s, struct vx_missed *missed)
{
    const struct vx_instance *model;
    while ((model = vx_registry_next(s->registry, &missed->cursor))) {
        bool loads = model->state == VX_INSTANCE_LOADING;
        i32 other = -1;
        if (!loads && model->state != VX_INSTANCE_UNAVAILABLE) continue;
        if (row_is_missed(s, model)) continue; /* no other version serves either */
        row_say(model, missed);
        if (vx_registry_pick(s->registry, model->name, model->version, NULL, &other)
                .fault ||
            !vx_instance_serves(vx_registry_row(s->registry, other)))
            return true;
        snprintf(missed->why, sizeof missed->why,
                 "model '%s' version %lld serves its earlier files: those that changed "
                 "%s%s%s",
                 model->name, (long long)model->version,
                 loads ? "are loading" : "cannot be loaded", model->reason[0] ? ": " : "",
                 model->reason);
        return true;
    }
    return false;
}

/* The next model in the repository without any row in the registry; NULL at the end. */
static const struct vx_repository_entry *
entry_after(const struct vx_metrics_sources *s, const struct vx_repository_entry *last)
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

static bool entry_next(const struct vx_metrics_sources *s, struct vx_missed *missed)
{
    const struct vx_repository_entry *entry = entry_after(s, missed->entry);
    missed->entry = entry;
    if (!entry) return false;
    missed->name = entry->name;
    missed->version = entry->version;
    missed->awaited = true;
    vx_utf8_print(missed->why, sizeof missed->why, "model '%s' version %lld is %s",
                  entry->name, (long long)entry->version, VX_REPOSITORY_NO_ROW);
    return true;
}

static bool odd_next(const struct vx_metrics_sources *s, struct vx_missed *missed)
{
    const struct vx_repository_listing *listing = vx_registry_listing(s->registry);
    const struct vx_repository_odd *odd = NULL;
    while (listing && (odd = vx_repository_next_odd_model(listing, &missed->cursor)) &&
           !odd->missed) {
    }
    if (!odd) return false;
    missed->name = odd->name;
    missed->version = 0;
    missed->awaited = true;
    snprintf(missed->why, sizeof missed->why, "model '%s' cannot be served: %s",
             odd->name, odd->why.text);
    return true;
}

bool vx_missed_next(const struct vx_metrics_sources *sources, struct vx_missed *missed)
{
    if (missed->kind == VX_MISSED_ROW) {
        if (row_next(sources, missed)) return true;
        missed->kind = VX_MISSED_ENTRY;
    }
    if (missed->kind == VX_MISSED_ENTRY) {
        if (entry_next(sources, missed)) return true;
        missed->kind = VX_MISSED_ODD;
        missed->cursor = 0;
    }
    return odd_next(sources, missed);
}

/* ------- the server ------- */

static void no_worker_why(const struct vx_worker_view *first,
                          char why[VX_MISSED_WHY_BYTES])
{
    bool said = first->problem && first->problem[0];
    snprintf(why, VX_MISSED_WHY_BYTES,
             "no worker has its device open: worker 0 (%.64s) is %s%s%s", first->device,
             first->state, said ? ": " : "", said ? first->problem : "");
}

void vx_missed_server(const struct vx_metrics_sources *s, char why[VX_MISSED_WHY_BYTES])
{
    why[0] = '\0';
    if (s->ready) return;
    bool any_up = false;
    for (i32 w = 0; w < s->workers_count; w++) any_up |= s->workers[w].up;
    if (!any_up && s->workers_count > 0) {
        no_worker_why(&s->workers[0], why);
        return;
    }
    struct vx_missed missed = {.kind = VX_MISSED_ROW};
    while (vx_missed_next(s, &missed)) {
        if (!missed.awaited) continue;
        memcpy(why, missed.why, sizeof missed.why);
        return;
    }
    i32 cursor = 0;
    bool said = !vx_registry_next(s->registry, &cursor) && s->problem && s->problem[0];
    snprintf(why, VX_MISSED_WHY_BYTES, "%s",
             said ? s->problem : "the server is starting or stopping");
}

void vx_missed_note(const struct vx_metrics_sources *s, char note[VX_MISSED_WHY_BYTES])
{
    struct vx_missed missed = {.kind = VX_MISSED_ROW};
    note[0] = '\0';
    if (!s->ready) return;
    if (s->problem && s->problem[0])
        snprintf(note, VX_MISSED_WHY_BYTES, "%s", s->problem);
    else if (vx_missed_next(s, &missed))
        memcpy(note, missed.why, sizeof missed.why);
    if (note[0]) return;
    missed = (struct vx_missed){.kind = VX_MISSED_ROW};
    while (vx_missed_next_update(s, &missed)) {
        if (!missed.failed) continue;
        memcpy(note, missed.why, sizeof missed.why);
        return;
    }
}
