/* What rpc hands to the loop is handled in slices, and nothing of it is lost or handled too early.
 *
 * What handles a call is the test's: it notes A and the call's number when it has come, G when it
 * is gone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/front/front_private.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALLS 8

static struct vx_front *tested;
static struct vx_call calls[CALLS];
static char said[8 * CALLS];

static void note(char what, const struct vx_call *call)
{
    const size_t at = strlen(said);
    snprintf(said + at, sizeof said - at, "%c%d ", what, (int)(call - calls));
}

void vx_front_on_arrival(struct vx_front *front, struct vx_call *call)
{
    ck_assert_ptr_eq(front, tested);
    note('A', call);
}

void vx_front_on_gone(struct vx_front *front, struct vx_call *call)
{
    ck_assert_ptr_eq(front, tested);
    note('G', call);
}

static void set_up(void)
{
    tested = calloc(1, sizeof *tested);
    ck_assert_ptr_nonnull(tested);
    memset(calls, 0, sizeof calls);
    said[0] = '\0';
    vx_mailbox_init(&tested->arrivals, NULL, NULL);
    vx_mailbox_init(&tested->gone, NULL, NULL);
}

static void tear_down(void)
{
    vx_mailbox_fini(&tested->gone);
    vx_mailbox_fini(&tested->arrivals);
    free(tested);
}

static void come(i32 i, u16 origin)
{
    calls[i].peer.origin = origin;
    vx_mailbox_give(&tested->arrivals, &calls[i].arrival);
}

static void leave(i32 i)
{
    vx_mailbox_give(&tested->gone, &calls[i].gone);
}

/* One iteration, with time for one call of each kind, or for all. */
static void expect(i64 most_ns, const char *expected)
{
    said[0] = '\0';
    vx_front_mail_take(tested);
    vx_front_mail_handle(tested, most_ns);
    ck_assert_str_eq(said, expected);
}

START_TEST(a_burst_is_handled_in_slices)
{
    for (i32 i = 0; i < 4; i++) come(i, 1);
    expect(0, "A0 ");
    come(4, 2);
    expect(0, "A1 ");
    ck_assert_ptr_nonnull(tested->coming.first);
    expect(0, "A4 "); /* another origin's, before those that came earlier */
    expect(VX_NEVER, "A2 A3 ");
    ck_assert_ptr_null(tested->coming.first);
    expect(VX_NEVER, "");
}
END_TEST

START_TEST(those_who_left_are_handled_in_slices)
{
    for (i32 i = 0; i < 4; i++) come(i, 1);
    expect(VX_NEVER, "A0 A1 A2 A3 ");
    for (i32 i = 0; i < 4; i++) leave(i);
    expect(0, "G0 ");
    ck_assert_ptr_nonnull(tested->left);
    come(4, 1);
    expect(0, "A4 G1 "); /* neither waits for the other */
    leave(4);
    expect(VX_NEVER, "G2 G3 G4 ");
    ck_assert_ptr_null(tested->left);
    ck_assert_ptr_null(tested->left_last);
}
END_TEST

/* It has come, and waits: its end is handled behind its beginning, and at once. */
START_TEST(who_left_while_it_waited_ends_in_its_turn)
{
    for (i32 i = 0; i < 3; i++) come(i, 1);
    leave(2);
    leave(0);
    expect(0, "A0 "); /* looks at 2, which waits */
    expect(0, "A1 G0 ");
    expect(0, "A2 G2 ");
    expect(VX_NEVER, "");
}
END_TEST

/* A message of a stream comes with the same call: what was said of it before is over. */
START_TEST(a_call_that_comes_again_has_not_left)
{
    come(0, 1);
    come(1, 1);
    leave(1);
    expect(0, "A0 ");
    expect(0, "A1 G1 ");
    come(1, 1);
    expect(VX_NEVER, "A1 ");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("front_mail");
    TCase *tests = tcase_create("front_mail");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, a_burst_is_handled_in_slices);
    tcase_add_test(tests, those_who_left_are_handled_in_slices);
    tcase_add_test(tests, who_left_while_it_waited_ends_in_its_turn);
    tcase_add_test(tests, a_call_that_comes_again_has_not_left);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
