/* Batches on the fake GPU: in any mix, memory and store an item's answer has the bits it has alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/gpu/fake/fake_parts.h"
#include "engine/gpu/model/model_load.h"
#include "engine/gpu/run/backend_gpu.h"
#include "engine/gpu/run/batches.h"
#include "tests/support/gpu_mix.h"
#include "tests/support/trials.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct vx_gpu_mix mix;
static struct vx_model *model;

static const struct {
    const char *precision;
    size_t device_bytes, cache_bytes; /* device: 0 = as the largest round */
    i32 event_polls, most;            /* items of a batch */
    bool direct;                      /* kernels reach all of the host's memory */
} rigs[7] = {
    {"fp32", 64 << 20, 32 << 20, 0, 12, 0}, {"fp16", 64 << 20, 32 << 20, 3, 12, 0},
    {"bf16", 64 << 20, 2 << 20, 1, 64, 1},  {"fp32", 0, 32 << 20, 5, 12, 0},
    {"fp16", 0, 1 << 20, 2, 20, 1},         {"tf32", 64 << 20, 128 << 10, 1, 12, 0},
    {"fp16", 64 << 20, 8 << 20, 2, 2, 1},
};

/* Answers of these requests alone, on an engine that ends with them. */
static void expect(const char *precision, u64 seed, u32 which)
{
    vx_gpu_mix_write(precision);
    vx_gpu_mix_open(seed, &mix);
    model = vx_gpu_rig_load(vx_rig_root);
    vx_gpu_mix_expect(&mix, model, which);
}

static size_t largest_round(void)
{
    static struct vx_gpu_places places;
    return vx_gpu_places_need(model->gpu->choices, VX_GPU_MIX_VOXELS_MAX, &places);
}

/* All addresses of a process: kernels of the fake reach what they are told that they do. */
static const struct vx_gpu_settings reach_all = {.host = (void *)4096,
                                                 .host_bytes = (size_t)1 << 47};
static const struct vx_gpu_settings *settings; /* of the next engine */

/* A new engine of that kind, with the same model. */
static void reopen(size_t device_bytes, size_t cache_bytes, i32 event_polls)
{
    vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_gpu_rig_cache_bytes = cache_bytes;
    vx_fake_set(&(struct vx_fake_settings){.event_polls = event_polls});
    vx_gpu_rig_reopen(device_bytes, settings);
    model = vx_gpu_rig_load(vx_rig_root);
    mix.signature = vx_model_signature(model);
    ck_assert(!vx_engine_warm(vx_gpu_rig_engine, model, NULL).fault);
}

static void finish(void)
{
    vx_engine_unload(vx_gpu_rig_engine, &model);
    vx_gpu_mix_close(&mix);
}

static void submit(struct vx_gpu_mix_sent *sent)
{
    vx_engine_submit(vx_gpu_rig_engine, model, &sent->batch);
}

static struct vx_gpu_mix_sent *collect(bool wait)
{
    return (struct vx_gpu_mix_sent *)(void *)vx_engine_collect(vx_gpu_rig_engine, wait);
}

static struct vx_gpu_mix_sent *send_random(struct vx_test_random *random, i32 most)
{
    struct vx_gpu_mix_pick picks[VX_BATCH_ITEMS_MAX];
    i32 count = 1 + (i32)(vx_test_next(random) % (u64)most);
    for (i32 i = 0; i < count; i++) {
        u64 dice = vx_test_next(random);
        i32 kinds = dice % 5 ? VX_GPU_MIX_GOOD : VX_GPU_MIX_COUNT;
        picks[i] = (struct vx_gpu_mix_pick){
            .request = (i32)(vx_test_next(random) % (u64)kinds),
            .nameless = dice >> 8 & 1,
            .unwanted = dice >> 9 & 1 ? (u32)(dice >> 16 & 15) : 0,
        };
        /* References are slow, so the largest come less often. */
        if (picks[i].request % 5 == 4 && dice >> 24 & 3)
            picks[i].request -= 1 + (i32)(dice >> 28 & 1);
        /* A reference is ambiguous when another request shares the coords_ref. */
        bool one = picks[i].request != 4 && picks[i].request < VX_GPU_MIX_GOOD;
        picks[i].reference = one && !picks[i].nameless && (dice >> 10 & 3) == 0;
    }
    return vx_gpu_mix_send(&mix, picks, count);
}

