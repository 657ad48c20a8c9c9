/* The tool record: the .npz it reads and writes, which layers it runs together, the
 * network.json of a run, and recordings of small networks on the CPU and the fake device.
 *
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/tools/record.h"

#include "engine/base/process/alloc.h"
#include "tests/support/engine_rig.h"
#include "tests/support/model_files.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[VX_TEST_PATH_BYTES];

static void set_up(void)
{
    vx_test_directory(folder);
}

static void tear_down(void)
{
    vx_test_remove(folder);
}

static const char *path_of(const char *name, char path[VX_TEST_PATH_BYTES + 32])
{
    snprintf(path, VX_TEST_PATH_BYTES + 32, "%s/%s", folder, name);
    return path;
}

static void good(vx_status status, const struct vx_why *why)
{
    ck_assert_msg(!status.fault, "%s", vx_status_text(status, why));
}

/* --- npz --- */

static struct vx_npz_array array_of(const char *name, i64 rows, i64 columns, void *data)
{
    struct vx_npz_array array = {
        .kind = 'f', .size = 4, .rank = 2, .shape = {rows, columns}, .data = data};
    snprintf(array.name, sizeof array.name, "%s", name);
    return array;
}

static void write_two(const char *path, f32 *cells)
{
    struct vx_why why = {""};
    struct vx_npz *npz;
    struct vx_npz_array one = array_of("one", 2, 3, cells),
                        two = array_of("two", 0, 4, cells);
    one.place = 2;
    two.place = 1;
    good(vx_npz_create(path, &why, &npz), &why);
    good(vx_npz_add(npz, &one, &why), &why);
    good(vx_npz_add(npz, &two, &why), &why);
    ck_assert_int_ne(access(path, F_OK), 0); /* whole or not at all */
    good(vx_npz_close(&npz, &why), &why);
    ck_assert_ptr_null(npz);
}

static size_t file_bytes(const char *path, u8 *bytes, size_t room)
{
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    size_t size = fread(bytes, 1, room, file);
    fclose(file);
    return size;
}

START_TEST(a_checksum_is_that_of_the_standard)
{
    ck_assert_uint_eq(vx_npz_crc(0, "123456789", 9), 0xcbf43926u);
    ck_assert_uint_eq(vx_npz_crc(vx_npz_crc(0, "1234", 4), "56789", 5), 0xcbf43926u);
}
END_TEST

START_TEST(arrays_come_back_in_the_order_of_their_places)
{
    char path[VX_TEST_PATH_BYTES + 32];
    f32 cells[6] = {1, -2, 3, -4, 5, 1e-30f};
    u8 bytes[4096];
    struct vx_why why = {""};
    struct vx_npz_array array;
    write_two(path_of("a.npz", path), cells);
    good(vx_npz_read(path, "one", &why, &array), &why);
    ck_assert_int_eq(array.rank, 2);
    ck_assert_int_eq(array.shape[1], 3);
    ck_assert_mem_eq(array.data, cells, sizeof cells);
    vx_free(array.data);
    good(vx_npz_read(path, "two", &why, &array), &why);
    ck_assert_int_eq(array.shape[0], 0);
    vx_free(array.data);
    ck_assert_int_eq(vx_status_code(vx_npz_read(path, "on", &why, &array)),
                     VX_CODE_NOT_FOUND);
    /* Behind the arrays, the directory has the least place first. */
    size_t size = file_bytes(path, bytes, sizeof bytes);
    const u8 *second = memmem(bytes, size, "two.npy", 7);
    second = memmem(second + 1, size - (size_t)(second + 1 - bytes), "two.npy", 7);
    const u8 *first = memmem(bytes, size, "one.npy", 7);
    first = memmem(first + 1, size - (size_t)(first + 1 - bytes), "one.npy", 7);
    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_nonnull(second);
    ck_assert(second < first);
}
END_TEST

/* A file that is cut anywhere is refused; a changed byte is refused or reads nothing else
 * than the numbers that were written. */
