/* answer - parses what a collector answers to a POST, however much it sends.
 *
 * llhttp knows the grammar.  This keeps what the exporter needs: the status, when to try
 * again, and the beginning of the body.  The rest is read and dropped, up to a limit.
 *
 *   vx_answer_init(&answer);
 *   switch (vx_answer_feed(&answer, bytes, length)) {
 *   case VX_ANSWER_MORE: ...read more; at the end of the stream vx_answer_end(&answer)...
 *   case VX_ANSWER_DONE: ...answer.status; may the connection be used again?...
 *   case VX_ANSWER_BAD:  ...close...
 *   }
 *
 * Owner    the caller; must not move while it is in use.
 * Thread   one at a time; no sockets, no allocation.
 * Limits   VX_ANSWER_WIRE_BYTES_MAX in all, VX_ANSWER_BODY_BYTES kept.
 * Fails    BAD, with a sentence in `why`.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_ANSWER_H
#define VX_SERVER_ANSWER_H

#include "engine/base/types.h"

#include <llhttp.h>

/* A collector's answer has some 100 bytes; a page of a proxy that is in its place, more. */
#define VX_ANSWER_WIRE_BYTES_MAX 65536
#define VX_ANSWER_BODY_BYTES     2048
#define VX_ANSWER_HEADER_BYTES   64

enum vx_answered { VX_ANSWER_MORE, VX_ANSWER_DONE, VX_ANSWER_BAD };

struct vx_answer {
    llhttp_t llhttp;
    size_t wire_bytes;
    /* The header that is being read: what of it fits. */
    char name[VX_ANSWER_HEADER_BYTES], value[VX_ANSWER_HEADER_BYTES];
    size_t name_length, value_length;
    bool complete;

    /* After DONE: */
    i32 status;
    bool keep_alive;
    char retry_after[VX_ANSWER_HEADER_BYTES]; /* the header's value; "" = none */
    u8 body[VX_ANSWER_BODY_BYTES];
    size_t body_length;

    const char *why; /* after BAD */
};

void vx_answer_init(struct vx_answer *answer);
enum vx_answered vx_answer_feed(struct vx_answer *answer, const char *bytes,
                                size_t length);
/* The collector has closed: DONE if that ends the answer, else BAD. */
enum vx_answered vx_answer_end(struct vx_answer *answer);

/* Milliseconds that a Retry-After asks for, in seconds or as a date, at a time since 1970;
 * -1 = it is neither.  Never more than VX_RETRY_AFTER_MS_MAX. */
#define VX_RETRY_AFTER_MS_MAX 60000
i64 vx_retry_after_ms(const char *text, i64 wall_ms);

#endif
