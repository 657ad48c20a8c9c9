/* The compiler at run time: needs NVRTC, no GPU.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/log.h"
#include "engine/gpu/jit/jit_compile.h"
#include "tests/support/jit_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct jit_rig rig;

static void setup(void)
{
    jit_rig_open(&rig);
}

static void teardown(void)
{
    jit_rig_close(&rig);
}

static vx_status get(const struct vx_jit_options *options, i32 tile, struct vx_why *why,
                     struct vx_jit_image *image)
{
    struct vx_jit *jit;
    const struct vx_jit_wanted wanted = {&scale_spec, &scale_spec.tiles[tile],
                                         VX_NUMBER_F16};
    VX_TRY(vx_jit_open(options, why, &jit));
    vx_status status = vx_jit_get(jit, &wanted, why, image);
    static char log[65536]; /* what the image points at ends with the jit */
    if (!status.fault) {
        (void)snprintf(log, sizeof log, "%s", image->log);
        image->log = log;
        /* An ELF file of the machine NVIDIA CUDA (190). */
        ck_assert_uint_gt(image->bytes, 64);
        ck_assert_mem_eq(image->data, "\177ELF", 4);
        ck_assert_int_eq(((const u8 *)image->data)[18], 190);
    }
    vx_jit_close(&jit);
    return status;
}

static const char *const archs[] = {"sm_75", "sm_80",  "sm_86",  "sm_87",
                                    "sm_89", "sm_90a", "sm_100", "sm_120"};

START_TEST(test_archs)
{
    struct vx_jit_options options = {
        .arch = archs[_i], .directory = rig.cache, .texts = rig.texts};
    struct vx_why why = {""};
    struct vx_jit_image image;
    char said[64];
    (void)snprintf(said, sizeof said, "'scale' for '%s'", archs[_i]);
    for (i32 round = 0; round < 2; round++) {
        vx_status status = get(&options, 5, &why, &image);
        if (status.fault) ck_abort_msg("%s", vx_status_text(status, &why));
        ck_assert_int_eq(image.from_cache, round == 1);
        ck_assert_ptr_nonnull(strstr(image.log, said));
        ck_assert_ptr_nonnull(strstr(image.log, "0 bytes spill stores"));
    }
}
END_TEST

/* A filled cache is enough without a compiler; the error names a kernel that is not in it. */
START_TEST(test_no_compiler)
{
    struct vx_jit_options options = {
        .arch = "sm_80", .directory = rig.cache, .texts = rig.texts};
    struct vx_why why = {""};
    struct vx_jit_image image;
    ck_assert_ptr_null(get(&options, 5, &why, &image).fault);
    options.compiler = "/nowhere/libnvrtc.so";
    ck_assert_ptr_null(get(&options, 5, &why, &image).fault);
    ck_assert(image.from_cache);
    ck_assert_int_eq(vx_status_code(get(&options, 6, &why, &image)), VX_CODE_UNAVAILABLE);
    ck_assert_ptr_nonnull(strstr(why.text, "90_scale.cu"));
    ck_assert_ptr_nonnull(strstr(why.text, "/nowhere/libnvrtc.so"));
    options.directory = NULL;
    ck_assert_int_eq(vx_status_code(get(&options, 5, &why, &image)), VX_CODE_UNAVAILABLE);
    /* A library, but not of a compiler. */
    options.compiler = "libm.so.6";
    ck_assert_int_eq(vx_status_code(get(&options, 5, &why, &image)), VX_CODE_UNAVAILABLE);
}
END_TEST

START_TEST(test_refused)
{
    struct vx_jit_options options = {.arch = "sm_80", .texts = rig.texts};
    struct vx_why why = {""};
    struct vx_jit_image image;
    u64 said = vx_log_count(VX_EVENT_KERNEL_REFUSED);
    jit_rig_write(&rig, "90_scale.cu",
                  "#include <stdint.h>\n\nint64_t f() { return no; }\n");
    ck_assert_int_eq(vx_status_code(get(&options, 0, &why, &image)), VX_CODE_INTERNAL);
    ck_assert_ptr_nonnull(strstr(why.text, "kernels/90_scale.cu(3): error"));
    ck_assert_ptr_nonnull(strstr(why.text, "\"no\""));
    ck_assert_uint_eq(vx_log_count(VX_EVENT_KERNEL_REFUSED), said + 1);
    options.arch = "sm_1";
    ck_assert_int_eq(vx_status_code(get(&options, 0, &why, &image)), VX_CODE_INTERNAL);
    jit_rig_write(&rig, "90_scale.cu", "#include \"kernels/no_such.h\"\n");
    options.arch = "sm_80";
    ck_assert_int_eq(vx_status_code(get(&options, 0, &why, &image)), VX_CODE_INTERNAL);
    ck_assert_ptr_nonnull(strstr(why.text, "no_such.h"));
}
END_TEST

/* Several compilers at once, and one text out of many that does not compile for some tiles. */
START_TEST(test_parallel)
{
    struct vx_jit_options options = {.arch = "sm_80", .texts = rig.texts, .threads = 4};
    struct vx_jit_wanted wanted[12];
    struct vx_why why = {""};
    struct vx_jit *jit;
    for (i32 i = 0; i < 12; i++)
        wanted[i] =
            (struct vx_jit_wanted){&scale_spec, &scale_spec.tiles[i], VX_NUMBER_F32};
    ck_assert_ptr_null(vx_jit_open(&options, &why, &jit).fault);
    vx_status status = vx_jit_build(jit, wanted, 12, NULL, &why);
    if (status.fault) ck_abort_msg("%s", vx_status_text(status, &why));
    vx_jit_close(&jit);
    jit_rig_write(&rig, "90_scale.cu",
                  "#include \"kernels/90_scale.h\"\n#if VX_ROWS == 96\n#error too many\n"
                  "#endif\nextern \"C\" __global__ void scale(struct scale_args a) {}\n");
    ck_assert_ptr_null(vx_jit_open(&options, &why, &jit).fault);
    ck_assert_int_eq(vx_status_code(vx_jit_build(jit, wanted, 12, NULL, &why)),
                     VX_CODE_INTERNAL);
    ck_assert_ptr_nonnull(strstr(why.text, "too many"));
    ck_assert_ptr_null(vx_jit_build(jit, wanted, 10, NULL, &why).fault);
    vx_jit_close(&jit);
}
END_TEST

static bool compiler_is_here(void)
{
    struct vx_why why = {""};
    struct vx_compiler compiler;
    if (!vx_compiler_open(NULL, &why, &compiler).fault) return true;
    fprintf(stderr, "SKIPPED jit_compiler: %s\n", why.text);
    return false;
}

int main(void)
{
    if (!compiler_is_here()) return EXIT_SUCCESS;
    Suite *suite = suite_create("jit_compiler");
    TCase *tests = tcase_create("jit_compiler");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, test_archs, 0, (int)VX_COUNT(archs));
    tcase_add_test(tests, test_no_compiler);
    tcase_add_test(tests, test_refused);
    tcase_add_test(tests, test_parallel);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
