/* TLS below gRPC: the first bytes, handshakes, reads and writes of any size, and what a
 * client may cost.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/log.h"
#include "tests/support/wait.h"
#include "tests/unit/server/tls/tls_rig.h"

#include <check.h>
#include <errno.h>
#include <openssl/err.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define MESSAGE_BYTES (3 << 20)
#define COUNT         VX_TLS_SESSIONS_MAX
#define FEW           1000  /* records of a byte */
#define UPDATES       10000 /* several times what is read at once */

static u8 sent[MESSAGE_BYTES], received[MESSAGE_BYTES];

static void fill(void)
{
    for (size_t i = 0; i < sizeof sent; i++) sent[i] = (u8)(i * 7 + i / 251);
    memset(received, 0, sizeof received);
}

/* ------- the first bytes ------- */

static const struct {
    const char *what;
    u8 bytes[VX_TLS_FIRST_BYTES];
    size_t got, there;
    enum vx_tls_first is;
} firsts[] = {
    {"nothing", {0}, 0, 0, VX_TLS_FIRST_PART},
    {"a byte", {22}, 1, 1, VX_TLS_FIRST_PART},
    {"a head", {22, 3, 1, 2, 0}, 5, 5, VX_TLS_FIRST_PART},
    {"all but one", {22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3}, 11, 516, VX_TLS_FIRST_PART},
    {"whole", {22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3}, 11, 517, VX_TLS_FIRST_WHOLE},
    {"and more", {22, 3, 3, 2, 0, 1, 0, 1, 252, 3, 3}, 11, 600, VX_TLS_FIRST_WHOLE},
    {"HTTP/2", {'P', 'R', 'I', ' ', '*'}, 5, 24, VX_TLS_FIRST_WRONG},
    {"HTTP/1", {'G'}, 1, 1, VX_TLS_FIRST_WRONG},
    {"data", {23, 3, 3, 0, 40}, 5, 45, VX_TLS_FIRST_WRONG},
    {"SSL 2", {128, 46, 1, 3, 1}, 5, 48, VX_TLS_FIRST_WRONG},
    {"another major version", {22, 2}, 2, 2, VX_TLS_FIRST_WRONG},
    {"empty", {22, 3, 1, 0, 0}, 5, 5, VX_TLS_FIRST_WRONG},
    {"small", {22, 3, 1, 0, 37}, 5, 42, VX_TLS_FIRST_WRONG},
    {"large", {22, 3, 1, 64, 1}, 5, 99, VX_TLS_FIRST_WRONG},
    {"the largest", {22, 3, 1, 64, 0, 1, 0, 0, 0, 3, 3}, 11, 99, VX_TLS_FIRST_PART},
    {"a ServerHello", {22, 3, 3, 2, 0, 2}, 6, 600, VX_TLS_FIRST_WRONG},
    {"a hello of SSL 2",
     {22, 3, 1, 2, 0, 1, 0, 1, 252, 2, 0},
     11,
     600,
     VX_TLS_FIRST_WRONG},
};

START_TEST(first_bytes)
{
    enum vx_tls_first is =
        vx_tls_first(firsts[_i].bytes, firsts[_i].got, firsts[_i].there);
    ck_assert_msg(is == firsts[_i].is, "%s: expected %d, got %d", firsts[_i].what,
                  firsts[_i].is, is);
}
END_TEST

/* ------- handshakes ------- */

static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};

START_TEST(the_preface_is_read_first)
{
    struct tls_rig rig;
    struct tls_pair pair;
    char bytes[64];
    i64 cost;
    int left;
    tls_rig_open(&rig);
    tls_pair_open(&rig, &pair, 1, versions[_i]);
    tls_pair_shake(&pair);
    ck_assert_int_eq(pair.result, VX_TLS_FINISHED);
    ck_assert(vx_tls_pending(pair.session));
    ck_assert_int_eq(tls_read_some(&pair, bytes, sizeof bytes, &cost, &left), 24);
    ck_assert(!memcmp(bytes, TLS_PREFACE, 24));
    ck_assert_int_eq(left, 0);
    ck_assert_int_eq(tls_read(&pair, bytes, sizeof bytes, &cost, &left), -1);
    ck_assert_int_eq(errno, EAGAIN);
    ck_assert_str_eq(vx_tls_session_name(pair.session)->subject, "");
    tls_pair_close(&pair);
    tls_rig_close(&rig);
}
END_TEST

static size_t over_of(struct tls_rig *rig, struct tls_pair *pairs, size_t count)
{
    size_t over = 0;
    tls_rig_take(rig, pairs, count);
    for (size_t i = 0; i < count; i++) over += pairs[i].over;
    return over;
}

