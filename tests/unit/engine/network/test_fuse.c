/* Fusing: which layers become one node, and that folded weights give the same answer.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/weights/weights.h"
#include "tests/support/model_files.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ARENA_BYTES (VX_NETWORK_ARENA_BYTES + 2 * VX_FUSE_ARENA_BYTES)

static u8 *block;
static struct vx_arena arena;

static const struct vx_fuse_options all = {.fold_norms = true, .fuse_activations = true};
static const struct vx_fuse_options none = {.fold_norms = false,
                                            .fuse_activations = false};

static void set_up(void)
{
    block = vx_alloc(ARENA_BYTES);
    vx_arena_init(&arena, block, ARENA_BYTES);
}

static void tear_down(void)
{
    vx_free(block);
}

static const struct vx_network *network_of(const char *text)
{
    struct vx_network_text source = {
        .text = text, .bytes = strlen(text), .label = "m/network.json"};
    struct vx_why why = {{0}};
    const struct vx_network *network;
    vx_status status = vx_network_parse(&source, &arena, &why, &network);
    ck_assert_msg(!status.fault, "%s", why.text);
    return network;
}

static const struct vx_graph *graph_of(const struct vx_network *network,
                                       const struct vx_fuse_options *options)
{
    const struct vx_graph *graph;
    ck_assert(!vx_fuse_build(network, options, &arena, &graph).fault);
    return graph;
}

/* Nodes as one line: producer[+norm][:activation](inputs), features as ~; the last input
 * of a node that takes a residual behind &. */
static void graph_show(const struct vx_graph *graph, char *out, size_t bytes)
{
    static const char *const activations[] = {"", ":relu", ":silu", ":gelu", ":sigmoid"};
    size_t used = 0;
    out[0] = '\0';
    for (i32 i = 0; i < graph->nodes_count; i++) {
        const struct vx_node *node = &graph->nodes[i];
        used += (size_t)snprintf(out + used, bytes - used, "%s%s%s%s%s(", i ? " " : "",
                                 node->layer->name, node->norm ? "+" : "",
                                 node->norm ? node->norm->name : "",
                                 activations[node->activation]);
        for (i32 j = 0; j < node->inputs_count; j++)
            used += (size_t)snprintf(out + used, bytes - used, "%s%s",
                                     !j               ? ""
                                     : node->residual ? "&"
                                                      : ",",
                                     node->inputs[j] == VX_LAYER_FEATS
                                         ? "~"
                                         : graph->nodes[node->inputs[j]].layer->name);
        used += (size_t)snprintf(out + used, bytes - used, ")");
    }
    for (i32 i = 0; i < graph->network->outputs_count; i++)
        used += (size_t)snprintf(out + used, bytes - used, " =%s",
                                 graph->nodes[graph->outputs[i]].layer->name);
}

#define CONV(name_, input_)                                                              \
    "{\"name\":\"" name_ "\",\"op\":\"subm_conv\",\"input\":\"" input_                   \
    "\",\"channels\":4,\"kernel\":3},"
#define LIN(name_, input_)                                                               \
    "{\"name\":\"" name_ "\",\"op\":\"linear\",\"input\":\"" input_ "\",\"channels\":4}" \
    ","
#define OP(op_, name_, input_)                                                           \
    "{\"name\":\"" name_ "\",\"op\":\"" op_ "\",\"input\":\"" input_ "\"},"
#define TWO(op_, name_, a_, b_)                                                          \
    "{\"name\":\"" name_ "\",\"op\":\"" op_ "\",\"inputs\":[\"" a_ "\",\"" b_ "\"]},"

