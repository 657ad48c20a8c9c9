/* Choices by the density of a cloud on the fake GPU: what a table says of sparse clouds is taken for
 * them alone, for kept geometries at once and for new ones a round later, with the same bits.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/gpu/jit/jit.h"
#include "engine/gpu/model/model_load.h"
#include "tests/support/gpu_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 343 /* 7^3 */

#define CONV(name_, input_)                                                              \
    "{\"name\":\"" name_                                                                 \
    "\",\"op\":\"subm_conv\",\"layout\":\"vio\",\"input\":\"" input_                     \
    "\",\"channels\":20,\"kernel\":3},"
#define DOWN                                                                             \
    "{\"name\":\"d\",\"op\":\"sparse_conv\",\"layout\":\"vio\",\"kernel\":2,\"stride\":" \
    "2,"                                                                                 \
    "\"rule\":\"floor\",\"input\":\"b\",\"channels\":20},"
#define UP                                                                               \
    "{\"name\":\"u\",\"op\":\"inverse_conv\",\"layout\":\"vio\",\"of\":\"d\",\"input\":" \
    "\"c\","                                                                             \
    "\"channels\":20},"
#define KEEP                                                                             \
    "{\"name\":\"l\",\"op\":\"linear\",\"input\":\"b\",\"channels\":1},"                 \
    "{\"name\":\"k\",\"op\":\"prune\",\"input\":\"b\",\"keep\":\"l\"},"
#define LAST(input_)                                                                     \
    "{\"name\":\"e\",\"op\":\"linear\",\"input\":\"" input_ "\",\"channels\":3}],"       \
    "\"outputs\":[{\"layer\":\"e\"}]}"

/* Convolutions of too few channels have no choice. */
#define HEAD VX_RIG_HEAD VX_RIG_LINEAR("w", "feats", "16")

/* One set; two levels; two stages, of which the second has what logits leave. */
enum { ONE_SET, LEVELS, STAGES, KINDS };
static const struct {
    const char *layers;
    i32 followed; /* maps of one set */
    i32 launches; /* that depend on the density: those of 32 channels in */
} kinds[KINDS] = {
    {HEAD CONV("a", "w") CONV("b", "a") LAST("b"), 1, 1},
    {HEAD CONV("a", "w") CONV("b", "a") DOWN CONV("c", "d") UP LAST("u"), 2, 2},
    {HEAD CONV("a", "w") CONV("b", "a") KEEP CONV("c", "k") LAST("c"), 2, 2},
};

/* --- a table whose rows of sparse clouds differ from what a surface gets --- */

/* The other algorithm of the layer's order, so that the row orders of a round differ too. */
static enum vx_conv_algorithm other(enum vx_conv_algorithm algorithm)
{
    return algorithm == VX_CONV_MASKED ? VX_CONV_IMPLICIT : VX_CONV_MASKED;
}

static struct vx_jit *jit_open(void)
{
    struct vx_why why = {{0}};
    struct vx_jit *jit;
    const struct vx_jit_options options = {.arch = "fake"};
    ck_assert_msg(!vx_jit_open(&options, &why, &jit).fault, "%s", why.text);
    return jit;
}

/* The last tile that fits, which no other layer has. */
static i32 last_tile(const struct vx_conv_problem *problem,
                     enum vx_conv_algorithm algorithm)
{
    i32 tile = vx_conv_spec(algorithm)->tiles_count - 1;
    while (tile > 0 && !vx_conv_fits(problem, &(struct vx_conv_choice){algorithm, tile},
                                     vx_arch_caps("fake")))
        tile--;
    return tile;
}

