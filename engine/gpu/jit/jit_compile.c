/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/jit/jit_compile.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/log.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The toolkit's folders are rarely on the loader's search path. */
static const char *const libraries[] = {
    "libnvrtc.so.13",
    "libnvrtc.so.12",
    "libnvrtc.so",
    "/usr/local/cuda/lib64/libnvrtc.so.13",
    "/usr/local/cuda/lib64/libnvrtc.so.12",
    "/usr/local/cuda/lib64/libnvrtc.so",
    "/usr/local/cuda/targets/x86_64-linux/lib/libnvrtc.so",
    "/usr/local/cuda/targets/sbsa-linux/lib/libnvrtc.so",
    "/usr/local/cuda-13.0/lib64/libnvrtc.so.13",
    "/usr/local/cuda-13.0/lib/libnvrtc.so.13",
    "/opt/cuda/lib64/libnvrtc.so",
    NULL,
};

#define OPTION_BYTES 96
#define OPTIONS_MAX  (VX_TILE_VALUES_MAX + 6)

struct options {
    char texts[OPTIONS_MAX][OPTION_BYTES];
    const char *list[OPTIONS_MAX];
    int count;
};

/* --- binaries --- */

vx_status vx_binary_open(size_t log, size_t image, struct vx_binary *binary)
{
    *binary = (struct vx_binary){NULL, vx_round_up(log + 1, 16), image};
    VX_ENSURE(image <= VX_JIT_IMAGE_BYTES_MAX, RESOURCE_EXHAUSTED,
              "a device binary is too large");
    binary->block = vx_alloc_zero(binary->log_bytes + image + 1);
    VX_ENSURE(binary->block, RESOURCE_EXHAUSTED, "no memory for a device binary");
    return VX_OK;
}

void vx_binary_close(struct vx_binary *binary)
{
    vx_free(binary->block);
    *binary = (struct vx_binary){0};
}

/* --- the library --- */

static vx_status run_nvrtc(const struct vx_compiler *compiler,
                           const struct vx_jit_unit *unit, struct vx_why *why,
                           struct vx_binary *binary);
static vx_status run_fake(const struct vx_compiler *compiler,
                          const struct vx_jit_unit *unit, struct vx_why *why,
                          struct vx_binary *binary);

static bool find_functions(struct vx_compiler *compiler)
{
    const struct {
        const char *name;
        void *slot;
    } rows[] = {
        {"nvrtcVersion", &compiler->version},
        {"nvrtcCreateProgram", &compiler->open},
        {"nvrtcCompileProgram", &compiler->run},
        {"nvrtcGetProgramLogSize", &compiler->log_bytes},
        {"nvrtcGetProgramLog", &compiler->log},
        {"nvrtcGetCUBINSize", &compiler->image_bytes},
        {"nvrtcGetCUBIN", &compiler->image},
        {"nvrtcDestroyProgram", &compiler->close},
    };
    for (size_t i = 0; i < VX_COUNT(rows); i++) {
        void *found = dlsym(compiler->library, rows[i].name);
        if (!found) return false;
        memcpy(rows[i].slot, &found, sizeof found);
    }
    return true;
}

vx_status vx_compiler_open(const char *path, struct vx_why *why,
                           struct vx_compiler *compiler)
{
    const char *const one[] = {path, NULL};
    const char *const *names = path ? one : libraries;
    char said[VX_WHY_BYTES] = ""; /* the next dlopen overwrites dlerror's text */
    *compiler = (struct vx_compiler){.compile = run_nvrtc};
    for (const char *const *name = names; *name && !compiler->library; name++) {
        compiler->library = dlopen(*name, RTLD_NOW | RTLD_LOCAL);
        if (!compiler->library && name == names)
            (void)snprintf(said, sizeof said, "%s", dlerror());
    }
    VX_ENSURE_WHY(compiler->library, why, UNAVAILABLE, "no compiler for kernels",
                  "no compiler for kernels (NVRTC): %.200s", said);
    int major = 0, minor = 0;
    VX_ENSURE_WHY(
        find_functions(compiler) && !compiler->version(&major, &minor), why, UNAVAILABLE,
        "no compiler for kernels",
        "the NVRTC library lacks a function: expected the one of CUDA 12 or newer");
    (void)snprintf(compiler->word, sizeof compiler->word, "nvrtc-%d.%d", major, minor);
    return VX_OK;
}

void vx_compiler_fake(struct vx_compiler *compiler)
{
    *compiler = (struct vx_compiler){.word = "fake-1", .compile = run_fake};
}

/* --- one binary --- */

VX_PRINTF(2, 3)
static void option_add(struct options *options, const char *format, ...)
{
    va_list args;
    VX_ASSERT(options->count < OPTIONS_MAX);
    char *text = options->texts[options->count];
    va_start(args, format);
    int length = vsnprintf(text, OPTION_BYTES, format, args);
    va_end(args);
    VX_ASSERT(length > 0 && length < OPTION_BYTES);
    options->list[options->count++] = text;
}

static void options_make(const struct vx_jit_unit *unit, struct options *options)
{
    const struct vx_jit_wanted *wanted = &unit->wanted;
    options->count = 0;
    option_add(options, "--gpu-architecture=%s", unit->arch);
    option_add(options, "--std=c++17");
    option_add(options, "-default-device");
    option_add(options, "--ptxas-options=-v"); /* registers and spills, into the log */
    if (wanted->type) option_add(options, "-DVX_TYPE=%d", (int)wanted->type);
    for (i32 i = 0; i < wanted->spec->macros_count; i++)
        option_add(options, "-D%s=%d", wanted->spec->macros[i], wanted->tile->values[i]);
}

