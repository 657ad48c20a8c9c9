/* amd/lane - one thread of the block that runs, and where it waits.
 *
 * Thread   the one that runs the block.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_AMD_LANE_H
#define VX_TESTS_AMD_LANE_H

#include "tests/amd/matrix.h"

enum amd_step {
    AMD_RUNS,
    AMD_BARRIER,
    AMD_WAVE_BARRIER,
    AMD_BALLOT,
    AMD_SHUFFLE,
    AMD_FIRST,
    AMD_MATRIX,
    AMD_LEFT,    /* the thread has returned */
    AMD_TRAPPED, /* it accessed what it may not */
};

struct amd_lane {
    enum amd_step step;
    u32 site, which;
    u32 other; /* of a shuffle: the lane it reads from */
    u32 value; /* what it brings */
    u64 answer;
    struct amd_registers registers;
};

const char *amd_step_name(enum amd_step step);
/* The lanes of one wave, none of which runs or waits at a barrier of the block: carries
 * out what they wait for. */
bool amd_wave_meet(struct amd_lane *lanes, u32 count, u32 wave, char why[AMD_WHY_BYTES]);

#endif
