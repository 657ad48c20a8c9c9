/* Which handshake is next, of sessions that nobody shakes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/tls/tls_private.h"

#include <check.h>
#include <stdlib.h>

enum { CROWD = 400 };

static struct vx_tls tls;
static struct vx_tls_session crowd[CROWD], honest[2];

static void add(struct vx_tls_session *session, u16 origin, bool begun)
{
    session->origin = origin;
    session->begun = begun;
    vx_tls_list_add(begun ? &tls.continued : &tls.fresh, session);
}

/* However many addresses come again and again, each has one turn before another has two. */
START_TEST(origins_have_turns)
{
    for (i32 i = 0; i < CROWD; i++) add(&crowd[i], (u16)(1 + i % 200), false);
    for (i32 turn = 0; turn < 10 * CROWD; turn++) {
        struct vx_tls_session *next = vx_tls_next(&tls);
        ck_assert_ptr_nonnull(next);
        if (turn == 1000)
            for (i32 i = 0; i < 2; i++) add(&honest[i], 0, false);
        if (next < crowd || next >= crowd + CROWD) continue;
        add(next, next->origin, false);
        /* Of two, the second waits until each of the others has had its turn. */
        bool late = turn > 1000 + 1 + 1 + 200;
        ck_assert(!late || (!honest[0].in && !honest[1].in));
    }
}
END_TEST

/* One address with many waits for itself. */
START_TEST(a_crowd_waits_for_itself)
{
    for (i32 i = 0; i < CROWD; i++) add(&crowd[i], 9, false);
    ck_assert_ptr_eq(vx_tls_next(&tls), &crowd[0]);
    for (i32 i = 0; i < 2; i++) add(&honest[i], 7, false);
    ck_assert_ptr_eq(vx_tls_next(&tls), &honest[0]);
    ck_assert_ptr_eq(vx_tls_next(&tls), &crowd[1]);
    ck_assert_ptr_eq(vx_tls_next(&tls), &honest[1]);
    ck_assert_ptr_eq(vx_tls_next(&tls), &crowd[2]);
}
END_TEST

/* What has begun goes before all that has not, and takes no turn. */
START_TEST(what_has_begun_goes_first)
{
    add(&crowd[0], 1, false);
    add(&crowd[1], 2, false);
    add(&honest[0], 1, true);
    ck_assert_ptr_eq(vx_tls_next(&tls), &honest[0]);
    ck_assert_ptr_eq(vx_tls_next(&tls), &crowd[0]);
    ck_assert_ptr_eq(vx_tls_next(&tls), &crowd[1]);
    ck_assert_ptr_null(vx_tls_next(&tls));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tls_order");
    TCase *tests = tcase_create("tls_order");
    tcase_add_test(tests, origins_have_turns);
    tcase_add_test(tests, a_crowd_waits_for_itself);
    tcase_add_test(tests, what_has_begun_goes_first);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
