/* FP8 in network.json: scales, "fp8", and a sentence for each way to write them wrong.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/network/network.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static u8 *block;
static struct vx_arena arena;
static char text[2048];

static void set_up(void)
{
    block = vx_alloc(VX_NETWORK_ARENA_BYTES);
    vx_arena_init(&arena, block, VX_NETWORK_ARENA_BYTES);
}

static void tear_down(void)
{
    vx_free(block);
}

#define CONV "\"op\":\"subm_conv\",\"kernel\":3,\"channels\":4,"
#define FP8  ",\"fp8\":{\"data\":\"fp8.npz\",\"nmse_max\":0.001}"

/* A layer "y" with these keys on line 2, and the end of the file on line 3. */
static vx_status parse(const char *keys, const char *tail, struct vx_why *why,
                       const struct vx_network **network)
{
    (void)snprintf(text, sizeof text,
                   "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":4}},\"layers\":[\n"
                   "{\"name\":\"y\",\"input\":\"feats\",%s}],\n"
                   "\"outputs\":[{\"layer\":\"y\"}]%s}",
                   keys, tail);
    const struct vx_network_text source = {text, strlen(text), "m/network.json"};
    vx_arena_reset(&arena);
    return vx_network_parse(&source, &arena, why, network);
}

static const struct vx_network *parse_good(const char *keys, const char *tail)
{
    struct vx_why why = {{0}};
    const struct vx_network *network;
    vx_status status = parse(keys, tail, &why, &network);
    ck_assert_msg(!status.fault, "%s", why.text);
    return network;
}

START_TEST(a_network_in_fp8_is_read)
{
    const struct vx_network *network = parse_good(CONV "\"fp8_scale\":0.25", FP8);
    ck_assert(network->layers[0].fp8_scale == 0.25f);
    ck_assert_int_eq(network->fp8.layers_count, 1);
    ck_assert_str_eq(network->fp8.data, "fp8.npz");
    ck_assert(network->fp8.nmse_max == 0.001);
    network = parse_good(CONV "\"bias\":false", "");
    ck_assert(network->layers[0].fp8_scale == 0);
    ck_assert_int_eq(network->fp8.layers_count, 0);
}
END_TEST

START_TEST(every_power_of_two_is_a_scale)
{
    char keys[256];
    for (int exponent = -60; exponent <= 60; exponent++) {
        (void)snprintf(keys, sizeof keys, CONV "\"fp8_scale\":%.17g", ldexp(1, exponent));
        ck_assert(parse_good(keys, FP8)->layers[0].fp8_scale == ldexpf(1, exponent));
    }
}
END_TEST

START_TEST(each_convolution_may_have_one)
{
    static const char *const keys[] = {
        CONV "\"fp8_scale\":2",
        "\"op\":\"subm_conv\",\"kernel\":1,\"channels\":4,\"fp8_scale\":2",
        "\"op\":\"sparse_conv\",\"kernel\":3,\"stride\":1,\"rule\":"
        "\"floor\",\"channels\":4,\"fp8_scale\":2",
        "\"op\":\"transposed_conv\",\"kernel\":3,\"stride\":1,\"onto\":\"feats\","
        "\"channels\":4,\"fp8_scale\":2",
    };
    for (size_t i = 0; i < VX_COUNT(keys); i++)
        ck_assert(parse_good(keys[i], FP8)->layers[0].fp8_scale == 2);
}
END_TEST

/* What comes before the reading can be used without e4m3, to compare. */
START_TEST(fp8_can_be_left)
{
    const struct vx_network *network = parse_good(CONV "\"fp8_scale\":0.25", FP8);
    vx_network_leave_fp8(network);
    ck_assert(network->layers[0].fp8_scale == 0);
    ck_assert_int_eq(network->fp8.layers_count, 1);
}
END_TEST

