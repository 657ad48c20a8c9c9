/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/jit/jit.h"
#include "engine/gpu/model/model_narrow.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

/* Which convolutions the kernel for few channels computes.  What it computes is the oracle's
 * (cases_windows.c), and what a model answers with it is test_gpu_exec's and others'. */

#define NETWORK(channels_, layer_)                                                       \
    "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":" channels_ "}},\"layers\":["     \
    "{\"name\":\"a\",\"input\":\"feats\"," layer_ "},"                                   \
    "{\"name\":\"end\",\"op\":\"tanh\",\"input\":\"a\"}],"                               \
    "\"outputs\":[{\"layer\":\"end\"}]}"
#define SUBM(channels_, kernel_, more_)                                                  \
    NETWORK(channels_, "\"op\":\"subm_conv\",\"channels\":32,\"layout\":\"vio\","        \
                       "\"kernel\":" kernel_ more_)

static const struct {
    const char *json, *what;
    enum vx_number type;
    const char *arch;
    i32 tile; /* of the kernel; -1: another computes it */
} rows[] = {
    {SUBM("4", "3", ""), "4 channels", VX_NUMBER_F16, "sm_90a", 0},
    {SUBM("1", "3", ""), "one", VX_NUMBER_BF16, "sm_80", 0},
    {SUBM("4", "5", ""), "of 5^3 offsets", VX_NUMBER_F16, "sm_90a", 1},
    {SUBM("5", "3", ""), "5 channels", VX_NUMBER_TF32, "sm_90a", 2},
    {SUBM("8", "5", ""), "8 channels of 5^3 offsets", VX_NUMBER_F16, "sm_90a", 3},
    {SUBM("4", "3", ""), "CDNA 3", VX_NUMBER_TF32, "gfx942", 0},
    {SUBM("4", "3", ""), "RDNA 3", VX_NUMBER_F16, "gfx1100", 0},
    {NETWORK("4",
             "\"op\":\"sparse_conv\",\"channels\":32,\"layout\":\"vio\",\"kernel\":3,"
             "\"stride\":2,\"rule\":\"floor\""),
     "another set", VX_NUMBER_F16, "sm_90a", 0},
    {SUBM("9", "3", ""), "9 channels", VX_NUMBER_F16, "sm_90a", -1},
    {SUBM("4", "7", ""), "of 7^3 offsets", VX_NUMBER_F16, "sm_90a", -1},
    {SUBM("4", "1", ""), "without a map", VX_NUMBER_F16, "sm_90a", -1},
    {SUBM("4", "3", ",\"groups\":2"), "groups", VX_NUMBER_F16, "sm_90a", -1},
    {SUBM("4", "3", ""), "no matrix instruction", VX_NUMBER_F32, "sm_90a", -1},
    {SUBM("4", "3", ""), "Turing", VX_NUMBER_F16, "sm_75", -1},
    {SUBM("4", "3", ""), "RDNA 3 of TF32", VX_NUMBER_TF32, "gfx1100", -1},
    {SUBM("8", "5", ""), "weights larger than shared memory", VX_NUMBER_TF32, "sm_86",
     -1},
};

static struct vx_gpu_choices *open(const char *json, enum vx_number type,
                                   const char *arch)
{
    static u8 block[VX_NETWORK_ARENA_BYTES];
    const struct vx_fuse_options fuse = {true, true, true, true, true};
    const struct vx_plan_options options = vx_plan_gpu(vx_number_bytes(type));
    const struct vx_network_text text = {json, strlen(json), "narrow"};
    const struct vx_pick pick = {.caps = vx_arch_caps(arch)};
    const struct vx_network *network;
    const struct vx_graph *graph;
    const struct vx_plan *plan;
    struct vx_gpu_choices *choices;
    struct vx_arena arena;
    struct vx_why why = {{0}};
    vx_arena_init(&arena, block, sizeof block);
    ck_assert_msg(!vx_network_parse(&text, &arena, &why, &network).fault, "%s", why.text);
    ck_assert(!vx_fuse_build(network, &fuse, &arena, &graph).fault);
    ck_assert(!vx_plan_build(graph, &options, &arena, &plan).fault);
    const struct vx_gpu_choices_want want = {plan, type, 1 << 20, &pick};
    ck_assert(!vx_gpu_choices_open(&want, &choices).fault);
    return choices;
}

