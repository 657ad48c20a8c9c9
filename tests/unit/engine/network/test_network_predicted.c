/* network.json with sets by logits: their rules, stages and bounds, the sentence for every
 * kind that cannot be, the order of nodes, and the plan of a network of several stages.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/plan/plan.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LABEL       "m/network.json"
#define ARENA_BYTES (VX_NETWORK_ARENA_BYTES + VX_FUSE_ARENA_BYTES + VX_PLAN_ARENA_BYTES)

static u8 *block;
static struct vx_arena arena;

static void set_up(void)
{
    block = vx_alloc(ARENA_BYTES);
    vx_arena_init(&arena, block, ARENA_BYTES);
}

static void tear_down(void)
{
    vx_free(block);
}

#define LAYER(name_, op_, input_, keys_)                                                 \
    "{\"name\":\"" name_ "\",\"op\":\"" op_ "\",\"input\":\"" input_ "\"" keys_ "}"
#define PAIR(name_, op_, a_, b_)                                                         \
    "{\"name\":\"" name_ "\",\"op\":\"" op_ "\",\"inputs\":[\"" a_ "\",\"" b_ "\"]}"
#define LINEAR(name_, input_, channels_)                                                 \
    LAYER(name_, "linear", input_, ",\"channels\":" channels_)
#define N ",\n"
#define R LAYER("r", "relu", "feats", "")
#define D LAYER("d", "downsample", "r", ",\"stride\":2")
/* Back onto the request's voxels. */
#define BACK(name_, input_)                                                              \
    N LAYER(name_, "upsample", input_, ",\"stride\":1,\"onto\":\"r\"")

/* `layers`, the first on line 2, on 16 channels; "y" is the output. */
static const struct vx_network *parse(const char *layers, const char *tail,
                                      struct vx_why *why)
{
    static char text[16 << 10];
    struct vx_network_text read = {text, 0, LABEL};
    const struct vx_network *network;
    snprintf(text, sizeof text,
             "{\"format\":1,\"inputs\":{\"coords\":{\"name\":\"xyz\",\"spatial_shape\":"
             "[10,20,7]},\"feats\":{\"channels\":16}},\"layers\":[\n%s],\"outputs\":[{"
             "\"layer\":\"y\"}]%s}",
             layers, tail);
    read.bytes = strlen(text);
    vx_status status = vx_network_parse(&read, &arena, why, &network);
    ck_assert(!status.fault == (network != NULL));
    if (status.fault) ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    return network;
}

static const struct vx_network *parse_good(const char *layers, const char *tail)
{
    struct vx_why why = {{0}};
    const struct vx_network *network = parse(layers, tail, &why);
    ck_assert_msg(network != NULL, "%s", why.text);
    return network;
}

static i32 find(const struct vx_network *network, const char *name)
{
    for (i32 i = 0; i < network->layers_count; i++)
        if (!strcmp(network->layers[i].name, name)) return i;
    ck_abort_msg("no layer %s", name);
}

static void check_layer(const struct vx_network *network, const char *name, i32 set,
                        i32 stage)
{
    const struct vx_layer *layer = &network->layers[find(network, name)];
    ck_assert_msg(layer->set == set, "%s lies on set %d", name, (int)layer->set);
    ck_assert_msg(layer->stage == stage, "%s has stage %d", name, (int)layer->stage);
}

/* A decoder of two blocks, a window below the second, and the way back to the request;
 * beside it a branch that needs no logits. */
#define DEEP                                                                             \
    LAYER("r", "relu", "feats", "")                                                      \
    N LINEAR("s1", "r", "8") N LAYER("u1", "channel_to_space", "r",                      \
                                     ",\"stride\":2,\"occupancy\":\"s1\"")               \
        N LAYER("v1", "upsample", "r", ",\"stride\":2,\"occupancy\":\"s1\"")             \
            N PAIR("j1", "concat", "u1", "v1") N LINEAR("s2", "j1", "4") N LAYER(        \
                "u2", "upsample", "j1", ",\"stride\":[2,2,1],\"occupancy\":\"s2\"")      \
                N LAYER("d2", "max_pool", "u2",                                          \
                        ",\"kernel\":2,\"stride\":2,\"rule\":\"floor\"")                 \
                    N LAYER("i2", "inverse_conv", "d2", ",\"channels\":4,\"of\":\"d2\"") \
                        N LINEAR("k", "i2", "1")                                         \
                            N LAYER("p", "prune", "i2", ",\"keep\":\"k\",\"top\":7")     \
                                N LAYER("w", "downsample", "p", ",\"stride\":[4,4,2]")   \
                                    N LAYER("b", "upsample", "w",                        \
                                            ",\"stride\":1,\"onto\":\"r\"")              \
                                        N LINEAR("a", "r", "4")                          \
                                            N PAIR("y", "add", "a", "b")

