/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/jit/jit.h"
#include "engine/gpu/model/model_mlp.h"
#include "kernels/33_mlp.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

/* Which layers one kernel computes together.  What it computes is the oracle's (cases_mlp.c). */

#define HEAD(channels_)                                                                  \
    "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":" channels_ "}},\"layers\":["
#define OP(name_, op_, input_)                                                           \
    "{\"name\":\"" name_ "\",\"op\":\"" op_ "\",\"input\":\"" input_ "\"},"
#define LINEAR(name_, input_, channels_)                                                 \
    "{\"name\":\"" name_ "\",\"op\":\"linear\",\"input\":\"" input_                      \
    "\",\"channels\":" channels_ "},"
#define END(name_)                                                                       \
    "{\"name\":\"end\",\"op\":\"tanh\",\"input\":\"" name_                               \
    "\"}],\"outputs\":[{\"layer\":\"end\"}"
#define BLOCK(hidden_)                                                                   \
    OP("n", "layer_norm", "feats")                                                       \
    LINEAR("u", "n", hidden_)                                                            \
    OP("g", "gelu", "u")                                                                 \
    LINEAR("d", "g", "128")                                                              \
    "{\"name\":\"s\",\"op\":\"add\",\"inputs\":[\"d\",\"feats\"]},"

struct network {
    const struct vx_plan *plan;
    struct vx_gpu_choices *choices;
    u8 block[VX_NETWORK_ARENA_BYTES];
};
static struct network made;

static void network_open(const char *json, enum vx_number type, const char *arch)
{
    const struct vx_fuse_options fuse = {true, true, true, true, true};
    const struct vx_plan_options options = vx_plan_gpu(vx_number_bytes(type));
    const struct vx_network_text text = {json, strlen(json), "mlp"};
    const struct vx_pick pick = {.caps = vx_arch_caps(arch)};
    const struct vx_network *network;
    const struct vx_graph *graph;
    struct vx_arena arena;
    struct vx_why why = {{0}};
    vx_arena_init(&arena, made.block, sizeof made.block);
    vx_status status = vx_network_parse(&text, &arena, &why, &network);
    ck_assert_msg(!status.fault, "%s", why.text);
    ck_assert(!vx_fuse_build(network, &fuse, &arena, &graph).fault);
    ck_assert(!vx_plan_build(graph, &options, &arena, &made.plan).fault);
    const struct vx_gpu_choices_want want = {made.plan, type, 1 << 20, &pick};
    ck_assert(!vx_gpu_choices_open(&want, &made.choices).fault);
}

static const struct {
    const char *json, *what;
    enum vx_number type;
    const char *arch;
    i32 first, count; /* the run, 1: there is none */
    i32 tile;         /* of the kernel */
} rows[] = {
    {HEAD("128") BLOCK("512") END("s") "]}", "a block", VX_NUMBER_F16, "sm_90a", 0, 3, 0},
    {HEAD("128") BLOCK("512") END("s") "]}", "bf16", VX_NUMBER_BF16, "sm_90a", 0, 3, 0},
    {HEAD("128") BLOCK("512") END("s") "]}", "fp32", VX_NUMBER_F32, "sm_90a", 0, 1, 0},
    {HEAD("128") BLOCK("512") END("s") "]}", "Ampere", VX_NUMBER_F16, "sm_80", 0, 1, 0},
    {HEAD("128") BLOCK("500") END("s") "]}", "a part of 64 hidden channels",
     VX_NUMBER_F16, "sm_90a", 0, 1, 0},
    {HEAD("128") BLOCK("512") END("s") ",{\"layer\":\"g\"}]}",
     "hidden rows are an output", VX_NUMBER_F16, "sm_90a", 0, 1, 0},
    {HEAD("128") BLOCK("512") END("s") ",{\"layer\":\"n\"}]}",
     "normed rows are an output", VX_NUMBER_F16, "sm_90a", 1, 2, 0},
    {HEAD("64") OP("n", "layer_norm", "feats") LINEAR("u", "n", "64")
         LINEAR("d", "u", "16") END("d") "]}",
     "few channels", VX_NUMBER_F16, "sm_90a", 0, 1, 0},
    {HEAD("200") LINEAR("u", "feats", "64") OP("r", "relu", "u") LINEAR("d", "r", "17")
         OP("a", "sigmoid", "d") END("a") "]}",
     "no norm, an activation at the end", VX_NUMBER_F16, "sm_90a", 0, 2, 1},
    {HEAD("272") LINEAR("u", "feats", "64") LINEAR("d", "u", "16") END("d") "]}",
     "many channels in", VX_NUMBER_F16, "sm_90a", 0, 1, 0},
    {HEAD("128") LINEAR("u", "feats", "64") LINEAR("d", "u", "272") END("d") "]}",
     "many channels out", VX_NUMBER_F16, "sm_90a", 0, 1, 0},
    {HEAD("128") OP("n", "layer_norm", "feats") OP("a", "silu", "n")
         LINEAR("u", "a", "64") LINEAR("d", "u", "16") END("d") "]}",
     "the norm has an activation", VX_NUMBER_F16, "sm_90a", 1, 2, 0},
    {HEAD("128")
         LINEAR("u", "feats", "64") "{\"name\":\"p\",\"op\":\"max_pool\",\"input\":"
                                    "\"u\",\"kernel\":2,\"stride\":2,\"rule\":"
                                    "\"floor\"}," LINEAR("d", "p", "16") END("d") "]}",
     "a pool in between", VX_NUMBER_F16, "sm_90a", 0, 1, 0},
};

