/* Thousands of random networks of several levels on the CPU device: each answer lies
 * within the bound of the oracle, and has the same bits again, from the cache, and among
 * other requests.
 *
 * A failure names its seed and leaves the model in a folder; VX_SEED=N runs that one
 * alone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/model/model.h"
#include "tests/support/gpu_rig.h"
#include "tests/support/network_random.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNKS 25
/* Networks of one chunk: in release, and in builds that are ten times as slow. */
#define NETWORKS      100
#define NETWORKS_SLOW 8

/* Voxels of the request that is compared, and of those beside it in a batch. */
#define VOXELS     300
#define VOXELS_FEW 40

#define BATCH 3 /* requests of one */

static u64 seed; /* of the network that is tested */

#define FAIL_UNLESS(cond_, format_, ...)                                                 \
    ck_assert_msg(cond_, "seed %llu, model in %s: " format_, (unsigned long long)seed,   \
                  vx_rig_root, __VA_ARGS__)

static f64 output_get(const void *output, enum vx_dtype dtype, i64 index)
{
    if (dtype == VX_DTYPE_F32) return (f64)((const f32 *)output)[index];
    u16 half = ((const u16 *)output)[index];
    u32 bits = (u32)half << 16;
    f32 value;
    memcpy(&value, &bits, sizeof value);
    if (dtype == VX_DTYPE_BF16) return (f64)value;
    int exponent = half >> 10 & 31, fraction = half & 1023;
    f64 size = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    if (exponent == 31) size = fraction ? (f64)NAN : (f64)INFINITY;
    return half >> 15 ? -size : size;
}

static void oracle_open(const struct vx_rig_files *files,
                        const struct vx_random_request *request,
                        struct vx_network_oracle_input *input,
                        struct vx_network_oracle *oracle)
{
    const struct vx_item *item = &request->item;
    *input = (struct vx_network_oracle_input){files->network, files->weights,
                                              item->coords,   item->coords_columns,
                                              item->voxels,   request->feats};
    vx_network_oracle_open(input, oracle);
}

/* What the network says of its sets, by which memory is planned: their shapes, the most
 * rows, and that layers on one set have the same voxels. */
static void check_sets(const struct vx_network_oracle *oracle)
{
    const struct vx_network *network = oracle->input->network;
    const struct vx_oracle_set *sets[VX_SETS_MAX] = {&oracle->made[0]};
    i64 rows_max[VX_SETS_MAX];
    vx_sets_rows_max(network->sets, network->sets_count, oracle->input->n, rows_max);
    for (i32 i = 0; i < network->layers_count; i++) {
        i32 set = network->layers[i].set;
        const struct vx_oracle_set *mine = oracle->sets[i];
        if (!sets[set]) sets[set] = mine;
        FAIL_UNLESS(vx_oracle_set_equal(sets[set], mine),
                    "layer l%d has other voxels than "
                    "set %d",
                    (int)i, (int)set);
        FAIL_UNLESS(mine->rows <= rows_max[set], "layer l%d has %d rows, at most %d said",
                    (int)i, (int)mine->rows, (int)rows_max[set]);
        FAIL_UNLESS(!memcmp(mine->shape, network->sets[set].shape, sizeof mine->shape),
                    "layer l%d has another shape than set %d", (int)i, (int)set);
    }
}

/* Features of one output, with the oracle's rows, which ascend by (sample, x, y, z) on
 * other sets than the request's. */
static void compare_output(const struct vx_random_request *request, i32 number,
                           const struct vx_network_oracle *oracle)
{
    const struct vx_network *network = oracle->input->network;
    const struct vx_network_output *output = &network->outputs[number];
    i32 c = vx_network_channels(network, output->layer);
    i64 rows = oracle->sets[output->layer]->rows;
    for (i64 j = 0; j < rows * c; j++) {
        f64 truth = oracle->values[output->layer][j];
        f64 bound = vx_network_oracle_output_bound(output->dtype, truth,
                                                   oracle->bounds[output->layer][j]);
        f64 got = output_get(request->item.outputs[number], output->dtype, j);
        FAIL_UNLESS(fabs(got - truth) <= bound, "%s[%d] of N=%d: %g, not %g: bound %g",
                    output->name, (int)j, (int)request->item.voxels, got, truth, bound);
    }
}