/* Writes a tile as text: "VX_TILE_N=64 VX_STAGES=3". */
static void tile_text(const struct vx_jit_wanted *wanted, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = 0;
    for (i32 i = 0; i < wanted->spec->macros_count && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s=%d", i ? " " : "",
                                 wanted->spec->macros[i], wanted->tile->values[i]);
}

vx_status vx_compiler_refuse(const struct vx_jit_unit *unit, const char *log,
                             struct vx_why *why)
{
    char tile[256];
    tile_text(&unit->wanted, tile, sizeof tile);
    VX_LOG(KERNEL_REFUSED, VX_LOG_TEXT("kernel", unit->wanted.spec->name),
           VX_LOG_TEXT("arch", unit->arch), VX_LOG_I64("type", (i64)unit->wanted.type),
           VX_LOG_TEXT("tile", tile), VX_LOG_TEXT("log", log));
    const char *at = strstr(log, "error");
    while (at && at > log && at[-1] != '\n') at--;
    if (!at) at = log;
    VX_FAIL_WHY(why, INTERNAL, "the compiler refused a kernel source",
                "%s for %s, type %d: %.*s", unit->wanted.spec->source, unit->arch,
                (int)unit->wanted.type, (int)strcspn(at, "\n"), at);
}

static vx_status take_log(const struct vx_compiler *compiler, void *program, size_t image,
                          struct vx_binary *binary)
{
    size_t bytes = 0;
    char *whole = NULL;
    if (!compiler->log_bytes(program, &bytes) && bytes > 1) whole = vx_alloc_zero(bytes);
    if (whole && compiler->log(program, whole)) whole[0] = 0;
    size_t length = whole ? strnlen(whole, bytes) : 0;
    if (length > VX_JIT_LOG_BYTES_MAX) length = VX_JIT_LOG_BYTES_MAX;
    vx_status status = vx_binary_open(length, image, binary);
    if (!status.fault && length) memcpy(binary->block, whole, length);
    vx_free(whole);
    return status;
}

static vx_status run_program(const struct vx_compiler *compiler, void *program,
                             const struct vx_jit_unit *unit, struct vx_why *why,
                             struct vx_binary *binary)
{
    struct options options;
    options_make(unit, &options);
    size_t bytes = 0;
    int code = compiler->run(program, options.count, options.list);
    if (!code) code = compiler->image_bytes(program, &bytes);
    VX_TRY(take_log(compiler, program, bytes, binary));
    if (code) return vx_compiler_refuse(unit, vx_binary_log(binary), why);
    code = compiler->image(program, (char *)binary->block + binary->log_bytes);
    VX_ENSURE_WHY(!code && bytes, why, INTERNAL, "the compiler returned no binary",
                  "%s for %s: the compiler returned no binary (error %d)",
                  unit->wanted.spec->source, unit->arch, code);
    return VX_OK;
}

static vx_status run_nvrtc(const struct vx_compiler *compiler,
                           const struct vx_jit_unit *unit, struct vx_why *why,
                           struct vx_binary *binary)
{
    const struct vx_jit_closure *closure = unit->closure;
    const char *names[VX_JIT_TEXTS_MAX], *texts[VX_JIT_TEXTS_MAX];
    for (i32 i = 0; i < closure->count; i++) {
        names[i] = closure->texts[i]->name;
        texts[i] = closure->texts[i]->data;
    }
    void *program = NULL;
    int code = compiler->open(&program, texts[0], names[0], closure->count - 1, texts + 1,
                              names + 1);
    VX_ENSURE_WHY(!code, why, INTERNAL, "the compiler cannot create a program",
                  "%s: the compiler cannot create a program (error %d)",
                  unit->wanted.spec->source, code);
    vx_status status = run_program(compiler, program, unit, why, binary);
    if (status.fault) vx_binary_close(binary);
    (void)compiler->close(&program);
    return status;
}

static vx_status run_fake(const struct vx_compiler *compiler,
                          const struct vx_jit_unit *unit, struct vx_why *why,
                          struct vx_binary *binary)
{
    char text[512];
    (void)compiler;
    (void)why;
    const struct vx_jit_wanted *wanted = &unit->wanted;
    int used = snprintf(text, sizeof text, "fake kernel\nsource %s\ntype %d\ntile",
                        wanted->spec->source, (int)wanted->type);
    for (i32 i = 0; i < wanted->spec->macros_count; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, " %d",
                         wanted->tile->values[i]);
    VX_ASSERT(used > 0 && (size_t)used < sizeof text);
    VX_TRY(vx_binary_open(0, (size_t)used, binary));
    memcpy(binary->block + binary->log_bytes, text, (size_t)used);
    return VX_OK;
}

vx_status vx_compiler_run(const struct vx_compiler *compiler,
                          const struct vx_jit_unit *unit, struct vx_why *why,
                          struct vx_binary *binary)
{
    *binary = (struct vx_binary){0};
    VX_ASSERT(compiler->word[0]);
    return compiler->compile(compiler, unit, why, binary);
}