static const struct {
    const char *layers; /* with a comma at the end */
    const char *outputs;
    const char *fused;
    const char *plain;
} cases[] = {
    {CONV("c", "feats") OP("batch_norm", "n", "c") OP("relu", "r", "n"),
     "{\"layer\":\"r\"}", "c+n:relu(~) =c", "c(~) n(c) r:relu(n) =r"},
    {LIN("c", "feats") OP("batch_norm", "n", "c") OP("silu", "r", "n"),
     "{\"layer\":\"r\"}", "c+n:silu(~) =c", "c(~) n(c) r:silu(n) =r"},
    /* The value between the layers is an output, so the layers are not fused. */
    {CONV("c", "feats") OP("batch_norm", "n", "c") OP("relu", "r", "n"),
     "{\"layer\":\"r\"},{\"layer\":\"c\"}", "c(~) n:relu(c) =n =c",
     "c(~) n(c) r:relu(n) =r =c"},
    {CONV("c", "feats") OP("batch_norm", "n", "c") OP("relu", "r", "n"),
     "{\"layer\":\"r\"},{\"layer\":\"n\"}", "c+n(~) r:relu(c) =r =c",
     "c(~) n(c) r:relu(n) =r =n"},
    /* The value between the layers has a second reader. */
    {CONV("c", "feats") OP("batch_norm", "n", "c") TWO("add", "s", "c", "n"),
     "{\"layer\":\"s\"}", "c(~) n(c) s(c,n) =s", "c(~) n(c) s(c,n) =s"},
    /* A residual block: the sum takes the last activation. */
    {CONV("c", "feats") OP("batch_norm", "n", "c") OP("relu", "r", "n") CONV("d", "r")
         OP("batch_norm", "m", "d") TWO("add", "s", "m", "r") OP("gelu", "t", "s"),
     "{\"layer\":\"t\"}", "c+n:relu(~) d+m(c) s:gelu(d,c) =s",
     "c(~) n(c) r:relu(n) d(r) m(d) s(m,r) t:gelu(s) =t"},
    /* Norm after activation is not foldable; two norms fold once; two activations fuse
       once. */
    {CONV("c", "feats") OP("relu", "r", "c") OP("batch_norm", "n", "r"),
     "{\"layer\":\"n\"}", "c:relu(~) n(c) =n", "c(~) r:relu(c) n(r) =n"},
    {LIN("c", "feats") OP("batch_norm", "n", "c") OP("batch_norm", "m", "n"),
     "{\"layer\":\"m\"}", "c+n(~) m(c) =m", "c(~) n(c) m(n) =m"},
    {LIN("c", "feats") OP("relu", "r", "c") OP("sigmoid", "s", "r"), "{\"layer\":\"s\"}",
     "c:relu(~) s:sigmoid(c) =s", "c(~) r:relu(c) s:sigmoid(r) =s"},
    /* Layer norms take activations, concats do not, and features have no producer. */
    {OP("layer_norm", "n", "feats") OP("silu", "r", "n"), "{\"layer\":\"r\"}",
     "n:silu(~) =n", "n(~) r:silu(n) =r"},
    {TWO("concat", "j", "feats", "feats") OP("relu", "r", "j"), "{\"layer\":\"r\"}",
     "j(~,~) r:relu(j) =r", "j(~,~) r:relu(j) =r"},
    {OP("relu", "r", "feats"), "{\"layer\":\"r\"}", "r:relu(~) =r", "r:relu(~) =r"},
    {OP("batch_norm", "n", "feats"), "{\"layer\":\"n\"}", "n(~) =n", "n(~) =n"},
    /* One value that the same layer reads twice counts as two readers. */
    {LIN("c", "feats") TWO("add", "s", "c", "c") OP("relu", "r", "s"),
     "{\"layer\":\"r\"}", "c(~) s:relu(c,c) =s", "c(~) s(c,c) r:relu(s) =r"},
    /* Two outputs of one layer. */
    {LIN("c", "feats") OP("relu", "r", "c"),
     "{\"layer\":\"r\"},{\"name\":\"half\",\"layer\":\"r\",\"datatype\":\"FP16\"}",
     "c:relu(~) =c =c", "c(~) r:relu(c) =r =r"},
};

