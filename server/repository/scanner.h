/* scanner - scans the repository outside of the loop, and hands the listing to the loop.
 *
 *   vx_scanner_init(&scanner, &(struct vx_scanner_options){...});
 *   vx_scanner_start(&scanner);              at start, and on SIGHUP
 *   vx_scanner_look(&scanner);               when a poll is due, or a client asked
 *
 * A call during a scan causes one more scan after it, however many calls there were.
 *
 * Owner    the front; the listing is borrowed for on_listing.
 * Thread   loop; the scan itself runs on libuv's pool, which is for file work.
 * Fails    never; the listing says what could not be read.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_SCANNER_H
#define VX_SERVER_SCANNER_H

#include "server/repository/repository.h"

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
    bool quiet, again_quiet; /* `quiet` of the scan that runs, and of the one after it */
    struct vx_repository_listing listing;
};

void vx_scanner_init(struct vx_scanner *scanner,
                     const struct vx_scanner_options *options);
void vx_scanner_start(struct vx_scanner *scanner);
/* The same, but the listing is `quiet`: no person asked for it. */
void vx_scanner_look(struct vx_scanner *scanner);

#endif
