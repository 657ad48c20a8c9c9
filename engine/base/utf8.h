/* utf8 - which bytes are characters, and texts in which no other bytes are.
 *
 * One string that is not UTF-8 makes a whole protobuf message unreadable, and a JSON
 * answer or a page of metrics too.  Bytes of files, paths and clients, and characters
 * that a limit such as %.60s cut in two, become '?' here.
 *
 *   vx_utf8_print(row->reason, sizeof row->reason, "ended: %.160s", problem);
 *   for (size_t n; (n = vx_utf8_length(at, left)); at += n, left -= n) ...
 *
 * UTF-8 is what RFC 3629 says, as protobuf requires it: shortest forms, no surrogates, at
 * most U+10FFFF.
 *
 * Owner    the caller's buffers.
 * Thread   any; pure.
 * Limits   texts are cut to fit, before a character and never inside it.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_UTF8_H
#define VX_ENGINE_BASE_UTF8_H

#include "engine/base/types.h"

#include <stdarg.h>

/* Bytes of the longest character. */
#define VX_UTF8_BYTES_MAX 4

/* The bytes of the character at the beginning of `left` bytes; 0 = there is none. */
size_t vx_utf8_length(const void *at, size_t left);
/* Whether the bytes are characters only. */
bool vx_utf8_is(const void *text, size_t bytes);

/* What `*` is in "%-*s" for a text that takes so many columns, one for each character: printf
 * counts bytes. */
int vx_utf8_pad(const char *text, int columns);

/* Replaces each byte that belongs to no character by '?'.  `cut`: the text was cut to
 * fit; what that left of a character at its end is removed. */
void vx_utf8_mend(char *text, bool cut);
/* As snprintf and vsnprintf, and mends the result.  `bytes` is at least 1. */
VX_PRINTF(3, 4) void vx_utf8_print(char *out, size_t bytes, const char *format, ...);
void vx_utf8_vprint(char *out, size_t bytes, const char *format, va_list args);

#endif
