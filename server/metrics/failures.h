/* failures - the requests that were refused or failed of late, one row for each reason.
 *
 * A reason is a code, a method, a model and a sentence without its numbers and the names
 * in it: a client that fails a thousand times a second takes one row, with its count and
 * the sentence that came last, whatever names it sends.  When all rows are taken, the code that has most of them loses the one that
 * came up longest ago, so that a flood of one kind does not hide the others.
 *
 *   vx_failures_note(failures, &(struct vx_failure){...});
 *   i32 count = vx_failures_list(failures, rows);
 *
 * Owner    the caller; rows are copied in and out.
 * Thread   any: some requests are refused before they reach the loop.
 * Limits   VX_FAILURES_MAX rows.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_FAILURES_H
#define VX_SERVER_FAILURES_H

#include "engine/base/limits.h"
#include "engine/base/status.h"

#include <pthread.h>

/* What a person reads on one page. */
#define VX_FAILURES_MAX 32

struct vx_failure {
    enum vx_code code;
    const char *method;        /* of service.def; static; "" when it is unknown */
    char model[VX_NAME_BYTES]; /* as the client wrote it; "" when it was not read */
    /* It has no model of that name, or it is not known whether: the name is the client's alone. */
    bool no_model;
    /* What the client was told, without what others must not read: coords_refs, voxels, names of
     * regions. */
    char text[VX_WHY_BYTES];
    /* Set by the ring. */
    i64 first_ms, last_ms; /* since 1970 */
    u64 count;
    u64 id;     /* of the row, never used again */
    u64 reason; /* hash of what makes rows different */
};

struct vx_failures {
    pthread_mutex_t lock;
    u64 ids; /* given so far */
    i32 count;
    struct vx_failure rows[VX_FAILURES_MAX]; /* the newest first */
};

void vx_failures_init(struct vx_failures *failures);
void vx_failures_fini(struct vx_failures *failures);
/* A request failed, now. */
void vx_failures_note(struct vx_failures *failures, const struct vx_failure *failure);
/* Copies the rows, the newest first, and returns how many there are. */
i32 vx_failures_list(struct vx_failures *failures,
                     struct vx_failure rows[VX_FAILURES_MAX]);

#endif
