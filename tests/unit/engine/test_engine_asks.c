/* Items of the CPU device that ask for the places of outputs on other sets: who is told
 * what and when, refusals, other batches beside them, and what the answers say.
 *
 * The network's layers have no weights: each answer can be worked out by hand.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "tests/support/engine_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* same (N, 3); coarse and coarse_coords (floor by 2); sparse: a window of spconv that drops
 * voxels at the upper edge, which may leave none. */
enum { SAME, COARSE, SPARSE, COARSE_COORDS, SPARSE_COORDS, OUTPUTS };
static const char network[] =
    "{\"format\":1,\"inputs\":{\"coords\":{\"name\":\"coords\",\"spatial_shape\":[8,8,8]}"
    ","
    "\"feats\":{\"channels\":3}},\"layers\":["
    "{\"name\":\"same\",\"op\":\"relu\",\"input\":\"feats\"},"
    "{\"name\":\"coarse\",\"op\":\"max_pool\",\"input\":\"feats\",\"kernel\":2,"
    "\"stride\":2,"
    "\"rule\":\"floor\"},"
    "{\"name\":\"sparse\",\"op\":\"sum_pool\",\"input\":\"feats\",\"kernel\":1,"
    "\"stride\":4,"
    "\"rule\":\"spconv\",\"padding\":0}],"
    "\"outputs\":[{\"layer\":\"same\"},{\"layer\":\"coarse\",\"datatype\":\"FP32\"},"
    "{\"layer\":\"sparse\"}]}";
#define BIT(o)  (1u << (o))
#define ALL_FAR (BIT(COARSE) | BIT(SPARSE) | BIT(COARSE_COORDS) | BIT(SPARSE_COORDS))

static struct vx_model *model;

static void set_up(void)
{
    vx_rig_set_up();
    vx_rig_write_model(vx_rig_root, network, 1);
    model = vx_rig_load(vx_rig_root);
}

static void tear_down(void)
{
    vx_engine_unload(vx_rig_engine, &model);
    vx_rig_tear_down();
}

/* Voxels (0, 0, 0), (1, 1, 0), (3, 5, 7) and (5, 1, 1) of two samples, out of order. */
static const i32 voxels[5][4] = {
    {1, 5, 1, 1}, {0, 3, 5, 7}, {0, 0, 0, 0}, {1, 3, 5, 7}, {0, 1, 1, 0}};
static const f32 feats[5][3] = {
    {1, -2, 3}, {4, 5, 6}, {-7, 8, 9}, {10, 11, -12}, {-13, 14, 15}};

/* Answers of one request. */
struct answer {
    f32 same[8][3], coarse[8][3], sparse[8][3];
    i32 coarse_coords[8][4], sparse_coords[8][4];
};

static struct vx_item item_of(struct answer *answer, i64 n, u32 asks)
{
    memset(answer, 0x55, sizeof *answer);
    return (struct vx_item){.coords = voxels[0],
                            .coords_columns = 4,
                            .voxels = n,
                            .feats = feats,
                            .feats_dtype = VX_DTYPE_F32,
                            .outputs = {[SAME] = answer->same},
                            .asks = asks};
}

static void place(struct vx_batch *batch, i32 index, struct answer *answer)
{
    void *places[OUTPUTS] = {answer->same, answer->coarse, answer->sparse,
                             answer->coarse_coords, answer->sparse_coords};
    struct vx_item *item = &batch->items[index];
    for (i32 o = 0; o < OUTPUTS; o++)
        if (item->asks >> o & 1) item->outputs[o] = item->rows[o] ? places[o] : NULL;
    vx_engine_place(vx_rig_engine, batch, index);
}

/* The next item that asks, alone in what the engine says. */
static i32 expect_asked(const struct vx_batch *batch)
{
    struct vx_asked asked;
    ck_assert(vx_engine_asked(vx_rig_engine, &asked));
    ck_assert_ptr_eq(asked.batch, batch);
    ck_assert_int_eq(asked.count, 1);
    return asked.items[0];
}

