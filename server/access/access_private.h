/* access_private - what the files of access share; no other file includes it.
 *
 *   access.c         the object: tables, tickets, counts
 *   access_spend.c   what a call costs
 *
 * Owner    vx_access_open.
 * Thread   all functions under the lock.
 * Fails    as access.h says.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_ACCESS_PRIVATE_H
#define VX_SERVER_ACCESS_PRIVATE_H

#include "server/access/access.h"
#include "server/access/access_connections.h"

#include <pthread.h>

/* What an entry has used. */
struct vx_access_account {
    struct vx_access_bucket buckets[VX_ACCESS_UNITS];
    struct vx_access_counts counts;
};

struct vx_access {
    struct vx_access_options options;
    pthread_mutex_t lock;
    /* (lock) All that follows, but for the table that is not `now`. */
    struct vx_access_table tables[2];
    struct vx_access_account accounts[2][VX_ACCESS_ENTRIES_MAX];
    i32 now;  /* which of the two applies */
    u64 uses; /* tables that have been used: the number of the one that applies */
    struct vx_access_counts nobody;
    enum vx_access_file_state file;
    struct vx_access_connections connections;
};

/* Those of the ticket's entry; none for nobody. */
struct vx_access_account *vx_access_account_of(struct vx_access *access,
                                               const struct vx_access_ticket *ticket);
const struct vx_access_entry *vx_access_entry_of(const struct vx_access *access,
                                                 const struct vx_access_ticket *ticket);
struct vx_access_counts *vx_access_counts_of(struct vx_access *access,
                                             const struct vx_access_ticket *ticket);

/* One question about limits. */
struct vx_access_spending {
    struct vx_access *access;
    struct vx_access_ticket *ticket;
    const struct vx_access_cost *cost;
    u32 units; /* bit: must not be used up, though nothing of it may be paid yet */
    i64 now_ns;
    struct vx_why *why;
};
/* Both the entry and the connection must admit it; then both pay. */
VX_MUST_USE vx_status vx_access_pay(struct vx_access_spending *spending);
/* The first call of a connection that is measured adds it. */
VX_MUST_USE vx_status vx_access_connection_add(struct vx_access *access,
                                               struct vx_access_ticket *ticket,
                                               i64 now_ns);

#endif
