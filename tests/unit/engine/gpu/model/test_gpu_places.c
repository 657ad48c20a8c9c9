/* How a round is laid out: row orders and their scratch memory lie apart and have room, need is the
 * most of all sizes, a set of samples has as many rows as there can be samples.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/gpu/jit/jit.h"
#include "engine/gpu/model/model_choice.h"
#include "engine/plan/plan.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONV(name_, input_, kernel_)                                                     \
    "{\"name\":\"" name_                                                                 \
    "\",\"op\":\"subm_conv\",\"layout\":\"vio\",\"input\":\"" input_                     \
    "\",\"channels\":64,\"kernel\":" kernel_ "},"
#define HEAD                                                                             \
    "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":64}},\"layers\":[" CONV(          \
        "a", "feats", "3") CONV("b", "a", "5")
#define DOWN                                                                             \
    "{\"name\":\"d\",\"op\":\"sparse_conv\",\"layout\":\"vio\",\"kernel\":3,\"stride\":" \
    "2,"                                                                                 \
    "\"rule\":\"floor\",\"input\":\"b\",\"channels\":64},"
#define KEEP                                                                             \
    "{\"name\":\"l\",\"op\":\"linear\",\"input\":\"b\",\"channels\":1},"                 \
    "{\"name\":\"d\",\"op\":\"prune\",\"input\":\"b\",\"keep\":\"l\"},"
#define TAIL                                                                             \
    "{\"name\":\"p\",\"op\":\"global_pool\",\"mode\":\"max\",\"input\":\"c\"}],"         \
    "\"outputs\":[{\"layer\":\"p\"}]}"
#define FLAT                                                                             \
    "{\"name\":\"y\",\"op\":\"relu\",\"input\":\"b\"}],\"outputs\":[{\"layer\":\"y\"}]}"

/* So few channels, though as many as keep a convolution sorted (model_narrow.h), that the scratch of
 * its orders is larger than its tensors. */
#define THIN(name_, input_, kernel_)                                                     \
    "{\"name\":\"" name_                                                                 \
    "\",\"op\":\"subm_conv\",\"layout\":\"vio\",\"input\":\"" input_                     \
    "\",\"channels\":9,\"kernel\":" kernel_ "},"
#define NARROW_ONES                                                                      \
    "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":9}},\"layers\":[" THIN(           \
        "q", "feats", "3") THIN("r", "q", "5") THIN("s", "r", "[1,3,3]")                 \
        THIN("t", "s", "[3,1,3]") THIN("u", "t", "[3,3,1]") THIN("v", "u", "[1,3,5]")    \
            THIN("w", "v", "[5,1,3]") THIN("a", "w", "[3,5,1]")                          \
                THIN("b", "a", "[1,5,3]")

/* One set; two levels and samples; the same with voxels that logits keep; many orders. */
enum { ONE_SET, LEVELS, STAGES, NARROW, KINDS };
static const struct {
    const char *json;
    i32 sorted; /* maps whose rows are sorted */
} kinds[KINDS] = {{HEAD FLAT, 2},
                  {HEAD DOWN CONV("c", "d", "3") TAIL, 4},
                  {HEAD KEEP CONV("c", "d", "3") TAIL, 3},
                  {NARROW_ONES FLAT, 9}};

static struct vx_gpu_choices *choices;
static struct vx_gpu_places places;

/* Every convolution sorts the rows of its map. */
static void open(int kind)
{
    static u8 block[VX_NETWORK_ARENA_BYTES];
    const struct vx_fuse_options fuse = {true, true, true, true, true};
    const struct vx_plan_options options = vx_plan_gpu(2);
    const struct vx_network_text text = {kinds[kind].json, strlen(kinds[kind].json),
                                         "net"};
    const struct vx_pick pick = {.caps = vx_arch_caps("sm_90a")};
    const struct vx_network *network;
    const struct vx_graph *graph;
    const struct vx_plan *plan;
    struct vx_arena arena;
    struct vx_why why = {{0}};
    vx_arena_init(&arena, block, sizeof block);
    ck_assert_msg(!vx_network_parse(&text, &arena, &why, &network).fault, "%s", why.text);
    ck_assert(!vx_fuse_build(network, &fuse, &arena, &graph).fault);
    ck_assert(!vx_plan_build(graph, &options, &arena, &plan).fault);
    const struct vx_gpu_choices_want want = {plan, VX_NUMBER_F16, 1 << 20, &pick};
    ck_assert(!vx_gpu_choices_open(&want, &choices).fault);
    for (i32 i = 0; i < plan->launches_count; i++) {
        const struct vx_launch *launch = &plan->launches[i];
        if (!vx_gpu_is_conv(choices, i) || launch->map < 0) continue;
        const i32 sizes = vx_size_class(choices->rows_max[launch->set]);
        for (i32 size = 1; size <= sizes; size++)
            vx_gpu_choice_set(choices, i, size,
                              &(struct vx_conv_choice){VX_CONV_MASKED, 0});
    }
}

static void lay_out(i64 n, i32 count)
{
    const struct vx_plan *plan = choices->plan;
    i64 rows[3 * VX_SETS_MAX];
    for (i32 i = 0; i < count; i++)
        vx_sets_rows_max(plan->sets, plan->sets_count, n,
                         rows + (i64)i * plan->sets_count);
    vx_gpu_places_make(choices, &(struct vx_gpu_sizes){rows, count, true, NULL}, &places);
}

struct range {
    size_t begin, end;
};

