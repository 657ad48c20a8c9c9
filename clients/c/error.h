/* error - fills the caller's struct voxel_error and returns its code, in one statement.
 *
 *   return voxel_error_set(error, VOXEL_INVALID_ARGUMENT, "rank is %d, not 1..8", rank);
 *
 * Owner    the caller's struct, which may be NULL: then only the code is returned.
 * Thread   any.
 * Limits   a sentence longer than VOXEL_ERROR_BYTES is cut.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_C_ERROR_H
#define VOXEL_CLIENTS_C_ERROR_H

#include "clients/c/voxel.h"

__attribute__((format(printf, 3, 4))) enum voxel_code
voxel_error_set(struct voxel_error *error, enum voxel_code code, const char *format, ...);
/* Sets the code VOXEL_OK and an empty text. */
enum voxel_code voxel_error_clear(struct voxel_error *error);
/* RESOURCE_EXHAUSTED: no memory for `what`; `bytes` 0 leaves the size out. */
enum voxel_code voxel_error_memory(struct voxel_error *error, const char *what,
                                   size_t bytes);

#endif
