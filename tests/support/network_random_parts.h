/* network_random_parts - a random network while it is made: its layers, sets and text.
 *
 * Private to network_random*.c.  A value is the index of a layer, or VX_GRAMMAR_FEATS.
 *
 * Owner    vx_random_network_open.
 * Thread   any.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_SUPPORT_NETWORK_RANDOM_PARTS_H
#define VX_TESTS_SUPPORT_NETWORK_RANDOM_PARTS_H

#include "engine/set_key.h"
#include "tests/support/network_random.h"

#define VX_GRAMMAR_FEATS (-1)
#define VX_GRAMMAR_SETS  32

struct vx_grammar_window {
    i32 kernel[3], dilation[3], stride[3], padding[3];
};
/* Sets with equal rules and windows from one set are one set. */
struct vx_grammar_set {
    enum vx_set_rule rule;
    i32 from;
    struct vx_grammar_window window;
    i32 by, top;        /* by logits: the layer */
    i32 shape[3];       /* 0 = not bounded */
    i32 down[3], up[3]; /* its stride, against the request's voxels */
    i64 rows_max;
};
enum vx_grammar_last { VX_GRAMMAR_PLAIN, VX_GRAMMAR_ARGMAX, VX_GRAMMAR_DENSE };
struct vx_grammar_layer {
    i32 input, set, channels;
    enum vx_grammar_last last;       /* not PLAIN: only an output reads it */
    struct vx_grammar_window window; /* layers that another one can undo */
    bool positive;                   /* no value below 0 */
};
struct vx_grammar {
    struct vx_test_random random;
    struct vx_random_network *network;
    struct vx_grammar_layer feats, layers[VX_RANDOM_LAYERS_MAX];
    i32 layers_count, wanted; /* wanted: about how many layers it shall have */
    struct vx_grammar_set sets[VX_GRAMMAR_SETS];
    i32 sets_count;
    i32 heads[VX_RANDOM_HEADS_MAX], heads_count; /* on set 0, used by nothing yet */
    size_t json_bytes;
};

/* network_random_text.c */
i32 vx_grammar_below(struct vx_grammar *g, i32 count); /* 0 .. count - 1 */
bool vx_grammar_chance(struct vx_grammar *g, i32 percent);
const struct vx_grammar_layer *vx_grammar_at(const struct vx_grammar *g, i32 value);
VX_PRINTF(2, 3) void vx_grammar_say(struct vx_grammar *g, const char *format, ...);
void vx_grammar_say_axes(struct vx_grammar *g, const char *key, const i32 axes[3]);
/* A layer from its name to its inputs; end says where its result lies. */
void vx_grammar_begin(struct vx_grammar *g, const char *op, const i32 *inputs, i32 count);
i32 vx_grammar_end(struct vx_grammar *g, i32 set, i32 channels, bool positive);
/* A tensor of the layer that has begun, filled with numbers from low to high. */
struct vx_grammar_tensor {
    const char *role;
    i64 shape[5];
    i32 rank;
    f32 low, high;
};
void vx_grammar_tensor(struct vx_grammar *g, const struct vx_grammar_tensor *tensor);

/* network_random_layers.c: single layers.  Each returns its value. */
i32 vx_grammar_same(struct vx_grammar *g, i32 x); /* any op that stays on its set */
i32 vx_grammar_linear(struct vx_grammar *g, i32 x, i32 channels);
i32 vx_grammar_join(struct vx_grammar *g, i32 a, i32 b); /* add or concat */
/* x, times numbers made of y, or joined with it: both lie on one set. */
i32 vx_grammar_excite(struct vx_grammar *g, i32 x, i32 y);
/* Any layer on the set, or -1. */
i32 vx_grammar_on(struct vx_grammar *g, i32 set);

/* network_random_levels.c: layers from one set to another. */
i32 vx_grammar_down(struct vx_grammar *g, i32 x);
/* Another layer with the set of `down`, from its input's set; -1 when there is none. */
i32 vx_grammar_beside(struct vx_grammar *g, i32 down);
/* To the set of the input of layer `down`, from the set of its result. */
i32 vx_grammar_up(struct vx_grammar *g, i32 y, i32 down);
/* To all children; -1 when there would be too many. */
i32 vx_grammar_expand(struct vx_grammar *g, i32 x, const i32 stride[3]);
/* To the set that FLOOR makes with this stride; the set of y itself for stride 1. */
i32 vx_grammar_down_by(struct vx_grammar *g, i32 y, const i32 stride[3]);
/* Onto a set that `stride` leads to, with a layer on it; -1 when it has none. */
i32 vx_grammar_onto(struct vx_grammar *g, i32 y, i32 set, const i32 stride[3]);
/* To one voxel for each sample and back: a squeeze-and-excite block. */
i32 vx_grammar_squeeze(struct vx_grammar *g, i32 x);
/* Windows that stay on their set: stride 1. */
i32 vx_grammar_stay(struct vx_grammar *g, i32 x);

/* network_random_points.c */
i32 vx_grammar_voxelize(struct vx_grammar *g, i32 x);
/* Onto the set; -1 when no layer lies on it, or no stride leads there. */
i32 vx_grammar_devoxelize(struct vx_grammar *g, i32 y, i32 set);

/* The set that a window makes: `from` where every voxel makes itself. */
i32 vx_grammar_set_make(struct vx_grammar *g, enum vx_set_rule rule, i32 from,
                        const struct vx_grammar_window *window);
/* The set that a rule makes: one that there is, or a new one. */
i32 vx_grammar_set_find(struct vx_grammar *g, const struct vx_grammar_set *set);

/* network_random_predict.c */
/* A layer on the set of x, `count` numbers a row, of which about half are above 0. */
i32 vx_grammar_logits(struct vx_grammar *g, i32 x, i32 count);
i32 vx_grammar_prune(struct vx_grammar *g, i32 x);

/* A convolution of any kind. */
struct vx_grammar_conv {
    const char *op;
    i32 input, set;
    const struct vx_grammar_window *window;
    const char *rule; /* NULL = has none */
    i32 of, onto;     /* -1 = has none */
    bool strided;     /* writes its stride */
};
i32 vx_grammar_conv(struct vx_grammar *g, const struct vx_grammar_conv *conv);
/* Random window sizes, cut so that a convolution is not too much work. */
i32 vx_grammar_kernel(struct vx_grammar *g, i32 value, i32 axis, bool odd);
void vx_grammar_shrink(struct vx_grammar *g, i32 value, i32 kernel[3]);

#endif
