/* The compiler for AMD in a child process: needs clang 19 or newer, no GPU and no ROCm.
 * What a compiler can do wrong is done by shell scripts in its place.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "engine/gpu/jit/amd_note.h"
#include "engine/gpu/jit/child.h"
#include "engine/gpu/jit/hiprtc.h"
#include "engine/gpu/jit/jit_amd.h"
#include "tests/support/jit_rig.h"
#include "tests/support/wait.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct jit_rig rig;
static char temporary[128], program[128];
static struct vx_why why;
static struct vx_jit_image image;
static u8 *kept; /* a copy of the image, which lives as long as its jit */

static void setup(void)
{
    jit_rig_open(&rig);
    (void)snprintf(temporary, sizeof temporary, "%s/temporary", rig.root);
    (void)snprintf(program, sizeof program, "%s/program", rig.root);
    ck_assert_int_eq(mkdir(temporary, 0700), 0);
    ck_assert_int_eq(setenv("TMPDIR", temporary, 1), 0);
    why = (struct vx_why){""};
}

/* rmdir fails when a folder of a compiler was left behind. */
static void teardown(void)
{
    ck_assert_int_eq(rmdir(temporary), 0);
    (void)unlink(program);
    jit_rig_close(&rig);
    free(kept);
    kept = NULL;
}

static vx_status get(const struct vx_jit_options *options, i32 tile)
{
    struct vx_jit *jit;
    const struct vx_jit_wanted wanted = {&scale_spec, &scale_spec.tiles[tile],
                                         VX_NUMBER_F16};
    VX_TRY(vx_jit_open(options, &why, &jit));
    vx_status status = vx_jit_get(jit, &wanted, &why, &image);
    if (!status.fault) {
        free(kept);
        kept = malloc(image.bytes);
        ck_assert_ptr_nonnull(kept);
        memcpy(kept, image.data, image.bytes);
        image.data = kept;
    }
    vx_jit_close(&jit);
    return status;
}

static void ck_refused(const struct vx_jit_options *options, enum vx_code code,
                       const char *part)
{
    vx_status status = get(options, 5);
    if (vx_status_code(status) != code || !strstr(why.text, part))
        ck_abort_msg("%s \"%s\": expected \"%s\"", vx_code_name(vx_status_code(status)),
                     why.text, part);
}

/* --- clang --- */

static const struct {
    const char *arch;
    i64 wave;
} archs[] = {{"gfx90a", 64}, {"gfx942", 64}, {"gfx1100", 32}, {"gfx1200", 32}};

START_TEST(test_archs)
{
    struct vx_jit_options options = {
        .arch = archs[_i].arch, .directory = rig.cache, .texts = rig.texts};
    struct vx_amd_kernel kernel;
    for (i32 round = 0; round < 2; round++) {
        vx_status status = get(&options, 5); /* 64 rows */
        if (status.fault) ck_abort_msg("%s", vx_status_text(status, &why));
        ck_assert_int_eq(image.from_cache, round == 1);
        ck_assert(vx_amd_image_check(image.data, image.bytes));
        ck_assert(vx_amd_kernel_read(image.data, image.bytes, "scale", &kernel));
        ck_assert_int_eq(kernel.wave, archs[_i].wave);
        ck_assert_int_eq(kernel.threads_max, 64);
        ck_assert_int_eq(kernel.arguments_bytes, sizeof(struct scale_args));
        ck_assert_int_eq(kernel.lds_bytes, 0);
        ck_assert_int_eq(kernel.scratch_bytes, 0);
        ck_assert_int_eq(kernel.vgpr_spills, 0);
        ck_assert_int_eq(kernel.sgpr_spills, 0);
        ck_assert_int_gt(kernel.vgprs, 0);
        ck_assert_int_gt(kernel.sgprs, 0);
    }
    ck_assert(!vx_amd_kernel_read(image.data, image.bytes, "scal", &kernel));
}
END_TEST

