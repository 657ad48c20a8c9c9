/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/network/network_outputs.h"

#include "engine/base/text/sentence.h"
#include "engine/network/network_layers.h"

#include <stdio.h>
#include <string.h>

#define WORDS(...)                                                                       \
    (&(struct vx_words){(const char *const[]){__VA_ARGS__},                              \
                        sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)})

/* Numbers of channels: only INT32 has them all. */
static vx_status argmax_dtype(const struct vx_json *value, struct vx_why *why,
                              enum vx_dtype *dtype)
{
    const char *text = vx_dtype_name(VX_DTYPE_I32);
    *dtype = VX_DTYPE_I32;
    if (value) VX_TRY(vx_json_read_text(value, why, &text));
    VX_ENSURE_WHY(!strcmp(text, vx_dtype_name(VX_DTYPE_I32)), why, INVALID_ARGUMENT,
                  "an output of argmax has another datatype than INT32",
                  "line %d: \"datatype\": expected \"INT32\" for an argmax, got \"%.*s\"",
                  value->line, VX_NAME_SHOWN, text);
    return VX_OK;
}

static vx_status output_dtype(const struct vx_json *value, struct vx_why *why,
                              enum vx_dtype *dtype)
{
    static const enum vx_dtype dtypes[] = {VX_DTYPE_F32, VX_DTYPE_F16, VX_DTYPE_BF16};
    *dtype = VX_DTYPE_F32;
    if (!value) return VX_OK;
    const char *text;
    VX_TRY(vx_json_read_text(value, why, &text));
    for (size_t i = 0; i < VX_COUNT(dtypes); i++) {
        *dtype = dtypes[i];
        if (!strcmp(text, vx_dtype_name(*dtype))) return VX_OK;
    }
    VX_FAIL_WHY(
        why, INVALID_ARGUMENT, "an output has an unknown datatype",
        "line %d: \"datatype\": expected \"FP32\", \"FP16\" or \"BF16\", got \"%.*s\"",
        value->line, VX_NAME_SHOWN, text);
}

/* Clients address tensors by name, for example to place them in shared memory: an output
 * has a name that no input and none of the outputs read so far has. */
static vx_status check_name(const struct vx_network *network, const char *name, i32 line,
                            struct vx_why *why)
{
    bool is_input =
        !strcmp(name, network->coords_name) || !strcmp(name, network->feats_name);
    bool is_output = false;
    for (i32 i = 0; i < network->outputs_count; i++)
        is_output = is_output || !strcmp(network->outputs[i].name, name);
    for (i32 i = 0; i < network->coords_count; i++)
        is_output = is_output || !strcmp(network->coords[i].name, name);
    VX_ENSURE_WHY(!is_input, why, INVALID_ARGUMENT, "an output has the name of an input",
                  "line %d: expected a name that no input has, got \"%.*s\"", line,
                  VX_NAME_SHOWN, name);
    VX_ENSURE_WHY(!is_output, why, INVALID_ARGUMENT, "two outputs have the same name",
                  "line %d: two outputs are named \"%.*s\"", line, VX_NAME_SHOWN, name);
    return VX_OK;
}

static vx_status parse_output(struct vx_network *network, const struct vx_json *object,
                              struct vx_why *why)
{
    struct vx_network_output *output = &network->outputs[network->outputs_count];
    const struct vx_json *layer;
    char nearest[VX_NEAREST_BYTES];
    VX_TRY(
        vx_network_check_keys(object, WORDS("name", "layer", "datatype", "coords"), why));
    VX_TRY(vx_network_need(object, "layer", VX_JSON_TEXT, why, &layer));
    output->layer = vx_network_find(network, layer->text);
    output->coords = -1;
    VX_ENSURE_WHY(
        output->layer >= 0, why, INVALID_ARGUMENT, "an output names no layer",
        "line %d: \"layer\": expected the name of a layer, got \"%.*s\"%s", layer->line,
        VX_NAME_SHOWN, layer->text,
        vx_network_nearest(network, network->layers_count, layer->text, nearest));
    const struct vx_json *name = vx_json_find(object, "name");
    VX_TRY(vx_json_read_name(name ? name : layer, why, output->name, VX_NAME_BYTES));
    VX_TRY(check_name(network, output->name, object->line, why));
    network->outputs_count++;
    const struct vx_json *dtype = vx_json_find(object, "datatype");
    if (network->layers[output->layer].op == VX_OP_ARGMAX)
        return argmax_dtype(dtype, why, &output->dtype);
    return output_dtype(dtype, why, &output->dtype);
}

