/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/device_rig.h"

#include "engine/base/process/alloc.h"
#include "engine/gpu/fake/fake.h"

#include <check.h>

#define HOST_BYTES   ((size_t)512 << 20)
#define DEVICE_BYTES ((size_t)512 << 20)

struct device_rig device_rig;

void device_rig_check(vx_status status)
{
    if (status.fault) ck_abort_msg("%s", vx_status_text(status, &device_rig.why));
}

void device_rig_open(void)
{
    struct device_rig *rig = &device_rig;
    const struct vx_workbench_wanted wanted = {.device = "fake"};
    vx_fake_set(&(struct vx_fake_settings){0});
    device_rig_check(vx_workbench_open(&wanted, &rig->why, &rig->bench));
    rig->queue =
        (struct vx_gpu_queue){.set = rig->bench.set, .stream = rig->bench.stream};
    rig->host_block = vx_alloc_aligned(HOST_BYTES);
    ck_assert_ptr_nonnull(rig->host_block);
    vx_arena_init(&rig->host, rig->host_block, HOST_BYTES);
    device_rig_check(
        vx_gpu_alloc(rig->bench.gpu, DEVICE_BYTES, &rig->why, &rig->device_block));
    rig->device_used = 0;
}

void device_rig_close(void)
{
    vx_gpu_free(device_rig.bench.gpu, &device_rig.device_block);
    vx_free(device_rig.host_block);
    vx_workbench_close(&device_rig.bench);
}

void *device_rig_take(size_t bytes)
{
    void *taken = vx_arena_take(&device_rig.host, bytes + 16);
    ck_assert_ptr_nonnull(taken);
    return taken;
}

void *device_rig_give(size_t bytes)
{
    void *at = (u8 *)device_rig.device_block + device_rig.device_used;
    device_rig.device_used += vx_round_up(bytes, 256);
    ck_assert_uint_le(device_rig.device_used, DEVICE_BYTES);
    return at;
}

void *device_rig_put(const void *data, size_t bytes)
{
    void *at = device_rig_give(bytes);
    const struct vx_gpu_copy copy = {at, data, bytes};
    device_rig_check(vx_gpu_copy_in(device_rig.bench.gpu, device_rig.bench.stream, &copy,
                                    &device_rig.why));
    return at;
}

void *device_rig_get(const void *at, size_t bytes)
{
    struct vx_gpu *gpu = device_rig.bench.gpu;
    struct vx_gpu_stream *stream = device_rig.bench.stream;
    const struct vx_gpu_copy copy = {device_rig_take(bytes), at, bytes};
    device_rig_check(vx_gpu_copy_out(gpu, stream, &copy, &device_rig.why));
    device_rig_check(vx_gpu_stream_wait(gpu, stream, &device_rig.why));
    return copy.to;
}

#define GUARD  256
#define POISON 0x7fff7fffu

void *device_rig_guarded(size_t bytes)
{
    const size_t all = GUARD + vx_round_up(bytes, 4) + GUARD;
    u8 *at = device_rig_give(all);
    device_rig_check(vx_gpu_fill(device_rig.bench.gpu, device_rig.bench.stream,
                                 &(struct vx_gpu_words){at, POISON, all},
                                 &device_rig.why));
    return at + GUARD;
}

void device_rig_guards_check(const u8 *at, size_t bytes)
{
    const size_t end = vx_round_up(bytes, 4);
    const u32 *before = device_rig_get(at - GUARD, GUARD);
    const u32 *behind = device_rig_get(at + end, GUARD);
    for (size_t i = 0; i < GUARD / 4; i++) ck_assert_uint_eq(before[i], POISON);
    for (size_t i = 0; i < GUARD / 4; i++) ck_assert_uint_eq(behind[i], POISON);
}

struct device_rig_mark device_rig_mark(void)
{
    return (struct device_rig_mark){device_rig.host.used, device_rig.device_used};
}

void device_rig_rewind(struct device_rig_mark mark)
{
    device_rig.host.used = mark.host;
    device_rig.device_used = mark.device;
}
