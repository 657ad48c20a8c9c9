/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/model/model.h"

#include "engine/base/text/sentence.h"
#include "engine/base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Room for what kernel_text writes. */
#define KERNEL_BYTES 160

/* Columns of a name. */
#define NAME_COLUMNS 24

/* The request size for which the table of sets says how much memory it takes. */
#define SHOWN_VOXELS 100000

/* Appends " WORD XxYxZ" unless every axis has the usual value. */
static void axes_add(struct vx_page *page, const char *word, const i32 axes[3], i32 usual)
{
    if (axes[0] != usual || axes[1] != usual || axes[2] != usual)
        vx_page_add(page, " %s %dx%dx%d", word, axes[0], axes[1], axes[2]);
}

/* "3x3x3", "3x3x3 stride 2x2x2 padding 1x1x1", "3x3x3 fp8 2^-3", "eps 1e-05" for norms,
 * else "". */
static void kernel_text(const struct vx_layer *layer, char *out, size_t bytes)
{
    struct vx_page page = {out, bytes, 0};
    const i32 *k = layer->kernel;
    out[0] = '\0';
    if (vx_op_is_norm(layer->op)) vx_page_add(&page, "eps %g", layer->eps);
    if (layer->top) vx_page_add(&page, "top %d", layer->top);
    if (layer->op == VX_OP_DEVOXELIZE)
        vx_page_add(&page, layer->trilinear ? "trilinear" : "nearest");
    if (vx_op_is_points(layer->op)) axes_add(&page, "stride", layer->stride, 1);
    /* Of one offset: it undoes a global pool, which has no kernel. */
    bool whole = layer->op == VX_OP_UNPOOL && layer->v == 1;
    if (layer->v && layer->op != VX_OP_PRUNE && !vx_op_is_points(layer->op) && !whole) {
        vx_page_add(&page, "%dx%dx%d", k[0], k[1], k[2]);
        if (layer->op != VX_OP_SUBM_CONV) axes_add(&page, "stride", layer->stride, 1);
        if (layer->rule == VX_SET_SPCONV) axes_add(&page, "padding", layer->padding, 0);
        axes_add(&page, "dilated", layer->dilation, 1);
    }
    if (layer->op == VX_OP_GLOBAL_POOL)
        vx_page_add(&page, "%s", vx_pool_mode_name(layer->mode));
    if (layer->op == VX_OP_TO_DENSE)
        vx_page_add(&page, "%dx%dx%d%s", layer->shape[0], layer->shape[1],
                    layer->shape[2], layer->fold ? " folded" : "");
    bool conv = vx_op_is_conv(layer->op);
    if (layer->groups > 1 && (conv || layer->op == VX_OP_GROUP_NORM))
        vx_page_add(&page, " groups %d", layer->groups);
    if (layer->fp8_scale > 0) vx_page_add(&page, " fp8 2^%d", ilogbf(layer->fp8_scale));
}

/* Columns that are as wide as their widest text. */
struct widths {
    int op, kernel;
};

static struct widths widths_of(const struct vx_network *network)
{
    struct widths widths = {10, 10};
    char kernel[KERNEL_BYTES];
    for (i32 i = 0; i < network->layers_count; i++) {
        const struct vx_layer *layer = &network->layers[i];
        int op = (int)strlen(vx_op_name(layer->op));
        if (op > widths.op) widths.op = op;
        kernel_text(layer, kernel, sizeof kernel);
        if ((int)strlen(kernel) > widths.kernel) widths.kernel = (int)strlen(kernel);
    }
    return widths;
}

static void page_layer(struct vx_page *page, const struct vx_graph *graph, i32 index,
                       const struct widths *widths)
{
    const struct vx_layer *layer = &graph->network->layers[index];
    const struct vx_layer *runs = layer; /* to_dense is part of its output */
    if (layer->op != VX_OP_TO_DENSE) runs = graph->nodes[graph->node_of[index]].layer;
    char kernel[KERNEL_BYTES], shape[32], set[16] = "";
    i64 channels_in = 0;
    for (i32 i = 0; i < layer->inputs_count; i++)
        channels_in += vx_network_channels(graph->network, layer->inputs[i]);
    if (layer->op == VX_OP_ADD || layer->op == VX_OP_MUL)
        channels_in = layer->channels_in;
    kernel_text(layer, kernel, sizeof kernel);
    if (graph->network->sets_count > 1)
        snprintf(set, sizeof set, "  set %-2d", layer->set);
    snprintf(shape, sizeof shape, "%lld -> %d", (long long)channels_in, layer->channels);
    vx_page_add(page, "  %-*s %-*s %-14s %-*s %-11s %12lld%s%s%s\n",
                vx_utf8_pad(layer->name, NAME_COLUMNS), layer->name, widths->op,
                vx_op_name(layer->op), shape, widths->kernel, kernel,
                vx_op_is_conv(layer->op) ? vx_layout_name(layer->layout) : "",
                (long long)vx_layer_parameters(layer), set,
                runs == layer ? "" : "  part of ", runs == layer ? "" : runs->name);
}

