/* load - sends requests according to a plan and measures how long they take.
 *
 * A closed loop keeps `concurrency` requests under way: it measures the throughput, and
 * the latency of a server that never gets requests faster than it answers.  An open loop
 * sends at random times (Poisson), whatever the server does, and counts each latency from
 * the time when the request should have been sent: a stall of the server then shows in
 * all requests that it delayed.  Neither asks a server that is away as fast as it can: in
 * a closed loop a request that found none is followed by the next after LOAD_PAUSE_NS.
 *
 *   struct load_result result;
 *   if (load_run(&plan, &target, &result, &error)) ...
 *   load_print(&result, stdout);
 *   load_result_fini(&result);
 *
 * Owner    the caller owns the result; a ticket belongs to the request until load_finish.
 * Thread   closed loop: all on the caller's thread, which polls the client (threads = 0).
 *          Open loop: the caller's thread sends, the client's one thread (threads = 1)
 *          calls load_finish.
 * Limits   LOAD_SAMPLES_MAX latencies; LOAD_IN_FLIGHT_MAX requests under way in an open
 *          loop.
 * Fails    with the first error of the warm-up or of `submit`; RESOURCE_EXHAUSTED without
 *          memory for latencies.  Requests that fail later are counted by code.
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
#define LOAD_PAUSE_NS      100000000

struct load_plan {
    int64_t concurrency;
    double rate;       /* per second; above 0 = an open loop */
    double duration_s; /* 0 = until `requests` */
    int64_t requests;  /* 0 = until `duration_s` */
    int64_t warmup;    /* requests sent first, one by one, and not counted */
    double warmup_s;   /* above 0 = none of them is sent after this time */
    uint64_t seed;     /* of an open loop's times */
};

struct load;
struct load_ticket {
    struct load *load;
    int64_t intended_ns;
};

struct load_target {
    struct voxel_client *client;
    void *context;
    /* Called between the warm-up and what is measured; may be NULL. */
    void (*on_warm)(void *context);
    /* Starts one request, whose end must call load_finish(ticket, ...), or fails. */
    enum voxel_code (*submit)(void *context, struct load_ticket *ticket,
                              struct voxel_error *error);
};

/* Counts the end of a request and frees its ticket. */
void load_finish(struct load_ticket *ticket, const struct voxel_error *error);

struct load_result {
    int64_t *latency_ns; /* of the answered requests, sorted */
    int64_t answered;
    int64_t not_sent; /* open loop: LOAD_IN_FLIGHT_MAX were under way */
    int64_t errors[LOAD_CODES];
    struct voxel_error first_error;
    double seconds;
};

/* Ends what load_run measures: nothing more is sent, and the requests under way are waited
 * for.  For a handler of a signal. */
void load_interrupt(void);
bool load_interrupted(void);

enum voxel_code load_run(const struct load_plan *plan, const struct load_target *target,
                         struct load_result *result, struct voxel_error *error);
/* The latency at `part` (0..1) of the sorted ones, by nearest rank; 0 without answers. */
int64_t load_percentile(const struct load_result *result, double part);
double load_mean(const struct load_result *result);
int64_t load_errors(const struct load_result *result);
/* Print the result as a table, or as members of a JSON object without its braces. */
void load_print(const struct load_result *result, FILE *to);
void load_print_json(const struct load_result *result, FILE *to);
void load_result_fini(struct load_result *result);

#endif
