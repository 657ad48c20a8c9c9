/* How a request names its geometry: the parameter coords_ref, as protobuf-c reads it, and
 * the header for load balancers.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/digest.h"
#include "clients/c/geometry_header.h"
#include "clients/c/infer_wire.h"
#include "clients/c/memory.h"

#include "open_inference.pb-c.h"

#include <check.h>
#include <string.h>

#define ROWS     3
#define DIGEST_0 8114307072972331583u
#define DIGEST_1 4420442166499918990u

static int32_t coords[ROWS * 4];
static float feats[ROWS];

static struct voxel_request request_make(struct voxel_tensor inputs[2])
{
    inputs[0] = voxel_tensor_make("coords", VOXEL_INT32, ROWS, 4, coords);
    inputs[1] = voxel_tensor_make("feats", VOXEL_FP32, ROWS, 1, feats);
    return (struct voxel_request){
        .model = "normals", .inputs = inputs, .inputs_count = 2};
}

/* An empty name is present, and is a string: it asks for a name. */
static const char *const refs[] = {"", "0123456789abcdef0123456789abcdef"};
START_TEST(a_geometry_goes_by_name)
{
    struct voxel_tensor inputs[2];
    struct voxel_request request = request_make(inputs);
    struct voxel_message message;
    struct voxel_error error;
    request.inputs = inputs + 1;
    request.inputs_count = 1;
    request.coords_ref = refs[_i];
    ck_assert_int_eq(voxel_message_pack(&request, &message, &error), VOXEL_OK);
    /* Small tensors are copied into the head. */
    ck_assert_uint_eq(message.pieces_count, 1);
    Inference__ModelInferRequest *read = inference__model_infer_request__unpack(
        NULL, message.bytes, message.pieces[0].data);
    ck_assert_ptr_nonnull(read);
    ck_assert_uint_eq(read->n_parameters, 1);
    ck_assert_str_eq(read->parameters[0]->key, "coords_ref");
    ck_assert_int_eq(read->parameters[0]->value->parameter_choice_case,
                     INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM);
    ck_assert_str_eq(read->parameters[0]->value->string_param, refs[_i]);
    ck_assert_uint_eq(read->n_inputs, 1);
    ck_assert_str_eq(read->inputs[0]->name, "feats");
    ck_assert_uint_eq(read->n_raw_input_contents, 1);
    inference__model_infer_request__free_unpacked(read, NULL);
    voxel_message_fini(&message);
}
END_TEST

START_TEST(a_name_has_a_length)
{
    char name[VOXEL_REF_BYTES_MAX + 1];
    struct voxel_tensor inputs[2];
    struct voxel_request request = request_make(inputs);
    struct voxel_message message;
    struct voxel_error error;
    memset(name, 'a', sizeof name);
    name[VOXEL_REF_BYTES_MAX] = '\0';
    request.coords_ref = name;
    ck_assert_int_eq(voxel_message_pack(&request, &message, &error),
                     VOXEL_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(error.text, "coords_ref"));
    name[VOXEL_REF_BYTES_MAX - 1] = '\0';
    ck_assert_int_eq(voxel_message_pack(&request, &message, &error), VOXEL_OK);
    voxel_message_fini(&message);
}
END_TEST

static struct voxel_digest digest_of(int64_t rows, int64_t columns)
{
    struct voxel_tensor input =
        voxel_tensor_make("any", VOXEL_INT32, rows, columns, coords);
    const struct voxel_request request = {.inputs = &input, .inputs_count = 1};
    struct voxel_digest digest;
    ck_assert(voxel_digest_coords(&request, &digest));
    return digest;
}

/* Every bit, the order of rows and the shape count; the features and the names do not. */
START_TEST(a_digest_tells_coordinates_apart)
{
    struct voxel_tensor inputs[2];
    struct voxel_request request = request_make(inputs);
    for (int i = 0; i < ROWS * 4; i++) coords[i] = i * 7 - 20;
    struct voxel_digest first = digest_of(ROWS, 4);
    struct voxel_digest other;
    ck_assert(voxel_digest_coords(&request, &other));
    ck_assert(voxel_digest_same(&first, &other));
    for (int bit = 0; bit < ROWS * 4 * 32; bit++) {
        coords[bit / 32] ^= (int32_t)(1u << bit % 32);
        other = digest_of(ROWS, 4);
        ck_assert(!voxel_digest_same(&first, &other));
        ck_assert_uint_ne(first.words[0], other.words[0]);
        ck_assert_uint_ne(first.words[1], other.words[1]);
        coords[bit / 32] ^= (int32_t)(1u << bit % 32);
    }
    int32_t row[4];
    memcpy(row, coords, sizeof row);
    memmove(coords, coords + 4, sizeof row);
    memcpy(coords + 4, row, sizeof row);
    other = digest_of(ROWS, 4);
    ck_assert(!voxel_digest_same(&first, &other));
    for (int64_t columns = 1; columns < 7; columns++) {
        struct voxel_digest here = digest_of(12 / columns, columns);
        ck_assert(columns == 4 || !voxel_digest_same(&other, &here));
    }
}
END_TEST

