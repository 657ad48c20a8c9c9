/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/model/model_kernels.h"

#include "engine/base/process/check.h"
#include "engine/gpu/geometry/map_parts.h"
#include "engine/gpu/geometry/occupancy.h"
#include "engine/gpu/geometry/ranks.h"
#include "engine/gpu/model/model_dense.h"
#include "engine/gpu/model/model_live.h"
#include "engine/gpu/model/model_mlp.h"
#include "engine/gpu/model/model_narrow.h"

static bool same(const struct vx_jit_wanted *a, const struct vx_jit_wanted *b)
{
    return a->spec == b->spec && a->tile == b->tile && a->type == b->type;
}

static vx_status wanted_add(struct vx_gpu_wanted *wanted,
                            const struct vx_jit_wanted *kernel, struct vx_why *why)
{
    for (i32 i = 0; i < wanted->count; i++)
        if (same(&wanted->list[i], kernel)) return VX_OK;
    VX_ENSURE_WHY(wanted->count < VX_GPU_WANTED_MAX, why, RESOURCE_EXHAUSTED,
                  "a model needs too many kernels", "a model may need at most %d kernels",
                  VX_GPU_WANTED_MAX);
    wanted->list[wanted->count++] = *kernel;
    return VX_OK;
}

struct vx_jit_wanted vx_gpu_pass_wanted(enum vx_gpu_pass pass, enum vx_number type)
{
    static const char *const names[VX_GPU_PASSES_COUNT] = {
        [VX_GPU_ROWS_IN] = "rows_in",
        [VX_GPU_ROWS_OUT] = "rows_out",
        [VX_GPU_ACTIVATION] = "activation",
        [VX_GPU_ADD] = "add",
        [VX_GPU_BATCH_NORM] = "batch_norm",
        [VX_GPU_CONCAT] = "concat",
        [VX_GPU_LAYER_NORM] = "layer_norm",
        [VX_GPU_AFFINE] = "affine",
        [VX_GPU_CURVE] = "curve",
        [VX_GPU_DEVOXELIZE] = "devoxelize",
        [VX_GPU_VOXEL_MEAN] = "voxel_mean",
        [VX_GPU_MUL] = "mul",
        [VX_GPU_SAMPLE_CHUNKS] = "sample_chunks",
        [VX_GPU_SAMPLE_POOL] = "sample_pool",
        [VX_GPU_SOFTMAX] = "softmax",
        [VX_GPU_TO_DENSE] = "to_dense",
        [VX_GPU_ARGMAX] = "argmax",
        [VX_GPU_CONV_GROUP] = "conv_group",
        [VX_GPU_POOL] = "pool",
        [VX_GPU_ROW_GATHER] = "row_gather",
        [VX_GPU_GROUP_APPLY] = "group_apply",
        [VX_GPU_GROUP_SUMS] = "group_sums",
    };
    const struct vx_kernel_spec *spec = vx_kernel_find(names[pass]);
    VX_ASSERT(spec);
    VX_ASSERT(spec->tiles_count == 1);
    /* TF32 concerns only matrix products; these kernels have none. */
    if (type == VX_NUMBER_TF32) type = VX_NUMBER_F32;
    VX_ASSERT(spec->types & 1u << type);
    return (struct vx_jit_wanted){spec, spec->tiles, type};
}

