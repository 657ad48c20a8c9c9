/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/typed.h"

#include "engine/base/process/check.h"
#include "proto/varints.h"

#include <string.h>

typedef Inference__InferTensorContents Contents;

/* The fields of InferTensorContents. */
enum {
    LIST_BOOL = 1,
    LIST_INT,
    LIST_INT64,
    LIST_UINT,
    LIST_UINT64,
    LIST_FP32,
    LIST_FP64,
};

/* Which list has the values of a datatype. */
static const struct typed_list {
    const char *name; /* NULL: this datatype has no list */
    u32 number;
} lists[] = {
    [VX_WIRE_BOOL] = {"bool_contents", LIST_BOOL},
    [VX_WIRE_UINT8] = {"uint_contents", LIST_UINT},
    [VX_WIRE_UINT16] = {"uint_contents", LIST_UINT},
    [VX_WIRE_UINT32] = {"uint_contents", LIST_UINT},
    [VX_WIRE_UINT64] = {"uint64_contents", LIST_UINT64},
    [VX_WIRE_INT8] = {"int_contents", LIST_INT},
    [VX_WIRE_INT16] = {"int_contents", LIST_INT},
    [VX_WIRE_INT32] = {"int_contents", LIST_INT},
    [VX_WIRE_INT64] = {"int64_contents", LIST_INT64},
    [VX_WIRE_FP32] = {"fp32_contents", LIST_FP32},
    [VX_WIRE_FP64] = {"fp64_contents", LIST_FP64},
    [VX_WIRE_BF16] = {NULL, 0},
};

/* How a value of a list is sent that has no length before it. */
static const enum vx_scan_type sent_as[VX_TYPED_LISTS] = {
    [LIST_BOOL] = VX_SCAN_VARINT,   [LIST_INT] = VX_SCAN_VARINT,
    [LIST_INT64] = VX_SCAN_VARINT,  [LIST_UINT] = VX_SCAN_VARINT,
    [LIST_UINT64] = VX_SCAN_VARINT, [LIST_FP32] = VX_SCAN_FIXED32,
    [LIST_FP64] = VX_SCAN_FIXED64,
};

/* ------- count ------- */

bool vx_typed_has(const struct vx_scan_field *field)
{
    if (!field->number || field->number >= VX_TYPED_LISTS) return false;
    if (field->type == VX_SCAN_BYTES || field->type == sent_as[field->number])
        return true;
    return field->number == LIST_BOOL; /* protobuf-c takes any number for a bool */
}

/* The tag of a varint of the list. */
static u8 varint_tag(u32 number)
{
    return (u8)(number << 3 | VX_SCAN_VARINT);
}

vx_status vx_typed_count(struct vx_typed *typed, struct vx_scan *scan,
                         const struct vx_scan_field *field)
{
    const enum vx_scan_type each = sent_as[field->number];
    const size_t width = each == VX_SCAN_FIXED64 ? 8 : 4;
    u64 count = 1;
    if (field->type == VX_SCAN_VARINT) {
        count += vx_varints_skip_alike(scan, varint_tag(field->number));
    } else if (field->type == VX_SCAN_BYTES && each == VX_SCAN_VARINT) {
        VX_TRY(vx_varints_count(*scan, field->bytes, &count));
    } else if (field->type == VX_SCAN_BYTES) {
        VX_ENSURE(field->bytes % width == 0, INVALID_ARGUMENT,
                  "the message is not valid protobuf: a list ends inside a value");
        count = field->bytes / width;
    }
    typed->counts[field->number] += count;
    vx_scan_copy(scan, NULL, field->bytes);
    return VX_OK;
}

/* ------- check ------- */

