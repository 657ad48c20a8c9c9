/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/front/ready_file.h"

#include "engine/base/process/check.h"
#include "engine/base/process/log.h"
#include "engine/base/process/out.h"
#include "server/base/handed.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_unix(const char *address)
{
    return !strncmp(address, "unix:", 5) || !strncmp(address, "unix-abstract:", 14);
}

/* "HOST:PORT" with the port that was bound in place of its own; "unix:PATH" unchanged. */
static void address_text(const char *configured, i32 port, char *text, size_t bytes)
{
    const char *colon = strrchr(configured, ':');
    if (vx_handed_is(configured))
        vx_handed_where(configured, text, bytes);
    else if (is_unix(configured) || !colon)
        snprintf(text, bytes, "%s", configured);
    else
        snprintf(text, bytes, "%.*s:%d", (int)(colon - configured), configured, port);
}

/* The first address in the list that is a Unix socket, or, without wants_unix, the first
 * that is not; false when there is none. */
static bool address_pick(const char *list, bool wants_unix, char address[PATH_MAX])
{
    for (const char *at = list; at; at = strchr(at, ',')) {
        if (*at == ',') at++;
        snprintf(address, PATH_MAX, "%.*s", (int)strcspn(at, ","), at);
        if (is_unix(address) == wants_unix) return true;
    }
    return false;
}

/* " unix=PATH", with "@" before an abstract socket's name; empty when there is no TCP
 * address, since grpc= names the socket then. */
static void unix_text(const char *list, char text[PATH_MAX])
{
    char first[PATH_MAX];
    text[0] = 0;
    if (!address_pick(list, false, first) || !address_pick(list, true, first)) return;
    snprintf(text, PATH_MAX, " unix=%s%s", first[4] == '-' ? "@" : "",
             strchr(first, ':') + 1);
}

static struct stat written; /* the own file; no mode = none was written */

void vx_ready_file_write(const struct vx_config *config, i32 grpc_port, i32 http_port)
{
    if (!config->ready_file[0]) return;
    char first[PATH_MAX], grpc[PATH_MAX], http[PATH_MAX], beyond[PATH_MAX];
    char line[3 * PATH_MAX + 64];
    struct vx_out out;
    if (!address_pick(config->grpc, false, first))
        (void)address_pick(config->grpc, true, first);
    address_text(first, grpc_port, grpc, sizeof grpc);
    address_text(config->http, http_port, http, sizeof http);
    unix_text(config->grpc, beyond);
    int length = snprintf(line, sizeof line, "grpc=%s http=%s pid=%d%s\n", grpc, http,
                          (int)getpid(), beyond);
    int error = vx_out_open(&out, config->ready_file, 0644, O_NONBLOCK);
    if (!error) error = vx_out_put(&out, line, (size_t)length);
    error = vx_out_end(&out, error);
    if (!error && lstat(config->ready_file, &written)) written.st_mode = 0;
    if (!error) return;
    VX_LOG(CONFIG, VX_LOG_TEXT("ready_file", config->ready_file),
           VX_LOG_TEXT("problem", "the file could not be written"),
           VX_LOG_TEXT("why", strerror(error)));
}

/* Whether a plain file is in its place. */
static bool file_find(const struct vx_config *config, struct stat *there)
{
    return config->ready_file[0] && !lstat(config->ready_file, there) &&
           S_ISREG(there->st_mode);
}

static void file_remove(const struct vx_config *config)
{
    if (!unlink(config->ready_file) || errno == ENOENT) return;
    VX_LOG(CONFIG, VX_LOG_TEXT("ready_file", config->ready_file),
           VX_LOG_TEXT("problem", "the old file could not be removed"),
           VX_LOG_TEXT("why", strerror(errno)));
}

void vx_ready_file_remove(const struct vx_config *config)
{
    struct stat there;
    if (file_find(config, &there)) file_remove(config);
}

void vx_ready_file_end(const struct vx_config *config)
{
    struct stat there;
    if (file_find(config, &there) && S_ISREG(written.st_mode) &&
        there.st_dev == written.st_dev && there.st_ino == written.st_ino &&
        !memcmp(&there.st_mtim, &written.st_mtim, sizeof there.st_mtim))
        file_remove(config);
}

vx_status vx_ready_file_expect(const struct vx_config *config, struct vx_why *why)
{
    char folder[PATH_MAX], who[64] = "";
    struct stat there;
    if (!config->ready_file[0]) return VX_OK;
    const char *slash = strrchr(config->ready_file, '/');
    int length = slash ? (int)(slash - config->ready_file) + 1 : 0;
    snprintf(folder, sizeof folder, "%.*s", slash ? length : 1,
             slash ? config->ready_file : ".");
    bool exists = !stat(config->ready_file, &there);
    bool special = exists && !S_ISREG(there.st_mode); /* written into, not replaced */
    bool good = (exists && !faccessat(AT_FDCWD, config->ready_file, W_OK, AT_EACCESS)) ||
                (!special && !faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS));
    int error = errno;
    if (error == EACCES)
        snprintf(who, sizeof who, ": voxeld runs as user %u", (unsigned)geteuid());
    VX_ENSURE_WHY(
        good, why, NOT_FOUND, "the ready file cannot be written",
        "ready_file: '%.100s' cannot be written: %s%s; expected a path in a directory "
        "that voxeld may write to",
        config->ready_file, strerror(error), who);
    VX_ENSURE_WHY(!special || !S_ISDIR(there.st_mode), why, NOT_FOUND,
                  "the ready file is a directory",
                  "ready_file: expected the path of a file, got the directory '%.100s'",
                  config->ready_file);
    return VX_OK;
}

static struct {
    uv_work_t work;
    const struct vx_config *config;
    i32 grpc_port, http_port;
} post; /* a process has one ready file */

static void post_on_work(uv_work_t *work)
{
    (void)work;
    vx_ready_file_write(post.config, post.grpc_port, post.http_port);
}

void vx_ready_file_post(uv_loop_t *loop, const struct vx_config *config, i32 grpc_port,
                        i32 http_port)
{
    VX_ASSERT(!post.config);
    post.config = config;
    post.grpc_port = grpc_port;
    post.http_port = http_port;
    VX_ASSERT(!uv_queue_work(loop, &post.work, post_on_work, NULL));
}
