/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/cpu/run/exec.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/thread.h"
#include "engine/cpu/device/cpu.h"
#include "engine/model/backend.h"

#include <string.h>
#include <sys/mman.h>

#define EXEC_MAGIC 0x76784558u /* "vxEX" */

struct vx_exec {
    u32 magic;
    struct vx_cpu *cpu;
    struct vx_geometry_cache *cache;
    u8 *block;
    size_t bytes;
    size_t used_max;
    struct vx_progress running;
};

/* One request that runs through a plan. */
struct job {
    struct vx_exec *exec;
    const struct vx_plan *plan;
    const struct vx_weights *weights;
    struct vx_item *item;
    u8 *block; /* the plan's offsets count from here */
    size_t bytes;
    struct vx_progress running; /* report NULL for a warm-up */
    struct vx_geometry *geometry;
    const struct vx_map *maps[VX_LAYERS_MAX];
    const f32 *feats; /* tensor 0, or the caller's features if they are f32 */
    f32 *tensors[VX_MEMORY_TENSORS_MAX];
};

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

vx_status vx_exec_check(const struct vx_plan *plan, size_t bytes, i64 n,
                        struct vx_why *why)
{
    size_t need = vx_plan_bytes(plan, n);
    VX_ENSURE_WHY(
        need <= bytes, why, RESOURCE_EXHAUSTED,
        "the activations do not fit in the device memory",
        "%lld voxels need %zu bytes of device memory (%lld channels each), %zu are "
        "available: at most %lld voxels fit",
        (long long)n, need, (long long)plan->channels, bytes,
        (long long)vx_plan_voxels_max(plan, bytes));
    return VX_OK;
}

/* Sets the address of every tensor: in the block, but f32 features and f32 outputs in the
 * caller's memory. */
static void job_place(struct job *job)
{
    const struct vx_plan *plan = job->plan;
    const struct vx_network *network = plan->graph->network;
    struct vx_item *item = job->item;
    for (i32 i = 0; i < plan->tensors_count; i++)
        job->tensors[i] =
            (f32 *)(void *)(job->block + vx_plan_tensor_offset(plan, i, item->voxels));
    for (i32 i = 0; i < network->outputs_count; i++)
        if (item->outputs[i] && network->outputs[i].dtype == VX_DTYPE_F32)
            job->tensors[plan->outputs[i]] = item->outputs[i];
    job->feats = job->tensors[0];
    if (item->feats && item->feats_dtype == VX_DTYPE_F32) job->feats = item->feats;
}

static const f32 *job_input(const struct job *job, const struct vx_launch *launch,
                            i32 index)
{
    i32 tensor = launch->inputs[index];
    return tensor ? job->tensors[tensor] : job->feats;
}

/* A large request takes many seconds, so its progress is reported. */
static void job_tell(const struct job *job, i64 done)
{
    i64 total = (i64)job->plan->maps_count + job->plan->launches_count;
    if (job->running.report) job->running.report(job->running.context, done, total);
}

/* Gets the first `count` maps of the plan, the largest first: in this order a request
 * that fits always fits, whatever the cache held before (vx_geometry_room). */
static vx_status job_maps(struct job *job, i32 count)
{
    const struct vx_plan *plan = job->plan;
    for (i32 i = 0; i < count; i++) {
        job_tell(job, i);
        VX_TRY(vx_geometry_map(job->geometry, job->exec->cpu, plan->maps_by_size[i],
                               &job->item->why,
                               &job->maps[plan->maps_by_size[i] - plan->maps]));
    }
    return VX_OK;
}

static vx_status job_geometry(struct job *job)
{
    struct vx_item *item = job->item;
    struct vx_exec *exec = job->exec;
    const struct vx_coords_view view = {item->coords, item->voxels, item->coords_columns,
                                        item->coords_ref};
    VX_TRY(vx_geometry_hold(exec->cache, exec->cpu, &view, &item->why, &job->geometry));
    VX_TRY(job_maps(job, job->plan->maps_count));
    item->pairs = job->plan->maps_count ? job->maps[0]->pairs : 0;
    item->geometry_hit = vx_geometry_was_hit(job->geometry);
    item->geometry_kept = vx_geometry_kept(job->geometry);
    return VX_OK;
}

/* Both enums have the same values (cpu.h asserts it). */
static enum vx_number number_of(enum vx_dtype dtype)
{
    bool known = dtype == VX_DTYPE_F32 || dtype == VX_DTYPE_F16 || dtype == VX_DTYPE_BF16;
    VX_ASSERT(known);
    return (enum vx_number)dtype;
}

static void job_convert_feats(const struct job *job)
{
    const struct vx_item *item = job->item;
    if (job->feats != job->tensors[0]) return; /* read in the caller's memory */
    const struct vx_convert_args args = {
        .count = item->voxels * job->plan->graph->network->feats_channels,
        .from_type = number_of(item->feats_dtype),
        .from = item->feats,
        .to_type = VX_NUMBER_F32,
        .to = job->tensors[0],
    };
    vx_cpu_convert(job->exec->cpu, &args);
}

