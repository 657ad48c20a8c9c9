/* What random networks have: the grammar of tests/support/network_random.h cannot lose a part
 * in silence.  test_engine_levels runs them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/network/network.h"
#include "tests/support/network_random.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* As many as test_engine_levels runs. */
#define NETWORKS 2500

/* What the networks have, so that the grammar cannot lose a part in silence. */
static struct {
    i32 ops[VX_OPS_COUNT];
    i32 onto[VX_OPS_COUNT], all[VX_OPS_COUNT];          /* of ops to a finer set */
    i32 floor[VX_OPS_COUNT], spconv[VX_OPS_COUNT];      /* of windows */
    i32 grouped[VX_OPS_COUNT], depthwise[VX_OPS_COUNT]; /* of convolutions */
    i32 even, dilated, uneven, padded, deep, long_ones, wide_outputs, shared;
    i32 far_outputs, finer_outputs, shared_coords;
    i32 keep, top, stages_deep, back, live_shared;
    i32 live[VX_OPS_COUNT];
    i32 trilinear, nearest, wide_points, onto_voxels;
    i32 late[VX_OPS_COUNT]; /* on a set that depends on features */
} seen;

static void see_layer(const struct vx_layer *layer)
{
    const i32 *k = layer->kernel, *d = layer->dilation, *p = layer->padding;
    bool strided = layer->rule == VX_SET_FLOOR || layer->rule == VX_SET_SPCONV;
    seen.ops[layer->op]++;
    if (layer->onto != VX_LAYER_NONE) seen.onto[layer->op]++;
    seen.trilinear += layer->op == VX_OP_DEVOXELIZE && layer->trilinear;
    seen.nearest += layer->op == VX_OP_DEVOXELIZE && !layer->trilinear;
    seen.onto_voxels += layer->op == VX_OP_VOXELIZE && layer->onto != VX_LAYER_NONE;
    seen.wide_points += vx_op_is_points(layer->op) &&
                        (i64)layer->stride[0] * layer->stride[1] * layer->stride[2] >
                            VX_KERNEL_OFFSETS_MAX;
    if (layer->onto == VX_LAYER_NONE && layer->rule == VX_SET_EXPAND)
        seen.all[layer->op]++;
    if (layer->rule == VX_SET_FLOOR) seen.floor[layer->op]++;
    if (layer->rule == VX_SET_LIVE) seen.live[layer->op]++;
    seen.keep += layer->rule == VX_SET_KEEP && !layer->top;
    seen.top += layer->top > 0;
    if (layer->rule == VX_SET_SPCONV) seen.spconv[layer->op]++;
    if (vx_op_is_conv(layer->op)) {
        seen.grouped[layer->op] += layer->groups > 1;
        seen.depthwise[layer->op] +=
            layer->groups > 1 && layer->groups == layer->channels_in;
    }
    seen.even += strided && layer->v > 1 && k[0] % 2 + k[1] % 2 + k[2] % 2 < 3;
    seen.uneven += layer->v && (k[0] != k[1] || k[1] != k[2]);
    seen.dilated += layer->v && d[0] + d[1] + d[2] > 3;
    seen.padded += layer->rule == VX_SET_SPCONV && p[0] + p[1] + p[2] > 0;
}

static void see_network(const struct vx_network *network)
{
    i32 makers = 0;
    for (i32 i = 0; i < network->layers_count; i++) {
        const struct vx_layer *layer = &network->layers[i];
        see_layer(layer);
        seen.late[layer->op] += network->sets[layer->set].stage > 0;
        seen.stages_deep += layer->stage >= 2;
        seen.back += layer->stage > network->sets[layer->set].stage;
        seen.live_shared += layer->rule == VX_SET_LIVE &&
                            layer != &network->layers[network->sets[layer->set].layer];
        makers += layer->rule != VX_SET_REQUEST && layer->onto == VX_LAYER_NONE &&
                  layer->set != vx_network_set(network, layer->inputs[0]);
    }
    seen.shared += makers > network->sets_count - 1;
    seen.deep += network->sets_count >= 5;
    seen.long_ones += network->layers_count >= 20;
    seen.wide_outputs += network->outputs_count > 1;
    i32 far = 0;
    for (i32 i = 0; i < network->outputs_count; i++)
        far += network->outputs[i].coords >= 0;
    for (i32 c = 0; c < network->coords_count; c++)
        seen.finer_outputs += network->sets[network->coords[c].set].up[0] > 1;
    seen.far_outputs += far > 0;
    seen.shared_coords += far > network->coords_count;
}