START_TEST(an_answer_is_the_same_in_any_company)
{
    struct vx_test_random random = {77 + (u64)_i};
    struct vx_engine_stats stats;
    i32 answered = 0, items = 0, under_way_max = 0;
    expect(rigs[_i].precision, 3 + (u64)_i, VX_GPU_MIX_ALL);
    size_t bytes = rigs[_i].device_bytes ? rigs[_i].device_bytes : largest_round();
    settings = rigs[_i].direct ? &reach_all : NULL;
    reopen(bytes, rigs[_i].cache_bytes, rigs[_i].event_polls);
    for (i32 left = 16; left || vx_engine_under_way(vx_gpu_rig_engine);) {
        while (left && vx_engine_has_room(vx_gpu_rig_engine)) {
            struct vx_gpu_mix_sent *sent = send_random(&random, rigs[_i].most);
            items += sent->batch.items_count;
            vx_alloc_freeze();
            submit(sent);
            vx_alloc_thaw();
            left--;
        }
        i32 under_way = vx_engine_under_way(vx_gpu_rig_engine);
        if (under_way > under_way_max) under_way_max = under_way;
        vx_alloc_freeze();
        struct vx_gpu_mix_sent *sent = collect(vx_test_next(&random) % 3);
        vx_alloc_thaw();
        if (sent) answered += vx_gpu_mix_check(&mix, &sent, false);
    }
    vx_engine_stats_get(vx_gpu_rig_engine, &stats);
    ck_assert_int_eq(under_way_max, VX_ENGINE_BATCHES_MAX);
    ck_assert_int_gt(answered, items / 2);
    ck_assert_int_gt(stats.cache_misses, 0);
    ck_assert_int_le(stats.cache_bytes, stats.cache_bytes_max);
    ck_assert_int_eq(stats.cache_bytes_max, (i64)rigs[_i].cache_bytes);
    ck_assert_int_le(stats.device_bytes_used_max, stats.device_bytes);
    if (rigs[_i].cache_bytes > 16 << 20) ck_assert_int_gt(stats.cache_hits, 10);
    if (rigs[_i].cache_bytes == 1 << 20) ck_assert_int_gt(stats.cache_evictions, 5);
    finish();
}
END_TEST

/* All requests at once, several times: from the second time on nothing is built. */
START_TEST(a_batch_of_known_geometries_builds_nothing)
{
    struct vx_gpu_mix_pick picks[VX_BATCH_ITEMS_MAX] = {{0}};
    i64 launches[3];
    expect("fp32", 1, 1u << 2 | 1u << 7);
    reopen(64 << 20, 32 << 20, 0);
    for (i32 i = 0; i < VX_BATCH_ITEMS_MAX; i++) picks[i].request = i % 2 ? 2 : 7;
    for (i32 round = 0; round < 3; round++) {
        for (i32 i = 0; i < VX_BATCH_ITEMS_MAX; i++) picks[i].reference = round == 2;
        struct vx_gpu_mix_sent *sent = vx_gpu_mix_send(&mix, picks, VX_BATCH_ITEMS_MAX);
        i64 before = vx_fake_launches();
        submit(sent);
        ck_assert_ptr_eq(collect(true), sent);
        launches[round] = vx_fake_launches() - before;
        for (i32 i = 0; i < VX_BATCH_ITEMS_MAX; i++) {
            ck_assert(sent->items[i].geometry_kept);
            ck_assert(sent->items[i].geometry_hit == (round > 0 || i > 1));
        }
        ck_assert_int_eq(vx_gpu_mix_check(&mix, &sent, false), VX_BATCH_ITEMS_MAX);
    }
    /* The index, two maps and the report of both; then the comparison, which reports itself. */
    ck_assert_int_eq(launches[0], launches[1] + 4);
    ck_assert_int_eq(launches[1], launches[2] + 1);
    /* Rows of two types in, the join of rows and two maps, two orders of 13 at most. */
    ck_assert_int_le(launches[2], 2 + 3 + 2 * 13 + model->plan->launches_count +
                                      mix.signature->outputs_count);
    finish();
}
END_TEST

