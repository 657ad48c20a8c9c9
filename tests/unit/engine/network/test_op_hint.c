/* The hint for a word that is no op: by meaning first, by spelling last.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/network/network.h"
#include "engine/network/op_hint.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *words; /* one space between */
    const char *op;    /* the op that is meant */
} meant[] = {
    {"conv conv3d Conv3d nn.Conv3d SubMConv3d spconv.SubMConv3d spnn.Conv3d SubmConv "
     "subm_conv3d "
     "MinkowskiConvolution ME.MinkowskiConvolution SpatiallySparseConv "
     "submanifold_convolution",
     "subm_conv"},
    {"bn BN batchnorm BatchNorm1d nn.BatchNorm1d MinkowskiBatchNorm batch_norm_1d "
     "SyncBatchNorm "
     "MinkowskiSyncBatchNorm Batch-Norm",
     "batch_norm"},
    {"ln LayerNorm nn.LayerNorm layernorm", "layer_norm"},
    {"fc Linear nn.Linear dense Dense fully_connected MinkowskiLinear matmul", "linear"},
    {"swish SiLU nn.SiLU MinkowskiSiLU", "silu"},
    {"ReLU nn.ReLU torch.nn.functional.relu MinkowskiReLU", "relu"},
    {"GELU MinkowskiGELU", "gelu"},
    {"Sigmoid MinkowskiSigmoid", "sigmoid"},
    {"residual skip shortcut sum Add", "add"},
    {"cat torch.cat ME.cat concatenate Concat", "concat"},
};

START_TEST(words_of_other_libraries_are_understood)
{
    char words[512], hint[VX_OP_HINT_BYTES], expected[64], *rest = words;
    snprintf(words, sizeof words, "%s", meant[_i].words);
    snprintf(expected, sizeof expected, "; did you mean \"%s\"", meant[_i].op);
    for (const char *word; (word = strtok_r(rest, " ", &rest));) {
        vx_op_hint(word, hint);
        ck_assert_msg(!strncmp(hint, expected, strlen(expected)), "%s%s", word, hint);
        ck_assert_msg(strstr(hint, "?; known: add, batch_norm, concat, ") != NULL, "%s%s",
                      word, hint);
        ck_assert_msg(strstr(hint, "sigmoid, silu, subm_conv") != NULL, "%s%s", word,
                      hint);
    }
}
END_TEST

static const struct {
    const char *word, *said;
} others[] = {
    /* One letter away from an op of ours, but another function. */
    {"elu", "; it is not served yet; known: "},
    {"selu", "; it is not served yet; known: "},
    {"prelu", "; it is not served yet; known: "},
    {"gelu_tanh", "; only the exact gelu, with erf, is served; known: "},
    {"QuickGELU", "; only the exact gelu, with erf, is served"},
    {"relu6", "; relu6 is not served: relu has no upper bound; known: "},
    {"nn.ReLU6", "; relu6 is not served: relu has no upper bound; known: "},
    {"leaky_relu", "; it is not served yet; known: "},
    {"LeakyReLU", "; it is not served yet; known: "},
    {"sparse_conv", "; ops that change the set of voxels are not served yet; known: "},
    {"spconv.SparseConv3d",
     "; ops that change the set of voxels are not served yet; known: "},
    {"SparseInverseConv3d",
     "; ops that change the set of voxels are not served yet; known: "},
    {"inverse_conv", "; ops that change the set of voxels are not served yet; known: "},
    {"MinkowskiConvolutionTranspose",
     "; ops that change the set of voxels are not served yet"},
    {"max_pool", "; ops that change the set of voxels are not served yet; known: "},
    {"MinkowskiMaxPooling",
     "; ops that change the set of voxels are not served yet; known: "},
    {"group_norm", "; it is not served yet; known: "},
    {"tanh", "; it is not served yet; known: "},
    {"Dropout", "; it does nothing in inference: leave the layer out; known: "},
    {"identity", "; it does nothing in inference: leave the layer out; known: "},
    {"nn.Sequential", "; layers are written one by one, not as blocks; known: "},
    /* Slips of the fingers. */
    {"sub_conv", "; the nearest is \"subm_conv\""},
    {"lienar", "; the nearest is \"linear\""},
    {"batch_nrom", "; the nearest is \"batch_norm\""},
    /* No hint. */
    {"", "; known: add, "},
    {"...", "; known: add, "},
    {"3d", "; known: add, "},
    {"Minkowski", "; known: add, "},
    {"wavelet", "; known: add, "},
};

START_TEST(other_words_get_what_is_true)
{
    char hint[VX_OP_HINT_BYTES];
    vx_op_hint(others[_i].word, hint);
    ck_assert_msg(!strncmp(hint, others[_i].said, strlen(others[_i].said)), "%s%s",
                  others[_i].word, hint);
}
END_TEST

