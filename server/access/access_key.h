/* access_key - what a client presents, as a hash: a token, or the name in a certificate.
 *
 * A token is 256 random bits, so nobody can guess one, and one plain SHA-256 is enough:
 * salts and slow hashes are for passwords, which people choose.  Only the hash is kept,
 * in the file of tokens and in memory.
 *
 *   vx_access_key_of(VX_ACCESS_TOKEN, text, length, &key);
 *   if (vx_access_key_same(&key, &entry)) ...
 *
 * Owner    values.  A token's own bytes are never copied, but for the block that is
 *          hashed, which is wiped.
 * Thread   any.
 * Limits   VX_ACCESS_TOKEN_BYTES_MIN and _MAX.
 * Fails    bearer: UNAUTHENTICATED for metadata that holds no token; its sentence never
 *          has what came.  token_make: UNAVAILABLE if the system gives no random bytes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_SERVER_ACCESS_KEY_H
#define VX_SERVER_ACCESS_KEY_H

#include "engine/base/status.h"
#include "engine/base/text/sha256.h"

/* Of a token: 16 random bytes in hexadecimal digits have 32, ours have 43; the longest is
 * far below the 8 KiB that gRPC takes as metadata. */
#define VX_ACCESS_TOKEN_BYTES_MIN 32
#define VX_ACCESS_TOKEN_BYTES_MAX 256
/* 32 bytes in base64url without padding, and a NUL. */
#define VX_ACCESS_TOKEN_TEXT_BYTES 44

enum vx_access_key_kind { VX_ACCESS_TOKEN, VX_ACCESS_CERTIFICATE };

struct vx_access_key {
    enum vx_access_key_kind kind;
    u8 digest[VX_SHA256_BYTES];
};

void vx_access_key_of(enum vx_access_key_kind kind, const void *text, size_t length,
                      struct vx_access_key *key);
/* Takes the same time for any two keys. */
bool vx_access_key_same(const struct vx_access_key *a, const struct vx_access_key *b);
/* 64 hexadecimal digits; false for any other text. */
bool vx_access_key_read(const char *hex, struct vx_access_key *key);

/* Finds the token in "Bearer TOKEN", the value of `authorization`. */
VX_MUST_USE vx_status vx_access_bearer(const char *value, size_t length,
                                       struct vx_why *why, const char **token,
                                       size_t *token_length);

/* A new token of 256 random bits.  The caller wipes it. */
VX_MUST_USE vx_status vx_access_token_make(char token[VX_ACCESS_TOKEN_TEXT_BYTES]);

#endif