/* A repeated request that is alone launches its rows in, its layers and its rows out. */
START_TEST(a_reference_alone_launches_no_geometry)
{
    const struct vx_gpu_mix_pick first = {.request = 3},
                                 again = {.request = 3, .reference = true};
    expect("fp16", 1, 1u << 3);
    reopen(64 << 20, 32 << 20, 0);
    i64 launches[3];
    for (i32 round = 0; round < 3; round++) {
        struct vx_gpu_mix_sent *sent = vx_gpu_mix_send(&mix, round ? &again : &first, 1);
        i64 before = vx_fake_launches();
        submit(sent);
        ck_assert_ptr_eq(collect(true), sent);
        launches[round] = vx_fake_launches() - before;
        ck_assert(sent->items[0].geometry_kept);
        ck_assert(sent->items[0].geometry_hit == (round > 0));
        ck_assert_int_eq(vx_gpu_mix_check(&mix, &sent, false), 1);
    }
    const struct vx_plan *plan = model->plan;
    for (i32 i = 0; i < plan->launches_count; i++) {
        if (!vx_gpu_is_conv(model->gpu->choices, i)) continue;
        enum vx_conv_algorithm it =
            vx_gpu_choice_get(model->gpu->choices, i, 900, VX_DENSITY_SURFACE)->algorithm;
        ck_assert(it == VX_CONV_IMPLICIT || it == VX_CONV_MASKED);
    }
    ck_assert_int_eq(launches[1],
                     1 + plan->launches_count + mix.signature->outputs_count);
    ck_assert_int_eq(launches[2], launches[1]);
    ck_assert_int_gt(launches[0], launches[1]);
    finish();
}
END_TEST

/* One lane uses what the other builds, before the host has seen the result. */
START_TEST(a_geometry_on_its_way_is_used)
{
    const struct vx_gpu_mix_pick first[2] = {{.request = 4}, {.request = 9}};
    const struct vx_gpu_mix_pick second[3] = {
        {.request = 4, .reference = true}, {.request = 9}, {.request = 13}};
    expect("fp32", 9, 1u << 4 | 1u << 9 | 1u << 13);
    reopen(64 << 20, 32 << 20, 4);
    struct vx_gpu_mix_sent *a = vx_gpu_mix_send(&mix, first, 1 + _i % 2);
    struct vx_gpu_mix_sent *b = vx_gpu_mix_send(&mix, second, 1 + _i % 2 * 2);
    submit(a);
    /* From now on a stream runs its work immediately: b would overtake a. */
    if (_i > 1) vx_fake_set(&(struct vx_fake_settings){0});
    submit(b);
    ck_assert_int_eq(vx_engine_under_way(vx_gpu_rig_engine), 2);
    ck_assert(!vx_engine_has_room(vx_gpu_rig_engine));
    for (i32 i = 0; i < 2; i++) {
        struct vx_gpu_mix_sent *sent = collect(true);
        ck_assert(sent == a || sent == b);
        if (sent == b) ck_assert(sent->items[0].geometry_hit);
        i32 count = sent->batch.items_count;
        ck_assert_int_eq(vx_gpu_mix_check(&mix, &sent, false), count);
    }
    ck_assert_ptr_null(collect(true));
    finish();
}
END_TEST

/* One coords_ref, three geometries: each has its own answer, the first keeps the coords_ref. */
START_TEST(a_name_is_no_proof)
{
    const struct vx_gpu_mix_pick picks[4] = {{.request = 4},
                                             {.request = VX_GPU_MIX_TWIN},
                                             {.request = VX_GPU_MIX_SHORT},
                                             {.request = 4}};
    expect("fp32", 2, 1u << 4 | 1u << VX_GPU_MIX_TWIN | 1u << VX_GPU_MIX_SHORT);
    reopen(64 << 20, 32 << 20, 1);
    for (i32 round = 0; round < 2; round++) {
        struct vx_gpu_mix_sent *sent = vx_gpu_mix_send(&mix, picks, 4);
        submit(sent);
        ck_assert_ptr_eq(collect(true), sent);
        for (i32 i = 0; i < 4; i++) {
            bool first = picks[i].request == 4;
            ck_assert(sent->items[i].geometry_kept == first);
            ck_assert(sent->items[i].geometry_hit == (first && (round || i)));
        }
        ck_assert_int_eq(vx_gpu_mix_check(&mix, &sent, false), 4);
    }
    finish();
}
END_TEST

