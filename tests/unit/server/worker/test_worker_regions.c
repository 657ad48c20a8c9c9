/* A worker whose requests lie in clients' memory, with the real engine on the CPU and on
 * the fake GPU: places in regions give the same answers as the arena, bit for bit;
 * regions come, go, are cut and fail, and only requests that use them are affected.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/process/alloc.h"
#include "engine/base/process/log.h"
#include "engine/gpu/fake/fake.h"
#include "tests/support/wait.h"
#include "tests/support/worker_rig.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ITEMS_MAX 8

static const char *const devices[] = {"cpu", "fake:0"};

/* The main thread page-locks and releases memory when it gets to it. */
static void wait_pinned(i32 count)
{
    VX_WAIT_UNTIL_MSG(vx_fake_pinned() == count, "%d ranges are page-locked, expected %d",
                      vx_fake_pinned(), count);
}

/* An item that asks, and has voxels, is told what its layers took. */
static void check_taken(i32 item, bool wanted)
{
    const struct vx_message_done *done = &worker_rig.in.done;
    const char *taken = vx_done_taken(done, &done->items[item]);
    ck_assert_int_eq(taken != NULL, wanted);
    if (taken) ck_assert_msg(strstr(taken, ": "), "%s", taken);
}

/* Random sizes, and places in regions and arena mixed at random. */
START_TEST(places_do_not_show_in_answers)
{
    struct vx_test_random random = {5};
    worker_rig_begin(devices[_i]);
    worker_rig_map_all();
    if (worker_rig.fake) wait_pinned(1 + WORKER_RIG_SYSTEM);
    for (i32 round = 0; round < 8; round++) {
        struct worker_asked asked[ITEMS_MAX];
        memset(asked, 0, sizeof asked);
        struct vx_run_item items[ITEMS_MAX];
        i32 where[ITEMS_MAX][WORKER_RIG_TENSORS];
        i32 count = 1 + (i32)(vx_test_next(&random) % ITEMS_MAX);
        for (i32 i = 0; i < count; i++)
            asked[i] = worker_rig_ask(vx_test_next(&random) % 1000,
                                      (i64)(vx_test_next(&random) % (i % 3 ? 400 : 4)));
        worker_rig_forget();
        for (i32 i = 0; i < count; i++) {
            for (i32 t = 0; t < WORKER_RIG_TENSORS; t++)
                where[i][t] =
                    (i32)(vx_test_next(&random) % (u64)(worker_rig.fake ? 6 : 5)) -
                    (t > 1);
            if (!worker_rig.fake || where[i][0] > WORKER_RIG_DEVICE) where[i][0] = 0;
            if (where[i][1] > (worker_rig.fake ? WORKER_RIG_DEVICE : WORKER_RIG_SYSTEM))
                where[i][1] = 1;
            for (i32 t = 2; t < WORKER_RIG_TENSORS; t++)
                if (where[i][t] >
                    (worker_rig.fake ? WORKER_RIG_DEVICE : WORKER_RIG_SYSTEM))
                    where[i][t] = 2;
            items[i] = worker_rig_item(&asked[i], where[i]);
            items[i].says_taken = (round + i) % 3 == 0;
        }
        worker_rig_expect(VX_MESSAGE_DONE, worker_rig_say_run(items, count));
        for (i32 i = 0; i < count; i++) {
            ck_assert_msg(!worker_rig.in.done.items[i].code, "%s",
                          vx_done_why(&worker_rig.in.done, i)->text);
            ck_assert(!worker_rig.in.done.items[i].region_lost);
            worker_rig_check(&asked[i], where[i]);
            check_taken(i, items[i].says_taken && items[i].voxels);
            vx_free(asked[i].request);
        }
    }
    worker_rig_say_unmap(2);
    worker_rig_say_unmap(2); /* the second does nothing */
    worker_rig_sync();
    if (worker_rig.fake) wait_pinned(WORKER_RIG_SYSTEM);
    worker_rig_say_unmap(WORKER_RIG_DEVICE);
    worker_rig_sync();
    ck_assert_int_eq(vx_fake_imported(), 0);
    worker_rig_end(); /* while regions are mapped */
}
END_TEST

