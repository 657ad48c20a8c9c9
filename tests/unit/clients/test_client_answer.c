/* Answers that are well-formed but contradict the request: each is an error that names
 * what was requested and what came, and nothing is written to the caller's memory before.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "clients/c/infer_wire.h"
#include "clients/c/memory.h"
#include "clients/c/region.h"

#include "open_inference.pb-c.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#define ROWS 5

static float feats[ROWS * 3] = {1, 2, 3};

/* One answer: an output of [rows, 3] or, of rank 0, of one number; its name again if twice. */
struct said {
    const char *model, *version, *id, *output;
    int64_t rows; /* -1: rank 0 */
    bool twice, none;
};

static enum voxel_code answer_read(const struct said *said,
                                   const struct voxel_wanted *wanted,
                                   struct voxel_answer **answer,
                                   struct voxel_error *error)
{
    Inference__ModelInferResponse response = INFERENCE__MODEL_INFER_RESPONSE__INIT;
    Inference__ModelInferResponse__InferOutputTensor output =
        INFERENCE__MODEL_INFER_RESPONSE__INFER_OUTPUT_TENSOR__INIT;
    Inference__ModelInferResponse__InferOutputTensor *outputs[2] = {&output, &output};
    int64_t shape[2] = {said->rows, 3};
    size_t bytes = said->rows < 0 ? 4 : (size_t)said->rows * 12;
    ProtobufCBinaryData raw[2] = {{bytes, (uint8_t *)feats}, {bytes, (uint8_t *)feats}};
    response.model_name = (char *)(uintptr_t)said->model;
    response.model_version = (char *)(uintptr_t)said->version;
    response.id = (char *)(uintptr_t)said->id;
    output.name = (char *)(uintptr_t)said->output;
    output.datatype = (char *)(uintptr_t) "FP32";
    output.shape = shape;
    output.n_shape = said->rows < 0 ? 0 : 2;
    response.outputs = outputs;
    response.n_outputs = said->none ? 0 : said->twice ? 2 : 1;
    response.raw_output_contents = raw;
    response.n_raw_output_contents = response.n_outputs;
    size_t packed_bytes = inference__model_infer_response__get_packed_size(&response);
    uint8_t *packed = voxel_memory_take_bytes(packed_bytes);
    inference__model_infer_response__pack(&response, packed);
    const struct voxel_span span = {packed, packed_bytes};
    const struct voxel_spans spans = {&span, 1};
    enum voxel_code code = voxel_answer_parse(&spans, wanted, answer, error);
    voxel_memory_give(packed);
    return code;
}

static const char *const names[] = {"normals"};
static const struct voxel_wanted wanted = {.outputs = names,
                                           .outputs_count = 1,
                                           .model = "normals",
                                           .id = "7",
                                           .version = 12,
                                           .voxels = true,
                                           .rows = ROWS};

static const struct {
    struct said said;
    const char *expected; /* "": the answer is accepted */
} rows[] = {
    {{"normals", "12", "7", "normals", ROWS, false, false}, ""},
    /* What a server leaves out is no contradiction; but an id must come back. */
    {{"", "", "7", "normals", ROWS, false, false}, ""},
    {{"normals", "12", "", "normals", ROWS, false, false},
     "the request's id was '7', the answer's is ''"},
    {{"normals", "12", "8", "normals", ROWS, false, false},
     "the request's id was '7', the answer's is '8'"},
    {{"colours", "12", "7", "normals", ROWS, false, false},
     "the request is for model 'normals', the answer is from 'colours'"},
    {{"normals", "1", "7", "normals", ROWS, false, false},
     "the request is for version 12, the answer is from '1'"},
    {{"normals", "12", "7", "colours", ROWS, false, false},
     "the answer lacks output 'normals'"},
    {{"normals", "12", "7", "normals", ROWS, true, false},
     "the answer has output 'normals' twice"},
    {{"normals", "12", "7", "normals", ROWS, false, true},
     "the answer lacks output 'normals'"},
    {{"normals", "12", "7", "normals", ROWS - 1, false, false},
     "output 'normals' has 4 rows; expected 5, one for each voxel"},
    {{"normals", "12", "7", "normals", 0, false, false},
     "output 'normals' has 0 rows; expected 5, one for each voxel"},
    {{"normals", "12", "7", "normals", -1, false, false},
     "output 'normals' has no rows; expected 5, one for each voxel"},
};

