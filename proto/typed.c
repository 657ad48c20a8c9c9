/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/typed.h"

#include "engine/base/process/check.h"

#include <string.h>

typedef Inference__InferTensorContents Contents;

/* Which list has the values of a datatype, and how wide they are in memory. */
static const struct typed_list {
    const char *name; /* NULL: this datatype has no list */
    size_t count_offset, data_offset;
    size_t bytes; /* of one value as protobuf-c holds it */
    i64 min;      /* narrower datatypes share a list; others take every value it holds */
    u64 max;
} lists[] = {
#define LIST(member_, type_, min_, max_)                                                 \
    {                                                                                    \
#member_, offsetof(Contents, n_##member_), offsetof(Contents, member_),          \
            sizeof(type_), (min_), (max_)                                                \
    }
    [VX_WIRE_BOOL] = LIST(bool_contents, protobuf_c_boolean, 0, 1),
    [VX_WIRE_UINT8] = LIST(uint_contents, u32, 0, UINT8_MAX),
    [VX_WIRE_UINT16] = LIST(uint_contents, u32, 0, UINT16_MAX),
    [VX_WIRE_UINT32] = LIST(uint_contents, u32, 0, UINT32_MAX),
    [VX_WIRE_UINT64] = LIST(uint64_contents, u64, 0, UINT64_MAX),
    [VX_WIRE_INT8] = LIST(int_contents, i32, INT8_MIN, INT8_MAX),
    [VX_WIRE_INT16] = LIST(int_contents, i32, INT16_MIN, INT16_MAX),
    [VX_WIRE_INT32] = LIST(int_contents, i32, INT32_MIN, INT32_MAX),
    [VX_WIRE_INT64] = LIST(int64_contents, i64, INT64_MIN, INT64_MAX),
    [VX_WIRE_FP32] = LIST(fp32_contents, float, 0, 0),
    [VX_WIRE_FP64] = LIST(fp64_contents, double, 0, 0),
    [VX_WIRE_BF16] = {NULL, 0, 0, 0, 0, 0},
#undef LIST
};

static size_t list_count(const Contents *contents, const struct typed_list *list)
{
    size_t count;
    memcpy(&count, (const char *)contents + list->count_offset, sizeof count);
    return count;
}

static const u8 *list_data(const Contents *contents, const struct typed_list *list)
{
    const u8 *data;
    memcpy(&data, (const char *)contents + list->data_offset, sizeof data);
    return data;
}

static vx_status typed_check_narrow(const Contents *contents,
                                    const struct typed_list *list,
                                    const struct vx_request_tensor *tensor,
                                    struct vx_why *why)
{
    for (i64 i = 0; i < tensor->elements; i++) {
        bool is_signed = list->min < 0;
        i64 value =
            is_signed ? contents->int_contents[i] : (i64)contents->uint_contents[i];
        VX_ENSURE_WHY(value >= list->min && value <= (i64)list->max, why,
                      INVALID_ARGUMENT, "a value does not fit its datatype",
                      "input '%.60s': element %lld must fit %s, got %lld", tensor->name,
                      (long long)i, vx_wire_type_name(tensor->type), (long long)value);
    }
    return VX_OK;
}

/* Values in the list of another datatype would be ignored, so they are refused. */
static vx_status typed_check_others(const Contents *contents,
                                    const struct typed_list *list,
                                    const struct vx_request_tensor *tensor,
                                    struct vx_why *why)
{
    for (size_t i = 0; i < VX_COUNT(lists); i++) {
        const struct typed_list *other = &lists[i];
        bool same = !other->name || other->count_offset == list->count_offset;
        VX_ENSURE_WHY(same || !list_count(contents, other), why, INVALID_ARGUMENT,
                      "values are in the list of another datatype",
                      "input '%.60s': expected values of %s in %s, got values in %s",
                      tensor->name, vx_wire_type_name(tensor->type), list->name,
                      other->name);
    }
    VX_ENSURE_WHY(
        !contents->n_bytes_contents, why, INVALID_ARGUMENT,
        "values are in the list of another datatype",
        "input '%.60s': expected values of %s in %s, got values in bytes_contents",
        tensor->name, vx_wire_type_name(tensor->type), list->name);
    return VX_OK;
}

vx_status vx_typed_check(const Contents *contents, const struct vx_request_tensor *tensor,
                         struct vx_why *why)
{
    const struct typed_list *list = &lists[tensor->type];
    VX_ENSURE_WHY(
        contents || !tensor->elements, why, INVALID_ARGUMENT, "a tensor has no contents",
        "input '%.60s' has neither raw_input_contents nor contents", tensor->name);
    if (!contents) return VX_OK;
    VX_ENSURE_WHY(list->name, why, INVALID_ARGUMENT,
                  "this datatype has no typed contents",
                  "input '%.60s': %s has no typed contents; send raw_input_contents",
                  tensor->name, vx_wire_type_name(tensor->type));
    VX_TRY(typed_check_others(contents, list, tensor, why));
    size_t count = list_count(contents, list);
    VX_ENSURE_WHY(count == (size_t)tensor->elements, why, INVALID_ARGUMENT,
                  "typed contents have the wrong number of values",
                  "input '%.60s': expected %lld values in %s, got %zu", tensor->name,
                  (long long)tensor->elements, list->name, count);
    size_t narrow = vx_wire_type_bytes(tensor->type);
    bool integer = list->max != 0;
    if (integer && narrow < list->bytes && tensor->type != VX_WIRE_BOOL)
        return typed_check_narrow(contents, list, tensor, why);
    return VX_OK;
}

void vx_typed_copy(const Contents *contents, const struct vx_request_tensor *tensor,
                   u8 *out)
{
    const struct typed_list *list = &lists[tensor->type];
    const u8 *data = list_data(contents, list);
    size_t narrow = vx_wire_type_bytes(tensor->type);
    /* Host and wire are little-endian: the low bytes of a value are its narrow form. */
    if (narrow == list->bytes) {
        memcpy(out, data, (size_t)tensor->elements * narrow);
        return;
    }
    for (i64 i = 0; i < tensor->elements; i++)
        memcpy(out + (size_t)i * narrow, data + (size_t)i * list->bytes, narrow);
}
