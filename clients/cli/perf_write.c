/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/perf_write.h"

#include "clients/c/error.h"
#include "clients/c/memory.h"
#include "clients/cli/out.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char digits[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void perf_write_base64(FILE *to, const void *data, size_t bytes)
{
    const uint8_t *at = data;
    for (; bytes >= 3; at += 3, bytes -= 3) {
        uint32_t group = (uint32_t)at[0] << 16 | (uint32_t)at[1] << 8 | at[2];
        char four[4] = {digits[group >> 18], digits[group >> 12 & 63],
                        digits[group >> 6 & 63], digits[group & 63]};
        fwrite(four, 1, sizeof four, to);
    }
    if (bytes == 0) return;
    uint32_t group = (uint32_t)at[0] << 16 | (bytes > 1 ? (uint32_t)at[1] << 8 : 0);
    char four[4] = {digits[group >> 18], digits[group >> 12 & 63],
                    bytes > 1 ? digits[group >> 6 & 63] : '=', '='};
    fwrite(four, 1, sizeof four, to);
}

void perf_write_text(FILE *to, const char *text)
{
    putc('"', to);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(to, "\\%c", c);
        else if (c < 0x20)
            fprintf(to, "\\u%04x", c);
        else
            putc(c, to);
    }
    putc('"', to);
}

/* Nine digits identify every float; perf_analyzer does not accept "1" as a float. */
static void write_real(FILE *to, float value)
{
    char text[32];
    snprintf(text, sizeof text, "%.9g", (double)value);
    fprintf(to, "%s%s", text, strpbrk(text, ".e") ? "" : ".0");
}

static void write_numbers(FILE *to, const struct voxel_tensor *tensor)
{
    size_t cells = tensor->bytes / voxel_type_bytes(tensor->type);
    const int32_t *whole = tensor->data;
    const float *real = tensor->data;
    for (size_t i = 0; i < cells; i++) {
        if (i > 0) putc(',', to);
        if (tensor->type == VOXEL_INT32)
            fprintf(to, "%" PRId32, whole[i]);
        else
            write_real(to, real[i]);
    }
}

static void write_tensor(FILE *to, const struct voxel_tensor *tensor,
                         enum perf_content content)
{
    perf_write_text(to, tensor->name);
    if (content == PERF_NUMBERS) {
        fputs(":{\"content\":[", to);
        write_numbers(to, tensor);
        putc(']', to);
    } else {
        fputs(":{\"b64\":\"", to);
        perf_write_base64(to, tensor->data, tensor->bytes);
        putc('"', to);
    }
    fprintf(to, ",\"shape\":[%" PRId64 ",%" PRId64 "]}", tensor->shape[0],
            tensor->shape[1]);
}

void perf_write_begin(FILE *to)
{
    fputs("{\"data\":[\n", to);
}

void perf_write_grid(FILE *to, const struct voxel_tensor tensors[2],
                     enum perf_content content, bool first)
{
    fputs(first ? "{" : ",\n{", to);
    write_tensor(to, &tensors[0], content);
    putc(',', to);
    write_tensor(to, &tensors[1], content);
    putc('}', to);
}

void perf_write_end(FILE *to)
{
    fputs("\n]}\n", to);
}

enum voxel_code perf_write_raw(const char *folder, const struct voxel_tensor *tensor,
                               struct voxel_error *error)
{
    if (strchr(tensor->name, '/') || tensor->name[0] == '.')
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "the input '%s' cannot be the name of a file",
                               tensor->name);
    size_t room = strlen(folder) + strlen(tensor->name) + 2;
    char *path = voxel_memory_take(room, 1);
    if (!path) return voxel_error_memory(error, "a path", room);
    snprintf(path, room, "%s/%s", folder, tensor->name);
    struct out out;
    enum voxel_code code = out_open(&out, path, error);
    if (!code) {
        fwrite(tensor->data, 1, tensor->bytes, out.file);
        code = out_close(&out, error);
    }
    voxel_memory_give(path);
    return code;
}
