/* access - who may call what, and how much: tokens, models, methods, limits.
 *
 * Each call is identified when its headers have come, before its message is read: by a
 * token, by the subject of its connection's certificate, or by nothing.  What came is
 * hashed, and the hash is looked up in the table of the file of tokens (access_table.h).
 * The call keeps a ticket; what follows later (models, bytes, voxels, messages of
 * streams) asks with it.  A ticket holds the hash, so that a table that is replaced
 * meanwhile applies at once: a stream whose token is no longer there is refused at its
 * next message, and health ends a Watch, which sends none.
 *
 *   VX_TRY(vx_access_enter(access, &arrival, &why, &call->ticket));
 *   VX_TRY(vx_access_model(access, &call->ticket, request->model, &why));
 *   VX_TRY(vx_access_spend(access, &call->ticket, &cost, now_ns, &why));
 *
 * Limits are buckets (access_limit.h): of an entry of the file, for all that it names,
 * and of a connection, for calls that it does not name.
 *
 * Owner    the front.
 * Thread   any: a lock guards everything.  It is held for a lookup, about 20 ns for each
 *          key of the table, and for the replacement of a table.
 * Limits   those of access_table.h; connections_max connections that are counted.
 * Fails    UNAUTHENTICATED: no token, a wrong one, an expired one.  PERMISSION_DENIED:
 *          not this method, not this model.  RESOURCE_EXHAUSTED: a limit, with the time
 *          after which it admits again.  No sentence has a token, or a part of one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_ACCESS_H
#define VX_SERVER_ACCESS_H

#include "server/access/access_table.h"

struct vx_access;

struct vx_access_options {
    bool tokens;          /* there is a file of tokens */
    bool health_asks;     /* health asks for a token, too */
    bool no_certificates; /* no client is asked for one */
    i32 connections_max;
    /* Of each connection, for calls that no entry names. */
    struct vx_access_limit connection[VX_ACCESS_UNITS];
};

/* Who a call is of. */
struct vx_access_ticket {
    u64 table;     /* which table `entry` belongs to */
    i32 entry;     /* -1 = nobody: no tokens are asked for, or it is health */
    bool named;    /* the entry is of `key`, and not of anyone */
    bool presents; /* `key` is what it presented */
    /* Its connection is counted since this call: vx_access_gone removes it. */
    bool adds;
    struct vx_access_key key;
    u64 connection;
    char name[VX_ACCESS_NAME_BYTES]; /* of the entry, for log lines; "" = nobody */
};

/* Why calls are refused, as metrics have it. */
enum vx_access_refusal {
    VX_ACCESS_REFUSED_NONE,    /* no token */
    VX_ACCESS_REFUSED_UNKNOWN, /* a token or certificate that is not in the file */
    VX_ACCESS_REFUSED_EXPIRED,
    VX_ACCESS_REFUSED_METHOD,
    VX_ACCESS_REFUSED_MODEL,
    VX_ACCESS_REFUSED_REQUESTS, /* limits */
    VX_ACCESS_REFUSED_BYTES,
    VX_ACCESS_REFUSED_VOXELS,
    VX_ACCESS_REFUSALS
};

struct vx_access_counts {
    u64 requests; /* admitted: calls, and messages of streams */
    u64 bytes, voxels;
    u64 refused[VX_ACCESS_REFUSALS];
};

VX_MUST_USE vx_status vx_access_open(const struct vx_access_options *options,
                                     struct vx_access **access);
void vx_access_close(struct vx_access **access);

/* Whether entries of the table wait for certificates, for which no client is asked. */
bool vx_access_waits_in_vain(const struct vx_access *access,
                             const struct vx_access_table *table);
/* The table to fill while the other one is in use.  One thread at a time. */
struct vx_access_table *vx_access_spare(struct vx_access *access);
/* The spare table applies from now on.  Entries keep their counts by name, and buckets
 * keep what is in them. */
void vx_access_use_spare(struct vx_access *access, i64 now_ns);

struct vx_access_arrival {
    i32 method;
    u64 connection;
    /* The value of the metadata `authorization`, borrowed; NULL = none came. */
    const char *authorization;
    size_t authorization_length;
    /* The subject of the client's certificate as RFC 2253 writes it, as the file has it; NULL =
     * none.  A token counts more. */
    const char *certificate;
    /* Its headers are all of the request: it is counted as one now.  False for a stream
     * of inferences: each of its messages is. */
    bool is_request;
    i64 now_ns;
};
VX_MUST_USE vx_status vx_access_enter(struct vx_access *access,
                                      const struct vx_access_arrival *arrival,
                                      struct vx_why *why,
                                      struct vx_access_ticket *ticket);
/* For the admin port, which has no methods: the entry must have the group `admin`. */
VX_MUST_USE vx_status vx_access_enter_admin(struct vx_access *access,
                                            const char *authorization, size_t length,
                                            struct vx_why *why);

/* What a request costs, or a part of it that is known now. */
struct vx_access_cost {
    i64 of[VX_ACCESS_UNITS];
    /* What the same request has paid before, with which it was admitted: it is not refused because
     * of that, but because of what others have paid since. */
    i64 paid[VX_ACCESS_UNITS];
};
/* As `paid`: it has run, and is refused in no case. */
#define VX_ACCESS_HAS_RUN INT64_MAX
/* Pays, or refuses.  Bytes are paid for in any case: they have come. */
VX_MUST_USE vx_status vx_access_spend(struct vx_access *access,
                                      struct vx_access_ticket *ticket,
                                      const struct vx_access_cost *cost, i64 now_ns,
                                      struct vx_why *why);
/* Whether a call that stays open and sends nothing more, such as a Watch, still may. */
VX_MUST_USE vx_status vx_access_stays(struct vx_access *access,
                                      struct vx_access_ticket *ticket, i32 method,
                                      struct vx_why *why);
/* Whether the call may name that model. */
VX_MUST_USE vx_status vx_access_model(struct vx_access *access,
                                      struct vx_access_ticket *ticket, const char *model,
                                      struct vx_why *why);
/* The same, for lists: not counted as a refusal. */
bool vx_access_sees(struct vx_access *access, struct vx_access_ticket *ticket,
                    const char *model);

/* Whether the file of tokens, as it is now, is what applies; for metrics. */
enum vx_access_file_state {
    VX_ACCESS_FILE_NONE,
    VX_ACCESS_FILE_BAD,
    VX_ACCESS_FILE_GOOD
};
void vx_access_file_state_set(struct vx_access *access, enum vx_access_file_state state);
enum vx_access_file_state vx_access_file_state(struct vx_access *access);

/* A connection has ended.  It may have ended before its last call was entered: after a
 * ticket that `adds`, the caller asks whether the connection lives. */
void vx_access_gone(struct vx_access *access, u64 connection);

/* The counts of entry i, 0 .. count - 1, with its name; false: there are no more.  Calls
 * that no entry covers have index -1 and the name "". */
bool vx_access_counts_get(struct vx_access *access, i32 i,
                          char name[VX_ACCESS_NAME_BYTES],
                          struct vx_access_counts *counts);

#endif
