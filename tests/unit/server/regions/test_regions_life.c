/* regions: workers that come and go, device memory, and large numbers of everything.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/process/log.h"
#include "engine/base/process/thread.h"
#include "tests/unit/server/regions/regions_rig.h"

#include <check.h>
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

static struct vx_place use;
static int one, two; /* waiters */

static void setup(void)
{
    rig_set_up("unix");
}

static void restart(i32 worker)
{
    vx_regions_on_worker_down(rig_regions, worker);
    rig_infos[worker].state = VX_WORKER_UP;
    vx_regions_on_worker_up(rig_regions, worker);
}

/* ------- workers ------- */

START_TEST(a_worker_that_comes_up_gets_every_region_that_is_needed)
{
    struct vx_peer owner = rig_peer(1);
    rig_object("r", 100);
    rig_add(1, "a", 0, 0); /* refused: workers get no message */
    rig_drop_object("r");
    static const char *const names[] = {"kept", "used", "idle"};
    for (size_t i = 0; i < VX_COUNT(names); i++) {
        rig_object(names[i], 100 + i);
        ck_assert_int_eq(rig_add(1, names[i], 0, 100), VX_CODE_OK);
        rig_drop_object(names[i]);
    }
    ck_assert_int_eq(rig_use(1, "used", 0, 10, &use), VX_CODE_OK);
    vx_regions_remove(rig_regions, &owner, VX_REGION_SYSTEM, "used");
    vx_regions_remove(rig_regions, &owner, VX_REGION_SYSTEM, "idle");
    rig_step();
    rig_told_count = 0;
    rig_infos[2].state = VX_WORKER_UP;
    vx_regions_on_worker_up(rig_regions, 2);
    ck_assert_int_eq(rig_told_count, 2);
    for (i32 i = 0; i < 2; i++) { /* with the object, whose name is gone */
        ck_assert_int_eq(rig_told[i].worker, 2);
        ck_assert_uint_eq(rig_told[i].object_bytes, 100 + (u64)i);
    }
    vx_regions_done(rig_regions, &use);
    rig_mapped_all(0); /* 2 has answered all, 0 and 1 have not */
    rig_step();
    ck_assert_int_eq(rig_told_of(VX_MESSAGE_UNMAP, -1), 0);
    restart(0);
    vx_regions_on_worker_down(rig_regions, 1); /* and stays down */
    rig_step();
    ck_assert_int_eq(rig_counts().regions[VX_REGION_SYSTEM], 1);
    ck_assert_int_eq(rig_told_of(VX_MESSAGE_UNMAP, 2), 1); /* it was sent "used" only */
    ck_assert_int_eq(rig_told_of(VX_MESSAGE_UNMAP, 0), 0); /* a new process */
    ck_assert_int_eq(rig_told_of(VX_MESSAGE_UNMAP, 1), 0);
}
END_TEST

START_TEST(a_late_word_about_an_earlier_use_is_not_believed)
{
    struct vx_peer owner = rig_peer(1);
    rig_object("r", 100);
    ck_assert_int_eq(rig_add(1, "r", 0, 100), VX_CODE_OK);
    struct rig_told early = rig_told[0];
    restart(0);
    restart(1);
    rig_mapped_all(2);
    vx_regions_remove(rig_regions, &owner, VX_REGION_SYSTEM, "r");
    rig_step();
    rig_told_count = 0;
    ck_assert_int_eq(rig_add(1, "r", 0, 100), VX_CODE_OK);
    ck_assert_int_eq(rig_told[0].region, early.region);
    ck_assert_uint_ne(rig_told[0].serial, early.serial);
    rig_mapped(&early, VX_CODE_INTERNAL);
    ck_assert_uint_eq(vx_log_count(VX_EVENT_REGION), 0);
    rig_mapped(&rig_told[1], VX_CODE_OK);
    vx_regions_remove(rig_regions, &owner, VX_REGION_SYSTEM, "r");
    rig_step();
    ck_assert_int_eq(rig_counts().regions[VX_REGION_SYSTEM], 1); /* 0 has not answered */
    rig_mapped(&rig_told[0], VX_CODE_OK);
    rig_mapped(&rig_told[0], VX_CODE_OK); /* the second has no effect */
    rig_step();
    ck_assert_int_eq(rig_counts().regions[VX_REGION_SYSTEM], 0);
    rig_mapped(&rig_told[0], VX_CODE_OK); /* the row is free by now */
    rig_drop_object("r");
}
END_TEST

