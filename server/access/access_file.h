/* access_file - reads the file of tokens, at the start and whenever it changes.
 *
 * At the start the file must be right.  Later one that is wrong changes nothing: the
 * table before it stays, and the log says why.  The file is looked at once a second and
 * on SIGHUP, outside of the loop.  Looking at its times and its number also finds a file
 * that was replaced, or a link that points elsewhere now, as Kubernetes updates a secret.
 *
 *   VX_TRY(vx_access_file_open(&file, &loop, path, access, &why));
 *   vx_access_file_look(&file);                       on SIGHUP
 *   vx_access_file_close(&file);                      then the loop runs until its end
 *
 * Owner    the front; must not move while it is open.
 * Thread   loop; reading runs on libuv's pool.
 * Limits   VX_ACCESS_FILE_BYTES_MAX.
 * Fails    read: NOT_FOUND for a file that cannot be read, PERMISSION_DENIED for one that
 *          others may write, INVALID_ARGUMENT with the place in it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_ACCESS_FILE_H
#define VX_SERVER_ACCESS_FILE_H

#include "server/access/access.h"

#include <uv.h>

/* Reads and checks a file.  *open: others may read it. */
VX_MUST_USE vx_status vx_access_file_read(const char *path, struct vx_why *why,
                                          struct vx_access_table *table, bool *open);

struct vx_access_file {
    const char *path; /* outlives it */
    struct vx_access *access;
    uv_loop_t *loop;
    uv_fs_poll_t poll;
    uv_work_t work;
    bool running, again;
    struct vx_access_table *table; /* that is being read */
    vx_status status;
    struct vx_why why;
    bool open;
};

VX_MUST_USE vx_status vx_access_file_open(struct vx_access_file *file, uv_loop_t *loop,
                                          const char *path, struct vx_access *access,
                                          struct vx_why *why);
void vx_access_file_look(struct vx_access_file *file);
void vx_access_file_close(struct vx_access_file *file);

#endif
