/* SPDX-License-Identifier: Apache-2.0 */
#include "server/call/admit.h"

#include "engine/base/process/check.h"

#include <stdio.h>
#include <string.h>

_Static_assert(VX_OUTPUTS_MAX == VX_REQUEST_OUTPUTS_MAX,
               "a request can name every output a model can have");
_Static_assert(VX_SHAPE_AXIS_MAX == VX_AXIS_MAX + 1, "coordinates and shapes end alike");
_Static_assert(VX_NAME_BYTES == VX_WIRE_NAME_BYTES, "names fit both sides of the codec");

static enum vx_dtype admit_feats_dtype(enum vx_wire_type type)
{
    switch (type) {
    case VX_WIRE_FP32: return VX_DTYPE_F32;
    case VX_WIRE_FP16: return VX_DTYPE_F16;
    case VX_WIRE_BF16: return VX_DTYPE_BF16;
    default: return VX_DTYPE_NONE;
    }
}

static enum vx_wire_type admit_wire_type(enum vx_dtype dtype)
{
    switch (dtype) {
    case VX_DTYPE_F32: return VX_WIRE_FP32;
    case VX_DTYPE_F16: return VX_WIRE_FP16;
    case VX_DTYPE_BF16: return VX_WIRE_BF16;
    case VX_DTYPE_I32: return VX_WIRE_INT32;
    case VX_DTYPE_NONE: break;
    }
    vx_panic(__FILE__, __LINE__, "an output without a datatype");
}

/* "[5,4]", for an error text. */
static const char *admit_dims_text(const i64 *shape, i32 rank, char text[64])
{
    size_t used = 0;
    text[used++] = '[';
    for (i32 d = 0; d < rank && used < 48; d++)
        used += (size_t)snprintf(text + used, 64 - used, d ? ",%lld" : "%lld",
                                 (long long)shape[d]);
    if (used < 63) text[used++] = ']';
    text[used < 64 ? used : 63] = '\0';
    return text;
}

static const char *admit_shape_text(const struct vx_request_tensor *tensor, char text[64])
{
    return admit_dims_text(tensor->shape, tensor->rank, text);
}

static vx_status admit_find_inputs(const char *model,
                                   const struct vx_signature *signature,
                                   const struct vx_request *request, struct vx_why *why,
                                   struct vx_admitted *admitted)
{
    for (i32 i = 0; i < request->inputs_count; i++) {
        const struct vx_request_tensor *input = &request->inputs[i];
        if (!strcmp(input->name, signature->coords_name)) {
            admitted->coords = input;
        } else if (!strcmp(input->name, signature->feats_name)) {
            admitted->feats = input;
        } else {
            VX_FAIL_WHY(
                why, INVALID_ARGUMENT, "unknown input",
                "unexpected inference input '%.60s' for model '%.60s': expected '%.40s' "
                "and '%.40s'",
                input->name, model, signature->coords_name, signature->feats_name);
        }
    }
    bool by_name = vx_coords_ref_there(request->coords_ref);
    VX_ENSURE_WHY(
        !by_name || !admitted->coords, why, INVALID_ARGUMENT,
        "coords and coords_ref are both present",
        "input '%.60s' and parameter 'coords_ref' are both present: expected one of "
        "them; with coords, send an empty coords_ref to receive their coords_ref",
        signature->coords_name);
    const char *missing = !admitted->coords && !by_name ? signature->coords_name
                          : !admitted->feats            ? signature->feats_name
                                                        : NULL;
    VX_ENSURE_WHY(!missing, why, INVALID_ARGUMENT, "an input is missing",
                  "input '%.60s' is missing: model '%.60s' expects %d input%s, got %d",
                  missing, model, by_name ? 1 : 2,
                  by_name ? " in addition to coords_ref" : "s", request->inputs_count);
    return VX_OK;
}

static bool admit_is_coords_shape(const struct vx_request_tensor *tensor)
{
    return tensor->rank == 2 && (tensor->shape[1] == 3 || tensor->shape[1] == 4);
}

const struct vx_request_tensor *vx_admit_coords_of(const struct vx_request *request)
{
    for (i32 i = 0; i < request->inputs_count; i++) {
        const struct vx_request_tensor *input = &request->inputs[i];
        if (input->type == VX_WIRE_INT32 && admit_is_coords_shape(input) &&
            input->shape[0] > 0)
            return input;
    }
    return NULL;
}

