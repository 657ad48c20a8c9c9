/* Who may ask: tickets, refusals, limits with a clock that the test sets, and counts.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/server/access/access_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void set_up(void)
{
    rig_open(&(struct vx_access_options){.tokens = true, .connections_max = 4});
}
static void tear_down(void)
{
    vx_access_close(&rig_access);
}

/* ------- tokens and methods ------- */

START_TEST(a_token_is_needed_and_must_be_known)
{
    rig_use_a("\"models\": [\"*\"], \"methods\": [\"infer\", \"read\"]");
    rig_refused(rig_enter(M_MODEL_INFER, NULL, 0), VX_CODE_UNAUTHENTICATED,
                "no token came");
    rig_refused(rig_enter(M_MODEL_INFER, "Bearer " TOKEN_B, 0), VX_CODE_UNAUTHENTICATED,
                "the token is not known here");
    rig_refused(rig_enter(M_MODEL_INFER, "Basic " TOKEN_A, 0), VX_CODE_UNAUTHENTICATED,
                "expected the metadata 'authorization' to be 'Bearer TOKEN'");
    rig_refused(rig_enter(M_MODEL_INFER, "", 0), VX_CODE_UNAUTHENTICATED, "Bearer TOKEN");
    rig_passes(rig_enter(M_MODEL_INFER, "Bearer " TOKEN_A, 0));
    ck_assert_str_eq(rig_ticket.name, "a");
    ck_assert_int_eq(rig_ticket.entry, 0);
    rig_passes(rig_enter(M_REPOSITORY_INDEX, "Bearer " TOKEN_A, 0));
    rig_refused(
        rig_enter(M_REPOSITORY_MODEL_LOAD, "Bearer " TOKEN_A, 0),
        VX_CODE_PERMISSION_DENIED,
        "token 'a' does not permit RepositoryModelLoad, of the methods 'load'; it "
        "permits: infer read");
    rig_refused(rig_enter(M_LOG_SETTINGS, "Bearer " TOKEN_A, 0),
                VX_CODE_PERMISSION_DENIED, "of the methods 'settings'");
    rig_refused(rig_enter(M_CUDA_SHARED_MEMORY_STATUS, "Bearer " TOKEN_A, 0),
                VX_CODE_PERMISSION_DENIED, "of the methods 'memory'");
    struct vx_access_counts a = rig_counts(0), nobody = rig_counts(-1);
    ck_assert_uint_eq(a.requests, 2);
    ck_assert_uint_eq(a.refused[VX_ACCESS_REFUSED_METHOD], 3);
    ck_assert_uint_eq(nobody.requests, 0);
    ck_assert_uint_eq(nobody.refused[VX_ACCESS_REFUSED_NONE], 1);
    ck_assert_uint_eq(nobody.refused[VX_ACCESS_REFUSED_UNKNOWN], 3);
}
END_TEST

START_TEST(health_needs_no_token_but_no_wrong_one)
{
    static const i32 health[] = {M_SERVER_LIVE, M_SERVER_READY, M_HEALTH_CHECK};
    rig_use_a("\"models\": [\"*\"], \"methods\": [\"load\"], "
              "\"limits\": {\"requests\": {\"per_second\": 1e-6, \"burst\": 1}}");
    for (size_t i = 0; i < VX_COUNT(health); i++) {
        rig_passes(rig_enter(health[i], NULL, 0));
        ck_assert_int_eq(rig_ticket.entry, -1);
        rig_passes(rig_enter(health[i], "Bearer " TOKEN_A, 0)); /* is not counted */
        rig_refused(rig_enter(health[i], "Bearer " TOKEN_B, 0), VX_CODE_UNAUTHENTICATED,
                    "");
    }
    rig_refused(rig_enter(M_HEALTH_WATCH, NULL, 0), VX_CODE_UNAUTHENTICATED, "no token");
    rig_refused(rig_enter(M_HEALTH_LIST, NULL, 0), VX_CODE_UNAUTHENTICATED, "no token");
    /* A probe without a token learns nothing of models. */
    rig_passes(rig_enter(M_HEALTH_CHECK, NULL, 0));
    rig_refused(vx_access_model(rig_access, &rig_ticket, "m", &rig_why),
                VX_CODE_UNAUTHENTICATED, "no token");
    ck_assert(!vx_access_sees(rig_access, &rig_ticket, "m"));
}
END_TEST

