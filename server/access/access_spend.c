/* access_spend - what a call costs its entry of the file and its connection.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/access/access_private.h"

#include "engine/base/process/clock.h"

#include <stdio.h>

/* A limit and its bucket: of an entry, or of a connection. */
struct meter {
    const struct vx_access_limit *limits;
    struct vx_access_bucket *buckets;
    bool shared; /* by clients that no entry names: the bucket of "anyone" */
};

static struct meter meter_of_entry(struct vx_access *access,
                                   const struct vx_access_ticket *ticket)
{
    struct vx_access_account *account = vx_access_account_of(access, ticket);
    if (!account) return (struct meter){.limits = NULL};
    return (struct meter){.limits = vx_access_entry_of(access, ticket)->limits,
                          .buckets = account->buckets,
                          .shared = !ticket->named};
}

static bool limits_any(const struct vx_access_limit limits[VX_ACCESS_UNITS])
{
    for (i32 u = 0; u < VX_ACCESS_UNITS; u++)
        if (limits[u].per_s > 0) return true;
    return false;
}

/* Only calls that the table does not name are measured by their connection. */
static bool measures_connection(const struct vx_access *access,
                                const struct vx_access_ticket *ticket)
{
    return !ticket->named && ticket->connection && limits_any(access->options.connection);
}

/* None for a connection whose end has been reported: what is left of it is late. */
static struct meter meter_of_connection(struct vx_access *access,
                                        const struct vx_access_ticket *ticket)
{
    struct vx_access_connection *row = NULL;
    if (measures_connection(access, ticket))
        row = vx_access_connections_find(&access->connections, ticket->connection);
    if (!row) return (struct meter){.limits = NULL};
    return (struct meter){.limits = access->options.connection, .buckets = row->buckets};
}

/* The first call of a connection that is measured adds it. */
vx_status vx_access_connection_add(struct vx_access *access,
                                   struct vx_access_ticket *ticket, i64 now_ns)
{
    if (!measures_connection(access, ticket) ||
        vx_access_connections_find(&access->connections, ticket->connection))
        return VX_OK;
    ticket->adds = vx_access_connections_add(&access->connections, ticket->connection,
                                             access->options.connection, now_ns) != NULL;
    VX_ENSURE(ticket->adds, RESOURCE_EXHAUSTED,
              "too many connections have ended a moment ago; try again later");
    return VX_OK;
}

static vx_status refuse_limit(const struct vx_access_spending *spending,
                              struct meter meter, enum vx_access_unit unit, i64 wait_ns)
{
    char who[VX_ACCESS_NAME_BYTES + 32] = "this connection";
    struct vx_access *access = spending->access;
    if (meter.limits != access->options.connection)
        snprintf(who, sizeof who, "token '%s'", spending->ticket->name);
    i64 wait_ms = (wait_ns - 1 + VX_NS_PER_MS - 1) / VX_NS_PER_MS;
    vx_access_counts_of(access, spending->ticket)
        ->refused[VX_ACCESS_REFUSED_REQUESTS + unit]++;
    VX_FAIL_WHY(
        spending->why, RESOURCE_EXHAUSTED,
        "a limit of a token or a connection is reached",
        "%s has used its limit of %.15g %s per second; try again in about %lld ms", who,
        meter.limits[unit].per_s, vx_access_unit_name(unit), (long long)wait_ms);
}

/* Fails if one of the units is used up. */
static vx_status meter_check(const struct vx_access_spending *spending,
                             struct meter meter)
{
    for (i32 u = 0; meter.limits && u < VX_ACCESS_UNITS; u++) {
        if (!(spending->units >> u & 1)) continue;
        i64 wait_ns = vx_access_bucket_wait_ns(&meter.limits[u], &meter.buckets[u],
                                               spending->cost->paid[u], spending->now_ns);
        if (wait_ns)
            return refuse_limit(spending, meter, (enum vx_access_unit)u, wait_ns);
    }
    return VX_OK;
}

/* Fails if a stranger wants more at once than a burst: one would put all others into debt,
 * for hours where models are large. */
static vx_status share_check(const struct vx_access_spending *spending,
                             struct meter meter)
{
    for (i32 u = 0; meter.shared && u < VX_ACCESS_UNITS; u++) {
        const struct vx_access_limit *limit = &meter.limits[u];
        i64 of = spending->cost->of[u], paid = spending->cost->paid[u];
        bool fits = (f64)of + (f64)paid <= limit->burst || paid == VX_ACCESS_HAS_RUN;
        if (limit->per_s <= 0 || !of || fits) continue;
        vx_access_counts_of(spending->access, spending->ticket)
            ->refused[VX_ACCESS_REFUSED_REQUESTS + u]++;
        VX_FAIL_WHY(spending->why, RESOURCE_EXHAUSTED,
                    "a request is larger than what clients without a token share",
                    "a request of '%s' may take at most %.15g %s, the burst that all its "
                    "clients share: expected a smaller one or a token, got %lld",
                    spending->ticket->name, limit->burst,
                    vx_access_unit_name((enum vx_access_unit)u), (long long)(of + paid));
    }
    return VX_OK;
}

static void meter_pay(struct meter meter, const struct vx_access_cost *cost)
{
    for (i32 u = 0; meter.limits && u < VX_ACCESS_UNITS; u++)
        (meter.shared ? vx_access_bucket_pay_shared : vx_access_bucket_pay)(
            &meter.limits[u], &meter.buckets[u], cost->of[u]);
}

/* Both the entry and the connection must admit it; then both pay. */
vx_status vx_access_pay(struct vx_access_spending *spending)
{
    struct meter entry = meter_of_entry(spending->access, spending->ticket);
    struct meter connection = meter_of_connection(spending->access, spending->ticket);
    struct vx_access_counts *counts =
        vx_access_counts_of(spending->access, spending->ticket);
    const struct vx_access_cost bytes = {
        .of = {[VX_ACCESS_BYTES] = spending->cost->of[VX_ACCESS_BYTES]}};
    for (i32 u = 0; u < VX_ACCESS_UNITS; u++)
        if (spending->cost->of[u]) spending->units |= UINT32_C(1) << u;
    vx_status st = share_check(spending, entry);
    if (!st.fault) st = meter_check(spending, entry);
    if (!st.fault) st = meter_check(spending, connection);
    const struct vx_access_cost *due = st.fault ? &bytes : spending->cost;
    meter_pay(entry, due);
    meter_pay(connection, due);
    counts->requests += (u64)due->of[VX_ACCESS_REQUESTS];
    counts->bytes += (u64)due->of[VX_ACCESS_BYTES];
    counts->voxels += (u64)due->of[VX_ACCESS_VOXELS];
    return st;
}
