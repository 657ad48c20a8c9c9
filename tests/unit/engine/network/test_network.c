/* network.json: what a good file is parsed into, and the sentence for every kind of bad one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/network/network.h"
#include "tests/support/model_files.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LABEL "m/network.json"

static u8 *block;
static struct vx_arena arena;

static void set_up(void)
{
    block = vx_alloc(VX_NETWORK_ARENA_BYTES);
    vx_arena_init(&arena, block, VX_NETWORK_ARENA_BYTES);
}

static void tear_down(void)
{
    vx_free(block);
}

static vx_status parse(const char *text, struct vx_why *why,
                       const struct vx_network **network)
{
    struct vx_network_text source = {.text = text, .bytes = strlen(text), .label = LABEL};
    return vx_network_parse(&source, &arena, why, network);
}

static const struct vx_network *parse_good(const char *text)
{
    struct vx_why why = {{0}};
    const struct vx_network *network;
    vx_status status = parse(text, &why, &network);
    ck_assert_msg(!status.fault, "%s", why.text);
    return network;
}

static const char *const every_op =
    "{\"format\": 1, \"description\": \"every op\",\n"
    " \"inputs\": {\"coords\": \"xyz\", \"feats\": {\"name\": \"f\", \"channels\": 4}},\n"
    " \"layers\": [\n"
    "  {\"name\": \"stem\", \"op\": \"subm_conv\", \"input\": \"f\", \"channels\": 8,\n"
    "   \"kernel\": [3, 5, 1], \"dilation\": [1, 2, 3], \"layout\": \"vio\", \"bias\": "
    "false,\n"
    "   \"tensors\": {\"weight\": \"stem.kernel\"}},\n"
    "  {\"name\": \"bn\", \"op\": \"batch_norm\", \"input\": \"stem\", \"eps\": 1e-3},\n"
    "  {\"name\": \"r\", \"op\": \"relu\", \"input\": \"bn\"},\n"
    "  {\"name\": \"lin\", \"op\": \"linear\", \"input\": \"r\", \"channels\": 8},\n"
    "  {\"name\": \"ln\", \"op\": \"layer_norm\", \"input\": \"lin\", \"affine\": "
    "false},\n"
    "  {\"name\": \"s\", \"op\": \"silu\", \"input\": \"ln\"},\n"
    "  {\"name\": \"g\", \"op\": \"gelu\", \"input\": \"ln\"},\n"
    "  {\"name\": \"sum\", \"op\": \"add\", \"inputs\": [\"s\", \"g\"]},\n"
    "  {\"name\": \"join\", \"op\": \"concat\", \"inputs\": [\"sum\", \"f\", \"r\"]},\n"
    "  {\"name\": \"p\", \"op\": \"sigmoid\", \"input\": \"join\"}],\n"
    " \"outputs\": [{\"name\": \"out\", \"layer\": \"p\", \"datatype\": \"BF16\"},\n"
    "             {\"layer\": \"sum\"}],\n"
    " \"limits\": {\"voxels_max\": 5000}, \"batching\": {\"voxels_max\": 9000, "
    "\"delay_us\": 50},\n"
    " \"warmup\": [1, 5000], \"precision\": \"bf16\"}\n";

START_TEST(every_op_is_read)
{
    const struct vx_network *network = parse_good(every_op);
    const struct vx_layer *layer = network->layers;
    ck_assert_str_eq(network->label, LABEL);
    ck_assert_str_eq(network->description, "every op");
    ck_assert_str_eq(network->coords_name, "xyz");
    ck_assert_str_eq(network->feats_name, "f");
    ck_assert_int_eq(network->feats_channels, 4);
    ck_assert_int_eq(network->layers_count, 10);
    ck_assert_int_eq(layer[0].op, VX_OP_SUBM_CONV);
    ck_assert_int_eq(layer[0].inputs[0], VX_LAYER_FEATS);
    ck_assert_int_eq(layer[0].channels_in, 4);
    ck_assert_int_eq(layer[0].channels, 8);
    ck_assert_int_eq(layer[0].v, 15);
    ck_assert_int_eq(layer[0].kernel[1], 5);
    ck_assert_int_eq(layer[0].dilation[2], 3);
    ck_assert_int_eq(layer[0].layout, VX_LAYOUT_VIO);
    ck_assert(!layer[0].bias);
    ck_assert_str_eq(layer[0].tensors[VX_TENSOR_WEIGHT], "stem.kernel");
    ck_assert_ptr_null(layer[0].tensors[VX_TENSOR_BIAS]);
    ck_assert_int_eq(vx_layer_parameters(&layer[0]), 15 * 4 * 8);
    ck_assert(layer[1].eps == 1e-3);
    ck_assert_str_eq(layer[1].tensors[VX_TENSOR_RUNNING_VAR], "bn.running_var");
    ck_assert_int_eq(vx_layer_parameters(&layer[1]), 4 * 8);
    ck_assert_int_eq(layer[3].inputs[0], 2);
    ck_assert(layer[3].bias);
    ck_assert_str_eq(layer[3].tensors[VX_TENSOR_BIAS], "lin.bias");
    ck_assert_int_eq(vx_layer_parameters(&layer[3]), 8 * 8 + 8);
    ck_assert(!layer[4].affine);
    ck_assert(layer[4].eps == 1e-5);
    ck_assert_ptr_null(layer[4].tensors[VX_TENSOR_WEIGHT]);
    ck_assert_int_eq(layer[8].inputs_count, 3);
    ck_assert_int_eq(layer[8].inputs[1], VX_LAYER_FEATS);
    ck_assert_int_eq(layer[8].channels, 8 + 4 + 8);
    ck_assert_int_eq(layer[9].channels, 20);
    ck_assert_int_eq(network->outputs_count, 2);
    ck_assert_str_eq(network->outputs[0].name, "out");
    ck_assert_int_eq(network->outputs[0].dtype, VX_DTYPE_BF16);
    ck_assert_str_eq(network->outputs[1].name, "sum");
    ck_assert_int_eq(network->outputs[1].dtype, VX_DTYPE_F32);
    ck_assert_int_eq(network->outputs[1].layer, 7);
    ck_assert(network->voxels_max_said);
    ck_assert_int_eq(network->voxels_max, 5000);
    ck_assert_int_eq(network->batching.voxels_max, 9000);
    ck_assert_int_eq(network->batching.delay_us, 50);
    ck_assert_int_eq(network->warmup_count, 2);
    ck_assert_int_eq(network->warmup[1], 5000);
    ck_assert_int_eq(network->precision, VX_PRECISION_BF16);
}
END_TEST

#define INPUTS "\"inputs\":{\"feats\":{\"channels\":4}},"
/* A network of these layers, with an output at the one called "y". */
#define LAYERS(layers_)                                                                  \
    "{\"format\":1," INPUTS "\"layers\":[" layers_ "],\"outputs\":[{\"layer\":\"y\"}]}"
