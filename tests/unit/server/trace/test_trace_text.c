/* trace_text: which URLs, lists of attributes and ratios are accepted, and what comes of
 * them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/trace/trace_text.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

START_TEST(endpoints)
{
    static const struct {
        const char *text, *host, *port, *path, *authority; /* host NULL = refused */
    } rows[] = {
        {"http://127.0.0.1:4318", "127.0.0.1", "4318", "/v1/traces", "127.0.0.1:4318"},
        {"http://collector", "collector", "80", "/v1/traces", "collector"},
        {"http://collector/", "collector", "80", "/v1/traces", "collector"},
        {"http://c:1/a/b", "c", "1", "/a/b", "c:1"},
        {"http://c:65535/a?b=c", "c", "65535", "/a?b=c", "c:65535"},
        {"http://[::1]:4318", "::1", "4318", "/v1/traces", "[::1]:4318"},
        {"http://[::1]", "::1", "80", "/v1/traces", "[::1]"},
        {"", NULL, NULL, NULL, NULL},
        {"http://", NULL, NULL, NULL, NULL},
        {"http:///v1/traces", NULL, NULL, NULL, NULL},
        {"http://:4318", NULL, NULL, NULL, NULL},
        {"http://c:", NULL, NULL, NULL, NULL},
        {"http://c:0", NULL, NULL, NULL, NULL},
        {"http://c:65536", NULL, NULL, NULL, NULL},
        {"http://c:999999", NULL, NULL, NULL, NULL},
        {"http://c:4a", NULL, NULL, NULL, NULL},
        {"http://c:-1", NULL, NULL, NULL, NULL},
        {"http://[::1", NULL, NULL, NULL, NULL},
        {"http://::1]", NULL, NULL, NULL, NULL},
        {"http://[]:1", NULL, NULL, NULL, NULL},
        {"http://[::1]4318", NULL, NULL, NULL, NULL},
        {"http://::1:4318", NULL, NULL, NULL, NULL},
        {"http://user:secret@c", NULL, NULL, NULL, NULL},
        {"http://c/a#b", NULL, NULL, NULL, NULL},
        {"http://c/a b", NULL, NULL, NULL, NULL},
        {"http://c/a\r\nX: y", NULL, NULL, NULL, NULL},
        {"http://\xc3\xa4", NULL, NULL, NULL, NULL},
        {"http://c?a", NULL, NULL, NULL, NULL},
        {"https://c", NULL, NULL, NULL, NULL},
        {"HTTP://c", NULL, NULL, NULL, NULL},
        {"c:4318", NULL, NULL, NULL, NULL},
        {"grpc://c:4317", NULL, NULL, NULL, NULL},
    };
    for (size_t i = 0; i < VX_COUNT(rows); i++) {
        struct vx_endpoint endpoint;
        struct vx_why why = {""};
        vx_status st = vx_endpoint_parse(rows[i].text, &why, &endpoint);
        ck_assert_msg(!st.fault == (rows[i].host != NULL), "'%s'", rows[i].text);
        if (st.fault) {
            ck_assert_ptr_ne(strstr(why.text, "--otlp-endpoint: expected "), NULL);
            continue;
        }
        ck_assert_str_eq(endpoint.host, rows[i].host);
        ck_assert_str_eq(endpoint.port, rows[i].port);
        ck_assert_str_eq(endpoint.path, rows[i].path);
        ck_assert_str_eq(endpoint.authority, rows[i].authority);
    }
}
END_TEST

/* The longest that fits, and one more. */
START_TEST(long_endpoints)
{
    struct vx_endpoint endpoint;
    struct vx_why why;
    for (size_t more = 0; more < 2; more++) {
        char text[1024] = "http://";
        memset(text + 7, 'h', VX_ENDPOINT_HOST_BYTES - 1 + more);
        ck_assert(!vx_endpoint_parse(text, &why, &endpoint).fault == !more);
        memset(text, 0, sizeof text);
        strcpy(text, "http://h/");
        memset(text + 9, 'p', VX_ENDPOINT_PATH_BYTES - 2 + more);
        ck_assert(!vx_endpoint_parse(text, &why, &endpoint).fault == !more);
    }
}
END_TEST

