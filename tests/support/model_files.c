/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "tests/support/model_files.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"

#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

u64 vx_test_next(struct vx_test_random *random)
{
    /* SplitMix64 (Steele, Lea, Flood 2014). */
    u64 z = random->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

f32 vx_test_uniform(struct vx_test_random *random, f32 low, f32 high)
{
    f32 unit = (f32)(vx_test_next(random) >> 40) * 0x1p-24f;
    return low + (high - low) * unit;
}

void vx_test_fill(struct vx_test_random *random, f32 *values, size_t count, f32 low,
                  f32 high)
{
    for (size_t i = 0; i < count; i++) values[i] = vx_test_uniform(random, low, high);
}

u16 vx_test_bf16(f32 value)
{
    u32 bits;
    memcpy(&bits, &value, sizeof bits);
    if (isnan(value)) return (u16)(bits >> 16 | 0x40);
    bits += 0x7fff + (bits >> 16 & 1);
    return (u16)(bits >> 16);
}

u16 vx_test_f16(f32 value)
{
    u16 sign = signbit(value) ? 0x8000 : 0;
    f64 size = fabs((f64)value);
    if (isnan(value)) return (u16)(sign | 0x7e00);
    if (size >= 65520.0) return (u16)(sign | 0x7c00);
    int exponent;
    frexp(size, &exponent); /* size = fraction * 2^exponent, fraction in [1/2, 1) */
    if (size == 0 || exponent < -13) exponent = -13;
    /* In units of the last place; rint is nearest even; a carry runs into the exponent. */
    u32 units = (u32)rint(ldexp(size, 11 - exponent));
    return (u16)(sign | (units + ((u32)(exponent + 13) << 10)));
}

static size_t tensor_count(const struct vx_test_tensor *tensor)
{
    size_t count = 1;
    for (i32 i = 0; i < tensor->rank; i++) count *= (size_t)tensor->shape[i];
    return count;
}

static size_t element_bytes(const struct vx_test_tensor *tensor)
{
    if (!strcmp(tensor->dtype, "F32")) return 4;
    return !strcmp(tensor->dtype, "I64") ? 8 : 2;
}

static void element_pack(const struct vx_test_tensor *tensor, size_t index, u8 *out)
{
    f32 value = tensor->values ? tensor->values[index] : 0;
    i64 whole = (i64)value;
    u16 half = !strcmp(tensor->dtype, "F16") ? vx_test_f16(value) : vx_test_bf16(value);
    switch (element_bytes(tensor)) {
    case 4: memcpy(out, &value, 4); break;
    case 8: memcpy(out, &whole, 8); break;
    default: memcpy(out, &half, 2); break;
    }
}

size_t vx_test_pack_safetensors(const struct vx_test_tensor *tensors, size_t count,
                                u8 *out, size_t room)
{
    char *header = (char *)out + 8;
    size_t used = 0, data = 0;
    VX_ASSERT(room > 8);
    used += (size_t)snprintf(header, room - 8, "{");
    for (size_t i = 0; i < count; i++) {
        const struct vx_test_tensor *tensor = &tensors[i];
        size_t bytes = tensor_count(tensor) * element_bytes(tensor);
        used += (size_t)snprintf(header + used, room - 8 - used,
                                 "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i ? "," : "",
                                 tensor->name, tensor->dtype);
        for (i32 j = 0; j < tensor->rank; j++)
            used += (size_t)snprintf(header + used, room - 8 - used, "%s%lld",
                                     j ? "," : "", (long long)tensor->shape[j]);
        used += (size_t)snprintf(header + used, room - 8 - used,
                                 "],\"data_offsets\":[%zu,%zu]}", data, data + bytes);
        data += bytes;
        VX_ASSERT(used < room - 8);
    }
    used += (size_t)snprintf(header + used, room - 8 - used, "}");
    VX_ASSERT(8 + used + data <= room);
    u64 length = used;
    memcpy(out, &length, 8);
    u8 *at = out + 8 + used;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < tensor_count(&tensors[i]);
             j++, at += element_bytes(&tensors[i]))
            element_pack(&tensors[i], j, at);
    return (size_t)(at - out);
}

void vx_test_write_file(const char *path, const void *bytes, size_t count)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    VX_ASSERT(fd >= 0);
    for (size_t done = 0; done < count;) {
        ssize_t written = write(fd, (const u8 *)bytes + done, count - done);
        VX_ASSERT(written > 0);
        done += (size_t)written;
    }
    VX_ASSERT(!close(fd));
}

void vx_test_write_safetensors(const char *path, const struct vx_test_tensor *tensors,
                               size_t count)
{
    size_t room = 64;
    for (size_t i = 0; i < count; i++)
        room += 320 + strlen(tensors[i].name) + tensor_count(&tensors[i]) * 8;
    u8 *file = vx_alloc(room);
    VX_ASSERT(file);
    vx_test_write_file(path, file, vx_test_pack_safetensors(tensors, count, file, room));
    vx_free(file);
}

void vx_test_write_model(const char *directory, int version, const char *json,
                         const struct vx_test_tensor *tensors, size_t count)
{
    char path[VX_TEST_PATH_BYTES + 64];
    mkdir(directory, 0755); /* may be there */
    snprintf(path, sizeof path, "%s/network.json", directory);
    vx_test_write_file(path, json, strlen(json));
    snprintf(path, sizeof path, "%s/%d", directory, version);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/%d/weights.safetensors", directory, version);
    vx_test_write_safetensors(path, tensors, count);
}

void vx_test_directory(char path[VX_TEST_PATH_BYTES])
{
    snprintf(path, VX_TEST_PATH_BYTES, "/tmp/vx-test-XXXXXX");
    VX_ASSERT(mkdtemp(path));
}

static int remove_one(const char *path, const struct stat *info, int kind,
                      struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

void vx_test_remove(const char *path)
{
    VX_ASSERT(!nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS));
}