static void launch_conv(const struct job *job, const struct vx_launch *launch,
                        const struct vx_node_weights *weights)
{
    const struct vx_layer *layer = launch->node->layer;
    const struct vx_map *map = job->maps[launch->map];
    VX_ASSERT(map->v == layer->v);
    VX_ASSERT(map->n == job->item->voxels);
    VX_ASSERT(!launch->node->residual);
    const struct vx_conv_args args = {
        .n = map->n,
        .v = map->v,
        .ci = layer->channels_in,
        .co = layer->channels,
        .nbr = map->nbr,
        .in = job_input(job, launch, 0),
        .weight = weights->weight,
        .bias = weights->bias,
        .activation = launch->node->activation,
        .out = job->tensors[launch->output],
    };
    vx_cpu_conv(job->exec->cpu, &args);
}

static void launch_linear(const struct job *job, const struct vx_launch *launch,
                          const struct vx_node_weights *weights)
{
    const struct vx_linear_args args = {
        .n = job->item->voxels,
        .ci = launch->node->layer->channels_in,
        .co = launch->node->layer->channels,
        .in = job_input(job, launch, 0),
        .weight = weights->weight,
        .bias = weights->bias,
        .activation = launch->node->activation,
        .out = job->tensors[launch->output],
    };
    vx_cpu_linear(job->exec->cpu, &args);
}

static void launch_batch_norm(const struct job *job, const struct vx_launch *launch,
                              const struct vx_node_weights *weights)
{
    const struct vx_batch_norm_args args = {
        .n = job->item->voxels,
        .c = launch->node->layer->channels,
        .in = job_input(job, launch, 0),
        .scale = weights->weight,
        .shift = weights->bias,
        .activation = launch->node->activation,
        .out = job->tensors[launch->output],
    };
    vx_cpu_batch_norm(job->exec->cpu, &args);
}

static void launch_layer_norm(const struct job *job, const struct vx_launch *launch,
                              const struct vx_node_weights *weights)
{
    const struct vx_layer_norm_args args = {
        .n = job->item->voxels,
        .c = launch->node->layer->channels,
        .eps = (f32)launch->node->layer->eps,
        .in = job_input(job, launch, 0),
        .weight = weights->weight,
        .bias = weights->bias,
        .activation = launch->node->activation,
        .out = job->tensors[launch->output],
    };
    vx_cpu_layer_norm(job->exec->cpu, &args);
}

static void launch_activation(const struct job *job, const struct vx_launch *launch)
{
    const struct vx_activation_args args = {
        .n = job->item->voxels,
        .c = launch->node->layer->channels,
        .activation = launch->node->activation,
        .in = job_input(job, launch, 0),
        .out = job->tensors[launch->output],
    };
    vx_cpu_activation(job->exec->cpu, &args);
}

static void launch_add(const struct job *job, const struct vx_launch *launch)
{
    const struct vx_add_args args = {
        .n = job->item->voxels,
        .c = launch->node->layer->channels,
        .a = job_input(job, launch, 0),
        .b = job_input(job, launch, 1),
        .activation = launch->node->activation,
        .out = job->tensors[launch->output],
    };
    vx_cpu_add(job->exec->cpu, &args);
}

static void launch_concat(const struct job *job, const struct vx_launch *launch)
{
    const struct vx_node *node = launch->node;
    struct vx_concat_args args = {
        .n = job->item->voxels,
        .inputs_count = node->inputs_count,
        .out = job->tensors[launch->output],
    };
    for (i32 i = 0; i < node->inputs_count; i++) {
        args.inputs[i].data = job_input(job, launch, i);
        args.inputs[i].c = vx_plan_channels(job->plan, launch->inputs[i]);
    }
    vx_cpu_concat(job->exec->cpu, &args);
}

static void job_launch(const struct job *job, i32 index)
{
    const struct vx_launch *launch = &job->plan->launches[index];
    const struct vx_node_weights *weights = vx_weights_get(job->weights, index);
    switch (launch->op) {
    case VX_OP_SUBM_CONV: launch_conv(job, launch, weights); return;
    case VX_OP_LINEAR: launch_linear(job, launch, weights); return;
    case VX_OP_BATCH_NORM: launch_batch_norm(job, launch, weights); return;
    case VX_OP_LAYER_NORM: launch_layer_norm(job, launch, weights); return;
    case VX_OP_RELU:
    case VX_OP_SILU:
    case VX_OP_GELU:
    case VX_OP_SIGMOID: launch_activation(job, launch); return;
    case VX_OP_ADD: launch_add(job, launch); return;
    case VX_OP_CONCAT: launch_concat(job, launch); return;
    case VX_OPS_COUNT: break;
    }
    VX_ASSERT(launch->op < VX_OPS_COUNT);
}

