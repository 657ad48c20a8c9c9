/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/print.h"
#include "engine/gpu/driver/limits.h"
#include "engine/gpu/model/model_load.h"
#include "engine/tools/compiled.h"
#include "engine/tools/tools.h"
#include "engine/tools/workbench.h"
#include "engine/tune/pick.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "compile --arch ARCH (--all | --model DIR [--version N]) [--cache DIR]\n"
    "        [--tune-table FILE --device NAME] [--compiler FILE] [--texts DIR]\n"
    "        [--threads N] [--check] [--binaries DIR] [--without-bf16]\n"
    "\n"
    "  --arch      sm_75, sm_80, sm_86, sm_87, sm_89, sm_90a, sm_100, sm_120; gfx90a,\n"
    "              gfx942, gfx1100, gfx1200\n"
    "  --all       every kernel with every type and tile that fits the architecture\n"
    "  --without-bf16  of them no BF16 where there is FP16: their binaries differ in "
    "the\n"
    "              type of an instruction\n"
    "  --model     the kernels that this model launches on ARCH, as chosen by the cost\n"
    "              model, or by the tuning table of the device that --device names\n"
    "              (\"NVIDIA H200\")\n"
    "  --cache     directory to fill (voxeld serve --kernel-cache); none = compile only\n"
    "  --check     fail if a kernel spills registers although it must not, or if its\n"
    "              products of wgmma wait for each other (sm_90a)\n"
    "  --binaries  directory that gets each binary as a file that disassemblers read,\n"
    "              named by kernel, type and tile\n"
    "  --compiler  libnvrtc, or for gfx... clang (19 or newer) or libhiprtc; none = "
    "search\n";

struct compile {
    const char *arch, *model, *cache, *compiler, *texts, *table, *device, *binaries;
    i64 version, threads;
    bool all, check, without_bf16;
    const struct vx_caps *caps;
    struct vx_jit *jit;
    struct vx_jit_wanted *wanted; /* VX_JIT_IMAGES_MAX */
    i32 count;
    i64 tenths_said; /* tenths of the binaries that were reported as compiled */
};

/* Removes a flag without a value, before the others are parsed. */
static int take_switch(int count, char **arguments, const char *name, bool *said)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        if (strcmp(arguments[i], name) != 0)
            arguments[kept++] = arguments[i];
        else
            *said = true;
    }
    return kept;
}

static bool parse(int count, char **arguments, struct compile *compile)
{
    const char *version = "1", *threads = "0";
    const struct vx_flag flags[] = {
        {"--arch", &compile->arch},
        {"--model", &compile->model},
        {"--version", &version},
        {"--cache", &compile->cache},
        {"--compiler", &compile->compiler},
        {"--texts", &compile->texts},
        {"--threads", &threads},
        {"--tune-table", &compile->table},
        {"--device", &compile->device},
        {"--binaries", &compile->binaries},
    };
    count = take_switch(count, arguments, "--all", &compile->all);
    count = take_switch(count, arguments, "--check", &compile->check);
    count = take_switch(count, arguments, "--without-bf16", &compile->without_bf16);
    if (!vx_flags_parse(count, arguments, flags, VX_COUNT(flags))) return false;
    if (!vx_flag_number("--version", version, 1, INT32_MAX, &compile->version) ||
        !vx_flag_number("--threads", threads, 0, VX_JIT_THREADS_MAX, &compile->threads))
        return false;
    bool tuned =
        !compile->table == !compile->device && (compile->model || !compile->table);
    if (compile->arch && (compile->all || compile->model) && tuned) return true;
    vx_print_error("%s compile: %s\n\n", vx_tool_program(),
                   !compile->arch ? "expected --arch ARCH"
                   : !compile->all && !compile->model
                       ? "expected --all or --model DIR: which kernels are compiled"
                       : "expected --tune-table FILE and --device NAME together, with "
                         "--model DIR");
    vx_tool_print_usage(usage);
    return false;
}

/* --- what to compile --- */

static vx_status want(struct compile *compile, const struct vx_jit_wanted *wanted)
{
    VX_ENSURE(compile->count < VX_JIT_IMAGES_MAX, RESOURCE_EXHAUSTED,
              "too many kernels for one process");
    compile->wanted[compile->count++] = *wanted;
    return VX_OK;
}

static vx_status want_types(struct compile *compile, const struct vx_kernel_spec *spec,
                            const struct vx_tile *tile)
{
    u32 types = spec->types ? spec->types : 1; /* bit 0: once, without a type */
    if (compile->without_bf16 && types >> VX_NUMBER_F16 & 1)
        types &= ~(1u << VX_NUMBER_BF16);
    for (i32 type = 0; type < 32; type++) {
        const struct vx_jit_wanted wanted = {spec, tile, (enum vx_number)type};
        bool fits = !spec->fits || spec->fits(tile, wanted.type, compile->caps);
        if (types >> type & 1 && fits) VX_TRY(want(compile, &wanted));
    }
    return VX_OK;
}

