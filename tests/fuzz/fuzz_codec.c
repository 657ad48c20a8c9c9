/* Any bytes as a ModelInferRequest, cut into spans two ways: no crash, no slot left taken, the same
 * answer for both cuts, and nothing accepted that protobuf-c refuses.
 *
 * The first byte seeds the cut; what follows is the message.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/check.h"
#include "open_inference.pb-c.h"
#include "tests/unit/proto/codec_harness.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t bytes);

static void compare_regions(const struct vx_request_region *one,
                            const struct vx_request_region *other)
{
    VX_ASSERT(!strcmp(one->name, other->name));
    VX_ASSERT(one->offset == other->offset && one->bytes == other->bytes);
    VX_ASSERT(one->name[0] || (!one->offset && !one->bytes));
}

static void compare(const struct parse *one, const struct parse *other)
{
    VX_ASSERT(vx_status_code(one->status) == vx_status_code(other->status));
    VX_ASSERT(!strcmp(parse_text(one), parse_text(other)));
    VX_ASSERT(!strcmp(one->request.id, other->request.id));
    if (one->status.fault) return;
    VX_ASSERT(!strcmp(one->request.model, other->request.model));
    VX_ASSERT(one->request.coords_named == other->request.coords_named);
    VX_ASSERT(vx_coords_ref_equal(one->request.coords_ref, other->request.coords_ref));
    VX_ASSERT(one->request.coords_named ||
              !vx_coords_ref_there(one->request.coords_ref)); /* only with the flag */
    VX_ASSERT(
        !memcmp(one->request.shape, other->request.shape, sizeof one->request.shape));
    VX_ASSERT(one->request.inputs_count == other->request.inputs_count);
    for (i32 i = 0; i < one->request.inputs_count; i++) {
        u64 length = one->request.inputs[i].place.bytes;
        VX_ASSERT(length == other->request.inputs[i].place.bytes);
        compare_regions(&one->request.inputs[i].region, &other->request.inputs[i].region);
        VX_ASSERT(!one->request.inputs[i].region.name[0] || !length);
        VX_ASSERT(!length ||
                  !memcmp(parse_memory(one, i), parse_memory(other, i), length));
    }
    VX_ASSERT(one->request.outputs_count == other->request.outputs_count);
    for (i32 i = 0; i < one->request.outputs_count; i++)
        compare_regions(&one->request.outputs_region[i],
                        &other->request.outputs_region[i]);
}

/* The values of an input's only list: `width` bytes of each of `count`. */
static void compare_values(const void *values, size_t count, size_t width,
                           const u8 *memory, u64 bytes)
{
    const size_t narrow = count ? (size_t)bytes / count : 0;
    VX_ASSERT(narrow <= width && narrow * count == bytes);
    for (size_t i = 0; i < count; i++)
        VX_ASSERT(!memcmp(memory + i * narrow, (const u8 *)values + i * width, narrow));
}

static void compare_typed(const Inference__InferTensorContents *all, const u8 *memory,
                          u64 bytes)
{
    const struct {
        const void *values;
        size_t count, width;
    } lists[] = {
        {all->bool_contents, all->n_bool_contents, sizeof *all->bool_contents},
        {all->int_contents, all->n_int_contents, sizeof *all->int_contents},
        {all->int64_contents, all->n_int64_contents, sizeof *all->int64_contents},
        {all->uint_contents, all->n_uint_contents, sizeof *all->uint_contents},
        {all->uint64_contents, all->n_uint64_contents, sizeof *all->uint64_contents},
        {all->fp32_contents, all->n_fp32_contents, sizeof *all->fp32_contents},
        {all->fp64_contents, all->n_fp64_contents, sizeof *all->fp64_contents},
    };
    size_t count = 0;
    for (size_t i = 0; i < VX_COUNT(lists); i++) {
        if (!lists[i].count) continue;
        VX_ASSERT(!count);
        count = lists[i].count;
        compare_values(lists[i].values, count, lists[i].width, memory, bytes);
    }
    VX_ASSERT(count || !bytes);
}

static void compare_with_oracle(const struct parse *parse, const u8 *data, size_t bytes)
{
    Inference__ModelInferRequest *oracle =
        inference__model_infer_request__unpack(NULL, bytes, data);
    if (!parse->status.fault) {
        VX_ASSERT(oracle);
        VX_ASSERT(!strcmp(oracle->model_name, parse->request.model));
        VX_ASSERT((size_t)parse->request.inputs_count == oracle->n_inputs);
        for (size_t i = 0; i < oracle->n_inputs; i++)
            if (oracle->inputs[i]->contents)
                compare_typed(oracle->inputs[i]->contents, parse_memory(parse, (i32)i),
                              parse->request.inputs[i].place.bytes);
        i32 input = 0; /* entries are for inputs outside regions */
        for (size_t i = 0; i < oracle->n_raw_input_contents; i++, input++) {
            size_t length = oracle->raw_input_contents[i].len;
            while (parse->request.inputs[input].region.name[0]) input++;
            VX_ASSERT(input < parse->request.inputs_count);
            VX_ASSERT(parse->request.inputs[input].place.bytes == length);
            VX_ASSERT(!length || !memcmp(parse_memory(parse, input),
                                         oracle->raw_input_contents[i].data, length));
        }
    }
    if (oracle) inference__model_infer_request__free_unpacked(oracle, NULL);
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t bytes)
{
    static struct parse flat, pieces;
    if (!bytes || bytes > WIRE_BYTES_MAX) return 0;
    struct dice dice = {data[0]};
    data++;
    bytes--;
    parse_scratch_bytes = 1 << 20; /* less than voxeld has, so that its end is reached */
    struct cut cut;
    cut_open(&cut, data, bytes, 1 + (size_t)dice.state % 32, &dice);
    parse_flat(&flat, data, bytes);
    parse_run(&pieces, &cut.spans);
    compare(&flat, &pieces);
    compare_with_oracle(&flat, data, bytes);
    if (flat.status.fault) VX_ASSERT(parse_text(&flat)[0]);
    parse_end(&flat);
    parse_end(&pieces);
    cut_close(&cut);
    return 0;
}
