/* libhip_over_cuda.so without a GPU: it has all of HIP that the engine asks for, says so where there
 * is no NVIDIA driver, and compiles AMD's tiles with NVRTC.  On a GPU tests/gpu/run drives it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/driver/driver.h"
#include "engine/gpu/jit/hiprtc.h"
#include "engine/gpu/jit/jit.h"
#include "kernels/06_conv_masked.h"

#include <check.h>
#include <dlfcn.h>
#include <elf.h>
#include <stdio.h>
#include <string.h>

#define MACHINE_CUDA 190 /* EM_CUDA */
#define SKIPPED      77

static struct vx_why why;

static const struct vx_kernel_spec *find(const char *name)
{
    const struct vx_kernel_spec *spec = vx_kernel_find(name);
    ck_assert_ptr_nonnull(spec);
    return spec;
}

/* --- the driver --- */

START_TEST(test_names)
{
    const struct vx_gpu_options options = {.vendor = VX_GPU_HIP, .library = OVER_CUDA};
    struct vx_driver driver;
    vx_status status = vx_driver_open(&options, &why, &driver);
    ck_assert_msg(!status.fault, "%s", why.text);
    ck_assert_ptr_nonnull(dlsym(driver.library, "hipGetDevicePropertiesR0600"));
}
END_TEST

/* With a driver of NVIDIA its devices are a gfx1100; without one there are none. */
START_TEST(test_device)
{
    const struct vx_gpu_options options = {.vendor = VX_GPU_HIP, .library = OVER_CUDA};
    struct vx_gpu *gpu;
    vx_status status = vx_gpu_open(&options, &why, &gpu);
    if (status.fault) {
        ck_assert_int_eq(vx_status_code(status), VX_CODE_NOT_FOUND);
        return;
    }
    ck_assert_str_eq(vx_gpu_arch(gpu), "gfx1100");
    ck_assert_int_eq(vx_gpu_caps(gpu)->shared_block, 65536);
    vx_gpu_close(&gpu);
}
END_TEST

/* --- the compiler --- */

static const struct {
    const char *name;
    int multiply; /* -1 = a kernel without tiles */
    enum vx_number type;
} kernels[] = {
    {"conv_masked", VX_MULTIPLY_WMMA, VX_NUMBER_F16},
    {"conv_masked", VX_MULTIPLY_WMMA, VX_NUMBER_BF16},
    {"conv_masked", VX_MULTIPLY_FMA, VX_NUMBER_F32},
    {"conv_masked", VX_MULTIPLY_FMA, VX_NUMBER_TF32},
    {"pool", -1, VX_NUMBER_F16},
};

static const struct vx_tile *tile_find(const struct vx_kernel_spec *spec, int multiply)
{
    const struct vx_caps caps = {.arch = 110000, .shared_block = 65536};
    for (i32 tile = 0; tile < spec->tiles_count; tile++) {
        const struct vx_tile *at = &spec->tiles[tile];
        for (i32 i = 0; i < spec->macros_count; i++)
            if (!strcmp(spec->macros[i], "VX_MULTIPLY") && at->values[i] == multiply &&
                spec->fits(at,
                           multiply == VX_MULTIPLY_WMMA ? VX_NUMBER_F16 : VX_NUMBER_F32,
                           &caps))
                return at;
    }
    ck_abort_msg("%s has no tile of VX_MULTIPLY %d", spec->name, multiply);
    return NULL;
}

START_TEST(test_compile)
{
    const struct vx_kernel_spec *spec = find(kernels[_i].name);
    const struct vx_jit_wanted wanted = {
        spec,
        kernels[_i].multiply < 0 ? spec->tiles : tile_find(spec, kernels[_i].multiply),
        kernels[_i].type};
    const struct vx_jit_options options = {.arch = "gfx1100", .compiler = OVER_CUDA};
    struct vx_jit_image image;
    struct vx_jit *jit;
    Elf64_Ehdr elf;
    vx_hiprtc_allow();
    vx_status status = vx_jit_open(&options, &why, &jit);
    ck_assert_msg(!status.fault, "%s", why.text);
    status = vx_jit_get(jit, &wanted, &why, &image);
    ck_assert_msg(!status.fault, "%s", why.text);
    ck_assert_uint_gt(image.bytes, sizeof elf);
    memcpy(&elf, image.data, sizeof elf);
    ck_assert_int_eq(elf.e_machine, MACHINE_CUDA);
    vx_jit_close(&jit);
}
END_TEST

static bool has_nvrtc(void)
{
    int (*version)(int *, int *) = NULL;
    int major = 0, minor = 0;
    void *library = dlopen(OVER_CUDA, RTLD_NOW | RTLD_LOCAL);
    void *found = library ? dlsym(library, "hiprtcVersion") : NULL;
    memcpy(&version, &found, sizeof version);
    return version && !version(&major, &minor);
}

/* The child that compiles is this program. */
int main(int count, char **arguments)
{
    if (count > 1 && !strcmp(arguments[1], VX_HIPRTC_COMMAND))
        return vx_hiprtc_main(count - 2, arguments + 2);
    const bool compiles = has_nvrtc();
    Suite *suite = suite_create("amd_over_cuda");
    TCase *names = tcase_create("names");
    tcase_add_test(names, test_names);
    tcase_add_test(names, test_device);
    suite_add_tcase(suite, names);
    TCase *compiler = tcase_create("compiler");
    tcase_set_timeout(compiler, 600);
    if (compiles) tcase_add_loop_test(compiler, test_compile, 0, VX_COUNT(kernels));
    suite_add_tcase(suite, compiler);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    if (!compiles) (void)printf("SKIPPED test_amd_over_cuda: no NVRTC on this machine\n");
    return failed ? 1 : compiles ? 0 : SKIPPED;
}
