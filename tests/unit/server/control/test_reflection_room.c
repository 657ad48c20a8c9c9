/* Which reflection stream ends when there is one too many: of the address with most.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/call/call.h"
#include "server/control/reflection.h"

#include <check.h>
#include <stdlib.h>

static struct vx_call calls[VX_REFLECTIONS_MAX + 1];
static struct vx_call *all[VX_REFLECTIONS_MAX + 1];

/* The newest first. */
static void stream_is(i32 i, u16 origin, u64 connection)
{
    calls[i] = (struct vx_call){.peer = {.origin = origin, .connection = connection}};
    all[i] = &calls[i];
}

/* The only one of an address, and the oldest of all. */
START_TEST(many_connections_of_one_address_end_their_own)
{
    const i32 last = VX_REFLECTIONS_MAX;
    for (i32 i = 0; i < last; i++) stream_is(i, 7, 100 + (u64)i);
    stream_is(last, 8, 1);
    ck_assert_ptr_eq(vx_reflection_least(all, last + 1), &calls[last - 1]);
}
END_TEST

/* Not even where one connection elsewhere has more than any of the newcomer's. */
START_TEST(an_address_with_fewer_loses_none)
{
    for (i32 i = 0; i < 9; i++) stream_is(i, 7, 100 + (u64)i);
    for (i32 i = 9; i < 17; i++) stream_is(i, 8, 1);
    ck_assert_ptr_eq(vx_reflection_least(all, 17), &calls[8]);
    for (i32 i = 0; i < 8; i++) stream_is(i, 8, 1);
    for (i32 i = 8; i < 17; i++) stream_is(i, 7, 100 + (u64)i);
    ck_assert_ptr_eq(vx_reflection_least(all, 17), &calls[16]);
}
END_TEST

START_TEST(the_connection_with_most_of_an_address_loses_its_oldest)
{
    for (i32 i = 0; i < 12; i++) stream_is(i, 7, i % 3 ? 100 : 200 + (u64)i);
    for (i32 i = 12; i < 17; i++) stream_is(i, 8, 1);
    ck_assert_ptr_eq(vx_reflection_least(all, 17), &calls[11]);
}
END_TEST

/* A newcomer takes one of the address with most. */
START_TEST(a_newcomer_takes_from_who_has_most)
{
    stream_is(0, 9, 1);
    for (i32 i = 1; i < 10; i++) stream_is(i, 7, 100 + (u64)i);
    for (i32 i = 10; i < 17; i++) stream_is(i, 8, 300 + (u64)i);
    ck_assert_ptr_eq(vx_reflection_least(all, 17), &calls[9]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("reflection_room");
    TCase *tests = tcase_create("reflection_room");
    tcase_add_test(tests, many_connections_of_one_address_end_their_own);
    tcase_add_test(tests, an_address_with_fewer_loses_none);
    tcase_add_test(tests, the_connection_with_most_of_an_address_loses_its_oldest);
    tcase_add_test(tests, a_newcomer_takes_from_who_has_most);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