/* The number of a channel that is the largest, as far as the bounds tell. */
static void compare_labels(const struct vx_random_request *request, i32 number,
                           const struct vx_network_oracle *oracle)
{
    const struct vx_network *network = oracle->input->network;
    const struct vx_network_output *output = &network->outputs[number];
    const i32 input = network->layers[output->layer].inputs[0];
    const i32 c = vx_network_channels(network, input);
    const i32 *got = request->item.outputs[number];
    for (i64 row = 0; row < oracle->sets[output->layer]->rows; row++) {
        const f64 *x = oracle->values[input] + row * c;
        const f64 *e = oracle->bounds[input] + row * c;
        FAIL_UNLESS(got[row] >= 0 && got[row] < c, "%s[%d]: %d", output->name, (int)row,
                    (int)got[row]);
        for (i32 i = 0; i < c; i++)
            FAIL_UNLESS(x[got[row]] + e[got[row]] >= x[i] - e[i], "%s[%d]: %d, not %d",
                        output->name, (int)row, (int)got[row], (int)i);
    }
}

/* The values of the voxels at their places, and 0 at all others. */
static void compare_dense(const struct vx_random_request *request, i32 number,
                          const struct vx_network_oracle *oracle)
{
    const struct vx_network *network = oracle->input->network;
    const struct vx_network_output *output = &network->outputs[number];
    const struct vx_layer *layer = &network->layers[output->layer];
    const struct vx_oracle_set *set = oracle->sets[output->layer];
    const i64 plane = (i64)layer->shape[0] * layer->shape[1] * layer->shape[2];
    const i64 count = request->item.rows[number] * layer->channels * plane;
    u8 *there = vx_alloc_zero((size_t)count + 1);
    for (i64 j = 0; j < set->rows * layer->channels; j++) {
        const i32 *at = set->voxels[j / layer->channels];
        i64 place = (i64)at[0] * layer->channels + j % layer->channels;
        for (int axis = 0; axis < 3; axis++)
            place = place * layer->shape[axis] + at[axis + 1];
        ck_assert_int_lt(place, count);
        f64 truth = oracle->values[output->layer][j];
        f64 bound = vx_network_oracle_output_bound(output->dtype, truth,
                                                   oracle->bounds[output->layer][j]);
        f64 got = output_get(request->item.outputs[number], output->dtype, place);
        FAIL_UNLESS(fabs(got - truth) <= bound, "%s at %d: %g, not %g: bound %g",
                    output->name, (int)place, got, truth, bound);
        there[place] = 1;
    }
    for (i64 j = 0; j < count; j++)
        FAIL_UNLESS(there[j] ||
                        output_get(request->item.outputs[number], output->dtype, j) == 0,
                    "%s at %d: no voxel, and not 0", output->name, (int)j);
    vx_free(there);
}

/* 1 + the largest sample of the request. */
static i64 samples_of(const struct vx_network_oracle *oracle)
{
    i64 samples = 0;
    for (i64 i = 0; i < oracle->made[0].rows; i++)
        if (oracle->made[0].voxels[i][0] >= samples)
            samples = oracle->made[0].voxels[i][0] + 1;
    return samples;
}

static void compare_coords(const struct vx_random_request *request, i32 number,
                           const struct vx_oracle_set *set)
{
    const i32 *got = request->item.outputs[number];
    for (i64 j = 0; j < set->rows * 4; j++)
        FAIL_UNLESS(got[j] == set->voxels[j / 4][j % 4],
                    "coordinates %d, [%d] of N=%d: %d, not %d", (int)number, (int)j,
                    (int)request->item.voxels, (int)got[j],
                    (int)set->voxels[j / 4][j % 4]);
}

/* The pairs of all maps of the model's plan, and the voxels of all sets. */
static void compare_cost(const struct vx_item *item, const struct vx_model *model,
                         const struct vx_network_oracle *oracle)
{
    const struct vx_plan *plan = model->plan;
    const struct vx_oracle_cost cost =
        vx_network_oracle_cost(oracle, plan->maps, plan->maps_count);
    FAIL_UNLESS(item->pairs == cost.pairs && item->set_voxels == cost.set_voxels,
                "N=%d: %lld pairs and %lld voxels, not %lld and %lld", (int)item->voxels,
                (long long)item->pairs, (long long)item->set_voxels,
                (long long)cost.pairs, (long long)cost.set_voxels);
}

