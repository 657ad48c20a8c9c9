/* Who may ask: tickets, refusals, limits with a clock that the test sets, tables that are
 * replaced, counts; and the file, read and watched.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "server/access/access_file.h"

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
#define VX_METHOD(path_, identifier_, kind_) M_##identifier_,
#include "proto/service.def"
#undef VX_METHOD
};

#define TOKEN_A "token-a-token-a-token-a-token-a-token-a-0"
#define TOKEN_B "token-b-token-b-token-b-token-b-token-b-0"
#define S       VX_NS_PER_S

static struct vx_access *access_;
static struct vx_why why;
static struct vx_access_ticket ticket;

static const char *hex_of(const char *token)
{
    static char hex[4][VX_SHA256_HEX_BYTES];
    static int next;
    struct vx_access_key key;
    vx_access_key_of(VX_ACCESS_TOKEN, token, strlen(token), &key);
    char *text = hex[next++ % 4];
    vx_sha256_hex(key.digest, text);
    return text;
}

static void use(const char *text)
{
    char copy[4096];
    snprintf(copy, sizeof copy, "%s", text);
    vx_status st =
        vx_access_table_parse(copy, strlen(copy), &why, vx_access_spare(access_));
    ck_assert_msg(!st.fault, "%s", vx_status_text(st, &why));
    vx_access_use_spare(access_, 0);
}

/* An entry a with TOKEN_A, and whatever follows its name and key. */
static void use_a(const char *rest)
{
    char text[2048];
    snprintf(text, sizeof text,
             "{\"tokens\": [{\"name\": \"a\", \"sha256\": \"%s\", %s}]}", hex_of(TOKEN_A),
             rest);
    use(text);
}

static void open_with(const struct vx_access_options *options)
{
    ck_assert(!vx_access_open(options, &access_).fault);
}

static void set_up(void)
{
    open_with(&(struct vx_access_options){.tokens = true, .connections_max = 4});
}
static void tear_down(void)
{
    vx_access_close(&access_);
}

static vx_status enter_at(i32 method, const char *authorization, i64 now_ns)
{
    struct vx_access_arrival arrival = {.method = method,
                                        .connection = 7,
                                        .authorization = authorization,
                                        .is_request = method != M_MODEL_STREAM_INFER,
                                        .now_ns = now_ns};
    if (authorization) arrival.authorization_length = strlen(authorization);
    why.text[0] = '\0';
    return vx_access_enter(access_, &arrival, &why, &ticket);
}

static void refused(vx_status st, enum vx_code code, const char *sentence)
{
    ck_assert(st.fault != NULL);
    const char *text = vx_status_text(st, &why);
    ck_assert_msg(vx_status_code(st) == code && strstr(text, sentence), "%s: %s",
                  vx_code_name(vx_status_code(st)), text);
    ck_assert_ptr_null(strstr(text, "token-a-")); /* never a part of a token */
    ck_assert_ptr_null(strstr(text, "token-b-"));
}
static void passes(vx_status st)
{
    ck_assert_msg(!st.fault, "%s", vx_status_text(st, &why));
}

static struct vx_access_counts counts_of(i32 i)
{
    struct vx_access_counts counts;
    char name[VX_ACCESS_NAME_BYTES];
    ck_assert(vx_access_counts_get(access_, i, name, &counts));
    return counts;
}

/* ------- tokens and methods ------- */

