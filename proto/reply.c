/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/codec.h"

#include "engine/base/process/check.h"
#include "engine/base/utf8.h"

#include <stdio.h>
#include <string.h>

/* Field numbers of ModelInferResponse, */
enum { MODEL = 1, VERSION = 2, ID = 3, PARAMETERS = 4, OUTPUTS = 5, RAW = 6 };
/* of ModelStreamInferResponse, */
enum { STREAM_ERROR = 1, STREAM_RESPONSE = 2 };
/* and of the messages inside. */
enum { ENTRY_KEY = 1, ENTRY_VALUE = 2 };
enum { CHOICE_BOOL = 1, CHOICE_INT64 = 2, CHOICE_STRING = 3 };
enum { TENSOR_NAME = 1, TENSOR_DATATYPE = 2, TENSOR_SHAPE = 3, TENSOR_PARAMETERS = 4 };

/* Where to write.  Every part has a limit, so there is always room (asserted). */
struct writer {
    u8 *at, *end;
};

static void write_byte(struct writer *writer, u8 byte)
{
    VX_ASSERT(writer->at < writer->end);
    *writer->at++ = byte;
}

static void write_varint(struct writer *writer, u64 value)
{
    for (; value > 0x7f; value >>= 7) write_byte(writer, (u8)(value | 0x80));
    write_byte(writer, (u8)value);
}

static size_t varint_bytes(u64 value)
{
    int bits = vx_bit_length(value);
    return bits ? (size_t)(bits + 6) / 7 : 1;
}

static void write_bytes(struct writer *writer, u32 field, const void *bytes,
                        size_t length)
{
    write_varint(writer, field << 3 | 2);
    write_varint(writer, length);
    VX_ASSERT(length <= (size_t)(writer->end - writer->at));
    memcpy(writer->at, bytes, length);
    writer->at += length;
}

/* proto3 leaves out empty strings. */
static void write_text(struct writer *writer, u32 field, const char *text)
{
    if (text[0]) write_bytes(writer, field, text, strlen(text));
}

/* An inner message is written to a block first, because its length comes before it. */
#define INNER_BYTES                                                                      \
    512 /* the largest: a tensor with VX_RANK_MAX dimensions and its parameters, 450 */

static void write_parameter(struct writer *writer, u32 field,
                            const struct vx_reply_parameter *parameter)
{
    u8 value_block[INNER_BYTES + VX_TAKEN_BYTES], block[INNER_BYTES + VX_TAKEN_BYTES];
    const char *text = parameter->long_text ? parameter->long_text : parameter->text;
    struct writer value = {value_block, value_block + sizeof value_block};
    struct writer inner = {block, block + sizeof block};
    switch (parameter->kind) {
    case VX_PARAMETER_BOOL:
        write_varint(&value, CHOICE_BOOL << 3);
        write_varint(&value, parameter->number != 0);
        break;
    case VX_PARAMETER_I64:
        write_varint(&value, CHOICE_INT64 << 3);
        write_varint(&value, (u64)parameter->number);
        break;
    case VX_PARAMETER_TEXT: /* written even when empty: it is the choice of a oneof */
        write_bytes(&value, CHOICE_STRING, text, strlen(text));
        break;
    }
    write_text(&inner, ENTRY_KEY, parameter->name);
    write_bytes(&inner, ENTRY_VALUE, value_block, (size_t)(value.at - value_block));
    write_bytes(writer, field, block, (size_t)(inner.at - block));
}

static void write_tensor_parameter(struct writer *writer, const char *name,
                                   const char *text)
{
    struct vx_reply_parameter parameter = {.kind = VX_PARAMETER_TEXT};
    if (!text) return;
    snprintf(parameter.name, sizeof parameter.name, "%s", name);
    snprintf(parameter.text, sizeof parameter.text, "%s", text);
    write_parameter(writer, TENSOR_PARAMETERS, &parameter);
}

static void write_tensor(struct writer *writer, const struct vx_reply_tensor *tensor)
{
    u8 block[INNER_BYTES];
    struct writer inner = {block, block + sizeof block};
    write_text(&inner, TENSOR_NAME, tensor->name);
    write_text(&inner, TENSOR_DATATYPE, vx_wire_type_name(tensor->type));
    size_t shape_bytes = 0;
    for (i32 d = 0; d < tensor->rank; d++)
        shape_bytes += varint_bytes((u64)tensor->shape[d]);
    write_varint(&inner, TENSOR_SHAPE << 3 | 2);
    write_varint(&inner, shape_bytes);
    for (i32 d = 0; d < tensor->rank; d++) write_varint(&inner, (u64)tensor->shape[d]);
    write_tensor_parameter(&inner, "coords", tensor->coords);
    write_tensor_parameter(&inner, "stride", tensor->stride);
    write_bytes(writer, OUTPUTS, block, (size_t)(inner.at - block));
}

size_t vx_codec_pack_reply_head(const struct vx_reply *reply, u8 *out, size_t bytes)
{
    VX_ASSERT(bytes >= VX_REPLY_HEAD_BYTES_MAX);
    VX_ASSERT(reply->outputs_count <= VX_REQUEST_OUTPUTS_MAX);
    VX_ASSERT(reply->parameters_count <= VX_REPLY_PARAMETERS_MAX);
    struct writer writer = {out, out + bytes};
    char version[24];
    snprintf(version, sizeof version, "%lld", (long long)reply->version);
    write_text(&writer, MODEL, reply->model);
    write_text(&writer, VERSION, version);
    write_text(&writer, ID, reply->id);
    for (i32 i = 0; i < reply->parameters_count; i++)
        write_parameter(&writer, PARAMETERS, &reply->parameters[i]);
    for (i32 i = 0; i < reply->outputs_count; i++)
        write_tensor(&writer, &reply->outputs[i]);
    return (size_t)(writer.at - out);
}

size_t vx_codec_pack_raw_prefix(u64 tensor_bytes, u8 *out, size_t bytes)
{
    VX_ASSERT(bytes >= VX_RAW_PREFIX_BYTES_MAX);
    struct writer writer = {out, out + bytes};
    write_varint(&writer, RAW << 3 | 2);
    write_varint(&writer, tensor_bytes);
    return (size_t)(writer.at - out);
}

size_t vx_codec_pack_stream_prefix(u64 response_bytes, u8 *out, size_t bytes)
{
    VX_ASSERT(bytes >= VX_STREAM_PREFIX_BYTES_MAX);
    struct writer writer = {out, out + bytes};
    write_varint(&writer, STREAM_RESPONSE << 3 | 2);
    write_varint(&writer, response_bytes);
    return (size_t)(writer.at - out);
}

size_t vx_codec_pack_stream_error(const char *text, const struct vx_request *request,
                                  u8 *out, size_t bytes)
{
    static const struct vx_reply_parameter final = {
        .name = "triton_final_response", .kind = VX_PARAMETER_BOOL, .number = 1};
    VX_ASSERT(bytes >= VX_STREAM_ERROR_BYTES_MAX);
    char error[VX_WHY_BYTES];
    vx_utf8_print(error, sizeof error, "%s", text);
    u8 block[INNER_BYTES];
    struct writer writer = {out, out + bytes}, inner = {block, block + sizeof block};
    write_text(&inner, MODEL, request->model);
    write_text(&inner, ID, request->id);
    write_parameter(&inner, PARAMETERS, &final);
    write_text(&writer, STREAM_ERROR, error);
    write_bytes(&writer, STREAM_RESPONSE, block, (size_t)(inner.at - block));
    return (size_t)(writer.at - out);
}
