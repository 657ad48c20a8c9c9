/* Sets by logits on the CPU device: answers by hand, none and too many voxels, logits that
 * are no numbers, requests of one coords_ref with other features, warm-up, progress, and
 * what `voxeld check` prints.
 *
 * The network's layers have no weights: each answer can be worked out by hand.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "tests/support/engine_rig.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Two children along x, each with the logit and the feature of its channel; of those what
 * is above 3; and the sum of both children back on the request's voxels. */
enum { BACK, UP, KEPT, UP_COORDS, KEPT_COORDS, OUTPUTS };
#define NETWORK(limits_)                                                                 \
    "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":2}},\"layers\":["                 \
    "{\"name\":\"r\",\"op\":\"relu\",\"input\":\"feats\"},"                              \
    "{\"name\":\"s\",\"op\":\"affine\",\"input\":\"feats\"},"                            \
    "{\"name\":\"up\",\"op\":\"channel_to_space\",\"input\":\"r\",\"stride\":[2,1,1],"   \
    "\"occupancy\":\"s\"},"                                                              \
    "{\"name\":\"k\",\"op\":\"affine\",\"input\":\"up\",\"shift\":-3},"                  \
    "{\"name\":\"kept\",\"op\":\"prune\",\"input\":\"up\",\"keep\":\"k\"},"              \
    "{\"name\":\"w\",\"op\":\"sum_pool\",\"input\":\"kept\",\"kernel\":[2,1,1],"         \
    "\"stride\":[2,1,1],\"rule\":\"floor\"},"                                            \
    "{\"name\":\"back\",\"op\":\"upsample\",\"input\":\"w\",\"stride\":1,"               \
    "\"onto\":\"r\"}],\"outputs\":[{\"layer\":\"back\"},{\"layer\":\"up\"},"             \
    "{\"layer\":\"kept\",\"datatype\":\"FP16\"}],"                                       \
    "\"limits\":{" limits_ "\"voxels_max\":200},\"warmup\":[1,100]}"
#define BIT(o)  (1u << (o))
#define ALL_FAR (BIT(UP) | BIT(KEPT) | BIT(UP_COORDS) | BIT(KEPT_COORDS))
#define ROWS    8

static struct vx_model *model;

static void load(const char *network)
{
    vx_rig_write_model(vx_rig_root, network, 1);
    model = vx_rig_load(vx_rig_root);
}

static void set_up(void)
{
    vx_rig_set_up();
    load(NETWORK("\"sets\":{\"up\":6},"));
}

static void tear_down(void)
{
    vx_engine_unload(vx_rig_engine, &model);
    vx_rig_tear_down();
}

static const i32 voxels[4][4] = {{0, 3, 0, 0}, {0, 0, 0, 0}, {0, -1, 0, 0}, {1, 0, 5, 0}};

struct answer {
    f32 back[ROWS], up[ROWS];
    u16 kept[ROWS];
    i32 up_coords[ROWS][4], kept_coords[ROWS][4];
};

static struct vx_item item_of(struct answer *answer, const f32 (*feats)[2], i64 n)
{
    memset(answer, 0x55, sizeof *answer);
    return (struct vx_item){.coords = voxels[0],
                            .coords_columns = 4,
                            .voxels = n,
                            .feats = feats,
                            .feats_dtype = VX_DTYPE_F32,
                            .outputs = {[BACK] = answer->back},
                            .asks = ALL_FAR};
}

static void place(struct vx_batch *batch, i32 index, struct answer *answer)
{
    void *places[OUTPUTS] = {answer->back, answer->up, answer->kept, answer->up_coords,
                             answer->kept_coords};
    struct vx_item *item = &batch->items[index];
    for (i32 o = 0; o < OUTPUTS; o++)
        if (item->asks >> o & 1) item->outputs[o] = item->rows[o] ? places[o] : NULL;
    vx_engine_place(vx_rig_engine, batch, index);
}

static void run(struct vx_item *items, struct answer *answers, i32 count)
{
    struct vx_batch batch = {.items = items, .items_count = count};
    struct vx_asked asked;
    vx_engine_submit(vx_rig_engine, model, &batch);
    for (i32 calls = 0; vx_engine_under_way(vx_rig_engine); calls++) {
        ck_assert_int_le(calls, 2 * count);
        while (vx_engine_asked(vx_rig_engine, &asked))
            for (i32 i = 0; i < asked.count; i++)
                place(&batch, asked.items[i], &answers[asked.items[i]]);
        (void)vx_engine_collect(vx_rig_engine, true);
    }
}