START_TEST(damaged_files_are_refused)
{
    char path[VX_TEST_PATH_BYTES + 32], other[VX_TEST_PATH_BYTES + 32];
    f32 cells[6] = {1, 2, 3, 4, 5, 6};
    u8 bytes[4096];
    struct vx_why why;
    struct vx_npz_array array;
    write_two(path_of("a.npz", path), cells);
    size_t size = file_bytes(path, bytes, sizeof bytes);
    path_of("b.npz", other);
    for (size_t cut = 0; cut < size; cut++) {
        vx_test_write_file(other, bytes, cut);
        ck_assert(vx_npz_read(other, "one", &why, &array).fault);
    }
    i32 refused = 0;
    for (size_t at = 0; at < size; at++) {
        bytes[at] ^= 0x21;
        vx_test_write_file(other, bytes, size);
        if (vx_npz_read(other, "one", &why, &array).fault) {
            refused++;
        } else {
            ck_assert_uint_eq(vx_npz_bytes(&array), sizeof cells);
            ck_assert_mem_eq(array.data, cells, sizeof cells);
            vx_free(array.data);
        }
        bytes[at] ^= 0x21;
    }
    ck_assert_int_gt(refused, 150); /* all of the entry, 30 + 7 + 128 bytes */
}
END_TEST

START_TEST(a_compressed_array_is_refused_with_a_word)
{
    char path[VX_TEST_PATH_BYTES + 32];
    f32 cells[6] = {0};
    u8 bytes[4096];
    struct vx_why why = {""};
    struct vx_npz_array array;
    write_two(path_of("a.npz", path), cells);
    size_t size = file_bytes(path, bytes, sizeof bytes);
    for (u8 *at = bytes; (at = memmem(at, size - (size_t)(at - bytes), "PK\x01\x02", 4));)
        (at += 10)[0] = 8;
    vx_test_write_file(path, bytes, size);
    ck_assert_int_eq(vx_status_code(vx_npz_read(path, "one", &why, &array)),
                     VX_CODE_INVALID_ARGUMENT);
    ck_assert_ptr_nonnull(strstr(why.text, "np.savez_compressed"));
}
END_TEST

/* --- runs --- */

struct parsed {
    u8 *block;
    struct vx_arena arena;
    const struct vx_network *network;
    const struct vx_json *root;
};

static struct parsed parse(const char *text)
{
    struct parsed parsed = {.block = malloc(2 * VX_NETWORK_ARENA_BYTES)};
    struct vx_why why = {""};
    const struct vx_network_text source = {text, strlen(text), "test"};
    vx_arena_init(&parsed.arena, parsed.block, 2 * VX_NETWORK_ARENA_BYTES);
    good(vx_network_parse(&source, &parsed.arena, &why, &parsed.network), &why);
    good(vx_json_parse(text, strlen(text), &parsed.arena, &why, &parsed.root), &why);
    return parsed;
}

#define CONV(name_, input_)                                                              \
    VX_RIG_CONV(name_, input_, "4", ",\"kernel\":3,\"layout\":\"spconv\"")
static const char levels[] = VX_RIG_HEAD CONV("stem", "feats") VX_RIG_OP(
    "relu", "act",
    "stem") "{\"name\":\"down\",\"op\":\"sparse_conv\",\"input\":\"act\",\"channels\":4,"
            "\"kernel\":2,\"stride\":2,\"rule\":\"floor\"},"
            "{\"name\":\"pool\",\"op\":\"max_pool\",\"input\":\"act\",\"kernel\":2,"
            "\"stride\":2,\"rule\":\"floor\"},"
            "{\"name\":\"sum\",\"op\":\"add\",\"inputs\":[\"down\",\"pool\"]},"
            "{\"name\":\"la\\\"bel\",\"op\":\"argmax\",\"input\":\"sum\"},"
            "{\"name\":\"up\",\"op\":\"inverse_conv\",\"input\":\"sum\",\"channels\":2,"
            "\"of\":\"down\",\"layout\":\"oxyzi\"}],"
            "\"outputs\":[{\"layer\":\"up\"},{\"layer\":\"la\\\"bel\"},"
            "{\"name\":\"down\",\"layer\":\"act\",\"datatype\":\"FP16\"}],"
            "\"limits\":{\"sets\":{\"sum\":177}}}";

