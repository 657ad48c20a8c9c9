/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/network/op_hint.h"

#include "engine/base/text/sentence.h"
#include "engine/network/network.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define SUBM        " (stride 1; with a stride: \"sparse_conv\")"
#define DEPTHWISE   " (\"groups\": its channels; with a stride: \"sparse_conv\")"
#define GENERATIVE  " (without \"onto\")"
#define MODE(word_) " (\"mode\": \"" word_ "\")"
#define FOLD        " (\"fold\": true)"
#define NOT_YET     "; it is not served yet"
#define EXACT       "; only the exact gelu, with erf, is served"
#define NOTHING     "; it does nothing in inference: leave the layer out"

static const struct hint {
    const char *word, *op, *text;
} hints[] = {
#define VX_ROW(word_, op_, text_) {word_, op_, text_},
#include "engine/network/op_hints.def"
#undef VX_ROW
};

#define NO_PADDING                                                                       \
    "; leave it out: a transposed convolution makes every voxel that its kernel reaches"
#define FOLLOWS "; leave it out: it follows from the layer's input"
#define OURS                                                                             \
    "; leave it out: voxeld shares maps between layers and chooses algorithms itself"
#define SHARED                                                                           \
    "; leave it out: voxeld shares sets and maps itself; \"of\" and \"onto\" name a "    \
    "layer"
#define TRAINING "; leave it out: only training uses it"
#define IN_THREE "; leave it out: voxels have three axes"
#define ERF      "; leave it out: only the exact gelu, with erf, is served"
#define AS_LAYER "; write it as a separate layer after this one"
#define AS_OP                                                                            \
    "; leave it out: the op says it: subm_conv, sparse_conv, inverse_conv, "             \
    "transposed_conv"
#define GENERATIVE_KEY "; leave it out: write op \"transposed_conv\" without \"onto\""
#define SHAPE                                                                            \
    "; write it once: \"inputs\": {\"coords\": "                                         \
    "{\"spatial_shape\": [X, Y, Z]}}"

static const struct hint key_hints[] = {
#define VX_ROW(word_, key_, text_) {word_, key_, text_},
#include "engine/network/key_hints.def"
#undef VX_ROW
};

/* Reduces a word: no package, lower case, no underscores, no "Minkowski", no number of
 * dimensions.  "nn.BatchNorm1d" and "batch_norm" both become "batchnorm". */
static void word_bare(const char *word, char out[VX_NAME_BYTES])
{
    static const char family[] = "minkowski";
    static const char *const ends[] = {"1d", "2d", "3d"};
    const char *dot = strrchr(word, '.');
    size_t length = 0;
    for (word = dot ? dot + 1 : word; *word && length < VX_NAME_BYTES - 1; word++)
        if (isalnum((unsigned char)*word))
            out[length++] = (char)tolower((unsigned char)*word);
    out[length] = '\0';
    if (!strncmp(out, family, sizeof family - 1)) {
        length -= sizeof family - 1;
        memmove(out, out + sizeof family - 1, length + 1);
    }
    for (size_t i = 0; i < VX_COUNT(ends); i++)
        if (length > 2 && !strcmp(out + length - 2, ends[i])) {
            out[length - 2] = '\0';
            return;
        }
}

/* Our op for a foreign word, or NULL; *text: what to say about the word, or "". */
static const char *hint_find(const char *word, const char **text)
{
    char bare[VX_NAME_BYTES], mine[VX_NAME_BYTES];
    word_bare(word, bare);
    *text = "";
    for (enum vx_op op = 0; op < VX_OPS_COUNT; op++) {
        word_bare(vx_op_name(op), mine);
        if (!strcmp(bare, mine)) return vx_op_name(op);
    }
    for (size_t i = 0; i < VX_COUNT(hints); i++) {
        if (strcmp(hints[i].word, bare) != 0) continue;
        *text = hints[i].text;
        return hints[i].op[0] ? hints[i].op : NULL;
    }
    return NULL;
}

/* Writes the op that is nearest by spelling, or else as many ops as there is room for. */
static void hint_known(const char *word, char known[VX_NEAREST_BYTES])
{
    const char *names[VX_OPS_COUNT];
    for (enum vx_op op = 0; op < VX_OPS_COUNT; op++) names[op] = vx_op_name(op);
    vx_nearest_text(word, names, VX_OPS_COUNT, known);
}

const char *vx_op_hint(const char *word, char out[VX_OP_HINT_BYTES])
{
    const char *text, *op = hint_find(word, &text);
    char known[VX_NEAREST_BYTES] = "";
    if (!op && !text[0]) hint_known(word, known);
    if (op)
        snprintf(out, VX_OP_HINT_BYTES, "; did you mean \"%s\"%s?", op, text);
    else
        snprintf(out, VX_OP_HINT_BYTES, "%s%s", text, known);
    return out;
}

const char *vx_key_hint(const char *word, char out[VX_OP_HINT_BYTES])
{
    char bare[VX_NAME_BYTES];
    word_bare(word, bare);
    out[0] = '\0';
    for (size_t i = 0; i < VX_COUNT(key_hints); i++) {
        if (strcmp(key_hints[i].word, bare) != 0) continue;
        const char *key = key_hints[i].op;
        snprintf(out, VX_OP_HINT_BYTES, "%s%s%s%s", *key ? "; did you mean \"" : "", key,
                 *key ? "\"?" : "", key_hints[i].text);
    }
    return out;
}