static enum vx_gpu_pass pass_of(enum vx_op op)
{
    switch (op) {
    case VX_OP_BATCH_NORM: return VX_GPU_BATCH_NORM;
    case VX_OP_LAYER_NORM: return VX_GPU_LAYER_NORM;
    case VX_OP_GROUP_NORM:
    case VX_OP_INSTANCE_NORM: return VX_GPU_GROUP_APPLY;
    case VX_OP_ADD: return VX_GPU_ADD;
    case VX_OP_MUL: return VX_GPU_MUL;
    case VX_OP_AFFINE: return VX_GPU_AFFINE;
    case VX_OP_LEAKY_RELU:
    case VX_OP_SOFTPLUS:
    case VX_OP_TANH: return VX_GPU_CURVE;
    case VX_OP_SOFTMAX: return VX_GPU_SOFTMAX;
    case VX_OP_ARGMAX: return VX_GPU_ARGMAX;
    case VX_OP_CONCAT: return VX_GPU_CONCAT;
    case VX_OP_SUBM_CONV:
    case VX_OP_SPARSE_CONV:
    case VX_OP_INVERSE_CONV:
    case VX_OP_TRANSPOSED_CONV: return VX_GPU_CONV_GROUP;
    case VX_OP_MAX_POOL:
    case VX_OP_SUM_POOL:
    case VX_OP_AVG_POOL:
    case VX_OP_DOWNSAMPLE: return VX_GPU_POOL;
    case VX_OP_GLOBAL_POOL: return VX_GPU_SAMPLE_POOL;
    case VX_OP_VOXELIZE: return VX_GPU_VOXEL_MEAN;
    case VX_OP_DEVOXELIZE: return VX_GPU_DEVOXELIZE;
    case VX_OP_PRUNE:
    case VX_OP_UNPOOL:
    case VX_OP_UPSAMPLE:
    case VX_OP_CHANNEL_TO_SPACE:
    case VX_OP_SPACE_TO_CHANNEL: return VX_GPU_ROW_GATHER;
    default: return VX_GPU_ACTIVATION;
    }
}

static vx_status wanted_pass(struct vx_gpu_wanted *wanted, enum vx_gpu_pass pass,
                             enum vx_number type, struct vx_why *why)
{
    struct vx_jit_wanted kernel = vx_gpu_pass_wanted(pass, type);
    return wanted_add(wanted, &kernel, why);
}

/* What a launch needs beside the kernel of its pass. */
static vx_status wanted_beside(struct vx_gpu_wanted *wanted, enum vx_gpu_pass pass,
                               enum vx_number type, struct vx_why *why)
{
    const struct vx_jit_wanted words = vx_gpu_map_wanted("voxel_words", 0);
    if (pass == VX_GPU_GROUP_APPLY)
        return wanted_pass(wanted, VX_GPU_GROUP_SUMS, type, why);
    if (pass == VX_GPU_SAMPLE_POOL)
        return wanted_pass(wanted, VX_GPU_SAMPLE_CHUNKS, type, why);
    if (pass == VX_GPU_DEVOXELIZE) /* nearest */
        return wanted_pass(wanted, VX_GPU_ROW_GATHER, type, why);
    return pass == VX_GPU_VOXEL_MEAN ? wanted_add(wanted, &words, why) : VX_OK;
}

static vx_status wanted_conv(struct vx_gpu_wanted *wanted,
                             const struct vx_gpu_choices *choices, i32 launch, i64 n,
                             struct vx_why *why)
{
    struct vx_conv_problem problem;
    struct vx_jit_wanted kernels[VX_CONV_KERNELS_MAX];
    i32 count;
    vx_gpu_problem_make(choices, launch, n, &problem);
    /* Those of every density: a round of another one does not wait for a compiler. */
    for (int density = 0; density < VX_DENSITIES_COUNT; density++) {
        count = vx_conv_kernels(
            &problem, vx_gpu_choice_get(choices, launch, n, (enum vx_density)density),
            kernels);
        VX_ASSERT(count <= VX_CONV_KERNELS_MAX);
        for (i32 i = 0; i < count; i++) VX_TRY(wanted_add(wanted, &kernels[i], why));
    }
    if (!choices->plan->launches[launch].node->live) return VX_OK;
    count = vx_gpu_live_kernels(choices->type, kernels, VX_CONV_KERNELS_MAX);
    for (i32 i = 0; i < count; i++) VX_TRY(wanted_add(wanted, &kernels[i], why));
    return VX_OK;
}

