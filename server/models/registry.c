/* SPDX-License-Identifier: Apache-2.0 */
#include "server/models/registry.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"

#include <stdio.h>
#include <string.h>

struct vx_registry {
    const struct vx_repository_listing *listing; /* NULL: not known */
    bool hides_names, was_ready;
    i32 end; /* one more than the highest index that was ever used */
    /* The numbers of rows 0 .. end-1, by name, version and number.  Rows that are FREE
     * again keep their place until they are used for another version. */
    i32 order[VX_INSTANCES_MAX];
    struct vx_instance rows[VX_INSTANCES_MAX];
    struct vx_instance_stats stats[VX_INSTANCES_MAX]; /* each is of one version's rows */
};

vx_status vx_registry_open(struct vx_registry **registry)
{
    *registry = vx_alloc_zero(sizeof **registry);
    VX_ENSURE(*registry, RESOURCE_EXHAUSTED, "no memory for the registry");
    return VX_OK;
}

void vx_registry_close(struct vx_registry **registry)
{
    vx_free(*registry);
    *registry = NULL;
}

void vx_registry_hide_names(struct vx_registry *registry)
{
    registry->hides_names = true;
}

bool vx_registry_hides_names(const struct vx_registry *registry)
{
    return registry->hides_names;
}

void vx_registry_explain(struct vx_registry *registry,
                         const struct vx_repository_listing *listing)
{
    registry->listing = listing;
}

const struct vx_repository_listing *
vx_registry_listing(const struct vx_registry *registry)
{
    return registry->listing;
}

i32 vx_registry_end(const struct vx_registry *registry)
{
    return registry->end;
}

i64 vx_registry_voxels_most(const struct vx_registry *registry)
{
    i64 most = 0;
    for (i32 i = 0; i < registry->end; i++) {
        const struct vx_instance *row = &registry->rows[i];
        if (row->state != VX_INSTANCE_FREE && row->signature.voxels_max > most)
            most = row->signature.voxels_max;
    }
    return most;
}

struct vx_instance *vx_registry_row(struct vx_registry *registry, i32 instance)
{
    VX_ASSERT(instance >= 0 && instance < VX_INSTANCES_MAX);
    return &registry->rows[instance];
}

static int row_compare(const struct vx_instance *a, const struct vx_instance *b)
{
    int by_name = strcmp(a->name, b->name);
    if (by_name) return by_name;
    if (a->version != b->version) return a->version < b->version ? -1 : 1;
    return (a > b) - (a < b); /* a reload and the instance it replaces: by number */
}

/* Gives a row, whose name and version have changed, its place in the order. */
static void order_place(struct vx_registry *registry, i32 row)
{
    i32 at = 0, count = registry->end;
    while (at < count && registry->order[at] != row) at++;
    VX_ASSERT(at < count || row == count); /* the lowest row that is FREE is used */
    if (at == count) registry->order[registry->end++] = row;
    for (; at + 1 < registry->end; at++) registry->order[at] = registry->order[at + 1];
    for (; at > 0; at--) {
        i32 before = registry->order[at - 1];
        if (row_compare(&registry->rows[before], &registry->rows[row]) < 0) break;
        registry->order[at] = before;
    }
    registry->order[at] = row;
}

/* The counts of the version, or others that no row has, made zeros.  At least the row for
 * which they are has none. */
static struct vx_instance_stats *stats_find(struct vx_registry *registry,
                                            const char *name, i64 version)
{
    bool used[VX_INSTANCES_MAX] = {false};
    for (i32 i = 0; i < registry->end; i++) {
        const struct vx_instance *row = &registry->rows[i];
        if (row->state == VX_INSTANCE_FREE) continue;
        if (row->version == version && !strcmp(row->name, name)) return row->stats;
        used[row->stats - registry->stats] = true;
    }
    i32 at = 0;
    while (used[at]) at++;
    VX_ASSERT(at < VX_INSTANCES_MAX);
    registry->stats[at] = (struct vx_instance_stats){0};
    return &registry->stats[at];
}

i32 vx_registry_add(struct vx_registry *registry, const char *name, i64 version,
                    u64 fingerprint)
{
    VX_ASSERT(strlen(name) < VX_NAME_BYTES);
    for (i32 i = 0; i < VX_INSTANCES_MAX; i++) {
        struct vx_instance *row = &registry->rows[i];
        if (row->state != VX_INSTANCE_FREE) continue;
        *row = (struct vx_instance){.state = VX_INSTANCE_LOADING,
                                    .awaited = true,
                                    .version = version,
                                    .fingerprint = fingerprint,
                                    .stats = stats_find(registry, name, version)};
        memcpy(row->name, name, strlen(name) + 1);
        order_place(registry, i);
        return i;
    }
    return -1;
}

