/* Where inputs of a concat lie: in its rows, where the rule of place.h holds, else in their own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/network/fuse.h"
#include "engine/plan/plan.h"
#include "tests/support/unet.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES ((size_t)8 << 20)

static struct vx_arena arena;
static u8 *block;

static void set_up(void)
{
    block = vx_alloc(ARENA_BYTES);
    vx_arena_init(&arena, block, ARENA_BYTES);
}

static void tear_down(void)
{
    vx_free(block);
}

static const struct vx_plan *plan_of_text(const char *text,
                                          const struct vx_plan_options *options)
{
    static const struct vx_fuse_options all = {
        .fold_norms = true, .fuse_activations = true, .fuse_residuals = true};
    const struct vx_network_text given = {text, strlen(text), "n"};
    const struct vx_network *network;
    const struct vx_graph *graph;
    const struct vx_plan *plan;
    struct vx_why why = {""};
    vx_status status = vx_network_parse(&given, &arena, &why, &network);
    ck_assert_msg(!status.fault, "%s", why.text);
    ck_assert(!vx_fuse_build(network, &all, &arena, &graph).fault);
    ck_assert(!vx_plan_build(graph, options, &arena, &plan).fault);
    return plan;
}

/* Features of 16 channels, these layers and outputs. */
static const struct vx_plan *plan_of(const char *layers, const char *outputs,
                                     const struct vx_plan_options *options)
{
    char text[4096];
    snprintf(text, sizeof text,
             "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":16}},\"layers\":[%s],"
             "\"outputs\":[%s]}",
             layers, outputs);
    return plan_of_text(text, options);
}

/* --- cases by hand --- */

#define LINEAR(name_, input_, channels_)                                                 \
    "{\"name\":\"" name_ "\",\"op\":\"linear\",\"input\":\"" input_                      \
    "\",\"channels\":" channels_ "},"
#define OP(op_, name_, input_)                                                           \
    "{\"name\":\"" name_ "\",\"op\":\"" op_ "\",\"input\":\"" input_ "\"},"
#define TWO(op_, name_, a_, b_)                                                          \
    "{\"name\":\"" name_ "\",\"op\":\"" op_ "\",\"inputs\":[\"" a_ "\",\"" b_ "\"]},"
#define POOL(name_, input_)                                                              \
    "{\"name\":\"" name_ "\",\"op\":\"max_pool\",\"input\":\"" input_                    \
    "\",\"kernel\":2,\"stride\":2,\"rule\":\"floor\"},"
#define OUT(name_) "{\"layer\":\"" name_ "\"}"
#define A          LINEAR("a", "feats", "16")
#define B          LINEAR("b", "a", "20")
#define Y(input_)                                                                        \
    "{\"name\":\"y\",\"op\":\"linear\",\"input\":\"" input_ "\",\"channels\":3}"

