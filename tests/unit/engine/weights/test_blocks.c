/* Rule "floor" with the layout of a library that cuts off the last block of a shape: refused
 * where the stride does not divide the shape of the layer's input, noted where there is none.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/model/notes.h"
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

/* "d" is on line 2 and has the weight [2, 2, 1, 4, 2], "y" on line 3 has [2, 2, 2, 2, 2]. */
#define D(input_, keys_)                                                                 \
    "\n{\"name\":\"d\",\"op\":\"sparse_conv\",\"input\":\"" input_ "\",\"channels\":2,"  \
    "\"kernel\":[2,1,4],\"stride\":[2,1,4],\"bias\":false," keys_ "},"
#define Y(keys_)                                                                         \
    "\n{\"name\":\"y\",\"op\":\"sparse_conv\",\"input\":\"d\",\"channels\":2,\"kernel\"" \
    ":2,\"stride\":2,\"bias\":false," keys_ "}"
#define RELU          "\n{\"name\":\"y\",\"op\":\"relu\",\"input\":\"d\"}"
#define FLOOR         "\"rule\":\"floor\""
#define RULE          "\"rule\":\"spconv\""
#define LAYOUT(word_) ",\"layout\":\"" word_ "\""

/* `layers` on a shape, or without one. */
static const struct vx_network *network_of(const char *shape, const char *layers)
{
    char text[2048];
    const struct vx_network *network;
    snprintf(
        text, sizeof text,
        "{\"format\":1,\"inputs\":{%s%s%s\"feats\":{\"channels\":2}},\"layers\":[%s],"
        "\"outputs\":[{\"layer\":\"y\"}]}",
        shape ? "\"coords\":{\"spatial_shape\":" : "", shape ? shape : "",
        shape ? "}," : "", layers);
    struct vx_network_text source = {text, strlen(text), "m/network.json"};
    vx_status status = vx_network_parse(&source, &arena, &why, &network);
    ck_assert_msg(!status.fault, "%s", why.text);
    return network;
}

static struct vx_safetensors *file_of(void)
{
    static const struct vx_test_tensor tensors[] = {
        {"d.weight", "F32", {2, 2, 1, 4, 2}, 5, NULL},
        {"y.weight", "F32", {2, 2, 2, 2, 2}, 5, NULL}};
    struct vx_safetensors *file;
    size_t bytes = vx_test_pack_safetensors(tensors, 2, file_bytes, sizeof file_bytes);
    vx_status status = vx_safetensors_parse(file_bytes, bytes, "m/1/w", &why, &file);
    ck_assert_msg(!status.fault, "%s", why.text);
    return file;
}

static const struct {
    const char *shape, *layers, *why; /* behind the label; NULL = served */
} cases[] = {
    {"[6,7,8]", D("feats", FLOOR LAYOUT("spconv")) RELU, NULL},
    {"[5,7,8]", D("feats", FLOOR LAYOUT("spconv")) RELU,
     "layer \"d\": 5 voxels along column 1 of coords are no multiple of its stride, 2: "
     "layout \"spconv\" makes no voxel of the rest, rule \"floor\" one: set \"rule\": "
     "\"spconv\""},
    {"[6,7,9]", D("feats", FLOOR LAYOUT("flexgemm")) RELU,
     "layer \"d\": 9 voxels along column 3 of coords are no multiple of its stride, 4: "
     "layout \"flexgemm\" makes no voxel of the rest, rule \"floor\" one: set \"rule\": "
     "\"spconv\""},
    /* What the shape of the weight decides. */
    {"[6,7,6]", D("feats", FLOOR) RELU,
     "layer \"d\": 6 voxels along column 3 of coords are no multiple of its stride, 4: "
     "layout \"spconv\" makes no voxel of the rest, rule \"floor\" one: set \"rule\": "
     "\"spconv\""},
    /* The shape of the level counts, not the request's. */
    {"[8,8,8]", D("feats", FLOOR LAYOUT("spconv")) Y(FLOOR LAYOUT("spconv")), NULL},
    {"[6,8,8]", D("feats", FLOOR LAYOUT("spconv")) Y(FLOOR LAYOUT("spconv")),
     "layer \"y\": 3 voxels along column 1 of coords are no multiple of its stride, 2: "
     "layout \"spconv\" makes no voxel of the rest, rule \"floor\" one: set \"rule\": "
     "\"spconv\""},
    {"[9,8,11]", D("feats", RULE LAYOUT("spconv")) Y(FLOOR LAYOUT("spconv")), NULL},
    /* Libraries whose rule "floor" is, letters that no library stands behind, no shape. */
    {"[5,7,9]", D("feats", FLOOR LAYOUT("oxyzi")) RELU, NULL},
    {"[5,7,9]", D("feats", RULE LAYOUT("spconv")) RELU, NULL},
    {NULL, D("feats", FLOOR LAYOUT("spconv")) Y(FLOOR LAYOUT("flexgemm")), NULL},
    {"[5,7,9]",
     "{\"name\":\"u\",\"op\":\"upsample\",\"input\":\"feats\",\"stride\":3}," D(
         "u", FLOOR LAYOUT("spconv")) RELU,
     NULL},
};

