/* Any bytes through the admin port's parser: no crash, limits hold, and the division
 * of the bytes into reads changes nothing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/check.h"
#include "server/http/http_parse.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const u8 *data, size_t bytes);

struct outcome {
    int requests;
    bool is_bad;
    u64 paths; /* a sum over all paths and queries */
};

static u64 text_sum(u64 sum, const char *text)
{
    for (; *text; text++) sum = sum * 31 + (u8)*text;
    return sum * 31;
}

static struct outcome feed(const char *data, size_t bytes, size_t piece)
{
    static struct vx_http_parser parser; /* its texts end where ASan checks */
    struct outcome outcome = {0};
    vx_http_parser_init(&parser);
    for (size_t at = 0; at < bytes;) {
        size_t length = bytes - at < piece ? bytes - at : piece, used = 0;
        enum vx_http_parsed parsed = vx_http_parse(&parser, data + at, length, &used);
        VX_ASSERT(used <= length);
        at += used;
        if (parsed == VX_HTTP_BAD) {
            VX_ASSERT(parser.status >= 400);
            VX_ASSERT(parser.status <= 505);
            VX_ASSERT(parser.why[0]);
            outcome.is_bad = true;
            break;
        }
        if (parsed == VX_HTTP_MORE) VX_ASSERT(used == length);
        if (parsed != VX_HTTP_REQUEST) continue;
        VX_ASSERT(used > 0);
        outcome.requests++;
        outcome.paths = text_sum(text_sum(outcome.paths, parser.path), parser.query);
    }
    return outcome;
}

int LLVMFuzzerTestOneInput(const u8 *data, size_t bytes)
{
    if (bytes < 2) return 0;
    const char *text = (const char *)data + 1;
    struct outcome whole = feed(text, bytes - 1, bytes);
    struct outcome torn = feed(text, bytes - 1, 1 + data[0] % 37u);
    VX_ASSERT(whole.requests == torn.requests);
    VX_ASSERT(whole.paths == torn.paths);
    VX_ASSERT(whole.is_bad == torn.is_bad);
    return 0;
}
