/* Warming up one model in steps while another one serves, on the CPU.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/clock.h"
#include "tests/support/engine_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static char slow_root[VX_TEST_PATH_BYTES + 8];

/* Two convolutions with one map: keys, a map and three launches for each size. */
static struct vx_model *load_slow(const char *sizes)
{
    char json[1024];
    snprintf(
        json, sizeof json,
        VX_RIG_HEAD VX_RIG_CONV("a", "feats", "8", ",\"kernel\":3,\"layout\":\"spconv\"")
            VX_RIG_CONV("b", "a", "8", ",\"kernel\":3")
                VX_RIG_LINEAR("y", "b", "4") "{\"name\":\"z\",\"op\":\"layer_norm\","
                                             "\"input\":\"y\"}],\"outputs\":"
                                             "[{\"layer\":\"z\"}],\"warmup\":[%s]}",
        sizes);
    snprintf(slow_root, sizeof slow_root, "%s/slow", vx_rig_root);
    vx_rig_write_model(slow_root, json, 5);
    return vx_rig_load(slow_root);
}

/* A set of half the resolution, of at most 500 voxels: a sheet of 1,000 has fewer, one of 30,000
 * more. */
static struct vx_model *load_bound(const char *warmup)
{
    char json[1024];
    snprintf(json, sizeof json,
             VX_RIG_HEAD
             "{\"name\":\"d\",\"op\":\"sparse_conv\",\"input\":\"feats\","
             "\"channels\":8,\"kernel\":2,\"stride\":2,\"rule\":\"floor\"}],\"outputs\":"
             "[{\"layer\":\"d\"}],\"limits\":{\"sets\":{\"d\":500}}%s}",
             warmup);
    snprintf(slow_root, sizeof slow_root, "%s/slow", vx_rig_root);
    vx_rig_write_model(slow_root, json, 5);
    return vx_rig_load(slow_root);
}

static void reopen(size_t device_bytes, size_t cache_bytes)
{
    const struct vx_engine_options options = {.kind = VX_DEVICE_CPU,
                                              .threads = 1,
                                              .device_bytes = device_bytes,
                                              .cache_bytes = cache_bytes};
    struct vx_why why = {""};
    vx_engine_close(&vx_rig_engine);
    ck_assert(!vx_engine_open(&options, &why, &vx_rig_engine).fault);
}

static i64 cached_bytes(void)
{
    struct vx_engine_stats stats;
    vx_engine_stats_get(vx_rig_engine, &stats);
    return stats.cache_bytes;
}

/* Each call runs one step of the warm-up and reports it.  A request between two of them has
 * the bits that it has alone; nothing of the warm-up stays in the cache. */
START_TEST(requests_run_between_the_pieces)
{
    vx_rig_write_model(vx_rig_root, vx_rig_networks[1], 7);
    struct vx_model *model = vx_rig_load(vx_rig_root), *slow = load_slow("3000, 5000");
    struct vx_rig_request *request = vx_rig_request(1, 200, 4, VX_DTYPE_F32);
    struct vx_rig_request *alone = vx_rig_request(1, 200, 4, VX_DTYPE_F32);
    struct vx_warm warm = {.more = true};
    struct vx_why why = {""};
    vx_rig_run(model, &alone->item);
    ck_assert(!alone->item.status.fault);
    i64 pieces = 0, kept = cached_bytes();
    vx_alloc_freeze();
    while (warm.more) {
        vx_status status = vx_engine_warm_step(vx_rig_engine, slow, &why, &warm);
        ck_assert_msg(!status.fault, "%s", why.text);
        ck_assert_int_eq(warm.done, ++pieces);
        ck_assert(!warm.tuning);
        vx_rig_run(model, &request->item);
        ck_assert(!request->item.status.fault);
        ck_assert(!memcmp(request->outputs, alone->outputs, sizeof alone->outputs));
    }
    vx_alloc_thaw();
    ck_assert_int_eq(pieces, 2 * (1 + 1 + 4));
    ck_assert_int_eq(warm.total, pieces);
    ck_assert_int_eq(cached_bytes(), kept);
    vx_engine_unload(vx_rig_engine, &slow);
    vx_engine_unload(vx_rig_engine, &model);
    vx_free(request);
    vx_free(alone);
}
END_TEST

/* A default size whose sheet has more voxels in a set than the model allows is skipped, and the
 * others run; one that the file sets is said to be the warm-up's. */