/* Children 6 of voxel 3; 0 and 1 of voxel 0; none of voxel -1.  4 and 5 are above 3. */
static const f32 feats[3][2] = {{5, -1}, {2, 4}, {0, -7}};

static void check_rows(const struct vx_item *item, i64 up, i64 kept)
{
    ck_assert_msg(!item->status.fault, "%s", item->why.text);
    ck_assert_int_eq(item->rows[UP], up);
    ck_assert_int_eq(item->rows[UP_COORDS], up);
    ck_assert_int_eq(item->rows[KEPT], kept);
    ck_assert_int_eq(item->rows[KEPT_COORDS], kept);
}

static void check_answer(const struct vx_item *item, const struct answer *answer)
{
    static const f32 up[] = {2, 4, 5}, back[] = {5, 4, 0};
    static const u16 kept[] = {0x4400, 0x4500};
    static const i32 up_coords[][4] = {{0, 0, 0, 0}, {0, 1, 0, 0}, {0, 6, 0, 0}};
    check_rows(item, 3, 2);
    ck_assert_mem_eq(answer->up, up, sizeof up);
    ck_assert_mem_eq(answer->up_coords, up_coords, sizeof up_coords);
    ck_assert_mem_eq(answer->kept, kept, sizeof kept);
    ck_assert_mem_eq(answer->kept_coords, up_coords[1], 2 * sizeof up_coords[1]);
    ck_assert_mem_eq(answer->back, back, sizeof back);
}

START_TEST(an_answer_by_hand)
{
    struct answer answer;
    struct vx_item item = item_of(&answer, feats, 3);
    run(&item, &answer, 1);
    check_answer(&item, &answer);
    ck_assert_int_ge(item.geometry_ns, 0);
    ck_assert_int_gt(item.compute_ns, 0);
}
END_TEST

/* N' = 0 is an answer, in the first stage and in the second. */
START_TEST(sets_without_rows)
{
    static const f32 none[3][2] = {{-1, 0}, {0, -2}, {-0.0f, -3}};
    static const f32 low[3][2] = {{1, 3}, {0, 2}, {-1, -3}};
    struct answer answers[2];
    struct vx_item items[2] = {item_of(&answers[0], none, 3),
                               item_of(&answers[1], low, 3)};
    run(items, answers, 2);
    check_rows(&items[0], 0, 0);
    check_rows(&items[1], 3, 0);
    for (i32 i = 0; i < 2; i++)
        for (i32 row = 0; row < 3; row++) ck_assert(answers[i].back[row] == 0);
    ck_assert(answers[1].up[0] == 2 && answers[1].up[1] == 1 && answers[1].up[2] == 3);
}
END_TEST

/* One item has a logit that is no number, one too many voxels; what runs before, between
 * and behind them is answered. */
