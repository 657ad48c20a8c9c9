/* The safetensors reader: what it reads, and every way a file can be malformed, with code and
 * sentence.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/alloc.h"
#include "engine/weights/foreign_file.h"
#include "engine/weights/safetensors.h"
#include "tests/support/model_files.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LABEL "m/1/weights.safetensors"

/* Header length, header, data bytes: on the heap at an odd address and at its exact size,
 * so that ASan detects every access outside it. */
struct image {
    u8 *block, *bytes;
    size_t count;
};

static struct image image_make(u64 header_length, const char *header, size_t data_bytes)
{
    struct image image = {.count = 8 + strlen(header) + data_bytes};
    image.block = vx_alloc(image.count + 1);
    image.bytes = image.block + 1;
    memcpy(image.bytes, &header_length, 8);
    memcpy(image.bytes + 8, header, strlen(header));
    for (size_t i = 0; i < data_bytes; i++) image.bytes[8 + strlen(header) + i] = (u8)i;
    return image;
}

static const f32 values[6] = {0, 1.5f, -2, 0.25f, 65504, -0.0f};

START_TEST(reads_what_was_written)
{
    char directory[VX_TEST_PATH_BYTES], path[VX_TEST_PATH_BYTES + 32];
    const struct vx_test_tensor tensors[] = {
        {"z.f32", "F32", {2, 3}, 2, values},
        {"a.f16", "F16", {6}, 1, values},
        {"m.bf16", "BF16", {3, 2, 1}, 3, values},
        {"count", "I64", {0}, 0, values + 1}, /* a scalar */
        {"none", "F32", {4, 0, 2}, 3, NULL},  /* empty */
    };
    struct vx_safetensors *file;
    struct vx_why why = {{0}};
    f32 out[6];
    vx_test_directory(directory);
    snprintf(path, sizeof path, "%s/w.safetensors", directory);
    vx_test_write_safetensors(path, tensors, VX_COUNT(tensors));
    vx_status status = vx_safetensors_open(path, LABEL, &why, &file);
    ck_assert_msg(!status.fault, "%s", why.text);
    ck_assert_int_eq(vx_safetensors_count(file), 5);
    ck_assert_str_eq(vx_safetensors_get(file, 0)->name, "a.f16");
    ck_assert_ptr_null(vx_safetensors_find(file, "z.f3"));
    for (size_t i = 0; i < 3; i++) {
        const struct vx_tensor *tensor = vx_safetensors_find(file, tensors[i].name);
        ck_assert_ptr_nonnull(tensor);
        ck_assert_str_eq(tensor->dtype, tensors[i].dtype);
        ck_assert_int_eq(tensor->rank, tensors[i].rank);
        ck_assert_int_eq(tensor->count, 6);
        ck_assert(!vx_safetensors_read_f32(file, tensor, &why, out).fault);
        bool finite;
        ck_assert(!vx_safetensors_is_finite(file, tensor, &why, &finite).fault);
        ck_assert(finite);
        for (size_t j = 0; j < 6; j++) {
            f32 expected = j == 4 && i == 2 ? 65536.0f : values[j]; /* bf16 has 8 bits */
            ck_assert_msg(out[j] == expected && signbit(out[j]) == signbit(expected),
                          "%s[%zu]: %g", tensors[i].name, j, (f64)out[j]);
        }
    }
    const struct vx_tensor *count = vx_safetensors_find(file, "count");
    ck_assert_int_eq(count->count, 1);
    ck_assert(vx_safetensors_read_f32(file, count, &why, out).fault);
    ck_assert_str_eq(why.text, LABEL
                     ": tensor \"count\": expected F32, F16 or BF16 to read it as a "
                     "weight, got I64");
    ck_assert(!vx_safetensors_read_f32(file, vx_safetensors_find(file, "none"), &why, out)
                   .fault);
    vx_safetensors_close(&file);
    ck_assert_ptr_null(file);
    vx_test_remove(directory);
}
END_TEST

