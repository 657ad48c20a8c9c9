/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/cpu/run/exec.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/thread.h"
#include "engine/base/text/sentence.h"
#include "engine/cpu/device/cpu.h"
#include "engine/cpu/run/exec_job.h"
#include "engine/model/backend.h"

#include <string.h>
#include <sys/mman.h>

#define EXEC_MAGIC 0x76784558u /* "vxEX" */

vx_status vx_exec_open(size_t bytes, struct vx_cpu *cpu, struct vx_geometry_cache *cache,
                       struct vx_why *why, struct vx_exec **exec)
{
    VX_ON(DEVICE);
    *exec = NULL;
    struct vx_exec *made = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for the device");
    void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (block == MAP_FAILED) {
        vx_free(made);
        VX_FAIL_WHY(why, RESOURCE_EXHAUSTED, "the device memory cannot be reserved",
                    "device_bytes: %zu bytes of address space cannot be reserved", bytes);
    }
    /* Huge pages save page faults and TLB misses; a refusal does not matter. */
    (void)madvise(block, bytes, MADV_HUGEPAGE);
    *made = (struct vx_exec){
        .magic = EXEC_MAGIC, .cpu = cpu, .cache = cache, .block = block, .bytes = bytes};
    *exec = made;
    return VX_OK;
}

void vx_exec_close(struct vx_exec **exec)
{
    struct vx_exec *it = *exec;
    *exec = NULL;
    if (!it) return;
    VX_ON(DEVICE);
    VX_ASSERT(it->magic == EXEC_MAGIC);
    it->magic = 0;
    munmap(it->block, it->bytes);
    vx_free(it);
}

void vx_exec_tell(struct vx_exec *exec, const struct vx_progress *running)
{
    exec->running = *running;
}

size_t vx_exec_bytes(const struct vx_exec *exec)
{
    return exec->bytes;
}

size_t vx_exec_used_max(const struct vx_exec *exec)
{
    return exec->used_max;
}

static vx_status exec_fits(const struct vx_plan *plan, size_t bytes, const i64 *rows,
                           struct vx_why *why)
{
    size_t need = vx_plan_bytes(plan, rows);
    char text[VX_PLAN_NEED_BYTES];
    VX_ENSURE_WHY(
        need <= bytes, why, RESOURCE_EXHAUSTED,
        "the activations do not fit in the device memory",
        "%lld voxels need %zu bytes of device memory (%s), %zu are available: at most "
        "%lld voxels fit",
        (long long)rows[0], need, vx_plan_need_text(plan, text), bytes,
        (long long)vx_plan_voxels_max(plan, bytes));
    return VX_OK;
}

/* Sets the address of every tensor: in the block, but f32 features and plain outputs in
 * the caller's memory. */
static vx_status job_place(struct vx_job *job)
{
    const struct vx_plan *plan = job->plan;
    const struct vx_network *network = plan->graph->network;
    struct vx_item *item = job->item;
    VX_TRY(exec_fits(plan, job->bytes, job->rows, &item->why));
    size_t used = vx_plan_bytes(plan, job->rows);
    if (used > job->exec->used_max) job->exec->used_max = used;
    for (i32 i = 0; i < plan->tensors_count; i++)
        job->tensors[i] =
            (f32 *)(void *)(job->block + vx_plan_tensor_offset(plan, i, job->rows));
    for (i32 i = 0; i < network->outputs_count; i++)
        if (item->outputs[i] && vx_job_output_is_plain(plan, i))
            job->tensors[plan->outputs[i]] = item->outputs[i];
    job->feats = job->tensors[0];
    if (item->feats && item->feats_dtype == VX_DTYPE_F32) job->feats = item->feats;
    return VX_OK;
}

/* A large request takes many seconds, so its progress is reported. */
static void job_tell(const struct vx_job *job, i64 done)
{
    i64 total = vx_exec_warm_pieces(job->plan) - 1;
    if (job->running.report) job->running.report(job->running.context, done, total);
}

/* Gets the first `count` sets of the network: the request's, and those made from it. */
static vx_status job_sets(struct vx_job *job, i32 count)
{
    const struct vx_plan *plan = job->plan;
    struct vx_why *why = &job->item->why;
    job->rows[0] = job->item->voxels;
    for (i32 i = 1; i < count; i++) {
        struct vx_set_key key = plan->sets[i].key;
        key.from = job->sets[key.from];
        job_tell(job, i - 1);
        VX_TRY(vx_geometry_set(job->geometry, job->exec->cpu, &key, why, &job->sets[i]));
        job->rows[i] = vx_geometry_rows(job->geometry, job->sets[i]);
        VX_TRY(vx_plan_check_set(plan, i, job->rows[i], true, why));
    }
    return VX_OK;
}

