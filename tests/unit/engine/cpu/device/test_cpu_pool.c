/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/thread.h"
#include "engine/cpu/device/cores.h"
#include "engine/cpu/device/pool.h"
#include "tests/support/wait.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COUNT_MAX 10000

struct seen {
    i64 count, grain;
    i32 threads;
    atomic_int times[COUNT_MAX];
    atomic_int wrong;
};

static void mark(void *context, i32 worker, i64 begin, i64 end)
{
    struct seen *seen = context;
    bool right = worker >= 0 && worker < seen->threads && begin % seen->grain == 0 &&
                 end <= seen->count && begin < end && end - begin <= seen->grain;
    /* Worker 0 is the caller; the others are compute threads. */
    right &= (worker == 0) == (vx_thread_role() != VX_ROLE_COMPUTE);
    if (!right) atomic_fetch_add(&seen->wrong, 1);
    for (i64 i = begin; i < end; i++) atomic_fetch_add(&seen->times[i], 1);
}

static void check_spread(struct vx_pool *pool, i64 count, i64 grain)
{
    static struct seen seen;
    memset(&seen, 0, sizeof seen);
    seen.count = count;
    seen.grain = grain;
    seen.threads = vx_pool_threads(pool);
    vx_pool_spread(pool, &(struct vx_pool_job){count, grain, mark, &seen});
    ck_assert_int_eq(seen.wrong, 0);
    for (i64 i = 0; i < COUNT_MAX; i++)
        if (seen.times[i] != (i < count))
            ck_abort_msg("element %d was done %d times", (int)i, (int)seen.times[i]);
}

struct met {
    atomic_int here, kept;
};

/* Each thread waits until all have come, so each has one of these. */
static void multiply(void *context, i32 worker, i64 begin, i64 end)
{
    struct met *met = context;
    (void)worker;
    ck_assert_int_eq(end, begin + 1);
    atomic_fetch_add(&met->here, 1);
    VX_WAIT_UNTIL(met->here == 3);
    volatile f32 tiny = 1e-41f, one = 1, smallest = 1.2e-38f, half = 0.5f;
    const f32 read = tiny * one * 1e30f, made = smallest * half;
    if (read != 0 || made * 1e30f != 0) atomic_fetch_add(&met->kept, 1);
}

/* Operations with subnormal numbers take a hundred times as long: one request kept all others waiting. */
START_TEST(no_thread_computes_with_subnormal_numbers)
{
    struct vx_pool *pool;
    struct met met = {0, 0};
    ck_assert_ptr_null(vx_pool_open(3, &pool).fault);
    vx_pool_spread(pool, &(struct vx_pool_job){3, 1, multiply, &met});
    ck_assert_int_eq(met.here, 3);
    ck_assert_int_eq(met.kept, 0);
    vx_pool_close(&pool);
}
END_TEST

START_TEST(test_every_element_once)
{
    static const i64 cases[][2] = {{0, 1},     {1, 1},      {1, 100},     {100, 1},
                                   {100, 7},   {100, 99},   {100, 100},   {100, 101},
                                   {10000, 1}, {9999, 512}, {10000, 4096}};
    for (i32 threads = 1; threads <= 5; threads++) {
        struct vx_pool *pool;
        ck_assert_ptr_null(vx_pool_open(threads, &pool).fault);
        ck_assert_int_eq(vx_pool_threads(pool), threads);
        for (size_t i = 0; i < VX_COUNT(cases); i++)
            check_spread(pool, cases[i][0], cases[i][1]);
        vx_pool_close(&pool);
        ck_assert_ptr_null(pool);
    }
}
END_TEST

/* One after the other without a pause, and after a pause in which the workers fall asleep. */
START_TEST(test_many_jobs)
{
    struct vx_pool *pool;
    ck_assert_ptr_null(vx_pool_open(3, &pool).fault);
    for (int job = 0; job < 3000; job++) {
        static struct seen seen;
        memset(&seen, 0, sizeof seen);
        seen.count = job % 17;
        seen.grain = 1 + job % 5;
        seen.threads = 3;
        vx_pool_spread(pool, &(struct vx_pool_job){seen.count, seen.grain, mark, &seen});
        if (seen.wrong) ck_abort_msg("job %d: a piece was wrong", job);
        for (i64 i = 0; i < 17; i++)
            if (seen.times[i] != (i < seen.count))
                ck_abort_msg("job %d: element %d", job, (int)i);
        /* sleep: until the workers do, most probably */
        if (job % 1000 == 0) nanosleep(&(struct timespec){0, 20 * 1000 * 1000}, NULL);
    }
    vx_pool_close(&pool);
}
END_TEST

struct meeting {
    atomic_int here;
    atomic_bool met;
};

static void meet(void *context, i32 worker, i64 begin, i64 end)
{
    struct meeting *meeting = context;
    (void)worker;
    (void)begin;
    (void)end;
    atomic_fetch_add(&meeting->here, 1);
    VX_WAIT_UNTIL(atomic_load(&meeting->here) == 2);
    atomic_store(&meeting->met, true);
}

