/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/tools.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/log.h"
#include "engine/base/process/print.h"
#include "engine/base/text/typed.h"
#include "engine/engine.h"
#include "server/repository/repository.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A line of the table has under 100 characters; this holds VX_LAYERS_MAX of them. */
#define DESCRIPTION_BYTES (128 * VX_LAYERS_MAX)

static const char check_usage[] =
    "voxeld check MODEL_DIRECTORY [VERSION]\n"
    "\n"
    "Reads MODEL_DIRECTORY/network.json and MODEL_DIRECTORY/VERSION/weights.safetensors\n"
    "as the server would, and prints inputs, layers with the layout of their weights,\n"
    "outputs, limits, and notes: things that load but may not be what was trained.\n"
    "A model with layers in FP8 is run on its own data, with and without FP8, and must\n"
    "stay within its own bound (fp8.nmse_max of network.json).\n"
    "Without VERSION it checks every version, the lowest first. Exit code 1: a version\n"
    "cannot be served; the reason is printed.\n"
    "\n" VX_TOOL_COORDS;

struct check_versions {
    i32 count;
    i32 list[VX_LISTING_MAX]; /* lowest first */
};

/* Adds in order.  False: there is no place. */
static bool check_add_version(struct check_versions *versions, i32 version)
{
    if (versions->count == VX_COUNT(versions->list)) return false;
    i32 at = versions->count++;
    for (; at && versions->list[at - 1] > version; at--)
        versions->list[at] = versions->list[at - 1];
    versions->list[at] = version;
    return true;
}

/* Finds the versions as the server does.  None: there is no such directory, or it has
 * none, and reading version 1 tells what is there instead.  False: there are too many. */
static bool check_find_versions(const char *path, struct check_versions *versions)
{
    bool fits = true;
    DIR *directory = opendir(path);
    if (!directory) return true;
    for (struct dirent *entry; fits && (entry = readdir(directory));) {
        i32 version = (i32)vx_repository_version(entry->d_name);
        if (version && !vx_repository_is_file(dirfd(directory), entry->d_name))
            fits = check_add_version(versions, version);
    }
    closedir(directory);
    return fits;
}

/* The model's name: the directory's, as the path has it, since a repository may have a link
 * to it; of "." and its like the real one's. */
static vx_status check_name(const char *path, struct vx_why *why)
{
    char real[PATH_MAX];
    for (i32 pass = 0; pass < 2; pass++) {
        size_t end = strlen(path);
        while (end && path[end - 1] == '/') end--;
        size_t begin = end;
        while (begin && path[begin - 1] != '/') begin--;
        const char *name = path + begin;
        const size_t bytes = end - begin;
        if (bytes && strncmp(name, "..", bytes) != 0) /* neither ".." nor "." */
            return vx_repository_check_name(name, bytes, why);
        path = realpath(path, real);
        if (!path) break; /* reading it tells what is wrong */
    }
    return VX_OK;
}

/* A text with names of a model's files, for a terminal: control characters other than line
 * ends become '?'. */
static const char *plain(char *text)
{
    for (u8 *at = (u8 *)text; *at; at++) {
        if ((*at < 0x20 && *at != '\n') || *at == 0x7f) *at = '?';
        if (*at == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f) at[0] = at[1] = '?';
    }
    return text;
}

/* Prints what a version is, or why it cannot be served.  Returns the exit code.  `also`:
 * "" or, if other versions are checked, too, what follows the directory in the error. */
static int check_version(const char *path, i32 version, const char *also)
{
    struct vx_model_source source = {.directory = path, .version = version};
    struct vx_signature signature;
    struct vx_why why = {""};
    char *text = vx_alloc(DESCRIPTION_BYTES);
    if (!text) return 1;
    vx_status st = vx_model_describe(&source, &why, &signature, text, DESCRIPTION_BYTES);
    if (!st.fault) vx_print("%s", plain(text));
    if (!st.fault && signature.fp8_layers) {
        st = vx_engine_check_fp8(&source, &why, text, DESCRIPTION_BYTES);
        vx_print("%s", plain(text));
    }
    if (st.fault) {
        snprintf(text, DESCRIPTION_BYTES, "%s", vx_status_text(st, &why));
        vx_print_error("voxeld check %s%s: %s: %s\n", path, also,
                       vx_code_name(vx_status_code(st)), plain(text));
    }
    vx_free(text);
    return st.fault ? 1 : 0;
}

/* "version 2 of 1, 2" */
static void check_print_heading(const struct check_versions *versions, i32 which)
{
    vx_print("%sversion %d%s", which ? "\n" : "", versions->list[which],
             versions->count == 1 ? ", the only one" : " of ");
    for (i32 i = 0; versions->count > 1 && i < versions->count; i++)
        vx_print("%s%d", i ? ", " : "", versions->list[i]);
    vx_print("\n");
}

/* Returns the exit code: 1 if any version cannot be served. */
static int check_all(const char *path)
{
    struct check_versions versions = {.count = 0};
    if (!check_find_versions(path, &versions)) {
        vx_print_error("voxeld check %s: more than %d versions: name one of them\n", path,
                       VX_LISTING_MAX);
        return 1;
    }
    if (!versions.count) return check_version(path, 1, "");
    int code = 0;
    for (i32 i = 0; i < versions.count; i++) {
        char also[16] = "";
        if (versions.count > 1) snprintf(also, sizeof also, " %d", versions.list[i]);
        check_print_heading(&versions, i);
        code |= check_version(path, versions.list[i], also);
    }
    return code;
}

int vx_tool_check(int count, char **arguments)
{
    if (vx_help_asked(count, arguments)) {
        vx_print("%s", check_usage);
        return 0;
    }
    if (count < 1 || count > 2 || arguments[0][0] == '-') {
        vx_print_error("voxeld check: expected MODEL_DIRECTORY [VERSION], got %s\n",
                       count < 1                ? "nothing"
                       : arguments[0][0] == '-' ? arguments[0]
                                                : "more");
        return 2;
    }
    vx_log_init(&(struct vx_log_options){.level = VX_LOG_WARN, .fd = STDERR_FILENO},
                "check");
    struct vx_why why;
    vx_status status = check_name(arguments[0], &why);
    if (status.fault) {
        vx_print_error("voxeld check %s: %s: %s\n", arguments[0],
                       vx_code_name(vx_status_code(status)), plain(why.text));
        return 1;
    }
    if (count == 1) return check_all(arguments[0]);
    i32 version = (i32)vx_repository_version(arguments[1]);
    if (version) return check_version(arguments[0], version, "");
    vx_print_error("voxeld check: expected VERSION as a whole number from 1 to %d, got "
                   "\"%.64s\"\n",
                   INT32_MAX, arguments[1]);
    return 2;
}
