/* The note about layouts of several libraries: who is counted, and in which words.
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

#define LAYERS_MAX 16
#define TEXT_BYTES 1024

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

/* Layers of kernel 1, a word each, but those with a capital have kernel 3, and "-" sets no layout. */
static const struct {
    const char *layouts;
    const char *note; /* before the sentence that all have; NULL = none */
} cases[] = {
    {"spconv", NULL},
    {"Spconv Spconv spconv", NULL},
    {"Flexgemm flexgemm", NULL},
    {"Spconv Spconv spconv flexgemm",
     "layouts of several libraries: spconv (3 layers), flexgemm (1: l4)"},
    {"flexgemm flexgemm Spconv",
     "layouts of several libraries: flexgemm (2 layers), spconv (1: l3)"},
    {"spconv flexgemm",
     "layouts of several libraries: spconv (1 layer), flexgemm (1: l2)"},
    /* The shape decides for spconv's name, and flexgemm's would read the same. */
    {"- - flexgemm", NULL},
    /* Who writes letters names no library. */
    {"Spconv Spconv oxyzi", NULL},
    {"oxyzi flexgemm spconv oxyzi oxyzi",
     "layouts of several libraries: spconv (1 layer), flexgemm (1: l2)"},
    {"spconv flexgemm flexgemm flexgemm flexgemm flexgemm flexgemm flexgemm flexgemm "
     "flexgemm flexgemm flexgemm",
     "layouts of several libraries: flexgemm (11 layers), spconv (1: l1)"},
    {"Spconv spconv spconv spconv spconv spconv spconv spconv spconv flexgemm flexgemm "
     "flexgemm flexgemm flexgemm flexgemm",
     "layouts of several libraries: spconv (9 layers), flexgemm (6: l10, l11, l12, l13, "
     "l14, l15)"},
};

/* The network of a case's words, and its file. */
static const struct vx_network *network_of(const char *layouts,
                                           struct vx_safetensors **file)
{
    static char words[512], names[LAYERS_MAX][16], text[4096];
    struct vx_test_tensor tensors[LAYERS_MAX];
    struct vx_page page = {text, sizeof text, 0};
    const struct vx_network *network;
    size_t count = 0;
    snprintf(words, sizeof words, "%s", layouts);
    vx_page_add(&page,
                "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":2}},\"layers\":[");
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " ")) {
        bool large = *word == '-' || (*word >= 'A' && *word <= 'Z');
        i64 k = large ? 3 : 1;
        char input[16] = "feats", layout[40] = "";
        if (count) snprintf(input, sizeof input, "l%zu", count);
        if (*word != '-')
            snprintf(layout, sizeof layout, ",\"layout\":\"%c%s\"", *word | ' ',
                     word + 1);
        snprintf(names[count], sizeof names[count], "l%zu.weight", count + 1);
        tensors[count] =
            (struct vx_test_tensor){names[count], "F32", {2, k, k, k, 2}, 5, NULL};
        vx_page_add(
            &page,
            "%s{\"name\":\"l%zu\",\"op\":\"subm_conv\",\"input\":\"%s\",\"channels\":2,"
            "\"kernel\":%d,\"bias\":false%s}",
            count ? "," : "", count + 1, input, (int)k, layout);
        ck_assert_uint_lt(++count, LAYERS_MAX);
    }
    vx_page_add(&page, "],\"outputs\":[{\"layer\":\"l%zu\"}]}", count);
    struct vx_network_text source = {text, strlen(text), "m/network.json"};
    vx_status status = vx_network_parse(&source, &arena, &why, &network);
    ck_assert_msg(!status.fault, "%s", why.text);
    size_t bytes =
        vx_test_pack_safetensors(tensors, count, file_bytes, sizeof file_bytes);
    status = vx_safetensors_parse(file_bytes, bytes, "m/1/w", &why, file);
    ck_assert_msg(!status.fault, "%s", why.text);
    status = vx_weights_check(network, *file, &why);
    ck_assert_msg(!status.fault, "%s", why.text);
    return network;
}

/* Writes the notes on a network and a file of these tensors into `text`. */
static void notes_of(const char *network_json, const struct vx_test_tensor *tensors,
                     size_t count, char text[TEXT_BYTES])
{
    struct vx_page page = {text, TEXT_BYTES, 0};
    const struct vx_network *network;
    struct vx_safetensors *file;
    const struct vx_network_text source = {network_json, strlen(network_json),
                                           "m/network.json"};
    vx_status status = vx_network_parse(&source, &arena, &why, &network);
    ck_assert_msg(!status.fault, "%s", why.text);
    size_t bytes =
        vx_test_pack_safetensors(tensors, count, file_bytes, sizeof file_bytes);
    status = vx_safetensors_parse(file_bytes, bytes, "m/1/w", &why, &file);
    ck_assert_msg(!status.fault, "%s", why.text);
    text[0] = '\0';
    ck_assert(!vx_notes_write(network, file, NULL, &page).fault);
    vx_safetensors_close(&file);
}

