/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/amd/lane.h"

#include <stdio.h>

const char *amd_step_name(enum amd_step step)
{
    static const char *const names[] = {
        [AMD_RUNS] = "nothing",
        [AMD_BARRIER] = "barrier",
        [AMD_WAVE_BARRIER] = "wave barrier",
        [AMD_BALLOT] = "ballot",
        [AMD_SHUFFLE] = "shuffle",
        [AMD_FIRST] = "readfirstlane",
        [AMD_MATRIX] = "matrix instruction",
        [AMD_LEFT] = "its end",
        [AMD_TRAPPED] = "a trap",
    };
    return names[step];
}

static bool has_left(const struct amd_lane *lane)
{
    return lane->step == AMD_LEFT;
}

static bool same_place(const struct amd_lane *a, const struct amd_lane *b)
{
    return a->step == b->step && a->site == b->site;
}

static u64 ballot_of(const struct amd_lane *lanes, u32 count)
{
    u64 said = 0;
    for (u32 i = 0; i < count; i++)
        if (!has_left(lanes + i) && lanes[i].value) said |= (u64)1 << i;
    return said;
}

static bool shuffle(struct amd_lane *lanes, u32 count, u32 wave, char why[AMD_WHY_BYTES])
{
    for (u32 i = 0; i < count; i++) {
        if (has_left(lanes + i)) continue;
        u32 from = lanes[i].other % wave;
        if (from >= count || has_left(lanes + from)) {
            (void)snprintf(why, AMD_WHY_BYTES,
                           "shuffle %u: lane %u reads from lane %u, which has left",
                           lanes[i].site, i, from);
            return false;
        }
        lanes[i].answer = lanes[from].value;
    }
    return true;
}

static bool matrix(struct amd_lane *lanes, u32 count, u32 wave, char why[AMD_WHY_BYTES])
{
    struct amd_registers registers[64];
    u32 which = lanes[0].which, present = 0;
    for (u32 i = 0; i < count; i++) {
        if (has_left(lanes + i)) continue;
        registers[i] = lanes[i].registers;
        which = lanes[i].which;
        present++;
    }
    if (which >= AMD_MATRICES_COUNT || amd_matrix_wave(which) != wave) {
        (void)snprintf(why, AMD_WHY_BYTES, "%s: not an instruction for waves of %u lanes",
                       amd_matrix_name(which), wave);
        return false;
    }
    if (present < wave) {
        (void)snprintf(why, AMD_WHY_BYTES, "%s: %u of %u lanes are there",
                       amd_matrix_name(which), present, wave);
        return false;
    }
    return amd_matrix_multiply(which, registers, why);
}

bool amd_wave_meet(struct amd_lane *lanes, u32 count, u32 wave, char why[AMD_WHY_BYTES])
{
    u32 first = 0;
    while (first < count && has_left(lanes + first)) first++;
    if (first == count) return true;
    for (u32 i = first + 1; i < count; i++) {
        if (has_left(lanes + i) || same_place(lanes + i, lanes + first)) continue;
        (void)snprintf(
            why, AMD_WHY_BYTES,
            "diverged lanes at operations of the wave: lane %u waits at %s %u, "
            "lane %u at %s %u",
            first, amd_step_name(lanes[first].step), lanes[first].site, i,
            amd_step_name(lanes[i].step), lanes[i].site);
        return false;
    }
    u64 said = 0;
    switch (lanes[first].step) {
    case AMD_SHUFFLE: return shuffle(lanes, count, wave, why);
    case AMD_MATRIX: return matrix(lanes, count, wave, why);
    case AMD_BALLOT: said = ballot_of(lanes, count); break;
    case AMD_FIRST: said = lanes[first].value; break;
    default: break;
    }
    for (u32 i = 0; i < count; i++) lanes[i].answer = said;
    return true;
}
