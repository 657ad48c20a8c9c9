/* regions: system shared memory - who may register what, names, references, the end.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/process/log.h"
#include "engine/base/process/thread.h"
#include "tests/unit/server/regions/regions_rig.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct vx_place use;

static void setup(void)
{
    rig_set_up("unix");
}

/* ------- who may register ------- */

static const struct {
    const char *client_shm;
    enum vx_peer_kind kind;
    enum vx_code code;
} peers[] = {
    {"off", VX_PEER_UNIX, VX_CODE_UNIMPLEMENTED},
    {"unix", VX_PEER_UNIX, VX_CODE_OK},
    {"unix", VX_PEER_LOCAL, VX_CODE_PERMISSION_DENIED},
    {"unix", VX_PEER_REMOTE, VX_CODE_PERMISSION_DENIED},
    {"local", VX_PEER_UNIX, VX_CODE_OK},
    {"local", VX_PEER_LOCAL, VX_CODE_OK},
    {"local", VX_PEER_REMOTE, VX_CODE_PERMISSION_DENIED},
};

START_TEST(the_setting_says_who_may)
{
    vx_regions_close(&rig_regions);
    rig_set_up(peers[_i].client_shm);
    struct vx_peer peer = rig_peer(1);
    peer.kind = peers[_i].kind;
    struct vx_region_wanted wanted = {
        .name = "r", .key = rig_object("r", 100), .bytes = 100};
    vx_status st = vx_regions_add_system(rig_regions, &peer, &wanted, &rig_why);
    ck_assert_int_eq(vx_status_code(st), peers[_i].code);
    bool serves = strcmp(peers[_i].client_shm, "off") != 0;
    ck_assert_int_eq(vx_regions_serve(rig_regions, VX_REGION_SYSTEM), serves);
    ck_assert_int_eq(vx_regions_serve(rig_regions, VX_REGION_DEVICE), serves);
    ck_assert_uint_eq(rig_counts().refused, peers[_i].code != VX_CODE_OK);
    peer.connection = 0; /* an unknown connection */
    wanted.name = "s";
    ck_assert(vx_regions_add_system(rig_regions, &peer, &wanted, &rig_why).fault);
    rig_drop_object("r");
}
END_TEST

/* The object's mode, and which user registers: 1 = its owner, 2 = its group, 4 =
 * another. */
static const struct {
    mode_t mode;
    int may;
} modes[] = {
    {0600, 1}, {0400, 0}, {0200, 0}, {0660, 3}, {0640, 1},
    {0606, 5}, {0604, 1}, {0666, 7}, {0060, 2}, {0006, 4},
};

START_TEST(on_a_unix_socket_the_mode_says_who_may)
{
    struct vx_region_wanted wanted = {.name = "r", .bytes = 10};
    char key[64];
    snprintf(key, sizeof key, "/%s", rig_object("r", 10));
    wanted.key = key;
    int fd = shm_open(key, O_RDWR, 0);
    ck_assert(!fchmod(fd, modes[_i].mode));
    /* Without root's rights even the owner is bound by its mode, before the peer is
     * checked. */
    if (geteuid() && (modes[_i].mode & 0600) != 0600) {
        printf("SKIPPED mode %03o: not root\n", (unsigned)modes[_i].mode);
    } else {
        for (int who = 0; who < 3; who++) {
            struct vx_peer peer = rig_peer(1);
            if (!geteuid()) ck_assert(!fchown(fd, 1000, 1000));
            peer.uid = who == 0 ? (geteuid() ? geteuid() : 1000) : 4001;
            peer.gid = who == 1 ? (getegid() && geteuid() ? getegid() : 1000) : 4002;
            vx_status st = vx_regions_add_system(rig_regions, &peer, &wanted, &rig_why);
            ck_assert_int_eq(vx_status_code(st), modes[_i].may >> who & 1
                                                     ? VX_CODE_OK
                                                     : VX_CODE_PERMISSION_DENIED);
            vx_regions_remove(rig_regions, &peer, VX_REGION_SYSTEM, "");
        }
        struct vx_peer root = {.connection = 2, .kind = VX_PEER_UNIX, .uid = 0, .gid = 0};
        ck_assert(!vx_regions_add_system(rig_regions, &root, &wanted, &rig_why).fault);
    }
    close(fd);
    rig_drop_object("r");
}
END_TEST

