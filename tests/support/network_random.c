/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/network_random_parts.h"

#include "engine/base/limits.h"
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"

#include <string.h>

#define DEPTH_MAX 6
/* Numbers of a dense output for one sample, of which a request may have 512. */
#define DENSE_MAX 600
/* A head from far below copies over so many voxels at most, along an axis. */
#define HEAD_STRIDE_MAX 8

/* Layers that may still come, if each open level still needs three to close it. */
static i32 left(const struct vx_grammar *g, i32 depth)
{
    return g->wanted - g->layers_count - 3 * depth;
}

/* Up to three layers on the set of x. */
static i32 some(struct vx_grammar *g, i32 x, i32 depth)
{
    for (i32 i = vx_grammar_below(g, 4); i > 0 && left(g, depth) > 0; i--)
        x = vx_grammar_same(g, x);
    return x;
}

static i32 stage(struct vx_grammar *g, i32 x, i32 depth);

/* A head: straight from a coarse set onto set 0. */
static void add_head(struct vx_grammar *g, i32 y)
{
    const struct vx_grammar_set *set = &g->sets[vx_grammar_at(g, y)->set];
    if (g->heads_count == VX_RANDOM_HEADS_MAX - 1) return;
    for (int axis = 0; axis < 3; axis++)
        if (set->up[axis] > 1 || set->down[axis] > HEAD_STRIDE_MAX) return;
    if (set->down[0] * set->down[1] * set->down[2] > VX_KERNEL_OFFSETS_MAX) return;
    i32 head = vx_grammar_onto(g, y, 0, set->down);
    if (head >= 0) g->heads[g->heads_count++] = head;
}

/* Down to a coarser set, some levels there, and up again. */
static i32 trip_down(struct vx_grammar *g, i32 x, i32 depth)
{
    i32 down = vx_grammar_down(g, x), y = down;
    if (left(g, depth) > 3 && vx_grammar_chance(g, 20)) {
        i32 beside = vx_grammar_beside(g, down);
        if (beside >= 0) y = vx_grammar_join(g, down, beside);
    }
    y = stage(g, y, depth + 1);
    if (left(g, depth) > 3 && vx_grammar_chance(g, 15)) add_head(g, y);
    i32 up = vx_grammar_up(g, y, down);
    return vx_grammar_chance(g, 75) ? vx_grammar_join(g, up, x) : up;
}

/* To a finer set and back: -1 when the finer set would have too many voxels. */
static i32 trip_finer(struct vx_grammar *g, i32 x, i32 depth)
{
    static const i32 one[3] = {1, 1, 1};
    i32 set = vx_grammar_at(g, x)->set, stride[3];
    for (int axis = 0; axis < 3; axis++)
        stride[axis] = g->network->flat[axis] ? 1 : 1 + vx_grammar_below(g, 3);
    if (vx_grammar_on(g, set) < 0) return -1;
    i32 y = vx_grammar_expand(g, x, stride);
    if (y < 0) return -1;
    if (left(g, depth) > 4 && vx_grammar_chance(g, 40)) y = stage(g, y, depth + 1);
    y = vx_grammar_down_by(g, y, stride);
    return vx_grammar_onto(g, y, set, one);
}

/* To some of the voxels and back: the others then are 0. */
static i32 trip_pruned(struct vx_grammar *g, i32 x, i32 depth)
{
    static const i32 one[3] = {1, 1, 1};
    i32 set = vx_grammar_at(g, x)->set;
    if (vx_grammar_on(g, set) < 0) return -1;
    i32 y = vx_grammar_prune(g, x);
    if (left(g, depth) > 10 && vx_grammar_chance(g, 60)) y = vx_grammar_squeeze(g, y);
    y = left(g, depth) > 4 && vx_grammar_chance(g, 40) ? stage(g, y, depth + 1)
                                                       : some(g, y, depth);
    return vx_grammar_onto(g, y, set, one);
}

/* To the voxels in which the rows of x lie as points, and back. */
static i32 trip_points(struct vx_grammar *g, i32 x, i32 depth)
{
    i32 set = vx_grammar_at(g, x)->set;
    if (set && vx_grammar_on(g, set) < 0) return -1;
    if (g->sets[set].rule == VX_SET_SAMPLES) return -1;
    i32 y = vx_grammar_voxelize(g, x);
    y = left(g, depth) > 4 && vx_grammar_chance(g, 50) ? stage(g, y, depth + 1)
                                                       : some(g, y, depth);
    return vx_grammar_devoxelize(g, y, set);
}

