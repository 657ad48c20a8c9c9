/* The file of tokens: what is refused, with which sentence, and what good entries mean.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/access/access_table.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
/* The rest of an entry that has a name and a key. */
#define MAY ", \"models\": [\"*\"], \"methods\": [\"infer\"]}"

static struct vx_access_table table;
static struct vx_why why;

static vx_status parse(const char *text)
{
    static char copy[VX_ACCESS_FILE_BYTES_MAX];
    size_t length = strlen(text);
    ck_assert_uint_lt(length, sizeof copy);
    memcpy(copy, text, length);
    why.text[0] = '\0';
    return vx_access_table_parse(copy, length, &why, &table);
}

static void good(const char *text)
{
    vx_status st = parse(text);
    ck_assert_msg(!st.fault, "%s", vx_status_text(st, &why));
}

/* ------- what is refused ------- */

static const struct {
    const char *text, *sentence;
} bad[] = {
    {"", "line 1"},
    {"{", "line 1"},
    {"[]", "line 1, column 1: expected an object"},
    {"{}", "expected \"tokens\": [...]"},
    {"{\"tokens\": {}}", "expected a list"},
    {"{\"token\": []}", "unknown key 'token'; the nearest is \"tokens\""},
    {"{\"tokens\": [], \"more\": 1}", "unknown key 'more'"},
    {"{\"tokens\": [1]}", "expected an object"},
    {"{\"tokens\": [\n {}]}", "line 2, column 2: expected \"name\" in the entry"},
    {"{\"tokens\": [{\"name\": \"\"}]}", "expected a text of 1 to 47 bytes"},
    {"{\"tokens\": [{\"name\": \"a b\"}]}",
     "expected letters, digits and . _ -, got 'a b'"},
    {"{\"tokens\": [{\"name\": \"a\", \"sha256\": \"" A "\"" MAY ", {\"name\": \"a\"}]}",
     "expected each name once, got 'a' again"},
    {"{\"tokens\": [{\"name\": \"a\", \"sha256\": \"" A "\", \"models\": [\"*\"]}]}",
     "expected \"methods\" in the entry a"},
    {"{\"tokens\": [{\"name\": \"a\", \"sha256\": \"" A "\", \"methods\": [\"read\"]}]}",
     "expected \"models\" in the entry a"},
    {"{\"tokens\": [{\"name\": \"a\"" MAY "]}", "expected \"sha256\" in the entry a"},
    {"{\"tokens\": [{\"name\": \"a\", \"sha256\": []" MAY "]}",
     "expected \"sha256\" in the entry a"},
    {"{\"tokens\": [{\"name\": \"a\", \"sha256\": 5}]}",
     "expected the 64 hexadecimal digits"},
    {"{\"tokens\": [{\"name\": \"a\", \"sha256\": \"my-secret-token\"}]}",
     "expected the 64 hexadecimal digits of a token's SHA-256, got a text"},
    {"{\"tokens\": [{\"name\": \"a\", \"sha256\": [\"" A "\", \"" A "\"]}]}",
     "got one that 'a' has already"},
    {"{\"tokens\": [{\"name\": \"a\", \"sha256\": \"" A "\"" MAY
     ", {\"name\": \"b\", \"sha256\": \"" A "\"}]}",
     "got one that 'a' has already"},
    {"{\"tokens\": [{\"name\": \"a\", \"certificate\": \"\"}]}", "expected a subject"},
    {"{\"tokens\": [{\"name\": \"a\", \"certificate\": "
     "[\"1\", \"2\", \"3\", \"4\", \"5\"]}]}",
     "expected at most 4 tokens and certificates"},
    {"{\"tokens\": [{\"name\": \"a\", \"anyone\": 1}]}", "expected true or false"},
    {"{\"tokens\": [{\"name\": \"a\", \"anyone\": false" MAY "]}", "expected \"sha256\""},
    {"{\"tokens\": [{\"name\": \"a\", \"anyone\": true, \"sha256\": \"" A "\"" MAY "]}",
     "a: expected \"anyone\" without a token and a certificate"},
    {"{\"tokens\": [{\"name\": \"a\", \"anyone\": true" MAY
     ", {\"name\": \"b\", \"anyone\": true" MAY "]}",
     "expected one entry with \"anyone\", got two"},
    {"{\"tokens\": [{\"name\": \"a\", \"models\": \"*\"}]}", "expected a list"},
    {"{\"tokens\": [{\"name\": \"a\", \"models\": [\"\"]}]}", "1 to 127 bytes"},
    {"{\"tokens\": [{\"name\": \"a\", \"models\": [\"1\", \"2\", \"3\", \"4\", \"5\", "
     "\"6\", \"7\", \"8\", \"9\", \"a\", \"b\", \"c\", \"d\", \"e\", \"f\", \"g\", "
     "\"h\"]}]}",
     "models: expected at most 16"},
    {"{\"tokens\": [{\"name\": \"a\", \"methods\": [\"infr\"]}]}",
     "methods: expected a group of methods, got 'infr'; the nearest is \"infer\""},
    {"{\"tokens\": [{\"name\": \"a\", \"methods\": [true]}]}", "expected a text"},
    {"{\"tokens\": [{\"name\": \"a\", \"limits\": 5}]}", "expected an object"},
    {"{\"tokens\": [{\"name\": \"a\", \"limits\": {\"voxel\": {}}}]}",
     "unknown key 'voxel'; the nearest is \"voxels\""},
    {"{\"tokens\": [{\"name\": \"a\", \"limits\": {\"voxels\": {\"burst\": 5}}}]}",
     "voxels: expected \"per_second\""},
    {"{\"tokens\": [{\"name\": \"a\", \"limits\": {\"voxels\": {\"per_second\": 0}}}]}",
     "expected a number from 1e-06"},
    {"{\"tokens\": [{\"name\": \"a\", \"limits\": {\"voxels\": {\"per_second\": -1}}}]}",
     "expected a number from 1e-06"},
    {"{\"tokens\": [{\"name\": \"a\", \"limits\": {\"voxels\": {\"per_second\": 1, "
     "\"burst\": 0.5}}}]}",
     "expected a number from 1 to"},
    {"{\"tokens\": [{\"name\": \"a\", \"limits\": {\"voxels\": {\"per_minute\": 1}}}]}",
     "unknown key 'per_minute'"},
    {"{\"tokens\": [{\"name\": \"a\", \"expires\": \"tomorrow\"}]}",
     "expected a time in UTC such as 2027-01-31T00:00:00Z, got 'tomorrow'"},
    {"{\"tokens\": [{\"name\": \"a\", \"expires\": 5}]}", "expected a text"},
    {"{\"tokens\": [{\"name\": \"a\", \"nmae\": 5}]}", "unknown key 'nmae'"},
};