static vx_status wanted_geometry(struct vx_gpu_wanted *wanted, const struct vx_plan *plan,
                                 enum vx_number type, struct vx_why *why)
{
    struct vx_jit_wanted kernels[VX_GPU_WANTED_MAX];
    i32 count = vx_gpu_map_kernels(kernels, VX_GPU_WANTED_MAX);
    count += vx_gpu_pieces_kernels(kernels + count, VX_GPU_WANTED_MAX - count);
    if (plan->levels)
        count += vx_gpu_levels_kernels(kernels + count, VX_GPU_WANTED_MAX - count);
    bool sorted = false;
    for (i32 o = 0; o < plan->ordered_count; o++)
        sorted = sorted || vx_plan_is_sorted(&plan->ordered[o]);
    if (sorted) count += vx_gpu_ranks_kernels(kernels + count, VX_GPU_WANTED_MAX - count);
    if (plan->stages_count > 1)
        count +=
            vx_gpu_occupancy_kernels(type, kernels + count, VX_GPU_WANTED_MAX - count);
    if (vx_gpu_dense_bytes(plan))
        count += vx_gpu_dense_kernels(type, kernels + count, VX_GPU_WANTED_MAX - count);
    for (i32 i = 0; i < count; i++) VX_TRY(wanted_add(wanted, &kernels[i], why));
    return VX_OK;
}

/* A kernel that does not fit the device is never launched: there is another way. */
static void leave_out(struct vx_gpu_wanted *wanted, const struct vx_caps *caps)
{
    i32 kept = 0;
    for (i32 i = 0; i < wanted->count; i++) {
        const struct vx_jit_wanted *it = &wanted->list[i];
        if (!it->spec->fits || it->spec->fits(it->tile, it->type, caps))
            wanted->list[kept++] = *it;
    }
    wanted->count = kept;
}

vx_status vx_gpu_wanted_model(struct vx_gpu_wanted *wanted,
                              const struct vx_gpu_choices *choices, i64 n,
                              struct vx_why *why)
{
    const struct vx_plan *plan = choices->plan;
    i64 rows[VX_SETS_MAX];
    VX_ASSERT(n <= choices->voxels_max);
    vx_gpu_rows_max(plan, n, rows);
    VX_TRY(wanted_geometry(wanted, plan, choices->type, why));
    const struct vx_jit_wanted tile = vx_conv_tile_wanted();
    if (choices->streams) VX_TRY(wanted_add(wanted, &tile, why));
    VX_TRY(wanted_pass(wanted, VX_GPU_ROWS_IN, choices->type, why));
    VX_TRY(wanted_pass(wanted, VX_GPU_ROWS_OUT, choices->type, why));
    for (i32 i = 0; i < plan->launches_count; i++) {
        const struct vx_launch *launch = &plan->launches[i];
        if (launch->op == VX_OP_CONCAT && !vx_plan_copies(plan, launch)) continue;
        struct vx_jit_wanted run;
        if (vx_gpu_mlp_wanted(choices, i, &run)) VX_TRY(wanted_add(wanted, &run, why));
        if (choices->narrow[i]) {
            const struct vx_jit_wanted narrow = vx_gpu_narrow_wanted(choices, i);
            VX_TRY(wanted_add(wanted, &narrow, why));
            continue;
        }
        if (!vx_gpu_is_conv(choices, i)) {
            enum vx_gpu_pass pass = pass_of(launch->op);
            VX_TRY(wanted_pass(wanted, pass, choices->type, why));
            VX_TRY(wanted_beside(wanted, pass, choices->type, why));
            continue;
        }
        const i64 most = rows[launch->set];
        for (i32 size = 1; size <= vx_size_class(most); size++) {
            const i64 last = vx_size_last(size);
            VX_TRY(wanted_conv(wanted, choices, i, last < most ? last : most, why));
        }
    }
    leave_out(wanted, choices->caps);
    return VX_OK;
}