#define TAIL(tail_)                                                                      \
    "{\"format\":1," INPUTS                                                              \
    "\"layers\":[{\"name\":\"y\",\"op\":\"relu\",\"input\":\"feats\"}]," tail_ "}"
#define OUT "\"outputs\":[{\"layer\":\"y\"}]"

START_TEST(what_is_not_said_has_a_default)
{
    const struct vx_network *network = parse_good(
        LAYERS("{\"name\":\"y\",\"op\":\"subm_conv\",\"input\":\"feats\",\"channels\":2,"
               "\"kernel\":7}"));
    const struct vx_layer *layer = network->layers;
    ck_assert_str_eq(network->coords_name, "coords");
    ck_assert_str_eq(network->feats_name, "feats");
    ck_assert_str_eq(network->description, "");
    ck_assert_int_eq(layer->v, 343);
    ck_assert_int_eq(layer->dilation[0], 1);
    ck_assert_int_eq(layer->layout, VX_LAYOUT_UNSAID);
    ck_assert(layer->bias);
    ck_assert(!network->voxels_max_said);
    ck_assert_int_eq(network->precision, VX_PRECISION_AUTO);
    ck_assert_int_eq(network->voxels_max, VX_NETWORK_VOXELS_DEFAULT);
    ck_assert_int_eq(network->batching.voxels_max, VX_NETWORK_VOXELS_DEFAULT);
    ck_assert_int_eq(network->batching.delay_us, 0);
    ck_assert_int_eq(network->warmup_count, 2);
}
END_TEST

