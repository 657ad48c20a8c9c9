/* The lengths in HPACK's tables: which entries there are, and which have gone.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/govern/hpack_table.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* RFC 7541, appendix A. */
static const char *const statics[VX_HPACK_STATIC_COUNT][2] = {
    {":authority", ""},
    {":method", "GET"},
    {":method", "POST"},
    {":path", "/"},
    {":path", "/index.html"},
    {":scheme", "http"},
    {":scheme", "https"},
    {":status", "200"},
    {":status", "204"},
    {":status", "206"},
    {":status", "304"},
    {":status", "400"},
    {":status", "404"},
    {":status", "500"},
    {"accept-charset", ""},
    {"accept-encoding", "gzip, deflate"},
    {"accept-language", ""},
    {"accept-ranges", ""},
    {"accept", ""},
    {"access-control-allow-origin", ""},
    {"age", ""},
    {"allow", ""},
    {"authorization", ""},
    {"cache-control", ""},
    {"content-disposition", ""},
    {"content-encoding", ""},
    {"content-language", ""},
    {"content-length", ""},
    {"content-location", ""},
    {"content-range", ""},
    {"content-type", ""},
    {"cookie", ""},
    {"date", ""},
    {"etag", ""},
    {"expect", ""},
    {"expires", ""},
    {"from", ""},
    {"host", ""},
    {"if-match", ""},
    {"if-modified-since", ""},
    {"if-none-match", ""},
    {"if-range", ""},
    {"if-unmodified-since", ""},
    {"last-modified", ""},
    {"link", ""},
    {"location", ""},
    {"max-forwards", ""},
    {"proxy-authenticate", ""},
    {"proxy-authorization", ""},
    {"range", ""},
    {"referer", ""},
    {"refresh", ""},
    {"retry-after", ""},
    {"server", ""},
    {"set-cookie", ""},
    {"strict-transport-security", ""},
    {"transfer-encoding", ""},
    {"user-agent", ""},
    {"vary", ""},
    {"via", ""},
    {"www-authenticate", ""},
};

static void add(struct vx_hpack_table *table, u32 name, u32 value)
{
    vx_hpack_table_add(table, &(struct vx_hpack_field){.name = name, .value = value});
}

/* The newest entries, newest first; a name of 0 behind the last. */
static void expect(const struct vx_hpack_table *table, const u32 *names, u32 used)
{
    struct vx_hpack_field field;
    u32 count = 0;
    for (; names[count]; count++) {
        ck_assert(vx_hpack_table_find(table, 62 + count, &field));
        ck_assert_uint_eq(field.name, names[count]);
    }
    ck_assert_uint_eq(table->count, count);
    ck_assert_uint_eq(table->used, used);
    ck_assert(!vx_hpack_table_find(table, 62 + count, &field));
    ck_assert_uint_eq(field.name, 0);
}

START_TEST(places_of_the_static_table)
{
    struct vx_hpack_table table;
    struct vx_hpack_field field;
    vx_hpack_table_init(&table);
    for (u32 i = 0; i < VX_COUNT(statics); i++) {
        ck_assert(vx_hpack_table_find(&table, i + 1, &field));
        ck_assert_uint_eq(field.name, strlen(statics[i][0]));
        ck_assert_uint_eq(field.value, strlen(statics[i][1]));
        ck_assert(!field.binary);
    }
    ck_assert(!vx_hpack_table_find(&table, 0, &field));
    ck_assert(!vx_hpack_table_find(&table, 62, &field));
    ck_assert(!vx_hpack_table_find(&table, UINT32_MAX, &field));
}
END_TEST

START_TEST(oldest_entries_make_room)
{
    struct vx_hpack_table table;
    vx_hpack_table_init(&table);
    add(&table, 1000, 968); /* 2,000 with its 32 */
    add(&table, 1001, 1031);
    expect(&table, (u32[]){1001, 1000, 0}, 4064);
    add(&table, 32, 1); /* one byte more than is left */
    expect(&table, (u32[]){32, 1001, 0}, 2129);
    add(&table, 4000, 64); /* all of it */
    expect(&table, (u32[]){4000, 0}, 4096);
    add(&table, 4000, 65); /* more than all: nothing stays */
    expect(&table, (u32[]){0}, 0);
    add(&table, UINT32_MAX, UINT32_MAX);
    expect(&table, (u32[]){0}, 0);
}
END_TEST

START_TEST(size_that_the_client_chooses)
{
    struct vx_hpack_table table;
    vx_hpack_table_init(&table);
    for (u32 i = 1; i <= 4; i++) add(&table, i, 100 - 32 - i);
    vx_hpack_table_resize(&table, 300);
    expect(&table, (u32[]){4, 3, 2, 0}, 300);
    vx_hpack_table_resize(&table, 299);
    expect(&table, (u32[]){4, 3, 0}, 200);
    vx_hpack_table_resize(&table, 4097); /* gRPC refuses it */
    add(&table, 9, 100);
    expect(&table, (u32[]){9, 4, 0}, 241);
    vx_hpack_table_resize(&table, 0);
    expect(&table, (u32[]){0}, 0);
    add(&table, 1, 0);
    expect(&table, (u32[]){0}, 0);
    vx_hpack_table_resize(&table, 4096);
    add(&table, 5, 0);
    expect(&table, (u32[]){5, 0}, 37);
}
END_TEST

/* 128 entries without a text are the most, and the ring turns many times. */
START_TEST(table_is_full_of_entries)
{
    struct vx_hpack_table table;
    struct vx_hpack_field field;
    vx_hpack_table_init(&table);
    for (u32 i = 0; i < 1000; i++) {
        vx_hpack_table_add(&table, &(struct vx_hpack_field){.binary = i % 3 == 0});
        ck_assert_uint_eq(table.count, i < 128 ? i + 1 : 128);
    }
    for (u32 i = 0; i < 128; i++) {
        ck_assert(vx_hpack_table_find(&table, 62 + i, &field));
        ck_assert_int_eq(field.binary, (999 - i) % 3 == 0);
    }
    ck_assert(!vx_hpack_table_find(&table, 62 + 128, &field));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("hpack_table");
    TCase *tests = tcase_create("hpack_table");
    tcase_add_test(tests, places_of_the_static_table);
    tcase_add_test(tests, oldest_entries_make_room);
    tcase_add_test(tests, size_that_the_client_chooses);
    tcase_add_test(tests, table_is_full_of_entries);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