/* Two batches that do not fit in memory together: the second waits for its memory, though
 * its stream would run its work immediately, in the middle of the first. */
START_TEST(a_batch_waits_for_memory)
{
    static struct vx_gpu_places places;
    const struct vx_gpu_mix_pick first[2] = {{.request = 3},
                                             {.request = 14, .nameless = true}};
    const struct vx_gpu_mix_pick second[2] = {{.request = 3},
                                              {.request = 9, .nameless = true}};
    const struct vx_gpu_sizes sizes = {(i64[]){900, 3000}, 2, false, NULL};
    struct vx_engine_stats stats;
    expect("fp32", 2, 1u << 3 | 1u << 9 | 1u << 14);
    model->gpu->choices->beside_rows_most = 0; /* as of most of the memory */
    vx_gpu_places_make(model->gpu->choices, &sizes, &places);
    reopen(places.bytes + places.bytes / 8, 32 << 20, 3);
    struct vx_gpu_mix_sent *a = vx_gpu_mix_send(&mix, first, 2);
    struct vx_gpu_mix_sent *b = vx_gpu_mix_send(&mix, second, 2);
    submit(a);
    vx_fake_set(&(struct vx_fake_settings){0});
    submit(b);
    ck_assert_ptr_eq(collect(true), a);
    ck_assert_ptr_eq(collect(true), b);
    ck_assert_int_gt(a->batch.device_ns, 0);
    ck_assert_int_gt(b->batch.device_ns, 0);
    ck_assert_int_eq(vx_gpu_mix_check(&mix, &a, false), 2);
    ck_assert_int_eq(vx_gpu_mix_check(&mix, &b, false), 2);
    vx_engine_stats_get(vx_gpu_rig_engine, &stats);
    ck_assert_int_eq(stats.device_bytes_used_max, (i64)places.bytes);
    finish();
}
END_TEST

/* Building one item's geometry does not discard one that another item refers to. */
START_TEST(what_a_reference_means_stays)
{
    const struct vx_gpu_mix_pick first = {.request = 3};
    const struct vx_gpu_mix_pick second[2] = {{.request = 9},
                                              {.request = 3, .reference = true}};
    struct vx_engine_stats stats;
    expect("fp32", 9, 1u << 3 | 1u << 9);
    reopen(64 << 20, 1 << 20, _i);
    struct vx_gpu_mix_sent *sent = vx_gpu_mix_send(&mix, &first, 1);
    submit(sent);
    ck_assert_ptr_eq(collect(true), sent);
    ck_assert(sent->items[0].geometry_kept);
    ck_assert_int_eq(vx_gpu_mix_check(&mix, &sent, false), 1);
    sent = vx_gpu_mix_send(&mix, second, 2);
    submit(sent);
    ck_assert_ptr_eq(collect(true), sent);
    ck_assert_msg(!sent->items[1].status.fault, "%s", sent->items[1].why.text);
    ck_assert(sent->items[1].geometry_hit);
    ck_assert_int_eq(vx_gpu_mix_check(&mix, &sent, false), 2);
    vx_engine_stats_get(vx_gpu_rig_engine, &stats);
    ck_assert_int_eq(stats.cache_hits, 1);
    ck_assert_int_eq(stats.cache_misses, 2);
    finish();
}
END_TEST

/* Each item counts once: it is a hit when it used a geometry that was there, whatever was tried
 * before. */