/* Two tasks that wait for each other end only when each runs on a thread of its own. */
START_TEST(test_threads_work_together)
{
    struct vx_pool *pool;
    struct meeting meeting = {0};
    ck_assert_ptr_null(vx_pool_open(2, &pool).fault);
    vx_pool_spread(pool, &(struct vx_pool_job){2, 1, meet, &meeting});
    ck_assert(meeting.met);
    vx_pool_close(&pool);
}
END_TEST

/* Distributing work allocates no memory, so a frozen thread may do it. */
START_TEST(test_no_allocation)
{
    struct vx_pool *pool;
    ck_assert_ptr_null(vx_pool_open(2, &pool).fault);
    vx_alloc_freeze();
    check_spread(pool, 1000, 3);
    vx_alloc_thaw();
    vx_pool_close(&pool);
}
END_TEST

static void count_told(void *context)
{
    (*(i64 *)context)++;
}

/* Each chunk that the caller takes is told, but the first of a job: small jobs are silent. */
START_TEST(test_chunks_are_told)
{
    static const i64 cases[][3] = {
        {0, 3, 0}, {3, 3, 0}, {4, 3, 1}, {10, 3, 3}, {100, 1, 99}};
    struct vx_pool *pool;
    ck_assert_ptr_null(vx_pool_open(1, &pool).fault);
    for (size_t i = 0; i < VX_COUNT(cases); i++) {
        i64 told = 0;
        vx_pool_tell(pool, count_told, &told);
        check_spread(pool, cases[i][0], cases[i][1]);
        ck_assert_int_eq(told, cases[i][2]);
    }
    vx_pool_tell(pool, NULL, NULL);
    check_spread(pool, 100, 1);
    vx_pool_close(&pool);
}
END_TEST

/* Worker 1 hangs in a chunk, and the caller takes all others. */
#define HANG_CHUNKS 50
struct hang {
    atomic_int inside, callers;
    atomic_bool over;
    i64 told;
    i64 first; /* the caller took the job's first chunk: it was not told */
};

static void hang_task(void *context, i32 worker, i64 begin, i64 end)
{
    struct hang *hang = context;
    (void)end;
    if (worker) {
        atomic_store(&hang->inside, 1);
        VX_WAIT_UNTIL(atomic_load(&hang->over));
        return;
    }
    VX_WAIT_UNTIL(atomic_load(&hang->inside));
    hang->first += !begin;
    atomic_fetch_add(&hang->callers, 1);
}

static void hang_end(void *context)
{
    struct hang *hang = context;
    VX_WAIT_UNTIL(atomic_load(&hang->callers) == HANG_CHUNKS - 1);
    /* sleep: in which nothing may be told, as the caller only waits */
    nanosleep(&(struct timespec){0, 20 * 1000 * 1000}, NULL);
    atomic_store(&hang->over, true);
}

/* Nothing is told while a thread hangs: the watchdog finds it. */
START_TEST(test_a_thread_that_hangs_is_silent)
{
    struct vx_pool *pool;
    struct hang hang = {0};
    pthread_t thread;
    ck_assert_ptr_null(vx_pool_open(2, &pool).fault);
    vx_pool_tell(pool, count_told, &hang.told);
    ck_assert_ptr_null(vx_thread_open(&thread, VX_ROLE_MAIN, hang_end, &hang).fault);
    vx_pool_spread(pool, &(struct vx_pool_job){HANG_CHUNKS, 1, hang_task, &hang});
    pthread_join(thread, NULL);
    ck_assert_int_eq(hang.callers, HANG_CHUNKS - 1);
    ck_assert_int_eq(hang.told, HANG_CHUNKS - 1 - hang.first);
    vx_pool_close(&pool);
}
END_TEST

START_TEST(test_quota)
{
    static const struct {
        const char *text;
        i32 cores;
    } cases[] = {{"max 100000", 0},
                 {"200000 100000", 2},
                 {"150000 100000", 2},
                 {"50000 100000", 1},
                 {"1 100000", 1},
                 {"100001 100000", 2},
                 {"-1 100000", 0},
                 {"", 0},
                 {"100000", 0},
                 {"100000 0", 0},
                 {"100000 -5", 0},
                 {"words", 0},
                 {" ", 0},
                 {"9000000000000000 1", 256}};
    ck_assert_int_eq(vx_cores_of_quota(cases[_i].text), cases[_i].cores);
}
END_TEST

START_TEST(test_cores)
{
    char name[64];
    i32 cores = vx_cores_usable();
    ck_assert_int_ge(cores, 1);
    ck_assert_int_le(cores, 256);
    vx_cores_name(name, sizeof name);
    ck_assert_uint_gt(strlen(name), 0);
    vx_cores_name(name, 5);
    ck_assert_uint_le(strlen(name), 4);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cpu_pool");
    TCase *cases = tcase_create("cpu_pool");
    tcase_set_timeout(cases, 30);
    tcase_add_test(cases, test_every_element_once);
    tcase_add_test(cases, test_many_jobs);
    tcase_add_test(cases, test_threads_work_together);
    tcase_add_test(cases, no_thread_computes_with_subnormal_numbers);
    tcase_add_test(cases, test_no_allocation);
    tcase_add_test(cases, test_chunks_are_told);
    tcase_add_test(cases, test_a_thread_that_hangs_is_silent);
    tcase_add_loop_test(cases, test_quota, 0, 14);
    tcase_add_test(cases, test_cores);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
