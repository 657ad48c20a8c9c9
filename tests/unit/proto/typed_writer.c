/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/proto/typed_writer.h"

#include "engine/base/process/check.h"

#include <stdlib.h>
#include <string.h>

#define VALUES_MAX 40
#define MANY_MAX   1000 /* now and then; three such inputs fit a message of the tests */
#define INPUTS     3

enum { VARINT, FIXED64, BYTES, FIXED32 = 5 };

/* The lists of InferTensorContents by their numbers: how a value is sent by itself. */
static const int alone[8] = {0, VARINT, VARINT, VARINT, VARINT, VARINT, FIXED32, FIXED64};

static const struct datatype {
    const char *name;
    int list, bits; /* of a value that fits; 0: none has to */
    bool is_signed;
} datatypes[] = {
    {"BOOL", 1, 0, false},    {"INT8", 2, 8, true},    {"INT16", 2, 16, true},
    {"INT32", 2, 0, true},    {"INT64", 3, 0, true},   {"UINT8", 4, 8, false},
    {"UINT16", 4, 16, false}, {"UINT32", 4, 0, false}, {"UINT64", 5, 0, false},
    {"FP32", 6, 0, false},    {"FP64", 7, 0, false},
};

/* What goes wrong in a request. */
enum mistake {
    NOTHING,
    COUNT,       /* a value more or less */
    MISFIT,      /* values of all 64 bits */
    OTHER_LIST,  /* a value in another list */
    TEXTS,       /* a value in bytes_contents */
    WRONG_TYPE,  /* a value with another list's wire type */
    CUT_LIST,    /* a packed list that ends inside a value */
    LONG_VALUE,  /* a varint of 11 bytes */
    LONG_HEADER, /* a tag or a length of 6 bytes */
    NO_LIST,     /* a datatype that has none */
    RAW,         /* a raw tensor beside the contents */
    MISTAKES,
};

struct writer {
    struct wire *wire;
    struct dice *dice;
    enum mistake mistake;
    int plain; /* 1: nothing has more bytes than it needs */
};

static bool one_of(struct writer *writer, u64 sides)
{
    return dice_roll(writer->dice, sides) == 0;
}

/* With up to `most` bytes. */
static void write_varint(struct writer *writer, u64 value, int most)
{
    struct wire *wire = writer->wire;
    int bytes = 1, padded;
    for (u64 rest = value >> 7; rest; rest >>= 7) bytes++;
    padded = bytes;
    if (!writer->plain && bytes < most && one_of(writer, 3))
        padded += 1 + (int)dice_roll(writer->dice, (u64)(most - bytes));
    for (int i = 0; i < padded; i++) {
        const u8 bits = (u8)(i < 10 ? value >> (7 * i) & 0x7f : 0);
        wire_add(wire, &(u8){(u8)(bits | (i < padded - 1 ? 0x80 : 0))}, 1);
    }
}

static void write_header(struct writer *writer, u64 value)
{
    if (writer->mistake == LONG_HEADER && one_of(writer, 20)) {
        for (int i = 0; i < 5; i++)
            wire_add(writer->wire, &(u8){(u8)((value >> (7 * i) & 0x7f) | 0x80)}, 1);
        wire_add(writer->wire, "", 1);
        return;
    }
    write_varint(writer, value, 5);
}

static void write_tag(struct writer *writer, int number, int type)
{
    write_header(writer, (u64)number << 3 | (u64)type);
}

static void write_bytes(struct writer *writer, int number, const void *bytes,
                        size_t length)
{
    write_tag(writer, number, BYTES);
    write_header(writer, length);
    wire_add(writer->wire, bytes, length);
}

static void write_text(struct writer *writer, int number, const char *text)
{
    write_bytes(writer, number, text, strlen(text));
}

/* A message: begun by taking its own piece of wire, ended by adding that to the outer one. */
static struct wire *inner_begin(struct writer *writer)
{
    struct wire *outer = writer->wire;
    writer->wire = malloc(sizeof *writer->wire);
    VX_ASSERT(writer->wire);
    writer->wire->length = 0;
    return outer;
}

static void inner_end(struct writer *writer, struct wire *outer, int number)
{
    struct wire *inner = writer->wire;
    writer->wire = outer;
    write_bytes(writer, number, inner->bytes, inner->length);
    free(inner);
}

/* A field that no message of ours has. */
static void write_unknown(struct writer *writer)
{
    static const int types[] = {VARINT, FIXED64, BYTES, FIXED32};
    const int type = types[dice_roll(writer->dice, 4)];
    u64 bits = dice_roll(writer->dice, UINT64_MAX);
    if (type == BYTES) {
        write_bytes(writer, 9 + (int)dice_roll(writer->dice, 40), &bits,
                    dice_roll(writer->dice, 9));
        return;
    }
    write_tag(writer, 9 + (int)dice_roll(writer->dice, 40), type);
    if (type == VARINT) write_varint(writer, bits, 10);
    if (type == FIXED64) wire_add(writer->wire, &bits, 8);
    if (type == FIXED32) wire_add(writer->wire, &bits, 4);
}

/* Small ones, those at the borders of what fits, and any. */
static u64 pick_value(struct writer *writer, const struct datatype *datatype)
{
    const u64 any = dice_roll(writer->dice, UINT64_MAX);
    u64 value = any >> dice_roll(writer->dice, 64);
    if (one_of(writer, 2)) value = any & 0x7f;
    if (writer->mistake == MISFIT && one_of(writer, 8)) return value;
    if (!datatype->bits) return one_of(writer, 4) ? ~value : value;
    const int shift = 64 - datatype->bits;
    const u64 middle = UINT64_C(1) << (datatype->bits - 1);
    if (one_of(writer, 4))
        value = one_of(writer, 3) ? middle : one_of(writer, 2) ? middle - 1 : UINT64_MAX;
    value = datatype->is_signed ? (u64)((i64)(value << shift) >> shift)
                                : value << shift >> shift;
    /* Of a list with 32 bits nobody asks what is beyond them. */
    return one_of(writer, 8) ? (u32)value | any << 32 : value;
}

