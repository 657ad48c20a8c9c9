/* regions: whether an object's owner, mode and access list permit a user to register it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "tests/unit/server/regions/regions_rig.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

static void setup(void)
{
    rig_set_up("unix");
}

/* Without root's rights an object cannot be given away. */
static enum vx_code add_as(struct vx_peer peer, mode_t mode, u32 uid, u32 gid)
{
    struct vx_region_wanted wanted = {.name = "r", .bytes = 10};
    char key[64];
    snprintf(key, sizeof key, "/%s", rig_object("r", 10));
    wanted.key = key;
    int fd = shm_open(key, O_RDWR, 0);
    ck_assert(!fchmod(fd, mode) && !fchown(fd, uid, gid));
    vx_status st = vx_regions_add_system(rig_regions, &peer, &wanted, &rig_why);
    vx_regions_remove(rig_regions, &peer, VX_REGION_SYSTEM, "");
    close(fd);
    rig_drop_object("r");
    return vx_status_code(st);
}

/* The first entry that matches the peer decides, whatever the later entries permit. */
START_TEST(groups_beside_its_own_count)
{
    if (geteuid()) {
        printf("SKIPPED groups of peers: not root\n");
        return;
    }
    struct vx_peer has = {.connection = 1,
                          .kind = VX_PEER_UNIX,
                          .uid = 4001,
                          .gid = 4002},
                   has_not = has;
    has_not.connection = 2;
    ck_assert_int_eq(add_as(has, 0060, 4003, RIG_GROUP), VX_CODE_OK);
    ck_assert_int_eq(add_as(has_not, 0060, 4003, RIG_GROUP), VX_CODE_PERMISSION_DENIED);
    ck_assert_int_eq(add_as(has, 0606, 4003, RIG_GROUP), VX_CODE_PERMISSION_DENIED);
    ck_assert_int_eq(add_as(has_not, 0606, 4003, RIG_GROUP), VX_CODE_OK);
    ck_assert_int_eq(add_as(has, 0066, 4001, RIG_GROUP), VX_CODE_PERMISSION_DENIED);
}
END_TEST

START_TEST(users_of_another_namespace_may_nothing)
{
    if (geteuid()) {
        printf("SKIPPED users of another namespace: not root\n");
        return;
    }
    struct vx_peer one = {
        .connection = 1, .kind = VX_PEER_UNIX, .uid = 4001, .gid = 4002};
    struct vx_peer user = {
        .connection = 1, .kind = VX_PEER_UNIX, .uid = 65534, .gid = 4002};
    struct vx_peer group = {
        .connection = 1, .kind = VX_PEER_UNIX, .uid = 4001, .gid = 65534};
    ck_assert_int_eq(add_as(user, 0666, 65534, 4002), VX_CODE_PERMISSION_DENIED);
    ck_assert_int_eq(add_as(group, 0666, 4003, 65534), VX_CODE_PERMISSION_DENIED);
    ck_assert_int_eq(add_as(one, 0666, 4003, 65534), VX_CODE_PERMISSION_DENIED);
    ck_assert_int_eq(add_as(one, 0666, 65534, 4003), VX_CODE_OK);
    ck_assert_int_eq(add_as(one, 0600, 4001, 65534), VX_CODE_OK);
}
END_TEST

/* A list that forbids one user what the mode's last three bits permit everybody. */
START_TEST(an_object_with_a_list_is_its_owners)
{
    static const struct {
        u32 version;
        struct {
            u16 tag, may;
            u32 id;
        } entries[5];
    } list = {2, {{1, 6, -1U}, {2, 0, 4001}, {4, 6, -1U}, {16, 6, -1U}, {32, 6, -1U}}};
    struct vx_region_wanted wanted = {.name = "r", .bytes = 10};
    char key[64];
    snprintf(key, sizeof key, "/%s", rig_object("r", 10));
    wanted.key = key;
    int fd = shm_open(key, O_RDWR, 0);
    if (fsetxattr(fd, "system.posix_acl_access", &list, sizeof list, 0)) {
        printf("SKIPPED lists of users: this kernel's shared memory has none: %m\n");
    } else {
        struct vx_peer other = {
            .connection = 1, .kind = VX_PEER_UNIX, .uid = 4001, .gid = 4002};
        struct vx_peer owner = {
            .connection = 1, .kind = VX_PEER_UNIX, .uid = geteuid(), .gid = getegid()};
        vx_status st = vx_regions_add_system(rig_regions, &other, &wanted, &rig_why);
        ck_assert_int_eq(vx_status_code(st), VX_CODE_PERMISSION_DENIED);
        if (!geteuid()) {
            ck_assert(!fchown(fd, 4003, 4004));
            owner.uid = 4003;
        }
        ck_assert(!vx_regions_add_system(rig_regions, &owner, &wanted, &rig_why).fault);
    }
    close(fd);
    rig_drop_object("r");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("regions_may");
    TCase *tests = tcase_create("regions_may");
    tcase_add_checked_fixture(tests, setup, rig_tear_down);
    tcase_add_test(tests, groups_beside_its_own_count);
    tcase_add_test(tests, users_of_another_namespace_may_nothing);
    tcase_add_test(tests, an_object_with_a_list_is_its_owners);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