START_TEST(a_wrong_file_is_refused_with_its_place)
{
    vx_status st = parse(bad[_i].text);
    ck_assert_msg(st.fault != NULL, "accepted: %s", bad[_i].text);
    ck_assert_int_eq(vx_status_code(st), VX_CODE_INVALID_ARGUMENT);
    ck_assert_msg(strstr(why.text, bad[_i].sentence) != NULL, "%s: %s", bad[_i].text,
                  why.text);
    ck_assert_msg(!strncmp(why.text, "line ", 5), "%s", why.text);
    ck_assert_ptr_null(strstr(why.text, "my-secret-token"));
}
END_TEST

START_TEST(too_many_entries_are_refused)
{
    static char text[VX_ACCESS_FILE_BYTES_MAX];
    size_t used = (size_t)snprintf(text, sizeof text, "{\"tokens\": [");
    for (i32 e = 0; e <= VX_ACCESS_ENTRIES_MAX; e++) {
        size_t end = used;
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "%s\n{\"name\": \"t%d\", \"sha256\": \"%064x\"" MAY,
                                 e ? "," : "", e, e);
        if (e == VX_ACCESS_ENTRIES_MAX - 1) {
            strcpy(text + used, "]}");
            good(text);
            ck_assert_int_eq(table.entries_count, VX_ACCESS_ENTRIES_MAX);
            ck_assert_int_eq(table.keys_count, VX_ACCESS_ENTRIES_MAX);
            text[used] = '\0';
        }
        ck_assert_uint_lt(end, used);
    }
    strcpy(text + used, "]}");
    ck_assert(parse(text).fault);
    ck_assert_ptr_nonnull(strstr(why.text, "line 258, column 1: expected at most 256"));
}
END_TEST

