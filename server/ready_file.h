/* ready_file - tells whoever started us, in one line of a file, where we serve.
 *
 * `grpc=HOST:PORT http=HOST:PORT pid=N`, with the ports that were really bound, of several
 * addresses the first.  A Unix socket beside TCP is ` unix=PATH` at the end; where there is
 * nothing else it is `grpc=unix:PATH`.  Written beside and renamed, so that a reader sees
 * the whole line or no file.  No file when the setting is empty.
 *
 * The directory may be on a disk that hangs, and the loop does not wait for disks: post writes on a
 * thread of libuv's pool.  A pipe in the file's place is not waited for either.
 *
 * Thread   post: loop, once.  write: any.
 * Fails    expect: NOT_FOUND, when the file could not be made where it is to be.  A file that
 *          cannot be written later is logged; serving goes on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_READY_FILE_H
#define VX_SERVER_READY_FILE_H

#include "server/config.h"

#include <uv.h>

/* At start, when somebody is still there to read it: whether there is a directory to write
 * into.  Blocks. */
VX_MUST_USE vx_status vx_ready_file_expect(const struct vx_config *config,
                                           struct vx_why *why);
/* `config` stays. */
void vx_ready_file_post(uv_loop_t *loop, const struct vx_config *config, i32 grpc_port,
                        i32 http_port);
void vx_ready_file_write(const struct vx_config *config, i32 grpc_port, i32 http_port);

#endif