START_TEST(health_asks_where_it_is_set)
{
    vx_access_close(&rig_access);
    rig_open(&(struct vx_access_options){
        .tokens = true, .health_asks = true, .connections_max = 4});
    rig_use_a("\"models\": [\"*\"], \"methods\": [\"infer\"]");
    rig_refused(rig_enter(M_SERVER_LIVE, NULL, 0), VX_CODE_UNAUTHENTICATED, "no token");
    rig_passes(rig_enter(M_SERVER_LIVE, "Bearer " TOKEN_A, 0));
}
END_TEST

START_TEST(models_by_name_and_pattern)
{
    rig_use_a("\"models\": [\"normals\", \"street-*\"], \"methods\": [\"infer\"]");
    rig_passes(rig_enter(M_MODEL_INFER, "Bearer " TOKEN_A, 0));
    rig_passes(vx_access_model(rig_access, &rig_ticket, "normals", &rig_why));
    rig_passes(vx_access_model(rig_access, &rig_ticket, "street-2", &rig_why));
    rig_refused(vx_access_model(rig_access, &rig_ticket, "secret", &rig_why),
                VX_CODE_PERMISSION_DENIED, "token 'a' does not permit model 'secret'");
    rig_refused(vx_access_model(rig_access, &rig_ticket, "", &rig_why),
                VX_CODE_PERMISSION_DENIED, "''");
    ck_assert(vx_access_sees(rig_access, &rig_ticket, "street-"));
    ck_assert(!vx_access_sees(rig_access, &rig_ticket, "normals2"));
    ck_assert_uint_eq(rig_counts(0).refused[VX_ACCESS_REFUSED_MODEL], 2);
}
END_TEST

START_TEST(expiry)
{
    rig_use_a("\"models\": [\"*\"], \"methods\": [\"infer\"], "
              "\"expires\": \"2001-01-01T00:00:00Z\"");
    rig_refused(rig_enter(M_MODEL_INFER, "Bearer " TOKEN_A, 0), VX_CODE_UNAUTHENTICATED,
                "token 'a' has expired");
    ck_assert_uint_eq(rig_counts(0).refused[VX_ACCESS_REFUSED_EXPIRED], 1);
    rig_use_a("\"models\": [\"*\"], \"methods\": [\"infer\"], "
              "\"expires\": \"9999-01-01T00:00:00Z\"");
    rig_passes(rig_enter(M_MODEL_INFER, "Bearer " TOKEN_A, 0));
}
END_TEST

/* Probes ask as before; all else needs a token, or that somebody prolongs it. */
START_TEST(anyone_that_has_expired)
{
    static const i32 health[] = {M_SERVER_LIVE, M_SERVER_READY, M_HEALTH_CHECK};
    rig_use("{\"tokens\": [{\"name\": \"open\", \"anyone\": true, \"models\": [\"*\"], "
            "\"methods\": [\"infer\"], \"expires\": \"2001-01-01T00:00:00Z\"}]}");
    for (size_t i = 0; i < VX_COUNT(health); i++)
        rig_passes(rig_enter(health[i], NULL, 0));
    ck_assert_uint_eq(rig_counts(0).refused[VX_ACCESS_REFUSED_EXPIRED], 0);
    rig_refused(vx_access_model(rig_access, &rig_ticket, "m", &rig_why),
                VX_CODE_UNAUTHENTICATED, "token 'open' has expired");
    ck_assert(!vx_access_sees(rig_access, &rig_ticket, "m"));
    rig_refused(rig_enter(M_MODEL_INFER, NULL, 0), VX_CODE_UNAUTHENTICATED,
                "token 'open' has expired");
    rig_refused(rig_enter(M_SERVER_LIVE, "Bearer " TOKEN_B, 0), VX_CODE_UNAUTHENTICATED,
                "the token is not known here");
    vx_access_close(&rig_access);
    rig_open(&(struct vx_access_options){
        .tokens = true, .health_asks = true, .connections_max = 4});
    rig_use("{\"tokens\": [{\"name\": \"open\", \"anyone\": true, \"models\": [\"*\"], "
            "\"methods\": [\"infer\"], \"expires\": \"2001-01-01T00:00:00Z\"}]}");
    rig_refused(rig_enter(M_SERVER_LIVE, NULL, 0), VX_CODE_UNAUTHENTICATED, "expired");
}
END_TEST

