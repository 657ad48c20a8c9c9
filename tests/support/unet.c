/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/unet.h"

#include "engine/base/process/check.h"

#include <stdarg.h>
#include <stdio.h>

const struct vx_unet vx_unet_minkowski_18 = {.feats = 3,
                                             .stem = 32,
                                             .classes = 20,
                                             .levels = 4,
                                             .blocks = 2,
                                             .down = {32, 64, 128, 256},
                                             .up = {256, 128, 96, 96}};

/* Names are short: a letter or two, a level, a block. */
#define NAME 24

VX_PRINTF(2, 3) static void name_set(char name[NAME], const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(name, NAME, format, args);
    va_end(args);
    VX_ASSERT(length > 0);
    VX_ASSERT(length < NAME);
}

struct text {
    char *at;
    size_t used;
};

/* Adds to the text, with " for each '. */
VX_PRINTF(2, 3) static void add(struct text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const size_t left = VX_UNET_BYTES - text->used;
    int length = vsnprintf(text->at + text->used, left, format, args);
    va_end(args);
    VX_ASSERT(length >= 0);
    VX_ASSERT((size_t)length < left);
    for (int i = 0; i < length; i++, text->used++)
        if (text->at[text->used] == '\'') text->at[text->used] = '"';
}

struct layer {
    const char *name;
    i32 channels;
};

/* A layer with weights, then batch norm. */
VX_PRINTF(3, 4)
static void add_normed(struct text *text, struct layer layer, const char *format, ...)
{
    char rest[160];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(rest, sizeof rest, format, args);
    va_end(args);
    VX_ASSERT(length > 0 && (size_t)length < sizeof rest);
    add(text, "{'name':'%s','channels':%d,'bias':false,%s},", layer.name, layer.channels,
        rest);
    add(text, "{'name':'%s_n','op':'batch_norm','input':'%s'},", layer.name, layer.name);
}

/* Writes the name of its result to `last`, which has the name of its input. */
static void add_block(struct text *text, const char *name, i32 channels, bool widens,
                      char last[NAME])
{
    char part[NAME], around[NAME];
    name_set(around, "%s", last);
    if (widens) {
        name_set(part, "%s_l", name);
        add_normed(text, (struct layer){part, channels}, "'op':'linear','input':'%s'",
                   last);
        name_set(around, "%s_l_n", name);
    }
    name_set(part, "%s_a", name);
    add_normed(text, (struct layer){part, channels},
               "'op':'subm_conv','kernel':3,'layout':'vio','input':'%s'", last);
    add(text, "{'name':'%s_r','op':'relu','input':'%s_n'},", part, part);
    name_set(part, "%s_b", name);
    add_normed(text, (struct layer){part, channels},
               "'op':'subm_conv','kernel':3,'layout':'vio','input':'%s_a_r'", name);
    add(text, "{'name':'%s_s','op':'add','inputs':['%s_n','%s']},", name, part, around);
    add(text, "{'name':'%s','op':'relu','input':'%s_s'},", name, name);
    name_set(last, "%s", name);
}

static void add_blocks(struct text *text, const struct vx_unet *unet, struct layer layer,
                       i32 given, char last[NAME])
{
    for (i32 b = 0; b < unet->blocks; b++) {
        char block[NAME];
        name_set(block, "%s%d", layer.name, b);
        add_block(text, block, layer.channels, !b && given != layer.channels, last);
    }
}

static i32 skip_channels(const struct vx_unet *unet, i32 level)
{
    return level ? unet->down[level - 1] : unet->stem;
}

static void add_way_back(struct text *text, const struct vx_unet *unet,
                         char skips[][NAME], char last[NAME])
{
    for (i32 u = 0; u < unet->levels; u++) {
        const i32 level = unet->levels - 1 - u, channels = unet->up[u];
        char name[NAME];
        name_set(name, "u%d", level);
        add_normed(text, (struct layer){name, channels},
                   "'op':'inverse_conv','layout':'vio','of':'d%d','input':'%s'", level,
                   last);
        add(text, "{'name':'%s_r','op':'relu','input':'%s_n'},", name, name);
        add(text, "{'name':'c%d','op':'concat','inputs':['%s_r','%s']},", level, name,
            skips[level]);
        if (unet->apart) {
            add(text, "{'name':'t%d','op':'softmax','input':'%s_r'},", level, name);
            add(text, "{'name':'v%d','op':'softmax','input':'%s'},", level, skips[level]);
        }
        name_set(last, "c%d", level);
        name_set(name, "p%d", level);
        add_blocks(text, unet, (struct layer){name, channels},
                   channels + skip_channels(unet, level), last);
    }
}

void vx_unet_write(const struct vx_unet *unet, char out[VX_UNET_BYTES])
{
    struct text text = {out, 0};
    char skips[VX_UNET_LEVELS_MAX][NAME], last[NAME] = "stem_r";
    VX_ASSERT(unet->levels <=
              (unet->apart ? VX_UNET_LEVELS_MAX - 1 : VX_UNET_LEVELS_MAX));
    add(&text, "{'format':1,'inputs':{'feats':{'channels':%d}},'layers':[", unet->feats);
    add_normed(&text, (struct layer){"stem", unet->stem},
               "'op':'subm_conv','kernel':3,'layout':'vio','input':'feats'");
    add(&text, "{'name':'stem_r','op':'relu','input':'stem_n'},");
    for (i32 level = 0; level < unet->levels; level++) {
        const i32 before = skip_channels(unet, level);
        char name[NAME];
        name_set(skips[level], "%s", last);
        name_set(name, "d%d", level);
        add_normed(&text, (struct layer){name, before},
                   "'op':'sparse_conv','kernel':2,'stride':2,'rule':'floor','layout':"
                   "'vio','input':'%s'",
                   last);
        add(&text, "{'name':'%s_r','op':'relu','input':'%s_n'},", name, name);
        name_set(last, "%s_r", name);
        name_set(name, "e%d", level);
        add_blocks(&text, unet, (struct layer){name, unet->down[level]}, before, last);
    }
    add_way_back(&text, unet, skips, last);
    add(&text, "{'name':'y','op':'linear','channels':%d,'input':'%s'}],", unet->classes,
        last);
    add(&text, "'outputs':[{'layer':'y'}");
    for (i32 level = 0; unet->apart && level < unet->levels; level++)
        add(&text, ",{'layer':'t%d'},{'layer':'v%d'}", level, level);
    add(&text, "]}");
}
