/* geometry_header - the header by which a load balancer keeps a geometry on one server.
 *
 * A server caches what it computed of coordinates, and knows the names that it gave them;
 * another server has neither.  So every inference carries a short hash of its
 * coordinates, whether these are sent or a name stands for them, and a balancer that
 * hashes the header x-voxel-geometry sends equal ones to the same server.
 *
 *   char text[VOXEL_GEOMETRY_BYTES];
 *   voxel_geometry_header(request, text);
 *
 * The text is the CRC-32 (zlib's) of the rows' number and the columns' number, each as 8
 * bytes, and of up to 64 rows, number i * rows / 64 for i = 0..63: eight hexadecimal
 * digits.  All bytes are little-endian.  The Python client makes the same text.
 *
 * Owner    plain values; nothing to release.
 * Thread   any.
 * Limits   64 rows are read, so the cost does not grow with the request.  Coordinates that
 *          differ only elsewhere share a server, which costs balance and nothing else.
 * Fails    never: the text is "" if there are no coordinates that this process can read.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_C_GEOMETRY_HEADER_H
#define VOXEL_CLIENTS_C_GEOMETRY_HEADER_H

#include "clients/c/voxel.h"

#define VOXEL_GEOMETRY_BYTES 9

/* Of the first INT32 input or, without one, of named_coords. */
void voxel_geometry_header(const struct voxel_request *request,
                           char text[VOXEL_GEOMETRY_BYTES]);

#endif
