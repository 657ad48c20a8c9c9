/* What a call keeps here while its client does not read the answer.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/rpc/rpc_private.h"
#include "tests/support/wait.h"
#include "tests/unit/server/rpc/rpc_raw.h"

#include <check.h>
#include <stdlib.h>
#include <unistd.h>

#define QUESTION_BYTES 16000

/* What the records have whose answer is on its way. */
static struct {
    i32 count;
    size_t message_bytes, headers;
} answered;

static void look(struct rpc_server *server)
{
    const struct vx_rpc *rpc = rpc_server_rpc(server);
    answered.count = 0;
    answered.message_bytes = answered.headers = 0;
    for (i32 i = 0; i < rpc->records_count; i++) {
        const struct vx_rpc_record *record = &rpc->records[i];
        if (atomic_load(&record->wire) != VX_RPC_SENDING) continue;
        answered.count++;
        if (record->payload)
            answered.message_bytes += grpc_byte_buffer_length(record->payload);
        answered.message_bytes += GRPC_SLICE_LENGTH(record->flat);
        answered.headers += record->metadata.capacity;
    }
}

/* The loop has begun to answer so many.  It looks itself: it is the thread that wrote what is looked
 * at. */
static bool are_answered(struct rpc_server *server, i32 count)
{
    rpc_server_do(server, look);
    return answered.count == count;
}

/* 1,050 such calls of 150 headers had 63 MB, of which 20 were messages and 12 lists of headers. */
START_TEST(an_unread_answer_keeps_no_question)
{
    static const u8 no_window[] = {0, 4, 0, 0, 0, 0};
    static const char *const paths[] = {RPC_LIVE, RPC_LIVE, RPC_INFER};
    u8 body[1024];
    const size_t length = rpc_infer_body(body, sizeof body, "abcd", 4);
    struct rpc_server *server = rpc_server_open(&(struct rpc_server_options){0});
    int fd = raw_open(server);
    ck_assert(raw_send(
        fd, &(struct raw_frame){RAW_SETTINGS, 0, 0, no_window, sizeof no_window}));
    for (u32 i = 0; i < VX_COUNT(paths); i++)
        ck_assert(raw_call(fd, 2 * i + 1, paths[i], NULL));
    for (u32 id = 1; id <= 3; id += 2) { /* in two pieces, which are joined */
        ck_assert(raw_message(fd, id, QUESTION_BYTES, QUESTION_BYTES / 2));
        ck_assert(raw_rest(fd, id, QUESTION_BYTES / 2 + 5));
    }
    const u8 head[] = {0, 0, 0, (u8)(length >> 8), (u8)length};
    ck_assert(raw_send(fd, &(struct raw_frame){RAW_DATA, 0, 5, head, sizeof head}));
    ck_assert(
        raw_send(fd, &(struct raw_frame){RAW_DATA, RAW_END_STREAM, 5, body, length}));
    VX_WAIT_UNTIL(are_answered(server, VX_COUNT(paths)));
    ck_assert_uint_eq(answered.message_bytes, 0);
    ck_assert_uint_eq(answered.headers, 0);
    close(fd);
    rpc_server_wait_idle(server);
    rpc_server_close(server);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_kept");
    TCase *tests = tcase_create("rpc_kept");
    tcase_set_timeout(tests, 2 * VX_WAIT_SECONDS);
    tcase_add_test(tests, an_unread_answer_keeps_no_question);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
