/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/text/environment.h"
#include "engine/base/text/sha256.h"
#include "engine/gpu/driver/limits.h"
#include "engine/gpu/jit/child.h"
#include "engine/gpu/jit/hiprtc.h"
#include "engine/gpu/jit/jit_amd.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The oldest clang that knows gfx942 and gfx1200. */
#define CLANG_MIN 19

/* What was found and not taken, for the error. */
struct passed {
    char text[VX_WHY_BYTES];
    size_t used;
};

VX_PRINTF(2, 3) static void pass(struct passed *passed, const char *format, ...)
{
    va_list values;
    const size_t room = sizeof passed->text - passed->used;
    va_start(values, format);
    int length = vsnprintf(passed->text + passed->used, room, format, values);
    va_end(values);
    passed->used += length < 0 ? 0 : (size_t)length >= room ? room - 1 : (size_t)length;
}

/* Runs the compiler with one option; said->text is what it prints.  False = it could not
 * be run or reported a failure, and that is told. */
static bool ask(const char *const *arguments, struct vx_child_said *said,
                struct passed *passed)
{
    char end[64];
    const struct vx_child child = {arguments, NULL, VX_JIT_ASK_MS};
    int failed = vx_child_run(&child, said);
    if (failed) {
        pass(passed, "; %s: %s", arguments[0], strerror(failed));
        return false;
    }
    if (vx_child_good(said) && said->text) return true;
    vx_child_end_text(&child, said, end, sizeof end);
    /* Our own child prints which library it could not use, and why. */
    const char *line = said->text ? strstr(said->text, "error: ") : NULL;
    if (line)
        pass(passed, "; %.*s", (int)strcspn(line + 7, "\n"), line + 7);
    else
        pass(passed, "; %s %s: %s", arguments[0], arguments[1], end);
    vx_child_close(said);
    return false;
}

/* --- clang --- */

/* "clang-19.1.7-1a2b3c4d": the last digits tell builds of one version apart. */
static bool clang_word(const char *said, struct vx_compiler *compiler)
{
    static const char begin[] = "clang version ";
    const char *version = strstr(said, begin);
    u8 digest[VX_SHA256_BYTES];
    char hash[2 * VX_SHA256_BYTES + 1];
    struct vx_sha256 sha;
    if (!version) return false;
    version += sizeof begin - 1;
    vx_sha256_init(&sha);
    vx_sha256_add(&sha, said, strcspn(said, "\n"));
    vx_sha256_finish(&sha, digest);
    vx_sha256_hex(digest, hash);
    (void)snprintf(compiler->word, sizeof compiler->word, "clang-%.*s-%.8s",
                   (int)strspn(version, "0123456789."), version, hash);
    return strtol(version, NULL, 10) >= CLANG_MIN;
}

/* Whether it was built for AMD, and finds the linker that it starts. */
static bool clang_parts(const char *path, struct passed *passed)
{
    const char *const targets[] = {path, "--print-targets", NULL};
    const char *const linker[] = {path, "--print-prog-name=lld", NULL};
    struct vx_child_said said;
    if (!ask(targets, &said, passed)) return false;
    bool target = strstr(said.text, "amdgcn") != NULL;
    vx_child_close(&said);
    if (!target) pass(passed, "; %s is built without the AMDGPU target", path);
    if (!target || !ask(linker, &said, passed)) return false;
    bool links = strchr(said.text, '/') != NULL;
    vx_child_close(&said);
    if (!links) pass(passed, "; %s finds no lld (package lld-%d)", path, CLANG_MIN);
    return links;
}

/* A program that the setting names may be another than LLVM's: only its version is
 * asked for, and the rest shows when it compiles. */
static bool clang_take(const char *path, bool named, struct passed *passed,
                       struct vx_compiler *compiler)
{
    const char *const version[] = {path, "--version", NULL};
    struct vx_child_said said;
    if (strlen(path) >= sizeof compiler->path) return false;
    if (!ask(version, &said, passed)) return false;
    bool good = clang_word(said.text, compiler);
    if (!good)
        pass(passed, "; %s is %.*s", path, (int)strcspn(said.text, "(\n"), said.text);
    vx_child_close(&said);
    good = good && (named || clang_parts(path, passed));
    if (good)
        memcpy(compiler->path, path, strlen(path) + 1);
    else
        compiler->word[0] = 0;
    return good;
}