START_TEST(a_token_is_needed_and_must_be_known)
{
    use_a("\"models\": [\"*\"], \"methods\": [\"infer\", \"read\"]");
    refused(enter_at(M_MODEL_INFER, NULL, 0), VX_CODE_UNAUTHENTICATED, "no token came");
    refused(enter_at(M_MODEL_INFER, "Bearer " TOKEN_B, 0), VX_CODE_UNAUTHENTICATED,
            "the token is not known here");
    refused(enter_at(M_MODEL_INFER, "Basic " TOKEN_A, 0), VX_CODE_UNAUTHENTICATED,
            "expected the metadata 'authorization' to be 'Bearer TOKEN'");
    refused(enter_at(M_MODEL_INFER, "", 0), VX_CODE_UNAUTHENTICATED, "Bearer TOKEN");
    passes(enter_at(M_MODEL_INFER, "Bearer " TOKEN_A, 0));
    ck_assert_str_eq(ticket.name, "a");
    ck_assert_int_eq(ticket.entry, 0);
    passes(enter_at(M_REPOSITORY_INDEX, "Bearer " TOKEN_A, 0));
    refused(enter_at(M_REPOSITORY_MODEL_LOAD, "Bearer " TOKEN_A, 0),
            VX_CODE_PERMISSION_DENIED,
            "token 'a' does not permit RepositoryModelLoad, of the methods 'load'; it "
            "permits: infer read");
    refused(enter_at(M_LOG_SETTINGS, "Bearer " TOKEN_A, 0), VX_CODE_PERMISSION_DENIED,
            "of the methods 'settings'");
    refused(enter_at(M_CUDA_SHARED_MEMORY_STATUS, "Bearer " TOKEN_A, 0),
            VX_CODE_PERMISSION_DENIED, "of the methods 'memory'");
    struct vx_access_counts a = counts_of(0), nobody = counts_of(-1);
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
    use_a("\"models\": [\"*\"], \"methods\": [\"load\"], "
          "\"limits\": {\"requests\": {\"per_second\": 1e-6, \"burst\": 1}}");
    for (size_t i = 0; i < VX_COUNT(health); i++) {
        passes(enter_at(health[i], NULL, 0));
        ck_assert_int_eq(ticket.entry, -1);
        passes(enter_at(health[i], "Bearer " TOKEN_A, 0)); /* is not counted */
        refused(enter_at(health[i], "Bearer " TOKEN_B, 0), VX_CODE_UNAUTHENTICATED, "");
    }
    refused(enter_at(M_HEALTH_WATCH, NULL, 0), VX_CODE_UNAUTHENTICATED, "no token");
    refused(enter_at(M_HEALTH_LIST, NULL, 0), VX_CODE_UNAUTHENTICATED, "no token");
    /* A probe without a token learns nothing of models. */
    passes(enter_at(M_HEALTH_CHECK, NULL, 0));
    refused(vx_access_model(access_, &ticket, "m", &why), VX_CODE_UNAUTHENTICATED,
            "no token");
    ck_assert(!vx_access_sees(access_, &ticket, "m"));
}
END_TEST

START_TEST(health_asks_where_it_is_set)
{
    vx_access_close(&access_);
    open_with(&(struct vx_access_options){
        .tokens = true, .health_asks = true, .connections_max = 4});
    use_a("\"models\": [\"*\"], \"methods\": [\"infer\"]");
    refused(enter_at(M_SERVER_LIVE, NULL, 0), VX_CODE_UNAUTHENTICATED, "no token");
    passes(enter_at(M_SERVER_LIVE, "Bearer " TOKEN_A, 0));
}
END_TEST

START_TEST(models_by_name_and_pattern)
{
    use_a("\"models\": [\"normals\", \"street-*\"], \"methods\": [\"infer\"]");
    passes(enter_at(M_MODEL_INFER, "Bearer " TOKEN_A, 0));
    passes(vx_access_model(access_, &ticket, "normals", &why));
    passes(vx_access_model(access_, &ticket, "street-2", &why));
    refused(vx_access_model(access_, &ticket, "secret", &why), VX_CODE_PERMISSION_DENIED,
            "token 'a' does not permit model 'secret'");
    refused(vx_access_model(access_, &ticket, "", &why), VX_CODE_PERMISSION_DENIED, "''");
    ck_assert(vx_access_sees(access_, &ticket, "street-"));
    ck_assert(!vx_access_sees(access_, &ticket, "normals2"));
    ck_assert_uint_eq(counts_of(0).refused[VX_ACCESS_REFUSED_MODEL], 2);
}
END_TEST

