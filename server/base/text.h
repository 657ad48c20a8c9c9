/* text - builds a text in the caller's memory, and escapes for HTML, JSON and Prometheus.
 *
 * Metrics, pages and help are long texts made of small pieces.  A piece that does not fit
 * is left out entirely and sets `full`, so that the writer checks once, at the end.
 *
 *   struct vx_text text;
 *   vx_text_init(&text, buffer, sizeof buffer);
 *   vx_text_add(&text, "<td>");
 *   vx_text_html(&text, model->name);
 *   VX_ENSURE(!text.full, RESOURCE_EXHAUSTED, "...");
 *
 * Owner    the caller; always NUL-terminated when there is at least one byte.
 * Thread   one at a time.
 * Limits   the buffer.
 * Fails    never; `full` is set when something is missing, `needed` is the whole length.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_TEXT_H
#define VX_SERVER_TEXT_H

#include "engine/base/types.h"

struct vx_text {
    char *bytes;
    size_t capacity;
    size_t length; /* without the NUL */
    size_t needed; /* the length of the whole text, whether it fits or not */
    bool full;
};

void vx_text_init(struct vx_text *text, char *bytes, size_t capacity);
void vx_text_add(struct vx_text *text, const char *piece);
VX_PRINTF(2, 3) void vx_text_print(struct vx_text *text, const char *format, ...);

/* In these three, bytes that are not UTF-8 become '?'. */
/* The piece with & < > " ' as HTML entities: for elements and quoted attributes. */
void vx_text_html(struct vx_text *text, const char *piece);
/* For inside the quotes of a Prometheus label: escapes backslash, quote and newline. */
void vx_text_label(struct vx_text *text, const char *piece);
/* For inside the quotes of a JSON text. */
void vx_text_json(struct vx_text *text, const char *piece);
void vx_text_i64(struct vx_text *text, i64 number);
/* billionths / 10^9 in plain decimals without trailing zeros: "0", "1.5", "0.000001". */
void vx_text_decimal(struct vx_text *text, u64 whole, u32 billionths);

#endif
