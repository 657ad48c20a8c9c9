/* The meter of HTTP/2 frames: what it counts, at whatever bytes the input is cut.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/govern/h2_meter.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define PREFACE     "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define STREAMS     4
#define MESSAGE_MAX 1000

enum {
    DATA,
    HEADERS,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    PUSH,
    PING,
    GOAWAY,
    WINDOW,
    CONTINUATION
};
enum { END_STREAM = 1, PADDED = 8 };

/* What a client sends, under construction. */
struct wire {
    u8 bytes[1 << 18];
    size_t length;
};

static struct wire *wire_make(void)
{
    struct wire *wire = calloc(1, sizeof *wire);
    memcpy(wire->bytes, PREFACE, VX_H2_PREFACE_BYTES);
    wire->length = VX_H2_PREFACE_BYTES;
    return wire;
}

static void wire_add(struct wire *wire, const void *bytes, size_t count)
{
    ck_assert_uint_le(wire->length + count, sizeof wire->bytes);
    if (bytes) memcpy(wire->bytes + wire->length, bytes, count);
    wire->length += count;
}

/* A frame's type and its flags in one number. */
#define KIND(type_, flags_) ((u32)(type_) | (u32)(flags_) << 8)

/* NULL payload: zeros. */
static void frame(struct wire *wire, u32 kind, u32 id, const void *payload, size_t count)
{
    u8 type = (u8)kind, flags = (u8)(kind >> 8);
    u8 head[VX_H2_HEAD_BYTES] = {
        (u8)(count >> 16), (u8)(count >> 8), (u8)count,     type,  flags,
        (u8)(id >> 24),    (u8)(id >> 16),   (u8)(id >> 8), (u8)id};
    wire_add(wire, head, sizeof head);
    wire_add(wire, payload, count);
}

/* The first `count` bytes of a message of `length`. */
static void data(struct wire *wire, u8 flags, u32 id, u32 length, size_t count)
{
    u8 message[4096] = {0, (u8)(length >> 24), (u8)(length >> 16), (u8)(length >> 8),
                        (u8)length};
    frame(wire, KIND(DATA, flags), id, message, count);
}

static void walk(struct vx_h2_meter *meter, struct vx_h2_stream *streams,
                 const struct wire *wire, size_t piece)
{
    vx_h2_meter_init(meter, streams, STREAMS, MESSAGE_MAX);
    for (size_t at = 0; at < wire->length; at += piece) {
        size_t left = wire->length - at;
        vx_h2_meter_walk(meter, wire->bytes + at, left < piece ? left : piece);
    }
}

/* The whole input at once, and then the same input in chunks of every size up to some
 * frames. */
static struct vx_h2_meter walk_all(struct wire *wire)
{
    struct vx_h2_stream rows[STREAMS], others[STREAMS];
    struct vx_h2_meter meter, other;
    walk(&meter, rows, wire, wire->length);
    for (size_t piece = 1; piece < 64; piece++) {
        walk(&other, others, wire, piece);
        ck_assert_uint_eq(other.calls, meter.calls);
        ck_assert_uint_eq(other.work, meter.work);
        ck_assert_uint_eq(other.bytes, meter.bytes);
        ck_assert_uint_eq(other.finished, meter.finished);
        ck_assert_int_eq(other.held, meter.held);
        ck_assert_int_eq(other.announced, meter.announced);
        ck_assert_int_eq(other.unfinished, meter.unfinished);
        ck_assert_int_eq(other.silent, meter.silent);
        ck_assert_int_eq(other.fault, meter.fault);
        ck_assert_int_eq(other.streams_count, meter.streams_count);
    }
    free(wire);
    return meter;
}

