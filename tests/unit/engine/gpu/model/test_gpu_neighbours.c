/* Which maps have their neighbours in the order of the rows, from how many rows on, and that the
 * convolutions of a model on the fake GPU get them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/gpu/jit/jit.h"
#include "engine/gpu/model/model_choice.h"
#include "kernels/05_mask_order.h"
#include "kernels/06_conv_masked.h"
#include "tests/support/gpu_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- which maps --- */

#define CONV(name_, input_, channels_, more_)                                            \
    "{\"name\":\"" name_                                                                 \
    "\",\"op\":\"subm_conv\",\"layout\":\"vio\",\"input\":\"" input_                     \
    "\",\"channels\":" channels_ more_ "},"
#define SUBM(name_, input_, channels_) CONV(name_, input_, channels_, ",\"kernel\":3")
#define DOWN(name_, input_, channels_)                                                   \
    "{\"name\":\"" name_ "\",\"op\":\"sparse_conv\",\"layout\":\"vio\",\"kernel\":3,"    \
    "\"stride\":2,\"rule\":\"floor\",\"input\":\"" input_ "\",\"channels\":" channels_   \
    "},"
/* Two children along the last axis, by logits of the features; of the product `p`. */
#define CHILDREN                                                                         \
    "{\"name\":\"l\",\"op\":\"linear\",\"input\":\"feats\",\"channels\":2},"             \
    "{\"name\":\"y\",\"op\":\"channel_to_space\",\"input\":\"p\",\"stride\":[1,1,2],"    \
    "\"occupancy\":\"l\"},"

/* marks: of each map of the plan, in the plan's order, whether it has them. */
static const struct {
    const char *what;
    i32 channels; /* of the features */
    const char *layers, *last, *marks;
    enum vx_number type;
    const char *arch;
} cases[] = {
    {"one reader", 64, SUBM("a", "feats", "64"), "a", "0", VX_NUMBER_F16, "sm_90a"},
    {"two readers", 64, SUBM("a", "feats", "64") SUBM("b", "a", "64"), "b", "1",
     VX_NUMBER_F16, "sm_90a"},
    {"three readers", 64,
     SUBM("a", "feats", "64") SUBM("b", "a", "64") SUBM("c", "b", "64"), "c", "1",
     VX_NUMBER_F16, "sm_90a"},
    /* Rows of 112 channels are short enough, those of 128 are not; what is computed counts. */
    {"112 channels in", 112, SUBM("a", "feats", "112") SUBM("b", "a", "112"), "b", "1",
     VX_NUMBER_F16, "sm_90a"},
    {"128 channels in", 128, SUBM("a", "feats", "128") SUBM("b", "a", "128"), "b", "0",
     VX_NUMBER_F16, "sm_90a"},
    {"112 and 128 channels in", 112, SUBM("a", "feats", "128") SUBM("b", "a", "128"), "b",
     "0", VX_NUMBER_F16, "sm_90a"},
    {"113 channels in, padded", 113, SUBM("a", "feats", "113") SUBM("b", "a", "113"), "b",
     "0", VX_NUMBER_F16, "sm_90a"},
    /* However few columns there are. */
    {"32 columns", 64, SUBM("a", "feats", "32") SUBM("b", "a", "32"), "b", "1",
     VX_NUMBER_F16, "sm_90a"},
    {"16 channels", 16, SUBM("a", "feats", "16") SUBM("b", "a", "16"), "b", "1",
     VX_NUMBER_F16, "sm_90a"},
    /* A first layer of up to 8 channels does not stream. */
    {"a first layer and one reader", 4, SUBM("a", "feats", "32") SUBM("b", "a", "32"),
     "b", "0", VX_NUMBER_F16, "sm_90a"},
    /* A product of live children has orders of its own: it is no reader. */
    {"live children and one reader", 64,
     SUBM("a", "feats", "64") SUBM("p", "a", "128") CHILDREN, "y", "00", VX_NUMBER_F16,
     "sm_90a"},
    {"live children and two readers", 64,
     SUBM("a", "feats", "64") SUBM("b", "a", "64") SUBM("p", "b", "128") CHILDREN, "y",
     "10", VX_NUMBER_F16, "sm_90a"},
    /* Nor is a convolution of groups, or of one offset, which reads no map. */
    {"groups and one reader", 64,
     SUBM("a", "feats", "64") CONV("b", "a", "64", ",\"kernel\":3,\"groups\":64"), "b",
     "0", VX_NUMBER_F16, "sm_90a"},
    {"one offset and one reader", 64,
     SUBM("a", "feats", "64") CONV("b", "a", "64", ",\"kernel\":1"), "b", "0",
     VX_NUMBER_F16, "sm_90a"},
    /* Each map for itself. */
    {"one reader of each map", 64,
     SUBM("a", "feats", "64") CONV("b", "a", "64", ",\"kernel\":5"), "b", "00",
     VX_NUMBER_F16, "sm_90a"},
    {"two readers of the second map", 64,
     SUBM("a", "feats", "64") CONV("b", "a", "64", ",\"kernel\":[5,3,1]")
         CONV("c", "b", "64", ",\"kernel\":[5,3,1]"),
     "c", "01", VX_NUMBER_F16, "sm_90a"},
    {"two readers on each of two sets", 64,
     SUBM("a", "feats", "64") SUBM("b", "a", "64") DOWN("d", "b", "64")
         SUBM("e", "d", "64") SUBM("f", "e", "64"),
     "f", "101", VX_NUMBER_F16, "sm_90a"},
    {"two readers between two sets", 64,
     DOWN("d", "feats", "64") DOWN(
         "e", "feats", "64") "{\"name\":\"s\",\"op\":\"add\",\"inputs\":[\"d\",\"e\"]},",
     "s", "1", VX_NUMBER_F16, "sm_90a"},
    /* Only where tiles stream. */
    {"bf16", 64, SUBM("a", "feats", "64") SUBM("b", "a", "64"), "b", "1", VX_NUMBER_BF16,
     "sm_90a"},
    {"tf32", 64, SUBM("a", "feats", "64") SUBM("b", "a", "64"), "b", "0", VX_NUMBER_TF32,
     "sm_90a"},
    {"fp32", 64, SUBM("a", "feats", "64") SUBM("b", "a", "64"), "b", "0", VX_NUMBER_F32,
     "sm_90a"},
    {"Ampere", 64, SUBM("a", "feats", "64") SUBM("b", "a", "64"), "b", "0", VX_NUMBER_F16,
     "sm_80"},
    {"Blackwell", 64, SUBM("a", "feats", "64") SUBM("b", "a", "64"), "b", "0",
     VX_NUMBER_F16, "sm_100"},
};
#define CASES ((int)VX_COUNT(cases))

