/* foreign: memory that other processes cut while it is read and written, and every other
 * SIGBUS.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/ipc/foreign.h"
#include "tests/support/wait.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static u64 page;
static struct vx_why why;

static int object(u64 bytes, u8 fill)
{
    int fd = memfd_create("foreign", MFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert(!ftruncate(fd, (off_t)bytes));
    u8 *view = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(view, MAP_FAILED);
    memset(view, fill, bytes);
    ck_assert(!munmap(view, bytes));
    return fd;
}

static struct vx_foreign *map(int fd, u64 offset, u64 bytes)
{
    struct vx_foreign *foreign = NULL;
    vx_status st = vx_foreign_map(fd, offset, bytes, &why, &foreign);
    ck_assert_msg(!st.fault, "%s", vx_status_text(st, &why));
    return foreign;
}

static void setup(void)
{
    page = (u64)sysconf(_SC_PAGESIZE);
    vx_foreign_guard();
    vx_foreign_guard();
}

START_TEST(what_is_mapped_is_the_object)
{
    int fd = object(5 * page, 1);
    struct vx_foreign *foreign = map(fd, page + 100, 2 * page);
    ck_assert_uint_eq(vx_foreign_bytes(foreign), 2 * page);
    memset(vx_foreign_at(foreign), 7, 2 * page);
    u8 byte;
    for (u64 at = 0; at < 5 * page; at += 50) {
        bool inside = at >= page + 100 && at < 3 * page + 100;
        ck_assert_int_eq(pread(fd, &byte, 1, (off_t)at), 1);
        ck_assert_int_eq(byte, inside ? 7 : 1);
    }
    void *begin;
    u64 bytes;
    vx_foreign_pages(foreign, &begin, &bytes);
    ck_assert_ptr_eq((u8 *)begin + 100, vx_foreign_at(foreign));
    ck_assert_uint_eq(bytes, 3 * page);
    ck_assert(!vx_foreign_broken(foreign));
    vx_foreign_unmap(&foreign);
    ck_assert_ptr_null(foreign);
    vx_foreign_unmap(&foreign);
    close(fd);
}
END_TEST

START_TEST(what_is_not_there_is_refused)
{
    static const struct {
        u64 offset, bytes;
    } cases[] = {
        {0, 0},          {0, 10001},      {10000, 1},      {9999, 2},
        {UINT64_MAX, 1}, {1, UINT64_MAX}, {UINT64_MAX, 2}, {1ull << 63, 1ull << 63}};
    int fd = object(10000, 1);
    struct vx_foreign *foreign = NULL;
    for (size_t i = 0; i < VX_COUNT(cases); i++) {
        vx_status st =
            vx_foreign_map(fd, cases[i].offset, cases[i].bytes, &why, &foreign);
        ck_assert_int_eq(vx_status_code(st), VX_CODE_INVALID_ARGUMENT);
        ck_assert_ptr_null(foreign);
    }
    close(fd);
}
END_TEST

START_TEST(there_is_an_end_to_mappings)
{
    static struct vx_foreign *all[VX_FOREIGN_MAX];
    int fd = object(page, 3);
    for (i32 turn = 0; turn < 2; turn++) {
        struct vx_foreign *more;
        for (i32 i = 0; i < VX_FOREIGN_MAX; i++) all[i] = map(fd, 0, page);
        ck_assert_int_eq(vx_status_code(vx_foreign_map(fd, 0, page, &why, &more)),
                         VX_CODE_RESOURCE_EXHAUSTED);
        for (i32 i = 0; i < VX_FOREIGN_MAX; i++) vx_foreign_unmap(&all[i]);
    }
    close(fd);
}
END_TEST

/* More than the address space: the system refuses, however often it is asked, and no
 * row stays taken. */
