/* limits - what a request of a model must keep to, as its ModelConfig says: for the command
 * line, which makes grids up.
 *
 *   if (voxel_model_limits_get(client, &name, &limits, &error)) ...
 *
 * Owner    plain data.
 * Thread   any.
 * Limits   none of its own.
 * Fails    as the call does; INTERNAL: bytes that are no such message.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_C_LIMITS_H
#define VOXEL_CLIENTS_C_LIMITS_H

#include "clients/c/voxel.h"

struct voxel_model_limits {
    int64_t voxels_max; /* of one request; 0: not known */
    char bound[32];     /* what would have to be larger, "cache_bytes"; "": not known */
    int32_t spatial_shape[3]; /* columns 1 to 3 are below these; zeros: any */
    char axes[4];             /* of columns 1 to 3, "zyx"; "": not known */
};
/* Whether the text is an order of the axes x, y and z. */
bool voxel_axes_are_order(const char *text);
/* Zeros from a server that has no ModelConfig. */
enum voxel_code voxel_model_limits_get(struct voxel_client *client,
                                       const struct voxel_model_name *model,
                                       struct voxel_model_limits *limits,
                                       struct voxel_error *error);

#endif
