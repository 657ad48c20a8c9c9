/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/base/text/sentence.h"

#include "engine/base/limits.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void vx_why_prefix(struct vx_why *why, const char *format, ...)
{
    /* Without a sentence a client reads the static text of the status; a prefix alone
     * would hide that. */
    if (!why || !why->text[0]) return;
    char place[VX_WHY_BYTES];
    struct vx_why inner = *why;
    va_list args;
    va_start(args, format);
    vsnprintf(place, sizeof place, format, args);
    va_end(args);
    vx_why_set(why, "%s%s", place, inner.text);
}

void vx_why_add(struct vx_why *why, const char *text)
{
    if (!why) return;
    struct vx_why inner = *why;
    vx_why_set(why, "%s%s", inner.text, text);
}

void vx_label_of_path(const char *path, int parts, char label[VX_LABEL_BYTES])
{
    size_t length = strlen(path);
    const char *first = path + length;
    while (first > path && !(first[-1] == '/' && --parts <= 0)) first--;
    size_t left = (size_t)(path + length - first);
    if (left < VX_LABEL_BYTES)
        snprintf(label, VX_LABEL_BYTES, "%s", first);
    else
        snprintf(label, VX_LABEL_BYTES, "...%s", first + left - (VX_LABEL_BYTES - 4));
}

void vx_page_add(struct vx_page *page, const char *format, ...)
{
    va_list args;
    if (page->used >= page->bytes) return;
    va_start(args, format);
    int length =
        vsnprintf(page->text + page->used, page->bytes - page->used, format, args);
    va_end(args);
    if (length > 0) page->used += (size_t)length;
}
