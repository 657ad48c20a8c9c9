/* model_tune - measures the convolutions of one model while it is loaded, when the
 * settings ask for it, and lets the fastest of each run.
 *
 * What is measured: every distinct layer at every warm-up size of the model that the table
 * of tuning results says nothing about.  A result holds for its size and for those up to
 * two powers of two away, as in engine/tune/pick.h; where only what is as exact may be
 * chosen, only that is measured, so that tuning changes times and no bits.
 *
 *   vx_gpu_tune_list(choices, pick, sizes, &tune);
 *   VX_TRY(vx_gpu_tune_ready(&tune, &tuner, &why));           (loading thread)
 *   while (vx_gpu_tune_more(&tune))
 *       VX_TRY(vx_gpu_tune_step(&tune, &tuner, choices, &why)); (device thread)
 *   vx_gpu_tune_close(&tune);
 *
 * Owner    the caller's structs.
 * Thread   as above; a step allocates: a thread that is frozen is thawed for it.
 * Limits   VX_GPU_TUNE_MAX problems; those beyond are left to the cost model.
 * Fails    UNAVAILABLE the device is lost; what else goes wrong is logged, and the layer
 *          runs as it would have.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_GPU_MODEL_TUNE_H
#define VX_ENGINE_GPU_MODEL_TUNE_H

#include "engine/gpu/model_choice.h"
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
    struct vx_measure *measure; /* of the item that is being measured; NULL = none is */
    struct vx_measure_report *report;
};
struct vx_gpu_tune_sizes {
    enum vx_tune_mode mode;
    const i64 *list;
    i32 count;
};
/* Candidates of all models since the device was opened. */
struct vx_gpu_tune_counts {
    i64 measured, rejected; /* rejected: its answer was wrong */
};

struct vx_gpu_tuner {
    struct vx_measure_device device;
    struct vx_tune_table *table; /* results are put there; NULL = nowhere */
    pthread_mutex_t *lock;       /* of the table */
    size_t bytes;                /* that requests of up to `voxels_max` must still fit */
    i64 voxels_max;
    struct vx_gpu_tune_counts *counts; /* added to */
};

/* The table that pick reads must not change during the call. */
void vx_gpu_tune_list(const struct vx_gpu_choices *choices, const struct vx_pick *pick,
                      const struct vx_gpu_tune_sizes *sizes, struct vx_gpu_tune *tune);
/* Kernels of all candidates; what cannot be made ready is taken off the list. */
VX_MUST_USE vx_status vx_gpu_tune_ready(struct vx_gpu_tune *tune,
                                        const struct vx_gpu_tuner *tuner,
                                        struct vx_why *why);
/* Measures one candidate of an item; with the last of the last item the choices are made. */
static inline bool vx_gpu_tune_more(const struct vx_gpu_tune *tune)
{
    return tune->done < tune->count;
}
VX_MUST_USE vx_status vx_gpu_tune_step(struct vx_gpu_tune *tune,
                                       const struct vx_gpu_tuner *tuner,
                                       struct vx_gpu_choices *choices,
                                       struct vx_why *why);
/* What a measurement that was not finished holds on the device.  Device thread. */
void vx_gpu_tune_close(struct vx_gpu_tune *tune);

#endif
