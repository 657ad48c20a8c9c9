/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/coords_ref.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool parse_word(const char *digits, uint64_t *word)
{
    static const char alphabet[] = "0123456789abcdef";
    *word = 0;
    for (int i = 0; i < 16; i++) {
        const char *at = digits[i] ? strchr(alphabet, digits[i]) : NULL;
        if (!at) return false;
        *word = *word << 4 | (uint64_t)(at - alphabet);
    }
    return true;
}

bool coords_ref_parse(const char *text, struct voxel_geometry *geometry)
{
    size_t bytes = strcspn(text, ":");
    memset(geometry, 0, sizeof *geometry);
    if (bytes == 0 || bytes >= sizeof geometry->name) return false;
    memcpy(geometry->name, text, bytes);
    if (!text[bytes]) return true;
    const char *digits = text + bytes + 1;
    return strlen(digits) == 32 && parse_word(digits, &geometry->digest.words[0]) &&
           parse_word(digits + 16, &geometry->digest.words[1]);
}

bool coords_ref_has_digest(const struct voxel_geometry *geometry)
{
    return geometry->digest.words[0] || geometry->digest.words[1];
}

const char *coords_ref_text(const struct voxel_geometry *geometry,
                            char text[COORDS_REF_BYTES])
{
    int used = snprintf(text, COORDS_REF_BYTES, "%s", geometry->name);
    if (coords_ref_has_digest(geometry))
        snprintf(text + used, COORDS_REF_BYTES - (size_t)used,
                 ":%016" PRIx64 "%016" PRIx64, geometry->digest.words[0],
                 geometry->digest.words[1]);
    return text;
}
