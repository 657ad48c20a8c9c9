/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "server/models/models_private.h"

/* The instance is loaded from the listed files from now on.  It keeps its id, so that what is
 * to replace it still does, and its place in the order of asking: requests wait for it. */
static void follow_entry(struct vx_models *models, i32 instance,
                         const struct vx_repository_entry *entry)
{
    struct vx_instance *row = vx_models_row(models, instance);
    struct vx_model_load *load = &models->loads[instance];
    row->fingerprint = entry->fingerprint;
    load->network = entry->network;
    load->weights = entry->weights;
    load->weights_bytes = entry->weights_bytes;
    load->changed = 0;
    load->refused = load->retry = 0;
    load->notes_by = 0;
    load->stale_ns = 0;
    load->follows = true;
    VX_LOG(MODEL_FOLLOWS, VX_LOG_TEXT("model", row->name),
           VX_LOG_I64("version", row->version),
           VX_LOG_TEXT("why", "no worker has the files that it was loaded from, and they "
                              "changed on disk: those that are there are loaded"));
    vx_models_ask_workers(models, instance);
}

bool vx_models_on_stale(struct vx_models *models, i32 instance)
{
    const struct vx_instance *row = vx_models_row(models, instance);
    struct vx_model_load *load = &models->loads[instance];
    if (row->workers_loaded || load->asked || !models->options.look) return false;
    if (row->state != VX_INSTANCE_READY && row->state != VX_INSTANCE_UNLOADING)
        return false; /* nothing waits for it */
    const struct vx_repository_entry *entry =
        vx_repository_find(&models->listing, row->name, row->version);
    if (entry && entry->fingerprint != row->fingerprint) {
        follow_entry(models, instance, entry); /* a listing has seen the change */
        return true;
    }
    load->stale_ns = vx_clock_ns();
    models->options.look(models->options.context);
    return true;
}

void vx_models_follow_files(struct vx_models *models, bool readable)
{
    for (i32 i = 0; i < vx_models_end(models); i++) {
        const struct vx_model_load *load = &models->loads[i];
        const struct vx_instance *row = vx_models_row(models, i);
        if (!load->stale_ns || load->asked) continue; /* a worker's answer decides */
        if (load->stale_ns > models->listing.begun_ns) continue; /* wait for the next */
        const struct vx_repository_entry *entry =
            readable ? vx_repository_find(&models->listing, row->name, row->version)
                     : NULL;
        if (entry && entry->fingerprint != row->fingerprint)
            follow_entry(models, i, entry);
        else
            vx_models_fail(models, i, load->refusal.text);
    }
}
