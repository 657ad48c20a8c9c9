/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/levels_by_hand.h"

#include "engine/base/limits.h"

#define COUNT(...)  (sizeof((const f64[]){__VA_ARGS__}) / sizeof(f64))
#define ROWS(...)   (sizeof((const i32[][4]){__VA_ARGS__}) / sizeof(i32[4]))
#define COORDS(...) .coords = (const i32[][4]){__VA_ARGS__}, .n = ROWS(__VA_ARGS__)
#define FEATS(...)  .feats = (const f32[]){__VA_ARGS__}, .feats_count = COUNT(__VA_ARGS__)
#define VALUES(...)                                                                      \
    .values = (const f64[]){__VA_ARGS__}, .values_count = COUNT(__VA_ARGS__)
#define VOXELS(...) .voxels = (const i32[][4]){__VA_ARGS__}, .rows = ROWS(__VA_ARGS__)
#define X(x_)                                                                            \
    {                                                                                    \
        0, (x_), 0, 0                                                                    \
    }

/* A layer without the tail of its keys, and one that has none. */
#define LAYER(name_, op_, input_)                                                        \
    "{\"name\":\"" name_ "\",\"op\":\"" op_ "\",\"input\":\"" input_ "\""
#define PLAIN(name_, op_, input_) LAYER(name_, op_, input_) "}"
/* Before other layers, and behind them. */
#define POOL(name_, in_, mode_)                                                          \
    LAYER(name_, "global_pool", in_) ",\"mode\":\"" mode_ "\"},"
#define JOIN(name_, op_, inputs_)                                                        \
    "{\"name\":\"" name_ "\",\"op\":\"" op_ "\",\"inputs\":[" inputs_ "]},"
#define MEAN(name_, onto_)                                                               \
    "," LAYER(name_, "voxelize", "feats") ",\"onto\":\"" onto_ "\"}"
#define TRILINEAR(name_, in_) BACK(name_, in_, "trilinear")
#define NEAREST(name_, in_)   BACK(name_, in_, "nearest")
#define BACK(name_, in_, mode_)                                                          \
    "," LAYER(name_, "devoxelize", in_) ",\"mode\":\"" mode_ "\"}"
/* Windows along x. */
#define ALONG(k_, s_) ",\"kernel\":[" k_ ",1,1],\"stride\":[" s_ ",1,1]"
#define STRIDE(s_)    ",\"stride\":[" s_ ",1,1]}"
#define FLOOR         ",\"rule\":\"floor\""
#define SPCONV(p_)    ",\"rule\":\"spconv\",\"padding\":[" p_ ",0,0]"
#define SPACE(x_)     .space = ",\"spatial_shape\":[" x_ ",1,1]"
#define ONE           ",\"channels\":1,\"layout\":\"vio\""
#define NO_BIAS       ONE ",\"bias\":false"
#define WEIGHT(name_, v_, ...)                                                           \
    {                                                                                    \
        name_ ".weight", "F32", {v_, 1, 1}, 3, (const f32[])                             \
        {                                                                                \
            __VA_ARGS__                                                                  \
        }                                                                                \
    }
#define VECTOR(name_, c_, ...)                                                           \
    {                                                                                    \
        name_, "F32", {c_}, 1, (const f32[])                                             \
        {                                                                                \
            __VA_ARGS__                                                                  \
        }                                                                                \
    }

#define BLOCK                                                                            \
    COORDS({0, 0, 0, 0}, {0, 0, 0, 1}, {0, 0, 1, 0}, {0, 0, 1, 1}, {0, 1, 0, 0},         \
           {0, 1, 0, 1}, {0, 1, 1, 0}, {0, 1, 1, 1})

