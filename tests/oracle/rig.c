/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/print.h"
#include "engine/gpu/geometry/map.h"
#include "engine/gpu/jit/hiprtc.h"
#include "engine/tune/data.h"
#include "tests/oracle/trial.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEED_DEFAULT UINT64_C(20261121)
/* A NaN in every type, a row number that no table has, and never all zeros or ones. */
#define POISON 0x7fff7fffu
/* The largest alignment of the device's structs; its allocator guarantees it. */
#define LINE 256
/* The largest prime below 2^17. */
#define BLOCK 131071

bool vx_rig_is_compiler(int count, char **arguments)
{
    vx_hiprtc_allow();
    return count > 1 && !strcmp(arguments[1], VX_HIPRTC_COMMAND);
}

vx_status vx_rig_open(const struct vx_rig_wanted *wanted, struct vx_why *why,
                      struct vx_rig **rig)
{
    vx_status status = VX_OK;
    struct vx_rig *made = vx_alloc_zero(sizeof *made);
    *rig = NULL;
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for a rig");
    made->only = wanted->only;
    made->size = wanted->size;
    made->quiet = wanted->quiet;
    made->untiled = wanted->untiled;
    made->seed = wanted->seed ? strtoull(wanted->seed, NULL, 10) : SEED_DEFAULT;
    made->state = made->seed;
    VX_TRY_OR(status, fail, vx_workbench_open(&wanted->device, why, &made->bench));
    made->caps = vx_gpu_caps(made->bench.gpu);
    if (made->bench.fake && made->size == VX_RIG_FULL) made->size = VX_RIG_FAKE;
    made->block = vx_alloc_aligned(VX_RIG_BYTES);
    if (!made->block) {
        vx_rig_close(&made);
        VX_FAIL(RESOURCE_EXHAUSTED, "no memory for trials");
    }
    vx_arena_init(&made->arena, made->block, VX_RIG_BYTES);
    if (!made->quiet)
        vx_print("%s (%s), seed %llu\n", vx_gpu_name(made->bench.gpu),
                 vx_gpu_arch(made->bench.gpu), (unsigned long long)made->seed);
    *rig = made;
    return VX_OK;
fail:
    vx_free(made);
    return status;
}

void vx_rig_close(struct vx_rig **rig)
{
    struct vx_rig *gone = *rig;
    if (!gone) return;
    if (gone->device) vx_gpu_free(gone->bench.gpu, &gone->device);
    vx_workbench_close(&gone->bench);
    for (i32 i = 0; i < gone->blocks_count; i++) vx_free(gone->blocks[i].typed);
    vx_free(gone->block);
    vx_free(gone);
    *rig = NULL;
}

int vx_rig_absent(const char *program, const struct vx_rig_wanted *wanted,
                  vx_status status, const struct vx_why *why)
{
    bool skip = vx_status_code(status) == VX_CODE_NOT_FOUND && !wanted->device.device;
    vx_print("%s %s: %s\n", skip ? "SKIPPED" : "FAIL", program,
             vx_status_text(status, why));
    return skip ? VX_RIG_SKIPPED : 1;
}

/* --- kernels --- */

static void ready_add(struct vx_rig *rig, const struct vx_kernel_spec *spec,
                      enum vx_number type)
{
    for (i32 tile = 0; tile < spec->tiles_count; tile++) {
        const struct vx_tile *at = spec->tiles ? &spec->tiles[tile] : NULL;
        if (spec->fits && !spec->fits(at, type, rig->caps)) continue;
        VX_ASSERT(rig->kernels_count < VX_RIG_KERNELS_MAX);
        rig->kernels[rig->kernels_count++] = (struct vx_jit_wanted){spec, at, type};
    }
}

static void on_progress(void *context, i64 done, i64 total)
{
    (void)context;
    vx_tool_progress("compiling", done, total);
}

vx_status vx_rig_ready(struct vx_rig *rig, struct vx_why *why)
{
    static const enum vx_number types[] = {VX_NUMBER_F32, VX_NUMBER_F16, VX_NUMBER_BF16,
                                           VX_NUMBER_TF32, VX_NUMBER_E4M3};
    const struct vx_progress progress = {on_progress, NULL};
    for (const struct vx_kernel_spec *const *at = vx_kernels(); *at; at++) {
        if (!(*at)->types) ready_add(rig, *at, 0);
        for (size_t i = 0; i < VX_COUNT(types); i++) {
            if (!((*at)->types >> types[i] & 1u)) continue;
            if (!rig->untiled || !(*at)->tiles) ready_add(rig, *at, types[i]);
            if (rig->untiled) break;
        }
    }
    return vx_kernel_set_ready(rig->bench.set, rig->kernels, rig->kernels_count,
                               &progress, why);
}

bool vx_rig_wants(const struct vx_rig *rig, const char *name)
{
    const struct vx_kernel_spec *spec = rig->untiled ? vx_kernel_find(name) : NULL;
    if (rig->quiet && rig->failures) return false; /* of a broken kernel it is enough */
    if (spec && spec->tiles && spec->types) return false;
    return !rig->only || strstr(name, rig->only);
}

const struct vx_jit_wanted *vx_rig_next(struct vx_rig *rig, const char *name,
                                        const struct vx_jit_wanted *kernel)
{
    i32 at = kernel ? (i32)(kernel - rig->kernels) + 1 : 0;
    if (!vx_rig_wants(rig, name)) return NULL;
    while (at < rig->kernels_count && strcmp(rig->kernels[at].spec->name, name) != 0)
        at++;
    return at < rig->kernels_count ? &rig->kernels[at] : NULL;
}