/* The first concat is "s"; how many inputs of all concats are copied. */
static const struct {
    const char *layers, *outputs;
    i32 copies;
} cases[] = {
    {A B TWO("concat", "s", "a", "b") Y("s"), OUT("y"), 0},
    /* Columns: 20 channels are not the last, and what is behind them is not at a multiple. */
    {A B TWO("concat", "s", "b", "a") Y("s"), OUT("y"), 2},
    {A LINEAR("b", "a", "32") TWO("concat", "s", "b", "a") Y("s"), OUT("y"), 0},
    /* Writers: not features, not a softmax, not a concat; a pool and a norm do. */
    {A TWO("concat", "s", "a", "feats") Y("s"), OUT("y"), 1},
    {A OP("softmax", "t", "a") LINEAR("b", "t", "16") TWO("concat", "s", "b", "t") Y("s"),
     OUT("y"), 1},
    {A LINEAR("b", "a", "16") TWO("concat", "s", "a", "b") LINEAR("c", "s", "16")
         TWO("concat", "u", "s", "c") Y("u"),
     OUT("y"), 1},
    {A POOL("p", "a") LINEAR("b", "p", "16") TWO("concat", "s", "p", "b") Y("s"),
     OUT("y"), 0},
    {A POOL("p", "a") LINEAR("b", "p", "16") OP("instance_norm", "g", "b")
         TWO("concat", "s", "p", "g") Y("s"),
     OUT("y"), 1},
    {A OP("layer_norm", "n", "a") TWO("concat", "s", "n", "a") Y("s"), OUT("y"), 0},
    /* Readers: a layer that needs rows of its own; a pool, a residual and an output do not. */
    {A LINEAR("b", "a", "16") OP("softmax", "t", "a") TWO("concat", "s", "a", "b")
         TWO("concat", "u", "s", "t") Y("u"),
     OUT("y"), 3},
    {A LINEAR("b", "a", "16") POOL("p", "a") TWO("concat", "s", "a", "b") Y("s"),
     OUT("y") "," OUT("p"), 0},
    {A LINEAR("b", "a", "16") TWO("add", "r", "a", "b") TWO("concat", "s", "r", "a")
         Y("s"),
     OUT("y"), 0},
    {A LINEAR("b", "a", "16") TWO("concat", "s", "a", "b") Y("s"), OUT("y") "," OUT("b"),
     0},
    {A LINEAR("b", "a", "16") TWO(
         "concat", "s", "a",
         "b") "{\"name\":\"t\",\"op\":\"to_dense\",\"input\":\"b\",\"shape\":4}," Y("s"),
     OUT("y") "," OUT("t"), 1},
    /* Once: twice in one concat, and in two. */
    {A TWO("concat", "s", "a", "a") Y("s"), OUT("y"), 1},
    {A LINEAR("b", "a", "16") TWO("concat", "s", "a", "b") TWO("concat", "u", "b", "a")
         TWO("add", "v", "s", "u") Y("v"),
     OUT("y"), 2},
    /* Memory: "a" is early, and the concat is wide. */
    {A LINEAR("b", "a", "256") LINEAR("c", "b", "256") LINEAR("d", "c", "256")
         TWO("concat", "s", "d", "a") Y("s"),
     OUT("y"), 1},
};

static i32 copies_of(const struct vx_plan *plan)
{
    i32 count = 0;
    for (i32 i = 0; i < plan->launches_count; i++)
        if (plan->launches[i].op == VX_OP_CONCAT)
            count += vx_plan_copies(plan, &plan->launches[i]);
    return count;
}

/* A part begins at its column of the concat's rows and is as far from row to row; anything else
 * has rows of its own. */
static void check_places(const struct vx_plan *plan)
{
    i64 rows[VX_SETS_MAX];
    const i32 unit = plan->options.channels_unit;
    for (i32 i = 0; i < VX_SETS_MAX; i++) rows[i] = 100 + i;
    for (i32 i = 0; i <= plan->launches_count; i++) {
        const struct vx_plan_part *part = &plan->parts[i];
        const i32 own = (vx_plan_channels(plan, i) + unit - 1) / unit * unit;
        if (!part->whole) {
            ck_assert_int_eq(vx_plan_stride(plan, i), own);
            continue;
        }
        const struct vx_launch *concat = &plan->launches[part->whole - 1];
        const i32 stride = (vx_plan_channels(plan, part->whole) + unit - 1) / unit * unit;
        i32 column = 0, input = 0;
        for (; concat->inputs[input] != i; input++)
            column += vx_plan_channels(plan, concat->inputs[input]);
        ck_assert_int_eq(concat->op, VX_OP_CONCAT);
        ck_assert(vx_plan_in_place(plan, concat, input));
        ck_assert_int_eq(part->column, column);
        ck_assert_int_eq(vx_plan_stride(plan, i), stride);
        ck_assert_int_eq(column % unit, 0);
        ck_assert_int_le(column + own, stride);
        ck_assert_uint_eq(vx_plan_tensor_offset(plan, i, rows),
                          vx_plan_tensor_offset(plan, part->whole, rows) +
                              (size_t)(column * plan->options.element_bytes));
    }
}

/* Whether two tensors have bytes in common for some rows, where the first of them is not written
 * any more when the second one is first written, and is read later. */
static void check_lifetimes(const struct vx_plan *plan)
{
    for (i32 i = 0; i <= plan->launches_count; i++)
        for (i32 j = 0; j <= plan->launches_count; j++) {
            const struct vx_memory_tensor *a = &plan->tensors[i], *b = &plan->tensors[j];
            const i32 wa = plan->parts[i].whole ? plan->parts[i].whole : i;
            const i32 wb = plan->parts[j].whole ? plan->parts[j].whole : j;
            if (wa == wb || plan->tensor_sets[i] != plan->tensor_sets[j]) continue;
            if (a->first > b->last || b->first > a->last) continue;
            const struct vx_memory_tensor *x = &plan->tensors[wa],
                                          *y = &plan->tensors[wb];
            ck_assert(x->offset + x->channels <= y->offset ||
                      y->offset + y->channels <= x->offset);
        }
}