START_TEST(sets_and_stages)
{
    const struct vx_network *network = parse_good(DEEP, "");
    const struct vx_set *sets = network->sets;
    char stride[VX_SET_STRIDE_BYTES];
    ck_assert_int_eq(network->sets_count, 6);
    check_layer(network, "s1", 0, 0);
    check_layer(network, "u1", 1, 1);
    check_layer(network, "v1", 1, 1); /* equal rules, one set */
    check_layer(network, "s2", 1, 1);
    check_layer(network, "u2", 2, 2);
    check_layer(network, "d2", 3, 2);
    check_layer(network, "i2", 2, 2);
    check_layer(network, "p", 4, 3);
    check_layer(network, "w", 5, 3);
    check_layer(network, "b", 0, 3); /* the set is static, what lies on it is not */
    check_layer(network, "a", 0, 0);
    check_layer(network, "y", 0, 3);
    ck_assert_int_eq(sets[1].key.rule, VX_SET_LIVE);
    ck_assert_int_eq(sets[1].key.by, find(network, "s1"));
    ck_assert_str_eq(vx_set_stride_text(&sets[2], stride), "1/4x1/4x1/2");
    ck_assert_str_eq(vx_set_stride_text(&sets[4], stride), "1/4x1/4x1/2");
    ck_assert_int_eq(sets[4].key.rule, VX_SET_KEEP);
    ck_assert_int_eq(sets[4].key.top, 7);
    static const i32 stages[] = {0, 1, 2, 2, 3, 3};
    for (i32 i = 0; i < 6; i++) ck_assert_int_eq(sets[i].stage, stages[i]);
}
END_TEST

/* The maps of prune and of children: the parent's row. */
START_TEST(maps_of_predicted_sets)
{
    const struct vx_network *network = parse_good(DEEP, "");
    const struct vx_layer *prune = &network->layers[find(network, "p")];
    const struct vx_layer *children = &network->layers[find(network, "u1")];
    struct vx_map_key key;
    ck_assert(vx_layer_map(network, prune, &key));
    ck_assert_int_eq(key.kind, VX_MAP_PARENT);
    ck_assert_int_eq(vx_map_offsets(&key), 1);
    ck_assert_int_eq(key.from, 2);
    ck_assert_int_eq(key.to, 4);
    for (int axis = 0; axis < 3; axis++) ck_assert_int_eq(key.stride[axis], 1);
    ck_assert(vx_layer_map(network, children, &key));
    ck_assert_int_eq(key.kind, VX_MAP_CHILD);
    ck_assert_int_eq(key.to, 1);
}
END_TEST

/* Another layer of logits, another stride, or another top is another set; a stride of 1
 * makes a set, too. */
START_TEST(what_is_another_set)
{
    const struct vx_network *network = parse_good(
        R N LINEAR("s", "r", "1") N LINEAR("t", "r", "1")
            N LAYER("a", "prune", "r", ",\"keep\":\"s\"")
                N LAYER("b", "prune", "r", ",\"keep\":\"t\"")
                    N LAYER("c", "prune", "r", ",\"keep\":\"s\",\"top\":1")
                        N LAYER("d", "upsample", "r", ",\"stride\":1,\"occupancy\":\"s\"")
                            N LAYER("e", "prune", "s", ",\"keep\":\"s\"")
                                N PAIR("ae", "concat", "a", "e") BACK("a1", "ae")
                                    BACK("b1", "b") BACK("c1", "c") BACK("d1", "d") N
        "{\"name\":\"y\",\"op\":\"concat\","
        "\"inputs\":[\"a1\",\"b1\",\"c1\","
        "\"d1\"]}",
        "");
    ck_assert_int_eq(network->sets_count, 5);
    check_layer(network, "a", 1, 1);
    check_layer(network, "b", 2, 1);
    check_layer(network, "c", 3, 1);
    check_layer(network, "d", 4, 1);
    check_layer(network, "e", 1, 1);
}
END_TEST