START_TEST(an_answer_is_to_the_request)
{
    struct voxel_answer *answer;
    struct voxel_error error;
    float memory[ROWS * 3] = {0};
    const struct voxel_place place = {
        .output = "normals", .memory = memory, .bytes = sizeof memory};
    struct voxel_wanted all = wanted;
    all.places = &place;
    all.places_count = 1;
    enum voxel_code code = answer_read(&rows[_i].said, &all, &answer, &error);
    ck_assert_str_eq(error.text, rows[_i].expected);
    if (!*rows[_i].expected) {
        ck_assert_int_eq(code, VOXEL_OK);
        ck_assert_mem_eq(memory, feats, sizeof memory);
    } else {
        ck_assert_int_eq(code, VOXEL_INTERNAL);
        ck_assert_ptr_null(answer);
        ck_assert(memory[0] == 0); /* nothing was written */
    }
    voxel_answer_free(answer);
}
END_TEST

START_TEST(what_has_a_place_must_come)
{
    static uint8_t bytes[64];
    static const struct voxel_region region = {
        .key = "/voxel-1", .name = "voxel-1", .bytes = sizeof bytes, .memory = bytes};
    const struct said said = {"", "", "", "normals", 1, false, false};
    struct voxel_place place = {.output = "colours", .memory = bytes, .bytes = 64};
    struct voxel_wanted one = {.places = &place, .places_count = 1};
    struct voxel_answer *answer;
    struct voxel_error error;
    ck_assert_int_eq(answer_read(&said, &one, &answer, &error), VOXEL_INTERNAL);
    ck_assert_str_eq(error.text, "the answer lacks output 'colours'");
    /* The answer has other outputs: this one was not requested, and its memory stays
     * as it is. */
    one.outputs = names;
    one.outputs_count = 1;
    ck_assert_int_eq(answer_read(&said, &one, &answer, &error), VOXEL_OK);
    voxel_answer_free(answer);
    /* A place in a region requests the output. */
    place.region = &region;
    ck_assert_int_eq(answer_read(&said, &one, &answer, &error), VOXEL_INTERNAL);
    ck_assert_str_eq(error.text, "the answer lacks output 'colours'");
}
END_TEST

START_TEST(voxels_have_an_answer)
{
    const struct said said = {.model = "", .version = "", .id = "", .none = true};
    struct voxel_wanted any = {.voxels = true};
    struct voxel_answer *answer;
    struct voxel_error error;
    ck_assert_int_eq(answer_read(&said, &any, &answer, &error), VOXEL_INTERNAL);
    ck_assert_str_eq(error.text, "the answer has no output");
    const struct said nameless = {.model = "", .version = "", .id = "", .output = ""};
    any.voxels = false;
    ck_assert_int_eq(answer_read(&nameless, &any, &answer, &error), VOXEL_INTERNAL);
    ck_assert_str_eq(error.text, "the answer has an output without a name");
    ck_assert_int_eq(answer_read(&said, &any, &answer, &error), VOXEL_OK);
    voxel_answer_free(answer);
}
END_TEST

/* ------- outputs on voxels of their own ------- */

typedef Inference__ModelInferResponse__InferOutputTensor Tensor;
typedef Inference__ModelInferResponse__InferOutputTensor__ParametersEntry Entry;

/* Four rows of "top" with their coordinates in "at", for a request of other rows. */
struct own {
    const char *stride, *coords;
    const char *type; /* of the coordinates */
    int64_t rows, columns;
    const char *expected; /* "": the answer is accepted */
};