START_TEST(a_certificate_and_anyone)
{
    rig_use("{\"tokens\": [{\"name\": \"c\", \"certificate\": \"CN=camera\", \"models\": "
            "[\"m\"], \"methods\": [\"infer\"]}, {\"name\": \"open\", \"anyone\": true, "
            "\"models\": [\"demo\"], \"methods\": [\"infer\"]}]}");
    struct vx_access_arrival arrival = {
        .method = M_MODEL_INFER, .certificate = "CN=camera", .is_request = true};
    rig_passes(vx_access_enter(rig_access, &arrival, &rig_why, &rig_ticket));
    ck_assert_str_eq(rig_ticket.name, "c");
    arrival.certificate = "CN=camera2"; /* of whom the file knows nothing */
    rig_passes(vx_access_enter(rig_access, &arrival, &rig_why, &rig_ticket));
    ck_assert_str_eq(rig_ticket.name, "open");
    rig_refused(vx_access_model(rig_access, &rig_ticket, "m", &rig_why),
                VX_CODE_PERMISSION_DENIED, "token 'open'");
    /* A token counts more than a certificate, and a wrong one is not forgiven. */
    arrival.certificate = "CN=camera";
    arrival.authorization = "Bearer " TOKEN_A;
    rig_why.text[0] = '\0';
    arrival.authorization_length = strlen(arrival.authorization);
    rig_refused(vx_access_enter(rig_access, &arrival, &rig_why, &rig_ticket),
                VX_CODE_UNAUTHENTICATED, "the token is not known here");
    rig_passes(rig_enter(M_MODEL_INFER, NULL, 0));
    ck_assert_str_eq(rig_ticket.name, "open");
    rig_passes(vx_access_model(rig_access, &rig_ticket, "demo", &rig_why));
    rig_refused(vx_access_model(rig_access, &rig_ticket, "m", &rig_why),
                VX_CODE_PERMISSION_DENIED, "token 'open'");
    rig_refused(rig_enter(M_LOG_SETTINGS, NULL, 0), VX_CODE_PERMISSION_DENIED,
                "settings");
}
END_TEST

/* A client of mutual TLS cannot leave its certificate out. */
START_TEST(a_certificate_that_no_entry_names)
{
    static const i32 health[] = {M_SERVER_LIVE, M_SERVER_READY, M_HEALTH_CHECK};
    struct vx_access_arrival arrival = {.certificate = "CN=probe", .is_request = true};
    rig_use_a("\"models\": [\"*\"], \"methods\": [\"infer\"]");
    for (size_t i = 0; i < VX_COUNT(health); i++) {
        arrival.method = health[i];
        rig_passes(vx_access_enter(rig_access, &arrival, &rig_why, &rig_ticket));
        ck_assert(!vx_access_sees(rig_access, &rig_ticket, "m"));
    }
    arrival.method = M_MODEL_INFER;
    rig_refused(vx_access_enter(rig_access, &arrival, &rig_why, &rig_ticket),
                VX_CODE_UNAUTHENTICATED, "the client's certificate is not known here");
    ck_assert_uint_eq(rig_counts(-1).refused[VX_ACCESS_REFUSED_UNKNOWN], 1);
    ck_assert_uint_eq(rig_counts(-1).refused[VX_ACCESS_REFUSED_NONE], 0);
    arrival.method = M_HEALTH_WATCH;
    rig_refused(vx_access_enter(rig_access, &arrival, &rig_why, &rig_ticket),
                VX_CODE_UNAUTHENTICATED, "the client's certificate is not known here");
}
END_TEST

