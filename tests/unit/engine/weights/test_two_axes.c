/* Weights of networks of two axes, whose libraries write no third axis of the kernel.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/weights/weights.h"
#include "tests/support/model_files.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static u8 *block, file_bytes[1 << 16];
static struct vx_arena arena;
static struct vx_why why;

static void set_up(void)
{
    block = vx_alloc(VX_NETWORK_ARENA_BYTES);
    vx_arena_init(&arena, block, VX_NETWORK_ARENA_BYTES);
    why = (struct vx_why){{0}};
}

static void tear_down(void)
{
    vx_free(block);
}

#define ALLOWS "allows several layouts: set \"layout\" to the one that wrote it: "
static const struct {
    const char *kernel, *layout; /* "" = not set */
    i32 channels;
    i64 shape[4];
    const char *expected; /* the layout that is taken, or the end of the sentence */
    bool good;
} rows[] = {
    {"[3,3,1]", "", 6, {6, 3, 3, 4}, "spconv", true},
    {"[3,3,1]", "spconv", 6, {6, 3, 3, 4}, "spconv", true},
    {"[3,5,1]", "flexgemm", 6, {6, 3, 5, 4}, "flexgemm", true},
    {"[3,3,1]", "", 6, {3, 3, 4, 6}, "xyzio", true},
    {"[3,3,1]", "xyzoi", 6, {3, 3, 6, 4}, "xyzoi", true},
    {"1", "spconv", 6, {6, 1, 1, 4}, "spconv", true},
    {"1", "", 6, {6, 1, 1, 4}, ALLOWS "\"spconv\", \"flexgemm\"", false},
    /* PyTorch's Conv2d of four channels and a kernel of 4 x 4 has the same shape. */
    {"[4,4,1]",
     "",
     6,
     {6, 4, 4, 4},
     "of PyTorch's Conv2d, permute it to [Co, K, K, Ci] and set \"oxyzi\"",
     false},
    {"[5,5,1]", "", 6, {6, 4, 5, 5}, "got [6, 4, 5, 5]", false},
    /* The axis that is missing is the last one. */
    {"3",
     "spconv",
     6,
     {6, 3, 3, 4},
     "expected shape [6, 3, 3, 3, 4] (layout \"spconv\"), "
     "got [6, 3, 3, 4]",
     false},
    {"[1,3,3]",
     "spconv",
     6,
     {6, 3, 3, 4},
     "expected shape [6, 1, 3, 3, 4] (layout "
     "\"spconv\"), got [6, 3, 3, 4]",
     false},
};

START_TEST(the_last_axis_of_a_kernel_may_be_missing)
{
    char text[1024], layout[40] = "";
    const struct vx_network *network;
    struct vx_safetensors *file;
    struct vx_test_tensor tensor = {"y.weight", "F32", {0}, 4, NULL};
    memcpy(tensor.shape, rows[_i].shape, sizeof rows[_i].shape);
    if (rows[_i].layout[0])
        snprintf(layout, sizeof layout, ",\"layout\":\"%s\"", rows[_i].layout);
    snprintf(
        text, sizeof text,
        "{\"format\":1,\"inputs\":{\"coords\":{\"spatial_shape\":[64,64,64]},\"feats\":"
        "{\"channels\":4}},\"layers\":[{\"name\":\"y\",\"op\":\"sparse_conv\",\"input\":"
        "\"feats\",\"channels\":6,\"kernel\":%s,\"stride\":1,\"rule\":\"spconv\","
        "\"bias\":"
        "false%s}],\"outputs\":[{\"layer\":\"y\"}]}",
        rows[_i].kernel, layout);
    struct vx_network_text source = {text, strlen(text), "m/network.json"};
    vx_status status = vx_network_parse(&source, &arena, &why, &network);
    ck_assert_msg(!status.fault, "%s", why.text);
    size_t bytes = vx_test_pack_safetensors(&tensor, 1, file_bytes, sizeof file_bytes);
    status = vx_safetensors_parse(file_bytes, bytes, "m/1/w", &why, &file);
    ck_assert_msg(!status.fault, "%s", why.text);
    status = vx_weights_check(network, file, &why);
    if (rows[_i].good) {
        ck_assert_msg(!status.fault, "%s", why.text);
        ck_assert_str_eq(vx_layout_name(network->layers->layout), rows[_i].expected);
    } else {
        size_t length = strlen(why.text), end = strlen(rows[_i].expected);
        ck_assert(status.fault && length > end);
        ck_assert_str_eq(why.text + length - end, rows[_i].expected);
    }
    vx_safetensors_close(&file);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("two_axes");
    TCase *tcase = tcase_create("two_axes");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, the_last_axis_of_a_kernel_may_be_missing, 0,
                        VX_COUNT(rows));
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