START_TEST(what_is_not_finite_is_seen_in_every_type)
{
    char directory[VX_TEST_PATH_BYTES], path[VX_TEST_PATH_BYTES + 32];
    static const f32 bad[][3] = {{1, 2, INFINITY}, {-INFINITY, 2, 3}, {1, NAN, 3}};
    static const f32 large[3] = {65504, -65504, 0};
    static const char *const types[] = {"F32", "F16", "BF16"};
    struct vx_safetensors *file;
    struct vx_why why = {{0}};
    vx_test_directory(directory);
    snprintf(path, sizeof path, "%s/w.safetensors", directory);
    for (size_t type = 0; type < VX_COUNT(types); type++)
        for (size_t i = 0; i <= VX_COUNT(bad); i++) {
            const f32 *values_of = i < VX_COUNT(bad) ? bad[i] : large;
            const struct vx_test_tensor tensor = {"w", types[type], {3}, 1, values_of};
            vx_test_write_safetensors(path, &tensor, 1);
            ck_assert(!vx_safetensors_open(path, LABEL, &why, &file).fault);
            const struct vx_tensor *read = vx_safetensors_get(file, 0);
            bool finite;
            ck_assert(!vx_safetensors_is_finite(file, read, &why, &finite).fault);
            ck_assert_msg(finite == (i == VX_COUNT(bad)), "%s %zu", types[type], i);
            vx_safetensors_close(&file);
        }
    vx_test_remove(directory);
}
END_TEST

/* Every 16-bit float, against its definition: (-1)^s 2^(e-15) 1.f, subnormal 2^-14 0.f. */
START_TEST(every_half_is_exact)
{
    static const char header[] =
        "{\"h\":{\"dtype\":\"F16\",\"shape\":[65536],\"data_offsets\":[0,131072]}}";
    static f32 out[65536];
    struct image image = image_make(sizeof header - 1, header, 131072);
    struct vx_safetensors *file;
    for (u32 i = 0; i < 65536; i++) {
        u16 half = (u16)i;
        memcpy(image.bytes + 8 + sizeof header - 1 + 2 * i, &half, 2);
    }
    ck_assert(!vx_safetensors_parse(image.bytes, image.count, LABEL, NULL, &file).fault);
    ck_assert(
        !vx_safetensors_read_f32(file, vx_safetensors_get(file, 0), NULL, out).fault);
    for (u32 i = 0; i < 65536; i++) {
        int exponent = (int)(i >> 10 & 31), fraction = (int)(i & 1023);
        f64 size =
            exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
        if (exponent == 31 && fraction) {
            ck_assert(isnan(out[i]));
            continue;
        }
        if (exponent == 31) size = HUGE_VAL;
        ck_assert((f64)out[i] == (i >> 15 ? -size : size));
        ck_assert_int_eq(!!signbit(out[i]), (int)(i >> 15));
        ck_assert_int_eq(vx_test_f16(out[i]), (int)i); /* and the writer's way back */
    }
    vx_safetensors_close(&file);
    vx_free(image.block);
}
END_TEST

