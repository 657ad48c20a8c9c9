/* gpu_rig - the engine on the fake GPU, beside the CPU engine of engine_rig.
 *
 *   tcase_add_checked_fixture(tcase, vx_gpu_rig_set_up, vx_gpu_rig_tear_down);
 *   vx_gpu_rig_write("fp16", vx_rig_networks[1], seed);
 *   struct vx_model *model = vx_gpu_rig_load(vx_rig_root);
 *   vx_gpu_rig_run(model, &request->item);
 *   vx_gpu_rig_compare(request, &files, VX_NUMBER_F16);
 *
 * With VX_RIG_CUDA=DIR in the environment it is the first GPU of this machine, and DIR its
 * kernel cache: to run a test by hand where there is one.
 *
 * Owner    one engine for the test that runs, over engine_rig's directory.
 * Thread   the test's, which becomes the device thread.
 * Limits   those of engine_rig.
 * Fails    with the test.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_SUPPORT_GPU_RIG_H
#define VX_TESTS_SUPPORT_GPU_RIG_H

#include "engine/gpu/fake/fake.h"
#include "tests/support/engine_rig.h"

extern struct vx_engine *vx_gpu_rig_engine;
/* The bytes of the geometry store of engines that are opened from now on; set_up sets it. */
extern size_t vx_gpu_rig_cache_bytes;
#define VX_GPU_RIG_CACHE_BYTES (32 << 20)

void vx_gpu_rig_set_up(void);
void vx_gpu_rig_tear_down(void);
/* Closes the engine and opens another, with this much for requests. */
void vx_gpu_rig_reopen(size_t device_bytes, const struct vx_gpu_settings *settings);

/* engine_rig's model, with a precision in its description. */
void vx_gpu_rig_write(const char *precision, const char *json, u64 seed);
struct vx_rig_load vx_gpu_rig_load_any(const char *directory);
struct vx_model *vx_gpu_rig_load(const char *directory);
void vx_gpu_rig_run(struct vx_model *model, struct vx_item *item);

/* Compares every output with the oracle: for F32 each number is inside the bound of any
 * f32 program, else all numbers of an output together are inside the loss of its type. */
void vx_gpu_rig_compare(const struct vx_rig_request *request,
                        const struct vx_rig_files *files, enum vx_number type);

/* Layers of 1, 3, 7, 20 and 33 channels: multiples of no common number. */
extern const char *const vx_gpu_rig_odd;
/* So many input channels that sums are split by planes, of 32 bits, and by columns. */
extern const char *const vx_gpu_rig_wide;

#endif
