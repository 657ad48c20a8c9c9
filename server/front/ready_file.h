/* ready_file - writes a file with the server's addresses once it is ready.
 *
 * The file has one line, `grpc=HOST:PORT http=HOST:PORT pid=N`, with the ports that were
 * really bound; of several gRPC addresses it names the first.  A Unix socket beside TCP
 * is added as ` unix=PATH`; a Unix socket alone is `grpc=unix:PATH`.  The line is written
 * to a second file, which is then renamed, so that a reader sees the whole line or no
 * file.  An empty setting means no file.
 *
 * The directory may be on a disk that hangs, and the loop must not wait for disks: post
 * writes on a thread of libuv's pool.  If a pipe is in the file's place, opening it does
 * not block.
 *
 * What is left of an earlier run would be taken for this one: a plain file in its place is
 * removed before anything is served, and the own one at the end, unless another server has
 * written its own there since.  Links, pipes and devices are never removed.
 *
 * Thread   post, remove, end: loop, once.  write: any.
 * Fails    expect: NOT_FOUND when the file cannot be created there.  A file that cannot
 *          be written later is logged, and serving continues.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_READY_FILE_H
#define VX_SERVER_READY_FILE_H

#include "server/base/config.h"

#include <uv.h>

/* Checks at start, when a person may still read the error, that the directory can be
 * written to.  Blocks. */
VX_MUST_USE vx_status vx_ready_file_expect(const struct vx_config *config,
                                           struct vx_why *why);
/* `config` must stay valid. */
void vx_ready_file_post(uv_loop_t *loop, const struct vx_config *config, i32 grpc_port,
                        i32 http_port);
/* Both block.  end: after the loop. */
void vx_ready_file_remove(const struct vx_config *config);
void vx_ready_file_end(const struct vx_config *config);
void vx_ready_file_write(const struct vx_config *config, i32 grpc_port, i32 http_port);

#endif