START_TEST(a_worker_that_cannot_map_leaves_the_others_as_they_are)
{
    struct vx_peer owner = rig_peer(1);
    rig_object("r", 100);
    ck_assert_int_eq(rig_add(1, "r", 0, 100), VX_CODE_OK);
    rig_mapped(&rig_told[0], VX_CODE_RESOURCE_EXHAUSTED);
    rig_mapped(&rig_told[1], VX_CODE_OK);
    ck_assert_uint_eq(vx_log_count(VX_EVENT_REGION), 1);
    ck_assert_int_eq(rig_use(1, "r", 0, 10, &use), VX_CODE_OK);
    vx_regions_done(rig_regions, &use);
    vx_regions_remove(rig_regions, &owner, VX_REGION_SYSTEM, "r");
    rig_step();
    ck_assert_int_eq(rig_told_of(VX_MESSAGE_UNMAP, 0), 0); /* it maps nothing */
    ck_assert_int_eq(rig_told_of(VX_MESSAGE_UNMAP, 1), 1);
    rig_drop_object("r");
}
END_TEST

/* With a loop the memory is unmapped on another thread: the row is taken, and its
 * bytes count, until that is done. */
START_TEST(memory_is_let_go_of_beside_the_loop)
{
    uv_loop_t loop;
    struct vx_peer owner = rig_peer(1);
    ck_assert(!uv_loop_init(&loop));
    rig_open_on(&loop);
    rig_object("r", 4096);
    ck_assert_int_eq(rig_add(1, "r", 0, 4096), VX_CODE_OK);
    rig_mapped_all(0);
    vx_regions_remove(rig_regions, &owner, VX_REGION_SYSTEM, "r");
    rig_step();
    rig_step(); /* the second has no effect */
    ck_assert_int_eq(rig_counts().regions[VX_REGION_SYSTEM], 1);
    ck_assert_uint_eq(rig_counts().bytes, 4096);
    ck_assert_int_eq(rig_told_of(VX_MESSAGE_UNMAP, -1), 0);
    ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    rig_step();
    ck_assert_int_eq(rig_counts().regions[VX_REGION_SYSTEM], 0);
    ck_assert_uint_eq(rig_counts().bytes, 0);
    ck_assert_int_eq(rig_told_of(VX_MESSAGE_UNMAP, -1), 2);
    ck_assert(!uv_loop_close(&loop));
    rig_drop_object("r");
}
END_TEST

/* ------- device memory ------- */

