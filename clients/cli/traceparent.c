/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/traceparent.h"

#include <string.h>

/* Lower case only. */
static bool is_hex(const char *text, size_t length)
{
    return strspn(text, "0123456789abcdef") >= length;
}

/* An id of zeros alone is none. */
static bool is_id(const char *text, size_t length)
{
    return is_hex(text, length) && strspn(text, "0") < length;
}

bool traceparent_is(const char *text)
{
    static const size_t trace = 3, span = 36, flags = 53, end = 55;
    if (strlen(text) < end) return false;
    if (text[trace - 1] != '-' || text[span - 1] != '-' || text[flags - 1] != '-')
        return false;
    if (!is_hex(text, 2) || !is_hex(text + flags, 2)) return false;
    if (!is_id(text + trace, 32) || !is_id(text + span, 16)) return false;
    /* ff is no version; one after 00 may have more fields behind a dash. */
    if (strncmp(text, "ff", 2) == 0) return false;
    return !text[end] || (text[end] == '-' && strncmp(text, "00", 2) != 0);
}
