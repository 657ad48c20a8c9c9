/* rpc_stream_client - the content of a ModelStreamInferResponse, for tests.
 *
 *   struct rpc_streamed answer = rpc_streamed_of(&result);
 *   ck_assert_str_eq(answer.error, "");
 *
 * Owner    the texts are copies; `response` lies in the result.
 * Thread   the test's own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_UNIT_RPC_STREAM_CLIENT_H
#define VX_TESTS_UNIT_RPC_STREAM_CLIENT_H

#include "tests/unit/server/rpc/rpc_harness.h"

#include <check.h>
#include <string.h>

struct rpc_streamed {
    char error[512];    /* "" when there is none */
    const u8 *response; /* infer_response */
    size_t response_bytes;
    char id[256], model[128]; /* of the response */
};

/* The one field `tag` of a message of length-delimited fields; false when it is not there. */
static inline bool rpc_streamed_field(const u8 *bytes, size_t length, u8 tag,
                                      const u8 **value, size_t *value_bytes)
{
    bool found = false;
    for (size_t at = 0; at < length;) {
        u8 here = bytes[at++];
        ck_assert_int_eq(here & 7, 2);
        u64 size = 0;
        for (u32 shift = 0;; shift += 7) {
            u8 byte = bytes[at++];
            size |= (u64)(byte & 127) << shift;
            if (byte < 128) break;
        }
        ck_assert_uint_le(size, length - at);
        if (here == tag) {
            *value = bytes + at;
            *value_bytes = (size_t)size;
            found = true;
        }
        at += (size_t)size;
    }
    return found;
}

static inline void rpc_streamed_text(const struct rpc_streamed *answer, u8 tag,
                                     char *text, size_t room)
{
    const u8 *value;
    size_t bytes;
    if (!rpc_streamed_field(answer->response, answer->response_bytes, tag, &value,
                            &bytes))
        return;
    ck_assert_uint_lt(bytes, room);
    memcpy(text, value, bytes);
}

static inline struct rpc_streamed rpc_streamed_of(const struct rpc_result *result)
{
    struct rpc_streamed answer = {.error = ""};
    const u8 *error;
    size_t bytes;
    if (rpc_streamed_field(result->bytes, result->length, 0x0a, &error, &bytes)) {
        ck_assert_uint_lt(bytes, sizeof answer.error);
        memcpy(answer.error, error, bytes);
    }
    ck_assert(rpc_streamed_field(result->bytes, result->length, 0x12, &answer.response,
                                 &answer.response_bytes));
    rpc_streamed_text(&answer, 0x1a, answer.id, sizeof answer.id);
    rpc_streamed_text(&answer, 0x0a, answer.model, sizeof answer.model);
    return answer;
}

#endif
