/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/thread.h"
#include "engine/cpu/device/cpu.h"
#include "engine/cpu/run/exec_job.h"
#include "engine/model/backend.h"

/* Where the tensors of another request may begin. */
#define BLOCK_ALIGN 64
/* The long request goes on for as long as the brief one took, so that it gets half of the time; but
 * after one that was taken for brief, and took seconds, others wait no longer than this. */
#define REST_NS_MAX (100 * VX_NS_PER_MS)

vx_status vx_aside_open(struct vx_exec *exec, struct vx_why *why)
{
    struct vx_exec *made = exec->aside = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for the device");
    made->magic = VX_EXEC_MAGIC;
    made->cache = exec->cache;
    return vx_cpu_open_beside(exec->cpu, why, &made->cpu);
}

void vx_aside_close(struct vx_exec *exec)
{
    if (!exec->aside) return;
    if (exec->aside->cpu) vx_cpu_close(&exec->aside->cpu);
    vx_free(exec->aside);
    exec->aside = NULL;
}

static bool may_run(const struct vx_exec *exec, const struct vx_item *item, i64 now_ns)
{
    if (!exec->computes || !exec->tells || exec->aside->tells) return false;
    if (now_ns < exec->rests_until_ns) return false;
    /* A geometry that both held would be built for one while the other reads it. */
    return !vx_coords_ref_there(item->coords_ref) ||
           !vx_coords_ref_equal(item->coords_ref, exec->tells->item->coords_ref);
}

bool vx_exec_run_aside(struct vx_exec *exec, const struct vx_plan *plan,
                       const struct vx_weights *weights, struct vx_item *item,
                       bool *later)
{
    VX_ON(DEVICE);
    VX_ASSERT(exec->magic == VX_EXEC_MAGIC);
    const i64 begin_ns = vx_clock_ns();
    *later = false;
    if (!may_run(exec, item, begin_ns)) return false;
    struct vx_exec *aside = exec->aside;
    const size_t from = vx_round_up(exec->in_use, BLOCK_ALIGN);
    if (from >= exec->bytes) {
        *later = true;
        return false;
    }
    aside->block = exec->block + from;
    aside->bytes = exec->bytes - from;
    vx_geometry_keep_still(exec->cache, true);
    vx_exec_run(aside, plan, weights, item);
    vx_geometry_keep_still(exec->cache, false);
    aside->block = NULL;
    const i64 ran_ns = vx_clock_ns() - begin_ns;
    exec->aside_ns += ran_ns;
    const i64 rest_ns = ran_ns < REST_NS_MAX ? ran_ns : REST_NS_MAX;
    exec->rests_until_ns = begin_ns + ran_ns + rest_ns;
    /* Limits of its model refuse it whenever it runs. */
    *later = vx_status_code(item->status) == VX_CODE_RESOURCE_EXHAUSTED &&
             (aside->lacks || vx_geometry_lacked(exec->cache));
    if (*later) {
        item->status = VX_OK;
        vx_item_begin(item);
    } else if (from + aside->used_max > exec->used_max) {
        exec->used_max = from + aside->used_max;
    }
    aside->used_max = 0;
    return !*later;
}

i64 vx_exec_aside_ns(const struct vx_exec *exec)
{
    return exec->aside_ns;
}
