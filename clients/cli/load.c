/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/load.h"

#include "clients/c/error.h"
#include "clients/c/memory.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct load {
    const struct load_plan *plan;
    const struct load_target *target;
    struct load_result *result;
    int64_t room;
    int64_t sent;
    int64_t end_ns; /* nothing is sent after it */
    bool measuring;
    bool repeat;            /* closed loop: the end of one request sends the next */
    int64_t owed;           /* closed loop: requests that are sent after a pause */
    int64_t resume_ns;      /* its end */
    bool full;              /* no memory for more latencies */
    enum voxel_code broken; /* a request could not be submitted */
};

static atomic_bool interrupted;

void load_interrupt(void)
{
    atomic_store(&interrupted, true);
}

bool load_interrupted(void)
{
    return atomic_load(&interrupted);
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void add_sample(struct load *load, int64_t ns)
{
    struct load_result *result = load->result;
    if (result->answered == load->room && !load->full) {
        int64_t room = load->room ? load->room * 2 : 1 << 16;
        int64_t *more = NULL;
        if (room <= 2 * (int64_t)LOAD_SAMPLES_MAX)
            more = voxel_memory_grow(result->latency_ns, (size_t)room * sizeof *more);
        load->full = more == NULL;
        if (more) {
            result->latency_ns = more;
            load->room = room;
        }
    }
    if (!load->full) result->latency_ns[result->answered++] = ns;
}

static void send_one(struct load *load, int64_t intended_ns)
{
    struct load_ticket *ticket = voxel_memory_take(1, sizeof *ticket);
    struct voxel_error error = {0};
    enum voxel_code code = VOXEL_RESOURCE_EXHAUSTED;
    load->sent++;
    if (ticket) {
        *ticket = (struct load_ticket){load, intended_ns};
        code = load->target->submit(load->target->context, ticket, &error);
    } else {
        voxel_error_memory(&error, "a request", sizeof *ticket);
    }
    if (code == VOXEL_OK) return;
    load->broken = code;
    load->result->first_error = error;
    voxel_memory_give(ticket);
}

static bool wants_more(const struct load *load, int64_t now)
{
    if (load->broken || load->full || load_interrupted()) return false;
    if (load->plan->requests && load->sent >= load->plan->requests) return false;
    return now < load->end_ns;
}

void load_finish(struct load_ticket *ticket, const struct voxel_error *error)
{
    struct load *load = ticket->load;
    int64_t now = now_ns();
    int64_t ns = now - ticket->intended_ns;
    voxel_memory_give(ticket);
    if (error->code) {
        size_t code =
            (size_t)error->code < LOAD_CODES ? (size_t)error->code : VOXEL_UNKNOWN;
        if (load->result->errors[code]++ == 0 && !load->result->first_error.code)
            load->result->first_error = *error;
    } else if (load->measuring) {
        add_sample(load, ns);
    }
    if (!load->repeat || !wants_more(load, now)) return;
    if (error->code != VOXEL_UNAVAILABLE) {
        send_one(load, now_ns());
        return;
    }
    if (!load->owed++) load->resume_ns = now + LOAD_PAUSE_NS;
}

static void wait_quiet(struct load *load, bool poll)
{
    const struct timespec pause = {.tv_nsec = 200000};
    while (voxel_client_in_flight(load->target->client) > 0) {
        if (poll)
            voxel_client_poll(load->target->client, -1);
        else
            nanosleep(&pause, NULL);
    }
}

/* Sends what is owed, once the pause is over.  Until then waits for answers, or for its end
 * if none is under way. */
static void pay_owed(struct load *load)
{
    struct voxel_client *client = load->target->client;
    const int64_t left_ns = load->resume_ns - now_ns();
    if (left_ns > 0 && voxel_client_in_flight(client) > 0) {
        voxel_client_poll(client, left_ns / 1000 + 1);
        return;
    }
    const struct timespec pause = {.tv_nsec = left_ns > 0 ? (long)left_ns : 0};
    nanosleep(&pause, NULL); /* a signal ends it early, and then nothing is sent */
    for (int64_t count = load->owed; count > 0; count--, load->owed--)
        if (wants_more(load, now_ns())) send_one(load, now_ns());
}

static void run_closed(struct load *load)
{
    load->repeat = true;
    for (int64_t i = 0; i < load->plan->concurrency; i++)
        if (wants_more(load, now_ns())) send_one(load, now_ns());
    while (load->owed || voxel_client_in_flight(load->target->client) > 0) {
        if (load->owed)
            pay_owed(load);
        else
            voxel_client_poll(load->target->client, -1);
    }
}

/* A gap of a Poisson process: exponential with mean 1/rate, by inversion of a uniform
 * number (xorshift64*). */
static int64_t next_gap_ns(uint64_t *state, double rate)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    uint64_t mixed = *state * 0x2545f4914f6cdd1du;
    double u = ((double)(mixed >> 11) + 0.5) / 9007199254740992.0;
    return (int64_t)(-log(u) / rate * 1e9);
}

