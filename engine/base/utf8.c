/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/utf8.h"

#include <stdio.h>
#include <string.h>

/* RFC 3629, section 4: the first two bytes of a character; the others are 80 to BF. */
static const struct form {
    u8 first, last, low, high; /* of the first byte, of the second */
    u8 bytes;
} forms[] = {
    {0x00, 0x7f, 0x00, 0x00, 1}, {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
    {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
    {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
};

/* How many bytes at `at` can be the beginning of a character that has `*whole` bytes. */
static size_t match(const u8 *at, size_t left, size_t *whole)
{
    *whole = 1;
    for (size_t i = 0; i < VX_COUNT(forms); i++) {
        const struct form *form = &forms[i];
        if (!left || at[0] < form->first || at[0] > form->last) continue;
        *whole = form->bytes;
        for (size_t k = 1; k < form->bytes; k++) {
            u8 low = k == 1 ? form->low : 0x80, high = k == 1 ? form->high : 0xbf;
            if (k == left || at[k] < low || at[k] > high) return k;
        }
        return form->bytes;
    }
    return 0;
}

size_t vx_utf8_length(const void *at, size_t left)
{
    size_t whole, matched = match(at, left, &whole);
    return matched == whole ? whole : 0;
}

bool vx_utf8_is(const void *text, size_t bytes)
{
    const u8 *at = text, *end = at + bytes;
    while (at < end) {
        size_t length = *at < 0x80 ? 1 : vx_utf8_length(at, (size_t)(end - at));
        if (!length) return false;
        at += length;
    }
    return true;
}

int vx_utf8_pad(const char *text, int columns)
{
    for (; *text; text++) columns += ((u8)*text & 0xc0) == 0x80;
    return columns;
}

void vx_utf8_mend(char *text, bool cut)
{
    size_t whole, left = strlen(text);
    for (char *at = text; left;) {
        size_t matched = match((const u8 *)at, left, &whole);
        if (cut && matched == left && matched < whole) {
            *at = '\0';
            return;
        }
        size_t step = matched == whole ? whole : 1;
        if (matched < whole) *at = '?';
        at += step;
        left -= step;
    }
}

void vx_utf8_vprint(char *out, size_t bytes, const char *format, va_list args)
{
    int length = vsnprintf(out, bytes, format, args);
    vx_utf8_mend(out, length >= 0 && (size_t)length >= bytes);
}

void vx_utf8_print(char *out, size_t bytes, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vx_utf8_vprint(out, bytes, format, args);
    va_end(args);
}
