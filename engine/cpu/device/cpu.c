/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cpu/device/cpu.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/log.h"
#include "engine/cpu/device/cores.h"
#include "engine/cpu/device/device.h"

#include <stdio.h>

#define CPU_MAGIC 0x76784350u /* "vxCP" */

static void cpu_name(struct vx_cpu *cpu)
{
    char processor[64];
    i32 threads = vx_cpu_threads(cpu);
    vx_cores_name(processor, sizeof processor);
    (void)snprintf(cpu->name, sizeof cpu->name, "%.48s, %d thread%s, %.20s%s%.40s",
                   processor, threads, threads == 1 ? "" : "s", cpu->loops->name,
                   cpu->blas.sgemm ? ", " : "", cpu->blas.name);
}

/* All but its BLAS and its name. */
static vx_status cpu_make(const struct vx_cpu_choice *choice, i32 threads,
                          struct vx_why *why, struct vx_cpu **cpu)
{
    *cpu = NULL;
    struct vx_cpu *made = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for the CPU device");
    made->magic = CPU_MAGIC;
    made->loops = choice->loops ? choice->loops : vx_loops_pick();
    made->multiplier = choice->multiplier;
    vx_status status = VX_OK;
    made->works = vx_alloc_aligned((size_t)threads * sizeof *made->works);
    made->sums = vx_alloc_aligned(VX_SUMS_FLOATS * sizeof *made->sums);
    if (!made->works || !made->sums)
        status = vx_status_of_code(VX_CODE_RESOURCE_EXHAUSTED);
    else
        status = vx_pool_open(threads, &made->pool);
    if (status.fault) {
        vx_why_set(why, "the CPU device cannot start %d threads: %s", threads,
                   status.fault->text);
        vx_cpu_close(&made);
        return status;
    }
    *cpu = made;
    return VX_OK;
}

vx_status vx_cpu_open_as(const struct vx_cpu_choice *choice, struct vx_why *why,
                         struct vx_cpu **cpu)
{
    *cpu = NULL;
    i32 threads = choice->threads ? choice->threads : vx_cores_usable();
    VX_ENSURE_WHY(threads >= 1 && threads <= VX_CPU_THREADS_MAX, why, INVALID_ARGUMENT,
                  "the number of threads is out of range",
                  "threads: expected 0 (all usable cores) to %d, got %d",
                  VX_CPU_THREADS_MAX, threads);
    struct vx_cpu *made;
    VX_TRY(cpu_make(choice, threads, why, &made));
    /* A BLAS is loaded only where it may be faster than our loops (numbers in conv.c). */
    bool wanted =
        choice->multiplier == VX_MULTIPLIER_BLAS ||
        (choice->multiplier == VX_MULTIPLIER_AUTO && made->loops == &vx_loops_any);
    if (wanted)
        vx_blas_open(&made->blas);
    else
        VX_LOG(WORKER_BLAS, VX_LOG_TEXT("library", "not needed"),
               VX_LOG_TEXT("loops", made->loops->name));
    cpu_name(made);
    if (choice->multiplier == VX_MULTIPLIER_BLAS && !made->blas.sgemm) {
        vx_cpu_close(&made);
        VX_FAIL(INVALID_ARGUMENT, "there is no BLAS on this machine");
    }
    *cpu = made;
    return VX_OK;
}

vx_status vx_cpu_open(i32 threads, struct vx_why *why, struct vx_cpu **cpu)
{
    return vx_cpu_open_as(&(struct vx_cpu_choice){.threads = threads}, why, cpu);
}

vx_status vx_cpu_open_beside(const struct vx_cpu *cpu, struct vx_why *why,
                             struct vx_cpu **beside)
{
    VX_ASSERT(cpu->magic == CPU_MAGIC);
    const struct vx_cpu_choice choice = {.loops = cpu->loops,
                                         .multiplier = cpu->multiplier};
    VX_TRY(cpu_make(&choice, 1, why, beside));
    (*beside)->blas = cpu->blas;
    cpu_name(*beside);
    return VX_OK;
}

void vx_cpu_close(struct vx_cpu **cpu)
{
    struct vx_cpu *it = *cpu;
    *cpu = NULL;
    if (!it) return;
    VX_ASSERT(it->magic == CPU_MAGIC);
    it->magic = 0;
    vx_pool_close(&it->pool);
    vx_free(it->works);
    vx_free(it->sums);
    vx_free(it);
}

const char *vx_cpu_name(const struct vx_cpu *cpu)
{
    return cpu->name;
}

i32 vx_cpu_threads(const struct vx_cpu *cpu)
{
    return vx_pool_threads(cpu->pool);
}

struct spread {
    void (*task)(void *context, i64 begin, i64 end);
    void *context;
};

static void spread_task(void *context, i32 worker, i64 begin, i64 end)
{
    const struct spread *spread = context;
    (void)worker;
    spread->task(spread->context, begin, end);
}

void vx_cpu_spread(struct vx_cpu *cpu, i64 count, i64 grain,
                   void (*task)(void *context, i64 begin, i64 end), void *context)
{
    VX_ASSERT(cpu->magic == CPU_MAGIC);
    struct spread spread = {task, context};
    vx_pool_spread(cpu->pool, &(struct vx_pool_job){count, grain, spread_task, &spread});
}

void vx_cpu_tell(struct vx_cpu *cpu, void (*told)(void *context), void *context)
{
    VX_ASSERT(cpu->magic == CPU_MAGIC);
    vx_pool_tell(cpu->pool, told, context);
}

void vx_cpu_go_on(struct vx_cpu *cpu)
{
    VX_ASSERT(cpu->magic == CPU_MAGIC);
    vx_pool_go_on(cpu->pool);
}
