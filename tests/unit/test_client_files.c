/* The readers of .ply, .npy and .npz: what must be read, and every kind of damage.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/memory.h"
#include "clients/cli/npy.h"

#include "engine/base/limits.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

_Static_assert(FEATS_MAX == VX_CHANNELS_MAX,
               "a file may have as many channels as a network");

/* A file under construction. */
struct builder {
    uint8_t data[8192];
    size_t size;
};

static void put(struct builder *b, const void *data, size_t bytes)
{
    ck_assert_uint_le(bytes, sizeof b->data - b->size);
    memcpy(b->data + b->size, data, bytes);
    b->size += bytes;
}

static void put_text(struct builder *b, const char *text)
{
    put(b, text, strlen(text));
}

static void put_number(struct builder *b, uint64_t value, size_t bytes)
{
    put(b, &value, bytes);
}

static struct feats_asked asked;

/* Readers get memory of the exact size: a sanitizer sees a byte too many. */
static enum voxel_code
read_exact(enum voxel_code (*read)(struct bytes, const struct feats_asked *,
                                   struct points *, struct voxel_error *),
           const void *data, size_t size, struct points *points,
           struct voxel_error *error)
{
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, data, size);
    enum voxel_code code = read((struct bytes){copy, size}, &asked, points, error);
    free(copy);
    if (code) {
        ck_assert_ptr_null(points->xyz);
        ck_assert_ptr_null(points->feats);
    }
    return code;
}

static void build_npy(struct builder *b, unsigned version, const char *header)
{
    uint8_t magic[8] = {0x93, 'N', 'U', 'M', 'P', 'Y', (uint8_t)version, 0};
    put(b, magic, sizeof magic);
    put_number(b, strlen(header), version == 1 ? 2 : 4);
    put_text(b, header);
}

static const int32_t four_points[4][3] = {
    {1, 2, 3}, {-4, 5, 6}, {7, -8, 9}, {0, 0, 100000}};

static void check_four(const struct points *points)
{
    ck_assert_int_eq(points->count, 4);
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 3; k++)
            ck_assert(points->xyz[3 * i + k] == (double)four_points[i][k]);
}

START_TEST(npy_versions)
{
    unsigned version = (unsigned)_i;
    struct builder b = {0};
    struct points points;
    struct voxel_error error;
    build_npy(&b, version,
              "{'descr': '<i4', 'fortran_order': False, 'shape': (4, 3), }\n");
    put(&b, four_points, sizeof four_points);
    ck_assert_int_eq(read_exact(points_read_npy, b.data, b.size, &points, &error),
                     VOXEL_OK);
    check_four(&points);
    ck_assert(points.whole);
    ck_assert_ptr_null(points.sample);
    points_fini(&points);
    for (size_t cut = 0; cut < b.size; cut++) {
        enum voxel_code code = read_exact(points_read_npy, b.data, cut, &points, &error);
        ck_assert_int_eq(code, VOXEL_INVALID_ARGUMENT);
    }
}
END_TEST

START_TEST(npy_fortran_with_samples)
{
    struct builder b = {0};
    struct points points;
    build_npy(&b, 1, "{\"shape\": (4L, 4), \"fortran_order\": True, \"descr\": \"<f8\"}");
    for (int i = 0; i < 4; i++) {
        double sample = i < 2 ? 0 : 1;
        put(&b, &sample, sizeof sample);
    }
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 4; i++) {
            double v = (double)four_points[i][k];
            put(&b, &v, sizeof v);
        }
    ck_assert_int_eq(read_exact(points_read_npy, b.data, b.size, &points, NULL),
                     VOXEL_OK);
    check_four(&points);
    ck_assert(!points.whole);
    ck_assert_int_eq(points.sample[1], 0);
    ck_assert_int_eq(points.sample[2], 1);
    points_fini(&points);
}
END_TEST

/* One value of every type NumPy may write, three times in a row of [1,3]. */
static const struct {
    const char *descr;
    uint64_t bits;
    size_t size;
    double value;
} cells[] = {
    {"|i1", 0xfe, 1, -2},
    {"|u1", 0xfe, 1, 254},
    {"<i2", 0xfffe, 2, -2},
    {"<u2", 0xfffe, 2, 65534},
    {"<i4", 0xfffffffe, 4, -2},
    {"<u4", 0xfffffffe, 4, 4294967294.0},
    {"<i8", UINT64_MAX - 1, 8, -2},
    {"<u8", 1ull << 40, 8, 1099511627776.0},
    {"<f2", 0xc100, 2, -2.5},
    {"<f4", 0xc0200000, 4, -2.5},
    {"<f8", 0xc004000000000000, 8, -2.5},
    {"|b1", 1, 1, 1},
};