/* Layers on the set of x, and trips to other sets between them. */
static i32 stage(struct vx_grammar *g, i32 x, i32 depth)
{
    x = some(g, x, depth);
    while (left(g, depth) >= 4 && depth < DEPTH_MAX && vx_grammar_chance(g, 85)) {
        bool predicts = g->network->predicts;
        i32 made = -1;
        if (g->network->points && vx_grammar_chance(g, 45))
            made = trip_points(g, x, depth);
        if (made < 0 && vx_grammar_chance(g, predicts ? 50 : 25))
            made = trip_finer(g, x, depth);
        if (made < 0 && predicts && vx_grammar_chance(g, 50))
            made = trip_pruned(g, x, depth);
        x = some(g, made >= 0 ? made : trip_down(g, x, depth), depth);
    }
    return x;
}

/* The number of the coordinates of a set that is not 0; new ones may get a name. */
static i32 coords_of(struct vx_random_network *network, i32 set, bool *is_new)
{
    i32 at = network->outputs_count;
    while (at < network->outputs_count + network->coords_count &&
           network->sets[at] != set)
        at++;
    *is_new = at == network->outputs_count + network->coords_count;
    if (*is_new) network->coords_count++;
    network->sets[at] = set;
    network->channels[at] = 4;
    return at;
}

/* Numbers of a dense tensor of the layer for one sample; 0: it has no small shape. */
static i32 dense_numbers(const struct vx_grammar *g, i32 value)
{
    const struct vx_grammar_layer *layer = vx_grammar_at(g, value);
    i64 numbers = layer->channels;
    for (int axis = 0; axis < 3 && numbers <= DENSE_MAX; axis++)
        numbers *= g->sets[layer->set].shape[axis];
    return numbers <= DENSE_MAX ? (i32)numbers : 0;
}

/* Puts one of the ops that only outputs read behind the layer of an output, or neither. */
static i32 say_last(struct vx_grammar *g, i32 value)
{
    const struct vx_grammar_layer input = *vx_grammar_at(g, value);
    if (input.last != VX_GRAMMAR_PLAIN || !vx_grammar_chance(g, 30)) return value;
    bool dense = dense_numbers(g, value) && vx_grammar_chance(g, 70);
    vx_grammar_begin(g, dense ? "to_dense" : "argmax", &value, 1);
    if (dense && vx_grammar_chance(g, 50)) /* else it is that of the set */
        vx_grammar_say_axes(g, "shape", g->sets[input.set].shape);
    if (dense && vx_grammar_chance(g, 40)) vx_grammar_say(g, ",\"fold\":true");
    i32 made = vx_grammar_end(g, input.set, dense ? input.channels : 1, false);
    g->layers[made].last = dense ? VX_GRAMMAR_DENSE : VX_GRAMMAR_ARGMAX;
    return made;
}

static void say_output(struct vx_grammar *g, i32 value, i32 number)
{
    static const char *const dtypes[] = {"FP32", "FP32", "FP16", "BF16"};
    struct vx_random_network *network = g->network;
    i32 set = vx_grammar_at(g, value)->set;
    const enum vx_grammar_last last = vx_grammar_at(g, value)->last;
    bool is_new = false;
    network->channels[number] = vx_grammar_at(g, value)->channels;
    network->sets[number] = set;
    network->labels[number] = last == VX_GRAMMAR_ARGMAX;
    if (last == VX_GRAMMAR_DENSE) {
        network->channels[number] = dense_numbers(g, value);
        network->sets[number] = VX_OUTPUT_DENSE;
        set = 0; /* has no coordinates */
    }
    vx_grammar_say(g, "%s{\"layer\":\"l%d\",\"name\":\"out%d\"", number ? "," : "", value,
                   number);
    if (set) coords_of(network, set, &is_new);
    if (is_new && vx_grammar_chance(g, 50))
        vx_grammar_say(g, ",\"coords\":\"xyz%d\"", set);
    const char *dtype = dtypes[vx_grammar_below(g, 4)];
    if (last == VX_GRAMMAR_ARGMAX) dtype = "INT32";
    vx_grammar_say(g, ",\"datatype\":\"%s\"}", dtype);
}

