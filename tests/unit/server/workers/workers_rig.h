/* workers_rig - the front for the tests of workers: a loop, one worker of a given manner
 * (see workers_child.h), and what happened to it.
 *
 *   rig_setup("good");
 *   rig_open_workers();
 *   rig_run_until(&rig.ups, 1);
 *   rig_finish();
 *
 * Owner    the test: one rig in a process.
 * Thread   the test's, which is the loop's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_UNIT_WORKERS_RIG_H
#define VX_TESTS_UNIT_WORKERS_RIG_H

#include "server/workers/workers_private.h"
#include "tests/support/wait.h"

#define PATIENCE_MS (VX_WAIT_SECONDS * 1000)

struct rig {
    uv_loop_t loop;
    uv_timer_t patience, beat;
    struct vx_config config;
    struct vx_shared *shared;
    struct vx_workers *workers;
    i32 ups, leaves, downs, dones, loadeds;
    bool stopped, runs; /* runs: a batch with each beat */
    bool undying;       /* no signal ends the process */
    bool backwards;     /* events of one turn come in the opposite order */
    bool quiet;         /* no questions */
    i64 healthy_ns;
    i64 beat_ns, gap_ns;
};
extern struct rig rig;

/* Opens with settings of short limits; these determine how often the watchdog checks. */
void rig_setup(const char *manner);
/* Delays of the machine are no hang: short limits are only for tests that exceed them. */
void rig_open_workers(void);
/* Sets the limits that hold from now on. */
void rig_limits_set(i64 watchdog_ms, i64 start_ms);
bool rig_try_order(i32 kind);
void rig_order(i32 kind);
const struct vx_worker_info *rig_info(void);
void rig_run_until(const i32 *count, i32 wanted);
void rig_on_beat(uv_timer_t *timer);
void rig_finish(void);

#endif