START_TEST(nodes_are_what_is_worth_running)
{
    char text[4096], shown[512];
    int length = snprintf(
        text, sizeof text,
        "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":4}},\"layers\":[%.*s],"
        "\"outputs\":[%s]}",
        (int)strlen(cases[_i].layers) - 1, cases[_i].layers, cases[_i].outputs);
    ck_assert_int_lt(length, (int)sizeof text);
    const struct vx_network *network = network_of(text);
    graph_show(graph_of(network, &all), shown, sizeof shown);
    ck_assert_str_eq(shown, cases[_i].fused);
    graph_show(graph_of(network, &none), shown, sizeof shown);
    ck_assert_str_eq(shown, cases[_i].plain);
}
END_TEST

#define LIN_RELU(name_, input_) LIN(name_ "0", input_) OP("relu", name_, name_ "0")

static const struct {
    const char *layers;
    const char *outputs;
    const char *fused; /* with residuals */
} residual_cases[] = {
    /* A residual block: the activation is the sum's. */
    {CONV("c", "feats") OP("batch_norm", "n", "c") OP("relu", "r", "n") CONV("d", "r")
         OP("batch_norm", "m", "d") TWO("add", "s", "m", "r") OP("gelu", "t", "s"),
     "{\"layer\":\"t\"}", "c+n:relu(~) d+m:gelu(c&c) =d"},
    /* The order of the operands does not matter; features are as good as a node. */
    {CONV("c", "feats") TWO("add", "s", "feats", "c"), "{\"layer\":\"s\"}", "c(~&~) =c"},
    /* Of two producers the later takes the other. */
    {CONV("a", "feats") LIN("b", "feats") TWO("add", "s", "a", "b"), "{\"layer\":\"s\"}",
     "a(~) b(~&a) =b"},
    {CONV("a", "feats") LIN("b", "feats") TWO("add", "s", "b", "a"), "{\"layer\":\"s\"}",
     "a(~) b(~&a) =b"},
    /* The other operand is computed later: the producer moves behind it, and the layer
     * that follows the sum is still fused. */
    {CONV("a", "feats") LIN_RELU("b", "feats") LIN_RELU("c", "b")
         TWO("add", "s", "a", "c") CONV("y", "s") TWO("add", "z", "y", "b"),
     "{\"layer\":\"z\"},{\"layer\":\"c\"},{\"layer\":\"s\"}",
     "b0:relu(~) c0:relu(b0) a(~&c0) y(a&b0) =y =c0 =a"},
    /* An activation, a second reader or an output in between: nothing is fused. */
    {CONV("c", "feats") OP("relu", "r", "c") TWO("add", "s", "r", "feats"),
     "{\"layer\":\"s\"}", "c:relu(~) s(c,~) =s"},
    {CONV("c", "feats") OP("relu", "r", "c") TWO("add", "s", "c", "feats")
         TWO("add", "t", "r", "s"),
     "{\"layer\":\"t\"}", "c(~) r:relu(c) s(c,~) t(r,s) =t"},
    {CONV("c", "feats") TWO("add", "s", "c", "feats"),
     "{\"layer\":\"s\"},{\"layer\":\"c\"}", "c(~) s(c,~) =s =c"},
    {CONV("c", "feats") TWO("add", "s", "c", "c"), "{\"layer\":\"s\"}", "c(~) s(c,c) =s"},
    /* One layer takes one residual, and none ahead of its norm. */
    {CONV("c", "feats") TWO("add", "s", "c", "feats") TWO("add", "t", "s", "feats"),
     "{\"layer\":\"t\"}", "c(~&~) t(c,~) =t"},
    {CONV("c", "feats") TWO("add", "s", "c", "feats") OP("batch_norm", "n", "s"),
     "{\"layer\":\"n\"}", "c(~&~) n(c) =n"},
    /* Neither is a sum. */
    {OP("layer_norm", "n", "feats") TWO("add", "s", "n", "feats"), "{\"layer\":\"s\"}",
     "n(~) s(n,~) =s"},
};

