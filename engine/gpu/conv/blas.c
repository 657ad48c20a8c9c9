/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/conv/blas.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"

#include <dlfcn.h>
#include <string.h>

/* Constants from the documentation of cuBLAS, so that no vendor header is needed. */
enum {
    OPERATION_NONE = 0,
    DATA_F32 = 0,
    DATA_F16 = 2,
    DATA_BF16 = 14,
    COMPUTE_F32 = 68,
    COMPUTE_F32_FAST_TF32 = 77,
    ALGORITHM_DEFAULT = -1,
};
enum { CODE_OK = 0, CODE_NO_MEMORY = 3 };

struct blas_functions {
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, void *stream);
    int (*gemm)(void *handle, int turn_a, int turn_b, int m, int n, int k,
                const void *alpha, const void *a, int a_type, int lda, const void *b,
                int b_type, int ldb, const void *beta, void *c, int c_type, int ldc,
                int compute, int algorithm);
};

struct vx_blas_gpu {
    void *library; /* never unloaded: it keeps memory on the device */
    void *handle;
    struct vx_gpu_stream *stream; /* of the handle */
    struct blas_functions call;
};

static const char *const libraries[] = {
    "libcublas.so.13",
    "libcublas.so.12",
    "libcublas.so",
    "/usr/local/cuda/lib64/libcublas.so",
    NULL,
};

static vx_status find_library(const char *named, struct vx_why *why, void **library)
{
    const char *const one[] = {named, NULL};
    *library = NULL;
    for (const char *const *name = named ? one : libraries; *name && !*library; name++)
        *library = dlopen(*name, RTLD_NOW | RTLD_LOCAL);
    VX_ENSURE_WHY(*library, why, NOT_FOUND, "no vendor BLAS on this machine",
                  "expected %s: the explicit convolution uses its own product instead",
                  named ? named : libraries[0]);
    return VX_OK;
}

static bool find_functions(struct vx_blas_gpu *blas)
{
    static const char *const names[] = {"cublasCreate_v2", "cublasDestroy_v2",
                                        "cublasSetStream_v2", "cublasGemmEx"};
    void *found[VX_COUNT(names)];
    for (size_t i = 0; i < VX_COUNT(names); i++)
        if (!(found[i] = dlsym(blas->library, names[i]))) return false;
    /* POSIX allows calling what dlsym returns, but ISO C has no cast for it. */
    *(void **)&blas->call.create = found[0];
    *(void **)&blas->call.destroy = found[1];
    *(void **)&blas->call.set_stream = found[2];
    *(void **)&blas->call.gemm = found[3];
    return true;
}

static vx_status open_handle(struct vx_blas_gpu *blas, struct vx_why *why)
{
    VX_ENSURE_WHY(find_functions(blas), why, NOT_FOUND, "the vendor BLAS lacks functions",
                  "expected cuBLAS with cublasGemmEx, found another library");
    int code = blas->call.create(&blas->handle);
    VX_ENSURE_WHY(code != CODE_NO_MEMORY, why, RESOURCE_EXHAUSTED,
                  "the vendor BLAS does not fit in the device memory",
                  "cublasCreate: no device memory for its workspace");
    VX_ENSURE_WHY(code == CODE_OK, why, INTERNAL, "the vendor BLAS does not start",
                  "cublasCreate: error %d", code);
    return VX_OK;
}

/* What it multiplies from now on is on that stream. */
static vx_status use_stream(struct vx_blas_gpu *blas, struct vx_gpu_stream *stream,
                            struct vx_why *why)
{
    if (blas->stream == stream) return VX_OK;
    /* Our stream is the driver's handle: gpu_parts.h. */
    int code = blas->call.set_stream(blas->handle, stream);
    VX_ENSURE_WHY(code == CODE_OK, why, INTERNAL, "the vendor BLAS refuses a stream",
                  "cublasSetStream: error %d", code);
    blas->stream = stream;
    return VX_OK;
}

vx_status vx_blas_gpu_open(struct vx_gpu *gpu, const char *library, struct vx_why *why,
                           struct vx_blas_gpu **blas)
{
    *blas = NULL;
    VX_ENSURE_WHY(!strncmp(vx_gpu_arch(gpu), "sm_", 3), why, NOT_FOUND,
                  "no vendor BLAS for this device", "%s: only cuBLAS is supported",
                  vx_gpu_name(gpu));
    struct vx_blas_gpu *made = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for the vendor BLAS");
    vx_status status = find_library(library, why, &made->library);
    if (!status.fault) status = open_handle(made, why);
    if (status.fault)
        vx_blas_gpu_close(&made);
    else
        *blas = made;
    return status;
}

void vx_blas_gpu_close(struct vx_blas_gpu **blas)
{
    struct vx_blas_gpu *it = *blas;
    *blas = NULL;
    if (!it) return;
    if (it->handle) (void)it->call.destroy(it->handle);
    vx_free(it);
}

static int data_type(enum vx_number type)
{
    switch (type) {
    case VX_NUMBER_F16: return DATA_F16;
    case VX_NUMBER_BF16: return DATA_BF16;
    default: return DATA_F32;
    }
}

/* cuBLAS is column-major, so it reads our row-major matrices as their transposes: this
 * computes out^T = right^T . left^T. */
vx_status vx_blas_gpu_multiply(struct vx_blas_gpu *blas, struct vx_gpu_stream *stream,
                               const struct vx_blas_product *product, struct vx_why *why)
{
    static const f32 one = 1, zero = 0;
    int type = data_type(product->type);
    VX_ASSERT(product->rows < INT32_MAX);
    VX_TRY(use_stream(blas, stream, why));
    int code = blas->call.gemm(
        blas->handle, OPERATION_NONE, OPERATION_NONE, product->columns,
        (int)product->rows, product->depth, &one, product->right, type, product->columns,
        product->left, type, product->depth, &zero, product->out, DATA_F32,
        product->columns,
        product->type == VX_NUMBER_TF32 ? COMPUTE_F32_FAST_TF32 : COMPUTE_F32,
        ALGORITHM_DEFAULT);
    VX_ENSURE_WHY(code == CODE_OK, why, INTERNAL, "the vendor BLAS failed",
                  "cublasGemmEx: error %d", code);
    return VX_OK;
}