static vx_status want_all(struct compile *compile)
{
    for (const struct vx_kernel_spec *const *it = vx_kernels(); *it; it++)
        for (i32 i = 0; i < (*it)->tiles_count; i++)
            VX_TRY(want_types(compile, *it, (*it)->tiles ? &(*it)->tiles[i] : NULL));
    return VX_OK;
}

static vx_status want_picked(struct compile *compile, const struct vx_tune_table *table,
                             struct vx_why *why)
{
    const struct vx_model_source source = {.directory = compile->model,
                                           .version = (i32)compile->version};
    struct vx_pick pick;
    struct vx_gpu_wanted *wanted = vx_alloc_zero(sizeof *wanted);
    VX_ENSURE(wanted, RESOURCE_EXHAUSTED, "no memory for a list of kernels");
    vx_pick_init(&pick, compile->jit, compile->caps,
                 compile->device ? compile->device : compile->arch);
    pick.table = table;
    vx_status status = vx_gpu_model_kernels(&source, &pick, why, wanted);
    for (i32 i = 0; i < wanted->count && !status.fault; i++)
        status = want(compile, &wanted->list[i]);
    vx_free(wanted);
    return status;
}

static vx_status want_model(struct compile *compile, struct vx_why *why)
{
    struct vx_tune_table *table = NULL;
    vx_status status = VX_OK;
    if (compile->table) {
        VX_TRY(vx_tune_table_open(compile->device, why, &table));
        status = vx_tune_table_read(table, compile->table, why);
    }
    if (!status.fault) status = want_picked(compile, table, why);
    vx_tune_table_close(&table);
    return status;
}

/* --- the tool --- */

static void on_progress(void *context, i64 done, i64 total)
{
    struct compile *compile = context;
    vx_tool_progress("compiling", done, total);
    /* If stderr is no terminal there is no bar: print a line for each tenth instead. */
    i64 tenths = total > 0 ? done * 10 / total : 0;
    if (isatty(STDERR_FILENO) || tenths == compile->tenths_said) return;
    compile->tenths_said = tenths;
    vx_print_error("%s compile: %lld of %lld binaries\n", vx_tool_program(),
                   (long long)done, (long long)total);
}

static vx_status run(struct compile *compile, struct vx_why *why)
{
    const struct vx_jit_options options = {
        .arch = compile->arch,
        .directory = compile->cache,
        .compiler = compile->compiler,
        .texts = compile->texts,
        .threads = (i32)compile->threads,
    };
    compile->caps = vx_arch_caps(compile->arch);
    VX_ENSURE_WHY(compile->caps, why, INVALID_ARGUMENT, "no such architecture",
                  "--arch %s: expected %s", compile->arch, vx_arch_names());
    VX_TRY(vx_jit_open(&options, why, &compile->jit));
    compile->wanted = vx_alloc(VX_JIT_IMAGES_MAX * sizeof *compile->wanted);
    VX_ENSURE(compile->wanted, RESOURCE_EXHAUSTED, "no memory for a list of kernels");
    if (compile->all) VX_TRY(want_all(compile));
    if (compile->model) VX_TRY(want_model(compile, why));
    const struct vx_progress progress = {on_progress, compile};
    i64 begin_ns = vx_clock_ns();
    VX_TRY(vx_jit_build(compile->jit, compile->wanted, compile->count, &progress, why));
    i64 bytes = 0;
    for (i32 i = 0; i < compile->count; i++) {
        struct vx_jit_image image;
        VX_TRY(vx_jit_get(compile->jit, &compile->wanted[i], why, &image));
        bytes += (i64)image.bytes;
    }
    vx_print("%d kernels for %s, %.1f MB, %.1f s\n", compile->count, compile->arch,
             (f64)bytes / 1e6, (f64)(vx_clock_ns() - begin_ns) / 1e9);
    const struct vx_compiled compiled = {compile->jit, compile->arch, compile->caps,
                                         compile->wanted, compile->count};
    if (compile->binaries) VX_TRY(vx_compiled_write(&compiled, compile->binaries, why));
    if (!compile->check || !strcmp(compile->arch, "fake")) return VX_OK;
    return vx_compiled_check(&compiled, why);
}

int vx_tool_compile(int count, char **arguments)
{
    struct compile compile = {0};
    struct vx_why why = {""};
    if (vx_tool_help(count, arguments, usage)) return 0;
    if (!parse(count, arguments, &compile)) return 2;
    vx_status status = run(&compile, &why);
    vx_free(compile.wanted);
    vx_jit_close(&compile.jit);
    if (!status.fault) return 0;
    vx_print_error("%s compile: %s\n", vx_tool_program(), vx_status_text(status, &why));
    return 1;
}
