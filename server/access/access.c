/* SPDX-License-Identifier: Apache-2.0 */
#include "server/access/access_private.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"

#include <stdio.h>
#include <string.h>

/* Connections whose end is reported late, beyond connections_max. */
#define CONNECTIONS_SPARE 64

/* ------- open, close, replace ------- */

vx_status vx_access_open(const struct vx_access_options *options,
                         struct vx_access **access)
{
    struct vx_access *made = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for tokens");
    made->options = *options;
    made->tables[0].anyone = -1;
    made->uses = 1;
    VX_ASSERT(!pthread_mutex_init(&made->lock, NULL));
    *access = made;
    vx_status st = vx_access_connections_open(
        &made->connections, options->connections_max + CONNECTIONS_SPARE);
    if (st.fault) vx_access_close(access);
    return st;
}

void vx_access_close(struct vx_access **access)
{
    struct vx_access *going = *access;
    *access = NULL;
    if (!going) return;
    vx_access_connections_close(&going->connections);
    pthread_mutex_destroy(&going->lock);
    vx_free(going);
}

bool vx_access_waits_in_vain(const struct vx_access *access,
                             const struct vx_access_table *table)
{
    return access->options.no_certificates && table->certificates_count;
}

struct vx_access_table *vx_access_spare(struct vx_access *access)
{
    return &access->tables[!access->now]; /* `now` changes only in vx_access_use_spare */
}

/* The account of an entry of the new table: of the entry of that name before, or new. */
static void account_move(struct vx_access *access, i32 entry, i32 before, i64 now_ns)
{
    struct vx_access_account *account = &access->accounts[!access->now][entry];
    const struct vx_access_entry *is = &access->tables[!access->now].entries[entry];
    *account = (struct vx_access_account){.counts = {0}};
    if (before >= 0) *account = access->accounts[access->now][before];
    for (i32 u = 0; u < VX_ACCESS_UNITS; u++)
        if (before < 0)
            vx_access_bucket_fill(&is->limits[u], &account->buckets[u], now_ns);
        else
            vx_access_bucket_change(
                &access->tables[access->now].entries[before].limits[u], &is->limits[u],
                &account->buckets[u], now_ns);
}

void vx_access_use_spare(struct vx_access *access, i64 now_ns)
{
    i32 before[VX_ACCESS_ENTRIES_MAX];
    const struct vx_access_table *old = &access->tables[access->now];
    const struct vx_access_table *table = vx_access_spare(access);
    for (i32 e = 0; e < table->entries_count; e++) /* before the lock: it takes longest */
        before[e] = vx_access_table_named(old, table->entries[e].name);
    pthread_mutex_lock(&access->lock);
    for (i32 e = 0; e < table->entries_count; e++)
        account_move(access, e, before[e], now_ns);
    access->now = !access->now;
    access->uses++;
    pthread_mutex_unlock(&access->lock);
}

/* ------- of a ticket; under the lock ------- */

struct vx_access_account *vx_access_account_of(struct vx_access *access,
                                               const struct vx_access_ticket *ticket)
{
    return ticket->entry < 0 ? NULL : &access->accounts[access->now][ticket->entry];
}

const struct vx_access_entry *vx_access_entry_of(const struct vx_access *access,
                                                 const struct vx_access_ticket *ticket)
{
    return &access->tables[access->now].entries[ticket->entry];
}

struct vx_access_counts *vx_access_counts_of(struct vx_access *access,
                                             const struct vx_access_ticket *ticket)
{
    struct vx_access_account *account = vx_access_account_of(access, ticket);
    return account ? &account->counts : &access->nobody;
}

/* ------- who it is; under the lock ------- */

static vx_status check_expiry(struct vx_access *access, struct vx_access_ticket *ticket,
                              struct vx_why *why)
{
    const struct vx_access_entry *entry = vx_access_entry_of(access, ticket);
    if (!entry->expires_ms || vx_clock_wall_ms() < entry->expires_ms) return VX_OK;
    vx_access_counts_of(access, ticket)->refused[VX_ACCESS_REFUSED_EXPIRED]++;
    VX_FAIL_WHY(why, UNAUTHENTICATED, "a token has expired",
                "token '%s' has expired: expected one that is still valid", ticket->name);
}

static bool presents_token(const struct vx_access_ticket *ticket)
{
    return ticket->presents && ticket->key.kind == VX_ACCESS_TOKEN;
}

/* Looks the ticket up in the table that applies now.  A certificate that the table does not
 * name is anyone's, as a call without one: a client shows it because the connection wants
 * it, and cannot leave it out.  A wrong token is nobody's. */
static void look_up(struct vx_access *access, struct vx_access_ticket *ticket)
{
    const struct vx_access_table *table = &access->tables[access->now];
    if (ticket->table == access->uses) return;
    ticket->table = access->uses;
    ticket->entry = ticket->presents ? vx_access_table_find(table, &ticket->key) : -1;
    ticket->named = ticket->entry >= 0;
    if (!ticket->named && !presents_token(ticket)) ticket->entry = table->anyone;
    ticket->name[0] = '\0';
    if (ticket->entry >= 0)
        memcpy(ticket->name, table->entries[ticket->entry].name, sizeof ticket->name);
}