START_TEST(a_member_counts_once)
{
    static const struct {
        struct vx_gpu_mix_pick picks[4];
        i32 right, hits, misses;
    } cases[] = {
        /* refused because of the third, then held again; the last has no coords_ref to look up */
        {{{.request = 3},
          {.request = 3, .reference = true},
          {.request = 8, .reference = true},
          {.request = 2, .nameless = true}},
         3,
         1,
         2},
        /* found, but of another geometry: known at once, or when the device has compared */
        {{{.request = 4},
          {.request = VX_GPU_MIX_TWIN},
          {.request = VX_GPU_MIX_SHORT},
          {.request = 4}},
         4,
         1,
         3},
        {{{.request = VX_GPU_MIX_RANGE},
          {.request = 6},
          {.request = VX_GPU_MIX_RANGE},
          {.request = 6}},
         4,
         1,
         3},
    };
    struct vx_engine_stats stats;
    u32 which = 0;
    for (i32 i = 0; i < 4; i++) which |= 1u << cases[_i].picks[i].request;
    expect("fp32", 2, which);
    reopen(64 << 20, 32 << 20, 0);
    struct vx_gpu_mix_sent *sent = vx_gpu_mix_send(&mix, cases[_i].picks, 4);
    submit(sent);
    ck_assert_ptr_eq(collect(true), sent);
    ck_assert_int_eq(vx_gpu_mix_check(&mix, &sent, false), cases[_i].right);
    vx_engine_stats_get(vx_gpu_rig_engine, &stats);
    ck_assert_int_eq(stats.cache_hits, cases[_i].hits);
    ck_assert_int_eq(stats.cache_misses, cases[_i].misses);
    finish();
}
END_TEST

/* In every order, with the units of time that both contain. */
START_TEST(time_together_is_counted_once)
{
    for (i32 a = 0; a < 6; a++)
        for (i32 a_end = a; a_end < 7; a_end++)
            for (i32 b = 0; b < 6; b++)
                for (i32 b_end = b; b_end < 7; b_end++) {
                    const struct vx_gpu_span one = {a, a_end}, other = {b, b_end};
                    i64 both = 0;
                    for (i32 at = 0; at < 7; at++)
                        both += a <= at && at < a_end && b <= at && at < b_end;
                    ck_assert_int_eq(vx_gpu_spans_shared(&one, &other), both);
                    ck_assert_int_eq(vx_gpu_spans_shared(&other, &one), both);
                }
}
END_TEST

/* Two batches that the device ran one after the other, and whose ends the host sees in
 * the wrong order: each has its own time. */
START_TEST(times_are_right_in_any_order)
{
    const struct vx_gpu_mix_pick pick = {.request = 3, .nameless = true};
    struct vx_gpu_mix_sent *sent[3];
    expect("fp32", 2, 1u << 3);
    reopen(64 << 20, 32 << 20, 0);
    for (i32 i = 0; i < 3; i++) sent[i] = vx_gpu_mix_send(&mix, &pick, 1);
    submit(sent[0]); /* on the first lane, at once */
    vx_fake_set(&(struct vx_fake_settings){.event_polls = 9});
    submit(sent[1]); /* on the second, later */
    ck_assert_ptr_eq(collect(true), sent[0]);
    vx_fake_queue_drain();
    vx_fake_set(&(struct vx_fake_settings){0});
    submit(sent[2]); /* on the first again; its end is queried first */
    for (i32 i = 2; i > 0; i--) ck_assert_ptr_eq(collect(true), sent[i]);
    for (i32 i = 0; i < 3; i++) {
        const struct vx_item *item = &sent[i]->items[0];
        i64 parts =
            item->geometry_ns + item->convert_ns + item->compute_ns + item->output_ns;
        ck_assert_int_gt(parts, 0);
        ck_assert_int_eq(sent[i]->batch.device_ns, parts);
        ck_assert_int_eq(vx_gpu_mix_check(&mix, &sent[i], false), 1);
    }
    finish();
}
END_TEST

#define CHAIN_MAX 160

