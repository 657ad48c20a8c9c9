/* descriptors - our .proto files for reflection: bytes by file name or by symbol.
 *
 * protoc's descriptor set is in the binary.  It is walked with the same scanner as
 * requests; nothing is unpacked and nothing is kept.  The set has five files: an index
 * would not be worth its memory.
 *
 *   struct vx_descriptor_file files[VX_DESCRIPTOR_FILES_MAX];
 *   i32 n = vx_descriptors_by_symbol("inference.GRPCInferenceService", files);
 *
 * Owner    the spans point into the binary and are valid for ever.
 * Thread   any.
 * Limits   VX_DESCRIPTOR_FILES_MAX files.
 * Fails    0 files: the name is unknown.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_PROTO_DESCRIPTORS_H
#define VX_PROTO_DESCRIPTORS_H

#include "proto/codec.h"

#define VX_DESCRIPTOR_FILES_MAX 8 /* there are five */

struct vx_descriptor_file {
    struct vx_span bytes; /* a serialized google.protobuf.FileDescriptorProto */
};

/* The file and all that it imports, itself first.  Returns how many; 0 = unknown. */
i32 vx_descriptors_by_name(const char *name, struct vx_descriptor_file *files);
/* The file that declares a service, method, message, enum or field of this full name. */
i32 vx_descriptors_by_symbol(const char *symbol, struct vx_descriptor_file *files);

/* Calls `on` with the full name of every service, in the order of the files. */
void vx_descriptors_services(void (*on)(void *context, const char *name), void *context);

#endif
