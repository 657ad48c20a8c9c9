/* sched_sim - the world that test_sched_sim.c checks the scheduler against: its sizes,
 * what it records of jobs and devices, and how its models are batched.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_UNIT_SCHED_SIM_H
#define VX_TESTS_UNIT_SCHED_SIM_H

#include "engine/base/process/clock.h"
#include "server/sched/sched.h"

#define US         VX_NS_PER_US
#define SEEDS      400
#define STEPS      2500
#define SLOTS      160
#define WORKERS    4
#define INSTANCES  3
#define GEOMETRIES 40
#define ORIGINS    20
#define QUEUE_MAX  96
/* Batches that may begin, while a job waits by choice, with later jobs of its instance: as
 * many as the other devices run while the chosen one takes thirty times what it should. */
#define OVERTAKES_MAX 100

struct slot {
    struct vx_job job;
    enum { FREE, WAITS, RUNS } is;
    i32 geometry, overtaken, deaths; /* deaths: when it was sent */
    bool undelivered;
};
struct device {
    bool up, solo, leaving, loading;
    i32 count;
    u64 batch[VX_WORKER_DEPTH];
    i64 took_ns[VX_WORKER_DEPTH], end_ns; /* end of the first */
};
struct sim {
    u64 random, log;
    bool draining;
    bool plain; /* one device and no held geometries: no job waits by choice */
    i64 now, arrival_ns;
    struct vx_sched *sched;
    struct slot slots[SLOTS];
    struct device devices[WORKERS];
    u32 ready[INSTANCES];
    u32 holders[GEOMETRIES];
    i32 waiting, running, of_instance[INSTANCES];
    i64 waiting_voxels, running_voxels, submitted, refused, ended;
};

static const struct vx_batching batchings[INSTANCES] = {
    {.voxels_max = 20000, .pairs_max = 150000, .requests_max = 16, .delay_us = 150},
    {.voxels_max = 8000,
     .requests_max = 64,
     .priority_levels = 3,
     .default_priority_level = 2,
     .policies = {[1] = {.max_queue_size = 20, .allow_timeout_override = true},
                  [2] = {.default_timeout_us = 4000, .timeout_delay = true},
                  [3] = {.default_timeout_us = 6000}}},
    {.voxels_max = 50000,
     .requests_max = 1,
     .policies = {{.allow_timeout_override = true}}},
};

/* Voxels of all sets for each of a request: some models have several sets. */
static inline i64 sets_of(i32 instance)
{
    return 1 + instance % 3;
}

#endif
