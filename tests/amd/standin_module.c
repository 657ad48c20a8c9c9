/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/amd/standin.h"

#include <string.h>
#include <stdio.h>

struct function {
    enum standin_kind kind;
    struct function *next; /* of the module */
    struct module *module;
    const struct amd_kernel *kernel;
};
struct module {
    enum standin_kind kind;
    int device;
    struct amd_loaded loaded;
    struct function *functions;
};

/* Loads without the lock: the loader of libraries has one of its own. */
int hipModuleLoadData(void **module, const void *image)
{
    char why[AMD_WHY_BYTES] = "";
    char arch[sizeof standin.settings.arch];
    struct amd_loaded loaded = {NULL, NULL};
    *module = NULL;
    int code = standin_enter();
    memcpy(arch, standin.settings.arch, sizeof arch);
    (void)standin_leave(0);
    if (code) return code;
    switch (amd_load(image, arch, &loaded, why)) {
    case AMD_IMAGE_OURS: break;
    case AMD_IMAGE_OTHER: code = STANDIN_NO_BINARY; break;
    case AMD_IMAGE_BAD: code = STANDIN_BAD_IMAGE; break;
    }
    if (code) {
        (void)dprintf(2, "hip_standin: hipModuleLoadData: %s\n", why);
        return code;
    }
    pthread_mutex_lock(&standin.lock);
    struct module *made = standin_take();
    if (made)
        *made = (struct module){
            .kind = STANDIN_MODULE, .device = standin_device(), .loaded = loaded};
    else
        amd_unload(&loaded);
    *module = made;
    return standin_leave(made ? 0 : STANDIN_OUT_OF_MEMORY);
}

int hipModuleUnload(void *module)
{
    int code = standin_enter();
    struct module *it = module;
    if (!standin_is(it, STANDIN_MODULE))
        return standin_leave(code ? code : STANDIN_INVALID_HANDLE);
    standin_wait_idle(it->device);
    struct amd_loaded loaded = it->loaded;
    while (it->functions) {
        struct function *function = it->functions;
        it->functions = function->next;
        standin_give(function);
    }
    standin_give(it);
    (void)standin_leave(0);
    amd_unload(&loaded);
    return code;
}

int hipModuleGetFunction(void **function, void *module, const char *name)
{
    int code = standin_enter();
    struct module *it = module;
    *function = NULL;
    if (!code && !standin_is(it, STANDIN_MODULE)) code = STANDIN_INVALID_HANDLE;
    const struct amd_kernel *kernel = code ? NULL : amd_find(&it->loaded, name);
    if (!code && !kernel) code = STANDIN_NOT_FOUND;
    struct function *made = kernel ? standin_take() : NULL;
    if (kernel && !made) code = STANDIN_OUT_OF_MEMORY;
    if (made) {
        *made = (struct function){.kind = STANDIN_FUNCTION,
                                  .next = it->functions,
                                  .module = it,
                                  .kernel = kernel};
        it->functions = made;
        *function = made;
    }
    return standin_leave(code);
}

/* The launch as a node; 0, or why a device would not start it. */
static int launch_put(struct amd_launch *launch, struct standin_stream *stream,
                      const void *args)
{
    char why[AMD_WHY_BYTES] = "";
    if (launch->kernel->args_bytes > STANDIN_ARGS_BYTES ||
        !amd_fibers_check(launch, why)) {
        (void)dprintf(2, "hip_standin: hipModuleLaunchKernel: %s\n", why);
        return STANDIN_INVALID_VALUE;
    }
    struct standin_node *node = standin_take();
    if (!node) return STANDIN_OUT_OF_MEMORY;
    standin.launches++;
    node->kind = NODE_LAUNCH;
    const struct standin_settings *settings = &standin.settings;
    bool mine = settings->fault_device < 0 || settings->fault_device == stream->device;
    node->loses = mine && settings->lose_launch == standin.launches;
    memcpy(node->args, args, launch->kernel->args_bytes);
    launch->args = node->args;
    if (settings->seed) launch->seed = (u64)(settings->seed + ++standin.kernels_run);
    node->launch = *launch;
    standin_put(stream, node);
    return 0;
}

/* clang-format off */
int hipModuleLaunchKernel(void *function, hip_word gx, hip_word gy, hip_word gz, hip_word bx, hip_word by, hip_word bz, hip_word shared, void *stream, void **params, void **extra)
/* clang-format on */
{
    int code = standin_enter();
    const struct function *it = function;
    bool objects = standin_is(it, STANDIN_FUNCTION) && standin_is(stream, STANDIN_STREAM);
    if (!code && !objects) code = STANDIN_INVALID_HANDLE;
    /* Our kernels have one struct and blocks of one dimension. */
    if (!code && (by != 1 || bz != 1 || !params || extra)) code = STANDIN_INVALID_VALUE;
    if (!code) {
        struct amd_launch launch = {.kernel = it->kernel,
                                    .wave = it->module->loaded.object->wave,
                                    .grid = {gx, gy, gz},
                                    .threads = bx,
                                    .lds_dynamic = shared};
        code = launch_put(&launch, stream, params[0]);
    }
    return standin_leave(code);
}
