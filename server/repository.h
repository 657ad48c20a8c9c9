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
 * Limits   VX_LISTING_MAX versions; more are left out, and `odds` says so.
 *          VX_REPOSITORY_ODDS_MAX odd things are kept, all are counted.
 * Fails    scan never: what is not a model is said in `odds`, the rest is listed.
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
#define VX_LISTING_MAX (4 * VX_INSTANCES_MAX)

/* Things that are not served, kept with their sentences. */
#define VX_REPOSITORY_ODDS_MAX 16

/* Why an entry that is wanted has no row. */
#define VX_REPOSITORY_TEXT_(number_) #number_
#define VX_REPOSITORY_TEXT(number_)  VX_REPOSITORY_TEXT_(number_)
#define VX_REPOSITORY_NO_ROW                                                             \
    "not loaded: at most " VX_REPOSITORY_TEXT(                                           \
        VX_INSTANCES_MAX) " model versions are loaded at once, and others came first"

struct vx_repository_entry {
    char name[VX_NAME_BYTES];
    i64 version;
    i64 weights_bytes; /* of weights.safetensors; 0 = there is none */
    u64 fingerprint;   /* of network.json and weights.safetensors: size, inode, times of
                        modification and of change */
    u64 network, weights; /* of one file each; network.json is of all versions */
    bool no_row;          /* set by who loads: wanted, and as many as can be are loaded */
};
/* Something in the repository that is not served. */
struct vx_repository_odd {
    char name[VX_NAME_BYTES]; /* of a directory in it; "" = of the repository itself */
    bool model;               /* it has a model's files, and somebody will ask for it */
    bool note; /* a model serves beside it, and is as ready as without it */
    struct vx_why why;
};
struct vx_repository_listing {
    bool
        complete; /* false: a part could not be read; what is missing may still be there */
    bool readable; /* false: the directory itself could not be read; nothing else is said
                    */
    bool quiet; /* a look of the server's own: what failed is not tried again unchanged */
    i64 begun_ns; /* what was there then is in it */
    i32 count;
    i32 missed;     /* set by who loads: models of which no version has a row */
    i32 odds_count; /* of all; the first are kept, and the last; notes go first */
    struct vx_repository_entry entries[VX_LISTING_MAX]; /* by name, then version */
    struct vx_repository_odd odds[VX_REPOSITORY_ODDS_MAX];
};

/* How many odd things are kept. */
static inline i32 vx_repository_odds(const struct vx_repository_listing *listing)
{
    return listing->odds_count < VX_REPOSITORY_ODDS_MAX ? listing->odds_count
                                                        : VX_REPOSITORY_ODDS_MAX;
}
/* The first of them; "" when all is well. */
static inline const char *
vx_repository_problem(const struct vx_repository_listing *listing)
{
    return listing->odds_count ? listing->odds[0].why.text : "";
}
/* Why a model that is in the repository is not loaded; `version` 0 = any.  False: nothing is
 * known, or it is not there. */
bool vx_repository_why_absent(const struct vx_repository_listing *listing,
                              const char *name, i64 version, struct vx_why *why);
/* What lies in a model's directory and is not served, though the model is; "" = nothing. */
const char *vx_repository_note(const struct vx_repository_listing *listing,
                               const char *name);

/* A version's directory is a positive decimal number of 31 bits without a leading zero; else 0. */
i64 vx_repository_version(const char *name);

void vx_repository_scan(const char *path, struct vx_repository_listing *listing);

/* Whether the path can be a repository at all: a directory that can be read, and not a model's
 * own.  For start; blocks. */
VX_MUST_USE vx_status vx_repository_expect(const char *path, struct vx_why *why);

/* Whether a version in a model's directory still has the fingerprint of its entry. */
VX_MUST_USE vx_status vx_repository_check(const char *directory, i64 version,
                                          u64 fingerprint, struct vx_why *why);

#endif
