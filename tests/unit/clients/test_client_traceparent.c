/* The form that W3C gives a traceparent; what the server takes for one, and nothing else.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "clients/cli/traceparent.h"

#include <check.h>
#include <stdlib.h>

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN  "00f067aa0ba902b7"
#define ZEROS "0000000000000000"

static const struct {
    const char *text;
    bool good;
} cases[] = {
    {"00-" TRACE "-" SPAN "-01", true},
    {"00-" TRACE "-" SPAN "-00", true},
    {"cc-" TRACE "-" SPAN "-01", true},
    {"cc-" TRACE "-" SPAN "-01-more", true},
    {"cc-" TRACE "-" SPAN "-01more", false},
    {"00-" TRACE "-" SPAN "-01-more", false},
    {"ff-" TRACE "-" SPAN "-01", false},
    {"00-" ZEROS ZEROS "-" SPAN "-01", false},
    {"00-" TRACE "-" ZEROS "-01", false},
    {"00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01", false},
    {"00-" TRACE "-" SPAN "-0g", false},
    {"0x-" TRACE "-" SPAN "-01", false},
    {"00_" TRACE "-" SPAN "-01", false},
    {"00-" TRACE "_" SPAN "-01", false},
    {"00-" TRACE "-" SPAN "_01", false},
    {"00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01", false},
    {"00-" TRACE "-" SPAN "-0", false},
    {"junk", false},
    {"", false},
};

START_TEST(a_traceparent_has_w3cs_form)
{
    ck_assert_msg(traceparent_is(cases[_i].text) == cases[_i].good, "%s", cases[_i].text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_traceparent");
    TCase *tcase = tcase_create("client_traceparent");
    tcase_add_loop_test(tcase, a_traceparent_has_w3cs_form, 0,
                        sizeof cases / sizeof *cases);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