static void expect_silence(void)
{
    struct vx_asked asked;
    ck_assert(!vx_engine_asked(vx_rig_engine, &asked));
}

static void check_answer(const struct answer *answer)
{
    static const i32 coarse_coords[4][4] = {
        {0, 0, 0, 0}, {0, 1, 2, 3}, {1, 1, 2, 3}, {1, 2, 0, 0}};
    static const f32 coarse[4][3] = {{-7, 14, 15}, {4, 5, 6}, {10, 11, -12}, {1, -2, 3}};
    static const f32 same[5][3] = {
        {1, 0, 3}, {4, 5, 6}, {0, 8, 9}, {10, 11, 0}, {0, 14, 15}};
    ck_assert_mem_eq(answer->same, same, sizeof same);
    ck_assert_mem_eq(answer->coarse, coarse, sizeof coarse);
    ck_assert_mem_eq(answer->coarse_coords, coarse_coords, sizeof coarse_coords);
}

START_TEST(what_a_signature_says)
{
    static const char *const names[OUTPUTS] = {"same", "coarse", "sparse",
                                               "coarse_coords", "sparse_coords"};
    static const i32 coords[OUTPUTS] = {-1, COARSE_COORDS, SPARSE_COORDS, COARSE_COORDS,
                                        SPARSE_COORDS};
    static const char *const strides[OUTPUTS] = {"", "2x2x2", "4x4x4", "2x2x2", "4x4x4"};
    const struct vx_signature *signature = vx_model_signature(model);
    ck_assert_int_eq(signature->outputs_count, OUTPUTS);
    for (i32 o = 0; o < OUTPUTS; o++) {
        const struct vx_output *output = &signature->outputs[o];
        ck_assert_str_eq(output->name, names[o]);
        ck_assert_str_eq(output->stride, strides[o]);
        ck_assert_int_eq(output->coords, coords[o]);
        ck_assert_int_eq(output->dtype, o < COARSE_COORDS ? VX_DTYPE_F32 : VX_DTYPE_I32);
        ck_assert_int_eq(output->channels, o < COARSE_COORDS ? 3 : 4);
        ck_assert_int_eq(output->set != 0, o != SAME);
    }
}
END_TEST

/* Rows in canonical order, whatever the order of the request, and only what is asked. */
START_TEST(an_item_asks_and_gets_its_rows)
{
    struct answer answer;
    struct vx_item item = item_of(&answer, 5, ALL_FAR);
    struct vx_batch batch = {.items = &item, .items_count = 1};
    vx_engine_submit(vx_rig_engine, model, &batch);
    ck_assert_int_eq(expect_asked(&batch), 0);
    expect_silence(); /* once */
    const i64 rows[OUTPUTS] = {0, 4, 1, 4, 1};
    for (i32 o = 0; o < OUTPUTS; o++) ck_assert_int_eq(item.rows[o], rows[o]);
    ck_assert_ptr_null(vx_engine_collect(vx_rig_engine, false));
    ck_assert_ptr_null(vx_engine_collect(vx_rig_engine, true));
    place(&batch, 0, &answer);
    ck_assert_ptr_eq(vx_engine_collect(vx_rig_engine, true), &batch);
    ck_assert(!item.status.fault);
    check_answer(&answer);
    ck_assert_int_eq(vx_engine_under_way(vx_rig_engine), 0);
}
END_TEST

/* A window of one offset keeps a voxel whose coordinates the stride divides: (0, 0, 0)
 * alone here, and without it none.  Zero rows are asked for, too, and need no place. */