START_TEST(a_device_region_goes_to_its_worker_alone)
{
    ck_assert_int_eq(rig_add_device(1, "d", 1, &one), VX_CODE_OK); /* the fake's number */
    ck_assert_int_eq(rig_told_count, 1);
    ck_assert_int_eq(rig_told[0].worker, 1);
    ck_assert_int_eq(rig_told[0].map.on_device, 1);
    ck_assert_int_eq(rig_told[0].map.handle[63], 0x5a);
    ck_assert_uint_eq(rig_told[0].object_bytes, 0);
    ck_assert_int_eq(rig_use(1, "d", 0, 1, &use), VX_CODE_NOT_FOUND); /* not yet */
    ck_assert_int_eq(rig_add_device(1, "d", 1, &two), VX_CODE_ALREADY_EXISTS);
    ck_assert_ptr_null(rig_waiter);
    rig_mapped(&rig_told[0], VX_CODE_OK);
    ck_assert_ptr_eq(rig_waiter, &one);
    ck_assert_int_eq(rig_added, VX_CODE_OK);
    ck_assert_int_eq(rig_use(1, "d", 0, 4096, &use), VX_CODE_OK);
    ck_assert_int_eq(use.kind, VX_PLACE_DEVICE);
    ck_assert_int_eq(use.worker, 1);
    ck_assert(!vx_regions_broken(rig_regions, &use));
    vx_regions_done(rig_regions, &use);
    rig_object("d", 100);
    ck_assert_int_eq(rig_add(1, "d", 0, 1),
                     VX_CODE_ALREADY_EXISTS); /* one name, one kind */
    rig_drop_object("d");
    struct vx_region_said said;
    struct vx_peer owner = rig_peer(1);
    i32 cursor = 0;
    ck_assert(vx_regions_next(rig_regions, &owner, VX_REGION_DEVICE, &cursor, &said));
    ck_assert_int_eq(said.device, 1);
    vx_regions_remove(rig_regions, &owner, VX_REGION_DEVICE, "");
    rig_step();
    ck_assert_int_eq(rig_told_of(VX_MESSAGE_UNMAP, 1), 1);
    ck_assert_int_eq(rig_told_of(VX_MESSAGE_UNMAP, 0), 0);
    ck_assert_int_eq(rig_counts().regions[VX_REGION_DEVICE], 0);
}
END_TEST

/* What the client states about it is copied into the message to the worker, which
 * accepts no other. */
START_TEST(a_device_region_has_bytes_that_a_memory_can_have)
{
    static const u64 sizes[] = {0, (u64)1 << 63, ((u64)1 << 63) + 4096, UINT64_MAX};
    u8 handle[VX_IPC_HANDLE_BYTES] = {1};
    struct vx_peer peer = rig_peer(1);
    struct vx_region_wanted wanted = {.name = "d", .handle = handle, .device = 1};
    for (size_t i = 0; i < VX_COUNT(sizes); i++) {
        wanted.bytes = sizes[i];
        vx_status st = vx_regions_add_device(rig_regions, &peer, &wanted, &one, &rig_why);
        ck_assert_int_eq(vx_status_code(st), VX_CODE_INVALID_ARGUMENT);
    }
    ck_assert_int_eq(rig_told_count, 0);
    wanted.bytes = INT64_MAX;
    ck_assert(!vx_regions_add_device(rig_regions, &peer, &wanted, &one, &rig_why).fault);
    ck_assert_uint_eq(rig_told[0].map.bytes, INT64_MAX);
}
END_TEST