/* ------- what good entries mean ------- */

START_TEST(an_entry_with_everything)
{
    good("// Who may ask.\n"
         "{\"tokens\": [\n"
         "  // cameras\n"
         "  {\"name\": \"street-cameras\", \"sha256\": [\"" A "\", \"" B "\"],\n"
         "   \"certificate\": \"CN=camera\", \"models\": [\"normals\", \"street-*\"],\n"
         "   \"methods\": [\"infer\", \"read\"],\n"
         "   \"limits\": {\"requests\": {\"per_second\": 0.5, \"burst\": 20},\n"
         "              \"bytes\": {\"per_second\": 5e7},\n"
         "              \"voxels\": {\"per_second\": 0.25}},\n"
         "   \"expires\": \"2001-09-09T01:46:40Z\"},\n"
         "  {\"name\": \"rest\", \"anyone\": true, \"models\": [\"demo\"],\n"
         "   \"methods\": [\"load\", \"settings\", \"memory\", \"admin\", \"health\"]}\n"
         "]}\n");
    ck_assert_int_eq(table.entries_count, 2);
    ck_assert_int_eq(table.keys_count, 3);
    ck_assert_int_eq(table.anyone, 1);
    const struct vx_access_entry *entry = &table.entries[0];
    ck_assert_str_eq(entry->name, "street-cameras");
    ck_assert_uint_eq(entry->groups, 1u << VX_ACCESS_INFER | 1u << VX_ACCESS_READ);
    ck_assert_int_eq(entry->expires_ms, INT64_C(1000000000000));
    ck_assert(entry->limits[VX_ACCESS_REQUESTS].per_s == 0.5);
    ck_assert(entry->limits[VX_ACCESS_REQUESTS].burst == 20);
    ck_assert(entry->limits[VX_ACCESS_BYTES].burst == 5e7);
    ck_assert(entry->limits[VX_ACCESS_VOXELS].burst == 1);
    ck_assert(table.entries[1].limits[VX_ACCESS_BYTES].per_s == 0);
    ck_assert_int_eq(table.entries[1].expires_ms, 0);
    ck_assert_int_eq(vx_access_table_named(&table, "rest"), 1);
    ck_assert_int_eq(vx_access_table_named(&table, "res"), -1);
}
END_TEST

START_TEST(every_key_finds_its_entry)
{
    struct vx_access_key key;
    good("{\"tokens\": [{\"name\": \"a\", \"certificate\": \"CN=x\"" MAY
         ", {\"name\": \"b\", \"sha256\": [\"" A "\", \"" B "\"]" MAY "]}");
    vx_access_key_of(VX_ACCESS_CERTIFICATE, "CN=x", 4, &key);
    ck_assert_int_eq(vx_access_table_find(&table, &key), 0);
    vx_access_key_of(VX_ACCESS_TOKEN, "CN=x", 4, &key); /* a subject is no token */
    ck_assert_int_eq(vx_access_table_find(&table, &key), -1);
    vx_access_key_of(VX_ACCESS_CERTIFICATE, "CN=xy", 5, &key);
    ck_assert_int_eq(vx_access_table_find(&table, &key), -1);
    ck_assert(vx_access_key_read(A, &key));
    ck_assert_int_eq(vx_access_table_find(&table, &key), 1);
    ck_assert(vx_access_key_read(B, &key));
    ck_assert_int_eq(vx_access_table_find(&table, &key), 1);
    good("{\"tokens\": []}");
    ck_assert_int_eq(vx_access_table_find(&table, &key), -1);
    ck_assert_int_eq(table.anyone, -1);
}
END_TEST

