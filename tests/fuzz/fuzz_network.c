/* Any bytes as network.json: no crash; what is accepted can be fused and planned, and its
 * shapes are inside the limits.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/text/json.h"
#include "engine/plan/plan.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t bytes);

/* Enough for what libFuzzer sends; a real file gets VX_NETWORK_ARENA_BYTES. */
#define ARENA_BYTES (8 << 20)

static void check_network(const struct vx_network *network, struct vx_arena *arena)
{
    static const struct vx_fuse_options all = {.fold_norms = true,
                                               .fuse_activations = true};
    const struct vx_graph *graph;
    const struct vx_plan *plan;
    VX_ASSERT(network->outputs_count >= 1);
    for (i32 i = 0; i < network->layers_count; i++) {
        const struct vx_layer *layer = &network->layers[i];
        VX_ASSERT(layer->channels >= 1);
        VX_ASSERT(layer->channels <= VX_CHANNELS_MAX);
        VX_ASSERT(layer->channels_in >= 1);
        VX_ASSERT(vx_layer_parameters(layer) >= 0);
        for (i32 j = 0; j < layer->inputs_count; j++) VX_ASSERT(layer->inputs[j] < i);
        VX_ASSERT(layer->v <= VX_KERNEL_OFFSETS_MAX);
        VX_ASSERT(layer->set >= 0 && layer->set < network->sets_count);
    }
    for (i32 i = 0; i < network->warmup_count; i++)
        VX_ASSERT(network->warmup[i] <= network->voxels_max);
    vx_status status = vx_fuse_build(network, &all, arena, &graph);
    if (status.fault) return;
    VX_ASSERT(graph->nodes_count <= network->layers_count);
    status = vx_plan_build(graph, &vx_plan_cpu, arena, &plan);
    if (status.fault) return;
    VX_ASSERT(plan->channels[0] >= network->feats_channels);
    VX_ASSERT(vx_plan_bytes_max(plan, 1) > 0);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t bytes)
{
    static u8 *block;
    struct vx_arena arena;
    struct vx_why why = {{0}};
    const struct vx_network *network;
    if (!block) block = vx_alloc(ARENA_BYTES);
    if (!block || vx_json_arena_bytes(bytes) > ARENA_BYTES / 2) return 0;
    vx_arena_init(&arena, block, ARENA_BYTES);
    struct vx_network_text source = {(const char *)data, bytes, "m/network.json"};
    vx_status status = vx_network_parse(&source, &arena, &why, &network);
    if (status.fault) VX_ASSERT(why.text[0]);
    if (!status.fault) check_network(network, &arena);
    return 0;
}
