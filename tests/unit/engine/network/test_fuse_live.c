/* Fusing: which products compute the channels of live children alone, and that the logits
 * come before them.
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

#define LINEAR(name_, input_, channels_)                                                 \
    "{\"name\":\"" name_ "\",\"op\":\"linear\",\"input\":\"" input_                      \
    "\",\"channels\":" channels_ "}"
#define CONV(name_, input_, channels_, more_)                                            \
    "{\"name\":\"" name_ "\",\"op\":\"subm_conv\",\"layout\":\"vio\",\"kernel\":3,"      \
    "\"input\":\"" input_ "\",\"channels\":" channels_ more_ "}"
#define OP(op_, name_, input_)                                                           \
    "{\"name\":\"" name_ "\",\"op\":\"" op_ "\",\"input\":\"" input_ "\"}"
#define CHILDREN(name_, input_, stride_, more_)                                          \
    "{\"name\":\"" name_ "\",\"op\":\"channel_to_space\",\"input\":\"" input_            \
    "\",\"stride\":" stride_ more_ "}"
#define BY(name_)  ",\"occupancy\":\"" name_ "\""
#define OUT(name_) "{\"layer\":\"" name_ "\"}"

/* Features have 16 channels.  panels: of the node of layer "p". */
static const struct {
    const char *layers, *outputs;
    i32 panels;
} cases[] = {
    {LINEAR("l", "feats", "8") "," CONV("p", "feats", "128",
                                        "") "," CHILDREN("y", "p", "2", BY("l")),
     OUT("y"), 8},
    {LINEAR("l", "feats", "8") "," LINEAR("p", "feats", "256") "," CHILDREN(
         "y", "p", "2", BY("l")) "," OP("relu", "r", "y"),
     OUT("r"), 8},
    /* The logits are computed behind the product, which moves; a norm and an activation. */
    {CONV("p", "feats", "64", "") "," OP("batch_norm", "n", "p") "," OP(
         "silu", "s", "n") "," LINEAR("l", "feats", "4") "," CHILDREN("y", "s", "[1,2,2]",
                                                                      BY("l")),
     OUT("y"), 4},
    /* The voxels of another layer, whose logits they were. */
    {LINEAR("l", "feats", "8") "," CHILDREN("g", "feats", "2", BY("l")) "," CONV(
         "p", "feats", "128", "") "," CHILDREN("y", "p", "2", ",\"onto\":\"g\""),
     OUT("y") "," OUT("g"), 8},
    /* All children; read by another; 8 channels a child; groups; a residual; an output;
     * more children than have lists. */
    {CONV("p", "feats", "128", "") "," CHILDREN("y", "p", "2", ""), OUT("y"), 1},
    {LINEAR("l", "feats", "8") "," CONV("p", "feats", "128", "") "," CHILDREN(
         "y", "p", "2", BY("l")) "," OP("relu", "r", "p"),
     OUT("y") "," OUT("r"), 1},
    {LINEAR("l", "feats", "8") "," CONV("p", "feats", "64",
                                        "") "," CHILDREN("y", "p", "2", BY("l")),
     OUT("y"), 1},
    {LINEAR("l", "feats", "8") "," CONV(
         "p", "feats", "128", ",\"groups\":2") "," CHILDREN("y", "p", "2", BY("l")),
     OUT("y"), 1},
    {LINEAR("l", "feats", "8") "," LINEAR("a", "feats", "128") "," CONV(
         "p", "feats", "128", "") ",{\"name\":\"s\",\"op\":\"add\",\"inputs\":[\"p\","
                                  "\"a\"]}," CHILDREN("y", "s", "2", BY("l")),
     OUT("y"), 1},
    {LINEAR("l", "feats", "8") "," CONV("p", "feats", "128",
                                        "") "," CHILDREN("y", "p", "2", BY("l")),
     OUT("y") "," OUT("p"), 1},
    {LINEAR("l", "feats", "27") "," LINEAR("p", "feats",
                                           "432") "," CHILDREN("y", "p", "3", BY("l")),
     OUT("y"), 1},
};

static i32 layer_find(const struct vx_network *network, const char *name)
{
    for (i32 i = 0; i < network->layers_count; i++)
        if (!strcmp(network->layers[i].name, name)) return i;
    ck_abort_msg("no layer %s", name);
}

static void plan_make(i32 index, bool live, struct vx_arena *arena,
                      const struct vx_plan **plan)
{
    const struct vx_fuse_options fuse = {.fold_norms = true,
                                         .fuse_activations = true,
                                         .fuse_residuals = true,
                                         .fuse_gathers = true,
                                         .fuse_live = live};
    const struct vx_plan_options options = vx_plan_gpu(2);
    const struct vx_network *network;
    const struct vx_graph *graph;
    struct vx_why why = {""};
    char text[2048];
    snprintf(text, sizeof text,
             "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":16}},\"layers\":[%s],"
             "\"outputs\":[%s]}",
             cases[index].layers, cases[index].outputs);
    const struct vx_network_text given = {text, strlen(text), "n"};
    vx_status status = vx_network_parse(&given, arena, &why, &network);
    ck_assert_msg(!status.fault, "%s", why.text);
    ck_assert(!vx_fuse_build(network, &fuse, arena, &graph).fault);
    ck_assert(!vx_plan_build(graph, &options, arena, plan).fault);
}

START_TEST(products_know_their_children)
{
    const struct vx_plan *plan;
    struct vx_arena arena;
    u8 *block = vx_alloc(ARENA_BYTES);
    vx_arena_init(&arena, block, ARENA_BYTES);
    plan_make(_i, true, &arena, &plan);
    const struct vx_graph *graph = plan->graph;
    const i32 index = graph->node_of[layer_find(graph->network, "p")];
    const struct vx_node *node = &graph->nodes[index];
    ck_assert_int_eq(vx_node_panels(node), cases[_i].panels);
    if (cases[_i].panels > 1) {
        const i32 logits = graph->node_of[layer_find(graph->network, "l")];
        const i32 reader = graph->node_of[layer_find(graph->network, "y")];
        ck_assert_ptr_eq(node->live,
                         &graph->network->layers[layer_find(graph->network, "y")]);
        ck_assert_int_eq(node->inputs[node->inputs_count - 1], logits);
        ck_assert_int_lt(logits, index);
        ck_assert_int_lt(index, reader);
        /* It runs before the host reads how many children there are. */
        ck_assert_int_eq(node->stage, 0);
        ck_assert_int_eq(graph->nodes[reader].stage, 1);
        ck_assert_int_ge(plan->tensors[logits + 1].last, index);
    }
    vx_free(block);
}
END_TEST

START_TEST(without_the_option_none_does)
{
    const struct vx_plan *plan;
    struct vx_arena arena;
    u8 *block = vx_alloc(ARENA_BYTES);
    vx_arena_init(&arena, block, ARENA_BYTES);
    plan_make(_i, false, &arena, &plan);
    for (i32 i = 0; i < plan->launches_count; i++)
        ck_assert_ptr_null(plan->launches[i].node->live);
    vx_free(block);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fuse_live");
    TCase *tcase = tcase_create("fuse_live");
    tcase_add_loop_test(tcase, products_know_their_children, 0, VX_COUNT(cases));
    tcase_add_loop_test(tcase, without_the_option_none_does, 0, VX_COUNT(cases));
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
