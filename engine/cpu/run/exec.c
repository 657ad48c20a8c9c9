/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/cpu/run/exec.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/cores.h"
#include "engine/base/process/thread.h"
#include "engine/cpu/device/cpu.h"
#include "engine/cpu/run/exec_job.h"

#include <string.h>
#include <sys/mman.h>

vx_status vx_exec_open(size_t bytes, struct vx_cpu *cpu, struct vx_geometry_cache *cache,
                       struct vx_why *why, struct vx_exec **exec)
{
    VX_ON(DEVICE);
    *exec = NULL;
    struct vx_exec *made = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for the device");
    made->magic = VX_EXEC_MAGIC;
    made->cpu = cpu;
    made->cache = cache;
    vx_status status = vx_aside_open(made, why);
    if (status.fault) {
        vx_exec_close(&made);
        return status;
    }
    void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) {
        vx_exec_close(&made);
        VX_FAIL_WHY(why, RESOURCE_EXHAUSTED, "the device memory cannot be reserved",
                    "device_bytes: %zu bytes of address space cannot be reserved", bytes);
    }
    /* Huge pages save page faults and TLB misses; a refusal does not matter. */
    (void)madvise(block, bytes, MADV_HUGEPAGE);
    vx_core_leave_out(block, bytes);
    made->block = block;
    made->bytes = bytes;
    *exec = made;
    return VX_OK;
}

void vx_exec_close(struct vx_exec **exec)
{
    struct vx_exec *it = *exec;
    *exec = NULL;
    if (!it) return;
    VX_ON(DEVICE);
    VX_ASSERT(it->magic == VX_EXEC_MAGIC);
    it->magic = 0;
    vx_aside_close(it);
    if (it->block) munmap(it->block, it->bytes);
    vx_free(it);
}

static void exec_on_chunk(void *context)
{
    const struct vx_exec *exec = context;
    if (exec->tells) vx_job_tell_again(exec->tells);
}

void vx_exec_tell(struct vx_exec *exec, const struct vx_progress *running)
{
    exec->running = *running;
    if (exec->aside) vx_exec_tell(exec->aside, running);
    vx_cpu_tell(exec->cpu, running->report ? exec_on_chunk : NULL, exec);
}

size_t vx_exec_bytes(const struct vx_exec *exec)
{
    return exec->bytes;
}

size_t vx_exec_used_max(const struct vx_exec *exec)
{
    return exec->used_max;
}

/* The time, without what ran meanwhile. */
static i64 job_clock(const struct vx_job *job)
{
    return vx_clock_ns() - job->exec->aside_ns;
}

static void job_convert_feats(const struct vx_job *job)
{
    const struct vx_item *item = job->item;
    if (job->feats != job->tensors[0]) return; /* read in the caller's memory */
    const struct vx_convert_args args = {
        .count = item->voxels * job->plan->graph->network->feats_channels,
        .from_type = vx_job_number_of(item->feats_dtype),
        .from = item->feats,
        .to_type = VX_NUMBER_F32,
        .to = job->tensors[0],
    };
    vx_cpu_convert(job->exec->cpu, &args);
}

/* The launches of a stage. */
static void job_launch(struct vx_job *job, i32 stage)
{
    const struct vx_plan *plan = job->plan;
    for (i32 i = stage ? plan->stage_ends[stage - 1] : 0; i < plan->stage_ends[stage];
         i++) {
        vx_job_tell(job);
        vx_panic_note("launch", (u64)i);
        vx_job_launch(job, i);
    }
    if (plan->stage_ends[stage] == plan->launches_count) vx_job_tell(job);
}

static i32 last_stage(const struct vx_job *job)
{
    return job->plan->stages_count - 1;
}

/* The work of all maps. */
static void job_cost(const struct vx_job *job)
{
    const struct vx_plan *plan = job->plan;
    i64 pairs = vx_plan_one_pairs(plan, job->rows);
    for (i32 i = 0; i < plan->maps_count; i++)
        if (!vx_map_is_one(&plan->maps[i])) pairs += job->maps[i]->pairs;
    job->item->pairs = pairs;
}

/* The sets and maps of a stage, and whether they fit its dense outputs and the block.  The voxels
 * of its sets also count if it fails: they have been made, and are paid for. */