static void run_open(struct load *load)
{
    uint64_t state = load->plan->seed * 0x9e3779b97f4a7c15u + 1;
    int64_t intended = now_ns();
    for (;;) {
        intended += next_gap_ns(&state, load->plan->rate);
        if (!wants_more(load, intended)) break;
        const struct timespec until = {.tv_sec = intended / 1000000000,
                                       .tv_nsec = intended % 1000000000};
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) != 0 &&
               !load_interrupted())
            continue;
        if (load_interrupted()) break;
        if (voxel_client_in_flight(load->target->client) < LOAD_IN_FLIGHT_MAX) {
            send_one(load, intended);
        } else {
            load->sent++;
            load->result->not_sent++;
        }
    }
    wait_quiet(load, false);
}

static enum voxel_code run_warmup(struct load *load, bool poll, struct voxel_error *error)
{
    const double limit_s = load->plan->warmup_s;
    int64_t end_ns = limit_s > 0 ? now_ns() + (int64_t)(limit_s * 1e9) : INT64_MAX;
    load->end_ns = INT64_MAX;
    for (int64_t i = 0; i < load->plan->warmup && now_ns() < end_ns; i++) {
        send_one(load, now_ns());
        wait_quiet(load, poll);
        const struct voxel_error *first = &load->result->first_error;
        if (first->code) return voxel_error_set(error, first->code, "%s", first->text);
    }
    load->sent = 0;
    return VOXEL_OK;
}

static int compare_ns(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

enum voxel_code load_run(const struct load_plan *plan, const struct load_target *target,
                         struct load_result *result, struct voxel_error *error)
{
    bool open = plan->rate > 0;
    struct load load = {.plan = plan, .target = target, .result = result};
    memset(result, 0, sizeof *result);
    enum voxel_code code = run_warmup(&load, !open, error);
    if (code) return code;
    if (target->on_warm) target->on_warm(target->context);
    int64_t begin = now_ns();
    load.measuring = true;
    load.end_ns =
        plan->duration_s > 0 ? begin + (int64_t)(plan->duration_s * 1e9) : INT64_MAX;
    if (open)
        run_open(&load);
    else
        run_closed(&load);
    result->seconds = (double)(now_ns() - begin) / 1e9;
    if (load.full) code = voxel_error_memory(error, "more samples", 0);
    if (load.broken)
        code = voxel_error_set(error, load.broken, "%s", result->first_error.text);
    if (result->answered)
        qsort(result->latency_ns, (size_t)result->answered, sizeof *result->latency_ns,
              compare_ns);
    if (code) load_result_fini(result);
    return code;
}

int64_t load_percentile(const struct load_result *result, double part)
{
    if (result->answered == 0) return 0;
    int64_t rank = (int64_t)ceil(part * (double)result->answered);
    if (rank < 1) rank = 1;
    if (rank > result->answered) rank = result->answered;
    return result->latency_ns[rank - 1];
}

double load_mean(const struct load_result *result)
{
    double sum = 0;
    for (int64_t i = 0; i < result->answered; i++) sum += (double)result->latency_ns[i];
    return result->answered ? sum / (double)result->answered : 0;
}

int64_t load_errors(const struct load_result *result)
{
    int64_t errors = 0;
    for (int i = 0; i < LOAD_CODES; i++) errors += result->errors[i];
    return errors;
}

void load_result_fini(struct load_result *result)
{
    voxel_memory_give(result->latency_ns);
    result->latency_ns = NULL;
    result->answered = 0;
}
