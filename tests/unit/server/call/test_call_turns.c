/* The turns of waiting calls: each call has one, a connection's calls in order,
 * connections in a round robin.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/call/call_turns.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define CALLS 64

static struct vx_call calls[CALLS];
static struct vx_call_turns turns;

static void set_up(void)
{
    memset(calls, 0, sizeof calls);
    turns = (struct vx_call_turns){NULL, NULL};
}

static struct vx_call *add(i32 i, u64 connection)
{
    calls[i].peer.connection = connection;
    vx_call_turns_add(&turns, &calls[i]);
    return &calls[i];
}

START_TEST(an_empty_list_has_no_call)
{
    ck_assert_ptr_null(vx_call_turns_take(&turns));
    struct vx_call *only = add(0, 1);
    ck_assert(only->turn.waits);
    ck_assert_ptr_eq(vx_call_turns_take(&turns), only);
    ck_assert(!only->turn.waits);
    ck_assert_ptr_null(vx_call_turns_take(&turns));
    ck_assert_ptr_null(turns.first);
    ck_assert_ptr_null(turns.last);
    add(0, 1); /* adds the same call again */
    ck_assert_ptr_eq(vx_call_turns_take(&turns), only);
}
END_TEST

/* Ten calls of one connection, then one each of two others. */
START_TEST(many_calls_delay_their_own_connection)
{
    static const i32 expected[] = {0, 10, 11, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    for (i32 i = 0; i < 10; i++) add(i, 7);
    add(10, 8);
    add(11, 9);
    for (size_t i = 0; i < VX_COUNT(expected); i++)
        ck_assert_ptr_eq(vx_call_turns_take(&turns), &calls[expected[i]]);
    ck_assert_ptr_null(vx_call_turns_take(&turns));
}
END_TEST

START_TEST(a_call_that_comes_later_has_its_turn)
{
    for (i32 i = 0; i < 3; i++) add(i, 7);
    ck_assert_ptr_eq(vx_call_turns_take(&turns), &calls[0]);
    add(3, 8);
    ck_assert_ptr_eq(vx_call_turns_take(&turns), &calls[1]);
    ck_assert_ptr_eq(vx_call_turns_take(&turns), &calls[3]);
    add(4, 7); /* behind call 2 */
    ck_assert_ptr_eq(vx_call_turns_take(&turns), &calls[2]);
    ck_assert_ptr_eq(vx_call_turns_take(&turns), &calls[4]);
    ck_assert_ptr_null(vx_call_turns_take(&turns));
}
END_TEST

/* Random additions and removals, compared with a model of the rule: the next call is
 * from the connection whose last turn was longest ago, or of equal ones from the one
 * that came first. */
START_TEST(any_order_keeps_the_rule)
{
    u32 random = (u32)_i + 1;
    i32 waiting[CALLS], waiting_count = 0, ring[CALLS], ring_count = 0;
    for (i32 step = 0; step < 2000; step++) {
        random = random * 1664525 + 1013904223;
        i32 i = (i32)(random >> 8) % CALLS;
        if (random >> 31 && !calls[i].turn.waits) {
            i32 connection = (i32)(random >> 20) % 5, at = 0;
            while (at < ring_count && ring[at] != connection) at++;
            if (at == ring_count) ring[ring_count++] = connection;
            waiting[waiting_count++] = i;
            add(i, (u64)connection);
            continue;
        }
        struct vx_call *got = vx_call_turns_take(&turns);
        if (!ring_count) {
            ck_assert_ptr_null(got);
            continue;
        }
        i32 turn = ring[0], at = 0, left = 0;
        while (calls[waiting[at]].peer.connection != (u64)turn) at++;
        ck_assert_ptr_eq(got, &calls[waiting[at]]);
        memmove(waiting + at, waiting + at + 1,
                (size_t)(--waiting_count - at) * sizeof *waiting);
        memmove(ring, ring + 1, (size_t)--ring_count * sizeof *ring);
        for (i32 w = 0; w < waiting_count; w++)
            left += calls[waiting[w]].peer.connection == (u64)turn;
        if (left) ring[ring_count++] = turn;
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("call_turns");
    TCase *tcase = tcase_create("turns");
    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_test(tcase, an_empty_list_has_no_call);
    tcase_add_test(tcase, many_calls_delay_their_own_connection);
    tcase_add_test(tcase, a_call_that_comes_later_has_its_turn);
    tcase_add_loop_test(tcase, any_order_keeps_the_rule, 0, 20);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
