/* repository - what is in the model directory right now: names, versions, fingerprints.
 *
 * A scan reads directory entries and file sizes and times, no file contents; it blocks,
 * so the front runs it on libuv's pool.
 *
 *   vx_repository_scan(path, listing);
 *
 * Owner    the listing is the caller's memory.
 * Thread   any; one scan at a time per listing.
 * Limits   VX_INSTANCES_MAX versions; more are left out and said in `problem`.
 * Fails    never: what is not a model is said in `problem`, the rest is listed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_REPOSITORY_H
#define VX_SERVER_REPOSITORY_H

#include "server/sched.h"

struct vx_repository_entry {
    char name[VX_NAME_BYTES];
    i64 version;
    u64 fingerprint; /* of sizes and modification times of network.json and
                        weights.safetensors */
};
struct vx_repository_listing {
    bool
        complete; /* false: a part could not be read; what is missing may still be there */
    bool readable; /* false: the directory itself could not be read; nothing else is said
                    */
    i32 count;
    struct vx_repository_entry entries[VX_INSTANCES_MAX];
    struct vx_why problem; /* the last thing that was odd; "" when all was well */
};

void vx_repository_scan(const char *path, struct vx_repository_listing *listing);

#endif
