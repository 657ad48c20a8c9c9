/* diff_picture - draws the voxels of one layer, coloured by how far two runs are apart.
 *
 * Colours are by the decade of a voxel's worst relative error: dark violet up to a
 * hundredth of the bound, teal at the bound, pale yellow from a hundred times the bound on
 * and where a voxel is in one run alone.  Of a dense tensor, the cells are drawn that are
 * not 0 in both runs.
 *
 * Owner    borrows all.
 * Thread   main.
 * Limits   those of render.h.
 * Fails    as recording.h and render.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_DIFF_PICTURE_H
#define VOXEL_CLIENTS_CLI_DIFF_PICTURE_H

#include "clients/cli/diff_table.h"
#include "clients/cli/render/render.h"

struct diff_picture {
    const char *path;
    struct render_view view;
    int64_t sample; /* -1 = that of the worst element, else of the first voxel */
};
enum voxel_code diff_picture_draw(const struct diff_picture *picture,
                                  const struct diff_table *table,
                                  const struct diff_row *row, struct voxel_error *error);

#endif
