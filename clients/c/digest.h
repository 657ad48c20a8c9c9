/* digest - which coordinates a request has, in 16 bytes.
 *
 * A geometry's name is the server's, and says nothing to a client about coordinates that are put
 * beside it.  So the client keeps these 16 bytes with the name: other coordinates have others.
 *
 *   struct voxel_digest digest;
 *   if (voxel_digest_coords(&request, &digest) && voxel_digest_same(&digest, &before)) ...
 *
 * Owner    values.
 * Thread   any.
 * Limits   not for input that somebody made to collide: it is the caller's own.
 * Fails    never; coordinates that cannot be read here have none.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_C_DIGEST_H
#define VOXEL_CLIENTS_C_DIGEST_H

#include "clients/c/voxel.h"

/* Of the coordinates, the inputs of integers, with their shapes.  The same on every machine and in
 * every version, since the command line prints it.  All zero when there are none; false, and all
 * zero, when they lie where this process cannot read them, on a device. */
bool voxel_digest_coords(const struct voxel_request *request,
                         struct voxel_digest *digest);
bool voxel_digest_same(const struct voxel_digest *a, const struct voxel_digest *b);

#endif