static enum voxel_code own_read(const struct own *own, struct voxel_answer **answer,
                                struct voxel_error *error)
{
    static uint8_t bytes[256];
    Inference__ModelInferResponse response = INFERENCE__MODEL_INFER_RESPONSE__INIT;
    Tensor tensors[2] = {INFERENCE__MODEL_INFER_RESPONSE__INFER_OUTPUT_TENSOR__INIT,
                         INFERENCE__MODEL_INFER_RESPONSE__INFER_OUTPUT_TENSOR__INIT};
    Tensor *list[2] = {&tensors[0], &tensors[1]};
    int64_t shapes[2][2] = {{4, 3}, {own->rows, own->columns}};
    const char *const keys[2] = {"coords", "stride"};
    const char *const texts[2] = {own->coords, own->stride};
    Entry entries[2], *entry_list[2] = {&entries[0], &entries[1]};
    Inference__InferParameter values[2];
    for (int i = 0; i < 2; i++) {
        inference__model_infer_response__infer_output_tensor__parameters_entry__init(
            &entries[i]);
        inference__infer_parameter__init(&values[i]);
        values[i].parameter_choice_case =
            INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM;
        values[i].string_param = (char *)(uintptr_t)texts[i];
        entries[i].key = (char *)(uintptr_t)keys[i];
        entries[i].value = &values[i];
        tensors[i].shape = shapes[i];
        tensors[i].n_shape = 2;
    }
    tensors[0].name = (char *)(uintptr_t) "top";
    tensors[0].datatype = (char *)(uintptr_t) "FP32";
    tensors[0].parameters = entry_list;
    tensors[0].n_parameters = 2;
    tensors[1].name = (char *)(uintptr_t) "at";
    tensors[1].datatype = (char *)(uintptr_t)own->type;
    tensors[1].parameters = entry_list + 1; /* its stride alone */
    tensors[1].n_parameters = 1;
    ProtobufCBinaryData raw[2] = {{48, bytes},
                                  {(size_t)(own->rows * own->columns) * 4, bytes}};
    response.outputs = list;
    response.raw_output_contents = raw;
    response.n_outputs = response.n_raw_output_contents = 2;
    size_t packed_bytes = inference__model_infer_response__get_packed_size(&response);
    uint8_t *packed = voxel_memory_take_bytes(packed_bytes);
    inference__model_infer_response__pack(&response, packed);
    const struct voxel_span span = {packed, packed_bytes};
    const struct voxel_spans spans = {&span, 1};
    const struct voxel_wanted any = {.voxels = true, .rows = ROWS};
    enum voxel_code code = voxel_answer_parse(&spans, &any, answer, error);
    voxel_memory_give(packed);
    return code;
}

#define STRIDE(text_) "output 'top' has the stride '" text_ "'; expected a text as 2x2x2"
#define COORDS                                                                           \
    "output 'top' has no coordinates: expected 'at' to be INT32 with 4 columns and a "   \
    "row for each of its rows"
static const struct own owns[] = {
    {"2x4x1/2", "at", "INT32", 4, 4, ""},
    {"2x2", "at", "INT32", 4, 4, STRIDE("2x2")},
    {"2x2x2x2", "at", "INT32", 4, 4, STRIDE("2x2x2x2")},
    {"2x0x2", "at", "INT32", 4, 4, STRIDE("2x0x2")},
    {"2x1/0x2", "at", "INT32", 4, 4, STRIDE("2x1/0x2")},
    {"-2x2x2", "at", "INT32", 4, 4, STRIDE("-2x2x2")},
    {"2x2x2", "at", "INT32", 5, 4, COORDS},
    {"2x2x2", "at", "INT32", 4, 3, COORDS},
    {"2x2x2", "at", "FP32", 4, 4, COORDS},
};

START_TEST(outputs_may_have_voxels_of_their_own)
{
    struct voxel_answer *answer;
    struct voxel_error error;
    struct voxel_sparse sparse;
    enum voxel_code code = own_read(&owns[_i], &answer, &error);
    ck_assert_str_eq(error.text, owns[_i].expected);
    ck_assert_int_eq(code, *owns[_i].expected ? VOXEL_INTERNAL : VOXEL_OK);
    if (code) return;
    ck_assert(voxel_answer_sparse(answer, "top", &sparse));
    ck_assert_ptr_eq(sparse.features, &answer->outputs[0]);
    ck_assert_ptr_eq(sparse.coords, &answer->outputs[1]);
    ck_assert(sparse.stride[0] == 2 && sparse.stride[1] == 4 && sparse.stride[2] == 0.5);
    ck_assert(!voxel_answer_sparse(answer, "at", &sparse)); /* it has none itself */
    ck_assert(!voxel_answer_sparse(answer, "other", &sparse));
    voxel_answer_free(answer);
}
END_TEST

/* An answer to a request for "top" alone lacks its coordinates, and is an answer. */
START_TEST(coordinates_may_be_left_out)
{
    const struct own own = {"2x2x2", "elsewhere", "INT32", 4, 4, ""};
    struct voxel_answer *answer;
    struct voxel_error error;
    struct voxel_sparse sparse;
    ck_assert_int_eq(own_read(&own, &answer, &error), VOXEL_OK);
    ck_assert(!voxel_answer_sparse(answer, "top", &sparse));
    ck_assert_str_eq(answer->outputs[0].coords, "elsewhere");
    voxel_answer_free(answer);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client_answer");
    TCase *tcase = tcase_create("answer");
    tcase_add_loop_test(tcase, an_answer_is_to_the_request, 0,
                        sizeof rows / sizeof *rows);
    tcase_add_test(tcase, what_has_a_place_must_come);
    tcase_add_test(tcase, voxels_have_an_answer);
    tcase_add_loop_test(tcase, outputs_may_have_voxels_of_their_own, 0,
                        sizeof owns / sizeof *owns);
    tcase_add_test(tcase, coordinates_may_be_left_out);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
