/* Keys in OpenSSL's secure heap: what is left of a handshake, of many at once, of files that
 * were replaced; and what is said when the heap is full.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/log.h"
#include "server/tls/tls_private.h"
#include "tests/support/wait.h"
#include "tests/unit/server/tls/tls_rig.h"

#include <openssl/crypto.h>

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#define CONNECTIONS 40
#define RELOADS     20
#define CROWD       (VX_TLS_SESSIONS_MAX + 100)
#define MADE_BYTES  64 /* a key of P-384 in that heap */

static struct tls_rig rig;

static void set_up(void)
{
    tls_rig_open(&rig);
}
static void tear_down(void)
{
    tls_rig_close(&rig);
}

static const char *const groups[] = {"X25519", "P-256", "P-384"};

/* The client lies in the same process, and has keys of its own there. */
static void client_goes(struct tls_pair *pair)
{
    SSL_free(pair->client);
    pair->client = NULL;
}

static void connect_one(struct tls_pair *pair)
{
    tls_pair_open(&rig, pair, 1, 0);
    tls_pair_shake(pair);
    ck_assert_int_eq(pair->result, VX_TLS_FINISHED);
    client_goes(pair);
}

START_TEST(an_open_connection_has_no_keys)
{
    static struct tls_pair pairs[CONNECTIONS];
    ck_assert_int_eq(SSL_CTX_set1_groups_list(rig.client, groups[_i]), 1);
    ck_assert(CRYPTO_secure_malloc_initialized());
    connect_one(&pairs[0]); /* each thread takes random numbers once */
    connect_one(&pairs[1]);
    size_t before = CRYPTO_secure_used();
    for (i32 i = 2; i < CONNECTIONS; i++) connect_one(&pairs[i]);
    ck_assert_uint_le(CRYPTO_secure_used(), before + 1024); /* a thread that came late */
    for (i32 i = 0; i < CONNECTIONS; i++) tls_pair_close(&pairs[i]);
}
END_TEST

/* A connection outlives the certificate that it was made with, whose key does not stay. */
START_TEST(files_that_were_replaced_leave_no_keys)
{
    static struct tls_pair pairs[RELOADS + 2];
    connect_one(&pairs[0]);
    connect_one(&pairs[1]);
    size_t before = CRYPTO_secure_used();
    for (i32 i = 0; i < RELOADS; i++) {
        u64 read = vx_log_count(VX_EVENT_TLS_CERTIFICATE);
        vx_tls_reload(rig.tls);
        VX_WAIT_UNTIL(vx_log_count(VX_EVENT_TLS_CERTIFICATE) > read);
        connect_one(&pairs[i + 2]);
    }
    ck_assert_uint_le(CRYPTO_secure_used(), before + 1024);
    for (i32 i = 0; i < RELOADS + 2; i++) tls_pair_close(&pairs[i]);
}
END_TEST

/* It has its key, and waits for its client. */
static bool rests(struct tls_pair *pair)
{
    pthread_mutex_lock(&rig.tls->lock);
    bool yes = pair->session->state == VX_TLS_RESTING;
    pthread_mutex_unlock(&rig.tls->lock);
    return yes;
}

/* The accept thread has not come yet for those that lost their places. */
START_TEST(a_crowd_has_keys_for_its_places)
{
    static struct tls_pair pairs[CROWD];
    struct vx_tls_counters counters;
    ck_assert_int_eq(SSL_CTX_set1_groups_list(rig.client, "P-384"), 1);
    connect_one(&pairs[0]);
    tls_pair_close(&pairs[0]);
    size_t before = CRYPTO_secure_used();
    for (i32 i = 0; i < CROWD; i++) {
        tls_pair_open(&rig, &pairs[i], 9, 0);
        client_goes(&pairs[i]);
        VX_WAIT_UNTIL(rests(&pairs[i]));
    }
    vx_tls_count(rig.tls, &counters);
    ck_assert_int_eq(counters.under_way, VX_TLS_SESSIONS_MAX);
    size_t used = CRYPTO_secure_used() - before;
    ck_assert_uint_ge(used, VX_TLS_SESSIONS_MAX * MADE_BYTES);
    ck_assert_uint_le(used, VX_TLS_SESSIONS_MAX * MADE_BYTES + 1024);
    for (i32 i = 0; i < CROWD; i++) tls_pair_close(&pairs[i]);
    VX_WAIT_UNTIL(CRYPTO_secure_used() <= before + 1024);
}
END_TEST

/* ------- a full heap ------- */

static void *blocks[8192];
static i32 blocks_count;

static void heap_fill(void)
{
    blocks_count = 0;
    for (size_t bytes = 64; bytes >= 16; bytes /= 2)
        while ((blocks[blocks_count] = OPENSSL_secure_malloc(bytes))) blocks_count++;
}
static void heap_free(void)
{
    while (blocks_count) OPENSSL_secure_free(blocks[--blocks_count]);
}

static const char full[] = "no memory for keys: OpenSSL's secure heap of 64 KiB is full";

START_TEST(a_full_heap_is_a_reason_of_its_own)
{
    struct tls_pair pair;
    heap_fill();
    tls_pair_open(&rig, &pair, 1, TLS1_2_VERSION); /* whose client needs no key yet */
    VX_WAIT_UNTIL((tls_rig_take(&rig, &pair, 1), pair.over));
    ck_assert_str_eq(vx_tls_session_why(pair.session), full);
    ck_assert_int_eq(pair.result, VX_TLS_CROWDED);
    heap_free();
    tls_pair_close(&pair);
    connect_one(&pair);
    tls_pair_close(&pair);
}
END_TEST

static void files_are_refused(const char *before)
{
    struct vx_tls_files files = {rig.cert, rig.key, "", ""};
    struct vx_tls_context context;
    struct vx_why why = {""};
    char wanted[256];
    snprintf(wanted, sizeof wanted, "%s: %s", before, full);
    vx_status status = vx_tls_context_open(&files, &why, &context);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
    ck_assert_str_eq(vx_status_text(status, &why), wanted);
    ck_assert_ptr_null(context.ssl);
}

START_TEST(files_without_memory_say_so)
{
    char before[160];
    struct vx_tls_context context;
    struct vx_why why = {""};
    const struct vx_tls_files files = {rig.cert, rig.key, "", ""};
    heap_fill();
    files_are_refused("OpenSSL refused the settings of TLS");
    OPENSSL_secure_free(blocks[0]); /* of 64 bytes: for the settings, and for no key */
    blocks[0] = NULL;
    snprintf(before, sizeof before, "--tls-key %s: the key cannot be read", rig.key);
    files_are_refused(before);
    heap_free();
    ck_assert(!vx_tls_context_open(&files, &why, &context).fault);
    vx_tls_context_close(&context);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tls_keys");
    TCase *tests = tcase_create("keys");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 2 * VX_WAIT_SECONDS);
    tcase_add_loop_test(tests, an_open_connection_has_no_keys, 0, VX_COUNT(groups));
    tcase_add_test(tests, files_that_were_replaced_leave_no_keys);
    tcase_add_test(tests, a_crowd_has_keys_for_its_places);
    tcase_add_test(tests, a_full_heap_is_a_reason_of_its_own);
    tcase_add_test(tests, files_without_memory_say_so);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