START_TEST(a_crowd_makes_room_for_itself)
{
    static struct tls_pair pairs[COUNT + 20];
    struct vx_tls_counters counters;
    struct tls_rig rig;
    tls_rig_open(&rig);
    tls_pair_open(&rig, &pairs[0], 7, 0); /* somebody else, who is older than all */
    VX_WAIT_UNTIL((vx_tls_count(rig.tls, &counters), counters.under_way == 1));
    for (size_t i = 1; i < VX_COUNT(pairs); i++) tls_pair_open(&rig, &pairs[i], 9, 0);
    VX_WAIT_UNTIL(over_of(&rig, pairs, VX_COUNT(pairs)) >= VX_COUNT(pairs) - COUNT);
    for (size_t i = 0; i < VX_COUNT(pairs); i++)
        if (pairs[i].over) ck_assert_int_eq(pairs[i].result, VX_TLS_CROWDED);
    ck_assert(!pairs[0].over);
    tls_pair_shake(&pairs[0]);
    ck_assert_int_eq(pairs[0].result, VX_TLS_FINISHED);
    for (size_t i = 0; i < VX_COUNT(pairs); i++) tls_pair_close(&pairs[i]);
    /* A session that shakes hands just now is closed by its thread. */
    VX_WAIT_UNTIL((vx_tls_count(rig.tls, &counters), counters.under_way == 0));
    tls_rig_close(&rig);
}
END_TEST

START_TEST(sessions_may_close_at_any_time)
{
    static struct tls_pair pairs[64];
    struct tls_rig rig;
    tls_rig_open(&rig);
    for (i32 round = 0; round < 5; round++) {
        for (size_t i = 0; i < VX_COUNT(pairs); i++)
            tls_pair_open(&rig, &pairs[i], (u16)(i % 3), 0);
        for (size_t i = 0; i < VX_COUNT(pairs); i++) {
            vx_tls_session_go(pairs[i].session);
            tls_rig_take(&rig, pairs, VX_COUNT(pairs));
            tls_pair_close(&pairs[i]);
        }
    }
    tls_rig_close(&rig); /* asserts that none is left */
}
END_TEST

/* ------- reads ------- */

/* The client writes records of every size, the server reads pieces of every size. */
START_TEST(reads_of_every_size)
{
    struct tls_rig rig;
    struct tls_pair pair;
    size_t out = 0, in = 0;
    u32 random = 1;
    i64 cost;
    int left;
    fill();
    tls_rig_open(&rig);
    tls_pair_open(&rig, &pair, 1, versions[_i]);
    tls_pair_shake(&pair);
    ck_assert_int_eq(tls_read_some(&pair, received, 24, &cost, &left), 24);
    while (in < sizeof sent) {
        random = random * 1664525 + 1013904223;
        size_t part = 1 + (random >> 8) % 20000, most = 1 + (random >> 4) % 70000;
        if (part > sizeof sent - out) part = sizeof sent - out;
        int wrote = part ? SSL_write(pair.client, sent + out, (int)part) : 0;
        if (wrote > 0) out += (size_t)wrote;
        ERR_clear_error();
        ssize_t got = tls_read(&pair, received + in, most, &cost, &left);
        ck_assert_int_le(got, (ssize_t)most);
        /* Nothing is left only if the socket is empty. */
        if (got < 0) ck_assert_int_eq(left, 0);
        if (got > 0) in += (size_t)got;
        if (got > 0 && (size_t)got == most) ck_assert_int_eq(left, 1);
    }
    ck_assert(!memcmp(sent, received, sizeof sent));
    tls_pair_close(&pair);
    tls_rig_close(&rig);
}
END_TEST

START_TEST(small_records_cost)
{
    struct tls_rig rig;
    struct tls_pair pair;
    i64 cost, all = 0;
    int left;
    tls_rig_open(&rig);
    tls_pair_open(&rig, &pair, 1, TLS1_3_VERSION);
    tls_pair_shake(&pair);
    ck_assert_int_eq(tls_read_some(&pair, received, 24, &cost, &left), 24);
    for (i32 i = 0; i < FEW; i++) tls_client_send(&pair, "x", 1);
    for (i32 got = 0; got < FEW;) {
        ssize_t one = tls_read_some(&pair, received, 1 << 16, &cost, &left);
        ck_assert_int_gt(one, 0);
        ck_assert_int_le(one, 64); /* then govern/ decides again */
        got += (i32)one;
        all += cost;
    }
    ck_assert_int_ge(all, FEW - FEW / 64 - 1);
    fill();
    for (i32 i = 0; i < 4; i++) tls_client_send(&pair, sent, 16384);
    for (ssize_t got = 0; got < 4 * 16384;) {
        ssize_t one = tls_read(&pair, received, 1 << 16, &cost, &left);
        ck_assert_int_eq(cost, 0);
        if (one > 0) got += one;
    }
    tls_pair_close(&pair);
    tls_rig_close(&rig);
}
END_TEST