START_TEST(expiry)
{
    use_a("\"models\": [\"*\"], \"methods\": [\"infer\"], "
          "\"expires\": \"2001-01-01T00:00:00Z\"");
    refused(enter_at(M_MODEL_INFER, "Bearer " TOKEN_A, 0), VX_CODE_UNAUTHENTICATED,
            "token 'a' has expired");
    ck_assert_uint_eq(counts_of(0).refused[VX_ACCESS_REFUSED_EXPIRED], 1);
    use_a("\"models\": [\"*\"], \"methods\": [\"infer\"], "
          "\"expires\": \"9999-01-01T00:00:00Z\"");
    passes(enter_at(M_MODEL_INFER, "Bearer " TOKEN_A, 0));
}
END_TEST

START_TEST(a_certificate_and_anyone)
{
    use("{\"tokens\": [{\"name\": \"c\", \"certificate\": \"CN=camera\", \"models\": "
        "[\"m\"], \"methods\": [\"infer\"]}, {\"name\": \"open\", \"anyone\": true, "
        "\"models\": [\"demo\"], \"methods\": [\"infer\"]}]}");
    struct vx_access_arrival arrival = {
        .method = M_MODEL_INFER, .certificate = "CN=camera", .is_request = true};
    passes(vx_access_enter(access_, &arrival, &why, &ticket));
    ck_assert_str_eq(ticket.name, "c");
    arrival.certificate = "CN=camera2";
    refused(vx_access_enter(access_, &arrival, &why, &ticket), VX_CODE_UNAUTHENTICATED,
            "the client's certificate is not known here");
    /* A token counts more than a certificate, and a wrong one is not forgiven. */
    arrival.certificate = "CN=camera";
    arrival.authorization = "Bearer " TOKEN_A;
    arrival.authorization_length = strlen(arrival.authorization);
    refused(vx_access_enter(access_, &arrival, &why, &ticket), VX_CODE_UNAUTHENTICATED,
            "the token is not known here");
    passes(enter_at(M_MODEL_INFER, NULL, 0));
    ck_assert_str_eq(ticket.name, "open");
    passes(vx_access_model(access_, &ticket, "demo", &why));
    refused(vx_access_model(access_, &ticket, "m", &why), VX_CODE_PERMISSION_DENIED,
            "token 'open'");
    refused(enter_at(M_LOG_SETTINGS, NULL, 0), VX_CODE_PERMISSION_DENIED, "settings");
}
END_TEST

START_TEST(the_admin_port)
{
    char text[1024];
    snprintf(text, sizeof text,
             "{\"tokens\": [{\"name\": \"a\", \"sha256\": \"%s\", \"models\": [\"*\"], "
             "\"methods\": [\"infer\"]}, {\"name\": \"b\", \"sha256\": \"%s\", "
             "\"models\": [\"*\"], \"methods\": [\"admin\"]}]}",
             hex_of(TOKEN_A), hex_of(TOKEN_B));
    use(text);
    static const char a[] = "Bearer " TOKEN_A, b[] = "Bearer " TOKEN_B;
    refused(vx_access_enter_admin(access_, NULL, 0, &why), VX_CODE_UNAUTHENTICATED, "no");
    refused(vx_access_enter_admin(access_, "x", 1, &why), VX_CODE_UNAUTHENTICATED, "");
    refused(vx_access_enter_admin(access_, a, strlen(a), &why), VX_CODE_PERMISSION_DENIED,
            "token 'a' does not permit the admin port");
    passes(vx_access_enter_admin(access_, b, strlen(b), &why));
}
END_TEST

/* ------- limits ------- */