START_TEST(one_call_with_its_message)
{
    struct wire *wire = wire_make();
    frame(wire, KIND(SETTINGS, 0), 0, NULL, 0);
    frame(wire, KIND(HEADERS, 4), 1, "\x83\x86\x84", 3);
    data(wire, END_STREAM, 1, 300, 305);
    struct vx_h2_meter meter = walk_all(wire);
    ck_assert_uint_eq(meter.calls, 1);
    ck_assert_uint_eq(meter.work, 1); /* the SETTINGS frame */
    ck_assert_uint_eq(meter.bytes, 305);
    ck_assert_uint_eq(meter.finished, 1);
    ck_assert_int_eq(meter.held, 0);
    ck_assert_int_eq(meter.announced, 0);
    ck_assert_int_eq(meter.unfinished, 0);
    ck_assert_int_eq(meter.silent, 0);
    ck_assert_int_eq(meter.streams_count, 1); /* until we have answered */
    ck_assert_int_eq(meter.fault, VX_H2_SOUND);
}
END_TEST

START_TEST(message_that_is_not_whole_is_held)
{
    struct wire *wire = wire_make();
    frame(wire, KIND(HEADERS, 4), 1, "\x82", 1);
    frame(wire, KIND(HEADERS, 4), 3, "\x82", 1);
    data(wire, 0, 1, 600, 300);
    frame(wire, KIND(DATA, 0), 1, NULL, 301);
    data(wire, 0, 3, 900, 3); /* too short to contain its length */
    struct vx_h2_meter meter = walk_all(wire);
    ck_assert_int_eq(meter.held, 604);
    ck_assert_int_eq(meter.announced, 600);
    ck_assert_int_eq(meter.unfinished, 2);
    ck_assert_uint_eq(meter.finished, 0);
    ck_assert_uint_eq(meter.work, 1); /* the frame of three bytes */
}
END_TEST

/* The rest of a message limits the length of the next read. */
START_TEST(rest_of_the_message_is_known)
{
    struct vx_h2_stream rows[STREAMS];
    struct vx_h2_meter meter;
    struct wire *wire = wire_make();
    frame(wire, KIND(HEADERS, 4), 1, "\x82", 1);
    data(wire, 0, 1, 900, 400);
    walk(&meter, rows, wire, wire->length - 100);
    ck_assert_int_eq(vx_h2_meter_left(&meter), 0); /* between two frames */
    vx_h2_meter_init(&meter, rows, STREAMS, MESSAGE_MAX);
    vx_h2_meter_walk(&meter, wire->bytes, wire->length - 100);
    ck_assert_int_eq(vx_h2_meter_left(&meter), 900 - (400 - 5 - 100));
    free(wire);
}
END_TEST

START_TEST(several_messages_of_one_stream)
{
    struct wire *wire = wire_make();
    frame(wire, KIND(HEADERS, 4), 1, "\x82", 1);
    u8 three[15] = {0, 0, 0, 0, 2, 'a', 'b', 0, 0, 0, 0, 0, 0, 0, 0};
    frame(wire, KIND(DATA, 0), 1, three,
          sizeof three); /* the second has 2 bytes, the next 0, then a new one starts */
    struct vx_h2_meter meter = walk_all(wire);
    ck_assert_uint_eq(meter.finished, 2);
    ck_assert_int_eq(meter.held, 3);
    ck_assert_int_eq(meter.unfinished, 1);
    ck_assert_int_eq(meter.streams_count, 1);
}
END_TEST

/* A reset, or the end of the stream, releases the bytes that were held for it. */
START_TEST(end_of_a_stream_drops_its_message)
{
    for (i32 reset = 0; reset < 2; reset++) {
        struct wire *wire = wire_make();
        frame(wire, KIND(HEADERS, 4), 1, "\x82", 1);
        frame(wire, KIND(HEADERS, 4), 3, "\x82", 1);
        frame(wire, KIND(HEADERS, 4), 5, "\x82", 1);
        data(wire, 0, 1, 600, 300);
        data(wire, 0, 3, 600, 400);
        if (reset)
            frame(wire, KIND(RST_STREAM, 0), 1, "\0\0\0\x8", 4);
        else
            frame(wire, KIND(DATA, END_STREAM), 1, NULL, 0);
        struct vx_h2_meter meter = walk_all(wire);
        ck_assert_int_eq(meter.held, 400);
        ck_assert_int_eq(meter.announced, 600);
        ck_assert_int_eq(meter.unfinished, 1);
        ck_assert_int_eq(meter.silent, 1);
        ck_assert_int_eq(meter.streams_count, reset ? 2 : 3);
        ck_assert_uint_eq(meter.work, 1);
    }
}
END_TEST

