/* The algorithms: their names, and the order in which each sums.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/check.h"
#include "engine/gpu/conv/conv.h"

#include <string.h>

/* How a layer is summed where it is not in a chain.  Numbers of 8 bits by planes, because they
 * are multiplied twice as fast, so that partial sums cost twice as much: 15,192 rows of 1024
 * channels take 519 us, by columns 746 (H200). */
static enum vx_conv_order order_split(const struct vx_conv_problem *problem)
{
    const bool few = problem->ci < VX_CONV_SPLIT_CHANNELS;
    return few || problem->type == VX_NUMBER_E4M3 ? VX_CONV_ORDER_PLANES
                                                  : VX_CONV_ORDER_COLUMNS;
}

i32 vx_conv_groups(const struct vx_conv_problem *problem,
                   enum vx_conv_algorithm algorithm)
{
    const i32 planes = problem->kernel[0];
    switch (algorithm) {
    case VX_CONV_IMPLICIT_SPLIT:
    case VX_CONV_MASKED_SPLIT:
        return order_split(problem) == VX_CONV_ORDER_PLANES ? planes
                                                            : planes * problem->kernel[1];
    case VX_CONV_PAIRS_LIST: return problem->v;
    default: return 1;
    }
}

enum vx_conv_order vx_conv_order_of(const struct vx_conv_problem *problem)
{
    const bool wide = vx_number_bytes(problem->type) == 4;
    const i32 from = wide ? VX_CONV_SPLIT_CHANNELS_32 : VX_CONV_SPLIT_CHANNELS;
    const bool split = vx_conv_groups(problem, VX_CONV_MASKED_SPLIT) > 1;
    return problem->ci >= from && split ? order_split(problem) : VX_CONV_ORDER_CHAIN;
}

bool vx_conv_exact(const struct vx_conv_problem *problem,
                   enum vx_conv_algorithm algorithm)
{
    bool chain = vx_conv_order_of(problem) == VX_CONV_ORDER_CHAIN;
    switch (algorithm) {
    case VX_CONV_IMPLICIT:
    case VX_CONV_MASKED: return chain;
    case VX_CONV_IMPLICIT_SPLIT:
    case VX_CONV_MASKED_SPLIT: return !chain;
    default: return false;
    }
}

bool vx_conv_sorted(enum vx_conv_algorithm algorithm)
{
    return algorithm == VX_CONV_MASKED || algorithm == VX_CONV_MASKED_SPLIT;
}

static const char *const names[VX_CONV_ALGORITHMS_COUNT] = {
    [VX_CONV_AUTO] = "auto",
    [VX_CONV_EXPLICIT] = "explicit",
    [VX_CONV_IMPLICIT] = "implicit",
    [VX_CONV_MASKED] = "masked",
    [VX_CONV_IMPLICIT_SPLIT] = "implicit_split",
    [VX_CONV_MASKED_SPLIT] = "masked_split",
    [VX_CONV_PAIRS_LIST] = "pairs_list",
};

const char *vx_conv_name(enum vx_conv_algorithm algorithm)
{
    VX_ASSERT(algorithm < VX_CONV_ALGORITHMS_COUNT);
    return names[algorithm];
}

enum vx_conv_algorithm vx_conv_of_name(const char *name)
{
    for (i32 i = 0; i < VX_CONV_ALGORITHMS_COUNT; i++)
        if (!strcmp(names[i], name)) return (enum vx_conv_algorithm)i;
    return VX_CONV_ALGORITHMS_COUNT;
}
