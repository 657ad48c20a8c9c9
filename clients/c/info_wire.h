/* info_wire - the protocol's small answers as structs: readiness, metadata, statistics.
 *
 * The bytes of an answer are contiguous here.  A struct and all that it points to lie in
 * one pool; the struct is the pool's root, so that voxel_info_free releases all.
 *
 *   struct voxel_model_info *info;
 *   if (voxel_model_info_parse(data, bytes, &info, error)) ...
 *   voxel_info_free(info);
 *
 * Owner    the caller owns each struct and frees it with voxel_info_free.
 * Thread   any.
 * Limits   VOXEL_INFO_BYTES_MAX per answer; its structs are at most about 60 times that.
 * Fails    INTERNAL: bytes that are no such message.  RESOURCE_EXHAUSTED: no memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_C_INFO_WIRE_H
#define VOXEL_CLIENTS_C_INFO_WIRE_H

#include "clients/c/limits.h"

/* The longest is the statistics of every model: 1 MiB holds some thousand models. */
#define VOXEL_INFO_BYTES_MAX (1u << 20)

/* Field 1 as a bool: the answer of ServerLive, ServerReady and ModelReady. */
enum voxel_code voxel_flag_parse(const void *data, size_t bytes, bool *flag,
                                 struct voxel_error *error);
enum voxel_code voxel_server_info_parse(const void *data, size_t bytes,
                                        struct voxel_server_info **info,
                                        struct voxel_error *error);
enum voxel_code voxel_model_info_parse(const void *data, size_t bytes,
                                       struct voxel_model_info **info,
                                       struct voxel_error *error);
enum voxel_code voxel_model_limits_parse(const void *data, size_t bytes,
                                         struct voxel_model_limits *limits,
                                         struct voxel_error *error);
enum voxel_code voxel_statistics_parse(const void *data, size_t bytes,
                                       struct voxel_statistics **statistics,
                                       struct voxel_error *error);
enum voxel_code voxel_models_parse(const void *data, size_t bytes,
                                   struct voxel_models **models,
                                   struct voxel_error *error);
/* The models of a statistics answer as a list; each has the state "READY". */
enum voxel_code voxel_models_from_statistics(const struct voxel_statistics *statistics,
                                             struct voxel_models **models,
                                             struct voxel_error *error);

#endif
