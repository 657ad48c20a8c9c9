/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/plain.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* What is not seen where it stands: it ends a line for many programs, turns the order of what
 * follows, or has no width. */
static bool is_unseen(uint32_t c)
{
    return c == 0x61c || (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2060 && c <= 0x206f) || c == 0xfeff;
}

/* The character of two or three bytes at `at`; 0 = another. */
static uint32_t character_of(const uint8_t *at)
{
    if ((at[0] & 0xe0) == 0xc0 && (at[1] & 0xc0) == 0x80)
        return (uint32_t)(at[0] & 0x1f) << 6 | (at[1] & 0x3f);
    if ((at[0] & 0xf0) != 0xe0 || (at[1] & 0xc0) != 0x80 || (at[2] & 0xc0) != 0x80)
        return 0;
    return (uint32_t)(at[0] & 0xf) << 12 | (uint32_t)(at[1] & 0x3f) << 6 | (at[2] & 0x3f);
}

/* Bytes of the control character at `at`: 2 and 3 of such in UTF-8; 0 = another. */
static int control_bytes(const uint8_t *at)
{
    if (*at < 0x20 || *at == 0x7f) return 1;
    const uint32_t c = character_of(at);
    if ((c >= 0x80 && c <= 0x9f) || is_unseen(c)) return c < 0x800 ? 2 : 3;
    return 0;
}

static bool has_control(const uint8_t *at)
{
    for (; *at; at++)
        if (control_bytes(at)) return true;
    return false;
}

const char *plain_text(const char *text, char room[PLAIN_BYTES])
{
    static const char rest[] = "...";
    const uint8_t *at = (const uint8_t *)text;
    size_t used = 0;
    if (!has_control(at)) return text;
    while (*at && used + 6 + sizeof rest <= PLAIN_BYTES) {
        const int bytes = control_bytes(at);
        if (*at == '\n' || *at == '\t')
            used += (size_t)snprintf(room + used, PLAIN_BYTES - used, "\\%c",
                                     *at == '\n' ? 'n' : 't');
        else if (bytes && is_unseen(character_of(at)))
            used += (size_t)snprintf(room + used, PLAIN_BYTES - used, "\\u%04x",
                                     (unsigned)character_of(at));
        else if (bytes)
            used += (size_t)snprintf(room + used, PLAIN_BYTES - used, "\\x%02x",
                                     at[bytes - 1]);
        else
            room[used++] = (char)*at;
        at += bytes ? bytes : 1;
    }
    /* Never inside a character. */
    while (*at && used && ((uint8_t)room[used - 1] & 0xc0) == 0x80) used--;
    if (*at && used && (uint8_t)room[used - 1] >= 0xc0) used--;
    memcpy(room + used, *at ? rest : "", *at ? sizeof rest : 1);
    return room;
}

int plain_width(const char *text)
{
    int width = 0;
    for (const char *at = text; *at; at++) width += ((uint8_t)*at & 0xc0) != 0x80;
    return width;
}

int plain_pad(const char *text, int columns)
{
    return columns + (int)strlen(text) - plain_width(text);
}

void plain_print_json(const char *text)
{
    putchar('"');
    for (const char *at = text; *at; at++)
        if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ')
            printf("\\u%04x", (unsigned char)*at);
        else
            putchar(*at);
    putchar('"');
}
