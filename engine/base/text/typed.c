/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/base/text/typed.h"

#include "engine/base/limits.h"

#include <stdio.h>
#include <string.h>

/* A word of fewer letters may be the beginning of anything. */
#define BEGUN_LETTERS 3

bool vx_help_asked(int count, char **arguments)
{
    for (int i = 0; i < count; i++)
        if (!strcmp(arguments[i], "--help") || !strcmp(arguments[i], "-h")) return true;
    return false;
}

size_t vx_word_distance(const char *a, const char *b)
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

/* Whether one is the other behind a prefix that ends in a point, as DataParallel's "module.". */
static bool is_prefixed(const char *a, const char *b)
{
    const size_t a_length = strlen(a), b_length = strlen(b);
    if (a_length < b_length) return is_prefixed(b, a);
    const size_t more = a_length - b_length;
    return b_length && more && a[more - 1] == '.' && !strcmp(a + more, b);
}

static bool begins(const char *word, const char *with)
{
    return !strncmp(word, with, strlen(with));
}

/* The word that `name` begins, as "repo" does "repository": all others that it begins go on
 * from there, as "repository_poll_ms" does.  Else NULL. */
static const char *begun_word(const char *name, const char *const *known,
                              size_t known_count)
{
    const char *found = NULL;
    if (strlen(name) < BEGUN_LETTERS) return NULL;
    for (size_t i = 0; i < known_count; i++)
        if (known[i] && begins(known[i], name) &&
            (!found || strlen(known[i]) < strlen(found)))
            found = known[i];
    for (size_t i = 0; i < known_count; i++)
        if (known[i] && begins(known[i], name) && !begins(known[i], found)) return NULL;
    return found;
}

const char *vx_nearest_word(const char *name, const char *const *known,
                            size_t known_count)
{
    const char *best = NULL;
    size_t best_distance = SIZE_MAX, length = strlen(name);
    for (size_t i = 0; i < known_count; i++) {
        if (!known[i]) continue;
        size_t longer = strlen(known[i]) > length ? strlen(known[i]) : length;
        if (longer >= VX_NAME_BYTES) longer = VX_NAME_BYTES - 1; /* no more is compared */
        size_t distance = vx_word_distance(name, known[i]);
        if (is_prefixed(name, known[i])) distance = 0;
        /* Another word: over half of its letters differ, or over a third plus one. */
        if (distance > longer / 3 + 1 || 2 * distance > longer) continue;
        if (distance >= best_distance) continue;
        best = known[i];
        best_distance = distance;
    }
    return best ? best : begun_word(name, known, known_count);
}

#define KNOWN_BEGIN "; known: "
/* Room for how many words are left out. */
#define KNOWN_MORE_BYTES (sizeof ", and 999999 more")

/* Writes whole words only, and how many more there are if not all have room. */
static void known_text(const char *const *known, size_t known_count,
                       char out[VX_NEAREST_BYTES])
{
    size_t used = 0, left = 0, whole = sizeof KNOWN_BEGIN;
    out[0] = '\0';
    for (size_t i = 0; i < known_count; i++)
        if (known[i])
            whole += strnlen(known[i], VX_NAME_SHOWN) + (left++ ? strlen(", ") : 0);
    const size_t room =
        VX_NEAREST_BYTES - (whole > VX_NEAREST_BYTES ? KNOWN_MORE_BYTES : 0);
    for (size_t i = 0; i < known_count; i++) {
        char word[sizeof KNOWN_BEGIN + VX_NAME_SHOWN];
        if (!known[i]) continue;
        size_t length =
            (size_t)snprintf(word, sizeof word, "%s%.*s", used ? ", " : KNOWN_BEGIN,
                             VX_NAME_SHOWN, known[i]);
        if (used + length >= room) {
            snprintf(out + used, VX_NEAREST_BYTES - used, ", and %zu more", left);
            return;
        }
        memcpy(out + used, word, length + 1);
        used += length;
        left--;
    }
}

const char *vx_nearest_text(const char *name, const char *const *known,
                            size_t known_count, char out[VX_NEAREST_BYTES])
{
    const char *best = vx_nearest_word(name, known, known_count);
    if (best)
        snprintf(out, VX_NEAREST_BYTES, "; the nearest is \"%.*s\"", VX_NAME_SHOWN, best);
    else
        known_text(known, known_count, out);
    return out;
}
