/* load - sends requests as a plan says and says how long they took.
 *
 * A closed loop keeps `concurrency` requests under way: it finds the throughput, and its
 * latency is that of a server which is never asked faster than it answers.  An open loop
 * sends at times drawn beforehand (Poisson), whatever the server does, and counts each
 * latency from the time the request should have been sent: so a stall is seen by all who
 * would have met it.
 *
 *   struct load_result result;
 *   if (load_run(&plan, &target, &result, &error)) ...
 *   load_print(&result, stdout);
 *   load_result_fini(&result);
 *
 * Owner    the caller owns the result; a ticket belongs to the request until load_finish.
 * Thread   closed: all on the caller's thread, which polls the client (threads = 0).
 *          Open: the caller's thread sends, the client's one thread (threads = 1)
 *          finishes.
 * Limits   LOAD_SAMPLES_MAX samples, LOAD_IN_FLIGHT_MAX requests under way in an open
 *          loop.
 * Fails    when the warm-up fails, with its error; later errors are counted by code.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_LOAD_H
#define VOXEL_CLIENTS_CLI_LOAD_H

#include "clients/c/voxel.h"

#include <stdio.h>

#define LOAD_SAMPLES_MAX   50000000
#define LOAD_IN_FLIGHT_MAX 4096
#define LOAD_CODES         17

struct load_plan {
    int64_t concurrency;
    double rate;       /* per second; above 0 = an open loop */
    double duration_s; /* 0 = until `requests` */
    int64_t requests;  /* 0 = until `duration_s` */
    int64_t warmup;    /* requests before, one by one, not counted */
    uint64_t seed;
};

struct load;
struct load_ticket {
    struct load *load;
    int64_t intended_ns;
};

struct load_target {
    struct voxel_client *client;
    void *context;
    /* Starts one request that ends in load_finish(ticket, ...), unless this fails. */
    enum voxel_code (*submit)(void *context, struct load_ticket *ticket,
                              struct voxel_error *error);
};

/* A request is over; the ticket is gone after. */
void load_finish(struct load_ticket *ticket, const struct voxel_error *error);

struct load_result {
    int64_t *latency_ns; /* sorted, of those that were answered */
    int64_t answered;
    int64_t not_sent; /* open loop: too many were under way */
    int64_t errors[LOAD_CODES];
    struct voxel_error first_error;
    double seconds;
};

enum voxel_code load_run(const struct load_plan *plan, const struct load_target *target,
                         struct load_result *result, struct voxel_error *error);
/* Nearest rank; 0 when nothing was answered. */
int64_t load_percentile(const struct load_result *result, double part);
double load_mean(const struct load_result *result);
int64_t load_errors(const struct load_result *result);
/* The table, and the same as members of a JSON object (without its braces). */
void load_print(const struct load_result *result, FILE *to);
void load_print_json(const struct load_result *result, FILE *to);
void load_result_fini(struct load_result *result);

#endif