static const struct {
    const char *pattern, *model;
    bool has;
} patterns[] = {
    {"normals", "normals", true},
    {"normals", "normal", false},
    {"normals", "normals2", false},
    {"*", "", true},
    {"*", "anything", true},
    {"street-*", "street-", true},
    {"street-*", "street-7", true},
    {"street-*", "street", false},
    {"*-small", "net-small", true},
    {"*-small", "net-small-2", false},
    {"a*b*c", "a1b2b3c", true},
    {"a*b*c", "a1b2b3", false},
    {"v?", "v1", true},
    {"v?", "v", false},
    {"v?", "v12", false},
    {"**?", "x", true},
    {"[a]", "a", false},
    {"\\*", "*", false},
    {"*a*a*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
     false},
};

START_TEST(patterns_of_models)
{
    struct vx_access_entry entry = {.models_count = 1};
    snprintf(entry.models[0], VX_NAME_BYTES, "%s", patterns[_i].pattern);
    ck_assert_msg(vx_access_entry_has(&entry, patterns[_i].model) == patterns[_i].has,
                  "%s %s", patterns[_i].pattern, patterns[_i].model);
    snprintf(entry.models[1], VX_NAME_BYTES, "%s", patterns[_i].model);
    entry.models_count = 2;
    ck_assert(patterns[_i].model[0] == '*' || strchr(patterns[_i].model, '?') ||
              vx_access_entry_has(&entry, patterns[_i].model));
}
END_TEST

START_TEST(times)
{
    static const char *const wrong[] = {
        "",
        "2027-01-31",
        "2027-01-31T00:00:00",
        "2027-01-31T00:00:00z",
        "2027-01-31T00:00:00Z ",
        "2027-01-31 00:00:00Z",
        "2027-02-30T00:00:00Z",
        "2027-13-01T00:00:00Z",
        "2027-00-01T00:00:00Z",
        "2027-01-01T24:00:00Z",
        "2027-01-01T00:60:00Z",
        "2027-01-01T00:00:61Z",
        "1969-12-31T23:59:59Z",
        "+027-01-31T00:00:00Z",
    };
    i64 ms;
    for (size_t i = 0; i < VX_COUNT(wrong); i++)
        ck_assert_msg(!vx_access_time_read(wrong[i], &ms), "%s", wrong[i]);
    ck_assert(vx_access_time_read("2024-02-29T12:30:15Z", &ms));
    ck_assert_int_eq(ms, INT64_C(1709209815000));
}
END_TEST

START_TEST(every_method_has_a_group)
{
    i32 counts[VX_ACCESS_GROUPS] = {0}, method = 0;
#define VX_METHOD(path_, identifier_, kind_)                                             \
    counts[vx_access_group_of(method)]++;                                                \
    ck_assert_ptr_nonnull(strstr(path_, vx_access_method_name(method)));                 \
    method++;
#include "proto/service.def"
#undef VX_METHOD
    ck_assert_int_eq(counts[VX_ACCESS_HEALTH], 3);
    ck_assert_int_eq(counts[VX_ACCESS_INFER], 2);
    ck_assert_int_eq(counts[VX_ACCESS_LOAD], 2);
    ck_assert_int_eq(counts[VX_ACCESS_SETTINGS], 2);
    ck_assert_int_eq(counts[VX_ACCESS_MEMORY], 6);
    ck_assert_int_eq(counts[VX_ACCESS_READ], method - 15);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("access_table");
    TCase *tcase = tcase_create("table");
    tcase_add_loop_test(tcase, a_wrong_file_is_refused_with_its_place, 0, VX_COUNT(bad));
    tcase_add_test(tcase, too_many_entries_are_refused);
    tcase_add_test(tcase, an_entry_with_everything);
    tcase_add_test(tcase, every_key_finds_its_entry);
    tcase_add_loop_test(tcase, patterns_of_models, 0, VX_COUNT(patterns));
    tcase_add_test(tcase, times);
    tcase_add_test(tcase, every_method_has_a_group);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