static void say_outputs(struct vx_grammar *g, i32 last)
{
    i32 values[VX_RANDOM_OUTPUTS_MAX] = {last}, count = 1;
    for (i32 i = 0; i < g->heads_count; i++) values[count++] = g->heads[i];
    while (count < VX_RANDOM_HEADS_MAX && vx_grammar_chance(g, 30))
        values[count++] = vx_grammar_on(g, 0);
    /* More outputs than heads lie anywhere. */
    while (count < VX_RANDOM_OUTPUTS_MAX && vx_grammar_chance(g, 45))
        values[count++] = vx_grammar_below(g, g->layers_count);
    g->network->outputs_count = count;
    for (i32 i = 0; i < count; i++)
        if (g->layers_count < VX_RANDOM_LAYERS_MAX) values[i] = say_last(g, values[i]);
    vx_grammar_say(g, "],\n\"outputs\":[");
    for (i32 i = 0; i < count; i++) say_output(g, values[i], i);
    vx_grammar_say(g, "],\n\"limits\":{\"voxels_max\":%d}}\n",
                   (int)g->network->voxels_max);
}

static void pick_space(struct vx_grammar *g)
{
    static const i64 voxels[] = {1, 8, 30, 90, 90, 300, 300};
    struct vx_random_network *network = g->network;
    bool shaped = vx_grammar_chance(g, 45), far = vx_grammar_chance(g, 10);
    network->voxels_max = voxels[vx_grammar_below(g, 7)];
    if (vx_grammar_chance(g, 20)) network->flat[vx_grammar_below(g, 3)] = true;
    for (int axis = 0; axis < 3 && shaped; axis++) {
        network->shape[axis] = 2 + vx_grammar_below(g, 20);
        if (network->flat[axis]) network->shape[axis] = 1 + vx_grammar_below(g, 2);
        if (far) network->shape[axis] = VX_AXIS_MAX + 1 - vx_grammar_below(g, 3);
    }
}

static void say_inputs(struct vx_grammar *g)
{
    const struct vx_random_network *network = g->network;
    vx_grammar_say(
        g, "{\"format\":1,\"precision\":\"fp32\",\"description\":\"seed %llu, %s\",\n",
        (unsigned long long)network->seed,
        network->positive ? "positive" : "of both signs");
    vx_grammar_say(g, "\"inputs\":{");
    if (network->shape[0]) {
        vx_grammar_say(g, "\"coords\":{\"name\":\"coords\"");
        vx_grammar_say_axes(g, "spatial_shape", network->shape);
        vx_grammar_say(g, "},");
    }
    vx_grammar_say(g, "\"feats\":{\"channels\":%d}},\n\"layers\":[\n",
                   network->feats_channels);
}

struct vx_random_network *vx_random_network_open(u64 seed)
{
    struct vx_random_network *network = vx_alloc_zero(sizeof *network);
    struct vx_grammar *g = vx_alloc_zero(sizeof *g);
    VX_ASSERT(network && g);
    g->network = network;
    g->random.state = seed * UINT64_C(0x2545f4914f6cdd1d) + 1;
    network->seed = seed;
    network->predicts = seed % 4 == 3;
    network->points = seed % 9 == 4;
    network->positive = vx_grammar_chance(g, 60);
    network->feats_channels = 1 + vx_grammar_below(g, 6);
    pick_space(g);
    say_inputs(g);
    g->feats = (struct vx_grammar_layer){.channels = network->feats_channels,
                                         .positive = network->positive};
    g->sets_count = 1;
    g->sets[0] = (struct vx_grammar_set){.down = {1, 1, 1}, .up = {1, 1, 1}};
    g->sets[0].rows_max = network->voxels_max;
    memcpy(g->sets[0].shape, network->shape, sizeof network->shape);
    g->wanted = 2 + vx_grammar_below(g, network->positive ? 20 : 14);
    i32 x = VX_GRAMMAR_FEATS;
    while (g->layers_count < g->wanted - 1) x = vx_grammar_same(g, stage(g, x, 0));
    if (x == VX_GRAMMAR_FEATS || g->layers_count < 2) x = vx_grammar_same(g, x);
    say_outputs(g, x);
    vx_free(g);
    return network;
}

void vx_random_network_close(struct vx_random_network **network)
{
    for (size_t i = 0; i < (*network)->tensors_count; i++) {
        vx_free((void *)(uintptr_t)(*network)->tensors[i].name);
        vx_free((void *)(uintptr_t)(*network)->tensors[i].values);
    }
    vx_free((*network)->tensors);
    vx_free((*network)->json);
    vx_free(*network);
    *network = NULL;
}

void vx_random_network_write(const struct vx_random_network *network,
                             const char *directory)
{
    vx_test_write_model(directory, 1, network->json, network->tensors,
                        network->tensors_count);
}
