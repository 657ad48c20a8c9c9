/* digest - a 16-byte hash of a request's coordinates.
 *
 * The server makes the name of a geometry, and a client cannot tell from the name which
 * coordinates it stands for.  So the client keeps this hash with the name: other
 * coordinates have another hash.
 *
 *   struct voxel_digest now;
 *   if (voxel_digest_coords(&request, &now) && voxel_digest_same(&now, &before)) ...
 *
 * Owner    plain values; nothing to release.
 * Thread   any.
 * Limits   not collision-resistant against an attacker; the input is the caller's own.
 * Fails    voxel_digest_coords returns false if this process cannot read the coordinates.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_C_DIGEST_H
#define VOXEL_CLIENTS_C_DIGEST_H

#include "clients/c/voxel.h"

/* Hashes the coordinates, which are the INT32 inputs, with their shapes.  The hash is the
 * same on every machine and in every version, since the command line prints it.  All zero
 * if there is no INT32 input; false and all zero if one lies on a device, where this
 * process cannot read it. */
bool voxel_digest_coords(const struct voxel_request *request,
                         struct voxel_digest *digest);
bool voxel_digest_same(const struct voxel_digest *a, const struct voxel_digest *b);

#endif
