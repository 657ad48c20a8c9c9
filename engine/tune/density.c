/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tune/density.h"

#include "engine/base/process/check.h"

#include <string.h>

#define EIGHTHS 8

static const struct {
    const char *name;
    f64 fill;
} densities[] = {
    [VX_DENSITY_SURFACE] = {"surface", 0.47},
    [VX_DENSITY_SPARSE] = {"sparse", 0.056}, /* 1.5 of 27 */
};
_Static_assert(VX_COUNT(densities) == VX_DENSITIES_COUNT, "a row for each class");

enum vx_density vx_density_of(f64 fill)
{
    return fill > 0 && fill < VX_DENSITY_SPARSE_BELOW ? VX_DENSITY_SPARSE
                                                      : VX_DENSITY_SURFACE;
}

const char *vx_density_name(enum vx_density density)
{
    VX_ASSERT((size_t)density < VX_COUNT(densities));
    return densities[density].name;
}

enum vx_density vx_density_of_name(const char *name)
{
    size_t i = 0;
    while (i < VX_COUNT(densities) && strcmp(densities[i].name, name) != 0) i++;
    return (enum vx_density)i;
}

f64 vx_density_fill(enum vx_density density)
{
    VX_ASSERT((size_t)density < VX_COUNT(densities));
    return densities[density].fill;
}

i32 vx_density_eighth(enum vx_density density)
{
    return (i32)(vx_density_fill(density) * EIGHTHS);
}