START_TEST(a_default_size_that_does_not_fit_is_skipped)
{
    struct vx_why why = {""};
    struct vx_warm warm = {.more = true};
    struct vx_model *model = load_bound("");
    while (warm.more) {
        vx_status status = vx_engine_warm_step(vx_rig_engine, model, &why, &warm);
        ck_assert_msg(!status.fault, "%s", why.text);
    }
    ck_assert_int_eq(warm.done, warm.total);
    vx_engine_unload(vx_rig_engine, &model);
    model = load_bound(",\"warmup\":[1000, 30000]");
    vx_status status = vx_engine_warm(vx_rig_engine, model, &why);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_msg(
        strstr(why.text, "warm-up with 30000 voxels: set 1, made by layer \"d\""), "%s",
        why.text);
    vx_engine_unload(vx_rig_engine, &model);
}
END_TEST

#define STEPS 8

struct steps {
    i64 said, done, total;
    i64 again[STEPS]; /* the times that step went on */
};

static void on_step(void *context, i64 done, i64 total)
{
    struct steps *steps = context;
    ck_assert_int_lt(total, STEPS);
    bool first = steps->said % (total + 1) == 0; /* the last request has told of all */
    if (done == steps->done && steps->said && !(first && !done)) {
        steps->again[done]++;
        return;
    }
    ck_assert_int_eq(done, steps->said % (total + 1));
    steps->said++;
    steps->done = done;
    steps->total = total;
}

/* A request reports each part of its work, in order: one map, two convolutions, a linear layer
 * and a norm.  A warm-up reports none, as each of its steps is one part. */
START_TEST(a_request_tells_of_its_steps)
{
    struct steps steps = {0};
    const struct vx_engine_options options = {.kind = VX_DEVICE_CPU,
                                              .threads = 1,
                                              .device_bytes = 64 << 20,
                                              .cache_bytes = 8 << 20,
                                              .running = {on_step, &steps}};
    struct vx_why why = {""};
    vx_engine_close(&vx_rig_engine);
    ck_assert(!vx_engine_open(&options, &why, &vx_rig_engine).fault);
    struct vx_model *model = load_slow("100");
    ck_assert(!vx_engine_warm(vx_rig_engine, model, &why).fault);
    ck_assert_int_eq(steps.said, 0);
    struct vx_rig_request *request = vx_rig_request(1, 200, 4, VX_DTYPE_F32);
    for (i64 run = 1; run <= 3; run++) {
        vx_rig_run(model, &request->item);
        ck_assert(!request->item.status.fault);
        ck_assert_int_eq(steps.total, 1 + 4);
        ck_assert_int_eq(steps.done, steps.total);
        ck_assert_int_eq(steps.said, run * (steps.total + 1));
    }
    vx_engine_unload(vx_rig_engine, &model);
    vx_free(request);
}
END_TEST

/* A solid block in place of the request's few voxels. */
#define LONG_SIDE 28
#define LONG      (LONG_SIDE * LONG_SIDE * LONG_SIDE)

static void run_long(struct vx_model *model)
{
    struct vx_item item = {
        .coords_columns = 4, .voxels = LONG, .feats_dtype = VX_DTYPE_F32};
    i32(*coords)[4] = vx_alloc_zero(LONG * sizeof *coords);
    f32 *feats = vx_alloc_zero((size_t)LONG * VX_RIG_CHANNELS * sizeof *feats);
    f32 *out = vx_alloc_zero((size_t)LONG * 4 * sizeof *out);
    for (i32 i = 0; i < LONG; i++) {
        coords[i][1] = i / (LONG_SIDE * LONG_SIDE);
        coords[i][2] = i / LONG_SIDE % LONG_SIDE;
        coords[i][3] = i % LONG_SIDE;
    }
    item.coords = coords[0];
    item.feats = feats;
    item.outputs[0] = out;
    vx_rig_name(&item);
    vx_rig_run(model, &item);
    ck_assert_msg(!item.status.fault, "%s", item.why.text);
    vx_free(coords);
    vx_free(feats);
    vx_free(out);
}

/* A request of many rows tells within each step that it goes on: while it builds its map, in each
 * layer, and before and behind them.  Else the watchdog takes one layer of 20 s for a hang.  A
 * convolution has a chunk of 512 rows, and all but the first are told. */