static void compare(const struct vx_random_request *request,
                    const struct vx_rig_files *files, const struct vx_model *model)
{
    const struct vx_network *network = files->network;
    const struct vx_item *item = &request->item;
    struct vx_network_oracle_input input;
    struct vx_network_oracle oracle;
    oracle_open(files, request, &input, &oracle);
    if (!oracle.unsure) check_sets(&oracle);
    if (!oracle.unsure) compare_cost(item, model, &oracle);
    for (i32 i = 0; i < network->outputs_count && !oracle.unsure; i++) {
        const struct vx_network_output *output = &network->outputs[i];
        const struct vx_oracle_set *set = oracle.sets[output->layer];
        i32 coords = network->outputs_count + output->coords;
        const enum vx_op op = network->layers[output->layer].op;
        bool dense = op == VX_OP_TO_DENSE, far = set != &oracle.made[0];
        bool asks = item->asks >> i & 1;
        i64 rows = dense ? samples_of(&oracle) : set->rows;
        FAIL_UNLESS(far || output->coords < 0, "%s has coordinates", output->name);
        FAIL_UNLESS(!asks || !item->voxels || item->rows[i] == rows,
                    "%s of N=%d: %d rows, not %d", output->name, (int)item->voxels,
                    (int)item->rows[i], (int)rows);
        if (item->outputs[i])
            (dense                ? compare_dense
             : op == VX_OP_ARGMAX ? compare_labels
                                  : compare_output)(request, i, &oracle);
        if (output->coords >= 0 && item->outputs[coords])
            compare_coords(request, coords, set);
    }
    vx_network_oracle_close(&oracle);
}

/* Runs the requests as one batch.  Places come at once, or when the batch cannot go on
 * without them. */
static void run(struct vx_engine *engine, struct vx_model *model,
                struct vx_random_request **requests, i32 count)
{
    struct vx_item items[BATCH];
    struct vx_batch batch = {.items = items, .items_count = count};
    struct vx_asked asked;
    for (i32 i = 0; i < count; i++) items[i] = requests[i]->item;
    vx_engine_submit(engine, model, &batch);
    for (i32 calls = 0; vx_engine_under_way(engine); calls++) {
        while (vx_engine_asked(engine, &asked)) {
            if (seed % 2) ck_assert_ptr_null(vx_engine_collect(engine, true));
            for (i32 i = 0; i < asked.count; i++) {
                vx_random_request_place(requests[asked.items[i]], &items[asked.items[i]]);
                vx_engine_place(engine, &batch, asked.items[i]);
            }
        }
        FAIL_UNLESS(calls <= 2 * count, "the batch does not end, %d calls", (int)calls);
        (void)vx_engine_collect(engine, true);
    }
    for (i32 i = 0; i < count; i++) requests[i]->item = items[i];
}

static void check_status(const struct vx_item *item)
{
    FAIL_UNLESS(!item->status.fault, "N=%d: %s", (int)item->voxels, item->why.text);
}

static void check_bits(const struct vx_random_request *first,
                       const struct vx_random_request *again, const char *when)
{
    FAIL_UNLESS(first->item.pairs == again->item.pairs &&
                    first->item.set_voxels == again->item.set_voxels,
                "N=%d: another cost %s", (int)first->item.voxels, when);
    for (i32 i = 0; i < VX_OUTPUTS_MAX; i++)
        FAIL_UNLESS(first->bytes[i] == again->bytes[i] &&
                        !memcmp(first->item.outputs[i] ? first->item.outputs[i] : "",
                                again->item.outputs[i] ? again->item.outputs[i] : "",
                                first->bytes[i]),
                    "output %d of N=%d has other bits %s", (int)i,
                    (int)first->item.voxels, when);
}