/* A binary that is cut, or has a wrong byte, is read within its bounds. */
START_TEST(test_damaged_notes)
{
    struct vx_jit_options options = {.arch = "gfx942", .texts = rig.texts};
    struct vx_amd_kernel kernel;
    ck_assert_ptr_null(get(&options, 5).fault);
    for (size_t bytes = 0; bytes < image.bytes; bytes++) {
        u8 *part = malloc(bytes + 1); /* so that a sanitizer sees its end */
        ck_assert_ptr_nonnull(part);
        memcpy(part, image.data, bytes);
        (void)vx_amd_kernel_read(part, bytes, "scale", &kernel);
        free(part);
    }
    ck_assert(!vx_amd_kernel_read(image.data, 64, "scale", &kernel));
    for (size_t at = 0; at < image.bytes; at++) {
        const u8 before = kept[at];
        for (int bit = 0; bit < 8; bit++) {
            kept[at] = (u8)(before ^ 1 << bit);
            (void)vx_amd_kernel_read(kept, image.bytes, "scale", &kernel);
        }
        kept[at] = before;
    }
    ck_assert(vx_amd_kernel_read(kept, image.bytes, "scale", &kernel));
}
END_TEST

START_TEST(test_refused)
{
    struct vx_jit_options options = {.arch = "gfx942", .texts = rig.texts};
    u64 said = vx_log_count(VX_EVENT_KERNEL_REFUSED);
    jit_rig_write(&rig, "90_scale.cu",
                  "#include <stdint.h>\n\nint64_t f() { return no; }\n");
    ck_refused(&options, VX_CODE_INTERNAL, "kernels/90_scale.cu:3:22: error:");
    ck_assert_ptr_nonnull(strstr(why.text, "'no'"));
    ck_assert_uint_eq(vx_log_count(VX_EVENT_KERNEL_REFUSED), said + 1);
    jit_rig_write(&rig, "90_scale.cu", "#include \"kernels/no_such.h\"\n");
    ck_refused(&options, VX_CODE_INTERNAL, "no_such.h");
    /* A header of the machine's C library. */
    jit_rig_write(&rig, "90_scale.cu", "#include <math.h>\n");
    ck_refused(&options, VX_CODE_INTERNAL, "'math.h' file not found");
    options.arch = "gfx1";
    ck_refused(&options, VX_CODE_INTERNAL, "gfx1");
}
END_TEST

/* --- programs in clang's place --- */

static void program_write(const char *text)
{
    FILE *file = fopen(program, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fprintf(file, "#!/bin/sh\n%s\n", text), 0);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(program, 0700), 0);
}

#define VERSION(text_) "[ \"$1\" = --version ] && { echo '" text_ "'; exit 0; }\n"
#define GOOD           VERSION("Some clang version 20.1.0 (of nobody)")

static const struct {
    const char *text, *sentence;
    enum vx_code code;
} programs[] = {
    {VERSION("Debian clang version 14.0.6"), "expected clang 19 or newer or hipRTC; ",
     VX_CODE_UNAVAILABLE},
    {VERSION("Debian clang version 14.0.6 (of nobody)"),
     "/program is Debian clang version 14.0.6", VX_CODE_UNAVAILABLE},
    {VERSION("gcc (Debian) 12"), "/program is gcc ", VX_CODE_UNAVAILABLE},
    {"exit 3", "/program --version: exit code 3", VX_CODE_UNAVAILABLE},
    {GOOD "kill -ABRT $$", "clang-20.1.0-", VX_CODE_INTERNAL},
    {GOOD "kill -ABRT $$", "error: signal 6 (Aborted)", VX_CODE_INTERNAL},
    {GOOD "exit 7", "error: exit code 7", VX_CODE_INTERNAL},
    {GOOD "echo first; echo 'x.cu:1: error: so'; exit 1", ": x.cu:1: error: so",
     VX_CODE_INTERNAL},
    {GOOD "exit 0", "the compiler returned no binary", VX_CODE_INTERNAL},
    {GOOD "echo text >out.co", "the compiler returned no binary", VX_CODE_INTERNAL},
    /* It finds the texts, no input, none of our files, and may leave files. */
    {GOOD "cat kernels/90_scale.cu kernels/90_scale.h stdint.h >left &&"
          "[ -z \"$(cat)\" ] && [ \"$TMPDIR\" = \"$PWD\" ] && [ -z \"$CPATH\" ] &&"
          "[ $(stat -c %a .) = 700 ] && ! [ -e /proc/self/fd/3 ] && echo error: all good;"
          "exit 1",
     "error: all good", VX_CODE_INTERNAL},
};

