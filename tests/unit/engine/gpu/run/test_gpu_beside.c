/* Large rounds, whose maps are made while features are copied and whose coordinates are compared
 * while layers run: the same bits as in line, whatever the order in which streams go on.  Of a
 * network with several sets, and of one with a single set, whose features are sent ahead.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/gpu/model/model_load.h"
#include "tests/support/gpu_rig.h"
#include "tests/support/trials.h"
#include "tests/support/unet.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* The fake device has 4 processors: rounds are large from 256 voxels on. */
#define LARGE   256
#define CLOUDS  3
#define CLASSES 5

static const i64 sizes[CLOUDS] = {LARGE - 1, LARGE, 400};
static struct vx_rig_request *clouds[CLOUDS];
static f32 expected[CLOUDS][400 * CLASSES];
static i64 pairs[CLOUDS];
static struct vx_model *model;

/* processors: of the fake device, 0 = as many as it has. */
static void load(i32 processors, i32 event_polls)
{
    if (model) vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_fake_set(
        &(struct vx_fake_settings){.processors = processors, .event_polls = event_polls});
    vx_gpu_rig_reopen(VX_RIG_DEVICE_BYTES, NULL);
    model = vx_gpu_rig_load(vx_rig_root);
    ck_assert(!vx_engine_warm(vx_gpu_rig_engine, model, NULL).fault);
}

static bool was_beside(void)
{
    return model->gpu->places.beside;
}

static void run(struct vx_item *items, i32 count)
{
    struct vx_batch batch = {.items = items, .items_count = count};
    vx_engine_run(vx_gpu_rig_engine, model, &batch);
    for (i32 i = 0; i < count; i++)
        ck_assert_msg(!items[i].status.fault, "%s", items[i].why.text);
}

static void check_bits(i32 cloud, const struct vx_item *item)
{
    ck_assert_int_eq(item->pairs, pairs[cloud]);
    ck_assert(!memcmp(clouds[cloud]->outputs[0], expected[cloud],
                      (size_t)sizes[cloud] * CLASSES * sizeof(f32)));
    memset(clouds[cloud]->outputs[0], 0, sizeof clouds[cloud]->outputs[0]);
}

#define CONV(name_, input_, channels_)                                                   \
    VX_RIG_CONV(name_, input_, channels_, ",\"kernel\":3,\"layout\":\"vio\"")

static const char one_set[] = VX_RIG_HEAD CONV("a", "feats", "16") CONV(
    "b", "a", "24") "{\"name\":\"y\",\"op\":\"linear\",\"input\":\"b\",\"channels\":5}],"
                    "\"outputs\":[{\"layer\":\"y\"}]}";

static void set_up(const char *text)
{
    vx_gpu_rig_set_up();
    vx_gpu_rig_write("fp16", text, 11);
    load(1000, 0);
    for (i32 i = 0; i < CLOUDS; i++) {
        clouds[i] = vx_rig_request((u64)i + 3, sizes[i], 4, VX_DTYPE_F32);
        clouds[i]->item.coords_ref = (struct vx_coords_ref){0, 0};
        struct vx_item item = clouds[i]->item;
        run(&item, 1);
        ck_assert(!was_beside());
        pairs[i] = item.pairs;
        memcpy(expected[i], clouds[i]->outputs[0],
               (size_t)sizes[i] * CLASSES * sizeof(f32));
    }
}

static void set_up_levels(void)
{
    static char text[VX_UNET_BYTES];
    /* Fewer channels under a sanitizer: the launches and streams of a round follow from its rows. */
    const struct vx_unet unet = {.feats = 3,
                                 .stem = VX_TRIALS(16, 8),
                                 .classes = CLASSES,
                                 .levels = 2,
                                 .blocks = 1,
                                 .down = {VX_TRIALS(24, 8), VX_TRIALS(32, 16)},
                                 .up = {VX_TRIALS(24, 8), VX_TRIALS(16, 8)}};
    vx_unet_write(&unet, text);
    set_up(text);
}

static void set_up_one_set(void)
{
    set_up(one_set);
}

static void tear_down(void)
{
    vx_engine_unload(vx_gpu_rig_engine, &model);
    for (i32 i = 0; i < CLOUDS; i++) vx_free(clouds[i]);
    vx_gpu_rig_tear_down();
    vx_fake_set(&(struct vx_fake_settings){0});
}

START_TEST(alone)
{
    load(0, _i);
    for (i32 i = 0; i < CLOUDS; i++) {
        struct vx_item item = clouds[i]->item;
        run(&item, 1);
        ck_assert(was_beside() == (sizes[i] >= LARGE));
        check_bits(i, &item);
    }
}
END_TEST

