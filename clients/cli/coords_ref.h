/* coords_ref - a geometry's name on the command line, with the digest of its coordinates.
 *
 * The name alone does not tell which coordinates it stands for: a file with as many
 * voxels fits it.  So --name-geometry prints NAME:DIGEST, and --coords-ref takes both and
 * detects a FILE with other voxels.
 *
 *   struct voxel_geometry geometry;
 *   if (!coords_ref_parse("0f..e1:77..03", &geometry)) ...
 *   printf("%s\n", coords_ref_text(&geometry, text));
 *
 * Owner    the caller.
 * Thread   any.
 * Limits   a name is shorter than VOXEL_REF_BYTES_MAX; a digest is 32 hexadecimal digits.
 * Fails    false for a text that is neither NAME nor NAME:DIGEST.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_COORDS_REF_H
#define VOXEL_CLIENTS_CLI_COORDS_REF_H

#include "clients/c/voxel.h"

#define COORDS_REF_BYTES (VOXEL_REF_BYTES_MAX + 33)

/* A text without a digest gives the digest 0. */
bool coords_ref_parse(const char *text, struct voxel_geometry *geometry);
/* Writes NAME:DIGEST, or NAME alone if the digest is all zero.  Returns `text`. */
const char *coords_ref_text(const struct voxel_geometry *geometry,
                            char text[COORDS_REF_BYTES]);
bool coords_ref_has_digest(const struct voxel_geometry *geometry);

#endif
