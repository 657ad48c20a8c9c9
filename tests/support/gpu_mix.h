/* gpu_mix - requests of all kinds with the answers that each has alone, to mix into
 * batches.
 *
 *   vx_gpu_mix_open(seed, &mix);
 *   vx_gpu_mix_expect(&mix, model, VX_GPU_MIX_ALL);        each alone, without coords_ref
 *   struct vx_gpu_mix_sent *sent = vx_gpu_mix_send(&mix, picks, count);
 *   ... submit sent->batch, collect it ...
 *   vx_gpu_mix_check(&mix, sent, lost);                    bit for bit; takes it
 *   vx_gpu_mix_close(&mix);
 *
 * Owner    the caller's struct.
 * Thread   the test's, which is the device thread.
 * Limits   VX_GPU_MIX_COUNT requests.
 * Fails    with the test.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_SUPPORT_GPU_MIX_H
#define VX_TESTS_SUPPORT_GPU_MIX_H

#include "tests/support/gpu_rig.h"

/* Sizes 0, 1, 30, 900 and 3000 in every type and number of columns; then the bad ones. */
enum {
    VX_GPU_MIX_GOOD = 20,
    VX_GPU_MIX_TWIN =
        VX_GPU_MIX_GOOD,  /* another geometry with the coords_ref and size of number 4 */
    VX_GPU_MIX_SHORT,     /* another size with the coords_ref of number 4 */
    VX_GPU_MIX_DUPLICATE, /* a voxel twice, the last with a coords_ref of its own */
    VX_GPU_MIX_RANGE,     /* a coordinate out of range */
    VX_GPU_MIX_LARGE,     /* more than the model takes */
    VX_GPU_MIX_COUNT
};
#define VX_GPU_MIX_ALL        ((1u << VX_GPU_MIX_COUNT) - 1)
#define VX_GPU_MIX_VOXELS_MAX 4000 /* of the model */

struct vx_gpu_mix_request {
    struct vx_item item; /* without outputs; with a coords_ref */
    i32 *coords;
    void *feats;
    void *outputs[VX_OUTPUTS_MAX]; /* expected */
    struct vx_item alone;          /* how it ended */
    bool expected;                 /* it ran alone */
};
struct vx_gpu_mix {
    struct vx_gpu_mix_request requests[VX_GPU_MIX_COUNT];
    const struct vx_signature *signature;
    /* Batches whose device was lost: its pending work uses their memory until it is
     * closed. */
    struct vx_gpu_mix_sent *broken;
};
/* How one item of a batch is sent. */
struct vx_gpu_mix_pick {
    i32 request;
    bool nameless, reference; /* without a coords_ref; with a coords_ref and no coords */
    u32 unwanted;             /* outputs that are not wanted, as bits */
};
struct vx_gpu_mix_sent {
    struct vx_batch batch;
    struct vx_item items[VX_BATCH_ITEMS_MAX];
    struct vx_gpu_mix_pick picks[VX_BATCH_ITEMS_MAX];
    struct vx_gpu_mix_sent *next;
};

/* Writes the rig's residual block with a limit on voxels into its directory. */
void vx_gpu_mix_write(const char *precision);
void vx_gpu_mix_open(u64 seed, struct vx_gpu_mix *mix);
void vx_gpu_mix_close(struct vx_gpu_mix *mix);
/* Runs requests on the rig's engine, one after the other: those of the bits of `which`, without
 * which vx_gpu_mix_check fails.  The large ones are most of what a test computes. */
void vx_gpu_mix_expect(struct vx_gpu_mix *mix, struct vx_model *model, u32 which);
struct vx_gpu_mix_sent *vx_gpu_mix_send(const struct vx_gpu_mix *mix,
                                        const struct vx_gpu_mix_pick *picks, i32 count);
/* `broken`: the device failed meanwhile; items may report that instead.  Returns how many
 * items have the answer that was expected. */
i32 vx_gpu_mix_check(struct vx_gpu_mix *mix, struct vx_gpu_mix_sent **sent, bool broken);

#endif
