/* Outputs of network.json on any set: which coordinates there are, their names, and the
 * sentence for every wrong one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/network/network.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LABEL "m/network.json"

static u8 *block;
static struct vx_arena arena;

static void set_up(void)
{
    block = vx_alloc(VX_NETWORK_ARENA_BYTES);
    vx_arena_init(&arena, block, VX_NETWORK_ARENA_BYTES);
}

static void tear_down(void)
{
    vx_free(block);
}

/* Layers a, b on set 0, c, d on set 1, e on set 2; `outputs` are behind them in line 2. */
static const struct vx_network *parse(const char *outputs, struct vx_why *why)
{
    char text[4096];
    snprintf(
        text, sizeof text,
        "{\"format\":1,\"inputs\":{\"coords\":\"xyz\",\"feats\":{\"channels\":4}},"
        "\"layers\":[{\"name\":\"a\",\"op\":\"relu\",\"input\":\"feats\"},"
        "{\"name\":\"b\",\"op\":\"silu\",\"input\":\"a\"},"
        "{\"name\":\"c\",\"op\":\"downsample\",\"stride\":2,\"input\":\"b\"},"
        "{\"name\":\"d\",\"op\":\"tanh\",\"input\":\"c\"},"
        "{\"name\":\"e\",\"op\":\"downsample\",\"stride\":[1,2,4],\"input\":\"d\"}],\n"
        "\"outputs\":[%s]}\n",
        outputs);
    const struct vx_network_text source = {text, strlen(text), LABEL};
    const struct vx_network *network;
    vx_status status = vx_network_parse(&source, &arena, why, &network);
    ck_assert(!status.fault == (network != NULL));
    if (status.fault) ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    return network;
}

static const struct vx_network *parse_good(const char *outputs)
{
    struct vx_why why = {{0}};
    const struct vx_network *network = parse(outputs, &why);
    ck_assert_msg(network != NULL, "%s", why.text);
    return network;
}

START_TEST(outputs_on_set_0_have_no_coordinates)
{
    const struct vx_network *network =
        parse_good("{\"layer\":\"a\"},{\"layer\":\"b\"},{\"layer\":\"e\"}");
    ck_assert_int_eq(network->outputs_count, 3);
    ck_assert_int_eq(network->outputs[0].coords, -1);
    ck_assert_int_eq(network->outputs[1].coords, -1);
    ck_assert_int_eq(network->coords_count, 1);
    ck_assert_int_eq(network->outputs[2].coords, 0);
    ck_assert_int_eq(network->coords[0].set, 2);
    ck_assert_str_eq(network->coords[0].name, "e_coords");
}
END_TEST

/* One for each set, in the order of the first output on it, which names them. */
START_TEST(outputs_on_a_set_share_its_coordinates)
{
    const struct vx_network *network =
        parse_good("{\"layer\":\"e\",\"name\":\"top\"},{\"layer\":\"d\"},"
                   "{\"layer\":\"c\",\"name\":\"low\",\"datatype\":\"FP16\"}");
    ck_assert_int_eq(network->coords_count, 2);
    ck_assert_str_eq(network->coords[0].name, "top_coords");
    ck_assert_int_eq(network->coords[0].set, 2);
    ck_assert_str_eq(network->coords[1].name, "d_coords");
    ck_assert_int_eq(network->coords[1].set, 1);
    ck_assert_int_eq(network->outputs[0].coords, 0);
    ck_assert_int_eq(network->outputs[1].coords, 1);
    ck_assert_int_eq(network->outputs[2].coords, 1);
}
END_TEST

/* Any output of the set may name them, and all may say the same. */
START_TEST(coordinates_have_the_name_that_an_output_gives)
{
    const struct vx_network *network = parse_good(
        "{\"layer\":\"c\"},{\"layer\":\"d\",\"coords\":\"at\"},"
        "{\"layer\":\"c\",\"name\":\"again\",\"coords\":\"at\"},{\"layer\":\"e\"}");
    ck_assert_int_eq(network->coords_count, 2);
    ck_assert_str_eq(network->coords[0].name, "at");
    ck_assert_str_eq(network->coords[1].name, "e_coords");
}
END_TEST

