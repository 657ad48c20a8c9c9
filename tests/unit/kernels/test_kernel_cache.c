/* The directory of compiled kernels: what is kept, what is removed first, and what is never
 * trusted.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/check.h"
#include "engine/gpu/driver/limits.h"
#include "engine/gpu/jit/cache.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define IMAGE_BYTES 1000
#define HEADER      56 /* magic 8, version 4, log 4, image 8, digest 32 */
#define LOG_BYTES   16
#define ENTRY_BYTES (HEADER + LOG_BYTES + IMAGE_BYTES)

static char directory[64];
static struct vx_cache *cache;
static struct vx_why why;

static void reopen(i64 bytes)
{
    vx_cache_close(&cache);
    ck_assert_ptr_null(cache);
    ck_assert_ptr_null(vx_cache_open(directory, bytes, &why, &cache).fault);
}

static void set_up(void)
{
    (void)snprintf(directory, sizeof directory, "/tmp/vx-kernels-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    reopen(0);
}

static const char *path_of(const char *name)
{
    static char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static void tear_down(void)
{
    vx_cache_close(&cache);
    ck_assert_int_eq(chmod(directory, 0700), 0);
    DIR *list = opendir(directory);
    for (const struct dirent *it = readdir(list); it; it = readdir(list))
        if (it->d_name[0] != '.' || strlen(it->d_name) > 2)
            (void)remove(path_of(it->d_name));
    closedir(list);
    ck_assert_int_eq(rmdir(directory), 0);
}

/* The file name of kernel number `number`, compiled by `word`. */
static const char *name_of(u8 number, const char *word)
{
    static char names[4][VX_CACHE_NAME_BYTES];
    static int turn;
    const u8 key[VX_SHA256_BYTES] = {number};
    char *name = names[turn++ % 4];
    vx_cache_name_make(key, word, name);
    return name;
}

static void put(u8 number, const char *word)
{
    struct vx_binary binary;
    ck_assert_ptr_null(vx_binary_open(LOG_BYTES - 1, IMAGE_BYTES, &binary).fault);
    memset(binary.block + binary.log_bytes, number, IMAGE_BYTES);
    memcpy(binary.block, "a log", 5);
    vx_cache_put(cache, name_of(number, word), &binary);
    vx_binary_close(&binary);
}

static bool there(const char *name)
{
    struct stat about;
    return !lstat(path_of(name), &about);
}

static bool get(u8 number, const char *word)
{
    struct vx_binary binary;
    if (!vx_cache_get(cache, name_of(number, word), &binary)) {
        ck_assert_ptr_null(binary.block);
        return false;
    }
    ck_assert_uint_eq(binary.log_bytes, LOG_BYTES);
    ck_assert_uint_eq(binary.image_bytes, IMAGE_BYTES);
    ck_assert_str_eq(vx_binary_log(&binary), "a log");
    for (i32 i = 0; i < IMAGE_BYTES; i++)
        ck_assert_uint_eq(((const u8 *)vx_binary_image(&binary))[i], number);
    vx_binary_close(&binary);
    return true;
}

/* Sets its times as if it had been used, or written, so many seconds ago. */
static void age(const char *name, i64 seconds)
{
    const struct timespec at = {time(NULL) - seconds, 0};
    ck_assert_int_eq(utimensat(AT_FDCWD, path_of(name), (struct timespec[]){at, at}, 0),
                     0);
}

START_TEST(test_what_is_put_is_got)
{
    ck_assert(!get(1, "nvrtc-13.0"));
    put(1, "nvrtc-13.0");
    put(2, "nvrtc-13.0");
    ck_assert(get(1, "nvrtc-13.0"));
    ck_assert(get(2, "nvrtc-13.0"));
    ck_assert(!get(1, "nvrtc-12.9"));
    ck_assert(!get(3, "nvrtc-13.0"));
    reopen(0);
    ck_assert(get(1, "nvrtc-13.0"));
}
END_TEST

/* The cache is filled to its limit; with one byte more, the entry that was used least recently is
 * removed. */
START_TEST(test_trim)
{
    reopen(4 * ENTRY_BYTES);
    for (u8 k = 1; k <= 4; k++) {
        put(k, "fake-1.0");
        age(name_of(k, "fake-1.0"), 1000 - 10 * k);
    }
    vx_cache_trim(cache);
    for (u8 k = 1; k <= 4; k++) ck_assert(there(name_of(k, "fake-1.0")));
    ck_assert(get(1, "fake-1.0")); /* used now: 2 is the oldest */
    put(5, "fake-1.0");
    vx_cache_trim(cache);
    for (u8 k = 1; k <= 5; k++) ck_assert_int_eq(there(name_of(k, "fake-1.0")), k != 2);
    reopen(2 * ENTRY_BYTES - 1);      /* room for one */
    age(name_of(5, "fake-1.0"), 500); /* put after 1 was used, however long that took */
    vx_cache_trim(cache);
    for (u8 k = 1; k <= 5; k++) ck_assert_int_eq(there(name_of(k, "fake-1.0")), k == 1);
}
END_TEST

/* A temporary file of a writer that died is removed after an hour; a newer one is left alone, and
 * so is any file that is not the cache's. */
START_TEST(test_leftovers)
{
    static const struct {
        const char *name;
        i64 seconds;
        bool stays;
    } files[] = {{".new-0123456789abcdef-0", 3500, true},
                 {".new-0123456789abcdef-1", 3700, false},
                 {"README", 100000, true},
                 {"short.kernel", 100000, true}};
    reopen(1);
    put(1, "fake-1.0");
    for (size_t i = 0; i < VX_COUNT(files); i++) {
        int file = open(path_of(files[i].name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        ck_assert_int_ge(file, 0);
        close(file);
        age(files[i].name, files[i].seconds);
    }
    vx_cache_trim(cache);
    ck_assert(!there(name_of(1, "fake-1.0")));
    for (size_t i = 0; i < VX_COUNT(files); i++)
        ck_assert_int_eq(there(files[i].name), files[i].stays);
}
END_TEST

/* With any byte changed, or cut short, an entry is not returned, is removed, and can be stored
 * again. */
START_TEST(test_damage)
{
    static const i64 places[] = {
        0, 8, 12, 16, 24, HEADER, HEADER + LOG_BYTES, ENTRY_BYTES - 1};
    const char *word = "fake-1.0";
    put(1, word);
    int file = open(path_of(name_of(1, word)), O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(file, 0);
    if (_i < (int)VX_COUNT(places)) {
        u8 byte;
        ck_assert_int_eq(pread(file, &byte, 1, places[_i]), 1);
        byte ^= 0x11;
        ck_assert_int_eq(pwrite(file, &byte, 1, places[_i]), 1);
    } else {
        static const i64 lengths[] = {0, HEADER - 1, ENTRY_BYTES - 1, ENTRY_BYTES + 1};
        ck_assert_int_eq(ftruncate(file, lengths[_i - (int)VX_COUNT(places)]), 0);
    }
    close(file);
    ck_assert(!get(1, word));
    ck_assert(!there(name_of(1, word)));
    put(1, word);
    ck_assert(get(1, word));
}
END_TEST

/* A temporary file that cannot be renamed is removed. */
START_TEST(test_put_fails)
{
    ck_assert_int_eq(mkdir(path_of(name_of(1, "fake-1.0")), 0700), 0);
    put(1, "fake-1.0");
    DIR *list = opendir(directory);
    for (const struct dirent *it = readdir(list); it; it = readdir(list))
        ck_assert_msg(strncmp(it->d_name, ".new-", 5) != 0, "%s is left", it->d_name);
    closedir(list);
    put(2, "fake-1.0");
    ck_assert(get(2, "fake-1.0"));
}
END_TEST

/* Others must not be able to write to the directory; a link is not followed; a path that is no
 * directory means no cache, and is no error. */
START_TEST(test_whose)
{
    static const mode_t modes[] = {0720, 0702, 0777};
    struct vx_cache *none;
    for (size_t i = 0; i < VX_COUNT(modes); i++) {
        ck_assert_int_eq(chmod(directory, modes[i]), 0);
        ck_assert_int_eq(vx_status_code(vx_cache_open(directory, 0, &why, &none)),
                         VX_CODE_FAILED_PRECONDITION);
        ck_assert_ptr_null(none);
    }
    ck_assert_int_eq(chmod(directory, 0755), 0);
    reopen(0);
    put(1, "fake-1.0");
    char target[512];
    (void)snprintf(target, sizeof target, "%s", path_of(name_of(1, "fake-1.0")));
    ck_assert_int_eq(symlink(target, path_of(name_of(2, "fake-1.0"))), 0);
    ck_assert(!get(2, "fake-1.0"));
    ck_assert(get(1, "fake-1.0"));
    ck_assert_ptr_null(vx_cache_open(target, 0, &why, &none).fault);
    struct vx_binary binary;
    ck_assert(!vx_cache_get(none, name_of(1, "fake-1.0"), &binary));
    vx_cache_trim(none);
    vx_cache_close(&none);
}
END_TEST

/* The compilers that have binaries in the cache: each once, the newest first, no more than there is
 * room for. */
START_TEST(test_words)
{
    static const char *const made[] = {"nvrtc-12.9", "nvrtc-13.0", "nvrtc-12.10"};
    char words[VX_JIT_COMPILERS_MAX][VX_COMPILER_WORD_BYTES];
    ck_assert_int_eq(vx_cache_words(cache, words), 0);
    for (u8 k = 0; k < 6; k++) put(k, made[k % 3]);
    ck_assert_int_eq(vx_cache_words(cache, words), 3);
    ck_assert_str_eq(words[0], "nvrtc-13.0");
    ck_assert_str_eq(words[1], "nvrtc-12.10");
    ck_assert_str_eq(words[2], "nvrtc-12.9");
    for (u8 k = 0; k < 2 * VX_JIT_COMPILERS_MAX; k++) {
        char word[VX_COMPILER_WORD_BYTES];
        (void)snprintf(word, sizeof word, "other-%d", k);
        put(k, word);
    }
    ck_assert_int_eq(vx_cache_words(cache, words), VX_JIT_COMPILERS_MAX);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kernel_cache");
    TCase *tests = tcase_create("kernel_cache");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, test_what_is_put_is_got);
    tcase_add_test(tests, test_trim);
    tcase_add_test(tests, test_leftovers);
    tcase_add_loop_test(tests, test_damage, 0, 12);
    tcase_add_test(tests, test_put_fails);
    tcase_add_test(tests, test_whose);
    tcase_add_test(tests, test_words);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
