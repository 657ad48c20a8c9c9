/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/network/network.h"

#include "engine/base/memory/access.h"
#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/text/sentence.h"
#include "engine/network/network_batching.h"
#include "engine/network/network_fp8.h"
#include "engine/network/network_layers.h"
#include "engine/network/network_outputs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORMAT_VERSION 1

#define WORDS(...)                                                                       \
    (&(struct vx_words){(const char *const[]){__VA_ARGS__},                              \
                        sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)})

/* Warm-up sizes when the file has none: a small and a common request. */
static const i64 warmup_default[] = {1000, 30000};

static vx_status parse_format(const struct vx_json *root, struct vx_why *why)
{
    const struct vx_json *format;
    i64 number;
    VX_TRY(vx_network_need(root, "format", VX_JSON_I64, why, &format));
    VX_TRY(vx_json_read_i64(format, INT64_MIN, INT64_MAX, why, &number));
    VX_ENSURE_WHY(number == FORMAT_VERSION, why, INVALID_ARGUMENT,
                  "network.json has a format this version does not read",
                  "line %d: \"format\": expected %d, got %lld", format->line,
                  FORMAT_VERSION, (long long)number);
    return VX_OK;
}

/* "zyx": each of x, y and z once. */
static vx_status parse_column_axes(struct vx_network *network, const struct vx_json *axes,
                                   struct vx_why *why)
{
    const char *text;
    VX_TRY(vx_json_read_text(axes, why, &text));
    VX_ENSURE_WHY(vx_axes_are_order(text), why, INVALID_ARGUMENT,
                  "the axes of coords are no order of x, y and z",
                  "line %d: \"axes\": expected the axes of columns 1 to 3, such as "
                  "\"xyz\" or \"zyx\", got \"%.40s\"",
                  axes->line, text);
    snprintf(network->axes, sizeof network->axes, "%s", text);
    return VX_OK;
}

/* "coords" is a name, or an object with the name, the spatial shape and the axes. */
static vx_status parse_coords(struct vx_network *network, const struct vx_json *coords,
                              struct vx_why *why)
{
    static const struct vx_axes_key shape_key = {"spatial_shape", 1, VX_AXIS_MAX + 1};
    const struct vx_json *name = coords, *shape = NULL, *axes = NULL;
    const struct vx_set_key request = {.rule = VX_SET_REQUEST};
    network->sets_count = 1;
    vx_set_init(&network->sets[0], network->sets, &request, -1);
    if (coords && coords->kind == VX_JSON_OBJECT) {
        VX_TRY(
            vx_network_check_keys(coords, WORDS("name", "spatial_shape", "axes"), why));
        name = vx_json_find(coords, "name");
        shape = vx_json_find(coords, "spatial_shape");
        axes = vx_json_find(coords, "axes");
    }
    if (axes) VX_TRY(parse_column_axes(network, axes, why));
    if (shape)
        VX_TRY(vx_network_parse_axes(shape, &shape_key, why, network->sets[0].shape));
    return name ? vx_json_read_name(name, why, network->coords_name, VX_NAME_BYTES)
                : VX_OK;
}

static vx_status parse_inputs(struct vx_network *network, const struct vx_json *root,
                              struct vx_why *why)
{
    const struct vx_json *inputs, *feats, *channels;
    i64 number;
    VX_TRY(vx_network_need(root, "inputs", VX_JSON_OBJECT, why, &inputs));
    VX_TRY(vx_network_check_keys(inputs, WORDS("coords", "feats"), why));
    VX_TRY(vx_network_need(inputs, "feats", VX_JSON_OBJECT, why, &feats));
    VX_TRY(vx_network_check_keys(feats, WORDS("name", "channels"), why));
    VX_TRY(vx_network_need(feats, "channels", VX_JSON_I64, why, &channels));
    VX_TRY(vx_json_read_i64(channels, 1, VX_CHANNELS_MAX, why, &number));
    network->feats_channels = (i32)number;
    snprintf(network->coords_name, VX_NAME_BYTES, "coords");
    snprintf(network->feats_name, VX_NAME_BYTES, "feats");
    VX_TRY(parse_coords(network, vx_json_find(inputs, "coords"), why));
    const struct vx_json *name = vx_json_find(feats, "name");
    if (name) VX_TRY(vx_json_read_name(name, why, network->feats_name, VX_NAME_BYTES));
    VX_ENSURE_WHY(strcmp(network->coords_name, network->feats_name) != 0, why,
                  INVALID_ARGUMENT, "both inputs have the same name",
                  "line %d: \"inputs\": expected two names, got \"%s\" for both",
                  inputs->line, network->feats_name);
    return VX_OK;
}