START_TEST(layers_that_stand_together_run_apart)
{
    static char text[VX_NETWORK_BYTES_MAX];
    static struct vx_record_plan plan;
    struct vx_why why;
    i32 outputs[VX_LAYERS_MAX] = {0};
    size_t used = (size_t)snprintf(text, sizeof text, "%s", VX_RIG_HEAD);
    char input[16] = "feats";
    for (int i = 0; i < _i; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used,
                                 "%s{\"name\":\"l%d\",\"op\":\"relu\",\"input\":\"%s\"}",
                                 i ? "," : "", i, input);
        snprintf(input, sizeof input, "l%d", i);
    }
    snprintf(text + used, sizeof text - used, "],\"outputs\":[{\"layer\":\"%s\"}]}",
             input);
    struct parsed parsed = parse(text);
    good(vx_record_plan_make(parsed.network, NULL, &why, &plan), &why);
    ck_assert_int_eq(plan.layers_count, _i);
    for (int i = 0; i < _i; i++) {
        ck_assert_int_eq(plan.output[i], outputs[plan.run[i]]++);
        ck_assert_int_lt(plan.output[i], VX_NETWORK_OUTPUTS_MAX);
        for (int j = 1; j < VX_RECORD_APART && j <= i; j++)
            ck_assert_int_ne(plan.run[i], plan.run[i - j]);
    }
    free(parsed.block);
}
END_TEST

START_TEST(names_choose_layers)
{
    static struct vx_record_plan plan;
    struct vx_why why;
    struct parsed parsed = parse(levels);
    good(vx_record_plan_make(parsed.network, "sum,stem", &why, &plan), &why);
    ck_assert_int_eq(plan.layers_count, 2);
    ck_assert(plan.run[0] >= 0 && plan.run[4] >= 0 && plan.run[1] < 0);
    good(vx_record_plan_make(parsed.network, "", &why, &plan), &why);
    ck_assert_int_eq(plan.runs_count, 0);
    ck_assert_int_eq(
        vx_status_code(vx_record_plan_make(parsed.network, "sum,ste", &why, &plan)),
        VX_CODE_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(why.text, "\"ste\""));
    free(parsed.block);
}
END_TEST

/* Every run is a legal network of the same sets and limits. */
START_TEST(a_run_has_what_its_outputs_need)
{
    static struct vx_record_plan plan;
    static char text[VX_NETWORK_BYTES_MAX];
    struct vx_why why = {""};
    struct parsed parsed = parse(levels);
    const struct vx_record_source source = {parsed.network, parsed.root,
                                            VX_PRECISION_FP16, 123};
    good(vx_record_plan_make(parsed.network, NULL, &why, &plan), &why);
    for (i32 run = VX_RECORD_OUTPUTS; run < plan.runs_count; run++) {
        struct vx_page page = {text, sizeof text, 0};
        i32 outputs = 0;
        good(vx_record_text(&source, &plan, run, &why, &page), &why);
        struct parsed part = parse(text);
        ck_assert_int_eq(part.network->voxels_max, 123);
        ck_assert_int_eq(part.network->warmup_count, 0);
        ck_assert_int_eq(part.network->precision, VX_PRECISION_FP16);
        for (i32 s = 1; s < part.network->sets_count; s++)
            ck_assert_int_eq(part.network->sets[s].rows_max, 177);
        for (i32 i = 0; i < parsed.network->layers_count; i++) {
            if (plan.run[i] != run) continue;
            const i32 layer = part.network->outputs[plan.output[i]].layer;
            ck_assert_str_eq(part.network->layers[layer].name,
                             parsed.network->layers[i].name);
            outputs++;
        }
        ck_assert_int_eq(part.network->outputs_count,
                         run == VX_RECORD_OUTPUTS ? 3 : outputs);
        free(part.block);
    }
    free(parsed.block);
}
END_TEST

/* --- the tool --- */

static int record(const char *const *more)
{
    char *arguments[24];
    int count = 0;
    arguments[count++] = strdup("record");
    while (*more) arguments[count++] = strdup(*more++);
    /* It moves words inside the list, so the first has them all. */
    char *words[24];
    memcpy(words, arguments, sizeof words);
    int code = vx_engine_tool(count, arguments);
    for (int i = 0; i < count; i++) free(words[i]);
    return code;
}