START_TEST(adds_become_residuals)
{
    static const struct vx_fuse_options residuals = {
        .fold_norms = true, .fuse_activations = true, .fuse_residuals = true};
    char text[4096], shown[512];
    snprintf(text, sizeof text,
             "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":4}},\"layers\":[%.*s],"
             "\"outputs\":[%s]}",
             (int)strlen(residual_cases[_i].layers) - 1, residual_cases[_i].layers,
             residual_cases[_i].outputs);
    const struct vx_graph *graph = graph_of(network_of(text), &residuals);
    graph_show(graph, shown, sizeof shown);
    ck_assert_str_eq(shown, residual_cases[_i].fused);
    for (i32 i = 0; i < graph->nodes_count; i++)
        for (i32 j = 0; j < graph->nodes[i].inputs_count; j++)
            ck_assert_int_lt(graph->nodes[i].inputs[j], i);
    for (i32 i = 0; i < graph->network->layers_count; i++) {
        ck_assert_int_ge(graph->node_of[i], 0);
        ck_assert_int_lt(graph->node_of[i], graph->nodes_count);
    }
}
END_TEST

enum { CI = 5, CO = 7, V = 27, TAPS = V * CI };

/* One convolution and its norm, as a checkpoint has them. */
static f32 conv_weight[CO * TAPS], conv_bias[CO], gamma_[CO], beta[CO], mean[CO], var[CO];

static struct vx_weights *weights_of(const struct vx_graph *graph,
                                     const char *weight_dtype, bool vio, bool bias)
{
    const struct vx_test_tensor tensors[] = {
        {"c.weight", weight_dtype, {CO, 3, 3, 3, CI}, 5, conv_weight},
        {"c.bias", "F32", {CO}, 1, conv_bias},
        {"n.weight", "F32", {CO}, 1, gamma_},
        {"n.bias", "F32", {CO}, 1, beta},
        {"n.running_mean", "F32", {CO}, 1, mean},
        {"n.running_var", "F32", {CO}, 1, var},
        {"n.num_batches_tracked", "I64", {0}, 0, NULL},
    };
    struct vx_test_tensor mine[VX_COUNT(tensors)];
    static u8 bytes[32768];
    struct vx_safetensors *file;
    struct vx_weights *weights;
    struct vx_why why = {{0}};
    memcpy(mine, tensors, sizeof mine);
    if (vio)
        mine[0] = (struct vx_test_tensor){
            "c.weight", weight_dtype, {V, CI, CO}, 3, conv_weight};
    if (!bias) mine[1].name = "other.bias"; /* a layer may not leave out its own */
    size_t count = vx_test_pack_safetensors(mine, VX_COUNT(mine), bytes, sizeof bytes);
    vx_status status = vx_safetensors_parse(bytes, count, "m/1/w", &why, &file);
    ck_assert_msg(!status.fault, "%s", why.text);
    status = vx_weights_check(graph->network, file, &why);
    ck_assert_msg(!status.fault, "%s", why.text);
    status = vx_weights_open(graph, file, NULL, &why, &weights);
    ck_assert_msg(!status.fault, "%s", why.text);
    vx_safetensors_close(&file);
    return weights;
}

/* Where a weight of (v, ci, co) stands in the file. */
static size_t file_index(bool vio, int v, int ci, int co)
{
    return (size_t)(vio ? (v * CI + ci) * CO + co : (co * V + v) * CI + ci);
}

