/* waves - which lanes of a wave passed true, and sums and prefix sums over a wave or a block.
 *
 * Owner    -
 * Thread   device code.
 * Limits   a block has at most as many waves as a wave has lanes.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_KERNELS_WAVES_CUH
#define VX_KERNELS_WAVES_CUH

#include "kernels/device.h"

/* Before a loop that must be unrolled, so that what it indexes stays in registers. */
#ifndef VX_UNROLL
#define VX_UNROLL _Pragma("unroll")
#endif

/* One bit for each lane of a wave. */
#if VX_WAVE == 32
typedef uint32_t vx_lanes;
#else
typedef uint64_t vx_lanes;
#endif

VX_DEVICE vx_lanes vx_lanes_said(int said)
{
    return (vx_lanes)vx_ballot(said);
}
VX_DEVICE vx_lanes vx_lanes_below(void)
{
    return ((vx_lanes)1 << vx_lane()) - 1;
}
VX_DEVICE uint32_t vx_lanes_count(vx_lanes lanes)
{
#if VX_WAVE == 32
    return (uint32_t)vx_count_bits(lanes);
#else
    return (uint32_t)vx_count_bits64(lanes);
#endif
}

/* The lanes that are there with the same number, of so many bits.  A lane that is not gets any. */
VX_DEVICE vx_lanes vx_lanes_alike(uint32_t number, int32_t bits, int32_t there)
{
#if VX_CUDA
    (void)bits;
    return __match_any_sync(0xffffffffu, there ? number : ~0u);
#else
    vx_lanes alike = vx_lanes_said(there);
    VX_UNROLL
    for (int32_t bit = 0; bit < bits; bit++) {
        int32_t set = (int32_t)(number >> bit & 1u);
        vx_lanes said = vx_lanes_said(set);
        alike &= set ? said : ~said;
    }
    return alike;
#endif
}

/* The lowest of some lanes, of which there is one. */
VX_DEVICE uint32_t vx_lanes_lowest(vx_lanes lanes)
{
    return vx_lanes_count(~lanes & (lanes - 1));
}

/* The sum over this lane and those below it. */
VX_DEVICE uint32_t vx_wave_sum_through(uint32_t value)
{
    VX_UNROLL
    for (uint32_t step = 1; step < VX_WAVE; step *= 2) {
        uint32_t below = vx_shuffle(value, (vx_lane() - step) % VX_WAVE);
        if (vx_lane() >= step) value += below;
    }
    return value;
}

VX_DEVICE uint64_t vx_shuffle_xor64(uint64_t value, uint32_t mask)
{
    return (uint64_t)vx_shuffle_xor((uint32_t)(value >> 32), mask) << 32 |
           vx_shuffle_xor((uint32_t)value, mask);
}

/* The sum over all lanes, in each of them. */
VX_DEVICE uint64_t vx_wave_sum64(uint64_t value)
{
    VX_UNROLL
    for (uint32_t step = 1; step < VX_WAVE; step *= 2)
        value += vx_shuffle_xor64(value, step);
    return value;
}

/* The sum over the threads before this one; *all is that of the whole block.  `sums` is
 * shared memory, a word for each of the `waves`, free again after a barrier. */
VX_DEVICE uint32_t vx_block_sum_before(uint32_t value, uint32_t *sums, uint32_t waves,
                                       uint32_t *all)
{
    uint32_t through = vx_wave_sum_through(value);
    if (vx_lane() == VX_WAVE - 1) sums[vx_wave()] = through;
    vx_barrier();
    uint32_t of_waves = vx_wave_sum_through(vx_lane() < waves ? sums[vx_lane()] : 0);
    uint32_t before = vx_shuffle(of_waves, (vx_wave() - 1) % VX_WAVE);
    *all = vx_shuffle(of_waves, waves - 1);
    return (vx_wave() ? before : 0) + through - value;
}

#endif