/* Values in the list of another datatype would be ignored, so they are refused. */
static vx_status typed_check_others(const Contents *contents,
                                    const struct vx_typed *typed,
                                    const struct vx_request_tensor *tensor,
                                    struct vx_why *why)
{
    const struct typed_list *list = &lists[tensor->type];
    for (size_t i = 0; i < VX_COUNT(lists); i++) {
        const struct typed_list *other = &lists[i];
        bool same = !other->name || other->number == list->number;
        VX_ENSURE_WHY(same || !typed->counts[other->number], why, INVALID_ARGUMENT,
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

vx_status vx_typed_check(const Contents *contents, const struct vx_typed *typed,
                         const struct vx_request_tensor *tensor, struct vx_why *why)
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
    VX_TRY(typed_check_others(contents, typed, tensor, why));
    const u64 count = typed->counts[list->number];
    VX_ENSURE_WHY(count == (u64)tensor->elements, why, INVALID_ARGUMENT,
                  "typed contents have the wrong number of values",
                  "input '%.60s': expected %lld values in %s, got %llu", tensor->name,
                  (long long)tensor->elements, list->name, (unsigned long long)count);
    return VX_OK;
}

/* ------- read ------- */

/* A value of 4 or 8 bytes, of which protobuf-c takes the low seven bits of each. */
static void read_bool(struct vx_scan *scan, size_t bytes, struct vx_varints *to)
{
    u64 bits = 0;
    vx_scan_copy(scan, &bits, bytes);
    vx_varints_take_bool(to, bits & UINT64_C(0x7f7f7f7f7f7f7f7f));
}

/* Behind the tag of a field with varints. */
static enum vx_varints_end read_varints(struct vx_scan *scan,
                                        const struct vx_scan_field *field,
                                        struct vx_varints *to)
{
    if (field->type == VX_SCAN_BYTES) return vx_varints_read(scan, field->bytes, to);
    if (field->type == VX_SCAN_VARINT) {
        const enum vx_varints_end end = vx_varints_read_one(scan, to);
        if (end != VX_VARINTS_ALL) return end;
        return vx_varints_read_alike(scan, varint_tag(field->number), to);
    }
    read_bool(scan, field->bytes, to);
    return VX_VARINTS_ALL;
}

static vx_status read_end(enum vx_varints_end end, const struct vx_varints *to,
                          const struct vx_request_tensor *tensor, struct vx_why *why)
{
    VX_ENSURE(end != VX_VARINTS_LONG, INVALID_ARGUMENT,
              "the message is not valid protobuf: a varint is longer than 10 bytes");
    VX_ENSURE_WHY(end != VX_VARINTS_MISFIT, why, INVALID_ARGUMENT,
                  "a value does not fit its datatype",
                  "input '%.60s': element %zu must fit %s, got %lld", tensor->name,
                  to->count, vx_wire_type_name(tensor->type), (long long)to->misfit);
    return VX_OK;
}

/* One occurrence of `contents`, all of which the scan has left. */
static vx_status read_contents(struct vx_scan *scan,
                               const struct vx_request_tensor *tensor, struct vx_why *why,
                               struct vx_varints *to)
{
    const u32 number = lists[tensor->type].number;
    const size_t width = vx_wire_type_bytes(tensor->type);
    struct vx_scan_field field;
    while (vx_scan_left(scan)) {
        VX_TRY(vx_scan_tag(scan, &field));
        const bool wanted = field.number == number;
        const bool varints = wanted && sent_as[number] == VX_SCAN_VARINT;
        if (!varints || field.type != VX_SCAN_VARINT) VX_TRY(vx_scan_value(scan, &field));
        if (varints) {
            VX_TRY(read_end(read_varints(scan, &field, to), to, tensor, why));
        } else if (wanted) {
            vx_scan_copy(scan, to->out + to->count * width, field.bytes);
            to->count += field.bytes / width;
        } else {
            vx_scan_copy(scan, NULL, field.bytes);
        }
    }
    return VX_OK;
}

vx_status vx_typed_read(const struct vx_typed *typed,
                        const struct vx_request_tensor *tensor, struct vx_why *why,
                        u8 *out)
{
    struct vx_varints to = {.type = tensor->type, .out = out};
    struct vx_scan scan = typed->input;
    struct vx_scan_field field;
    while (vx_scan_left(&scan)) {
        VX_TRY(vx_scan_field(&scan, &field));
        if (field.number == VX_TYPED_CONTENTS && field.type == VX_SCAN_BYTES) {
            struct vx_scan contents = vx_scan_within(&scan, field.bytes);
            VX_TRY(read_contents(&contents, tensor, why, &to));
        }
        vx_scan_copy(&scan, NULL, field.bytes);
    }
    VX_ASSERT(to.count == (size_t)tensor->elements); /* they have been counted */
    return VX_OK;
}
