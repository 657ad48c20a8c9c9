/* bench_power - the clock and the power of a device while a row is timed.
 *
 * A thread reads both every millisecond or so, and puts nothing on the stream.  The clock
 * is the median of the last half of the readings, because clocks rise under load.  Power
 * is the energy between the first and the last change of the device's counter, divided by
 * that time: the counter moves only every 20 to 100 ms, and between two changes nobody
 * knows how old it is.
 *
 *   VX_TRY(vx_bench_power_open(gpu, NULL, &why, &power));
 *   VX_TRY(vx_bench_power_begin(power, &why));
 *   ...
 *   struct vx_bench_draw draw = vx_bench_power_end(power);
 *   vx_bench_power_close(&power);
 *
 * Owner    the caller; the GPU is needed only by open.
 * Thread   device; begin starts a thread, and end joins it.
 * Limits   VX_BENCH_SAMPLES_MAX readings of a row: beyond that, every second one of them is
 *          dropped, and later ones are twice as far apart.
 * Fails    RESOURCE_EXHAUSTED.  A device without NVML is no failure: open gives NULL, with
 *          which begin and end may be called, and nothing is known.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_TOOLS_BENCH_POWER_H
#define VX_ENGINE_TOOLS_BENCH_POWER_H

#include "engine/gpu/driver/nvml.h"

/* Even: four seconds of a reading every millisecond. */
#define VX_BENCH_SAMPLES_MAX 4096
/* With fewer, the last half is one reading, or was taken before the device was busy. */
#define VX_BENCH_SAMPLES_MIN 4
/* The least time of which power is known: two steps of a counter that moves every 100 ms. */
#define VX_BENCH_POWER_NS (INT64_C(200) * 1000000)

struct vx_bench_sample {
    i64 ns; /* on the host's clock, after the reading */
    struct vx_gpu_reading reading;
};
struct vx_bench_draw {
    bool clock_known, watts_known;
    i32 clock_mhz;
    f64 watts;
};

struct vx_bench_power;

/* `library`: path of NVML; NULL = the system's. */
VX_MUST_USE vx_status vx_bench_power_open(struct vx_gpu *gpu, const char *library,
                                          struct vx_why *why,
                                          struct vx_bench_power **power);
void vx_bench_power_close(struct vx_bench_power **power);
VX_MUST_USE vx_status vx_bench_power_begin(struct vx_bench_power *power,
                                           struct vx_why *why);
struct vx_bench_draw vx_bench_power_end(struct vx_bench_power *power);

/* Of samples in the order of their times, at most VX_BENCH_SAMPLES_MAX.  Pure. */
struct vx_bench_draw vx_bench_power_of(const struct vx_bench_sample *samples, i32 count);
/* Keeps every second one, the first among them; returns how many are left.  Pure. */
i32 vx_bench_power_thin(struct vx_bench_sample *samples, i32 count);

#endif
