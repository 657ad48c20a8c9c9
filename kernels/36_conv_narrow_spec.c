/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/36_conv_narrow.h"
#include "kernels/kernel.h"

extern const struct vx_kernel_spec vx_conv_narrow_spec;

void vx_conv_narrow_ref(const void *args, enum vx_number type);

static const char *const macros[] = {"VX_SLOT", "VX_OFFSETS"};
enum { SLOT, OFFSETS, MACROS };

static const struct vx_tile tiles[] = {{{4, 32}}, {{4, 128}}, {{8, 32}}, {{8, 128}}};

static int32_t threads(const struct vx_tile *tile)
{
    (void)tile;
    return VX_NARROW_THREADS;
}

static int32_t shared(const struct vx_tile *tile, enum vx_number type)
{
    return tile->values[OFFSETS] * tile->values[SLOT] * VX_NARROW_COLUMNS *
           vx_number_bytes(type);
}

/* MFMA of every type, WMMA of two (matrix.cuh). */
static bool multiplies(enum vx_number type, int32_t arch)
{
    if (arch < VX_ARCH_AMD) return arch >= 80;
    if (arch >= 110000 && arch < 130000) return vx_number_bytes(type) == 2;
    return arch == 90010 || (arch >= 90400 && arch <= 90402) || arch == 90500;
}

static bool fits(const struct vx_tile *tile, enum vx_number type,
                 const struct vx_caps *caps)
{
    return multiplies(type, caps->arch) && shared(tile, type) <= caps->shared_block;
}

static struct vx_grid grid(const struct vx_tile *tile, const void *args_given)
{
    const struct vx_conv_narrow_args *args = args_given;
    (void)tile;
    return (struct vx_grid){
        (uint32_t)vx_conv_narrow_blocks(args),
        (uint32_t)((args->cp + VX_NARROW_COLUMNS - 1) / VX_NARROW_COLUMNS), 1};
}

const struct vx_tile *vx_conv_narrow_tile(int32_t ci, int32_t v, enum vx_number type,
                                          const struct vx_caps *caps)
{
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++)
        if (ci <= tiles[i].values[SLOT] && v <= tiles[i].values[OFFSETS] &&
            fits(&tiles[i], type, caps))
            return &tiles[i];
    return NULL;
}

const struct vx_kernel_spec vx_conv_narrow_spec = {
    .name = "conv_narrow",
    .source = "36_conv_narrow.cu",
    .macros = macros,
    .macros_count = MACROS,
    .tiles = tiles,
    .tiles_count = sizeof tiles / sizeof tiles[0],
    .types = 1u << VX_NUMBER_F16 | 1u << VX_NUMBER_BF16 | 1u << VX_NUMBER_TF32,
    .args_bytes = sizeof(struct vx_conv_narrow_args),
    .threads = threads,
    .shared = shared,
    .fits = fits,
    .grid = grid,
    .ref = vx_conv_narrow_ref,
};