/* Made, compared and found the same, without coordinates, and another cloud under the name. */
START_TEST(kept)
{
    load(0, _i);
    struct vx_item item = clouds[2]->item;
    vx_rig_name(&item);
    const struct vx_coords_ref name = item.coords_ref;
    for (i32 turn = 0; turn < 3; turn++) {
        item = clouds[2]->item;
        item.coords_ref = name;
        if (turn == 2) item.coords = NULL;
        run(&item, 1);
        ck_assert(was_beside());
        ck_assert(item.geometry_hit == (turn > 0));
        check_bits(2, &item);
    }
    i32 *moved = clouds[2]->coords;
    for (i64 i = 0; i < sizes[2]; i++) moved[4 * i + 1] += 8; /* strides divide it */
    item = clouds[2]->item;
    item.coords_ref = name;
    run(&item, 1);
    ck_assert(!item.geometry_hit);
    check_bits(2, &item);
}
END_TEST

/* A round of several is large when all of them together are. */
START_TEST(joined)
{
    load(0, _i);
    struct vx_item items[2 * CLOUDS];
    for (i32 turn = 0; turn < 2; turn++) {
        for (i32 i = 0; i < CLOUDS; i++) items[i] = clouds[i]->item;
        if (turn) vx_rig_name(&items[1]);
        run(items, CLOUDS);
        ck_assert(was_beside());
        for (i32 i = 0; i < CLOUDS; i++) check_bits(i, &items[i]);
    }
}
END_TEST

/* The second lane uses a geometry that the first one is still making. */
START_TEST(two_lanes_share_a_geometry)
{
    static f32 other[400 * CLASSES];
    load(0, _i);
    struct vx_item first = clouds[2]->item, second;
    vx_rig_name(&first);
    second = first;
    second.outputs[0] = other;
    struct vx_batch batches[2] = {{.items = &first, .items_count = 1},
                                  {.items = &second, .items_count = 1}};
    for (i32 i = 0; i < 2; i++) vx_engine_submit(vx_gpu_rig_engine, model, &batches[i]);
    for (i32 collected = 0; collected < 2;) /* without waiting, which ends all streams */
        collected += vx_engine_collect(vx_gpu_rig_engine, false) != NULL;
    ck_assert_msg(!first.status.fault, "%s", first.why.text);
    ck_assert_msg(!second.status.fault, "%s", second.why.text);
    ck_assert(!memcmp(other, expected[2], (size_t)sizes[2] * CLASSES * sizeof(f32)));
    check_bits(2, &first);
    ck_assert_int_eq(second.pairs, pairs[2]);
}
END_TEST

/* Rounds that would take more than half of the memory are laid out in line, so as many voxels fit as
 * ever. */
START_TEST(what_would_take_most_of_the_memory)
{
    struct vx_gpu_places places;
    load(0, 0);
    struct vx_gpu_choices *choices = model->gpu->choices;
    vx_gpu_choices_beside(choices, 400, SIZE_MAX, &places);
    ck_assert_int_eq(choices->beside_rows_most, 400);
    const i64 rows = 400;
    vx_gpu_places_make(choices, &(struct vx_gpu_sizes){&rows, 1, true, NULL}, &places);
    ck_assert(places.beside);
    const size_t bytes = places.bytes;
    for (i32 less = 0; less < 2; less++) {
        struct vx_item item = clouds[2]->item;
        vx_gpu_choices_beside(choices, 1000, bytes - (size_t)less, &places);
        ck_assert_int_ge(choices->beside_rows_most, less ? LARGE : 400);
        ck_assert_int_lt(choices->beside_rows_most, less ? 400 : 500);
        run(&item, 1);
        ck_assert(was_beside() == !less);
        ck_assert(model->gpu->places.bytes < bytes || !less);
        check_bits(2, &item);
    }
}
END_TEST

static TCase *tests_of(const char *name, void (*fixture)(void))
{
    TCase *tests = tcase_create(name);
    tcase_set_timeout(tests, 0);
    tcase_add_checked_fixture(tests, fixture, tear_down);
    /* How often an event must be asked for until it has happened: 0 runs all at once. */
    tcase_add_loop_test(tests, alone, 0, VX_TRIALS(4, 2));
    tcase_add_loop_test(tests, kept, 0, VX_TRIALS(4, 2));
    tcase_add_loop_test(tests, joined, 0, VX_TRIALS(4, 2));
    tcase_add_loop_test(tests, two_lanes_share_a_geometry, 0, VX_TRIALS(6, 3));
    return tests;
}

int main(void)
{
    Suite *suite = suite_create("gpu_beside");
    suite_add_tcase(suite, tests_of("levels", set_up_levels));
    TCase *one = tests_of("one_set", set_up_one_set);
    tcase_add_test(one, what_would_take_most_of_the_memory);
    suite_add_tcase(suite, one);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