START_TEST(a_device_region_that_cannot_be_is_refused)
{
    static const struct {
        i64 device;
        enum vx_code code;
    } cases[] = {
        {0, VX_CODE_INVALID_ARGUMENT}, /* a CPU's worker */
        {-1, VX_CODE_INVALID_ARGUMENT},
        {2, VX_CODE_INVALID_ARGUMENT},
        {INT64_MAX, VX_CODE_INVALID_ARGUMENT},
        {INT64_MIN, VX_CODE_INVALID_ARGUMENT},
        {5, VX_CODE_UNAVAILABLE}, /* down */
    };
    for (size_t i = 0; i < VX_COUNT(cases); i++)
        ck_assert_int_eq(rig_add_device(1, "d", cases[i].device, &one), cases[i].code);
    ck_assert_int_eq(rig_counts().regions[VX_REGION_DEVICE], 0);
    ck_assert_int_eq(rig_add_device(1, "d", 1, &one), VX_CODE_OK);
    rig_mapped(&rig_told[0], VX_CODE_INVALID_ARGUMENT);
    ck_assert_ptr_eq(rig_waiter, &one);
    ck_assert_int_eq(rig_added, VX_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(rig_why.text, "as the test wants");
    rig_step();
    ck_assert_int_eq(rig_counts().regions[VX_REGION_DEVICE], 0);
    ck_assert_int_eq(rig_told_of(VX_MESSAGE_UNMAP, -1), 0);
    rig_infos[1].device = "cpu"; /* no GPU at all */
    rig_infos[2].device = "cpu";
    ck_assert(!vx_regions_serve(rig_regions, VX_REGION_DEVICE));
    ck_assert(vx_regions_serve(rig_regions, VX_REGION_SYSTEM));
    ck_assert_int_eq(rig_add_device(1, "d", 1, &one), VX_CODE_UNIMPLEMENTED);
}
END_TEST

/* How a registration may end before its device has answered. */
enum { WORKER_DIES, IS_REMOVED, OWNER_GOES, WAITER_LEAVES, WAS_GONE, ENDS_COUNT };

START_TEST(a_registration_that_is_overtaken_ends_once)
{
    struct vx_peer owner = rig_peer(1);
    if (_i == WAS_GONE) rig_dead = 1;
    ck_assert_int_eq(rig_add_device(1, "d", 1, &one), VX_CODE_OK);
    if (_i == WORKER_DIES) vx_regions_on_worker_down(rig_regions, 1);
    if (_i == IS_REMOVED) vx_regions_remove(rig_regions, &owner, VX_REGION_DEVICE, "d");
    if (_i == OWNER_GOES) vx_regions_owner_gone(rig_regions, 1);
    if (_i == WAITER_LEAVES) ck_assert(vx_regions_forget(rig_regions, &one));
    ck_assert(!vx_regions_forget(rig_regions, &two));
    rig_step();
    if (_i == WAITER_LEAVES) {
        ck_assert_ptr_null(rig_waiter);
    } else {
        ck_assert_ptr_eq(rig_waiter, &one);
        ck_assert_int_eq(rig_added,
                         _i == WORKER_DIES ? VX_CODE_UNAVAILABLE : VX_CODE_CANCELLED);
    }
    ck_assert_int_eq(rig_counts().regions[VX_REGION_DEVICE], _i != WORKER_DIES);
    rig_waiter = NULL;
    rig_mapped(&rig_told[0], VX_CODE_OK); /* it was opened all the same */
    ck_assert_int_eq(rig_use(1, "d", 0, 1, &use), VX_CODE_NOT_FOUND);
    ck_assert(!vx_regions_forget(rig_regions, &one));
    rig_step();
    ck_assert_ptr_null(rig_waiter);
    ck_assert_int_eq(rig_counts().regions[VX_REGION_DEVICE], 0);
    ck_assert_int_eq(rig_told_of(VX_MESSAGE_UNMAP, 1), _i != WORKER_DIES);
}
END_TEST

START_TEST(a_device_that_was_restarted_opens_it_again)
{
    ck_assert_int_eq(rig_add_device(1, "d", 1, &one), VX_CODE_OK);
    rig_mapped(&rig_told[0], VX_CODE_OK);
    rig_waiter = NULL;
    restart(1);
    ck_assert_int_eq(rig_told_of(VX_MESSAGE_MAP, 1), 2);
    ck_assert_int_eq(rig_use(1, "d", 0, 1, &use), VX_CODE_OK); /* the request waits */
    rig_mapped(&rig_told[1], VX_CODE_INVALID_ARGUMENT); /* its owner's process is gone */
    ck_assert(vx_regions_broken(rig_regions, &use));
    vx_regions_done(rig_regions, &use);
    ck_assert_int_eq(rig_use(1, "d", 0, 1, &use), VX_CODE_FAILED_PRECONDITION);
    ck_assert_uint_eq(rig_counts().broken, 1);
    restart(1);
    rig_mapped(&rig_told[2], VX_CODE_OK);
    ck_assert_int_eq(rig_use(1, "d", 0, 1, &use), VX_CODE_OK);
    vx_regions_done(rig_regions, &use);
    ck_assert_ptr_null(rig_waiter); /* no client waits any more */
}
END_TEST

/* ------- many ------- */

static i32 entries_of(const char *folder)
{
    i32 count = 0;
    DIR *listed = opendir(folder);
    ck_assert_ptr_nonnull(listed);
    while (readdir(listed)) count++;
    closedir(listed);
    return count;
}

/* Of the objects of these tests. */
static i32 mappings(void)
{
    i32 count = 0;
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "re");
    ck_assert_ptr_nonnull(maps);
    while (fgets(line, sizeof line, maps)) count += strstr(line, "vx-regions-") != NULL;
    ck_assert_int_eq(fclose(maps), 0);
    return count;
}

