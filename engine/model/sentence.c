/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/model/sentence.h"

#include "engine/base/limits.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void vx_why_prefix(struct vx_why *why, const char *format, ...)
{
    /* Without a sentence the static text of the status is shown; a mere place would hide it. */
    if (!why || !why->text[0]) return;
    struct vx_why inner = *why;
    va_list args;
    va_start(args, format);
    int used = vsnprintf(why->text, sizeof why->text, format, args);
    va_end(args);
    if (used >= 0 && (size_t)used < sizeof why->text)
        snprintf(why->text + used, sizeof why->text - (size_t)used, "%s", inner.text);
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

/* Letters to insert, delete, replace or swap with the next to turn a into b. */
static size_t nearest_distance(const char *a, const char *b)
{
    size_t rows[3][VX_NAME_BYTES];
    size_t *before = rows[0], *last = rows[1], *now = rows[2];
    size_t b_length = strnlen(b, VX_NAME_BYTES - 1),
           a_length = strnlen(a, VX_NAME_BYTES - 1);
    for (size_t j = 0; j <= b_length; j++) before[j] = last[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        now[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t best = last[j - 1] + (a[i - 1] != b[j - 1]);
            if (last[j] + 1 < best) best = last[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && before[j - 2] + 1 < best) best = before[j - 2] + 1;
            now[j] = best;
        }
        size_t *oldest = before;
        before = last;
        last = now;
        now = oldest;
    }
    return last[b_length];
}

const char *vx_nearest_text(const char *name, const char *const *known,
                            size_t known_count, char out[VX_NEAREST_BYTES])
{
    const char *best = NULL;
    size_t best_distance = SIZE_MAX, length = strlen(name);
    for (size_t i = 0; i < known_count; i++) {
        if (!known[i]) continue;
        size_t longer = strlen(known[i]) > length ? strlen(known[i]) : length;
        if (longer >= VX_NAME_BYTES) longer = VX_NAME_BYTES - 1; /* what is compared */
        size_t distance = nearest_distance(name, known[i]);
        /* More than one letter in three, of a short word half, and it is another word. */
        if (distance > longer / 3 + 1 || 2 * distance > longer) continue;
        if (distance >= best_distance) continue;
        best = known[i];
        best_distance = distance;
    }
    if (best) {
        snprintf(out, VX_NEAREST_BYTES, "; the nearest is \"%.*s\"", VX_NAME_SHOWN, best);
        return out;
    }
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < known_count && used < VX_NEAREST_BYTES; i++)
        if (known[i])
            used += (size_t)snprintf(out + used, VX_NEAREST_BYTES - used, "%s%.*s",
                                     used ? ", " : "; known: ", VX_NAME_SHOWN, known[i]);
    return out;
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