START_TEST(a_request_tells_within_its_steps)
{
    struct steps steps = {0};
    const struct vx_engine_options options = {.kind = VX_DEVICE_CPU,
                                              .threads = 1,
                                              .device_bytes = 64 << 20,
                                              .cache_bytes = 32 << 20,
                                              .running = {on_step, &steps}};
    struct vx_why why = {""};
    vx_engine_close(&vx_rig_engine);
    ck_assert(!vx_engine_open(&options, &why, &vx_rig_engine).fault);
    struct vx_model *model = load_slow("20000");
    ck_assert(!vx_engine_warm(vx_rig_engine, model, &why).fault);
    for (i64 i = 0; i < STEPS; i++) ck_assert_int_eq(steps.again[i], 0);
    run_long(model);
    ck_assert_int_eq(steps.said, 1 + 4 + 1);
    for (i64 i = 0; i < steps.said - 1; i++) ck_assert_int_ge(steps.again[i], 3);
    for (i64 conv = 1; conv <= 3; conv++) /* two of them, and a linear layer */
        ck_assert_int_ge(steps.again[conv], LONG / 512);
    vx_engine_unload(vx_rig_engine, &model);
}
END_TEST

/* The cache has room for the geometry of the warm-up but not for those of all requests too:
 * the requests get the room, and the warm-up still completes. */
START_TEST(a_warm_up_gives_way)
{
    reopen(64 << 20, 8 << 20);
    vx_rig_write_model(vx_rig_root, vx_rig_networks[0], 7);
    struct vx_model *model = vx_rig_load(vx_rig_root), *slow = load_slow("30000");
    struct vx_warm warm = {.more = true};
    struct vx_why why = {""};
    u64 seed = 0;
    while (warm.more) {
        vx_status status = vx_engine_warm_step(vx_rig_engine, slow, &why, &warm);
        ck_assert_msg(!status.fault, "%s", why.text);
        for (int i = 0; i < 40; i++) {
            struct vx_rig_request *request = vx_rig_request(++seed, 300, 4, VX_DTYPE_F32);
            vx_rig_name(&request->item);
            vx_rig_run(model, &request->item);
            ck_assert_msg(!request->item.status.fault, "%s", request->item.why.text);
            vx_free(request);
        }
    }
    struct vx_engine_stats stats;
    vx_engine_stats_get(vx_rig_engine, &stats);
    ck_assert_int_gt(stats.cache_evictions, 0); /* there was no room for all */
    vx_engine_unload(vx_rig_engine, &slow);
    vx_engine_unload(vx_rig_engine, &model);
}
END_TEST

/* 100,000 voxels of one channel in and out fit 1 MiB; their coordinates would not. */
START_TEST(coordinates_of_a_warm_up_are_no_part_of_the_device_memory)
{
    reopen(1 << 20, 64 << 20);
    vx_rig_write_model(
        vx_rig_root,
        "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":1}},\"layers\":["
        "{\"name\":\"y\",\"op\":\"linear\",\"input\":\"feats\",\"channels\":1}],"
        "\"outputs\":[{\"layer\":\"y\"}],\"limits\":{\"voxels_max\":100000},"
        "\"warmup\":[100000]}",
        3);
    struct vx_model *model = vx_rig_load(vx_rig_root);
    struct vx_why why = {""};
    vx_status status = vx_engine_warm(vx_rig_engine, model, &why);
    ck_assert_msg(!status.fault, "%s", why.text);
    vx_engine_unload(vx_rig_engine, &model);
}
END_TEST

/* voxels_max is also limited by what the cache holds, and the default warm-up uses it: 2,000
 * voxels fit here and 30,000 do not. */
