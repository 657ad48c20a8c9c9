/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/tools/fp8_error.h"

#include <math.h>
#include <string.h>

/* --- which rows are one voxel --- */

/* Below 0: row i of a is before row j of b; 0: they are one voxel. */
static int rows_order(const struct vx_fp8_rows *a, i64 i, const struct vx_fp8_rows *b,
                      i64 j)
{
    if (i == a->count || j == b->count) return i == a->count ? 1 : -1;
    if (!a->coords) return 0;
    for (int axis = 0; axis < 4; axis++) {
        const i32 x = a->coords[4 * i + axis], y = b->coords[4 * j + axis];
        if (x != y) return x < y ? -1 : 1;
    }
    return 0;
}

/* --- what a row adds --- */

/* NaN is larger than all. */
static bool beyond(f64 size, f64 most)
{
    return !(size <= most);
}

static void add_number(struct vx_fp8_error *error, f64 plain, f64 rounded, i32 channel)
{
    const f64 off = rounded - plain;
    const f64 most = error->channel < 0 ? 0 : fabs(error->rounded - error->plain);
    error->squares += off * off;
    error->all += plain * plain;
    if (isnan(most) || !beyond(fabs(off), most)) return;
    error->plain = plain;
    error->rounded = rounded;
    error->row = error->rows;
    error->channel = channel;
}

/* A row of numbers; NULL: zeros. */
static void add_numbers(struct vx_fp8_error *error, i32 channels, const f32 *plain,
                        const f32 *rounded)
{
    for (i32 c = 0; c < channels; c++)
        add_number(error, plain ? (f64)plain[c] : 0, rounded ? (f64)rounded[c] : 0, c);
}

/* A row of an argmax; NULL: chooses none. */
static void add_choice(struct vx_fp8_error *error, const i32 *plain, const i32 *rounded)
{
    if (plain) error->all += 1;
    if (plain && rounded && *plain == *rounded) return;
    error->squares += (plain != NULL) + (rounded != NULL);
    error->changed += plain && rounded;
}

static void add_row(struct vx_fp8_error *error, const struct vx_output *output,
                    const void *plain, const void *rounded)
{
    if (output->dtype == VX_DTYPE_I32)
        add_choice(error, plain, rounded);
    else
        add_numbers(error, output->channels, plain, rounded);
    error->lost += !rounded;
    error->gained += !plain;
    error->rows++;
}

/* --- the whole --- */

static const void *row_of(const struct vx_output *output, const struct vx_fp8_rows *rows,
                          i64 row)
{
    return (const f32 *)rows->values + row * output->channels; /* i32 has as many bytes */
}

struct vx_fp8_error vx_fp8_error_of(const struct vx_output *output,
                                    const struct vx_fp8_rows *plain,
                                    const struct vx_fp8_rows *rounded)
{
    struct vx_fp8_error error = {.channel = -1};
    for (i64 i = 0, j = 0; i < plain->count || j < rounded->count;) {
        const int order = rows_order(plain, i, rounded, j);
        add_row(&error, output, order <= 0 ? row_of(output, plain, i) : NULL,
                order >= 0 ? row_of(output, rounded, j) : NULL);
        i += order <= 0;
        j += order >= 0;
    }
    return error;
}

f64 vx_fp8_nmse(const struct vx_fp8_error *error)
{
    return error->squares == 0 ? 0 : error->squares / error->all;
}