/* A model and an example with two samples, whose rows are in no order. */
static void write_model(const char *json, i64 voxels)
{
    char path[VX_TEST_PATH_BYTES + 32];
    struct vx_why why = {""};
    struct vx_npz *npz;
    vx_rig_write_model(path_of("model", path), json, 5);
    vx_test_write_file(path_of("model/7", path), "x", 1); /* a file is no version */
    struct vx_rig_request *request = vx_rig_request(9, voxels, 4, VX_DTYPE_F32);
    struct vx_npz_array coords = array_of("coords", voxels, 4, request->coords);
    struct vx_npz_array feats =
        array_of("feats", voxels, VX_RIG_CHANNELS, request->feats);
    coords.kind = 'i';
    good(vx_npz_create(path_of("e.npz", path), &why, &npz), &why);
    good(vx_npz_add(npz, &coords, &why), &why);
    good(vx_npz_add(npz, &feats, &why), &why);
    good(vx_npz_close(&npz, &why), &why);
    vx_free(request);
}

static struct vx_npz_array read_array(const char *path, const char *name)
{
    struct vx_why why = {""};
    struct vx_npz_array array;
    good(vx_npz_read(path, name, &why, &array), &why);
    return array;
}

static void same_arrays(const char *path, const char *one, const char *other)
{
    struct vx_npz_array a = read_array(path, one), b = read_array(path, other);
    ck_assert_int_eq(a.kind, b.kind);
    ck_assert_uint_eq(vx_npz_bytes(&a), vx_npz_bytes(&b));
    if (vx_npz_bytes(&a)) ck_assert_mem_eq(a.data, b.data, vx_npz_bytes(&a));
    vx_free(a.data);
    vx_free(b.data);
}

static bool has_array(const char *path, const char *name)
{
    struct vx_why why;
    struct vx_npz_array array;
    if (vx_npz_read(path, name, &why, &array).fault) return false;
    vx_free(array.data);
    return true;
}

START_TEST(a_recording_has_every_layer_with_its_voxels)
{
    static const char *const devices[] = {"cpu", "fake"};
    char out[VX_TEST_PATH_BYTES + 32], example[VX_TEST_PATH_BYTES + 32],
        model[VX_TEST_PATH_BYTES + 32];
    const i64 voxels = _i / 2 ? 0 : 150;
    write_model(levels, voxels);
    const char *const words[] = {path_of("model/1", model),
                                 "--example",
                                 path_of("e.npz", example),
                                 "-o",
                                 path_of("r.npz", out),
                                 "--device",
                                 devices[_i % 2],
                                 "--device-bytes",
                                 "64M",
                                 NULL};
    ck_assert_int_eq(record(words), 0);
    struct vx_npz_array down = read_array(out, "layer.down");
    struct vx_npz_array at = read_array(out, "at.down");
    struct vx_npz_array label = read_array(out, "layer.la\"bel");
    ck_assert_int_eq(down.shape[0], at.shape[0]);
    ck_assert_int_eq(down.shape[1], 4);
    ck_assert_int_eq(at.shape[1], 4);
    ck_assert_int_eq(at.kind, 'i');
    ck_assert_int_eq(label.kind, 'i');
    ck_assert_int_eq(label.shape[0], at.shape[0]);
    if (voxels) ck_assert(at.shape[0] > 0 && at.shape[0] < voxels);
    const i32 *rows = at.data;
    for (i64 i = 1; i < at.shape[0]; i++) {
        i32 k = 0;
        while (k < 3 && rows[4 * i + k] == rows[4 * (i - 1) + k]) k++;
        ck_assert_int_gt(rows[4 * i + k], rows[4 * (i - 1) + k]);
    }
    vx_free(down.data);
    vx_free(at.data);
    vx_free(label.data);
    same_arrays(out, "at.down", "at.sum");
    /* On a GPU the sum is part of a convolution, unless that is recorded beside "up". */
    if (_i % 2 == 0) same_arrays(out, "layer.up", "out.up");
    same_arrays(out, "layer.la\"bel", "out.la\"bel");
    /* The output "down" lies on the request's voxels, unlike the layer of that name. */
    same_arrays(out, "at.out.down", "coords");
    ck_assert(!has_array(out, "at.stem") && !has_array(out, "at.out.up"));
    struct vx_npz_array half = read_array(out, "out.down");
    ck_assert(half.kind == 'f' && half.size == 4); /* FP16 is widened */
    vx_free(half.data);
}
END_TEST