START_TEST(what_is_taken_fits_the_cache)
{
    const char *json = VX_RIG_HEAD VX_RIG_CONV("a", "feats", "8", ",\"kernel\":[1,1,3]")
        VX_RIG_CONV("b", "a", "8",
                    ",\"kernel\":3") "{\"name\":\"y\",\"op\":\"linear\",\"input\":"
                                     "\"b\",\"channels\":4}],"
                                     "\"outputs\":[{\"layer\":\"y\"}]%s}";
    static const struct {
        const char *more, *said;
    } rows[] = {
        {",\"limits\":{\"voxels_max\":10000}",
         "limits.voxels_max is 10000 voxels, which need 1327104 bytes of geometry "
         "cache (2 maps); cache_bytes is 1048576: at most 7888 voxels fit"},
        {",\"warmup\":[1000,30000]",
         "warmup is 30000 voxels, which need 3964928 bytes of geometry cache (2 "
         "maps); cache_bytes is 1048576: at most 7888 voxels fit"}};
    char text[1024];
    struct vx_why why = {""};
    reopen(64 << 20, 1 << 20);
    snprintf(text, sizeof text, json, "");
    vx_rig_write_model(vx_rig_root, text, 3);
    struct vx_model *model = vx_rig_load(vx_rig_root);
    ck_assert_int_eq(vx_model_signature(model)->voxels_max, 7888);
    ck_assert_int_eq(vx_model_signature(model)->voxels_bound, VX_BOUND_CACHE_BYTES);
    vx_status status = vx_engine_warm(vx_rig_engine, model, &why);
    ck_assert_msg(!status.fault, "%s", why.text);
    vx_engine_unload(vx_rig_engine, &model);
    for (size_t i = 0; i < VX_COUNT(rows); i++) {
        snprintf(text, sizeof text, json, rows[i].more);
        vx_rig_write_model(vx_rig_root, text, 3);
        struct vx_rig_load load = vx_rig_load_any(vx_rig_root, 1);
        ck_assert_int_eq(vx_status_code(load.status), VX_CODE_RESOURCE_EXHAUSTED);
        ck_assert_msg(strstr(load.why.text, rows[i].said) != NULL, "%s", load.why.text);
    }
}
END_TEST

/* Nothing fits, as every voxel counts with 343^2 children: the sentence says what to set. */
START_TEST(children_without_a_limit_are_named)
{
    reopen(1 << 20, 64 << 20);
    vx_rig_write_model(
        vx_rig_root,
        "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":64}},\"layers\":["
        "{\"name\":\"a\",\"op\":\"upsample\",\"input\":\"feats\",\"stride\":7},"
        "{\"name\":\"y\",\"op\":\"upsample\",\"input\":\"a\",\"stride\":7}],"
        "\"outputs\":[{\"layer\":\"y\"}]}",
        3);
    struct vx_rig_load load = vx_rig_load_any(vx_rig_root, 1);
    ck_assert_int_eq(vx_status_code(load.status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_msg(
        strstr(load.why.text, "at most 0 voxels fit; set limits.sets for \"a\"") != NULL,
        "%s", load.why.text);
}
END_TEST

/* The warm-up ends early: the front stops, or the model is not wanted any more. */
START_TEST(a_model_may_go_in_the_middle)
{
    struct vx_model *slow = load_slow("3000");
    struct vx_warm warm = {.more = true};
    struct vx_why why = {""};
    for (int i = 0; i < 3; i++) {
        ck_assert(!vx_engine_warm_step(vx_rig_engine, slow, &why, &warm).fault);
        ck_assert(warm.more);
    }
    vx_engine_unload(vx_rig_engine, &slow);
    ck_assert_ptr_null(slow);
}
END_TEST

/* A warm-up's sheet of 32 x 32 voxels is wider than the network's spatial shape: it is a
 * request with a shape of its own, on which the network has its sets and maps. */
START_TEST(a_sheet_may_be_wider_than_the_shape)
{
    static const char json[] =
        "{\"format\":1,\"inputs\":{\"coords\":{\"name\":\"coords\",\"spatial_shape\":"
        "[8,8,8]},\"feats\":{\"name\":\"feats\",\"channels\":4}},\"layers\":["
        "{\"name\":\"a\",\"op\":\"max_pool\",\"input\":\"feats\",\"kernel\":3,\"stride\":"
        "2,"
        "\"padding\":1,\"rule\":\"spconv\"}],\"outputs\":[{\"layer\":\"a\"}],"
        "\"warmup\":[1000]}";
    static const enum vx_device_kind kinds[] = {VX_DEVICE_CPU, VX_DEVICE_FAKE};
    const struct vx_engine_options options = {.kind = kinds[_i],
                                              .threads = 1,
                                              .device_bytes = 64 << 20,
                                              .cache_bytes = 8 << 20};
    struct vx_warm warm = {.more = true};
    struct vx_why why = {""};
    i64 most = 0;
    vx_engine_close(&vx_rig_engine);
    ck_assert(!vx_engine_open(&options, &why, &vx_rig_engine).fault);
    vx_rig_write_model(vx_rig_root, json, 5);
    struct vx_model *model = vx_rig_load(vx_rig_root);
    while (warm.more) {
        vx_status status = vx_engine_warm_step(vx_rig_engine, model, &why, &warm);
        ck_assert_msg(!status.fault, "%s", why.text);
        if (cached_bytes() > most) most = cached_bytes();
    }
    /* Some 290 rows of 27 offsets; without rows there are keys alone, of 12 bytes a voxel. */
    if (kinds[_i] == VX_DEVICE_CPU) ck_assert_int_gt(most, 40000);
    vx_engine_unload(vx_rig_engine, &model);
}
END_TEST

static i64 cpu_ns(void)
{
    struct timespec used;
    ck_assert(!clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used));
    return used.tv_sec * VX_NS_PER_S + used.tv_nsec;
}

