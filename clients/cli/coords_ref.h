/* coords_ref - a geometry's name in a command line, with the digest of its coordinates.
 *
 * The name alone is the server's, and fits any file of as many voxels.  What --name-geometry prints
 * is therefore NAME:DIGEST, and --coords-ref, which takes both, sees that FILE has other voxels.
 *
 *   struct voxel_geometry geometry;
 *   if (!coords_ref_parse("0f..e1:77..03", &geometry)) ...
 *   printf("%s\n", coords_ref_text(&geometry, text));
 *
 * Owner    the caller.
 * Thread   any.
 * Limits   names as voxel.h has them; a digest is 32 digits of hexadecimal.
 * Fails    false for a text that is neither NAME nor NAME:DIGEST.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_COORDS_REF_H
#define VOXEL_CLIENTS_CLI_COORDS_REF_H

#include "clients/c/voxel.h"

#define COORDS_REF_BYTES (VOXEL_REF_BYTES_MAX + 33)

/* Without a digest there it is all zero. */
bool coords_ref_parse(const char *text, struct voxel_geometry *geometry);
/* NAME:DIGEST; NAME alone when the digest is all zero.  Returns `text`. */
const char *coords_ref_text(const struct voxel_geometry *geometry,
                            char text[COORDS_REF_BYTES]);
bool coords_ref_has_digest(const struct voxel_geometry *geometry);

#endif