/* Rows of Ci and Co 32 for clouds of 128 to 511 voxels. */
static void write_table(const char *path)
{
    struct vx_jit *jit = jit_open();
    struct vx_tune_table *table;
    struct vx_pick pick;
    struct vx_why why = {{0}};
    vx_pick_init(&pick, jit, vx_arch_caps("fake"), "fake GPU");
    ck_assert(!vx_tune_table_open("fake GPU", &why, &table).fault);
    for (i64 n = 128; n < 512; n *= 2) {
        struct vx_conv_problem problem = {.n = n,
                                          .kernel = {3, 3, 3},
                                          .v = 27,
                                          .ci = 32,
                                          .co = 32,
                                          .type = VX_NUMBER_F16};
        struct vx_conv_choice surface;
        struct vx_tune_row row;
        ck_assert(!vx_pick_conv(&pick, &problem, &surface));
        const enum vx_conv_algorithm wanted = other(surface.algorithm);
        ck_assert(vx_conv_exact(&problem, wanted));
        problem.fill = vx_density_fill(VX_DENSITY_SPARSE);
        vx_tune_row_make(&problem, &row);
        memcpy(row.hash, pick.hashes[wanted], sizeof row.hash);
        row.algorithm = wanted;
        row.tile = vx_conv_spec(wanted)->tiles[last_tile(&problem, wanted)];
        row.ns = 1;
        ck_assert(!vx_tune_table_put(table, &row, &why).fault);
    }
    ck_assert_msg(!vx_tune_table_write(table, path, &why).fault, "%s", why.text);
    vx_tune_table_close(&table);
    vx_jit_close(&jit);
}

/* Loads a network, with the table or without one. */
static struct vx_model *load(int kind, bool with_table)
{
    static char path[VX_TEST_PATH_BYTES + 16];
    snprintf(path, sizeof path, "%s/fake.tune", vx_rig_root);
    write_table(path);
    const struct vx_gpu_settings settings = {.tune_table = with_table ? path : NULL};
    vx_gpu_rig_reopen(VX_RIG_DEVICE_BYTES, &settings);
    vx_gpu_rig_write("fp16", kinds[kind].layers, 7);
    return vx_gpu_rig_load(vx_rig_root);
}

/* A block of 7^3 voxels: 19 pairs each; or the same, each two away from the next: 1. */
static struct vx_rig_request *cloud(i64 n, i32 apart)
{
    struct vx_rig_request *request = vx_rig_request(5, n, 4, VX_DTYPE_F32);
    for (i32 i = 0; i < (i32)n; i++) {
        i32 *row = request->coords + 4 * i;
        row[0] = 0;
        row[1] = i / 49 * apart;
        row[2] = i / 7 % 7 * apart;
        row[3] = i % 7 * apart;
    }
    request->item.coords_ref = (struct vx_coords_ref){0};
    return request;
}
#define DENSE 1
#define SPARSE                                                                           \
    5 /* so far apart that voxels of twice the edge have no neighbours either */

/* As it is: with a name only if it has one. */
static void run(struct vx_model *model, struct vx_rig_request *request)
{
    struct vx_batch batch = {.items = &request->item, .items_count = 1};
    vx_engine_run(vx_gpu_rig_engine, model, &batch);
    ck_assert_msg(!request->item.status.fault, "%s", request->item.why.text);
}

/* Of the last round, the launches that had another choice than that of a surface. */
static i32 launched_sparse(const struct vx_model *model)
{
    const struct vx_gpu_choices *choices = model->gpu->choices;
    struct vx_gpu_places places = model->gpu->places;
    i32 count = 0;
    for (i32 i = 0; i < choices->plan->launches_count; i++) {
        const struct vx_launch *launch = &choices->plan->launches[i];
        if (!vx_gpu_is_conv(choices, i) || !places.rows[launch->set]) continue;
        const struct vx_conv_choice *mine = vx_gpu_choice_of(choices, &places, i);
        const struct vx_conv_choice *surface =
            vx_gpu_choice_get(choices, i, places.rows[launch->set], VX_DENSITY_SURFACE);
        count += memcmp(mine, surface, sizeof *mine) != 0;
    }
    return count;
}

/* --- what is chosen --- */

