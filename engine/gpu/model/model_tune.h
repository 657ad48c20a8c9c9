/* model_tune - measures a model's convolutions at load and chooses the fastest.
 *
 * If the settings ask for it, every distinct layer is measured at every warm-up size for
 * which the tuning table has no result.  A result is used for its size and for sizes up
 * to two powers of two away, as in engine/tune/pick.h.  With AUTO, only algorithms with
 * the layer's order of summation are measured, so that tuning changes times but not bits.
 *
 *   vx_gpu_tune_list(choices, pick, sizes, &tune);
 *   VX_TRY(vx_gpu_tune_ready(&tune, &tuner, &why));           (loading thread)
 *   while (vx_gpu_tune_more(&tune))
 *       VX_TRY(vx_gpu_tune_step(&tune, &tuner, choices, &why)); (device thread)
 *   vx_gpu_tune_close(&tune);
 *
 * Owner    the caller's structs.
 * Thread   as above; a step allocates, so it thaws the allocator of a frozen thread.
 * Limits   VX_GPU_TUNE_MAX problems; the cost model chooses for the others.
 * Fails    UNAVAILABLE the device is lost; other errors are logged, and the layer keeps
 *          its choice.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_MODEL_TUNE_H
#define VX_ENGINE_GPU_MODEL_TUNE_H

#include "engine/gpu/model/model_choice.h"
#include "engine/tune/measure.h"

#include <pthread.h>

/* Two sizes of some thirty distinct layers. */
#define VX_GPU_TUNE_MAX 64

struct vx_gpu_tune_item {
    struct vx_conv_problem problem;
    struct vx_measure_want want;
    struct vx_conv_choice best;
    bool measured;
};
struct vx_gpu_tune {
    struct vx_gpu_tune_item items[VX_GPU_TUNE_MAX];
    i32 count, done;
    struct vx_measure *measure; /* of the item that is being measured; NULL = none */
    struct vx_measure_report *report;
};
struct vx_gpu_tune_sizes {
    enum vx_tune_mode mode;
    const i64 *list;
    i32 count;
};
/* Candidates of all models since the device was opened. */
struct vx_gpu_tune_counts {
    i64 measured, rejected; /* rejected: the results were wrong */
};

struct vx_gpu_tuner {
    struct vx_measure_device device;
    struct vx_tune_table *table; /* receives the results; NULL = none */
    pthread_mutex_t *lock;       /* of the table */
    size_t bytes; /* requests of up to `voxels_max` must still fit in them */
    i64 voxels_max;
    struct vx_gpu_tune_counts *counts; /* are incremented */
};

/* The table that pick reads must not change during the call. */
void vx_gpu_tune_list(const struct vx_gpu_choices *choices, const struct vx_pick *pick,
                      const struct vx_gpu_tune_sizes *sizes, struct vx_gpu_tune *tune);
/* Makes the kernels of all candidates ready; removes the items for which this fails. */
VX_MUST_USE vx_status vx_gpu_tune_ready(struct vx_gpu_tune *tune,
                                        const struct vx_gpu_tuner *tuner,
                                        struct vx_why *why);
static inline bool vx_gpu_tune_more(const struct vx_gpu_tune *tune)
{
    return tune->done < tune->count;
}
/* Measures one candidate of an item; the last step sets the choices. */
VX_MUST_USE vx_status vx_gpu_tune_step(struct vx_gpu_tune *tune,
                                       const struct vx_gpu_tuner *tuner,
                                       struct vx_gpu_choices *choices,
                                       struct vx_why *why);
/* Frees what an unfinished measurement holds on the device.  Device thread. */
void vx_gpu_tune_close(struct vx_gpu_tune *tune);

#endif