START_TEST(npy_types)
{
    struct builder b = {0};
    struct points points;
    char header[128];
    snprintf(header, sizeof header,
             "{'descr': '%s', 'fortran_order': False, 'shape': (1, 3)}", cells[_i].descr);
    build_npy(&b, 1, header);
    for (int k = 0; k < 3; k++) put_number(&b, cells[_i].bits, cells[_i].size);
    ck_assert_int_eq(read_exact(points_read_npy, b.data, b.size, &points, NULL),
                     VOXEL_OK);
    ck_assert(points.xyz[2] == cells[_i].value);
    points_fini(&points);
}
END_TEST

#define HEADER(descr, shape)                                                             \
    "{'descr': '" descr "', 'fortran_order': False, 'shape': " shape "}"
static const struct {
    const char *header;
    enum voxel_code code;
    const char *expected;
} bad_npy[] = {
    {HEADER(">i4", "(4, 3)"), VOXEL_UNIMPLEMENTED, "little-endian"},
    {HEADER("<c8", "(4, 3)"), VOXEL_UNIMPLEMENTED, "'<c8'"},
    {HEADER("<i4", "(12,)"), VOXEL_INVALID_ARGUMENT, "expected [N,3]"},
    {HEADER("<i4", "(6, 2)"), VOXEL_INVALID_ARGUMENT, "expected [N,3]"},
    {HEADER("<i4", "()"), VOXEL_INVALID_ARGUMENT, "rank 0"},
    {HEADER("<i4", "(5, 3)"), VOXEL_INVALID_ARGUMENT, "takes 60 bytes, the file has 48"},
    {HEADER("<i4", "(9223372036854775807, 3)"), VOXEL_INVALID_ARGUMENT,
     "the file has 48"},
    {HEADER("<i4", "(99999999999999999999, 3)"), VOXEL_INVALID_ARGUMENT, "damaged"},
    {HEADER("<i4", "(4, -3)"), VOXEL_INVALID_ARGUMENT, "damaged"},
    {HEADER("<i4", "(4, 3"), VOXEL_INVALID_ARGUMENT, "damaged"},
    {"{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (4,)}",
     VOXEL_INVALID_ARGUMENT, "structured"},
    {"{'descr': '<i4', 'shape': (4, 3)}", VOXEL_INVALID_ARGUMENT, "damaged"},
    {"{'descr': '<i4', 'fortran_order': Maybe, 'shape': (4, 3)}", VOXEL_INVALID_ARGUMENT,
     "damaged"},
    {"", VOXEL_INVALID_ARGUMENT, "damaged"},
};

START_TEST(npy_damage)
{
    struct builder b = {0};
    struct points points;
    struct voxel_error error;
    build_npy(&b, 1, bad_npy[_i].header);
    put(&b, four_points, sizeof four_points);
    enum voxel_code code = read_exact(points_read_npy, b.data, b.size, &points, &error);
    ck_assert_int_eq(code, bad_npy[_i].code);
    ck_assert_msg(strstr(error.text, bad_npy[_i].expected), "%s", error.text);
}
END_TEST

START_TEST(npy_sample_must_be_whole)
{
    struct builder b = {0};
    struct points points;
    struct voxel_error error;
    const float row[4] = {0.5f, 1, 2, 3};
    build_npy(&b, 1, HEADER("<f4", "(1, 4)"));
    put(&b, row, sizeof row);
    ck_assert_int_eq(read_exact(points_read_npy, b.data, b.size, &points, &error),
                     VOXEL_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, "column 0 is the sample"), "%s", error.text);
}
END_TEST

/* npz. */

struct zip_file {
    struct builder body;
    struct builder directory;
    unsigned count;
};

/* Adds an entry; `deflated` as numpy.savez_compressed does. */
static void zip_add(struct zip_file *zip, const char *name, const struct builder *content,
                    bool deflated)
{
    uint8_t packed[8192];
    uLongf packed_bytes = content->size;
    memcpy(packed, content->data, content->size);
    if (deflated) {
        z_stream stream = {0};
        ck_assert_int_eq(
            deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY),
            Z_OK);
        stream.next_in = (Bytef *)(uintptr_t)content->data;
        stream.avail_in = (uInt)content->size;
        stream.next_out = packed;
        stream.avail_out = sizeof packed;
        ck_assert_int_eq(deflate(&stream, Z_FINISH), Z_STREAM_END);
        packed_bytes = stream.total_out;
        deflateEnd(&stream);
    }
    size_t local = zip->body.size;
    uint32_t crc = (uint32_t)crc32(0, content->data, (uInt)content->size);
    for (int central = 0; central < 2; central++) {
        struct builder *b = central ? &zip->directory : &zip->body;
        put_text(b, central ? "PK\x01\x02" : "PK\x03\x04");
        put_number(b, 20, central ? 4 : 2);
        put_number(b, 0, 2);
        put_number(b, deflated ? 8 : 0, 2);
        put_number(b, 0, 4);
        put_number(b, crc, 4);
        put_number(b, packed_bytes, 4);
        put_number(b, content->size, 4);
        put_number(b, strlen(name), 2);
        put_number(b, central ? 0 : 4, 2); /* an extra field in the local header only */
        if (central) {
            put_number(b, 0, 8);
            put_number(b, 0, 2);
            put_number(b, local, 4);
        }
        put_text(b, name);
        if (!central) {
            put_number(b, 0, 4);
            put(b, packed, packed_bytes);
        }
    }
    zip->count++;
}

