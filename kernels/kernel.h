/* kernel - what the host knows of one device kernel: text, tiles, grid, reference.
 *
 * A kernel is four files: `NN_name.cu`, device code in the common subset of C and C++;
 * `NN_name.h`, its argument struct; `NN_name_ref.c`, its reference over the same struct;
 * and `NN_name_spec.c`, its description as defined here.  What may be tuned is a macro
 * of the text, and a tile gives each macro a value; what depends on the request is a
 * field of the arguments.  The functions of a spec are pure: tests call them, and tiles
 * are chosen, on machines without a GPU.
 *
 * Owner    static data.
 * Thread   any.
 * Limits   VX_TILE_VALUES_MAX macros to a tile.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_KERNEL_H
#define VX_KERNELS_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/number.h"

/* Macros of the largest search space, a convolution's. */
#define VX_TILE_VALUES_MAX 8

/* One point of a kernel's search space: the values of its macros, in their order. */
struct vx_tile {
    int32_t values[VX_TILE_VALUES_MAX];
};

struct vx_grid {
    uint32_t x, y, z; /* blocks; any of them 0 = nothing to launch */
};

/* Architectures of AMD are numbers from here on. */
#define VX_ARCH_AMD 10000

/* What a device can do.  Read once from the driver; to compile without a device, taken
 * from a table by architecture. */
struct vx_caps {
    int32_t arch;             /* CUDA: 10 * major + minor: 80, 86, 89, 90, 100.  AMD: its
                               * target version: 90010 is gfx90a, 110000 gfx1100 */
    int32_t processors;       /* SMs or CUs */
    int32_t shared_block;     /* bytes one block may have, with opt-in */
    int32_t shared_processor; /* bytes of one processor */
    int32_t clock_mhz;        /* highest */
    int64_t cache_bytes;      /* last-level cache */
    int64_t memory_bytes;
};

/* How a kernel takes its turn behind the launch before it (device.h: vx_launch_next,
 * vx_launch_before). */
enum vx_kernel_turn {
    /* It begins with vx_turn (turn.cuh): its launches always begin early, and let the next. */
    VX_TURN_FIRST,
    /* It lets the next begin, and waits where it needs what the launches before it wrote: it
     * begins early where the caller asks for it (gpu.h). */
    VX_TURN_ASKED,
    VX_TURN_PLAIN, /* neither */
};

struct vx_kernel_spec {
    const char *name;          /* of the extern "C" function in the text */
    const char *source;        /* "05_mask_order.cu"; several kernels may share a text */
    const char *const *macros; /* names of the tile's values; NULL = none */
    int32_t macros_count;
    const struct vx_tile *tiles; /* the whole search space; NULL = one tile, no macros */
    int32_t tiles_count;         /* >= 1 */
    uint32_t types; /* bits 1 << enum vx_number: one binary each; 0 = one without type */
    enum vx_kernel_turn turn;
    bool may_spill; /* false: CI fails when a compiler spills registers */
    /* false: CI fails when a commit of wgmma stands behind a branch */
    bool may_commit_apart;
    size_t args_bytes;
    int32_t (*threads)(const struct vx_tile *tile); /* of one block */
    /* Dynamic shared memory of one block in bytes; NULL = none. */
    int32_t (*shared)(const struct vx_tile *tile, enum vx_number type);
    /* True when this device can run the tile; NULL = every device can. */
    bool (*fits)(const struct vx_tile *tile, enum vx_number type,
                 const struct vx_caps *caps);
    struct vx_grid (*grid)(const struct vx_tile *tile, const void *args);
    void (*ref)(const void *args, enum vx_number type); /* same struct, in host memory */
};

/* Every kernel of kernels.def, in its order; the list ends with NULL. */
const struct vx_kernel_spec *const *vx_kernels(void);
const struct vx_kernel_spec *vx_kernel_find(const char *name); /* NULL = no such kernel */

/* Bytes of one element of a type in device memory, as it is stored. */
static inline int32_t vx_number_bytes(enum vx_number type)
{
    return vx_number_stored(type) == VX_NUMBER_F32 ? 4 : 2;
}

/* Bytes of one element as a convolution multiplies it. */
static inline int32_t vx_number_factor_bytes(enum vx_number type)
{
    return type == VX_NUMBER_E4M3 ? 1 : vx_number_bytes(type);
}

/* Channels of a row on the device, rounded up.  The padding holds finite numbers, and its
 * weights are zero. */
#define VX_CHANNELS_UNIT 16
static inline int32_t vx_channels_padded(int32_t channels)
{
    return (channels + VX_CHANNELS_UNIT - 1) / VX_CHANNELS_UNIT * VX_CHANNELS_UNIT;
}

#endif
