/* Dense outputs of few voxels and many samples on the CPU device: it says that it goes on while it
 * writes them, and limits.samples refuses them before any layer runs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "tests/support/engine_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* 4 Mi numbers each sample.  Two layers; the features are read. */
#define PLANE   (256 * 256 * 64)
#define SAMPLES 4
#define NETWORK(limits_)                                                                 \
    "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":1}},\"layers\":["                 \
    "{\"name\":\"r\",\"op\":\"affine\",\"input\":\"feats\",\"scale\":2},"                \
    "{\"name\":\"z\",\"op\":\"to_dense\",\"input\":\"r\",\"shape\":[256,256,64]}],"      \
    "\"outputs\":[{\"layer\":\"z\"},{\"layer\":\"r\"}],"                                 \
    "\"limits\":{\"voxels_max\":200" limits_ "},\"warmup\":[]}"

static i64 said, again;

static void on_step(void *context, i64 done, i64 total)
{
    (void)context;
    ck_assert_int_le(done, total);
    again += done < said;
    if (done == said) said++;
}

static i32 coords[2][4] = {{0, 1, 2, 3}, {SAMPLES - 1, 255, 0, 63}};
static f32 feats[2] = {3, 5};
static f32 plain[2];
static u16 *out;

static void set_up(void)
{
    const struct vx_engine_options options = {.kind = VX_DEVICE_CPU,
                                              .threads = 1,
                                              .device_bytes = 8 << 20,
                                              .cache_bytes = 8 << 20,
                                              .running = {on_step, NULL}};
    struct vx_why why = {""};
    vx_rig_set_up();
    vx_engine_close(&vx_rig_engine);
    ck_assert(!vx_engine_open(&options, &why, &vx_rig_engine).fault);
    out = vx_alloc((size_t)SAMPLES * PLANE * sizeof(f32));
    memset(out, 0xff, (size_t)SAMPLES * PLANE * sizeof(f32));
    said = again = 0;
}

static void tear_down(void)
{
    vx_free(out);
    vx_rig_tear_down();
}

static struct vx_item run(const char *network, bool dense)
{
    struct vx_item item = {.coords = coords[0],
                           .coords_columns = 4,
                           .voxels = 2,
                           .feats = feats,
                           .feats_dtype = VX_DTYPE_F32,
                           .outputs = {dense ? out : NULL, plain}};
    vx_rig_write_model(vx_rig_root, network, 3);
    struct vx_model *model = vx_rig_load(vx_rig_root);
    vx_rig_run(model, &item);
    vx_engine_unload(vx_rig_engine, &model);
    return item;
}

/* A report for the launch, one behind it, and many of the same while the zeros are written.
 * Without them, an output of 512 samples looked like a device that hangs. */
START_TEST(it_says_that_it_goes_on)
{
    const f32 *number = (const void *)out;
    const struct vx_item item = run(NETWORK(""), true);
    ck_assert_msg(!item.status.fault, "%s", item.why.text);
    ck_assert_int_eq(said, 2);
    ck_assert_int_ge(again, SAMPLES);
    i64 others = 0;
    for (i64 i = 0; i < (i64)SAMPLES * PLANE; i++) others += number[i] != 0;
    ck_assert_int_eq(others, 2);
    ck_assert(number[(1 * 256 + 2) * 64 + 3] == 6);
    ck_assert(number[(i64)(SAMPLES - 1) * PLANE + (255 * 256 + 0) * 64 + 63] == 10);
}
END_TEST

START_TEST(a_limit_refuses_it_before_it_runs)
{
    struct vx_item item = run(NETWORK(",\"samples\":3"), true);
    ck_assert_int_eq(vx_status_code(item.status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(item.why.text,
                     "output 'z': the largest sample is 3, which makes 4 samples; "
                     "limits.samples allows 3");
    ck_assert_int_eq(said, 0);
    ck_assert_uint_eq(out[0], 0xffff);
    item = run(NETWORK(",\"samples\":3"), false);
    ck_assert_msg(!item.status.fault, "%s", item.why.text);
    ck_assert(plain[1] == 10);
    item = run(NETWORK(",\"samples\":4"), true);
    ck_assert_msg(!item.status.fault, "%s", item.why.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_dense");
    TCase *tcase = tcase_create("engine_dense");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, it_says_that_it_goes_on);
    tcase_add_test(tcase, a_limit_refuses_it_before_it_runs);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
