/* Connections that stay within the preface or a header block, with and without TLS.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "tests/unit/server/govern/governor_rig.h"
#include "tests/unit/server/tls/tls_rig.h"

#include <check.h>
#include <stdlib.h>
#include <unistd.h>

/* As in rpc_govern_turn.c: 20 s. */
#define LOOK_NS      (VX_NS_PER_S / 2)
#define BROKEN_LOOKS 40

#define PREFACE_BYTES ((int)sizeof TLS_PREFACE - 1)

static void turns(i32 count, i64 *now_ns)
{
    for (i32 i = 0; i < count; i++) {
        *now_ns += LOOK_NS;
        vx_rpc_governor_turn(rig_governor, *now_ns);
    }
}

/* A header block that begins with ":method: GET" and does not end. */
#define HALF_BLOCK "\0\0\1\1\0\0\0\0\1\x82"

static const struct {
    const char *bytes;
    int count;
    bool late;
} said[] = {
    {TLS_PREFACE, 1, true},
    {TLS_PREFACE, PREFACE_BYTES - 1, true},
    {TLS_PREFACE, PREFACE_BYTES, false},
    {TLS_PREFACE HALF_BLOCK, sizeof TLS_PREFACE HALF_BLOCK - 1, true},
};

START_TEST(who_stays_in_a_beginning_is_late)
{
    i64 now_ns = vx_clock_ns();
    rig_open(0);
    i32 one = rig_connect();
    ck_assert_int_eq(write(rig_theirs[one], said[_i].bytes, (size_t)said[_i].count),
                     said[_i].count);
    rig_read_all(one);
    turns(BROKEN_LOOKS - 1, &now_ns);
    ck_assert(!rig_is_closed(one));
    turns(1, &now_ns);
    ck_assert_int_eq(rig_is_closed(one), said[_i].late);
    rig_close();
}
END_TEST

/* A byte now and then is no progress. */
START_TEST(who_sends_its_preface_by_bytes_is_late)
{
    i64 now_ns = vx_clock_ns();
    i32 looks = 0;
    rig_open(0);
    i32 one = rig_connect();
    for (int i = 0; i < PREFACE_BYTES - 1; i++) {
        ck_assert_int_eq(write(rig_theirs[one], &TLS_PREFACE[i], 1), 1);
        rig_read_all(one);
        turns(2, &now_ns);
        looks += 2;
        ck_assert_int_eq(rig_is_closed(one), looks >= BROKEN_LOOKS);
        if (rig_is_closed(one)) break;
    }
    ck_assert(rig_is_closed(one));
    rig_close();
}
END_TEST

/* The handshake is over with the first byte of the preface, and the rest is awaited here,
 * as without TLS. */
START_TEST(tls_changes_nothing)
{
    static u8 buffer[RIG_BUFFER_BYTES];
    i64 now_ns = vx_clock_ns();
    struct tls_rig tls;
    struct tls_pair pair;
    int part = said[_i].count < PREFACE_BYTES ? said[_i].count : PREFACE_BYTES;
    rig_open(0);
    tls_rig_open(&tls);
    tls_pair_open(&tls, &pair, 0, 0);
    tls_pair_shake_part(&pair, part);
    ck_assert_int_eq(pair.result, VX_TLS_FINISHED);
    struct vx_rpc_govern *govern = vx_rpc_governor_row(rig_governor, 0);
    vx_rpc_govern_begin(govern, (struct vx_rpc_place){pair.fd, 1}, 0);
    vx_rpc_govern_secure(govern, pair.session);
    if (said[_i].count > part)
        tls_client_send(&pair, said[_i].bytes + part, said[_i].count - part);
    for (ssize_t read = 0; read < said[_i].count;) {
        struct iovec piece = {buffer, sizeof buffer};
        struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
        ssize_t got = vx_rpc_govern_read(pair.fd, &message, 0);
        if (got > 0) read += got;
    }
    turns(BROKEN_LOOKS - 1, &now_ns);
    ck_assert_int_eq(govern->cut, VX_RPC_CUT_NONE);
    turns(1, &now_ns);
    ck_assert_int_eq(govern->cut, said[_i].late ? VX_RPC_CUT_LATE : VX_RPC_CUT_NONE);
    vx_rpc_govern_end(govern);
    tls_pair_close(&pair);
    tls_rig_close(&tls);
    rig_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_governor_late");
    TCase *tests = tcase_create("rpc_governor_late");
    tcase_add_loop_test(tests, who_stays_in_a_beginning_is_late, 0, VX_COUNT(said));
    tcase_add_test(tests, who_sends_its_preface_by_bytes_is_late);
    tcase_add_loop_test(tests, tls_changes_nothing, 0, VX_COUNT(said));
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
