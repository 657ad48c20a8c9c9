/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/network/network_fp8.h"

#include "engine/base/text/sentence.h"
#include "kernels/e4m3.h"

#include <math.h>
#include <string.h>

/* To multiply and divide by a power of two rounds nothing. */
vx_status vx_layer_parse_fp8(const struct vx_layer_reader *reader,
                             const struct vx_json *object, struct vx_layer *layer)
{
    const struct vx_json *value = vx_json_find(object, "fp8_scale");
    f64 scale;
    if (!value) return VX_OK;
    VX_TRY(vx_json_read_power(value, VX_E4M3_SCALE_EXPONENT_MAX, reader->why, &scale));
    VX_ENSURE_WHY(layer->groups == 1, reader->why, INVALID_ARGUMENT,
                  "a convolution in groups is not computed in FP8",
                  "line %d: \"fp8_scale\": expected a convolution of 1 group, got %d "
                  "groups",
                  value->line, layer->groups);
    layer->fp8_scale = (f32)scale;
    reader->network->fp8.layers_count++;
    return VX_OK;
}

/* A file beside network.json: a path could leave the model's folder, and a hidden file is
 * left behind by those who copy it. */
static vx_status parse_data(struct vx_network *network, const struct vx_json *fp8,
                            struct vx_why *why)
{
    const struct vx_json *value;
    char *name = network->fp8.data;
    VX_TRY(vx_network_need(fp8, "data", VX_JSON_TEXT, why, &value));
    VX_TRY(vx_json_read_name(value, why, name, VX_NAME_BYTES));
    VX_ENSURE_WHY(!strchr(name, '/') && name[0] != '.', why, INVALID_ARGUMENT,
                  "the data for FP8 is not a file of the model",
                  "line %d: \"data\": expected the name of a file beside network.json, "
                  "without \"/\" and not hidden, got \"%.*s\"",
                  value->line, VX_NAME_SHOWN, name);
    return VX_OK;
}

static vx_status parse_bound(struct vx_network *network, const struct vx_json *fp8,
                             struct vx_why *why)
{
    const struct vx_json *value = vx_json_find(fp8, "nmse_max");
    f64 *bound = &network->fp8.nmse_max;
    VX_ENSURE_WHY(value, why, INVALID_ARGUMENT, "a key is missing in network.json",
                  "line %d: the key \"nmse_max\" is missing", fp8->line);
    VX_TRY(vx_json_read_f64(value, 0, 1, why, bound));
    VX_ENSURE_WHY(*bound > 0, why, INVALID_ARGUMENT, "the bound of FP8's error is 0",
                  "line %d: \"nmse_max\": expected a number above 0, at most 1, got 0",
                  value->line);
    return VX_OK;
}

static vx_status check_precision(const struct vx_network *network,
                                 const struct vx_json *root, struct vx_why *why)
{
    const struct vx_json *value = vx_json_find(root, "precision");
    const enum vx_precision precision = network->precision;
    VX_ENSURE_WHY(
        precision != VX_PRECISION_TF32 && precision != VX_PRECISION_FP32, why,
        INVALID_ARGUMENT, "FP8 needs 16-bit numbers beside it",
        "line %d: \"precision\": expected \"fp16\" or \"bf16\" with layers that "
        "have \"fp8_scale\", got \"%s\"",
        value->line, vx_precision_name(precision));
    return VX_OK;
}

/* Of the first layer with a scale; there is one. */
static const struct vx_layer *first_layer(const struct vx_network *network)
{
    const struct vx_layer *layer = network->layers;
    while (layer->fp8_scale == 0) layer++;
    return layer;
}

vx_status vx_network_parse_fp8(struct vx_network *network, const struct vx_json *root,
                               struct vx_why *why)
{
    static const char *const keys[] = {"data", "nmse_max"};
    const struct vx_json *fp8 = vx_json_find(root, "fp8");
    if (!network->fp8.layers_count) {
        VX_ENSURE_WHY(!fp8, why, INVALID_ARGUMENT, "\"fp8\" without layers in FP8",
                      "line %d: \"fp8\": expected a layer with \"fp8_scale\", and none "
                      "has it",
                      fp8->line);
        return VX_OK;
    }
    VX_ENSURE_WHY(fp8, why, INVALID_ARGUMENT, "layers in FP8 without \"fp8\"",
                  "line %d: layer \"%.*s\" has \"fp8_scale\": expected \"fp8\" beside "
                  "\"layers\", with \"data\" and \"nmse_max\"",
                  first_layer(network)->line, VX_NAME_SHOWN, first_layer(network)->name);
    VX_TRY(vx_network_check_keys(fp8, &(struct vx_words){keys, 2}, why));
    VX_TRY(parse_data(network, fp8, why));
    VX_TRY(parse_bound(network, fp8, why));
    return check_precision(network, root, why);
}

void vx_network_leave_fp8(const struct vx_network *network)
{
    for (i32 i = 0; i < network->layers_count; i++) network->layers[i].fp8_scale = 0;
}