static const struct {
    const char *header;
    i64 length_off; /* added to the true header length */
    size_t data_bytes;
    enum vx_code code;
    const char *why; /* how the sentence goes on after the label */
} bad[] = {
    {"{}", 1, 0, VX_CODE_DATA_LOSS,
     "expected a header that ends inside the file, got one longer than the file's 10 "
     "bytes"},
    {"{}", INT64_MAX, 0, VX_CODE_DATA_LOSS,
     "expected a header that ends inside the file, got one longer than the file's 10 "
     "bytes"},
    {"{}", -2, 2, VX_CODE_DATA_LOSS,
     "header: line 1, column 1: expected a value, got the end of the text"},
    {"{}", 0, 1, VX_CODE_DATA_LOSS,
     "the last tensor ends at byte 0, but the file has 1 bytes of data"},
    {"[]", 0, 0, VX_CODE_DATA_LOSS, "expected an object in the header, got a list"},
    {"{\"a\":", 0, 0, VX_CODE_DATA_LOSS,
     "header: line 1, column 6: expected a value, got the end of the text"},
    {"{\"a\":3}", 0, 0, VX_CODE_DATA_LOSS,
     "tensor \"a\": expected an object, got an integer"},
    {"{\"__metadata__\":3}", 0, 0, VX_CODE_DATA_LOSS,
     "tensor \"__metadata__\": expected an object of texts, got an integer"},
    {"{\"__metadata__\":{\"a\":1}}", 0, 0, VX_CODE_DATA_LOSS,
     "tensor \"__metadata__\": expected a text for \"a\", got an integer"},
    {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 0, 4, VX_CODE_DATA_LOSS,
     "tensor \"a\": the key \"dtype\" is missing"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 0, 4, VX_CODE_DATA_LOSS,
     "tensor \"a\": the key \"shape\" is missing"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 0, 4, VX_CODE_DATA_LOSS,
     "tensor \"a\": the key \"data_offsets\" is missing"},
    {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 0, 4,
     VX_CODE_DATA_LOSS, "tensor \"a\": expected a text for \"dtype\", got an integer"},
    {"{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 0, 4,
     VX_CODE_INVALID_ARGUMENT,
     "tensor \"a\": expected a dtype of the safetensors format (F32, F16, BF16, ...), "
     "got "
     "\"F33\""},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 0, 4,
     VX_CODE_DATA_LOSS, "tensor \"a\": expected a list for \"shape\", got an integer"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 0, 4,
     VX_CODE_DATA_LOSS,
     "tensor \"a\": expected a size >= 0 in its shape, got a negative one"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 0, 4,
     VX_CODE_DATA_LOSS, "tensor \"a\": expected a size >= 0 in its shape, got a number"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}",
     0, 4, VX_CODE_INVALID_ARGUMENT,
     "tensor \"a\": expected at most 8 dimensions, got 9"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}"
     "}",
     0, 0, VX_CODE_DATA_LOSS,
     "tensor \"a\": the product of its shape is beyond 64 bits at dimension 1"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}",
     0, 0, VX_CODE_DATA_LOSS,
     "tensor \"a\": F32 [4611686018427387904] is beyond 64 bits"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775808],\"data_offsets\":[0,0]}}",
     0, 0, VX_CODE_DATA_LOSS,
     "tensor \"a\": expected a size >= 0 in its shape, got a number"},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 0, 1,
     VX_CODE_DATA_LOSS, "tensor \"a\": F4 [3] has 12 bits, which are not whole bytes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 0, 4,
     VX_CODE_DATA_LOSS, "tensor \"a\": F32 [2] needs 8 bytes, data_offsets give 4"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 0, 4,
     VX_CODE_DATA_LOSS,
     "tensor \"a\": expected data_offsets of two integers, got a list of 1"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[]}}", 0, 4,
     VX_CODE_DATA_LOSS,
     "tensor \"a\": expected data_offsets of two integers, got a list of 0"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,4]}}", 0, 4,
     VX_CODE_DATA_LOSS,
     "tensor \"a\": expected data_offsets of two integers, got a list of 3"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 0, 4,
     VX_CODE_DATA_LOSS,
     "tensor \"a\": expected data_offsets with 0 <= begin <= end, got [4, 0]"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", 0, 4,
     VX_CODE_DATA_LOSS,
     "tensor \"a\": expected data_offsets with 0 <= begin <= end, got [-4, 0]"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 0, 3,
     VX_CODE_DATA_LOSS,
     "tensor \"a\": its data ends at byte 4, but the file has 3 bytes of data"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[9223372036854775804,"
     "9223372036854775807]}}",
     0, 4, VX_CODE_DATA_LOSS,
     "tensor \"a\": its data ends at byte 9223372036854775807, but the file has 4 bytes "
     "of data"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":0}}", 0, 4,
     VX_CODE_DATA_LOSS,
     "tensor \"a\": expected dtype, shape and data_offsets, got \"x\""},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[3,7]}}",
     0, 7, VX_CODE_DATA_LOSS,
     "tensors \"a\" and \"b\" overlap: one ends at byte 4, the other begins at 3"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
     0, 4, VX_CODE_DATA_LOSS,
     "tensors \"a\" and \"b\" overlap: one ends at byte 4, the other begins at 0"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[5,9]}}",
     0, 9, VX_CODE_DATA_LOSS, "bytes 4 to 5 of the data belong to no tensor"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 0, 5,
     VX_CODE_DATA_LOSS,
     "the last tensor ends at byte 4, but the file has 5 bytes of data"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
     "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
     0, 8, VX_CODE_DATA_LOSS,
     "header: line 1, column 59: expected a new key, got \"a\" again, already on line 1"},
};

START_TEST(lies_are_refused)
{
    u64 length = strlen(bad[_i].header) + (u64)bad[_i].length_off;
    struct image image = image_make(length, bad[_i].header, bad[_i].data_bytes);
    struct vx_safetensors *file;
    struct vx_why why = {{0}};
    char expected[2 * VX_WHY_BYTES];
    vx_status status = vx_safetensors_parse(image.bytes, image.count, LABEL, &why, &file);
    snprintf(expected, sizeof expected, "%s: %s", LABEL, bad[_i].why);
    ck_assert_str_eq(why.text, expected);
    ck_assert_int_eq(vx_status_code(status), bad[_i].code);
    ck_assert_ptr_null(file);
    vx_free(image.block);
}
END_TEST