START_TEST(layouts_of_several_libraries_are_noted)
{
    char text[1024] = "", expected[512] = "";
    struct vx_page page = {text, sizeof text, 0};
    struct vx_safetensors *file;
    const struct vx_network *network = network_of(cases[_i].layouts, &file);
    ck_assert(!vx_notes_write(network, file, NULL, &page).fault);
    const char *found = strstr(text, "layouts of several");
    ck_assert_msg(!found == !cases[_i].note, "%s", text);
    if (found) {
        snprintf(expected, sizeof expected,
                 "%s; a weight may have the same shape in each and other numbers (1^3 of "
                 "spconv and flexgemm): if one library trained all, set its layout "
                 "everywhere\n",
                 cases[_i].note);
        ck_assert_str_eq(found, expected);
    }
    vx_safetensors_close(&file);
}
END_TEST

/* A weight that is named as two libraries do. */
static const struct {
    const char *tensor, *layout;
    bool noted;
} kernels[] = {
    {"y.kernel", ",\"layout\":\"warpconvnet\"", true},
    {"y.kernel", ",\"layout\":\"vio\"", true},
    {"y.kernel", ",\"layout\":\"minkowski\"", false},
    {"y.kernel", ",\"layout\":\"torchsparse\"", false},
    {"y.weight", ",\"layout\":\"warpconvnet\"", false},
};

START_TEST(a_name_that_another_library_gives_is_noted)
{
    char network_json[512], text[TEXT_BYTES];
    const struct vx_test_tensor tensor = {kernels[_i].tensor, "F32", {27, 2, 2}, 3, NULL};
    snprintf(
        network_json, sizeof network_json,
        "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":2}},\"layers\":[{\"name\":"
        "\"y\",\"op\":\"subm_conv\",\"input\":\"feats\",\"channels\":2,\"kernel\":3,"
        "\"bias\":false,\"tensors\":{\"weight\":\"%s\"}%s}],\"outputs\":[{"
        "\"layer\":\"y\"}]}",
        kernels[_i].tensor, kernels[_i].layout);
    notes_of(network_json, &tensor, 1, text);
    const char *note = "named \"kernel\", with another library's layout, in y; ";
    ck_assert_msg((strstr(text, note) != NULL) == kernels[_i].noted, "%s", text);
}
END_TEST

/* What a network says beside a file of zeros. */
static const struct {
    const char *layers, *more; /* more: behind the outputs */
    const char *note;          /* part of it; NULL: none of these */
} others[] = {
    {"{\"name\":\"y\",\"op\":\"group_norm\",\"input\":\"feats\",\"groups\":2,"
     "\"affine\":false}",
     "",
     "statistics over all voxels of a sample in y; torch.nn.GroupNorm on rows [N, C] has "
     "those of each voxel, which is served with 1 group only, as layer_norm\n"},
    {"{\"name\":\"y\",\"op\":\"layer_norm\",\"input\":\"feats\",\"affine\":false}", "",
     NULL},
    {"{\"name\":\"y\",\"op\":\"batch_norm\",\"input\":\"feats\",\"affine\":false}", "",
     "running_var is 0 throughout in y; it divides by the root of eps alone, as if its "
     "input never varied\n"},
    {"{\"name\":\"y\",\"op\":\"to_dense\",\"input\":\"feats\",\"shape\":[8,7,8]}", "",
     "shape 8x7x8 of y is smaller than that of its voxels, 8x8x8; a request with a voxel "
     "outside of it is refused\n"},
    {"{\"name\":\"y\",\"op\":\"to_dense\",\"input\":\"feats\",\"shape\":[8,9,8]}", "",
     NULL},
    {"{\"name\":\"y\",\"op\":\"to_dense\",\"input\":\"feats\"}", "", NULL},
    {"{\"name\":\"y\",\"op\":\"upsample\",\"input\":\"feats\",\"stride\":2}", "",
     "no \"limits.sets\" for the children that are made by y; each voxel counts with all "
     "that it can have, so that only small requests fit, and one may take as long as the "
     "most that fit: set the most that there are\n"},
    {"{\"name\":\"y\",\"op\":\"upsample\",\"input\":\"feats\",\"stride\":2}",
     ",\"limits\":{\"sets\":{\"y\":1000}}", NULL},
};

