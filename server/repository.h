/* repository - what is in the model directory right now: names, versions, fingerprints.
 *
 * A scan reads directory entries and file sizes and times, no file contents; it blocks,
 * so the front runs it on libuv's pool.
 *
 *   vx_repository_scan(path, listing);
 *   VX_TRY(vx_repository_check(directory, version, fingerprint, &why));
 *
 * The check is the worker's, before and after it has read a version: what it has loaded is
 * then what the front listed, and not what somebody wrote in its place meanwhile.
 *
 * Owner    the listing is the caller's memory.
 * Thread   any; one scan at a time per listing.
 * Limits   VX_LISTING_MAX versions; more are left out and said in `problem`.
 * Fails    scan never: what is not a model is said in `problem`, the rest is listed.
 *          check: FAILED_PRECONDITION when the files are others.  expect: NOT_FOUND,
 *          INVALID_ARGUMENT.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_REPOSITORY_H
#define VX_SERVER_REPOSITORY_H

#include "server/sched.h"

/* Versions in one repository: more than can be loaded at once, since with model_control
 * explicit most of them may lie and wait. */
#define VX_LISTING_MAX (8 * VX_INSTANCES_MAX)

struct vx_repository_entry {
    char name[VX_NAME_BYTES];
    i64 version;
    i64 weights_bytes; /* of weights.safetensors; 0 = there is none */
    u64 fingerprint;   /* of sizes and modification times of network.json and
                        weights.safetensors */
};
struct vx_repository_listing {
    bool
        complete; /* false: a part could not be read; what is missing may still be there */
    bool readable; /* false: the directory itself could not be read; nothing else is said
                    */
    bool quiet; /* a look of the server's own: what failed is not tried again unchanged */
    i64 begun_ns; /* what was there then is in it */
    i32 count;
    struct vx_repository_entry entries[VX_LISTING_MAX];
    struct vx_why problem; /* the last thing that was odd; "" when all was well */
};

void vx_repository_scan(const char *path, struct vx_repository_listing *listing);

/* Whether the path can be a repository at all: a directory that can be read, and not a model's
 * own.  For start; blocks. */
VX_MUST_USE vx_status vx_repository_expect(const char *path, struct vx_why *why);

/* Whether a version in a model's directory still has the fingerprint of its entry. */
VX_MUST_USE vx_status vx_repository_check(const char *directory, i64 version,
                                          u64 fingerprint, struct vx_why *why);

#endif
