/* What a request may place in its regions, and which workers can run it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/check.h"
#include "server/infer/infer_private.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Replaces the front's table of models, as far as this test needs it. */
static u32 model_workers;

u32 vx_models_workers(const struct vx_models *models, i32 instance)
{
    (void)models;
    ck_assert_int_eq(instance, 0);
    return model_workers;
}

static struct vx_infer infer;
static struct vx_call call;
static struct vx_why why;

/* Ten voxels; outputs of 120 and 20 bytes. */
static void set_up(void)
{
    ck_assert(!vx_registry_open(&infer.registry).fault);
    ck_assert_int_eq(vx_registry_add(infer.registry, "conv", 1, 0), 0);
    struct vx_signature *s = &vx_registry_row(infer.registry, 0)->signature;
    *s = (struct vx_signature){.coords_name = "coords",
                               .feats_name = "feats",
                               .feats_channels = 4,
                               .outputs_count = 2,
                               .voxels_max = 1000};
    s->outputs[0] = (struct vx_output){"normals", VX_DTYPE_F32, 3, 0, -1, "", 0, {0}};
    s->outputs[1] = (struct vx_output){"score", VX_DTYPE_F16, 1, 0, -1, "", 0, {0}};
    model_workers = 7;
    why.text[0] = '\0';
    memset(&call, 0, sizeof call);
    struct vx_request *r = &call.request;
    snprintf(r->model, sizeof r->model, "conv");
    r->inputs_count = 2;
    r->outputs_count = 2;
    r->inputs[0] = (struct vx_request_tensor){.name = "coords",
                                              .type = VX_WIRE_INT32,
                                              .rank = 2,
                                              .shape = {10, 4},
                                              .elements = 40};
    r->inputs[1] = (struct vx_request_tensor){.name = "feats",
                                              .type = VX_WIRE_FP32,
                                              .rank = 2,
                                              .shape = {10, 4},
                                              .elements = 40};
    snprintf(r->outputs[0], sizeof r->outputs[0], "score");
    snprintf(r->outputs[1], sizeof r->outputs[1], "normals");
    ck_assert(!vx_admit("conv", s, r, &why, &call.admitted).fault);
}

static void tear_down(void)
{
    vx_registry_close(&infer.registry);
}

#define SYSTEM(region_, offset_, bytes_)                                                 \
    {                                                                                    \
        (offset_), (bytes_), VX_PLACE_SYSTEM, (region_), 0                               \
    }
#define DEVICE(region_, offset_, bytes_, worker_)                                        \
    {                                                                                    \
        (offset_), (bytes_), VX_PLACE_DEVICE, (region_), (worker_)                       \
    }
#define NONE                                                                             \
    {                                                                                    \
        0, 0, VX_PLACE_NONE, 0, 0                                                        \
    }

/* Where coords, feats, score and normals lie; the workers that have the model; the
 * code, a part of the sentence, and the workers that may run it. */
static const struct {
    struct vx_place inputs[2], outputs[2];
    u32 models;
    enum vx_code code;
    const char *text;
    u32 only;
} rows[] = {
    {{NONE, NONE}, {NONE, NONE}, 7, VX_CODE_OK, "", 0},
    {{NONE, SYSTEM(1, 0, 160)},
     {SYSTEM(1, 160, 20), SYSTEM(1, 180, 120)},
     7,
     VX_CODE_OK,
     "",
     0},
    {{SYSTEM(1, 0, 160), SYSTEM(1, 0, 160)}, {NONE, NONE}, 7, VX_CODE_OK, "", 0},
    /* only the bytes written count */
    {{NONE, SYSTEM(1, 20, 160)}, {SYSTEM(1, 0, 160), NONE}, 7, VX_CODE_OK, "", 0},
    {{NONE, NONE},
     {SYSTEM(1, 0, 19), NONE},
     7,
     VX_CODE_INTERNAL,
     "shared memory size specified with the request for output 'score' (19 bytes) should "
     "be at least 20 bytes to hold the results",
     0},
    {{NONE, NONE},
     {NONE, SYSTEM(1, 0, 0)},
     7,
     VX_CODE_INTERNAL,
     "output 'normals' (0 bytes) should be at least 120 bytes",
     0},
    {{NONE, SYSTEM(1, 19, 160)},
     {SYSTEM(1, 0, 20), NONE},
     7,
     VX_CODE_INVALID_ARGUMENT,
     "input 'feats' and output 'score' overlap",
     0},
    {{SYSTEM(2, 0, 160), NONE},
     {NONE, SYSTEM(2, 159, 120)},
     7,
     VX_CODE_INVALID_ARGUMENT,
     "input 'coords' and output 'normals' overlap",
     0},
    {{NONE, NONE},
     {SYSTEM(1, 64, 20), SYSTEM(1, 0, 120)},
     7,
     VX_CODE_INVALID_ARGUMENT,
     "output 'score' and output 'normals' overlap",
     0},
    {{NONE, NONE}, {SYSTEM(1, 64, 20), SYSTEM(2, 0, 120)}, 7, VX_CODE_OK, "", 0},
    {{DEVICE(3, 0, 160, 1), SYSTEM(1, 0, 160)}, {NONE, NONE}, 7, VX_CODE_OK, "", 2},
    {{DEVICE(3, 0, 160, 1), NONE}, {DEVICE(4, 0, 20, 1), NONE}, 7, VX_CODE_OK, "", 2},
    {{DEVICE(3, 0, 160, 0), NONE},
     {DEVICE(4, 0, 20, 1), NONE},
     7,
     VX_CODE_INVALID_ARGUMENT,
     "regions of one request must be on one device",
     0},
    {{DEVICE(3, 0, 160, 2), NONE},
     {NONE, NONE},
     3,
     VX_CODE_FAILED_PRECONDITION,
     "model 'conv' is not loaded on the device",
     4},
};