START_TEST(test_programs)
{
    struct vx_jit_options options = {
        .arch = "gfx942", .texts = rig.texts, .compiler = program};
    ck_assert_int_eq(setenv("CPATH", "/usr/include", 1), 0);
    program_write(programs[_i].text);
    ck_refused(&options, programs[_i].code, programs[_i].sentence);
}
END_TEST

/* A filled cache is enough without a compiler; the error names what was looked for. */
START_TEST(test_no_compiler)
{
    struct vx_jit_options options = {.arch = "gfx942",
                                     .directory = rig.cache,
                                     .texts = rig.texts,
                                     .compiler = program};
    program_write(GOOD "printf '\\177ELF of nobody' >out.co; echo a warning");
    vx_status status = get(&options, 5);
    ck_assert_msg(!status.fault, "%s", why.text);
    ck_assert_mem_eq(image.data, "\177ELF of nobody", image.bytes);
    options.compiler = "/nowhere/clang";
    ck_assert_ptr_null(get(&options, 5).fault);
    ck_assert(image.from_cache);
    ck_assert_int_eq(vx_status_code(get(&options, 6)), VX_CODE_UNAVAILABLE);
    ck_assert_ptr_nonnull(
        strstr(why.text, "90_scale.cu for gfx942 is not in the kernel"));
    ck_assert_ptr_nonnull(strstr(why.text, "/nowhere/clang: No such file"));
}
END_TEST

/* A path from the folder where voxeld was started, and a word of the search path. */
START_TEST(test_paths)
{
    struct vx_jit_options options = {
        .arch = "gfx942", .texts = rig.texts, .compiler = "./program"};
    program_write(GOOD "printf '\\177ELF one' >out.co");
    ck_assert_int_eq(chdir(rig.root), 0);
    vx_status status = get(&options, 5);
    ck_assert_msg(!status.fault, "%s", why.text);
    options.compiler = "program";
    ck_refused(&options, VX_CODE_UNAVAILABLE, "program is in no folder of PATH");
    char path[4096];
    (void)snprintf(path, sizeof path, "/nowhere:.:%s:%s", rig.root, getenv("PATH"));
    ck_assert_int_eq(setenv("PATH", path, 1), 0);
    status = get(&options, 5);
    ck_assert_msg(!status.fault, "%s", why.text);
    ck_assert_int_eq(chdir("/"), 0);
}
END_TEST

/* Another build of the same version has binaries of its own. */
START_TEST(test_builds)
{
    struct vx_jit_options options = {.arch = "gfx942",
                                     .directory = rig.cache,
                                     .texts = rig.texts,
                                     .compiler = program};
    program_write(GOOD "printf '\\177ELF one' >out.co");
    ck_assert_ptr_null(get(&options, 5).fault);
    program_write(VERSION(
        "Some clang version 20.1.0 (of another)") "printf '\\177ELF two' >out.co");
    ck_assert_ptr_null(get(&options, 5).fault);
    ck_assert(!image.from_cache);
    ck_assert_mem_eq(image.data, "\177ELF two", image.bytes);
}
END_TEST

/* --- hipRTC: a stand-in, which this program opens as its own child --- */

static const struct {
    const char *arch, *sentence;
} rtc[] = {
    {"gfx90a", NULL},
    {"gfx906", ": kernels/90_scale.cu:7: error: of the stub"},
    {"gfx942", "signal 6 (Aborted): this hipRTC may not know the architecture"},
};

START_TEST(test_hiprtc)
{
    struct vx_jit_options options = {
        .arch = rtc[_i].arch, .texts = rig.texts, .compiler = STUB_HIPRTC};
    vx_hiprtc_allow();
    if (rtc[_i].sentence) {
        ck_refused(&options, VX_CODE_INTERNAL, rtc[_i].sentence);
        return;
    }
    vx_status status = get(&options, 5);
    ck_assert_msg(!status.fault, "%s", why.text);
    ck_assert_uint_ge(image.bytes, 8);
    ck_assert_mem_eq(image.data, "\177ELF rtc", 8);
}
END_TEST