/* An empty tensor lies where another begins, whatever their names and however many. */
static const char *const with_empty[] = {
    "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
    "\"b\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}",
    "\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
    "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}",
    "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
    "\"b\":{\"dtype\":\"F16\",\"shape\":[0],\"data_offsets\":[0,0]},"
    "\"c\":{\"dtype\":\"F32\",\"shape\":[7,0],\"data_offsets\":[0,0]}",
    "\"a\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[2,4]},"
    "\"b\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,2]},"
    "\"c\":{\"dtype\":\"F16\",\"shape\":[0],\"data_offsets\":[2,2]},"
    "\"d\":{\"dtype\":\"F16\",\"shape\":[0],\"data_offsets\":[4,4]},"
    "\"e\":{\"dtype\":\"F16\",\"shape\":[0],\"data_offsets\":[0,0]}",
};

START_TEST(empty_tensors_lie_where_others_begin)
{
    char header[1024];
    struct vx_safetensors *file;
    struct vx_why why = {{0}};
    snprintf(header, sizeof header, "{%s}", with_empty[_i]);
    struct image image = image_make(strlen(header), header, 4);
    vx_status status = vx_safetensors_parse(image.bytes, image.count, LABEL, &why, &file);
    ck_assert_msg(!status.fault, "%s", why.text);
    for (i32 i = 0; i < vx_safetensors_count(file); i++) {
        const struct vx_tensor *tensor = vx_safetensors_get(file, i);
        ck_assert_uint_eq(tensor->count == 0, tensor->bytes == 0);
    }
    vx_safetensors_close(&file);
    vx_free(image.block);
}
END_TEST

/* A good file cut at any length but its own is refused. */
START_TEST(every_truncation_is_refused)
{
    const struct vx_test_tensor tensors[] = {{"a", "F32", {2}, 1, values},
                                             {"b", "F16", {3}, 1, values}};
    u8 bytes[512];
    size_t whole = vx_test_pack_safetensors(tensors, 2, bytes, sizeof bytes);
    for (size_t count = 0; count <= whole; count++) {
        u8 *copy = vx_alloc(count);
        struct vx_safetensors *file;
        memcpy(copy, bytes, count);
        vx_status status = vx_safetensors_parse(copy, count, LABEL, NULL, &file);
        ck_assert_int_eq(vx_status_code(status),
                         count < whole ? VX_CODE_DATA_LOSS : VX_CODE_OK);
        vx_safetensors_close(&file);
        vx_free(copy);
    }
}
END_TEST

/* Every bit of a good header flipped: never a crash, and what is accepted is in bounds.
 */
START_TEST(every_flipped_bit_is_survived)
{
    const struct vx_test_tensor tensors[] = {{"a", "F32", {2}, 1, values},
                                             {"b", "F16", {3}, 1, values}};
    u8 bytes[512];
    f32 out[64];
    size_t whole = vx_test_pack_safetensors(tensors, 2, bytes, sizeof bytes);
    for (size_t bit = 0; bit < whole * 8; bit++) {
        struct vx_safetensors *file;
        u8 *copy = vx_alloc(whole);
        memcpy(copy, bytes, whole);
        copy[bit / 8] ^= (u8)(1 << bit % 8);
        vx_status status = vx_safetensors_parse(copy, whole, LABEL, NULL, &file);
        for (i32 i = 0; !status.fault && i < vx_safetensors_count(file); i++) {
            const struct vx_tensor *tensor = vx_safetensors_get(file, i);
            ck_assert_int_le(tensor->count, 64);
            if (vx_tensor_is_readable(tensor))
                ck_assert(!vx_safetensors_read_f32(file, tensor, NULL, out).fault);
        }
        vx_safetensors_close(&file);
        vx_free(copy);
    }
}
END_TEST

START_TEST(what_is_no_file_is_refused)
{
    char directory[VX_TEST_PATH_BYTES], path[VX_TEST_PATH_BYTES + 32];
    struct vx_safetensors *file;
    struct vx_why why = {{0}};
    vx_test_directory(directory);
    snprintf(path, sizeof path, "%s/none", directory);
    vx_status status = vx_safetensors_open(path, LABEL, &why, &file);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_NOT_FOUND);
    ck_assert_str_eq(why.text, LABEL ": cannot be opened: No such file or directory");
    status = vx_safetensors_open(directory, LABEL, &why, &file);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_DATA_LOSS);
    ck_assert_str_eq(why.text,
                     LABEL ": expected a regular file with bytes in it, got a directory");
    vx_test_write_file(path, "", 0);
    status = vx_safetensors_open(path, LABEL, &why, &file);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_DATA_LOSS);
    ck_assert_str_eq(why.text, LABEL
                     ": expected a regular file with bytes in it, got an empty file");
    vx_test_write_file(path, "1234567", 7);
    status = vx_safetensors_open(path, LABEL, &why, &file);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_DATA_LOSS);
    ck_assert_str_eq(why.text,
                     LABEL ": expected 8 bytes of header length, the file has 7 bytes");
    vx_test_write_file(path, "PK\x03\x04\0\0\x08\x08\0\0\0\0", 12);
    status = vx_safetensors_open(path, LABEL, &why, &file);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(why.text, LABEL
                     ": expected a safetensors file, got a zip archive, as torch.save "
                     "writes it (.pt, .pth); safetensors.torch.save_file writes one "
                     "from its state_dict");
    snprintf(path, sizeof path, "%s/pipe", directory);
    ck_assert(!mkfifo(path, 0600));
    status =
        vx_safetensors_open(path, LABEL, &why, &file); /* must not wait for a writer */
    ck_assert_int_eq(vx_status_code(status), VX_CODE_DATA_LOSS);
    ck_assert_ptr_null(file);
    vx_test_remove(directory);
}
END_TEST