/* A layer reads only layers before it, so one pass from last to first sees every use. */
static vx_status check_all_used(const struct vx_network *network, struct vx_why *why)
{
    bool used[VX_LAYERS_MAX] = {false};
    for (i32 i = 0; i < network->outputs_count; i++)
        used[network->outputs[i].layer] = true;
    for (i32 i = network->layers_count - 1; i >= 0; i--) {
        const struct vx_layer *layer = &network->layers[i];
        VX_ENSURE_WHY(
            used[i], why, INVALID_ARGUMENT, "a layer is used by nothing",
            "line %d: layer \"%.*s\" is used by nothing: no layer below it and no "
            "output needs it",
            layer->line, VX_NAME_SHOWN, layer->name);
        for (i32 j = 0; j < layer->inputs_count; j++)
            if (layer->inputs[j] != VX_LAYER_FEATS) used[layer->inputs[j]] = true;
        if (layer->of >= 0) used[layer->of] = true;
        if (layer->onto >= 0) used[layer->onto] = true;
        if (layer->by >= 0) used[layer->by] = true;
    }
    return VX_OK;
}

/* A voxelize has two maps, every other layer one at most; there is room for as many as a
 * network may have layers. */
static vx_status check_maps(const struct vx_network *network, struct vx_why *why)
{
    i32 count = network->layers_count;
    for (i32 i = 0; i < network->layers_count; i++) {
        const struct vx_layer *layer = &network->layers[i];
        count += layer->op == VX_OP_VOXELIZE;
        VX_ENSURE_WHY(count <= VX_LAYERS_MAX, why, INVALID_ARGUMENT,
                      "a network has too many layers",
                      "line %d: layer \"%.*s\": expected at most %d layers, where a "
                      "voxelize counts twice",
                      layer->line, VX_NAME_SHOWN, layer->name, VX_LAYERS_MAX);
    }
    return VX_OK;
}

static vx_status parse_warmup(struct vx_network *network, const struct vx_json *root,
                              struct vx_why *why)
{
    const struct vx_json *list = vx_json_find(root, "warmup");
    if (!list) {
        for (size_t i = 0; i < VX_COUNT(warmup_default); i++)
            if (warmup_default[i] <= network->voxels_max)
                network->warmup[network->warmup_count++] = warmup_default[i];
        return VX_OK;
    }
    network->warmup_said = true;
    VX_TRY(vx_json_check_kind(list, VX_JSON_LIST, why));
    VX_ENSURE_WHY(list->count <= VX_WARMUP_MAX, why, INVALID_ARGUMENT,
                  "too many warm-up sizes",
                  "line %d: \"warmup\": expected at most %d sizes, got %d", list->line,
                  VX_WARMUP_MAX, list->count);
    VX_JSON_EACH(size, list)
    {
        i64 *voxels = &network->warmup[network->warmup_count++];
        vx_status status = vx_json_read_i64(size, 1, network->voxels_max, why, voxels);
        if (status.fault) {
            vx_why_prefix(why, "\"warmup\": ");
            return status;
        }
    }
    return VX_OK;
}

const char *vx_precision_name(enum vx_precision precision)
{
    static const char *const names[] = {"auto", "fp16", "bf16", "tf32", "fp32"};
    return names[precision];
}

static vx_status parse_precision(struct vx_network *network, const struct vx_json *root,
                                 struct vx_why *why)
{
    const struct vx_json *value = vx_json_find(root, "precision");
    const char *text;
    if (!value) return VX_OK;
    VX_TRY(vx_json_read_text(value, why, &text));
    for (enum vx_precision p = VX_PRECISION_AUTO; p <= VX_PRECISION_FP32; p++) {
        network->precision = p;
        if (!strcmp(text, vx_precision_name(p))) return VX_OK;
    }
    VX_FAIL_WHY(why, INVALID_ARGUMENT, "a network has an unknown precision",
                "line %d: \"precision\": expected \"auto\", \"fp16\", \"bf16\", \"tf32\" "
                "or \"fp32\", got \"%.*s\"",
                value->line, VX_NAME_SHOWN, text);
}