/* gRPC ignores streams with even ids, which only a server may start. */
START_TEST(even_stream_is_no_call)
{
    struct wire *wire = wire_make();
    frame(wire, KIND(HEADERS, 4), 2, "\x82", 1);
    data(wire, 0, 2, 600, 300);
    frame(wire, KIND(HEADERS, 4), 1, "\x82", 1);
    struct vx_h2_meter meter = walk_all(wire);
    ck_assert_uint_eq(meter.calls, 1);
    ck_assert_uint_eq(meter.work, 2);
    ck_assert_int_eq(meter.streams_count, 1);
    ck_assert_int_eq(meter.held, 0);
}
END_TEST

START_TEST(trailers_end_a_stream_and_begin_no_call)
{
    struct wire *wire = wire_make();
    frame(wire, KIND(HEADERS, 4), 1, "\x82", 1);
    frame(wire, KIND(HEADERS, 4 | END_STREAM), 1, "\x82", 1);
    frame(wire, KIND(HEADERS, 4 | END_STREAM), 3, "\x82",
          1); /* a call without any message */
    struct vx_h2_meter meter = walk_all(wire);
    ck_assert_uint_eq(meter.calls, 2);
    ck_assert_uint_eq(meter.work, 1);
    ck_assert_int_eq(meter.streams_count, 2);
    ck_assert_int_eq(meter.silent, 0);
}
END_TEST

START_TEST(padding_is_no_message)
{
    struct wire *wire = wire_make();
    frame(wire, KIND(HEADERS, 4), 1, "\x82", 1);
    u8 padded[300] = {20, 0, 0, 0, 2, 0}; /* 279 bytes of data, 20 of padding */
    frame(wire, KIND(DATA, PADDED), 1, padded, sizeof padded);
    u8 only[10] = {9};
    frame(wire, KIND(DATA, PADDED), 1, only, sizeof only);
    u8 beyond[10] = {200}; /* more padding than bytes: gRPC refuses it */
    frame(wire, KIND(DATA, PADDED), 1, beyond, sizeof beyond);
    struct vx_h2_meter meter = walk_all(wire);
    ck_assert_int_eq(meter.held, 279);
    ck_assert_uint_eq(meter.bytes, 279);
    ck_assert_int_eq(meter.announced, 512);
    ck_assert_uint_eq(meter.work, 3);
    ck_assert_int_eq(meter.silent, 0);
}
END_TEST

/* gRPC refuses it with a status once it is whole; far beyond the limit the meter does
 * not wait for that. */
START_TEST(message_beyond_the_limit)
{
    for (u32 over = 0; over < 2; over++) {
        struct wire *wire = wire_make();
        frame(wire, KIND(HEADERS, 4), 1, "\x82", 1);
        /* Nothing after a fault is parsed, not even the end of the stream itself. */
        data(wire, over ? END_STREAM : 0, 1, MESSAGE_MAX + VX_H2_MESSAGE_EXCESS + over,
             1000);
        struct vx_h2_meter meter = walk_all(wire);
        ck_assert_int_eq(meter.fault, over ? VX_H2_MESSAGE_LARGE : VX_H2_SOUND);
        if (!over) ck_assert_int_eq(meter.held, 1000);
        if (!over) ck_assert_int_eq(meter.unfinished, 1);
        ck_assert_int_eq(meter.streams_count, 1);
    }
}
END_TEST

