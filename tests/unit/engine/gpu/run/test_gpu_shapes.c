/* Requests with a spatial shape of their own, on the CPU and on the fake GPU: the answer is
 * that of the same network with this shape, alone, in a batch, and from the cache, which may
 * have the same coordinates under several shapes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "tests/support/gpu_rig.h"

#include <check.h>
#include <string.h>

/* Windows of 3, every 2: how many of them fit depends on the shape. */
#define NETWORK(shape_)                                                                  \
    "{\"format\":1,\"inputs\":{\"coords\":{\"name\":\"coords\",\"spatial_"               \
    "shape\":" shape_ "},\"feats\":{\"channels\":3}},\"layers\":["                       \
    "{\"name\":\"a\",\"op\":\"linear\",\"input\":\"feats\",\"channels\":8},"             \
    "{\"name\":\"d\",\"op\":\"avg_pool\",\"input\":\"a\",\"kernel\":3,\"stride\":2,"     \
    "\"rule\":\"spconv\"},"                                                              \
    "{\"name\":\"c\",\"op\":\"subm_conv\",\"input\":\"d\",\"channels\":8,\"kernel\":"    \
    "3,\"layout\":\"vio\"},"                                                             \
    "{\"name\":\"f\",\"op\":\"max_pool\",\"input\":\"c\",\"kernel\":2,\"stride\":1,"     \
    "\"rule\":\"spconv\"}],"                                                             \
    "\"outputs\":[{\"layer\":\"a\",\"name\":\"full\"},{\"layer\":\"f\",\"name\":"        \
    "\"coarse\"}],\"limits\":{\"voxels_max\":400}}"

enum { FULL, COARSE, COORDS, OUTPUTS };
enum { VOXELS = 90, CHANNELS = 8, ROWS = 8 * VOXELS };
enum { CPU, GPU, DEVICES };
/* The network's, another, and those that cannot be: a voxel lies outside; a window is
 * larger. */
enum { NETWORKS_OWN, OTHER, SMALL, NARROW, SHAPES };
static const i32 shapes[SHAPES][3] = {{0}, {9, 8, 11}, {8, 7, 8}, {9, 9, 2}};
static const char *const whys[SHAPES] = {
    [SMALL] =
        "lies outside of the request's spatial_shape: expected 0 to 7, 0 to 6 and 0 "
        "to 7 in the last three columns",
    [NARROW] =
        "spatial_shape 9x9x2: layer \"d\" reads 2 voxels along column 3 of coords; its "
        "kernel reaches over 3, with a padding of 0 on both sides"};

struct request {
    struct vx_item item;
    i32 coords[VOXELS * 4];
    f32 feats[VOXELS * 3];
    f32 full[VOXELS * CHANNELS], coarse[ROWS * CHANNELS];
    i32 places[ROWS * 4];
};

/* Voxels of a box of 8 x 8 x 8 in two samples; NARROW: of which all lie in 9 x 9 x 2. */
static struct request *request_open(i32 shape, bool kept)
{
    struct request *it = vx_alloc_zero(sizeof *it);
    ck_assert_ptr_nonnull(it);
    for (i32 i = 0; i < VOXELS; i++) {
        const i32 v = i * 11 % 1024;
        const i32 flat[4] = {i % 2, i / 2 % 8, i / 16, i % 2};
        const i32 at[4] = {v / 512, v / 64 % 8, v / 8 % 8, v % 8};
        memcpy(it->coords + 4 * i, shape == NARROW ? flat : at, sizeof at);
        for (i32 c = 0; c < 3; c++)
            it->feats[3 * i + c] = (f32)((i * 7 + c * 5) % 23 - 11);
    }
    it->item = (struct vx_item){.coords = it->coords,
                                .coords_columns = 4,
                                .voxels = VOXELS,
                                .feats = it->feats,
                                .feats_dtype = VX_DTYPE_F32,
                                .asks = 1u << COARSE | 1u << COORDS};
    memcpy(it->item.shape, shapes[shape], sizeof it->item.shape);
    it->item.outputs[FULL] = it->full;
    if (kept) it->item.coords_ref = (struct vx_coords_ref){7, 9};
    return it;
}

