/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/bench/load.h"

#include "clients/c/memory.h"

#include <string.h>

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>

enum { ANSWER_PARAMETERS = 4, ANSWER_OUTPUTS = 5, ANSWER_RAW = 6 };
/* The limit for a parameter and for an output's name and shape: a longer one is not one that we
 * expect. */
#define SMALL_BYTES_MAX 512

/* A 64-bit hash of bytes that come in parts: four lanes, so that a core hashes some 10 GB/s. */
struct hash {
    uint64_t lanes[4];
    uint8_t rest[32];
    size_t rest_bytes;
    uint64_t bytes;
};
#define PRIME UINT64_C(0x9fb21c651e98df25)

static uint64_t mix(uint64_t lane, uint64_t word)
{
    uint64_t x = (lane ^ word) * PRIME;
    return x << 29 | x >> 35;
}

static void hash_blocks(struct hash *hash, const uint8_t *data, size_t blocks)
{
    uint64_t a = hash->lanes[0], b = hash->lanes[1], c = hash->lanes[2],
             d = hash->lanes[3];
    for (size_t i = 0; i < blocks; i++) {
        uint64_t words[4];
        memcpy(words, data + i * 32, 32);
        a = mix(a, words[0]);
        b = mix(b, words[1]);
        c = mix(c, words[2]);
        d = mix(d, words[3]);
    }
    memcpy(hash->lanes, (uint64_t[]){a, b, c, d}, sizeof hash->lanes);
}

static void hash_add(struct hash *hash, const uint8_t *data, size_t bytes)
{
    hash->bytes += bytes;
    if (hash->rest_bytes) {
        size_t take = 32 - hash->rest_bytes;
        if (take > bytes) take = bytes;
        memcpy(hash->rest + hash->rest_bytes, data, take);
        hash->rest_bytes += take;
        data += take;
        bytes -= take;
        if (hash->rest_bytes < 32) return;
        hash_blocks(hash, hash->rest, 1);
        hash->rest_bytes = 0;
    }
    hash_blocks(hash, data, bytes / 32);
    hash->rest_bytes = bytes % 32;
    memcpy(hash->rest, data + bytes - hash->rest_bytes, hash->rest_bytes);
}

static uint64_t hash_end(struct hash *hash)
{
    memset(hash->rest + hash->rest_bytes, 0, 32 - hash->rest_bytes);
    hash_blocks(hash, hash->rest, 1);
    uint64_t sum = hash->bytes * PRIME;
    for (int i = 0; i < 4; i++) {
        sum = mix(sum, hash->lanes[i]);
        sum ^= sum >> 31;
    }
    return sum * PRIME;
}

/* The next `bytes` of the message, where they lie. */
static void hash_walk(struct hash *hash, struct voxel_walk *walk, size_t bytes)
{
    struct voxel_walk at = *walk;
    size_t left = bytes;
    while (left) {
        const struct voxel_span *span = &at.spans->list[at.index];
        size_t here = span->bytes - at.offset;
        if (here > left) here = left;
        hash_add(hash, span->data + at.offset, here);
        left -= here;
        at.index++;
        at.offset = 0;
    }
    voxel_walk_skip(walk, bytes);
}

/* coords_ref of a map entry: key 1, value 2 with a text 3. */
static void read_parameter(const uint8_t *data, size_t bytes, struct load_answer *answer)
{
    struct voxel_reader r = voxel_reader_make(data, bytes);
    struct voxel_field field;
    bool ours = false;
    while (voxel_reader_next(&r, &field)) {
        if (field.wire != VOXEL_WIRE_LEN) continue;
        if (field.number == 1)
            ours = field.bytes == 10 && memcmp(field.data, "coords_ref", 10) == 0;
        if (field.number != 2 || !ours) continue;
        struct voxel_reader inner = voxel_reader_make(field.data, field.bytes);
        struct voxel_field text;
        while (voxel_reader_next(&inner, &text))
            if (text.number == 3 && text.wire == VOXEL_WIRE_LEN &&
                text.bytes < sizeof answer->ref) {
                memcpy(answer->ref, text.data, text.bytes);
                answer->ref[text.bytes] = '\0';
            }
    }
}

static bool read_infer(const struct voxel_spans *spans, struct load_answer *answer,
                       struct hash *hash)
{
    struct voxel_walk walk = voxel_walk_make(spans);
    struct voxel_walk_field field;
    uint8_t small[SMALL_BYTES_MAX];
    int32_t outputs = 0, raws = 0;
    bool bad;
    while (voxel_walk_next(&walk, &field, &bad)) {
        if (field.wire != VOXEL_WIRE_LEN) return false;
        if (field.number == ANSWER_RAW) {
            raws++;
            uint64_t bytes = field.bytes;
            hash_add(hash, (const uint8_t *)&bytes, sizeof bytes);
            hash_walk(hash, &walk, field.bytes);
        } else if (field.number == ANSWER_OUTPUTS) {
            outputs++;
            hash_walk(hash, &walk, field.bytes);
        } else if (field.number == ANSWER_PARAMETERS && field.bytes <= sizeof small) {
            voxel_walk_copy(&walk, small, field.bytes);
            read_parameter(small, field.bytes, answer);
        } else {
            voxel_walk_skip(&walk, field.bytes);
        }
    }
    return !bad && outputs > 0 && outputs == raws;
}

static bool spans_fill(struct load_spans *spans, grpc_byte_buffer_reader *reader,
                       struct voxel_spans *view)
{
    grpc_slice *slice;
    while (grpc_byte_buffer_reader_peek(reader, &slice)) {
        if (view->count == spans->room) {
            size_t room = spans->room ? spans->room * 2 : 64;
            struct voxel_span *more =
                voxel_memory_grow(spans->list, room * sizeof *spans->list);
            if (!more) return false;
            spans->list = more;
            spans->room = room;
        }
        spans->list[view->count++] =
            (struct voxel_span){GRPC_SLICE_START_PTR(*slice), GRPC_SLICE_LENGTH(*slice)};
    }
    view->list = spans->list;
    return true;
}

bool load_answer_read(grpc_byte_buffer *message, bool is_infer, struct load_spans *spans,
                      struct load_answer *answer)
{
    struct hash hash = {.lanes = {1, 2, 3, 4}};
    struct voxel_spans view = {NULL, 0};
    grpc_byte_buffer_reader reader;
    *answer = (struct load_answer){.bytes = grpc_byte_buffer_length(message)};
    if (!grpc_byte_buffer_reader_init(&reader, message)) return false;
    bool good = spans_fill(spans, &reader, &view);
    if (good && is_infer)
        good = read_infer(&view, answer, &hash);
    else
        for (size_t i = 0; good && i < view.count; i++)
            hash_add(&hash, view.list[i].data, view.list[i].bytes);
    grpc_byte_buffer_reader_destroy(&reader);
    answer->hash = hash_end(&hash);
    return good;
}