START_TEST(other_notes)
{
    char network_json[1024], text[TEXT_BYTES];
    const struct vx_test_tensor tensors[] = {{"y.running_mean", "F32", {2}, 1, NULL},
                                             {"y.running_var", "F32", {2}, 1, NULL}};
    snprintf(network_json, sizeof network_json,
             "{\"format\":1,\"inputs\":{\"coords\":{\"spatial_shape\":8},\"feats\":"
             "{\"channels\":2}},\"layers\":[%s],\"outputs\":[{\"layer\":\"y\"}]%s}",
             others[_i].layers, others[_i].more);
    notes_of(network_json, tensors, VX_COUNT(tensors), text);
    if (others[_i].note)
        ck_assert_msg(strstr(text, others[_i].note) != NULL, "%s", text);
    else
        for (size_t i = 0; i < VX_COUNT(others); i++)
            ck_assert_msg(!others[i].note || !strstr(text, others[i].note), "%s", text);
}
END_TEST

#define POOL(name, input, sizes)                                                         \
    "{\"name\":\"" name "\",\"op\":\"max_pool\",\"input\":\"" input                      \
    "\",\"rule\":\"floor\"," sizes "}"

/* What layers see across, and what is said of it. */
static const struct {
    const char *coords, *layers;
    const char *note; /* NULL = nothing of columns */
} flats[] = {
    {"", POOL("y", "feats", "\"kernel\":[3,3,1],\"stride\":1"),
     "no layer sees across column 3 of coords, as in a network of two axes: requests "
     "then "
     "send [b, y, x, 0]; set \"spatial_shape\" [H, W, 1], so that other columns are "
     "refused\n"},
    {"", POOL("y", "feats", "\"kernel\":[3,1,1],\"stride\":1"),
     "no layer sees across columns 2 and 3 of coords, as in a network of one axis: "
     "requests "
     "then send [b, x, 0, 0]; set \"spatial_shape\" [W, 1, 1], so that other columns are "
     "refused\n"},
    {"\"coords\":{\"spatial_shape\":[8,8,1]},",
     POOL("y", "feats", "\"kernel\":[3,3,1],\"stride\":1"), NULL},
    {"", POOL("y", "feats", "\"kernel\":3,\"stride\":1"), NULL},
    {"", POOL("y", "feats", "\"kernel\":[1,1,3],\"stride\":1"), NULL},
    {"",
     POOL("a", "feats", "\"kernel\":[3,3,1],\"stride\":1") "," POOL(
         "y", "a", "\"kernel\":[1,1,2],\"stride\":[1,1,2]"),
     NULL},
    {"",
     POOL("a", "feats",
          "\"kernel\":[3,3,1],\"stride\":1") ",{\"name\":\"y\",\"op\":\"to_dense\","
                                             "\"input\":\"a\",\"shape\":[8,8,8]}",
     NULL},
    /* Of voxels alone nothing can be said. */
    {"", "{\"name\":\"y\",\"op\":\"relu\",\"input\":\"feats\"}", NULL},
};

START_TEST(columns_that_no_layer_sees_across_are_noted)
{
    char network_json[1024], text[TEXT_BYTES];
    snprintf(network_json, sizeof network_json,
             "{\"format\":1,\"inputs\":{%s\"feats\":{\"channels\":2}},\"layers\":[%s],"
             "\"outputs\":[{\"layer\":\"y\"}]}",
             flats[_i].coords, flats[_i].layers);
    notes_of(network_json, NULL, 0, text);
    if (flats[_i].note)
        ck_assert_str_eq(text, flats[_i].note);
    else
        ck_assert_msg(!strstr(text, "sees across"), "%s", text);
}
END_TEST

/* `zeros`: the file has no other numbers, else ones. */
START_TEST(a_weight_of_zeros_is_noted)
{
    static f32 ones[4] = {0, 0, 0, 1};
    static const char network_json[] =
        "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":2}},\"layers\":[{\"name\":"
        "\"y\","
        "\"op\":\"linear\",\"input\":\"feats\",\"channels\":2,\"bias\":false}],"
        "\"outputs\":[{\"layer\":\"y\"}]}";
    char text[TEXT_BYTES];
    const struct vx_test_tensor tensor = {"y.weight", "F32", {2, 2}, 2, _i ? ones : NULL};
    notes_of(network_json, &tensor, 1, text);
    ck_assert_str_eq(text,
                     _i ? ""
                        : "a weight is 0 throughout in y; its result does not depend "
                          "on its input\n");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("notes");
    TCase *tcase = tcase_create("libraries");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, layouts_of_several_libraries_are_noted, 0,
                        VX_COUNT(cases));
    tcase_add_loop_test(tcase, a_name_that_another_library_gives_is_noted, 0,
                        VX_COUNT(kernels));
    tcase_add_loop_test(tcase, other_notes, 0, VX_COUNT(others));
    tcase_add_loop_test(tcase, columns_that_no_layer_sees_across_are_noted, 0,
                        VX_COUNT(flats));
    tcase_add_loop_test(tcase, a_weight_of_zeros_is_noted, 0, 2);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
