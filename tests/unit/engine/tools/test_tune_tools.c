/* The tools tune and bench, called as on the command line, on the fake device.
 * SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/memory/arena.h"
#include "engine/base/text/json.h"
#include "engine/engine.h"
#include "engine/gpu/conv/conv.h"
#include "engine/tune/table.h"
#include "tests/support/model_files.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CELLS(array_) (array_), (int)VX_COUNT(array_)

static void good(vx_status status, const struct vx_why *why)
{
    ck_assert_msg(!status.fault, "%s", vx_status_text(status, why));
}

static int tool(const char *const *words, int count)
{
    char *arguments[32];
    ck_assert_int_le(count, 32);
    for (int i = 0; i < count; i++) arguments[i] = strdup(words[i]);
    int code = vx_engine_tool(count, arguments);
    for (int i = 0; i < count; i++) free(arguments[i]);
    return code;
}

static char *file_text(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    char *text = malloc(1 << 20);
    *bytes = fread(text, 1, 1 << 20, file);
    fclose(file);
    return text;
}

/* Every line is one JSON object with the keys that compare needs; returns the lines that
 * have `what`. */
static i32 json_rows(const char *path, const char *what)
{
    size_t bytes;
    char *text = file_text(path, &bytes);
    u8 *block = malloc(1 << 20);
    i32 found = 0;
    for (char *line = text, *end; line < text + bytes; line = end + 1) {
        struct vx_arena arena;
        struct vx_why why = {""};
        const struct vx_json *root;
        end = memchr(line, '\n', (size_t)(text + bytes - line));
        ck_assert_ptr_nonnull(end);
        vx_arena_init(&arena, block, 1 << 20);
        good(vx_json_parse(line, (size_t)(end - line), &arena, &why, &root), &why);
        ck_assert_ptr_nonnull(vx_json_find(root, "median_ns"));
        ck_assert_ptr_nonnull(vx_json_find(root, "device"));
        ck_assert_ptr_nonnull(vx_json_find(root, "source"));
        /* The fake has neither clock nor power. */
        ck_assert_int_eq(vx_json_find(root, "clock_mhz")->kind, VX_JSON_NULL);
        ck_assert_int_eq(vx_json_find(root, "watts")->kind, VX_JSON_NULL);
        found += !strcmp(vx_json_find(root, "what")->text, what);
    }
    free(block);
    free(text);
    return found;
}

START_TEST(test_tools_refuse)
{
    static const char *const cases[][4] = {
        {"bench", "--colour", "red", NULL},
        {"bench", "--runs", NULL},
        {"bench", "--runs", "0", NULL},
        {"bench", "--runs", "5x", NULL},
        {"bench", "--kernel", "2", NULL},
        {"bench", "--type", "int8", NULL},
        {"bench", "--algorithm", "best", NULL},
        {"bench", "--list", "some", NULL},
        {"bench", "--shape", "8", NULL},
        {"bench", "--order", "random", NULL},
        {"tune", "--mode", "some", NULL},
        {"tune", "--types", "fp16,int8", NULL},
        {"tune", "--sizes", "0", NULL},
        {"tune", "--algorithm", "x", NULL},
        {"tune", "--density", "dense", NULL},
        {"tune", "--density", "sparse,sparse,surface", NULL},
    };
    int count = 0;
    while (count < 4 && cases[_i][count]) count++;
    ck_assert_int_eq(tool(cases[_i], count), 2);
}
END_TEST

START_TEST(test_tool_bench)
{
    char path[] = "/tmp/vx_bench_XXXXXX";
    const char *const words[] = {"bench",   "--device",    "fake",   "--list",  "all",
                                 "--shape", "8:16,8:32:2", "--runs", "2",       "--json",
                                 path,      "--network",   "c16x2",  "--sizes", "40,192"};
    close(mkstemp(path));
    ck_assert_int_eq(tool(CELLS(words)), 0);
    ck_assert_int_eq(json_rows(path, "conv"), 4);  /* two shapes, warm and cold */
    ck_assert_int_eq(json_rows(path, "infer"), 1); /* the shape with layers */
    ck_assert_int_eq(json_rows(path, "map"), 4);   /* two shapes, recorded and eager */
    ck_assert_int_eq(json_rows(path, "dense"), 1);
    ck_assert_int_eq(json_rows(path, "copy"), 1);
    ck_assert_int_eq(json_rows(path, "layer_norm"), 2);
    ck_assert_int_eq(json_rows(path, "rows_out"), 2);
    ck_assert_int_eq(json_rows(path, "to_dense"), 2);
    /* Two sizes, of each six parts, and two more with the geometry kept. */
    ck_assert_int_eq(json_rows(path, "network"), 16);
    unlink(path);
}
END_TEST

