/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/model/model_taken.h"

#include "engine/base/process/check.h"
#include "engine/gpu/model/model_mlp.h"

#include <stdio.h>

/* A key: density, algorithm, tile.  What is no choice has a number behind the algorithms. */
enum { GROUPS = VX_CONV_ALGORITHMS_COUNT, MLP, NARROW };
#define TILE_BITS      12
#define ALGORITHM_BITS 8

static u32 key_of(u32 density, u32 algorithm, u32 tile)
{
    VX_ASSERT(tile < 1u << TILE_BITS);
    VX_ASSERT(algorithm < 1u << ALGORITHM_BITS);
    return (density << ALGORITHM_BITS | algorithm) << TILE_BITS | tile;
}

static void print_how(const void *context, u32 key, char text[VX_TAKEN_HOW_BYTES])
{
    const u32 tile = key & ((1u << TILE_BITS) - 1);
    const u32 algorithm = key >> TILE_BITS & ((1u << ALGORITHM_BITS) - 1);
    const u32 density = key >> (TILE_BITS + ALGORITHM_BITS);
    (void)context;
    if (algorithm >= VX_CONV_ALGORITHMS_COUNT) {
        static const char *const names[] = {"groups", "mlp", "narrow"};
        snprintf(text, VX_TAKEN_HOW_BYTES, "%s", names[algorithm - GROUPS]);
        return;
    }
    const struct vx_kernel_spec *spec = vx_conv_spec((enum vx_conv_algorithm)algorithm);
    int used = snprintf(text, VX_TAKEN_HOW_BYTES, "%s",
                        vx_conv_name((enum vx_conv_algorithm)algorithm));
    for (i32 i = 0; spec->tiles && i < spec->macros_count; i++)
        used += snprintf(text + used, VX_TAKEN_HOW_BYTES - (size_t)used, "%s%d",
                         i ? "," : "[", spec->tiles[tile].values[i]);
    used += snprintf(text + used, VX_TAKEN_HOW_BYTES - (size_t)used, "%s%s%s",
                     spec->tiles ? "]" : "", density ? " " : "",
                     density ? vx_density_name((enum vx_density)density) : "");
    VX_ASSERT(used < VX_TAKEN_HOW_BYTES);
}

static u32 density_of(const struct vx_gpu_forward *forward, i32 map)
{
    const i32 followed = map >= 0 ? forward->choices->follows[map] : -1;
    return followed >= 0 ? forward->places->densities.of[followed] : 0;
}

/* The key of a product; false: the launch is none, or has no rows. */
static bool launch_key(const struct vx_gpu_forward *forward, i32 index, u32 *key)
{
    const struct vx_gpu_choices *choices = forward->choices;
    const struct vx_launch *launch = &choices->plan->launches[index];
    if (!forward->places->rows[launch->set]) return false;
    if (vx_op_is_conv(launch->op) && launch->node->layer->groups > 1) {
        *key = key_of(0, GROUPS, 0);
        return true;
    }
    if (choices->narrow[index]) {
        *key = key_of(0, NARROW, 0);
        return true;
    }
    if (!vx_gpu_is_conv(choices, index)) return false;
    const struct vx_conv_choice *choice =
        vx_gpu_choice_of(choices, forward->places, index);
    *key = key_of(density_of(forward, launch->map), (u32)choice->algorithm,
                  (u32)choice->tile);
    return true;
}

void vx_gpu_taken_print(const struct vx_gpu_forward *forward, struct vx_taken *taken)
{
    const struct vx_plan *plan = forward->choices->plan;
    const struct vx_taken_how how = {print_how, NULL};
    struct vx_taken_layer layers[VX_LAYERS_MAX];
    i32 count = 0;
    for (i32 i = 0, run; i < plan->launches_count; i += run) {
        run = vx_gpu_mlp_count(forward, i);
        for (i32 k = i; k < i + run; k++) {
            u32 key;
            if (!launch_key(forward, k, &key)) continue;
            if (run > 1) key = key_of(0, MLP, 0);
            layers[count++] =
                (struct vx_taken_layer){plan->launches[k].node->layer->name, key};
        }
    }
    vx_taken_print(layers, count, &how, taken);
}