START_TEST(few_channels_have_a_kernel)
{
    struct vx_gpu_choices *choices = open(rows[_i].json, rows[_i].type, rows[_i].arch);
    const struct vx_tile *tile = choices->narrow[0];
    ck_assert_msg(!!tile == (rows[_i].tile >= 0), "%s", rows[_i].what);
    ck_assert(!choices->narrow[1]);
    if (tile) {
        const struct vx_jit_wanted kernel = vx_gpu_narrow_wanted(choices, 0);
        ck_assert_msg(tile == &kernel.spec->tiles[rows[_i].tile], "%s", rows[_i].what);
        ck_assert_int_eq(kernel.type, rows[_i].type);
        ck_assert(kernel.spec->fits(tile, kernel.type, vx_arch_caps(rows[_i].arch)));
        ck_assert(!vx_gpu_is_conv(choices, 0));
    }
    vx_gpu_choices_close(&choices);
}
END_TEST

/* Its binary is made ready with the model, and its map is not sorted. */
START_TEST(nothing_else_is_prepared_for_it)
{
    static struct vx_gpu_wanted wanted;
    static struct vx_gpu_places places;
    const i64 rows_of_sets[] = {1000, 1000};
    struct vx_gpu_choices *choices = open(rows[0].json, VX_NUMBER_F16, "sm_90a");
    struct vx_why why = {{0}};
    i32 narrow = 0, convs = 0;
    wanted.count = 0;
    ck_assert(!vx_gpu_wanted_model(&wanted, choices, 1000, &why).fault);
    for (i32 i = 0; i < wanted.count; i++) {
        narrow += !strcmp(wanted.list[i].spec->name, "conv_narrow");
        convs += !strcmp(wanted.list[i].spec->name, "conv_masked");
    }
    ck_assert_int_eq(narrow, 1);
    ck_assert_int_eq(convs, 0);
    vx_gpu_places_make(choices, &(struct vx_gpu_sizes){rows_of_sets, 1, false, NULL},
                       &places);
    ck_assert_int_eq(places.sorted_count, 0);
    vx_gpu_choices_close(&choices);
}
END_TEST

/* CDNA 3 has too little shared memory for the sort in one block: nothing compiles it, or loads it. */
START_TEST(what_does_not_fit_is_not_wanted)
{
    static const char *const archs[] = {"gfx942", "sm_90a"};
    static struct vx_gpu_wanted wanted;
    const struct vx_caps *caps = vx_arch_caps(archs[_i]);
    struct vx_gpu_choices *choices = open(rows[0].json, VX_NUMBER_F16, archs[_i]);
    struct vx_why why = {{0}};
    i32 small = 0;
    wanted.count = 0;
    ck_assert(!vx_gpu_wanted_model(&wanted, choices, 1000, &why).fault);
    for (i32 i = 0; i < wanted.count; i++) {
        const struct vx_kernel_spec *spec = wanted.list[i].spec;
        ck_assert(!spec->fits ||
                  spec->fits(wanted.list[i].tile, wanted.list[i].type, caps));
        small += !strcmp(spec->name, "order_small");
    }
    ck_assert_int_eq(small, _i);
    vx_gpu_choices_close(&choices);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_narrow");
    TCase *cases = tcase_create("gpu_narrow");
    tcase_add_loop_test(cases, few_channels_have_a_kernel, 0, (int)VX_COUNT(rows));
    tcase_add_test(cases, nothing_else_is_prepared_for_it);
    tcase_add_loop_test(cases, what_does_not_fit_is_not_wanted, 0, 2);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
