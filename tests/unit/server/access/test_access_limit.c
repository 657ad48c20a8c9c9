/* Buckets and keys: what they admit at which time of a clock that the test sets, and what
 * a client may present.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "server/access/access_connections.h"
#include "server/access/access_key.h"
#include "server/access/access_limit.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S VX_NS_PER_S

static struct vx_access_bucket bucket;

static i64 wait_at(const struct vx_access_limit *limit, i64 now_ns)
{
    return vx_access_bucket_wait_ns(limit, &bucket, 0, now_ns);
}

START_TEST(no_limit_admits_everything)
{
    const struct vx_access_limit none = {0, 0};
    vx_access_bucket_fill(&none, &bucket, 0);
    for (i64 i = 0; i < 1000; i++) {
        ck_assert_int_eq(wait_at(&none, i), 0);
        vx_access_bucket_pay(&none, &bucket, INT64_MAX);
    }
}
END_TEST

START_TEST(a_burst_and_then_the_rate)
{
    const struct vx_access_limit limit = {.per_s = 2, .burst = 5};
    vx_access_bucket_fill(&limit, &bucket, 100 * S);
    for (i32 i = 0; i < 5; i++) {
        ck_assert_int_eq(wait_at(&limit, 100 * S), 0);
        vx_access_bucket_pay(&limit, &bucket, 1);
    }
    i64 wait_ns = wait_at(&limit, 100 * S);
    ck_assert_int_gt(wait_ns, S / 2 - 1000);
    ck_assert_int_lt(wait_ns, S / 2 + 1000);
    ck_assert_int_gt(wait_at(&limit, 100 * S + wait_ns / 2), 0);
    ck_assert_int_eq(wait_at(&limit, 100 * S + wait_ns), 0);
    vx_access_bucket_pay(&limit, &bucket, 1);
    ck_assert_int_gt(wait_at(&limit, 100 * S + wait_ns), 0);
    /* Half a year later it is full, and not fuller. */
    i64 later_ns = 100 * S + 15000000 * S;
    for (i32 i = 0; i < 5; i++) {
        ck_assert_int_eq(wait_at(&limit, later_ns), 0);
        vx_access_bucket_pay(&limit, &bucket, 1);
    }
    ck_assert_int_gt(wait_at(&limit, later_ns), 0);
}
END_TEST

/* Twenty times the burst is served once; its debt takes its time. */
START_TEST(a_large_cost_is_served_and_owed_for)
{
    const struct vx_access_limit limit = {.per_s = 100, .burst = 50};
    vx_access_bucket_fill(&limit, &bucket, 0);
    ck_assert_int_eq(wait_at(&limit, 0), 0);
    vx_access_bucket_pay(&limit, &bucket, 1000);
    i64 wait_ns = wait_at(&limit, 0); /* 950 of debt and one unit */
    ck_assert_int_eq((wait_ns + VX_NS_PER_MS / 2) / VX_NS_PER_MS, 9510);
    ck_assert_int_gt(wait_at(&limit, 9 * S), 0);
    ck_assert_int_eq(wait_at(&limit, wait_ns), 0);
}
END_TEST

START_TEST(a_shared_bucket_owes_a_burst_at_most)
{
    const struct vx_access_limit limit = {.per_s = 100, .burst = 50}, none = {0, 0};
    vx_access_bucket_fill(&limit, &bucket, 0);
    vx_access_bucket_pay_shared(&limit, &bucket, 70); /* 20 of debt */
    ck_assert_int_eq((wait_at(&limit, 0) + VX_NS_PER_MS / 2) / VX_NS_PER_MS, 210);
    for (i32 i = 0; i < 3; i++) {
        vx_access_bucket_pay_shared(&limit, &bucket, INT64_MAX);
        ck_assert_int_eq((wait_at(&limit, 0) + VX_NS_PER_MS / 2) / VX_NS_PER_MS, 510);
    }
    vx_access_bucket_pay_shared(&none, &bucket, INT64_MAX);
    ck_assert_int_eq(wait_at(&none, 0), 0);
}
END_TEST

/* Threads read the clock in any order: an earlier time neither fills nor empties. */
START_TEST(time_that_goes_back_changes_nothing)
{
    const struct vx_access_limit limit = {.per_s = 1, .burst = 1};
    vx_access_bucket_fill(&limit, &bucket, 50 * S);
    vx_access_bucket_pay(&limit, &bucket, 1);
    i64 wait_ns = wait_at(&limit, 50 * S);
    ck_assert_int_eq(wait_at(&limit, 10 * S), wait_ns);
    ck_assert_int_eq(wait_at(&limit, 50 * S), wait_ns);
    ck_assert_int_eq(wait_at(&limit, 51 * S + 1000), 0);
}
END_TEST

