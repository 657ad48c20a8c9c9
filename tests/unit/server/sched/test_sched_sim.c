/* The scheduler against a random world that a seed determines: arrivals of every kind,
 * cancellations, devices of different speed that die, with a warning or without, and come
 * back, instances and geometries that go.  After each step its state is compared with a
 * list of the jobs handed to it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/support/trials.h"
#include "tests/unit/server/sched/sched_sim.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* Like ck_assert, which writes a record to a pipe each time: too slow for millions. */
#define HOLDS(cond_)                                                                     \
    do {                                                                                 \
        if (!(cond_)) ck_abort_msg("not so: %s", #cond_);                                \
    } while (0)

static u64 sim_random(struct sim *sim, u64 below)
{
    sim->random ^= sim->random << 13;
    sim->random ^= sim->random >> 7;
    sim->random ^= sim->random << 17;
    return (sim->random >> 16) % below;
}

static void sim_note(struct sim *sim, u64 what, u64 value)
{
    sim->log = (sim->log ^ (what * 131 + value)) * UINT64_C(0x100000001b3);
}

static struct slot *slot_of(struct vx_job *job)
{
    return VX_CONTAINER(job, struct slot, job);
}

/* ------- how a job leaves ------- */

static void sim_leave(struct sim *sim, struct vx_job *job)
{
    struct slot *slot = slot_of(job);
    HOLDS(slot->is != FREE);
    HOLDS(job->state == VX_JOB_NEW);
    if (slot->is == WAITS) {
        sim->waiting--;
        sim->waiting_voxels -= job->set_voxels;
    } else {
        sim->running--;
        sim->running_voxels -= job->set_voxels;
    }
    sim->of_instance[job->instance]--;
    sim->ended++;
    slot->is = FREE;
    sim_note(sim, 1, (u64)(slot - sim->slots));
}

static void on_late(void *context, struct vx_job *job)
{
    struct sim *sim = context;
    HOLDS(slot_of(job)->is == WAITS);
    HOLDS(job->expires_ns <= sim->now);
    sim_leave(sim, job);
}

static void on_waiting(void *context, struct vx_job *job)
{
    HOLDS(slot_of(job)->is == WAITS);
    sim_leave(context, job);
}

static void on_lost(void *context, struct vx_job *job)
{
    HOLDS(job->must_hold && !job->holders);
    on_waiting(context, job);
}

static void on_poison(void *context, struct vx_job *job)
{
    HOLDS(job->deaths == VX_JOB_DEATHS_MAX);
    HOLDS(slot_of(job)->is == RUNS && !slot_of(job)->undelivered);
    sim_leave(context, job);
}

/* ------- what happens ------- */

static i32 sim_waiting_of(const struct sim *sim, u16 origin)
{
    i32 count = 0;
    for (i32 s = 0; s < SLOTS; s++)
        count += sim->slots[s].is == WAITS && sim->slots[s].job.origin == origin;
    return count;
}

static void sim_submit(struct sim *sim)
{
    i32 s = 0;
    while (s < SLOTS && sim->slots[s].is != FREE) s++;
    if (s == SLOTS) return;
    struct slot *slot = &sim->slots[s];
    i32 geometry = (i32)sim_random(sim, GEOMETRIES);
    i64 voxels = (i64)sim_random(sim, sim_random(sim, 4) ? 1500 : 12000);
    i32 instance = (i32)sim_random(sim, INSTANCES);
    u16 origin = (u16)(sim_random(sim, 3) ? 0 : sim_random(sim, ORIGINS));
    i64 known = (i64)sim_random(sim, 2), more = sets_of(instance);
    *slot = (struct slot){.geometry = geometry,
                          .job = {.instance = instance,
                                  .voxels = voxels,
                                  .pairs = known ? voxels * 9 * more : 0,
                                  .set_voxels = known ? voxels * more : 0,
                                  .priority = sim_random(sim, 5),
                                  .client = 1 + origin,
                                  .origin = origin,
                                  .deadline_ns = VX_NEVER,
                                  .holders = sim->plain ? 0 : sim->holders[geometry]}};
    struct vx_job *job = &slot->job;
    if (!sim_random(sim, 3))
        job->deadline_ns = sim->now + (i64)sim_random(sim, 20000) * US;
    if (!sim_random(sim, 4)) job->timeout_ns = (i64)sim_random(sim, 8000) * US;
    /* The memory of one device, or of two; in a plain world there is only one. */
    if (!sim_random(sim, 4))
        job->only = sim->plain
                        ? 1u
                        : 1u << sim_random(sim, WORKERS) |
                              (u32)(!sim_random(sim, 3)) << sim_random(sim, WORKERS);
    job->must_hold = job->holders && !sim_random(sim, 4);
    if (job->must_hold && job->only) job->holders &= job->only;
    job->must_hold = job->must_hold && job->holders;
    sim->submitted++;
    struct vx_why why = {""};
    struct vx_job *left;
    vx_status st = vx_sched_submit(sim->sched, job, sim->now, &left, &why);
    if (st.fault) {
        HOLDS(job->state == VX_JOB_NEW && !left);
        sim->refused++;
        sim_note(sim, 3, (u64)vx_status_code(st));
        return;
    }
    slot->is = WAITS;
    sim->waiting++;
    HOLDS(job->set_voxels >= voxels);
    sim->waiting_voxels += job->set_voxels;
    sim->of_instance[job->instance]++;
    if (!left) return;
    HOLDS(left->level >= job->level || left->instance != job->instance);
    HOLDS(left->origin != job->origin && !left->deaths);
    HOLDS(sim_waiting_of(sim, left->origin) > sim_waiting_of(sim, job->origin));
    on_waiting(sim, left);
}

/* From the queue to a device, or back. */
static void sim_moves(struct sim *sim, struct slot *slot, i32 is)
{
    i32 sign = is == RUNS ? 1 : -1;
    slot->is = is;
    sim->running += sign;
    sim->waiting -= sign;
    sim->running_voxels += sign * slot->job.set_voxels;
    sim->waiting_voxels -= sign * slot->job.set_voxels;
}

static void sim_down(struct sim *sim, i32 w)
{
    struct device *device = &sim->devices[w];
    vx_sched_worker_down(sim->sched, w, on_poison, sim);
    for (i32 s = 0; s < SLOTS; s++) { /* what ran and is not poison waits again */
        struct slot *slot = &sim->slots[s];
        if (slot->is != RUNS || slot->job.state != VX_JOB_QUEUED) continue;
        HOLDS(slot->job.deaths == slot->deaths + !slot->undelivered);
        sim_moves(sim, slot, WAITS);
    }
    for (i32 g = 0; g < GEOMETRIES; g++) sim->holders[g] &= ~(1u << w);
    for (i32 i = 0; i < INSTANCES; i++) sim->ready[i] &= ~(1u << w);
    *device = (struct device){0};
    vx_sched_holder_gone(sim->sched, w, on_lost, sim);
}

static void sim_set_ready(struct sim *sim, i32 i, i32 w, bool ready)
{
    vx_sched_instance_ready(sim->sched, i, w, ready);
    sim->ready[i] = ready ? sim->ready[i] | 1u << w : sim->ready[i] & ~(1u << w);
}

static void sim_up(struct sim *sim, i32 w)
{
    vx_sched_worker_up(sim->sched, w);
    sim->devices[w].up = true;
    for (i32 i = 0; i < INSTANCES; i++) sim_set_ready(sim, i, w, true);
}

static void sim_forget(struct sim *sim, i32 geometry, i32 w)
{
    sim->holders[geometry] &= ~(1u << w);
    for (i32 s = 0; s < SLOTS; s++)
        if (sim->slots[s].is == WAITS && sim->slots[s].geometry == geometry)
            sim->slots[s].job.holders &= ~(1u << w);
    vx_sched_holder_gone(sim->sched, w, on_lost, sim);
}

/* One of the rarer events. */
static void sim_chaos(struct sim *sim)
{
    i32 w = (i32)sim_random(sim, sim->plain ? 1 : WORKERS),
        i = (i32)sim_random(sim, INSTANCES);
    struct slot *slot = &sim->slots[sim_random(sim, SLOTS)];
    struct device *device = &sim->devices[w];
    switch (sim_random(sim, 24)) {
    case 0:
        if (device->up) sim_down(sim, w);
        break;
    case 1:
    case 2:
    case 3:
        if (!device->up) sim_up(sim, w);
        break;
    case 4:
        if (device->up) sim_set_ready(sim, i, w, !(sim->ready[i] & 1u << w));
        break;
    case 5:
        if (sim_random(sim, 8)) break;
        vx_sched_drop_instance(sim->sched, i, on_waiting, sim);
        vx_sched_instance_set(sim->sched, i, &batchings[i], true);
        break;
    case 6: sim_forget(sim, (i32)sim_random(sim, GEOMETRIES), w); break;
    case 7:
    case 8:
    case 9:
        if (slot->is != FREE && vx_sched_cancel(sim->sched, &slot->job))
            on_waiting(sim, &slot->job);
        else
            HOLDS(slot->is != WAITS);
        break;
    case 10:
        vx_sched_worker_leaving(sim->sched, w);
        device->leaving = device->up;
        break;
    case 11:
        device->loading = device->up && !device->loading;
        vx_sched_worker_loading(sim->sched, w, device->loading);
    }
}

/* The job named a geometry that this device no longer has; true: another one has it. */
static bool sim_elsewhere(struct sim *sim, struct slot *slot, i32 w)
{
    u32 others = sim->holders[slot->geometry] & ~(1u << w);
    if (slot->job.only) others &= slot->job.only;
    if (!slot->job.must_hold || !others || sim_random(sim, 4)) return false;
    slot->job.holders = others;
    vx_sched_resubmit(sim->sched, &slot->job);
    sim_moves(sim, slot, WAITS);
    return true;
}

static void sim_finish(struct sim *sim, i32 w)
{
    struct device *device = &sim->devices[w];
    struct vx_batch_plan plan;
    struct vx_batch_end end = {.worker = w,
                               .batch = device->batch[0],
                               .now_ns = sim->now,
                               .device_ns = device->took_ns[0],
                               .geometry_ns = device->took_ns[0] / 3};
    i32 jobs = vx_sched_batch_jobs(sim->sched, w, end.batch);
    for (i32 j = 0; j < jobs; j++) {
        const struct vx_job *job = vx_sched_batch_job(sim->sched, w, end.batch, j);
        end.set_voxels += job->voxels * sets_of(job->instance);
        end.pairs += job->voxels * sets_of(job->instance) * 9;
    }
    HOLDS(vx_sched_finish(sim->sched, &end, &plan) && plan.jobs_count == jobs);
    HOLDS(!vx_sched_finish(sim->sched, &end, &plan));
    for (i32 j = 0; j < plan.jobs_count; j++) {
        HOLDS(slot_of(plan.jobs[j])->is == RUNS);
        if (sim_elsewhere(sim, slot_of(plan.jobs[j]), w)) continue;
        if (!sim->plain) sim->holders[slot_of(plan.jobs[j])->geometry] |= 1u << w;
        sim_leave(sim, plan.jobs[j]);
    }
    device->solo = false;
    device->count--;
    device->batch[0] = device->batch[1];
    device->took_ns[0] = device->took_ns[1];
    device->end_ns = sim->now + device->took_ns[0];
}

/* ------- what a batch must satisfy ------- */

static bool comes_before(const struct vx_job *a, const struct vx_job *b)
{
    if (a->instance == b->instance && a->level != b->level) return a->level < b->level;
    return a->turn != b->turn ? a->turn < b->turn : a->sequence < b->sequence;
}

static bool can_run(const struct vx_job *job, i32 worker)
{
    return !job->only || (job->only & 1u << worker);
}

/* The jobs that wait while a later job of their instance begins a batch. */
static void check_overtaken(struct sim *sim, const struct vx_batch_plan *plan)
{
    const struct vx_job *first = plan->jobs[0];
    for (i32 s = 0; s < SLOTS; s++) {
        struct slot *slot = &sim->slots[s];
        const struct vx_job *job = &slot->job;
        if (slot->is != WAITS || job->instance != plan->instance) continue;
        if (job->deaths || job->must_hold || !comes_before(job, first)) continue;
        if (!can_run(job, plan->worker)) continue;
        slot->overtaken++;
        if (!(slot->overtaken <= (sim->plain ? 0 : OVERTAKES_MAX)))
            ck_abort_msg("a job was overtaken %d times", slot->overtaken);
    }
}

static void check_batch(struct sim *sim, const struct vx_batch_plan *plan)
{
    const struct vx_batching *batching = &batchings[plan->instance];
    struct device *device = &sim->devices[plan->worker];
    i64 voxels = 0, set_voxels = 0;
    HOLDS(device->up && !device->leaving && !device->solo &&
          device->count < VX_WORKER_DEPTH);
    HOLDS(sim->ready[plan->instance] & 1u << plan->worker);
    HOLDS(plan->jobs_count >= 1 && plan->jobs_count <= batching->requests_max);
    for (i32 j = 0; j < plan->jobs_count; j++) {
        struct vx_job *job = plan->jobs[j];
        HOLDS(slot_of(job)->is == WAITS && job->state == VX_JOB_RUNNING);
        HOLDS(job->instance == plan->instance && job->expires_ns > sim->now);
        HOLDS(!job->must_hold || (job->holders & 1u << plan->worker));
        HOLDS(can_run(job, plan->worker));
        HOLDS(!job->deaths || plan->jobs_count + device->count + device->loading == 1);
        HOLDS(!j || comes_before(plan->jobs[j - 1], job));
        voxels += job->voxels;
        set_voxels += job->set_voxels;
        slot_of(job)->deaths = job->deaths;
        slot_of(job)->undelivered = false;
        sim_moves(sim, slot_of(job), RUNS);
    }
    HOLDS(plan->voxels == voxels && plan->set_voxels == set_voxels);
    HOLDS(plan->jobs_count == 1 ||
          (set_voxels <= batching->voxels_max &&
           (!batching->pairs_max || plan->pairs <= batching->pairs_max)));
    if (!plan->jobs[0]->deaths) check_overtaken(sim, plan);
}

static void sim_start(struct sim *sim, const struct vx_batch_plan *plan)
{
    struct device *device = &sim->devices[plan->worker];
    if (!sim->draining && !sim_random(sim, 500)) {
        vx_sched_undelivered(sim->sched, plan->worker, plan->batch);
        device->leaving = true;
        for (i32 j = 0; j < plan->jobs_count; j++)
            slot_of(plan->jobs[j])->undelivered = true;
        return;
    }
    i64 slow = 1 + plan->worker;
    i64 took_ns = (200 + 10 * plan->jobs_count + plan->voxels / 10) * US * slow;
    took_ns = took_ns * (80 + (i64)sim_random(sim, 40)) / 100;
    if (!sim_random(sim, 200)) took_ns *= 30;
    device->batch[device->count] = plan->batch;
    device->took_ns[device->count] = took_ns;
    if (!device->count++) device->end_ns = sim->now + took_ns;
    device->solo = plan->jobs[0]->deaths > 0;
    sim_note(sim, 2, plan->batch * 16 + (u64)plan->worker);
}

static void check_counts(const struct sim *sim)
{
    HOLDS(vx_sched_queued(sim->sched) == sim->waiting);
    HOLDS(vx_sched_running(sim->sched) == sim->running);
    HOLDS(vx_sched_queued_voxels(sim->sched) == sim->waiting_voxels);
    HOLDS(vx_sched_voxels(sim->sched) == sim->waiting_voxels + sim->running_voxels);
    for (i32 i = 0; i < INSTANCES; i++)
        HOLDS(vx_sched_instance_jobs(sim->sched, i) == sim->of_instance[i]);
    for (i32 w = 0; w < WORKERS; w++)
        HOLDS(vx_sched_worker_batches(sim->sched, w) == sim->devices[w].count);
    HOLDS(sim->submitted == sim->refused + sim->ended + sim->waiting + sim->running);
}

/* No job that can run waits beside an idle device, unless a time is set at which that
 * changes. */
static void check_no_idle(const struct sim *sim)
{
    for (i32 s = 0; s < SLOTS; s++) {
        const struct slot *slot = &sim->slots[s];
        if (slot->is != WAITS) continue;
        HOLDS(slot->job.expires_ns > sim->now);
        u32 may = sim->ready[slot->job.instance];
        if (slot->job.must_hold) may &= slot->job.holders;
        if (slot->job.only) may &= slot->job.only;
        for (i32 w = 0; w < WORKERS; w++)
            if (sim->devices[w].leaving || (slot->job.deaths && sim->devices[w].loading))
                may &= ~(1u << w);
        bool idle = may != 0;
        for (i32 w = 0; w < WORKERS; w++)
            if ((may & 1u << w) && sim->devices[w].count) idle = false;
        if (!(!idle || vx_sched_next_ns(sim->sched) < VX_NEVER))
            ck_abort_msg("a job waits beside idle devices for ever");
    }
}

static void sim_turn(struct sim *sim)
{
    struct vx_batch_plan plan;
    vx_sched_expire(sim->sched, sim->now, on_late, sim);
    while (vx_sched_pick(sim->sched, sim->now, &plan)) {
        check_batch(sim, &plan);
        sim_start(sim, &plan);
    }
    HOLDS(vx_sched_next_ns(sim->sched) > sim->now);
    check_counts(sim);
    check_no_idle(sim);
}

/* The next event that time alone causes; VX_NEVER = none. */
static i64 sim_next(const struct sim *sim)
{
    i64 next_ns = vx_sched_next_ns(sim->sched);
    for (i32 w = 0; w < WORKERS; w++)
        if (sim->devices[w].count && sim->devices[w].end_ns < next_ns)
            next_ns = sim->devices[w].end_ns;
    return next_ns;
}

static void sim_finish_due(struct sim *sim)
{
    for (i32 w = 0; w < WORKERS; w++)
        if (sim->devices[w].count && sim->devices[w].end_ns <= sim->now)
            sim_finish(sim, w);
}

static u64 sim_run(u64 seed)
{
    static struct sim sim;
    sim = (struct sim){.random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1,
                       .plain = seed % 3 == 0};
    HOLDS(!vx_sched_open(QUEUE_MAX, &sim.sched).fault);
    for (i32 i = 0; i < INSTANCES; i++)
        vx_sched_instance_set(sim.sched, i, &batchings[i], true);
    u64 gap_us = 20 + sim_random(&sim, 400);
    for (i32 step = 0; step < STEPS; step++) {
        i64 next_ns = sim_next(&sim);
        if (next_ns > sim.arrival_ns) {
            sim.now = sim.arrival_ns;
            sim.arrival_ns += (i64)sim_random(&sim, 2 * gap_us) * US;
            for (u64 burst = sim_random(&sim, 4); burst; burst--) sim_submit(&sim);
            sim_chaos(&sim);
        } else {
            sim.now = next_ns;
            sim_finish_due(&sim);
        }
        sim_turn(&sim);
    }
    sim.draining = true;
    /* Drain: every worker is up and ready, every job ends exactly once, none is left. */
    for (i32 w = 0; w < (sim.plain ? 1 : WORKERS); w++) {
        if (sim.devices[w].leaving) sim_down(&sim, w);
        if (!sim.devices[w].up) sim_up(&sim, w);
        sim.devices[w].loading = false;
        vx_sched_worker_loading(sim.sched, w, false);
        for (i32 i = 0; i < INSTANCES; i++) sim_set_ready(&sim, i, w, true);
    }
    sim_turn(&sim);
    for (i32 turns = 0; sim.waiting + sim.running > 0; turns++) {
        HOLDS(turns < 20 * SLOTS);
        sim.now = sim_next(&sim);
        HOLDS(sim.now != VX_NEVER);
        sim_finish_due(&sim);
        sim_turn(&sim);
    }
    HOLDS(sim.ended > STEPS / 10);
    vx_sched_close(&sim.sched);
    return sim.log;
}

START_TEST(every_job_ends_once_and_a_seed_repeats)
{
    for (u64 seed = (u64)_i * 16; seed < (u64)_i * 16 + 16; seed++) {
        u64 first = sim_run(seed);
        if (!(first == sim_run(seed)))
            ck_abort_msg("seed %llu: two runs differ", (unsigned long long)seed);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sched_sim");
    TCase *sim = tcase_create("simulation");
    tcase_add_loop_test(sim, every_job_ends_once_and_a_seed_repeats, 0,
                        VX_TRIALS(SEEDS, SEEDS / 4) / 16);
    suite_add_tcase(suite, sim);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
