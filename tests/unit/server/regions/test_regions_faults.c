/* regions: a registration that fails leaves nothing behind, and one that harms is not made again.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "server/ipc/foreign.h"
#include "tests/unit/server/regions/regions_rig.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static void setup(void)
{
    rig_set_up("unix");
}

static i32 descriptors(void)
{
    i32 count = 0;
    for (int fd = 3; fd < 1024; fd++) count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* When no further mapping fits, a try leaves nothing behind, however often it is made. */
START_TEST(a_region_that_cannot_be_mapped_leaves_nothing)
{
    static struct vx_foreign *others[VX_FOREIGN_MAX];
    char path[128];
    snprintf(path, sizeof path, "/dev/shm/%s", rig_object("r", 4096));
    int object = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(object, 0);
    i32 taken = 0;
    while (taken < VX_FOREIGN_MAX &&
           !vx_foreign_map(object, 0, 1, &rig_why, &others[taken]).fault)
        taken++;
    i32 fds = descriptors();
    for (u64 i = 1; i <= 3; i++)
        ck_assert_int_eq(rig_add(i, "r", 0, 4096), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(descriptors(), fds);
    ck_assert_int_eq(rig_counts().regions[VX_REGION_SYSTEM], 0);
    ck_assert_uint_eq(rig_counts().refused, 3);
    ck_assert_int_eq(rig_told_count, 0);
    vx_foreign_unmap(&others[0]);
    ck_assert_int_eq(rig_add(1, "r", 0, 4096), VX_CODE_OK);
    for (i32 i = 0; i < taken; i++) vx_foreign_unmap(&others[i]);
    close(object);
    rig_drop_object("r");
}
END_TEST

/* By then the object is open. */
START_TEST(an_object_that_is_refused_is_closed)
{
    struct vx_peer peer = rig_peer(1);
    struct vx_region_wanted wanted = {
        .name = "r", .key = rig_object("r", 4096), .bytes = _i ? 4096 : 4097};
    if (_i) peer.uid = geteuid() + 1000, peer.gid = getegid() + 1000;
    i32 fds = descriptors();
    vx_status st = vx_regions_add_system(rig_regions, &peer, &wanted, &rig_why);
    ck_assert_int_eq(vx_status_code(st),
                     _i ? VX_CODE_PERMISSION_DENIED : VX_CODE_INVALID_ARGUMENT);
    ck_assert_int_eq(descriptors(), fds);
    ck_assert_uint_eq(rig_counts().refused, 1);
    rig_drop_object("r");
}
END_TEST

/* Device memory is not the host's: only system regions count for client_shm_bytes. */
START_TEST(device_memory_is_not_counted_with_the_hosts)
{
    int waiter;
    rig_config.client_shm_bytes = 4096;
    ck_assert_int_eq(rig_add_device(1, "d", 1, &waiter), VX_CODE_OK);
    rig_mapped_all(0);
    rig_object("r", 4096);
    ck_assert_int_eq(rig_add(1, "r", 0, 4096), VX_CODE_OK);
    ck_assert_uint_eq(rig_counts().bytes, 4096);
    ck_assert_int_eq(rig_add(2, "r", 0, 1), VX_CODE_RESOURCE_EXHAUSTED);
    rig_drop_object("r");
}
END_TEST

static struct vx_place use;
static int one, two; /* waiters */

/* What may have ended a worker is not opened by the next process: one region, or all of the
 * worker.  Another region of it, a system region, and the same memory registered again are. */
START_TEST(a_region_that_is_condemned_is_opened_by_nobody)
{
    struct vx_peer owner = rig_peer(1);
    struct vx_place system;
    ck_assert_int_eq(rig_add_device(1, "d", 1, &one), VX_CODE_OK);
    rig_mapped(&rig_told[0], VX_CODE_OK);
    rig_waiter = NULL;
    ck_assert_int_eq(rig_add_device(1, "e", 1, &one), VX_CODE_OK);
    rig_mapped(&rig_told[1], VX_CODE_OK);
    rig_waiter = NULL;
    rig_object("r", 100);
    ck_assert_int_eq(rig_add(1, "r", 0, 100), VX_CODE_OK);
    rig_mapped_all(2);
    ck_assert_int_eq(rig_use(1, "d", 0, 1, &use), VX_CODE_OK);
    ck_assert_int_eq(rig_use(1, "r", 0, 1, &system), VX_CODE_OK);
    if (_i) {
        vx_regions_condemn_all(rig_regions, 0); /* another worker */
        ck_assert(!vx_regions_broken(rig_regions, &use));
        vx_regions_condemn_all(rig_regions, 1);
    } else {
        vx_regions_condemn(rig_regions, &use);
        vx_regions_condemn(rig_regions, &system);
    }
    ck_assert(vx_regions_broken(rig_regions, &use));
    ck_assert(!vx_regions_broken(rig_regions, &system));
    vx_regions_done(rig_regions, &use);
    vx_regions_done(rig_regions, &system);
    rig_told_count = 0;
    vx_regions_on_worker_down(rig_regions, 1);
    vx_regions_on_worker_up(rig_regions, 1);
    ck_assert_int_eq(rig_told_of(VX_MESSAGE_MAP, 1), _i ? 1 : 2);
    rig_mapped_all(0);
    ck_assert_int_eq(rig_use(1, "d", 0, 1, &use), VX_CODE_FAILED_PRECONDITION);
    ck_assert_str_eq(rig_why.text,
                     "the memory of shared memory region 'd' is gone: its worker "
                     "ended, and was started again without it; register it again");
    vx_regions_remove(rig_regions, &owner, VX_REGION_DEVICE, "d");
    rig_step();
    rig_told_count = 0;
    ck_assert_int_eq(rig_add_device(1, "d", 1, &two), VX_CODE_OK);
    rig_mapped(&rig_told[0], VX_CODE_OK);
    ck_assert_int_eq(rig_use(1, "d", 0, 1, &use), VX_CODE_OK);
    vx_regions_done(rig_regions, &use);
    rig_drop_object("r");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("regions_faults");
    TCase *tests = tcase_create("faults");
    tcase_add_checked_fixture(tests, setup, rig_tear_down);
    tcase_add_test(tests, a_region_that_cannot_be_mapped_leaves_nothing);
    tcase_add_loop_test(tests, an_object_that_is_refused_is_closed, 0, 2);
    tcase_add_test(tests, device_memory_is_not_counted_with_the_hosts);
    tcase_add_loop_test(tests, a_region_that_is_condemned_is_opened_by_nobody, 0, 2);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