/* The same, and fails for what is not known or no longer valid. */
static vx_status identify(struct vx_access *access, struct vx_access_ticket *ticket,
                          struct vx_why *why)
{
    look_up(access, ticket);
    if (ticket->entry >= 0) return check_expiry(access, ticket, why);
    if (!presents_token(ticket)) return VX_OK; /* who may be nobody decides the caller */
    access->nobody.refused[VX_ACCESS_REFUSED_UNKNOWN]++;
    VX_FAIL(UNAUTHENTICATED,
            "the token is not known here, or no longer: expected one whose hash is in "
            "the server's file of tokens");
}

/* Fails for a call of nobody where tokens are asked for. */
static vx_status check_somebody(struct vx_access *access,
                                const struct vx_access_ticket *ticket)
{
    if (ticket->entry >= 0 || !access->options.tokens) return VX_OK;
    access->nobody
        .refused[ticket->presents ? VX_ACCESS_REFUSED_UNKNOWN : VX_ACCESS_REFUSED_NONE]++;
    VX_ENSURE(!ticket->presents, UNAUTHENTICATED,
              "the client's certificate is not known here, or no longer: expected one "
              "whose subject the server's file of tokens has, or a token");
    VX_FAIL(UNAUTHENTICATED,
            "no token came: expected the metadata 'authorization' to be 'Bearer TOKEN'");
}

/* Adds " NAME" of each group. */
static void groups_text(u32 groups, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (i32 g = 0; g < VX_ACCESS_GROUPS && used < bytes; g++)
        if (groups >> g & 1)
            used += (size_t)snprintf(text + used, bytes - used, " %s",
                                     vx_access_group_name((enum vx_access_group)g));
}

static vx_status check_group(struct vx_access *access, struct vx_access_ticket *ticket,
                             enum vx_access_group group, const char *method,
                             struct vx_why *why)
{
    if (ticket->entry < 0 || group == VX_ACCESS_HEALTH) return VX_OK;
    u32 groups = vx_access_entry_of(access, ticket)->groups;
    if (groups >> group & 1) return VX_OK;
    char has[80];
    groups_text(groups, has, sizeof has);
    vx_access_counts_of(access, ticket)->refused[VX_ACCESS_REFUSED_METHOD]++;
    VX_FAIL_WHY(why, PERMISSION_DENIED, "a token does not permit the method",
                "token '%s' does not permit %s, of the methods '%s'; it permits:%s",
                ticket->name, method, vx_access_group_name(group), has);
}

/* ------- calls ------- */

/* What a call presents, as a key. */
static vx_status present(struct vx_access *access,
                         const struct vx_access_arrival *arrival, struct vx_why *why,
                         struct vx_access_ticket *ticket)
{
    const char *token;
    size_t length;
    *ticket = (struct vx_access_ticket){.entry = -1, .connection = arrival->connection};
    if (!access->options.tokens) return VX_OK; /* what comes is not for us */
    ticket->presents = true;
    if (arrival->authorization) {
        VX_TRY(vx_access_bearer(arrival->authorization, arrival->authorization_length,
                                why, &token, &length));
        vx_access_key_of(VX_ACCESS_TOKEN, token, length, &ticket->key);
    } else if (arrival->certificate) {
        vx_access_key_of(VX_ACCESS_CERTIFICATE, arrival->certificate,
                         strlen(arrival->certificate), &ticket->key);
    } else {
        ticket->presents = false;
    }
    return VX_OK;
}

static vx_status enter(struct vx_access *access, const struct vx_access_arrival *arrival,
                       struct vx_why *why, struct vx_access_ticket *ticket)
{
    enum vx_access_group group = vx_access_group_of(arrival->method);
    bool open = group == VX_ACCESS_HEALTH && !access->options.health_asks;
    look_up(access, ticket);
    /* A probe is asked for no token, not even where "anyone" has expired.  One that it
     * sends must be right: its owner would not learn otherwise that it is not. */
    if (open && !presents_token(ticket)) return VX_OK;
    VX_TRY(identify(access, ticket, why));
    if (!open) VX_TRY(check_somebody(access, ticket));
    VX_TRY(
        check_group(access, ticket, group, vx_access_method_name(arrival->method), why));
    if (group == VX_ACCESS_HEALTH) return VX_OK;
    VX_TRY(vx_access_connection_add(access, ticket, arrival->now_ns));
    if (!arrival->is_request) return VX_OK;
    /* An inference that could not be paid for is refused before its message is read. */
    const struct vx_access_cost one = {.of = {[VX_ACCESS_REQUESTS] = 1}};
    return vx_access_pay(
        &(struct vx_access_spending){.access = access,
                                     .ticket = ticket,
                                     .cost = &one,
                                     .units = group == VX_ACCESS_INFER ? UINT32_MAX : 0,
                                     .now_ns = arrival->now_ns,
                                     .why = why});
}