/* A bound of children is that of all of them, of what is kept that of all. */
START_TEST(the_most_rows)
{
    const struct vx_network *network =
        parse_good(DEEP, ",\"limits\":{\"sets\":{\"u2\":1000}}");
    i64 rows[VX_SETS_MAX];
    vx_sets_rows_max(network->sets, network->sets_count, 50, rows);
    static const i64 expected[] = {50, 400, 1000, 1000, 1000, 1000};
    for (i32 i = 0; i < 6; i++) ck_assert_int_eq(rows[i], expected[i]);
    ck_assert_int_eq(network->sets[1].shape[0], 0);
    network = parse_good(
        LINEAR("s", "feats", "1") N LAYER("y", "prune", "feats", ",\"keep\":\"s\""), "");
    ck_assert_int_eq(network->sets[1].shape[0], 10);
    ck_assert_int_eq(network->sets[1].shape[2], 7);
}
END_TEST

static const struct {
    const char *layers, *why; /* behind the label */
} bad[] = {
    {R N LAYER("y", "channel_to_space", "r", ",\"stride\":2,\"occupancy\":\"s\""),
     "layer \"y\": line 3: \"occupancy\": unknown layer \"s\"; known: feats, r"},
    {R N LAYER("y", "upsample", "r", ",\"stride\":2,\"occupancy\":\"y\""),
     "layer \"y\": line 3: \"occupancy\": \"y\" is the layer itself; expected a layer "
     "above this one"},
    {R N LAYER("y", "prune", "r", ",\"keep\":\"s\"") N LINEAR("s", "r", "1"),
     "layer \"y\": line 3: \"keep\": \"s\" is a later layer; expected a layer above this "
     "one"},
    {R N LAYER("y", "prune", "r", ",\"keep\":\"feats\""),
     "layer \"y\": line 3: \"keep\": expected a layer, whose result are logits, and "
     "\"feats\" is an input"},
    {R N LAYER("y", "prune", "r", ""),
     "layer \"y\": line 3: the key \"keep\" is missing"},
    {R N LAYER("y", "prune", "r", ",\"keep\":1"), NULL},
    {R N LINEAR("s", "r", "1") N LAYER("y", "prune", "r", ",\"keep\":\"s\",\"top\":0"),
     NULL},
    {R N LINEAR("s", "r", "1") N LAYER("y", "prune", "r", ",\"keep\":\"s\",\"stride\":2"),
     "layer \"y\": line 4: the key \"stride\" does not belong to prune"},
    {R N LINEAR("s", "r", "8")
         N LAYER("y", "upsample", "r", ",\"stride\":2,\"occupancy\":\"s\",\"top\":3"),
     "layer \"y\": line 4: the key \"top\" does not belong to upsample"},
    {R N LINEAR("s", "r", "8") N LAYER(
         "y", "upsample", "r", ",\"stride\":2,\"occupancy\":\"s\",\"onto\":\"r\""),
     "layer \"y\": line 4: \"occupancy\" and \"onto\" both say which children there are: "
     "expected one of them"},
    {R N D N LINEAR("s", "r", "8")
         N LAYER("y", "upsample", "d", ",\"stride\":2,\"occupancy\":\"s\""),
     "layer \"y\": line 5: \"occupancy\": expected a layer on the set of the input, set "
     "1 "
     "(stride 2x2x2, made by layer \"d\"), and \"s\" lies on set 0 (the request's)"},
    {R N D N LINEAR("s", "d", "1") N LAYER("y", "prune", "r", ",\"keep\":\"s\""),
     "layer \"y\": line 5: \"keep\": expected a layer on the set of the input, set 0 "
     "(the "
     "request's), and \"s\" lies on set 1 (stride 2x2x2, made by layer \"d\")"},
    {R N LINEAR("s", "r", "8")
         N LAYER("y", "upsample", "r", ",\"stride\":[2,2,1],\"occupancy\":\"s\""),
     "layer \"y\": line 4: \"occupancy\": expected a layer of 4 channels, a logit for "
     "each "
     "child of a voxel, and \"s\" has 8"},
    {R N LAYER("y", "prune", "r", ",\"keep\":\"r\""),
     "layer \"y\": line 3: \"keep\": expected a layer of 1 channel, a logit for each "
     "voxel, and \"r\" has 16"},
    {R N LINEAR("s", "r", "1") N LINEAR("t", "r", "1")
         N LAYER("a", "prune", "r", ",\"keep\":\"s\"")
             N LAYER("b", "prune", "r", ",\"keep\":\"t\"") N PAIR("y", "add", "a", "b"),
     "layer \"y\": line 7: expected inputs on one set of voxels, got set 1 (stride "
     "1x1x1, "
     "made by layer \"a\") and set 2 (stride 1x1x1, made by layer \"b\")"},
    {R N LINEAR("s", "r", "1") N LAYER("a", "prune", "r", ",\"keep\":\"s\"")
         N LAYER("y", "unpool", "a", ",\"of\":\"a\""),
     "layer \"y\": line 5: \"of\": expected a strided convolution or a pool, and \"a\" "
     "is "
     "prune"},
    {R N LINEAR("s", "r", "1") N LAYER("y", "relu", "r", ""),
     "line 3: layer \"s\" is used by nothing: no layer below it and no output needs it"},
};