START_TEST(a_row_has_its_code_and_workers)
{
    memcpy(call.inputs_held, rows[_i].inputs, sizeof rows[_i].inputs);
    memcpy(call.outputs_held, rows[_i].outputs, sizeof rows[_i].outputs);
    model_workers = rows[_i].models;
    vx_status st = vx_infer_check_regions(&infer, &call, &why);
    ck_assert_msg(vx_status_code(st) == rows[_i].code, "row %d: %s", _i,
                  vx_status_text(st, &why));
    ck_assert_msg(!st.fault || strstr(vx_status_text(st, &why), rows[_i].text),
                  "row %d: %s", _i, vx_status_text(st, &why));
    ck_assert_uint_eq(call.job.only, rows[_i].only);
}
END_TEST

START_TEST(an_output_is_in_a_slot_or_in_a_region)
{
    call.outputs_held[1] = (struct vx_place)DEVICE(8, 256, 120, 1);
    ck_assert_ptr_null(vx_infer_output_held(&call, 0));
    ck_assert_ptr_eq(vx_infer_output_held(&call, 1), &call.outputs_held[1]);
    /* A request that names no outputs has none in a region, even if outputs have
     * places there. */
    call.request.outputs_count = 0;
    ck_assert_ptr_null(vx_infer_output_held(&call, 1));
}
END_TEST

/* It is refused whether or not coords are copied, so that every device behaves alike. */
START_TEST(an_answer_over_coords_that_were_copied_is_refused)
{
    call.inputs_held[0] = (struct vx_place)SYSTEM(9, 0, 160);
    call.request.inputs[0].place = (struct vx_place){1000, 160, VX_PLACE_ARENA, 0, 0};
    call.outputs_held[1] = (struct vx_place)SYSTEM(9, 64, 120);
    vx_status st = vx_infer_check_regions(&infer, &call, &why);
    ck_assert_int_eq(vx_status_code(st), VX_CODE_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(
        strstr(why.text, "input 'coords' and output 'normals' overlap"));
}
END_TEST

START_TEST(a_region_is_found_by_its_number)
{
    call.inputs_held[1] = (struct vx_place)SYSTEM(9, 64, 160);
    call.outputs_held[1] = (struct vx_place)SYSTEM(8, 256, 120);
    ck_assert_ptr_eq(vx_infer_region_held(&call, 9), &call.inputs_held[1]);
    ck_assert_ptr_eq(vx_infer_region_held(&call, 8), &call.outputs_held[1]);
    ck_assert_ptr_null(vx_infer_region_held(&call, 7)); /* a damaged worker's index */
}
END_TEST

START_TEST(a_holder_must_see_the_regions)
{
    vx_registry_row(infer.registry, 0)->workers_loaded = 6;
    ck_assert_uint_eq(vx_infer_may_hold(&infer, &call), 6);
    call.job.only = 3;
    ck_assert_uint_eq(vx_infer_may_hold(&infer, &call), 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("infer_place");
    TCase *tcase = tcase_create("place");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, a_row_has_its_code_and_workers, 0, (int)VX_COUNT(rows));
    tcase_add_test(tcase, an_output_is_in_a_slot_or_in_a_region);
    tcase_add_test(tcase, an_answer_over_coords_that_were_copied_is_refused);
    tcase_add_test(tcase, a_region_is_found_by_its_number);
    tcase_add_test(tcase, a_holder_must_see_the_regions);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