static vx_status spend(i64 requests, i64 bytes, i64 voxels, i64 now_ns)
{
    const struct vx_access_cost cost = {{[VX_ACCESS_REQUESTS] = requests,
                                         [VX_ACCESS_BYTES] = bytes,
                                         [VX_ACCESS_VOXELS] = voxels}};
    why.text[0] = '\0';
    return vx_access_spend(access_, &ticket, &cost, now_ns, &why);
}

START_TEST(requests_of_a_token)
{
    use_a("\"models\": [\"*\"], \"methods\": [\"infer\", \"read\"], "
          "\"limits\": {\"requests\": {\"per_second\": 2, \"burst\": 3}}");
    for (i32 i = 0; i < 3; i++)
        passes(enter_at(i ? M_MODEL_INFER : M_REPOSITORY_INDEX, "Bearer " TOKEN_A, S));
    refused(enter_at(M_MODEL_INFER, "Bearer " TOKEN_A, S), VX_CODE_RESOURCE_EXHAUSTED,
            "token 'a' has used its limit of 2 requests per second; try again in about "
            "500 ms");
    /* A stream is none, its messages are. */
    passes(enter_at(M_MODEL_STREAM_INFER, "Bearer " TOKEN_A, S));
    refused(spend(1, 10, 0, S), VX_CODE_RESOURCE_EXHAUSTED, "2 requests per second");
    passes(spend(1, 10, 0, S + S / 2 + 1000));
    refused(spend(1, 10, 0, S + S / 2 + 1000), VX_CODE_RESOURCE_EXHAUSTED, "");
    struct vx_access_counts a = counts_of(0);
    ck_assert_uint_eq(a.requests, 4);
    ck_assert_uint_eq(a.bytes, 30); /* bytes have come, whatever the answer */
    ck_assert_uint_eq(a.refused[VX_ACCESS_REFUSED_REQUESTS], 3);
}
END_TEST

START_TEST(bytes_and_voxels_of_a_token)
{
    use_a("\"models\": [\"*\"], \"methods\": [\"infer\", \"read\"], "
          "\"limits\": {\"bytes\": {\"per_second\": 100, \"burst\": 1000}, "
          "\"voxels\": {\"per_second\": 10, \"burst\": 50}}");
    passes(enter_at(M_MODEL_INFER, "Bearer " TOKEN_A, 0));
    passes(spend(0, 900, 0, 0));
    passes(spend(0, 0, 40, 0));
    passes(enter_at(M_MODEL_INFER, "Bearer " TOKEN_A, 0));
    passes(spend(0, 5000, 0, 0)); /* 100 bytes were left: served, and owed for */
    passes(spend(0, 0, 400, 0));
    /* Before the message is read. */
    refused(enter_at(M_MODEL_INFER, "Bearer " TOKEN_A, 0), VX_CODE_RESOURCE_EXHAUSTED,
            "100 bytes per second; try again in about 49010 ms");
    passes(enter_at(M_MODEL_METADATA, "Bearer " TOKEN_A, 0)); /* has no tensors */
    refused(spend(0, 0, 1, 0), VX_CODE_RESOURCE_EXHAUSTED, "10 voxels per second");
    passes(spend(0, 0, 0, 0));
    refused(enter_at(M_MODEL_INFER, "Bearer " TOKEN_A, 49 * S),
            VX_CODE_RESOURCE_EXHAUSTED, "");
    passes(enter_at(M_MODEL_INFER, "Bearer " TOKEN_A, 50 * S));
    struct vx_access_counts a = counts_of(0);
    ck_assert_uint_eq(a.bytes, 5900);
    ck_assert_uint_eq(a.voxels, 440);
    ck_assert_uint_eq(a.refused[VX_ACCESS_REFUSED_BYTES], 2);
    ck_assert_uint_eq(a.refused[VX_ACCESS_REFUSED_VOXELS], 1);
}
END_TEST

static vx_status enter_of(u64 connection, i64 now_ns)
{
    const struct vx_access_arrival arrival = {.method = M_MODEL_INFER,
                                              .connection = connection,
                                              .is_request = true,
                                              .now_ns = now_ns};
    why.text[0] = '\0';
    return vx_access_enter(access_, &arrival, &why, &ticket);
}