/* How well an instance matches a query for (name, version): 0 = not at all.  READY
 * instances rank before others, then the higher version. */
static i64 row_rank(const struct vx_instance *row, const char *name, i64 version)
{
    if (row->state == VX_INSTANCE_FREE || strcmp(row->name, name)) return 0;
    if (version && row->version != version) return 0;
    return (row->state == VX_INSTANCE_READY ? INT64_MAX / 2 : 0) + row->version;
}

/* How many letters two names have in common at their beginning and end: a misspelled name
 * keeps most of them. */
static size_t name_likeness(const char *a, const char *b)
{
    size_t a_length = strlen(a), b_length = strlen(b), head = 0, tail = 0;
    size_t most = a_length < b_length ? a_length : b_length;
    while (head < most && a[head] == b[head]) head++;
    while (tail < most - head && a[a_length - 1 - tail] == b[b_length - 1 - tail]) tail++;
    return head + tail;
}

/* The instance whose name is most like `name` and not in `said`; NULL = none. */
static const struct vx_instance *name_next(const struct vx_registry *registry,
                                           const char *name, const char *const *said,
                                           i32 said_count)
{
    const struct vx_instance *best = NULL;
    size_t most = 0; /* of the best */
    for (i32 i = 0; i < registry->end; i++) {
        const struct vx_instance *row = &registry->rows[i];
        bool known = row->state == VX_INSTANCE_FREE;
        for (i32 s = 0; s < said_count && !known; s++)
            known = !strcmp(row->name, said[s]);
        if (known) continue;
        size_t likeness = name_likeness(name, row->name);
        bool before = best && likeness == most && strcmp(row->name, best->name) < 0;
        if (best && likeness <= most && !before) continue;
        best = row;
        most = likeness;
    }
    return best;
}

/* Whether some version of it serves, or soon may. */
static bool name_is_up(const struct vx_registry *registry, const char *name)
{
    for (i32 i = 0; i < registry->end; i++) {
        const struct vx_instance *row = &registry->rows[i];
        bool up = row->state == VX_INSTANCE_READY || row->state == VX_INSTANCE_LOADING;
        if (up && !strcmp(row->name, name)) return true;
    }
    return false;
}

/* Lists the names that exist, the most similar first. */
#define NAMES_SAID 4
static void names_text(const struct vx_registry *registry, const char *name,
                       char out[VX_WHY_BYTES])
{
    const char *said[NAMES_SAID];
    i32 count = 0;
    size_t used = 0;
    const struct vx_instance *row;
    out[0] = '\0';
    if (registry->hides_names) return;
    while ((row = name_next(registry, name, said, count)) && used < VX_WHY_BYTES) {
        if (count == NAMES_SAID) {
            snprintf(out + used, VX_WHY_BYTES - used, " and more");
            return;
        }
        used += (size_t)snprintf(out + used, VX_WHY_BYTES - used, "%s'%s'%s",
                                 count ? ", " : ": this server has ", row->name,
                                 name_is_up(registry, row->name) ? "" : " (not loaded)");
        said[count++] = row->name;
    }
    if (!count) snprintf(out, VX_WHY_BYTES, ": this server has no models");
}

/* The lowest version of the model that is above `above`; 0 = none. */
static i64 version_next(const struct vx_registry *registry, const char *name, i64 above)
{
    i64 next = 0;
    for (i32 i = 0; i < registry->end; i++) {
        const struct vx_instance *row = &registry->rows[i];
        if (row->state == VX_INSTANCE_FREE || strcmp(row->name, name)) continue;
        if (row->version > above && (!next || row->version < next)) next = row->version;
    }
    return next;
}

/* Writes "version 1", "versions 1, 2, 3", or the first ones and the last of many. */
#define VERSIONS_SAID 8
static void versions_text(const struct vx_registry *registry, const char *name, i64 last,
                          char out[VX_WHY_BYTES])
{
    i64 version = version_next(registry, name, 0);
    size_t used = (size_t)snprintf(out, VX_WHY_BYTES, "version%s %lld",
                                   version == last ? "" : "s", (long long)version);
    for (i32 said = 1; version < last && used < VX_WHY_BYTES; said++) {
        bool more = said == VERSIONS_SAID;
        version = more ? last : version_next(registry, name, version);
        used += (size_t)snprintf(out + used, VX_WHY_BYTES - used, "%s%lld",
                                 more ? " and more up to " : ", ", (long long)version);
    }
}