const struct vx_hand_case vx_hand_cases[] = {
    {.name = "a block of eight: offset v of both is the voxel x, y, z = v in binary",
     .layers = LAYER("d", "sparse_conv", "feats") ONE
     ",\"kernel\":2,\"stride\":2" FLOOR "}," LAYER("u", "inverse_conv", "d") NO_BIAS
     ",\"of\":\"d\"}",
     BLOCK,
     FEATS(1, 2, 3, 4, 5, 6, 7, 8),
     .tensors = {WEIGHT("d", 8, 1, 2, 3, 4, 5, 6, 7, 8), VECTOR("d.bias", 1, 0.5f),
                 WEIGHT("u", 8, 1, 2, 3, 4, 5, 6, 7, 8)},
     /* 1 + 4 + 9 + ... + 64 = 204 */
     .answers = {{"d", VALUES(204.5), VOXELS({0, 0, 0, 0})},
                 {"u", VALUES(204.5, 409, 613.5, 818, 1022.5, 1227, 1431.5, 1636)}}},
    {.name = "spconv, kernel 3, stride 2, padding 1: an output where an offset meets",
     SPACE("5"),
     .layers = LAYER("d", "sparse_conv", "feats") NO_BIAS ALONG("3", "2")
         SPCONV("1") "}," LAYER("u", "inverse_conv", "d") NO_BIAS ",\"of\":\"d\"}",
     COORDS(X(0), X(3), X(4)),
     FEATS(1, 10, 100),
     .tensors = {WEIGHT("d", 3, 2, 3, 5), WEIGHT("u", 3, 7, 11, 13)},
     /* q reads 2 q - 1 + k: 3 * 1; 5 * 10; 2 * 10 + 3 * 100 */
     .answers = {{"d", VALUES(3, 50, 320), VOXELS(X(0), X(1), X(2))},
                 {"u", VALUES(11 * 3, 7 * 320 + 13 * 50, 11 * 320)}}},
    {.name =
         "floor, kernel 3, stride 2: padding 1, and floor goes towards minus infinity",
     .layers = PLAIN("r", "relu", "feats") "," LAYER("d", "sparse_conv", "r")
         NO_BIAS ALONG("3", "2") FLOOR
     "}," LAYER("u", "upsample", "d") ",\"onto\":\"r\"" STRIDE("2"),
     COORDS(X(3), X(-3), X(0), X(-1)),
     FEATS(1000, 1, 100, 10),
     .tensors = {WEIGHT("d", 3, 2, 3, 5)},
     .answers = {{"d", VALUES(5, 2 + 50, 20 + 300, 5000),
                  VOXELS(X(-2), X(-1), X(0), X(1))},
                 {"u", VALUES(5000, 5, 320, 52)}}},
    {.name = "floor, kernel 2, dilation 3: an even axis begins at the voxel",
     .layers = LAYER("d", "sparse_conv", "feats")
         ONE ALONG("2", "2") ",\"dilation\":3" FLOOR "}," LAYER("u", "inverse_conv", "d")
             NO_BIAS ",\"of\":\"d\"}",
     COORDS(X(0), X(3), X(5)),
     FEATS(1, 10, 100),
     .tensors = {WEIGHT("d", 2, 2, 3), VECTOR("d.bias", 1, 0.25f), WEIGHT("u", 2, 1, 10)},
     /* q reads 2 q and 2 q + 3; the last finds nothing and has its bias */
     .answers = {{"d", VALUES(32.25, 300.25, 0.25), VOXELS(X(0), X(1), X(2))},
                 {"u", VALUES(32.25, 322.5, 3002.5)}}},
    {.name = "floor, kernel 3, stride 1: the input's set, as a submanifold convolution",
     .layers = LAYER("d", "sparse_conv", "feats") NO_BIAS ALONG("3", "1") FLOOR "}",
     COORDS(X(8), X(7), X(9)),
     FEATS(1, 10, 100),
     .tensors = {WEIGHT("d", 3, 2, 3, 5)},
     .answers = {{"d", VALUES(20 + 3 + 500, 30 + 5, 2 + 300)}}},
    {.name = "spconv, kernel 2, odd shape: the last voxel has no parent, unpool gives 0",
     SPACE("5"),
     .layers = LAYER("d", "max_pool", "feats") ALONG("2", "2")
         SPCONV("0") "}," LAYER("u", "unpool", "d") ",\"of\":\"d\"}",
     COORDS(X(4), X(1)),
     FEATS(9, 7),
     .answers = {{"d", VALUES(7), VOXELS(X(0))}, {"u", VALUES(0, 7)}}},
    {.name = "spconv, kernel 3, stride 1: the set grows within the shape",
     SPACE("4"),
     .layers = PLAIN("r", "relu", "feats") "," LAYER("d", "sparse_conv", "r")
         NO_BIAS ALONG("3", "1")
             SPCONV("1") "}," LAYER("u", "upsample", "d") ",\"onto\":\"r\"" STRIDE("1"),
     COORDS(X(0), X(2)),
     FEATS(1, 10),
     .tensors = {WEIGHT("d", 3, 2, 3, 5)},
     .answers = {{"d", VALUES(3, 52, 30, 20), VOXELS(X(0), X(1), X(2), X(3))},
                 {"u", VALUES(3, 30)}}},
    {.name = "spconv, kernel 1, stride 2: an odd voxel makes none, an empty set its bias",
     SPACE("4"),
     .layers = LAYER("d", "sum_pool", "feats") ALONG("1", "2")
         SPCONV("0") "}," LAYER("u", "inverse_conv", "d") ONE ",\"of\":\"d\"}",
     COORDS(X(1), X(3)),
     FEATS(5, 6),
     .tensors = {WEIGHT("u", 1, 3), VECTOR("u.bias", 1, 0.5f)},
     .answers = {{"u", VALUES(0.5, 0.5)}}},
    {.name = "max_pool, avg_pool and sum_pool share a set; avg counts who is there",
     .layers = LAYER("m", "max_pool", "feats") ALONG("2", "2") FLOOR
     "}," LAYER("a", "avg_pool", "feats") ALONG("2", "2") FLOOR
     "}," LAYER("s", "sum_pool", "feats") ALONG("2", "2") FLOOR
     "},"
     "{\"name\":\"j\",\"op\":\"concat\",\"inputs\":[\"m\",\"a\",\"s\"]}," LAYER(
         "u", "unpool", "j") ",\"of\":\"a\"}",
     COORDS(X(1), X(2), X(0)),
     FEATS(-5, -7, -3),
     .answers = {{"j", VALUES(-3, -4, -8, -7, -7, -7), VOXELS(X(0), X(1))},
                 {"u", VALUES(-3, -4, -8, -7, -7, -7, -3, -4, -8)}}},
    {.name = "floor, kernel 3, stride 3: a pool has the block, a convolution is centred",
     .layers = LAYER("m", "sum_pool", "feats") ALONG("3", "3") FLOOR
     "}," LAYER("c", "sparse_conv", "feats") NO_BIAS ALONG("3", "3") FLOOR "}," LAYER(
         "a", "unpool", "m") ",\"of\":\"m\"}," LAYER("b", "unpool", "c") ",\"of\":\"m\"}",
     COORDS(X(0), X(2), X(3), X(5)),
     FEATS(1, 10, 100, 1000),
     .tensors = {WEIGHT("c", 3, 2, 3, 5)},
     /* 0 1 2 and 3 4 5; -1 0 1 and 2 3 4 */
     .answers = {{"m", VALUES(11, 1100), VOXELS(X(0), X(1))},
                 {"c", VALUES(3, 20 + 300), VOXELS(X(0), X(1))},
                 {"a", VALUES(11, 11, 1100, 1100)},
                 {"b", VALUES(3, 3, 320, 320)}}},
    {.name = "max_pool of spconv begins at 0, the others do not",
     SPACE("4"),
     .layers = LAYER("m", "max_pool", "feats") ALONG("2", "2")
         SPCONV("0") "}," LAYER("a", "avg_pool", "feats") ALONG("2", "2")
             SPCONV("0") "}," LAYER("u", "unpool", "m") ",\"of\":\"m\"}," LAYER(
                 "v", "unpool", "a") ",\"of\":\"m\"}",
     COORDS(X(0), X(1), X(2)),
     FEATS(-5, -7, 3),
     .answers = {{"m", VALUES(0, 3), VOXELS(X(0), X(1))},
                 {"u", VALUES(0, 0, 3)},
                 {"v", VALUES(-6, -6, 3)}}},
    {.name = "a pool without a neighbour is 0",
     .layers = PLAIN("r", "relu", "feats") "," LAYER("d", "max_pool", "r") ALONG("1", "2")
         FLOOR "}," LAYER("u", "upsample", "d") ",\"onto\":\"r\"" STRIDE("2"),
     COORDS(X(-1), X(2)),
     FEATS(4, 6),
     .answers = {{"d", VALUES(0, 6), VOXELS(X(-1), X(1))}, {"u", VALUES(0, 6)}}},
    {.name =
         "downsample is the mean of a block, of an odd one too; upsample to all children",
     .layers = PLAIN("r", "relu", "feats") "," LAYER("d", "downsample", "r")
         STRIDE("3") "," LAYER("e", "upsample", "d")
             STRIDE("3") "," LAYER("u", "upsample", "e") ",\"onto\":\"r\"" STRIDE("1"),
     COORDS(X(3), X(0), X(2)),
     FEATS(9, 3, 6),
     .answers = {{"d", VALUES(4.5, 9), VOXELS(X(0), X(1))},
                 {"e", VALUES(4.5, 4.5, 4.5, 9, 9, 9),
                  VOXELS(X(0), X(1), X(2), X(3), X(4), X(5))},
                 {"u", VALUES(9, 4.5, 4.5)}}},
    {.name = "space_to_channel: child x + 2 y of a block of 2 x 3, then its channels",
     .layers = PLAIN("r", "relu", "feats") "," LAYER(
         "s", "space_to_channel",
         "r") ",\"stride\":[2,3,1]}," LAYER("u", "upsample",
                                            "s") ",\"stride\":[2,3,1],\"onto\":\"r\"}",
     COORDS({0, 1, 2, 0}, {0, 0, 1, 0}, {0, -1, -3, 5}),
     FEATS(1, 2, 3, 4, 5, 6),
     .answers = {{"s",
                  VALUES(0, 0, 5, 6, 0, 0, 0, 0, 0, 0, 0, 0, /* -1 -3: child 1 */
                         0, 0, 0, 0, 3, 4, 0, 0, 0, 0, 1, 2),
                  VOXELS({0, -1, -1, 5}, {0, 0, 0, 0})},
                 {"u", VALUES(0, 0, 0, 0, 3, 4, 0, 0, 0, 0, 1, 2, /* of 1 2 0 */
                              0, 0, 0, 0, 3, 4, 0, 0, 0, 0, 1, 2, /* of 0 1 0 */
                              0, 0, 5, 6, 0, 0, 0, 0, 0, 0, 0, 0)}}},
    {.name = "space_to_channel: z is the slowest of a block",
     .layers = PLAIN("r", "relu", "feats") "," LAYER(
         "s", "space_to_channel",
         "r") ",\"stride\":2}," LAYER("u", "upsample",
                                      "s") ",\"stride\":2,\"onto\":\"r\"}",
     COORDS({0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}),
     FEATS(10, 20, 30),
     .answers = {{"u", VALUES(0, 10, 20, 0, 30, 0, 0, 0, 0, 10, 20, 0, 30, 0, 0, 0, 0, 10,
                              20, 0, 30, 0, 0, 0)}}},
    {.name = "channel_to_space onto: child c has channels c * Co and on",
     .layers = PLAIN("r", "relu", "feats") "," LAYER(
         "d", "downsample",
         "r") ",\"stride\":2}," LAYER("l", "linear",
                                      "d") ",\"channels\":8,\"bias\":false}"
                                           "," LAYER("u", "channel_to_space",
                                                     "l") ",\"stride\":2,"
                                                          "\"onto\":\"r\"}",
     COORDS({0, 1, 1, 1}, {0, 0, 0, 1}, {0, 0, 1, 0}, {0, 1, 0, 0}, {0, -1, -2, 5}),
     FEATS(1, 1, 1, 1, 3),
     .tensors =
         {{"l.weight", "F32", {8, 1}, 2, (const f32[]){10, 11, 12, 13, 14, 15, 16, 17}}},
     /* -1 -2 5 is child 1 + 4 of -1 -1 2 */
     .answers = {{"u", VALUES(17, 14, 12, 11, 3 * 15)}}},
    {.name = "channel_to_space to all children, and a window over them",
     .layers = PLAIN("r", "relu", "feats") "," LAYER("e", "channel_to_space", "r")
         STRIDE("2") "," LAYER("d", "sparse_conv", "e") NO_BIAS ALONG("2", "2") FLOOR
     "}," LAYER("u", "upsample", "d") ",\"onto\":\"r\"" STRIDE("1"),
     COORDS(X(3)),
     FEATS(5, 6),
     .tensors = {WEIGHT("d", 2, 1, 10)},
     .answers = {{"e", VALUES(5, 6), VOXELS(X(6), X(7))},
                 {"d", VALUES(65), VOXELS(X(3))},
                 {"u", VALUES(65)}}},
    {.name = "children with a logit above 0; two layers share them",
     .layers = PLAIN("r", "relu", "feats") "," PLAIN("s", "affine", "feats") "," LAYER(
         "e", "channel_to_space",
         "r") ",\"occupancy\":\"s\"" STRIDE("2") "," LAYER("f", "upsample",
                                                           "r") ",\"occupancy\":"
                                                                "\"s\"" STRIDE(
                                                                    "2") ","
                                                                         "{\"n"
                                                                         "ame"
                                                                         "\":"
                                                                         "\"j"
                                                                         "\","
                                                                         "\"op"
                                                                         "\":"
                                                                         "\"co"
                                                                         "ncat"
                                                                         "\","
                                                                         "\"in"
                                                                         "puts"
                                                                         "\":["
                                                                         "\"e"
                                                                         "\","
                                                                         "\"f"
                                                                         "\"]}"
                                                                         "," LAYER(
                                                                             "d",
                                                                             "sum_pool",
                                                                             "j")
                                                                             ALONG("2",
                                                                                   "2")
                                                                                 FLOOR
     "}," LAYER("u", "upsample", "d") ",\"onto\":\"r\"" STRIDE("1"),
     COORDS(X(0), X(1), X(3), X(-1)),
     FEATS(5, -1, -2, 7, -3, 0, 4, 6),
     .answers = {{"j", VALUES(4, 4, 6, 6, 4, 6, 5, 5, 0, 7, 0, 7),
                  VOXELS(X(-2), X(-1), X(0), X(3))},
                 {"d", VALUES(10, 8, 12, 5, 5, 0, 7, 0, 7), VOXELS(X(-1), X(0), X(1))},
                 {"u", VALUES(5, 5, 0, 7, 0, 7, 0, 0, 0, 10, 8, 12)}}},
    {.name = "child x + 2 y + 6 z of a block of 2 x 3 x 2",
     .layers = PLAIN("r", "affine", "feats") "," LAYER(
         "e", "channel_to_space", "r") ",\"occupancy\":\"r\",\"stride\":[2,3,2]}"
                                       "," LAYER("d", "sum_pool",
                                                 "e") ",\"kernel\":[2,3,2],"
                                                      "\"stride\":[2,3,2]" FLOOR
                                                      "}," LAYER("u", "upsample",
                                                                 "d") ",\"onto\":"
                                                                      "\"r\"" STRIDE("1"),
     COORDS({0, 0, 0, 0}, {0, 1, 2, 1}),
     FEATS(0, 0, -1, 4, 0, 0, -7, 0, 0, 0, 0, 11, /* child 3: 1 1 0; child 11: 1 2 1 */
           1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0),
     .answers = {{"e", VALUES(4, 11, 1, 2),
                  VOXELS({0, 1, 1, 0}, {0, 1, 2, 1}, {0, 2, 6, 2}, {0, 2, 6, 3})},
                 {"u", VALUES(15, 3)}}},
    {.name = "prune keeps what is above 0, and a kernel sees only that",
     .layers = PLAIN("s", "affine", "feats") "," LAYER(
         "p", "prune", "feats") ",\"keep\":"
                                "\"s\"}"
                                "," LAYER("c", "subm_conv", "p") NO_BIAS
     ",\"kernel\":[3,1,1]}," LAYER("u", "upsample", "c") ",\"onto\":"
                                                         "\"s\"" STRIDE("1"),
     COORDS(X(2), X(3), X(0), X(1), X(4)),
     FEATS(2, 3, 1, 0, -4),
     .tensors = {WEIGHT("c", 3, 10, 1, 100)},
     .answers = {{"p", VALUES(1, 2, 3), VOXELS(X(0), X(2), X(3))},
                 {"c", VALUES(1, 302, 23), VOXELS(X(0), X(2), X(3))},
                 {"u", VALUES(302, 23, 1, 0, 0)}}},
    {.name = "prune to the two largest of each sample; of equal ones the first",
     .layers = PLAIN("s", "affine", "feats") "," LAYER(
         "p", "prune",
         "feats") ",\"keep\":\"s\",\"top\":2}," LAYER("u", "upsample",
                                                      "p") ",\"onto\":"
                                                           "\"s\"" STRIDE("1"),
     COORDS({0, 3, 0, 0}, {0, 1, 0, 0}, {4, 5, 0, 0}, {0, -1, 0, 0}, {0, 0, 0, 0},
            {7, 1, 0, 0}, {7, 2, 0, 0}, {7, 3, 0, 0}),
     FEATS(1, 1, -9, 0.5, 1, -0.0f, 0, 0),
     .answers = {{"p", VALUES(1, 1, -9, 0, 0),
                  VOXELS({0, 0, 0, 0}, {0, 1, 0, 0}, {4, 5, 0, 0}, {7, 1, 0, 0},
                         {7, 2, 0, 0})},
                 {"u", VALUES(0, 1, -9, 0, 1, 0, 0, 0)}}},
    {.name = "a set without rows: its children, a window on it, and zeros back from it",
     .layers = PLAIN("r", "relu", "feats") "," LAYER(
         "s", "affine",
         "feats") ",\"scale\":-1}," LAYER("p", "prune",
                                          "r") ",\"keep\":\"s\"}," LAYER("d", "max_pool",
                                                                         "p")
         ALONG("2", "2") FLOOR "}," LAYER("i", "inverse_conv", "d") ONE
     ",\"of\":\"d\"}," LAYER("u", "upsample", "i") ",\"onto\":\"r\"" STRIDE("1"),
     COORDS(X(0), X(1)),
     FEATS(3, 4),
     .tensors = {WEIGHT("i", 2, 1, 1), VECTOR("i.bias", 1, 5)},
     .answers = {{"u", VALUES(0, 0)}}},
    {.name = "transposed_conv onto, kernel 3, stride 2: padding 1",
     .layers = PLAIN("r", "relu", "feats") "," LAYER("d", "downsample", "r")
         STRIDE("2") "," LAYER("u", "transposed_conv", "d")
             NO_BIAS ALONG("3", "2") ",\"onto\":\"r\"}",
     COORDS(X(0), X(1), X(2)),
     FEATS(1, 2, 4),
     .tensors = {WEIGHT("u", 3, 2, 3, 5)},
     /* p reads (p + 1 - k) / 2 */
     .answers = {{"d", VALUES(1.5, 4), VOXELS(X(0), X(1))},
                 {"u", VALUES(3 * 1.5, 2 * 4 + 5 * 1.5, 3 * 4)}}},
    {.name = "transposed_conv without onto makes its set",
     .layers = PLAIN("r", "relu", "feats") "," LAYER("e", "transposed_conv", "r")
         NO_BIAS ALONG("3", "2") "}," LAYER("d", "max_pool", "e") ALONG("2", "2") FLOOR
     "}," LAYER("u", "upsample", "d") ",\"onto\":\"r\"" STRIDE("1"),
     COORDS(X(0), X(-1)),
     FEATS(1, 10),
     .tensors = {WEIGHT("e", 3, 2, 3, 5)},
     .answers = {{"e", VALUES(20, 30, 2 + 50, 3, 5),
                  VOXELS(X(-3), X(-2), X(-1), X(0), X(1))},
                 {"d", VALUES(20, 52, 5), VOXELS(X(-2), X(-1), X(0))},
                 {"u", VALUES(5, 52)}}},
    {.name = "a voxel beyond the range of coordinates does not exist",
     .layers = PLAIN("r", "relu", "feats") "," LAYER("e", "transposed_conv", "r")
         NO_BIAS ALONG("3", "1") "}," LAYER("u", "transposed_conv", "e")
             NO_BIAS ALONG("3", "1") ",\"onto\":\"r\"}",
     COORDS(X(VX_AXIS_MAX), X(VX_AXIS_MIN)),
     FEATS(1, 10),
     .tensors = {WEIGHT("e", 3, 2, 3, 5), WEIGHT("u", 3, 7, 11, 13)},
     .answers = {{"e", VALUES(30, 50, 2, 3),
                  VOXELS(X(VX_AXIS_MIN), X(VX_AXIS_MIN + 1), X(VX_AXIS_MAX - 1),
                         X(VX_AXIS_MAX))},
                 {"u", VALUES(11 * 3 + 13 * 2, 7 * 50 + 11 * 30)}}},
    {.name = "subm_conv: offset v = (kx * 3 + ky) * 3 + kz",
     .layers = LAYER("y", "subm_conv", "feats") NO_BIAS ",\"kernel\":3}",
     COORDS({0, 0, 0, 0}, {0, 0, 0, 1}, {0, 0, 1, 0}, {0, 1, 0, 0}, {1, 0, 0, 0}),
     FEATS(1, 10, 100, 1000, 7),
     .tensors = {WEIGHT("y", 27, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
                        17, 18, 19, 20, 21, 22, 23, 24, 25, 26)},
     .answers = {{"y", VALUES(13 + 140 + 1600 + 22000, 12 + 130 + 1500 + 21000,
                              10 + 110 + 1300 + 19000, 4 + 50 + 700 + 13000, 13 * 7)}}},
    {.name = "groups: output o reads the channels of group o / (Co / g)",
     .layers = LAYER("y", "subm_conv", "feats") ",\"channels\":2,\"groups\":2,\"kernel\":"
                                                "1,\"layout\":\"vio\",\"bias\":false}",
     COORDS(X(0)),
     FEATS(1, 10, 100, 1000),
     .tensors = {{"y.weight", "F32", {1, 2, 2}, 3, (const f32[]){2, 3, 5, 7}}},
     .answers = {{"y", VALUES(2 + 50, 300 + 7000)}}},
    {.name = "depthwise, in both orders of the file",
     .layers = LAYER(
         "a", "subm_conv",
         "feats") ",\"channels\":2,\"groups\":2,\"kernel\":[3,1,1],\"layout\":\"vio\","
                  "\"bias\":false}," LAYER(
                      "b", "subm_conv",
                      "feats") ",\"channels\":2,\"groups\":2,\"kernel\":[3,1,1],"
                               "\"layout\":\"oxyzi\","
                               "\"bias\":false}",
     COORDS(X(0), X(1)),
     FEATS(1, 10, 100, 1000),
     .tensors =
         {{"a.weight", "F32", {3, 1, 2}, 3, (const f32[]){2, 3, 5, 7, 11, 13}},
          {"b.weight", "F32", {2, 3, 1, 1, 1}, 5, (const f32[]){2, 5, 11, 3, 7, 13}}},
     .answers = {{"a", VALUES(5 + 1100, 70 + 13000, 2 + 500, 30 + 7000)},
                 {"b", VALUES(5 + 1100, 70 + 13000, 2 + 500, 30 + 7000)}}},
    {.name = "group_norm: over rows and channels of one sample and group",
     .layers = LAYER("y", "group_norm", "feats") ",\"groups\":2,\"eps\":0}",
     COORDS({4, 0, 0, 0}, {9, 0, 0, 0}, {4, 5, 0, 0}),
     FEATS(5, 11, 26, 10, 2, 4, 0, 8, 11, 13, 22, 22),
     .tensors = {VECTOR("y.weight", 4, 1, 2, 3, 4), VECTOR("y.bias", 4, 0, 1, 0, -1)},
     /* 5 11 11 13: mean 10, deviation 3; 26 10 22 22: mean 20, deviation 6 */
     .answers = {{"y", VALUES(-5.0 / 3, 5.0 / 3, 3, -23.0 / 3, -1, 3, -3, 3, 1.0 / 3, 3,
                              1, 1.0 / 3)}}},
    {.name = "instance_norm: over rows of one sample and channel",
     .layers = LAYER("y", "instance_norm", "feats") ",\"affine\":false,\"eps\":0}",
     COORDS({0, 0, 0, 0}, {1, 0, 0, 0}, {0, 5, 0, 0}, {0, 6, 0, 0}, {1, 7, 0, 0},
            {0, 8, 0, 0}),
     FEATS(5, 26, 2, 8, 11, 10, 11, 22, 4, 0, 13, 22),
     .answers = {{"y", VALUES(-5.0 / 3, 1, -1, 1, 1.0 / 3, -5.0 / 3, 1.0 / 3, 1.0 / 3, 1,
                              -1, 1, 1.0 / 3)}}},
    {.name = "layer_norm and batch_norm",
     .layers = LAYER("a", "layer_norm", "feats") ",\"affine\":false,\"eps\":0}," LAYER(
         "b", "batch_norm", "feats") ",\"affine\":false,\"eps\":1}",
     COORDS(X(0)),
     FEATS(5, 11, 11, 13),
     .tensors = {VECTOR("b.running_mean", 4, 1, 2, 3, 4),
                 VECTOR("b.running_var", 4, 3, 8, 15, 0)},
     .answers = {{"a", VALUES(-5.0 / 3, 1.0 / 3, 1.0 / 3, 1)},
                 {"b", VALUES(2, 3, 2, 9)}}},
    {.name = "leaky_relu, softplus, tanh",
     .layers = LAYER("a", "leaky_relu", "feats") ",\"slope\":0.25}," PLAIN(
         "b", "softplus", "feats") "," PLAIN("c", "tanh", "feats"),
     COORDS(X(0), X(1), X(2)),
     FEATS(-1, 0, 30),
     .answers = {{"a", VALUES(-0.25, 0, 30)},
                 {"b", VALUES(0.31326168751822283, 0.69314718055994531, 30)},
                 {"c", VALUES(-0.76159415595576489, 0, 1)}}},
    {.name = "relu, silu, gelu, sigmoid",
     .layers = PLAIN("a", "relu", "feats") "," PLAIN("b", "silu", "feats") "," PLAIN(
         "c", "gelu", "feats") "," PLAIN("d", "sigmoid", "feats"),
     COORDS(X(0), X(1)),
     FEATS(-1, 2),
     .answers = {{"a", VALUES(0, 2)},
                 {"b", VALUES(-0.26894142136999512, 1.7615941559557649)},
                 {"c", VALUES(-0.15865525393145705, 1.9544997361036416)},
                 {"d", VALUES(0.26894142136999512, 0.88079707797788243)}}},
    {.name = "affine, add, mul, softmax over channels",
     .layers = LAYER(
         "a", "affine",
         "feats") ",\"scale\":2,\"shift\":-1},"
                  "{\"name\":\"b\",\"op\":\"add\",\"inputs\":[\"a\",\"feats\"]},"
                  "{\"name\":\"c\",\"op\":\"mul\",\"inputs\":[\"a\",\"feats\"]}," PLAIN(
                      "d", "softmax", "feats"),
     COORDS(X(0), X(1)),
     FEATS(1, 2, 4, 4),
     .answers = {{"a", VALUES(1, 3, 7, 7)},
                 {"b", VALUES(2, 5, 11, 11)},
                 {"c", VALUES(1, 6, 28, 28)},
                 {"d", VALUES(0.26894142136999512, 0.73105857863000488, 0.5, 0.5)}}},
    {.name = "global_pool: all rows of a sample; a gate of it on every voxel",
     .layers = POOL("m", "feats", "max") POOL("a", "feats", "avg")
         POOL("s", "feats", "sum") JOIN("j", "concat", "\"m\",\"a\",\"s\"")
             LAYER("u", "unpool", "j") ",\"of\":\"a\"}",
     COORDS({7, 5, 5, -5}, {2, 0, 0, 0}, {7, -9, 0, 0}, {2, 0, 0, 1}, {7, 0, 0, 0}),
     FEATS(-1, 10, -2, 30, -6),
     .answers = {{"j", VALUES(30, 20, 40, -1, -3, -9),
                  VOXELS({2, 0, 0, 0}, {7, 0, 0, 0})},
                 {"u",
                  VALUES(-1, -3, -9, 30, 20, 40, -1, -3, -9, 30, 20, 40, -1, -3, -9)}}},
    {.name = "global_pool behind a coarse set shares the samples of the request",
     .layers = LAYER("d", "sum_pool", "feats") ALONG("2", "2") FLOOR
     "}," POOL("m", "d", "max") POOL("n", "feats", "max") JOIN("j", "add", "\"m\",\"n\"")
         LAYER("u", "unpool", "j") ",\"of\":\"n\"}",
     COORDS(X(0), X(1), X(2)),
     FEATS(1, 2, -4),
     .answers = {{"d", VALUES(3, -4), VOXELS(X(0), X(1))},
                 {"j", VALUES(5), VOXELS(X(0))},
                 {"u", VALUES(5, 5, 5)}}},
    {.name = "argmax: the first of equal ones, of what is behind a linear layer",
     .layers = LAYER("l", "linear", "feats") ",\"channels\":3,\"bias\":false}," PLAIN(
         "a", "argmax", "l") "," PLAIN("b", "argmax", "feats"),
     COORDS(X(3), X(1), X(2)),
     FEATS(1, 1, 2, -1, -4, 5),
     .tensors = {{"l.weight", "F32", {3, 2}, 2, (const f32[]){1, 0, 0, 1, 1, 1}}},
     /* 1 1 2; 2 -1 1; -4 5 1 */
     .answers = {{"a", VALUES(2, 0, 1)}, {"b", VALUES(0, 0, 1)}}},
    {.name = "points: the mean of a cell, and back between the two nearest along x",
     .layers = LAYER("v", "voxelize", "feats") STRIDE("4") TRILINEAR("t", "v")
         NEAREST("n", "v"),
     COORDS(X(7), X(0), X(1), X(5)),
     FEATS(20, 1, 3, 10),
     /* At 1: 3/4 of 2 and 1/4 of 15.  There is no voxel at 8: all of 15, but for 1e-8. */
     .answers = {{"v", VALUES(2, 15), VOXELS(X(0), X(1))},
                 {"t", VALUES(15 * 0.25 / (0.25 + 1e-8), 2 / (1 + 1e-8),
                              5.25 / (1 + 1e-8), 15 * 0.75 / (0.75 + 1e-8))},
                 {"n", VALUES(15, 2, 2, 15)}}},
    {.name = "points onto spconv's voxels: some points have none, some voxels no point",
     SPACE("6"),
     .layers = LAYER("d", "sum_pool", "feats") ALONG("1", "2") SPCONV("0") "}," LAYER(
         "e", "sum_pool", "feats") ALONG("3", "2") SPCONV("1") "}" MEAN("a", "d")
         MEAN("b", "e") NEAREST("s", "a") NEAREST("t", "b"),
     COORDS(X(5), X(1), X(4)),
     FEATS(5, 7, 3),
     .answers = {{"a", VALUES(4), VOXELS(X(2))},
                 {"b", VALUES(7, 0, 4), VOXELS(X(0), X(1), X(2))},
                 {"s", VALUES(4, 0, 4)},
                 {"t", VALUES(4, 7, 4)}}},
    {.name = "linear and concat",
     .layers =
         LAYER("l", "linear",
               "feats") ",\"channels\":1},"
                        "{\"name\":\"j\",\"op\":\"concat\",\"inputs\":[\"l\",\"feats\"]}",
     COORDS(X(5)),
     FEATS(1, 10),
     .tensors = {{"l.weight", "F32", {1, 2}, 2, (const f32[]){2, 3}},
                 VECTOR("l.bias", 1, 0.5f)},
     .answers = {{"j", VALUES(32.5, 1, 10)}}},
};
const size_t vx_hand_cases_count = VX_COUNT(vx_hand_cases);
