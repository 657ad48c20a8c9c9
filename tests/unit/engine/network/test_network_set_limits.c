/* How many sets a network may have, the limits that it gives them itself, and the features
 * in place of a layer.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/network/network.h"

#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LABEL      "m/network.json"
#define TEXT_BYTES (32 << 10)

static u8 *block;
static struct vx_arena arena;
static char text[TEXT_BYTES];
static size_t used;

static void set_up(void)
{
    block = vx_alloc(VX_NETWORK_ARENA_BYTES);
    vx_arena_init(&arena, block, VX_NETWORK_ARENA_BYTES);
    used = 0;
}

static void tear_down(void)
{
    vx_free(block);
}

VX_PRINTF(1, 2) static void say(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    used += (size_t)vsnprintf(text + used, TEXT_BYTES - used, format, list);
    va_end(list);
    ck_assert_uint_lt(used, TEXT_BYTES);
}

static const struct vx_network *parse(struct vx_why *why)
{
    const struct vx_network_text source = {text, strlen(text), LABEL};
    const struct vx_network *network;
    vx_status status = vx_network_parse(&source, &arena, why, &network);
    ck_assert(!status.fault == (network != NULL));
    if (status.fault) ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    return network;
}

/* As many sets as the limit, each brought back to set 0; and one more. */
START_TEST(as_many_sets_as_the_limit)
{
    for (int extra = 0; extra < 2; extra++) {
        struct vx_why why = {{0}};
        used = 0;
        vx_arena_reset(&arena);
        say("{\"format\":1,\"inputs\":{\"feats\":{\"channels\":4}},\"layers\":[\n"
            "{\"name\":\"s1\",\"op\":\"relu\",\"input\":\"feats\"}");
        for (int i = 2; i <= VX_SETS_MAX + extra; i++)
            say(",\n{\"name\":\"d%d\",\"op\":\"downsample\",\"input\":\"s1\","
                "\"stride\":[1,%d,1]},"
                "{\"name\":\"u%d\",\"op\":\"upsample\",\"input\":\"d%d\","
                "\"stride\":[1,%d,1],\"onto\":\"s1\"},"
                "{\"name\":\"s%d\",\"op\":\"add\",\"inputs\":[\"s%d\",\"u%d\"]}",
                i, i, i, i, i, i, i - 1, i);
        say("],\"outputs\":[{\"layer\":\"s%d\"}]}", VX_SETS_MAX + extra);
        const struct vx_network *network = parse(&why);
        ck_assert_msg((network == NULL) == extra, "%s", why.text);
        if (network) ck_assert_int_eq(network->sets_count, VX_SETS_MAX);
        if (extra)
            ck_assert_str_eq(why.text, LABEL
                             ": layer \"d33\": line 34: expected at most 32 sets of "
                             "voxels, and this layer makes one more");
    }
}
END_TEST

/* `onto` may name the features; `of` may not, and a block has at most 343 voxels. */
static const struct {
    const char *layers;
    const char *why; /* NULL = good */
} features[] = {
    {"{\"name\":\"d\",\"op\":\"downsample\",\"input\":\"feats\",\"stride\":2},\n"
     "{\"name\":\"y\",\"op\":\"upsample\",\"input\":\"d\",\"stride\":2,\"onto\":"
     "\"feats\"}",
     NULL},
    {"{\"name\":\"d\",\"op\":\"downsample\",\"input\":\"feats\",\"stride\":3},\n"
     "{\"name\":\"y\",\"op\":\"upsample\",\"input\":\"d\",\"stride\":2,\"onto\":"
     "\"feats\"}",
     "layer \"y\": line 3: \"onto\": stride 2x2x2 does not lead from set 1 (stride "
     "3x3x3, made by layer \"d\") to set 0 (the request's)"},
    {"{\"name\":\"d\",\"op\":\"downsample\",\"input\":\"feats\",\"stride\":2},\n"
     "{\"name\":\"y\",\"op\":\"unpool\",\"input\":\"d\",\"of\":\"feats\"}",
     "layer \"y\": line 3: \"of\": expected a strided convolution or a pool, and "
     "\"feats\" is an input"},
    {"{\"name\":\"y\",\"op\":\"upsample\",\"input\":\"feats\",\"stride\":8}",
     "layer \"y\": line 2: \"stride\": expected at most 343 voxels in the kernel or "
     "block, got 8x8x8 = 512"},
};