/* The same request again, and then in the middle of a batch. */
static void check_again(struct vx_model *model, const struct vx_random_network *network,
                        const struct vx_rig_files *files,
                        const struct vx_random_request *first)
{
    struct vx_random_request *requests[BATCH], *again;
    again = vx_random_request_open(network, seed, VOXELS);
    vx_rig_name(&again->item);
    run(vx_rig_engine, model, &again, 1);
    check_status(&again->item);
    check_bits(first, again, "from the cache");
    FAIL_UNLESS(files->network->sets_count == 1 || again->item.geometry_hit,
                "N=%d: the geometry was not kept", (int)again->item.voxels);
    requests[0] = vx_random_request_open(network, seed + 1, VOXELS_FEW);
    requests[1] = vx_random_request_open(network, seed, VOXELS);
    requests[2] = vx_random_request_open(network, seed + 2, seed % 4 ? VOXELS_FEW : 0);
    for (i32 i = 0; i < BATCH; i++) vx_rig_name(&requests[i]->item);
    run(vx_rig_engine, model, requests, BATCH);
    for (i32 i = 0; i < BATCH; i++) check_status(&requests[i]->item);
    check_bits(first, requests[1], "in a batch");
    compare(requests[0], files, model);
    compare(requests[2], files, model);
    for (i32 i = 0; i < BATCH; i++) vx_random_request_close(&requests[i]);
    vx_random_request_close(&again);
}

/* --- on the fake GPU --- */

/* The same network there: within the same bounds; again from the store, and in a batch
 * whose pieces come from the store and from the requests, with the same bits. */
static void check_gpu(const struct vx_random_network *network,
                      const struct vx_rig_files *files)
{
    struct vx_random_request *first, *kept, *requests[BATCH];
    struct vx_rig_load load = vx_gpu_rig_load_any(vx_rig_root);
    FAIL_UNLESS(!load.status.fault, "GPU: %s", load.why.text);
    first = vx_random_request_open(network, seed, VOXELS);
    kept = vx_random_request_open(network, seed, VOXELS);
    vx_rig_name(&kept->item);
    run(vx_gpu_rig_engine, load.model, &first, 1);
    run(vx_gpu_rig_engine, load.model, &kept, 1);
    check_status(&first->item);
    check_status(&kept->item);
    compare(first, files, load.model);
    check_bits(first, kept, "from another build on a GPU");
    for (i32 i = 0; i < BATCH; i++) {
        u64 mine = i == 1 ? seed : seed + 3 + (u64)i;
        requests[i] = vx_random_request_open(network, mine, i == 1 ? VOXELS : VOXELS_FEW);
        vx_rig_name(&requests[i]->item);
    }
    run(vx_gpu_rig_engine, load.model, requests, BATCH);
    for (i32 i = 0; i < BATCH; i++) check_status(&requests[i]->item);
    FAIL_UNLESS(requests[1]->item.geometry_hit, "N=%d: the store did not have it",
                (int)first->item.voxels);
    check_bits(first, requests[1], "from the store in a batch on a GPU");
    compare(requests[0], files, load.model);
    compare(requests[2], files, load.model);
    for (i32 i = 0; i < BATCH; i++) vx_random_request_close(&requests[i]);
    vx_random_request_close(&kept);
    vx_random_request_close(&first);
    vx_engine_unload(vx_gpu_rig_engine, &load.model);
}

static void check_signature(const struct vx_signature *signature,
                            const struct vx_random_network *network)
{
    i32 count = network->outputs_count + network->coords_count;
    FAIL_UNLESS(signature->outputs_count == count, "%d outputs in all",
                (int)signature->outputs_count);
    for (i32 i = 0; i < count; i++) {
        const struct vx_output *output = &signature->outputs[i];
        bool coords = i >= network->outputs_count;
        i32 expected = -1;
        for (i32 c = network->outputs_count; c < count && network->sets[i]; c++)
            if (network->sets[c] == network->sets[i]) expected = c;
        FAIL_UNLESS(output->channels == network->channels[i], "output %d: %d channels",
                    (int)i, (int)output->channels);
        bool whole = coords || network->labels[i];
        FAIL_UNLESS(whole == (output->dtype == VX_DTYPE_I32), "output %d: %s", (int)i,
                    vx_dtype_name(output->dtype));
        FAIL_UNLESS(output->coords == expected && !output->set == !network->sets[i],
                    "output %d: set %d, coordinates in %d", (int)i, (int)output->set,
                    (int)output->coords);
        bool dense = output->set == VX_OUTPUT_DENSE;
        FAIL_UNLESS(dense == (output->dims_count > 0), "output %d: %d dimensions", (int)i,
                    (int)output->dims_count);
        FAIL_UNLESS((output->set <= 0) == !output->stride[0], "output %d: stride '%s'",
                    (int)i, output->stride);
    }
}