/* ------- what may be registered ------- */

static const char *const bad_keys[] = {
    "",       "/",   ".",    "..",       "/.",      "/..",
    "a/b",    "//a", "/a/b", "../a",     "/../dev", "sem.a",
    "/sem.a", "a/",  "./a",  "/dev/shm", "/a/",     "/dev/shm/vx-none",
};

START_TEST(a_key_names_an_object_and_nothing_else)
{
    struct vx_peer peer = rig_peer(1);
    struct vx_region_wanted wanted = {.name = "r", .key = bad_keys[_i], .bytes = 10};
    vx_status st = vx_regions_add_system(rig_regions, &peer, &wanted, &rig_why);
    ck_assert_int_eq(vx_status_code(st), VX_CODE_INVALID_ARGUMENT);
    char longest[300];
    memset(longest, 'k', sizeof longest);
    longest[256] = '\0';
    wanted.key = longest;
    st = vx_regions_add_system(rig_regions, &peer, &wanted, &rig_why);
    ck_assert_int_eq(vx_status_code(st), VX_CODE_INVALID_ARGUMENT);
    longest[255] = '\0';
    st = vx_regions_add_system(rig_regions, &peer, &wanted, &rig_why);
    ck_assert_int_eq(vx_status_code(st), VX_CODE_NOT_FOUND);
    ck_assert_int_eq(rig_told_count, 0);
}
END_TEST

START_TEST(a_region_is_inside_of_an_object)
{
    static const struct {
        u64 offset, bytes;
        enum vx_code code;
    } cases[] = {
        {0, 0, VX_CODE_INVALID_ARGUMENT},
        {0, 10001, VX_CODE_INVALID_ARGUMENT},
        {10000, 1, VX_CODE_INVALID_ARGUMENT},
        {9999, 2, VX_CODE_INVALID_ARGUMENT},
        {UINT64_MAX, 1, VX_CODE_INVALID_ARGUMENT},
        {UINT64_MAX, 2, VX_CODE_INVALID_ARGUMENT},
        {1, UINT64_MAX, VX_CODE_INVALID_ARGUMENT},
        {0, (u64)1 << 63, VX_CODE_INVALID_ARGUMENT},
        {(u64)1 << 63, 1, VX_CODE_INVALID_ARGUMENT},
        {1, INT64_MAX, VX_CODE_RESOURCE_EXHAUSTED},
        {9999, 1, VX_CODE_OK},
        {5000, 5000, VX_CODE_OK},
    };
    rig_object("r", 10000);
    for (size_t i = 0; i < VX_COUNT(cases); i++)
        ck_assert_int_eq(rig_add(i + 1, "r", cases[i].offset, cases[i].bytes),
                         cases[i].code);
    rig_drop_object("r");
    ck_assert_int_eq(rig_add(99, "r", 0, 1), VX_CODE_NOT_FOUND);
}
END_TEST

START_TEST(only_plain_objects_are_mapped)
{
    char path[128], link[140];
    snprintf(path, sizeof path, "/dev/shm/%s", rig_object("r", 100));
    rig_drop_object("r");
    ck_assert(!mkfifo(path, 0600));
    ck_assert_int_eq(rig_add(1, "r", 0, 10), VX_CODE_INVALID_ARGUMENT);
    ck_assert(!unlink(path));
    ck_assert(!mkdir(path, 0700));
    ck_assert_int_ne(rig_add(1, "r", 0, 10), VX_CODE_OK);
    ck_assert(!rmdir(path));
    rig_object("s", 100);
    snprintf(link, sizeof link, "/dev/shm/%s", "none");
    ck_assert(!symlink(link, path));
    ck_assert_int_eq(rig_add(1, "r", 0, 10), VX_CODE_PERMISSION_DENIED);
    ck_assert(!unlink(path));
    rig_drop_object("s");
    ck_assert_int_eq(rig_counts().regions[VX_REGION_SYSTEM], 0);
}
END_TEST

