/* record - a network run by its parts: what one run needs, and what it leaves in the file.
 *
 *   record.c      the flags, the model directory, the example, the file
 *   record_run.c  one run: a network.json of its own, loaded, run, its arrays written
 *
 * Private to those two.
 *
 * Owner    record.c owns all of it.
 * Thread   one, which becomes the loading and the device thread.
 * Limits   -
 * Fails    as engine.h, npz.h and record_network.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_TOOLS_RECORD_H
#define VX_ENGINE_TOOLS_RECORD_H

#include "engine/tools/example.h"
#include "engine/tools/record_network.h"

#define VX_RECORD_PATH_BYTES 4096

struct vx_record {
    struct vx_record_source source;
    struct vx_record_plan plan;
    struct vx_example example;
    struct vx_npz *npz;
    struct vx_engine *engine;
    char work[64]; /* a folder of ours, in place of the model's; "" = not made yet */
    struct vx_page page;
};

/* Makes the folder, whose version 1 has the weights of `version`, an absolute path. */
VX_MUST_USE vx_status vx_record_work_make(struct vx_record *record, const char *version,
                                          struct vx_why *why);
void vx_record_work_remove(struct vx_record *record);
/* Runs the example: 0 .. runs_count - 1, or VX_RECORD_OUTPUTS. */
VX_MUST_USE vx_status vx_record_run(struct vx_record *record, i32 run,
                                    struct vx_why *why);

#endif