START_TEST(runs_are_found)
{
    struct vx_jit_wanted kernel;
    network_open(rows[_i].json, rows[_i].type, rows[_i].arch);
    for (i32 i = 0; i < made.plan->launches_count; i++) {
        /* A run without its norm is one, too. */
        i32 count = i == rows[_i].first ? rows[_i].count : 1;
        if (i == rows[_i].first + 1 && rows[_i].count == 3) count = 2;
        ck_assert_msg(made.choices->runs[i] == count,
                      "%s: launch %d: a run of %d, not %d", rows[_i].what, i,
                      made.choices->runs[i], count);
        ck_assert(vx_gpu_mlp_wanted(made.choices, i, &kernel) == (count > 1));
        if (count == 1) continue;
        ck_assert(kernel.tile == &kernel.spec->tiles[rows[_i].tile]);
        ck_assert_int_eq(kernel.type, rows[_i].type);
    }
    vx_gpu_choices_close(&made.choices);
}
END_TEST

/* Few rows, and a result on the rows of others, run one layer after the other. */
START_TEST(runs_depend_on_rows)
{
    static struct vx_gpu_places places;
    static u8 memory;
    struct vx_gpu_forward forward = {.places = &places, .block = &memory};
    network_open(HEAD("128") BLOCK("512") END("s") "]}", VX_NUMBER_F16, "sm_90a");
    forward.choices = made.choices;
    i64 n = 100000;
    vx_gpu_places_make(made.choices, &(struct vx_gpu_sizes){&n, 1, false, NULL}, &places);
    ck_assert_int_eq(vx_gpu_mlp_count(&forward, 0), 3);
    ck_assert_int_eq(vx_gpu_mlp_count(&forward, 3), 1);
    n = 1000;
    vx_gpu_places_make(made.choices, &(struct vx_gpu_sizes){&n, 1, false, NULL}, &places);
    ck_assert_int_eq(vx_gpu_mlp_count(&forward, 0), 1);
    vx_gpu_choices_close(&made.choices);
}
END_TEST

/* Layers of other widths in a row: wherever the plan puts the result, a run has it beside its
 * rows or exactly on them. */
START_TEST(results_overwrite_no_rows)
{
    static struct vx_gpu_places places;
    static u8 memory;
    char json[2048];
    i32 apart = 0, together = 0;
    for (i32 first = 80; first <= 256; first += 16)
        for (i32 last = 16; last <= 256; last += 48) {
            (void)snprintf(
                json, sizeof json,
                HEAD("8") "{\"name\":\"a\",\"op\":\"linear\",\"input\":\"feats\","
                          "\"channels\":%d}," LINEAR("u", "a", "128")
                              OP("r", "relu",
                                 "u") "{\"name\":\"d\",\"op\":\"linear\","
                                      "\"input\":\"r\",\"channels\":%d}," END("d") "]}",
                first, last);
            network_open(json, VX_NUMBER_F16, "sm_90a");
            ck_assert_int_eq(made.choices->runs[1], 2);
            const i64 n = 20000;
            const struct vx_plan *plan = made.plan;
            vx_gpu_places_make(made.choices, &(struct vx_gpu_sizes){&n, 1, false, NULL},
                               &places);
            const struct vx_gpu_forward forward = {
                .places = &places, .block = &memory, .choices = made.choices};
            const size_t from =
                vx_plan_tensor_offset(plan, plan->launches[1].inputs[0], places.laid);
            const size_t to =
                vx_plan_tensor_offset(plan, plan->launches[2].output, places.laid);
            const size_t from_end = from + (size_t)n * (size_t)first * 2;
            const size_t to_end = to + (size_t)n * (size_t)vx_channels_padded(last) * 2;
            const bool fits = from_end <= to || to_end <= from ||
                              (from == to && first == vx_channels_padded(last));
            ck_assert_int_eq(vx_gpu_mlp_count(&forward, 1), fits ? 2 : 1);
            apart += !fits, together += fits;
            vx_gpu_choices_close(&made.choices);
        }
    ck_assert_int_gt(together, 0);
    ck_assert_int_gt(apart, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_mlp");
    TCase *tcase = tcase_create("runs");
    tcase_add_loop_test(tcase, runs_are_found, 0, (int)VX_COUNT(rows));
    tcase_add_test(tcase, runs_depend_on_rows);
    tcase_add_test(tcase, results_overwrite_no_rows);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
