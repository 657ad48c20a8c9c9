/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/network/network.h"

#include <string.h>

static const char *const words[VX_LAYOUTS_COUNT] = {
    [VX_LAYOUT_UNSAID] = "not set",
#define VX_ROW(name_, word_, axes_, x_fastest_, letters_) [VX_LAYOUT_##name_] = word_,
#include "engine/network/layouts.def"
#undef VX_ROW
};

const char *vx_layout_name(enum vx_layout layout)
{
    return words[layout];
}

bool vx_layout_find(const char *word, enum vx_layout *layout)
{
    for (*layout = VX_LAYOUT_UNSAID + 1; *layout < VX_LAYOUTS_COUNT; ++*layout)
        if (!strcmp(words[*layout], word)) return true;
    return false;
}

const char *vx_layout_words(void)
{
    static const char all[] =
#define VX_ROW(name_, word_, axes_, x_fastest_, letters_) ", \"" word_ "\""
#include "engine/network/layouts.def"
#undef VX_ROW
        ;
    return all + sizeof ", " - 1;
}