#define Y_CONV(rest_)                                                                    \
    LAYERS("{\"name\":\"y\",\"op\":\"subm_conv\",\"input\":\"feats\"" rest_ "}")
#define Y_RELU(rest_) LAYERS("{\"name\":\"y\",\"op\":\"relu\"" rest_ "}")

static const struct {
    const char *text;
    const char *why; /* behind the label */
} bad[] = {
    {"[]", "line 1, column 1: expected an object, got a list"},
    {"{", "line 1, column 2: expected '\"', got the end of the text"},
    {"{}", "line 1: the key \"format\" is missing"},
    {"{\"format\":\"1\"}",
     "line 1, column 11: \"format\": expected an integer, got \"1\""},
    {"{\"format\":2,\"new\":0}", "line 1: \"format\": expected 1, got 2"},
    {"{\"format\":1,\n\"layer\":[]}",
     "line 2: unknown key \"layer\"; the nearest is \"layers\""},
    {"{\"format\":1,\"x\":[]}", "line 1: unknown key \"x\"; known: format, description, "
                                "inputs, layers, outputs, limits, "
                                "batching, warmup, precision, fp8"},
    {"{\"format\":1}", "line 1: the key \"inputs\" is missing"},
    {"{\"format\":1,\"inputs\":{}}", "line 1: the key \"feats\" is missing"},
    {"{\"format\":1,\"inputs\":{\"feats\":{}}}",
     "line 1: the key \"channels\" is missing"},
    {"{\"format\":1,\"inputs\":{\"feats\":{\"channels\":0}}}",
     "line 1, column 43: \"channels\": expected an integer from 1 to 16384, got 0"},
    {"{\"format\":1,\"inputs\":{\"feats\":{\"chanels\":4}}}",
     "line 1: unknown key \"chanels\"; the nearest is \"channels\""},
    {"{\"format\":1,\"inputs\":{\"coord\":\"c\",\"feats\":{\"channels\":4}}}",
     "line 1: unknown key \"coord\"; the nearest is \"coords\""},
    {"{\"format\":1,\"inputs\":{\"coords\":\"\",\"feats\":{\"channels\":4}}}",
     "line 1, column 32: \"coords\": expected a text of 1 to 127 bytes, got \"\""},
    {"{\"format\":1,\"inputs\":{\"coords\":\"feats\",\"feats\":{\"channels\":4}}}",
     "line 1: \"inputs\": expected two names, got \"feats\" for both"},
    {"{\"format\":1," INPUTS "\"layers\":{}}",
     "line 1, column 56: \"layers\": expected a list, got an object"},
    {LAYERS(""), "line 1: \"layers\": expected 1 to 1024 layers, got 0"},
    {LAYERS("3"), "line 1, column 57: expected an object, got 3"},
    {LAYERS("{}"), "line 1: the key \"name\" is missing"},
    {LAYERS("{\"name\":\"feats\"}"),
     "line 1: layer \"feats\": the name is taken by an input"},
    {LAYERS("{\"name\":\"y\"},\n{\"name\":\"y\"}"),
     "line 2: layer \"y\": the name is taken by the layer on line 1"},
    {LAYERS("{\"name\":\"y\"}"), "layer \"y\": line 1: the key \"op\" is missing"},
    {LAYERS("{\"name\":\"y\",\"op\":\"sub_conv\"}"),
     "layer \"y\": line 1: unknown op \"sub_conv\"; the nearest is \"subm_conv\""},
    {Y_RELU(",\"input\":\"feats\",\"inplace\":true"),
     "layer \"y\": line 1: unknown key \"inplace\"; known: name, op, input, inputs"},
    {Y_RELU(",\"input\":\"feats\",\"kernel\":3"),
     "layer \"y\": line 1: the key \"kernel\" does not belong to relu"},
    {Y_RELU(""),
     "layer \"y\": line 1: expected either \"input\" or \"inputs\", got neither"},
    {Y_RELU(",\"input\":\"feats\",\"inputs\":[\"feats\"]"),
     "layer \"y\": line 1: expected either \"input\" or \"inputs\", got both"},
    {Y_RELU(",\"input\":3"),
     "layer \"y\": line 1, column 89: \"input\": expected a text, got 3"},
    {Y_RELU(",\"input\":\"feat\""),
     "layer \"y\": line 1: unknown input \"feat\"; the nearest is \"feats\""},
    {Y_RELU(",\"input\":\"stem.conv\""),
     "layer \"y\": line 1: unknown input \"stem.conv\"; known: feats"},
    {Y_RELU(",\"input\":\"coords\""), "layer \"y\": line 1: expected a layer or "
                                      "\"feats\" as input, got \"coords\", which has "
                                      "coordinates and no features"},
    {Y_RELU(",\"input\":\"y\""), "layer \"y\": line 1: input \"y\" is the layer itself; "
                                 "a layer may only use layers above it"},
    {LAYERS("{\"name\":\"y\",\"op\":\"relu\",\"input\":\"z\"},"
            "{\"name\":\"z\",\"op\":\"relu\",\"input\":\"feats\"}"),
     "layer \"y\": line 1: input \"z\" is a later layer; a layer may only use layers "
     "above it"},
    {Y_RELU(",\"inputs\":[]"), "layer \"y\": line 1: expected 1 input for relu, got 0"},
    {LAYERS("{\"name\":\"y\",\"op\":\"add\",\"input\":\"feats\"}"),
     "layer \"y\": line 1: expected 2 inputs for add, got 1"},
    {LAYERS("{\"name\":\"a\",\"op\":\"linear\",\"input\":\"feats\",\"channels\":5},"
            "{\"name\":\"y\",\"op\":\"add\",\"inputs\":[\"feats\",\"a\"]}"),
     "layer \"y\": line 1: expected inputs of equal channels, got 4 and 5"},
    {LAYERS("{\"name\":\"a\",\"op\":\"linear\",\"input\":\"feats\",\"channels\":16384},"
            "{\"name\":\"y\",\"op\":\"concat\",\"inputs\":[\"feats\",\"a\"]}"),
     "layer \"y\": line 1: expected at most 16384 channels, got 16388"},
    {Y_CONV(""), "layer \"y\": line 1: the key \"channels\" is missing"},
    {Y_CONV(",\"channels\":16385,\"kernel\":3"),
     "layer \"y\": line 1, column 113: \"channels\": expected an integer from 1 to "
     "16384, got 16385"},
    {Y_CONV(",\"channels\":8"), "layer \"y\": line 1: the key \"kernel\" is missing"},
    {Y_CONV(",\"channels\":8,\"kernel\":2"),
     "layer \"y\": line 1: \"kernel\": expected odd sizes, got 2x2x2; sparse_conv with "
     "\"stride\": 1 and \"rule\": \"floor\" takes even ones"},
    {Y_CONV(",\"channels\":8,\"kernel\":[3,3]"),
     "layer \"y\": line 1: \"kernel\": expected one integer, or three for columns "
     "1 to 3 of coords, got 2"},
    {Y_CONV(",\"channels\":8,\"kernel\":[3,3,0]"),
     "layer \"y\": line 1: \"kernel\": expected integers from 1 to 343, got 0"},
    {Y_CONV(",\"channels\":8,\"kernel\":9"),
     "layer \"y\": line 1: \"kernel\": expected at most 343 voxels in the kernel or "
     "block, got 9x9x9 = 729"},
    {Y_CONV(",\"channels\":8,\"kernel\":3,\"dilation\":0"),
     "layer \"y\": line 1: \"dilation\": expected integers from 1 to 1024, "
     "got 0"},
    {Y_CONV(",\"channels\":8,\"kernel\":3,\"layout\":\"oizyx\""),
     "layer \"y\": line 1: \"layout\": expected one of \"spconv\", \"torchsparse\", "
     "\"minkowski\", \"warpconvnet\", \"flexgemm\", \"xyzio\", \"xyzoi\", \"oxyzi\", "
     "\"vio\", got \"oizyx\""},
    {Y_CONV(",\"channels\":8,\"kernel\":3,\"bias\":0"),
     "layer \"y\": line 1, column 133: \"bias\": expected true or false, got 0"},
    {Y_CONV(",\"channels\":8,\"kernel\":3,\"tensors\":{\"wieght\":\"a\"}"),
     "layer \"y\": \"tensors\": line 1: unknown key \"wieght\"; the nearest is "
     "\"weight\""},
    {Y_CONV(",\"channels\":8,\"kernel\":3,\"bias\":false,\"tensors\":{\"bias\":\"a\"}"),
     "layer \"y\": line 1: \"tensors\" names a bias, but \"bias\" is false"},
    {LAYERS("{\"name\":\"y\",\"op\":\"layer_norm\",\"input\":\"feats\",\"affine\":false,"
            "\"tensors\":{\"weight\":\"a\"}}"),
     "layer \"y\": line 1: \"tensors\" names a weight, but \"affine\" is false"},
    {Y_CONV(",\"channels\":8,\"kernel\":3,\"bias\":false,\"tensors\":[]"),
     "layer \"y\": line 1, column 149: \"tensors\": expected an object, got a list"},
    {Y_CONV(",\"channels\":8,\"kernel\":3,\"tensors\":{\"weight\":7}"),
     "layer \"y\": line 1, column 146: \"weight\": expected a text, got 7"},
    {LAYERS("{\"name\":\"y\",\"op\":\"layer_norm\",\"input\":\"feats\",\"eps\":-1}"),
     "layer \"y\": line 1, column 109: \"eps\": expected a number from 0 to 1, got -1"},
    {LAYERS("{\"name\":\"y\",\"op\":\"relu\",\"input\":\"feats\"},"
            "\n{\"name\":\"dead\",\"op\":\"relu\",\"input\":\"y\"}"),
     "line 2: layer \"dead\" is used by nothing: no layer below it and no output needs "
     "it"},
    {TAIL("\"limits\":{}"), "line 1: the key \"outputs\" is missing"},
    {TAIL("\"outputs\":[]"), "line 1: \"outputs\": expected 1 to 8 outputs, got 0"},
    {TAIL("\"outputs\":[{\"name\":\"n\"}]"), "line 1: the key \"layer\" is missing"},
    {TAIL("\"outputs\":[{\"layer\":\"feats\"}]"),
     "line 1: \"layer\": expected the name of a layer, got \"feats\"; known: y"},
    {TAIL("\"outputs\":[{\"layer\":\"y\",\"name\":\"feats\"}]"),
     "line 1: expected a name that no input has, got \"feats\""},
    {TAIL("\"outputs\":[{\"layer\":\"y\"},{\"layer\":\"y\"}]"),
     "line 1: two outputs are named \"y\""},
    {TAIL("\"outputs\":[{\"layer\":\"y\",\"datatype\":\"FP64\"}]"),
     "line 1: \"datatype\": expected \"FP32\", \"FP16\" or \"BF16\", got \"FP64\""},
    {TAIL("\"outputs\":[{\"layer\":\"y\",\"dtype\":\"FP32\"}]"),
     "line 1: unknown key \"dtype\"; the nearest is \"datatype\""},
    {TAIL(OUT ",\"limits\":{\"voxel_max\":1}"),
     "line 1: unknown key \"voxel_max\"; the nearest is \"voxels_max\""},
    {TAIL(OUT ",\"limits\":{\"voxels_max\":0}"),
     "line 1, column 148: \"voxels_max\": expected an integer from 1 to 1073741824, got "
     "0"},
    {TAIL(OUT ",\"batching\":{\"delay_us\":-1}"),
     "line 1, column 148: \"delay_us\": expected an integer from 0 to 10000000, got -1"},
    {TAIL(OUT ",\"batching\":{\"pairs_max\":0}"),
     "line 1, column 149: \"pairs_max\": expected an integer from 1 to 368293445632, got "
     "0"},
    {TAIL(OUT ",\"batching\":{\"requests_max\":65}"),
     "line 1, column 152: \"requests_max\": expected an integer from 1 to 64, got 65"},
    {TAIL(OUT ",\"batching\":{\"priority_levels\":9}"),
     "line 1, column 155: \"priority_levels\": expected an integer from 0 to 8, got 9"},
    {TAIL(OUT ",\"batching\":{\"priority_levels\":2}"),
     "line 1: the key \"default_priority_level\" is missing"},
    {TAIL(OUT ",\"batching\":{\"priority_levels\":2,\"default_priority_level\":3}"),
     "line 1, column 182: \"default_priority_level\": expected an integer from 1 to 2, "
     "got 3"},
    {TAIL(OUT ",\"batching\":{\n\"default_priority_level\":1}"),
     "line 2: \"default_priority_level\" needs \"priority_levels\", which is missing"},
    {TAIL(OUT ",\"batching\":{\"default_queue_policy\":1}"),
     "line 1, column 160: \"default_queue_policy\": expected an object, got 1"},
    {TAIL(OUT ",\"batching\":{\"default_queue_policy\":{\n\"max_queue\":1}}"),
     "line 2: unknown key \"max_queue\"; the nearest is \"max_queue_size\""},
    {TAIL(OUT ",\"batching\":{\"default_queue_policy\":{\"max_queue_size\":-1}}"),
     "line 1, column 178: \"max_queue_size\": expected an integer from 0 to 2147483647, "
     "got -1"},
    {TAIL(OUT ",\"batching\":{\"default_queue_policy\":{\n\"timeout_action\":\"WAIT\"}}"),
     "line 2: \"timeout_action\": expected \"REJECT\" or \"DELAY\", got \"WAIT\""},
    {TAIL(OUT ",\"batching\":{\"default_queue_policy\":{\"allow_timeout_override\":1}}"),
     "line 1, column 186: \"allow_timeout_override\": expected true or false, got 1"},
    {TAIL(OUT ",\"batching\":{\"priority_queue_policy\":{\n\"1\":{}}}"),
     "line 2: \"priority_queue_policy\": expected a level from 1 to priority_levels, "
     "which is 0, got \"1\""},
    {TAIL(OUT ",\"batching\":{\"priority_levels\":2,\"default_priority_level\":1,"
              "\"priority_queue_policy\":{\n\"01\":{}}}"),
     "line 2: \"priority_queue_policy\": expected a level from 1 to priority_levels, "
     "which is 2, got \"01\""},
    {TAIL(OUT ",\"batching\":{\"delay\":1}"),
     "line 1: unknown key \"delay\"; the nearest is \"delay_us\""},
    {TAIL(OUT ",\"warmup\":100"),
     "line 1, column 134: \"warmup\": expected a list, got 100"},
    {TAIL(OUT ",\"warmup\":[0]"),
     "\"warmup\": line 1, column 135: expected an integer from 1 to 4194304, got 0"},
    {TAIL(OUT ",\"limits\":{\"voxels_max\":10},\"warmup\":[11]"),
     "\"warmup\": line 1, column 162: expected an integer from 1 to 10, got 11"},
    {TAIL(OUT ",\"warmup\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]"),
     "line 1: \"warmup\": expected at most 16 sizes, got 17"},
    {TAIL(OUT ",\"precision\":\"half\""), "line 1: \"precision\": expected \"auto\", "
                                          "\"fp16\", \"bf16\", \"tf32\" or \"fp32\", "
                                          "got \"half\""},
    {TAIL(OUT ",\"precision\":16"),
     "line 1, column 137: \"precision\": expected a text, got 16"},
    {TAIL(OUT ",\"description\":7"),
     "line 1, column 139: \"description\": expected a text, got 7"},
};

