/* Small networks whose answers were worked out by hand: the oracle has them, and so has
 * the engine on the CPU.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "tests/support/engine_rig.h"
#include "tests/support/levels_by_hand.h"

#include <check.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES 8192
#define N_MAX      16

static char text[TEXT_BYTES];
static size_t used;

VX_PRINTF(1, 2) static void say(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    used += (size_t)vsnprintf(text + used, TEXT_BYTES - used, format, list);
    va_end(list);
    ck_assert_uint_lt(used, TEXT_BYTES);
}

/* Every answer on set 0 is an output. */
static void write_case(const struct vx_hand_case *it)
{
    size_t tensors = 0, outputs = 0;
    used = 0;
    say("{\"format\":1,\"inputs\":{\"coords\":{\"name\":\"coords\"%s},",
        it->space ? it->space : "");
    say("\"feats\":{\"channels\":%zu}},\"layers\":[%s],", it->feats_count / it->n,
        it->layers);
    for (size_t i = 0; i < VX_HAND_ANSWERS_MAX && it->answers[i].layer; i++)
        if (!it->answers[i].voxels)
            say("%s{\"layer\":\"%s\"}", outputs++ ? "," : "\"outputs\":[",
                it->answers[i].layer);
    say("],\"limits\":{\"voxels_max\":%d}}", N_MAX);
    while (tensors < VX_HAND_TENSORS_MAX && it->tensors[tensors].name) tensors++;
    vx_test_write_model(vx_rig_root, 1, text, it->tensors, tensors);
}

static i32 layer_find(const struct vx_network *network, const char *name)
{
    for (i32 i = 0; i < network->layers_count; i++)
        if (!strcmp(network->layers[i].name, name)) return i;
    ck_abort_msg("no layer %s", name);
}

static void compare_layer(const struct vx_hand_answer *answer,
                          const struct vx_network_oracle *oracle, i32 layer)
{
    const struct vx_oracle_set *set = oracle->sets[layer];
    i32 c = oracle->input->network->layers[layer].channels;
    ck_assert_int_eq(set->rows * c, (i64)answer->values_count);
    if (answer->voxels) {
        ck_assert_int_eq(set->rows, (i64)answer->rows);
        for (i64 i = 0; i < set->rows * 4; i++)
            ck_assert_int_eq(set->voxels[i / 4][i % 4], answer->voxels[i / 4][i % 4]);
    } else {
        ck_assert_ptr_eq(set, &oracle->made[0]);
    }
    for (size_t i = 0; i < answer->values_count; i++) {
        f64 off = fabs(oracle->values[layer][i] - answer->values[i]);
        f64 size = 1 + fabs(answer->values[i]);
        ck_assert_msg(off <= 1e-12 * size, "%s[%zu]: %.17g, by hand %.17g", answer->layer,
                      i, oracle->values[layer][i], answer->values[i]);
        ck_assert(oracle->bounds[layer][i] <= 1e-4 * size);
    }
}

START_TEST(the_oracle_agrees)
{
    const struct vx_hand_case *it = &vx_hand_cases[_i];
    write_case(it);
    struct vx_rig_files files = vx_rig_files_open(vx_rig_root);
    const struct vx_network_oracle_input input = {
        files.network, files.weights, &it->coords[0][0], 4, (i64)it->n, it->feats};
    struct vx_network_oracle oracle;
    vx_network_oracle_open(&input, &oracle);
    for (size_t i = 0; i < VX_HAND_ANSWERS_MAX && it->answers[i].layer; i++)
        compare_layer(&it->answers[i], &oracle,
                      layer_find(files.network, it->answers[i].layer));
    vx_network_oracle_close(&oracle);
    vx_rig_files_close(&files);
}
END_TEST

START_TEST(the_engine_agrees)
{
    const struct vx_hand_case *it = &vx_hand_cases[_i];
    struct vx_item item = {.coords = &it->coords[0][0],
                           .coords_columns = 4,
                           .voxels = (i64)it->n,
                           .feats = it->feats,
                           .feats_dtype = VX_DTYPE_F32};
    const struct vx_hand_answer *answers[VX_HAND_ANSWERS_MAX];
    i32 outputs = 0;
    write_case(it);
    for (size_t i = 0; i < VX_HAND_ANSWERS_MAX && it->answers[i].layer; i++) {
        if (it->answers[i].voxels) continue;
        answers[outputs] = &it->answers[i];
        item.outputs[outputs++] = vx_alloc(it->answers[i].values_count * sizeof(f32));
    }
    struct vx_model *model = vx_rig_load(vx_rig_root);
    ck_assert_int_eq(vx_model_signature(model)->outputs_count, outputs);
    vx_rig_run(model, &item);
    ck_assert_msg(!item.status.fault, "%s: %s", it->name, item.why.text);
    for (i32 j = 0; j < outputs; j++) {
        const bool labels = vx_model_signature(model)->outputs[j].dtype == VX_DTYPE_I32;
        for (size_t i = 0; i < answers[j]->values_count; i++) {
            f64 value = answers[j]->values[i], got = ((const i32 *)item.outputs[j])[i];
            if (!labels) got = (f64)((const f32 *)item.outputs[j])[i];
            ck_assert_msg(fabs(got - value) <= 1e-6 * (1 + fabs(value)),
                          "%s: %s[%zu]: %.9g, by hand %.9g", it->name, answers[j]->layer,
                          i, got, value);
        }
        vx_free(item.outputs[j]);
    }
    vx_engine_unload(vx_rig_engine, &model);
}
END_TEST

/* An op that no case has is an op that was never worked out.  to_dense, whose output has
 * another size, is worked out in test_cpu_dense. */
START_TEST(every_op_has_a_case)
{
    for (enum vx_op op = 0; op < VX_OPS_COUNT; op++) {
        char word[64];
        bool found = op == VX_OP_TO_DENSE;
        snprintf(word, sizeof word, "\"op\":\"%s\"", vx_op_name(op));
        for (size_t i = 0; i < vx_hand_cases_count && !found; i++)
            found = strstr(vx_hand_cases[i].layers, word) != NULL;
        ck_assert_msg(found, "%s", word);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_levels_by_hand");
    TCase *oracle = tcase_create("oracle"), *engine = tcase_create("engine");
    tcase_add_checked_fixture(oracle, vx_rig_set_up, vx_rig_tear_down);
    tcase_add_checked_fixture(engine, vx_rig_set_up, vx_rig_tear_down);
    tcase_add_loop_test(oracle, the_oracle_agrees, 0, (int)vx_hand_cases_count);
    tcase_add_test(oracle, every_op_has_a_case);
    tcase_add_loop_test(engine, the_engine_agrees, 0, (int)vx_hand_cases_count);
    suite_add_tcase(suite, oracle);
    suite_add_tcase(suite, engine);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