#define SCALED CONV "\"fp8_scale\":1"
static const struct {
    const char *keys, *tail, *why;
} bad[] = {
    {CONV "\"fp8_scale\":3", FP8,
     "\"fp8_scale\": expected a power of two from 2^-60 to 2^60, got 3"},
    {CONV "\"fp8_scale\":0", FP8, "expected a power of two from 2^-60 to 2^60, got 0"},
    {CONV "\"fp8_scale\":-0.5", FP8, "to 2^60, got -0.5"},
    {CONV "\"fp8_scale\":0.1", FP8, "to 2^60, got 0.10000000000000001"},
    {CONV "\"fp8_scale\":2305843009213693952", FP8, "to 2^60, got 2305843009213693952"},
    {CONV "\"fp8_scale\":4.336808689942018e-19", FP8, "to 2^60, got 4.33680868994201"},
    {CONV "\"fp8_scale\":1e308", FP8, "expected a power of two from 2^-60 to 2^60"},
    {CONV "\"fp8_scale\":\"1\"", FP8, "power of two from 2^-60 to 2^60, got \"1\""},
    {CONV "\"fp8_scale\":null", FP8, "power of two from 2^-60 to 2^60, got null"},
    {CONV "\"groups\":2,\"fp8_scale\":1", FP8,
     "\"fp8_scale\": expected a convolution of 1 group, got 2 groups"},
    {"\"op\":\"linear\",\"channels\":4,\"fp8_scale\":1", FP8,
     "the key \"fp8_scale\" does not belong to linear; only convolutions are computed in "
     "FP8"},
    {"\"op\":\"relu\",\"fp8_scale\":1", FP8,
     "the key \"fp8_scale\" does not belong to relu"},
    {SCALED, "",
     "line 2: layer \"y\" has \"fp8_scale\": expected \"fp8\" beside \"layers\", with "
     "\"data\" and \"nmse_max\""},
    {CONV "\"bias\":true", FP8,
     "line 3: \"fp8\": expected a layer with \"fp8_scale\", and none has it"},
    {SCALED, ",\"fp8\":1", "\"fp8\": expected an object, got 1"},
    {SCALED, ",\"fp8\":{\"data\":\"a.npz\",\"nmse\":1}",
     "line 3: unknown key \"nmse\"; the nearest is \"nmse_max\""},
    {SCALED, ",\"fp8\":{\"nmse_max\":1}", "the key \"data\" is missing"},
    {SCALED, ",\"fp8\":{\"data\":\"a.npz\"}", "line 3: the key \"nmse_max\" is missing"},
    {SCALED, ",\"fp8\":{\"data\":7,\"nmse_max\":1}", "\"data\": expected a text, got 7"},
    {SCALED, ",\"fp8\":{\"data\":\"\",\"nmse_max\":1}", "\"data\": expected a text of 1"},
    {SCALED, ",\"fp8\":{\"data\":\"1/fp8.npz\",\"nmse_max\":1}",
     "line 3: \"data\": expected the name of a file beside network.json, without \"/\" "
     "and not hidden, got \"1/fp8.npz\""},
    {SCALED, ",\"fp8\":{\"data\":\"..\",\"nmse_max\":1}", "not hidden, got \"..\""},
    {SCALED, ",\"fp8\":{\"data\":\".a.npz\",\"nmse_max\":1}",
     "not hidden, got \".a.npz\""},
    {SCALED, ",\"fp8\":{\"data\":\"a.npz\",\"nmse_max\":0}",
     "line 3: \"nmse_max\": expected a number above 0, at most 1, got 0"},
    {SCALED, ",\"fp8\":{\"data\":\"a.npz\",\"nmse_max\":-1}",
     "\"nmse_max\": expected a number from 0 to 1, got -1"},
    {SCALED, ",\"fp8\":{\"data\":\"a.npz\",\"nmse_max\":1.5}",
     "\"nmse_max\": expected a number from 0 to 1, got 1.5"},
    {SCALED, FP8 ",\"precision\":\"tf32\"",
     "line 3: \"precision\": expected \"fp16\" or \"bf16\" with layers that have "
     "\"fp8_scale\", got \"tf32\""},
    {SCALED, FP8 ",\"precision\":\"fp32\"", "\"fp8_scale\", got \"fp32\""},
};

START_TEST(bad_files_are_refused_with_a_sentence)
{
    struct vx_why why = {{0}};
    const struct vx_network *network;
    vx_status status = parse(bad[_i].keys, bad[_i].tail, &why, &network);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_ptr_null(network);
    ck_assert_msg(strstr(why.text, bad[_i].why) != NULL, "%s", why.text);
}
END_TEST

START_TEST(sixteen_bits_beside_it)
{
    (void)parse_good(SCALED, FP8 ",\"precision\":\"fp16\"");
    (void)parse_good(SCALED, FP8 ",\"precision\":\"bf16\"");
    (void)parse_good(SCALED, FP8 ",\"precision\":\"auto\"");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("network_fp8");
    TCase *tcase = tcase_create("network_fp8");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_network_in_fp8_is_read);
    tcase_add_test(tcase, every_power_of_two_is_a_scale);
    tcase_add_test(tcase, each_convolution_may_have_one);
    tcase_add_test(tcase, fp8_can_be_left);
    tcase_add_loop_test(tcase, bad_files_are_refused_with_a_sentence, 0, VX_COUNT(bad));
    tcase_add_test(tcase, sixteen_bits_beside_it);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
