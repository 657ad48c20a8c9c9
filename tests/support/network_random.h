/* network_random - random networks of several levels, and requests for them, from a seed.
 *
 * A grammar of all ops: stacks of levels down and up again, with skips by add, mul and
 * concat, side trips to sets that are finer than the request's, two layers that share a
 * set, in every fourth network sets by logits, several outputs on set 0 and others on any set, with their coordinates.  It knows
 * the sets of its layers by itself.
 *
 * Most of the networks are `positive`: weights and features have one sign, so that sums
 * do not cancel.  There the worst case of an error does not grow from layer to layer, and
 * a bound stays sharp in a network of any depth.  The others have numbers of both signs
 * and fewer layers.
 *
 *   struct vx_random_network *network = vx_random_network_open(seed);
 *   vx_random_network_write(network, directory);
 *   struct vx_random_request *request = vx_random_request_open(network, seed, 300);
 *   ...run request->item; when it asks:
 *   vx_random_request_place(request, &request->item);
 *   vx_random_request_close(&request);
 *   vx_random_network_close(&network);
 *
 * Owner    the caller.
 * Thread   any.
 * Limits   VX_RANDOM_LAYERS_MAX layers, VX_RANDOM_ROWS_MAX rows of any set.
 * Fails    panics.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_SUPPORT_NETWORK_RANDOM_H
#define VX_TESTS_SUPPORT_NETWORK_RANDOM_H

#include "engine/batch.h"
#include "tests/support/model_files.h"

#define VX_RANDOM_LAYERS_MAX  64
#define VX_RANDOM_HEADS_MAX   3 /* outputs on set 0 */
#define VX_RANDOM_OUTPUTS_MAX 6 /* without coordinates */
/* Rows of any set, from voxels_max voxels. */
#define VX_RANDOM_ROWS_MAX 4000

struct vx_random_network {
    u64 seed;
    char *json;
    struct vx_test_tensor *tensors;
    size_t tensors_count;
    i32 feats_channels;
    i32 outputs_count, coords_count; /* features, then the coordinates of their sets */
    i32 channels[VX_OUTPUTS_MAX];
    /* 0 = the request's, VX_OUTPUT_DENSE, others by the grammar's numbers. */
    i32 sets[VX_OUTPUTS_MAX];
    bool labels[VX_OUTPUTS_MAX]; /* of an argmax */
    bool positive;
    bool predicts; /* some of its sets follow from logits */
    bool points;   /* it goes from points to voxels and back */
    i32 shape[3];  /* spatial shape; 0 = none, and coordinates of both signs */
    bool flat[3];  /* coordinates have one value along this axis */
    i64 voxels_max;
};
struct vx_random_network *vx_random_network_open(u64 seed);
void vx_random_network_close(struct vx_random_network **network);
/* A model directory with version 1. */
void vx_random_network_write(const struct vx_random_network *network,
                             const char *directory);

struct vx_random_request {
    struct vx_item item; /* without coords_ref */
    i32 *coords;
    f32 *feats; /* as the network sees them */
    u16 *halves;
    const struct vx_random_network *network;
    size_t bytes[VX_OUTPUTS_MAX]; /* of each output in f32, once it has a place */
};
/* Gives the outputs for which the item asks, this request's or a copy of it, their memory;
 * it is the request's. */
void vx_random_request_place(struct vx_random_request *request, struct vx_item *item);
/* A cloud of 1 to min(n_max, voxels_max) voxels, or none where n_max is 0: lines, planes,
 * shells, blocks, random points, in up to three samples, at 0 or at the edges of the
 * range.  Features are exact in every type.  It asks for most of the outputs on other
 * sets. */
struct vx_random_request *vx_random_request_open(const struct vx_random_network *network,
                                                 u64 seed, i64 n_max);
void vx_random_request_close(struct vx_random_request **request);

#endif
