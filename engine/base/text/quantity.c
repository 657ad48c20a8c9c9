/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/text/quantity.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Suffixes by unit; `times / over` turns the written number into the unit. */
static const struct suffix {
    const char *unit, *text;
    i64 times, over;
} suffixes[] = {
    {"bytes", "K", INT64_C(1) << 10, 1},
    {"bytes", "KiB", INT64_C(1) << 10, 1},
    {"bytes", "M", INT64_C(1) << 20, 1},
    {"bytes", "MiB", INT64_C(1) << 20, 1},
    {"bytes", "G", INT64_C(1) << 30, 1},
    {"bytes", "GiB", INT64_C(1) << 30, 1},
    {"bytes", "T", INT64_C(1) << 40, 1},
    {"bytes", "TiB", INT64_C(1) << 40, 1},
    {"ms", "us", 1, 1000},
    {"ms", "ms", 1, 1},
    {"ms", "s", 1000, 1},
    {"us", "us", 1, 1},
    {"us", "ms", 1000, 1},
    {"us", "s", 1000000, 1},
};

bool vx_quantity_parse(const char *unit, const char *text, i64 *number)
{
    char *end;
    errno = 0;
    bool digits = (*text >= '0' && *text <= '9') || *text == '-';
    i64 written = strtoll(text, &end, 10);
    if (!digits || errno || end == text) return false;
    *number = written;
    if (!*end) return true;
    for (size_t i = 0; i < VX_COUNT(suffixes); i++) {
        const struct suffix *s = &suffixes[i];
        if (strcmp(s->unit, unit) || strcmp(s->text, end)) continue;
        i64 product;
        if (__builtin_mul_overflow(written, s->times, &product) || product % s->over)
            return false;
        *number = product / s->over;
        return true;
    }
    return false;
}

const char *vx_quantity_suffixes(const char *unit, char out[VX_QUANTITY_SUFFIXES_BYTES])
{
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < VX_COUNT(suffixes); i++)
        if (!strcmp(suffixes[i].unit, unit))
            used += (size_t)snprintf(out + used, VX_QUANTITY_SUFFIXES_BYTES - used,
                                     "%s%s", used ? ", " : ", with ", suffixes[i].text);
    if (used) snprintf(out + used, VX_QUANTITY_SUFFIXES_BYTES - used, " or no suffix");
    return out;
}
