/* cuts - the reasons for which the front closes a client's connection.
 *
 * Owner    values.
 * Thread   any.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_CUTS_H
#define VX_SERVER_CUTS_H

/* Why we closed a connection; rpc_govern.h. */
enum vx_rpc_cut {
    VX_RPC_CUT_NONE,
    VX_RPC_CUT_FLOOD,   /* control frames, or calls without a message, at a steady rate */
    VX_RPC_CUT_HEADERS, /* a header block that is too large, or broken */
    VX_RPC_CUT_IDLE,    /* it had no call, and others wanted its place */
    VX_RPC_CUT_LARGE,   /* a message far beyond message_bytes_max */
    VX_RPC_CUT_LATE,    /* a message, or what comes before it, took too long */
    VX_RPC_CUT_STILL,   /* a message made no progress while others waited for its room */
    VX_RPC_CUT_STREAMS, /* more open streams than a client may have */
    VX_RPC_CUT_UNFINISHED, /* unfinished messages of more than receive_bytes_max */
    VX_RPC_CUT_UNREAD,     /* it went on sending, or we ended, and it did not read */
    VX_RPC_CUT_WINDOW,     /* more bytes than we have let it send */
    VX_RPC_CUTS_COUNT
};

#endif