START_TEST(everything_else_is_work)
{
    static const struct {
        u8 type;
        u32 id;
        size_t bytes;
        u64 work;
    } frames[] = {
        {PRIORITY, 7, 5, 1},
        {SETTINGS, 0, 6 * 2700, 1 + 6 * 2700 / VX_H2_UNIT_BYTES},
        {PUSH, 1, 4, 1},
        {PING, 0, 8, 1},
        {GOAWAY, 0, 8, 1},
        {WINDOW, 0, 4, 1},
        {RST_STREAM, 99, 4, 1},
        {0xbe, 0, VX_H2_UNIT_BYTES - 1, 1},
        {0xbe, 0, VX_H2_UNIT_BYTES, 2},
        {DATA, 99, 16384, 1 + 16384 / VX_H2_WASTE_BYTES}, /* of an unknown stream */
        {DATA, 1, 0, 1},
        {DATA, 1, VX_H2_UNIT_BYTES - 1, 1},
        {DATA, 1, VX_H2_UNIT_BYTES, 0},
        {HEADERS, 3, VX_H2_UNIT_BYTES, 1}, /* a call, and its header block */
    };
    for (size_t i = 0; i < VX_COUNT(frames); i++) {
        struct wire *wire = wire_make();
        frame(wire, KIND(HEADERS, 4), 1, "\x82", 1);
        frame(wire, KIND(frames[i].type, 0), frames[i].id, NULL, frames[i].bytes);
        struct vx_h2_meter meter = walk_all(wire);
        ck_assert_msg(meter.work == frames[i].work, "row %zu: expected %llu, got %llu", i,
                      (unsigned long long)frames[i].work, (unsigned long long)meter.work);
        ck_assert_uint_eq(meter.calls, 1 + (frames[i].type == HEADERS));
    }
}
END_TEST

START_TEST(header_block_has_an_end)
{
    for (u32 over = 0; over < 2; over++) {
        struct wire *wire = wire_make();
        static const u8 begin[16384] = {0, 1, 'a', 0x7f, 0xfb, 0x7e}; /* one text */
        frame(wire, KIND(HEADERS, 0), 1, begin, 4096);
        for (i32 i = 0; i < 3; i++) frame(wire, KIND(CONTINUATION, 0), 1, NULL, 4096);
        frame(wire, KIND(CONTINUATION, 4), 1, NULL, over);
        frame(wire, KIND(HEADERS, 4), 3, begin, sizeof begin); /* a block of its own */
        struct vx_h2_meter meter = walk_all(wire);
        ck_assert_int_eq(meter.fault, over ? VX_H2_BLOCK_LONG : VX_H2_SOUND);
        ck_assert_uint_eq(meter.calls, over ? 1 : 2);
    }
}
END_TEST

START_TEST(streams_are_bounded)
{
    for (u32 over = 0; over < 2; over++) {
        struct wire *wire = wire_make();
        for (u32 i = 0; i < STREAMS; i++)
            frame(wire, KIND(HEADERS, 4), 2 * i + 1, "\x82", 1);
        frame(wire, KIND(RST_STREAM, 0), 1, "\0\0\0\x8", 4);
        for (u32 i = 0; i <= over; i++)
            frame(wire, KIND(HEADERS, 4), 2 * (STREAMS + i) + 1, "\x82", 1);
        struct vx_h2_meter meter = walk_all(wire);
        ck_assert_int_eq(meter.fault, over ? VX_H2_STREAMS_MANY : VX_H2_SOUND);
        ck_assert_int_eq(meter.streams_count, STREAMS);
        ck_assert_int_eq(meter.silent, STREAMS);
    }
}
END_TEST

/* Frames that we send, in chunks of every size.  Only a reset ends a stream, and a
 * message that is under way on another stream continues. */