static i64 version_last(const struct vx_registry *registry, const char *name)
{
    i64 last = 0;
    for (i32 i = 0; i < registry->end; i++) {
        const struct vx_instance *row = &registry->rows[i];
        if (row->state != VX_INSTANCE_FREE && !strcmp(row->name, name) &&
            row->version > last)
            last = row->version;
    }
    return last;
}

vx_status vx_registry_find(struct vx_registry *registry, const char *name, i64 version,
                           struct vx_why *why, i32 *instance)
{
    i64 best = 0;
    for (i32 i = 0; i < registry->end; i++) {
        i64 rank = row_rank(&registry->rows[i], name, version);
        if (rank <= best) continue;
        best = rank;
        *instance = i;
    }
    if (best) return VX_OK;
    if (!why) VX_FAIL(NOT_FOUND, "unknown model");
    struct vx_why absent;
    if (registry->listing &&
        vx_repository_why_absent(registry->listing, name, version, &absent))
        VX_FAIL_WHY(why, NOT_FOUND, "a model is not loaded",
                    "Request for unknown model: '%s' is not found: %s", name,
                    absent.text);
    const struct vx_repository_entry *entry =
        registry->listing ? vx_repository_find(registry->listing, name, version) : NULL;
    if (entry && entry->unwanted)
        VX_FAIL_WHY(why, NOT_FOUND, "a model is not loaded",
                    "Request for unknown model: '%s' is not found: it is in the "
                    "repository and not loaded: load it with RepositoryModelLoad",
                    name);
    char names[VX_WHY_BYTES] = "";
    i64 last = version_last(registry, name);
    if (version && last) {
        versions_text(registry, name, last, names);
        VX_FAIL_WHY(why, NOT_FOUND, "unknown model version",
                    "Request for unknown model: '%s' version %lld is not found: this "
                    "server has %s",
                    name, (long long)version, names);
    }
    names_text(registry, name, names);
    VX_FAIL_WHY(why, NOT_FOUND, "unknown model",
                "Request for unknown model: '%s' is not found%s", name, names);
}

vx_status vx_registry_pick(struct vx_registry *registry, const char *name, i64 version,
                           struct vx_why *why, i32 *instance)
{
    VX_TRY(vx_registry_find(registry, name, version, why, instance));
    const struct vx_instance *row = &registry->rows[*instance];
    if (row->state != VX_INSTANCE_READY)
        VX_FAIL_WHY(
            why, UNAVAILABLE, "the model is not ready",
            "Request for unknown model: '%s' version %lld is not at ready state%s%s",
            name, (long long)row->version, row->reason[0] ? ": " : "", row->reason);
    return VX_OK;
}

struct vx_instance *vx_registry_next(struct vx_registry *registry, i32 *cursor)
{
    while (*cursor < registry->end) {
        struct vx_instance *row = &registry->rows[registry->order[(*cursor)++]];
        if (row->state != VX_INSTANCE_FREE) return row;
    }
    return NULL;
}

i32 vx_registry_seek(const struct vx_registry *registry, const char *name, i64 version)
{
    i32 low = 0, high = registry->end;
    while (low < high) {
        i32 middle = low + (high - low) / 2;
        const struct vx_instance *row = &registry->rows[registry->order[middle]];
        int by_name = strcmp(row->name, name);
        if (by_name < 0 || (!by_name && row->version < version))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool row_has_ready_sibling(const struct vx_registry *registry,
                                  const struct vx_instance *row)
{
    for (i32 i = 0; i < registry->end; i++)
        if (registry->rows[i].state == VX_INSTANCE_READY &&
            !strcmp(registry->rows[i].name, row->name))
            return true;
    return false;
}

bool vx_registry_all_ready(struct vx_registry *registry)
{
    bool any = false;
    for (i32 i = 0; i < registry->end; i++) {
        const struct vx_instance *row = &registry->rows[i];
        if (row->state == VX_INSTANCE_READY) any = true;
        bool wanted = row->awaited && (row->state == VX_INSTANCE_LOADING ||
                                       row->state == VX_INSTANCE_UNAVAILABLE);
        if (wanted && !row_has_ready_sibling(registry, row)) return false;
    }
    bool missed = registry->listing && vx_repository_is_missed(registry->listing);
    return any && (!missed || registry->was_ready);
}

void vx_registry_on_ready(struct vx_registry *registry)
{
    registry->was_ready = true;
}

bool vx_registry_was_ready(const struct vx_registry *registry)
{
    return registry->was_ready;
}
