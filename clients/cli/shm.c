/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/shm.h"

#include "clients/c/error.h"
#include "clients/cli/sparse.h"

#include <inttypes.h>
#include <string.h>

/* Tensors begin at multiples of a cache line, which also suits vector instructions. */
#define ALIGN 64

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* The bytes of an output for `rows` voxels; only its first dimension may be -1. */
static enum voxel_code output_bytes(const struct voxel_tensor_info *output, int64_t rows,
                                    size_t *bytes, struct voxel_error *error)
{
    bool known = output->type != VOXEL_BYTES;
    *bytes = voxel_type_bytes(output->type);
    for (int32_t d = 0; d < output->rank && known; d++) {
        int64_t size = d == 0 && output->shape[0] < 0 ? rows : output->shape[d];
        known = size >= 0 && !__builtin_mul_overflow(*bytes, (size_t)size, bytes);
    }
    if (known && *bytes <= SIZE_MAX / 2) return VOXEL_OK;
    return voxel_error_set(
        error, VOXEL_UNIMPLEMENTED,
        "--shm: the model's metadata does not tell the size of output '%s'",
        output->name);
}

static enum voxel_code plan_places(const struct shm_plan *plan, struct shm_request *shm,
                                   struct voxel_error *error)
{
    int64_t rows = plan->tensors->list[0].shape[0];
    /* A model with coordinates among its outputs does not tell which of the others are on
     * them, and so how many rows they have: its outputs come in the answer. */
    for (int32_t i = 0; i < plan->info->outputs_count; i++)
        if (sparse_is_coords(&plan->info->outputs[i]) ||
            plan->info->outputs[i].rank >
                2) /* dense: how many samples it does not tell */
            return VOXEL_OK;
    for (int32_t i = 0; i < plan->info->outputs_count; i++) {
        const struct voxel_tensor_info *output = &plan->info->outputs[i];
        size_t bytes;
        if (plan->output && strcmp(plan->output, output->name) != 0) continue;
        enum voxel_code code = output_bytes(output, rows, &bytes, error);
        if (code) return code;
        if (shm->outputs_count == VOXEL_OUTPUTS_SHM)
            return voxel_error_set(error, VOXEL_UNIMPLEMENTED,
                                   "--shm: the model has more than %d outputs",
                                   VOXEL_OUTPUTS_SHM);
        shm->places[shm->outputs_count++] = (struct voxel_place){
            .output = output->name, .bytes = bytes, .region_offset = shm->set_bytes};
        shm->set_bytes += aligned(bytes);
    }
    return VOXEL_OK;
}

enum voxel_code shm_request_open(struct voxel_client *client, const struct shm_plan *plan,
                                 struct shm_request *shm, struct voxel_error *error)
{
    memset(shm, 0, sizeof *shm);
    shm->sets = plan->sets;
    enum voxel_code code = plan_places(plan, shm, error);
    if (code) return code;
    struct voxel_tensor *tensors = plan->tensors->list;
    size_t begin = aligned(tensors[0].bytes) + aligned(tensors[1].bytes);
    size_t bytes;
    if (__builtin_mul_overflow(shm->set_bytes, (size_t)plan->sets, &bytes) ||
        __builtin_add_overflow(bytes, begin, &bytes))
        return voxel_error_set(error, VOXEL_RESOURCE_EXHAUSTED,
                               "--shm: %" PRId64 " sets of outputs do not fit in memory",
                               plan->sets);
    code = voxel_region_open(client, bytes ? bytes : 1, &shm->region, error);
    if (code) return code;
    size_t at = 0;
    for (int i = 0; i < 2; i++) {
        uint8_t *to = (uint8_t *)voxel_region_memory(shm->region) + at;
        if (tensors[i].bytes) memcpy(to, tensors[i].data, tensors[i].bytes);
        tensors[i].data = to;
        tensors[i].region = shm->region;
        tensors[i].region_offset = at;
        at += aligned(tensors[i].bytes);
    }
    for (int32_t i = 0; i < shm->outputs_count; i++) {
        shm->places[i].region = shm->region;
        shm->places[i].region_offset += begin;
    }
    return VOXEL_OK;
}

const struct voxel_place *shm_request_places(struct shm_request *shm, int64_t turn)
{
    size_t offset = (size_t)(turn % shm->sets) * shm->set_bytes;
    for (int32_t i = 0; i < shm->outputs_count; i++) {
        shm->turn[i] = shm->places[i];
        shm->turn[i].region_offset += offset;
    }
    return shm->turn;
}

void shm_request_close(struct shm_request *shm)
{
    voxel_region_close(shm->region);
    memset(shm, 0, sizeof *shm);
}