START_TEST(a_set_may_have_no_rows)
{
    struct answer answer, untouched;
    struct vx_item item = item_of(&answer, 2, BIT(SPARSE) | BIT(SPARSE_COORDS));
    struct vx_batch batch = {.items = &item, .items_count = 1};
    memset(&untouched, 0x55, sizeof untouched);
    vx_engine_submit(vx_rig_engine, model, &batch);
    ck_assert_int_eq(expect_asked(&batch), 0);
    ck_assert_int_eq(item.rows[SPARSE], 0);
    ck_assert_int_eq(item.rows[SPARSE_COORDS], 0);
    place(&batch, 0, &answer);
    ck_assert_ptr_eq(vx_engine_collect(vx_rig_engine, true), &batch);
    ck_assert(!item.status.fault);
    ck_assert_mem_eq(answer.sparse, untouched.sparse, sizeof answer.sparse);
    ck_assert_mem_eq(answer.coarse, untouched.coarse, sizeof answer.coarse);
}
END_TEST

/* Nobody is asked about outputs that nobody wants, nor for a request without voxels. */
START_TEST(unwanted_outputs_ask_for_nothing)
{
    struct answer answers[2];
    struct vx_item items[2] = {item_of(&answers[0], 5, 0),
                               item_of(&answers[1], 0, ALL_FAR)};
    struct vx_batch batch = {.items = items, .items_count = 2};
    vx_engine_submit(vx_rig_engine, model, &batch);
    expect_silence();
    ck_assert_ptr_eq(vx_engine_collect(vx_rig_engine, false), &batch);
    for (i32 i = 0; i < 2; i++) {
        ck_assert(!items[i].status.fault);
        ck_assert_int_eq(items[i].asking, VX_ASKING_NONE);
    }
}
END_TEST