START_TEST(stream_that_we_reset_is_over)
{
    struct vx_h2_stream rows[STREAMS];
    struct vx_h2_meter meter;
    size_t piece = (size_t)_i + 1;
    struct wire *came = wire_make(), *sent = wire_make();
    frame(came, KIND(HEADERS, 4), 1, "\x82", 1);
    frame(came, KIND(HEADERS, 4), 3, "\x82", 1);
    frame(came, KIND(HEADERS, 4), 5, "\x82", 1);
    data(came, 0, 1, 600, 300);
    data(came, 0, 5, 600, 200);
    came->length -= 100; /* in the middle of that frame */
    walk(&meter, rows, came, came->length);
    sent->length = 0; /* a server sends no preface */
    frame(sent, KIND(SETTINGS, 0), 0, NULL, 12);
    frame(sent, KIND(HEADERS, 4), 5, NULL, 20);            /* the answer begins */
    frame(sent, KIND(DATA, END_STREAM), 5, "\0\0\0\3", 4); /* like a reset of 3 */
    frame(sent, KIND(RST_STREAM, 0), 7, NULL, 4);          /* stream 7 is none of those */
    frame(sent, KIND(RST_STREAM, 0), 1, NULL, 4);
    frame(sent, KIND(HEADERS, END_STREAM), 3, NULL, 40);
    frame(sent, KIND(RST_STREAM, 0), 3, NULL, 4);
    for (size_t at = 0; at < sent->length; at += piece) {
        size_t left = sent->length - at;
        vx_h2_meter_sent(&meter, sent->bytes + at, left < piece ? left : piece);
    }
    ck_assert_int_eq(meter.streams_count, 1);
    ck_assert_int_eq(meter.silent, 0);
    ck_assert_int_eq(meter.unfinished, 1);
    ck_assert_int_eq(meter.held, 100);
    ck_assert_int_eq(meter.announced, 600);
    vx_h2_meter_walk(&meter, came->bytes + came->length, 100);
    ck_assert_int_eq(meter.held, 200);
    /* Stream 5 is reset while its frame is under way: the rest of the frame counts for
     * no stream. */
    came->length = 0;
    data(came, 0, 5, 0, 300);
    vx_h2_meter_walk(&meter, came->bytes, 200);
    sent->length = 0;
    frame(sent, KIND(RST_STREAM, 0), 5, NULL, 4);
    vx_h2_meter_sent(&meter, sent->bytes, sent->length);
    ck_assert_int_eq(meter.held, 0);
    ck_assert_int_eq(meter.streams_count, 0);
    vx_h2_meter_walk(&meter, came->bytes + 200, came->length - 200);
    ck_assert_int_eq(meter.held, 0);
    ck_assert_int_eq(meter.unfinished, 0);
    ck_assert_int_eq(meter.announced, 0);
    ck_assert_int_eq(meter.fault, VX_H2_SOUND);
    free(came);
    free(sent);
}
END_TEST

/* A piece of a message keeps its buffer until the message is whole; whole ones behind the
 * first of their stream keep theirs until they are taken. */
