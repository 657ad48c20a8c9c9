/* The series of tokens: which there are, and their numbers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/metrics/metrics_tokens.h"
#include "server/rpc/rpc.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct vx_access *access_tokens;
static char text[16384];

static void render(void)
{
    struct vx_text out;
    vx_text_init(&out, text, sizeof text);
    vx_metrics_render_tokens(access_tokens, &out);
    ck_assert(!out.full);
}

static void expect(const char *series, const char *value)
{
    char line[256];
    snprintf(line, sizeof line, "\n%s %s\n", series, value);
    ck_assert_msg(strstr(text, line) != NULL, "expected %s in\n%s", line, text);
}

START_TEST(tokens_are_said)
{
    const struct vx_access_options options = {.tokens = true, .connections_max = 1};
    char entry[] = "{\"tokens\": [{\"name\": \"open.-_\", \"anyone\": true, \"models\": "
                   "[\"*\"], \"methods\": [\"infer\"]}]}";
    const struct vx_access_arrival wrong = {.authorization = "x",
                                            .authorization_length = 1};
    const struct vx_access_arrival right = {.method = VX_METHOD_ID_MODEL_INFER,
                                            .is_request = true};
    const struct vx_access_cost cost = {
        .of = {[VX_ACCESS_BYTES] = 70, [VX_ACCESS_VOXELS] = 5}};
    struct vx_access_ticket ticket;
    struct vx_why why;
    render();
    ck_assert_str_eq(text, "");
    ck_assert(!vx_access_open(&options, &access_tokens).fault);
    render();
    expect("voxeld_token_requests_total{token=\"\"}", "0");
    struct vx_access_table *table = vx_access_spare(access_tokens);
    ck_assert(!vx_access_table_parse(entry, strlen(entry), &why, table).fault);
    vx_access_use_spare(access_tokens, 0);
    ck_assert(!vx_access_enter(access_tokens, &right, &why, &ticket).fault);
    ck_assert(!vx_access_spend(access_tokens, &ticket, &cost, 0, &why).fault);
    ck_assert(vx_access_enter(access_tokens, &wrong, &why, &ticket).fault);
    render();
    expect("voxeld_token_requests_total{token=\"open.-_\"}", "1");
    expect("voxeld_token_bytes_total{token=\"open.-_\"}", "70");
    expect("voxeld_token_voxels_total{token=\"open.-_\"}", "5");
    expect("voxeld_token_refused_total{token=\"open.-_\",reason=\"model\"}", "0");
    expect("voxeld_token_refused_total{token=\"\",reason=\"unknown\"}", "1");
    vx_access_close(&access_tokens);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("metrics_tokens");
    TCase *tcase = tcase_create("tokens");
    tcase_add_test(tcase, tokens_are_said);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