/* Gets the first `count` maps of the plan, the largest first: in this order a request
 * that fits always fits, whatever the cache held before (vx_geometry_room). */
static vx_status job_maps(struct vx_job *job, i32 count)
{
    const struct vx_plan *plan = job->plan;
    for (i32 i = 0; i < count; i++) {
        struct vx_map_key key = *plan->maps_by_size[i];
        key.from = job->sets[key.from];
        key.to = job->sets[key.to];
        job_tell(job, plan->sets_count - 1 + i);
        VX_TRY(vx_geometry_map(job->geometry, job->exec->cpu, &key, &job->item->why,
                               &job->maps[plan->maps_by_size[i] - plan->maps]));
    }
    return VX_OK;
}

/* Where the network has a spatial shape, every voxel must lie in it. */
static vx_status job_shape(const struct vx_job *job)
{
    i64 row = vx_geometry_outside(job->geometry, job->plan->sets[0].shape);
    return row < 0 ? VX_OK : vx_plan_outside(job->plan, row, &job->item->why);
}

static vx_status job_geometry(struct vx_job *job)
{
    struct vx_item *item = job->item;
    struct vx_exec *exec = job->exec;
    const struct vx_coords_view view = {item->coords, item->voxels, item->coords_columns,
                                        item->coords_ref};
    VX_TRY(vx_geometry_hold(exec->cache, exec->cpu, &view, &item->why, &job->geometry));
    VX_TRY(job_shape(job));
    VX_TRY(job_sets(job, job->plan->sets_count));
    VX_TRY(job_maps(job, job->plan->maps_count));
    item->pairs = job->plan->maps_count ? job->maps[0]->pairs : 0;
    item->geometry_hit = vx_geometry_was_hit(job->geometry);
    item->geometry_kept = vx_geometry_kept(job->geometry);
    return VX_OK;
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

static void job_launch_all(const struct vx_job *job)
{
    i64 before = (i64)job->plan->sets_count - 1 + job->plan->maps_count;
    for (i32 i = 0; i < job->plan->launches_count; i++) {
        job_tell(job, before + i);
        vx_panic_note("launch", (u64)i);
        vx_job_launch(job, i);
    }
    job_tell(job, before + job->plan->launches_count);
}

/* A request runs in three parts.  Between them its geometry is held, and the block has its
 * tensors.  The first: its geometry, and whether its tensors fit. */
static vx_status job_begin(struct vx_job *job)
{
    struct vx_item *item = job->item;
    const i64 alone[VX_SETS_MAX] = {item->voxels}; /* the least that it needs */
    VX_TRY(exec_fits(job->plan, job->bytes, alone, &item->why));
    i64 start = vx_clock_ns();
    vx_status status = job_geometry(job);
    item->geometry_ns = vx_clock_ns() - start;
    if (!status.fault) status = vx_job_dense_check(job);
    return status.fault ? status : job_place(job);
}

static void job_layers(const struct vx_job *job)
{
    i64 start = vx_clock_ns();
    job_convert_feats(job);
    i64 launch = vx_clock_ns();
    job->item->convert_ns = launch - start;
    job_launch_all(job);
    job->item->compute_ns = vx_clock_ns() - launch;
}

static void job_outputs(const struct vx_job *job)
{
    i64 start = vx_clock_ns();
    vx_job_write_outputs(job);
    job->item->output_ns = vx_clock_ns() - start;
}

static void job_end(struct vx_job *job)
{
    if (job->geometry) vx_geometry_drop(job->exec->cache, &job->geometry);
}

static struct vx_job job_make(struct vx_exec *exec, const struct vx_plan *plan,
                              const struct vx_weights *weights, struct vx_item *item)
{
    return (struct vx_job){.exec = exec,
                           .plan = plan,
                           .weights = weights,
                           .item = item,
                           .block = exec->block,
                           .bytes = exec->bytes,
                           .running = exec->running};
}

void vx_exec_run(struct vx_exec *exec, const struct vx_plan *plan,
                 const struct vx_weights *weights, struct vx_item *item)
{
    VX_ON(DEVICE);
    VX_ASSERT(exec->magic == EXEC_MAGIC);
    VX_ASSERT(!exec->asking.item);
    VX_ASSERT(!item->asks);
    struct vx_job job = job_make(exec, plan, weights, item);
    item->status = job_begin(&job);
    if (!item->status.fault) {
        job_layers(&job);
        job_outputs(&job);
    }
    job_end(&job);
}

/* ------- a request that asks for the places of its outputs ------- */

bool vx_exec_ask(struct vx_exec *exec, const struct vx_plan *plan,
                 const struct vx_weights *weights, struct vx_item *item)
{
    VX_ON(DEVICE);
    VX_ASSERT(exec->magic == EXEC_MAGIC);
    VX_ASSERT(!exec->asking.item);
    const struct vx_network *network = plan->graph->network;
    i32 outputs = network->outputs_count + network->coords_count;
    VX_ASSERT(item->asks && !(item->asks >> outputs));
    struct vx_job *job = &exec->asking;
    *job = job_make(exec, plan, weights, item);
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
    job_layers(&exec->asking);
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

/* ------- warm-up ------- */

/* High half of the coords_ref of a warm-up's geometry; the low half is N.  A coords_ref
 * of the front is a 128-bit hash and cannot be expected to have this value. */
#define WARM_NAME UINT64_C(0x7661726d2d757021)

i64 vx_exec_warm_pieces(const struct vx_plan *plan)
{
    return (i64)plan->sets_count + plan->maps_count + plan->launches_count;
}

/* Gets the geometry with its first `parts` sets and maps.  Batches that ran since the last
 * step may have evicted it; then this step builds it again. */
static vx_status warm_geometry(struct vx_job *job, i64 parts)
{
    i64 sets = job->plan->sets_count;
    struct vx_item *item = job->item;
    struct vx_exec *exec = job->exec;
    struct vx_coords_view view = {NULL, item->voxels, 4, item->coords_ref};
    vx_status status =
        vx_geometry_hold(exec->cache, exec->cpu, &view, &item->why, &job->geometry);
    if (vx_status_code(status) == VX_CODE_FAILED_PRECONDITION) {
        i32 *rows;
        VX_TRY(vx_warm_coords_open(item->voxels, &item->why, &rows));
        view.rows = rows;
        status =
            vx_geometry_hold(exec->cache, exec->cpu, &view, &item->why, &job->geometry);
        vx_warm_coords_close(&rows, item->voxels);
    }
    if (!status.fault) status = job_sets(job, (i32)(parts < sets ? parts : sets));
    return status.fault || parts <= sets ? status : job_maps(job, (i32)(parts - sets));
}

vx_status vx_exec_warm(struct vx_exec *exec, const struct vx_plan *plan,
                       const struct vx_weights *weights,
                       const struct vx_exec_warm_piece *piece, struct vx_why *why)
{
    VX_ON(DEVICE);
    VX_ASSERT(exec->magic == EXEC_MAGIC);
    VX_ASSERT(!exec->asking.item); /* it has the block */
    VX_ASSERT(piece->voxels > 0);
    VX_ASSERT(piece->index >= 0);
    VX_ASSERT(piece->index < vx_exec_warm_pieces(plan));
    const i64 alone[VX_SETS_MAX] = {piece->voxels};
    VX_TRY(exec_fits(plan, exec->bytes, alone, why));
    struct vx_item item = {.coords_ref = {(u64)piece->voxels, WARM_NAME},
                           .coords_columns = 4,
                           .voxels = piece->voxels};
    struct vx_job job = job_make(exec, plan, weights, &item);
    job.running = (struct vx_progress){0};
    i64 parts = (i64)plan->sets_count + plan->maps_count, launch = piece->index - parts;
    vx_status status = warm_geometry(&job, launch < 0 ? piece->index + 1 : parts);
    if (!status.fault && launch >= 0) status = job_place(&job);
    if (!status.fault && !launch) {
        size_t channels = (size_t)plan->graph->network->feats_channels;
        memset(job.tensors[0], 0, (size_t)item.voxels * channels * sizeof(f32));
    }
    if (!status.fault && launch >= 0) {
        vx_panic_note("launch", (u64)launch);
        vx_job_launch(&job, (i32)launch);
    }
    if (status.fault && why) *why = item.why;
    if (job.geometry) vx_geometry_drop(exec->cache, &job.geometry);
    if (status.fault || piece->index + 1 == vx_exec_warm_pieces(plan))
        vx_geometry_forget(exec->cache, item.coords_ref);
    return status;
}
