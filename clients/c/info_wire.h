/* info_wire - the small answers of the protocol as structs: readiness, metadata,
 * statistics.
 *
 * Each answer is one piece of bytes by now.  What a struct points to lies in one pool,
 * and the struct is the pool's root: voxel_info_free releases all.
 *
 *   struct voxel_model_info *info;
 *   if (voxel_model_info_parse(data, bytes, &info, error)) ...
 *   voxel_info_free(info);
 *
 * Owner    the caller.
 * Thread   any.
 * Limits   VOXEL_INFO_BYTES_MAX per answer; its structs are at most about 60 times that.
 * Fails    INTERNAL for bytes that are no such message, RESOURCE_EXHAUSTED for want of
 * memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_C_INFO_WIRE_H
#define VOXEL_CLIENTS_C_INFO_WIRE_H

#include "clients/c/voxel.h"

/* The longest is the statistics of every model: 1 MiB is some thousand of them. */
#define VOXEL_INFO_BYTES_MAX (1u << 20)

/* Field 1 as a bool: ServerLive, ServerReady and ModelReady all answer so. */
enum voxel_code voxel_flag_parse(const void *data, size_t bytes, bool *flag,
                                 struct voxel_error *error);
enum voxel_code voxel_server_info_parse(const void *data, size_t bytes,
                                        struct voxel_server_info **info,
                                        struct voxel_error *error);
enum voxel_code voxel_model_info_parse(const void *data, size_t bytes,
                                       struct voxel_model_info **info,
                                       struct voxel_error *error);
enum voxel_code voxel_statistics_parse(const void *data, size_t bytes,
                                       struct voxel_statistics **statistics,
                                       struct voxel_error *error);
enum voxel_code voxel_models_parse(const void *data, size_t bytes,
                                   struct voxel_models **models,
                                   struct voxel_error *error);
/* The models of a statistics answer as a list; every one of them is READY. */
enum voxel_code voxel_models_from_statistics(const struct voxel_statistics *statistics,
                                             struct voxel_models **models,
                                             struct voxel_error *error);

#endif
