/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/repository/repository.h"

#include "engine/base/memory/access.h"
#include "engine/base/process/clock.h"
#include "engine/base/utf8.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Mixes one number into a fingerprint: any change of any number changes the result. */
static u64 fingerprint_mix(u64 fingerprint, u64 value)
{
    u64 x = (fingerprint ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return x ^ (x >> 29);
}

static u64 fingerprint_file(u64 fingerprint, const char *path, i64 *bytes)
{
    struct stat file;
    *bytes = 0;
    if (stat(path, &file)) return fingerprint_mix(fingerprint, 1);
    *bytes = (i64)file.st_size;
    fingerprint = fingerprint_mix(fingerprint, (u64)file.st_size);
    fingerprint = fingerprint_mix(fingerprint, (u64)file.st_ino);
    fingerprint = fingerprint_mix(fingerprint, (u64)file.st_mtim.tv_sec);
    fingerprint = fingerprint_mix(fingerprint, (u64)file.st_mtim.tv_nsec);
    /* Tools set the time of modification (cp -p, rsync, image layers), and file systems
     * reuse the inode number for the next file.  No tool sets the time of change. */
    fingerprint = fingerprint_mix(fingerprint, (u64)file.st_ctim.tv_sec);
    return fingerprint_mix(fingerprint, (u64)file.st_ctim.tv_nsec);
}

/* Sets the fingerprints of the entry's version. */
static void fingerprint_entry(const char *directory, struct vx_repository_entry *entry)
{
    char path[PATH_MAX + VX_NAME_BYTES]; /* the model's path and a file in it */
    i64 bytes;
    snprintf(path, sizeof path, "%.*s/network.json", PATH_MAX - 1, directory);
    entry->network = fingerprint_file(0, path, &bytes);
    snprintf(path, sizeof path, "%.*s/%lld/weights.safetensors", PATH_MAX - 1, directory,
             (long long)entry->version);
    entry->weights = fingerprint_file(0, path, &entry->weights_bytes);
    entry->fingerprint = fingerprint_mix(entry->network, entry->weights);
}

i64 vx_repository_version(const char *name)
{
    i64 version = 0;
    if (name[0] == '0') return 0;
    for (const char *c = name; *c; c++) {
        if (*c < '0' || *c > '9' || version > INT32_MAX / 10) return 0;
        version = version * 10 + (*c - '0');
    }
    return version <= INT32_MAX ? version : 0;
}

bool vx_repository_is_file(int directory, const char *name)
{
    struct stat file;
    return !fstatat(directory, name, &file, 0) && !S_ISDIR(file.st_mode);
}

static bool has_file(const char *path, const char *name)
{
    char whole[PATH_MAX];
    struct stat file;
    int length = snprintf(whole, sizeof whole, "%s/%s", path, name);
    return length > 0 && length < (int)sizeof whole && !stat(whole, &file) &&
           S_ISREG(file.st_mode);
}

/* The place for one more.  If the list is full, it replaces a note, else one that is no
 * model, else the last. */
static struct vx_repository_odd *scan_odd_place(struct vx_repository_listing *listing)
{
    if (listing->odds_count < VX_REPOSITORY_ODDS_MAX)
        return &listing->odds[listing->odds_count++];
    listing->odds_count++;
    for (i32 i = 0; i < VX_REPOSITORY_ODDS_MAX; i++)
        if (listing->odds[i].note) return &listing->odds[i];
    for (i32 i = VX_REPOSITORY_ODDS_MAX - 1; i >= 0; i--)
        if (!listing->odds[i].model) return &listing->odds[i];
    return &listing->odds[VX_REPOSITORY_ODDS_MAX - 1];
}

struct vx_repository_odd *vx_repository_add_odd(struct vx_repository_listing *listing,
                                                const char *name)
{
    struct vx_repository_odd *odd = scan_odd_place(listing);
    *odd = (struct vx_repository_odd){.model = false};
    snprintf(odd->name, sizeof odd->name, "%s", name);
    return odd;
}

/* Entries have an order, so that what a limit leaves out, and what is loaded, does not
 * depend on the file system. */
static int entry_compare(const void *a, const void *b)
{
    const struct vx_repository_entry *first = a, *second = b;
    int by_name = strcmp(first->name, second->name);
    if (by_name) return by_name;
    return (first->version > second->version) - (first->version < second->version);
}

static int odd_compare(const void *a, const void *b)
{
    const struct vx_repository_odd *first = a, *second = b;
    if (first->note != second->note) return first->note - second->note;
    return strcmp(first->name, second->name);
}

void vx_repository_sort_odds(struct vx_repository_listing *listing)
{
    qsort(listing->odds, (size_t)vx_repository_odds(listing), sizeof *listing->odds,
          odd_compare);
}

/* The place for one more.  If the list is full, it replaces the last in order; NULL when
 * `added` itself is the last. */
static struct vx_repository_entry *scan_place(struct vx_repository_listing *listing,
                                              const struct vx_repository_entry *added)
{
    if (listing->count < VX_LISTING_MAX) return &listing->entries[listing->count++];
    struct vx_repository_entry *last = &listing->entries[0];
    for (i32 e = 1; e < VX_LISTING_MAX; e++)
        if (entry_compare(&listing->entries[e], last) > 0) last = &listing->entries[e];
    if (!listing->cut) { /* said only once */
        listing->cut = true;
        vx_why_set(&vx_repository_add_odd(listing, "")->why,
                   "more than %d model versions: only the first by name are listed, the "
                   "others are ignored",
                   VX_LISTING_MAX);
    }
    return entry_compare(added, last) < 0 ? last : NULL;
}

static void scan_add(struct vx_repository_listing *listing, const char *model_path,
                     const char *name, i64 version)
{
    struct vx_repository_entry entry = {.version = version};
    memcpy(entry.name, name, strlen(name) + 1);
    struct vx_repository_entry *place = scan_place(listing, &entry);
    if (!place) return;
    *place = entry;
    fingerprint_entry(model_path, place);
}

/* Directories in a model's directory that a person may take for a version. */
struct strays {
    char first[NAME_MAX + 1]; /* by name: the sentence does not depend on the disk */
    i32 count;
};

/* Directories that tools make, and not people. */
static bool is_tools(const char *name)
{
    return name[0] == '.' || !strcmp(name, "__pycache__") || !strcmp(name, "lost+found");
}

static void strays_add(struct strays *strays, DIR *model, const char *name)
{
    struct stat file;
    if (is_tools(name) || fstatat(dirfd(model), name, &file, 0) || !S_ISDIR(file.st_mode))
        return;
    if (!strays->count++ || strcmp(name, strays->first) < 0)
        snprintf(strays->first, sizeof strays->first, "%s", name);
}

/* What a version's name is instead of that of the first stray. */
static const char *version_expected(const struct strays *strays)
{
    const char *name = strays->first;
    bool digits = name[0] && name[strspn(name, "0123456789")] == '\0';
    if (!digits) return "a number";
    if (name[0] != '0') return "a number up to 2147483647";
    return name[strspn(name, "0")] ? "a number without zeros before it"
                                   : "a number from 1 on";
}

/* Adds a directory without a version.  It counts as a model if it has a model's files. */
static void scan_odd_model(struct vx_repository_listing *listing, const char *path,
                           const char *name, const struct strays *strays)
{
    struct vx_repository_odd *odd = vx_repository_add_odd(listing, name);
    bool weights = has_file(path, "weights.safetensors");
    char came[64] = "", more[24] = "";
    odd->model = weights || has_file(path, "network.json");
    if (strays->count > 1) snprintf(more, sizeof more, " and %d more", strays->count - 1);
    if (strays->count)
        snprintf(came, sizeof came, "; there is '%.30s'%s", strays->first, more);
    vx_why_set(&odd->why,
               "'%.45s' has no version: expected a directory with %s, with "
               "%.45s/1/weights.safetensors in it%s%s",
               name, version_expected(strays), name,
               weights ? ", got weights.safetensors beside it" : "", came);
}

/* A person who put a checkpoint there may believe that it is served. */
static void scan_note_strays(struct vx_repository_listing *listing, const char *name,
                             const struct strays *strays)
{
    char more[32] = "";
    if (listing->odds_count >= VX_REPOSITORY_ODDS_MAX) {
        listing->odds_count++; /* a note replaces nothing */
        return;
    }
    struct vx_repository_odd *odd = vx_repository_add_odd(listing, name);
    odd->note = true;
    if (strays->count > 1) snprintf(more, sizeof more, " and %d more", strays->count - 1);
    vx_why_set(&odd->why,
               "'%.45s' has the directory '%.45s'%s, not served: expected a version "
               "number from 1 to %d without leading zeros",
               name, strays->first, more, INT32_MAX);
}

/* A model may be in it, so that it counts as one; a tool's directory, such as lost+found,
 * which is root's alone, does not. */
static void scan_unreadable(struct vx_repository_listing *listing, const char *path,
                            const char *name, int error)
{
    char room[VX_ACCESS_BYTES];
    struct vx_repository_odd *odd = vx_repository_add_odd(listing, name);
    odd->model = !is_tools(name);
    /* A link to nothing has no model; whatever else cannot be read may still have it. */
    if (odd->model && error != ENOENT) {
        if (listing->unread_count < VX_REPOSITORY_UNREAD_MAX)
            memcpy(listing->unread[listing->unread_count], name, strlen(name) + 1);
        listing->unread_count++;
    }
    vx_why_set(&odd->why, "model directory '%.80s' cannot be read: %s", name,
               vx_access_text(path, error, room));
}

/* The next entry of a directory; NULL at its end, where *error is 0, or when the rest
 * cannot be read. */
static struct dirent *scan_next(DIR *directory, int *error)
{
    errno = 0;
    struct dirent *entry = readdir(directory);
    *error = entry ? 0 : errno;
    return entry;
}

static void scan_versions(struct vx_repository_listing *listing, const char *path,
                          const char *name)
{
    struct strays strays = {.count = 0};
    DIR *directory = opendir(path);
    if (!directory) {
        scan_unreadable(listing, path, name, errno);
        return;
    }
    bool any = false;
    int error;
    for (struct dirent *entry; (entry = scan_next(directory, &error));) {
        i64 version = vx_repository_version(entry->d_name);
        if (version && vx_repository_is_file(dirfd(directory), entry->d_name)) continue;
        any |= version != 0;
        if (version)
            scan_add(listing, path, name, version);
        else
            strays_add(&strays, directory, entry->d_name);
    }
    closedir(directory);
    if (error)
        scan_unreadable(listing, path, name, error);
    else if (!any)
        scan_odd_model(listing, path, name, &strays);
    else if (strays.count)
        scan_note_strays(listing, name, &strays);
}

/* Adds a directory that no answer and no request can name.  It is listed as a name that
 * they can have, and counts as a model if it has a model's description. */
static struct vx_why *scan_misnamed(struct vx_repository_listing *listing,
                                    const char *path, const char *name)
{
    char shown[VX_NAME_BYTES];
    vx_utf8_print(shown, sizeof shown, "%s", name);
    struct vx_repository_odd *odd = vx_repository_add_odd(listing, shown);
    odd->model = has_file(path, "network.json");
    return &odd->why;
}

vx_status vx_repository_check_name(const char *name, size_t bytes, struct vx_why *why)
{
    VX_ENSURE_WHY(
        bytes < VX_NAME_BYTES, why, INVALID_ARGUMENT, "a model's name is too long",
        "'%.60s...' is too long for a model's name: expected at most %d bytes, got %zu",
        name, VX_NAME_BYTES - 1, bytes);
    VX_ENSURE_WHY(vx_utf8_is(name, bytes), why, INVALID_ARGUMENT,
                  "a model's name is not in UTF-8",
                  "the model directory '%.*s' is ignored: expected a name in UTF-8, got "
                  "other bytes, shown as '?'",
                  bytes < 60 ? (int)bytes : 60, name);
    return VX_OK;
}

static void scan_model(struct vx_repository_listing *listing, const char *root,
                       const char *name)
{
    char path[PATH_MAX];
    struct stat file;
    struct vx_why why;
    if (snprintf(path, sizeof path, "%s/%s", root, name) >=
        (int)sizeof path - VX_NAME_BYTES) {
        vx_why_set(&vx_repository_add_odd(listing, "")->why,
                   "the path of '%.60s' is too long: expected at most %d bytes, without "
                   "its files",
                   name, (int)sizeof path - VX_NAME_BYTES - 1);
        return;
    }
    int error = stat(path, &file) ? errno : 0;
    if (!error && !S_ISDIR(file.st_mode)) return; /* a README beside them */
    /* It has gone since it was listed. */
    if (error && lstat(path, &file) && errno == ENOENT) return;
    if (vx_repository_check_name(name, strlen(name), &why).fault)
        *scan_misnamed(listing, path, name) = why;
    else if (error)
        scan_unreadable(listing, path, name, error);
    else
        scan_versions(listing, path, name);
}

/* The sentence of a repository of which nothing is known, or not all. */
static void scan_failed(struct vx_repository_listing *listing, const char *path,
                        int error)
{
    char room[VX_ACCESS_BYTES];
    *listing = (struct vx_repository_listing){.begun_ns = listing->begun_ns};
    vx_why_set(&vx_repository_add_odd(listing, "")->why,
               "repository '%.80s' cannot be read: %s; until it can, no model is loaded "
               "or unloaded",
               path, vx_access_text(path, error, room));
}

void vx_repository_scan(const char *path, struct vx_repository_listing *listing)
{
    *listing = (struct vx_repository_listing){.begun_ns = vx_clock_ns()};
    int error;
    DIR *directory = opendir(path);
    if (!directory) {
        scan_failed(listing, path, errno);
        return;
    }
    listing->readable = true;
    for (struct dirent *entry; (entry = scan_next(directory, &error));)
        if (entry->d_name[0] != '.') scan_model(listing, path, entry->d_name);
    closedir(directory);
    if (error) {
        scan_failed(listing, path, error);
        return;
    }
    if (!listing->count && !listing->odds_count)
        vx_why_set(&vx_repository_add_odd(listing, "")->why,
                   "repository '%.100s' has no models: expected NAME/network.json and "
                   "NAME/1/weights.safetensors in it",
                   path);
    qsort(listing->entries, (size_t)listing->count, sizeof *listing->entries,
          entry_compare);
    vx_repository_sort_odds(listing);
}

/* The index of the first entry that does not come before `wanted`. */
static i32 listing_from(const struct vx_repository_listing *listing,
                        const struct vx_repository_entry *wanted)
{
    i32 low = 0, high = listing->count;
    while (low < high) {
        i32 middle = low + (high - low) / 2;
        if (entry_compare(&listing->entries[middle], wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct vx_repository_entry *
vx_repository_find(const struct vx_repository_listing *listing, const char *name,
                   i64 version)
{
    struct vx_repository_entry wanted = {.version = version};
    snprintf(wanted.name, sizeof wanted.name, "%s", name);
    i32 at = listing_from(listing, &wanted);
    if (at == listing->count) return NULL;
    const struct vx_repository_entry *entry = &listing->entries[at];
    bool is_it = !strcmp(entry->name, name) && (!version || entry->version == version);
    return is_it ? entry : NULL;
}

bool vx_repository_may_have(const struct vx_repository_listing *listing, const char *name,
                            i64 version)
{
    struct vx_repository_entry wanted = {.version = version};
    if (!listing->readable || listing->unread_count > VX_REPOSITORY_UNREAD_MAX)
        return true;
    for (i32 i = 0; i < listing->unread_count; i++)
        if (!strcmp(listing->unread[i], name)) return true;
    snprintf(wanted.name, sizeof wanted.name, "%s", name);
    return listing->cut && listing_from(listing, &wanted) == listing->count;
}

const struct vx_repository_odd *
vx_repository_next_odd_model(const struct vx_repository_listing *listing, i32 *cursor)
{
    i32 odds = vx_repository_odds(listing), absent = listing->absent_count;
    if (absent > VX_REPOSITORY_ODDS_MAX) absent = VX_REPOSITORY_ODDS_MAX;
    while (*cursor < odds + absent) {
        i32 at = (*cursor)++;
        if (at >= odds) return &listing->absent[at - odds];
        if (listing->odds[at].model) return &listing->odds[at];
    }
    return NULL;
}

bool vx_repository_why_absent(const struct vx_repository_listing *listing,
                              const char *name, i64 version, struct vx_why *why)
{
    struct vx_repository_entry wanted = {.version = version};
    snprintf(wanted.name, sizeof wanted.name, "%s", name);
    for (i32 e = listing_from(listing, &wanted); e < listing->count; e++) {
        const struct vx_repository_entry *entry = &listing->entries[e];
        if (strcmp(entry->name, name) || (version && entry->version != version)) break;
        if (!entry->no_row) continue;
        vx_why_set(why, "%s", VX_REPOSITORY_NO_ROW);
        return true;
    }
    i32 cursor = 0;
    for (const struct vx_repository_odd *odd;
         (odd = vx_repository_next_odd_model(listing, &cursor));) {
        if (strcmp(odd->name, name)) continue;
        *why = odd->why;
        vx_access_hide(why->text);
        return true;
    }
    return false;
}

const char *vx_repository_note(const struct vx_repository_listing *listing,
                               const char *name)
{
    for (i32 i = 0; i < vx_repository_odds(listing); i++)
        if (listing->odds[i].note && !strcmp(listing->odds[i].name, name))
            return listing->odds[i].why.text;
    return "";
}

vx_status vx_repository_expect(const char *path, struct vx_why *why)
{
    char room[VX_ACCESS_BYTES];
    DIR *directory = opendir(path);
    int error = errno;
    if (!directory && error == EACCES)
        VX_FAIL_WHY(why, PERMISSION_DENIED, "the repository may not be read",
                    "repository '%.80s' cannot be read: %s", path,
                    vx_access_text(path, error, room));
    VX_ENSURE_WHY(directory, why, NOT_FOUND, "the repository cannot be read",
                  "repository '%.80s' cannot be read: %s; expected a directory with a "
                  "directory for each model in it",
                  path, vx_access_text(path, error, room));
    closedir(directory);
    const char *found = NULL;
    if (has_file(path, "network.json")) found = "network.json";
    if (has_file(path, "weights.safetensors")) found = "weights.safetensors";
    VX_ENSURE_WHY(
        !found, why, INVALID_ARGUMENT, "the repository is a model's own directory",
        "repository '%.100s' is a model's own directory, it has %s: expected the "
        "directory above it, with NAME/network.json and "
        "NAME/1/weights.safetensors",
        path, found);
    return VX_OK;
}

vx_status vx_repository_check(const char *directory, i64 version, u64 fingerprint,
                              struct vx_why *why)
{
    struct vx_repository_entry entry = {.version = version};
    fingerprint_entry(directory, &entry);
    if (entry.fingerprint == fingerprint) return VX_OK;
    /* A worker does not know the mode of --model-control. */
    VX_FAIL_WHY(
        why, FAILED_PRECONDITION, "the model's files changed on disk",
        "the model's files changed on disk since the repository was read (network.json "
        "or %lld/weights.safetensors): SIGHUP loads the new ones; so does the next poll "
        "with --model-control poll, and a load by name with explicit",
        (long long)version);
}