/* Nodes are put in the order of their stages, and a dense tensor of the features is none. */
START_TEST(dense_outputs_read_their_input)
{
    const struct vx_network *network = network_of(
        "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":2}},\"layers\":["
        "{\"name\":\"s\",\"op\":\"linear\",\"input\":\"feats\",\"channels\":1},"
        "{\"name\":\"p\",\"op\":\"prune\",\"input\":\"feats\",\"keep\":\"s\"},"
        "{\"name\":\"t\",\"op\":\"tanh\",\"input\":\"s\"},"
        "{\"name\":\"d\",\"op\":\"to_dense\",\"input\":\"feats\",\"shape\":[4,4,4]},"
        "{\"name\":\"e\",\"op\":\"to_dense\",\"input\":\"p\",\"shape\":[4,4,4]}],"
        "\"outputs\":[{\"layer\":\"d\"},{\"layer\":\"e\"},{\"layer\":\"t\"}]}");
    const struct vx_graph *graph = graph_of(network, &all);
    ck_assert_int_eq(graph->nodes_count, 3);
    ck_assert_int_eq(graph->outputs[0], VX_LAYER_FEATS);
    ck_assert_int_eq(graph->outputs[1], 2);
    ck_assert_str_eq(graph->nodes[2].layer->name, "p");
    ck_assert_int_eq(graph->outputs[2], 1);
    ck_assert_str_eq(graph->nodes[1].layer->name, "t");
}
END_TEST

/* With folding: row y = x W' + b' in double from the f32 W', b', against conv then norm
 * in double from the file's numbers.  W' and b' are each one rounding away from exact, so
 *   |difference| <= u * (sum |x W'| + |b'|) * (1 + u),  u = 2^-24;
 * doubles add less than (TAPS + 8) * 2^-53 of the same sum, which the factor 1.01 covers.
 */
START_TEST(folding_keeps_the_answer)
{
    static const struct {
        bool vio, bias;
        const char *dtype;
    } rows[] = {{false, true, "F32"},
                {true, true, "F32"},
                {false, false, "F32"},
                {true, false, "F32"}};
    bool vio = rows[_i].vio, bias = rows[_i].bias;
    struct vx_test_random random = {42 + (u64)_i};
    char text[1024];
    vx_test_fill(&random, conv_weight, VX_COUNT(conv_weight), -1, 1);
    vx_test_fill(&random, conv_bias, CO, -1, 1);
    vx_test_fill(&random, gamma_, CO, -2, 2);
    vx_test_fill(&random, beta, CO, -1, 1);
    vx_test_fill(&random, mean, CO, -3, 3);
    vx_test_fill(&random, var, CO, 1e-6f, 4);
    var[0] = 0; /* a dead channel: eps alone is left */
    snprintf(
        text, sizeof text,
        "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":5}},\"layers\":[{\"name\":"
        "\"c\","
        "\"op\":\"subm_conv\",\"input\":\"feats\",\"channels\":7,\"kernel\":3,\"bias\":%"
        "s,"
        "\"layout\":\"%s\"}," OP(
            "batch_norm", "n", "c") "{\"name\":\"r\",\"op\":\"relu\","
                                    "\"input\":\"n\"}],\"outputs\":[{\"layer\":\"r\"}]}",
        bias ? "true" : "false", vio ? "vio" : "oxyzi");
    const struct vx_network *network = network_of(text);
    const struct vx_graph *graph = graph_of(network, &all),
                          *plain = graph_of(network, &none);
    struct vx_weights *weights = weights_of(graph, rows[_i].dtype, vio, bias);
    struct vx_weights *unfolded = weights_of(plain, rows[_i].dtype, vio, bias);
    const struct vx_node_weights *got = vx_weights_get(weights, 0);
    const struct vx_node_weights *raw = vx_weights_get(unfolded, 0);
    const struct vx_node_weights *norm = vx_weights_get(unfolded, 1);
    ck_assert_int_eq(graph->nodes_count, 1);
    ck_assert_int_eq((i64)((uintptr_t)got->weight % 64), 0);
    ck_assert_int_eq((i64)((uintptr_t)got->bias % 64), 0);
    ck_assert(bias == (raw->bias != NULL));
    for (int co = 0; co < CO; co++) {
        f64 exact = bias ? conv_bias[co] : 0, folded = got->bias[co], size = fabs(folded);
        f64 scale = gamma_[co] / sqrt((f64)var[co] + 1e-5);
        for (int tap = 0; tap < TAPS; tap++) {
            f32 in_file = conv_weight[file_index(vio, tap / CI, tap % CI, co)];
            f64 x = vx_test_uniform(&random, -1, 1);
            ck_assert(raw->weight[tap * CO + co] == in_file);
            exact += x * in_file;
            folded += x * got->weight[tap * CO + co];
            size += fabs(x * got->weight[tap * CO + co]);
        }
        exact = (exact - mean[co]) * scale + beta[co];
        f64 bound = 1.01 * 0x1p-24 * size;
        ck_assert_msg(fabs(exact - folded) <= bound, "channel %d: off by %g, bound %g",
                      co, fabs(exact - folded), bound);
        ck_assert(norm->weight[co] == (f32)scale);
        ck_assert(norm->bias[co] == (f32)(beta[co] - mean[co] * scale));
    }
    vx_weights_close(&weights);
    vx_weights_close(&unfolded);
}
END_TEST

