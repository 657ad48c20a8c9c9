/* Calls that have come: those of an origin in order, origins in a round robin.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/call/call_arrivals.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define CALLS   64
#define ORIGINS 5

static struct vx_call calls[CALLS];
static struct vx_call_arrivals arrivals;

static void set_up(void)
{
    memset(calls, 0, sizeof calls);
    memset(&arrivals, 0, sizeof arrivals);
}

/* From a connection of its own. */
static void add(i32 i, u16 origin)
{
    calls[i].peer.origin = origin;
    calls[i].peer.connection = (u64)i + 1;
    vx_call_arrivals_add(&arrivals, &calls[i]);
}

static void expect(i32 i)
{
    ck_assert(calls[i].coming.waits);
    ck_assert_ptr_eq(vx_call_arrivals_take(&arrivals), &calls[i]);
    ck_assert(!calls[i].coming.waits);
}

static void expect_none(void)
{
    ck_assert_ptr_null(vx_call_arrivals_take(&arrivals));
    ck_assert_ptr_null(arrivals.last);
}

START_TEST(an_empty_list_has_no_call)
{
    expect_none();
    for (i32 turn = 0; turn < 2; turn++) { /* the same call again */
        add(0, VX_PEER_ORIGINS - 1);
        expect(0);
        expect_none();
    }
}
END_TEST

/* Ten of one origin, each on a connection of its own, then one each of two others. */
START_TEST(many_calls_delay_their_own_origin)
{
    static const i32 expected[] = {0, 10, 11, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    for (i32 i = 0; i < 10; i++) add(i, 7);
    add(10, 0);
    add(11, 9);
    for (size_t i = 0; i < VX_COUNT(expected); i++) expect(expected[i]);
    expect_none();
}
END_TEST

START_TEST(a_call_that_comes_later_has_its_turn)
{
    for (i32 i = 0; i < 3; i++) add(i, 7);
    expect(0);
    add(3, 8);
    expect(1);
    expect(3);
    add(4, 7); /* behind call 2 */
    add(5, 8);
    expect(2);
    expect(5);
    expect(4);
    expect_none();
}
END_TEST

/* In whatever order calls come and are taken: those of an origin are taken in their order, and
 * while one of an origin waits no other origin is taken twice. */
START_TEST(any_order_keeps_the_rule)
{
    u32 random = 1 + (u32)_i;
    i32 added = 0, last[ORIGINS], since[ORIGINS] = {0}, waiting[ORIGINS] = {0};
    for (i32 o = 0; o < ORIGINS; o++) last[o] = -1;
    while (added < CALLS || arrivals.first) {
        random = random * 1664525 + 1013904223;
        if (added < CALLS && (random >> 24) % 3) {
            const u16 origin = (u16)((random >> 16) % ORIGINS);
            if (!waiting[origin]++) since[origin] = 0;
            add(added++, origin);
            continue;
        }
        const struct vx_call *call = vx_call_arrivals_take(&arrivals);
        if (!call) continue;
        const i32 index = (i32)(call - calls), origin = call->peer.origin;
        ck_assert_int_gt(index, last[origin]);
        last[origin] = index;
        waiting[origin]--;
        since[origin] = 0;
        for (i32 o = 0; o < ORIGINS; o++) {
            since[o] += waiting[o] && o != origin;
            ck_assert_int_lt(since[o], ORIGINS);
        }
    }
    for (i32 o = 0; o < ORIGINS; o++) ck_assert_int_eq(waiting[o], 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("call_arrivals");
    TCase *tests = tcase_create("call_arrivals");
    tcase_add_checked_fixture(tests, set_up, NULL);
    tcase_add_test(tests, an_empty_list_has_no_call);
    tcase_add_test(tests, many_calls_delay_their_own_origin);
    tcase_add_test(tests, a_call_that_comes_later_has_its_turn);
    tcase_add_loop_test(tests, any_order_keeps_the_rule, 0, 20);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