/* The rule of a set: "floor", "spconv 3x3x3 stride 2x2x2 padding 1x1x1",
 * "occupancy of subdiv stride 2x2x2", "keep of score, 100 a sample,". */
static void rule_text(const struct vx_network *network, const struct vx_set *set,
                      char *out, size_t bytes)
{
    static const char *const names[] = {
        [VX_SET_REQUEST] = "the request", [VX_SET_FLOOR] = "floor",
        [VX_SET_SPCONV] = "spconv",       [VX_SET_EXPAND] = "children",
        [VX_SET_LIVE] = "occupancy",      [VX_SET_KEEP] = "keep",
        [VX_SET_SAMPLES] = "samples"};
    struct vx_page page = {out, bytes, 0};
    const struct vx_set_key *key = &set->key;
    vx_page_add(&page, "%s", names[key->rule]);
    if (key->rule == VX_SET_REQUEST) return;
    if (vx_set_is_predicted(key))
        vx_page_add(&page, " of %.*s", VX_NAME_SHOWN, network->layers[key->by].name);
    else if (key->rule != VX_SET_FLOOR)
        axes_add(&page, "kernel", key->kernel, 1);
    if (key->top) vx_page_add(&page, ", %d a sample,", key->top);
    axes_add(&page, "stride", key->stride, 1);
    axes_add(&page, "padding", key->padding, 0);
    axes_add(&page, "dilated", key->dilation, 1);
}

/* Of the column of strides, "1/64x1/64x1/64" is wide. */
static int stride_width(const struct vx_plan *plan)
{
    int widest = 10;
    char stride[VX_SET_STRIDE_BYTES];
    for (i32 i = 0; i < plan->sets_count; i++) {
        int width = (int)strlen(vx_set_stride_text(&plan->sets[i], stride));
        if (width > widest) widest = width;
    }
    return widest;
}

/* The maps of a set, and its share of the memory for SHOWN_VOXELS voxels. */
static void page_set(struct vx_page *page, const struct vx_plan *plan, i32 index,
                     const i64 *rows)
{
    const struct vx_network *network = plan->graph->network;
    const struct vx_set *set = &plan->sets[index];
    char rule[KERNEL_BYTES], stride[VX_SET_STRIDE_BYTES], maps[KERNEL_BYTES] = "";
    f64 bytes = (f64)rows[index] * (f64)plan->channels[index] * 4;
    struct vx_page maps_page = {maps, sizeof maps, 0};
    i32 layers = 0, offsets = 0;
    for (i32 i = 0; i < network->layers_count; i++)
        layers += network->layers[i].set == index;
    for (i32 i = 0; i < plan->maps_count; i++) {
        if (plan->maps[i].to != index) continue;
        vx_page_add(&maps_page, "%s%d", offsets ? "+" : "",
                    vx_map_offsets(&plan->maps[i]));
        offsets += vx_map_offsets(&plan->maps[i]);
    }
    bytes += (f64)rows[index] * offsets * 4;
    rule_text(network, set, rule, sizeof rule);
    const char *maker =
        set->layer < 0 ? network->coords_name : network->layers[set->layer].name;
    vx_page_add(page, "  %-3d %-*s %-*s %6d %-12s %14lld %10.1f  %s", index,
                vx_utf8_pad(maker, NAME_COLUMNS), maker, stride_width(plan),
                vx_set_stride_text(set, stride), layers, maps, (long long)rows[index],
                bytes / 1e6, rule);
    if (index) vx_page_add(page, " of set %d", set->key.from);
    vx_page_add(page, "\n");
}