START_TEST(a_block_that_the_library_cuts_is_refused)
{
    struct vx_safetensors *file = file_of();
    const struct vx_network *network = network_of(cases[_i].shape, cases[_i].layers);
    vx_status status = vx_weights_check(network, file, &why);
    char expected[2 * VX_WHY_BYTES];
    ck_assert_msg(!status.fault == !cases[_i].why, "%s", why.text);
    if (cases[_i].why) {
        ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
        snprintf(expected, sizeof expected, "m/network.json: %s", cases[_i].why);
        ck_assert_str_eq(why.text, expected);
    }
    vx_safetensors_close(&file);
}
END_TEST

#define NOTE                                                                             \
    "; where the stride does not divide the shape of its input, spconv and FlexGEMM "    \
    "make no voxel of the rest: set \"rule\": \"spconv\" and \"spatial_shape\" if that " \
    "happens\n"

static const struct {
    const char *shape, *layers, *note;
} notes[] = {
    {NULL, D("feats", FLOOR LAYOUT("spconv")) Y(FLOOR LAYOUT("flexgemm")),
     "rule \"floor\" without a spatial shape for d, y" NOTE},
    {NULL, D("feats", FLOOR LAYOUT("oxyzi")) Y(FLOOR LAYOUT("oxyzi")), NULL},
    {"[8,8,8]", D("feats", FLOOR LAYOUT("spconv")) Y(FLOOR LAYOUT("spconv")), NULL},
    {"[5,7,9]",
     "{\"name\":\"u\",\"op\":\"upsample\",\"input\":\"feats\",\"stride\":3}," D(
         "u", FLOOR LAYOUT("spconv")) Y(FLOOR LAYOUT("oxyzi")),
     "rule \"floor\" without a spatial shape for d" NOTE},
};

START_TEST(without_a_shape_there_is_a_note)
{
    char text[2048] = "";
    struct vx_page page = {text, sizeof text, 0};
    struct vx_safetensors *file = file_of();
    const struct vx_network *network = network_of(notes[_i].shape, notes[_i].layers);
    vx_status status = vx_weights_check(network, file, &why);
    ck_assert_msg(!status.fault, "%s", why.text);
    ck_assert(!vx_notes_write(network, file, NULL, &page).fault);
    const char *found = strstr(text, "rule \"floor\"");
    ck_assert_msg(!found == !notes[_i].note, "%s", text);
    if (found)
        ck_assert_msg(!strncmp(found, notes[_i].note, strlen(notes[_i].note)), "%s",
                      found);
    vx_safetensors_close(&file);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("blocks");
    TCase *tcase = tcase_create("blocks");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, a_block_that_the_library_cuts_is_refused, 0,
                        VX_COUNT(cases));
    tcase_add_loop_test(tcase, without_a_shape_there_is_a_note, 0, VX_COUNT(notes));
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