START_TEST(sparse_rows_are_for_sparse_clouds)
{
    struct vx_model *model = load(_i, false);
    ck_assert(!model->gpu->choices->by_density);
    vx_engine_unload(vx_gpu_rig_engine, &model);
    model = load(_i, true);
    const struct vx_gpu_choices *choices = model->gpu->choices;
    i32 differ = 0;
    ck_assert(choices->by_density);
    ck_assert_int_eq(choices->followed_count, kinds[_i].followed);
    for (i32 i = 0; i < choices->plan->launches_count; i++) {
        const struct vx_launch *launch = &choices->plan->launches[i];
        if (!vx_gpu_is_conv(choices, i)) continue;
        const struct vx_conv_choice *surface =
            vx_gpu_choice_get(choices, i, 300, VX_DENSITY_SURFACE);
        const struct vx_conv_choice *sparse =
            vx_gpu_choice_get(choices, i, 300, VX_DENSITY_SPARSE);
        const bool same = !memcmp(surface, sparse, sizeof *sparse);
        const bool one_set =
            launch->map >= 0 && choices->plan->maps[launch->map].kind == VX_MAP_SUBM;
        ck_assert(same || (one_set && sparse->algorithm == other(surface->algorithm)));
        differ += !same;
    }
    ck_assert_int_eq(differ, kinds[_i].launches);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* The kernels of every density are ready before the model is. */
START_TEST(kernels_of_both_are_ready)
{
    static struct vx_gpu_wanted wanted;
    struct vx_model *model = load(ONE_SET, true);
    const struct vx_gpu_choices *choices = model->gpu->choices;
    struct vx_why why = {{0}};
    struct vx_conv_problem problem;
    struct vx_jit_wanted kernels[VX_CONV_KERNELS_MAX];
    wanted.count = 0;
    ck_assert(!vx_gpu_wanted_model(&wanted, choices, 1000, &why).fault);
    vx_gpu_problem_make(choices, 2, 300, &problem);
    i32 count = vx_conv_kernels(
        &problem, vx_gpu_choice_get(choices, 2, 300, VX_DENSITY_SPARSE), kernels);
    ck_assert_int_ge(count, 1);
    for (i32 i = 0; i < count; i++) {
        i32 at = 0;
        while (at < wanted.count && (wanted.list[at].spec != kernels[i].spec ||
                                     wanted.list[at].tile != kernels[i].tile))
            at++;
        ck_assert_int_lt(at, wanted.count);
    }
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* A choice that tuning sets is also that of a density without one of its own. */
START_TEST(a_set_choice_is_for_all_without_their_own)
{
    struct vx_model *model = load(ONE_SET, true);
    struct vx_gpu_choices *choices = model->gpu->choices;
    const struct vx_conv_choice mine = {VX_CONV_PAIRS_LIST, 0};
    const struct vx_conv_choice own =
        *vx_gpu_choice_get(choices, 2, 300, VX_DENSITY_SPARSE);
    for (i32 launch = 1; launch < 3; launch++) {
        vx_gpu_choice_set(choices, launch, vx_size_class(300), &mine);
        const struct vx_conv_choice *surface =
            vx_gpu_choice_get(choices, launch, 300, VX_DENSITY_SURFACE);
        const struct vx_conv_choice *sparse =
            vx_gpu_choice_get(choices, launch, 300, VX_DENSITY_SPARSE);
        ck_assert_mem_eq(surface, &mine, sizeof mine);
        ck_assert_mem_eq(sparse, launch == 2 ? &own : &mine, sizeof mine);
    }
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* --- what is launched --- */

/* A new geometry is launched as the last round was, and answers do not show it. */
START_TEST(a_new_geometry_is_guessed)
{
    struct vx_rig_request *clouds[2] = {cloud(N, DENSE), cloud(N, SPARSE)};
    struct vx_rig_request *again[2] = {cloud(N, DENSE), cloud(N, SPARSE)};
    static const int turns[] = {0, 0, 1, 1, 1, 0, 0, 1};
    const i32 count = kinds[_i].launches;
    struct vx_model *model = load(_i, false);
    for (int i = 0; i < 2; i++) run(model, clouds[i]);
    ck_assert_int_eq(launched_sparse(model), 0);
    vx_engine_unload(vx_gpu_rig_engine, &model);
    model = load(_i, true);
    for (size_t i = 0; i < VX_COUNT(turns); i++) {
        const int now = turns[i], before = i ? turns[i - 1] : 0;
        struct vx_rig_request *request = again[now];
        memset(request->outputs, 0, sizeof request->outputs);
        run(model, request);
        ck_assert_mem_eq(request->outputs, clouds[now]->outputs, sizeof request->outputs);
        if (_i != STAGES) /* whose places are the round's own */
            ck_assert_msg(launched_sparse(model) == (before ? count : 0), "turn %zu: %d",
                          i, launched_sparse(model));
        for (i32 f = 0; f < kinds[_i].followed; f++)
            ck_assert_int_eq(vx_density_of((f64)model->gpu->fills[f]),
                             now ? VX_DENSITY_SPARSE : VX_DENSITY_SURFACE);
    }
    ck_assert(model->gpu->fills[0] > 0.037F &&
              model->gpu->fills[0] < 0.0371F); /* 1 / 27 */
    vx_engine_unload(vx_gpu_rig_engine, &model);
    for (int i = 0; i < 2; i++) {
        vx_free(clouds[i]);
        vx_free(again[i]);
    }
}
END_TEST

/* Voxels two apart have no neighbours, but those of twice the edge have. */
START_TEST(each_level_has_a_density_of_its_own)
{
    struct vx_rig_request *request = cloud(N, 2);
    struct vx_model *model = load(LEVELS, true);
    for (int turn = 0; turn < 2; turn++) {
        run(model, request);
        ck_assert_int_eq(vx_density_of((f64)model->gpu->fills[0]), VX_DENSITY_SPARSE);
        ck_assert_int_eq(vx_density_of((f64)model->gpu->fills[1]), VX_DENSITY_SURFACE);
        ck_assert_int_eq(launched_sparse(model), turn);
    }
    vx_free(request);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* `timing` can say what a round took: each layer once, sparse ones with that word. */
START_TEST(a_round_says_what_it_took)
{
    struct vx_rig_request *requests[2] = {cloud(N, DENSE), cloud(N, SPARSE)};
    struct vx_model *model = load(_i, true);
    for (int turn = 0; turn < 4; turn++) {
        struct vx_taken taken[VX_TAKEN_MAX];
        struct vx_item items[] = {requests[turn > 1]->item, requests[turn > 1]->item};
        struct vx_batch batch = {.items = items, .items_count = 2, .taken = taken};
        items[1].says_taken = true;
        vx_engine_run(vx_gpu_rig_engine, model, &batch);
        ck_assert(!items[0].status.fault && !items[1].status.fault);
        ck_assert_int_eq(items[0].taken, 0);
        ck_assert_int_eq(items[1].taken, 1);
        ck_assert_int_eq(batch.taken_count, 1);
        const char *text = taken[0].text;
        const bool is_sparse = turn == 3; /* the turn before was the first sparse one */
        ck_assert_msg((strstr(text, "] sparse: ") != NULL) == is_sparse, "%d: %s", turn,
                      text);
        ck_assert_msg(strstr(text, "e") && strstr(text, " a") && strstr(text, " b"), "%s",
                      text);
        ck_assert_msg(strstr(text, "masked[") && strstr(text, "implicit["), "%s", text);
    }
    for (int i = 0; i < 2; i++) vx_free(requests[i]);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* A geometry that the store has is known, whatever ran before. */
START_TEST(a_kept_geometry_is_known)
{
    struct vx_rig_request *clouds[2] = {cloud(N, DENSE), cloud(N, SPARSE)};
    static f32 first[2][VX_RIG_N_MAX * 24];
    struct vx_model *model = load(_i, true);
    for (int i = 0; i < 2; i++) {
        vx_rig_name(&clouds[i]->item);
        run(model, clouds[i]);
        ck_assert(clouds[i]->item.geometry_kept);
        memcpy(first[i], clouds[i]->outputs[0], sizeof first[i]);
    }
    for (int turn = 0; turn < 6; turn++) {
        struct vx_rig_request *request = clouds[turn % 2];
        if (turn > 2) request->item.coords = NULL; /* by its name alone */
        run(model, request);
        ck_assert(request->item.geometry_hit);
        ck_assert_int_eq(launched_sparse(model), turn % 2 ? kinds[_i].launches : 0);
        ck_assert_mem_eq(request->outputs[0], first[turn % 2], sizeof first[0]);
    }
    for (int i = 0; i < 2; i++) vx_free(clouds[i]);
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* Kept and new geometries in one round: each counts by its rows. */
START_TEST(a_batch_has_the_fill_of_its_rows)
{
    static const struct {
        i64 dense, sparse; /* rows of the kept dense cloud, and of a new sparse one */
        bool is_sparse;
    } cases[] = {{10, 200, true}, {150, 150, false}, {10, 150, true}};
    struct vx_model *model = load(ONE_SET, true);
    for (size_t i = 0; i < VX_COUNT(cases); i++) {
        struct vx_rig_request *kept = cloud(cases[i].dense, DENSE);
        struct vx_rig_request *last = cloud(N, SPARSE),
                              *fresh = cloud(cases[i].sparse, SPARSE);
        vx_rig_name(&kept->item);
        run(model, kept);
        run(model, last);
        struct vx_item items[] = {kept->item, fresh->item};
        struct vx_batch batch = {.items = items, .items_count = 2};
        vx_engine_run(vx_gpu_rig_engine, model, &batch);
        for (int k = 0; k < 2; k++)
            ck_assert_msg(!items[k].status.fault, "%s", items[k].why.text);
        ck_assert(items[0].geometry_hit);
        ck_assert_int_eq(launched_sparse(model), cases[i].is_sparse);
        vx_free(kept);
        vx_free(last);
        vx_free(fresh);
    }
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

/* --- memory --- */

/* A round of any density needs at most what was reserved for it, and at most what the limit
 * of the model was computed from. */
START_TEST(bounds_are_enough_for_any_density)
{
    static struct vx_gpu_places places;
    struct vx_model *model = load(_i, true);
    const struct vx_gpu_choices *choices = model->gpu->choices;
    const i32 sets = choices->plan->sets_count;
    size_t sorted = 0;
    for (i64 n = 130; n < 512; n += 63) {
        i64 rows[VX_SETS_MAX];
        for (i32 set = 0; set < sets; set++) rows[set] = n;
        vx_gpu_places_make(choices, &(struct vx_gpu_sizes){rows, 1, true, NULL}, &places);
        const size_t most = places.bytes;
        ck_assert_uint_le(most, vx_gpu_places_need(choices, n, &places));
        for (int which = 0; which < 1 << kinds[_i].followed; which++) {
            struct vx_gpu_densities densities = {{0}};
            for (i32 f = 0; f < kinds[_i].followed; f++)
                densities.of[f] = (u8)(which >> f & 1);
            const struct vx_gpu_sizes sizes = {rows, 1, _i == STAGES, &densities};
            vx_gpu_places_make(choices, &sizes, &places);
            ck_assert_uint_le(places.bytes, most);
            sorted |= (size_t)1 << places.sorted_count;
        }
    }
    if (_i == LEVELS) ck_assert_uint_gt(sorted & (sorted - 1), 0); /* they do differ */
    vx_engine_unload(vx_gpu_rig_engine, &model);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_density");
    TCase *tcase = tcase_create("density");
    tcase_add_checked_fixture(tcase, vx_gpu_rig_set_up, vx_gpu_rig_tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, sparse_rows_are_for_sparse_clouds, 0, KINDS);
    tcase_add_test(tcase, kernels_of_both_are_ready);
    tcase_add_test(tcase, a_set_choice_is_for_all_without_their_own);
    tcase_add_loop_test(tcase, a_new_geometry_is_guessed, 0, KINDS);
    tcase_add_test(tcase, each_level_has_a_density_of_its_own);
    tcase_add_loop_test(tcase, a_round_says_what_it_took, 0, KINDS);
    tcase_add_loop_test(tcase, a_kept_geometry_is_known, 0, STAGES);
    tcase_add_test(tcase, a_batch_has_the_fill_of_its_rows);
    tcase_add_loop_test(tcase, bounds_are_enough_for_any_density, 0, KINDS);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
