/* Small batches on the fake GPU: before what a large one has launched, and room beside it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/gpu/model/model_load.h"
#include "engine/gpu/run/round.h"
#include "tests/support/gpu_mix.h"

#include <check.h>
#include <stdlib.h>

static struct vx_gpu_mix mix;
static struct vx_model *model;

/* The engine with requests of the bits `which`, and a block of so many times the largest round. */
static void set_up_mix(u32 which, size_t times)
{
    static struct vx_gpu_places places;
    vx_gpu_mix_write("fp16");
    vx_gpu_mix_open(1, &mix);
    model = vx_gpu_rig_load(vx_rig_root);
    vx_gpu_mix_expect(&mix, model, which);
    const size_t largest =
        vx_gpu_places_need(model->gpu->choices, VX_GPU_MIX_VOXELS_MAX, &places);
    vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_fake_set(&(struct vx_fake_settings){.event_polls = 4});
    vx_gpu_rig_reopen(times * largest, NULL);
    model = vx_gpu_rig_load(vx_rig_root);
    mix.signature = vx_model_signature(model);
}

static void tear_down_mix(void)
{
    vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_gpu_mix_close(&mix);
}

/* Launches of two batches that run together, and of them those on urgent streams. */
struct launches {
    i64 all, urgent;
};

static struct launches send_two(const i32 requests[2], i32 brief)
{
    struct launches launches = {vx_fake_launches(), vx_fake_launches_urgent()};
    struct vx_gpu_mix_sent *sent[2];
    for (i32 b = 0; b < 2; b++) {
        const struct vx_gpu_mix_pick pick = {.request = requests[b], .nameless = true};
        sent[b] = vx_gpu_mix_send(&mix, &pick, 1);
        sent[b]->batch.brief = brief >> b & 1;
        vx_engine_submit(vx_gpu_rig_engine, model, &sent[b]->batch);
    }
    for (i32 b = 0; b < 2; b++) {
        struct vx_gpu_mix_sent *ended =
            (void *)vx_engine_collect(vx_gpu_rig_engine, true);
        ck_assert(ended == sent[0] || ended == sent[1]);
        ck_assert_int_eq(vx_gpu_mix_check(&mix, &ended, false), 1);
    }
    launches.all = vx_fake_launches() - launches.all;
    launches.urgent = vx_fake_launches_urgent() - launches.urgent;
    return launches;
}

enum { SMALL = 2, LARGE = 4 };

/* A batch goes before what a much larger one has launched, whatever its caller knows of it; the larger
 * one, and one that was there before it, do not, nor do two that are alike. */
START_TEST(a_small_batch_is_urgent_beside_a_large_one)
{
    static const i32 behind[2] = {LARGE, SMALL}, before[2] = {SMALL, LARGE},
                     alike[2] = {SMALL, SMALL};
    set_up_mix(1u << SMALL | 1u << LARGE, 8);
    ck_assert_int_eq(send_two(alike, 0).urgent, 0); /* and what is launched once */
    const struct launches small = send_two(alike, 0);
    for (i32 brief = 0; brief < 4; brief++) { /* a bit for each batch */
        ck_assert_int_eq(send_two(alike, brief).urgent, 0);
        ck_assert_int_eq(send_two(before, brief).urgent, 0);
        ck_assert_int_eq(2 * send_two(behind, brief).urgent, small.all);
    }
    tear_down_mix();
}
END_TEST

/* What takes a small part of the block is soon done. */
START_TEST(no_batch_is_urgent_beside_one_that_takes_little)
{
    static const i32 behind[2] = {LARGE, SMALL};
    set_up_mix(1u << SMALL | 1u << LARGE, 64);
    ck_assert_int_eq(send_two(behind, 0).urgent, 0);
    ck_assert_int_eq(send_two(behind, 2).urgent, 0);
    tear_down_mix();
}
END_TEST

/* Of a large block a part is for brief batches: no request may be so large that it takes all. */
START_TEST(a_large_block_keeps_room_for_brief_batches)
{
    const size_t least = VX_GPU_BRIEF_PARTS * VX_GPU_BRIEF_BYTES;
    i64 most[2];
    vx_gpu_rig_write("fp32", vx_gpu_rig_wide, 1);
    for (i32 large = 0; large < 2; large++) {
        vx_gpu_rig_reopen(large ? least : least - VX_GPU_LINE_BYTES, NULL);
        model = vx_gpu_rig_load(vx_rig_root);
        most[large] = vx_model_signature(model)->voxels_max;
        static struct vx_gpu_places places;
        const size_t need = vx_gpu_places_need(model->gpu->choices, most[large], &places);
        ck_assert_uint_le(need, large ? least - VX_GPU_BRIEF_BYTES : least);
        vx_engine_unload(vx_gpu_rig_engine, &model);
    }
    ck_assert_int_lt(most[1], most[0]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_brief");
    TCase *tcase = tcase_create("brief");
    tcase_add_checked_fixture(tcase, vx_gpu_rig_set_up, vx_gpu_rig_tear_down);
    tcase_add_test(tcase, a_small_batch_is_urgent_beside_a_large_one);
    tcase_add_test(tcase, no_batch_is_urgent_beside_one_that_takes_little);
    tcase_add_test(tcase, a_large_block_keeps_room_for_brief_batches);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
