/* Fusing: which products read the rows that a space_to_channel would put side by side.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/plan/plan.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES (VX_NETWORK_ARENA_BYTES + VX_FUSE_ARENA_BYTES + VX_PLAN_ARENA_BYTES)

#define BLOCK(name_, input_, stride_)                                                    \
    "{\"name\":\"" name_ "\",\"op\":\"space_to_channel\",\"input\":\"" input_            \
    "\",\"stride\":" stride_ "}"
#define PRODUCT(name_, input_, more_)                                                    \
    ",{\"name\":\"" name_ "\",\"input\":\"" input_ "\",\"channels\":7," more_ "}"
#define LINEAR "\"op\":\"linear\""
#define CONV   "\"op\":\"subm_conv\",\"layout\":\"vio\",\"kernel\":"
#define OP(op_, name_, input_)                                                           \
    ",{\"name\":\"" name_ "\",\"op\":\"" op_ "\",\"input\":\"" input_ "\"}"
#define OUT(name_) "{\"layer\":\"" name_ "\"}"

/* Features have 16 channels.  v: the offsets of the product of layer "y", 1: it has no map. */
static const struct {
    const char *layers, *outputs;
    i32 nodes, v;
} cases[] = {
    {BLOCK("b", "feats", "2") PRODUCT("y", "b", LINEAR), OUT("y"), 1, 8},
    {BLOCK("b", "feats", "[1,2,3]") PRODUCT("y", "b", LINEAR) OP("batch_norm", "n", "y")
         OP("relu", "r", "n"),
     OUT("r"), 1, 6},
    {BLOCK("b", "feats", "2") PRODUCT("y", "b", CONV "1"), OUT("y"), 1, 8},
    /* More offsets; read by another, or an output; an activation; one child; 7 channels. */
    {BLOCK("b", "feats", "2") PRODUCT("y", "b", CONV "3"), OUT("y"), 2, 27},
    {BLOCK("b", "feats", "2") PRODUCT("l", "b", LINEAR) PRODUCT("y", "b", LINEAR),
     OUT("y") "," OUT("l"), 3, 1},
    {BLOCK("b", "feats", "2") PRODUCT("y", "b", LINEAR), OUT("y") "," OUT("b"), 2, 1},
    {BLOCK("b", "feats", "2") OP("relu", "r", "b") PRODUCT("y", "r", LINEAR), OUT("y"), 2,
     1},
    {BLOCK("b", "feats", "1") PRODUCT("y", "b", LINEAR), OUT("y"), 2, 1},
    {BLOCK("b0", "feats", "1") PRODUCT("l", "b0", LINEAR) "," BLOCK("b", "l", "2")
         PRODUCT("y", "b", LINEAR),
     OUT("y"), 4, 1},
};

static i32 layer_find(const struct vx_network *network, const char *name)
{
    for (i32 i = 0; i < network->layers_count; i++)
        if (!strcmp(network->layers[i].name, name)) return i;
    ck_abort_msg("no layer %s", name);
}

START_TEST(products_read_blocks)
{
    const struct vx_fuse_options fuse = {.fold_norms = true,
                                         .fuse_activations = true,
                                         .fuse_residuals = true,
                                         .fuse_gathers = true};
    const struct vx_plan_options options = vx_plan_gpu(2);
    const struct vx_network *network;
    const struct vx_graph *graph;
    const struct vx_plan *plan;
    struct vx_why why = {""};
    struct vx_arena arena;
    char text[2048];
    u8 *block = vx_alloc(ARENA_BYTES);
    vx_arena_init(&arena, block, ARENA_BYTES);
    snprintf(text, sizeof text,
             "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":16}},\"layers\":[%s],"
             "\"outputs\":[%s]}",
             cases[_i].layers, cases[_i].outputs);
    const struct vx_network_text given = {text, strlen(text), "n"};
    vx_status status = vx_network_parse(&given, &arena, &why, &network);
    ck_assert_msg(!status.fault, "%s", why.text);
    ck_assert(!vx_fuse_build(network, &fuse, &arena, &graph).fault);
    ck_assert(!vx_plan_build(graph, &options, &arena, &plan).fault);
    ck_assert_int_eq(graph->nodes_count, cases[_i].nodes);
    const struct vx_launch *launch =
        &plan->launches[graph->node_of[layer_find(network, "y")]];
    const bool gathers = cases[_i].nodes == 1;
    ck_assert_int_eq(launch->node->gather != NULL, gathers);
    ck_assert(vx_launch_is_product(launch));
    ck_assert_int_eq(launch->map >= 0, cases[_i].v > 1);
    if (launch->map >= 0)
        ck_assert_int_eq(vx_map_offsets(&plan->maps[launch->map]), cases[_i].v);
    if (gathers) ck_assert_int_eq(vx_node_channels_in(launch->node), 16);
    if (gathers) ck_assert_int_eq(launch->inputs[0], 0);
    vx_free(block);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fuse_gather");
    TCase *tcase = tcase_create("fuse_gather");
    tcase_add_loop_test(tcase, products_read_blocks, 0, VX_COUNT(cases));
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
