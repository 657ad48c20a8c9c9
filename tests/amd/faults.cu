/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels with one mistake each, and beside some of them the same without it: what
 * tests/unit/amd/test_amd_faults.c must see reported, or not. */
#include "kernels/device.h"

#include "tests/amd/faults.h"

#define KERNEL(name_)                                                                    \
    VX_KERNEL(AMD_FAULT_THREADS, 1) name_(const struct amd_fault_args args)

VX_DEVICE uint32_t far_thread(void)
{
    return (vx_thread() + 77) % AMD_FAULT_THREADS;
}

/* --- a barrier --- */

KERNEL(exchange)
{
    VX_SHARED uint32_t words[AMD_FAULT_THREADS];
    words[vx_thread()] = args.in[vx_thread()];
    vx_barrier();
    args.out[vx_thread()] = words[far_thread()];
}

KERNEL(exchange_without_barrier)
{
    VX_SHARED uint32_t words[AMD_FAULT_THREADS];
    words[vx_thread()] = args.in[vx_thread()];
    args.out[vx_thread()] = words[far_thread()];
}

/* Only the first `place` threads reach it. */
KERNEL(barrier_of_some)
{
    if (vx_thread() >= args.place) return;
    args.out[vx_thread()] = 1;
    vx_barrier();
    args.out[vx_thread()] = 2;
}

/* Lanes of one wave at a ballot and at a barrier. */
KERNEL(barrier_and_ballot)
{
    if (vx_lane() < args.place) args.out[vx_thread()] = (uint32_t)vx_ballot(1);
    vx_barrier();
}

/* Whole waves at different barriers. */
KERNEL(two_barriers)
{
    VX_SHARED uint32_t words[2];
    if (vx_wave() == 0) {
        words[0] = args.in[0];
        vx_barrier();
        args.out[0] = words[1];
    } else {
        words[1] = args.in[1];
        vx_barrier();
        args.out[1] = words[0] + 5;
    }
}

/* --- operations of a wave --- */

/* How many lanes of the wave said yes. */
KERNEL(wave_count)
{
    args.out[vx_thread()] =
        (uint32_t)vx_count_bits64(vx_ballot(args.in[vx_thread()] & 1));
}

/* The same by 32 lanes, as if every wave had so many: wrong where it has 64. */
KERNEL(wave_count_of_32)
{
    uint32_t said = (uint32_t)vx_ballot(args.in[vx_thread()] & 1);
    args.out[vx_thread()] = (uint32_t)vx_count_bits(said);
}

KERNEL(diverged)
{
    if (vx_lane() < args.place)
        args.out[vx_thread()] = (uint32_t)vx_ballot(args.in[vx_thread()] & 1);
    else
        args.out[vx_thread()] = vx_shuffle(args.in[vx_thread()], args.other);
}

/* Every lane reads from lane `other`; lanes from `place` on have left. */
KERNEL(shuffle_after_leaving)
{
    if (vx_lane() >= args.place) return;
    args.out[vx_thread()] = vx_shuffle(args.in[vx_thread()], args.other);
}

/* --- memory --- */

KERNEL(static_write)
{
    VX_SHARED uint32_t words[100];
    words[vx_thread() % 100] = vx_thread();
    vx_barrier();
    if (vx_thread() == 0) words[args.place] = 7;
    vx_barrier();
    args.out[vx_thread()] = words[args.other];
}

KERNEL(dynamic_write)
{
    extern VX_SHARED uint32_t dynamic[];
    if (vx_thread() == 0) dynamic[args.place] = 7;
    vx_barrier();
    args.out[vx_thread()] = dynamic[args.other];
}

KERNEL(device_write)
{
    if (vx_thread() == 0) args.out[args.place] = 7;
}

/* What shared memory holds before anybody writes to it. */
KERNEL(untouched)
{
    extern VX_SHARED uint32_t dynamic[];
    args.out[vx_thread()] = dynamic[vx_thread()];
}

/* Shared addresses in 32 bits, there and back. */
KERNEL(address_in_32_bits)
{
    VX_SHARED uint32_t words[AMD_FAULT_THREADS];
    typedef __attribute__((address_space(3))) uint32_t shared_word;
    uint32_t at = (uint32_t)(uintptr_t)(shared_word *)words;
    *(shared_word *)(uintptr_t)(at + 4 * vx_thread()) = args.in[vx_thread()];
    vx_barrier();
    args.out[vx_thread()] = words[far_thread()];
}