START_TEST(limits_of_connections)
{
    vx_access_close(&access_);
    open_with(&(struct vx_access_options){
        .connections_max = 4,
        .connection = {[VX_ACCESS_REQUESTS] = {.per_s = 1, .burst = 2},
                       [VX_ACCESS_VOXELS] = {.per_s = 5, .burst = 10}}});
    passes(enter_of(1, 0));
    ck_assert(ticket.adds);
    passes(spend(0, 0, 30, 0));
    refused(enter_of(1, 0), VX_CODE_RESOURCE_EXHAUSTED,
            "this connection has used its limit of 5 voxels per second; try again in "
            "about 4200 ms");
    ck_assert(!ticket.adds);
    passes(enter_of(2, 0)); /* another one */
    passes(enter_of(2, 0));
    refused(enter_of(2, 0), VX_CODE_RESOURCE_EXHAUSTED, "1 requests per second");
    passes(enter_of(2, S + 1000));
    /* What it presents is not for us. */
    passes(enter_at(M_LOG_SETTINGS, "Bearer x", 0));
    passes(vx_access_model(access_, &ticket, "any", &why));
    ck_assert(vx_access_sees(access_, &ticket, "any"));
    passes(enter_at(M_SERVER_LIVE, NULL, 0));
    /* Its end: what is late is not measured, and the number is free. */
    vx_access_gone(access_, 1);
    passes(spend(0, 0, 1000, 0));
    vx_access_gone(access_, 1);
    for (u64 c = 100; c < 1100; c++) {
        passes(enter_of(c, 0));
        ck_assert(ticket.adds);
        vx_access_gone(access_, c);
    }
    for (u64 c = 2000; c < 2000 + 4 + 64 - 2; c++) passes(enter_of(c, 0)); /* 2 and 7 */
    refused(enter_of(9000, 0), VX_CODE_RESOURCE_EXHAUSTED, "try again later");
}
END_TEST

/* With a table, a connection's limits are for those that present nothing. */
START_TEST(limits_of_connections_and_tokens)
{
    char text[1024];
    vx_access_close(&access_);
    open_with(&(struct vx_access_options){
        .tokens = true,
        .connections_max = 4,
        .connection = {[VX_ACCESS_REQUESTS] = {.per_s = 1, .burst = 2}}});
    snprintf(text, sizeof text,
             "{\"tokens\": [{\"name\": \"a\", \"sha256\": \"%s\", \"models\": [\"*\"], "
             "\"methods\": [\"infer\"]}, {\"name\": \"open\", \"anyone\": true, "
             "\"models\": [\"*\"], \"methods\": [\"infer\"], \"limits\": {\"requests\": "
             "{\"per_second\": 1, \"burst\": 3}}}]}",
             hex_of(TOKEN_A));
    use(text);
    for (i32 i = 0; i < 10; i++) passes(enter_at(M_MODEL_INFER, "Bearer " TOKEN_A, 0));
    passes(enter_of(7, 0));
    passes(enter_of(7, 0));
    refused(enter_of(7, 0), VX_CODE_RESOURCE_EXHAUSTED, "this connection has used");
    passes(enter_of(8, 0)); /* the third of the entry */
    refused(enter_of(8, 0), VX_CODE_RESOURCE_EXHAUSTED, "token 'open' has used");
    refused(enter_of(9, 0), VX_CODE_RESOURCE_EXHAUSTED, "token 'open' has used");
}
END_TEST

/* ------- tables that are replaced ------- */

