/* amd/matrix - AMD's matrix instructions on the registers of a whole wave.
 *
 * The tables say which element of A, B and C a register of a lane holds.  They are
 * written down from AMD's documents and not taken from our kernels, which they test.
 *
 * Thread   any.
 * Limits   the instructions of enum amd_matrix.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_AMD_MATRIX_H
#define VX_TESTS_AMD_MATRIX_H

#include "tests/amd/object.h"

#define AMD_WHY_BYTES 256

/* The registers of one lane. */
struct amd_registers {
    const void *a, *b;
    void *c;
};

const char *amd_matrix_name(u32 which);
u32 amd_matrix_wave(u32 which); /* lanes that the instruction needs */
/* c += a * b for all lanes; false: the operands are not what the instruction wants. */
bool amd_matrix_multiply(u32 which, const struct amd_registers *lanes,
                         char why[AMD_WHY_BYTES]);

#endif
