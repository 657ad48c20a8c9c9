/* sha256 - the hash of FIPS 180-4, which names what is stored by content.
 *
 *   struct vx_sha256 sha;
 *   vx_sha256_init(&sha);
 *   vx_sha256_add(&sha, bytes, count);
 *   vx_sha256_finish(&sha, digest);
 *
 * Owner    the caller's struct; nothing to release.
 * Thread   one at a time per struct.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_SHA256_H
#define VX_ENGINE_BASE_SHA256_H

#include "engine/base/types.h"

#define VX_SHA256_BYTES     32
#define VX_SHA256_HEX_BYTES 65 /* two digits a byte and a NUL */

struct vx_sha256 {
    u32 state[8];
    u64 bytes; /* added so far */
    u8 block[64];
};

void vx_sha256_init(struct vx_sha256 *sha);
void vx_sha256_add(struct vx_sha256 *sha, const void *data, size_t bytes);
/* The struct must be initialised again before it is used again. */
void vx_sha256_finish(struct vx_sha256 *sha, u8 digest[VX_SHA256_BYTES]);
void vx_sha256_hex(const u8 digest[VX_SHA256_BYTES], char text[VX_SHA256_HEX_BYTES]);

#endif