static void page_sets(struct vx_page *page, const struct vx_plan *plan)
{
    i64 rows[VX_SETS_MAX];
    vx_sets_rows_max(plan->sets, plan->sets_count, SHOWN_VOXELS, rows);
    vx_page_add(page,
                "sets of voxels, at most, for a request of %d voxels\n  %-3s %-24s "
                "%-*s %6s %-12s %14s %10s  %s\n",
                SHOWN_VOXELS, "set", "made by", stride_width(plan), "stride", "layers",
                "V of maps", "rows", "MB", "rule");
    for (i32 i = 0; i < plan->sets_count; i++) page_set(page, plan, i, rows);
}

static bool policy_same(const struct vx_queue_policy *a, const struct vx_queue_policy *b)
{
    return a->default_timeout_us == b->default_timeout_us &&
           a->max_queue_size == b->max_queue_size &&
           a->timeout_delay == b->timeout_delay &&
           a->allow_timeout_override == b->allow_timeout_override;
}

/* Level 0 is every request that has no line of its own. */
static void page_policy(struct vx_page *page, i32 level,
                        const struct vx_queue_policy *policy)
{
    if (level)
        vx_page_add(page, "  requests of priority %d wait ", level);
    else
        vx_page_add(page, "  requests wait ");
    if (policy->default_timeout_us)
        vx_page_add(page, "%lld us, then are %s", (long long)policy->default_timeout_us,
                    policy->timeout_delay ? "put behind all others" : "rejected");
    else
        vx_page_add(page, "as long as their deadline allows");
    if (policy->max_queue_size)
        vx_page_add(page, ", %lld of them at most", (long long)policy->max_queue_size);
    vx_page_add(page, "; their own timeout %s\n",
                policy->allow_timeout_override ? "counts, if it is shorter"
                                               : "does not count");
}

static void page_batching(struct vx_page *page, const struct vx_model *model)
{
    const struct vx_signature *signature = &model->signature;
    const struct vx_batching *batching = &signature->batching;
    vx_page_add(
        page,
        "at most %lld voxels in a request%s, %lld in a batch, which waits %lld us\n",
        (long long)signature->voxels_max,
        model->network->voxels_max_said
            ? ""
            : " (fewer if --device-bytes or, on the CPU, --cache-bytes do not hold them; "
              "the log event MODEL_READY says how many)",
        (long long)batching->voxels_max, (long long)batching->delay_us);
    for (i32 o = 0; o < signature->outputs_count; o++) {
        if (signature->outputs[o].set != VX_OUTPUT_DENSE) continue;
        vx_page_add(page, "at most %d samples in a request for a dense output\n",
                    signature->samples_max);
        break;
    }
    vx_page_add(page, "at most %d requests in a batch", batching->requests_max);
    if (batching->pairs_max)
        vx_page_add(page, ", and %lld pairs", (long long)batching->pairs_max);
    if (batching->priority_levels)
        vx_page_add(page, "; %d priority levels, level %d for a request without one",
                    batching->priority_levels, batching->default_priority_level);
    vx_page_add(page, "\n");
    page_policy(page, 0, &batching->policies[0]);
    for (i32 level = 1; level <= batching->priority_levels; level++)
        if (!policy_same(&batching->policies[level], &batching->policies[0]))
            page_policy(page, level, &batching->policies[level]);
}

/* "coarse  FP32 (rows of set 1, 8)  stride 2x2x2, coordinates in coarse_coords" */
static void page_output(struct vx_page *page, const struct vx_signature *signature,
                        i32 index)
{
    const struct vx_output *output = &signature->outputs[index];
    vx_page_add(page, "  %-*s %s ", vx_utf8_pad(output->name, NAME_COLUMNS), output->name,
                vx_dtype_name(output->dtype));
    if (output->set == VX_OUTPUT_DENSE) {
        vx_page_add(page, "(samples");
        for (i32 d = 0; d < output->dims_count; d++)
            vx_page_add(page, ", %d", output->dims[d]);
        vx_page_add(page, "): 1 + the largest sample; 0 where there is no voxel\n");
        return;
    }
    if (!output->set)
        vx_page_add(page, "(N, %d)\n", output->channels);
    else if (output->coords == index)
        vx_page_add(page, "(rows of set %d, 4): sample x y z, ascending; stride %s\n",
                    output->set, output->stride);
    else
        vx_page_add(page, "(rows of set %d, %d): stride %s, coordinates in %s\n",
                    output->set, output->channels, output->stride,
                    signature->outputs[output->coords].name);
}

