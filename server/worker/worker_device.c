/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/worker/worker_device.h"

#include "engine/base/numa.h"
#include "engine/base/process/check.h"
#include "engine/base/process/log.h"
#include "server/devices/devices.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Room for one record of the user database; a larger one fails with ERANGE. */
#define USER_BYTES       16384
#define CACHE_PATH_BYTES (2 * VX_CONFIG_TEXT_BYTES)

static const char *given(const char *text)
{
    return text[0] ? text : NULL;
}

/* The home directory of this process's user, from the user database, not from $HOME. */
static bool home_find(char home[VX_CONFIG_TEXT_BYTES])
{
    char block[USER_BYTES];
    struct passwd user, *found = NULL;
    if (getpwuid_r(geteuid(), &user, block, sizeof block, &found) || !found) return false;
    int length = snprintf(home, VX_CONFIG_TEXT_BYTES, "%s", found->pw_dir);
    return length > 1 && length < VX_CONFIG_TEXT_BYTES;
}

/* Makes the folders above the cache; a failure is reported when the cache is opened. */
static void parents_make(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        bool there = !mkdir(path, 0700) || errno == EEXIST;
        *slash = '/';
        if (!there) return;
    }
}

/* The setting with its ~ replaced; NULL = no cache. */
static const char *cache_path(const struct vx_config *config, char path[CACHE_PATH_BYTES])
{
    const char *setting = config->kernel_cache;
    char home[VX_CONFIG_TEXT_BYTES];
    if (strncmp(setting, "~/", 2)) return given(setting);
    if (!home_find(home)) {
        VX_LOG(KERNEL_CACHE, VX_LOG_TEXT("directory", setting),
               VX_LOG_TEXT("why",
                           "this user has no home directory: kernels are compiled again "
                           "at each start unless --kernel-cache names a directory"));
        return NULL;
    }
    int length = snprintf(path, CACHE_PATH_BYTES, "%s%s", home, setting + 1);
    VX_ASSERT(length < CACHE_PATH_BYTES);
    parents_make(path);
    return path;
}

static enum vx_tune_mode tune_mode(const struct vx_config *config)
{
    if (!strcmp(config->tune, "auto")) return VX_TUNE_AUTO;
    return !strcmp(config->tune, "all") ? VX_TUNE_ALL : VX_TUNE_TABLE;
}

static enum vx_conv_algorithm algorithm(const struct vx_config *config)
{
    enum vx_conv_algorithm found = vx_conv_of_name(config->algorithm);
    VX_ASSERT(found < VX_CONV_ALGORITHMS_COUNT); /* config.def allows no other name */
    return found;
}

/* Binds this thread, which feeds the device, to the device's node, and with it the
 * threads that it starts from here on. */
static void device_near(const struct vx_engine *engine)
{
    i32 node = vx_engine_numa_node(engine);
    u64 all = vx_numa_nodes();
    if (node < 0 || !(all & (all - 1))) return;
    struct vx_why why = {""};
    bool bound = vx_numa_bind_thread(node, &why);
    VX_LOG(NUMA, VX_LOG_TEXT("what", "device thread"), VX_LOG_I64("node", node),
           VX_LOG_TEXT("how", bound ? "near" : why.text));
}

vx_status vx_worker_device_open(const struct vx_config *config,
                                const struct vx_shared *shared,
                                const struct vx_progress *running, struct vx_why *why,
                                struct vx_engine **engine)
{
    static char path[CACHE_PATH_BYTES]; /* borrowed by the only engine of the process */
    struct vx_device device;
    VX_TRY(vx_device_parse(config->device, why, &device));
    const bool hip = device.kind == VX_DEVICE_HIP;
    struct vx_gpu_settings gpu = {
        .index = device.index,
        .driver = given(hip ? config->hip_library : config->gpu_driver),
        .compiler = given(hip ? config->hip_compiler : config->gpu_compiler),
        .kernel_cache_bytes = config->kernel_cache_bytes,
        .kernel_texts = given(config->kernel_texts),
        .tune_table = given(config->tune_table),
        .tune = tune_mode(config),
        .algorithm = algorithm(config),
        .host = vx_shared_view(shared, 0, vx_shared_bytes(shared)),
        .host_bytes = vx_shared_bytes(shared),
        .lose_launch = device.lose_launch,
    };
    bool has_gpu = device.kind != VX_DEVICE_CPU;
    if (has_gpu) gpu.kernel_cache = cache_path(config, path);
    const struct vx_engine_options options = {
        .kind = device.kind,
        .gpu = has_gpu ? &gpu : NULL,
        .threads = (i32)config->threads,
        .device_bytes = (size_t)config->device_bytes,
        .cache_bytes = (size_t)config->cache_bytes,
        .running = *running,
    };
    VX_TRY(vx_engine_open(&options, why, engine));
    if (config->numa) device_near(*engine);
    return VX_OK;
}
