/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/33_mlp.h"
#include "kernels/kernel.h"

extern const struct vx_kernel_spec vx_mlp_spec;

void vx_mlp_ref(const void *args, enum vx_number type);

static const char *const macros[] = {"VX_MLP_CI", "VX_TILE_CO", "VX_STAGES"};
enum { CI, CO, STAGES, MACROS };

/* The widest rows and the ring fill shared memory: two stages are in work, two are on their
 * way. */
static const struct vx_tile tiles[] = {
    {{128, 128, 6}},
    {{256, 256, 4}},
};

/* Bytes of 64 channels of a row, of its mean and scale, and of the barriers. */
#define LINE     128
#define NORM     8
#define BARRIERS 256

static int32_t threads(const struct vx_tile *tile)
{
    (void)tile;
    return 384;
}

/* The rows of a tile, the ring of weights, and the hidden columns' biases; with the widest
 * tile all of a processor's memory. */
static int32_t shared(const struct vx_tile *tile, enum vx_number type)
{
    const int32_t *t = tile->values;
    const int32_t up = t[CI] / 64 * VX_MLP_HIDDEN * LINE, down = t[CO] * LINE;
    (void)type;
    return t[CI] / 64 * VX_MLP_ROWS * LINE + t[STAGES] * (up > down ? up : down) +
           VX_MLP_ROWS * NORM + BARRIERS + VX_MLP_HIDDEN_MAX * (int32_t)sizeof(float);
}

static bool fits(const struct vx_tile *tile, enum vx_number type,
                 const struct vx_caps *caps)
{
    return caps->arch == 90 && vx_number_bytes(type) == 2 &&
           shared(tile, type) <= caps->shared_block;
}

static struct vx_grid grid(const struct vx_tile *tile, const void *args_given)
{
    const struct vx_mlp_args *args = args_given;
    int64_t count = (args->down.n + VX_MLP_ROWS - 1) / VX_MLP_ROWS;
    (void)tile;
    if (count > args->down.blocks) count = args->down.blocks;
    return (struct vx_grid){(uint32_t)count, 1, 1};
}

const struct vx_tile *vx_mlp_tile(int32_t ci, int32_t hidden, int32_t co)
{
    if (ci <= VX_MLP_NARROW) return NULL;
    if (hidden % VX_MLP_HIDDEN || hidden > VX_MLP_HIDDEN_MAX) return NULL;
    for (size_t i = 0; i < sizeof tiles / sizeof tiles[0]; i++)
        if (ci <= tiles[i].values[CI] && co <= tiles[i].values[CO]) return &tiles[i];
    return NULL;
}

const struct vx_kernel_spec vx_mlp_spec = {
    .name = "mlp",
    .source = "33_mlp.cu",
    /* The products up end where the channels end, and nothing waits for all of them but the last
     * group, which is that of the products down. */
    .may_commit_apart = true,
    .macros = macros,
    .macros_count = MACROS,
    .tiles = tiles,
    .tiles_count = sizeof tiles / sizeof tiles[0],
    .types = 1u << VX_NUMBER_F16 | 1u << VX_NUMBER_BF16,
    .turn = VX_TURN_PLAIN,
    .args_bytes = sizeof(struct vx_mlp_args),
    .threads = threads,
    .shared = shared,
    .fits = fits,
    .grid = grid,
    .ref = vx_mlp_ref,
};