/* Where voxels may lie: in the network's shape, if it has one. */
static void page_coords(struct vx_page *page, const struct vx_signature *signature)
{
    const i32 *shape = signature->shape;
    vx_page_add(page,
                "  %-*s INT32 (N, 4): column 0 the sample, 0 to %d; columns 1 to 3 the "
                "voxel, %d to %d,\n  %-24s with the axes in the same order as in "
                "training; or (N, 3): all of sample 0\n",
                vx_utf8_pad(signature->coords_name, NAME_COLUMNS), signature->coords_name,
                VX_SAMPLE_MAX, VX_AXIS_MIN, VX_AXIS_MAX, "");
    const char *axes = signature->axes;
    if (*axes)
        vx_page_add(page, "  %-24s axes \"%s\": columns 1 to 3 are %c, %c and %c\n", "",
                    axes, axes[0], axes[1], axes[2]);
    else
        vx_page_add(page,
                    "  %-24s no axes said: x, y and z of a .ply are columns 1, 2 and 3\n",
                    "");
    if (!shape[0]) return;
    vx_page_add(page,
                "  %-24s spatial_shape %dx%dx%d: columns 1 to 3 are 0 to %d, 0 to %d and "
                "0 to %d; a request may send another\n",
                "", shape[0], shape[1], shape[2], shape[0] - 1, shape[1] - 1,
                shape[2] - 1);
}

static void page_model(struct vx_page *page, const struct vx_model *model)
{
    const struct vx_network *network = model->network;
    const struct vx_signature *signature = &model->signature;
    const struct widths widths = widths_of(network);
    i64 parameters = 0;
    for (i32 i = 0; i < network->layers_count; i++)
        parameters += vx_layer_parameters(&network->layers[i]);
    vx_page_add(page, "%s%s%s\n", network->label, network->description[0] ? ": " : "",
                network->description);
    vx_page_add(page, "inputs\n");
    page_coords(page, signature);
    vx_page_add(page, "  %-*s FP32, FP16 or BF16 (N, %d)\n",
                vx_utf8_pad(network->feats_name, NAME_COLUMNS), network->feats_name,
                network->feats_channels);
    vx_page_add(page, "layers\n  %-24s %-*s %-14s %-*s %-11s %12s\n", "name", widths.op,
                "op", "channels", widths.kernel, "kernel", "layout", "parameters");
    for (i32 i = 0; i < network->layers_count; i++)
        page_layer(page, model->graph, i, &widths);
    vx_page_add(page, "outputs\n");
    for (i32 i = 0; i < signature->outputs_count; i++) page_output(page, signature, i);
    vx_page_add(
        page,
        "%d layers in %d launches, %lld parameters (%lld bytes as laid out), %lld "
        "bytes of activations per voxel%s\n",
        network->layers_count, model->plan->launches_count, (long long)parameters,
        (long long)signature->weights_bytes, (long long)model->plan->channels[0] * 4,
        network->sets_count > 1 ? " of set 0" : "");
    if (network->sets_count > 1) page_sets(page, model->plan);
    vx_page_add(page, "computed in f32 on the CPU, in %s on a GPU%s\n",
                network->precision ? vx_precision_name(network->precision)
                                   : "the type of the weights (precision auto)",
                network->fp8.layers_count
                    ? "; layers with fp8 multiply e4m3, scaled by this power of two"
                    : "");
    page_batching(page, model);
}

static void page_notes(struct vx_page *page, const char *notes)
{
    if (*notes) vx_page_add(page, "notes\n");
    for (size_t length; *notes; notes += length + (notes[length] != '\0')) {
        length = strcspn(notes, "\n");
        vx_page_add(page, "  %.*s\n", (int)length, notes);
    }
}

vx_status vx_model_describe(const struct vx_model_source *source, struct vx_why *why,
                            struct vx_signature *signature, char *text, size_t text_bytes)
{
    struct vx_page page = {text, text_bytes, 0};
    struct vx_model *model;
    if (text_bytes) text[0] = '\0';
    VX_TRY(vx_model_open(source, why, &model));
    page_model(&page, model);
    page_notes(&page, vx_model_notes(model));
    *signature = model->signature;
    vx_model_close(&model);
    return VX_OK;
}