struct made {
    const struct vx_plan *plan;
    struct vx_gpu_choices *choices;
    u8 block[VX_NETWORK_ARENA_BYTES + VX_FUSE_ARENA_BYTES + VX_PLAN_ARENA_BYTES];
};
static struct made made;

static void case_open(i32 index)
{
    const struct vx_fuse_options fuse = {true, true, true, true, true};
    const struct vx_plan_options options =
        vx_plan_gpu(vx_number_bytes(cases[index].type));
    const struct vx_pick pick = {.caps = vx_arch_caps(cases[index].arch)};
    const struct vx_network *network;
    const struct vx_graph *graph;
    struct vx_arena arena;
    struct vx_why why = {{0}};
    char json[2048];
    snprintf(json, sizeof json,
             "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":%d}},\"layers\":[%s"
             "{\"name\":\"end\",\"op\":\"tanh\",\"input\":\"%s\"}],"
             "\"outputs\":[{\"layer\":\"end\"}]}",
             cases[index].channels, cases[index].layers, cases[index].last);
    const struct vx_network_text text = {json, strlen(json), "neighbours"};
    vx_arena_init(&arena, made.block, sizeof made.block);
    vx_status status = vx_network_parse(&text, &arena, &why, &network);
    ck_assert_msg(!status.fault, "%s: %s", cases[index].what, why.text);
    ck_assert(!vx_fuse_build(network, &fuse, &arena, &graph).fault);
    ck_assert(!vx_plan_build(graph, &options, &arena, &made.plan).fault);
    const struct vx_gpu_choices_want want = {made.plan, cases[index].type, 1 << 20,
                                             &pick};
    ck_assert(!vx_gpu_choices_open(&want, &made.choices).fault);
}

START_TEST(maps_of_several_readers_have_neighbours)
{
    char marks[VX_LAYERS_MAX + 1] = "";
    case_open(_i);
    for (i32 map = 0; map < made.plan->maps_count; map++)
        marks[map] = made.choices->neighbours[map] ? '1' : '0';
    ck_assert_msg(!strcmp(marks, cases[_i].marks), "%s: of the maps have them %s, not %s",
                  cases[_i].what, marks, cases[_i].marks);
    for (i32 map = made.plan->maps_count; map < VX_LAYERS_MAX; map++)
        ck_assert(!made.choices->neighbours[map]);
    vx_gpu_choices_close(&made.choices);
}
END_TEST

/* The cases of live children would prove nothing if all children were computed. */
START_TEST(live_children_are_two)
{
    i32 panels = 0;
    for (i32 index = 0; index < CASES; index++) {
        case_open(index);
        for (i32 i = 0; i < made.plan->launches_count; i++)
            if (vx_node_panels(made.plan->launches[i].node) > 1) {
                ck_assert_int_eq(vx_node_panels(made.plan->launches[i].node), 2);
                panels++;
            }
        vx_gpu_choices_close(&made.choices);
    }
    ck_assert_int_eq(panels, 2);
}
END_TEST