START_TEST(what_the_system_does_not_map_takes_no_row)
{
    u64 bytes = (u64)1 << 62;
    int fd = memfd_create("large", MFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert(!ftruncate(fd, (off_t)bytes));
    for (i32 i = 0; i <= VX_FOREIGN_MAX; i++) {
        struct vx_foreign *none = NULL;
        why.text[0] = '\0';
        vx_status st = vx_foreign_map(fd, 0, bytes, &why, &none);
        ck_assert_int_eq(vx_status_code(st), VX_CODE_RESOURCE_EXHAUSTED);
        ck_assert_ptr_nonnull(strstr(why.text, "could not be mapped"));
    }
    struct vx_foreign *some = map(fd, 0, page);
    vx_foreign_unmap(&some);
    close(fd);
}
END_TEST

/* ------- cuts ------- */

static u64 sum_of(const struct vx_foreign *foreign)
{
    u64 sum = 0;
    const volatile u8 *at = vx_foreign_at(foreign);
    for (u64 i = 0; i < vx_foreign_bytes(foreign); i++) sum += at[i];
    return sum;
}

START_TEST(what_is_cut_is_zeros_and_known)
{
    int fd = object(8 * page, 1), other = object(8 * page, 2);
    struct vx_foreign *cut = map(fd, 0, 8 * page), *twice = map(fd, page, 7 * page),
                      *whole = map(other, 0, 8 * page);
    ck_assert_uint_eq(sum_of(cut), 8 * page);
    ck_assert(!ftruncate(fd, (off_t)(3 * page)));
    ck_assert(!vx_foreign_broken(cut)); /* nothing was read yet */
    ck_assert_uint_eq(sum_of(cut), 3 * page);
    ck_assert(vx_foreign_broken(cut));
    ck_assert(!vx_foreign_broken(twice));
    memset(vx_foreign_at(twice), 9, 7 * page); /* a write detects it too */
    ck_assert(vx_foreign_broken(twice));
    ck_assert_uint_eq(sum_of(cut), page + 2 * page * 9); /* what is still shared */
    ck_assert_uint_eq(sum_of(whole), 8 * page * 2);
    ck_assert(!vx_foreign_broken(whole));
    vx_foreign_unmap(&cut);
    vx_foreign_unmap(&twice);
    vx_foreign_unmap(&whole);
    struct vx_foreign *next = map(other, 0, page); /* the same row, not broken */
    ck_assert(!vx_foreign_broken(next));
    vx_foreign_unmap(&next);
    close(fd);
    close(other);
}
END_TEST

/* 2,048 missing pages cost one signal, not one each. */
START_TEST(a_cut_is_mended_at_once_to_its_end)
{
    enum { PAGES = 2048 };
    int fd = object(PAGES * page, 1);
    struct vx_foreign *foreign = map(fd, 0, PAGES * page);
    ck_assert(!ftruncate(fd, 0));
    (void)((volatile u8 *)vx_foreign_at(foreign))[0];
    ck_assert(vx_foreign_broken(foreign));
    /* The object is no longer mapped there: when it grows again, that is not seen. */
    ck_assert(!ftruncate(fd, (off_t)(PAGES * page)));
    memset(vx_foreign_at(foreign), 5, PAGES * page);
    u8 byte = 1;
    ck_assert_int_eq(pread(fd, &byte, 1, (off_t)((PAGES - 1) * page)), 1);
    ck_assert_int_eq(byte, 0); /* it went into our own pages */
    vx_foreign_unmap(&foreign);
    close(fd);
}
END_TEST

/* Another process cuts and grows the object while threads read it, write it, and map and
 * unmap others. */
enum { CUTS = 400, LOOKERS = 3 };
static atomic_bool stop;
static atomic_int seen_broken;
static atomic_int *cuts; /* of the other process */
static int shared_fd;

static void cut_and_grow(int fd)
{
    for (int i = 0;; i++) {
        if (ftruncate(fd, (off_t)(page * (u64)(i % 5)))) _exit(1);
        usleep(200); /* sleep: threads read */
        if (ftruncate(fd, (off_t)(16 * page))) _exit(1);
        usleep(200); /* sleep: threads read */
        atomic_fetch_add(cuts, 1);
    }
}

static void *look_all_the_time(void *context)
{
    bool writes = context != NULL;
    static _Thread_local u8 ours[16 * 4096];
    while (!atomic_load(&stop)) {
        struct vx_foreign *foreign;
        if (vx_foreign_map(shared_fd, 0, 16 * page, NULL, &foreign).fault) continue;
        for (int i = 0; i < 20; i++) {
            if (writes)
                memset(vx_foreign_at(foreign), i, 16 * page);
            else
                memcpy(ours, vx_foreign_at(foreign), sizeof ours);
        }
        if (vx_foreign_broken(foreign)) atomic_fetch_add(&seen_broken, 1);
        vx_foreign_unmap(&foreign);
    }
    return NULL;
}

START_TEST(everybody_may_look_while_another_process_cuts)
{
    shared_fd = object(16 * page, 1);
    cuts = mmap(NULL, sizeof *cuts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                -1, 0);
    ck_assert_ptr_ne(cuts, MAP_FAILED);
    pid_t pid = fork();
    if (!pid) cut_and_grow(shared_fd);
    pthread_t lookers[LOOKERS];
    for (i32 i = 0; i < LOOKERS; i++)
        ck_assert(
            !pthread_create(&lookers[i], NULL, look_all_the_time, i ? &lookers : NULL));
    VX_WAIT_UNTIL(atomic_load(cuts) >= CUTS && atomic_load(&seen_broken));
    int status;
    ck_assert(!kill(pid, SIGKILL)); /* the process was still alive */
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status));
    atomic_store(&stop, true);
    for (i32 i = 0; i < LOOKERS; i++) ck_assert(!pthread_join(lookers[i], NULL));
    munmap(cuts, sizeof *cuts);
    close(shared_fd);
}
END_TEST

