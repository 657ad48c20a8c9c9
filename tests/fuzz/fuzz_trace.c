/* Any bytes as what callers, operators and collectors send about traces: a traceparent, the
 * settings' texts, an answer.  No crash; what is accepted is what it says it is; and the
 * division of an answer into reads changes nothing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/check.h"
#include "engine/base/utf8.h"
#include "server/metrics/tracing.h"
#include "server/trace/answer.h"
#include "server/trace/span_pack.h"
#include "server/trace/trace_text.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t bytes);

static void traceparent(const char *text)
{
    struct vx_trace trace;
    bool good = vx_tracing_parse(text, &trace);
    VX_ASSERT(strlen(trace.trace_id) == (good ? VX_TRACE_ID_BYTES - 1 : 0));
    VX_ASSERT(strlen(trace.parent_id) == (good ? VX_SPAN_ID_BYTES - 1 : 0));
    VX_ASSERT(strspn(trace.trace_id, "0123456789abcdef") == strlen(trace.trace_id));
    if (!good) VX_ASSERT(!trace.wanted);
}

static void endpoint(const char *text)
{
    struct vx_endpoint endpoint;
    struct vx_why why;
    if (vx_endpoint_parse(text, &why, &endpoint).fault) return;
    /* Nothing that would end a header, or begin another. */
    VX_ASSERT(!strpbrk(endpoint.authority, "\r\n /@"));
    VX_ASSERT(!strpbrk(endpoint.path, "\r\n "));
    VX_ASSERT(endpoint.path[0] == '/');
    VX_ASSERT(endpoint.host[0]);
    VX_ASSERT(strtol(endpoint.port, NULL, 10) >= 1);
}

static void resource(const char *text)
{
    struct vx_resource resource = {0};
    struct vx_why why;
    if (vx_resource_parse(&resource, text, &why).fault) return;
    for (i32 i = 0; i < resource.count; i++) {
        VX_ASSERT(resource.keys[i][0]);
        VX_ASSERT(vx_utf8_is(resource.values[i], strlen(resource.values[i])));
    }
}

static void ratio(const char *text)
{
    struct vx_why why;
    f64 ratio;
    if (vx_ratio_parse(text, &why, &ratio).fault) return;
    VX_ASSERT(ratio >= 0);
    VX_ASSERT(ratio <= 1);
}

static enum vx_answered answer_feed(struct vx_answer *answer, const char *data,
                                    size_t bytes, size_t piece)
{
    enum vx_answered answered = VX_ANSWER_MORE;
    vx_answer_init(answer);
    for (size_t at = 0; at < bytes && answered == VX_ANSWER_MORE; at += piece)
        answered =
            vx_answer_feed(answer, data + at, bytes - at < piece ? bytes - at : piece);
    return answered == VX_ANSWER_MORE ? vx_answer_end(answer) : answered;
}

static void answer(const u8 *data, size_t bytes)
{
    static struct vx_answer whole, torn;
    if (bytes < 1) return;
    const char *text = (const char *)data + 1;
    enum vx_answered first = answer_feed(&whole, text, bytes - 1, bytes);
    enum vx_answered second = answer_feed(&torn, text, bytes - 1, 1 + data[0] % 37u);
    VX_ASSERT(first == second);
    if (first != VX_ANSWER_DONE) return;
    VX_ASSERT(whole.status == torn.status);
    VX_ASSERT(whole.status >= 200);
    VX_ASSERT(!strcmp(whole.retry_after, torn.retry_after));
    VX_ASSERT(whole.body_length == torn.body_length);
    i64 ms = vx_retry_after_ms(whole.retry_after, 0);
    VX_ASSERT(ms >= -1);
    VX_ASSERT(ms <= VX_RETRY_AFTER_MS_MAX);
}

static void partial(const u8 *data, size_t bytes)
{
    struct vx_why why;
    VX_ASSERT(vx_span_answer_rejected(data, bytes, &why) >= 0);
    VX_ASSERT(vx_utf8_is(why.text, strlen(why.text)));
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t bytes)
{
    static void (*const texts[])(const char *) = {traceparent, endpoint, resource, ratio};
    if (bytes < 1) return 0;
    size_t which = data[0] % 6u;
    if (which == 4) answer(data + 1, bytes - 1);
    if (which == 5) partial(data + 1, bytes - 1);
    if (which >= VX_COUNT(texts)) return 0;
    char *text = malloc(bytes); /* of the exact size, where ASan checks its end */
    VX_ASSERT(text);
    memcpy(text, data + 1, bytes - 1);
    text[bytes - 1] = '\0';
    texts[which](text);
    free(text);
    return 0;
}