/* Over any time the admitted cost is at most the burst, the rate's part, and one request. */
START_TEST(the_rate_holds_on_the_average)
{
    const struct vx_access_limit limit = {.per_s = 1000, .burst = 300};
    u32 random = (u32)_i + 1;
    f64 admitted = 0;
    i64 now_ns = 0;
    vx_access_bucket_fill(&limit, &bucket, 0);
    for (i32 i = 0; i < 20000; i++) {
        random = random * 1664525 + 1013904223;
        now_ns += random >> 12;
        i64 cost = random >> 22;
        if (wait_at(&limit, now_ns)) continue;
        vx_access_bucket_pay(&limit, &bucket, cost);
        admitted += (f64)cost;
        f64 most = 300 + 1000 * (f64)now_ns / (f64)S + 1024;
        ck_assert_msg(admitted <= most, "%g of %g", admitted, most);
    }
    ck_assert(admitted > 1000 * (f64)now_ns / (f64)S - 1024);
}
END_TEST

START_TEST(another_limit_keeps_what_is_in_it)
{
    const struct vx_access_limit none = {0, 0}, small = {1, 3}, large = {1, 100};
    vx_access_bucket_fill(&small, &bucket, 0);
    vx_access_bucket_pay(&small, &bucket, 3);
    vx_access_bucket_change(&small, &large, &bucket, 0);
    ck_assert_int_gt(wait_at(&large, 0), 0); /* a reload is no present */
    vx_access_bucket_change(&none, &large, &bucket, 0);
    vx_access_bucket_pay(&large, &bucket, 99);
    ck_assert_int_eq(wait_at(&large, 0), 0);
    vx_access_bucket_fill(&large, &bucket, 0);
    vx_access_bucket_change(&large, &small, &bucket, 0);
    vx_access_bucket_pay(&small, &bucket, 3);
    ck_assert_int_gt(wait_at(&small, 0), 0);
}
END_TEST

/* ------- connections ------- */

START_TEST(connections_have_buckets_of_their_own)
{
    const struct vx_access_limit limits[VX_ACCESS_UNITS] = {
        [VX_ACCESS_REQUESTS] = {.per_s = 1, .burst = 2}};
    struct vx_access_connections all;
    ck_assert(!vx_access_connections_open(&all, 3).fault);
    for (u64 round = 0; round < 100; round++) {
        u64 first = 1 + round * 4; /* of one head, and of different ones */
        for (u64 n = first; n < first + 3; n++) {
            ck_assert_ptr_null(vx_access_connections_find(&all, n));
            struct vx_access_connection *row =
                vx_access_connections_add(&all, n, limits, 0);
            ck_assert_ptr_nonnull(row);
            ck_assert_ptr_eq(vx_access_connections_find(&all, n), row);
            ck_assert(row->buckets[VX_ACCESS_REQUESTS].level > 1.5);
            row->buckets[VX_ACCESS_REQUESTS].level = -1;
        }
        ck_assert_ptr_null(vx_access_connections_add(&all, first + 3, limits, 0));
        ck_assert_int_eq(all.count, 3);
        vx_access_connections_remove(&all, first + 3); /* has none */
        vx_access_connections_remove(&all, first + 1);
        vx_access_connections_remove(&all, first + 1);
        vx_access_connections_remove(&all, first + 2);
        vx_access_connections_remove(&all, first);
        ck_assert_int_eq(all.count, 0);
    }
    vx_access_connections_close(&all);
}
END_TEST

/* ------- keys ------- */

static const char *bearer_of(const char *value)
{
    static struct vx_why why;
    static char got[VX_ACCESS_TOKEN_BYTES_MAX + 1];
    const char *token = NULL;
    size_t length = 0;
    why.text[0] = '\0';
    vx_status st = vx_access_bearer(value, strlen(value), &why, &token, &length);
    if (st.fault) {
        ck_assert_int_eq(vx_status_code(st), VX_CODE_UNAUTHENTICATED);
        /* Whatever came, the sentence has none of it. */
        ck_assert_ptr_null(strstr(vx_status_text(st, &why), "secret"));
        return NULL;
    }
    memcpy(got, token, length);
    got[length] = '\0';
    return got;
}