START_TEST(a_ticket_follows_the_table)
{
    use_a("\"models\": [\"m\"], \"methods\": [\"infer\"]");
    passes(enter_at(M_MODEL_STREAM_INFER, "Bearer " TOKEN_A, 0));
    passes(spend(1, 1, 1, 0));
    use_a("\"models\": [\"n\"], \"methods\": [\"infer\"]");
    refused(vx_access_model(access_, &ticket, "m", &why), VX_CODE_PERMISSION_DENIED, "");
    passes(vx_access_model(access_, &ticket, "n", &why));
    /* Another entry in front of it: the same token, another place. */
    char text[1024];
    snprintf(text, sizeof text,
             "{\"tokens\": [{\"name\": \"b\", \"sha256\": \"%s\", \"models\": [\"b\"], "
             "\"methods\": [\"read\"]}, {\"name\": \"a2\", \"sha256\": \"%s\", "
             "\"models\": [\"x\"], \"methods\": [\"infer\"]}]}",
             hex_of(TOKEN_B), hex_of(TOKEN_A));
    use(text);
    passes(vx_access_model(access_, &ticket, "x", &why));
    ck_assert_str_eq(ticket.name, "a2");
    /* It is taken away: the stream's next message is refused, and each after it. */
    use("{\"tokens\": []}");
    for (i32 i = 0; i < 3; i++)
        refused(spend(1, 1, 0, 0), VX_CODE_UNAUTHENTICATED, "or no longer");
    refused(vx_access_model(access_, &ticket, "x", &why), VX_CODE_UNAUTHENTICATED, "");
    ck_assert(!vx_access_sees(access_, &ticket, "x"));
    ck_assert_str_eq(ticket.name, "");
    struct vx_access_counts counts;
    char name[VX_ACCESS_NAME_BYTES];
    ck_assert(!vx_access_counts_get(access_, 0, name, &counts));
}
END_TEST

START_TEST(counts_and_buckets_stay_by_name)
{
    const char *may = "\"models\": [\"*\"], \"methods\": [\"infer\"], \"limits\": "
                      "{\"requests\": {\"per_second\": 1, \"burst\": 2}}";
    char text[1024], name[VX_ACCESS_NAME_BYTES];
    struct vx_access_counts counts;
    use_a(may);
    passes(enter_at(M_MODEL_INFER, "Bearer " TOKEN_A, 0));
    passes(enter_at(M_MODEL_INFER, "Bearer " TOKEN_A, 0));
    for (i32 i = 0; i < 5; i++) use_a(may); /* reloads fill nothing */
    refused(enter_at(M_MODEL_INFER, "Bearer " TOKEN_A, 0), VX_CODE_RESOURCE_EXHAUSTED,
            "");
    ck_assert_uint_eq(counts_of(0).requests, 2);
    /* The token is replaced by another, and an entry comes before it. */
    snprintf(text, sizeof text,
             "{\"tokens\": [{\"name\": \"z\", \"anyone\": true, \"models\": [\"*\"], "
             "\"methods\": [\"read\"]}, {\"name\": \"a\", \"sha256\": \"%s\", %s}]}",
             hex_of(TOKEN_B), may);
    use(text);
    ck_assert(vx_access_counts_get(access_, 1, name, &counts));
    ck_assert_str_eq(name, "a");
    ck_assert_uint_eq(counts.requests, 2);
    refused(enter_at(M_MODEL_INFER, "Bearer " TOKEN_B, 0), VX_CODE_RESOURCE_EXHAUSTED,
            "");
    refused(enter_at(M_MODEL_INFER, "Bearer " TOKEN_A, 0), VX_CODE_UNAUTHENTICATED, "");
    passes(enter_at(M_MODEL_INFER, "Bearer " TOKEN_B, 2 * S));
}
END_TEST