/* A client that changes keys again and again brings nothing: each read ends, what it
 * cost is reported, and the rest is known to be there. */
START_TEST(key_updates_cost)
{
    struct tls_rig rig;
    struct tls_pair pair;
    i64 cost, all = 0;
    int left, reads = 0;
    tls_rig_open(&rig);
    tls_pair_open(&rig, &pair, 1, TLS1_3_VERSION);
    tls_pair_shake(&pair);
    ck_assert_int_eq(tls_read_some(&pair, received, 24, &cost, &left), 24);
    for (i32 i = 0; i < UPDATES; i++) {
        SSL_key_update(pair.client, SSL_KEY_UPDATE_NOT_REQUESTED);
        ck_assert_int_eq(SSL_do_handshake(pair.client), 1);
    }
    tls_client_send(&pair, "end", 3);
    ssize_t got;
    while ((got = tls_read(&pair, received, 1 << 16, &cost, &left)) < 0) {
        /* One buffer of them at most, beyond the bound. */
        ck_assert_int_le(cost, 256 + 17 * (66000 / 26));
        all += cost;
        reads++;
    }
    all += cost;
    ck_assert_int_eq(got, 3);
    ck_assert(!memcmp(received, "end", 3));
    ck_assert_int_ge(all, UPDATES * 16);
    ck_assert_int_gt(reads, 1);
    /* It may ask for one of ours, which goes out with the next bytes. */
    SSL_key_update(pair.client, SSL_KEY_UPDATE_REQUESTED);
    ck_assert_int_eq(SSL_do_handshake(pair.client), 1);
    VX_WAIT_UNTIL(tls_read(&pair, received, 100, &cost, &left) < 0 && cost > 0);
    struct iovec piece = {(void *)(uintptr_t) "hello", 5};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    ck_assert_int_eq(vx_tls_write(pair.session, &message), 5);
    ck_assert_int_eq(tls_client_read(&pair, received, 100), 5);
    tls_pair_close(&pair);
    tls_rig_close(&rig);
}
END_TEST

/* ------- writes ------- */

/* As gRPC writes: from where the last write ended, in other pieces and from another
 * place, when the client has read something. */
START_TEST(writes_go_on_where_they_ended)
{
    static u8 moved[2][MESSAGE_BYTES];
    struct tls_rig rig;
    struct tls_pair pair;
    size_t out = 0, in = 0;
    u32 random = 5;
    int refused = 0, small = 4096;
    fill();
    memcpy(moved[0], sent, sizeof sent);
    memcpy(moved[1], sent, sizeof sent);
    tls_rig_open(&rig);
    tls_pair_open(&rig, &pair, 1, versions[_i]);
    tls_pair_shake(&pair);
    setsockopt(pair.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    while (in < sizeof sent) {
        random = random * 1664525 + 1013904223;
        const u8 *from = moved[random >> 31] + out;
        size_t rest = sizeof sent - out, first = rest ? (random >> 8) % rest : 0;
        struct iovec pieces[] = {
            {(void *)(uintptr_t)from, first / 2},
            {(void *)(uintptr_t)(from + first / 2), first - first / 2},
            {(void *)(uintptr_t)(from + first), rest - first}};
        struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 3};
        ssize_t wrote = rest ? vx_tls_write(pair.session, &message) : 0;
        if (wrote < 0) ck_assert_int_eq(errno, EAGAIN);
        refused += wrote < 0;
        if (wrote > 0) out += (size_t)wrote;
        size_t room = sizeof received - in;
        int got = SSL_read(pair.client, received + in,
                           (int)(room < random >> 16 ? room : random >> 16));
        if (got > 0) in += (size_t)got;
        ERR_clear_error();
    }
    ck_assert(!memcmp(sent, received, sizeof sent));
    ck_assert_int_gt(refused, 0);
    ck_assert_uint_eq(out, sizeof sent);
    tls_pair_close(&pair);
    tls_rig_close(&rig);
}
END_TEST

START_TEST(the_ends)
{
    struct tls_rig rig;
    struct tls_pair pair;
    i64 cost;
    int left;
    struct iovec piece = {sent, sizeof sent};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    tls_rig_open(&rig);
    tls_pair_open(&rig, &pair, 1, versions[_i]);
    tls_pair_shake(&pair);
    tls_client_send(&pair, "last", 4);
    SSL_shutdown(pair.client);
    ck_assert_int_eq(tls_read_some(&pair, received, 24, &cost, &left), 24);
    ck_assert_int_eq(tls_read_some(&pair, received, 100, &cost, &left), 4);
    ck_assert_int_eq(tls_read_some(&pair, received, 100, &cost, &left), 0);
    vx_tls_bye(pair.session);
    ck_assert_int_eq(tls_client_read(&pair, received, 100), 0);
    ck_assert_int_eq(SSL_get_error(pair.client, 0), SSL_ERROR_ZERO_RETURN);
    close(pair.client_fd);
    pair.client_fd = -1;
    VX_WAIT_UNTIL(vx_tls_write(pair.session, &message) < 0 && errno == EPIPE);
    tls_pair_close(&pair);
    tls_rig_close(&rig);
}
END_TEST