static i32 case_find(const char *what)
{
    for (i32 index = 0; index < CASES; index++)
        if (!strcmp(cases[index].what, what)) return index;
    ck_abort_msg("no case \"%s\"", what);
}

/* What is wanted of an order is its map's, and lists of tiles are the device's. */
START_TEST(orders_are_of_their_maps)
{
    const i64 rows[VX_SETS_MAX] = {1000, 300};
    const struct vx_gpu_sorted first = {.map = 0, .groups = 3},
                               second = {.map = 1, .groups = 1};
    struct vx_gpu_order_want want;
    case_open(case_find("two readers of the second map"));
    want = vx_gpu_sorted_want(made.choices, rows, &first);
    ck_assert_int_eq(want.n, 1000);
    ck_assert_int_eq(want.v, 27);
    ck_assert_int_eq(want.groups, 3);
    ck_assert(want.sorted && want.gray && want.blocks && !want.neighbours);
    want = vx_gpu_sorted_want(made.choices, rows, &second);
    ck_assert_int_eq(want.v, 5 * 3 * 1);
    for (i32 axis = 0; axis < 3; axis++)
        ck_assert_int_eq(want.kernel[axis], 5 - 2 * axis);
    ck_assert_int_eq(want.groups, 1);
    ck_assert(want.sorted && want.gray && want.blocks && want.neighbours);
    vx_gpu_choices_close(&made.choices);
    case_open(case_find("two readers on each of two sets"));
    want = vx_gpu_sorted_want(made.choices, rows, &second); /* from set 0 to set 1 */
    ck_assert_int_eq(want.n, 300);
    vx_gpu_choices_close(&made.choices);
    case_open(case_find("Ampere"));
    want = vx_gpu_sorted_want(made.choices, rows, &first);
    ck_assert(want.sorted && want.gray && !want.blocks && !want.neighbours);
    vx_gpu_choices_close(&made.choices);
}
END_TEST

/* --- from how many rows on --- */

/* What an order has beside rows and block masks when it wants neighbours, in bytes. */
static size_t neighbours_bytes(const struct vx_gpu_order_want *want)
{
    struct vx_gpu_order_want without = *want;
    without.neighbours = false;
    return vx_gpu_order_bytes(want) - vx_gpu_order_bytes(&without);
}

/* The order of map 0 as the engine lays it out; where its neighbours would lie. */
static void order_place(i64 n, i32 groups, struct vx_gpu_order_want *want,
                        struct vx_gpu_map *map)
{
    static u8 memory;
    i64 rows[VX_SETS_MAX] = {n};
    const struct vx_gpu_sorted sorted = {.map = 0, .groups = groups};
    *want = vx_gpu_sorted_want(made.choices, rows, &sorted);
    *map = (struct vx_gpu_map){0};
    vx_gpu_order_place(want, &memory, map);
    if (map->neighbours) /* they end where the order's memory does */
        ck_assert_uint_eq((size_t)((u8 *)map->neighbours - &memory) +
                              neighbours_bytes(want),
                          vx_gpu_order_bytes(want));
}

START_TEST(few_rows_have_none)
{
    struct vx_gpu_order_want want;
    struct vx_gpu_map map;
    case_open(case_find("two readers"));
    order_place(VX_ORDER_SMALL_ROWS, 1, &want, &map);
    ck_assert(want.neighbours);
    ck_assert_ptr_null(map.neighbours);
    ck_assert_uint_eq(neighbours_bytes(&want), 0);
    order_place(VX_ORDER_SMALL_ROWS + 1, 1, &want, &map);
    ck_assert_ptr_nonnull(map.neighbours);
    ck_assert_uint_eq(neighbours_bytes(&want),
                      vx_round_up((size_t)27 * (VX_ORDER_SMALL_ROWS + 1) * sizeof(i32),
                                  VX_GPU_LINE_BYTES));
    /* Each group has an order of its own, and a map that is not sorted has none. */
    order_place(VX_ORDER_SMALL_ROWS + 1, 3, &want, &map);
    ck_assert(want.neighbours);
    ck_assert_ptr_null(map.neighbours);
    ck_assert_uint_eq(neighbours_bytes(&want), 0);
    want.groups = 1;
    want.sorted = false;
    ck_assert_uint_eq(neighbours_bytes(&want), 0);
    vx_gpu_choices_close(&made.choices);
    case_open(case_find("one reader"));
    order_place(VX_ORDER_SMALL_ROWS + 1, 1, &want, &map);
    ck_assert(!want.neighbours);
    ck_assert_ptr_null(map.neighbours);
    vx_gpu_choices_close(&made.choices);
}
END_TEST

/* --- a model on the fake GPU --- */