/* Runs them as one batch. */
static void run(i32 device, struct vx_model *model, struct request *const *requests,
                i32 count)
{
    struct vx_engine *engine = device == GPU ? vx_gpu_rig_engine : vx_rig_engine;
    struct vx_item items[VX_BATCH_ITEMS_MAX];
    struct vx_batch batch = {.items = items, .items_count = count};
    struct vx_asked asked;
    for (i32 i = 0; i < count; i++) items[i] = requests[i]->item;
    vx_engine_submit(engine, model, &batch);
    for (i32 calls = 0; vx_engine_under_way(engine); calls++) {
        ck_assert_int_le(calls, 4 * count);
        while (vx_engine_asked(engine, &asked))
            for (i32 i = 0; i < asked.count; i++) {
                const i32 at = asked.items[i];
                ck_assert_int_le(items[at].rows[COARSE], ROWS);
                items[at].outputs[COARSE] = requests[at]->coarse;
                items[at].outputs[COORDS] = requests[at]->places;
                vx_engine_place(engine, &batch, at);
            }
        (void)vx_engine_collect(engine, true);
    }
    for (i32 i = 0; i < count; i++) requests[i]->item = items[i];
}

static struct request *run_one(i32 device, struct vx_model *model, i32 shape, bool kept)
{
    struct request *it = request_open(shape, kept);
    run(device, model, &it, 1);
    return it;
}

static void check_same(const struct request *a, const struct request *b)
{
    ck_assert_msg(!a->item.status.fault, "%s", a->item.why.text);
    ck_assert_msg(!b->item.status.fault, "%s", b->item.why.text);
    ck_assert_int_eq(a->item.rows[COARSE], b->item.rows[COARSE]);
    ck_assert_int_eq(a->item.pairs, b->item.pairs);
    ck_assert_int_eq(a->item.set_voxels, b->item.set_voxels);
    ck_assert(!memcmp(a->full, b->full, sizeof a->full));
    ck_assert(!memcmp(a->coarse, b->coarse, sizeof a->coarse));
    ck_assert(!memcmp(a->places, b->places, sizeof a->places));
}

static struct vx_model *load(i32 device, const char *network)
{
    vx_gpu_rig_write("fp32", network, 3);
    return device == GPU ? vx_gpu_rig_load(vx_rig_root) : vx_rig_load(vx_rig_root);
}

static void unload(i32 device, struct vx_model **model)
{
    vx_engine_unload(device == GPU ? vx_gpu_rig_engine : vx_rig_engine, model);
}

/* Alone, kept under both shapes, and in a batch of both; `_i` is the device. */
START_TEST(its_answer_is_that_of_the_network_with_this_shape)
{
    struct vx_model *model = load(_i, NETWORK("[8,8,8]"));
    struct vx_model *others = load(_i, NETWORK("[9,8,11]"));
    struct request *truth[] = {run_one(_i, model, NETWORKS_OWN, false),
                               run_one(_i, others, NETWORKS_OWN, false)};
    struct request *requests[6];
    ck_assert_int_ne(truth[0]->item.rows[COARSE], truth[1]->item.rows[COARSE]);
    ck_assert_int_ne(truth[0]->item.pairs, truth[1]->item.pairs);
    for (i32 k = 0; k < 8; k++) {
        const i32 shape = k & 1, kept = k >= 2;
        struct request *it = run_one(_i, model, shape, kept);
        check_same(it, truth[shape]);
        ck_assert_int_eq(it->item.geometry_hit, k >= 4);
        vx_free(it);
    }
    for (i32 k = 0; k < 6; k++) requests[k] = request_open(k & 1, k >= 3);
    run(_i, model, requests, 6);
    for (i32 k = 0; k < 6; k++) {
        check_same(requests[k], truth[k & 1]);
        vx_free(requests[k]);
    }
    vx_free(truth[0]);
    vx_free(truth[1]);
    unload(_i, &model);
    unload(_i, &others);
}
END_TEST

