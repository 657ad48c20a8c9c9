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
     "subm_conv3d MinkowskiConvolution ME.MinkowskiConvolution SpatiallySparseConv "
     "submanifold_convolution MinkowskiChannelwiseConvolution SparseDepthwiseConv3d",
     "subm_conv"},
    {"SparseConv3d spconv.SparseConv3d StridedConv sparse_conv_3d", "sparse_conv"},
    {"SparseInverseConv3d spconv.SparseInverseConv3d InverseConv3d", "inverse_conv"},
    {"MinkowskiConvolutionTranspose ConvTranspose3d nn.ConvTranspose3d deconv "
     "spconv.SparseConvTranspose3d MinkowskiGenerativeConvolutionTranspose "
     "TransposedConv",
     "transposed_conv"},
    {"MaxPool3d SparseMaxPool3d spconv.SparseMaxPool3d MinkowskiMaxPooling", "max_pool"},
    {"AvgPool3d SparseAvgPool3d MinkowskiAvgPooling nn.AvgPool3d", "avg_pool"},
    {"MinkowskiSumPooling SumPool", "sum_pool"},
    {"MinkowskiPoolingTranspose SparseUnpool", "unpool"},
    {"SparseDownsample sp.SparseDownsample", "downsample"},
    {"SparseUpsample nn.Upsample SparseSubdivide", "upsample"},
    {"SparseSpatial2Channel sp.SparseSpatial2Channel SpaceToChannel", "space_to_channel"},
    {"SparseChannel2Spatial Channel2Spatial", "channel_to_space"},
    {"nn.GroupNorm GroupNorm32", "group_norm"},
    {"MinkowskiInstanceNorm nn.InstanceNorm1d MinkowskiStableInstanceNorm",
     "instance_norm"},
    {"LeakyReLU nn.LeakyReLU MinkowskiLeakyReLU", "leaky_relu"},
    {"nn.Tanh MinkowskiTanh", "tanh"},
    {"multiply Mul", "mul"},
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
    {"point_to_voxel initial_voxelize spvoxelize F.spvoxelize Voxelize", "voxelize"},
    {"voxel_to_point spdevoxelize F.spdevoxelize", "devoxelize"},
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
        ck_assert_msg(hint[strlen(hint) - 1] == '?', "%s%s", word, hint);
    }
}
END_TEST

static const struct {
    const char *word, *said;
} others[] = {
    /* One letter away from an op of ours, but another function. */
    {"elu", "; it is not served yet"},
    {"selu", "; it is not served yet"},
    {"prelu", "; it is not served yet"},
    {"gelu_tanh", "; only the exact gelu, with erf, is served"},
    {"QuickGELU", "; only the exact gelu, with erf, is served"},
    {"relu6", "; relu6 is not served: relu has no upper bound"},
    {"nn.ReLU6", "; relu6 is not served: relu has no upper bound"},
    {"MinkowskiPruning", "; did you mean \"prune\"?"},
    {"MinkowskiGlobalMaxPooling", "; did you mean \"global_pool\" (\"mode\": \"max\")?"},
    {"HeightCompression", "; did you mean \"to_dense\" (\"fold\": true)?"},
    {"ToDense", "; did you mean \"to_dense\"?"},
    {"Dropout", "; it does nothing in inference: leave the layer out"},
    {"identity", "; it does nothing in inference: leave the layer out"},
    {"nn.Sequential", "; layers are written one by one, not as blocks"},
    /* One word for two ops of ours. */
    {"Conv3d",
     "; did you mean \"subm_conv\" (stride 1; with a stride: \"sparse_conv\")?"},
    {"MinkowskiChannelwiseConvolution", "; did you mean \"subm_conv\" (\"groups\": its "
                                        "channels; with a stride: \"sparse_conv\")?"},
    {"MinkowskiGenerativeConvolutionTranspose",
     "; did you mean \"transposed_conv\" (without \"onto\")?"},
    /* Slips of the fingers. */
    {"sub_conv", "; the nearest is \"subm_conv\""},
    {"lienar", "; the nearest is \"linear\""},
    {"batch_nrom", "; the nearest is \"batch_norm\""},
    /* No hint. */
    {"", "; known: add, "},
    {"...", "; known: add, "},
    {"3d", "; known: add, "},
    {"Minkowski", "; known: add, "},
    {"wavelet", "; known: add, affine, "},
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
        {"strides", "; did you mean \"stride\"?"},
        {"pad", "; did you mean \"padding\"?"},
        {"group", "; did you mean \"groups\"?"},
        {"num_groups", "; did you mean \"groups\"?"},
        {"negative_slope", "; did you mean \"slope\"?"},
        {"scale_factor", "; did you mean \"stride\"?"},
        {"output_padding", "; leave it out: a transposed convolution makes every voxel"},
        {"transposed", "; leave it out: the op says it: subm_conv, sparse_conv"},
        {"expand_coordinates", "; leave it out: write op \"transposed_conv\" without"},
        {"tensor_stride", "; leave it out: voxeld shares sets and maps itself"},
        {"spatial_shape",
         "; write it once: \"inputs\": {\"coords\": {\"spatial_shape\":"},
        {"indice_key", "; leave it out: voxeld shares sets and maps itself; \"of\" and "
                       "\"onto\" name a layer"},
        {"algo", "; leave it out: voxeld shares maps between layers and chooses "
                 "algorithms itself"},
        {"approximate", "; leave it out: only the exact gelu, with erf, is served"},
        {"indiceKey", "; leave it out: voxeld shares sets"},
        {"in_channels", "; leave it out: it follows from the layer's input"},
        {"stride", ""}, /* ours */
        {"padding", ""},
        {"groups", ""},
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
    static const char *const ours[] = {
        "name",   "op",      "input",  "channels", "kernel",   "bias",
        "eps",    "tensors", "affine", "stride",   "padding",  "dilation",
        "groups", "slope",   "keep",   "top",      "occupancy"};
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
    /* The list of ops is cut behind a word. */
    const char *more = strstr(hint, ", and ");
    ck_assert_msg(more && strstr(more, " more"), "%s", hint);
    for (const char *at = more; *--at != ' ';)
        ck_assert_msg(*at == '_' || (*at >= 'a' && *at <= 'z'), "%s", hint);
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