/* The coordinates of a set, which is not 0; new ones have no name yet. */
static i32 coords_of(struct vx_network *network, i32 set)
{
    for (i32 c = 0; c < network->coords_count; c++)
        if (network->coords[c].set == set) return c;
    network->coords[network->coords_count].set = set;
    return network->coords_count++;
}

/* Reads "coords" of one output, in the order of outputs[]. */
static vx_status parse_coords(struct vx_network *network, i32 number,
                              const struct vx_json *object, struct vx_why *why)
{
    struct vx_network_output *output = &network->outputs[number];
    const struct vx_layer *layer = &network->layers[output->layer];
    const struct vx_json *value = vx_json_find(object, "coords");
    char name[VX_NAME_BYTES];
    bool dense = layer->op == VX_OP_TO_DENSE;
    VX_ENSURE_WHY(!value || !dense, why, INVALID_ARGUMENT,
                  "coordinates of a dense output",
                  "line %d: \"coords\": \"%.*s\" is a dense tensor: expected no name for "
                  "coordinates",
                  value ? value->line : 0, VX_NAME_SHOWN, layer->name);
    VX_ENSURE_WHY(!value || layer->set, why, INVALID_ARGUMENT,
                  "coordinates of an output on the voxels of the request",
                  "line %d: \"coords\": the result of \"%.*s\" lies on the voxels of the "
                  "request, in its order: expected no name for their coordinates",
                  value ? value->line : 0, VX_NAME_SHOWN, layer->name);
    if (!layer->set || dense) return VX_OK;
    output->coords = coords_of(network, layer->set);
    struct vx_network_coords *coords = &network->coords[output->coords];
    if (!value) return VX_OK;
    VX_TRY(vx_json_read_name(value, why, name, VX_NAME_BYTES));
    if (!strcmp(coords->name, name)) return VX_OK;
    VX_ENSURE_WHY(!coords->name[0], why, INVALID_ARGUMENT,
                  "the coordinates of a set have two names",
                  "line %d: \"coords\": expected \"%.*s\", as for another output on the "
                  "same set of voxels, got \"%.*s\"",
                  value->line, VX_NAME_SHOWN, coords->name, VX_NAME_SHOWN, name);
    VX_TRY(check_name(network, name, value->line, why));
    memcpy(coords->name, name, VX_NAME_BYTES);
    return VX_OK;
}

/* Names the coordinates of a set after its first output, if no output named them. */
static vx_status coords_default(struct vx_network *network, i32 number,
                                const struct vx_json *object, struct vx_why *why)
{
    const struct vx_network_output *output = &network->outputs[number];
    char name[VX_NAME_BYTES + 8];
    if (output->coords < 0 || network->coords[output->coords].name[0]) return VX_OK;
    int length = snprintf(name, sizeof name, "%s_coords", output->name);
    VX_ENSURE_WHY(length < VX_NAME_BYTES, why, INVALID_ARGUMENT,
                  "the name of an output's coordinates is too long",
                  "line %d: \"%.*s...\" with _coords behind it has %d characters, "
                  "expected at most %d: name the coordinates by \"coords\"",
                  object->line, VX_NAME_SHOWN, output->name, length, VX_NAME_BYTES - 1);
    VX_TRY(check_name(network, name, object->line, why));
    memcpy(network->coords[output->coords].name, name, (size_t)length + 1);
    return VX_OK;
}

vx_status vx_network_parse_outputs(struct vx_network *network, const struct vx_json *root,
                                   struct vx_why *why)
{
    const struct vx_json *list;
    i32 number = 0;
    VX_TRY(vx_network_need(root, "outputs", VX_JSON_LIST, why, &list));
    VX_ENSURE_WHY(list->count > 0 && list->count <= VX_NETWORK_OUTPUTS_MAX, why,
                  INVALID_ARGUMENT, "a network has no outputs or too many",
                  "line %d: \"outputs\": expected 1 to %d outputs, got %d", list->line,
                  VX_NETWORK_OUTPUTS_MAX, list->count);
    VX_JSON_EACH(object, list) VX_TRY(parse_output(network, object, why));
    VX_JSON_EACH(object, list) VX_TRY(parse_coords(network, number++, object, why));
    number = 0;
    VX_JSON_EACH(object, list) VX_TRY(coords_default(network, number++, object, why));
    return VX_OK;
}