#define LONG120                                                                          \
    "0123456789012345678901234567890123456789012345678901234567890123456789"             \
    "01234567890123456789012345678901234567890123456789"
static const struct {
    const char *outputs, *why;
} bad[] = {
    {"{\"layer\":\"e\"},{\"layer\":\"b\",\"coords\":\"at\"}",
     "line 2: \"coords\": the result of \"b\" lies on the voxels of the request, in its "
     "order: expected no name for their coordinates"},
    {"{\"layer\":\"e\",\"coords\":\"at\"},"
     "{\"layer\":\"e\",\"name\":\"f\",\"coords\":\"there\"}",
     "line 2: \"coords\": expected \"at\", as for another output on the same set of "
     "voxels, got \"there\""},
    {"{\"layer\":\"e\",\"coords\":\"xyz\"}",
     "line 2: expected a name that no input has, got \"xyz\""},
    {"{\"layer\":\"e\",\"coords\":\"feats\"}",
     "line 2: expected a name that no input has, got \"feats\""},
    {"{\"layer\":\"e\",\"coords\":\"e\"}", "line 2: two outputs are named \"e\""},
    {"{\"layer\":\"e\",\"coords\":\"at\"},{\"layer\":\"d\",\"coords\":\"at\"}",
     "line 2: two outputs are named \"at\""},
    {"{\"layer\":\"e\"},{\"layer\":\"a\",\"name\":\"e_coords\"}",
     "line 2: two outputs are named \"e_coords\""},
    {"{\"layer\":\"e\"},{\"layer\":\"c\",\"coords\":\"e_coords\"}",
     "line 2: two outputs are named \"e_coords\""},
    {"{\"layer\":\"e\",\"coords\":\"\"}",
     "line 2, column 34: \"coords\": expected a text of 1 to 127 bytes, got \"\""},
    {"{\"layer\":\"e\",\"name\":\"" LONG120 "1\"}",
     "line 2: \"0123456789012345678901234567890123456789012345678901234567890123...\" "
     "with _coords behind it has 128 characters, expected at most 127: name the "
     "coordinates by \"coords\""},
};

START_TEST(wrong_outputs_are_refused_with_a_sentence)
{
    struct vx_why why = {{0}};
    char expected[2 * VX_WHY_BYTES];
    ck_assert_ptr_null(parse(bad[_i].outputs, &why));
    snprintf(expected, sizeof expected, LABEL ": %s", bad[_i].why);
    ck_assert_str_eq(why.text, expected);
}
END_TEST

/* 120 characters and _coords are 127. */
START_TEST(the_longest_default_name)
{
    const struct vx_network *network =
        parse_good("{\"layer\":\"e\",\"name\":\"" LONG120 "\"}");
    ck_assert_str_eq(network->coords[0].name, LONG120 "_coords");
}
END_TEST

/* Eight outputs of network.json, and no ninth. */
START_TEST(eight_outputs)
{
    struct vx_why why = {{0}};
    char outputs[1024] = "{\"layer\":\"e\"}";
    for (int i = 1; i < VX_NETWORK_OUTPUTS_MAX; i++) {
        size_t used = strlen(outputs);
        snprintf(outputs + used, sizeof outputs - used,
                 ",{\"layer\":\"%c\",\"name\":\"o%d\"}", "abcde"[i % 5], i);
    }
    ck_assert_int_eq(parse_good(outputs)->outputs_count, 8);
    strcat(outputs, ",{\"layer\":\"a\"}");
    ck_assert_ptr_null(parse(outputs, &why));
    ck_assert_msg(strstr(why.text, "expected 1 to 8 outputs, got 9") != NULL, "%s",
                  why.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("network_outputs");
    TCase *tcase = tcase_create("network_outputs");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, outputs_on_set_0_have_no_coordinates);
    tcase_add_test(tcase, outputs_on_a_set_share_its_coordinates);
    tcase_add_test(tcase, coordinates_have_the_name_that_an_output_gives);
    tcase_add_loop_test(tcase, wrong_outputs_are_refused_with_a_sentence, 0,
                        VX_COUNT(bad));
    tcase_add_test(tcase, the_longest_default_name);
    tcase_add_test(tcase, eight_outputs);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