static void check_apart(const struct range *ranges, i32 count, struct range all)
{
    for (i32 i = 0; i < count; i++) {
        ck_assert_uint_eq(ranges[i].begin % VX_GPU_LINE_BYTES, 0);
        ck_assert_uint_ge(ranges[i].begin, all.begin);
        ck_assert_uint_le(ranges[i].end, all.end);
        ck_assert_uint_gt(ranges[i].end, ranges[i].begin);
        for (i32 k = 0; k < i; k++)
            ck_assert(ranges[k].end <= ranges[i].begin ||
                      ranges[i].end <= ranges[k].begin);
    }
}

START_TEST(orders_lie_apart_and_have_room)
{
    const int kind = _i % KINDS;
    const i32 count = 1 + 2 * (_i / KINDS); /* members: alone, or joined */
    struct range orders[VX_LAYERS_MAX], scratch[VX_LAYERS_MAX];
    open(kind);
    const struct vx_plan *plan = choices->plan;
    for (i64 n = 1; n < 100000; n = n * 9 + 2) {
        lay_out(n, count);
        ck_assert_int_eq(places.sorted_count, kinds[kind].sorted);
        for (i32 i = 0; i < places.sorted_count; i++) {
            const struct vx_gpu_sorted *sorted = &places.sorted[i];
            const struct vx_gpu_order_want want =
                vx_gpu_sorted_want(choices, places.rows, sorted);
            const size_t at = places.order_scratch + sorted->scratch;
            scratch[i] = (struct range){at, at + vx_gpu_order_scratch_bytes(&want)};
            orders[i] = (struct range){sorted->offset,
                                       sorted->offset + vx_gpu_order_bytes(&want)};
        }
        const size_t pieces = count > 1 ? places.joined_rows : places.pieces[0];
        const size_t tensors = places.shared + vx_plan_bytes(plan, places.laid);
        const i64 *rows = places.rows;
        check_apart(scratch, places.sorted_count,
                    (struct range){kind == STAGES ? tensors : places.shared, pieces});
        check_apart(orders, places.sorted_count,
                    (struct range){places.pieces[count - 1], places.workspace});
        ck_assert_uint_ge(pieces, tensors);
        ck_assert_uint_le(places.workspace, places.bytes);
        /* The last piece ends before the first order. */
        if (count == 1)
            ck_assert_uint_ge(orders[0].begin,
                              places.pieces[0] +
                                  (plan->levels ? vx_gpu_piece_maps_bytes(plan, rows)
                                                : vx_gpu_piece_bytes(plan, rows[0])));
    }
    vx_gpu_choices_close(&choices);
}
END_TEST

/* Exactly the most of all sizes up to n, of which a smaller one may need more. */
START_TEST(need_is_the_most_of_all_sizes)
{
    static const i64 ends[] = {1, 2, 100, 127, 128, 200, 255, 256, 300, 700};
    i64 n = 0;
    size_t most = 0;
    open(ONE_SET);
    /* As tuning may find: from 128 to 255 rows, pairs are listed. */
    for (i32 i = 0; i < choices->plan->launches_count; i++)
        if (vx_gpu_is_conv(choices, i))
            vx_gpu_choice_set(choices, i, vx_size_class(200),
                              &(struct vx_conv_choice){VX_CONV_PAIRS_LIST, 0});
    for (size_t i = 0; i < VX_COUNT(ends); i++) {
        for (n++; n <= ends[i]; n++) {
            lay_out(n, 1);
            if (places.bytes > most) most = places.bytes;
        }
        n--;
        ck_assert_uint_eq(vx_gpu_places_need(choices, ends[i], &places), most);
    }
    lay_out(300, 1);
    ck_assert_uint_lt(places.bytes, vx_gpu_places_need(choices, 300, &places));
    ck_assert_uint_eq(vx_gpu_places_need(choices, (1 << 20) + 1, &places), SIZE_MAX);
    ck_assert_uint_lt(vx_gpu_places_need(choices, 1 << 20, &places), SIZE_MAX);
    vx_gpu_choices_close(&choices);
}
END_TEST

/* As many as the set that they are of has rows, or as all members of a round have samples. */
START_TEST(a_set_of_samples_is_bounded)
{
    const i64 samples = (i64)VX_BATCH_ITEMS_MAX * (VX_SAMPLE_MAX + 1);
    i64 rows[VX_SETS_MAX];
    i32 found = 0;
    open(_i);
    const struct vx_plan *plan = choices->plan;
    static const i64 counts[] = {1, 1000, 32767, 32768, 32769, 1 << 20};
    for (size_t c = 0; c < VX_COUNT(counts); c++) {
        vx_gpu_rows_max(plan, counts[c], rows);
        for (i32 set = 1; set < plan->sets_count; set++) {
            const struct vx_set_key *key = &plan->sets[set].key;
            if (key->rule != VX_SET_SAMPLES) continue;
            const i64 from = rows[key->from];
            ck_assert_int_eq(rows[set], from < samples ? from : samples);
            ck_assert_int_eq(from, counts[c]); /* one fine voxel, one coarse one */
            found++;
        }
    }
    ck_assert_int_eq(found, (i32)VX_COUNT(counts));
    vx_gpu_choices_close(&choices);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("gpu_places");
    TCase *tests = tcase_create("places");
    tcase_set_timeout(tests, 30);
    tcase_add_loop_test(tests, orders_lie_apart_and_have_room, 0, 2 * KINDS);
    tcase_add_test(tests, need_is_the_most_of_all_sizes);
    tcase_add_loop_test(tests, a_set_of_samples_is_bounded, LEVELS, NARROW);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