static vx_status admit_coords(struct vx_why *why, struct vx_admitted *admitted)
{
    const struct vx_request_tensor *coords = admitted->coords;
    char shape[64];
    if (!coords) return VX_OK;
    VX_ENSURE_WHY(coords->type == VX_WIRE_INT32, why, INVALID_ARGUMENT,
                  "coords must be INT32",
                  "input '%.60s': expected datatype INT32, got %s", coords->name,
                  vx_wire_type_name(coords->type));
    VX_ENSURE_WHY(
        admit_is_coords_shape(coords), why, INVALID_ARGUMENT,
        "coords must have shape [N,3] or [N,4]",
        "input '%.60s': expected shape [N,4] (sample, then three axes in the order of "
        "training) or [N,3] (sample 0), got %s",
        coords->name, admit_shape_text(coords, shape));
    admitted->voxels = coords->shape[0];
    admitted->coords_columns = (i32)coords->shape[1];
    return VX_OK;
}

static vx_status admit_feats(const struct vx_signature *signature, struct vx_why *why,
                             struct vx_admitted *admitted)
{
    const struct vx_request_tensor *feats = admitted->feats;
    char shape[64];
    admitted->feats_dtype = admit_feats_dtype(feats->type);
    VX_ENSURE_WHY(admitted->feats_dtype != VX_DTYPE_NONE, why, INVALID_ARGUMENT,
                  "feats must be FP32, FP16 or BF16",
                  "input '%.60s': expected datatype FP32, FP16 or BF16, got %s",
                  feats->name, vx_wire_type_name(feats->type));
    bool fits = feats->rank == 2 && feats->shape[1] == signature->feats_channels;
    VX_ENSURE_WHY(fits, why, INVALID_ARGUMENT, "feats must have shape [N,C]",
                  "input '%.60s': expected shape [N,%d], got %s", feats->name,
                  signature->feats_channels, admit_shape_text(feats, shape));
    if (!admitted->coords) {
        admitted->voxels = feats->shape[0];
        return VX_OK;
    }
    VX_ENSURE_WHY(
        feats->shape[0] == admitted->voxels, why, INVALID_ARGUMENT,
        "coords and feats must have the same number of rows",
        "inputs '%.60s' and '%.60s' must have one row per voxel each, got %lld and %lld",
        admitted->coords->name, feats->name, (long long)admitted->voxels,
        (long long)feats->shape[0]);
    return VX_OK;
}

static i32 admit_output_number(const struct vx_signature *signature, const char *name)
{
    for (i32 o = 0; o < signature->outputs_count; o++)
        if (!strcmp(signature->outputs[o].name, name)) return o;
    return -1;
}

#define OUTPUTS_TEXT_BYTES 128

/* "'a', 'b'": all outputs, or as many as fit into the error text. */
static const char *admit_outputs_text(const struct vx_signature *signature,
                                      char text[OUTPUTS_TEXT_BYTES])
{
    static const char rest[] = " and others";
    size_t used = 0;
    for (i32 o = 0; o < signature->outputs_count; o++) {
        const char *name = signature->outputs[o].name;
        size_t bytes = strnlen(name, 60) + (o ? 4 : 2);
        if (used + bytes + sizeof rest > OUTPUTS_TEXT_BYTES) {
            snprintf(text + used, OUTPUTS_TEXT_BYTES - used, "%s", rest);
            break;
        }
        snprintf(text + used, OUTPUTS_TEXT_BYTES - used, "%s'%.60s'", o ? ", " : "",
                 name);
        used += bytes;
    }
    return text;
}

static vx_status admit_outputs(const char *model, const struct vx_signature *signature,
                               const struct vx_request *request, struct vx_why *why,
                               struct vx_admitted *admitted)
{
    bool named[VX_OUTPUTS_MAX] = {false};
    char has[OUTPUTS_TEXT_BYTES];
    bool all = request->outputs_count == 0;
    admitted->outputs_count = all ? signature->outputs_count : request->outputs_count;
    for (i32 i = 0; i < admitted->outputs_count; i++) {
        i32 o = all ? i : admit_output_number(signature, request->outputs[i]);
        VX_ENSURE_WHY(o >= 0, why, INVALID_ARGUMENT, "unknown output",
                      "unexpected inference output '%.60s' for model '%.60s': it has %s",
                      request->outputs[i], model, admit_outputs_text(signature, has));
        VX_ENSURE_WHY(!named[o], why, INVALID_ARGUMENT, "an output is named twice",
                      "output '%.60s' is named twice", signature->outputs[o].name);
        named[o] = true;
        admitted->outputs[i] = o;
    }
    vx_admit_rows(signature, admitted);
    return VX_OK;
}

