/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tools/compiled.h"

#include "engine/base/process/check.h"
#include "engine/base/process/print.h"
#include "engine/gpu/jit/amd_note.h"
#include "engine/gpu/jit/jit_amd.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WRONG_BYTES 160
#define PATH_BYTES  4096

/* --- NVIDIA --- */

/* Bytes that a kernel spills, from the assembler's report in the log; -1 = no report. */
static i64 spilled(const char *log, const char *name)
{
    static const char begin[] = "Function properties for ", word[] = " bytes spill";
    size_t length = strlen(name);
    for (const char *at = strstr(log, begin); at; at = strstr(at, begin)) {
        at += sizeof begin - 1;
        if (strncmp(at, name, length) != 0 || at[length] != '\n') continue;
        i64 bytes = 0;
        for (i32 i = 0; i < 2; i++) { /* stores, loads */
            at = strstr(at, word);
            if (!at) return -1;
            const char *digits = at;
            while (digits[-1] >= '0' && digits[-1] <= '9') digits--;
            bytes += strtoll(digits, NULL, 10);
            at += sizeof word - 1;
        }
        return bytes;
    }
    return -1;
}

/* Empty products of Hopper's wgmma: the assembler adds one for each commit behind a branch,
 * which it cannot join to the product before it.  As a group of its own it makes a wait for all
 * groups but the last one a wait for every product (kernels/README.md).  An instruction has 128
 * bits, of which the upper 23 say when it is issued. */
static i64 empty_products(const struct vx_jit_image *image)
{
    static const u64 words[2] = {0x000000003fff79f0, 0x000000000c0000ff};
    const u64 issue = ~(u64)0 << 41;
    i64 count = 0;
    for (size_t at = 0; at + sizeof words <= image->bytes; at += sizeof words) {
        u64 code[2];
        memcpy(code, (const u8 *)image->data + at, sizeof code);
        count += code[0] == words[0] && (code[1] & ~issue) == words[1];
    }
    return count;
}

static void check_products(const struct vx_jit_wanted *wanted,
                           const struct vx_jit_image *image, char wrong[WRONG_BYTES])
{
    const i64 empty = empty_products(image);
    if (empty && !wanted->spec->may_commit_apart)
        (void)snprintf(wrong, WRONG_BYTES,
                       "has %lld empty products: a commit stands behind a branch",
                       (long long)empty);
}

static void check_log(const struct vx_jit_wanted *wanted,
                      const struct vx_jit_image *image, char wrong[WRONG_BYTES])
{
    i64 bytes = spilled(image->log, wanted->spec->name);
    if (bytes < 0)
        (void)snprintf(wrong, WRONG_BYTES,
                       "the compiler's log does not report its registers");
    else if (bytes && !wanted->spec->may_spill)
        (void)snprintf(wrong, WRONG_BYTES, "spills %lld bytes of registers",
                       (long long)bytes);
}

/* --- AMD --- */

static void check_limits(const struct vx_compiled *compiled,
                         const struct vx_jit_wanted *wanted,
                         const struct vx_amd_kernel *kernel, char wrong[WRONG_BYTES])
{
    const struct vx_kernel_spec *spec = wanted->spec;
    const i64 shared = spec->shared ? spec->shared(wanted->tile, wanted->type) : 0;
    const i64 threads = spec->threads(wanted->tile);
    if (kernel->lds_bytes + shared > compiled->caps->shared_block)
        (void)snprintf(
            wrong, WRONG_BYTES, "needs %lld bytes of shared memory, a block has %d",
            (long long)kernel->lds_bytes + shared, compiled->caps->shared_block);
    else if (kernel->threads_max < threads)
        (void)snprintf(wrong, WRONG_BYTES, "is built for %lld threads, not for %lld",
                       (long long)kernel->threads_max, (long long)threads);
    else if (kernel->arguments_bytes != (i64)spec->args_bytes)
        (void)snprintf(wrong, WRONG_BYTES, "takes %lld bytes of arguments, expected %zu",
                       (long long)kernel->arguments_bytes, spec->args_bytes);
}

/* Scalar registers spill into lanes of a vector register, which costs no memory; but the
 * compiler asks for some, so that what it asks for says nothing about arrays then.
 * tests/amd/instructions.py looks for accesses. */
static i64 scratch_bytes(const struct vx_amd_kernel *kernel)
{
    return kernel->sgpr_spills > 0 ? 0 : kernel->scratch_bytes;
}