START_TEST(features_in_place_of_a_layer)
{
    struct vx_why why = {{0}};
    char expected[2 * VX_WHY_BYTES];
    say("{\"format\":1,\"inputs\":{\"feats\":{\"channels\":4}},\"layers\":[\n%s],"
        "\"outputs\":[{\"layer\":\"y\"}]}",
        features[_i].layers);
    const struct vx_network *network = parse(&why);
    ck_assert_msg(!network == !!features[_i].why, "%s", why.text);
    if (network) {
        ck_assert_int_eq(network->layers[1].onto, VX_LAYER_FEATS);
        ck_assert_int_eq(network->layers[1].set, 0);
        return;
    }
    snprintf(expected, sizeof expected, LABEL ": %s", features[_i].why);
    ck_assert_str_eq(why.text, expected);
}
END_TEST

static const struct {
    const char *sets;
    const char *why; /* NULL = good */
} limits[] = {
    {"{\"d\":7}", NULL},
    {"{\"u\":7}", NULL},
    {"{}", NULL},
    {"[]", "line 5, column 18: \"sets\": expected an object, got a list"},
    {"{\"x\":7}", "line 5: \"sets\": unknown layer \"x\"; known: d, u, y"},
    {"{\"y\":7}", "line 5: \"sets\": \"y\" lies on the voxels of the request, which "
                  "voxels_max limits"},
    {"{\"d\":7,\"u\":8}",
     "line 5: \"sets\": \"u\" lies on a set that has a limit already"},
    {"{\"d\":0}",
     "line 5, column 23: \"d\": expected an integer from 1 to 1073741824, got 0"},
};

/* "d" and "u" lie on a set of their own, on lines 2 to 4. */
#define LAYERS                                                                           \
    "{\"name\":\"d\",\"op\":\"max_pool\",\"input\":\"feats\",\"kernel\":2,\"stride\":2," \
    "\"rule\":\"floor\"},\n"                                                             \
    "{\"name\":\"u\",\"op\":\"relu\",\"input\":\"d\"},\n"                                \
    "{\"name\":\"y\",\"op\":\"unpool\",\"input\":\"u\",\"of\":\"d\"}"

START_TEST(limits_of_sets)
{
    struct vx_why why = {{0}};
    char expected[2 * VX_WHY_BYTES];
    i64 rows[VX_SETS_MAX];
    say("{\"format\":1,\"inputs\":{\"feats\":{\"channels\":4}},\"layers\":[\n%s],\n",
        LAYERS);
    say("\"limits\":{\"sets\":%s},\"outputs\":[{\"layer\":\"y\"}]}", limits[_i].sets);
    const struct vx_network *network = parse(&why);
    if (!limits[_i].why) {
        ck_assert_msg(network != NULL, "%s", why.text);
        vx_sets_rows_max(network->sets, network->sets_count, 100, rows);
        ck_assert_int_eq(rows[1], limits[_i].sets[1] == '}' ? 100 : 7);
        return;
    }
    ck_assert_ptr_null(network);
    snprintf(expected, sizeof expected, LABEL ": %s", limits[_i].why);
    ck_assert_str_eq(why.text, expected);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("network_set_limits");
    TCase *tcase = tcase_create("network_set_limits");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, as_many_sets_as_the_limit);
    tcase_add_loop_test(tcase, features_in_place_of_a_layer, 0, VX_COUNT(features));
    tcase_add_loop_test(tcase, limits_of_sets, 0, VX_COUNT(limits));
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
