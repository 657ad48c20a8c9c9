/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/jit/kernel_set.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/gpu/driver/limits.h"

#include <sys/random.h>
#include <stdatomic.h>
#include <string.h>

#define SET_MAGIC 0x76784b53u /* "vxKS" */

_Static_assert((VX_KERNEL_SET_MAX & (VX_KERNEL_SET_MAX - 1)) == 0,
               "places are found by masking");

struct kernel {
    struct vx_jit_wanted wanted;
    struct vx_tile tile; /* a copy, which wanted points at */
    struct vx_gpu_function *function;
    i32 threads, shared;
};

/* A loaded binary: kernels of one source share it. */
struct module {
    const void *image;
    struct vx_gpu_module *module;
    struct module *next;
};

/* The device thread reads `kernels` while the loading thread adds to it: a kernel is
 * complete before its place points at it, and never changes or moves afterwards. */
struct vx_kernel_set {
    u32 magic;
    u64 seed;
    struct vx_gpu *gpu;
    struct vx_jit *jit;
    struct module *modules;
    i32 count;
    _Atomic(struct kernel *) kernels[VX_KERNEL_SET_MAX];
};

vx_status vx_kernel_set_open(struct vx_gpu *gpu, struct vx_jit *jit, struct vx_why *why,
                             struct vx_kernel_set **set)
{
    *set = NULL;
    struct vx_kernel_set *made = vx_alloc_zero(sizeof *made);
    VX_ENSURE_WHY(made, why, RESOURCE_EXHAUSTED, "no memory for a set of kernels",
                  "no memory for a set of kernels: %zu bytes requested", sizeof *made);
    made->magic = SET_MAGIC;
    made->gpu = gpu;
    made->jit = jit;
    if (getrandom(&made->seed, sizeof made->seed, 0) != sizeof made->seed)
        made->seed = (u64)vx_clock_ns(); /* Linux before 3.17 has no getrandom */
    *set = made;
    return VX_OK;
}

void vx_kernel_set_close(struct vx_kernel_set **set)
{
    struct vx_kernel_set *it = *set;
    *set = NULL;
    if (!it) return;
    VX_ASSERT(it->magic == SET_MAGIC);
    it->magic = 0;
    for (i32 i = 0; i < VX_KERNEL_SET_MAX; i++) vx_free(atomic_load(&it->kernels[i]));
    while (it->modules) {
        struct module *next = it->modules->next;
        vx_gpu_module_unload(it->gpu, &it->modules->module);
        vx_free(it->modules);
        it->modules = next;
    }
    vx_free(it);
}

u64 vx_kernel_set_seed(const struct vx_kernel_set *set)
{
    VX_ASSERT(set->magic == SET_MAGIC);
    return set->seed;
}

struct vx_gpu *vx_kernel_set_gpu(struct vx_kernel_set *set)
{
    return set->gpu;
}

/* --- finding --- */

static u32 hash_of(const struct vx_jit_wanted *wanted)
{
    u64 hash = (u64)(uintptr_t)wanted->spec + (u64)wanted->type;
    for (i32 i = 0; i < wanted->spec->macros_count; i++)
        hash = (hash ^ (u32)wanted->tile->values[i]) * 0x9e3779b97f4a7c15u;
    /* 2^64 over the golden ratio spreads low bits upwards. */
    hash *= 0x9e3779b97f4a7c15u;
    return (u32)(hash >> 32);
}

static bool same(const struct vx_jit_wanted *a, const struct vx_jit_wanted *b)
{
    size_t bytes = (size_t)a->spec->macros_count * sizeof a->tile->values[0];
    return a->spec == b->spec && a->type == b->type &&
           (!bytes || !memcmp(a->tile->values, b->tile->values, bytes));
}

/* The kernel, or NULL and the place where it belongs. */
static struct kernel *find(struct vx_kernel_set *set, const struct vx_jit_wanted *wanted,
                           u32 *place)
{
    VX_ASSERT(wanted->tile || !wanted->spec->macros_count);
    for (u32 at = hash_of(wanted);; at++) {
        *place = at & (VX_KERNEL_SET_MAX - 1);
        struct kernel *kernel =
            atomic_load_explicit(&set->kernels[*place], memory_order_acquire);
        if (!kernel || same(&kernel->wanted, wanted)) return kernel;
    }
}