START_TEST(a_negative_variance_is_refused)
{
    const struct vx_network *network = network_of(
        "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":2}},\"layers\":[{\"name\":"
        "\"n\",\"op\":\"batch_norm\",\"input\":\"feats\",\"affine\":false}],\"outputs\":"
        "[{\"layer\":\"n\"}]}");
    const f32 means[] = {0, 0}, vars[] = {1, -0.5f};
    const struct vx_test_tensor tensors[] = {{"n.running_mean", "F32", {2}, 1, means},
                                             {"n.running_var", "F32", {2}, 1, vars}};
    u8 bytes[512];
    struct vx_safetensors *file;
    struct vx_weights *weights;
    struct vx_why why = {{0}};
    size_t count = vx_test_pack_safetensors(tensors, 2, bytes, sizeof bytes);
    ck_assert(!vx_safetensors_parse(bytes, count, "m/1/w", &why, &file).fault);
    ck_assert(!vx_weights_check(network, file, &why).fault);
    vx_status status =
        vx_weights_open(graph_of(network, &all), file, NULL, &why, &weights);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(
        why.text, "m/1/w: tensor \"n.running_var\" of layer \"n\": expected a variance "
                  "above -1e-05, got -0.5 at channel 1");
    ck_assert_ptr_null(weights);
    vx_safetensors_close(&file);
}
END_TEST