START_TEST(every_precision_has_a_word)
{
    static const char *const words[] = {"auto", "fp16", "bf16", "tf32", "fp32"};
    char text[512];
    snprintf(text, sizeof text, "%.*s,\"precision\":\"%s\"}", (int)strlen(TAIL(OUT)) - 1,
             TAIL(OUT), words[_i]);
    ck_assert_int_eq(parse_good(text)->precision, _i);
    ck_assert_str_eq(vx_precision_name((enum vx_precision)_i), words[_i]);
}
END_TEST

static void policy_is(const struct vx_queue_policy *policy, i64 timeout_us, i64 size,
                      bool delay, bool override)
{
    ck_assert_int_eq(policy->default_timeout_us, timeout_us);
    ck_assert_int_eq(policy->max_queue_size, size);
    ck_assert_int_eq(policy->timeout_delay, delay);
    ck_assert_int_eq(policy->allow_timeout_override, override);
}

START_TEST(batching_is_read_with_tritons_words)
{
    const struct vx_batching *batching =
        &parse_good(TAIL(OUT ",\"batching\":{\"pairs_max\":70,\"requests_max\":3,"
                             "\"priority_levels\":3,\"default_priority_level\":2,"
                             "\"default_queue_policy\":{\"max_queue_size\":5,"
                             "\"default_timeout_microseconds\":9},"
                             "\"priority_queue_policy\":{\"3\":{\"timeout_action\":"
                             "\"DELAY\",\"allow_timeout_override\":true},"
                             "\"1\":{\"timeout_action\":\"REJECT\"}}}"))
             ->batching;
    ck_assert_int_eq(batching->pairs_max, 70);
    ck_assert_int_eq(batching->requests_max, 3);
    ck_assert_int_eq(batching->priority_levels, 3);
    ck_assert_int_eq(batching->default_priority_level, 2);
    policy_is(&batching->policies[0], 9, 5, false, false);
    policy_is(&batching->policies[1], 0, 0, false, false);
    policy_is(&batching->policies[2], 9, 5, false, false); /* the default's */
    policy_is(&batching->policies[3], 0, 0, true, true);
    batching = &parse_good(TAIL(OUT))->batching;
    ck_assert_int_eq(batching->requests_max, VX_BATCH_ITEMS_MAX);
    ck_assert_int_eq(batching->pairs_max + batching->priority_levels, 0);
    policy_is(&batching->policies[0], 0, 0, false, true);
}
END_TEST