START_TEST(the_grammar_has_everything)
{
    static const enum vx_op convs[] = {VX_OP_SUBM_CONV, VX_OP_SPARSE_CONV,
                                       VX_OP_INVERSE_CONV, VX_OP_TRANSPOSED_CONV};
    static const enum vx_op finer[] = {VX_OP_TRANSPOSED_CONV, VX_OP_UPSAMPLE,
                                       VX_OP_CHANNEL_TO_SPACE};
    static const enum vx_op windows[] = {VX_OP_SPARSE_CONV, VX_OP_MAX_POOL,
                                         VX_OP_AVG_POOL, VX_OP_SUM_POOL};
    enum { EACH = 20, LATE = 8 };
    u8 *block = vx_alloc(VX_NETWORK_ARENA_BYTES);
    for (u64 seed = 0; seed < NETWORKS; seed++) {
        struct vx_random_network *made = vx_random_network_open(seed);
        struct vx_network_text source = {made->json, strlen(made->json), "n"};
        const struct vx_network *network;
        struct vx_arena arena;
        struct vx_why why = {{0}};
        vx_arena_init(&arena, block, VX_NETWORK_ARENA_BYTES);
        vx_status status = vx_network_parse(&source, &arena, &why, &network);
        ck_assert_msg(!status.fault, "seed %llu: %s", (unsigned long long)seed, why.text);
        ck_assert_int_ge(network->layers_count, 2);
        see_network(network);
        vx_random_network_close(&made);
    }
    vx_free(block);
    for (int op = 0; op < VX_OPS_COUNT; op++)
        ck_assert_msg(seen.ops[op] >= EACH, "%s: %d", vx_op_name((enum vx_op)op),
                      (int)seen.ops[op]);
    for (size_t i = 0; i < VX_COUNT(convs); i++) {
        ck_assert_int_ge(seen.grouped[convs[i]], EACH);
        ck_assert_int_ge(seen.depthwise[convs[i]], EACH);
    }
    for (size_t i = 0; i < VX_COUNT(finer); i++) {
        ck_assert_int_ge(seen.onto[finer[i]], EACH);
        ck_assert_int_ge(seen.all[finer[i]], EACH);
    }
    for (size_t i = 0; i < VX_COUNT(windows); i++) {
        ck_assert_int_ge(seen.floor[windows[i]], EACH);
        ck_assert_int_ge(seen.spconv[windows[i]], EACH);
    }
    ck_assert_int_ge(seen.live[VX_OP_UPSAMPLE], EACH);
    ck_assert_int_ge(seen.late[VX_OP_GLOBAL_POOL], LATE);
    ck_assert_int_ge(seen.late[VX_OP_VOXELIZE], 1);
    ck_assert_int_ge(seen.late[VX_OP_DEVOXELIZE], 1);
    ck_assert_int_ge(seen.late[VX_OP_ARGMAX], LATE);
    ck_assert_int_ge(seen.late[VX_OP_TO_DENSE], 1);
    ck_assert_int_ge(seen.live[VX_OP_CHANNEL_TO_SPACE], EACH);
    const i32 others[] = {
        seen.keep,        seen.top,         seen.stages_deep,   seen.back,
        seen.live_shared, seen.even,        seen.dilated,       seen.uneven,
        seen.padded,      seen.deep,        seen.long_ones,     seen.wide_outputs,
        seen.shared,      seen.far_outputs, seen.finer_outputs, seen.shared_coords,
        seen.trilinear,   seen.nearest,     seen.wide_points,   seen.onto_voxels};
    for (size_t i = 0; i < VX_COUNT(others); i++)
        ck_assert_msg(others[i] >= EACH, "%zu: %d", i, (int)others[i]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("network_grammar");
    TCase *tcase = tcase_create("network_grammar");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, the_grammar_has_everything);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