/* A chain of convolutions, no two with the same map. */
static void write_chain(i32 maps)
{
    static char json[1 << 16], names[CHAIN_MAX][32];
    static struct vx_test_tensor tensors[CHAIN_MAX];
    static f32 values[2 * 3 * 3];
    size_t at = (size_t)snprintf(json, sizeof json, VX_RIG_HEAD);
    char input[16] = "feats";
    for (i32 i = 0; i < maps; i++) {
        at += (size_t)snprintf(
            json + at, sizeof json - at,
            "%s{\"name\":\"c%d\",\"op\":\"subm_conv\",\"input\":\"%s\","
            "\"channels\":2,\"kernel\":[3,1,1],\"bias\":false,\"dilation\":%d},"
            "{\"name\":\"s%d\",\"op\":\"sigmoid\",\"input\":\"c%d\"}",
            i ? "," : "", i, input, i + 1, i, i);
        snprintf(input, sizeof input, "s%d", i);
        snprintf(names[i], sizeof names[i], "c%d.weight", i);
        tensors[i] =
            (struct vx_test_tensor){names[i], "F32", {2, 3, 1, 1, i ? 2 : 3}, 5, values};
    }
    snprintf(json + at, sizeof json - at,
             "],\"outputs\":[{\"layer\":\"%s\"}],\"precision\":\"fp16\"}", input);
    for (size_t i = 0; i < VX_COUNT(values); i++) values[i] = (f32)i / 8 - 1;
    vx_test_write_model(vx_rig_root, 1, json, tensors, (size_t)maps);
}

/* So many maps that the arguments of a join exceed a lane's room for them: a batch
 * becomes several rounds. */
START_TEST(a_network_of_many_maps_is_cut_into_rounds)
{
    enum { ITEMS = 64 };
    static struct vx_rig_request *alone[ITEMS], *mates[ITEMS];
    static struct vx_item items[ITEMS];
    write_chain(_i ? CHAIN_MAX : 30);
    model = vx_gpu_rig_load(vx_rig_root);
    for (i32 i = 0; i < ITEMS; i++) {
        alone[i] = vx_rig_request((u64)i, 5 + i % 40, 4, VX_DTYPE_F32);
        mates[i] = vx_rig_request((u64)i, 5 + i % 40, 4, VX_DTYPE_F32);
        vx_gpu_rig_run(model, &alone[i]->item);
        items[i] = mates[i]->item;
        items[i].coords_ref.low = 1 + (u64)i;
    }
    for (i32 round = 0; round < 2; round++) {
        struct vx_batch batch = {.items = items, .items_count = ITEMS};
        vx_engine_run(vx_gpu_rig_engine, model, &batch);
        for (i32 i = 0; i < ITEMS; i++) {
            ck_assert_msg(!items[i].status.fault, "%s", items[i].why.text);
            ck_assert(_i || items[i].geometry_hit == round);
            ck_assert(
                !memcmp(alone[i]->outputs, mates[i]->outputs, sizeof alone[i]->outputs));
            memset(mates[i]->outputs, 0, sizeof mates[i]->outputs);
        }
    }
    for (i32 i = 0; i < ITEMS; i++) {
        vx_free(alone[i]);
        vx_free(mates[i]);
    }
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_batch");
    TCase *any = tcase_create("any"), *tcase = tcase_create("known");
    tcase_add_checked_fixture(any, vx_gpu_rig_set_up, vx_gpu_rig_tear_down);
    tcase_add_checked_fixture(tcase, vx_gpu_rig_set_up, vx_gpu_rig_tear_down);
    tcase_set_timeout(any, 120);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(any, an_answer_is_the_same_in_any_company, VX_TRIALS(0, 1),
                        VX_TRIALS(7, 5)); /* few: one of each kind */
    tcase_add_test(tcase, a_batch_of_known_geometries_builds_nothing);
    tcase_add_test(tcase, a_reference_alone_launches_no_geometry);
    tcase_add_loop_test(tcase, a_geometry_on_its_way_is_used, 0, 4);
    tcase_add_test(tcase, a_name_is_no_proof);
    tcase_add_test(tcase, a_batch_waits_for_memory);
    tcase_add_loop_test(tcase, what_a_reference_means_stays, 0, 2);
    tcase_add_loop_test(tcase, a_member_counts_once, 0, 3);
    tcase_add_test(tcase, time_together_is_counted_once);
    tcase_add_test(tcase, times_are_right_in_any_order);
    tcase_add_loop_test(tcase, a_network_of_many_maps_is_cut_into_rounds, 0, 2);
    suite_add_tcase(suite, tcase);
    suite_add_tcase(suite, any);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