static vx_status job_geometry(struct vx_job *job, i32 stage)
{
    i64 start = vx_clock_ns();
    vx_status status = stage ? VX_OK : vx_job_hold(job);
    const bool held = !status.fault;
    if (held) status = vx_job_stage(job, stage);
    if (held) job->item->set_voxels = vx_plan_set_voxels(job->plan, job->rows);
    job->item->geometry_ns += vx_clock_ns() - start;
    if (!status.fault) status = vx_job_dense_check(job, stage);
    return status.fault ? status : vx_job_place(job, stage);
}

static void job_layers(struct vx_job *job, i32 stage)
{
    i64 start = job_clock(job);
    job->exec->computes = true;
    if (!stage) job_convert_feats(job);
    i64 launch = job_clock(job);
    job->item->convert_ns += launch - start;
    job_launch(job, stage);
    job->exec->computes = false;
    job->item->compute_ns += job_clock(job) - launch;
}

/* A request runs in three parts.  Between them its geometry is held, and the block has its
 * tensors.  The first: everything up to the sizes of all its sets, which for sets by logits
 * needs the layers of the stages before.  The second is the layers of the last stage. */
static vx_status job_begin(struct vx_job *job)
{
    struct vx_item *item = job->item;
    const i64 alone[VX_SETS_MAX] = {item->voxels}; /* the least that it needs */
    VX_TRY(vx_job_fits(job, alone));
    item->geometry_ns = item->convert_ns = item->compute_ns = 0;
    job->exec->tells = job;
    VX_TRY(job_geometry(job, 0));
    for (i32 stage = 1; stage <= last_stage(job); stage++) {
        job_layers(job, stage - 1);
        VX_TRY(job_geometry(job, stage));
    }
    job_cost(job);
    item->geometry_hit = vx_geometry_was_hit(job->geometry);
    item->geometry_kept = vx_geometry_kept(job->geometry);
    return VX_OK;
}

static void job_outputs(struct vx_job *job)
{
    i64 start = job_clock(job);
    job->exec->computes = true;
    vx_job_write_outputs(job);
    job->exec->computes = false;
    job->item->output_ns = job_clock(job) - start;
}

static void job_end(struct vx_job *job)
{
    job->exec->tells = NULL;
    if (job->geometry) vx_geometry_drop(job->exec->cache, &job->geometry);
}

void vx_exec_run(struct vx_exec *exec, const struct vx_plan *plan,
                 const struct vx_weights *weights, struct vx_item *item)
{
    VX_ON(DEVICE);
    VX_ASSERT(exec->magic == VX_EXEC_MAGIC);
    VX_ASSERT(!exec->asking.item);
    VX_ASSERT(!item->asks);
    struct vx_job job = vx_job_make(exec, plan, weights, item);
    item->status = job_begin(&job);
    if (!item->status.fault) {
        job_layers(&job, last_stage(&job));
        job_outputs(&job);
    }
    job_end(&job);
}

/* ------- a request that asks for the places of its outputs ------- */

bool vx_exec_ask(struct vx_exec *exec, const struct vx_plan *plan,
                 const struct vx_weights *weights, struct vx_item *item)
{
    VX_ON(DEVICE);
    VX_ASSERT(exec->magic == VX_EXEC_MAGIC);
    VX_ASSERT(!exec->asking.item);
    const struct vx_network *network = plan->graph->network;
    i32 outputs = network->outputs_count + network->coords_count;
    VX_ASSERT(item->asks && !(item->asks >> outputs));
    struct vx_job *job = &exec->asking;
    *job = vx_job_make(exec, plan, weights, item);
    exec->launched = false;
    item->status = job_begin(job);
    for (i32 o = 0; o < outputs && !item->status.fault; o++)
        if (item->asks >> o & 1) item->rows[o] = vx_job_output_rows(job, o);
    if (item->status.fault) {
        job_end(job);
        job->item = NULL;
    }
    return !item->status.fault;
}

void vx_exec_go_on(struct vx_exec *exec)
{
    VX_ON(DEVICE);
    VX_ASSERT(exec->asking.item);
    if (exec->launched) return;
    job_layers(&exec->asking, last_stage(&exec->asking));
    exec->launched = true;
}

void vx_exec_end(struct vx_exec *exec)
{
    VX_ON(DEVICE);
    struct vx_job *job = &exec->asking;
    VX_ASSERT(job->item);
    if (!job->item->status.fault) {
        vx_exec_go_on(exec);
        job_outputs(job);
    }
    job_end(job);
    job->item = NULL;
}
