/* SPDX-License-Identifier: Apache-2.0 */
#include "server/access/access_group.h"

#include "engine/base/process/check.h"

#include <string.h>

/* One row for each method: a row of service.def without one does not compile. */
enum {
    OF_SERVER_LIVE = VX_ACCESS_HEALTH,
    OF_SERVER_READY = VX_ACCESS_HEALTH,
    OF_MODEL_READY = VX_ACCESS_READ,
    OF_SERVER_METADATA = VX_ACCESS_READ,
    OF_MODEL_METADATA = VX_ACCESS_READ,
    OF_MODEL_INFER = VX_ACCESS_INFER,
    OF_MODEL_STREAM_INFER = VX_ACCESS_INFER,
    OF_MODEL_CONFIG = VX_ACCESS_READ,
    OF_MODEL_STATISTICS = VX_ACCESS_READ,
    OF_REPOSITORY_INDEX = VX_ACCESS_READ,
    OF_REPOSITORY_MODEL_LOAD = VX_ACCESS_LOAD,
    OF_REPOSITORY_MODEL_UNLOAD = VX_ACCESS_LOAD,
    OF_SYSTEM_SHARED_MEMORY_STATUS = VX_ACCESS_MEMORY,
    OF_SYSTEM_SHARED_MEMORY_REGISTER = VX_ACCESS_MEMORY,
    OF_SYSTEM_SHARED_MEMORY_UNREGISTER = VX_ACCESS_MEMORY,
    OF_CUDA_SHARED_MEMORY_STATUS = VX_ACCESS_MEMORY,
    OF_CUDA_SHARED_MEMORY_REGISTER = VX_ACCESS_MEMORY,
    OF_CUDA_SHARED_MEMORY_UNREGISTER = VX_ACCESS_MEMORY,
    OF_TRACE_SETTING = VX_ACCESS_SETTINGS,
    OF_LOG_SETTINGS = VX_ACCESS_SETTINGS,
    OF_HEALTH_CHECK = VX_ACCESS_HEALTH,
    OF_HEALTH_LIST = VX_ACCESS_READ,
    OF_HEALTH_WATCH = VX_ACCESS_READ, /* it stays open, for as long as its client likes */
    OF_REFLECTION_V1 = VX_ACCESS_READ,
    OF_REFLECTION_V1ALPHA = VX_ACCESS_READ,
};

static const struct {
    enum vx_access_group group;
    const char *path;
} methods[] = {
#define VX_METHOD(path_, identifier_, kind_)                                             \
    {(enum vx_access_group)OF_##identifier_, path_},
#include "proto/service.def"
#undef VX_METHOD
};

enum vx_access_group vx_access_group_of(i32 method)
{
    VX_ASSERT(method >= 0 && (size_t)method < VX_COUNT(methods));
    return methods[method].group;
}

const char *vx_access_method_name(i32 method)
{
    VX_ASSERT(method >= 0 && (size_t)method < VX_COUNT(methods));
    return strrchr(methods[method].path, '/') + 1;
}

const char *vx_access_group_name(enum vx_access_group group)
{
    static const char *const names[VX_ACCESS_GROUPS] = {
        [VX_ACCESS_HEALTH] = "health",     [VX_ACCESS_INFER] = "infer",
        [VX_ACCESS_READ] = "read",         [VX_ACCESS_LOAD] = "load",
        [VX_ACCESS_SETTINGS] = "settings", [VX_ACCESS_MEMORY] = "memory",
        [VX_ACCESS_ADMIN] = "admin",
    };
    return names[group];
}
