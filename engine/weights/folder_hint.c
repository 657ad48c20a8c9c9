/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/weights/folder_hint.h"

#include "engine/base/limits.h"
#include "engine/base/types.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES  4096
#define NAMES_SHOWN 3
#define NAME_BYTES  32 /* most bytes shown of a name */

static bool is_model(const char *directory, const char *name)
{
    char path[PATH_BYTES];
    int length = snprintf(path, sizeof path, "%s%s%s/network.json", directory,
                          *name ? "/" : "", name);
    return length > 0 && length < PATH_BYTES && !access(path, F_OK);
}

/* Removes the last component of a path; false when there is none to remove. */
static bool path_up(char *path)
{
    char *slash = strrchr(path, '/');
    const char *last = slash ? slash + 1 : path;
    if (!*last || !strcmp(last, ".") || !strcmp(last, "..")) return false;
    if (!slash)
        memcpy(path, ".", 2); /* a path of one component has at least one letter */
    else
        slash[slash == path] = '\0';
    return true;
}

/* The first names in sorted order, so that the sentence does not depend on the order of
 * the directory. */
struct names {
    char list[NAMES_SHOWN][VX_NAME_BYTES];
    i32 count; /* of all names, kept or not */
};

static void names_add(struct names *names, const char *name)
{
    i32 kept = names->count < NAMES_SHOWN ? names->count : NAMES_SHOWN, at = kept;
    while (at > 0 && strcmp(names->list[at - 1], name) > 0) at--;
    names->count++;
    if (at == NAMES_SHOWN) return;
    if (kept == NAMES_SHOWN) kept--;
    memmove(names->list[at + 1], names->list[at], (size_t)(kept - at) * VX_NAME_BYTES);
    snprintf(names->list[at], VX_NAME_BYTES, "%s", name);
}

static void names_find(const char *path, struct names *names)
{
    DIR *directory = opendir(path);
    if (!directory) return;
    for (struct dirent *entry; (entry = readdir(directory));)
        if (entry->d_name[0] != '.' && strlen(entry->d_name) < VX_NAME_BYTES &&
            is_model(path, entry->d_name))
            names_add(names, entry->d_name);
    closedir(directory);
}

/* True for a version's folder: then network.json was put beside a version's weights. */
static bool is_number(const char *name)
{
    return name[strspn(name, "0123456789")] == '\0';
}

static void hint_repository(const char *path, char out[VX_FOLDER_HINT_BYTES])
{
    struct names names = {.count = 0};
    size_t used = 0;
    names_find(path, &names);
    if (!names.count) return;
    if (is_number(names.list[0])) {
        snprintf(
            out, VX_FOLDER_HINT_BYTES,
            "; there is %.*s/network.json: move it beside the directory %.*s, because "
            "all versions share it",
            NAME_BYTES, names.list[0], NAME_BYTES, names.list[0]);
        return;
    }
    for (i32 i = 0; i < names.count && i < NAMES_SHOWN; i++)
        used += (size_t)snprintf(out + used, VX_FOLDER_HINT_BYTES - used, "%s%.*s",
                                 i ? ", " : "; it is a repository of models (",
                                 NAME_BYTES, names.list[i]);
    snprintf(out + used, VX_FOLDER_HINT_BYTES - used,
             "%s): name one of them, such as %.*s",
             names.count > NAMES_SHOWN ? " and more" : "", NAME_BYTES, names.list[0]);
}

/* Adds the names that were found, quoted. */
static void names_say(const struct names *names, size_t used,
                      char out[VX_FOLDER_HINT_BYTES])
{
    for (i32 i = 0; i < names->count && i < NAMES_SHOWN; i++)
        used += (size_t)snprintf(out + used, VX_FOLDER_HINT_BYTES - used, "%s'%.*s'",
                                 i ? ", " : "", NAME_BYTES, names->list[i]);
    snprintf(out + used, VX_FOLDER_HINT_BYTES - used, "%s",
             names->count > NAMES_SHOWN ? " and more" : "");
}

/* Adds the entries of a directory, except hidden ones; `folders`: only directories.
 * False when it cannot be opened. */