/* --- making ready --- */

static vx_status module_get(struct vx_kernel_set *set, const struct vx_jit_image *image,
                            struct vx_why *why, struct vx_gpu_module **module)
{
    for (struct module *it = set->modules; it; it = it->next) {
        if (it->image != image->data) continue;
        *module = it->module;
        return VX_OK;
    }
    struct module *made = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for a kernel");
    vx_status status =
        vx_gpu_module_load(set->gpu, image->data, image->bytes, why, &made->module);
    if (status.fault) {
        vx_free(made);
        return status;
    }
    made->image = image->data;
    made->next = set->modules;
    set->modules = made;
    *module = made->module;
    return VX_OK;
}

static vx_status load(struct vx_kernel_set *set, struct kernel *kernel,
                      struct vx_why *why)
{
    const struct vx_kernel_spec *spec = kernel->wanted.spec;
    struct vx_jit_image image;
    struct vx_gpu_module *module;
    kernel->threads = spec->threads(kernel->wanted.tile);
    if (spec->shared)
        kernel->shared = spec->shared(kernel->wanted.tile, kernel->wanted.type);
    VX_TRY(vx_jit_get(set->jit, &kernel->wanted, why, &image));
    VX_TRY(module_get(set, &image, why, &module));
    return vx_gpu_function_get(set->gpu, module,
                               &(struct vx_gpu_symbol){spec->name, kernel->shared}, why,
                               &kernel->function);
}

static vx_status add(struct vx_kernel_set *set, const struct vx_jit_wanted *wanted,
                     struct vx_why *why)
{
    u32 place;
    if (find(set, wanted, &place)) return VX_OK;
    /* One place stays empty, so that every search ends. */
    VX_ENSURE(set->count < VX_KERNEL_SET_MAX - 1, RESOURCE_EXHAUSTED, "too many kernels");
    struct kernel *made = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for a kernel");
    made->wanted = *wanted;
    if (wanted->tile) {
        made->tile = *wanted->tile;
        made->wanted.tile = &made->tile;
    }
    vx_status status = load(set, made, why);
    if (status.fault) {
        vx_free(made);
        return status;
    }
    atomic_store_explicit(&set->kernels[place], made, memory_order_release);
    set->count++;
    return VX_OK;
}

vx_status vx_kernel_set_ready(struct vx_kernel_set *set,
                              const struct vx_jit_wanted *wanted, i32 count,
                              const struct vx_progress *progress, struct vx_why *why)
{
    VX_ASSERT(set->magic == SET_MAGIC);
    VX_TRY(vx_jit_build(set->jit, wanted, count, progress, why));
    for (i32 i = 0; i < count; i++) VX_TRY(add(set, &wanted[i], why));
    return VX_OK;
}

/* --- launching --- */

static struct vx_gpu_launch
launch_of(struct vx_kernel_set *set, const struct vx_jit_wanted *wanted, const void *args)
{
    u32 place;
    VX_ASSERT(set->magic == SET_MAGIC);
    const struct kernel *kernel = find(set, wanted, &place);
    VX_ASSERT(kernel);
    const struct vx_kernel_spec *spec = kernel->wanted.spec;
    return (struct vx_gpu_launch){
        .function = kernel->function,
        .grid = spec->grid(kernel->wanted.tile, args),
        .threads = kernel->threads,
        .shared = kernel->shared,
        .args = args,
        .args_bytes = spec->args_bytes,
        .early = spec->turn == VX_TURN_FIRST,
    };
}

vx_status vx_kernel_launch(struct vx_kernel_set *set, struct vx_gpu_stream *stream,
                           const struct vx_jit_wanted *wanted, const void *args,
                           struct vx_why *why)
{
    const struct vx_gpu_launch launch = launch_of(set, wanted, args);
    return vx_gpu_launch(set->gpu, stream, &launch, why);
}

vx_status vx_kernel_launch_early(struct vx_kernel_set *set, struct vx_gpu_stream *stream,
                                 const struct vx_jit_wanted *wanted, const void *args,
                                 struct vx_why *why)
{
    struct vx_gpu_launch launch = launch_of(set, wanted, args);
    VX_ASSERT(wanted->spec->turn == VX_TURN_ASKED);
    launch.early = true;
    return vx_gpu_launch(set->gpu, stream, &launch, why);
}