START_TEST(the_admin_port)
{
    char text[1024];
    snprintf(text, sizeof text,
             "{\"tokens\": [{\"name\": \"a\", \"sha256\": \"%s\", \"models\": [\"*\"], "
             "\"methods\": [\"infer\"]}, {\"name\": \"b\", \"sha256\": \"%s\", "
             "\"models\": [\"*\"], \"methods\": [\"admin\"]}]}",
             rig_hex(TOKEN_A), rig_hex(TOKEN_B));
    rig_use(text);
    static const char a[] = "Bearer " TOKEN_A, b[] = "Bearer " TOKEN_B;
    rig_refused(vx_access_enter_admin(rig_access, NULL, 0, &rig_why),
                VX_CODE_UNAUTHENTICATED, "no");
    rig_refused(vx_access_enter_admin(rig_access, "x", 1, &rig_why),
                VX_CODE_UNAUTHENTICATED, "");
    rig_refused(vx_access_enter_admin(rig_access, a, strlen(a), &rig_why),
                VX_CODE_PERMISSION_DENIED, "token 'a' does not permit the admin port");
    rig_passes(vx_access_enter_admin(rig_access, b, strlen(b), &rig_why));
}
END_TEST

/* ------- limits ------- */

START_TEST(requests_of_a_token)
{
    rig_use_a("\"models\": [\"*\"], \"methods\": [\"infer\", \"read\"], "
              "\"limits\": {\"requests\": {\"per_second\": 2, \"burst\": 3}}");
    for (i32 i = 0; i < 3; i++)
        rig_passes(
            rig_enter(i ? M_MODEL_INFER : M_REPOSITORY_INDEX, "Bearer " TOKEN_A, S));
    rig_refused(
        rig_enter(M_MODEL_INFER, "Bearer " TOKEN_A, S), VX_CODE_RESOURCE_EXHAUSTED,
        "token 'a' has used its limit of 2 requests per second; try again in about "
        "500 ms");
    /* A stream is none, its messages are. */
    rig_passes(rig_enter(M_MODEL_STREAM_INFER, "Bearer " TOKEN_A, S));
    rig_refused(rig_spend(1, 10, 0, S), VX_CODE_RESOURCE_EXHAUSTED,
                "2 requests per second");
    rig_passes(rig_spend(1, 10, 0, S + S / 2 + 1000));
    rig_refused(rig_spend(1, 10, 0, S + S / 2 + 1000), VX_CODE_RESOURCE_EXHAUSTED, "");
    struct vx_access_counts a = rig_counts(0);
    ck_assert_uint_eq(a.requests, 4);
    ck_assert_uint_eq(a.bytes, 30); /* bytes have come, whatever the answer */
    ck_assert_uint_eq(a.refused[VX_ACCESS_REFUSED_REQUESTS], 3);
}
END_TEST

START_TEST(bytes_and_voxels_of_a_token)
{
    rig_use_a("\"models\": [\"*\"], \"methods\": [\"infer\", \"read\"], "
              "\"limits\": {\"bytes\": {\"per_second\": 100, \"burst\": 1000}, "
              "\"voxels\": {\"per_second\": 10, \"burst\": 50}}");
    rig_passes(rig_enter(M_MODEL_INFER, "Bearer " TOKEN_A, 0));
    rig_passes(rig_spend(0, 900, 0, 0));
    rig_passes(rig_spend(0, 0, 40, 0));
    rig_passes(rig_enter(M_MODEL_INFER, "Bearer " TOKEN_A, 0));
    rig_passes(rig_spend(0, 5000, 0, 0)); /* 100 bytes were left: served, and owed for */
    rig_passes(rig_spend(0, 0, 400, 0));
    /* Before the message is read. */
    rig_refused(rig_enter(M_MODEL_INFER, "Bearer " TOKEN_A, 0),
                VX_CODE_RESOURCE_EXHAUSTED,
                "100 bytes per second; try again in about 49010 ms");
    rig_passes(rig_enter(M_MODEL_METADATA, "Bearer " TOKEN_A, 0)); /* has no tensors */
    rig_refused(rig_spend(0, 0, 1, 0), VX_CODE_RESOURCE_EXHAUSTED,
                "10 voxels per second");
    rig_passes(rig_spend(0, 0, 0, 0));
    rig_refused(rig_enter(M_MODEL_INFER, "Bearer " TOKEN_A, 49 * S),
                VX_CODE_RESOURCE_EXHAUSTED, "");
    rig_passes(rig_enter(M_MODEL_INFER, "Bearer " TOKEN_A, 50 * S));
    struct vx_access_counts a = rig_counts(0);
    ck_assert_uint_eq(a.bytes, 5900);
    ck_assert_uint_eq(a.voxels, 440);
    ck_assert_uint_eq(a.refused[VX_ACCESS_REFUSED_BYTES], 2);
    ck_assert_uint_eq(a.refused[VX_ACCESS_REFUSED_VOXELS], 1);
}
END_TEST