static bool entries_find(const char *path, bool folders, struct names *names)
{
    DIR *directory = opendir(path);
    struct stat file;
    if (!directory) return false;
    for (struct dirent *entry; (entry = readdir(directory));)
        if (entry->d_name[0] != '.' && strlen(entry->d_name) < VX_NAME_BYTES &&
            !fstatat(dirfd(directory), entry->d_name, &file, 0) &&
            (!folders || S_ISDIR(file.st_mode)))
            names_add(names, entry->d_name);
    closedir(directory);
    return true;
}

/* What there is instead of network.json. */
static void hint_entries(const char *path, char out[VX_FOLDER_HINT_BYTES])
{
    struct names names = {.count = 0};
    struct stat link;
    char file[PATH_BYTES];
    int length = snprintf(file, sizeof file, "%s/network.json", path);
    if (length < 0 || length >= PATH_BYTES || !lstat(file, &link)) return;
    bool there = entries_find(path, false, &names);
    if (!there && errno != ENOENT) return;
    size_t used = (size_t)snprintf(out, VX_FOLDER_HINT_BYTES, "; %s",
                                   !there        ? "there is no such directory"
                                   : names.count ? "the directory has "
                                                 : "the directory is empty");
    names_say(&names, used, out);
}

const char *vx_folder_hint(const char *directory, char out[VX_FOLDER_HINT_BYTES])
{
    char path[PATH_BYTES];
    out[0] = '\0';
    size_t length = strlen(directory);
    while (length > 1 && directory[length - 1] == '/') length--;
    if (!length || length >= sizeof path) return out;
    snprintf(path, sizeof path, "%.*s", (int)length, directory);
    hint_repository(path, out);
    /* The path may be a file of the model, the folder of a version, or a file in that. */
    for (i32 up = 0; up < 2 && !out[0] && path_up(path); up++)
        if (is_model(path, ""))
            snprintf(out, VX_FOLDER_HINT_BYTES, "; give the model's folder, %.*s",
                     VX_FOLDER_HINT_BYTES / 2, path);
    if (out[0]) return out;
    snprintf(path, sizeof path, "%.*s", (int)length, directory);
    hint_entries(path, out);
    return out;
}

/* The weights lie one level too high. */
static bool hint_beside(const char *directory, int version,
                        char out[VX_FOLDER_HINT_BYTES])
{
    char path[PATH_BYTES];
    struct stat file;
    int length = snprintf(path, sizeof path, "%s/weights.safetensors", directory);
    if (length < 0 || length >= PATH_BYTES) return false;
    if (stat(path, &file) || !S_ISREG(file.st_mode)) return false;
    snprintf(out, VX_FOLDER_HINT_BYTES, "; it lies beside network.json: move it to %d/",
             version);
    return true;
}

/* Whether one of those kept could be a version's directory. */
static bool names_have_version(const struct names *names)
{
    for (i32 i = 0; i < names->count && i < NAMES_SHOWN; i++)
        if (is_number(names->list[i]) && names->list[i][0] != '0') return true;
    return false;
}

/* How the sentence about a version's directory goes on, before the names that were found. */
static const char *names_begin(bool there, i32 count)
{
    if (there) return count ? " has " : " is empty";
    if (!count) return ", and no other one";
    return count == 1 ? ", but there is " : ", but there are ";
}

const char *vx_version_hint(const char *directory, int version,
                            char out[VX_FOLDER_HINT_BYTES])
{
    char path[PATH_BYTES];
    struct names names = {.count = 0};
    struct stat link;
    out[0] = '\0';
    int length =
        snprintf(path, sizeof path, "%s/%d/weights.safetensors", directory, version);
    if (length < 0 || length >= PATH_BYTES) return out;
    if (!lstat(path, &link)) return out; /* a link to nothing; the why says so already */
    *strrchr(path, '/') = '\0';
    bool there = entries_find(path, false, &names);
    if (!there && errno != ENOENT) return out; /* it exists, but may not be read */
    if (hint_beside(directory, version, out)) return out;
    if (!there && !entries_find(directory, true, &names)) return out;
    size_t used = (size_t)snprintf(out, VX_FOLDER_HINT_BYTES, "; %s %d%s",
                                   there ? "the directory" : "there is no directory",
                                   version, names_begin(there, names.count));
    names_say(&names, used, out);
    if (!there && names.count && !names_have_version(&names)) {
        used = strlen(out);
        snprintf(out + used, VX_FOLDER_HINT_BYTES - used,
                 ": a version is an integer above 0, without zeros before it");
    }
    return out;
}