START_TEST(a_header_beyond_the_limit_is_refused_unread)
{
    size_t count = 8 + VX_SAFETENSORS_HEADER_BYTES_MAX + 1;
    u8 *bytes = vx_alloc_zero(count);
    u64 length = VX_SAFETENSORS_HEADER_BYTES_MAX + 1;
    struct vx_safetensors *file;
    struct vx_why why = {{0}};
    memcpy(bytes, &length, 8);
    vx_status status = vx_safetensors_parse(bytes, count, LABEL, &why, &file);
    ck_assert_int_eq(vx_status_code(status), VX_CODE_INVALID_ARGUMENT);
    ck_assert_str_eq(why.text,
                     LABEL ": expected a header of at most 16777216 bytes, got 16777217");
    /* A header of the maximum length is read: spaces behind its last brace. */
    length = VX_SAFETENSORS_HEADER_BYTES_MAX;
    memcpy(bytes, &length, 8);
    memset(bytes + 8, ' ', length);
    memcpy(bytes + 8, "{}", 2);
    status = vx_safetensors_parse(bytes, count - 1, LABEL, &why, &file);
    ck_assert_msg(!status.fault, "%s", why.text);
    ck_assert_int_eq(vx_safetensors_count(file), 0);
    vx_safetensors_close(&file);
    vx_free(bytes);
}
END_TEST

/* A file that begins like another format is reported with that format's name; a possible beginning
 * of a safetensors file is not. */
START_TEST(files_of_other_formats_are_known)
{
    static const struct {
        const char *text;
        size_t bytes;
        const char *what; /* how the sentence begins; NULL = none */
    } files[] = {
        {"PK\x03\x04\0\0\0\0\0\0", 10, "a zip archive, as torch.save"},
        {"\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20", 10,
         "a pickle, as old versions of torch.save"},
        {"\x89HDF\r\n\x1a\n\0", 9, "an HDF5 file"},
        {"\x93NUMPY\x01\0v\0", 10, "a NumPy array"},
        {"version https://git-lfs.\n", 25, "a Git LFS pointer"},
        {"{\"format\": 1}", 13, "JSON text"},
        {"<!DOCTYPE html>", 15, "a web page"},
        {"PK", 2, NULL},
        {"", 0, NULL},
        {"\x80\x02\0\0\0\0\0\0{\"a\"", 12, NULL}, /* a header of 640 bytes */
        {"<\0\0\0\0\0\0\0{\"a\"", 12, NULL},      /* of 60 */
    };
    for (size_t i = 0; i < VX_COUNT(files); i++) {
        const char *what = vx_foreign_file((const u8 *)files[i].text, files[i].bytes);
        ck_assert_msg(!what == !files[i].what, "%zu: %s", i, what ? what : "nothing");
        if (what)
            ck_assert_msg(!strncmp(what, files[i].what, strlen(files[i].what)), "%s",
                          what);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("safetensors");
    TCase *tcase = tcase_create("safetensors");
    tcase_add_test(tcase, reads_what_was_written);
    tcase_add_test(tcase, what_is_not_finite_is_seen_in_every_type);
    tcase_add_test(tcase, every_half_is_exact);
    tcase_add_loop_test(tcase, lies_are_refused, 0, VX_COUNT(bad));
    tcase_add_loop_test(tcase, empty_tensors_lie_where_others_begin, 0,
                        VX_COUNT(with_empty));
    tcase_add_test(tcase, every_truncation_is_refused);
    tcase_add_test(tcase, every_flipped_bit_is_survived);
    tcase_add_test(tcase, what_is_no_file_is_refused);
    tcase_add_test(tcase, a_header_beyond_the_limit_is_refused_unread);
    tcase_add_test(tcase, files_of_other_formats_are_known);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