/* One stranger's large request is no debt of all others. */
START_TEST(strangers_share_a_burst)
{
    const struct vx_access_cost dense = {.of = {[VX_ACCESS_VOXELS] = 60},
                                         .paid = {[VX_ACCESS_VOXELS] = 41}};
    const struct vx_access_cost made = {.of = {[VX_ACCESS_VOXELS] = 100000},
                                        .paid = {[VX_ACCESS_VOXELS] = VX_ACCESS_HAS_RUN}};
    rig_use("{\"tokens\": [{\"name\": \"open\", \"anyone\": true, \"models\": [\"*\"], "
            "\"methods\": [\"infer\"], \"limits\": {\"bytes\": {\"per_second\": 1000}, "
            "\"voxels\": {\"per_second\": 10, \"burst\": 100}}}]}");
    rig_passes(rig_enter(M_MODEL_INFER, NULL, 0));
    rig_refused(rig_spend(0, 0, 101, 0), VX_CODE_RESOURCE_EXHAUSTED,
                "a request of 'open' may take at most 100 voxels, the burst that all its "
                "clients share: expected a smaller one or a token, got 101");
    rig_refused(vx_access_spend(rig_access, &rig_ticket, &dense, 0, &rig_why),
                VX_CODE_RESOURCE_EXHAUSTED, "at most 100 voxels");
    rig_passes(rig_spend(0, 0, 100, 0)); /* nothing was paid for them */
    rig_refused(rig_spend(0, 0, 1, 0), VX_CODE_RESOURCE_EXHAUSTED, "about 100 ms");
    /* What features made has run, and bytes have come. */
    rig_passes(vx_access_spend(rig_access, &rig_ticket, &made, 0, &rig_why));
    rig_refused(rig_spend(0, 0, 1, 0), VX_CODE_RESOURCE_EXHAUSTED, "about 10100 ms");
    for (i32 i = 0; i < 9; i++)
        rig_refused(rig_spend(0, 1000000, 0, 0), VX_CODE_RESOURCE_EXHAUSTED,
                    "at most 1000 bytes");
    rig_refused(rig_spend(0, 1, 0, 0), VX_CODE_RESOURCE_EXHAUSTED, "about 1001 ms");
    rig_passes(rig_enter(M_MODEL_INFER, NULL, 11 * S));
    struct vx_access_counts open = rig_counts(0);
    ck_assert_uint_eq(open.bytes, 9000001);
    ck_assert_uint_eq(open.voxels, 100100);
    ck_assert_uint_eq(open.refused[VX_ACCESS_REFUSED_VOXELS], 4);
}
END_TEST

static vx_status enter_of(u64 connection, i64 now_ns)
{
    const struct vx_access_arrival arrival = {.method = M_MODEL_INFER,
                                              .connection = connection,
                                              .is_request = true,
                                              .now_ns = now_ns};
    rig_why.text[0] = '\0';
    return vx_access_enter(rig_access, &arrival, &rig_why, &rig_ticket);
}

