/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/text/sha256.h"

#include <string.h>

#define BLOCK_BYTES 64
#define ROUNDS      64

/* The first 32 bits of the fractions of the cube roots of the first 64 primes. */
static const u32 constants[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
    0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
    0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
    0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
    0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
    0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
    0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
    0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
    0xc67178f2,
};

static u32 turn(u32 value, int bits)
{
    return value >> bits | value << (32 - bits);
}

static u32 big_endian(const u8 *bytes)
{
    return (u32)bytes[0] << 24 | (u32)bytes[1] << 16 | (u32)bytes[2] << 8 | bytes[3];
}

static void mix(u32 state[8], const u8 *block)
{
    u32 w[ROUNDS];
    for (int i = 0; i < 16; i++) w[i] = big_endian(block + i * 4);
    for (int i = 16; i < ROUNDS; i++) {
        u32 s0 = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3;
        u32 s1 = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    u32 a = state[0], b = state[1], c = state[2], d = state[3];
    u32 e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < ROUNDS; i++) {
        u32 t1 = h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) +
                 constants[i] + w[i];
        u32 t2 = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g, g = f, f = e, e = d + t1;
        d = c, c = b, b = a, a = t1 + t2;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

void vx_sha256_init(struct vx_sha256 *sha)
{
    /* The first 32 bits of the fractions of the square roots of the first 8 primes. */
    *sha = (struct vx_sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void vx_sha256_add(struct vx_sha256 *sha, const void *data, size_t bytes)
{
    const u8 *at = data;
    while (bytes) {
        size_t used = sha->bytes % BLOCK_BYTES;
        size_t take = BLOCK_BYTES - used;
        if (take > bytes) take = bytes;
        memcpy(sha->block + used, at, take);
        sha->bytes += take;
        at += take;
        bytes -= take;
        if (used + take == BLOCK_BYTES) mix(sha->state, sha->block);
    }
}

void vx_sha256_finish(struct vx_sha256 *sha, u8 digest[VX_SHA256_BYTES])
{
    static const u8 end[BLOCK_BYTES] = {0x80};
    u64 bits = sha->bytes * 8;
    size_t used = sha->bytes % BLOCK_BYTES;
    vx_sha256_add(sha, end, used < 56 ? 56 - used : BLOCK_BYTES + 56 - used);
    u8 length[8];
    for (int i = 0; i < 8; i++) length[i] = (u8)(bits >> (56 - i * 8));
    vx_sha256_add(sha, length, sizeof length);
    for (int i = 0; i < VX_SHA256_BYTES; i++)
        digest[i] = (u8)(sha->state[i / 4] >> (24 - i % 4 * 8));
}

void vx_sha256_hex(const u8 digest[VX_SHA256_BYTES], char text[VX_SHA256_HEX_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < VX_SHA256_BYTES; i++) {
        text[i * 2] = digits[digest[i] >> 4];
        text[i * 2 + 1] = digits[digest[i] & 15];
    }
    text[VX_SHA256_BYTES * 2] = 0;
}