/* The command line prints the digest: it is the same in every version. */
START_TEST(a_digest_stays_what_it_is)
{
    for (int i = 0; i < ROWS * 4; i++) coords[i] = i;
    struct voxel_digest digest = digest_of(ROWS, 4);
    ck_assert_uint_eq(digest.words[0], DIGEST_0);
    ck_assert_uint_eq(digest.words[1], DIGEST_1);
}
END_TEST

/* There are no coordinates, or they cannot be read: there is no digest, which is all
 * zero. */
START_TEST(what_is_not_there_has_no_digest)
{
    struct voxel_tensor input = voxel_tensor_make("c", VOXEL_INT32, 1, 4, NULL);
    struct voxel_request request = {.inputs = &input};
    struct voxel_digest digest = {{1, 1}};
    ck_assert(voxel_digest_coords(&request, &digest));
    ck_assert_uint_eq(digest.words[0] | digest.words[1], 0);
    request.inputs_count = 1;
    ck_assert(!voxel_digest_coords(&request, &digest));
    ck_assert_uint_eq(digest.words[0] | digest.words[1], 0);
}
END_TEST

static const char *header_of(int64_t rows, int64_t columns, const int32_t *data)
{
    static char text[VOXEL_GEOMETRY_BYTES];
    struct voxel_tensor input =
        voxel_tensor_make("any", VOXEL_INT32, rows, columns, data);
    const struct voxel_request request = {.inputs = &input, .inputs_count = 1};
    voxel_geometry_header(&request, text);
    return text;
}

/* What Python's zlib.crc32 gives: clients of both kinds reach the same server. */
START_TEST(a_header_is_what_other_clients_send)
{
    static int32_t many[400];
    for (int i = 0; i < 400; i++) many[i] = i;
    ck_assert_str_eq(header_of(3, 4, many), "0d2de450");
    ck_assert_str_eq(header_of(0, 4, NULL), "68f145af");
    ck_assert_str_eq(header_of(64, 3, many), "bc206629");
    ck_assert_str_eq(header_of(65, 4, many), "2c86bc3f");
    ck_assert_str_eq(header_of(100, 4, many), "84f575cd");
}
END_TEST

/* A name's request has the header of the coords that the name stands for, and coords that
 * are sent go before named ones. */
START_TEST(a_name_has_the_header_of_its_coords)
{
    struct voxel_tensor inputs[2];
    struct voxel_request request = request_make(inputs);
    char sent[VOXEL_GEOMETRY_BYTES], named[VOXEL_GEOMETRY_BYTES] = "x";
    voxel_geometry_header(&request, sent);
    ck_assert_uint_eq(strlen(sent), VOXEL_GEOMETRY_BYTES - 1);
    request.inputs = inputs + 1;
    request.inputs_count = 1;
    voxel_geometry_header(&request, named);
    ck_assert_str_eq(named, "");
    request.named_coords = inputs;
    voxel_geometry_header(&request, named);
    ck_assert_str_eq(named, sent);
    struct voxel_tensor other = inputs[0];
    other.shape[0] = ROWS - 1;
    request = (struct voxel_request){
        .inputs = inputs, .inputs_count = 2, .named_coords = &other};
    voxel_geometry_header(&request, named);
    ck_assert_str_eq(named, sent);
}
END_TEST

/* No header, and nothing is read beyond the tensor's bytes. */
START_TEST(what_cannot_be_read_has_no_header)
{
    struct voxel_tensor wrong = voxel_tensor_make("c", VOXEL_INT32, ROWS, 4, coords);
    const struct voxel_request request = {.named_coords = &wrong};
    char text[VOXEL_GEOMETRY_BYTES];
    wrong.shape[0] = 1000;
    voxel_geometry_header(&request, text);
    ck_assert_str_eq(text, "");
    wrong.shape[0] = -1;
    voxel_geometry_header(&request, text);
    ck_assert_str_eq(text, "");
    ck_assert_str_eq(header_of(ROWS, 4, NULL), "");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client geometry");
    TCase *tcase = tcase_create("wire");
    tcase_add_loop_test(tcase, a_geometry_goes_by_name, 0, 2);
    tcase_add_test(tcase, a_name_has_a_length);
    tcase_add_test(tcase, a_digest_tells_coordinates_apart);
    tcase_add_test(tcase, a_digest_stays_what_it_is);
    tcase_add_test(tcase, what_is_not_there_has_no_digest);
    tcase_add_test(tcase, a_header_is_what_other_clients_send);
    tcase_add_test(tcase, a_name_has_the_header_of_its_coords);
    tcase_add_test(tcase, what_cannot_be_read_has_no_header);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}