static void zip_end(struct zip_file *zip)
{
    size_t begin = zip->body.size;
    put(&zip->body, zip->directory.data, zip->directory.size);
    put_text(&zip->body, "PK\x05\x06");
    put_number(&zip->body, 0, 4);
    put_number(&zip->body, zip->count, 2);
    put_number(&zip->body, zip->count, 2);
    put_number(&zip->body, zip->directory.size, 4);
    put_number(&zip->body, begin, 4);
    put_number(&zip->body, 3, 2);
    put_text(&zip->body, "end");
}

static void build_npz(struct zip_file *zip, bool deflated, const char *feats_shape)
{
    struct builder coords = {0};
    struct builder feats = {0};
    char header[128];
    build_npy(&coords, 1, HEADER("<i4", "(4, 3)"));
    put(&coords, four_points, sizeof four_points);
    snprintf(header, sizeof header,
             "{'descr': '<f4', 'fortran_order': False, 'shape': %s}", feats_shape);
    build_npy(&feats, 1, header);
    for (int i = 0; i < 8; i++) {
        float value = (float)i / 4;
        put(&feats, &value, sizeof value);
    }
    zip_add(zip, "feats.npy", &feats, deflated);
    zip_add(zip, "coords.npy", &coords, deflated);
    zip_end(zip);
}

START_TEST(npz_stored_and_deflated)
{
    struct zip_file zip = {0};
    struct points points;
    struct voxel_error error;
    build_npz(&zip, _i == 1, "(4, 2)");
    enum voxel_code code =
        read_exact(points_read_npz, zip.body.data, zip.body.size, &points, &error);
    ck_assert_msg(code == VOXEL_OK, "%s", error.text);
    check_four(&points);
    ck_assert_int_eq(points.channels, 2);
    ck_assert(points.feats[7] == 1.75f);
    points_fini(&points);
    for (size_t cut = 0; cut < zip.body.size - 3; cut++)
        ck_assert_int_ne(read_exact(points_read_npz, zip.body.data, cut, &points, &error),
                         VOXEL_OK);
    /* Any one byte changed: an error, or the same points (a name or a date changed). */
    for (size_t at = 0; at < zip.body.size; at++) {
        zip.body.data[at] ^= 0x41;
        code = read_exact(points_read_npz, zip.body.data, zip.body.size, &points, &error);
        if (code == VOXEL_OK) check_four(&points);
        points_fini(&points);
        zip.body.data[at] ^= 0x41;
    }
}
END_TEST

START_TEST(npz_damage)
{
    struct zip_file zip = {0};
    struct points points;
    struct voxel_error error;
    build_npz(&zip, false, "(2, 4)");
    ck_assert_int_eq(
        read_exact(points_read_npz, zip.body.data, zip.body.size, &points, &error),
        VOXEL_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, "feats must be [4,C]"), "%s", error.text);
    struct zip_file empty = {0};
    zip_end(&empty);
    ck_assert_int_eq(
        read_exact(points_read_npz, empty.body.data, empty.body.size, &points, &error),
        VOXEL_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, "no array named coords"), "%s", error.text);
    /* Another array by name, and one that is not there. */
    struct zip_file named = {0};
    build_npz(&named, false, "(4, 2)");
    asked.names = "colour";
    ck_assert_int_eq(
        read_exact(points_read_npz, named.body.data, named.body.size, &points, &error),
        VOXEL_INVALID_ARGUMENT);
    ck_assert_str_eq(error.text,
                     "the .npz has no array named colour; beside coords it has: feats");
    asked.names = "feats";
    ck_assert_int_eq(
        read_exact(points_read_npz, named.body.data, named.body.size, &points, &error),
        VOXEL_OK);
    ck_assert_int_eq(points.channels, 2);
    points_fini(&points);
    ck_assert_int_eq(read_exact(points_read_npz, "PK", 2, &points, &error),
                     VOXEL_INVALID_ARGUMENT);
    ck_assert_msg(strstr(error.text, "no .npz"), "%s", error.text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_files");
    TCase *tcase = tcase_create("all");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, npy_versions, 1, 4);
    tcase_add_test(tcase, npy_fortran_with_samples);
    tcase_add_loop_test(tcase, npy_types, 0, sizeof cells / sizeof *cells);
    tcase_add_loop_test(tcase, npy_damage, 0, sizeof bad_npy / sizeof *bad_npy);
    tcase_add_test(tcase, npy_sample_must_be_whole);
    tcase_add_loop_test(tcase, npz_stored_and_deflated, 0, 2);
    tcase_add_test(tcase, npz_damage);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
