/* rows - rows of numbers as a kernel gets and makes them, for several areas of cases.
 *
 * Owner    the rig's arena.
 * Thread   the device thread.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_ORACLE_ROWS_H
#define VX_TESTS_ORACLE_ROWS_H

#include "tests/oracle/trial.h"

#include <math.h>

/* Values are SCALE at most. */
#define SCALE 4.0
/* What an activation adds to an error: four roundings of a number of size 20. */
#define CURVE (4 * 20 * 0x1p-24)

/* Numbers in rows of `cp`, of which `c` are real; NaN behind them, in row 5 too. */
static inline void *rows_make(struct vx_rig *rig, enum vx_number type, i64 n, i32 c,
                              i32 cp)
{
    void *made = vx_rig_reals(rig, type, n * cp, SCALE);
    for (i64 i = 0; i < n; i++)
        for (i32 e = c; e < cp; e++)
            vx_number_ref_write(made, type, i * cp + e, (f64)NAN);
    if (n > 5) vx_number_ref_write(made, type, 5 * (i64)cp + c / 2, (f64)NAN);
    return made;
}

static inline size_t rows_bytes(enum vx_number type, i64 n, i32 cp)
{
    return (size_t)n * (size_t)cp * (size_t)vx_number_bytes(type);
}

static inline void out_reals(struct vx_rig *rig, struct vx_trial *trial,
                             const void *pointer, size_t bytes, f64 absolute)
{
    struct vx_field *field = vx_trial_out(rig, trial, pointer, bytes);
    field->kind = VX_FIELD_REAL;
    field->type = trial->kernel.type;
    field->absolute = absolute;
}

#endif
