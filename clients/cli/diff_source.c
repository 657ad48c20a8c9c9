/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "clients/cli/diff_source.h"

#include "clients/c/error.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ARGUMENTS_MAX 24

extern char **environ;

/* --- what it is --- */

static bool is_folder(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

static bool copy_word(char word[DIFF_WORD_BYTES], const char *from, size_t bytes)
{
    if (bytes == 0 || bytes >= DIFF_WORD_BYTES) return false;
    memcpy(word, from, bytes);
    word[bytes] = '\0';
    return true;
}

/* Splits PATH@DEVICE[,PRECISION] at its last @; false = it is not of that form. */
static bool split_device(struct diff_source *source)
{
    char *at = strrchr(source->path, '@');
    if (!at) return false;
    const char *device = at + 1;
    size_t bytes = strcspn(device, ",");
    bool good = copy_word(source->device, device, bytes);
    if (good && device[bytes])
        good =
            copy_word(source->precision, device + bytes + 1, strlen(device + bytes + 1));
    *at = '\0';
    return good;
}

enum voxel_code diff_source_parse(const char *text, struct diff_source *source,
                                  struct voxel_error *error)
{
    static const char expected[] =
        "expected a recording, or a model directory with @DEVICE or without";
    memset(source, 0, sizeof *source);
    source->text = text;
    if (snprintf(source->path, sizeof source->path, "%s", text) >= PATH_MAX)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "a path is longer than %d bytes", PATH_MAX);
    if (access(source->path, F_OK) != 0) {
        if (!strchr(text, '@'))
            return voxel_error_set(error, VOXEL_NOT_FOUND, "%s: %s; %s", text,
                                   strerror(errno), expected);
        if (!split_device(source) || !is_folder(source->path))
            return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                                   "%s: there is no model directory %s; %s", text,
                                   source->path, expected);
    }
    source->model = is_folder(source->path);
    return source->model ? VOXEL_OK
                         : recording_open(source->path, &source->recording, error);
}

bool diff_source_example(const struct diff_source *source, char path[PATH_MAX])
{
    static const char *const names[] = {"example.npz", "../example.npz"};
    for (size_t i = 0; source->model && i < sizeof names / sizeof *names; i++) {
        int used = snprintf(path, PATH_MAX, "%s/%s", source->path, names[i]);
        if (used < PATH_MAX && access(path, F_OK) == 0) return true;
    }
    return false;
}

/* --- voxeld record --- */

/* Beside this program there may be voxeld, or the tools alone. */
static const char *find_voxeld(char path[PATH_MAX])
{
    static const char *const names[] = {"voxeld", "voxeld-tools"};
    char self[PATH_MAX];
    ssize_t bytes = readlink("/proc/self/exe", self, sizeof self - 1);
    if (bytes > 0) {
        self[bytes] = '\0';
        int folder = (int)(strrchr(self, '/') - self);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            int used = snprintf(path, PATH_MAX, "%.*s/%s", folder, self, names[i]);
            if (used < PATH_MAX && access(path, X_OK) == 0) return path;
        }
    }
    return names[0];
}

/* Runs a program without standard output; its standard error is ours. */
static enum voxel_code run_program(char *const *arguments, struct voxel_error *error)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = 0;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return voxel_error_memory(error, "a process", 0);
    int failed = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null",
                                                  O_WRONLY, 0);
    if (!failed)
        failed = posix_spawnp(&pid, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed)
        return voxel_error_set(error, VOXEL_UNAVAILABLE,
                               "%s, which records models, cannot be started: %s; "
                               "--voxeld FILE names it",
                               arguments[0], strerror(failed));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return VOXEL_OK;
    return voxel_error_set(
        error, VOXEL_UNAVAILABLE, "%s record %s: %s %d", arguments[0], arguments[2],
        WIFEXITED(status) ? "ended with exit code" : "was ended by signal",
        WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

static enum voxel_code record_to(const struct diff_source *source,
                                 const struct diff_wanted *wanted, const char *out,
                                 struct voxel_error *error)
{
    char found[PATH_MAX];
    const char *program = wanted->voxeld ? wanted->voxeld : find_voxeld(found);
    const char *words[ARGUMENTS_MAX] = {
        program, "record", source->path, "--example", wanted->example, "-o", out};
    const struct {
        const char *flag, *value;
    } more[] = {{"--device", source->device},
                {"--precision", source->precision},
                {"--layers", wanted->layers},
                {"--cache", wanted->cache},
                {"--device-bytes", wanted->device_bytes},
                {"--cache-bytes", wanted->cache_bytes}};
    size_t count = 7;
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        if (!more[i].value || !*more[i].value) continue;
        words[count++] = more[i].flag;
        words[count++] = more[i].value;
    }
    if (wanted->outputs_only && !wanted->layers) words[count++] = "--outputs-only";
    return run_program((char *const *)(uintptr_t)words, error);
}

enum voxel_code diff_source_record(struct diff_source *source,
                                   const struct diff_wanted *wanted,
                                   struct voxel_error *error)
{
    char folder[] = P_tmpdir "/voxel-diff-XXXXXX";
    char out[sizeof folder + 16];
    if (!mkdtemp(folder))
        return voxel_error_set(error, VOXEL_UNAVAILABLE, "%s: %s", folder,
                               strerror(errno));
    snprintf(out, sizeof out, "%s/run.npz", folder);
    enum voxel_code code = record_to(source, wanted, out, error);
    if (!code) code = recording_open(out, &source->recording, error);
    if (!code) source->recording.path = source->text;
    unlink(out); /* it is in memory */
    rmdir(folder);
    return code;
}

void diff_source_close(struct diff_source *source)
{
    recording_close(&source->recording);
}