/* Threads ask while the table is replaced: a token that every table has always passes. */
static atomic_bool over;
static void *ask(void *context)
{
    struct vx_access_ticket own;
    struct vx_why text;
    u64 asked = 0, *out = context;
    static const char authorization[] = "Bearer " TOKEN_A;
    const struct vx_access_arrival arrival = {.method = M_MODEL_INFER,
                                              .connection = 1,
                                              .authorization = authorization,
                                              .authorization_length =
                                                  sizeof authorization - 1,
                                              .is_request = true};
    while (!atomic_load(&over) || asked < 100) {
        const struct vx_access_cost cost = {{[VX_ACCESS_BYTES] = 10}};
        bool bad = vx_access_enter(access_, &arrival, &text, &own).fault ||
                   vx_access_model(access_, &own, "m", &text).fault ||
                   vx_access_spend(access_, &own, &cost, 0, &text).fault;
        if (bad) return (void *)1;
        asked++;
    }
    *out = asked;
    return NULL;
}

START_TEST(tables_are_replaced_under_load)
{
    pthread_t threads[3];
    u64 asked[3] = {0};
    use_a("\"models\": [\"m\"], \"methods\": [\"infer\"]");
    atomic_store(&over, false);
    for (i32 t = 0; t < 3; t++)
        ck_assert(!pthread_create(&threads[t], NULL, ask, &asked[t]));
    for (i32 i = 0; i < 300; i++)
        use_a(i % 2 ? "\"models\": [\"m\"], \"methods\": [\"infer\"]"
                    : "\"models\": [\"x\", \"*\"], \"methods\": [\"infer\", \"read\"]");
    atomic_store(&over, true);
    u64 sum = 0;
    for (i32 t = 0; t < 3; t++) {
        void *bad;
        ck_assert(!pthread_join(threads[t], &bad));
        ck_assert_ptr_null(bad);
        sum += asked[t];
    }
    struct vx_access_counts a = counts_of(0);
    ck_assert_uint_eq(a.requests, sum);
    ck_assert_uint_eq(a.bytes, 10 * sum);
}
END_TEST

/* ------- the file ------- */

static char folder[64], path[96];
static uv_loop_t loop;
static struct vx_access_file file;

static void write_file(const char *text, mode_t mode)
{
    char next[128];
    snprintf(next, sizeof next, "%s.next", path);
    FILE *to = fopen(next, "w");
    ck_assert_ptr_nonnull(to);
    fputs(text, to);
    ck_assert(!fclose(to));
    ck_assert(!chmod(next, mode));
    ck_assert(!rename(next, path));
}

static const char *entry_a(void)
{
    static char text[512];
    snprintf(text, sizeof text,
             "{\"tokens\": [{\"name\": \"a\", \"sha256\": \"%s\", \"models\": [\"*\"], "
             "\"methods\": [\"infer\"]}]}",
             hex_of(TOKEN_A));
    return text;
}

static void set_up_file(void)
{
    set_up();
    snprintf(folder, sizeof folder, "/tmp/vx-access-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/tokens.json", folder);
    ck_assert(!uv_loop_init(&loop));
    file = (struct vx_access_file){.path = NULL};
}
static void tear_down_file(void)
{
    vx_access_file_close(&file);
    uv_run(&loop, UV_RUN_DEFAULT);
    ck_assert(!uv_loop_close(&loop));
    unlink(path);
    ck_assert(!rmdir(folder));
    tear_down();
}

START_TEST(a_file_that_cannot_be_used_is_an_error)
{
    static const struct {
        const char *text;
        mode_t mode;
        enum vx_code code;
        const char *sentence;
    } rows[] = {
        {"{\"tokens\": [\n {}]}", 0600, VX_CODE_INVALID_ARGUMENT, "tokens.json: line 2"},
        {"{\"tokens\": []}", 0602, VX_CODE_PERMISSION_DENIED, "got mode 0602: chmod o-w"},
    };
    for (size_t i = 0; i < VX_COUNT(rows); i++) {
        write_file(rows[i].text, rows[i].mode);
        refused(vx_access_file_open(&file, &loop, path, access_, &why), rows[i].code,
                rows[i].sentence);
        file.loop = NULL; /* it was not opened */
    }
    unlink(path);
    refused(vx_access_file_open(&file, &loop, path, access_, &why), VX_CODE_NOT_FOUND,
            "expected a file of tokens that can be read");
    refused(vx_access_file_open(&file, &loop, folder, access_, &why), VX_CODE_NOT_FOUND,
            "expected a regular file");
    file.loop = NULL;
}
END_TEST