START_TEST(what_cannot_be_is_refused)
{
    struct vx_why why = {{0}};
    char expected[2 * VX_WHY_BYTES];
    ck_assert_ptr_null(parse(bad[_i].layers, "", &why));
    if (!bad[_i].why) return;
    snprintf(expected, sizeof expected, LABEL ": %s", bad[_i].why);
    expected[VX_WHY_BYTES - 1] = 0;
    ck_assert_str_eq(why.text, expected);
}
END_TEST

static const struct vx_plan *plan_of(const struct vx_network *network,
                                     const struct vx_plan_options *options)
{
    const struct vx_fuse_options fuse = {
        .fold_norms = true, .fuse_activations = true, .fuse_residuals = options->staged};
    const struct vx_graph *graph;
    const struct vx_plan *plan;
    ck_assert(!vx_fuse_build(network, &fuse, &arena, &graph).fault);
    ck_assert(!vx_plan_build(graph, options, &arena, &plan).fault);
    return plan;
}

static i32 launch_of(const struct vx_plan *plan, const char *name)
{
    for (i32 i = 0; i < plan->launches_count; i++)
        if (!strcmp(plan->launches[i].node->layer->name, name)) return i;
    ck_abort_msg("no launch %s", name);
}

/* Launches stand in the order of their stages, each behind what it reads; logits live until
 * their set is made; maps belong to the later of their sets. */
static void check_stages(const struct vx_plan *plan)
{
    i32 stage = 0;
    for (i32 i = 0; i < plan->launches_count; i++) {
        const struct vx_launch *launch = &plan->launches[i];
        while (i >= plan->stage_ends[stage]) stage++;
        ck_assert_int_eq(launch->node->stage, stage);
        ck_assert_int_ge(stage, plan->sets[launch->set].stage);
        for (i32 j = 0; j < launch->node->inputs_count; j++)
            ck_assert_int_le(launch->inputs[j], i);
        if (launch->map < 0) continue;
        ck_assert_int_le(vx_plan_map_stage(plan, &plan->maps[launch->map]), stage);
    }
    ck_assert_int_eq(stage, plan->stages_count - 1);
    for (i32 set = 1; set < plan->sets_count; set++) {
        if (!vx_set_is_predicted(&plan->sets[set].key)) continue;
        i32 logits = vx_plan_logits(plan, set), made = plan->sets[set].stage;
        ck_assert_int_lt(logits - 1, plan->stage_ends[made - 1]);
        ck_assert_int_ge(plan->tensors[logits].last, plan->stage_ends[made - 1]);
    }
}

START_TEST(a_plan_runs_in_stages)
{
    const struct vx_plan_options gpu = vx_plan_gpu(2);
    const struct vx_plan *plan = plan_of(parse_good(DEEP, ""), &vx_plan_cpu);
    static const i32 order[] = {0, 1, 2, 3, 4, 5};
    ck_assert_int_eq(plan->stages_count, 4);
    check_stages(plan);
    ck_assert_int_lt(launch_of(plan, "a"), launch_of(plan, "u1")); /* moved up */
    ck_assert_int_eq(plan->stage_ends[0], 3);
    ck_assert_mem_eq(plan->sets_by_stage, order, sizeof order);
    check_stages(plan_of(parse_good(DEEP, ""), &gpu));
}
END_TEST

/* A residual waits for both operands: the convolution that takes it moves to their stage. */
START_TEST(a_residual_of_a_later_stage)
{
    const struct vx_plan_options gpu = vx_plan_gpu(4);
    const struct vx_plan *plan = plan_of(parse_good(DEEP, ""), &gpu);
    ck_assert(plan->launches[launch_of(plan, "a")].node->residual);
    ck_assert_int_eq(plan->launches[launch_of(plan, "a")].node->stage, 3);
    check_stages(plan);
}
END_TEST