/* Every op that the table suggests exists, and every row can be reached. */
START_TEST(every_row_can_be_reached)
{
    static const char *const rows[][2] = {
#define VX_ROW(word_, op_, text_) {word_, op_},
#include "engine/network/op_hints.def"
#undef VX_ROW
    };
    for (size_t i = 0; i < VX_COUNT(rows); i++) {
        char hint[VX_OP_HINT_BYTES], expected[64];
        vx_op_hint(rows[i][0], hint);
        snprintf(expected, sizeof expected, "; did you mean \"%s\"", rows[i][1]);
        if (rows[i][1][0])
            ck_assert_msg(!strncmp(hint, expected, strlen(expected)), "%s%s", rows[i][0],
                          hint);
        else
            ck_assert_msg(strncmp(hint, "; known", 7) &&
                              strncmp(hint, "; the nearest", 13) &&
                              strncmp(hint, "; did you", 9),
                          "%s%s", rows[i][0], hint);
        bool found = !rows[i][1][0];
        for (enum vx_op op = 0; op < VX_OPS_COUNT; op++)
            found = found || !strcmp(vx_op_name(op), rows[i][1]);
        ck_assert_msg(found, "%s is no op", rows[i][1]);
        if (i)
            ck_assert_msg(strcmp(rows[i - 1][0], rows[i][0]) < 0, "%s: not sorted",
                          rows[i][0]);
    }
}
END_TEST

START_TEST(keys_of_other_libraries_are_understood)
{
    static const char *const words[][2] = {
        {"kernel_size", "; did you mean \"kernel\"?"},
        {"out_channels", "; did you mean \"channels\"?"},
        {"use_bias", "; did you mean \"bias\"?"},
        {"stride", "; stride is always 1: the voxels stay as they are"},
        {"padding",
         "; a submanifold convolution has no padding: one output row for each input row"},
        {"groups",
         "; groups is always 1: every output channel reads every input channel"},
        {"indice_key", "; leave it out: voxeld shares maps between layers and chooses "
                       "algorithms itself"},
        {"approximate", "; leave it out: only the exact gelu, with erf, is served"},
        {"indiceKey", "; leave it out: voxeld shares maps"},
        {"in_channels", "; leave it out: it follows from the layer's input"},
        {"inplace", ""},
        {"", ""},
    };
    for (size_t i = 0; i < VX_COUNT(words); i++) {
        char hint[VX_OP_HINT_BYTES];
        vx_key_hint(words[i][0], hint);
        ck_assert_msg(!strncmp(hint, words[i][1], strlen(words[i][1])), "%s%s",
                      words[i][0], hint);
        if (!words[i][1][0]) ck_assert_str_eq(hint, "");
    }
}
END_TEST

START_TEST(every_key_can_be_reached)
{
    static const char *const ours[] = {"name", "op",  "input",   "channels", "kernel",
                                       "bias", "eps", "tensors", "affine"};
    static const char *const rows[][2] = {
#define VX_ROW(word_, key_, text_) {word_, key_},
#include "engine/network/key_hints.def"
#undef VX_ROW
    };
    for (size_t i = 0; i < VX_COUNT(rows); i++) {
        char hint[VX_OP_HINT_BYTES];
        vx_key_hint(rows[i][0], hint);
        ck_assert_msg(hint[0], "%s", rows[i][0]);
        bool found = !rows[i][1][0];
        for (size_t k = 0; k < VX_COUNT(ours) && !found; k++)
            found = !strcmp(ours[k], rows[i][1]);
        ck_assert_msg(found, "%s is no key", rows[i][1]);
        if (i)
            ck_assert_msg(strcmp(rows[i - 1][0], rows[i][0]) < 0, "%s: not sorted",
                          rows[i][0]);
    }
}
END_TEST

/* A word of any length is cut, and nothing is written behind the buffer. */
START_TEST(long_words_are_cut)
{
    char word[4096], hint[VX_OP_HINT_BYTES];
    memset(word, 'x', sizeof word);
    word[sizeof word - 1] = '\0';
    vx_op_hint(word, hint);
    ck_assert_msg(!strncmp(hint, "; known: add", 12), "%s", hint);
    ck_assert_str_eq(vx_key_hint(word, hint), "");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("op_hint");
    TCase *tcase = tcase_create("op_hint");
    tcase_add_loop_test(tcase, words_of_other_libraries_are_understood, 0,
                        VX_COUNT(meant));
    tcase_add_loop_test(tcase, other_words_get_what_is_true, 0, VX_COUNT(others));
    tcase_add_test(tcase, every_row_can_be_reached);
    tcase_add_test(tcase, keys_of_other_libraries_are_understood);
    tcase_add_test(tcase, every_key_can_be_reached);
    tcase_add_test(tcase, long_words_are_cut);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