/* Every algorithm by name. */
START_TEST(test_tool_bench_algorithm)
{
    const char *const words[] = {
        "bench",   "--device",    "fake",
        "--shape", "8:16",        "--runs",
        "1",       "--algorithm", vx_conv_name((enum vx_conv_algorithm)_i)};
    ck_assert_int_eq(tool(CELLS(words)), 0);
}
END_TEST

START_TEST(test_tool_tune)
{
    char path[] = "/tmp/vx_tune_XXXXXX";
    const char *const words[] = {"tune",      "--device", "fake",   "--shapes",
                                 "8:16",      "--sizes",  "50,192", "--types",
                                 "fp16,bf16", "--table",  path};
    const char *const with[] = {"bench",  "--device", "fake",    "--shape", "8:16",
                                "--runs", "1",        "--table", path};
    struct vx_tune_table *table;
    struct vx_why why = {""};
    close(mkstemp(path));
    unlink(path);
    ck_assert_int_eq(tool(CELLS(words)), 0);
    good(vx_tune_table_open("fake GPU", &why, &table), &why);
    good(vx_tune_table_read(table, path, &why), &why);
    ck_assert_int_ge(vx_tune_table_count(table), 4); /* sizes x types */
    vx_tune_table_close(&table);
    ck_assert_int_eq(tool(CELLS(with)), 0);
    unlink(path);
}
END_TEST

static i32 rows_of(const char *path, enum vx_density density)
{
    struct vx_tune_table *table;
    struct vx_why why = {""};
    i32 count = 0;
    good(vx_tune_table_open("fake GPU", &why, &table), &why);
    good(vx_tune_table_read(table, path, &why), &why);
    for (i32 i = 0; i < vx_tune_table_count(table); i++)
        count += vx_tune_table_row(table, i)->density == density;
    vx_tune_table_close(&table);
    return count;
}

/* 50 voxels without neighbours. */
static void write_cloud(const char *path)
{
    char head[119] = "{'descr': '<i4', 'fortran_order': False, 'shape': (50, 3), }";
    FILE *file = fopen(path, "wb");
    i32 rows[50][3];
    ck_assert_ptr_nonnull(file);
    for (i32 i = 0; i < 50; i++)
        for (int axis = 0; axis < 3; axis++) rows[i][axis] = 3 * i;
    memset(head + strlen(head), ' ', sizeof head - strlen(head));
    head[sizeof head - 1] = '\n';
    fwrite("\x93NUMPY\x01\x00\x77\x00", 1, 10, file); /* 119 bytes follow */
    fwrite(head, 1, sizeof head, file);
    fwrite(rows, 1, sizeof rows, file);
    ck_assert_int_eq(fclose(file), 0);
}

