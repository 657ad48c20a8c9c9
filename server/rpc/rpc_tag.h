/* rpc_tag - what is given to gRPC with an operation, and comes back when it is done.
 *
 *   record->send = (struct vx_rpc_tag){on_sent, record};
 *   VX_RPC_TAG_GIVE(&record->send);          then to gRPC
 *   VX_RPC_TAG_TAKE(tag);                    from gRPC; then tag->on(tag->context, ok)
 *
 * Owner    who gives it keeps it until it is back.
 * Thread   given on any; it comes back on the thread of its queue.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_RPC_TAG_H
#define VX_SERVER_RPC_TAG_H

#include <stdbool.h>

/* libgrpc is not instrumented.  So ThreadSanitizer must be told that what was written
 * before a tag was handed to gRPC is visible to the thread that gets the tag back. */
#ifdef __SANITIZE_THREAD__
void __tsan_acquire(void *address);
void __tsan_release(void *address);
#define VX_RPC_TAG_GIVE(tag_) __tsan_release(tag_)
#define VX_RPC_TAG_TAKE(tag_) __tsan_acquire(tag_)
#else
#define VX_RPC_TAG_GIVE(tag_) ((void)(tag_))
#define VX_RPC_TAG_TAKE(tag_) ((void)(tag_))
#endif

struct vx_rpc_tag {
    void (*on)(void *context, bool ok);
    void *context;
};

#endif