/* Nothing is fused behind logits that a set reads, and they keep a tensor of their own. */
START_TEST(logits_are_read)
{
    const struct vx_plan *plan =
        plan_of(parse_good(LINEAR("s", "feats", "1") N LAYER("t", "sigmoid", "s", "")
                               N LAYER("y", "prune", "t", ",\"keep\":\"s\""),
                           ""),
                &vx_plan_cpu);
    ck_assert_int_eq(plan->launches_count, 3);
    ck_assert_int_eq(vx_plan_logits(plan, 1), 1 + launch_of(plan, "s"));
    ck_assert_int_eq(plan->launches[launch_of(plan, "s")].node->activation,
                     VX_ACTIVATION_NONE);
    ck_assert_int_eq(plan->stage_ends[0], 2);
}
END_TEST

/* A static set that is named after a predicted one lies before it in memory, and no offset
 * depends on rows that are not known yet. */
START_TEST(places_need_only_what_is_known)
{
    const struct vx_plan *plan = plan_of(
        parse_good(R N LINEAR("s", "r", "8") N LAYER("u", "upsample", "r",
                                                     ",\"stride\":2,\"occupancy\":\"s\"")
                       N D N LAYER("v", "upsample", "d", ",\"stride\":2,\"onto\":\"r\"")
                           N LAYER("w", "downsample", "u", ",\"stride\":2") N LAYER(
                               "x", "upsample", "w", ",\"stride\":1,\"onto\":\"r\"")
                               N PAIR("y", "add", "x", "v"),
                   ""),
        &vx_plan_cpu);
    static const i32 order[] = {0, 2, 1, 3};
    ck_assert_int_eq(plan->sets_count, 4);
    ck_assert_mem_eq(plan->sets_by_stage, order, sizeof order);
    const i64 early[VX_SETS_MAX] = {100, 0, 30, 0},
              late[VX_SETS_MAX] = {100, 500, 30, 90};
    for (i32 t = 0; t < plan->tensors_count; t++) {
        if (plan->sets[plan->tensor_sets[t]].stage) continue;
        ck_assert_uint_eq(vx_plan_tensor_offset(plan, t, early),
                          vx_plan_tensor_offset(plan, t, late));
    }
    i32 wide = 1 + launch_of(plan, "u");
    ck_assert_uint_ge(vx_plan_tensor_offset(plan, wide, late),
                      vx_plan_bytes(plan, early));
}
END_TEST

START_TEST(a_static_network_has_one_stage)
{
    const struct vx_plan *plan = plan_of(
        parse_good(R N D N LAYER("y", "upsample", "d", ",\"stride\":2,\"onto\":\"r\""),
                   ""),
        &vx_plan_cpu);
    ck_assert_int_eq(plan->stages_count, 1);
    ck_assert_int_eq(plan->stage_ends[0], plan->launches_count);
    check_stages(plan);
}
END_TEST

START_TEST(a_logit_that_is_no_number_has_a_sentence)
{
    const struct vx_plan *plan = plan_of(parse_good(DEEP, ""), &vx_plan_cpu);
    const i32 voxel[4] = {1, -2, 3, 4};
    struct vx_why why;
    vx_status status = vx_plan_not_a_number(plan, 1, voxel, 5, &why);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(
        why.text, "layer \"s1\": the logit of voxel (1, -2, 3, 4) of set 0, child 5, is "
                  "not a number; set 1, made by layer \"u1\", follows from it");
    status = vx_plan_not_a_number(plan, 4, voxel, 0, &why);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(why.text,
                     "layer \"k\": the logit of voxel (1, -2, 3, 4) of set 2 is not a "
                     "number; set 4, made by layer \"p\", follows from it");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("network_predicted");
    TCase *tcase = tcase_create("network_predicted");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, sets_and_stages);
    tcase_add_test(tcase, maps_of_predicted_sets);
    tcase_add_test(tcase, what_is_another_set);
    tcase_add_test(tcase, the_most_rows);
    tcase_add_loop_test(tcase, what_cannot_be_is_refused, 0, VX_COUNT(bad));
    tcase_add_test(tcase, a_plan_runs_in_stages);
    tcase_add_test(tcase, a_residual_of_a_later_stage);
    tcase_add_test(tcase, logits_are_read);
    tcase_add_test(tcase, places_need_only_what_is_known);
    tcase_add_test(tcase, a_static_network_has_one_stage);
    tcase_add_test(tcase, a_logit_that_is_no_number_has_a_sentence);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