/* A density adds rows of its own to those of surfaces, which are the default. */
START_TEST(test_tool_tune_density)
{
    char path[] = "/tmp/vx_tune_XXXXXX", folder[] = "/tmp/vx_cloud_XXXXXX";
    char file[64], json[64];
    size_t bytes;
    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(file, sizeof file, "%s/apart.npy", folder);
    (void)snprintf(json, sizeof json, "%s/json", folder);
    write_cloud(file);
    const char *const surface[] = {"tune",    "--device", "fake",    "--shapes", "8:16",
                                   "--sizes", "50",       "--table", path};
    const char *const sparse[] = {"tune",   "--device", "fake", "--shapes",
                                  "8:16",   "--sizes",  "50",   "--density",
                                  "sparse", "--table",  path};
    const char *const also[] = {"tune", "--device", "fake", "--shapes", "8:16", "--sizes",
                                "50",   "--cloud",  file,   "--table",  path};
    const char *const none[] = {"tune", "--device", "fake", "--cloud", "/nowhere.npy"};
    const char *const cloud[] = {"bench",   "--device", "fake",   "--list",  "clouds",
                                 "--cloud", file,       "--runs", "1",       "--channels",
                                 "16",      "--layers", "1",      "--table", path,
                                 "--json",  json};
    close(mkstemp(path));
    unlink(path);
    ck_assert_int_eq(tool(CELLS(surface)), 0);
    const i32 before = rows_of(path, VX_DENSITY_SURFACE);
    ck_assert_int_ge(before, 1);
    ck_assert_int_eq(rows_of(path, VX_DENSITY_SPARSE), 0);
    ck_assert_int_eq(tool(CELLS(sparse)), 0);
    ck_assert_int_eq(rows_of(path, VX_DENSITY_SURFACE), before);
    ck_assert_int_eq(rows_of(path, VX_DENSITY_SPARSE), before);
    ck_assert_int_eq(tool(CELLS(also)), 0);
    ck_assert_int_eq(rows_of(path, VX_DENSITY_SURFACE), before);
    ck_assert_int_eq(tool(CELLS(none)), 1);
    ck_assert_int_eq(tool(CELLS(cloud)), 0);
    ck_assert_int_eq(json_rows(json, "conv"), 2);
    char *text = file_text(json, &bytes);
    text[bytes - 1] = 0;
    ck_assert_ptr_nonnull(strstr(text, "\"density\":\"sparse\""));
    free(text);
    unlink(json);
    unlink(file);
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

/* The demo's layers: three widths of convolutions and its linear layers. */
START_TEST(test_tool_tune_model)
{
    const char *const words[] = {
        "tune",    "--device", "fake",    "--model", "deploy/demo/repository/normals",
        "--sizes", "20",       "--types", "fp16"};
    const char *const missing[] = {"tune", "--device", "fake", "--model",
                                   "no/such/model"};
    ck_assert_int_eq(tool(CELLS(words)), 0);
    ck_assert_int_eq(tool(CELLS(missing)), 1);
}
END_TEST

/* What the device multiplies is measured: of the layer in FP8 that is E4M3, of the head FP16. */
START_TEST(test_tool_tune_fp8)
{
    enum { C = 64, V = 27 };
    static const char json[] =
        "{\"format\":1,\"inputs\":{\"feats\":{\"channels\":64}},\"precision\":\"fp16\","
        "\"layers\":[{\"name\":\"c\",\"op\":\"subm_conv\",\"input\":\"feats\","
        "\"channels\":64,\"kernel\":3,\"bias\":false,\"layout\":\"spconv\","
        "\"fp8_scale\":1},"
        "{\"name\":\"y\",\"op\":\"linear\",\"input\":\"c\",\"channels\":16,"
        "\"bias\":false}],\"outputs\":[{\"layer\":\"y\"}],\"warmup\":[40],"
        "\"fp8\":{\"data\":\"fp8.npz\",\"nmse_max\":0.5}}";
    static f32 weight[C * V * C];
    const struct vx_test_tensor tensors[] = {
        {"c.weight", "F16", {C, 3, 3, 3, C}, 5, weight},
        {"y.weight", "F16", {16, C}, 2, weight}};
    char root[VX_TEST_PATH_BYTES], path[] = "/tmp/vx_tune_XXXXXX";
    struct vx_tune_table *table;
    struct vx_why why = {""};
    i32 found[VX_NUMBER_E4M3 + 1] = {0};
    close(mkstemp(path));
    unlink(path);
    vx_test_directory(root);
    vx_test_write_model(root, 1, json, tensors, 2);
    const char *const words[] = {"tune", "--device", "fake", "--model",
                                 root,   "--table",  path};
    ck_assert_int_eq(tool(CELLS(words)), 0);
    good(vx_tune_table_open("fake GPU", &why, &table), &why);
    good(vx_tune_table_read(table, path, &why), &why);
    for (i32 i = 0; i < vx_tune_table_count(table); i++)
        found[vx_tune_table_row(table, i)->type]++;
    vx_tune_table_close(&table);
    ck_assert_int_ge(found[VX_NUMBER_E4M3], 1);
    ck_assert_int_ge(found[VX_NUMBER_F16], 1);
    vx_test_remove(root);
    unlink(path);
}
END_TEST

static Suite *tools_suite(void)
{
    Suite *suite = suite_create("tune_tools");
    TCase *tools = tcase_create("tools");
    tcase_set_timeout(tools, 30);
    tcase_add_loop_test(tools, test_tools_refuse, 0, 16);
    tcase_add_test(tools, test_tool_bench);
    tcase_add_loop_test(tools, test_tool_bench_algorithm, 0, VX_CONV_ALGORITHMS_COUNT);
    tcase_add_test(tools, test_tool_tune);
    tcase_add_test(tools, test_tool_tune_density);
    tcase_add_test(tools, test_tool_tune_model);
    tcase_add_test(tools, test_tool_tune_fp8);
    suite_add_tcase(suite, tools);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(tools_suite());
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
