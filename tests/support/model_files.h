/* model_files - writes model directories for tests: safetensors and network.json.
 *
 *   struct vx_test_tensor tensors[] = {{"y.weight", "F32", {8, 1}, 2, values}};
 *   vx_test_directory(root);
 *   vx_test_write_model(root, 1, json, tensors, 1);
 *   ...load it...
 *   vx_test_remove(root);
 *
 * Owner    files belong to the test, which removes its directory.
 * Thread   any.
 * Fails    a file that cannot be written panics: a test without its files proves nothing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_SUPPORT_MODEL_FILES_H
#define VX_TESTS_SUPPORT_MODEL_FILES_H

#include "engine/base/types.h"

#define VX_TEST_PATH_BYTES 512

struct vx_test_tensor {
    const char *name;
    const char *dtype; /* F32, F16, BF16 (nearest even), or I64 (truncated) */
    i64 shape[8];
    i32 rank;
    const f32 *values; /* NULL = zeros */
};

/* A file in memory; returns its bytes.  `room` must be enough. */
size_t vx_test_pack_safetensors(const struct vx_test_tensor *tensors, size_t count,
                                u8 *out, size_t room);
void vx_test_write_safetensors(const char *path, const struct vx_test_tensor *tensors,
                               size_t count);
void vx_test_write_file(const char *path, const void *bytes, size_t count);
/* DIRECTORY/network.json and DIRECTORY/VERSION/weights.safetensors; makes the
 * directories. */
void vx_test_write_model(const char *directory, int version, const char *json,
                         const struct vx_test_tensor *tensors, size_t count);

/* A fresh directory under /tmp. */
void vx_test_directory(char path[VX_TEST_PATH_BYTES]);
void vx_test_remove(const char *path); /* with its content */

/* Seeded numbers, the same on every machine. */
struct vx_test_random {
    u64 state;
};
u64 vx_test_next(struct vx_test_random *random);
f32 vx_test_uniform(struct vx_test_random *random, f32 low, f32 high);
void vx_test_fill(struct vx_test_random *random, f32 *values, size_t count, f32 low,
                  f32 high);

u16 vx_test_f16(f32 value);  /* nearest even */
u16 vx_test_bf16(f32 value); /* nearest even */

#endif
