/* workers that cannot be started: retried at growing intervals, for ever, and nothing of
 * a try is left behind.
 *
 * The test replaces vx_worker_launch and its siblings.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/process/log.h"
#include "engine/base/process/thread.h"
#include "server/workers/worker_launch.h"
#include "server/workers/workers.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define TRIES      6
#define LONGEST_MS 250 /* restart_ms_max */
#define OVERDUE_MS (LONGEST_MS + 50)

static struct rig {
    uv_loop_t loop;
    uv_timer_t timer, overdue;
    struct vx_config config;
    struct vx_shared *shared;
    struct vx_workers *workers;
    i32 tries, downs, stops;
    u64 tried_ms[TRIES];
    i32 at_timer; /* tries when the timer fired */
} rig;

static void on_overdue(uv_timer_t *timer)
{
    (void)timer;
    ck_abort_msg("a try waits for longer than restart_ms_max");
}

/* Begins at the same moment of the loop's clock as the pause after it, which ends
 * first. */
int vx_worker_launch(const struct vx_launch *launch, struct vx_launched *launched)
{
    *launched = (struct vx_launched){.pidfd = -1};
    close(launch->channel);
    if (rig.tries < TRIES) rig.tried_ms[rig.tries] = uv_now(&rig.loop);
    rig.tries++;
    ck_assert(!uv_timer_start(&rig.overdue, on_overdue, OVERDUE_MS, 0));
    return ENOMEM;
}

void vx_worker_kill(const struct vx_launched *launched)
{
    (void)launched;
    ck_abort_msg("nothing was started");
}

bool vx_worker_join(struct vx_launched *launched, struct vx_worker_end *end)
{
    (void)launched;
    (void)end;
    ck_abort_msg("nothing was started");
    return false;
}

static void on_up(void *context, i32 worker)
{
    (void)context;
    (void)worker;
    ck_abort_msg("nothing was started");
}

static void on_down(void *context, i32 worker)
{
    (void)context;
    (void)worker;
    rig.downs++;
}

static void on_message(void *context, i32 worker, const union vx_message *message)
{
    (void)message;
    on_up(context, worker);
}

static void on_stopped(void *context)
{
    (void)context;
    rig.stops++;
}

static void on_timer(uv_timer_t *timer)
{
    rig.at_timer = rig.tries;
    uv_close((uv_handle_t *)timer, NULL);
}

static i32 descriptors(void)
{
    i32 count = 0;
    for (int fd = 3; fd < 1024; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

START_TEST(who_cannot_be_started_is_tried_again)
{
    vx_thread_enter(VX_ROLE_LOOP);
    vx_log_init(&(struct vx_log_options){.level = VX_LOG_ERROR, .fd = 2}, "test");
    vx_config_defaults(&rig.config);
    rig.config.restart_ms_max = LONGEST_MS;
    ck_assert(!vx_shared_open(1 << 20, NULL, &rig.shared).fault);
    ck_assert(!uv_loop_init(&rig.loop));
    ck_assert(!uv_timer_init(&rig.loop, &rig.timer));
    ck_assert(!uv_timer_init(&rig.loop, &rig.overdue));
    uv_update_time(&rig.loop);
    const struct vx_workers_options options = {.loop = &rig.loop,
                                               .config = &rig.config,
                                               .shared = rig.shared,
                                               .on_up = on_up,
                                               .on_down = on_down,
                                               .on_message = on_message,
                                               .on_stopped = on_stopped};
    struct vx_why why = {""};
    ck_assert(!vx_workers_open(&options, &why, &rig.workers).fault);
    /* Half of the first pause that is not zero, by the same clock. */
    ck_assert(!uv_timer_start(&rig.timer, on_timer, 50, 0));
    i32 open = descriptors();
    while (rig.tries < TRIES) uv_run(&rig.loop, UV_RUN_ONCE);
    ck_assert_int_eq(descriptors(), open);
    ck_assert_int_ge(rig.at_timer, 2); /* the second try is immediate */
    static const u64 pauses[] = {100, 200, LONGEST_MS, LONGEST_MS};
    for (int i = 0; i < 4; i++)
        ck_assert_uint_ge(rig.tried_ms[i + 2] - rig.tried_ms[i + 1], pauses[i]);
    const struct vx_worker_info *info = vx_workers_info(rig.workers, 0);
    ck_assert_int_eq(info->state, VX_WORKER_DOWN);
    ck_assert_int_eq(info->pid, 0);
    ck_assert_int_eq(info->restarts, TRIES);
    ck_assert_int_eq(rig.downs, 0); /* it never was up */
    ck_assert(!vx_workers_any_up(rig.workers));
    vx_workers_stop(rig.workers);
    ck_assert_int_eq(rig.stops, 1); /* no process to wait for */
    uv_close((uv_handle_t *)&rig.overdue, NULL);
    uv_run(&rig.loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(rig.tries, TRIES);
    ck_assert(!uv_loop_close(&rig.loop));
    vx_workers_close(&rig.workers);
    vx_shared_close(&rig.shared);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("workers_start");
    TCase *tests = tcase_create("starts");
    tcase_set_timeout(tests, 20);
    tcase_add_test(tests, who_cannot_be_started_is_tried_again);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