static vx_status parse_parts(struct vx_network *network, const struct vx_json *root,
                             struct vx_arena *arena, struct vx_why *why)
{
    const struct vx_json *layers;
    VX_TRY(vx_json_check_kind(root, VX_JSON_OBJECT, why));
    VX_TRY(parse_format(root, why));
    VX_TRY(vx_network_check_keys(root,
                                 WORDS("format", "description", "inputs", "layers",
                                       "outputs", "limits", "batching", "warmup",
                                       "precision", "fp8"),
                                 why));
    const struct vx_json *description = vx_json_find(root, "description");
    network->description = "";
    if (description) VX_TRY(vx_json_read_text(description, why, &network->description));
    VX_TRY(parse_inputs(network, root, why));
    VX_TRY(vx_network_need(root, "layers", VX_JSON_LIST, why, &layers));
    VX_TRY(vx_network_parse_layers(network, layers, arena, why));
    VX_TRY(check_maps(network, why));
    VX_TRY(vx_network_parse_outputs(network, root, why));
    VX_TRY(check_all_used(network, why));
    VX_TRY(vx_network_parse_limits(network, root, why));
    VX_TRY(parse_precision(network, root, why));
    VX_TRY(vx_network_parse_fp8(network, root, why));
    return parse_warmup(network, root, why);
}

vx_status vx_network_parse(const struct vx_network_text *source, struct vx_arena *arena,
                           struct vx_why *why, const struct vx_network **network)
{
    *network = NULL;
    struct vx_network *made = vx_arena_take(arena, sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "the memory for a network is full");
    made->label = vx_arena_copy_text(arena, source->label, strlen(source->label));
    VX_ENSURE(made->label, RESOURCE_EXHAUSTED, "the memory for a network is full");
    const struct vx_json *root;
    vx_status status;
    VX_TRY_OR(status, out, vx_json_parse(source->text, source->bytes, arena, why, &root));
    VX_TRY_OR(status, out, parse_parts(made, root, arena, why));
    *network = made;
out:
    if (status.fault) vx_why_prefix(why, "%s: ", source->label);
    return status;
}

/* Reads at most `room` bytes of a file. */
static vx_status read_whole(int fd, char *text, size_t room, size_t *bytes)
{
    for (*bytes = 0; *bytes < room;) {
        ssize_t got = read(fd, text + *bytes, room - *bytes);
        if (got < 0 && errno == EINTR) continue;
        VX_ENSURE(got >= 0, DATA_LOSS, "network.json cannot be read");
        if (got == 0) return VX_OK;
        *bytes += (size_t)got;
    }
    return VX_OK;
}

static vx_status read_and_parse(int fd, const char *label, struct vx_arena *arena,
                                struct vx_why *why, const struct vx_network **network)
{
    struct stat info = {0};
    VX_ENSURE_WHY(!fstat(fd, &info) && S_ISREG(info.st_mode), why, INVALID_ARGUMENT,
                  "network.json is not a file", "%s: expected a regular file, got %s",
                  label, vx_access_kind(&info));
    /* One byte more than is allowed shows that a file is too long. */
    char *text = vx_alloc(VX_NETWORK_BYTES_MAX + 1);
    VX_ENSURE(text, RESOURCE_EXHAUSTED, "no memory to read network.json");
    struct vx_network_text source = {.text = text, .label = label};
    vx_status status = read_whole(fd, text, VX_NETWORK_BYTES_MAX + 1, &source.bytes);
    if (status.fault) {
        vx_why_set(why, "%s: cannot be read: %s", label, strerror(errno));
    } else if (source.bytes > VX_NETWORK_BYTES_MAX) {
        vx_why_set(why, "%s: expected at most %d bytes", label, VX_NETWORK_BYTES_MAX);
        static const struct vx_fault fault = {
            VX_CODE_INVALID_ARGUMENT, "network.json is too long", __FILE__, __LINE__};
        status = (vx_status){&fault};
    } else {
        status = vx_network_parse(&source, arena, why, network);
    }
    vx_free(text);
    return status;
}

vx_status vx_network_read(const char *path, const char *label, struct vx_arena *arena,
                          struct vx_why *why, const struct vx_network **network)
{
    *network = NULL;
    /* O_NONBLOCK: a named pipe in place of the file must not block the loading thread. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return vx_access_failed(path, label, errno, why);
    vx_status status = read_and_parse(fd, label, arena, why, network);
    close(fd);
    return status;
}

i32 vx_network_channels(const struct vx_network *network, i32 layer)
{
    if (layer == VX_LAYER_FEATS) return network->feats_channels;
    return network->layers[layer].channels;
}

i64 vx_layer_parameters(const struct vx_layer *layer)
{
    bool kernel = vx_op_is_conv(layer->op), conv = kernel || layer->op == VX_OP_LINEAR;
    i64 v = kernel ? layer->v : 1, count = 0;
    for (int role = 0; role < VX_TENSORS_PER_LAYER; role++)
        if (layer->tensors[role])
            count += conv && role == VX_TENSOR_WEIGHT
                         ? v * (layer->channels_in / layer->groups) * layer->channels
                         : layer->channels;
    return count;
}
