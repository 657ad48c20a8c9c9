/* The line for receiving: whoever leaves it, from whatever place, those behind have their turn.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/rpc_harness.h"

#include <check.h>
#include <grpc/grpc.h>

#include <stdlib.h>
#include <string.h>

enum { LINE = 3 };

/* One receives and never ends; three wait, of whom some leave; one more comes. */
START_TEST(who_comes_after_one_that_left_has_its_turn)
{
    struct rpc_server *server =
        rpc_server_open(&(struct rpc_server_options){.receiving_max = 1});
    grpc_channel *channel = rpc_channel_open(server);
    struct rpc_client first, line[LINE], late;
    struct rpc_result result = {0};
    u8 body[1024];
    size_t length = rpc_infer_body(body, sizeof body, "abcd", 4);
    i32 in_flight = 1;
    rpc_client_open(&first, channel, RPC_INFER, 0);
    rpc_wait_in_flight(server, in_flight);
    for (i32 i = 0; i < LINE; i++) {
        rpc_client_open(&line[i], channel, RPC_INFER, 0);
        rpc_wait_in_flight(server, ++in_flight);
    }
    for (i32 i = LINE - 1; i >= 0;
         i--) { /* _i: who leaves, a bit each; the last one first */
        if (!(_i >> i & 1)) continue;
        rpc_client_cancel(&line[i]);
        rpc_client_close(&line[i], &result);
        ck_assert_int_eq(result.code, GRPC_STATUS_CANCELLED);
        rpc_wait_in_flight(server, --in_flight);
    }
    rpc_client_open(&late, channel, RPC_INFER, 0);
    rpc_wait_in_flight(server, ++in_flight);
    rpc_client_cancel(&first);
    rpc_client_close(&first, &result);
    for (i32 i = 0; i <= LINE; i++) {
        struct rpc_client *client = i < LINE ? &line[i] : &late;
        if (i < LINE && _i >> i & 1) continue;
        ck_assert(rpc_client_send(client, body, length));
        rpc_client_half_close(client);
        ck_assert(rpc_client_receive(client, &result));
        rpc_client_close(client, &result);
        ck_assert_int_eq(result.code, GRPC_STATUS_OK);
        rpc_result_clear(&result);
    }
    rpc_server_wait_idle(server);
    rpc_infer_echo(channel, 100, 1);
    grpc_channel_destroy(channel);
    rpc_server_close(server);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_line");
    TCase *tests = tcase_create("rpc_line");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, who_comes_after_one_that_left_has_its_turn, 0, 1 << LINE);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
