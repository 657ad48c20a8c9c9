/* axes - which axis of a file each column of coords is.
 *
 * A network's columns have the order in which it was trained: [b, z, y, x] for most of spconv's.
 * A .ply names its axes, so its voxels can be put into that order, and an answer's back:
 *
 *   cloud_place(&cloud, "zyx");                  before sending
 *   if (cloud_see(&cloud, &seen, &error)) ...    x, y and z again, for a .ply or a picture
 *   cloud_unsee(&cloud, &seen);
 *
 * A .npz has columns without names: they are sent as they are, and only seen in another order.
 *
 * Owner    the caller.
 * Thread   any.
 * Limits   axes are an order of the letters x, y and z.
 * Fails    RESOURCE_EXHAUSTED without memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_AXES_H
#define VOXEL_CLIENTS_CLI_AXES_H

#include "clients/cli/cloud.h"

/* The columns of the cloud are `axes` from now on; those of a .ply are moved. */
void cloud_place(struct cloud *cloud, const char *axes);
/* The same voxels with the columns x, y and z.  Borrows the cloud's, or has coords of its own. */
enum voxel_code cloud_see(const struct cloud *cloud, struct cloud *seen,
                          struct voxel_error *error);
void cloud_unsee(const struct cloud *cloud, struct cloud *seen);

#endif
