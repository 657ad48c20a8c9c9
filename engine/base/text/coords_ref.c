/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/base/text/coords_ref.h"

#include "engine/base/process/check.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* Odd numbers that nobody chose: the fractions of the square roots of 2, 3, 5 and 7. */
#define ROOT_2 UINT64_C(0x6a09e667f3bcc909)
#define ROOT_3 UINT64_C(0xbb67ae8584caa73b)
#define ROOT_5 UINT64_C(0x3c6ef372fe94f82b)
#define ROOT_7 UINT64_C(0xa54ff53a5f1d36f1)

/* Four independent lanes of 16 bytes: while one lane waits for its multiplication, the
 * others compute. */
#define LANES       4
#define LANE_BYTES  16
#define BLOCK_BYTES (LANES * LANE_BYTES)

void vx_coords_ref_key_make(struct vx_coords_ref_key *key)
{
    /* Once the system has entropy, getrandom returns up to 256 bytes at once. */
    ssize_t got = getrandom(key->words, sizeof key->words, 0);
    VX_ASSERT(got == (ssize_t)sizeof key->words);
}

/* The 128-bit product of two words: its halves, XORed. */
static u64 fold(u64 a, u64 b)
{
    __extension__ typedef unsigned __int128 u128;
    u128 product = (u128)a * b;
    return (u64)product ^ (u64)(product >> 64);
}

static u64 turn(u64 word, int bits)
{
    return word << bits | word >> (64 - bits);
}

struct state {
    u64 low, high;
};

/* Mixes 16 bytes into a lane.  For given bytes each half of the state is mapped one to
 * one, so earlier bytes are never lost.  The bytes enter as two products under secret
 * keys.  A factor of zero would hide the other factor; an attacker can only guess it, one
 * chance in 2^64, and the other product still depends on both words. */
static inline void lane_take(struct state *lane, const u8 *at, const u64 keys[4])
{
    u64 a, b;
    memcpy(&a, at, sizeof a);
    memcpy(&b, at + sizeof a, sizeof b);
    lane->low = (turn(lane->low, 27) ^ fold(a ^ keys[0], b ^ keys[1])) * 5 + ROOT_3;
    lane->high = (turn(lane->high, 31) ^ fold(a ^ keys[2], b ^ keys[3])) * 9 + ROOT_7;
}

static inline void block_take(struct state lanes[LANES], const u8 *at, const u64 keys[4])
{
    lane_take(&lanes[0], at, keys);
    lane_take(&lanes[1], at + LANE_BYTES, keys);
    lane_take(&lanes[2], at + 2 * LANE_BYTES, keys);
    lane_take(&lanes[3], at + 3 * LANE_BYTES, keys);
}

/* A one-to-one map in which every bit of the word affects every bit of the result. */
static u64 stir(u64 word)
{
    word = (word ^ word >> 32) * ROOT_2;
    word = (word ^ word >> 29) * ROOT_5;
    return word ^ word >> 32;
}

/* Mixes a lane into the end state.  Lanes enter one after the other, so that swapping two
 * of them changes the hash. */
static void end_take(struct state *end, const struct state *lane)
{
    end->low = stir(end->low ^ stir(lane->low)) + end->high;
    end->high = stir(end->high ^ stir(lane->high)) + turn(end->low, 23);
}

struct vx_coords_ref vx_coords_ref_of(const struct vx_coords_ref_key *key,
                                      const i32 *coords, i32 columns, i64 voxels)
{
    const u8 *at = (const u8 *)coords;
    size_t left = (size_t)voxels * (size_t)columns * sizeof *coords;
    const u64 keys[4] = {key->words[0], key->words[1], key->words[2], key->words[3]};
    struct state lanes[LANES] = {
        {ROOT_2, ROOT_3}, {ROOT_3, ROOT_5}, {ROOT_5, ROOT_7}, {ROOT_7, ROOT_2}};
    for (; left >= BLOCK_BYTES; left -= BLOCK_BYTES, at += BLOCK_BYTES)
        block_take(lanes, at, keys);
    u8 rest[BLOCK_BYTES] = {0};
    if (left) memcpy(rest, at, left);
    block_take(lanes, rest, keys);
    struct state end = {keys[0] ^ (u64)voxels, keys[1] ^ (u64)columns};
    end_take(&end, &lanes[0]);
    end_take(&end, &lanes[1]);
    end_take(&end, &lanes[2]);
    end_take(&end, &lanes[3]);
    end_take(&end, &(struct state){keys[2], keys[3]});
    if (!(end.low | end.high)) end.low = 1;
    return (struct vx_coords_ref){end.low, end.high};
}

void vx_coords_ref_print(struct vx_coords_ref coords_ref,
                         char text[VX_COORDS_REF_TEXT_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < 16; i++) {
        text[i] = digits[coords_ref.high >> (60 - 4 * i) & 15];
        text[16 + i] = digits[coords_ref.low >> (60 - 4 * i) & 15];
    }
    text[32] = '\0';
}

void vx_coords_ref_print_short(struct vx_coords_ref coords_ref,
                               char text[VX_COORDS_REF_SHORT_BYTES])
{
    char all[VX_COORDS_REF_TEXT_BYTES];
    vx_coords_ref_print(coords_ref, all);
    snprintf(text, VX_COORDS_REF_SHORT_BYTES, "%.*s...", VX_COORDS_REF_SHORT_DIGITS, all);
}

struct vx_coords_ref vx_coords_ref_mask(const struct vx_coords_ref_key *key,
                                        const char *owner)
{
    i32 words[64] = {0};
    const size_t length = strlen(owner);
    VX_ASSERT(length < sizeof words);
    if (!length) return (struct vx_coords_ref){0};
    memcpy(words, owner, length);
    return vx_coords_ref_of(key, words, 1, VX_COUNT(words));
}

static bool digit_value(char digit, u64 *value)
{
    if (digit >= '0' && digit <= '9')
        *value = (u64)(digit - '0');
    else if (digit >= 'a' && digit <= 'f')
        *value = (u64)(digit - 'a') + 10;
    else
        return false;
    return true;
}

bool vx_coords_ref_parse(const char *text, struct vx_coords_ref *coords_ref)
{
    u64 halves[2] = {0, 0};
    for (int i = 0; i < 32; i++) {
        u64 value;
        if (!digit_value(text[i], &value)) return false;
        halves[i / 16] = halves[i / 16] << 4 | value;
    }
    *coords_ref = (struct vx_coords_ref){.low = halves[1], .high = halves[0]};
    return !text[32] && vx_coords_ref_there(*coords_ref);
}