START_TEST(messages_keep_buffers)
{
    enum { BUFFER = 8192 };
    static const u8 nothing[21];
    struct vx_h2_stream rows[STREAMS];
    struct vx_h2_meter meter;
    vx_h2_meter_init(&meter, rows, STREAMS, MESSAGE_MAX);
    struct wire *wire = wire_make();
    frame(wire, KIND(HEADERS, 4), 1, "\x82", 1);
    frame(wire, KIND(HEADERS, 4), 3, "\x82", 1);
    vx_h2_meter_buffer(&meter, BUFFER);
    vx_h2_meter_walk(&meter, wire->bytes, wire->length);
    static const u8 head[9] = {0, 0, 40, DATA, 0, 0, 0, 0, 1};
    static const u8 part[40] = {0, 0, 0, 1, 0}; /* of 256 bytes, with the prefix 261 */
    for (i32 i = 1; i <= 6; i++) {
        vx_h2_meter_buffer(&meter, BUFFER);
        vx_h2_meter_walk(&meter, head, sizeof head);
        vx_h2_meter_walk(&meter, part, sizeof part);
        ck_assert_int_eq(meter.came, 40 * i);
        ck_assert_int_eq(meter.held, BUFFER * i + VX_H2_PIECE_BYTES * (i - 1));
    }
    wire->length = 0;
    frame(wire, KIND(DATA, 0), 1, nothing, 21); /* the rest, and messages of nothing */
    vx_h2_meter_walk(&meter, wire->bytes, wire->length);
    ck_assert_int_eq(meter.held, 0);
    ck_assert_int_eq(meter.waiting, 0); /* the first of a stream is taken at once */
    for (i32 i = 1; i <= 3; i++) {
        vx_h2_meter_buffer(&meter, BUFFER);
        wire->length = 0;
        frame(wire, KIND(DATA, 0), 1, nothing, 10); /* two of no bytes */
        vx_h2_meter_walk(&meter, wire->bytes, wire->length);
        ck_assert_int_eq(meter.waiting, 2 * i);
        ck_assert_int_eq(vx_h2_meter_waste(&meter), i * (BUFFER - 10));
    }
    for (i32 i = 5; i >= 0; i--) {
        vx_h2_meter_taken(&meter);
        ck_assert_int_eq(meter.waiting, i);
    }
    ck_assert_int_eq(vx_h2_meter_waste(&meter), 0);
    vx_h2_meter_taken(&meter); /* one more than it knows of */
    ck_assert_int_eq(meter.waiting, 0);
    free(wire);
}
END_TEST

/* Random bytes: the bytes held are the sum of the streams', and never negative. */
START_TEST(random_bytes_keep_the_sums)
{
    u32 seed = 12345u + (u32)_i;
    struct vx_h2_stream rows[STREAMS];
    struct vx_h2_meter meter;
    vx_h2_meter_init(&meter, rows, STREAMS, MESSAGE_MAX);
    struct wire *wire = wire_make();
    for (i32 i = 0; i < 2000; i++) {
        u8 payload[64];
        for (size_t k = 0; k < sizeof payload; k++) {
            seed = seed * 1664525u + 1013904223u;
            payload[k] = seed >> 30 ? 0 : (u8)(seed >> 24);
        }
        frame(wire, KIND(payload[0] % 10, payload[1] % 16), payload[2] % 16u, payload + 3,
              payload[4] % 60u);
    }
    vx_h2_meter_walk(&meter, wire->bytes, wire->length);
    i64 held = 0;
    i32 unfinished = 0, silent = 0;
    for (i32 i = 0; i < meter.streams_count; i++) {
        held += rows[i].got;
        unfinished += rows[i].got > 0;
        silent += !rows[i].spoke;
        if (i) ck_assert_uint_lt(rows[i - 1].id, rows[i].id);
    }
    ck_assert_int_eq(meter.held, held);
    ck_assert_int_eq(meter.unfinished, unfinished);
    ck_assert_int_eq(meter.silent, silent);
    free(wire);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("h2_meter");
    TCase *tests = tcase_create("h2_meter");
    tcase_add_test(tests, one_call_with_its_message);
    tcase_add_test(tests, message_that_is_not_whole_is_held);
    tcase_add_test(tests, rest_of_the_message_is_known);
    tcase_add_test(tests, several_messages_of_one_stream);
    tcase_add_test(tests, end_of_a_stream_drops_its_message);
    tcase_add_test(tests, even_stream_is_no_call);
    tcase_add_test(tests, trailers_end_a_stream_and_begin_no_call);
    tcase_add_test(tests, padding_is_no_message);
    tcase_add_test(tests, message_beyond_the_limit);
    tcase_add_test(tests, everything_else_is_work);
    tcase_add_test(tests, header_block_has_an_end);
    tcase_add_test(tests, messages_keep_buffers);
    tcase_add_test(tests, streams_are_bounded);
    tcase_add_loop_test(tests, stream_that_we_reset_is_over, 0, 40);
    tcase_add_loop_test(tests, random_bytes_keep_the_sums, 0, 50);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