START_TEST(names_are_short_texts_and_unique_in_a_connection)
{
    char name[VX_WIRE_NAME_BYTES + 1];
    struct vx_peer peer = rig_peer(1);
    struct vx_region_wanted wanted = {
        .name = name, .key = rig_object("r", 100), .bytes = 100};
    static const char *const bad[] = {"", "a\nb", "\x7f", "\x1b[2J"};
    for (size_t i = 0; i < VX_COUNT(bad); i++) {
        strcpy(name, bad[i]);
        vx_status st = vx_regions_add_system(rig_regions, &peer, &wanted, &rig_why);
        ck_assert_int_eq(vx_status_code(st), VX_CODE_INVALID_ARGUMENT);
    }
    memset(name, 'n', sizeof name);
    name[VX_WIRE_NAME_BYTES] = '\0';
    vx_status st = vx_regions_add_system(rig_regions, &peer, &wanted, &rig_why);
    ck_assert_int_eq(vx_status_code(st), VX_CODE_INVALID_ARGUMENT);
    name[VX_WIRE_NAME_BYTES - 1] = '\0';
    ck_assert(!vx_regions_add_system(rig_regions, &peer, &wanted, &rig_why).fault);
    ck_assert_int_eq(rig_add(1, "r", 0, 10), VX_CODE_OK);
    ck_assert_int_eq(rig_add(1, "r", 0, 10), VX_CODE_ALREADY_EXISTS);
    ck_assert_str_eq(rig_why.text, "shared memory region 'r' already in manager");
    ck_assert_int_eq(rig_add(2, "r", 0, 10), VX_CODE_OK); /* another client's */
    rig_drop_object("r");
}
END_TEST

