/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/model/backend.h"

#include "engine/base/process/check.h"
#include "engine/model/model.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

void vx_item_begin(struct vx_item *item)
{
    VX_ASSERT(item->voxels >= 0);
    VX_ASSERT(item->voxels <= VX_VOXELS_MAX);
    VX_ASSERT(item->coords_columns == 3 || item->coords_columns == 4);
    item->convert_ns = item->geometry_ns = item->compute_ns = item->output_ns = 0;
    item->pairs = item->set_voxels = 0;
    item->geometry_hit = item->geometry_kept = false;
    item->asking = VX_ASKING_NONE;
    item->taken = 0;
    memset(item->rows, 0, sizeof item->rows);
    for (i32 o = 0; o < VX_OUTPUTS_MAX; o++)
        VX_ASSERT(!(item->asks >> o & 1) || !item->outputs[o]);
    if (item->status.fault) return;
    item->why.text[0] = '\0';
    if (!item->voxels) return;
    size_t feat_bytes = vx_dtype_bytes(item->feats_dtype);
    VX_ASSERT(item->coords || vx_coords_ref_there(item->coords_ref));
    /* Coordinates that may change cannot have a coords_ref, the hash of bytes that the
     * front has read. */
    VX_ASSERT(!item->coords_change ||
              (item->coords && !vx_coords_ref_there(item->coords_ref)));
    VX_ASSERT(item->coords_change || !(item->on_device & VX_ITEM_COORDS));
    VX_ASSERT(item->feats);
    VX_ASSERT(feat_bytes > 0);
    VX_ASSERT((uintptr_t)item->coords % sizeof(i32) == 0);
    VX_ASSERT((uintptr_t)item->feats % feat_bytes == 0);
}

void vx_item_say_taken(struct vx_batch *batch, struct vx_item *item, const char *text)
{
    i32 at = 0;
    item->taken = 0;
    if (!item->says_taken || !batch->taken) return;
    while (at < batch->taken_count && strcmp(batch->taken[at].text, text) != 0) at++;
    if (at == VX_TAKEN_MAX) return;
    if (at == batch->taken_count)
        snprintf(batch->taken[batch->taken_count++].text, VX_TAKEN_BYTES, "%s", text);
    item->taken = at + 1;
}

void vx_item_ask(struct vx_batch *batch, struct vx_item *item)
{
    VX_ASSERT(item->asks);
    VX_ASSERT(item->asking == VX_ASKING_NONE);
    for (i32 o = 0; o < VX_OUTPUTS_MAX; o++) {
        VX_ASSERT(item->rows[o] >= 0);
        VX_ASSERT(item->rows[o] <= VX_VOXELS_MAX);
    }
    item->asking = VX_ASKING_OPEN;
    batch->open++;
}

static i64 sheet_edge(i64 n)
{
    i64 edge = 1;
    while (edge * edge < n) edge++;
    return edge;
}

void vx_warm_shape(const i32 own[3], i64 n, i32 shape[3])
{
    const i32 edge = (i32)sheet_edge(n);
    for (int axis = 0; axis < 3; axis++) {
        shape[axis] = own[axis];
        if (own[axis] && axis < 2 && shape[axis] < edge) shape[axis] = edge;
    }
}

void vx_warm_coords(i32 *rows, i64 n)
{
    const i64 edge = sheet_edge(n);
    for (i64 i = 0; i < n; i++, rows += 4) {
        rows[0] = 0;
        rows[1] = (i32)(i / edge);
        rows[2] = (i32)(i % edge);
        rows[3] = 0;
    }
}

vx_status vx_warm_coords_open(i64 n, struct vx_why *why, i32 **rows)
{
    size_t bytes = (size_t)n * 4 * sizeof **rows;
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *rows = NULL;
    VX_ENSURE_WHY(memory != MAP_FAILED, why, RESOURCE_EXHAUSTED,
                  "no memory for the warm-up's coordinates",
                  "the coordinates of %lld voxels need %zu bytes of memory", (long long)n,
                  bytes);
    *rows = memory;
    vx_warm_coords(*rows, n);
    return VX_OK;
}

void vx_warm_coords_close(i32 **rows, i64 n)
{
    munmap(*rows, (size_t)n * 4 * sizeof **rows);
    *rows = NULL;
}

i32 vx_warm_sizes(const struct vx_model *model, i64 sizes[VX_WARMUP_MAX])
{
    i32 count = 0;
    for (i32 i = 0; i < model->network->warmup_count; i++)
        if (model->network->warmup[i] <= model->signature.voxels_max)
            sizes[count++] = model->network->warmup[i];
    return count;
}

vx_status vx_warm_ended(const struct vx_model *model, i64 n, vx_status status,
                        struct vx_why *why)
{
    if (!status.fault) return status;
    if (!model->network->warmup_said &&
        vx_status_code(status) == VX_CODE_RESOURCE_EXHAUSTED)
        return VX_OK;
    const struct vx_why said = why ? *why : (struct vx_why){""};
    vx_why_set(why, "warm-up with %lld voxels: %s", (long long)n, said.text);
    return status;
}