/* 10,000 registrations, removed in every possible way. */
START_TEST(nothing_is_left_of_many)
{
    char name[16];
    u8 copy[64];
    u64 connection = 1;
    rig_object("r", 1 << 16);
    i32 fds = entries_of("/proc/self/fd"), most = 0;
    for (i32 i = 0; i < 10000; i++) {
        rig_told_count = 0;
        struct vx_peer owner = rig_peer(connection);
        bool by_name = i % 3 == 0, is_used = i % 5 == 0;
        snprintf(name, sizeof name, "r");
        ck_assert_int_eq(rig_add(connection, name, (u64)i % 4096, 4096), VX_CODE_OK);
        if (i % 2) rig_mapped_all(0);
        if (i % 1000 == 0 && mappings() > most) most = mappings();
        if (is_used) {
            ck_assert_int_eq(rig_use(connection, name, 64, 64, &use), VX_CODE_OK);
            ck_assert(vx_regions_read(rig_regions, &use, copy));
        }
        if (i % 3 == 1)
            vx_regions_owner_gone(rig_regions, connection++);
        else
            vx_regions_remove(rig_regions, &owner, VX_REGION_SYSTEM, by_name ? name : "");
        rig_step();
        vx_regions_done(rig_regions, &use);
        if (!(i % 2)) rig_mapped_all(0);
        if (i % 7 == 0) restart(i % 2);
        rig_step();
        ck_assert_int_eq(rig_counts().regions[VX_REGION_SYSTEM], 0);
    }
    ck_assert_int_eq(entries_of("/proc/self/fd"), fds);
    ck_assert_int_eq(most, 1); /* it is found while it is there */
    ck_assert_int_eq(mappings(), 0);
    struct vx_regions_counts counts = rig_counts();
    ck_assert_int_eq(counts.uses, 0);
    ck_assert_uint_eq(counts.bytes, 0);
    ck_assert_uint_eq(counts.registered, 10000);
    rig_drop_object("r");
}
END_TEST

/* Threads use regions that the loop adds and removes, while connections end. */
enum { USERS = 3, TURNS = 2000 };
static atomic_bool stop;
static atomic_int uses;

static void *use_all_the_time(void *context)
{
    u64 connection = *(const u64 *)context;
    static _Thread_local u8 copy[8192];
    struct vx_peer peer = {.connection = connection, .kind = VX_PEER_UNIX};
    struct vx_request_region piece = {.name = "r", .offset = 64, .bytes = sizeof copy};
    for (u64 i = 0; !atomic_load(&stop); i++) {
        struct vx_place mine;
        struct vx_why why;
        if (!vx_regions_use(rig_regions, &peer, &piece, &why, &mine).fault) {
            bool whole = vx_regions_read(rig_regions, &mine, copy);
            ck_assert(whole || vx_regions_broken(rig_regions, &mine));
            vx_regions_done(rig_regions, &mine);
            atomic_fetch_add(&uses, 1);
        }
        if (i % 64 == 0) vx_regions_owner_gone(rig_regions, connection);
    }
    return NULL;
}