START_TEST(limits_of_connections)
{
    vx_access_close(&rig_access);
    rig_open(&(struct vx_access_options){
        .connections_max = 4,
        .connection = {[VX_ACCESS_REQUESTS] = {.per_s = 1, .burst = 2},
                       [VX_ACCESS_VOXELS] = {.per_s = 5, .burst = 10}}});
    rig_passes(enter_of(1, 0));
    ck_assert(rig_ticket.adds);
    rig_passes(rig_spend(0, 0, 30, 0));
    rig_refused(enter_of(1, 0), VX_CODE_RESOURCE_EXHAUSTED,
                "this connection has used its limit of 5 voxels per second; try again in "
                "about 4200 ms");
    ck_assert(!rig_ticket.adds);
    rig_passes(enter_of(2, 0)); /* another one */
    rig_passes(enter_of(2, 0));
    rig_refused(enter_of(2, 0), VX_CODE_RESOURCE_EXHAUSTED, "1 requests per second");
    rig_passes(enter_of(2, S + 1000));
    /* What it presents is not for us. */
    rig_passes(rig_enter(M_LOG_SETTINGS, "Bearer x", 0));
    rig_passes(vx_access_model(rig_access, &rig_ticket, "any", &rig_why));
    ck_assert(vx_access_sees(rig_access, &rig_ticket, "any"));
    rig_passes(rig_enter(M_SERVER_LIVE, NULL, 0));
    /* Its end: what is late is not measured, and the number is free. */
    vx_access_gone(rig_access, 1);
    rig_passes(rig_spend(0, 0, 1000, 0));
    vx_access_gone(rig_access, 1);
    for (u64 c = 100; c < 1100; c++) {
        rig_passes(enter_of(c, 0));
        ck_assert(rig_ticket.adds);
        vx_access_gone(rig_access, c);
    }
    for (u64 c = 2000; c < 2000 + 4 + 64 - 2; c++)
        rig_passes(enter_of(c, 0)); /* 2 and 7 */
    rig_refused(enter_of(9000, 0), VX_CODE_RESOURCE_EXHAUSTED, "try again later");
}
END_TEST

/* With a table, a connection's limits are for those that present nothing. */
START_TEST(limits_of_connections_and_tokens)
{
    char text[1024];
    vx_access_close(&rig_access);
    rig_open(&(struct vx_access_options){
        .tokens = true,
        .connections_max = 4,
        .connection = {[VX_ACCESS_REQUESTS] = {.per_s = 1, .burst = 2}}});
    snprintf(text, sizeof text,
             "{\"tokens\": [{\"name\": \"a\", \"sha256\": \"%s\", \"models\": [\"*\"], "
             "\"methods\": [\"infer\"]}, {\"name\": \"open\", \"anyone\": true, "
             "\"models\": [\"*\"], \"methods\": [\"infer\"], \"limits\": {\"requests\": "
             "{\"per_second\": 1, \"burst\": 3}}}]}",
             rig_hex(TOKEN_A));
    rig_use(text);
    for (i32 i = 0; i < 10; i++)
        rig_passes(rig_enter(M_MODEL_INFER, "Bearer " TOKEN_A, 0));
    rig_passes(enter_of(7, 0));
    rig_passes(enter_of(7, 0));
    rig_refused(enter_of(7, 0), VX_CODE_RESOURCE_EXHAUSTED, "this connection has used");
    rig_passes(enter_of(8, 0)); /* the third of the entry */
    rig_refused(enter_of(8, 0), VX_CODE_RESOURCE_EXHAUSTED, "token 'open' has used");
    rig_refused(enter_of(9, 0), VX_CODE_RESOURCE_EXHAUSTED, "token 'open' has used");
    /* So are those with a certificate that no entry names. */
    const struct vx_access_arrival arrival = {.method = M_MODEL_INFER,
                                              .connection = 7,
                                              .certificate = "CN=x",
                                              .is_request = true,
                                              .now_ns = 10 * S};
    for (i32 i = 0; i < 2; i++)
        rig_passes(vx_access_enter(rig_access, &arrival, &rig_why, &rig_ticket));
    rig_refused(vx_access_enter(rig_access, &arrival, &rig_why, &rig_ticket),
                VX_CODE_RESOURCE_EXHAUSTED, "this connection has used");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("access_calls");
    TCase *tcase = tcase_create("tickets");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_token_is_needed_and_must_be_known);
    tcase_add_test(tcase, health_needs_no_token_but_no_wrong_one);
    tcase_add_test(tcase, health_asks_where_it_is_set);
    tcase_add_test(tcase, models_by_name_and_pattern);
    tcase_add_test(tcase, expiry);
    tcase_add_test(tcase, anyone_that_has_expired);
    tcase_add_test(tcase, a_certificate_and_anyone);
    tcase_add_test(tcase, a_certificate_that_no_entry_names);
    tcase_add_test(tcase, the_admin_port);
    tcase_add_test(tcase, requests_of_a_token);
    tcase_add_test(tcase, bytes_and_voxels_of_a_token);
    tcase_add_test(tcase, strangers_share_a_burst);
    tcase_add_test(tcase, limits_of_connections);
    tcase_add_test(tcase, limits_of_connections_and_tokens);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