static const struct {
    struct vx_test_tensor tensor; /* of layer y, linear 4 -> 2 or conv 1x1x1 vio 4 -> 2 */
    const char *layer;
    const char *why; /* NULL = good */
} shapes[] = {
    {{"y.weight", "F32", {2, 4}, 2, NULL}, "\"op\":\"linear\"", NULL},
    {{"y.weight", "BF16", {2, 4}, 2, NULL}, "\"op\":\"linear\"", NULL},
    {{"y.weight", "F32", {4, 2}, 2, NULL},
     "\"op\":\"linear\"",
     "expected shape [2, 4], got [4, 2], its transpose: op \"subm_conv\", \"kernel\": 1 "
     "reads [Ci, Co] with \"layout\": \"minkowski\""},
    {{"y.weight", "F32", {8}, 1, NULL},
     "\"op\":\"linear\"",
     "expected shape [2, 4], got [8]"},
    {{"y.weight", "F32", {2, 4, 1}, 3, NULL},
     "\"op\":\"linear\"",
     "expected shape [2, 4], got [2, 4, 1]; a convolution of one offset is op "
     "\"subm_conv\", \"kernel\": 1"},
    {{"y.weight", "F32", {1}, 0, NULL},
     "\"op\":\"linear\"",
     "expected shape [2, 4], got []"},
    {{"y.weight", "I64", {2, 4}, 2, NULL},
     "\"op\":\"linear\"",
     "expected F32, F16 or BF16 to read it as a weight, got I64"},
    {{"y.wight", "F32", {2, 4}, 2, NULL},
     "\"op\":\"linear\"",
     "the tensor is missing; the weight of linear needs it; the nearest is \"y.wight\""},
    {{"y.weight", "F32", {1, 4, 2}, 3, NULL},
     "\"op\":\"subm_conv\",\"kernel\":1,\"layout\":\"vio\"",
     NULL},
    {{"y.weight", "F32", {4, 2}, 2, NULL},
     "\"op\":\"subm_conv\",\"kernel\":1,\"layout\":\"vio\"",
     NULL},
    {{"y.weight", "F32", {2, 4}, 2, NULL},
     "\"op\":\"subm_conv\",\"kernel\":1,\"layout\":\"vio\"",
     "expected shape [1, 4, 2] (layout \"vio\"), got [2, 4]"},
    {{"y.weight", "F32", {2, 1, 1, 1, 4}, 5, NULL},
     "\"op\":\"subm_conv\",\"kernel\":1,\"layout\":\"flexgemm\"",
     NULL},
    {{"y.weight", "F32", {1, 4, 2}, 3, NULL},
     "\"op\":\"subm_conv\",\"kernel\":1,\"layout\":\"flexgemm\"",
     "expected shape [2, 1, 1, 1, 4] (layout \"flexgemm\"), got [1, 4, 2], which is "
     "written by \"torchsparse\", \"minkowski\", \"warpconvnet\""},
    {{"y.weight", "F32", {2, 3, 1, 5, 4}, 5, NULL},
     "\"op\":\"subm_conv\",\"kernel\":[3,1,5]",
     NULL},
    {{"y.weight", "F32", {2, 5, 1, 3, 4}, 5, NULL},
     "\"op\":\"subm_conv\",\"kernel\":[3,1,5]",
     "expected shape [2, 3, 1, 5, 4] (spconv, flexgemm) or [15, 4, 2] (torchsparse, "
     "minkowski, warpconvnet), got [2, 5, 1, 3, 4]"},
    {{"y.weight", "F32", {2, 4}, 2, NULL},
     "\"op\":\"linear\",\"bias\":true",
     "the tensor is missing; the bias of linear needs it; set \"bias\": false "
     "if the layer has none; known: "
     "y.weight"},
};

START_TEST(tensors_must_fit_their_layers)
{
    char text[1024], expected[2 * VX_WHY_BYTES];
    bool has_bias = strstr(shapes[_i].layer, "\"bias\"");
    u8 bytes[1024];
    struct vx_safetensors *file;
    struct vx_why why = {{0}};
    snprintf(text, sizeof text,
             "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":4}},\"layers\":[{"
             "\"name\":\"y\",%s%s,"
             "\"input\":\"feats\",\"channels\":2}],\"outputs\":[{\"layer\":\"y\"}]}",
             shapes[_i].layer, has_bias ? "" : ",\"bias\":false");
    const struct vx_network *network = network_of(text);
    size_t count = vx_test_pack_safetensors(&shapes[_i].tensor, 1, bytes, sizeof bytes);
    ck_assert(!vx_safetensors_parse(bytes, count, "m/1/w", &why, &file).fault);
    vx_status status = vx_weights_check(network, file, &why);
    snprintf(expected, sizeof expected, "m/1/w: tensor \"y.%s\" of layer \"y\": %s",
             has_bias ? "bias" : "weight", shapes[_i].why ? shapes[_i].why : "");
    if (shapes[_i].why) ck_assert_str_eq(why.text, expected);
    ck_assert_int_eq(vx_status_code(status),
                     shapes[_i].why ? VX_CODE_INVALID_ARGUMENT : VX_CODE_OK);
    vx_safetensors_close(&file);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fuse");
    TCase *tcase = tcase_create("fuse");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, nodes_are_what_is_worth_running, 0, VX_COUNT(cases));
    tcase_add_loop_test(tcase, adds_become_residuals, 0, VX_COUNT(residual_cases));
    tcase_add_test(tcase, dense_outputs_read_their_input);
    tcase_add_loop_test(tcase, folding_keeps_the_answer, 0, 4);
    tcase_add_test(tcase, a_negative_variance_is_refused);
    tcase_add_loop_test(tcase, tensors_must_fit_their_layers, 0, VX_COUNT(shapes));
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