START_TEST(the_tool_refuses)
{
    static const struct {
        const char *const words[8];
        int code;
    } cases[] = {
        {{NULL}, 2},
        {{"m", "-o", "r.npz"}, 2},
        {{"m", "--example", "e.npz"}, 2},
        {{"m", "--example", "e.npz", "-o", "r.npz", "--device", "tpu"}, 2},
        {{"m", "--example", "e.npz", "-o", "r.npz", "--precision", "fp16"}, 2},
        {{"m", "--example", "e.npz", "-o", "r.npz", "--threads", "x"}, 2},
        {{"m", "--example", "e.npz", "-o", "r.npz", "--layer", "x"}, 2},
        {{"m", "--example", "e.npz", "-o", "r.npz", "--outputs-only", "--layers"}, 2},
        {{"/nowhere/m", "--example", "e.npz", "-o", "r.npz"}, 1},
    };
    const char *words[9] = {NULL};
    memcpy(words, cases[_i].words, sizeof cases[_i].words);
    ck_assert_int_eq(record(words), cases[_i].code);
}
END_TEST

static i64 size_of(const char *path)
{
    struct stat file;
    ck_assert_msg(!stat(path, &file), "%s", path);
    return file.st_size;
}

START_TEST(what_is_read_is_not_written_over)
{
    static const char *const read[] = {"model/network.json",
                                       "model/1/weights.safetensors", "e.npz"};
    char at[3][VX_TEST_PATH_BYTES + 32], out[VX_TEST_PATH_BYTES + 32];
    write_model(levels, 150);
    const char *const words[] = {path_of("model", at[0]),    "--example",
                                 path_of("e.npz", at[1]),    "-o",
                                 path_of("link.npz", at[2]), NULL};
    ck_assert(!symlink(path_of(read[_i], out), at[2]));
    const i64 before = size_of(out);
    ck_assert_int_eq(record(words), 1);
    ck_assert_int_eq(size_of(out), before);
}
END_TEST

START_TEST(a_run_that_fails_leaves_no_file)
{
    char out[VX_TEST_PATH_BYTES + 32], example[VX_TEST_PATH_BYTES + 32],
        model[VX_TEST_PATH_BYTES + 32];
    write_model(levels, 150);
    const char *words[] = {path_of("model", model),
                           "--example",
                           path_of("e.npz", example),
                           "-o",
                           path_of("r.npz", out),
                           "--layers",
                           "nothing",
                           NULL};
    ck_assert_int_eq(record(words), 1);
    words[5] = "--device";
    words[6] = "cpu";
    struct vx_rig_request *request = vx_rig_request(9, 2, 4, VX_DTYPE_F32);
    memcpy(&request->coords[4], request->coords, 4 * sizeof(i32)); /* one voxel twice */
    struct vx_npz_array coords = array_of("coords", 2, 4, request->coords);
    struct vx_npz_array feats = array_of("feats", 2, VX_RIG_CHANNELS, request->feats);
    struct vx_why why = {""};
    struct vx_npz *npz;
    coords.kind = 'i';
    good(vx_npz_create(example, &why, &npz), &why);
    good(vx_npz_add(npz, &coords, &why), &why);
    good(vx_npz_add(npz, &feats, &why), &why);
    good(vx_npz_close(&npz, &why), &why);
    ck_assert_int_eq(record(words), 1);
    ck_assert_int_ne(access(out, F_OK), 0);
    vx_free(request);
}
END_TEST

static Suite *record_suite(void)
{
    Suite *suite = suite_create("record");
    TCase *tcase = tcase_create("record");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_checksum_is_that_of_the_standard);
    tcase_add_test(tcase, arrays_come_back_in_the_order_of_their_places);
    tcase_add_test(tcase, damaged_files_are_refused);
    tcase_add_test(tcase, a_compressed_array_is_refused_with_a_word);
    tcase_add_loop_test(tcase, layers_that_stand_together_run_apart, 1, 40);
    tcase_add_test(tcase, names_choose_layers);
    tcase_add_test(tcase, a_run_has_what_its_outputs_need);
    tcase_add_loop_test(tcase, a_recording_has_every_layer_with_its_voxels, 0, 4);
    tcase_add_loop_test(tcase, the_tool_refuses, 0, 9);
    tcase_add_loop_test(tcase, what_is_read_is_not_written_over, 0, 3);
    tcase_add_test(tcase, a_run_that_fails_leaves_no_file);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(record_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