START_TEST(a_file_that_others_may_read_is_a_warning)
{
    u64 before = vx_log_count(VX_EVENT_TOKENS_OPEN);
    write_file(entry_a(), 0600);
    passes(vx_access_file_open(&file, &loop, path, access_, &why));
    ck_assert_uint_eq(vx_log_count(VX_EVENT_TOKENS_OPEN), before);
    vx_access_file_close(&file);
    uv_run(&loop, UV_RUN_DEFAULT);
    write_file(entry_a(), 0644);
    passes(vx_access_file_open(&file, &loop, path, access_, &why));
    ck_assert_uint_eq(vx_log_count(VX_EVENT_TOKENS_OPEN), before + 1);
}
END_TEST

static void wait_for(enum vx_log_event event, u64 count)
{
    while (vx_log_count(event) < count) uv_run(&loop, UV_RUN_ONCE);
}

START_TEST(a_changed_file_is_read_again)
{
    write_file(entry_a(), 0600);
    passes(vx_access_file_open(&file, &loop, path, access_, &why));
    passes(enter_at(M_MODEL_INFER, "Bearer " TOKEN_A, 0));
    /* Asked for, as by SIGHUP, many times at once: it is read at least once more. */
    u64 reads = vx_log_count(VX_EVENT_TOKENS);
    for (i32 i = 0; i < 10; i++) vx_access_file_look(&file);
    wait_for(VX_EVENT_TOKENS, reads + 2);
    ck_assert_uint_le(vx_log_count(VX_EVENT_TOKENS), reads + 3);
    /* A wrong one changes nothing and is reported once. */
    u64 failures = vx_log_count(VX_EVENT_TOKENS_FAILED);
    write_file("{\"tokens\": [", 0600);
    wait_for(VX_EVENT_TOKENS_FAILED, failures + 1);
    passes(enter_at(M_MODEL_INFER, "Bearer " TOKEN_A, 0));
    /* A right one applies, without being asked for. */
    reads = vx_log_count(VX_EVENT_TOKENS);
    write_file("{\"tokens\": []}", 0600);
    wait_for(VX_EVENT_TOKENS, reads + 1);
    refused(enter_at(M_MODEL_INFER, "Bearer " TOKEN_A, 0), VX_CODE_UNAUTHENTICATED, "");
    ck_assert_uint_eq(vx_log_count(VX_EVENT_TOKENS_FAILED), failures + 1);
    /* One that is gone, too, changes nothing. */
    unlink(path);
    wait_for(VX_EVENT_TOKENS_FAILED, failures + 2);
    reads = vx_log_count(VX_EVENT_TOKENS);
    write_file(entry_a(), 0600);
    wait_for(VX_EVENT_TOKENS, reads + 1);
    passes(enter_at(M_MODEL_INFER, "Bearer " TOKEN_A, 0));
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
    tcase_add_test(tcase, a_certificate_and_anyone);
    tcase_add_test(tcase, the_admin_port);
    tcase_add_test(tcase, requests_of_a_token);
    tcase_add_test(tcase, bytes_and_voxels_of_a_token);
    tcase_add_test(tcase, limits_of_connections);
    tcase_add_test(tcase, limits_of_connections_and_tokens);
    tcase_add_test(tcase, a_ticket_follows_the_table);
    tcase_add_test(tcase, counts_and_buckets_stay_by_name);
    tcase_add_test(tcase, tables_are_replaced_under_load);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("file");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up_file, tear_down_file);
    tcase_add_test(tcase, a_file_that_cannot_be_used_is_an_error);
    tcase_add_test(tcase, a_file_that_others_may_read_is_a_warning);
    tcase_add_test(tcase, a_changed_file_is_read_again);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
