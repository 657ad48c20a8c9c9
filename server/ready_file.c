/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/ready_file.h"

#include "engine/base/log.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* HOST of "HOST:PORT" with the port that was bound; "unix:PATH" as it is. */
static void address_text(const char *configured, i32 port, char *text, size_t bytes)
{
    const char *colon = strrchr(configured, ':');
    if (!strncmp(configured, "unix:", 5) || !colon)
        snprintf(text, bytes, "%s", configured);
    else
        snprintf(text, bytes, "%.*s:%d", (int)(colon - configured), configured, port);
}

void vx_ready_file_write(const struct vx_config *config, i32 grpc_port, i32 http_port)
{
    if (!config->ready_file[0]) return;
    char grpc[PATH_MAX], http[PATH_MAX], line[2 * PATH_MAX + 64], beside[PATH_MAX + 8];
    address_text(config->grpc, grpc_port, grpc, sizeof grpc);
    address_text(config->http, http_port, http, sizeof http);
    int length = snprintf(line, sizeof line, "grpc=%s http=%s pid=%d\n", grpc, http,
                          (int)getpid());
    snprintf(beside, sizeof beside, "%s.new", config->ready_file);
    int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool written = fd >= 0 && write(fd, line, (size_t)length) == length;
    if (fd >= 0 && close(fd)) written = false;
    if (!written || rename(beside, config->ready_file))
        VX_LOG(CONFIG, VX_LOG_TEXT("ready_file", config->ready_file),
               VX_LOG_TEXT("problem", "it could not be written"));
}