static void check_note(const struct vx_compiled *compiled,
                       const struct vx_jit_wanted *wanted,
                       const struct vx_jit_image *image, char wrong[WRONG_BYTES])
{
    struct vx_amd_kernel kernel;
    if (!vx_amd_kernel_read(image->data, image->bytes, wanted->spec->name, &kernel)) {
        (void)snprintf(wrong, WRONG_BYTES, "the binary does not describe its registers");
        return;
    }
    if (!wanted->spec->may_spill && (scratch_bytes(&kernel) || kernel.vgpr_spills))
        (void)snprintf(wrong, WRONG_BYTES,
                       "uses %lld bytes of scratch memory and spills %lld registers",
                       (long long)scratch_bytes(&kernel), (long long)kernel.vgpr_spills);
    else
        check_limits(compiled, wanted, &kernel, wrong);
}

/* --- both --- */

static void print_wrong(const struct vx_compiled *compiled,
                        const struct vx_jit_wanted *wanted, const char *wrong)
{
    vx_print_error("%s for %s, type %d, tile", wanted->spec->name, compiled->arch,
                   (int)wanted->type);
    for (i32 i = 0; i < wanted->spec->macros_count; i++)
        vx_print_error(" %s=%d", wanted->spec->macros[i], wanted->tile->values[i]);
    vx_print_error(": %s\n", wrong);
}

vx_status vx_compiled_check(const struct vx_compiled *compiled, struct vx_why *why)
{
    i32 count = 0;
    for (i32 i = 0; i < compiled->count; i++) {
        const struct vx_jit_wanted *wanted = &compiled->wanted[i];
        struct vx_jit_image image;
        char wrong[WRONG_BYTES] = "";
        VX_TRY(vx_jit_get(compiled->jit, wanted, why, &image));
        if (vx_amd_arch(compiled->arch))
            check_note(compiled, wanted, &image, wrong);
        else
            check_log(wanted, &image, wrong);
        if (strcmp(compiled->arch, "sm_90a") == 0 && !wrong[0])
            check_products(wanted, &image, wrong);
        if (!wrong[0]) continue;
        print_wrong(compiled, wanted, wrong);
        count++;
    }
    VX_ENSURE_WHY(!count, why, INTERNAL, "kernels spill registers or pass a limit",
                  "%d of %d kernels spill registers although they must not, pass a "
                  "limit, or wait for products that they do not need yet",
                  count, compiled->count);
    return VX_OK;
}

/* --- the binaries --- */

/* "conv_masked-fp16-64-32.bin": kernel, type, and the values of the tile's macros. */
static bool binary_path(const char *directory, const struct vx_jit_wanted *wanted,
                        char path[PATH_BYTES])
{
    static const char *const types[] = {
        "",
        [VX_NUMBER_F32] = "-fp32",
        [VX_NUMBER_F16] = "-fp16",
        [VX_NUMBER_BF16] = "-bf16",
        [VX_NUMBER_TF32] = "-tf32",
        [VX_NUMBER_E4M3] = "-e4m3",
    };
    const struct vx_kernel_spec *spec = wanted->spec;
    VX_ASSERT((size_t)wanted->type < VX_COUNT(types));
    int at =
        snprintf(path, PATH_BYTES, "%s/%s%s", directory, spec->name, types[wanted->type]);
    for (i32 i = 0; i < spec->macros_count && at < PATH_BYTES; i++)
        at += snprintf(path + at, (size_t)(PATH_BYTES - at), "-%d",
                       wanted->tile->values[i]);
    if (at < PATH_BYTES) at += snprintf(path + at, (size_t)(PATH_BYTES - at), ".bin");
    return at < PATH_BYTES;
}

static vx_status write_binary(const char *path, const struct vx_jit_image *image,
                              struct vx_why *why)
{
    FILE *file = fopen(path, "wb");
    VX_ENSURE_WHY(file, why, FAILED_PRECONDITION, "cannot write a binary", "%s: %s", path,
                  strerror(errno));
    bool whole = fwrite(image->data, 1, image->bytes, file) == image->bytes;
    whole = !fclose(file) && whole;
    VX_ENSURE_WHY(whole, why, FAILED_PRECONDITION, "cannot write a binary", "%s: %s",
                  path, strerror(errno));
    return VX_OK;
}

vx_status vx_compiled_write(const struct vx_compiled *compiled, const char *directory,
                            struct vx_why *why)
{
    char path[PATH_BYTES];
    for (i32 i = 0; i < compiled->count; i++) {
        struct vx_jit_image image;
        VX_TRY(vx_jit_get(compiled->jit, &compiled->wanted[i], why, &image));
        VX_ENSURE_WHY(binary_path(directory, &compiled->wanted[i], path), why,
                      INVALID_ARGUMENT, "the path is too long",
                      "%s: expected fewer than %d characters with a file's name",
                      directory, PATH_BYTES);
        VX_TRY(write_binary(path, &image, why));
    }
    return VX_OK;
}