/* In the folders of the search path, as a shell looks. */
static bool clang_on_path(const char *name, bool named, struct passed *passed,
                          struct vx_compiler *compiler)
{
    const char *folders = vx_environment_get("PATH");
    for (const char *at = folders ? folders : "/usr/local/bin:/usr/bin"; *at;) {
        char path[VX_COMPILER_PATH_BYTES];
        const size_t length = strcspn(at, ":");
        int used = snprintf(path, sizeof path, "%.*s/%s", (int)length, at, name);
        bool there = at[0] == '/' && used < (int)sizeof path && !access(path, X_OK);
        /* As for a shell, the first of a name is the one that is meant. */
        if (there) return clang_take(path, named, passed, compiler);
        at += length + (at[length] == ':');
    }
    if (named) pass(passed, "; %s is in no folder of PATH", name);
    return false;
}

static bool clang_search(struct passed *passed, struct vx_compiler *compiler)
{
    static const char *const names[] = {"clang-21", "clang-20", "clang-19", "clang"};
    const char *const rocm[] = {vx_environment_get("ROCM_PATH"), "/opt/rocm"};
    for (size_t i = 0; i < VX_COUNT(rocm); i++) {
        char path[VX_COMPILER_PATH_BYTES];
        if (!rocm[i] || rocm[i][0] != '/') continue;
        int used = snprintf(path, sizeof path, "%s/llvm/bin/clang", rocm[i]);
        if (used < (int)sizeof path && !access(path, X_OK) &&
            clang_take(path, false, passed, compiler))
            return true;
    }
    for (size_t i = 0; i < VX_COUNT(names); i++)
        if (clang_on_path(names[i], false, passed, compiler)) return true;
    return false;
}

/* --- hipRTC --- */

/* hipRTC was a part of HIP's own library up to release 5. */
static const char *const libraries[] = {
    "libhiprtc.so.7",   "libhiprtc.so.6", "libhiprtc.so", "/opt/rocm/lib/libhiprtc.so",
    "libamdhip64.so.5",
};

static bool hiprtc_take(const char *library, struct passed *passed,
                        struct vx_compiler *compiler)
{
    const char *const version[] = {"/proc/self/exe", VX_HIPRTC_COMMAND, "version",
                                   library, NULL};
    struct passed quiet = {.used = 0};
    struct vx_child_said said;
    if (!vx_hiprtc_allowed() || strlen(library) >= sizeof compiler->path) return false;
    if (!ask(version, &said, passed ? passed : &quiet)) return false;
    (void)snprintf(compiler->word, sizeof compiler->word, "hiprtc-%.*s",
                   (int)strspn(said.text, "0123456789."), said.text);
    vx_child_close(&said);
    memcpy(compiler->path, library, strlen(library) + 1);
    compiler->hiprtc = true;
    return true;
}

static bool hiprtc_search(struct vx_compiler *compiler)
{
    for (size_t i = 0; i < VX_COUNT(libraries); i++)
        if (hiprtc_take(libraries[i], NULL, compiler)) return true;
    return false;
}

/* The setting's compiler.  Compilers run in another folder than ours, so a path from here
 * becomes a whole one. */
static bool named_take(const char *path, struct passed *passed,
                       struct vx_compiler *compiler)
{
    char here[VX_COMPILER_PATH_BYTES], whole[2 * VX_COMPILER_PATH_BYTES];
    const bool library = strstr(path, ".so") != NULL;
    if (!strchr(path, '/')) /* the loader's business, or a shell's */
        return library ? hiprtc_take(path, passed, compiler)
                       : clang_on_path(path, true, passed, compiler);
    const bool within = path[0] != '/';
    if (within && !getcwd(here, sizeof here)) return false;
    int length = snprintf(whole, sizeof whole, "%s%s%.*s", within ? here : "",
                          within ? "/" : "", VX_COMPILER_PATH_BYTES - 1, path);
    if (length >= (int)sizeof whole) return false;
    return library ? hiprtc_take(whole, passed, compiler)
                   : clang_take(whole, true, passed, compiler);
}

vx_status vx_compiler_open_amd(const char *path, struct vx_why *why,
                               struct vx_compiler *compiler)
{
    struct passed passed = {.used = 0};
    *compiler = (struct vx_compiler){.compile = vx_amd_compile};
    bool found = path ? named_take(path, &passed, compiler)
                      : clang_search(&passed, compiler) || hiprtc_search(compiler);
    /* What was passed over begins with its own separator. */
    VX_ENSURE_WHY(found, why, UNAVAILABLE, "no compiler for kernels",
                  "no compiler for kernels: expected clang %d or newer or hipRTC%s",
                  CLANG_MIN, passed.text);
    return VX_OK;
}
