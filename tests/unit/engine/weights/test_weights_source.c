/* A weights file that another process writes, or that the disk cannot read, while a model
 * loads: a status with a sentence at every moment, never a signal.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/model/model.h"
#include "engine/weights/safetensors.h"
#include "engine/weights/source.h"
#include "tests/support/engine_rig.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LABEL "m/1/weights.safetensors"

enum harm {
    HARM_NONE,
    HARM_EMPTIES,    /* the file is empty, as after open(2) with O_TRUNC */
    HARM_CUTS,       /* it ends one byte before the end of what is read */
    HARM_DISK,       /* the disk has an error */
    HARM_CRUMBS,     /* each call gives one byte */
    HARM_INTERRUPTS, /* a signal comes first */
};

/* The harm, the call of pread that it precedes, and what that call asked for. */
static struct {
    enum harm harm;
    i32 at, calls;
    char path[VX_TEST_PATH_BYTES + 64];
    size_t bytes, offset;
} hook;

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
ssize_t pread(int fd, void *out, size_t bytes, off_t offset)
{
    bool now = hook.calls++ == hook.at;
    if (now) hook.bytes = bytes, hook.offset = (size_t)offset;
    if (now && hook.harm == HARM_EMPTIES) ck_assert(!truncate(hook.path, 0));
    if (now && hook.harm == HARM_CUTS)
        ck_assert(!truncate(hook.path, offset + (off_t)bytes - 1));
    if (now && (hook.harm == HARM_DISK || hook.harm == HARM_INTERRUPTS)) {
        errno = hook.harm == HARM_DISK ? EIO : EINTR;
        return -1;
    }
    if (hook.harm == HARM_CRUMBS && bytes > 1) bytes = 1;
    return syscall(SYS_pread64, fd, out, bytes, offset);
}

static void hook_set(enum harm harm, i32 at)
{
    hook.harm = harm;
    hook.at = at;
    hook.calls = 0;
}

static char directory[VX_TEST_PATH_BYTES];

static void set_up(void)
{
    vx_test_directory(directory);
    snprintf(hook.path, sizeof hook.path, "%s/1/weights.safetensors", directory);
    hook_set(HARM_NONE, 0);
}

static void tear_down(void)
{
    vx_test_remove(directory);
}

/* The lowest descriptor that is free: it stays the same when nothing is left open. */
static int descriptor_next(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    close(fd);
    return fd;
}

static vx_status load(struct vx_why *why)
{
    struct vx_model *model;
    vx_status status = vx_model_open(
        &(struct vx_model_source){.directory = directory, .version = 1}, why, &model);
    ck_assert_int_eq(!model, !!status.fault);
    vx_model_close(&model);
    return status;
}

/* A load with the harm before its call number `at`; false when there is no such call. */
static bool load_with(enum harm harm, i32 at, i32 network)
{
    struct vx_why why = {{0}};
    char expected[VX_WHY_BYTES];
    vx_rig_write_model(directory, vx_rig_networks[network], 7);
    int fd = descriptor_next();
    hook_set(harm, at);
    vx_status status = load(&why);
    ck_assert_int_eq(descriptor_next(), fd);
    if (hook.calls <= at) {
        ck_assert_msg(!status.fault, "%s", why.text);
        return false;
    }
    ck_assert_int_eq(vx_status_code(status), VX_CODE_DATA_LOSS);
    if (harm == HARM_DISK)
        snprintf(expected, sizeof expected,
                 "/1/weights.safetensors: cannot be read: Input/output error");
    else
        snprintf(expected, sizeof expected,
                 "/1/weights.safetensors: the file was truncated while it was read: "
                 "expected %zu bytes at offset %zu, got %zu",
                 hook.bytes, hook.offset, harm == HARM_CUTS ? hook.bytes - 1 : 0);
    ck_assert_msg(strstr(why.text, expected) != NULL, "call %d: %s", at, why.text);
    return true;
}

/* The harm comes before the header's length, the header, each tensor, and each tensor
 * that is read again for the notes. */
START_TEST(harm_at_every_moment_of_a_load)
{
    for (enum harm harm = HARM_EMPTIES; harm <= HARM_DISK; harm++) {
        i32 at = 0;
        while (load_with(harm, at, _i)) at++;
        ck_assert_int_ge(at, 2 + 2); /* the header, and each tensor twice */
    }
}
END_TEST

