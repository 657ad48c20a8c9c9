/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/plain.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Bytes of the control character at `at`: 2 of U+0080 to U+009F in UTF-8; 0 = another. */
static int control_bytes(const uint8_t *at)
{
    if (*at < 0x20 || *at == 0x7f) return 1;
    return *at == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f ? 2 : 0;
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
    while (*at && used + 4 + sizeof rest <= PLAIN_BYTES) {
        const int bytes = control_bytes(at);
        if (*at == '\n' || *at == '\t')
            used += (size_t)snprintf(room + used, PLAIN_BYTES - used, "\\%c",
                                     *at == '\n' ? 'n' : 't');
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