START_TEST(what_fails_fails_alone)
{
    const f32 bad[4][2] = {{1, 2}, {-5, (f32)NAN}, {(f32)NAN, 3}, {-1, 1}};
    static const f32 many[4][2] = {{1, 2}, {3, INFINITY}, {5, 6}, {7, -1}};
    struct answer answers[5];
    struct vx_item items[5] = {
        item_of(&answers[0], feats, 3), item_of(&answers[1], bad, 4),
        item_of(&answers[2], feats, 3), item_of(&answers[3], many, 4),
        item_of(&answers[4], feats, 3)};
    run(items, answers, 5);
    for (i32 i = 0; i < 5; i += 2) check_answer(&items[i], &answers[i]);
    ck_assert_int_eq(vx_status_code(items[1].status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(
        items[1].why.text,
        "layer \"s\": the logit of voxel (0, -1, 0, 0) of set 0, child 0, is "
        "not a number; set 1, made by layer \"up\", follows from it");
    ck_assert_int_eq(vx_status_code(items[3].status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(items[3].why.text, "set 1, made by layer \"up\", has 7 voxels; "
                                        "limits.sets allows 6");
    /* What is paid for: of the refused set of 7 the 4 that were looked at to count them. */
    ck_assert_int_eq(items[0].set_voxels, 3 + 3 + 2 + 2);
    ck_assert_int_eq(items[1].set_voxels, 4);
    ck_assert_int_eq(items[3].set_voxels, 4 + 4);
}
END_TEST

/* A later set fails: those that were made before count, too. */
START_TEST(what_was_made_counts_when_a_request_fails)
{
    static const f32 many[4][2] = {{4, 5}, {6, 7}, {8, 9}, {-1, -1}};
    struct answer answer;
    vx_engine_unload(vx_rig_engine, &model);
    load(NETWORK("\"sets\":{\"kept\":5},"));
    struct vx_item item = item_of(&answer, many, 4);
    run(&item, &answer, 1);
    ck_assert_int_eq(vx_status_code(item.status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(item.why.text, "set 2, made by layer \"kept\", has 6 voxels; "
                                    "limits.sets allows 5");
    ck_assert_int_eq(item.set_voxels, 4 + 6 + 6);
    item = item_of(&answer, many, 4); /* coordinates that are wrong make nothing */
    item.coords = (const i32[]){0, 1, 1, 1, 0, 1, 1, 1, 0, 2, 2, 2, 0, 3, 3, 3};
    run(&item, &answer, 1);
    ck_assert_int_eq(vx_status_code(item.status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_int_eq(item.set_voxels, 0);
}
END_TEST

/* An item that asks for nothing fails in the same way. */
START_TEST(without_asking)
{
    const f32 bad[1][2] = {{1, (f32)NAN}};
    struct answer answer;
    struct vx_item item = item_of(&answer, bad, 1);
    item.asks = 0;
    vx_rig_run(model, &item);
    ck_assert_int_eq(vx_status_code(item.status), VX_CODE_INVALID_ARGUMENT);
    item = item_of(&answer, feats, 3);
    item.asks = 0;
    vx_rig_run(model, &item);
    ck_assert(!item.status.fault);
    ck_assert(answer.back[0] == 5 && answer.back[1] == 4 && answer.back[2] == 0);
}
END_TEST

static i64 cached_bytes(void)
{
    struct vx_engine_stats stats;
    vx_engine_stats_get(vx_rig_engine, &stats);
    return stats.cache_bytes;
}

/* Features decide, not the name of the coordinates: kept under it is only what does not
 * depend on them, and it is a hit. */
START_TEST(one_coords_ref_with_other_features)
{
    static const f32 other[3][2] = {{-1, 9}, {-2, -4}, {8, -7}};
    i64 kept = 0;
    for (i32 round = 0; round < 6; round++) {
        struct answer answer;
        struct vx_item item = item_of(&answer, round % 2 ? other : feats, 3);
        vx_rig_name(&item);
        if (round > 2) item.coords = NULL;
        run(&item, &answer, 1);
        ck_assert_int_eq(item.geometry_hit, round > 0);
        ck_assert(item.geometry_kept);
        if (round) ck_assert_int_eq(cached_bytes(), kept);
        kept = cached_bytes();
        if (round % 2 == 0) {
            check_answer(&item, &answer);
            continue;
        }
        check_rows(&item, 2, 2);
        ck_assert(answer.up[0] == 8 && answer.up[1] == 9);
        ck_assert(answer.back[0] == 9 && answer.back[1] == 0 && answer.back[2] == 8);
        ck_assert_int_eq(answer.up_coords[0][1], -2);
        ck_assert_int_eq(answer.up_coords[1][1], 7);
    }
}
END_TEST

/* A refused item leaves nothing behind, and its coordinates are kept. */
START_TEST(a_kept_geometry_survives_a_bad_request)
{
    const f32 bad[3][2] = {{1, (f32)NAN}};
    struct answer answer;
    struct vx_item item = item_of(&answer, bad, 3);
    vx_rig_name(&item);
    run(&item, &answer, 1);
    ck_assert_int_eq(vx_status_code(item.status), VX_CODE_INVALID_ARGUMENT);
    struct vx_item good = item_of(&answer, feats, 3);
    good.coords_ref = item.coords_ref;
    good.coords = NULL;
    run(&good, &answer, 1);
    check_answer(&good, &answer);
    ck_assert(good.geometry_hit);
}
END_TEST

/* Stand-ins stay within limits.sets, and nothing of the warm-up stays. */
START_TEST(a_warm_up_has_stand_ins)
{
    struct vx_warm warm = {.more = true};
    struct vx_why why = {""};
    i64 before = cached_bytes();
    struct answer answer;
    while (warm.more) {
        vx_status status = vx_engine_warm_step(vx_rig_engine, model, &why, &warm);
        ck_assert_msg(!status.fault, "%s", why.text);
        struct vx_item item = item_of(&answer, feats, 3);
        run(&item, &answer, 1); /* between the steps */
        check_answer(&item, &answer);
    }
    ck_assert_int_eq(warm.total, 2 * (4 + 4 + 7)); /* sets, maps, launches */
    ck_assert_int_eq(cached_bytes(), before);
}
END_TEST

struct steps {
    i64 said, total;
};

static void on_step(void *context, i64 done, i64 total)
{
    struct steps *steps = context;
    if (steps->said && done == steps->said - 1) return; /* that one goes on */
    ck_assert_int_eq(done, steps->said++);
    steps->total = total;
}

START_TEST(progress_of_all_stages)
{
    struct steps steps = {0};
    const struct vx_engine_options options = {.kind = VX_DEVICE_CPU,
                                              .threads = 1,
                                              .device_bytes = 64 << 20,
                                              .cache_bytes = 8 << 20,
                                              .running = {on_step, &steps}};
    struct vx_why why = {""};
    struct answer answer;
    vx_engine_unload(vx_rig_engine, &model);
    vx_engine_close(&vx_rig_engine);
    ck_assert(!vx_engine_open(&options, &why, &vx_rig_engine).fault);
    load(NETWORK(""));
    struct vx_item item = item_of(&answer, feats, 3);
    run(&item, &answer, 1);
    check_answer(&item, &answer);
    ck_assert_int_eq(steps.total, 3 + 4 + 7);
    ck_assert_int_eq(steps.said, steps.total + 1);
}
END_TEST

/* The logits are an output, too, in memory that another process changes all the time: here
 * between any two steps of the device. */
#define SHOWN(layer_)                                                                    \
    "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":1}},\"layers\":["                 \
    "{\"name\":\"r\",\"op\":\"relu\",\"input\":\"feats\"},"                              \
    "{\"name\":\"s\",\"op\":\"affine\",\"input\":\"feats\",\"scale\":2},"                \
    "{\"name\":\"made\",\"input\":\"r\"," layer_ "}],"                                   \
    "\"outputs\":[{\"layer\":\"s\"},{\"layer\":\"made\"},{\"name\":\"again\","           \
    "\"layer\":\"s\"}],\"limits\":{\"voxels_max\":200}}"
enum { SHOWN_LOGITS, SHOWN_MADE, SHOWN_AGAIN, SHOWN_COORDS, SHOWN_OUTPUTS };

struct shown {
    const char *layer;
    i64 rows;
    f32 made[ROWS];
};

static const struct shown shown[] = {
    {SHOWN("\"op\":\"upsample\",\"stride\":1,\"occupancy\":\"s\""), 2, {4, 3}},
    {SHOWN("\"op\":\"prune\",\"keep\":\"s\""), 2, {4, 3}},
    {SHOWN("\"op\":\"prune\",\"keep\":\"s\",\"top\":1"), 1, {4}},
};

/* What a client's memory has at some moment: a number, or none. */
struct changing {
    f32 *logits, *again; /* one tensor that is two outputs */
    f32 value;
    i64 changes;
};

static void on_step_change(void *context, i64 done, i64 total)
{
    struct changing *changing = context;
    if (done == total) return; /* behind the last one the outputs are copied */
    for (i32 row = 0; row < ROWS; row++)
        changing->logits[row] = changing->again[row] = changing->value;
    changing->changes++;
}

static void check_shown(const struct shown *it, f32 value)
{
    /* In canonical order 4, -1, 3: voxel (0, -1, 0, 0) is row 2. */
    static const f32 sent[3] = {3, -1, 4}, logits[3] = {6, -2, 8};
    f32 places[SHOWN_OUTPUTS][4 * ROWS];
    struct changing changing = {places[SHOWN_LOGITS], places[SHOWN_AGAIN], value, 0};
    const struct vx_engine_options options = {.kind = VX_DEVICE_CPU,
                                              .threads = 1,
                                              .device_bytes = 64 << 20,
                                              .cache_bytes = 8 << 20,
                                              .running = {on_step_change, &changing}};
    struct vx_why why = {""};
    ck_assert(!vx_engine_open(&options, &why, &vx_rig_engine).fault);
    load(it->layer);
    struct vx_item item = {
        .coords = voxels[0],
        .coords_columns = 4,
        .voxels = 3,
        .feats = sent,
        .feats_dtype = VX_DTYPE_F32,
        .outputs =
            {[SHOWN_LOGITS] = places[SHOWN_LOGITS], [SHOWN_AGAIN] = places[SHOWN_AGAIN]},
        .asks = BIT(SHOWN_MADE) | BIT(SHOWN_COORDS)};
    struct vx_batch batch = {.items = &item, .items_count = 1};
    struct vx_asked asked;
    vx_engine_submit(vx_rig_engine, model, &batch);
    while (vx_engine_under_way(vx_rig_engine)) {
        while (vx_engine_asked(vx_rig_engine, &asked)) {
            ck_assert_int_eq(item.rows[SHOWN_MADE], it->rows);
            item.outputs[SHOWN_MADE] = places[SHOWN_MADE];
            item.outputs[SHOWN_COORDS] = places[SHOWN_COORDS];
            vx_engine_place(vx_rig_engine, &batch, 0);
        }
        (void)vx_engine_collect(vx_rig_engine, true);
    }
    ck_assert_msg(!item.status.fault, "%s", item.why.text);
    ck_assert_int_ge(changing.changes, 4); /* before, between and behind the stages */
    ck_assert_mem_eq(places[SHOWN_MADE], it->made, (size_t)it->rows * sizeof(f32));
    ck_assert_mem_eq(places[SHOWN_LOGITS], logits, sizeof logits);
    ck_assert_mem_eq(places[SHOWN_AGAIN], logits, sizeof logits);
    vx_engine_unload(vx_rig_engine, &model);
    vx_engine_close(&vx_rig_engine);
}

START_TEST(logits_in_memory_that_changes)
{
    const f32 values[] = {1, -1, 0, (f32)NAN};
    struct vx_why why = {""};
    vx_engine_unload(vx_rig_engine, &model);
    vx_engine_close(&vx_rig_engine);
    for (size_t i = 0; i < VX_COUNT(values); i++) check_shown(&shown[_i], values[i]);
    ck_assert(!vx_engine_open(&(struct vx_engine_options){.kind = VX_DEVICE_CPU,
                                                          .threads = 1,
                                                          .device_bytes = 64 << 20,
                                                          .cache_bytes = 8 << 20},
                              &why, &vx_rig_engine)
                   .fault);
    load(NETWORK(""));
}
END_TEST

START_TEST(what_check_prints)
{
    const struct vx_model_source source = {.directory = vx_rig_root, .version = 1};
    struct vx_signature signature;
    struct vx_why why = {""};
    static char text[16 << 10];
    ck_assert(!vx_model_describe(&source, &why, &signature, text, sizeof text).fault);
    ck_assert_msg(strstr(text, "occupancy of s stride 2x1x1 of set 0\n") != NULL, "%s",
                  text);
    ck_assert_msg(strstr(text, "keep of k of set 1\n") != NULL, "%s", text);
    ck_assert_str_eq(signature.outputs[UP].stride, "1/2x1x1");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_predicted");
    TCase *tcase = tcase_create("engine_predicted");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, an_answer_by_hand);
    tcase_add_test(tcase, sets_without_rows);
    tcase_add_test(tcase, what_fails_fails_alone);
    tcase_add_test(tcase, what_was_made_counts_when_a_request_fails);
    tcase_add_test(tcase, without_asking);
    tcase_add_test(tcase, one_coords_ref_with_other_features);
    tcase_add_test(tcase, a_kept_geometry_survives_a_bad_request);
    tcase_add_test(tcase, a_warm_up_has_stand_ins);
    tcase_add_test(tcase, progress_of_all_stages);
    tcase_add_loop_test(tcase, logits_in_memory_that_changes, 0, (int)VX_COUNT(shown));
    tcase_add_test(tcase, what_check_prints);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
