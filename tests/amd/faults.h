/* amd/faults - arguments of the kernels of faults.cu and matrix.cu.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_AMD_FAULTS_H
#define VX_TESTS_AMD_FAULTS_H

#include <stdint.h>

#define AMD_FAULT_THREADS 128

struct amd_fault_args {
    const uint32_t *in; /* one word for each thread */
    uint32_t *out;
    uint32_t place; /* where it goes wrong: an index */
    uint32_t other;
};

/* The registers of the lanes of one wave, as the instruction has them. */
struct amd_matrix_args {
    const void *a, *b;
    float *c;
    uint32_t absent; /* this lane leaves before the instruction; 64 = none */
    uint32_t zero;
};

#endif
