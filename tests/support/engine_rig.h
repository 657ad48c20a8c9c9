/* engine_rig - an engine, models of random weights and requests, for tests of the engine.
 *
 *   tcase_add_checked_fixture(tcase, vx_rig_set_up, vx_rig_tear_down);
 *   vx_rig_write_model(vx_rig_root, vx_rig_networks[1], seed);
 *   struct vx_model *model = vx_rig_load(vx_rig_root);
 *   struct vx_rig_request *request = vx_rig_request(seed, 100, 4, VX_DTYPE_F32);
 *   vx_rig_run(model, &request->item);
 *   vx_rig_compare(request, &files);          (with the oracle, inside its bound)
 *
 * Owner    one engine and one directory for the test that runs; requests are the caller's.
 * Thread   the test's, which becomes the device thread; loading has a thread of its own.
 * Limits   VX_RIG_N_MAX voxels, VX_RIG_CHANNELS features.
 * Fails    with the test.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_SUPPORT_ENGINE_RIG_H
#define VX_TESTS_SUPPORT_ENGINE_RIG_H

#include "engine/engine.h"
#include "tests/support/model_files.h"
#include "tests/support/network_oracle.h"

#define VX_RIG_N_MAX        400
#define VX_RIG_CHANNELS     3
#define VX_RIG_DEVICE_BYTES (64 << 20)

extern struct vx_engine *vx_rig_engine;
extern char vx_rig_root[VX_TEST_PATH_BYTES];

void vx_rig_set_up(void);
void vx_rig_tear_down(void);

/* Loading happens on a thread of its own, as in a worker. */
struct vx_rig_load {
    struct vx_model_source source;
    struct vx_model *model;
    vx_status status;
    struct vx_why why;
    i64 progress_calls, progress_total;
};
void vx_rig_load_run(void *context); /* a thread's main; context is a vx_rig_load */
struct vx_rig_load vx_rig_load_any(const char *directory, i32 version);
struct vx_model *vx_rig_load(const char *directory);
void vx_rig_run(struct vx_model *model, struct vx_item *item);

/* The parsed description and the open weights, for the oracle. */
struct vx_rig_files {
    u8 *block;
    const struct vx_network *network;
    struct vx_safetensors *weights;
};
struct vx_rig_files vx_rig_files_open(const char *directory);
void vx_rig_files_close(struct vx_rig_files *files);

/* Beginnings of network.json, for a test's own texts. */
#define VX_RIG_HEAD "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":3}},\"layers\":["
#define VX_RIG_CONV(name_, input_, channels_, more_)                                     \
    "{\"name\":\"" name_ "\",\"op\":\"subm_conv\",\"input\":\"" input_                   \
    "\",\"channels\":" channels_ more_ "},"
#define VX_RIG_LINEAR(name_, input_, channels_)                                          \
    "{\"name\":\"" name_ "\",\"op\":\"linear\",\"input\":\"" input_                      \
    "\",\"channels\":" channels_ "},"
#define VX_RIG_OP(op_, name_, input_)                                                    \
    "{\"name\":\"" name_ "\",\"op\":\"" op_ "\",\"input\":\"" input_ "\"},"

/* One convolution; a residual block with outputs of every type; a ConvNeXt block. */
#define VX_RIG_NETWORKS 3
extern const char *const vx_rig_networks[VX_RIG_NETWORKS];

/* Random tensors for every layer, some F32, some F16, some BF16, in a model directory. */
void vx_rig_write_model(const char *directory, const char *json, u64 seed);

/* A request with its memory: what a slot of the arena is in the daemon. */
struct vx_rig_request {
    struct vx_item item;
    i32 coords[VX_RIG_N_MAX * 4];
    f32 feats[VX_RIG_N_MAX * VX_RIG_CHANNELS];    /* as the network sees them */
    u16 feats_16[VX_RIG_N_MAX * VX_RIG_CHANNELS]; /* as sent, in half types */
    f32 outputs[VX_OUTPUTS_MAX][VX_RIG_N_MAX * 24];
};
/* Different cells of a small box, features that are exact in all types; free with vx_free. */
struct vx_rig_request *vx_rig_request(u64 seed, i64 n, i32 columns, enum vx_dtype dtype);
/* Sets the coords_ref of the item, as a front does. */
void vx_rig_name(struct vx_item *item);
void vx_rig_compare(const struct vx_rig_request *request,
                    const struct vx_rig_files *files);

#endif
