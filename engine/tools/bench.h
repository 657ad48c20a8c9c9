/* bench - times kernels and networks on a device, and prints rows and JSON.
 *
 * A row is one timing: what was timed, on which voxels, in which state of the cache, how
 * often, how much work it did, and the device's clock and power meanwhile.  Rates are
 * compared with ceilings that were measured in the same run: a pass over memory, and the
 * vendor's product (cuBLAS) of as many channels; without the vendor's library, our own
 * kernel on a dense product.
 *
 *   struct vx_bench bench = {...};
 *   VX_TRY(vx_bench_ceilings(&bench, &why));
 *   VX_TRY(vx_bench_conv(&bench, &shape, &why));
 *
 * Owner    the tool.
 * Thread   the tool's own, which alone uses the device; bench_power starts another.
 * Limits   VX_HARNESS_RUNS_MAX runs a row.
 * Fails    as what it runs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_TOOLS_BENCH_H
#define VX_ENGINE_TOOLS_BENCH_H

#include "engine/gpu/conv/blas.h"
#include "engine/tools/bench_cloud.h"
#include "engine/tools/bench_power.h"
#include "engine/tools/workbench.h"
#include "engine/tune/harness.h"
#include "engine/tune/pick.h"
#include "engine/tune/shapes.h"

/* One timing. */
struct vx_bench_row {
    const char *what;  /* "conv" "map" "layer_norm" "copy" "dense" "network" */
    const char *state; /* "graph warm", "graph cold", "eager cold", ... */
    char shape[32];    /* "256:256" */
    i64 n, pairs;
    i32 ci, co, v;
    enum vx_number type;                 /* 0 = has none */
    const struct vx_conv_choice *choice; /* NULL = not a convolution */
    const struct vx_kernel_spec *spec;   /* of the main kernel; NULL = several */
    i32 runs;
    f64 median, p10, p90;             /* ns */
    f64 flops_useful, flops_executed; /* of one run; 0 = not counted */
    f64 bytes;                        /* the least that one run must move */
    f64 ceiling;                      /* flops a ns; 0 = the bench's */
    struct vx_bench_draw draw;        /* of the device, from warm-up to the last run */
};

#define VX_BENCH_TILE_ALL (-2)
struct vx_bench {
    struct vx_workbench bench;
    struct vx_harness *harness;
    struct vx_pick pick; /* table and pinned algorithm */
    i32 tile;            /* -1 = as picked; VX_BENCH_TILE_ALL = each */
    enum vx_number type;
    i32 runs;
    i32 kernel;                   /* edge of the convolution's cube: 3 */
    i64 warm_ns;                  /* of the warm-up before each timing */
    struct vx_blas_gpu *blas;     /* NULL = none for this device */
    struct vx_bench_power *power; /* NULL = nothing to ask about this device */
    int json;                     /* descriptor of an open file, or -1 */
    f64 copy_rate;                /* bytes a ns; 0 = not measured */
    f64 dense_rate;               /* flops a ns, of a product of 8192^3 */
    f64 ns[VX_HARNESS_RUNS_MAX];  /* of the current timing */
};

/* What a kernel is measured on. */
struct vx_bench_set {
    char name[VX_CLOUD_NAME_BYTES]; /* "256" is a shell, "room/4" a cloud */
    i64 n;
    const i32 *coords; /* (n, 4); NULL = the shell of n voxels */
    i32 channels, layers;
};
struct vx_bench_set vx_bench_set_of_shape(const struct vx_shape *shape);

/* Times `timing` (runs and warm-ups are filled here) and prints the row. */
VX_MUST_USE vx_status vx_bench_time(struct vx_bench *bench,
                                    struct vx_harness_timing *timing,
                                    struct vx_bench_row *row, struct vx_why *why);
void vx_bench_title(const struct vx_bench *bench);
/* Prints a row whose times are known already. */
void vx_bench_print(const struct vx_bench *bench, const struct vx_bench_row *row);

VX_MUST_USE vx_status vx_bench_ceilings(struct vx_bench *bench, struct vx_why *why);
VX_MUST_USE vx_status vx_bench_conv(struct vx_bench *bench,
                                    const struct vx_bench_set *set, struct vx_why *why);
VX_MUST_USE vx_status vx_bench_map(struct vx_bench *bench, const struct vx_bench_set *set,
                                   struct vx_why *why);
/* NULL: the ceiling, one pass over memory. */
VX_MUST_USE vx_status vx_bench_pointwise(struct vx_bench *bench,
                                         const struct vx_bench_set *set,
                                         struct vx_why *why);

/* Times the vendor's product of that size on random numbers and prints the row; *rate is in
 * flops a ns, 0 where the vendor has no library. */
struct vx_bench_product {
    const char *shape; /* of the row */
    i64 rows;
    i32 depth, columns;
};
VX_MUST_USE vx_status vx_bench_vendor(struct vx_bench *bench,
                                      const struct vx_bench_product *product,
                                      struct vx_why *why, f64 *rate);

/* Counts the rows x offsets that a choice computes: every tile computes the union of its
 * rows' masks for all its rows.  Copies the map to the host. */
VX_MUST_USE vx_status vx_bench_executed(struct vx_harness *harness, struct vx_why *why,
                                        i64 *executed);
/* The same for the block masks of one group on the host, (blocks, words).  Pure. */
i64 vx_bench_union(const u32 *block_masks, i64 blocks, i32 words, i32 tile_rows);

/* The network to measure: a model's directory, or a generated network. */
#define VX_BENCH_SIZES_MAX 16
struct vx_bench_network {
    const char *name;  /* "demo", or channels and layers: "c64x16"; NULL = model */
    const char *model; /* a directory with network.json; NULL = name */
    i32 version;
    enum vx_device_kind kind;
    struct vx_gpu_settings gpu;
    size_t device_bytes;
    i64 sizes[VX_BENCH_SIZES_MAX];
    i32 sizes_count;
    const struct vx_bench_clouds *clouds; /* none in it: shells of `sizes` */
};
VX_MUST_USE vx_status vx_bench_network(struct vx_bench *bench,
                                       const struct vx_bench_network *network,
                                       struct vx_why *why);

#endif