/* ------- every other SIGBUS ------- */

/* A file of the test's own that no row maps. */
static void touch_a_hole(void)
{
    int fd = object(page, 1);
    volatile u8 *view = mmap(NULL, page, PROT_READ, MAP_SHARED, fd, 0);
    if (view == MAP_FAILED || ftruncate(fd, 0)) _exit(3);
    (void)view[0];
}

static void touch_what_was_unmapped(void)
{
    int fd = object(page, 1);
    struct vx_foreign *foreign = map(fd, 0, page);
    void *at = vx_foreign_at(foreign);
    vx_foreign_unmap(&foreign);
    volatile u8 *view = mmap(at, page, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
    if (view == MAP_FAILED || ftruncate(fd, 0)) _exit(3);
    (void)view[0];
}

static void send_it(void)
{
    (void)raise(SIGBUS);
    _exit(4);
}

static void exit_seven(int number)
{
    (void)number;
    _exit(7);
}

static const struct {
    void (*act)(void);
    bool has_handler; /* one installed before ours */
} elsewhere[] = {
    {touch_a_hole, false}, {touch_what_was_unmapped, false},
    {send_it, false},      {touch_a_hole, true},
    {send_it, true},
};

/* The child has not installed the guard yet: this suite's setup does not run for it. */
START_TEST(elsewhere_it_is_what_it_was)
{
    pid_t pid = fork();
    if (!pid) {
        struct rlimit none = {0, 0};
        struct sigaction before = {.sa_handler =
                                       elsewhere[_i].has_handler ? exit_seven : SIG_DFL};
        (void)setrlimit(RLIMIT_CORE, &none);
        (void)sigaction(SIGBUS, &before, NULL);
        page = (u64)sysconf(_SC_PAGESIZE);
        vx_foreign_guard();
        elsewhere[_i].act();
        _exit(5);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    if (elsewhere[_i].has_handler) {
        ck_assert(WIFEXITED(status));
        ck_assert_int_eq(WEXITSTATUS(status), 7);
    } else {
        ck_assert(WIFSIGNALED(status));
        ck_assert_int_eq(WTERMSIG(status), SIGBUS);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("foreign");
    TCase *tests = tcase_create("mappings");
    tcase_add_checked_fixture(tests, setup, NULL);
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, what_is_mapped_is_the_object);
    tcase_add_test(tests, what_is_not_there_is_refused);
    tcase_add_test(tests, there_is_an_end_to_mappings);
    tcase_add_test(tests, what_the_system_does_not_map_takes_no_row);
    tcase_add_test(tests, what_is_cut_is_zeros_and_known);
    tcase_add_test(tests, a_cut_is_mended_at_once_to_its_end);
    tcase_add_test(tests, everybody_may_look_while_another_process_cuts);
    suite_add_tcase(suite, tests);
    TCase *others = tcase_create("others");
    tcase_add_loop_test(others, elsewhere_it_is_what_it_was, 0, (int)VX_COUNT(elsewhere));
    suite_add_tcase(suite, others);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