static void job_launch_all(const struct job *job)
{
    for (i32 i = 0; i < job->plan->launches_count; i++) {
        job_tell(job, job->plan->maps_count + i);
        vx_panic_note("launch", (u64)i);
        job_launch(job, i);
    }
    job_tell(job, job->plan->maps_count + job->plan->launches_count);
}

/* Converts the wanted outputs that are not in the caller's memory already. */
static void job_convert_outputs(const struct job *job)
{
    const struct vx_network *network = job->plan->graph->network;
    for (i32 i = 0; i < network->outputs_count; i++) {
        i32 tensor = job->plan->outputs[i];
        void *wanted = job->item->outputs[i];
        if (!wanted || wanted == (void *)job->tensors[tensor]) continue;
        const struct vx_convert_args args = {
            .count = job->item->voxels * vx_plan_channels(job->plan, tensor),
            .from_type = VX_NUMBER_F32,
            .from = job->tensors[tensor],
            .to_type = number_of(network->outputs[i].dtype),
            .to = wanted,
        };
        vx_cpu_convert(job->exec->cpu, &args);
    }
}

static vx_status job_run(struct job *job)
{
    struct vx_item *item = job->item;
    VX_TRY(vx_exec_check(job->plan, job->bytes, item->voxels, &item->why));
    size_t used = vx_plan_bytes(job->plan, item->voxels);
    if (used > job->exec->used_max) job->exec->used_max = used;
    job_place(job);

    i64 start = vx_clock_ns();
    vx_status status = job_geometry(job);
    item->geometry_ns = vx_clock_ns() - start;
    if (status.fault) goto out;

    start = vx_clock_ns();
    job_convert_feats(job);
    item->convert_ns = vx_clock_ns() - start;

    start = vx_clock_ns();
    job_launch_all(job);
    item->compute_ns = vx_clock_ns() - start;

    start = vx_clock_ns();
    job_convert_outputs(job);
    item->output_ns = vx_clock_ns() - start;
out:
    if (job->geometry) vx_geometry_drop(job->exec->cache, &job->geometry);
    return status;
}

void vx_exec_run(struct vx_exec *exec, const struct vx_plan *plan,
                 const struct vx_weights *weights, struct vx_item *item)
{
    VX_ON(DEVICE);
    VX_ASSERT(exec->magic == EXEC_MAGIC);
    struct job job = {.exec = exec, .plan = plan, .weights = weights, .item = item};
    job.block = exec->block;
    job.bytes = exec->bytes;
    job.running = exec->running;
    item->status = job_run(&job);
}

/* ------- warm-up ------- */

/* High half of the coords_ref of a warm-up's geometry; the low half is N.  A coords_ref
 * of the front is a 128-bit hash and cannot be expected to have this value. */
#define WARM_NAME UINT64_C(0x7661726d2d757021)

i64 vx_exec_warm_pieces(const struct vx_plan *plan)
{
    return 1 + (i64)plan->maps_count + plan->launches_count;
}

/* Gets the geometry with its first `maps_count` maps.  Batches that ran since the last
 * step may have evicted it; then this step builds it again. */
static vx_status warm_geometry(struct job *job, i32 maps_count)
{
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
    return status.fault ? status : job_maps(job, maps_count);
}

vx_status vx_exec_warm(struct vx_exec *exec, const struct vx_plan *plan,
                       const struct vx_weights *weights,
                       const struct vx_exec_warm_piece *piece, struct vx_why *why)
{
    VX_ON(DEVICE);
    VX_ASSERT(exec->magic == EXEC_MAGIC);
    VX_ASSERT(piece->voxels > 0);
    VX_ASSERT(piece->index >= 0);
    VX_ASSERT(piece->index < vx_exec_warm_pieces(plan));
    VX_TRY(vx_exec_check(plan, exec->bytes, piece->voxels, why));
    struct vx_item item = {.coords_ref = {(u64)piece->voxels, WARM_NAME},
                           .coords_columns = 4,
                           .voxels = piece->voxels};
    struct job job = {.exec = exec, .plan = plan, .weights = weights, .item = &item};
    job.block = exec->block;
    job.bytes = exec->bytes;
    i64 launch = piece->index - 1 - plan->maps_count;
    job_place(&job);
    vx_status status =
        warm_geometry(&job, launch < 0 ? (i32)piece->index : plan->maps_count);
    if (!status.fault && !launch) {
        size_t channels = (size_t)plan->graph->network->feats_channels;
        memset(job.tensors[0], 0, (size_t)item.voxels * channels * sizeof(f32));
    }
    if (!status.fault && launch >= 0) {
        vx_panic_note("launch", (u64)launch);
        job_launch(&job, (i32)launch);
    }
    if (status.fault && why) *why = item.why;
    if (job.geometry) vx_geometry_drop(exec->cache, &job.geometry);
    if (status.fault || piece->index + 1 == vx_exec_warm_pieces(plan))
        vx_geometry_forget(exec->cache, item.coords_ref);
    return status;
}
