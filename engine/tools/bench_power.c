/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/tools/bench_power.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#define POWER_MAGIC 0x76785077u /* "vxPw" */

struct vx_bench_power {
    u32 magic;
    bool sampling; /* the thread runs */
    pthread_t thread;
    atomic_bool stop;
    struct vx_nvml nvml; /* this and all below: the thread's while it runs */
    i64 pause_ns;
    i32 count;
    struct vx_bench_sample samples[VX_BENCH_SAMPLES_MAX];
};

/* ------- from samples to numbers ------- */

static int compare_i32(const void *a, const void *b)
{
    i32 left = *(const i32 *)a, right = *(const i32 *)b;
    return (left > right) - (left < right);
}

static void draw_clock(const struct vx_bench_sample *samples, i32 count,
                       struct vx_bench_draw *draw)
{
    i32 clocks[VX_BENCH_SAMPLES_MAX], known = 0;
    for (i32 i = 0; i < count; i++)
        if (samples[i].reading.clock_known)
            clocks[known++] = samples[i].reading.clock_mhz;
    if (known < VX_BENCH_SAMPLES_MIN) return;
    const i32 half = known / 2;
    i32 *last = clocks + known - half;
    qsort(last, (size_t)half, sizeof *last, compare_i32);
    draw->clock_known = true;
    draw->clock_mhz = last[half / 2];
}

/* A counter that falls is of a driver that was loaded anew: nothing is known. */
static void draw_watts(const struct vx_bench_sample *samples, i32 count,
                       struct vx_bench_draw *draw)
{
    const struct vx_bench_sample *before = NULL, *first = NULL, *last = NULL;
    for (i32 i = 0; i < count; i++) {
        const struct vx_bench_sample *now = &samples[i];
        if (!now->reading.energy_known) continue;
        const i64 more =
            before ? now->reading.energy_millijoules - before->reading.energy_millijoules
                   : 0;
        before = now;
        if (more < 0) return;
        if (more && !first) first = now;
        if (more) last = now;
    }
    if (!first || last->ns - first->ns < VX_BENCH_POWER_NS) return;
    const i64 energy =
        last->reading.energy_millijoules - first->reading.energy_millijoules;
    /* A millijoule in a nanosecond is a million watts. */
    draw->watts = 1e6 * (f64)energy / (f64)(last->ns - first->ns);
    draw->watts_known = true;
}

struct vx_bench_draw vx_bench_power_of(const struct vx_bench_sample *samples, i32 count)
{
    struct vx_bench_draw draw = {0};
    VX_ASSERT(count <= VX_BENCH_SAMPLES_MAX);
    draw_clock(samples, count, &draw);
    draw_watts(samples, count, &draw);
    return draw;
}

i32 vx_bench_power_thin(struct vx_bench_sample *samples, i32 count)
{
    const i32 left = (count + 1) / 2;
    for (i32 i = 0; i < left; i++) samples[i] = samples[2 * i];
    return left;
}

/* ------- the thread ------- */

static void power_main(void *context)
{
    struct vx_bench_power *power = context;
    VX_ON(COMPUTE);
    do {
        const struct vx_gpu_reading now = vx_nvml_read(&power->nvml);
        power->samples[power->count++] = (struct vx_bench_sample){vx_clock_ns(), now};
        if (power->count == VX_BENCH_SAMPLES_MAX) {
            power->count = vx_bench_power_thin(power->samples, power->count);
            power->pause_ns *= 2;
        }
        const struct timespec pause = {.tv_sec = power->pause_ns / VX_NS_PER_S,
                                       .tv_nsec = power->pause_ns % VX_NS_PER_S};
        (void)nanosleep(&pause, NULL); /* sleep: between readings */
    } while (!atomic_load(&power->stop));
}

vx_status vx_bench_power_begin(struct vx_bench_power *power, struct vx_why *why)
{
    VX_ON(DEVICE);
    if (!power) return VX_OK;
    VX_ASSERT(power->magic == POWER_MAGIC);
    VX_ASSERT(!power->sampling);
    atomic_store(&power->stop, false);
    power->count = 0;
    power->pause_ns = VX_NS_PER_MS;
    vx_status status = vx_thread_open(&power->thread, VX_ROLE_COMPUTE, power_main, power);
    VX_ENSURE_WHY(!status.fault, why, RESOURCE_EXHAUSTED, "no thread to read the clock",
                  "the system gave no thread to read a device's clock and power");
    power->sampling = true;
    return VX_OK;
}

struct vx_bench_draw vx_bench_power_end(struct vx_bench_power *power)
{
    VX_ON(DEVICE);
    if (!power) return (struct vx_bench_draw){0};
    VX_ASSERT(power->magic == POWER_MAGIC);
    VX_ASSERT(power->sampling);
    atomic_store(&power->stop, true);
    pthread_join(power->thread, NULL);
    power->sampling = false;
    return vx_bench_power_of(power->samples, power->count);
}

/* ------- open and close ------- */

vx_status vx_bench_power_open(struct vx_gpu *gpu, const char *library, struct vx_why *why,
                              struct vx_bench_power **power)
{
    struct vx_nvml nvml;
    *power = NULL;
    if (!vx_nvml_find(&nvml, gpu, library) || !vx_nvml_start(&nvml)) return VX_OK;
    struct vx_bench_power *made = vx_alloc_zero(sizeof *made);
    if (!made) vx_nvml_end(&nvml);
    VX_ENSURE_WHY(made, why, RESOURCE_EXHAUSTED, "no memory for a device's readings",
                  "no %zu bytes for readings of a device's clock", sizeof *made);
    made->magic = POWER_MAGIC;
    made->nvml = nvml;
    *power = made;
    return VX_OK;
}

void vx_bench_power_close(struct vx_bench_power **power)
{
    struct vx_bench_power *it = *power;
    *power = NULL;
    if (!it) return;
    VX_ASSERT(it->magic == POWER_MAGIC);
    VX_ASSERT(!it->sampling);
    vx_nvml_end(&it->nvml);
    it->magic = 0;
    vx_free(it);
}
