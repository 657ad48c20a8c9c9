/* scanner - looks at the repository off the loop, and brings the listing back to it.
 *
 *   vx_scanner_init(&scanner, &(struct vx_scanner_options){...});
 *   vx_scanner_start(&scanner);              at start, and on SIGHUP
 *   vx_scanner_look(&scanner);               because it is time, or a client asked
 *
 * A wish during a scan is served by one more scan after it.
 *
 * Owner    the front; the listing is borrowed for on_listing.
 * Thread   loop; the scan itself runs on libuv's pool, which is for file work.
 * Fails    never; what cannot be read is in the listing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_SCANNER_H
#define VX_SERVER_SCANNER_H

#include "server/repository.h"

#include <uv.h>

struct vx_scanner_options {
    uv_loop_t *loop;
    const char *path; /* outlives the scanner */
    void *context;
    void (*on_listing)(void *context, const struct vx_repository_listing *listing);
};

struct vx_scanner {
    struct vx_scanner_options options;
    uv_work_t work;
    bool running, again;
    bool quiet, again_quiet; /* the scan that runs, and the one after it, are looks */
    struct vx_repository_listing listing;
};

void vx_scanner_init(struct vx_scanner *scanner,
                     const struct vx_scanner_options *options);
void vx_scanner_start(struct vx_scanner *scanner);
/* The same, but the listing is `quiet`: a person did not ask. */
void vx_scanner_look(struct vx_scanner *scanner);

#endif