/* The bytes of a value, without a tag. */
static void write_value(struct writer *writer, int list, u64 value)
{
    if (alone[list] == FIXED32) {
        wire_add(writer->wire, &value, 4);
    } else if (alone[list] == FIXED64) {
        wire_add(writer->wire, &value, 8);
    } else if (writer->mistake == LONG_VALUE && one_of(writer, 30)) {
        for (int i = 0; i < 10; i++) wire_add(writer->wire, "\x80", 1);
        wire_add(writer->wire, "", 1);
    } else if (one_of(writer, 40)) { /* the tenth has bits beyond the 64th */
        wire_add(writer->wire, "\x80\x80\x80\x80\x80\x80\x80\x80\x80", 9);
        wire_add(writer->wire, &(u8){(u8)(value & 0x7e)}, 1);
    } else {
        write_varint(writer, value, 10);
    }
}

static void write_alone(struct writer *writer, int list, u64 value)
{
    int type = alone[list];
    if (list == 1 && one_of(writer, 20)) type = one_of(writer, 2) ? FIXED32 : FIXED64;
    if (writer->mistake == WRONG_TYPE && one_of(writer, 8))
        type = type == FIXED32 ? FIXED64 : FIXED32;
    write_tag(writer, list, type);
    if (type == alone[list])
        write_value(writer, list, value);
    else
        wire_add(writer->wire, &value, type == FIXED32 ? 4 : 8);
}

static void write_packed(struct writer *writer, const struct datatype *datatype,
                         int count)
{
    struct wire *outer = inner_begin(writer);
    for (int i = 0; i < count; i++)
        write_value(writer, datatype->list, pick_value(writer, datatype));
    if (writer->mistake == CUT_LIST && one_of(writer, 4))
        wire_add(writer->wire, "\x80\x80\x80", 1 + dice_roll(writer->dice, 3));
    inner_end(writer, outer, datatype->list);
}

/* What a list may have beside its values: most of it is a mistake. */
static void write_beside(struct writer *writer)
{
    if (one_of(writer, 4)) write_unknown(writer);
    if (writer->mistake == OTHER_LIST && one_of(writer, 3))
        write_alone(writer, 1 + (int)dice_roll(writer->dice, 7), 1);
    if (writer->mistake == OTHER_LIST && one_of(writer, 8))
        write_bytes(writer, 1 + (int)dice_roll(writer->dice, 7), "",
                    0); /* no value: fine */
    if (writer->mistake == TEXTS && one_of(writer, 3)) write_text(writer, 8, "text");
}

/* `count` values in any number of lists, in any number of `contents`. */
static void write_contents(struct writer *writer, const struct datatype *datatype,
                           int count)
{
    do {
        struct wire *outer = inner_begin(writer);
        while (!one_of(writer, 6)) {
            int here = (int)dice_roll(writer->dice, (u64)count + 1);
            if (here > 4 && one_of(writer, 2)) here = 4;
            count -= here;
            if (one_of(writer, 2))
                write_packed(writer, datatype, here);
            else
                for (; here; here--)
                    write_alone(writer, datatype->list, pick_value(writer, datatype));
            write_beside(writer);
        }
        inner_end(writer, outer, 5);
        if (one_of(writer, 4)) write_unknown(writer);
    } while (count);
}

static void write_input(struct writer *writer, int index)
{
    const struct datatype *datatype =
        &datatypes[dice_roll(writer->dice, VX_COUNT(datatypes))];
    const char *name = datatype->name;
    const int count =
        (int)dice_roll(writer->dice, one_of(writer, 50) ? MANY_MAX : VALUES_MAX);
    int said = count;
    struct wire *outer = inner_begin(writer);
    if (writer->mistake == COUNT && one_of(writer, 2)) said += one_of(writer, 2) ? 1 : -1;
    if (writer->mistake == NO_LIST && one_of(writer, 2))
        name = one_of(writer, 2) ? "FP16" : "BF16";
    if (one_of(writer, 8)) write_text(writer, 1, "the last one counts");
    const bool last = one_of(writer, 2); /* what describes the tensor comes behind it */
    if (last) write_contents(writer, datatype, count);
    write_text(writer, 1, (const char *[]){"one", "two", "three"}[index]);
    write_text(writer, 2, name);
    write_tag(writer, 3, VARINT);
    write_varint(writer, (u64)(said < 0 ? 0 : said), 10);
    if (!last && (count || one_of(writer, 2))) write_contents(writer, datatype, count);
    if (!last && one_of(writer, 8)) write_contents(writer, datatype, 0);
    inner_end(writer, outer, 5);
}

void typed_write(struct wire *wire, struct dice *dice, u64 mistakes)
{
    struct writer writer = {.wire = wire, .dice = dice};
    wire->length = 0;
    if (mistakes && one_of(&writer, mistakes))
        writer.mistake = (enum mistake)dice_roll(dice, MISTAKES);
    writer.plain = one_of(&writer, 3);
    const int inputs = 1 + (int)dice_roll(dice, INPUTS);
    for (int i = 0; i < inputs; i++) {
        if (one_of(&writer, 4)) write_unknown(&writer);
        write_input(&writer, i);
    }
    write_text(&writer, 1, "m");
    if (writer.mistake == RAW) write_text(&writer, 7, "");
}
