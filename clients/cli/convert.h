/* convert - converts numbers: 16-bit floats, cells of a tensor, digits for sentences.
 *
 *   float x = convert_from_half(0x3c00);
 *
 * Owner    nothing.
 * Thread   any.
 * Limits   none.
 * Fails    only convert_refuse and convert_check_whole, which make an error.  A cell that is no number gives 0.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_CONVERT_H
#define VOXEL_CLIENTS_CLI_CONVERT_H

#include "clients/c/voxel.h"

float convert_from_half(uint16_t half);
uint16_t convert_to_half(float value); /* round to nearest even */
float convert_from_bfloat(uint16_t bits);
uint16_t convert_to_bfloat(float value); /* round to nearest even */

/* True if a finite value becomes infinite in that type: FP32, FP16 or BF16. */
bool convert_overflows(double value, enum voxel_type type);
/* Fills the error for such a value of feats and returns INVALID_ARGUMENT. */
struct convert_cell {
    int64_t row;
    int32_t channel;
    double value;
};
enum voxel_code convert_refuse(const struct convert_cell *cell, enum voxel_type type,
                               struct voxel_error *error);

/* The largest whole number up to which a float holds each. */
#define CONVERT_WHOLE_MAX (1 << 24)
/* INVALID_ARGUMENT for a cell of integers that is beyond it; `name` is that of the feats. */
enum voxel_code convert_check_whole(const char *name, const struct convert_cell *cell,
                                    struct voxel_error *error);

/* Cell `index` of a tensor, in row-major order, as float. */
float convert_cell(const struct voxel_tensor *tensor, int64_t index);

#define CONVERT_TEXT_BYTES 32
/* Prints with 15 to 17 digits, as few as identify the value.  Returns `text`. */
const char *convert_text(double value, char text[CONVERT_TEXT_BYTES]);

#endif
