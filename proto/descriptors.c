/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/descriptors.h"

#include "engine/base/process/check.h"
#include "proto/scan.h"

#include <stdio.h>
#include <string.h>

extern const u8 vx_descriptors_begin[], vx_descriptors_end[];

/* Field numbers of google/protobuf/descriptor.proto. */
enum { SET_FILE = 1 };
enum {
    FILE_NAME = 1,
    FILE_PACKAGE = 2,
    FILE_IMPORT = 3,
    FILE_MESSAGE = 4,
    FILE_ENUM = 5,
    FILE_SERVICE = 6
};
enum { ANY_NAME = 1 }; /* of messages, fields, enums, values, services, methods */
enum { MESSAGE_FIELD = 2, MESSAGE_NESTED = 3, MESSAGE_ENUM = 4 };
enum { ENUM_VALUE = 2 };
enum { SERVICE_METHOD = 2 };

/* The next field that has bytes.  protoc wrote the message at build time: it is valid. */
static bool next_field(struct vx_scan *scan, struct vx_scan_field *field,
                       struct vx_span *value)
{
    while (vx_scan_left(scan)) {
        vx_status st = vx_scan_field(scan, field);
        VX_ASSERT(!st.fault);
        /* The message is one span, so the value is contiguous, where the scan is. */
        *value = (struct vx_span){scan->at, (size_t)field->bytes};
        vx_scan_copy(scan, NULL, (size_t)field->bytes);
        if (field->type == VX_SCAN_BYTES) return true;
    }
    return false;
}

static struct vx_scan scan_of(const struct vx_span *span)
{
    struct vx_scan scan = {
        .at = span->data, .end = span->data + span->bytes, .left = span->bytes};
    return scan;
}

/* The first value of a field, or an empty span. */
static struct vx_span find_field(struct vx_span message, u32 number)
{
    struct vx_scan scan = scan_of(&message);
    struct vx_scan_field field;
    struct vx_span value;
    while (next_field(&scan, &field, &value))
        if (field.number == number) return value;
    return (struct vx_span){NULL, 0};
}

static bool span_is(struct vx_span span, const char *text)
{
    return span.bytes == strlen(text) && !memcmp(span.data, text, span.bytes);
}

static struct vx_span whole_set(void)
{
    return (struct vx_span){vx_descriptors_begin,
                            (size_t)(vx_descriptors_end - vx_descriptors_begin)};
}

static void add_with_imports(struct vx_span file, struct vx_descriptor_file *files,
                             i32 *count);

static void add_by_name(const char *name, size_t length, struct vx_descriptor_file *files,
                        i32 *count)
{
    struct vx_span set = whole_set(), file;
    struct vx_scan scan = scan_of(&set);
    struct vx_scan_field field;
    while (next_field(&scan, &field, &file)) {
        struct vx_span its_name = find_field(file, FILE_NAME);
        if (field.number == SET_FILE && its_name.bytes == length &&
            !memcmp(its_name.data, name, length))
            add_with_imports(file, files, count);
    }
}

static void add_with_imports(struct vx_span file, struct vx_descriptor_file *files,
                             i32 *count)
{
    for (i32 i = 0; i < *count; i++)
        if (files[i].bytes.data == file.data) return;
    VX_ASSERT(*count < VX_DESCRIPTOR_FILES_MAX);
    files[(*count)++].bytes = file;
    struct vx_scan scan = scan_of(&file);
    struct vx_scan_field field;
    struct vx_span value;
    while (next_field(&scan, &field, &value))
        if (field.number == FILE_IMPORT)
            add_by_name((const char *)value.data, value.bytes, files, count);
}

i32 vx_descriptors_by_name(const char *name, struct vx_descriptor_file *files)
{
    i32 count = 0;
    add_by_name(name, strlen(name), files, &count);
    return count;
}

/* The symbol without "name" or "name." in front; NULL when it does not begin so. */
static const char *symbol_behind(const char *symbol, struct vx_span name)
{
    if (strncmp(symbol, (const char *)name.data, name.bytes)) return NULL;
    const char *behind = symbol + name.bytes;
    if (*behind == '.') return behind + 1;
    return *behind ? NULL : behind;
}

/* True when a field `number` of `message` has the name `rest`. */
static bool declares_leaf(struct vx_span message, u32 number, const char *rest)
{
    struct vx_scan scan = scan_of(&message);
    struct vx_scan_field field;
    struct vx_span value;
    while (next_field(&scan, &field, &value))
        if (field.number == number && span_is(find_field(value, ANY_NAME), rest))
            return true;
    return false;
}

static bool enum_declares(struct vx_span declaration, const char *symbol)
{
    const char *rest = symbol_behind(symbol, find_field(declaration, ANY_NAME));
    return rest && (!*rest || declares_leaf(declaration, ENUM_VALUE, rest));
}

/* Messages nest as deep as our .proto files do: three. */
static bool message_declares(struct vx_span message, const char *symbol)
{
    const char *rest = symbol_behind(symbol, find_field(message, ANY_NAME));
    if (!rest) return false;
    if (!*rest || declares_leaf(message, MESSAGE_FIELD, rest)) return true;
    struct vx_scan scan = scan_of(&message);
    struct vx_scan_field field;
    struct vx_span value;
    while (next_field(&scan, &field, &value)) {
        if (field.number == MESSAGE_NESTED && message_declares(value, rest)) return true;
        if (field.number == MESSAGE_ENUM && enum_declares(value, rest)) return true;
    }
    return false;
}

static bool service_declares(struct vx_span service, const char *symbol)
{
    const char *rest = symbol_behind(symbol, find_field(service, ANY_NAME));
    return rest && (!*rest || declares_leaf(service, SERVICE_METHOD, rest));
}

static bool file_declares(struct vx_span file, const char *symbol)
{
    const char *rest = symbol_behind(symbol, find_field(file, FILE_PACKAGE));
    if (!rest || !*rest) return false;
    struct vx_scan scan = scan_of(&file);
    struct vx_scan_field field;
    struct vx_span value;
    while (next_field(&scan, &field, &value)) {
        if (field.number == FILE_MESSAGE && message_declares(value, rest)) return true;
        if (field.number == FILE_ENUM && enum_declares(value, rest)) return true;
        if (field.number == FILE_SERVICE && service_declares(value, rest)) return true;
    }
    return false;
}

i32 vx_descriptors_by_symbol(const char *symbol, struct vx_descriptor_file *files)
{
    struct vx_span set = whole_set(), file;
    struct vx_scan scan = scan_of(&set);
    struct vx_scan_field field;
    i32 count = 0;
    while (!count && next_field(&scan, &field, &file))
        if (field.number == SET_FILE && file_declares(file, symbol))
            add_with_imports(file, files, &count);
    return count;
}

void vx_descriptors_services(void (*on)(void *context, const char *name), void *context)
{
    struct vx_span set = whole_set(), file, value;
    struct vx_scan scan = scan_of(&set);
    struct vx_scan_field field;
    while (next_field(&scan, &field, &file)) {
        struct vx_span package = find_field(file, FILE_PACKAGE);
        struct vx_scan inside = scan_of(&file);
        while (next_field(&inside, &field, &value)) {
            if (field.number != FILE_SERVICE) continue;
            struct vx_span name = find_field(value, ANY_NAME);
            char full[VX_WIRE_NAME_BYTES];
            snprintf(full, sizeof full, "%.*s.%.*s", (int)package.bytes,
                     (const char *)package.data, (int)name.bytes,
                     (const char *)name.data);
            on(context, full);
        }
    }
}