START_TEST(what_comes_in_parts_is_put_together)
{
    f32 whole[9], parts[9];
    const struct vx_test_tensor tensors[] = {
        {"a", "F32", {3}, 1, (const f32[]){1.5f, -2, 65504}},
        {"b", "BF16", {3}, 1, (const f32[]){1.5f, -2, 0.25f}},
        {"c", "F16", {3}, 1, (const f32[]){1.5f, -2, 0.25f}}};
    struct vx_safetensors *file;
    vx_rig_write_model(directory, vx_rig_networks[0], 7);
    vx_test_write_safetensors(hook.path, tensors, VX_COUNT(tensors));
    for (enum harm harm = HARM_NONE; harm <= HARM_INTERRUPTS; harm++) {
        if (harm != HARM_NONE && harm < HARM_CRUMBS) continue;
        for (i32 at = 0; at < 5; at++) {
            hook_set(harm, at);
            ck_assert(!vx_safetensors_open(hook.path, LABEL, NULL, &file).fault);
            f32 *out = harm ? parts : whole;
            for (i32 i = 0; i < 3; i++)
                ck_assert(!vx_safetensors_read_f32(file, vx_safetensors_get(file, i),
                                                   NULL, out + (size_t)i * 3)
                               .fault);
            ck_assert_int_gt(hook.calls, at);
            ck_assert_mem_eq(whole, out, sizeof whole);
            vx_safetensors_close(&file);
        }
    }
}
END_TEST

/* Several pages, so that a mapping would fault, and several reads for a half type. */
static const struct vx_test_tensor large[] = {{"w", "F32", {50000}, 1, NULL},
                                              {"w", "F16", {50000}, 1, NULL},
                                              {"w", "BF16", {50000}, 1, NULL}};

/* The file shrinks between the reading of its header and that of a tensor. */
START_TEST(truncated_between_header_and_tensor)
{
    const off_t lengths[] = {0, 1, 100, 4096, 40000, 80000};
    const struct vx_test_tensor *tensor = &large[_i];
    f32 *out = vx_alloc(sizeof(f32) * 50000);
    vx_rig_write_model(directory, vx_rig_networks[0], 7);
    for (size_t i = 0; i < VX_COUNT(lengths); i++) {
        struct vx_safetensors *file;
        struct vx_why why = {{0}};
        bool finite;
        vx_test_write_safetensors(hook.path, tensor, 1);
        ck_assert(!vx_safetensors_open(hook.path, LABEL, &why, &file).fault);
        const struct vx_tensor *read = vx_safetensors_get(file, 0);
        ck_assert(!vx_safetensors_read_f32(file, read, &why, out).fault);
        ck_assert(!truncate(hook.path, lengths[i]));
        vx_status status = vx_safetensors_read_f32(file, read, &why, out);
        ck_assert_int_eq(vx_status_code(status), VX_CODE_DATA_LOSS);
        ck_assert_msg(strstr(why.text, LABEL ": the file was truncated while it was "
                                             "read: expected ") == why.text,
                      "%s", why.text);
        status = vx_safetensors_is_finite(file, read, &why, &finite);
        ck_assert_int_eq(vx_status_code(status), VX_CODE_DATA_LOSS);
        vx_safetensors_close(&file);
    }
    vx_free(out);
}
END_TEST

/* The first number of many counts, and the last.  The lower half of the F32 in the middle
 * looks like an infinity. */
START_TEST(each_number_of_many_counts)
{
    f32 *values = vx_alloc_zero(sizeof(f32) * 50000);
    struct vx_test_tensor tensor = large[_i];
    tensor.values = values;
    vx_rig_write_model(directory, vx_rig_networks[0], 7);
    for (i32 bad = 0; bad < 3; bad++) {
        struct vx_safetensors *file;
        bool finite;
        values[0] = bad == 1 ? INFINITY : 1;
        values[25000] = 0x1.01ffp0f;
        values[49999] = bad == 2 ? -INFINITY : 1;
        vx_test_write_safetensors(hook.path, &tensor, 1);
        ck_assert(!vx_safetensors_open(hook.path, LABEL, NULL, &file).fault);
        const struct vx_tensor *read = vx_safetensors_get(file, 0);
        ck_assert(!vx_safetensors_is_finite(file, read, NULL, &finite).fault);
        ck_assert_int_eq(finite, !bad);
        vx_safetensors_close(&file);
    }
    vx_free(values);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("weights_source");
    TCase *tcase = tcase_create("weights_source");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, harm_at_every_moment_of_a_load, 0, VX_RIG_NETWORKS);
    tcase_add_test(tcase, what_comes_in_parts_is_put_together);
    tcase_add_loop_test(tcase, truncated_between_header_and_tensor, 0, VX_COUNT(large));
    tcase_add_loop_test(tcase, each_number_of_many_counts, 0, VX_COUNT(large));
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
