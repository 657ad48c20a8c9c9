/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/error.h"

#include <stdarg.h>
#include <stdio.h>

static const char *const code_names[] = {
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
};

const char *voxel_code_name(enum voxel_code code)
{
    size_t count = sizeof code_names / sizeof *code_names;
    return (size_t)code < count ? code_names[code] : "UNKNOWN";
}

enum voxel_code voxel_error_set(struct voxel_error *error, enum voxel_code code,
                                const char *format, ...)
{
    if (!error) return code;
    error->code = code;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    return code;
}

enum voxel_code voxel_error_clear(struct voxel_error *error)
{
    if (error) {
        error->code = VOXEL_OK;
        error->text[0] = '\0';
    }
    return VOXEL_OK;
}

enum voxel_code voxel_error_memory(struct voxel_error *error, const char *what,
                                   size_t bytes)
{
    if (bytes == 0)
        return voxel_error_set(error, VOXEL_RESOURCE_EXHAUSTED, "no memory for %s", what);
    return voxel_error_set(error, VOXEL_RESOURCE_EXHAUSTED,
                           "no memory for %s (%zu bytes)", what, bytes);
}
