/* ready_file - tells whoever started us, in one line of a file, where we serve.
 *
 * `grpc=HOST:PORT http=HOST:PORT pid=N`, with the ports that were really bound, of several
 * addresses the first.  A Unix socket beside TCP is ` unix=PATH` at the end; where there is
 * nothing else it is `grpc=unix:PATH`.  Written beside and renamed, so that a reader sees
 * the whole line or no file.  No file when the setting is empty.
 *
 * Thread   loop; a few bytes, once, before the first request is answered.
 * Fails    a file that cannot be written is logged; serving goes on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_READY_FILE_H
#define VX_SERVER_READY_FILE_H

#include "server/config.h"

void vx_ready_file_write(const struct vx_config *config, i32 grpc_port, i32 http_port);

#endif
