/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/base/text.h"

#include "engine/base/process/check.h"
#include "engine/base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Longest piece of vx_text_print: more than a row of a page's table. */
#define PRINT_BYTES 1024

void vx_text_init(struct vx_text *text, char *bytes, size_t capacity)
{
    *text = (struct vx_text){.bytes = bytes, .capacity = capacity};
    if (capacity) bytes[0] = '\0';
}

static void text_put(struct vx_text *text, const char *piece, size_t length)
{
    text->needed += length;
    /* Once full, always full: a later, shorter piece must not follow a gap. */
    if (text->full || text->capacity - text->length <= length) {
        text->full = true;
        return;
    }
    memcpy(text->bytes + text->length, piece, length);
    text->length += length;
    text->bytes[text->length] = '\0';
}

void vx_text_add(struct vx_text *text, const char *piece)
{
    text_put(text, piece, strlen(piece));
}

void vx_text_print(struct vx_text *text, const char *format, ...)
{
    char piece[PRINT_BYTES];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    VX_ASSERT(length >= 0);
    VX_ASSERT((size_t)length < sizeof piece);
    text_put(text, piece, (size_t)length);
}

/* Puts the character that `piece` begins with, or '?' for a byte that is none, and returns
 * its bytes.  Names of files and devices are any bytes; a reader refuses a whole page for
 * one that is not UTF-8. */
static size_t text_put_character(struct vx_text *text, const char *piece)
{
    size_t length = vx_utf8_length(piece, strnlen(piece, VX_UTF8_BYTES_MAX));
    text_put(text, length ? piece : "?", length ? length : 1);
    return length ? length : 1;
}

void vx_text_html(struct vx_text *text, const char *piece)
{
    for (size_t step; *piece; piece += step) {
        step = 1;
        switch (*piece) {
        case '&': vx_text_add(text, "&amp;"); break;
        case '<': vx_text_add(text, "&lt;"); break;
        case '>': vx_text_add(text, "&gt;"); break;
        case '"': vx_text_add(text, "&quot;"); break;
        case '\'': vx_text_add(text, "&#39;"); break;
        default: step = text_put_character(text, piece);
        }
    }
}

void vx_text_label(struct vx_text *text, const char *piece)
{
    for (size_t step; *piece; piece += step) {
        step = 1;
        switch (*piece) {
        case '\\': vx_text_add(text, "\\\\"); break;
        case '"': vx_text_add(text, "\\\""); break;
        case '\n': vx_text_add(text, "\\n"); break;
        default: step = text_put_character(text, piece);
        }
    }
}

void vx_text_json(struct vx_text *text, const char *piece)
{
    for (size_t step; *piece; piece += step) {
        unsigned char c = (unsigned char)*piece;
        step = 1;
        if (c == '"' || c == '\\')
            vx_text_print(text, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            vx_text_print(text, "\\u%04x", c);
        else
            step = text_put_character(text, piece);
    }
}

/* Bytes of 20 digits, a sign, a point and 9 digits behind it. */
#define NUMBER_BYTES 32

/* Writes the digits so that they end before `end`, and returns where they begin.  A scrape
 * of 100 models has 3,000 numbers: printf is most of its time. */
static char *digits_before(char *end, u64 number)
{
    do *--end = (char)('0' + number % 10);
    while (number /= 10);
    return end;
}

void vx_text_i64(struct vx_text *text, i64 number)
{
    char piece[NUMBER_BYTES], *end = piece + sizeof piece;
    u64 size = number < 0 ? 0 - (u64)number : (u64)number;
    char *begin = digits_before(end, size);
    if (number < 0) *--begin = '-';
    text_put(text, begin, (size_t)(end - begin));
}

void vx_text_decimal(struct vx_text *text, u64 whole, u32 billionths)
{
    VX_ASSERT(billionths < 1000000000u);
    char piece[NUMBER_BYTES], *end = piece + sizeof piece, *begin = end;
    if (billionths) {
        u32 left = billionths;
        i32 places = 9;
        for (; left % 10 == 0; left /= 10) places--;
        for (; places; places--, left /= 10) *--begin = (char)('0' + left % 10);
        *--begin = '.';
    }
    begin = digits_before(begin, whole);
    text_put(text, begin, (size_t)(end - begin));
}