START_TEST(resources)
{
    static const struct {
        const char *text, *keys[3], *values[3]; /* no key = refused */
    } rows[] = {
        {"", {"service.name"}, {"voxeld"}},
        {"a=b", {"service.name", "a"}, {"voxeld", "b"}},
        {"a=b,c=d=e", {"service.name", "a", "c"}, {"voxeld", "b", "d=e"}},
        {"service.name=x", {"service.name"}, {"x"}},
        {"a=1,a=2", {"service.name", "a"}, {"voxeld", "2"}},
        {"a=", {"service.name", "a"}, {"voxeld", ""}},
        {"a=%2c%20%C3%BC", {"service.name", "a"}, {"voxeld", ", \u00fc"}},
        {"a", {NULL}, {NULL}},
        {"=b", {NULL}, {NULL}},
        {"a=b,", {NULL}, {NULL}},
        {",a=b", {NULL}, {NULL}},
        {"a b=c", {NULL}, {NULL}},
        {"a=%", {NULL}, {NULL}},
        {"a=%2", {NULL}, {NULL}},
        {"a=%2g", {NULL}, {NULL}},
        {"a=%00b", {NULL}, {NULL}},
        {"a=%ff", {NULL}, {NULL}},
        {"a=\xff", {NULL}, {NULL}},
    };
    for (size_t i = 0; i < VX_COUNT(rows); i++) {
        struct vx_resource resource = {0};
        struct vx_why why = {""};
        vx_resource_set(&resource, "service.name", "voxeld");
        vx_status st = vx_resource_parse(&resource, rows[i].text, &why);
        ck_assert_msg(!st.fault == (rows[i].keys[0] != NULL), "'%s'", rows[i].text);
        i32 count = 0;
        for (; !st.fault && count < 3 && rows[i].keys[count]; count++) {
            ck_assert_str_eq(resource.keys[count], rows[i].keys[count]);
            ck_assert_str_eq(resource.values[count], rows[i].values[count]);
        }
        if (!st.fault) ck_assert_int_eq(resource.count, count);
    }
}
END_TEST

START_TEST(too_many_attributes)
{
    for (i32 more = 0; more < 2; more++) {
        struct vx_resource resource = {0};
        struct vx_why why;
        char text[VX_RESOURCE_TEXT_BYTES] = "", *end = text;
        for (i32 i = 0; i < VX_RESOURCE_ATTRIBUTES_MAX + more; i++)
            end += sprintf(end, "%sk%d=v", i ? "," : "", i);
        ck_assert(!vx_resource_parse(&resource, text, &why).fault == !more);
    }
}
END_TEST

START_TEST(ratios)
{
    static const struct {
        const char *text;
        f64 ratio; /* -1 = refused */
    } rows[] = {{"0", 0},    {"1", 1},     {"0.25", 0.25}, {"1e-3", 0.001}, {".5", 0.5},
                {"1.0", 1},  {"1.01", -1}, {"-0.1", -1},   {"", -1},        {"nan", -1},
                {"inf", -1}, {"0x1", -1},  {" 1", -1},     {"1 ", -1},      {"0,5", -1},
                {"50%", -1}, {"1e", -1},   {".", -1}};
    for (size_t i = 0; i < VX_COUNT(rows); i++) {
        struct vx_why why = {""};
        f64 ratio;
        vx_status st = vx_ratio_parse(rows[i].text, &why, &ratio);
        ck_assert_msg(!st.fault == (rows[i].ratio >= 0), "'%s'", rows[i].text);
        if (!st.fault) ck_assert(ratio >= rows[i].ratio && ratio <= rows[i].ratio);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("trace_text");
    TCase *tests = tcase_create("trace_text");
    tcase_add_test(tests, endpoints);
    tcase_add_test(tests, long_endpoints);
    tcase_add_test(tests, resources);
    tcase_add_test(tests, too_many_attributes);
    tcase_add_test(tests, ratios);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