START_TEST(there_are_limits)
{
    char name[32];
    rig_object("r", 1 << 20);
    rig_config.client_shm_bytes = 1 << 20;
    ck_assert_int_eq(rig_add(1, "r", 0, (1 << 20) - 9), VX_CODE_OK);
    ck_assert_int_eq(rig_add(2, "r", 0, 10), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_int_eq(rig_add(2, "r", 0, 9), VX_CODE_OK);
    ck_assert_uint_eq(rig_counts().bytes, 1 << 20);
    vx_regions_owner_gone(rig_regions, 1);
    vx_regions_owner_gone(rig_regions, 2);
    rig_mapped_all(0);
    rig_step();
    ck_assert_uint_eq(rig_counts().bytes, 0);
    struct vx_peer peer = rig_peer(3);
    struct vx_region_wanted wanted = {.name = name, .key = NULL, .bytes = 1};
    rig_drop_object("r");
    wanted.key = rig_object("r", 100);
    for (i32 i = 0; i <= VX_REGIONS_MAX; i++) {
        snprintf(name, sizeof name, "r%d", i);
        peer.connection = 3 + (u64)i / VX_REGIONS_OWNER_MAX;
        i32 from = rig_told_count;
        vx_status st = vx_regions_add_system(rig_regions, &peer, &wanted, &rig_why);
        ck_assert_int_eq(vx_status_code(st),
                         i < VX_REGIONS_MAX ? VX_CODE_OK : VX_CODE_RESOURCE_EXHAUSTED);
        if (i % 4) rig_mapped_all(from); /* else too many answers would be outstanding */
    }
    vx_regions_owner_gone(rig_regions, 4); /* a quarter of them is not mapped yet */
    rig_step();
    ck_assert_int_eq(rig_counts().regions[VX_REGION_SYSTEM], VX_REGIONS_MAX - 48);
    peer.connection = 3; /* at its own limit, though there is room */
    vx_status st = vx_regions_add_system(rig_regions, &peer, &wanted, &rig_why);
    ck_assert_int_eq(vx_status_code(st), VX_CODE_RESOURCE_EXHAUSTED);
    rig_drop_object("r");
}
END_TEST

/* A busy worker has a limited number of messages waiting for it. */
START_TEST(a_busy_worker_is_not_flooded)
{
    char name[32];
    struct vx_peer peer = rig_peer(1);
    struct vx_region_wanted wanted = {
        .name = name, .key = rig_object("r", 100), .bytes = 1};
    vx_status st = VX_OK;
    i32 added = 0;
    for (; added < VX_REGIONS_MAX && !st.fault; added++) {
        snprintf(name, sizeof name, "r%d", added);
        peer.connection = 1 + (u64)added / VX_REGIONS_OWNER_MAX;
        st = vx_regions_add_system(rig_regions, &peer, &wanted, &rig_why);
    }
    ck_assert_int_eq(vx_status_code(st), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_int_lt(added, VX_REGIONS_MAX);
    for (u64 c = 1; c <= peer.connection; c++) vx_regions_owner_gone(rig_regions, c);
    rig_step();
    ck_assert_int_eq(rig_told_of(VX_MESSAGE_UNMAP, -1), 0); /* not yet */
    rig_mapped_all(0);
    ck_assert(!vx_regions_add_system(rig_regions, &peer, &wanted, &rig_why).fault);
    rig_step();
    ck_assert_int_eq(rig_told_of(VX_MESSAGE_UNMAP, -1), 2 * (added - 1));
    rig_drop_object("r");
}
END_TEST

/* Registers and unregisters as often as possible, while no worker answers.  Returns
 * how often. */
static i32 flood(u64 connection)
{
    struct vx_peer peer = rig_peer(connection);
    for (i32 i = 0;; i++) {
        enum vx_code code = rig_add(connection, "r", 0, 10);
        if (code == VX_CODE_RESOURCE_EXHAUSTED) return i;
        ck_assert_int_eq(code, VX_CODE_OK);
        ck_assert_int_lt(i, VX_REGIONS_MAX);
        vx_regions_remove(rig_regions, &peer, VX_REGION_SYSTEM, "r");
        rig_step();
    }
}

START_TEST(no_connection_keeps_others_out_of_a_busy_worker)
{
    rig_object("r", 100);
    i32 first = flood(1), second = flood(2), third = flood(3);
    ck_assert_int_ge(second, 16);
    ck_assert_int_gt(first, second);
    ck_assert_int_gt(second, third);
    ck_assert_int_eq(rig_add(4, "r", 0, 10), VX_CODE_OK);
    rig_mapped_all(0);
    rig_step();
    ck_assert_int_eq(rig_add(1, "r", 0, 10), VX_CODE_OK);
    rig_drop_object("r");
}
END_TEST

/* ------- life ------- */

START_TEST(a_region_is_its_connections_alone)
{
    rig_object("r", 1000);
    ck_assert_int_eq(rig_add(1, "r", 100, 800), VX_CODE_OK);
    ck_assert_int_eq(rig_told_count, 2);
    for (i32 w = 0; w < 2; w++) {
        ck_assert_int_eq(rig_told[w].kind, VX_MESSAGE_MAP);
        ck_assert_int_eq(rig_told[w].worker, w);
        ck_assert_uint_eq(rig_told[w].object_bytes, 1000);
        ck_assert_uint_eq(rig_told[w].map.offset, 100);
        ck_assert_uint_eq(rig_told[w].map.bytes, 800);
        ck_assert_int_eq(rig_told[w].map.on_device, 0);
    }
    ck_assert_int_eq(rig_use(2, "r", 0, 10, &use), VX_CODE_NOT_FOUND);
    ck_assert_str_eq(rig_why.text, "Unable to find shared memory region: 'r'");
    struct vx_peer other = rig_peer(2), owner = rig_peer(1);
    struct vx_region_said said;
    i32 cursor = 0;
    ck_assert(!vx_regions_next(rig_regions, &other, VX_REGION_SYSTEM, &cursor, &said));
    vx_regions_remove(rig_regions, &other, VX_REGION_SYSTEM, "r");
    vx_regions_remove(rig_regions, &other, VX_REGION_SYSTEM, "");
    vx_regions_remove(rig_regions, &owner, VX_REGION_DEVICE, "r");
    vx_regions_owner_gone(rig_regions, 2);
    cursor = 0;
    ck_assert(vx_regions_next(rig_regions, &owner, VX_REGION_SYSTEM, &cursor, &said));
    ck_assert_str_eq(said.name, "r");
    ck_assert_ptr_nonnull(strstr(said.key, "vx-regions-"));
    ck_assert_uint_eq(said.offset, 100);
    ck_assert_uint_eq(said.bytes, 800);
    ck_assert(!vx_regions_next(rig_regions, &owner, VX_REGION_SYSTEM, &cursor, &said));
    ck_assert_int_eq(rig_use(1, "r", 0, 800, &use), VX_CODE_OK);
    ck_assert_int_eq(use.region, rig_told[0].region);
    ck_assert_int_eq(use.kind, VX_PLACE_SYSTEM);
    vx_regions_done(rig_regions, &use);
    ck_assert_int_eq(use.region, 0);
    vx_regions_done(rig_regions, &use); /* none */
    rig_drop_object("r");
}
END_TEST

START_TEST(a_piece_is_inside_of_its_region)
{
    static const struct {
        u64 offset, bytes;
        bool fits;
    } pieces[] = {
        {0, 800, true},         {800, 0, true},         {799, 1, true},
        {0, 801, false},        {800, 1, false},        {801, 0, false},
        {UINT64_MAX, 2, false}, {1, UINT64_MAX, false}, {UINT64_MAX - 1, 1, false},
    };
    rig_object("r", 1000);
    ck_assert_int_eq(rig_add(1, "r", 100, 800), VX_CODE_OK);
    for (size_t i = 0; i < VX_COUNT(pieces); i++) {
        ck_assert_int_eq(rig_use(1, "r", pieces[i].offset, pieces[i].bytes, &use),
                         pieces[i].fits ? VX_CODE_OK : VX_CODE_INVALID_ARGUMENT);
        ck_assert_int_eq(use.region != 0, pieces[i].fits);
        vx_regions_done(rig_regions, &use);
    }
    ck_assert_int_eq(rig_counts().uses, 0);
    rig_drop_object("r");
}
END_TEST

/* Unregistered, or its owner gone, while a request uses it. */
START_TEST(who_is_in_use_goes_with_the_last_use)
{
    struct vx_place second;
    struct vx_peer owner = rig_peer(1);
    u8 copy[4] = {9, 9, 9, 9};
    rig_object("r", 1000);
    ck_assert_int_eq(rig_add(1, "r", 0, 1000), VX_CODE_OK);
    rig_mapped_all(0);
    ck_assert_int_eq(rig_use(1, "r", 0, 4, &use), VX_CODE_OK);
    ck_assert_int_eq(rig_use(1, "r", 8, 4, &second), VX_CODE_OK);
    if (_i)
        vx_regions_owner_gone(rig_regions, 1);
    else
        vx_regions_remove(rig_regions, &owner, VX_REGION_SYSTEM, "r");
    ck_assert_int_eq(rig_rings, _i);
    rig_drop_object("r"); /* the object's name is not needed either */
    ck_assert_int_eq(rig_use(1, "r", 0, 4, &(struct vx_place){0}), VX_CODE_NOT_FOUND);
    rig_step();
    ck_assert_int_eq(rig_counts().regions[VX_REGION_SYSTEM], 1);
    ck_assert(vx_regions_read(rig_regions, &use, copy));
    ck_assert_int_eq(copy[0], 0);
    rig_object("r", 1000); /* the name is free */
    ck_assert_int_eq(rig_add(1, "r", 0, 10), VX_CODE_OK);
    vx_regions_done(rig_regions, &use);
    rig_step();
    ck_assert_int_eq(rig_told_of(VX_MESSAGE_UNMAP, -1), 0);
    i32 rings = rig_rings;
    vx_regions_done(rig_regions, &second);
    ck_assert_int_eq(rig_rings, rings + 1);
    rig_step();
    ck_assert_int_eq(rig_told_of(VX_MESSAGE_UNMAP, 0), 1);
    ck_assert_int_eq(rig_told_of(VX_MESSAGE_UNMAP, 1), 1);
    ck_assert_int_eq(rig_counts().regions[VX_REGION_SYSTEM], 1);
    rig_drop_object("r");
}
END_TEST

START_TEST(what_its_client_cuts_is_lost_for_good)
{
    static u8 copy[8192];
    struct vx_place first;
    rig_object("r", 8192);
    ck_assert_int_eq(rig_add(1, "r", 0, 8192), VX_CODE_OK);
    ck_assert_int_eq(rig_use(1, "r", 0, 8192, &first), VX_CODE_OK);
    ck_assert(vx_regions_read(rig_regions, &first, copy));
    rig_resize("r", 100);
    ck_assert(!vx_regions_broken(rig_regions, &first)); /* nothing was read yet */
    ck_assert(!vx_regions_read(rig_regions, &first, copy));
    ck_assert(vx_regions_broken(rig_regions, &first));
    rig_resize("r", 8192);
    ck_assert_int_eq(rig_use(1, "r", 0, 10, &use), VX_CODE_FAILED_PRECONDITION);
    vx_regions_done(rig_regions, &first);
    ck_assert_uint_eq(rig_counts().broken, 1);
    struct vx_peer owner = rig_peer(1);
    vx_regions_remove(rig_regions, &owner, VX_REGION_SYSTEM, "");
    ck_assert_int_eq(rig_add(1, "r", 0, 8192), VX_CODE_OK);
    ck_assert_int_eq(rig_use(1, "r", 0, 8192, &use), VX_CODE_OK);
    ck_assert(vx_regions_read(rig_regions, &use, copy));
    vx_regions_done(rig_regions, &use);
    rig_drop_object("r");
}
END_TEST

/* The news that the connection ended came before the call. */
START_TEST(who_is_gone_leaves_nothing_behind)
{
    rig_object("r", 1000);
    rig_dead = 1;
    vx_regions_owner_gone(rig_regions, 1);
    ck_assert_int_eq(rig_add(1, "r", 0, 1000), VX_CODE_CANCELLED);
    rig_mapped_all(0);
    rig_step();
    ck_assert_int_eq(rig_counts().regions[VX_REGION_SYSTEM], 0);
    ck_assert_int_eq(rig_told_of(VX_MESSAGE_UNMAP, -1), 2);
    rig_drop_object("r");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("regions");
    TCase *tests = tcase_create("system");
    tcase_add_checked_fixture(tests, setup, rig_tear_down);
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, the_setting_says_who_may, 0, (int)VX_COUNT(peers));
    tcase_add_loop_test(tests, on_a_unix_socket_the_mode_says_who_may, 0,
                        (int)VX_COUNT(modes));
    tcase_add_loop_test(tests, a_key_names_an_object_and_nothing_else, 0,
                        (int)VX_COUNT(bad_keys));
    tcase_add_test(tests, a_region_is_inside_of_an_object);
    tcase_add_test(tests, only_plain_objects_are_mapped);
    tcase_add_test(tests, names_are_short_texts_and_unique_in_a_connection);
    tcase_add_test(tests, there_are_limits);
    tcase_add_test(tests, a_busy_worker_is_not_flooded);
    tcase_add_test(tests, no_connection_keeps_others_out_of_a_busy_worker);
    tcase_add_test(tests, a_region_is_its_connections_alone);
    tcase_add_test(tests, a_piece_is_inside_of_its_region);
    tcase_add_loop_test(tests, who_is_in_use_goes_with_the_last_use, 0, 2);
    tcase_add_test(tests, what_its_client_cuts_is_lost_for_good);
    tcase_add_test(tests, who_is_gone_leaves_nothing_behind);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