/* Of the wide layer, which needs 8.4 million multiplications a row, a step runs 128 of 1,200 rows: no
 * step takes two thirds of what three requests of 400 do, though it reads the weights first. */
START_TEST(a_step_of_a_wide_layer_is_a_part_of_it)
{
    static const char json[] = VX_RIG_HEAD VX_RIG_LINEAR("a", "feats", "2048")
        VX_RIG_LINEAR("b", "a", "4096") "{\"name\":\"y\",\"op\":\"linear\",\"input\":"
                                        "\"b\",\"channels\":4}],\"outputs\":"
                                        "[{\"layer\":\"y\"}],\"warmup\":[1200]}";
    struct vx_warm warm = {.more = true};
    struct vx_why why = {""};
    i64 longest_ns = 0;
    reopen(64 << 20, 8 << 20);
    vx_rig_write_model(vx_rig_root, json, 5);
    struct vx_model *model = vx_rig_load(vx_rig_root);
    while (warm.more) {
        const i64 begin_ns = cpu_ns();
        vx_status status = vx_engine_warm_step(vx_rig_engine, model, &why, &warm);
        ck_assert_msg(!status.fault, "%s", why.text);
        const i64 step_ns = cpu_ns() - begin_ns;
        if (step_ns > longest_ns) longest_ns = step_ns;
    }
    struct vx_rig_request *request = vx_rig_request(1, 400, 4, VX_DTYPE_F32);
    const i64 begin_ns = cpu_ns();
    for (i32 k = 0; k < 3; k++) {
        vx_rig_run(model, &request->item);
        ck_assert_msg(!request->item.status.fault, "%s", request->item.why.text);
    }
    ck_assert_int_lt(longest_ns, (cpu_ns() - begin_ns) * 2 / 3);
    vx_free(request);
    vx_engine_unload(vx_rig_engine, &model);
}
END_TEST

/* A size that would take gigabytes is cut: its first step alone would touch all of them. */
START_TEST(a_warm_up_touches_a_part_of_the_memory)
{
    static const char json[] = VX_RIG_HEAD VX_RIG_LINEAR(
        "a", "feats", "16384") "{\"name\":\"y\",\"op\":\"linear\","
                               "\"input\":\"a\",\"channels\":4}],"
                               "\"outputs\":[{\"layer\":\"y\"}],"
                               "\"warmup\":[25000]}";
    struct vx_engine_stats stats;
    struct vx_why why = {""};
    reopen((size_t)4 << 30, 8 << 20);
    vx_rig_write_model(vx_rig_root, json, 5);
    struct vx_model *model = vx_rig_load(vx_rig_root);
    ck_assert_msg(!vx_engine_warm(vx_rig_engine, model, &why).fault, "%s", why.text);
    vx_engine_stats_get(vx_rig_engine, &stats);
    ck_assert_int_gt(stats.device_bytes_used_max, 100 << 20);
    ck_assert_int_le(stats.device_bytes_used_max, 512 << 20);
    vx_engine_unload(vx_rig_engine, &model);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_warm");
    TCase *tcase = tcase_create("engine_warm");
    tcase_add_checked_fixture(tcase, vx_rig_set_up, vx_rig_tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, requests_run_between_the_pieces);
    tcase_add_test(tcase, a_default_size_that_does_not_fit_is_skipped);
    tcase_add_test(tcase, a_request_tells_of_its_steps);
    tcase_add_test(tcase, a_request_tells_within_its_steps);
    tcase_add_test(tcase, a_warm_up_gives_way);
    tcase_add_test(tcase, coordinates_of_a_warm_up_are_no_part_of_the_device_memory);
    tcase_add_test(tcase, children_without_a_limit_are_named);
    tcase_add_test(tcase, what_is_taken_fits_the_cache);
    tcase_add_test(tcase, a_model_may_go_in_the_middle);
    tcase_add_test(tcase, a_step_of_a_wide_layer_is_a_part_of_it);
    tcase_add_test(tcase, a_warm_up_touches_a_part_of_the_memory);
    tcase_add_loop_test(tcase, a_sheet_may_be_wider_than_the_shape, 0, 2);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
