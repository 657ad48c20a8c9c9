/* timer: a timer that is due again at once does not block the loop.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/base/timer.h"

#include "engine/base/process/check.h"

#include <check.h>

#define TURNS     5
#define FIRED_MAX 100000 /* so many in one iteration: it never ends */

static struct {
    uv_loop_t loop;
    uv_timer_t timers[2];
    uv_prepare_t turn;
    int turns, fired, fired_in_turn;
} rig;

static void on_timer(uv_timer_t *timer)
{
    rig.fired++;
    rig.fired_in_turn++;
    ck_assert_int_lt(rig.fired_in_turn, FIRED_MAX);
    /* Restarts itself and the other: both are due at once. */
    vx_timer_once(timer, on_timer, 0);
    vx_timer_once(&rig.timers[timer == &rig.timers[0]], on_timer, -5);
}

static void on_turn(uv_prepare_t *turn)
{
    ck_assert_int_le(rig.fired_in_turn, 2); /* each once */
    rig.fired_in_turn = 0;
    if (++rig.turns < TURNS) return;
    for (size_t i = 0; i < VX_COUNT(rig.timers); i++)
        uv_close((uv_handle_t *)&rig.timers[i], NULL);
    uv_close((uv_handle_t *)turn, NULL);
}

START_TEST(due_at_once_is_due_in_the_next_turn)
{
    ck_assert(!uv_loop_init(&rig.loop));
    for (size_t i = 0; i < VX_COUNT(rig.timers); i++) {
        ck_assert(!uv_timer_init(&rig.loop, &rig.timers[i]));
        vx_timer_once(&rig.timers[i], on_timer, 0);
    }
    ck_assert(!uv_prepare_init(&rig.loop, &rig.turn));
    ck_assert(!uv_prepare_start(&rig.turn, on_turn));
    uv_run(&rig.loop, UV_RUN_DEFAULT);
    ck_assert_int_eq(rig.turns, TURNS);
    ck_assert_int_gt(rig.fired, 0);
    ck_assert(!uv_loop_close(&rig.loop));
}
END_TEST

static void on_period(uv_timer_t *timer)
{
    if (++rig.fired == 3) vx_timer_stop(timer);
}

START_TEST(a_period_goes_on_until_it_is_stopped)
{
    ck_assert(!uv_loop_init(&rig.loop));
    ck_assert(!uv_timer_init(&rig.loop, &rig.timers[0]));
    vx_timer_every(&rig.timers[0], on_period, 0);
    uv_run(&rig.loop, UV_RUN_DEFAULT); /* ends when nothing is active any more */
    ck_assert_int_eq(rig.fired, 3);
    uv_close((uv_handle_t *)&rig.timers[0], NULL);
    uv_run(&rig.loop, UV_RUN_DEFAULT);
    ck_assert(!uv_loop_close(&rig.loop));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("timer");
    TCase *tests = tcase_create("timer");
    tcase_set_timeout(tests, 20);
    tcase_add_test(tests, due_at_once_is_due_in_the_next_turn);
    tcase_add_test(tests, a_period_goes_on_until_it_is_stopped);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
