/* Brief batches on the fake GPU: before what a long one has launched, and room beside it.
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

/* A brief batch goes before what the other one has launched, and no other batch does.  Answers do not
 * depend on it, nor on which lane is brief. */
START_TEST(a_brief_batch_is_urgent)
{
    const struct vx_gpu_mix_pick pick = {.request = 3, .nameless = true};
    vx_gpu_mix_write("fp16");
    vx_gpu_mix_open(1, &mix);
    model = vx_gpu_rig_load(vx_rig_root);
    vx_gpu_mix_expect(&mix, model, 1u << 3);
    vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_fake_set(&(struct vx_fake_settings){.event_polls = 4});
    vx_gpu_rig_reopen(64 << 20, NULL);
    model = vx_gpu_rig_load(vx_rig_root);
    mix.signature = vx_model_signature(model);
    for (i32 brief = 0; brief < 4; brief++) { /* a bit for each batch */
        struct vx_gpu_mix_sent *sent[2];
        const i64 launches = vx_fake_launches(), urgent = vx_fake_launches_urgent();
        for (i32 b = 0; b < 2; b++) {
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
        const i64 both = vx_fake_launches() - launches;
        ck_assert_int_eq(2 * (vx_fake_launches_urgent() - urgent),
                         both * ((brief & 1) + (brief >> 1)));
    }
    vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_gpu_mix_close(&mix);
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
    tcase_add_test(tcase, a_brief_batch_is_urgent);
    tcase_add_test(tcase, a_large_block_keeps_room_for_brief_batches);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
