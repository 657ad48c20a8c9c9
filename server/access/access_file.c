/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/access/access_file.h"

#include "engine/base/memory/access.h"
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* How often the file is looked at: a token that is taken away works no longer than that. */
#define LOOK_MS 1000

/* ------- reading ------- */

static vx_status check_facts(const char *path, int fd, struct vx_why *why, bool *open)
{
    struct stat facts = {0};
    VX_ENSURE_WHY(!fstat(fd, &facts) && S_ISREG(facts.st_mode), why, NOT_FOUND,
                  "the file of tokens is no file",
                  "%.150s: expected a regular file of tokens, got %s", path,
                  vx_access_kind(&facts));
    VX_ENSURE_WHY(!(facts.st_mode & S_IWOTH), why, PERMISSION_DENIED,
                  "others may write the file of tokens",
                  "%.150s: expected a file of tokens that others may not write, got mode "
                  "%04o: chmod o-w",
                  path, facts.st_mode & 07777);
    VX_ENSURE_WHY(facts.st_size <= VX_ACCESS_FILE_BYTES_MAX, why, INVALID_ARGUMENT,
                  "the file of tokens is too large",
                  "%.150s: expected at most %d bytes of tokens, got %lld", path,
                  VX_ACCESS_FILE_BYTES_MAX, (long long)facts.st_size);
    *open = facts.st_mode & S_IROTH;
    return VX_OK;
}

/* It may grow while it is read: what is beyond the limit is not read, and no JSON. */
static vx_status read_all(const char *path, int fd, char *text, size_t *length,
                          struct vx_why *why)
{
    size_t have = 0;
    ssize_t got = 0;
    while (have < VX_ACCESS_FILE_BYTES_MAX &&
           ((got = read(fd, text + have, VX_ACCESS_FILE_BYTES_MAX - have)) > 0 ||
            (got < 0 && errno == EINTR)))
        if (got > 0) have += (size_t)got;
    VX_ENSURE_WHY(got >= 0, why, NOT_FOUND, "the file of tokens cannot be read",
                  "%.150s: expected a file of tokens that can be read: %s", path,
                  strerror(errno));
    *length = have;
    return VX_OK;
}

static vx_status read_open(const char *path, int fd, struct vx_why *why,
                           struct vx_access_table *table)
{
    struct vx_why inner = {""};
    size_t length;
    char *text = vx_alloc(VX_ACCESS_FILE_BYTES_MAX);
    VX_ENSURE(text, RESOURCE_EXHAUSTED, "no memory to read the file of tokens");
    vx_status st = read_all(path, fd, text, &length, why);
    if (!st.fault) {
        st = vx_access_table_parse(text, length, &inner, table);
        if (st.fault) vx_why_set(why, "%.80s: %s", path, vx_status_text(st, &inner));
    }
    vx_free(text);
    return st;
}

vx_status vx_access_file_read(const char *path, struct vx_why *why,
                              struct vx_access_table *table, bool *open_to_others)
{
    char text[VX_ACCESS_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe does not block */
    VX_ENSURE_WHY(fd >= 0, why, NOT_FOUND, "the file of tokens cannot be opened",
                  "%.80s: expected a file of tokens that can be read: %s", path,
                  vx_access_secret_text(path, errno, text));
    vx_status st = check_facts(path, fd, why, open_to_others);
    if (!st.fault) st = read_open(path, fd, why, table);
    close(fd);
    return st;
}

/* ------- while it serves ------- */

static void file_use(struct vx_access_file *file)
{
    if (file->status.fault) {
        VX_LOG(TOKENS_FAILED,
               VX_LOG_TEXT("code", vx_code_name(vx_status_code(file->status))),
               VX_LOG_TEXT("why", vx_status_text(file->status, &file->why)));
        vx_access_file_state_set(file->access, VX_ACCESS_FILE_BAD);
        return;
    }
    VX_LOG(TOKENS, VX_LOG_I64("entries", file->table->entries_count),
           VX_LOG_I64("keys", file->table->keys_count), VX_LOG_TEXT("file", file->path));
    if (file->open)
        VX_LOG(TOKENS_OPEN, VX_LOG_TEXT("why", "others may read the hashes: chmod o-r"),
               VX_LOG_TEXT("file", file->path));
    if (vx_access_waits_in_vain(file->access, file->table))
        VX_LOG(TOKENS_CERTIFICATE,
               VX_LOG_TEXT("why", "entries name certificates, and no client is asked for "
                                  "one without --tls-client-ca"),
               VX_LOG_TEXT("file", file->path));
    vx_access_use_spare(file->access, vx_clock_ns());
    vx_access_file_state_set(file->access, VX_ACCESS_FILE_GOOD);
}

static void file_read(struct vx_access_file *file)
{
    file->why.text[0] = '\0';
    file->status = vx_access_file_read(file->path, &file->why, file->table, &file->open);
}

static void file_on_work(uv_work_t *work)
{
    file_read(VX_CONTAINER(work, struct vx_access_file, work));
}

static void file_on_done(uv_work_t *work, int status)
{
    struct vx_access_file *file = VX_CONTAINER(work, struct vx_access_file, work);
    file->running = false;
    if (status == UV_ECANCELED || !file->loop) return; /* it stops */
    file_use(file);
    if (file->again) vx_access_file_look(file);
}

void vx_access_file_look(struct vx_access_file *file)
{
    file->again = file->running;
    if (file->running) return;
    file->running = true;
    file->table = vx_access_spare(file->access);
    VX_ASSERT(!uv_queue_work(file->loop, &file->work, file_on_work, file_on_done));
}

static void file_on_change(uv_fs_poll_t *poll, int status, const uv_stat_t *before,
                           const uv_stat_t *now)
{
    (void)status; /* a file that is gone: reading it says so */
    (void)before;
    (void)now;
    vx_access_file_look(VX_CONTAINER(poll, struct vx_access_file, poll));
}

vx_status vx_access_file_open(struct vx_access_file *file, uv_loop_t *loop,
                              const char *path, struct vx_access *access,
                              struct vx_why *why)
{
    *file = (struct vx_access_file){.path = path, .access = access, .loop = loop};
    file->table = vx_access_spare(access);
    file_read(file);
    if (file->status.fault) *why = file->why;
    VX_TRY(file->status);
    file_use(file);
    VX_ASSERT(!uv_fs_poll_init(loop, &file->poll));
    int error = uv_fs_poll_start(&file->poll, file_on_change, path, LOOK_MS);
    VX_ENSURE_WHY(!error, why, UNAVAILABLE, "the file of tokens cannot be watched",
                  "%.150s: expected a file that can be watched: %s", path,
                  uv_strerror(error));
    return VX_OK;
}

void vx_access_file_close(struct vx_access_file *file)
{
    if (!file->loop) return; /* never opened */
    uv_close((uv_handle_t *)&file->poll, NULL);
    file->loop = NULL;
}
