/* number - the types of numbers that kernels read and write.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_NUMBER_H
#define VX_KERNELS_NUMBER_H

#include <stdint.h>

/* Types of numbers.  F32, F16 and BF16 have the values of the engine's enum vx_dtype and
 * may be cast; TF32 has no dtype.  In device code the macro VX_TYPE has these values. */
enum vx_number {
    VX_NUMBER_F32 = 1,
    VX_NUMBER_F16 = 2,
    VX_NUMBER_BF16 = 3,
    /* Stored as F32, multiplied with 10 bits of fraction: only for kernels that multiply
     * on a GPU.  Nothing converts to it. */
    VX_NUMBER_TF32 = 4,
    /* Stored as F16, multiplied as numbers of 8 bits (e4m3.h): only for convolutions on a
     * Hopper GPU.  Nothing converts to it. */
    VX_NUMBER_E4M3 = 5,
};

/* The type in which numbers of a type are stored. */
static inline enum vx_number vx_number_stored(enum vx_number type)
{
    if (type == VX_NUMBER_TF32) return VX_NUMBER_F32;
    return type == VX_NUMBER_E4M3 ? VX_NUMBER_F16 : type;
}

/* One element of a tensor of any type as a double, and back with one rounding.  Every
 * reference of a device kernel reads and writes with them.  TF32 is stored as F32. */
double vx_number_ref_read(const void *from, enum vx_number type, int64_t e);
/* `count` numbers from `e` on. */
void vx_number_ref_read_row(const void *from, enum vx_number type, int64_t e,
                            int32_t count, double *row);
void vx_number_ref_write(void *to, enum vx_number type, int64_t e, double value);

#endif
