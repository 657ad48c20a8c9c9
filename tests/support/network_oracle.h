/* network_oracle - what a network answers, in double, with how far f32 may be from it.
 *
 * Layers one by one as engine/README.md says, weights straight from the file, sets and
 * neighbours by trying every offset (network_oracle_sets.h): it shares only the two
 * readers with the code under test.  Beside every value runs a bound on the error of any
 * f32 program that sums in any order (u = 2^-24; the rules are in the .c files), so that
 * no tolerance is chosen.
 *
 *   struct vx_network_oracle oracle;
 *   vx_network_oracle_open(&input, &oracle);
 *   const f64 *values = oracle.values[layer], *bounds = oracle.bounds[layer];
 *   const struct vx_oracle_set *set = oracle.sets[layer];
 *   ...set->rows, set->voxels...
 *   vx_network_oracle_close(&oracle);
 *
 * Owner    the caller; input is borrowed until close.
 * Thread   any.
 * Limits   rows * V * Ci * Co small enough to wait for.
 * Fails    panics: a test without its oracle proves nothing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_SUPPORT_NETWORK_ORACLE_H
#define VX_TESTS_SUPPORT_NETWORK_ORACLE_H

#include "engine/network/network.h"
#include "engine/weights/safetensors.h"
#include "tests/support/network_oracle_sets.h"

struct vx_network_oracle_input {
    const struct vx_network *network;
    const struct vx_safetensors *file;
    const i32 *coords; /* (n, columns) */
    i32 columns;
    i64 n;
    const f32 *feats; /* (n, channels), as the network sees them */
};

struct vx_network_oracle {
    const struct vx_network_oracle_input *input;
    /* By layer: the voxels that it computes, and (rows, channels) each. */
    const struct vx_oracle_set *sets[VX_LAYERS_MAX];
    f64 *values[VX_LAYERS_MAX];
    f64 *bounds[VX_LAYERS_MAX];
    struct vx_oracle_set *made; /* [0]: the request's, [i + 1]: what layer i makes */
    /* A logit lies so near to where it decides otherwise that an f32 program may do so: then
     * sets, values and bounds are one answer of several. */
    bool unsure;
};

void vx_network_oracle_open(const struct vx_network_oracle_input *input,
                            struct vx_network_oracle *oracle);
void vx_network_oracle_close(struct vx_network_oracle *oracle);

/* What the request costs with maps of these keys: their pairs, of a map that names one row
 * each its rows; and the voxels of all sets. */
struct vx_oracle_cost {
    i64 pairs, set_voxels;
};
struct vx_oracle_cost vx_network_oracle_cost(const struct vx_network_oracle *oracle,
                                             const struct vx_map_key *keys, i32 count);

/* The bound after rounding to the datatype of an output. */
f64 vx_network_oracle_output_bound(enum vx_dtype dtype, f64 value, f64 bound);

#endif