START_TEST(bad_files_are_refused_with_a_sentence)
{
    struct vx_why why = {{0}};
    const struct vx_network *network;
    char expected[2 * VX_WHY_BYTES];
    vx_status status = parse(bad[_i].text, &why, &network);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_ptr_null(network);
    snprintf(expected, sizeof expected, "%s: %s", LABEL, bad[_i].why);
    ck_assert_str_eq(why.text, expected);
}
END_TEST

START_TEST(as_many_layers_as_the_limit)
{
    size_t room = 256 + 128 * (VX_LAYERS_MAX + 1);
    char *text = vx_alloc(room);
    for (int extra = 0; extra < 2; extra++) {
        struct vx_why why = {{0}};
        const struct vx_network *network;
        size_t used =
            (size_t)snprintf(text, room, "{\"format\":1," INPUTS "\"layers\":[");
        for (int i = 0; i < VX_LAYERS_MAX + extra; i++) {
            char input[16] = "feats";
            if (i) snprintf(input, sizeof input, "l%d", i - 1);
            used +=
                (size_t)snprintf(text + used, room - used,
                                 "%s{\"name\":\"l%d\",\"op\":\"relu\",\"input\":\"%s\"}",
                                 i ? "," : "", i, input);
        }
        snprintf(text + used, room - used, "],\"outputs\":[{\"layer\":\"l%d\"}]}",
                 VX_LAYERS_MAX - 1 + extra);
        vx_arena_reset(&arena);
        vx_status status = parse(text, &why, &network);
        ck_assert_int_eq(vx_status_code(status),
                         extra ? VX_CODE_INVALID_ARGUMENT : VX_CODE_OK);
        if (extra)
            ck_assert_str_eq(why.text,
                             LABEL ": line 1: \"layers\": expected 1 to 1024 layers, got "
                                   "1025");
    }
    vx_free(text);
}
END_TEST

