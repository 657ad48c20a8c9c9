/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/digest.h"

#include "clients/c/region.h"

#include <string.h>

/* Constants without a pattern: the digits of pi, as in Blowfish. */
#define PI_0 0x243f6a8885a308d3u
#define PI_1 0x13198a2e03707345u
#define PI_2 0xa4093822299f31d1u
#define PI_3 0x082efa98ec4e6c89u

/* Folds both halves of the product, so that all bits of either factor mix. */
static uint64_t mix(uint64_t a, uint64_t b)
{
    __extension__ typedef unsigned __int128 wide;
    wide product = (wide)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Two chains over the same words, with different constants. */
static void digest_words(struct voxel_digest *digest, uint64_t first, uint64_t second)
{
    digest->words[0] = mix(first ^ digest->words[0] ^ PI_0, second ^ PI_1);
    digest->words[1] = mix(second ^ digest->words[1] ^ PI_2, first ^ PI_3);
}

static void digest_bytes(struct voxel_digest *digest, const uint8_t *bytes, size_t count)
{
    uint64_t words[2] = {0, 0};
    for (; count >= sizeof words; bytes += sizeof words, count -= sizeof words) {
        memcpy(words, bytes, sizeof words);
        digest_words(digest, words[0], words[1]);
    }
    memset(words, 0, sizeof words);
    if (count) memcpy(words, bytes, count);
    digest_words(digest, words[0], words[1]);
}

bool voxel_digest_coords(const struct voxel_request *request, struct voxel_digest *digest)
{
    *digest = (struct voxel_digest){{0, 0}};
    for (int32_t i = 0; request->inputs && i < request->inputs_count; i++) {
        const struct voxel_tensor *input = &request->inputs[i];
        if (input->type != VOXEL_INT32) continue;
        const uint8_t *bytes = voxel_region_tensor(input);
        if (!bytes && input->bytes) {
            *digest = (struct voxel_digest){{0, 0}};
            return false;
        }
        digest_words(digest, (uint64_t)input->rank, input->bytes);
        for (int32_t d = 0; d < input->rank && d < VOXEL_RANK_MAX; d++)
            digest_words(digest, (uint64_t)d, (uint64_t)input->shape[d]);
        digest_bytes(digest, bytes, input->bytes);
    }
    return true;
}

bool voxel_digest_same(const struct voxel_digest *a, const struct voxel_digest *b)
{
    return a->words[0] == b->words[0] && a->words[1] == b->words[1];
}