static void check_seed(void)
{
    struct vx_random_network *network = vx_random_network_open(seed);
    vx_random_network_write(network, vx_rig_root);
    struct vx_rig_load load = vx_rig_load_any(vx_rig_root, 1);
    FAIL_UNLESS(!load.status.fault, "%s", load.why.text);
    struct vx_rig_files files = vx_rig_files_open(vx_rig_root);
    FAIL_UNLESS(files.network->outputs_count == network->outputs_count, "%d outputs",
                (int)files.network->outputs_count);
    check_signature(vx_model_signature(load.model), network);
    struct vx_random_request *first = vx_random_request_open(network, seed, VOXELS);
    vx_rig_name(&first->item);
    run(vx_rig_engine, load.model, &first, 1);
    check_status(&first->item);
    compare(first, &files, load.model);
    check_again(load.model, network, &files, first);
    check_gpu(network, &files);
    vx_random_request_close(&first);
    vx_rig_files_close(&files);
    vx_engine_unload(vx_rig_engine, &load.model);
    vx_random_network_close(&network);
}

START_TEST(random_networks)
{
    const char *kind = getenv("VX_BUILD_KIND"), *one = getenv("VX_SEED");
    i32 count = kind && strcmp(kind, "release") != 0 ? NETWORKS_SLOW : NETWORKS;
    if (one) count = _i ? 0 : 1;
    if (_i % 2) { /* then a few hundred rows are more tiles than are computed at once */
        vx_fake_set(&(struct vx_fake_settings){.processors = 1});
        vx_gpu_rig_reopen(VX_RIG_DEVICE_BYTES, NULL);
    }
    for (i32 i = 0; i < count; i++) {
        seed = one ? (u64)strtoull(one, NULL, 10) : (u64)_i * NETWORKS + (u64)i;
        check_seed();
    }
}
END_TEST

/* A bound as large as the values would pass any answer: of 100 outputs 85 have a bound of
 * a thousandth at most.  An answer of which the oracle is not sure is not compared: of 100
 * networks with logits 25 at most. */
START_TEST(bounds_are_sharp)
{
    i32 sharp = 0, all = 0, predicted = 0, unsure = 0;
    for (seed = 0; seed < 300; seed++) {
        struct vx_random_network *network = vx_random_network_open(seed);
        struct vx_random_request *request = vx_random_request_open(network, seed, VOXELS);
        struct vx_network_oracle_input input;
        struct vx_network_oracle oracle;
        vx_random_network_write(network, vx_rig_root);
        struct vx_rig_files files = vx_rig_files_open(vx_rig_root);
        oracle_open(&files, request, &input, &oracle);
        predicted += network->predicts;
        unsure += oracle.unsure;
        if (!oracle.unsure) check_sets(&oracle);
        for (i32 i = 0; i < network->outputs_count && !oracle.unsure; i++) {
            i32 layer = files.network->outputs[i].layer;
            i64 count =
                oracle.sets[layer]->rows * vx_network_channels(files.network, layer);
            if (files.network->layers[layer].op == VX_OP_ARGMAX) continue; /* exact */
            all++;
            if (!count) continue;
            f64 squares = 0, most = 0;
            for (i64 j = 0; j < count; j++) {
                squares += oracle.values[layer][j] * oracle.values[layer][j];
                most = fmax(most, oracle.bounds[layer][j]);
            }
            sharp += most <= 1e-3 * sqrt(squares / (f64)count);
        }
        vx_network_oracle_close(&oracle);
        vx_rig_files_close(&files);
        vx_random_request_close(&request);
        vx_random_network_close(&network);
    }
    ck_assert_msg(sharp * 100 >= all * 85, "%d of %d", (int)sharp, (int)all);
    ck_assert_msg(unsure * 100 <= predicted * 25, "%d of %d", (int)unsure,
                  (int)predicted);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("engine_levels");
    TCase *oracle = tcase_create("oracle"), *engine = tcase_create("engine");
    tcase_add_checked_fixture(oracle, vx_gpu_rig_set_up, vx_gpu_rig_tear_down);
    tcase_add_checked_fixture(engine, vx_gpu_rig_set_up, vx_gpu_rig_tear_down);
    tcase_set_timeout(oracle, 60);
    tcase_set_timeout(engine, 60);
    tcase_add_test(oracle, bounds_are_sharp);
    tcase_add_loop_test(engine, random_networks, 0, CHUNKS);
    suite_add_tcase(suite, oracle);
    suite_add_tcase(suite, engine);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