START_TEST(damaged_bytes_end_it)
{
    struct tls_rig rig;
    struct tls_pair pair;
    i64 cost;
    int left;
    tls_rig_open(&rig);
    tls_pair_open(&rig, &pair, 1, versions[_i]);
    tls_pair_shake(&pair);
    ck_assert_int_eq(tls_read_some(&pair, received, 24, &cost, &left), 24);
    static const u8 damaged[] = {23, 3, 3, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8,
                                 9,  1, 2, 3, 4,  5, 6, 7, 8, 9, 1, 2};
    ck_assert_int_eq(write(pair.client_fd, damaged, sizeof damaged), sizeof damaged);
    ck_assert_int_eq(tls_read_some(&pair, received, 100, &cost, &left), 0);
    ck_assert_int_eq(tls_read_some(&pair, received, 100, &cost, &left), 0);
    int got = tls_client_read(&pair, received, 100);
    ck_assert_int_le(got, 0);
    ck_assert_int_eq(SSL_get_error(pair.client, got), SSL_ERROR_SSL); /* an alert */
    tls_pair_close(&pair);
    tls_rig_close(&rig);
}
END_TEST

static void read_with_mode(struct tls_rig *rig, mode_t mode)
{
    u64 before = vx_log_count(VX_EVENT_TLS_CERTIFICATE);
    ck_assert_int_eq(chmod(rig->key, mode), 0);
    vx_tls_reload(rig->tls);
    VX_WAIT_UNTIL(vx_log_count(VX_EVENT_TLS_CERTIFICATE) > before);
}

/* Its group may: so Kubernetes mounts a secret for a user who is not root. */
START_TEST(a_key_that_others_may_read_is_a_warning)
{
    struct tls_rig rig;
    tls_rig_open(&rig);
    u64 before = vx_log_count(VX_EVENT_TLS_KEY_OPEN);
    read_with_mode(&rig, 0600);
    read_with_mode(&rig, 0440);
    ck_assert_uint_eq(vx_log_count(VX_EVENT_TLS_KEY_OPEN), before);
    read_with_mode(&rig, 0644);
    ck_assert_uint_eq(vx_log_count(VX_EVENT_TLS_KEY_OPEN), before + 1);
    tls_rig_close(&rig);
}
END_TEST

START_TEST(a_key_of_another_user_is_told)
{
    struct tls_rig rig;
    struct vx_tls *tls;
    struct vx_why why = {""};
    tls_rig_open(&rig);
    bool is_root = !geteuid();
    ck_assert(!chmod(rig.folder, 0755) && !chmod(rig.key, is_root ? 0600 : 0000));
    struct vx_tls_options options = {.files = {rig.cert, rig.key, "", ""},
                                     .sessions_max = COUNT};
    ck_assert(!is_root || !seteuid(10001));
    vx_status status = vx_tls_open(&options, &why, &tls);
    ck_assert(!is_root || !seteuid(0));
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_msg(strstr(why.text, "--tls-key /tmp/") &&
                      strstr(why.text, "runs as user") &&
                      strstr(why.text, ": chown it, or chgrp and chmod g+r it"),
                  "%s", why.text);
    tls_rig_close(&rig);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tls");
    TCase *tests = tcase_create("tls");
    tcase_set_timeout(tests, 2 * VX_WAIT_SECONDS);
    tcase_add_loop_test(tests, first_bytes, 0, VX_COUNT(firsts));
    tcase_add_loop_test(tests, the_preface_is_read_first, 0, VX_COUNT(versions));
    tcase_add_test(tests, a_crowd_makes_room_for_itself);
    tcase_add_test(tests, sessions_may_close_at_any_time);
    tcase_add_loop_test(tests, reads_of_every_size, 0, VX_COUNT(versions));
    tcase_add_test(tests, small_records_cost);
    tcase_add_test(tests, key_updates_cost);
    tcase_add_loop_test(tests, writes_go_on_where_they_ended, 0, VX_COUNT(versions));
    tcase_add_loop_test(tests, the_ends, 0, VX_COUNT(versions));
    tcase_add_loop_test(tests, damaged_bytes_end_it, 0, VX_COUNT(versions));
    tcase_add_test(tests, a_key_that_others_may_read_is_a_warning);
    tcase_add_test(tests, a_key_of_another_user_is_told);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