/* Shapes that cannot be, alone, and between mates that are answered. */
START_TEST(a_shape_that_cannot_be_is_refused)
{
    struct vx_model *model = load(_i, NETWORK("[8,8,8]"));
    struct request *truth = run_one(_i, model, OTHER, false);
    for (i32 shape = SMALL; shape < SHAPES; shape++)
        for (i32 mates = 0; mates < 2; mates++) {
            struct request *requests[] = {request_open(shape, mates),
                                          request_open(OTHER, false),
                                          request_open(OTHER, true)};
            run(_i, model, requests, mates ? 3 : 1);
            ck_assert_int_eq(vx_status_code(requests[0]->item.status),
                             VX_CODE_INVALID_ARGUMENT);
            ck_assert_ptr_nonnull(strstr(requests[0]->item.why.text, whys[shape]));
            for (i32 i = 1; mates && i < 3; i++) check_same(requests[i], truth);
            for (i32 i = 0; i < 3; i++) vx_free(requests[i]);
        }
    vx_free(truth);
    unload(_i, &model);
}
END_TEST

/* A weight of spconv on blocks of 2, behind a window that adds to the shape: a shape of whole
 * blocks, of a cut one, and of more voxels than coordinates reach. */
#define BLOCKS                                                                           \
    "{\"format\":1,\"inputs\":{\"coords\":{\"name\":\"coords\",\"spatial_"               \
    "shape\":[9,9,9]},\"feats\":{\"channels\":3}},\"layers\":["                          \
    "{\"name\":\"a\",\"op\":\"linear\",\"input\":\"feats\",\"channels\":8},"             \
    "{\"name\":\"w\",\"op\":\"max_pool\",\"input\":\"a\",\"kernel\":2,\"stride\":1,"     \
    "\"padding\":1,\"rule\":\"spconv\"},"                                                \
    "{\"name\":\"f\",\"op\":\"sparse_conv\",\"input\":\"w\",\"channels\":8,\"kernel\":"  \
    "2,\"stride\":2,\"rule\":\"floor\",\"layout\":\"spconv\"}],"                         \
    "\"outputs\":[{\"layer\":\"a\",\"name\":\"full\"},{\"layer\":\"f\",\"name\":"        \
    "\"coarse\"}],\"limits\":{\"voxels_max\":400},\"warmup\":[90]}"

static const struct {
    i32 shape[3];
    const char *why; /* NULL = served */
} others[] = {
    {{11, 9, 13}, NULL},
    {{11, 10, 13},
     "spatial_shape 11x10x13: layer \"f\": 11 voxels along column 2 of coords are no "
     "multiple of its stride, 2: layout \"spconv\" makes no voxel of the rest, rule "
     "\"floor\" one: set \"rule\": \"spconv\""},
    {{11, 9, 131072},
     "spatial_shape 11x9x131072: the set of layer \"w\" has 131073 voxels along column 3 "
     "of coords; expected at most 131072, the range of coordinates"},
};

/* Its warm-up has a shape of 10 x 10 x 9, which cuts blocks: nobody reads that answer. */
START_TEST(a_shape_with_other_voxels_than_the_library_is_refused)
{
    struct vx_model *model = load(_i, BLOCKS);
    struct vx_why why = {{0}};
    vx_status status =
        vx_engine_warm(_i == GPU ? vx_gpu_rig_engine : vx_rig_engine, model, &why);
    ck_assert_msg(!status.fault, "%s", why.text);
    for (size_t k = 0; k < VX_COUNT(others); k++) {
        struct request *it = request_open(NETWORKS_OWN, false);
        memcpy(it->item.shape, others[k].shape, sizeof it->item.shape);
        run(_i, model, &it, 1);
        ck_assert_msg(!it->item.status.fault == !others[k].why, "%s", it->item.why.text);
        if (others[k].why) {
            ck_assert_int_eq(vx_status_code(it->item.status), VX_CODE_INVALID_ARGUMENT);
            ck_assert_str_eq(it->item.why.text, others[k].why);
        }
        vx_free(it);
    }
    unload(_i, &model);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_shapes");
    TCase *tcase = tcase_create("shapes");
    tcase_add_checked_fixture(tcase, vx_gpu_rig_set_up, vx_gpu_rig_tear_down);
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, its_answer_is_that_of_the_network_with_this_shape, 0,
                        DEVICES);
    tcase_add_loop_test(tcase, a_shape_that_cannot_be_is_refused, 0, DEVICES);
    tcase_add_loop_test(tcase, a_shape_with_other_voxels_than_the_library_is_refused, 0,
                        DEVICES);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