/* One bad item among two good ones: only it gets an error. */
static void ck_alone(struct worker_asked *good, struct vx_run_item bad, enum vx_code code,
                     const char *text)
{
    struct worker_asked both[2] = {*good, *good};
    struct vx_run_item items[3] = {worker_rig_item(&both[0], worker_rig_in_arena), bad,
                                   worker_rig_item(&both[1], worker_rig_in_arena)};
    worker_rig_expect(VX_MESSAGE_DONE, worker_rig_say_run(items, 3));
    const struct vx_message_done *done = &worker_rig.in.done;
    ck_assert_int_eq(done->items[0].code, VX_CODE_OK);
    ck_assert_int_eq(done->items[2].code, VX_CODE_OK);
    ck_assert_msg(strstr(vx_done_why(done, 1)->text, text) != NULL, "%s",
                  vx_done_why(done, 1)->text);
    ck_assert_int_eq(done->items[1].code, (i32)code);
    ck_assert((done->items[1].region_lost > 0) == (code == VX_CODE_FAILED_PRECONDITION));
    ck_assert(done->items[0].ran && !done->items[1].ran && done->items[2].ran);
    for (i32 i = 0; i < 2; i++) worker_rig_check(&both[i], worker_rig_in_arena);
}

START_TEST(a_region_that_is_not_there_fails_its_item_alone)
{
    static const i32 feats_in[WORKER_RIG_TENSORS] = {0, 1},
                     device_out[] = {0, 0, 0, 4, 0, 0, 0, 0, 0, 0};
    worker_rig_begin(devices[_i]);
    struct worker_asked good = worker_rig_ask(7, 100);
    worker_rig_forget();
    worker_rig_memory_open(1, 0);
    worker_rig_memory_open(WORKER_RIG_DEVICE, 0);
    struct vx_run_item bad = worker_rig_item(&good, feats_in);
    ck_alone(&good, bad, VX_CODE_FAILED_PRECONDITION,
             "the shared memory region is not mapped: register it again");
    worker_rig.memories[1].bytes = WORKER_RIG_REGION_BYTES + 1;
    worker_rig_say_map(1, 9);
    worker_rig_expect_mapped(1, 9, VX_CODE_INVALID_ARGUMENT);
    ck_assert_msg(
        strstr(worker_rig.in.mapped.why.text, "object that holds 2097153 bytes"), "%s",
        worker_rig.in.mapped.why.text);
    ck_alone(&good, bad, VX_CODE_FAILED_PRECONDITION,
             "the shared memory region is not mapped: expected a shared memory object");
    worker_rig_say_unmap(1);
    ck_alone(&good, bad, VX_CODE_FAILED_PRECONDITION, "register it again");
    worker_rig.memories[WORKER_RIG_DEVICE].bytes =
        worker_rig.fake ? WORKER_RIG_REGION_BYTES + 1 : WORKER_RIG_REGION_BYTES;
    worker_rig_say_map(WORKER_RIG_DEVICE, 10);
    worker_rig_expect_mapped(WORKER_RIG_DEVICE, 10,
                             worker_rig.fake ? VX_CODE_INVALID_ARGUMENT
                                             : VX_CODE_UNIMPLEMENTED);
    bad = worker_rig_item(&good, device_out);
    ck_alone(&good, bad, VX_CODE_FAILED_PRECONDITION,
             "the shared memory region is not mapped: ");
    /* Mapped at last, but misaligned. */
    worker_rig.memories[1].bytes = WORKER_RIG_REGION_BYTES;
    worker_rig_say_map(1, 11);
    worker_rig_expect_mapped(1, 11, VX_CODE_OK);
    bad = worker_rig_item(&good, feats_in);
    bad.feats.offset++;
    ck_alone(&good, bad, VX_CODE_INVALID_ARGUMENT,
             "must begin at a multiple of its element size");
    vx_free(good.request);
    worker_rig_end();
}
END_TEST

/* Cut before the worker reads it, or while the batch is under way; on the GPU
 * page-locked. */
