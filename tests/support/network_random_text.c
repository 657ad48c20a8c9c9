/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/network_random_parts.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define JSON_BYTES   (32 << 10)
#define TENSORS_MAX  (4 * VX_RANDOM_LAYERS_MAX)
#define TENSOR_BYTES 32 /* of a tensor's name */

i32 vx_grammar_below(struct vx_grammar *g, i32 count)
{
    return (i32)(vx_test_next(&g->random) % (u64)count);
}

bool vx_grammar_chance(struct vx_grammar *g, i32 percent)
{
    return vx_grammar_below(g, 100) < percent;
}

const struct vx_grammar_layer *vx_grammar_at(const struct vx_grammar *g, i32 value)
{
    return value == VX_GRAMMAR_FEATS ? &g->feats : &g->layers[value];
}

void vx_grammar_say(struct vx_grammar *g, const char *format, ...)
{
    struct vx_random_network *network = g->network;
    if (!network->json) network->json = vx_alloc_zero(JSON_BYTES);
    VX_ASSERT(network->json);
    va_list list;
    va_start(list, format);
    int bytes = vsnprintf(network->json + g->json_bytes, JSON_BYTES - g->json_bytes,
                          format, list);
    va_end(list);
    g->json_bytes += (size_t)bytes;
    VX_ASSERT(g->json_bytes < JSON_BYTES);
}

/* One number where all axes are equal, sometimes. */
void vx_grammar_say_axes(struct vx_grammar *g, const char *key, const i32 axes[3])
{
    bool equal = axes[0] == axes[1] && axes[1] == axes[2];
    if (equal && vx_grammar_chance(g, 60))
        vx_grammar_say(g, ",\"%s\":%d", key, axes[0]);
    else
        vx_grammar_say(g, ",\"%s\":[%d,%d,%d]", key, axes[0], axes[1], axes[2]);
}

static void say_value(struct vx_grammar *g, const char *before, i32 value)
{
    if (value == VX_GRAMMAR_FEATS)
        vx_grammar_say(g, "%s\"feats\"", before);
    else
        vx_grammar_say(g, "%s\"l%d\"", before, value);
}

void vx_grammar_begin(struct vx_grammar *g, const char *op, const i32 *inputs, i32 count)
{
    i32 self = g->layers_count;
    VX_ASSERT(self < VX_RANDOM_LAYERS_MAX);
    g->layers[self] = (struct vx_grammar_layer){.input = inputs[0]};
    vx_grammar_say(g, "%s{\"name\":\"l%d\",\"op\":\"%s\",", self ? ",\n" : "", self, op);
    if (count == 1) {
        say_value(g, "\"input\":", inputs[0]);
        return;
    }
    for (i32 i = 0; i < count; i++) say_value(g, i ? "," : "\"inputs\":[", inputs[i]);
    vx_grammar_say(g, "]");
}

i32 vx_grammar_end(struct vx_grammar *g, i32 set, i32 channels, bool positive)
{
    struct vx_grammar_layer *layer = &g->layers[g->layers_count];
    layer->set = set;
    layer->channels = channels;
    layer->positive = positive;
    vx_grammar_say(g, "}");
    return g->layers_count++;
}

void vx_grammar_tensor(struct vx_grammar *g, const struct vx_grammar_tensor *tensor)
{
    static const char *const dtypes[] = {"F32", "F32", "F16", "BF16"};
    struct vx_random_network *network = g->network;
    size_t tensors = TENSORS_MAX * sizeof *network->tensors, count = 1;
    if (!network->tensors) network->tensors = vx_alloc_zero(tensors);
    VX_ASSERT(network->tensors_count < TENSORS_MAX);
    struct vx_test_tensor *made = &network->tensors[network->tensors_count++];
    char *name = vx_alloc_zero(TENSOR_BYTES);
    (void)snprintf(name, TENSOR_BYTES, "l%d.%s", g->layers_count, tensor->role);
    *made = (struct vx_test_tensor){
        .name = name, .dtype = dtypes[vx_grammar_below(g, 4)], .rank = tensor->rank};
    for (i32 i = 0; i < tensor->rank; i++) {
        made->shape[i] = tensor->shape[i];
        count *= (size_t)tensor->shape[i];
    }
    f32 *values = vx_alloc(count * sizeof *values);
    VX_ASSERT(values);
    vx_test_fill(&g->random, values, count, tensor->low, tensor->high);
    made->values = values;
}
