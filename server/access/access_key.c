/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/access/access_key.h"

#include <string.h>
#include <strings.h>
#include <sys/random.h>

void vx_access_key_of(enum vx_access_key_kind kind, const void *text, size_t length,
                      struct vx_access_key *key)
{
    struct vx_sha256 sha;
    *key = (struct vx_access_key){.kind = kind};
    vx_sha256_init(&sha);
    vx_sha256_add(&sha, text, length);
    vx_sha256_finish(&sha, key->digest);
    explicit_bzero(&sha, sizeof sha); /* its block holds the token */
}

bool vx_access_key_same(const struct vx_access_key *a, const struct vx_access_key *b)
{
    u64 differ = (u64)a->kind ^ (u64)b->kind;
    for (size_t i = 0; i < VX_SHA256_BYTES; i += sizeof(u64)) {
        u64 of_a, of_b;
        memcpy(&of_a, a->digest + i, sizeof of_a);
        memcpy(&of_b, b->digest + i, sizeof of_b);
        differ |= of_a ^ of_b;
        /* The compiler must not know `differ`, or it could end at a first difference. */
        __asm__ volatile("" : "+r"(differ));
    }
    return !differ;
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

bool vx_access_key_read(const char *hex, struct vx_access_key *key)
{
    if (strlen(hex) != 2 * VX_SHA256_BYTES) return false;
    *key = (struct vx_access_key){.kind = VX_ACCESS_TOKEN};
    for (size_t i = 0; i < VX_SHA256_BYTES; i++) {
        int high = digit_of(hex[2 * i]), low = digit_of(hex[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        key->digest[i] = (u8)(high << 4 | low);
    }
    return true;
}

/* The characters of RFC 6750's b64token. */
static bool is_token(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        bool digit = c >= '0' && c <= '9';
        if (!letter && !digit && (!c || !strchr("-._~+/=", c))) return false;
    }
    return true;
}

vx_status vx_access_bearer(const char *value, size_t length, struct vx_why *why,
                           const char **token, size_t *token_length)
{
    static const char scheme[] = "Bearer ";
    size_t skip = sizeof scheme - 1;
    bool bearer = length > skip && !strncasecmp(value, scheme, skip);
    VX_ENSURE(bearer, UNAUTHENTICATED,
              "expected the metadata 'authorization' to be 'Bearer TOKEN'; something "
              "else came");
    while (skip < length && value[skip] == ' ') skip++;
    size_t left = length - skip;
    VX_ENSURE_WHY(left >= VX_ACCESS_TOKEN_BYTES_MIN && left <= VX_ACCESS_TOKEN_BYTES_MAX,
                  why, UNAUTHENTICATED, "a token has an impossible length",
                  "expected a token of %d to %d characters in the metadata "
                  "'authorization', got %zu",
                  VX_ACCESS_TOKEN_BYTES_MIN, VX_ACCESS_TOKEN_BYTES_MAX, left);
    VX_ENSURE(is_token(value + skip, left), UNAUTHENTICATED,
              "expected a token of letters, digits and - . _ ~ + / = in the metadata "
              "'authorization'; other characters came");
    *token = value + skip;
    *token_length = left;
    return VX_OK;
}

vx_status vx_access_token_make(char token[VX_ACCESS_TOKEN_TEXT_BYTES])
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    u8 random[33] = {0}; /* 32 and one that stays zero: groups of three */
    size_t have = 0;
    while (have < 32) {
        ssize_t got = getrandom(random + have, 32 - have, 0);
        VX_ENSURE(got > 0, UNAVAILABLE, "the system gives no random bytes");
        have += (size_t)got;
    }
    for (size_t i = 0; i < VX_ACCESS_TOKEN_TEXT_BYTES - 1; i++) {
        const u8 *group = random + i / 4 * 3;
        u32 bits = (u32)group[0] << 16 | (u32)group[1] << 8 | group[2];
        token[i] = letters[bits >> (18 - i % 4 * 6) & 63];
    }
    token[VX_ACCESS_TOKEN_TEXT_BYTES - 1] = '\0';
    explicit_bzero(random, sizeof random);
    return VX_OK;
}