START_TEST(a_region_that_is_cut_fails_its_item_alone)
{
    static const i32 places[][WORKER_RIG_TENSORS] = {{0, 1, 0, 0, 0, 0, 0, 0, 0, 0},
                                                     {0, 0, 1, 0, 2, 0, 0, 0, 0, 0}};
    bool under_way = _i & 2;
    worker_rig_begin(devices[_i & 1]);
    struct worker_asked good = worker_rig_ask(7, 300);
    worker_rig_forget();
    worker_rig_map_all();
    struct worker_asked lost = good;
    struct vx_run_item bad = worker_rig_item(&lost, places[_i >> 2]);
    if (under_way) {
        /* On the fake GPU copies wait until they are released. */
        if (worker_rig.fake)
            vx_fake_set(&(struct vx_fake_settings){.event_polls = INT32_MAX});
        u64 batch = worker_rig_say_run(&bad, 1);
        usleep(2000); /* sleep: until it is under way, most probably */
        ck_assert(!ftruncate(worker_rig.memories[1].fd, 0));
        if (worker_rig.fake) vx_fake_set(&(struct vx_fake_settings){0});
        worker_rig_expect(VX_MESSAGE_DONE, batch);
        bool answered = !worker_rig.in.done.items[0].code; /* it was faster */
        ck_assert(!worker_rig.fake || !answered);
        ck_assert(answered || !strcmp(vx_done_why(&worker_rig.in.done, 0)->text,
                                      "the shared memory region has lost its memory: the "
                                      "client made it smaller while it was in use, or "
                                      "/dev/shm is full; register it again"));
    } else {
        ck_assert(!ftruncate(worker_rig.memories[1].fd, 4096));
    }
    worker_rig.memories[1].used = WORKER_RIG_REGION_BYTES; /* nobody writes there now */
    ck_alone(&good, bad, VX_CODE_FAILED_PRECONDITION,
             "the shared memory region has lost its memory");
    /* Its row is used for another client. */
    worker_rig_say_unmap(1);
    worker_rig_memory_close(1);
    worker_rig_memory_open(1, 0);
    worker_rig_say_map(1, 50);
    worker_rig_expect_mapped(1, 50, VX_CODE_OK);
    struct vx_run_item again = worker_rig_item(&lost, places[_i >> 2]);
    worker_rig_expect(VX_MESSAGE_DONE, worker_rig_say_run(&again, 1));
    ck_assert_int_eq(worker_rig.in.done.items[0].code, VX_CODE_OK);
    worker_rig_check(&lost, places[_i >> 2]);
    vx_free(good.request);
    worker_rig_end();
}
END_TEST

static atomic_int pins, may_pin;

static void wait_to_pin(void)
{
    atomic_fetch_add(&pins, 1);
    VX_WAIT_UNTIL(atomic_load(&may_pin));
}

static void wait_pins(int count)
{
    VX_WAIT_UNTIL(atomic_load(&pins) >= count);
    ck_assert_int_eq(atomic_load(&pins), count);
}

