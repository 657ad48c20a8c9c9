/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/infer_wire.h"

#include "clients/c/error.h"

#include <stdlib.h>
#include <string.h>

/* A server may leave out the model and the version; if it sends them they must match. */
static enum voxel_code names_check(const struct voxel_answer *answer,
                                   const struct voxel_wanted *wanted,
                                   struct voxel_error *error)
{
    if (wanted->model && *answer->model && strcmp(answer->model, wanted->model) != 0)
        return voxel_error_set(error, VOXEL_INTERNAL,
                               "the request is for model '%s', the answer is from '%s'",
                               wanted->model, answer->model);
    char version[24];
    voxel_version_text(wanted->version, version);
    if (wanted->version > 0 && *answer->version && strcmp(answer->version, version) != 0)
        return voxel_error_set(error, VOXEL_INTERNAL,
                               "the request is for version %s, the answer is from '%s'",
                               version, answer->version);
    /* The protocol requires that the answer repeats the request's id. */
    if (wanted->id && *wanted->id && strcmp(answer->id, wanted->id) != 0)
        return voxel_error_set(error, VOXEL_INTERNAL,
                               "the request's id was '%s', the answer's is '%s'",
                               wanted->id, answer->id);
    return VOXEL_OK;
}

static enum voxel_code missing(struct voxel_error *error, const char *output)
{
    return voxel_error_set(error, VOXEL_INTERNAL, "the answer lacks output '%s'", output);
}

/* The answer must have every output that the request named, and every output that has a
 * place, unless the request wants other outputs only. */
static enum voxel_code outputs_check(const struct voxel_answer *answer,
                                     const struct voxel_wanted *wanted,
                                     struct voxel_error *error)
{
    bool all = wanted->outputs_count == 0;
    for (int32_t i = 0; i < wanted->outputs_count; i++)
        if (!voxel_answer_find(answer, wanted->outputs[i]))
            return missing(error, wanted->outputs[i]);
    for (int32_t i = 0; i < wanted->places_count; i++)
        if (wanted->places[i].region) all = false;
    for (int32_t i = 0; i < wanted->places_count; i++)
        if ((wanted->places[i].region || all) &&
            !voxel_answer_find(answer, wanted->places[i].output))
            return missing(error, wanted->places[i].output);
    if (wanted->voxels && answer->outputs_count == 0)
        return voxel_error_set(error, VOXEL_INTERNAL, "the answer has no output");
    return VOXEL_OK;
}

static enum voxel_code rows_check(const struct voxel_tensor *output, int64_t rows,
                                  struct voxel_error *error)
{
    if (output->rank < 1)
        return voxel_error_set(
            error, VOXEL_INTERNAL,
            "output '%s' has no rows; expected %lld, one for each voxel", output->name,
            (long long)rows);
    if (output->shape[0] != rows)
        return voxel_error_set(error, VOXEL_INTERNAL,
                               "output '%s' has %lld rows; expected %lld, one for each "
                               "voxel",
                               output->name, (long long)output->shape[0],
                               (long long)rows);
    return VOXEL_OK;
}

bool voxel_stride_read(const char *text, double stride[3])
{
    memset(stride, 0, 3 * sizeof *stride);
    if (strcmp(text, "0x0x0") == 0) return true; /* one voxel for each sample */
    for (int axis = 0; axis < 3; axis++) {
        char *end;
        if (*text < '1' || *text > '9') return false;
        long down = strtol(text, &end, 10), up = 1;
        if (*end == '/') {
            if (end[1] < '1' || end[1] > '9') return false;
            up = strtol(end + 1, &end, 10);
        }
        if (down < 1 || *end != (axis < 2 ? 'x' : '\0')) return false;
        stride[axis] = (double)down / (double)up;
        text = end + 1;
    }
    return true;
}

/* An output on a set of its own has a stride, and as many rows as its coordinates, if the
 * answer has those. */
static enum voxel_code sparse_check(const struct voxel_answer *answer,
                                    const struct voxel_tensor *output,
                                    struct voxel_error *error)
{
    double stride[3];
    if (!voxel_stride_read(output->stride, stride))
        return voxel_error_set(error, VOXEL_INTERNAL,
                               "output '%s' has the stride '%.60s'; expected a text as "
                               "2x2x2",
                               output->name, output->stride);
    const struct voxel_tensor *coords =
        output->coords ? voxel_answer_find(answer, output->coords) : output;
    if (!coords) return VOXEL_OK;
    if (coords->type == VOXEL_INT32 && coords->rank == 2 && coords->shape[1] == 4 &&
        output->rank >= 1 && coords->shape[0] == output->shape[0])
        return VOXEL_OK;
    return voxel_error_set(error, VOXEL_INTERNAL,
                           "output '%s' has no coordinates: expected '%s' to be INT32 "
                           "with 4 columns and a row for each of its rows",
                           output->name, coords->name);
}

enum voxel_code voxel_answer_check(const struct voxel_answer *answer,
                                   const struct voxel_wanted *wanted,
                                   struct voxel_error *error)
{
    enum voxel_code code = names_check(answer, wanted, error);
    if (!code) code = outputs_check(answer, wanted, error);
    for (int32_t i = 0; i < answer->outputs_count && !code; i++) {
        const struct voxel_tensor *output = &answer->outputs[i];
        if (!*output->name)
            return voxel_error_set(error, VOXEL_INTERNAL,
                                   "the answer has an output without a name");
        if (voxel_answer_find(answer, output->name) != output)
            return voxel_error_set(error, VOXEL_INTERNAL,
                                   "the answer has output '%s' twice", output->name);
        if (output->stride)
            code = sparse_check(answer, output, error);
        else if (wanted->voxels && output->rank <= 2) /* more: a dense tensor */
            code = rows_check(output, wanted->rows, error);
    }
    return code;
}
