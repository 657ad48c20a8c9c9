/* room: which limits are enough for which settings, and which sentence reports that they
 * are not.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/front/room.h"
#include "server/http/http.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define GIB ((i64)1 << 30)

static const struct vx_room any = {VX_ROOM_ANY, VX_ROOM_ANY, VX_ROOM_ANY, VX_ROOM_ANY,
                                   VX_ROOM_ANY, VX_ROOM_ANY, ""};

/* Of two processors: arena 2 GiB, device 4 GiB, cache 512 MiB, one thread of a cpu each. */
static const struct {
    const char *device;
    size_t field;
    i64 enough; /* one less is refused */
    const char *limit, *setting;
} table[] = {
    {"cpu", offsetof(struct vx_room, files), 288, "RLIMIT_NOFILE", "connection"},
    {"cpu,cpu,cpu", offsetof(struct vx_room, files), 288, "RLIMIT_NOFILE", "3 worker"},
    {"cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu",
     offsetof(struct vx_room, files), 320, "RLIMIT_NOFILE", "16 worker"},
    {"cpu", offsetof(struct vx_room, file_bytes), 2 * GIB, "RLIMIT_FSIZE",
     "--arena-bytes"},
    {"cpu", offsetof(struct vx_room, address_bytes),
     6 * GIB + GIB / 2 + (256 + 6 * 80) * (i64)1048576, "RLIMIT_AS", "cache_bytes"},
    {"cpu", offsetof(struct vx_room, data_bytes),
     4 * GIB + GIB / 2 + (256 + 6 * 80) * (i64)1048576, "RLIMIT_DATA", "device_bytes"},
    {"cpu", offsetof(struct vx_room, threads), 13 + 2 + 6 + 6, "pids.max", "--threads"},
    {"cpu,cpu", offsetof(struct vx_room, threads), 13 + 2 + 6 + 12, "pids.max",
     "--rpc-threads"},
    {"cuda:0", offsetof(struct vx_room, memory_bytes), 2 * GIB + 256 * (i64)1048576,
     "limit of memory", "--arena-bytes"},
    {"cpu", offsetof(struct vx_room, memory_bytes), 0, "", ""},
};

START_TEST(each_limit_is_held_against_the_settings)
{
    struct vx_config config;
    struct vx_room room = any;
    struct vx_why why = {""};
    char number[32];
    vx_config_defaults(&config);
    strcpy(config.device, table[_i].device);
    i64 *limit = (i64 *)(void *)((char *)&room + table[_i].field);
    ck_assert(!vx_room_check(&config, 2, &any, &why).fault);
    *limit = table[_i].enough;
    if (table[_i].field == offsetof(struct vx_room, threads))
        room.threads_why = "pids.max";
    vx_status st = vx_room_check(&config, 2, &room, &why);
    ck_assert_msg(!st.fault, "%s", why.text);
    if (!table[_i].enough) return; /* no limit is too low */
    *limit -= 1;
    st = vx_room_check(&config, 2, &room, &why);
    ck_assert_int_eq(vx_status_code(st), VX_CODE_RESOURCE_EXHAUSTED);
    snprintf(number, sizeof number, "%lld", (long long)*limit);
    ck_assert_msg(strstr(why.text, table[_i].limit) != NULL, "%s", why.text);
    ck_assert_msg(strstr(why.text, table[_i].setting) != NULL, "%s", why.text);
    ck_assert_msg(strstr(why.text, number) != NULL, "%s", why.text);
    ck_assert_msg(strlen(why.text) < sizeof why.text - 1, "cut: %s", why.text);
}
END_TEST

/* The exporter of spans is one thread more. */
START_TEST(a_collector_needs_a_thread)
{
    struct vx_config config;
    struct vx_room room = any;
    struct vx_why why = {""};
    vx_config_defaults(&config);
    room.threads = 13 + 2 + 6 + 6;
    room.threads_why = "pids.max";
    ck_assert(!vx_room_check(&config, 2, &room, &why).fault);
    strcpy(config.otlp_endpoint, "http://127.0.0.1:4318");
    ck_assert(vx_room_check(&config, 2, &room, &why).fault);
    room.threads++;
    ck_assert(!vx_room_check(&config, 2, &room, &why).fault);
}
END_TEST

START_TEST(less_memory_than_settings_allow_is_said)
{
    struct vx_config config;
    struct vx_room room = any;
    struct vx_why why = {""};
    vx_config_defaults(&config);
    ck_assert(!vx_room_advise(&config, &room, &why));
    room.memory_bytes = 6 * GIB + GIB / 2;
    ck_assert(!vx_room_advise(&config, &room, &why));
    room.memory_bytes--;
    ck_assert(vx_room_advise(&config, &room, &why));
    ck_assert_ptr_nonnull(strstr(why.text, "6979321856")); /* what they allow */
    ck_assert_ptr_nonnull(strstr(why.text, "6979321855"));
    strcpy(config.device, "cuda:0"); /* device_bytes is the GPU's own memory */
    ck_assert(!vx_room_advise(&config, &room, &why));
}
END_TEST

/* files, connections_max, places of the admin port */
static const i64 places[][3] = {
    {288, 4096, VX_HTTP_CONNECTIONS_MIN},
    {512, 4096, VX_HTTP_CONNECTIONS_MIN},
    {1024, 4096, 144},
    {4096, 4096, VX_HTTP_CONNECTIONS_MAX},
    {1 << 18, 65536, VX_HTTP_CONNECTIONS_MAX},
    {VX_ROOM_ANY, 4096, VX_HTTP_CONNECTIONS_MAX},
};

START_TEST(the_admin_port_takes_what_the_other_leaves)
{
    ck_assert_int_eq(vx_room_admin_connections(places[_i][0], places[_i][1]),
                     places[_i][2]);
}
END_TEST

START_TEST(this_system_is_asked)
{
    struct vx_room room;
    vx_room_get(&room);
    ck_assert_int_gt(room.files, 0);
    ck_assert_int_gt(room.memory_bytes, 1048576);
    ck_assert_int_lt(room.memory_bytes,
                     VX_ROOM_ANY); /* at least the machine has a limit */
    ck_assert_int_gt(room.threads, 0);
    ck_assert_int_eq(room.threads == VX_ROOM_ANY, !room.threads_why[0]);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("room");
    TCase *tests = tcase_create("room");
    tcase_add_test(tests, a_collector_needs_a_thread);
    tcase_add_loop_test(tests, each_limit_is_held_against_the_settings, 0,
                        (int)VX_COUNT(table));
    tcase_add_test(tests, less_memory_than_settings_allow_is_said);
    tcase_add_loop_test(tests, the_admin_port_takes_what_the_other_leaves, 0,
                        (int)VX_COUNT(places));
    tcase_add_test(tests, this_system_is_asked);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
