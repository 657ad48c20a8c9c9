/* The codec on bytes from anywhere, cut into spans as the input says; protobuf-c is the
 * oracle.
 *
 * The first byte chooses the length of the spans; what follows is a ModelInferRequest.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/arena.h"
#include "open_inference.pb-c.h"
#include "proto/codec.h"

#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES   (1 << 20)
#define SPANS_MAX     65536
#define SCRATCH_BYTES (4 << 20) /* smaller than served, so that its end is met */

static u8 memory[ARENA_BYTES];
static size_t used;
static int out;

static bool slots_take(void *context, size_t bytes, struct vx_slot *slot)
{
    (void)context;
    *slot = (struct vx_slot){used, bytes};
    if (bytes > ARENA_BYTES - used) return false;
    used += bytes;
    out += bytes > 0;
    return true;
}

static void slots_give(void *context, struct vx_slot *slot)
{
    (void)context;
    out -= slot->bytes > 0;
    *slot = (struct vx_slot){0, 0};
}

static u8 *slots_view(void *context, const struct vx_slot *slot)
{
    (void)context;
    return memory + slot->offset;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t bytes);

int LLVMFuzzerTestOneInput(const u8 *data, size_t bytes)
{
    static struct vx_span list[SPANS_MAX];
    static struct vx_request request;
    static void *block;
    static const struct vx_slots slots = {slots_take, slots_give, slots_view, NULL};
    if (bytes < 1 || bytes > SPANS_MAX) return 0;
    if (!block) block = aligned_alloc(64, SCRATCH_BYTES);
    size_t piece = 1 + data[0];
    data++;
    bytes--;
    struct vx_spans spans = {list, 0, bytes};
    for (size_t at = 0; at < bytes; at += piece)
        list[spans.count++] =
            (struct vx_span){data + at, bytes - at < piece ? bytes - at : piece};
    struct vx_arena scratch;
    struct vx_why why = {""};
    vx_arena_init(&scratch, block, SCRATCH_BYTES);
    used = 0;
    out = 0;
    vx_status st = vx_codec_parse_infer(&spans, &slots, &scratch, &why, &request);
    vx_arena_reset(&scratch);
    if (!st.fault) {
        Inference__ModelInferRequest *oracle =
            inference__model_infer_request__unpack(NULL, bytes, data);
        if (!oracle || strcmp(oracle->model_name, request.model)) abort();
        if (oracle->n_inputs != (size_t)request.inputs_count) abort();
        inference__model_infer_request__free_unpacked(oracle, NULL);
        for (i32 i = 0; i < request.inputs_count; i++)
            slots_give(NULL, &request.inputs[i].slot);
    } else if (!vx_status_text(st, &why)[0]) {
        abort();
    }
    if (out) abort(); /* a slot was left taken */
    return 0;
}
