/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/taken.h"

#include "engine/base/process/check.h"

#include <string.h>

#define MORE " ..."

/* Adds a word if it fits before MORE; false: the text is full, and says so. */
static bool add(struct vx_taken *taken, size_t *used, const char *before,
                const char *word)
{
    const size_t lead = strlen(before), length = strlen(word);
    char *at = taken->text + *used;
    if (*used + lead + length + sizeof MORE > sizeof taken->text) {
        memcpy(at, MORE, sizeof MORE);
        return false;
    }
    memcpy(at, before, lead);
    memcpy(at + lead, word, length + 1);
    *used += lead + length;
    return true;
}

static bool is_first(const struct vx_taken_layer *layers, i32 index)
{
    for (i32 i = 0; i < index; i++)
        if (layers[i].key == layers[index].key) return false;
    return true;
}

void vx_taken_print(const struct vx_taken_layer *layers, i32 count,
                    const struct vx_taken_how *how, struct vx_taken *taken)
{
    size_t used = 0;
    VX_ASSERT(count <= VX_LAYERS_MAX);
    taken->text[0] = 0;
    for (i32 first = 0; first < count; first++) {
        char text[VX_TAKEN_HOW_BYTES];
        if (!is_first(layers, first)) continue;
        how->print(how->context, layers[first].key, text);
        if (!add(taken, &used, used ? "; " : "", text)) return;
        if (!add(taken, &used, ":", "")) return;
        for (i32 i = first; i < count; i++)
            if (layers[i].key == layers[first].key &&
                !add(taken, &used, " ", layers[i].name))
                return;
    }
}