static bool kernel_same(const struct vx_jit_wanted *a, const struct vx_jit_wanted *b)
{
    return a->spec == b->spec && a->type == b->type && a->tile == b->tile;
}

void vx_rig_mark(struct vx_rig *rig, const struct vx_jit_wanted *kernel)
{
    for (i32 i = 0; i < rig->kernels_count; i++)
        if (kernel_same(&rig->kernels[i], kernel)) rig->ran[i] = true;
}

void vx_rig_check_ran(struct vx_rig *rig)
{
    i32 missing = 0;
    for (i32 i = 0; i < rig->kernels_count; i++) {
        const struct vx_jit_wanted *it = &rig->kernels[i];
        if (rig->ran[i] || !vx_rig_wants(rig, it->spec->name)) continue;
        missing++;
        vx_print("  never ran: %s type %d tile %d\n", it->spec->name, (int)it->type,
                 it->tile ? (int)(it->tile - it->spec->tiles) : 0);
    }
    vx_print("%d of %d binaries ran\n", rig->kernels_count - missing, rig->kernels_count);
    if (missing && !rig->only && rig->size != VX_RIG_SMALL)
        vx_rig_fail(rig, "%d binaries that fit this device were never run", missing);
}

/* --- what went wrong --- */

void vx_rig_fail(struct vx_rig *rig, const char *format, ...)
{
    char text[512];
    va_list list;
    if (rig->failures++ >= VX_RIG_TOLD_MAX || rig->quiet) return;
    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    vx_print("FAIL %s\n", text);
}

/* After an error of the driver no result means anything: the context is lost or memory is
 * out.  A panic says where. */
void vx_rig_need(struct vx_rig *rig, vx_status status, const struct vx_why *why)
{
    if (!status.fault) return;
    vx_print("FAIL after %lld trials: %s\n", (long long)rig->trials,
             vx_status_text(status, why));
    VX_ASSERT(!status.fault);
}

/* --- memory --- */

void vx_rig_reset(struct vx_rig *rig)
{
    vx_arena_reset(&rig->arena);
}

void *vx_rig_take(struct vx_rig *rig, size_t bytes)
{
    u8 *taken = vx_arena_take(&rig->arena, bytes + LINE);
    VX_ASSERT(taken);
    return taken + vx_round_up((uintptr_t)taken, LINE) - (uintptr_t)taken;
}

u8 *vx_rig_device(struct vx_rig *rig, size_t bytes)
{
    struct vx_why why = {""};
    if (bytes <= rig->device_bytes) return rig->device;
    vx_rig_need(rig, vx_gpu_stream_wait(rig->bench.gpu, rig->bench.stream, &why), &why);
    if (rig->device) vx_gpu_free(rig->bench.gpu, &rig->device);
    rig->device = NULL;
    bytes += bytes / 2;
    vx_rig_need(rig, vx_gpu_alloc(rig->bench.gpu, bytes, &why, &rig->device), &why);
    rig->device_bytes = bytes;
    return rig->device;
}

void vx_rig_poison(void *memory, size_t bytes)
{
    const u32 word = POISON;
    for (size_t at = 0; at < bytes; at += sizeof word)
        memcpy((u8 *)memory + at, &word, bytes - at < sizeof word ? bytes - at : 4);
}

/* --- random numbers --- */

u64 vx_rig_random(struct vx_rig *rig)
{
    return vx_data_next(&rig->state);
}

i64 vx_rig_below(struct vx_rig *rig, i64 end)
{
    return (i64)(vx_rig_random(rig) % (u64)end);
}

/* A block of numbers is generated once and then read from various places: rounding takes
 * longer than all else in a trial.  Its length is prime, so that rows differ. */
static const struct vx_rig_block *block_of(struct vx_rig *rig, enum vx_number type,
                                           f64 scale)
{
    for (i32 i = 0; i < rig->blocks_count; i++)
        if (rig->blocks[i].type == type && rig->blocks[i].scale == scale)
            return &rig->blocks[i];
    VX_ASSERT(rig->blocks_count < VX_RIG_BLOCKS_MAX);
    struct vx_rig_block *made = &rig->blocks[rig->blocks_count++];
    *made = (struct vx_rig_block){type, scale,
                                  vx_alloc(BLOCK * (size_t)vx_number_bytes(type))};
    VX_ASSERT(made->typed);
    for (i64 e = 0; e < BLOCK; e++) {
        f64 unit = (f64)(vx_rig_random(rig) >> 11) * 0x1p-52 - 1.0;
        vx_number_ref_write(made->typed, type, e, unit * scale);
    }
    return made;
}

void *vx_rig_reals(struct vx_rig *rig, enum vx_number type, i64 count, f64 scale)
{
    const size_t element = (size_t)vx_number_bytes(type);
    const struct vx_rig_block *block = block_of(rig, type, scale);
    u8 *made = vx_rig_take(rig, (size_t)count * element);
    i64 from = vx_rig_below(rig, BLOCK);
    for (i64 at = 0; at < count;) {
        i64 part = BLOCK - from < count - at ? BLOCK - from : count - at;
        memcpy(made + (size_t)at * element,
               (const u8 *)block->typed + (size_t)from * element, (size_t)part * element);
        at += part;
        from = 0;
    }
    return made;
}