#define GOOD "0123456789abcdefABCDEF-._~+/=0123456"
START_TEST(a_bearer_is_a_scheme_and_a_token)
{
    char longest[8 + VX_ACCESS_TOKEN_BYTES_MAX + 1] = "Bearer ";
    memset(longest + 7, 'a', VX_ACCESS_TOKEN_BYTES_MAX + 1);
    longest[7 + VX_ACCESS_TOKEN_BYTES_MAX + 1] = '\0';
    ck_assert_str_eq(bearer_of("Bearer " GOOD), GOOD);
    ck_assert_str_eq(bearer_of("bearer   " GOOD), GOOD);
    ck_assert_ptr_null(bearer_of(""));
    ck_assert_ptr_null(bearer_of("Bearer"));
    ck_assert_ptr_null(bearer_of("Bearer "));
    ck_assert_ptr_null(bearer_of("Bearer secret"));
    ck_assert_ptr_null(bearer_of(GOOD));
    ck_assert_ptr_null(bearer_of("Basic secretsecretsecretsecretsecretsecret"));
    ck_assert_ptr_null(bearer_of("Bearer secret secretsecretsecretsecretsecret"));
    ck_assert_ptr_null(bearer_of("Bearer secret\xc3\xa4secretsecretsecretsecretsecret"));
    ck_assert_ptr_null(bearer_of("Bearer " GOOD ","));
    ck_assert_ptr_null(bearer_of(longest));
    longest[7 + VX_ACCESS_TOKEN_BYTES_MAX] = '\0';
    ck_assert_ptr_nonnull(bearer_of(longest));
}
END_TEST

START_TEST(keys_are_hashes_with_a_kind)
{
    struct vx_access_key token, certificate, read;
    /* FIPS 180-4's example. */
    static const char abc[] =
        "BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    vx_access_key_of(VX_ACCESS_TOKEN, "abc", 3, &token);
    vx_access_key_of(VX_ACCESS_CERTIFICATE, "abc", 3, &certificate);
    ck_assert(vx_access_key_read(abc, &read));
    ck_assert(vx_access_key_same(&token, &read));
    ck_assert(!vx_access_key_same(&certificate, &read));
    for (size_t i = 0; i < VX_SHA256_BYTES; i++) {
        read = token;
        read.digest[i] ^= 1;
        ck_assert(!vx_access_key_same(&token, &read));
    }
    ck_assert(!vx_access_key_read("", &read));
    ck_assert(!vx_access_key_read(abc + 1, &read));
    ck_assert(!vx_access_key_read(
        "gA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", &read));
}
END_TEST

START_TEST(new_tokens_differ_and_are_tokens)
{
    char tokens[100][VX_ACCESS_TOKEN_TEXT_BYTES], value[64];
    i32 seen[128] = {0}, letters = 0;
    for (i32 i = 0; i < 100; i++) {
        ck_assert(!vx_access_token_make(tokens[i]).fault);
        ck_assert_uint_eq(strlen(tokens[i]), 43);
        snprintf(value, sizeof value, "Bearer %s", tokens[i]);
        ck_assert_str_eq(bearer_of(value), tokens[i]);
        for (i32 k = 0; k < i; k++) ck_assert_str_ne(tokens[i], tokens[k]);
        for (const char *c = tokens[i]; *c; c++) seen[(int)*c & 127] = 1;
    }
    for (i32 c = 0; c < 128; c++) letters += seen[c];
    ck_assert_int_eq(letters, 64); /* a letter is missing once in 10^27 runs */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("access_limit");
    TCase *tcase = tcase_create("buckets");
    tcase_add_test(tcase, no_limit_admits_everything);
    tcase_add_test(tcase, a_burst_and_then_the_rate);
    tcase_add_test(tcase, a_large_cost_is_served_and_owed_for);
    tcase_add_test(tcase, a_shared_bucket_owes_a_burst_at_most);
    tcase_add_test(tcase, time_that_goes_back_changes_nothing);
    tcase_add_loop_test(tcase, the_rate_holds_on_the_average, 0, 10);
    tcase_add_test(tcase, another_limit_keeps_what_is_in_it);
    tcase_add_test(tcase, connections_have_buckets_of_their_own);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("keys");
    tcase_add_test(tcase, a_bearer_is_a_scheme_and_a_token);
    tcase_add_test(tcase, keys_are_hashes_with_a_kind);
    tcase_add_test(tcase, new_tokens_differ_and_are_tokens);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
