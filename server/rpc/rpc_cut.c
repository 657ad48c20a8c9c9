/* rpc_cut - counts and logs the connections that we closed, and why.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/rpc/rpc_private.h"

#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"

/* Lines logged each second; the next line says how many connections had none. */
#define LINES_PER_S 10

static const char *const sentences[VX_RPC_CUTS_COUNT] = {
    [VX_RPC_CUT_FLOOD] = "a flood of control frames, or of calls without a message",
    [VX_RPC_CUT_HEADERS] = "a header block of more than 16 KiB or 256 fields",
    [VX_RPC_CUT_IDLE] = "it had no call, and other clients needed its place",
    [VX_RPC_CUT_LARGE] = "a message that exceeds message_bytes_max by more than 64 MiB",
    [VX_RPC_CUT_LATE] = ("a message took longer than receive_ms_max to arrive, or the "
                         "preface or a header block longer than 20 s"),
    [VX_RPC_CUT_STILL] = "a message made no progress while others waited for its memory",
    [VX_RPC_CUT_STREAMS] = "more open streams than a client may have",
    [VX_RPC_CUT_UNFINISHED] = "unfinished messages of more than receive_bytes_max",
    [VX_RPC_CUT_UNREAD] = "it did not read the answers",
    [VX_RPC_CUT_WINDOW] = "more bytes than HTTP/2's flow control had let it send",
};

void vx_rpc_cut_note(struct vx_rpc_cuts *cuts, const char *peer, u64 connection,
                     enum vx_rpc_cut why)
{
    i64 now_ns = vx_clock_ns();
    if (!why) return;
    cuts->counts[why]++;
    if (now_ns - cuts->since_ns >= VX_NS_PER_S) {
        cuts->since_ns = now_ns;
        cuts->lines_left = LINES_PER_S;
    }
    if (!cuts->lines_left) {
        cuts->unsaid++;
        return;
    }
    cuts->lines_left--;
    VX_LOG(CONNECTION_CUT, VX_LOG_TEXT("peer", peer),
           VX_LOG_I64("connection", (i64)connection), VX_LOG_TEXT("why", sentences[why]),
           VX_LOG_I64("unsaid", cuts->unsaid));
    cuts->unsaid = 0;
}
