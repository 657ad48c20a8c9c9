/* repository - what is in the model directory now: names, versions, fingerprints.
 *
 * A scan reads directory entries and file sizes and times, no file contents; it blocks,
 * so the front runs it on libuv's pool.
 *
 *   vx_repository_scan(path, listing);
 *   VX_TRY(vx_repository_check(directory, version, fingerprint, &why));
 *
 * A worker calls the check before and after it reads a version, to be sure that it loaded
 * the files that the front listed, and not files that replaced them meanwhile.
 *
 * Owner    the listing is the caller's memory.
 * Thread   any; one scan at a time per listing.
 * Limits   VX_LISTING_MAX versions; more are left out, and `odds` says so.
 *          VX_REPOSITORY_ODDS_MAX entries of `odds` and `absent` are kept, and
 *          VX_REPOSITORY_UNREAD_MAX of `unread`; all are counted.
 * Fails    scan never: what cannot be served is described in `odds`, the rest is listed.
 *          check: FAILED_PRECONDITION when the files differ.  expect: NOT_FOUND,
 *          INVALID_ARGUMENT.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_REPOSITORY_H
#define VX_SERVER_REPOSITORY_H

#include "server/sched/sched.h"

/* Versions in one repository: more than can be loaded at once, because with model_control
 * explicit most of them may not be loaded. */
#define VX_LISTING_MAX (4 * VX_INSTANCES_MAX)

/* Things that are not served, each kept with a sentence about it. */
#define VX_REPOSITORY_ODDS_MAX 16

/* Folders that could not be read and whose names are kept: if there are more, any model may
 * be in one. */
#define VX_REPOSITORY_UNREAD_MAX 64

/* Why a wanted entry has no instance. */
#define VX_REPOSITORY_TEXT_(number_) #number_
#define VX_REPOSITORY_TEXT(number_)  VX_REPOSITORY_TEXT_(number_)
#define VX_REPOSITORY_NO_ROW                                                             \
    "not loaded: at most " VX_REPOSITORY_TEXT(                                           \
        VX_INSTANCES_MAX) " model versions are loaded at once, and as many others are"

struct vx_repository_entry {
    char name[VX_NAME_BYTES];
    i64 version;
    i64 weights_bytes; /* of weights.safetensors; 0 = there is none */
    /* Of both files: size, inode, times of modification and of change. */
    u64 fingerprint;
    u64 network, weights; /* of one file each; all versions share network.json */
    bool no_row;          /* set by models: it is wanted, but no instance was free */
    bool unwanted;        /* set by models: it is loaded when a client asks for it */
};
/* Something in the repository that is not served. */
struct vx_repository_odd {
    char name[VX_NAME_BYTES]; /* of a directory in it; "" = the repository itself */
    bool model;  /* it has a model's files or cannot be read: clients may ask for it */
    bool note;   /* its model serves nevertheless, and is as ready as without it */
    bool missed; /* set by models: it should serve, so the server is not ready */
    struct vx_why why;
};
struct vx_repository_listing {
    bool cut;      /* there are more versions than `entries` has: those behind the last */
    bool readable; /* false: the directory itself could not be read: nothing is listed */
    bool quiet;    /* no person asked for this scan: failed loads are not tried again */
    i64 begun_ns;  /* when the scan began: it has all that existed then */
    i32 count;
    i32 missed;      /* set by models: models of which no version has an instance */
    i32 odds_missed; /* set by models: how many of `odds` are missed */
    /* Kept or not: when `odds` is full, a new one replaces a note, else one that is no
     * model, else the last. */
    i32 odds_count;
    i32 absent_count; /* as odds_count */
    i32 unread_count; /* folders that could not be read, whole or in part */
    char unread[VX_REPOSITORY_UNREAD_MAX][VX_NAME_BYTES];
    struct vx_repository_entry entries[VX_LISTING_MAX]; /* by name, then version */
    struct vx_repository_odd odds[VX_REPOSITORY_ODDS_MAX];
    /* Set by models: what load_model names and `entries` and `odds` do not have. */
    struct vx_repository_odd absent[VX_REPOSITORY_ODDS_MAX];
};

/* How many entries of `odds` are kept. */
static inline i32 vx_repository_odds(const struct vx_repository_listing *listing)
{
    return listing->odds_count < VX_REPOSITORY_ODDS_MAX ? listing->odds_count
                                                        : VX_REPOSITORY_ODDS_MAX;
}
/* Whether all was read: what is not listed does not exist. */
static inline bool vx_repository_is_whole(const struct vx_repository_listing *listing)
{
    return listing->readable && !listing->cut && !listing->unread_count;
}
/* The sentence of the first; "" when there is none. */
static inline const char *
vx_repository_problem(const struct vx_repository_listing *listing)
{
    return listing->odds_count ? listing->odds[0].why.text : "";
}
/* Whether a model should serve and has no instance. */
static inline bool vx_repository_is_missed(const struct vx_repository_listing *listing)
{
    return listing->missed || listing->odds_missed || listing->absent_count;
}
/* The models without a version: those of `odds`, then `absent`.  Call with *cursor = 0
 * first; NULL at the end. */
const struct vx_repository_odd *
vx_repository_next_odd_model(const struct vx_repository_listing *listing, i32 *cursor);
/* Adds to `odds`; the name is "" for the repository itself. */
struct vx_repository_odd *vx_repository_add_odd(struct vx_repository_listing *listing,
                                                const char *name);
/* Puts `odds` in order again: by name, notes last. */
void vx_repository_sort_odds(struct vx_repository_listing *listing);
/* The entry of a version, or with `version` 0 of the lowest; NULL = none. */
const struct vx_repository_entry *
vx_repository_find(const struct vx_repository_listing *listing, const char *name,
                   i64 version);
/* Whether a version that is not listed may be in a part that was not read. */
bool vx_repository_may_have(const struct vx_repository_listing *listing, const char *name,
                            i64 version);
/* Why a model that should be in the repository is not loaded, for clients: without paths.
 * `version` 0 = any.  False: the listing has no reason, or nobody expects the model in
 * it. */
bool vx_repository_why_absent(const struct vx_repository_listing *listing,
                              const char *name, i64 version, struct vx_why *why);
/* What a served model's directory has that is not served; "" = nothing. */
const char *vx_repository_note(const struct vx_repository_listing *listing,
                               const char *name);

/* The version that a directory's name stands for: a positive decimal number of 31 bits
 * without leading zeros; 0 = any other name. */
i64 vx_repository_version(const char *name);
/* Checks that a model can have this name of so many bytes: INVALID_ARGUMENT. */
VX_MUST_USE vx_status vx_repository_check_name(const char *name, size_t bytes,
                                               struct vx_why *why);
/* Whether something in a model's directory is there and is no directory: no version. */
bool vx_repository_is_file(int directory, const char *name);

void vx_repository_scan(const char *path, struct vx_repository_listing *listing);

/* Checks that the path can be a repository: a readable directory that is not a model's
 * own.  Used at start; blocks. */
VX_MUST_USE vx_status vx_repository_expect(const char *path, struct vx_why *why);

/* Checks that a version in a model's directory still has the fingerprint of its entry. */
VX_MUST_USE vx_status vx_repository_check(const char *directory, i64 version,
                                          u64 fingerprint, struct vx_why *why);

#endif
