/* The names of a .npz's arrays, which NumPy finds as they were given, and their types.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/tools/npz.h"

#include "engine/base/process/alloc.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void good(vx_status status, const struct vx_why *why)
{
    ck_assert_msg(!status.fault, "%s", vx_status_text(status, why));
}

static struct vx_npz_array array_of(const char *name, f32 *cell)
{
    struct vx_npz_array array = {
        .kind = 'f', .size = 4, .rank = 2, .shape = {1, 1}, .data = cell};
    snprintf(array.name, sizeof array.name, "%s", name);
    return array;
}

/* The flags of the `which`th header before a name, in the array's entry or the directory. */
static u32 flags_of(const u8 *bytes, size_t size, const char *name, int which)
{
    const u8 *at = bytes;
    for (int i = 0; i <= which; i++, at++) {
        at = memmem(at, size - (size_t)(at - bytes), name, strlen(name));
        ck_assert_ptr_nonnull(at);
    }
    const u8 *flags = at - 1 - (which ? 46 - 8 : 30 - 6);
    return flags[0] | (u32)flags[1] << 8;
}

/* Without the flag NumPy takes the name for code page 437 and does not find it. */
START_TEST(a_name_beyond_ascii_is_marked_as_utf8)
{
    char path[] = "/tmp/test_npz_XXXXXX";
    f32 cells[1] = {1};
    u8 bytes[4096];
    struct vx_why why = {""};
    struct vx_npz *npz;
    struct vx_npz_array plain = array_of("out.u", cells),
                        other = array_of("out.\xc3\xbc", cells), array;
    close(mkstemp(path));
    good(vx_npz_create(path, &why, &npz), &why);
    good(vx_npz_add(npz, &plain, &why), &why);
    good(vx_npz_add(npz, &other, &why), &why);
    good(vx_npz_close(&npz, &why), &why);
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    for (int which = 0; which < 2; which++) {
        ck_assert_uint_eq(flags_of(bytes, size, "out.u.npy", which), 0);
        ck_assert_uint_eq(flags_of(bytes, size, "out.\xc3\xbc.npy", which), 0x800);
    }
    good(vx_npz_read(path, other.name, &why, &array), &why);
    vx_free(array.data);
    unlink(path);
}
END_TEST

/* A .npy of one type, whose header is then changed to another: the error has it and no more. */
START_TEST(an_array_of_another_type_is_refused_with_it)
{
    static const char *const types[][2] = {
        {"'>i4'", "such as <f4, got >i4"},
        {"'|b1'", "such as <f4, got |b1"},
        {"'<c16', 'fortran_order': False, 'shape': (1, 1), }", "such as <f4, got <c16"},
        {"'<a very long type', 'fortran_order': False, 'shape': (1, 1), }",
         "such as <f4, got <a very long typ"}};
    char path[] = "/tmp/test_npy_XXXXXX";
    f32 cells[1] = {1};
    u8 bytes[256];
    struct vx_why why = {""};
    struct vx_npz_array array = array_of("array", cells);
    close(mkstemp(path));
    good(vx_npy_write(path, &array, &why), &why);
    FILE *file = fopen(path, "r+b");
    ck_assert_ptr_nonnull(file);
    size_t size = fread(bytes, 1, sizeof bytes, file);
    u8 *descr = memmem(bytes, size, "'<f4'", 5);
    ck_assert_ptr_nonnull(descr);
    if (_i < 2)
        memcpy(descr, types[_i][0], 5);
    else
        snprintf((char *)descr, 80, "%s", types[_i][0]);
    rewind(file);
    ck_assert_uint_eq(fwrite(bytes, 1, size, file), size);
    fclose(file);
    ck_assert_ptr_nonnull(vx_npy_read(path, &why, &array).fault);
    const char *said = strstr(why.text, "such as");
    ck_assert_msg(said && !strcmp(said, types[_i][1]), "%s", why.text);
    unlink(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("npz_names");
    TCase *tests = tcase_create("npz_names");
    tcase_add_test(tests, a_name_beyond_ascii_is_marked_as_utf8);
    tcase_add_loop_test(tests, an_array_of_another_type_is_refused_with_it, 0, 4);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
