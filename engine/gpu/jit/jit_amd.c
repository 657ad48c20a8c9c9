/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/jit/jit_amd.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/gpu/driver/hip_arch.h"
#include "engine/gpu/jit/child.h"
#include "engine/gpu/jit/hiprtc.h"
#include "engine/gpu/jit/jit_folder.h"

#include <elf.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define OUT           "out.co"
#define WORD_BYTES    128
#define ARGUMENTS_MAX (VX_TILE_VALUES_MAX + VX_JIT_TEXTS_MAX + 32)

struct arguments {
    char words[ARGUMENTS_MAX][WORD_BYTES];
    const char *list[ARGUMENTS_MAX + 1];
    i32 count;
};

bool vx_amd_arch(const char *arch)
{
    return !strncmp(arch, "gfx", 3);
}

/* --- what the compiler is told --- */

VX_PRINTF(2, 3)
static void add(struct arguments *arguments, const char *format, ...)
{
    va_list values;
    VX_ASSERT(arguments->count < ARGUMENTS_MAX);
    char *word = arguments->words[arguments->count];
    va_start(values, format);
    int length = vsnprintf(word, WORD_BYTES, format, values);
    va_end(values);
    VX_ASSERT(length > 0 && length < WORD_BYTES);
    arguments->list[arguments->count++] = word;
    arguments->list[arguments->count] = NULL;
}

/* As the caller's text; `text` outlives the list. */
static void add_long(struct arguments *arguments, const char *text)
{
    VX_ASSERT(arguments->count < ARGUMENTS_MAX);
    arguments->list[arguments->count++] = text;
    arguments->list[arguments->count] = NULL;
}

/* Options of both compilers.  Binaries of code object version 4 are read by every ROCm
 * since 5.0; those of clang's own default are not.  Where two compute units can work as
 * one, a block stays in one: its shared memory and its barrier are then that unit's. */
static void add_options(const struct vx_jit_unit *unit, struct arguments *arguments)
{
    const struct vx_jit_wanted *wanted = &unit->wanted;
    add(arguments, "-O3");
    add(arguments, "-std=c++17");
    add(arguments, "-mcode-object-version=4");
    if (vx_hip_arch_parse(unit->arch) >= 100000) add(arguments, "-mcumode");
    if (wanted->type) add(arguments, "-DVX_TYPE=%d", (int)wanted->type);
    for (i32 i = 0; i < wanted->spec->macros_count; i++)
        add(arguments, "-D%s=%d", wanted->spec->macros[i], wanted->tile->values[i]);
}

/* One architecture in one file, without a bundle around it, and none of the headers and
 * libraries of the machine. */
static void clang_arguments(const struct vx_compiler *compiler,
                            const struct vx_jit_unit *unit, struct arguments *arguments)
{
    add_long(arguments, compiler->path);
    add(arguments, "-x");
    add(arguments, "hip");
    add(arguments, "--offload-arch=%s", unit->arch);
    add(arguments, "--offload-device-only");
    add(arguments, "--no-gpu-bundle-output");
    add(arguments, "-nogpuinc");
    add(arguments, "-nogpulib");
    add(arguments, "-nostdinc");
    add_options(unit, arguments);
    add(arguments, "-I");
    add(arguments, ".");
    add_long(arguments, unit->closure->texts[0]->name);
    add(arguments, "-o");
    add(arguments, OUT);
}

/* hiprtc.h says what its child reads. */
static void hiprtc_arguments(const struct vx_compiler *compiler,
                             const struct vx_jit_unit *unit, struct arguments *arguments)
{
    add(arguments, "/proc/self/exe");
    add(arguments, VX_HIPRTC_COMMAND);
    add(arguments, "compile");
    add_long(arguments, compiler->path);
    add(arguments, OUT);
    add(arguments, "%d", unit->closure->count);
    for (i32 i = 0; i < unit->closure->count; i++)
        add_long(arguments, unit->closure->texts[i]->name);
    add(arguments, "--gpu-architecture=%s", unit->arch);
    add_options(unit, arguments);
}

/* --- one binary --- */

/* What is refused is told by a line with "error" in it: made here where the compiler
 * ended without a word. */
static vx_status refuse(const struct vx_child *child, const struct vx_child_said *said,
                        const struct vx_compiler *compiler,
                        const struct vx_jit_unit *unit, struct vx_why *why)
{
    char end[64], log[2048];
    const char *text = said->text ? said->text : "";
    if (said->end == VX_CHILD_EXIT && strstr(text, "error"))
        return vx_compiler_refuse(unit, text, why);
    vx_child_end_text(child, said, end, sizeof end);
    (void)snprintf(log, sizeof log, "%s error: %s%s\n%.1500s", compiler->word, end,
                   compiler->hiprtc && said->end == VX_CHILD_SIGNAL
                       ? ": this hipRTC may not know the architecture"
                       : "",
                   text);
    return vx_compiler_refuse(unit, log, why);
}

static vx_status take_binary(const struct vx_jit_folder *folder,
                             const struct vx_child_said *said,
                             const struct vx_jit_unit *unit, struct vx_why *why,
                             struct vx_binary *binary)
{
    size_t bytes;
    void *data;
    VX_TRY(vx_jit_folder_take(folder, OUT, why, &bytes, &data));
    bool good = bytes > SELFMAG && !memcmp(data, ELFMAG, SELFMAG);
    vx_status status = good ? vx_binary_open(said->bytes, bytes, binary) : VX_OK;
    if (good && !status.fault) {
        if (said->bytes) memcpy(binary->block, said->text, said->bytes);
        memcpy(binary->block + binary->log_bytes, data, bytes);
    }
    vx_free(data);
    VX_ENSURE_WHY(good, why, INTERNAL, "the compiler returned no binary",
                  "%s for %s: the compiler returned no binary", unit->wanted.spec->source,
                  unit->arch);
    return status;
}

static vx_status run_child(const struct vx_compiler *compiler,
                           const struct vx_jit_unit *unit,
                           const struct vx_jit_folder *folder, struct vx_why *why,
                           struct vx_binary *binary)
{
    struct arguments *arguments = vx_alloc(sizeof *arguments); /* 20 KiB */
    VX_ENSURE(arguments, RESOURCE_EXHAUSTED, "no memory for a compiler's options");
    arguments->count = 0;
    if (compiler->hiprtc)
        hiprtc_arguments(compiler, unit, arguments);
    else
        clang_arguments(compiler, unit, arguments);
    const struct vx_child child = {arguments->list, folder->path, VX_JIT_CHILD_MS};
    struct vx_child_said said;
    int failed = vx_child_run(&child, &said);
    vx_status status = VX_OK;
    if (!failed)
        status = vx_child_good(&said) ? take_binary(folder, &said, unit, why, binary)
                                      : refuse(&child, &said, compiler, unit, why);
    vx_free(arguments);
    vx_child_close(&said);
    VX_ENSURE_WHY(!failed, why, RESOURCE_EXHAUSTED, "the compiler cannot be started",
                  "%s: %s", compiler->path, strerror(failed));
    return status;
}

vx_status vx_amd_compile(const struct vx_compiler *compiler,
                         const struct vx_jit_unit *unit, struct vx_why *why,
                         struct vx_binary *binary)
{
    struct vx_jit_folder folder;
    VX_TRY(vx_jit_folder_open(unit->closure, why, &folder));
    vx_status status = run_child(compiler, unit, &folder, why, binary);
    vx_jit_folder_close(&folder);
    return status;
}