START_TEST(by_the_rule)
{
    struct vx_plan_options options = vx_plan_gpu(2);
    const struct vx_plan *plan = plan_of(cases[_i].layers, cases[_i].outputs, &options);
    ck_assert_int_eq(copies_of(plan), cases[_i].copies);
    check_places(plan);
    check_lifetimes(plan);
    options.parts = VX_PLAN_PARTS_NONE;
    const struct vx_plan *apart = plan_of(cases[_i].layers, cases[_i].outputs, &options);
    for (i32 i = 0; i < plan->tensors_count; i++)
        ck_assert_int_eq(apart->parts[i].whole, 0);
    for (i32 set = 0; set < plan->sets_count; set++)
        ck_assert_int_le(plan->channels[set], apart->channels[set]);
}
END_TEST

/* On the CPU any column will do, and an add may write; but an output, and what says which
 * voxels there are, lie by themselves, and the norms of samples read whole rows. */
static const struct {
    const char *layers, *outputs;
    i32 copies;
} cpu_cases[] = {
    {A B TWO("concat", "s", "a", "b") Y("s"), OUT("y"), 0},
    {A B TWO("concat", "s", "b", "a") Y("s"), OUT("y"), 0},
    {A LINEAR("b", "a", "16") TWO("add", "r", "a", "b") TWO("concat", "s", "r", "b")
         Y("s"),
     OUT("y"), 0},
    {A LINEAR("b", "a", "16") TWO("mul", "r", "a", "b") TWO("concat", "s", "r", "b")
         OP("sigmoid", "t", "s") Y("t"),
     OUT("y"), 0},
    {A LINEAR("b", "a", "16") TWO("concat", "s", "a", "b") Y("s"), OUT("y") "," OUT("b"),
     1},
    {A LINEAR("b", "a", "16") TWO("concat", "s", "a", "b") Y("s"), OUT("y") "," OUT("s"),
     0},
    {A LINEAR("b", "a", "16") OP("instance_norm", "g", "b") TWO("concat", "s", "g", "b")
         Y("s"),
     OUT("y"), 2},
    {A LINEAR("b", "a", "1") "{\"name\":\"p\",\"op\":\"prune\",\"input\":\"a\",\"keep\":"
                             "\"b\"}," TWO("concat", "s", "a", "b") Y("s"),
     OUT("y") "," OUT("p"), 1},
};

START_TEST(on_the_cpu)
{
    struct vx_plan_options options = vx_plan_cpu;
    const struct vx_plan *plan =
        plan_of(cpu_cases[_i].layers, cpu_cases[_i].outputs, &options);
    ck_assert_int_eq(copies_of(plan), cpu_cases[_i].copies);
    check_places(plan);
    check_lifetimes(plan);
    options.parts = VX_PLAN_PARTS_NONE;
    const struct vx_plan *apart =
        plan_of(cpu_cases[_i].layers, cpu_cases[_i].outputs, &options);
    for (i32 set = 0; set < plan->sets_count; set++)
        ck_assert_int_le(plan->channels[set], apart->channels[set]);
}
END_TEST

/* MinkUNet18 copies nothing, and needs no more memory on any set. */
START_TEST(a_unet_copies_nothing)
{
    static char text[VX_UNET_BYTES];
    struct vx_plan_options options = _i == 2 ? vx_plan_cpu : vx_plan_gpu(_i ? 4 : 2);
    vx_unet_write(&vx_unet_minkowski_18, text);
    const struct vx_plan *plan = plan_of_text(text, &options);
    ck_assert_int_eq(copies_of(plan), 0);
    check_places(plan);
    check_lifetimes(plan);
    options.parts = VX_PLAN_PARTS_NONE;
    const struct vx_plan *apart = plan_of_text(text, &options);
    ck_assert_int_eq(copies_of(apart), 8);
    for (i32 set = 0; set < plan->sets_count; set++)
        ck_assert_int_le(plan->channels[set], apart->channels[set]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("place");
    TCase *tcase = tcase_create("place");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, by_the_rule, 0, VX_COUNT(cases));
    tcase_add_loop_test(tcase, on_the_cpu, 0, VX_COUNT(cpu_cases));
    tcase_add_loop_test(tcase, a_unet_copies_nothing, 0, 3);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
