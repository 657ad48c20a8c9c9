/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cpu/device/blas.h"

#include "engine/base/process/check.h"
#include "engine/base/process/log.h"
#include "engine/base/text/environment.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* CblasRowMajor and CblasNoTrans of the C interface. */
#define ORDER_ROWS     101
#define TRANSPOSE_NONE 111

/* The OpenBLAS core type with the widest code that this processor can run; NULL: OpenBLAS
 * chooses.  Measured with 0.3.21 on a processor with AVX-512, one core, in GFLOP/s:
 *
 *                2048^3   240x64x64
 *   SkylakeX        104         113
 *   Cooperlake      103         116
 *   Haswell         106         101
 *   Zen             107          81
 *   Prescott         38          19 */
static const char *core_pick(void)
{
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512cd"))
        return "SkylakeX";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
    if (__builtin_cpu_supports("avx")) return "Sandybridge";
#endif
    return NULL;
}

/* ISO C cannot cast an object pointer to a function pointer; in POSIX the bits agree. */
static bool symbol(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

static void open_openblas(struct vx_blas *blas, void *library)
{
    void (*threads_set)(int) = NULL;
    char *(*core_get)(void) = NULL;
    if (symbol(library, "openblas_set_num_threads", &threads_set)) threads_set(1);
    const char *core =
        symbol(library, "openblas_get_corename", &core_get) ? core_get() : "";
    (void)snprintf(blas->name, sizeof blas->name, "OpenBLAS %s", core);
}

/* Checks that equal rows get equal answers at every place in a panel; otherwise the bits
 * of a row would depend on the other rows.  OpenBLAS 0.3.21's code for Haswell and Zen
 * sums rows 6 to 11 of every 12 in another order than the first six; its code for
 * SkylakeX and Sandybridge passes. */
#define PROBE_ROWS 240
#define PROBE_SIZE 64
static bool is_even(const struct vx_blas *blas)
{
    static f32 rows[PROBE_ROWS * PROBE_SIZE], weights[PROBE_SIZE * PROBE_SIZE];
    static f32 answers[PROBE_ROWS * PROBE_SIZE];
    u32 seed = 1;
    for (size_t i = 0; i < VX_COUNT(weights); i++)
        weights[i] = (f32)((seed = seed * 1664525u + 1013904223u) >> 8) * 0x1p-24f - 0.5f;
    for (size_t i = 0; i < VX_COUNT(rows); i++)
        rows[i] = weights[i % PROBE_SIZE * PROBE_SIZE];
    blas->sgemm(ORDER_ROWS, TRANSPOSE_NONE, TRANSPOSE_NONE, PROBE_ROWS, PROBE_SIZE,
                PROBE_SIZE, 1.0f, rows, PROBE_SIZE, weights, PROBE_SIZE, 0.0f, answers,
                PROBE_SIZE);
    for (size_t row = 1; row < PROBE_ROWS; row++)
        if (memcmp(answers + row * PROBE_SIZE, answers, PROBE_SIZE * sizeof(f32)) != 0)
            return false;
    return true;
}

/* The library is loaded once per process and stays. */
static struct vx_blas loaded;
static pthread_once_t load_once = PTHREAD_ONCE_INIT;

static void load(void)
{
    struct vx_blas *blas = &loaded;
    const char *asked = core_pick();
    bool set = !asked || vx_environment_default("OPENBLAS_CORETYPE", asked);
    /* The CPU device has its own threads; the library must not start any. */
    set = vx_environment_default("OPENBLAS_NUM_THREADS", "1") && set;
    void *library = dlopen("libopenblas.so.0", RTLD_NOW | RTLD_LOCAL);
    bool is_openblas = library != NULL;
    if (!library) library = dlopen("libblas.so.3", RTLD_NOW | RTLD_LOCAL);
    if (library && symbol(library, "cblas_sgemm", &blas->sgemm)) {
        (void)snprintf(blas->name, sizeof blas->name, "BLAS");
        if (is_openblas) open_openblas(blas, library);
        if (!is_even(blas)) blas->sgemm = NULL;
    } else {
        blas->sgemm = NULL;
    }
    /* The core type may differ from the one asked for: the user's choice, or a library
     * without such code. */
    const char *core = strncmp(blas->name, "OpenBLAS ", 9) ? "" : blas->name + 9;
    VX_LOG(
        WORKER_BLAS, VX_LOG_TEXT("library", blas->name[0] ? blas->name : "none"),
        VX_LOG_TEXT("used", blas->sgemm ? "yes" : "no"),
        VX_LOG_TEXT("core_asked", asked && set ? asked : "any"),
        VX_LOG_TEXT("core_as_asked", asked && !strcasecmp(core, asked) ? "yes" : "no"));
    if (!blas->sgemm) blas->name[0] = '\0';
}

void vx_blas_open(struct vx_blas *blas)
{
    (void)pthread_once(&load_once, load);
    *blas = loaded;
}

void vx_blas_multiply(const struct vx_blas *blas, const struct vx_blas_product *product)
{
    VX_ASSERT(blas->sgemm);
    blas->sgemm(ORDER_ROWS, TRANSPOSE_NONE, TRANSPOSE_NONE, product->m, product->n,
                product->k, 1.0f, product->a, product->k, product->b, product->n, 0.0f,
                product->c, product->n);
}
