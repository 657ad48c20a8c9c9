/* deliver - the file and the picture of an answer.
 *
 * NumPy's files have the columns of coords that were sent; a .ply and a picture have x, y and z
 * (axes.h).
 *
 *   const struct delivery delivery = {.out = "normals.ply", .view = &view};
 *   int code = deliver(&delivery, &cloud, answer);
 *
 * Owner    borrows all.
 * Thread   any.
 * Fails    with a sentence on stderr: CLI_USAGE, or CLI_REFUSED where the answer lacks the output.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_DELIVER_H
#define VOXEL_CLIENTS_CLI_DELIVER_H

#include "clients/cli/cloud.h"
#include "clients/cli/render/render.h"

struct delivery {
    const char *out, *picture; /* NULL = none */
    const char *output;        /* its name; NULL = the first, in a .npz all */
    const struct render_view *view;
    int32_t sample; /* that is drawn */
    bool quiet;     /* does not say what was written */
};

int deliver(const struct delivery *delivery, const struct cloud *cloud,
            const struct voxel_answer *answer);

#endif