/* Regions are used and released, and their rows used again, all while main page-locks. */
START_TEST(a_region_goes_while_it_is_page_locked)
{
    static const i32 there[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    worker_rig_begin("fake:0");
    struct worker_asked asked = worker_rig_ask(8, 200);
    vx_fake_set(&(struct vx_fake_settings){.on_pin = wait_to_pin});
    for (u64 use = 1; use <= 3; use++) {
        worker_rig_forget();
        worker_rig_memory_open(1, use == 2 ? 64 : 0);
        worker_rig_say_map(1, use);
        worker_rig_expect_mapped(1, use, VX_CODE_OK); /* because main is busy */
        wait_pins(1);                                 /* of the first region */
        struct vx_run_item item = worker_rig_item(&asked, there);
        worker_rig_expect(VX_MESSAGE_DONE, worker_rig_say_run(&item, 1));
        ck_assert_int_eq(worker_rig.in.done.items[0].code, VX_CODE_OK);
        worker_rig_check(&asked, there);
        if (use == 3) break;
        worker_rig_say_unmap(1);
        worker_rig_sync();
        worker_rig_memory_close(1);
    }
    ck_assert_int_eq(vx_fake_pinned(), 1); /* the arena */
    atomic_store(&may_pin, 1);
    wait_pins(2); /* the second: nothing to lock */
    wait_pinned(2);
    worker_rig_say_unmap(1);
    wait_pinned(1);
    /* The front also disconnects in the middle. */
    worker_rig_memory_close(1);
    atomic_store(&may_pin, 0);
    worker_rig_memory_open(1, 0);
    worker_rig_say_map(1, 4);
    wait_pins(3);
    shutdown(worker_rig.fd, SHUT_RDWR);
    usleep(10000); /* sleep: until the worker has seen it, most probably */
    atomic_store(&may_pin, 1);
    vx_free(asked.request);
    worker_rig_end();
}
END_TEST

/* Page-locking may take minutes: regions come, are used and go in the meantime. */
START_TEST(a_region_comes_and_goes_while_a_model_is_read)
{
    static const i32 there[] = {0, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    worker_rig_begin(devices[_i]);
    struct worker_asked asked = worker_rig_ask(8, 200);
    atomic_store(&worker_rig_reading, true);
    worker_rig_say_load();
    for (u64 use = 1; use <= 3; use++) {
        worker_rig_forget();
        worker_rig_memory_open(1, 0);
        worker_rig_say_map(1, use);
        worker_rig_expect_mapped(1, use, VX_CODE_OK);
        struct vx_run_item item = worker_rig_item(&asked, there);
        worker_rig_expect(VX_MESSAGE_DONE, worker_rig_say_run(&item, 1));
        ck_assert_int_eq(worker_rig.in.done.items[0].code, VX_CODE_OK);
        worker_rig_check(&asked, there);
        worker_rig_say_unmap(1);
        worker_rig_sync();
        worker_rig_memory_close(1);
    }
    atomic_store(&worker_rig_reading, false);
    worker_rig_expect(VX_MESSAGE_LOADED, 78);
    if (worker_rig.fake) wait_pinned(1);
    vx_free(asked.request);
    worker_rig_end();
}
END_TEST

static _Atomic i64 calls_at_pin;

static void note_pin(void)
{
    atomic_store(&calls_at_pin, vx_fake_calls());
}

/* The driver has returned. */
static void wait_pin_answered(void)
{
    VX_WAIT_UNTIL(vx_fake_calls() > atomic_load(&calls_at_pin));
}

/* The copies are slower, and nothing else changes; it is logged once. */
START_TEST(memory_that_cannot_be_page_locked_is_used)
{
    static const i32 there[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    worker_rig_begin("fake:0");
    struct worker_asked asked = worker_rig_ask(8, 200);
    u64 logged = vx_log_count(VX_EVENT_GPU_PIN);
    for (u64 use = 1; use <= 3; use++) {
        worker_rig_forget();
        worker_rig_memory_open(1, 0);
        atomic_store(&calls_at_pin, INT64_MAX);
        vx_fake_set(&(struct vx_fake_settings){.on_pin = note_pin,
                                               .fail_call = 1,
                                               .fail_code = use == 2 ? 999 : 2,
                                               .fail_count = 2});
        worker_rig_say_map(1, use);
        worker_rig_expect_mapped(1, use, VX_CODE_OK);
        wait_pin_answered();
        vx_fake_set(&(struct vx_fake_settings){0});
        ck_assert_int_eq(vx_fake_pinned(), 1);
        struct vx_run_item item = worker_rig_item(&asked, there);
        worker_rig_expect(VX_MESSAGE_DONE, worker_rig_say_run(&item, 1));
        ck_assert_int_eq(worker_rig.in.done.items[0].code, VX_CODE_OK);
        worker_rig_check(&asked, there);
        worker_rig_say_unmap(1);
        worker_rig_sync();
        worker_rig_memory_close(1);
    }
    ck_assert_uint_eq(vx_log_count(VX_EVENT_GPU_PIN), logged + 1);
    vx_free(asked.request);
    worker_rig_end();
}
END_TEST

/* The process ends with its regions mapped: none is released twice on the way. */
START_TEST(a_lost_device_takes_its_regions_along)
{
    static const i32 there[] = {4, 1, 1, 4, 2, 4, 1, 1, 1, 1};
    worker_rig_begin("fake:0");
    struct worker_asked asked = worker_rig_ask(8, 200);
    worker_rig_map_all();
    worker_rig_forget();
    vx_fake_set(&(struct vx_fake_settings){.lose_launch = 3});
    vx_test_remove(vx_rig_root); /* nobody else removes it */
    struct vx_run_item item = worker_rig_item(&asked, there);
    (void)worker_rig_say_run(&item, 1);
    (void)worker_rig_hear(-1); /* ENDS, or the process ended first */
    (void)pause();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("worker_regions");
    TCase *tcase = tcase_create("regions");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, places_do_not_show_in_answers, 0, 2);
    tcase_add_loop_test(tcase, a_region_that_is_not_there_fails_its_item_alone, 0, 2);
    tcase_add_loop_test(tcase, a_region_that_is_cut_fails_its_item_alone, 0, 8);
    TCase *locking = tcase_create("locking");
    tcase_set_timeout(locking, 60);
    tcase_add_test(locking, a_region_goes_while_it_is_page_locked);
    tcase_add_loop_test(locking, a_region_comes_and_goes_while_a_model_is_read, 0, 2);
    tcase_add_test(locking, memory_that_cannot_be_page_locked_is_used);
    tcase_add_exit_test(tcase, a_lost_device_takes_its_regions_along,
                        VX_WORKER_EXIT_LOST);
    suite_add_tcase(suite, tcase);
    suite_add_tcase(suite, locking);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