#define LENGTH 256 /* voxels of a line of the request's plane */

static struct {
    i64 n; /* of the launches that count: warm-ups are smaller */
    i32 launches, with;
} seen;

/* Compares instead of computing: the numbers of so many rows would take minutes. */
static void see_conv(const void *given, enum vx_number type)
{
    const struct vx_conv_device_args *args = given;
    (void)type;
    if (args->n != seen.n || args->v == 1) return;
    ck_assert_ptr_nonnull(args->order);
    seen.launches++;
    if (!args->neighbours) return;
    seen.with++;
    for (i32 v = 0; v < args->v; v++)
        for (i64 place = 0; place < args->n; place++)
            ck_assert_int_eq(args->neighbours[v * args->n + place],
                             args->nbr[(i64)args->order[place] * args->nbr_stride + v]);
}

static const struct vx_kernel_spec *find(const char *name)
{
    static struct vx_kernel_spec conv;
    if (strcmp(name, "conv_masked") != 0) return vx_kernel_find(name);
    conv = *vx_kernel_find(name);
    conv.ref = see_conv;
    return &conv;
}

/* A plane of n voxels, in another order than the device's. */
static struct vx_item item_make(i64 n)
{
    i32 *coords = vx_alloc_zero((size_t)n * 4 * sizeof *coords);
    for (i64 i = 0; i < n; i++) {
        const i64 cell = n - 1 - i;
        coords[i * 4 + 2] = (i32)(cell / LENGTH);
        coords[i * 4 + 3] = (i32)(cell % LENGTH);
    }
    struct vx_item item = {.coords = coords,
                           .coords_columns = 4,
                           .voxels = n,
                           .feats = vx_alloc_zero((size_t)n * 3 * sizeof(f32)),
                           .feats_dtype = VX_DTYPE_F32};
    item.outputs[0] = vx_alloc_zero((size_t)n * 48 * sizeof(f32));
    vx_rig_name(&item);
    return item;
}

static void item_free(struct vx_item *item)
{
    vx_free((void *)item->coords);
    vx_free((void *)item->feats);
    vx_free(item->outputs[0]);
}

static const struct {
    i64 n;
    const char *layers;
    i32 launches, with;
} runs[] = {
    {VX_ORDER_SMALL_ROWS, SUBM("a", "w", "48") SUBM("b", "a", "48"), 2, 0},
    {VX_ORDER_SMALL_ROWS + 1, SUBM("a", "w", "48") SUBM("b", "a", "48"), 2, 2},
    /* All that read the map get them, also one that is no reason to have them. */
    {VX_ORDER_SMALL_ROWS + 1,
     SUBM("a", "w", "48") SUBM("c", "a", "128") SUBM("b", "c", "48"), 3, 3},
    {VX_ORDER_SMALL_ROWS + 1, SUBM("a", "w", "128") SUBM("b", "a", "48"), 2, 0},
};

START_TEST(convolutions_get_their_neighbours)
{
    const struct vx_gpu_settings settings = {.algorithm = VX_CONV_MASKED};
    struct vx_item item = item_make(runs[_i].n);
    char text[2048];
    snprintf(text, sizeof text, "%s%s%s", VX_RIG_HEAD VX_RIG_LINEAR("w", "feats", "16"),
             runs[_i].layers,
             "{\"name\":\"e\",\"op\":\"tanh\",\"input\":\"b\"}],\"outputs\":"
             "[{\"layer\":\"e\"}]}");
    vx_fake_set(&(struct vx_fake_settings){.find = find});
    vx_gpu_rig_reopen(VX_RIG_DEVICE_BYTES, &settings);
    vx_gpu_rig_write("fp16", text, 5);
    struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
    memset(&seen, 0, sizeof seen);
    seen.n = item.voxels;
    vx_gpu_rig_run(model, &item);
    ck_assert_msg(!item.status.fault, "%s", item.why.text);
    ck_assert_int_eq(seen.launches, runs[_i].launches);
    ck_assert_int_eq(seen.with, runs[_i].with);
    vx_engine_unload(vx_gpu_rig_engine, &model);
    item_free(&item);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_neighbours");
    TCase *maps = tcase_create("maps");
    tcase_add_loop_test(maps, maps_of_several_readers_have_neighbours, 0, CASES);
    tcase_add_test(maps, live_children_are_two);
    tcase_add_test(maps, orders_are_of_their_maps);
    tcase_add_test(maps, few_rows_have_none);
    suite_add_tcase(suite, maps);
    TCase *models = tcase_create("models");
    tcase_add_checked_fixture(models, vx_gpu_rig_set_up, vx_gpu_rig_tear_down);
    tcase_add_loop_test(models, convolutions_get_their_neighbours, 0,
                        (int)VX_COUNT(runs));
    tcase_set_timeout(models, 60);
    suite_add_tcase(suite, models);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