/* A shape of its own replaces the network's.  Where that has none, its answers do not
 * depend on one, and a client that sends one expects something else. */
static vx_status admit_shape(const char *model, const struct vx_signature *signature,
                             const struct vx_request *request, struct vx_why *why,
                             struct vx_admitted *admitted)
{
    if (!request->shape[0]) return VX_OK;
    VX_ENSURE_WHY(signature->shape[0], why, INVALID_ARGUMENT,
                  "the model has no spatial shape",
                  "parameter 'spatial_shape': model '%.60s' has no spatial_shape that a "
                  "request could replace",
                  model);
    if (memcmp(request->shape, signature->shape, sizeof signature->shape) != 0)
        memcpy(admitted->shape, request->shape, sizeof admitted->shape);
    return VX_OK;
}

void vx_admit_rows(const struct vx_signature *signature, struct vx_admitted *admitted)
{
    for (i32 o = 0; o < signature->outputs_count; o++) {
        bool later = signature->outputs[o].set && admitted->voxels;
        admitted->rows[o] = later ? -1 : admitted->voxels;
    }
}

vx_status vx_admit(const char *model, const struct vx_signature *signature,
                   const struct vx_request *request, struct vx_why *why,
                   struct vx_admitted *admitted)
{
    *admitted = (struct vx_admitted){0};
    VX_TRY(admit_find_inputs(model, signature, request, why, admitted));
    VX_TRY(admit_coords(why, admitted));
    VX_TRY(admit_feats(signature, why, admitted));
    /* coords and feats are the only inputs now, and feats is not INT32. */
    VX_ASSERT(!admitted->coords || !admitted->voxels ||
              admitted->coords == vx_admit_coords_of(request));
    VX_ENSURE_WHY(admitted->voxels <= signature->voxels_max, why, RESOURCE_EXHAUSTED,
                  "more voxels than the model serves in one request",
                  "model '%.60s' serves at most %lld voxels in one request, got %lld; "
                  "send fewer, or this needs %s",
                  model, (long long)signature->voxels_max, (long long)admitted->voxels,
                  vx_bound_remedy(signature->voxels_bound));
    VX_TRY(admit_shape(model, signature, request, why, admitted));
    return admit_outputs(model, signature, request, why, admitted);
}

struct vx_reply_tensor vx_admit_reply_tensor(const struct vx_signature *signature, i32 o,
                                             i64 rows)
{
    VX_ASSERT(o >= 0 && o < signature->outputs_count);
    VX_ASSERT(rows >= 0);
    const struct vx_output *output = &signature->outputs[o];
    struct vx_reply_tensor tensor = {
        .type = admit_wire_type(output->dtype),
        .bytes = (u64)rows * (u64)output->channels * vx_dtype_bytes(output->dtype),
        .stride = output->set > 0 ? output->stride : NULL,
    };
    _Static_assert(VX_RANK_MAX > VX_OUTPUT_DIMS_MAX, "every output has a shape");
    tensor.rank = vx_output_shape(output, rows, tensor.shape);
    if (output->set > 0 && output->coords != o)
        tensor.coords = signature->outputs[output->coords].name;
    memcpy(tensor.name, output->name, sizeof tensor.name);
    return tensor;
}

/* Other outputs are rows of channels. */
static bool admit_is_dense(const struct vx_reply_tensor *tensor)
{
    return tensor->rank > 2;
}

const char *vx_admit_smaller(const struct vx_reply_tensor *outputs, i32 count, u64 others,
                             char text[VX_ADMIT_SMALLER_BYTES])
{
    const struct vx_reply_tensor *largest = NULL;
    char shape[64];
    u64 dense = 0;
    for (i32 i = 0; i < count; i++) {
        const struct vx_reply_tensor *output = &outputs[i];
        if (!admit_is_dense(output)) {
            others += output->bytes;
            continue;
        }
        dense += output->bytes;
        if (!largest || output->bytes > largest->bytes) largest = output;
    }
    if (!largest || dense <= others) return "send fewer voxels, or ask for fewer outputs";
    bool one = largest->shape[0] == 1;
    snprintf(text, VX_ADMIT_SMALLER_BYTES, "%s: output '%.40s' is %s %s, a row for %s",
             one ? "ask for other outputs" : "send fewer samples, numbered from 0",
             largest->name, admit_dims_text(largest->shape, largest->rank, shape),
             vx_wire_type_name(largest->type), one ? "one sample" : "each sample");
    return text;
}