vx_status vx_access_enter(struct vx_access *access,
                          const struct vx_access_arrival *arrival, struct vx_why *why,
                          struct vx_access_ticket *ticket)
{
    vx_status st = present(access, arrival, why, ticket);
    pthread_mutex_lock(&access->lock);
    if (st.fault)
        access->nobody.refused[VX_ACCESS_REFUSED_UNKNOWN]++;
    else
        st = enter(access, arrival, why, ticket);
    pthread_mutex_unlock(&access->lock);
    return st;
}

vx_status vx_access_enter_admin(struct vx_access *access, const char *authorization,
                                size_t length, struct vx_why *why)
{
    struct vx_access_ticket ticket;
    vx_status st = present(access,
                           &(struct vx_access_arrival){.authorization = authorization,
                                                       .authorization_length = length},
                           why, &ticket);
    pthread_mutex_lock(&access->lock);
    if (st.fault) access->nobody.refused[VX_ACCESS_REFUSED_UNKNOWN]++;
    if (!st.fault) st = identify(access, &ticket, why);
    if (!st.fault) st = check_somebody(access, &ticket);
    if (!st.fault)
        st = check_group(access, &ticket, VX_ACCESS_ADMIN, "the admin port", why);
    pthread_mutex_unlock(&access->lock);
    return st;
}

vx_status vx_access_spend(struct vx_access *access, struct vx_access_ticket *ticket,
                          const struct vx_access_cost *cost, i64 now_ns,
                          struct vx_why *why)
{
    pthread_mutex_lock(&access->lock);
    vx_status st = identify(access, ticket, why);
    if (!st.fault) st = check_somebody(access, ticket);
    if (!st.fault)
        st = vx_access_pay(
            &(struct vx_access_spending){access, ticket, cost, 0, now_ns, why});
    pthread_mutex_unlock(&access->lock);
    return st;
}

vx_status vx_access_stays(struct vx_access *access, struct vx_access_ticket *ticket,
                          i32 method, struct vx_why *why)
{
    pthread_mutex_lock(&access->lock);
    vx_status st = identify(access, ticket, why);
    if (!st.fault) st = check_somebody(access, ticket);
    if (!st.fault)
        st = check_group(access, ticket, vx_access_group_of(method),
                         vx_access_method_name(method), why);
    pthread_mutex_unlock(&access->lock);
    return st;
}

/* Under the lock. */
static bool sees(struct vx_access *access, const struct vx_access_ticket *ticket,
                 const char *model)
{
    if (ticket->entry < 0) return !access->options.tokens;
    return vx_access_entry_has(vx_access_entry_of(access, ticket), model);
}

static vx_status check_model(struct vx_access *access, struct vx_access_ticket *ticket,
                             const char *model, struct vx_why *why)
{
    VX_TRY(identify(access, ticket, why));
    VX_TRY(check_somebody(access, ticket));
    if (sees(access, ticket, model)) return VX_OK;
    vx_access_counts_of(access, ticket)->refused[VX_ACCESS_REFUSED_MODEL]++;
    VX_FAIL_WHY(why, PERMISSION_DENIED, "a token does not permit the model",
                "token '%s' does not permit model '%.100s'", ticket->name, model);
}

vx_status vx_access_model(struct vx_access *access, struct vx_access_ticket *ticket,
                          const char *model, struct vx_why *why)
{
    pthread_mutex_lock(&access->lock);
    vx_status st = check_model(access, ticket, model, why);
    pthread_mutex_unlock(&access->lock);
    return st;
}

bool vx_access_sees(struct vx_access *access, struct vx_access_ticket *ticket,
                    const char *model)
{
    struct vx_why why;
    pthread_mutex_lock(&access->lock);
    bool yes = !identify(access, ticket, &why).fault && sees(access, ticket, model);
    pthread_mutex_unlock(&access->lock);
    return yes;
}

void vx_access_file_state_set(struct vx_access *access, enum vx_access_file_state state)
{
    pthread_mutex_lock(&access->lock);
    access->file = state;
    pthread_mutex_unlock(&access->lock);
}

enum vx_access_file_state vx_access_file_state(struct vx_access *access)
{
    pthread_mutex_lock(&access->lock);
    enum vx_access_file_state state = access->file;
    pthread_mutex_unlock(&access->lock);
    return state;
}

void vx_access_gone(struct vx_access *access, u64 connection)
{
    pthread_mutex_lock(&access->lock);
    vx_access_connections_remove(&access->connections, connection);
    pthread_mutex_unlock(&access->lock);
}

bool vx_access_counts_get(struct vx_access *access, i32 i,
                          char name[VX_ACCESS_NAME_BYTES],
                          struct vx_access_counts *counts)
{
    pthread_mutex_lock(&access->lock);
    const struct vx_access_table *table = &access->tables[access->now];
    bool there = i < table->entries_count;
    name[0] = '\0';
    if (there) *counts = i < 0 ? access->nobody : access->accounts[access->now][i].counts;
    if (there && i >= 0)
        snprintf(name, VX_ACCESS_NAME_BYTES, "%s", table->entries[i].name);
    pthread_mutex_unlock(&access->lock);
    return there;
}
