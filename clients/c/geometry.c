/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/voxel.h"

#include "clients/c/digest.h"
#include "clients/c/error.h"
#include "clients/c/infer_wire.h"

#include <string.h>

/* Stores the name that the server gave the geometry, or "" if it did not keep it. */
static void geometry_learn(struct voxel_geometry *geometry,
                           const struct voxel_answer *answer)
{
    const struct voxel_parameter *name =
        voxel_answer_find_parameter(answer, "coords_ref");
    geometry->name[0] = '\0';
    if (!name || name->kind != VOXEL_PARAMETER_STRING) return;
    size_t bytes = strlen(name->text) + 1;
    if (bytes <= sizeof geometry->name) memcpy(geometry->name, name->text, bytes);
}

/* True if the name stands for the request's coordinates, or the request has none. */
static bool geometry_fits(const struct voxel_geometry *geometry,
                          const struct voxel_digest *digest)
{
    static const struct voxel_digest none;
    if (!geometry->name[0]) return false;
    return voxel_digest_same(digest, &none) ||
           voxel_digest_same(digest, &geometry->digest);
}

/* Moves the coordinates from the inputs to named_coords.  A model may give its inputs any
 * name, but the coordinates are the only INT32 one. */
static void leave_coords_out(struct voxel_request *named, struct voxel_tensor *inputs)
{
    int32_t count = 0;
    for (int32_t i = 0; i < named->inputs_count; i++) {
        const struct voxel_tensor *input = &named->inputs[i];
        if (input->type == VOXEL_INT32)
            named->named_coords = input;
        else
            inputs[count++] = *input;
    }
    named->inputs = inputs;
    named->inputs_count = count;
}

enum voxel_code voxel_infer_geometry(struct voxel_client *client,
                                     const struct voxel_request *request,
                                     struct voxel_geometry *geometry,
                                     struct voxel_answer **answer,
                                     struct voxel_error *error)
{
    struct voxel_request named = *request;
    struct voxel_tensor inputs[VOXEL_INPUTS_MAX];
    struct voxel_digest digest;
    bool knew = geometry->name[0] != '\0';
    *answer = NULL;
    geometry->resent = false;
    if (request->inputs_count > VOXEL_INPUTS_MAX)
        return voxel_error_set(error, VOXEL_INVALID_ARGUMENT,
                               "a request has 0..%d inputs, not %d", VOXEL_INPUTS_MAX,
                               (int)request->inputs_count);
    if (voxel_digest_coords(request, &digest) && geometry_fits(geometry, &digest)) {
        named.coords_ref = geometry->name;
        leave_coords_out(&named, inputs);
        enum voxel_code code = voxel_infer(client, &named, answer, error);
        if (code != VOXEL_FAILED_PRECONDITION) return code;
    }
    named = *request;
    named.coords_ref = "";
    enum voxel_code code = voxel_infer(client, &named, answer, error);
    if (code) return code;
    geometry->resent = knew;
    geometry_learn(geometry, *answer);
    geometry->digest = digest;
    return VOXEL_OK;
}