START_TEST(threads_use_what_the_loop_gives_and_takes)
{
    pthread_t users[USERS];
    u64 connections[USERS];
    rig_object("r", 1 << 14);
    for (i32 i = 0; i < USERS; i++) {
        connections[i] = (u64)i + 1;
        ck_assert(!pthread_create(&users[i], NULL, use_all_the_time, &connections[i]));
    }
    for (i32 turn = 0; turn < TURNS || !atomic_load(&uses); turn++) {
        u64 connection = (u64)turn % USERS + 1;
        struct vx_peer owner = rig_peer(connection);
        rig_told_count = 0;
        enum vx_code code = rig_add(connection, "r", 0, 1 << 14);
        ck_assert(code == VX_CODE_OK || code == VX_CODE_ALREADY_EXISTS ||
                  code == VX_CODE_RESOURCE_EXHAUSTED || code == VX_CODE_INVALID_ARGUMENT);
        rig_mapped_all(0);
        if (turn % 50 == 0) { /* and the object is cut */
            rig_resize("r", 100);
            rig_resize("r", 1 << 14);
        }
        if (turn % 2) vx_regions_remove(rig_regions, &owner, VX_REGION_SYSTEM, "r");
        rig_step();
    }
    atomic_store(&stop, true);
    for (i32 i = 0; i < USERS; i++) ck_assert(!pthread_join(users[i], NULL));
    for (u64 c = 1; c <= USERS; c++) vx_regions_owner_gone(rig_regions, c);
    rig_step();
    ck_assert_int_eq(rig_counts().regions[VX_REGION_SYSTEM], 0);
    ck_assert_int_eq(rig_counts().uses, 0);
    rig_drop_object("r");
}
END_TEST

START_TEST(what_a_worker_lost_is_refused_and_counted_once)
{
    struct vx_place other;
    rig_object("r", 8192);
    ck_assert_int_eq(rig_add(1, "r", 0, 8192), VX_CODE_OK);
    struct vx_place mine;
    ck_assert_int_eq(rig_use(1, "r", 0, 10, &mine), VX_CODE_OK);
    for (int i = 0; i < 3; i++) vx_regions_lost(rig_regions, &mine);
    ck_assert_int_eq(rig_use(1, "r", 0, 10, &other), VX_CODE_FAILED_PRECONDITION);
    ck_assert_uint_eq(rig_counts().broken, 1);
    vx_regions_done(rig_regions, &mine);
    rig_drop_object("r");
}
END_TEST

START_TEST(of_two_workers_on_one_gpu_the_one_that_is_up_is_asked)
{
    int waiter;
    rig_infos[0].device = "cuda:5";
    for (i32 up = 0; up <= 2; up += 2) {
        rig_infos[0].state = up == 0 ? VX_WORKER_UP : VX_WORKER_DOWN;
        rig_infos[2].state = up == 2 ? VX_WORKER_UP : VX_WORKER_DOWN;
        rig_told_count = 0;
        ck_assert_int_eq(rig_add_device(1, up ? "b" : "a", 5, &waiter), VX_CODE_OK);
        ck_assert_int_eq(rig_told_count, 1);
        ck_assert_int_eq(rig_told[0].worker, up);
        ck_assert(vx_regions_forget(rig_regions, &waiter));
        rig_mapped_all(0);
        rig_step();
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("regions_life");
    TCase *tests = tcase_create("life");
    tcase_add_checked_fixture(tests, setup, rig_tear_down);
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, a_worker_that_comes_up_gets_every_region_that_is_needed);
    tcase_add_test(tests, what_a_worker_lost_is_refused_and_counted_once);
    tcase_add_test(tests, of_two_workers_on_one_gpu_the_one_that_is_up_is_asked);
    tcase_add_test(tests, a_late_word_about_an_earlier_use_is_not_believed);
    tcase_add_test(tests, a_worker_that_cannot_map_leaves_the_others_as_they_are);
    tcase_add_test(tests, a_device_region_goes_to_its_worker_alone);
    tcase_add_test(tests, memory_is_let_go_of_beside_the_loop);
    tcase_add_test(tests, a_device_region_that_cannot_be_is_refused);
    tcase_add_test(tests, a_device_region_has_bytes_that_a_memory_can_have);
    tcase_add_loop_test(tests, a_registration_that_is_overtaken_ends_once, 0, ENDS_COUNT);
    tcase_add_test(tests, a_device_that_was_restarted_opens_it_again);
    tcase_add_test(tests, nothing_is_left_of_many);
    tcase_add_test(tests, threads_use_what_the_loop_gives_and_takes);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