START_TEST(a_full_arena_is_said)
{
    vx_arena_init(&arena, block, VX_NETWORK_ARENA_BYTES);
    parse_good(every_op);
    size_t enough = arena.used;
    for (size_t bytes = 0; bytes < enough; bytes += 64) {
        const struct vx_network *network;
        vx_arena_init(&arena, block, bytes);
        vx_status status = parse(every_op, NULL, &network);
        ck_assert_int_eq(vx_status_code(status), VX_CODE_RESOURCE_EXHAUSTED);
        ck_assert_ptr_null(network);
    }
}
END_TEST

START_TEST(files_are_read)
{
    char directory[VX_TEST_PATH_BYTES], path[VX_TEST_PATH_BYTES + 32];
    struct vx_why why = {{0}};
    const struct vx_network *network;
    vx_test_directory(directory);
    snprintf(path, sizeof path, "%s/network.json", directory);
    vx_status status = vx_network_read(path, LABEL, &arena, &why, &network);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_NOT_FOUND);
    ck_assert_str_eq(why.text, LABEL ": cannot be opened: No such file or directory");
    status = vx_network_read(directory, LABEL, &arena, &why, &network);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(why.text, LABEL ": expected a regular file, got a directory");
    vx_test_write_file(path, every_op, strlen(every_op));
    status = vx_network_read(path, LABEL, &arena, &why, &network);
    ck_assert(!status.fault);
    ck_assert_int_eq(network->layers_count, 10);
    char *large = vx_alloc(VX_NETWORK_BYTES_MAX + 1);
    memset(large, ' ', VX_NETWORK_BYTES_MAX + 1);
    memcpy(large, every_op, strlen(every_op));
    vx_test_write_file(path, large, VX_NETWORK_BYTES_MAX);
    ck_assert(!vx_network_read(path, LABEL, &arena, &why, &network).fault);
    vx_test_write_file(path, large, VX_NETWORK_BYTES_MAX + 1);
    status = vx_network_read(path, LABEL, &arena, &why, &network);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(why.text, LABEL ": expected at most 524288 bytes");
    vx_free(large);
    vx_test_remove(directory);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("network");
    TCase *tcase = tcase_create("network");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, every_op_is_read);
    tcase_add_test(tcase, what_is_not_said_has_a_default);
    tcase_add_loop_test(tcase, every_precision_has_a_word, 0, 5);
    tcase_add_test(tcase, batching_is_read_with_tritons_words);
    tcase_add_loop_test(tcase, bad_files_are_refused_with_a_sentence, 0, VX_COUNT(bad));
    tcase_add_test(tcase, as_many_layers_as_the_limit);
    tcase_add_test(tcase, a_full_arena_is_said);
    tcase_add_test(tcase, files_are_read);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
