/* network.json at its limits, and one beyond each.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/network/network.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEAD                                                                             \
    "{\"format\":1,\"inputs\":{\"coords\":\"xyz\",\"feats\":{\"channels\":%d}},"         \
    "\"layers\":["
#define LINEAR "{\"name\":\"%s\",\"op\":\"linear\",\"input\":\"feats\",\"channels\":%d},"

static u8 *block;
static struct vx_arena arena;
static char text[4096];

static void set_up(void)
{
    block = vx_alloc(VX_NETWORK_ARENA_BYTES);
    vx_arena_init(&arena, block, VX_NETWORK_ARENA_BYTES);
}

static void tear_down(void)
{
    vx_free(block);
}

/* Parses `text`; NULL for `says` means that it is good.  Returns the network, or NULL. */
static const struct vx_network *check(const char *says)
{
    struct vx_why why = {{0}};
    const struct vx_network *network;
    const struct vx_network_text source = {text, strlen(text), "m/network.json"};
    vx_arena_reset(&arena);
    vx_status status = vx_network_parse(&source, &arena, &why, &network);
    if (!says) {
        ck_assert_msg(!status.fault, "%s", why.text);
        return network;
    }
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_msg(strstr(why.text, says) != NULL, "%s", why.text);
    return NULL;
}

/* A number as json.dumps writes a float, and keys as other libraries call them. */
START_TEST(how_a_layer_may_be_written)
{
    static const struct {
        const char *keys, *says;
    } cases[] = {
        {"\"kernel\":3.0,\"channels\":4.0", NULL},
        {"\"kernel\":[1,3.0,3],\"channels\":4", NULL},
        {"\"kernel\":3.5,\"channels\":4",
         "\"kernel\": expected integers from 1 to 343, got 3.5"},
        {"\"kernel_size\":3,\"channels\":4",
         "unknown key \"kernel_size\"; did you mean \"kernel\"?"},
        {"\"kernel\":3,\"channels\":4,\"stride\":1",
         "the key \"stride\" does not belong to subm_conv; a convolution with a stride "
         "is sparse_conv"},
    };
    for (size_t i = 0; i < VX_COUNT(cases); i++) {
        (void)snprintf(text, sizeof text,
                       HEAD
                       "{\"name\":\"y\",\"op\":\"subm_conv\",\"input\":\"feats\",%s}],"
                       "\"outputs\":[{\"name\":\"out\",\"layer\":\"y\"}]}",
                       4, cases[i].keys);
        check(cases[i].says);
    }
}
END_TEST

START_TEST(channels)
{
    static const struct {
        int channels;
        const char *says;
    } cases[] = {{0, "channels"},
                 {1, NULL},
                 {VX_CHANNELS_MAX, NULL},
                 {VX_CHANNELS_MAX + 1, "channels"}};
    for (size_t i = 0; i < VX_COUNT(cases); i++) {
        (void)snprintf(text, sizeof text,
                       HEAD LINEAR "{\"name\":\"r\",\"op\":\"relu\",\"input\":\"a\"}],"
                                   "\"outputs\":[{\"layer\":\"r\"}]}",
                       3, "a", cases[i].channels);
        check(cases[i].says);
    }
}
END_TEST

/* The sum of a concat's channels may be as wide as a layer, and no wider. */
START_TEST(channels_of_a_concat)
{
    for (int extra = 0; extra < 2; extra++) {
        (void)snprintf(text, sizeof text,
                       HEAD LINEAR "{\"name\":\"c\",\"op\":\"concat\",\"inputs\":[\"a\","
                                   "\"feats\"]}],\"outputs\":[{\"layer\":\"c\"}]}",
                       3, "a", VX_CHANNELS_MAX - 3 + extra);
        check(extra ? "expected at most 16384 channels, got 16385" : NULL);
    }
}
END_TEST

/* A layer may not have the name of either input. */
START_TEST(names_of_inputs)
{
    static const struct {
        const char *name, *says;
    } cases[] = {{"feats", "the name is taken by an input"},
                 {"xyz", "the name is taken by an input"},
                 {"coords", NULL}};
    for (size_t i = 0; i < VX_COUNT(cases); i++) {
        (void)snprintf(text, sizeof text,
                       HEAD LINEAR "{\"name\":\"r\",\"op\":\"relu\",\"input\":\"%s\"}]"
                                   ",\"outputs\":[{\"layer\":\"r\"}]}",
                       3, cases[i].name, 4, cases[i].name);
        check(cases[i].says);
    }
}
END_TEST

START_TEST(kernels)
{
    static const struct {
        const char *more, *says;
    } cases[] = {
        {"\"kernel\":7", NULL},
        {"\"kernel\":[7,7,9]",
         "expected at most 343 voxels in the kernel or block, got 7x7x9 = 441"},
        {"\"kernel\":[343,1,1]", NULL},
        {"\"kernel\":[345,1,1]", "343"},
        {"\"kernel\":[3,2,3]", "expected odd sizes, got 3x2x3"},
        {"\"kernel\":[3,3]",
         "expected one integer, or three for columns 1 to 3 of coords, got 2"},
        {"\"kernel\":[3,3,3,3]",
         "expected one integer, or three for columns 1 to 3 of coords, got 4"},
        {"\"kernel\":3,\"dilation\":1024", NULL},
        {"\"kernel\":3,\"dilation\":1025", "1024"},
        {"\"kernel\":3,\"dilation\":0", "dilation"},
    };
    (void)snprintf(text, sizeof text,
                   HEAD "{\"name\":\"c\",\"op\":\"subm_conv\",\"input\":\"feats\","
                        "\"channels\":4,%s}],\"outputs\":[{\"layer\":\"c\"}]}",
                   3, cases[_i].more);
    check(cases[_i].says);
}
END_TEST

/* Every order of x, y and z, and nothing else. */
START_TEST(axes_of_coords)
{
    static const char *const orders[] = {"xyz", "xzy", "yxz", "yzx",  "zxy", "zyx",
                                         "",    "zy",  "zyy", "bzyx", "ZYX"};
    const size_t good = 6;
    char says[128];
    for (size_t i = 0; i < VX_COUNT(orders); i++) {
        (void)snprintf(text, sizeof text,
                       "{\"format\":1,\"inputs\":{\"coords\":{\"axes\":\"%s\"},"
                       "\"feats\":{\"channels\":4}},\"layers\":[{\"name\":\"r\",\"op\":"
                       "\"relu\",\"input\":\"feats\"}],\"outputs\":[{\"layer\":\"r\"}]}",
                       orders[i]);
        (void)snprintf(
            says, sizeof says,
            "\"axes\": expected the axes of columns 1 to 3, such as \"xyz\" or "
            "\"zyx\", got \"%s\"",
            orders[i]);
        const struct vx_network *network = check(i < good ? NULL : says);
        if (network) ck_assert_str_eq(network->axes, orders[i]);
    }
    (void)snprintf(text, sizeof text,
                   HEAD "{\"name\":\"r\",\"op\":\"relu\",\"input\":\"feats\"}],"
                        "\"outputs\":[{\"layer\":\"r\"}]}",
                   4);
    ck_assert_str_eq(check(NULL)->axes, ""); /* not said */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("network_limits");
    TCase *tcase = tcase_create("network_limits");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, how_a_layer_may_be_written);
    tcase_add_test(tcase, channels);
    tcase_add_test(tcase, channels_of_a_concat);
    tcase_add_test(tcase, names_of_inputs);
    tcase_add_loop_test(tcase, kernels, 0, 10);
    tcase_add_test(tcase, axes_of_coords);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