/* A batch of which the first is refused, the second fails by itself, and two are well. */
START_TEST(a_refusal_is_for_one_item)
{
    static const i32 twice[2][4] = {{0, 1, 1, 1}, {0, 1, 1, 1}};
    struct answer answers[4];
    struct vx_item items[4];
    struct vx_batch batch = {.items = items, .items_count = 4};
    for (i32 i = 0; i < 4; i++) items[i] = item_of(&answers[i], 5, ALL_FAR);
    items[1].coords = twice[0];
    items[1].voxels = 2;
    items[2].asks = BIT(COARSE) | BIT(COARSE_COORDS);
    vx_engine_submit(vx_rig_engine, model, &batch);
    ck_assert_int_eq(expect_asked(&batch), 0);
    items[0].status = vx_status_of_code(VX_CODE_RESOURCE_EXHAUSTED);
    vx_engine_place(vx_rig_engine, &batch, 0);
    ck_assert_ptr_null(vx_engine_collect(vx_rig_engine, true));
    ck_assert_int_eq(expect_asked(&batch), 2);
    place(&batch, 2, &answers[2]);
    ck_assert_ptr_null(vx_engine_collect(vx_rig_engine, true));
    ck_assert_int_eq(expect_asked(&batch), 3);
    place(&batch, 3, &answers[3]); /* before its layers are computed */
    ck_assert_ptr_eq(vx_engine_collect(vx_rig_engine, true), &batch);
    ck_assert_int_eq(vx_status_code(items[0].status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(vx_status_code(items[1].status), VX_CODE_INVALID_ARGUMENT);
    ck_assert(!items[2].status.fault && !items[3].status.fault);
    check_answer(&answers[2]);
    check_answer(&answers[3]);
}
END_TEST

/* The device's memory is that of the item that asks: a batch behind it waits, also one
 * that asks for nothing, and then runs. */
START_TEST(a_batch_behind_one_that_asks_waits)
{
    struct answer answers[2];
    struct vx_item items[2] = {item_of(&answers[0], 5, ALL_FAR),
                               item_of(&answers[1], 5, _i ? ALL_FAR : 0)};
    struct vx_batch batches[2] = {{.items = &items[0], .items_count = 1},
                                  {.items = &items[1], .items_count = 1}};
    for (i32 i = 0; i < 2; i++) vx_engine_submit(vx_rig_engine, model, &batches[i]);
    ck_assert_int_eq(expect_asked(&batches[0]), 0);
    expect_silence();
    ck_assert_ptr_null(vx_engine_collect(vx_rig_engine, true));
    place(&batches[0], 0, &answers[0]);
    ck_assert_ptr_eq(vx_engine_collect(vx_rig_engine, true), &batches[0]);
    if (_i) {
        ck_assert_ptr_null(vx_engine_collect(vx_rig_engine, true));
        ck_assert_int_eq(expect_asked(&batches[1]), 0);
        place(&batches[1], 0, &answers[1]);
    }
    ck_assert_ptr_eq(vx_engine_collect(vx_rig_engine, true), &batches[1]);
    check_answer(&answers[0]);
    if (_i) check_answer(&answers[1]);
    ck_assert_mem_eq(answers[0].same, answers[1].same, sizeof answers[0].same);
}
END_TEST

/* The geometry of an item that asks is not evicted meanwhile, and is kept. */
START_TEST(a_kept_geometry_asks_again)
{
    struct answer answers[2];
    for (i32 i = 0; i < 2; i++) {
        struct vx_item item = item_of(&answers[i], 5, ALL_FAR);
        struct vx_batch batch = {.items = &item, .items_count = 1};
        vx_rig_name(&item);
        if (i) item.coords = NULL;
        vx_engine_submit(vx_rig_engine, model, &batch);
        ck_assert_int_eq(expect_asked(&batch), 0);
        place(&batch, 0, &answers[i]);
        ck_assert_ptr_eq(vx_engine_collect(vx_rig_engine, true), &batch);
        ck_assert_msg(!item.status.fault, "%s", item.why.text);
        ck_assert_int_eq(item.geometry_hit, i);
        ck_assert(item.geometry_kept);
        check_answer(&answers[i]);
    }
}
END_TEST

/* What the caller hears of when an item tells that it goes on. */
static struct {
    struct vx_batch *batch;
    struct answer *answer;
} heard;

static void on_report(void *context, i64 done, i64 total)
{
    (void)context;
    (void)done;
    (void)total;
    if (!heard.batch) return;
    place(heard.batch, 0, heard.answer);
    heard.batch = NULL;
}

/* Places that come while the layers run: the same collect ends the item, so that one that waits
 * has something to wait for. */
START_TEST(places_may_come_while_the_item_goes_on)
{
    const struct vx_engine_options options = {.kind = VX_DEVICE_CPU,
                                              .threads = 1,
                                              .device_bytes = VX_RIG_DEVICE_BYTES,
                                              .cache_bytes = VX_RIG_DEVICE_BYTES,
                                              .running = {on_report, NULL}};
    struct answer answer;
    struct vx_why why = {""};
    vx_engine_unload(vx_rig_engine, &model);
    vx_engine_close(&vx_rig_engine);
    ck_assert_msg(!vx_engine_open(&options, &why, &vx_rig_engine).fault, "%s", why.text);
    model = vx_rig_load(vx_rig_root);
    struct vx_item item = item_of(&answer, 5, ALL_FAR);
    struct vx_batch batch = {.items = &item, .items_count = 1};
    vx_engine_submit(vx_rig_engine, model, &batch);
    ck_assert_int_eq(expect_asked(&batch), 0);
    heard.batch = &batch;
    heard.answer = &answer;
    ck_assert_ptr_eq(vx_engine_collect(vx_rig_engine, true), &batch);
    ck_assert_ptr_null(heard.batch);
    ck_assert(!item.status.fault);
    check_answer(&answer);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_asks");
    TCase *tcase = tcase_create("engine_asks");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, what_a_signature_says);
    tcase_add_test(tcase, an_item_asks_and_gets_its_rows);
    tcase_add_test(tcase, a_set_may_have_no_rows);
    tcase_add_test(tcase, unwanted_outputs_ask_for_nothing);
    tcase_add_test(tcase, a_refusal_is_for_one_item);
    tcase_add_loop_test(tcase, a_batch_behind_one_that_asks_waits, 0, 2);
    tcase_add_test(tcase, a_kept_geometry_asks_again);
    tcase_add_test(tcase, places_may_come_while_the_item_goes_on);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
