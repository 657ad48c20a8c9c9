/* record_ring: in order, bounded, and whole between two threads.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/trace/record_ring.h"

#include <check.h>
#include <pthread.h>
#include <sched.h>

/* Several times around. */
#define RECORDS (VX_RECORD_RING_SLOTS * 5 + 7)

static struct vx_record_ring ring;

static void setup(void)
{
    ck_assert(!vx_record_ring_open(&ring).fault);
}

static void teardown(void)
{
    vx_record_ring_close(&ring);
}

static bool give(i64 number)
{
    struct vx_record *record = vx_record_ring_begin(&ring);
    if (!record) return false;
    ck_assert_int_eq(record->voxels, 0);
    ck_assert_int_eq(record->pairs, 0);
    record->voxels = number;
    record->pairs = -number;
    vx_record_ring_end(&ring);
    return true;
}

START_TEST(it_is_full_and_empty_again)
{
    for (i64 round = 0; round < 3; round++) {
        for (i64 i = 0; i < VX_RECORD_RING_SLOTS; i++) ck_assert(give(round + i));
        ck_assert(!give(0));
        ck_assert_int_eq(vx_record_ring_count(&ring), VX_RECORD_RING_SLOTS);
        vx_record_ring_drop(&ring, 1);
        ck_assert(give(-1));
        ck_assert(!give(0));
        for (i32 i = 0; i < VX_RECORD_RING_SLOTS - 1; i++)
            ck_assert_int_eq(vx_record_ring_at(&ring, i)->voxels, round + i + 1);
        ck_assert_int_eq(vx_record_ring_at(&ring, VX_RECORD_RING_SLOTS - 1)->voxels, -1);
        vx_record_ring_drop(&ring, VX_RECORD_RING_SLOTS);
        ck_assert_int_eq(vx_record_ring_count(&ring), 0);
    }
}
END_TEST

/* A record that was begun and not ended is not seen, and is begun again. */
START_TEST(a_record_is_seen_when_it_is_whole)
{
    struct vx_record *record = vx_record_ring_begin(&ring);
    record->voxels = 5;
    ck_assert_int_eq(vx_record_ring_count(&ring), 0);
    ck_assert_ptr_eq(vx_record_ring_begin(&ring), record);
    ck_assert_int_eq(record->voxels, 0);
}
END_TEST

static void *take_all(void *context)
{
    i64 *next = context;
    while (*next < RECORDS) {
        i32 count = vx_record_ring_count(&ring);
        for (i32 i = 0; i < count; i++, (*next)++) {
            const struct vx_record *record = vx_record_ring_at(&ring, i);
            if (record->voxels != *next || record->pairs != -*next) return NULL;
        }
        vx_record_ring_drop(&ring, count);
        if (!count) sched_yield();
    }
    return NULL;
}

START_TEST(two_threads)
{
    pthread_t taker;
    i64 next = 0;
    ck_assert(!pthread_create(&taker, NULL, take_all, &next));
    for (i64 i = 0; i < RECORDS;) {
        if (give(i))
            i++;
        else
            sched_yield();
    }
    ck_assert(!pthread_join(taker, NULL));
    ck_assert_int_eq(next, RECORDS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("record_ring");
    TCase *tests = tcase_create("record_ring");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, it_is_full_and_empty_again);
    tcase_add_test(tests, a_record_is_seen_when_it_is_whole);
    tcase_add_test(tests, two_threads);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
