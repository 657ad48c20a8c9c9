/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/repository.h"

#include "engine/base/access.h"
#include "engine/base/clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
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
    return fingerprint_mix(fingerprint, (u64)file.st_mtim.tv_nsec);
}

/* Of one version; *bytes is its weights'. */
static u64 fingerprint_version(const char *directory, i64 version, i64 *bytes)
{
    char path[PATH_MAX + VX_NAME_BYTES]; /* the model's path, and what is in it */
    snprintf(path, sizeof path, "%.*s/network.json", PATH_MAX - 1, directory);
    u64 network = fingerprint_file(0, path, bytes);
    snprintf(path, sizeof path, "%.*s/%lld/weights.safetensors", PATH_MAX - 1, directory,
             (long long)version);
    return fingerprint_file(network, path, bytes);
}

/* A version directory is a positive decimal number without a leading zero; else 0. */
static i64 scan_version(const char *name)
{
    i64 version = 0;
    if (name[0] == '0') return 0;
    for (const char *c = name; *c; c++) {
        if (*c < '0' || *c > '9' || version > INT32_MAX / 10) return 0;
        version = version * 10 + (*c - '0');
    }
    return version <= INT32_MAX ? version : 0;
}

static void scan_add(struct vx_repository_listing *listing, const char *model_path,
                     const char *name, i64 version)
{
    if (listing->count == VX_LISTING_MAX) {
        listing->complete = false;
        vx_why_set(&listing->problem, "more than %d model versions; the rest is left out",
                   VX_LISTING_MAX);
        return;
    }
    struct vx_repository_entry *entry = &listing->entries[listing->count++];
    memcpy(entry->name, name, strlen(name) + 1);
    entry->version = version;
    entry->fingerprint = fingerprint_version(model_path, version, &entry->weights_bytes);
}

static void scan_model(struct vx_repository_listing *listing, const char *root,
                       const char *name)
{
    char path[PATH_MAX];
    if (strlen(name) >= VX_NAME_BYTES ||
        snprintf(path, sizeof path, "%s/%s", root, name) >=
            (int)sizeof path - VX_NAME_BYTES) {
        vx_why_set(&listing->problem, "'%.60s...' is too long for a model's name", name);
        return;
    }
    struct stat file;
    if (stat(path, &file) || !S_ISDIR(file.st_mode))
        return; /* a README beside the models */
    DIR *directory = opendir(path);
    if (!directory) {
        char room[VX_ACCESS_BYTES];
        listing->complete = false;
        vx_why_set(&listing->problem, "model directory '%.80s' cannot be read: %s", name,
                   vx_access_text(path, errno, room));
        return;
    }
    i32 before = listing->count;
    for (struct dirent *entry; (entry = readdir(directory));) {
        i64 version = scan_version(entry->d_name);
        if (version) scan_add(listing, path, name, version);
    }
    closedir(directory);
    if (listing->count == before)
        vx_why_set(&listing->problem,
                   "'%.100s' has no version: expected a directory with a number, such as "
                   "%.60s/1",
                   name, name);
}

void vx_repository_scan(const char *path, struct vx_repository_listing *listing)
{
    *listing = (struct vx_repository_listing){.begun_ns = vx_clock_ns()};
    DIR *directory = opendir(path);
    if (!directory) {
        char room[VX_ACCESS_BYTES];
        vx_why_set(&listing->problem, "repository '%.80s' cannot be read: %s", path,
                   vx_access_text(path, errno, room));
        return;
    }
    listing->readable = listing->complete = true;
    for (struct dirent *entry; (entry = readdir(directory));)
        if (entry->d_name[0] != '.') scan_model(listing, path, entry->d_name);
    closedir(directory);
    if (!listing->count && !listing->problem.text[0])
        vx_why_set(&listing->problem,
                   "repository '%.100s' has no models: expected NAME/network.json and "
                   "NAME/1/weights.safetensors in it",
                   path);
}

static bool has_file(const char *path, const char *name)
{
    char whole[PATH_MAX];
    struct stat file;
    int length = snprintf(whole, sizeof whole, "%s/%s", path, name);
    return length > 0 && length < (int)sizeof whole && !stat(whole, &file) &&
           S_ISREG(file.st_mode);
}

vx_status vx_repository_expect(const char *path, struct vx_why *why)
{
    char room[VX_ACCESS_BYTES];
    DIR *directory = opendir(path);
    int error = errno;
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
    i64 bytes;
    if (fingerprint_version(directory, version, &bytes) == fingerprint) return VX_OK;
    VX_FAIL_WHY(why, FAILED_PRECONDITION, "the model's files changed on disk",
                "the model's files changed on disk since the repository was read "
                "(network.json or %lld/weights.safetensors): have it read again, with "
                "SIGHUP or a load",
                (long long)version);
}