/* A library, but not of a compiler; none; and a program that is not its own child. */
START_TEST(test_no_hiprtc)
{
    struct vx_jit_options options = {.arch = "gfx90a", .texts = rig.texts};
    options.compiler = STUB_HIPRTC;
    ck_refused(&options, VX_CODE_UNAVAILABLE, "expected clang 19 or newer or hipRTC");
    vx_hiprtc_allow();
    options.compiler = "libm.so.6";
    ck_refused(&options, VX_CODE_UNAVAILABLE, "libm.so.6 has no function hiprtcVersion");
    options.compiler = "/nowhere/libhiprtc.so";
    ck_refused(&options, VX_CODE_UNAVAILABLE,
               "/nowhere/libhiprtc.so: cannot open shared object");
}
END_TEST

/* --- a child that does not end --- */

/* Its number is free, or it has ended and was not waited for yet. */
static bool is_gone(pid_t pid)
{
    char path[64], state = 'Z';
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file) return true;
    if (fscanf(file, "%*d %*s %c", &state) != 1) state = 'Z';
    (void)fclose(file);
    return state == 'Z';
}

START_TEST(test_time)
{
    char end[64];
    static const char *const hangs[] = {
        "sleep 600 & echo $!; sleep 600",          /* and a child of its own */
        "echo 0; exec >/dev/null 2>&1; sleep 600", /* its output has ended */
    };
    for (size_t i = 0; i < VX_COUNT(hangs); i++) {
        const char *const arguments[] = {"/bin/sh", "-c", hangs[i], NULL};
        const struct vx_child child = {arguments, NULL, 2000};
        struct vx_child_said said;
        const i64 begin_ns = vx_clock_ns();
        ck_assert_int_eq(vx_child_run(&child, &said), 0);
        ck_assert_int_eq(said.end, VX_CHILD_TIME);
        ck_assert_int_gt(vx_clock_ns() - begin_ns, 1900 * VX_NS_PER_MS);
        vx_child_end_text(&child, &said, end, sizeof end);
        ck_assert_str_eq(end, "stopped after 2 s");
        const pid_t inner = (pid_t)strtol(said.text, NULL, 10);
        vx_child_close(&said);
        if (inner > 0) VX_WAIT_UNTIL(is_gone(inner));
    }
}
END_TEST

/* More than is kept, and a program that is not there. */
START_TEST(test_output)
{
    const char *const much[] = {"/bin/sh", "-c",
                                "head -c 1000000 /dev/zero | tr '\\0' x; exit 5", NULL};
    const char *const none[] = {"/nowhere/program", NULL};
    struct vx_child_said said;
    ck_assert_int_eq(vx_child_run(&(struct vx_child){much, "/", 60000}, &said), 0);
    ck_assert_int_eq(said.end, VX_CHILD_EXIT);
    ck_assert_int_eq(said.number, 5);
    ck_assert_uint_eq(said.bytes, VX_JIT_LOG_BYTES_MAX);
    ck_assert_int_eq(said.text[said.bytes - 1], 'x');
    ck_assert_int_eq(said.text[said.bytes], 0);
    vx_child_close(&said);
    ck_assert_int_ne(vx_child_run(&(struct vx_child){none, NULL, 60000}, &said), 0);
}
END_TEST

static bool clang_is_here(void)
{
    struct vx_compiler compiler;
    if (!vx_compiler_open_amd(NULL, &why, &compiler).fault) return true;
    fprintf(stderr, "SKIPPED half of jit_amd: %s\n", why.text);
    return false;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], VX_HIPRTC_COMMAND))
        return vx_hiprtc_main(argc - 2, argv + 2);
    Suite *suite = suite_create("jit_amd");
    TCase *tests = tcase_create("jit_amd");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, setup, teardown);
    if (clang_is_here()) {
        tcase_add_loop_test(tests, test_archs, 0, (int)VX_COUNT(archs));
        tcase_add_test(tests, test_damaged_notes);
        tcase_add_test(tests, test_refused);
    }
    tcase_add_loop_test(tests, test_programs, 0, (int)VX_COUNT(programs));
    tcase_add_loop_test(tests, test_hiprtc, 0, (int)VX_COUNT(rtc));
    tcase_add_test(tests, test_no_hiprtc);
    tcase_add_test(tests, test_no_compiler);
    tcase_add_test(tests, test_builds);
    tcase_add_test(tests, test_paths);
    tcase_add_test(tests, test_time);
    tcase_add_test(tests, test_output);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
